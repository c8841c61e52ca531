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

/// The first pause between sweeps. A reaped child ends the pause.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
/// The longest pause between sweeps. Processes that are still there by then hang in the kernel.
const LONGEST_PAUSE: Duration = Duration::from_millis(100);
/// Time and number of sweeps in a row after which sweeping is given up, if each of them found a new process (a fork bomb).
const DIVERGING: (Duration, u32) = (Duration::from_millis(100), 16);
/// Limit on the pids that are reported of processes that do not die.
const NAMED: usize = 8;
/// Time that a kill(-1) after E has for its proof. A busy node takes long to reap dead processes.
const REAPING: Duration = Duration::from_secs(1);

/// The escalation of a single stop.
#[derive(Clone, Debug, Hash)]
pub(crate) struct StopEscalation {
    pid1: bool,
    mode: KillMode,
    margin: Duration,
    phase: Phase,
    main_gone: bool,
    killed: Option<Instant>,
    /// Time of the last step. With many processes its answer comes long after its first SIGKILL.
    stepped: Option<Instant>,
    last: Scan,
    /// Time since which, and number of sweeps in which, new processes kept appearing.
    adrift: Option<(Instant, u32)>,
    unproved_at: Option<Instant>,
    /// kill(-1) did not help, and is not tried again before H.
    exhausted: bool,
}

#[derive(Clone, Debug, Hash)]
enum Phase {
    /// The stop signal was sent. `look` is the next check whether the rest has ended by itself, once the main process has.
    Asked { kill_at: Instant, look: Option<Instant> },
    /// SIGKILL by sweeps, the next one at `next`; none while the answer to one is awaited.
    Sweeping { next: Option<Instant>, pause: Duration },
    /// SIGKILL by kill(-1). Init ends itself at `die_at`, which is set at H.
    Everything { next: Option<Instant>, pause: Duration, die_at: Option<Instant> },
}

/// The next step, for the workload to order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Prove,
    Sweep,
    KillAll,
    Die,
    /// Report that these processes, or some of them, do not die.
    Unproved(Vec<i32>),
}

impl StopEscalation {
    /// Begins with the stop signal, which the caller sends now.
    pub(crate) fn asking(pid1: bool, mode: KillMode, margin: Duration, kill_at: Instant) -> Self {
        let phase = Phase::Asked { kill_at, look: None };
        Self {
            pid1,
            mode,
            margin,
            phase,
            main_gone: false,
            killed: None,
            stepped: None,
            last: Scan::default(),
            adrift: None,
            unproved_at: None,
            exhausted: false,
        }
    }

    /// Begins with the sweeps, because the main process is gone or its time is up.
    pub(crate) fn killing(pid1: bool, margin: Duration, now: Instant) -> Self {
        let mut escalation = Self::asking(pid1, KillMode::Mixed, margin, now);
        escalation.sweep(now);
        escalation
    }

    /// Time of the first SIGKILL.
    pub(crate) fn killed(&self) -> Option<Instant> {
        self.killed
    }

    /// Tells whether kill(-1) is being repeated: an elector that is started now would die of it.
    pub(crate) fn kills_everything(&self) -> bool {
        matches!(self.phase, Phase::Everything { .. })
    }

    /// Tells whether only the stop signal was sent so far.
    pub(crate) fn asks(&self) -> bool {
        matches!(self.phase, Phase::Asked { .. })
    }

    /// Tells whether [`Step::Unproved`] was returned.
    pub(crate) fn is_stuck(&self) -> bool {
        !self.asks() && self.unproved_at.is_none()
    }

    /// Moves SIGKILL to `limit`, if that is earlier.
    pub(crate) fn shorten(&mut self, limit: Instant) {
        match &mut self.phase {
            Phase::Asked { kill_at, .. } => *kill_at = limit.min(*kill_at),
            Phase::Sweeping { .. } | Phase::Everything { .. } => {}
        }
    }

    /// Moves SIGKILL to `until`, if that is later.
    pub(crate) fn extend(&mut self, until: Instant) {
        if let Phase::Asked { kill_at, .. } = &mut self.phase {
            *kill_at = until.max(*kill_at);
        }
    }

    /// Takes the end of the main process. With `killMode: mixed` the rest is killed now.
    pub(crate) fn main_ended(&mut self, now: Instant) {
        self.main_gone = true;
        match (&self.phase, self.mode) {
            (Phase::Asked { .. }, KillMode::Mixed) => self.sweep(now),
            (Phase::Asked { .. }, KillMode::Group) | (Phase::Sweeping { .. } | Phase::Everything { .. }, _) => self.reaped(now),
        }
    }

    /// Takes the end of another process: the next check is due at once.
    pub(crate) fn reaped(&mut self, now: Instant) {
        match &mut self.phase {
            Phase::Asked { look, .. } if self.main_gone => *look = Some(now),
            Phase::Asked { .. } => {}
            Phase::Sweeping { next, .. } | Phase::Everything { next, .. } => {
                *next = next.map(|at| at.min(now));
            }
        }
    }

    /// Takes the passing of H, which was at `hard`.
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

    /// Takes the answer to a step; true if it is the proof.
    pub(crate) fn scanned(&mut self, mut scan: Scan, now: Instant) -> bool {
        if scan.killed {
            self.killed.get_or_insert_with(|| self.stepped.unwrap_or(now));
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
            // A process from outside (`kubectl exec`) ends without a SIGCHLD to init.
            Phase::Asked { look, .. } => *look = Some((now + LONGEST_PAUSE).or_earlier(*look)),
            // Only the end of init helps, and killMargin has no room for a pause and one more wake-up.
            Phase::Everything { next, die_at: Some(_), .. } if self.last.denied => *next = Some(now),
            Phase::Sweeping { next, pause } | Phase::Everything { next, pause, .. } => {
                let wait = if stranger { FIRST_PAUSE } else { *pause };
                *next = Some(now + wait);
                *pause = (wait * 2).min(LONGEST_PAUSE);
            }
        }
        false
    }

    /// Time of the next step.
    pub(crate) fn due(&self) -> Option<Instant> {
        let step = match self.phase {
            Phase::Asked { kill_at, look } => Some(kill_at.or_earlier(look)),
            Phase::Sweeping { next, .. } => next,
            Phase::Everything { next, die_at, .. } => next.map(|at| at.or_earlier(die_at)),
        };
        [step, self.unproved_at].into_iter().flatten().min()
    }

    /// Returns the next step that is due at `now`. Call it until there is none.
    pub(crate) fn step(&mut self, now: Instant) -> Option<Step> {
        self.stepped = Some(now);
        if let Phase::Asked { kill_at, look } = &mut self.phase {
            if now < *kill_at {
                return look.take_if(|at| *at <= now).map(|_| Step::Prove);
            }
            self.sweep(now);
        }
        if !self.is_about_to_look(now) && self.unproved_at.take_if(|at| *at <= now).is_some() {
            // Before H a useless kill(-1) is not repeated, because it would kill each new elector.
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

    /// Tells whether a sweep is due or its answer awaited. After it there may be nothing left to report.
    fn is_about_to_look(&self, now: Instant) -> bool {
        match self.phase {
            Phase::Asked { .. } => false,
            Phase::Sweeping { next, .. } => next.is_none_or(|at| at <= now),
            Phase::Everything { next, die_at, .. } => die_at.is_none_or(|at| now < at) && next.is_none_or(|at| at <= now),
        }
    }

    fn sweep(&mut self, now: Instant) {
        // Processes that came and went before the first kill do not count as diverging.
        self.adrift = None;
        self.unproved_at = Some(self.unproved_at.unwrap_or(now + self.margin));
        self.phase = Phase::Sweeping { next: Some(now), pause: FIRST_PAUSE };
    }
}

#[cfg(test)]
mod tests;
