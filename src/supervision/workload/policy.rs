//! What the configuration says of the workload.

use std::time::Duration;

use crate::config::{self, Acknowledge, HookKind, Hooks, Runs, Signals};

/// What the configuration says of it.
#[derive(Clone, Debug)]
pub(crate) struct Policy {
    /// Init is PID 1.
    pub(crate) pid1: bool,
    /// Without a Lease: it has no role.
    pub(crate) plain: bool,
    /// It runs on standbys too, and is told its role.
    pub(crate) always: bool,
    /// It runs on standbys too, frozen.
    pub(crate) frozen: bool,
    /// Another program runs on standbys.
    pub(crate) standby: bool,
    /// The terminal was handed over: its keys reach the workload, not init.
    pub(crate) terminal: bool,
    pub(crate) config: config::WorkloadConfig,
    pub(crate) signals: Signals,
    pub(crate) hooks: Hooks,
    /// How long an execve may take under a Lease: as long as a crash would leave it without a leader.
    pub(crate) start_timeout: Duration,
}

impl Policy {
    pub(crate) fn of(config: &config::Config, pid1: bool, terminal: bool) -> Self {
        let plain = !config.lease.enabled;
        Self {
            pid1,
            plain,
            always: config.workload.runs == Runs::Always && !plain,
            frozen: config.workload.runs == Runs::Frozen && !plain,
            standby: !config.standby.command.is_empty() && !plain,
            terminal,
            config: config.workload.clone(),
            signals: config.signals.clone(),
            hooks: if plain { Hooks::default() } else { config.hooks.clone() },
            start_timeout: config.lease.duration,
        }
    }

    /// Whether its word is awaited, beside its signal and its hook.
    pub(crate) fn asks_for_word(&self) -> bool {
        self.config.acknowledge == Some(Acknowledge::Notify)
    }

    /// Whether something runs while following.
    pub(crate) fn has_standby(&self) -> bool {
        self.always || self.frozen || self.standby
    }

    /// How long a promotion's signal may take to be sent, and then the workload to acknowledge it: as long as its hook may take to
    /// end, and at least as long as a crash would leave the Lease without a leader. One that is silent for longer is of less use.
    pub(crate) fn promotion_patience(&self) -> Duration {
        let margin = self.config.stop.kill_margin;
        let hooks = [HookKind::BeforeLead, HookKind::AfterLead].into_iter().filter_map(|kind| kind.of(&self.hooks));
        hooks.map(|hook| hook.timeout.saturating_add(margin)).fold(self.start_timeout, Duration::max)
    }
}
