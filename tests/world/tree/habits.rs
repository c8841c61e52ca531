//! How the processes of a container behave.

use crate::{
    clock::{MS, Ns},
    scene::Choice,
};

/// How the workload behaves. By default it ends only when it is killed, and then at once.
#[derive(Clone, Debug, Default)]
pub struct Habits {
    /// The longest time from fork to execve.
    pub exec: Ns,
    /// Fraction that ignores SIGTERM.
    pub deaf: f64,
    /// The longest time from SIGTERM to the end of one that obeys.
    pub lingers: Ns,
    /// k: the longest time from SIGKILL to the end.
    pub death: Ns,
    /// Fraction that takes all of that.
    pub slow_death: f64,
    /// The maximum number of daemons.
    pub daemons: u32,
    /// Fraction that forks while others are being killed.
    pub breeds: f64,
    /// Fraction that ends by itself.
    pub exits: f64,
    /// The longest time until it does.
    pub lasts: Ns,
    /// If it always runs: it reports when it has taken on a role.
    pub says: bool,
    /// Fraction of hooks that hang, and of the others that fail, where hooks tell it its role.
    pub hangs: f64,
    /// Fraction of daemons that nobody may kill.
    pub foreign: f64,
    /// Fraction of answers to probes that are none.
    pub ill: f64,
    /// The workload says itself whether it is ready and live, on NOTIFY_SOCKET.
    pub tells: bool,
    /// The workload is frozen until it leads.
    pub freezes: bool,
    /// Fraction of hooks and probes that leave a process behind.
    pub leaves: f64,
    /// Init sees of no process that a stranger has continued it: a control, which must be reported.
    pub blind: bool,
    /// Fraction of electors that hang in the kernel when they are killed.
    pub stuck: f64,
    /// Nothing finds or kills what runs: a control, which must be reported.
    pub hides: bool,
}

/// How a process reacts.
#[derive(Clone, Copy, Debug, Hash)]
pub(super) struct Manner {
    /// From SIGTERM to its end; none if it ignores it.
    pub(super) obeys_in: Option<Ns>,
    /// From SIGKILL to its end.
    pub(super) dies_in: Ns,
    /// Forks while others are being killed.
    pub(super) breeds: bool,
    /// The process changed its user, so nobody may kill it: it ends with init.
    pub(super) foreign: bool,
    /// Nothing finds or kills it once it runs.
    pub(super) hidden: bool,
}

impl Manner {
    pub(super) fn of(habits: &Habits, e: &mut impl Choice) -> Self {
        let obeys_in = if e.chance(habits.deaf) { None } else { Some(e.spread(MS, habits.lingers)) };
        let dies_in = if e.chance(habits.slow_death) { habits.death } else { e.spread(10_000, habits.death.max(10_000)) };
        Self {
            obeys_in,
            dies_in: dies_in.min(habits.death),
            breeds: e.chance(habits.breeds),
            foreign: false,
            hidden: habits.hides,
        }
    }
}
