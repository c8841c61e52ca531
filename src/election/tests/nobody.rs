//! A Lease that was not given back is held by nobody first, waited for, and then taken (law 14).

use std::time::Duration;

use serde_json::{Value, json};

use super::bench::{Bench, ME, Register, TICK, held, initial_state, lost, mark, plus, seconds, takes_exactly_after};
use crate::{
    config::{ForeignRelease, Preset},
    election::{
        AcquireReason, Event,
        writes::{HOLDER, NOBODY, PAUSED, STEP_DOWN_TO, Sent},
    },
    link::{InitialState, LastSeen},
    request::{Answer, Watched},
    slot::Slot,
    time::Instant,
};

fn with_creation_wait(wait: Duration, register: Register) -> Bench {
    let mut initial = initial_state();
    initial.config.lease.creation_wait = Some(wait);
    Bench::start(initial, register)
}

fn annotated(spec: Value, annotations: Value) -> Register {
    let mut register = Register::holding(spec);
    register.edit(|object| object["metadata"]["annotations"] = annotations);
    register
}

fn nobody(duration: i64) -> Value {
    json!({"holderIdentity": NOBODY, "leaseDurationSeconds": duration, "renewTime": "2026-01-01T00:00:00.000000Z"})
}

fn clear(bench: &mut Bench) {
    bench.see(|object| object["spec"] = json!({}));
}

/// Asserts that no term begins before `span`, and one by then.
fn leads_exactly_after(bench: &mut Bench, span: Duration) {
    let before = bench.leads();
    bench.run(span - TICK);
    assert_eq!(bench.leads(), before, "leads before {span:?}");
    bench.run(TICK);
    assert_ne!(bench.leads(), before, "does not lead after {span:?}");
}

#[test]
fn a_lease_says_which_command_created_it_and_none_is_claimed_that_is_there() {
    for (register, kind) in [(Register::default(), json!("lock")), (Register::holding(json!({})), Value::Null)] {
        let mut bench = Bench::start(InitialState { preset: Preset::Lock { wait_limit: None }, ..initial_state() }, register);
        bench.run(TICK);
        bench.run(plus(15));
        assert!(bench.leads().is_some());
        assert_eq!(bench.register.object().unwrap()["metadata"]["labels"]["tenure.dev/kind"], kind);
    }
}

#[test]
fn an_absent_lease_is_created_held_by_nobody_and_taken_after_the_wait() {
    let mut bench = Bench::new();

    bench.run(TICK);

    let [Sent::Create(object)] = bench.writes()[..] else { panic!("{:?}", bench.sent) };
    let (metadata, spec) = (&object["metadata"], &object["spec"]);
    assert_eq!((&spec["holderIdentity"], &spec["leaseDurationSeconds"]), (&json!(NOBODY), &json!(15)));
    assert_eq!((spec.get("acquireTime"), spec.get("leaseTransitions")), (None, None));
    assert_eq!(spec["renewTime"].as_str().unwrap().split('.').nth(1).map(str::len), Some(7), "six digits and Z");
    assert_eq!(metadata["labels"]["app.kubernetes.io/managed-by"], "tenure");
    assert_eq!(metadata["annotations"][HOLDER], NOBODY);
    assert_eq!(waits(&bench), [Duration::from_millis(15_150)]);
    leads_exactly_after(&mut bench, plus(15) - TICK);
    assert_eq!(bench.writes().len(), 2, "one PUT takes it");
    assert_eq!((&bench.body()["spec"]["holderIdentity"], &bench.body()["spec"]["leaseTransitions"]), (&json!(ME), &json!(1)));
    let why = |event: &Event| matches!(event, Event::Campaigning { why: AcquireReason::Nobody, .. });
    assert!(bench.events.iter().any(why));
}

#[test]
fn two_replicas_that_know_the_same_write_different_bytes_for_nobody() {
    let written = |number| {
        let initial = InitialState { identity: format!("a_{number:032x}"), ..initial_state() };
        let mut bench = Bench::start(initial, Register::holding(json!({})));
        bench.run(TICK);
        let [Sent::Replace(object)] = bench.writes()[..] else { panic!("{:?}", bench.sent) };
        object["spec"].clone()
    };

    assert_ne!(written(1), written(2), "their clocks show the same");
    assert_eq!(written(1), written(1));
}

#[test]
fn a_creation_that_another_won_is_not_repeated() {
    let mut bench = Bench::new();
    bench.answers = false;
    bench.answer(Answer::NotFound);
    bench.register.put(held("x", 15));

    bench.run_answered(seconds(10));

    assert_eq!((bench.writes().len(), bench.leads()), (1, None));
}

#[test]
fn a_lease_that_is_free_without_a_mark_is_held_by_nobody_first() {
    let mut null = mark();
    null["holderIdentity"] = Value::Null;
    let mut longer = mark();
    longer["leaseDurationSeconds"] = 2.into();
    for spec in [json!({}), Value::Null, null, longer] {
        let mut bench = Bench::with(spec.clone());
        let read = bench.register.object().unwrap();

        bench.run(TICK);

        let [Sent::Replace(object)] = bench.writes()[..] else { panic!("{:?}", bench.sent) };
        assert_eq!(object["metadata"]["resourceVersion"], read["metadata"]["resourceVersion"]);
        assert_eq!((&object["spec"]["holderIdentity"], &object["spec"]["leaseDurationSeconds"]), (&json!(NOBODY), &json!(15)));
        assert_eq!(object["spec"].get("acquireTime"), None);
        assert_eq!(object["spec"].get("leaseTransitions"), spec.get("leaseTransitions"), "as read");
        leads_exactly_after(&mut bench, plus(15) - TICK);
    }
}

#[test]
fn a_mark_beside_a_name_is_none() {
    let mut bench = Bench::start(initial_state(), annotated(mark(), json!({(HOLDER): "x"})));
    bench.run(TICK);
    assert_eq!(bench.body()["spec"]["holderIdentity"], NOBODY);

    leads_exactly_after(&mut bench, plus(15) - TICK);
}

#[test]
fn a_mark_after_a_hold_of_one_second_is_none() {
    let mut bench = Bench::with(held("x", 1));
    bench.run(TICK);
    bench.see(|object| object["spec"] = mark());
    assert_eq!(bench.body()["spec"]["holderIdentity"], NOBODY);

    leads_exactly_after(&mut bench, plus(15));
}

#[test]
fn nobody_is_waited_for_as_long_as_the_longest_duration_known() {
    let mut recorded = Bench::with(json!({"holderIdentity": "", "leaseDurationSeconds": 40}));
    recorded.run(TICK);
    assert_eq!(recorded.body()["spec"]["leaseDurationSeconds"], 40);
    leads_exactly_after(&mut recorded, plus(40) - TICK);

    let mut seen = Bench::with(held("x", 40));
    seen.run(TICK);
    clear(&mut seen);
    assert_eq!(seen.body()["spec"]["leaseDurationSeconds"], 40);
    leads_exactly_after(&mut seen, plus(40));

    let mut gone = Bench::with(held("x", 40));
    gone.run(TICK);
    let deletion = gone.register.delete();
    gone.watch(deletion);
    gone.run(TICK);
    assert_eq!(gone.body()["spec"]["leaseDurationSeconds"], 40);
}

#[test]
fn nobody_who_holds_it_for_less_than_is_known_holds_it_for_longer_and_for_more_is_waited_for() {
    let mut bench = Bench::with(held("x", 40));
    bench.run(TICK);
    bench.see(|object| object["spec"] = nobody(13));
    let body = bench.body();
    assert_eq!((&body["spec"]["holderIdentity"], &body["spec"]["leaseDurationSeconds"]), (&json!(NOBODY), &json!(40)));
    assert!(body["spec"]["renewTime"].as_str() > Some("2026-01-01T00:00:00.000000Z"), "it rises");
    leads_exactly_after(&mut bench, plus(40));

    takes_exactly_after(&mut Bench::with(nobody(20)), plus(20));
}

#[test]
fn who_finds_nobody_waits_from_when_it_saw_that_and_writes_nothing_before() {
    takes_exactly_after(&mut Bench::with(nobody(15)), plus(15));
}

#[test]
fn labels_of_others_do_not_lengthen_the_wait() {
    let mut bench = Bench::with(nobody(15));
    for label in 0..3 {
        bench.run(seconds(5));
        bench.see(|object| object["metadata"]["labels"] = json!({"n": label.to_string()}));
    }

    leads_exactly_after(&mut bench, plus(15) - seconds(15));
}

#[test]
fn a_spec_that_is_wiped_again_and_again_is_held_by_nobody_again_without_a_storm() {
    let mut bench = Bench::with(json!({}));
    for _ in 0..600 {
        bench.run(Duration::from_millis(100));
        clear(&mut bench);
    }
    assert!((15..=40).contains(&bench.writes().len()), "{} writes in a minute", bench.writes().len());
    assert_eq!(bench.leads(), None);

    bench.run(plus(15) + seconds(3));

    assert!(bench.leads().is_some());
}

#[test]
fn nobody_is_not_written_where_the_lease_is_not_to_be_taken() {
    let mut deleted = Register::holding(json!({}));
    deleted.edit(|object| object["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into());
    let coordinated = Register::holding(json!({"strategy": "OldestEmulationVersion", "preferredHolder": "x"}));
    for register in [deleted, coordinated, annotated(json!({}), json!({(PAUSED): "true"}))] {
        let mut bench = Bench::start(initial_state(), register);

        bench.run(seconds(100));

        assert_eq!(bench.writes(), Vec::<&Sent>::new());
    }
}

#[test]
fn a_write_of_nobody_without_an_answer_is_not_remembered() {
    let mut bench = Bench::with(json!({}));
    bench.answers = false;
    bench.serve();
    bench.serve_silently();

    bench.run_answered(seconds(5));

    assert_eq!(bench.leads(), None);
    assert_eq!(bench.register.spec()["holderIdentity"], NOBODY);
    assert!(bench.writes().len() <= 2, "a conflict or a read shows that it is stored");
}

#[test]
fn a_creation_that_did_not_arrive_is_repeated_with_new_bytes_and_without_a_storm() {
    let mut bench = Bench::new();
    bench.answers = false;
    bench.serve();
    let first = bench.body();
    bench.answer(lost());

    bench.run_answered(seconds(1));

    assert_ne!(bench.body()["spec"]["renewTime"], first["spec"]["renewTime"]);
    assert!(bench.sent.len() <= 5, "{:?}", bench.sent);
}

#[test]
fn a_candidate_that_was_promised_the_lease_goes_first_after_nobody_too() {
    let mut bench = Bench::start(initial_state(), annotated(json!({}), json!({(STEP_DOWN_TO): "y_1"})));
    bench.run(TICK);
    assert_eq!(bench.body()["metadata"]["annotations"][STEP_DOWN_TO], "y_1", "it survives");

    leads_exactly_after(&mut bench, plus(15) + seconds(5) - TICK);
}

/// Another client takes the cleared Lease at once, for 5 s, and gives it back.
fn taken_and_given_back(bench: &mut Bench) {
    bench.see(|object| object["spec"] = held("y", 5));
    bench.run(seconds(1));
    bench.see(|object| object["spec"] = mark());
}

#[test]
fn whoever_was_cleared_is_waited_for_although_somebody_else_led_and_gave_back_since() {
    let mut bench = Bench::with(held("x", 15));
    bench.run(seconds(1));
    clear(&mut bench);
    taken_and_given_back(&mut bench);

    leads_exactly_after(&mut bench, plus(15) - seconds(1));
}

#[test]
fn whoever_was_deleted_or_replaced_is_waited_for_by_the_longest_known() {
    let mut deleted = Bench::with(held("x", 40));
    deleted.run(seconds(1));
    let event = deleted.register.delete();
    deleted.watch(event);
    deleted.register.put(mark());
    deleted.watch_register();
    leads_exactly_after(&mut deleted, plus(40));

    let mut replaced = Bench::with(held("x", 40));
    replaced.run(seconds(1));
    replaced.register.put(held("y", 5));
    replaced.watch_register();
    leads_exactly_after(&mut replaced, plus(40));
}

#[test]
fn a_holder_beside_the_name_of_another_is_waited_for_by_the_longest_known() {
    let register = annotated(held("client-go", 4), json!({(HOLDER): "x"}));
    leads_exactly_after(&mut Bench::start(initial_state(), register), plus(15));

    let own = annotated(held("x", 4), json!({(HOLDER): "x"}));
    leads_exactly_after(&mut Bench::start(initial_state(), own), plus(4));
}

#[test]
fn a_holder_without_the_name_that_was_beside_the_one_before_is_waited_for_by_the_longest_known() {
    let named = || {
        let mut bench = Bench::start(initial_state(), annotated(held("x", 15), json!({(HOLDER): "x"})));
        bench.run(seconds(1));
        bench
    };
    let displaced = |object: &mut Value| (object["spec"], object["metadata"]["annotations"]) = (held("y", 1), json!({}));
    let mut bench = named();
    bench.see(displaced);
    leads_exactly_after(&mut bench, plus(15));

    let mut bench = named();
    bench.see(|object| object["metadata"]["annotations"] = json!({}));
    bench.see(displaced);
    leads_exactly_after(&mut bench, plus(15));

    // Whoever has given it back does not run.
    let mut bench = named();
    bench.see(|object| (object["spec"], object["metadata"]["annotations"]) = (mark(), json!({(PAUSED): "true"})));
    bench.see(displaced);
    leads_exactly_after(&mut bench, plus(1));
}

#[test]
fn what_is_remembered_is_handed_on_to_the_next_elector() {
    let mut old = Bench::with(held("x", 40));
    old.run(seconds(1));
    let event = old.register.delete();
    old.watch(event);
    let last_seen = old.saw.last().map(|(_, seen)| seen.clone()).expect("it was handed on");
    assert_eq!((last_seen.duration, last_seen.held.as_deref()), (seconds(40), None));
    old.register.put(mark());

    let initial = InitialState { generation: 2, last_seen: [(Slot::default(), last_seen.clone())].into(), ..initial_state() };
    let mut new = Bench::start(initial, old.register);
    new.run(last_seen.not_before.since(new.now.boot) - TICK);
    assert_eq!(new.leads(), None);
    new.run(TICK);
    assert!(new.leads().is_some());
}

#[test]
fn another_uid_than_the_one_that_the_last_elector_saw_held_is_no_clean_slate() {
    let last_seen = LastSeen { duration: seconds(40), held: Some("uid-0".into()), named: false, not_before: Instant::BOOT };
    let initial = InitialState { generation: 2, last_seen: [(Slot::default(), last_seen)].into(), ..initial_state() };

    leads_exactly_after(&mut Bench::start(initial, Register::holding(mark())), plus(40));
}

/// The waits for nobody that were reported.
fn waits(bench: &Bench) -> Vec<Duration> {
    let wait = |event: &Event| if let Event::Observed { nobody, .. } = event { *nobody } else { None };
    let mut waits: Vec<_> = bench.events.iter().filter_map(wait).collect();
    waits.dedup();
    waits
}

#[test]
fn a_replica_that_finds_the_lease_held_by_nobody_says_how_long_it_waits() {
    let mut bench = Bench::start(initial_state(), Register::holding(nobody(15)));

    bench.run(seconds(10));

    assert_eq!(waits(&bench), [Duration::from_millis(15_150)]);
}

#[test]
fn a_creation_wait_of_nothing_opts_out_of_all_waits_but_that_for_a_holder() {
    for register in [Register::default(), Register::holding(json!({})), Register::holding(nobody(15))] {
        let mut bench = with_creation_wait(Duration::ZERO, register);
        bench.run(TICK);
        assert!(bench.leads().is_some());
        let is_nobodys = |event: &Event| match event {
            Event::Observed { nobody: Some(wait), .. } => !wait.is_zero(),
            Event::Campaigning { why, .. } => *why != AcquireReason::Cleared,
            _ => false,
        };
        assert!(!bench.events.iter().any(is_nobodys), "{:?}", bench.events);
    }
    let beside = annotated(held("client-go", 15), json!({(HOLDER): "x"}));
    leads_exactly_after(&mut with_creation_wait(Duration::ZERO, beside), plus(15));
}

#[test]
fn a_creation_wait_that_is_set_replaces_the_wait_for_nobody_and_the_memory() {
    for register in [Register::holding(nobody(15)), Register::holding(nobody(60))] {
        leads_exactly_after(&mut with_creation_wait(seconds(5), register), plus(5));
    }
    let mut bench = with_creation_wait(seconds(5), Register::holding(held("x", 15)));
    bench.run(seconds(1));
    clear(&mut bench);
    taken_and_given_back(&mut bench);
    leads_exactly_after(&mut bench, plus(5) - seconds(1));
}

#[test]
fn a_uid_that_was_seen_held_is_remembered_over_its_release() {
    let mut bench = Bench::with(held("x", 40));
    bench.run(seconds(1));
    bench.see(|object| {
        object["spec"] = mark();
        object["metadata"]["annotations"] = json!({(PAUSED): "true"});
    });
    bench.run(seconds(1));
    bench.register.put(mark());
    bench.watch_register();

    leads_exactly_after(&mut bench, plus(40));
}

#[test]
fn a_duration_that_nobody_can_write_makes_no_endless_writes() {
    let mut bench = Bench::with(json!({"leaseDurationSeconds": 3_000_000_000_u64}));

    bench.run(seconds(60));

    assert!(bench.writes().len() <= 1, "{:?}", bench.writes());
}

#[test]
fn a_late_event_of_a_longer_hold_that_is_gone_lengthens_the_wait_for_nobody() {
    let mut bench = Bench::with(held("x", 40));
    let old = bench.register.object().unwrap();
    bench.register.delete();
    let mut bench = Bench::start(initial_state(), bench.register);
    bench.run(seconds(1));
    assert_eq!(bench.body()["spec"]["leaseDurationSeconds"], 15);

    bench.watch(Watched::Changed(old.into()));

    assert_eq!(bench.body()["spec"]["leaseDurationSeconds"], 40);
    leads_exactly_after(&mut bench, plus(40));
}

#[test]
fn a_late_event_of_another_lease_that_was_held_tells_of_a_holder_that_may_run() {
    let mut bench = Bench::with(held("x", 15));
    let old = bench.register.object().unwrap();
    bench.register.delete();
    bench.register.put(held("y", 2));
    let mut bench = Bench::start(initial_state(), bench.register);
    bench.run(seconds(1));

    bench.watch(Watched::Changed(old.into()));

    takes_exactly_after(&mut bench, plus(15) - seconds(1));
}

#[test]
fn nobodys_time_rises_above_all_that_was_seen_whatever_the_own_clock_says() {
    let mut bench =
        Bench::with(json!({"holderIdentity": NOBODY, "leaseDurationSeconds": 15, "renewTime": "2030-01-01T00:00:00.000001Z"}));
    bench.run(seconds(1));

    clear(&mut bench);

    assert!(bench.body()["spec"]["renewTime"].as_str() > Some("2030-01-01T00:00:00.000001Z"), "{}", bench.body());
}

#[test]
fn what_a_foreign_holder_has_emptied_is_given_back_where_that_is_trusted() {
    let after = |last_seen: Option<LastSeen>, register| {
        let mut initial = initial_state();
        initial.config.lease.foreign_release = ForeignRelease::Trust;
        initial.last_seen = last_seen.map(|last_seen| (Slot::default(), last_seen)).into_iter().collect();
        Bench::start(initial, register)
    };
    let trusting = |register| after(None, register);
    let vacated = || json!({"holderIdentity": null, "leaseTransitions": 4});
    let mut bench = trusting(Register::holding(vacated()));
    bench.run(TICK);
    assert!(bench.leads().is_some(), "whoever sees it for the first time");

    let mut bench = trusting(Register::holding(held("grelmicro", 60)));
    bench.run(TICK);
    bench.see(|object| object["spec"] = vacated());
    bench.run(TICK);
    assert!(bench.leads().is_some(), "whoever has seen its holder");

    let mut bench = trusting(annotated(vacated(), json!({HOLDER: "other"})));
    bench.run(TICK);
    assert_eq!(bench.leads(), None, "whose name is beside it has not given it back");

    let mut bench = trusting(annotated(held("other", 15), json!({HOLDER: "other"})));
    bench.run(TICK);
    let mut next = after(bench.saw.last().map(|(_, seen)| seen.clone()), annotated(vacated(), json!({})));
    next.run(TICK);
    assert_eq!(next.leads(), None, "nor has whose name an earlier elector saw there");
    bench.see(|object| (object["spec"], object["metadata"]["annotations"]) = (vacated(), json!({})));
    bench.run(TICK);
    assert_eq!(bench.leads(), None, "nor has whose name was");

    for mut bench in [trusting(Register::default()), Bench::with(vacated())] {
        bench.run(seconds(15));
        assert_eq!(bench.leads(), None, "what is deleted is not, and by default nothing is");
    }
}
