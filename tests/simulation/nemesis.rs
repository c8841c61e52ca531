//! What goes wrong, and what people do to the Lease.
//!
//! Owns the faults. What the law does not cover is not among them: init is stopped only while its elector can stand in, nobody
//! forges the mark of a release, shortens a duration or puts an older spec back.

use serde_json::{Value, json};
use tenure::election::{
    Request,
    writes::{PAUSED, STEP_DOWN, STEP_DOWN_TO},
};

use crate::{
    clock::{MS, Ns, S, US},
    engine::{Event, Who},
    network::Mood,
    server::EPOCH,
    world::World,
};

const SIGTERM: i32 = 15;

/// Something that goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    StopElector,
    StopInit,
    KillElector,
    KillContainer,
    Terminate,
    Murder,
    CutUp,
    CutDown,
    CutBoth,
    CutAll,
    Losses,
    Moods,
    BreakWatch,
    Compact,
    Delete,
    DeleteSlowly,
    Clear,
    Steal,
    StepDown,
    HandOver,
    Pause,
    Label,
    JumpWall,
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
    pub const ALL: [Self; 23] = [
        Self::StopElector,
        Self::StopInit,
        Self::KillElector,
        Self::KillContainer,
        Self::Terminate,
        Self::Murder,
        Self::CutUp,
        Self::CutDown,
        Self::CutBoth,
        Self::CutAll,
        Self::Losses,
        Self::Moods,
        Self::BreakWatch,
        Self::Compact,
        Self::Delete,
        Self::DeleteSlowly,
        Self::Clear,
        Self::Steal,
        Self::StepDown,
        Self::HandOver,
        Self::Pause,
        Self::Label,
        Self::JumpWall,
    ];

    /// Whether it makes sense right upon a step of one replica.
    pub const fn is_aimed(self) -> bool {
        !matches!(self, Self::CutAll | Self::Compact | Self::JumpWall | Self::Pause)
    }
}

impl World {
    /// Does it.
    pub fn strike(&mut self, who: Who, fault: Fault) {
        let replica = who.replica;
        match fault {
            Fault::StopElector => self.stop_elector(replica),
            Fault::StopInit => self.stop_init(replica),
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
            }
            Fault::Moods => {
                let until = self.e.now + self.pause();
                let moods = [Mood::Busy, Mood::Unavailable, Mood::Confused, Mood::Unauthorized, Mood::Forbidden];
                let mood = moods[self.e.rng.usize(..moods.len())];
                self.e.note(who, || format!("the server is {mood:?}"));
                self.replicas[replica].road.mood = (until, mood);
            }
            Fault::BreakWatch => {
                let broken = self.e.rng.bool();
                for child in self.server.watchers().into_iter().filter(|child| child.who.replica == replica) {
                    self.server.hang_up(child, broken, &mut self.e);
                }
            }
            Fault::Compact => self.server.compact(),
            Fault::Delete => {
                self.server.delete(&mut self.e);
                self.publish();
            }
            Fault::DeleteSlowly => self.delete_slowly(),
            Fault::Clear => self.clear(),
            Fault::Steal => self.steal(),
            Fault::StepDown => self.ask_to_step_down(false),
            Fault::HandOver => self.ask_to_step_down(true),
            Fault::Pause => {
                let paused = self.e.rng.bool();
                self.edit("pause", |lease| {
                    lease["metadata"]["annotations"][PAUSED] = if paused { "true".into() } else { Value::Null }
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
        let road = &mut self.replicas[replica].road;
        if up {
            road.up_cut = until;
        }
        if down {
            road.down_cut = until;
        }
    }

    fn edit(&mut self, what: &str, edit: impl FnOnce(&mut Value)) {
        self.server.edit(what, edit, &mut self.e);
        self.publish();
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
        self.edit("step down", |lease| {
            let holder = lease["spec"]["holderIdentity"].clone();
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
        for replica in &mut self.replicas {
            replica.road.mend();
            if let Some(container) = &mut replica.container {
                container.thaw(&mut self.e);
                let (clock, latency) = (container.clock(), 0);
                if let Some(elector) = &mut container.elector {
                    elector.thaw(clock, latency, &mut self.e);
                }
            }
        }
        self.edit("calm", |lease| {
            lease["metadata"]["annotations"][PAUSED] = Value::Null;
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
