//! Finds the program of a command, before a Lease is acquired for it.
//!
//! Owns the search, and what the mode of a file tells. Never reads a file: whether the kernel can execute what is in it is execve's
//! word.

use std::{
    ffi::OsStr,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use nix::{
    errno::Errno,
    fcntl::{AT_FDCWD, AtFlags},
    unistd::{AccessFlags, faccessat},
};

use crate::exit;

/// Where execvp looks when there is no PATH.
const DEFAULT_PATH: &str = "/usr/local/bin:/bin:/usr/bin";

/// The program cannot be run: the exit code for it, and why.
pub type Unresolved = (u8, String);

/// The file that execvp would execute for `program` with this PATH (the child's, not necessarily ours).
///
/// # Errors
/// [`Unresolved`].
pub fn resolve(program: &str, path: Option<&OsStr>) -> Result<PathBuf, Unresolved> {
    if program.contains('/') {
        return check(PathBuf::from(program))
            .unwrap_or_else(|| Err((exit::NOT_FOUND, format!("{program}: not found{}", no_shell(program)))));
    }
    let path = path.unwrap_or_else(|| OsStr::new(DEFAULT_PATH));
    let mut denied = None;
    let directories = path.as_bytes().split(|byte| *byte == b':').map(|directory| Path::new(OsStr::from_bytes(directory)));
    for directory in directories {
        // An empty name is in no directory, and an empty directory is the current one.
        if program.is_empty() {
            break;
        }
        match check(Path::new(".").join(directory).join(program)) {
            Some(Ok(file)) => return Ok(file),
            Some(Err(error)) => denied = denied.or(Some(error)),
            None => {}
        }
    }
    let sought = path.to_string_lossy();
    Err(denied.unwrap_or_else(|| (exit::NOT_FOUND, format!("{program}: not found in PATH ({sought}){}", no_shell(program)))))
}

/// `None` if nothing is there.
fn check(file: PathBuf) -> Option<Result<PathBuf, Unresolved>> {
    let refuse = |why| Some(Err((exit::CANNOT_EXECUTE, format!("{}: {why}", file.display()))));
    match std::fs::metadata(&file) {
        Ok(found) if found.is_dir() => return refuse("is a directory"),
        Ok(found) if !found.is_file() => return refuse("is not a regular file"),
        Ok(_) => {}
        Err(error) => {
            let errno = Errno::from_raw(error.raw_os_error()?);
            let is_absent = matches!(errno, Errno::ENOENT | Errno::ENOTDIR);
            let denied = errno == Errno::EACCES;
            let why = if denied { "a directory on the way may not be searched" } else { errno.desc() };
            return if is_absent { None } else { refuse(why) };
        }
    }
    match faccessat(AT_FDCWD, &file, AccessFlags::X_OK, AtFlags::AT_EACCESS) {
        // Older seccomp profiles refuse faccessat2, which they do not know: execve decides.
        Ok(()) | Err(Errno::EPERM | Errno::ENOSYS) => Some(Ok(file)),
        Err(Errno::EACCES) => refuse("is not executable (its mode, or a noexec mount)"),
        Err(errno) => refuse(errno.desc()),
    }
}

/// A program whose name has blanks is most likely a line that was meant for a shell.
fn no_shell(program: &str) -> &'static str {
    if program.contains(char::is_whitespace) {
        ": no shell is started, so write each word for itself, or sh, -c and the line"
    } else {
        ""
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fails(program: &str, path: &str) -> (u8, String) {
        resolve(program, Some(path.as_ref())).expect_err("nothing to run")
    }

    #[test]
    fn the_first_executable_file_in_path_is_taken() {
        assert_eq!(resolve("sh", Some("/does/not/exist:/proc:/bin".as_ref())), Ok(PathBuf::from("/bin/sh")));
        assert_eq!(resolve("/bin/sh", Some("".as_ref())), Ok(PathBuf::from("/bin/sh")));
        assert!(resolve("sh", None).is_ok());
    }

    #[test]
    fn an_empty_directory_is_the_current_one() {
        // Tests run in the directory of Cargo.toml, which is there and not executable.
        assert_eq!(fails("Cargo.toml", "/bin::/usr/bin").0, 126);
    }

    #[test]
    fn what_is_not_there_is_127_and_says_where_it_was_sought() {
        assert_eq!(fails("no-such-program", "/bin:/usr/bin"), (127, "no-such-program: not found in PATH (/bin:/usr/bin)".into()));
        assert_eq!(fails("/no/such/program", "/bin"), (127, "/no/such/program: not found".into()));
        let line = "sleep 10 && echo: not found in PATH (/bin): no shell is started, so write each word for itself, or sh, -c and the line";
        assert_eq!(fails("sleep 10 && echo", "/bin"), (127, line.into()));
        assert_eq!(fails("", "/bin").0, 127);
    }

    #[test]
    fn what_cannot_be_executed_is_126_and_says_why() {
        assert_eq!(fails("self", "/proc"), (126, "/proc/self: is a directory".into()));
        assert_eq!(fails("/dev/null", ""), (126, "/dev/null: is not a regular file".into()));
        assert_eq!(fails("./Cargo.toml", ""), (126, "./Cargo.toml: is not executable (its mode, or a noexec mount)".into()));
        let long = format!("/bin/{}", "x".repeat(256));
        assert_eq!(fails(&long, ""), (126, format!("{long}: File name too long")));
    }

    #[test]
    fn an_executable_file_further_on_wins_over_a_denied_one() {
        assert_eq!(resolve("true", Some("/proc/self/fd:/etc:/bin".as_ref())), Ok(PathBuf::from("/bin/true")));
    }
}
