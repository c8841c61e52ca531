//! The fuses of a term: one for each process group of a leader, all at H (law 3).
//!
//! Init is the first guard at H and the elector the second, and both must run to kill. The kernel needs neither. Each fuse
//! stands where init last acknowledged H: it is moved before the acknowledgement goes out, and is gone with the proof. Where the
//! kernel has none, init and elector guard alone.

use crate::{
    clock,
    process::{
        Pid,
        fuse::{Fuse, FuseError},
    },
    time::Instant,
};

/// A search for groups may take this part of init's time.
const SEARCHING: u32 = 200;

/// Each takes two descriptors and a few kilobytes of the kernel's; a workload of more groups keeps some without.
const MOST: usize = 64;

/// The fuses that are lit.
#[derive(Debug)]
pub(super) struct Fuses {
    /// H; none while nothing of a leader may run.
    hard: Option<Instant>,
    lit: Vec<Fuse>,
    search_from: Instant,
}

impl Fuses {
    pub(super) const fn new() -> Self {
        Self { hard: None, lit: Vec::new(), search_from: Instant::BOOT }
    }

    /// Moves all to H, or takes them away. Whether that was news.
    pub(super) fn follow(&mut self, hard: Option<Instant>) -> Result<bool, FuseError> {
        if self.hard == hard {
            return Ok(false);
        }
        self.hard = hard;
        let Some(hard) = hard else {
            self.lit.clear();
            return Ok(true);
        };
        let mut failed = None;
        // One that cannot be moved is taken away: it would kill in a term that goes on.
        self.lit.retain_mut(|fuse| fuse.set(hard).map_err(|error| failed = Some(error)).is_ok());
        failed.map_or(Ok(true), Err)
    }

    /// Whether one has fired since this was last asked.
    pub(super) fn have_fired(&self) -> bool {
        self.lit.iter().filter(|fuse| fuse.has_fired()).count() > 0
    }

    /// One for the group that a child is about to make of itself. None while nothing of a leader may run.
    pub(super) fn spare(&self) -> Result<Option<Fuse>, FuseError> {
        self.hard.filter(|_| self.lit.len() < MOST).map(Fuse::light).transpose()
    }

    /// Keeps it for this group.
    pub(super) fn keep(&mut self, mut fuse: Fuse, group: Pid) {
        // A group that is gone already needs none.
        if fuse.bind(group).is_ok() {
            self.lit.push(fuse);
        }
    }

    /// Has one for this group.
    pub(super) fn cover(&mut self, group: Pid) -> Result<(), FuseError> {
        if self.lit.iter().any(|fuse| fuse.group() == Some(group)) {
            return Ok(());
        }
        if let Some(fuse) = self.spare()? {
            self.keep(fuse, group);
        }
        Ok(())
    }

    /// Has one for each group that is found now, unless the last search was costly and not long ago.
    pub(super) fn search(&mut self, find: impl FnOnce() -> Vec<Pid>) -> Result<(), FuseError> {
        let began = clock::boot();
        if began < self.search_from {
            return Ok(());
        }
        let groups = find();
        let now = clock::boot();
        self.search_from = now + now.since(began) * SEARCHING;
        self.lit.retain(|fuse| fuse.group().is_some_and(|group| groups.contains(&group)));
        groups.into_iter().try_for_each(|group| self.cover(group))
    }
}
