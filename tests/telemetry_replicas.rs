//! What whole replicas report of their transitions: to a collector, to the workload, in the Lease and in the log.

#![allow(clippy::expect_used, clippy::print_stderr, reason = "a test fails by panicking, and says why")]

mod collector;
mod support;

use std::{path::Path, process::ExitCode, time::Duration};

use collector::{Collector, Manner, Seen, Wire};
use nix::{
    sys::{
        signal::{Signal, kill},
        stat::Mode,
    },
    unistd::mkfifo,
};
use serde_json::Value;
use support::{
    PATIENCE,
    case::{self, Case},
    replica::Replica,
    server::Kind,
    stage::{Prepared, Stage},
    within,
};
use tenure::link::FLUSH;

/// Cases on the embedded server only: what is reported does not depend on the server.
macro_rules! embedded {
    ($($name:ident),* $(,)?) => {
        vec![$(Case { name: stringify!($name), on: &[Kind::Embedded], body: |stage| Box::pin($name(stage)) }),*]
    };
}

fn main() -> ExitCode {
    case::main(vec![(
        "telemetry",
        embedded![
            a_handover_is_one_trace_from_the_old_leaders_stop_to_the_new_ones_start_over_http,
            a_handover_is_one_trace_from_the_old_leaders_stop_to_the_new_ones_start_over_grpc,
            a_takeover_from_a_killed_leader_is_a_trace_of_its_own_with_a_link,
            a_term_that_outlives_its_elector_ends_with_a_link_to_its_beginning,
            the_workload_the_lease_and_the_trace_name_the_same_span,
            a_silent_collector_holds_up_neither_the_handover_nor_the_exit,
            headers_reach_the_collector_and_not_the_log,
            a_key_in_the_endpoint_is_not_in_the_log,
            a_collector_that_takes_not_all_spans_is_told_once,
            a_collector_that_takes_no_spans_is_told_once_in_its_own_words,
            certificates_that_cannot_be_read_to_an_end_keep_nobody_from_leading,
            a_certificate_that_cannot_be_used_is_told,
            each_transition_is_one_json_line_with_the_ids_of_its_trace,
            without_a_collector_the_workload_is_told_of_the_span_that_the_lease_names,
        ],
    )])
}

async fn prepare(stage: &Stage, name: &str, collector: &Collector, wire: Wire) -> Prepared {
    let prepared = stage.prepare(name).await.unhurried().set("lease.creationWait", "0s");
    let mut prepared = prepared.set("log.format", "json").set("log.level", "info");
    let protocol = match wire {
        Wire::Http => "http/protobuf",
        Wire::Grpc => "grpc",
    };
    let variables = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", collector.endpoint()),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", protocol.to_owned()),
        ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20hush".to_owned()),
        // As a chart leaves it when it has no value: no reason to ignore the general one.
        ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", String::new()),
    ];
    prepared.launch.env.extend(variables.map(|(name, value)| (name.to_owned(), value)));
    prepared
}

/// Two replicas, of which `one` leads.
async fn two(stage: &Stage, collector: &Collector, wire: Wire) -> (Replica, Replica) {
    let one = prepare(stage, "one", collector, wire).await.start();
    stage.witness.start("one", 0).await;
    let two = prepare(stage, "two", collector, wire).await.start();
    two.said("another replica leads").await;
    (one, two)
}

/// This replica's transition to this role, with its children.
fn transition<'a>(seen: &'a [Seen], name: &str, to: &str) -> Option<(&'a Seen, Vec<&'a str>)> {
    let is_it = |span: &&Seen| span.name == "transition" && span.attributes["tenure.to"] == to && is_of(span, name);
    let transition = seen.iter().find(is_it)?;
    let children = seen.iter().filter(|span| span.parent == transition.span && is_of(span, name));
    Some((transition, children.map(|span| span.name.as_str()).collect()))
}

/// An identity is the replica's name, `_`, and random digits.
fn is_of(span: &Seen, name: &str) -> bool {
    span.resource["service.instance.id"].split('_').next() == Some(name)
}

fn has(seen: &[Seen], name: &str, to: &str) -> bool {
    transition(seen, name, to).is_some_and(|(_, children)| children.len() >= 3)
}

/// [`Collector::wait`] would block the proxies, which run on this thread.
async fn wait(collector: &mut Collector, what: &str, enough: impl Fn(&[Seen]) -> bool) -> Vec<Seen> {
    within(PATIENCE, what, async {
        loop {
            let seen = collector.seen();
            if enough(&seen) {
                return seen;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    })
    .await
}

async fn handover(stage: Stage, wire: Wire) {
    let mut collector = Collector::start(wire, Manner::Obliging);
    let (one, two) = two(&stage, &collector, wire).await;

    one.signal(Signal::SIGTERM).await;
    stage.witness.start("two", 0).await;
    assert_eq!(one.exit().await, 0);

    let seen =
        wait(&mut collector, "both sides of a handover", |seen| has(seen, "one", "standby") && has(seen, "two", "leader")).await;
    let (stopped, parts_of_stop) = transition(&seen, "one", "standby").expect("waited for");
    let (led, parts_of_start) = transition(&seen, "two", "leader").expect("waited for");
    assert_eq!((&led.trace, &led.parent, led.parent_is_remote), (&stopped.trace, &stopped.span, Some(true)));
    assert_eq!((stopped.attributes["tenure.reason"].as_str(), led.attributes["tenure.reason"].as_str()), ("signal", "released"));
    assert_eq!(parts_of_stop, ["workload.stop", "workload.proof", "release"]);
    assert_eq!(parts_of_start, ["campaign", "acquire", "workload.start"]);
    assert!(stopped.attributes["tenure.margin_left"].parse::<f64>().is_ok_and(|margin| margin > 0.0));
    drop(two);
}

async fn a_handover_is_one_trace_from_the_old_leaders_stop_to_the_new_ones_start_over_http(stage: Stage) {
    handover(stage, Wire::Http).await;
}

async fn a_handover_is_one_trace_from_the_old_leaders_stop_to_the_new_ones_start_over_grpc(stage: Stage) {
    handover(stage, Wire::Grpc).await;
}

async fn a_takeover_from_a_killed_leader_is_a_trace_of_its_own_with_a_link(stage: Stage) {
    let mut collector = Collector::start(Wire::Http, Manner::Obliging);
    let (one, _two) = two(&stage, &collector, Wire::Http).await;
    wait(&mut collector, "the first leader", |seen| has(seen, "one", "leader")).await;

    kill(one.init().await, Signal::SIGKILL).expect("init lives");
    stage.witness.start("two", 0).await;

    let seen = wait(&mut collector, "the second leader", |seen| has(seen, "two", "leader")).await;
    let (first, _) = transition(&seen, "one", "leader").expect("waited for");
    let (second, _) = transition(&seen, "two", "leader").expect("waited for");
    assert_eq!(second.links, [(first.trace.clone(), first.span.clone())]);
    assert_eq!((second.parent.as_str(), second.attributes["tenure.reason"].as_str()), ("", "expired"));
    assert_ne!(second.trace, first.trace);
}

async fn a_term_that_outlives_its_elector_ends_with_a_link_to_its_beginning(stage: Stage) {
    let mut collector = Collector::start(Wire::Http, Manner::Obliging);
    let one = prepare(&stage, "one", &collector, Wire::Http).await.start();
    let start = stage.witness.start("one", 0).await;
    let elector = one.elector().await;

    kill(elector, Signal::SIGKILL).expect("the elector lives");
    one.gone(elector).await;
    one.elector().await;
    one.signal(Signal::SIGTERM).await;

    let seen = wait(&mut collector, "the end of the term", |seen| has(seen, "one", "standby")).await;
    let (stopped, _) = transition(&seen, "one", "standby").expect("waited for");
    let [(trace, span)] = &stopped.links[..] else { panic!("{stopped:#?}") };
    assert_eq!(format!("00-{trace}-{span}-01"), start.variable("TRACEPARENT"));
    assert_eq!(stopped.attributes["tenure.term"], start.variable("TENURE_TERM"));
    assert_eq!(one.exit().await, 0);
}

async fn the_workload_the_lease_and_the_trace_name_the_same_span(stage: Stage) {
    let mut collector = Collector::start(Wire::Http, Manner::Obliging);
    let _one = prepare(&stage, "one", &collector, Wire::Http).await.set("lease.creationWait", Value::Null).start();
    let start = stage.witness.start("one", 0).await;

    let seen = wait(&mut collector, "a leader", |seen| has(seen, "one", "leader")).await;

    let (led, _) = transition(&seen, "one", "leader").expect("waited for");
    let traceparent = format!("00-{}-{}-01", led.trace, led.span);
    let lease = stage.lease.read().await.expect("a Lease");
    assert_eq!(start.variable("TRACEPARENT"), traceparent);
    assert_eq!(lease["metadata"]["annotations"]["tenure.dev/traceparent"], traceparent);
    assert_eq!(led.attributes["tenure.fencing_token"], start.variable("TENURE_FENCING_TOKEN"));
    assert_eq!(led.attributes["tenure.term"], start.variable("TENURE_TERM"));
    assert_eq!(led.resource["service.instance.id"], start.variable("TENURE_IDENTITY"));
}

async fn a_silent_collector_holds_up_neither_the_handover_nor_the_exit(stage: Stage) {
    let mut waits = Vec::new();
    for attempt in ["first", "second", "third"] {
        waits.push(waits_at_a_silent_collector(stage.beside(attempt).await).await);
        // A busy machine may take that long once; something that waits for the collector does so each time.
        if waits.iter().any(|(release, takeover)| release.max(takeover) < &FLUSH) {
            return;
        }
    }
    panic!("releases and takeovers waited for the collector: {waits:?}");
}

/// From the workload's last moment to the release, and from there to the start of the next one.
async fn waits_at_a_silent_collector(stage: Stage) -> (Duration, Duration) {
    let collector = Collector::start(Wire::Http, Manner::Silent);
    let (one, _two) = two(&stage, &collector, Wire::Http).await;

    one.signal(Signal::SIGTERM).await;
    let release = one.proxy.log.first("a release", |e| e.request.is_release()).await.request.at;
    let takeover = stage.witness.start("two", 0).await.at();

    assert_eq!(one.exit().await, 0);
    stage.witness.assert_no_overlap();
    (release.since(stage.witness.last_alive("one")), takeover.since(release))
}

async fn headers_reach_the_collector_and_not_the_log(stage: Stage) {
    for wire in [Wire::Http, Wire::Grpc] {
        let mut collector = Collector::start(wire, Manner::Obliging);
        let name = format!("{wire:?}").to_lowercase();
        let one = prepare(&stage, &name, &collector, wire).await.set("log.level", "trace").start();
        stage.witness.start(&name, 0).await;
        let seen = wait(&mut collector, "a span", |seen| !seen.is_empty()).await;
        assert_eq!(seen[0].headers["authorization"], "Bearer hush");
        one.signal(Signal::SIGTERM).await;
        one.exit().await;
        assert!(!one.lines().iter().any(|line| line.contains("hush")));
    }
}

async fn a_key_in_the_endpoint_is_not_in_the_log(stage: Stage) {
    let collector = Collector::start(Wire::Http, Manner::Grudging);
    let mut prepared = prepare(&stage, "one", &collector, Wire::Http).await.set("log.level", "trace");
    let endpoint = format!("{}/v1/traces?key=hush", collector.endpoint());
    prepared.launch.env.push(("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT".to_owned(), endpoint));
    let one = prepared.start();
    one.said("transitions are exported as traces").await;
    one.said("the collector complains").await;

    one.signal(Signal::SIGTERM).await;

    one.exit().await;
    let lines = one.lines();
    assert_eq!(lines.iter().find(|line| line.contains("hush")), None);
}

async fn a_collector_that_takes_not_all_spans_is_told_once(stage: Stage) {
    for wire in [Wire::Http, Wire::Grpc] {
        let collector = Collector::start(wire, Manner::Grudging);
        let name = format!("{wire:?}").to_lowercase();
        let one = prepare(&stage, &name, &collector, wire).await.start();
        one.said("the collector complains").await;
        one.signal(Signal::SIGTERM).await;
        one.exit().await;
        let lines = one.lines();
        let told: Vec<_> = lines.iter().filter(|line| line.contains("the collector")).collect();
        assert!(matches!(told[..], [line] if line.contains("1 spans rejected: the quota is used up")), "{told:?}");
    }
}

async fn a_collector_that_takes_no_spans_is_told_once_in_its_own_words(stage: Stage) {
    for (wire, words) in [
        (Wire::Http, "HTTP 403 Forbidden: the quota is used up"),
        (Wire::Grpc, "gRPC status 7 (PERMISSION_DENIED): the quota is used up"),
    ] {
        let collector = Collector::start(wire, Manner::Refusing);
        let name = format!("{wire:?}").to_lowercase();
        let one = prepare(&stage, &name, &collector, wire).await.start();
        one.said("does not take spans").await;
        one.signal(Signal::SIGTERM).await;
        one.exit().await;
        let lines: Vec<Value> = one.lines().iter().map(|line| serde_json::from_str(line).expect("each line is JSON")).collect();
        let told: Vec<_> = lines.iter().filter_map(|line| line["error"].as_str()).collect();
        assert_eq!(told, [words]);
    }
}

async fn certificates_that_cannot_be_read_to_an_end_keep_nobody_from_leading(stage: Stage) {
    let pipe = stage.directory().join("authority.pem");
    mkfifo(&pipe, Mode::S_IRWXU).expect("a pipe that nobody writes to");
    let mut one = prepare_with_tls(&stage, &pipe).await;
    one.launch.env.push(("OTEL_EXPORTER_OTLP_TIMEOUT".to_owned(), "100".to_owned()));
    let one = one.start();
    stage.witness.start("one", 0).await;
    one.said("are still being read").await;
    one.signal(Signal::SIGTERM).await;
    assert_eq!(one.exit().await, 0);
}

async fn a_certificate_that_cannot_be_used_is_told(stage: Stage) {
    let one = prepare_with_tls(&stage, Path::new("/dev/null")).await.start();
    stage.witness.start("one", 0).await;
    one.said("OTEL_EXPORTER_OTLP_CERTIFICATE: /dev/null holds no PEM certificate").await;
    assert!(!one.lines().iter().any(|line| line.contains("are exported")));
}

async fn prepare_with_tls(stage: &Stage, authority: &Path) -> Prepared {
    let collector = Collector::start(Wire::Http, Manner::Obliging);
    let mut prepared = prepare(stage, "one", &collector, Wire::Http).await;
    let variables = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "https://127.0.0.1:1"),
        ("OTEL_EXPORTER_OTLP_CERTIFICATE", authority.to_str().expect("a path")),
    ];
    prepared.launch.env.extend(variables.map(|(name, value)| (name.to_owned(), value.to_owned())));
    prepared
}

async fn each_transition_is_one_json_line_with_the_ids_of_its_trace(stage: Stage) {
    let collector = Collector::start(Wire::Http, Manner::Obliging);
    let one = prepare(&stage, "one", &collector, Wire::Http).await.start();
    let start = stage.witness.start("one", 0).await;
    one.signal(Signal::SIGTERM).await;
    one.exit().await;

    let lines: Vec<Value> = one.lines().iter().map(|line| serde_json::from_str(line).expect("each line is JSON")).collect();
    let transitions: Vec<_> = lines.iter().filter(|line| line["role"].is_string()).collect();
    let [led, stopped] = &transitions[..] else { panic!("{lines:#?}") };
    assert_eq!((led["role"].as_str(), stopped["role"].as_str()), (Some("leader"), Some("standby")));
    assert_eq!((led["reason"].as_str(), stopped["reason"].as_str()), (Some("absent"), Some("signal")));
    let text = |line: &Value, field: &str| line[field].as_str().expect(field).to_owned();
    assert_eq!(format!("00-{}-{}-01", text(led, "trace_id"), text(led, "span_id")), start.variable("TRACEPARENT"));
    assert_eq!(stopped["term"].to_string(), start.variable("TENURE_TERM"));
    assert!(stopped["margin_left"].as_f64().is_some_and(|margin| margin > 0.0));
    assert!(["seconds", "stop", "proof", "release"].iter().all(|field| stopped[field].is_f64()), "{stopped}");
}

async fn without_a_collector_the_workload_is_told_of_the_span_that_the_lease_names(stage: Stage) {
    let _one = stage.start("one").await;
    let start = stage.witness.start("one", 0).await;
    let lease = stage.lease.read().await.expect("a Lease");
    assert_eq!(lease["metadata"]["annotations"]["tenure.dev/traceparent"], start.variable("TRACEPARENT"));
}
