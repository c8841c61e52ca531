//! What a command line that cannot be parsed was probably meant to be.

use std::ffi::{OsStr, OsString};

use clap::{CommandFactory as _, Parser as _};

use super::{Line, quick, refused::Intent};

/// A tip for who wrote this line, which was to run a workload unless its first word is the name of a command.
pub(super) fn of(line: &[OsString], intent: Intent) -> Option<String> {
    if let Some(line) = with_its_command_first(line) {
        return Some(format!("write the command first, as in: {line}"));
    }
    let word = line.get(1).map(OsString::as_os_str).and_then(OsStr::to_str);
    let nearest = word.filter(|word| intent == Intent::Run && *word != "run").and_then(nearest_command)?;
    Some(format!("there is a command `{nearest}`"))
}

/// The same line, for people, with its command moved to the front if options come before it.
fn with_its_command_first(line: &[OsString]) -> Option<String> {
    if !line.get(1)?.as_encoded_bytes().starts_with(b"-") {
        return None;
    }
    let names = names();
    let is_command = |word: &OsString| names.iter().any(|name| word == name.as_str());
    // What parses as a line by itself has a value for each option, so the next word is not one.
    let at = (2..line.len()).find(|at| is_command(&line[*at]) && quick::parse(&line[..*at]).is_some())?;
    let (options, command) = line[1..].split_at(at - 1);
    let end = command.iter().position(|word| word == "--").unwrap_or(command.len());
    let (command, workload) = command.split_at(end);
    let meant: Vec<&OsString> = line.first().into_iter().chain(command).chain(options).chain(workload).collect();
    Line::try_parse_from(&meant).ok()?;
    let words = meant.iter().skip(1).map(|word| written(&word.to_string_lossy()));
    Some(std::iter::once("tenure".to_owned()).chain(words).collect::<Vec<_>>().join(" "))
}

/// A word as it would be typed.
fn written(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@%+".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) { word.into() } else { format!("{word:?}") }
}

/// The command that this word was probably meant to be.
fn nearest_command(word: &str) -> Option<String> {
    let names = names().into_iter().map(|name| (strsim::osa_distance(&name, word), name));
    names.filter(|(far, _)| *far <= word.chars().count() / 3).min().map(|(_, name)| name)
}

/// What people may call.
fn names() -> Vec<String> {
    let line = Line::command();
    line.get_subcommands().filter(|face| !face.is_hide_set()).map(|face| face.get_name().to_owned()).collect()
}
