//! The stop escalation: from the stop signal to the proof that nothing is left.
//!
//! ```text
//! stop signal, SIGCONT       the grace runs
//! kill sweep                 SIGKILL to everything but init and the elector, again and again until a clean scan
//! kill(-1)                   as PID 1: where sweeps do not converge, for a killMargin, and at H; again and again, and it takes the
//!                            elector with it
//! the end of init            as PID 1, halfway from H to E, or at H if survivors cannot be killed: the kernel kills the namespace
//! ```
//!
//! Unless init is PID 1, the last two steps do not exist: the sweeps go on, and without a proof there is no release (law 8).

use std::time::Duration;

use crate::{config::KillMode, time::Instant};

use super::Scan;

/// The first pause between sweeps; a reaped child ends it at once.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
/// The longest pause: what is still there by then hangs in the kernel.
const LONGEST_PAUSE: Duration = Duration::from_millis(100);
/// Sweeps diverge if for this long, and this many of them, each found a new process: a fork bomb outruns them.
const DIVERGING: (Duration, u32) = (Duration::from_millis(100), 16);
/// How many of the processes that do not die are named.
const NAMED: usize = 8;
/// From a kill(-1) that comes after E until its proof is given up: a busy node takes long to reap what no longer runs.
const REAPING: Duration = Duration::from_secs(1);

/// The course of one stop.
#[derive(Clone, Debug)]
pub(crate) struct StopEscalation {
    pid1: bool,
    mode: KillMode,
    margin: Duration,
    phase: Phase,
    main_gone: bool,
    killed: Option<Instant>,
    last: Scan,
    /// Since when, and for how many sweeps, they have not converged.
    adrift: Option<(Instant, u32)>,
    unproved_at: Option<Instant>,
    /// kill(-1) did not remove what is left, and was given up until H.
    exhausted: bool,
}

#[derive(Clone, Debug)]
enum Phase {
    /// The stop signal is out. `look` is set if the main process is gone and the rest may still end by itself.
    Asked { kill_at: Instant, look: Option<Instant> },
    /// SIGKILL by sweeps, the next one at `next`; none while one is awaited.
    Sweeping { next: Option<Instant>, pause: Duration },
    /// SIGKILL by kill(-1). From `die_at` on, which H sets, there is nothing left to try.
    Everything { next: Option<Instant>, pause: Duration, die_at: Option<Instant> },
}

/// What is to be done next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Prove,
    Sweep,
    KillAll,
    Die,
    /// Report that these, or some of them, do not die.
    Unproved(Vec<i32>),
}

impl StopEscalation {
    /// From the top: the stop signal goes out now.
    pub(crate) fn asking(pid1: bool, mode: KillMode, margin: Duration, kill_at: Instant) -> Self {
        let phase = Phase::Asked { kill_at, look: None };
        Self {
            pid1,
            mode,
            margin,
            phase,
            main_gone: false,
            killed: None,
            last: Scan::default(),
            adrift: None,
            unproved_at: None,
            exhausted: false,
        }
    }

    /// From the sweeps on: the main process is gone, or its time is up.
    pub(crate) fn killing(pid1: bool, margin: Duration, now: Instant) -> Self {
        let mut escalation = Self::asking(pid1, KillMode::Mixed, margin, now);
        escalation.sweep(now);
        escalation
    }

    /// When SIGKILL was first sent to somebody.
    pub(crate) fn killed(&self) -> Option<Instant> {
        self.killed
    }

    /// Whether kill(-1) is repeated: an elector started now would die of it.
    pub(crate) fn kills_everything(&self) -> bool {
        matches!(self.phase, Phase::Everything { .. })
    }

    /// Whether it has only asked so far.
    pub(crate) fn asks(&self) -> bool {
        matches!(self.phase, Phase::Asked { .. })
    }

    /// Whether SIGKILL was reported not to suffice.
    pub(crate) fn is_stuck(&self) -> bool {
        !self.asks() && self.unproved_at.is_none()
    }

    /// SIGKILL comes no later than `limit`.
    pub(crate) fn squeeze(&mut self, limit: Instant) {
        match &mut self.phase {
            Phase::Asked { kill_at, .. } => *kill_at = limit.min(*kill_at),
            Phase::Sweeping { .. } | Phase::Everything { .. } => {}
        }
    }

    /// Whoever was asked needs until then.
    pub(crate) fn extend(&mut self, until: Instant) {
        if let Phase::Asked { kill_at, .. } = &mut self.phase {
            *kill_at = until.max(*kill_at);
        }
    }

    /// The main process was reaped. With `mixed` the rest is killed without being asked.
    pub(crate) fn main_ended(&mut self, now: Instant) {
        self.main_gone = true;
        match (&self.phase, self.mode) {
            (Phase::Asked { .. }, KillMode::Mixed) => self.sweep(now),
            (Phase::Asked { .. }, KillMode::Group) | (Phase::Sweeping { .. } | Phase::Everything { .. }, _) => self.reaped(now),
        }
    }

    /// Some process was reaped: look again at once.
    pub(crate) fn reaped(&mut self, now: Instant) {
        match &mut self.phase {
            Phase::Asked { look, .. } if self.main_gone => *look = Some(now),
            Phase::Asked { .. } => {}
            Phase::Sweeping { next, .. } | Phase::Everything { next, .. } => {
                *next = next.map(|at| at.min(now));
            }
        }
    }

    /// H, which was at `hard`, has come.
    pub(crate) fn hard(&mut self, hard: Instant, now: Instant) {
        let end = hard + self.margin;
        let late = now + if now < end { end.since(now) / 2 } else { REAPING };
        self.unproved_at = Some(late.or_earlier(self.unproved_at));
        if !self.pid1 {
            if matches!(self.phase, Phase::Asked { .. }) {
                self.sweep(now);
            }
            return;
        }
        if let Phase::Everything { next, die_at, .. } = &mut self.phase {
            die_at.get_or_insert(late);
            *next = next.map(|at| at.min(now));
            return;
        }
        self.phase = Phase::Everything { next: Some(now), pause: FIRST_PAUSE, die_at: Some(late) };
    }

    /// The answer to a step; true if it is the proof.
    pub(crate) fn scanned(&mut self, mut scan: Scan, now: Instant) -> bool {
        if scan.killed {
            self.killed.get_or_insert(now);
        }
        if scan.clean {
            return true;
        }
        scan.left.sort_unstable();
        let stranger = scan.left.iter().any(|pid| self.last.left.binary_search(pid).is_err());
        let (since, sweeps) = self.adrift.unwrap_or((now, 0));
        self.adrift = stranger.then_some((since, sweeps + 1));
        self.last = scan;
        match &mut self.phase {
            // A process from outside (kubectl exec) dies without a SIGCHLD.
            Phase::Asked { look, .. } => *look = Some((now + LONGEST_PAUSE).or_earlier(*look)),
            // killMargin has no room for a pause and one more wake-up, and only the end of init helps.
            Phase::Everything { next, die_at: Some(_), .. } if self.last.denied => *next = Some(now),
            Phase::Sweeping { next, pause } | Phase::Everything { next, pause, .. } => {
                let wait = if stranger { FIRST_PAUSE } else { *pause };
                *next = Some(now + wait);
                *pause = (wait * 2).min(LONGEST_PAUSE);
            }
        }
        false
    }

    /// When the next step is due.
    pub(crate) fn due(&self) -> Option<Instant> {
        let step = match self.phase {
            Phase::Asked { kill_at, look } => Some(kill_at.or_earlier(look)),
            Phase::Sweeping { next, .. } => next,
            Phase::Everything { next, die_at, .. } => next.map(|at| at.or_earlier(die_at)),
        };
        [step, self.unproved_at].into_iter().flatten().min()
    }

    /// The next step that is due at `now`; call it until there is none.
    pub(crate) fn step(&mut self, now: Instant) -> Option<Step> {
        if let Phase::Asked { kill_at, look } = &mut self.phase {
            if now < *kill_at {
                return look.take_if(|at| *at <= now).map(|_| Step::Prove);
            }
            self.sweep(now);
        }
        if !self.is_about_to_look(now) && self.unproved_at.take_if(|at| *at <= now).is_some() {
            // Before H, what kill(-1) cannot remove must not keep the elector from living either.
            if let Phase::Everything { die_at: None, .. } = self.phase {
                self.exhausted = true;
                self.phase = Phase::Sweeping { next: Some(now + LONGEST_PAUSE), pause: LONGEST_PAUSE };
            }
            return Some(Step::Unproved(self.last.left.iter().copied().take(NAMED).collect()));
        }
        match &mut self.phase {
            Phase::Asked { .. } => None,
            Phase::Sweeping { next, .. } => {
                next.take_if(|at| *at <= now)?;
                let (span, enough) = DIVERGING;
                let can_kill_all = self.pid1 && !self.exhausted;
                if can_kill_all && self.adrift.is_some_and(|(since, sweeps)| now.since(since) >= span && sweeps >= enough) {
                    self.unproved_at.get_or_insert(now + self.margin);
                    self.phase = Phase::Everything { next: None, pause: FIRST_PAUSE, die_at: None };
                    return Some(Step::KillAll);
                }
                Some(Step::Sweep)
            }
            Phase::Everything { next, die_at, .. } => {
                if die_at.is_some_and(|at| at <= now || self.last.denied) {
                    (*next, *die_at) = (None, None);
                    return Some(Step::Die);
                }
                next.take_if(|at| *at <= now).map(|_| Step::KillAll)
            }
        }
    }

    /// Whether a sweep is due or awaited, after which there may be nothing left to report.
    fn is_about_to_look(&self, now: Instant) -> bool {
        match self.phase {
            Phase::Asked { .. } => false,
            Phase::Sweeping { next, .. } => next.is_none_or(|at| at <= now),
            Phase::Everything { next, die_at, .. } => die_at.is_none_or(|at| now < at) && next.is_none_or(|at| at <= now),
        }
    }

    fn sweep(&mut self, now: Instant) {
        // What came and went while it was only looked at was not killed.
        self.adrift = None;
        self.unproved_at = Some(self.unproved_at.unwrap_or(now + self.margin));
        self.phase = Phase::Sweeping { next: Some(now), pause: FIRST_PAUSE };
    }
}

#[cfg(test)]
mod tests;
