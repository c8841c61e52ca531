//! The demo's workload: it stamps the time into a file of its own for as long as it is alive.
//!
//! Owns the writing and reading of the stamps. A stamp is there as soon as it is written, so the file proves when a process was
//! alive, whatever ended it.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::FileExt as _,
    path::Path,
    time::Duration,
};

use crate::{clock, console::refuse, exit, time::Instant};

/// Between two stamps.
const BEAT: Duration = Duration::from_millis(1);

/// The life of a workload process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) replica: String,
    /// TENURE_FENCING_TOKEN of its term.
    pub(super) token: u64,
    /// Its first stamp.
    pub(super) first: Instant,
    /// Its last so far.
    pub(super) last: Instant,
}

/// Stamps until a signal ends it; returns the exit code if it cannot.
pub(super) fn run(directory: &Path, name: &str) -> u8 {
    let Err(error) = stamp(directory, name);
    refuse(exit::INTERNAL, &format!("the demo's workload cannot stamp: {error}"))
}

fn stamp(directory: &Path, name: &str) -> io::Result<std::convert::Infallible> {
    let token = std::env::var("TENURE_FENCING_TOKEN").unwrap_or_default();
    let file = File::create_new(directory.join(format!("{name}@{token}@{}", clock::boot().as_nanos())))?;
    write(&file, 0)?;
    loop {
        write(&file, 8)?;
        std::thread::sleep(BEAT);
    }
}

fn write(file: &File, offset: u64) -> io::Result<()> {
    file.write_all_at(&clock::boot().as_nanos().to_le_bytes(), offset)
}

/// Every run so far, in the order of their first stamps.
///
/// # Errors
/// The directory cannot be read.
pub(super) fn runs(directory: &Path) -> io::Result<Vec<Run>> {
    let mut runs = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let mut words = name.split('@');
        let (Some(replica), Some(token)) = (words.next(), words.next()) else { continue };
        let bytes = fs::read(entry.path())?;
        let at = |offset: usize| {
            let stamp = bytes.get(offset..offset + 8)?.try_into().ok()?;
            Some(Instant::from_nanos(u64::from_le_bytes(stamp)))
        };
        // Killed before its first stamp: it never did anything.
        let Some(first) = at(0) else { continue };
        let token = token.parse().unwrap_or_default();
        runs.push(Run { replica: replica.to_owned(), token, first, last: at(8).unwrap_or(first) });
    }
    runs.sort_by_key(|run| run.first);
    Ok(runs)
}
