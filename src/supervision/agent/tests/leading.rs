//! Law 7, 8 and the restarts within a term (`runs: leading`).

use super::*;
use crate::config::{OnLoss, Restart, RestartPolicy};

fn restarting() -> Config {
    let mut config = config();
    config.workload.on_exit = OnExit::Restart;
    config.workload.restart = Restart { policy: RestartPolicy::Always, ..Restart::default() };
    config
}

#[test]
fn a_survivor_of_the_sweep_withholds_the_answer() {
    let mut world = World::leading(config());
    world.step_down(9, Reason::StepDown);
    world.exit(Exit::Code(0));
    world.due();
    world.feed(Input::Scanned(Scan { left: vec![7], killed: true, ..Scan::default() }));
    assert_eq!(world.stopped(), None);
    world.feed(Input::Reaped { pid: 7, exit: Exit::Signal(libc::SIGKILL) });
    world.prove();
    assert_eq!(world.stopped(), Some((9, Then::Follow)));
}

#[test]
fn a_planned_stop_leaves_the_planned_grace_and_a_loss_its_own_and_neither_outlives_h() {
    let hard = deadlines(ms(1000)).hard;
    let late = hard.before(Duration::from_secs(2));
    for (reason, asked, renewed, killed, kill) in [
        (Reason::StepDown, ms(1000), true, ms(21_000), Action::Sweep),
        (Reason::StepDown, ms(1000), false, hard, Action::KillAll),
        (Reason::LostToHolder, ms(1000), false, ms(5000), Action::Sweep),
        (Reason::LostToHolder, late, false, hard, Action::KillAll),
    ] {
        let mut world = World::leading(config());
        world.sleep_until(asked);
        world.step_down(9, reason);
        for serial in (1..=6).filter(|_| renewed) {
            world.wake_until(ms(1000 + serial * 3000));
            world.extend(1, serial, world.now);
        }
        world.wake_until(killed.before(tick()));
        assert!(!world.wants(&Action::Sweep) && !world.wants(&Action::KillAll), "{reason:?} {asked:?}");
        world.wake_until(killed);
        assert!(world.wants(&kill), "{reason:?} {asked:?}");
    }
}

#[test]
fn a_planned_stop_that_becomes_a_loss_is_squeezed_and_answers_the_later_request() {
    let mut world = World::leading(config());
    world.step_down(9, Reason::StepDown);
    world.step_down(10, Reason::LostToHolder);
    world.wake_until(ms(5000));
    assert!(world.wants(&Action::Sweep));
    world.exit(Exit::Signal(libc::SIGKILL));
    world.feed(Input::Scanned(Scan { clean: true, ..Scan::default() }));
    assert_eq!(world.stopped(), Some((10, Then::Follow)));
}

#[test]
fn a_step_down_of_another_term_stops_nothing() {
    let mut world = World::leading(config());
    world.told(ToInit::StepDown { term: Term(2), request: 9, reason: Reason::StepDown, traceparent: String::new() });
    assert_eq!(world.take(), []);
}

#[test]
fn a_workload_that_ended_by_itself_is_proved_gone_and_started_again_in_the_same_term() {
    let mut world = World::leading(restarting());
    world.exit(Exit::Code(3));
    assert_eq!(world.tells(), [ToElector::Restarting { term: Term(1), exit: Exit::Code(3), at: world.now }]);
    world.prove();
    world.take();
    world.sleep_until(ms(2000).before(tick()));
    world.due();
    assert!(world.spawns().is_none());
    world.sleep_until(ms(2000));
    world.due();
    assert_eq!(world.spawns().unwrap().1.unwrap().info, Some(info()));
}

#[test]
fn what_a_workload_left_behind_is_killed_before_it_is_started_again() {
    let mut world = World::leading(restarting());
    world.exit(Exit::Code(3));
    world.sleep_until(ms(2500));
    world.due();
    world.feed(Input::Scanned(Scan { left: vec![7], killed: true, ..Scan::default() }));
    assert!(world.spawns().is_none());
    world.feed(Input::Reaped { pid: 7, exit: Exit::Signal(libc::SIGKILL) });
    world.prove();
    assert!(world.spawns().is_some());
}

#[test]
fn case_82_a_step_down_with_a_restart_pending_is_answered_by_a_fresh_proof_and_nothing_starts_in_between() {
    let mut world = World::leading(restarting());
    world.exit_proved(Exit::Code(3));
    world.take();
    world.step_down(9, Reason::StepDown);
    assert_eq!(world.stopped(), None, "the proof before the request answers nothing");
    world.sleep_until(ms(2500));
    world.prove();
    assert!(world.spawns().is_none());
    assert_eq!(world.stopped(), Some((9, Then::Follow)));
    world.sleep_until(ms(9000));
    world.due();
    assert!(world.spawns().is_none(), "nor after it, before the next Lead");
}

#[test]
fn a_restart_that_a_step_down_called_off_delays_no_later_term() {
    let mut config = restarting();
    config.workload.restart.delay = Duration::from_secs(50);
    let mut world = World::leading(config);
    world.exit(Exit::Code(3));
    world.step_down(9, Reason::StepDown);
    world.prove();
    world.told(ToInit::Ended { term: Term(1), backoff: None });
    world.lead(2);
    assert!(world.spawns().is_some());
}

#[test]
fn no_restart_begins_or_wakes_init_at_or_after_s_before_a_renewal_from_the_link_is_read() {
    for before_s in [1, 2] {
        let mut world = World::leading(restarting());
        world.sleep_until(deadlines(ms(1000)).soft.before(Duration::from_secs(before_s)));
        world.exit_proved(Exit::Code(3));
        world.take();
        world.sleep_until(deadlines(ms(1000)).soft);
        world.due();
        assert_eq!(world.take(), []);
        assert!(world.agent.poll_timeout().is_none_or(|at| at > world.now));
        world.extend(1, 1, ms(9500));
        assert!(world.spawns().is_some());
    }
}

#[test]
fn what_an_elector_that_hangs_left_undone_is_said_once_it_is_killed() {
    let mut world = World::leading(config());
    world.exit(Exit::Code(0));
    world.step_down(9, Reason::Exited);
    world.prove();
    world.take();

    world.wake_until(deadlines(ms(1000)).end);

    let said = |action: &Action| matches!(action, Action::Warn(line) if line.contains("what became of the Lease"));
    let said = world.actions.iter().position(said);
    let killed = world.actions.iter().position(|action| *action == Action::KillElector);
    assert!(killed.is_some() && killed < said, "{:?}", world.actions);
}

#[test]
fn an_end_that_is_not_followed_by_another_run_is_a_release_and_then_the_end_or_another_campaign() {
    let uncovered = Restart { policy: RestartPolicy::OnFailure, ..Restart::default() };
    for (on_exit, exit, then) in [
        (OnExit::Exit, Exit::Signal(libc::SIGSEGV), Then::Exit),
        (OnExit::Restart, Exit::Code(0), Then::Exit),
        (OnExit::Follow, Exit::Code(0), Then::Follow),
    ] {
        let mut config = config();
        (config.workload.on_exit, config.workload.restart) = (on_exit, uncovered.clone());
        let mut world = World::leading(config);
        world.exit(exit);
        assert_eq!(world.tells(), [ToElector::Stopping { term: Term(1), reason: Reason::Exited, at: world.now }]);
        world.step_down(9, Reason::Exited);
        world.prove();
        assert_eq!(world.stopped(), Some((9, then)));
        world.told(ToInit::Releasing { term: Term(1), serial: 1 });
        assert_eq!(world.tells(), [acknowledged(1, 1)]);
        world.told(ToInit::Ended { term: Term(1), backoff: None });
        if then == Then::Exit {
            world.done_ends_with(exit.code());
        } else {
            world.lead(2);
            assert!(world.spawns().is_some());
        }
    }
}

#[test]
fn a_command_that_cannot_be_executed_ends_the_term_and_init_with_its_code() {
    let mut world = World::new(config());
    world.lead(1);
    world.feed(Input::Forked { pid: MAIN });
    world.take();
    world.feed(Input::NotSpawned(NotSpawned::Failed { code: 126, message: "work: no".into() }));
    let stopping = ToElector::Stopping { term: Term(1), reason: Reason::SpawnFailed, at: world.now };
    assert_eq!(
        world.take(),
        [Action::Tell(stopping), Action::TerminationMessage("work: no".into(), 126)],
        "the words may have to wait for a disk"
    );
    world.step_down(9, Reason::SpawnFailed);
    world.prove();
    assert_eq!(world.stopped(), Some((9, Then::Exit)));
    world.ended_ends_with(126);
}

#[test]
fn a_start_that_the_system_has_no_process_for_counts_as_a_crash() {
    let unavailable = |on_exit, burst| {
        let mut config = config();
        (config.workload.on_exit, config.workload.restart.burst) = (on_exit, burst);
        let mut world = World::new(config);
        world.lead(1);
        world.take();
        world.feed(Input::NotSpawned(NotSpawned::Unavailable { message: "work: no process".into() }));
        assert!(world.wants(&Action::Warn("work: no process".into())));
        world.prove();
        world
    };
    let mut again = unavailable(OnExit::Restart, 5);
    again.wake_until(again.now + config().workload.restart.delay);
    assert!(again.spawns().is_some(), "in the same term");

    for (on_exit, then) in [(OnExit::Restart, Then::Exit), (OnExit::Exit, Then::Exit), (OnExit::Follow, Then::Follow)] {
        let mut world = unavailable(on_exit, 0);
        assert!(world.wants(&Action::Tell(ToElector::Stopping { term: Term(1), reason: Reason::Exited, at: world.now })));
        world.step_down(9, Reason::Exited);
        world.prove();
        assert_eq!(world.stopped(), Some((9, then)), "{on_exit:?}");
        world.told(ToInit::Ended { term: Term(1), backoff: None });
        world.told(ToInit::Done);
        assert_eq!(world.wants(&Action::Exit(70)), then == Then::Exit);
    }
}

#[test]
fn a_command_that_is_not_executed_within_the_duration_is_killed_and_has_ended() {
    let mut world = World::new(config());
    world.lead(1);
    world.feed(Input::Forked { pid: MAIN });
    let late = world.now + config().lease.duration;
    for renewal in 1..15 {
        world.sleep_until(ms(1000 + renewal * 1000));
        world.extend(1, renewal, world.now);
    }
    world.take();

    world.only_at(late, &to_main(libc::SIGKILL));
    world.exit(Exit::Signal(libc::SIGKILL));
    assert!(world.wants(&Action::Tell(ToElector::Stopping { term: Term(1), reason: Reason::Exited, at: world.now })));
}

#[test]
fn a_release_without_a_proof_for_this_elector_is_not_acknowledged() {
    let mut world = World::leading(config());
    world.told(ToInit::Releasing { term: Term(1), serial: 1 });
    assert!(!world.wants(&Action::Tell(acknowledged(1, 1))));
    assert!(world.wants(&Action::KillElector));
}

#[test]
fn nothing_runs_on_the_old_e_once_a_release_was_announced() {
    let mut world = World::leading(config());
    world.step_down_proved(Reason::StepDown, Exit::Code(0));
    world.told(ToInit::Releasing { term: Term(1), serial: 1 });
    assert!(world.tells().contains(&acknowledged(1, 1)));
    world.extend(1, 2, world.now);
    world.due();
    assert_eq!(world.take(), []);
    world.lead(2);
    assert!(world.spawns().is_some());
}

#[test]
fn a_loss_with_on_loss_exit_ends_with_76() {
    let mut config = config();
    config.workload.on_loss = OnLoss::Exit;
    let mut world = World::leading(config);
    world.step_down_proved(Reason::LostToHolder, Exit::Code(0));
    assert_eq!(world.stopped(), Some((9, Then::Exit)));
    world.ended_ends_with(76);
}

#[test]
fn an_elector_that_ends_a_live_term_between_two_runs_is_replaced_and_the_term_goes_on() {
    for end in [ToInit::Ended { term: Term(1), backoff: None }, ToInit::Done] {
        let mut world = World::leading(restarting());
        world.exit_proved(Exit::Code(3));
        world.take();

        world.told(end.clone());
        world.sleep_until(ms(2000));
        world.due();

        assert!(world.spawns().is_some(), "{:?}", world.actions);
        assert_eq!(world.agent.hard(), Some(deadlines(ms(1000)).hard), "{end:?}");
    }
}
