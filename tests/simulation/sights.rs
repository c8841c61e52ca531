//! Which terms each replica has seen.
//!
//! Owns who may know of whose term. It counts only where the law excuses who cannot.

use std::collections::{BTreeMap, VecDeque};

use serde_json::Value;

use crate::engine::Who;

/// How many terms of others a replica remembers.
const SEEN: usize = 256;

/// uid and acquireTime of the latest terms that each has seen.
#[derive(Debug, Default)]
pub struct Sights(BTreeMap<Who, VecDeque<[String; 2]>>);

impl Sights {
    /// An elector of `who` takes this version in.
    pub fn take_in(&mut self, who: Who, lease: &Value) {
        let [Some(uid), Some(acquired)] = [&lease["metadata"]["uid"], &lease["spec"]["acquireTime"]].map(Value::as_str) else {
            return;
        };
        let seen = self.0.entry(who).or_default();
        if seen.back().is_none_or(|term| term != &[uid, acquired]) {
            seen.push_back([uid.into(), acquired.into()]);
            if seen.len() > SEEN {
                seen.pop_front();
            }
        }
    }

    /// Returns whether `who` cannot know of the term with this uid and acquireTime.
    pub fn is_stranger(&self, who: Who, uid: &str, acquired: &str) -> bool {
        self.0.get(&who).is_none_or(|seen| !seen.iter().any(|term| term == &[uid, acquired]))
    }
}
