//! `tenure config`: what can be configured, and what is.

use crate::{cli::ConfigCommand, console, loading};

pub(super) fn run(about: &ConfigCommand) -> u8 {
    match about {
        ConfigCommand::Schema => console::answer(&loading::schema(), 0),
        ConfigCommand::Default => console::answer(loading::DEFAULTS, 0),
        ConfigCommand::Effective(run) => match loading::load(&run.flags, &run.command, loading::Purpose::Inspect) {
            Ok(loaded) => {
                super::warn(&loaded.notes);
                console::answer(&loaded.effective(true), 0)
            }
            Err(invalid) => super::refuse(&invalid),
        },
    }
}
