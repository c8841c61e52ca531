//! Changes that people make to the Lease.

use serde_json::{Value, json};
use tenure::election::writes::{HOLDER, STEP_DOWN, STEP_DOWN_TO, operator};

use crate::{
    clock::{Ns, S, US},
    hygiene::LABEL,
    nemesis::Fault,
    server::EPOCH,
    world::World,
};

impl World {
    /// Somebody's edit; returns whether it changed anything.
    pub(super) fn edit(&mut self, what: &str, edit: impl FnOnce(&mut Value)) -> bool {
        self.e.judge.trouble_for_all(self.e.now);
        let edited = self.server.edit(what, edit, &mut self.e);
        self.publish();
        edited
    }

    pub(super) fn label(&mut self) -> bool {
        let label = self.e.rng.u32(..).to_string();
        self.edit("label", |lease| {
            lease["metadata"]["annotations"][LABEL] = label.as_str().into();
            lease["metadata"]["labels"][LABEL] = label.into();
        })
    }

    pub(super) fn lengthen(&mut self) -> bool {
        let longest = self.plan.longest / S;
        self.edit("longer", |lease| {
            let spec = &mut lease["spec"];
            let duration = spec["leaseDurationSeconds"].as_u64().filter(|duration| *duration + 3 <= longest);
            if let Some(duration) = duration.filter(|_| spec["holderIdentity"] != "") {
                spec["leaseDurationSeconds"] = (duration + 3).into();
            }
        })
    }

    /// Only where every D is the same: otherwise a follower that has never seen the one in the record would not wait long enough.
    pub(super) fn unset(&mut self) -> bool {
        let Some(common) = self.plan.common else { return false };
        self.edit("no duration", |lease| {
            let spec = &mut lease["spec"];
            if spec["leaseDurationSeconds"] == common && spec["holderIdentity"] != "" {
                spec["leaseDurationSeconds"] = Value::Null;
            }
        })
    }

    pub(super) fn delete_slowly(&mut self) -> bool {
        let over = self.server.lease().is_some_and(|lease| !lease["metadata"]["deletionTimestamp"].is_null());
        if over {
            return self.edit("finalizer gone", |lease| lease["metadata"]["finalizers"] = json!([]));
        }
        self.edit("finalizer", |lease| lease["metadata"]["finalizers"] = json!(["tenure.dev/simulated"]));
        self.delete()
    }

    pub(super) fn clear(&mut self) -> bool {
        let how = self.e.rng.u8(..3);
        self.edit("clear", |lease| match how {
            // From a null it would recreate the mark that was there before.
            0 if lease["spec"]["holderIdentity"].is_null() => {}
            0 => lease["spec"]["holderIdentity"] = "".into(),
            1 => lease["spec"]["holderIdentity"] = Value::Null,
            _ => lease["spec"] = json!({}),
        })
    }

    pub(super) fn wipe(&mut self) -> bool {
        self.edit("wipe", |lease| lease["spec"] = json!({}))
    }

    /// Writes another holder in: a stranger, or one of the replicas, which does not know of it. It holds for as long as any term
    /// counts on: a shorter one is not covered.
    pub(super) fn steal(&mut self) -> bool {
        // A client-go leaves no name: a replica whose name is written over it, and whose witness gives that back, is not covered.
        let is_peers =
            self.peer.is_some() && self.server.lease().is_some_and(|lease| lease["metadata"]["annotations"][HOLDER].is_null());
        let mut names = if is_peers { Vec::new() } else { self.identities() };
        names.push("stranger".into());
        let name = names[self.e.rng.usize(..names.len())].clone();
        let (time, duration) = (stamp(self.e.now), self.plan.longest / S);
        self.e.judge.walls_differ = true;
        self.edit("another holder", |lease| {
            let transitions = lease["spec"]["leaseTransitions"].as_i64().unwrap_or_default();
            let spec = &mut lease["spec"];
            spec["holderIdentity"] = name.into();
            (spec["acquireTime"], spec["renewTime"]) = (time.clone().into(), time.into());
            spec["leaseTransitions"] = transitions.saturating_add(1).into();
            if spec["leaseDurationSeconds"].as_i64().unwrap_or_default() < 2 {
                spec["leaseDurationSeconds"] = duration.into();
            }
        })
    }

    /// The leader is often cut off by then, and knows nothing of it.
    pub fn isolate_leader(&mut self) {
        let leader = self.e.judge.leader().filter(|leader| leader.replica < self.replicas.len());
        if let Some(leader) = leader.filter(|_| self.e.rng.bool()) {
            self.strike(leader, Fault::Isolate);
        }
    }

    /// Somebody writes another holder in, for any time, and removes the name beside it.
    pub(super) fn displace(&mut self) -> bool {
        // Memory needs a name (law 14): whoever has none, such as a client-go, is displaced at the peril of whoever edits.
        let names = |lease: &Value| lease["spec"]["holderIdentity"] == lease["metadata"]["annotations"][HOLDER];
        if !self.server.lease().is_some_and(names) {
            return false;
        }
        self.isolate_leader();
        // Emptied after one second, it would be a forged release mark.
        let (time, duration) = (stamp(self.e.now), self.e.spread(2, self.plan.longest / S));
        self.e.judge.walls_differ = true;
        self.edit("another holder, without its name", |lease| {
            let spec = &mut lease["spec"];
            (spec["holderIdentity"], spec["leaseDurationSeconds"]) = ("stranger".into(), duration.into());
            (spec["acquireTime"], spec["renewTime"]) = (time.clone().into(), time.into());
            if let Some(annotations) = lease["metadata"]["annotations"].as_object_mut() {
                annotations.remove(HOLDER);
            }
        })
    }

    pub(super) fn ask_to_step_down(&mut self, to: bool) -> bool {
        let names = self.identities();
        let candidate = names.get(self.e.rng.usize(..names.len().max(1))).cloned();
        if let Some(holder) = self.server.lease().and_then(|lease| lease["spec"]["holderIdentity"].as_str()) {
            self.e.judge.asks(holder);
        }
        candidate.iter().filter(|_| to).for_each(|candidate| self.e.judge.names(candidate));
        if self.commands(|record| operator::step_down(record, candidate.as_deref().filter(|_| to))) {
            return true;
        }
        // Nobody holds it, and somebody annotates it by hand.
        self.edit("step down", |lease| {
            let holder = lease["spec"]["holderIdentity"].clone();
            if holder.as_str().is_none_or(str::is_empty) {
                return;
            }
            let annotations = &mut lease["metadata"]["annotations"];
            annotations[STEP_DOWN] = holder;
            if let (true, Some(candidate)) = (to, candidate) {
                annotations[STEP_DOWN_TO] = candidate.into();
            }
        })
    }
}

/// A time that no elector writes: it ends in 999.
fn stamp(now: Ns) -> String {
    let micros = EPOCH + i64::try_from(now / US).unwrap_or_default();
    let micros = micros / 1_000 * 1_000 + 999;
    jiff::Timestamp::from_microsecond(micros).map(|time| format!("{time:.6}")).unwrap_or_default()
}
