//! What is said, asked or answered late, early or at one time with something else.

use super::*;

#[test]
fn a_ready_that_is_read_before_the_execve_is_known_begins_the_watchdog() {
    let mut config = config();
    (config.workload.readiness.notify, config.workload.liveness.notify) = (true, true);
    let mut world = World::new(config);
    world.lead(1);
    world.feed(Input::Forked { pid: 100 });
    world.says(Notification::Ready);
    world.feed(Input::Spawned);
    world.live_until(ms(300_000));
    assert_eq!(world.stops(), Some(Reason::NotLive));
}

#[test]
fn a_watchdog_that_is_served_before_the_workload_is_ready_or_once_it_ends_is_not_begun_by_that() {
    for said in [Notification::Watchdog, Notification::WatchdogSpan(Duration::from_secs(3))] {
        let mut config = live(notify);
        config.workload.readiness.notify = true;
        let mut world = World::leading(config);
        world.says(said.clone());
        world.live_until(world.now + Duration::from_secs(300));
        assert_eq!(world.stops(), None, "it is not ready yet");

        world.says(Notification::Ready);
        world.says(Notification::Stopping);
        world.says(said);
        let grace = world.agent.config.config.workload.stop.grace;
        world.live_until((world.now + grace).before(tick()));
        assert_eq!(world.stops(), None);
        world.live_until(world.now + tick());
        assert_eq!(world.stops(), Some(Reason::NotLive));
    }
}

#[test]
fn what_says_that_it_stops_fails_no_probe_that_is_under_way() {
    for way in [http, exec] {
        let mut config = live(way);
        config.workload.liveness.failure_threshold = 1;
        let mut world = World::leading(config);
        world.live_until(ms(3000));
        let asked = world.asks();
        assert_eq!(asked.len(), 1);
        world.says(Notification::Stopping);
        for (kind, began) in asked {
            world.feed(Input::Probed { kind, began, failure: Some("refused".into()) });
        }
        assert_eq!(world.stops(), None);
    }
}

#[test]
fn a_gap_in_which_nothing_ran_fails_no_probe() {
    for way in [http, exec] {
        let mut config = live(way);
        config.workload.liveness.failure_threshold = 1;
        let mut world = World::leading(config);
        world.live_until(ms(3000));
        let asked = world.asks();
        world.sleep_until(world.now + Duration::from_secs(15));
        world.extend(1, 1, world.now);
        world.due();
        for (kind, began) in asked {
            world.feed(Input::Probed { kind, began, failure: Some("no answer".into()) });
        }
        assert_eq!(world.stops(), None);
    }
}

#[test]
fn answers_that_are_always_late_are_excused_once_and_then_count() {
    for way in [http, exec] {
        let mut world = World::leading(live(way));
        world.live_until(ms(3000));
        for question in 1..=4 {
            assert_eq!(world.stops(), None, "before the {question}th is answered");
            let (kind, began) = world.asks()[0];
            world.sleep_until(began + Duration::from_secs(5));
            world.due();
            world.feed(Input::Probed { kind, began, failure: Some("no answer".into()) });
            if question < 4 {
                world.live_until(began + Duration::from_secs(10));
            }
        }
        assert_eq!(world.stops(), Some(Reason::NotLive));
    }
}

#[test]
fn what_a_stop_needs_longer_is_not_taken_back_by_what_answers_it_or_comes_beside_it() {
    let asked: [fn(&mut World); 3] = [
        |world| world.step_down(9, Reason::Signal),
        |world| {
            world.step_down(9, Reason::StepDown);
            world.step_down(10, Reason::StepDown);
        },
        |world| {
            world.step_down(9, Reason::StepDown);
            world.feed(Input::Signal(libc::SIGTERM));
        },
    ];
    for (case, ask) in asked.into_iter().enumerate() {
        let mut world = World::leading(config());
        if case == 0 {
            world.feed(Input::Signal(libc::SIGTERM));
        } else {
            world.step_down(8, Reason::StepDown);
        }
        let until = world.now + Duration::from_secs(60);
        world.says(Notification::ExtendTimeout(Duration::from_secs(60)));
        ask(&mut world);
        world.live_until(until.before(Duration::from_secs(1)));
        assert!(!world.wants(&Action::Sweep), "case {case}");
        world.live_until(until);
        assert!(world.wants(&Action::Sweep), "case {case}");
    }
}

#[test]
fn a_question_that_comes_as_the_last_one_is_given_up_counts_once() {
    let mut config = live(exec);
    config.workload.liveness.timeout = config.workload.liveness.period;
    let mut world = World::leading(config);
    world.live_until(ms(3000 + 2 * 10_000 + 900));
    assert_eq!(world.stops(), None);
}

#[test]
fn what_a_start_needed_longer_is_no_matter_of_a_later_one() {
    let mut world = signalled(ready(notify));
    world.says(Notification::ExtendTimeout(Duration::from_secs(3600)));
    world.says(Notification::Ready);
    world.says(Notification::Reloading);
    world.lead(1);
    world.feed(Input::Role(RoleInput::Signalled));
    let by = world.now + Duration::from_secs(60);
    world.live_until(by.before(Duration::from_secs(1)));
    assert_eq!(world.stops(), None);
    world.live_until(by);
    assert_eq!(world.stops(), Some(Reason::NotReady));
}

#[test]
fn a_watchdog_that_was_put_off_for_ever_can_be_begun_again_and_one_that_is_always_late_counts() {
    let mut world = World::leading(live(notify));
    world.says(Notification::WatchdogSpan(Duration::MAX));
    world.says(Notification::WatchdogSpan(Duration::from_secs(5)));
    for second in [7, 14] {
        assert_eq!(world.stops(), None);
        world.sleep_until(ms(1000 + second * 1000));
        world.extend(1, second, world.now);
        world.due();
    }
    assert_eq!(world.stops(), Some(Reason::NotLive));
}

#[test]
fn a_start_takes_as_long_as_the_workload_says_whenever_it_says_so() {
    let longer = Notification::ExtendTimeout(Duration::from_secs(600));
    let mut config = ready(notify);
    (config.hooks.after_lead.command, config.hooks.after_lead.timeout) = (vec!["hook".into()], Duration::from_secs(3));
    let mut world = World::new(config);
    world.lead(1);
    world.run();
    world.feed(Input::Role(RoleInput::HookForked { pid: 300 }));
    world.says(longer);
    world.feed(Input::Reaped { pid: 300, exit: Exit::Code(0) });
    world.live_until(ms(590_000));
    assert_eq!(world.stops(), None);
    world.live_until(ms(602_000));
    assert_eq!(world.stops(), Some(Reason::NotReady));
}

#[test]
fn what_is_said_in_time_counts_however_late_it_is_read() {
    let mut world = World::leading(ready(notify));
    world.live_until(ms(60_900));
    world.sleep_until(ms(61_300));
    world.told(ToInit::Heartbeat);
    world.says(Notification::Ready);
    world.due();
    assert_eq!(world.stops(), None, "it was ready within startTimeout");

    world.says(Notification::Stopping);
    world.live_until((world.now + GRACE).before(tick()));
    world.sleep_until(world.now + Duration::from_millis(300));
    world.told(ToInit::Heartbeat);
    world.exit(Exit::Code(3));
    assert_eq!(world.stops(), Some(Reason::Exited));
}

#[test]
fn more_time_for_a_start_is_none_for_an_end() {
    let mut world = World::leading(ready(http));
    world.says(Notification::ExtendTimeout(Duration::from_secs(3600)));
    world.live_until(ms(3000));
    world.answers(None);
    world.says(Notification::Stopping);
    world.stops_at(ms(3000) + GRACE, Reason::NotLive);
}

#[test]
fn a_question_that_tenure_takes_back_is_no_failure() {
    let mut config = live(exec);
    config.workload.liveness.failure_threshold = 1;
    config.workload.liveness.timeout = config.workload.liveness.period;
    let mut world = signalled(config);
    world.lead(1);
    world.feed(Input::Role(RoleInput::Signalled));
    world.live_until(ms(12_999));
    world.step_down(9, Reason::StepDown);
    assert!(world.wants(&Action::KillProbe(ProbeKind::Liveness)));
    world.feed(Input::Role(RoleInput::Signalled));
    world.live_until(ms(13_000));
    assert!(!world.wants(&to_main(libc::SIGTERM)), "what asks is not reaped yet");
}

#[test]
fn what_ends_while_it_is_promoted_has_its_grace_and_not_the_time_of_a_start() {
    let mut config = ready(notify);
    config.workload.start_timeout = Some(GRACE / 2);
    let mut world = signalled(config);
    world.lead(1);
    let until = world.now + GRACE;
    world.says(Notification::Stopping);
    world.feed(Input::Role(RoleInput::Signalled));
    world.stops_at(until, Reason::NotLive);
}
