//! The fuses of a term: one for each process group of a leader, all at H (law 3).
//!
//! Init is the first guard at H, and the elector the second. Both must run to kill. A fuse is the third guard, in the kernel, and
//! needs neither. It is set to the H that init last acknowledged: moved before the acknowledgement is sent, and removed after the
//! proof. Without fuses in the kernel, init and elector guard alone.
//!
//! Nothing announces a new process group, so init searches for them: at each renewal, and a few times soon after a start, when a
//! workload usually starts its daemons.

use std::time::Duration;

use nix::sys::resource::{Resource, getrlimit};

use super::proof::Groups;
use crate::{
    clock,
    once::Once,
    process::{
        Pid,
        fuse::{Fuse, FuseError},
        signals::open_descriptors,
    },
    time::Instant,
};

/// Searches at renewals use at most this fraction (one part in 200) of init's time.
const SEARCHING: u32 = 200;
/// Searches soon after a start use at most this fraction (one part in 10).
const SEARCHING_SOON: u32 = 10;

/// Times of the searches after a start. Later the renewals search.
const SOON: [Duration; 5] = [
    Duration::from_millis(10),
    Duration::from_millis(30),
    Duration::from_millis(100),
    Duration::from_millis(300),
    Duration::from_secs(1),
];

/// Interval for checking that the loopback interface answers. If it does not, a fuse fires after fifteen seconds.
const LOOKING: Duration = Duration::from_secs(5);

/// Limit on the fuses. Each takes two descriptors and a few kilobytes of kernel memory. Further groups have none.
const MOST: usize = 64;
/// Descriptors that the rest of init needs, also to start a workload or another elector.
const SPARED: u64 = 32;
/// Descriptors that init needs with all fuses.
pub(super) const DESCRIPTORS: u64 = SPARED + 2 * MOST as u64;

/// Limit on the time for setting or arming all fuses, because init does nothing else meanwhile.
const PASS: Duration = Duration::from_millis(300);

/// The fuses that are armed.
#[derive(Debug, Default)]
pub(super) struct Fuses {
    /// When they fire: H, or `advance` before it; none while nothing of a leader may run.
    hard: Option<Instant>,
    advance: Duration,
    armed: Vec<Fuse>,
    /// Limit on the fuses by the descriptors of this process, [`MOST`] at most.
    most: usize,
    /// Time of the last start or promotion of a leader.
    started: Option<Instant>,
    /// End of the last search, and the time that it took.
    searched: (Instant, Duration),
    /// Time from which a renewal may search again.
    search_from: Instant,
    /// Time of the last check that the loopback interface answers.
    looked: Instant,
    /// A failure, until they work again.
    pub(super) failure: Once,
}

impl Fuses {
    /// Without any yet. They are set by `advance` before H.
    pub(super) fn new(advance: Duration) -> Self {
        let descriptors = getrlimit(Resource::RLIMIT_NOFILE).map_or(0, |(soft, _)| soft);
        Self { advance, most: most(descriptors.saturating_sub(open_descriptors())), ..Self::default() }
    }

    /// Moves all fuses to H, or removes them. Returns true if H has changed.
    pub(super) fn follow(&mut self, hard: Option<Instant>) -> Result<bool, FuseError> {
        let hard = hard.map(|hard| hard.before(self.advance));
        if self.hard == hard {
            return Ok(false);
        }
        self.hard = hard;
        if hard.is_some() {
            self.check_answers()?;
            self.set_all(clock::boot() + PASS)?;
        } else {
            self.armed.clear();
            self.started = None;
        }
        Ok(true)
    }

    /// Removes all fuses if the loopback interface does not answer, because they would fire long before H.
    fn check_answers(&mut self) -> Result<(), FuseError> {
        self.looked = clock::boot();
        if !self.armed.iter().any(Fuse::is_unanswered) {
            return Ok(());
        }
        self.armed.clear();
        Err(FuseError::Unanswered)
    }

    /// Sets all fuses to H. Those that are not set by `until` are removed.
    fn set_all(&mut self, until: Instant) -> Result<(), FuseError> {
        let Some(hard) = self.hard else { return Ok(()) };
        let mut failed = None;
        // A fuse that cannot be set is removed, because it would kill in a term that goes on. The others are then removed
        // untried, because each try may be slow if the loopback interface is at fault.
        self.armed.retain_mut(|fuse| {
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

    /// Returns true if a fuse has fired since the last call. Asks all, so that none reports it in the next term.
    pub(super) fn take_fired(&self) -> bool {
        self.armed.iter().filter(|fuse| fuse.take_fired()).count() > 0
    }

    /// Arms a fuse without a group, for a child that is about to be forked. None while nothing of a leader may run, or if there
    /// are too many.
    pub(super) fn spare(&mut self) -> Result<Option<Fuse>, FuseError> {
        if self.armed.len() >= self.most {
            // Fuses without a group belong to probes that have ended.
            self.armed.retain(|fuse| fuse.group().is_some());
        }
        match self.hard {
            Some(hard) if self.armed.len() < self.most => Fuse::arm(hard).map(Some),
            Some(_) if self.most < MOST => Err(FuseError::Descriptors(self.most)),
            Some(_) | None => Ok(None),
        }
    }

    /// Binds the fuse to this group, and keeps it.
    pub(super) fn keep(&mut self, mut fuse: Fuse, group: Pid) {
        // A group that is gone needs no fuse.
        if fuse.bind(group).is_ok() {
            self.armed.push(fuse);
        }
    }

    /// Makes sure that this group has a fuse.
    pub(super) fn cover(&mut self, group: Pid) -> Result<(), FuseError> {
        if self.armed.iter().any(|fuse| fuse.kills(group)) {
            return Ok(());
        }
        if let Some(fuse) = self.spare()? {
            self.keep(fuse, group);
        }
        Ok(())
    }

    /// Records a start or promotion of a leader, which may make new process groups from now on.
    pub(super) fn started(&mut self) {
        self.started = self.hard.map(|_| clock::boot());
    }

    /// Time at which [`Self::tend`] is due, if nothing else wakes init before.
    pub(super) fn due(&self) -> Option<Instant> {
        let look = self.armed.first().map(|_| self.looked + LOOKING);
        self.search_due().into_iter().chain(look).min()
    }

    /// Skips searches that were delayed by a slow one, or while init was stopped.
    fn search_due(&self) -> Option<Instant> {
        let (started, (ended, took)) = (self.started?, self.searched);
        SOON.iter().map(|after| started + *after).find(|due| *due > ended + took * SEARCHING_SOON)
    }

    /// Checks that the loopback interface answers. If a search is due, gives each group that it finds a fuse.
    pub(super) fn tend(&mut self, find: impl FnOnce() -> Option<Groups>) -> Result<(), FuseError> {
        self.check_answers()?;
        if self.search_due().is_some_and(|due| due <= clock::boot()) { self.cover_all(find, PASS) } else { Ok(()) }
    }

    /// Gives each group that a search finds a fuse. Skips the search, and returns false, if the last one was slow and not long ago.
    pub(super) fn search(&mut self, find: impl FnOnce() -> Option<Groups>) -> Result<bool, FuseError> {
        if clock::boot() < self.search_from {
            return Ok(false);
        }
        let covered = self.cover_all(find, PASS);
        let (ended, took) = self.searched;
        self.search_from = ended + took * SEARCHING;
        covered.map(|()| true)
    }

    /// Gives each group that is found a fuse, and removes the fuses of groups that are gone or hold strangers. (A group that is
    /// not found may still be there.) Groups that are left after `pass` are for the next search.
    fn cover_all(&mut self, find: impl FnOnce() -> Option<Groups>, pass: Duration) -> Result<(), FuseError> {
        let began = clock::boot();
        let Groups { ours, strange } = find().unwrap_or_default();
        self.armed.retain(|fuse| fuse.group().is_some_and(|group| !strange.contains(&group)));
        let until = clock::boot() + pass;
        let covered = ours.into_iter().take_while(|_| clock::boot() < until).try_for_each(|group| self.cover(group));
        let ended = clock::boot();
        self.searched = (ended, ended.since(began));
        covered
    }
}

/// Returns how many fuses this many descriptors suffice for.
fn most(descriptors: u64) -> usize {
    usize::try_from(descriptors.saturating_sub(SPARED) / 2).unwrap_or(MOST).min(MOST)
}

#[cfg(test)]
mod tests {
    use std::{os::unix::process::CommandExt as _, process::Child};

    use super::*;

    const FAR: Duration = Duration::from_hours(1);

    /// Longer than it takes until three probes have no answer, and shorter than until a fuse fires.
    const UNANSWERED: Duration = Duration::from_secs(10);

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
    fn armed(groups: &[&Group]) -> Fuses {
        let mut fuses = Fuses::new(Duration::ZERO);
        fuses.follow(Some(clock::boot() + FAR)).unwrap();
        groups.iter().for_each(|group| fuses.cover(group.id()).unwrap());
        fuses
    }

    fn covered(fuses: &Fuses) -> Vec<Pid> {
        fuses.armed.iter().filter_map(Fuse::group).collect()
    }

    fn ours(groups: &[&Group]) -> Option<Groups> {
        Some(Groups { ours: groups.iter().map(|group| group.id()).collect(), strange: Vec::new() })
    }

    #[test]
    fn it_is_searched_soon_after_a_start_more_and_more_rarely_and_less_where_that_is_costly() {
        let start = Instant::from_nanos(7_000_000_000);
        let searches = |cost| {
            let (mut fuses, mut at) = (Fuses { started: Some(start), ..Fuses::new(Duration::ZERO) }, Vec::new());
            while let Some(due) = fuses.search_due() {
                at.push(due.since(start).as_millis());
                fuses.searched = (due + cost, cost);
            }
            at
        };
        assert_eq!(searches(Duration::from_micros(400)), [10, 30, 100, 300, 1_000]);
        assert_eq!(searches(Duration::from_millis(8)), [10, 100, 300, 1_000]);
        assert_eq!(searches(Duration::from_millis(200)), [10]);

        let late = (start + Duration::from_millis(500), Duration::ZERO);
        let stopped = Fuses { started: Some(start), searched: late, ..Fuses::new(Duration::ZERO) };
        assert_eq!(stopped.search_due(), Some(start + Duration::from_secs(1)), "it makes up for none that it missed");
    }

    #[test]
    fn a_group_keeps_its_fuse_unless_it_is_known_to_be_gone_or_to_hold_strangers() {
        let [unseen, strange, gone] = [(); 3].map(|()| Group::new());
        let mut fuses = armed(&[&unseen, &strange, &gone]);
        let (unseen_id, strange_id) = (unseen.id(), strange.id());

        fuses.search(|| None).unwrap();
        let untold = covered(&fuses).len();
        drop(gone);
        fuses.cover_all(|| Some(Groups { ours: Vec::new(), strange: vec![strange_id] }), PASS).unwrap();

        assert_eq!((untold, covered(&fuses), fuses.armed.len()), (3, vec![unseen_id], 1));
    }

    #[test]
    fn there_are_as_many_as_there_are_descriptors_for_what_is_gone_gives_its_own_back_and_a_lack_is_told() {
        let (first, second) = (Group::new(), Group::new());
        let mut fuses = Fuses { most: 1, ..armed(&[]) };

        fuses.cover(first.id()).unwrap();
        let full = fuses.cover(second.id());
        drop(first);
        fuses.cover(second.id()).unwrap();

        assert!(matches!(full, Err(FuseError::Descriptors(1))), "{full:?}");
        assert_eq!(covered(&fuses), [second.id()]);
        assert!(matches!(Fuses { most: MOST, ..armed(&[]) }.spare(), Ok(Some(_))));
        assert!(matches!(Fuses { most: 0, ..armed(&[]) }.spare(), Err(FuseError::Descriptors(0))));
        assert!(matches!(Fuses { most: 0, ..Fuses::new(Duration::ZERO) }.spare(), Ok(None)), "nothing of a leader may run");
        assert_eq!([16, 32, 64, DESCRIPTORS, u64::MAX].map(most), [0, 0, 16, MOST, MOST]);
    }

    #[test]
    fn where_they_may_be_late_they_are_set_before_h() {
        let (group, hard) = (Group::new(), clock::boot() + FAR);
        let mut fuses = Fuses::new(Duration::from_secs(3));

        fuses.follow(Some(hard)).unwrap();
        fuses.cover(group.id()).unwrap();
        fuses.follow(Some(hard + FAR)).unwrap();

        let at: Vec<_> = fuses.armed.iter().map(Fuse::at).collect();
        assert_eq!(at, [(hard + FAR).before(Duration::from_secs(3))]);
    }

    #[test]
    fn for_what_there_is_no_time_is_left_without() {
        let group = Group::new();
        let mut fuses = armed(&[]);

        fuses.cover_all(|| ours(&[&group]), Duration::ZERO).unwrap();
        let unarmed = fuses.armed.len();
        fuses.cover(group.id()).unwrap();
        let kept = fuses.set_all(clock::boot());
        let (at_h, hard) = (fuses.armed.len(), fuses.hard.unwrap());
        fuses.hard = Some(hard + Duration::from_secs(1));
        let set = fuses.set_all(clock::boot());

        assert!(kept.is_ok() && matches!(set, Err(FuseError::Slow)), "{kept:?} {set:?}");
        assert_eq!((unarmed, at_h, fuses.armed.len()), (0, 1, 0));
    }

    #[test]
    fn they_are_removed_once_the_loopback_interface_does_not_answer() {
        let loopback = |state| std::process::Command::new("ip").args(["link", "set", "lo", state]).status().unwrap();
        // Of this thread alone.
        nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).expect("this test needs root");
        loopback("up");
        let group = Group::new();
        let mut fuses = armed(&[&group]);
        let look = |fuses: &mut Fuses| fuses.tend(|| None);
        let mut until = clock::boot() + UNANSWERED;
        while clock::boot() < until {
            look(&mut fuses).unwrap();
            std::thread::sleep(Duration::from_millis(10));
        }
        loopback("down");
        until = clock::boot() + UNANSWERED;
        while let Ok(()) = look(&mut fuses) {
            assert!(clock::boot() < until);
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(fuses.armed.is_empty() && fuses.due().is_none());
    }

    #[test]
    fn an_init_that_sleeps_looks_whether_the_loopback_interface_answers() {
        let group = Group::new();
        let mut fuses = armed(&[&group]);
        fuses.tend(|| None).unwrap();
        assert_eq!(fuses.due(), Some(fuses.looked + LOOKING));
    }

    #[test]
    fn a_search_says_whether_it_was_one() {
        let mut fuses = Fuses::new(Duration::ZERO);
        assert!(matches!(fuses.search(|| ours(&[])), Ok(true)));
        fuses.search_from = Instant::NEVER;
        assert!(matches!(fuses.search(|| ours(&[])), Ok(false)));
    }

    #[test]
    fn nothing_is_searched_for_where_nothing_of_a_leader_runs() {
        let mut fuses = Fuses::new(Duration::ZERO);
        fuses.started();
        assert_eq!(fuses.due(), None);
        fuses.follow(Some(clock::boot())).unwrap();
        fuses.started();
        assert!(fuses.due().is_some());
        fuses.follow(None).unwrap();
        assert_eq!(fuses.due(), None);
    }
}
