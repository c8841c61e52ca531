//! `tenure demo`: three replicas on this machine, and everything that can go wrong with a leader.
//!
//! Owns the show: an embedded API server in this process, three real `tenure run` processes beside it, and what is done to them.
//! Its claims rest on the workloads' stamps, not on what the replicas say.

use std::{
    fs, io,
    net::Ipv4Addr,
    path::{Path, PathBuf},
};

use super::{block_on, interrupts::Interrupts};
use crate::{
    apiserver::{Server, StartError},
    cli::Demo,
    clock,
    console::{answer, complain},
    exit,
    words::one_line,
};

mod relay;
mod replica;
mod script;
mod timeline;
mod workload;

use relay::Relay;
use replica::Replica;
use script::{Script, Stuck};
use timeline::Drawn;

/// Runs the demo or one of its parts, and returns the exit code.
pub(super) fn run(part: Option<&Demo>) -> u8 {
    match part {
        None => show(),
        Some(Demo::Workload { directory, name }) => workload::run(directory, name),
    }
}

#[derive(Debug, thiserror::Error)]
enum Failed {
    #[error("the API server does not start")]
    Server(#[from] StartError),
    #[error("no directory for the demo's files: {}", .directory.display())]
    Directory { directory: PathBuf, source: io::Error },
    #[error("a replica has no network")]
    Relay(#[source] io::Error),
    #[error("a replica does not start")]
    Replica(#[source] io::Error),
    #[error("the stamps of the workloads cannot be read")]
    Stamps(#[source] io::Error),
    #[error("cannot start a runtime")]
    Runtime(#[source] io::Error),
    #[error("cannot wait for signals")]
    Signals(#[source] io::Error),
    #[error("interrupted")]
    Interrupted,
    #[error("the demo is stuck")]
    Stuck(#[from] Stuck),
}

fn show() -> u8 {
    // In a container the pid is often the same as in the previous demo.
    let directory = std::env::temp_dir().join(format!("tenure-demo-{}-{:08x}", std::process::id(), fastrand::u32(..)));
    match play(&directory) {
        Ok(drawn) if drawn.holds => {
            drop(fs::remove_dir_all(&directory));
            answer(&drawn.text, 0)
        }
        Ok(drawn) => {
            let code = answer(&drawn.text, 1);
            complain(&format!("what was promised does not hold; what the replicas said is in {}", directory.display()));
            code
        }
        Err(Failed::Interrupted) => {
            drop(fs::remove_dir_all(&directory));
            130
        }
        Err(failed) => {
            complain(&format!("{}; what the replicas said is in {}", one_line(&failed), directory.display()));
            exit::INTERNAL
        }
    }
}

/// What the workloads' stamps prove.
fn play(directory: &Path) -> Result<Drawn, Failed> {
    make(directory).map_err(|source| Failed::Directory { directory: directory.to_owned(), source })?;
    let server = Server::start((Ipv4Addr::LOCALHOST, 0).into())?;
    block_on(async {
        let mut interrupts = Interrupts::catch().map_err(Failed::Signals)?;
        let mut replicas = Vec::new();
        for name in ["red", "green", "blue"] {
            let network = Relay::start(server.address()).await.map_err(Failed::Relay)?;
            let kubeconfig = server.kubeconfig(network.address);
            replicas.push(Replica::new(name, network, &kubeconfig, directory).map_err(Failed::Replica)?);
        }
        let mut script = Script::new(replicas, directory, clock::boot());
        tokio::select! {
            played = script.play() => played?,
            () = interrupts.next() => return Err(Failed::Interrupted),
        }
        script.verdict().map_err(Failed::Stamps)
    })
    .map_err(Failed::Runtime)?
}

/// For the owner only: kubeconfigs contain tokens.
fn make(directory: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    let mut builder = fs::DirBuilder::new();
    builder.mode(0o700);
    builder.create(directory)?;
    builder.create(directory.join("stamps"))
}
