//! What the processes of a world need of the rest of it: choices, the time, and somebody who is told what happens.

use std::fmt::{self, Display, Formatter};

use crate::clock::Ns;

/// A life of a replica: its container from start to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Who {
    /// Which replica.
    pub replica: usize,
    /// Which of its containers.
    pub life: u32,
}

impl Display for Who {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "r{}.{}", self.replica, self.life)
    }
}

/// A process in a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Child {
    /// Whose.
    pub who: Who,
    /// Which.
    pub pid: i32,
}

/// Chooses what a world leaves open.
pub trait Choice {
    /// Chooses a number up to the greatest.
    fn up_to(&mut self, most: u32) -> u32;
    /// Returns true with this probability.
    fn chance(&mut self, share: f64) -> bool;
    /// Returns true in one half of all cases.
    fn coin(&mut self) -> bool;
    /// Chooses a span from `least` to `most`, log-uniformly.
    fn spread(&mut self, least: Ns, most: Ns) -> Ns;
}

/// Something that a process does at its time.
#[derive(Clone, Copy, Debug)]
pub enum Due {
    /// A forked process is about to exec.
    Exec(Child),
    /// The workload takes on a role that it was told.
    Obeys(Child),
    /// A process ends, for whatever reason.
    Ends(Child),
}

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Wrong {
    /// Two terms led at once, of two replicas or of one.
    Overlap,
    /// A fencing token that does not rise.
    Token,
    /// A release while something of the term ran.
    Release,
    /// Something of a term outlived what init knew of it.
    Late,
    /// A workload was stopped without cause.
    Disturbed,
    /// Nobody leads long after the last fault.
    Unled,
    /// A frozen workload gets a signal that is not SIGKILL.
    Signalled,
    /// A standby that is not ready, or not preferred to the leader, asks it to hand over.
    Asked,
    /// A machine asks to be woken and then does nothing.
    Spins,
    /// A step that the law forbids.
    Unlawful,
}

/// A judge that is told who leads.
pub trait Observer {
    /// The process runs as the leader of this token's term; `covered` if the kernel kills it at H.
    fn runs(&mut self, child: Child, token: u64, covered: bool, now: Ns);
    /// A run of the workload begins under this token.
    fn begins_run(&mut self, who: Who, token: u64);
    /// The process no longer leads.
    fn gone(&mut self, child: Child);
    /// The kernel kills the process at H from now on.
    fn covers(&mut self, child: Child);
    /// Records a violation.
    fn fail(&mut self, wrong: Wrong, what: String);
}

/// The surroundings of a container's processes.
pub trait Scene: Choice {
    /// True if nothing is left open: a death that is due comes before anything else of its instant, a child that has not run yet
    /// dies at once, and what takes no time is not told apart by when it happened.
    const EXACT: bool;
    /// The judge.
    type Judge: Observer;

    /// Returns the real time.
    fn now(&self) -> Ns;
    /// Schedules it, or leaves it to whoever looks for what is due.
    fn schedule(&mut self, when: Ns, due: Due);
    /// Adds a line to the story.
    fn note(&mut self, who: Who, what: impl FnOnce() -> String);
    /// Returns the judge.
    fn judge(&mut self) -> &mut Self::Judge;

    /// Returns the time after this span.
    fn after(&self, span: Ns) -> Ns {
        if Self::EXACT && span == 0 { 0 } else { self.now().saturating_add(span) }
    }
}
