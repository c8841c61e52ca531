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

use super::proof::Groups;
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

/// Each takes two descriptors and a few kilobytes of kernel memory; a workload of more groups has some without one.
const MOST: usize = 64;
/// Descriptors that the rest of init needs, also to start a workload or another elector.
const SPARED: u64 = 32;
/// Descriptors that are enough for all of it.
pub(super) const DESCRIPTORS: u64 = SPARED + 2 * MOST as u64;

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
    /// When something of a leader was last started or promoted.
    started: Option<Instant>,
    /// When the last search ended, and how long it took.
    searched: (Instant, Duration),
    /// From when on a renewal may search.
    search_from: Instant,
    failed: bool,
}

impl Fuses {
    pub(super) fn new() -> Self {
        let descriptors = getrlimit(Resource::RLIMIT_NOFILE).map_or(0, |(soft, _)| soft);
        Self {
            hard: None,
            lit: Vec::new(),
            most: most(descriptors),
            started: None,
            searched: (Instant::BOOT, Duration::ZERO),
            search_from: Instant::BOOT,
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
            self.started = None;
        }
        Ok(true)
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
    pub(super) fn spare(&mut self) -> Result<Option<Fuse>, FuseError> {
        if self.lit.len() >= self.most {
            // Those of probes, of which there is one after the other.
            self.lit.retain(|fuse| fuse.group().is_some());
        }
        match self.hard {
            Some(hard) if self.lit.len() < self.most => Fuse::light(hard).map(Some),
            Some(_) if self.most < MOST => Err(FuseError::Descriptors(self.most)),
            Some(_) | None => Ok(None),
        }
    }

    /// Keeps it for this group.
    pub(super) fn keep(&mut self, mut fuse: Fuse, group: Pid) {
        // A group that is gone already needs none.
        if fuse.bind(group).is_ok() {
            self.lit.push(fuse);
        }
    }

    /// Makes sure that this group has one.
    pub(super) fn cover(&mut self, group: Pid) -> Result<(), FuseError> {
        if self.lit.iter().any(|fuse| fuse.kills(group)) {
            return Ok(());
        }
        if let Some(fuse) = self.spare()? {
            self.keep(fuse, group);
        }
        Ok(())
    }

    /// Something of a leader was started or promoted: it may make groups of its own from now on.
    pub(super) fn started(&mut self) {
        self.started = self.hard.map(|_| clock::boot());
    }

    /// When [`Self::search_soon`] is due. What a costly search, or an init that was stopped, has delayed is skipped.
    pub(super) fn due(&self) -> Option<Instant> {
        let (started, (ended, took)) = (self.started?, self.searched);
        SOON.iter().map(|after| started + *after).find(|due| *due > ended + took * SEARCHING_SOON)
    }

    /// Covers each group that is found now, if that is due.
    pub(super) fn search_soon(&mut self, find: impl FnOnce() -> Option<Groups>) -> Result<(), FuseError> {
        if self.due().is_some_and(|due| due <= clock::boot()) { self.cover_all(find, PASS) } else { Ok(()) }
    }

    /// Covers each group that is found now, unless the last search was costly and not long ago; whether it searched.
    pub(super) fn search(&mut self, find: impl FnOnce() -> Option<Groups>) -> Result<bool, FuseError> {
        if clock::boot() < self.search_from {
            return Ok(false);
        }
        let covered = self.cover_all(find, PASS);
        let (ended, took) = self.searched;
        self.search_from = ended + took * SEARCHING;
        covered.map(|()| true)
    }

    /// Removes the fuses of groups that are known to be gone, or to hold strangers; that a group is not found proves neither.
    /// Groups that are left when the time for a pass is over are for the next search.
    fn cover_all(&mut self, find: impl FnOnce() -> Option<Groups>, pass: Duration) -> Result<(), FuseError> {
        let began = clock::boot();
        let Groups { ours, strange } = find().unwrap_or_default();
        self.lit.retain(|fuse| fuse.group().is_some_and(|group| !strange.contains(&group)));
        let until = clock::boot() + pass;
        let covered = ours.into_iter().take_while(|_| clock::boot() < until).try_for_each(|group| self.cover(group));
        let ended = clock::boot();
        self.searched = (ended, ended.since(began));
        covered
    }
}

/// How many this many descriptors suffice for.
fn most(descriptors: u64) -> usize {
    usize::try_from(descriptors.saturating_sub(SPARED) / 2).unwrap_or(MOST).min(MOST)
}

#[cfg(test)]
mod tests {
    use std::{os::unix::process::CommandExt as _, process::Child};

    use super::*;

    const FAR: Duration = Duration::from_hours(1);

    /// A process group of its own, which ends with this.
    struct Group(Child);

    impl Group {
        fn new() -> Self {
            Self(std::process::Command::new("sleep").arg("60").process_group(0).spawn().unwrap())
        }

        fn id(&self) -> Pid {
            Pid::from_raw(self.0.id().cast_signed())
        }
    }

    impl Drop for Group {
        fn drop(&mut self) {
            self.0.kill().unwrap();
            self.0.wait().unwrap();
        }
    }

    /// In a term, with a fuse for each of the groups.
    fn lit(groups: &[&Group]) -> Fuses {
        let mut fuses = Fuses::new();
        fuses.follow(Some(clock::boot() + FAR)).unwrap();
        groups.iter().for_each(|group| fuses.cover(group.id()).unwrap());
        fuses
    }

    fn covered(fuses: &Fuses) -> Vec<Pid> {
        fuses.lit.iter().filter_map(Fuse::group).collect()
    }

    fn ours(groups: &[&Group]) -> Option<Groups> {
        Some(Groups { ours: groups.iter().map(|group| group.id()).collect(), strange: Vec::new() })
    }

    #[test]
    fn it_is_searched_soon_after_a_start_more_and_more_rarely_and_less_where_that_is_costly() {
        let start = Instant::from_nanos(7_000_000_000);
        let searches = |cost| {
            let (mut fuses, mut at) = (Fuses { started: Some(start), ..Fuses::new() }, Vec::new());
            while let Some(due) = fuses.due() {
                at.push(due.since(start).as_millis());
                fuses.searched = (due + cost, cost);
            }
            at
        };
        assert_eq!(searches(Duration::from_micros(400)), [10, 30, 100, 300, 1_000]);
        assert_eq!(searches(Duration::from_millis(8)), [10, 100, 300, 1_000]);
        assert_eq!(searches(Duration::from_millis(200)), [10]);

        let late = (start + Duration::from_millis(500), Duration::ZERO);
        let stopped = Fuses { started: Some(start), searched: late, ..Fuses::new() };
        assert_eq!(stopped.due(), Some(start + Duration::from_secs(1)), "it makes up for none that it missed");
    }

    #[test]
    fn a_group_keeps_its_fuse_unless_it_is_known_to_be_gone_or_to_hold_strangers() {
        let [unseen, strange, gone] = [(); 3].map(|()| Group::new());
        let mut fuses = lit(&[&unseen, &strange, &gone]);
        let (unseen_id, strange_id) = (unseen.id(), strange.id());

        fuses.search(|| None).unwrap();
        let untold = covered(&fuses).len();
        drop(gone);
        fuses.cover_all(|| Some(Groups { ours: Vec::new(), strange: vec![strange_id] }), PASS).unwrap();

        assert_eq!((untold, covered(&fuses), fuses.lit.len()), (3, vec![unseen_id], 1));
    }

    #[test]
    fn there_are_as_many_as_there_are_descriptors_for_what_is_gone_gives_its_own_back_and_a_lack_is_told() {
        let (first, second) = (Group::new(), Group::new());
        let mut fuses = Fuses { most: 1, ..lit(&[]) };

        fuses.cover(first.id()).unwrap();
        let full = fuses.cover(second.id());
        drop(first);
        fuses.cover(second.id()).unwrap();

        assert!(matches!(full, Err(FuseError::Descriptors(1))), "{full:?}");
        assert_eq!(covered(&fuses), [second.id()]);
        assert!(matches!(Fuses { most: MOST, ..lit(&[]) }.spare(), Ok(Some(_))));
        assert!(matches!(Fuses { most: 0, ..lit(&[]) }.spare(), Err(FuseError::Descriptors(0))));
        assert!(matches!(Fuses { most: 0, ..Fuses::new() }.spare(), Ok(None)), "nothing of a leader may run");
        assert_eq!([16, 32, 64, DESCRIPTORS, u64::MAX].map(most), [0, 0, 16, MOST, MOST]);
    }

    #[test]
    fn for_what_there_is_no_time_is_left_without() {
        let group = Group::new();
        let mut fuses = lit(&[]);

        fuses.cover_all(|| ours(&[&group]), Duration::ZERO).unwrap();
        let unlit = fuses.lit.len();
        fuses.cover(group.id()).unwrap();
        let kept = fuses.set_all(clock::boot());
        let (at_h, hard) = (fuses.lit.len(), fuses.hard.unwrap());
        fuses.hard = Some(hard + Duration::from_secs(1));
        let set = fuses.set_all(clock::boot());

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
        assert!(matches!(fuses.search(|| ours(&[])), Ok(true)));
        fuses.search_from = Instant::NEVER;
        assert!(matches!(fuses.search(|| ours(&[])), Ok(false)));
    }

    #[test]
    fn nothing_is_searched_for_where_nothing_of_a_leader_runs() {
        let mut fuses = Fuses::new();
        fuses.started();
        assert_eq!(fuses.due(), None);
        fuses.follow(Some(clock::boot())).unwrap();
        fuses.started();
        assert!(fuses.due().is_some());
        fuses.follow(None).unwrap();
        assert_eq!(fuses.due(), None);
    }
}
