//! The loop: what wakes the elector, and in which order it acts.
//!
//! After every wake-up the link is drained first, then deadlines are acted on, then answers are taken in, then the machine's
//! actions are carried out, in order (law 9). The time of a write is read before the machine makes it, and that of a sight after
//! its last byte.

use std::{future::pending, io, time::Duration};

use tokio::{
    io::unix::AsyncFd,
    sync::mpsc,
    task::{AbortHandle, spawn},
    time::timeout,
};

use super::{
    events::Events, guard::Guard, lease::Lease, link::Link, probe, register, remains::Init, slew::Slew, traffic::Traffic,
};
use crate::{
    alarm::Alarm,
    clock,
    config::WorkloadConfig,
    election::{Action, Answer, Event, Input, Operation, Pool, Request, RequestId, Watched},
    http::Health,
    link::{FLUSH, InitialState, Slot, Term, ToElector, ToInit},
    process::memory,
    telemetry::Telemetry,
    time::{Instant, Now},
    wire::Broken,
    words::bounded,
};

/// A burst of watch events waits in the connection, not in memory.
const INBOX: usize = 16;

/// Heartbeats in one D.
const BEATS: u32 = 4;

/// What the loop needs, beside its state machine.
pub(super) struct Edges {
    pub(super) link: Link,
    pub(super) lease: Lease,
    pub(super) guard: Guard,
    pub(super) health: Health,
    pub(super) telemetry: Telemetry,
    pub(super) traffic: Option<Traffic>,
    pub(super) events: Option<Events>,
}

/// The elector's loop.
pub(super) struct EventLoop {
    edges: Edges,
    elector: Pool,
    alarm: AsyncFd<Alarm>,
    /// What the alarm is set to; [`Instant::NEVER`] once it has fired.
    alarm_at: Instant,
    arrive: mpsc::Sender<Arrived>,
    arrived: mpsc::Receiver<Arrived>,
    request: Option<Task>,
    watch: Option<Task>,
    watches: u64,
    beat_every: Duration,
    beat_due: Instant,
    /// As init said last.
    is_unready: bool,
    slew: Slew,
    /// What is asked of it.
    workload: WorkloadConfig,
}

/// What tasks hand to the loop.
enum Arrived {
    Answer(RequestId, Operation, Answer, Duration),
    /// A watch whose answer took this long to begin, or failed with this status.
    WatchAnswered(Result<(), Option<u16>>, Duration),
    /// From the watch of this number.
    Watched(u64, Watched),
    /// The workload was asked.
    Probed(Box<ToInit>),
    /// The slice shows that this term is over.
    Withdrawn(Term),
    /// Telemetry is flushed, or out of time: init may be told that all is done.
    Flushed,
}

/// A task that is aborted when this is dropped.
struct Task(AbortHandle);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl EventLoop {
    /// The loop of a machine that `start` makes once everything around it is set up.
    ///
    /// # Errors
    /// There is no timer.
    pub(super) fn new(mut edges: Edges, initial: InitialState, start: impl FnOnce(InitialState) -> Pool) -> io::Result<Self> {
        let beat_every = initial.config.lease.duration / BEATS;
        if let Some(resume) = &initial.resume {
            edges.guard.arm(resume.term, resume.confirmed.deadlines.hard);
        }
        let (arrive, arrived) = mpsc::channel(INBOX);
        Ok(Self {
            edges,
            alarm: register(Alarm::nonblocking()?)?,
            alarm_at: Instant::NEVER,
            arrive,
            arrived,
            request: None,
            watch: None,
            watches: 0,
            beat_every,
            beat_due: Instant::BOOT,
            is_unready: initial.config.workload.readiness.means().is_some(),
            slew: Slew::new(initial.config.timing().drift),
            workload: initial.config.workload.clone(),
            elector: start(initial),
        })
    }

    /// Runs until the link ends; returns how it ended.
    pub(super) async fn run(mut self, init: &mut Init) -> Broken {
        let broken = self.turns(init).await;
        // It kills the descendants of init's pid, which may be reused now.
        self.edges.guard.disarm();
        broken
    }

    async fn turns(&mut self, init: &mut Init) -> Broken {
        let mut woken_by = None;
        loop {
            if let Err(broken) = self.turn(init, woken_by.take()) {
                return broken;
            }
            woken_by = match self.wait().await {
                Ok(arrived) => arrived,
                Err(error) => return Broken::Socket(error),
            };
        }
    }

    /// One turn, in the order of law 9.
    fn turn(&mut self, init: &mut Init, mut arrived: Option<Arrived>) -> Result<(), Broken> {
        // Read before the link is drained, so that no deadline counts that passes only after that.
        let now = clock::now();
        while let Some(message) = self.edges.link.receive()? {
            init.told(&message);
            self.told(message, now);
        }
        self.elector.handle_timeout(now);
        while let Some(next) = arrived.take().or_else(|| self.arrived.try_recv().ok()) {
            self.take_in(next)?;
        }
        while let Some(action) = self.elector.poll_action() {
            self.carry_out(action)?;
        }
        // Early, since the loop is awake anyway: one wake-up less.
        if self.beat_due.before(self.beat_every / 4) <= clock::boot() {
            self.beat()?;
        }
        self.edges.link.flush()?;
        let view = self.elector.view();
        self.edges.telemetry.holds(view.leading.map(|led| led.deadlines.soft));
        self.edges.health.update(view);
        self.slew.look(clock::boot());
        Ok(())
    }

    async fn wait(&mut self) -> io::Result<Option<Arrived>> {
        let next = self.elector.poll_timeout().unwrap_or(Instant::NEVER).min(self.beat_due);
        if self.alarm_at != next {
            self.alarm.get_ref().set(next)?;
            self.alarm_at = next;
        }
        tokio::select! {
            ready = self.edges.link.ready() => ready.map(|()| None),
            ready = self.alarm.readable() => {
                ready?.clear_ready();
                // Not an error if it was set again since: then there is nothing to take in.
                let _ = self.alarm.get_ref().wait();
                self.alarm_at = Instant::NEVER;
                Ok(None)
            }
            arrived = self.arrived.recv() => Ok(arrived),
            term = withdrawn(&mut self.edges.traffic) => Ok(Some(Arrived::Withdrawn(term))),
        }
    }

    fn told(&mut self, message: ToElector, now: Now) {
        self.edges.guard.told(&message);
        self.edges.health.heard(&message, now.boot);
        self.edges.telemetry.heard(&message);
        self.edges.traffic.iter_mut().for_each(|traffic| traffic.told(&message));
        self.edges.events.iter_mut().for_each(|events| events.heard(&message));
        if let ToElector::Health { unready, .. } = &message
            && std::mem::replace(&mut self.is_unready, unready.is_some()) != unready.is_some()
        {
            // Init waits for a sign before it says more of it.
            self.beat_due = Instant::BOOT;
        }
        if let ToElector::Probe { kind, began } = message {
            let (probe, arrive) = (kind.of(&self.workload).clone(), self.arrive.clone());
            spawn(async move {
                let failure = probe::ask(kind, probe).await;
                let _ = arrive.send(Arrived::Probed(Box::new(ToInit::Probed { kind, began, failure }))).await;
            });
        }
        self.elector.handle(Input::Told(message), now);
    }

    fn take_in(&mut self, arrived: Arrived) -> Result<(), Broken> {
        let input = match arrived {
            Arrived::Answer(id, operation, answer, took) => {
                self.edges.telemetry.requested(operation, &answer, took);
                Input::Answered { id, answer }
            }
            Arrived::WatchAnswered(answer, took) => {
                self.edges.telemetry.watched(answer, took);
                return Ok(());
            }
            Arrived::Watched(number, watched) if number == self.watches => Input::Watched(watched),
            // Of a watch that was replaced.
            Arrived::Watched(..) => return Ok(()),
            Arrived::Probed(answer) => return self.send_to_init(&answer),
            Arrived::Withdrawn(term) => return self.send_to_init(&ToInit::Withdrawn { term }),
            Arrived::Flushed => return self.send_to_init(&ToInit::Done),
        };
        self.elector.handle(input, clock::now());
        Ok(())
    }

    fn carry_out(&mut self, action: Action) -> Result<(), Broken> {
        match action {
            Action::Request { slot, id, request } => self.request = Some(self.send(slot, id, request)),
            Action::Watch { resource_version } => self.watch = Some(self.watch(resource_version)),
            Action::Tell(message) => self.tell(message)?,
            Action::Report(event) => {
                if event == Event::Ready {
                    // The start is over: configuration, certificates, the first handshake.
                    memory::forget_start();
                    memory::keep_what_is_used();
                }
                self.edges.health.event(&event);
                self.edges.telemetry.report(&event, clock::boot());
                self.edges.events.iter_mut().for_each(|events| events.event(&event));
            }
        }
        Ok(())
    }

    fn tell(&mut self, mut message: ToInit) -> Result<(), Broken> {
        if let ToInit::Lead { info, .. } = &mut message {
            self.edges.telemetry.amend(info);
        }
        if let ToInit::GaveUp { message, .. } = &mut message {
            *message = bounded(message).into_owned();
        }
        self.edges.guard.telling(&message);
        self.edges.traffic.iter_mut().for_each(|traffic| traffic.telling(&message));
        self.edges.events.iter_mut().for_each(|events| events.telling(&message));
        if message == ToInit::Done {
            self.finish();
            return Ok(());
        }
        self.send_to_init(&message)
    }

    /// A heartbeat, unless earlier messages still wait to be sent.
    fn beat(&mut self) -> Result<(), Broken> {
        if self.edges.link.is_clogged() {
            self.beat_due = clock::boot() + self.beat_every;
            return Ok(());
        }
        self.send_to_init(&ToInit::Heartbeat)
    }

    /// Every message is a heartbeat.
    fn send_to_init(&mut self, message: &ToInit) -> Result<(), Broken> {
        self.beat_due = clock::boot() + self.beat_every;
        self.edges.link.send(message)
    }

    /// Init's end is the end of this process, so what telemetry still has, and a withdrawal that is under way, go out before init is
    /// told that all is done.
    fn finish(&mut self) {
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
            let _ = arrive.send(Arrived::Flushed).await;
        });
    }

    fn send(&self, slot: Slot, id: RequestId, request: Request) -> Task {
        let (lease, arrive) = (self.edges.lease.clone(), self.arrive.clone());
        let task = spawn(async move {
            let sent = clock::boot();
            let answer = lease.send(slot, &request).await;
            let took = clock::boot().since(sent);
            let _ = arrive.send(Arrived::Answer(id, request.operation(), answer, took)).await;
        });
        Task(task.abort_handle())
    }

    fn watch(&mut self, resource_version: Option<String>) -> Task {
        if self.watches > 0 {
            self.edges.telemetry.watching_again();
        }
        self.watches += 1;
        let (number, sent, arrive) = (self.watches, clock::boot(), self.arrive.clone());
        let answered = {
            let arrive = arrive.clone();
            async move |answer| {
                let _ = arrive.send(Arrived::WatchAnswered(answer, clock::boot().since(sent))).await;
            }
        };
        let task = spawn(self.edges.lease.watch(resource_version).run(answered, async move |watched| {
            let _ = arrive.send(Arrived::Watched(number, watched)).await;
        }));
        Task(task.abort_handle())
    }
}

async fn withdrawn(traffic: &mut Option<Traffic>) -> Term {
    match traffic {
        Some(traffic) => traffic.withdrawn().await,
        None => pending().await,
    }
}

#[cfg(test)]
mod tests;
