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
    scene::{Child, Due, Observer, Scene, Who, Wrong},
};

mod frozen;
mod habits;
mod hooks;
mod roles;
mod steps;

pub use habits::Habits;
use habits::Manner;
pub use hooks::Hook;
use roles::Order;
pub use steps::Step;

/// The time between two rounds of the second guard.
pub const GUARD_ROUND: Ns = 50 * MS;

/// With this many processes none breeds any more.
const CROWD: usize = 32;

const SIGTERM: i32 = 15;
const SIGKILL: i32 = 9;

/// The processes that init has to reap or to kill.
#[derive(Clone, Debug, Hash)]
pub struct Tree {
    who: Who,
    processes: Vec<Process>,
    next: i32,
    /// Init has seen that the workload is frozen. Until then it stops whatever runs again.
    is_seen: bool,
}

#[derive(Clone, Debug, Hash)]
struct Process {
    pid: i32,
    part: Part,
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
    stirred: Option<Ns>,
}

/// A process's part in its container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Part {
    /// The main process of the workload.
    Main,
    /// Another process of a workload that stands by frozen.
    Worker,
    /// The workload, or a hook, has left it behind.
    Daemon,
    /// A hook or a probe.
    Hook,
    /// Tells the workload its role.
    Teller,
}

#[derive(Clone, Debug, Hash)]
enum Stage {
    /// Between fork and execve; checks the clock last (law 15).
    Forked(Errand),
    /// Tells the workload its role, or asks it how it is.
    Hooks(Hook),
    /// Runs, and does not lead.
    Stands,
    /// Runs as the leader of this term.
    Runs(u64),
    /// Waits to be reaped.
    Zombie(Exit),
}

/// What a process was forked for.
#[derive(Clone, Debug, Hash)]
enum Errand {
    /// To become the workload. Without a token it is to stand by.
    Run { token: Option<u64>, not_after: Instant },
    /// To run a hook or a probe.
    Hook(Hook),
    /// To tell the workload that it leads.
    Promote { workload: i32, token: u64, not_after: Instant },
    /// To tell the workload that it follows, and to end once that has taken it.
    Demote { workload: i32 },
    /// To continue these, one after another.
    Resume { left: Vec<i32>, token: u64, not_after: Instant },
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
        Self { who, processes: Vec::new(), next: 100, is_seen: false }
    }

    /// A new pid.
    pub const fn pid(&mut self) -> i32 {
        self.next += 1;
        self.next
    }

    /// Forks the workload's main process: to lead under this token and not after this instant, or to stand by.
    pub fn fork<E: Scene>(&mut self, lead: Option<(u64, Instant)>, covered: bool, habits: &Habits, e: &mut E) -> i32 {
        let manner = Manner::of(habits, e);
        let errand = Errand::Run { token: lead.map(|(token, _)| token), not_after: lead.map_or(Instant::NEVER, |(_, at)| at) };
        self.add(Part::Main, errand, manner, covered, habits, e)
    }

    /// Forks a child that does something for init and ends.
    fn assign<E: Scene>(&mut self, part: Part, errand: Errand, covered: bool, habits: &Habits, e: &mut E) -> i32 {
        let manner = Manner { breeds: false, ..Manner::of(habits, e) };
        self.add(part, errand, manner, covered, habits, e)
    }

    fn add<E: Scene>(&mut self, part: Part, errand: Errand, manner: Manner, covered: bool, habits: &Habits, e: &mut E) -> i32 {
        let pid = self.pid();
        self.push(pid, part, Stage::Forked(errand), manner, covered);
        let span = e.spread(10_000, habits.exec);
        e.schedule(e.after(span), Due::Exec(Child { who: self.who, pid }));
        pid
    }

    fn push(&mut self, pid: i32, part: Part, stage: Stage, manner: Manner, covered: bool) {
        self.processes.push(Process {
            pid,
            part,
            stage,
            killed: false,
            ends: None,
            manner,
            covered,
            orders: VecDeque::new(),
            group: None,
            stopped: None,
            continued: false,
            stirred: None,
        });
    }

    fn find(&self, pid: i32) -> Option<&Process> {
        self.processes.iter().find(|process| process.pid == pid)
    }

    fn find_mut(&mut self, pid: i32) -> Option<&mut Process> {
        self.processes.iter_mut().find(|process| process.pid == pid)
    }

    /// The forked child checks the clock, and does what it was forked for; returns the outcome of a start of the workload.
    pub fn exec<E: Scene>(&mut self, pid: i32, clock: Clock, habits: &Habits, e: &mut E) -> Option<Outcome> {
        let process = self.find(pid).filter(|process| !process.killed)?;
        let Stage::Forked(errand) = process.stage.clone() else { return None };
        let now = clock.boot(e.now());
        match errand {
            Errand::Run { token, not_after } => return Some(self.run(pid, token, is_over(not_after, now), habits, e)),
            Errand::Hook(hook) => self.hooks(pid, hook, now, habits, e),
            Errand::Promote { workload, token, not_after } => {
                self.promotes(pid, workload, token, is_over(not_after, now), habits, e);
            }
            Errand::Demote { workload } => self.demotes(pid, workload, habits, e),
            Errand::Resume { token, not_after, .. } => self.resumes(pid, token, is_over(not_after, now), habits, e),
        }
        None
    }

    fn run<E: Scene>(&mut self, pid: i32, token: Option<u64>, is_late: bool, habits: &Habits, e: &mut E) -> Outcome {
        let child = Child { who: self.who, pid };
        if is_late {
            self.becomes(pid, Stage::Zombie(Exit::Code(0)));
            e.note(self.who, || format!("pid {pid} comes too late to run"));
            return Err(NotSpawned::Late);
        }
        let Some(token) = token else {
            self.becomes(pid, Stage::Stands);
            for _ in 0..if habits.freezes { e.up_to(habits.daemons) } else { 0 } {
                self.daemon(Part::Worker, None, false, habits, e);
            }
            return Ok(());
        };
        let stands = |process: &&Process| match &process.stage {
            Stage::Stands | Stage::Forked(Errand::Run { token: None, .. }) => true,
            Stage::Hooks(hook) | Stage::Forked(Errand::Hook(hook)) => !hook.leads,
            Stage::Forked(_) | Stage::Runs(_) | Stage::Zombie(_) => false,
        };
        if let Some(standby) = self.processes.iter().find(stands) {
            e.judge().fail(Wrong::Overlap, format!("{} runs as pid {pid} beside its standby {}", self.who, standby.pid));
        }
        e.note(self.who, || format!("RUNS as pid {pid} under token {token}"));
        let covered = self.find(pid).is_some_and(|process| process.covered);
        self.leads(pid, token, e);
        e.judge().begins_run(self.who, token);
        if let Some(process) = self.find_mut(pid) {
            process.stage = Stage::Runs(token);
            process.may_exit(child, habits, e);
        }
        for _ in 0..e.up_to(habits.daemons) {
            self.daemon(Part::Daemon, Some(token), covered, habits, e);
        }
        Ok(())
    }

    fn becomes(&mut self, pid: i32, stage: Stage) {
        if let Some(process) = self.find_mut(pid) {
            process.stage = stage;
        }
    }

    /// A process runs as a leader.
    fn leads<E: Scene>(&self, pid: i32, token: u64, e: &mut E) {
        let covered = self.find(pid).is_some_and(|process| process.covered);
        let is_left = |process: &&Process| match &process.stage {
            Stage::Hooks(hook) => !hook.leads,
            Stage::Stands => process.part == Part::Daemon,
            Stage::Forked(_) | Stage::Runs(_) | Stage::Zombie(_) => false,
        };
        if let Some(left) = self.processes.iter().find(is_left).filter(|_| E::EXACT) {
            e.judge().fail(Wrong::Overlap, format!("{} leads as pid {pid} beside what a hook has left: {}", self.who, left.pid));
        }
        let now = e.now();
        e.judge().runs(Child { who: self.who, pid }, token, covered, now);
    }

    /// Adds a process that was left behind, by a leader if there is a token. The kernel kills it at H if it stays in the group of a
    /// parent that the kernel kills.
    fn daemon<E: Scene>(&mut self, part: Part, token: Option<u64>, parent: bool, habits: &Habits, e: &mut E) {
        let pid = self.pid();
        let manner = Manner { obeys_in: None, foreign: e.chance(habits.foreign), ..Manner::of(habits, e) };
        let covered = e.coin() && parent && !manner.foreign;
        e.note(self.who, || format!("pid {pid} is left behind"));
        self.push(pid, part, token.map_or(Stage::Stands, Stage::Runs), manner, covered);
        if let Some(token) = token {
            self.leads(pid, token, e);
        }
    }

    /// Init shows the kernel all processes; `late` if H has passed, so that those that are not dead are dying only now.
    pub fn cover(&mut self, late: bool, e: &mut impl Scene) {
        if !self.processes.iter().any(|process| process.part == Part::Main) {
            return;
        }
        for process in self.processes.iter_mut().filter(|process| !process.covered && !process.manner.foreign) {
            process.covered = true;
            if !late {
                e.judge().covers(Child { who: self.who, pid: process.pid });
            }
        }
    }

    /// Sends a stop signal.
    pub fn ask(&mut self, pid: i32, signal: i32, e: &mut impl Scene) {
        let who = self.who;
        let Some(process) = self.find_mut(pid) else { return };
        if process.stopped.is_some() && !process.killed {
            e.judge().fail(Wrong::Signalled, format!("pid {pid} of {who} gets signal {signal}, although it is frozen"));
        }
        let (Stage::Runs(_) | Stage::Stands) = process.stage else { return };
        let Some(span) = process.manner.obeys_in.filter(|_| signal == SIGTERM) else { return };
        process.ends_by(e.after(span), Exit::Signal(SIGTERM), who, e);
    }

    /// SIGKILL to every process that may be killed. Unnoticed by all but kill(-1), a process may have forked.
    pub fn kill<E: Scene>(&mut self, killer: Killer, habits: &Habits, e: &mut E) -> bool {
        let wait_limit = match killer {
            Killer::Walk => Some(0),
            // What escapes its round dies in the next one.
            Killer::Guard => (habits.death > 2 * GUARD_ROUND).then_some(2 * GUARD_ROUND),
            Killer::All | Killer::Fuse => None,
        };
        let breeding = wait_limit.filter(|_| self.processes.len() < CROWD && e.chance(0.3));
        let breeder = self.processes.iter_mut().find_map(|process| match process.stage {
            Stage::Runs(token) if process.manner.breeds && !process.killed && breeding.is_some() => {
                process.manner.breeds = killer == Killer::Walk;
                Some((token, process.covered))
            }
            Stage::Forked(_) | Stage::Hooks(_) | Stage::Stands | Stage::Runs(_) | Stage::Zombie(_) => None,
        });
        let mut any = false;
        let reached = |process: &&mut Process| {
            !process.manner.foreign && !process.is_hidden() && (killer != Killer::Fuse || process.covered)
        };
        for process in self.processes.iter_mut().filter(reached) {
            process.kill(self.who, e);
            any = true;
        }
        if let (Some((token, covered)), Some(wait_limit)) = (breeder, breeding) {
            self.daemon(Part::Daemon, Some(token), covered, habits, e);
            if let Some(Process { manner, .. }) = self.processes.last_mut().filter(|_| killer == Killer::Guard) {
                (manner.breeds, manner.foreign) = (false, false);
                manner.dies_in = manner.dies_in.min(habits.death - wait_limit);
            }
        }
        if E::EXACT {
            self.bury(e);
        }
        any
    }

    /// SIGKILL to a process, and to what is left in its process group.
    pub fn kill_group(&mut self, pid: i32, e: &mut impl Scene) {
        let reached = |process: &&mut Process| (process.pid == pid || process.group == Some(pid)) && !process.is_hidden();
        for process in self.processes.iter_mut().filter(reached) {
            process.kill(self.who, e);
        }
    }

    /// Sends one SIGKILL from outside.
    pub fn murder(&mut self, e: &mut impl Scene) {
        let runs = |process: &&mut Process| matches!(process.stage, Stage::Runs(_) | Stage::Stands) && !process.killed;
        if let Some(process) = self.processes.iter_mut().find(runs) {
            process.kill(self.who, e);
        }
    }

    /// Ends a process that is due to end; true if there is a new zombie.
    pub fn end(&mut self, pid: i32, e: &mut impl Scene) -> bool {
        let Some(process) = self.find(pid) else { return false };
        let Some((_, exit)) = process.ends.filter(|(at, _)| *at <= e.now()) else { return false };
        self.succeeds(pid, exit, e);
        let Some(process) = self.find_mut(pid).filter(|process| process.is_alive()) else { return false };
        process.stage = Stage::Zombie(exit);
        e.judge().gone(Child { who: self.who, pid });
        e.note(self.who, || format!("pid {pid} is dead: {exit:?}"));
        true
    }

    /// The same processes in a memory that is restored, if all of them run and none is about to end.
    pub fn restored(&self, who: Who) -> Option<Self> {
        let steady = |process: &Process| {
            matches!(process.stage, Stage::Runs(_)) && !process.killed && process.ends.is_none() && process.orders.is_empty()
        };
        self.processes.iter().all(steady).then(|| Self { who, ..self.clone() })
    }

    /// A process that waits to be reaped.
    pub fn zombie(&self) -> Option<i32> {
        self.processes.iter().find(|process| !process.is_alive()).map(|process| process.pid)
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
        self.find(pid).is_some_and(Process::is_alive)
    }

    pub fn is_any_alive(&self) -> bool {
        self.processes.iter().any(Process::is_alive)
    }

    /// Returns whether no SIGKILL to this process is pending.
    pub fn lives(&self, pid: i32) -> bool {
        self.find(pid).is_some_and(|process| !process.killed)
    }

    /// Scans the processes, as init does.
    pub fn scan(&self, killed: bool) -> Scan {
        let left: Vec<i32> = self.processes.iter().filter(|process| !process.is_hidden()).map(|process| process.pid).collect();
        let denied = self.processes.iter().any(|process| process.manner.foreign);
        Scan { clean: left.is_empty(), left, denied, killed }
    }

    /// The kernel ends the namespace; returns when the last process is gone.
    pub fn collapse<E: Scene>(&mut self, e: &mut E) -> Ns {
        for process in &mut self.processes {
            process.kill(self.who, e);
        }
        if E::EXACT {
            self.bury(e);
        }
        let living = self.processes.iter().filter(|process| process.is_alive());
        living.filter_map(|process| process.ends).map(|(at, _)| at).max().unwrap_or_else(|| e.now())
    }
}

impl Process {
    const fn is_alive(&self) -> bool {
        !matches!(self.stage, Stage::Zombie(_))
    }

    /// Returns whether nothing finds or kills it.
    const fn is_hidden(&self) -> bool {
        self.manner.hidden && matches!(self.stage, Stage::Runs(_) | Stage::Stands)
    }

    /// Ends at this time, if nothing ends it before.
    fn ends_by(&mut self, at: Ns, exit: Exit, who: Who, e: &mut impl Scene) {
        if self.ends.is_none_or(|(before, _)| at < before) {
            self.ends = Some((at, exit));
            e.schedule(at, Due::Ends(Child { who, pid: self.pid }));
        }
    }

    /// In some worlds most end by themselves.
    fn may_exit(&mut self, child: Child, habits: &Habits, e: &mut impl Scene) {
        // What is killed already does not end later for that.
        if e.chance(habits.exits) && !self.killed {
            let span = e.spread(MS, habits.lasts);
            let exit = Exit::Code(u8::from(e.chance(0.7)));
            let at = e.after(span);
            self.ends = Some((at, exit));
            e.schedule(at, Due::Ends(child));
        }
    }

    fn kill<E: Scene>(&mut self, who: Who, e: &mut E) {
        if !self.is_alive() || std::mem::replace(&mut self.killed, true) {
            return;
        }
        if E::EXACT && matches!(self.stage, Stage::Forked(_)) {
            self.stage = Stage::Zombie(Exit::Signal(SIGKILL));
            return;
        }
        let at = e.now() + self.manner.dies_in;
        self.ends_by(at, Exit::Signal(SIGKILL), who, e);
    }
}
