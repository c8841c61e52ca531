//! Commands for people: one room each.
//!
//! Owns what they say and their exit codes. Never init or elector of a replica: `promote` and `demote` run as its hooks,
//! `held` in its workload.

use std::io;

use tokio::runtime::Builder;

use crate::{
    cli::{Command, ConfigFlags},
    console::{complain, refuse},
    exit,
    loading::{self, Loaded, Purpose},
};

mod access;
mod check;
mod config;
mod demo;
mod dev_server;
mod held;
mod inject;
mod install;
mod interrupts;
mod manual;
mod prune;
mod seen;
mod status;
mod steer;
mod table;
mod transaction;
mod witness;

/// The exit code of a command. An error is that of one that could not begin its work, and has said why.
type Ended = Result<u8, u8>;

/// Runs a command, and returns its exit code.
pub fn run(command: &Command) -> u8 {
    let ended = match command {
        Command::Config { about } => config::run(about),
        Command::Check(arguments) => check::run(arguments),
        Command::Status(arguments) => status::run(arguments),
        Command::Prune(arguments) => prune::run(arguments),
        Command::Apply(asked) => transaction::apply(asked),
        Command::Recover(asked) => transaction::recover(asked),
        Command::Promote(asked) => transaction::promote(asked),
        Command::Demote(asked) => transaction::demote(asked),
        Command::StepDown(asked) => steer::step_down(asked),
        Command::ConfirmDead(asked) => steer::confirm_dead(asked),
        Command::Witness(asked) => witness::run(asked),
        Command::Pause(asked) => steer::pause(asked, true),
        Command::Resume(asked) => steer::pause(asked, false),
        Command::Held(arguments) => held::run(arguments),
        Command::Inject(asked) => inject::run(asked),
        Command::Install(arguments) => install::run(arguments),
        Command::DevServer(about) => dev_server::run(about),
        Command::Demo { picture, part } => Ok(demo::run(picture.as_deref(), part.as_ref())),
        Command::Completions { shell } => Ok(manual::completions(*shell)),
        Command::Man { command } => Ok(manual::page(command)),
    };
    ended.unwrap_or_else(|code| code)
}

/// Runs `work` on a current-thread runtime, and does not wait for what it left behind, such as a name server's answer.
///
/// # Errors
/// The runtime cannot be built; nothing was done.
fn block_on<T>(work: impl Future<Output = T>) -> io::Result<T> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let done = runtime.block_on(work);
    runtime.shutdown_background();
    Ok(done)
}

/// Prints the warnings about a valid configuration.
fn warn(notes: &[String]) {
    for note in notes {
        complain(note);
    }
}

/// Reads the configuration. If it is refused, says why.
fn load(flags: &ConfigFlags, command: &[String], purpose: Purpose) -> Result<Loaded, u8> {
    loading::load(flags, command, purpose).map_err(|invalid| refuse(exit::INVALID, &invalid.to_string()))
}
