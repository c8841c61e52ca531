//! Shows this replica on the Lease while another leads (`lease.announce`), for people: nobody decides by it.
//!
//! Owns the annotation, which is written seldom, by a task and on a connection of its own. The write repeats the spec that was read,
//! in the version that was read: whatever becomes of it, and whenever, the Lease names the same holder until the same time.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::sleep;

use super::lease::Lease;
use crate::{
    clock,
    election::{
        Answer, Request,
        record::{LeaseRecord, LeaseState},
        writes::{CANDIDATE, annotations_of, micros},
    },
    http::Health,
    link::Slot,
    time::Instant,
};

/// From one look at whether there is something to say to the next; nothing is sent for it.
const LOOK: Duration = Duration::from_secs(5);
/// From one write to the next, at least.
const SELDOM: Duration = Duration::from_secs(60);
/// What has not changed is said again after this.
const AGAIN: Duration = Duration::from_secs(600);
/// Who has not said anything for so long is gone.
const GONE: Duration = Duration::from_secs(3 * AGAIN.as_secs());

/// Runs for as long as the elector does.
pub(super) async fn announce(lease: Lease, health: Health, me: String) {
    let (mut said, mut not_before): (Option<(Instant, bool)>, _) = (None, Instant::BOOT);
    loop {
        // Not all replicas of a rollout at once.
        let early = Duration::from_millis(getrandom::u64().unwrap_or_default() % 3000);
        sleep(LOOK - early).await;
        let view = health.vital().view;
        let (now, is_ready) = (clock::boot(), view.ready && view.workload);
        if view.leading.is_some() {
            said = None;
        } else if view.ready
            && not_before <= now
            && said.is_none_or(|(at, was_ready)| was_ready != is_ready || now.since(at) >= AGAIN)
        {
            match write(&lease, &me, is_ready).await {
                Written::Said => (said, not_before) = (Some((now, is_ready)), now + SELDOM),
                Written::Nothing => not_before = now + SELDOM,
                Written::Crossed => {}
            }
        }
    }
}

/// What became of it.
enum Written {
    Said,
    /// Nobody leads, or the server does not answer, or refuses.
    Nothing,
    /// Another write came between.
    Crossed,
}

async fn write(lease: &Lease, me: &str, is_ready: bool) -> Written {
    let Answer::Object(object) = lease.send(Slot(0), &Request::Get).await else { return Written::Nothing };
    let shown = LeaseRecord::read(object).and_then(|record| with(&record, me, is_ready, clock::wall()));
    let Some(shown) = shown else { return Written::Nothing };
    match lease.send(Slot(0), &Request::Replace(shown.into())).await {
        Answer::Object(_) => Written::Said,
        Answer::Conflict => Written::Crossed,
        Answer::NotFound | Answer::Refused { .. } | Answer::Unknown { .. } | Answer::Deleted | Answer::Listed { .. } => {
            Written::Nothing
        }
    }
}

/// The Lease with this candidate, and without those that are gone or lead; none while nobody leads, or it is going to be deleted.
fn with(record: &LeaseRecord, me: &str, is_ready: bool, wall: i64) -> Option<Value> {
    let is_led = record.state() == LeaseState::Held && !record.is_held_by(me);
    if !is_led || record.is_being_deleted() {
        return None;
    }
    let mut object = record.object().clone();
    let annotations = annotations_of(&mut object);
    annotations.retain(|name, text| !name.starts_with(CANDIDATE) || remains(text, record, wall));
    let time = clock::timestamp().to_string();
    let text = json!({ "identity": me, "ready": is_ready, "version": env!("CARGO_PKG_VERSION"), "at": time }).to_string();
    let (_, own) = me.rsplit_once('_').unwrap_or_default();
    annotations.insert(format!("{CANDIDATE}{own}"), text.into());
    Some(object)
}

fn remains(text: &Value, record: &LeaseRecord, wall: i64) -> bool {
    let entry: Value = text.as_str().and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
    let at = entry["at"].as_str().and_then(micros).unwrap_or_default();
    let gone = i64::try_from(GONE.as_micros()).unwrap_or(i64::MAX);
    wall.saturating_sub(at) < gone && !entry["identity"].as_str().is_some_and(|identity| record.is_held_by(identity))
}

#[cfg(test)]
mod tests {
    use super::*;

    const WALL: i64 = 1_800_000_000_000_000;

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

        let shown = with(&record, "me_0", false, WALL).unwrap();

        let names: Vec<_> = shown["metadata"]["annotations"].as_object().unwrap().keys().collect();
        assert_eq!(names, ["candidate.tenure.dev/0", "candidate.tenure.dev/2", "team"]);
        assert_eq!(shown["spec"], record.object()["spec"]);
        assert_eq!((&shown["metadata"]["uid"], &shown["metadata"]["resourceVersion"]), (&json!("u"), &json!("7")));
        let own: Value =
            serde_json::from_str(shown["metadata"]["annotations"]["candidate.tenure.dev/0"].as_str().unwrap()).unwrap();
        assert_eq!((&own["identity"], &own["ready"]), (&json!("me_0"), &json!(false)));
    }

    #[test]
    fn nothing_is_written_on_a_lease_that_no_other_holds() {
        for holder in ["", "me_0", "tenure.dev/nobody"] {
            assert_eq!(with(&lease(holder, json!({})), "me_0", true, WALL), None, "{holder}");
        }
    }
}
