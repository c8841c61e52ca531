//! The end of init: the waits before it, and the exit code.

use crate::{
    config::{Signal, Stop},
    exit,
    link::{Exit, FLUSH, Term, ToElector},
    time::Instant,
};

use super::{Action, ActiveTerm, Agent};

/// Count of electors that may still start once the limit of the wait has passed.
const LATE_ELECTORS: u32 = 2;

const UNFINISHED: &str = "init ends before the elector has said what became of the Lease: the others may have to wait for it";

/// An end of init that has begun.
#[derive(Clone, Debug, Hash)]
pub(super) struct Shutdown {
    /// The exit code; none for the workload's own.
    code: Option<u8>,
    /// The exit code if no workload has run.
    code_of_nothing: u8,
    /// Reason for the termination message.
    pub(super) why: Option<String>,
    /// The signal that asked for the end, if one did.
    pub(super) asked_by: Option<Signal>,
    pub(super) urgency: Urgency,
    /// INT or QUIT was passed on in place of the stop signal.
    pub(super) passed: bool,
    elector: Informed,
    /// End of the wait. Set once nothing of a leader runs any more.
    by: Option<Instant>,
}

/// How urgent the end is. Each TERM makes it more urgent, and each INT and QUIT that is for init alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Urgency {
    /// No signal has asked for it, or only one that was passed on.
    None,
    /// The workload has `grace` to stop.
    Asked,
    /// It has `lossGrace`.
    Hastened,
    /// It is killed at once.
    Kill,
    /// The release is not waited for either.
    Abandon,
}

impl Urgency {
    pub(super) const fn more(self) -> Self {
        match self {
            Self::None => Self::Asked,
            Self::Asked => Self::Hastened,
            Self::Hastened => Self::Kill,
            Self::Kill | Self::Abandon => Self::Abandon,
        }
    }

    /// When the workload is killed.
    pub(super) fn kill_at(self, stop: &Stop, now: Instant) -> Instant {
        match self {
            Self::None | Self::Asked => now + stop.grace,
            Self::Hastened => now + stop.loss_grace,
            Self::Kill | Self::Abandon => now,
        }
    }
}

/// The knowledge of the current elector about the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Informed {
    No,
    Yes,
    /// The elector has nothing left to do.
    Done,
}

impl Shutdown {
    pub(super) const fn with(code: Option<u8>) -> Self {
        let (urgency, elector) = (Urgency::None, Informed::No);
        Self { code, code_of_nothing: 0, why: None, asked_by: None, urgency, passed: false, elector, by: None }
    }

    /// Begins the end that a signal asks for. `code_of_nothing` is the exit code if no workload has run.
    pub(super) fn asked(code_of_nothing: u8, nothing_runs: bool) -> Self {
        Self { code_of_nothing, ..Self::with(nothing_runs.then_some(code_of_nothing)) }
    }

    /// Records that the current elector knows.
    pub(super) fn was_told(&mut self) {
        if self.elector == Informed::No {
            self.elector = Informed::Yes;
        }
    }

    /// Returns true if a second signal has asked for the end.
    pub(super) fn is_hastened(&self) -> bool {
        self.urgency >= Urgency::Hastened
    }

    pub(super) const fn done(&mut self) {
        self.elector = Informed::Done;
    }

    /// Returns true if an elector that ends now is replaced: only if a term is to be released.
    pub(super) fn wants_elector(&self, term: Option<&ActiveTerm>) -> bool {
        self.elector != Informed::Done && term.is_some()
    }

    /// The end of the wait for the elector: no later than E, unless a release has voided E.
    pub(super) fn due(&self, term: Option<&ActiveTerm>) -> Option<Instant> {
        let end = term.filter(|term| !term.is_void()).map(|term| term.deadlines().end);
        Some(self.by?.or_earlier(end))
    }
}

impl Agent {
    /// Ends init if the limit of the wait has passed and electors keep ending instead of giving up. Returns true if it ends.
    pub(super) fn end_vain_wait(&mut self, now: Instant) -> bool {
        let Some(wait_limit) = self.config.preset.wait_limit() else { return false };
        if self.shutdown.is_some() || self.last_term != Term(0) || now < self.config.began + wait_limit.limit {
            return false;
        }
        self.late_electors += 1;
        let is_over = self.late_electors > LATE_ELECTORS;
        if is_over {
            let why = format!("the Lease {} was not acquired: no elector works", self.config.config.lease.name);
            self.begin_shutdown(Some(exit::INTERNAL)).why = Some(why);
        }
        is_over
    }

    /// Returns why init ends, with its exit code, for the last line of the log. None: a plain init says nothing, and a command that
    /// a script waits for has said how it ended.
    pub fn describe_end(&self, code: u8) -> Option<String> {
        if self.is_plain() || self.config.preset.is_once() && self.last_term != Term(0) {
            return None;
        }
        let asked = self.shutdown.as_ref().and_then(|shutdown| shutdown.asked_by);
        let asked = asked.map(|signal| format!("tenure got {}", signal.name()));
        // Once the program has ended, another cause may give the code.
        let ended = self.workload.exit().filter(|exit| exit.code() == code);
        let ended = ended.map(|exit| format!("the program {}", exit.predicate()));
        let vain = self.config.preset.is_once().then(|| "the command did not run".to_owned());
        let why: Vec<_> = asked.into_iter().chain(ended).chain(vain).collect();
        Some(if why.is_empty() { format!("exiting with {code}") } else { format!("exiting with {code}: {}", why.join("; ")) })
    }

    /// Returns true if the wait for the rest has a limit: nothing of a leader runs, and everything else is being killed.
    pub(super) fn waits_to_end(&self) -> bool {
        self.workload.is_down() || !self.workload.leads() && self.workload.is_being_killed()
    }

    /// Ends init once nothing runs and the elector has nothing left to do, or has used up its time.
    pub(super) fn end(&mut self, now: Instant) {
        if let Some(code) = self.failed
            && !self.workload.leads()
        {
            self.begin_shutdown(Some(code));
        }
        let waits = self.waits_to_end();
        let pid1 = self.config.pid1;
        let Some(shutdown) = &mut self.shutdown else { return };
        // Also while a standby is being stopped, so that this replica does not acquire the Lease meanwhile.
        if self.term.is_none() && self.electors.is_greeted() && shutdown.elector == Informed::No {
            shutdown.was_told();
            self.actions.push_back(Action::Tell(ToElector::Shutdown));
        }
        if waits {
            shutdown.by.get_or_insert_with(|| now + self.config.config.release_limit().saturating_add(FLUSH));
        }
        let is_abandoned = shutdown.urgency == Urgency::Abandon;
        let is_due = shutdown.due(self.term.as_ref()).is_some_and(|at| at <= now);
        let is_over = if self.workload.is_down() {
            let unneeded = match &self.term {
                Some(_) => self.failed.is_some(),
                None => !self.electors.is_greeted(),
            };
            unneeded || is_due || shutdown.elector == Informed::Done || is_abandoned
        } else if self.is_plain() {
            self.is_left_to_the_kernel()
        } else {
            // No Lease depends on the processes of a standby, and if init is PID 1 the kernel kills them with it.
            waits && is_due || pid1 && is_abandoned
        };
        if is_over {
            self.finish(now);
        } else if !self.workload.is_down() && !waits && !self.workload.is_stopping() && !self.workload.is_yielding() {
            self.workload.stop(None, now + self.config.config.workload.stop.grace, now);
        }
    }

    /// Returns true if a plain init leaves the rest to the kernel. Nobody waits for the proof, and the rest ends with PID 1 or never.
    fn is_left_to_the_kernel(&self) -> bool {
        let is_stuck = self.workload.is_stuck();
        let is_killed = self.shutdown.as_ref().is_some_and(|shutdown| shutdown.urgency >= Urgency::Kill);
        let is_hopeless = self.config.pid1 || is_stuck || is_killed;
        self.workload.is_being_swept() && is_hopeless || self.config.pid1 && is_stuck
    }

    fn finish(&mut self, now: Instant) {
        let is_left = self.workload.is_stuck() || self.workload.leads();
        let never_reaped = || is_left.then_some(Exit::Signal(libc::SIGKILL));
        let of_nothing = self.shutdown.as_ref().map_or(0, |shutdown| shutdown.code_of_nothing);
        let own = || self.workload.exit().or_else(never_reaped).map_or(of_nothing, Exit::code);
        let code = self.shutdown.as_ref().and_then(|shutdown| shutdown.code).unwrap_or_else(own);
        // An elector that hangs would not write the warning.
        self.give_elector_up(now);
        if self.term.is_some() {
            self.warn(UNFINISHED.into());
        }
        if let Some(why) = self.shutdown.as_mut().and_then(|shutdown| shutdown.why.take()) {
            self.actions.push_back(Action::TerminationMessage(why, code));
        }
        self.exit(code);
    }
}
