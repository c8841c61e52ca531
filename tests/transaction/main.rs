//! Changes to several objects are all made or all undone: the shipping driver in a simulated world, in virtual time.
//!
//! Drivers share an API server in memory, over a network that loses requests and answers and delivers writes late. They are killed
//! and frozen after any request, their terms end, their journals are claimed by others. Others edit, delete and make objects anew.
//! [`judge`] says what must hold.
//!
//! ```text
//! cargo test --test transaction                                 a few seconds
//! TENURE_SIMULATION=1000000 cargo test --profile simulation --test transaction -- --nocapture      so many terms
//! SEED=42 cargo test --test transaction                         tells the story of one world
//! ```
//!
//! FROM is the first seed. A run ends with the first violation, or with the VIOLATIONS-th.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::print_stderr,
    unreachable_pub,
    reason = "a test fails by panicking, and says why"
)]

mod judge;
mod others;
mod plan;
mod schedules;
mod server;
mod world;

use std::{
    collections::BTreeMap,
    panic::{AssertUnwindSafe, catch_unwind},
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use plan::run;
use schedules::{
    Leg::{self, Arrives, Denied, DiesLate, Drive, Later, Meanwhile, Term, Unheard},
    acted_as, every_kind, first, judge_all, opposed, patch, patching, promotion, relay, relayed, set, stuck,
};
use serde_json::{Map, Value, json};
use server::mark;
use tenure::{
    request::Answer,
    transaction::{ChangeType, Outcome},
};
use tenure_world::{clock::S, number};
use world::{Job, Shared, World, change};

/// Terms to simulate unless another number is requested.
const TERMS: u64 = 10_000;
/// How many worlds the control breaks.
const CONTROLS: u64 = 100;

#[test]
fn changes_are_all_made_or_all_undone_whoever_dies_in_the_middle() {
    if let Some(seed) = number("SEED") {
        return tell(seed);
    }
    let wanted = number("TENURE_SIMULATION").unwrap_or(TERMS);
    let (mut terms, mut seed, mut counts) = (0, number("FROM").unwrap_or(0), BTreeMap::<&str, u64>::new());
    let first = seed;
    let (violations, mut wrong) = (number("VIOLATIONS").unwrap_or(1), Vec::new());
    while terms < wanted && (wrong.len() as u64) < violations {
        let ran = catch_unwind(AssertUnwindSafe(|| run(seed, false, false)));
        let violated = if let Ok((world, drivers)) = ran {
            let world = world.borrow();
            terms += drivers;
            for (what, count) in &world.e.counts {
                *counts.entry(what).or_default() += count;
            }
            world.e.judge.violations.first().cloned()
        } else {
            Some("a panic".into())
        };
        wrong.extend(violated.map(|violation| format!("SEED={seed}: {violation}")));
        seed += 1;
    }
    eprintln!("{} worlds, {terms} terms: {counts:?}", seed - first);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    for what in ["committed", "recovered", "undone", "stuck", "superseded", "stopped", "killed", "frozen", "late"] {
        assert!(terms < TERMS || counts.contains_key(what), "never: {what}");
    }
}

/// A judge that reports nothing proves nothing.
#[test]
fn a_journal_that_is_stored_after_the_change_is_reported() {
    let is_reported = |seed: &u64| {
        let (world, _) = run(*seed, true, false);
        let world = world.borrow();
        world.e.judge.violations.iter().any(|wrong| wrong.starts_with("T1"))
    };
    let reported = (0..CONTROLS).filter(is_reported).count();
    eprintln!("reported in {reported} of {CONTROLS} worlds");
    assert!(reported >= 8, "reported in {reported} of {CONTROLS} worlds");
}

#[test]
fn a_late_write_of_a_dead_driver_does_not_commit_under_the_next_one() {
    // A mark without its claim would lose this: a fence that changes nothing moves no version.
    let gitops = |world: &mut World| {
        world.cluster.edit("X0", "argocd", |object| object["data"]["a"] = json!("X0"));
        world.e.judge.foreign("X0", "a", Some(json!("X0")));
    };
    let dies = [Drive(promotion("X0", "a", "X0:1"), None), Meanwhile(gitops), Term(2), DiesLate(promotion("X0", "a", "X0:2"))];
    let next = [Term(3), Drive(promotion("X1", "a", "X1:3"), None)];
    let late = [Arrives(|late| matches!(late, Answer::Conflict)), Term(4), Drive(Job::Demote, None)];

    let (_, world) = relayed(dies.into_iter().chain(next).chain(late).collect());

    assert_eq!(world.borrow().cluster.objects["X0"]["data"]["a"], "X0");
    judge_all(&world);
}

#[test]
fn a_late_write_to_an_object_that_nobody_may_mark_stays_in_the_journal_until_it_is_undone() {
    let dies = [DiesLate(promotion("X0", "a", "X0:1")), Term(2), Denied(&["patch"]), Drive(Job::Demote, None), Denied(&[])];
    let late = [Arrives(|late| matches!(late, Answer::Object(_))), Term(3), Drive(Job::Demote, None)];

    let (outcomes, world) = relayed(dies.into_iter().chain(late).collect());

    assert!(matches!(outcomes[3], Some(Outcome::Stuck(_))), "{:?}", outcomes[3]);
    assert_eq!(world.borrow().cluster.objects["X0"]["data"]["a"], "X0");
    judge_all(&world);
}

#[test]
fn whichever_request_is_the_last_of_a_driver_the_next_one_undoes_it_and_begins_anew() {
    let other = || patching("X1", "other", "other");
    let leads = |value: &str, names: [&str; 2]| Job::Promote(names.map(|name| patch(name, "new", value)).to_vec());
    let (one, two) = (|| leads("one", ["X0", "X1"]), || leads("two", ["X0", "X2"]));
    let before = || BTreeMap::from(["D0", "X0", "X1", "X2"].map(|name| (name.to_owned(), json!({ "a": name }))));
    let after =
        |value: &str| BTreeMap::from(["C0", "X0", "X1", "X2"].map(|name| (name.to_owned(), json!({ "a": value, "new": value }))));
    let followed = |mut objects: BTreeMap<String, Value>| {
        objects.get_mut("X1").unwrap()["other"] = json!("other");
        objects
    };
    let mut led = before();
    led.insert("X0".into(), json!({ "a": "X0", "new": "two" }));
    led.insert("X2".into(), json!({ "a": "X2", "new": "two" }));
    let cases = [
        (None, first(), Job::Recover, [before(), before()]),
        (None, first(), first(), [after("first"), after("first")]),
        (None, first(), other(), [followed(before()), followed(after("first"))]),
        (Some(first()), Job::Recover, Job::Recover, [before(), before()]),
        (Some(first()), Job::Recover, other(), [followed(before()), followed(after("first"))]),
        (None, one(), Job::Demote, [before(), before()]),
        (None, one(), two(), [led.clone(), led.clone()]),
        (Some(one()), two(), Job::Demote, [before(), before()]),
        (Some(one()), Job::Demote, two(), [led.clone(), led]),
    ];
    for (earlier, dying, next, expected) in cases {
        for request in 1.. {
            let legs = earlier.iter().cloned().map(|job| Drive(job, None));
            let legs = legs.chain([Drive(dying.clone(), Some(request)), Drive(next.clone(), None)]).collect();
            let (outcomes, objects, is_marked) = relay(legs);
            assert!(expected.contains(&objects), "{next:?} after request {request} of {dying:?}: {outcomes:?}, {objects:?}");
            assert!(!is_marked || matches!(next, Job::Promote(_)), "{next:?} after request {request} of {dying:?}");
            if outcomes[outcomes.len() - 2].is_some() {
                assert!(request > 8, "the driver has died at each of {request} requests");
                break;
            }
        }
    }
}

#[test]
fn whichever_request_is_the_last_of_an_undo_no_field_belongs_to_tenure_after_the_next_one() {
    for request in 1.. {
        let legs = [(first(), None), (Job::Recover, Some(request)), (Job::Recover, None)];
        let (outcomes, world) = relayed(legs.map(|(job, dies_at)| Drive(job, dies_at)).into());

        let world = world.borrow();
        for (name, object) in &world.cluster.objects {
            let owners = object["metadata"]["managedFields"].as_array().unwrap();
            assert!(owners.iter().all(|entry| entry["manager"] != "tenure"), "{name} after request {request}: {owners:?}");
        }
        if outcomes[1].is_some() {
            assert!(request > 8, "the driver has died at each of {request} requests");
            break;
        }
    }
}

#[test]
fn a_deletion_stands_only_if_the_object_could_be_read() {
    let deletes = || Drive(Job::Apply(vec![change("D0", ChangeType::Delete, json!({}))]), None);
    let back = |world: &mut World| world.plant("D0", json!({ "a": "D0" }));

    let (outcomes, ..) = relay(vec![deletes(), deletes(), Meanwhile(back), Denied(&["get"]), deletes()]);

    assert_eq!(outcomes[1], Some(Outcome::Already));
    assert!(matches!(outcomes[4], Some(Outcome::Refused(_) | Outcome::NotPermitted(_))), "{:?}", outcomes[4]);
}

#[test]
fn what_somebody_else_has_changed_since_stays_and_is_named_unless_it_is_forced() {
    let legs = |last: Job| {
        let edit = |world: &mut World| {
            set(world, "X0", "a");
            set(world, "X1", "others");
        };
        vec![Drive(first(), None), Meanwhile(edit), Drive(Job::Recover, None), Drive(last, None)]
    };

    let (outcomes, left, _) = relay(legs(Job::Apply(every_kind("other"))));
    let (forced, objects, _) = relay(legs(Job::Force));

    for outcome in &outcomes[2..] {
        assert_eq!(stuck(outcome), [("X0", "data.a is somebody else's")]);
    }
    assert_eq!(left["X0"], json!({ "a": "somebody's", "new": "first" }));
    assert_eq!(left["X1"], json!({ "a": "X1", "others": "somebody's" }));
    assert_eq!(forced.last(), Some(&Some(Outcome::Recovered(1))));
    assert_eq!(objects["X0"], json!({ "a": "X0" }));
}

#[test]
fn what_is_forgotten_is_not_restored_and_leaves_no_mark_wherever_somebody_dies() {
    for request in 1..30 {
        let forget = |dies_at| Drive(Job::Forget, dies_at);
        let legs = vec![Denied(&["marks"]), Drive(first(), None), Denied(&[]), forget(Some(request)), forget(None)];

        let (outcomes, left, is_marked) = relay(legs);

        assert_eq!((&left["X0"], is_marked), (&json!({ "a": "first", "new": "first" }), false), "request {request}");
        let forgotten = [Some(Outcome::Forgotten { changes: Some(5) }), Some(Outcome::Nothing)];
        assert!(outcomes[3].is_none() || outcomes[3..] == forgotten, "{outcomes:?}");
    }
}

#[test]
fn a_promotion_follows_on_a_journal_of_either_kind_that_was_forgotten() {
    let promotion = || Drive(promotion("X0", "new", "one"), None);
    let edit = |world: &mut World| world.cluster.journals.get_mut("J1").unwrap()["data"]["journal"] = json!("ew==");

    let (outcomes, objects, _) = relay(vec![promotion(), Meanwhile(edit), Drive(Job::Forget, None), promotion()]);

    assert_eq!(outcomes[3], Some(Outcome::Nothing), "it is as wanted already");
    assert_eq!(objects["X0"]["new"], "one");
}

#[test]
fn what_another_began_is_undone_as_its_user_and_a_plan_that_cannot_be_stored_changes_nothing() {
    // The deletion that comes next would have to be kept in the journal.
    let grow =
        |world: &mut World| world.cluster.edit("D0", "kubectl", |object| object["data"]["large"] = json!("x".repeat(1 << 20)));

    let (outcomes, world) = relayed(vec![Drive(first(), Some(24)), Meanwhile(grow), Drive(first(), None)]);

    let Some(Outcome::Refused(why)) = &outcomes[2] else { panic!("{:?}", outcomes[2]) };
    assert!(why.contains("split it"), "{why}");
    acted_as(&world, 1, "user 0");
    let objects = &world.borrow().cluster.objects;
    assert_eq!((&objects["X0"]["data"], objects.contains_key("C0")), (&json!({ "a": "X0" }), false));
}

#[test]
fn a_journal_of_a_later_term_is_left_alone_and_the_remedy_is_named() {
    let first = || Drive(first(), None);

    let (outcomes, ..) = relay(vec![Term(2), first(), Term(1), first()]);

    let Some(outcome @ Outcome::Superseded { .. }) = &outcomes[3] else { panic!("{:?}", outcomes[3]) };
    assert!(outcome.to_string().contains("of a later term; if etcd was restored, `tenure recover forget --lease "), "{outcome}");
}

#[test]
fn a_journal_of_promotions_takes_no_transaction() {
    let legs = [promotion("X0", "new", "one"), first(), Job::Recover, first()];

    let (outcomes, objects, _) = relay(legs.map(|job| Drive(job, None)).into());

    assert_eq!(outcomes[1].as_ref().map(Outcome::code), Some(78));
    assert_eq!(outcomes[2], Some(Outcome::Recovered(1)), "a recovery undoes both kinds");
    assert!(matches!(outcomes[3], Some(Outcome::Committed(_))), "{:?}", outcomes[3]);
    assert_eq!(objects["X0"]["new"], "first");
}

#[test]
fn what_the_server_derives_is_no_conflict_and_its_fields_have_their_managers_again_after_an_undo() {
    let managers = |world: &World, name: &str| {
        let entries = world.cluster.objects[name]["metadata"]["managedFields"].as_array().unwrap().iter();
        entries.map(|entry| (entry["manager"].clone(), entry["fieldsV1"]["f:data"].clone())).collect::<Vec<_>>()
    };
    let control = |world: &mut World| {
        for name in ["X0", "X1", "X2"] {
            world.cluster.edit(name, "controller", |object| object["spec"]["controlled"] = json!(1));
        }
        world.status();
    };
    let named = json!({ "f:a": {} });
    let first = || Drive(first(), None);

    let (outcomes, world) = relayed(vec![first(), Meanwhile(control), first(), Drive(Job::Recover, None)]);

    assert_eq!(outcomes[2..], [Some(Outcome::Already), Some(Outcome::Recovered(5))]);
    let world = world.borrow();
    for name in ["X0", "X1", "X2"] {
        let object = &world.cluster.objects[name];
        assert_eq!((&object["data"], &object["spec"]["controlled"]), (&json!({ "a": name }), &json!(1)));
        let owners = managers(&world, name);
        assert!(owners.contains(&(json!("kubectl"), named.clone())) && owners.iter().all(|(manager, _)| manager != "tenure"));
    }
}

#[test]
fn a_map_that_somebody_makes_or_removes_between_the_plan_and_the_write_is_as_they_left_it_after_an_undo() {
    type Happens = fn(&mut World);
    fn edit(world: &mut World, edit: impl FnOnce(&mut Map<String, Value>)) {
        world.cluster.edit("X0", "kubectl", |object| edit(object["data"].as_object_mut().unwrap()));
    }
    let content = json!({ "data": { "m": { "x": "1" } } });
    let patch = || Job::Apply(vec![change("X0", ChangeType::Patch, content.clone())]);
    let request = storing(&patch());
    let made = json!({ "a": "X0", "m": { "d": "default" } });
    let nothing: Happens = |_| ();
    let makes: Happens = |world| edit(world, |data| drop(data.insert("m".into(), json!({}))));
    let fills: Happens = |world| edit(world, |data| drop(data.insert("m".into(), json!({ "y": "theirs" }))));
    let empties: Happens = |world| edit(world, |data| drop(data["m"].as_object_mut().unwrap().remove("y")));
    let removes: Happens = |world| edit(world, |data| drop(data.remove("m")));
    for ([first, between, after], expected) in [
        ([nothing, makes, nothing], &made),
        ([nothing, fills, empties], &made),
        ([makes, removes, nothing], &json!({ "a": "X0" })),
    ] {
        let legs = vec![Meanwhile(first), Unheard(patch(), request, between), Meanwhile(after), Drive(Job::Recover, None)];

        let (outcomes, objects, _) = relay(legs);

        assert_eq!(outcomes[1..], [Some(Outcome::Committed(1)), None, Some(Outcome::Recovered(1))]);
        assert_eq!(objects["X0"], *expected);
    }
}

#[test]
fn a_map_that_its_own_write_has_made_goes_with_an_undo_whichever_answer_was_lost_with_the_mark() {
    let patch = || Job::Apply(vec![change("X0", ChangeType::Patch, json!({ "data": { "m": { "x": "1" } } }))]);
    let unmark = |world: &mut World| {
        world.cluster.edit("X0", "kubectl", |object| {
            drop(object["metadata"]["annotations"].as_object_mut().unwrap().remove("tenure.dev/change"))
        });
    };
    for request in 1..16 {
        let (outcomes, objects, _) = relay(vec![Unheard(patch(), request, unmark), Drive(Job::Recover, None)]);

        assert_eq!(objects["X0"], json!({ "a": "X0" }), "after request {request}: {outcomes:?}");
    }
}

/// Has somebody set this in X0: `a`, or something in the map `m`.
fn put(world: &mut World, manager: &str, key: &str, value: &str) {
    world.cluster.edit("X0", manager, |object| match key {
        "a" => object["data"]["a"] = json!(value),
        key => object["data"]["m"][key] = json!(value),
    });
}

const ADD: fn(&mut World) = |world| put(world, "kubectl", "y", "theirs");

#[test]
fn a_default_that_the_server_derives_anew_beside_what_others_have_added_is_nobodys_wherever_its_undo_is_cut() {
    let content = |default| json!({ "data": { "a": "1", "m": { "x": "1", "d": default } } });
    let wants = |default| Job::Apply(vec![change("X0", ChangeType::Patch, content(default))]);
    let is_made = |request: &u32| relay(vec![Drive(wants("2"), Some(*request))]).1["X0"]["m"].is_object();
    let made = (1..30).find(is_made).unwrap();
    // Another transaction writes as the same manager.
    let join: fn(&mut World) = |world| put(world, "tenure", "y", "theirs");
    let edit: fn(&mut World) = |world| put(world, "kubectl", "a", "theirs");
    let repair: fn(&mut World) = |world| put(world, "kubectl", "a", "X0");
    let cuts: [fn(u32) -> Leg; 2] = [|at| Drive(Job::Recover, Some(at)), |at| Unheard(Job::Recover, at, |_| ())];
    for (request, default) in (1..16).flat_map(|request| [(request, "2"), (request, "default")]) {
        for (add, last, cut) in [ADD, join].into_iter().flat_map(|add| {
            [(add, Job::Recover, cuts[0]), (add, Job::Recover, cuts[1]), (add, Job::Force, cuts[0]), (add, Job::Force, cuts[1])]
        }) {
            let was_in_conflict = vec![Meanwhile(edit), Drive(Job::Recover, None), Meanwhile(repair)];
            for (dies_at, then) in [(None, vec![]), (Some(made), vec![]), (None, was_in_conflict)] {
                let begun = [Drive(wants(default), dies_at), Meanwhile(add)].into_iter().chain(then);

                let (outcomes, world) = relayed(begun.chain([cut(request), Drive(last.clone(), None)]).collect());

                let object = &world.borrow().cluster.objects["X0"];
                let is_tenures = object["metadata"]["managedFields"].to_string().contains("tenure");
                let is_stuck = matches!(outcomes.last(), Some(Some(Outcome::Stuck(_))));
                let data = json!({ "a": "X0", "m": { "y": "theirs", "d": "default" } });
                assert_eq!(
                    (&object["data"], is_tenures, is_stuck),
                    (&data, false, false),
                    "after request {request}: {outcomes:?}"
                );
            }
        }
    }
}

#[test]
fn what_others_have_set_where_an_undo_leaves_them_a_map_is_not_derived() {
    let wants = |map: Value| Job::Apply(vec![change("X0", ChangeType::Patch, json!({ "data": { "m": map } }))]);
    let both = || wants(json!({ "x": "1", "d": "2" }));
    let recover = |dies_at| Drive(Job::Recover, dies_at);
    let take: fn(&mut World) = |world| put(world, "tenure", "d", "theirs");
    // Nobody has undone it, or it is still there.
    for (map, early) in [(json!({ "d": "2" }), Meanwhile(|_| ())), (json!({ "x": "1", "d": "2" }), recover(Some(3)))] {
        let legs = vec![Drive(wants(map.clone()), None), Meanwhile(ADD), early, Meanwhile(take), recover(None)];

        let (outcomes, objects, _) = relay(legs);

        assert_eq!(stuck(&outcomes[4]), [("X0", "data.m.d is somebody else's")]);
        let m = &objects["X0"]["m"];
        assert_eq!([&m["x"], &m["d"], &m["y"]], [&map["x"], &json!("theirs"), &json!("theirs")]);
    }
    let forced = [recover(Some(3)), Meanwhile(take), Drive(Job::Force, None)];
    let (_, objects, _) = relay([Drive(both(), None), Meanwhile(ADD)].into_iter().chain(forced).collect());
    assert_eq!(objects["X0"]["m"], json!({ "d": "default", "y": "theirs" }));
    // A conflict that was recorded stays one.
    let edits: fn(&mut World) = |world| ["x", "y"].iter().for_each(|key| put(world, "kubectl", key, "theirs"));
    let promotion_of = |data| Drive(Job::Promote(vec![change("X0", ChangeType::Patch, json!({ "data": data }))]), None);
    let promote = |x| promotion_of(json!({ "m": { "x": x } }));
    let (outcomes, ..) = relay(vec![promote("1"), Meanwhile(edits), promote("2"), recover(Some(3)), recover(None)]);
    assert_eq!(stuck(&outcomes[4]), [("X0", "data.m.x is somebody else's")]);
    let more: fn(&mut World) = |world| world.cluster.edit("X0", "kubectl", |object| object["data"]["n"]["y"] = json!("theirs"));
    let two = promotion_of(json!({ "m": { "x": "2" }, "n": { "x": "1" } }));
    let (outcomes, objects, _) = relay(vec![promote("1"), Meanwhile(edits), two, Meanwhile(more), Drive(Job::Demote, None)]);
    assert_eq!(stuck(&outcomes[4]), [("X0", "data.m.x is somebody else's")]);
    assert_eq!(objects["X0"]["m"]["x"], "theirs");
    let meet: fn(&mut World) =
        |world| [("tenure", "d"), ("kubectl", "y")].iter().for_each(|(who, key)| put(world, who, key, "theirs"));
    let (met, others, _) = relay(vec![Unheard(both(), storing(&both()), meet)]);
    assert!(matches!(met[0], Some(Outcome::Undone(_))), "{met:?}");
    assert_eq!(others["X0"]["m"], json!({ "d": "theirs", "y": "theirs" }));
}

#[test]
fn what_promotions_had_left_in_conflict_is_no_longer_tenures_once_it_is_undone() {
    // Of a transaction of another Lease.
    let other: fn(&mut World) = |world| world.cluster.edit("X0", "tenure", |object| object["data"]["other"] = json!("x"));
    let edit: fn(&mut World) = |world| set(world, "X0", "a");
    let again: fn(&mut World) = |world| world.cluster.edit("X0", "kubectl", |object| object["data"]["a"] = json!("more"));
    let promote = |content| Drive(Job::Promote(vec![change("X0", ChangeType::Patch, json!({ "data": content }))]), None);
    let (one, two) = (|| promote(json!({ "a": "1" })), promote(json!({ "a": "2", "b": "2" })));
    let legs = vec![Meanwhile(other), one(), Meanwhile(edit), two, Meanwhile(again), one(), Drive(Job::Demote, None)];

    let (outcomes, world) = relayed(legs);

    assert!(matches!(outcomes[6], Some(Outcome::Recovered(_))), "{outcomes:?}");
    let managers = world.borrow().cluster.objects["X0"]["metadata"]["managedFields"].clone();
    assert!(managers.as_array().unwrap().iter().all(|entry| entry["fieldsV1"]["f:data"]["f:b"].is_null()), "{managers}");
}

#[test]
fn a_creation_that_arrives_after_another_file_was_committed_is_undone() {
    let creation = change("C0", ChangeType::Create, json!({ "data": { "a": "C0:1" } }));
    let other = || Drive(patching("X0", "a", "X0:2"), None);
    let dies = [DiesLate(Job::Apply(vec![creation])), Term(2), other(), Arrives(|late| matches!(late, Answer::Object(_)))];

    let (_, objects, _) = relay(dies.into_iter().chain([Term(3), other(), Term(4), Drive(Job::Recover, None)]).collect());

    assert!(!objects.contains_key("C0"));
}

#[test]
fn an_object_that_no_journal_can_give_back_is_not_changed() {
    fn nested() -> Value {
        (0..124).fold(json!("x"), |value, _| json!([value]))
    }
    let deepens = |world: &mut World| world.cluster.edit("X0", "kubectl", |object| object["data"]["a"] = nested());

    let (outcomes, objects, _) = relay(vec![Meanwhile(deepens), Drive(patching("X0", "a", "flat"), None)]);

    let Some(Outcome::Refused(why)) = &outcomes[1] else { panic!("{:?}", outcomes[1]) };
    assert!(why.starts_with("the journal could not be read again"), "{why}");
    assert_eq!(objects["X0"]["a"], nested());
}

#[test]
fn a_manager_that_has_written_twice_in_a_second_has_all_its_fields_after_an_undo() {
    // An entry with the time of the one that the journal keeps.
    let more = |world: &mut World| {
        let managers = world.cluster.objects["X0"]["metadata"]["managedFields"].clone();
        let time = managers.as_array().unwrap().iter().find(|entry| entry["manager"] == "kubectl").unwrap()["time"].clone();
        world.cluster.edit("X0", "kubectl", |object| object["data"]["theirs"] = json!("x"));
        let managers = world.cluster.objects.get_mut("X0").unwrap()["metadata"]["managedFields"].as_array_mut().unwrap();
        managers.iter_mut().filter(|entry| entry["manager"] == "kubectl").for_each(|entry| entry["time"] = time.clone());
    };
    let keep: fn(&mut World) = |world| {
        world.cluster.edit("X0", "kubectl", |object| object["data"]["kept"] = json!("x"));
    };
    let legs = vec![Meanwhile(keep), Drive(patching("X0", "a", "1"), None), Meanwhile(more), Drive(Job::Recover, None)];

    let (_, world) = relayed(legs);

    let managers = world.borrow().cluster.objects["X0"]["metadata"]["managedFields"].clone();
    let owns = |entry: &Value| entry["manager"] == "kubectl" && entry["fieldsV1"]["f:data"]["f:theirs"].is_object();
    assert!(managers.as_array().unwrap().iter().any(owns), "{managers}");
}

#[test]
fn beside_a_named_item_of_a_list_others_may_change_what_they_want() {
    let make = |world: &mut World| {
        let item = |name: &str| json!({ "name": name, "image": "1" });
        contain(world, |list| list.extend([item("web"), item("log")]));
    };
    let others = |world: &mut World| contain(world, |list| list[1]["image"] = json!("3"));
    let web = json!({ "name": "web", "image": "2", "probe": { "exec": "x" } });
    let patch = || Drive(containing(json!([web, { "name": "new", "image": "9" }])), None);

    let (_, changed) = relayed(vec![Meanwhile(make), patch(), Meanwhile(others)]);
    let (outcomes, undone) = relayed(vec![Meanwhile(make), patch(), Meanwhile(others), Drive(Job::Recover, None)]);

    let expected = json!([web, { "name": "log", "image": "3" }, { "name": "new", "image": "9" }]);
    assert_eq!(changed.borrow().cluster.objects["X0"]["spec"]["containers"], expected);
    assert_eq!(outcomes[3], Some(Outcome::Recovered(1)));
    let expected = json!([{ "name": "web", "image": "1" }, { "name": "log", "image": "3" }]);
    assert_eq!(undone.borrow().cluster.objects["X0"]["spec"]["containers"], expected);
}

#[test]
fn a_created_object_that_others_use_stays_until_it_is_forced_and_one_that_they_made_for_good() {
    let used = |world: &mut World| world.cluster.edit("C0", "kubectl", |object| object["data"]["others"] = json!("x"));
    for (dies_at, happens, why, stays) in [
        (None, used as fn(&mut World), "somebody else has changed it", false),
        (Some(29), copied as fn(&mut World), "this one is somebody else's", true),
    ] {
        let legs = |last| vec![Drive(first(), dies_at), Meanwhile(happens), Drive(last, None)];

        let (outcomes, objects, _) = relay(legs(Job::Recover));
        let (forced, gone, _) = relay(legs(Job::Force));

        assert_eq!(stuck(&outcomes[2]), [("C0", why)]);
        assert!(objects.contains_key("C0") && objects["X0"] == json!({ "a": "X0" }));
        assert_eq!((&forced[2], gone.contains_key("C0")), (&Some(Outcome::Recovered(5)), stays));
    }
}

#[test]
fn a_created_object_is_known_by_its_mark_until_its_uid_is_stored_and_then_by_that() {
    let stripped =
        |world: &mut World| world.cluster.edit("C0", "kubectl", |object| object["metadata"]["annotations"] = json!({}));
    for (dies_at, happens) in [(24, copied as fn(&mut World)), (26, stripped)] {
        let (outcomes, objects, _) = relay(vec![Drive(first(), Some(dies_at)), Meanwhile(happens), Drive(Job::Recover, None)]);

        assert_eq!((&outcomes[2], objects.contains_key("C0")), (&Some(Outcome::Recovered(5)), false), "{dies_at}");
    }
}

#[test]
fn what_somebody_else_deletes_is_not_changed_and_no_undo_makes_it_again() {
    let goes = |world: &mut World| {
        for name in ["X0", "D0"] {
            let version = world.cluster.new_version();
            let metadata = &mut world.cluster.objects.get_mut(name).unwrap()["metadata"];
            (metadata["resourceVersion"], metadata["deletionTimestamp"]) = (version, json!("now"));
        }
    };
    let delete = || Job::Apply(vec![change("D0", ChangeType::Delete, json!({}))]);
    let is_gone = |world: &mut World| drop(world.cluster.objects.remove("D0"));

    let (patched, ..) = relay(vec![Unheard(patching("X0", "a", "x"), storing(&patching("X0", "a", "x")), goes)]);

    assert!(patched[0].as_ref().is_some_and(|why| why.to_string().ends_with("is being deleted")), "{patched:?}");
    // Before the plan, and before the deletion.
    for (at, ended) in [(1, Outcome::Nothing), (storing(&delete()), Outcome::Committed(1))] {
        for before in [goes, is_gone] {
            let (deleted, objects, _) = relay(vec![Unheard(delete(), at, before), Meanwhile(is_gone), Drive(Job::Recover, None)]);
            assert_eq!((&deleted[0], objects.contains_key("D0")), (&Some(ended.clone()), false));
        }
    }
}

#[test]
fn what_somebody_has_put_into_a_created_object_stays_whichever_answer_was_lost_before() {
    let edits = |world: &mut World| {
        if world.cluster.objects.contains_key("C0") {
            set(world, "C0", "a");
            world.cluster.plant("edited", json!({}));
        }
    };
    let mut met = 0;
    for at in 1..40 {
        let (outcomes, objects, _) = relay(vec![Unheard(first(), at, edits), Drive(Job::Recover, None)]);
        let stays = objects.get("C0").is_some_and(|data| data["a"] == "somebody's");
        assert_eq!(stays, objects.contains_key("edited"), "the answer to request {at} is lost: {outcomes:?}");
        met += u32::from(stays);
    }
    assert!(met >= 10, "{met}");
}

#[test]
fn what_needed_no_change_must_still_need_none_at_the_commit() {
    let job = || Job::Apply(vec![patch("X0", "a", "x"), patch("X1", "a", "X1")]);
    let edit = |world: &mut World| set(world, "X1", "a");
    let is_undone = |at| {
        let (outcomes, objects, _) = relay(vec![Unheard(job(), at, edit)]);
        let is_undone =
            outcomes[0].as_ref().is_some_and(|why| why.to_string().contains("undone: ConfigMap ns/X1 was changed meanwhile"));
        assert!(!is_undone || objects["X0"] == json!({ "a": "X0" }), "{outcomes:?}, {objects:?}");
        is_undone
    };
    assert!((1..30).any(is_undone));
}

#[test]
fn a_mark_whose_lease_may_not_be_read_is_live_and_a_settled_one_is_written_over() {
    let first = || Drive(first(), None);

    let (outcomes, ..) = relay(vec![Meanwhile(marked), Denied(&["lease"]), first(), Denied(&[]), first()]);

    let Some(outcome @ Outcome::Held { .. }) = &outcomes[2] else { panic!("{:?}", outcomes[2]) };
    assert!(outcome.to_string().contains("may not read Lease ns/J9: grant get"), "{outcome}");
    assert_eq!(outcomes[4], Some(Outcome::Committed(5)));
}

#[test]
fn a_driver_that_slept_through_a_later_one_leaves_its_announcement_alone() {
    let later = |world: &mut World| {
        let journal = json!({ "version": 2, "id": "later", "nonce": "n", "kind": "promotion", "phase": "prepared", "claim": 1,
            "token": "9", "by": "another", "intent": "", "began": "", "entries": [] });
        let version = world.cluster.new_version();
        let secret = world.cluster.journals.get_mut("J1").unwrap();
        secret["metadata"]["resourceVersion"] = version;
        secret["data"]["journal"] = BASE64_STANDARD.encode(journal.to_string()).into();
        let mut lease = world.cluster.lease("J1");
        lease["metadata"]["resourceVersion"] = world.cluster.new_version();
        lease["metadata"]["annotations"] = json!({ "tenure.dev/journal": "later 1" });
        lease["spec"]["holderIdentity"] = json!("another");
        world.cluster.leases.insert("J1".into(), lease);
    };
    let promotion = || promotion("X0", "new", "one");
    for request in 1..10 {
        let (_, world) = relayed(vec![Drive(promotion(), None), Drive(Job::Demote, None), Unheard(promotion(), request, later)]);

        let lease = world.borrow_mut().cluster.lease("J1");
        assert_eq!(lease["metadata"]["annotations"]["tenure.dev/journal"], "later 1", "after request {request}");
    }
}

#[test]
fn a_journal_that_may_not_be_stored_is_not_announced_any_more() {
    for earlier in [vec![], vec![Drive(patching("X1", "other", "x"), None)]] {
        let (outcomes, world) = relayed(earlier.into_iter().chain([Denied(&["store"]), Drive(first(), None)]).collect());

        assert_eq!(outcomes.last().unwrap().as_ref().map(Outcome::code), Some(77));
        assert!(announcement(&world).is_null(), "{}", announcement(&world));
    }
}

#[test]
fn what_follows_a_commit_is_done_though_a_signal_comes_and_an_answer_is_lost() {
    let patch = || patching("X0", "a", "x");
    let last = relayed(vec![Drive(patch(), None)]).1.borrow().drivers[0].requests;
    let stopped = |world: &mut World| world.drivers[0].signal = world.e.now;
    // The Lease is read and written, and then the mark is taken off.
    for request in last - 2..=last {
        let (outcomes, world) = relayed(vec![Unheard(patch(), request, stopped)]);

        assert_eq!(outcomes, [Some(Outcome::Committed(1))], "request {request}");
        let is_marked = mark(&world.borrow().cluster.objects["X0"]).is_some();
        assert_eq!((announcement(&world), is_marked), (Value::Null, false), "request {request}");
    }
}

#[test]
fn others_may_add_to_a_list_that_a_change_has_made_or_make_it_or_its_item_before() {
    let patch = || containing(json!([{ "name": "new", "image": "9" }]));
    let unheard = |adds| Unheard(patch(), storing(&patch()), adds);
    let nothing: fn(&mut World) = |_| ();
    let theirs: fn(&mut World) = |world| contain(world, |list| list.push(json!({ "name": "theirs" })));
    let web: fn(&mut World) = |world| contain(world, |list| list.push(json!({ "name": "web" })));
    let new: fn(&mut World) = |world| contain(world, |list| list.push(json!({ "name": "new" })));
    for (before, apply, after, left) in [
        (nothing, Drive(patch(), None), theirs, json!([{ "name": "theirs" }])),
        (nothing, unheard(theirs), nothing, json!([{ "name": "theirs" }])),
        (web, unheard(new), nothing, json!([{ "name": "web" }, { "name": "new" }])),
        (nothing, Drive(patch(), None), nothing, Value::Null),
    ] {
        let (outcomes, world) = relayed(vec![Meanwhile(before), apply, Meanwhile(after), Drive(Job::Recover, None)]);

        assert_eq!((&outcomes[1], &outcomes[3]), (&Some(Outcome::Committed(1)), &Some(Outcome::Recovered(1))));
        assert_eq!(world.borrow().cluster.objects["X0"]["spec"]["containers"], left);
    }
}

#[test]
fn an_update_names_what_it_leaves_as_it_is() {
    let (outcomes, left, _) = relay(vec![Unheard(update(), storing(&update()), |world| set(world, "X0", "a"))]);

    assert!(matches!(&outcomes[0], Some(Outcome::Undone(_))), "{outcomes:?}");
    assert_eq!(left["X0"], json!({ "a": "somebody's" }));
}

#[test]
fn what_a_dead_driver_had_not_changed_yet_has_nothing_to_put_back_whatever_others_make_of_it() {
    let changes =
        || ["X1", "X0"].map(|name| patch(name, "a", "first")).into_iter().chain([change("D0", ChangeType::Delete, json!({}))]);
    let dies = |at| Drive(Job::Apply(changes().collect()), at);
    let edits: fn(&mut World) = |world| ["X0", "D0"].into_iter().for_each(|name| set(world, name, "a"));
    let marks: fn(&mut World) = |world| (marked(world), announced(world)).1;
    let is_made = |request: &u32| mark(&relayed(vec![dies(Some(*request))]).1.borrow().cluster.objects["X0"]).is_some();
    let making = (1..).find(is_made).unwrap();
    let cases = [(edits, ["somebody's"; 2]), (marks, ["X0", "D0"])];
    for (request, (happens, kept)) in (1..making).flat_map(|request| cases.map(|case| (request, case))) {
        let next = Drive(patching("X2", "new", "x"), None);

        let (outcomes, left, _) = relay(vec![dies(Some(request)), Meanwhile(happens), next]);

        assert_eq!((&outcomes[2], &left["X1"]["a"]), (&Some(Outcome::Committed(1)), &json!("X1")), "request {request}");
        assert_eq!([&left["X0"]["a"], &left["D0"]["a"]], kept, "request {request}");
    }
    let edits: fn(&mut World) = |world| set(world, "X0", "a");
    // Without the Lease another transaction may have written over the mark.
    let replaces: fn(&mut World) = |world| {
        world.cluster.leases.remove("J1");
        world.cluster.edit("X0", "other", |object| object["metadata"]["annotations"] = json!({}));
        set(world, "X0", "a");
    };
    for (dies_at, happens) in [(Some(making), edits), (None, edits), (Some(making), replaces)] {
        let (outcomes, ..) = relay(vec![dies(dies_at), Meanwhile(happens), Drive(Job::Recover, None)]);
        assert_eq!(stuck(&outcomes[2]), [("X0", "data.a is somebody else's")]);
    }
    for request in 1..10 {
        let recover = |dies_at| Drive(Job::Recover, dies_at);
        let (outcomes, ..) = relay(vec![dies(None), recover(Some(request)), Meanwhile(edits), recover(None)]);
        assert_eq!(stuck(&outcomes[3]), [("X0", "data.a is somebody else's")], "after request {request}: {outcomes:?}");
    }
}

#[test]
fn an_undo_leaves_an_object_with_the_live_mark_of_another_as_it_is() {
    let legs = vec![Drive(first(), None), Meanwhile(marked), Meanwhile(announced), Drive(Job::Recover, None)];

    let (outcomes, objects, _) = relay(legs);

    assert!(matches!(stuck(&outcomes[3])[..], [("X0", _)]), "{:?}", outcomes[3]);
    assert_eq!((&objects["X0"], objects.contains_key("C0")), (&json!({ "a": "first", "new": "first" }), false));
}

#[test]
fn an_object_that_may_not_be_read_concerns_its_entry_only() {
    let first = || Drive(first(), None);
    let other = patching("X1", "other", "x");

    let (outcomes, objects, _) = relay(vec![first(), Denied(&["create"]), Drive(Job::Recover, None)]);
    let (following, ..) = relay(vec![first(), Denied(&["get"]), Drive(other, None)]);

    assert!(matches!(stuck(&outcomes[2])[..], [("D0", _)]), "{:?}", outcomes[2]);
    assert_eq!((&objects["X0"], objects.contains_key("C0")), (&json!({ "a": "X0" }), false));
    assert_eq!(following[2].as_ref().map(Outcome::code), Some(77));
}

#[test]
fn what_the_same_file_has_committed_is_made_again_only_if_somebody_has_changed_it() {
    for (job, a) in [(patching("X0", "a", "x"), "x"), (update(), "X0")] {
        let run = || Drive(job.clone(), None);

        let (outcomes, objects, _) = relay(vec![run(), run(), Meanwhile(|world| set(world, "X0", "a")), run()]);

        assert_eq!((&outcomes[1], &outcomes[3]), (&Some(Outcome::Already), &Some(Outcome::Committed(1))));
        assert_eq!(objects["X0"]["a"], a);
    }
}

#[test]
fn what_others_make_of_a_default_of_a_created_object_is_no_reason_to_make_it_again() {
    let content = || json!({ "data": { "a": "C0:1" }, "spec": { "default": null } });
    let create = || Drive(Job::Apply(vec![change("C0", ChangeType::Create, content())]), None);
    let scales = |world: &mut World| world.cluster.edit("C0", "hpa", |object| object["spec"]["default"] = json!("more"));

    let (outcomes, ..) = relay(vec![create(), Meanwhile(scales), create(), Meanwhile(|world| set(world, "C0", "a")), create()]);

    assert_eq!((&outcomes[0], &outcomes[2]), (&Some(Outcome::Committed(1)), &Some(Outcome::Already)));
    assert!(matches!(outcomes[4], Some(Outcome::Refused(_))), "{outcomes:?}");
}

#[test]
fn a_field_that_a_webhook_drops_refuses_everything() {
    let (outcomes, data, _) = relay(vec![Drive(Job::Apply(vec![patch("X1", "a", "x"), patch("X0", "dropped", "x")]), None)]);

    assert!(matches!(outcomes[0], Some(Outcome::Refused(_))) && data["X1"]["a"] == "X1", "{outcomes:?}");
}

#[test]
fn a_server_that_asks_for_a_pause_gets_it() {
    let drive = || Drive(patching("X0", "a", "x"), None);
    let busy = |world: &mut World| world.busy_until = world.e.now + 8 * S;

    let (outcomes, world) = relayed(vec![drive(), Meanwhile(|world| set(world, "X0", "a")), Meanwhile(busy), drive()]);

    assert_eq!([&outcomes[0], &outcomes[3]], [&Some(Outcome::Committed(1)); 2]);
    let [usual, busy] = [0, 1].map(|driver| world.borrow().drivers[driver].requests);
    assert!((1..=3).contains(&(busy - usual)), "{busy} requests in place of {usual}");
}

#[test]
fn an_undo_goes_on_once_a_server_that_starts_knows_the_rights() {
    let starts = |world: &mut World| world.denies_until = world.e.now + 13 * S;
    let two = || Job::Apply(vec![patch("X0", "a", "x"), patch("X1", "a", "x")]);
    for request in storing(&two()) + 1..=storing(&two()) + 2 {
        let (outcomes, world) = relayed(vec![Unheard(two(), request, starts)]);

        assert!(matches!(outcomes[0], Some(Outcome::Undone(_))), "{request}: {outcomes:?}");
        assert_eq!(judge::field(world.borrow().cluster.objects.get("X0"), "a"), Some(json!("X0")));
    }
}

#[test]
fn no_pause_that_a_server_asks_for_outlasts_a_signal() {
    let stopped_soon = |world: &mut World| world.drivers[0].signal = world.e.now + S;
    let drive = Unheard(patching("X0", "a", "x"), u32::MAX, stopped_soon);

    let (outcomes, world) = relayed(vec![Meanwhile(|world| world.busy_until = u64::MAX), drive]);

    assert!(matches!(outcomes[1], Some(Outcome::Unavailable(_))), "{outcomes:?}");
    assert_eq!(world.borrow().drivers[0].requests, 2, "none after the signal");
}

#[test]
fn a_driver_that_is_told_to_end_while_it_plans_has_nothing_to_undo() {
    // While it pauses before it asks again.
    let stopped_soon = |world: &mut World| world.drivers[0].signal = world.e.now + S / 10;

    let (outcomes, _) = relayed(vec![Unheard(patching("X0", "a", "x"), 2, stopped_soon)]);

    assert_eq!(outcomes, [Some(Outcome::Stopped)]);
}

#[test]
fn a_creation_that_has_not_come_five_minutes_after_the_limit_is_no_longer_in_doubt() {
    let listed = |world: &World| {
        judge::journal(&world.cluster.journals["J1"]).unwrap().entries.iter().any(|entry| entry.target.name == "C0")
    };
    let other = || Drive(patching("X1", "other", "x"), None);
    for (seconds, is_listed, ended) in
        [(60, true, Outcome::Nothing), (310, true, Outcome::Nothing), (700, false, Outcome::Recovered(1))]
    {
        let recover = || Drive(Job::Recover, None);
        let (outcomes, world) = relayed(vec![Drive(first(), Some(24)), recover(), Later(seconds), recover(), other()]);
        assert_eq!((&outcomes[3], &outcomes[4]), (&Some(ended), &Some(Outcome::Committed(1))));
        assert_eq!(listed(&world.borrow()), is_listed, "after {seconds} s");
    }
}

#[test]
fn a_journal_that_somebody_empties_counts_as_deleted() {
    // As `kubectl replace` of an empty Secret does.
    let empties = |world: &mut World| {
        let mut secret = world.cluster.journals["J1"].clone();
        world.lose_journal();
        secret["data"] = json!({});
        secret["metadata"]["resourceVersion"] = world.cluster.new_version();
        world.cluster.journals.insert("J1".into(), secret);
    };
    // Before a look, and before the commit is stored.
    let patch = || patching("X0", "a", "x");
    for after in [1, 2] {
        let (outcomes, ..) = relay(vec![Unheard(patch(), storing(&patch()) + after, empties)]);

        assert_eq!(outcomes, [Some(Outcome::JournalGone)], "{after} after the first journal");
    }
}

#[test]
fn an_announcement_whose_journal_was_made_meanwhile_stays() {
    let made: fn(&mut World) = |world| {
        let (mut lease, version) = (world.cluster.lease("J1"), world.cluster.new_version());
        lease["metadata"]["annotations"] = json!({ "tenure.dev/journal": "abc 1" });
        world.cluster.leases.insert("J1".into(), lease);
        let secret = json!({ "metadata": { "resourceVersion": version }, "type": "tenure.dev/journal" });
        world.cluster.journals.insert("J1".into(), secret);
    };
    for request in 2..5 {
        let (_, world) = relayed(vec![Unheard(Job::Recover, request, made)]);
        assert_eq!(world.borrow().cluster.leases["J1"]["metadata"]["annotations"]["tenure.dev/journal"], "abc 1", "{request}");
    }
}

#[test]
fn a_creation_in_doubt_that_an_undo_cannot_reach_is_still_in_doubt() {
    let create = Job::Apply(vec![change("C0", ChangeType::Create, json!({ "data": { "a": "C0:1" } }))]);
    let unheard = Unheard(create.clone(), storing(&create) + 1, |_| ());
    let recover = || Drive(Job::Recover, None);

    let (outcomes, world) = relayed(vec![unheard, Denied(&["changes"]), recover(), Denied(&[]), recover()]);

    assert!(matches!(stuck(&outcomes[2])[..], [("C0", _)]), "{outcomes:?}");
    let listed = judge::journal(&world.borrow().cluster.journals["J1"]).unwrap().entries;
    assert!(listed.len() == 1 && !world.borrow().cluster.objects.contains_key("C0"), "{listed:?}");
}

#[test]
fn a_creation_for_which_the_server_was_too_busy_cannot_come() {
    let creates = || Drive(Job::Apply(vec![change("C0", ChangeType::Create, json!({ "data": { "a": "C0:1" } }))]), None);

    // A quota that others use, too, refuses a creation with 409.
    for (denied, seconds) in [(&["changes"][..], 5), (&["creates"], 1)] {
        let (outcomes, world) = relayed(vec![Denied(denied), creates()]);

        assert!(matches!(outcomes[1], Some(Outcome::Undone(_))), "{outcomes:?}");
        let left = judge::journal(&world.borrow().cluster.journals["J1"]).unwrap().entries;
        assert!(left.is_empty() && world.borrow().e.now > seconds * S, "{left:?}");
    }
}

#[test]
fn a_webhook_that_refuses_each_write_is_asked_a_few_times_a_second() {
    for (before, denied, job, how) in [
        (&[][..], &["managers"], Job::Recover, Outcome::Recovered(5).to_string()),
        (&[], &["journals"], Job::Recover, "not undone in full; ".into()),
        (&["journals"], &["journals"], Job::Recover, "not undone in full; ".into()),
        (&["leases"], &["leases"], Job::Recover, Outcome::Nothing.to_string()),
        (&["plans"], &["plans"], first(), "ConfigMap ns/X0 changes all the time, ".into()),
        (&["marks"], &["marks"], Job::Forget, Outcome::Forgotten { changes: Some(5) }.to_string()),
    ] {
        let (outcomes, world) = relayed(vec![Denied(before), Drive(first(), None), Denied(denied), Drive(job, None)]);

        assert!(outcomes[3].as_ref().unwrap().to_string().starts_with(&how), "{denied:?}: {outcomes:?}");
        let world = world.borrow();
        let (requests, seconds) = (world.drivers.iter().map(|driver| u64::from(driver.requests)).sum::<u64>(), world.e.now / S);
        assert!(requests < 20 * seconds, "{denied:?}: {requests} requests in {seconds} s");
    }
}

#[test]
fn a_new_item_in_which_anything_was_added_stays_where_no_manager_tells_of_whom_it_is() {
    let make = |world: &mut World| contain(world, |list| list.push(json!({ "name": "web" })));
    let add = |world: &mut World| {
        contain(world, |list| list.last_mut().unwrap()["theirs"] = json!("x"));
        world.cluster.objects.get_mut("X0").unwrap()["metadata"]["managedFields"] = json!([]);
    };
    for before in [make, |_: &mut World| ()] {
        let patch = Drive(containing(json!([{ "name": "new", "image": "9" }])), None);

        let (outcomes, _) = relayed(vec![Meanwhile(before), patch, Meanwhile(add), Drive(Job::Recover, None)]);

        assert_eq!(stuck(&outcomes[3]), [("X0", "others have set spec.containers[name=new].theirs")]);
    }
}

#[test]
fn two_transactions_over_the_same_objects_are_never_mixed() {
    for values in (0..10).flat_map(|seed| opposed(seed, 30)) {
        assert!(values.iter().all(|value| *value == values[0]), "{values:?}");
    }
}

/// The number of the request by which a driver stores its journal before it changes anything.
fn storing(job: &Job) -> u32 {
    let is_stored = |world: &World| world.cluster.journals.get("J1").is_some_and(|secret| secret["data"]["journal"].is_string());
    (1..20).find(|request| is_stored(&relayed(vec![Drive(job.clone(), Some(*request))]).1.borrow())).unwrap()
}

/// Names one field as it is, too.
fn update() -> Job {
    Job::Apply(vec![change("X0", ChangeType::Update, json!({ "data": { "a": "X0", "new": "u" } }))])
}

/// Patches these items of a list with keys.
fn containing(items: Value) -> Job {
    Job::Apply(vec![change("X0", ChangeType::Patch, json!({ "spec": { "containers": items } }))])
}

/// Somebody else edits that list.
fn contain(world: &mut World, edit: impl FnOnce(&mut Vec<Value>)) {
    world.cluster.edit("X0", "kubectl", |object| {
        let mut list = object["spec"]["containers"].as_array().cloned().unwrap_or_default();
        edit(&mut list);
        object["spec"]["containers"] = list.into();
    });
}

fn announcement(world: &Shared) -> Value {
    world.borrow_mut().cluster.lease("J1")["metadata"]["annotations"]["tenure.dev/journal"].clone()
}

/// The other transaction is under way.
fn announced(world: &mut World) {
    let mut lease = world.cluster.lease("J9");
    lease["metadata"]["annotations"] = json!({ "tenure.dev/journal": "abc 1" });
    world.cluster.leases.insert("J9".into(), lease);
}

/// Another transaction marks an object, whatever mark it bears.
fn marked(world: &mut World) {
    let mark = json!("ns/J9 abc 1");
    world.cluster.edit("X0", "kubectl", |object| object["metadata"]["annotations"]["tenure.dev/change"] = mark);
}

/// A backup copies marks too.
fn copied(world: &mut World) {
    let uid = world.cluster.new_uid();
    world.cluster.edit("C0", "velero", |object| object["metadata"]["uid"] = uid);
}

fn tell(seed: u64) {
    let (world, _) = run(seed, false, true);
    let world = world.borrow();
    for line in world.e.story() {
        eprintln!("{line}");
    }
    eprintln!("{:#?}", world.e.judge.violations);
    assert!(world.e.judge.violations.is_empty());
}
