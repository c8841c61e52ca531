//! Everything that tenure does to processes: find, spawn, signal, kill, reap, prove.
//!
//! Owns the system calls of that kind for init and for the elector's guard. Decides nothing: who must die, when, and what a proof
//! permits is up to the machines. Never waits for another process: what the kernel does at once has a time limit, the longest of
//! which is for the two ends of a fuse ([`fuse`]). Never talks to a network.
//!
//! - [`scan`] finds processes, [`kill`] sends SIGKILL until none is left, [`reap`] reaps.
//! - [`resolve`] finds a program, [`spawn`] runs it, [`mask`], [`disposition`], [`sockets`] and [`terminal`] say what it inherits.
//! - [`signals`] receives init's signals, and keeps the state that a child gets back.
//! - [`fuse`] is a SIGKILL that the kernel sends at a set time, whoever is running then.
//! - [`notify`] receives what the workload says about itself.
//! - [`memory`] keeps what init needs in memory, and closes it to others. [`mod@slice`] makes init run sooner.
//!
//! Invariants: one thread (the parent of a spawn must live as long as its children: PDEATHSIG); nothing but [`reap`] waits for
//! a child; a pid is used as the name of a child only until it was reaped.

use std::{fs, os::unix::fs::MetadataExt as _};

pub use nix::unistd::Pid;

pub mod disposition;
pub mod fuse;
pub mod kill;
pub mod mask;
pub mod memory;
pub mod notify;
pub mod reap;
pub mod resolve;
pub mod scan;
pub mod signals;
pub mod slice;
pub mod sockets;
pub mod spawn;
pub mod terminal;

/// The first process of a PID namespace.
pub const PID1: Pid = Pid::from_raw(1);

/// Returns true if the process runs the same file as this one. The name has to do where the file is hidden: another user's
/// process, or a tenure that guards a workload ([`memory::close_to_others`]).
pub fn runs_our_program(pid: Pid) -> bool {
    let file = |process: &str| fs::metadata(format!("/proc/{process}/exe")).ok().map(|file| (file.dev(), file.ino()));
    let name = |process: &str| fs::read(format!("/proc/{process}/comm")).ok();
    let pid = pid.to_string();
    match (file("self"), file(&pid)) {
        (Some(ours), Some(theirs)) => ours == theirs,
        (None, _) => false,
        (Some(_), None) => name(&pid).is_some_and(|theirs| name("self") == Some(theirs)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_known_by_the_file_that_it_runs() {
        assert!(runs_our_program(Pid::this()));
        assert!(!runs_our_program(Pid::from_raw(i32::MAX)));
    }
}
