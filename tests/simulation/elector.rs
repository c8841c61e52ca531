//! One elector process: the shipping machine, driven as in the elector's loop, and the second guard.
//!
//! Owns the process: its ends of the link, its one request, its stops and its end.

use std::{collections::VecDeque, time::Duration};

use tenure::{
    election::{Action, Answer, Elector, Input, Request, RequestId, WatchEnd, Watched},
    link::{InitialState, Term, ToElector, ToInit},
    time::Instant,
};

use crate::{
    alarm::Alarm,
    clock::{Clock, MS, Ns},
    engine::{Child, Engine, Event, Who},
};

mod guard;
mod turn;

use guard::Guard;

const BEATS: u32 = 4;

/// See the module.
#[derive(Clone)]
pub struct ElectorProcess {
    pub child: Child,
    pub to_init: VecDeque<ToInit>,
    pub to_elector: VecDeque<ToElector>,
    /// None of its code runs any more; its end of the link is closed.
    pub is_dead: bool,
    /// It can be reaped, too.
    pub is_zombie: bool,
    pub outstanding: Option<Outstanding>,
    /// The number of the watch in use.
    pub watch: u64,
    machine: Option<Elector>,
    is_up: bool,
    frozen: bool,
    frozen_until: Ns,
    freeze_before: Option<(u32, Ns)>,
    cut_off: Option<Action>,
    alarm: Alarm,
    inbox: VecDeque<Input>,
    /// The term in which it has announced a release.
    pub releasing: Option<Term>,
    guard: Guard,
    beat_due: Instant,
    beat_every: Duration,
}

/// The request in flight.
#[derive(Clone)]
pub struct Outstanding {
    pub id: RequestId,
    /// Present until its first byte leaves.
    pub unsent: Option<Request>,
    held_up: bool,
    late: bool,
}

impl ElectorProcess {
    /// One that init has just started.
    pub fn start(child: Child, initial: InitialState) -> Self {
        Self {
            child,
            to_init: VecDeque::new(),
            beat_every: initial.config.lease.duration / BEATS,
            to_elector: VecDeque::from([ToElector::InitialState(Box::new(initial))]),
            is_dead: false,
            is_zombie: false,
            outstanding: None,
            watch: 0,
            machine: None,
            is_up: false,
            frozen: false,
            frozen_until: 0,
            freeze_before: None,
            cut_off: None,
            alarm: Alarm::off(),
            inbox: VecDeque::new(),
            releasing: None,
            guard: Guard::new(),
            beat_due: Instant::BOOT,
        }
    }

    /// Whether its guard would act at H.
    pub fn guards(&self) -> bool {
        !self.is_dead && !self.frozen && self.machine.is_some()
    }

    /// Its loop has something to do.
    pub fn wake(&mut self, span: Ns, e: &mut Engine) {
        if self.is_dead || !self.is_up {
            return;
        }
        if let Some(at) = self.alarm.set(e.now.saturating_add(span)) {
            e.at(at, Event::Elector(self.child));
        }
    }

    /// Delivers an input from outside.
    pub fn arrives(&mut self, input: Input, span: Ns, e: &mut Engine) {
        self.inbox.push_back(input);
        self.wake(span, e);
    }

    /// SIGSTOP, for this long; before the action of this number.
    pub fn freeze(&mut self, actions: u32, span: Ns, e: &mut Engine) {
        if self.is_dead || self.frozen {
            return;
        }
        if actions > 0 {
            self.freeze_before = Some((actions, span));
            return;
        }
        self.freeze_before = None;
        self.frozen = true;
        self.frozen_until = e.now.saturating_add(span);
        e.judge.trouble(self.child.who.replica, self.frozen_until);
        e.note(self.child.who, || format!("the elector is stopped for {} ms", span / MS));
        e.at(self.frozen_until, Event::ContinueElector(self.child));
    }

    /// Until when its guard does nothing: for ever if it is dead or not up yet.
    pub fn stands_until(&self) -> Ns {
        if self.is_dead || self.machine.is_none() {
            return Ns::MAX;
        }
        if self.frozen { self.frozen_until } else { 0 }
    }

    /// Its SIGCONT is due.
    pub fn continues(&mut self, clock: Clock, latency: Ns, e: &mut Engine) {
        if self.frozen_until <= e.now {
            self.thaw(clock, latency, e);
        }
    }

    /// SIGCONT.
    pub fn thaw(&mut self, clock: Clock, latency: Ns, e: &mut Engine) {
        self.freeze_before = None;
        if self.is_dead || !std::mem::take(&mut self.frozen) {
            return;
        }
        e.note(self.child.who, || "the elector goes on".into());
        self.alarm.clear();
        self.wake(latency, e);
        if let Some(outstanding) = &mut self.outstanding {
            if std::mem::take(&mut outstanding.held_up) {
                e.after(latency, Event::Send(self.child, outstanding.id));
            }
            if std::mem::take(&mut outstanding.late) {
                e.after(latency, Event::Late(self.child, outstanding.id));
            }
        }
        self.set_guard(clock, latency, e);
    }

    /// The request whose first byte leaves now.
    pub fn take_unsent(&mut self, id: RequestId) -> Option<Request> {
        let outstanding = self.outstanding.as_mut().filter(|outstanding| outstanding.id == id)?;
        if self.is_dead {
            return None;
        }
        if self.frozen {
            outstanding.held_up = true;
            return None;
        }
        outstanding.unsent.take()
    }

    /// Its time has run out without an answer.
    pub fn late(&mut self, id: RequestId, e: &mut Engine) {
        let Some(outstanding) = self.outstanding.as_mut().filter(|outstanding| outstanding.id == id) else { return };
        if self.frozen {
            outstanding.late = true;
            return;
        }
        self.answered(id, Answer::Unknown { message: "timed out".into(), retry_after: None }, 0, e);
    }

    /// The answer is in the socket.
    pub fn answered(&mut self, id: RequestId, answer: Answer, span: Ns, e: &mut Engine) {
        if self.is_dead || self.outstanding.take_if(|outstanding| outstanding.id == id).is_none() {
            return;
        }
        self.arrives(Input::Answered { id, answer }, span, e);
    }

    fn telling(&mut self, message: &ToInit) {
        self.guard.armed.telling(message);
        if let ToInit::Releasing { term, .. } = message {
            self.releasing = Some(*term);
        }
    }

    /// The same process in the memory of a replica that is restored, if it does nothing else just now: its connections are broken.
    pub fn restored(&self, who: Who) -> Option<Self> {
        let rests = self.is_up && !self.is_dead && !self.frozen && self.outstanding.is_none() && self.cut_off.is_none();
        let twin = Self {
            child: Child { who, ..self.child },
            alarm: Alarm::off(),
            guard: Guard::armed(self.guard.armed),
            inbox: VecDeque::from([Input::Watched(Watched::Ended(WatchEnd::Failed("restored".into())))]),
            ..self.clone()
        };
        (rests && self.machine.is_some()).then_some(twin)
    }
}
