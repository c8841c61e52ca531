//! What init owes the workload: to ask it only with cause and by S, the whole grace where nothing is lost, its end soon after a
//! loss.
//!
//! Looks at one container from outside. Time in which init stood still is not held against it.

use std::time::Duration;

use tenure::{
    link::{Term, ToInit},
    time::Instant,
};

use crate::elector::LIE;

/// For what a real machine does in no time.
const SLACK: Duration = Duration::from_millis(2);

/// See the module.
#[derive(Debug)]
pub struct Conduct {
    /// The term that init was told of last.
    offered: Option<Offered>,
    /// The term that init took for one last.
    term: Option<Term>,
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

/// What init was told of a term before it took it for one: a drained link says all of it at once.
#[derive(Debug)]
struct Offered {
    term: Term,
    soft: Instant,
    cause: Option<Instant>,
    lost: Option<Instant>,
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

    /// Init takes a message in, while something of a leader may run or not.
    pub fn hears(&mut self, message: &ToInit, leads: bool, now: Instant) {
        match message {
            // Only a liar says that.
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
                // Only a liar names a term that is over.
                if reason.is_loss() && self.term == Some(*term) {
                    self.lost.get_or_insert(now);
                }
            }
            ToInit::Ended { .. } => self.lost = None,
            ToInit::Hello { .. }
            | ToInit::Releasing { .. }
            | ToInit::Saw { .. }
            | ToInit::Beat
            | ToInit::Done
            | ToInit::Failed { .. } => {}
        }
    }

    /// Init hears of another S of this term, which may only be offered yet.
    fn moves(&mut self, term: Term, to: impl Fn(Instant) -> Instant) {
        if self.term == Some(term) {
            self.soft = to(self.soft);
        }
        if let Some(offered) = self.offered.as_mut().filter(|offered| offered.term == term) {
            offered.soft = to(offered.soft);
        }
    }

    /// Init takes a term that it was told of for one: not every one is, for there are liars.
    pub fn begins(&mut self) {
        let Some(offered) = self.offered.take() else { return };
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

    /// What should have told the workload its role has failed. Where that was to stand by, nothing is left but to kill it.
    pub fn failed(&mut self, now: Instant) {
        self.asked = None;
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
