//! Checks what whole replicas report of their transitions: to a collector, to the workload, in the Lease and in the log.

use std::{path::Path, time::Duration};

use nix::{
    sys::{
        signal::{Signal, kill},
        stat::Mode,
    },
    unistd::mkfifo,
};
use serde_json::Value;
use support::{Case, Prepared, Replica, Stage, cases, found, until};
use tenure::link::FLUSH;

use crate::collector::{Collector, Manner, Seen, Wire, picture};

/// On the embedded server only: what is reported does not depend on the server.
pub(crate) fn all() -> Vec<Case> {
    cases![EMBEDDED:
        a_handover_is_one_trace_from_the_old_leaders_stop_to_the_new_ones_start_over_http,
        a_handover_is_one_trace_from_the_old_leaders_stop_to_the_new_ones_start_over_grpc,
        a_takeover_from_a_killed_leader_is_a_trace_of_its_own_with_a_link,
        how_long_a_leader_took_to_be_ready_is_a_part_of_its_transition,
        a_term_that_outlives_its_elector_ends_with_a_link_to_its_beginning,
        the_workload_the_lease_and_the_trace_name_the_same_span,
        a_silent_collector_holds_up_neither_the_handover_nor_the_exit,
        headers_reach_the_collector_and_not_the_log,
        metrics_reach_the_collector_and_whoever_reads_the_page,
        a_collector_that_takes_no_spans_is_told_once_and_not_in_its_words,
        spans_outlast_a_collector_that_is_out_of_service_for_more_than_a_few_tries,
        tls_is_spoken_with_a_collector_that_the_given_authority_vouches_for,
        certificates_that_cannot_be_read_to_an_end_keep_nobody_from_leading,
        a_trace_that_is_not_sampled_is_not_exported_and_the_workload_is_told,
        each_transition_is_one_json_line_with_the_ids_of_its_trace,
        without_a_collector_the_workload_is_told_of_the_span_that_the_lease_names,
    ]
}

async fn prepare(stage: &Stage, name: &str, collector: &Collector) -> Prepared {
    let prepared = stage.prepare(name).await.unhurried().set("lease.creationWait", "0s");
    let mut prepared = prepared.set("log.format", "json").set("log.level", "info");
    prepared.launch.env.extend(collector.environment());
    let variables = [
        ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20hush"),
        ("OTEL_SERVICE_NAME", "billing"),
        ("OTEL_RESOURCE_ATTRIBUTES", "service.name=other,k8s.pod.name=web-0,3scale.env=prod"),
    ];
    prepared.launch.env.extend(variables.map(|(name, value)| (name.to_owned(), value.to_owned())));
    prepared
}

/// Two replicas, of which `one` leads.
async fn two(stage: &Stage, collector: &Collector) -> (Replica, Replica) {
    let one = prepare(stage, "one", collector).await.start();
    stage.witness.start("one", 0).await;
    let two = prepare(stage, "two", collector).await.start();
    two.said("another replica holds the Lease").await;
    (one, two)
}

/// This replica's transition to this role, with its children.
fn transition<'a>(seen: &'a [Seen], name: &str, to: &str) -> Option<(&'a Seen, Vec<&'a str>)> {
    let is_it = |span: &&Seen| span.name == "transition" && span.attributes["tenure.to"] == to && is_of(span, name);
    let transition = seen.iter().find(is_it)?;
    let children = seen.iter().filter(|span| span.is_part_of(transition));
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
    found(what, async || Some(collector.seen()).filter(|seen| enough(seen))).await
}

async fn handover(stage: Stage, wire: Wire) {
    let mut collector = Collector::start(wire, Manner::Obliging);
    let (one, two) = two(&stage, &collector).await;

    one.signal(Signal::SIGTERM).await;
    stage.witness.start("two", 0).await;
    assert_eq!(one.exit().await, 0);

    let seen =
        wait(&mut collector, "both sides of a handover", |seen| has(seen, "one", "standby") && has(seen, "two", "leader")).await;
    let (stopped, parts_of_stop) = transition(&seen, "one", "standby").expect("waited for");
    let (led, parts_of_start) = transition(&seen, "two", "leader").expect("waited for");
    if wire == Wire::Http {
        picture::draw(&seen, &stopped.trace, &Path::new(env!("CARGO_TARGET_TMPDIR")).join("handover.svg"));
    }
    assert_eq!((&led.trace, &led.parent, led.parent_is_remote), (&stopped.trace, &stopped.span, Some(true)));
    assert_eq!((stopped.attributes["tenure.reason"].as_str(), led.attributes["tenure.reason"].as_str()), ("signal", "released"));
    assert_eq!(parts_of_stop, ["workload.stop", "workload.proof", "release"]);
    assert_eq!(parts_of_start, ["campaign", "acquire", "workload.start"]);
    assert!(stopped.attributes["tenure.lease_left"].parse::<f64>().is_ok_and(|margin| margin > 0.0));
    let said = ["service.name", "k8s.pod.name", "telemetry.sdk.language"].map(|name| stopped.resource[name].as_str());
    assert_eq!(said, ["billing", "web-0", "rust"]);
    drop(two);
}

async fn a_handover_is_one_trace_from_the_old_leaders_stop_to_the_new_ones_start_over_http(stage: Stage) {
    handover(stage, Wire::Http).await;
}

async fn a_handover_is_one_trace_from_the_old_leaders_stop_to_the_new_ones_start_over_grpc(stage: Stage) {
    handover(stage, Wire::Grpc).await;
}

async fn metrics_reach_the_collector_and_whoever_reads_the_page(stage: Stage) {
    let collector = Collector::start(Wire::Grpc, Manner::Obliging);
    let (address, _kept) = stage.free_address();
    let mut one = prepare(&stage, "one", &collector).await.set("http.listen", address.to_string());
    let often = [("OTEL_METRIC_EXPORT_INTERVAL", "500"), ("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", "delta")];
    one.launch.env.extend(often.map(|(name, value)| (name.to_owned(), value.to_owned())));
    let one = one.start();
    stage.witness.start("one", 0).await;

    let leads = async || {
        let page = stage.page(address, "/metrics").await;
        page.contains("leader_election_master_status{name=\"main\"} 1")
            && page.contains("tenure_request_seconds_count{operation=\"watch\",outcome=\"ok\"}")
    };
    until("the page says that it leads", leads).await;
    let page = stage.page(address, "/metrics").await;
    assert!(page.contains("k8s_pod_name=\"web-0\"") && !page.contains("3scale"), "{page}");
    for _ in 0..2 {
        until("who leads is sent, and again", async || collector.metrics().contains("leader_election_master_status")).await;
    }
    assert_eq!(one.stop().await, 0);

    let sent = collector.metrics();
    let names = "leader_election_master_status tenure.terms tenure.transition tenure.request tenure.margin tenure.build_info";
    for name in names.split(' ') {
        assert!(sent.contains(name), "{name} is not in {sent:?}");
    }
}

async fn a_takeover_from_a_killed_leader_is_a_trace_of_its_own_with_a_link(stage: Stage) {
    let mut collector = Collector::start(Wire::Http, Manner::Obliging);
    let (one, _two) = two(&stage, &collector).await;
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

async fn how_long_a_leader_took_to_be_ready_is_a_part_of_its_transition(stage: Stage) {
    let mut collector = Collector::start(Wire::Http, Manner::Obliging);
    let ready = stage.directory().join("ready");
    let readiness = serde_json::json!({ "exec": { "command": ["test", "-e", &ready] }, "period": "200ms" });
    let _one = prepare(&stage, "one", &collector).await.set("workload.readiness", readiness).start();
    stage.witness.start("one", 0).await;
    wait(&mut collector, "a leader", |seen| has(seen, "one", "leader")).await;

    std::fs::write(&ready, "").expect("a file");

    let is_ready = |span: &&Seen| span.name == "workload.ready";
    let seen = wait(&mut collector, "its readiness", |seen| seen.iter().any(|span| is_ready(&span))).await;
    let (led, _) = transition(&seen, "one", "leader").expect("waited for");
    let span = seen.iter().find(is_ready).expect("waited for");
    // Each is tied to the wall clock anew.
    let apart = Duration::from_nanos(span.begin.abs_diff(led.end));
    assert!(span.is_part_of(led) && apart < Duration::from_millis(100) && span.end > span.begin, "{span:#?}");
}

async fn a_term_that_outlives_its_elector_ends_with_a_link_to_its_beginning(stage: Stage) {
    let mut collector = Collector::start(Wire::Http, Manner::Obliging);
    let one = prepare(&stage, "one", &collector).await.start();
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
    let _one = prepare(&stage, "one", &collector).await.set("lease.creationWait", Value::Null).start();
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
    let (one, _two) = two(&stage, &collector).await;

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
        let mut prepared = prepare(&stage, &name, &collector).await.set("log.level", "trace");
        // Empty means unset: the general ones count.
        prepared.launch.env.push(("OTEL_EXPORTER_OTLP_TRACES_HEADERS".to_owned(), String::new()));
        let one = prepared.start();
        stage.witness.start(&name, 0).await;
        let seen = wait(&mut collector, "a span", |seen| !seen.is_empty()).await;
        assert_eq!(seen[0].headers["authorization"], "Bearer hush");
        one.stop().await;
        assert!(!one.lines().iter().any(|line| line.contains("hush")));
    }
}

async fn a_collector_that_takes_no_spans_is_told_once_and_not_in_its_words(stage: Stage) {
    for (wire, why) in [(Wire::Http, "HTTP 403 Forbidden"), (Wire::Grpc, "gRPC status 7")] {
        let collector = Collector::start(wire, Manner::Refusing);
        let name = format!("{wire:?}").to_lowercase();
        let mut prepared = prepare(&stage, &name, &collector).await.set("log.level", "trace");
        let endpoint = format!("{}/v1/traces?key=hush", collector.endpoint());
        prepared.launch.env.push(("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT".to_owned(), endpoint));
        let one = prepared.start();
        one.said("transitions are exported as traces").await;
        one.said("does not take spans").await;
        one.stop().await;
        let lines = one.lines();
        assert_eq!(lines.iter().find(|line| line.contains("hush")), None);
        let lines: Vec<Value> = lines.iter().map(|line| serde_json::from_str(line).expect("each line is JSON")).collect();
        let told: Vec<_> = lines.iter().filter_map(|line| line["error"].as_str()).collect();
        assert_eq!(told, [why]);
    }
}

async fn spans_outlast_a_collector_that_is_out_of_service_for_more_than_a_few_tries(stage: Stage) {
    for wire in [Wire::Http, Wire::Grpc] {
        let mut collector = Collector::start(wire, Manner::Late(4));
        let name = format!("{wire:?}").to_lowercase();
        let one = prepare(&stage, &name, &collector).await.start();
        wait(&mut collector, "a transition", |seen| has(seen, &name, "leader")).await;
        one.said("does not take spans").await;
        one.said("takes spans again").await;
        one.stop().await;
    }
}

async fn tls_is_spoken_with_a_collector_that_the_given_authority_vouches_for(stage: Stage) {
    for wire in [Wire::Http, Wire::Grpc] {
        let mut collector = Collector::start_with_tls(wire, stage.directory());
        let name = format!("{wire:?}").to_lowercase();
        let mut prepared = prepare(&stage, &name, &collector).await;
        prepared.launch.env.push(("OTEL_EXPORTER_OTLP_CERTIFICATE".to_owned(), collector.certificate()));
        let one = prepared.start();
        wait(&mut collector, "spans over TLS", |seen| has(seen, &name, "leader")).await;
        one.stop().await;
    }
}

async fn certificates_that_cannot_be_read_to_an_end_keep_nobody_from_leading(stage: Stage) {
    let pipe = stage.directory().join("authority.pem");
    mkfifo(&pipe, Mode::S_IRWXU).expect("a pipe that nobody writes to");
    let collector = Collector::start(Wire::Http, Manner::Obliging);
    let mut prepared = prepare(&stage, "one", &collector).await;
    let variables = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "https://127.0.0.1:1"),
        ("OTEL_EXPORTER_OTLP_CERTIFICATE", pipe.to_str().expect("a path")),
    ];
    prepared.launch.env.extend(variables.map(|(name, value)| (name.to_owned(), value.to_owned())));
    let one = prepared.start();
    stage.witness.start("one", 0).await;
    one.signal(Signal::SIGTERM).await;
    one.said("the last spans were not sent").await;
    assert_eq!(one.exit().await, 0);
}

async fn a_trace_that_is_not_sampled_is_not_exported_and_the_workload_is_told(stage: Stage) {
    let mut collector = Collector::start(Wire::Http, Manner::Obliging);
    let mut prepared = prepare(&stage, "one", &collector).await;
    prepared.launch.env.push(("OTEL_TRACES_SAMPLER".to_owned(), "always_off".to_owned()));
    let one = prepared.start();
    let start = stage.witness.start("one", 0).await;
    one.stop().await;
    assert!(start.variable("TRACEPARENT").ends_with("-00"), "{}", start.variable("TRACEPARENT"));
    assert_eq!(collector.seen().len(), 0);
}

async fn each_transition_is_one_json_line_with_the_ids_of_its_trace(stage: Stage) {
    let collector = Collector::start(Wire::Http, Manner::Obliging);
    let one = prepare(&stage, "one", &collector).await.start();
    let start = stage.witness.start("one", 0).await;
    one.stop().await;

    let lines: Vec<Value> = one.lines().iter().map(|line| serde_json::from_str(line).expect("each line is JSON")).collect();
    let transitions: Vec<_> = lines.iter().filter(|line| line["role"].is_string()).collect();
    let [led, stopped] = &transitions[..] else { panic!("{lines:#?}") };
    assert_eq!((led["role"].as_str(), stopped["role"].as_str()), (Some("leader"), Some("standby")));
    assert_eq!((led["reason"].as_str(), stopped["reason"].as_str()), (Some("cleared"), Some("signal")));
    let text = |line: &Value, field: &str| line[field].as_str().expect(field).to_owned();
    assert_eq!(format!("00-{}-{}-01", text(led, "trace_id"), text(led, "span_id")), start.variable("TRACEPARENT"));
    assert_eq!(stopped["term"].to_string(), start.variable("TENURE_TERM"));
    assert!(stopped["lease_left"].as_f64().is_some_and(|margin| margin > 0.0));
    assert!(["seconds", "stop", "proof", "release"].iter().all(|field| stopped[field].is_f64()), "{stopped}");
}

async fn without_a_collector_the_workload_is_told_of_the_span_that_the_lease_names(stage: Stage) {
    let _one = stage.start("one").await;
    let start = stage.witness.start("one", 0).await;
    let lease = stage.lease.read().await.expect("a Lease");
    assert_eq!(lease["metadata"]["annotations"]["tenure.dev/traceparent"], start.variable("TRACEPARENT"));
}
