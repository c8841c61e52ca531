//! One term after the other: what of the last one counts in the next.

use super::*;
use crate::link::{LeaseBackoff, Stop};

/// The workload is gone, that is proved, and the elector ends the term.
fn end_term(world: &mut World, reason: Reason, backoff: Option<LeaseBackoff>) {
    world.step_down_proved(reason, Exit::Signal(libc::SIGTERM));
    world.told(ToInit::Ended { term: Term(1), backoff });
    world.take();
}

#[test]
fn the_restarts_of_a_term_are_not_counted_against_the_next() {
    let mut config = config();
    config.workload.on_exit = OnExit::Restart;
    config.workload.restart.burst = 1;
    let mut world = World::leading(config);
    world.exit_proved(Exit::Code(3));
    world.wake_until(ms(2000));
    world.run();
    end_term(&mut world, Reason::StepDown, None);
    world.lead(2);
    world.run();
    world.take();

    world.exit(Exit::Code(4));

    let restarting = ToElector::Restarting { term: Term(2), exit: Exit::Code(4), at: world.now };
    assert_eq!(world.tells(), [restarting]);
    world.prove();
    assert_eq!(world.agent.poll_timeout(), Some(ms(3000)), "nor do they lengthen its delay");
}

#[test]
fn the_proof_of_a_term_tells_of_its_own_stop() {
    let mut world = World::leading(config());
    end_term(&mut world, Reason::StepDown, None);
    world.sleep_until(ms(5000));
    world.lead(2);
    world.run();
    world.take();

    world.told(ToInit::StepDown { term: Term(2), request: 1, reason: Reason::StepDown, traceparent: String::new() });
    world.exit_proved(Exit::Code(0));

    let at = world.now;
    let stop = Stop { began: Some(at), killed: None, exited: Some(at), exit: Some(Exit::Code(0)), fused: None, proved: at };
    let stopped = ToElector::Stopped { term: Term(2), request: 1, stop, then: Then::Follow };
    assert!(world.tells().contains(&stopped));
}

#[test]
fn an_elector_that_is_done_before_the_proof_ends_no_term() {
    let mut world = World::leading(config());
    world.step_down(9, Reason::StepDown);

    world.told(ToInit::Done);

    assert_eq!(world.agent.hard(), Some(deadlines(ms(1000)).hard));
    world.exit_proved(Exit::Code(0));
    assert_eq!(world.stopped(), Some((9, Then::Follow)));
}

#[test]
fn a_lead_before_the_last_term_is_over_costs_the_elector_whether_that_has_started_or_not() {
    let mut not_started = World::new(config());
    not_started.lead_too_late(1);
    for mut world in [World::leading(config()), not_started] {
        world.lead(2);
        assert!(world.wants(&Action::KillElector));
        assert!(!world.wants(&Action::Tell(acknowledged(2, 0))));
    }
}

#[test]
fn a_fresh_elector_lets_the_others_go_first_for_as_long_as_the_last_one_would_have() {
    let until = Some(LeaseBackoff { until: World::new(config()).now + Duration::from_secs(60), failures: 1 });
    for (reason, backoff) in [(Reason::StepDown, until), (Reason::LostToHolder, None)] {
        let mut world = World::leading(config());
        assert_eq!(world.agent.initial_state().backoff, None);
        end_term(&mut world, reason, backoff);

        assert_eq!(world.agent.initial_state().backoff, backoff, "{reason:?}");
    }
}
