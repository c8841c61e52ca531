//! One elector process: the shipping machine, driven as in the elector's loop, and the second guard.
//!
//! Owns the process: its ends of the link, its one request, its stops and its end.

use std::{collections::VecDeque, time::Duration};

use tenure::{
    election::{Action, Answer, Elector, Input, Request, RequestId},
    law::Deadlines,
    link::{Confirmed, Term, ToElector, ToInit, Welcome},
    time::Instant,
};

use crate::{
    alarm::Alarm,
    clock::{Clock, MS, Ns},
    engine::{Child, Engine, Event},
    evidence::Evidence,
};

/// The serial of a message that no machine has sent.
pub const LIE: u64 = u64::MAX;

mod guard;
mod turn;

use guard::Guard;

const BEATS: u32 = 4;

/// See the module.
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
    evidence: Evidence,
    /// The last confirmation that it sent to init for its term.
    confirmed: Option<(Term, Confirmed)>,
    /// The message with which the term began.
    lead: Option<ToInit>,
    /// The term in which it has announced a release.
    pub releasing: Option<Term>,
    guard: Guard,
    beat_due: Instant,
    beat_every: Duration,
}

/// What an elector may say falsely.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lie {
    /// An extension that no write can have earned.
    Extension,
    /// A release that nobody may write.
    Release,
    /// The same term again, without its initial wait.
    NoWait,
    /// The end of a wait after which D is longer, and an extension by that D.
    Duration,
}

/// The request in flight.
pub struct Outstanding {
    pub id: RequestId,
    /// Present until its first byte leaves.
    pub unsent: Option<Request>,
    held_up: bool,
    late: bool,
}

impl ElectorProcess {
    /// One that init has just started.
    pub fn start(child: Child, welcome: Welcome) -> Self {
        Self {
            child,
            to_init: VecDeque::new(),
            beat_every: welcome.config.lease.duration / BEATS,
            to_elector: VecDeque::from([ToElector::Welcome(Box::new(welcome))]),
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
            evidence: Evidence::default(),
            confirmed: None,
            lead: None,
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

    /// Tells init what no machine would; true if it leads, which makes it a lie.
    pub fn lies(&mut self, lie: Lie, now: Instant) -> bool {
        let Some((term, confirmed)) = self.confirmed.clone().filter(|_| !self.is_dead) else { return false };
        if lie == Lie::NoWait {
            let Some(ToInit::Lead { facts, timing, not_before, .. }) = self.lead.clone() else { return false };
            if not_before.is_none_or(|end| end <= now) {
                return false;
            }
            let next = Term(term.0 + 1);
            self.to_init.push_back(ToInit::Ended { term });
            self.to_init.push_back(ToInit::Lead { term: next, facts, timing, confirmed, not_before: None });
            return true;
        }
        // Far enough that it is not true by the time it is read either.
        let long = Duration::from_secs(100_000);
        let far = |at: Instant| at.max(now) + long;
        let Deadlines { soft, hard, end } = confirmed.deadlines;
        let deadlines = Deadlines { soft: far(soft), hard: far(hard), end: far(end) };
        if lie == Lie::Duration {
            let Some(ToInit::Lead { timing, .. }) = self.lead else { return false };
            let (timing, deadlines) = (timing.with_duration(long * 2), confirmed.deadlines);
            self.to_init.push_back(ToInit::Shorten { term, serial: LIE - 1, timing, deadlines });
        }
        self.to_init.push_back(if lie == Lie::Release {
            ToInit::Releasing { term, serial: LIE }
        } else {
            ToInit::Extend { term, serial: LIE, confirmed: Confirmed { deadlines, ..confirmed } }
        });
        true
    }

    fn telling(&mut self, message: &ToInit) {
        self.guard.armed.telling(message);
        match message {
            ToInit::Lead { term, facts, confirmed, .. } => {
                self.evidence.begins(&facts.uid);
                self.confirmed = Some((*term, confirmed.clone()));
                self.lead = Some(message.clone());
            }
            ToInit::Extend { term, confirmed, .. } => self.confirmed = Some((*term, confirmed.clone())),
            ToInit::Ended { .. } => {
                self.evidence.ends();
                self.confirmed = None;
            }
            ToInit::Releasing { term, .. } => self.releasing = Some(*term),
            ToInit::Hello { .. }
            | ToInit::Shorten { .. }
            | ToInit::StepDown { .. }
            | ToInit::Saw(_)
            | ToInit::Beat
            | ToInit::Done
            | ToInit::Failed { .. } => {}
        }
    }
}
