//! Worlds with one plan each.

use std::{cell::RefCell, collections::BTreeMap, rc::Rc};

use serde_json::{Value, json};
use tenure::{
    request::Answer,
    transaction::{Change, ChangeType, Outcome},
};
use tenure_world::clock::S;

use crate::{
    judge::field,
    server::mark,
    world::{Faults, Happening, Job, Shared, World, change, drain},
};

/// A change that sets a field.
pub fn patch(name: &str, key: &str, value: &str) -> Change {
    change(name, ChangeType::Patch, json!({ "data": { key: value } }))
}

pub fn patching(name: &str, key: &str, value: &str) -> Job {
    Job::Apply(vec![patch(name, key, value)])
}

pub fn promotion(name: &str, key: &str, value: &str) -> Job {
    Job::Promote(vec![patch(name, key, value)])
}

/// A transaction of every kind of change.
pub fn first() -> Job {
    Job::Apply(every_kind("first"))
}

/// Two transactions over the same objects in opposite order, at about the same time, many times. Returns the values that stand after
/// each.
pub fn opposed(seed: u64, rounds: u64) -> Vec<Vec<Option<Value>>> {
    const NAMES: [&str; 3] = ["X0", "X1", "X2"];
    let world: Shared = Rc::new(RefCell::new(World::new(seed, false, false)));
    for name in NAMES {
        world.borrow_mut().plant(name, json!({ "a": "o" }));
    }
    let apply = |author: &str, names: &mut dyn Iterator<Item = &str>| {
        let content = json!({ "data": { "a": author } });
        let job = Job::Apply(names.map(|name| change(name, ChangeType::Patch, content.clone())).collect());
        let mut world = world.borrow_mut();
        let driver = world.add(author, 1, job, Faults::default());
        let after = world.e.rng.u64(0..S / 5);
        world.e.after(after, Happening::Start(driver));
    };
    let round = |_| {
        apply("J1", &mut NAMES.into_iter());
        apply("J2", &mut NAMES.into_iter().rev());
        drain(&world, u64::MAX);
        NAMES.map(|name| field(world.borrow().cluster.objects.get(name), "a")).to_vec()
    };
    (0..rounds).map(round).collect()
}

/// Every kind of change.
pub fn every_kind(value: &str) -> Vec<Change> {
    let content = json!({ "data": { "a": value, "new": value } });
    vec![
        change("X0", ChangeType::Patch, content.clone()),
        change("C0", ChangeType::Create, content.clone()),
        change("D0", ChangeType::Delete, json!({})),
        change("X1", ChangeType::Update, content.clone()),
        change("X2", ChangeType::Patch, content),
    ]
}

/// What happens next.
pub enum Leg {
    /// A driver runs, and may die at this request.
    Drive(Job, Option<u32>),
    /// A driver runs, and dies with its first change of a target under way.
    DiesLate(Job),
    /// That change arrives, and is answered like this.
    Arrives(fn(&Answer) -> bool),
    /// A driver runs, and does not hear the answer to this request. This happens before it asks again.
    Unheard(Job, u32, fn(&mut World)),
    Meanwhile(fn(&mut World)),
    /// The drivers that follow have this token.
    Term(u64),
    /// The drivers that follow may not do this.
    Denied(&'static [&'static str]),
    /// So many seconds pass.
    Later(u64),
}

/// Drivers that come one after another. Returns their outcomes, the data of all objects, and whether a mark is left.
pub fn relay(legs: Vec<Leg>) -> (Vec<Option<Outcome>>, BTreeMap<String, Value>, bool) {
    let (outcomes, world) = relayed(legs);
    let objects = &world.borrow().cluster.objects;
    let is_marked = objects.values().any(|object| mark(object).is_some());
    let data = objects.iter().map(|(name, object)| (name.clone(), object["data"].clone())).collect();
    (outcomes, data, is_marked)
}

/// Drivers that come one after another. Returns their outcomes, and the world.
pub fn relayed(legs: Vec<Leg>) -> (Vec<Option<Outcome>>, Shared) {
    let world: Shared = Rc::new(RefCell::new(World::new(1, false, false)));
    for name in ["X0", "X1", "X2", "D0"] {
        world.borrow_mut().plant(name, json!({ "a": name }));
    }
    let (mut token, mut denied) = (1, &[][..]);
    let run = |leg| {
        let (job, dies_at, dies_late, unheard) = match leg {
            Leg::Drive(job, dies_at) => (job, dies_at, false, None),
            Leg::DiesLate(job) => (job, None, true, None),
            Leg::Unheard(job, at, happens) => (job, None, false, Some((at, happens))),
            Leg::Arrives(is_right) => {
                let world = &mut *world.borrow_mut();
                let mut drivers = world.drivers.iter_mut().enumerate();
                let (dead, late) = drivers.find_map(|(dead, driver)| Some((dead, driver.kept.take()?))).unwrap();
                let (answer, _) = world.cluster.judge(&late);
                assert!(is_right(&answer), "{answer:?}");
                world.serve(dead, late, None);
                return None;
            }
            Leg::Term(next) => {
                token = next;
                return None;
            }
            Leg::Denied(verbs) => {
                denied = verbs;
                return None;
            }
            Leg::Later(seconds) => {
                world.borrow_mut().e.now += seconds * S;
                return None;
            }
            Leg::Meanwhile(happens) => {
                happens(&mut world.borrow_mut());
                return None;
            }
        };
        let driver = world.borrow_mut().add("J1", token, job, Faults::default());
        {
            let driver = &mut world.borrow_mut().drivers[driver];
            (driver.dies_at, driver.dies_late, driver.denied) = (dies_at, dies_late, denied);
        }
        world.borrow_mut().e.after(0, Happening::Start(driver));
        if let Some((at, happens)) = unheard {
            world.borrow_mut().drivers[driver].unheard_at = Some(at);
            let soon = world.borrow().e.now + 5 * S;
            drain(&world, soon);
            happens(&mut world.borrow_mut());
        }
        drain(&world, u64::MAX);
        world.borrow_mut().drivers[driver].outcome.take()
    };
    let outcomes = legs.into_iter().map(run).collect();
    // What is forgotten is not undone.
    let wrong = world.borrow().e.judge.violations.iter().find(|wrong| !wrong.starts_with("T6")).cloned();
    assert_eq!(wrong, None);
    (outcomes, world)
}

/// Everything has come to rest after a relay, and nothing that must hold has not.
pub fn judge_all(world: &Shared) {
    let world = &mut *world.borrow_mut();
    world.e.judge.end(&world.cluster);
    assert!(world.e.judge.violations.is_empty(), "{:?}", world.e.judge.violations);
}

/// What an undo has left as it is, and why.
pub fn stuck(outcome: &Option<Outcome>) -> Vec<(&str, &str)> {
    let Some(Outcome::Stuck(left)) = outcome else { panic!("{outcome:?}") };
    left.iter().map(|(target, why)| (&*target.name, &**why)).collect()
}

/// Each write of this driver to a target was made as this user.
pub fn acted_as(world: &Shared, driver: usize, user: &str) {
    let world = world.borrow();
    let users: Vec<_> = world.users.iter().filter(|(writer, _)| *writer == driver).map(|(_, user)| user).collect();
    assert!(users.len() > 3 && users.iter().all(|as_whom| *as_whom == user), "{users:?}");
}

/// Somebody else sets a field.
pub fn set(world: &mut World, name: &str, key: &str) {
    world.cluster.edit(name, "kubectl", |object| object["data"][key] = json!("somebody's"));
}
