//! Which face am I: init, elector, a command? Then hand over.

use std::process::ExitCode;

use tenure::{
    cli::{self, Face},
    commands, elector, init,
    process::signals,
    stderr::write_termination_message,
};

#[expect(unsafe_code, reason = "nothing else runs early enough to keep the signals that arrive before main")]
#[used]
// SAFETY: the C library calls it before main, with arguments that it ignores, and it needs nothing of the runtime that is not
// there yet.
#[unsafe(link_section = ".init_array")]
static FIRST: extern "C" fn() = signals::block_first;

fn main() -> ExitCode {
    ExitCode::from(match cli::parse(std::env::args_os()) {
        Ok(Face::Run(run)) => init::start(&run),
        Ok(Face::Elector) => elector::run(),
        Ok(Face::Command(command)) => {
            signals::restore();
            commands::run(&command)
        }
        Err(refused) => {
            signals::restore();
            if refused.is_of_run() {
                write_termination_message(&refused.to_string());
            }
            refused.report()
        }
    })
}
