//! Judgments of safety, such as two workloads at once. No machine is so busy that it excuses one.
//!
//! `tests/run` runs a test that failed once more, alone. If a judgment here failed, the run fails whatever comes of that: the file that
//! `TENURE_UNSAFE` names tells it so.

use std::{fs::OpenOptions, io::Write as _, thread};

/// Reports these words as unsafe, if this does not hold.
#[track_caller]
pub fn safe(holds: bool, otherwise: impl FnOnce() -> String) {
    if !holds {
        let words = otherwise();
        report(&words);
        panic!("{words}");
    }
}

/// Says to `tests/run` that something is not safe, whatever else the test finds.
pub fn report(words: &str) {
    let Some(file) = std::env::var_os("TENURE_UNSAFE") else { return };
    let mut file = OpenOptions::new().append(true).create(true).open(file).expect("the file for what is not safe");
    let line = format!("{}: {}\n", thread::current().name().unwrap_or("a thread"), words.replace('\n', " "));
    file.write_all(line.as_bytes()).expect("a line");
}
