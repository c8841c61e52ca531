//! What init does to a workload that is frozen until it leads, as in `init/roles.rs`; and what strangers do to it.

use tenure::{
    supervision::{Input, RoleInput},
    time::Instant,
};

use super::Container;
use crate::{
    clock::{MS, Ns},
    engine::{Child, Engine, Event},
};

/// From one look at what is frozen to the next, by the slowest clock.
const LOOKING: Ns = 220 * MS;

impl Container {
    /// Looks at it, and stops what is not.
    pub(super) fn look_frozen(&mut self, stop: bool, e: &mut Engine) {
        self.reap(e);
        let frozen = self.tree.frozen(stop, &self.node.habits, e).is_some();
        self.handle(Input::Role(RoleInput::Looked { frozen }), e);
    }

    pub(super) fn thaw_workload(&mut self, not_after: Instant, e: &mut Engine) {
        let Some(pids) = self.tree.frozen(false, &self.node.habits, e) else {
            e.note(self.who, || "the workload is not frozen any more".into());
            return self.handle(Input::Role(RoleInput::NotSignalled), e);
        };
        let child = self.tree.thaw(pids, self.token.clone(), not_after, &self.node.habits, e);
        e.note(self.who, || format!("forks pid {child} to continue it, not after {not_after:?}"));
        self.promoter = Some(child);
        self.step(e);
    }

    /// Somebody continues one of its processes. Init hears at once of the main one, and finds the others when it looks.
    pub fn stir(&mut self, e: &mut Engine) -> bool {
        let Some((pid, is_main)) = self.tree.stir(e) else { return false };
        e.note(self.who, || format!("somebody continues pid {pid}"));
        if is_main && !self.node.habits.blind {
            self.stirred = true;
            self.wake(e);
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

    /// What somebody has continued should be dead, or else it leads; unless init was stopped meanwhile.
    pub fn strays(&mut self, pid: i32, within: Ns, e: &mut Engine) {
        let Some((since, covered)) = self.tree.strays(pid) else { return };
        let stood = since.max(self.suspended_until).max(if self.frozen { self.frozen_until.max(e.now) } else { self.went_on });
        let child = Child { who: self.who, pid };
        if stood + within > e.now {
            e.at(stood + within, Event::Strays(child, within));
        } else if self.agent.leads() {
            e.judge.runs(child, &self.token, covered, e.now);
        } else {
            e.note(self.who, || format!("pid {pid} RUNS without a Lease"));
            e.judge.strays(child, e.now);
        }
    }
}
