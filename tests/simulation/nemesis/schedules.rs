//! Schedules of several faults in the order that has done harm before; random draws alone find them too seldom.

use super::Fault;
use crate::{
    clock::{MS, Ns, S, nanos},
    engine::{Event, Who},
    world::World,
};

impl World {
    /// Whoever takes over has to wait until the leader, which knows nothing of it, is gone. Meanwhile a replica starts afresh, an
    /// elector dies, somebody holds the Lease for a moment or edits what nobody holds, a client-go ends.
    pub(super) fn interregnum(&mut self) -> bool {
        let Some(leader) = self.e.judge.leader().filter(|leader| leader.replica < self.replicas.len()) else { return false };
        let span = self.plan.longest;
        self.cut_for(leader.replica, true, true, span);
        let gone = if self.e.rng.bool() { self.clear() } else { self.delete() };
        let disturb = [
            Fault::Terminate,
            Fault::KillContainer,
            Fault::KillElector,
            Fault::StopElector,
            Fault::CutBoth,
            Fault::Steal,
            Fault::Clear,
            Fault::Delete,
            Fault::DeleteSlowly,
            Fault::Pause,
            Fault::HandOver,
            Fault::Label,
        ];
        for who in self.others(leader.replica) {
            let wait = self.wait(who);
            for _ in 0..self.e.rng.u8(1..3) {
                let fault = disturb[self.e.rng.usize(..disturb.len())];
                // Between two electors too.
                let at = if self.e.chance(0.3) { self.e.between(0, 50 * MS) } else { self.e.between(0, wait) };
                self.e.after(at, Event::Aimed(who, fault));
            }
        }
        if let Some(peer) = &mut self.peer {
            let at = self.e.now + self.e.between(0, span);
            peer.crashes_by(at, &mut self.e);
        }
        gone
    }

    /// Lets `who` see the same before and after a blind time in which somebody led.
    pub(super) fn twice_gone(&mut self, who: Who) -> bool {
        let (wait, deletes) = (self.wait(who), self.e.rng.bool());
        let gone = if deletes { self.delete() } else { self.wipe() };
        let seen = self.e.between(MS, S);
        self.e.after(seen, Event::Aimed(who, Fault::Isolate));
        let at = seen + self.e.between(wait, wait * 3 / 2);
        self.e.after(at, Event::Aimed(who, if deletes { Fault::Delete } else { Fault::WipedAtOnce }));
        gone
    }

    /// The acquisition is proved late, or after it was undone.
    pub(super) fn overtaken(&mut self) -> bool {
        let Some(leader) = self.e.judge.leader().filter(|leader| leader.replica < self.replicas.len()) else { return false };
        let wait = self.wait(leader);
        let span = self.plan.longest;
        for who in self.others(leader.replica) {
            self.slow_down(who.replica, span);
        }
        let at = self.e.between(wait, wait * 3 / 2);
        self.e.after(at, Event::Aimed(leader, Fault::Clear));
        self.cut_for(leader.replica, true, true, span)
    }

    /// Until somebody gets tired of it.
    pub(super) fn wiped_at_once(&mut self, who: Who) -> bool {
        if self.e.chance(0.9) {
            let span = self.e.spread(MS, S);
            self.e.after(span, Event::Aimed(who, Fault::WipedAtOnce));
        }
        self.wipe()
    }

    pub(super) fn labels(&mut self, who: Who) -> bool {
        if self.e.chance(0.8) {
            self.e.after(5 * S, Event::Aimed(who, Fault::Labels));
        }
        self.label()
    }

    fn others(&self, than: usize) -> Vec<Who> {
        let lives = self.replicas.iter().enumerate().map(|(replica, of)| Who { replica, life: of.life });
        lives.filter(|who| who.replica != than).collect()
    }

    /// D of this replica.
    fn wait(&self, who: Who) -> Ns {
        nanos(self.replicas[who.replica].node.config.lease.duration)
    }
}
