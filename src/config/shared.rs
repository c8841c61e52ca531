//! One configuration in several hands.

use std::{
    fmt,
    hash::{Hash, Hasher},
    ops::Deref,
    sync::Arc,
};

use super::{Config, Preset, Probe, ProbeHandler, Trigger};

/// A configuration that nobody changes any more. `Debug` prints none of it: commands and variables may hold secrets.
#[derive(Clone, Hash)]
pub struct SharedConfig(Arc<Config>);

impl From<Config> for SharedConfig {
    fn from(config: Config) -> Self {
        Self(Arc::new(config))
    }
}

impl Deref for SharedConfig {
    type Target = Config;

    fn deref(&self) -> &Config {
        &self.0
    }
}

/// Settings never change, so they make no difference between two states of a machine.
macro_rules! unhashed {
    ($($settings:ty),+) => {
        $(impl Hash for $settings {
            fn hash<H: Hasher>(&self, _: &mut H) {}
        })+
    };
}

unhashed!(Config, Preset, Probe, ProbeHandler, Trigger);

impl fmt::Debug for SharedConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SharedConfig")
    }
}
