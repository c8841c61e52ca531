//! What goes wrong, and what people do to the Lease.
//!
//! Owns the faults. What the law does not cover is not among them: nobody forges the mark of a release, shortens a duration or
//! puts an older spec back. Init is stopped while its elector cannot stand in only by [`Fault::StopBoth`], and what follows from that
//! is counted apart.

use serde_json::{Value, json};
use tenure::election::{
    Request,
    writes::{PAUSED, STEP_DOWN, STEP_DOWN_TO},
};

use crate::{
    clock::{MS, Ns, S, US},
    engine::{Event, Who},
    network::Mood,
    server::{Admission, EPOCH},
    world::World,
};

const SIGTERM: i32 = 15;
const FOREVER: Ns = 1_000_000 * S;
/// For so long a follower may wait because the server asked it to.
const RETRY_AFTER: Ns = 65 * S;

/// Something that goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    StopElector,
    StopInit,
    StopBoth,
    KillElector,
    /// The elector tells init of an extension that no write can have earned, or of a release that nobody may write.
    Lie,
    KillContainer,
    Terminate,
    Murder,
    CutUp,
    CutDown,
    CutBoth,
    CutAll,
    Losses,
    Moods,
    /// The network repeats requests.
    Twice,
    /// Admission shortens what is acquired, or takes back what is written.
    Meddling,
    BreakWatch,
    Compact,
    Delete,
    DeleteSlowly,
    Clear,
    Steal,
    /// The duration is gone from the record.
    Unset,
    /// The duration is longer than it was.
    Lengthen,
    StepDown,
    HandOver,
    /// Somebody else is asked.
    Misdirect,
    Pause,
    Label,
    JumpWall,
}

/// What hangs for good at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hang {
    /// The init that leads.
    Init,
    /// Every elector.
    Electors,
}

/// A step of the protocol upon which a fault may follow at once.
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
    pub const ALL: [Self; 30] = [
        Self::StopElector,
        Self::StopInit,
        Self::StopBoth,
        Self::KillElector,
        Self::Lie,
        Self::KillContainer,
        Self::Terminate,
        Self::Murder,
        Self::CutUp,
        Self::CutDown,
        Self::CutBoth,
        Self::CutAll,
        Self::Losses,
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

    /// Whether it makes sense right upon a step of one replica.
    pub const fn is_aimed(self) -> bool {
        !matches!(self, Self::CutAll | Self::Compact | Self::JumpWall | Self::Pause)
    }

    /// Whether init stands still.
    pub const fn stops_init(self) -> bool {
        matches!(self, Self::StopInit | Self::StopBoth)
    }
}

impl World {
    /// Does it.
    pub fn strike(&mut self, who: Who, fault: Fault) {
        let replica = who.replica;
        *self.e.faults.entry(fault).or_default() += 1;
        match fault {
            Fault::StopElector => self.stop_elector(replica),
            Fault::StopInit => self.stop_init(replica),
            Fault::StopBoth => {
                let (init, elector) = (self.pause(), self.pause());
                self.living(replica, |container, e| container.freeze_both(init, elector, e));
            }
            Fault::Lie => self.lie(replica),
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
            Fault::Moods => {
                let until = self.e.now + self.pause();
                let moods = [Mood::Busy, Mood::Unavailable, Mood::Confused, Mood::Unauthorized, Mood::Forbidden, Mood::Invalid];
                let mood = moods[self.e.rng.usize(..moods.len())];
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
            Fault::Delete => {
                self.e.judge.trouble_for_all(self.e.now);
                self.server.delete(&mut self.e);
                self.publish();
            }
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
                self.edit("label", |lease| lease["metadata"]["labels"]["colour"] = label.into());
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

    /// Not while init stands still: that the law does not cover.
    fn stop_elector(&mut self, replica: usize) {
        let (actions, span) = (self.actions(), self.pause());
        self.living(replica, |container, e| {
            if !container.is_frozen()
                && let Some(elector) = &mut container.elector
            {
                elector.freeze(actions, span, e);
            }
        });
    }

    fn stop_init(&mut self, replica: usize) {
        let (actions, span) = (self.actions(), self.pause());
        self.living(replica, |container, e| container.freeze(actions, span, e));
    }

    fn kill_elector(&mut self, replica: usize) {
        self.living(replica, |container, e| {
            if !container.is_frozen() {
                e.note(container.who, || "the elector is killed".into());
                container.shoot_elector(e);
            }
        });
    }

    fn cut(&mut self, replica: usize, up: bool, down: bool) {
        let until = self.e.now + self.pause();
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
    }

    fn edit(&mut self, what: &str, edit: impl FnOnce(&mut Value)) {
        self.e.judge.trouble_for_all(self.e.now);
        self.server.edit(what, edit, &mut self.e);
        self.publish();
    }

    fn lie(&mut self, replica: usize) {
        let extends = self.e.rng.bool();
        self.living(replica, |container, e| {
            let now = container.clock().boot(e.now);
            let lied = container.elector.as_mut().is_some_and(|elector| elector.lies(extends, now));
            if lied && !container.is_frozen() {
                e.note(container.who, || "the elector lies".into());
            }
            container.lied |= lied;
            container.wake(e);
        });
    }

    /// The release mark is written on the hold of `who` by its mad elector, which init believes.
    pub fn rob(&mut self, who: Who) {
        let time = stamp(self.e.now);
        let identity = format!("{}_{who}", self.replicas[who.replica].node.name);
        let holds = self.server.lease().is_some_and(|lease| lease["spec"]["holderIdentity"] == identity);
        // What it writes after a true proof is its own affair.
        if holds && self.e.judge.runs_for(who) {
            self.edit("robbed", |lease| {
                let spec = &mut lease["spec"];
                (spec["holderIdentity"], spec["leaseDurationSeconds"]) = ("".into(), 1.into());
                (spec["acquireTime"], spec["renewTime"]) = (time.clone().into(), time.into());
            });
        }
    }

    fn lengthen(&mut self) {
        let longest = self.plan.longest / S;
        self.edit("longer", |lease| {
            let spec = &mut lease["spec"];
            let duration = spec["leaseDurationSeconds"].as_u64().filter(|duration| *duration + 3 <= longest);
            if let Some(duration) = duration.filter(|_| spec["holderIdentity"] != "") {
                spec["leaseDurationSeconds"] = (duration + 3).into();
            }
        });
    }

    /// Where every D is the same: a follower that has never seen the one in the record would not wait long enough.
    fn unset(&mut self) {
        let Some(common) = self.plan.common else { return };
        self.edit("no duration", |lease| {
            let spec = &mut lease["spec"];
            if spec["leaseDurationSeconds"] == common && spec["holderIdentity"] != "" {
                spec["leaseDurationSeconds"] = Value::Null;
            }
        });
    }

    fn delete_slowly(&mut self) {
        let over = self.server.lease().is_some_and(|lease| !lease["metadata"]["deletionTimestamp"].is_null());
        if over {
            return self.edit("finalizer gone", |lease| lease["metadata"]["finalizers"] = json!([]));
        }
        self.edit("finalizer", |lease| lease["metadata"]["finalizers"] = json!(["tenure.dev/simulated"]));
        self.server.delete(&mut self.e);
        self.publish();
    }

    fn clear(&mut self) {
        let how = self.e.rng.u8(..3);
        self.edit("clear", |lease| match how {
            0 => lease["spec"]["holderIdentity"] = "".into(),
            1 => lease["spec"]["holderIdentity"] = Value::Null,
            _ => lease["spec"] = json!({}),
        });
    }

    /// Another holder is written in: a stranger, or one of us that knows nothing of it.
    fn steal(&mut self) {
        let mut names: Vec<String> = self.identities();
        names.push("stranger".into());
        let name = names[self.e.rng.usize(..names.len())].clone();
        let time = stamp(self.e.now);
        self.edit("another holder", |lease| {
            let transitions = lease["spec"]["leaseTransitions"].as_i64().unwrap_or_default();
            let spec = &mut lease["spec"];
            spec["holderIdentity"] = name.into();
            (spec["acquireTime"], spec["renewTime"]) = (time.clone().into(), time.into());
            spec["leaseTransitions"] = transitions.saturating_add(1).into();
            if spec["leaseDurationSeconds"].as_i64().unwrap_or_default() < 2 {
                spec["leaseDurationSeconds"] = 10.into();
            }
        });
    }

    fn ask_to_step_down(&mut self, to: bool) {
        let names = self.identities();
        let candidate = names.get(self.e.rng.usize(..names.len().max(1))).cloned();
        if let Some(holder) = self.server.lease().and_then(|lease| lease["spec"]["holderIdentity"].as_str()) {
            self.e.judge.asks(holder);
        }
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
        });
    }

    /// All is well from now on.
    pub fn calm(&mut self) {
        self.e.note("all", || "IS CALM".into());
        self.calm_since = Some(self.e.now);
        let hang = self.plan.hang;
        let leader = self.e.judge.leader();
        for replica in &mut self.replicas {
            replica.road.mend();
            if let Some(container) = &mut replica.container {
                container.thaw(&mut self.e);
                let (clock, latency) = (container.clock(), 0);
                if let Some(elector) = &mut container.elector {
                    elector.thaw(clock, latency, &mut self.e);
                    if hang == Some(Hang::Electors) {
                        elector.freeze(0, FOREVER, &mut self.e);
                    }
                }
                if hang == Some(Hang::Init) && leader == Some(container.who) && !container.over && container.is_guarded() {
                    container.freeze(0, FOREVER, &mut self.e);
                    self.e.judge.hangs(container.who);
                }
            }
        }
        self.edit("calm", |lease| {
            lease["metadata"]["annotations"][PAUSED] = "false".into();
            lease["metadata"]["finalizers"] = json!([]);
        });
    }

    /// The next fault, and the one after it.
    pub fn strike_somewhere(&mut self) {
        let anyone = self.e.rng.usize(..self.replicas.len());
        let replica = self.e.judge.leader().filter(|_| self.e.rng.bool()).map_or(anyone, |who| who.replica);
        let fault = self.plan.faults[self.e.rng.usize(..self.plan.faults.len())];
        self.strike(Who { replica, life: self.replicas[replica].life }, fault);
        let span = self.e.between(0, self.plan.gap * 2);
        self.e.after(span, Event::Strike);
    }
}

/// A time that no elector writes: it ends in 999.
fn stamp(now: Ns) -> String {
    let micros = EPOCH + i64::try_from(now / US).unwrap_or_default();
    let micros = micros / 1_000 * 1_000 + 999;
    jiff::Timestamp::from_microsecond(micros).map(|time| format!("{time:.6}")).unwrap_or_default()
}
