//! The nemesis: faults, and changes that people make to the Lease.
//!
//! Owns the faults, each of which reports whether it took effect. Of what the law does not cover, nobody forges the mark of a
//! release, shortens a duration or restores an older spec; the rest is told to the judge where it is injected.

use tenure::{
    election::writes::{SLOTS, STEP_DOWN, operator},
    slot::Slot,
};

use crate::{
    clock::{MS, Ns, S, nanos},
    container::Moment,
    engine::{Child, Event, Who},
    network::Mood,
    peer::PEER,
    server::Admission,
    shrink::Strike,
    world::World,
};

const SIGTERM: i32 = 15;
const FOREVER: Ns = 1_000_000 * S;
/// The longest suspension of a node.
const LONGEST_SLEEP: Ns = 20 * S;
/// So many Leases there are at most.
pub const MOST_SLOTS: u8 = 4;
/// How long a follower may wait because the server asked it to.
const RETRY_AFTER: Ns = 65 * S;

mod calm;
mod edits;
mod processes;
mod roads;
mod schedules;

/// Declares the faults, and the list of all.
macro_rules! faults {
    ($($(#[$what:meta])* $name:ident,)*) => {
        /// Something that goes wrong.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Fault {
            $($(#[$what])* $name,)*
        }

        impl Fault {
            pub const ALL: &[Self] = &[$(Self::$name,)*];
        }
    };
}

faults! {
    StopElector,
    StopInit,
    StopBoth,
    KillElector,
    /// The node is suspended: everything stops except its BOOTTIME.
    Suspend,
    KillContainer,
    Terminate,
    Murder,
    CutUp,
    CutDown,
    CutBoth,
    CutAll,
    Losses,
    /// Answers are slow.
    SlowAnswers,
    /// A replica is cut off for longer than its term lasts.
    Isolate,
    /// The last answer before that is slow, too.
    LastAnswer,
    /// Writes are carried out and not answered.
    Mute,
    Moods,
    /// The network repeats requests.
    Twice,
    /// Admission shortens an acquired duration, or reverts a write.
    Meddling,
    BreakWatch,
    /// A watch begins again at an older version.
    StaleWatch,
    /// A watch is served by a second API server, whose cache is behind.
    SecondServer,
    Compact,
    Delete,
    DeleteSlowly,
    Clear,
    Steal,
    /// The duration is removed from the record.
    Unset,
    /// The duration is lengthened.
    Lengthen,
    StepDown,
    HandOver,
    /// Somebody else is asked to step down.
    Misdirect,
    Pause,
    Label,
    JumpWall,
    /// The memory of a replica is restored beside it.
    Copy,
    /// The leader is cut off, its Lease is cleared or deleted, and whoever waits to replace it is disturbed in its wait.
    Interregnum,
    /// The Lease is cleared or deleted twice, and a replica that saw the first time is blind until after the second.
    TwiceGone,
    /// Whoever takes an expired Lease is answered late, and the Lease is cleared meanwhile.
    Overtaken,
    /// The spec is wiped as soon as somebody writes it, for a while.
    WipedAtOnce,
    /// Somebody writes a label every five seconds.
    Labels,
    /// Somebody continues a process of a frozen workload.
    Stir,
    /// A signal to init that it passes on to a leader.
    Forward,
    /// Somebody takes the label away by which several Leases are found.
    Unlabel,
    /// A rollout changes how many Leases there are.
    Resize,
    /// No list of Leases is allowed.
    NoList,
    KillWitness,
    /// A container, and its witness some time before or after.
    KillBoth,
    /// Somebody writes another holder in, for any time, and not its name.
    Displace,
    /// Somebody confirms that the holder is dead, by `tenure confirm-dead`.
    ConfirmDead,
    /// Somebody deletes the Lease, by `tenure prune`.
    Prune,
}

/// The part that hangs permanently at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hang {
    /// The init that leads.
    Init,
    /// Every elector.
    Electors,
}

impl Fault {
    /// Returns whether the fault makes sense directly after a step of one replica.
    pub const fn is_aimed(self) -> bool {
        !matches!(self, Self::CutAll | Self::Compact | Self::JumpWall | Self::Pause) && !self.is_schedule()
    }

    pub const fn is_of_the_frozen(self) -> bool {
        matches!(self, Self::Stir | Self::Forward)
    }

    pub const fn is_of_pools(self) -> bool {
        matches!(self, Self::Unlabel | Self::Resize | Self::NoList)
    }

    /// Returns whether somebody gives the Lease of others back, deletes it or replaces their names.
    pub const fn is_of_people(self) -> bool {
        matches!(self, Self::ConfirmDead | Self::Prune | Self::Displace)
    }

    pub const fn is_schedule(self) -> bool {
        matches!(self, Self::Interregnum | Self::TwiceGone | Self::Overtaken | Self::WipedAtOnce | Self::Labels)
    }

    /// Returns whether every Lease that is free after the fault was given back by its holder.
    pub const fn leaves_the_holder(self) -> bool {
        !matches!(
            self,
            Self::Interregnum
                | Self::TwiceGone
                | Self::Overtaken
                | Self::WipedAtOnce
                | Self::Meddling
                | Self::Delete
                | Self::DeleteSlowly
                | Self::Clear
                | Self::Steal
                | Self::Unset
                | Self::Displace
        )
    }

    pub const fn stops_init(self) -> bool {
        matches!(self, Self::StopInit | Self::StopBoth | Self::Suspend)
    }
}

impl World {
    /// Injects it.
    pub fn strike(&mut self, who: Who, fault: Fault) {
        let (before, strike) = (self.strikes.len(), Strike { at: self.e.now, who, fault, state: self.e.rng.get_seed() });
        if who.replica == PEER {
            let span = self.pause();
            self.cut_peer(span);
        } else if self.hits(who, fault) {
            self.e.count(fault);
        } else {
            return;
        }
        self.e.note(who, || format!("STRIKE: {fault:?}"));
        // Those that it included are not repeated apart from it.
        self.strikes.truncate(before);
        self.strikes.push(strike);
    }

    /// Injects it; returns whether it took effect.
    fn hits(&mut self, who: Who, fault: Fault) -> bool {
        let replica = who.replica;
        if self.plan.slots > 1 {
            self.server.edited = Slot(self.e.rng.u8(..self.plan.slots));
        }
        match fault {
            Fault::StopElector => self.stop_elector(replica),
            Fault::StopInit => self.stop_init(replica),
            Fault::StopBoth => {
                let (init, elector) = (self.pause(), self.pause());
                self.living(replica, |container, e| {
                    container.freeze(Moment::Now, init, e);
                    container.freeze_elector(Moment::Now, elector, e);
                })
            }
            Fault::Suspend => {
                let span = self.pause().min(LONGEST_SLEEP);
                self.e.judge.trouble(replica, self.e.now + span);
                self.living(replica, |container, e| container.suspend(span, e))
            }
            Fault::KillElector => self.kill_elector(replica),
            Fault::KillContainer => self.living(replica, |container, e| container.end("the machine kills it", e)),
            Fault::Terminate => self.living(replica, |container, e| container.signal(SIGTERM, e)),
            Fault::Murder => self.living(replica, |container, e| container.tree.murder(e)),
            Fault::CutUp => self.cut(replica, true, false),
            Fault::CutDown => self.cut(replica, false, true),
            Fault::CutBoth => self.cut(replica, true, true),
            Fault::CutAll => {
                (0..self.replicas.len()).map(|replica| self.cut(replica, true, true)).fold(false, |any, one| any | one)
            }
            Fault::Losses => {
                let until = self.e.now + self.pause();
                self.replicas[replica].road.bad = (until, self.e.rng.f64());
                self.e.judge.trouble(replica, until + self.plan.latest);
                true
            }
            Fault::SlowAnswers => {
                let span = self.pause();
                self.slow_down(replica, span)
            }
            Fault::Isolate => self.cut_for(replica, true, true, self.plan.longest),
            Fault::LastAnswer => {
                let renewals = nanos(self.replicas[replica].node.config.lease.renew_period) * 2;
                let span = self.e.between(0, renewals);
                self.e.after(span, Event::Aimed(who, Fault::Isolate));
                self.slow_down(replica, renewals)
            }
            Fault::Mute => self.mute(replica),
            Fault::Moods => {
                let until = self.e.now + self.pause();
                let mood = Mood::BAD[self.e.rng.usize(..Mood::BAD.len())];
                self.e.note(who, || format!("the server is {mood:?}"));
                self.replicas[replica].road.mood = (until, mood);
                self.e.judge.trouble(replica, until + RETRY_AFTER);
                true
            }
            Fault::Twice => {
                self.replicas[replica].road.twice = self.e.now + self.pause();
                self.e.note(who, || "the network repeats requests".into());
                true
            }
            Fault::Meddling => {
                let until = self.e.now + self.pause();
                let admission = if self.e.rng.bool() { Admission::Shortens } else { Admission::Reverts };
                self.e.note(who, || format!("{admission:?}"));
                self.replicas[replica].road.admission = (until, admission);
                self.e.judge.trouble_for_all(until);
                true
            }
            Fault::BreakWatch => {
                let broken = self.e.rng.bool();
                let watches = self.watches_of(replica);
                watches.iter().for_each(|child| self.server.hang_up(*child, broken, &mut self.e));
                !watches.is_empty()
            }
            Fault::StaleWatch | Fault::SecondServer => {
                let watches = self.watches_of(replica);
                let lag = if fault == Fault::SecondServer { self.plan.watch.lag } else { 0 };
                for child in &watches {
                    self.server.rewind(*child, lag, &mut self.e);
                    self.server.feed(*child, &self.replicas[replica].road, self.plan.watch, &mut self.e);
                }
                !watches.is_empty()
            }
            Fault::Compact => {
                self.server.compact();
                true
            }
            Fault::Delete => self.delete(),
            Fault::DeleteSlowly => self.delete_slowly(),
            Fault::Clear => self.clear(),
            Fault::Steal => self.steal(),
            Fault::Unset => self.unset(),
            Fault::Lengthen => self.lengthen(),
            Fault::StepDown => self.ask_to_step_down(false),
            Fault::HandOver => self.ask_to_step_down(true),
            Fault::Misdirect => self.edit("misdirected step down", |lease| {
                lease["metadata"]["annotations"][STEP_DOWN] = "somebody else".into();
            }),
            Fault::Pause => {
                let paused = self.e.rng.bool();
                self.commands(|record| operator::pause(record, paused))
            }
            Fault::Label => self.label(),
            Fault::JumpWall => {
                let micros = self.e.rng.i64(-10_000_000..10_000_000) * if self.e.chance(0.1) { 100_000 } else { 1 };
                let node = &mut self.replicas[replica].node;
                node.clock.wall = node.clock.wall.saturating_add(micros);
                if let Some(container) = &mut self.replicas[replica].container {
                    container.node.clock.wall = container.node.clock.wall.saturating_add(micros);
                }
                true
            }
            Fault::Copy => self.copy(replica),
            Fault::Interregnum => self.interregnum(),
            Fault::TwiceGone => self.twice_gone(who),
            Fault::Overtaken => self.overtaken(),
            Fault::WipedAtOnce => self.wiped_at_once(who),
            Fault::Labels => self.labels(who),
            Fault::Stir => {
                let mut hits = false;
                self.living(replica, |container, e| hits = container.stir(e)) && hits
            }
            Fault::Forward => self.living(replica, |container, e| container.forward(e)),
            Fault::Unlabel => self.edit("unlabelled", |lease| {
                if let Some(labels) = lease["metadata"]["labels"].as_object_mut() {
                    labels.remove(SLOTS);
                }
            }),
            Fault::Resize => {
                self.replicas[replica].node.config.lease.slots = self.e.rng.u8(2..=MOST_SLOTS);
                self.living(replica, |container, e| container.end("a rollout", e))
            }
            Fault::NoList => {
                self.server.lists_forbidden = self.e.now + self.pause();
                self.e.judge.trouble_for_all(self.server.lists_forbidden + RETRY_AFTER);
                true
            }
            Fault::Displace => self.displace(),
            Fault::ConfirmDead => self.confirm_dead(),
            Fault::Prune => self.prune(),
            Fault::KillWitness => self.kill_witness(replica),
            Fault::KillBoth => {
                let (witness, container) = (self.e.between(0, S), self.e.between(0, S));
                self.e.after(witness, Event::Aimed(who, Fault::KillWitness));
                self.e.after(container, Event::Aimed(who, Fault::KillContainer));
                self.witnesses.contains_key(&replica)
            }
        }
    }

    fn pause(&mut self) -> Ns {
        let longest = self.plan.longest_pause;
        if self.e.rng.bool() { self.e.between(0, longest) } else { self.e.spread(10 * MS, longest) }
    }

    fn delete(&mut self) -> bool {
        self.e.judge.trouble_for_all(self.e.now);
        let deleted = self.server.delete(&mut self.e);
        self.publish();
        deleted
    }

    fn watches_of(&self, replica: usize) -> Vec<Child> {
        self.server.watchers().into_iter().filter(|child| child.who.replica == replica).collect()
    }

    /// Injects the next fault, and schedules the one after it.
    pub fn strike_somewhere(&mut self) {
        let anyone = self.e.rng.usize(..self.replicas.len());
        let replica = self.e.judge.leader().filter(|_| self.e.rng.bool()).map_or(anyone, |who| who.replica);
        let life = self.replicas.get(replica).map_or(1, |replica| replica.life);
        let fault = match replica {
            PEER => Fault::CutBoth,
            _ => self.plan.faults[self.e.rng.usize(..self.plan.faults.len())],
        };
        self.strike(Who { replica, life }, fault);
        let span = self.e.between(0, self.plan.gap * 2);
        self.e.after(span, Event::Strike);
    }
}
