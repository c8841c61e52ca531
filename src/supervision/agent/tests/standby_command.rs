//! `standby.command`: another program while following, gone before the leader starts and back after it is.

use super::*;
use crate::{
    config::{Hook, RestartPolicy},
    notification::Notification,
};

fn following() -> Config {
    let mut config = config();
    config.standby.command = vec!["page".into()];
    config
}

/// The standby runs.
fn standby(config: Config) -> World {
    let mut world = World::standby(config);
    world.take();
    world
}

const STANDBY: Option<(Option<Role>, Option<Launch>)> = Some((Some(Role::Standby), None));

impl World {
    fn starts_the_leader(&self) -> bool {
        matches!(self.spawns(), Some((Some(Role::Leader), Some(_))))
    }
}

#[test]
fn the_leader_starts_once_the_standby_is_stopped_and_proved_gone() {
    let mut world = standby(following());
    world.lead(1);
    assert!(world.wants(&to_main(libc::SIGTERM)) && world.spawns().is_none() && !world.agent.leads());
    world.exit(Exit::Signal(libc::SIGTERM));
    world.due();
    assert!(world.wants(&Action::Sweep) && world.spawns().is_none());
    world.feed(Input::Scanned(Scan { left: vec![7], killed: true, ..Scan::default() }));
    assert!(world.spawns().is_none(), "something of it is left");
    world.wake_until(world.now + Duration::from_secs(1));
    world.feed(Input::Scanned(Scan { clean: true, ..Scan::default() }));
    assert!(world.starts_the_leader() && world.agent.leads(), "{:?}", world.actions);
}

#[test]
fn a_standby_that_does_not_stop_is_killed_after_the_grace_of_a_loss_and_a_kill_margin_before_s() {
    let grace = config().workload.stop.loss_grace;
    for (sent, kill_at) in [(ms(1000), ms(1000) + grace), (ms(0), deadlines(ms(0)).soft.before(Duration::from_secs(1)))] {
        let mut world = standby(following());
        if sent == ms(0) {
            world.sleep_until(ms(6000));
        }
        world.lead_by(1, sent);
        world.only_at(kill_at, &Action::Sweep);
    }
}

#[test]
fn a_standby_is_left_alone_by_a_lead_under_which_nothing_may_start() {
    let mut world = standby(following());
    world.lead_too_late(1);
    assert!(!world.wants(&to_main(libc::SIGTERM)));
    world.step_down(9, Reason::StepDown);
    assert_eq!(world.stopped(), Some((9, Then::Follow)), "nothing of a leader has run");
    assert!(!world.wants(&Action::Sweep));
}

#[test]
fn a_standby_that_is_being_executed_when_the_lead_comes_is_gone_first_too() {
    let mut world = World::of(following(), true, false);
    world.due();
    world.greet();
    world.feed(Input::Forked { pid: MAIN });
    world.take();
    world.lead(1);
    assert!(world.wants(&to_main(libc::SIGTERM)));
    world.feed(Input::Spawned);
    assert!(world.spawns().is_none() && !world.agent.leads());
    world.exit_proved(Exit::Signal(libc::SIGTERM));
    assert!(world.starts_the_leader());
}

#[test]
fn a_term_that_ends_while_the_standby_stops_starts_no_leader_and_another_standby() {
    let mut world = standby(following());
    world.lead(1);
    world.step_down(9, Reason::LostToHolder);
    assert_eq!(world.stopped(), Some((9, Then::Follow)), "nothing of a leader has run");
    world.exit_proved(Exit::Signal(libc::SIGTERM));
    assert_eq!(world.spawns(), STANDBY);
}

#[test]
fn where_only_the_standby_has_run_no_stop_of_the_program_is_told() {
    let mut world = standby(following());
    world.lead_too_late(1);

    world.step_down(9, Reason::HookFailed);

    let stop =
        world.tells().into_iter().find_map(|told| if let ToElector::Stopped { stop, .. } = told { Some(stop) } else { None });
    assert_eq!(stop.map(|stop| (stop.began, stop.exit)), Some((None, None)));
}

#[test]
fn a_standby_that_no_sigkill_removes_gives_the_lease_to_another_replica() {
    let mut world = standby(following());
    world.lead(1);
    world.never_proved(deadlines(ms(1000)).soft.before(tick()));
    let gives_up = |message: &ToElector| matches!(message, ToElector::Stopping { reason: Reason::SpawnFailed, .. });
    assert!(!world.starts_the_leader());
    assert!(world.tells().iter().any(gives_up));
}

#[test]
fn a_standby_starts_after_the_proof_of_the_leader_and_the_hook_that_follows_it() {
    let mut config = following();
    config.hooks.after_follow = Hook { command: vec!["hook".into()], ..Hook::default() };
    let mut world = standby(config);
    world.lead(1);
    world.exit_proved(Exit::Signal(libc::SIGTERM));
    world.run();
    world.take();
    world.step_down(9, Reason::StepDown);
    world.exit(Exit::Code(0));
    assert!(world.spawns().is_none());
    world.prove();
    assert!(world.spawns().is_none());
    assert_eq!(world.stopped(), Some((9, Then::Follow)));
    world.feed(Input::Role(RoleInput::HookForked { pid: 300 }));
    world.feed(Input::Reaped { pid: 300, exit: Exit::Code(0) });
    assert!(world.spawns().is_none(), "what the hook left is not gone");
    world.prove();
    assert_eq!(world.spawns(), STANDBY);
}

#[test]
fn a_standby_waits_for_the_question_that_the_proof_answers() {
    let mut world = standby(following());
    world.lead(1);
    world.exit_proved(Exit::Signal(libc::SIGTERM));
    world.run();
    world.take();
    world.wake_until(deadlines(ms(1000)).soft);
    world.exit_proved(Exit::Code(0));
    assert!(world.spawns().is_none(), "a fresh elector may ask for a proof of its own");
    world.step_down(9, Reason::Expired);
    world.prove();
    assert_eq!(world.spawns(), STANDBY);
}

#[test]
fn a_standby_that_fails_is_started_again_after_its_delay_and_ends_nothing() {
    let failures: [fn(&mut World); 2] = [
        |world| world.exit(Exit::Code(3)),
        |world| world.feed(Input::NotSpawned(NotSpawned::Failed { code: 127, message: "page: not found".into() })),
    ];
    for (at, fails) in failures.into_iter().enumerate() {
        let mut world = if at == 0 { standby(following()) } else { World::new(following()) };
        if at == 1 {
            world.feed(Input::Forked { pid: MAIN });
        }
        fails(&mut world);
        world.prove();
        assert!(world.spawns().is_none());
        world.wake_until(ms(2000));
        assert_eq!(world.spawns(), STANDBY, "{at}");
        assert!(!world.actions.iter().any(|action| matches!(action, Action::TerminationMessage(..) | Action::Exit(_))));
        world.run();
        world.take();
        world.lead(1);
        world.exit_proved(Exit::Signal(libc::SIGTERM));
        assert!(world.starts_the_leader());
    }
}

#[test]
fn a_lead_does_not_wait_for_the_delay_of_a_standby_that_failed() {
    let mut world = standby(following());
    world.exit_proved(Exit::Code(3));
    world.lead(1);
    assert!(world.starts_the_leader());
}

#[test]
fn a_standby_that_is_done_rests_until_the_next_term_is_over_unless_any_end_is_to_be_followed_by_another_start() {
    for (policy, starts) in [(RestartPolicy::OnFailure, None), (RestartPolicy::Always, STANDBY)] {
        let mut config = following();
        config.workload.restart.policy = policy;
        let mut world = standby(config);
        world.exit_proved(Exit::Code(0));
        world.wake_until(ms(100_000));
        assert_eq!(world.spawns(), starts);
    }
    let mut world = standby(following());
    world.exit_proved(Exit::Code(0));
    world.leads();
    world.step_down_proved(Reason::StepDown, Exit::Code(0));
    assert_eq!(world.spawns(), STANDBY);
}

#[test]
fn init_ends_with_a_standby_in_its_grace_and_without_its_exit_code() {
    let mut world = standby(following());
    world.feed(Input::Signal(libc::SIGTERM));
    assert!(world.wants(&to_main(libc::SIGTERM)));
    world.wake_until(ms(20_999));
    assert!(!world.wants(&Action::Sweep), "nobody waits for its Lease");
    world.exit_proved(Exit::Signal(libc::SIGTERM));
    world.done_ends_with(0);
}

#[test]
fn what_a_standby_says_of_itself_is_not_said_of_the_workload() {
    let mut config = following();
    config.workload.readiness.notify = true;
    let mut world = standby(config);
    for said in [Notification::Stopping, Notification::Ready, Notification::Status("copies".into())] {
        world.feed(Input::Notified(said));
    }
    world.told(ToInit::Heartbeat);
    let told = world.tells();
    assert!(!told.iter().any(|message| matches!(message, ToElector::Health { .. })), "{told:?}");
    world.wake_until(ms(60_000));
    assert!(!world.wants(&to_main(libc::SIGTERM)));
}

#[test]
fn a_standby_gets_the_signals_that_are_passed_on_as_a_standbys() {
    let mut config = following();
    config.signals.rewrite.standby.insert(Signal(libc::SIGHUP), Some(Signal(libc::SIGUSR1)));
    let mut world = standby(config);
    world.feed(Input::Signal(libc::SIGHUP));
    assert!(world.wants(&to_main(libc::SIGUSR1)) && !world.wants(&to_main(libc::SIGHUP)));
}
