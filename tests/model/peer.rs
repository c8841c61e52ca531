//! A client-go replica on the same Lease: what tenure has to live beside.
//!
//! It keeps its own deadlines: it leads for renewDeadline after the answer to its last renewal, which is less than the lease
//! duration by more than an answer may take. It does not release, and nothing of it survives its end.

use serde_json::{Value, json};
use tenure::{
    election::{Answer, Request, RequestId},
    time::Instant,
};

use crate::{
    clock::{Clock, MS, Ns},
    judge::Judge,
    world::Who,
};

const LEASE_DURATION: u64 = 3;
const RENEW_DEADLINE: std::time::Duration = std::time::Duration::from_millis(2_000);
const RETRY_PERIOD: std::time::Duration = std::time::Duration::from_millis(500);
/// Of one request.
const TIMEOUT: Ns = 900 * MS;

/// See the module.
#[derive(Clone, Debug)]
pub struct Peer {
    pub who: Who,
    pub clock: Clock,
    /// Requests and answers are lost.
    pub cut: bool,
    /// The last spec that it read, since when that is unchanged, and the whole Lease.
    observed: Option<(Instant, Value)>,
    /// It leads until then.
    leads: Option<Instant>,
    next: Instant,
    awaited: Option<(RequestId, Ns, bool)>,
    requests: u64,
}

impl Peer {
    /// The `replica`-th on the Lease.
    pub fn start(replica: usize, clock: Clock) -> Self {
        let who = Who { replica, life: 1 };
        Self { who, clock, cut: false, observed: None, leads: None, next: Instant::BOOT, awaited: None, requests: 0 }
    }

    /// Whether it has something to do now.
    pub fn has_work(&self, now: Ns) -> bool {
        self.timeout().is_some_and(|at| at <= now)
    }

    /// When it has something to do.
    pub fn timeout(&self) -> Option<Ns> {
        let next = self.awaited.map_or_else(|| self.clock.real(self.next), |(_, late, _)| late);
        let end = self.leads.map(|at| self.clock.real(at));
        Some(end.map_or(next, |end| end.min(next)))
    }

    /// It does it; a request that it sends.
    pub fn step(&mut self, now: Ns, judge: &mut Judge) -> Option<(RequestId, Request)> {
        let boot = self.clock.boot(now);
        if self.leads.is_some_and(|end| end <= boot) {
            judge.gone(self.who, 0);
            let who = Who { life: self.who.life + 1, ..self.who };
            *self = Self { who, cut: self.cut, next: boot, requests: self.requests, ..Self::start(who.replica, self.clock) };
            return None;
        }
        if self.awaited.take().is_some() {
            self.next = boot + RETRY_PERIOD;
            return None;
        }
        let write = self.leads.and(self.observed.as_ref()).map(|(_, lease)| Request::Replace(self.record(lease, now).into()));
        Some(self.ask(write.unwrap_or(Request::Get), now))
    }

    /// The answer to what it asked; what it asks next.
    pub fn answered(&mut self, id: RequestId, answer: Answer, now: Ns, judge: &mut Judge) -> Option<(RequestId, Request)> {
        let (_, _, writes) = self.awaited.take_if(|(awaited, ..)| *awaited == id)?;
        let boot = self.clock.boot(now);
        self.next = boot + RETRY_PERIOD;
        match answer {
            Answer::Object(lease) => {
                self.observe(&lease, boot);
                if writes {
                    let token = lease["metadata"]["resourceVersion"].as_str().and_then(|version| version.parse().ok());
                    if self.leads.replace(boot + RENEW_DEADLINE).is_none() {
                        judge.leads(self.who, 0, token.unwrap_or_default());
                    }
                    return None;
                }
                let request = Request::Replace(self.record(&lease, now).into());
                self.may_write(&lease, boot).then(|| self.ask(request, now))
            }
            // The fast path failed: it reads, and sees.
            Answer::Conflict if writes => Some(self.ask(Request::Get, now)),
            Answer::NotFound | Answer::Conflict | Answer::Deleted | Answer::Refused { .. } | Answer::Unknown { .. } => None,
        }
    }

    fn ask(&mut self, request: Request, now: Ns) -> (RequestId, Request) {
        self.requests += 1;
        let id = RequestId(self.requests);
        self.awaited = Some((id, now + TIMEOUT, request != Request::Get));
        (id, request)
    }

    fn observe(&mut self, lease: &Value, boot: Instant) {
        let since = match &self.observed {
            Some((since, seen)) if seen["spec"] == lease["spec"] => *since,
            Some(_) | None => boot,
        };
        self.observed = Some((since, lease.clone()));
    }

    fn may_write(&self, lease: &Value, boot: Instant) -> bool {
        let holder = lease["spec"]["holderIdentity"].as_str().unwrap_or_default();
        let duration = std::time::Duration::from_secs(lease["spec"]["leaseDurationSeconds"].as_u64().unwrap_or_default());
        let since = self.observed.as_ref().map_or(boot, |(since, _)| *since);
        holder.is_empty() || holder == self.who.to_string() || since + duration <= boot
    }

    fn record(&self, from: &Value, now: Ns) -> Value {
        let mut lease = from.clone();
        let spec = &from["spec"];
        let time = jiff::Timestamp::from_microsecond(self.clock.now(now).wall).expect("a time of this century");
        let time = json!(format!("{time:.6}"));
        let changes = i64::from(spec["holderIdentity"] != self.who.to_string());
        let transitions = spec["leaseTransitions"].as_i64().unwrap_or_default() + changes;
        let acquired = if changes == 0 { &spec["acquireTime"] } else { &time };
        lease["spec"] = json!({
            "holderIdentity": self.who.to_string(),
            "leaseDurationSeconds": LEASE_DURATION,
            "acquireTime": acquired,
            "renewTime": time,
            "leaseTransitions": transitions,
        });
        lease
    }
}
