//! A replica that is not tenure: client-go's wrapper of the benchmarks, with deadlines of its own.
//!
//! What tenure promises beside it: never while it keeps them, which is to be dead by D from the send of its last write that was
//! stored. It gives the Lease back before its workload has ended, and takes a Lease that nobody holds at once: neither is tenure's.

use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use crate::{
    history::{History, Replica},
    support::{
        stage::{LEASE, Prepared},
        witness::Life,
        workload::Behaviour,
    },
    writes,
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
pub(crate) fn is_to_blame(history: &History, earlier: &Life, later: &Life) -> bool {
    let peer = |life: &Life| history.replicas.iter().find(|replica| replica.is_peer && replica.name == life.replica);
    match (peer(earlier), peer(later)) {
        (Some(peer), _) => outstays(peer, earlier),
        (None, Some(peer)) => takes_what_is_free(history, peer),
        (None, None) => false,
    }
}

/// It gave the Lease back before its workload was dead, or its workload was not dead at its deadline.
fn outstays(peer: &Replica, life: &Life) -> bool {
    let stored = || peer.exchanges.iter().filter(|exchange| exchange.succeeded()).map(|exchange| &exchange.request);
    let gave_back = stored().any(|request| request.is_release() && request.at <= life.last);
    let held = stored().filter(|request| request.is_write() && !request.is_release() && request.at <= life.last);
    gave_back || held.map(|request| request.at).max().is_none_or(|sent| life.last > sent + DURATION)
}

/// What it took was no replica's: a new Lease, or one that hands had emptied.
fn takes_what_is_free(history: &History, peer: &Replica) -> bool {
    let versions = writes::versions(history);
    let Some(taking) = versions.iter().position(|version| version.holder() == peer.name) else { return false };
    let before = taking.checked_sub(1).and_then(|before| versions.get(before));
    let before = before.filter(|before| before.uid() == versions[taking].uid());
    before.is_none_or(|before| before.holder().is_empty() && before.by.is_none())
}
