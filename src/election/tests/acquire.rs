//! When a Lease is taken, and with which write (law 11 to 14, 16, 17).

use std::time::Duration;

use serde_json::{Value, json};

use super::bench::{Bench, ME, Register, TICK, held, initial_state, lost, mark, plus, seconds, takes_exactly_after};
use crate::{
    election::{
        Event,
        writes::{HOLDER, KIND_LABEL, NOBODY, PAUSED, STEP_DOWN, STEP_DOWN_TO, Sent},
    },
    request::{Answer, Watched},
    time::Instant,
};

#[test]
fn a_release_mark_is_taken_at_once_and_runs_at_once() {
    let mut bench = Bench::with(mark());

    bench.run(TICK);

    assert!(bench.leads().is_some());
    assert_eq!(bench.register.spec()["leaseTransitions"], 5);
}

#[test]
fn the_lease_of_a_lock_that_a_replica_takes_is_no_lock_any_more() {
    let mut register = Register::holding(mark());
    register.edit(|object| object["metadata"]["labels"] = json!({ KIND_LABEL: "lock", "app": "billing" }));
    let mut bench = Bench::start(initial_state(), register);

    bench.run(TICK);

    let labels = &bench.body()["metadata"]["labels"];
    assert_eq!([&labels["app"], &labels[KIND_LABEL]], [&json!("billing"), &Value::Null], "whatever is labelled so may be pruned");
}

#[test]
fn the_wall_clock_in_a_record_decides_nothing() {
    for time in ["2001-01-01T00:00:00.000000Z", "2099-01-01T00:00:00.000000Z", "no time"] {
        let mut spec = held("x", 15);
        spec["renewTime"] = time.into();
        let mut bench = Bench::with(spec);

        takes_exactly_after(&mut bench, plus(15));
    }
}

#[test]
fn an_expired_lease_is_taken_with_one_put_on_the_version_read() {
    let mut bench = Bench::with(held("x", 15));
    let read = bench.register.object().unwrap();

    takes_exactly_after(&mut bench, plus(15));

    let body = bench.body();
    assert_eq!(body["metadata"]["uid"], read["metadata"]["uid"]);
    assert_eq!(body["metadata"]["resourceVersion"], read["metadata"]["resourceVersion"]);
    assert_eq!(body["spec"]["leaseTransitions"], 5);
    assert_eq!(body["spec"]["acquireTime"], body["spec"]["renewTime"]);
}

#[test]
fn a_follower_waits_the_duration_of_the_record_not_its_own() {
    takes_exactly_after(&mut Bench::with(held("x", 60)), plus(60));
    takes_exactly_after(&mut Bench::with(held("x", 3)), plus(3));
}

#[test]
fn a_standby_shows_when_the_lease_may_be_taken_and_a_leader_does_not() {
    let mut bench = Bench::with(held("x", 15));
    bench.run(TICK);
    let free = bench.elector.view().free.unwrap();
    bench.register.edit(|object| object["metadata"]["annotations"] = json!({ PAUSED: "true" }));
    bench.watch_register();
    assert_eq!(bench.elector.view().free, None, "paused");
    assert!(!bench.events.contains(&Event::Unpaused));
    bench.see(|object| object["metadata"]["annotations"] = json!({}));
    bench.see(|object| object["metadata"]["labels"] = json!({}));
    assert_eq!(bench.events.iter().filter(|event| **event == Event::Unpaused).count(), 1);

    takes_exactly_after(&mut bench, plus(15) - TICK);

    assert!(free <= bench.last_sent() && bench.last_sent() <= free + TICK, "{free:?}");
    assert_eq!(bench.elector.view().free, None, "it leads");
}

#[test]
fn a_record_without_a_sound_duration_is_waited_out_by_the_larger_of_own_and_last_seen() {
    for nonsense in [Value::Null, json!(0), json!(-7), json!("x")] {
        let mut spec = held("x", 15);
        spec["leaseDurationSeconds"] = nonsense;
        takes_exactly_after(&mut Bench::with(spec), plus(15));
    }

    let mut bench = Bench::with(held("x", 40));
    bench.run(TICK);
    bench.see(|object| object["spec"]["leaseDurationSeconds"] = Value::Null);
    takes_exactly_after(&mut bench, plus(40));
}

#[test]
fn a_record_without_a_sound_duration_is_reported_once() {
    let mut spec = held("x", 15);
    spec["leaseDurationSeconds"] = json!(-7);
    let mut bench = Bench::with(spec);

    bench.run(seconds(12));

    assert_eq!(bench.events.iter().filter(|event| matches!(event, Event::Odd { .. })).count(), 1);
}

#[test]
fn a_duration_of_68_years_overflows_nothing_and_is_waited_out() {
    let mut bench = Bench::with(held("x", i64::from(i32::MAX)));

    bench.run(seconds(3600));

    assert_eq!(bench.writes(), Vec::<&Sent>::new());
}

#[test]
fn a_renewal_or_another_holder_restarts_the_wait() {
    let mut bench = Bench::with(held("x", 15));
    bench.run(seconds(10));
    bench.see(|object| object["spec"]["renewTime"] = "2026-01-01T00:00:09.000000Z".into());
    bench.run(seconds(10));
    bench.see(|object| object["spec"]["holderIdentity"] = "y".into());

    takes_exactly_after(&mut bench, plus(15));
}

#[test]
fn an_edit_of_labels_does_not_restart_the_wait() {
    let mut bench = Bench::with(held("x", 15));
    bench.run(seconds(10));
    bench.see(|object| object["metadata"]["labels"] = json!({"a": "b"}));

    takes_exactly_after(&mut bench, plus(15) - seconds(10));

    assert_eq!(bench.body()["metadata"]["labels"]["a"], "b");
}

#[test]
fn a_label_edit_that_the_watch_missed_costs_one_conflict_and_no_new_wait() {
    let mut bench = Bench::with(held("x", 15));
    bench.run(plus(15) - Duration::from_millis(1));
    bench.register.edit(|object| object["metadata"]["labels"] = json!({"a": "b"}));

    bench.run(seconds(1));

    assert_eq!(bench.writes().len(), 2);
    assert!(bench.leads().is_some());
}

#[test]
fn the_loser_of_a_race_waits_a_whole_new_duration() {
    let mut bench = Bench::with(held("x", 15));
    bench.run(plus(15) - TICK);
    bench.register.edit(|object| object["spec"]["holderIdentity"] = "y".into());

    bench.run(plus(15));
    assert_eq!(bench.writes().len(), 1, "the one that lost");
    bench.run(TICK);

    assert_eq!(bench.writes().len(), 2);
}

#[test]
fn my_own_name_outside_a_term_is_foreign() {
    takes_exactly_after(&mut Bench::with(held(ME, 15)), plus(15));
}

#[test]
fn a_lease_that_still_names_me_is_taken_again_without_a_change_of_holder() {
    let mut before = held(ME, 15);
    before["leaseTransitions"] = 7.into();
    before["renewTime"] = "2099-01-01T00:00:00.000000Z".into();
    let mut bench = Bench::with(before.clone());

    bench.run(plus(15));

    assert_eq!(bench.body()["spec"]["leaseTransitions"], 7);
    assert_eq!(bench.body()["spec"]["acquireTime"], before["acquireTime"]);
    assert!(bench.body()["spec"]["renewTime"].as_str() > before["renewTime"].as_str(), "it rises");
}

#[test]
fn a_lease_that_is_being_deleted_is_not_taken() {
    let mut register = Register::holding(mark());
    register.edit(|object| object["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into());
    let mut bench = Bench::start(initial_state(), register);

    bench.run(seconds(100));

    assert_eq!(bench.writes(), Vec::<&Sent>::new());
    let said = bench.events.iter().filter(|event| matches!(event, Event::Odd { message } if message.contains("finalizers")));
    assert_eq!(said.count(), 1);
    let deleted = bench.register.delete();
    bench.watch(deleted);
    assert!(matches!(bench.writes()[..], [Sent::Create(_)]));
}

#[test]
fn requests_to_step_down_that_make_others_wait_or_name_nobody_are_spoken_of() {
    let said = |annotations: Value, spec: Value, words: &str| {
        let mut register = Register::holding(spec);
        register.edit(|object| object["metadata"]["annotations"] = annotations);
        let mut bench = Bench::start(initial_state(), register);
        bench.run(seconds(1));
        bench.events.iter().filter(|event| matches!(event, Event::Odd { message } if message.contains(words))).count()
    };
    let to = |candidate: &str| json!({(STEP_DOWN_TO): candidate});
    assert_eq!(said(to("nobody"), mark(), "step-down-to"), 1);
    assert_eq!(said(to("nobody"), held("x", 15), "step-down-to"), 0);
    assert_eq!(said(to(ME), mark(), "step-down-to"), 0);
    let asked = |holder: &str| json!({(STEP_DOWN): holder});
    assert_eq!(said(asked("pod"), held("pod_0123", 15), "in full"), 1);
    assert_eq!(said(asked("pod_0123"), held("pod_0123", 15), "in full"), 0);
    assert_eq!(said(asked("pod"), mark(), "in full"), 0);
}

#[test]
fn transitions_saturate_and_nonsense_counts_as_none() {
    for (before, after) in [(json!(2_147_483_647), 2_147_483_647), (Value::Null, 1), (json!(-5), 1)] {
        let mut spec = mark();
        spec["leaseTransitions"] = before;
        let mut bench = Bench::with(spec);
        bench.run(TICK);
        assert_eq!(bench.body()["spec"]["leaseTransitions"], after);
    }
}

#[test]
fn fields_labels_and_annotations_of_others_survive_every_write() {
    let mut spec = mark();
    spec["futureField"] = json!({"a": [1, 2]});
    let mut register = Register::holding(spec);
    register.edit(|object| {
        object["metadata"]["annotations"] = json!({"theirs": "x"});
        object["metadata"]["finalizers"] = json!(["theirs/f"]);
        object["metadata"]["ownerReferences"] = json!([{"uid": "o"}]);
    });
    let mut bench = Bench::start(initial_state(), register);

    bench.run(seconds(4));

    let body = bench.body();
    assert!(bench.writes().len() >= 2, "acquired and renewed");
    assert_eq!(body["spec"]["futureField"], json!({"a": [1, 2]}));
    assert_eq!(body["metadata"]["annotations"]["theirs"], "x");
    assert_eq!(body["metadata"]["finalizers"], json!(["theirs/f"]));
    assert_eq!(body["metadata"]["ownerReferences"], json!([{"uid": "o"}]));
}

#[test]
fn who_wrote_which_field_is_dropped_unless_somebody_applies_the_lease() {
    let updated = json!({"manager": "kubectl-edit", "operation": "Update", "fieldsV1": {"f:spec": {}}});
    let applied = json!({"manager": "helm", "operation": "Apply", "fieldsV1": {"f:metadata": {}}});
    let by_kubectl = json!({"kubectl.kubernetes.io/last-applied-configuration": "{}"});
    for (before, annotations, after) in [
        (json!([updated]), json!({}), json!([{}])),
        (json!([updated, applied]), json!({}), json!([updated, applied])),
        (json!([updated]), by_kubectl, json!([updated])),
        (Value::Null, json!({}), Value::Null),
    ] {
        let mut register = Register::holding(mark());
        register.edit(|object| {
            object["metadata"]["managedFields"] = before.clone();
            object["metadata"]["annotations"] = annotations.clone();
        });
        let mut bench = Bench::start(initial_state(), register);

        bench.run(seconds(4));

        assert!(bench.writes().len() >= 2, "acquired and renewed");
        assert_eq!(bench.body()["metadata"]["managedFields"], after);
    }
}

#[test]
fn an_acquiring_write_removes_a_request_to_an_earlier_holder() {
    let mut register = Register::holding(mark());
    register.edit(|object| object["metadata"]["annotations"] = json!({(STEP_DOWN): "x_1", (STEP_DOWN_TO): ME}));
    let mut bench = Bench::start(initial_state(), register);

    bench.run(TICK);

    assert_eq!(bench.body()["metadata"]["annotations"].get(STEP_DOWN), None);
    assert_eq!(bench.body()["metadata"]["annotations"].get(STEP_DOWN_TO), None);
}

#[test]
fn a_release_for_a_named_candidate_is_left_to_it_for_as_long_as_it_needs_and_priorities_count_meanwhile() {
    for (priority, wait) in [(0, 5), (-3, 5), (-8, 8)] {
        let (mut initial, mut register) = (initial_state(), Register::holding(mark()));
        initial.config.lease.priority = priority;
        register.edit(|object| object["metadata"]["annotations"] = json!({(STEP_DOWN_TO): "y_1"}));

        takes_exactly_after(&mut Bench::start(initial, register), seconds(wait));
    }
}

#[test]
fn a_replica_of_a_lower_priority_leaves_it_to_the_others_unless_it_is_named() {
    let lower = || {
        let mut state = initial_state();
        state.config.lease.priority = -2;
        state
    };
    takes_exactly_after(&mut Bench::start(lower(), Register::holding(mark())), seconds(2));
    takes_exactly_after(&mut Bench::start(lower(), Register::holding(held("x", 15))), plus(15) + seconds(2));
    let mut register = Register::holding(mark());
    register.edit(|object| object["metadata"]["annotations"] = json!({(STEP_DOWN_TO): ME}));
    let mut named = Bench::start(lower(), register);
    named.run(TICK);
    assert_eq!(named.writes().len(), 1);
}

#[test]
fn a_lease_that_expires_after_a_request_to_its_holder_is_left_to_the_candidate_for_as_long_as_it_needs() {
    for (asked, more) in [("x", seconds(5)), ("an earlier holder", Duration::ZERO)] {
        let mut register = Register::holding(held("x", 15));
        register.edit(|object| object["metadata"]["annotations"] = json!({(STEP_DOWN): asked, (STEP_DOWN_TO): "y_1"}));

        takes_exactly_after(&mut Bench::start(initial_state(), register), plus(15) + more);
    }
}

#[test]
fn a_paused_lease_is_retaken_by_its_recorded_holder_only() {
    let paused = |spec: Value| {
        let mut register = Register::holding(spec);
        register.edit(|object| object["metadata"]["annotations"] = json!({(PAUSED): "true"}));
        Bench::start(initial_state(), register)
    };

    for (spec, warnings) in [(held("x", 15), &["is paused", "has not renewed it"][..]), (mark(), &["is paused"])] {
        let mut bench = paused(spec);
        bench.run(seconds(100));
        assert_eq!(bench.writes(), Vec::<&Sent>::new());
        let said: Vec<_> = bench.events.iter().filter(|event| matches!(event, Event::Odd { .. })).collect();
        let is_about = |(said, words): (&&Event, &&str)| matches!(said, Event::Odd { message } if message.contains(*words));
        assert!(said.len() == warnings.len() && said.iter().zip(warnings).all(is_about), "{said:?}");
        bench.see(|object| object["metadata"]["annotations"] = json!({}));
        assert!(bench.events.contains(&Event::Unpaused));
    }
    takes_exactly_after(&mut paused(held(ME, 15)), plus(15));
}

/// `spec` with a strategy and this preferred holder.
fn coordinated(mut spec: Value, preferred: &str) -> Value {
    spec["strategy"] = "OldestEmulationVersion".into();
    spec["preferredHolder"] = preferred.into();
    spec
}

#[test]
fn a_coordinated_lease_is_taken_by_the_preferred_holder_only() {
    for (spec, preferred) in [(mark(), "x"), (mark(), ""), (held("x", 15), "x"), (held("x", 15), ""), (held(ME, 15), "")] {
        let mut bench = Bench::with(coordinated(spec, preferred));
        bench.run(seconds(100));
        assert_eq!(bench.writes(), Vec::<&Sent>::new());
    }

    let mut bench = Bench::with(coordinated(mark(), ME));
    bench.run(TICK);
    assert_eq!(bench.body()["spec"]["strategy"], "OldestEmulationVersion");
    takes_exactly_after(&mut Bench::with(coordinated(held("x", 15), ME)), plus(15));
}

#[test]
fn that_a_coordinator_appoints_holders_is_said_once() {
    let mut bench = Bench::with(coordinated(held("x", 15), ""));

    bench.run(plus(15) + seconds(30));

    let said = bench.events.iter().filter(|event| matches!(event, Event::Odd { message } if message.contains("strategy")));
    assert_eq!(said.count(), 1);
}

#[test]
fn a_read_is_believed_although_its_version_is_lower() {
    let mut bench = Bench::with(held("x", 15));
    bench.run(TICK);
    bench.answers = false;
    bench.run(seconds(4));
    bench.register.edit(|object| object["spec"]["holderIdentity"] = "y".into());
    let mut object = bench.register.object().unwrap();
    object["metadata"]["resourceVersion"] = "1".into();
    bench.answer(Answer::Object(object.into()));
    bench.answers = true;

    takes_exactly_after(&mut bench, plus(15));
}

#[test]
fn a_reply_that_the_watch_has_overtaken_is_followed_by_a_read_at_once() {
    let mut bench = Bench::with(held("x", 15));
    bench.run(TICK);
    bench.answers = false;
    bench.run(seconds(4));
    let (_, request) = bench.awaited.clone().expect("a read");
    let answer = bench.register.apply(&request);
    bench.see(|object| object["spec"] = mark());
    bench.answer(answer);

    bench.run_answered(TICK);

    assert_eq!(bench.writes().len(), 1);
}

/// Follows y, and reads the Lease as `spec` after the watch has shown that x holds the one with this uid, with its name beside it.
fn overtaken(spec: Value, uid: &str) -> Bench {
    let mut bench = Bench::with(held("y", 15));
    bench.run(TICK);
    bench.answers = false;
    bench.run(seconds(4));
    let (_, request) = bench.awaited.clone().expect("a read");
    bench.register.edit(|object| object["spec"] = spec);
    let answer = bench.register.apply(&request);
    bench.see(|object| {
        object["spec"] = held("x", 15);
        object["metadata"]["annotations"] = json!({ HOLDER: "x" });
        object["metadata"]["uid"] = uid.into();
    });
    bench.answer(answer);
    bench
}

/// Asserts that a holder without a name beside it, which takes 9 s, is waited for by the 15 s of x, whom the Lease has named.
fn waits_as_long_as_x_had_said(mut bench: Bench, spec: Value) {
    bench.see(|object| {
        object["spec"] = spec;
        object["metadata"]["annotations"] = json!({});
    });
    bench.run_answered(TICK);
    bench.sent.clear();

    takes_exactly_after(&mut bench, plus(15) - TICK);
}

#[test]
fn a_reply_that_the_watch_has_overtaken_does_not_give_back_what_is_held_since() {
    for spec in [mark(), held("z", 9)] {
        waits_as_long_as_x_had_said(overtaken(spec, "uid-0"), held("stranger", 9));
    }
}

#[test]
fn what_a_watch_shows_again_after_a_late_reply_gives_nothing_back_either() {
    let mut bench = Bench::with(held("y", 15));
    bench.run(TICK);
    bench.answers = false;
    bench.run(seconds(4));
    let (_, request) = bench.awaited.clone().expect("a read");
    let late = bench.register.apply(&request);
    bench.register.edit(|object| object["spec"] = mark());
    let released = bench.register.object().unwrap();
    bench.see(|object| {
        object["spec"] = held("x", 15);
        object["metadata"]["annotations"] = json!({ HOLDER: "x" });
    });
    bench.answer(late);
    bench.watch(Watched::Changed(released.into()));
    bench.pass(bench.now.boot + seconds(5));

    waits_as_long_as_x_had_said(bench, held("stranger", 9));
}

#[test]
fn a_holder_that_a_late_reply_hides_is_not_forgotten_because_an_older_one_goes_on() {
    let mut bench = overtaken(held("stranger", 9), "00000000-0000-4000-8000-000000000001");
    bench.pass(bench.now.boot + seconds(5));
    let mut renewed = held("stranger", 9);
    renewed["renewTime"] = "2027-01-15T08:00:09.000000Z".into();

    waits_as_long_as_x_had_said(bench, renewed);
}

#[test]
fn a_lease_of_a_store_whose_versions_have_fallen_is_taken_after_one_wait() {
    let mut bench = Bench::with(held("x", 15));
    for _ in 0..9 {
        bench.see(|_| {});
    }
    bench.run_answered(TICK);
    bench.register = Register::holding(mark());
    bench.register.edit(|object| object["metadata"]["uid"] = "uid-restored".into());

    bench.run(plus(15));
    assert_eq!(bench.writes(), Vec::<&Sent>::new(), "before the holder that was seen last must be dead");
    bench.run(seconds(4));

    assert!(bench.leads().is_some());
}

#[test]
fn an_absence_that_was_asked_for_long_ago_is_not_believed() {
    for (late, is_believed) in [(seconds(15) - TICK, true), (seconds(15), false)] {
        let mut bench = Bench::with(held("x", 15));
        bench.run(TICK);
        bench.answers = false;
        bench.run(seconds(4));
        let sent = bench.last_sent();
        bench.pass(sent + late);

        bench.answer(Answer::NotFound);

        let is_absent = |event: &Event| matches!(event, Event::Observed { record: None, .. });
        assert_eq!(bench.events.iter().any(is_absent), is_believed, "{late:?}");
    }
}

#[test]
fn a_reply_about_an_earlier_lease_does_not_hide_who_held_the_one_that_came_after_it() {
    let mut bench = overtaken(mark(), "uid-1");
    bench.pass(bench.now.boot + seconds(5));
    bench.see(|object| {
        object["spec"] = mark();
        object["metadata"]["annotations"] = json!({});
        object["metadata"]["uid"] = "uid-2".into();
    });
    bench.run_answered(TICK);
    bench.sent.clear();

    takes_exactly_after(&mut bench, plus(15) - TICK);
}

#[test]
fn a_read_whose_version_did_not_rise_proves_no_write() {
    let mut bench = Bench::with(mark());
    bench.answers = false;
    bench.serve();
    bench.answer(lost());
    bench.run(seconds(1));
    let mut object = bench.register.object().unwrap();
    object["spec"] = bench.body()["spec"].clone();

    bench.answer(Answer::Object(object.into()));

    assert_eq!(bench.leads(), None);
}

#[test]
fn each_new_holder_is_reported_once_and_nobody_never() {
    let mut bench = Bench::with(held("x", 15));
    bench.run(TICK);
    for holder in ["x", "y", "", NOBODY, "y", "z"] {
        bench.register.edit(|object| object["spec"]["holderIdentity"] = holder.into());
        let object = bench.register.object().unwrap();
        bench.elector.handle(crate::election::Input::Watched(Watched::Changed(object.into())), bench.now);
        bench.events.extend(std::iter::from_fn(|| bench.elector.poll_event()));
    }

    let holders = bench.events.iter().filter_map(|event| match event {
        Event::NewLeader { holder, .. } => Some(holder.as_str()),
        _ => None,
    });
    assert_eq!(holders.collect::<Vec<_>>(), ["x", "y", "z"]);
}

#[test]
fn a_holder_that_leads_again_after_me_is_reported_again() {
    let mut bench = Bench::with(held("x", 15));
    bench.run(plus(15) + seconds(1));
    assert!(bench.leads().is_some());
    bench.register.edit(|object| object["spec"]["holderIdentity"] = "x".into());

    bench.watch_register();

    assert_eq!(bench.events.iter().filter(|event| matches!(event, Event::NewLeader { .. })).count(), 2);
}

#[test]
fn each_term_is_reported_whether_a_reply_or_the_watch_shows_it_and_its_end() {
    let mut bench = Bench::with(held("x", 15));
    bench.run(seconds(1));
    bench.register.edit(|object| object["spec"]["holderIdentity"] = "y".into());
    bench.watch_register();
    bench.run(plus(15) + seconds(1));
    assert!(bench.leads().is_some());

    let deleted = bench.register.delete();
    bench.watch(deleted);

    assert_eq!(holders(&bench), ["x", "y", ME, ""]);
    let mut bench = Bench::with(held("x", 15));
    bench.run(seconds(1));
    bench.register.delete();
    bench.run(plus(30) + seconds(5));
    assert_eq!(holders(&bench), ["x", "", NOBODY, ME]);
}

/// The holders that were reported, one after the other.
fn holders(bench: &Bench) -> Vec<&str> {
    let holders = bench.events.iter().filter_map(|event| match event {
        Event::Observed { record, .. } => Some(record.as_ref().and_then(|record| record.holder()).unwrap_or_default()),
        _ => None,
    });
    let mut holders: Vec<_> = holders.collect();
    holders.dedup();
    holders
}

#[test]
fn a_follower_that_is_told_to_end_writes_nothing() {
    for holder in ["x", NOBODY] {
        let mut bench = Bench::with(held(holder, 15));
        bench.run(seconds(5));

        bench.tell(crate::link::ToElector::Shutdown);

        assert!(bench.is_done());
        assert_eq!(bench.writes(), Vec::<&Sent>::new());
        assert_eq!(bench.elector.poll_timeout(), None::<Instant>);
    }
}

#[test]
fn a_preferred_holder_without_a_strategy_is_not_sent_because_the_server_would_refuse_it() {
    let mut spec = mark();
    spec["preferredHolder"] = "x".into();
    let mut bench = Bench::with(spec);

    bench.run(seconds(1));

    assert_eq!(bench.register.spec()["holderIdentity"], ME);
    assert_eq!(bench.register.spec().get("preferredHolder"), None);
}
