//! Metrics of an election, defined once for both ways out: OTLP, and the page that Prometheus reads.
//!
//! Owns the counting; [`names`] has the names and descriptions.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use opentelemetry::{
    KeyValue,
    metrics::{Counter, Histogram, Meter, MeterProvider as _},
};
use opentelemetry_sdk::metrics::{MeterProviderBuilder, PeriodicReader, SdkMeterProvider};
use prometheus::{Registry, proto::MetricFamily};
use tokio::{sync::watch, task::spawn_blocking, time::timeout};
use tracing::warn;

use super::{
    export::{self, OtlpConfig},
    names::{self, Metric},
    status::{Change, Fact, Requested, Status},
    transition::{Margin, Outcome, Phase, PhaseKind, Recorded, Transition, TransitionReason},
};
use crate::{
    clock,
    config::{HookKind, Signal},
    election::{AcquireReason, Event},
    link::{Exit, FLUSH, InitialState, Reason, ToElector},
    role::Role,
    stderr,
    time::Instant,
};

/// Bounds for phases and margins, in seconds.
pub(super) const SPANS: [f64; 14] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 30.0, 60.0];
/// Bounds for requests, in seconds.
const REQUESTS: [f64; 9] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5];

/// The instruments, and the provider that they are read through.
#[derive(Debug)]
pub(super) struct Metrics {
    provider: SdkMeterProvider,
    leads: Arc<AtomicBool>,
    terms: Counter<u64>,
    phases: Histogram<f64>,
    margin: Histogram<f64>,
    requests: Histogram<f64>,
    watch_restarts: Counter<u64>,
    workload_restarts: Counter<u64>,
    exits: Counter<u64>,
    kills: Counter<u64>,
}

impl Metrics {
    /// Starts the metrics of this elector, read through `page` and sent as `otlp` says; `None` if neither is wanted. What is computed
    /// at each read is a view of `status`.
    pub(super) fn start(
        page: Option<Registry>,
        otlp: Option<OtlpConfig>,
        initial: &InitialState,
        status: watch::Receiver<Status>,
    ) -> Option<Self> {
        if page.is_none() && otlp.is_none() {
            return None;
        }
        Some(Self::of(provider(page, otlp, &initial.identity), initial, status))
    }

    fn of(provider: SdkMeterProvider, initial: &InitialState, status: watch::Receiver<Status>) -> Self {
        let meter = provider.meter("tenure");
        let it = Self {
            leads: Arc::default(),
            terms: counter(&meter, names::TERMS),
            phases: seconds(&meter, names::TRANSITION, &SPANS),
            margin: seconds(&meter, names::RENEWAL_MARGIN, &SPANS),
            requests: seconds(&meter, names::REQUEST, &REQUESTS),
            watch_restarts: counter(&meter, names::WATCH_RESTARTS),
            workload_restarts: counter(&meter, names::WORKLOAD_RESTARTS),
            exits: counter(&meter, names::WORKLOAD_EXITS),
            kills: counter(&meter, names::KILLS),
            provider,
        };
        let (labels, leads) = (vec![KeyValue::new("name", initial.config.lease.name.clone())], Arc::clone(&it.leads));
        gauge(&meter, names::LEADS, labels, move || leads.load(Ordering::Relaxed));
        gauge(&meter, names::BUILD_INFO, vec![KeyValue::new("version", env!("CARGO_PKG_VERSION"))], || true);
        observe(&meter, status, initial.config.lease.witness.is_some());
        // A first increase is visible only after a 0.
        it.watch_restarts.add(0, &[]);
        it.workload_restarts.add(0, &[]);
        Reason::ALL.into_iter().for_each(|reason| it.killed(TransitionReason::Ended(reason), 0));
        Reason::ALL.into_iter().for_each(|reason| it.turned(Role::Standby, TransitionReason::Ended(reason), 0));
        AcquireReason::ALL.into_iter().for_each(|reason| it.turned(Role::Leader, TransitionReason::Acquired(reason), 0));
        it.turned(Role::Leader, TransitionReason::Resumed, 0);
        counter(&meter, names::ELECTOR_RESTARTS).add(initial.generation.saturating_sub(1).into(), &[]);
        it.leads(
            initial.resume.as_ref().is_some_and(|resume| resume.told && (resume.stopping.is_none() || resume.main.is_some())),
        );
        it
    }

    fn recorded(&self, recorded: &Recorded) {
        match recorded {
            Recorded::Transitioned(transition) => self.transitioned(transition),
            Recorded::WithinTerm(within) if matches!(within.phase.kind, PhaseKind::WorkloadReady) => {
                self.took(Role::Leader, &within.phase);
            }
            Recorded::WithinTerm(within) if matches!(within.phase.kind, PhaseKind::Hook { hook: HookKind::AfterFollow, .. }) => {
                self.took(Role::Standby, &within.phase);
            }
            Recorded::WithinTerm(_)
            | Recorded::HolderChanged { .. }
            | Recorded::CampaignLost(_)
            | Recorded::WaitedInVain { .. } => {}
        }
    }

    fn transitioned(&self, transition: &Transition) {
        let Transition { to, reason, phases, exit, fused, outcome, .. } = transition;
        self.leads(*to == Role::Leader && *outcome != Outcome::NeverLed);
        self.turned(*to, *reason, 1);
        phases.iter().for_each(|phase| self.took(*to, phase));
        if fused.is_some() {
            self.killed(TransitionReason::Ended(Reason::Fuse), 1);
        } else if transition.is_killed() {
            self.killed(*reason, 1);
        }
        if let Some(exit) = exit {
            self.exited(*exit);
        }
    }

    fn turned(&self, to: Role, why: TransitionReason, times: u64) {
        self.terms.add(times, &[KeyValue::new("to", to.as_str()), KeyValue::new("reason", why.as_str())]);
    }

    fn killed(&self, why: TransitionReason, times: u64) {
        self.kills.add(times, &[KeyValue::new("why", why.as_str())]);
    }

    fn took(&self, to: Role, phase: &Phase) {
        let took = phase.until.since(phase.from).as_secs_f64();
        self.phases.record(took, &[KeyValue::new("to", to.as_str()), KeyValue::new("phase", phase.kind.as_str())]);
    }

    fn exited(&self, exit: Exit) {
        let how = match exit {
            Exit::Code(code) => code.to_string(),
            Exit::Signal(signal) => Signal(signal).name(),
        };
        self.exits.add(1, &[KeyValue::new("how", how)]);
    }

    fn leads(&self, leads: bool) {
        self.leads.store(leads, Ordering::Relaxed);
    }

    /// Counts no more. Returns what has the last ones to send.
    pub(super) fn stop(self) -> SdkMeterProvider {
        self.leads(false);
        self.provider
    }

    /// Counts a change.
    pub(super) fn changed(&mut self, change: &Change<'_>) {
        match change.fact {
            Fact::Event(Event::Renewed { soft, .. }) => {
                self.margin.record(Margin::until(*soft, change.at.boot).0.max(0.0), &[]);
            }
            Fact::Recorded(recorded) => self.recorded(recorded),
            // It holds the Lease, and nobody does its work until somebody helps: as if nobody led.
            Fact::Told(ToElector::Unproved { .. }) => self.leads(false),
            Fact::Told(ToElector::Restarting { exit, .. }) => {
                self.workload_restarts.add(1, &[]);
                self.exited(*exit);
            }
            Fact::Requested(Requested { operation, outcome, took, .. }) => {
                let labels = [KeyValue::new("operation", operation.as_str()), KeyValue::new("outcome", outcome.as_str())];
                self.requests.record(took.as_secs_f64(), &labels);
            }
            Fact::WatchesAgain => self.watch_restarts.add(1, &[]),
            Fact::Told(_) | Fact::Telling(_) | Fact::Event(_) | Fact::Elects(_) => {}
        }
    }
}

/// Builds the instruments that are computed at each read.
fn observe(meter: &Meter, status: watch::Receiver<Status>, has_witness: bool) {
    let left = |metric, until: fn(&Status, Instant) -> Option<Instant>| {
        let (Metric { name, unit, says, .. }, status) = (metric, status.clone());
        let gauge = meter.f64_observable_gauge(name).with_unit(unit).with_description(says);
        let left = move |now| until(&status.borrow(), now).map_or(0.0, |until| until.since(now).as_secs_f64());
        let _ = gauge.with_callback(move |observer| observer.observe(left(clock::boot()), &[])).build();
    };
    left(names::MARGIN, |status, _| status.election.leading.and_then(|led| led.deadlines).map(|due| due.soft));
    left(names::BACKOFF, |status, now| status.election.backoff.after_failures(now));
    let Metric { name, says, .. } = names::DROPPED;
    let dropped = meter.u64_observable_counter(name).with_description(says).with_callback(|observer| {
        observer.observe(stderr::dropped(), &[KeyValue::new("what", "log")]);
        observer.observe(export::dropped(), &[KeyValue::new("what", "span")]);
    });
    let _ = dropped.build();
    if has_witness {
        gauge(meter, names::WITNESSED, Vec::new(), move || status.borrow().is_witnessed);
    }
}

/// Builds a provider whose metrics are read through `page` and sent as `otlp` says.
pub(super) fn provider(page: Option<Registry>, otlp: Option<OtlpConfig>, identity: &str) -> SdkMeterProvider {
    let resource = export::resource(export::detected(), identity);
    let builder = SdkMeterProvider::builder().with_resource(resource);
    let builder = page.into_iter().fold(builder, served);
    otlp.into_iter().fold(builder, sent).build()
}

/// Sends the last metrics, and gives up after [`FLUSH`].
pub(super) async fn finish(provider: SdkMeterProvider) {
    // The SDK has a time of its own.
    drop(timeout(FLUSH, spawn_blocking(move || provider.shutdown_with_timeout(FLUSH))).await);
}

/// Gathers the page. Leaves out labels with an invalid name, which the exporter makes of some attributes of the resource: Prometheus would
/// refuse the whole page.
pub(crate) fn gather(page: &Registry) -> Vec<MetricFamily> {
    let is_valid = |name: &str| {
        name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') && !name.starts_with("__") && !name.contains(':')
    };
    let mut families = page.gather();
    for metric in families.iter_mut().flat_map(MetricFamily::mut_metric) {
        let mut labels = metric.take_label();
        labels.retain(|label| is_valid(label.name()));
        metric.set_label(labels);
    }
    families
}

fn served(builder: MeterProviderBuilder, page: Registry) -> MeterProviderBuilder {
    match opentelemetry_prometheus::exporter().with_registry(page).scope_info_enabled(false).build() {
        Ok(reader) => return builder.with_reader(reader),
        Err(error) => warn!("/metrics stays empty: {error}"),
    }
    builder
}

fn sent(builder: MeterProviderBuilder, config: OtlpConfig) -> MeterProviderBuilder {
    let delay = config.delay;
    match export::metrics(config) {
        Ok(exporter) => {
            let mut reader = PeriodicReader::builder(exporter);
            if let Some(delay) = delay {
                reader = reader.with_interval(delay);
            }
            return builder.with_reader(reader.build());
        }
        Err(error) => warn!("metrics are not exported: {error}"),
    }
    builder
}

pub(super) fn counter(meter: &Meter, Metric { name, says, .. }: Metric) -> Counter<u64> {
    meter.u64_counter(name).with_description(says).build()
}

/// Builds a gauge that is 1 or 0 at each read. One that is only recorded would be exported once and no more where the collector asks
/// for differences.
pub(super) fn gauge(
    meter: &Meter,
    Metric { name, says, .. }: Metric,
    labels: Vec<KeyValue>,
    is: impl Fn() -> bool + Send + Sync + 'static,
) {
    let gauge = meter.u64_observable_gauge(name).with_description(says);
    let _ = gauge.with_callback(move |observer| observer.observe(is().into(), &labels)).build();
}

pub(super) fn seconds(meter: &Meter, Metric { name, unit, says, .. }: Metric, bounds: &[f64]) -> Histogram<f64> {
    meter.f64_histogram(name).with_unit(unit).with_description(says).with_boundaries(bounds.to_vec()).build()
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, time::Duration};

    use prometheus::TextEncoder;

    use super::*;
    use crate::{
        config::Config,
        election::{LeaderView, trace::TraceContext},
        law::Deadlines,
        link::{Confirmed, LeaseBackoff, Resume, Term, TermInfo},
        request::{Answer, Operation},
        slot::Slot,
        telemetry::{
            spans,
            transition::{Anchor, Origin, TermPhase},
        },
        time::Now,
    };

    fn initial() -> InitialState {
        let mut config = Config::default();
        config.lease.name = "billing".into();
        config.lease.witness = Some("@tenure".into());
        InitialState::first(config, "a_1".into())
    }

    fn status(initial: &InitialState) -> watch::Sender<Status> {
        watch::Sender::new(Status::new(initial, ms(0)))
    }

    fn start(initial: &InitialState) -> (Metrics, Registry) {
        let page = Registry::new();
        (Metrics::start(Some(page.clone()), None, initial, status(initial).subscribe()).unwrap(), page)
    }

    fn text(page: &Registry) -> String {
        TextEncoder::new().encode_to_string(&page.gather()).unwrap()
    }

    fn assert_shows(page: &Registry, lines: &[&str]) {
        let text = text(page);
        for line in lines {
            assert!(text.lines().any(|it| it == *line), "{line} is not in\n{text}");
        }
    }

    fn ms(millis: u64) -> Instant {
        Instant::BOOT + Duration::from_millis(millis)
    }

    fn resume(told: bool) -> Resume {
        let (uid, empty) = (String::from("u"), String::new);
        let deadlines = Deadlines { soft: ms(8_000), hard: ms(9_000), end: ms(10_000) };
        Resume {
            term: Term(1),
            info: TermInfo {
                slot: Slot::default(),
                token: "42".into(),
                uid,
                transitions: 7,
                acquired_at: empty(),
                traceparent: empty(),
            },
            confirmed: Confirmed { resource_version: "42".into(), preferred_holder: None, deadlines },
            stopping: None,
            traceparent: empty(),
            released: false,
            main: Some(12),
            told,
        }
    }

    /// One of everything.
    fn everything(metrics: &mut Metrics) {
        let status = Status::new(&initial(), ms(0));
        let mut show = |fact| {
            let at = Now { boot: ms(3), wall: 0 };
            metrics.changed(&Change { before: &status, after: &status, fact: &fact, at });
        };
        show(Fact::Event(Event::Renewed { sent: ms(0), soft: ms(8_103) }));
        let Recorded::Transitioned(mut ended) = spans::tests::stood_by(Origin::None) else { panic!("a transition") };
        ended.phases.push(Phase { kind: PhaseKind::WorkloadKill, from: ms(10), until: ms(20) });
        show(Fact::Recorded(Recorded::Transitioned(ended)));
        let phase = Phase { kind: PhaseKind::WorkloadReady, from: ms(0), until: ms(3_000) };
        let (context, anchor) = (TraceContext::UNKNOWN, Anchor(Now { boot: ms(0), wall: 0 }));
        show(Fact::Recorded(Recorded::WithinTerm(Box::new(TermPhase { context, term: 7, anchor, phase }))));
        show(Fact::Told(ToElector::Restarting { term: Term(1), exit: Exit::Signal(9), at: ms(0) }));
        let took = Duration::from_millis(7);
        show(Fact::Requested(Requested::answer(Operation::Update, &Answer::Conflict, took)));
        for answer in [Ok(()), Err(Some(403)), Err(Some(503)), Err(None)] {
            show(Fact::Requested(Requested::watch(answer, took)));
        }
        show(Fact::WatchesAgain);
    }

    #[test]
    fn nothing_is_counted_where_nobody_reads_it() {
        assert!(Metrics::start(None, None, &initial(), status(&initial()).subscribe()).is_none());
    }

    #[test]
    fn what_the_fuse_killed_unnoticed_is_counted_as_killed_by_the_fuse() {
        let (mut metrics, page) = start(&initial());
        let Recorded::Transitioned(mut end) = spans::tests::stood_by(Origin::None) else { panic!("a transition") };
        end.fused = Some((ms(0), ms(3)));
        let (status, fact) = (Status::new(&initial(), ms(0)), Fact::Recorded(Recorded::Transitioned(end)));

        metrics.changed(&Change { before: &status, after: &status, fact: &fact, at: Now { boot: ms(3), wall: 0 } });

        assert_shows(&page, &["tenure_kills_total{why=\"fuse\"} 1", "tenure_kills_total{why=\"signal\"} 0"]);
    }

    #[test]
    fn a_kill_of_what_the_main_process_left_behind_is_no_kill_of_the_term_unless_it_had_time() {
        let kill = PhaseKind::WorkloadKill;
        let by_kill = Some(Exit::Signal(libc::SIGKILL));
        for (exit, killed, times) in
            [(Some(Exit::Code(0)), 21, 0), (Some(Exit::Code(0)), 500, 1), (by_kill, 19, 1), (by_kill, 21, 0), (None, 21, 1)]
        {
            let (mut metrics, page) = start(&initial());
            let Recorded::Transitioned(mut end) = spans::tests::stood_by(Origin::None) else { panic!("a transition") };
            end.exit = exit;
            end.phases.push(Phase { kind: kill.clone(), from: ms(killed), until: ms(600) });
            end.phases.push(Phase { kind: PhaseKind::WorkloadProof, from: ms(20), until: ms(600) });
            let (status, fact) = (Status::new(&initial(), ms(0)), Fact::Recorded(Recorded::Transitioned(end)));

            metrics.changed(&Change { before: &status, after: &status, fact: &fact, at: Now { boot: ms(600), wall: 0 } });

            assert_shows(&page, &[&format!("tenure_kills_total{{why=\"signal\"}} {times}")]);
        }
    }

    #[test]
    fn a_leader_that_cannot_be_killed_counts_as_none() {
        let (mut metrics, page) = start(&InitialState { resume: Some(resume(true)), ..initial() });
        let (status, fact) = (Status::new(&initial(), ms(0)), Fact::Told(ToElector::Unproved { term: Term(1) }));

        metrics.changed(&Change { before: &status, after: &status, fact: &fact, at: Now { boot: ms(3), wall: 0 } });

        assert_shows(&page, &["leader_election_master_status{name=\"billing\"} 0"]);
    }

    #[test]
    fn each_metric_is_on_the_page_by_its_name() {
        let (mut metrics, page) = start(&initial());

        everything(&mut metrics);

        assert_shows(
            &page,
            &[
                "leader_election_master_status{name=\"billing\"} 0",
                "tenure_terms_total{reason=\"signal\",to=\"standby\"} 1",
                "tenure_transition_seconds_count{phase=\"workload.stop\",to=\"standby\"} 1",
                "tenure_transition_seconds_sum{phase=\"workload.ready\",to=\"leader\"} 3",
                "tenure_renewal_margin_seconds_bucket{le=\"5\"} 0",
                "tenure_renewal_margin_seconds_bucket{le=\"10\"} 1",
                "tenure_margin_seconds 0",
                "tenure_request_seconds_count{operation=\"update\",outcome=\"conflict\"} 1",
                "tenure_request_seconds_count{operation=\"watch\",outcome=\"ok\"} 1",
                "tenure_request_seconds_count{operation=\"watch\",outcome=\"refused\"} 1",
                "tenure_request_seconds_count{operation=\"watch\",outcome=\"unknown\"} 2",
                "tenure_watch_restarts_total 1",
                "tenure_workload_restarts_total 1",
                "tenure_workload_exits_total{how=\"3\"} 1",
                "tenure_workload_exits_total{how=\"SIGKILL\"} 1",
                "tenure_kills_total{why=\"signal\"} 1",
                "tenure_elector_restarts_total 0",
                "tenure_witnessed 0",
                concat!("tenure_build_info{version=\"", env!("CARGO_PKG_VERSION"), "\"} 1"),
            ],
        );
        for what in ["log", "span"] {
            assert!(text(&page).contains(&format!("tenure_dropped_total{{what=\"{what}\"}} ")), "{what}");
        }
    }

    #[test]
    fn what_is_on_the_page_is_in_the_reference_with_its_labels_and_the_other_way_round() {
        let (mut metrics, page) = start(&initial());
        everything(&mut metrics);

        let page = page.gather();
        // The exporter's own.
        let families = page.iter().filter(|family| family.name() != "target_info");
        let shown: BTreeMap<_, Vec<_>> = families
            .map(|family| {
                let labels = family.get_metric()[0].get_label().iter().map(|label| label.name().to_owned());
                (family.name().to_owned(), labels.collect())
            })
            .collect();

        let words = |cell: &str| cell.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>();
        let listed: BTreeMap<_, _> = rows("## Metrics")
            .map(|row| {
                let mut labels = words(row.split('|').nth(3).unwrap());
                labels.sort_unstable();
                (words(row)[0].clone(), labels)
            })
            .collect();
        assert_eq!(shown, listed);
    }

    #[test]
    fn an_attribute_that_no_label_may_have_is_not_on_the_page_and_the_others_are() {
        let keys = ["3scale.env", "1x", "", "__name__", "a:b", "_a", "team.of-x"];
        let resource =
            opentelemetry_sdk::Resource::builder_empty().with_attributes(keys.map(|key| KeyValue::new(key, "y"))).build();
        let page = Registry::new();
        let _provider = served(SdkMeterProvider::builder().with_resource(resource), page.clone()).build();

        let shown = TextEncoder::new().encode_to_string(&gather(&page)).unwrap();

        assert!(shown.contains("target_info{_a=\"y\",team_of_x=\"y\"} 1\n"), "{shown}");
    }

    /// Those of the table in the reference that follows on this.
    fn rows(head: &str) -> impl Iterator<Item = &'static str> {
        let (_, table) = include_str!("../../docs/reference.md").split_once(head).unwrap();
        table.lines().skip_while(|line| !line.starts_with("| `")).take_while(|line| line.starts_with("| `"))
    }

    #[test]
    fn a_first_term_and_a_first_kill_rise_from_zero_whatever_the_reason() {
        let (_metrics, page) = start(&initial());

        let shown = text(&page);

        for row in rows("| it ended |") {
            let reason = row.split('`').nth(1).unwrap();
            assert!(shown.contains(&format!("tenure_kills_total{{why=\"{reason}\"}} 0")), "{reason}");
            assert!(shown.contains(&format!("tenure_terms_total{{reason=\"{reason}\",to=\"standby\"}} 0")), "{reason}");
        }
        for reason in AcquireReason::ALL.map(AcquireReason::as_str).into_iter().chain(["resumed"]) {
            assert!(shown.contains(&format!("tenure_terms_total{{reason=\"{reason}\",to=\"leader\"}} 0")), "{reason}");
        }
    }

    #[test]
    fn the_margin_is_what_is_left_when_somebody_looks_and_nothing_while_not_leading() {
        let (status, page) = (status(&initial()), Registry::new());
        let _metrics = Metrics::start(Some(page.clone()), None, &initial(), status.subscribe()).unwrap();
        let holds = |soft: Option<Instant>| {
            let deadlines = |soft| Some(Deadlines { soft, ..Deadlines::NEVER });
            let led = |soft| LeaderView { term: Term(1), confirmed: ms(0), deadlines: deadlines(soft), ending: false };
            status.send_modify(|status| status.election.leading = soft.map(led));
        };
        let left = || {
            let text = text(&page);
            text.lines().find_map(|line| line.strip_prefix("tenure_margin_seconds ")).unwrap().parse::<f64>().unwrap()
        };

        holds(Some(clock::boot() + Duration::from_secs(1_000)));
        let first = left();
        let second = left();
        holds(None);

        assert!(first < 1_000.0 && second < first && second > 0.0, "{first} {second}");
        assert_eq!(left(), 0.0);
    }

    #[test]
    fn a_back_off_counts_down_and_only_one_that_follows_on_failures() {
        let (status, page) = (status(&initial()), Registry::new());
        let _metrics = Metrics::start(Some(page.clone()), None, &initial(), status.subscribe()).unwrap();
        let left = |failures| {
            let until = clock::boot() + Duration::from_secs(1_000);
            status.send_modify(|status| status.election.backoff = LeaseBackoff { until, failures });
            let text = text(&page);
            text.lines().find_map(|line| line.strip_prefix("tenure_backoff_seconds ")).unwrap().parse::<f64>().unwrap()
        };

        assert!((990.0..1_000.0).contains(&left(2)), "{}", left(2));
        assert_eq!(left(0), 0.0, "it stepped down for another");
    }

    #[test]
    fn an_elector_that_continues_a_term_leads_and_knows_how_many_were_before_it() {
        for (told, leads) in [(true, "1"), (false, "0")] {
            let (_metrics, page) = start(&InitialState { generation: 4, resume: Some(resume(told)), ..initial() });

            let leads = format!("leader_election_master_status{{name=\"billing\"}} {leads}");
            assert_shows(&page, &[&leads, "tenure_elector_restarts_total 3"]);
        }
    }
}
