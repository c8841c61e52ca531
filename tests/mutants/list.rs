//! The list of mutants, and how one changes the text of a file.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use serde::Deserialize;

use crate::weave::{Change, weave};

/// A mutant: a rule, or the part of a sentence that makes it exact, removed.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Mutant {
    /// Unique.
    #[serde(skip)]
    pub(crate) name: String,
    /// Relative to the root of the repository.
    #[serde(skip)]
    pub(crate) file: PathBuf,
    /// The part of the rule that is removed, quoted, by the rule's number in the law or in the protocol of transactions; 0 is the text
    /// before its rules.
    law: BTreeMap<String, String>,
    /// Must occur in the file exactly once.
    pub(crate) find: String,
    /// Replaces it.
    pub(crate) replace: String,
    /// A unit test that then fails.
    pub(crate) unit: Option<String>,
    /// A family of the model that then fails.
    pub(crate) model: Option<String>,
    /// What the simulation then reports.
    pub(crate) simulation: Option<Reported>,
    /// The worlds of init's turn fail within this many.
    pub(crate) turns: Option<u64>,
    /// Why none of these worlds finds it: what else backs the rule, or what they lack.
    pub(crate) because: Option<String>,
}

/// A rate of reports, and the judge.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Reported {
    /// So many terms have five worlds or more with a violation.
    pub(crate) terms: u64,
    /// What two of these say at least; the test that fails, if it is one of a schedule.
    pub(crate) says: String,
}

/// The mutants of the files in `src`, by their names.
type List = BTreeMap<PathBuf, BTreeMap<String, Mutant>>;

impl Mutant {
    /// Its change to its file. An error: the text to find does not occur exactly once, or is replaced by itself.
    pub(crate) fn change(&self, number: usize) -> Result<Change, String> {
        let path = root().join(&self.file);
        let text = fs::read_to_string(&path).map_err(|error| format!("{}: {}: {error}", self.name, path.display()))?;
        let mut found = text.match_indices(&self.find).map(|(start, _)| start);
        let (Some(start), None) = (found.next(), found.next()) else {
            return Err(format!("{}: its text does not stand exactly once in {}: {:?}", self.name, path.display(), self.find));
        };
        if self.find == self.replace {
            return Err(format!("{}: replaces its text by itself", self.name));
        }
        let change = Change { number, file: self.file.clone(), span: start..start + self.find.len(), text: self.replace.clone() };
        weave(&text, &[&change], "ask").map_err(|why| format!("{}: {why}", self.name))?;
        Ok(change)
    }

    pub(crate) fn is_of_transactions(&self) -> bool {
        self.file.starts_with("src/transaction")
    }

    /// Checks that its rule contains that sentence.
    pub(crate) fn quotes(&self) -> Result<(), String> {
        let (rule, sentence) = self.removes();
        let law = law(if self.is_of_transactions() { "src/transaction/mod.rs" } else { "src/law.rs" });
        let quoted = law.get(rule).is_some_and(|text| text.contains(sentence));
        if quoted { Ok(()) } else { Err(format!("{}: law {rule} does not say {sentence:?}", self.name)) }
    }

    /// The number of its rule, and the part of that.
    pub(crate) fn removes(&self) -> (usize, &str) {
        let (rule, sentence) = self.law.iter().next().filter(|_| self.law.len() == 1).expect("one sentence");
        (rule.parse().expect("a number of a rule"), sentence)
    }
}

/// The prefix of the unit tests of the room of this file; what is not of the product counts as what decides.
pub(crate) fn room(file: &Path) -> String {
    let mut parts = file.iter().map(|part| part.to_string_lossy());
    match (parts.next().as_deref(), parts.next()) {
        (Some("src"), Some(room)) => format!("{}::", room.trim_end_matches(".rs")),
        (Some(_) | None, _) => "law::".into(),
    }
}

/// The text of the law in the head of this file: what precedes its rules, and each rule.
pub(crate) fn law(file: &str) -> Vec<String> {
    let text = fs::read_to_string(root().join(file)).expect("it can be read");
    let mut law: Vec<Vec<&str>> = vec![Vec::new()];
    for line in text.lines().map_while(|line| line.strip_prefix("//!")) {
        let mut words = line.split_whitespace().peekable();
        if words.next_if(|word| *word == format!("{}.", law.len())).is_some() {
            law.push(Vec::new());
        }
        law.last_mut().expect("it is not empty").extend(words);
    }
    law.iter().map(|words| words.join(" ")).collect()
}

/// Every mutant of every list, in the order of the rules.
pub(crate) fn read() -> Vec<Mutant> {
    let here = root().join("tests/mutants/law");
    let mut files: Vec<PathBuf> = fs::read_dir(&here)
        .expect("tests/mutants/law is there")
        .map(|entry| entry.expect("it can be read").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "toml"))
        .collect();
    files.sort();
    let mut all: Vec<Mutant> = Vec::new();
    for path in files {
        let text = fs::read_to_string(&path).expect("it can be read");
        let list: List = toml::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let mutants = list.into_iter().flat_map(|(file, mutants)| mutants.into_iter().map(move |named| (file.clone(), named)));
        for (file, (name, mutant)) in mutants {
            let Mutant { model, simulation, turns, because, .. } = &mutant;
            assert!(all.iter().all(|other| other.name != name), "{name} stands twice");
            let found = model.is_some() || simulation.is_some() || turns.is_some();
            assert!(found != because.is_some(), "{name}: say why no world finds it, where none does");
            all.push(Mutant { name, file: Path::new("src").join(file), ..mutant });
        }
    }
    all.sort_by_key(|mutant| mutant.removes().0);
    assert!(!all.is_empty(), "there are no mutants");
    all
}

/// The root of the repository.
pub(crate) fn root() -> PathBuf {
    std::env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), PathBuf::from)
}
