//! Metrics as their readers see them: a real Prometheus, and what deploy/monitoring makes of them.

use std::{
    cell::Cell,
    collections::BTreeSet,
    fs,
    io::Write as _,
    net::{Ipv4Addr, SocketAddr},
    path::Path,
    process::{Command, Output, Stdio},
    rc::Rc,
    time::Duration,
};

use serde_json::{Value, json};
use support::{
    Case, Kept, PATIENCE, Stage, cases, not_run,
    spec::{held, released},
    within,
};
use tenure::clock;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

pub(crate) fn all() -> Vec<Case> {
    let mut cases =
        cases![a_real_prometheus_fires_and_clears_each_alert, a_real_prometheus_reads_the_page_and_tells_when_nobody_leads,];
    cases.extend(cases![blocking:
        each_alert_is_worded_as_it_should_be,
        each_alert_has_a_runbook,
        the_dashboard_shows_what_has_happened_once,
        what_is_shown_and_alerted_on_is_documented,
    ]);
    cases
}

fn program(name: &str) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL"]).arg(format!("{ROOT}/tests/support/debian")).args(["prometheus", name]);
    command
}

/// None, and said so, where it cannot be had.
fn promtool(arguments: &[&str], directory: &Path, input: &str) -> Option<Output> {
    let mut command = program("promtool");
    command.args(arguments).current_dir(directory).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("setpriv");
    drop(child.stdin.take().expect("piped").write_all(input.as_bytes()));
    let output = child.wait_with_output().expect("it ends");
    if output.status.code() == Some(69) {
        not_run("metrics read by a real Prometheus", String::from_utf8_lossy(&output.stderr).trim());
        return None;
    }
    let said = [&output.stdout[..], &output.stderr].concat();
    assert!(output.status.success(), "promtool {arguments:?}: {}", String::from_utf8_lossy(&said));
    Some(output)
}

/// Returns the part of deploy/monitoring/alerts.yaml that Prometheus itself takes.
fn rules() -> Value {
    let text = fs::read_to_string(format!("{ROOT}/deploy/monitoring/alerts.yaml")).expect("alerts");
    let mut object: Value = serde_saphyr::from_str(&text).expect("YAML");
    object["spec"].take()
}

fn each_alert_is_worded_as_it_should_be(stage: &Stage) {
    let directory = stage.directory();
    fs::write(directory.join("alerts.json"), rules().to_string()).expect("a file");
    fs::copy(format!("{ROOT}/tests/monitoring/alerts.test.yaml"), directory.join("alerts.test.yaml")).expect("a file");
    if promtool(&["check", "rules", "alerts.json"], directory, "").is_some() {
        promtool(&["test", "rules", "alerts.test.yaml"], directory, "");
    }
}

/// The metrics that a text names, without the suffixes of a histogram.
fn metrics_in(text: &str) -> BTreeSet<&str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let words = words.filter(|word| word.starts_with("tenure_") || word.starts_with("leader_election_"));
    words.map(|word| ["_bucket", "_sum", "_count"].iter().find_map(|part| word.strip_suffix(part)).unwrap_or(word)).collect()
}

fn each_alert_has_a_runbook(_: &Stage) {
    let rules = rules();
    let documented = fs::read_to_string(format!("{ROOT}/docs/observing.md")).expect("a page");
    for rule in rules["groups"][0]["rules"].as_array().expect("rules") {
        let name = rule["alert"].as_str().expect("a name");
        let (page, heading) = rule["annotations"]["runbook"].as_str().and_then(|link| link.split_once('#')).expect(name);
        let page = fs::read_to_string(Path::new(ROOT).join(page)).expect(page);
        let anchor = |line: &str| line.trim_start_matches('#').trim().to_lowercase().replace(' ', "-").replace('?', "");
        assert!(page.lines().any(|line| line.starts_with('#') && anchor(line) == heading), "{name}: no heading {heading}");
        assert!(documented.contains(&format!("| `{name}` |")), "{name}");
    }
}

/// A series that begins with its first count has no increase.
fn the_dashboard_shows_what_has_happened_once(stage: &Stage) {
    let dashboard = fs::read_to_string(format!("{ROOT}/deploy/monitoring/dashboard.json")).expect("a dashboard");
    let dashboard: Value = serde_json::from_str(&dashboard).expect("JSON");
    let targets = dashboard["panels"].as_array().expect("panels").iter().flat_map(|it| it["targets"].as_array()).flatten();
    let shows = |legend: &str, at: &str, labels: &str, value: f64| {
        let mut targets = targets.clone();
        let target = targets.find(|target| target["legendFormat"] == legend).expect(legend);
        let expr = target["expr"].as_str().expect(legend).replace("$namespace", "n").replace("$__rate_interval", "1m");
        json!({ "expr": expr, "eval_time": at, "exp_samples": [{ "labels": labels, "value": value }] })
    };
    let shown = json!([
        shows("{{phase}}", "20m", "{phase=\"acquire\"}", 0.9),
        shows("failed {{operation}}", "10m15s", "{operation=\"update\"}", 2.0),
        shows("failed {{operation}}", "12m", "{operation=\"update\"}", 0.0),
        shows("failed {{operation}}", "13m30s", "{operation=\"update\"}", 1.0),
    ]);
    let series = |series: &str, values: &str| json!({ "series": series, "values": values });
    let tests = json!([{ "interval": "15s", "promql_expr_test": shown, "input_series": [
        series("tenure_transition_seconds_bucket{namespace=\"n\",phase=\"acquire\",to=\"leader\",le=\"1\"}", "1x90"),
        series("tenure_transition_seconds_bucket{namespace=\"n\",phase=\"acquire\",to=\"leader\",le=\"+Inf\"}", "1x90"),
        series("tenure_request_seconds_count{namespace=\"n\",operation=\"update\",outcome=\"unknown\"}", "_x40 2x8 stale _x4 1x9"),
    ] }]);
    let tests = json!({ "evaluation_interval": "15s", "tests": tests }).to_string();
    fs::write(stage.directory().join("dashboard.test.json"), tests).expect("a file");

    promtool(&["test", "rules", "dashboard.test.json"], stage.directory(), "");
}

fn what_is_shown_and_alerted_on_is_documented(_: &Stage) {
    let read = |file: &str| fs::read_to_string(Path::new(ROOT).join(file)).expect("a file");
    let documented = read("docs/reference.md");
    for file in ["deploy/monitoring/alerts.yaml", "deploy/monitoring/dashboard.json", "docs/observing.md"] {
        let text = read(file);
        let unknown: Vec<_> = metrics_in(&text).difference(&metrics_in(&documented)).copied().collect();
        assert!(unknown.is_empty(), "{file}: {unknown:?}");
    }
}

async fn a_real_prometheus_reads_the_page_and_tells_when_nobody_leads(stage: Stage) {
    stage.lease.create(held("somebody", 3_600)).await;
    let (address, _kept) = stage.free_address();
    let me = stage.prepare("me").await.set("http.listen", address.to_string()).start();
    let Some((prometheus, _running)) = start(&stage, address) else { return };

    // Nobody leads: somebody does not answer.
    until(&stage, prometheus, "ALERTS{alertname=\"TenureLeaderless\",alertstate=\"firing\"}", "1").await;
    stage.lease.set_spec(released()).await;
    stage.witness.start("me", 0).await;
    until(&stage, prometheus, "leader_election_master_status{name=\"main\"}", "1").await;
    until(&stage, prometheus, "absent(ALERTS{alertname=\"TenureLeaderless\"})", "1").await;

    let page = stage.page(address, "/metrics").await;
    let body = page.split_once("\r\n\r\n").expect("a head").1;
    promtool(&["check", "metrics"], stage.directory(), body);
    let documented = fs::read_to_string(format!("{ROOT}/docs/reference.md")).expect("docs");
    let lost: Vec<_> = metrics_in(body).difference(&metrics_in(&documented)).copied().collect();
    assert!(lost.is_empty(), "not documented: {lost:?}");
    assert_eq!(me.stop().await, 0);
}

/// Every alert of deploy/monitoring/alerts.yaml at once, on a page that goes from calm to trouble and back.
async fn a_real_prometheus_fires_and_clears_each_alert(stage: Stage) {
    let (address, trouble) = serve().await;
    let Some((prometheus, _running)) = start(&stage, address) else { return };
    let names: Vec<_> =
        rules()["groups"][0]["rules"].as_array().expect("rules").iter().map(|rule| rule["alert"].clone()).collect();
    until(&stage, prometheus, "count(tenure_kills_total)", "3").await;
    until(&stage, prometheus, "absent(ALERTS)", "1").await;

    for (is_trouble, state) in [(true, "fires"), (false, "is clear")] {
        let begin = clock::boot();
        trouble.set(is_trouble);
        for name in &names {
            let firing = format!("ALERTS{{alertname={name},alertstate=\"firing\"}}");
            until(&stage, prometheus, &if is_trouble { firing } else { format!("absent({firing})") }, "1").await;
            eprintln!("{name} {state} within {:.1?}", clock::boot().since(begin));
        }
    }
}

/// Serves two Leases, for one of which nobody stands in for the leader in trouble, while two lead the other; and a replica that in trouble
/// changes leaders, kills its workload and renews late, again and again: its counters count the times that the page is read.
async fn serve() -> (SocketAddr, Rc<Cell<bool>>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a socket");
    let (address, trouble) = (listener.local_addr().expect("an address"), Rc::new(Cell::new(false)));
    let is_trouble = trouble.clone();
    tokio::task::spawn_local(async move {
        let (mut bad, mut good) = (0, 0);
        while let Ok((mut client, _)) = listener.accept().await {
            let trouble = is_trouble.get();
            *if trouble { &mut bad } else { &mut good } += 1;
            let (one, two, all) = (u8::from(!trouble), u8::from(trouble), bad + good);
            let page = format!(
                "leader_election_master_status{{name=\"alone\",pod=\"a\"}} {one}
leader_election_master_status{{name=\"shared\",pod=\"a\"}} 1
leader_election_master_status{{name=\"shared\",pod=\"b\"}} {two}
tenure_build_info{{pod=\"a\"}} 1
tenure_build_info{{pod=\"b\"}} 1
tenure_terms_total{{pod=\"b\",to=\"leader\",reason=\"expired\"}} {bad}
tenure_kills_total{{why=\"signal\"}} {bad}
tenure_kills_total{{why=\"expired\"}} {bad}
tenure_kills_total{{why=\"fuse\"}} {bad}
tenure_witnessed {one}
tenure_renewal_margin_seconds_bucket{{le=\"1\"}} {bad}
tenure_renewal_margin_seconds_bucket{{le=\"5\"}} {bad}
tenure_renewal_margin_seconds_bucket{{le=\"10\"}} {all}
tenure_renewal_margin_seconds_bucket{{le=\"+Inf\"}} {all}
"
            );
            let head = format!(
                "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
                page.len()
            );
            // It may have gone.
            let _ = client.read(&mut [0; 4096]).await;
            let _ = client.write_all((head + &page).as_bytes()).await;
        }
    });
    (address, trouble)
}

/// This long stands for a minute in what alerts wait for and look back on.
const MINUTE: Duration = Duration::from_millis(300);

fn shortened(duration: &str) -> String {
    let (count, unit) = duration.split_at(duration.len() - 1);
    let minutes = if unit == "h" { 60 } else { 1 } * count.parse::<u32>().expect("minutes or hours");
    format!("{}ms", (MINUTE * minutes).as_millis())
}

/// A Prometheus that scrapes this address often, with the alerts of deploy/monitoring, in which only the durations are shortened.
fn start(stage: &Stage, address: SocketAddr) -> Option<(SocketAddr, Kept)> {
    let directory = stage.directory();
    promtool(&["--version"], directory, "")?;
    let mut rules = rules();
    for rule in rules["groups"][0]["rules"].as_array_mut().expect("rules") {
        if let Some(wait) = rule["for"].as_str() {
            rule["for"] = shortened(wait).into();
        }
        let expr = rule["expr"].as_str().expect("an expression");
        let ranged = |part: &str| {
            part.split_once(']').map_or_else(|| part.into(), |(range, after)| format!("{}]{after}", shortened(range)))
        };
        rule["expr"] = expr.split('[').map(ranged).collect::<Vec<_>>().join("[").into();
    }
    let config = json!({
        "global": { "scrape_interval": "500ms", "evaluation_interval": "500ms" },
        "rule_files": ["rules.json"],
        "scrape_configs": [{ "job_name": "tenure", "static_configs": [{ "targets": [address.to_string()] }] }],
    });
    fs::write(directory.join("rules.json"), rules.to_string()).expect("a file");
    fs::write(directory.join("prometheus.json"), config.to_string()).expect("a file");
    let own = stage.free_address().0;
    let mut command = program("prometheus");
    command.arg("--config.file=prometheus.json").arg(format!("--web.listen-address={own}")).arg("--storage.tsdb.path=tsdb");
    command.current_dir(directory).stdin(Stdio::null());
    let log = fs::File::create(directory.join("prometheus.log")).expect("a log");
    let child = command.stdout(Stdio::null()).stderr(log).spawn().expect("setpriv");
    Some((own, Kept(child)))
}

/// Waits until a query has a first result with this value.
async fn until(stage: &Stage, prometheus: SocketAddr, query: &str, value: &str) {
    let path: String = form_urlencoded::Serializer::new("/api/v1/query?".to_owned()).append_pair("query", query).finish();
    within(PATIENCE, query, async {
        loop {
            // It may not listen yet.
            if tokio::net::TcpStream::connect(prometheus).await.is_ok() {
                let answer = stage.page(prometheus, &path).await;
                let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
                let json: Value = body.lines().find_map(|line| serde_json::from_str(line).ok()).unwrap_or_default();
                if json["data"]["result"][0]["value"][1] == value {
                    return;
                }
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    })
    .await;
}
