//! `tenure config`: what can be configured, and what is.

use crate::{cli::Config as About, config};

pub(super) fn run(about: &About) -> u8 {
    match about {
        About::Schema => super::say(&config::schema()),
        About::Default => super::say(config::DEFAULTS),
        About::Effective(run) => match config::load(&run.settings, &run.command, config::Purpose::Inspect) {
            Ok(loaded) => {
                super::warn(&loaded.notes);
                super::say(&loaded.effective());
            }
            Err(invalid) => return super::refuse(&invalid),
        },
    }
    0
}
