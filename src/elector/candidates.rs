//! Announces this replica on the Lease while another leads (`lease.announce`), for people only.
//!
//! Owns when that is done: seldom, by a task and on a connection of its own.

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
    let (mut said, mut not_before, mut holder): (Option<(Instant, _)>, _, _) = (None, Instant::BOOT, None);
    loop {
        // The replicas of a rollout do not all write at once.
        let early = Duration::from_millis(getrandom::u64().unwrap_or_default() % 3000);
        sleep(LOOK - early).await;
        let (status, leader) = (health.status().clone(), health.holder());
        let view = status.election;
        if leader.is_some() && leader != holder {
            // A replica that takes the Lease drops all announcements.
            (said, not_before, holder) = (None, Instant::BOOT, leader);
        }
        let now = clock::boot();
        let state = Candidate { ready: view.ready && status.is_workload_fit(), backoff_until: view.backoff.after_failures(now) };
        if view.leading.is_some() {
            said = None;
        } else if view.ready
            && not_before <= now
            && said.is_none_or(|(at, before)| before != state || now.since(at) >= ANNOUNCED_AGAIN)
        {
            match write(&lease, &me, state).await {
                Written::Said => (said, not_before) = (Some((now, state)), now + SELDOM),
                Written::Nothing => not_before = now + SELDOM,
                Written::Crossed => {}
            }
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
    match lease.send(Slot(0), shown.request()).await {
        Answer::Object(_) => Written::Said,
        Answer::Conflict => Written::Crossed,
        Answer::NotFound | Answer::Refused { .. } | Answer::Unknown { .. } | Answer::Deleted | Answer::Listed { .. } => {
            Written::Nothing
        }
    }
}
