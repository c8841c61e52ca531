//! A plain init compared with tini: the wall time of a container that does nothing.

use std::{
    io::Write as _,
    path::Path,
    process::{Command, Stdio},
};

use crate::{
    contestant::Programs,
    support::server::scratch,
    table::{quantile, row, title},
};

pub fn show(programs: &Programs, rounds: usize) {
    title("`--leader-election=off -- true` beside tini, wall time, interleaved");
    let directory = scratch("start");
    std::fs::create_dir_all(&directory).expect("a directory");
    let nothing = directory.join("true");
    compile_nothing(&nothing);
    let tini = Path::new("/usr/bin/tini");
    if !tini.exists() {
        println!("  NOT MEASURED: tini is not installed (apt-get install tini)");
        return;
    }
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        ours.push(time(Command::new(&programs.tenure).arg("--leader-election=off").arg("--").arg(&nothing)));
        theirs.push(time(Command::new(tini).args(["-s", "--"]).arg(&nothing)));
    }
    row("tenure", &ours);
    row("tini", &theirs);
    println!("  ratio of medians {:.2}", quantile(&ours, 0.5) / quantile(&theirs, 0.5));
    drop(std::fs::remove_dir_all(directory));
}

fn time(command: &mut Command) -> f64 {
    let began = tenure::clock::boot();
    let status = command.stdin(Stdio::null()).status().expect("it runs");
    assert!(status.success(), "{command:?}: {status}");
    tenure::clock::boot().since(began).as_secs_f64() * 1e3
}

/// Compiles a static program that only exits.
fn compile_nothing(path: &Path) {
    let mut compiler = Command::new("cc")
        .args(["-static", "-Os", "-x", "c", "-o"])
        .arg(path)
        .arg("-")
        .stdin(Stdio::piped())
        .spawn()
        .expect("cc");
    compiler.stdin.take().expect("piped").write_all(b"int main(void) { return 0; }\n").expect("cc reads");
    assert!(compiler.wait().expect("cc").success(), "cc");
}
