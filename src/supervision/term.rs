//! The term that init holds, its deadlines, and the rules by which they change. It also makes what the next elector is told of
//! it, and what the term's page says.

use std::time::Duration;

use crate::{
    law::Deadlines,
    link::{Confirmed, Reason, Resume, Term, TermInfo, ToElector},
    role::Role,
    time::Instant,
};

use super::interface::TermStatus;

/// A term from its Lead to its Ended.
#[derive(Clone, Debug, Hash)]
pub(crate) struct ActiveTerm {
    pub(crate) term: Term,
    pub(crate) info: TermInfo,
    /// The last confirmed write; its deadlines are in force.
    confirmed: Confirmed,
    renewals: u64,
    /// Pid and time of a start as leader that no elector knows of yet.
    untold: Option<(i32, Instant)>,
    /// An elector knows that the workload leads.
    told: bool,
    /// The time since which the workload leads.
    runs_since: Option<Instant>,
    /// None: the workload may lead.
    ending: Option<Ending>,
}

/// The workload may not lead any more: it is being stopped, or has been.
#[derive(Clone, Debug, Hash)]
struct Ending {
    /// The reason that began the stop; a loss of the Lease replaces a reason that is none.
    reason: Reason,
    /// The trace span of that stop; empty if no StepDown named one.
    traceparent: String,
    validity: Validity,
    proof: Proof,
}

/// The effect that E still has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Validity {
    /// The stop must be over by H. Extensions still move H, unless the Lease is lost.
    Running,
    /// H has come: no extension revives the term (law 3).
    Spent,
    /// A release was announced (law 8).
    Void,
}

/// The exchange about the proof of death that a release needs, with the current elector (law 8).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Proof {
    Unasked,
    Asked(u64),
    /// The proof was sent, and nothing of a leader has started since.
    Answered,
}

impl ActiveTerm {
    /// Begins the term of a Lead; none if its deadlines are later than those of a write sent now (law 3).
    pub(crate) fn new(term: Term, info: TermInfo, confirmed: Confirmed, latest: Deadlines) -> Option<Self> {
        is_plausible(confirmed.deadlines, latest).then_some(Self {
            term,
            info,
            confirmed,
            renewals: 0,
            untold: None,
            told: false,
            runs_since: None,
            ending: None,
        })
    }

    pub(crate) fn deadlines(&self) -> Deadlines {
        self.confirmed.deadlines
    }

    /// The status that the workload may read (law 3, 7). During a planned stop, and after a missed renewal, the Lease is still
    /// held until H. After any other loss nothing is sure, and both deadlines are past.
    pub(crate) fn status(&self) -> TermStatus {
        let Deadlines { soft, hard, .. } = self.deadlines();
        let (soft, hard) = match self.stopping() {
            None => (soft, hard),
            Some(reason) if reason.is_loss() && reason != Reason::Expired => (Instant::BOOT, Instant::BOOT),
            Some(_) => (Instant::BOOT, hard),
        };
        let (transitions, token) = (self.info.transitions, self.info.token.parse().unwrap_or_default());
        TermStatus { role: Role::Leader, transitions, token, soft, hard, renewals: self.renewals }
    }

    /// Returns true if a leader may be started, apart from the deadlines.
    pub(crate) fn is_live(&self) -> bool {
        self.ending.is_none()
    }

    /// The reason of the stop, if the term is ending.
    pub(crate) fn stopping(&self) -> Option<Reason> {
        self.ending.as_ref().map(|ending| ending.reason)
    }

    /// The next deadline to enforce while anything of a leader may run.
    pub(crate) fn due(&self) -> Option<Instant> {
        match self.ending.as_ref().map(|ending| ending.validity) {
            None => Some(self.deadlines().soft),
            Some(Validity::Running) => Some(self.deadlines().hard),
            Some(Validity::Spent | Validity::Void) => None,
        }
    }

    /// Returns true if the current elector has asked for the proof and got it.
    pub(crate) fn is_answered(&self) -> bool {
        self.ending.as_ref().is_some_and(|ending| ending.proof == Proof::Answered)
    }

    /// Returns true if a fresh standby may run. Not once H has passed: the elector's guard may then kill anything until the elector
    /// says Ended.
    pub(crate) fn frees_standby(&self) -> bool {
        self.ending.as_ref().is_some_and(|ending| ending.proof == Proof::Answered && ending.validity != Validity::Spent)
    }

    /// Takes the deadlines of a confirmed renewal. Returns false if it is refused (law 1, 3). Deadlines later than `latest`
    /// cannot be those of a write. The caller acknowledges only an accepted one (law 10).
    pub(crate) fn extend(&mut self, confirmed: Confirmed, latest: Deadlines) -> bool {
        let is_over = self.ending.as_ref().is_some_and(|ending| ending.reason.is_loss() || ending.validity != Validity::Running);
        if is_over || !is_plausible(confirmed.deadlines, latest) {
            return false;
        }
        let deadlines = self.deadlines().max(confirmed.deadlines);
        self.confirmed = Confirmed { deadlines, ..confirmed };
        self.renewals += 1;
        true
    }

    /// Begins the end of the term. A loss replaces a reason that is none, and then no extension counts (law 3).
    pub(crate) fn stop(&mut self, reason: Reason) {
        let (traceparent, validity, proof) = (String::new(), Validity::Running, Proof::Unasked);
        let ending = self.ending.get_or_insert(Ending { reason, traceparent, validity, proof });
        if reason.is_loss() && !ending.reason.is_loss() {
            ending.reason = reason;
        }
    }

    /// Takes a StepDown, which is answered with a proof made from now on.
    pub(crate) fn step_down(&mut self, request: u64, reason: Reason, traceparent: String) {
        self.stop(reason);
        if let Some(ending) = &mut self.ending {
            (ending.proof, ending.traceparent) = (Proof::Asked(request), traceparent);
        }
    }

    /// Records that H has passed: no extension revives the term.
    pub(crate) fn spend(&mut self) {
        if let Some(ending) = &mut self.ending {
            ending.validity = Validity::Spent;
        }
    }

    /// Records that the proof was given; returns the request that it answers.
    pub(crate) fn answer(&mut self) -> Option<u64> {
        let ending = self.ending.as_mut()?;
        let Proof::Asked(request) = ending.proof else { return None };
        ending.proof = Proof::Answered;
        Some(request)
    }

    /// Records that a release is about to be written, which voids E. Returns false unless this elector was given the proof (law
    /// 8).
    pub(crate) fn release(&mut self) -> bool {
        let Some(ending) = self.ending.as_mut().filter(|ending| ending.proof == Proof::Answered) else { return false };
        ending.validity = Validity::Void;
        true
    }

    /// Returns true if a release was announced.
    pub(crate) fn is_void(&self) -> bool {
        self.ending.as_ref().is_some_and(|ending| ending.validity == Validity::Void)
    }

    /// Forgets the exchange with the last elector. The next one sends its own StepDown, which is answered anew.
    pub(crate) fn change_elector(&mut self) {
        if let Some(ending) = &mut self.ending {
            ending.proof = Proof::Unasked;
        }
    }

    /// Records that the workload was started as leader, or promoted, at `at`.
    pub(crate) fn started(&mut self, pid: i32, at: Instant) {
        (self.untold, self.runs_since) = (Some((pid, at)), Some(at));
    }

    /// Returns the time at which the run reaches this limit.
    pub(crate) fn limit_at(&self, limit: Option<Duration>) -> Option<Instant> {
        if self.is_live() { Some(self.runs_since? + limit?) } else { None }
    }

    /// The message about a start that no elector knows of. The caller sends it.
    pub(crate) fn tell_start(&mut self) -> Option<ToElector> {
        let (pid, at) = self.untold.take()?;
        self.told = true;
        Some(ToElector::Started { term: self.term, pid, at })
    }

    /// The term for the next elector's InitialState. After the proof H is disarmed (law 3), because a standby may run by then.
    pub(crate) fn resume(&self, leads: bool, main: Option<i32>) -> Resume {
        let disarmed = !leads && !self.is_live();
        let hard = if disarmed { Instant::NEVER } else { self.deadlines().hard };
        Resume {
            term: self.term,
            info: self.info.clone(),
            confirmed: Confirmed { deadlines: Deadlines { hard, ..self.deadlines() }, ..self.confirmed.clone() },
            stopping: self.stopping(),
            traceparent: self.ending.as_ref().map(|ending| ending.traceparent.clone()).unwrap_or_default(),
            released: self.is_void(),
            main: if leads { main } else { None },
            told: self.told,
        }
    }
}

/// Returns true if these can be the deadlines of a write. `latest` are those of a write sent now.
fn is_plausible(deadlines: Deadlines, latest: Deadlines) -> bool {
    deadlines.soft <= deadlines.hard && deadlines.hard <= deadlines.end && deadlines.max(latest) == latest
}
