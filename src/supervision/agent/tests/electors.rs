//! Law 10: electors come and go, the term stays.

use super::*;
use crate::link::LastSeen;

#[test]
fn the_next_elector_is_handed_the_term_as_it_stands() {
    let mut world = World::leading(config());
    world.sleep_until(ms(4000));
    world.extend(1, 1, ms(3900));
    world.take();
    let initial = world.replace_elector();
    assert_eq!(initial.config.timing(), config().timing());
    let resume = initial.resume.unwrap();
    assert_eq!((initial.generation, initial.last_term, initial.shutdown), (2, Term(1), false));
    assert_eq!((resume.term, resume.confirmed), (Term(1), confirmed(ms(3900))));
    assert_eq!((resume.stopping, resume.released, resume.main, resume.told), (None, false, Some(MAIN), true));
}

#[test]
fn a_start_while_there_was_no_elector_is_told_to_the_next_one_and_only_to_that() {
    let mut world = World::new(config());
    world.lead(1);
    world.feed(Input::ElectorEnded);
    world.run();
    let started = world.now;
    world.due();
    assert!(!world.started_elector().unwrap().resume.unwrap().told);
    assert_eq!(world.tells(), []);

    world.feed(Input::ElectorStarted);

    assert_eq!(world.tells(), [ToElector::Started { term: Term(1), pid: MAIN, at: started }]);
    world.take();
    world.feed(Input::ElectorEnded);
    world.wake_until(world.now + Duration::from_secs(1));
    assert!(world.started_elector().unwrap().resume.unwrap().told);
    world.feed(Input::ElectorStarted);
    assert_eq!(world.tells(), []);
}

#[test]
fn the_death_of_the_elector_does_not_touch_the_workload_before_s() {
    let mut world = World::leading(config());
    world.feed(Input::ElectorEnded);
    world.wake_until(deadlines(ms(1000)).soft.before(tick()));
    assert!(world.actions.iter().all(|action| *action == Action::StartElector), "{:?}", world.actions);
}

#[test]
fn a_fresh_elector_is_not_believed_about_a_proof_that_answered_the_one_before() {
    let mut world = World::leading(config());
    world.step_down_proved(Reason::StepDown, Exit::Code(0));
    assert_eq!(world.replace_elector().resume.unwrap().stopping, Some(Reason::StepDown));
    world.feed(Input::ElectorStarted);
    world.told(ToInit::Releasing { term: Term(1), serial: 1 });
    assert!(!world.wants(&Action::Tell(acknowledged(1, 1))));
}

#[test]
fn a_release_that_was_announced_is_handed_on() {
    let mut world = World::leading(config());
    world.step_down_proved(Reason::StepDown, Exit::Code(0));
    world.told(ToInit::Releasing { term: Term(1), serial: 1 });
    assert!(world.replace_elector().resume.unwrap().released);
}

#[test]
fn an_elector_that_is_silent_for_d_is_killed_whether_it_follows_or_leads() {
    let mut leads = World::leading(config());
    leads.step_down(9, Reason::StepDown);
    leads.exit_proved(Exit::Code(0));
    for mut world in [World::new(config()), leads] {
        world.only_at(ms(16_000), &Action::KillElector);
    }
}

#[test]
fn an_elector_that_beats_lives() {
    let mut world = World::new(config());
    for second in 1..100 {
        world.wake_until(ms(1000 + second * 5000));
        world.told(ToInit::Heartbeat);
    }
    assert!(!world.wants(&Action::KillElector));
    assert_eq!(world.tells().len(), 99);
}

#[test]
fn what_was_in_the_link_of_a_killed_elector_counts() {
    let mut world = World::leading(config());
    world.sleep_until(ms(4000));
    world.feed(Input::LinkBroken);
    world.extend(1, 1, ms(3900));
    assert_eq!(world.take(), [Action::KillElector]);
    assert_eq!(world.replace_elector().resume.unwrap().confirmed, confirmed(ms(3900)));
}

#[test]
fn no_elector_is_started_into_a_repeated_kill_of_everything() {
    let mut world = World::leading(config());
    world.wake_until(deadlines(ms(1000)).hard);
    world.take();
    world.feed(Input::ElectorEnded);
    world.feed(Input::Scanned(Scan { left: vec![MAIN], ..Scan::default() }));
    world.due();
    assert!(world.started_elector().is_none());
    world.feed(Input::Scanned(Scan { clean: true, ..Scan::default() }));
    world.due();
    assert!(world.started_elector().is_some());
}

#[test]
fn an_elector_that_cannot_work_ends_init_with_its_code_if_nothing_leads() {
    let mut world = World::new(config());
    world.told(ToInit::Failed { code: 78, message: "no kubeconfig".into() });
    assert!(world.wants(&Action::TerminationMessage("no kubeconfig".into(), 78)));
    world.feed(Input::ElectorEnded);
    assert_eq!(world.actions.last(), Some(&Action::Exit(78)));
}

#[test]
fn an_elector_that_cannot_work_leaves_the_workload_until_s_and_then_ends_init() {
    let mut world = World::leading(config());
    world.told(ToInit::Failed { code: 78, message: "no kubeconfig".into() });
    world.feed(Input::ElectorEnded);
    world.wake_until(deadlines(ms(1000)).soft);
    assert!(world.wants(&to_main(libc::SIGTERM)));
    assert!(world.started_elector().is_none());
    world.exit_proved(Exit::Code(0));
    assert_eq!(world.actions.last(), Some(&Action::Exit(78)));
}

#[test]
fn only_of_a_term_whose_stop_is_not_proved_the_next_one_guards_the_hard_deadline() {
    for (proved, hard) in [(true, Instant::NEVER), (false, deadlines(ms(1000)).hard)] {
        let mut world = World::leading(config());
        world.step_down(9, Reason::StepDown);
        world.exit(Exit::Code(0));
        if proved {
            world.prove();
        }
        let resume = world.replace_elector().resume.unwrap();
        assert_eq!(resume.confirmed.deadlines, Deadlines { hard, ..deadlines(ms(1000)) });
    }
}

#[test]
fn the_next_one_is_told_what_began_the_stop_or_the_first_loss() {
    for (first, second, told) in [
        (Reason::StepDown, Reason::PreferredHolder, Reason::StepDown),
        (Reason::StepDown, Reason::LostToHolder, Reason::LostToHolder),
        (Reason::LostDeleted, Reason::LostRecreated, Reason::LostDeleted),
        (Reason::LostDeleted, Reason::StepDown, Reason::LostDeleted),
    ] {
        let mut world = World::leading(config());
        world.step_down(1, first);
        world.step_down(2, second);

        assert_eq!(world.replace_elector().resume.unwrap().stopping, Some(told), "{first:?}, {second:?}");
    }
}

#[test]
fn one_that_replaces_an_elector_which_was_not_reaped_is_not_answered_what_that_one_asked() {
    let mut world = World::leading(config());
    world.step_down(1, Reason::StepDown);
    world.feed(Input::LinkBroken);
    world.take();
    world.wake_until(ms(2000));
    assert!(world.started_elector().is_some());
    world.greet();
    world.exit_proved(Exit::Code(0));
    assert_eq!(world.stopped(), None);
    world.step_down(1, Reason::StepDown);
    world.prove();
    assert_eq!(world.stopped(), Some((1, Then::Follow)));
}

#[test]
fn the_next_elector_is_told_what_counts_of_what_was_seen_of_the_lease_last() {
    let mut world = World::new(config());
    let last_seen = LastSeen { duration: Duration::from_secs(40), held: Some("uid".into()), named: true, not_before: ms(50_000) };
    world.told(ToInit::Observed {
        slot: Slot::default(),
        last_seen: LastSeen { duration: Duration::from_secs(60), held: None, named: false, not_before: Instant::BOOT },
    });
    world.told(ToInit::Observed { slot: Slot::default(), last_seen: last_seen.clone() });
    world.take();

    assert_eq!(world.replace_elector().last_seen, [(Slot::default(), last_seen)].into());
}

#[test]
fn an_elector_that_starts_while_init_ends_the_term_is_told_so() {
    let mut config = config();
    config.workload.on_exit = OnExit::Follow;
    let mut world = World::leading(config);
    world.feed(Input::ElectorEnded);
    world.due();
    world.exit(Exit::Code(1));
    let initial = world.started_elector().unwrap();
    assert_eq!(initial.resume.unwrap().stopping, Some(Reason::Exited));
    world.greet();
    world.step_down(1, Reason::Exited);
    world.prove();
    assert_eq!(world.stopped(), Some((1, Then::Follow)));
}
