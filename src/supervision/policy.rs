//! The configuration as the workload's machine reads it, and the facts that follow from it.

use std::time::Duration;

use crate::{
    config::{Acknowledge, Hook, HookKind, Runs, SharedConfig},
    time::Instant,
};

/// What runs where.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Mode {
    /// There is no Lease, so the workload has no role.
    Plain,
    /// `runs: leading`: the workload runs on the leader alone.
    Leading,
    /// `standby.command` is set: another program runs on standbys.
    StandbyCommand,
    /// `runs: frozen`: the workload runs on standbys too, stopped by SIGSTOP.
    Frozen,
    /// `runs: always`: the workload runs on standbys too, and is told its role.
    Always,
}

/// The configuration, and facts derived from it.
#[derive(Clone, Debug, Hash)]
pub(crate) struct Policy {
    /// Init is PID 1.
    pub(crate) pid1: bool,
    pub(crate) mode: Mode,
    /// The workload has the terminal, or may be lent one: keys reach it, and not init.
    pub(crate) terminal: bool,
    pub(crate) config: SharedConfig,
}

impl Policy {
    pub(crate) fn of(config: SharedConfig, pid1: bool, terminal: bool) -> Self {
        let mode = match config.workload.runs {
            _ if !config.lease.enabled => Mode::Plain,
            Runs::Always => Mode::Always,
            Runs::Frozen => Mode::Frozen,
            Runs::Leading if config.standby.command.is_empty() => Mode::Leading,
            Runs::Leading => Mode::StandbyCommand,
        };
        Self { pid1, mode, terminal, config }
    }

    /// Returns the hook, if it is configured. Without a Lease no hook runs.
    pub(crate) fn hook(&self, kind: HookKind) -> Option<&Hook> {
        if self.mode == Mode::Plain { None } else { kind.of(&self.config.hooks) }
    }

    /// Limit on the time of an execve under a Lease: D, the time for which a crash would leave the Lease without a leader.
    pub(crate) fn start_timeout(&self) -> Duration {
        self.config.lease.duration
    }

    /// Returns true if a change of role needs a notification.
    pub(crate) fn asks_for_word(&self) -> bool {
        self.config.workload.acknowledge == Some(Acknowledge::Notify)
    }

    /// Returns true if something runs while this replica follows.
    pub(crate) fn has_standby(&self) -> bool {
        matches!(self.mode, Mode::StandbyCommand | Mode::Frozen | Mode::Always)
    }

    /// Time by which a standby must be gone for a leader that may be started until `not_after`.
    pub(crate) fn standby_ends_by(&self, not_after: Instant, now: Instant) -> Instant {
        let stop = &self.config.workload.stop;
        not_after.before(stop.kill_margin).min(now + stop.loss_grace)
    }

    /// Limit on the time until a promotion's signal is sent, and then until it is acknowledged: the time that its hooks may take,
    /// and D at least. A workload that is silent for longer is of less use than another leader.
    pub(crate) fn promotion_limit(&self) -> Duration {
        let margin = self.config.workload.stop.kill_margin;
        let hooks = [HookKind::BeforeLead, HookKind::AfterLead].into_iter().filter_map(|kind| self.hook(kind));
        hooks.map(|hook| hook.timeout.saturating_add(margin)).fold(self.start_timeout(), Duration::max)
    }
}
