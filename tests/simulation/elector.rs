//! An elector process: the shipping election in its shipping turn, and the second guard.
//!
//! Owns the process: its ends of the link, its one request, its stops and its end.

use std::collections::VecDeque;

use tenure::{
    election::{
        Input, RequestId,
        turn::{Arrived, Turn},
    },
    link::{InitialState, Term, ToElector, ToInit},
    request::{Answer, WatchEnd, Watched},
    slot::Slot,
    time::Instant,
};

use crate::{
    alarm::{Alarm, Overdue},
    clock::{Clock, MS, Ns},
    container::Moment,
    engine::{Child, Engine, Event, Who},
    register::Request,
    traffic::Traffic,
};

mod guard;
mod turn;

use guard::Guard;

#[derive(Clone)]
pub struct ElectorProcess {
    pub child: Child,
    pub to_init: VecDeque<ToInit>,
    pub to_elector: VecDeque<ToElector>,
    /// None of its code runs any more; its end of the link is closed.
    pub is_dead: bool,
    /// True if the process can be reaped, too.
    pub is_zombie: bool,
    pub outstanding: Option<Outstanding>,
    /// The number of the watch in use.
    pub watch: u64,
    turn: Option<Turn>,
    is_up: bool,
    /// Since when too many messages wait for init.
    crowded: Option<Ns>,
    frozen: bool,
    frozen_until: Ns,
    /// When the elector will be stopped, and for how long.
    freeze_before: Option<(Moment, Ns)>,
    alarm: Alarm,
    overdue: Overdue,
    pub inbox: VecDeque<Arrived>,
    /// S, as it said last or was told at its start.
    pub soft: Instant,
    /// The last proof that init has sent it, and when; unless init itself had begun that stop at S.
    pub proof: Option<(Term, Ns)>,
    pub expired: Option<Term>,
    /// What it writes into the EndpointSlice of its leader.
    pub traffic: Option<Box<Traffic>>,
    /// The term in which it has announced a release.
    pub releasing: Option<Term>,
    /// The slot that the last answer told of, and its version then.
    pub answered_at: (Slot, u64),
    guard: Guard,
}

/// The request in flight.
#[derive(Clone)]
pub struct Outstanding {
    pub slot: Slot,
    pub id: RequestId,
    /// Present until its first byte leaves.
    pub unsent: Option<Request>,
    /// Its number for the law.
    pub number: Option<usize>,
    held_up: bool,
    late: bool,
}

impl ElectorProcess {
    /// Returns an elector that init has just started.
    pub fn start(child: Child, initial: InitialState) -> Self {
        Self {
            child,
            to_init: VecDeque::new(),
            to_elector: VecDeque::from([ToElector::InitialState(Box::new(initial))]),
            is_dead: false,
            is_zombie: false,
            outstanding: None,
            watch: 0,
            turn: None,
            is_up: false,
            crowded: None,
            overdue: Overdue::default(),
            frozen: false,
            frozen_until: 0,
            freeze_before: None,
            alarm: Alarm::off(),
            inbox: VecDeque::new(),
            soft: Instant::NEVER,
            proof: None,
            expired: None,
            traffic: None,
            releasing: None,
            answered_at: (Slot(0), 0),
            guard: Guard::new(),
        }
    }

    pub fn guards(&self) -> bool {
        !self.is_dead && !self.frozen && self.turn.is_some()
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
        self.inbox.push_back(Arrived::Input(input));
        self.wake(span, e);
    }

    /// SIGSTOP, for this long.
    pub fn freeze(&mut self, moment: Moment, span: Ns, e: &mut Engine) {
        if self.is_dead || self.frozen {
            return;
        }
        if moment != Moment::Now {
            self.freeze_before = Some((moment, span));
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
        if self.is_dead || self.turn.is_none() {
            return Ns::MAX;
        }
        if self.frozen { self.frozen_until } else { 0 }
    }

    /// Its SIGCONT is due.
    pub fn continues(&mut self, clock: Clock, latency: Ns, e: &mut Engine) {
        if self.frozen_until <= e.now {
            self.resume(clock, latency, e);
        }
    }

    /// SIGCONT.
    pub fn resume(&mut self, clock: Clock, latency: Ns, e: &mut Engine) {
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
    pub fn take_unsent(&mut self, id: RequestId) -> Option<(Slot, Request, Option<usize>)> {
        let outstanding = self.outstanding.as_mut().filter(|outstanding| outstanding.id == id)?;
        if self.is_dead {
            return None;
        }
        if self.frozen {
            outstanding.held_up = true;
            return None;
        }
        Some((outstanding.slot, outstanding.unsent.take()?, outstanding.number))
    }

    /// Its time has run out without an answer.
    pub fn late(&mut self, id: RequestId, e: &mut Engine) {
        let Some(outstanding) = self.outstanding.as_mut().filter(|outstanding| outstanding.id == id) else { return };
        if self.frozen {
            outstanding.late = true;
            return;
        }
        self.answered(id, Answer::Unknown { message: "timed out".into(), retry_after: None }, self.answered_at, 0, e);
    }

    /// The answer is in the socket.
    pub fn answered(&mut self, id: RequestId, answer: Answer, at: (Slot, u64), span: Ns, e: &mut Engine) {
        if self.is_dead || self.outstanding.take_if(|outstanding| outstanding.id == id).is_none() {
            return;
        }
        self.answered_at = at;
        self.arrives(Input::Answered { id, answer }, span, e);
    }

    /// The same process in the memory of a replica that is restored, if it does nothing else just now: its connections are broken.
    pub fn restored(&self, who: Who) -> Option<Self> {
        let is_idle = self.turn.as_ref().is_some_and(|turn| !turn.is_under_way());
        let rests = self.is_up && !self.is_dead && !self.frozen && self.outstanding.is_none();
        let twin = Self {
            child: Child { who, ..self.child },
            alarm: Alarm::off(),
            guard: Guard::armed(self.guard.armed),
            traffic: self.traffic.as_ref().map(|traffic| traffic.restored()),
            inbox: VecDeque::from([Arrived::Input(Input::Watched(Watched::Ended(WatchEnd::Failed("restored".into()))))]),
            ..self.clone()
        };
        (rests && is_idle).then_some(twin)
    }
}
