//! A start-up file without an end keeps nobody from ending what reads it.

use std::{
    fs,
    io::Write as _,
    path::Path,
    process::{Child, Command, Stdio},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::{
    scratch::{Scratch, open_for_reader},
    wait::wait_for,
    world::kubeconfig,
};

const ENDING: [Signal; 3] = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGQUIT];

#[test]
fn a_replica_that_reads_its_kubeconfig_for_ever_ends_as_one_on_which_nothing_runs() {
    let place = Scratch::new();
    let pipe = place.fifo("kubeconfig");
    for pid_1 in [false, true] {
        for signal in ENDING {
            let mut replica = Replica::start(pid_1, &["--lease", "x"], pipe.to_str().unwrap());
            let writer = wait_for("it reads its kubeconfig", || open_for_reader(&pipe));
            assert_eq!(replica.ended_by(signal), Some(0), "{signal}, PID 1: {pid_1}");
            drop(writer);
        }
    }
}

#[test]
fn a_replica_that_reads_a_certificate_authority_for_ever_ends_too() {
    let place = Scratch::new();
    let pipe = place.fifo("authority");
    let cluster = format!("server: 'https://127.0.0.1:1', certificate-authority: {}", pipe.display());
    let kubeconfig = place.file("kubeconfig", kubeconfig(&cluster));
    let mut replica = Replica::start(true, &["--lease", "x"], &kubeconfig);
    let writer = wait_for("it reads the authority", || open_for_reader(&pipe));
    assert_eq!(replica.ended_by(Signal::SIGTERM), Some(0));
    drop(writer);
}

#[test]
fn a_plain_init_that_reads_its_configuration_for_ever_ends_too() {
    let place = Scratch::new();
    let pipe = place.fifo("tenure.yaml");
    for signal in ENDING {
        let mut init = Replica::start(true, &["--config", pipe.to_str().unwrap(), "--leader-election=off"], "");
        let mut writer = wait_for("it reads its configuration", || open_for_reader(&pipe));
        writer.write_all(b"#").unwrap();
        assert_eq!(init.ended_by(signal), Some(0), "{signal}");
    }
}

/// A replica that is still to find out what it is to run.
struct Replica {
    child: Child,
    pid_1: bool,
}

impl Replica {
    fn start(pid_1: bool, arguments: &[&str], kubeconfig: &str) -> Self {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]);
        if pid_1 {
            command.args(["unshare", "--fork", "--pid", "--mount-proc", "--kill-child=SIGKILL"]);
            if !nix::unistd::geteuid().is_root() {
                command.arg("--map-root-user");
            }
        }
        command.arg(env!("CARGO_BIN_EXE_tenure")).args(arguments).args(["--", "true"]);
        command.env_clear().env("PATH", "/usr/bin:/bin").env("KUBECONFIG", kubeconfig).stdin(Stdio::null());
        Self { child: command.spawn().unwrap(), pid_1 }
    }

    /// The exit code after this signal.
    fn ended_by(&mut self, signal: Signal) -> Option<i32> {
        let child = self.child.id();
        let children = format!("/proc/{child}/task/{child}/children");
        let inner = || fs::read_to_string(Path::new(&children)).ok()?.split_whitespace().next()?.parse().ok();
        let pid = if self.pid_1 { wait_for("PID 1", inner) } else { i32::try_from(child).unwrap() };
        kill(Pid::from_raw(pid), signal).unwrap();
        wait_for("it ends", || self.child.try_wait().unwrap()).code()
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
