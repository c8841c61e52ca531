//! What becomes of a container's probes: variables by which tenure asks the program in the same way.
//!
//! A kubelet expands `$(VAR)` in the command of a probe and in the value of a variable alike, and nowhere else in a probe.

use std::net::IpAddr;

use serde_json::Value;

use super::{asked::Asked, items};

const LIVENESS: &str = "livenessProbe";
const READINESS: &str = "readinessProbe";
const STARTUP: &str = "startupProbe";

/// Judges whether tenure can ask what the probes of a container ask.
///
/// # Errors
/// The first field that it cannot take over, and the remedy.
pub(super) fn judge(container: &Value) -> Result<(), String> {
    let name = container["name"].as_str().unwrap_or_default();
    for kind in [LIVENESS, READINESS, STARTUP] {
        let probe = &container[kind];
        if probe["grpc"].is_object() {
            return Err(format!(
                "{kind}.grpc of the container {name:?}: tenure asks by httpGet, tcpSocket or exec: write one of them"
            ));
        }
        for handler in ["httpGet", "tcpSocket"] {
            let (host, port) = (&probe[handler]["host"], &probe[handler]["port"]);
            if host.as_str().is_some_and(|host| !host.is_empty() && host.parse::<IpAddr>().is_err()) {
                return Err(format!("{kind}.{handler}.host of the container {name:?} is no IP address: write one, or remove it"));
            }
            if port.is_string() && number(container, port).is_none() {
                return Err(format!("{kind}.{handler}.port of the container {name:?} is none of its ports: write its number"));
            }
        }
    }
    Ok(())
}

/// The variables in place of the probes, in their order.
pub(super) fn variables(asked: &Asked<'_>) -> Vec<(String, String)> {
    let container = asked.container;
    let has_startup = container[STARTUP].is_object();
    let readiness = &container[if has_startup { STARTUP } else { READINESS }];
    let mut all = Vec::new();
    for (name, probe) in [("LIVENESS", &container[LIVENESS]), ("READINESS", readiness)] {
        let prefix = format!("TENURE_WORKLOAD__{name}__");
        let is_own = |variable: &Value| variable["name"].as_str().is_some_and(|name| name.starts_with(&prefix));
        if probe.is_object() && !items(container, "env").iter().any(is_own) {
            all.extend(variables_of(container, probe).into_iter().map(|(key, text)| (format!("{prefix}{key}"), text)));
        }
    }
    if has_startup {
        let seconds = |key, default| readiness[key].as_u64().unwrap_or(default);
        let limit = seconds("initialDelaySeconds", 0) + seconds("periodSeconds", 10) * seconds("failureThreshold", 3);
        all.push(("TENURE_WORKLOAD__START_TIMEOUT".into(), format!("{limit}s")));
    }
    all
}

/// The variables of one probe, without what is tenure's default too.
fn variables_of(container: &Value, probe: &Value) -> Vec<(&'static str, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    // As the kubelet does: at the address of the pod, unless the probe has another.
    let host = |handler: &Value| handler["host"].as_str().filter(|host| !host.is_empty()).unwrap_or("$(POD_IP)").to_owned();
    let port = |handler: &Value| number(container, &handler["port"]).unwrap_or_default().to_string();
    let mut all = Vec::new();
    if probe["exec"].is_object() {
        let words = items(&probe["exec"], "command").iter().map(|word| quoted(&text(word)));
        all.push(("EXEC__COMMAND", format!("[{}]", words.collect::<Vec<_>>().join(","))));
    }
    if let http @ Value::Object(_) = &probe["httpGet"] {
        let path = text(&http["path"]);
        let slash = if path.starts_with('/') { "" } else { "/" };
        all.extend([("HTTP__PORT", port(http)), ("HTTP__HOST", host(http))]);
        all.push(("HTTP__PATH", literal(&format!("{slash}{path}"))));
        if http["scheme"] == "HTTPS" {
            all.push(("HTTP__SCHEME", "https".into()));
        }
        let headers = items(http, "httpHeaders");
        let pairs = headers.iter().map(|one| format!("{}:{}", quoted(&text(&one["name"])), quoted(&text(&one["value"]))));
        if !headers.is_empty() {
            all.push(("HTTP__HEADERS", literal(&format!("{{{}}}", pairs.collect::<Vec<_>>().join(",")))));
        }
    }
    if let tcp @ Value::Object(_) = &probe["tcpSocket"] {
        all.extend([("TCP__PORT", port(tcp)), ("TCP__HOST", host(tcp))]);
    }
    for (key, variable, unit, default) in [
        ("initialDelaySeconds", "INITIAL_DELAY", "s", 0),
        ("periodSeconds", "PERIOD", "s", 10),
        ("timeoutSeconds", "TIMEOUT", "s", 1),
        ("successThreshold", "SUCCESS_THRESHOLD", "", 1),
        ("failureThreshold", "FAILURE_THRESHOLD", "", 3),
    ] {
        let number = probe[key].as_u64().unwrap_or(default);
        if number != default {
            all.push((variable, format!("{number}{unit}")));
        }
    }
    all
}

/// The number of a port, which may be written by its name.
fn number(container: &Value, port: &Value) -> Option<u64> {
    let named = || items(container, "ports").iter().find(|item| item["name"] == *port)?["containerPort"].as_u64();
    port.as_u64().or_else(named)
}

/// A text in quotes, as YAML reads it, and as `strings.quote` of the policy writes it.
fn quoted(text: &str) -> String {
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
    format!("\"{}\"", text.chars().map(escape).collect::<String>())
}

/// A text in which a kubelet expands nothing.
fn literal(text: &str) -> String {
    text.replace('$', "$$")
}
