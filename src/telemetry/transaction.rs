//! Exports what a command of transactions did: a span `transaction` with its parts, and metrics.
//!
//! Owns the shape of these spans. They are sent when the command ends.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use opentelemetry::{
    KeyValue, SpanId,
    metrics::MeterProvider as _,
    trace::{SpanKind, Status},
};
use opentelemetry_sdk::{metrics::SdkMeterProvider, trace::SpanData};

use super::{
    export::{Export, OtlpConfig, Signal},
    metrics, names,
    spans::Spans,
    transition::Anchor,
};
use crate::{
    clock,
    election::trace::TraceContext,
    environment::TRACEPARENT,
    time::Instant,
    transaction::{Event, Outcome, Place, State},
    words::bounded,
};

/// The export of one command.
#[derive(Debug)]
pub(crate) struct Observer {
    /// None: no spans are exported.
    export: Option<Export>,
    /// None: no metrics are exported.
    metrics: Option<SdkMeterProvider>,
    ended: Arc<AtomicBool>,
    spans: Spans,
    /// The span around the command.
    parent: Option<TraceContext>,
    begun: Anchor,
}

impl Observer {
    /// Starts the export by the OTEL_* variables. The elector has warned of those that cannot work.
    pub(crate) fn start(identity: &str, lease: &Place, variable: impl Fn(&str) -> Option<String>) -> Self {
        let config = |signal| OtlpConfig::read(signal, &variable).ok().flatten();
        let metrics = config(Signal::Metrics).map(|config| metrics::provider(None, Some(config), identity));
        let ended = Arc::<AtomicBool>::default();
        if let Some(provider) = &metrics {
            let ended = Arc::clone(&ended);
            metrics::gauge(&provider.meter("tenure"), names::TRANSACTIONS_ACTIVE, Vec::new(), move || {
                !ended.load(Ordering::Relaxed)
            });
        }
        Self {
            export: config(Signal::Traces).and_then(|config| Export::start(config, identity).ok()),
            metrics,
            ended,
            spans: Spans::new(lease.namespace.clone(), lease.name.clone(), fastrand::u64(..)),
            parent: variable(TRACEPARENT).and_then(|text| TraceContext::parse(&text)),
            begun: Anchor(clock::now()),
        }
    }

    /// Sends what the command did, for at most [`FLUSH`](crate::link::FLUSH).
    pub(crate) async fn finish(self, events: &[(Instant, Event)], outcome: &Outcome) {
        let until = clock::boot();
        if let Some(export) = &self.export {
            self.spans(events, outcome, until).into_iter().for_each(|span| export.queue(span));
        }
        if let Some(provider) = &self.metrics {
            self.count(provider, events, outcome, until);
        }
        super::finish(self.export, self.metrics).await;
    }

    fn count(&self, provider: &SdkMeterProvider, events: &[(Instant, Event)], outcome: &Outcome, until: Instant) {
        let meter = provider.meter("tenure");
        let outcome = [KeyValue::new("outcome", outcome.as_str())];
        self.ended.store(true, Ordering::Relaxed);
        metrics::counter(&meter, names::TRANSACTIONS).add(1, &outcome);
        let took = until.since(self.begun.0.boot).as_secs_f64();
        metrics::seconds(&meter, names::TRANSACTION, &metrics::SPANS).record(took, &outcome);
        let changes = metrics::counter(&meter, names::CHANGES);
        for (_, event) in events {
            if let Event::Object { change, state, .. } = event {
                changes.add(1, &[KeyValue::new("type", change.as_str()), KeyValue::new("outcome", state.as_str())]);
            }
        }
    }

    /// The spans of the whole and of its parts. Each part begins where the one before it ends.
    fn spans(&self, events: &[(Instant, Event)], outcome: &Outcome, until: Instant) -> Vec<SpanData> {
        let id = || fastrand::u64(1..);
        let trace_id = self.parent.map_or_else(|| fastrand::u128(1..), |parent| parent.trace_id);
        let context = TraceContext { trace_id, span_id: id() };
        let mut from = self.begun.0.boot;
        let mut whole = self.spans.span("transaction", context, self.begun, (from, until));
        if let Some(parent) = self.parent {
            (whole.parent_span_id, whole.parent_span_is_remote) = (SpanId::from(parent.span_id), true);
        }
        whole.attributes = self.spans.lease.to_vec();
        whole.attributes.push(KeyValue::new(names::OUTCOME, outcome.as_str()));
        if outcome.code() != 0 {
            whole.status = Status::error(bounded(&outcome.to_string()).into_owned());
        }
        let mut spans = vec![whole];
        for (at, event) in events {
            let (name, attributes) = match event {
                Event::Prepared => ("plan", Vec::new()),
                Event::Object { target, change, state } => {
                    let is_change = matches!(state, State::Planned | State::Changed);
                    let name = if is_change { "change" } else { "undo" };
                    let facts = [
                        (names::OBJECT, target.to_string()),
                        (names::CHANGE, change.as_str().into()),
                        (names::OUTCOME, state.as_str().into()),
                    ];
                    (name, facts.map(|(key, value)| KeyValue::new(key, value)).to_vec())
                }
                Event::Said(_) | Event::Retrying(_) => continue,
            };
            let mut part = self.spans.span(name, TraceContext { span_id: id(), ..context }, self.begun, (from, *at));
            (part.parent_span_id, part.span_kind) = (SpanId::from(context.span_id), SpanKind::Client);
            part.attributes = attributes;
            spans.push(part);
            from = *at;
        }
        spans
    }
}
