//! Which terms each replica has seen.
//!
//! Owns who may know of whose term. It counts only where the law excuses who cannot.

use std::collections::{BTreeMap, VecDeque};

use serde_json::Value;
use tenure::election::writes::HOLDER;

use crate::engine::Who;

/// How many terms of others a replica remembers.
const SEEN: usize = 256;

/// What each replica has seen.
#[derive(Debug, Default)]
pub struct Sights(BTreeMap<Who, Seen>);

#[derive(Debug, Default)]
struct Seen {
    /// uid and acquireTime of the latest terms.
    terms: VecDeque<[String; 2]>,
    /// Of each slot's Lease the last uid, and its greatest version.
    last: BTreeMap<String, (String, u64)>,
}

impl Sights {
    /// An elector of `who` takes this version in.
    pub fn take_in(&mut self, who: Who, lease: &Value) {
        let [Some(uid), Some(acquired)] = [&lease["metadata"]["uid"], &lease["spec"]["acquireTime"]].map(Value::as_str) else {
            return;
        };
        let version = lease["metadata"]["resourceVersion"].as_str().and_then(|version| version.parse().ok()).unwrap_or_default();
        let seen = self.0.entry(who).or_default();
        let last = seen.last.entry(lease["metadata"]["name"].to_string()).or_default();
        // Of what a late watch shows within one uid an elector learns nothing (law 16).
        if last.0 == uid && version < last.1 {
            return;
        }
        *last = (uid.into(), version);
        // A record by hand that names a replica is no term of it, but lends it the acquireTime.
        let is_term = lease["metadata"]["annotations"][HOLDER] == lease["spec"]["holderIdentity"];
        if is_term && seen.terms.back().is_none_or(|term| term != &[uid, acquired]) {
            seen.terms.push_back([uid.into(), acquired.into()]);
            if seen.terms.len() > SEEN {
                seen.terms.pop_front();
            }
        }
    }

    /// Returns whether `who` cannot know of the term with this uid and acquireTime.
    pub fn is_stranger(&self, who: Who, uid: &str, acquired: &str) -> bool {
        self.0.get(&who).is_none_or(|seen| !seen.terms.iter().any(|term| term == &[uid, acquired]))
    }
}
