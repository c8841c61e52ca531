//! Health while a workload that runs on every replica changes its role, or hangs.

use super::*;

/// Leads, and a program asks it.
fn asked_leader() -> World {
    let mut world = World::standby(always(live(exec)));
    world.promoted();
    world.live_until(ms(3000));
    world
}

#[test]
fn a_demotion_counts_once_no_probe_of_the_term_runs() {
    let mut world = asked_leader();
    world.step_down(9, Reason::StepDown);
    assert!(world.wants(&Action::KillProbe(ProbeKind::Liveness)));
    world.demoted();
    assert_eq!(world.agent.hard(), Some(deadlines(ms(3000)).hard), "its probe may be a leader's");
    world.answers(Some("killed by SIGKILL"));
    assert_eq!(world.agent.hard(), None);
}

#[test]
fn a_demotion_whose_probe_does_not_die_is_a_kill() {
    let mut world = asked_leader();
    world.step_down(9, Reason::StepDown);
    world.demoted();
    world.live_until((ms(3000) + GRACE).before(tick()));
    assert!(!world.wants(&Action::Sweep));
    world.live_until(ms(3000) + GRACE);
    assert!(world.wants(&Action::Sweep) && world.agent.leads());
}

#[test]
fn nothing_is_asked_while_a_workload_is_told_that_it_follows() {
    let mut world = asked_leader();
    world.answers(None);
    world.step_down(9, Reason::StepDown);
    world.live_until(ms(14_000));
    assert_eq!(world.asks(), []);
}

#[test]
fn a_standby_that_is_not_live_is_stopped_and_started_again_after_the_delay_of_a_crash() {
    let mut world = World::standby(always(live(exec)));
    world.take();
    for at in [3, 13, 23] {
        world.wake_until(ms(at * 1000));
        assert!(world.wants(&Action::Probe { kind: ProbeKind::Liveness, began: ms(at * 1000), launch: None }));
        world.answers(Some("exit code 1"));
    }
    assert!(world.wants(&to_main(libc::SIGTERM)) && world.stops().is_none());
    world.take();
    world.exit_proved(Exit::Code(0));
    assert_eq!(world.spawns(), None);
    world.wake_until(ms(24_000));
    assert_eq!(world.spawns(), Some((Some(Role::Standby), None)));
}

#[test]
fn a_leader_that_hangs_is_stopped_and_not_asked_to_follow() {
    let mut world = asked_leader();
    for _ in 0..3 {
        world.answers(Some("exit code 1"));
        let next = world.now + Duration::from_secs(10);
        world.live_until(next);
    }
    assert_eq!(world.stops(), Some(Reason::NotLive));
    assert!(
        world.wants(&to_main(libc::SIGTERM)) && !world.actions.iter().any(|action| matches!(action, Action::TellRole { .. }))
    );
}

#[test]
fn a_leader_that_is_never_ready_follows_and_is_not_given_up_again() {
    let mut world = World::standby(always(ready(notify)));
    world.promoted();
    world.live_until(ms(61_000));
    assert_eq!(world.stops(), Some(Reason::NotReady));
    world.step_down(9, Reason::NotReady);
    world.demoted();
    assert_eq!(world.stopped(), Some((9, Then::Follow)));
    world.told(ToInit::Ended { term: Term(1), backoff: None });
    world.wake_until(ms(300_000));
    assert!(!world.wants(&to_main(libc::SIGTERM)));
}
