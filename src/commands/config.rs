//! `tenure config`: what can be configured, and what is.

use crate::{cli::ConfigCommand, config, console};

pub(super) fn run(about: &ConfigCommand) -> u8 {
    match about {
        ConfigCommand::Schema => console::answer(&config::schema(), 0),
        ConfigCommand::Default => console::answer(config::DEFAULTS, 0),
        ConfigCommand::Effective(run) => match config::load(&run.flags, &run.command, config::Purpose::Inspect) {
            Ok(loaded) => {
                super::warn(&loaded.notes);
                console::answer(&loaded.effective(), 0)
            }
            Err(invalid) => super::refuse(&invalid),
        },
    }
}
