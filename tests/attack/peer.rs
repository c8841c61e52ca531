//! A replica that is not tenure: the benchmarks' client-go wrapper, with its own deadlines.
//!
//! Beside it, tenure's promise holds only while the wrapper keeps those deadlines, that is, is dead by D from its last stored
//! write. It releases the Lease before its workload has ended, and takes a Lease without a holder at once. Once cut off, it may
//! release, too late, a Lease that is another's by then: it reads the Lease afresh and does not check the holder. No tenure
//! believes that mark beside a tenure's name (law 14). It speaks protobuf, so its writes are read from the server's own record.

use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use support::{Behaviour, LEASE, Life, Prepared};

use crate::{
    history::{History, Replica},
    judge::Excuse,
    world::place_of,
    writes::{self, Version},
};

const DURATION: Duration = Duration::from_secs(4);

/// Builds the wrapper if it is missing; outside the namespaces, as Go may have to download its modules. Returns whether there is
/// one.
pub(crate) fn build() -> bool {
    if cached().is_file() {
        return true;
    }
    let module = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/peers/client-go");
    let mut go = Command::new("go");
    go.args(["build", "-trimpath", "-ldflags=-s -w", "-o"]).arg(cached()).arg(".").current_dir(module);
    go.status().is_ok_and(|status| status.success())
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

/// Makes the wrapper run this replica. Its workload ends when it is asked to, as the wrapper does not wait for its end.
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
        // Short enough to be the first now and then.
        "--retry-period=100ms".into(),
        "--grace=500ms".into(),
        "--".into(),
    ];
    prepared.launch.runner = Some(words.into());
    prepared
}

/// Returns the excuse if the peer itself caused the overlap. Beside it too, a tenure's life ends with its [`crate::hold`].
pub(crate) fn blame(history: &History, earlier: &Life, later: &Life) -> Option<Excuse> {
    if outstays(history, earlier) {
        return Some(Excuse::Peer);
    }
    let versions = writes::versions(history);
    let by_peer = |version: &Version<'_>| history.replicas.iter().any(|replica| replica.is_peer && version.by == place(replica));
    // Emptied by an administrator, or by its own release of what was another's by then.
    let is_free = |before: &Version<'_>| before.holder().is_empty() && (before.by.is_none() || by_peer(before));
    (is_peer(history, later) && before_taking(&versions, later)?.is_none_or(is_free)).then_some(Excuse::Peer)
}

fn is_peer(history: &History, life: &Life) -> bool {
    history.replicas.iter().any(|replica| replica.is_peer && replica.name == life.replica)
}

/// The version of the Lease before this life took it; none if there was no Lease.
fn before_taking<'a, 'b>(versions: &'b [Version<'a>], life: &Life) -> Option<Option<&'b Version<'a>>> {
    let is_taking = |version: &Version<'_>| version.holder() == life.replica || version.number.to_string() == life.token;
    let taking = versions.iter().position(is_taking)?;
    let uid = versions[taking].uid();
    Some(versions[..taking].last().filter(|before| before.uid() == uid))
}

/// Returns whether this is a peer that released the Lease before its workload was dead, or whose workload outlived its deadline.
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
