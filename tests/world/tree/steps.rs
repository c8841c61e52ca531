//! The processes of a world that goes step by step: which of them have something to do, and their next step.

use tenure::{link::Exit, role::Role};

use super::{Errand, Habits, Outcome, Part, Process, Stage, Tree};
use crate::{
    clock::{Clock, Ns},
    scene::{Child, Observer, Scene},
};

/// What others notice of a step.
pub enum Step {
    /// This child has done what it was forked for; the outcome of a start of the workload.
    Execs(i32, Option<Outcome>),
    /// The workload has taken on a role.
    Obeys(i32, Role),
    /// A hook has ended.
    Ends,
}

impl Tree {
    /// Returns whether a process has something to do now; workloads and hooks may not get round to it.
    pub fn has_work(&self, now: Ns, dawdles: bool) -> bool {
        self.processes.iter().any(|process| match process.stage {
            Stage::Forked(_) => true,
            Stage::Hooks(_) | Stage::Stands | Stage::Runs(_) => {
                process.dies().is_some_and(|at| at <= now) || !dawdles && process.is_busy()
            }
            Stage::Zombie(_) => false,
        })
    }

    /// When the next one dies.
    pub fn next_death(&self) -> Option<Ns> {
        self.processes.iter().filter_map(Process::dies).min()
    }

    /// Carries out the deaths that are due.
    pub fn bury(&mut self, e: &mut impl Scene) {
        let due = |process: &Process| process.dies().is_some_and(|at| at <= e.now());
        let due: Vec<i32> = self.processes.iter().filter(|process| due(process)).map(|process| process.pid).collect();
        for pid in due {
            self.end(pid, e);
        }
    }

    /// The next child that does what it was forked for. A signal is taken after those that were sent before it.
    pub fn next_exec(&self) -> Option<i32> {
        let waits = |process: &Process| match process.stage {
            Stage::Forked(Errand::Demote { workload }) => self.find(workload).is_some_and(|other| !other.orders.is_empty()),
            Stage::Forked(_) | Stage::Hooks(_) | Stage::Stands | Stage::Runs(_) | Stage::Zombie(_) => false,
        };
        let forked = |process: &&Process| matches!(process.stage, Stage::Forked(_)) && !waits(process);
        self.processes.iter().find(forked).map(|process| process.pid)
    }

    /// Lets one process take its step.
    pub fn step(&mut self, clock: Clock, habits: &Habits, e: &mut impl Scene) -> Option<Step> {
        self.bury(e);
        if let Some(pid) = self.next_exec() {
            let demoted = match self.find(pid).map(|process| &process.stage) {
                Some(Stage::Forked(Errand::Demote { workload })) => Some(*workload),
                Some(_) | None => None,
            };
            let outcome = self.exec(pid, clock, habits, e);
            // Such a signal is taken at once.
            if let Some(workload) = demoted {
                self.obey(workload, habits, e);
            }
            return Some(Step::Execs(pid, outcome));
        }
        let busy = self.processes.iter_mut().filter(|process| process.is_alive() && process.is_busy());
        let process = busy.min_by_key(|process| !process.is_running_hook())?;
        let pid = process.pid;
        if process.is_running_hook() {
            process.ends = Some((e.now(), Exit::Code(0)));
            self.end(pid, e);
            return Some(Step::Ends);
        }
        self.obey(pid, habits, e).map(|role| Step::Obeys(pid, role))
    }

    pub fn has_orders(&self) -> bool {
        self.processes.iter().any(|process| !process.orders.is_empty())
    }

    /// The main process, if it runs, and whether it leads.
    pub fn main(&self) -> Option<(i32, bool)> {
        let running = |process: &&Process| process.part == Part::Main && matches!(process.stage, Stage::Runs(_) | Stage::Stands);
        self.processes.iter().find(running).map(|process| (process.pid, matches!(process.stage, Stage::Runs(_))))
    }

    pub fn is_untouched(&self) -> bool {
        self.processes.iter().any(|process| process.is_alive() && !process.killed)
    }

    /// The main process ends by itself, if it leads.
    pub fn exit(&mut self, e: &mut impl Scene) {
        if let Some((pid, true)) = self.main() {
            self.becomes(pid, Stage::Zombie(Exit::Code(1)));
            e.judge().gone(Child { who: self.who, pid });
        }
    }

    pub fn has_strays(&self, now: Ns) -> bool {
        self.processes.iter().any(|process| process.stirred.is_some_and(|by| by <= now))
    }

    /// Whoever should have been found runs as a leader: of this term, or of none.
    pub fn judge_strays(&mut self, token: Option<u64>, e: &mut impl Scene) {
        for process in self.processes.iter_mut().filter(|process| !process.killed) {
            let strays = process.stirred.take_if(|by| *by <= e.now()).is_some();
            if strays && matches!(process.stage, Stage::Runs(_) | Stage::Stands) {
                process.stage = token.map_or(Stage::Stands, Stage::Runs);
                let now = e.now();
                e.judge().runs(Child { who: self.who, pid: process.pid }, token.unwrap_or_default(), true, now);
            }
        }
    }
}

impl Process {
    /// When SIGKILL, which is pending, ends it.
    fn dies(&self) -> Option<Ns> {
        self.ends.filter(|_| self.killed && self.is_alive()).map(|(at, _)| at)
    }

    const fn is_running_hook(&self) -> bool {
        matches!(self.stage, Stage::Hooks(_)) && !self.killed
    }

    fn is_busy(&self) -> bool {
        !self.killed && !self.orders.is_empty() || self.is_running_hook()
    }
}
