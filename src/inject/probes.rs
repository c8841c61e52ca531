//! What becomes of a container's probes: variables by which tenure asks the program in the same way, or a refusal.
//!
//! A kubelet expands `$(VAR)` in the command of a probe and in the value of a variable alike, and nowhere else in a probe.

use std::net::IpAddr;

use serde_json::Value;

use super::{items, text};

/// A key of the configuration as a variable names it, and its value.
type Key = (String, String);

/// Returns the variables in place of the probes, in their order.
///
/// # Errors
/// The first field that tenure cannot take over, and the remedy.
pub(super) fn variables(container: &Value) -> Result<Vec<Key>, String> {
    let [liveness, readiness, startup] = ["livenessProbe", "readinessProbe", "startupProbe"].map(|kind| keys(container, kind));
    let (liveness, mut readiness, startup) = (liveness?, readiness?, startup?);
    let start = &container["startupProbe"];
    if start.is_object() {
        readiness = startup;
    }
    let is_own = |prefix: &str| items(container, "env").iter().any(|variable| text(&variable["name"]).starts_with(prefix));
    let mut all = Vec::new();
    for (prefix, keys) in [("TENURE_WORKLOAD__LIVENESS__", liveness), ("TENURE_WORKLOAD__READINESS__", readiness)] {
        if !is_own(prefix) {
            all.extend(keys.into_iter().map(|(key, value)| (format!("{prefix}{key}"), value)));
        }
    }
    if start.is_object() {
        let limit =
            count(start, "initialDelaySeconds", 0) + count(start, "periodSeconds", 10) * count(start, "failureThreshold", 3);
        all.push(("TENURE_WORKLOAD__START_TIMEOUT".into(), format!("{limit}s")));
    }
    Ok(all)
}

/// Returns the keys of one probe, without those whose value is tenure's default too.
fn keys(container: &Value, kind: &str) -> Result<Vec<Key>, String> {
    let probe = &container[kind];
    let refused = |field: &str, why: &str| {
        let name = text(&container["name"]);
        Err(format!("{kind}.{field} of the container {name:?}{why}"))
    };
    let mut all: Vec<Key> = Vec::new();
    let mut put = |key: &str, value: String| all.push((key.to_owned(), value));
    if probe["grpc"].is_object() {
        return refused("grpc", ": tenure asks by httpGet, tcpSocket or exec: write one of them");
    }
    if probe["exec"].is_object() {
        let words: Vec<_> = items(&probe["exec"], "command").iter().map(quoted).collect();
        put("EXEC__COMMAND", format!("[{}]", words.join(",")));
    }
    for (handler, section) in [("httpGet", "HTTP"), ("tcpSocket", "TCP")] {
        let asks = &probe[handler];
        if !asks.is_object() {
            continue;
        }
        // As the kubelet does: at the address of the pod, unless the probe has another.
        let host = match text(&asks["host"]) {
            "" => "$(POD_IP)",
            host if host.parse::<IpAddr>().is_ok() => host,
            _ => return refused(&format!("{handler}.host"), " is no IP address: write one, or remove it"),
        };
        let named = || items(container, "ports").iter().find(|port| port["name"] == asks["port"])?["containerPort"].as_u64();
        let Some(port) = asks["port"].as_u64().or_else(named) else {
            return refused(&format!("{handler}.port"), " is none of its ports: write its number");
        };
        put(&format!("{section}__PORT"), port.to_string());
        put(&format!("{section}__HOST"), host.to_owned());
        if section == "TCP" {
            continue;
        }
        let path = text(&asks["path"]);
        put("HTTP__PATH", literal(&format!("{}{path}", if path.starts_with('/') { "" } else { "/" })));
        if asks["scheme"] == "HTTPS" {
            put("HTTP__SCHEME", "https".into());
        }
        let headers = items(asks, "httpHeaders").iter().map(|one| format!("{}:{}", quoted(&one["name"]), quoted(&one["value"])));
        let headers = headers.collect::<Vec<_>>().join(",");
        if !headers.is_empty() {
            put("HTTP__HEADERS", literal(&format!("{{{headers}}}")));
        }
    }
    for (field, key, unit, default) in [
        ("initialDelaySeconds", "INITIAL_DELAY", "s", 0),
        ("periodSeconds", "PERIOD", "s", 10),
        ("timeoutSeconds", "TIMEOUT", "s", 1),
        ("successThreshold", "SUCCESS_THRESHOLD", "", 1),
        ("failureThreshold", "FAILURE_THRESHOLD", "", 3),
    ] {
        let number = count(probe, field, default);
        if number != default {
            put(key, format!("{number}{unit}"));
        }
    }
    Ok(all)
}

/// Returns a number of a probe. To Kubernetes 0 is the default.
fn count(probe: &Value, field: &str, default: u64) -> u64 {
    probe[field].as_u64().filter(|number| *number > 0).unwrap_or(default)
}

/// Puts a text in quotes, as YAML reads it, and as `strings.quote` of the policy writes it.
fn quoted(word: &Value) -> String {
    let escape = |c: char| match c {
        '\u{7}' => "\\a".into(),
        '\u{8}' => "\\b".into(),
        '\u{b}' => "\\v".into(),
        '\u{c}' => "\\f".into(),
        '\n' => "\\n".into(),
        '\r' => "\\r".into(),
        '\t' => "\\t".into(),
        '\\' | '"' => format!("\\{c}"),
        c => c.to_string(),
    };
    format!("\"{}\"", text(word).chars().map(escape).collect::<String>())
}

/// A text in which a kubelet expands nothing.
fn literal(text: &str) -> String {
    text.replace('$', "$$")
}
