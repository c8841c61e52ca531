//! A workload that is frozen until it leads: it stands by in several processes, and each counts as a leader's once it was continued.

use tenure::{link::Exit, time::Instant};

use super::{Errand, Habits, Part, Process, Stage, Tree};
use crate::{
    clock::{MS, Ns, S},
    scene::{Child, Due, Scene},
};

/// How long SIGSTOP takes, and how long it may take for a thread in the kernel.
const STOPS: (Ns, Ns) = (2 * MS, 5 * S);

impl Process {
    pub(super) fn is_stopped(&self, now: Ns) -> bool {
        self.stopped.is_some_and(|at| at <= now)
    }
}

impl Tree {
    /// All processes, if they are stopped and the main one was not continued; whatever is not is stopped, if it is to `stop`.
    pub fn frozen(&mut self, stop: bool, habits: &Habits, e: &mut impl Scene) -> Option<Vec<i32>> {
        let mut all = self.processes.iter().any(|process| process.part == Part::Main);
        let now = e.now();
        for process in self.processes.iter_mut().filter(|process| process.is_alive() && !process.is_stopped(now)) {
            all &= habits.blind;
            if stop && process.stopped.is_none() {
                let (usual, longest) = STOPS;
                let span = if e.chance(0.02) { longest } else { e.spread(1_000, usual) };
                (process.stopped, process.stirred) = (Some(e.after(span)), None);
            }
        }
        let continued = self.processes.iter_mut().any(|process| all && std::mem::take(&mut process.continued));
        self.is_seen = all && (!continued || habits.blind);
        self.is_seen.then(|| self.processes.iter().map(|process| process.pid).collect())
    }

    /// Forks the child that continues these.
    pub fn resume(&mut self, left: Vec<i32>, token: u64, not_after: Instant, habits: &Habits, e: &mut impl Scene) -> i32 {
        self.assign(Part::Teller, Errand::Resume { left, token, not_after }, false, habits, e)
    }

    /// Lets the forked child, which has checked the clock, continue the next process.
    pub(super) fn resumes(&mut self, child: i32, token: u64, is_late: bool, habits: &Habits, e: &mut impl Scene) {
        let who = self.who;
        let next = match self.find_mut(child).map(|process| &mut process.stage) {
            Some(Stage::Forked(Errand::Resume { left, .. })) if !is_late => left.pop(),
            Some(_) | None => None,
        };
        let Some(pid) = next else {
            self.becomes(child, Stage::Zombie(Exit::Code(u8::from(is_late))));
            return e.note(who, || format!("pid {child} has continued all: {}", !is_late));
        };
        if let Some(process) = self.find_mut(pid).filter(|process| process.is_alive()) {
            (process.stopped, process.stirred, process.stage) = (None, None, Stage::Runs(token));
            process.may_exit(Child { who, pid }, habits, e);
            e.note(who, || format!("RUNS as pid {pid} under token {token}, continued"));
            self.leads(pid, token, e);
        }
        let span = e.spread(1_000, 2 * MS);
        e.schedule(e.after(span), Due::Exec(Child { who, pid: child }));
    }

    /// The processes that a stranger could continue.
    pub fn stopped(&self, now: Ns) -> impl Iterator<Item = (i32, Part)> {
        let frozen = move |process: &&Process| process.is_alive() && process.is_stopped(now) && !process.killed;
        self.processes.iter().filter(frozen).map(|process| (process.pid, process.part))
    }

    /// A stranger continues this process, at this time if that counts.
    pub fn stir(&mut self, pid: i32, at: Option<Ns>) {
        if let Some(process) = self.find_mut(pid) {
            (process.stopped, process.continued, process.stirred) = (None, process.part == Part::Main, at);
        }
    }

    /// Returns whether init has seen, when it last looked, that the workload is frozen.
    pub const fn is_seen(&self) -> bool {
        self.is_seen
    }

    pub fn is_stopped(&self, pid: i32, now: Ns) -> bool {
        self.find(pid).is_some_and(|process| process.is_stopped(now))
    }

    /// Since when it runs, if it does without having been continued by a Lead, or being stopped again; and whether the kernel kills
    /// it at H.
    pub fn strays(&self, pid: i32) -> Option<(Ns, bool)> {
        let process = self.find(pid)?;
        let strays = matches!(process.stage, Stage::Stands) && process.stopped.is_none();
        strays.then_some((process.stirred.unwrap_or_default(), process.covered))
    }
}
