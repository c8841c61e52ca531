//! What becomes of a container's probes: variables by which tenure asks the program in the same way, or a refusal.
//!
//! A kubelet expands `$(VAR)` in the command of a probe and in the value of a variable alike, and nowhere else in a probe.

use std::{net::IpAddr, slice};

use serde_json::Value;

use super::{Variable, has_control, items, number, text};

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
    let refused = |field: String, why: &str| format!("{kind}.{field} of the container {}{why}", container["name"]);
    let grace = "terminationGracePeriodSeconds";
    if !probe[grace].is_null() {
        return Err(refused(grace.into(), ": tenure stops a program with the grace of the pod: remove it"));
    }
    if probe["grpc"].is_object() {
        return Err(refused("grpc".into(), ": tenure asks by httpGet, tcpSocket or exec: write one of them"));
    }
    if items(&probe["exec"]["command"]).iter().any(|word| has_control(text(word))) {
        return Err(refused("exec.command".into(), " has a control character: remove it, or put the command into a file"));
    }
    let mut keys = vec![("EXEC__COMMAND", probe["exec"].is_object().then(|| probe["exec"]["command"].to_string()))];
    for (handler, port_key, host_key) in [("httpGet", "HTTP__PORT", "HTTP__HOST"), ("tcpSocket", "TCP__PORT", "TCP__HOST")] {
        let asks = &probe[handler];
        if !asks.is_object() {
            continue;
        }
        let host = text(&asks["host"]);
        if !host.is_empty() && host.parse::<IpAddr>().is_err() {
            return Err(refused(format!("{handler}.host"), " is no IP address: write one, or remove it"));
        }
        let port = number(&asks["port"], slice::from_ref(container));
        let port = port.ok_or_else(|| refused(format!("{handler}.port"), " is none of its ports: write its number"))?;
        // As the kubelet does: at the address of the pod, unless the probe has another.
        let host = if host.is_empty() { "$(POD_IP)" } else { host };
        keys.extend([(port_key, Some(port.to_string())), (host_key, Some(host.to_owned()))]);
    }
    let (get, path) = (&probe["httpGet"], text(&probe["httpGet"]["path"]));
    let headers: Vec<_> =
        items(&get["httpHeaders"]).iter().map(|one| format!("{}:{}", one["name"], Value::from(text(&one["value"])))).collect();
    keys.extend([
        ("HTTP__PATH", get.is_object().then(|| literal(&format!("/{}", path.strip_prefix('/').unwrap_or(path))))),
        ("HTTP__SCHEME", (get["scheme"] == "HTTPS").then(|| "https".into())),
        ("HTTP__HEADERS", (!headers.is_empty()).then(|| literal(&format!("{{{}}}", headers.join(","))))),
    ]);
    for (field, key, unit, default) in NUMBERS {
        let number = count(probe, field, default);
        keys.push((key, (number != default).then(|| format!("{number}{unit}"))));
    }
    Ok(keys.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect())
}

/// Returns a number of a probe. To Kubernetes 0 is the default.
fn count(probe: &Value, field: &str, default: u64) -> u64 {
    probe[field].as_u64().filter(|number| *number > 0).unwrap_or(default)
}

/// A text in which a kubelet expands nothing.
fn literal(text: &str) -> String {
    text.replace('$', "$$")
}
