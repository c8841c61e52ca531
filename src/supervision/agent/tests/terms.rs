//! One term after the other: what of the last one counts in the next, and that init sleeps while it waits for either.

use super::*;
use crate::link::Stop;

/// The workload is gone, that is proved, and the elector ends the term.
fn end_term(world: &mut World) {
    end_term_for(world, Reason::StepDown);
}

fn end_term_for(world: &mut World, reason: Reason) {
    world.step_down(9, reason);
    world.exit(Exit::Signal(libc::SIGTERM));
    world.prove();
    world.told(ToInit::Ended { term: Term(1) });
    world.take();
}

fn restarting() -> Config {
    let mut config = config();
    config.workload.on_exit = OnExit::Restart;
    config
}

#[test]
fn the_restarts_of_a_term_are_not_counted_against_the_next() {
    let mut config = restarting();
    config.workload.restart.burst = 1;
    let mut world = World::leading(config);
    world.exit(Exit::Code(3));
    world.prove();
    world.wake_until(ms(2000));
    world.run();
    end_term(&mut world);
    world.lead(2, None);
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
    end_term(&mut world);
    world.sleep_until(ms(5000));
    world.lead(2, None);
    world.run();
    world.take();

    world.told(ToInit::StepDown { term: Term(2), request: 1, reason: Reason::StepDown, traceparent: String::new() });
    world.exit(Exit::Code(0));
    world.prove();

    let at = world.now;
    let stop = Stop { began: Some(at), killed: None, exited: Some(at), exit: Some(Exit::Code(0)), proved: at };
    let stopped = ToElector::Stopped { term: Term(2), request: 1, stop, then: Then::Follow };
    assert!(world.tells().contains(&stopped));
}

#[test]
fn an_elector_that_is_done_before_the_proof_ends_no_term() {
    let mut world = World::leading(config());
    world.step_down(9, Reason::StepDown);

    world.told(ToInit::Done);

    assert_eq!(world.agent.hard(), Some(deadlines(ms(1000)).hard));
    world.exit(Exit::Code(0));
    world.prove();
    assert_eq!(world.stopped(), Some((9, Then::Follow)));
}

#[test]
fn a_lead_while_the_last_term_still_waits_to_start_costs_the_elector() {
    let mut world = World::new(config());
    world.lead(1, Some(ms(60_000)));
    world.take();

    world.lead(2, None);

    assert!(world.wants(&Action::KillElector));
    assert!(!world.wants(&Action::Tell(acknowledged(2, 0))));
}

/// Leads, after a creation wait that is over.
fn waited(config: Config) -> World {
    let mut world = World::new(config);
    world.lead(1, Some(ms(6000)));
    world.wake_until(ms(6000));
    world.run();
    world.take();
    world
}

#[test]
fn init_sleeps_until_a_restart_although_a_creation_wait_was_over_before() {
    let mut world = waited(restarting());

    world.exit(Exit::Code(3));
    world.prove();

    assert_eq!(world.agent.poll_timeout(), Some(ms(7000)));
}

#[test]
fn init_sleeps_while_the_lease_is_given_back_although_a_creation_wait_was_over_before() {
    let mut world = waited(config());

    world.step_down(9, Reason::StepDown);
    world.exit(Exit::Code(0));
    world.prove();

    assert_eq!(world.stopped(), Some((9, Then::Follow)));
    assert!(world.agent.poll_timeout().is_some_and(|at| at > world.now));
}

#[test]
fn a_fresh_elector_lets_the_others_go_first_after_a_term_that_was_given_up_and_not_after_a_loss() {
    for (reason, sit_out) in [(Reason::StepDown, true), (Reason::LostToHolder, false)] {
        let mut world = World::leading(config());
        assert_eq!(world.agent.welcome().sit_out, None);
        end_term_for(&mut world, reason);

        let timing = config().timing();
        let expected = sit_out.then(|| timing.takeable(world.now, timing.duration));
        assert_eq!(world.agent.welcome().sit_out, expected, "{reason:?}");
    }
}

#[test]
fn a_fresh_elector_lets_the_others_go_first_for_as_long_as_a_wait_that_was_given_up() {
    let mut world = World::new(config());
    let timing = config().timing().with_duration(Duration::from_secs(60));
    let confirmed = confirmed(world.now);
    world.told(ToInit::Lead { term: Term(1), facts: facts(), timing, confirmed, not_before: Some(ms(61_000)) });

    world.step_down(9, Reason::StepDown);
    world.prove();
    world.told(ToInit::Ended { term: Term(1) });

    assert_eq!(world.agent.welcome().sit_out, Some(timing.takeable(world.now, timing.duration)));
}

#[test]
fn a_fresh_elector_lets_the_others_go_first_for_one_duration_where_a_wait_was_over_when_the_lease_was_given_back() {
    let mut world = World::new(config());
    let own = config().timing();
    let timing = own.with_duration(Duration::from_secs(60));
    let confirmed = confirmed(world.now);
    world.told(ToInit::Lead { term: Term(1), facts: facts(), timing, confirmed, not_before: Some(world.now) });
    world.run();
    world.step_down(9, Reason::StepDown);
    world.exit(Exit::Code(0));
    world.prove();
    world.told(ToInit::Releasing { term: Term(1), serial: 1 });

    world.told(ToInit::Ended { term: Term(1) });

    assert_eq!(world.agent.welcome().sit_out, Some(own.takeable(world.now, own.duration)));
}
