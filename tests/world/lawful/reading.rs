//! A Lease as the law reads it: by itself, without the product's own reader.

use std::hash::{DefaultHasher, Hash, Hasher};

use serde_json::Value;

use crate::{
    clock::{Ns, S},
    law::Kind,
};

/// Who holds the Lease while nobody does (law 14).
pub const NOBODY: &str = "tenure.dev/nobody";

/// A Lease as the law reads it.
pub(super) struct Reading {
    pub kind: Kind,
    pub holder: String,
    pub duration: Ns,
    /// In `tenure.dev/holder`.
    pub name: Option<String>,
    pub text: u64,
    pub version: u64,
}

impl Reading {
    pub(super) fn of(lease: &Value) -> Self {
        let (spec, notes) = (&lease["spec"], &lease["metadata"]["annotations"]);
        let holder = spec["holderIdentity"].as_str().unwrap_or_default();
        let (name, renewed) = (notes["tenure.dev/holder"].as_str(), spec["renewTime"].as_str());
        let rests = notes["tenure.dev/rests"].as_str().is_some_and(|rests| {
            !holder.is_empty() && renewed.is_some_and(|renewed| rests.contains(renewed)) && rests.contains(holder)
        });
        let is_mark = spec["holderIdentity"] == ""
            && spec["leaseDurationSeconds"] == 1
            && renewed.is_some()
            && renewed == spec["acquireTime"].as_str()
            && name.is_none();
        let kind = match holder {
            _ if is_mark || rests => Kind::Released,
            "" => Kind::Free,
            NOBODY => Kind::Nobody,
            _ => Kind::Held,
        };
        let mut hasher = DefaultHasher::new();
        for (key, value) in spec.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null()) {
            (key, value.to_string()).hash(&mut hasher);
        }
        Self {
            kind,
            holder: holder.to_owned(),
            duration: spec["leaseDurationSeconds"].as_u64().unwrap_or_default() * S,
            name: name.map(str::to_owned),
            text: hasher.finish(),
            version: number(&lease["metadata"]["resourceVersion"]),
        }
    }
}

/// The number of a version; 0 is none.
pub(super) fn number(version: &Value) -> u64 {
    version.as_str().and_then(|version| version.parse().ok()).unwrap_or_default()
}
