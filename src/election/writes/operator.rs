//! What is written into a Lease that somebody else holds: by people's commands, and by standbys that announce themselves.
//!
//! Owns the exceptions of the law for these writes. Each function is given a record as it was read, and each write is on exactly
//! that version. A command reads, asks, sends and speaks; nothing of that is done here.

use std::time::Duration;

use serde_json::{Map, Value, json};

use super::{
    CANDIDATE, FIRE, HOLDER, JOURNAL, KIND_LABEL, LeaseWrite, PAUSED, STEP_DOWN, STEP_DOWN_TO, Stamps, annotations_of, display,
    micros, obituary,
};
use crate::{
    config::SharedConfig,
    election::record::{LeaseRecord, LeaseState, metadata_of},
    law::RENEWALS,
    time::{Instant, Now},
};

/// What follows from a look at a Lease that is to be edited.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub enum Edit {
    /// Nobody holds it.
    NotHeld,
    /// It is as wanted already.
    Unchanged,
    /// Write this.
    Write(LeaseWrite),
}

/// Asks the holder to step down, and the others to leave the Lease to `successor`, if there is one.
pub fn step_down(record: &LeaseRecord, successor: Option<&str>) -> Edit {
    match record.holder() {
        Some(holder) if record.state() == LeaseState::Held => edited(record, |annotations| {
            annotations.insert(STEP_DOWN.into(), holder.into());
            annotations.extend(successor.map(|identity| (STEP_DOWN_TO.into(), identity.into())));
        }),
        Some(_) | None => Edit::NotHeld,
    }
}

/// Pauses a Lease or resumes it, whoever holds it.
pub fn pause(record: &LeaseRecord, paused: bool) -> Edit {
    if record.is_paused() == paused {
        return Edit::Unchanged;
    }
    edited(record, |annotations| {
        // Whatever else it is, is paused.
        annotations.remove(PAUSED);
        annotations.extend(paused.then(|| (PAUSED.into(), "true".into())));
    })
}

/// Announces the journal of a transaction on the Lease of its driver, or takes the announcement off. Whoever holds the Lease keeps it
/// on, as any annotation.
pub fn journal(record: &LeaseRecord, text: Option<&str>) -> Edit {
    edited(record, |annotations| {
        annotations.remove(JOURNAL);
        annotations.extend(text.map(|text| (JOURNAL.into(), text.into())));
    })
}

fn edited(record: &LeaseRecord, change: impl FnOnce(&mut Map<String, Value>)) -> Edit {
    let mut object = record.object().clone();
    change(annotations_of(&mut object));
    let before = metadata_of(record.object(), "annotations");
    if before == metadata_of(&object, "annotations") { Edit::Unchanged } else { Edit::Write(LeaseWrite::replace(object)) }
}

/// The word of an operator that no process of a holder runs any more: a witness's write (law 20), once the Lease was watched.
#[derive(Clone, Debug)]
pub struct ConfirmDead {
    holder: String,
    config: SharedConfig,
    /// A task's run may be repeated.
    run_again: bool,
    watched: Option<LeaseRecord>,
}

/// What follows from a look at the Lease of a holder that is said to be dead.
#[derive(Clone, Debug, PartialEq)]
pub enum Confirmation {
    /// Another holds it; none: nobody.
    NotHeld(Option<String>),
    /// [`HOLDER`] names this one, which has not given the Lease back and may run.
    NamesAnother(String),
    /// The run of a task would be repeated.
    Repeats,
    /// Look again after this time: whoever renews the Lease by then lives.
    Watch(Duration),
    /// The Lease was renewed: its holder is not dead.
    Renewed,
    /// Give it back.
    Write(LeaseWrite),
}

impl ConfirmDead {
    /// `holder` is the full identity of the dead.
    pub const fn new(holder: String, config: SharedConfig, run_again: bool) -> Self {
        Self { holder, config, run_again, watched: None }
    }

    /// Takes in a look; `wall` is the wall clock in microseconds.
    pub fn look(&mut self, record: LeaseRecord, wall: i64) -> Confirmation {
        let holder = record.holder().filter(|_| record.state() == LeaseState::Held);
        if holder != Some(&self.holder) {
            return Confirmation::NotHeld(holder.map(str::to_owned));
        }
        if let Some(named) = record.annotation(HOLDER).filter(|named| *named != self.holder) {
            return Confirmation::NamesAnother(named.to_owned());
        }
        if is_task(&record) && !self.run_again {
            return Confirmation::Repeats;
        }
        let lease = &self.config.lease;
        let Some(before) = &self.watched else {
            // No replica renews later than that.
            let span = record.duration().unwrap_or(lease.duration) / RENEWALS + lease.attempt_timeout;
            self.watched = Some(record);
            return Confirmation::Watch(span);
        };
        if !record.says_the_same_as(before) {
            return Confirmation::Renewed;
        }
        let time = Stamps::new(0).next(wall, record.renew_time());
        Confirmation::Write(obituary(&record, &self.holder, &lease.namespace, &time))
    }
}

/// Returns true if each term is a run of a task.
fn is_task(record: &LeaseRecord) -> bool {
    let is_labelled = metadata_of(record.object(), "labels").is_some_and(|labels| labels[KIND_LABEL] == "task");
    is_labelled || record.annotation(FIRE).is_some()
}

/// Returns how long a Lease that nobody uses has to stay as it is before it is deleted; none: it is not deleted. A wall clock, in
/// microseconds, says which Leases are worth a look. It deletes nothing that somebody may hold: that is watched for its own duration
/// first (law 11). With a Lease that remembers the fires of a `schedule`, those that are due would be lost: it stays.
pub fn unused_after(record: &LeaseRecord, older_than: Duration, schedules: bool, wall: i64) -> Option<Duration> {
    let is_owned = metadata_of(record.object(), "ownerReferences").is_some_and(|owners| owners != &json!([]));
    let remembers = record.annotation(FIRE).is_some() && !schedules;
    if is_owned || remembers || record.is_kept() || record.is_being_deleted() {
        return None;
    }
    let age = wall.saturating_sub(record.renew_time().and_then(micros)?);
    let is_past = |span: Duration| u64::try_from(age).is_ok_and(|age| Duration::from_micros(age) > span);
    let is_over = is_past(record.duration().unwrap_or_default());
    match record.state() {
        LeaseState::Released if is_past(older_than) => Some(Duration::ZERO),
        LeaseState::Resting if is_over && is_past(older_than) => Some(Duration::ZERO),
        // After a crash a task is due an interval after its run began, which this record alone tells.
        LeaseState::Held if is_task(record) => None,
        // It has not run yet, and is due after the Lease was made.
        LeaseState::Nobody if is_task(record) && !schedules => None,
        LeaseState::Held | LeaseState::Nobody if is_over => record.duration(),
        LeaseState::Held | LeaseState::Resting | LeaseState::Nobody | LeaseState::Released | LeaseState::Free => None,
    }
}

/// Changes nothing: to ask, by a dry run, whether a Lease may be written.
pub fn rehearsal(record: &LeaseRecord) -> LeaseWrite {
    LeaseWrite::replace(record.object().clone())
}

/// An announcement is repeated after this time if it did not change.
pub const ANNOUNCED_AGAIN: Duration = Duration::from_secs(600);
/// At most so many announcements are kept, the latest ones: the API server refuses a Lease with too many annotations.
const MOST: usize = 64;
/// A candidate without an announcement for so long is gone.
const GONE: Duration = Duration::from_secs(3 * ANNOUNCED_AGAIN.as_secs());

/// The state of a candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// It would lead.
    pub ready: bool,
    /// The end of its back-off after failures.
    pub backoff_until: Option<Instant>,
}

/// Announces a candidate, and drops the announcements of those that are gone or lead. None while nobody leads, or while the Lease is
/// being deleted. The spec stays as it was read, so that even a late write changes neither the holder nor its times.
pub fn announced(record: &LeaseRecord, me: &str, candidate: Candidate, now: Now) -> Option<LeaseWrite> {
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
    for name in &beyond {
        annotations.remove(name);
    }
    let time = |after: Duration| display(now.wall.saturating_add(i64::try_from(after.as_micros()).unwrap_or_default()));
    let text = json!({
        "identity": me, "ready": candidate.ready, "version": env!("CARGO_PKG_VERSION"), "at": time(Duration::ZERO),
        "backoffUntil": candidate.backoff_until.map(|until| time(until.since(now.boot))),
    });
    let (_, own) = me.rsplit_once('_').unwrap_or_default();
    annotations.insert(format!("{CANDIDATE}{own}"), text.to_string().into());
    Some(LeaseWrite::replace(object))
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
    use crate::{config::Config, election::writes::Sent};

    const NOW: Now = Now { boot: Instant::BOOT, wall: 1_800_000_000_000_000 };
    const MINUTE: Duration = Duration::from_secs(60);

    fn state(ready: bool) -> Candidate {
        Candidate { ready, backoff_until: None }
    }

    fn of(spec: &Value, annotations: Value, more: &Value) -> LeaseRecord {
        let mut metadata = json!({ "name": "l", "uid": "u", "resourceVersion": "7", "annotations": annotations });
        metadata.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        LeaseRecord::read(json!({ "metadata": metadata, "spec": spec }).into()).unwrap()
    }

    fn lease(holder: &str, annotations: Value) -> LeaseRecord {
        let spec = json!({ "holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": "2027-01-15T08:00:00.000000Z" });
        of(&spec, annotations, &json!({}))
    }

    fn put(write: &LeaseWrite) -> &Value {
        let Sent::Replace(object) = write.sent() else { panic!("{write:?}") };
        object
    }

    fn annotations(edit: &Edit) -> &Value {
        let Edit::Write(write) = edit else { panic!("{edit:?}") };
        &put(write)["metadata"]["annotations"]
    }

    #[test]
    fn only_a_holder_is_asked_to_step_down_and_no_more_than_once() {
        let asked = step_down(&lease("a_1", json!({ "team": "x" })), Some("b_2"));
        let named = json!({ "team": "x", "tenure.dev/step-down": "a_1", "tenure.dev/step-down-to": "b_2" });
        assert_eq!(annotations(&asked), &named);
        assert_eq!(step_down(&lease("a_1", named), Some("b_2")), Edit::Unchanged);
        for nobody in ["", "tenure.dev/nobody"] {
            assert_eq!(step_down(&lease(nobody, json!({})), None), Edit::NotHeld);
        }
    }

    #[test]
    fn a_pause_is_written_where_there_is_none_and_a_resumption_removes_whatever_pauses() {
        assert_eq!(annotations(&pause(&lease("", json!({})), true)), &json!({ "tenure.dev/paused": "true" }));
        assert_eq!(annotations(&pause(&lease("a_1", json!({ "tenure.dev/paused": "yes" })), false)), &json!({}));
        assert_eq!(pause(&lease("", json!({ "tenure.dev/paused": "yes" })), true), Edit::Unchanged);
        assert_eq!(pause(&lease("", json!({ "tenure.dev/paused": "false" })), false), Edit::Unchanged);
    }

    #[test]
    fn a_journal_is_announced_and_taken_off_and_all_else_stays() {
        let shown = annotations(&journal(&lease("a_1", json!({ "team": "x" })), Some("id 1"))).clone();
        assert_eq!(shown, json!({ "team": "x", "tenure.dev/journal": "id 1" }));
        assert_eq!(journal(&lease("a_1", shown.clone()), Some("id 1")), Edit::Unchanged);
        assert_eq!(annotations(&journal(&lease("a_1", shown), None)), &json!({ "team": "x" }));
    }

    #[test]
    fn who_is_confirmed_dead_is_watched_first_and_nothing_is_written_once_it_renews() {
        let mut config = Config::default();
        // The duration is that of the record. A period of 10 s is refused by all its replicas, whatever the command's configuration says.
        (config.lease.renew_period, config.lease.attempt_timeout) = (Duration::from_secs(10), Duration::from_secs(2));
        config.lease.duration = Duration::from_secs(60);
        let mut confirm = ConfirmDead::new("a_1".into(), config.into(), false);
        let held = lease("a_1", json!({}));
        let of_a_task = of(&Value::Object(held.spec().clone()), json!({}), &json!({ "labels": { KIND_LABEL: "task" } }));
        let without_its_label = lease("a_1", json!({ FIRE: "2027-01-15T07:00:00Z" }));

        assert_eq!(confirm.look(lease("b_2", json!({})), NOW.wall), Confirmation::NotHeld(Some("b_2".into())));
        assert_eq!(confirm.look(lease("", json!({})), NOW.wall), Confirmation::NotHeld(None));
        let foreign = lease("a_1", json!({ HOLDER: "b_2" }));
        assert_eq!(confirm.look(foreign, NOW.wall), Confirmation::NamesAnother("b_2".into()));
        assert_eq!([of_a_task, without_its_label].map(|task| confirm.look(task, NOW.wall)), [const { Confirmation::Repeats }; 2]);
        assert_eq!(confirm.look(held.clone(), NOW.wall), Confirmation::Watch(Duration::from_secs(7)));
        let mut lives = confirm.clone();
        let renewed = json!({ "holderIdentity": "a_1", "leaseDurationSeconds": 15, "renewTime": "2027-01-15T08:00:03.000000Z" });
        assert_eq!(lives.look(of(&renewed, json!({}), &json!({})), NOW.wall), Confirmation::Renewed);

        let Confirmation::Write(write) = confirm.look(held, NOW.wall) else { panic!("a write") };
        assert_eq!(put(&write)["spec"]["holderIdentity"], "");
        assert_eq!(put(&write)["metadata"]["annotations"]["tenure.dev/obituary"], "a_1");
    }

    #[test]
    fn what_may_be_deleted_is_not_in_use_and_what_may_be_held_is_watched_for_its_duration() {
        let spec = |holder: &str, duration: u64| {
            let time = "2027-01-15T07:00:00.000000Z";
            json!({ "holderIdentity": holder, "leaseDurationSeconds": duration, "renewTime": time, "acquireTime": time })
        };
        let task = json!({ "labels": { "tenure.dev/kind": "task" } });
        let none = json!({});
        let unused =
            |spec: &Value, annotations: Value, more: &Value| unused_after(&of(spec, annotations, more), MINUTE, false, NOW.wall);

        assert_eq!(unused(&spec("", 1), none.clone(), &none), Some(Duration::ZERO));
        assert_eq!(unused(&spec("a_1", 15), none.clone(), &none), Some(Duration::from_secs(15)));
        assert_eq!(unused(&spec("tenure.dev/nobody", 15), none.clone(), &none), Some(Duration::from_secs(15)));
        let rests = json!({ "tenure.dev/rests": "2027-01-15T07:00:00.000000Z a_1" });
        assert_eq!(unused(&spec("a_1", 15), rests.clone(), &task), Some(Duration::ZERO));
        assert_eq!(unused(&spec("a_1", 7200), rests, &task), None, "it rests");
        assert_eq!(unused(&spec("a_1", 15), none.clone(), &task), None, "a run that crashed");
        let new = spec("tenure.dev/nobody", 15);
        assert_eq!(unused(&new, none.clone(), &task), None, "a first fire comes after it was made");
        assert_eq!(unused_after(&of(&new, none.clone(), &task), MINUTE, true, NOW.wall), Some(Duration::from_secs(15)));
        let fire = json!({ FIRE: "2027-01-15T07:00:00Z" });
        assert_eq!(unused(&spec("", 1), fire.clone(), &task), None, "it remembers a fire");
        assert_eq!(unused_after(&of(&spec("", 1), fire, &task), MINUTE, true, NOW.wall), Some(Duration::ZERO));
        assert_eq!(unused(&spec("a_1", 7200), none.clone(), &none), None, "held");
        assert_eq!(unused(&spec("", 1), json!({ "tenure.dev/paused": "true" }), &none), None);
        assert_eq!(
            unused(&spec("", 1), json!({ "tenure.dev/journal": "id 1" }), &none),
            None,
            "a transaction that is not settled"
        );
        for more in [json!({ "ownerReferences": [{}] }), json!({ "deletionTimestamp": "2027-01-15T07:00:00Z" })] {
            assert_eq!(unused(&spec("", 1), none.clone(), &more), None, "{more}");
        }
        assert_eq!(unused(&json!({}), none.clone(), &none), None, "cleared by hand");
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

        let shown = announced(
            &record,
            "me_0",
            Candidate { backoff_until: Some(NOW.boot + Duration::from_secs(30)), ..state(false) },
            NOW,
        )
        .unwrap();
        let shown = put(&shown);

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
        let shown = announced(&lease("a_1", Value::Object(crowd.collect())), "me_0", state(true), NOW).unwrap();
        let shown = put(&shown);

        let annotations = shown["metadata"]["annotations"].as_object().unwrap();
        assert_eq!(annotations.len(), MOST);
        assert!(annotations.contains_key("candidate.tenure.dev/1979") && annotations.contains_key("candidate.tenure.dev/0"));
    }

    #[test]
    fn nothing_is_written_on_a_lease_that_no_other_holds() {
        for holder in ["", "me_0", "tenure.dev/nobody"] {
            assert_eq!(announced(&lease(holder, json!({})), "me_0", state(true), NOW), None, "{holder}");
        }
    }
}
