//! What is generated from the code: each file's name, and what is in it.

use std::{fmt::Write as _, io};

use clap_complete::Shell;
use serde_json::{Value, json};
use tenure::{cli::manual, config};

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
        [`config/tenure.yaml`](../config/tenure.yaml), every metric in [Metrics](metrics.md). The laws are those of [`src/law.rs`](../src/law.rs).\n\n## Exit codes\n\nHow they arise is in \
        [Signals and exit codes](signals-and-exit-codes.md).\n\n| code | |\n|---|---|\n"
        .to_owned();
    for (says, value) in constants(include_str!("../../src/exit.rs")) {
        let _ = writeln!(page, "| {value} | {says} |");
    }
    page.push_str("\n## Names on a Lease\n\n| name | |\n|---|---|\n");
    for (says, value) in constants(include_str!("../../src/election/writes.rs")) {
        if value.starts_with("\"tenure.dev/") {
            let _ = writeln!(page, "| `{}` | {says} |", value.trim_matches('"'));
        }
    }
    page.push_str("\n## Command line\n");
    for mut face in manual::faces() {
        let name = face.get_bin_name().unwrap_or("tenure").to_owned();
        let help = face.render_long_help().to_string();
        let help: Vec<_> = help.lines().map(str::trim_end).collect();
        let _ = write!(page, "\n### {name}\n\n```text\n{}\n```\n", help.join("\n").trim());
    }
    page
}

/// The public constants of a source, by what their documentation says.
fn constants(source: &str) -> Vec<(String, &str)> {
    let (mut found, mut says) = (Vec::new(), Vec::new());
    for line in source.lines() {
        if let Some(words) = line.strip_prefix("/// ") {
            says.push(words);
        } else {
            let value = line.strip_prefix("pub const ").and_then(|rest| rest.split_once(" = "));
            found.extend(value.map(|(_, value)| (says.join(" "), value.trim_end_matches(';'))));
            says.clear();
        }
    }
    found
}
