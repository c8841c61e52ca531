//! Compares a plain init with tini: the wall time of a container that does nothing, and of reaping thousands of orphans.

use std::{
    io::Write as _,
    path::Path,
    process::{Command, Stdio},
};

use support::server::scratch;

use crate::{
    contestant::Programs,
    table::{quantile, row, title},
};

pub fn show(programs: &Programs, rounds: usize) {
    title("A plain init (`--leader-election=off`) beside tini, interleaved");
    if !Path::new(TINI).exists() {
        println!("  NOT MEASURED: tini is not installed (apt-get install tini)");
        return;
    }
    let directory = scratch("start");
    std::fs::create_dir_all(&directory).expect("a directory");
    let (nothing, orphans) = (directory.join("true"), directory.join("orphans"));
    compile("int main(void) { return 0; }", &nothing);
    compile(ORPHANS, &orphans);
    beside("the wall time of `true`", rounds, [&programs.tenure, Path::new(TINI)].map(|init| || wall_time(init, &nothing)));
    beside(
        "10 000 orphans end at once: until all are reaped",
        rounds.div_ceil(100),
        [&programs.tenure, Path::new(TINI)].map(|init| || reaping_time(init, &orphans)),
    );
    drop(std::fs::remove_dir_all(directory));
}

const TINI: &str = "/usr/bin/tini";

/// Starts orphans in one process group, which wait for a pipe to close. Prints the milliseconds from there until all are reaped.
const ORPHANS: &str = r#"
    #include <signal.h>
    #include <stdio.h>
    #include <time.h>
    #include <unistd.h>
    #include <sys/wait.h>
    static double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec * 1e3 + t.tv_nsec / 1e6; }
    int main(void) {
        int gate[2]; char end;
        if (pipe(gate)) return 1;
        pid_t parent = fork();
        if (parent == 0) {
            setpgid(0, 0);
            close(gate[1]);
            for (int i = 0; i < 10000; i++) {
                pid_t orphan = fork();
                if (orphan == 0) { (void)!read(gate[0], &end, 1); _exit(0); }
                if (orphan < 0) _exit(1);
            }
            _exit(0);
        }
        int status;
        if (waitpid(parent, &status, 0) != parent || status) return 1;
        double began = now();
        close(gate[1]);
        while (kill(-parent, 0) == 0) usleep(200);
        printf("%f", now() - began);
        return 0;
    }
"#;

fn beside(what: &str, rounds: usize, [ours, theirs]: [impl Fn() -> f64; 2]) {
    println!("  {what}:");
    let (mut tenure, mut tini) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        tenure.push(ours());
        tini.push(theirs());
    }
    row("tenure", &tenure);
    row("tini", &tini);
    println!("  ratio of medians {:.2}", quantile(&tenure, 0.5) / quantile(&tini, 0.5));
}

fn under(init: &Path, program: &Path) -> Command {
    let mut command = Command::new(init);
    command.arg(if init == Path::new(TINI) { "-s" } else { "--leader-election=off" }).arg("--").arg(program).stdin(Stdio::null());
    command
}

fn wall_time(init: &Path, program: &Path) -> f64 {
    let began = tenure::clock::boot();
    let status = under(init, program).status().expect("it runs");
    assert!(status.success(), "{}: {status}", init.display());
    tenure::clock::boot().since(began).as_secs_f64() * 1e3
}

fn reaping_time(init: &Path, orphans: &Path) -> f64 {
    let said = under(init, orphans).stderr(Stdio::inherit()).output().expect("it runs");
    assert!(said.status.success(), "{}: {}", init.display(), said.status);
    String::from_utf8_lossy(&said.stdout).parse().expect("milliseconds")
}

/// Compiles a static program.
fn compile(source: &str, path: &Path) {
    let mut compiler = Command::new("cc")
        .args(["-static", "-Os", "-x", "c", "-o"])
        .arg(path)
        .arg("-")
        .stdin(Stdio::piped())
        .spawn()
        .expect("cc");
    compiler.stdin.take().expect("piped").write_all(source.as_bytes()).expect("cc reads");
    assert!(compiler.wait().expect("cc").success(), "cc");
}
