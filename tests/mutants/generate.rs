//! Generates mutants of any room: an operator is another one, a condition is its opposite, a function does not return early.
//!
//! It reads lines, not Rust: a mutant that does not compile is left out when they are built.

use std::{
    ops::Range,
    path::{Path, PathBuf},
};

use crate::{
    copy,
    list::root,
    weave::{Change, weave},
};

const OPERATORS: [(&str, &str); 10] = [
    (" == ", " != "),
    (" != ", " == "),
    (" < ", " <= "),
    (" <= ", " < "),
    (" > ", " >= "),
    (" >= ", " > "),
    (" && ", " || "),
    (" || ", " && "),
    (" + ", " - "),
    (".max(", ".min("),
];

/// A mutant that no list has.
#[derive(Clone, Debug)]
pub(crate) struct Generated {
    /// Its file and line, and what it makes of what.
    pub(crate) name: String,
    pub(crate) change: Change,
}

/// The mutants of all files of the product whose path begins with one of these, numbered from 1.
pub(crate) fn generate(paths: &[String]) -> Vec<Generated> {
    let mut files = copy::tracked(&root());
    files.sort();
    let is_wanted = |file: &PathBuf| paths.iter().any(|path| file.starts_with("src") && file.to_string_lossy().starts_with(path));
    let mut all = Vec::new();
    for file in files.iter().filter(|file| is_wanted(file) && is_product(file)) {
        let text = String::from_utf8_lossy(&copy::original(file)).into_owned();
        for (span, new) in mutations(&text) {
            let number = all.len() + 1;
            let change = Change { number, file: file.clone(), span: span.clone(), text: new.clone() };
            if weave(&text, &[&change], "ask").is_ok() {
                let line = text[..span.start].matches('\n').count() + 1;
                let name = format!("{}:{line} {:?} is {new:?}", file.display(), &text[span]);
                all.push(Generated { name, change });
            }
        }
    }
    all
}

fn is_product(file: &Path) -> bool {
    file.extension().is_some_and(|extension| extension == "rs") && !file.iter().any(|part| part == "tests" || part == "tests.rs")
}

/// Each part of the code that is replaced, and by what; the unit tests at the end of a file are none.
fn mutations(text: &str) -> Vec<(Range<usize>, String)> {
    let code = text.find("\n#[cfg(test)]\nmod ").map_or(text, |end| &text[..end]);
    let (mut found, mut at) = (Vec::new(), 0);
    for line in code.split_inclusive('\n') {
        let (start, bare) = (at, line.trim());
        at += line.len();
        if bare.starts_with("//") || bare.starts_with("#[") {
            continue;
        }
        for (old, new) in OPERATORS {
            let places = line.match_indices(old).filter(|(place, _)| is_code(&line[..*place]));
            found.extend(places.map(|(place, _)| (start + place..start + place + old.len(), new.to_owned())));
        }
        let condition = bare.strip_prefix("} else ").unwrap_or(bare).strip_prefix("if ").and_then(|rest| rest.strip_suffix(" {"));
        if let Some(condition) = condition.filter(|condition| !condition.contains("let ")) {
            let place = start + line.find(condition).unwrap_or_default();
            found.push((place..place + condition.len(), format!("!({condition})")));
        }
        if bare.starts_with("return") && bare.ends_with(';') {
            let place = start + line.find("return").unwrap_or_default();
            found.push((place..place + bare.len(), String::new()));
        }
    }
    found
}

/// Returns whether code follows this part of a line, and neither a text nor a comment.
fn is_code(before: &str) -> bool {
    before.replace("\\\"", "").matches('"').count().is_multiple_of(2) && !before.contains("// ")
}
