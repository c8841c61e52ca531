//! An elector process: the shipping election in its shipping turn, and the second guard.

use std::{collections::VecDeque, convert::Infallible};

use tenure::{
    election::{
        self, Event, Input, RequestId,
        guard_deadline::GuardDeadline,
        turn::{Arrived, Process, Turn},
        writes::{STEP_DOWN_TO, Sent},
    },
    link::{InitialState, ToElector, ToInit},
    request::{Answer, WatchEnd, Watched},
    slot::Slot,
    time::{Instant, Now},
};
use tenure_world::{Observer, Who, Wrong};

use crate::{
    clock::Ns,
    container::{Around, Container},
    digest::{Aside, Sealed},
    family::Setup,
    judge::Judge,
    register::Request,
    tree::{GUARD_ROUND, Killer},
};

/// Signs of life within the time after which silence means death; few, because each is a step.
const BEATS: u32 = 2;

#[derive(Clone, Debug, Hash)]
pub struct ElectorProcess {
    pub pid: i32,
    pub to_init: VecDeque<ToInit>,
    pub to_elector: VecDeque<ToElector>,
    /// Inputs from outside.
    pub inbox: VecDeque<Input>,
    /// None of its code runs any more.
    pub is_dead: bool,
    pub frozen: bool,
    /// True if a watch is open.
    pub watches: bool,
    /// The version at which the watch starts, if it has only just been requested.
    pub watch_from: Option<Option<String>>,
    pub request: Option<Pending>,
    /// The slot that the last answer told of, and its version then.
    answered_at: Aside<(Slot, u64)>,
    turn: Option<Sealed<Turn>>,
    /// Something was done in this turn.
    did: bool,
    /// Init has said that the workload is not ready, or nothing yet.
    unready: bool,
    guard: Guard,
}

/// The request in flight.
#[derive(Clone, Debug, Hash)]
pub struct Pending {
    pub id: RequestId,
    /// Present until its first byte leaves.
    unsent: Option<(Slot, Request)>,
    /// Its number for the law.
    number: Aside<Option<usize>>,
    /// When it is given up.
    late: Ns,
}

/// When the guard kills.
#[derive(Clone, Copy, Debug, Hash)]
struct Guard {
    armed: GuardDeadline,
    /// The next round.
    next: Ns,
}

impl ElectorProcess {
    /// Returns an elector that init has just started.
    pub fn start(pid: i32, initial: InitialState) -> Self {
        Self {
            pid,
            to_init: VecDeque::from([ToInit::Hello]),
            to_elector: VecDeque::from([ToElector::InitialState(Box::new(initial))]),
            inbox: VecDeque::new(),
            is_dead: false,
            frozen: false,
            watches: false,
            watch_from: None,
            request: None,
            answered_at: Aside::default(),
            turn: None,
            did: false,
            unready: true,
            guard: Guard { armed: GuardDeadline::disarmed(), next: 0 },
        }
    }

    pub const fn guards(&self) -> bool {
        !self.is_dead && !self.frozen && self.turn.is_some()
    }

    pub fn rests(&self) -> bool {
        let idle = self.request.is_none() && !self.is_under_way() && self.inbox.is_empty();
        self.guards() && idle && self.to_init.is_empty() && self.to_elector.is_empty() && self.watch_from.is_none()
    }

    /// The same process in a memory that is restored.
    pub fn restored(&self) -> Self {
        let broken = Input::Watched(Watched::Ended(WatchEnd::Failed("restored".into())));
        Self { watches: false, inbox: VecDeque::from([broken]), ..self.clone() }
    }

    /// SIGKILL.
    pub fn die(&mut self) {
        self.is_dead = true;
        self.turn = None;
        self.inbox.clear();
        self.to_elector.clear();
        self.request = None;
    }

    /// When the request in flight is given up.
    pub fn late(&self) -> Option<Ns> {
        self.request.as_ref().filter(|request| request.unsent.is_none()).map(|request| request.late)
    }

    const fn runs(&self) -> bool {
        !self.is_dead && !self.frozen
    }

    fn is_unsent(&self) -> bool {
        self.request.as_ref().is_some_and(|request| request.unsent.is_some())
    }

    fn is_late(&self, now: Ns) -> bool {
        self.late().is_some_and(|at| at <= now)
    }

    fn is_under_way(&self) -> bool {
        self.turn.as_ref().is_some_and(|turn| turn.is_under_way())
    }

    /// A sign of life alone wakes nobody: it is given by whoever is awake.
    fn timeout(&self) -> Option<Instant> {
        self.turn.as_ref().and_then(|turn| turn.election().poll_timeout())
    }

    fn is_due(&self, boot: Instant) -> bool {
        self.timeout().is_some_and(|at| at <= boot)
    }
}

/// The elector's actions in its container.
impl Container {
    /// The elector, if any code of it runs.
    pub fn runner(&self) -> Option<&ElectorProcess> {
        self.elector.as_ref().filter(|elector| elector.runs() && self.over.is_none())
    }

    /// Returns whether the guard kills: past H, if there is a process that SIGKILL has not reached.
    pub fn guard_has_work(&self, now: Ns, boot: Instant) -> bool {
        let Some(elector) = self.runner() else { return false };
        GuardDeadline::is_time(elector.guard.armed.hard(), boot) && elector.guard.next <= now && self.tree.is_untouched()
    }

    /// Runs one round of the guard.
    pub fn step_guard(&mut self, around: &mut Around<'_>) {
        if let Some(elector) = &mut self.elector {
            elector.guard.next = around.now + GUARD_ROUND;
        }
        self.tree.kill(Killer::Guard, &around.setup.habits(), around);
    }

    pub fn elector_has_work(&self, now: Ns, boot: Instant) -> bool {
        let Some(elector) = self.runner() else { return false };
        elector.is_under_way()
            || elector.is_unsent()
            || !elector.to_elector.is_empty()
            || !elector.inbox.is_empty()
            || elector.is_late(now)
            || elector.is_due(boot)
    }

    /// When the elector and its guard wake by themselves, unless they are stopped.
    pub fn elector_timeouts(&self, setup: &Setup) -> [Option<Ns>; 3] {
        let Some(elector) = self.elector.as_ref().filter(|elector| !elector.is_dead && self.over.is_none()) else {
            return [None; 3];
        };
        let machine = elector.timeout().map(|at| setup.clock.real(at));
        let guard = (elector.guard.armed.hard() != Instant::NEVER && self.tree.is_untouched())
            .then(|| setup.clock.real(elector.guard.armed.hard()).max(elector.guard.next));
        [machine, elector.late(), guard]
    }

    /// The elector takes its next step; returns a request whose first byte leaves.
    pub fn step_elector(&mut self, around: &mut Around<'_>) -> Option<(RequestId, Slot, Request, Option<usize>)> {
        let who = self.who;
        let (now, boot) = (around.setup.clock.now(around.now), around.boot());
        let elector = self.elector.as_mut()?;
        if !elector.is_under_way()
            && let Some(request) = &mut elector.request
            && let Some((slot, unsent)) = request.unsent.take()
        {
            request.late = around.setup.clock.real(boot + around.setup.config.lease.attempt_timeout);
            return Some((request.id, slot, unsent, request.number.0));
        }
        let Some(mut turn) = elector.turn.take() else {
            if let Some(ToElector::InitialState(initial)) = elector.to_elector.pop_front() {
                if let Some(resume) = &initial.resume {
                    elector.guard.armed.arm(resume.term, resume.confirmed.deadlines.hard);
                }
                elector.unready = initial.config.workload.readiness.handler().is_some();
                elector.turn = Some(Sealed::new(Turn::new(*initial, 7, now, BEATS)));
            }
            return None;
        };
        let late = elector.is_late(around.now);
        let Ok(goes_on) = turn.change(|turn| {
            let mut around = Running { elector: &mut *elector, who, now, late, judge: &mut *around.judge };
            let mut goes_on = turn.step(&mut around);
            // Whether a message waits is no step.
            if turn.is_drained() {
                goes_on = turn.step(&mut around);
            }
            goes_on
        });
        elector.turn = Some(turn);
        if !goes_on {
            around.judge.lawful(|law| law.rests(who));
        }
        if !goes_on && !std::mem::take(&mut elector.did) && elector.is_due(boot) {
            around.judge.fail(Wrong::Spins, format!("the elector of {who} does nothing at its time"));
        }
        None
    }

    /// The answer reaches the elector that waits for it.
    pub fn answered(&mut self, pid: i32, id: RequestId, answer: Answer, at: (Slot, u64)) {
        let Some(elector) = self.elector.as_mut().filter(|elector| elector.pid == pid && !elector.is_dead) else { return };
        if elector.request.take_if(|request| request.id == id).is_some() {
            elector.answered_at = Aside(at);
            elector.inbox.push_back(Input::Answered { id, answer });
        }
    }
}

/// The elector process around its turn.
struct Running<'a> {
    elector: &'a mut ElectorProcess,
    who: Who,
    now: Now,
    /// The time of its request is up.
    late: bool,
    judge: &'a mut Judge,
}

impl Process for Running<'_> {
    type End = Infallible;

    fn now(&self) -> Now {
        self.now
    }

    fn receive(&mut self, _: Now) -> Result<Option<ToElector>, Infallible> {
        self.judge.lawful(|law| law.turns(self.who));
        let message = self.elector.to_elector.pop_front();
        if let Some(message) = &message {
            self.elector.did = true;
            self.elector.guard.armed.told(message);
        }
        if let Some(ToElector::Health { unready, .. }) = &message {
            self.elector.unready = unready.is_some();
        }
        Ok(message)
    }

    fn arrived(&mut self) -> Option<Arrived> {
        let input = self.elector.inbox.pop_front().or_else(|| {
            let request = self.elector.request.take_if(|_| self.late)?;
            let answer = Answer::Unknown { message: "timed out".into(), retry_after: None };
            Some(Input::Answered { id: request.id, answer })
        })?;
        self.elector.did = true;
        self.judge.lawful(|law| law.takes_in(self.who, &input, self.elector.answered_at.0));
        Some(Arrived::Input(input))
    }

    fn request(&mut self, slot: Slot, id: RequestId, request: election::Request) {
        let request = Request::from(request);
        self.elector.did = true;
        let me = self.who.to_string();
        if let Request::Write(Sent::Replace(lease)) = &request
            && lease["metadata"]["annotations"][STEP_DOWN_TO] == *me
            && let Some(leader) = lease["spec"]["holderIdentity"].as_str().filter(|leader| *leader != me)
        {
            self.judge.asks(self.who, !self.elector.unready, leader);
        }
        let number = Aside(self.judge.lawful(|law| law.asks(self.who, slot, &request, false)));
        self.elector.request = Some(Pending { id, unsent: Some((slot, request)), number, late: Ns::MAX });
    }

    fn watch(&mut self, resource_version: Option<String>) {
        self.elector.did = true;
        (self.elector.watches, self.elector.watch_from) = (true, Some(resource_version));
    }

    fn telling(&mut self, message: &mut ToInit) {
        self.elector.guard.armed.telling(message);
    }

    fn send(&mut self, message: &ToInit) -> Result<(), Infallible> {
        self.judge.lawful(|law| law.says(self.who, message));
        self.elector.did |= *message != ToInit::Heartbeat;
        self.elector.to_init.push_back(message.clone());
        Ok(())
    }

    fn is_clogged(&self) -> bool {
        false
    }

    fn finish(&mut self) {
        self.elector.did = true;
        self.elector.to_init.push_back(ToInit::Done);
    }

    fn report(&mut self, _: Event, _: Now) {}
}
