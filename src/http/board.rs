//! The history of terms, and the answer of `/status`. No IO.

use std::collections::VecDeque;

use serde::Serialize;
use serde_json::{Value, json};

use crate::{
    election::writes::NOBODY,
    link::InitialState,
    role::Role,
    telemetry::{
        status::Status,
        transition::{Anchor, Outcome, Recorded, TermEnd, Transition},
    },
    time::Instant,
    words::bounded,
};

/// So many terms and transitions are remembered.
const REMEMBERED: usize = 32;

/// Holds the terms and transitions that this replica has seen.
#[derive(Clone, Debug)]
pub(super) struct Board {
    identity: String,
    namespace: String,
    lease: String,
    /// As far as this replica saw them, the latest first.
    terms: VecDeque<Seen>,
    /// The latest first.
    transitions: VecDeque<Value>,
}

/// A term of whomever.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Seen {
    slot: u8,
    holder: String,
    /// None: nobody's.
    term: Option<i32>,
    since: String,
    until: Option<String>,
    ended: Option<&'static str>,
}

impl Seen {
    /// A time on a Lease may be ahead of the clock that sees its end. No term ends before it begins.
    fn end(&mut self, at: String) {
        self.until = Some(at.max(self.since.clone()));
    }
}

impl Board {
    pub(super) fn new(initial: &InitialState) -> Self {
        let InitialState { identity, config, .. } = initial;
        Self {
            identity: identity.clone(),
            namespace: config.lease.namespace.clone(),
            lease: config.lease.name.clone(),
            terms: VecDeque::new(),
            transitions: VecDeque::new(),
        }
    }

    /// Takes in a part of a term that is over. Returns true if that changed anything.
    pub(super) fn recorded(&mut self, recorded: &Recorded) -> bool {
        match recorded {
            Recorded::HolderChanged { slot, holder, term, at, before, .. } => {
                let at = wall(*at);
                if let Some(last) = self.terms.iter_mut().find(|term| term.slot == slot.0) {
                    match &mut last.until {
                        None => {
                            last.end(at.clone());
                            last.ended = before.map(TermEnd::as_str);
                        }
                        // By another's clock, or before its end was seen.
                        Some(until) if holder.is_some() && at < *until => last.end(at.clone()),
                        Some(_) => {}
                    }
                }
                if let Some(holder) = holder {
                    let is_nobody = holder == NOBODY;
                    let holder = if is_nobody { "nobody".into() } else { bounded(holder).into_owned() };
                    let term = (!is_nobody).then_some(*term);
                    // Of several slots each has its last term.
                    while self.terms.len() >= REMEMBERED
                        && let Some(oldest) = self.terms.iter().rposition(|term| term.until.is_some())
                    {
                        self.terms.remove(oldest);
                    }
                    self.terms.push_front(Seen { slot: slot.0, holder, term, since: at, until: None, ended: None });
                }
            }
            Recorded::Transitioned(transition) => {
                self.end_or_resume(transition);
                self.transitions.truncate(REMEMBERED - 1);
                self.transitions.push_front(past(transition));
            }
            Recorded::CampaignLost(_) | Recorded::WithinTerm(_) | Recorded::WaitedInVain { .. } => return false,
        }
        true
    }

    /// A replica knows better than the Lease why its own terms ended, and that a term which had run out goes on.
    fn end_or_resume(&mut self, transition: &Transition) {
        let Transition { to, reason, slot, term, until, anchor, outcome, .. } = transition;
        let is_this = |seen: &&mut Seen| (seen.slot, seen.term, &seen.holder) == (slot.0, Some(*term), &self.identity);
        let Some(own) = self.terms.iter_mut().find(is_this) else { return };
        match to {
            Role::Leader if *outcome == Outcome::NeverLed => {}
            Role::Leader => (own.until, own.ended) = (None, None),
            Role::Standby => {
                if own.until.is_none() {
                    own.end(wall(micros(*anchor, *until)));
                }
                own.ended = Some(reason.as_str());
            }
        }
    }

    /// The term that is not over, its own first.
    fn current(&self) -> Option<&Seen> {
        let open = || self.terms.iter().filter(|term| term.until.is_none());
        open().find(|term| term.holder == self.identity).or_else(|| open().next())
    }

    fn holder(&self) -> Option<&str> {
        self.current().filter(|term| term.term.is_some()).map(|term| term.holder.as_str())
    }

    /// Who holds the first slot, on which all standbys are announced.
    pub(super) fn first_holder(&self) -> Option<&str> {
        let is_held = |term: &&Seen| term.slot == 0 && term.until.is_none() && term.term.is_some();
        self.terms.iter().find(is_held).map(|term| term.holder.as_str())
    }

    /// As the old leader-elector sidecar of Kubernetes told it.
    pub(super) fn leader(&self) -> Value {
        json!({ "name": self.holder().unwrap_or_default() })
    }

    /// All of it at `now`.
    pub(super) fn status(&self, status: &Status, now: Instant) -> Value {
        let Status { election, role, unready, words, .. } = status;
        let (led, backoff) = (election.leading, election.backoff);
        let left = |deadline: Instant| deadline.since(now).as_secs_f64();
        let own = if led.is_some() { status.term.as_ref().map(|own| &own.info) } else { None };
        json!({
            "identity": self.identity, "namespace": self.namespace, "lease": self.lease, "ready": election.ready,
            "role": if led.is_some() { Role::Leader } else { Role::Standby }.as_str(),
            "stopping": led.is_some_and(|led| led.ending),
            "holder": self.holder(),
            "backoff": backoff.after_failures(now).map(|until| json!({ "failures": backoff.failures, "seconds": left(until) })),
            "since": self.current().map(|term| &term.since),
            "slot": own.map(|own| own.slot.0),
            "term": own.map(|own| own.transitions),
            "fencingToken": own.map(|own| &own.token),
            "marginSeconds": led.and_then(|led| led.deadlines).map(|deadlines| left(deadlines.soft)),
            "killDeadlineSeconds": led.and_then(|led| led.deadlines).map(|deadlines| left(deadlines.hard)),
            "nextFire": election.next_fire.map(wall),
            "renewedSecondsAgo": led.map_or(election.renewed, |led| Some(led.confirmed)).map(|at| now.since(at).as_secs_f64()),
            "freeInSeconds": election.free.map(left),
            "apiServerAnswers": status.is_answered,
            "workload": {
                "runs": role.is_some(),
                "role": role.map(Role::as_str),
                "ready": role.is_some() && unready.is_none(),
                "unready": unready.as_ref().filter(|why| !why.is_empty()),
                "status": words,
            },
            "terms": self.terms,
            "transitions": self.transitions,
        })
    }
}

/// A transition that is over, as `/status` shows it.
fn past(transition: &Transition) -> Value {
    let Transition { to, reason, slot, term, token, from, until, anchor, margin, exit, .. } = transition;
    json!({
        "time": wall(micros(*anchor, *until)),
        "to": to.as_str(),
        "reason": reason.as_str(),
        "slot": slot.0,
        "term": term,
        "fencingToken": token,
        "seconds": until.since(*from).as_secs_f64(),
        "leaseLeftSeconds": margin.map(|margin| margin.0),
        "exit": exit.map(|exit| exit.to_string()),
    })
}

fn micros(anchor: Anchor, at: Instant) -> i64 {
    i64::try_from(anchor.wall(at) / 1_000).unwrap_or_default()
}

fn wall(micros: i64) -> String {
    jiff::Timestamp::from_microsecond(micros).map_or_else(|_| String::new(), |time| format!("{time:.3}"))
}

#[cfg(test)]
mod tests;
