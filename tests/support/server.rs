//! Runs the API servers that cases are held against.

use std::{
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
};

use super::api::Api;

/// Which API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `tenure dev-server`.
    Embedded,
    /// kube-apiserver with etcd.
    Real,
}

impl Kind {
    /// Its word in names of tests.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Embedded => "embedded",
            Self::Real => "real",
        }
    }
}

/// A running API server; ends when dropped, or with this process however that ends.
pub struct Server {
    kind: Kind,
    directory: PathBuf,
    child: Child,
    lifeline: Option<ChildStdin>,
}

impl Server {
    /// Starts one and waits until it answers.
    ///
    /// # Panics
    /// If it does not come up; why stands on standard error.
    pub fn start(kind: Kind) -> Self {
        let directory = scratch(kind.as_str());
        let mut command = match kind {
            Kind::Embedded => {
                let mut command = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cluster/embedded"));
                command.arg(&directory).arg(env!("CARGO_BIN_EXE_tenure"));
                command
            }
            Kind::Real => {
                let mut command = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cluster/server"));
                // Without it the server drops `strategy` and `preferredHolder` from every Lease.
                command.arg(&directory).arg("--feature-gates=CoordinatedLeaderElection=true");
                command
            }
        };
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the server's script starts");
        let lifeline = child.stdin.take();
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("a line of the server's script");
        assert_eq!(line.trim(), "ready", "the {} API server did not come up", kind.as_str());
        Self { kind, directory, child, lifeline }
    }

    /// Which one it is.
    pub const fn kind(&self) -> Kind {
        self.kind
    }

    /// An administrator's kubeconfig.
    pub fn kubeconfig(&self) -> PathBuf {
        self.directory.join("kubeconfig")
    }

    /// The record of requests that the server itself keeps; only a real one does.
    pub fn audit_log(&self) -> PathBuf {
        self.directory.join("audit.log")
    }

    /// An administrator's client; it belongs to the runtime that it is made in.
    pub async fn admin(&self) -> Api {
        Api::connect(&self.kubeconfig()).await
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.lifeline.take());
        drop(self.child.wait());
    }
}

/// A new name for a directory, in memory where the machine has such a place: etcd writes, and stamps must never wait for a disk.
pub fn scratch(purpose: &str) -> PathBuf {
    let memory = Path::new("/dev/shm");
    let parent = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
    parent.join(format!("tenure-test-{purpose}-{}-{:08x}", std::process::id(), fastrand::u32(..)))
}
