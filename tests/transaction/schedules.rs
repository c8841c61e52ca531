//! Worlds with one plan each.

use std::{cell::RefCell, collections::BTreeMap, rc::Rc};

use serde_json::{Value, json};
use tenure::{
    request::Answer,
    transaction::{Change, ChangeType, Outcome},
};
use tenure_world::clock::S;

use crate::{
    judge::{data, field},
    server::mark,
    world::{Faults, Happening, Job, Shared, World, change, drain},
};

fn promotion(name: &str, value: &str) -> Job {
    let content = json!({ "data": { "a": format!("{name}:{value}") } });
    Job::Promote(vec![change(name, ChangeType::Patch, content)])
}

/// Runs a driver to its end. Returns its number.
fn lead(world: &Shared, job: Job, token: u64, dies_late: bool, denied: &'static [&'static str]) -> usize {
    let driver = world.borrow_mut().add("J1", token, job, Faults::default());
    world.borrow_mut().drivers[driver].dies_late = dies_late;
    world.borrow_mut().drivers[driver].denied = denied;
    world.borrow_mut().e.after(0, Happening::Start(driver));
    drain(world, u64::MAX);
    driver
}

/// Delivers the write that was under way when a driver died. Returns the answer to it.
fn deliver(world: &Shared, dead: usize) -> Answer {
    let late = world.borrow_mut().drivers[dead].kept.take().unwrap();
    let (answer, _) = world.borrow_mut().cluster.judge(&late);
    world.borrow_mut().serve(dead, late, None);
    answer
}

fn planted(names: &[&str]) -> Shared {
    let world: Shared = Rc::new(RefCell::new(World::new(1, false, false)));
    for name in names {
        world.borrow_mut().plant(name, data(name, "o", false));
    }
    world
}

/// Returns the field in the end, and what the judge reports.
fn judged(world: &Shared) -> (Option<Value>, Vec<String>) {
    let world = &mut *world.borrow_mut();
    world.e.judge.end(&world.cluster);
    (field(world.cluster.objects.get("X"), "a"), world.e.judge.violations.clone())
}

/// The schedule that a mark without its claim loses: a fence that changes nothing moves no version, and a late write of the dead driver
/// commits under the next one. Returns the answer to that write, and the field in the end.
pub fn scripted() -> (Answer, Option<Value>, Vec<String>) {
    let world = planted(&["X", "Y", "D0"]);
    lead(&world, promotion("X", "t1"), 1, false, &[]);
    {
        // GitOps puts the field back, the mark stays.
        let world = &mut *world.borrow_mut();
        world.cluster.edit("X", "argocd", |object| object["data"]["a"] = json!("X:oa"));
        world.e.judge.foreign("X", "a", Some(json!("X:oa")));
    }
    let dead = lead(&world, promotion("X", "t2"), 2, true, &[]);
    lead(&world, promotion("Y", "t3"), 3, false, &[]);
    let answer = deliver(&world, dead);
    lead(&world, Job::Demote, 4, false, &[]);
    let (field, violations) = judged(&world);
    (answer, field, violations)
}

/// A driver may not mark the object to which a write of the dead one is under way. Returns its outcome, the answer to that write, and the
/// field in the end.
pub fn unmarked() -> (Option<Outcome>, Answer, Option<Value>, Vec<String>) {
    let world = planted(&["X", "D0"]);
    let dead = lead(&world, promotion("X", "t1"), 1, true, &[]);
    let denied = lead(&world, Job::Demote, 2, false, &["patch"]);
    let answer = deliver(&world, dead);
    lead(&world, Job::Demote, 3, false, &[]);
    let (field, violations) = judged(&world);
    let outcome = world.borrow_mut().drivers[denied].outcome.take();
    (outcome, answer, field, violations)
}

/// A creation arrives after its driver has died, and after another file was committed. That file comes again, and then an undo. Returns
/// true if the object is there in the end.
pub fn arrived() -> bool {
    let world = planted(&["X", "D0"]);
    let creation = Job::Apply(vec![change("C0", ChangeType::Create, json!({ "data": { "a": "C0:t1" } }))]);
    let other = || Job::Apply(vec![change("X", ChangeType::Patch, json!({ "data": { "a": "X:t2" } }))]);
    let dead = lead(&world, creation, 1, true, &[]);
    lead(&world, other(), 2, false, &[]);
    deliver(&world, dead);
    lead(&world, other(), 3, false, &[]);
    lead(&world, Job::Recover, 4, false, &[]);
    world.borrow().cluster.objects.contains_key("C0")
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
        let (job, dies_at, unheard) = match leg {
            Leg::Drive(job, dies_at) => (job, dies_at, None),
            Leg::Unheard(job, at, happens) => (job, None, Some((at, happens))),
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
        world.borrow_mut().drivers[driver].dies_at = dies_at;
        world.borrow_mut().drivers[driver].denied = denied;
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

/// Somebody else sets a field.
pub fn set(world: &mut World, name: &str, key: &str) {
    world.cluster.edit(name, "kubectl", |object| object["data"][key] = json!("somebody's"));
}
