//! What becomes of a container's probes: variables by which tenure asks the program in the same way, or a refusal.
//!
//! A kubelet expands `$(VAR)` in the command of a probe and in the value of a variable alike, and nowhere else in a probe.

use std::{net::IpAddr, slice};

use serde_json::Value;

use super::{Variable, items, number, text};

/// Numbers of a probe: the key of the configuration, its unit, and the default of both.
const NUMBERS: [(&str, &str, &str, u64); 5] = [
    ("initialDelaySeconds", "INITIAL_DELAY", "s", 0),
    ("periodSeconds", "PERIOD", "s", 10),
    ("timeoutSeconds", "TIMEOUT", "s", 1),
    ("successThreshold", "SUCCESS_THRESHOLD", "", 1),
    ("failureThreshold", "FAILURE_THRESHOLD", "", 3),
];

/// Returns the variables in place of the probes, in their order.
///
/// # Errors
/// The first field that tenure cannot take over, and the remedy.
pub(super) fn variables(container: &Value) -> Result<Vec<Variable>, String> {
    let start = &container["startupProbe"];
    let mut all = Vec::new();
    for (kind, section) in [("livenessProbe", "LIVENESS"), ("readinessProbe", "READINESS"), ("startupProbe", "READINESS")] {
        let (keys, prefix) = (keys(container, kind)?, format!("TENURE_WORKLOAD__{section}__"));
        let is_own = items(&container["env"]).iter().any(|own| text(&own["name"]).starts_with(&prefix));
        if !is_own && (kind != "readinessProbe" || !start.is_object()) {
            all.extend(keys.into_iter().map(|(key, value)| (format!("{prefix}{key}"), value)));
        }
    }
    if start.is_object() {
        let [delay, period, _, _, failures] = NUMBERS.map(|(field, _, _, default)| count(start, field, default));
        all.push(("TENURE_WORKLOAD__START_TIMEOUT".into(), format!("{}s", delay + period * failures)));
    }
    Ok(all)
}

/// Returns the keys of one probe, without those whose value is tenure's default too.
fn keys(container: &Value, kind: &str) -> Result<Vec<Variable>, String> {
    let probe = &container[kind];
    let refused = |field: &str, why: &str| Err(format!("{kind}.{field} of the container {}{why}", container["name"]));
    let mut all: Vec<Variable> = Vec::new();
    let mut put = |key: &str, value: String| all.push((key.to_owned(), value));
    if probe["grpc"].is_object() {
        return refused("grpc", ": tenure asks by httpGet, tcpSocket or exec: write one of them");
    }
    if probe["exec"].is_object() {
        put("EXEC__COMMAND", probe["exec"]["command"].to_string());
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
        let Some(port) = number(&asks["port"], slice::from_ref(container)) else {
            return refused(&format!("{handler}.port"), " is none of its ports: write its number");
        };
        put(&format!("{section}__PORT"), port.to_string());
        put(&format!("{section}__HOST"), host.to_owned());
    }
    let get = &probe["httpGet"];
    if get.is_object() {
        let path = text(&get["path"]);
        put("HTTP__PATH", literal(&format!("{}{path}", if path.starts_with('/') { "" } else { "/" })));
        if get["scheme"] == "HTTPS" {
            put("HTTP__SCHEME", "https".into());
        }
        let headers = items(&get["httpHeaders"]).iter().map(|one| format!("{}:{}", one["name"], one["value"]));
        let headers = headers.collect::<Vec<_>>().join(",");
        if !headers.is_empty() {
            put("HTTP__HEADERS", literal(&format!("{{{headers}}}")));
        }
    }
    for (field, key, unit, default) in NUMBERS {
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

/// A text in which a kubelet expands nothing.
fn literal(text: &str) -> String {
    text.replace('$', "$$")
}
