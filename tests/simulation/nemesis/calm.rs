//! The end of all faults, and the hangs that are permanent from then on.

use serde_json::json;
use tenure::{election::writes::PAUSED, slot::Slot};

use super::{FOREVER, Hang, MOST_SLOTS};
use crate::{container::Moment, plan::Pace, world::World};

impl World {
    /// Ends all faults for good.
    pub fn calm(&mut self) {
        self.e.note("all", || "IS CALM".into());
        self.calm_since = Some(self.e.now);
        let hang = self.plan.hang;
        let leader = self.e.judge.leader();
        if let Some(peer) = &mut self.peer {
            peer.road.mend();
        }
        for replica in &mut self.replicas {
            replica.road.mend();
            if self.plan.slots > 1 && self.plan.pace != Pace::Steady {
                // Replicas whose programs end at once take the slot that one of them has just given back. None lives for long
                // enough to take another that nobody gave back.
                replica.node.habits.exits = 0.0;
                replica.container.iter_mut().for_each(|container| container.node.habits.exits = 0.0);
            }
            // A suspended node wakes by itself.
            if let Some(container) = replica.container.as_mut().filter(|container| !container.sleeps(self.e.now)) {
                container.resume(&mut self.e);
                let (clock, latency) = (container.clock(), 0);
                if let Some(elector) = &mut container.elector {
                    elector.resume(clock, latency, &mut self.e);
                    if hang == Some(Hang::Electors) {
                        elector.freeze(Moment::Now, FOREVER, &mut self.e);
                    }
                }
                if hang == Some(Hang::Init) && leader == Some(container.who) && !container.over && container.is_guarded() {
                    container.freeze(Moment::Now, FOREVER, &mut self.e);
                    self.e.judge.hangs(container.who);
                }
            }
        }
        self.server.lists_forbidden = 0;
        for slot in (0..MOST_SLOTS).map(Slot) {
            self.server.edited = slot;
            self.edit("calm", |lease| {
                lease["metadata"]["annotations"][PAUSED] = "false".into();
                lease["metadata"]["finalizers"] = json!([]);
            });
        }
    }
}
