//! Everything that tenure does to processes: find, spawn, signal, kill, reap, prove.
//!
//! Owns the system calls of that kind for init and for the elector's guard. Decides nothing: who must die, when, and what a proof
//! permits is the machines' business. Never waits for anybody: what the kernel does at once has a bound, of which the longest is
//! that for the two ends of a fuse ([`fuse`]). Never talks to a network.
//!
//! - [`scan`] reads who is there, [`kill`] sends SIGKILL to them until nobody is, [`reap`] reaps.
//! - [`resolve`] finds a program, [`spawn`] runs it, [`signals`], [`mask`] and [`terminal`] say what it inherits.
//! - [`fuse`] is a SIGKILL that the kernel sends at a time, whoever runs then.
//! - [`notify`] hears what the workload says of itself.
//! - [`memory`] keeps what init needs to act, [`mod@slice`] has it run sooner.
//! - [`power`] tells how much of all this the container allows.
//!
//! Invariants: one thread (the parent of a spawn must live as long as its children: PDEATHSIG); nothing but [`reap`] waits for
//! a child; a pid is used as the name of a child only until it was reaped.

pub use nix::unistd::Pid;

pub mod fuse;
pub mod kill;
pub mod mask;
pub mod memory;
pub mod notify;
pub mod power;
pub mod reap;
pub mod resolve;
pub mod scan;
pub mod signals;
pub mod slice;
pub mod spawn;
pub mod terminal;
