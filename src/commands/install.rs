//! `tenure install`: this program as a file on a volume, for containers whose image does not have it (deploy/components/inject).

use std::{fs, io, path::Path};

use crate::{cli, console::complain, exit, words::one_line};

pub(super) fn run(asked: &cli::Install) -> u8 {
    match install(&asked.file) {
        Ok(()) => 0,
        Err(error) => {
            complain(&format!("{}: {}", asked.file.display(), one_line(&error)));
            exit::INTERNAL
        }
    }
}

/// Nobody ever runs a part of it, and a copy that runs already is replaced, not written to.
fn install(file: &Path) -> io::Result<()> {
    let part = file.with_added_extension("part");
    fs::copy("/proc/self/exe", &part)?;
    fs::rename(part, file)
}
