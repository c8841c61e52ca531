//! A copy of the repository in which mutants are built, so that the working tree stays untouched.

use std::{
    collections::BTreeMap,
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{list, weave::Woven};

/// Added to the product's `src/lib.rs`.
const MUTANT: &str = r#"
/// The mutant that runs; 0 is none.
#[must_use]
pub fn mutant() -> usize {
    static NUMBER: std::sync::LazyLock<usize> =
        std::sync::LazyLock::new(|| std::env::var("TENURE_MUTANT").ok().and_then(|text| text.parse().ok()).unwrap_or(0));
    *NUMBER
}
"#;

/// Where the copy and its build output are.
pub(crate) struct Copy {
    tree: PathBuf,
    target: PathBuf,
}

impl Copy {
    /// Below this directory.
    pub(crate) fn within(top: &Path) -> Self {
        Self { tree: top.join("tree"), target: top.join("target") }
    }

    /// Where its build output is kept for the next run.
    pub(crate) fn kept() -> Self {
        let home = env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
        let cache = env::var_os("XDG_CACHE_HOME").map_or_else(|| home.join(".cache"), PathBuf::from);
        Self::within(&env::var_os("TENURE_MUTANTS").map_or_else(|| cache.join("tenure/mutants"), PathBuf::from))
    }

    /// Makes it the working tree's state of all files that git does not ignore, with these woven files. An unchanged file keeps its time, so that what depends on it is not rebuilt.
    pub(crate) fn make(&self, woven: &BTreeMap<PathBuf, Woven>) {
        let files = tracked(&list::root());
        for file in &files {
            match woven.get(file) {
                Some(Woven { text, .. }) => self.write(file, text.as_bytes()),
                None => self.write(file, &original(file)),
            }
        }
        for file in walk(&self.tree, Path::new("")) {
            if !files.contains(&file) {
                fs::remove_file(self.tree.join(file)).expect("a file of the copy can be removed");
            }
        }
    }

    /// Cargo, in the copy.
    pub(crate) fn cargo(&self) -> Command {
        // By its name, so that the toolchain is the one that the tree pins.
        let mut command = Command::new("cargo");
        command.current_dir(&self.tree).env("CARGO_TARGET_DIR", &self.target).env_remove("CARGO_MANIFEST_DIR");
        command
    }

    fn write(&self, file: &Path, text: &[u8]) {
        let path = self.tree.join(file);
        if fs::read(&path).is_ok_and(|old| old == text) {
            return;
        }
        fs::create_dir_all(path.parent().expect("it lies in the copy")).expect("a directory can be made");
        // Written, not copied: its time must be now, or cargo does not notice the change.
        fs::write(path, text).expect("a file of the copy can be written");
    }
}

/// The copy's text of this file, without mutants.
pub(crate) fn original(file: &Path) -> Vec<u8> {
    let mut text = fs::read(list::root().join(file)).expect("a file of the repository can be read");
    if file == Path::new("src/lib.rs") {
        text.extend(MUTANT.as_bytes());
    }
    text
}

/// The files that git does not ignore.
pub(crate) fn tracked(root: &Path) -> Vec<PathBuf> {
    let listed = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output()
        .expect("git runs");
    assert!(listed.status.success(), "git lists no files in {}", root.display());
    let names = String::from_utf8(listed.stdout).expect("names are text");
    names.split_terminator('\0').map(PathBuf::from).filter(|file| root.join(file).is_file()).collect()
}

fn walk(top: &Path, within: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(top.join(within)) else { return Vec::new() };
    let mut files = Vec::new();
    for entry in entries.filter_map(Result::ok) {
        let path = within.join(entry.file_name());
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            files.extend(walk(top, &path));
        } else {
            files.push(path);
        }
    }
    files
}
