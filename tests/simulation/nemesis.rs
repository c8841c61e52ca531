//! What goes wrong, and what people do to the Lease.
//!
//! Owns the faults. What the law does not cover is not among them: nobody forges the mark of a release, shortens a duration or
//! restores an older spec. Three things are counted separately: processes that only the kernel watches, because init and elector
//! are stopped, and that it does not know of; those that run on for a moment when their node wakes; and a client-go that takes a
//! Lease that it emptied itself.

use std::time::Duration;

use tenure::election::{
    Request,
    writes::{PAUSED, STEP_DOWN},
};

use crate::{
    clock::{MS, Ns, S},
    container::Moment,
    engine::{Event, Who},
    hygiene::LABEL,
    network::Mood,
    server::Admission,
    world::World,
};

const SIGTERM: i32 = 15;
const FOREVER: Ns = 1_000_000 * S;
/// The longest suspension of a node.
const LONGEST_SLEEP: Ns = 20 * S;
/// How long a follower may wait because the server asked it to.
const RETRY_AFTER: Ns = 65 * S;

mod calm;
mod edits;
mod processes;
mod roads;

/// Something that goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    StopElector,
    StopInit,
    StopBoth,
    KillElector,
    /// The node is suspended: everything stops except its BOOTTIME.
    Suspend,
    /// The elector tells init of an extension that no write can have earned, or of a release that nobody may write.
    Lie,
    KillContainer,
    /// The leader is cut off, its Lease is cleared or deleted, and whoever waits to replace it is disturbed in its wait.
    Interregnum,
    Terminate,
    Murder,
    CutUp,
    CutDown,
    CutBoth,
    CutAll,
    Losses,
    /// Answers are slow.
    SlowAnswers,
    /// One replica is cut off for longer than its term lasts.
    Isolate,
    /// The last answer before that is slow, too.
    LastAnswer,
    Moods,
    /// The network repeats requests.
    Twice,
    /// Admission shortens an acquired duration, or reverts a write.
    Meddling,
    BreakWatch,
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
}

/// What hangs permanently at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hang {
    /// The init that leads.
    Init,
    /// Every elector.
    Electors,
}

/// A step of the protocol after which a fault may strike at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Window {
    Get,
    Create,
    Replace,
    Remove,
    Lead,
    Extend,
    Shorten,
    StepDown,
    Releasing,
    Ended,
    Acknowledged,
    Stopped,
    Spawn,
    Asked,
}

impl Window {
    pub const fn of(request: &Request) -> Self {
        match request {
            Request::Get => Self::Get,
            Request::Create(_) => Self::Create,
            Request::Replace(_) => Self::Replace,
            Request::Delete { .. } => Self::Remove,
        }
    }
}

impl Fault {
    pub const ALL: [Self; 35] = [
        Self::StopElector,
        Self::StopInit,
        Self::StopBoth,
        Self::KillElector,
        Self::Suspend,
        Self::Lie,
        Self::KillContainer,
        Self::Interregnum,
        Self::Terminate,
        Self::Murder,
        Self::CutUp,
        Self::CutDown,
        Self::CutBoth,
        Self::CutAll,
        Self::Losses,
        Self::SlowAnswers,
        Self::Isolate,
        Self::LastAnswer,
        Self::Moods,
        Self::Twice,
        Self::Meddling,
        Self::BreakWatch,
        Self::Compact,
        Self::Delete,
        Self::DeleteSlowly,
        Self::Clear,
        Self::Steal,
        Self::Unset,
        Self::Lengthen,
        Self::StepDown,
        Self::HandOver,
        Self::Misdirect,
        Self::Pause,
        Self::Label,
        Self::JumpWall,
    ];

    /// Whether it makes sense directly after a step of one replica.
    pub const fn is_aimed(self) -> bool {
        !matches!(self, Self::CutAll | Self::Compact | Self::JumpWall | Self::Pause | Self::Interregnum)
    }

    /// Whether it removes the record, or its spec.
    pub const fn takes_the_record_away(self) -> bool {
        matches!(self, Self::Interregnum | Self::Delete | Self::DeleteSlowly | Self::Clear)
    }

    /// Whether it is compatible with a client-go replica, which starts its workload at once on a Lease that is free or gone.
    pub const fn spares_client_go(self) -> bool {
        !matches!(
            self,
            Self::Interregnum
                | Self::Meddling
                | Self::Delete
                | Self::DeleteSlowly
                | Self::Clear
                | Self::Steal
                | Self::Unset
                | Self::Lie
        )
    }

    /// Whether it stops init.
    pub const fn stops_init(self) -> bool {
        matches!(self, Self::StopInit | Self::StopBoth | Self::Suspend)
    }
}

impl World {
    /// Injects it.
    pub fn strike(&mut self, who: Who, fault: Fault) {
        let replica = who.replica;
        *self.e.faults.entry(fault).or_default() += 1;
        match fault {
            Fault::StopElector => self.stop_elector(replica),
            Fault::StopInit => self.stop_init(replica),
            Fault::StopBoth => {
                let (init, elector) = (self.pause(), self.pause());
                self.living(replica, |container, e| {
                    container.freeze(Moment::Now, init, e);
                    container.freeze_elector(0, elector, e);
                });
            }
            Fault::Suspend => {
                let span = self.pause().min(LONGEST_SLEEP);
                self.e.judge.trouble(replica, self.e.now + span);
                self.living(replica, |container, e| container.suspend(span, e));
            }
            Fault::Lie => self.lie(replica),
            Fault::Interregnum => self.interregnum(),
            Fault::KillElector => self.kill_elector(replica),
            Fault::KillContainer => self.living(replica, |container, e| container.end("the machine kills it", e)),
            Fault::Terminate => self.living(replica, |container, e| container.signal(SIGTERM, e)),
            Fault::Murder => self.living(replica, |container, e| container.tree.murder(e)),
            Fault::CutUp => self.cut(replica, true, false),
            Fault::CutDown => self.cut(replica, false, true),
            Fault::CutBoth => self.cut(replica, true, true),
            Fault::CutAll => (0..self.replicas.len()).for_each(|replica| self.cut(replica, true, true)),
            Fault::Losses => {
                let until = self.e.now + self.pause();
                self.replicas[replica].road.bad = (until, self.e.rng.f64());
                self.e.judge.trouble(replica, until + self.plan.latest);
            }
            Fault::SlowAnswers => {
                let span = self.pause();
                self.slow_down(replica, span);
            }
            Fault::Isolate => {
                let span = self.plan.longest;
                self.cut_for(replica, true, true, span);
            }
            Fault::LastAnswer => {
                let renewals = nanos(self.replicas[replica].node.config.lease.renew_period) * 2;
                self.slow_down(replica, renewals);
                let span = self.e.between(0, renewals);
                self.e.after(span, Event::Aimed(who, Fault::Isolate));
            }
            Fault::Moods => {
                let until = self.e.now + self.pause();
                let mood = Mood::BAD[self.e.rng.usize(..Mood::BAD.len())];
                self.e.note(who, || format!("the server is {mood:?}"));
                self.replicas[replica].road.mood = (until, mood);
                self.e.judge.trouble(replica, until + RETRY_AFTER);
            }
            Fault::Twice => {
                self.replicas[replica].road.twice = self.e.now + self.pause();
                self.e.note(who, || "the network repeats requests".into());
            }
            Fault::Meddling => {
                let until = self.e.now + self.pause();
                let admission = if self.e.rng.bool() { Admission::Shortens } else { Admission::Reverts };
                self.e.note(who, || format!("{admission:?}"));
                self.replicas[replica].road.admission = (until, admission);
                self.e.judge.trouble_for_all(until);
            }
            Fault::BreakWatch => {
                let broken = self.e.rng.bool();
                for child in self.server.watchers().into_iter().filter(|child| child.who.replica == replica) {
                    self.server.hang_up(child, broken, &mut self.e);
                }
            }
            Fault::Compact => self.server.compact(),
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
                self.edit("pause", |lease| {
                    lease["metadata"]["annotations"][PAUSED] = if paused { "true" } else { "false" }.into()
                });
            }
            Fault::Label => {
                let label = self.e.rng.u32(..).to_string();
                self.edit("label", |lease| {
                    lease["metadata"]["annotations"][LABEL] = label.as_str().into();
                    lease["metadata"]["labels"][LABEL] = label.into();
                });
            }
            Fault::JumpWall => {
                let micros = self.e.rng.i64(-10_000_000..10_000_000) * if self.e.chance(0.1) { 100_000 } else { 1 };
                let node = &mut self.replicas[replica].node;
                node.clock.wall = node.clock.wall.saturating_add(micros);
                if let Some(container) = &mut self.replicas[replica].container {
                    container.node.clock.wall = container.node.clock.wall.saturating_add(micros);
                }
            }
        }
    }

    fn pause(&mut self) -> Ns {
        let longest = self.plan.longest_pause;
        if self.e.rng.bool() { self.e.between(0, longest) } else { self.e.spread(10 * MS, longest) }
    }

    fn actions(&mut self) -> u32 {
        if self.e.rng.bool() { 0 } else { self.e.rng.u32(1..6) }
    }

    fn delete(&mut self) {
        self.e.judge.trouble_for_all(self.e.now);
        self.server.delete(&mut self.e);
        self.publish();
    }

    /// Injects the next fault, and schedules the one after it.
    pub fn strike_somewhere(&mut self) {
        let anyone = self.e.rng.usize(..self.replicas.len());
        let replica = self.e.judge.leader().filter(|_| self.e.rng.bool()).map_or(anyone, |who| who.replica);
        if replica == self.replicas.len() {
            let span = self.pause();
            self.cut_peer(span);
            let span = self.e.between(0, self.plan.gap * 2);
            return self.e.after(span, Event::Strike);
        }
        let fault = self.plan.faults[self.e.rng.usize(..self.plan.faults.len())];
        self.strike(Who { replica, life: self.replicas[replica].life }, fault);
        let span = self.e.between(0, self.plan.gap * 2);
        self.e.after(span, Event::Strike);
    }
}

fn nanos(span: Duration) -> Ns {
    u64::try_from(span.as_nanos()).unwrap_or(Ns::MAX)
}
