//! Tests the answer of `/status`, event by event.

use std::time::Duration;

use super::*;
use crate::{
    config::{Config, Probe, Runs},
    election::{AcquireReason, LeaderView, trace::TraceContext},
    law::Deadlines,
    link::{Confirmed, Exit, LeaseBackoff, Reason, Resume, Stop, Term, TermInfo, Then, ToElector, ToInit},
    slot::Slot,
    telemetry::{
        status::Fact,
        transition::{Margin, Origin, TransitionReason},
    },
    time::Now,
};

const START: Instant = Instant::from_nanos(1_000_000_000_000);

fn transition(to: Role, reason: TransitionReason, exit: Option<Exit>) -> Recorded {
    let now = Now { boot: START, wall: 1_800_000_000_000_000 };
    Recorded::Transitioned(Box::new(Transition {
        to,
        reason,
        slot: Slot(1),
        term: 7,
        token: "42".into(),
        context: TraceContext { trace_id: 1, span_id: 2 },
        origin: Origin::None,
        from: START,
        until: START + Duration::from_millis(1_500),
        anchor: Anchor(now),
        margin: Some(Margin(8.5)),
        phases: Vec::new(),
        exit,
        fused: None,
        release: None,
        outcome: Outcome::Complete,
    }))
}

fn status(change: impl FnOnce(&mut Status)) -> Status {
    let mut status = Status::new(&initial(Runs::Leading), START);
    change(&mut status);
    status
}

/// Init is told of this term.
fn lead(slot: u8, token: &str) -> Fact {
    let info = TermInfo {
        slot: Slot(slot),
        token: token.into(),
        uid: "u".into(),
        transitions: 7,
        acquired_at: String::new(),
        traceparent: String::new(),
    };
    let deadlines = initial(Runs::Leading).config.timing().deadlines(START);
    let confirmed = Confirmed { resource_version: "9".into(), preferred_holder: None, deadlines };
    Fact::Telling(ToInit::Lead { term: Term(1), info, confirmed })
}

fn initial(runs: Runs) -> InitialState {
    let mut config = Config::default();
    (config.lease.name, config.lease.namespace, config.workload.runs) = ("billing".into(), "default".into(), runs);
    InitialState::first(config, "a_1".into())
}

/// It is so many seconds after 2027-01-15T08:00:00Z.
fn held(holder: Option<&str>, term: i32, seconds: i64, before: Option<TermEnd>) -> Recorded {
    let (slot, holder) = (Slot(1), holder.map(str::to_owned));
    Recorded::HolderChanged { slot, holder, term, at: 1_800_000_000_000_000 + seconds * 1_000_000, before, nobody: None }
}

fn board(events: &[Recorded]) -> Board {
    let mut board = Board::new(&initial(Runs::Leading));
    for event in events {
        board.recorded(event);
    }
    board
}

#[test]
fn a_leader_tells_its_term_its_token_and_what_is_left() {
    let leads = transition(Role::Leader, TransitionReason::Acquired(AcquireReason::Released), None);
    let deadlines = Deadlines {
        soft: START + Duration::from_secs(8),
        hard: START + Duration::from_secs(12),
        end: START + Duration::from_secs(13),
    };
    let led = LeaderView { term: Term(1), confirmed: START, deadlines: Some(deadlines), ending: false };

    let acquired = held(Some("a_1"), 7, 0, None);
    let leads_now = status(|status| {
        status.apply(&lead(1, "42"), START);
        status.election.leading = Some(led);
    });
    let status = board(&[acquired, leads]).status(&leads_now, START + Duration::from_secs(2));

    assert_eq!(status["transitions"][0]["time"], "2027-01-15T08:00:01.500Z");
    let expected = json!(["leader", "a_1", 7, "42", 6.0, 10.0, 2.0, false]);
    let keys =
        ["role", "holder", "term", "fencingToken", "marginSeconds", "killDeadlineSeconds", "renewedSecondsAgo", "stopping"];
    assert_eq!(Value::from(keys.map(|key| status[key].clone()).to_vec()), expected);
}

#[test]
fn a_replica_whose_terms_failed_tells_for_how_long_it_leaves_the_lease_to_the_others() {
    let backoff = |failures, seconds| {
        let backoff = LeaseBackoff { until: START + Duration::from_secs(30), failures };
        board(&[]).status(&status(|status| status.election.backoff = backoff), START + Duration::from_secs(seconds))["backoff"]
            .clone()
    };

    assert_eq!(backoff(2, 10), json!({ "failures": 2, "seconds": 20.0 }));
    assert_eq!([backoff(2, 30), backoff(0, 10)], [Value::Null, Value::Null]);
}

#[test]
fn a_standby_tells_when_it_last_saw_a_renewal_when_the_lease_is_free_and_whether_the_api_server_answers() {
    let told = |renewed, free, answered| {
        let change = |status: &mut Status| {
            (status.election.renewed, status.election.free, status.is_answered) = (renewed, free, answered);
        };
        let status = board(&[]).status(&status(change), START + Duration::from_secs(20));
        ["renewedSecondsAgo", "freeInSeconds", "apiServerAnswers"].map(|key| status[key].clone())
    };
    assert_eq!(told(Some(START), Some(START + Duration::from_secs(23)), false), [json!(20.0), json!(3.0), json!(false)]);
    assert_eq!(told(None, None, true), [Value::Null, Value::Null, json!(true)]);
}

#[test]
fn a_replica_of_a_task_tells_the_next_fire() {
    let told = |next_fire| board(&[]).status(&status(|status| status.election.next_fire = next_fire), START)["nextFire"].clone();
    assert_eq!([told(Some(1_800_000_000_000_000)), told(None)], [json!("2027-01-15T08:00:00.000Z"), Value::Null]);
}

#[test]
fn no_term_ends_before_it_begins_though_the_time_on_its_lease_is_ahead() {
    let stands_by = transition(Role::Standby, TransitionReason::Ended(Reason::Signal), Some(Exit::Code(0)));
    for end in [held(None, 7, -2, Some(TermEnd::Released)), held(Some("b_1"), 8, -2, None), stands_by] {
        let status = board(&[held(Some("a_1"), 7, 3, None), end]).status(&status(|_| {}), START);
        let terms = status["terms"].as_array().unwrap();
        let ended = terms.iter().find(|term| term["holder"] == "a_1").unwrap();
        assert_eq!((&ended["since"], &ended["until"]), (&json!("2027-01-15T08:00:03.000Z"), &ended["since"]));
    }
}

#[test]
fn a_standby_tells_who_leads_and_how_its_own_term_ended() {
    let acquired = held(Some("a_1"), 7, 0, None);
    let leads = transition(Role::Leader, TransitionReason::Resumed, None);
    let stands_by = transition(Role::Standby, TransitionReason::Ended(Reason::Signal), Some(Exit::Code(0)));
    let status = |events: &[Recorded]| board(events).status(&status(|_| ()), START);

    let alone = status(&[acquired.clone(), leads.clone(), stands_by.clone()]);
    assert_eq!((&alone["role"], &alone["holder"], &alone["term"]), (&json!("standby"), &Value::Null, &Value::Null));
    assert_eq!((&alone["transitions"][0]["reason"], &alone["transitions"][0]["exit"]), (&json!("signal"), &json!("exit code 0")));
    let other = held(Some("b_2"), 8, 2, Some(TermEnd::Released));
    let board = board(&[acquired, leads, stands_by, other]);
    assert_eq!(board.leader(), json!({"name": "b_2"}));
}

#[test]
fn a_replica_that_never_led_tells_the_terms_that_it_saw_and_since_when_their_last_holder_leads() {
    let terms = [
        held(Some("b_2"), 7, 0, None),
        held(None, 0, 25, Some(TermEnd::Released)),
        held(Some(NOBODY), 7, 20, None),
        held(Some("c_3"), 8, 36, Some(TermEnd::Expired)),
    ];
    let status = |events: &[Recorded]| board(events).status(&status(|_| ()), START);

    let free = status(&terms[..2]);
    assert_eq!((&free["holder"], &free["since"]), (&Value::Null, &Value::Null));
    let nobodys = status(&terms[..3]);
    assert_eq!((&nobodys["holder"], &nobodys["since"]), (&Value::Null, &json!("2027-01-15T08:00:20.000Z")));
    let led = status(&terms);
    assert_eq!((&led["holder"], &led["since"]), (&json!("c_3"), &json!("2027-01-15T08:00:36.000Z")));
    let at = |second: &str| format!("2027-01-15T08:00:{second}.000Z");
    assert_eq!(
        led["terms"],
        json!([
            {"slot": 1, "holder": "c_3", "term": 8, "since": at("36"), "until": null, "ended": null},
            {"slot": 1, "holder": "nobody", "term": null, "since": at("20"), "until": at("36"), "ended": "expired"},
            {"slot": 1, "holder": "b_2", "term": 7, "since": at("00"), "until": at("20"), "ended": "released"},
        ])
    );
}

#[test]
fn why_its_own_term_ended_a_replica_knows_better_and_one_that_goes_on_is_not_over() {
    let acquired = held(Some("a_1"), 7, 0, None);
    let lost = transition(Role::Standby, TransitionReason::Ended(Reason::Expired), None);
    let leads = transition(Role::Leader, TransitionReason::Acquired(AcquireReason::Expired), None);
    let term = |events: &[Recorded]| {
        let seen = &board(events).terms[0];
        (seen.until.clone(), seen.ended)
    };

    let released = held(None, 0, 1, Some(TermEnd::Released));
    let signal = transition(Role::Standby, TransitionReason::Ended(Reason::Signal), None);
    let until = |text: &str| Some(format!("2027-01-15T08:00:{text}Z"));
    assert_eq!(term(&[acquired.clone(), released, signal]), (until("01.000"), Some("signal")));
    assert_eq!(term(&[acquired.clone(), lost.clone()]), (until("01.500"), Some("expired")));
    assert_eq!(term(&[acquired.clone(), lost, leads]), (None, None));
    let mut never_led = transition(Role::Leader, TransitionReason::Acquired(AcquireReason::Expired), None);
    if let Recorded::Transitioned(transition) = &mut never_led {
        transition.outcome = Outcome::NeverLed;
    }
    let cleared = held(None, 0, 1, Some(TermEnd::Cleared));
    assert_eq!(term(&[acquired, cleared, never_led]), (until("01.000"), Some("cleared")));
}

#[test]
fn a_leader_of_one_slot_is_the_holder_whoever_took_another_since() {
    let acquired = held(Some("a_1"), 7, 0, None);
    let (slot, holder) = (Slot(0), Some("b_2".to_owned()));
    let other = Recorded::HolderChanged { slot, holder, term: 3, at: 1_800_000_009_000_000, before: None, nobody: None };

    let board = board(&[acquired, other]);
    let status = board.status(&status(|_| ()), START);

    assert_eq!(board.first_holder(), Some("b_2"), "standbys are announced to the holder of the first slot");
    assert_eq!((&status["holder"], &status["since"]), (&json!("a_1"), &json!("2027-01-15T08:00:00.000Z")));
    assert_eq!(status["terms"][1]["until"], Value::Null, "another slot ends no term of this one");
}

#[test]
fn of_its_workload_it_tells_whether_it_runs_as_what_how_it_is_and_what_it_says() {
    let started = ToElector::Started { term: Term(1), pid: 7, at: START };
    let unready = ToElector::Health { unready: Some("HTTP 503".into()), status: "loading".into() };
    let stop = Stop { began: None, killed: None, exited: None, exit: None, fused: None, proved: START };
    let stopped = ToElector::Stopped { term: Term(1), request: 1, stop, then: Then::Follow };
    let after = |runs, messages: &[&ToElector]| {
        let mut status = Status::new(&initial(runs), START);
        status.apply(&lead(0, "9"), START);
        for message in messages {
            assert!(status.apply(&Fact::Told(ToElector::clone(message)), START));
        }
        let workload = board(&[]).status(&status, START)["workload"].take();
        ["runs", "role", "ready", "unready", "status"].map(|key| workload[key].clone())
    };

    let idle = [json!(false), json!(null), json!(false), json!(null), json!("")];
    assert_eq!(after(Runs::Leading, &[]), idle);
    assert_eq!(after(Runs::Leading, &[&started])[..3], [json!(true), json!("leader"), json!(true)]);
    let loading = [json!(true), json!("leader"), json!(false), json!("HTTP 503"), json!("loading")];
    assert_eq!(after(Runs::Leading, &[&started, &unready]), loading);
    assert_eq!(after(Runs::Leading, &[&started, &stopped]), idle);
    assert_eq!(after(Runs::Always, &[])[..3], [json!(true), json!("standby"), json!(true)]);
    assert_eq!(after(Runs::Always, &[&started, &stopped])[1], json!("standby"));
    let mut asked = initial(Runs::Always);
    asked.config.workload.readiness = Probe { notify: true, ..Probe::default() };
    let unasked = board(&[]).status(&Status::new(&asked, START), START)["workload"].take();
    assert_eq!([&unasked["ready"], &unasked["unready"]], [&json!(false), &json!(null)], "init tells when it is");
    let mut resumed = initial(Runs::Leading);
    let Fact::Telling(ToInit::Lead { info, confirmed, .. }) = lead(0, "9") else { panic!("a term") };
    let deadlines = confirmed.deadlines;
    resumed.resume = Some(Resume {
        term: Term(1),
        info,
        confirmed,
        stopping: None,
        traceparent: String::new(),
        released: false,
        main: Some(7),
        told: true,
    });
    let mut status = Status::new(&resumed, START);
    assert_eq!(status.role, Some(Role::Leader), "init told an earlier elector");
    status.election.leading = Some(LeaderView { term: Term(1), confirmed: START, deadlines: Some(deadlines), ending: false });
    let status = Board::new(&resumed).status(&status, START);
    assert_eq!([&status["slot"], &status["term"], &status["fencingToken"]], [&json!(0), &json!(7), &json!("9")]);
}

#[test]
fn only_so_many_terms_and_transitions_are_remembered_and_the_latest_come_first() {
    let leads = transition(Role::Leader, TransitionReason::Resumed, None);
    let mut events = vec![leads; REMEMBERED + 5];
    events.extend((0..40).map(|term| held(Some("b_2"), term, 0, None)));
    events.push(transition(Role::Standby, TransitionReason::Ended(Reason::Signal), None));
    let board = board(&events);
    assert_eq!((board.transitions.len(), &board.transitions[0]["to"]), (REMEMBERED, &json!("standby")));
    assert_eq!((board.terms.len(), board.terms[0].term), (REMEMBERED, Some(39)));
}
