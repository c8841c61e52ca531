//! The network between one elector and the API server.
//!
//! Owns latencies, losses and cuts. A request may arrive long after its sender gave up on it.

use std::rc::Rc;

use tenure::{
    election::RequestId,
    request::{Answer, Refusal},
    slot::Slot,
};

use crate::{
    clock::{MS, Ns},
    engine::{Child, Engine},
    register::Request,
    server::Admission,
};

/// A request on its way.
#[derive(Clone, Debug)]
pub struct Flight {
    pub from: Child,
    /// The replica's identity.
    pub identity: Rc<str>,
    /// When its first byte left.
    pub sent: Ns,
    pub slot: Slot,
    pub id: RequestId,
    pub request: Request,
    /// Its number for the law, if it may change the spec.
    pub number: Option<usize>,
}

/// An answer on its way.
#[derive(Debug)]
pub struct Reply {
    pub to: Child,
    pub id: RequestId,
    pub answer: Answer,
    /// The slot that it tells of, and its version.
    pub at: (Slot, u64),
}

/// How the server treats requests that it does not carry out, or answers wrongly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mood {
    /// The server works normally.
    #[default]
    Fine,
    /// 429.
    Busy,
    /// 503, not carried out.
    Unavailable,
    /// 500 or 504, carried out or not.
    Confused,
    /// 401.
    Unauthorized,
    /// 403.
    Forbidden,
    /// 422.
    Invalid,
    /// 404 for the whole API group.
    Unserved,
    /// 409, to whatever is asked.
    Conflicting,
    /// An answer that is no Lease, whether the request is carried out or not.
    Garbled,
}

impl Mood {
    /// All but the normal one.
    pub const BAD: [Self; 9] = {
        use Mood::*;
        [Busy, Unavailable, Confused, Unauthorized, Forbidden, Invalid, Unserved, Conflicting, Garbled]
    };
}

/// The network of one replica, in both directions.
#[derive(Clone, Debug, Default)]
pub struct Road {
    /// Usual latency one way.
    pub usual: Ns,
    /// No request is carried out later than this after its first byte.
    pub latest: Ns,
    /// Requests are held up until then.
    pub up_cut: Ns,
    /// Answers and events are held up until then.
    pub down_cut: Ns,
    /// Until then, this fraction of requests and of replies is lost, and some arrive very late.
    pub bad: (Ns, f64),
    /// Until then, answers take up to so much longer.
    pub slow: (Ns, Ns),
    /// Until then, the server is in this mood.
    pub mood: (Ns, Mood),
    /// Until then, requests are duplicated on the way.
    pub twice: Ns,
    /// Until then, no answer to a write arrives.
    pub mute: Ns,
    /// Until then, admission does this to writes.
    pub admission: (Ns, Admission),
}

impl Road {
    pub fn new(usual: Ns, latest: Ns) -> Self {
        Self { usual, latest, ..Self::default() }
    }

    /// Until when it has a fault.
    pub fn trouble(&self) -> Ns {
        let late = [self.bad.0, self.mood.0].map(|until| until.saturating_add(self.latest));
        [self.up_cut, self.down_cut, self.slow.0, self.admission.0, self.mute].into_iter().chain(late).max().unwrap_or_default()
    }

    /// Ends its faults for good.
    pub fn mend(&mut self) {
        *self = Self::new(self.usual, self.latest);
    }

    /// When a request that leaves now reaches the server; none: never.
    pub fn up(&self, e: &mut Engine) -> Option<Ns> {
        self.travel(self.up_cut, e).filter(|at| *at <= e.now + self.latest)
    }

    /// When an answer that leaves now reaches the client; none: never.
    pub fn down(&self, e: &mut Engine) -> Option<Ns> {
        let late = if e.now < self.slow.0 { e.between(0, self.slow.1) } else { 0 };
        self.travel(self.down_cut, e).map(|at| at + late)
    }

    fn travel(&self, cut: Ns, e: &mut Engine) -> Option<Ns> {
        let mut span = e.spread(self.usual / 4 + 1, self.usual * 2);
        if e.now < self.bad.0 {
            if e.chance(self.bad.1) {
                return None;
            }
            if e.chance(0.5) {
                span = e.spread(10 * MS, self.latest);
            }
        }
        if e.now < cut {
            return (!e.chance(0.5)).then_some(cut + span);
        }
        Some(e.now + span)
    }

    /// When a request that arrives at `first` arrives again; none: never.
    pub fn again(&self, first: Ns, e: &mut Engine) -> Option<Ns> {
        (e.now < self.twice && e.chance(0.5)).then(|| first + e.spread(MS, self.latest))
    }

    /// The server's answer without looking at the request, and whether it carries the request out all the same.
    pub fn moody(&self, e: &mut Engine) -> Option<(Answer, bool)> {
        let (until, mood) = self.mood;
        if e.now >= until || e.chance(0.2) {
            return None;
        }
        let retry_after = e.chance(0.3).then(|| std::time::Duration::from_secs(e.rng.u64(1..10)));
        let refused = |refusal| Some((Answer::Refused { refusal, message: format!("{mood:?}").into() }, false));
        match mood {
            Mood::Fine => None,
            Mood::Busy => refused(Refusal::TooManyRequests { retry_after }),
            Mood::Unauthorized => refused(Refusal::Unauthorized),
            Mood::Forbidden => refused(Refusal::Forbidden),
            Mood::Invalid => refused(Refusal::Invalid),
            Mood::Unserved => refused(Refusal::NoSuchPlace),
            Mood::Conflicting => Some((Answer::Conflict, false)),
            Mood::Garbled => Some((Answer::Object(serde_json::json!({}).into()), e.chance(0.5))),
            Mood::Unavailable => Some((Answer::Unknown { message: "503".into(), retry_after }, false)),
            Mood::Confused => Some((Answer::Unknown { message: "504".into(), retry_after }, e.chance(0.5))),
        }
    }
}
