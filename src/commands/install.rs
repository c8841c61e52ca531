//! `tenure install`: this program as a file on a volume, for containers whose image does not have it (deploy/components/inject).

use std::{fs, io, path::Path, process};

use super::Ended;
use crate::{cli, console::refuse, exit, words::one_line};

pub(super) fn run(asked: &cli::Install) -> Ended {
    let file = &asked.file;
    let refused = |code, why: &str| Err(refuse(code, &format!("{}: {why}", file.display())));
    // That a directory cannot be replaced, the kernel says.
    if fs::symlink_metadata(file).is_ok_and(|there| !(there.is_file() || there.is_symlink() || there.is_dir())) {
        return refused(exit::INVALID, "is neither a regular file nor a symbolic link, and is left as it is: name another file");
    }
    install(file).map_or_else(|error| refused(exit::INTERNAL, &one_line(&error)), |()| Ok(0))
}

/// Nobody ever runs a part of it, and a copy that runs already is replaced, not written to. Each call fills a file of its own: others
/// may install at the same time.
fn install(file: &Path) -> io::Result<()> {
    let part = file.with_added_extension(format!("{}-{:016x}.part", process::id(), fastrand::u64(..)));
    let (mut program, mut copy) = (fs::File::open("/proc/self/exe")?, fs::File::create_new(&part)?);
    let filled = io::copy(&mut program, &mut copy).and_then(|_| copy.set_permissions(program.metadata()?.permissions()));
    // Nobody can run a file that is open for writing.
    drop(copy);
    filled.and_then(|()| fs::rename(&part, file)).inspect_err(|_| drop(fs::remove_file(&part)))
}
