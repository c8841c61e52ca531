//! Whether the values make sense together. Every violation is found, not only the first.
//!
//! Owns the rules and their remedies. A value that its own type refuses never gets here. Where no Lease is wanted, only what a
//! plain init uses is judged: one file may serve both.

use super::{Config, HookKind, OnExit, OnLoss, Runs};

pub use names::can_stand;
pub(super) use names::dashed;

mod health;
mod names;
mod roles;
mod service;
mod timing;
mod workload;

/// What a configuration is read for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// To run the workload: everything has to make sense.
    Run,
    /// To inspect it. The workload is not needed: inside a running container its command is known to PID 1 alone.
    Inspect,
    /// To look at Leases: their names, and none may be named.
    Look,
}

/// What the rules say of a configuration.
#[derive(Debug, Default)]
pub(super) struct Judgement {
    /// Why it is refused.
    pub(super) violations: Vec<Violation>,
    /// What is odd and allowed, one line each.
    pub(super) notes: Vec<String>,
}

/// Why a configuration is refused.
#[derive(Debug)]
pub(super) struct Violation {
    /// The keys that it is about, the likeliest to be changed first.
    pub(super) about: Vec<String>,
    /// What is wrong, and the remedy.
    pub(super) message: String,
}

impl Judgement {
    pub(super) fn refuse(&mut self, about: &[&str], message: impl Into<String>) {
        self.violations.push(Violation { about: about.iter().map(|path| (*path).into()).collect(), message: message.into() });
    }

    pub(super) fn note(&mut self, note: impl Into<String>) {
        self.notes.push(note.into());
    }
}

/// Gives the Lease, in a configuration that was judged good, the name that it has in the API.
pub(super) fn name_in_full(config: &mut Config, purpose: Purpose) {
    let lease = &mut config.lease;
    if !lease.name.is_empty() && (lease.enabled || purpose == Purpose::Look) {
        lease.name = names::called(lease);
        lease.prefix.clear();
    }
}

/// Says everything that is wrong with `config`, and what is odd in it.
pub(super) fn judge(config: &Config, purpose: Purpose, judgement: &mut Judgement) {
    if purpose == Purpose::Look {
        if config.lease.name.is_empty() {
            names::judge_namespace(&config.lease, judgement);
        } else {
            names::judge(&config.lease, judgement);
        }
        return;
    }
    if !config.workload.command.is_empty() || purpose == Purpose::Run {
        workload::judge_main(config, judgement);
    }
    workload::judge(config, judgement);
    if config.lease.enabled {
        names::judge(&config.lease, judgement);
        timing::judge(config, judgement);
        roles::judge(config, judgement);
        health::judge(config, judgement);
        service::judge(&config.service, judgement);
    } else {
        roles::judge_rewrite("leader", &config.signals.rewrite.leader, [None; 2], judgement);
        note_what_does_nothing(config, judgement);
    }
}

/// A plain init has no elector that could answer probes, nobody to tell a role or to follow, and no Lease to lose.
fn note_what_does_nothing(config: &Config, judgement: &mut Judgement) {
    let others = [
        ("http.listen", config.http.listen.is_some()),
        ("service.endpointSlice", config.service.endpoint_slice.is_some()),
        ("events.enabled", config.events.enabled),
        ("workload.readiness", config.workload.readiness.means().is_some()),
        ("workload.liveness", config.workload.liveness.means().is_some()),
        ("workload.runs", config.workload.runs != Runs::Leading),
        ("standby.command", !config.standby.command.is_empty()),
        ("workload.onExit", config.workload.on_exit == OnExit::Follow),
        ("workload.onLoss", config.workload.on_loss == OnLoss::Exit),
    ];
    let hooks = HookKind::ALL.into_iter().filter(|kind| kind.of(&config.hooks).is_some());
    for kind in hooks {
        judgement.note(format!("hooks.{}: what it says does nothing without leader election", kind.as_str()));
    }
    for key in roles::set(config).chain(others.into_iter().filter_map(|(key, is_set)| is_set.then_some(key))) {
        judgement.note(format!("{key}: what it says does nothing without leader election"));
    }
}
