//! Compares tenure with a wrapper that uses client-go, in one run on one machine.
//!
//! ```text
//! cargo bench --bench figures -- [FIGURE]... [--rounds N] [--await-election DIR]
//! ```
//!
//! Without a FIGURE it measures all figures. Nothing is asserted here: a benchmark reports, and a test judges.
//!
//! Each contestant runs as PID 1 of its own PID namespace, against the same real kube-apiserver and etcd, with the same workload. The
//! workload stamps CLOCK_BOOTTIME into a file in memory every millisecond.

#![allow(
    clippy::expect_used,
    clippy::print_stdout,
    clippy::print_stderr,
    unreachable_pub,
    reason = "a benchmark speaks to people, and fails by panicking"
)]

use std::process::ExitCode;

use clap::{Parser, ValueEnum};

mod contestant;
mod faults;
mod floor;
mod footprint;
mod fuse;
mod handover;
mod idle;
mod locks;
mod page;
mod refusal;
mod scale;
mod start;
mod storm;
mod table;
mod takeover;
mod transactions;

use contestant::Programs;

/// The figures that can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Figure {
    /// The leader gets SIGTERM: the time from the last stamp of the old workload to the first stamp of the new one.
    Handover,
    /// A handover with a workload that takes 3 s to stop.
    SlowStop,
    /// The leader is killed: the takeover, counted from the answer to its last renewal.
    Takeover,
    /// Black holes, frozen processes, slow stops, edited Leases: how long two ran at once, and when the next one ran.
    Faults,
    /// With the kernel's fuse and without: how late the last instruction is, on a starved machine and with both processes frozen.
    Fuse,
    /// Forced transitions of every kind, one after the other: how often two ran at once.
    Storm,
    /// Requests and processor time of idle replicas over 10 min.
    Idle,
    /// The memory of an idle leader, and the size of the binary.
    Footprint,
    /// One lock beside flock, and pools of slots with many processes that wait: requests and watch events.
    Locks,
    /// Hundreds of Leases on one API server: requests, events, its processor time and memory. `--rounds` is the number of Leases.
    Scale,
    /// A plain init beside tini.
    Start,
    /// How long a program takes to ask whether the Lease is held.
    Page,
    /// A transaction of 32 patches beside kubectl: requests and wall time.
    Transactions,
}

#[derive(Parser)]
struct Arguments {
    /// The figures to measure; all figures if none is named.
    figures: Vec<Figure>,
    /// How often to measure each figure, instead of its own number of rounds.
    #[arg(long)]
    rounds: Option<usize>,
    /// A checkout of LINBIT's k8s-await-election, which gets the same faults.
    #[arg(long, value_name = "DIR")]
    await_election: Option<std::path::PathBuf>,
    /// `cargo bench` adds this flag.
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> ExitCode {
    if let Some(code) = support::workload::face() {
        return code;
    }
    if let Some(code) = refusal::face().or_else(fuse::face) {
        return code;
    }
    let arguments = Arguments::parse();
    let figures = if arguments.figures.is_empty() { Figure::value_variants() } else { &arguments.figures };
    let programs = Programs::build(arguments.await_election.as_deref());
    let server = support::server::Server::start(support::server::Kind::Real);
    println!("API server {}; etcd's data and the stamps lie in {}", programs.apiserver, contestant::place());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    for figure in figures {
        let rounds = |default| arguments.rounds.unwrap_or(default);
        match figure {
            Figure::Handover => runtime.block_on(handover::show(&server, &programs, std::time::Duration::ZERO, rounds(200))),
            Figure::SlowStop => {
                runtime.block_on(handover::show(&server, &programs, std::time::Duration::from_secs(3), rounds(20)))
            }
            Figure::Takeover => runtime.block_on(takeover::show(&server, &programs, rounds(50))),
            Figure::Faults => runtime.block_on(faults::show(&server, &programs, rounds(1))),
            Figure::Fuse => runtime.block_on(fuse::show(&server, &programs, rounds(10))),
            Figure::Storm => runtime.block_on(storm::show(&server, &programs, rounds(500))),
            Figure::Idle => runtime.block_on(idle::show(&server, &programs)),
            Figure::Footprint => runtime.block_on(footprint::show(&server, &programs)),
            Figure::Locks => runtime.block_on(locks::show(&server, &programs, rounds(100))),
            Figure::Page => page::show(rounds(20)),
            Figure::Scale => runtime.block_on(scale::show(&programs, rounds(300))),
            Figure::Transactions => runtime.block_on(transactions::show(&server, &programs, rounds(5))),
            Figure::Start => start::show(&programs, rounds(1_000)),
        }
    }
    ExitCode::SUCCESS
}
