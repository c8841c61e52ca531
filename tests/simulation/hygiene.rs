//! Checks what a replica may write (laws 8, 12, 14 and 17), and that what others wrote stays.

use serde_json::Value;
use tenure::election::writes::{HOLDER, OBITUARY, PAUSED, STEP_DOWN, STEP_DOWN_TO, TRACEPARENT};
use tenure_world::reading::{NOBODY, State};

use crate::{clock::US, judge::Held, server::EPOCH, tally::Armed};

/// The label, and the annotation, that people write.
pub const LABEL: &str = "colour";

/// A write, and the state that it was applied to.
pub struct Write<'w> {
    /// Who wrote.
    pub me: &'w str,
    /// For how long the writer leaves a free Lease to a named candidate, in nanoseconds.
    pub candidate_wait: u64,
    /// The state before it, and for how long it had existed, in nanoseconds.
    pub old: Option<(&'w Value, u64)>,
    pub new: &'w Value,
    /// `creationWait: 0s`: what is free is taken at once.
    pub opts_out: bool,
    /// From the beginning of one run of a task to the next, in nanoseconds, where it can be told.
    pub interval: Option<u64>,
    /// Each term is a run of a task, whose start acquireTime tells.
    pub is_task: bool,
    /// Real time in nanoseconds.
    pub now: u64,
    /// uid, acquireTime and leaseTransitions of the last term that this replica's init was told of.
    pub held: Option<&'w Held>,
}

impl Write<'_> {
    /// Returns what is wrong with the write, if anything.
    pub fn wrong(&self, armed: &mut Armed) -> Option<&'static str> {
        let new = Spec(self.new);
        if !new.six("renewTime") {
            return Some("has no renewTime of six digits");
        }
        if let Some(others) = self.old.map(|(old, _)| foreign(old)) {
            armed.arm_if(others.iter().any(|part| !part.is_null()), "what others wrote stays");
            if others != foreign(self.new) {
                return Some("changes a label, an annotation or a finalizer of others");
            }
        }
        let old = self.old.map(|(old, _)| Spec(old));
        if new.holder() == NOBODY {
            armed.arm("a write for nobody");
            return nobodys(old.as_ref(), &new);
        }
        let Some((object, since)) = self.old else { return Some("creates the Lease and holds it") };
        let old = Spec(object);
        if new.holder().is_empty() || new.state() == State::Resting {
            return self.released(&old, &new, armed);
        }
        if new.holder() != self.me {
            return Some("names somebody else");
        }
        if !new.six("acquireTime") {
            return Some("has no acquireTime of six digits");
        }
        if old.holder() != new.holder() || old.state() == State::Resting {
            armed.arm_if(matches!(old.state(), State::Held | State::Nobody), "a take of what nobody gave back");
            armed.arm_if(!matches!(old.state(), State::Held | State::Nobody), "a take of what was given back");
            let fresh = new.text("acquireTime") == new.text("renewTime");
            let counted = new.transitions() == old.transitions().saturating_add(1);
            let wrong = (!fresh).then_some("changes the holder and keeps acquireTime");
            let wrong = wrong.or_else(|| (!counted).then_some("changes the holder and counts no transition"));
            return wrong.or_else(|| self.early(&old, since, armed)).or_else(|| self.acquired(object, since, armed));
        }
        armed.arm("a renewal");
        let begins = self.is_task && new.text("acquireTime") == new.text("renewTime");
        let kept = begins || ["", new.text("acquireTime")].contains(&old.text("acquireTime"));
        // What somebody has removed is restored.
        let counted = !object["spec"]["leaseTransitions"].is_null();
        if !kept || counted && new.transitions() != old.transitions() {
            return Some("changes acquireTime or leaseTransitions without the holder");
        }
        if new.text("renewTime") <= old.text("renewTime") {
            return Some("has a renewTime that does not rise");
        }
        // A renewal keeps the trace; a term that is lost and taken again starts a new one.
        let taken = annotation(object, TRACEPARENT) != annotation(self.new, TRACEPARENT);
        taken.then(|| self.acquired(object, since, armed)).flatten()
    }

    fn released(&self, old: &Spec<'_>, new: &Spec<'_>, armed: &mut Armed) -> Option<&'static str> {
        if old.holder() != self.me {
            return Some("empties what another one holds");
        }
        let uid = old.0["metadata"]["uid"].as_str().unwrap_or_default();
        if annotation(new.0, OBITUARY) == Some(self.me) {
            armed.arm("a witness's release");
            let is_shaped = new.state() == State::Released && new.transitions() == old.transitions();
            return (!is_shaped).then_some("is a witness's and no release");
        }
        let mine = self.held.is_some_and(|(lease, acquired, transitions)| {
            (lease.as_str(), acquired.as_str(), *transitions) == (uid, old.text("acquireTime"), old.transitions())
        });
        if !mine {
            return Some("empties what its last term there has not acquired");
        }
        armed.arm(if new.state() == State::Resting { "a rest" } else { "a release" });
        match new.state() {
            State::Released => {}
            State::Resting if old.text("acquireTime") != new.text("acquireTime") => {
                return Some("rests and forgets when its run began");
            }
            State::Resting if annotation(new.0, HOLDER).is_some() => return Some("rests and still names its holder"),
            State::Resting => {}
            State::Held | State::Nobody | State::Free => {
                return Some("is given back and does not say so");
            }
        }
        (new.transitions() != old.transitions()).then_some("is released and counts a transition")
    }

    /// Between two runs of a task lies its interval, as far as the clocks that it is waited by are right.
    fn early(&self, old: &Spec<'_>, since: u64, armed: &mut Armed) -> Option<&'static str> {
        let began = old.text("acquireTime").parse::<jiff::Timestamp>().ok()?.as_microsecond() - EPOCH;
        // A time that had to rise may be ahead of its clock.
        let began = u64::try_from(began).ok()?.saturating_mul(US).min(self.now - since);
        let interval = self.interval.filter(|_| old.state() == State::Resting)?;
        armed.arm("a take after a rest");
        let early = self.now - began < interval / 10 * 9;
        early.then_some("begins a run before the interval of the last one is over")
    }

    fn acquired(&self, old: &Value, since: u64, armed: &mut Armed) -> Option<&'static str> {
        let spec = Spec(old);
        // Everything else was held by nobody first, and was waited for.
        if spec.state() == State::Free && !self.opts_out {
            return Some("takes a Lease that is free without a mark");
        }
        if annotation(old, PAUSED) == Some("true") && spec.holder() != self.me {
            return Some("takes a Lease that is paused");
        }
        if !old["metadata"]["deletionTimestamp"].is_null() {
            return Some("takes a Lease that is being deleted");
        }
        if annotation(self.new, OBITUARY).is_some() {
            return Some("takes a Lease and leaves the obituary of its last holder");
        }
        if annotation(self.new, STEP_DOWN).is_some() || annotation(self.new, STEP_DOWN_TO).is_some() {
            return Some("takes a Lease and leaves the request for a step-down");
        }
        armed.arm_if(annotation(old, OBITUARY).is_some(), "a take after an obituary");
        let promised = annotation(old, STEP_DOWN_TO).is_some_and(|candidate| candidate != self.me);
        // A mark is never the same twice, so that everybody sees it from its beginning. The clock may run fast.
        let promised = promised && spec.state() == State::Released;
        armed.arm_if(promised, "a take of what is promised to another");
        let early = promised && since < self.candidate_wait / 10 * 9;
        early.then_some("takes a Lease that is promised to another one")
    }
}

/// A Lease that nobody gave back is written as held by nobody, and gives nothing to anybody (law 14).
fn nobodys(old: Option<&Spec<'_>>, new: &Spec<'_>) -> Option<&'static str> {
    if !new.text("acquireTime").is_empty() {
        return Some("is nobody's and has an acquireTime");
    }
    if annotation(new.0, "tenure.dev/holder") != Some(NOBODY) {
        return Some("is nobody's and keeps another name");
    }
    let Some(old) = old else { return (new.transitions() != 0).then_some("is new and counts transitions") };
    if ![NOBODY, ""].contains(&old.holder()) {
        return Some("takes somebody's Lease for nobody");
    }
    if annotation(old.0, PAUSED) == Some("true") || !old.0["metadata"]["deletionTimestamp"].is_null() {
        return Some("is nobody's although it is paused or being deleted");
    }
    if new.transitions() != old.transitions() {
        return Some("is nobody's and counts a transition");
    }
    // How long a Lease rested, whose holder somebody has removed, is no duration of a hold.
    let rested =
        annotation(old.0, "tenure.dev/rests").is_some_and(|rests| rests.split(' ').next() == Some(old.text("renewTime")));
    (new.seconds() < old.seconds() && !(rested && old.holder().is_empty())).then_some("shortens what nobody holds")
}

fn annotation<'v>(object: &'v Value, name: &str) -> Option<&'v str> {
    object["metadata"]["annotations"][name].as_str()
}

/// Returns the parts that others wrote. (Admission and replicas add labels of their own.)
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

    fn seconds(&self) -> i64 {
        self.0["spec"]["leaseDurationSeconds"].as_i64().unwrap_or_default()
    }

    fn transitions(&self) -> i32 {
        let transitions = self.0["spec"]["leaseTransitions"].as_i64().unwrap_or_default();
        i32::try_from(transitions).unwrap_or(i32::MAX)
    }

    fn state(&self) -> State {
        State::of(self.0)
    }

    fn six(&self, field: &str) -> bool {
        self.text(field).split_once('.').is_some_and(|(_, rest)| rest.len() == 7)
    }
}
