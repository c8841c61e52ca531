//! A test's own directory for its files: new for every test, and removed after it, failed or not.

#![allow(dead_code, reason = "each test binary has its own copy, and uses a part of it")]

use std::{
    fs,
    ops::Deref,
    path::{Path, PathBuf},
};

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
