//! Law 1, 3, 9, 10, 14, 15: what moves the deadlines, and what they do.

use super::*;

/// When the term's write was sent.
const A: Instant = Instant::from_nanos(1_000_000_000);

#[test]
fn the_stop_signal_goes_out_at_s_and_not_a_tick_earlier() {
    let mut world = World::leading(config());
    let soft = deadlines(A).soft;
    world.sleep_until(soft.before(tick()));
    world.due();
    assert!(!world.wants(&to_main(libc::SIGTERM)));
    assert_eq!(world.agent.poll_timeout(), Some(soft));
    world.sleep_until(soft);
    world.due();
    assert_eq!(
        world.take(),
        [
            to_main(libc::SIGTERM),
            to_main(libc::SIGCONT),
            Action::Tell(ToElector::Stopping { term: Term(1), reason: Reason::Expired, at: soft }),
        ]
    );
}

#[test]
fn everything_is_killed_at_h_and_not_a_tick_earlier() {
    let mut world = World::leading(config());
    let hard = deadlines(A).hard;
    world.wake_until(hard.before(tick()));
    world.take();
    world.due();
    assert_eq!(world.take(), []);
    world.sleep_until(hard);
    world.due();
    assert!(world.wants(&Action::KillAll));
}

#[test]
fn what_was_stopped_is_not_continued_by_what_init_reads_after_h() {
    let reads: [fn(&mut World); 3] = [
        |world| world.feed(Input::Signal(libc::SIGCONT)),
        |world| world.feed(Input::Signal(libc::SIGTERM)),
        |world| world.step_down(9, Reason::StepDown),
    ];
    for (at, continued) in [(deadlines(A).hard.before(tick()), true), (deadlines(A).hard, false)] {
        for read in reads {
            let mut world = World::leading(config());
            world.sleep_until(at);
            read(&mut world);
            assert_eq!(world.wants(&to_main(libc::SIGCONT)), continued);
        }
    }
}

#[test]
fn init_that_wakes_after_h_kills_everything_first() {
    let mut world = World::leading(config());
    world.sleep_until(ms(600_000));
    world.due();
    assert_eq!(world.actions.first(), Some(&Action::KillAll));
}

#[test]
fn an_end_that_is_found_past_s_is_that_of_the_term_and_no_exit() {
    for (at, then) in [(deadlines(A).soft.before(tick()), Then::Exit), (deadlines(A).soft, Then::Follow)] {
        let mut world = World::leading(config());
        world.sleep_until(at);
        world.exit(Exit::Signal(libc::SIGKILL));
        world.step_down(9, Reason::Expired);
        world.prove();
        assert_eq!(world.stopped(), Some((9, then)));
    }
}

#[test]
fn init_ends_half_a_margin_after_h_if_there_is_no_proof() {
    let mut world = World::leading(config());
    let end = deadlines(A).hard + Duration::from_millis(500);
    world.wake_until(deadlines(A).hard);
    while !world.wants(&Action::Die) {
        world.take();
        world.feed(Input::Scanned(Scan { left: vec![MAIN], ..Scan::default() }));
        world.sleep_until(world.agent.poll_timeout().unwrap());
        world.due();
        assert!(world.now <= end);
    }
    assert_eq!(world.now, end);
}

#[test]
fn not_pid_1_sweeps_go_on_after_h_and_it_is_told_that_there_is_no_proof() {
    for (left, line) in [
        (vec![MAIN], format!("processes are left that SIGKILL does not remove: [{MAIN}]")),
        (vec![], "what the workload left behind cannot be seen, and may still be running".into()),
    ] {
        let mut world = World::with(config(), false);
        world.lead(1);
        world.run();
        world.wake_until(deadlines(A).hard);
        for _ in 0..100 {
            assert!(!world.wants(&Action::KillAll) && !world.wants(&Action::Die));
            world.feed(Input::Scanned(Scan { left: left.clone(), ..Scan::default() }));
            world.sleep_until(world.agent.poll_timeout().unwrap());
            world.due();
        }
        let unproved = Action::Tell(ToElector::Unproved { term: Term(1) });
        assert!(world.wants(&unproved));
        assert!(world.wants(&Action::Warn(line)), "{:?}", world.actions);
        world.feed(Input::ElectorEnded);
        world.take();
        world.feed(Input::ElectorStarted);
        assert!(world.wants(&unproved), "the next elector is told, too");
    }
}

#[test]
fn an_extension_moves_the_deadlines_and_never_back_and_is_acknowledged() {
    let mut world = World::leading(config());
    world.sleep_until(ms(4000));
    world.extend(2, 1, ms(3900));
    assert_eq!(world.tells(), [], "it is of another term");
    world.extend(1, 1, ms(3900));
    world.extend(1, 2, ms(2000));
    assert_eq!(world.tells(), [acknowledged(1, 1), acknowledged(1, 2)]);
    assert_eq!(world.agent.poll_timeout(), Some(deadlines(ms(3900)).soft));
}

#[test]
fn an_extension_that_waited_in_the_link_past_s_or_h_is_taken_before_the_stop() {
    for (passed, sent) in [(deadlines(A).soft, ms(4000)), (deadlines(A).hard, ms(14_000))] {
        let mut world = World::leading(config());
        world.sleep_until(passed + tick());
        world.extend(1, 1, sent);
        world.due();
        assert_eq!(world.take(), [Action::Tell(acknowledged(1, 1))]);
    }
}

#[test]
fn what_the_kernel_killed_at_h_no_extension_revives() {
    let mut world = World::leading(config());
    world.sleep_until(deadlines(A).hard + tick());
    world.feed(Input::FuseFired { left: false });
    world.extend(1, 1, ms(14_000));
    let at = world.now;
    assert_eq!(world.tells(), [ToElector::Stopping { term: Term(1), reason: Reason::Expired, at }]);
    world.exit(Exit::Signal(libc::SIGKILL));
    world.step_down(9, Reason::Expired);
    world.feed(Input::Scanned(Scan { clean: true, ..Scan::default() }));
    assert_eq!(world.stopped(), Some((9, Then::Follow)));
}

#[test]
fn what_the_kernel_killed_while_init_did_not_run_is_told_with_its_time_if_nothing_was_left() {
    for (noticed, left, told) in [
        (deadlines(A).end, false, Some(deadlines(A).hard)),
        (deadlines(A).end, true, None),
        (deadlines(A).hard + tick(), false, None),
    ] {
        let mut world = World::leading(config());
        world.sleep_until(noticed);
        world.feed(Input::FuseFired { left });
        world.exit(Exit::Signal(libc::SIGKILL));
        world.step_down(9, Reason::Expired);
        world.feed(Input::Scanned(Scan { clean: true, ..Scan::default() }));
        let fused = world.tells().into_iter().find_map(|told| {
            let ToElector::Stopped { stop, .. } = told else { return None };
            Some(stop.fused)
        });
        assert_eq!(fused, Some(told), "{noticed:?} {left}");
    }
}

#[test]
fn what_the_kernel_killed_before_h_ends_the_term_with_a_reason_of_its_own_and_the_lease_is_released() {
    let mut world = World::leading(config());
    world.sleep_until(ms(4000));
    world.feed(Input::FuseFired { left: false });
    let at = world.now;
    assert_eq!(world.tells(), [ToElector::Stopping { term: Term(1), reason: Reason::Fuse, at }]);
    world.exit(Exit::Signal(libc::SIGKILL));
    world.step_down(9, Reason::Fuse);
    world.feed(Input::Scanned(Scan { clean: true, ..Scan::default() }));
    assert_eq!(world.stopped(), Some((9, Then::Follow)));
}

#[test]
fn the_kernel_is_given_h_from_the_start_to_the_proof_and_not_beyond() {
    let mut world = World::new(config());
    assert_eq!(world.agent.hard(), None);
    world.lead(1);
    assert_eq!(world.agent.hard(), Some(deadlines(A).hard), "before the spawn is carried out");
    world.run();
    world.sleep_until(ms(4000));
    world.extend(1, 1, ms(3900));
    assert_eq!(world.agent.hard(), Some(deadlines(ms(3900)).hard));
    world.step_down(9, Reason::StepDown);
    world.exit(Exit::Code(0));
    assert_eq!(world.agent.hard(), Some(deadlines(ms(3900)).hard), "what it left behind may lead on");
    world.prove();
    assert_eq!(world.agent.hard(), None);
    world.take();
    world.feed(Input::FuseFired { left: false });
    assert_eq!(world.take(), [], "what it fires at then leads no more");
}

#[test]
fn once_s_has_begun_the_stop_no_extension_is_taken() {
    let mut world = World::leading(config());
    world.wake_until(deadlines(A).soft);
    world.take();
    world.extend(1, 1, ms(5000));
    assert_eq!(world.tells(), []);
    world.wake_until(deadlines(A).hard);
    assert!(world.wants(&Action::KillAll));
}

#[test]
fn an_extension_beyond_what_a_send_of_now_would_give_is_dropped() {
    let mut world = World::leading(config());
    world.sleep_until(ms(4000));
    let (latest, late) = (deadlines(ms(4000)), deadlines(ms(4000) + tick()));
    let any_of = [
        late,
        Deadlines { soft: late.soft, ..latest },
        Deadlines { hard: late.hard, ..latest },
        Deadlines { end: late.end, ..latest },
    ];
    for deadlines in any_of {
        let confirmed = Confirmed { deadlines, ..confirmed(ms(4000)) };
        world.told(ToInit::Extend { term: Term(1), serial: 1, confirmed });
        assert_eq!(world.tells(), []);
    }
    world.extend(1, 2, ms(4000));
    assert_eq!(world.tells(), [acknowledged(1, 2)]);
}

#[test]
fn proof_disarms_s_and_h() {
    let mut world = World::leading(config());
    world.step_down_proved(Reason::StepDown, Exit::Code(0));
    world.take();
    world.feed(Input::Told(ToInit::Heartbeat));
    world.sleep_until(deadlines(A).end);
    world.due();
    assert!(!world.wants(&Action::KillAll) && !world.wants(&to_main(libc::SIGTERM)));
}

#[test]
fn a_proof_that_is_asked_for_again_is_told_with_the_time_of_the_first() {
    let mut world = World::leading(config());
    world.wake_until(deadlines(A).soft);
    world.exit_proved(Exit::Code(0));
    let gone = world.now;
    world.take();

    world.sleep_until(gone + Duration::from_secs(3));
    world.step_down(9, Reason::Expired);
    world.prove();

    let stopped = |told| if let ToElector::Stopped { stop, .. } = told { Some((stop.proved, stop.exit)) } else { None };
    let told = world.tells().into_iter().find_map(stopped);
    assert_eq!(told, Some((gone, Some(Exit::Code(0)))));
}
