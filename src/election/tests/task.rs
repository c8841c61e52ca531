//! A task runs at most once per interval: between two runs the Lease rests.

use std::time::Duration;

use serde_json::{Value, json};

use super::{
    bench::{Bench, ME, Register, TICK, held, initial_state, lost, mark, plus, seconds, takes_exactly_after},
    release::{acknowledge_release, released},
};
use crate::{
    config::{AfterCrash, OnFailure, Preset, Release, Task, Trigger},
    election::{
        AcquireReason, Event, Request,
        writes::{HOLDER, PAUSED, RESTS, Sent},
    },
    link::{Exit, InitialState, Reason, Then, ToInit},
    request::Watched,
    time::Instant,
};

/// The longest random delay after a rest, so that not all replicas write at once.
const STAGGER: Duration = Duration::from_millis(750);

/// A task that runs every so many seconds.
fn every(interval: u64) -> InitialState {
    let mut initial = initial_state();
    initial.preset = Preset::Task(Task { trigger: Trigger::Every(seconds(interval)), limit: None, once: None });
    initial
}

/// Lets a run end after `span`.
fn ran(initial: InitialState, span: Duration, exit: Exit) -> Bench {
    let mut bench = Bench::leading_with(initial);
    bench.run(span);
    bench.stopping(Reason::Exited);
    bench.prove_ended(Some(exit), Then::Follow);
    bench.run(TICK);
    bench
}

/// The Lease of somebody's task that began long ago and rests since 2027-01-15T08:00:00, when the bench starts.
fn resting(duration: u64) -> Register {
    resting_since("2027-01-15T08:00:00.000000Z", duration)
}

fn resting_since(time: &str, duration: u64) -> Register {
    let mut register = Register::holding(held("other_1", 15));
    register.edit(|object| {
        (object["spec"]["renewTime"], object["spec"]["leaseDurationSeconds"]) = (time.into(), duration.into());
        object["metadata"]["annotations"] = json!({RESTS: format!("{time} other_1")});
    });
    register
}

/// The Lease of a replica that died in a run which began then.
fn crashed(began: &str) -> Register {
    let mut spec = held("other_1", 15);
    spec["acquireTime"] = began.into();
    Register::holding(spec)
}

/// Returns when the first write was sent.
fn taken_after(bench: &mut Bench, most: Duration) -> Duration {
    let began = bench.now.boot;
    while bench.writes().is_empty() && bench.now.boot < began + most {
        bench.run(Duration::from_millis(10));
    }
    bench.sent.iter().find(|(_, request)| *request != Request::Get).map_or(Duration::MAX, |(at, _)| at.since(began))
}

#[track_caller]
fn assert_taken(register: Register, within: [Duration; 2]) {
    let mut bench = Bench::start(every(60), register);
    let after = taken_after(&mut bench, within[1] + seconds(5));
    assert!((within[0]..=within[1] + STAGGER).contains(&after), "{after:?}");
}

#[test]
fn after_a_run_the_lease_is_held_in_name_until_the_interval_is_over() {
    let mut bench = Bench::leading_with(every(60));
    let before = bench.register.object().unwrap();
    bench.run(Duration::from_millis(9_500));
    bench.stopping(Reason::Exited);
    bench.prove_ended(Some(Exit::Code(0)), Then::Follow);
    bench.run(TICK);

    let after = bench.register.object().unwrap();
    let (spec, was) = (&after["spec"], &before["spec"]);
    assert_eq!((&spec["holderIdentity"], &spec["leaseDurationSeconds"]), (&json!(ME), &json!(51)));
    assert_eq!([&spec["acquireTime"], &spec["leaseTransitions"]], [&was["acquireTime"], &was["leaseTransitions"]]);
    assert_eq!(spec["renewTime"], "2027-01-15T08:00:10.001001Z");
    let annotations = &after["metadata"]["annotations"];
    assert_eq!((annotations.get(HOLDER), &annotations[RESTS]), (None, &json!(format!("2027-01-15T08:00:10.001001Z {ME}"))));
    assert_ne!(annotations["tenure.dev/traceparent"], before["metadata"]["annotations"]["tenure.dev/traceparent"]);
    assert_eq!(released(&bench), Some("rest"));
}

#[test]
fn a_rest_is_taken_once_it_is_due_by_the_replica_that_it_names_too_and_counts_as_another_hold() {
    let mut bench = ran(every(20), seconds(4), Exit::Code(0));
    let (rest, writes) = (bench.register.object().unwrap(), bench.writes().len());
    assert_eq!(rest["spec"]["leaseDurationSeconds"], 16);

    bench.run(seconds(15));
    assert_eq!(bench.writes().len(), writes, "not due");
    bench.run(seconds(2) + STAGGER);

    let taken = bench.register.object().unwrap();
    assert_eq!((taken["spec"]["holderIdentity"].as_str(), bench.leads().map(|term| term.0)), (Some(ME), Some(2)));
    assert_eq!(taken["spec"]["leaseTransitions"], rest["spec"]["leaseTransitions"].as_i64().unwrap() + 1);
    assert_eq!(taken["spec"]["acquireTime"], taken["spec"]["renewTime"]);
    assert_eq!((taken["metadata"]["annotations"].get(RESTS), &taken["metadata"]["annotations"][HOLDER]), (None, &json!(ME)));
    let due = |event: &Event| matches!(event, Event::Campaigning { why: AcquireReason::Due, .. });
    assert!(bench.events.iter().any(due), "{:?}", bench.events);
}

#[test]
fn a_rest_is_taken_when_the_wall_clock_says_that_it_is_over_and_after_watching_it_for_that_long_at_the_latest() {
    let day = |date: &str| format!("{date}T08:00:00.000000Z");
    assert_taken(resting(40), [seconds(40), seconds(40)]);
    assert_taken(resting_since("2027-01-15T07:59:30.000000Z", 40), [seconds(10), seconds(10)]);
    for time in [day("2027-01-14"), "nonsense".into(), "1969-01-01T00:00:00.000000Z".into()] {
        assert_taken(resting_since(&time, 40), [Duration::ZERO, Duration::ZERO]);
    }
    for time in [day("2028-01-15"), day("9999-12-30")] {
        assert_taken(resting_since(&time, 40), [plus(40), plus(40)]);
    }
}

#[test]
fn a_wall_clock_that_is_set_moves_what_is_due() {
    let mut bench = Bench::start(every(3_600), resting(3_600));
    bench.run(seconds(10));
    bench.now.wall += 3_600_000_000;

    assert!(taken_after(&mut bench, seconds(120)) <= seconds(60));
}

#[test]
fn a_rest_that_does_not_name_this_renew_time_and_this_holder_is_a_live_holder() {
    let edits: [fn(&mut Value); 5] = [
        |object| object["spec"]["renewTime"] = "2027-01-15T08:00:00.000001Z".into(),
        |object| object["spec"]["holderIdentity"] = "other_2".into(),
        |object| object["metadata"]["annotations"][RESTS] = "2027-01-15T08:00:00.000000Z".into(),
        |object| object["metadata"]["annotations"][RESTS] = "other_1".into(),
        |object| object["metadata"]["annotations"] = json!({}),
    ];
    for edit in edits {
        let mut register = resting_since("2027-01-15T08:00:00.000000Z", 5);
        register.edit(|object| {
            edit(object);
            object["spec"]["acquireTime"] = "2026-01-01T00:00:00.000000Z".into();
        });
        let mut bench = Bench::start(every(1), register);
        // A clock that is ahead shortens no wait for a holder that may be alive.
        bench.now.wall += 3_600_000_000;
        assert_eq!(taken_after(&mut bench, seconds(20)), plus(5));
    }
}

#[test]
fn a_lease_that_rests_is_read_once_a_minute_and_once_when_it_is_due() {
    let mut bench = Bench::start(every(600), resting(590));
    bench.run(seconds(589));
    assert_eq!(bench.gets(), 11);

    bench.run(seconds(1) + STAGGER);

    assert_eq!((bench.gets(), bench.writes().len(), bench.leads().is_some()), (12, 1, true));
}

#[test]
fn a_rest_that_another_has_taken_is_not_written_to() {
    let mut bench = Bench::start(every(60), resting(30));
    bench.run(seconds(20));
    bench.register.edit(|object| object["spec"] = held("other_2", 15));

    bench.run(seconds(20));

    assert_eq!(bench.writes(), Vec::<&Sent>::new());
}

#[test]
fn what_ran_for_longer_than_the_interval_failed_and_is_to_be_released_or_did_not_run_at_all_is_given_back() {
    let on_failure = InitialState::clone(&every(60));
    let releases = |mut initial: InitialState| {
        initial.config.task.on_failure = OnFailure::Release;
        initial
    };
    for (initial, exit, how) in [
        (every(60), Some(Exit::Code(3)), "rest"),
        (every(60), Some(Exit::Signal(15)), "rest"),
        (releases(on_failure), Some(Exit::Code(3)), "clear"),
        (releases(every(60)), Some(Exit::Code(0)), "rest"),
        (every(10), Some(Exit::Code(0)), "clear"),
        (every(60), None, "clear"),
        (initial_state(), Some(Exit::Code(0)), "clear"),
    ] {
        let mut bench = Bench::leading_with(initial);
        bench.run(seconds(10));
        bench.stopping(Reason::Exited);
        bench.prove_ended(exit, Then::Exit);
        bench.run(seconds(1));
        assert_eq!((released(&bench), bench.is_done()), (Some(how), true), "{exit:?}");
    }
}

#[test]
fn a_run_that_was_cut_off_at_its_limit_rests_whatever_a_failure_does() {
    let mut initial = every(60);
    initial.config.task.on_failure = OnFailure::Release;
    let mut bench = Bench::leading_with(initial);
    bench.stopping(Reason::Limit);
    bench.prove_ended(Some(Exit::Signal(15)), Then::Follow);
    bench.run(TICK);

    assert_eq!(released(&bench), Some("rest"));
}

#[test]
fn whoever_has_done_its_run_does_not_let_the_others_go_first() {
    for (interval, runs_after) in [(6, seconds(7)), (4, seconds(1))] {
        let mut bench = ran(every(interval), seconds(5), Exit::Code(0));
        bench.run(runs_after + STAGGER);
        assert_eq!(bench.leads().map(|term| term.0), Some(2), "{interval}");
    }
}

#[test]
fn a_rest_is_written_whatever_else_is_configured_for_the_end_of_a_term() {
    for release in [Release::Keep, Release::Delete] {
        let mut initial = every(60);
        initial.config.lease.release = release;
        let mut bench = ran(initial, seconds(1), Exit::Code(0));
        bench.run(seconds(1));
        assert_eq!((released(&bench), bench.register.spec()["holderIdentity"].as_str()), (Some("rest"), Some(ME)));
    }
}

#[test]
fn nothing_rests_before_the_proof_and_before_init_has_voided_the_deadlines() {
    let mut bench = Bench::leading_with(every(60));
    bench.answers = false;
    bench.stopping(Reason::Exited);
    bench.run(seconds(1));
    assert_eq!(bench.writes().len(), 1, "the acquisition");

    bench.acknowledges = false;
    bench.prove_ended(Some(Exit::Code(0)), Then::Exit);
    bench.run(seconds(1));
    assert!(matches!(bench.told.last(), Some(ToInit::Releasing { .. })), "{:?}", bench.told.last());
    assert_eq!(bench.writes().len(), 1);

    acknowledge_release(&mut bench);
    bench.serve();
    assert_eq!((released(&bench), bench.writes().len()), (Some("rest"), 2));
}

#[test]
fn a_rest_whose_reply_was_lost_is_recognised_and_after_a_conflict_only_this_terms_lease_rests() {
    let proved = || {
        let mut bench = Bench::leading_with(every(60));
        bench.answers = false;
        bench.stopping(Reason::Exited);
        bench.prove_ended(Some(Exit::Code(0)), Then::Exit);
        bench
    };
    let mut bench = proved();
    bench.serve_silently();
    let writes = bench.writes().len();
    bench.run_answered(seconds(1));
    assert_eq!((released(&bench), bench.writes().len()), (Some("rest"), writes));

    for (holder, how) in [(ME, "rest"), ("other_2", "not-ours")] {
        let mut bench = proved();
        bench.register.edit(|object| object["spec"]["holderIdentity"] = holder.into());
        bench.run_answered(seconds(1));
        assert_eq!((released(&bench), bench.register.spec()["holderIdentity"].as_str()), (Some(how), Some(holder)));
    }

    let mut bench = proved();
    bench.answer(lost());
    bench.run_answered(seconds(1));
    assert_eq!(released(&bench), Some("rest"));
}

#[test]
fn a_pause_keeps_the_replica_that_has_rested_from_its_next_run_too() {
    let mut bench = ran(every(20), seconds(4), Exit::Code(0));
    let writes = bench.writes().len();
    bench.see(|object| object["metadata"]["annotations"][PAUSED] = "true".into());
    bench.run(seconds(60));
    assert_eq!(bench.writes().len(), writes);

    bench.see(|object| object["metadata"]["annotations"][PAUSED] = "false".into());
    bench.run(seconds(4));
    assert_eq!(bench.leads().map(|term| term.0), Some(2));
}

#[test]
fn how_long_a_lease_rests_is_no_duration_that_anybody_is_waited_for() {
    let mut bench = Bench::start(every(3_600), resting(3_600));
    bench.run(seconds(1));
    let gone = bench.register.delete();
    bench.watch(gone);
    bench.run(TICK);
    assert_eq!(bench.body()["spec"]["leaseDurationSeconds"], 15, "nobody holds it for D");

    let mut bench = Bench::start(every(3_600), resting(3_600));
    bench.run(seconds(1));
    bench.see(|object| object["spec"]["holderIdentity"] = "".into());
    bench.run(seconds(1));
    assert_eq!(bench.body()["spec"]["leaseDurationSeconds"], 15, "its holder was removed by hand");

    let mut register = Register::holding(held("other_1", 15));
    (0..9).for_each(|label| register.edit(|object| object["metadata"]["labels"]["edited"] = label.into()));
    let mut bench = Bench::start(every(3_600), register);
    bench.run(TICK);
    let stale = resting(3_600).object().unwrap();
    bench.register.put(json!({}));
    bench.watch(Watched::Changed(stale.into()));
    bench.run(seconds(4));
    assert_eq!(bench.body()["spec"]["leaseDurationSeconds"], 15);
}

#[test]
fn a_rest_gives_the_lease_back_so_that_the_next_holder_needs_no_name() {
    let mut register = Register::holding(held("other_1", 15));
    register.edit(|object| object["metadata"]["annotations"] = json!({HOLDER: "other_1"}));
    let mut bench = Bench::start(every(1), register);
    bench.run(seconds(1));
    let rest = resting(10).object().unwrap();
    bench.see(|object| {
        object["spec"] = rest["spec"].clone();
        object["metadata"]["annotations"] = rest["metadata"]["annotations"].clone();
    });
    bench.run(seconds(1));
    bench.see(|object| {
        object["spec"] = held("stranger", 3);
        object["metadata"]["annotations"] = json!({});
    });
    takes_exactly_after(&mut bench, plus(3));
}

#[test]
fn a_run_that_crashed_counts_as_one_unless_it_is_to_be_made_up_for() {
    let begun = "2027-01-15T07:59:50.000000Z";
    assert_taken(crashed(begun), [seconds(50), seconds(50)]);
    // Not before the last run is dead, but not for ever.
    assert_taken(crashed("2027-01-15T07:00:00.000000Z"), [plus(15), plus(15)]);
    assert_taken(crashed("2030-01-15T07:00:00.000000Z"), [plus(60), plus(60)]);

    let mut initial = every(60);
    initial.config.task.after_crash = AfterCrash::Run;
    let mut bench = Bench::start(initial, crashed(begun));
    assert_eq!(taken_after(&mut bench, seconds(70)), plus(15));
}

#[test]
fn a_holder_that_renews_is_waited_for_however_long_ago_its_run_was_due_to_end() {
    let mut bench = Bench::start(every(5), crashed("2027-01-15T08:00:00.000000Z"));
    for second in 0..30 {
        bench.run(seconds(1));
        bench.see(|object| object["spec"]["renewTime"] = format!("2027-01-15T08:00:{second:02}.000000Z").into());
    }
    assert_eq!(bench.writes(), Vec::<&Sent>::new());
}

/// Returns the reason with which a single run of this task gives up within this time.
fn given_up(register: Register, within: Duration) -> Option<(u8, String)> {
    let preset = Preset::Task(Task { trigger: Trigger::Every(seconds(60)), limit: None, once: Some(75) });
    let mut bench = Bench::start(InitialState { preset, ..initial_state() }, register);
    bench.run(within);
    assert_eq!(bench.is_done(), bench.leads().is_none(), "{:?}", bench.told);
    bench
        .told
        .into_iter()
        .find_map(|message| if let ToInit::GaveUp { code, message } = message { Some((code, message)) } else { None })
}

#[test]
fn a_single_run_that_is_not_due_or_another_replicas_is_not_waited_for() {
    let mut running = crashed("2027-01-15T07:00:00.000000Z");
    running.edit(|object| object["spec"]["renewTime"] = "2027-01-15T07:59:58.000000Z".into());
    for (register, words) in [
        (resting(40), "not due: the last run began at 2026-01-01T00:00:00.000000Z, by other_1; the next run is due in 40s"),
        (crashed("2027-01-15T07:59:50.000000Z"), "the next run is due in 50s"),
        (running, "not acquired: it is held by other_1"),
    ] {
        let Some((75, said)) = given_up(register, TICK) else { panic!("it waits for {words}") };
        assert!(said.contains(words), "{said}");
    }
    let past = || resting_since("2027-01-15T07:59:00.000000Z", 40);
    let ahead = || resting_since("2030-01-15T07:00:00.000000Z", 40);
    for (register, within) in [(past(), TICK), (crashed("2027-01-15T07:00:00.000000Z"), plus(15)), (ahead(), plus(40) + STAGGER)]
    {
        assert_eq!(given_up(register, within), None, "it runs");
    }
}

#[test]
fn a_lease_that_was_given_back_is_due_at_once() {
    let mut bench = Bench::start(every(60), Register::holding(mark()));
    bench.run(TICK);
    assert_eq!((bench.writes().len(), bench.sent.last().map(|(at, _)| *at > Instant::BOOT)), (1, Some(true)));
}

/// The run was cut off from the API server, and is over. The Lease still names its replica.
fn cut_off(initial: InitialState) -> Bench {
    let mut bench = Bench::leading_with(initial);
    bench.answers = false;
    bench.run(seconds(10));
    assert_eq!(bench.step_down_reason(), Some(Reason::Expired));
    bench.prove_ended(Some(Exit::Signal(15)), Then::Follow);
    bench.answer(lost());
    bench.answers = true;
    bench
}

#[test]
fn a_run_for_which_a_replica_takes_its_own_lease_again_begins_an_interval_of_its_own() {
    let mut bench = cut_off(every(60));
    bench.run(seconds(51));
    assert_eq!(bench.leads().map(|term| term.0), Some(2), "one interval after the first run began");
    let taken = bench.body();
    assert!(taken["spec"]["acquireTime"].as_str() >= Some("2027-01-15T08:01:00"), "whoever sees it die waits from then: {taken}");

    bench.run(seconds(3));
    bench.stopping(Reason::Exited);
    bench.prove_ended(Some(Exit::Code(0)), Then::Follow);
    bench.run(TICK);
    assert_eq!(released(&bench), Some("rest"));
    bench.run(seconds(55));
    assert_eq!(bench.leads().map(|term| term.0), Some(2), "no second run in its interval");
    bench.run(seconds(4));
    assert_eq!(bench.leads().map(|term| term.0), Some(3));
}

#[test]
fn a_replica_whose_every_run_is_lost_begins_one_an_interval() {
    let mut bench = cut_off(every(60));
    for term in 2..5 {
        bench.run(seconds(46));
        assert_eq!(bench.leads().map(|term| term.0), Some(term - 1), "it is not due");
        bench.run(seconds(5));
        assert_eq!(bench.leads().map(|term| term.0), Some(term));
        bench.answers = false;
        bench.run(seconds(10));
        bench.prove_ended(Some(Exit::Signal(15)), Then::Follow);
        bench.answer(lost());
        bench.answers = true;
    }
}

#[test]
fn a_rest_that_could_not_be_written_keeps_its_replica_from_another_run_in_the_interval() {
    let mut initial = every(60);
    initial.config.task.after_crash = AfterCrash::Run;
    let mut bench = Bench::leading_with(initial);
    bench.answers = false;
    bench.stopping(Reason::Exited);
    bench.prove_ended(Some(Exit::Code(0)), Then::Follow);
    for _ in 0..60 {
        bench.run(Duration::from_millis(100));
        if bench.awaited.is_some() {
            bench.answer(lost());
        }
    }
    assert_eq!(released(&bench), Some("unknown"));
    bench.run_answered(seconds(53));
    assert_eq!(bench.leads().map(|term| term.0), Some(1), "it has run, whatever the Lease says");
    bench.run(seconds(2));
    assert_eq!(bench.leads().map(|term| term.0), Some(2));
}

#[test]
fn without_a_watch_a_lease_is_read_once_a_period_while_a_run_lives_and_seldom_once_it_must_be_dead() {
    let mut bench = Bench::start(every(600), crashed("2027-01-15T08:00:00.000000Z"));
    for second in (3..=54).step_by(3) {
        bench.run(seconds(3));
        bench.register.edit(|object| object["spec"]["renewTime"] = format!("2027-01-15T08:00:{second:02}.000000Z").into());
    }
    assert!(bench.gets() >= 18, "{}", bench.gets());
    let mut given_back = Bench::start(every(600), crashed("2027-01-15T08:00:00.000000Z"));
    given_back.run(seconds(10));
    given_back.register.edit(|object| object["spec"] = mark());
    assert!(taken_after(&mut given_back, seconds(60)) <= Duration::from_millis(3_300));

    bench.run(seconds(25));
    let before = bench.gets();
    bench.run(seconds(300));
    assert!((5..=6).contains(&(bench.gets() - before)), "{}", bench.gets() - before);
}
