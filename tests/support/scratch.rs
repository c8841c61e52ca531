//! A test's own directory for its files: new for every test, and removed after it unless it fails.

use std::{
    fs,
    ops::Deref,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    thread,
};

use nix::sys::stat::Mode;

/// A directory, removed together with its content unless its test fails.
pub struct Scratch(PathBuf);

impl Scratch {
    /// A new one in the temporary directory.
    #[allow(clippy::new_without_default, reason = "it makes a directory")]
    pub fn new() -> Self {
        Self::at(std::env::temp_dir().join(format!("tenure-test-{:016x}", getrandom::u64().expect("randomness"))))
    }

    /// A new one with this path.
    pub fn at(path: PathBuf) -> Self {
        fs::create_dir(&path).expect("a new directory");
        Self(path)
    }

    /// Creates a file in it with this content; returns its path as a command-line argument.
    pub fn file(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        let path = self.join(name);
        fs::write(&path, content).expect("a file");
        path.to_str().expect("a path that is text").to_owned()
    }

    /// Creates a FIFO in it; returns its path.
    pub fn fifo(&self, name: &str) -> PathBuf {
        let path = self.join(name);
        nix::unistd::mkfifo(&path, Mode::S_IRUSR | Mode::S_IWUSR).expect("a FIFO");
        path
    }
}

/// This FIFO, opened for writing; none as long as nobody reads it.
pub fn open_for_reader(fifo: &Path) -> Option<fs::File> {
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
        if thread::panicking() {
            eprintln!("what it left behind: {}", self.0.display());
        } else {
            let _ = fs::remove_dir_all(&self.0);
        }
    }
}
