//! Decides what the EndpointSlice of a leader's Service says.
//!
//! [`Publisher`] tells which request is next, so that the slice becomes as [`Wanted`]. No deadline, proof or release waits for it.
//!
//! Each write is a PUT with the uid and resourceVersion that were read, so a late one is refused if the slice was written
//! meanwhile. It carries the fencing token of its term, and a lower token never replaces a higher one. A term begins by emptying
//! the slice. That also voids any write of the last leader that is still under way.

use std::{mem, sync::Arc, time::Duration};

use serde_json::{Map, Value};

use super::{
    pace::doubled,
    record::{is_number, later, metadata_of},
    writes::{annotations_of, drop_managers},
};
use crate::{
    law::Timing,
    link::Term,
    request::{Answer, Refusal},
    slot::Slot,
    time::Instant,
};

const NO_SLICE: &str = "the answer is not an EndpointSlice";
/// The longest Retry-After that is honoured.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// Annotation of the EndpointSlice: the fencing token of the term that wrote it.
pub const TOKEN: &str = "tenure.dev/fencing-token";

/// The first pause after a conflict, or a failed withdrawal.
pub const PAUSE: Duration = Duration::from_millis(200);

/// The content of the slice that a term wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The term whose leader is published.
    pub term: Term,
    /// The slot whose slice it is.
    pub slot: Slot,
    /// The fencing token of the term.
    pub token: String,
    /// The slice has an endpoint: the workload leads, is ready, and no stop has begun.
    pub serves: bool,
    /// A stop has begun.
    pub ends: bool,
    /// S - T: nothing is sent from then on.
    pub until: Instant,
}

/// The content of the slice while this replica serves.
#[derive(Clone, Debug)]
pub struct Endpoints {
    /// This replica's endpoint, by the slice's addressType.
    pub of: Map<String, Value>,
    /// The ports of the slice.
    pub ports: Vec<Value>,
}

/// The next thing to do.
#[derive(Clone, Debug, PartialEq)]
pub enum SliceAction {
    /// GET the slice.
    Get,
    /// PUT this.
    Replace(Value),
    /// Wait until this instant, unless something else is wanted before.
    Wait(Instant),
}

/// The state of the slice for the log, which tells each state once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SliceState {
    /// The slice has this replica's endpoint.
    Published,
    /// The slice has no endpoint.
    Withdrawn,
    /// The slice is not as wanted, for this reason.
    Failed(String),
}

/// Makes the slice as wanted, one request at a time.
#[derive(Clone)]
pub struct Publisher {
    endpoints: Endpoints,
    timing: Timing,
    wanted: Option<Wanted>,
    /// The slice as last read or written.
    seen: Option<Arc<Value>>,
    /// The slice is as wanted, or was written so.
    is_made: bool,
    /// Why the server refused this replica's endpoint. The slice is kept empty instead.
    refused: Option<String>,
    /// Why the slice has no endpoint although one is wanted.
    lacks: Option<String>,
    /// Consecutive conflicts and failed withdrawals.
    conflicts: u32,
    due: Instant,
    state: Option<SliceState>,
    /// The state was not logged yet.
    is_new: bool,
}

impl Publisher {
    /// Begins with nothing wanted.
    pub const fn new(endpoints: Endpoints, timing: Timing) -> Self {
        let (wanted, seen, refused, lacks, state) = (None, None, None, None, None);
        let due = Instant::BOOT;
        Self { endpoints, timing, wanted, seen, is_made: false, refused, lacks, conflicts: 0, due, state, is_new: false }
    }

    /// Returns the next thing to do at `now`, so that the slice becomes as wanted.
    pub fn step(&mut self, wanted: &Wanted, now: Instant) -> SliceAction {
        let before = self.wanted.replace(wanted.clone());
        if before.as_ref().is_some_and(|before| before.slot != wanted.slot) {
            self.seen = None;
        }
        if !before.is_some_and(|before| before.is_same_as(wanted)) {
            (self.is_made, self.due, self.refused, self.conflicts) = (false, now, None, 0);
        }
        // The next renewal moves `until` on.
        if now >= wanted.until {
            return SliceAction::Wait(Instant::NEVER);
        }
        if now < self.due {
            return SliceAction::Wait(self.due);
        }
        // The slice is not watched, and may have been changed.
        if mem::take(&mut self.is_made) {
            self.seen = None;
        }
        let Some(seen) = &self.seen else { return SliceAction::Get };
        let kind = seen.get("addressType").and_then(Value::as_str).unwrap_or_default();
        let own = if self.refused.is_none() { self.endpoints.of.get(kind) } else { None };
        self.lacks = own.is_none().then(|| {
            let other = format!("its addressType is {kind:?}, and POD_IPS, or POD_IP, names no such address");
            self.refused.clone().unwrap_or(other)
        });
        match changed(seen, wanted, own, &self.endpoints.ports) {
            // Counts as made, so that a server which stores another form does not get the same write again at once.
            Ok(Some(next)) => {
                self.is_made = true;
                return SliceAction::Replace(next);
            }
            Ok(None) => self.made(),
            Err(why) => {
                self.seen = None;
                // At the end of a term a later one is its successor.
                if !wanted.ends {
                    self.enter(SliceState::Failed(why));
                }
            }
        }
        self.due = now + self.timing.duration;
        SliceAction::Wait(self.due)
    }

    /// Takes in the outcome of the last request. A Retry-After holds up no other wish.
    pub fn answered(&mut self, answer: Answer, now: Instant) {
        let written = mem::take(&mut self.is_made);
        self.seen = None;
        let (retry_after, may_pass) = (answer.retry_after(), answer.may_pass());
        let (why, is_invalid) = match answer {
            Answer::Object(object) => {
                self.seen = Some(object);
                if written {
                    self.conflicts = 0;
                    self.made();
                    self.due = now + self.timing.duration;
                }
                return;
            }
            Answer::Conflict => {
                self.due = now + self.pause();
                return;
            }
            Answer::Refused { refusal, message } => (message.to_string(), refusal == Refusal::Invalid),
            Answer::Unknown { message, .. } => (message.to_string(), false),
            Answer::NotFound => ("there is none: create it".into(), false),
            Answer::Deleted | Answer::Listed { .. } => (NO_SLICE.into(), false),
        };
        self.due = now + self.timing.renew_period.max(retry_after.unwrap_or_default().min(LONGEST_PAUSE));
        // A planned stop waits only a moment, and a later leader may be long in coming.
        if self.wanted.as_ref().is_some_and(|wanted| wanted.ends) && may_pass {
            self.due = now + self.pause();
        }
        // The server refuses this replica's endpoint. The slice is emptied at least: the predecessor's endpoint must not stay.
        let serves = self.wanted.as_ref().is_some_and(|wanted| wanted.serves);
        if written && serves && self.lacks.is_none() && is_invalid {
            (self.refused, self.due) = (Some(why.clone()), now);
        }
        self.enter(SliceState::Failed(why));
    }

    /// Returns the pause after a conflict, or a failed withdrawal: twice as long each time.
    fn pause(&mut self) -> Duration {
        let pause = doubled(PAUSE, self.conflicts, self.timing.renew_period);
        self.conflicts += 1;
        pause
    }

    /// Returns the state if it is new for the log.
    pub fn take_news(&mut self) -> Option<&SliceState> {
        let state = self.state.as_ref()?;
        mem::take(&mut self.is_new).then_some(state)
    }

    fn made(&mut self) {
        self.is_made = true;
        let serves = self.wanted.as_ref().is_some_and(|wanted| wanted.serves);
        self.enter(match &self.lacks {
            _ if !serves => SliceState::Withdrawn,
            Some(why) => SliceState::Failed(why.clone()),
            None => SliceState::Published,
        });
    }

    fn enter(&mut self, state: SliceState) {
        self.is_new |= self.state.as_ref() != Some(&state);
        self.state = Some(state);
    }
}

impl Wanted {
    fn is_same_as(&self, other: &Self) -> bool {
        (self.slot, &self.token, self.serves) == (other.slot, &other.token, other.serves)
    }
}

/// Returns the slice as it is to be written. None: it is as wanted.
fn changed(seen: &Value, wanted: &Wanted, own: Option<&Value>, ports: &[Value]) -> Result<Option<Value>, String> {
    let text = |name| metadata_of(seen, name).and_then(Value::as_str).filter(|text| !text.is_empty());
    // Without uid and version the server would write unconditionally, or create the slice.
    if text("uid").is_none() || text("resourceVersion").is_none() {
        return Err(NO_SLICE.into());
    }
    let token = metadata_of(seen, "annotations").and_then(|all| all.get(TOKEN)).and_then(Value::as_str);
    if let Some(token) = token.filter(|token| is_number(token) && later(token, &wanted.token)) {
        return Err(format!(
            "its annotation {TOKEN} is {token}, of a later term than this one ({}); where etcd was restored, remove the annotation",
            wanted.token
        ));
    }
    let own = if wanted.serves { own } else { None };
    let list = own.into_iter().cloned().collect::<Vec<_>>();
    // The server stores an empty list as null.
    let as_it_is = |name: &str| seen.get(name).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    if token == Some(&wanted.token) && as_it_is("endpoints") == list && as_it_is("ports") == ports {
        return Ok(None);
    }
    let mut next = seen.clone();
    drop_managers(&mut next);
    annotations_of(&mut next).insert(TOKEN.to_owned(), wanted.token.clone().into());
    next["endpoints"] = list.into();
    next["ports"] = ports.to_vec().into();
    Ok(Some(next))
}

#[cfg(test)]
mod tests;
