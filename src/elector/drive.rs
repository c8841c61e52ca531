//! The loop: what wakes the elector, and in which order it acts.
//!
//! After every wake the link is drained first, then the clock is heeded, then answers are taken in, then everything that the machine
//! wants is done, in order (law 9). A write's own time is read before the machine makes it, and a sight's after its last byte.

use std::io;

use tokio::{
    io::unix::AsyncFd,
    sync::mpsc,
    task::{AbortHandle, spawn},
};

use super::{
    access::Access,
    alarm::Alarm,
    guard::Guard,
    lease::{Lease, Place},
    link::{Broken, Link},
    register,
    remains::Init,
    watch::Watch,
};
use crate::{
    clock,
    election::{Action, Answer, Elector, Event, Input, Request, RequestId, Watched},
    link::{ToElector, ToInit, Welcome},
    time::Instant,
};

/// A burst of watch events waits in the connection, not in memory.
const INBOX: usize = 16;

/// Signs of life in one D.
const BEATS: u32 = 4;

/// The elector's loop.
pub(super) struct Drive {
    link: Link,
    elector: Elector,
    guard: Guard,
    alarm: AsyncFd<Alarm>,
    access: Access,
    place: Place,
    lease: Lease,
    timeout: std::time::Duration,
    arrive: mpsc::Sender<Arrived>,
    arrived: mpsc::Receiver<Arrived>,
    request: Option<Task>,
    watch: Option<Task>,
    watches: u64,
    beat_every: std::time::Duration,
    beat_due: Instant,
}

/// What tasks hand to the loop.
enum Arrived {
    Answer(RequestId, Answer),
    /// From the watch of this number.
    Watched(u64, Watched),
}

/// A task that ends with its handle.
struct Task(AbortHandle);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Drive {
    /// The loop of a machine that `start` makes once everything around it stands.
    ///
    /// # Errors
    /// There is no timer.
    pub(super) fn new(
        link: Link,
        access: Access,
        place: Place,
        mut guard: Guard,
        welcome: Welcome,
        start: impl FnOnce(Welcome) -> Elector,
    ) -> io::Result<Self> {
        let timeout = welcome.config.lease.attempt_timeout;
        let beat_every = welcome.config.lease.duration / BEATS;
        if let Some(resume) = &welcome.resume {
            guard.arm(resume.term, resume.confirmed.deadlines.hard);
        }
        let (arrive, arrived) = mpsc::channel(INBOX);
        Ok(Self {
            link,
            guard,
            alarm: register(Alarm::nonblocking()?)?,
            lease: Lease::new(access.clone(), place.clone(), timeout),
            access,
            place,
            timeout,
            arrive,
            arrived,
            request: None,
            watch: None,
            watches: 0,
            beat_every,
            beat_due: Instant::BOOT,
            elector: start(welcome),
        })
    }

    /// Turns until the link ends; how it ended.
    pub(super) async fn run(mut self, init: &mut Init) -> Broken {
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
        while let Some(message) = self.link.receive()? {
            init.told(&message);
            self.told(message);
        }
        self.elector.handle_timeout(clock::now());
        while let Some(next) = arrived.take().or_else(|| self.arrived.try_recv().ok()) {
            self.take_in(next);
        }
        while let Some(action) = self.elector.poll_action() {
            self.carry_out(action)?;
        }
        let now = clock::boot();
        if self.beat_due <= now {
            self.beat_due = now + self.beat_every;
            if !self.link.is_clogged() {
                self.link.send(&ToInit::Beat)?;
            }
        }
        self.link.flush()?;
        Ok(())
    }

    async fn wait(&mut self) -> io::Result<Option<Arrived>> {
        let next = self.elector.poll_timeout().unwrap_or(Instant::NEVER).min(self.beat_due);
        self.alarm.get_ref().set(next)?;
        tokio::select! {
            ready = self.link.ready() => ready.map(|()| None),
            ready = self.alarm.readable() => {
                ready?.clear_ready();
                // Not an error if it was set anew since: then there is nothing to take in.
                let _ = self.alarm.get_ref().wait();
                Ok(None)
            }
            arrived = self.arrived.recv() => Ok(arrived),
        }
    }

    fn told(&mut self, message: ToElector) {
        self.guard.told(&message);
        match message {
            ToElector::Log { warning: true, line } => tracing::warn!("{line}"),
            ToElector::Log { warning: false, line } => tracing::info!("{line}"),
            ToElector::Beat => {}
            message @ (ToElector::Welcome(_)
            | ToElector::Acknowledged { .. }
            | ToElector::Started { .. }
            | ToElector::Restarting { .. }
            | ToElector::Stopping { .. }
            | ToElector::Stopped { .. }
            | ToElector::Unproved { .. }
            | ToElector::Shutdown) => self.elector.handle(Input::Told(message), clock::now()),
        }
    }

    fn take_in(&mut self, arrived: Arrived) {
        let input = match arrived {
            Arrived::Answer(id, answer) => Input::Answered { id, answer },
            Arrived::Watched(number, watched) if number == self.watches => Input::Watched(watched),
            // Of a watch that was replaced.
            Arrived::Watched(..) => return,
        };
        self.elector.handle(input, clock::now());
    }

    fn carry_out(&mut self, action: Action) -> Result<(), Broken> {
        match action {
            Action::Request { id, request } => self.request = Some(self.send(id, request)),
            Action::Watch { resource_version } => self.watch = Some(self.watch(resource_version)),
            Action::Tell(message) => {
                self.guard.telling(&message);
                self.link.send(&message)?;
            }
            Action::Guard => self.guard.act(),
            Action::Disarm => self.guard.disarm(),
            Action::Report(event) => report(&event),
        }
        Ok(())
    }

    fn send(&self, id: RequestId, request: Request) -> Task {
        let (lease, arrive) = (self.lease.clone(), self.arrive.clone());
        let task = spawn(async move {
            let answer = lease.send(&request).await;
            let _ = arrive.send(Arrived::Answer(id, answer)).await;
        });
        Task(task.abort_handle())
    }

    fn watch(&mut self, resource_version: Option<String>) -> Task {
        self.watches += 1;
        let (number, arrive) = (self.watches, self.arrive.clone());
        let (access, place, timeout) = (self.access.clone(), self.place.clone(), self.timeout);
        let watch = Watch { access, place, resource_version, timeout };
        let task = spawn(watch.run(async move |watched| {
            let _ = arrive.send(Arrived::Watched(number, watched)).await;
        }));
        Task(task.abort_handle())
    }
}

fn report(event: &Event) {
    tracing::info!(?event);
}

#[cfg(test)]
mod tests;
