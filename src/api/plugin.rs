//! The kubeconfig's credential plugin (`exec`).
//!
//! Owns its run, how long before the expiry of a token or certificate it is run again, and what of its output is used, whether it
//! may prompt its user, the end of one that hangs, and what is said of one that failed: never what may be secret, as what it is
//! given and what it prints on standard output, but the last line of its standard error.
//!
//! kube would run it too, but panics where the token can be no header, and runs it a second time for a certificate.

use std::{
    io::{self, BufRead as _, BufReader, IsTerminal as _, Read},
    iter,
    process::{Child, Command, ExitStatus, Stdio},
    sync::mpsc::{self, Receiver},
    thread,
    time::Duration,
};

use http::HeaderValue;
use jiff::Timestamp;
use kube::config::{AuthInfo, ExecConfig, ExecInteractiveMode};
use serde::Deserialize;
use serde_json::json;
use tokio::task::spawn_blocking;

use super::{access::AccessError, bearer::bearer};
use crate::{
    clock,
    config::{Signal, duration},
    process::{
        Pid, kill,
        scan::{Scanner, Scope, Spare},
    },
    words,
};

/// A plugin that prompts nobody counts as hung after this long, unless somebody waits for it.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// A token or a certificate is replaced this long before it ends.
const AHEAD: Duration = Duration::from_secs(60);
/// From one run to the next, however short its credentials live.
pub(super) const LEAST: Duration = Duration::from_secs(5);
/// So long after its end nothing more comes of it, although what it has left running may keep its output open.
const SETTLED: Duration = Duration::from_secs(1);
/// Bytes that are read of its output. More would take memory from the workload.
const LONGEST: u64 = 1024 * 1024;

/// A plugin that is to be run.
#[derive(Clone)]
pub(super) struct Plugin {
    program: String,
    exec: ExecConfig,
    /// True if it may prompt its user, who has unlimited time.
    interactive: bool,
}

/// Credentials of a plugin: a token, a certificate, or both.
pub(super) struct Given {
    /// The header.
    pub(super) token: Option<HeaderValue>,
    /// The certificate and its key, in PEM.
    pub(super) identity: Option<(String, String)>,
    /// How long both are good.
    pub(super) good: Duration,
}

#[derive(Deserialize)]
struct ExecCredential {
    status: Status,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    expiration_timestamp: Option<String>,
    token: Option<String>,
    client_certificate_data: Option<String>,
    client_key_data: Option<String>,
}

impl Plugin {
    /// The plugin of `auth`; `None` if there is none, or it has credentials of its own, which take precedence.
    pub(super) fn of(auth: &mut AuthInfo) -> Result<Option<Self>, AccessError> {
        let password = auth.username.is_some() && auth.password.is_some();
        let Some(exec) = auth.exec.take() else { return Ok(None) };
        if password || auth.token.is_some() || auth.token_file.is_some() || auth.auth_provider.is_some() {
            return Ok(None);
        }
        let program = exec.command.clone().ok_or_else(|| AccessError::unusable("its credential plugin (exec) has no command"))?;
        match may_ask(&exec, io::stdin().is_terminal()) {
            Some(interactive) => Ok(Some(Self { program, exec, interactive })),
            None => Err(AccessError::unusable(format!(
                "the credential plugin {program} wants a terminal (interactiveMode: Always), and standard input is none"
            ))),
        }
    }

    /// Runs it. One that prompts nobody counts as hung after `patience`.
    pub(super) async fn ask(&self, patience: Duration) -> Result<Given, AccessError> {
        let this = self.clone();
        let asked = spawn_blocking(move || this.run());
        let limit = if self.interactive { Duration::MAX } else { patience };
        match tokio::time::timeout(limit, asked).await {
            Ok(given) => given.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic())),
            Err(_) => Err(self.hung(patience)),
        }
    }

    fn run(&self) -> Result<Given, AccessError> {
        let program = &self.program;
        let (status, printed, complaints) = self.outcome().map_err(|source| {
            let hint = self.exec.install_hint.as_deref().map(|hint| format!(" ({})", words::squeezed(hint)));
            AccessError::of_start(format!("the credential plugin {program} cannot be run{}", hint.unwrap_or_default()), source)
        })?;
        if !status.success() {
            let complaint = complaint(&complaints);
            return Err(AccessError::of_run(format!("the credential plugin {program} failed ({status}){complaint}")));
        }
        read(&printed, clock::timestamp()).ok_or_else(|| {
            AccessError::of_run(format!(
                "what the credential plugin {program} printed is not an ExecCredential with a status, a token that a header can \
                 carry or a certificate and its key, and an expiry that is a time or none"
            ))
        })
    }

    /// How it ended, and the beginning of what it wrote to standard output and to standard error.
    fn outcome(&self) -> io::Result<(ExitStatus, Vec<u8>, Vec<u8>)> {
        let ExecConfig { api_version, args, env, cluster, .. } = &self.exec;
        let mut question = json!({
            "apiVersion": api_version, "kind": "ExecCredential", "spec": { "interactive": self.interactive },
        });
        if self.exec.provide_cluster_info
            && let Some(cluster) = &cluster
        {
            question["spec"]["cluster"] = serde_json::to_value(cluster)?;
        }
        let variables = env.iter().flatten();
        let mut command = Command::new(&self.program);
        command.args(args.iter().flatten());
        command.envs(variables.filter_map(|variable| Some((variable.get("name")?, variable.get("value")?))));
        command.env("KUBERNETES_EXEC_INFO", question.to_string()).stdout(Stdio::piped());
        if !self.interactive {
            command.stdin(Stdio::null()).stderr(Stdio::piped());
        }
        let mut child = command.spawn()?;
        let Child { stdout, stderr, .. } = &mut child;
        let complaints = stderr.take().map(follow).transpose()?;
        let printed = stdout.take().map(follow).transpose()?;
        let status = child.wait()?;
        let complaints = complaints.filter(|_| !status.success());
        Ok((status, all(printed), all(complaints)))
    }

    /// Kills a plugin that did not end within `limit`, with its descendants, which would otherwise pile up.
    fn hung(&self, limit: Duration) -> AccessError {
        // This process starts nothing but plugins.
        let own = Spare { init: Pid::this(), electors: &[] };
        if let Ok(mut scanner) = Scanner::open()
            && let Ok(found) = scanner.find(Scope::Descendants, own)
        {
            for process in found.targets {
                let _ = kill::send(process.pid, Signal::KILL);
            }
        }
        let (program, limit) = (&self.program, duration::format(limit));
        AccessError::of_run(format!("the credential plugin {program} did not end within {limit}, and was killed"))
    }
}

/// Decides if it may prompt its user; `None` if it must and cannot.
fn may_ask(exec: &ExecConfig, terminal: bool) -> Option<bool> {
    match exec.interactive_mode {
        Some(ExecInteractiveMode::Never) => Some(false),
        Some(ExecInteractiveMode::IfAvailable) | None => Some(terminal),
        Some(ExecInteractiveMode::Always) => terminal.then_some(true),
    }
}

fn complaint(stderr: &[u8]) -> String {
    const SHOWN: usize = 200;
    let text = String::from_utf8_lossy(stderr);
    let last = text.lines().map(words::squeezed).rfind(|line| !line.is_empty());
    last.map(|line| format!(": {}", line.chars().take(SHOWN).collect::<String>())).unwrap_or_default()
}

/// Reads its output as YAML, as client-go does; `None` if that holds no credentials.
pub(super) fn read(printed: &[u8], now: Timestamp) -> Option<Given> {
    let ExecCredential { status } = serde_saphyr::from_slice(printed).ok()?;
    let Status { expiration_timestamp, token, client_certificate_data, client_key_data } = status;
    let good = match expiration_timestamp {
        None => Duration::MAX,
        Some(end) => {
            let left = Duration::try_from(end.parse::<Timestamp>().ok()?.duration_since(now)).unwrap_or_default();
            left.saturating_sub(AHEAD).max(LEAST)
        }
    };
    // An empty one would not be refused, but make this replica anonymous.
    let token = match token.filter(|token| !token.is_empty()) {
        Some(token) => Some(bearer(&token)?),
        None => None,
    };
    let identity = client_certificate_data.zip(client_key_data);
    (token.is_some() || identity.is_some()).then_some(Given { token, identity, good })
}

/// Reads a pipe in a thread of its own, as long as somebody holds the other end.
fn follow(pipe: impl Read + Send + 'static) -> io::Result<Receiver<Vec<u8>>> {
    let (sender, parts) = mpsc::channel();
    let mut pipe = BufReader::new(pipe.take(LONGEST));
    thread::Builder::new().spawn(move || {
        while let Ok(part @ [_, ..]) = pipe.fill_buf() {
            let part = part.to_vec();
            pipe.consume(part.len());
            if sender.send(part).is_err() {
                break;
            }
        }
    })?;
    Ok(parts)
}

/// What has come of a pipe. What was read before a failure counts.
fn all(pipe: Option<Receiver<Vec<u8>>>) -> Vec<u8> {
    pipe.iter().flat_map(|parts| iter::from_fn(|| parts.recv_timeout(SETTLED).ok())).flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_plugin_prints_is_credentials_only_if_it_can_be_sent() {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let read = |printed: &str| read(printed.as_bytes(), now);
        let good = |printed: &str| read(printed).map(|given| given.good);
        assert_eq!(good(r#"{"status": {"token": "t"}}"#), Some(Duration::MAX));
        for (end, seconds) in [("2026-01-01T01:00:00Z", 3540), ("2026-01-01T00:00:30Z", 5), ("2020-01-01T00:00:00Z", 5)] {
            assert_eq!(good(&format!("status: {{token: t, expirationTimestamp: '{end}'}}")), Some(Duration::from_secs(seconds)));
        }
        let certificate = "{clientCertificateData: c, clientKeyData: k, expirationTimestamp: '2026-01-01T01:00:00Z'}";
        assert_eq!(good(&format!("status: {certificate}")), Some(Duration::from_secs(3540)));
        for none in [
            "",
            "{}",
            r#"{"status": {}}"#,
            r#"{"status": {"token": ""}}"#,
            r#"{"status": {"token": "t\n"}}"#,
            r#"{"status": {"token": "t\u0000"}}"#,
            r#"{"status": {"token": "t", "expirationTimestamp": "soon"}}"#,
            r#"{"status": {"clientCertificateData": "c"}}"#,
        ] {
            assert!(read(none).is_none(), "{none}");
        }
    }

    #[test]
    fn a_plugin_that_must_ask_somebody_is_not_run_without_a_terminal() {
        let asks = |mode: Option<ExecInteractiveMode>, terminal| {
            may_ask(&ExecConfig { interactive_mode: mode, ..ExecConfig::default() }, terminal)
        };
        for (mode, with, without) in [
            (None, Some(true), Some(false)),
            (Some(ExecInteractiveMode::Never), Some(false), Some(false)),
            (Some(ExecInteractiveMode::Always), Some(true), None),
        ] {
            assert_eq!((asks(mode.clone(), true), asks(mode, false)), (with, without));
        }
        if !io::stdin().is_terminal() {
            let exec = ExecConfig {
                command: Some("aws".into()),
                interactive_mode: Some(ExecInteractiveMode::Always),
                ..ExecConfig::default()
            };
            let refused = Plugin::of(&mut AuthInfo { exec: Some(exec), ..AuthInfo::default() }).err().unwrap();
            assert!(!refused.may_pass(), "{refused}");
        }
    }

    #[test]
    fn that_there_is_no_process_for_a_plugin_may_pass_and_that_there_is_no_such_file_does_not() {
        let may_pass = |kind: io::ErrorKind| AccessError::of_start("it cannot be run", kind.into()).may_pass();
        assert!(may_pass(io::ErrorKind::WouldBlock) && may_pass(io::ErrorKind::OutOfMemory));
        assert!(!may_pass(io::ErrorKind::NotFound) && !may_pass(io::ErrorKind::PermissionDenied));
    }

    #[test]
    fn credentials_of_the_kubeconfig_itself_come_first() {
        let exec = Some(ExecConfig { command: Some("aws".into()), ..ExecConfig::default() });
        let oidc = serde_json::json!({ "name": "oidc", "config": { "id-token": "own" } });
        for own in [
            AuthInfo { token: Some("own".to_owned().into()), ..AuthInfo::default() },
            AuthInfo { token_file: Some("token".into()), ..AuthInfo::default() },
            AuthInfo { username: Some("me".into()), password: Some("own".to_owned().into()), ..AuthInfo::default() },
            AuthInfo { auth_provider: Some(serde_json::from_value(oidc).unwrap()), ..AuthInfo::default() },
        ] {
            let mut auth = AuthInfo { exec: exec.clone(), ..own };
            assert!(Plugin::of(&mut auth).unwrap().is_none() && auth.exec.is_none());
        }
        assert!(Plugin::of(&mut AuthInfo { exec, ..AuthInfo::default() }).unwrap().is_some());
    }
}
