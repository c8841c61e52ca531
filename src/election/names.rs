//! The names of a Lease's labels and annotations, and the form of its times.

use jiff::Timestamp;

/// 9999-12-30 in microseconds, the latest time that is written: the API server cannot read a later one.
pub(super) const LAST_TIME: i64 = 253_402_128_000_000_000;

/// Label: `tenure`, unless somebody else has set it.
pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// The value of [`MANAGED_BY`] on the Leases that tenure made.
pub const TENURE: &str = "tenure";
/// Annotation: the full identity of the holder that is asked to step down. The next acquisition removes it (law 17).
pub const STEP_DOWN: &str = "tenure.dev/step-down";
/// Annotation: the full identity of the replica to which the others leave the Lease for as long as it needs.
pub const STEP_DOWN_TO: &str = "tenure.dev/step-down-to";
/// Annotation: the `lease.priority` of the holder, if it is below 0. Standbys with `lease.preempt` compare it with their own.
pub const PRIORITY: &str = "tenure.dev/priority";
/// Annotation: unless it is `false`, only the recorded holder may acquire the Lease.
pub const PAUSED: &str = "tenure.dev/paused";
/// Annotation: the W3C trace context of the last transition.
pub const TRACEPARENT: &str = "tenure.dev/traceparent";
/// Annotation: the holder that has not released the Lease. An empty holder beside this name is not that holder's release.
/// client-go's release does not check the holder, so a client that was cut off may empty another's Lease.
pub const HOLDER: &str = "tenure.dev/holder";
/// Annotation: what `kubectl apply` sent last.
pub(super) const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Label of the Leases of all slots: the name of the first. A replica holds at most one of them.
pub const SLOTS: &str = "tenure.dev/slots";
/// Annotation: the renewTime and the holder of the record, once that holder is proved dead and the Lease rests (law 14).
pub const RESTS: &str = "tenure.dev/rests";
/// Annotation: the fire of its schedule that a task's last run was for. Only a later one is due, unless the Lease was released.
pub const FIRE: &str = "tenure.dev/fire";
/// Annotation: the fire after that. For people.
pub const NEXT_FIRE: &str = "tenure.dev/next-fire";
/// Annotation: the full identity of the dead holder whose Lease its witness, or `tenure confirm-dead`, gave back (law 20). The next
/// acquisition removes it.
pub const OBITUARY: &str = "tenure.dev/obituary";
/// Annotation: the last `STATUS` of the leader's workload, as of the last renewal. For people.
pub const STATUS: &str = "tenure.dev/status";
/// Annotation: the id of the journal beside this Lease, and the claim from which on its marks on objects are live. It outlives a release.
pub const JOURNAL: &str = "tenure.dev/journal";
/// Prefix of an annotation: a standby announces itself (`lease.announce`). The end of its identity completes the name.
pub const CANDIDATE: &str = "candidate.tenure.dev/";
/// Identity: holds a Lease that was not released, until an earlier holder is dead (law 14). No replica has this identity.
pub const NOBODY: &str = "tenure.dev/nobody";

/// Returns an identity without the part that init makes anew for each run: the name of its replica.
pub(crate) fn base_of(identity: &str) -> &str {
    identity.rsplit_once('_').map_or(identity, |(base, _)| base)
}

/// Label: the command that the Lease was made for, `lock` or `task`. Leases of `run` do not have it.
pub const KIND_LABEL: &str = "tenure.dev/kind";

/// The API group and version of Leases.
pub const API_VERSION: &str = "coordination.k8s.io/v1";
/// The kind of Leases.
pub const KIND: &str = "Lease";

/// Returns the value of [`RESTS`] for a record with this renewTime and holder.
pub(crate) fn rests(time: &str, holder: &str) -> String {
    format!("{time} {holder}")
}

/// Reads a time of a record, in microseconds.
pub(crate) fn micros(time: &str) -> Option<i64> {
    let time: Timestamp = time.parse().ok()?;
    Some(time.as_microsecond().clamp(0, LAST_TIME))
}

pub(crate) fn display(micros: i64) -> String {
    Timestamp::from_microsecond(micros).map_or_else(|_| String::new(), |time| format!("{time:.6}"))
}
