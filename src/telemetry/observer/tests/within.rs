//! What is told within a term: failures, restarts, hooks.

use super::*;

#[test]
fn a_failed_renewal_is_told_within_the_term_and_failures_of_a_standby_are_not() {
    let failed = || Event::Failed { operation: Operation::Update, sent: ms(0), message: "timed out".into() };
    assert_eq!(reported(&mut Observer::default(), 1, failed()), []);
    let over = reported(&mut leading(), 3_000, failed());
    let [Outcome::During { parent, term: 7, phase, .. }] = &over[..] else { panic!("{over:?}") };
    assert_eq!((*parent, phase.name, phase.error.as_deref()), (CONTEXT, Name::Renew, Some("timed out")));
    assert_eq!((phase.from, phase.until), (ms(0), ms(3_000)));
    assert!(phase.facts.iter().any(|fact| fact.key.as_str() == "tenure.margin_left"), "{:?}", phase.facts);
    let watch = Event::Failed { operation: Operation::Watch, sent: ms(0), message: "forbidden".into() };
    assert_eq!(reported(&mut leading(), 3_000, watch), []);
}

#[test]
fn a_renewal_may_fail_during_a_stop_and_what_fails_after_the_proof_is_none() {
    let failed = || Event::Failed { operation: Operation::Update, sent: ms(0), message: "timed out".into() };
    let stop = Stop { began: None, killed: None, exited: None, exit: None, proved: ms(200) };
    let mut observer = leading();
    reported(&mut observer, 100, stopping(Reason::Signal));
    assert_eq!(reported(&mut observer, 110, failed()).len(), 1);
    reported(&mut observer, 200, Event::Proved(stop));
    assert_eq!(reported(&mut observer, 210, failed()), []);
}

#[test]
fn a_workload_that_is_started_again_is_told_within_the_term() {
    let mut observer = leading();
    let restarting = ToElector::Restarting { term: TERM, exit: Exit::Code(3), at: ms(500) };
    let over = feed(&mut observer, &[(501, Fact::Received(&restarting)), (1_510, Fact::Received(&started(1_500)))]);
    let [Outcome::During { parent, phase, .. }] = &over[..] else { panic!("{over:?}") };
    assert_eq!((*parent, phase.name, phase.from, phase.until), (CONTEXT, Name::WorkloadStart, ms(500), ms(1_500)));
}

fn hooked(hook: HookKind, began: u64, ended: u64, exit: Exit) -> ToElector {
    ToElector::Hooked { hook, began: ms(began), ended: ms(ended), exit }
}

#[test]
fn a_hook_that_a_promotion_waited_for_is_a_part_of_it_and_one_that_it_did_not_of_the_term() {
    let mut observer = Observer::default();
    let hook = hooked(HookKind::AfterLead, 8, 15, Exit::Code(0));
    feed(
        &mut observer,
        &[
            (0, Fact::Reported(&campaigning(Vacancy::Released, None))),
            (5, Fact::Reported(&acquired())),
            (6, Fact::Sent(&lead(ms(0), None))),
            (15, Fact::Received(&hook)),
        ],
    );
    let told = only(feed(&mut observer, &[(25, Fact::Received(&started(20)))]));
    assert_eq!(spans(&told).last(), Some(&("hook", ms(8), ms(15))));

    let late = hooked(HookKind::AfterLead, 8, 40, Exit::Code(3));
    let over = feed(&mut observer, &[(40, Fact::Received(&late))]);
    let [Outcome::During { parent: CONTEXT, term: 7, phase, .. }] = &over[..] else { panic!("{over:?}") };
    assert_eq!((phase.name, phase.error.as_deref()), (Name::Hook, Some("the hook failed")));
}

#[test]
fn the_hook_of_a_demotion_is_a_part_of_it() {
    let mut observer = leading();
    reported(&mut observer, 100, stopping(Reason::StepDown));
    let hook = hooked(HookKind::BeforeFollow, 105, 120, Exit::Code(0));
    assert_eq!(feed(&mut observer, &[(120, Fact::Received(&hook))]), []);
    let stop = Stop { began: Some(ms(100)), killed: None, exited: None, exit: None, proved: ms(121) };
    reported(&mut observer, 121, Event::Proved(stop));
    let told = only(reported(&mut observer, 130, Event::Following));
    assert_eq!(spans(&told).first(), Some(&("hook", ms(105), ms(120))));
    assert_eq!(told.phases[0].facts[0], KeyValue::new("tenure.hook", "beforeFollow"));
}

#[test]
fn the_hook_of_a_promotion_that_ends_during_a_stop_is_a_part_of_the_term() {
    let mut observer = leading();
    reported(&mut observer, 1000, stopping(Reason::StepDown));

    let ended = hooked(HookKind::AfterLead, 500, 1010, Exit::Signal(libc::SIGKILL));
    let told = observer.record(Fact::Received(&ended), at(1011));

    assert!(matches!(told[..], [Outcome::During { .. }]), "{told:?}");
}
