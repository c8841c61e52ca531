//! How long a holder that lives is waited for, where there is a bound (`lock --try`, `lock --timeout`).
//!
//! Owns the decision to give up. Takes nothing: the wall clock tells whether it is worth while to watch for longer, and when the Lease
//! is taken is the law's to say (11, 14).

use std::time::Duration;

use super::{
    AcquireReason, Event, RequestError,
    core::{Core, oddity},
    observation::Eligibility,
    record::{LeaseRecord, LeaseState},
};
use crate::{
    config::{self, humane},
    exit,
    time::{Instant, Now},
};

#[derive(Clone, Debug)]
pub(crate) struct Patience {
    until: Instant,
    code: u8,
    /// What was done about it was decided since.
    is_over: bool,
    /// The sight that looked abandoned then. In a later one of a holder somebody has renewed it.
    watched: Option<u64>,
    /// The sight in which the Lease may be taken and is not, and since when.
    in_vain: Option<(u64, Instant)>,
}

/// The exit code, and why, on one line.
pub(crate) type GivenUp = (u8, String);

impl Patience {
    pub(crate) fn new(bound: config::Patience, began: Instant) -> Self {
        Self { until: began + bound.limit, code: bound.code, is_over: false, watched: None, in_vain: None }
    }

    /// When it is over, unless that was acted on.
    pub(crate) fn due(&self) -> Option<Instant> {
        Some(self.until).filter(|_| !self.is_over)
    }
}

impl Core {
    /// Why nothing is waited for any longer, if so. Asked while no answer is awaited.
    pub(crate) fn gives_up(&mut self, seen: &Eligibility, is_unsettled: bool, now: Now) -> Option<GivenUp> {
        let mut patience = self.patience.take_if(|patience| patience.until <= now.boot)?;
        patience.is_over = true;
        let given_up = self.judge(&mut patience, seen, is_unsettled, now);
        self.patience = Some(patience);
        given_up
    }

    fn judge(&mut self, patience: &mut Patience, seen: &Eligibility, is_unsettled: bool, now: Now) -> Option<GivenUp> {
        let sight = self.observation.sight();
        let (at, may_live) = match seen {
            // Not before a request has failed.
            Eligibility::Unknown => return (now.boot < self.pacing.retry_at()).then(|| self.unavailable(now)),
            _ if is_unsettled => (now.boot, false),
            _ if self.failure().is_some_and(RequestError::is_forbidden) => return Some(self.unavailable(now)),
            Eligibility::Closed => return Some((patience.code, self.not_acquired(None, now))),
            Eligibility::Vacant { .. } => (now.boot, false),
            // Beside a date so far in the future every single run would be in vain: there, too, only watching can tell.
            Eligibility::Open { at, why: AcquireReason::Due, from }
                if now.boot < *at && from.ahead(now.wall) <= at.since(now.boot) =>
            {
                let left = Duration::from_secs(at.since(now.boot).as_secs());
                let due = format!("the next run is due in {}", humane::format(left));
                return Some((patience.code, self.not_acquired(Some(due), now)));
            }
            Eligibility::Open { at, why, .. } => (*at, *why == AcquireReason::Expired),
        };
        if at <= now.boot {
            let since = patience.in_vain.filter(|(of, _)| *of == sight).map_or(now.boot, |(_, since)| since);
            patience.in_vain = Some((sight, since));
            return (now.boot >= since + self.timing.duration).then(|| self.unavailable(now));
        }
        let unknown = self.timing.duration;
        let looks_alive = |record: &LeaseRecord| record.looks_alive(unknown, now.wall);
        let lives = match patience.watched {
            None => self.observation.record().is_some_and(looks_alive),
            Some(watched) => watched != sight,
        };
        if may_live && lives {
            return Some((patience.code, self.not_acquired(None, now)));
        }
        if patience.watched.replace(sight).is_none() {
            let wait = humane::format(at.since(now.boot));
            let message = format!(
                "the Lease looks abandoned, which only watching it can tell: unless somebody renews it, it is taken in {wait}"
            );
            self.report(Event::Odd { message });
        }
        None
    }

    /// It cannot be read, or may be taken and is not.
    fn unavailable(&self, now: Now) -> GivenUp {
        let why = self.failure();
        let denied = matches!(why.and_then(|why| why.status), Some(401 | 403));
        let code = if denied { exit::NOT_PERMITTED } else { exit::UNAVAILABLE };
        (code, self.not_acquired(Some(why.map_or_else(|| "it keeps changing".into(), RequestError::to_string)), now))
    }

    fn not_acquired(&self, why: Option<String>, now: Now) -> String {
        let record = self.observation.record();
        let held = record.and_then(|record| {
            let (holder, since) = (record.holder()?, record.acquire_time().unwrap_or("a time unknown"));
            let age = record.age(now.wall).map_or_else(
                || "never".into(),
                |age| {
                    let seconds = u64::try_from(age / 1_000_000).unwrap_or_default();
                    format!("{} ago", humane::format(Duration::from_secs(seconds)))
                },
            );
            let is = if record.state() == LeaseState::Resting { "was run" } else { "is held" };
            Some(format!("it {is} by {holder} since {since}, renewed {age}"))
        });
        let odd = record.and_then(|record| oddity(record, Some(&self.writer.identity))).map(str::to_owned);
        let parts: Vec<_> = [why, held, odd].into_iter().flatten().collect();
        format!("the Lease {} was not acquired: {}", self.writer.name, parts.join("; "))
    }
}
