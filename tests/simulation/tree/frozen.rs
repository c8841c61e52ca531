//! A workload that is frozen until it leads: it stands by in several processes, and each counts as a leader's once it was continued.

use tenure::{law, link::Exit, time::Instant};

use super::{Process, Stage, Tree, manner};
use crate::{
    clock::{Clock, MS, Ns, S},
    engine::{Child, Engine, Event},
    plan::Habits,
};

/// How long SIGSTOP takes, and how long it may take for a thread in the kernel.
const STOPS: (Ns, Ns) = (2 * MS, 5 * S);

impl Process {
    fn is_alive(&self) -> bool {
        !matches!(self.stage, Stage::Zombie(_))
    }

    fn is_stopped(&self, now: Ns) -> bool {
        self.stopped.is_some_and(|at| at <= now)
    }
}

impl Tree {
    /// All processes, if they are stopped and the main one was not continued; whatever is not is stopped, if it is to `stop`.
    pub fn frozen(&mut self, stop: bool, habits: &Habits, e: &mut Engine) -> Option<Vec<i32>> {
        let mut all = self.processes.iter().any(|process| process.manner.main);
        let now = e.now;
        for process in self.processes.iter_mut().filter(|process| process.is_alive() && !process.is_stopped(now)) {
            all &= habits.blind;
            if stop && process.stopped.is_none() {
                let (usual, longest) = STOPS;
                process.stopped = Some(now + if e.chance(0.02) { longest } else { e.spread(1_000, usual) });
            }
        }
        let continued = self.processes.iter_mut().any(|process| all && std::mem::take(&mut process.continued));
        (all && (!continued || habits.blind)).then(|| self.processes.iter().map(|process| process.pid).collect())
    }

    /// Forks the child that continues these.
    pub fn resume(&mut self, left: Vec<i32>, token: String, not_after: Instant, habits: &Habits, e: &mut Engine) -> i32 {
        let manner = super::Manner { main: false, breeds: false, ..manner(habits, e) };
        self.add(Stage::Resumes { left, token, not_after }, manner, false, habits, e)
    }

    /// Lets the forked child check the clock, and continue the next process.
    pub(super) fn resumes(&mut self, index: usize, clock: Clock, habits: &Habits, e: &mut Engine) {
        let Process { pid, stage: Stage::Resumes { left, token, not_after }, .. } = &mut self.processes[index] else { return };
        let (child, who) = (*pid, self.who);
        let is_late = law::is_over(*not_after, clock.boot(e.now));
        let (next, token) = (left.pop().filter(|_| !is_late), token.clone());
        let is_over = is_late || next.is_none();
        if is_over {
            self.processes[index].stage = Stage::Zombie(Exit::Code(u8::from(is_late)));
            return e.note(who, || format!("pid {child} has continued all: {}", !is_late));
        }
        if let Some(process) = self.processes.iter_mut().find(|process| Some(process.pid) == next && process.is_alive()) {
            let pid = process.pid;
            (process.stopped, process.stage) = (None, Stage::Runs { token: token.clone() });
            e.note(who, || format!("RUNS as pid {pid} under token {token}, continued"));
            e.judge.runs(Child { who, pid }, &token, process.covered, e.now);
            process.may_exit(Child { who, pid }, habits, e);
        }
        let span = e.spread(1_000, 2 * MS);
        e.after(span, Event::Exec(Child { who, pid: child }));
    }

    /// A stranger continues one process of it; returns which, and whether it is the main one.
    pub fn stir(&mut self, e: &mut Engine) -> Option<(i32, bool)> {
        let is_frozen = |process: &&mut Process| process.is_alive() && process.is_stopped(e.now) && !process.killed;
        let frozen: Vec<_> = self.processes.iter_mut().filter(is_frozen).collect();
        let process = e.rng.choice(frozen)?;
        (process.stopped, process.continued, process.stirred) = (None, process.manner.main, e.now);
        Some((process.pid, process.manner.main))
    }

    /// Returns whether this process is stopped.
    pub fn is_stopped(&self, pid: i32, now: Ns) -> bool {
        self.processes.iter().any(|process| process.pid == pid && process.is_stopped(now))
    }

    /// Another process than this one that is stopped and that no SIGKILL has reached. When the main process dies, the kernel may
    /// continue it.
    pub fn is_stopped_beside(&self, pid: i32, now: Ns) -> Option<i32> {
        let mut others = self.processes.iter().filter(|process| process.pid != pid && process.is_alive() && !process.killed);
        others.find(|process| process.is_stopped(now)).map(|process| process.pid)
    }

    /// Since when it runs, if it does without having been continued by a Lead, or being stopped again; and whether the kernel kills
    /// it at H.
    pub fn strays(&self, pid: i32) -> Option<(Ns, bool)> {
        let process = self.processes.iter().find(|process| process.pid == pid)?;
        (matches!(process.stage, Stage::Stands) && process.stopped.is_none()).then_some((process.stirred, process.covered))
    }
}
