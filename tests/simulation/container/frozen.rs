//! Strangers' signals to a workload that is frozen until it leads.

use tenure_world::Observer;

use super::Container;
use crate::{
    clock::{MS, Ns},
    engine::{Child, Engine, Event},
    tree::Part,
};

/// From one look at what is frozen to the next, by the slowest clock.
const LOOKING: Ns = 220 * MS;

impl Container {
    /// Somebody continues one of its processes. Init hears at once of the main one, and finds the others when it looks.
    pub fn stir(&mut self, e: &mut Engine) -> bool {
        let stopped: Vec<_> = self.tree.stopped(e.now).collect();
        let Some((pid, part)) = e.rng.choice(stopped) else { return false };
        let is_main = part == Part::Main;
        self.tree.stir(pid, Some(e.now));
        e.note(self.who, || format!("somebody continues pid {pid}"));
        if is_main && !self.node.habits.blind {
            self.child_changed(e);
        }
        let within = if is_main { 0 } else { LOOKING } + 2 * self.node.wake + self.node.habits.death + MS;
        e.after(within, Event::Strays(Child { who: self.who, pid }, within));
        true
    }

    /// A signal to init that is no stop.
    pub fn forward(&mut self, e: &mut Engine) {
        self.signals.push_back(if e.rng.bool() { libc::SIGCONT } else { libc::SIGHUP });
        self.wake(e);
    }

    /// Judges a process that somebody has continued: it should be dead, or lead; unless init was stopped meanwhile.
    pub fn strays(&mut self, pid: i32, within: Ns, e: &mut Engine) {
        let Some((since, covered)) = self.tree.strays(pid) else { return e.judge.armed.arm("a stray is dead in time") };
        let stood = since.max(self.suspended_until).max(if self.frozen { self.frozen_until.max(e.now) } else { self.went_on });
        let child = Child { who: self.who, pid };
        if stood + within > e.now {
            e.at(stood + within, Event::Strays(child, within));
        } else if self.turn.as_ref().is_some_and(|turn| turn.agent().leads()) {
            e.judge.runs(child, self.token, covered, e.now);
        } else {
            e.note(self.who, || format!("pid {pid} RUNS without a Lease"));
            e.judge.strays(child, e.now);
        }
    }
}
