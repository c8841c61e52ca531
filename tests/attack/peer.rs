//! A replica that is not tenure: client-go's wrapper of the benchmarks, with deadlines of its own.
//!
//! What tenure promises beside it: never while it keeps them, which is to be dead by D from its last write that was stored. It
//! gives the Lease back before its workload has ended, and takes a Lease that nobody holds at once. Cut off, it gives back late
//! what is another's by then: it reads the Lease afresh and does not look at the holder. That mark is believed, also by a tenure.
//! It speaks protobuf: what it wrote is read from the server's own record.

use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use crate::{
    history::{History, Replica},
    judge::Excuse,
    support::{
        stage::{LEASE, Prepared},
        witness::Life,
        workload::Behaviour,
    },
    world::place_of,
    writes::{self, Version},
};

const DURATION: Duration = Duration::from_secs(4);

/// Builds the wrapper where it is missing; outside of the namespaces, for Go may have to fetch its modules.
pub(crate) fn build() {
    if cached().is_file() {
        return;
    }
    let module = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/peers/client-go");
    let mut go = Command::new("go");
    go.args(["build", "-trimpath", "-ldflags=-s -w", "-o"]).arg(cached()).arg(".").current_dir(module);
    if !go.status().is_ok_and(|status| status.success()) {
        println!("attack: client-go's wrapper cannot be built (go): no replica is client-go's");
    }
}

/// The wrapper, if there is one.
pub(crate) fn program() -> Option<PathBuf> {
    Some(cached()).filter(|program| program.is_file())
}

fn cached() -> PathBuf {
    let base = env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let base = base.unwrap_or_else(|| PathBuf::from(env::var_os("HOME").unwrap_or_default()).join(".cache"));
    base.join("tenure/client-go-v0.36.3")
}

/// This replica, run by the wrapper. Its workload ends when it is asked to, for the wrapper waits for no end.
pub(crate) fn run(mut prepared: Prepared, program: &Path, namespace: &str) -> Prepared {
    let name = prepared.launch.name.clone();
    prepared = prepared.workload(&Behaviour { lock: true, ..Behaviour::obedient() });
    let kubeconfig = prepared.launch.directory.join(&name).join("kubeconfig");
    let words = [
        program.to_string_lossy().into_owned(),
        format!("--kubeconfig={}", kubeconfig.display()),
        format!("--namespace={namespace}"),
        format!("--lease={LEASE}"),
        format!("--identity={name}"),
        format!("--lease-duration={DURATION:?}"),
        "--renew-deadline=2700ms".into(),
        // Soon enough to be the first now and then.
        "--retry-period=100ms".into(),
        "--grace=500ms".into(),
        "--".into(),
    ];
    prepared.launch.runner = Some(words.into());
    prepared
}

/// Whether it is the peer's own doing that these two ran at once.
pub(crate) fn blame(history: &History, earlier: &Life, later: &Life) -> Option<Excuse> {
    if outstays(history, earlier) {
        return Some(Excuse::Peer);
    }
    let versions = writes::versions(history);
    let by_peer = |version: &Version<'_>| history.replicas.iter().any(|replica| replica.is_peer && version.by == place(replica));
    // Emptied by hand, or by its own release of what was another's by then.
    let is_free = |before: &Version<'_>| before.holder().is_empty() && (before.by.is_none() || by_peer(before));
    (is_peer(history, later) && before_taking(&versions, later)?.is_none_or(is_free)).then_some(Excuse::Peer)
}

fn is_peer(history: &History, life: &Life) -> bool {
    history.replicas.iter().any(|replica| replica.is_peer && replica.name == life.replica)
}

/// Of the Lease that this life took the version before; none where there was no Lease.
fn before_taking<'a, 'b>(versions: &'b [Version<'a>], life: &Life) -> Option<Option<&'b Version<'a>>> {
    let is_taking = |version: &Version<'_>| version.holder() == life.replica || version.number.to_string() == life.token;
    let taking = versions.iter().position(is_taking)?;
    let uid = versions[taking].uid();
    Some(versions[..taking].last().filter(|before| before.uid() == uid))
}

/// Whether it is a peer that gave the Lease back before its workload was dead, or whose workload was not dead at its deadline.
pub(crate) fn outstays(history: &History, life: &Life) -> bool {
    if !is_peer(history, life) {
        return false;
    }
    let versions = writes::versions(history);
    let asked = |version: &Version<'_>| history.moment(version.record.asked);
    let mine = || versions.iter().filter(|version| version.by == Some(place_of(&life.replica)) && asked(version) <= life.last);
    let gave_back = mine().any(|version| version.holder().is_empty() && asked(version) >= life.first);
    let held = mine().filter(|version| version.holder() == life.replica).map(asked).max();
    gave_back || held.is_none_or(|asked| life.last > asked + DURATION)
}

fn place(replica: &Replica) -> Option<usize> {
    Some(place_of(&replica.name))
}
