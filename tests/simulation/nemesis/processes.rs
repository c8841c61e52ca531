//! Faults of processes, and what malfunctioning ones say.

use crate::{
    clock::{S, nanos},
    container::Moment,
    judge::Uncovered,
    world::World,
};

impl World {
    pub(super) fn stop_elector(&mut self, replica: usize) -> bool {
        let (span, is_past_soft) = (self.pause(), self.e.rng.u8(..4) == 0);
        let moment = match self.e.rng.u8(..5) {
            0 => Moment::Drained,
            1 | 2 => Moment::Step(self.e.rng.u32(1..6)),
            _ => Moment::Now,
        };
        self.living(replica, |container, e| {
            let past = is_past_soft.then(|| container.past_soft(e)).flatten();
            container.freeze_elector(moment, past.unwrap_or(span), e);
        })
    }

    pub(super) fn stop_init(&mut self, replica: usize) -> bool {
        let (span, is_past_soft) = (self.pause(), self.e.rng.u8(..4) == 0);
        let moment = match self.e.rng.u8(..5) {
            0 => Moment::Spawn,
            1 => Moment::Step(self.e.rng.u32(1..8)),
            2 => Moment::Drained,
            _ => Moment::Now,
        };
        self.living(replica, |container, e| {
            let past = is_past_soft.then(|| container.past_soft(e)).flatten();
            container.freeze(moment, past.unwrap_or(span), e);
        })
    }

    pub(super) fn kill_elector(&mut self, replica: usize) -> bool {
        self.living(replica, |container, e| {
            if e.rng.bool() {
                container.bereft_before = Some(e.rng.u32(..12));
                return;
            }
            e.note(container.who, || "the elector is killed".into());
            container.shoot_elector(e);
        })
    }

    /// Restores the memory of this replica beside it, once in a world: both believe that they lead.
    pub(super) fn copy(&mut self, replica: usize) -> bool {
        let index = self.replicas.len();
        if self.is_copied {
            return false;
        }
        let Some(original) = &self.replicas[replica].container else { return false };
        let Some(twin) = original.restored(index, &mut self.e) else { return false };
        let (from, to) = (original.who, twin.who);
        // Neither knows more than its last confirmed write: within D one of them has lost.
        let duration = nanos(twin.node.config.lease.duration);
        let until = self.e.now + duration * 2 + S;
        self.e.note(to, || format!("is restored from the memory of {from}"));
        self.e.judge.begins(to, &twin.identity, &twin.node, u64::MAX);
        self.e.judge.copied(from, to, until);
        self.e.judge.injects(Uncovered::Copied, to, until);
        self.e.judge.trouble_for_all(until);
        // What begins within that may last as long as a term.
        self.e.at(until + duration, crate::engine::Event::Settles);
        self.is_copied = true;
        // Law 20 does not cover a copy: its identity is told to a witness that does not see it.
        self.witnesses.remove(&replica);
        self.add(twin);
        true
    }
}
