//! What init owes the workload: it asks it to stop only with cause and by S, grants the whole grace period where nothing is lost,
//! and ends it soon after a loss.
//!
//! Observes one container from outside. Time during which init was stopped is not held against it.

use std::time::Duration;

use tenure::{
    link::{Term, ToInit},
    time::Instant,
};

use crate::elector::LIE;

/// Allowance for what takes a real machine practically no time.
const SLACK: Duration = Duration::from_millis(2);

/// See the module.
#[derive(Debug)]
pub struct Conduct {
    /// The last term of which init was told.
    offered: Option<Offered>,
    /// The last term that init accepted.
    term: Option<Term>,
    /// The latest S that may be in force.
    soft: Instant,
    /// Since when there is a reason for a planned stop.
    cause: Option<Instant>,
    /// When init heard that the Lease is lost.
    lost: Option<Instant>,
    /// When the workload was asked to stop although nothing was lost.
    asked: Option<Instant>,
    /// Number of SIGTERMs sent to init.
    signals: u32,
    /// Since when init has been running.
    awake: Instant,
}

/// What init was told of a term before it accepted it: a drained link delivers everything at once.
#[derive(Debug)]
struct Offered {
    term: Term,
    soft: Instant,
    cause: Option<Instant>,
    lost: Option<Instant>,
}

/// The present state of the workload.
#[derive(Clone, Copy, Debug, Default)]
pub struct Look {
    /// Its main process runs, and has not been asked to stop or killed.
    pub untouched: bool,
    /// Its main process runs, and has not been killed.
    pub running: bool,
}

impl Conduct {
    pub fn new() -> Self {
        Self {
            offered: None,
            term: None,
            soft: Instant::BOOT,
            cause: None,
            lost: None,
            asked: None,
            signals: 0,
            awake: Instant::BOOT,
        }
    }

    /// Init takes in a message; `leads` tells whether something of a leader may run.
    pub fn hears(&mut self, message: &ToInit, leads: bool, now: Instant) {
        match message {
            // Only a lying elector sends that.
            ToInit::Lead { .. } | ToInit::Ended { .. } if leads => {}
            ToInit::Lead { term, confirmed, .. } => {
                self.offered = Some(Offered { term: *term, soft: confirmed.deadlines.soft, cause: None, lost: None });
            }
            ToInit::Extend { serial: LIE, .. } => {}
            ToInit::Extend { term, confirmed, .. } => self.moves(*term, |soft| soft.max(confirmed.deadlines.soft)),
            ToInit::Shorten { term, deadlines, .. } => self.moves(*term, |soft| soft.min(deadlines.soft)),
            ToInit::StepDown { term, reason, .. } => {
                self.cause.get_or_insert(now);
                if let Some(offered) = self.offered.as_mut().filter(|offered| offered.term == *term) {
                    offered.cause.get_or_insert(now);
                    offered.lost = offered.lost.or_else(|| reason.is_loss().then_some(now));
                }
                // Only a lying elector names a term that is over.
                if reason.is_loss() && self.term == Some(*term) {
                    self.lost.get_or_insert(now);
                }
            }
            ToInit::Ended { .. } => self.lost = None,
            ToInit::Hello { .. }
            | ToInit::Releasing { .. }
            | ToInit::Saw(_)
            | ToInit::Beat
            | ToInit::Done
            | ToInit::Failed { .. } => {}
        }
    }

    /// Init hears of a different S for this term, which may only be offered so far.
    fn moves(&mut self, term: Term, to: impl Fn(Instant) -> Instant) {
        if self.term == Some(term) {
            self.soft = to(self.soft);
        }
        if let Some(offered) = self.offered.as_mut().filter(|offered| offered.term == term) {
            offered.soft = to(offered.soft);
        }
    }

    /// Init accepts a term that it was told of; it does not accept every one, as electors may lie.
    pub fn begins(&mut self, term: Term) {
        let Some(offered) = self.offered.take_if(|offered| offered.term == term) else { return };
        (self.term, self.soft, self.lost) = (Some(offered.term), offered.soft, offered.lost);
        self.cause = self.cause.filter(|_| self.signals > 0).or(offered.cause);
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

    /// What should have told the workload its role has failed. If the role was to stand by, the only remedy is to kill it.
    pub fn failed(&mut self, now: Instant) {
        self.asked = None;
        self.cause.get_or_insert(now);
    }

    /// Init resumes after a stop.
    pub fn thawed(&mut self, now: Instant) {
        self.awake = now;
    }

    /// Something is started.
    pub fn spawned(&mut self) {
        self.asked = None;
    }

    /// The stop signal is sent; returns what is wrong with that.
    pub fn asks(&mut self, now: Instant) -> Option<&'static str> {
        if self.lost.is_none() && now < self.soft && self.signals <= 1 {
            self.asked = self.asked.or(self.cause);
        }
        let cause = self.cause.is_some() || now >= self.soft;
        (!cause).then_some("asks the workload to stop for no reason")
    }

    /// A walk sends SIGKILL; returns what is wrong with that.
    pub fn kills(&self, look: Look, grace: Duration, now: Instant) -> Option<&'static str> {
        let at = self.asked.filter(|_| look.running && self.lost.is_none() && self.signals <= 1 && now < self.soft)?;
        (now < at + grace).then_some("kills the workload before the grace of a planned stop is over")
    }

    /// Init has done everything that it had to do; returns what it left undone. It wakes at most `wake` late.
    pub fn rests(&self, look: Look, loss_grace: Duration, wake: Duration, now: Instant) -> Option<&'static str> {
        let late = |due: Instant| now > due.max(self.awake) + wake + SLACK;
        if look.untouched && late(self.soft) {
            return Some("lets the workload run past S without asking it to stop");
        }
        let lost = self.lost.filter(|_| look.running)?;
        late(lost + loss_grace).then_some("lets the workload live longer than lossGrace after a loss")
    }
}
