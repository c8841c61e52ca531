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
//!
//! It sends nothing: `workload::stopping` sends the stop signal, and [`Workload`](super::workload::Workload) orders each later step
//! when its time has come, not when a child is reaped.

use std::time::Duration;

use crate::{config::KillMode, time::Instant};

use super::interface::Scan;

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
#[derive(Clone, Debug, Default, Hash)]
pub(crate) struct StopEscalation {
    pid1: bool,
    mode: KillMode,
    margin: Duration,
    phase: Phase,
    /// The grace is over.
    kill: Option<Instant>,
    /// The next scan or kill. Unset while the answer to one is awaited, and in the grace until the main process has ended.
    look: Option<Instant>,
    /// The survivors are reported.
    unproved: Option<Instant>,
    /// Init ends itself. Set at H.
    die: Option<Instant>,
    main_gone: bool,
    killed: Option<Instant>,
    /// Time of the last step. With many processes its answer comes long after its first SIGKILL.
    stepped: Option<Instant>,
    last: Scan,
    /// Time since which, and number of sweeps in which, new processes kept appearing.
    adrift: Option<(Instant, u32)>,
    /// kill(-1) did not help, and is not tried again before H.
    exhausted: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Phase {
    /// The stop signal was sent.
    #[default]
    Asked,
    /// SIGKILL by sweeps, with this pause before the next but one.
    Sweeping { pause: Duration },
    /// SIGKILL by kill(-1), in the same way.
    Everything { pause: Duration },
}

/// The next step, for the workload to order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
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
        Self { pid1, mode, margin, kill: Some(kill_at), ..Self::default() }
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

    /// Returns true if kill(-1) is being repeated: an elector that is started now would die of it.
    pub(crate) fn kills_everything(&self) -> bool {
        matches!(self.phase, Phase::Everything { .. })
    }

    /// Returns true if only the stop signal was sent so far.
    pub(crate) fn asks(&self) -> bool {
        self.phase == Phase::Asked
    }

    /// Returns true if [`Step::Unproved`] was returned.
    pub(crate) fn is_stuck(&self) -> bool {
        !self.asks() && self.unproved.is_none()
    }

    /// Moves SIGKILL to `limit`, if that is earlier.
    pub(crate) fn shorten(&mut self, limit: Instant) {
        self.kill = self.kill.map(|at| at.min(limit));
    }

    /// Moves SIGKILL to `until`, if that is later.
    pub(crate) fn extend(&mut self, until: Instant) {
        self.kill = self.kill.map(|at| at.max(until));
    }

    /// Takes the end of the main process. With `killMode: mixed` the rest is due to be killed now, by the next step.
    pub(crate) fn main_ended(&mut self, now: Instant) {
        self.main_gone = true;
        match self.mode {
            KillMode::Mixed if self.asks() => self.sweep(now),
            KillMode::Mixed | KillMode::Group => self.reaped(now),
        }
    }

    /// Takes the end of another process: the next check is due at once.
    pub(crate) fn reaped(&mut self, now: Instant) {
        if !self.asks() {
            self.look = self.look.map(|at| at.min(now));
        } else if self.main_gone {
            self.look = Some(now);
        }
    }

    /// Takes the passing of H, which was at `hard`.
    pub(crate) fn hard(&mut self, hard: Instant, now: Instant) {
        let end = hard + self.margin;
        let late = now + if now < end { end.since(now) / 2 } else { REAPING };
        self.unproved = Some(late.or_earlier(self.unproved));
        if !self.pid1 {
            if self.asks() {
                self.sweep(now);
            }
            return;
        }
        if self.kills_everything() {
            self.look = self.look.map(|at| at.min(now));
        } else {
            self.kill_everything();
            self.look = Some(now);
        }
        self.die.get_or_insert(late);
    }

    /// Takes the answer to a step. Returns true if it is the proof.
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
            Phase::Asked => self.look = Some((now + LONGEST_PAUSE).or_earlier(self.look)),
            // Only the end of init helps, and killMargin has no room for a pause and one more wake-up.
            Phase::Everything { .. } if self.die.is_some() && self.last.denied => self.look = Some(now),
            Phase::Sweeping { pause } | Phase::Everything { pause } => {
                let wait = if stranger { FIRST_PAUSE } else { *pause };
                self.look = Some(now + wait);
                *pause = (wait * 2).min(LONGEST_PAUSE);
            }
        }
        false
    }

    /// Time of the next step.
    pub(crate) fn due(&self) -> Option<Instant> {
        [self.kill, self.look, self.unproved, self.die].into_iter().flatten().min()
    }

    /// Returns the next step that is due at `now`. Call it until there is none.
    pub(crate) fn step(&mut self, now: Instant) -> Option<Step> {
        self.stepped = Some(now);
        if self.asks() {
            if self.kill.is_none_or(|at| at > now) {
                return self.look.take_if(|at| *at <= now).is_some().then_some(Step::Prove);
            }
            self.sweep(now);
        }
        if !self.is_about_to_look(now) && self.unproved.take_if(|at| *at <= now).is_some() {
            // Before H a useless kill(-1) is not repeated, because it would kill each new elector.
            if self.kills_everything() && self.die.is_none() {
                self.exhausted = true;
                self.phase = Phase::Sweeping { pause: LONGEST_PAUSE };
                self.look = Some(now + LONGEST_PAUSE);
            }
            return Some(Step::Unproved(self.last.left.iter().copied().take(NAMED).collect()));
        }
        if self.die.is_some_and(|at| at <= now || self.last.denied) {
            (self.look, self.die) = (None, None);
            return Some(Step::Die);
        }
        self.look.take_if(|at| *at <= now)?;
        if self.kills_everything() {
            return Some(Step::KillAll);
        }
        let (span, enough) = DIVERGING;
        let diverges = self.adrift.is_some_and(|(since, sweeps)| now.since(since) >= span && sweeps >= enough);
        if !(self.pid1 && !self.exhausted && diverges) {
            return Some(Step::Sweep);
        }
        self.unproved.get_or_insert(now + self.margin);
        self.kill_everything();
        Some(Step::KillAll)
    }

    /// Returns true if a sweep is due or its answer awaited. After it there may be nothing left to report.
    fn is_about_to_look(&self, now: Instant) -> bool {
        !self.asks() && self.die.is_none_or(|at| at > now) && self.look.is_none_or(|at| at <= now)
    }

    fn kill_everything(&mut self) {
        self.phase = Phase::Everything { pause: FIRST_PAUSE };
        self.kill = None;
    }

    fn sweep(&mut self, now: Instant) {
        // Processes that came and went before the first kill do not count as diverging.
        self.adrift = None;
        self.phase = Phase::Sweeping { pause: FIRST_PAUSE };
        self.kill = None;
        self.look = Some(now);
        self.unproved.get_or_insert(now + self.margin);
    }
}

#[cfg(test)]
mod tests;
