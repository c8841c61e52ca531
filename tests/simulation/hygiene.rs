//! What a replica may write (laws 8, 12 and 17), and that what others wrote stays.

use serde_json::Value;
use tenure::election::{
    record::{LeaseRecord, Standing},
    writes::{PAUSED, STEP_DOWN, STEP_DOWN_TO, TRACEPARENT},
};

use crate::judge::Held;

/// The label, and the annotation, that people write.
pub const LABEL: &str = "colour";

/// A write, and the state that it was applied to.
pub struct Write<'w> {
    /// Who wrote.
    pub me: &'w str,
    /// The writer's D in nanoseconds.
    pub duration: u64,
    /// The state before it, and for how long it had existed, in nanoseconds.
    pub old: Option<(&'w Value, u64)>,
    pub new: &'w Value,
    /// uid, acquireTime and leaseTransitions of the last term that this replica's init was told of.
    pub held: Option<&'w Held>,
}

impl Write<'_> {
    /// What is wrong with it.
    pub fn wrong(&self) -> Option<&'static str> {
        let new = Spec(self.new);
        if !new.six("acquireTime") && !new.holder().is_empty() {
            return Some("has no acquireTime of six digits");
        }
        if !new.six("renewTime") {
            return Some("has no renewTime of six digits");
        }
        if !new.holder().is_empty() && new.holder() != self.me {
            return Some("names somebody else");
        }
        let Some((old, since)) = self.old else {
            return (new.transitions() != 0).then_some("is new and counts transitions");
        };
        if foreign(old) != foreign(self.new) {
            return Some("changes a label, an annotation or a finalizer of others");
        }
        let spec = Spec(old);
        if new.holder().is_empty() {
            return self.released(&spec, &new);
        }
        let same = spec.holder() == new.holder();
        if same {
            let kept = ["", new.text("acquireTime")].contains(&spec.text("acquireTime"));
            // What somebody has removed is restored.
            let counted = !old["spec"]["leaseTransitions"].is_null();
            if !kept || counted && new.transitions() != spec.transitions() {
                return Some("changes acquireTime or leaseTransitions without the holder");
            }
            if new.text("renewTime") <= spec.text("renewTime") {
                return Some("has a renewTime that does not rise");
            }
            // A renewal keeps the trace; a term that is lost and taken again starts a new one.
            let taken = annotation(old, TRACEPARENT) != annotation(self.new, TRACEPARENT);
            return taken.then(|| self.acquired(old, since)).flatten();
        }
        if new.text("acquireTime") != new.text("renewTime") {
            return Some("changes the holder and keeps acquireTime");
        }
        if new.transitions() != spec.transitions().saturating_add(1) {
            return Some("changes the holder and counts no transition");
        }
        self.acquired(old, since)
    }

    fn released(&self, old: &Spec<'_>, new: &Spec<'_>) -> Option<&'static str> {
        if old.holder() != self.me {
            return Some("empties what another one holds");
        }
        let uid = old.0["metadata"]["uid"].as_str().unwrap_or_default();
        let mine = self.held.is_some_and(|(lease, acquired, transitions)| {
            (lease.as_str(), acquired.as_str(), *transitions) == (uid, old.text("acquireTime"), old.transitions())
        });
        if !mine {
            return Some("empties what its last term has not acquired");
        }
        if LeaseRecord::read(self.new.clone().into()).is_none_or(|new| new.standing() != Standing::Released) {
            return Some("is given back and does not say so");
        }
        (new.transitions() != old.transitions()).then_some("is released and counts a transition")
    }

    fn acquired(&self, old: &Value, since: u64) -> Option<&'static str> {
        let holder = old["spec"]["holderIdentity"].as_str().unwrap_or_default();
        if annotation(old, PAUSED) == Some("true") && holder != self.me {
            return Some("takes a Lease that is paused");
        }
        if !old["metadata"]["deletionTimestamp"].is_null() {
            return Some("takes a Lease that is being deleted");
        }
        if annotation(self.new, STEP_DOWN).is_some() || annotation(self.new, STEP_DOWN_TO).is_some() {
            return Some("takes a Lease and leaves the request for a step-down");
        }
        let promised = annotation(old, STEP_DOWN_TO).is_some_and(|candidate| candidate != self.me);
        let released = || LeaseRecord::read(old.clone().into()).is_some_and(|old| old.standing() == Standing::Released);
        // A mark is never the same twice, so that everybody sees it from its beginning. The clock may run fast.
        let early = promised && since < self.duration / 10 * 9 && released();
        early.then_some("takes a Lease that is promised to another one")
    }
}

fn annotation<'v>(object: &'v Value, name: &str) -> Option<&'v str> {
    object["metadata"]["annotations"][name].as_str()
}

/// What others wrote. (Admission and replicas add labels of their own.)
fn foreign(object: &Value) -> [&Value; 3] {
    let metadata = &object["metadata"];
    [&metadata["labels"][LABEL], &metadata["annotations"][LABEL], &metadata["finalizers"]]
}

struct Spec<'v>(&'v Value);

impl Spec<'_> {
    fn text(&self, field: &str) -> &str {
        self.0["spec"][field].as_str().unwrap_or_default()
    }

    fn holder(&self) -> &str {
        self.text("holderIdentity")
    }

    fn transitions(&self) -> i32 {
        let transitions = self.0["spec"]["leaseTransitions"].as_i64().unwrap_or_default();
        i32::try_from(transitions).unwrap_or(i32::MAX)
    }

    fn six(&self, field: &str) -> bool {
        self.text(field).split_once('.').is_some_and(|(_, rest)| rest.len() == 7)
    }
}
