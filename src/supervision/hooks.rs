//! One hook that runs, or is about to: when it is killed, and what its end means.

use std::collections::VecDeque;

use super::{Action, Told, workload::Policy};
use crate::{
    config::{HookKind, OnHookFailure},
    link::Exit,
    time::Instant,
};

/// A hook, from the order to start it until all of it is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HookRun {
    kind: HookKind,
    /// Once it has forked.
    pid: Option<i32>,
    /// Then it is killed; none if it was.
    kill_at: Option<Instant>,
    /// If it is still there by then, it counts as failed.
    until: Instant,
    /// Nobody waits for it any more.
    called_off: bool,
}

impl HookRun {
    /// Starts the hook, if one is set; it does not begin at `not_after` or later.
    pub(crate) fn start(
        kind: HookKind,
        policy: &Policy,
        told: Told,
        not_after: Instant,
        now: Instant,
        out: &mut VecDeque<Action>,
    ) -> Option<Self> {
        let hook = kind.of(&policy.hooks)?;
        out.push_back(Action::Hook { hook: kind, told, not_after });
        let kill_at = now + hook.timeout;
        Some(Self { kind, pid: None, kill_at: Some(kill_at), until: kill_at + policy.config.stop.kill_margin, called_off: false })
    }

    pub(crate) const fn forked(&mut self, pid: i32) {
        self.pid = Some(pid);
    }

    pub(crate) fn is(&self, pid: i32) -> bool {
        self.pid == Some(pid)
    }

    /// When it is to be killed, and if it was, when it has failed all the same.
    pub(crate) fn due(&self) -> Instant {
        self.kill_at.unwrap_or(self.until)
    }

    pub(crate) const fn kill_due(&self) -> Option<Instant> {
        self.kill_at
    }

    /// Kills it once its time is up; whether it is not even gone after that.
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

    /// Kills it because nobody waits for it any more: that is no failure.
    pub(crate) fn call_off(&mut self, out: &mut VecDeque<Action>) {
        self.called_off = true;
        self.kill(out);
    }

    /// Whether what it was for goes on after this end; none: it never began.
    pub(crate) fn succeeds(&self, exit: Option<Exit>, policy: &Policy, out: &mut VecDeque<Action>) -> bool {
        let name = self.kind.as_str();
        let how = match exit {
            Some(Exit::Code(0)) => return true,
            Some(_) if self.called_off => return true,
            None => "it could not be started".into(),
            Some(_) if self.kill_at.is_none() => format!("it was not over within hooks.{name}.timeout, and was killed"),
            Some(exit) => exit.to_string(),
        };
        out.push_back(Action::Warn(format!("hook {name} failed: {how}")));
        self.kind.of(&policy.hooks).is_some_and(|hook| hook.on_failure == OnHookFailure::Ignore)
    }
}
