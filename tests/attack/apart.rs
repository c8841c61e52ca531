//! Runs this test again in its own namespaces: the bridge, the replicas' networks and every process disappear with them.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use libtest_mimic::Failed;
use support::{
    kept::{bound, contained},
    programs,
    server::{SCRATCH, scratch},
};

use crate::complete::skip;

/// Environment variable that tells the inner test its directory.
const DIRECTORY: &str = "TENURE_ATTACK_DIRECTORY";

/// The directory, if this is the inner test.
pub(crate) fn directory() -> Option<PathBuf> {
    env::var_os(DIRECTORY).map(PathBuf::from)
}

/// Runs the inner test, and cleans up. A short one is forgone where the machine cannot give replicas their own networks.
pub(crate) fn run(length: Duration) -> Result<(), Failed> {
    if let Some(reason) = hindrance() {
        let reason = format!("it takes network namespaces, veth, a bridge and iptables: {reason}");
        return skip("the attack", &reason, length).map_err(Into::into);
    }
    if !crate::peer::build() {
        skip("an attack beside client-go", "its wrapper cannot be built (go)", length)?;
    }
    if programs::find("tenure").is_none() {
        skip("an attack on an earlier tenure", "this clone does not have its commit", length)?;
    }
    let directory = Directory(scratch("attack"));
    fs::create_dir(&directory.0)?;
    let status = apart().arg(env::current_exe()?).env(DIRECTORY, &directory.0).env(SCRATCH, &directory.0).status()?;
    if status.success() { Ok(()) } else { Err("two ran at once, or something else that must not be: see above".into()) }
}

/// Tries what the attack does to a network.
const PROBE: &str = "
set -eu
ip link set lo up
ip link add name bridge type bridge
ip link add name end type veth peer name other
iptables -w -A INPUT -p tcp --syn -j DROP
";

fn hindrance() -> Option<String> {
    match apart().args(["sh", "-c", PROBE]).output() {
        Ok(probe) if probe.status.success() => None,
        Ok(probe) => Some(String::from_utf8_lossy(&probe.stderr).trim().to_owned()),
        Err(error) => Some(format!("setpriv: {error}")),
    }
}

/// A command in its own namespaces. It dies with this process, and takes everything in them along.
fn apart() -> Command {
    let mut command = bound();
    command.args(contained()).args(["--mount", "--net"]);
    command
}

/// The prefix of the names of cgroups of the attack with this directory: two simultaneous attacks have different ones.
pub(crate) fn groups(directory: &Path) -> String {
    let scratch = directory.parent().and_then(Path::file_name).unwrap_or_default();
    format!("{}-", scratch.to_string_lossy())
}

/// The attack's directory, in memory.
struct Directory(PathBuf);

impl Drop for Directory {
    /// Also removes the cgroups, which do not end with a namespace.
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
        let name = groups(&self.0);
        for root in crate::processor::roots() {
            let groups = fs::read_dir(root).into_iter().flatten().filter_map(Result::ok);
            for group in groups.filter(|group| group.file_name().to_string_lossy().starts_with(&name)) {
                // Its processes have ended with the namespaces.
                if let Err(error) = fs::remove_dir(group.path()) {
                    eprintln!("attack: {}: {error}", group.path().display());
                }
            }
        }
    }
}
