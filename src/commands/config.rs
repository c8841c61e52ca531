//! `tenure config`: what can be configured, and what is.

use super::Ended;
use crate::{cli::ConfigCommand, console::answer, loading};

pub(super) fn run(about: &ConfigCommand) -> Ended {
    Ok(match about {
        ConfigCommand::Schema => answer(&loading::schema(), 0),
        ConfigCommand::Default => answer(loading::DEFAULTS, 0),
        ConfigCommand::Effective(run) => {
            let loaded = super::load(&run.flags, &run.command, loading::Purpose::Inspect)?;
            super::warn(&loaded.notes);
            answer(&loaded.effective(true), 0)
        }
    })
}
