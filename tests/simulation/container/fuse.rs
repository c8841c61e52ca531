//! The kernel's fuse: it kills at the H that init last acknowledged, even if nothing else runs, as in `init/fuses.rs`.
//!
//! It covers the main process from its fork on, and processes that it left behind from the next renewal on.

use tenure::time::Instant;

use super::Container;
use crate::{
    alarm::Alarm,
    engine::{Engine, Event},
    tree::Killer,
};

/// A rate of the kernel's clocks below which they are slowed, as in `clock.rs`.
const USUAL: u32 = 999_000;

#[derive(Clone, Debug)]
pub(super) struct Fuse {
    hard: Option<Instant>,
    alarm: Alarm,
    /// True if the fuse has fired, and init has not heard of it.
    pub(super) unheard: bool,
    /// True if the fuse has fired in this term.
    pub(super) fired: bool,
    /// The main process that it has killed in this term.
    pub(super) victim: Option<i32>,
    /// The main process that was reaped last is that.
    pub(super) is_reaped: bool,
}

impl Fuse {
    pub(super) const fn new() -> Self {
        Self { hard: None, alarm: Alarm::off(), unheard: false, fired: false, victim: None, is_reaped: false }
    }

    pub(super) const fn is_armed(&self) -> bool {
        self.hard.is_some()
    }

    pub(super) const fn hard(&self) -> Option<Instant> {
        self.hard
    }
}

impl Container {
    /// Sets the fuse to H before anything relies on it.
    pub(super) fn arm_fuse(&mut self, hard: Option<Instant>, e: &mut Engine) {
        if self.fuse.hard == hard {
            return;
        }
        if self.fuse.hard.is_none() {
            self.fuse.fired = false;
        }
        self.fuse.hard = hard;
        self.fuse.alarm.clear();
        let Some(hard) = hard else {
            (self.fuse.unheard, self.fuse.victim, self.fuse.is_reaped) = (false, None, false);
            return;
        };
        let (clock, kernel) = (self.clock(), self.clock().monotonic(e.now));
        let left = hard.shown(clock.boot(e.now), kernel, clock.kernel < USUAL).saturating_sub(kernel);
        self.tree.cover(left.is_zero(), e);
        let at = e.now.saturating_add(clock.timer(left)).saturating_add(e.latency(self.node.wake));
        if let Some(at) = self.fuse.alarm.set(at) {
            e.at(at, Event::Fuse(self.who));
        }
    }

    /// Fires the fuse, if it is due.
    pub fn fire_fuse(&mut self, e: &mut Engine) {
        if self.over {
            return;
        }
        match self.fuse.alarm.comes(e.now) {
            Ok(false) => {}
            Err(later) => e.at(later, Event::Fuse(self.who)),
            // The kernel's timers stop while the node is suspended.
            Ok(true) if e.now < self.suspended_until => {
                if let Some(at) = self.fuse.alarm.set(self.suspended_until) {
                    e.at(at, Event::Fuse(self.who));
                }
            }
            Ok(true) => {
                e.note(self.who, || "the fuse kills".into());
                (self.fuse.unheard, self.fuse.fired) = (true, true);
                self.fuse.victim = self.main.filter(|main| self.tree.is_alive(*main)).or(self.fuse.victim);
                self.tree.kill(Killer::Fuse, &self.node.habits, e);
            }
        }
    }
}
