//! What the settings say of the workload.

use std::{sync::Arc, time::Duration};

use crate::{
    config::{self, Runs},
    supervision::roles::RolePolicy,
};

/// What the settings say of it.
#[derive(Clone, Debug)]
pub(crate) struct Policy {
    /// Init is PID 1.
    pub(crate) pid1: bool,
    /// Without a Lease: it has no role.
    pub(crate) plain: bool,
    /// The terminal was handed over: its keys reach the workload, not init.
    pub(crate) terminal: bool,
    pub(crate) config: config::Workload,
    pub(crate) rewrite: config::Rewrite,
    /// Under a Lease, how long an execve may take: as long as a crash would leave it without a leader.
    pub(crate) start_timeout: Option<Duration>,
    /// How a running workload is told its role; none unless it runs always.
    pub(crate) roles: Option<Arc<RolePolicy>>,
}

impl Policy {
    pub(crate) fn of(config: &config::Config, pid1: bool, terminal: bool) -> Self {
        let plain = !config.lease.enabled;
        let roles = match config.workload.runs {
            Runs::Always if !plain => Some(Arc::new(RolePolicy {
                acknowledge: config.workload.acknowledge.unwrap_or(config::Acknowledge::None),
                signals: config.signals.clone(),
                hooks: config.hooks.clone(),
                patience: promotion_patience(config),
                margin: config.workload.stop.kill_margin,
            })),
            Runs::Always | Runs::Leading => None,
        };
        let start_timeout = Some(config.lease.duration).filter(|_| !plain);
        let (config, rewrite) = (config.workload.clone(), config.signals.rewrite.clone());
        Self { pid1, plain, terminal, config, rewrite, start_timeout, roles }
    }
}

/// How long a promotion may take: as long as a crash would leave the Lease without a leader, or as long as its hook may take.
fn promotion_patience(config: &config::Config) -> Duration {
    let hook = config.hooks.after_lead.as_ref().map_or(Duration::ZERO, |hook| hook.timeout);
    config.lease.duration.max(hook)
}
