//! Traces and log lines; can never delay a transition.
//!
//! Owns what people and collectors get to see of an election. Everything here is told facts after they happened, on the elector's
//! own thread, and never waits there: log lines that do not fit are dropped, spans go to a bounded queue.
//!
//! The elector's loop calls [`log::start`] and [`Telemetry::start`] with init's welcome, then [`Telemetry::record`] for whatever
//! the election reports, for each message to init (a Lead after [`Telemetry::amend`]) and for each message from init. Before it
//! sends Done it awaits the future of [`Telemetry::finish`], and keeps running meanwhile.
//!
//! `observer` decides which transitions there were, `spans` and `lines` put them into form, `export` and `log` do the rest.

use opentelemetry::KeyValue;
use opentelemetry_sdk::{Resource, resource::TelemetryResourceDetector};
use tracing::warn;

use self::{
    export::{Export, ExportError},
    lines::Lines,
    observer::Observer,
    settings::{Sampler, Settings},
    spans::Spans,
    transition::Outcome,
};
use crate::{
    election::{Event, trace::TraceContext},
    link::{FLUSH, Facts, ToElector, ToInit, Welcome},
    time::Now,
};

mod connect;
mod export;
mod grpc;
mod lines;
pub mod log;
mod observer;
mod settings;
mod spans;
mod transition;

/// What the elector's loop reports, in the order in which it happened.
#[derive(Clone, Copy, Debug)]
pub enum Fact<'a> {
    /// The election reported it.
    Reported(&'a Event),
    /// It was sent to init.
    Sent(&'a ToInit),
    /// It came from init.
    Received(&'a ToElector),
}

/// The elector's output to people and collectors.
#[derive(Debug)]
pub struct Telemetry {
    observer: Observer,
    lines: Lines,
    /// `None`: nothing is exported.
    traces: Option<Traces>,
}

#[derive(Debug)]
struct Traces {
    spans: Spans,
    sampler: Sampler,
    export: Export,
}

impl Telemetry {
    /// Reads the standard OTEL_* variables through `variable`; without an endpoint in them nothing is exported and nothing runs.
    /// Settings that cannot work are logged, and nothing is exported.
    ///
    /// The namespace in `welcome` is the Lease's, discovered if the configuration leaves it open.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    #[must_use]
    pub fn start(welcome: &Welcome, variable: impl Fn(&str) -> Option<String>, now: Now) -> Self {
        let lease = &welcome.config.lease.name;
        let settings = Settings::read(variable);
        let traces = settings.and_then(|settings| match Traces::start(settings, welcome) {
            Ok(traces) => Some(traces),
            Err(error) => {
                error.tell();
                None
            }
        });
        let lines = Lines::new(lease.clone(), welcome.identity.clone());
        if let Some(resume) = &welcome.resume {
            lines.resumed(resume);
        }
        Self { observer: Observer::new(welcome.resume.as_ref(), now), lines, traces }
    }

    /// Marks the transition's span that the workload is given as not sampled, where it is not. Without an exporter it stays as the
    /// Lease has it: what the workload exports itself is one trace across replicas then too. To be called before init is told of
    /// the term.
    pub fn amend(&self, facts: &mut Facts) {
        let Some(traces) = self.traces.as_ref().filter(|traces| traces.export.works()) else { return };
        if let Some(context) = TraceContext::parse(&facts.traceparent).filter(|context| !traces.sampler.takes(context.trace_id)) {
            facts.traceparent = format!("00-{:032x}-{:016x}-00", context.trace_id, context.span_id);
        }
    }

    /// Records what happened at `now`; never waits.
    pub fn record(&mut self, fact: Fact<'_>, now: Now) {
        self.lines.fact(fact, now);
        for outcome in self.observer.record(fact, now) {
            self.tell(outcome);
        }
    }

    /// Sends what is left, for at most [`FLUSH`]; from now on nothing is exported. To be awaited after the release, and before
    /// init is told that all is done: when init ends, so does this process.
    pub fn finish(&mut self, now: Now) -> impl Future<Output = ()> + Send + 'static + use<> {
        for outcome in self.observer.finish(now) {
            self.tell(outcome);
        }
        let traces = self.traces.take();
        async {
            if let Some(traces) = traces {
                traces.export.finish(FLUSH).await;
            }
        }
    }

    fn tell(&mut self, outcome: Outcome) {
        self.lines.outcome(&outcome);
        if let Some(traces) = &mut self.traces {
            traces.tell(outcome);
        }
    }
}

impl Traces {
    fn start(settings: Settings, welcome: &Welcome) -> Result<Self, ExportError> {
        for note in &settings.notes {
            warn!("{note}");
        }
        let (sampler, resource, lease) = (settings.sampler, resource(&settings, &welcome.identity), &welcome.config.lease);
        let export = Export::start(settings, resource)?;
        let spans = Spans::new((lease.namespace.clone(), lease.name.clone()), fastrand::u64(..));
        Ok(Self { spans, sampler, export })
    }

    fn tell(&mut self, outcome: Outcome) {
        if !self.sampler.takes(outcome.trace_id()) {
            return;
        }
        for span in self.spans.of(outcome) {
            self.export.queue(span);
        }
    }
}

/// Who reports: the variables take precedence over what is known here, except for the instance, which they never set. The version
/// is tenure's, so it is left out of a service that is named otherwise. The pod is not known here, nor is its namespace, which
/// need not be the Lease's.
fn resource(settings: &Settings, identity: &str) -> Resource {
    let mut known = vec![("service.instance.id", identity)];
    if !settings.resource.contains_key("service.name") {
        known.extend([("service.name", "tenure"), ("service.version", env!("CARGO_PKG_VERSION"))]);
    }
    let said = settings.resource.iter().map(|(key, value)| KeyValue::new(key.clone(), value.clone()));
    Resource::builder_empty()
        .with_detector(Box::new(TelemetryResourceDetector))
        .with_attributes(known.into_iter().map(|(key, value)| KeyValue::new(key, value.to_owned())))
        .with_attributes(said)
        .build()
}

#[cfg(test)]
mod tests {
    use opentelemetry::{Key, Value};

    use super::*;

    #[test]
    fn a_service_may_be_renamed_and_an_instance_is_the_replica() {
        let told = |attributes: &str| {
            let variable = |name: &str| match name {
                "OTEL_EXPORTER_OTLP_ENDPOINT" => Some("http://c:4318".to_owned()),
                "OTEL_RESOURCE_ATTRIBUTES" => Some(attributes.to_owned()),
                _ => None,
            };
            let settings = Settings::read(variable).unwrap();
            let resource = resource(&settings, "web-0_ab");
            let of = |key: &'static str| resource.get(&Key::new(key)).as_ref().map(Value::to_string);
            (["service.name", "service.version", "service.instance.id"].map(of), settings.notes)
        };
        let some = |text: &str| Some(text.to_owned());
        let ours = [some("tenure"), some(env!("CARGO_PKG_VERSION")), some("web-0_ab")];

        assert_eq!(told(""), (ours.clone(), Vec::new()));
        assert_eq!(told("service.name="), (ours, Vec::new()));
        let note = "OTEL_RESOURCE_ATTRIBUTES: service.instance.id is left out: it is the replica's identity".to_owned();
        let renamed = [some("billing"), None, some("web-0_ab")];
        assert_eq!(told("service.name=billing,service.instance.id=7"), (renamed, vec![note]));
        assert_eq!(told("service.name=billing,service.version=2").0[1], some("2"));
    }
}
