//! A Lease as the judges read it: by themselves, without the product's own reader.

use std::hash::{DefaultHasher, Hash, Hasher};

use serde_json::Value;

use crate::{
    clock::{Ns, S},
    law::Kind,
};

/// Who holds the Lease while nobody does (law 14).
pub const NOBODY: &str = "tenure.dev/nobody";

/// What a Lease says of its holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Held,
    /// A task's, until its next run is due.
    Resting,
    Nobody,
    /// The mark of a release.
    Released,
    /// Free in any other shape.
    Free,
}

impl State {
    pub fn of(lease: &Value) -> Self {
        let (spec, notes) = (&lease["spec"], &lease["metadata"]["annotations"]);
        let holder = spec["holderIdentity"].as_str().unwrap_or_default();
        let (name, renewed) = (notes["tenure.dev/holder"].as_str(), spec["renewTime"].as_str());
        let rests = renewed.is_some_and(|renewed| notes["tenure.dev/rests"] == format!("{renewed} {holder}"));
        let is_mark = spec["holderIdentity"] == ""
            && spec["leaseDurationSeconds"] == 1
            && renewed.is_some()
            && renewed == spec["acquireTime"].as_str()
            && name.is_none();
        match holder {
            "" if is_mark => Self::Released,
            "" => Self::Free,
            NOBODY => Self::Nobody,
            _ if rests => Self::Resting,
            _ => Self::Held,
        }
    }
}

/// A Lease as the law reads it.
pub(crate) struct Reading {
    pub kind: Kind,
    pub holder: String,
    pub duration: Ns,
    /// In `tenure.dev/holder`.
    pub name: Option<String>,
    pub text: u64,
    pub version: u64,
}

impl Reading {
    pub(crate) fn of(lease: &Value) -> Self {
        let spec = &lease["spec"];
        let kind = match State::of(lease) {
            State::Released | State::Resting => Kind::Released,
            State::Free => Kind::Free,
            State::Nobody => Kind::Nobody,
            State::Held => Kind::Held,
        };
        let mut hasher = DefaultHasher::new();
        for (key, value) in spec.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null()) {
            (key, value.to_string()).hash(&mut hasher);
        }
        Self {
            kind,
            holder: spec["holderIdentity"].as_str().unwrap_or_default().to_owned(),
            duration: spec["leaseDurationSeconds"].as_u64().unwrap_or_default() * S,
            name: lease["metadata"]["annotations"]["tenure.dev/holder"].as_str().map(str::to_owned),
            text: hasher.finish(),
            version: number(&lease["metadata"]["resourceVersion"]),
        }
    }
}

/// The number of a version; 0 is none.
pub(crate) fn number(version: &Value) -> u64 {
    version.as_str().and_then(|version| version.parse().ok()).unwrap_or_default()
}
