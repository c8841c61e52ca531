//! Kills an elector at a chosen moment: while a write of its own is in flight, or while it waits for nobody.

use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use support::{Exchange, Fault, Request, Times, Valve, Verb, procfs::children};
use tenure::{clock, time::Instant};

use crate::{lease, nemesis::soon, world::World};

/// The elector's activity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Moment {
    Acquire,
    Renew,
    Release,
}

/// Which half of the exchange is delayed until long after the elector's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Half {
    Request,
    Reply,
}

/// How long to wait for the moment.
const PATIENCE: Duration = Duration::from_secs(6);
const GLANCE: Duration = Duration::from_millis(10);

impl Moment {
    fn is(self, request: &Request) -> bool {
        let spec = request.spec();
        let takes = request.is_held() && spec["acquireTime"] == spec["renewTime"];
        match self {
            Self::Acquire => takes,
            Self::Renew => request.is_held() && !takes,
            Self::Release => request.is_release(),
        }
    }
}

/// Brings the moment about, delays the write and kills its elector; returns what lets the write continue, or none if the moment
/// did not come.
pub(crate) async fn kill_around(world: &World, leader: usize, moment: Moment, half: Half) -> Option<Valve> {
    let (begun, valve) = (clock::boot(), Valve::closed());
    for place in &world.places {
        let fault = match half {
            Half::Request => Fault::late_request(&valve),
            Half::Reply => Fault::late_reply(&valve),
        };
        place.replica.proxy.on(move |request| moment.is(request), Times::Only(1), fault);
    }
    if moment != Moment::Renew {
        let init = soon(PATIENCE, world.places[leader].replica.init()).await?;
        kill(init, Signal::SIGTERM).ok()?;
    }
    let held = |exchange: &Exchange| moment.is(&exchange.request) && (half == Half::Request || exchange.answer.is_some());
    let killed = kill_whose(world, begun, held).await;
    if killed.is_none() {
        let_go(world, &valve);
    }
    killed.map(|()| valve)
}

/// Lets it continue; nothing more is delayed.
pub(crate) fn let_go(world: &World, valve: &Valve) {
    valve.open();
    for place in &world.places {
        place.replica.proxy.clear();
    }
}

/// Asks the leader to stop, delays the answers to what it reads before it releases the Lease, and kills its elector when nothing
/// of the workload is left; returns what lets the answers continue, or none if that did not come about.
pub(crate) async fn kill_after_proof(world: &World, leader: usize) -> Option<Valve> {
    let (valve, place) = (Valve::closed(), &world.places[leader]);
    let init = soon(PATIENCE, place.replica.init()).await?;
    let elector = soon(PATIENCE, place.replica.elector()).await?;
    place.replica.proxy.on(|request| request.verb == Verb::Get, Times::Always, Fault::late_reply(&valve));
    let killed = async {
        kill(init, Signal::SIGTERM).ok()?;
        let begun = clock::boot();
        while children(init) != [elector] {
            if clock::boot().since(begun) > PATIENCE {
                return None;
            }
            tokio::time::sleep(GLANCE).await;
        }
        kill(elector, Signal::SIGKILL).ok()
    };
    let killed = killed.await;
    if killed.is_none() {
        let_go(world, &valve);
    }
    killed.map(|()| valve)
}

/// Deletes the Lease, and kills the elector that recreates it this long after it did; whether that came about.
pub(crate) async fn kill_in_wait(world: &World, after: Duration) -> bool {
    let begun = clock::boot();
    if !lease::make(&world.stage, lease::Change::Delete, 0).await {
        return false;
    }
    let made = |exchange: &Exchange| {
        let request = &exchange.request;
        request.is_nobody() && exchange.succeeded() && clock::boot() >= request.at + after
    };
    kill_whose(world, begun, made).await.is_some()
}

/// Waits for such an exchange since then; kills the elector that made it.
async fn kill_whose(world: &World, begun: Instant, is_so: impl Fn(&Exchange) -> bool) -> Option<()> {
    while clock::boot().since(begun) < PATIENCE {
        for place in &world.places {
            if place.replica.proxy.log.has_since(begun, &is_so) {
                let elector = soon(PATIENCE, place.replica.elector()).await?;
                return kill(elector, Signal::SIGKILL).ok();
            }
        }
        tokio::time::sleep(GLANCE).await;
    }
    None
}
