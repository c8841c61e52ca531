//! What goes wrong in clusters, once each: how long two ran at once, and how long an old leader went on.

use std::time::Duration;

use nix::sys::signal::Signal;
use tenure::clock;

use crate::{
    contestant::{BOTH, DEFAULT, Programs},
    handover::{Trio, settle},
    support::{proxy::flow::Flow, server::Server, workload::Behaviour},
    table::title,
};

#[derive(Clone, Copy, Debug)]
enum Fault {
    BlackHole,
    RepliesSwallowed,
    ElectorFrozen,
    InitFrozen,
    BothFrozen,
    HolderEdited,
}

impl Fault {
    const ALL: [Self; 6] =
        [Self::BlackHole, Self::RepliesSwallowed, Self::ElectorFrozen, Self::InitFrozen, Self::BothFrozen, Self::HolderEdited];

    const fn describe(self) -> &'static str {
        match self {
            Self::BlackHole => "API connection swallowed both ways",
            Self::RepliesSwallowed => "replies swallowed, requests arrive",
            Self::ElectorFrozen => "elector (or wrapper) frozen by SIGSTOP",
            Self::InitFrozen => "init (or wrapper) frozen by SIGSTOP",
            Self::BothFrozen => "init and elector frozen by SIGSTOP",
            Self::HolderEdited => "holder edited by hand",
        }
    }
}

pub async fn show(server: &Server, programs: &Programs) {
    title("Faults of a leader, D = 15 s, three replicas; frozen processes are resumed 10 s after the next leader started");
    for fault in Fault::ALL {
        for who in BOTH {
            let mut trio = Trio::start(server, programs, who, DEFAULT, Behaviour::obedient(), true).await;
            let leader = trio.next_leader().await;
            settle().await;
            let began = clock::boot();
            apply(&mut trio, &leader, fault).await;
            let next = if matches!(fault, Fault::HolderEdited) { None } else { Some(trio.next_leader().await) };
            tokio::time::sleep(Duration::from_secs(10)).await;
            undo(&mut trio, &leader, fault).await;
            tokio::time::sleep(Duration::from_secs(2)).await;
            let went_on = trio.stage.witness.last_alive(&leader).since(began);
            let at_once = next.map_or(0.0, |next| (-trio.gap(&leader, &next)).max(0.0));
            println!(
                "  {:<42} {:<20} two at once {:>8.0} ms   the old one went on {:>8.0} ms",
                fault.describe(),
                who.name(),
                at_once,
                went_on.as_secs_f64() * 1e3
            );
        }
    }
}

async fn apply(trio: &mut Trio, leader: &str, fault: Fault) {
    let replica = trio.replica(leader);
    let (init, elector) = (replica.init(), replica.elector());
    match fault {
        Fault::BlackHole => replica.proxy.as_ref().expect("a proxy").cut(),
        Fault::RepliesSwallowed => replica.proxy.as_ref().expect("a proxy").replies(Flow::Held),
        Fault::ElectorFrozen => replica.signal(elector, Signal::SIGSTOP),
        Fault::InitFrozen => replica.signal(init, Signal::SIGSTOP),
        Fault::BothFrozen => {
            replica.signal(init, Signal::SIGSTOP);
            replica.signal(elector, Signal::SIGSTOP);
        }
        Fault::HolderEdited => {
            trio.stage.lease.edit(|lease| lease["spec"]["holderIdentity"] = "somebody-else".into()).await;
        }
    }
}

async fn undo(trio: &mut Trio, leader: &str, fault: Fault) {
    let replica = trio.replica(leader);
    match fault {
        Fault::BlackHole | Fault::RepliesSwallowed => replica.proxy.as_ref().expect("a proxy").mend().await,
        Fault::ElectorFrozen | Fault::InitFrozen | Fault::BothFrozen if !replica.has_ended() => {
            let (init, elector) = (replica.init(), replica.elector());
            // Either may be gone by now.
            let _ = nix::sys::signal::kill(elector, Signal::SIGCONT);
            let _ = nix::sys::signal::kill(init, Signal::SIGCONT);
        }
        Fault::ElectorFrozen | Fault::InitFrozen | Fault::BothFrozen | Fault::HolderEdited => {}
    }
}
