use super::{
    container::{Dead, Ended, Order, Program, Started},
    *,
};
use crate::{
    config::{Config, ExecProbe, Preset, Probe, Runs, Signal, WorkloadConfig},
    link::{Exit, InitialState, ToElector, ToInit},
    supervision::interface::{NotSpawned, Scan, Target, TermStatus},
};

/// A world in which each look at a source takes some time. It notes what is done.
struct World {
    now: Instant,
    takes: Duration,
    messages: VecDeque<Result<ToInit, LinkBroken>>,
    /// What arrives while a child is reaped.
    meanwhile: VecDeque<Result<ToInit, LinkBroken>>,
    /// After so many looks at an empty link that much time passes, and a heartbeat comes.
    gap: Option<(u32, Duration)>,
    signals: VecDeque<i32>,
    dead: VecDeque<i32>,
    started: Option<Started>,
    /// No process is left for another child.
    is_full: bool,
    /// No further child gets as far as its program, for this reason.
    failed: Option<NotSpawned>,
    /// The workload is another user's.
    is_others: bool,
    done: Vec<String>,
}

impl World {
    fn new(takes: Duration) -> Self {
        let (messages, meanwhile, signals, dead) = (VecDeque::new(), VecDeque::new(), VecDeque::new(), VecDeque::new());
        let (now, started, failed, is_full, is_others) = (Instant::from_nanos(1_000_000_000), None, None, false, false);
        Self { now, takes, messages, meanwhile, gap: None, signals, dead, started, is_full, failed, is_others, done: Vec::new() }
    }

    fn does(&mut self, what: impl Into<String>) {
        self.done.push(what.into());
    }
}

impl Container for World {
    fn now(&self) -> Instant {
        self.now
    }
    fn fuse_fired(&mut self) -> bool {
        false
    }
    fn lives(&mut self) -> bool {
        true
    }
    fn message(&mut self) -> Option<Result<ToInit, LinkBroken>> {
        let Some(message) = self.messages.pop_front() else {
            if let Some((looks, span)) = self.gap.take() {
                self.gap = Some((looks - 1, span)).filter(|(looks, _)| *looks > 0);
                if self.gap.is_none() {
                    self.now += span;
                    self.messages.push_back(Ok(ToInit::Heartbeat));
                }
            }
            return None;
        };
        self.does(if message.is_ok() { "a message" } else { "the end of the link" });
        Some(message)
    }
    fn signal(&mut self) -> Option<i32> {
        let signal = self.signals.pop_front()?;
        self.does(format!("signal {signal}"));
        Some(signal)
    }
    fn dead(&mut self) -> Dead {
        self.dead.front().map_or(Dead::Nobody, |pid| Dead::Process(*pid))
    }
    fn reap(&mut self, pid: i32) -> Option<Ended> {
        self.now += self.takes;
        self.messages.append(&mut self.meanwhile);
        self.dead.retain(|dead| *dead != pid);
        let exit = Exit::Code(if self.failed.is_some() { 126 } else { 0 });
        Some(Ended { exit, started: self.failed.clone().map(Err) })
    }
    fn started(&mut self) -> Option<Started> {
        self.started.take()
    }
    fn is_group_gone(&mut self, _: i32) -> bool {
        true
    }
    fn heard(&mut self) -> Option<Heard> {
        None
    }
    fn start_elector(&mut self, _: InitialState) -> Result<i32, NotSpawned> {
        self.does("starts an elector");
        Ok(2)
    }
    fn kill_elector(&mut self) {
        self.does("kills the elector");
    }
    fn close_link(&mut self) {
        self.does("closes the link");
    }
    fn send(&mut self, _: ToElector) {}
    fn fork(&mut self, _: Program) -> Result<i32, NotSpawned> {
        if self.is_full {
            return Err(NotSpawned::Unavailable { message: "no process".into() });
        }
        self.does("forks");
        self.dead.extend(self.failed.as_ref().map(|_| 3));
        Ok(3)
    }
    fn tell(&mut self, _: Order) -> Result<Option<i32>, String> {
        Ok(None)
    }
    fn kill(&mut self, target: Target, signal: Signal) -> bool {
        self.does(format!("signal {} to {target:?}", signal.0));
        !self.is_others
    }
    fn wake(&mut self, _: Target) {}
    fn frozen(&mut self, _: bool) -> bool {
        false
    }
    fn scan(&mut self, _: bool) -> Scan {
        Scan { clean: true, ..Scan::default() }
    }
    fn kill_all(&mut self) {}
    fn follow_hard(&mut self, _: Option<Instant>) {}
    fn publish(&mut self, _: TermStatus) {}
    fn say(&mut self, line: String) {
        self.does(line);
    }
    fn last_words(&mut self, _: &str, _: u8) {}
    fn die(&mut self) {}
}

/// Init in its second turn: an elector runs, nothing else.
fn turn(world: &mut World) -> Turn {
    let turn = turn_of(WorkloadConfig { command: vec!["work".into()], ..WorkloadConfig::default() }, true, world);
    assert_eq!(std::mem::take(&mut world.done), ["starts an elector"]);
    turn
}

fn turn_of(workload: WorkloadConfig, pid1: bool, world: &mut World) -> Turn {
    let (config, identity) = (Config { workload, ..Config::default() }, "me".into());
    let (preset, began) = (Preset::Run, Instant::BOOT);
    let mut turn =
        Turn::new(AgentConfig { config: config.into(), preset, began, identity, context: None, pid1, terminal: false }, 0);
    turn.run(world);
    turn
}

/// How many of so many dead orphans one turn reaps, if each takes this long, and whether the next turn comes at once.
fn reaped(takes: Duration, orphans: i32) -> (usize, bool) {
    let mut world = World::new(takes);
    let mut turn = turn(&mut world);
    world.dead = (100..100 + orphans).collect();
    turn.run(&mut world);
    (usize::try_from(orphans).unwrap() - world.dead.len(), turn.due(world.now) == Some(world.now))
}

#[test]
fn the_deadlines_wait_for_no_number_of_dead_orphans_however_long_each_takes_to_reap() {
    assert_eq!(reaped(Duration::from_micros(1), 10_000), (10_000, false));
    assert_eq!(reaped(Duration::from_millis(1), 10_000), (20, true));
    assert_eq!(reaped(Duration::from_secs(1), 10_000), (1, true));
}

#[test]
fn the_deadlines_wait_for_no_flood_of_messages_or_signals() {
    let mut world = World::new(Duration::ZERO);
    let mut turn = turn(&mut world);
    world.messages = (0..10_000).map(|_| Ok(ToInit::Heartbeat)).collect();
    world.signals = std::iter::repeat_n(libc::SIGCHLD, 10_000).collect();

    turn.run(&mut world);

    assert_eq!(world.messages.len(), 10_000 - 2 * 256, "the link is read twice");
    assert_eq!(world.signals.len(), 10_000 - 256);
}

/// Init was stopped before it read the clock, or just after it had read the link for the last time.
#[test]
fn an_elector_that_was_heard_of_in_a_gap_of_inits_own_is_not_silent() {
    for looks in [1, 2] {
        let mut world = World::new(Duration::ZERO);
        let mut turn = turn(&mut world);
        world.messages = [Ok(ToInit::Hello)].into();
        turn.run(&mut world);
        world.now += Duration::from_secs(14);
        turn.run(&mut world);
        world.gap = Some((looks, Duration::from_secs(1)));

        turn.run(&mut world);
        turn.run(&mut world);

        assert_eq!((&world.gap, &*world.done), (&None, &["a message"; 2].map(str::to_owned)[..]), "{looks}");
    }
}

#[test]
fn what_follows_from_the_end_of_the_link_is_done_before_the_next_signal_is_heard() {
    let mut world = World::new(Duration::ZERO);
    let mut turn = turn(&mut world);
    world.messages = [Err(LinkBroken), Err(LinkBroken)].into();
    world.signals = [libc::SIGCHLD].into();

    turn.run(&mut world);

    let expected = ["the end of the link", "kills the elector", "the end of the link", "closes the link", "signal 17"];
    assert_eq!(world.done[..5], expected);
}

#[test]
fn what_waits_on_the_link_is_read_before_an_end_of_the_workload_is_judged() {
    let mut world = World::new(Duration::ZERO);
    let mut turn = turn(&mut world);
    turn.main = Some(7);
    (world.dead, world.meanwhile) = ([7].into(), [Ok(ToInit::Heartbeat)].into());

    while !world.dead.is_empty() {
        turn.step(&mut world);
    }

    assert_eq!(world.done, ["a message"]);
}

#[test]
fn a_command_that_cannot_be_executed_has_not_ended() {
    let mut world = World::new(Duration::ZERO);
    world.failed = Some(NotSpawned::Failed { code: 126, message: "no program".into() });
    let (command, runs) = (vec!["work".into()], Runs::Always);

    let mut turn = turn_of(WorkloadConfig { command, runs, ..WorkloadConfig::default() }, true, &mut world);
    turn.run(&mut world);

    assert_eq!(world.done, ["starts an elector", "forks", "kills the elector", "closes the link"]);
    assert_eq!(turn.over(), Some(126));
}

#[test]
fn a_probe_that_the_system_has_no_process_for_is_said_once_and_does_not_count() {
    let (mut world, mut turn) = probed();
    world.is_full = true;

    let full = live(&mut turn, &mut world, 60);
    world.is_full = false;
    let free = live(&mut turn, &mut world, 10);

    assert_eq!(full, ["workload.liveness.exec cannot be run now, which does not count: no process"]);
    assert_eq!(free.first().map(String::as_str), Some("forks"), "{free:?}");
}

#[test]
fn a_probe_whose_command_cannot_be_executed_says_why_and_no_memory_left_for_it_does_not_count() {
    let (mut world, mut turn) = probed();
    world.failed = Some(NotSpawned::Unavailable { message: "no memory".into() });

    let mut lacking = live(&mut turn, &mut world, 60);
    lacking.retain(|done| done != "forks" && !done.starts_with("signal"));
    world.failed = Some(NotSpawned::Failed { code: 126, message: "no program".into() });
    let wrong = live(&mut turn, &mut world, 10);

    assert_eq!(lacking, ["workload.liveness.exec cannot be run now, which does not count: no memory"]);
    assert!(wrong.contains(&"the liveness probe failed: ask: no program".into()), "{wrong:?}");
}

/// A standby that is asked by a command whether it is live, as soon as it has started.
fn probed() -> (World, Turn) {
    let mut world = World::new(Duration::ZERO);
    let exec = Probe { exec: ExecProbe { command: vec!["ask".into()] }, failure_threshold: 1, ..Probe::default() };
    let (command, runs) = (vec!["work".into()], Runs::Always);
    let mut turn = turn_of(WorkloadConfig { command, runs, liveness: exec, ..WorkloadConfig::default() }, true, &mut world);
    assert_eq!(live(&mut turn, &mut world, 0), ["starts an elector", "forks"]);
    world.messages.push_back(Ok(ToInit::Hello));
    world.started = Some(Ok(()));
    (world, turn)
}

/// What is done in so many seconds, with an elector that is heard of.
fn live(turn: &mut Turn, world: &mut World, seconds: u64) -> Vec<String> {
    for _ in 0..seconds {
        world.messages.push_back(Ok(ToInit::Heartbeat));
        world.now += Duration::from_secs(1);
        turn.run(world);
    }
    std::mem::take(&mut world.done).into_iter().filter(|done| done != "a message").collect()
}

#[test]
fn a_workload_that_may_not_be_signalled_dies_with_the_container_if_there_is_one() {
    for (pid1, words) in [(true, "it dies only with the container"), (false, "it may run on without tenure and its Lease")] {
        let mut world = World::new(Duration::ZERO);
        let (command, runs) = (vec!["work".into()], Runs::Always);
        let mut turn = turn_of(WorkloadConfig { command, runs, ..WorkloadConfig::default() }, pid1, &mut world);
        (world.started, world.is_others, world.signals) = (Some(Ok(())), true, [libc::SIGTERM].into());

        turn.run(&mut world);

        let said: Vec<_> = world.done.iter().filter(|done| done.contains("may not signal")).collect();
        assert!(matches!(said[..], [line] if line.contains(words)), "{:?}", world.done);
    }
}
