//! tenure runs a process for exactly as long as its replica holds a Kubernetes Lease.
//!
//! This page is the architecture. What users see is in the README and in `config/tenure.yaml`.
//!
//! # Two processes
//!
//! ```text
//! container
//! └─ tenure              init     PID 1: owns the workload, its deadlines and the signals. No network.
//!    ├─ tenure elector            the only part that talks to the API server, OTLP and HTTP. Decides who leads.
//!    └─ workload                  its own process group; its whole tree is killed and proved dead by init.
//! ```
//!
//! The part that kills never touches the network. Init is a poll loop over signals, one absolute CLOCK_BOOTTIME timer and the
//! [`link`]; it needs nothing from the elector to kill: the stop signal goes out at the soft deadline S, SIGKILL to everything at
//! the hard deadline H, whether the elector is slow, stopped, dead or lying. The elector needs nothing but init's proof to
//! release. If the elector dies, init starts another and hands it the last confirmed record: the workload does not notice. If init
//! is stopped, the elector is the second guard at H. If both are, or neither gets the processor, the kernel kills by itself at the
//! H that init last acknowledged: a fuse for each process group, which is a connection of init to itself over the loopback
//! interface that times out ([`process::fuse`]). If init dies as PID 1, the kernel kills the container.
//!
//! # Deciding apart from doing
//!
//! Three machines decide. They read no clock and do no IO; they are handed the time and return descriptions of work:
//!
//! | machine | decides | runs in |
//! |---|---|---|
//! | [`election::Elector`] | which requests are sent, who leads, when a term ends | the elector |
//! | [`supervision::Agent`] | may the workload lead now, until when, and when may the Lease be released | init |
//! | `Workload`, within the agent | start, signal, kill, prove, start again | init |
//!
//! [`election::Elector`] and [`supervision::Agent`] are told what happened by `handle(input, now)`, `Workload` by one method for
//! each thing that can happen to it; for the rest all speak the same verbs: `poll_action()`, `poll_timeout()`,
//! `handle_timeout(now)`. Whoever drives one carries out every action at once and in order, and before acting on a deadline takes
//! in what waits on the link. Everything else is an edge that does: [`init`], [`elector`], [`process`], [`api`], [`telemetry`],
//! [`http`].
//!
//! # The law
//!
//! [`law`] turns the send of a write into the deadlines of the holder, and the sight of a record into the instant at which a
//! follower may take it, with the proof that the first always comes before the second, and has the rules by which all rooms act.
//! Deadlines are absolute CLOCK_BOOTTIME instants counted from just before the first byte of a write; no wall clock takes part in
//! any decision.
//!
//! # Rooms
//!
//! | room | what it owns |
//! |---|---|
//! | [`time`], [`clock`], [`alarm`] | instants of CLOCK_BOOTTIME; the only calls that read clocks; the timer that wakes at one |
//! | [`link`], `wire` | the few messages between init and elector; an end of the socket that carries them |
//! | [`config`], [`cli`] | what users write and type |
//! | [`law`] | the formulas of the deadlines, the proof, the seventeen rules |
//! | [`election`] | decides who leads: the Lease record, the phases |
//! | [`supervision`] | decides what becomes of the workload |
//! | [`init`] | does: PID 1's loop, the elector child, signals, identity |
//! | [`process`] | does: scan, spawn, signal, kill, reap, prove |
//! | [`elector`] | does: the elector's loop, the Lease client, the watch, the second guard |
//! | [`api`] | finds the cluster and sends single requests |
//! | [`telemetry`], [`http`], [`stderr`] | edges that can never delay a transition |
//! | [`commands`], `console` | `status`, `check`, `config`, `demo`, `dev-server`: one room each; how they print |
//! | [`apiserver`] | the embedded Lease API |
//! | [`role`], [`exit`], [`environment`] | leader or standby; the exit codes; the variables by which a workload is told |
//! | [`words`] | what errors and others say, on one line |
//!
//! `src/main.ld`, which `build.rs` hands to the linker, keeps the code of each process together in the static binary.

mod alarm;
pub mod api;
pub mod apiserver;
pub mod cli;
pub mod clock;
pub mod commands;
pub mod config;
mod console;
pub mod election;
pub mod elector;
pub mod environment;
pub mod exit;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
pub mod http;
pub mod init;
pub mod law;
pub mod link;
pub mod process;
#[cfg(test)]
mod purity;
pub mod role;
pub mod stderr;
pub mod supervision;
pub mod telemetry;
pub mod time;
mod wire;
pub mod words;
