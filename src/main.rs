//! Which face am I: init, elector, a command? Then hand over.

use std::process::ExitCode;

use tenure::{
    api::{AccessError, Cluster},
    cli::{self, Face, Run},
    commands,
    config::{self, Config, Purpose},
    elector, exit, init,
    process::signals,
    stderr::{Lines, leave},
    telemetry,
    words::one_line,
};

#[allow(unsafe_code, reason = "nothing else runs early enough to keep the signals that arrive before main")]
#[used]
// SAFETY: the C library calls it before main as a function without parameters that it looks at, and it needs nothing of the
// runtime that is not there yet.
#[unsafe(link_section = ".init_array")]
static FIRST: extern "C" fn() = signals::block_first;

fn main() -> ExitCode {
    ExitCode::from(match cli::parse(std::env::args_os()) {
        Ok(Face::Run(run)) => start(&run),
        Ok(Face::Elector) => elector::run(),
        Ok(Face::Command(command)) => {
            signals::restore();
            commands::run(&command)
        }
        Err(refused) => {
            if refused.is_of_run() {
                leave(&refused.to_string());
            }
            refused.report()
        }
    })
}

/// Hands over to init what it needs to know, which is all that is ever read; the exit code.
fn start(run: &Run) -> u8 {
    match config::load(&run.settings, &run.command, Purpose::Run) {
        Ok(loaded) => {
            if !loaded.notes.is_empty() {
                telemetry::log::start(&loaded.config.log);
            }
            for note in loaded.notes {
                tracing::warn!("{note}");
            }
            let log = loaded.config.log.clone();
            match located(loaded.config) {
                Ok(config) => init::run(config),
                Err(error) => {
                    telemetry::log::start(&log);
                    tracing::error!("{}", one_line(&error));
                    leave(&format!("tenure: {}\n", one_line(&error)));
                    error.exit_code()
                }
            }
        }
        Err(invalid) => {
            last_words(&format!("tenure: {invalid}\n"));
            exit::INVALID
        }
    }
}

/// The configuration with the Lease's namespace in it, which the workload is told too: a setting's, or the surroundings'.
fn located(mut config: Config) -> Result<Config, AccessError> {
    if config.lease.enabled && config.lease.namespace.is_empty() {
        config.lease.namespace = Cluster::discover(false)?.namespace().into();
    }
    Ok(config)
}

/// To standard error, and to where kubelet looks. Waits for neither: nobody may read them.
fn last_words(words: &str) {
    Lines::new().write(words.as_bytes(), |_| String::new());
    leave(words);
}
