//! `tenure completions` and `tenure man`: what a release has as files, from the binary itself.

use clap_complete::Shell;

use crate::{
    cli::manual,
    console::{answer, printed, refuse},
    exit,
};

pub(super) fn completions(shell: Shell) -> u8 {
    print(&manual::completions(shell))
}

pub(super) fn page(command: &[String]) -> u8 {
    let title = ["tenure"].into_iter().chain(command.iter().map(String::as_str)).collect::<Vec<_>>().join("-");
    let faces = manual::faces();
    let Some(face) = faces.iter().find(|face| manual::title(face) == title) else {
        let titles: Vec<_> = faces.iter().map(manual::title).collect();
        return refuse(exit::INVALID, &format!("there is no page {title}; there are {}", titles.join(", ")));
    };
    manual::page(face).map_or_else(|error| printed(Err(error), 0), |text| print(&text))
}

fn print(text: &[u8]) -> u8 {
    answer(&String::from_utf8_lossy(text), 0)
}
