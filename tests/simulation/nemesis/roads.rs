//! Faults on the way to the server and back.

use crate::{
    clock::{MS, Ns, S, nanos},
    world::World,
};

impl World {
    /// Writes are carried out and not answered, for a while.
    pub(super) fn mute(&mut self, replica: usize) -> bool {
        let until = self.e.now + self.pause();
        self.e.note(format!("r{replica}"), || "hears of no write".into());
        self.replicas[replica].road.mute = until;
        self.e.judge.trouble(replica, until);
        true
    }

    pub(super) fn slow_down(&mut self, replica: usize, span: Ns) -> bool {
        let until = self.e.now + span;
        let wait_limit = self.replicas[replica].node.config.lease.attempt_timeout;
        self.e.note(format!("r{replica}"), || "is answered slowly".into());
        self.replicas[replica].road.slow = (until, nanos(wait_limit));
        self.e.judge.trouble(replica, until);
        true
    }

    pub(super) fn cut(&mut self, replica: usize, up: bool, down: bool) -> bool {
        let span = self.pause();
        self.cut_for(replica, up, down, span)
    }

    pub(super) fn cut_for(&mut self, replica: usize, up: bool, down: bool, span: Ns) -> bool {
        let until = self.e.now + span;
        self.e.note(format!("r{replica}"), || {
            format!("is cut off until {}.{:03}: up {up}, down {down}", until / S, until % S / MS)
        });
        self.e.judge.trouble(replica, until);
        let road = &mut self.replicas[replica].road;
        if up {
            road.up_cut = until;
        }
        if down {
            road.down_cut = until;
        }
        true
    }
}
