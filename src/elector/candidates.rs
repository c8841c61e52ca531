//! Announces this replica on the Lease while another leads (`lease.announce`), for people only.
//!
//! Owns the annotation, which is written seldom, by a task and on a connection of its own. The write repeats the spec and the
//! version that were read. So even a late one changes neither the holder nor its times.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::sleep;

use super::lease::Lease;
use crate::{
    clock,
    election::{
        Request,
        record::{LeaseRecord, LeaseState},
        writes::{CANDIDATE, annotations_of, display, micros},
    },
    http::Health,
    request::Answer,
    slot::Slot,
    time::{Instant, Now},
};

/// The time from one check for a change to the next. A check sends nothing.
const LOOK: Duration = Duration::from_secs(5);
/// The least time from one write to the next.
const SELDOM: Duration = Duration::from_secs(60);
/// An unchanged announcement is repeated after this time.
const AGAIN: Duration = Duration::from_secs(600);
/// At most so many announcements are kept, the latest ones: the API server refuses a Lease with too many annotations.
const MOST: usize = 64;
/// A candidate without an announcement for so long is gone.
const GONE: Duration = Duration::from_secs(3 * AGAIN.as_secs());

/// Runs for as long as the elector does.
pub(super) async fn announce(lease: Lease, health: Health, me: String) {
    let (mut said, mut not_before, mut holder): (Option<(Instant, _)>, _, _) = (None, Instant::BOOT, None);
    loop {
        // The replicas of a rollout do not all write at once.
        let early = Duration::from_millis(getrandom::u64().unwrap_or_default() % 3000);
        sleep(LOOK - early).await;
        let (view, leader) = (health.vital().view, health.holder());
        if leader.is_some() && leader != holder {
            // A replica that takes the Lease drops all announcements.
            (said, not_before, holder) = (None, Instant::BOOT, leader);
        }
        let now = clock::boot();
        let state = State { ready: view.ready && view.workload, backoff_until: view.backoff.after_failures(now) };
        if view.leading.is_some() {
            said = None;
        } else if view.ready && not_before <= now && said.is_none_or(|(at, before)| before != state || now.since(at) >= AGAIN) {
            match write(&lease, &me, state).await {
                Written::Said => (said, not_before) = (Some((now, state)), now + SELDOM),
                Written::Nothing => not_before = now + SELDOM,
                Written::Crossed => {}
            }
        }
    }
}

/// The state of this candidate.
#[derive(Clone, Copy, PartialEq, Eq)]
struct State {
    ready: bool,
    /// The end of its back-off after failures.
    backoff_until: Option<Instant>,
}

/// The outcome of a write.
enum Written {
    Said,
    /// Not written: nobody leads, or the server does not answer, or refuses.
    Nothing,
    /// Another write came between.
    Crossed,
}

async fn write(lease: &Lease, me: &str, state: State) -> Written {
    let Answer::Object(object) = lease.send(Slot(0), &Request::Get).await else { return Written::Nothing };
    let shown = LeaseRecord::read(object).and_then(|record| with(&record, me, state, clock::now()));
    let Some(shown) = shown else { return Written::Nothing };
    match lease.send(Slot(0), &Request::Replace(shown.into())).await {
        Answer::Object(_) => Written::Said,
        Answer::Conflict => Written::Crossed,
        Answer::NotFound | Answer::Refused { .. } | Answer::Unknown { .. } | Answer::Deleted | Answer::Listed { .. } => {
            Written::Nothing
        }
    }
}

/// Makes the Lease with this candidate, and without those that are gone or lead. None while nobody leads, or while the Lease is
/// being deleted.
fn with(record: &LeaseRecord, me: &str, state: State, now: Now) -> Option<Value> {
    let is_led = record.state() == LeaseState::Held && !record.is_held_by(me);
    if !is_led || record.is_being_deleted() {
        return None;
    }
    let mut object = record.object().clone();
    let annotations = annotations_of(&mut object);
    annotations.retain(|name, text| !name.starts_with(CANDIDATE) || remains(text, record, now.wall));
    let mut shown: Vec<_> = annotations.iter().filter(|(name, _)| name.starts_with(CANDIDATE)).collect();
    shown.sort_by_key(|(_, text)| said_at(&entry_of(text)));
    let beyond: Vec<_> = shown.into_iter().rev().skip(MOST - 1).map(|(name, _)| name.clone()).collect();
    beyond.iter().for_each(|name| drop(annotations.remove(name)));
    let time = |after: Duration| display(now.wall.saturating_add(i64::try_from(after.as_micros()).unwrap_or_default()));
    let text = json!({
        "identity": me, "ready": state.ready, "version": env!("CARGO_PKG_VERSION"), "at": time(Duration::ZERO),
        "backoffUntil": state.backoff_until.map(|until| time(until.since(now.boot))),
    });
    let (_, own) = me.rsplit_once('_').unwrap_or_default();
    annotations.insert(format!("{CANDIDATE}{own}"), text.to_string().into());
    Some(object)
}

fn remains(text: &Value, record: &LeaseRecord, wall: i64) -> bool {
    let entry = entry_of(text);
    let gone = i64::try_from(GONE.as_micros()).unwrap_or(i64::MAX);
    wall.saturating_sub(said_at(&entry)) < gone && !entry["identity"].as_str().is_some_and(|identity| record.is_held_by(identity))
}

fn entry_of(text: &Value) -> Value {
    text.as_str().and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
}

fn said_at(entry: &Value) -> i64 {
    entry["at"].as_str().and_then(micros).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Now = Now { boot: Instant::BOOT, wall: 1_800_000_000_000_000 };

    const fn state(ready: bool) -> State {
        State { ready, backoff_until: None }
    }

    fn lease(holder: &str, annotations: Value) -> LeaseRecord {
        let spec = json!({ "holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": "2027-01-15T08:00:00.000000Z" });
        let metadata = json!({ "name": "l", "uid": "u", "resourceVersion": "7", "annotations": annotations });
        LeaseRecord::read(json!({ "metadata": metadata, "spec": spec }).into()).unwrap()
    }

    fn entry(identity: &str, at: &str) -> Value {
        json!({ "identity": identity, "ready": true, "version": "0", "at": at }).to_string().into()
    }

    #[test]
    fn a_candidate_joins_those_that_still_are_some_and_changes_nothing_else() {
        let record = lease(
            "a_1",
            json!({
                "team": "billing",
                "candidate.tenure.dev/1": entry("a_1", "2027-01-15T08:00:00Z"),
                "candidate.tenure.dev/2": entry("b_2", "2027-01-15T07:31:00Z"),
                "candidate.tenure.dev/3": entry("c_3", "2027-01-15T07:29:00Z"),
                "candidate.tenure.dev/4": "nonsense",
            }),
        );

        let shown = with(&record, "me_0", State { backoff_until: Some(NOW.boot + Duration::from_secs(30)), ..state(false) }, NOW)
            .unwrap();

        let names: Vec<_> = shown["metadata"]["annotations"].as_object().unwrap().keys().collect();
        assert_eq!(names, ["candidate.tenure.dev/0", "candidate.tenure.dev/2", "team"]);
        assert_eq!(shown["spec"], record.object()["spec"]);
        assert_eq!((&shown["metadata"]["uid"], &shown["metadata"]["resourceVersion"]), (&json!("u"), &json!("7")));
        let own: Value =
            serde_json::from_str(shown["metadata"]["annotations"]["candidate.tenure.dev/0"].as_str().unwrap()).unwrap();
        assert_eq!((&own["identity"], &own["ready"]), (&json!("me_0"), &json!(false)));
        assert_eq!([&own["at"], &own["backoffUntil"]], ["2027-01-15T08:00:00.000000Z", "2027-01-15T08:00:30.000000Z"]);
    }

    #[test]
    fn no_crowd_of_candidates_makes_the_lease_too_long_to_be_written() {
        let crowd = (0..2000).map(|who| {
            let minute = format!("2027-01-15T07:{:02}:{:02}Z", 40 + who / 120, who % 60);
            (format!("{CANDIDATE}{who}"), entry(&format!("b_{who}"), &minute))
        });
        let shown = with(&lease("a_1", Value::Object(crowd.collect())), "me_0", state(true), NOW).unwrap();

        let annotations = shown["metadata"]["annotations"].as_object().unwrap();
        assert_eq!(annotations.len(), MOST);
        assert!(annotations.contains_key("candidate.tenure.dev/1979") && annotations.contains_key("candidate.tenure.dev/0"));
    }

    #[test]
    fn nothing_is_written_on_a_lease_that_no_other_holds() {
        for holder in ["", "me_0", "tenure.dev/nobody"] {
            assert_eq!(with(&lease(holder, json!({})), "me_0", state(true), NOW), None, "{holder}");
        }
    }
}
