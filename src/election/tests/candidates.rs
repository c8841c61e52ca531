//! Campaigns of a replica whose workload is not ready, and the status of the workload.

use serde_json::json;

use super::bench::{Bench, Register, TICK, initial_state, mark, plus, seconds};
use crate::{
    config::{Candidate, Runs},
    election::{
        Event,
        writes::{CANDIDATE, STATUS, TRACEPARENT},
    },
    link::{InitialState, ToElector},
};

/// Only ready standbys campaign, unless nobody does for 40 s.
fn candidate() -> InitialState {
    let mut initial = initial_state();
    let workload = &mut initial.config.workload;
    (workload.runs, workload.candidate, workload.unready_after) = (Runs::Always, Candidate::Ready, seconds(40));
    workload.readiness.notify = true;
    initial
}

fn health(unready: Option<&str>, status: &str) -> ToElector {
    ToElector::Health { unready: unready.map(str::to_owned), status: status.into() }
}

fn says_so(bench: &Bench) -> bool {
    bench.events.iter().any(|event| matches!(event, Event::Odd { message } if message.contains("not ready")))
}

#[test]
fn an_unready_one_leaves_a_free_lease_alone_until_nobody_else_has_taken_it_and_says_so() {
    let mut bench = Bench::start(candidate(), Register::holding(mark()));
    bench.run(seconds(40) - TICK);
    assert!(bench.writes().is_empty() && !says_so(&bench));
    bench.run(TICK);
    assert!(bench.leads().is_some() && says_so(&bench));
}

#[test]
fn an_unready_one_waits_that_much_longer_for_a_holder_too_and_one_that_gets_ready_no_longer() {
    let mut spec = mark();
    (spec["holderIdentity"], spec["leaseDurationSeconds"]) = ("x".into(), 15.into());
    for (ready_after, took) in [(None, plus(15) + seconds(40)), (Some(seconds(3)), plus(15)), (Some(seconds(30)), seconds(30))] {
        let mut bench = Bench::start(candidate(), Register::holding(spec.clone()));
        if let Some(ready_after) = ready_after {
            bench.run(ready_after);
            bench.tell(health(None, ""));
            bench.run(took.saturating_sub(ready_after));
        } else {
            bench.run(took - TICK);
            assert!(bench.leads().is_none());
            bench.run(TICK);
        }
        assert_eq!((bench.leads().is_some(), says_so(&bench)), (true, ready_after.is_none()), "{ready_after:?}");
    }
}

#[test]
fn any_standby_campaigns_unless_it_is_told_otherwise() {
    let mut initial = candidate();
    initial.config.workload.candidate = Candidate::Any;
    let mut bench = Bench::start(initial, Register::holding(mark()));
    bench.run(TICK);
    assert!(bench.leads().is_some() && !says_so(&bench));
}

#[test]
fn the_status_of_a_leader_is_on_the_lease_with_the_next_renewal_and_gone_with_the_release() {
    let annotation = |bench: &Bench| bench.body()["metadata"]["annotations"].get(STATUS).cloned();
    let mut bench = Bench::leading();
    assert_eq!(annotation(&bench), None);
    bench.tell(health(None, "7 of 9 done"));
    bench.run(seconds(4));
    assert_eq!(annotation(&bench), Some("7 of 9 done".into()));
    bench.tell(health(None, ""));
    bench.run(seconds(4));
    assert_eq!(annotation(&bench), None);
    bench.tell(health(None, "9 of 9 done"));
    bench.run(seconds(4));
    bench.stop(crate::link::Reason::Signal, crate::link::Then::Follow);
    bench.run(seconds(1));
    assert_eq!(bench.body()["spec"]["holderIdentity"], "");
    assert_eq!(annotation(&bench), None);
    assert!(bench.body()["metadata"]["annotations"].get(TRACEPARENT).is_some());
}

#[test]
fn whoever_takes_a_lease_or_holds_it_for_nobody_drops_the_candidates_of_before() {
    for spec in [mark(), json!({})] {
        let mut register = Register::holding(spec);
        register.edit(|object| {
            object["metadata"]["annotations"] = json!({"theirs": "x"});
            (0..1514).for_each(|who| object["metadata"]["annotations"][format!("{CANDIDATE}{who}")] = "{}".into());
        });
        let mut bench = Bench::start(initial_state(), register);
        bench.run(TICK);
        let written = bench.body();
        let annotations = written["metadata"]["annotations"].as_object().unwrap();
        assert!(annotations.contains_key("theirs") && !annotations.keys().any(|name| name.starts_with(CANDIDATE)), "{written}");
    }
}
