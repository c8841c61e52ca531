//! A test's own directory for its files: new for every test, and removed after it, failed or not.

#![allow(dead_code, reason = "each test binary has its own copy, and uses a part of it")]

use std::{
    fs,
    ops::Deref,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use nix::sys::stat::Mode;

/// A directory, removed together with its content.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new() -> Self {
        let path = std::env::temp_dir().join(format!("tenure-test-{:016x}", getrandom::u64().expect("randomness")));
        fs::create_dir(&path).expect("a new directory");
        Self(path)
    }

    /// Creates a file in it with this content; returns its path as a command-line argument.
    pub(crate) fn file(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        let path = self.join(name);
        fs::write(&path, content).expect("a file");
        path.to_str().expect("a path that is text").to_owned()
    }

    /// Creates a FIFO in it; returns its path.
    pub(crate) fn fifo(&self, name: &str) -> PathBuf {
        let path = self.join(name);
        nix::unistd::mkfifo(&path, Mode::S_IRUSR | Mode::S_IWUSR).expect("a FIFO");
        path
    }
}

/// This FIFO, opened for writing; none as long as nobody reads it.
pub(crate) fn open_for_reader(fifo: &Path) -> Option<fs::File> {
    fs::OpenOptions::new().write(true).custom_flags(libc::O_NONBLOCK).open(fifo).ok()
}

impl Deref for Scratch {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}
