use serde_json::json;

use super::*;

const A: Place<'static> = Place { namespace: "default", name: "a" };
const WALL: i64 = 1_700_000_000_000_000;

fn store() -> Store {
    Store::new(Rules::default(), 7)
}

fn lease(name: &str, holder: &str) -> Lease {
    Lease::decode(&json!({ "metadata": { "name": name }, "spec": { "holderIdentity": holder } })).unwrap()
}

#[test]
fn a_simulator_can_run_an_election_on_it() {
    let mut store = store();
    let first = store.create("default", lease("a", "x"), WALL).unwrap();
    let mut taken = first.json().clone();
    taken["spec"]["holderIdentity"] = json!("y");
    let taken = Lease::decode(&taken).unwrap();

    let (won, _) = store.replace(A, taken.clone(), WALL).unwrap();
    let lost = store.replace(A, taken, WALL).unwrap_err();

    assert_eq!((won.json()["spec"]["holderIdentity"].as_str(), lost.code), (Some("y"), 409));
    assert_eq!(Lease::decode(&json!({ "spec": { "leaseTransitions": "x" } })).unwrap_err().code, 400);
}

#[test]
fn the_version_rises_by_one_with_every_change() {
    let mut store = store();
    let begin = store.version();

    let a = store.create("default", lease("a", "x"), WALL).unwrap();
    let b = store.create("default", lease("b", "x"), WALL).unwrap();
    store.delete(A, &Preconditions::default(), WALL).unwrap();

    assert_eq!([a.version(), b.version()], [(begin + 1).to_string(), (begin + 2).to_string()]);
    assert_eq!(store.version(), begin + 3);
}

#[test]
fn a_write_that_changes_nothing_is_no_change() {
    let mut store = store();
    let created = store.create("default", lease("a", "x"), WALL).unwrap();

    let (same, made) = store.replace(A, created.clone(), WALL + 1).unwrap();

    assert_eq!((&same, made), (&created, false));
    assert_eq!(store.history().count(), 1);
}

#[test]
fn a_refused_write_is_no_change() {
    let mut store = store();
    let created = store.create("default", lease("a", "x"), WALL).unwrap();
    let before = store.version();
    let mut stale = created;
    stale.set("resourceVersion", Some("1".into()));

    let refused = store.replace(A, stale, WALL).unwrap_err();

    assert_eq!((refused.code, store.version()), (409, before));
}

#[test]
fn the_same_seed_makes_the_same_store() {
    let run = || {
        let mut store = store();
        let named = store.create("default", Lease::new(json!({ "metadata": { "generateName": "g-" } })), WALL).unwrap();
        (named.uid().to_owned(), named.name().to_owned())
    };

    assert_eq!(run(), run());
}

#[test]
fn the_wall_time_of_a_creation_is_the_one_that_was_passed_in() {
    let created = store().create("default", lease("a", "x"), WALL).unwrap();

    assert_eq!(created.meta("creationTimestamp"), "2023-11-14T22:13:20Z");
}

#[test]
fn history_tells_what_was_before_and_after() {
    let mut store = store();
    let created = store.create("default", lease("a", "x"), WALL).unwrap();
    store.delete(A, &Preconditions::default(), WALL).unwrap();

    let changes: Vec<Change> = store.changes_since(1).unwrap().cloned().collect();

    assert_eq!(changes[0], Change { version: 2, before: None, after: Some(created.clone()) });
    assert_eq!(changes[1], Change { version: 3, before: Some(created), after: None });
    assert_eq!(store.changes_since(2).unwrap().count(), 1);
}

#[test]
fn history_before_a_compaction_is_gone() {
    let mut store = store();
    store.create("default", lease("a", "x"), WALL).unwrap();
    store.compact();

    assert_eq!(store.changes_since(1).err().map(|status| status.code), Some(410));
    assert_eq!(store.changes_since(2).unwrap().count(), 0);
}

#[test]
fn history_is_bounded() {
    let mut store = store();
    for _ in 0..=HISTORY {
        store.plant(A, json!({}));
    }

    assert_eq!(store.history().count(), HISTORY);
    assert_eq!(store.changes_since(1).err().map(|status| status.code), Some(410));
}

#[test]
fn a_planted_lease_keeps_its_uid_when_it_is_planted_again() {
    let mut store = store();
    let first = store.plant(A, json!({}));
    let second = store.plant(A, json!({ "spec": "nonsense" }));

    assert_eq!(first.uid(), second.uid());
    assert_eq!(second.json()["spec"], "nonsense");
}

#[test]
fn a_planted_lease_can_be_replaced_by_a_sound_one() {
    let mut store = store();
    let planted = store.plant(A, json!({ "spec": { "leaseDurationSeconds": -1 } }));
    let mut sound = lease("a", "x");
    sound.set("resourceVersion", Some(planted.version().into()));

    let (replaced, _) = store.replace(A, sound, WALL).unwrap();

    assert_eq!(replaced.uid(), planted.uid());
}

#[test]
fn what_the_closed_gate_found_may_stay() {
    let mut store = store();
    let planted = store.plant(A, json!({ "spec": { "strategy": "OldestEmulationVersion" } }));
    let mut edited = planted;
    edited.set("labels", Some(json!({ "a": "b" })));

    let (edited, _) = store.replace(A, edited, WALL).unwrap();

    assert_eq!(edited.json()["spec"]["strategy"], "OldestEmulationVersion");
}
