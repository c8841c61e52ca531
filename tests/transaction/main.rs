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

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::print_stderr,
    clippy::cast_precision_loss,
    unreachable_pub,
    missing_docs,
    reason = "a test fails by panicking, and says why"
)]

mod judge;
mod others;
mod plan;
mod schedules;
mod server;
mod world;

use std::collections::BTreeMap;

use plan::run;
use schedules::{
    Leg::{Drive, Meanwhile, Term},
    every_kind, opposed, relay, relayed, scripted, set,
};
use serde_json::json;
use tenure::{
    request::Answer,
    transaction::{Outcome, Verb},
};
use world::{Job, World, change};

/// Terms to simulate unless another number is requested.
const TERMS: u64 = 10_000;
/// Worlds in one of which the control must be reported.
const CONTROLS: u64 = 100;

#[test]
fn changes_are_all_made_or_all_undone_whoever_dies_in_the_middle() {
    if let Some(seed) = number("SEED") {
        return tell(seed);
    }
    let wanted = number("TENURE_SIMULATION").unwrap_or(TERMS);
    let (mut terms, mut seed, mut counts) = (0, number("FROM").unwrap_or(0), BTreeMap::<&str, u64>::new());
    let first = seed;
    while terms < wanted {
        let (world, drivers) = run(seed, false, false);
        terms += drivers;
        for (what, count) in &world.borrow().e.counts {
            *counts.entry(what).or_default() += count;
        }
        if let Some(wrong) = world.borrow().e.judge.violations.first() {
            eprintln!("{} worlds, {terms} terms", seed - first + 1);
            panic!("SEED={seed}: {wrong}");
        }
        seed += 1;
    }
    eprintln!("{} worlds, {terms} terms: {counts:?}", seed - first);
    for what in ["committed", "recovered", "undone", "stuck", "held", "superseded", "stopped", "killed", "frozen", "late"] {
        assert!(terms < TERMS || counts.contains_key(what), "never: {what}");
    }
}

/// A judge that reports nothing proves nothing.
#[test]
fn a_journal_that_is_stored_after_the_change_is_reported() {
    let is_reported = |seed| {
        let (world, _) = run(seed, true, false);
        let world = world.borrow();
        world.e.judge.violations.iter().any(|wrong| wrong.starts_with("T1"))
    };
    assert!((0..CONTROLS).any(is_reported));
}

#[test]
fn a_late_write_of_a_dead_driver_does_not_commit_under_the_next_one() {
    let (late, field, violations) = scripted();

    assert!(matches!(late, Answer::Conflict), "{late:?}");
    assert_eq!(field, Some(json!("X:oa")));
    assert!(violations.is_empty(), "{violations:?}");
}

#[test]
fn whichever_request_is_the_last_of_a_driver_the_next_one_goes_on_or_undoes() {
    let first = || Job::Apply(every_kind("first", Verb::Create));
    let other = || Job::Apply(every_kind("other", Verb::Manifest));
    let leads = |value: &str, names: [&str; 2]| {
        Job::Promote(names.map(|name| change(name, Verb::Patch, json!({ "data": { "new": value } }))).to_vec())
    };
    let (one, two) = (|| leads("one", ["X0", "X1"]), || leads("two", ["X0", "X2"]));
    let before = || BTreeMap::from(["D0", "X0", "X1", "X2"].map(|name| (name.to_owned(), json!({ "a": name }))));
    let after =
        |value: &str| BTreeMap::from(["C0", "X0", "X1", "X2"].map(|name| (name.to_owned(), json!({ "a": value, "new": value }))));
    let mut led = before();
    led.insert("X0".into(), json!({ "a": "X0", "new": "two" }));
    led.insert("X2".into(), json!({ "a": "X2", "new": "two" }));
    let cases = [
        (None, first(), Job::Recover, before()),
        (None, first(), first(), after("first")),
        (None, first(), other(), after("other")),
        (Some(first()), Job::Recover, Job::Recover, before()),
        (Some(first()), Job::Recover, other(), after("other")),
        (None, one(), Job::Demote, before()),
        (None, one(), two(), led.clone()),
        (Some(one()), two(), Job::Demote, before()),
        (Some(one()), Job::Demote, two(), led),
    ];
    for (earlier, dying, next, expected) in cases {
        for request in 1.. {
            let legs = earlier.iter().cloned().map(|job| Drive(job, None));
            let legs = legs.chain([Drive(dying.clone(), Some(request)), Drive(next.clone(), None)]).collect();
            let (outcomes, objects, is_marked) = relay(legs);
            assert_eq!(objects, expected, "{next:?} after request {request} of {dying:?}: {outcomes:?}");
            assert!(!is_marked || matches!(next, Job::Promote(_)), "{next:?} after request {request} of {dying:?}");
            if outcomes[outcomes.len() - 2].is_some() {
                assert!(request > 8, "the driver has died at each of {request} requests");
                break;
            }
        }
    }
}

#[test]
fn what_somebody_else_has_changed_since_stays_and_is_named_unless_it_is_forced() {
    let legs = |last: Job| {
        let edit = |world: &mut World| {
            set(world, "X0", "a");
            set(world, "X1", "others");
        };
        vec![
            Drive(Job::Apply(every_kind("first", Verb::Create)), None),
            Meanwhile(edit),
            Drive(Job::Recover, None),
            Drive(last, None),
        ]
    };

    let (outcomes, left, _) = relay(legs(Job::Apply(every_kind("other", Verb::Create))));
    let (forced, objects, _) = relay(legs(Job::Force));

    for outcome in &outcomes[2..] {
        let Some(Outcome::Stuck(stuck)) = outcome else { panic!("{outcome:?}") };
        assert_eq!(
            stuck.iter().map(|(target, why)| (&*target.name, &**why)).collect::<Vec<_>>(),
            [("X0", "data.a is somebody else's")]
        );
    }
    assert_eq!(left["X0"], json!({ "a": "somebody's", "new": "first" }));
    assert_eq!(left["X1"], json!({ "a": "X1", "others": "somebody's" }));
    assert_eq!(forced.last(), Some(&Some(Outcome::Recovered(1))));
    assert_eq!(objects["X0"], json!({ "a": "X0" }));
}

#[test]
fn a_journal_that_somebody_has_edited_is_refused_until_it_is_forgotten() {
    let edit = |world: &mut World| {
        let journal = world.cluster.journals.get_mut("J1").unwrap();
        journal["stringData"]["journal"] = json!("{");
    };
    let begun = || Drive(Job::Apply(every_kind("first", Verb::Create)), Some(16));
    let again = || Drive(Job::Apply(every_kind("other", Verb::Manifest)), None);

    let forget = || Drive(Job::Forget, None);
    let (kept, left, is_marked) = relay(vec![begun(), forget(), forget(), Drive(Job::Recover, None)]);
    let (outcomes, ..) = relay(vec![begun(), Meanwhile(edit), again(), forget(), again()]);

    assert_eq!(kept[1..], [Some(Outcome::Forgotten { changes: Some(5) }), Some(Outcome::Nothing), Some(Outcome::Nothing)]);
    assert_eq!(outcomes[3], Some(Outcome::Forgotten { changes: None }));
    assert_eq!((&left["X0"], is_marked), (&json!({ "a": "first", "new": "first" }), false), "nothing is restored");
    assert_eq!(outcomes[2].as_ref().map(Outcome::code), Some(78));
    assert!(matches!(outcomes[4], Some(Outcome::Committed(_))), "{:?}", outcomes[4]);
}

#[test]
fn a_promotion_follows_on_a_journal_of_either_kind_that_was_forgotten() {
    let promotion = || Drive(Job::Promote(vec![change("X0", Verb::Patch, json!({ "data": { "new": "one" } }))]), None);
    let edit = |world: &mut World| world.cluster.journals.get_mut("J1").unwrap()["stringData"]["journal"] = json!("{");

    let (outcomes, objects, _) = relay(vec![promotion(), Meanwhile(edit), Drive(Job::Forget, None), promotion()]);

    assert_eq!(outcomes[3], Some(Outcome::Nothing), "it is as wanted already");
    assert_eq!(objects["X0"]["new"], "one");
}

#[test]
fn what_another_began_is_undone_as_its_user_where_the_new_plan_cannot_be_stored() {
    let first = || Job::Apply(every_kind("first", Verb::Create));
    // The deletion that comes next would have to be kept in the journal.
    let grow = |world: &mut World| {
        let next = world.cluster.new_version();
        let object = world.cluster.objects.get_mut("D0").unwrap();
        object["data"]["large"] = json!("x".repeat(1 << 20));
        object["metadata"]["resourceVersion"] = next;
    };

    let (outcomes, world) = relayed(vec![Drive(first(), Some(16)), Meanwhile(grow), Drive(first(), None)]);

    let Some(Outcome::Undone(why)) = &outcomes[2] else { panic!("{:?}", outcomes[2]) };
    assert!(why.to_string().contains("split it"), "{why}");
    let world = world.borrow();
    assert_eq!(world.cluster.objects["X0"]["data"], json!({ "a": "X0" }));
    assert!(!world.cluster.objects.contains_key("C0"));
    let users: Vec<_> = world.users.iter().filter(|(driver, _)| *driver == 1).map(|(_, user)| &**user).collect();
    assert!(users.len() > 3 && users.iter().all(|user| *user == "user 0"), "{users:?}");
}

#[test]
fn a_recovery_acts_as_the_user_that_is_asked_for() {
    let (outcomes, world) =
        relayed(vec![Drive(Job::Apply(every_kind("first", Verb::Create)), Some(16)), Drive(Job::Recover, None)]);

    assert!(matches!(outcomes[1], Some(Outcome::Recovered(_))), "{:?}", outcomes[1]);
    let world = world.borrow();
    let users: Vec<_> = world.users.iter().filter(|(driver, _)| *driver == 1).map(|(_, user)| &**user).collect();
    assert!(users.len() > 3 && users.iter().all(|user| *user == "user 1"), "{users:?}");
}

#[test]
fn a_promotion_that_cannot_be_planned_leaves_the_next_one_what_it_needs() {
    let promotion = |name| Drive(Job::Promote(vec![change(name, Verb::Patch, json!({ "data": { "new": "one" } }))]), None);

    let (outcomes, objects, _) = relay(vec![promotion("X0"), promotion("absent"), promotion("X1")]);

    assert_eq!(outcomes[1], Some(Outcome::Refused("ConfigMap ns/absent does not exist".into())));
    assert_eq!(outcomes[2], Some(Outcome::Committed(2)));
    assert_eq!((&objects["X0"], &objects["X1"]), (&json!({ "a": "X0" }), &json!({ "a": "X1", "new": "one" })));
}

#[test]
fn a_journal_of_a_later_term_is_left_alone_and_the_remedy_is_named() {
    let first = || Drive(Job::Apply(every_kind("first", Verb::Create)), None);

    let (outcomes, ..) = relay(vec![Term(2), first(), Term(1), first()]);

    let Some(outcome @ Outcome::Superseded { .. }) = &outcomes[3] else { panic!("{:?}", outcomes[3]) };
    assert!(outcome.to_string().contains("of a later term; if etcd was restored, `tenure recover forget`"), "{outcome}");
}

#[test]
fn a_journal_of_promotions_takes_no_transaction() {
    let promotion = Job::Promote(vec![change("X0", Verb::Patch, json!({ "data": { "new": "one" } }))]);

    let transaction = Job::Apply(every_kind("first", Verb::Create));

    let (outcomes, objects, _) = relay(vec![
        Drive(promotion, None),
        Drive(transaction.clone(), None),
        Drive(Job::Recover, None),
        Drive(transaction, None),
    ]);

    assert_eq!(outcomes[1].as_ref().map(Outcome::code), Some(78));
    assert_eq!(outcomes[2], Some(Outcome::Recovered(1)), "a recovery undoes both kinds");
    assert!(matches!(outcomes[3], Some(Outcome::Committed(_))), "{:?}", outcomes[3]);
    assert_eq!(objects["X0"]["new"], "first");
}

#[test]
fn an_object_that_is_not_as_required_refuses_everything() {
    let mut changes = every_kind("first", Verb::Create);
    changes[4].require = Some(json!({ "data": { "a": "X2", "new": "old" } }));

    let (outcomes, objects, is_marked) = relay(vec![Drive(Job::Apply(changes), None)]);

    assert_eq!(outcomes[0], Some(Outcome::Refused("ConfigMap ns/X2 is not as required".into())));
    assert_eq!((&objects["X0"], is_marked), (&json!({ "a": "X0" }), false));
}

#[test]
fn two_transactions_over_the_same_objects_are_never_mixed() {
    for values in (0..10).flat_map(|seed| opposed(seed, 30)) {
        assert!(values.iter().all(|value| *value == values[0]), "{values:?}");
    }
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

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}
