//! `runs: always`: told, and taken at its word.

use super::*;
use crate::{
    config::{Acknowledge, Hook, OnExit, Runs},
    supervision::HookKind,
};

const HOOK: i32 = 200;

fn always(acknowledge: Acknowledge) -> Config {
    let mut config = config();
    config.workload.runs = Runs::Always;
    config.workload.acknowledge = Some(acknowledge);
    config.signals.on_lead = Some(Signal(libc::SIGUSR1));
    config.signals.on_follow = Some(Signal(libc::SIGUSR2));
    config
}

fn hooked(acknowledge: Acknowledge) -> Config {
    let hook = || Some(Hook { command: vec!["tell".into()], timeout: Duration::from_secs(3) });
    let mut config = always(acknowledge);
    config.hooks.after_lead = hook();
    config.hooks.before_follow = hook();
    config
}

/// Runs as a standby.
fn standby(config: Config) -> World {
    let agent = Agent::new(Settings { config, identity: "me".into(), pid1: true, terminal: false });
    let mut world = World { agent, now: ms(1000), actions: Vec::new(), pid: MAIN };
    world.due();
    assert_eq!(world.spawns(), Some((Some(Role::Standby), None)));
    world.run();
    world.feed(Input::ElectorStarted);
    world.told(ToInit::Hello { version: VERSION });
    world.take();
    world
}

/// Leads by its word.
fn leader() -> World {
    let mut world = standby(always(Acknowledge::Notify));
    world.lead(1, None);
    world.feed(Input::Promoted);
    world.feed(Input::Notified(Role::Leader));
    world.take();
    world
}

/// Leads by its hook.
fn hooked_leader() -> World {
    let mut world = standby(hooked(Acknowledge::Hook));
    world.lead(1, None);
    world.feed(Input::Promoted);
    world.feed(Input::HookForked { pid: HOOK });
    world.feed(Input::Reaped { pid: HOOK, exit: Exit::Code(0) });
    world.take();
    world
}

fn promotion(world: &World) -> Action {
    Action::Promote { pid: MAIN, signal: Signal(libc::SIGUSR1), not_after: deadlines(world.now).soft }
}

fn demotion() -> Action {
    Action::Demote { pid: MAIN, signal: Signal(libc::SIGUSR2) }
}

fn started(world: &World) -> Action {
    Action::Tell(ToElector::Started { term: Term(1), pid: MAIN, at: world.now })
}

#[test]
fn a_promotion_signals_with_s_as_its_limit_and_counts_once_acknowledged_after_that() {
    let mut world = standby(always(Acknowledge::Notify));
    world.lead(1, None);
    assert_eq!(world.take(), [Action::Tell(acknowledged(1, 0)), promotion(&world)]);
    world.feed(Input::Notified(Role::Leader));
    assert_eq!(world.take(), [], "a word of before the signal acknowledges nothing");
    world.feed(Input::Promoted);
    assert_eq!(world.take(), []);
    world.feed(Input::Notified(Role::Standby));
    assert_eq!(world.take(), [], "the other role's word acknowledges nothing");
    world.feed(Input::Notified(Role::Leader));
    assert_eq!(world.take(), [started(&world)]);
}

#[test]
fn with_acknowledge_none_the_sent_signal_is_enough() {
    let mut world = standby(always(Acknowledge::None));
    world.lead(1, None);
    world.take();
    world.feed(Input::Promoted);
    assert_eq!(world.take(), [started(&world)]);
    world.step_down(9, Reason::StepDown);
    assert!(world.wants(&demotion()));
    assert_eq!(world.stopped(), None, "not sent yet");
    world.feed(Input::Demoted);
    assert_eq!(world.stopped(), Some((9, Then::Follow)));
}

#[test]
fn a_demotion_whose_signal_may_not_be_sent_is_a_kill_and_not_a_proof() {
    for acknowledge in [Acknowledge::None, Acknowledge::Notify] {
        let mut world = standby(always(acknowledge));
        world.lead(1, None);
        world.feed(Input::Promoted);
        world.feed(Input::Notified(Role::Leader));
        world.step_down(9, Reason::StepDown);
        world.take();
        world.feed(Input::NotDemoted);
        world.due();
        assert!(world.wants(&Action::Walk));
        assert_eq!(world.stopped(), None);
        assert!(world.agent.leads());
    }
}

#[test]
fn a_signal_that_tells_a_role_is_not_passed_on_from_outside() {
    for (role, mut world) in [(libc::SIGUSR1, standby(always(Acknowledge::Notify))), (libc::SIGUSR2, leader())] {
        world.feed(Input::Signal(role));
        assert!(!world.wants(&to_main(role)));
        world.feed(Input::Signal(libc::SIGHUP));
        assert!(world.wants(&to_main(libc::SIGHUP)));
    }
}

#[test]
fn a_key_that_tells_a_role_is_a_stop_all_the_same() {
    let mut config = always(Acknowledge::None);
    config.signals.on_lead = Some(Signal(libc::SIGINT));
    let mut world = standby(config);
    world.feed(Input::Signal(libc::SIGINT));
    assert!(!world.wants(&to_main(libc::SIGINT)));
    assert!(world.wants(&to_main(libc::SIGTERM)));
}

#[test]
fn an_acknowledged_demotion_is_the_proof_and_the_workload_lives_on() {
    let mut world = leader();
    world.step_down(9, Reason::StepDown);
    assert_eq!(world.take(), [Action::DrainNotify, demotion()]);
    world.feed(Input::Demoted);
    assert_eq!(world.stopped(), None, "sent, and not acknowledged");
    world.feed(Input::Notified(Role::Standby));
    assert_eq!(world.stopped(), Some((9, Then::Follow)));
    assert!(!world.agent.leads());
    world.wake_until(deadlines(ms(1000)).end);
    assert!(!world.wants(&Action::KillAll));
}

#[test]
fn a_demotion_that_is_not_acknowledged_in_time_is_a_kill_and_a_fresh_standby_after_the_answer() {
    let mut world = leader();
    world.step_down(9, Reason::LostToHolder);
    world.feed(Input::Demoted);
    world.take();
    world.wake_until(ms(5000) - tick());
    assert_eq!(world.take(), []);
    world.wake_until(ms(5000));
    assert!(world.wants(&Action::Walk));
    world.exit(Exit::Signal(libc::SIGKILL));
    assert!(world.spawns().is_none());
    world.feed(Input::Scanned(Scan { clean: true, ..Scan::default() }));
    let answer = world.actions.iter().position(|action| matches!(action, Action::Tell(ToElector::Stopped { request: 9, .. })));
    let fresh = world.actions.iter().position(|action| *action == Action::Spawn { role: Some(Role::Standby), launch: None });
    assert!(answer.unwrap() < fresh.unwrap());
}

#[test]
fn no_fresh_standby_starts_while_nobody_asked_for_the_proof() {
    let mut world = leader();
    world.feed(Input::ElectorEnded);
    world.wake_until(deadlines(ms(1000)).hard);
    world.exit(Exit::Signal(libc::SIGKILL));
    world.feed(Input::Scanned(Scan { clean: true, ..Scan::default() }));
    world.due();
    assert!(world.spawns().is_none());
    world.feed(Input::ElectorStarted);
    world.step_down(1, Reason::Expired);
    world.prove();
    assert!(world.stopped().is_some());
    assert!(world.spawns().is_none(), "the elector's guard may not have heard of the proof");
    world.told(ToInit::Ended { term: Term(1) });
    assert!(world.spawns().is_some());
}

/// It ends, and leaves a process that SIGKILL does not remove.
fn leaves_the_undying(world: &mut World, until: Instant) {
    world.exit(Exit::Code(1));
    world.never_proved(until);
}

#[test]
fn a_lease_is_given_back_where_the_remains_of_a_standby_let_nothing_start() {
    let mut config = always(Acknowledge::None);
    config.workload.on_exit = OnExit::Restart;
    let mut world = standby(config);
    leaves_the_undying(&mut world, ms(3000));
    world.lead(1, None);
    assert!(world.wants(&Action::Tell(ToElector::Stopping { term: Term(1), reason: Reason::SpawnFailed, at: world.now })));
    world.step_down(9, Reason::SpawnFailed);
    assert_eq!(world.stopped(), Some((9, Then::Follow)));
}

#[test]
fn it_is_given_back_too_where_that_shows_while_it_is_held() {
    let mut config = always(Acknowledge::None);
    config.workload.on_exit = OnExit::Restart;
    let mut world = standby(config);
    world.exit(Exit::Code(1));
    world.lead(1, None);
    world.take();
    world.never_proved(ms(1500));
    assert_eq!(world.take().iter().filter(|action| matches!(action, Action::Tell(ToElector::Stopping { .. }))).count(), 0);
    world.never_proved(ms(2500));
    let gives_back = |action: &Action| matches!(action, Action::Tell(ToElector::Stopping { reason: Reason::SpawnFailed, .. }));
    assert!(world.actions.iter().any(gives_back));
}

#[test]
fn a_standby_that_waits_to_be_started_again_is_started_at_once_to_lead() {
    let mut config = always(Acknowledge::None);
    config.workload.on_exit = OnExit::Restart;
    config.workload.restart.delay = Duration::from_secs(30);
    let mut world = standby(config);
    world.exit(Exit::Code(1));
    world.prove();
    world.take();
    world.lead(1, None);
    assert!(matches!(world.spawns(), Some((Some(Role::Leader), Some(_)))));
}

#[test]
fn the_kill_of_one_that_does_not_acknowledge_goes_before_the_line_about_it() {
    let mut world = leader();
    world.step_down(9, Reason::LostToHolder);
    world.wake_until(ms(5000));
    let at = |wanted: fn(&Action) -> bool| world.actions.iter().position(wanted).unwrap();
    assert!(at(|action| *action == Action::Walk) < at(|action| matches!(action, Action::Log { .. })));
}

#[test]
fn term_ends_init_although_a_standby_leaves_what_does_not_die() {
    for leaves in [true, false] {
        let mut world = standby(always(Acknowledge::None));
        world.feed(Input::Signal(libc::SIGTERM));
        if leaves {
            world.exit(Exit::Code(0));
        }
        world.never_proved(ms(40_000));
        assert!(matches!(world.actions.last(), Some(Action::Exit(_))), "{:?}", world.actions);
    }
}

#[test]
fn no_word_counts_from_a_socket_that_could_not_be_emptied() {
    let mut world = leader();
    world.step_down(9, Reason::StepDown);
    world.feed(Input::NotDrained);
    world.feed(Input::Notified(Role::Standby));
    assert_eq!(world.stopped(), None);
    world.due();
    assert!(world.wants(&Action::Walk));
}

#[test]
fn a_promotion_without_a_signal_drains_the_socket() {
    let mut config = always(Acknowledge::Notify);
    config.signals.on_lead = None;
    let mut world = standby(config);
    world.lead(1, None);
    assert_eq!(world.take(), [Action::Tell(acknowledged(1, 0)), Action::DrainNotify]);
    world.feed(Input::NotDrained);
    world.feed(Input::Notified(Role::Leader));
    assert!(gives_up(&world));
}

#[test]
fn a_hook_that_starts_after_its_term_was_ended_is_killed() {
    let mut world = standby(hooked(Acknowledge::Notify));
    world.lead(1, None);
    world.feed(Input::Promoted);
    world.feed(Input::Notified(Role::Leader));
    world.step_down(9, Reason::StepDown);
    world.take();
    world.feed(Input::HookForked { pid: HOOK });
    assert_eq!(world.take(), [Action::KillHook { pid: HOOK }]);
}

#[test]
fn s_demotes_and_h_kills() {
    let mut world = leader();
    world.wake_until(deadlines(ms(1000)).soft);
    assert!(world.wants(&demotion()));
    world.take();
    world.wake_until(deadlines(ms(1000)).hard - tick());
    assert!(!world.wants(&Action::KillAll));
    world.wake_until(deadlines(ms(1000)).hard);
    assert!(world.wants(&Action::KillAll));
}

#[test]
fn a_loss_before_the_promotion_is_acknowledged_stops_the_workload() {
    let mut world = standby(always(Acknowledge::Notify));
    world.lead(1, None);
    world.feed(Input::Promoted);
    world.take();
    world.step_down(9, Reason::LostToHolder);
    assert!(world.wants(&to_main(libc::SIGTERM)));
    assert!(!world.wants(&demotion()), "no role signal before the last one is acknowledged");
    world.feed(Input::Notified(Role::Standby));
    assert_eq!(world.stopped(), None);
}

#[test]
fn a_promotion_whose_signal_is_not_sent_yet_is_not_taken_back_by_a_signal() {
    let mut world = standby(always(Acknowledge::None));
    world.lead(1, None);
    world.take();
    world.step_down(9, Reason::StepDown);
    assert!(world.wants(&to_main(libc::SIGTERM)));
    assert_eq!(world.stopped(), None);
}

/// Renewed at this second after the boot; nothing of it matters to the workload.
fn renew(world: &mut World, second: u64) {
    world.wake_until(ms(second * 1000));
    world.extend(1, second, ms(second * 1000));
    world.take();
}

fn gives_up(world: &World) -> bool {
    world.wants(&Action::Tell(ToElector::Stopping { term: Term(1), reason: Reason::NotAcknowledged, at: world.now }))
}

#[test]
fn a_standby_that_is_slow_to_handle_its_promotion_has_until_the_s_in_force() {
    let mut world = standby(hooked(Acknowledge::Hook));
    world.lead(1, None);
    renew(&mut world, 9);
    world.wake_until(deadlines(ms(1000)).soft);
    world.take();
    world.feed(Input::PromotionLate);
    let again = Action::Promote { pid: MAIN, signal: Signal(libc::SIGUSR1), not_after: ms(16_000) };
    assert_eq!(world.take(), [again], "S is 18.85 s now, and one D is over at 16 s");
    renew(&mut world, 12);
    world.feed(Input::Promoted);
    let hook = |action: &Action| if let Action::Hook { not_after, .. } = action { Some(*not_after) } else { None };
    assert_eq!(world.actions.iter().find_map(hook), Some(deadlines(ms(12_000)).soft));
}

#[test]
fn a_standby_that_does_not_handle_its_promotion_for_one_duration_lives_on_and_the_term_is_given_up() {
    let mut world = standby(always(Acknowledge::Notify));
    world.lead(1, None);
    renew(&mut world, 9);
    world.wake_until(deadlines(ms(1000)).soft);
    world.feed(Input::PromotionLate);
    let until =
        |world: &World, until| world.wants(&Action::Promote { pid: MAIN, signal: Signal(libc::SIGUSR1), not_after: until });
    assert!(until(&world, ms(16_000)), "{:?}", world.actions);
    renew(&mut world, 15);
    world.wake_until(ms(16_000));
    world.feed(Input::PromotionLate);
    assert!(gives_up(&world));
    world.step_down(9, Reason::NotAcknowledged);
    assert!(!world.wants(&to_main(libc::SIGTERM)));
    assert_eq!(world.stopped(), Some((9, Then::Follow)));
}

#[test]
fn a_standby_that_could_not_be_told_lives_on_and_the_term_is_given_up() {
    let mut world = standby(always(Acknowledge::Notify));
    world.lead(1, None);
    world.feed(Input::NotPromoted);
    assert!(gives_up(&world));
    world.step_down(9, Reason::NotAcknowledged);
    assert!(!world.wants(&to_main(libc::SIGTERM)));
    assert_eq!(world.stopped(), Some((9, Then::Follow)));
    assert!(!world.agent.leads());
}

#[test]
fn a_promotion_whose_hook_does_not_even_die_ends_the_term() {
    let mut world = standby(hooked(Acknowledge::Hook));
    world.lead(1, None);
    world.feed(Input::Promoted);
    world.feed(Input::HookForked { pid: HOOK });
    world.wake_until(ms(4000));
    assert!(world.wants(&Action::KillHook { pid: HOOK }));
    world.wake_until(ms(5000) - tick());
    assert!(!gives_up(&world));
    world.wake_until(ms(5000));
    assert!(gives_up(&world));
}

#[test]
fn a_standby_that_only_starts_yields_at_once_and_lives() {
    let agent = Agent::new(Settings { config: always(Acknowledge::Notify), identity: "me".into(), pid1: true, terminal: false });
    let mut world = World { agent, now: ms(1000), actions: Vec::new(), pid: MAIN };
    world.due();
    world.feed(Input::Forked { pid: MAIN });
    world.feed(Input::ElectorStarted);
    world.told(ToInit::Hello { version: VERSION });
    world.lead(1, Some(ms(60_000)));
    world.step_down(1, Reason::LostDeleted);
    assert_eq!(world.stopped(), Some((1, Then::Follow)));
    world.feed(Input::Spawned);
    assert!(!world.wants(&to_main(libc::SIGTERM)));
}

#[test]
fn a_promotion_without_its_word_for_one_duration_ends_the_term_and_the_workload() {
    let mut world = standby(always(Acknowledge::Notify));
    world.lead(1, None);
    world.wake_until(ms(2000));
    world.feed(Input::Promoted);
    renew(&mut world, 9);
    world.wake_until(ms(17_000) - tick());
    assert_eq!(world.take(), []);
    world.wake_until(ms(17_000));
    assert!(gives_up(&world));
    assert!(world.wants(&to_main(libc::SIGTERM)));
    assert!(!world.wants(&demotion()), "no role signal before the last one is acknowledged");
}

#[test]
fn a_promotion_of_which_nothing_is_heard_ends_the_same() {
    let mut world = standby(always(Acknowledge::None));
    world.lead(1, None);
    renew(&mut world, 9);
    world.wake_until(ms(17_000) - tick());
    assert_eq!(world.take(), [], "who sends the signal has a killMargin to end");
    world.wake_until(ms(17_000));
    assert!(gives_up(&world));
    assert!(world.wants(&to_main(libc::SIGTERM)), "the signal may have been sent");
}

#[test]
fn a_hook_with_more_time_gives_the_word_as_much() {
    let mut config = hooked(Acknowledge::Notify);
    config.hooks.after_lead.as_mut().unwrap().timeout = Duration::from_secs(18);
    let mut world = standby(config);
    world.lead(1, None);
    world.feed(Input::Promoted);
    world.feed(Input::HookForked { pid: HOOK });
    world.feed(Input::Reaped { pid: HOOK, exit: Exit::Code(0) });
    renew(&mut world, 10);
    world.wake_until(ms(19_000) - tick());
    assert_eq!(world.take(), []);
    world.wake_until(ms(19_000));
    assert!(gives_up(&world));
}

#[test]
fn a_promotion_that_was_acknowledged_is_not_given_up() {
    let mut world = leader();
    for second in [9, 18] {
        renew(&mut world, second);
    }
    world.wake_until(ms(20_000));
    assert_eq!(world.take(), []);
    assert!(world.agent.leads());
}

#[test]
fn the_hooks_acknowledge_by_exit_0() {
    let mut world = standby(hooked(Acknowledge::Hook));
    world.lead(1, None);
    world.take();
    world.feed(Input::Promoted);
    let not_after = deadlines(world.now).soft;
    let hook = Action::Hook { hook: HookKind::AfterLead, facts: Some(facts()), reason: None, not_after };
    assert_eq!(world.take(), [hook]);
    world.feed(Input::HookForked { pid: HOOK });
    world.feed(Input::Reaped { pid: HOOK, exit: Exit::Code(0) });
    assert_eq!(world.take(), [started(&world)]);
    world.step_down(9, Reason::StepDown);
    let (reason, not_after) = (Some(Reason::StepDown), deadlines(world.now).hard);
    let hook = Action::Hook { hook: HookKind::BeforeFollow, facts: Some(facts()), reason, not_after };
    world.feed(Input::Demoted);
    assert!(world.wants(&hook));
    world.feed(Input::HookForked { pid: HOOK });
    assert_eq!(world.stopped(), None);
    world.feed(Input::Reaped { pid: HOOK, exit: Exit::Code(0) });
    assert_eq!(world.stopped(), Some((9, Then::Follow)));
}

#[test]
fn a_demotions_hook_does_not_begin_after_the_h_of_the_last_renewal() {
    let mut world = hooked_leader();
    renew(&mut world, 3);
    world.step_down(9, Reason::StepDown);
    let (reason, not_after) = (Some(Reason::StepDown), deadlines(ms(3000)).hard);
    world.feed(Input::Demoted);
    assert!(world.wants(&Action::Hook { hook: HookKind::BeforeFollow, facts: Some(facts()), reason, not_after }));
}

#[test]
fn the_hook_of_a_demotion_that_could_not_be_told_is_not_begun() {
    let mut world = hooked_leader();
    world.step_down(9, Reason::StepDown);
    world.feed(Input::NotDemoted);
    world.due();
    assert!(world.wants(&Action::Walk));
    assert!(!world.actions.iter().any(|action| matches!(action, Action::Hook { .. })));
}

#[test]
fn a_promotion_that_is_on_its_way_is_called_off_before_the_stop_signal() {
    let mut world = standby(always(Acknowledge::Notify));
    world.lead(1, None);
    world.take();
    world.step_down(9, Reason::LostToHolder);
    let actions = world.take();
    let position = |wanted: &Action| actions.iter().position(|action| action == wanted);
    assert!(position(&Action::CallOff).is_some());
    assert!(position(&Action::CallOff) < position(&to_main(libc::SIGTERM)), "{actions:?}");
}

#[test]
fn a_promotion_that_is_on_its_way_is_called_off_where_the_workload_is_killed_at_once() {
    let mut world = standby(always(Acknowledge::Notify));
    world.lead(1, None);
    world.take();
    world.wake_until(deadlines(ms(1000)).hard);
    assert!(world.wants(&Action::CallOff));
}

#[test]
fn a_promotion_that_is_on_its_way_is_begun_again_where_s_moves_back() {
    let mut world = standby(always(Acknowledge::Notify));
    world.lead(1, None);
    world.take();
    let short = deadlines(ms(500));
    world.told(ToInit::Shorten { term: Term(1), serial: 1, timing: config().timing(), deadlines: short });
    assert!(world.wants(&Action::CallOff));
    world.take();
    world.feed(Input::PromotionKilled);
    let again = Action::Promote { pid: MAIN, signal: Signal(libc::SIGUSR1), not_after: short.soft };
    assert_eq!(world.take(), [again]);
}

#[test]
fn a_workload_that_may_have_been_told_that_it_leads_is_no_standby_until_it_has_died() {
    let mut world = standby(always(Acknowledge::None));
    world.lead(1, None);
    world.take();
    let short = deadlines(ms(500));
    world.told(ToInit::Shorten { term: Term(1), serial: 1, timing: config().timing(), deadlines: short });
    world.now = short.soft;
    world.feed(Input::PromotionKilled);
    world.step_down(9, Reason::Expired);
    assert!(world.wants(&to_main(libc::SIGTERM)));
    assert_eq!(world.stopped(), None);
}

#[test]
fn a_promotion_that_was_told_is_not_called_off() {
    let mut world = leader();
    world.step_down(9, Reason::LostToHolder);
    assert!(!world.wants(&Action::CallOff));
}

#[test]
fn a_promotion_hook_that_fails_ends_the_term_and_the_workload() {
    let mut world = standby(hooked(Acknowledge::Hook));
    world.lead(1, None);
    world.feed(Input::Promoted);
    world.feed(Input::HookForked { pid: HOOK });
    world.take();
    world.feed(Input::Reaped { pid: HOOK, exit: Exit::Code(1) });
    assert!(world.wants(&Action::Tell(ToElector::Stopping { term: Term(1), reason: Reason::HookFailed, at: world.now })));
    assert!(world.wants(&to_main(libc::SIGTERM)));
}

#[test]
fn a_demotion_hook_that_fails_is_a_kill_at_once() {
    let mut world = hooked_leader();
    world.step_down(9, Reason::StepDown);
    world.feed(Input::Demoted);
    world.feed(Input::HookForked { pid: HOOK });
    world.take();
    world.feed(Input::Reaped { pid: HOOK, exit: Exit::Code(1) });
    world.due();
    assert!(world.wants(&Action::Walk));
}

#[test]
fn a_hook_that_takes_too_long_is_killed_and_has_failed() {
    let mut world = standby(hooked(Acknowledge::Hook));
    world.lead(1, None);
    world.feed(Input::Promoted);
    world.feed(Input::HookForked { pid: HOOK });
    world.take();
    world.wake_until(ms(4000) - tick());
    assert_eq!(world.take(), []);
    world.wake_until(ms(4000));
    assert_eq!(world.take(), [Action::KillHook { pid: HOOK }]);
    world.feed(Input::Reaped { pid: HOOK, exit: Exit::Signal(libc::SIGKILL) });
    assert!(world.wants(&to_main(libc::SIGTERM)));
}

#[test]
fn a_demotion_waits_until_the_hook_of_the_promotion_is_dead() {
    let mut world = standby(hooked(Acknowledge::Notify));
    world.lead(1, None);
    world.feed(Input::Promoted);
    world.feed(Input::HookForked { pid: HOOK });
    world.feed(Input::Notified(Role::Leader));
    world.take();
    world.step_down(9, Reason::StepDown);
    assert_eq!(world.take(), [Action::KillHook { pid: HOOK }]);
    world.feed(Input::Notified(Role::Standby));
    assert_eq!(world.take(), [], "a word from before the question");
    world.feed(Input::Reaped { pid: HOOK, exit: Exit::Signal(libc::SIGKILL) });
    assert_eq!(world.actions.get(..2), Some(&[Action::DrainNotify, demotion()][..]));
    world.feed(Input::Demoted);
    world.feed(Input::HookForked { pid: HOOK + 1 });
    world.feed(Input::Notified(Role::Standby));
    assert_eq!(world.stopped(), None, "its own hook still runs");
    world.feed(Input::Reaped { pid: HOOK + 1, exit: Exit::Code(0) });
    assert_eq!(world.stopped(), Some((9, Then::Follow)));
}

#[test]
fn a_restart_while_leading_is_told_so_at_its_start() {
    let mut config = always(Acknowledge::Notify);
    config.workload.on_exit = OnExit::Restart;
    let mut world = standby(config);
    world.lead(1, None);
    world.feed(Input::Promoted);
    world.feed(Input::Notified(Role::Leader));
    world.exit(Exit::Code(1));
    world.prove();
    world.take();
    world.sleep_until(ms(2000));
    world.due();
    assert_eq!(
        world.spawns(),
        Some((Some(Role::Leader), Some(Launch { facts: Some(facts()), not_after: deadlines(ms(1000)).soft })))
    );
}

#[test]
fn a_standby_that_never_led_answers_a_step_down_as_it_is() {
    let mut world = standby(always(Acknowledge::Notify));
    world.lead(1, Some(ms(9000)));
    world.step_down(9, Reason::LostDeleted);
    assert_eq!(world.stopped(), Some((9, Then::Follow)));
}

#[test]
fn signals_reach_a_standby_rewritten_for_its_role() {
    let mut config = always(Acknowledge::None);
    config.signals.rewrite.standby.insert(Signal(libc::SIGHUP), Some(Signal(libc::SIGWINCH)));
    let mut world = standby(config);
    world.feed(Input::Signal(libc::SIGHUP));
    assert_eq!(world.take(), [to_main(libc::SIGWINCH)]);
    world.lead(1, None);
    world.feed(Input::Promoted);
    world.take();
    world.feed(Input::Signal(libc::SIGHUP));
    assert_eq!(world.take(), [to_main(libc::SIGHUP)]);
}

#[test]
fn a_standby_that_ends_with_on_exit_exit_ends_init() {
    let mut world = standby(always(Acknowledge::None));
    world.exit(Exit::Code(5));
    world.prove();
    assert!(world.wants(&Action::Tell(ToElector::Shutdown)));
    world.told(ToInit::Done);
    assert_eq!(world.actions.last(), Some(&Action::Exit(5)));
}

#[test]
fn term_stops_a_standby_and_ends_with_its_code() {
    let mut world = standby(always(Acknowledge::None));
    world.feed(Input::Signal(libc::SIGTERM));
    assert!(world.wants(&to_main(libc::SIGTERM)));
    world.exit(Exit::Code(0));
    world.prove();
    world.told(ToInit::Done);
    assert_eq!(world.actions.last(), Some(&Action::Exit(0)));
}

#[test]
fn term_stops_a_leader_as_a_whole() {
    let mut world = leader();
    world.feed(Input::Signal(libc::SIGTERM));
    assert!(world.wants(&to_main(libc::SIGTERM)));
    world.step_down(9, Reason::Signal);
    world.exit(Exit::Code(0));
    world.prove();
    assert_eq!(world.stopped(), Some((9, Then::Exit)));
    assert!(world.spawns().is_none());
}

#[test]
fn a_standby_waits_out_the_creation_wait_of_its_term_as_a_standby() {
    let mut world = standby(always(Acknowledge::None));
    world.lead(1, Some(ms(6000)));
    world.take();
    world.sleep_until(ms(6000) - tick());
    world.due();
    assert_eq!(world.take(), []);
    world.sleep_until(ms(6000));
    world.due();
    let promote = Action::Promote { pid: MAIN, signal: Signal(libc::SIGUSR1), not_after: deadlines(ms(1000)).soft };
    assert_eq!(world.take(), [promote]);
}
