//! Leases as the columns that `kubectl get` asks for.

use serde_json::{Value, json};

use super::{gotime, lease::Lease, view::partial};

/// A `Table` of these Leases with this metadata; ages are as of `wall`.
pub(super) fn table<'a>(leases: impl IntoIterator<Item = &'a Lease>, metadata: Value, version: &str, wall: i64) -> Value {
    let rows: Vec<Value> = leases.into_iter().map(|lease| row(lease, version, wall)).collect();
    let column = |name: &str, format: &str, about: &str| json!({"name": name, "type": "string", "format": format, "description": about, "priority": 0});
    json!({
        "kind": "Table",
        "apiVersion": version,
        "metadata": metadata,
        "columnDefinitions": [
            column("Name", "name", "Name of the Lease"),
            column("Holder", "", "Identity of the holder"),
            column("Age", "", "Time since its creation"),
        ],
        "rows": rows,
    })
}

fn row(lease: &Lease, version: &str, wall: i64) -> Value {
    let holder = lease.spec("holderIdentity").and_then(Value::as_str).unwrap_or_default();
    json!({"cells": [lease.name(), holder, age(lease, wall)], "object": partial(lease, version)})
}

/// Ages as kubectl shows them: two units where one would be coarse.
fn age(lease: &Lease, wall: i64) -> String {
    let Some(born) = gotime::micros(lease.meta("creationTimestamp")) else { return "<unknown>".into() };
    let seconds = (wall - born) / 1_000_000;
    let (minutes, hours, days) = (seconds / 60, seconds / 3_600, seconds / 86_400);
    let two = |large: i64, unit: &str, small: i64, part: &str| {
        if small == 0 { format!("{large}{unit}") } else { format!("{large}{unit}{small}{part}") }
    };
    match seconds {
        ..0 => "<invalid>".into(),
        0..120 => format!("{seconds}s"),
        120..600 => two(minutes, "m", seconds % 60, "s"),
        600..10_800 => format!("{minutes}m"),
        10_800..28_800 => two(hours, "h", minutes % 60, "m"),
        28_800..172_800 => format!("{hours}h"),
        172_800..691_200 => two(days, "d", hours % 24, "h"),
        _ => format!("{days}d"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_read_as_in_kubectl() {
        let lease = Lease::new(json!({"metadata": {"creationTimestamp": "1970-01-01T00:00:00Z"}}));
        for (seconds, expected) in [(5, "5s"), (119, "119s"), (125, "2m5s"), (660, "11m"), (10_860, "3h1m"), (172_800, "2d")] {
            assert_eq!(age(&lease, seconds * 1_000_000), expected);
        }
    }
}
