//! Spans, as the collector gets them. No clock, no IO.
//!
//! Owns the shape of a trace: a `transition` with its phases as children. The ids of a transition are the election's, so that the
//! span, TRACEPARENT and the Lease's annotation agree; those of its children are random.

use std::time::{Duration, SystemTime};

use opentelemetry::{
    InstrumentationScope, KeyValue, SpanId, TraceFlags, TraceId,
    trace::{Link, SpanContext, SpanKind, Status, TraceState},
};
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanLinks};

use super::{
    names,
    transition::{Anchor, Campaign, Earlier, Origin, Outcome, Phase, PhaseKind, Recorded, TermPhase, Transition},
};
use crate::{
    election::{ReleaseResult, trace::TraceContext},
    link::Exit,
    time::Instant,
    words::bounded,
};

/// Makes spans of what is recorded.
#[derive(Debug)]
pub(super) struct Spans {
    pub(super) lease: [KeyValue; 2],
    scope: InstrumentationScope,
    random: fastrand::Rng,
}

impl Spans {
    /// Spans about the Lease of this namespace and name; `seed` feeds the ids of children.
    pub(super) fn new(namespace: String, name: String, seed: u64) -> Self {
        let lease = [KeyValue::new(names::LEASE, name), KeyValue::new(names::LEASE_NAMESPACE, namespace)];
        let scope = InstrumentationScope::builder("tenure").with_version(env!("CARGO_PKG_VERSION")).build();
        Self { lease, scope, random: fastrand::Rng::with_seed(seed) }
    }

    /// The spans of a part of a term, parents first.
    pub(super) fn of(&mut self, recorded: &Recorded) -> Vec<SpanData> {
        match recorded {
            Recorded::Transitioned(transition) => self.transition(transition),
            Recorded::CampaignLost(campaign) => vec![self.lost(campaign)],
            Recorded::WithinTerm(within) => {
                let TermPhase { context, term, anchor, phase } = &**within;
                let mut span = self.child(*context, *anchor, phase);
                span.attributes.push(KeyValue::new(names::TERM, i64::from(*term)));
                span.attributes.extend(self.lease.clone());
                vec![span]
            }
            Recorded::WaitedInVain { context, anchor, wait } => {
                let mut span = self.child(*context, *anchor, wait);
                span.parent_span_id = SpanId::INVALID;
                span.attributes.push(KeyValue::new(names::OUTCOME, "lost"));
                span.attributes.extend(self.lease.clone());
                vec![span]
            }
            Recorded::HolderChanged { .. } => Vec::new(),
        }
    }

    fn transition(&mut self, transition: &Transition) -> Vec<SpanData> {
        let Transition { context, origin, anchor, .. } = *transition;
        let mut whole = self.after("transition", context, origin, anchor, (transition.from, transition.until));
        whole.attributes =
            vec![KeyValue::new(names::TO, transition.to.as_str()), KeyValue::new(names::REASON, transition.reason.as_str())];
        whole.attributes.extend(self.lease.clone());
        whole.attributes.push(KeyValue::new(names::SLOT, i64::from(transition.slot.0)));
        whole.attributes.push(KeyValue::new(names::TERM, i64::from(transition.term)));
        whole.attributes.push(KeyValue::new(names::FENCING_TOKEN, transition.token.clone()));
        whole.attributes.extend(transition.margin.map(|margin| KeyValue::new(names::LEASE_LEFT, margin.0)));
        whole.attributes.extend(transition.exit.map(exit_attribute));
        whole.attributes.extend(transition.release.map(|how| KeyValue::new(names::RELEASE, how.as_str())));
        whole.status = match transition.outcome {
            Outcome::NeverLed => Status::error("the term ended before the workload led"),
            Outcome::Complete | Outcome::Demoted => Status::Unset,
        };
        let mut spans = vec![whole];
        spans.extend(transition.phases.iter().map(|phase| self.child(context, anchor, phase)));
        spans
    }

    fn lost(&self, campaign: &Campaign) -> SpanData {
        let Campaign { reason, context, origin, anchor, until } = *campaign;
        let mut span = self.after("campaign", context, origin, anchor, (anchor.0.boot, until));
        span.attributes = vec![KeyValue::new(names::REASON, reason.as_str()), KeyValue::new(names::OUTCOME, "lost")];
        span.attributes.extend(self.lease.clone());
        span
    }

    fn child(&mut self, of: TraceContext, anchor: Anchor, phase: &Phase) -> SpanData {
        let Phase { kind, from, until } = phase;
        let context = TraceContext { span_id: self.random.u64(1..), ..of };
        let mut span = self.span(kind.as_str(), context, anchor, (*from, *until));
        span.parent_span_id = SpanId::from(of.span_id);
        match kind {
            PhaseKind::Campaign
            | PhaseKind::WorkloadReady
            | PhaseKind::WorkloadStop
            | PhaseKind::WorkloadKill
            | PhaseKind::WorkloadProof => {}
            PhaseKind::Wait { holder } => {
                span.attributes.extend(holder.clone().map(|holder| KeyValue::new(names::HOLDER, bounded(&holder).into_owned())));
            }
            PhaseKind::Acquire => span.span_kind = SpanKind::Client,
            PhaseKind::WorkloadStart { pid, after } => {
                span.attributes.push(KeyValue::new(names::PID, i64::from(*pid)));
                span.attributes.extend(after.map(exit_attribute));
            }
            PhaseKind::Hook { hook, exit } => {
                span.attributes = vec![KeyValue::new(names::HOOK, hook.as_str()), exit_attribute(*exit)];
                if *exit != Exit::Code(0) {
                    span.status = Status::error("the hook failed");
                }
            }
            PhaseKind::Release(how) => {
                span.span_kind = SpanKind::Client;
                span.attributes.push(KeyValue::new(names::RELEASE, how.as_str()));
                if *how == ReleaseResult::Unknown {
                    span.status = Status::error("the release is unconfirmed");
                }
            }
            PhaseKind::Renew { operation, margin, error } => {
                span.span_kind = SpanKind::Client;
                span.attributes.push(KeyValue::new(names::OPERATION, operation.as_str()));
                span.attributes.push(KeyValue::new(names::LEASE_LEFT, margin.0));
                span.status = Status::error(error.to_string());
            }
        }
        span
    }

    fn after(
        &self,
        name: &'static str,
        context: TraceContext,
        origin: Origin,
        anchor: Anchor,
        times: (Instant, Instant),
    ) -> SpanData {
        let mut span = self.span(name, context, anchor, times);
        match origin {
            Origin::None => {}
            Origin::Handover(Earlier { context, remote }) => {
                (span.parent_span_id, span.parent_span_is_remote) = (SpanId::from(context.span_id), remote);
            }
            Origin::After(Earlier { context, remote }) => {
                span.links.links.push(Link::new(span_context(context, remote), Vec::new(), 0));
            }
        }
        span
    }

    pub(super) fn span(
        &self,
        name: &'static str,
        context: TraceContext,
        anchor: Anchor,
        (from, until): (Instant, Instant),
    ) -> SpanData {
        SpanData {
            span_context: span_context(context, false),
            parent_span_id: SpanId::INVALID,
            parent_span_is_remote: false,
            span_kind: SpanKind::Internal,
            name: name.into(),
            start_time: time(anchor.wall(from)),
            end_time: time(anchor.wall(until)),
            attributes: Vec::new(),
            dropped_attributes_count: 0,
            events: SpanEvents::default(),
            links: SpanLinks::default(),
            status: Status::Unset,
            instrumentation_scope: self.scope.clone(),
        }
    }
}

/// How a process ended.
fn exit_attribute(exit: Exit) -> KeyValue {
    match exit {
        Exit::Code(code) => KeyValue::new(names::EXIT_CODE, i64::from(code)),
        Exit::Signal(signal) => KeyValue::new(names::EXIT_SIGNAL, i64::from(signal)),
    }
}

fn span_context(context: TraceContext, remote: bool) -> SpanContext {
    let (trace, span) = (TraceId::from(context.trace_id), SpanId::from(context.span_id));
    SpanContext::new(trace, span, TraceFlags::SAMPLED, remote, TraceState::NONE)
}

/// A time before 1970 becomes 1970.
fn time(nanos: i128) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_nanos(u64::try_from(nanos.max(0)).unwrap_or(u64::MAX))
}

#[cfg(test)]
pub(super) mod tests;
