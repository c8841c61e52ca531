//! What the server itself adds to an object, or removes from it, before it validates it.

use fastrand::Rng;
use serde_json::Value;

use super::{lease::Lease, store::Dependents};

/// Finalizers of the garbage collector.
pub(super) const ORPHAN: &str = "orphan";
pub(super) const FOREGROUND: &str = "foregroundDeletion";

/// Restores what an update cannot change.
pub(super) fn inherit(new: &mut Lease, old: &Lease) {
    for field in ["namespace", "generation", "creationTimestamp"] {
        new.set(field, old.metadata(field).cloned());
    }
    if new.uid().is_empty() {
        new.set("uid", old.metadata("uid").cloned());
    }
    if old.is_deleting() {
        new.set("deletionTimestamp", old.metadata("deletionTimestamp").cloned());
    }
    if new.metadata("deletionGracePeriodSeconds").is_none() {
        new.set("deletionGracePeriodSeconds", old.metadata("deletionGracePeriodSeconds").cloned());
    }
}

/// Sets the garbage collector's finalizer for this policy, replacing the present one.
pub(super) fn mark(lease: &mut Lease, dependents: Dependents) {
    let finalizer = match dependents {
        Dependents::AsMarked => return,
        Dependents::Background => None,
        Dependents::Foreground => Some(FOREGROUND),
        Dependents::Orphan => Some(ORPHAN),
    };
    let others = lease.finalizers().into_iter().filter(|name| !matches!(*name, ORPHAN | FOREGROUND));
    let finalizers: Vec<&str> = others.chain(finalizer).collect();
    let finalizers = (!finalizers.is_empty()).then(|| finalizers.into());
    lease.set("finalizers", finalizers);
}

/// Removes owners that stand twice, word for word. Returns their uids.
pub(super) fn unite_owners(lease: &mut Lease) -> Vec<String> {
    let (mut owners, mut twice) = (Vec::new(), Vec::new());
    for owner in lease.metadata("ownerReferences").and_then(Value::as_array).into_iter().flatten() {
        if owners.contains(owner) {
            twice.push(owner.get("uid").and_then(Value::as_str).unwrap_or_default().to_owned());
        } else {
            owners.push(owner.clone());
        }
    }
    if !twice.is_empty() {
        lease.set("ownerReferences", Some(owners.into()));
    }
    twice
}

/// Drops what the disabled feature gate CoordinatedLeaderElection does not admit; fields that were set before may stay.
pub(super) fn close_gate(lease: &mut Lease, old: Option<&Lease>) {
    for field in ["strategy", "preferredHolder"] {
        if old.and_then(|old| old.spec(field)).is_none() {
            lease.remove_spec(field);
        }
    }
}

/// A random uid, as in RFC 4122.
pub(super) fn uid(rng: &mut Rng) -> String {
    let bits = rng.u128(..) & !(0xf << 76) & !(0x3 << 62) | (0x4 << 76) | (0x2 << 62);
    let hex = format!("{bits:032x}");
    let parts = [0..8, 8..12, 12..16, 16..20, 20..32].map(|range| hex.get(range).unwrap_or_default());
    parts.join("-")
}

/// The suffix of a generated name: no vowels nor characters that look like them, so that no words arise by accident.
pub(super) fn suffix(rng: &mut Rng) -> String {
    let letters = *b"bcdfghjklmnpqrstvwxz2456789";
    std::iter::repeat_with(|| rng.choice(letters).map_or('x', char::from)).take(5).collect()
}
