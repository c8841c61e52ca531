//! Forced transitions of every kind, one after another.

use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use support::{Behaviour, Server};

use crate::{
    contestant::{Contestant, Programs, SHORT},
    handover::{Trio, settle},
    table::title,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Blow {
    Term,
    KillInit,
    KillElectorThenInit,
    StopElector,
    StopInit,
    BlackHole,
    Deleted,
    HolderEdited,
    HolderCleared,
}

impl Blow {
    const ALL: [Self; 9] = [
        Self::Term,
        Self::KillInit,
        Self::KillElectorThenInit,
        Self::StopElector,
        Self::StopInit,
        Self::BlackHole,
        Self::Deleted,
        Self::HolderEdited,
        Self::HolderCleared,
    ];
}

pub async fn show(server: &Server, programs: &Programs, rounds: usize) {
    title(&format!("{rounds} forced transitions, D = {:?}, three replicas", SHORT.duration));
    let mut trio = Trio::start(server, programs, Contestant::Tenure, SHORT, Behaviour::obedient(), true).await;
    let mut leader = trio.next_leader().await;
    for round in 0..rounds {
        settle().await;
        let blow = Blow::ALL[round % Blow::ALL.len()];
        let mut old = trio.take(&leader);
        strike(&trio, &mut old, blow).await;
        let next = trio.next_leader().await;
        tokio::time::sleep(Duration::from_millis(500)).await;
        if next != leader {
            // What is left of this replica would disturb the next fault.
            drop(old);
            trio.add(programs).await;
        } else {
            trio.replicas.push(old);
        }
        leader = next;
    }
    let lives = trio.stage.witness.lives();
    let mut overlaps = 0;
    for pair in lives.windows(2) {
        if let [earlier, later] = pair
            && later.first <= earlier.last
        {
            overlaps += 1;
            println!("  TWO AT ONCE for {:?}: {earlier:?} and {later:?}", earlier.last.since(later.first));
        }
    }
    println!("  {:<20} {} terms, overlaps {overlaps}", Contestant::Tenure.name(), lives.len());
}

async fn strike(trio: &Trio, old: &mut crate::contestant::Replica, blow: Blow) {
    let (init, elector) = (old.init(), old.elector());
    match blow {
        Blow::Term => old.signal(init, Signal::SIGTERM),
        Blow::KillInit => old.signal(init, Signal::SIGKILL),
        Blow::KillElectorThenInit => {
            old.signal(elector, Signal::SIGKILL);
            settle().await;
            // The replica may have ended by itself.
            let _ = kill(init, Signal::SIGKILL);
        }
        Blow::StopElector => old.signal(elector, Signal::SIGSTOP),
        Blow::StopInit => old.signal(init, Signal::SIGSTOP),
        Blow::BlackHole => old.proxy.as_ref().expect("a proxy").cut(),
        Blow::Deleted => trio.stage.lease.delete().await,
        Blow::HolderEdited => drop(trio.stage.lease.edit(|lease| lease["spec"]["holderIdentity"] = "somebody-else".into()).await),
        Blow::HolderCleared => drop(trio.stage.lease.edit(|lease| lease["spec"]["holderIdentity"] = "".into()).await),
    }
}
