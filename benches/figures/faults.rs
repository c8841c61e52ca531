//! Faults that happen in clusters: how long two workloads overlapped, how long the old leader ran on, and when the next one ran.

use std::{
    future::poll_fn,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use nix::sys::signal::Signal;
use support::{Behaviour, Flow, Life, Server};
use tenure::{clock, time::Instant};

use crate::{
    contestant::{Contestant, DEFAULT, Programs},
    handover::{Trio, settle},
    table::title,
};

#[derive(Clone, Copy, Debug)]
pub enum Fault {
    SlowStop,
    BlackHole,
    BlackHoleSlowStop,
    RepliesSwallowed,
    ElectorFrozen,
    InitFrozen,
    BothFrozen,
    HolderEdited,
    HolderCleared,
    Deleted,
}

/// How long a slow workload takes from SIGTERM to its exit.
const SLOW: Duration = Duration::from_secs(3);
/// No next leader is expected after this: two durations, and what precedes them.
const PATIENCE: Duration = Duration::from_secs(45);

impl Fault {
    const ALL: [Self; 10] = [
        Self::SlowStop,
        Self::BlackHole,
        Self::BlackHoleSlowStop,
        Self::RepliesSwallowed,
        Self::ElectorFrozen,
        Self::InitFrozen,
        Self::BothFrozen,
        Self::HolderEdited,
        Self::HolderCleared,
        Self::Deleted,
    ];

    const fn describe(self) -> &'static str {
        match self {
            Self::SlowStop => "SIGTERM, workload stops after 3 s",
            Self::BlackHole => "API connection swallowed both ways",
            Self::BlackHoleSlowStop => "the same, workload stops after 3 s",
            Self::RepliesSwallowed => "replies swallowed, requests arrive",
            Self::ElectorFrozen => "elector (or wrapper) frozen by SIGSTOP",
            Self::InitFrozen => "init (or wrapper) frozen by SIGSTOP",
            Self::BothFrozen => "init and elector frozen by SIGSTOP",
            Self::HolderEdited => "holder edited by hand",
            Self::HolderCleared => "holder cleared by hand",
            Self::Deleted => "Lease deleted by hand",
        }
    }

    fn behaviour(self) -> Behaviour {
        let linger = match self {
            Self::SlowStop | Self::BlackHoleSlowStop => SLOW,
            Self::BlackHole
            | Self::RepliesSwallowed
            | Self::ElectorFrozen
            | Self::InitFrozen
            | Self::BothFrozen
            | Self::HolderEdited
            | Self::HolderCleared
            | Self::Deleted => Duration::ZERO,
        };
        Behaviour::lingering(linger)
    }
}

pub async fn show(server: &Server, programs: &Programs, rounds: usize) {
    title("Faults of a leader, D = 15 s, three replicas; what was broken is mended 10 s after the next leader started");
    for fault in Fault::ALL {
        for _ in 0..rounds {
            // The contestants mostly wait, and do not depend on each other.
            let contestants = programs.contestants();
            let outcomes = all(contestants.iter().map(|who| strike(server, programs, *who, fault)).collect()).await;
            for (who, outcome) in contestants.into_iter().zip(outcomes) {
                print(fault, who, &outcome);
            }
        }
    }
}

/// The result of one fault.
pub async fn one(server: &Server, programs: &Programs, who: Contestant, fault: Fault) {
    print(fault, who, &strike(server, programs, who, fault).await);
}

fn print(fault: Fault, who: Contestant, outcome: &Outcome) {
    let millis = |span: Duration| span.as_secs_f64() * 1e3;
    let next = outcome.next.map_or_else(|| "-".to_owned(), |next| format!("{:.0}", millis(next.since(outcome.began))));
    println!(
        "  {:<42} {:<20} two at once {:>8.0} ms   the old one went on {:>8.0} ms   the next one ran after {:>8} ms",
        fault.describe(),
        who.name(),
        millis(outcome.next.map_or(Duration::ZERO, |next| outcome.last.since(next))),
        millis(outcome.last.since(outcome.began)),
        next,
    );
}

struct Outcome {
    began: Instant,
    /// The last sign of life of the old leader's workload.
    last: Instant,
    /// The first sign of life of the next leader's workload.
    next: Option<Instant>,
}

async fn strike(server: &Server, programs: &Programs, who: Contestant, fault: Fault) -> Outcome {
    let mut trio = Trio::start(server, programs, who, DEFAULT, fault.behaviour(), true).await;
    let leader = trio.next_leader().await;
    settle().await;
    let began = clock::boot();
    apply(&mut trio, &leader, fault).await;
    // There is no next leader if the old one keeps the Lease.
    drop(tokio::time::timeout(PATIENCE, trio.next_leader()).await);
    tokio::time::sleep(Duration::from_secs(10)).await;
    undo(&mut trio, &leader, fault).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let lives = trio.stage.witness.lives();
    let (old, new): (Vec<Life>, Vec<Life>) = lives.into_iter().partition(|life| life.first <= began);
    let last = old.iter().filter(|life| life.replica == leader).map(|life| life.last).max();
    Outcome { began, last: last.unwrap_or(began), next: new.first().map(|life| life.first) }
}

async fn apply(trio: &mut Trio, leader: &str, fault: Fault) {
    let replica = trio.replica(leader);
    let (init, elector) = (replica.init(), replica.elector());
    match fault {
        Fault::SlowStop => replica.signal(init, Signal::SIGTERM),
        Fault::BlackHole | Fault::BlackHoleSlowStop => replica.proxy.as_ref().expect("a proxy").cut(),
        Fault::RepliesSwallowed => replica.proxy.as_ref().expect("a proxy").replies(Flow::Held),
        Fault::ElectorFrozen => replica.signal(elector, Signal::SIGSTOP),
        Fault::InitFrozen => replica.signal(init, Signal::SIGSTOP),
        Fault::BothFrozen => {
            replica.signal(init, Signal::SIGSTOP);
            replica.signal(elector, Signal::SIGSTOP);
        }
        Fault::HolderEdited => write_holder(trio, "somebody-else").await,
        Fault::HolderCleared => write_holder(trio, "").await,
        Fault::Deleted => trio.stage.lease.delete().await,
    }
}

async fn write_holder(trio: &Trio, holder: &str) {
    trio.stage.lease.edit(|lease| lease["spec"]["holderIdentity"] = holder.into()).await;
}

async fn undo(trio: &mut Trio, leader: &str, fault: Fault) {
    let replica = trio.replica(leader);
    match fault {
        Fault::BlackHole | Fault::BlackHoleSlowStop | Fault::RepliesSwallowed => {
            replica.proxy.as_ref().expect("a proxy").mend().await;
        }
        Fault::ElectorFrozen | Fault::InitFrozen | Fault::BothFrozen if !replica.has_ended() => {
            let (init, elector) = (replica.init(), replica.elector());
            // Either replica may have ended by now.
            let _ = nix::sys::signal::kill(elector, Signal::SIGCONT);
            let _ = nix::sys::signal::kill(init, Signal::SIGCONT);
        }
        Fault::ElectorFrozen
        | Fault::InitFrozen
        | Fault::BothFrozen
        | Fault::SlowStop
        | Fault::HolderEdited
        | Fault::HolderCleared
        | Fault::Deleted => {}
    }
}

/// The outputs of all futures, which run concurrently.
async fn all<F: Future>(futures: Vec<F>) -> Vec<F::Output> {
    let mut running: Vec<Pin<Box<F>>> = futures.into_iter().map(Box::pin).collect();
    let mut outputs: Vec<Option<F::Output>> = running.iter().map(|_| None).collect();
    poll_fn(|context: &mut Context<'_>| {
        for (future, output) in running.iter_mut().zip(&mut outputs).filter(|(_, output)| output.is_none()) {
            if let Poll::Ready(ready) = future.as_mut().poll(context) {
                *output = Some(ready);
            }
        }
        if outputs.iter().all(Option::is_some) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    outputs.into_iter().flatten().collect()
}
