//! The rooms that decide name no clock, no IO, no runtime, and of tenure only what has none of them.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{fs, path::Path};

/// Modules of the crate.
const ROOMS: [&str; 14] = [
    "config",
    "election",
    "environment",
    "exit",
    "law",
    "link",
    "notification",
    "once",
    "request",
    "role",
    "slot",
    "supervision",
    "time",
    "words",
];
/// Parts of the standard library.
const PLAIN: [&str; 7] = ["collections", "fmt", "hash", "mem", "sync::Arc", "sync::LazyLock", "time::Duration"];
/// The dependencies; of libc its constants.
const CRATES: [&str; 7] = ["base64", "fastrand", "jiff", "libc", "serde", "serde_json", "thiserror"];

#[test]
fn the_rooms_that_decide_name_nothing_that_does() {
    let top = Path::new(env!("CARGO_MANIFEST_DIR"));
    let manifest = fs::read_to_string(top.join("Cargo.toml")).unwrap();
    let crates: Vec<_> = manifest.lines().filter_map(|line| Some(line.split_once(" = {")?.0.replace('-', "_"))).collect();
    let mut wrong = Vec::new();
    let rooms = [
        ("src/law.rs", 1),
        ("src/request.rs", 1),
        ("src/election", 10),
        ("src/supervision", 10),
        ("src/telemetry/status.rs", 1),
        ("src/transaction", 5),
    ];
    for (room, least) in rooms {
        let files = sources(&top.join(room));
        assert!(files.len() >= least, "{room} has its files");
        for (file, code) in files {
            let doing = names(&code).into_iter().filter(|name| does(name, &crates));
            wrong.extend(doing.map(|name| format!("{file}: {name}")));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn what_does_is_found_however_it_is_named() {
    let crates = ["tokio".to_owned()];
    let code = "
        use std::{collections::{BTreeMap, BTreeSet}, fs, time::{Duration, Instant}};
        pub(crate) use crate::{
            clock::boot, election::{record::LeaseRecord},
            time::Instant as Then,
        };
        // tokio::spawn
        let then = crate::process::kill(libc::SIGTERM) + tokio::time::sleep(libc::time(0), Timestamp::now());
    ";

    let found: Vec<_> = names(code).into_iter().filter(|name| does(name, &crates)).collect();

    let doing = "std::fs std::time::Instant crate::clock::boot crate::process::kill tokio::time::sleep libc::time Timestamp::now";
    assert_eq!(found, doing.split(' ').collect::<Vec<_>>());
}

fn does(name: &str, crates: &[String]) -> bool {
    let (first, rest) = name.split_once("::").unwrap_or((name, ""));
    let within = |allowed: &[&str]| allowed.iter().any(|path| rest == *path || rest.starts_with(&format!("{path}::")));
    match first {
        "crate" => !within(&ROOMS),
        "std" | "core" | "alloc" => !within(&PLAIN),
        "libc" => !rest.starts_with("SIG"),
        "super" if rest.starts_with("super") => true,
        _ if name.ends_with("::now") => true,
        _ => crates.iter().any(|name| name == first) && !CRATES.contains(&first),
    }
}

/// Every path in the code, those of a `use` with its braces expanded.
fn names(code: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut lines = code.lines().map(str::trim).filter(|line| !line.starts_with("//"));
    while let Some(line) = lines.next() {
        let public = line.trim_start_matches("pub(crate) ").trim_start_matches("pub ");
        if let Some(first) = public.strip_prefix("use ") {
            let mut tree = first.to_owned();
            while !tree.ends_with(';') {
                tree.push_str(lines.next().unwrap());
            }
            undo("", tree.trim_end_matches(';'), &mut names);
        } else {
            let words = line.split(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':'));
            names.extend(words.filter(|word| word.contains("::")).map(str::to_owned));
        }
    }
    names
}

fn undo(before: &str, tree: &str, names: &mut Vec<String>) {
    let mut depth = 0_i32;
    let comma = |c: char| {
        depth += i32::from(c == '{') - i32::from(c == '}');
        c == ',' && depth == 0
    };
    for part in tree.split(comma).map(str::trim).filter(|part| !part.is_empty()) {
        match part.split_once('{') {
            Some((path, inner)) => undo(&format!("{before}{path}"), inner.strip_suffix('}').unwrap(), names),
            None => names.push(format!("{before}{part}")),
        }
    }
}

/// Returns the sources that are not tests: this file, or all below this directory.
fn sources(room: &Path) -> Vec<(String, String)> {
    if room.file_stem().is_some_and(|name| name == "tests") {
        return Vec::new();
    }
    if room.is_dir() {
        return fs::read_dir(room).unwrap().flat_map(|entry| sources(&entry.unwrap().path())).collect();
    }
    let text = fs::read_to_string(room).unwrap();
    let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    vec![(room.display().to_string(), code.to_owned())]
}
