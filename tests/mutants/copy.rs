//! The copy of the tree that mutants are built in, outside of the repository, with a target directory that stays warm.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::list::{self, Mutant};

/// Where mutants are built: `TENURE_MUTANTS`, or in the user's cache.
#[derive(Debug)]
pub(crate) struct Copy {
    tree: PathBuf,
    target: PathBuf,
    output: PathBuf,
}

impl Copy {
    /// A copy of what git knows of the repository, the working tree's state. A file that is the same keeps its time, so that what
    /// depends on it is not built again.
    ///
    /// # Panics
    /// It cannot be made.
    pub(crate) fn make() -> Self {
        let home = env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
        let cache = env::var_os("XDG_CACHE_HOME").map_or_else(|| home.join(".cache"), PathBuf::from);
        let top = env::var_os("TENURE_MUTANTS").map_or_else(|| cache.join("tenure/mutants"), PathBuf::from);
        let copy = Self { tree: top.join("tree"), target: top.join("target"), output: top.join("output") };
        let files = tracked(&list::root());
        for file in &files {
            update(&list::root().join(file), &copy.tree.join(file));
        }
        for file in walk(&copy.tree, Path::new("")) {
            if !files.contains(&file) {
                fs::remove_file(copy.tree.join(file)).expect("a file of the copy can be removed");
            }
        }
        copy
    }

    /// A command in the copy.
    pub(crate) fn cargo(&self) -> Command {
        // By its name: the toolchain is the one that the tree pins.
        let mut command = Command::new("cargo");
        command.current_dir(&self.tree).env("CARGO_TARGET_DIR", &self.target);
        command
    }

    /// Where the output of a command is kept.
    pub(crate) fn output(&self) -> &Path {
        &self.output
    }

    /// Puts the mutant in.
    ///
    /// # Errors
    /// It does not apply.
    pub(crate) fn mutate(&self, mutant: &Mutant) -> Result<(), String> {
        let text = mutant.apply(&self.tree)?;
        fs::write(self.tree.join(&mutant.file), text).map_err(|error| error.to_string())
    }

    /// Takes it out.
    pub(crate) fn restore(&self, mutant: &Mutant) {
        update(&list::root().join(&mutant.file), &self.tree.join(&mutant.file));
    }
}

fn tracked(root: &Path) -> Vec<PathBuf> {
    let listed = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output()
        .expect("git runs");
    assert!(listed.status.success(), "git lists no files in {}", root.display());
    let names = String::from_utf8(listed.stdout).expect("names are text");
    names.split_terminator('\0').map(PathBuf::from).filter(|file| root.join(file).is_file()).collect()
}

fn update(from: &Path, to: &Path) {
    let new = fs::read(from).expect("a file of the repository can be read");
    if fs::read(to).is_ok_and(|old| old == new) {
        return;
    }
    fs::create_dir_all(to.parent().expect("it lies in the copy")).expect("a directory can be made");
    // Written, not copied: its time must be now, or cargo does not see the change.
    fs::write(to, new).expect("a file of the copy can be written");
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
