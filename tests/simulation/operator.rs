//! People at their commands: `step-down`, `pause`, `confirm-dead` and `prune`, which write what [`operator`] decides.
//!
//! Owns what they know. A person who confirms a death is honest: the holder is dead, or it is healthy and only thought to be dead, so
//! that the command must find out. The commands read and write by a network that is fast and without faults.

use std::time::Duration;

use tenure::{
    election::{
        record::LeaseRecord,
        writes::{
            HOLDER, LeaseWrite,
            operator::{self, ConfirmDead, Confirmation, Edit},
        },
    },
    slot::Slot,
};

use crate::{
    clock::{MS, Ns, S, US, nanos},
    engine::{Event, Who},
    nemesis::Fault,
    register::Request,
    server::{Admission, EPOCH},
    world::World,
};

/// Its number among the replicas.
pub const OPERATOR: Who = Who { replica: 101, life: 1 };
/// As in the commands.
const TRIES: u8 = 10;

/// A command that runs.
#[derive(Clone, Debug)]
pub struct Command {
    slot: Slot,
    /// When it was called.
    began: Ns,
    tries: u8,
    deed: Deed,
}

#[derive(Clone, Debug)]
enum Deed {
    /// The holder that is said to be dead, and its replica if it is not dead.
    ConfirmDead(Box<ConfirmDead>, Option<usize>),
    Prune(LeaseWrite),
}

impl World {
    /// Somebody edits the Lease by a command; returns whether it was changed.
    pub fn commands(&mut self, edit: impl FnOnce(&LeaseRecord) -> Edit) -> bool {
        self.e.judge.trouble_for_all(self.e.now);
        match self.read(self.server.edited).map(|record| edit(&record)) {
            Some(Edit::Write(write)) => self.writes(self.server.edited, &write),
            Some(Edit::NotHeld | Edit::Unchanged) | None => false,
        }
    }

    /// Somebody confirms that the holder is dead.
    pub fn confirm_dead(&mut self) -> bool {
        if self.plan.faults.contains(&Fault::Displace) && self.e.chance(0.5) {
            // Somebody who is dead was written over a leader that is cut off.
            self.isolate_leader();
            self.strike(OPERATOR, Fault::Steal);
        }
        let slot = self.server.edited;
        let Some(holder) = self.read(slot).and_then(|record| record.holder().map(str::to_owned)) else { return false };
        // Law 20 does not cover a copy. Nor do people say of a stranger beside no name that nothing runs.
        let is_named = |record: &LeaseRecord| record.annotation(HOLDER).is_some();
        let Some(living) = self
            .living_holder(&holder)
            .filter(|_| !self.is_copied && self.peer.is_none() && self.read(slot).is_some_and(|record| is_named(&record)))
        else {
            return false;
        };
        let config = self.replicas[0].node.config.clone();
        self.e.note("people", || format!("confirm that {holder} is dead; it lives: {living:?}"));
        let deed = Deed::ConfirmDead(Box::new(ConfirmDead::new(holder, config.into(), false)), living);
        self.e.after(0, Event::Command(Box::new(Command { slot, began: self.e.now, tries: 0, deed })));
        true
    }

    /// Somebody deletes the Lease, if nobody seems to use it.
    pub fn prune(&mut self) -> bool {
        let (slot, older_than) = (self.server.edited, self.e.spread(MS, 5 * S));
        let Some(record) = self.read(slot) else { return false };
        let Some(watched) = operator::unused_after(&record, Duration::from_nanos(older_than), false, self.wall()) else {
            return false;
        };
        let timing = self.replicas[0].node.config.timing();
        let span = timing.takeable(tenure::time::Instant::BOOT, watched).since(tenure::time::Instant::BOOT);
        self.e.note("people", || format!("prune, after {span:?}"));
        let deed = Deed::Prune(LeaseWrite::delete(&record));
        let command = Command { slot, began: self.e.now, tries: 0, deed };
        self.e.after(nanos(span), Event::Command(Box::new(command)));
        true
    }

    /// A command goes on.
    pub fn command(&mut self, mut command: Command) {
        let slot = command.slot;
        match &mut command.deed {
            Deed::Prune(write) => {
                self.writes(slot, &write.clone());
            }
            Deed::ConfirmDead(machine, living) => {
                let (living, Some(record)) = (*living, self.read(slot)) else { return };
                match machine.look(record, self.wall()) {
                    // The clocks of the replicas may be slow.
                    Confirmation::Watch(span) => self.e.after(nanos(span) * 10 / 9, Event::Command(Box::new(command))),
                    Confirmation::Write(write) => {
                        // Whoever is in trouble now may be cut off, and then people would not say that it is dead. Nor would they of a
                        // container that has ended since, and of which something still runs.
                        let holder = self.read(slot).and_then(|record| record.holder().map(str::to_owned)).unwrap_or_default();
                        let is_unsure =
                            |replica| self.e.judge.is_troubled(replica, command.began) || self.living_holder(&holder).is_none();
                        if living.is_some_and(is_unsure) {
                            return;
                        }
                        command.tries += 1;
                        self.confirms(slot, &write);
                        if !self.writes(slot, &write) && command.tries < TRIES {
                            self.e.after(MS, Event::Command(Box::new(command)));
                        }
                    }
                    Confirmation::NotHeld(_) | Confirmation::NamesAnother(_) | Confirmation::Repeats | Confirmation::Renewed => {}
                }
            }
        }
    }

    /// The replica whose life this holder is; inside: none if no process of it is left. None if people cannot say.
    #[expect(clippy::option_option, reason = "whether they know, and what")]
    fn living_holder(&self, holder: &str) -> Option<Option<usize>> {
        let containers = self.replicas.iter().filter_map(|replica| replica.container.as_ref());
        let Some(container) = containers.into_iter().find(|container| &*container.identity == holder) else { return Some(None) };
        let replica = container.who.replica;
        if container.over {
            return (!self.e.judge.runs_for(container.who)).then_some(None);
        }
        let is_healthy = container.node.is_quick() && !self.e.judge.is_troubled(replica, self.e.now);
        is_healthy.then_some(Some(replica))
    }

    /// Tells the law of a release by the word of a person, who may have heard of the death before a witness has.
    fn confirms(&mut self, slot: Slot, write: &LeaseWrite) {
        let Some(holder) = self.read(slot).and_then(|record| record.holder().map(str::to_owned)) else { return };
        if let Some(None) = self.living_holder(&holder) {
            let request = Request::Write(write.sent().clone());
            self.e.judge.lawful(|law| {
                let number = law.confirms(&holder, slot, &request);
                law.arrives(number);
            });
        }
    }

    fn read(&self, slot: Slot) -> Option<LeaseRecord> {
        LeaseRecord::read(self.server.lease_of(slot)?)
    }

    fn writes(&mut self, slot: Slot, write: &LeaseWrite) -> bool {
        let before = self.server.version();
        let request = Request::Write(write.sent().clone());
        self.server.carry_out(slot, OPERATOR, "people", &request, Admission::Sound, &mut self.e);
        self.e.judge.lawful(|law| law.arrives(None));
        let has_changed = self.server.version() > before;
        self.publish();
        has_changed
    }

    fn wall(&self) -> i64 {
        EPOCH + i64::try_from(self.e.now / US).unwrap_or_default()
    }
}
