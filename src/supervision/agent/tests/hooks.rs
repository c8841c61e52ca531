//! The hooks around a leader that is started and stopped (`runs: leading`), and those around one that is told.

use super::*;
use crate::{
    config::{Hook, HookKind, OnHookFailure},
    notification::Notification,
};

const HOOK: i32 = 300;

fn hook() -> Hook {
    Hook { command: vec!["hook".into()], timeout: Duration::from_secs(3), ..Hook::default() }
}

fn with(kinds: &[HookKind]) -> Config {
    let mut config = config();
    for kind in kinds {
        let hooks = &mut config.hooks;
        *match kind {
            HookKind::BeforeLead => &mut hooks.before_lead,
            HookKind::AfterLead => &mut hooks.after_lead,
            HookKind::BeforeFollow => &mut hooks.before_follow,
            HookKind::AfterFollow => &mut hooks.after_follow,
        } = hook();
    }
    config
}

impl World {
    /// The hook that was asked for since the last look, with what it is told of an end.
    fn hook(&self) -> Option<(HookKind, Option<Reason>, Option<Exit>, Instant)> {
        self.actions.iter().find_map(|action| {
            let Action::Hook { hook, told, not_after } = action else { return None };
            Some((*hook, told.reason, told.exit, *not_after))
        })
    }

    fn hook_runs(&mut self, kind: HookKind) {
        assert_eq!(self.hook().map(|(kind, ..)| kind), Some(kind), "{:?}", self.actions);
        self.take();
        self.feed(Input::Role(RoleInput::HookForked { pid: HOOK }));
    }

    fn hook_ends(&mut self, exit: Exit) {
        self.feed(Input::Reaped { pid: HOOK, exit });
    }

    fn starts(&self) -> bool {
        self.spawns().is_some()
    }

    fn told_started(&self) -> bool {
        self.actions.iter().any(|action| matches!(action, Action::Tell(ToElector::Started { .. })))
    }
}

#[test]
fn the_hook_before_a_lead_runs_under_the_term_before_the_workload_starts() {
    let mut world = World::new(with(&[HookKind::BeforeLead]));
    world.lead(1);

    assert_eq!(world.hook(), Some((HookKind::BeforeLead, None, None, deadlines(world.now).soft)));
    assert!(!world.starts() && world.agent.leads() && world.agent.hard() == Some(deadlines(world.now).hard));
    world.hook_runs(HookKind::BeforeLead);
    let sent = world.now;
    world.sleep_until(sent + Duration::from_secs(2));
    world.extend(1, 1, world.now);
    world.hook_ends(Exit::Code(0));

    let (role, launch) = world.spawns().expect("a start");
    assert_eq!((role, launch.unwrap().not_after), (Some(Role::Leader), deadlines(world.now).soft), "as far as it was extended");
}

#[test]
fn a_hook_before_a_lead_that_fails_hands_over_once_what_it_left_is_proved_gone() {
    for exit in [None, Some(Exit::Code(1)), Some(Exit::Signal(libc::SIGKILL))] {
        let mut world = World::new(with(&[HookKind::BeforeLead]));
        world.lead(1);
        match exit {
            None => world.feed(Input::Role(RoleInput::HookNotForked)),
            Some(exit) => {
                world.hook_runs(HookKind::BeforeLead);
                world.hook_ends(exit);
            }
        }
        assert_eq!(world.stops(), Some(Reason::HookFailed));
        assert!(!world.starts() && world.agent.leads(), "its remains may be a leader's");
        world.step_down(9, Reason::HookFailed);
        assert_eq!(world.stopped(), None);
        world.prove();
        assert_eq!(world.stopped(), Some((9, Then::Follow)));
        assert!(!world.agent.leads());
    }
}

#[test]
fn the_failure_of_a_hook_before_a_lead_may_be_ignored() {
    let mut config = with(&[HookKind::BeforeLead]);
    config.hooks.before_lead.on_failure = OnHookFailure::Ignore;
    let mut world = World::new(config);
    world.lead(1);
    world.hook_runs(HookKind::BeforeLead);
    world.hook_ends(Exit::Code(1));
    assert!(world.starts());
}

#[test]
fn a_hook_that_hangs_is_killed_at_its_timeout_and_given_up_a_kill_margin_later() {
    let mut world = World::new(with(&[HookKind::BeforeLead]));
    world.lead(1);
    let began = world.now;
    world.hook_runs(HookKind::BeforeLead);

    world.wake_until(began + Duration::from_secs(3));
    assert!(world.wants(&Action::KillHook { pid: HOOK }) && world.stops().is_none());
    world.wake_until(began + Duration::from_secs(4));
    assert_eq!(world.stops(), Some(Reason::HookFailed));
}

#[test]
fn nothing_is_started_after_a_hook_that_ends_past_s() {
    let mut world = World::new(with(&[HookKind::BeforeLead]));
    world.lead(1);
    let sent = world.now;
    world.hook_runs(HookKind::BeforeLead);
    world.sleep_until(deadlines(sent).soft);

    world.hook_ends(Exit::Code(0));

    assert!(!world.starts() && world.agent.leads(), "what the hook left is to be killed");
    world.due();
    assert!(world.wants(&Action::Sweep));
}

#[test]
fn s_and_h_are_enforced_while_a_hook_runs() {
    let mut config = with(&[HookKind::BeforeLead]);
    config.hooks.before_lead.timeout = Duration::from_secs(60);
    let mut world = World::new(config);
    world.lead(1);
    let sent = world.now;
    world.hook_runs(HookKind::BeforeLead);
    world.wake_until(deadlines(sent).soft);
    world.due();
    assert!(world.wants(&Action::Sweep), "{:?}", world.actions);
}

#[test]
fn a_workload_that_was_not_executed_in_time_leaves_its_hook_to_be_swept() {
    for why in [NotSpawned::Late, NotSpawned::Failed { code: 127, message: "gone".into() }] {
        let mut world = World::new(with(&[HookKind::BeforeLead]));
        world.lead(1);
        world.hook_runs(HookKind::BeforeLead);
        world.hook_ends(Exit::Code(0));
        world.feed(Input::Forked { pid: MAIN });
        world.sleep_until(deadlines(world.now).soft);
        world.feed(Input::NotSpawned(why));
        assert!(world.agent.leads(), "until a sweep has found nobody");
        world.prove();
        assert!(!world.agent.leads());
    }
}

#[test]
fn the_start_is_told_after_the_hook_after_a_lead_whose_failure_hands_over() {
    for (exit, starts) in [(Exit::Code(0), true), (Exit::Code(1), false)] {
        let mut world = World::new(with(&[HookKind::AfterLead]));
        world.lead(1);
        world.run();
        assert!(!world.told_started());
        world.hook_runs(HookKind::AfterLead);
        world.hook_ends(exit);
        assert_eq!((world.told_started(), world.wants(&to_main(libc::SIGTERM))), (starts, !starts));
    }
}

/// Leads, with these hooks.
fn leading(kinds: &[HookKind]) -> World {
    World::leading(with(kinds))
}

#[test]
fn the_hook_before_a_planned_stop_comes_before_the_stop_signal_and_within_its_grace() {
    for by_signal in [false, true] {
        let mut config = with(&[HookKind::BeforeFollow]);
        config.workload.stop.grace = Duration::from_secs(8);
        let mut world = World::leading(config);
        let began = world.now;
        if by_signal {
            world.feed(Input::Signal(libc::SIGTERM));
        } else {
            world.step_down(9, Reason::StepDown);
        }
        let reason = if by_signal { Reason::Signal } else { Reason::StepDown };
        assert_eq!(world.hook().map(|(kind, why, ..)| (kind, why)), Some((HookKind::BeforeFollow, Some(reason))));
        assert!(!world.wants(&to_main(libc::SIGTERM)));
        world.hook_runs(HookKind::BeforeFollow);
        world.step_down(10, reason);
        assert!(!world.wants(&to_main(libc::SIGTERM)), "asking again does not cut it short");

        world.sleep_until(began + Duration::from_secs(2));
        world.hook_ends(Exit::Code(u8::from(by_signal)));

        assert!(world.wants(&to_main(libc::SIGTERM)), "the stop goes on, whatever came of the hook");
        world.only_at(began + Duration::from_secs(8), &Action::Sweep);
    }
}

#[test]
fn a_hook_before_a_stop_that_no_sigkill_removes_leaves_the_rest_of_the_grace_to_the_program() {
    let mut world = leading(&[HookKind::BeforeFollow]);
    let began = world.now;
    world.step_down(9, Reason::StepDown);
    world.hook_runs(HookKind::BeforeFollow);

    world.wake_until(began + Duration::from_secs(3));
    assert!(world.wants(&Action::KillHook { pid: HOOK }) && !world.wants(&to_main(libc::SIGTERM)));
    world.wake_until(began + Duration::from_secs(4));

    assert!(world.wants(&to_main(libc::SIGTERM)), "{:?}", world.actions);
}

#[test]
fn what_the_workload_needs_longer_for_is_its_stop_too_while_the_hook_before_that_runs() {
    for signal in [libc::SIGTERM, libc::SIGINT] {
        let mut world = leading(&[HookKind::BeforeFollow]);
        world.step_down(9, Reason::StepDown);
        world.hook_runs(HookKind::BeforeFollow);
        let until = world.now + Duration::from_secs(60);
        world.feed(Input::Notified(Notification::ExtendTimeout(Duration::from_secs(60))));
        world.step_down(10, Reason::StepDown);
        match signal {
            libc::SIGINT => world.feed(Input::Signal(signal)),
            _ => world.hook_ends(Exit::Code(0)),
        }
        assert!(world.wants(&to_main(signal)));
        for second in 1..60 {
            world.wake_until(until.min(ms(1000 + second * 1000)));
            world.extend(1, second, world.now);
        }
        assert!(!world.wants(&Action::Sweep), "{:?}", world.now);
        world.wake_until(until);
        assert!(world.wants(&Action::Sweep), "{:?}", world.now);
    }
}

#[test]
fn a_loss_and_a_second_signal_do_not_wait_for_the_hook_before_a_stop() {
    let losses: [fn(&mut World); 2] =
        [|world| world.step_down(10, Reason::LostToHolder), |world| world.feed(Input::Signal(libc::SIGTERM))];
    for hastens in losses {
        let mut world = leading(&[HookKind::BeforeFollow]);
        world.feed(Input::Signal(libc::SIGTERM));
        world.hook_runs(HookKind::BeforeFollow);
        hastens(&mut world);
        assert!(world.wants(&Action::KillHook { pid: HOOK }) && world.wants(&to_main(libc::SIGTERM)), "{:?}", world.actions);
    }
    let mut world = leading(&[HookKind::BeforeFollow]);
    world.step_down(9, Reason::LostToHolder);
    assert!(world.hook().is_none() && world.wants(&to_main(libc::SIGTERM)));
}

#[test]
fn a_planned_stop_kills_a_hook_of_the_lead_at_once_says_so_and_leaves_the_rest_to_the_hook_after_it() {
    for kind in [HookKind::BeforeLead, HookKind::AfterLead] {
        let mut world = World::new(with(&[kind, HookKind::AfterFollow]));
        world.lead(1);
        if kind == HookKind::AfterLead {
            world.run();
        }
        world.hook_runs(kind);

        world.step_down(9, Reason::StepDown);

        let line = format!("hook {} was killed: the stop does not wait for it", kind.as_str());
        let killed = world.actions.iter().position(|action| *action == Action::KillHook { pid: HOOK });
        let said = world.actions.iter().position(|action| *action == Action::Warn(line.clone()));
        assert!(killed.is_some() && killed < said, "{:?}", world.actions);
        if kind == HookKind::AfterLead {
            world.exit(Exit::Code(0));
        }
        world.hook_ends(Exit::Signal(libc::SIGKILL));
        world.prove();
        assert_eq!(world.hook().map(|(kind, ..)| kind), Some(HookKind::AfterFollow));
    }
}

#[test]
fn the_end_of_the_program_kills_a_hook_of_its_lead_and_says_so_and_at_h_the_kill_comes_before_the_words() {
    let line = Action::Warn("hook afterLead was killed: the stop does not wait for it".into());
    let runs = || {
        let mut world = World::new(with(&[HookKind::AfterLead]));
        world.lead(1);
        world.run();
        world.hook_runs(HookKind::AfterLead);
        world
    };

    let mut world = runs();
    world.exit(Exit::Code(1));
    assert!(world.actions.contains(&line), "{:?}", world.actions);

    let mut world = runs();
    world.now = deadlines(world.now).hard;
    world.due();
    let kills = |action: &Action| matches!(action, Action::Sweep | Action::KillAll);
    let killed = world.actions.iter().position(kills);
    let said = world.actions.iter().position(|action| *action == line);
    assert!(killed.is_some() && killed < said, "{:?}", world.actions);
}

#[test]
fn the_hook_after_a_stop_runs_once_the_proof_was_given_and_not_before_and_knows_how_it_went() {
    let mut world = leading(&[HookKind::AfterFollow]);
    world.step_down(9, Reason::StepDown);
    world.exit(Exit::Signal(libc::SIGTERM));
    assert!(world.hook().is_none());
    world.prove();

    let told = world.actions.iter().position(|action| matches!(action, Action::Tell(ToElector::Stopped { .. })));
    let hook = world.actions.iter().position(|action| matches!(action, Action::Hook { .. }));
    assert!(told.is_some() && told < hook, "{:?}", world.actions);
    let end = (HookKind::AfterFollow, Some(Reason::StepDown), Some(Exit::Signal(libc::SIGTERM)), Instant::NEVER);
    assert_eq!(world.hook(), Some(end));
    assert!(!world.agent.leads());
    world.hook_runs(HookKind::AfterFollow);
    world.hook_ends(Exit::Code(1));
    world.prove();
    world.told(ToInit::Ended { term: Term(1), backoff: None });
    assert!(world.hook().is_none(), "once");
}

#[test]
fn the_next_term_kills_the_hook_after_an_end_without_a_warning() {
    let mut world = leading(&[HookKind::AfterFollow]);
    world.step_down(9, Reason::StepDown);
    world.exit_proved(Exit::Code(0));
    world.hook_runs(HookKind::AfterFollow);
    world.told(ToInit::Ended { term: Term(1), backoff: None });
    world.take();

    world.lead(2);
    world.due();

    assert!(world.wants(&Action::Sweep), "{:?}", world.actions);
    assert!(!world.actions.iter().any(|action| matches!(action, Action::Warn(_))), "{:?}", world.actions);
}

#[test]
fn a_hook_after_the_end_that_no_sigkill_removes_leaves_the_next_term_to_another_replica() {
    let mut world = leading(&[HookKind::AfterFollow]);
    world.step_down(9, Reason::StepDown);
    world.exit_proved(Exit::Signal(libc::SIGTERM));
    world.hook_runs(HookKind::AfterFollow);
    world.told(ToInit::Ended { term: Term(1), backoff: None });
    world.wake_until(world.now + hook().timeout);
    world.never_proved(world.now + Duration::from_secs(6));
    world.take();

    world.lead(2);

    assert_eq!(world.stops(), Some(Reason::SpawnFailed), "{:?}", world.actions);
    world.told(ToInit::StepDown { term: Term(2), request: 10, reason: Reason::SpawnFailed, traceparent: String::new() });
    assert_eq!(world.stopped(), Some((10, Then::Follow)), "nothing of a leader has run");
}

#[test]
fn the_hook_after_an_end_of_its_own_runs_once_and_knows_how_it_went() {
    for (on_exit, reason) in [(OnExit::Follow, Reason::Exited), (OnExit::Restart, Reason::StepDown)] {
        let mut config = with(&[HookKind::AfterFollow]);
        config.workload.on_exit = on_exit;
        let mut world = World::leading(config);
        world.exit_proved(Exit::Code(9));
        assert!(world.hook().is_none(), "nobody has asked for the proof yet");

        world.step_down(9, Reason::StepDown);
        world.due();
        if world.wants(&Action::Sweep) {
            world.feed(Input::Scanned(Scan { clean: true, ..Scan::default() }));
        }

        let end = (HookKind::AfterFollow, Some(reason), Some(Exit::Code(9)), Instant::NEVER);
        assert_eq!(world.hook(), Some(end), "{on_exit:?}: {:?}", world.actions);
        world.hook_runs(HookKind::AfterFollow);
        world.step_down(10, Reason::StepDown);
        world.hook_ends(Exit::Code(0));
        world.prove();
        world.told(ToInit::Ended { term: Term(1), backoff: None });
        assert!(world.hook().is_none(), "once");
    }
}

#[test]
fn a_restart_that_comes_too_late_does_not_forget_the_hook_of_the_run_before_it() {
    let mut config = with(&[HookKind::AfterFollow]);
    config.workload.on_exit = OnExit::Restart;
    let mut world = World::leading(config);
    world.exit_proved(Exit::Code(9));
    world.wake_until(ms(2000));
    assert!(world.starts(), "{:?}", world.actions);
    world.take();
    world.feed(Input::NotSpawned(NotSpawned::Late));

    world.step_down_proved(Reason::StepDown, Exit::Code(0));

    assert_eq!(world.hook().map(|(kind, _, exit, _)| (kind, exit)), Some((HookKind::AfterFollow, Some(Exit::Code(9)))));
}

#[test]
fn a_leader_that_hangs_has_its_hook_before_the_stop_like_any_that_is_stopped_as_planned() {
    let mut config = with(&[HookKind::BeforeFollow]);
    config.workload.liveness.notify = true;
    let mut world = World::leading(config);
    world.feed(Input::Notified(Notification::WatchdogTrigger));
    assert_eq!(world.stops(), Some(Reason::NotLive));
    assert_eq!(world.hook().map(|(kind, reason, ..)| (kind, reason)), Some((HookKind::BeforeFollow, Some(Reason::NotLive))));
    assert!(!world.wants(&to_main(libc::SIGTERM)));
    let warned = |world: &World| world.actions.iter().filter(|action| matches!(action, Action::Warn(_))).count();
    assert_eq!(warned(&world), 1);
    world.hook_runs(HookKind::BeforeFollow);
    world.told(ToInit::Heartbeat);
    assert_eq!(warned(&world), 0, "it is given up once");
    world.hook_ends(Exit::Code(0));
    assert!(world.wants(&to_main(libc::SIGTERM)));
}

#[test]
fn a_hook_after_a_stop_that_the_next_lead_calls_off_has_not_failed() {
    let mut world = World::standby(told_by_signals(with(&[HookKind::AfterFollow]), Acknowledge::None));
    world.lead(1);
    world.feed(Input::Role(RoleInput::Signalled));
    world.step_down(9, Reason::StepDown);
    world.feed(Input::Role(RoleInput::Signalled));
    world.told(ToInit::Ended { term: Term(1), backoff: None });
    world.hook_runs(HookKind::AfterFollow);

    world.lead(2);

    assert!(world.wants(&Action::KillHook { pid: HOOK }), "{:?}", world.actions);
    world.hook_ends(Exit::Signal(libc::SIGKILL));
    assert!(!world.actions.iter().any(|action| matches!(action, Action::Warn(_))), "{:?}", world.actions);
}

#[test]
fn the_hook_after_a_stop_waits_for_the_question_that_the_proof_answers() {
    let mut world = leading(&[HookKind::AfterFollow]);
    world.feed(Input::Signal(libc::SIGINT));
    world.exit_proved(Exit::Code(0));
    assert!(world.hook().is_none(), "nobody has asked for the proof yet");
}

#[test]
fn the_next_lead_does_not_wait_for_the_hook_after_the_last_stop_and_starts_nothing_before_that_is_gone() {
    let mut world = leading(&[HookKind::AfterFollow]);
    world.step_down_proved(Reason::StepDown, Exit::Code(0));
    world.hook_runs(HookKind::AfterFollow);
    world.told(ToInit::Ended { term: Term(1), backoff: None });

    world.lead(2);

    assert!(!world.starts() && !world.agent.leads());
    world.prove();
    assert!(world.starts());
}

#[test]
fn a_step_down_while_the_hook_after_a_stop_runs_is_answered_at_once() {
    let mut world = leading(&[HookKind::AfterFollow]);
    world.step_down_proved(Reason::StepDown, Exit::Code(0));
    world.hook_runs(HookKind::AfterFollow);
    world.take();
    world.step_down(10, Reason::StepDown);
    assert_eq!(world.stopped(), Some((10, Then::Follow)));
}

#[test]
fn a_standby_is_told_to_lead_after_the_hook_before_that() {
    let mut world = World::standby(told_by_signals(with(&[HookKind::BeforeLead, HookKind::AfterFollow]), Acknowledge::None));
    world.take();

    world.lead(1);
    world.hook_runs(HookKind::BeforeLead);
    assert!(world.agent.leads());
    let later = world.now + Duration::from_secs(2);
    world.sleep_until(later);
    world.extend(1, 1, later);
    world.hook_ends(Exit::Code(0));
    let told = |world: &World, role| {
        world.actions.iter().find_map(|action| {
            let Action::TellRole { role: told, not_after, .. } = action else { return None };
            (*told == role).then_some(*not_after)
        })
    };
    assert_eq!(told(&world, Role::Leader), Some(Some(deadlines(later).soft)));
    world.feed(Input::Role(RoleInput::Signalled));
    world.take();

    world.step_down(9, Reason::StepDown);
    assert!(world.hook().is_none());
    world.feed(Input::Role(RoleInput::Signalled));
    assert_eq!(
        world.hook().map(|(kind, why, exit, _)| (kind, why, exit)),
        Some((HookKind::AfterFollow, Some(Reason::StepDown), None))
    );
    world.hook_runs(HookKind::AfterFollow);
    world.told(ToInit::Ended { term: Term(1), backoff: None });
    world.lead(2);
    assert!(world.wants(&Action::KillHook { pid: HOOK }) && told(&world, Role::Leader).is_none());
    world.hook_ends(Exit::Signal(libc::SIGKILL));
    assert_eq!(world.hook().map(|(kind, ..)| kind), Some(HookKind::BeforeLead));
}

#[test]
fn the_hook_after_a_lead_may_begin_for_as_long_as_the_latest_renewal_allows() {
    let mut started = World::new(with(&[HookKind::AfterLead]));
    started.lead(1);
    started.feed(Input::Forked { pid: MAIN });
    let mut frozen = with(&[HookKind::AfterLead]);
    frozen.workload.runs = Runs::Frozen;
    let mut continued = World::standby(frozen);
    continued.feed(Input::Role(RoleInput::Looked { frozen: true }));
    continued.lead(1);
    for (mut world, done) in [(started, Input::Spawned), (continued, Input::Role(RoleInput::Signalled))] {
        world.take();
        world.sleep_until(world.now + Duration::from_secs(5));
        world.extend(1, 1, world.now);
        world.feed(done);
        assert_eq!(world.hook(), Some((HookKind::AfterLead, None, None, deadlines(world.now).soft)));
    }
}
