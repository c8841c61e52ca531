//! The world around the shipping machines, once for the simulation and for the model.
//!
//! Owns clocks, the engine of random runs, the register, the processes of a container, a client-go replica, and what judges both: the
//! law's monitor, and a reading of Leases that is none of the product's. Decides nothing that the product decides: a [`Scene`] and
//! the law, in [`lawful`], are told what happens. What the world leaves open, a [`Choice`] chooses: the simulation by random numbers
//! with a seed. The model explores every choice, so that its world leaves nothing open: whatever is not a fault happens exactly, and
//! takes no time. Its search knows each state that it was in, of which several schedules reach the same; a world that is run again
//! for each list of choices does not.

#![allow(clippy::expect_used, clippy::indexing_slicing, missing_docs, reason = "a test fails by panicking, and says why")]

pub mod client_go;
pub mod clock;
pub mod engine;
#[path = "../law/mod.rs"]
pub mod law;
pub mod lawful;
pub mod reading;
pub mod register;
mod scene;
pub mod tree;

pub use scene::{Child, Choice, Due, Observer, Scene, Who, Wrong};

use tenure::{
    config::{Config, LeaseConfig, Preset},
    election::obituary,
    slot::Slot,
    supervision::AgentConfig,
    time::Instant,
};

/// Init's agent of a replica: it is PID 1, and has no terminal.
pub fn agent(config: &Config, preset: &Preset, identity: &str) -> AgentConfig {
    let (config, preset, identity) = (config.clone().into(), preset.clone(), identity.to_owned());
    AgentConfig { config, preset, began: Instant::BOOT, identity, context: None, pid1: true, terminal: false }
}

/// The replica as its witness is told of it.
pub fn dependent(identity: &str, lease: &LeaseConfig) -> obituary::Replica {
    obituary::Replica {
        identity: identity.to_owned(),
        namespace: lease.namespace.clone(),
        leases: (0..lease.slots).map(Slot).map(register::name_of).collect(),
        attempt_timeout: lease.attempt_timeout,
        renew_period: lease.renew_period,
    }
}

/// The number in this variable of the environment, if it is set.
pub fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().expect("a number"))
}
