//! Stops of init, of both processes, or of the whole node.

use tenure::{supervision::Turn, time::Instant};
use tenure_world::Due;

use super::Container;
use crate::{
    clock::{MS, Ns, nanos},
    elector::ElectorProcess,
    engine::{Child, Engine, Event},
    judge::Uncovered,
};

/// When a SIGSTOP to a process takes effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// Now.
    Now,
    /// Before the step of this number, so that it stops in the middle of its work.
    Step(u32),
    /// Before init forks the workload, or the child that continues it.
    Spawn,
    /// Before it acts on deadlines, once the link is drained.
    Drained,
}

impl Moment {
    /// Counts a step, before which the link was just drained or not; returns whether it comes before that step.
    pub const fn comes_before_step(&mut self, is_drained: bool) -> bool {
        match self {
            Self::Now => true,
            Self::Spawn => false,
            Self::Drained => is_drained,
            Self::Step(left) => {
                *left -= 1;
                *left == 0
            }
        }
    }
}

impl Container {
    pub const fn sleeps(&self, now: Ns) -> bool {
        now < self.suspended_until
    }

    pub const fn is_stopped(&self) -> bool {
        self.frozen
    }

    /// Returns whether the elector stands in for an init that stops now. If not, only the kernel's fuse does.
    pub fn is_guarded(&self) -> bool {
        self.elector.as_ref().is_some_and(ElectorProcess::guards)
    }

    /// SIGSTOP to init, for this long.
    pub fn freeze(&mut self, moment: Moment, span: Ns, e: &mut Engine) {
        if self.frozen || self.over {
            return;
        }
        if moment != Moment::Now {
            self.freeze_before = Some((moment, span));
            return;
        }
        self.freeze_before = None;
        self.frozen = true;
        self.frozen_until = e.now.saturating_add(span);
        e.judge.trouble(self.who.replica, self.frozen_until);
        e.note(self.who, || format!("init is stopped for {} ms", span / MS));
        e.at(self.frozen_until, Event::ContinueInit(self.who));
        self.expose(e);
    }

    /// How long a stop lasts that ends just after S; in the meantime the workload may end. None if there is no S to come.
    pub fn past_soft(&self, e: &mut Engine) -> Option<Ns> {
        let soft = self.elector.as_ref().map(|elector| elector.soft).filter(|soft| *soft != Instant::NEVER)?;
        let left = self.clock().real(soft).checked_sub(e.now).filter(|left| *left > 0)?;
        if let Some(pid) = self.main.filter(|_| e.rng.bool()) {
            let span = e.between(0, left);
            e.after(span, Event::Due(Due::Ends(Child { who: self.who, pid })));
        }
        Some(left + e.spread(MS, 200 * MS))
    }

    /// SIGSTOP to the elector, for this long.
    pub fn freeze_elector(&mut self, moment: Moment, span: Ns, e: &mut Engine) {
        if let Some(elector) = &mut self.elector {
            elector.freeze(moment, span, e);
            self.expose(e);
        }
    }

    /// If init is stopped and the elector is stopped or dead, only the kernel is left to kill, and its fuse covers what init found
    /// when it last looked.
    pub fn expose(&self, e: &mut Engine) {
        if self.frozen && !self.is_guarded() {
            let margin = nanos(self.node.config.workload.stop.kill_margin);
            let elector = self.elector.as_ref().map_or(Ns::MAX, ElectorProcess::stands_until);
            e.judge.injects(Uncovered::Unguarded, self.who, self.frozen_until.min(elector).saturating_add(margin));
        }
    }

    /// Everything on the node stops, except its BOOTTIME.
    pub fn suspend(&mut self, span: Ns, e: &mut Engine) {
        if self.over || self.frozen || self.elector.as_ref().is_some_and(|elector| elector.stands_until() > e.now) {
            return;
        }
        let until = e.now.saturating_add(span);
        e.note(self.who, || format!("the node is suspended for {} ms", span / MS));
        self.suspended_until = until;
        // On waking the workload may run for as long as it takes to kill it.
        let end = until + nanos(self.node.config.workload.stop.kill_margin);
        e.judge.injects(Uncovered::Suspended, self.who, end);
        self.freeze(Moment::Now, span, e);
        self.freeze_elector(Moment::Now, span, e);
    }

    /// Its SIGCONT is due.
    pub fn continues(&mut self, e: &mut Engine) {
        if self.frozen_until <= e.now {
            self.resume(e);
        }
    }

    /// SIGCONT to init.
    pub fn resume(&mut self, e: &mut Engine) {
        (self.freeze_before, self.bereft_before) = (None, None);
        if std::mem::take(&mut self.frozen) {
            e.note(self.who, || "init goes on".into());
            self.went_on = e.now;
            self.resumes = self.turn.as_ref().is_some_and(Turn::is_under_way);
            e.judge.trouble(self.who.replica, e.now);
            self.alarm.clear();
            self.wake(e);
        }
    }
}
