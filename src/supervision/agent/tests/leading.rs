//! Law 7, 8 and the restarts within a term (`runs: leading`).

use super::*;
use crate::config::{OnExit, OnLoss, Restart, RestartPolicy};

fn restarting() -> Config {
    let mut config = config();
    config.workload.on_exit = OnExit::Restart;
    config.workload.restart = Restart { policy: RestartPolicy::Always, ..Restart::default() };
    config
}

#[test]
fn a_lead_is_acknowledged_and_its_start_reported() {
    let mut world = World::new(config());
    world.lead(1, None);
    world.run();
    let at = world.now;
    assert_eq!(world.tells(), [acknowledged(1, 0), ToElector::Started { term: Term(1), pid: MAIN, at }]);
}

#[test]
fn stopped_answers_the_step_down_after_the_proof_and_not_before() {
    let mut world = World::leading(config());
    world.step_down(9, Reason::StepDown);
    world.exit(Exit::Signal(libc::SIGTERM));
    assert_eq!(world.stopped(), None);
    world.prove();
    assert_eq!(world.stopped(), Some((9, Then::Follow)));
}

#[test]
fn a_survivor_of_the_walk_withholds_the_answer() {
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
fn a_planned_stop_leaves_the_planned_grace() {
    let mut world = World::leading(config());
    world.step_down(9, Reason::StepDown);
    world.take();
    let kill_at = world.now + Duration::from_secs(20);
    for serial in 1..=6 {
        world.wake_until(ms(1000 + serial * 3000));
        world.extend(1, serial, world.now);
    }
    world.wake_until(kill_at.before(tick()));
    assert!(!world.wants(&Action::Walk));
    world.wake_until(kill_at);
    assert!(world.wants(&Action::Walk));
}

#[test]
fn a_planned_stop_that_is_not_renewed_is_squeezed_by_h() {
    let mut world = World::leading(config());
    world.step_down(9, Reason::StepDown);
    world.wake_until(deadlines(ms(1000)).hard);
    assert!(world.wants(&Action::KillAll));
}

#[test]
fn a_loss_leaves_the_grace_of_a_loss() {
    let mut world = World::leading(config());
    world.step_down(9, Reason::LostToHolder);
    let kill_at = world.now + Duration::from_secs(4);
    world.wake_until(kill_at.before(tick()));
    assert!(!world.wants(&Action::Walk));
    world.wake_until(kill_at);
    assert!(world.wants(&Action::Walk));
}

#[test]
fn a_loss_near_h_is_killed_at_h_and_not_a_tick_earlier() {
    let mut world = World::leading(config());
    let hard = deadlines(world.now).hard;
    world.sleep_until(hard.before(Duration::from_secs(2)));
    world.step_down(9, Reason::LostToHolder);
    world.wake_until(hard.before(tick()));
    assert!(!world.wants(&Action::Walk) && !world.wants(&Action::KillAll));
    world.wake_until(hard);
    assert!(world.wants(&Action::KillAll));
}

#[test]
fn a_planned_stop_that_becomes_a_loss_is_squeezed_and_answers_the_later_request() {
    let mut world = World::leading(config());
    world.step_down(9, Reason::StepDown);
    world.step_down(10, Reason::LostToHolder);
    world.wake_until(ms(5000));
    assert!(world.wants(&Action::Walk));
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
    assert_eq!(world.spawns().unwrap().1.unwrap().facts, Some(facts()));
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
    world.exit(Exit::Code(3));
    world.prove();
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
    world.told(ToInit::Ended { term: Term(1) });
    world.lead(2, None);
    assert!(world.spawns().is_some());
}

#[test]
fn no_restart_begins_at_or_after_s() {
    let mut world = World::leading(restarting());
    world.sleep_until(deadlines(ms(1000)).soft.before(Duration::from_secs(1)));
    world.exit(Exit::Code(3));
    world.prove();
    world.take();
    world.sleep_until(deadlines(ms(1000)).soft);
    world.due();
    assert_eq!(world.take(), []);
}

#[test]
fn an_end_that_the_policy_does_not_cover_is_a_stop_and_the_exit_code() {
    let mut config = restarting();
    config.workload.restart.policy = RestartPolicy::OnFailure;
    let mut world = World::leading(config);
    world.exit(Exit::Code(0));
    assert_eq!(world.tells(), [ToElector::Stopping { term: Term(1), reason: Reason::Exited, at: world.now }]);
    world.step_down(9, Reason::Exited);
    world.prove();
    assert_eq!(world.stopped(), Some((9, Then::Exit)));
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
fn an_end_with_on_exit_exit_releases_and_exits_with_the_workloads_code() {
    let mut world = World::leading(config());
    world.exit(Exit::Signal(libc::SIGSEGV));
    world.step_down(9, Reason::Exited);
    world.prove();
    assert_eq!(world.stopped(), Some((9, Then::Exit)));
    world.told(ToInit::Releasing { term: Term(1), serial: 1 });
    assert_eq!(world.tells(), [acknowledged(1, 1)]);
    world.told(ToInit::Ended { term: Term(1) });
    world.told(ToInit::Done);
    assert_eq!(world.actions.last(), Some(&Action::Exit(139)));
}

#[test]
fn an_end_with_on_exit_follow_goes_back_to_following() {
    let mut config = config();
    config.workload.on_exit = OnExit::Follow;
    let mut world = World::leading(config);
    world.exit(Exit::Code(0));
    world.step_down(9, Reason::Exited);
    world.prove();
    assert_eq!(world.stopped(), Some((9, Then::Follow)));
    world.told(ToInit::Ended { term: Term(1) });
    world.lead(2, None);
    assert!(world.spawns().is_some());
}

#[test]
fn a_command_that_cannot_be_executed_ends_the_term_and_init_with_its_code() {
    let mut world = World::new(config());
    world.lead(1, None);
    world.feed(Input::Forked { pid: MAIN });
    world.take();
    world.feed(Input::NotSpawned(NotSpawned::Failed { code: 126, message: "work: no".into() }));
    let stopping = ToElector::Stopping { term: Term(1), reason: Reason::SpawnFailed, at: world.now };
    assert_eq!(
        world.take(),
        [Action::Tell(stopping), Action::LastWords("work: no".into())],
        "the words may have to wait for a disk"
    );
    world.step_down(9, Reason::SpawnFailed);
    world.prove();
    assert_eq!(world.stopped(), Some((9, Then::Exit)));
    world.told(ToInit::Ended { term: Term(1) });
    world.told(ToInit::Done);
    assert_eq!(world.actions.last(), Some(&Action::Exit(126)));
}

#[test]
fn a_start_that_the_system_has_no_process_for_counts_as_a_crash() {
    let unavailable = || Input::NotSpawned(NotSpawned::Unavailable { message: "work: no process".into() });
    let mut patient = config();
    patient.workload.on_exit = OnExit::Restart;
    let mut world = World::new(patient);
    world.lead(1, None);
    world.take();
    world.feed(unavailable());
    assert_eq!(world.take(), [Action::Warn("work: no process".into())]);
    world.wake_until(world.now + config().workload.restart.delay);
    assert!(world.spawns().is_some(), "in the same term");

    patient = config();
    patient.workload.on_exit = OnExit::Restart;
    patient.workload.restart.burst = 0;
    let mut world = World::new(patient);
    world.lead(1, None);
    world.take();
    world.feed(unavailable());
    let line = "the workload cannot be started now, and workload.restart has no restart left for it";
    assert!(world.wants(&Action::Warn(line.into())), "{:?}", world.actions);

    for (on_exit, then) in [(OnExit::Follow, Then::Follow), (OnExit::Exit, Then::Exit)] {
        let mut fleeting = config();
        fleeting.workload.on_exit = on_exit;
        let mut world = World::new(fleeting);
        world.lead(1, None);
        world.take();
        world.feed(unavailable());
        let stopping = ToElector::Stopping { term: Term(1), reason: Reason::SpawnFailed, at: world.now };
        assert_eq!(world.take(), [Action::Tell(stopping), Action::LastWords("work: no process".into())]);
        world.step_down(9, Reason::SpawnFailed);
        world.prove();
        assert_eq!(world.stopped(), Some((9, then)));
        world.told(ToInit::Ended { term: Term(1) });
        world.told(ToInit::Done);
        assert_eq!(world.wants(&Action::Exit(70)), then == Then::Exit);
    }
}

#[test]
fn a_start_that_the_system_has_no_process_for_past_s_is_the_end_of_the_term_and_spoken_of() {
    let mut world = World::new(config());
    world.lead(1, None);
    world.take();
    let soft = deadlines(world.now).soft;
    world.sleep_until(soft);

    world.feed(Input::NotSpawned(NotSpawned::Unavailable { message: "work: no process".into() }));

    let stopping = ToElector::Stopping { term: Term(1), reason: Reason::Expired, at: soft };
    assert!(world.wants(&Action::Tell(stopping)), "{:?}", world.actions);
    assert!(world.wants(&Action::LastWords("work: no process".into())));
}

#[test]
fn a_command_that_is_not_executed_within_the_duration_is_killed_and_has_ended() {
    let mut world = World::new(config());
    world.lead(1, None);
    world.feed(Input::Forked { pid: MAIN });
    let late = world.now + config().lease.duration;
    for renewal in 1..15 {
        world.sleep_until(ms(1000 + renewal * 1000));
        world.extend(1, renewal, world.now);
    }
    world.take();

    world.wake_until(late.before(tick()));
    assert!(!world.wants(&to_main(libc::SIGKILL)));
    world.wake_until(late);

    assert!(world.wants(&to_main(libc::SIGKILL)), "{:?}", world.actions);
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
    world.step_down(9, Reason::StepDown);
    world.exit(Exit::Code(0));
    world.prove();
    world.told(ToInit::Releasing { term: Term(1), serial: 1 });
    assert!(world.tells().contains(&acknowledged(1, 1)));
    world.extend(1, 2, world.now);
    world.due();
    assert_eq!(world.take(), []);
    world.lead(2, None);
    assert!(world.spawns().is_some());
}

#[test]
fn a_loss_with_on_loss_exit_ends_with_76() {
    let mut config = config();
    config.workload.on_loss = OnLoss::Exit;
    let mut world = World::leading(config);
    world.step_down(9, Reason::LostToHolder);
    world.exit(Exit::Code(0));
    world.prove();
    assert_eq!(world.stopped(), Some((9, Then::Exit)));
    world.told(ToInit::Ended { term: Term(1) });
    world.told(ToInit::Done);
    assert_eq!(world.actions.last(), Some(&Action::Exit(76)));
}

#[test]
fn a_lead_before_the_last_term_is_over_costs_the_elector_and_starts_nothing_new() {
    let mut world = World::leading(config());
    world.lead(2, None);
    assert!(world.wants(&Action::KillElector));
    assert!(!world.wants(&Action::Tell(acknowledged(2, 0))));
}

#[test]
fn an_elector_that_ends_a_live_term_between_two_runs_is_replaced_and_the_term_goes_on() {
    for end in [ToInit::Ended { term: Term(1) }, ToInit::Done] {
        let mut world = World::leading(restarting());
        world.exit(Exit::Code(3));
        world.prove();
        world.take();

        world.told(end.clone());
        world.sleep_until(ms(2000));
        world.due();

        assert!(world.spawns().is_some(), "{:?}", world.actions);
        assert_eq!(world.agent.hard(), Some(deadlines(ms(1000)).hard), "{end:?}");
    }
}

#[test]
fn a_restart_whose_time_passed_while_init_did_not_run_wakes_nobody_after_s() {
    let mut config = config();
    config.workload.on_exit = OnExit::Restart;
    let mut world = World::leading(config);
    world.sleep_until(ms(9000));
    world.exit(Exit::Code(1));
    world.prove();
    world.sleep_until(deadlines(ms(1000)).soft);
    world.due();
    assert!(world.agent.poll_timeout().is_none_or(|at| at > world.now));
    world.extend(1, 1, ms(9500));
    assert!(world.spawns().is_some(), "a renewal that waited in the link starts it");
}
