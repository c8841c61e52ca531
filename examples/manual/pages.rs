//! The name and the content of each file that is generated from the code.

use std::{fmt::Write as _, io};

use clap_complete::Shell;
use serde_json::{Value, json};
use tenure::{
    cli::manual,
    loading,
    telemetry::names::{self, Kind, Metric},
};

#[path = "contract.rs"]
pub(crate) mod contract;
#[path = "pictures.rs"]
mod pictures;

/// The file of the [`contract`].
pub(crate) const CONTRACT: &str = "tests/contract.txt";

/// The schema for editors. The first line of the file of defaults beside it names it.
const SCHEMA: &str = "tenure.schema.json";

/// The files of the repository.
pub(crate) fn kept() -> Vec<(String, Vec<u8>)> {
    let reference = reference();
    let contract = contract::written(&contract::of_the_code(&reference, &values()));
    vec![
        (CONTRACT.into(), contract.into_bytes()),
        ("docs/reference.md".into(), reference.into_bytes()),
        (format!("config/{SCHEMA}"), loading::schema().into_bytes()),
        ("deploy/helm/tenure/values.schema.json".into(), values().into_bytes()),
        ("docs/pictures/timing.svg".into(), pictures::timing().into_bytes()),
        ("docs/pictures/processes.svg".into(), pictures::processes().into_bytes()),
    ]
}

/// The files of a release.
pub(crate) fn shipped() -> io::Result<Vec<(String, Vec<u8>)>> {
    let mut files = vec![(SCHEMA.to_owned(), loading::schema().into_bytes())];
    for (shell, name) in [(Shell::Bash, "tenure.bash"), (Shell::Zsh, "_tenure"), (Shell::Fish, "tenure.fish")] {
        files.push((format!("completions/{name}"), manual::completions(shell)));
    }
    for face in manual::faces() {
        files.push((format!("man/{}.1", manual::title(&face)), manual::page(&face)?));
    }
    Ok(files)
}

/// The schema of the chart's values. `config` has the schema of the configuration file.
fn values() -> String {
    let mut config: Value = serde_json::from_str(&loading::schema()).unwrap_or_default();
    let definitions = config["$defs"].take();
    for root in ["$defs", "$schema"] {
        config.as_object_mut().and_then(|config| config.remove(root));
    }
    // A map, or the text of a file.
    config["type"] = json!(["object", "null", "string"]);
    let of = |kind: &str| json!({ "type": kind });
    let digest = json!({ "type": "string", "pattern": "^(sha256:[0-9a-f]{64})?$" });
    let ports = json!({ "type": "array", "items": { "type": "integer", "minimum": 1, "maximum": 65535 }, "minItems": 1 });
    let object = |properties: Value| json!({ "type": "object", "properties": properties, "additionalProperties": false });
    let mut properties = json!({
        "image": object(json!({
            "repository": { "type": "string", "minLength": 1 },
            "tag": of("string"),
            "digest": digest,
            "pullPolicy": { "enum": ["Always", "IfNotPresent", "Never"] },
        })),
        "inject": object(json!({ "repository": of("string"), "tag": of("string"), "digest": digest })),
        "args": { "type": "array", "items": of("string") },
        "replicas": { "type": "integer", "minimum": 0 },
        "config": config,
        "kind": { "enum": ["Deployment", "StatefulSet"] },
        "tenureResources": object(json!({ "install": of("object"), "witness": of("object") })),
        "terminationGracePeriodSeconds": { "type": ["integer", "null"], "minimum": 1 },
        "livenessFailureThreshold": { "type": ["integer", "null"], "minimum": 1 },
        "serviceAccount": object(json!({ "create": of("boolean"), "name": of("string"), "annotations": of("object") })),
        "apiServerPorts": ports,
        "podMonitorLabels": { "type": ["object", "null"], "additionalProperties": of("string") },
    });
    let plain = [
        ("array", "volumeClaimTemplates env envFrom ports initContainers volumes volumeMounts tolerations imagePullSecrets"),
        ("boolean", "witness disruptionBudget networkPolicy podMonitor priority"),
        ("object", "lifecycle resources podSecurityContext securityContext podLabels podAnnotations nodeSelector affinity"),
        ("object", "global"),
        ("string", "nameOverride priorityClassName"),
    ];
    for (kind, names) in plain {
        names.split(' ').for_each(|name| properties[name] = of(kind));
    }
    let schema = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$defs": definitions,
        "type": "object",
        "additionalProperties": false,
        "properties": properties,
    });
    format!("{schema:#}\n")
}

/// The names that only the policies of deploy/inject know.
const OF_POLICIES: [[&str; 2]; 2] = [
    ["`tenure.dev/inject`", "Scheduling gate in a template: its pods wait until the policy has put tenure into them."],
    ["`tenure.dev/refused`", "Annotation: why the policies refuse a pod or a template."],
];

/// The text of docs/reference.md.
fn reference() -> String {
    let mut page = "# Reference\n\n`cargo run --example manual` writes this page from the code. [`config/tenure.yaml`](../config/tenure.yaml) has every\n\
        key of the configuration. The [glossary](glossary.md) defines the words.\n"
        .to_owned();
    page.push_str("\n## Exit codes\n\n[Signals and exit codes](signals-and-exit-codes.md) says how they arise.\n");
    let codes = constants(include_str!("../../src/exit.rs"));
    table(&mut page, ["code", "meaning"], codes.into_iter().map(|(says, value)| [value.to_owned(), says]));
    page.push_str("\n## Names on a Lease\n");
    let names = [
        include_str!("../../src/election/names.rs"),
        include_str!("../../src/election/publication.rs"),
        include_str!("../../src/transaction/mod.rs"),
    ];
    let names = names.into_iter().flat_map(quoted).filter(|[name, _]| name.contains("tenure.dev/"));
    table(&mut page, ["name", "meaning"], names.map(|[name, says]| [name.replace("/`", "/…`"), says]));
    page.push_str("\n## Names on a pod\n\n[Existing charts](existing-charts.md) shows their use.\n");
    let names = quoted(include_str!("../../src/inject/names.rs"));
    table(&mut page, ["name", "meaning"], names.into_iter().chain(OF_POLICIES.map(|row| row.map(str::to_owned))));
    page.push_str(REASONS);
    let reasons = [(ELECTION, "AcquireReason"), (TRANSITION, "TransitionReason")];
    table(&mut page, ["it began", "meaning"], reasons.into_iter().flat_map(|(source, name)| words(source, name)));
    table(&mut page, ["it ended", "meaning"], words(include_str!("../../src/link/term.rs"), "Reason"));
    page.push_str(METRICS);
    table(&mut page, ["metric", "by OTLP", "labels", "kind", "meaning"], names::METRICS.iter().map(metric));
    page.push_str("\nThe `outcome` of a request:\n");
    table(&mut page, ["outcome", "meaning"], words(NAMES, "RequestOutcome"));
    page.push_str(OF_TRANSACTIONS);
    let of_transactions = names::OF_TRANSACTIONS.iter().map(|of| {
        let [_, name, labels, kind, says] = metric(of);
        [name, labels, kind, says]
    });
    table(&mut page, ["metric", "labels", "kind", "meaning"], of_transactions);
    page.push_str("\nThe `outcome` of a command, `tenure.transactions`:\n");
    table(&mut page, ["outcome", "meaning"], words(include_str!("../../src/transaction/mod.rs"), "Outcome"));
    page.push_str("\nThe `outcome` of a change, `tenure.changes`:\n");
    table(&mut page, ["outcome", "meaning"], words(include_str!("../../src/transaction/journal.rs"), "State"));
    page.push_str(SPANS);
    table(&mut page, ["span", "what it covers"], words(TRANSITION, "PhaseKind"));
    table(&mut page, ["attribute", "meaning"], quoted(NAMES));
    page.push_str("\nWhat a release did to the Lease, `tenure.release`:\n");
    table(&mut page, ["release", "meaning"], words(ELECTION, "ReleaseResult"));
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
const TRANSITION: &str = include_str!("../../src/telemetry/transition.rs");
const NAMES: &str = include_str!("../../src/telemetry/names.rs");

const REASONS: &str = "
## Reasons

A reason says why a term began or ended: `reason` in logs and metrics, `tenure.reason` in spans. The hooks
beforeFollow and afterFollow get the reason of the end as `TENURE_REASON`.
";
const METRICS: &str = "
## Metrics

[Observing](observing.md#metrics) says how to read them, and what to look at. `phase` is the name of a [span](#spans); `reason` and `why` are
[reasons](#reasons). `/metrics` also has `target_info`: the resource, without the keys that no label of Prometheus may have, such
as `3scale.env`.
";
const OF_TRANSACTIONS: &str = "
### Metrics of transactions

`apply`, `recover`, `promote` and `demote` send these by OTLP, when they end and every 60 s. They are not at `/metrics`.
";
const SPANS: &str = "
## Spans

Each change of role is a span `transition`, with its parts as children.

- **Handover:** the new leader's transition is a child of the old leader's.
- **Takeover:** the new leader's transition is a trace of its own, with a link to the old leader's.
- **End of a term:** a trace of its own, with a link to the beginning of the term.
- **No transition:** a campaign that another replica won, and a wait that ended without the Lease.
- **Transactions:** `apply`, `recover`, `promote` and `demote` have a span `transaction` below the transition of their term. Its parts are `plan`,
  and a `change` or an `undo` for each object.

The resource has `service.name`, `service.version`, and the identity as `service.instance.id`.
";

fn table<const N: usize>(page: &mut String, head: [&str; N], rows: impl IntoIterator<Item = [String; N]>) {
    let row = |cells: String| format!("| {cells} |\n").replace("|  |", "| |");
    let _ = write!(page, "\n{}|{}\n", row(head.join(" | ")), "---|".repeat(N));
    page.extend(rows.into_iter().map(|cells| row(cells.join(" | "))));
}

/// The row of a metric, with its name for Prometheus, as the exporter forms it, and its name by OTLP.
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

/// The constants of a source, each with its documentation.
fn constants(source: &str) -> Vec<(String, &str)> {
    let (mut found, mut says) = (Vec::new(), Vec::new());
    for line in source.lines() {
        if let Some(words) = line.strip_prefix("/// ") {
            says.push(words);
        } else {
            let constant = line.strip_prefix("pub const ").or_else(|| line.strip_prefix("pub(super) const "));
            let value = constant.and_then(|rest| rest.split_once(" = "));
            found.extend(value.map(|(_, value)| (joined(&says), value.trim_end_matches(';'))));
            says.clear();
        }
    }
    found
}

/// The lines of a documentation as one, without the numbers of laws, which are for those who read the source.
fn joined(says: &[&str]) -> String {
    let mut text = says.join(" ");
    while let Some((before, rest)) = text.split_once(" (law ") {
        let (_, after) = rest.split_once(')').unwrap_or_default();
        text = format!("{before}{after}");
    }
    text
}

/// The rows of the constants that are texts.
pub(super) fn quoted(source: &str) -> Vec<[String; 2]> {
    let texts = constants(source).into_iter().filter(|(_, value)| value.starts_with('"'));
    texts.map(|(says, value)| [value.replace('"', "`"), says]).collect()
}

/// A row for each variant of an enum: its word and its documentation.
fn words(source: &str, name: &str) -> Vec<[String; 2]> {
    let block = |head: &str| {
        let (_, block) = source.split_once(&format!("{head} {name} {{\n")).unwrap_or_default();
        block.split("\n}").next().unwrap_or_default()
    };
    let (arms, variants) = (block("impl"), block("enum"));
    let margin = variants.len() - variants.trim_start().len();
    let (mut found, mut says) = (Vec::new(), Vec::new());
    for line in variants.lines().filter_map(|line| line.get(margin..)).filter(|line| !line.starts_with([' ', '#'])) {
        if let Some(words) = line.strip_prefix("/// ") {
            says.push(words);
            continue;
        }
        let variant: String = line.chars().take_while(char::is_ascii_alphanumeric).collect();
        let arm = format!("Self::{variant}");
        let rest = arms.lines().filter_map(|line| line.trim().strip_prefix(&arm)).find(|rest| rest.starts_with([' ', '(']));
        // The word is beside the variant (`worded!`), or in a match.
        let word = line.split('"').nth(1).or_else(|| rest?.split('"').nth(1));
        found.extend(word.map(|word| [format!("`{word}`"), joined(&says)]));
        says.clear();
    }
    found
}
