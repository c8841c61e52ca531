//! Decides what init does to the workload, and when the Lease may be given back.
//!
//! Owns two machines. [`Workload`](workload::Workload) tracks one process and its tree: the wanted state (down, standby, leading)
//! against the actual one (stopped, running, being stopped, waiting to be started again). [`Agent`] couples it to the link: it
//! holds the term and its deadlines, and answers the elector. Neither reads a clock, does IO or calls the kernel.
//!
//! [`Turn`] is the order of init's loop, over any [`Container`]. It feeds the agent [`Input`]s with the time at which they were read,
//! carries out every [`Action`] at once and in order, and calls [`Agent::handle_timeout`] when [`Agent::poll_timeout`] has come. The
//! agent relies on three rules:
//!
//! 1. Before every `handle_timeout` it drains the link, and feeds what it found (law 9). Only time acts on a deadline
//!    ([`Input::FuseFired`] says that the kernel has), so an extension that waited in the link while init did not run is taken in
//!    before the stop that it prevents.
//! 2. The immediate result of an action is fed at once, before any input but [`Input::Reaped`]: whether [`Action::Spawn`],
//!    [`Action::Hook`] and [`Action::StartElector`] forked, and the scan of [`Action::Prove`], [`Action::Sweep`],
//!    [`Action::KillAll`].
//! 3. After [`Action::KillElector`] it drains the link into the agent and closes it (law 10).
//!
//! | file | what it owns |
//! |---|---|
//! | `turn` | the order of init's loop, over a `container`; `actions` carries out, `children` takes their ends in |
//! | `interface` | what the agent is told, and what it orders |
//! | `agent` | the machine that couples link and workload; the files below it have one kind of input each |
//! | `term` | the term that init holds, and its deadlines |
//! | `electors` | when an elector is started, and when one is given up |
//! | `workload` | the machine of the process: `starting`, `roles` (promotion, demotion, freezing), `signals`, `stopping` |
//! | `escalation` | the way of a stop, from the stop signal to the proof of death |
//! | `restarts`, `policy` | when what ended is started again; the configuration of the workload's machine |
//! | `health`, `hooks` | the checks of a running workload; one run of a hook |

pub use crate::notification::Heard;

pub use self::{
    agent::{Agent, AgentConfig},
    interface::{Action, Input, Launch, NotSpawned, ProgramEnv, RoleInput, Scan, Target, TermStatus},
    turn::{
        Turn,
        container::{Container, Dead, Ended, HelperKind, LinkBroken, Order, Program, Started},
    },
};

mod agent;
mod electors;
mod escalation;
mod health;
mod hooks;
mod interface;
mod policy;
mod restarts;
mod term;
mod turn;
mod workload;
