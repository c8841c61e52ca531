//! Which terms each replica has seen.
//!
//! Owns who may know of whose term. It counts only where the law excuses who cannot.

use std::collections::{BTreeMap, VecDeque};

use serde_json::Value;

use crate::engine::Who;

/// How many terms of others a replica remembers.
const SEEN: usize = 256;

/// See the module.
#[derive(Debug, Default)]
pub struct Sights(BTreeMap<Who, Sight>);

/// What a replica has seen of the Lease.
#[derive(Debug, Default)]
struct Sight {
    /// The latest version.
    version: u64,
    /// uid and acquireTime of the latest terms.
    terms: VecDeque<(String, String)>,
}

impl Sights {
    /// An elector of `who` takes this version in, from a reply or the watch.
    pub fn take_in(&mut self, who: Who, lease: &Value, is_reply: bool) {
        let Some(version) = lease["metadata"]["resourceVersion"].as_str().and_then(|version| version.parse().ok()) else {
            return;
        };
        let sight = self.0.entry(who).or_default();
        // A reply is believed even if the watch has overtaken it.
        if version <= sight.version && !is_reply {
            return;
        }
        sight.version = sight.version.max(version);
        let uid = lease["metadata"]["uid"].as_str().unwrap_or_default();
        let acquired = lease["spec"]["acquireTime"].as_str().unwrap_or_default();
        if sight.terms.back().is_none_or(|term| term.1 != acquired || term.0 != uid) {
            sight.terms.push_back((uid.into(), acquired.into()));
            if sight.terms.len() > SEEN {
                sight.terms.pop_front();
            }
        }
    }

    /// Whether `who` cannot know of the term with this uid and acquireTime.
    pub fn is_stranger(&self, who: Who, uid: &str, acquired: &str) -> bool {
        self.0.get(&who).is_none_or(|sight| !sight.terms.iter().any(|term| (term.0.as_str(), term.1.as_str()) == (uid, acquired)))
    }
}
