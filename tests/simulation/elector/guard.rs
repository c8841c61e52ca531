//! The second guard: a thread of the elector that kills at H, as in `elector/guard.rs`.

use tenure::{
    election::guard_deadline::GuardDeadline,
    time::{EXACT, Instant},
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
    pub(super) armed: GuardDeadline,
    wake: Ns,
}

impl Guard {
    pub(super) const fn new() -> Self {
        Self::armed(GuardDeadline::disarmed())
    }

    pub(super) const fn armed(armed: GuardDeadline) -> Self {
        Self { armed, wake: Ns::MAX }
    }
}

impl ElectorProcess {
    /// The guard's own timer, independent of the loop.
    pub fn set_guard(&mut self, clock: Clock, latency: Ns, e: &mut Engine) {
        let Guard { armed, wake } = self.guard;
        let hard = armed.hard();
        let at = clock.wakes(hard, EXACT, e.now).saturating_add(latency);
        if hard != Instant::NEVER && (at < wake || wake < e.now) {
            self.guard.wake = at;
            e.at(at, Event::Guard(self.child));
        }
    }
}

impl Container {
    /// The guard checks its clock.
    pub fn guard(&mut self, pid: i32, e: &mut Engine) {
        let clock = self.clock();
        let Some(elector) = self.runner(pid).filter(|elector| !elector.frozen && elector.guard.wake == e.now) else { return };
        elector.guard.wake = Ns::MAX;
        let (hard, child) = (elector.guard.armed.hard(), elector.child);
        if !GuardDeadline::is_time(hard, clock.boot(e.now)) {
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
