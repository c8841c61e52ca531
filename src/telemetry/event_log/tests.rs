use serde_json::Value;

use super::*;
use crate::{
    config::{Config, HookKind, Log, LogFormat, LogLevel, Preset, Runs, WaitLimit},
    election::{AcquireReason, LeaderView, View},
    law::Deadlines,
    link::{Confirmed, Exit, InitialState, LeaseBackoff, Reason, Stop, Term, TermInfo, Then, ToInit},
    slot::Slot,
    telemetry::{
        log::captured,
        transition::{Anchor, Origin, Phase},
    },
    time::Now,
};

const CONTEXT: TraceContext = TraceContext { trace_id: 0xab, span_id: 0xcd };

/// A log, and the status that it is a view of.
struct Lines {
    log: EventLog,
    status: Status,
}

impl Lines {
    fn of(preset: Preset, runs: Runs) -> Self {
        let mut config = Config::default();
        config.workload.runs = runs;
        config.workload.readiness.notify = true;
        config.lease.name = "billing".into();
        let initial = InitialState { preset, ..InitialState::first(config, "pod-1_ab".into()) };
        Self { log: EventLog::new(&initial), status: Status::new(&initial, ms(0)) }
    }

    fn take(&mut self, fact: &Fact, at: Instant) {
        let before = self.status.clone();
        self.status.apply(fact, at);
        let at = Now { boot: at, wall: 0 };
        self.log.changed(&Change { before: &before, after: &self.status, fact, at });
    }

    fn heard(&mut self, message: &ToElector) {
        self.take(&Fact::Told(message.clone()), ms(0));
    }

    fn recorded(&mut self, recorded: &Recorded, at: Instant) {
        self.take(&Fact::Recorded(recorded.clone()), at);
    }

    fn holds(&mut self, soft: Instant) {
        let deadlines = Deadlines { soft, ..Deadlines::NEVER };
        let led = LeaderView { term: Term(1), confirmed: ms(0), deadlines: Some(deadlines), ending: false };
        self.take(&Fact::Elects(View { leading: Some(led), ..self.status.election }), ms(0));
    }
}

/// The lines of what `log` does, as JSON from info on.
fn logged(log: impl FnOnce(&mut Lines)) -> Vec<Value> {
    written(LogFormat::Json, log).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn written(format: LogFormat, log: impl FnOnce(&mut Lines)) -> String {
    let config = Log { level: LogLevel::Info, format };
    captured(&config, || log(&mut Lines::of(Preset::Run, Runs::Always)))
}

fn ms(millis: u64) -> Instant {
    Instant::BOOT + Duration::from_millis(millis)
}

fn reported(lines: &mut Lines, millis: u64, event: &Event) {
    lines.take(&Fact::Event(event.clone()), ms(millis));
}

fn failed(message: &str) -> Event {
    failure(Operation::Update, message.into())
}

const fn failure(operation: Operation, message: RequestError) -> Event {
    Event::Failed { operation, sent: Instant::BOOT, message }
}

const fn recovered(operation: Operation) -> Event {
    Event::Recovered { operation }
}

fn renewed() -> Event {
    Event::Renewed { sent: ms(998), soft: ms(7_800) }
}

/// The Lease is held by nobody, and waited for that long.
const fn nobodys(wait: Duration) -> Recorded {
    Recorded::HolderChanged { slot: Slot(0), holder: None, term: 0, at: 0, before: None, nobody: Some(wait) }
}

fn info() -> TermInfo {
    let empty = String::new;
    TermInfo { slot: Slot(0), token: empty(), uid: empty(), transitions: 7, acquired_at: empty(), traceparent: empty() }
}

const fn confirmed() -> Confirmed {
    Confirmed { resource_version: String::new(), preferred_holder: None, deadlines: Deadlines::NEVER }
}

fn stood_by() -> Transition {
    Transition {
        to: Role::Standby,
        reason: TransitionReason::Ended(Reason::StepDown),
        slot: Slot(1),
        term: 7,
        token: "42".into(),
        context: CONTEXT,
        origin: Origin::None,
        from: ms(0),
        until: ms(30),
        anchor: Anchor(Now { boot: ms(0), wall: 0 }),
        margin: Some(Margin(13.5)),
        phases: vec![
            Phase { kind: PhaseKind::WorkloadStop, from: ms(0), until: ms(20) },
            Phase { kind: PhaseKind::Release(ReleaseResult::Clear), from: ms(25), until: ms(30) },
        ],
        exit: Some(Exit::Code(3)),
        fused: None,
        release: Some(ReleaseResult::Clear),
        outcome: Outcome::Complete,
    }
}

#[test]
fn a_program_that_was_dead_before_anybody_noticed_is_said_to_have_been_dead_then() {
    let end = Transition {
        reason: TransitionReason::Ended(Reason::Expired),
        exit: Some(Exit::Signal(libc::SIGKILL)),
        fused: Some((ms(19_607), ms(23_500))),
        margin: Some(Margin(1.0)),
        release: None,
        ..stood_by()
    };
    let line = &logged(|log| log.recorded(&Recorded::Transitioned(Box::new(end)), ms(23_500)))[0];
    let said = "the program was dead at 1970-01-01T00:00:19.607Z, 1s before the Lease expired: the kernel's fuse killed it; noticed 3.89s later";
    assert_eq!((&line["level"], &line["message"]), (&"WARN".into(), &said.into()));
}

#[test]
fn an_end_that_is_told_late_is_said_to_have_been_then() {
    let end = |kind, outcome, exit, told: u64| {
        let over = Phase { kind, from: ms(20), until: ms(20_544) };
        let reason = TransitionReason::Ended(Reason::Expired);
        let end = Transition { reason, phases: vec![over], release: None, outcome, exit, ..stood_by() };
        let lines = logged(|log| log.recorded(&Recorded::Transitioned(Box::new(end)), ms(told)));
        lines[0]["message"].as_str().unwrap().to_owned()
    };
    let stopped = |told| end(PhaseKind::WorkloadProof, Outcome::Complete, Some(Exit::Code(0)), told);
    let demoted = |told| end(PhaseKind::WorkloadStop, Outcome::Demoted, None, told);
    let when = "at 1970-01-01T00:00:20.544Z (logged 3.23s later)";
    assert_eq!(stopped(20_600), "the program has stopped; the Lease is left to expire");
    assert_eq!(stopped(23_776), format!("the program has stopped {when}; the Lease is left to expire"));
    let lives = "and keeps running; the Lease is left to expire";
    assert_eq!(demoted(20_600), format!("no longer leading: the program was demoted, {lives}"));
    assert_eq!(demoted(23_776), format!("no longer leading: the program was demoted {when}, {lives}"));
}

#[test]
fn a_term_in_which_the_program_never_led_is_not_said_to_stop_it_and_the_next_one_follows_this_replica() {
    let of = |to, reason, outcome| {
        Recorded::Transitioned(Box::new(Transition { to, reason, exit: None, outcome, release: None, ..stood_by() }))
    };
    let failed = Reason::HookFailed;
    let lines = logged(|log| {
        log.recorded(&of(Role::Leader, TransitionReason::Ended(failed), Outcome::NeverLed), ms(0));
        reported(log, 1, &Event::Stopping { reason: failed, context: CONTEXT });
        log.recorded(&of(Role::Standby, TransitionReason::Ended(failed), Outcome::Complete), ms(2));
        log.recorded(&of(Role::Leader, TransitionReason::Acquired(AcquireReason::Released), Outcome::Complete), ms(3));
    });
    let messages: Vec<_> = lines.iter().filter(|line| line["level"] != "DEBUG").map(|line| &line["message"]).collect();
    assert_eq!(
        messages,
        [
            "held the Lease, but the term ended before the program led",
            "a hook failed: the program did not run",
            "leading: the program runs; the last holder, this replica, gave the Lease back"
        ]
    );
}

#[test]
fn a_standby_that_never_led_is_not_said_to_be_demoted() {
    let of = |to, outcome| {
        let reason = TransitionReason::Ended(Reason::HookFailed);
        Recorded::Transitioned(Box::new(Transition { to, reason, exit: None, outcome, ..stood_by() }))
    };
    let lines = logged(|log| {
        log.recorded(&of(Role::Leader, Outcome::NeverLed), ms(0));
        log.recorded(&of(Role::Standby, Outcome::Demoted), ms(1));
    });
    assert_eq!(lines[1]["message"], "a hook failed: the program did not lead, and keeps running; the Lease is given back");
}

#[test]
fn who_wakes_after_a_deadline_says_so_and_not_that_it_stops_the_program() {
    let stopping = Event::Stopping { reason: Reason::Expired, context: CONTEXT };
    let told_at = |at| {
        logged(|log| {
            let deadlines = Deadlines { soft: ms(10_000), end: ms(15_000), ..Deadlines::NEVER };
            let led = LeaderView { term: Term(1), confirmed: ms(0), deadlines: Some(deadlines), ending: false };
            log.take(&Fact::Elects(View { leading: Some(led), ..log.status.election }), ms(0));
            reported(log, at, &stopping);
        })
    };
    let cases = [
        (10_000, "stopping the program"),
        (12_000, "the stop of the program was due 2s ago, while its elector did not run"),
        (15_500, "the Lease expired 500ms ago, while this replica did not run"),
        (19_000, "the Lease expired 4s ago, while this replica did not run"),
    ];
    for (at, end) in cases {
        let line = &told_at(at)[0];
        let said = format!("no renewal was confirmed in time: {end}");
        assert_eq!((&line["level"], &line["message"]), (&"WARN".into(), &said.into()));
    }
}

#[test]
fn a_kill_before_its_time_is_blamed_on_the_connection_not_on_the_interface_alone() {
    let lines = logged(|log| reported(log, 0, &Event::Stopping { reason: Reason::Fuse, context: CONTEXT }));
    let said = "the kernel killed the program early: a connection over the loopback interface was reset, or does not answer";
    assert_eq!((&lines[0]["level"], &lines[0]["message"]), (&"WARN".into(), &format!("{said}: stopping the program").into()));
}

#[test]
fn a_new_elector_that_only_ends_a_term_says_so() {
    let resume = |stopping| Resume {
        term: Term(1),
        info: info(),
        confirmed: confirmed(),
        stopping,
        traceparent: String::new(),
        released: false,
        main: None,
        told: true,
    };
    let said = |stopping| {
        let lines = logged(|log| {
            log.log.resumed(&resume(stopping));
            reported(log, 0, &Event::Stopping { reason: Reason::Expired, context: CONTEXT });
        });
        lines.iter().map(|line| line["message"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(said(Some(Reason::Expired)), ["a new elector ends the term"]);
    assert_eq!(said(None)[0], "a new elector continues the term");
}

#[test]
fn a_campaign_that_another_replica_won_is_no_line_for_operators() {
    let lost = Campaign {
        reason: AcquireReason::Released,
        context: CONTEXT,
        origin: Origin::None,
        anchor: Anchor(Now { boot: ms(0), wall: 0 }),
        until: ms(1),
    };

    assert!(logged(|lines| lines.recorded(&Recorded::CampaignLost(Box::new(lost)), ms(1))).is_empty());
}

/// The lines about these transitions.
fn told(transitions: impl IntoIterator<Item = Transition>) -> Vec<Value> {
    logged(|lines| {
        for transition in transitions {
            lines.recorded(&Recorded::Transitioned(Box::new(transition)), ms(0));
        }
    })
}

#[test]
fn a_transition_is_one_line_with_role_reason_term_margin_durations_and_ids() {
    let lines = told([stood_by()]);
    let [line] = &lines[..] else { panic!("{lines:?}") };
    let said = ["level", "role", "reason", "lease"].map(|name| line[name].as_str().unwrap());
    assert_eq!(said, ["INFO", "standby", "step-down", "billing"]);
    assert_eq!((line["term"].as_i64(), line["lease_left"].as_f64()), (Some(7), Some(13.5)));
    let took = ["seconds", "stop", "release"].map(|name| line[name].as_f64().unwrap());
    assert_eq!(took, [0.03, 0.02, 0.005]);
    assert_eq!(line["exit"], "exit code 3");
    assert!(line.get("kill").is_none(), "{line}");
    let ids = ["trace_id", "span_id"].map(|name| line[name].as_str().unwrap());
    assert_eq!(ids, ["000000000000000000000000000000ab", "00000000000000cd"]);
}

#[test]
fn the_token_is_said_of_who_leads_only() {
    let lines = told([stood_by(), Transition { to: Role::Leader, ..stood_by() }]);
    let tokens: Vec<_> = lines.iter().map(|line| line.get("token").and_then(Value::as_str)).collect();
    assert_eq!(tokens, [None, Some("42")]);
}

#[test]
fn a_new_leader_says_what_became_of_the_one_before() {
    let leads = |reason| Transition { to: Role::Leader, reason, ..stood_by() };
    let words = |line: &Value| line["message"].as_str().unwrap().strip_prefix("leading: the program runs").unwrap().to_owned();
    let lines = told(AcquireReason::ALL.map(|reason| leads(TransitionReason::Acquired(reason))));
    let expected = [
        "; the last holder gave the Lease back",
        "; the last holder is dead",
        "; the last holder did not renew the Lease in time",
        "; the wait for an earlier holder is over",
        "; the run is due",
        "; no earlier holder was waited for",
    ];
    assert_eq!(lines.iter().map(words).collect::<Vec<_>>(), expected);
    assert_eq!(words(&told([leads(TransitionReason::Resumed)])[0]), "");
}

#[test]
fn a_holder_is_another_replica_unless_it_has_the_name_of_this_one() {
    let holds = |holder: &str| Event::NewLeader { slot: Slot(0), holder: holder.into() };
    let lines = logged(|lines| ["pod-1_cd", "pod-1", "pod-2_ab"].iter().for_each(|holder| reported(lines, 0, &holds(holder))));
    let own = "a replica of the same name holds the Lease: an earlier run of this one, or another";
    assert_eq!(lines.iter().map(|line| &line["message"]).collect::<Vec<_>>(), [own, own, "another replica holds the Lease"]);
}

#[test]
fn a_planned_handover_to_another_is_no_warning() {
    let lines = logged(|lines| reported(lines, 0, &Event::Odd { message: IS_PROMISED.into() }));
    assert_eq!(lines[0]["level"], "INFO");
}

#[test]
fn a_wait_says_for_how_long_nobody_leads() {
    let lines = logged(|lines| {
        lines.recorded(&nobodys(ms(15_150).since(ms(0))), ms(0));
        let backoff = LeaseBackoff { failures: 2, until: ms(30_300) };
        reported(lines, 0, &Event::BacksOff(backoff));
    });
    let messages: Vec<_> = lines.iter().map(|line| line["message"].as_str().unwrap()).collect();
    let nobody =
        "nobody holds the Lease, and no holder gave it back: nobody leads for 15.15s, in case an earlier holder has not stopped";
    assert_eq!(messages, [nobody, "the term failed: this replica leaves the Lease to the others for 30.3s"]);
}

#[test]
fn a_transition_says_what_became_of_the_workload_and_of_the_lease() {
    let with = |release, outcome| Transition { release: Some(release), outcome, ..stood_by() };
    let lines = told([
        stood_by(),
        with(ReleaseResult::Keep, Outcome::Demoted),
        with(ReleaseResult::NotOurs, Outcome::Complete),
        with(ReleaseResult::Unknown, Outcome::Complete),
        with(ReleaseResult::Rest, Outcome::Complete),
        Transition { reason: TransitionReason::Ended(Reason::Expired), release: None, ..stood_by() },
        Transition { to: Role::Leader, outcome: Outcome::NeverLed, ..stood_by() },
    ]);
    let said: Vec<_> = lines.iter().map(|line| ["level", "message"].map(|name| line[name].as_str().unwrap())).collect();
    let gone = "the program has stopped";
    let left = format!("{gone}; the Lease is left as it is, because somebody else has changed it");
    let unknown = format!("{gone}; the release is unconfirmed: the next holder may have to wait until the Lease expires");
    let expected = [
        ["INFO", "the program has stopped; the Lease is given back"],
        ["INFO", "no longer leading: the program was demoted, and keeps running; the Lease is kept until it expires"],
        ["WARN", &left],
        ["WARN", &unknown],
        ["INFO", "the program has stopped; the Lease is kept until the next run is due"],
        ["WARN", "the program has stopped; the Lease is left to expire"],
        ["WARN", "held the Lease, but the term ended before the program led"],
    ];
    assert_eq!(said, expected);
}

#[test]
fn a_restart_says_how_the_workload_ended() {
    for (exit, words) in [(Exit::Code(3), "ended with exit code 3"), (Exit::Signal(9), "was killed by SIGKILL")] {
        let restarting = ToElector::Restarting { term: Term(1), exit, at: ms(0) };
        let lines = logged(|lines| lines.heard(&restarting));
        let said = format!("the program {words}; it is started again");
        assert_eq!((lines[0]["level"].as_str(), lines[0]["message"].as_str()), (Some("WARN"), Some(said.as_str())));
    }
}

#[test]
fn the_name_of_a_holder_cannot_be_taken_for_a_field() {
    let holder = "x\" role=\"leader\"\n";
    let text = written(LogFormat::Text, |lines| reported(lines, 0, &Event::NewLeader { slot: Slot(0), holder: holder.into() }));
    assert!(text.contains(r#"holder="x\" role=\"leader\" ""#), "{text}");
    let lines = logged(|lines| reported(lines, 0, &Event::NewLeader { slot: Slot(0), holder: holder.into() }));
    assert_eq!(lines[0]["holder"].as_str(), Some("x\" role=\"leader\" "));
}

#[test]
fn a_failure_is_told_once_for_each_state_and_its_end_with_their_number() {
    let lines = logged(|lines| {
        for millis in 0..5 {
            reported(lines, millis, &failed("timed out"));
        }
        for status in [503, 500, 503] {
            let message = RequestError { status: Some(status), words: String::new() };
            reported(lines, 5, &failure(Operation::Update, message));
        }
        reported(lines, 6, &recovered(Operation::Update));
        reported(lines, 7, &renewed());
    });
    let messages: Vec<_> = lines.iter().map(|line| line["message"].as_str().unwrap()).collect();
    let expected = [
        "a request to the API server failed: timed out",
        "a request to the API server failed: the API server answered 503",
        "a request to the API server failed: the API server answered 500",
        "requests to the API server work again",
    ];
    assert_eq!(messages, expected);
    assert_eq!(lines[3]["failures"].as_u64(), Some(8));
}

#[test]
fn failures_that_alternate_are_told_once_each_and_so_many_at_a_time() {
    let lines = logged(|lines| {
        for second in 0..40 {
            reported(lines, second * 1000, &failed(["refused", "timed out"][second as usize % 2]));
        }
    });
    assert_eq!(lines.len(), 2, "{lines:?}");

    let lines = logged(|lines| ('a'..='z').chain(['z', 'a']).for_each(|name| reported(lines, 0, &failed(&name.to_string()))));
    let last = lines.last().unwrap()["message"].as_str().unwrap();
    assert!(lines.len() == 27 && last.ends_with("failed: a"), "{lines:?}");
}

#[test]
fn a_watch_that_is_refused_while_renewals_work_is_told_once() {
    let lines = logged(|lines| {
        for minute in 0..9 {
            reported(lines, minute * 60_000, &failure(Operation::Watch, "403 forbidden".into()));
            reported(lines, minute * 60_000 + 1, &renewed());
        }
    });
    assert_eq!(lines.len(), 1, "{lines:?}");
}

#[test]
fn operations_that_fail_in_turn_are_one_state_each_and_end_each_by_itself() {
    let lines = logged(|lines| {
        for second in 0..9 {
            for operation in [Operation::Get, Operation::Update] {
                reported(lines, second * 1000, &failure(operation, "timed out".into()));
            }
        }
        reported(lines, 9000, &recovered(Operation::Update));
        reported(lines, 9001, &failure(Operation::Get, "timed out".into()));
    });
    let told: Vec<_> = lines.iter().map(|line| line["operation"].as_str().unwrap()).collect();
    assert_eq!(told, ["get", "update", "update"], "{lines:?}");
}

#[test]
fn after_an_outage_a_standby_says_once_what_it_waits_for() {
    let lines = logged(|lines| {
        let waiting = View { free: Some(ms(15_500)), ..lines.status.election };
        reported(lines, 0, &failure(Operation::Get, "timed out".into()));
        reported(lines, 9000, &recovered(Operation::Get));
        lines.take(&Fact::Elects(waiting), ms(9000));
        lines.take(&Fact::Elects(View { renewed: Some(ms(1)), ..waiting }), ms(9001));
        reported(lines, 9500, &failure(Operation::Get, "timed out".into()));
        reported(lines, 15_600, &recovered(Operation::Get));
        lines.take(&Fact::Elects(waiting), ms(15_600));
    });
    let said: Vec<_> = lines.iter().filter_map(|line| line["message"].as_str()).filter(|said| said.contains("taken")).collect();
    assert_eq!(said, ["unless its holder renews it, the Lease may be taken in 6.5s"]);
}

#[test]
fn a_failure_that_says_the_time_or_an_id_is_one_state() {
    let expired = |second: u64| format!("certificate expired: verification time {second} (UNIX), ({} seconds ago)", second - 90);
    let refused = |second: u64| format!("unavailable, reference #{:x}", 0xcafe_f00d_u64 * second);
    for message in [&expired as &dyn Fn(u64) -> String, &refused] {
        let lines = logged(|lines| (100..110).for_each(|second| reported(lines, second * 1000, &failed(&message(second)))));
        assert_eq!(lines.len(), 1, "{lines:?}");
    }
}

#[test]
fn a_missing_permission_is_an_error_with_its_remedy_where_nothing_goes_without_it() {
    let forbidden = || RequestError { status: Some(403), words: "leases is forbidden".into() };
    let lines = logged(|lines| {
        for (millis, operation) in
            [(0, Operation::Update), (1, Operation::Watch), (4_999, Operation::Update), (5_000, Operation::Update)]
        {
            reported(lines, millis, &failure(operation, forbidden()));
        }
        lines.holds(ms(70_000));
        reported(lines, 65_000, &failure(Operation::Update, forbidden()));
        reported(lines, 125_000, &failure(Operation::Update, forbidden()));
    });
    let told: Vec<_> = lines.iter().map(|line| (line["level"].as_str().unwrap(), line["message"].as_str().unwrap())).collect();
    let failure = "a request to the API server failed: the API server answered 403: leases is forbidden";
    let remedy = "(`tenure check` tells which permissions are missing)";
    let lasts = format!("{failure}; 3 failures in 5s {remedy}");
    let renewal = "a renewal failed: the API server answered 403: leases is forbidden";
    let led = format!("{renewal}; 4 failures in 1m5s; the program is stopped in 5s if none succeeds {remedy}");
    let late = format!("{renewal}; 5 failures in 2m5s {remedy}");
    // A server that has just started refuses everybody.
    assert_eq!(told, [("WARN", failure), ("WARN", failure), ("ERROR", &*lasts), ("ERROR", &*led), ("ERROR", &*late)]);
}

#[test]
fn an_outage_is_told_again_each_minute_with_its_length() {
    let lines = logged(|lines| {
        for millis in [0, 59_999, 60_000, 119_999] {
            reported(lines, millis, &failed("timed out"));
        }
    });
    let said: Vec<_> = lines.iter().map(|line| line["message"].as_str().unwrap()).collect();
    let failure = "a request to the API server failed: timed out";
    assert_eq!(said, [failure, &format!("{failure}; 3 failures in 1m")]);
}

#[test]
fn the_last_holder_of_that_lease_is_named_and_the_next_run_of_a_task() {
    let lines = logged(|lines| {
        for (slot, holder) in [(1, "b_2"), (0, "a_1")] {
            reported(lines, 0, &Event::NewLeader { slot: Slot(slot), holder: holder.into() });
        }
        let reason = TransitionReason::Acquired(AcquireReason::Expired);
        lines.recorded(&Recorded::Transitioned(Box::new(Transition { to: Role::Leader, reason, ..stood_by() })), ms(1));
        let due = View { next_fire: Some(1_800_000_000_000_000), ..lines.status.election };
        lines.take(&Fact::Elects(due), ms(2));
        lines.take(&Fact::Elects(due), ms(3));
        let missed = View { next_fire: Some(0), ..due };
        lines.take(&Fact::Elects(missed), ms(4));
    });
    let said: Vec<_> = lines.iter().skip(2).map(|line| line["message"].as_str().unwrap()).collect();
    let led = "leading: the program runs; the last holder, b_2, did not renew the Lease in time";
    assert_eq!(said, [led, "the next run is due at 2027-01-15 08:00:00 UTC", "a run has been due since 1970-01-01 00:00:00 UTC"]);
}

#[test]
fn the_text_of_others_is_one_line_of_bounded_length() {
    let lines = logged(|lines| {
        let message = format!("first\nsecond\x1b[31m\u{202e}{}", "ü".repeat(5_000));
        reported(lines, 0, &Event::Odd { message });
    });
    let message = lines[0]["message"].as_str().unwrap();
    assert!(
        message.starts_with("first second\u{fffd}[31m\u{fffd}ü") && message.ends_with('…') && message.len() <= 1030,
        "{message}"
    );
}

#[test]
fn what_happens_all_the_time_is_not_shown_at_info() {
    let lines = logged(|lines| {
        reported(lines, 0, &renewed());
        lines.heard(&ToElector::Heartbeat);
    });
    assert_eq!(lines, Vec::<Value>::new());
}

#[test]
fn what_init_has_to_say_and_the_beginning_of_a_stop_are_told() {
    let lines = logged(|lines| {
        lines.heard(&ToElector::Warn("a line".into()));
        reported(lines, 0, &Event::Stopping { reason: Reason::StepDown, context: CONTEXT });
    });
    let said: Vec<_> = lines.iter().map(|line| ["level", "message"].map(|name| line[name].as_str().unwrap())).collect();
    assert_eq!(said, [["WARN", "a line"], ["INFO", "a step-down was asked for: stopping the program"]]);
    assert_eq!(lines[1]["reason"], "step-down");
}

/// Level and message of each line about the end of a term.
fn end_of(transition: Transition) -> (String, String) {
    let lines = told([transition]);
    let field = |name: &str| lines[0][name].as_str().unwrap().to_owned();
    (field("level"), field("message"))
}

#[test]
fn an_end_that_nobody_asked_for_is_a_warning_and_says_what_happened() {
    let ended = |reason, exit| Transition { reason: TransitionReason::Ended(reason), exit, ..stood_by() };
    let killed = Transition {
        phases: vec![
            Phase { kind: PhaseKind::WorkloadStop, from: ms(0), until: ms(20_005) },
            Phase { kind: PhaseKind::WorkloadKill, from: ms(20_000), until: ms(20_006) },
        ],
        ..ended(Reason::Signal, Some(Exit::Signal(9)))
    };
    let killed_at_once = Transition {
        phases: vec![
            Phase { kind: PhaseKind::WorkloadStop, from: ms(0), until: ms(1) },
            Phase { kind: PhaseKind::WorkloadKill, from: ms(0), until: ms(1) },
        ],
        ..killed.clone()
    };
    let hook = PhaseKind::Hook { hook: HookKind::BeforeFollow, exit: Exit::Code(3) };
    let hooked = |millis| Transition {
        phases: [&killed.phases[..], &[Phase { kind: hook.clone(), from: ms(0), until: ms(millis) }]].concat(),
        ..killed.clone()
    };
    let cases = [
        (hooked(20_000), "WARN", "hook beforeFollow failed (exit code 3): the program was killed"),
        (hooked(500), "WARN", "the program did not stop within 20s: killed"),
        (ended(Reason::Exited, Some(Exit::Code(0))), "INFO", "the program ended with exit code 0"),
        (ended(Reason::Exited, Some(Exit::Code(3))), "WARN", "the program ended with exit code 3"),
        (ended(Reason::Exited, Some(Exit::Signal(11))), "WARN", "the program was killed by SIGSEGV"),
        (ended(Reason::Signal, Some(Exit::Signal(15))), "INFO", "the program has stopped"),
        (ended(Reason::NotLive, Some(Exit::Signal(15))), "WARN", "the program has stopped"),
        (ended(Reason::SpawnFailed, None), "WARN", "the program could not be started: the program did not run"),
        (killed_at_once, "WARN", "the program was killed without a grace"),
        (killed, "WARN", "the program did not stop within 20s: killed"),
    ];
    for (transition, level, end) in cases {
        assert_eq!(end_of(transition), (level.to_owned(), format!("{end}; the Lease is given back")));
    }
}

#[test]
fn a_term_that_expires_says_for_how_long_no_renewal_was_confirmed() {
    let lines = logged(|lines| {
        reported(lines, 1_000, &renewed());
        reported(lines, 10_850, &Event::Stopping { reason: Reason::Expired, context: CONTEXT });
    });
    let said = ["level", "message"].map(|name| lines[0][name].as_str().unwrap());
    assert_eq!(said, ["WARN", "no renewal was confirmed for 9.85s: stopping the program"]);
}

#[test]
fn the_first_renewal_that_fails_says_when_the_program_will_be_stopped() {
    let lines = logged(|lines| {
        lines.holds(ms(9_850));
        reported(lines, 3_050, &failed("timed out"));
        reported(lines, 4_000, &failed("timed out"));
    });
    let messages: Vec<_> = lines.iter().map(|line| line["message"].as_str().unwrap()).collect();
    assert_eq!(messages, ["a renewal failed: timed out; the program is stopped in 6.8s if none succeeds"]);
}

#[test]
fn health_is_told_when_it_changes() {
    let health =
        |unready: Option<&str>, status: &str| ToElector::Health { unready: unready.map(Into::into), status: status.into() };
    let lines = logged(|lines| {
        for said in [health(Some("exit code 1"), ""), health(Some("exit code 1"), "loading"), health(None, "loading")] {
            lines.heard(&said);
        }
    });
    let messages: Vec<_> = lines.iter().map(|line| line["message"].as_str().unwrap()).collect();
    assert_eq!(messages, ["the program is not ready: exit code 1", "the program says: loading", "the program is ready"]);
    let lines = logged(|lines| [health(None, "loaded"), health(None, "")].iter().for_each(|said| lines.heard(said)));
    assert_eq!(lines.len(), 2, "a program that is started again has said nothing yet: {lines:?}");
    for status in ["", "loaded"] {
        let lines = logged(|lines| lines.heard(&health(None, status)));
        assert_eq!(lines[0]["message"].as_str(), Some("the program is ready"), "a standby that was not ready at the start");
    }
}

#[test]
fn a_program_that_runs_on_leaders_only_is_neither_ready_nor_unready_on_standbys() {
    let health = |unready: Option<&str>| ToElector::Health { unready: unready.map(Into::into), status: String::new() };
    let config = Log { level: LogLevel::Info, format: LogFormat::Json };
    let started = ToElector::Started { term: Term(1), pid: 7, at: ms(0) };
    let stop = Stop { began: None, killed: None, exited: None, exit: None, fused: None, proved: ms(0) };
    let stopped = ToElector::Stopped { term: Term(1), request: 1, stop, then: Then::Follow };
    let said = captured(&config, || {
        let lines = &mut Lines::of(Preset::Run, Runs::Leading);
        lines.take(&Fact::Telling(ToInit::Lead { term: Term(1), info: info(), confirmed: confirmed() }), ms(0));
        for message in [health(None), health(Some("it does not run")), started, health(None), stopped, health(None)] {
            lines.heard(&message);
        }
    });
    assert_eq!(said.matches("ready").count(), 1, "{said}");
}

#[test]
fn a_lock_has_one_line_for_each_of_its_wait_its_hold_and_its_end() {
    let config = Log { level: LogLevel::Info, format: LogFormat::Json };
    let lines = captured(&config, || {
        let lines = &mut Lines::of(Preset::Lock { wait_limit: None }, Runs::Leading);
        reported(lines, 0, &Event::Ready);
        lines.recorded(&nobodys(ms(15_150).since(ms(0))), ms(0));
        reported(lines, 0, &Event::NewLeader { slot: Slot(0), holder: "pod-2".into() });
        let has = Transition { to: Role::Leader, reason: TransitionReason::Resumed, ..stood_by() };
        let ended = Transition { reason: TransitionReason::Ended(Reason::Exited), ..stood_by() };
        for transition in [has, ended] {
            lines.recorded(&Recorded::Transitioned(Box::new(transition)), ms(0));
        }
    });
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let messages: Vec<_> = lines.iter().map(|line| line["message"].as_str().unwrap()).collect();
    let expected = [
        "nobody holds the lock, and no holder gave it back: nobody gets it for 15.15s, in case an earlier holder has not stopped",
        "has the lock: the command runs",
        "the command ended with exit code 3; the lock is given back",
    ];
    assert_eq!(messages, expected);
}

#[test]
fn a_lock_that_does_not_wait_for_a_holder_does_not_say_that_it_waits() {
    let said = |limit| {
        let bound = WaitLimit { limit: Duration::from_secs(limit), code: 75 };
        let config = Log { level: LogLevel::Info, format: LogFormat::Text };
        captured(&config, || {
            let lines = &mut Lines::of(Preset::Lock { wait_limit: Some(bound) }, Runs::Leading);
            reported(lines, 0, &Event::NewLeader { slot: Slot(0), holder: "pod-2".into() });
        })
    };

    let (at_once, bounded) = (said(0), said(1));

    assert!(at_once.contains("another has the lock") && !at_once.contains("waiting"), "{at_once}");
    assert!(bounded.contains("waiting: another has the lock"), "{bounded}");
}
