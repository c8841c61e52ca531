//! The term that init holds, its deadlines, and what may change them.

use std::time::Duration;

use crate::{
    law::Deadlines,
    link::{Confirmed, Reason, Resume, Term, TermInfo, ToElector},
    role::Role,
    time::Instant,
};

use super::Standing;

/// A term from its Lead to its Ended.
#[derive(Clone, Debug)]
pub(crate) struct ActiveTerm {
    pub(crate) term: Term,
    pub(crate) info: TermInfo,
    /// Its deadlines are those in force.
    confirmed: Confirmed,
    renewals: u64,
    /// The workload leads, with this main process and since then, and no elector knows.
    untold: Option<(i32, Instant)>,
    /// An elector was told that it leads.
    told: bool,
    /// Since when it leads.
    runs_since: Option<Instant>,
    state: State,
}

#[derive(Clone, Debug)]
enum State {
    /// The workload may lead.
    Live,
    /// It may not: it is being stopped, or has been.
    Stopping(Stopping),
}

#[derive(Clone, Debug)]
struct Stopping {
    /// What began it, or the first loss.
    reason: Reason,
    /// The span of that stop; empty if no StepDown named it.
    traceparent: String,
    validity: Validity,
    proof: Proof,
}

/// What E is still good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Validity {
    /// The stop has until H, which moves on unless the Lease is lost.
    Running,
    /// H has come: no extension revives the term (law 3).
    Spent,
    /// A release was announced (law 8).
    Void,
}

/// The proof of death that a release needs, as far as the current elector has asked for it (law 8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Proof {
    Unasked,
    Asked(u64),
    /// It was answered, and nothing of a leader has started since.
    Answered,
}

impl ActiveTerm {
    /// The term of a Lead; none if its deadlines are later than those of a write sent now (law 3).
    pub(crate) fn new(term: Term, info: TermInfo, confirmed: Confirmed, latest: Deadlines) -> Option<Self> {
        is_plausible(confirmed.deadlines, latest).then_some(Self {
            term,
            info,
            confirmed,
            renewals: 0,
            untold: None,
            told: false,
            runs_since: None,
            state: State::Live,
        })
    }

    pub(crate) fn deadlines(&self) -> Deadlines {
        self.confirmed.deadlines
    }

    /// What a leader may read of it: the Lease is kept for who is asked to stop, and that of who could not renew it runs until H, but
    /// what is lost is kept for nobody (law 3, 7).
    pub(crate) fn standing(&self) -> Standing {
        let Deadlines { soft, hard, .. } = self.deadlines();
        let (soft, hard) = match self.stopping() {
            None => (soft, hard),
            Some(reason) if reason.is_loss() && reason != Reason::Expired => (Instant::BOOT, Instant::BOOT),
            Some(_) => (Instant::BOOT, hard),
        };
        let (transitions, token) = (self.info.transitions, self.info.token.parse().unwrap_or_default());
        Standing { role: Role::Leader, transitions, token, soft, hard, renewals: self.renewals }
    }

    /// Whether anything of a leader may be started, deadlines aside.
    pub(crate) fn is_live(&self) -> bool {
        matches!(self.state, State::Live)
    }

    /// Why it is being stopped, if it is.
    pub(crate) fn stopping(&self) -> Option<Reason> {
        self.ending().map(|stopping| stopping.reason)
    }

    fn ending(&self) -> Option<&Stopping> {
        match &self.state {
            State::Live => None,
            State::Stopping(stopping) => Some(stopping),
        }
    }

    /// The next deadline that is to be enforced, while anything of a leader may run.
    pub(crate) fn due(&self) -> Option<Instant> {
        match &self.state {
            State::Live => Some(self.deadlines().soft),
            State::Stopping(Stopping { validity: Validity::Running, .. }) => Some(self.deadlines().hard),
            State::Stopping(Stopping { validity: Validity::Spent | Validity::Void, .. }) => None,
        }
    }

    /// Whether the proof that the current elector asked for was given.
    pub(crate) fn is_answered(&self) -> bool {
        self.ending().is_some_and(|stopping| stopping.proof == Proof::Answered)
    }

    /// Whether a fresh standby may run. Where H has come the elector's guard may kill, whatever runs, until it says Ended.
    pub(crate) fn frees_standby(&self) -> bool {
        self.is_answered() && self.ending().is_some_and(|stopping| stopping.validity != Validity::Spent)
    }

    /// A renewal was confirmed, and deadlines after the `latest` ones would be those of no write; returns whether it is accepted
    /// (law 1, 3). Acknowledged only if it is (law 10).
    pub(crate) fn extend(&mut self, confirmed: Confirmed, latest: Deadlines) -> bool {
        let is_over = self.ending().is_some_and(|stopping| stopping.reason.is_loss() || stopping.validity != Validity::Running);
        if is_over || !is_plausible(confirmed.deadlines, latest) {
            return false;
        }
        let deadlines = self.deadlines().max(confirmed.deadlines);
        self.confirmed = Confirmed { deadlines, ..confirmed };
        self.renewals += 1;
        true
    }

    /// The term ends for this reason; false if it was ending already. A loss replaces a reason that is none, and no extension
    /// revives what is lost (law 3).
    pub(crate) fn stop(&mut self, reason: Reason) -> bool {
        match &mut self.state {
            State::Live => {
                let (validity, proof) = (Validity::Running, Proof::Unasked);
                self.state = State::Stopping(Stopping { reason, traceparent: String::new(), validity, proof });
                return true;
            }
            State::Stopping(stopping) if reason.is_loss() && !stopping.reason.is_loss() => stopping.reason = reason,
            State::Stopping(_) => {}
        }
        false
    }

    /// A StepDown, to be answered with a proof made from now on.
    pub(crate) fn step_down(&mut self, request: u64, reason: Reason, traceparent: String) {
        self.stop(reason);
        if let State::Stopping(stopping) = &mut self.state {
            (stopping.proof, stopping.traceparent) = (Proof::Asked(request), traceparent);
        }
    }

    /// H has come, and whatever began the stop, no extension revives the term.
    pub(crate) fn spend(&mut self) {
        match &mut self.state {
            State::Live => {}
            State::Stopping(stopping) => stopping.validity = Validity::Spent,
        }
    }

    /// The proof is there; returns the request that it answers.
    pub(crate) fn answer(&mut self) -> Option<u64> {
        let State::Stopping(Stopping { proof, .. }) = &mut self.state else { return None };
        let Proof::Asked(request) = *proof else { return None };
        *proof = Proof::Answered;
        Some(request)
    }

    /// A release is about to be written: E is void. False without a proof that answered this elector (law 8).
    pub(crate) fn release(&mut self) -> bool {
        match &mut self.state {
            State::Stopping(Stopping { validity, proof: Proof::Answered, .. }) => {
                *validity = Validity::Void;
                true
            }
            State::Stopping(_) | State::Live => false,
        }
    }

    /// Another elector takes over: it sends a StepDown of its own, which is answered anew.
    pub(crate) fn change_elector(&mut self) {
        if let State::Stopping(stopping) = &mut self.state {
            stopping.proof = Proof::Unasked;
        }
    }

    /// The workload has started to lead, or was promoted, at `at`.
    pub(crate) fn started(&mut self, pid: i32, at: Instant) {
        (self.untold, self.runs_since) = (Some((pid, at)), Some(at));
    }

    /// When it has led for as long as a run may take.
    pub(crate) fn spent(&self, limit: Option<Duration>) -> Option<Instant> {
        Some(self.runs_since.filter(|_| self.is_live())? + limit?)
    }

    /// What an elector that can be told is to be told of the start.
    pub(crate) fn tell_start(&mut self) -> Option<ToElector> {
        let (pid, at) = self.untold.take()?;
        self.told = true;
        Some(ToElector::Started { term: self.term, pid, at })
    }

    /// What the next elector is told; `main` is the process that leads. A term that is over and proved has no H: its proof has
    /// disarmed it (law 3), and what runs by then is no leader's.
    pub(crate) fn resume(&self, leads: bool, main: Option<i32>) -> Resume {
        let disarmed = !leads && !self.is_live();
        let hard = if disarmed { Instant::NEVER } else { self.deadlines().hard };
        let ending = self.ending();
        Resume {
            term: self.term,
            info: self.info.clone(),
            confirmed: Confirmed { deadlines: Deadlines { hard, ..self.deadlines() }, ..self.confirmed.clone() },
            stopping: self.stopping(),
            traceparent: ending.map(|stopping| stopping.traceparent.clone()).unwrap_or_default(),
            released: ending.is_some_and(|stopping| stopping.validity == Validity::Void),
            main: main.filter(|_| leads),
            told: self.told,
        }
    }
}

/// Whether these can be the deadlines of a write, of which the `latest` are those of one sent now.
fn is_plausible(deadlines: Deadlines, latest: Deadlines) -> bool {
    deadlines.soft <= deadlines.hard && deadlines.hard <= deadlines.end && deadlines.max(latest) == latest
}
