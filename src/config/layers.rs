//! Where values come from: flags over the environment over the file over the defaults.

use figment::{Figment, providers::Serialized};

use super::Config;
use crate::cli::Settings;

/// A configuration that every room may rely on.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The values.
    pub config: Config,
    /// What is odd in it, one line each.
    pub notes: Vec<String>,
}

/// A configuration that is refused, with everything that is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", .problems.join("\n"))]
pub struct Invalid {
    /// One line each: where it stands, what is wrong, the remedy.
    pub problems: Vec<String>,
}

/// Reads the configuration of this process: defaults, file, environment, flags.
///
/// # Errors
/// Everything that is wrong with it, at once.
pub fn load(settings: &Settings, command: &[String]) -> Result<Loaded, Invalid> {
    let mut layers = Figment::new().merge(Serialized::default("workload.command", command));
    for (key, value) in [
        ("lease.name", &settings.lease),
        ("lease.namespace", &settings.namespace),
        ("lease.identity", &settings.identity),
        ("lease.duration", &settings.lease_duration),
        ("log.level", &settings.log_level),
        ("log.format", &settings.log_format),
    ] {
        if let Some(value) = value {
            layers = layers.merge(Serialized::default(key, value));
        }
    }
    if let Some(election) = &settings.leader_election {
        layers = layers.merge(Serialized::default("lease.enabled", election == "on"));
    }
    let config = layers.extract().map_err(|error| Invalid { problems: vec![error.to_string()] })?;
    Ok(Loaded { config, notes: Vec::new() })
}
