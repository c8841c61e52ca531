//! What an elector does in its container.
//!
//! The order of steps is that of `elector/drive.rs`.

use std::rc::Rc;

use tenure::{
    election::{Action, Answer, Elector, Input, Request, Watched},
    link::{Reason, ToElector, ToInit},
    time::Instant,
};

use super::{ElectorProcess, Outstanding};
use crate::{
    clock::{MS, Ns, S},
    container::Container,
    engine::{Child, Engine, Event},
    nemesis::Fault,
};

impl Container {
    pub(super) fn runner(&mut self, pid: i32) -> Option<&mut ElectorProcess> {
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

    /// One turn of the elector's loop, if it is due to wake now.
    pub fn turn_elector(&mut self, pid: i32, e: &mut Engine) {
        let clock = self.clock();
        let Some(elector) = self.runner(pid) else { return };
        match elector.alarm.comes(e.now) {
            Ok(true) if !elector.frozen => {}
            Ok(_) => return,
            Err(later) => return e.at(later, Event::Elector(elector.child)),
        }
        // What a SIGSTOP interrupted.
        self.carry_out_elector(pid, e);
        let latency = e.latency(self.node.wake);
        let (who, illness) = (self.who, self.illness(e));
        let Some(elector) = self.runner(pid).filter(|elector| !elector.frozen) else { return };
        let now = clock.now(e.now);
        if elector.machine.is_none() {
            let Some(ToElector::InitialState(initial)) = elector.to_elector.pop_front() else { return };
            if let Some(resume) = &initial.resume {
                elector.guard.armed.arm(resume.term, resume.confirmed.deadlines.hard);
                elector.set_guard(clock, latency, e);
            }
            elector.machine = Some(Elector::new(*initial, e.rng.u64(..), now));
        }
        let Some(machine) = &mut elector.machine else { return };
        while let Some(message) = elector.to_elector.pop_front() {
            elector.guard.armed.told(&message);
            if let ToElector::Probe { kind, began } = message {
                elector.to_init.push_back(ToInit::Probed { kind, began, failure: illness.clone() });
            }
            machine.handle(Input::Told(message), now);
        }
        machine.handle_timeout(now);
        while let Some(input) = elector.inbox.pop_front() {
            if let Input::Answered { answer: Answer::Object(object), .. } | Input::Watched(Watched::Changed(object)) = &input {
                e.judge.sees(who, object);
            }
            machine.handle(input, now);
        }
        self.carry_out_elector(pid, e);
        let latency = e.latency(self.node.wake);
        let Some(elector) = self.runner(pid).filter(|elector| !elector.frozen) else { return };
        if elector.beat_due <= now.boot {
            elector.beat_due = now.boot + elector.beat_every;
            elector.to_init.push_back(ToInit::Heartbeat);
            self.wake(e);
        }
        if self.runner(pid).is_some_and(|elector| !elector.to_init.is_empty()) {
            self.wake(e);
        }
        let Some(elector) = self.runner(pid) else { return };
        let next = elector.machine.as_ref().and_then(Elector::poll_timeout).unwrap_or(Instant::NEVER).min(elector.beat_due);
        let span = clock.real(next).saturating_sub(e.now).saturating_add(latency);
        elector.wake(span, e);
    }

    fn carry_out_elector(&mut self, pid: i32, e: &mut Engine) {
        loop {
            let Some(elector) = self.runner(pid).filter(|elector| !elector.frozen) else { return };
            let action = elector.cut_off.take().or_else(|| elector.machine.as_mut().and_then(Elector::poll_action));
            let Some(action) = action else { return };
            if let Some((left, span)) = elector.freeze_before.take() {
                elector.freeze(left - 1, span, e);
                if elector.frozen {
                    elector.cut_off = Some(action);
                    return self.expose(e);
                }
            }
            self.act_elector(pid, action, e);
        }
    }

    fn act_elector(&mut self, pid: i32, action: Action, e: &mut Engine) {
        let (who, child, clock) = (self.who, Child { who: self.who, pid }, self.clock());
        let (identity, plan) = (Rc::clone(&self.identity), Rc::clone(&self.node.plan));
        let delay = e.latency(self.node.wake);
        let duration = u64::try_from(self.node.config.lease.duration.as_nanos()).unwrap_or(Ns::MAX);
        let Some(elector) = self.runner(pid) else { return };
        match action {
            Action::Request { id, request, .. } => {
                e.note(who, || format!("asks {}", describe(&request)));
                elector.outstanding = Some(Outstanding { id, unsent: Some(request), held_up: false, late: false });
                e.after(delay, Event::Send(child, id));
                self.step(e);
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
                if let ToInit::Lead { term, info, .. } = &message {
                    e.judge.told(who, *term, info);
                } else if let ToInit::Extend { term, confirmed, .. } = &message {
                    e.judge.extended(who, *term, confirmed.deadlines.soft, clock.boot(e.now));
                } else if let ToInit::StepDown { term, reason, .. } = &message {
                    // A renewal that the network repeats may be answered with a conflict although it is stored: what it shows then
                    // might be a copy's, and that must not run on.
                    let doubtful = *reason == Reason::LostToCopy && plan.faults.contains(&Fault::Twice);
                    if reason.is_loss() && *reason != Reason::Expired && !doubtful {
                        e.judge.lost(who, *term);
                    }
                    if reason.is_loss() {
                        e.judge.loses(who);
                    }
                    if *reason == Reason::StepDown {
                        e.judge.steps_down(who, &identity);
                    }
                } else if matches!(message, ToInit::Releasing { .. }) {
                    // What a copy gives back may be the other's.
                    e.judge.forgets(who, e.now + duration * 2 + S);
                } else if matches!(message, ToInit::Ended { .. }) {
                    e.judge.ended(who, e.now);
                }
                let is_step = !matches!(message, ToInit::Hello | ToInit::Saw { .. } | ToInit::Heartbeat | ToInit::Done);
                let stops = if let ToInit::StepDown { term, .. } = &message { Some(*term) } else { None };
                let is_published = self.node.config.service.endpoint_slice.is_some();
                let withdrawn = stops.filter(|_| is_published && e.chance(0.5)).map(|term| ToInit::Withdrawn { term });
                let Some(elector) = self.runner(pid) else { return };
                elector.to_init.push_back(message);
                elector.to_init.extend(withdrawn);
                self.wake(e);
                if is_step {
                    self.step(e);
                }
            }
            Action::Report(event) => e.note(who, || format!("{event:?}")),
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

fn describe(request: &Request) -> String {
    match request {
        Request::Get => "GET".into(),
        Request::List => "LIST".into(),
        Request::Create(object) => format!("POST {}", object["spec"]),
        Request::Replace(object) => format!("PUT on {} {}", object["metadata"]["resourceVersion"], object["spec"]),
        Request::Delete { resource_version, .. } => format!("DELETE of {resource_version}"),
    }
}
