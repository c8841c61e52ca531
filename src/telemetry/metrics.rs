//! Metrics of an election, defined once for both ways out: OTLP, and the page that Prometheus reads.
//!
//! Owns their names; docs/metrics.md says what they mean. `leader_election_master_status` is client-go's.

use std::time::Duration;

use opentelemetry::{
    KeyValue,
    metrics::{Counter, Gauge, Histogram, Meter, MeterProvider as _},
};
use opentelemetry_sdk::{
    Resource,
    metrics::{MeterProviderBuilder, PeriodicReader, SdkMeterProvider},
};
use prometheus::Registry;
use tokio::task::spawn_blocking;
use tracing::warn;

use super::export::{self, OtlpConfig};
use crate::{
    election::{
        Answer, Event, Operation,
        transition::{Outcome, PhaseKind, Transition},
    },
    link::{Exit, FLUSH, ToElector},
    role::Role,
    stderr,
};

/// Of phases and margins, in seconds.
const SPANS: [f64; 14] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 30.0, 60.0];
/// Of requests, in seconds.
const REQUESTS: [f64; 9] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5];

/// The instruments, and what reads them.
#[derive(Debug)]
pub(super) struct Metrics {
    provider: SdkMeterProvider,
    lease: String,
    leads: Gauge<u64>,
    transitions: Counter<u64>,
    phases: Histogram<f64>,
    margin: Histogram<f64>,
    requests: Histogram<f64>,
    failures: Counter<u64>,
    watches: Counter<u64>,
    restarts: Counter<u64>,
    exits: Counter<u64>,
    kills: Counter<u64>,
}

impl Metrics {
    /// Those of the replica `identity` for this Lease, read through `page` and sent as `otlp` says; `None` if neither is wanted.
    pub(super) fn start(page: Option<Registry>, otlp: Option<OtlpConfig>, lease: &str, identity: &str) -> Option<Self> {
        if page.is_none() && otlp.is_none() {
            return None;
        }
        let resource = export::resource(Resource::builder().build(), identity);
        let builder = SdkMeterProvider::builder().with_resource(resource);
        let builder = page.into_iter().fold(builder, served);
        let builder = otlp.into_iter().fold(builder, sent);
        Some(Self::of(builder.build(), lease))
    }

    fn of(provider: SdkMeterProvider, lease: &str) -> Self {
        let meter = provider.meter("tenure");
        let counter = |name, words| meter.u64_counter(name).with_description(words).build();
        let observed = |name, words, count: fn() -> u64| {
            let counter = meter.u64_observable_counter(name).with_description(words);
            let _ = counter.with_callback(move |observer| observer.observe(count(), &[])).build();
        };
        observed("tenure.log.dropped", "Log lines that nobody read", stderr::dropped);
        observed("tenure.spans.dropped", "Spans that no collector has taken", export::dropped);
        let it = Self {
            lease: lease.to_owned(),
            leads: meter.u64_gauge("leader_election_master_status").with_description("1 where this replica leads").build(),
            transitions: counter("tenure.transitions", "Changes of role"),
            phases: seconds(&meter, "tenure.transition.phase", "Parts of changes of role", &SPANS),
            margin: seconds(&meter, "tenure.renewal.margin", "What was left before the soft deadline at each renewal", &SPANS),
            requests: seconds(&meter, "tenure.api.request", "Requests to the API server", &REQUESTS),
            failures: counter("tenure.api.failures", "Requests to the API server, watches included, that failed"),
            watches: counter("tenure.watches", "Watches that began"),
            restarts: counter("tenure.workload.restarts", "Restarts of the workload within a term"),
            exits: counter("tenure.workload.exits", "Ends of the workload's main process"),
            kills: counter("tenure.workload.kills", "Stops that SIGKILL had to end"),
            provider,
        };
        it.leads(false);
        it
    }

    /// What the election reported.
    pub(super) fn event(&self, event: &Event) {
        match event {
            Event::Transitioned(transition) => self.transitioned(transition),
            Event::Renewed { margin, .. } => self.margin.record(margin.0.max(0.0), &[]),
            Event::Failed { operation, .. } => self.failures.add(1, &[verb(*operation)]),
            Event::Ready
            | Event::NewLeader { .. }
            | Event::HeldByNobody { .. }
            | Event::Campaigning { .. }
            | Event::CampaignLost(_)
            | Event::Recovered { .. }
            | Event::Stopping { .. }
            | Event::WithinTerm(_)
            | Event::WaitedInVain { .. }
            | Event::Odd { .. } => {}
        }
    }

    fn transitioned(&self, transition: &Transition) {
        let Transition { to, reason, phases, exit, outcome, .. } = transition;
        self.leads(*to == Role::Leader && *outcome != Outcome::NeverLed);
        let to = KeyValue::new("to", to.as_str());
        self.transitions.add(1, &[to.clone(), KeyValue::new("reason", reason.as_str())]);
        for phase in phases {
            let took = phase.until.since(phase.from).as_secs_f64();
            self.phases.record(took, &[to.clone(), KeyValue::new("phase", phase.kind.as_str())]);
            if matches!(phase.kind, PhaseKind::WorkloadKill) {
                self.kills.add(1, &[]);
            }
        }
        exit.iter().for_each(|exit| self.exited(*exit));
    }

    /// What init said.
    pub(super) fn heard(&self, message: &ToElector) {
        if let ToElector::Restarting { exit, .. } = message {
            self.restarts.add(1, &[]);
            self.exited(*exit);
        }
    }

    fn exited(&self, exit: Exit) {
        let how = match exit {
            Exit::Code(code) => KeyValue::new("code", i64::from(code)),
            Exit::Signal(signal) => KeyValue::new("signal", i64::from(signal)),
        };
        self.exits.add(1, &[how]);
    }

    /// A request that took this long.
    pub(super) fn requested(&self, operation: Operation, answer: &Answer, took: Duration) {
        let outcome = match answer {
            Answer::Object(_) | Answer::Listed { .. } | Answer::Deleted => "ok",
            Answer::NotFound => "not-found",
            Answer::Conflict => "conflict",
            Answer::Refused { .. } => "refused",
            Answer::Unknown { .. } => "unknown",
        };
        self.requests.record(took.as_secs_f64(), &[verb(operation), KeyValue::new("outcome", outcome)]);
    }

    /// A watch began.
    pub(super) fn watching(&self) {
        self.watches.add(1, &[]);
    }

    fn leads(&self, leads: bool) {
        self.leads.record(u64::from(leads), &[KeyValue::new("name", self.lease.clone())]);
    }

    /// Sends the last ones, and gives up after [`FLUSH`].
    pub(super) async fn finish(self) {
        self.leads(false);
        drop(spawn_blocking(move || self.provider.shutdown_with_timeout(FLUSH)).await);
    }
}

fn served(builder: MeterProviderBuilder, page: Registry) -> MeterProviderBuilder {
    match opentelemetry_prometheus::exporter().with_registry(page).scope_info_enabled(false).build() {
        Ok(reader) => return builder.with_reader(reader),
        Err(error) => warn!("/metrics stays empty: {error}"),
    }
    builder
}

fn sent(builder: MeterProviderBuilder, config: OtlpConfig) -> MeterProviderBuilder {
    match export::metrics(config) {
        Ok(exporter) => return builder.with_reader(PeriodicReader::builder(exporter).build()),
        Err(error) => warn!("metrics are not exported: {error}"),
    }
    builder
}

fn seconds(meter: &Meter, name: &'static str, words: &'static str, bounds: &[f64]) -> Histogram<f64> {
    meter.f64_histogram(name).with_unit("s").with_description(words).with_boundaries(bounds.to_vec()).build()
}

fn verb(operation: Operation) -> KeyValue {
    KeyValue::new("operation", operation.as_str())
}

#[cfg(test)]
mod tests {
    use prometheus::TextEncoder;

    use super::*;
    use crate::election::{RequestError, transition::Margin};

    fn text(page: &Registry) -> String {
        TextEncoder::new().encode_to_string(&page.gather()).unwrap()
    }

    #[test]
    fn nothing_is_counted_where_nobody_reads_it() {
        assert!(Metrics::start(None, None, "billing", "a_1").is_none());
    }

    #[test]
    fn each_metric_is_on_the_page_by_its_name() {
        let page = Registry::new();
        let metrics = Metrics::start(Some(page.clone()), None, "billing", "a_1").unwrap();

        let message = RequestError::from("refused");
        metrics.event(&Event::Renewed { latency: Duration::from_millis(3), margin: Margin(8.1) });
        metrics.event(&Event::Failed { operation: Operation::Watch, message });
        metrics.heard(&ToElector::Restarting {
            term: crate::link::Term(1),
            exit: Exit::Signal(9),
            at: crate::time::Instant::BOOT,
        });
        metrics.requested(Operation::Update, &Answer::Conflict, Duration::from_millis(7));
        metrics.watching();

        let text = text(&page);
        for line in [
            "leader_election_master_status{name=\"billing\"} 0",
            "tenure_renewal_margin_seconds_bucket{le=\"5\"} 0",
            "tenure_renewal_margin_seconds_bucket{le=\"10\"} 1",
            "tenure_api_failures_total{operation=\"watch\"} 1",
            "tenure_workload_restarts_total 1",
            "tenure_workload_exits_total{signal=\"9\"} 1",
            "tenure_api_request_seconds_count{operation=\"update\",outcome=\"conflict\"} 1",
            "tenure_watches_total 1",
            "# TYPE tenure_log_dropped_total counter",
            "# TYPE tenure_spans_dropped_total counter",
        ] {
            assert!(text.lines().any(|it| it == line), "{line} is not in\n{text}");
        }
    }
}
