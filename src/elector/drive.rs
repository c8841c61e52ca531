//! The elector's loop: its wake-ups, and the [`Process`] around its [`Turn`].
//!
//! What tasks bring (answers, events, probes) waits in the inbox, from where [`Turn`] takes it. An event of a watch that was
//! replaced is dropped. Telemetry may amend the trace context of a Lead on its way to init.

use std::{future::pending, io, time::Duration};

use tokio::{
    io::unix::AsyncFd,
    sync::mpsc,
    task::{JoinSet, spawn},
    time::timeout,
};

use super::{
    endpoint_slice::Traffic,
    guard::Guard,
    kubernetes_events::Events,
    lease::Lease,
    register,
    remains::Init,
    workload_probe::{self, ProgramStart},
};
use crate::{
    alarm::Alarm,
    clock,
    config::WorkloadConfig,
    election::{
        Event, Input, Request, RequestId,
        turn::{Arrived, Process, Turn},
    },
    http::Health,
    link::{FLUSH, InitialState, Term, ToElector, ToInit},
    process::memory,
    request::{Answer, Operation, WatchEnd, Watched},
    slot::Slot,
    telemetry::{
        Telemetry,
        recorder::Recorder,
        status::{Change, Fact, Requested},
    },
    time::{Instant, Now, wait},
    wire::{Broken, End},
    words::bounded,
};

/// A burst of watch events waits in the connection, not in memory.
const INBOX: usize = 16;

/// The elector's end of the link to init. No call blocks, so that a stopped init does not stop the elector.
pub(super) type Link = AsyncFd<End>;

/// The edges of the loop.
pub(super) struct Edges {
    pub(super) link: Link,
    pub(super) lease: Lease,
    pub(super) guard: Guard,
    pub(super) init: Init,
    pub(super) health: Health,
    pub(super) recorder: Recorder,
    pub(super) telemetry: Telemetry,
    pub(super) traffic: Option<Traffic>,
    pub(super) events: Option<Events>,
}

/// The elector's loop.
pub(super) struct EventLoop {
    turn: Turn,
    process: Running,
    alarm: AsyncFd<Alarm>,
    /// The instant that the alarm is set to; [`Instant::NEVER`] once it has fired.
    alarm_at: Instant,
}

/// The process around a turn.
struct Running {
    edges: Edges,
    arrive: mpsc::Sender<Handed>,
    arrived: mpsc::Receiver<Handed>,
    /// The message that has ended the last wait.
    woken_by: Option<Handed>,
    /// Each has one task, which is aborted with its set.
    request: JoinSet<()>,
    watch: JoinSet<()>,
    watches: u64,
    /// The probes.
    workload: WorkloadConfig,
    start: ProgramStart,
    /// Shown once the actions of the turn are carried out, with the times at which they happened.
    facts: Vec<(Fact, Now)>,
}

/// A message of a task to the loop.
enum Handed {
    Answer(RequestId, Operation, Answer, Duration),
    /// A watch whose answer took this long to begin, or failed with this status.
    WatchAnswered(Result<(), Option<u16>>, Duration),
    /// From the watch of this number.
    Watched(u64, Watched),
    /// What init is to be told: the answer of a probe, that the slice shows the end of a term, or that telemetry is flushed.
    ForInit(Box<ToInit>),
}

impl EventLoop {
    /// Makes the loop. `start` makes its turn once all else is set up.
    ///
    /// # Errors
    /// There is no timer.
    pub(super) fn new(mut edges: Edges, initial: InitialState, start: impl FnOnce(InitialState) -> Turn) -> io::Result<Self> {
        if let Some(resume) = &initial.resume {
            edges.guard.arm(resume.term, resume.confirmed.deadlines.hard);
        }
        let (arrive, arrived) = mpsc::channel(INBOX);
        Ok(Self {
            process: Running {
                edges,
                arrive,
                arrived,
                woken_by: None,
                request: JoinSet::new(),
                watch: JoinSet::new(),
                watches: 0,
                workload: initial.config.workload.clone(),
                start: ProgramStart::default(),
                facts: Vec::new(),
            },
            alarm: register(Alarm::nonblocking()?)?,
            alarm_at: Instant::NEVER,
            turn: start(initial),
        })
    }

    /// Runs until the link ends. Returns how it ended, and init as it was known.
    pub(super) async fn run(mut self) -> (Broken, Init) {
        let broken = self.turns().await;
        // The guard kills the descendants of init's pid, which may be reused now.
        self.process.edges.guard.disarm();
        (broken, self.process.edges.init)
    }

    async fn turns(&mut self) -> Broken {
        loop {
            if let Err(broken) = self.turn() {
                return broken;
            }
            if let Err(error) = self.wait().await {
                return Broken::Socket(error);
            }
        }
    }

    fn turn(&mut self) -> Result<(), Broken> {
        let ran = self.turn.run(&mut self.process);
        self.process.show_all();
        ran?;
        self.process.edges.link.get_mut().flush()?;
        self.process.show(&Fact::Elects(self.turn.election().view()), clock::now());
        Ok(())
    }

    async fn wait(&mut self) -> io::Result<()> {
        let next = self.turn.due();
        if self.alarm_at != next {
            self.alarm.get_ref().set(wait(next.since(clock::boot()), self.turn.whole()))?;
            self.alarm_at = next;
        }
        let Running { edges, arrived, woken_by, .. } = &mut self.process;
        tokio::select! {
            ready = ready(&edges.link) => ready?,
            ready = self.alarm.readable() => {
                ready?.clear_ready();
                // If it was set again since, there is nothing to take in, which is no error.
                let _ = self.alarm.get_ref().wait();
                self.alarm_at = Instant::NEVER;
            }
            handed = arrived.recv() => *woken_by = handed,
            term = withdrawn(&mut edges.traffic) => *woken_by = Some(Handed::ForInit(Box::new(ToInit::Withdrawn { term }))),
        }
        Ok(())
    }
}

impl Process for Running {
    type End = Broken;

    fn now(&self) -> Now {
        clock::now()
    }

    fn receive(&mut self, now: Now) -> Result<Option<ToElector>, Broken> {
        let Some(message) = self.edges.link.get_mut().receive()? else { return Ok(None) };
        self.edges.init.told(&message);
        self.edges.guard.told(&message);
        self.facts.push((Fact::Told(message.clone()), now));
        if let ToElector::Probe { kind, began, since } = message {
            let (probe, arrive) = (kind.of(&self.workload).clone(), self.arrive.clone());
            let since = self.start.wall(since, clock::now());
            spawn(async move {
                let failure = workload_probe::ask(kind, probe, since).await;
                let _ = arrive.send(Handed::ForInit(Box::new(ToInit::Probed { kind, began, failure }))).await;
            });
        }
        Ok(Some(message))
    }

    fn arrived(&mut self) -> Option<Arrived> {
        loop {
            let handed = self.woken_by.take().or_else(|| self.arrived.try_recv().ok())?;
            if let Some(arrived) = self.take_in(handed) {
                return Some(arrived);
            }
        }
    }

    fn request(&mut self, slot: Slot, id: RequestId, request: Request) {
        let (lease, arrive) = (self.edges.lease.clone(), self.arrive.clone());
        self.request = JoinSet::new();
        self.request.spawn(async move {
            let sent = clock::boot();
            let answer = lease.send(slot, &request).await;
            let took = clock::boot().since(sent);
            let _ = arrive.send(Handed::Answer(id, request.operation(), answer, took)).await;
        });
    }

    fn watch(&mut self, resource_version: Option<String>) {
        if self.watches > 0 {
            self.facts.push((Fact::WatchesAgain, self.now()));
        }
        self.watches += 1;
        let (number, sent) = (self.watches, clock::boot());
        let (lease, arrive) = (self.edges.lease.clone(), self.arrive.clone());
        self.watch = JoinSet::new();
        self.watch.spawn(async move {
            let mut watching = lease.watch(resource_version).await;
            let answer = watching.as_ref().map(|_| ()).map_err(WatchEnd::status);
            let _ = arrive.send(Handed::WatchAnswered(answer, clock::boot().since(sent))).await;
            loop {
                let watched = match &mut watching {
                    Ok(watching) => watching.next().await,
                    Err(end) => Watched::Ended(end.clone()),
                };
                let is_over = matches!(watched, Watched::Ended(_));
                let _ = arrive.send(Handed::Watched(number, watched)).await;
                if is_over {
                    return;
                }
            }
        });
    }

    fn telling(&mut self, message: &mut ToInit) {
        if let ToInit::Lead { info, .. } = message {
            self.edges.telemetry.amend(info);
        }
        if let ToInit::GaveUp { message, .. } = message {
            *message = bounded(message).into_owned();
        }
        self.edges.guard.telling(message);
        self.facts.push((Fact::Telling(message.clone()), self.now()));
    }

    fn send(&mut self, message: &ToInit) -> Result<(), Broken> {
        self.edges.link.get_mut().send(message)
    }

    fn is_clogged(&self) -> bool {
        self.edges.link.get_ref().is_clogged()
    }

    /// Sends telemetry that is left, and finishes a withdrawal that is under way, before init is told `Done`: this process ends
    /// with init.
    fn finish(&mut self) {
        self.show_all();
        let flushed = self.edges.telemetry.finish();
        let under_way = [self.edges.traffic.take().map(Traffic::finish), self.edges.events.take().map(Events::finish)];
        let arrive = self.arrive.clone();
        spawn(async move {
            let others = timeout(FLUSH, async {
                for task in under_way.into_iter().flatten() {
                    let _ = task.await;
                }
            });
            let _ = tokio::join!(flushed, others);
            // They are done, or out of time.
            let _ = arrive.send(Handed::ForInit(Box::new(ToInit::Done))).await;
        });
    }

    fn report(&mut self, event: Event, now: Now) {
        self.facts.push((Fact::Event(event), now));
    }
}

impl Running {
    fn show_all(&mut self) {
        for (fact, at) in std::mem::take(&mut self.facts) {
            if matches!(fact, Fact::Event(Event::Ready)) {
                // Memory that only the start needed (configuration, certificates, the first handshake) is given back.
                memory::forget_start();
                memory::keep_what_is_used();
            }
            self.show(&fact, at);
        }
    }

    /// Takes a fact into the status, and shows the change to all edges; first what the fact completes.
    fn show(&mut self, fact: &Fact, at: Now) {
        let health = &self.edges.health;
        let before = health.status().clone();
        health.apply(fact, at.boot);
        let after = health.status().clone();
        let change = Change { before: &before, after: &after, fact, at };
        if let Some(recorded) = self.edges.recorder.changed(&change) {
            self.show(&Fact::Recorded(recorded), at);
        }
        let Edges { telemetry, traffic, events, .. } = &mut self.edges;
        telemetry.changed(&change);
        if let Some(traffic) = traffic {
            traffic.changed(&change);
        }
        if let Some(events) = events {
            events.changed(&change);
        }
    }

    fn take_in(&mut self, handed: Handed) -> Option<Arrived> {
        match handed {
            Handed::Answer(id, operation, answer, took) => {
                self.facts.push((Fact::Requested(Requested::answer(operation, &answer, took)), self.now()));
                Some(Arrived::Input(Input::Answered { id, answer }))
            }
            Handed::WatchAnswered(answer, took) => {
                self.facts.push((Fact::Requested(Requested::watch(answer, took)), self.now()));
                None
            }
            Handed::Watched(number, watched) if number == self.watches => Some(Arrived::Input(Input::Watched(watched))),
            // An event of a watch that was replaced.
            Handed::Watched(..) => None,
            Handed::ForInit(message) => Some(Arrived::ForInit(*message)),
        }
    }
}

/// Waits until a message may have come, or there may be room for what is unsent.
pub(super) async fn ready(link: &Link) -> io::Result<()> {
    // Readiness is cleared before the socket is tried, so that what comes in between wakes the loop again.
    if link.get_ref().is_clogged() {
        tokio::select! {
            ready = link.readable() => ready?.clear_ready(),
            ready = link.writable() => ready?.clear_ready(),
        }
    } else {
        link.readable().await?.clear_ready();
    }
    Ok(())
}

async fn withdrawn(traffic: &mut Option<Traffic>) -> Term {
    match traffic {
        Some(traffic) => traffic.withdrawn().await,
        None => pending().await,
    }
}

#[cfg(test)]
mod tests;
