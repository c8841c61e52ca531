//! The kubeconfig's credential plugin (`exec`), which kube runs.
//!
//! Owns whether it may prompt its user, the end of one that hangs, and what is said of one that failed: never what may be secret, as
//! what it is given and what it prints on standard output, but the last line of its standard error.

use std::{
    io::{self, IsTerminal as _},
    process::ExitStatus,
    time::Duration,
};

use kube::{
    client::AuthError,
    config::{AuthInfo, ExecConfig, ExecInteractiveMode},
};

use crate::{
    process::{
        Pid, kill,
        scan::{Scanner, Scope, Spare},
    },
    words,
};

/// A plugin that prompts nobody counts as hung after this long, unless somebody waits for it.
pub const PATIENCE: Duration = Duration::from_secs(60);

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
    /// What it printed identifies nobody.
    #[error(
        "what the credential plugin {program} printed is not an ExecCredential with a status, a token that a header can carry and an \
         expiry that is a time or none"
    )]
    Unusable {
        /// The plugin.
        program: String,
    },
}

impl PluginError {
    /// Whether trying again may help: it ran, or could not for want of a process. Everything else is configuration.
    pub(super) fn may_pass(&self) -> bool {
        match self {
            Self::NoCommand | Self::Terminal { .. } => false,
            // The container has as many processes as it may, or no memory for one.
            Self::Start { source, .. } => matches!(source.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::OutOfMemory),
            Self::Failed { .. } | Self::Hung { .. } | Self::Unusable { .. } => true,
        }
    }
}

/// A plugin that is to be run.
#[derive(Clone, Debug)]
pub(super) struct Plugin {
    program: String,
    hint: String,
    /// Whether it may prompt its user, who has unlimited time.
    pub(super) interactive: bool,
}

impl Plugin {
    /// The plugin of `auth`, made to prompt nobody where there is no terminal; `None` if there is none, or it has credentials of its
    /// own, which take precedence.
    pub(super) fn of(auth: &mut AuthInfo) -> Result<Option<Self>, PluginError> {
        let password = auth.username.is_some() && auth.password.is_some();
        if password || auth.token.is_some() || auth.token_file.is_some() || auth.auth_provider.is_some() {
            auth.exec = None;
        }
        let Some(exec) = &mut auth.exec else { return Ok(None) };
        let program = exec.command.clone().ok_or(PluginError::NoCommand)?;
        let Some(interactive) = may_ask(exec, io::stdin().is_terminal()) else { return Err(PluginError::Terminal { program }) };
        if !interactive {
            exec.interactive_mode = Some(ExecInteractiveMode::Never);
        }
        let hint = exec.install_hint.as_deref().map(|hint| format!(" ({})", words::squeezed(hint))).unwrap_or_default();
        Ok(Some(Self { program, hint, interactive }))
    }

    /// What kube says of its run, without what is secret.
    pub(super) fn failure(&self, error: AuthError) -> PluginError {
        let program = self.program.clone();
        if let AuthError::AuthExecStart(source) = error {
            return PluginError::Start { program, hint: self.hint.clone(), source };
        }
        let AuthError::AuthExecRun { out, .. } = error else { return self.unusable() };
        PluginError::Failed { program, status: out.status, complaint: complaint(&out.stderr) }
    }

    /// What it printed is of no use.
    pub(super) fn unusable(&self) -> PluginError {
        PluginError::Unusable { program: self.program.clone() }
    }

    /// It did not end within `limit`: it is killed, with its descendants, which would otherwise pile up.
    pub(super) fn hung(&self, limit: Duration) -> PluginError {
        // This process starts nothing but plugins.
        let own = Spare { init: Pid::this(), electors: &[] };
        if let Ok(mut scanner) = Scanner::open()
            && let Ok(found) = scanner.find(Scope::Descendants, own)
        {
            for process in found.targets {
                let _ = kill::send(process.pid, kill::SIGKILL);
            }
        }
        PluginError::Hung { program: self.program.clone(), limit }
    }
}

/// Whether it may prompt its user; `None` if it must and cannot.
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

#[cfg(test)]
mod tests {
    use super::*;

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
        assert!(!PluginError::Terminal { program: "aws".into() }.may_pass());
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
