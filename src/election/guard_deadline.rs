//! The deadline of the second guard: the H of a term, as init was told it (law 3).
//!
//! Owns which messages move and which disarm it. Reads no clock and kills nothing: the elector's edge does.

use crate::{
    link::{Term, ToElector, ToInit},
    time::Instant,
};

/// The term whose H is set, and H.
#[derive(Clone, Copy, Debug, Hash)]
pub struct GuardDeadline {
    term: Option<Term>,
    hard: Instant,
}

impl GuardDeadline {
    /// Kills nothing.
    pub const fn disarmed() -> Self {
        Self { term: None, hard: Instant::NEVER }
    }

    /// Returns when the killing begins; [`Instant::NEVER`] while disarmed.
    pub const fn hard(&self) -> Instant {
        self.hard
    }

    /// Returns true if a guard that is armed for `hard` kills now.
    pub fn is_time(hard: Instant, now: Instant) -> bool {
        now >= hard
    }

    /// Follows the deadlines that init is told.
    pub const fn telling(&mut self, message: &ToInit) {
        match message {
            ToInit::Lead { term, confirmed, .. } | ToInit::Extend { term, confirmed, .. } => {
                self.arm(*term, confirmed.deadlines.hard);
            }
            ToInit::Ended { .. } => self.disarm(),
            ToInit::Hello
            | ToInit::StepDown { .. }
            | ToInit::Withdrawn { .. }
            | ToInit::Releasing { .. }
            | ToInit::Observed { .. }
            | ToInit::Probed { .. }
            | ToInit::Heartbeat
            | ToInit::Done
            | ToInit::GaveUp { .. }
            | ToInit::Failed { .. } => {}
        }
    }

    /// Disarms on a proof of death for this term.
    pub fn told(&mut self, message: &ToElector) {
        if let ToElector::Stopped { term, .. } = message
            && self.term == Some(*term)
        {
            self.disarm();
        }
    }

    /// Kills from `hard` on.
    pub const fn arm(&mut self, term: Term, hard: Instant) {
        (self.term, self.hard) = (Some(term), hard);
    }

    /// Stops killing.
    pub const fn disarm(&mut self) {
        *self = Self::disarmed();
    }
}
