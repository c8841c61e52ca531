//! The agent by the numbers of the law, in virtual time.

use std::time::Duration;

use super::*;
use crate::{
    config::{self, Acknowledge, OnExit, Runs, Signal},
    law::Deadlines,
    link::{Confirmed, Exit, Reason, TermInfo, Then, ToInit},
    role::Role,
    slot::Slot,
    supervision::interface::{NotSpawned, RoleInput, Scan, Target},
};

mod always;
mod begin;
mod deadlines;
mod electors;
mod frozen;
mod health;
mod hooks;
mod leading;
mod once;
mod orphans;
mod plain;
mod shutdown;
mod standby_command;
mod task;
mod term_status;
mod terms;
mod withdrawing;

/// The workload's main process.
const MAIN: i32 = 100;

fn ms(n: u64) -> Instant {
    Instant::from_nanos(n * 1_000_000)
}

const fn tick() -> Duration {
    Duration::from_nanos(1)
}

/// D 15 s, rho 1 %, G 4 s, killMargin 1 s: S is 9.85 s, H 13.85 s, E 14.85 s after a send.
fn config() -> Config {
    let workload = config::WorkloadConfig { command: vec!["work".into()], ..config::WorkloadConfig::default() };
    Config { workload, ..Config::default() }
}

/// The same for a workload that runs everywhere, and is told its role by signals.
fn told_by_signals(mut config: Config, acknowledge: Acknowledge) -> Config {
    config.workload.runs = Runs::Always;
    config.workload.acknowledge = Some(acknowledge);
    (config.signals.on_lead, config.signals.on_follow) = (Some(Signal(libc::SIGUSR1)), Some(Signal(libc::SIGUSR2)));
    config
}

/// An agent, the time, and what it wanted done since the last look.
#[derive(Clone)]
struct World {
    agent: Agent,
    now: Instant,
    actions: Vec<Action>,
    pid: i32,
}

impl World {
    /// Init as PID 1 with an elector that has said Hello, one second after the boot.
    fn new(config: Config) -> Self {
        Self::with(config, true)
    }

    fn with(config: Config, pid1: bool) -> Self {
        let mut world = Self::of(config, pid1, false);
        world.due();
        world.take();
        world.greet();
        world
    }

    /// At the start of init, before its first wake-up.
    fn of(config: Config, pid1: bool, terminal: bool) -> Self {
        let preset = Preset::Run;
        Self::at(AgentConfig {
            config: config.into(),
            preset,
            began: Instant::BOOT,
            identity: "me".into(),
            context: None,
            pid1,
            terminal,
        })
    }

    fn at(config: AgentConfig) -> Self {
        let agent = Agent::new(config);
        Self { agent, now: ms(1000), actions: Vec::new(), pid: MAIN }
    }

    /// Runs as a standby, and its elector has said Hello.
    fn standby(config: Config) -> Self {
        let mut world = Self::of(config, true, false);
        world.due();
        assert_eq!(world.spawns(), Some((Some(Role::Standby), None)));
        world.run();
        world.greet();
        world
    }

    /// An elector starts, and says Hello.
    fn greet(&mut self) {
        self.feed(Input::ElectorStarted);
        self.told(ToInit::Hello);
    }

    /// Leads from now on, and runs.
    fn leading(config: Config) -> Self {
        let mut world = Self::new(config);
        world.leads();
        world
    }

    fn feed(&mut self, input: Input) {
        self.agent.handle(input, self.now);
        self.collect();
    }

    fn told(&mut self, message: ToInit) {
        self.feed(Input::Told(message));
    }

    /// Advances the time to `at` without waking the agent.
    fn sleep_until(&mut self, at: Instant) {
        self.now = at;
    }

    /// Advances the time to `at`, waking the agent whenever it asks for it.
    #[track_caller]
    fn wake_until(&mut self, at: Instant) {
        let mut at_once = 0;
        while let Some(next) = self.agent.poll_timeout().filter(|next| *next <= at) {
            at_once = if next > self.now { 0 } else { at_once + 1 };
            assert!(at_once < 100, "its timeout is over, again and again");
            self.now = self.now.max(next);
            self.due();
            if self.actions.iter().any(|action| matches!(action, Action::Sweep | Action::KillAll | Action::Prove)) {
                break;
            }
        }
        self.now = self.now.max(at);
    }

    /// Orders this at `at`, and not a tick earlier.
    #[track_caller]
    fn only_at(&mut self, at: Instant, action: &Action) {
        self.wake_until(at.before(tick()));
        assert!(!self.wants(action), "{:?}", self.actions);
        self.wake_until(at);
        assert!(self.wants(action), "{:?}", self.actions);
    }

    fn due(&mut self) {
        self.agent.handle_timeout(self.now);
        self.collect();
    }

    fn collect(&mut self) {
        while let Some(action) = self.agent.poll_action() {
            self.actions.push(action);
        }
    }

    fn take(&mut self) -> Vec<Action> {
        std::mem::take(&mut self.actions)
    }

    /// What the elector was told since the last look.
    fn tells(&mut self) -> Vec<ToElector> {
        let tell = |action| if let Action::Tell(message) = action { Some(message) } else { None };
        self.take().into_iter().filter_map(tell).collect()
    }

    fn started_elector(&mut self) -> Option<InitialState> {
        self.take().contains(&Action::StartElector).then(|| self.agent.initial_state())
    }

    /// The elector ends, and the next one is started.
    fn replace_elector(&mut self) -> InitialState {
        self.feed(Input::ElectorEnded);
        self.due();
        self.started_elector().expect("another elector")
    }

    fn wants(&self, action: &Action) -> bool {
        self.actions.contains(action)
    }

    fn spawns(&self) -> Option<(Option<Role>, Option<Launch>)> {
        let spawn =
            |action: &Action| if let Action::Spawn { role, launch } = action { Some((*role, launch.clone())) } else { None };
        self.actions.iter().find_map(spawn)
    }

    fn lead(&mut self, term: u64) {
        self.lead_by(term, self.now);
    }

    /// A Lead that init reads only at its S, so that nothing is started.
    fn lead_too_late(&mut self, term: u64) {
        let sent = self.now;
        self.sleep_until(deadlines(sent).soft);
        self.lead_by(term, sent);
    }

    /// Leads from now on, and runs.
    fn leads(&mut self) {
        self.lead(1);
        self.run();
        self.take();
    }

    /// Is told by a signal to lead, and says that it does.
    fn promoted(&mut self) {
        self.lead(1);
        self.feed(Input::Role(RoleInput::Signalled));
        self.feed(Input::Role(RoleInput::Notified(Role::Leader)));
    }

    /// Was told by a signal to follow, and says that it does.
    fn demoted(&mut self) {
        self.feed(Input::Role(RoleInput::Signalled));
        self.feed(Input::Role(RoleInput::Notified(Role::Standby)));
    }

    /// The reason of a stop that init has begun since the last look.
    fn stops(&self) -> Option<Reason> {
        let stop =
            |action: &Action| if let Action::Tell(ToElector::Stopping { reason, .. }) = action { Some(*reason) } else { None };
        self.actions.iter().find_map(stop)
    }

    fn lead_by(&mut self, term: u64, sent: Instant) {
        self.told(ToInit::Lead { term: Term(term), info: info(), confirmed: confirmed(sent) });
    }

    fn extend(&mut self, term: u64, serial: u64, sent: Instant) {
        self.told(ToInit::Extend { term: Term(term), serial, confirmed: confirmed(sent) });
    }

    fn step_down(&mut self, request: u64, reason: Reason) {
        self.told(ToInit::StepDown { term: Term(1), request, reason, traceparent: String::new() });
    }

    /// The spawned command runs.
    fn run(&mut self) {
        assert!(self.spawns().is_some(), "nothing was spawned: {:?}", self.actions);
        self.feed(Input::Forked { pid: self.pid });
        self.feed(Input::Spawned);
    }

    /// The main process ends.
    fn exit(&mut self, exit: Exit) {
        self.feed(Input::Reaped { pid: self.pid, exit });
    }

    /// The sweep that is due finds nobody.
    fn prove(&mut self) {
        self.due();
        assert!(self.wants(&Action::Sweep), "no sweep: {:?}", self.actions);
        self.feed(Input::Scanned(Scan { clean: true, ..Scan::default() }));
    }

    /// The main process ends, and the sweep finds nobody.
    fn exit_proved(&mut self, exit: Exit) {
        self.exit(exit);
        self.prove();
    }

    /// Request 9 asks the first term to end, and it does.
    fn step_down_proved(&mut self, reason: Reason, exit: Exit) {
        self.step_down(9, reason);
        self.exit_proved(exit);
    }

    /// The elector releases the Lease, and init ends.
    fn released_ends_with(&mut self, code: u8) {
        self.told(ToInit::Releasing { term: Term(1), serial: 1 });
        self.ended_ends_with(code);
    }

    /// The elector ends the term, and init ends.
    fn ended_ends_with(&mut self, code: u8) {
        self.told(ToInit::Ended { term: Term(1), backoff: None });
        self.done_ends_with(code);
    }

    /// The elector is done, and init ends.
    fn done_ends_with(&mut self, code: u8) {
        self.told(ToInit::Done);
        assert_eq!(self.actions.last(), Some(&Action::Exit(code)));
    }

    /// Advances the time to `at`, with a process that no SIGKILL removes. Detects a busy loop.
    fn never_proved(&mut self, at: Instant) {
        for _ in 0..1000 {
            let Some(next) = self.agent.poll_timeout().filter(|next| *next <= at) else {
                self.now = self.now.max(at);
                return;
            };
            self.now = self.now.max(next);
            let before = self.actions.len();
            self.due();
            let scans = |action: &Action| matches!(action, Action::Sweep | Action::KillAll | Action::Prove);
            if self.actions.iter().skip(before).any(scans) {
                self.feed(Input::Scanned(Scan { left: vec![7], killed: true, ..Scan::default() }));
            }
        }
        panic!("it spins at {:?}", self.now);
    }

    fn stopped(&mut self) -> Option<(u64, Then)> {
        self.tells()
            .into_iter()
            .find_map(|message| if let ToElector::Stopped { request, then, .. } = message { Some((request, then)) } else { None })
    }
}

fn info() -> TermInfo {
    TermInfo {
        slot: Slot::default(),
        token: "7".into(),
        uid: "u".into(),
        transitions: 3,
        acquired_at: "2026-01-01T00:00:00.000000Z".into(),
        traceparent: String::new(),
    }
}

fn deadlines(sent: Instant) -> Deadlines {
    config().timing().deadlines(sent)
}

fn confirmed(sent: Instant) -> Confirmed {
    Confirmed { resource_version: "7".into(), preferred_holder: None, deadlines: deadlines(sent) }
}

fn acknowledged(term: u64, serial: u64) -> ToElector {
    ToElector::Acknowledged { term: Term(term), serial }
}

const fn to_main(signal: i32) -> Action {
    Action::Signal { target: Target::Main(MAIN), signal: Signal(signal) }
}
