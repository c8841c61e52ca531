//! Init's turn in random worlds of its own: a kernel with fuses, processes that ignore signals or do not die, an elector that lies,
//! hangs and breaks its link, the term's page and signals to init.
//!
//! The judge knows the law alone. It says which step is wrong when it is taken, whoever else runs.
//!
//! `TURNS` sets how many worlds run, and `SEED` the first of them.

use std::time::Duration;

use tenure::{
    config::{Acknowledge, Config, Hook, OnExit, Preset, Runs, Signal},
    supervision::Turn,
};
use tenure_world::{agent, number};

use self::{judge::Judge, kernel::Kernel, nemesis::Nemesis};

mod judge;
mod kernel;
mod nemesis;

/// Worlds.
const WORLDS: u64 = 1_000;
/// Turns of one world.
const TURNS: u32 = 120;

/// What differs between worlds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Kind {
    #[default]
    Leading,
    /// The leader's address is published.
    Published,
    /// Hooks run around the leader.
    Hooked,
    /// A standby is told its role.
    Always,
    /// A standby is frozen.
    Frozen,
}

fn config(kind: Kind) -> Config {
    let mut config = Config::default();
    config.workload.command = vec!["work".into()];
    config.workload.on_exit = OnExit::Follow;
    match kind {
        Kind::Leading => {}
        Kind::Published => config.service.endpoint_slice = Some("leader".into()),
        Kind::Hooked => {
            let hook = || Hook { command: vec!["hook".into()], timeout: Duration::from_secs(6), ..Hook::default() };
            config.hooks.before_lead = hook();
            config.hooks.before_follow = hook();
            config.hooks.after_follow = hook();
        }
        Kind::Always => {
            (config.workload.runs, config.workload.acknowledge) = (Runs::Always, Some(Acknowledge::Notify));
            (config.signals.on_lead, config.signals.on_follow) = (Some(Signal(libc::SIGUSR1)), Some(Signal(libc::SIGUSR2)));
        }
        Kind::Frozen => config.workload.runs = Runs::Frozen,
    }
    config
}

/// Runs one world; an error is what the judge found, and what happened before.
fn run(seed: u64) -> Result<(), String> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let kinds = [Kind::Leading, Kind::Published, Kind::Hooked, Kind::Always, Kind::Frozen];
    let kind = rng.choice(kinds).unwrap_or_default();
    let config = config(kind);
    let judge = Judge::new(kind, &config);
    let mut kernel = Kernel::new(rng.fork(), judge);
    let mut nemesis = Nemesis::new(rng);
    let mut turn = Turn::new(agent(&config, &Preset::Run, "me"), 0);
    for _ in 0..TURNS {
        nemesis.acts(kind, &turn, &mut kernel);
        let began = kernel.now;
        kernel.judge.begins(began);
        turn.run(&mut kernel);
        let (now, leads) = (kernel.now, turn.agent().leads());
        // The kernel kills everything with PID 1.
        if turn.over().is_none() {
            kernel.judge.ends(began, now, leads, turn.agent().hard(), turn.due(now));
        }
        if let Some(wrong) = &kernel.judge.wrong {
            return Err(format!("seed {seed}, {kind:?}: {wrong}\n{}", kernel.judge.story.join("\n")));
        }
        if turn.over().is_some() {
            break;
        }
    }
    Ok(())
}

#[test]
fn no_step_of_a_turn_is_against_the_law() {
    let first = number("SEED").unwrap_or(0);
    for seed in first..first + number("TURNS").unwrap_or(WORLDS) {
        if let Err(wrong) = run(seed) {
            panic!("{wrong}");
        }
    }
}
