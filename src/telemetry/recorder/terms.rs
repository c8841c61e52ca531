//! The order of terms, of any replica, as the Lease shows it.

use std::time::Duration;

use super::Recorder;
use crate::{
    election::{
        record::{LeaseRecord, LeaseState, later},
        writes::{OBITUARY, micros},
    },
    slot::Slot,
    telemetry::transition::{Recorded, TermEnd},
};

impl Recorder {
    /// Records that the Lease of this slot was read in this version; none if it does not exist. If nobody holds it, it is waited for
    /// that long.
    pub(super) fn observed(&mut self, slot: Slot, record: Option<&LeaseRecord>, nobody: Option<Duration>) -> Option<Recorded> {
        let is_past = |seen: &LeaseRecord| record.is_some_and(|record| later(seen.resource_version(), record.resource_version()));
        if self.observed.get(&slot).is_some_and(is_past) {
            return None;
        }
        let seen = match record {
            Some(record) => self.observed.insert(slot, record.clone()),
            None => self.observed.remove(&slot),
        };
        let (last, term) = (seen.as_ref().and_then(term_of), record.and_then(term_of));
        if last == term {
            return None;
        }
        let state = record.map(LeaseRecord::state);
        let time = record.and_then(|record| match state? {
            LeaseState::Held => record.acquire_time(),
            LeaseState::Nobody => record.renew_time(),
            // Each renewTime is at least a second above the last, so the one of a release may be later than the next term.
            LeaseState::Resting | LeaseState::Released | LeaseState::Free => None,
        });
        let at = time.and_then(micros).unwrap_or(self.now.wall);
        let before = last.map(|_| match state {
            None => TermEnd::Deleted,
            Some(LeaseState::Free) => TermEnd::Cleared,
            Some(LeaseState::Released) if record.is_some_and(|record| record.annotation(OBITUARY).is_some()) => TermEnd::Died,
            Some(LeaseState::Released | LeaseState::Resting) => TermEnd::Released,
            Some(LeaseState::Held | LeaseState::Nobody) => {
                // Nobody's renewTime may be a second ahead.
                let is_over = seen
                    .as_ref()
                    .is_some_and(|seen| seen.state() == LeaseState::Nobody || seen.looks_expired(Duration::ZERO, at));
                if is_over { TermEnd::Expired } else { TermEnd::Replaced }
            }
        });
        let (holder, term) = term.map_or((None, 0), |(holder, _, term)| (Some(holder.to_owned()), term));
        Some(Recorded::HolderChanged { slot, holder, term, at, before, nobody })
    }
}

/// The fields by which one term is told from another.
fn term_of(record: &LeaseRecord) -> Option<(&str, Option<&str>, i32)> {
    match record.state() {
        LeaseState::Held | LeaseState::Nobody => Some((record.holder()?, record.acquire_time(), record.transitions())),
        LeaseState::Resting | LeaseState::Released | LeaseState::Free => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::{
        config::Config,
        election::writes::{NOBODY, RESTS},
        link::InitialState,
        time::{Instant, Now},
    };

    /// By the clock here it is past all times of the Lease.
    const WALL: i64 = 1_800_000_000_000_000;

    /// 2027-01-15T07:00:00Z and so many seconds, as in a Lease.
    fn time(seconds: i64) -> String {
        format!("{:.6}", jiff::Timestamp::from_second(WALL / 1_000_000 - 3_600 + seconds).unwrap())
    }

    fn held(holder: &str, since: i64, renewed: i64, term: i32) -> Value {
        json!({
            "holderIdentity": holder, "leaseDurationSeconds": 15, "leaseTransitions": term,
            "acquireTime": time(since), "renewTime": time(renewed),
        })
    }

    fn released(at: i64) -> Value {
        json!({ "holderIdentity": "", "leaseDurationSeconds": 1, "acquireTime": time(at), "renewTime": time(at) })
    }

    fn record(version: u64, spec: &Value, rests: Option<String>) -> LeaseRecord {
        let annotations = rests.map_or_else(|| json!({}), |rests| json!({ RESTS: rests }));
        let metadata = json!({ "uid": "u", "resourceVersion": version.to_string(), "annotations": annotations });
        LeaseRecord::read(json!({ "metadata": metadata, "spec": spec }).into()).unwrap()
    }

    fn recorder() -> Recorder {
        Recorder::new(&InitialState::first(Config::default(), "a_1".into()), Now { boot: Instant::BOOT, wall: WALL })
    }

    /// Whose term began and when, in seconds after that of [`time`], and how the one before it ended.
    fn told(recorded: Option<Recorded>) -> Option<(String, i32, i64, Option<TermEnd>)> {
        let Recorded::HolderChanged { slot: Slot(3), holder, term, at, before, .. } = recorded? else { panic!("another part") };
        Some((holder.unwrap_or_default(), term, at / 1_000_000 - (WALL / 1_000_000 - 3_600), before))
    }

    #[test]
    fn terms_follow_each_other_as_the_lease_shows_them() {
        let (mut recorder, mut version) = (recorder(), 0);
        let mut saw = |spec: Value| {
            version += 1;
            told(recorder.observed(Slot(3), Some(&record(version, &spec, None)), None))
        };
        let nobody =
            json!({ "holderIdentity": NOBODY, "leaseDurationSeconds": 15, "leaseTransitions": 9, "renewTime": time(70) });

        assert_eq!(saw(held("a", 0, 0, 7)), Some(("a".into(), 7, 0, None)));
        assert_eq!(saw(held("a", 0, 3, 7)), None);
        assert_eq!(saw(released(5)), Some((String::new(), 0, 3_600, Some(TermEnd::Released))));
        assert_eq!(saw(released(6)), None);
        assert_eq!(saw(held("b", 6, 6, 8)), Some(("b".into(), 8, 6, None)));
        assert_eq!(saw(held("c", 22, 22, 9)), Some(("c".into(), 9, 22, Some(TermEnd::Expired))));
        assert_eq!(saw(held("d", 30, 30, 10)), Some(("d".into(), 10, 30, Some(TermEnd::Replaced))));
        assert_eq!(saw(held("d", 40, 40, 11)), Some(("d".into(), 11, 40, Some(TermEnd::Replaced))));
        assert_eq!(saw(json!({})), Some((String::new(), 0, 3_600, Some(TermEnd::Cleared))));
        assert_eq!(saw(nobody), Some((NOBODY.into(), 9, 70, None)));
        assert_eq!(saw(held("e", 84, 84, 10)), Some(("e".into(), 10, 84, Some(TermEnd::Expired))));
    }

    #[test]
    fn a_term_whose_holder_is_dead_has_ended_so() {
        let mut recorder = recorder();
        let dead = released(5);
        let metadata = json!({ "uid": "u", "resourceVersion": "2", "annotations": { OBITUARY: "a" } });
        let dead = LeaseRecord::read(json!({ "metadata": metadata, "spec": dead }).into()).unwrap();

        recorder.observed(Slot(3), Some(&record(1, &held("a", 0, 0, 7), None)), None);

        let (.., before) = told(recorder.observed(Slot(3), Some(&dead), None)).unwrap();
        assert_eq!(before, Some(TermEnd::Died));
    }

    #[test]
    fn how_long_nobody_is_waited_for_is_told_once() {
        let (mut recorder, wait) = (recorder(), Some(Duration::from_secs(15)));
        let mut waits = || {
            let spec = json!({ "holderIdentity": NOBODY, "leaseDurationSeconds": 15, "renewTime": time(70) });
            recorder.observed(Slot(3), Some(&record(1, &spec, None)), wait)
        };

        assert!(matches!(waits(), Some(Recorded::HolderChanged { nobody, .. }) if nobody == wait));
        assert_eq!(waits(), None);
    }

    #[test]
    fn what_is_deleted_or_rests_is_nobodys() {
        let mut recorder = recorder();
        let mut saw = |record: Option<LeaseRecord>| told(recorder.observed(Slot(3), record.as_ref(), None));
        let resting = record(2, &held("a", 0, 9, 7), Some(format!("{} a", time(9))));

        assert!(saw(Some(record(1, &held("a", 0, 0, 7), None))).is_some());
        assert_eq!(saw(Some(resting)), Some((String::new(), 0, 3_600, Some(TermEnd::Released))));
        assert!(saw(Some(record(3, &held("a", 90, 90, 8), None))).is_some());
        assert_eq!(saw(None), Some((String::new(), 0, 3_600, Some(TermEnd::Deleted))));
        assert_eq!(saw(None), None);
    }

    #[test]
    fn a_reply_that_the_watch_has_overtaken_begins_no_term() {
        let mut recorder = recorder();

        assert!(recorder.observed(Slot(3), Some(&record(10, &held("b", 5, 5, 8), None)), None).is_some());
        assert_eq!(recorder.observed(Slot(3), Some(&record(9, &held("a", 0, 0, 7), None)), None), None);
        assert_eq!(recorder.observed(Slot(3), Some(&record(11, &held("b", 5, 8, 8), None)), None), None);
    }
}
