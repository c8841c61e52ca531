//! The kill ladder: from the stop signal to the proof that nothing is left.
//!
//! ```text
//! stop signal, SIGCONT       the grace runs
//! walk                       SIGKILL to everything but init and the elector, again and again until a clean scan
//! kill(-1)                   as PID 1: where walks do not converge, and at H; again and again, and it takes the elector with it
//! the end of init            as PID 1, halfway from H to E, or at H if survivors may not be killed: the kernel kills the namespace
//! ```
//!
//! Not PID 1, the last two rungs do not exist: the walks go on, there is no proof, and so no release (law 8).

use std::time::Duration;

use crate::{config::KillMode, time::Instant};

use super::Scan;

/// How soon a walk is repeated; a reaped child repeats it at once.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
/// How rarely: what is still there by then hangs in the kernel.
const LONGEST_PAUSE: Duration = Duration::from_millis(100);
/// For so long, and so many walks, each found somebody new (a fork bomb outruns them), or nobody and yet no proof (/proc hides).
const DIVERGING: (Duration, u32) = (Duration::from_millis(100), 16);
/// So many are named of those that do not go away.
const NAMED: usize = 8;
/// Between a kill(-1) that comes after E and giving up on its proof: a busy node needs long to bury what runs no more.
const REAPING: Duration = Duration::from_secs(1);

/// One way down.
#[derive(Clone, Debug)]
pub(crate) struct Ladder {
    pid1: bool,
    mode: KillMode,
    margin: Duration,
    phase: Phase,
    main_gone: bool,
    killed: Option<Instant>,
    last: Scan,
    /// Since when, and for how many walks, they have not converged.
    adrift: Option<(Instant, u32)>,
    unproved_at: Option<Instant>,
}

#[derive(Clone, Debug)]
enum Phase {
    /// The stop signal is out. `look` is set where the main process is gone and the rest may still end by itself.
    Asked { kill_at: Instant, look: Option<Instant> },
    /// SIGKILL by walks, the next one at `next`; none while one is awaited.
    Walking { next: Option<Instant>, pause: Duration },
    /// SIGKILL by kill(-1). From `die_at` on, which H sets, there is nothing left to try.
    Everything { next: Option<Instant>, pause: Duration, die_at: Option<Instant> },
}

/// What is to be done next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Prove,
    Walk,
    KillAll,
    Die,
    /// Report that these, or some of them, do not go away.
    Unproved(Vec<i32>),
}

impl Ladder {
    /// From the top: the stop signal goes out now.
    pub(crate) fn asking(pid1: bool, mode: KillMode, margin: Duration, kill_at: Instant) -> Self {
        let phase = Phase::Asked { kill_at, look: None };
        Self { pid1, mode, margin, phase, main_gone: false, killed: None, last: Scan::default(), adrift: None, unproved_at: None }
    }

    /// From the walks on: the main process is gone, or its time was used up.
    pub(crate) fn killing(pid1: bool, margin: Duration, now: Instant) -> Self {
        let mut ladder = Self::asking(pid1, KillMode::Mixed, margin, now);
        ladder.walk(now);
        ladder
    }

    /// When SIGKILL was first sent to somebody.
    pub(crate) fn killed(&self) -> Option<Instant> {
        self.killed
    }

    /// Whether kill(-1) is repeated: an elector started now would die of it.
    pub(crate) fn kills_everything(&self) -> bool {
        matches!(self.phase, Phase::Everything { .. })
    }

    /// Whether it only asks so far.
    pub(crate) fn asks(&self) -> bool {
        matches!(self.phase, Phase::Asked { .. })
    }

    /// Whether it was reported that SIGKILL does not do.
    pub(crate) fn is_stuck(&self) -> bool {
        !self.asks() && self.unproved_at.is_none()
    }

    /// SIGKILL comes no later than `kill_at`.
    pub(crate) fn squeeze(&mut self, limit: Instant) {
        match &mut self.phase {
            Phase::Asked { kill_at, .. } => *kill_at = limit.min(*kill_at),
            Phase::Walking { .. } | Phase::Everything { .. } => {}
        }
    }

    /// The main process was reaped. With `mixed` the rest is not asked.
    pub(crate) fn main_ended(&mut self, now: Instant) {
        self.main_gone = true;
        match (&self.phase, self.mode) {
            (Phase::Asked { .. }, KillMode::Mixed) => self.walk(now),
            (Phase::Asked { .. }, KillMode::Group) | (Phase::Walking { .. } | Phase::Everything { .. }, _) => self.reaped(now),
        }
    }

    /// Some process was reaped: look again at once.
    pub(crate) fn reaped(&mut self, now: Instant) {
        match &mut self.phase {
            Phase::Asked { look, .. } if self.main_gone => *look = Some(now),
            Phase::Asked { .. } => {}
            Phase::Walking { next, .. } | Phase::Everything { next, .. } => {
                *next = next.map(|at| at.min(now));
            }
        }
    }

    /// H, which was at `hard`, has come.
    pub(crate) fn hard(&mut self, hard: Instant, now: Instant) {
        let end = hard + self.margin;
        let late = now + if now < end { end.since(now) / 2 } else { REAPING };
        self.unproved_at = Some(self.unproved_at.map_or(late, |at| at.min(late)));
        if !self.pid1 {
            if matches!(self.phase, Phase::Asked { .. }) {
                self.walk(now);
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
        let (since, walks) = self.adrift.unwrap_or((now, 0));
        self.adrift = (stranger || scan.left.is_empty()).then_some((since, walks + 1));
        self.last = scan;
        match &mut self.phase {
            // Whoever came in from outside dies silently.
            Phase::Asked { look, .. } if self.main_gone => {
                *look = Some(look.map_or(now + LONGEST_PAUSE, |at| at.min(now + LONGEST_PAUSE)));
            }
            Phase::Asked { .. } => {}
            // A pause and one more wake-up are not in killMargin, and the end of init is all that helps.
            Phase::Everything { next, die_at: Some(_), .. } if self.last.denied => *next = Some(now),
            Phase::Walking { next, pause } | Phase::Everything { next, pause, .. } => {
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
            Phase::Asked { kill_at, look } => Some(look.map_or(kill_at, |at| at.min(kill_at))),
            Phase::Walking { next, .. } => next,
            Phase::Everything { next, die_at, .. } => next.map(|at| die_at.map_or(at, |end| end.min(at))),
        };
        [step, self.unproved_at].into_iter().flatten().min()
    }

    /// The next step that is due at `now`; call it until there is none.
    pub(crate) fn step(&mut self, now: Instant) -> Option<Step> {
        if let Phase::Asked { kill_at, look } = &mut self.phase {
            if now < *kill_at {
                return look.take_if(|at| *at <= now).map(|_| Step::Prove);
            }
            self.walk(now);
        }
        if self.unproved_at.take_if(|at| *at <= now).is_some() {
            return Some(Step::Unproved(self.last.left.iter().copied().take(NAMED).collect()));
        }
        match &mut self.phase {
            Phase::Asked { .. } => None,
            Phase::Walking { next, .. } => {
                next.take_if(|at| *at <= now)?;
                let (span, enough) = DIVERGING;
                if self.pid1 && self.adrift.is_some_and(|(since, walks)| now.since(since) >= span && walks >= enough) {
                    self.phase = Phase::Everything { next: None, pause: FIRST_PAUSE, die_at: None };
                    return Some(Step::KillAll);
                }
                Some(Step::Walk)
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

    fn walk(&mut self, now: Instant) {
        self.unproved_at = Some(self.unproved_at.unwrap_or(now + self.margin));
        self.phase = Phase::Walking { next: Some(now), pause: FIRST_PAUSE };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MARGIN: Duration = Duration::from_secs(1);

    fn ms(n: u64) -> Instant {
        Instant::from_nanos(n * 1_000_000)
    }

    fn tick() -> Duration {
        Duration::from_nanos(1)
    }

    fn left(pids: &[i32]) -> Scan {
        Scan { left: pids.to_vec(), killed: true, ..Scan::default() }
    }

    fn clean() -> Scan {
        Scan { clean: true, ..Scan::default() }
    }

    fn asking(pid1: bool, mode: KillMode) -> Ladder {
        Ladder::asking(pid1, mode, MARGIN, ms(4000))
    }

    #[test]
    fn the_grace_ends_in_a_walk_and_not_a_tick_earlier() {
        let mut ladder = asking(true, KillMode::Mixed);
        assert_eq!(ladder.step(ms(4000) - tick()), None);
        assert_eq!(ladder.due(), Some(ms(4000)));
        assert_eq!(ladder.step(ms(4000)), Some(Step::Walk));
    }

    #[test]
    fn the_end_of_the_main_process_sends_the_rest_to_the_walk_with_mixed() {
        let mut ladder = asking(true, KillMode::Mixed);
        ladder.main_ended(ms(10));
        assert_eq!(ladder.step(ms(10)), Some(Step::Walk));
        assert!(ladder.scanned(clean(), ms(10)));
        assert_eq!(ladder.killed(), None, "nobody was there to be killed");
    }

    #[test]
    fn the_rest_of_a_group_keeps_its_grace() {
        let mut ladder = asking(true, KillMode::Group);
        ladder.main_ended(ms(10));
        assert_eq!(ladder.step(ms(10)), Some(Step::Prove));
        assert!(!ladder.scanned(Scan { killed: false, ..left(&[7]) }, ms(10)));
        assert_eq!(ladder.step(ms(20)), None);
        ladder.reaped(ms(30));
        assert_eq!(ladder.step(ms(30)), Some(Step::Prove));
        assert_eq!(ladder.step(ms(4000)), Some(Step::Walk));
    }

    #[test]
    fn who_dies_unseen_of_a_group_is_missed_soon() {
        let mut ladder = asking(true, KillMode::Group);
        ladder.main_ended(ms(10));
        assert_eq!(ladder.step(ms(10)), Some(Step::Prove));
        assert!(!ladder.scanned(Scan { killed: false, ..left(&[7]) }, ms(11)));

        assert_eq!(ladder.due(), Some(ms(111)));
        assert_eq!(ladder.step(ms(111)), Some(Step::Prove));
        assert!(ladder.scanned(clean(), ms(111)));
    }

    #[test]
    fn thousands_that_die_one_after_the_other_converge_and_some_of_them_are_named() {
        let mut ladder = Ladder::killing(true, MARGIN, ms(0));
        let many: Vec<i32> = (0..2_000).collect();
        let mut named = None;
        for dead in 1..2_000 {
            let now = ms(u64::try_from(dead).unwrap());
            ladder.reaped(now);
            while let Some(step) = ladder.step(now) {
                match step {
                    Step::Walk => assert!(!ladder.scanned(left(&many[dead..]), now)),
                    Step::Unproved(pids) => named = Some(pids),
                    Step::Prove | Step::KillAll | Step::Die => panic!("{step:?} after {dead}"),
                }
            }
        }
        assert_eq!(named.map(|pids| pids.len()), Some(NAMED));
    }

    #[test]
    fn walks_go_on_until_a_clean_scan_and_at_once_when_something_is_reaped() {
        let mut ladder = Ladder::killing(true, MARGIN, ms(0));
        assert_eq!(ladder.step(ms(0)), Some(Step::Walk));
        assert!(!ladder.scanned(left(&[7]), ms(0)));
        assert_eq!(ladder.step(ms(0)), None);
        ladder.reaped(ms(0) + tick());
        assert_eq!(ladder.step(ms(0) + tick()), Some(Step::Walk));
        assert!(!ladder.scanned(left(&[7]), ms(1)));
        assert_eq!(ladder.step(ladder.due().unwrap()), Some(Step::Walk), "and without a reaped child, after a pause");
        assert!(ladder.scanned(clean(), ms(9)));
        assert_eq!(ladder.killed(), Some(ms(0)));
    }

    #[test]
    fn walks_that_always_meet_somebody_new_end_in_kill_all_as_pid_1_only() {
        for pid1 in [true, false] {
            let mut ladder = Ladder::killing(pid1, MARGIN, ms(0));
            assert_eq!(kills_all(&mut ladder, |walk| left(&[walk])), pid1);
            assert_eq!(ladder.kills_everything(), pid1, "until the proof");
        }
    }

    #[test]
    fn walks_that_meet_nobody_and_prove_nothing_end_in_kill_all_as_pid_1_only() {
        for pid1 in [true, false] {
            let mut ladder = Ladder::killing(pid1, MARGIN, ms(0));
            assert_eq!(kills_all(&mut ladder, |_| Scan::default()), pid1);
        }
    }

    fn kills_all(ladder: &mut Ladder, scan: impl Fn(i32) -> Scan) -> bool {
        (0..200).any(|walk| {
            let now = ladder.due().unwrap();
            let step = ladder.step(now);
            ladder.scanned(scan(walk), now);
            step == Some(Step::KillAll)
        })
    }

    #[test]
    fn a_process_that_hangs_in_the_kernel_is_reported_and_costs_no_elector_before_h() {
        let mut ladder = Ladder::killing(true, MARGIN, ms(0));
        let mut steps = Vec::new();
        while let Some(now) = ladder.due().filter(|at| *at < ms(5000)) {
            let step = ladder.step(now).unwrap();
            if step == Step::Walk {
                ladder.scanned(left(&[7]), now);
            }
            steps.push((now, step));
        }
        let unproved: Vec<_> = steps.iter().filter(|(_, step)| *step != Step::Walk).collect();
        assert_eq!(unproved, [&(ms(1000), Step::Unproved(vec![7]))]);
    }

    #[test]
    fn at_h_everything_is_killed_and_half_a_margin_later_init_ends_unless_proved() {
        let mut ladder = asking(true, KillMode::Mixed);
        ladder.hard(ms(3000), ms(3000));
        assert_eq!(ladder.step(ms(3000)), Some(Step::KillAll));
        ladder.scanned(left(&[7]), ms(3000));
        let mut last = ms(3000);
        while last < ms(3500) {
            last = ladder.due().unwrap();
            match ladder.step(last).unwrap() {
                Step::KillAll => assert!(!ladder.scanned(left(&[7]), last)),
                Step::Unproved(_) => {}
                Step::Die => break,
                step @ (Step::Prove | Step::Walk) => panic!("{step:?}"),
            }
        }
        assert_eq!(last, ms(3500));
    }

    #[test]
    fn h_waits_for_no_pause_of_a_kill_all_that_began_earlier() {
        let mut ladder = Ladder::killing(true, MARGIN, ms(0));
        assert!(kills_all(&mut ladder, |walk| left(&[walk])));
        let mut now = ms(2000);
        for _ in 0..8 {
            now = now.max(ladder.due().unwrap());
            while ladder.step(now).is_some() {
                ladder.scanned(left(&[7]), now);
            }
        }
        assert_eq!(ladder.due(), Some(now + LONGEST_PAUSE));
        ladder.hard(now + tick(), now + tick());
        assert_eq!(ladder.step(now + tick()), Some(Step::KillAll));
    }

    #[test]
    fn init_that_wakes_between_h_and_e_has_half_of_what_is_left() {
        for (woken, dies) in [(ms(3600), ms(3800)), (ms(4000) - tick() * 2, ms(4000) - tick()), (ms(4000), ms(5000))] {
            let mut ladder = asking(true, KillMode::Mixed);
            ladder.hard(ms(3000), woken);
            assert_eq!(ladder.step(woken), Some(Step::KillAll));
            ladder.scanned(left(&[7]), woken);
            assert_ne!(ladder.step(dies - tick()), Some(Step::Die));
            assert!(std::iter::from_fn(|| ladder.step(dies)).any(|step| step == Step::Die));
        }
    }

    #[test]
    fn init_that_wakes_long_after_h_kills_and_tries_a_proof_before_it_gives_up() {
        let mut ladder = asking(true, KillMode::Mixed);
        ladder.hard(ms(3000), ms(60_000));
        assert_eq!(ladder.step(ms(60_000)), Some(Step::KillAll));
        assert!(!ladder.scanned(left(&[7]), ms(60_000)));
        ladder.reaped(ms(60_001));
        assert_eq!(ladder.step(ms(60_001)), Some(Step::KillAll));
        assert!(ladder.scanned(clean(), ms(60_001)));
    }

    #[test]
    fn survivors_that_may_not_be_killed_end_init_at_h() {
        let mut ladder = Ladder::killing(true, MARGIN, ms(0));
        ladder.step(ms(0));
        ladder.scanned(Scan { denied: true, ..left(&[7]) }, ms(0));
        assert_eq!(ladder.step(ms(900)), Some(Step::Walk), "before H there is still hope");
        ladder.scanned(Scan { denied: true, ..left(&[7]) }, ms(900));
        ladder.hard(ms(950), ms(950));
        assert_eq!(ladder.step(ms(950)), Some(Step::Die));
    }

    #[test]
    fn survivors_that_turn_out_at_h_not_to_be_killable_end_init_without_a_pause() {
        let mut ladder = asking(true, KillMode::Mixed);
        ladder.hard(ms(3000), ms(3000));
        assert_eq!(ladder.step(ms(3000)), Some(Step::KillAll));
        assert!(!ladder.scanned(Scan { denied: true, ..left(&[7]) }, ms(3000)));
        assert_eq!(ladder.due(), Some(ms(3000)));
        assert_eq!(ladder.step(ms(3000)), Some(Step::Die));
    }

    #[test]
    fn not_pid_1_there_is_neither_kill_all_nor_the_end_of_init() {
        let mut ladder = asking(false, KillMode::Mixed);
        ladder.hard(ms(3000), ms(3000));
        for _ in 0..100 {
            let now = ladder.due().unwrap();
            match ladder.step(now).unwrap() {
                Step::Walk => assert!(!ladder.scanned(Scan { denied: true, ..left(&[7]) }, now)),
                Step::Unproved(pids) => assert_eq!((pids, now), (vec![7], ms(3500))),
                step @ (Step::Prove | Step::KillAll | Step::Die) => panic!("{step:?}"),
            }
        }
    }
}
