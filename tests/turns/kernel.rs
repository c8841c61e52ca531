//! The kernel under init: processes, the link, the clock. It tells the judge of every call.

use std::collections::{BTreeMap, VecDeque};

use tenure::{
    config::Signal,
    link::{Exit, InitialState, ToElector, ToInit},
    role::Role,
    supervision::{
        Container, Dead, Ended, Heard, HelperKind, LinkBroken, NotSpawned, Order, Program, Scan, Started, Target, TermStatus,
    },
    time::Instant,
};

use super::judge::Judge;

/// A living process.
#[derive(Clone, Debug)]
pub(crate) struct Process {
    pub(crate) is: Is,
    /// It ignores the stop signal.
    pub(crate) deaf: bool,
    /// No SIGKILL of init's removes it.
    pub(crate) undying: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Is {
    Elector,
    Main,
    Helper(HelperKind),
    /// The child that tells the workload its role, with the mark that it sets.
    Teller(Role, Option<u64>),
    Orphan,
}

#[derive(Default)]
pub(crate) struct Kernel {
    pub(crate) now: Instant,
    pub(crate) rng: fastrand::Rng,
    pub(crate) judge: Judge,
    pub(crate) living: BTreeMap<i32, Process>,
    pub(crate) dead: VecDeque<(i32, Ended)>,
    last_pid: i32,
    electors: Vec<i32>,
    /// The elector at the other end of the link.
    pub(crate) elector: Option<i32>,
    pub(crate) to_init: VecDeque<Result<ToInit, LinkBroken>>,
    pub(crate) to_elector: VecDeque<ToElector>,
    pub(crate) signals: VecDeque<i32>,
    pub(crate) heard: VecDeque<Heard>,
    started: Option<Started>,
    pub(crate) main: Option<i32>,
    has_fired: bool,
    /// How long it takes to reap a child.
    pub(crate) reaping: std::time::Duration,
    /// A frozen workload was continued by somebody, or cannot be stopped.
    pub(crate) thawed: bool,
}

impl Kernel {
    pub(crate) fn new(rng: fastrand::Rng, judge: Judge) -> Self {
        let now = Instant::from_nanos(100_000_000_000);
        Self { now, rng, judge, last_pid: 1, ..Self::default() }
    }

    pub(crate) fn fork_as(&mut self, is: Is) -> i32 {
        self.last_pid += 1;
        let is_workload = !matches!(is, Is::Elector | Is::Teller(..));
        let (deaf, undying) = (is_workload && self.rng.u8(..4) == 0, is_workload && self.rng.u8(..20) == 0);
        self.living.insert(self.last_pid, Process { is, deaf, undying });
        self.last_pid
    }

    /// Ends a process; init has still to reap it.
    pub(crate) fn ends(&mut self, pid: i32, exit: Exit) {
        if self.living.remove(&pid).is_some() {
            self.dead.push_back((pid, Ended { exit, started: Some(Ok(())) }));
            if !self.signals.contains(&libc::SIGCHLD) {
                self.signals.push_back(libc::SIGCHLD);
            }
        }
    }

    /// The fuse fires.
    pub(crate) fn fires(&mut self) {
        (self.has_fired, self.judge.fired) = (true, Some(self.now));
        self.workload().into_iter().for_each(|pid| self.sigkill(pid));
    }

    fn sigkill(&mut self, pid: i32) {
        if self.living.get(&pid).is_some_and(|process| !process.undying) {
            self.ends(pid, Exit::Signal(libc::SIGKILL));
        }
    }

    fn workload(&self) -> Vec<i32> {
        self.living.iter().filter(|(_, process)| process.is != Is::Elector).map(|(pid, _)| *pid).collect()
    }
}

impl Container for Kernel {
    fn now(&self) -> Instant {
        self.now
    }
    fn fuse_fired(&mut self) -> bool {
        std::mem::take(&mut self.has_fired)
    }
    fn lives(&mut self) -> bool {
        !self.workload().is_empty()
    }
    fn message(&mut self) -> Option<Result<ToInit, LinkBroken>> {
        let message = self.to_init.pop_front()?;
        if let Ok(message) = &message {
            self.judge.reads(message, self.now);
        }
        Some(message)
    }
    fn signal(&mut self) -> Option<i32> {
        let signal = self.signals.pop_front()?;
        self.judge.signal(signal, self.now);
        Some(signal)
    }
    fn dead(&mut self) -> Dead {
        self.dead.front().map_or(Dead::Nobody, |(pid, _)| Dead::Process(*pid))
    }
    fn reap(&mut self, pid: i32) -> Option<Ended> {
        self.now += self.reaping;
        let index = self.dead.iter().position(|(dead, _)| *dead == pid)?;
        let (_, mut ended) = self.dead.remove(index)?;
        if self.main == Some(pid) {
            self.main = None;
            if let Some(started) = self.started.take() {
                ended.started = Some(started);
            }
        }
        self.judge.reaped(pid, &ended, self.electors.contains(&pid), self.now);
        Some(ended)
    }
    fn started(&mut self) -> Option<Started> {
        self.started.take()
    }
    fn is_group_gone(&mut self, group: i32) -> bool {
        !self.living.contains_key(&group)
    }
    fn heard(&mut self) -> Option<Heard> {
        self.heard.pop_front()
    }
    fn start_elector(&mut self, _: InitialState) -> Result<i32, NotSpawned> {
        let pid = self.fork_as(Is::Elector);
        self.elector = Some(pid);
        self.electors.push(pid);
        self.to_init.clear();
        self.to_elector.clear();
        self.judge.elector(Some(pid), self.now);
        Ok(pid)
    }
    fn kill_elector(&mut self) {
        if let Some(elector) = self.elector {
            self.judge.killed = Some((elector, self.now));
            // It may hang in the kernel for long.
            if self.rng.u8(..3) > 0 {
                self.sigkill(elector);
            }
        }
    }
    fn close_link(&mut self) {
        self.elector = None;
        self.to_init.clear();
        self.judge.elector(None, self.now);
    }
    fn send(&mut self, message: ToElector) {
        self.judge.sends(&message, self.now);
        if self.elector.is_some() {
            self.to_elector.push_back(message);
        }
    }
    fn fork(&mut self, program: Program) -> Result<i32, NotSpawned> {
        self.judge.forks(&program, self.now);
        match program.helper {
            None if self.rng.u8(..30) == 0 => Err(NotSpawned::Unavailable { message: "no process".into() }),
            None => {
                let pid = self.fork_as(Is::Main);
                (self.main, self.started, self.thawed) = (Some(pid), Some(Ok(())), false);
                self.judge.main(pid);
                if self.rng.u8(..12) == 0 {
                    self.started = Some(Err(NotSpawned::Late));
                    self.living.insert(pid, Process { is: Is::Main, deaf: false, undying: false });
                    self.ends(pid, Exit::Code(1));
                }
                Ok(pid)
            }
            Some(kind) => Ok(self.fork_as(Is::Helper(kind))),
        }
    }
    fn tell(&mut self, order: Order) -> Result<Option<i32>, String> {
        self.judge.tells(order, self.now);
        match order {
            Order::Mark(number) => {
                self.heard.push_back(Heard::Marked(number));
                Ok(None)
            }
            Order::Signal { not_after: None, until_taken: false, .. } => Ok(None),
            Order::Signal { role, mark, .. } => Ok(Some(self.fork_as(Is::Teller(role, mark)))),
            Order::Resume { .. } => Ok(Some(self.fork_as(Is::Teller(Role::Leader, None)))),
        }
    }
    fn kill(&mut self, target: Target, signal: Signal) -> bool {
        let (Target::Main(pid) | Target::Group(pid)) = target;
        if self.main == Some(pid) {
            self.judge.signals_main(signal, self.now);
        }
        match signal.0 {
            libc::SIGKILL => self.sigkill(pid),
            libc::SIGTERM if self.living.get(&pid).is_some_and(|process| !process.deaf) && self.rng.bool() => {
                self.ends(pid, Exit::Signal(libc::SIGTERM));
            }
            _ => {}
        }
        true
    }
    fn wake(&mut self, _: Target) {}
    fn frozen(&mut self, _: bool) -> bool {
        let is_frozen = !self.thawed && self.rng.u8(..6) > 0;
        self.judge.looks(is_frozen);
        is_frozen
    }
    fn scan(&mut self, kill: bool) -> Scan {
        let targets = self.workload();
        if kill {
            targets.iter().for_each(|pid| self.sigkill(*pid));
        }
        let unreaped = self.dead.iter().map(|(pid, _)| *pid).filter(|pid| !self.electors.contains(pid));
        let left: Vec<i32> = self.workload().into_iter().chain(unreaped).collect();
        let denied = kill && !self.workload().is_empty();
        let scan = Scan { clean: left.is_empty(), denied, killed: kill && !targets.is_empty(), left };
        self.judge.scans(kill, &scan, self.now);
        scan
    }
    fn kill_all(&mut self) {
        self.judge.kills_all(self.now);
        let all: Vec<i32> = self.living.keys().copied().collect();
        all.into_iter().for_each(|pid| self.sigkill(pid));
    }
    fn follow_hard(&mut self, hard: Option<Instant>) {
        self.judge.fuse = hard;
    }
    fn publish(&mut self, status: TermStatus) {
        self.judge.publishes(status, self.now);
    }
    fn say(&mut self, _: String) {}
    fn last_words(&mut self, _: &str, _: u8) {}
    fn die(&mut self) {
        self.judge.dies(self.now);
    }
}
