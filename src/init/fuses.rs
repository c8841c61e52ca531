//! The fuses of a term: one for each process group of a leader, all at H (law 3).
//!
//! Init is the first guard at H and the elector the second, and both must run to kill. The kernel needs neither. Each fuse is set
//! to the H that init last acknowledged: it is moved before the acknowledgement goes out, and removed with the proof. If the
//! kernel has none, init and elector guard alone.
//!
//! Nothing announces a new process group, so they are searched for: at each renewal, and a few times soon after something of a
//! leader was started, which is when it starts its daemons.

use std::time::Duration;

use nix::sys::resource::{Resource, getrlimit};

use crate::{
    clock,
    process::{
        Pid,
        fuse::{Fuse, FuseError},
    },
    time::Instant,
};

/// Searches at renewals take at most one part in this many of init's time.
const SEARCHING: u32 = 200;
/// Searches soon after a start take at most one part in this many.
const SEARCHING_SOON: u32 = 10;

/// When to search after a start: at growing intervals, up to that of the renewals, which take over from there.
const SOON: [Duration; 5] = [
    Duration::from_millis(10),
    Duration::from_millis(30),
    Duration::from_millis(100),
    Duration::from_millis(300),
    Duration::from_secs(1),
];

/// When to set fuses again: one that goes unanswered fires after some fifteen seconds.
const LOOK_AFTER: Duration = Duration::from_secs(5);

/// Each takes two descriptors and a few kilobytes of kernel memory; a workload of more groups has some without one.
const MOST: usize = 64;
/// Descriptors that the rest of init needs, also to start a workload or another elector.
const SPARED: u64 = 32;

/// Init does nothing else while it sets fuses, or lights new ones: longest time for all of them together.
const PASS: Duration = Duration::from_millis(300);

/// The fuses that are lit.
#[derive(Debug)]
pub(super) struct Fuses {
    /// H; none while nothing of a leader may run.
    hard: Option<Instant>,
    lit: Vec<Fuse>,
    /// As many as this process has descriptors for, [`MOST`] at the most.
    most: usize,
    search_from: Instant,
    soon: Soon,
    /// When they are set again at the latest.
    look_after_at: Option<Instant>,
    failed: bool,
}

impl Fuses {
    pub(super) fn new() -> Self {
        let descriptors = getrlimit(Resource::RLIMIT_NOFILE).map_or(0, |(soft, _)| soft);
        Self {
            hard: None,
            lit: Vec::new(),
            most: most(descriptors),
            search_from: Instant::BOOT,
            soon: Soon::OVER,
            look_after_at: None,
            failed: false,
        }
    }

    /// Moves all to H, or removes them. Returns whether H changed.
    pub(super) fn follow(&mut self, hard: Option<Instant>) -> Result<bool, FuseError> {
        if self.hard == hard {
            return Ok(false);
        }
        self.hard = hard;
        if hard.is_some() {
            self.set_all(clock::boot() + PASS)?;
        } else {
            self.lit.clear();
            (self.soon, self.look_after_at) = (Soon::OVER, None);
        }
        Ok(true)
    }

    /// Sets all of them again, if nothing has for a while: this notices a loopback interface that has stopped answering, and a
    /// suspend of the machine, even in a term that is not renewed.
    pub(super) fn look_after(&mut self) -> Result<(), FuseError> {
        if self.look_after_at.is_some_and(|at| at <= clock::boot()) { self.set_all(clock::boot() + PASS) } else { Ok(()) }
    }

    /// Those that are left at `until` are removed, unless they are set to H already.
    fn set_all(&mut self, until: Instant) -> Result<(), FuseError> {
        let Some(hard) = self.hard else { return Ok(()) };
        let mut failed = None;
        // One that cannot be set is removed: it would kill in a term that goes on. The others are then removed untried: if the
        // loopback interface is at fault, each try takes its time.
        self.lit.retain_mut(|fuse| {
            let mut set = || {
                if clock::boot() < until {
                    fuse.set(hard)
                } else if fuse.at() == hard {
                    Ok(())
                } else {
                    Err(FuseError::Slow)
                }
            };
            failed.is_none() && set().map_err(|error| failed = Some(error)).is_ok()
        });
        self.look_after_at = (!self.lit.is_empty()).then(|| clock::boot() + LOOK_AFTER);
        failed.map_or(Ok(()), Err)
    }

    /// Whether this failure is the first since they worked, the only one that is logged.
    pub(super) const fn is_first_failure(&mut self) -> bool {
        !std::mem::replace(&mut self.failed, true)
    }

    /// They work; whether they had failed.
    pub(super) const fn has_recovered(&mut self) -> bool {
        std::mem::replace(&mut self.failed, false)
    }

    /// Whether one has fired since this was last asked. All are asked, so that none reports it in the next term.
    pub(super) fn take_fired(&self) -> bool {
        self.lit.iter().filter(|fuse| fuse.take_fired()).count() > 0
    }

    /// One for the group that a child is about to make of itself. None while nothing of a leader may run, or if there are too
    /// many.
    pub(super) fn spare(&self) -> Result<Option<Fuse>, FuseError> {
        self.hard.filter(|_| self.lit.len() < self.most).map(Fuse::light).transpose()
    }

    /// Keeps it for this group.
    pub(super) fn keep(&mut self, mut fuse: Fuse, group: Pid) {
        // A group that is gone already needs none.
        if fuse.bind(group).is_ok() {
            self.lit.push(fuse);
            self.look_after_at.get_or_insert_with(|| clock::boot() + LOOK_AFTER);
        }
    }

    /// Makes sure that this group has one.
    pub(super) fn cover(&mut self, group: Pid) -> Result<(), FuseError> {
        if self.lit.iter().any(|fuse| fuse.group() == Some(group)) {
            return Ok(());
        }
        if let Some(fuse) = self.spare()? {
            self.keep(fuse, group);
        }
        Ok(())
    }

    /// Something of a leader was started or promoted: it may make groups of its own from now on.
    pub(super) fn started(&mut self) {
        if self.hard.is_some() {
            self.soon = Soon::after(clock::boot());
        }
    }

    /// When [`Self::search_soon`] or [`Self::look_after`] is due.
    pub(super) fn due(&self) -> Option<Instant> {
        [self.soon.due, self.look_after_at].into_iter().flatten().min()
    }

    /// Covers each group that is found now, if that is due.
    pub(super) fn search_soon(&mut self, find: impl FnOnce() -> Option<Vec<Pid>>) -> Result<(), FuseError> {
        let began = clock::boot();
        if self.soon.due.is_none_or(|due| due > began) {
            return Ok(());
        }
        let searched = self.cover_all(find(), clock::boot() + PASS);
        self.soon.searched(began, clock::boot());
        searched
    }

    /// Covers each group that is found now, unless the last search was costly and not long ago; whether it searched.
    pub(super) fn search(&mut self, find: impl FnOnce() -> Option<Vec<Pid>>) -> Result<bool, FuseError> {
        let began = clock::boot();
        if began < self.search_from {
            return Ok(false);
        }
        let searched = self.cover_all(find(), clock::boot() + PASS);
        let now = clock::boot();
        self.search_from = now + now.since(began) * SEARCHING;
        searched.map(|()| true)
    }

    /// The present ones stay if the groups cannot be told. Groups that are left at `until` are for the next search.
    fn cover_all(&mut self, groups: Option<Vec<Pid>>, until: Instant) -> Result<(), FuseError> {
        let Some(groups) = groups else { return Ok(()) };
        self.lit.retain(|fuse| fuse.group().is_some_and(|group| groups.contains(&group)));
        groups.into_iter().take_while(|_| clock::boot() < until).try_for_each(|group| self.cover(group))
    }
}

/// How many this many descriptors suffice for.
fn most(descriptors: u64) -> usize {
    usize::try_from(descriptors.saturating_sub(SPARED) / 2).unwrap_or(MOST).min(MOST)
}

/// The searches soon after a start.
#[derive(Clone, Copy, Debug)]
struct Soon {
    start: Instant,
    /// The next one; none when they are over.
    due: Option<Instant>,
}

impl Soon {
    const OVER: Self = Self { start: Instant::BOOT, due: None };

    fn after(start: Instant) -> Self {
        Self { start, due: SOON.first().map(|after| start + *after) }
    }

    /// A search was made. Those that it delayed, or that would come too soon after a costly one, are skipped.
    fn searched(&mut self, began: Instant, ended: Instant) {
        let from = ended + ended.since(began) * SEARCHING_SOON;
        self.due = SOON.iter().map(|after| self.start + *after).find(|due| *due > from);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt as _;

    use super::*;

    const START: Instant = Instant::from_nanos(7_000_000_000);

    /// When searches follow the start, in milliseconds, if each takes this long and is made when it is due.
    fn searches(cost: Duration) -> Vec<u128> {
        let (mut soon, mut at) = (Soon::after(START), Vec::new());
        while let Some(due) = soon.due {
            at.push(due.since(START).as_millis());
            soon.searched(due, due + cost);
        }
        at
    }

    #[test]
    fn it_is_searched_soon_after_a_start_and_more_and_more_rarely() {
        assert_eq!(searches(Duration::from_micros(400)), [10, 30, 100, 300, 1_000]);
    }

    #[test]
    fn costly_searches_are_fewer() {
        assert_eq!(searches(Duration::from_millis(8)), [10, 100, 300, 1_000]);
        assert_eq!(searches(Duration::from_millis(200)), [10]);
    }

    #[test]
    fn an_init_that_was_stopped_makes_up_for_none_that_it_missed() {
        let mut soon = Soon::after(START);
        let late = START + Duration::from_millis(500);
        soon.searched(late, late);
        assert_eq!(soon.due, Some(START + Duration::from_secs(1)));
    }

    #[test]
    fn a_search_that_can_tell_nothing_takes_no_fuse_away() {
        let mut child = std::process::Command::new("sleep").arg("60").process_group(0).spawn().unwrap();
        let group = Pid::from_raw(child.id().try_into().unwrap());
        let mut fuses = Fuses::new();
        fuses.follow(Some(clock::boot() + Duration::from_secs(3600))).unwrap();
        fuses.cover(group).unwrap();
        fuses.search(|| None).unwrap();
        let kept: Vec<_> = fuses.lit.iter().map(Fuse::group).collect();
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(kept, [Some(group)]);
    }

    #[test]
    fn groups_get_as_many_fuses_as_there_are_descriptors_for_and_what_is_gone_gives_its_own_back() {
        let mut children = [(); 2].map(|()| std::process::Command::new("sleep").arg("60").process_group(0).spawn().unwrap());
        let [first, second] = children.each_ref().map(|child| Pid::from_raw(child.id().try_into().unwrap()));
        let mut fuses = Fuses::new();
        fuses.most = 1;
        fuses.follow(Some(clock::boot() + Duration::from_secs(3600))).unwrap();
        let lit = |fuses: &Fuses| fuses.lit.iter().map(Fuse::group).collect::<Vec<_>>();

        fuses.cover(first).unwrap();
        fuses.cover(second).unwrap();
        let full = lit(&fuses);
        fuses.cover_all(Some(vec![second]), Instant::NEVER).unwrap();
        let later = lit(&fuses);

        for child in &mut children {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        assert_eq!((full, later), (vec![Some(first)], vec![Some(second)]));
    }

    #[test]
    fn for_what_there_is_no_time_is_left_without() {
        let mut child = std::process::Command::new("sleep").arg("60").process_group(0).spawn().unwrap();
        let group = Pid::from_raw(child.id().try_into().unwrap());
        let mut fuses = Fuses::new();
        fuses.follow(Some(clock::boot() + Duration::from_secs(3600))).unwrap();

        fuses.cover_all(Some(vec![group]), clock::boot()).unwrap();
        let unlit = fuses.lit.len();
        fuses.cover(group).unwrap();
        let kept = fuses.set_all(clock::boot());
        let (at_h, hard) = (fuses.lit.len(), fuses.hard.unwrap());
        fuses.hard = Some(hard + Duration::from_secs(1));
        let set = fuses.set_all(clock::boot());

        child.kill().unwrap();
        child.wait().unwrap();
        assert!(kept.is_ok() && matches!(set, Err(FuseError::Slow)), "{kept:?} {set:?}");
        assert_eq!((unlit, at_h, fuses.lit.len()), (0, 1, 0));
    }

    #[test]
    fn a_failure_is_told_again_once_they_have_worked() {
        let mut fuses = Fuses::new();
        assert!(!fuses.has_recovered());
        assert!(fuses.is_first_failure() && !fuses.is_first_failure());
        assert!(fuses.has_recovered() && !fuses.has_recovered());
        assert!(fuses.is_first_failure());
    }

    #[test]
    fn a_search_says_whether_it_was_one() {
        let mut fuses = Fuses::new();
        assert!(matches!(fuses.search(|| Some(Vec::new())), Ok(true)));
        fuses.search_from = Instant::NEVER;
        assert!(matches!(fuses.search(|| Some(Vec::new())), Ok(false)));
    }

    #[test]
    fn those_that_nothing_moves_are_looked_after() {
        let mut child = std::process::Command::new("sleep").arg("60").process_group(0).spawn().unwrap();
        let group = Pid::from_raw(child.id().try_into().unwrap());
        let mut fuses = Fuses::new();
        fuses.follow(Some(clock::boot() + Duration::from_secs(3600))).unwrap();
        fuses.cover(group).unwrap();
        let first = fuses.due();
        fuses.look_after_at = Some(clock::boot());
        fuses.look_after().unwrap();
        let second = fuses.due();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(first.is_some() && second > first, "{first:?} {second:?}");
        fuses.follow(None).unwrap();
        assert_eq!(fuses.due(), None);
    }

    #[test]
    fn they_leave_init_the_descriptors_that_it_needs_itself() {
        assert_eq!([16, 32, 64, 1024, u64::MAX].map(most), [0, 0, 16, 64, 64]);
    }

    #[test]
    fn nothing_is_searched_for_where_nothing_of_a_leader_runs() {
        let mut fuses = Fuses::new();
        fuses.started();
        assert_eq!(fuses.due(), None);
        fuses.follow(Some(START)).unwrap();
        fuses.started();
        assert!(fuses.due().is_some());
        fuses.follow(None).unwrap();
        assert_eq!(fuses.due(), None);
    }
}
