//! The elector's turn: its steps after a wake-up, in their order (law 9).
//!
//! Owns the order and the heartbeats. Decides nothing about a Lease, reads no clock and waits for nothing. Clocks and IO are in a
//! [`Process`]; the product, the simulation and the model have one each. The product runs whole turns. The other two go step by
//! step, so that a process can be stopped between any two.
//!
//! The link is drained first, then deadlines are acted on, then the inbox is taken in, then the actions of the election are carried
//! out, in order. An item of the inbox that is taken in after a deadline has passed waits until the link was drained again. `Done`,
//! the last word to init, is put into the inbox once what the process has to finish is finished.

use std::time::Duration;

use super::{Action, Elector, Event, Input, Request, RequestId};
use crate::{
    link::{InitialState, ToElector, ToInit},
    slot::Slot,
    time::{Instant, Now},
};

/// The surroundings of a turn: the clocks, the link, the inbox, and the sending of requests.
pub trait Process {
    /// How the link can end.
    type End;

    /// Reads both clocks.
    fn now(&self) -> Now;
    /// Takes the next message off the link at `now`, and tells it to the second guard at once.
    ///
    /// # Errors
    /// The link has ended.
    fn receive(&mut self, now: Now) -> Result<Option<ToElector>, Self::End>;
    /// Takes the next item of the inbox.
    fn arrived(&mut self) -> Option<Arrived>;
    /// Sends a request. The answer will be in the inbox.
    fn request(&mut self, slot: Slot, id: RequestId, request: Request);
    /// Starts a watch in place of the last one.
    fn watch(&mut self, resource_version: Option<String>);
    /// Completes a message for init, and tells it to the second guard first.
    fn telling(&mut self, message: &mut ToInit);
    /// Sends a message to init.
    ///
    /// # Errors
    /// The link has ended.
    fn send(&mut self, message: &ToInit) -> Result<(), Self::End>;
    /// Returns true if earlier messages still wait to be sent.
    fn is_clogged(&self) -> bool;
    /// Finishes telemetry and other requests, and then puts `Done` for init into the inbox.
    fn finish(&mut self);
    /// Takes a fact for logs, metrics and pages, which happened at `now`. Nothing of that may delay this turn.
    fn report(&mut self, event: Event, now: Now);
}

/// An item of the inbox.
#[derive(Clone, Debug)]
pub enum Arrived {
    /// An input of the election.
    Input(Input),
    /// A message for init.
    ForInit(ToInit),
}

/// The election of one elector process, and its place in the turn.
#[derive(Clone, Debug, Hash)]
pub struct Turn {
    election: Elector,
    at: At,
    /// The item of the inbox that waits for the link and the deadlines.
    late: Option<Input>,
    beat_every: Duration,
    beat_due: Instant,
    /// R.
    renew_period: Duration,
}

/// The next step of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum At {
    Start,
    /// Drains the link, in a turn that began at this time.
    Link(Now),
    /// Has drained the link, in a turn that began at this time.
    Deadlines(Now),
    Inbox,
    Actions,
}

impl Turn {
    /// Heartbeats in one D.
    pub const BEATS: u32 = 4;

    /// Begins the first turn of a new elector `now`, from the state that init hands to it. `seed` feeds jitter and trace ids.
    pub fn new(initial: InitialState, seed: u64, now: Now, beats: u32) -> Self {
        Self {
            at: At::Link(now),
            late: None,
            beat_every: initial.config.lease.duration / beats,
            beat_due: Instant::BOOT,
            renew_period: initial.config.lease.renew_period,
            election: Elector::new(initial, seed, now),
        }
    }

    /// Returns the election.
    pub const fn election(&self) -> &Elector {
        &self.election
    }

    /// Returns true if a turn has begun and is not over.
    pub fn is_under_way(&self) -> bool {
        self.at != At::Start
    }

    /// Returns true if the link was drained, and the deadlines come next.
    pub const fn is_drained(&self) -> bool {
        matches!(self.at, At::Deadlines(_))
    }

    /// Returns when the next turn is due, if nothing arrives before.
    pub fn due(&self) -> Instant {
        self.beat_due.or_earlier(self.election.poll_timeout())
    }

    /// Returns the longest wait for a renewal or a heartbeat. What is waited for no longer may be late by a part of it, and costs one
    /// wake-up.
    pub fn whole(&self) -> Duration {
        self.renew_period.max(self.beat_every)
    }

    /// Runs a whole turn, or the rest of one.
    ///
    /// # Errors
    /// The link has ended.
    pub fn run<P: Process>(&mut self, process: &mut P) -> Result<(), P::End> {
        while self.step(process)? {}
        Ok(())
    }

    /// Takes in one input, or carries out one action; returns false once the turn is over.
    ///
    /// # Errors
    /// The link has ended.
    pub fn step<P: Process>(&mut self, process: &mut P) -> Result<bool, P::End> {
        if self.at == At::Start {
            // The clock is read before the link is drained: a deadline that passes later waits for the next turn, which drains
            // the link again.
            self.at = At::Link(process.now());
        }
        if let At::Link(now) = self.at {
            // Those of a new elector come before all that init says.
            self.report(process, now);
            if let Some(message) = process.receive(now)? {
                self.told(message, now);
                self.report(process, now);
                return Ok(true);
            }
            // A step of its own: the elector may be stopped between its look at the link and its look at the deadlines.
            self.at = At::Deadlines(now);
            return Ok(true);
        }
        if let At::Deadlines(now) = self.at {
            self.at = At::Inbox;
            let is_due = self.is_due(now);
            self.election.handle_timeout(now);
            if let Some(input) = self.late.take() {
                self.election.handle(input, now);
            }
            self.report(process, now);
            if is_due {
                return Ok(true);
            }
        }
        if self.at == At::Inbox {
            match process.arrived() {
                // The time of an observation is read after its last byte has arrived.
                Some(Arrived::Input(input)) => {
                    let now = process.now();
                    if self.is_due(now) {
                        (self.late, self.at) = (Some(input), At::Link(now));
                        return Ok(true);
                    }
                    self.election.handle(input, now);
                    self.report(process, now);
                }
                Some(Arrived::ForInit(message)) => self.send(&message, process)?,
                None => self.at = At::Actions,
            }
            if self.at == At::Inbox {
                return Ok(true);
            }
        }
        if let Some(action) = self.election.poll_action() {
            self.carry_out(action, process)?;
            return Ok(true);
        }
        self.at = At::Start;
        self.beat(process)?;
        Ok(false)
    }

    fn is_due(&self, now: Now) -> bool {
        self.election.poll_timeout().is_some_and(|at| at <= now.boot)
    }

    fn told(&mut self, message: ToElector, now: Now) {
        let was_ready = self.election.is_workload_ready();
        self.election.handle(Input::Told(message), now);
        if self.election.is_workload_ready() != was_ready {
            // Init reports no further change of readiness before the next heartbeat.
            self.beat_due = Instant::BOOT;
        }
    }

    /// Hands on what the election has just reported: no step of its own, and nothing that stays in it.
    fn report<P: Process>(&mut self, process: &mut P, now: Now) {
        while let Some(event) = self.election.poll_event() {
            process.report(event, now);
        }
    }

    fn carry_out<P: Process>(&mut self, action: Action, process: &mut P) -> Result<(), P::End> {
        match action {
            Action::Request { slot, id, request } => process.request(slot, id, request),
            Action::Watch { resource_version } => process.watch(resource_version),
            Action::Tell(ToInit::Done) => process.finish(),
            Action::Tell(mut message) => {
                process.telling(&mut message);
                self.send(&message, process)?;
            }
        }
        Ok(())
    }

    /// Sends a heartbeat, if one is due.
    fn beat<P: Process>(&mut self, process: &mut P) -> Result<(), P::End> {
        let now = process.now().boot;
        // A heartbeat that is nearly due is sent now: that saves a wake-up.
        if self.beat_due.before(self.beat_every / 4) > now {
            return Ok(());
        }
        if process.is_clogged() {
            self.beat_due = now + self.beat_every;
            return Ok(());
        }
        self.send(&ToInit::Heartbeat, process)
    }

    /// Sends a message, which counts as a heartbeat.
    fn send<P: Process>(&mut self, message: &ToInit, process: &mut P) -> Result<(), P::End> {
        self.beat_due = process.now().boot + self.beat_every;
        process.send(message)
    }
}
