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

use super::transition::{Anchor, Campaign, Earlier, Name, Origin, Outcome, Phase, Transition, exit_fact};
use crate::election::trace::TraceContext;

/// Makes spans of outcomes.
#[derive(Debug)]
pub(crate) struct Spans {
    /// Its namespace and name.
    lease: (String, String),
    scope: InstrumentationScope,
    random: fastrand::Rng,
}

/// What makes up a span besides its name and times.
struct Shape {
    context: TraceContext,
    parent: Option<Parent>,
    link: Option<Earlier>,
    anchor: Anchor,
}

struct Parent {
    span_id: u64,
    remote: bool,
}

impl Spans {
    /// Spans about `lease`, given by its namespace and name; `seed` feeds the ids of children.
    pub(crate) fn new(lease: (String, String), seed: u64) -> Self {
        let scope = InstrumentationScope::builder("tenure").with_version(env!("CARGO_PKG_VERSION")).build();
        Self { lease, scope, random: fastrand::Rng::with_seed(seed) }
    }

    /// The spans of `outcome`, parents first.
    pub(crate) fn of(&mut self, outcome: Outcome) -> Vec<SpanData> {
        match outcome {
            Outcome::Transition(transition) => self.transition(*transition),
            Outcome::Lost(campaign) => vec![self.lost(&campaign)],
            Outcome::During { parent, anchor, term, phase } => {
                let mut span = self.child(parent, anchor, phase);
                span.attributes.push(KeyValue::new("tenure.term", i64::from(term)));
                span.attributes.extend(self.lease_facts());
                vec![span]
            }
        }
    }

    fn transition(&mut self, transition: Transition) -> Vec<SpanData> {
        let Transition {
            to,
            reason,
            term,
            token,
            context,
            origin,
            from,
            until,
            anchor,
            margin,
            phases,
            exit,
            facts,
            error,
            demoted: _,
        } = transition;
        let mut whole = Phase::new(Name::Transition, from, until);
        whole.facts = vec![KeyValue::new("tenure.to", to.as_str()), KeyValue::new("tenure.reason", reason.as_str())];
        whole.facts.extend(self.lease_facts());
        whole.facts.extend(term.map(|term| KeyValue::new("tenure.term", i64::from(term))));
        whole.facts.extend(token.map(|token| KeyValue::new("tenure.fencing_token", token)));
        whole.facts.extend(margin.map(|margin| KeyValue::new("tenure.margin_left", margin.0)));
        whole.facts.extend(exit.map(exit_fact));
        whole.facts.extend(facts);
        whole.error = error.map(str::to_owned);
        let mut spans = vec![self.span(whole, Shape::after(context, origin, anchor))];
        spans.extend(phases.into_iter().map(|phase| self.child(context, anchor, phase)));
        spans
    }

    fn lost(&self, campaign: &Campaign) -> SpanData {
        let mut phase = Phase::new(Name::Campaign, campaign.from, campaign.until)
            .with(KeyValue::new("tenure.reason", campaign.reason.as_str()))
            .with(KeyValue::new("tenure.outcome", "lost"));
        phase.facts.extend(self.lease_facts());
        self.span(phase, Shape::after(campaign.context, campaign.origin, campaign.anchor))
    }

    fn child(&mut self, of: TraceContext, anchor: Anchor, phase: Phase) -> SpanData {
        let context = TraceContext { span_id: self.random.u64(1..), ..of };
        let parent = Some(Parent { span_id: of.span_id, remote: false });
        self.span(phase, Shape { context, parent, link: None, anchor })
    }

    fn span(&self, phase: Phase, shape: Shape) -> SpanData {
        let Shape { context, parent, link, anchor } = shape;
        let kind = match phase.name {
            Name::Acquire | Name::Release | Name::Renew => SpanKind::Client,
            Name::Transition
            | Name::Campaign
            | Name::WorkloadStart
            | Name::Hook
            | Name::WorkloadStop
            | Name::WorkloadKill
            | Name::WorkloadProof => SpanKind::Internal,
        };
        let mut links = SpanLinks::default();
        links.links.extend(link.map(|link| Link::new(span_context(link.context, link.remote), Vec::new(), 0)));
        SpanData {
            span_context: span_context(context, false),
            parent_span_id: parent.as_ref().map_or(SpanId::INVALID, |parent| SpanId::from(parent.span_id)),
            parent_span_is_remote: parent.is_some_and(|parent| parent.remote),
            span_kind: kind,
            name: phase.name.as_str().into(),
            start_time: time(anchor.wall(phase.from)),
            end_time: time(anchor.wall(phase.until)),
            attributes: phase.facts,
            dropped_attributes_count: 0,
            events: SpanEvents::default(),
            links,
            status: phase.error.map_or(Status::Unset, Status::error),
            instrumentation_scope: self.scope.clone(),
        }
    }

    fn lease_facts(&self) -> [KeyValue; 2] {
        let (namespace, name) = self.lease.clone();
        [KeyValue::new("tenure.lease", name), KeyValue::new("tenure.lease_namespace", namespace)]
    }
}

impl Shape {
    fn after(context: TraceContext, origin: Origin, anchor: Anchor) -> Self {
        match origin {
            Origin::None => Self { context, parent: None, link: None, anchor },
            Origin::Handover(Earlier { context: TraceContext { span_id, .. }, remote }) => {
                Self { context, parent: Some(Parent { span_id, remote }), link: None, anchor }
            }
            Origin::After(earlier) => Self { context, parent: None, link: Some(earlier), anchor },
        }
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
