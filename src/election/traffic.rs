//! Decides what the EndpointSlice of a leader's Service says.
//!
//! Owns two things: [`Standing`], what the messages between init and elector make of the slice (whose it is, whether it has an
//! endpoint), and [`Publisher`], which request brings it about. No deadline, proof or release waits for any of it.
//!
//! Each write is a PUT with the uid and resourceVersion that were read, so one that comes late is refused where anybody has written
//! since. It carries the fencing token of its term, and none replaces that of a later term. As a term begins the slice becomes its
//! own and is emptied, whoever stood in it, and what the last leader may still have under way is void.

use std::{mem, time::Duration};

use serde_json::{Map, Value};

use super::{
    RequestError,
    record::{is_number, later, metadata_of},
};
use crate::{
    config::Config,
    law::Timing,
    link::{Confirmed, InitialState, Slot, Term, TermInfo, ToElector, ToInit},
    time::Instant,
};

/// Annotation of the EndpointSlice: the fencing token of the term that wrote it.
pub const TOKEN: &str = "tenure.dev/fencing-token";

/// After a conflict.
pub const PAUSE: Duration = Duration::from_millis(200);

/// What a term wants of the slice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Which term.
    pub term: Term,
    /// Of which slot's.
    pub slot: Slot,
    /// Its fencing token.
    pub token: String,
    /// Whether there is an endpoint: the workload leads, is ready, and no stop has begun.
    pub serves: bool,
    /// Whether a stop has begun.
    pub ends: bool,
    /// S - T: nothing is sent from then on.
    pub until: Instant,
}

/// Where the term stands, as the messages between init and elector tell it.
pub struct Standing {
    attempt_timeout: Duration,
    /// The workload is ready, or nothing is asked of it.
    fit: bool,
    term: Option<Led>,
}

struct Led {
    term: Term,
    slot: Slot,
    token: String,
    soft: Instant,
    runs: bool,
    ends: bool,
}

impl Standing {
    /// As init hands it to a new elector.
    #[must_use]
    pub fn new(initial: &InitialState) -> Self {
        let Config { lease, workload, .. } = &initial.config;
        let mut term = initial.resume.as_ref().map(|resume| Led::new(resume.term, &resume.info, &resume.confirmed));
        if let (Some(led), Some(resume)) = (&mut term, &initial.resume) {
            (led.runs, led.ends) = (resume.told && resume.main.is_some(), resume.stopping.is_some());
        }
        Self { attempt_timeout: lease.attempt_timeout, fit: workload.readiness.means().is_none(), term }
    }

    /// Init said something.
    pub fn told(&mut self, message: &ToElector) {
        if let ToElector::Health { unready, .. } = message {
            self.fit = unready.is_none();
        }
        if let (
            Some(led),
            ToElector::Started { term, .. } | ToElector::Restarting { term, .. } | ToElector::Stopping { term, .. },
        ) = (&mut self.term, message)
            && *term == led.term
        {
            led.ends |= matches!(message, ToElector::Stopping { .. });
            led.runs = matches!(message, ToElector::Started { .. });
        }
    }

    /// Init is told something.
    pub fn telling(&mut self, message: &ToInit) {
        if let ToInit::Lead { term, info, confirmed, .. } = message {
            self.term = Some(Led::new(*term, info, confirmed));
        }
        let Some(led) = &mut self.term else { return };
        if let ToInit::Extend { confirmed, .. } = message {
            led.soft = led.soft.max(confirmed.deadlines.soft);
        }
        led.ends |= matches!(message, ToInit::StepDown { .. } | ToInit::Releasing { .. } | ToInit::Ended { .. });
    }

    /// What is wanted; none before the first term. That a term which is over wants its endpoint gone lasts until S - T: where
    /// nobody follows, nobody else removes it.
    #[must_use]
    pub fn wanted(&self) -> Option<Wanted> {
        let led = self.term.as_ref()?;
        let &Led { term, slot, ref token, soft, runs, ends } = led;
        let serves = self.fit && runs && !ends;
        Some(Wanted { term, slot, token: token.clone(), serves, ends, until: soft.before(self.attempt_timeout) })
    }
}

impl Led {
    fn new(term: Term, info: &TermInfo, confirmed: &Confirmed) -> Self {
        let (slot, token, soft) = (info.slot, info.token.clone(), confirmed.deadlines.soft);
        Self { term, slot, token, soft, runs: false, ends: false }
    }
}

/// What the slice is to hold while this replica serves.
#[derive(Debug)]
pub struct Endpoints {
    /// By the slice's addressType.
    pub of: Map<String, Value>,
    /// Its ports.
    pub ports: Vec<Value>,
}

/// What is to be done next.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// GET the slice.
    Get,
    /// PUT this.
    Replace(Value),
    /// Nothing before this instant, unless something else is wanted.
    Wait(Instant),
}

/// What the log says, once per state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// It has this replica's endpoint.
    Published,
    /// It has none.
    Withdrawn,
    /// It does not say what it should, and why.
    Failed(String),
}

/// Brings the slice to what is wanted, one request at a time.
pub struct Publisher {
    endpoints: Endpoints,
    timing: Timing,
    wanted: Option<Wanted>,
    /// As last read or written.
    seen: Option<Value>,
    /// It is as wanted, or was written so.
    settled: bool,
    due: Instant,
    state: Option<State>,
    /// Nobody was told of the state.
    is_new: bool,
}

impl Publisher {
    /// Nothing is wanted yet.
    #[must_use]
    pub const fn new(endpoints: Endpoints, timing: Timing) -> Self {
        let (wanted, seen, state) = (None, None, None);
        Self { endpoints, timing, wanted, seen, settled: false, due: Instant::BOOT, state, is_new: false }
    }

    /// What to do at `now` so that the slice is as wanted.
    pub fn step(&mut self, wanted: &Wanted, now: Instant) -> Step {
        let before = self.wanted.replace(wanted.clone());
        if before.as_ref().is_some_and(|before| before.slot != wanted.slot) {
            self.seen = None;
        }
        if !before.is_some_and(|before| before.is_same_as(wanted)) {
            (self.settled, self.due) = (false, now);
        }
        // What moves it on comes with the next renewal.
        if now >= wanted.until {
            return Step::Wait(Instant::NEVER);
        }
        if now < self.due {
            return Step::Wait(self.due);
        }
        // It is not watched, and somebody may have changed it.
        if mem::take(&mut self.settled) {
            self.seen = None;
        }
        let Some(seen) = &self.seen else { return Step::Get };
        match changed(seen, wanted, &self.endpoints) {
            // Stored in another form, it is not written again at once.
            Ok(Some(next)) => {
                self.settled = true;
                return Step::Replace(next);
            }
            Ok(None) => self.settle(),
            Err(why) => {
                self.seen = None;
                self.enter(State::Failed(why));
            }
        }
        self.due = now + self.timing.duration;
        Step::Wait(self.due)
    }

    /// The outcome of the last request.
    pub fn answered(&mut self, answer: Result<Value, RequestError>, now: Instant) {
        let written = mem::take(&mut self.settled);
        self.seen = None;
        match answer {
            Ok(object) => {
                self.seen = Some(object);
                if written {
                    self.settle();
                    self.due = now + self.timing.duration;
                }
            }
            Err(error) if error.status == Some(409) => self.due = now + PAUSE,
            Err(error) => {
                self.due = now + self.timing.renew_period;
                self.enter(State::Failed(error.to_string()));
            }
        }
    }

    /// What is to be said.
    pub fn news(&mut self) -> Option<&State> {
        self.state.as_ref().filter(|_| mem::take(&mut self.is_new))
    }

    fn settle(&mut self) {
        self.settled = true;
        let serves = self.wanted.as_ref().is_some_and(|wanted| wanted.serves);
        self.enter(if serves { State::Published } else { State::Withdrawn });
    }

    fn enter(&mut self, state: State) {
        self.is_new |= self.state.as_ref() != Some(&state);
        self.state = Some(state);
    }
}

impl Wanted {
    fn is_same_as(&self, other: &Self) -> bool {
        (self.slot, &self.token, self.serves) == (other.slot, &other.token, other.serves)
    }
}

/// The slice as it is to be written; none: it is as wanted.
fn changed(seen: &Value, wanted: &Wanted, endpoints: &Endpoints) -> Result<Option<Value>, String> {
    let text = |name| metadata_of(seen, name).and_then(Value::as_str).filter(|text| !text.is_empty());
    // Without them the server would write unconditionally, or create it.
    if text("uid").is_none() || text("resourceVersion").is_none() {
        return Err("the answer is not an EndpointSlice".into());
    }
    let token = metadata_of(seen, "annotations").and_then(|all| all.get(TOKEN)).and_then(Value::as_str);
    if let Some(token) = token.filter(|token| is_number(token) && later(token, &wanted.token)) {
        return Err(format!(
            "its annotation {TOKEN} is {token}, of a later term than this one ({}); where etcd was restored, remove the annotation",
            wanted.token
        ));
    }
    let kind = seen.get("addressType").and_then(Value::as_str).unwrap_or_default();
    let own = endpoints.of.get(kind);
    if wanted.serves && own.is_none() {
        return Err(format!("its addressType is {kind:?}, and POD_IPS, or POD_IP, names no such address"));
    }
    let list = own.filter(|_| wanted.serves).into_iter().cloned().collect::<Vec<_>>();
    // The server stores an empty list as null.
    let as_it_is = |name: &str| seen.get(name).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    if token == Some(&wanted.token) && as_it_is("endpoints") == list && as_it_is("ports") == endpoints.ports {
        return Ok(None);
    }
    let mut next = seen.clone();
    next["metadata"]["annotations"][TOKEN] = wanted.token.clone().into();
    next["endpoints"] = list.into();
    next["ports"] = endpoints.ports.clone().into();
    Ok(Some(next))
}

#[cfg(test)]
mod tests;
