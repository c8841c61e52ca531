//! Faults of processes, and what malfunctioning ones say.

use super::{Fault, nanos};
use crate::{
    clock::MS,
    container::Moment,
    elector::Lie,
    engine::{Event, Who},
    world::World,
};

impl World {
    pub(super) fn stop_elector(&mut self, replica: usize) {
        let (actions, span) = (self.actions(), self.pause());
        self.living(replica, |container, e| container.freeze_elector(actions, span, e));
    }

    pub(super) fn stop_init(&mut self, replica: usize) {
        let span = self.pause();
        let moment = match self.e.rng.u8(..4) {
            0 => Moment::Spawn,
            1 => Moment::Action(self.e.rng.u32(1..6)),
            _ => Moment::Now,
        };
        self.living(replica, |container, e| container.freeze(moment, span, e));
    }

    pub(super) fn kill_elector(&mut self, replica: usize) {
        self.living(replica, |container, e| {
            e.note(container.who, || "the elector is killed".into());
            container.shoot_elector(e);
        });
    }

    /// Whoever takes over has to wait until the leader, which knows nothing of it, is gone.
    pub(super) fn interregnum(&mut self) {
        let Some(leader) = self.e.judge.leader() else { return };
        let span = self.plan.longest;
        self.cut_for(leader.replica, true, true, span);
        if self.e.rng.bool() {
            self.clear();
        } else {
            self.delete();
        }
        for replica in (0..self.replicas.len()).filter(|replica| *replica != leader.replica) {
            let (life, wait) = (self.replicas[replica].life, nanos(self.replicas[replica].node.config.lease.duration));
            let span = self.e.between(0, wait);
            let faults = [Fault::Terminate, Fault::Terminate, Fault::Lie, Fault::KillElector, Fault::StopElector];
            let fault = faults[self.e.rng.usize(..faults.len())];
            self.e.after(span, Event::Aimed(Who { replica, life }, fault));
        }
    }

    pub(super) fn lie(&mut self, replica: usize) {
        let lies = [Lie::Extension, Lie::Release, Lie::NoWait, Lie::Duration];
        let lie = lies[self.e.rng.usize(..lies.len())];
        self.living(replica, |container, e| {
            let now = container.clock().boot(e.now);
            let lied = container.elector.as_mut().is_some_and(|elector| elector.lies(lie, now));
            if lied && !container.is_frozen() {
                e.note(container.who, || "the elector lies".into());
            }
            container.lied |= lied;
            container.wake(e);
            if lied && lie == Lie::NoWait {
                // Its term now differs from its init's, and it does not live long.
                let span = e.spread(MS, 100 * MS);
                e.after(span, Event::Aimed(container.who, Fault::KillElector));
            }
        });
    }
}
