//! Carries out the plan in a world, round after round.

use std::time::Duration;

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use support::{Flow, Program, Server, Valve, procfs::children};
use tenure::{clock, process::scan::is_stopped, time::Instant};

use crate::{
    fault::{Fault, Group},
    lease, network,
    plan::{Blow, Plan, Round},
    processor::Spinners,
    rights, window,
    world::{Kind, Past, Span, World, place_of},
};

/// How long to look for a process; in a replica that has just ended there is none.
const SEARCH: Duration = Duration::from_secs(1);
/// For a requested handover; a server in trouble may prevent it.
const HANDED_OVER: Duration = Duration::from_secs(6);
/// A leader for fewer milliseconds is young.
const YOUNG: u64 = 1_000;
/// Pause between two attempts to undo something.
const AGAIN: Duration = Duration::from_millis(200);
/// Every third round begins with a leader that is not tenure.
const PEERS_TURN: usize = 3;
/// The wait for nobody is longer than this, in milliseconds.
const LONG_WAIT: u64 = 3_500;
/// The largest error of a wall clock: a day.
const FAR_OFF: i64 = 86_400;

/// A fault that has to be undone.
enum Undo {
    Resume(Vec<Pid>),
    Network(network::Fault),
    Proxy,
    Trouble(Trouble),
    Finalizer,
    Rights,
    Token,
    Wall,
    Processor,
    Window(Valve),
}

/// Plays rounds until the end; an error if nobody leads after one.
pub(crate) async fn rage(world: &mut World, mut plan: Plan, end: Instant) -> Result<(), String> {
    while clock::boot() < end {
        let Round { calm, blows, aftermath } = plan.next();
        if world.rounds.len() % PEERS_TURN == 1 {
            world.give_way().await;
        }
        let leader = world.led().await?;
        world.pass_until(clock::boot() + calm).await;
        let past = round(world, leader, &blows).await;
        world.pass_until(clock::boot() + aftermath).await;
        let led = world.led().await;
        world.rounds.push(Past { led: clock::boot(), ..past });
        led?;
    }
    Ok(())
}

enum Step<'a> {
    Strike(&'a Blow),
    /// The fault's place and its index among the world's faults, if any.
    Undo(Option<usize>, Option<usize>, Undo),
}

async fn round(world: &mut World, leader: usize, blows: &[Blow]) -> Past {
    let from = clock::boot();
    let mut steps: Vec<(Instant, Step<'_>)> = blows.iter().map(|blow| (from + blow.after, Step::Strike(blow))).collect();
    let mut faults = Vec::new();
    while let Some(next) = (0..steps.len()).min_by_key(|index| steps[*index].0) {
        let (moment, step) = steps.swap_remove(next);
        world.pass_until(moment).await;
        match step {
            Step::Strike(blow) => {
                let chosen = if blow.fault == Fault::ContinueStandby {
                    frozen_standby(world, leader).await
                } else if is_for_the_young(blow) {
                    next_leader(world, leader, blow.chance).await
                } else {
                    None
                };
                let place = chosen.unwrap_or((leader + blow.whom) % world.places.len());
                let begun = clock::boot();
                let Some(undo) = strike(world, place, blow).await else { continue };
                faults.push(blow.fault);
                let place = (!matches!(blow.fault.group(), Group::Server | Group::Lease)).then_some(place);
                // Faults of the server are recorded for all worlds.
                let own = blow.fault.group() != Group::Server;
                let entry = own.then(|| world.book(Span { fault: blow.fault, place, from: begun, to: begun }));
                if let Done::For(undo) = undo {
                    steps.push((clock::boot() + blow.lasts, Step::Undo(place, entry, undo)));
                }
            }
            Step::Undo(place, entry, undo) => {
                let done = revert(world, place, &undo).await;
                if let Some(entry) = entry {
                    world.spans[entry].to = clock::boot();
                }
                if !done {
                    steps.push((clock::boot() + AGAIN, Step::Undo(place, entry, undo)));
                }
            }
        }
    }
    Past { faults, from, over: clock::boot(), led: clock::boot() }
}

/// Returns whether the blow must hit a young leader: every second one that freezes all that guards a leader.
/// The kernel's fuse must cover the leader's daemons by then.
const fn is_for_the_young(blow: &Blow) -> bool {
    matches!(blow.fault, Fault::FreezeBoth) && blow.whom == 0 && blow.chance.is_multiple_of(2)
}

/// Where a workload is frozen until it leads.
async fn frozen_standby(world: &World, leader: usize) -> Option<usize> {
    for place in (0..world.places.len()).filter(|place| *place != leader && world.kind == Kind::Plain) {
        if soon(SEARCH, world.places[place].replica.workload()).await.is_some_and(is_stopped) {
            return Some(place);
        }
    }
    None
}

/// Requests a handover of the Lease: the place of the next leader, within a second of its start.
async fn next_leader(world: &World, leader: usize, chance: u64) -> Option<usize> {
    let witness = &world.stage.witness;
    let before = witness.last_start()?.at();
    let init = soon(SEARCH, world.places[leader].replica.init()).await?;
    kill(init, Signal::SIGTERM).ok()?;
    let next = witness.first("the next start", |event| event.what == "start" && event.at() > before);
    let next = soon(HANDED_OVER, next).await?;
    tokio::time::sleep(Duration::from_millis(chance % YOUNG)).await;
    Some(place_of(&next.replica))
}

/// A fault that was injected.
enum Done {
    AtOnce,
    For(Undo),
}

/// None if it cannot be injected now: there is no such process or Lease, or this machine does not permit it.
async fn strike(world: &mut World, index: usize, blow: &Blow) -> Option<Done> {
    let place = &mut world.places[index];
    let replica = &place.replica;
    let init = async || soon(SEARCH, replica.init()).await;
    let elector = async || soon(SEARCH, replica.elector()).await;
    let workload = async || soon(SEARCH, replica.workload()).await;
    match blow.fault {
        Fault::Term => send(init().await?, Signal::SIGTERM),
        Fault::KillInit => send(init().await?, Signal::SIGKILL),
        Fault::KillElector => send(elector().await?, Signal::SIGKILL),
        Fault::KillElectorAround(moment, half) => {
            Some(Done::For(Undo::Window(window::kill_around(world, index, moment, half).await?)))
        }
        Fault::KillElectorInWait => {
            let after = Duration::from_millis(blow.chance % LONG_WAIT);
            window::kill_in_wait(world, after).await.then_some(Done::AtOnce)
        }
        Fault::KillElectorAfterProof => Some(Done::For(Undo::Window(window::kill_after_proof(world, index).await?))),
        Fault::KillWitness => send(soon(SEARCH, place.witness.init()).await?, Signal::SIGKILL),
        Fault::KillBoth => {
            send(soon(SEARCH, place.witness.init()).await?, Signal::SIGKILL)?;
            send(init().await?, Signal::SIGKILL)
        }
        Fault::FreezeWitness => freeze(vec![soon(SEARCH, place.witness.init()).await?]),
        Fault::KillWorkload => send(workload().await?, Signal::SIGKILL),
        Fault::FreezeInit => freeze(vec![init().await?]),
        Fault::FreezeElector => freeze(vec![elector().await?]),
        Fault::FreezeBoth => freeze(vec![init().await?, elector().await?]),
        Fault::FreezeWorkload => freeze(vec![workload().await?]),
        Fault::ContinueStandby => {
            let main = workload().await.filter(|main| is_stopped(*main))?;
            let child = children(main).into_iter().next().filter(|_| blow.chance.is_multiple_of(2));
            send(child.unwrap_or(main), Signal::SIGCONT)
        }
        Fault::Packets(fault) => {
            place.network.fail(fault);
            if fault == network::Fault::Syns {
                replica.proxy.reset();
            }
            Some(Done::For(Undo::Network(fault)))
        }
        Fault::NoAnswers => {
            replica.proxy.cut();
            Some(Done::For(Undo::Proxy))
        }
        Fault::NoReplies => {
            replica.proxy.replies(Flow::Held);
            Some(Done::For(Undo::Proxy))
        }
        Fault::Refused => {
            replica.proxy.refuse().await;
            Some(Done::For(Undo::Proxy))
        }
        Fault::Reset => {
            replica.proxy.reset();
            Some(Done::AtOnce)
        }
        Fault::FreezeEtcd => trouble(world, blow.fault, |server| Trouble::freeze(server, Program::Etcd)),
        Fault::RestartEtcd => trouble(world, blow.fault, |server| Trouble::restart(server, Program::Etcd)),
        Fault::FreezeApiServer => trouble(world, blow.fault, |server| Trouble::freeze(server, Program::ApiServer)),
        Fault::RestartApiServer => trouble(world, blow.fault, |server| Trouble::restart(server, Program::ApiServer)),
        Fault::Spinners => trouble(world, blow.fault, |_| Trouble::Spinners(Spinners::start(blow.lasts))),
        Fault::Lease(change) => {
            let finalizer = change == lease::Change::DeleteHeldBack;
            let done = if finalizer { Done::For(Undo::Finalizer) } else { Done::AtOnce };
            lease::make(&world.stage, change, blow.chance).await.then_some(done)
        }
        Fault::RevokeRights => rights::unbind(&world.stage, &place.account).await.then_some(Done::For(Undo::Rights)),
        Fault::RevokeToken => rights::revoke(&world.stage, &place.account).await.then_some(Done::For(Undo::Token)),
        Fault::WallForward | Fault::WallBack => {
            let seconds = i64::try_from(blow.chance % FAR_OFF.unsigned_abs()).unwrap_or(FAR_OFF) + 1;
            let sign = if blow.fault == Fault::WallBack { -1 } else { 1 };
            place.wall.shift(sign * seconds).then_some(Done::For(Undo::Wall))
        }
        Fault::Starve => place.processor.starve().then_some(Done::For(Undo::Processor)),
        Fault::Crowd => place.processor.crowd().then_some(Done::For(Undo::Processor)),
    }
}

/// Undoes a fault; returns whether that worked. A server in trouble may prevent it, and may itself be undone next.
async fn revert(world: &mut World, place: Option<usize>, undo: &Undo) -> bool {
    // A replica's fault has a place; the others need none.
    let place = place.unwrap_or_default();
    match undo {
        Undo::Resume(pids) => resume(pids),
        Undo::Network(fault) => world.places[place].network.mend(*fault),
        Undo::Proxy => world.places[place].replica.proxy.mend().await,
        Undo::Trouble(trouble) => {
            trouble.end(&world.shared.server);
            *world.shared.troubled.borrow_mut() = false;
            if let Some(span) = world.shared.spans.borrow_mut().last_mut() {
                span.to = clock::boot();
            }
        }
        Undo::Finalizer => return lease::let_go(&world.stage).await,
        Undo::Rights => return rights::bind(&world.stage, &world.places[place].account).await,
        Undo::Token => {
            let Some(token) = rights::renew(&world.stage, &world.places[place].account).await else { return false };
            let place = &mut world.places[place];
            for name in [&place.replica.name, &place.witness.name] {
                std::fs::write(world.stage.token_file(name), &token).expect("a file");
            }
            place.token = token;
        }
        Undo::Wall => _ = world.places[place].wall.shift(0),
        Undo::Processor => world.places[place].processor.relieve(),
        Undo::Window(valve) => window::let_go(world, valve),
    }
    true
}

/// The output, if it comes in time. The limit is checked first: this test may be delayed for longer than the awaited event allows.
pub(crate) async fn soon<T>(limit: Duration, future: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        biased;
        () = tokio::time::sleep(limit) => None,
        output = future => Some(output),
    }
}

fn send(pid: Pid, signal: Signal) -> Option<Done> {
    kill(pid, signal).is_ok().then_some(Done::AtOnce)
}

fn freeze(pids: Vec<Pid>) -> Option<Done> {
    let frozen = pids.iter().all(|pid| kill(*pid, Signal::SIGSTOP).is_ok());
    // One of the two may have ended: the other must continue.
    if !frozen {
        resume(&pids);
    }
    frozen.then_some(Done::For(Undo::Resume(pids)))
}

fn resume(pids: &[Pid]) {
    for pid in pids {
        // It may have ended by now.
        let _ = kill(*pid, Signal::SIGCONT);
    }
}

/// A server fault affects all worlds; only one at a time.
fn trouble(world: &World, fault: Fault, begin: impl FnOnce(&Server) -> Trouble) -> Option<Done> {
    let shared = &world.shared;
    if shared.troubled.replace(true) {
        return None;
    }
    let begun = begin(&shared.server);
    let now = clock::boot();
    shared.spans.borrow_mut().push(Span { fault, place: None, from: now, to: now });
    Some(Done::For(Undo::Trouble(begun)))
}

/// A fault of the server, or of the machine that all share.
enum Trouble {
    Frozen(Program),
    Restarted,
    Spinners(Spinners),
}

impl Trouble {
    fn freeze(server: &Server, program: Program) -> Self {
        server.signal(program, Signal::SIGSTOP);
        Self::Frozen(program)
    }

    fn restart(server: &Server, program: Program) -> Self {
        server.restart(program);
        Self::Restarted
    }

    fn end(&self, server: &Server) {
        match self {
            Self::Frozen(program) => server.signal(*program, Signal::SIGCONT),
            Self::Restarted => {}
            Self::Spinners(spinners) => spinners.end(),
        }
    }
}
