//! The processes of one container, except init and its electors: what the kernel owns.
//!
//! The workload ignores its stop signal, so that it runs for as long as the law allows, and dies exactly `death` after SIGKILL. A
//! hook leaves a daemon behind, which does the same.

use std::collections::VecDeque;

use tenure::{
    config::{Config, Runs},
    law::is_over,
    link::Exit,
    notification::Notification,
    role::Role,
    supervision::{NotSpawned, Scan},
    time::Instant,
};

use crate::{
    clock::Ns,
    family::Setup,
    judge::{Judge, Wrong},
    world::Who,
};

/// See the module.
#[derive(Clone, Debug, Default, Hash)]
pub struct Tree {
    processes: Vec<Process>,
    next: i32,
    /// SIGKILL spares its workloads, and no scan finds them: a control, which must be reported.
    hides: bool,
    /// The workload says that it is ready.
    notifies: bool,
    /// The workload stands by frozen, in two processes.
    freezes: bool,
    /// Init has seen that it is frozen. Until then it stops whatever runs again.
    is_seen: bool,
    /// Nobody sees that a stranger has continued one of them: a control, which must be reported.
    blind: bool,
}

#[derive(Clone, Debug, Hash)]
struct Process {
    pid: i32,
    stage: Stage,
    part: Part,
    /// When SIGKILL, which is pending, ends it.
    dies: Option<Ns>,
    /// Role signals that it has not obeyed yet.
    orders: VecDeque<(Role, u64)>,
    stopped: bool,
    /// True if the process was continued, and init has not asked.
    continued: bool,
    /// A stranger has continued it, and init must have found that by then.
    strays: Option<Ns>,
}

/// A process's part in its container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Part {
    Workload,
    /// The other process of a workload that stands by frozen.
    Worker,
    Hook,
    /// A hook has left it behind.
    Daemon,
}

#[derive(Clone, Debug, Hash)]
enum Stage {
    /// Between fork and execve; looks at the clock last (law 15).
    Forked(Errand, Option<Instant>),
    /// Its program runs; the token under which it leads.
    Runs(Option<u64>),
    /// Waits to be reaped.
    Zombie(Exit),
}

#[derive(Clone, Copy, Debug, Hash)]
enum Errand {
    /// To become the workload, leading under this token or standing by.
    Run(Option<u64>),
    /// To become a hook, of that leader or after its end.
    Hook(Option<u64>),
    /// To tell that process that it leads.
    Promote(i32, u64),
    /// To tell that process that it follows, and to end once it has taken that.
    Demote(i32),
    /// To continue what is frozen, one process after another.
    Resume(u64),
}

/// A forked child's pid, and whether it runs the workload.
pub type Spawned = (i32, Result<(), NotSpawned>);

impl Tree {
    pub fn new(Setup { hides, blind, config: Config { workload, .. }, .. }: &Setup) -> Self {
        let (notifies, freezes) = (workload.readiness.notify, workload.runs == Runs::Frozen);
        Self { hides: *hides, blind: *blind, notifies, freezes, ..Self::default() }
    }

    /// A new pid.
    pub const fn pid(&mut self) -> i32 {
        self.next += 1;
        self.next
    }

    /// Forks the workload.
    pub fn fork(&mut self, token: Option<u64>, not_after: Option<Instant>) -> i32 {
        self.add(Stage::Forked(Errand::Run(token), not_after))
    }

    /// Forks a hook.
    pub fn hook(&mut self, token: Option<u64>, not_after: Instant) -> i32 {
        self.add(Stage::Forked(Errand::Hook(token), Some(not_after)))
    }

    /// Forks the child that promotes it.
    pub fn promote(&mut self, pid: i32, token: u64, not_after: Instant) -> i32 {
        self.add(Stage::Forked(Errand::Promote(pid, token), Some(not_after)))
    }

    /// Forks the child that demotes it, and ends once the signal is taken.
    pub fn demote(&mut self, pid: i32) -> i32 {
        self.add(Stage::Forked(Errand::Demote(pid), None))
    }

    /// Forks the child that continues it.
    pub fn resume(&mut self, token: u64, not_after: Instant) -> i32 {
        self.add(Stage::Forked(Errand::Resume(token), Some(not_after)))
    }

    /// Returns whether all of it is stopped, and the main process was not continued. With `stop`, stops all that is not.
    pub fn is_frozen(&mut self, stop: bool) -> bool {
        let living = || self.processes.iter().filter(|process| !matches!(process.stage, Stage::Zombie(_)));
        let all = living().any(|process| process.part == Part::Workload) && living().all(|process| process.stopped || self.blind);
        for process in self.processes.iter_mut().filter(|_| stop) {
            (process.stopped, process.strays) = (true, None);
        }
        let continued = self.processes.iter_mut().any(|process| all && std::mem::take(&mut process.continued));
        self.is_seen = all && (!continued || self.blind);
        self.is_seen
    }

    /// Returns whether a stranger could continue this part.
    pub fn is_stopped(&self, part: Part) -> bool {
        self.processes.iter().any(|process| process.part == part && process.stopped && process.dies.is_none())
    }

    /// Somebody continues this part, which init must have found by then; whether init hears of it.
    pub fn stir(&mut self, part: Part, by: Ns) -> bool {
        let Some(process) = self.processes.iter_mut().find(|process| process.part == part && process.stopped) else {
            return false;
        };
        let strays = Some(by).filter(|_| self.is_seen);
        (process.stopped, process.strays, process.continued) = (false, strays, part == Part::Workload);
        process.continued && !self.blind
    }

    /// Returns whether somebody should have been found by now.
    pub fn strays(&self, now: Ns) -> bool {
        self.processes.iter().any(|process| process.strays.is_some_and(|by| by <= now))
    }

    /// Whoever should have been found runs as a leader: of this term, or of none.
    pub fn judge_strays(&mut self, who: Who, token: Option<u64>, now: Ns, judge: &mut Judge) {
        for process in self.processes.iter_mut().filter(|process| process.dies.is_none()) {
            if process.strays.take_if(|by| *by <= now).is_some() && matches!(process.stage, Stage::Runs(_)) {
                process.stage = Stage::Runs(token);
                judge.leads(who, process.pid, token.unwrap_or_default());
            }
        }
    }

    fn add(&mut self, stage: Stage) -> i32 {
        let pid = self.pid();
        let (orders, stopped, continued) = (VecDeque::new(), false, false);
        self.processes.push(Process { pid, stage, part: Part::Workload, dies: None, orders, stopped, continued, strays: None });
        pid
    }

    /// Returns whether a process can take a step now, except `dawdling` workloads and hooks.
    pub fn has_work(&self, now: Ns, dawdles: bool) -> bool {
        self.processes.iter().any(|process| match process.stage {
            Stage::Forked(..) => true,
            Stage::Runs(_) => process.dies.is_some_and(|at| at <= now) || (!dawdles && process.is_busy()),
            Stage::Zombie(_) => false,
        })
    }

    /// When the next one dies.
    pub fn next_death(&self) -> Option<Ns> {
        self.processes.iter().filter(|process| matches!(process.stage, Stage::Runs(_))).filter_map(|process| process.dies).min()
    }

    /// Carries out the deaths that are due: at an instant they come before anything else.
    pub fn bury(&mut self, who: Who, now: Ns, judge: &mut Judge) {
        for process in &mut self.processes {
            if matches!(process.stage, Stage::Runs(_)) && process.dies.is_some_and(|at| at <= now) {
                process.stage = Stage::Zombie(Exit::Signal(9));
                judge.gone(who, process.pid);
            }
        }
    }

    /// Lets one process take its step: a forked child runs its errand, the workload obeys an order and reports it, a hook ends.
    pub fn work(&mut self, who: Who, boot: Instant, judge: &mut Judge) -> (Option<Spawned>, Option<Notification>) {
        // A signal is taken after those that were sent before it.
        let waits = |process: &Process| match process.stage {
            Stage::Forked(Errand::Demote(workload), _) => {
                self.processes.iter().any(|other| other.pid == workload && !other.orders.is_empty())
            }
            Stage::Forked(..) | Stage::Runs(_) | Stage::Zombie(_) => false,
        };
        let forked = |process: &Process| matches!(process.stage, Stage::Forked(..)) && !waits(process);
        let forked = self.processes.iter().position(forked);
        if let Some(index) = forked {
            let spawned = self.exec(index, who, boot, judge);
            let runs = self.notifies && matches!(spawned, Some((_, Ok(()))));
            return (spawned, runs.then_some(Notification::Ready));
        }
        if let Some(hook) = self.processes.iter_mut().find(|process| process.is_running_hook()) {
            hook.stage = Stage::Zombie(Exit::Code(0));
            judge.gone(who, hook.pid);
            return (None, None);
        }
        for process in &mut self.processes {
            let Stage::Runs(leads) = &mut process.stage else { continue };
            let Some((role, token)) = process.orders.pop_front() else { continue };
            match role {
                Role::Leader => {
                    *leads = Some(token);
                    judge.leads(who, process.pid, token);
                }
                Role::Standby => {
                    *leads = None;
                    judge.gone(who, process.pid);
                }
            }
            return (None, Some(Notification::Role(role)));
        }
        (None, None)
    }

    fn exec(&mut self, index: usize, who: Who, boot: Instant, judge: &mut Judge) -> Option<Spawned> {
        let stands = |process: &Process| matches!(process.stage, Stage::Runs(None) | Stage::Forked(Errand::Run(None), _));
        let standby = self.processes.iter().find(|process| stands(process)).map(|process| process.pid);
        let Process { pid, stage, part, .. } = &mut self.processes[index];
        let Stage::Forked(errand, not_after) = stage else { return None };
        let late = not_after.is_some_and(|at| is_over(at, boot));
        let (pid, errand) = (*pid, *errand);
        match errand {
            Errand::Run(_) if late => {
                *stage = Stage::Zombie(Exit::Code(0));
                Some((pid, Err(NotSpawned::Late)))
            }
            Errand::Run(token) => {
                *stage = Stage::Runs(token);
                if let (Some(_), Some(standby)) = (token, standby) {
                    judge.fail(Wrong::Overlap, format!("{who} leads as pid {pid} beside its standby {standby}"));
                }
                self.leads(who, pid, token, judge);
                if self.freezes && token.is_none() {
                    self.add(Stage::Runs(None));
                    self.processes.last_mut().expect("it was just added").part = Part::Worker;
                }
                Some((pid, Ok(())))
            }
            Errand::Hook(_) if late => {
                *stage = Stage::Zombie(Exit::Code(126));
                None
            }
            Errand::Hook(token) => {
                (*stage, *part) = (Stage::Runs(token), Part::Hook);
                self.leads(who, pid, token, judge);
                let daemon = self.add(Stage::Runs(token));
                self.processes.last_mut().expect("it was just added").part = Part::Daemon;
                self.leads(who, daemon, token, judge);
                None
            }
            Errand::Promote(workload, token) => {
                *stage = Stage::Zombie(Exit::Code(u8::from(late)));
                if !late {
                    self.order(workload, Role::Leader, token);
                }
                None
            }
            Errand::Resume(token) => {
                let next = self.processes.iter_mut().find(|process| !late && process.stopped);
                let Some(Process { pid, stage, stopped, .. }) = next else {
                    self.processes[index].stage = Stage::Zombie(Exit::Code(u8::from(late)));
                    return None;
                };
                if let Stage::Runs(leads) = stage {
                    *leads = Some(token);
                }
                *stopped = false;
                let pid = *pid;
                self.leads(who, pid, Some(token), judge);
                None
            }
            Errand::Demote(workload) => {
                let takes = |process: &&mut Process| {
                    process.pid == workload && process.dies.is_none() && matches!(process.stage, Stage::Runs(_))
                };
                let taken = self.processes.iter_mut().find(takes).map(|process| process.stage = Stage::Runs(None));
                if taken.is_some() {
                    judge.gone(who, workload);
                }
                self.processes[index].stage = Stage::Zombie(Exit::Code(u8::from(taken.is_none())));
                None
            }
        }
    }

    /// A process runs as a leader, if it has a token.
    fn leads(&self, who: Who, pid: i32, token: Option<u64>, judge: &mut Judge) {
        let Some(token) = token else { return };
        let follows =
            |process: &&Process| matches!(process.part, Part::Hook | Part::Daemon) && matches!(process.stage, Stage::Runs(None));
        if let Some(rest) = self.processes.iter().find(follows) {
            judge.fail(Wrong::Overlap, format!("{who} leads as pid {pid} beside what a hook has left: {}", rest.pid));
        }
        judge.leads(who, pid, token);
    }

    /// SIGKILL to this process.
    pub fn kill_one(&mut self, pid: i32, dies: Ns) {
        let Some(process) = self.processes.iter_mut().find(|process| process.pid == pid) else { return };
        match process.stage {
            Stage::Forked(..) => process.stage = Stage::Zombie(Exit::Signal(9)),
            Stage::Runs(_) if self.hides => {}
            Stage::Runs(_) => process.dies = process.dies.or(Some(dies)),
            Stage::Zombie(_) => {}
        }
    }

    /// Returns whether this process was forked, and has not run its errand.
    pub fn is_forked(&self, pid: i32) -> bool {
        self.processes.iter().any(|process| process.pid == pid && matches!(process.stage, Stage::Forked(..)))
    }

    /// Sends the workload a signal that tells it its role.
    pub fn order(&mut self, pid: i32, role: Role, token: u64) {
        if let Some(process) = self.processes.iter_mut().find(|process| process.pid == pid) {
            process.orders.push_back((role, token));
        }
    }

    /// Returns whether there are orders that are not obeyed yet.
    pub fn has_orders(&self) -> bool {
        self.processes.iter().any(|process| !process.orders.is_empty())
    }

    /// Returns whether the workload runs and leads.
    pub fn is_leading(&self) -> bool {
        self.processes.iter().any(|process| process.part == Part::Workload && matches!(process.stage, Stage::Runs(Some(_))))
    }

    /// Returns whether the workload runs, and may say something.
    pub fn is_running(&self) -> bool {
        self.processes.iter().any(|process| process.part == Part::Workload && matches!(process.stage, Stage::Runs(_)))
    }

    /// SIGKILL to every process; whether there was any.
    pub fn kill(&mut self, who: Who, death: Ns, now: Ns, judge: &mut Judge) -> bool {
        for process in &mut self.processes {
            match process.stage {
                Stage::Forked(..) => process.stage = Stage::Zombie(Exit::Signal(9)),
                Stage::Runs(_) if self.hides => {}
                Stage::Runs(_) => process.dies = process.dies.or(Some(now + death)),
                Stage::Zombie(_) => {}
            }
        }
        self.bury(who, now, judge);
        !self.processes.is_empty()
    }

    /// Returns whether there is a process that SIGKILL has not reached.
    pub fn is_untouched(&self) -> bool {
        self.processes.iter().any(|process| !matches!(process.stage, Stage::Zombie(_)) && process.dies.is_none())
    }

    /// The workload ends by itself.
    pub fn exit(&mut self, who: Who, judge: &mut Judge) {
        for process in &mut self.processes {
            if process.part == Part::Workload && matches!(process.stage, Stage::Runs(Some(_))) {
                process.stage = Stage::Zombie(Exit::Code(1));
                judge.gone(who, process.pid);
            }
        }
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

    /// Scans the processes, as init does.
    pub fn scan(&self, killed: bool) -> Scan {
        let hidden = |process: &&Process| self.hides && matches!(process.stage, Stage::Runs(_));
        let left: Vec<i32> = self.processes.iter().filter(|process| !hidden(process)).map(|process| process.pid).collect();
        Scan { clean: left.is_empty(), left, denied: false, killed }
    }

    /// Returns whether every process runs, and goes on.
    pub fn rests(&self) -> bool {
        let steady = |process: &Process| matches!(process.stage, Stage::Runs(_)) && process.dies.is_none();
        self.processes.iter().all(steady) && !self.has_orders()
    }

    /// When the last one will be dead, if all are killed.
    pub fn end(&self, now: Ns) -> Ns {
        let living = self.processes.iter().filter(|process| matches!(process.stage, Stage::Runs(_)));
        living.filter_map(|process| process.dies).max().unwrap_or(now)
    }
}

impl Process {
    fn is_running_hook(&self) -> bool {
        self.part == Part::Hook && self.dies.is_none() && matches!(self.stage, Stage::Runs(_))
    }

    /// Returns whether the process has something to do.
    fn is_busy(&self) -> bool {
        !self.orders.is_empty() || self.is_running_hook()
    }
}
