//! tenure runs a process for exactly as long as its replica holds a Kubernetes Lease.
//!
//! This page describes the architecture. What users see is described in the README and in `config/tenure.yaml`.
//!
//! # Two processes
//!
//! ```text
//! container
//! └─ tenure              init     PID 1: owns the workload, its deadlines and the signals. No network.
//!    ├─ tenure elector            the only part that talks to the API server, OTLP and HTTP. Decides who leads.
//!    └─ workload                  its own process group; init kills its whole tree and proves it dead.
//! ```
//!
//! The part that kills never touches the network. Init is a poll loop over signals, one timer and the
//! [`link`]. It needs nothing from the elector to kill: the stop signal goes out at the soft deadline S, and SIGKILL to everything
//! at the hard deadline H, whether the elector is slow, stopped, dead or lying. The elector needs nothing but init's proof to
//! release.
//!
//! If the elector dies, init starts another and hands it the last confirmed record: the workload does not notice, provided that
//! the new one renews before S. If init is stopped, the elector is the second guard at H. If both are stopped, or neither gets the
//! processor, the kernel kills on its own at the H that init last acknowledged. It does so by a fuse for each process group: a
//! connection of init to itself over the loopback interface that times out ([`process::fuse`]). If init dies as PID 1, the kernel
//! kills the container.
//!
//! A second container of the pod may run `tenure witness`. The elector hands it a pidfd of init, which the kernel makes readable
//! once no process of the replica is left; then the witness releases the Lease in place of the dead replica (law 20).
//!
//! # Deciding apart from doing
//!
//! Four machines decide. They read no clock and do no IO: they are given the time, and return descriptions of work.
//!
//! | machine | decides | runs in |
//! |---|---|---|
//! | [`election::Elector`] | which requests are sent, who leads, when a term ends | the elector |
//! | [`supervision::Agent`] | whether the workload may lead now, until when, and when the Lease may be released | init |
//! | `Workload`, inside the agent | when to start, signal, kill, prove and restart it | init |
//! | [`election::obituary::Witness`] | what a witness releases of a dead replica, and when it is done | `tenure witness` |
//!
//! They use the same verbs: `handle(input, now)`, `poll_action()`, `poll_timeout()`, `handle_timeout(now)`. There are two exceptions:
//! `Workload` has one method for each thing that can happen to it, and the witness has no deadlines. The elector also has
//! `poll_event()`: what it has seen and decided, of which [`telemetry`] makes the status and the record of a term. Everything else
//! is an edge, which acts: [`init`], [`elector`], [`process`], [`api`], [`telemetry`], [`http`].
//!
//! [`transaction`] decides in the same way, but is sequential: its driver is one async function over a trait of requests.
//!
//! The order of steps is decided too, once for each process: [`supervision::Turn`] for init, [`election::turn`] for the elector. A
//! turn hands over all that waits on the link before a machine acts on a deadline, and carries out every action at once and in
//! order. The product, the simulation and the model run the same turns, each over a world of its own.
//!
//! # A term
//!
//! A term is permission to run: it begins with a write of this replica's that was confirmed before S, and there is none in which
//! nothing may run. What nobody gave back (an absent, cleared or emptied Lease) is held by `tenure.dev/nobody` first, waited for
//! like any other holder, and then taken. So there is one way to take a Lease: to wait for its holder, or to see that it was given
//! back.
//!
//! # The law
//!
//! [`law`] turns the sending of a write into the deadlines of the holder, and the sighting of a record into the instant at which a
//! follower may take it. It proves that the former always come before the latter, and holds the rules that all rooms follow.
//! Deadlines are absolute instants of the hardware's clock, counted from just before the first byte of a write. No wall clock and no
//! time service takes part in any of that.
//!
//! # Rooms
//!
//! The modules, here called rooms:
//!
//! | room | what it owns |
//! |---|---|
//! | [`time`], [`clock`], [`alarm`] | instants of the hardware's clock; the calls that read clocks; a timer for who waits for an instant |
//! | [`once`] | a remark that is made once |
//! | [`link`], `wire` | the few messages between init and elector; one end of the socket that carries them |
//! | [`config`], [`cli`] | the keys that users set; the command line |
//! | [`loading`] | makes the configuration of a file, the environment and flags |
//! | [`law`] | the deadline formulas, the proof, the twenty rules |
//! | [`election`] | decides who leads: the Lease record, what was observed of it, the phases; which request makes the EndpointSlice as it should be; what a witness releases; makes every write of a Lease, for commands too |
//! | [`supervision`] | decides what happens to the workload |
//! | [`transaction`] | decides what one process does about changes to several objects that are all made or all undone |
//! | [`init`] | acts: PID 1's loop, the elector child, signals, identity |
//! | [`process`] | acts: scan, spawn, signal, kill, reap, prove |
//! | [`elector`] | acts: the elector's loop, the requests for the Lease, the EndpointSlice, Events, the question for rights, the second guard; hands init's pidfd to the witness |
//! | [`api`] | finds the cluster and speaks TLS to it, knows where objects are, sends single requests, reads their replies, watches |
//! | [`telemetry`], [`http`], [`stderr`] | edges that can never delay a transition: the one status of a replica, with what the EndpointSlice should show, the record of each term, traces, metrics and log; probes and pages |
//! | [`term_page`] | the page in memory in which the workload reads its term |
//! | `inject` | puts tenure into a manifest that knows nothing of it, as the policy in `deploy/inject` does on the API server |
//! | [`commands`], `console` | `status`, `prune`, `step-down`, `check`, `demo` and the others, one room each; their output |
//! | [`request`] | the places of the API server and what is done there; what became of a request or a watch |
//! | [`apiserver`] | the embedded Lease API, on a register that simulations and tests share |
//! | [`role`], [`slot`], [`exit`], [`environment`] | leader or standby; the number of a Lease; the exit codes; the variables that a workload is given |
//! | [`notification`] | what a workload says about itself on NOTIFY_SOCKET |
//! | [`words`], [`svg`] | what errors and outsiders say, put on one line; the look of pictures |
//!
//! `src/main.ld`, which `build.rs` passes to the linker, groups the code of each process in the static binary.

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
#[path = "../fuzz/targets.rs"]
pub mod fuzz;
pub mod http;
pub mod init;
mod inject;
pub mod law;
pub mod link;
pub mod loading;
pub mod notification;
pub mod once;
pub mod process;
pub mod request;
pub mod role;
pub mod slot;
pub mod stderr;
pub mod supervision;
pub mod svg;
pub mod telemetry;
pub mod term_page;
pub mod time;
pub mod transaction;
mod wire;
pub mod words;
