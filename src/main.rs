//! Which face am I: init, elector, a command? Then hand over.

use std::process::ExitCode;

use tenure::{cli, commands, config, elector, init};

fn main() -> ExitCode {
    ExitCode::from(match cli::parse(std::env::args_os()) {
        Ok(cli::Face::Run(run)) => match config::load(&run.settings, &run.command, config::Purpose::Run) {
            Ok(loaded) => {
                commands::warn(&loaded.notes);
                init::run(loaded.config)
            }
            Err(errors) => commands::refuse(&errors),
        },
        Ok(cli::Face::Elector) => elector::run(),
        Ok(cli::Face::Command(command)) => commands::run(&command),
        Err(refused) => refused.report(),
    })
}
