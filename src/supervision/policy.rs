//! The configuration as the workload's machine reads it, and the facts that follow from it.

use std::time::Duration;

use crate::{
    config::{Acknowledge, Hook, HookKind, Runs, SharedConfig},
    time::Instant,
};

/// The configuration, and facts derived from it.
#[derive(Clone, Debug, Hash)]
pub(crate) struct Policy {
    /// Init is PID 1.
    pub(crate) pid1: bool,
    /// There is no Lease, so the workload has no role.
    pub(crate) plain: bool,
    /// `runs: always`: the workload runs on standbys too, and is told its role.
    pub(crate) always: bool,
    /// `runs: frozen`: the workload runs on standbys too, stopped by SIGSTOP.
    pub(crate) frozen: bool,
    /// `standby.command` is set: another program runs on standbys.
    pub(crate) standby: bool,
    /// The workload has the terminal, or may be lent one: keys reach it, and not init.
    pub(crate) terminal: bool,
    pub(crate) config: SharedConfig,
}

impl Policy {
    pub(crate) fn of(config: SharedConfig, pid1: bool, terminal: bool) -> Self {
        let plain = !config.lease.enabled;
        Self {
            pid1,
            plain,
            always: config.workload.runs == Runs::Always && !plain,
            frozen: config.workload.runs == Runs::Frozen && !plain,
            standby: !config.standby.command.is_empty() && !plain,
            terminal,
            config,
        }
    }

    /// Returns the hook, if it is configured. Without a Lease no hook runs.
    pub(crate) fn hook(&self, kind: HookKind) -> Option<&Hook> {
        if self.plain { None } else { kind.of(&self.config.hooks) }
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
        self.always || self.frozen || self.standby
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
