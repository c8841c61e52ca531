//! The processes of one container, except init and its electors: the workload, what it left behind, and how they die.
//!
//! Owns what the kernel owns. A process counts as a leader from its execve to its death, and so does whatever it forks.

use std::collections::VecDeque;

use tenure::{
    law::is_over,
    link::Exit,
    supervision::{NotSpawned, Scan},
    time::Instant,
};

use crate::{
    clock::{Clock, MS, Ns},
    engine::{Child, Engine, Event, Who},
    plan::Habits,
};

mod frozen;
mod hooks;
mod roles;

pub use hooks::Hook;
use roles::Order;
pub use roles::{ON_FOLLOW, ON_LEAD};

/// The time between two rounds of the second guard.
pub const GUARD_ROUND: Ns = 50 * MS;

/// With this many processes none breeds any more.
const CROWD: usize = 32;

const SIGTERM: i32 = 15;
const SIGKILL: i32 = 9;

/// The processes that init has to reap or to kill.
#[derive(Clone, Debug)]
pub struct Tree {
    who: Who,
    processes: Vec<Process>,
    next: i32,
}

#[derive(Clone, Debug)]
struct Process {
    pid: i32,
    stage: Stage,
    /// SIGKILL is pending.
    killed: bool,
    /// When and how it ends, if nothing else ends it first.
    ends: Option<(Ns, Exit)>,
    manner: Manner,
    /// The kernel kills it at H.
    covered: bool,
    orders: VecDeque<Order>,
    /// The hook that left it behind, in its process group.
    group: Option<i32>,
    /// Since when it is stopped, if it is.
    stopped: Option<Ns>,
    /// True if the process was continued, and init has not asked.
    continued: bool,
    /// When a stranger last continued it.
    stirred: Ns,
}

#[derive(Clone, Debug)]
enum Stage {
    /// Between fork and execve; checks the clock last (law 15). Without a token it is to stand by.
    Forked { token: Option<String>, not_after: Instant },
    /// Is about to tell the workload that it leads.
    Promotes { workload: i32, token: String, not_after: Instant },
    /// Is about to tell the workload that it follows, and ends once that has taken it.
    Demotes { workload: i32 },
    /// Is about to continue these, one after another.
    Resumes { left: Vec<i32>, token: String, not_after: Instant },
    /// Tells the workload its role, or is about to.
    Hooks(Hook),
    /// Runs, and does not lead.
    Stands,
    /// Runs as the leader of this term.
    Runs { token: String },
    /// Waits to be reaped.
    Zombie(Exit),
}

/// How a process reacts.
#[derive(Clone, Copy, Debug)]
struct Manner {
    /// From SIGTERM to its end; none if it ignores it.
    obeys_in: Option<Ns>,
    /// From SIGKILL to its end.
    dies_in: Ns,
    /// Forks while others are being killed.
    breeds: bool,
    /// The process changed its user, so nobody may kill it: it ends with init.
    foreign: bool,
    /// True for the workload's main process.
    main: bool,
    /// Nothing finds or kills it.
    hidden: bool,
}

/// The killers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Killer {
    /// Init, by a walk.
    Walk,
    /// Init, by kill(-1).
    All,
    /// The elector's guard, by a walk.
    Guard,
    /// The kernel: those that init has shown it.
    Fuse,
}

/// The outcome of a start, as the forked child's pipe reports it.
pub type Outcome = Result<(), NotSpawned>;

impl Tree {
    pub fn new(who: Who) -> Self {
        Self { who, processes: Vec::new(), next: 100 }
    }

    /// A new pid.
    pub fn pid(&mut self) -> i32 {
        self.next += 1;
        self.next
    }

    /// Forks the workload's main process.
    pub fn fork(&mut self, token: String, not_after: Instant, covered: bool, habits: &Habits, e: &mut Engine) -> i32 {
        let manner = manner(habits, e);
        self.add(Stage::Forked { token: Some(token), not_after }, manner, covered, habits, e)
    }

    fn add(&mut self, stage: Stage, manner: Manner, covered: bool, habits: &Habits, e: &mut Engine) -> i32 {
        let pid = self.pid();
        self.push(pid, stage, manner, covered);
        let span = e.spread(10_000, habits.exec);
        e.after(span, Event::Exec(Child { who: self.who, pid }));
        pid
    }

    fn push(&mut self, pid: i32, stage: Stage, manner: Manner, covered: bool) {
        let (orders, group) = (VecDeque::new(), None);
        let (killed, ends, stopped, continued, stirred) = (false, None, None, false, 0);
        self.processes.push(Process { pid, stage, killed, ends, manner, covered, orders, group, stopped, continued, stirred });
    }

    /// The forked child checks the clock, and becomes the workload or exits; none if it was killed before.
    pub fn exec(&mut self, pid: i32, clock: Clock, habits: &Habits, e: &mut Engine) -> Option<Outcome> {
        let index = self.processes.iter().position(|process| process.pid == pid && !process.killed)?;
        self.promotes(index, clock, habits, e);
        self.demotes(index, habits, e);
        self.hooks(index, clock, habits, e);
        self.resumes(index, clock, habits, e);
        let process = self.processes.get_mut(index)?;
        let Stage::Forked { token, not_after } = &process.stage else { return None };
        if is_over(*not_after, clock.boot(e.now)) {
            process.stage = Stage::Zombie(Exit::Code(0));
            e.note(self.who, || format!("pid {pid} comes too late to run"));
            return Some(Err(NotSpawned::Late));
        }
        let Some(token) = token.clone() else {
            process.stage = Stage::Stands;
            for _ in 0..if habits.freezes { e.rng.u32(..=habits.daemons) } else { 0 } {
                self.daemon(None, false, habits, e);
            }
            return Some(Ok(()));
        };
        let covered = process.covered;
        let stands = |process: &&Process| match &process.stage {
            Stage::Stands | Stage::Forked { token: None, .. } => true,
            Stage::Hooks(hook) => !hook.leads,
            Stage::Forked { .. }
            | Stage::Promotes { .. }
            | Stage::Demotes { .. }
            | Stage::Resumes { .. }
            | Stage::Runs { .. }
            | Stage::Zombie(_) => false,
        };
        if let Some(standby) = self.processes.iter().find(stands) {
            e.judge.fail(format!("{} runs as pid {pid} beside its standby {}", self.who, standby.pid));
        }
        e.note(self.who, || format!("RUNS as pid {pid} under token {token}"));
        e.judge.runs(Child { who: self.who, pid }, &token, covered, e.now);
        e.judge.begins_run(self.who, &token);
        let process = self.processes.get_mut(index)?;
        process.stage = Stage::Runs { token: token.clone() };
        process.may_exit(Child { who: self.who, pid }, habits, e);
        for _ in 0..e.rng.u32(..=habits.daemons) {
            self.daemon(Some(&token), covered, habits, e);
        }
        Some(Ok(()))
    }

    /// Adds a daemon, of a leader if there is a token. The kernel kills it at H if it stays in the group of a parent that the kernel
    /// kills.
    fn daemon(&mut self, token: Option<&str>, parent: bool, habits: &Habits, e: &mut Engine) {
        let pid = self.pid();
        let manner =
            Manner { obeys_in: None, foreign: e.chance(habits.foreign), main: false, hidden: habits.hides, ..manner(habits, e) };
        let covered = e.rng.bool() && parent && !manner.foreign;
        token.into_iter().for_each(|token| e.judge.runs(Child { who: self.who, pid }, token, covered, e.now));
        e.note(self.who, || format!("pid {pid} is left behind"));
        self.push(pid, token.map_or(Stage::Stands, |token| Stage::Runs { token: token.into() }), manner, covered);
    }

    /// Init shows the kernel all processes; `late` if H has passed, so that those that are not dead are dying only now.
    pub fn cover(&mut self, late: bool, e: &mut Engine) {
        if !self.processes.iter().any(|process| process.manner.main) {
            return;
        }
        for process in self.processes.iter_mut().filter(|process| !process.covered && !process.manner.foreign) {
            process.covered = true;
            if !late {
                e.judge.covers(self.who, process.pid);
            }
        }
    }

    /// Sends a stop signal.
    pub fn ask(&mut self, pid: i32, signal: i32, e: &mut Engine) {
        let Some(process) = self.processes.iter_mut().find(|process| process.pid == pid) else { return };
        if process.stopped.is_some() && !process.killed {
            e.judge.fail(format!("pid {pid} of {} gets signal {signal}, although it is frozen", self.who));
        }
        let (Stage::Runs { .. } | Stage::Stands) = process.stage else { return };
        let Some(span) = process.manner.obeys_in.filter(|_| signal == SIGTERM) else { return };
        let at = e.now + span;
        if process.ends.is_none_or(|(before, _)| at < before) {
            process.ends = Some((at, Exit::Signal(SIGTERM)));
            e.at(at, Event::Ends(Child { who: self.who, pid }));
        }
    }

    /// SIGKILL to every process that may be killed. Unnoticed by all but kill(-1), a process may have forked.
    pub fn kill(&mut self, killer: Killer, habits: &Habits, e: &mut Engine) -> bool {
        let wait_limit = match killer {
            Killer::Walk => Some(0),
            Killer::All => None,
            // What escapes its round dies in the next one.
            Killer::Guard => (habits.death > 2 * GUARD_ROUND).then_some(2 * GUARD_ROUND),
            Killer::Fuse => None,
        };
        let breeding = wait_limit.filter(|_| self.processes.len() < CROWD && e.chance(0.3));
        let breeder = self.processes.iter_mut().find_map(|process| match &process.stage {
            Stage::Runs { token } if process.manner.breeds && !process.killed && breeding.is_some() => {
                process.manner.breeds = killer == Killer::Walk;
                Some((token.clone(), process.covered))
            }
            Stage::Runs { .. }
            | Stage::Stands
            | Stage::Forked { .. }
            | Stage::Promotes { .. }
            | Stage::Demotes { .. }
            | Stage::Resumes { .. }
            | Stage::Hooks(_)
            | Stage::Zombie(_) => None,
        });
        let mut any = false;
        let reached = |process: &&mut Process| {
            !process.manner.foreign && !process.manner.hidden && (killer != Killer::Fuse || process.covered)
        };
        for process in self.processes.iter_mut().filter(reached) {
            any |= process.kill(self.who, e);
        }
        if let (Some((token, covered)), Some(wait_limit)) = (breeder, breeding) {
            self.daemon(Some(&token), covered, habits, e);
            if let Some(Process { manner, .. }) = self.processes.last_mut().filter(|_| killer == Killer::Guard) {
                (manner.breeds, manner.foreign) = (false, false);
                manner.dies_in = manner.dies_in.min(habits.death - wait_limit);
            }
        }
        any
    }

    /// SIGKILL to a process, and to what is left in its process group.
    pub fn kill_group(&mut self, pid: i32, e: &mut Engine) {
        for process in self.processes.iter_mut().filter(|process| process.pid == pid || process.group == Some(pid)) {
            process.kill(self.who, e);
        }
    }

    /// Sends one SIGKILL from outside.
    pub fn murder(&mut self, e: &mut Engine) {
        let runs = |process: &&mut Process| matches!(process.stage, Stage::Runs { .. } | Stage::Stands) && !process.killed;
        if let Some(process) = self.processes.iter_mut().find(runs) {
            process.kill(self.who, e);
        }
    }

    /// Ends a process that is due to end; true if there is a new zombie.
    pub fn end(&mut self, pid: i32, e: &mut Engine) -> bool {
        let Some(index) = self.processes.iter().position(|process| process.pid == pid) else { return false };
        let Some((_, exit)) = self.processes[index].ends.filter(|(at, _)| *at <= e.now) else { return false };
        self.succeeds(index, exit, e);
        let process = &mut self.processes[index];
        match process.stage {
            Stage::Zombie(_) => return false,
            Stage::Forked { .. }
            | Stage::Promotes { .. }
            | Stage::Demotes { .. }
            | Stage::Resumes { .. }
            | Stage::Hooks(_)
            | Stage::Stands
            | Stage::Runs { .. } => {}
        }
        process.stage = Stage::Zombie(exit);
        e.judge.gone(self.who, pid);
        e.note(self.who, || format!("pid {pid} is dead: {exit:?}"));
        true
    }

    /// The same processes in a memory that is restored, if all of them run and none is about to end.
    pub fn restored(&self, who: Who) -> Option<Self> {
        let steady = |process: &Process| {
            matches!(process.stage, Stage::Runs { .. }) && !process.killed && process.ends.is_none() && process.orders.is_empty()
        };
        self.processes.iter().all(steady).then(|| Self { who, ..self.clone() })
    }

    /// A process that waits to be reaped.
    pub fn zombie(&self) -> Option<i32> {
        self.processes.iter().find(|process| matches!(process.stage, Stage::Zombie(_))).map(|process| process.pid)
    }

    /// Reaps this zombie.
    pub fn reap(&mut self, pid: i32) -> Option<Exit> {
        let index = self.processes.iter().position(|process| process.pid == pid)?;
        let Stage::Zombie(exit) = self.processes[index].stage else { return None };
        self.processes.remove(index);
        Some(exit)
    }

    /// Returns whether this pid still names a process or a process group.
    pub fn names(&self, pid: i32) -> bool {
        self.processes.iter().any(|process| process.pid == pid || process.group == Some(pid))
    }

    /// Returns whether this process is there and not dead, though it may be dying.
    pub fn is_alive(&self, pid: i32) -> bool {
        self.processes.iter().any(|process| process.pid == pid && !matches!(process.stage, Stage::Zombie(_)))
    }

    /// Returns whether no SIGKILL to this process is pending.
    pub fn lives(&self, pid: i32) -> bool {
        self.processes.iter().any(|process| process.pid == pid && !process.killed)
    }

    /// Scans the processes, as init does.
    pub fn scan(&self, killed: bool) -> Scan {
        let found = self.processes.iter().filter(|process| !process.manner.hidden);
        let left: Vec<i32> = found.map(|process| process.pid).collect();
        let denied = self.processes.iter().any(|process| process.manner.foreign);
        Scan { clean: left.is_empty(), left, denied, killed }
    }

    /// The kernel ends the namespace; returns when the last process is gone.
    pub fn collapse(&mut self, e: &mut Engine) -> Ns {
        for process in &mut self.processes {
            process.kill(self.who, e);
        }
        let living = self.processes.iter().filter(|process| !matches!(process.stage, Stage::Zombie(_)));
        living.filter_map(|process| process.ends).map(|(at, _)| at).max().unwrap_or(e.now)
    }
}

impl Process {
    /// In some worlds most end by themselves.
    fn may_exit(&mut self, child: Child, habits: &Habits, e: &mut Engine) {
        // What is killed already does not end later for that.
        if e.chance(habits.exits) && !self.killed {
            let span = e.spread(MS, habits.lasts);
            let exit = Exit::Code(u8::from(e.chance(0.7)));
            self.ends = Some((e.now + span, exit));
            e.after(span, Event::Ends(child));
        }
    }

    fn kill(&mut self, who: Who, e: &mut Engine) -> bool {
        if matches!(self.stage, Stage::Zombie(_)) {
            return true;
        }
        if !self.killed {
            self.killed = true;
            let at = e.now + self.manner.dies_in;
            if self.ends.is_none_or(|(before, _)| at < before) {
                self.ends = Some((at, Exit::Signal(SIGKILL)));
                e.at(at, Event::Ends(Child { who, pid: self.pid }));
            }
        }
        true
    }
}

fn manner(habits: &Habits, e: &mut Engine) -> Manner {
    let obeys_in = if e.chance(habits.deaf) { None } else { Some(e.spread(MS, habits.lingers)) };
    let dies_in = if e.chance(habits.slow_death) { habits.death } else { e.spread(10_000, habits.death.max(10_000)) };
    Manner {
        obeys_in,
        dies_in: dies_in.min(habits.death),
        breeds: e.chance(habits.breeds),
        foreign: false,
        main: true,
        hidden: false,
    }
}
