//! What happens in a random world, from its seed.

use std::{cell::RefCell, rc::Rc};

use serde_json::json;
use tenure::transaction::ChangeType;
use tenure_world::clock::S;

use crate::{
    judge::{data, put},
    world::{Faults, Happening, Job, Shared, World, change, drain},
};

/// How often something may happen, with which probability each time, and what.
type Plan<'a> = (&'a [usize], f64, fn() -> Happening);

/// Runs the world of a seed to its end. Returns it, and how many drivers ran in it.
pub fn run(seed: u64, is_late_journal: bool, tells: bool) -> (Shared, u64) {
    let world: Shared = Rc::new(RefCell::new(World::new(seed, is_late_journal, tells)));
    let (horizon, families, is_promotion, token, faults) = plan(&world);
    let rest = world.borrow_mut().within(60);
    drain(&world, horizon + rest);
    let forces = world.borrow_mut().e.chance(0.2);
    let back = || match (is_promotion, forces) {
        (true, _) => Job::Demote,
        (false, true) => Job::Force,
        (false, false) => Job::Recover,
    };
    // Two recover each journal, the first of which may be slow. Late writes are still under way.
    for journal in &families {
        {
            let mut world = world.borrow_mut();
            let slow = Faults { crash: 0.05, ..faults };
            let (first, second) =
                (world.add(journal, token + 1, back(), slow), world.add(journal, token + 1, back(), Faults::default()));
            let after = world.pick(&[0, 1, 30]) * S;
            world.e.after(0, Happening::Start(first));
            world.e.after(after, Happening::Start(second));
        }
        let rest = world.borrow_mut().pick(&[40, 400]) * S;
        let until = world.borrow().e.now + rest;
        drain(&world, until);
    }
    drain(&world, u64::MAX);
    // The last ones are without faults, for what the slow ones left. Two rounds: another journal's mark may have been live.
    for journal in families.iter().chain(&families) {
        {
            let mut world = world.borrow_mut();
            let last = world.add(journal, token + 2, back(), Faults::default());
            world.e.after(0, Happening::Start(last));
        }
        drain(&world, u64::MAX);
    }
    let mut borrowed = world.borrow_mut();
    let drivers = borrowed.drivers.len() as u64;
    let World { e, cluster, drivers: all, .. } = &mut *borrowed;
    e.judge.end(cluster);
    e.judge.violations.extend(
        all.iter().filter(|driver| driver.running.is_some()).map(|driver| format!("T10 no end: driver {}", driver.party.number)),
    );
    drop(borrowed);
    (world, drivers)
}

/// Plans what happens: objects, drivers, and what others do.
fn plan(world: &Shared) -> (u64, Vec<&'static str>, bool, u64, Faults) {
    let mut world = world.borrow_mut();
    let w = &mut *world;
    let is_quiet = w.e.chance(0.2);
    let targets: Vec<String> = (0..w.e.rng.usize(2..=4)).map(|number| format!("X{number}")).collect();
    let pods: Vec<String> = (0..6).map(|number| format!("P{number}")).collect();
    for name in targets.iter().chain(&pods).chain(&["D0".to_owned()]) {
        let has_map = w.e.chance(0.4);
        let mut content = data(name, "o", has_map);
        if w.e.chance(0.2) {
            content.as_object_mut().unwrap().remove("b");
        }
        w.plant(name, content.clone());
        if name.starts_with('X') {
            w.origin.insert(name.clone(), json!({ "data": content }));
        }
    }
    let faults = Faults {
        crash: w.pick(&[0.0, 0.01, 0.03, 0.08]),
        freeze: w.pick(&[0.0, 0.02, 0.06]),
        lost: w.pick(&[0.0, 0.03, 0.1]),
        unanswered: w.pick(&[0.0, 0.03, 0.1]),
        late: w.pick(&[0.0, 0.05, 0.15, 0.25]),
    };
    let is_promotion = w.e.chance(0.6);
    let families = if w.e.chance(0.6) { vec!["J1"] } else { vec!["J1", "J2"] };
    // Drivers that die with writes under way, one after another, while somebody puts fields back.
    let is_chain = w.e.chance(0.3);
    let (faults, families) = if is_chain {
        w.revert = 0.8;
        (Faults { crash: 0.06, freeze: 0.02, lost: 0.02, unanswered: 0.05, late: 0.25 }, vec!["J1"])
    } else {
        (faults, families)
    };
    let kinds = !is_promotion && w.e.chance(0.6);
    let horizon = w.pick(&[60, 200]);
    let mut starts: Vec<u64> = (0..w.e.rng.usize(1..=6)).map(|_| w.e.rng.u64(0..=horizon * S)).collect();
    starts.sort_unstable_by_key(|_| w.e.rng.u64(..));
    let mut token = 0;
    for (number, start) in starts.into_iter().enumerate() {
        token += u64::from(w.e.chance(0.75));
        let mut changes = Vec::new();
        for name in &targets {
            if w.e.chance(0.7) {
                let mut content = json!({});
                for (key, often) in [("a", 0.75), ("b", 0.75), ("m.x", 0.3), ("m.y", 0.3), ("m.d", 0.1)] {
                    if w.e.chance(often) {
                        put(&mut content, key, Some(&json!(format!("{name}:t{number}{key}"))));
                    }
                }
                if content != json!({}) {
                    changes.push(change(name, ChangeType::Patch, content));
                }
            }
        }
        if is_promotion && w.e.chance(0.6) {
            changes.push(change(&pods[number], ChangeType::Patch, json!({ "data": { "a": format!("P{number}:t{number}") } })));
        }
        if kinds && w.e.chance(0.5) {
            changes.push(change(
                "C0",
                ChangeType::Create,
                json!({ "data": { "a": format!("C0:t{number}a"), "b": format!("C0:t{number}b") } }),
            ));
        }
        if kinds && w.e.chance(0.4) {
            changes.push(change("D0", ChangeType::Delete, json!({})));
        }
        if changes.is_empty() {
            changes.push(change(&targets[0], ChangeType::Patch, json!({ "data": { "a": format!("X0:t{number}!") } })));
        }
        w.e.rng.shuffle(&mut changes);
        let refused: Vec<String> =
            changes.iter().filter(|_| w.e.rng.f64() < 0.06).map(|change| change.target.name.clone()).collect();
        let job = match (is_promotion, w.e.chance(0.12)) {
            (true, false) => Job::Promote(changes),
            (true, true) => Job::Demote,
            (false, false) => Job::Apply(changes),
            (false, true) if w.e.chance(0.5) => Job::Force,
            (false, true) => Job::Recover,
        };
        let journal = w.pick(&families);
        let driver = w.add(journal, token, job, faults);
        w.drivers[driver].refused = refused;
        if w.e.chance(0.1) {
            w.drivers[driver].denied = w.pick(&[&["create"][..], &["delete"], &["patch"], &["lease"], &["delete", "create"]]);
        }
        if w.e.chance(0.1) {
            w.drivers[driver].signal = start + w.within(5);
        }
        if w.e.chance(0.1) {
            w.drivers[driver].until = start + w.within(30);
        }
        w.e.after(start, Happening::Start(driver));
    }
    if !is_quiet {
        let plans: [Plan<'_>; 9] = [
            (&[0, 1, 4], 1.0, || Happening::Control),
            (&[1], 0.1, || Happening::Copy),
            (&[0, 2, 6, 15], 1.0, || Happening::Edit),
            (&[0, 5, 20], 1.0, || Happening::Status),
            (&[1], 0.15, || Happening::Strip),
            (&[0, 0, 1, 3], 1.0, || Happening::Recreate),
            (&[1], 0.15, || Happening::Delete),
            (&[1, 2], if kinds { 0.4 } else { 0.0 }, || Happening::Create),
            (&[1], 0.05, || Happening::LoseJournal),
        ];
        for (numbers, probability, happening) in plans {
            for _ in 0..w.pick(numbers) {
                if w.e.chance(probability) {
                    let after = w.within(horizon);
                    w.e.after(after, happening());
                }
            }
        }
    }
    (horizon * S, families, is_promotion, token, faults)
}
