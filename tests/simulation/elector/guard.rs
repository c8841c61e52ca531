//! The second guard: a thread of the elector that kills at H, as in `elector/guard.rs`.

use tenure::{
    link::{Term, ToElector, ToInit},
    time::Instant,
};

use super::ElectorProcess;
use crate::{
    clock::{Clock, Ns},
    container::Container,
    engine::{Engine, Event},
    tree::{GUARD_ROUND, Killer},
};

/// When the guard kills.
#[derive(Clone, Copy, Debug)]
pub(super) struct Guard {
    term: Option<Term>,
    pub(super) hard: Instant,
    wake: Ns,
}

impl Guard {
    pub(super) const fn new() -> Self {
        Self { term: None, hard: Instant::NEVER, wake: Ns::MAX }
    }

    pub(super) fn telling(&mut self, message: &ToInit) {
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

    pub(super) fn told(&mut self, message: &ToElector) {
        if let ToElector::Stopped { term, .. } = message
            && self.term == Some(*term)
        {
            self.disarm();
        }
    }

    pub(super) fn arm(&mut self, term: Term, hard: Instant) {
        (self.term, self.hard) = (Some(term), hard);
    }

    pub(super) fn disarm(&mut self) {
        (self.term, self.hard) = (None, Instant::NEVER);
    }
}

impl ElectorProcess {
    /// The guard's own timer, which needs no turn of the loop.
    pub(super) fn set_guard(&mut self, clock: Clock, latency: Ns, e: &mut Engine) {
        let Guard { hard, wake, .. } = self.guard;
        let at = clock.real(hard).max(e.now).saturating_add(latency);
        if hard != Instant::NEVER && (at < wake || wake < e.now) {
            self.guard.wake = at;
            e.at(at, Event::Guard(self.child));
        }
    }
}

impl Container {
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
}
