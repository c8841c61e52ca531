//! One elector process: the shipping machine, as the elector's loop drives it, and the second guard.
//!
//! The order of things is that of `elector/drive.rs`; the guard is a thread of its own, as in `elector/guard.rs`.

use std::{collections::VecDeque, rc::Rc, time::Duration};

use tenure::{
    election::{Action, Answer, Elector, Input, Request, RequestId, Watched},
    link::{Confirmed, Deadlines, Reason, Term, ToElector, ToInit, VERSION, Welcome},
    time::Instant,
};

use crate::{
    alarm::Alarm,
    clock::{Clock, MS, Ns},
    container::Container,
    engine::{Child, Engine, Event},
    evidence::Evidence,
    nemesis::Window,
    tree::{GUARD_ROUND, Killer},
};

/// The serial of a message that no machine has sent.
pub const LIE: u64 = u64::MAX;

const BEATS: u32 = 4;

/// See the module.
pub struct ElectorProcess {
    pub child: Child,
    pub to_init: VecDeque<ToInit>,
    pub to_elector: VecDeque<ToElector>,
    /// No code of it runs any more; its end of the link is closed.
    pub is_dead: bool,
    /// And it can be reaped.
    pub is_zombie: bool,
    pub outstanding: Option<Outstanding>,
    /// The number of the watch that is listened to.
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
    /// The last that it has told init of its term.
    confirmed: Option<(Term, Confirmed)>,
    guard: Guard,
    beat_due: Instant,
    beat_every: Duration,
}

/// The request that is under way.
pub struct Outstanding {
    pub id: RequestId,
    /// Until its first byte leaves.
    pub unsent: Option<Request>,
    held_up: bool,
    late: bool,
}

/// When the guard kills.
#[derive(Clone, Copy, Debug)]
struct Guard {
    term: Option<Term>,
    hard: Instant,
    wake: Ns,
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
            guard: Guard { term: None, hard: Instant::NEVER, wake: Ns::MAX },
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

    /// Hands in what came from outside.
    pub fn arrives(&mut self, input: Input, span: Ns, e: &mut Engine) {
        self.inbox.push_back(input);
        self.wake(span, e);
    }

    /// SIGSTOP, for so long; before the action of this number. Until when it stands still.
    pub fn freeze(&mut self, actions: u32, span: Ns, e: &mut Engine) -> Ns {
        if self.is_dead {
            return Ns::MAX;
        }
        if self.frozen {
            return self.frozen_until;
        }
        if actions > 0 {
            self.freeze_before = Some((actions, span));
            return e.now;
        }
        self.freeze_before = None;
        self.frozen = true;
        self.frozen_until = e.now.saturating_add(span);
        e.judge.trouble(self.child.who.replica, self.frozen_until);
        e.note(self.child.who, || format!("the elector is stopped for {} ms", span / MS));
        e.at(self.frozen_until, Event::ContinueElector(self.child));
        self.frozen_until
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

    /// The guard's own timer, which needs no turn of the loop.
    fn set_guard(&mut self, clock: Clock, latency: Ns, e: &mut Engine) {
        let Guard { hard, wake, .. } = self.guard;
        let at = clock.real(hard).max(e.now).saturating_add(latency);
        if hard != Instant::NEVER && (at < wake || wake < e.now) {
            self.guard.wake = at;
            e.at(at, Event::Guard(self.child));
        }
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

    /// Its time is over, and no answer is there.
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

    /// Says to init what no machine says; true if it leads, so that it is a lie.
    pub fn lies(&mut self, extends: bool, now: Instant) -> bool {
        let Some((term, confirmed)) = self.confirmed.clone().filter(|_| !self.is_dead) else { return false };
        // So far that it is no truth either by the time that it is read.
        let far = |at: Instant| at.max(now) + Duration::from_secs(100_000);
        let Deadlines { soft, hard, end } = confirmed.deadlines;
        let deadlines = Deadlines { soft: far(soft), hard: far(hard), end: far(end) };
        self.to_init.push_back(if extends {
            ToInit::Extend { term, serial: LIE, confirmed: Confirmed { deadlines, ..confirmed } }
        } else {
            ToInit::Releasing { term, serial: LIE }
        });
        true
    }

    fn telling(&mut self, message: &ToInit) {
        self.guard.telling(message);
        match message {
            ToInit::Lead { term, facts, confirmed, .. } => {
                self.evidence.begins(&facts.uid);
                self.confirmed = Some((*term, confirmed.clone()));
            }
            ToInit::Extend { term, confirmed, .. } => self.confirmed = Some((*term, confirmed.clone())),
            ToInit::Ended { .. } => {
                self.evidence.ends();
                self.confirmed = None;
            }
            ToInit::Hello { .. }
            | ToInit::Shorten { .. }
            | ToInit::StepDown { .. }
            | ToInit::Releasing { .. }
            | ToInit::Beat
            | ToInit::Done
            | ToInit::Failed { .. } => {}
        }
    }
}

impl Guard {
    fn telling(&mut self, message: &ToInit) {
        match message {
            ToInit::Lead { term, confirmed, .. } | ToInit::Extend { term, confirmed, .. } => {
                self.arm(*term, confirmed.deadlines.hard);
            }
            ToInit::Shorten { term, deadlines, .. } => self.arm(*term, deadlines.hard),
            ToInit::Ended { .. } => self.disarm(),
            ToInit::Hello { .. }
            | ToInit::StepDown { .. }
            | ToInit::Releasing { .. }
            | ToInit::Beat
            | ToInit::Done
            | ToInit::Failed { .. } => {}
        }
    }

    fn told(&mut self, message: &ToElector) {
        if let ToElector::Stopped { term, .. } = message
            && self.term == Some(*term)
        {
            self.disarm();
        }
    }

    fn arm(&mut self, term: Term, hard: Instant) {
        (self.term, self.hard) = (Some(term), hard);
    }

    fn disarm(&mut self) {
        (self.term, self.hard) = (None, Instant::NEVER);
    }
}

/// What an elector does in its container.
impl Container {
    fn runner(&mut self, pid: i32) -> Option<&mut ElectorProcess> {
        self.elector.as_mut().filter(|elector| elector.child.pid == pid && !elector.is_dead)
    }

    /// The process is up: it says hello.
    pub fn elector_up(&mut self, pid: i32, e: &mut Engine) {
        let Some(elector) = self.runner(pid) else { return };
        elector.is_up = true;
        elector.to_init.push_back(ToInit::Hello { version: VERSION });
        elector.wake(0, e);
        self.wake(e);
    }

    /// One turn of the elector's loop, if it was to be woken now.
    pub fn turn_elector(&mut self, pid: i32, e: &mut Engine) {
        let clock = self.clock();
        let Some(elector) = self.runner(pid) else { return };
        match elector.alarm.comes(e.now) {
            Ok(true) if !elector.frozen => {}
            Ok(_) => return,
            Err(later) => return e.at(later, Event::Elector(elector.child)),
        }
        // What a SIGSTOP has cut off.
        self.carry_out_elector(pid, e);
        let latency = e.latency(self.node.wake);
        let (who, identity) = (self.who, Rc::clone(&self.identity));
        let Some(elector) = self.runner(pid).filter(|elector| !elector.frozen) else { return };
        let now = clock.now(e.now);
        if elector.machine.is_none() {
            let Some(ToElector::Welcome(welcome)) = elector.to_elector.pop_front() else { return };
            if let Some(resume) = &welcome.resume {
                elector.guard.arm(resume.term, resume.confirmed.deadlines.hard);
                elector.evidence.begins(&resume.facts.uid);
                elector.confirmed = Some((resume.term, resume.confirmed.clone()));
                elector.set_guard(clock, latency, e);
            }
            elector.machine = Some(Elector::new(*welcome, e.rng.u64(..), now));
        }
        let Some(machine) = &mut elector.machine else { return };
        while let Some(message) = elector.to_elector.pop_front() {
            elector.guard.told(&message);
            machine.handle(Input::Told(message), now);
        }
        machine.handle_timeout(now);
        while let Some(input) = elector.inbox.pop_front() {
            let lost = elector.evidence.shows_a_loss(&input, &identity);
            machine.handle(input, now);
            if lost && machine.view().leading.is_some_and(|led| !led.ending) {
                e.judge.fail(format!("{who} goes on with its term although it has seen that the Lease is lost"));
            }
        }
        self.carry_out_elector(pid, e);
        let latency = e.latency(self.node.wake);
        let Some(elector) = self.runner(pid).filter(|elector| !elector.frozen) else { return };
        if elector.beat_due <= now.boot {
            elector.beat_due = now.boot + elector.beat_every;
            elector.to_init.push_back(ToInit::Beat);
            self.wake(e);
        }
        let Some(elector) = self.runner(pid) else { return };
        let next = elector.machine.as_ref().and_then(Elector::poll_timeout).unwrap_or(Instant::NEVER).min(elector.beat_due);
        let span = clock.real(next).saturating_sub(e.now).saturating_add(latency);
        elector.wake(span, e);
    }

    fn carry_out_elector(&mut self, pid: i32, e: &mut Engine) {
        loop {
            let stands_alone = self.is_frozen();
            let Some(elector) = self.runner(pid).filter(|elector| !elector.frozen) else { return };
            let action = elector.cut_off.take().or_else(|| elector.machine.as_mut().and_then(Elector::poll_action));
            let Some(action) = action else { return };
            // Not while init stands still as well.
            if let Some((left, span)) = elector.freeze_before.take().filter(|_| !stands_alone) {
                elector.freeze(left - 1, span, e);
                if elector.frozen {
                    elector.cut_off = Some(action);
                    return;
                }
            }
            self.act_elector(pid, action, e);
        }
    }

    fn act_elector(&mut self, pid: i32, action: Action, e: &mut Engine) {
        let (who, child, clock) = (self.who, Child { who: self.who, pid }, self.clock());
        let identity = Rc::clone(&self.identity);
        let delay = e.latency(self.node.wake);
        let Some(elector) = self.runner(pid) else { return };
        match action {
            Action::Request { id, request } => {
                let window = Window::of(&request);
                if request == Request::Get {
                    elector.evidence.reads(id);
                }
                e.note(who, || format!("asks {}", describe(&request)));
                elector.outstanding = Some(Outstanding { id, unsent: Some(request), held_up: false, late: false });
                e.after(delay, Event::Send(child, id));
                self.window(window, e);
            }
            Action::Watch { resource_version } => {
                elector.watch += 1;
                let number = elector.watch;
                let span = delay + e.spread(MS, 50 * MS);
                e.after(span, Event::WatchBegins(child, number, resource_version));
            }
            Action::Tell(message) => {
                elector.telling(&message);
                elector.set_guard(clock, delay, e);
                let window = match &message {
                    ToInit::Lead { term, facts, .. } => {
                        e.judge.told(who, *term, facts);
                        Some(Window::Lead)
                    }
                    ToInit::Extend { term, confirmed, .. } => {
                        e.judge.extended(who, *term, confirmed.deadlines.soft);
                        Some(Window::Extend)
                    }
                    ToInit::Shorten { term, .. } => {
                        e.judge.shortened(who, *term);
                        Some(Window::Shorten)
                    }
                    ToInit::StepDown { term, reason, .. } => {
                        if reason.is_loss() && *reason != Reason::Expired {
                            e.judge.lost(who, *term);
                        }
                        if *reason == Reason::StepDown {
                            e.judge.steps_down(who, &identity);
                        }
                        Some(Window::StepDown)
                    }
                    ToInit::Releasing { .. } => Some(Window::Releasing),
                    ToInit::Ended { .. } => Some(Window::Ended),
                    ToInit::Hello { .. } | ToInit::Beat | ToInit::Done | ToInit::Failed { .. } => None,
                };
                elector.to_init.push_back(message);
                self.wake(e);
                if let Some(window) = window {
                    self.window(window, e);
                }
            }
            Action::Guard => {
                e.note(who, || "the elector stands in at H".into());
                elector.guard.hard = Instant::BOOT;
                elector.set_guard(clock, delay, e);
            }
            Action::Disarm => elector.guard.disarm(),
            Action::Report(event) => e.note(who, || format!("{event:?}")),
        }
    }

    /// The guard looks at its clock.
    pub fn guard(&mut self, pid: i32, e: &mut Engine) {
        let clock = self.clock();
        let Some(elector) = self.runner(pid).filter(|elector| !elector.frozen && elector.guard.wake == e.now) else { return };
        elector.guard.wake = Ns::MAX;
        let (hard, child) = (elector.guard.hard, elector.child);
        if clock.boot(e.now) < hard {
            let latency = e.latency(self.node.wake);
            if let Some(elector) = self.runner(pid) {
                elector.set_guard(clock, latency, e);
            }
            return;
        }
        e.note(self.who, || "the guard kills".into());
        self.tree.kill(Killer::Guard, &self.node.habits, e);
        if let Some(elector) = self.runner(pid) {
            elector.guard.wake = e.now + GUARD_ROUND;
            e.at(elector.guard.wake, Event::Guard(child));
        }
    }

    /// A watch of the elector brings something.
    pub fn watched(&mut self, pid: i32, number: u64, watched: Watched, e: &mut Engine) {
        let latency = e.latency(self.node.wake);
        if let Some(elector) = self.runner(pid).filter(|elector| elector.watch == number) {
            elector.arrives(Input::Watched(watched), latency, e);
        }
    }
}

fn describe(request: &Request) -> String {
    match request {
        Request::Get => "GET".into(),
        Request::Create(object) => format!("POST {}", object["spec"]),
        Request::Replace(object) => format!("PUT on {} {}", object["metadata"]["resourceVersion"], object["spec"]),
        Request::Delete { resource_version, .. } => format!("DELETE of {resource_version}"),
    }
}
