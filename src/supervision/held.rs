//! The term that init holds, its deadlines, and what may change them.

use crate::{
    law::{Deadlines, Timing},
    link::{Confirmed, Facts, Reason, Resume, Term, ToElector},
    time::Instant,
};

/// A term from its Lead to its Ended.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    pub(crate) term: Term,
    pub(crate) facts: Facts,
    timing: Timing,
    confirmed: Confirmed,
    /// In force; the confirmed ones unless they were shortened.
    deadlines: Deadlines,
    stopping: Option<Reason>,
    traceparent: String,
    /// The workload leads, with this main process and since then, and no elector knows.
    untold: Option<(i32, Instant)>,
    /// An elector was told that it leads.
    told: bool,
    /// A deadline has begun a stop, or the Lease is lost: no extension revives the term (law 3).
    over: bool,
    spent: bool,
    /// The StepDown that is to be answered.
    request: Option<u64>,
    /// A StepDown of the current elector was answered, and nothing of a leader has started since (law 8).
    answered: bool,
    released: bool,
}

impl Held {
    /// The term of a Lead; none if its deadlines are later than those of a write sent now (law 3).
    pub(crate) fn new(term: Term, facts: Facts, timing: Timing, confirmed: Confirmed, now: Instant) -> Option<Self> {
        let deadlines = confirmed.deadlines;
        let held = Self {
            term,
            facts,
            timing,
            confirmed,
            deadlines,
            stopping: None,
            traceparent: String::new(),
            untold: None,
            told: false,
            over: false,
            spent: false,
            request: None,
            answered: false,
            released: false,
        };
        held.is_plausible(deadlines, now).then_some(held)
    }

    pub(crate) fn deadlines(&self) -> Deadlines {
        self.deadlines
    }

    /// Those by which whatever is started or told for the leader goes: it may stand still on its way, and once the term's D has
    /// been that of a wait, what can still come is the end of that wait, not before `not_before`, which moves the deadlines back to
    /// `own` ones counted from then (law 14, 15).
    pub(crate) fn lasting(&self, own: Timing, not_before: Option<Instant>) -> Deadlines {
        match not_before {
            Some(end) if self.timing.duration > own.duration => self.deadlines.min(own.deadlines(end)),
            Some(_) | None => self.deadlines,
        }
    }

    pub(crate) fn stopping(&self) -> Option<Reason> {
        self.stopping
    }

    /// H has come.
    pub(crate) fn is_spent(&self) -> bool {
        self.spent
    }

    pub(crate) fn is_answered(&self) -> bool {
        self.answered
    }

    /// Whether anything of a leader may be started, deadlines and the creation wait aside.
    pub(crate) fn is_live(&self) -> bool {
        self.stopping.is_none() && !self.released
    }

    /// A renewal was confirmed; returns whether it is accepted (law 1, 3). Acknowledged only if it is (law 10).
    pub(crate) fn extend(&mut self, confirmed: Confirmed, now: Instant) -> bool {
        if self.over || self.released || !self.is_plausible(confirmed.deadlines, now) {
            return false;
        }
        self.deadlines = self.deadlines.max(confirmed.deadlines);
        self.confirmed = confirmed;
        true
    }

    /// The creation wait ends: the deadlines move back (law 14).
    pub(crate) fn shorten(&mut self, timing: Timing, deadlines: Deadlines) {
        self.timing = timing;
        self.deadlines = self.deadlines.min(deadlines);
    }

    /// The term ends for this reason. A loss replaces a reason that is not a loss.
    pub(crate) fn stop(&mut self, reason: Reason) {
        self.over |= reason.is_loss();
        if self.stopping.is_none_or(|before| reason.is_loss() && !before.is_loss()) {
            self.stopping = Some(reason);
        }
    }

    /// Until when the others go first if the term ends now; none if it was lost. By the constants of the record, which are its
    /// `own` ones again where it was given back.
    pub(crate) fn sit_out(&self, own: Timing, now: Instant) -> Option<Instant> {
        let timing = if self.released { own } else { self.timing };
        let given_up = self.stopping.is_some_and(|reason| !reason.is_loss());
        given_up.then(|| timing.takeable(now, timing.duration))
    }

    /// H has come: whatever began the stop, no extension revives the term.
    pub(crate) fn spend(&mut self) {
        (self.over, self.spent) = (true, true);
    }

    /// The workload has started to lead, or was promoted, at `at`.
    pub(crate) fn started(&mut self, pid: i32, at: Instant) {
        self.untold = Some((pid, at));
    }

    /// What an elector that can be told is to be told of the start.
    pub(crate) fn tell_start(&mut self) -> Option<ToElector> {
        let (pid, at) = self.untold.take()?;
        self.told = true;
        Some(ToElector::Started { term: self.term, pid, at })
    }

    /// A StepDown, to be answered with a proof made from now on, and the trace span of the stop.
    pub(crate) fn request(&mut self, request: u64, traceparent: String) {
        self.request = Some(request);
        self.traceparent = traceparent;
        self.answered = false;
    }

    /// The proof is there; returns the request that it answers.
    pub(crate) fn answer(&mut self) -> Option<u64> {
        let request = self.request.take()?;
        self.answered = true;
        Some(request)
    }

    /// A release is about to be written: E is void. False without a proof that answered this elector (law 8).
    pub(crate) fn release(&mut self) -> bool {
        self.released |= self.answered;
        self.answered
    }

    /// Another elector takes over: it sends a StepDown of its own, which is answered anew.
    pub(crate) fn change_elector(&mut self) {
        self.request = None;
        self.answered = false;
    }

    /// What the next elector is told. A term that is over and proved has no H: its proof has disarmed it (law 3), and what runs by
    /// then is no leader's.
    pub(crate) fn resume(&self, leads: bool, main: Option<i32>) -> Resume {
        let disarmed = !leads && !self.is_live();
        let hard = if disarmed { Instant::NEVER } else { self.deadlines.hard };
        Resume {
            term: self.term,
            facts: self.facts.clone(),
            timing: self.timing,
            confirmed: Confirmed { deadlines: Deadlines { hard, ..self.deadlines }, ..self.confirmed.clone() },
            stopping: self.stopping,
            traceparent: self.traceparent.clone(),
            released: self.released,
            main: main.filter(|_| leads),
            told: self.told,
        }
    }

    /// No past write has later deadlines than one sent now.
    fn is_plausible(&self, deadlines: Deadlines, now: Instant) -> bool {
        let latest = self.timing.deadlines(now);
        deadlines.soft <= latest.soft && deadlines.hard <= latest.hard && deadlines.end <= latest.end
    }
}
