//! A client-go replica on the same Lease, as a machine without clock and IO: what tenure has to coexist with.
//!
//! It keeps its own deadlines: it leads for renewDeadline after the answer to its last renewal, which is less than the lease
//! duration by more than an answer may take. With releaseOnCancel it then empties the Lease, even if somebody else holds it by
//! then.

use std::{sync::Arc, time::Duration};

use serde_json::{Value, json};
use tenure::{
    election::{RequestId, writes::Sent},
    request::Answer,
    time::{Instant, Now},
};

use crate::register::Request;

/// Its settings.
#[derive(Clone, Copy, Debug, Hash)]
pub struct Times {
    /// leaseDuration, in seconds.
    pub lease: u64,
    pub renew_deadline: Duration,
    pub retry_period: Duration,
    /// Timeout of one request, except those of a release, which share another renewDeadline.
    pub timeout: Duration,
    /// releaseOnCancel.
    pub releases: bool,
}

#[derive(Clone, Debug, Hash)]
pub struct ClientGo {
    name: String,
    times: Times,
    /// Since when the last spec that it read has been unchanged, and the whole Lease.
    observed: Option<(Instant, Arc<Value>)>,
    /// Until when it leads.
    leads: Option<Instant>,
    /// The deadline of its release, once it has led.
    leaves: Option<Instant>,
    next: Instant,
    awaited: Option<Awaited>,
    requests: u64,
}

#[derive(Clone, Copy, Debug, Hash)]
struct Awaited {
    id: RequestId,
    late: Instant,
    writes: bool,
}

/// Its actions.
#[derive(Clone, Debug)]
pub enum Deed {
    /// Sends this request.
    Asks(RequestId, Request),
    /// Starts to lead, with this token.
    Leads(String),
    /// Fails to renew in time, and no longer leads.
    Ends,
    /// Its process has ended, and is to be restarted.
    Exits,
}

impl ClientGo {
    /// Returns a replica that starts now.
    pub fn start(name: String, times: Times, now: Instant) -> Self {
        Self { name, times, observed: None, leads: None, leaves: None, next: now, awaited: None, requests: 0 }
    }

    /// When it next has something to do.
    pub fn timeout(&self) -> Instant {
        let next = self.awaited.map_or(self.next, |awaited| awaited.late);
        self.leads.map_or(next, |end| end.min(next))
    }

    /// Does what is due.
    pub fn step(&mut self, now: Now) -> Option<Deed> {
        if now.boot < self.timeout() {
            return None;
        }
        if self.leads.take_if(|end| *end <= now.boot).is_some() {
            (self.leaves, self.next, self.awaited) = (Some(now.boot + self.times.renew_deadline), now.boot, None);
            return Some(Deed::Ends);
        }
        if self.leaves.is_some() {
            let begins = self.times.releases && self.awaited.is_none();
            return Some(if begins { self.ask(Request::Get, now) } else { Deed::Exits });
        }
        if self.awaited.take().is_some() {
            self.next = now.boot + self.times.retry_period;
            return None;
        }
        let write = self.leads.and(self.observed.as_ref()).map(|(_, lease)| self.record(lease, now));
        Some(self.ask(write.map_or(Request::Get, |lease| Request::Write(Sent::Replace(lease))), now))
    }

    /// Takes in an answer.
    pub fn answered(&mut self, id: RequestId, answer: Answer, now: Now) -> Option<Deed> {
        let Awaited { writes, .. } = self.awaited.take_if(|awaited| awaited.id == id)?;
        if let Some(end) = self.leaves {
            return Some(match (answer, writes) {
                // It alone decides whether it is the leader.
                (Answer::Object(lease), false) if now.boot < end => {
                    self.ask(Request::Write(Sent::Replace(mark(&lease, now))), now)
                }
                (Answer::Conflict, _) if now.boot < end => self.ask(Request::Get, now),
                _ => Deed::Exits,
            });
        }
        self.next = now.boot + self.times.retry_period;
        match (answer, writes) {
            (Answer::Object(lease), true) => {
                let token = lease["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned();
                self.observe(lease, now.boot);
                let begins = self.leads.replace(now.boot + self.times.renew_deadline).is_none();
                begins.then_some(Deed::Leads(token))
            }
            (Answer::Object(lease), false) => {
                let request = Request::Write(Sent::Replace(self.record(&lease, now)));
                self.observe(lease, now.boot);
                self.may_write(now.boot).then(|| self.ask(request, now))
            }
            (Answer::NotFound, false) => {
                let request = self.record(&json!({"metadata": {"name": "lease", "namespace": "default"}}), now);
                Some(self.ask(Request::Write(Sent::Create(request)), now))
            }
            // The fast path failed: it reads the Lease, and decides then.
            (Answer::Conflict, true) => Some(self.ask(Request::Get, now)),
            _ => None,
        }
    }

    fn ask(&mut self, request: Request, now: Now) -> Deed {
        self.requests += 1;
        let id = RequestId(self.requests);
        self.awaited =
            Some(Awaited { id, late: self.leaves.unwrap_or(now.boot + self.times.timeout), writes: request != Request::Get });
        Deed::Asks(id, request)
    }

    fn observe(&mut self, lease: Arc<Value>, boot: Instant) {
        let since = match &self.observed {
            Some((since, seen)) if seen["spec"] == lease["spec"] => *since,
            Some(_) | None => boot,
        };
        self.observed = Some((since, lease));
    }

    fn may_write(&self, boot: Instant) -> bool {
        let Some((since, lease)) = &self.observed else { return false };
        let holder = lease["spec"]["holderIdentity"].as_str().unwrap_or_default();
        let duration = Duration::from_secs(lease["spec"]["leaseDurationSeconds"].as_u64().unwrap_or_default());
        holder.is_empty() || holder == self.name || *since + duration <= boot
    }

    fn record(&self, from: &Value, now: Now) -> Arc<Value> {
        let mut lease = from.clone();
        let (spec, time) = (&from["spec"], time(now));
        let changes = spec["holderIdentity"] != self.name.as_str();
        let transitions = spec["leaseTransitions"].as_i64().map_or(0, |transitions| transitions + i64::from(changes));
        let acquired = if changes { &time } else { &spec["acquireTime"] };
        lease["spec"] = json!({
            "holderIdentity": self.name,
            "leaseDurationSeconds": self.times.lease,
            "acquireTime": acquired,
            "renewTime": time,
            "leaseTransitions": transitions,
        });
        lease.into()
    }
}

/// Returns the Lease as the replica leaves it on release.
fn mark(from: &Value, now: Now) -> Arc<Value> {
    let (mut lease, time) = (from.clone(), time(now));
    lease["spec"] = json!({
        "holderIdentity": "",
        "leaseDurationSeconds": 1,
        "acquireTime": time,
        "renewTime": time,
        "leaseTransitions": from["spec"]["leaseTransitions"].as_i64().unwrap_or_default(),
    });
    lease.into()
}

fn time(now: Now) -> Value {
    let time = jiff::Timestamp::from_microsecond(now.wall).expect("a time of this century");
    json!(format!("{time:.6}"))
}
