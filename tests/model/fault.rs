//! The adversary's faults, and when each is possible.

use std::time::Duration;

use serde_json::{Value, json};
use tenure::{
    election::{
        obituary::Input,
        writes::{PAUSED, STEP_DOWN},
    },
    notification::Notification,
    request::{Answer, Refusal},
    role::Role,
    slot::Slot,
};

use crate::{
    container::{Around, Container},
    elector::ElectorProcess,
    family::Setup,
    judge::Judge,
    register::is_labelled,
    tree::Part,
    world::{Flight, Stage, World},
};

/// A fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    pub kind: Kind,
    /// The message or the replica that it affects.
    pub on: usize,
}

/// The kinds of faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A request never arrives.
    LoseRequest,
    /// A request arrives at some later time, perhaps long after its sender gave it up.
    HoldRequest,
    /// A request arrives twice, the second time at some later time.
    RepeatRequest,
    /// A request is answered with a 503 and not carried out.
    Refuse,
    /// With a 401.
    Unauthorize,
    /// With a 403.
    Forbid,
    /// With a 429 that says when to retry.
    Throttle,
    /// With a 409, though nothing has changed.
    Conflict,
    /// An answer never arrives.
    LoseReply,
    /// An answer arrives at some later time.
    HoldReply,
    /// A replica is cut off: requests and answers are lost, the watch stalls.
    Cut,
    /// Only the watch stalls.
    Stall,
    /// The watch begins again at an older version, as at a second API server whose cache is behind.
    StaleWatch,
    /// The memory of a replica is restored beside it.
    Copy,
    /// SIGKILL to the elector.
    CrashElector,
    /// SIGSTOP to the elector.
    FreezeElector,
    /// SIGSTOP to init, where the elector or a fuse stands in for it.
    FreezeInit,
    /// The container ends at once.
    KillInit,
    /// SIGTERM to init.
    Terminate,
    /// The workload ends by itself.
    Exit,
    /// The workload does not get round to handling its signals, and hooks do not end.
    Dawdle,
    /// The workload reported that it stands by, long before it is told to.
    StaleWord,
    /// Somebody continues the main process of a frozen workload.
    Stir,
    /// Or the other one.
    StirWorker,
    /// SIGCONT to init, which passes it on to a leader.
    PassOn,
    /// The workload says that it is not live.
    Sicken,
    /// The workload says that it is not ready.
    Unready,
    /// Somebody removes the holder from the Lease.
    Clear,
    /// Somebody empties it: no holder, no duration, nothing.
    Wipe,
    /// Somebody removes the duration from it.
    Unset,
    /// Somebody writes another holder into it.
    Seize,
    /// Somebody deletes it.
    Delete,
    /// Somebody takes the label away by which several slots are found.
    Unlabel,
    /// Somebody asks its holder to step down.
    StepDown,
    /// Somebody pauses the election.
    Pause,
}

/// The target of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aim {
    Request,
    Reply,
    Replica,
    Lease,
}

impl Kind {
    pub const fn aim(self) -> Aim {
        use Kind::*;
        match self {
            LoseRequest | HoldRequest | RepeatRequest | Refuse | Unauthorize | Forbid | Throttle | Conflict => Aim::Request,
            LoseReply | HoldReply => Aim::Reply,
            Cut | Stall | StaleWatch | Copy | CrashElector | FreezeElector | FreezeInit | KillInit | Terminate | Exit
            | Dawdle | StaleWord | Stir | StirWorker | PassOn | Sicken | Unready => Aim::Replica,
            Clear | Wipe | Unset | Seize | Delete | Unlabel | StepDown | Pause => Aim::Lease,
        }
    }

    /// Returns whether the fault can occur between two steps of one process.
    pub const fn is_inner(self) -> bool {
        use Kind::*;
        matches!(self, CrashElector | FreezeElector | FreezeInit | StaleWord | Unready | Stir | StirWorker | PassOn)
    }

    pub const fn is_reason_to_release(self) -> bool {
        matches!(self, Self::StepDown | Self::Exit | Self::Terminate | Self::Sicken)
    }

    pub const fn lasts(self) -> bool {
        use Kind::*;
        matches!(self, Cut | Stall | FreezeElector | FreezeInit | Dawdle | Unready | Pause)
    }
}

impl World {
    /// Returns whether `fault` would change anything, and is covered by the law.
    pub fn can(&self, Fault { kind, on }: Fault) -> bool {
        match kind.aim() {
            Aim::Request => self.flights.get(on).is_some_and(|flight| !flight.held && flight.is_asked()),
            Aim::Reply => self.flights.get(on).is_some_and(|flight| !flight.held && !flight.is_asked()),
            Aim::Replica => self.can_hit(kind, on),
            Aim::Lease => {
                let held = |lease: &Value| lease["spec"]["holderIdentity"].as_str().is_some_and(|holder| !holder.is_empty());
                let lease = self.register.lease(slot_of(on));
                lease.is_some_and(|lease| {
                    let pauses = kind == Kind::Pause && !is_paused(lease);
                    let unlabels = kind == Kind::Unlabel && is_labelled(lease);
                    let edits = ![Kind::Pause, Kind::Unlabel].contains(&kind) && held(lease);
                    pauses || unlabels || edits || kind == Kind::Delete
                })
            }
        }
    }

    fn can_hit(&self, kind: Kind, on: usize) -> bool {
        use Kind::*;
        if on == self.places.len() {
            return kind == Cut && self.peer.as_ref().is_some_and(|peer| !peer.cut);
        }
        let (container, road) = (&self.places[on].container, &self.places[on].road);
        let elector = container.runner().is_some();
        if container.over.is_some() {
            return false;
        }
        let is_stopped = |part| container.tree.stopped(self.now).any(|(_, stopped)| stopped == part);
        let main = container.tree.main();
        let is_leading = main.is_some_and(|(_, leads)| leads);
        match kind {
            Cut => !road.cut,
            Stall => !road.stalled,
            StaleWatch => elector && self.before.is_some(),
            Copy => on == 0 && self.places.len() < 3 && self.judge.is_leading(container.who) && container.rests(),
            // An elector that is stopped, dead or not yet there cannot stand in for init. Without a fuse that is not covered.
            FreezeInit => !container.frozen && (container.has_fuse || container.is_guarded()),
            CrashElector | FreezeElector => elector && (container.has_fuse || !container.frozen),
            KillInit | Terminate | PassOn => true,
            Stir => is_stopped(Part::Main),
            StirWorker => is_stopped(Part::Worker),
            Exit => is_leading,
            Dawdle => !container.dawdles,
            // A report after the signal would be the workload's own lie.
            Sicken => main.is_some(),
            Unready => main.is_some() && !container.unready,
            StaleWord => is_leading && !container.tree.has_orders(),
            LoseRequest | HoldRequest | RepeatRequest | Refuse | Unauthorize | Forbid | Throttle | Conflict | LoseReply
            | HoldReply | Clear | Wipe | Unset | Seize | Delete | Unlabel | StepDown | Pause => false,
        }
    }

    /// Injects it.
    pub fn strike(&mut self, Fault { kind, on }: Fault, setups: &[Setup]) {
        match kind {
            Kind::LoseRequest | Kind::LoseReply => drop(self.flights.remove(on)),
            Kind::HoldRequest | Kind::HoldReply => self.flights[on].held = true,
            Kind::RepeatRequest => {
                let twin = Flight { held: true, ..self.flights[on].clone() };
                self.flights.push(twin);
            }
            Kind::Refuse => {
                let message = "503".into();
                self.flights[on].stage = Stage::Answered(Answer::Unknown { message, retry_after: None });
            }
            Kind::Unauthorize => self.refuse(on, Refusal::Unauthorized),
            Kind::Forbid => self.refuse(on, Refusal::Forbidden),
            Kind::Throttle => self.refuse(on, Refusal::TooManyRequests { retry_after: Some(Duration::from_secs(1)) }),
            Kind::Conflict => self.flights[on].stage = Stage::Answered(Answer::Conflict),
            Kind::Cut => match (self.places.get_mut(on), &mut self.peer) {
                (Some(place), _) => place.road.cut = true,
                (None, peer) => peer.iter_mut().for_each(|peer| peer.cut = true),
            },
            Kind::Stall => self.places[on].road.stalled = true,
            Kind::StaleWatch => self.rewind(on),
            Kind::Copy => self.copy(on, setups),
            Kind::CrashElector => {
                self.inside(on, setups, |container, _| container.elector.iter_mut().for_each(ElectorProcess::die));
                self.tell_witness(on, setups, |identity| Input::Disconnected { identity });
            }
            Kind::FreezeElector => self.inside(on, setups, |container, _| {
                container.elector.iter_mut().for_each(|elector| elector.frozen = true);
            }),
            Kind::FreezeInit => self.inside(on, setups, |container, _| container.frozen = true),
            Kind::KillInit => {
                self.inside(on, setups, Container::end);
                // Its sockets are closed long before its last process is gone.
                self.tell_witness(on, setups, |identity| Input::Disconnected { identity });
            }
            Kind::Terminate => self.inside(on, setups, |container, _| container.signal(libc::SIGTERM)),
            Kind::Exit => self.inside(on, setups, |container, around| container.tree.exit(around)),
            Kind::Dawdle => self.inside(on, setups, |container, _| container.dawdles = true),
            Kind::StaleWord => self.inside(on, setups, |container, _| {
                container.says(Notification::Role(Role::Standby));
            }),
            Kind::Stir => self.inside(on, setups, |container, around| container.stir(Part::Main, around)),
            Kind::StirWorker => self.inside(on, setups, |container, around| container.stir(Part::Worker, around)),
            Kind::PassOn => self.inside(on, setups, |container, _| container.signal(libc::SIGCONT)),
            Kind::Sicken => self.inside(on, setups, |container, _| container.says(Notification::WatchdogTrigger)),
            Kind::Unready => self.inside(on, setups, |container, _| container.say_ready(false)),
            Kind::Clear => self.edit(on, setups, |lease| lease["spec"]["holderIdentity"] = Value::Null),
            Kind::Wipe => self.edit(on, setups, |lease| lease["spec"] = json!({})),
            Kind::Unset => self.edit(on, setups, |lease| lease["spec"]["leaseDurationSeconds"] = Value::Null),
            Kind::Seize => self.edit(on, setups, |lease| lease["spec"]["holderIdentity"] = "somebody".into()),
            Kind::Delete => drop(self.change(setups, |register| register.delete(slot_of(on)))),
            Kind::Unlabel => self.edit(on, setups, |lease| lease["metadata"]["labels"] = json!({})),
            Kind::StepDown => self.edit(on, setups, |lease| {
                let holder = lease["spec"]["holderIdentity"].clone();
                lease["metadata"]["annotations"][STEP_DOWN] = holder;
            }),
            Kind::Pause => self.edit(on, setups, |lease| lease["metadata"]["annotations"][PAUSED] = "true".into()),
        }
    }

    fn refuse(&mut self, on: usize, refusal: Refusal) {
        self.flights[on].stage = Stage::Answered(Answer::Refused { refusal, message: format!("{refusal:?}").into() });
    }

    fn edit(&mut self, on: usize, setups: &[Setup], edit: impl FnOnce(&mut Value)) {
        self.change(setups, |register| register.edit(slot_of(on), edit));
    }

    pub fn is_hit(&self, Fault { kind, on }: Fault) -> bool {
        use Kind::*;
        if kind == Pause {
            return self.register.lease(slot_of(on)).is_some_and(|lease| is_paused(lease));
        }
        let Some(place) = self.places.get(on) else {
            return kind == Cut && self.peer.as_ref().is_some_and(|peer| peer.cut);
        };
        let (container, road) = (&place.container, &place.road);
        match kind {
            Cut => road.cut,
            Stall => road.stalled,
            FreezeElector => container.elector.as_ref().is_some_and(|elector| elector.frozen && !elector.is_dead),
            FreezeInit => container.frozen,
            Dawdle => container.dawdles,
            Unready => container.unready,
            LoseRequest | HoldRequest | RepeatRequest | Refuse | Unauthorize | Forbid | Throttle | Conflict | LoseReply
            | HoldReply | StaleWatch | Copy | CrashElector | KillInit | Terminate | Exit | StaleWord | Stir | StirWorker
            | PassOn | Sicken | Clear | Wipe | Unset | Seize | Delete | Unlabel | StepDown | Pause => false,
        }
    }

    /// Ends it.
    pub fn mend(&mut self, Fault { kind, on }: Fault, setups: &[Setup]) {
        if kind == Kind::Pause {
            return self.edit(on, setups, |lease| lease["metadata"]["annotations"][PAUSED] = "false".into());
        }
        if on == self.places.len() {
            return self.peer.iter_mut().for_each(|peer| peer.cut = false);
        }
        if kind == Kind::Cut || kind == Kind::Stall {
            let road = &mut self.places[on].road;
            let ended = if kind == Kind::Cut { &mut road.cut } else { &mut road.stalled };
            *ended = false;
            return self.catch_up(on);
        }
        self.inside(on, setups, |container, _| match (kind, &mut container.elector) {
            (Kind::FreezeElector, Some(elector)) => elector.frozen = false,
            (Kind::FreezeInit, _) => container.frozen = false,
            (Kind::Dawdle, _) => container.dawdles = false,
            (Kind::Unready, _) => container.say_ready(true),
            _ => {}
        });
    }

    /// Runs `does` in the container of a replica.
    pub fn inside<R>(&mut self, on: usize, setups: &[Setup], does: impl FnOnce(&mut Container, &mut Around<'_>) -> R) -> R {
        let (now, judge): (_, &mut Judge) = (self.now, &mut self.judge);
        let mut around = Around { now, setup: &setups[on], judge };
        self.places[on].container.change(|container| does(container, &mut around))
    }
}

fn slot_of(on: usize) -> Slot {
    Slot(u8::try_from(on).unwrap_or_default())
}

fn is_paused(lease: &Value) -> bool {
    lease["metadata"]["annotations"][PAUSED] == "true"
}
