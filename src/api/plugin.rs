//! The kubeconfig's credential plugin (`exec`).
//!
//! Owns its run: the request, the response, and how long that is valid. Errors never repeat what may be secret: what the plugin
//! is given and what it prints on standard output. They show the last line of its standard error; kubectl shows all of it.
//!
//! kube could run it too, but shows all of that, runs it twice for a client certificate, and runs it again within a request,
//! whose deadline then discards what a slow plugin returns.

use std::{
    io::{self, IsTerminal as _},
    process::{Command, ExitStatus, Output, Stdio},
    time::Duration,
};

use base64::prelude::{BASE64_STANDARD, Engine as _};
use jiff::Timestamp;
use kube::config::{AuthInfo, ExecConfig, ExecInteractiveMode};
use serde::Deserialize;
use serde_json::json;

use super::token::is_sendable;
use crate::{clock, words};

mod child;

/// A plugin that prompts nobody counts as hung after this long, unless somebody waits for it.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// Why a plugin gave no credentials.
#[derive(Debug, thiserror::Error)]
pub enum PluginError {
    /// The kubeconfig names no program.
    #[error("its credential plugin (exec) has no command")]
    NoCommand,
    /// It must prompt its user, and there is no terminal.
    #[error("the credential plugin {program} wants a terminal (interactiveMode: Always), and standard input is none")]
    Terminal {
        /// The plugin.
        program: String,
    },
    /// It cannot be started.
    #[error("the credential plugin {program} cannot be run{hint}")]
    Start {
        /// The plugin.
        program: String,
        /// The kubeconfig's installHint, or empty.
        hint: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It ran and failed.
    #[error("the credential plugin {program} failed ({status}){complaint}")]
    Failed {
        /// The plugin.
        program: String,
        /// How it ended.
        status: ExitStatus,
        /// The last line of its standard error, or empty.
        complaint: String,
    },
    /// It hung, and was killed.
    #[error("the credential plugin {program} did not end within {limit:?}, and was killed")]
    Hung {
        /// The plugin.
        program: String,
        /// How long it had.
        limit: Duration,
    },
    /// What it printed is not an ExecCredential.
    #[error("what the credential plugin {program} printed is not an ExecCredential with a status")]
    Unreadable {
        /// The plugin.
        program: String,
    },
    /// It returned nothing that identifies anybody.
    #[error("the credential plugin {program} gave neither a token nor a client certificate with its key")]
    Nothing {
        /// The plugin.
        program: String,
    },
    /// Its token cannot be sent.
    #[error(
        "the token that the credential plugin {program} gave is not a valid header value: it has a line break or another control character in it"
    )]
    Token {
        /// The plugin.
        program: String,
    },
    /// The expiry of its credentials is not a time.
    #[error("the expirationTimestamp that the credential plugin {program} gave is not a time")]
    Expiry {
        /// The plugin.
        program: String,
    },
}

#[derive(Deserialize)]
struct Credential {
    status: Given,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Given {
    expiration_timestamp: Option<String>,
    token: Option<String>,
    client_certificate_data: Option<String>,
    client_key_data: Option<String>,
}

impl PluginError {
    /// Whether trying again may help: it ran, or could not for want of a process. Everything else is configuration.
    pub(super) fn may_pass(&self) -> bool {
        match self {
            Self::NoCommand | Self::Terminal { .. } => false,
            // The container has as many processes as it may, or no memory for one.
            Self::Start { source, .. } => matches!(source.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::OutOfMemory),
            Self::Failed { .. }
            | Self::Hung { .. }
            | Self::Unreadable { .. }
            | Self::Nothing { .. }
            | Self::Token { .. }
            | Self::Expiry { .. } => true,
        }
    }
}

/// Replaces the plugin in `auth` by what it returns, unless `auth` has credentials of its own, which take precedence. Blocks
/// until the plugin has ended; `patience` is for one that prompts nobody.
///
/// Returns how long the credentials are valid; `None` if the plugin does not say, or if they have expired by this machine's
/// clock: one of the two is wrong, and the API server knows which.
///
/// # Errors
/// There are no credentials.
pub(super) fn replace(auth: &mut AuthInfo, patience: Duration) -> Result<Option<Duration>, PluginError> {
    let Some(exec) = auth.exec.take() else { return Ok(None) };
    let password = auth.username.is_some() && auth.password.is_some();
    if password || auth.token.is_some() || auth.token_file.is_some() || auth.auth_provider.is_some() {
        return Ok(None);
    }
    let program = exec.command.clone().ok_or(PluginError::NoCommand)?;
    let output = run(&program, &exec, patience)?;
    let Ok(Credential { status: given }) = serde_saphyr::from_slice(&output.stdout) else {
        return Err(PluginError::Unreadable { program });
    };
    let lifetime = match &given.expiration_timestamp {
        Some(time) => Some(until(time).ok_or_else(|| PluginError::Expiry { program: program.clone() })?),
        None => None,
    };
    // As in client-go, what is empty is not there. An empty token would not be refused, but make this replica anonymous.
    let present = |text: Option<String>| text.filter(|text| !text.is_empty());
    let token = present(given.token);
    if token.as_deref().is_some_and(|token| !is_sendable(token)) {
        return Err(PluginError::Token { program });
    }
    let certificate = present(given.client_certificate_data).zip(present(given.client_key_data));
    if token.is_none() && certificate.is_none() {
        return Err(PluginError::Nothing { program });
    }
    auth.token = token.map(Into::into);
    if let Some((certificate, key)) = certificate {
        auth.client_certificate_data = Some(BASE64_STANDARD.encode(certificate.as_bytes()));
        // kube appends the certificate right after it.
        auth.client_key_data = Some(BASE64_STANDARD.encode(format!("{key}\n").as_bytes()).into());
    }
    Ok(lifetime.filter(|lifetime| !lifetime.is_zero()))
}

/// What it printed within `patience`; a user who is prompted has unlimited time.
fn run(program: &str, exec: &ExecConfig, patience: Duration) -> Result<Output, PluginError> {
    let interactive = may_ask(exec.interactive_mode.as_ref(), io::stdin().is_terminal());
    let interactive = interactive.ok_or_else(|| PluginError::Terminal { program: program.into() })?;
    let mut command = Command::new(program);
    command.args(exec.args.iter().flatten());
    for variable in exec.env.iter().flatten() {
        if let (Some(name), Some(value)) = (variable.get("name"), variable.get("value")) {
            command.env(name, value);
        }
    }
    command.env("KUBERNETES_EXEC_INFO", question(exec, interactive)).stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    if interactive {
        command.stdin(Stdio::inherit()).stderr(Stdio::inherit());
    }
    let patience = if interactive { Duration::MAX } else { patience };
    let output =
        command.spawn().and_then(|child| child::ended(child, clock::boot() + patience)).map_err(|source| PluginError::Start {
            program: program.into(),
            hint: exec.install_hint.as_deref().map(|hint| format!(" ({})", words::squeezed(hint))).unwrap_or_default(),
            source,
        })?;
    match output {
        None => Err(PluginError::Hung { program: program.into(), limit: patience }),
        Some(output) if output.status.success() => Ok(output),
        Some(Output { status, stderr, .. }) => {
            Err(PluginError::Failed { program: program.into(), status, complaint: complaint(&stderr) })
        }
    }
}

/// Whether it may prompt its user; `None` if it must and cannot.
fn may_ask(mode: Option<&ExecInteractiveMode>, terminal: bool) -> Option<bool> {
    match mode {
        Some(ExecInteractiveMode::Never) => Some(false),
        Some(ExecInteractiveMode::IfAvailable) | None => Some(terminal),
        Some(ExecInteractiveMode::Always) => terminal.then_some(true),
    }
}

fn question(exec: &ExecConfig, interactive: bool) -> String {
    let mut spec = json!({"interactive": interactive});
    if let (true, Some(cluster)) = (exec.provide_cluster_info, &exec.cluster) {
        spec["cluster"] = json!(cluster);
    }
    json!({"apiVersion": exec.api_version, "kind": "ExecCredential", "spec": spec}).to_string()
}

fn complaint(stderr: &[u8]) -> String {
    const SHOWN: usize = 200;
    let text = String::from_utf8_lossy(stderr);
    let last = text.lines().map(words::squeezed).rfind(|line| !line.is_empty());
    last.map(|line| format!(": {}", line.chars().take(SHOWN).collect::<String>())).unwrap_or_default()
}

/// The time from now until `time`: zero if that is past, `None` if it is not a time.
fn until(time: &str) -> Option<Duration> {
    let end: Timestamp = time.parse().ok()?;
    let micros = u64::try_from(end.as_microsecond().saturating_sub(clock::wall())).unwrap_or_default();
    Some(Duration::from_micros(micros))
}

#[cfg(test)]
mod tests {
    use kube::config::ExecAuthCluster;

    use super::*;
    use crate::{
        process::{Pid, kill},
        words::one_line,
    };

    fn shell(script: &str) -> AuthInfo {
        let exec = ExecConfig {
            api_version: Some("client.authentication.k8s.io/v1".into()),
            command: Some("/bin/sh".into()),
            args: Some(vec!["-c".into(), script.into(), "an-argument".into()]),
            env: Some(vec![[("name".into(), "SECRET".into()), ("value".into(), "a-variable".into())].into()]),
            interactive_mode: Some(ExecInteractiveMode::Never),
            ..ExecConfig::default()
        };
        AuthInfo { exec: Some(exec), ..AuthInfo::default() }
    }

    /// A plugin that returns `status`, JSON in which the shell still expands backquotes.
    fn gives(status: &str) -> AuthInfo {
        shell(&format!("cat <<END\n{{\"kind\": \"ExecCredential\", \"status\": {status}}}\nEND"))
    }

    fn refused(mut auth: AuthInfo) -> PluginError {
        replace(&mut auth, PATIENCE).unwrap_err()
    }

    #[test]
    fn a_plugin_is_asked_as_kubectl_asks() {
        let mut auth = gives(r#"{"token": "`printf %s "$SECRET $KUBERNETES_EXEC_INFO" | base64 -w0`"}"#);

        replace(&mut auth, PATIENCE).unwrap();

        let question = r#"{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","spec":{"interactive":false}}"#;
        let asked = BASE64_STANDARD.encode(format!("a-variable {question}").as_bytes());
        assert_eq!(serde_json::json!(auth)["token"], asked);
    }

    #[test]
    fn a_plugin_is_told_of_the_cluster_only_if_it_asks_for_that() {
        let cluster = ExecAuthCluster { server: Some("https://api".into()), ..ExecAuthCluster::default() };
        let told = |provide_cluster_info| {
            let exec = ExecConfig { provide_cluster_info, cluster: Some(cluster.clone()), ..ExecConfig::default() };
            let question: serde_json::Value = serde_json::from_str(&question(&exec, false)).unwrap();
            question["spec"].get("cluster").cloned()
        };

        assert_eq!(told(true), Some(json!({"server": "https://api"})));
        assert_eq!(told(false), None);
    }

    #[test]
    fn a_certificate_takes_the_place_of_the_plugin_which_is_not_asked_again() {
        let mut auth = gives(r#"{"clientCertificateData": "certificate", "clientKeyData": "key"}"#);

        assert_eq!(replace(&mut auth, PATIENCE).unwrap(), None);

        let auth = serde_json::json!(auth);
        assert_eq!(auth["client-certificate-data"], BASE64_STANDARD.encode(b"certificate"));
        assert_eq!(auth["client-key-data"], BASE64_STANDARD.encode(b"key\n"));
        assert!(auth.get("exec").is_none() && auth.get("token").is_none(), "{auth}");
    }

    #[test]
    fn an_empty_certificate_beside_a_token_is_none() {
        let mut auth = gives(r#"{"token": "t", "clientCertificateData": "", "clientKeyData": ""}"#);

        replace(&mut auth, PATIENCE).unwrap();

        let auth = serde_json::json!(auth);
        assert!(auth.get("client-certificate-data").is_none() && auth["token"] == "t", "{auth}");
    }

    #[test]
    fn credentials_of_the_kubeconfig_itself_come_first() {
        let mut auth = AuthInfo { token: Some("own".to_owned().into()), ..shell("exit 1") };

        assert_eq!(replace(&mut auth, PATIENCE).unwrap(), None);

        assert_eq!(serde_json::json!(auth)["token"], "own");
        let oidc = serde_json::json!({ "name": "oidc", "config": { "id-token": "own" } });
        for mut other in [
            AuthInfo { token_file: Some("token".into()), ..shell("exit 1") },
            AuthInfo { username: Some("me".into()), password: Some("own".to_owned().into()), ..shell("exit 1") },
            AuthInfo { auth_provider: Some(serde_json::from_value(oidc).unwrap()), ..shell("exit 1") },
        ] {
            assert_eq!(replace(&mut other, PATIENCE).unwrap(), None, "{:?}", serde_json::json!(other));
        }
    }

    #[test]
    fn that_there_is_no_process_for_a_plugin_may_pass_and_that_there_is_no_such_file_does_not() {
        let may_pass = |kind: io::ErrorKind| {
            PluginError::Start { program: "aws".into(), hint: String::new(), source: kind.into() }.may_pass()
        };
        assert!(may_pass(io::ErrorKind::WouldBlock) && may_pass(io::ErrorKind::OutOfMemory));
        assert!(!may_pass(io::ErrorKind::NotFound) && !may_pass(io::ErrorKind::PermissionDenied));
    }

    #[test]
    fn credentials_are_good_until_their_end() {
        let until =
            |time: &str| replace(&mut gives(&format!(r#"{{"token": "t", "expirationTimestamp": {time}}}"#)), PATIENCE).unwrap();

        let hour = until(r#""`date -u -d "@$(($(date +%s) + 3600))" +%FT%TZ`""#).unwrap();
        assert!(hour > Duration::from_secs(3500) && hour < Duration::from_secs(3601), "{hour:?}");
        assert_eq!((until("null"), until(r#""2001-01-01T00:00:00Z""#)), (None, None));
    }

    #[test]
    fn what_a_plugin_gives_that_identifies_nobody_is_refused() {
        for status in ["{}", r#"{"token": ""}"#, r#"{"clientCertificateData": "certificate"}"#] {
            assert!(matches!(refused(gives(status)), PluginError::Nothing { .. }), "{status}");
        }
        assert!(matches!(refused(gives(r#"{"token": "t", "expirationTimestamp": "soon"}"#)), PluginError::Expiry { .. }));
    }

    #[test]
    fn an_error_shows_what_the_plugin_complains_of_and_nothing_that_it_was_given_or_prints() {
        for (script, shown) in [
            ("echo a-token; echo first >&2; echo '  the session is over ' >&2; exit 3", "(exit status: 3): the session is over"),
            ("echo '{\"status\": {\"token\": \"a-token\"'", "is not an ExecCredential"),
            ("echo '{\"status\": \"a-token\"}'", "is not an ExecCredential"),
            ("echo '{\"status\": {\"token\": [\"a-token\"]}}'", "is not an ExecCredential"),
        ] {
            let error = refused(shell(script));

            let said = one_line(&error);
            assert!(said.contains("/bin/sh") && said.contains(shown), "{said}");
            for secret in ["a-token", "a-variable", "an-argument", "first"] {
                assert!(!said.contains(secret), "{said}");
            }
            assert!(error.may_pass());
        }
    }

    #[test]
    fn a_plugin_that_hangs_is_killed_with_what_it_has_started() {
        let mark = format!("{}", 1_000_000 + std::process::id());
        let exec = shell(&format!("sleep {mark} & sleep {mark}")).exec.unwrap();

        let error = run("/bin/sh", &exec, Duration::from_millis(300)).unwrap_err();

        assert!(matches!(error, PluginError::Hung { .. }) && error.may_pass(), "{error:?}");
        assert!(one_line(&error).ends_with("did not end within 300ms, and was killed"), "{error}");
        let until = clock::boot() + Duration::from_secs(20);
        let runs = || {
            let lines = std::fs::read_dir("/proc").unwrap().filter_map(|entry| {
                let line = std::fs::read(entry.ok()?.path().join("cmdline")).ok()?;
                line.starts_with(format!("sleep\0{mark}").as_bytes()).then_some(())
            });
            lines.count()
        };
        while runs() > 0 {
            assert!(clock::boot() < until, "it runs on");
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_plugin_is_not_awaited_longer_than_it_runs_whatever_it_leaves_behind() {
        let mark = format!("{}", 2_000_000 + std::process::id());
        let exec = shell(&format!("sleep {mark} & echo $! credentials; echo a complaint >&2")).exec.unwrap();

        let output = run("/bin/sh", &exec, Duration::from_secs(600)).unwrap();

        let printed = String::from_utf8(output.stdout).unwrap();
        let (pid, credentials) = printed.split_once(' ').unwrap();
        assert_eq!((credentials, &*output.stderr), ("credentials\n", &b"a complaint\n"[..]));
        kill::send(Pid::from_raw(pid.parse().unwrap()), kill::SIGKILL).unwrap();
    }

    #[test]
    fn what_a_plugin_prints_without_end_is_not_kept() {
        let endless = |script, patience| run("/bin/sh", &shell(script).exec.unwrap(), patience).unwrap_err();

        let printed = endless("yes", Duration::from_secs(30));
        assert!(matches!(printed, PluginError::Failed { .. }), "its pipe is closed: {printed:?}");

        let complained = endless("yes >&2", Duration::from_millis(300));
        assert!(matches!(complained, PluginError::Hung { .. }), "{complained:?}");
    }

    #[test]
    fn a_plugin_that_must_ask_somebody_is_not_run_without_a_terminal() {
        let modes = [None, Some(ExecInteractiveMode::Never), Some(ExecInteractiveMode::Always)];
        let asks = |terminal| modes.each_ref().map(|mode| may_ask(mode.as_ref(), terminal));
        assert_eq!(asks(true), [Some(true), Some(false), Some(true)]);
        assert_eq!(asks(false), [Some(false), Some(false), None]);
        assert!(!PluginError::Terminal { program: "aws".into() }.may_pass());
    }

    #[test]
    fn a_plugin_that_is_not_there_is_told_with_how_to_get_it() {
        let mut auth = shell("");
        if let Some(exec) = &mut auth.exec {
            exec.command = Some("/nonexistent/plugin".into());
            exec.install_hint = Some("brew install\nplugin".into());
        }

        let error = refused(auth);

        let said = one_line(&error);
        assert!(said.starts_with("the credential plugin /nonexistent/plugin cannot be run (brew install plugin): "), "{said}");
        assert!(!error.may_pass());
    }
}
