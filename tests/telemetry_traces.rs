//! What a collector receives about transitions, over HTTP and gRPC, and that no collector delays anybody.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod collector;

use std::{collections::BTreeMap, time::Duration};

use collector::{Collector, Manner, Seen, Wire};
use tenure::{
    config::Config,
    election::{Event, Given, Operation, Vacancy, trace::TraceContext},
    law::Timing,
    link::{Confirmed, Exit, FLUSH, Facts, Reason, Stop, Term, ToElector, ToInit, Welcome},
    telemetry::{Fact, Telemetry},
    time::{Instant, Now},
};

const WALL: i64 = 1_700_000_000_000_000;
const OLD_LEADS: TraceContext = TraceContext { trace_id: 0xa1, span_id: 0xb1 };
const OLD_STOPS: TraceContext = TraceContext { trace_id: 0xa2, span_id: 0xb2 };
const NEW_LEADS: TraceContext = TraceContext { trace_id: 0xa2, span_id: 0xb3 };

fn at(millis: u64) -> Now {
    let boot = Instant::from_nanos(5_000_000_000) + Duration::from_millis(millis);
    Now { boot, wall: WALL + i64::try_from(millis).unwrap() * 1000 }
}

fn replica(identity: &str, variables: &[(&str, &str)]) -> Telemetry {
    let mut config = Config::default();
    config.lease.name = "billing".into();
    config.lease.namespace = "money".into();
    let welcome = Welcome::first(config, identity.into());
    let variables: BTreeMap<_, _> = variables.iter().copied().collect();
    Telemetry::start(&welcome, |name| variables.get(name).map(|value| (*value).to_owned()), at(0))
}

fn exporting(identity: &str, wire: Wire, collector: &Collector) -> Telemetry {
    let protocol = match wire {
        Wire::Http => "http/protobuf",
        Wire::Grpc => "grpc",
    };
    replica(identity, &[("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.endpoint()), ("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)])
}

fn leads(telemetry: &mut Telemetry, from: u64, context: TraceContext, other: Option<TraceContext>, why: Vacancy) {
    let timing: Timing = Config::default().timing();
    let facts = Facts {
        token: "42".into(),
        uid: "u".into(),
        transitions: 7,
        acquired_at: String::new(),
        traceparent: context.to_string(),
    };
    let deadlines = timing.deadlines(at(from).boot);
    let confirmed = Confirmed { uid: "u".into(), resource_version: "42".into(), spec: "{}".into(), deadlines };
    let lead = ToInit::Lead { term: Term(1), facts, timing, confirmed, not_before: None };
    let acquired = Event::Acquired { token: "42".into(), transitions: 7, creation_wait: None };
    telemetry.record(Fact::Reported(&Event::Campaigning { why, context, other }), at(from));
    telemetry.record(Fact::Reported(&acquired), at(from + 2));
    telemetry.record(Fact::Sent(&lead), at(from + 2));
    telemetry.record(Fact::Received(&ToElector::Started { term: Term(1), pid: 9, at: at(from + 3).boot }), at(from + 4));
}

fn stops(telemetry: &mut Telemetry, from: u64, context: TraceContext) {
    let stop = Stop {
        began: Some(at(from).boot),
        killed: None,
        exited: Some(at(from + 5).boot),
        exit: Some(Exit::Code(0)),
        proved: at(from + 6).boot,
    };
    telemetry.record(Fact::Reported(&Event::Stopping { reason: Reason::Signal, context }), at(from));
    telemetry.record(Fact::Reported(&Event::Proved(stop)), at(from + 6));
    telemetry.record(Fact::Reported(&Event::Released { how: Given::Clear }), at(from + 8));
    telemetry.record(Fact::Reported(&Event::Following), at(from + 8));
}

fn find<'a>(seen: &'a [Seen], name: &str, instance: &str) -> Vec<&'a Seen> {
    seen.iter().filter(|span| span.name == name && span.resource["service.instance.id"] == instance).collect()
}

fn transition<'a>(seen: &'a [Seen], to: &str, instance: &str) -> &'a Seen {
    find(seen, "transition", instance).into_iter().find(|span| span.attributes["tenure.to"] == to).unwrap()
}

fn hex(context: TraceContext) -> (String, String) {
    (format!("{:032x}", context.trace_id), format!("{:016x}", context.span_id))
}

/// A handover between two replicas, as the collector sees it.
async fn handover(wire: Wire) -> Vec<Seen> {
    let mut collector = Collector::start(wire, Manner::Obliging);
    let mut old = exporting("old", wire, &collector);
    let mut new = exporting("new", wire, &collector);
    leads(&mut old, 0, OLD_LEADS, None, Vacancy::Expired);
    stops(&mut old, 1_000, OLD_STOPS);
    leads(&mut new, 1_010, NEW_LEADS, Some(OLD_STOPS), Vacancy::Released);
    old.finish(at(2_000)).await;
    new.finish(at(2_000)).await;
    collector.wait("all spans of a handover", |seen| seen.len() >= 4 + 4 + 4)
}

async fn a_handover_is_one_trace_across_both_replicas(wire: Wire) {
    let seen = handover(wire).await;

    let stopped = transition(&seen, "standby", "old");
    let led = transition(&seen, "leader", "new");
    assert_eq!((stopped.trace.clone(), stopped.span.clone()), hex(OLD_STOPS));
    assert_eq!((led.trace.clone(), led.span.clone()), hex(NEW_LEADS));
    assert_eq!((&led.trace, &led.parent), (&stopped.trace, &stopped.span));
    assert_eq!((led.parent_is_remote, led.links.len()), (Some(true), 0));
    assert_eq!(stopped.parent, "");
    assert_eq!((&stopped.links[..], &stopped.links_are_remote[..]), (&[hex(OLD_LEADS)][..], &[Some(false)][..]));
}

#[tokio::test]
async fn a_handover_is_one_trace_across_both_replicas_over_http() {
    a_handover_is_one_trace_across_both_replicas(Wire::Http).await;
}

#[tokio::test]
async fn a_handover_is_one_trace_across_both_replicas_over_grpc() {
    a_handover_is_one_trace_across_both_replicas(Wire::Grpc).await;
}

#[tokio::test]
async fn a_transition_has_its_phases_as_children_within_its_own_time() {
    let seen = handover(Wire::Http).await;

    let stopped = transition(&seen, "standby", "old");
    let children = |parent: &Seen| {
        let mut children: Vec<_> = seen.iter().filter(|span| span.parent == parent.span && span.trace == parent.trace).collect();
        children.retain(|span| span.name != "transition");
        for child in &children {
            assert!(parent.start <= child.start && child.start <= child.end && child.end <= parent.end, "{child:#?}");
            assert_eq!(child.parent_is_remote, Some(false));
        }
        children.into_iter().map(|span| span.name.as_str()).collect::<Vec<_>>()
    };
    assert_eq!(children(stopped), ["workload.stop", "workload.proof", "release"]);
    assert_eq!(children(transition(&seen, "leader", "new")), ["campaign", "acquire", "workload.start"]);
    let wall = u64::try_from(WALL).unwrap() * 1000;
    assert_eq!((stopped.start, stopped.end), (wall + 1_000_000_000, wall + 1_008_000_000));
}

#[tokio::test]
async fn a_transition_says_why_and_with_how_much_margin() {
    let seen = handover(Wire::Http).await;

    let stopped = &transition(&seen, "standby", "old").attributes;
    let said = ["tenure.reason", "tenure.term", "tenure.margin_left", "tenure.fencing_token"];
    assert_eq!(said.map(|name| stopped[name].as_str()), ["signal", "7", "13.844", "42"]);
    assert_eq!(["tenure.lease", "tenure.lease_namespace"].map(|name| stopped[name].as_str()), ["billing", "money"]);
    let led = &transition(&seen, "leader", "new").attributes;
    assert_eq!((led["tenure.reason"].as_str(), led["tenure.margin_left"].as_str()), ("released", "14.847"));
}

#[tokio::test]
async fn a_takeover_is_a_trace_of_its_own_with_a_link_to_the_old_leader() {
    let mut collector = Collector::start(Wire::Http, Manner::Obliging);
    let mut new = exporting("new", Wire::Http, &collector);
    leads(&mut new, 0, NEW_LEADS, Some(OLD_LEADS), Vacancy::Expired);
    new.finish(at(100)).await;

    let seen = collector.wait("a transition", |seen| seen.iter().any(|span| span.name == "transition"));

    let led = transition(&seen, "leader", "new");
    assert_eq!((led.parent.as_str(), led.links.as_slice()), ("", &[hex(OLD_LEADS)][..]));
    assert_eq!(led.links_are_remote, [Some(true)]);
    assert_ne!(led.trace, hex(OLD_LEADS).0);
}

#[tokio::test]
async fn a_lost_campaign_is_a_campaign_and_no_transition() {
    let mut collector = Collector::start(Wire::Http, Manner::Obliging);
    let mut late = exporting("late", Wire::Http, &collector);
    let campaign = Event::Campaigning { why: Vacancy::Released, context: NEW_LEADS, other: Some(OLD_STOPS) };
    late.record(Fact::Reported(&campaign), at(0));
    late.record(Fact::Reported(&Event::CampaignLost), at(3));
    late.finish(at(10)).await;

    let seen = collector.wait("a campaign", |seen| !seen.is_empty());

    let [campaign] = &seen[..] else { panic!("{seen:#?}") };
    assert_eq!((campaign.name.as_str(), campaign.attributes["tenure.outcome"].as_str()), ("campaign", "lost"));
    assert_eq!((&campaign.trace, &campaign.parent), (&hex(OLD_STOPS).0, &hex(OLD_STOPS).1));
}

#[tokio::test]
async fn a_failed_renewal_is_a_span_of_the_term_with_its_error() {
    let mut collector = Collector::start(Wire::Http, Manner::Obliging);
    let mut leader = exporting("leader", Wire::Http, &collector);
    leads(&mut leader, 0, OLD_LEADS, None, Vacancy::Expired);
    leader.record(
        Fact::Reported(&Event::Failed { operation: Operation::Update, sent: at(2_500).boot, message: "timed out".into() }),
        at(3_000),
    );
    leader.finish(at(3_001)).await;

    let seen = collector.wait("a renewal", |seen| seen.iter().any(|span| span.name == "renew"));

    let renewal = find(&seen, "renew", "leader")[0];
    assert_eq!((renewal.error.as_deref(), &renewal.parent), (Some("timed out"), &hex(OLD_LEADS).1));
}

#[tokio::test]
async fn the_resource_says_who_tells_and_what_the_variables_add() {
    let said = ["service.name", "service.instance.id", "k8s.pod.name", "k8s.namespace.name", "telemetry.sdk.language"];
    for (attributes, expected) in [
        ("k8s.pod.name=web-0,k8s.namespace.name=other", ["tenure", "one_5f", "web-0", "other", "rust"]),
        // The Lease's namespace need not be the pod's.
        ("", ["tenure", "one_5f", "", "", "rust"]),
    ] {
        let mut collector = Collector::start(Wire::Http, Manner::Obliging);
        let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", &*collector.endpoint());
        let mut one = replica("one_5f", &[endpoint, ("OTEL_RESOURCE_ATTRIBUTES", attributes)]);
        leads(&mut one, 0, NEW_LEADS, None, Vacancy::Expired);
        one.finish(at(10)).await;

        let resource = collector.wait("a span", |seen| !seen.is_empty()).swap_remove(0).resource;

        assert_eq!(said.map(|name| resource.get(name).map_or("", String::as_str)), expected);
    }
}

#[tokio::test]
async fn spans_arrive_while_the_replica_goes_on() {
    for wire in [Wire::Http, Wire::Grpc] {
        let mut collector = Collector::start(wire, Manner::Obliging);
        let mut leader = exporting("leader", wire, &collector);
        leads(&mut leader, 0, OLD_LEADS, None, Vacancy::Expired);
        let arrived = tokio::task::spawn_blocking(move || collector.wait("a batch", |seen| seen.len() == 4)).await;
        assert!(arrived.is_ok());
        drop(leader);
    }
}

#[tokio::test]
async fn spans_outlast_a_collector_that_is_out_of_service_for_more_than_a_few_tries() {
    for (wire, protocol) in [(Wire::Http, "http/protobuf"), (Wire::Grpc, "grpc")] {
        let mut collector = Collector::start(wire, Manner::Late(4));
        let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", &*collector.endpoint());
        let at_once = ("OTEL_BSP_SCHEDULE_DELAY", "1");
        let mut leader = replica("leader", &[endpoint, ("OTEL_EXPORTER_OTLP_PROTOCOL", protocol), at_once]);
        let began = tokio::time::Instant::now();
        leads(&mut leader, 0, OLD_LEADS, None, Vacancy::Expired);
        let arrived = tokio::task::spawn_blocking(move || collector.wait("a batch", |seen| seen.len() == 4)).await;
        assert!(arrived.is_ok());
        assert!(began.elapsed() > Duration::from_secs(1), "{wire:?}: between tries there are pauses, each longer than the last");
        drop(leader);
    }
}

#[tokio::test]
async fn tls_is_spoken_with_a_collector_that_the_given_authority_vouches_for() {
    for (wire, protocol) in [(Wire::Http, "http/protobuf"), (Wire::Grpc, "grpc")] {
        let mut collector = Collector::start_with_tls(wire);
        let (endpoint, certificate) = (collector.endpoint(), collector.certificate());
        let mut leader = replica(
            "leader",
            &[
                ("OTEL_EXPORTER_OTLP_ENDPOINT", &endpoint),
                ("OTEL_EXPORTER_OTLP_PROTOCOL", protocol),
                ("OTEL_EXPORTER_OTLP_CERTIFICATE", &certificate),
            ],
        );
        leads(&mut leader, 0, OLD_LEADS, None, Vacancy::Expired);
        leader.finish(at(10)).await;
        collector.wait("spans over TLS", |seen| seen.len() == 4);
    }
}

#[tokio::test(start_paused = true)]
async fn a_collector_that_never_answers_holds_up_the_end_for_the_bound_and_no_longer() {
    for wire in [Wire::Http, Wire::Grpc] {
        let collector = Collector::start(wire, Manner::Silent);
        let mut leader = exporting("leader", wire, &collector);
        leads(&mut leader, 0, OLD_LEADS, None, Vacancy::Expired);
        let began = tokio::time::Instant::now();
        leader.finish(at(10)).await;
        assert!(began.elapsed() <= FLUSH + Duration::from_millis(1), "{wire:?}: {:?}", began.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn a_collector_that_is_not_there_holds_up_the_end_for_the_bound_at_most() {
    for protocol in ["http/protobuf", "grpc"] {
        let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1");
        let mut leader = replica("leader", &[endpoint, ("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)]);
        leads(&mut leader, 0, OLD_LEADS, None, Vacancy::Expired);
        let began = tokio::time::Instant::now();
        leader.finish(at(10)).await;
        let took = began.elapsed();
        assert!(took <= FLUSH + Duration::from_millis(1), "{protocol}: {took:?}");
        assert!(took > Duration::ZERO, "{protocol}: what waits before another try must not hold the thread");
    }
}

#[tokio::test]
async fn more_spans_than_the_queue_and_a_batch_hold_are_dropped() {
    let mut collector = Collector::start(Wire::Http, Manner::Obliging);
    let endpoint = collector.endpoint();
    let sizes = [("OTEL_BSP_MAX_QUEUE_SIZE", "8"), ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "4")];
    let mut leader = replica("leader", &[("OTEL_EXPORTER_OTLP_ENDPOINT", &endpoint), sizes[0], sizes[1]]);

    for term in 0..1_000 {
        leads(&mut leader, term * 10, OLD_LEADS, None, Vacancy::Expired);
    }
    let mut collector = tokio::task::spawn_blocking(move || {
        collector.wait("what the queue held", |seen| seen.len() >= 8);
        collector
    })
    .await
    .unwrap();
    leader.finish(at(10_000)).await;

    let seen = collector.seen();
    assert!((8..=8 + 4).contains(&seen.len()), "{}", seen.len());
}

#[tokio::test]
async fn nothing_is_exported_where_the_sdk_is_disabled_or_the_trace_is_not_sampled() {
    for off in [("OTEL_SDK_DISABLED", "true"), ("OTEL_TRACES_EXPORTER", "none"), ("OTEL_TRACES_SAMPLER", "always_off")] {
        let mut collector = Collector::start(Wire::Http, Manner::Obliging);
        let endpoint = collector.endpoint();
        let mut leader = replica("leader", &[("OTEL_EXPORTER_OTLP_ENDPOINT", &endpoint), off]);
        leads(&mut leader, 0, OLD_LEADS, None, Vacancy::Expired);
        leader.finish(at(10)).await;
        assert_eq!(collector.seen().len(), 0, "{off:?}");
    }
}

#[tokio::test]
async fn an_endpoint_that_cannot_work_exports_nothing_and_harms_nobody() {
    for endpoint in ["nonsense", "ftp://collector", "https://collector"] {
        let variables = [("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint), ("OTEL_EXPORTER_OTLP_CERTIFICATE", "/nonexistent.pem")];
        let mut leader = replica("leader", &variables);

        leads(&mut leader, 0, OLD_LEADS, None, Vacancy::Expired);

        assert_eq!(told(&leader), OLD_LEADS.to_string(), "{endpoint}");
        leader.finish(at(10)).await;
    }
}

/// The span that is passed to the workload.
fn told(replica: &Telemetry) -> String {
    let mut facts = Facts {
        token: String::new(),
        uid: String::new(),
        transitions: 0,
        acquired_at: String::new(),
        traceparent: OLD_LEADS.to_string(),
    };
    replica.amend(&mut facts);
    facts.traceparent
}

#[tokio::test]
async fn the_workload_is_told_whether_its_span_is_sampled() {
    let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1");
    assert_eq!(told(&replica("one", &[])), OLD_LEADS.to_string(), "nobody has decided against it");
    assert_eq!(told(&replica("one", &[endpoint])), OLD_LEADS.to_string());
    let unsampled = told(&replica("one", &[endpoint, ("OTEL_TRACES_SAMPLER", "always_off")]));
    assert_eq!(unsampled, OLD_LEADS.to_string().replace("-01", "-00"));
}
