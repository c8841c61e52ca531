//! Shrinks a world that has a violation: drops the strikes that the violation does not need, and the time between the others.
//!
//! A candidate has some strikes of the first run and no others. At each instant that the first run had, it draws the same numbers,
//! so that a dropped strike changes only what follows from it. At other instants it draws by the time and by a salt.

use crate::{
    clock::{Ns, S},
    engine::{Event, Who},
    nemesis::Fault,
    world::World,
};

/// How many salts each candidate is tried with.
const SALTS: u64 = 32;
/// How many seconds the search lasts at most.
const LIMIT: u64 = 50;

/// A fault that took effect.
#[derive(Clone, Copy, Debug)]
pub struct Strike {
    pub at: Ns,
    pub who: Who,
    pub fault: Fault,
    /// The state of the random generator, which determines the details.
    pub state: u64,
}

/// Returns the world with the fewest strikes that was found, if any has a violation of the same kind.
pub fn smallest(seed: u64, first: &World) -> Option<World> {
    let (began, slack) = (tenure::clock::boot(), first.e.judge.longest);
    let run = |strikes: &[Strike], salt, until, told| {
        let mut world = World::new(seed, told, None);
        (world.states, world.salt) = (first.states.clone(), Some(salt));
        // A nanosecond early: the strike then comes after what else its instant was to bring.
        strikes.iter().for_each(|strike| world.e.at(strike.at.saturating_sub(1), Event::Again(*strike)));
        world.run(until);
        world
    };
    let fails = |strikes: Vec<Strike>, until| {
        let salts = (0..SALTS).take_while(|_| tenure::clock::boot().since(began).as_secs() < LIMIT);
        let (salt, world) =
            salts.map(|salt| (salt, run(&strikes, salt, until, false))).find(|(_, world)| kind(world) == kind(first))?;
        Some((strikes, salt, world.e.now))
    };
    let Some((mut left, mut salt, mut end)) = fails(first.strikes.clone(), first.e.now + slack) else {
        eprintln!("SEED={seed}: the same strikes lead to no such violation again");
        return None;
    };
    let mut size = left.len();
    while size > 0 {
        let mut shrinks = false;
        for from in (0..left.len()).step_by(size).rev() {
            let fewer = [&left[..from], &left[left.len().min(from + size)..]].concat();
            let gap = left[from].at - from.checked_sub(1).map_or(0, |last| left[last].at);
            let sooner = |part| {
                let strikes = left.iter().enumerate();
                strikes.map(|(index, one)| Strike { at: one.at - if index < from { 0 } else { gap / part }, ..*one }).collect()
            };
            let mut parts = [2, 4, 8].into_iter().filter(|_| size == 1 && gap > S);
            if let Some(found) = fails(fewer, end + slack).or_else(|| parts.find_map(|part| fails(sooner(part), end))) {
                (left, salt, end) = found;
                shrinks = true;
            }
        }
        // Single ones again, until nothing shrinks.
        if size > 1 || !shrinks {
            size /= 2;
        }
    }
    eprintln!("SEED={seed}: {} of {} strikes are left, with salt {salt}", left.len(), first.strikes.len());
    Some(run(&left, salt, end, true))
}

/// The words of the violation without names and numbers.
fn kind(world: &World) -> Option<Vec<&str>> {
    let words = world.e.judge.verdict()?.split_whitespace();
    Some(words.filter(|word| !word.contains(|letter: char| letter.is_ascii_digit())).collect())
}
