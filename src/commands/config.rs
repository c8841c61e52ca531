//! `tenure config`: what can be configured, and what is.

use crate::{cli::Config as About, config};

pub(super) fn run(about: &About) -> u8 {
    match about {
        About::Schema | About::Default => super::complain("this build does not have that command"),
        About::Effective(run) => match config::load(&run.settings, &run.command) {
            Ok(loaded) => super::say(&format!("{:#?}\n", loaded.config)),
            Err(invalid) => return super::refuse(&invalid),
        },
    }
    0
}
