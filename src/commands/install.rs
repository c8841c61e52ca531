//! `tenure install`: this program as a file on a volume, for containers whose image does not have it (deploy/components/inject).

use std::{fs, io, path::Path};

use super::Ended;
use crate::{cli, console::refuse, exit, words::one_line};

pub(super) fn run(asked: &cli::Install) -> Ended {
    let refused = |error| refuse(exit::INTERNAL, &format!("{}: {}", asked.file.display(), one_line(&error)));
    install(&asked.file).map_or_else(|error| Err(refused(error)), |()| Ok(0))
}

/// Nobody ever runs a part of it, and a copy that runs already is replaced, not written to.
fn install(file: &Path) -> io::Result<()> {
    let part = file.with_added_extension("part");
    fs::copy("/proc/self/exe", &part)?;
    fs::rename(part, file)
}
