//! The words for the workload, its Lease, and why a term of it ends.

use crate::{config::Preset, link::Reason};

/// The words for the workload and its Lease.
#[derive(Debug, Default)]
pub(super) struct Nouns {
    pub(super) program: &'static str,
    pub(super) lease: &'static str,
    /// A person or a script waits for one command.
    pub(super) is_run: bool,
    /// No live holder is waited for.
    pub(super) is_at_once: bool,
}

impl Nouns {
    pub(super) fn of(preset: &Preset) -> Self {
        let is_at_once = preset.wait_limit().is_some_and(|bound| bound.limit.is_zero());
        match preset {
            Preset::Run => Self { program: "the program", lease: "the Lease", is_run: true, is_at_once },
            Preset::Lock { .. } | Preset::Task(_) => {
                Self { program: "the command", lease: "the lock", is_run: false, is_at_once }
            }
        }
    }

    /// Returns why a term ends, as a clause.
    pub(super) fn because(&self, reason: Reason) -> String {
        let Self { program, lease, .. } = self;
        match reason {
            Reason::Signal => "tenure was told to end".into(),
            Reason::Exited => format!("{program} ended"),
            Reason::SpawnFailed => format!("{program} could not be started"),
            Reason::Limit => "the run reached its limit".into(),
            Reason::HookFailed => "a hook failed".into(),
            Reason::NotAcknowledged => format!("{program} did not acknowledge its role in time"),
            Reason::NotReady => format!("{program} was not ready in time"),
            Reason::NotLive => format!("{program} is not live"),
            Reason::Fuse => {
                format!(
                    "the kernel killed {program} early: a connection over the loopback interface was reset, or does not answer"
                )
            }
            Reason::StepDown => "a step-down was asked for".into(),
            Reason::PreferredHolder => "another holder is preferred".into(),
            Reason::Expired => "no renewal was confirmed in time".into(),
            Reason::LostToHolder => format!("another replica has taken {lease}"),
            Reason::LostCleared => format!("somebody has cleared the holder of {lease}"),
            Reason::LostDeleted => format!("{lease} was deleted"),
            Reason::LostRecreated => format!("{lease} was deleted and made anew"),
            Reason::LostToCopy => {
                format!("a copy of this replica renews {lease} too, or somebody has set its renewTime")
            }
        }
    }
}
