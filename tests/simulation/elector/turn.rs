//! The elector's actions in its container.

use std::convert::Infallible;

use tenure::{
    election::{
        self, Input, RequestId,
        turn::{Arrived, Process, Turn},
        writes::{STEP_DOWN_TO, Sent},
    },
    link::{Reason, ToElector, ToInit},
    request::{Answer, Watched},
    slot::Slot,
    time::Now,
};
use tenure_world::reading::NOBODY;

use super::{ElectorProcess, Outstanding};
use crate::{
    clock::{MS, Ns, S, nanos},
    container::{Container, Moment},
    engine::{Child, Engine, Event},
    nemesis::Fault,
    register::Request,
    traffic::Traffic,
};

/// So many messages wait in the link before it is clogged.
const ROOM: usize = 16;

impl Container {
    pub fn runner(&mut self, pid: i32) -> Option<&mut ElectorProcess> {
        self.elector.as_mut().filter(|elector| elector.child.pid == pid && !elector.is_dead)
    }

    /// The process is up: it says hello.
    pub fn elector_up(&mut self, pid: i32, e: &mut Engine) {
        let Some(elector) = self.runner(pid) else { return };
        elector.is_up = true;
        elector.to_init.push_back(ToInit::Hello);
        elector.wake(0, e);
        self.wake(e);
    }

    /// Takes one turn of the elector's loop, if it is due to wake now.
    pub fn turn_elector(&mut self, pid: i32, e: &mut Engine) {
        let Some(elector) = self.runner(pid) else { return };
        match elector.alarm.comes(e.now) {
            Ok(true) if !elector.frozen => {}
            Ok(_) => return,
            Err(later) => return e.at(later, Event::Elector(elector.child)),
        }
        // An init that is stopped reads nothing, and what was seen of the Lease goes on to the next elector. A turn after a long
        // silence may send many messages at once.
        let is_stopped = self.is_stopped();
        let Some(elector) = self.runner(pid) else { return };
        let waiting = elector.to_init.len();
        elector.crowded = (waiting > 2 * ROOM && !is_stopped).then(|| elector.crowded.unwrap_or(e.now));
        if elector.crowded.is_some_and(|since| e.now > since + S) {
            e.judge.fail(format!("{}: {waiting} messages wait for init", self.who));
        }
        let Some(turn) = self.go_on(pid, e) else { return };
        let (clock, latency) = (self.clock(), e.latency(self.node.wake));
        if self.runner(pid).is_some_and(|elector| !elector.to_init.is_empty()) {
            self.wake(e);
        }
        let who = self.who;
        e.judge.lawful(|law| law.rests(who));
        let Some(elector) = self.runner(pid) else { return };
        let is_wrong = elector.overdue.stays(Some(turn.due()), clock.boot(e.now));
        let wrong = || format!("{who}: the elector ends turn after turn, and does not act on {:?}, which has passed", turn.due());
        e.judge.judges("the elector acts on what is due", is_wrong, wrong);
        let span = clock.wakes(turn.due(), turn.whole(), e.now).saturating_sub(e.now).saturating_add(latency);
        elector.turn = Some(turn);
        elector.wake(span, e);
    }

    /// The elector runs beside init and takes a turn, just before it is killed. It may have been continued just before that.
    pub fn last_turn(&mut self, e: &mut Engine) {
        let Some(elector) = self.elector.as_mut().filter(|elector| !elector.is_dead && elector.is_up) else { return };
        let (pid, is_stopped) = (elector.child.pid, std::mem::take(&mut elector.frozen));
        e.note(self.who, || format!("the elector says its last words, just continued: {is_stopped}"));
        let turn = self.go_on(pid, e);
        let who = self.who;
        if let (Some(elector), Some(turn)) = (self.runner(pid), turn) {
            e.judge.lawful(|law| law.rests(who));
            elector.turn = Some(turn);
        }
    }

    /// A turn to its end, or until something stops the elector in the middle of it. Before init has told it all, there is none.
    fn go_on(&mut self, pid: i32, e: &mut Engine) -> Option<Turn> {
        let (clock, latency) = (self.clock(), e.latency(self.node.wake));
        let illness = self.illness(e);
        let elector = self.runner(pid)?;
        let child = elector.child;
        let mut turn = elector.turn.take().or_else(|| {
            let Some(ToElector::InitialState(initial)) = elector.to_elector.pop_front() else { return None };
            if let Some(resume) = &initial.resume {
                elector.guard.armed.arm(resume.term, resume.confirmed.deadlines.hard);
                elector.soft = resume.confirmed.deadlines.soft;
                elector.set_guard(clock, latency, e);
            }
            elector.traffic = Traffic::start(&initial);
            e.judge.is_ready(child.who, false, e.now);
            e.judge.is_ready(child.who, initial.config.workload.readiness.handler().is_none(), e.now);
            Some(Turn::new(*initial, e.rng.u64(..), clock.now(e.now), Turn::BEATS))
        })?;
        loop {
            let elector = self.runner(pid)?;
            if let Some((_, span)) = elector.freeze_before.take_if(|(moment, _)| moment.comes_before_step(turn.is_drained())) {
                elector.freeze(Moment::Now, span, e);
                elector.turn = Some(turn);
                self.expose(e);
                return None;
            }
            let Ok(goes_on) = turn.step(&mut Running { container: &mut *self, pid, illness: &illness, e });
            if !goes_on {
                return Some(turn);
            }
        }
    }

    /// The elector's watch delivers something.
    pub fn watched(&mut self, pid: i32, number: u64, watched: Watched, e: &mut Engine) {
        let latency = e.latency(self.node.wake);
        if let Some(elector) = self.runner(pid).filter(|elector| elector.watch == number) {
            elector.arrives(Input::Watched(watched), latency, e);
        }
    }
}

/// The elector process around its turn.
struct Running<'a> {
    container: &'a mut Container,
    pid: i32,
    /// The workload's illness, if it has one.
    illness: &'a Option<String>,
    e: &'a mut Engine,
}

impl Running<'_> {
    fn elector(&mut self) -> &mut ElectorProcess {
        self.container.runner(self.pid).expect("it runs")
    }

    fn delay(&mut self) -> Ns {
        self.e.latency(self.container.node.wake)
    }

    fn child(&self) -> Child {
        Child { who: self.container.who, pid: self.pid }
    }

    fn judge(&mut self, message: &ToInit) {
        let (who, clock) = (self.container.who, self.container.clock());
        let Self { container, e, .. } = self;
        e.judge.lawful(|law| law.says(who, message));
        match message {
            ToInit::Lead { term, info, confirmed, .. } => {
                e.judge.told(who, *term, info);
                self.elector().soft = confirmed.deadlines.soft;
            }
            ToInit::Extend { term, confirmed, .. } => {
                e.judge.extended(who, *term, confirmed.deadlines.soft, clock.boot(e.now));
                self.elector().soft = confirmed.deadlines.soft;
            }
            ToInit::StepDown { term, reason, .. } => {
                // A renewal that the network repeats may be answered with a conflict although it is stored: what it shows then
                // might be a copy's, and that must not run on.
                let doubtful = *reason == Reason::LostToCopy && container.node.plan.faults.contains(&Fault::Twice);
                if reason.is_loss() && *reason != Reason::Expired && !doubtful {
                    e.judge.lost(who, *term);
                }
                e.judge.ends(who, *reason);
                if *reason == Reason::StepDown {
                    e.judge.steps_down(who, &container.identity);
                }
                // What init had proved before S has not expired.
                if *reason == Reason::Expired {
                    let elector = self.elector();
                    let (soft, proof) = (clock.real(elector.soft), elector.proof.filter(|(proved, _)| proved == term));
                    let wrong = || format!("{who} lets term {} expire at {soft}, whose end init {proof:?}", term.0);
                    self.e.judge.judges("a proved term does not expire", proof.is_some_and(|(_, at)| at < soft), wrong);
                }
            }
            // What a copy gives back may be the other's.
            ToInit::Releasing { .. } => {
                let duration = nanos(container.node.config.lease.duration);
                e.judge.forgets(who, e.now + duration * 2 + S);
            }
            ToInit::Ended { .. } => e.judge.ended(who, e.now),
            ToInit::Hello
            | ToInit::Withdrawn { .. }
            | ToInit::Observed { .. }
            | ToInit::Probed { .. }
            | ToInit::Heartbeat
            | ToInit::Done
            | ToInit::GaveUp { .. }
            | ToInit::Failed { .. } => {}
        }
    }

    /// Its slice is to change.
    fn publishes(&mut self) {
        let (child, span) = (self.child(), self.delay());
        self.e.after(span, Event::Publishes(child));
    }
}

impl Process for Running<'_> {
    type End = Infallible;

    fn now(&self) -> Now {
        self.container.clock().now(self.e.now)
    }

    fn receive(&mut self, _: Now) -> Result<Option<ToElector>, Infallible> {
        let who = self.container.who;
        self.e.judge.lawful(|law| law.turns(who));
        let failure = self.illness.clone();
        let elector = self.elector();
        let Some(message) = elector.to_elector.pop_front() else { return Ok(None) };
        elector.guard.armed.told(&message);
        if elector.traffic.as_mut().is_some_and(|traffic| traffic.told(&message)) {
            self.publishes();
        }
        let elector = self.elector();
        if let ToElector::Probe { kind, began, .. } = message {
            elector.inbox.push_back(Arrived::ForInit(ToInit::Probed { kind, began, failure }));
        }
        let (who, now) = (self.container.who, self.e.now);
        if let ToElector::Health { unready, .. } = &message {
            self.e.judge.is_ready(who, unready.is_none(), now);
        }
        Ok(Some(message))
    }

    fn arrived(&mut self) -> Option<Arrived> {
        let arrived = self.elector().inbox.pop_front()?;
        let (who, at) = (self.container.who, self.elector().answered_at);
        self.e.judge.lawful(|law| match &arrived {
            Arrived::Input(input) => law.takes_in(who, input, at),
            Arrived::ForInit(_) => law.hears(who),
        });
        let seen = match &arrived {
            Arrived::Input(Input::Answered { answer: Answer::Object(object), .. } | Input::Watched(Watched::Changed(object))) => {
                std::slice::from_ref(object)
            }
            Arrived::Input(Input::Answered { answer: Answer::Listed { objects, .. }, .. }) => objects,
            Arrived::Input(_) | Arrived::ForInit(_) => &[],
        };
        seen.iter().for_each(|object| self.e.judge.sees(who, object));
        Some(arrived)
    }

    fn request(&mut self, slot: Slot, id: RequestId, request: election::Request) {
        let request = Request::from(request);
        let (child, delay) = (self.child(), self.delay());
        self.e.note(child.who, || format!("asks for {slot:?}: {}", describe(&request)));
        let me = &*self.container.identity;
        // Who takes its request back writes into the Lease of another, too.
        if let Request::Write(Sent::Replace(object)) = &request
            && object["metadata"]["annotations"][STEP_DOWN_TO] == me
            && ![me, "", NOBODY].contains(&object["spec"]["holderIdentity"].as_str().unwrap_or_default())
        {
            self.e.judge.asks_for_handover(child.who, self.e.now);
        }
        let number = self.e.judge.law.as_mut().and_then(|law| law.asks(child.who, slot, &request, false));
        self.elector().outstanding = Some(Outstanding { slot, id, unsent: Some(request), number, held_up: false, late: false });
        self.e.after(delay, Event::Send(child, id));
        self.container.step(self.e);
    }

    fn watch(&mut self, resource_version: Option<String>) {
        let (child, delay) = (self.child(), self.delay());
        let span = delay + self.e.spread(MS, 50 * MS);
        let elector = self.elector();
        elector.watch += 1;
        let number = elector.watch;
        self.e.after(span, Event::WatchBegins(child, number, resource_version));
    }

    fn telling(&mut self, message: &mut ToInit) {
        let (clock, delay) = (self.container.clock(), self.delay());
        let Some(elector) = self.container.runner(self.pid) else { return };
        elector.guard.armed.telling(message);
        if elector.traffic.as_mut().is_some_and(|traffic| traffic.telling(message)) {
            self.publishes();
        }
        let Some(elector) = self.container.runner(self.pid) else { return };
        if let ToInit::Releasing { term, .. } = message {
            elector.releasing = Some(*term);
        }
        elector.set_guard(clock, delay, self.e);
    }

    fn send(&mut self, message: &ToInit) -> Result<(), Infallible> {
        self.judge(message);
        let is_step = !matches!(
            message,
            ToInit::Hello
                | ToInit::Observed { .. }
                | ToInit::Probed { .. }
                | ToInit::Withdrawn { .. }
                | ToInit::Heartbeat
                | ToInit::Done
        );
        self.elector().to_init.push_back(message.clone());
        self.container.wake(self.e);
        if is_step {
            self.container.step(self.e);
        }
        Ok(())
    }

    fn is_clogged(&self) -> bool {
        self.container.elector.as_ref().is_some_and(|elector| elector.to_init.len() >= ROOM)
    }

    fn finish(&mut self) {
        self.elector().inbox.push_back(Arrived::ForInit(ToInit::Done));
        let span = self.delay();
        let Some(elector) = self.container.runner(self.pid) else { return };
        elector.wake(span, self.e);
    }

    fn report(&mut self, event: election::Event, _: Now) {
        self.e.note(self.container.who, || format!("{event:?}"));
    }
}

fn describe(request: &Request) -> String {
    match request {
        Request::Get => "GET".into(),
        Request::List => "LIST".into(),
        Request::Write(Sent::Create(object)) => format!("POST {}", object["spec"]),
        Request::Write(Sent::Replace(object)) => format!("PUT on {} {}", object["metadata"]["resourceVersion"], object["spec"]),
        Request::Write(Sent::Delete { resource_version, .. }) => format!("DELETE of {resource_version}"),
    }
}
