//! What init owes the workload: to ask it only with cause and by S, the whole grace where nothing is lost, its end soon after a loss.
//!
//! Looks at one container from outside. Time in which init stood still is not held against it.

use std::time::Duration;

use tenure::{link::ToInit, time::Instant};

use crate::elector::LIE;

/// For what a real machine does in no time.
const SLACK: Duration = Duration::from_millis(2);

/// See the module.
#[derive(Debug)]
pub struct Conduct {
    /// No later S than this is in force.
    soft: Instant,
    /// Since when there is cause for a planned stop.
    cause: Option<Instant>,
    /// Init heard that the Lease is lost.
    lost: Option<Instant>,
    /// The workload was asked to stop although nothing is lost.
    asked: Option<Instant>,
    /// SIGTERMs to init.
    signals: u32,
    /// Init runs since then.
    awake: Instant,
}

/// The workload as it is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Look {
    /// Its main process runs, and nobody has asked or killed it.
    pub untouched: bool,
    /// Its main process runs, and was not killed.
    pub running: bool,
}

impl Conduct {
    pub fn new() -> Self {
        Self { soft: Instant::BOOT, cause: None, lost: None, asked: None, signals: 0, awake: Instant::BOOT }
    }

    /// Init takes a message in.
    pub fn hears(&mut self, message: &ToInit, now: Instant) {
        match message {
            ToInit::Lead { confirmed, .. } => {
                (self.soft, self.lost) = (confirmed.deadlines.soft, None);
                self.cause = self.cause.filter(|_| self.signals > 0);
            }
            ToInit::Extend { serial: LIE, .. } => {}
            ToInit::Extend { confirmed, .. } => self.soft = self.soft.max(confirmed.deadlines.soft),
            ToInit::Shorten { deadlines, .. } => self.soft = self.soft.min(deadlines.soft),
            ToInit::StepDown { reason, .. } => {
                self.cause.get_or_insert(now);
                if reason.is_loss() {
                    self.lost.get_or_insert(now);
                }
            }
            ToInit::Ended { .. } => self.lost = None,
            ToInit::Hello { .. } | ToInit::Releasing { .. } | ToInit::Beat | ToInit::Done | ToInit::Failed { .. } => {}
        }
    }

    /// Init was sent SIGTERM.
    pub fn signalled(&mut self, now: Instant) {
        self.signals += 1;
        self.cause.get_or_insert(now);
    }

    /// The workload has not taken its promotion.
    pub fn gives_up(&mut self, now: Instant) {
        self.cause.get_or_insert(now);
    }

    /// Init goes on after a stop.
    pub fn thawed(&mut self, now: Instant) {
        self.awake = now;
    }

    /// Something is started.
    pub fn spawned(&mut self) {
        self.asked = None;
    }

    /// The stop signal goes out; what is wrong with it.
    pub fn asks(&mut self, now: Instant) -> Option<&'static str> {
        if self.lost.is_none() && now < self.soft && self.signals <= 1 {
            self.asked = self.asked.or(self.cause);
        }
        let cause = self.cause.is_some() || now >= self.soft;
        (!cause).then_some("asks the workload to stop for no reason")
    }

    /// SIGKILL by a walk; what is wrong with it.
    pub fn kills(&self, look: Look, grace: Duration, now: Instant) -> Option<&'static str> {
        let at = self.asked.filter(|_| look.running && self.lost.is_none() && self.signals <= 1 && now < self.soft)?;
        (now < at + grace).then_some("kills the workload before the grace of a planned stop is over")
    }

    /// Init has done all that it has to do; what it has left undone. It wakes no later than `wake` after it is due.
    pub fn rests(&self, look: Look, loss_grace: Duration, wake: Duration, now: Instant) -> Option<&'static str> {
        let late = |due: Instant| now > due.max(self.awake) + wake + SLACK;
        if look.untouched && late(self.soft) {
            return Some("lets the workload run past S without asking it to stop");
        }
        let lost = self.lost.filter(|_| look.running)?;
        late(lost + loss_grace).then_some("lets the workload live longer than lossGrace after a loss")
    }
}
