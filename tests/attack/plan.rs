//! The nemesis's plan, drawn from a seed before it begins: the same seed gives the same plan.

use std::{collections::VecDeque, path::Path, time::Duration};

use fastrand::Rng;
use serde_json::{Value, json};
use support::Behaviour;

use crate::fault::{Fault, Group};

/// A fault of a round, with its target and times.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Blow {
    pub(crate) fault: Fault,
    /// Which replica: 0 is the leader, those from 1 on are the others.
    pub(crate) whom: usize,
    /// Time since the beginning of the round.
    pub(crate) after: Duration,
    pub(crate) lasts: Duration,
    /// A random number for all further choices.
    pub(crate) chance: u64,
}

/// The plan from one moment at which somebody leads to the next.
#[derive(Clone, Debug)]
pub(crate) struct Round {
    /// How long nothing happens at the beginning.
    pub(crate) calm: Duration,
    pub(crate) blows: Vec<Blow>,
    /// How long nothing happens at the end, so that the consequences show.
    pub(crate) aftermath: Duration,
}

/// Endless rounds. Every kind of fault comes up before any comes again.
pub(crate) struct Plan {
    chance: Rng,
    replicas: usize,
    deck: VecDeque<Fault>,
}

impl Plan {
    pub(crate) fn new(seed: u64, replicas: u8) -> Self {
        Self { chance: Rng::with_seed(seed), replicas: replicas.into(), deck: VecDeque::new() }
    }

    /// Draws one fault, and in every third round another one from a different group.
    pub(crate) fn next(&mut self) -> Round {
        let calm = between(&mut self.chance, Duration::ZERO, Duration::from_millis(1_500));
        let aftermath = between(&mut self.chance, Duration::from_millis(500), Duration::from_millis(1_500));
        let first = self.draw(|_| true);
        let mut blows = vec![self.blow(first, Duration::ZERO)];
        if self.chance.u8(..3) == 0 {
            let second = self.draw(|fault| fault.group() != first.group());
            let after = between(&mut self.chance, Duration::ZERO, Duration::from_millis(3_000));
            blows.push(self.blow(second, after));
        }
        Round { calm, blows, aftermath }
    }

    fn draw(&mut self, suits: impl Fn(Fault) -> bool) -> Fault {
        loop {
            if let Some(place) = self.deck.iter().position(|fault| suits(*fault))
                && let Some(fault) = self.deck.remove(place)
            {
                return fault;
            }
            let mut faults = Fault::all();
            self.chance.shuffle(&mut faults);
            self.deck.extend(faults);
        }
    }

    fn blow(&mut self, fault: Fault, after: Duration) -> Blow {
        let (least, most) = fault.lasts();
        let of_leader = matches!(fault.group(), Group::Lease | Group::Server) || self.chance.u8(..5) > 0;
        let whom = if of_leader { 0 } else { self.chance.usize(1..self.replicas) };
        Blow { fault, whom, after, lasts: between(&mut self.chance, least, most), chance: self.chance.u64(..) }
    }
}

/// How the workload of one replica behaves.
pub(crate) fn behaviour(seed: u64) -> Behaviour {
    let mut chance = Rng::with_seed(seed);
    // At once, soon, later than any grace period, never.
    let linger = [Some(0), Some(100), Some(2_500), None][chance.usize(..4)].map(Duration::from_millis);
    Behaviour { linger, daemon: chance.bool(), lock: true, bomb: chance.u8(..4) == 0, ..Behaviour::default() }
}

/// Output of a hook of [`surroundings`].
pub(crate) const LEFT: &str = "left a daemon";

/// Settings of a replica with this [`behaviour`]: hooks that leave a daemon behind, which stamps as the workload does, and, unless it is frozen, a probe that fails
/// while any process of its container is stopped.
pub(crate) fn surroundings(seed: u64, directory: &Path, name: &str, is_frozen: bool) -> Vec<(&'static str, Value)> {
    let mut chance = Rng::with_seed(seed.rotate_left(32));
    let daemon = Behaviour::stubborn().command(directory, name);
    let script = format!("setsid --fork \"$@\" && echo {LEFT}");
    let line: Vec<_> = ["sh", "-c", &script, "sh"].map(str::to_owned).into_iter().chain(daemon).collect();
    let mut settings = Vec::new();
    for hook in ["hooks.afterLead", "hooks.beforeFollow"] {
        if chance.bool() {
            settings.push((hook, json!({ "command": line, "onFailure": "ignore", "timeout": "300ms" })));
        }
    }
    if !is_frozen {
        let command = ["sh", "-c", "! grep -qs '^State:.T' /proc/[0-9]*/status"];
        settings.push(("workload.liveness", json!({ "exec": { "command": command }, "period": "300ms", "failureThreshold": 2 })));
    }
    settings
}

/// The duration and the drift of one replica, in a world where they differ.
pub(crate) fn deadlines(seed: u64) -> (&'static str, &'static str) {
    let mut chance = Rng::with_seed(seed);
    (["4s", "5s"][chance.usize(..2)], ["1%", "3%"][chance.usize(..2)])
}

fn between(chance: &mut Rng, least: Duration, most: Duration) -> Duration {
    let millis = |span: Duration| u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
    Duration::from_millis(chance.u64(millis(least)..=millis(most)))
}
