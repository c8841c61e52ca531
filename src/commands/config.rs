//! `tenure config`: what can be configured, and what is.

use crate::{cli::Config as About, config, console};

pub(super) fn run(about: &About) -> u8 {
    match about {
        About::Schema => console::answer(&config::schema(), 0),
        About::Default => console::answer(config::DEFAULTS, 0),
        About::Effective(run) => match config::load(&run.settings, &run.command, config::Purpose::Inspect) {
            Ok(loaded) => {
                super::warn(&loaded.notes);
                console::answer(&loaded.effective(), 0)
            }
            Err(invalid) => super::refuse(&invalid),
        },
    }
}
