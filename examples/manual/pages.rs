//! What is generated from the code: each file's name, and what is in it.

use std::{fmt::Write as _, io};

use clap_complete::Shell;
use serde_json::{Value, json};
use tenure::{
    cli::manual,
    config,
    telemetry::names::{self, Kind, Metric},
};

/// The editor's schema, beside the file of defaults whose first line names it.
const SCHEMA: &str = "tenure.schema.json";

/// Files of the repository.
pub(crate) fn kept() -> Vec<(String, Vec<u8>)> {
    vec![
        ("docs/reference.md".into(), reference().into_bytes()),
        (format!("config/{SCHEMA}"), config::schema().into_bytes()),
        ("deploy/helm/tenure/values.schema.json".into(), values().into_bytes()),
    ]
}

/// Files of a release.
pub(crate) fn shipped() -> io::Result<Vec<(String, Vec<u8>)>> {
    let mut files = vec![(SCHEMA.to_owned(), config::schema().into_bytes())];
    for (shell, name) in [(Shell::Bash, "tenure.bash"), (Shell::Zsh, "_tenure"), (Shell::Fish, "tenure.fish")] {
        files.push((format!("completions/{name}"), manual::completions(shell)));
    }
    for face in manual::faces() {
        files.push((format!("man/{}.1", manual::title(&face)), manual::page(&face)?));
    }
    Ok(files)
}

/// The schema of the chart's values, in which `config` is what the configuration file may be.
fn values() -> String {
    let mut config: Value = serde_json::from_str(&config::schema()).unwrap_or_default();
    let definitions = config["$defs"].take();
    for root in ["$defs", "$schema"] {
        config.as_object_mut().and_then(|config| config.remove(root));
    }
    let of = |kind: &str| json!({ "type": kind });
    let object = |properties: Value| json!({ "type": "object", "properties": properties, "additionalProperties": false });
    let schema = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$defs": definitions,
        "type": "object",
        "additionalProperties": false,
        "properties": {
            "image": object(json!({
                "repository": { "type": "string", "minLength": 1 },
                "tag": of("string"),
                "pullPolicy": { "enum": ["Always", "IfNotPresent", "Never"] },
            })),
            "inject": object(json!({ "repository": of("string"), "tag": of("string") })),
            "args": { "type": "array", "items": of("string") },
            "replicas": { "type": "integer", "minimum": 0 },
            "config": config,
            "env": of("array"),
            "resources": of("object"),
            "terminationGracePeriodSeconds": { "type": "integer", "minimum": 1 },
            "livenessFailureThreshold": { "type": "integer", "minimum": 1 },
            "user": { "type": ["integer", "null"], "minimum": 1 },
            "podLabels": of("object"),
            "podAnnotations": of("object"),
            "volumes": of("array"),
            "volumeMounts": of("array"),
            "nodeSelector": of("object"),
            "tolerations": of("array"),
            "affinity": of("object"),
            "imagePullSecrets": of("array"),
            "serviceAccount": object(json!({ "name": of("string"), "annotations": of("object") })),
            "disruptionBudget": of("boolean"),
            "networkPolicy": of("boolean"),
            "podMonitor": of("boolean"),
            "priority": of("boolean"),
            "global": of("object"),
        },
    });
    format!("{schema:#}\n")
}

/// docs/reference.md.
fn reference() -> String {
    let mut page = "# Reference\n\nWritten from the code by `cargo run --example manual`. Every key of the configuration is in\n\
        [`config/tenure.yaml`](../config/tenure.yaml). The laws are those of [`src/law.rs`](../src/law.rs).\n"
        .to_owned();
    page.push_str("\n## Exit codes\n\nHow they arise is in [Signals and exit codes](signals-and-exit-codes.md).\n");
    let codes = constants(include_str!("../../src/exit.rs"));
    table(&mut page, ["code", ""], codes.into_iter().map(|(says, value)| [value.to_owned(), says]));
    page.push_str("\n## Names on a Lease\n");
    let names = [include_str!("../../src/election/writes.rs"), include_str!("../../src/election/traffic.rs")];
    let names = names.into_iter().flat_map(quoted).filter(|[name, _]| name.contains("tenure.dev/"));
    table(&mut page, ["name", ""], names.map(|[name, says]| [name.replace("/`", "/…`"), says]));
    page.push_str(REASONS);
    let reasons = [(ELECTION, "AcquireReason"), (TRANSITION, "TransitionReason")];
    table(&mut page, ["it began", ""], reasons.into_iter().flat_map(|(source, name)| words(source, name)));
    table(&mut page, ["it ended", ""], words(include_str!("../../src/link/term.rs"), "Reason"));
    page.push_str(METRICS);
    table(&mut page, ["metric", "by OTLP", "labels", "kind", ""], names::METRICS.iter().map(metric));
    page.push_str("\nThe `outcome` of a request:\n");
    table(&mut page, ["outcome", ""], words(NAMES, "RequestOutcome"));
    page.push_str(SPANS);
    table(&mut page, ["span", ""], words(TRANSITION, "PhaseKind"));
    table(&mut page, ["attribute", ""], quoted(NAMES));
    page.push_str("\nHow a Lease was given back, `tenure.release`:\n");
    table(&mut page, ["release", ""], words(ELECTION, "ReleaseResult"));
    page.push_str("\n## Command line\n");
    for mut face in manual::faces() {
        let name = face.get_bin_name().unwrap_or("tenure").to_owned();
        let help = face.render_long_help().to_string();
        let help: Vec<_> = help.lines().map(str::trim_end).collect();
        let _ = write!(page, "\n### {name}\n\n```text\n{}\n```\n", help.join("\n").trim());
    }
    page
}

const ELECTION: &str = include_str!("../../src/election/mod.rs");
const TRANSITION: &str = include_str!("../../src/election/transition.rs");
const NAMES: &str = include_str!("../../src/telemetry/names.rs");

const REASONS: &str = "
## Reasons

Why a term began or ended: `reason` in logs and metrics, `tenure.reason` in spans, `TENURE_REASON` for hooks.
";
const METRICS: &str = "
## Metrics

How they are read, and what to look at, is in [Metrics](metrics.md). `phase` is the name of a [span](#spans), `reason` and `why` are
[reasons](#reasons). Beside them `/metrics` has `target_info`, the resource.
";
const SPANS: &str = "
## Spans

Each change of role is a span `transition` with its parts as children. In a handover the new leader's is a child of the old one's; one that
took the Lease after a crash is a trace of its own, with a link to that, and so is the end of a term, with a link to its beginning. A campaign that
was lost and a wait that was in vain have no `transition`. The resource has `service.name`, `service.version` and, as `service.instance.id`,
the identity.
";

fn table<const N: usize>(page: &mut String, head: [&str; N], rows: impl IntoIterator<Item = [String; N]>) {
    let row = |cells: String| format!("| {cells} |\n").replace("|  |", "| |");
    let _ = write!(page, "\n{}|{}\n", row(head.join(" | ")), "---|".repeat(N));
    page.extend(rows.into_iter().map(|cells| row(cells.join(" | "))));
}

/// A row: its name for Prometheus, as the exporter makes it, and by OTLP.
fn metric(metric: &Metric) -> [String; 5] {
    let Metric { name, kind, unit, labels, says } = *metric;
    let unit = if unit.is_empty() { "" } else { "_seconds" };
    let (total, kind) = match kind {
        Kind::Counter => ("_total", "counter"),
        Kind::Gauge => ("", "gauge"),
        Kind::Histogram => ("", "histogram"),
    };
    let labels: Vec<_> = labels.iter().map(|label| format!("`{label}`")).collect();
    let on_page = format!("`{}{unit}{total}`", name.replace('.', "_"));
    [on_page, format!("`{name}`"), labels.join(", "), kind.into(), says.into()]
}

/// The constants of a source, by what their documentation says.
fn constants(source: &str) -> Vec<(String, &str)> {
    let (mut found, mut says) = (Vec::new(), Vec::new());
    for line in source.lines() {
        if let Some(words) = line.strip_prefix("/// ") {
            says.push(words);
        } else {
            let constant = line.strip_prefix("pub const ").or_else(|| line.strip_prefix("pub(super) const "));
            let value = constant.and_then(|rest| rest.split_once(" = "));
            found.extend(value.map(|(_, value)| (says.join(" "), value.trim_end_matches(';'))));
            says.clear();
        }
    }
    found
}

/// Rows of those that are a text.
fn quoted(source: &str) -> Vec<[String; 2]> {
    let texts = constants(source).into_iter().filter(|(_, value)| value.starts_with('"'));
    texts.map(|(says, value)| [value.replace('"', "`"), says]).collect()
}

/// Rows of the words that an enum has for its variants, by what the documentation of those says.
fn words(source: &str, name: &str) -> Vec<[String; 2]> {
    let block = |head: &str| {
        let (_, block) = source.split_once(&format!("{head} {name} {{\n")).unwrap_or_default();
        block.split("\n}").next().unwrap_or_default()
    };
    let (arms, variants) = (block("impl"), block("enum"));
    let margin = variants.len() - variants.trim_start().len();
    let (mut found, mut says) = (Vec::new(), Vec::new());
    for line in variants.lines().filter_map(|line| line.get(margin..)).filter(|line| !line.starts_with(' ')) {
        if let Some(words) = line.strip_prefix("/// ") {
            says.push(words);
            continue;
        }
        let variant: String = line.chars().take_while(char::is_ascii_alphanumeric).collect();
        let arm = format!("Self::{variant}");
        let rest = arms.lines().filter_map(|line| line.trim().strip_prefix(&arm)).find(|rest| rest.starts_with([' ', '(']));
        // Beside the variant (`worded!`), or in a match.
        let word = line.split('"').nth(1).or_else(|| rest?.split('"').nth(1));
        found.extend(word.map(|word| [format!("`{word}`"), says.join(" ")]));
        says.clear();
    }
    found
}
