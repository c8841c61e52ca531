//! The end of a hook: of its main process, and of whatever that left in its process group (law 8: "with every hook of the term
//! dead"). What left the group is out of reach here, as it is for the workload's own processes once they are demoted.

use std::time::Duration;

use super::drive::Drive;
use crate::{
    clock,
    link::{Exit, ToElector},
    process::{Pid, kill},
    supervision::{Agent, Input},
    time::Instant,
};

/// Nearly all that a hook leaves become init's children, whose ends wake it. The others are looked for this often.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// A hook whose main process was reaped.
#[derive(Debug)]
pub(super) struct Leaving {
    pid: Pid,
    exit: Exit,
}

impl Leaving {
    pub(super) const fn new(pid: Pid, exit: Exit) -> Self {
        Self { pid, exit }
    }

    pub(super) fn look_again() -> Instant {
        clock::boot() + LOOK_AGAIN
    }
}

impl Drive {
    /// Tells of its end once nobody of its group is left.
    pub(super) fn bid_farewell(&mut self, agent: &mut Agent) {
        if let Some(Leaving { pid, exit }) = self.leaving.take_if(|hook| kill::is_group_gone(hook.pid)) {
            let ended = clock::boot();
            if let (Some((hook, began)), Some(elector)) = (self.begun.take(), &mut self.elector) {
                elector.send(&ToElector::Hooked { hook, began, ended, exit });
            }
            agent.handle(Input::Reaped { pid: pid.as_raw(), exit }, ended);
        }
    }

    /// Whether this is the process group of a hook that has not ended.
    pub(super) fn is_hook(&self, pid: i32) -> bool {
        self.pending.hook() == Some(Pid::from_raw(pid)) || self.leaving.as_ref().is_some_and(|hook| hook.pid.as_raw() == pid)
    }
}
