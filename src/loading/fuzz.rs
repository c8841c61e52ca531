//! The way of a configuration for the fuzz targets.

use super::{
    Invalid, Loaded, Purpose,
    load::merge,
    sources::{self, Layer},
};
use crate::cli::ConfigFlags;

/// Reads the configuration of a file of this text and of these variables.
pub(crate) fn load_text(text: &str, variables: &[(&str, &str)]) -> Result<Loaded, Invalid> {
    let variables: Vec<_> = variables.iter().map(|(name, value)| (name.into(), value.into())).collect();
    let layers = [sources::text_of("fuzz".into(), text), sources::environment(&variables), Layer::default()];
    merge(layers, &ConfigFlags::default(), Purpose::Inspect, &variables)
}
