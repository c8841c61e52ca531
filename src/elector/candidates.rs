//! Announces this replica on the Lease while another leads (`lease.announce`), for people only.
//!
//! Owns when that is done: seldom, by a task and on a connection of its own. [`Announcements`] decides it.

use std::time::Duration;

use tokio::time::sleep;

use super::lease::Lease;
use crate::{
    clock,
    election::{
        Request,
        record::LeaseRecord,
        writes::operator::{ANNOUNCED_AGAIN, Candidate, announced},
    },
    http::Health,
    request::Answer,
    slot::Slot,
    time::Instant,
};

/// The time from one check for a change to the next. A check sends nothing.
const LOOK: Duration = Duration::from_secs(5);
/// The least time from one write to the next.
const SELDOM: Duration = Duration::from_secs(60);

/// Runs for as long as the elector does.
pub(super) async fn announce(lease: Lease, health: Health, me: String) {
    let mut announcements = Announcements::default();
    loop {
        // The replicas of a rollout do not all write at once.
        let early = Duration::from_millis(getrandom::u64().unwrap_or_default() % 3000);
        sleep(LOOK - early).await;
        let (status, leader) = (health.status().clone(), health.first_holder());
        let (view, now) = (status.election, clock::boot());
        let state = Candidate { ready: view.ready && status.is_workload_fit(), backoff_until: view.backoff.after_failures(now) };
        if announcements.is_due(leader, view.leading.is_some(), state, now) && view.ready {
            announcements.wrote(&write(&lease, &me, state).await, state, now);
        }
    }
}

/// What was written, and when the next write may come.
#[derive(Default)]
struct Announcements {
    said: Option<(Instant, Candidate)>,
    not_before: Option<Instant>,
    holder: Option<String>,
}

impl Announcements {
    /// Takes in who leads, and whether this replica does. Returns true if a write is due.
    fn is_due(&mut self, leader: Option<String>, leads: bool, state: Candidate, now: Instant) -> bool {
        if leader.is_some() && leader != self.holder {
            // A replica that takes the Lease drops all announcements.
            *self = Self { holder: leader, ..Self::default() };
        }
        if leads {
            self.said = None;
        }
        !leads
            && self.not_before.is_none_or(|at| at <= now)
            && self.said.is_none_or(|(at, before)| before != state || now.since(at) >= ANNOUNCED_AGAIN)
    }

    fn wrote(&mut self, written: &Written, state: Candidate, now: Instant) {
        match written {
            Written::Said => (self.said, self.not_before) = (Some((now, state)), Some(now + SELDOM)),
            Written::Nothing => self.not_before = Some(now + SELDOM),
            Written::Crossed => {}
        }
    }
}

/// The outcome of a write.
enum Written {
    Said,
    /// Not written: nobody leads, or the server does not answer, or refuses.
    Nothing,
    /// Another write came between.
    Crossed,
}

async fn write(lease: &Lease, me: &str, state: Candidate) -> Written {
    let Answer::Object(object) = lease.send(Slot(0), &Request::Get).await else { return Written::Nothing };
    let shown = LeaseRecord::read(object).and_then(|record| announced(&record, me, state, clock::now()));
    let Some(shown) = shown else { return Written::Nothing };
    match lease.send(Slot(0), &Request::Write(shown)).await {
        Answer::Object(_) => Written::Said,
        Answer::Conflict => Written::Crossed,
        Answer::NotFound | Answer::Refused { .. } | Answer::Unknown { .. } | Answer::Deleted | Answer::Listed { .. } => {
            Written::Nothing
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const READY: Candidate = Candidate { ready: true, backoff_until: None };
    const UNFIT: Candidate = Candidate { ready: false, ..READY };

    #[test]
    fn a_standby_announces_itself_once_a_minute_at_most_and_again_after_ten() {
        let at = |seconds| Instant::BOOT + Duration::from_secs(seconds);
        let is_due =
            |announcements: &mut Announcements, state, seconds| announcements.is_due(Some("a".into()), false, state, at(seconds));
        let mut announcements = Announcements::default();
        assert!(is_due(&mut announcements, READY, 0));

        announcements.wrote(&Written::Said, READY, at(0));

        assert_eq!([59, 60].map(|seconds| is_due(&mut announcements, UNFIT, seconds)), [false, true]);
        assert_eq!([599, 600].map(|seconds| is_due(&mut announcements, READY, seconds)), [false, true]);
        announcements.wrote(&Written::Nothing, UNFIT, at(60));
        assert_eq!([119, 120].map(|seconds| is_due(&mut announcements, UNFIT, seconds)), [false, true]);
        announcements.wrote(&Written::Crossed, UNFIT, at(120));
        assert!(is_due(&mut announcements, UNFIT, 120), "another write came between");
        assert!(!is_due(&mut announcements, READY, 121), "the same leader kept it");
        assert!(announcements.is_due(Some("b".into()), false, READY, at(121)), "the next leader dropped it");
        assert!(!announcements.is_due(Some("me".into()), true, READY, at(1_000)), "it leads itself");
        assert!(announcements.is_due(None, false, READY, at(1_005)), "it leads no more, and dropped its own");
    }
}
