//! Leases as the columns that `kubectl get` asks for.

use serde_json::{Value, json};

use super::{gotime, lease::Lease, view::partial};

/// The version of a table, and what its rows say beside their cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Form {
    pub(super) version: &'static str,
    pub(super) include: Include,
}

/// How much of the object comes with its row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Include {
    /// Only the cells.
    Nothing,
    /// Its metadata.
    Metadata,
    /// All of it.
    Whole,
}

impl Include {
    /// The `includeObject` parameter; none if it says nothing known.
    pub(super) fn parse(asked: &str) -> Option<Self> {
        match asked {
            "None" => Some(Self::Nothing),
            "" | "Metadata" => Some(Self::Metadata),
            "Object" => Some(Self::Whole),
            _ => None,
        }
    }
}

/// A `Table` of these Leases with this metadata; ages are as of `wall`.
pub(super) fn table<'a>(leases: impl IntoIterator<Item = &'a Lease>, metadata: Value, form: Form, wall: i64) -> Value {
    let rows: Vec<Value> = leases.into_iter().map(|lease| row(lease, form, wall)).collect();
    let column = |name: &str, format: &str, about: &str| json!({"name": name, "type": "string", "format": format, "description": about, "priority": 0});
    json!({
        "kind": "Table",
        "apiVersion": form.version,
        "metadata": metadata,
        "columnDefinitions": [
            column("Name", "name", "Name of the Lease"),
            column("Holder", "", "Identity of the holder"),
            column("Age", "", "Time since its creation"),
        ],
        "rows": rows,
    })
}

fn row(lease: &Lease, form: Form, wall: i64) -> Value {
    let object = match form.include {
        Include::Nothing => Value::Null,
        Include::Metadata => partial(lease, form.version),
        Include::Whole => lease.json().clone(),
    };
    let holder = lease.spec("holderIdentity").and_then(Value::as_str).unwrap_or_default();
    json!({"cells": [lease.name(), holder, age(lease, wall)], "object": object})
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
