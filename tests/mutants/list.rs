//! The list of mutants, and what one does to the text of a file.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde::Deserialize;

/// One mutant: a rule, or the half-sentence that makes it exact, taken away.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Mutant {
    /// Unique.
    pub(crate) name: String,
    /// Of the law.
    pub(crate) rule: u32,
    /// What of it is taken away, in its words.
    pub(crate) sentence: String,
    /// From the root of the repository.
    pub(crate) file: PathBuf,
    /// Stands there exactly once.
    pub(crate) find: String,
    /// Stands there instead.
    pub(crate) replace: String,
    /// What must fail then.
    pub(crate) caught_by: Check,
    /// The name of the unit test, or a part of it; with `caught-by = "unit"`.
    pub(crate) test: Option<String>,
    /// Why no other check finds it: what stands behind the rule. Required unless simulation or model find it.
    pub(crate) because: Option<String>,
}

/// What finds a mutant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Check {
    /// `cargo test --test simulation`.
    Simulation,
    /// `cargo test --test model`.
    Model,
    /// A test of the library.
    Unit,
    /// Nothing: a second mechanism does the same. The simulation must not find it, or this entry is wrong.
    Nothing,
}

#[derive(Deserialize)]
struct File {
    mutant: Vec<Mutant>,
}

impl Mutant {
    /// The mutated text of its file.
    ///
    /// # Errors
    /// The text to find is not there exactly once, or is replaced by itself.
    pub(crate) fn apply(&self, root: &Path) -> Result<String, String> {
        let path = root.join(&self.file);
        let text = fs::read_to_string(&path).map_err(|error| format!("{}: {}: {error}", self.name, path.display()))?;
        let found = text.matches(&self.find).count();
        if found != 1 {
            return Err(format!("{}: its text stands {found} times in {}, not once: {:?}", self.name, path.display(), self.find));
        }
        if self.find == self.replace {
            return Err(format!("{}: replaces its text by itself", self.name));
        }
        Ok(text.replacen(&self.find, &self.replace, 1))
    }
}

/// Every mutant of every file, in order.
///
/// # Panics
/// A file is no list, a name stands twice, or an entry lacks its argument.
pub(crate) fn read() -> Vec<Mutant> {
    let here = root().join("tests/mutants");
    let mut files: Vec<PathBuf> = fs::read_dir(&here)
        .expect("tests/mutants is there")
        .map(|entry| entry.expect("it can be read").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "toml"))
        .collect();
    files.sort();
    let mut all: Vec<Mutant> = Vec::new();
    for path in files {
        let text = fs::read_to_string(&path).expect("it can be read");
        let File { mutant } = toml::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        for mutant in mutant {
            let Mutant { name, caught_by, test, because, .. } = &mutant;
            assert!(all.iter().all(|other| other.name != *name), "{name} stands twice");
            assert!(test.is_some() == (*caught_by == Check::Unit), "{name}: a unit test needs its name, others have none");
            let found = matches!(caught_by, Check::Simulation | Check::Model);
            assert!(found || because.is_some(), "{name}: say why neither simulation nor model finds it");
            all.push(mutant);
        }
    }
    assert!(!all.is_empty(), "there are no mutants");
    all
}

/// The repository.
pub(crate) fn root() -> PathBuf {
    std::env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), PathBuf::from)
}
