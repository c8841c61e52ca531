//! What people run beside replicas: the commands that watch Leases over time, and the one that deletes them.

mod observe;
mod prune;
mod steer;
mod watch;

use std::{
    fs,
    io::{BufRead as _, BufReader},
    net::Ipv4Addr,
    os::unix::process::ExitStatusExt as _,
    path::PathBuf,
    process::{Command, Output, Stdio},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::{Value, json};
use support::{Case, PATIENCE, Prepared, Proxy, Stage, kept::pid, replica::write_kubeconfig, within};

use crate::TENURE;
use tokio::{
    sync::mpsc::{UnboundedReceiver, unbounded_channel},
    task::{JoinHandle, spawn_blocking},
};

pub(crate) fn groups() -> Vec<(&'static str, Vec<Case>)> {
    vec![("observe", observe::all()), ("prune", prune::all()), ("steer", steer::all()), ("watch", watch::all())]
}

/// Where commands run: behind a proxy, in the namespace of the case; unless said otherwise, as an administrator.
pub(crate) struct Desk<'a> {
    stage: &'a Stage,
    pub(crate) proxy: Proxy,
    kubeconfig: PathBuf,
    program: &'static str,
}

/// How a command ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ended {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

impl<'a> Desk<'a> {
    pub(crate) async fn of(stage: &'a Stage) -> Self {
        Self::with(stage, stage.api.token()).await
    }

    /// As whoever has this token.
    pub(crate) async fn with(stage: &'a Stage, token: &str) -> Self {
        let Prepared { proxy, .. } = stage.prepare_at("desk", token.to_owned(), Ipv4Addr::LOCALHOST).await;
        let directory = stage.directory().join("desk");
        fs::create_dir_all(&directory).expect("a directory");
        let kubeconfig = write_kubeconfig(&directory, &proxy, token);
        Self { stage, proxy, kubeconfig, program: TENURE }
    }

    /// With the commands of this tenure.
    pub(crate) fn by(self, program: &'static str) -> Self {
        Self { program, ..self }
    }

    pub(crate) fn command(&self, line: &[&str]) -> Command {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", self.program]).args(line);
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default()).env("KUBECONFIG", &self.kubeconfig);
        command.env("TENURE_LEASE__NAMESPACE", &self.stage.namespace);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Runs it to its end.
    pub(crate) async fn ends(&self, line: &[&str]) -> Ended {
        let mut running = self.starts(line);
        let mut out = String::new();
        within(PATIENCE, &format!("{line:?} ends"), async {
            while let Some(line) = running.lines.recv().await {
                out.extend([&line, "\n"]);
            }
        })
        .await;
        let (code, err) = running.exit().await;
        Ended { code, out, err }
    }

    pub(crate) fn starts(&self, line: &[&str]) -> Running {
        let mut child = self.command(line).spawn().expect("it starts");
        let (out, lines) = unbounded_channel();
        let stdout = BufReader::new(child.stdout.take().expect("piped"));
        // Without a receiver it closes the pipe.
        std::thread::spawn(move || stdout.lines().map_while(Result::ok).try_for_each(|line| out.send(line)));
        let pid = pid(&child);
        let ended = spawn_blocking(move || child.wait_with_output().expect("a child"));
        Running { pid, lines, ended }
    }

    /// Creates a Lease with these labels.
    async fn lease(&self, name: &str, labels: &Value, spec: &Value) -> Value {
        self.create(&json!({ "metadata": { "name": name, "labels": labels }, "spec": spec })).await
    }

    async fn create(&self, lease: &Value) -> Value {
        self.stage.api.create(&self.stage.lease.collection(), lease).await
    }
}

/// A command that goes on; it ends when this is dropped.
pub(crate) struct Running {
    pub(crate) pid: Pid,
    lines: UnboundedReceiver<String>,
    ended: JoinHandle<Output>,
}

impl Running {
    /// The next line.
    async fn line(&mut self) -> String {
        within(PATIENCE, "a line", self.lines.recv()).await.expect("it says more")
    }

    /// The next line, which is JSON.
    async fn json(&mut self) -> Value {
        let line = self.line().await;
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(self.pid, signal).expect("it lives");
    }

    /// Its exit code, or 128 plus the signal that ended it, and what it complained of.
    pub(crate) async fn exit(mut self) -> (i32, String) {
        let output = within(PATIENCE, "it ends", &mut self.ended).await.expect("no panic inside");
        let code = output.status.code().unwrap_or_else(|| 128 + output.status.signal().unwrap_or_default());
        (code, String::from_utf8(output.stderr).expect("text"))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.ended.is_finished() {
            // It may have ended in between.
            let _ = kill(self.pid, Signal::SIGKILL);
        }
    }
}
