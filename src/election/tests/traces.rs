//! The span of a transition: a proper release hands its trace on, every other takeover begins one of its own.

use serde_json::{Value, json};

use super::bench::{Bench, Register, held, initial_state, mark, plus};
use crate::election::{Event, trace::TraceContext, writes::TRACEPARENT};

const OTHER: TraceContext = TraceContext { trace_id: 0xa1, span_id: 0xb2 };

/// Returns the span of the first campaign for a Lease that bears [`OTHER`], and the earlier span that it was reported with.
fn campaign(spec: Value) -> (TraceContext, Option<TraceContext>) {
    let mut register = Register::holding(spec);
    register.edit(|object| object["metadata"]["annotations"] = json!({(TRACEPARENT): OTHER.to_string()}));
    let mut bench = Bench::start(initial_state(), register);
    bench.run(plus(15));
    let of = |event: &Event| match event {
        Event::Campaigning { context, other, .. } => Some((*context, *other)),
        _ => None,
    };
    bench.events.iter().find_map(of).expect("a campaign")
}

#[test]
fn a_release_and_the_takeover_after_it_are_one_trace() {
    let (context, other) = campaign(mark());

    assert_eq!((context.trace_id, other), (OTHER.trace_id, Some(OTHER)));
    assert_ne!(context.span_id, OTHER.span_id);
}

#[test]
fn a_takeover_from_a_holder_that_released_nothing_is_linked_to_it_and_a_trace_of_its_own() {
    let (context, other) = campaign(held("x", 15));

    assert_eq!(other, Some(OTHER));
    assert_ne!(context.trace_id, OTHER.trace_id);
}

#[test]
fn a_trace_of_its_own_has_random_ids_of_full_length() {
    let (context, _) = campaign(held("x", 15));

    let halves = [(context.trace_id >> 64) as u64, context.trace_id as u64, context.span_id];
    assert!(halves.iter().all(|half| *half >> 32 != 0), "{context}");
}
