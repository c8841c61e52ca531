//! Generates completions and manual pages from the command line.

use std::io;

use clap::{Arg, Command, CommandFactory as _};
use clap_complete::Shell;

use super::Line;

/// The script by which a shell completes what is typed after `tenure`.
pub fn completions(shell: Shell) -> Vec<u8> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut offered(&Line::command()), "tenure", &mut script);
    script
}

/// tenure, and each of its commands that people may see, under its full name.
pub fn faces() -> Vec<Command> {
    fn add(face: &Command, faces: &mut Vec<Command>) {
        faces.push(face.clone());
        for part in face.get_subcommands().filter(|part| !part.is_hide_set() && part.get_name() != "help") {
            add(part, faces);
        }
    }
    let mut faces = Vec::new();
    add(&command(), &mut faces);
    faces
}

/// The name of a command's manual page, such as tenure-config-schema.
pub fn title(face: &Command) -> String {
    face.get_bin_name().unwrap_or("tenure").replace(' ', "-")
}

/// The page itself.
///
/// # Errors
/// None that a vector has.
pub fn page(face: &Command) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    let mut shown = face.clone().disable_help_subcommand(true);
    // Man would leave out the -- before a command.
    if shown.get_positionals().any(Arg::is_last_set) {
        let usage = shown.render_usage().to_string();
        shown = shown.override_usage(usage.trim_start_matches("Usage: ").to_owned());
    }
    clap_mangen::Man::new(shown).title(title(face)).source(concat!("tenure ", env!("CARGO_PKG_VERSION"))).render(&mut text)?;
    Ok(text)
}

/// The command without what is hidden, which scripts would offer.
fn offered(command: &Command) -> Command {
    let parts = command.get_subcommands().filter(|part| !part.is_hide_set()).map(offered);
    // A name has to be there as long as the process, which prints a script and ends.
    Command::new(&*command.get_name().to_owned().leak())
        .about(command.get_about().cloned().unwrap_or_default())
        .version(command.get_version().map_or("", |_| env!("CARGO_PKG_VERSION")))
        .disable_version_flag(command.get_version().is_none())
        .args(command.get_arguments().filter(|arg| !arg.is_hide_set()))
        .subcommands(parts)
}

fn command() -> Command {
    let mut command = Line::command();
    command.build();
    command
}
