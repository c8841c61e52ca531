//! One configuration in several hands.

use std::{fmt, ops::Deref, sync::Arc};

use super::Config;

/// A configuration that nobody changes any more. `Debug` prints none of it: commands and variables may hold secrets.
#[derive(Clone)]
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

impl fmt::Debug for SharedConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SharedConfig")
    }
}
