use super::*;
use crate::{
    config::HookKind,
    election::AcquireReason,
    link::Reason,
    request::{Operation, RequestError},
    role::Role,
    slot::Slot,
    telemetry::transition::{Margin, TransitionReason},
    time::Now,
};

const CONTEXT: TraceContext = TraceContext { trace_id: 0xa, span_id: 0xb };
const EARLIER: TraceContext = TraceContext { trace_id: 0xa, span_id: 0xe };
const WALL: i64 = 1_700_000_000_000_000;

fn ms(millis: u64) -> Instant {
    Instant::BOOT + Duration::from_millis(millis)
}

fn anchor() -> Anchor {
    Anchor(Now { boot: ms(0), wall: WALL })
}

fn spans(recorded: Recorded) -> Vec<SpanData> {
    Spans::new("money".into(), "billing".into(), 1).of(&recorded)
}

fn phase(kind: PhaseKind, from: u64, until: u64) -> Phase {
    Phase { kind, from: ms(from), until: ms(until) }
}

pub(in crate::telemetry) fn stood_by(origin: Origin) -> Recorded {
    Recorded::Transitioned(Box::new(Transition {
        to: Role::Standby,
        reason: TransitionReason::Ended(Reason::Signal),
        slot: Slot(1),
        term: 7,
        token: "42".into(),
        context: CONTEXT,
        origin,
        from: ms(0),
        until: ms(30),
        anchor: anchor(),
        margin: Some(Margin(13.5)),
        phases: vec![phase(PhaseKind::WorkloadStop, 0, 20), phase(PhaseKind::Release(ReleaseResult::Unknown), 25, 30)],
        exit: Some(Exit::Code(3)),
        fused: None,
        release: Some(ReleaseResult::Unknown),
        outcome: Outcome::Complete,
    }))
}

/// Some.
pub(in crate::telemetry) fn any() -> Vec<SpanData> {
    spans(stood_by(Origin::None))
}

fn said(span: &SpanData) -> Vec<(String, String)> {
    span.attributes.iter().map(|fact| (fact.key.to_string(), fact.value.to_string())).collect()
}

fn wall(millis: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_micros(WALL.unsigned_abs() + millis * 1000)
}

#[test]
fn a_transition_has_the_ids_of_the_election_and_its_phases_as_children() {
    let spans = spans(stood_by(Origin::None));
    let names: Vec<_> = spans.iter().map(|span| (&*span.name, span.start_time, span.end_time)).collect();
    let expected = [("transition", wall(0), wall(30)), ("workload.stop", wall(0), wall(20)), ("release", wall(25), wall(30))];
    assert_eq!(names, expected);
    assert_eq!((spans[0].span_context.clone(), spans[0].parent_span_id), (span_context(CONTEXT, false), SpanId::INVALID));
    for child in &spans[1..] {
        assert_eq!(child.span_context.trace_id(), TraceId::from(CONTEXT.trace_id));
        assert_eq!((child.parent_span_id, child.parent_span_is_remote), (SpanId::from(CONTEXT.span_id), false));
    }
}

#[test]
fn the_reference_lists_every_attribute() {
    assert!(!include_str!("../spans.rs").contains("KeyValue::new(\""), "names.rs names it");
}

#[test]
fn a_transition_says_why_and_with_how_much_margin() {
    let spans = spans(stood_by(Origin::None));
    let expected = [
        ("tenure.to", "standby"),
        ("tenure.reason", "signal"),
        ("tenure.lease", "billing"),
        ("tenure.lease_namespace", "money"),
        ("tenure.slot", "1"),
        ("tenure.term", "7"),
        ("tenure.fencing_token", "42"),
        ("tenure.lease_left", "13.5"),
        ("process.exit.code", "3"),
        ("tenure.release", "unknown"),
    ];
    assert_eq!(said(&spans[0]), expected.map(|(key, value)| (key.to_owned(), value.to_owned())));
    assert_eq!([&spans[0].status, &spans[2].status], [&Status::Unset, &Status::error("the release is unconfirmed")]);
}

#[test]
fn what_was_handed_over_is_the_parent_and_what_was_taken_a_link() {
    for remote in [true, false] {
        let earlier = Earlier { context: EARLIER, remote };
        let handover = &spans(stood_by(Origin::Handover(earlier)))[0];
        assert_eq!((handover.parent_span_id, handover.parent_span_is_remote), (SpanId::from(EARLIER.span_id), remote));
        assert!(handover.links.links.is_empty());

        let takeover = &spans(stood_by(Origin::After(earlier)))[0];
        assert_eq!(takeover.parent_span_id, SpanId::INVALID);
        let links: Vec<_> = takeover.links.links.iter().map(|link| link.span_context.clone()).collect();
        assert_eq!(links, [span_context(EARLIER, remote)]);
    }
}

#[test]
fn a_lost_campaign_is_a_campaign_and_no_transition() {
    let (reason, origin) = (AcquireReason::Expired, Origin::None);
    let lost = Campaign { reason, context: CONTEXT, origin, anchor: anchor(), until: ms(3) };
    let [span] = &spans(Recorded::CampaignLost(Box::new(lost)))[..] else { panic!("one span") };
    assert_eq!((&*span.name, &said(span)[1]), ("campaign", &("tenure.outcome".to_owned(), "lost".to_owned())));
    assert_eq!(span.end_time, wall(3));
}

#[test]
fn what_fails_within_a_term_is_a_span_of_it_with_its_error() {
    let renewal = PhaseKind::Renew {
        operation: Operation::Update,
        margin: Margin(9.5),
        error: RequestError { status: Some(503), words: "busy".into() },
    };
    let hook = PhaseKind::Hook { hook: HookKind::AfterLead, exit: Exit::Signal(9) };
    for (kind, name, error, fact) in [
        (renewal, "renew", "the API server answered 503: busy", ("tenure.lease_left", "9.5")),
        (hook, "hook", "the hook failed", ("tenure.exit_signal", "9")),
    ] {
        let within = TermPhase { context: CONTEXT, term: 7, anchor: anchor(), phase: phase(kind, 1, 2) };
        let [span] = &spans(Recorded::WithinTerm(Box::new(within)))[..] else { panic!("one span") };
        assert_eq!((&*span.name, span.parent_span_id), (name, SpanId::from(CONTEXT.span_id)));
        assert_eq!(span.status, Status::error(error));
        assert!(said(span).contains(&(fact.0.to_owned(), fact.1.to_owned())), "{span:?}");
    }
}

#[test]
fn a_wait_in_vain_is_a_trace_of_its_own_with_whom_it_was_for() {
    let wait = phase(PhaseKind::Wait { holder: Some("other\n1".into()) }, 1, 2);
    let [span] = &spans(Recorded::WaitedInVain { context: CONTEXT, anchor: anchor(), wait })[..] else { panic!("one span") };
    assert_eq!((&*span.name, span.parent_span_id, span.end_time), ("wait", SpanId::INVALID, wall(2)));
    for fact in [("tenure.holder", "other 1"), ("tenure.outcome", "lost"), ("tenure.lease", "billing")] {
        assert!(said(span).contains(&(fact.0.to_owned(), fact.1.to_owned())), "{span:?}");
    }
}
