//! A single run of a hook: its time limit, and the meaning of its end.

use std::{collections::VecDeque, time::Duration};

use super::{interface::Action, policy::Policy};
use crate::{
    config::{HookKind, OnHookFailure},
    link::Exit,
    time::Instant,
};

/// A run of a hook, from the order to start it until its process group is gone.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct HookRun {
    pub(crate) kind: HookKind,
    /// Its pid, once it has forked.
    pub(crate) pid: Option<i32>,
    /// Time of the kill; none if it was killed.
    kill_at: Option<Instant>,
    /// Time from which it counts as failed even if it is still there.
    until: Instant,
    /// Its result does not matter any more.
    cancelled: bool,
}

impl HookRun {
    /// It is killed at `kill_at`, and counts as failed `kill_margin` later.
    pub(crate) fn new(kind: HookKind, kill_at: Instant, kill_margin: Duration) -> Self {
        Self { kind, pid: None, kill_at: Some(kill_at), until: kill_at + kill_margin, cancelled: false }
    }

    /// Time of the kill; after the kill, the time from which it counts as failed.
    pub(crate) fn due(&self) -> Instant {
        self.kill_at.unwrap_or(self.until)
    }

    pub(crate) const fn kill_due(&self) -> Option<Instant> {
        self.kill_at
    }

    /// Kills it once its time is up. Returns true if it has not ended `workload.stop.killMargin` later either.
    pub(crate) fn handle_timeout(&mut self, now: Instant, out: &mut VecDeque<Action>) -> bool {
        if self.kill_at.is_some_and(|at| at <= now) {
            self.kill(out);
        }
        self.until <= now
    }

    /// Kills it, unless it was killed.
    pub(crate) fn kill(&mut self, out: &mut VecDeque<Action>) {
        if self.kill_at.take().is_some() {
            out.extend(self.pid.map(|pid| Action::KillHook { pid }));
        }
    }

    /// Kills it because a stop begins, and says so.
    pub(crate) fn cut_short(&mut self, out: &mut VecDeque<Action>) {
        if self.kill_at.is_some() {
            self.kill(out);
            out.push_back(Action::Warn(format!("hook {} was killed: the stop does not wait for it", self.kind.as_str())));
        }
    }

    /// Kills it because its result does not matter any more. That is no failure.
    pub(crate) fn cancel(&mut self, out: &mut VecDeque<Action>) {
        self.cancelled = true;
        self.kill(out);
    }

    /// Returns true if the change of role goes on after this end. `exit` is none if the hook never began.
    pub(crate) fn succeeds(&self, exit: Option<Exit>, policy: &Policy, out: &mut VecDeque<Action>) -> bool {
        let name = self.kind.as_str();
        let how = match exit {
            Some(Exit::Code(0)) => return true,
            Some(_) if self.cancelled => return true,
            None => "it could not be started".into(),
            Some(_) if self.kill_at.is_none() => format!("it was not over within hooks.{name}.timeout, and was killed"),
            Some(exit) => exit.to_string(),
        };
        out.push_back(Action::Warn(format!("hook {name} failed: {how}")));
        policy.hook(self.kind).is_some_and(|hook| hook.on_failure == OnHookFailure::Ignore)
    }
}
