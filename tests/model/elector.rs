//! One elector process: the shipping machine, driven as in the elector's loop, and the second guard.

use std::collections::VecDeque;

use tenure::{
    election::{Action, Answer, Input, Pool, Request, RequestId, WatchEnd, Watched, armed::Armed},
    link::{InitialState, Slot, ToElector, ToInit},
    time::Instant,
};

use crate::{
    clock::{MS, Ns},
    container::{Around, Container},
    digest::Sealed,
    family::Setup,
    judge::Wrong,
};

/// The time between two rounds of the guard.
const ROUND: Ns = 50 * MS;
/// Signs of life within the time after which silence means death; few, because each is a step.
const BEATS: u32 = 2;

/// See the module.
#[derive(Clone, Debug)]
pub struct ElectorProcess {
    pub pid: i32,
    pub to_init: VecDeque<ToInit>,
    pub to_elector: VecDeque<ToElector>,
    /// Inputs from outside.
    pub inbox: VecDeque<Input>,
    /// None of its code runs any more.
    pub is_dead: bool,
    pub frozen: bool,
    /// It has a watch open.
    pub watches: bool,
    /// The version at which the watch starts, if it has only just been requested.
    pub watch_from: Option<Option<String>>,
    pub request: Option<Pending>,
    machine: Option<Sealed<Pool>>,
    actions: VecDeque<Action>,
    guard: Guard,
    beat_due: Instant,
    beat_every: std::time::Duration,
}

/// The request in flight.
#[derive(Clone, Debug)]
pub struct Pending {
    pub id: RequestId,
    /// Present until its first byte leaves.
    unsent: Option<(Slot, Request)>,
    /// When it is given up.
    late: Ns,
}

/// When the guard kills.
#[derive(Clone, Copy, Debug)]
struct Guard {
    armed: Armed,
    /// The next round.
    next: Ns,
}

impl ElectorProcess {
    /// One that init has just started.
    pub fn start(pid: i32, initial: InitialState) -> Self {
        Self {
            pid,
            to_init: VecDeque::from([ToInit::Hello]),
            beat_every: initial.config.lease.duration / BEATS,
            to_elector: VecDeque::from([ToElector::InitialState(Box::new(initial))]),
            inbox: VecDeque::new(),
            is_dead: false,
            frozen: false,
            watches: false,
            watch_from: None,
            request: None,
            machine: None,
            actions: VecDeque::new(),
            guard: Guard { armed: Armed::disarmed(), next: 0 },
            beat_due: Instant::BOOT,
        }
    }

    /// Whether its guard would act at H.
    pub const fn guards(&self) -> bool {
        !self.is_dead && !self.frozen && self.machine.is_some()
    }

    /// Whether nothing is under way in it.
    pub fn rests(&self) -> bool {
        let idle = self.request.is_none() && self.actions.is_empty() && self.inbox.is_empty();
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
        self.actions.clear();
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

    fn is_due(&self, boot: Instant) -> bool {
        self.machine.as_deref().and_then(Pool::poll_timeout).is_some_and(|at| at <= boot)
    }

    fn tell(&mut self, message: ToInit, boot: Instant) {
        self.beat_due = boot + self.beat_every;
        self.to_init.push_back(message);
    }
}

/// What an elector does in its container.
impl Container {
    /// The elector, if any code of it runs.
    pub fn runner(&self) -> Option<&ElectorProcess> {
        self.elector.as_ref().filter(|elector| elector.runs() && self.over.is_none())
    }

    /// Whether the guard kills: past H, if there is a process that SIGKILL has not reached.
    pub fn guard_has_work(&self, now: Ns, boot: Instant) -> bool {
        let Some(elector) = self.runner() else { return false };
        boot >= elector.guard.armed.hard() && elector.guard.next <= now && self.tree.is_untouched()
    }

    /// One round of the guard.
    pub fn step_guard(&mut self, around: &mut Around<'_>) {
        if let Some(elector) = &mut self.elector {
            elector.guard.next = around.now + ROUND;
        }
        self.tree.kill(self.who, around.setup.death, around.now, around.judge);
    }

    /// Whether the elector has something to do now.
    pub fn elector_has_work(&self, now: Ns, boot: Instant) -> bool {
        let Some(elector) = self.runner() else { return false };
        !elector.actions.is_empty()
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
        let machine = elector.machine.as_deref().and_then(Pool::poll_timeout).map(|at| setup.clock.real(at));
        let guard = (elector.guard.armed.hard() != Instant::NEVER && self.tree.is_untouched())
            .then(|| setup.clock.real(elector.guard.armed.hard()).max(elector.guard.next));
        [machine, elector.late(), guard]
    }

    /// The elector takes its next step; returns a request whose first byte leaves.
    pub fn step_elector(&mut self, around: &mut Around<'_>) -> Option<(RequestId, Slot, Request)> {
        let who = self.who;
        let (now, boot) = (around.setup.clock.now(around.now), around.boot());
        let elector = self.elector.as_mut()?;
        if let Some(action) = elector.actions.pop_front() {
            elector.act(action, boot);
            return None;
        }
        if let Some(request) = &mut elector.request
            && let Some((slot, unsent)) = request.unsent.take()
        {
            request.late = around.setup.clock.real(boot + around.setup.config.lease.attempt_timeout);
            return Some((request.id, slot, unsent));
        }
        if elector.machine.is_none() {
            if let Some(ToElector::InitialState(initial)) = elector.to_elector.pop_front() {
                if let Some(resume) = &initial.resume {
                    elector.guard.armed.arm(resume.term, resume.confirmed.deadlines.hard);
                }
                elector.machine = Some(Sealed::new(Pool::new(*initial, 7, now)));
                elector.with_machine(|_| {});
            }
            return None;
        }
        if let Some(message) = elector.to_elector.pop_front() {
            elector.guard.armed.told(&message);
            let drained = elector.to_elector.is_empty();
            elector.with_machine(|machine| {
                machine.handle(Input::Told(message), now);
                if drained {
                    machine.handle_timeout(now);
                }
            });
        } else if elector.is_due(boot) {
            elector.with_machine(|machine| machine.handle_timeout(now));
            if elector.is_due(boot) && elector.actions.is_empty() {
                around.judge.fail(Wrong::Spins, format!("the elector of {who} does nothing at its time"));
            }
        } else if let Some(input) = elector.inbox.pop_front() {
            elector.with_machine(|machine| machine.handle(input, now));
        } else if let Some(request) = elector.request.take() {
            let answer = Answer::Unknown { message: "timed out".into(), retry_after: None };
            elector.with_machine(|machine| machine.handle(Input::Answered { id: request.id, answer }, now));
        }
        if elector.beat_due.before(elector.beat_every / 4) <= boot {
            elector.tell(ToInit::Heartbeat, boot);
        }
        None
    }

    /// The answer reaches the elector that waits for it.
    pub fn answered(&mut self, pid: i32, id: RequestId, answer: Answer) {
        let Some(elector) = self.elector.as_mut().filter(|elector| elector.pid == pid && !elector.is_dead) else { return };
        if elector.request.take_if(|request| request.id == id).is_some() {
            elector.inbox.push_back(Input::Answered { id, answer });
        }
    }
}

impl ElectorProcess {
    /// The actions that the machine then requests are queued, reports excepted.
    fn with_machine(&mut self, does: impl FnOnce(&mut Pool)) {
        let (Some(machine), actions) = (&mut self.machine, &mut self.actions) else { return };
        machine.change(|machine| {
            does(machine);
            while let Some(action) = machine.poll_action() {
                if !matches!(action, Action::Report(_)) {
                    actions.push_back(action);
                }
            }
        });
    }

    fn act(&mut self, action: Action, boot: Instant) {
        match action {
            Action::Request { slot, id, request } => {
                self.request = Some(Pending { id, unsent: Some((slot, request)), late: Ns::MAX });
            }
            Action::Watch { resource_version } => (self.watches, self.watch_from) = (true, Some(resource_version)),
            Action::Tell(message) => {
                self.guard.armed.telling(&message);
                self.tell(message, boot);
            }
            Action::Report(_) => {}
        }
    }
}
