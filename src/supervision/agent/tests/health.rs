//! A workload that is or is not ready and live, and what follows.

use super::*;
use crate::{
    config::{Probe, ProbeKind},
    link::LeaseBackoff,
    notification::Notification,
};

mod late;
mod roles;

const GRACE: Duration = Duration::from_secs(20);

/// Asked after 2 s, and then every 10 s; 3 failures in a row, or 2 successes after that.
fn asked(change: impl FnOnce(&mut Probe)) -> Probe {
    let mut probe = Probe { initial_delay: Duration::from_secs(2), success_threshold: 2, ..Probe::default() };
    change(&mut probe);
    probe
}

fn http(probe: &mut Probe) {
    probe.http.port = 80;
    probe.http.path = "/live?token=secret".into();
}

fn exec(probe: &mut Probe) {
    probe.exec.command = vec!["ask".into(), "-psecret".into()];
}

fn notify(probe: &mut Probe) {
    probe.notify = true;
}

fn live(by: impl FnOnce(&mut Probe)) -> Config {
    let mut config = config();
    config.workload.liveness = asked(by);
    config
}

fn ready(by: impl FnOnce(&mut Probe)) -> Config {
    let mut config = config();
    config.workload.readiness = asked(by);
    config.workload.start_timeout = Some(Duration::from_secs(60));
    config
}

/// A standby that says when it follows.
fn always(config: Config) -> Config {
    told_by_signals(config, Acknowledge::Notify)
}

/// A standby that runs, and is told by signals that it leads.
fn signalled(config: Config) -> World {
    World::standby(told_by_signals(config, Acknowledge::None))
}

impl World {
    /// Advances the time in steps of a second, with renewals.
    fn live_until(&mut self, at: Instant) {
        while self.now < at {
            let next = at.min(self.now + Duration::from_secs(1));
            self.wake_until(next);
            let serial = next.since(Instant::BOOT).as_secs();
            self.extend(1, serial, self.now);
        }
    }

    /// Orders this at `at`, and not a tick earlier.
    #[track_caller]
    fn only_at_while_it_is_renewed(&mut self, at: Instant, action: &Action) {
        self.live_until(at.before(tick()));
        assert!(!self.wants(action), "{:?}", self.actions);
        self.live_until(at);
        assert!(self.wants(action), "{:?}", self.actions);
    }

    /// Is stopped for this reason at `at`, and not a tick earlier.
    #[track_caller]
    fn stops_at(&mut self, at: Instant, reason: Reason) {
        self.live_until(at.before(tick()));
        assert_eq!(self.stops(), None);
        self.live_until(at);
        assert_eq!(self.stops(), Some(reason));
    }

    fn says(&mut self, said: Notification) {
        self.feed(Input::Notified(said));
    }

    /// What was asked since the last look, by a process or by the elector, and when.
    fn asks(&mut self) -> Vec<(ProbeKind, Instant)> {
        let ask = |action| {
            let (Action::Probe { kind, began, .. } | Action::Tell(ToElector::Probe { kind, began, .. })) = action else {
                return None;
            };
            Some((kind, began))
        };
        self.take().into_iter().filter_map(ask).collect()
    }

    fn answers(&mut self, failure: Option<&str>) {
        for (kind, began) in self.asks() {
            self.feed(Input::Probed { kind, began, failure: failure.map(str::to_owned) });
        }
    }

    /// The last word to the elector of whether it is ready.
    fn known(&self) -> Option<bool> {
        let known = |action: &Action| {
            if let Action::Tell(ToElector::Health { unready, .. }) = action { Some(unready.is_none()) } else { None }
        };
        self.actions.iter().rev().find_map(known)
    }
}

#[test]
fn the_elector_is_told_since_when_the_program_that_it_asks_runs() {
    let mut world = World::new(ready(http));
    world.lead(1);
    let started = world.now;
    world.sleep_until(started + Duration::from_millis(300));
    world.run();

    world.live_until(started + Duration::from_secs(3));

    let since = |action: &Action| if let Action::Tell(ToElector::Probe { since, .. }) = action { Some(*since) } else { None };
    let since = world.actions.iter().find_map(since);
    assert_eq!(since, Some(started), "not when the start was over: a program may write its file before that");
}

#[test]
fn a_leader_that_fails_as_often_as_allowed_is_stopped_and_gives_the_lease_back_for_one_duration() {
    let mut world = World::leading(live(http));
    for (at, failure) in [(3, None), (13, Some("refused")), (23, Some("refused")), (33, None), (43, Some("x")), (53, Some("x"))] {
        world.live_until(ms(at * 1000));
        assert_eq!(
            world.actions.iter().filter(|action| matches!(action, Action::Tell(ToElector::Probe { .. }))).count(),
            1,
            "{at}"
        );
        world.answers(failure);
        assert_eq!(world.stops(), None, "{at}");
    }
    world.live_until(ms(63_000));
    world.answers(Some("HTTP 503"));

    assert_eq!(world.stops(), Some(Reason::NotLive));
    assert!(world.wants(&to_main(libc::SIGTERM)));
    assert!(
        world.wants(&Action::Warn("the liveness probe failed 3 times in a row: GET http://127.0.0.1:80/live: HTTP 503".into()))
    );
    world.step_down(9, Reason::NotLive);
    world.only_at_while_it_is_renewed(ms(63_000) + GRACE, &Action::Sweep);
    world.exit(Exit::Signal(libc::SIGKILL));
    world.feed(Input::Scanned(Scan { clean: true, ..Scan::default() }));
    assert_eq!(world.stopped(), Some((9, Then::Follow)));
    let backoff = Some(LeaseBackoff { until: world.now + GRACE, failures: 1 });
    world.told(ToInit::Ended { term: Term(1), backoff });
    assert_eq!(world.agent.initial_state().backoff, backoff);
}

#[test]
fn an_elector_that_does_not_answer_says_nothing_of_the_workload_and_the_next_one_is_asked() {
    let mut world = World::leading(live(http));
    world.live_until(ms(3000));
    let asked = world.asks();
    world.live_until(ms(60_000));
    assert_eq!((asked.len(), world.asks().len(), world.stops()), (1, 0, None));

    world.replace_elector();
    world.greet();
    world.live_until(ms(63_000));
    let again = world.asks();
    assert_eq!(again.len(), 1);
    let [(kind, began)] = asked[..] else { panic!("{asked:?}") };
    for _ in 0..3 {
        world.feed(Input::Probed { kind, began, failure: Some("late".into()) });
    }
    assert_eq!(world.stops(), None, "that is the answer to another question");
}

#[test]
fn a_program_that_hangs_is_killed_at_its_timeout_and_fails_again_each_period_that_it_does_not_die() {
    let mut world = World::leading(live(exec));
    world.live_until(ms(3000));
    let launch = Some(Launch { info: Some(info()), not_after: deadlines(ms(2000)).soft });
    assert!(world.wants(&Action::Probe { kind: ProbeKind::Liveness, began: ms(3000), launch }));
    world.take();
    world.only_at_while_it_is_renewed(ms(4000), &Action::KillProbe(ProbeKind::Liveness));
    world.live_until(ms(23_000).before(tick()));
    assert_eq!((world.stops(), world.asks().len()), (None, 0));
    world.live_until(ms(23_000));
    assert_eq!(world.stops(), Some(Reason::NotLive));
    let line = "the liveness probe failed 3 times in a row: ask: no answer within 1s";
    assert!(world.wants(&Action::Warn(line.into())), "{:?}", world.actions);
}

#[test]
fn a_program_that_could_not_be_started_has_not_failed_and_is_asked_again_each_period() {
    let mut world = World::leading(live(exec));
    for at in [3, 13, 23, 33] {
        world.live_until(ms(at * 1000));
        let [(kind, began)] = world.asks()[..] else { panic!("{at}: {:?}", world.actions) };
        world.feed(Input::ProbeNotForked { kind, began });
        assert_eq!(world.stops(), None, "{at}");
    }

    for at in [43, 53, 63] {
        assert_eq!(world.stops(), None, "{at}");
        world.live_until(ms(at * 1000));
        world.answers(Some("exit code 1"));
    }
    assert_eq!(world.stops(), Some(Reason::NotLive), "only what the program answers counts");
}

#[test]
fn what_is_killed_at_its_timeout_has_failed_once_however_it_ends() {
    let mut world = World::leading(live(exec));
    for at in [3, 13] {
        world.live_until(ms(at * 1000 + 1500));
        world.answers(None);
        assert_eq!(world.stops(), None);
    }
    world.live_until(ms(24_000));
    assert_eq!(world.stops(), Some(Reason::NotLive));
}

#[test]
fn a_program_that_could_not_be_started_has_failed() {
    let mut world = World::leading(live(exec));
    for at in [3, 13, 23] {
        assert_eq!(world.stops(), None);
        world.live_until(ms(at * 1000));
        world.answers(Some("no further process can be started"));
    }
    assert_eq!(world.stops(), Some(Reason::NotLive));
}

/// It is asked whether it is live by a command, and whether it is ready over HTTP.
#[test]
fn a_leader_with_a_time_to_start_is_asked_whether_it_is_live_once_it_is_ready() {
    let kinds = |world: &mut World| world.asks().into_iter().map(|(kind, _)| kind).collect::<Vec<_>>();
    let limited = Some(Duration::from_secs(60));
    for (limit, hook, at_first) in [(None, None, 2), (limited, None, 1), (limited, Some("afterLead"), 1)] {
        let mut config = ready(http);
        config.hooks.after_lead.command = hook.into_iter().map(str::to_owned).collect();
        config.hooks.after_lead.timeout = Duration::from_secs(60);
        config.workload.liveness = asked(exec);
        config.workload.start_timeout = limit;
        let mut world = World::leading(config);
        for at in [3, 13, 23, 33] {
            world.live_until(ms(at * 1000));
            let asks = world.asks();
            assert_eq!(asks.len(), at_first, "{limit:?} {at}");
            for (kind, began) in asks {
                let failure = (kind == ProbeKind::Readiness && at < 23).then(|| "it starts".into());
                world.feed(Input::Probed { kind, began, failure });
            }
        }
        world.live_until(ms(43_000));
        assert_eq!(kinds(&mut world), [ProbeKind::Readiness, ProbeKind::Liveness], "it is ready");
    }
}

#[test]
fn what_answers_later_than_it_is_to_be_asked_again_is_asked_at_once() {
    for by in [http, exec] {
        let mut world = World::leading(live(|probe| {
            by(probe);
            probe.timeout = Duration::from_secs(25);
        }));
        world.live_until(ms(3000));
        let [(kind, began)] = world.asks()[..] else { panic!("it was not asked") };
        world.live_until(ms(15_500));
        assert_eq!(world.asks(), []);

        world.feed(Input::Probed { kind, began, failure: None });

        world.due();
        assert_eq!(world.asks(), [(kind, world.now)]);
    }
}

#[test]
fn what_a_workload_said_is_over_with_it() {
    let mut world = World::leading(ready(notify));
    world.says(Notification::Status("processing".into()));
    world.told(ToInit::Heartbeat);
    world.take();
    world.step_down(9, Reason::StepDown);
    let told = |world: &mut World| {
        world.tells().into_iter().rev().find_map(|message| {
            let ToElector::Health { status, .. } = message else { return None };
            Some(status)
        })
    };
    assert_eq!(world.agent.workload.unready(), Some("it is being stopped"));
    world.exit_proved(Exit::Code(0));
    world.told(ToInit::Heartbeat);
    assert_eq!(told(&mut world), Some(String::new()));
}

#[test]
fn a_watchdog_is_pulled_by_the_workload_and_means_nothing_to_one_that_is_asked_otherwise() {
    for (config, stops) in [(live(notify), Some(Reason::NotLive)), (live(http), None)] {
        let mut world = World::leading(config);
        world.says(Notification::WatchdogTrigger);
        assert_eq!(world.stops(), stops);
    }
}

/// It leads since 1 s, and says each of these words at its time.
#[test]
fn what_a_workload_says_decides_when_it_is_stopped_and_not_a_tick_earlier() {
    use Notification::{ExtendTimeout, Ready, Stopping, Watchdog, WatchdogSpan};
    let (not_live, not_ready, seconds) = (Reason::NotLive, Reason::NotReady, Duration::from_secs);
    let begins_ready =
        Config { workload: config::WorkloadConfig { liveness: asked(notify), ..ready(notify).workload }, ..config() };
    for (why, config, words, end, reason) in [
        ("a watchdog has its whole time from each word", live(notify), vec![(30, Watchdog)], 60, not_live),
        ("a watchdog begins with READY=1", begins_ready, vec![(50, Ready)], 82, not_live),
        ("the workload shortens its watchdog", live(notify), vec![(1, WatchdogSpan(seconds(5)))], 6, not_live),
        ("what says that it stops has its grace, and is asked no more", live(http), vec![(1, Stopping)], 21, not_live),
        ("a leader has its start timeout to be ready", ready(notify), vec![], 61, not_ready),
        ("one that is ready has none", ready(notify), vec![(60, Ready), (62, Stopping)], 82, not_live),
        (
            "a start takes as long as the workload says, and no later word shortens that",
            ready(notify),
            vec![(60, ExtendTimeout(seconds(5))), (64, ExtendTimeout(Duration::from_micros(1)))],
            65,
            not_ready,
        ),
    ] {
        let mut world = World::leading(config);
        for (at, said) in words {
            world.live_until(ms(at * 1000));
            world.says(said);
        }
        world.live_until(ms(end * 1000).before(tick()));
        assert_eq!((world.stops(), world.asks().len()), (None, 0), "{why}");
        world.live_until(ms(end * 1000));
        assert_eq!(world.stops(), Some(reason), "{why}");
    }
}

#[test]
fn a_watchdog_begins_once_a_limited_start_is_over_that_a_probe_judges() {
    let mut config = ready(http);
    config.workload.liveness = asked(notify);
    let mut world = World::leading(config);
    for at in [3, 13, 23, 33, 34, 43, 53] {
        world.live_until(ms(at * 1000));
        world.answers((at < 43).then_some("it starts"));
        assert_eq!(world.stops(), None, "{at}");
    }

    world.live_until(ms(85_000).before(tick()));
    assert_eq!(world.stops(), None);
    world.live_until(ms(85_000));
    assert_eq!(world.stops(), Some(Reason::NotLive));
}

#[test]
fn a_standby_has_its_watchdog_though_only_a_leader_is_ever_ready() {
    let mut config = always(ready(http));
    config.workload.liveness = asked(notify);
    let mut world = World::standby(config);
    let begun = world.now;

    world.wake_until((begun + Duration::from_secs(32)).before(tick()));
    assert!(!world.wants(&to_main(libc::SIGTERM)));
    world.wake_until(begun + Duration::from_secs(32));

    assert!(world.wants(&to_main(libc::SIGTERM)), "{:?}", world.actions);
}

#[test]
fn a_standby_that_is_not_ready_when_it_is_promoted_has_its_whole_watchdog_once_it_is() {
    let mut config = always(ready(http));
    config.workload.liveness = asked(notify);
    let mut world = World::standby(config);
    // It is ready once, and then not any more.
    for (probe, failure) in [None, None, Some("busy"), Some("busy"), Some("busy")].into_iter().enumerate() {
        world.wake_until(ms(3_000 + 10_000 * u64::try_from(probe).unwrap()));
        world.answers(failure);
        world.says(Notification::Watchdog);
    }
    assert!(world.agent.workload.unready().is_some());
    world.promoted();
    let promoted = world.now;

    for probe in [10, 20, 30, 40, 50] {
        world.live_until(promoted + Duration::from_secs(probe));
        world.answers((probe < 40).then_some("busy"));
        assert!(!world.wants(&to_main(libc::SIGTERM)), "{probe}");
    }
    assert!(world.agent.workload.unready().is_none());
    world.only_at_while_it_is_renewed(promoted + Duration::from_secs(82), &to_main(libc::SIGTERM));
}

#[test]
fn a_watchdog_that_slept_with_init_has_its_whole_time_again() {
    let mut world = World::leading(live(notify));
    world.live_until(ms(30_000));
    let slept = ms(33_000) + Duration::from_millis(1001);
    world.sleep_until(slept);
    world.extend(1, 99, slept);
    world.due();
    assert_eq!(world.stops(), None);
    world.live_until(slept + Duration::from_secs(30));
    assert_eq!(world.stops(), Some(Reason::NotLive));
}

#[test]
fn a_leader_that_was_ready_may_reload_for_as_long_as_it_likes_and_the_elector_knows() {
    let mut world = World::leading(ready(notify));
    for (said, is_ready) in [(Notification::Ready, true), (Notification::Reloading, false)] {
        world.told(ToInit::Heartbeat);
        world.says(said);
        assert_eq!(world.known(), Some(is_ready));
    }
    world.live_until(ms(200_000));
    assert_eq!(world.stops(), None);
}

#[test]
fn ready_takes_its_successes_and_is_lost_with_its_failures() {
    let mut world = World::leading(ready(http));
    let mut known = Vec::new();
    for (at, failure) in [(3, None), (13, Some("x")), (23, None), (33, None), (43, Some("x")), (53, Some("x")), (63, Some("x"))] {
        world.live_until(ms(at * 1000));
        world.answers(failure);
        known.push(world.known());
    }
    assert_eq!(known, [None, None, None, Some(true), None, None, Some(false)]);
    assert_eq!(world.stops(), None);
}

#[test]
fn what_runs_nowhere_is_waited_for_by_nobody_and_each_elector_is_told_anew() {
    let mut world = World::new(ready(notify));
    world.feed(Input::ElectorEnded);
    world.due();
    world.feed(Input::ElectorStarted);
    assert_eq!(world.known(), Some(true), "a standby has nothing to be ready");
    world.take();
    world.told(ToInit::Hello);
    world.lead(1);
    assert_eq!(world.known(), Some(false));
    world.run();
    world.says(Notification::Ready);
    world.live_until(ms(20_000));
    world.replace_elector();
    world.greet();
    assert_eq!(world.known(), Some(true));
}

#[test]
fn what_is_not_asked_is_not_told() {
    let mut world = World::leading(config());
    world.live_until(ms(100_000));
    let of_health = |action: &Action| matches!(action, Action::Tell(ToElector::Health { .. } | ToElector::Probe { .. }));
    assert!(!world.actions.iter().any(of_health) && world.asks().is_empty());
}

#[test]
fn a_status_is_told_when_the_elector_has_spoken_and_only_the_latest_one() {
    let mut world = World::leading(live(notify));
    for status in ["one", "two", "three"] {
        world.says(Notification::Status(status.into()));
    }
    assert_eq!(world.tells(), []);
    world.told(ToInit::Heartbeat);
    let told = ToElector::Health { unready: None, status: "three".into() };
    assert_eq!(world.tells(), [ToElector::Heartbeat, told.clone()]);
    world.told(ToInit::Heartbeat);
    assert_eq!(world.tells(), [ToElector::Heartbeat]);

    world.replace_elector();
    world.greet();
    assert!(world.tells().contains(&told));
}

#[test]
fn another_reason_is_told_when_the_elector_has_spoken_and_after_some_once_a_minute() {
    let mut config = ready(exec);
    config.workload.start_timeout = None;
    let (mut world, mut told) = (World::leading(config), 0);
    let tells = |world: &World| {
        let of_health = |action: &&Action| matches!(action, Action::Tell(ToElector::Health { .. }));
        world.actions.iter().filter(of_health).count()
    };
    for probe in 0..24 {
        world.live_until(ms(probe * 10_000 + 3_000));
        told += tells(&world);
        world.answers(Some(&probe.to_string()));
        assert_eq!(world.known(), None);
        world.told(ToInit::Heartbeat);
        told += tells(&world);
        world.take();
    }
    assert_eq!(told, 5 + 3, "in four minutes");
}

#[test]
fn who_changes_its_mind_faster_than_the_elector_listens_is_told_of_once() {
    let mut world = World::leading(ready(notify));
    world.told(ToInit::Heartbeat);
    world.take();
    for _ in 0..3 {
        world.says(Notification::Ready);
        world.says(Notification::Reloading);
    }
    let told = |ready: bool, told: &[ToElector]| matches!(told, [ToElector::Heartbeat, ToElector::Health { unready, .. }] | [ToElector::Health { unready, .. }] if unready.is_none() == ready);
    let first = world.tells();
    assert!(told(true, &first), "{first:?}");

    world.told(ToInit::Heartbeat);

    let second = world.tells();
    assert!(told(false, &second), "{second:?}");
}

#[test]
fn a_lease_waits_for_a_standby_that_is_stopped_no_longer_than_for_a_standby_command() {
    let mut config = always(live(notify));
    config.workload.on_exit = OnExit::Restart;
    let mut world = World::standby(config);
    world.says(Notification::WatchdogTrigger);
    assert!(world.wants(&to_main(libc::SIGTERM)), "{:?}", world.actions);
    world.take();
    world.lead(1);
    let by = world.now + super::config().workload.stop.loss_grace;

    for second in 2..10 {
        world.says(Notification::ExtendTimeout(Duration::from_secs(10)));
        world.wake_until(by.min(ms(second * 1000)));
    }

    assert!(world.wants(&Action::Sweep), "{:?}", world.actions);
}

#[test]
fn a_planned_stop_takes_as_long_as_the_workload_says_and_a_loss_or_a_second_term_does_not() {
    let longer = Notification::ExtendTimeout(Duration::from_secs(40));
    let killed_by = |world: &mut World, at: Instant| {
        world.live_until(at.before(tick()));
        assert!(!world.wants(&Action::Sweep));
        world.live_until(at);
        world.wants(&Action::Sweep)
    };
    let mut planned = World::leading(config());
    planned.step_down(9, Reason::StepDown);
    planned.says(longer.clone());
    assert!(killed_by(&mut planned, ms(41_000)));

    let mut lost = World::leading(config());
    lost.step_down(9, Reason::LostToHolder);
    lost.says(longer.clone());
    assert!(killed_by(&mut lost, ms(5000)));

    let mut urgent = World::leading(config());
    urgent.feed(Input::Signal(libc::SIGTERM));
    urgent.feed(Input::Signal(libc::SIGTERM));
    urgent.says(longer);
    assert!(killed_by(&mut urgent, ms(5000)));
}

#[test]
fn a_program_that_changes_its_mind_without_end_is_reported_five_times_in_five_seconds_and_in_the_end_as_it_is() {
    let mut world = World::leading(ready(notify));
    world.take();
    let (mut told, until) = (Vec::new(), world.now + Duration::from_secs(10));
    while world.now < until {
        for said in [Notification::Ready, Notification::Reloading, Notification::Ready, Notification::Reloading] {
            world.feed(Input::Notified(said));
            world.told(ToInit::Heartbeat);
        }
        told.extend(world.tells());
        world.wake_until(world.now + Duration::from_millis(100));
    }
    world.feed(Input::Notified(Notification::Ready));
    world.told(ToInit::Heartbeat);
    world.wake_until(world.now + Duration::from_secs(5));
    told.extend(world.tells());

    let changes: Vec<_> = told.iter().filter(|told| matches!(told, ToElector::Health { .. })).collect();
    assert!((10..=15).contains(&changes.len()), "{changes:?}");
    assert!(matches!(changes.last(), Some(ToElector::Health { unready: None, .. })), "{changes:?}");
}
