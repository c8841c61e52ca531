//! How transitions are told, in virtual time.

use super::*;
use crate::{
    config::HookKind,
    election::{Given, Vacancy},
    law::{Deadlines, Timing},
    link::{Term as LinkTerm, Then},
};

mod demoted;
mod promoted;
mod resumed;
mod within;

const CONTEXT: TraceContext = TraceContext { trace_id: 0xa, span_id: 0xb };
const STOP_CONTEXT: TraceContext = TraceContext { trace_id: 0xc, span_id: 0xd };
const OTHER: TraceContext = TraceContext { trace_id: 0xa, span_id: 0xe };
const TERM: LinkTerm = LinkTerm(1);
const D: Duration = Duration::from_secs(15);

fn ms(millis: u64) -> Instant {
    Instant::from_nanos(1_000_000_000_000) + Duration::from_millis(millis)
}

fn at(millis: u64) -> Now {
    Now { boot: ms(millis), wall: 1_700_000_000_000_000 + i64::try_from(millis).unwrap() * 1000 }
}

fn timing() -> Timing {
    Timing {
        duration: D,
        renew_period: Duration::from_secs(3),
        attempt_timeout: Duration::from_secs(2),
        drift: 0,
        loss_grace: Duration::from_secs(4),
        kill_margin: Duration::from_secs(1),
    }
}

fn confirmed(deadlines: Deadlines) -> Confirmed {
    Confirmed { uid: "u".into(), resource_version: "2".into(), spec: "{}".into(), deadlines }
}

fn facts() -> Facts {
    Facts { token: "42".into(), uid: "u".into(), transitions: 7, acquired_at: String::new(), traceparent: CONTEXT.to_string() }
}

fn lead(sent: Instant, not_before: Option<Instant>) -> ToInit {
    ToInit::Lead { term: TERM, facts: facts(), timing: timing(), confirmed: confirmed(timing().deadlines(sent)), not_before }
}

fn campaigning(why: Vacancy, other: Option<TraceContext>) -> Event {
    Event::Campaigning { why, context: CONTEXT, other }
}

fn acquired() -> Event {
    Event::Acquired { token: "42".into(), transitions: 7, creation_wait: None }
}

fn started(millis: u64) -> ToElector {
    ToElector::Started { term: TERM, pid: 12, at: ms(millis) }
}

fn stopping(reason: Reason) -> Event {
    Event::Stopping { reason, context: STOP_CONTEXT }
}

fn feed(observer: &mut Observer, facts: &[(u64, Fact<'_>)]) -> Vec<Outcome> {
    facts.iter().flat_map(|(millis, fact)| observer.record(*fact, at(*millis))).collect()
}

fn reported(observer: &mut Observer, millis: u64, event: Event) -> Vec<Outcome> {
    observer.record(Fact::Reported(&event), at(millis))
}

/// A leader since 20 ms, by a write that was sent at 0.
fn leading() -> Observer {
    let mut observer = Observer::default();
    let over = lead_from(&mut observer, campaigning(Vacancy::Released, None));
    assert_eq!(over.len(), 1);
    observer
}

fn lead_from(observer: &mut Observer, campaign: Event) -> Vec<Outcome> {
    feed(
        observer,
        &[
            (0, Fact::Reported(&campaign)),
            (5, Fact::Reported(&acquired())),
            (6, Fact::Sent(&lead(ms(0), None))),
            (25, Fact::Received(&started(20))),
        ],
    )
}

fn only(over: Vec<Outcome>) -> Transition {
    let [outcome] = <[Outcome; 1]>::try_from(over).unwrap();
    transition(outcome)
}

fn transition(outcome: Outcome) -> Transition {
    match outcome {
        Outcome::Transition(transition) => *transition,
        other @ (Outcome::Lost(_) | Outcome::During { .. }) => panic!("{other:?}"),
    }
}

fn spans(transition: &Transition) -> Vec<(&'static str, Instant, Instant)> {
    transition.phases.iter().map(|phase| (phase.name.as_str(), phase.from, phase.until)).collect()
}
