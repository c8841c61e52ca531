//! `tenure demo`: three replicas on this machine, and everything that can go wrong with a leader.
//!
//! Owns the show: an embedded API server in this process, three real `tenure run` processes beside it, and what is done to them.
//! Its claims rest on the workloads' stamps, not on what the replicas say.

use std::{
    error::Error,
    fs::{self, File},
    io,
    net::Ipv4Addr,
    path::Path,
};

use super::{block_on, interrupts::Interrupts};
use crate::{
    apiserver::Server,
    cli::Demo,
    clock,
    console::{answer, refuse},
    exit,
    words::one_line,
};

mod picture;
mod relay;
mod replica;
mod script;
mod timeline;
mod workload;

use relay::Relay;
use replica::{NAMES, Replica};
use script::Script;
use timeline::Drawn;

/// Runs the demo or one of its parts, and returns the exit code.
pub(super) fn run(picture: Option<&Path>, part: Option<&Demo>) -> u8 {
    match part {
        None => show(picture),
        Some(Demo::Workload { directory, name }) => workload::run(directory, name),
    }
}

/// Why the demo cannot go on.
type Stuck = Box<dyn Error>;

fn show(picture: Option<&Path>) -> u8 {
    // Before the demo, which takes half a minute.
    if let Some(file) = picture
        && let Err(error) = File::create(file)
    {
        return refuse(exit::INVALID, &format!("--picture: {} cannot be written: {error}", file.display()));
    }
    // In a container the pid is often the same as in the previous demo.
    let directory = std::env::temp_dir().join(format!("tenure-demo-{}-{:08x}", std::process::id(), fastrand::u32(..)));
    match play(&directory, picture) {
        Ok(Some(drawn)) if drawn.holds => {
            let _ = fs::remove_dir_all(&directory);
            answer(&drawn.text, 0)
        }
        Ok(Some(drawn)) => {
            let why = format!("what was promised does not hold; what the replicas said is in {}", directory.display());
            refuse(answer(&drawn.text, 1), &why)
        }
        Ok(None) => {
            let _ = fs::remove_dir_all(&directory);
            130
        }
        Err(stuck) => {
            let (stuck, directory) = (one_line(&*stuck), directory.display());
            refuse(exit::INTERNAL, &format!("the demo cannot go on: {stuck}; what the replicas said is in {directory}"))
        }
    }
}

/// The verdict by the workloads' stamps. None if the demo was interrupted.
fn play(directory: &Path, picture: Option<&Path>) -> Result<Option<Drawn>, Stuck> {
    make(directory).map_err(|error| format!("no directory for the demo's files: {error}"))?;
    let server = Server::start((Ipv4Addr::LOCALHOST, 0).into())?;
    block_on(async {
        let mut interrupts = Interrupts::catch()?;
        let mut replicas = Vec::new();
        let container = replica::container();
        let kind = match &container {
            Ok(_) => "each PID 1 of a PID namespace, with a witness beside it".to_owned(),
            Err(why) => format!("as plain processes, without witnesses, as no PID namespace can be made here ({why})"),
        };
        let container = container.unwrap_or_default();
        for name in NAMES {
            let network = Relay::start(server.address()).await?;
            let kubeconfig = server.kubeconfig(network.address);
            replicas.push(Replica::new(name, network, &kubeconfig, directory, &container)?);
        }
        let mut script = Script::new(replicas, kind, directory, clock::boot());
        tokio::select! {
            played = script.play() => played?,
            () = interrupts.next() => return Ok(None),
        }
        if let Some(file) = picture {
            fs::write(file, script.picture()?)?;
        }
        Ok(Some(script.verdict()?))
    })?
}

/// For the owner only: kubeconfigs contain tokens.
fn make(directory: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    let mut builder = fs::DirBuilder::new();
    builder.mode(0o700);
    builder.create(directory)?;
    builder.create(directory.join("stamps"))
}
