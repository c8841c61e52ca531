//! Replicas whose terms fail leave the Lease to the others for longer each time.

use std::time::Duration;

use super::bench::{Bench, ME, Register, START, TICK, held, initial_state, mark, plus, seconds, takes_exactly_after};
use crate::{
    config::Preset,
    election::{Event, writes::STEP_DOWN_TO},
    link::{Exit, InitialState, LeaseBackoff, Reason, Stop, Term, Then, ToElector, ToInit},
};

const FAILURE: Option<Exit> = Some(Exit::Code(1));

/// The term ends so, and another replica leads for a moment.
fn ends(bench: &mut Bench, reason: Reason, exit: Option<Exit>) {
    bench.stopping(reason);
    bench.prove_ended(exit, Then::Follow);
    bench.run(Duration::ZERO);
    bench.see(|object| object["spec"] = held("x", 15));
    bench.see(|object| object["spec"] = mark());
}

fn term(bench: &Bench) -> u64 {
    bench.leads().map_or(0, |Term(term)| term)
}

fn leads_again_at_once(bench: &mut Bench) {
    let before = term(bench);
    bench.run(TICK);
    assert_eq!(term(bench), before + 1);
}

/// The next term begins after `span` and not before.
fn leads_again_after(bench: &mut Bench, span: Duration) {
    let before = term(bench);
    bench.run(span - TICK);
    assert_eq!(term(bench), before, "a term before {span:?}");
    bench.run(TICK);
    assert_eq!(term(bench), before + 1, "no term after {span:?}");
}

#[test]
fn each_failed_term_doubles_the_time_for_which_the_others_go_first_up_to_five_minutes() {
    let mut bench = Bench::leading();
    let spans = [plus(15), plus(30), plus(60), plus(120), plus(240), seconds(300), seconds(300)];
    for (failures, span) in (1..).zip(spans) {
        ends(&mut bench, Reason::Exited, FAILURE);
        let backoff = LeaseBackoff { until: bench.now.boot + span, failures };
        assert_eq!(bench.elector.view().backoff, backoff);
        assert!(bench.events.contains(&Event::BacksOff(backoff)));
        leads_again_after(&mut bench, span);
    }
}

#[test]
fn the_time_counts_from_the_proof_of_which_a_frozen_elector_learns_late() {
    let mut bench = Bench::leading();
    bench.stopping(Reason::HookFailed);
    let (term, request) = bench.step_down().expect("a StepDown was told");
    let proved = bench.now.boot + seconds(1);
    let stop = Stop { began: None, killed: None, exited: None, exit: None, fused: None, proved };

    bench.tell(ToElector::Stopped { term, request, stop, then: Then::Follow });

    assert_eq!(bench.elector.view().backoff, LeaseBackoff { until: proved + plus(15), failures: 1 });
}

#[test]
fn a_term_fails_by_its_workload_its_health_or_a_hook_and_by_nothing_else() {
    for (reason, exit, fails) in [
        (Reason::Exited, FAILURE, true),
        (Reason::Exited, Some(Exit::Signal(libc::SIGSEGV)), true),
        (Reason::NotLive, None, true),
        (Reason::NotReady, None, true),
        (Reason::HookFailed, None, true),
        (Reason::NotAcknowledged, None, true),
        (Reason::SpawnFailed, None, true),
        (Reason::Fuse, None, true),
        (Reason::Exited, Some(Exit::Code(0)), false),
        (Reason::StepDown, FAILURE, false),
        (Reason::PreferredHolder, FAILURE, false),
    ] {
        let mut bench = Bench::leading();
        ends(&mut bench, reason, exit);
        if fails { leads_again_after(&mut bench, plus(15)) } else { leads_again_at_once(&mut bench) }
    }
}

#[test]
fn ten_minutes_of_leading_make_the_failures_before_forgotten_however_the_term_ends() {
    for (led, span) in [(599, plus(30)), (601, plus(15))] {
        let mut bench = Bench::leading();
        ends(&mut bench, Reason::Exited, FAILURE);
        leads_again_after(&mut bench, plus(15));
        bench.run(seconds(led));
        ends(&mut bench, Reason::NotLive, None);
        leads_again_after(&mut bench, span);
    }
    let mut bench = Bench::leading();
    ends(&mut bench, Reason::Exited, FAILURE);
    leads_again_after(&mut bench, plus(15));
    bench.run(seconds(601));
    ends(&mut bench, Reason::StepDown, None);
    leads_again_at_once(&mut bench);
}

#[test]
fn a_success_ends_the_failures_in_a_row() {
    let mut bench = Bench::leading();
    for (reason, exit, span) in [
        (Reason::Exited, FAILURE, plus(15)),
        (Reason::StepDown, Some(Exit::Code(0)), plus(15)),
        (Reason::Exited, FAILURE, plus(30)),
        (Reason::Exited, Some(Exit::Code(0)), Duration::ZERO),
        (Reason::Exited, FAILURE, plus(15)),
    ] {
        ends(&mut bench, reason, exit);
        if span.is_zero() { leads_again_at_once(&mut bench) } else { leads_again_after(&mut bench, span) }
    }
}

#[test]
fn the_failures_are_handed_to_the_next_elector() {
    let mut bench = Bench::leading();
    ends(&mut bench, Reason::Exited, FAILURE);
    let Some(ToInit::Ended { backoff, .. }) = bench.told.iter().rfind(|told| matches!(told, ToInit::Ended { .. })) else {
        panic!("it ended")
    };
    assert_eq!(*backoff, Some(LeaseBackoff { until: bench.now.boot + plus(15), failures: 1 }));

    let backoff = Some(LeaseBackoff { until: START + plus(15), failures: 1 });
    let mut next = Bench::start(InitialState { backoff, ..initial_state() }, Register::holding(held("x", 15)));
    next.see(|object| object["spec"] = mark());
    takes_exactly_after(&mut next, plus(15));
    next.run(TICK);
    ends(&mut next, Reason::Exited, FAILURE);
    leads_again_after(&mut next, plus(30));
}

#[test]
fn a_named_candidate_takes_the_lease_although_its_last_term_failed() {
    let mut bench = Bench::leading();
    ends(&mut bench, Reason::Exited, FAILURE);
    bench.see(|object| object["metadata"]["annotations"][STEP_DOWN_TO] = ME.into());
    leads_again_at_once(&mut bench);
}

#[test]
fn a_run_of_a_task_that_failed_is_tried_again_within_its_interval() {
    let task = crate::config::Task { trigger: crate::config::Trigger::Every(seconds(40)), limit: None, once: None };
    let mut initial = InitialState { preset: Preset::Task(task), ..initial_state() };
    initial.config.task.on_failure = crate::config::OnFailure::Release;
    let mut bench = Bench::leading_with(initial);
    for span in [plus(15), plus(30), seconds(40)] {
        ends(&mut bench, Reason::Exited, FAILURE);
        leads_again_after(&mut bench, span);
    }
}
