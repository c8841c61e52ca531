//! A task: run after run, each within its limit.

use super::*;

const LIMIT: Duration = Duration::from_secs(2);

/// Its elector is greeted.
fn waiting(once: bool) -> World {
    let mut config = config();
    (config.workload.on_exit, config.workload.on_loss) =
        if once { (OnExit::Exit, config::OnLoss::Exit) } else { (OnExit::Follow, config::OnLoss::Follow) };
    let preset = Preset::Task(config::Task {
        trigger: config::Trigger::Every(Duration::from_secs(60)),
        limit: Some(LIMIT),
        once: once.then_some(75),
    });
    let mut world = World::at(AgentConfig {
        config: config.into(),
        preset,
        began: Instant::BOOT,
        identity: "me".into(),
        context: None,
        pid1: true,
        terminal: false,
    });
    world.due();
    world.greet();
    world.take();
    world
}

/// It leads and runs since a second after the boot.
fn running(once: bool) -> World {
    let mut world = waiting(once);
    world.leads();
    world
}

#[test]
fn a_run_is_stopped_at_its_limit_and_no_sooner_and_the_loop_goes_on() {
    let mut world = running(false);
    world.wake_until(ms(3000).before(tick()));
    assert_eq!(world.take(), []);

    world.wake_until(ms(3000));

    let stopping = ToElector::Stopping { term: Term(1), reason: Reason::Limit, at: world.now };
    let actions = world.take();
    assert!([to_main(libc::SIGTERM), Action::Tell(stopping)].iter().all(|action| actions.contains(action)), "{actions:?}");
    world.step_down_proved(Reason::Limit, Exit::Code(0));
    assert_eq!(world.stopped(), Some((9, Then::Follow)));
    world.told(ToInit::Ended { term: Term(1), backoff: None });
    world.wake_until(ms(60_000));
    assert!(!world.actions.iter().any(|action| matches!(action, Action::Exit(_))));
}

#[test]
fn a_single_run_that_was_cut_off_at_its_limit_never_looks_like_a_success() {
    let mut world = running(true);
    world.wake_until(ms(3000));
    world.step_down_proved(Reason::Limit, Exit::Code(0));
    assert_eq!(world.stopped(), Some((9, Then::Exit)));
    world.ended_ends_with(143);
}

#[test]
fn the_next_run_has_a_limit_of_its_own() {
    let mut world = running(false);
    world.sleep_until(ms(2500));
    world.exit(Exit::Code(0));
    world.step_down(9, Reason::Exited);
    world.prove();
    world.told(ToInit::Ended { term: Term(1), backoff: None });
    world.lead(2);
    world.run();
    world.take();

    world.only_at(ms(4500), &to_main(libc::SIGTERM));
}

#[test]
fn a_signal_while_it_waits_ends_the_loop_well_and_a_single_run_not() {
    for (once, code) in [(false, 0), (true, 143)] {
        let mut world = waiting(once);
        world.feed(Input::Signal(libc::SIGTERM));
        world.done_ends_with(code);
    }
}
