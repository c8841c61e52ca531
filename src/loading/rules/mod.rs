//! Judges whether the values make sense together. Every diagnostic is found, not only the first.
//!
//! Owns the rules, as tables, their remedies, and which keys have no effect beside others. A value that its own type refuses never
//! gets here. Where no Lease is wanted, only the keys of a plain init are judged: one file may serve both.

use crate::config::{Config, HookKind, OnExit, OnLoss, Runs};

/// A table of rules: when each is broken, the keys that it is about (the likeliest to be changed first), and what is wrong, with the
/// remedy.
macro_rules! refuse {
    ($validation:ident; $($broken:expr => [$($about:expr),+] => $message:expr;)+) => {
        $(if $broken {
            $validation.refuse(&[$($about),+], $message);
        })+
    };
}

pub(super) use names::dashed;
pub(crate) use names::is_label;
pub(crate) use preference::lacks_variable;
pub(super) use preference::prefer;
pub(crate) use timing::may_be_told;

mod health;
mod names;
mod preference;
mod roles;
mod service;
mod timing;
mod workload;

/// The purpose for which a configuration is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// To run the workload: everything has to make sense.
    Run,
    /// To inspect it. The workload is not needed: in a running container, only PID 1 knows its command.
    Inspect,
    /// To look at Leases. Only their names are judged, and none need be named.
    Look,
}

/// The verdict of the rules on a configuration.
#[derive(Debug, Default)]
pub(super) struct Validation {
    /// Why it is refused.
    pub(super) diagnostics: Vec<Diagnostic>,
    /// Warnings of what is odd and allowed, one line each.
    pub(super) notes: Vec<String>,
}

/// Why a configuration is refused.
#[derive(Debug)]
pub(super) struct Diagnostic {
    /// The keys that it is about, the likeliest to be changed first.
    pub(super) about: Vec<String>,
    /// The fault and the remedy.
    pub(super) message: String,
}

impl Validation {
    pub(super) fn refuse(&mut self, about: &[&str], message: impl Into<String>) {
        self.diagnostics.push(Diagnostic { about: about.iter().map(|path| (*path).into()).collect(), message: message.into() });
    }

    pub(super) fn note(&mut self, note: impl Into<String>) {
        self.notes.push(note.into());
    }
}

/// Gives the Lease its name in the API. Call it only for a configuration that was judged good.
pub(super) fn name_in_full(config: &mut Config, purpose: Purpose) {
    let lease = &mut config.lease;
    if !lease.name.is_empty() && (lease.enabled || purpose == Purpose::Look) {
        lease.name = names::called(lease);
        lease.prefix.clear();
    }
}

/// Records everything that is wrong with `config`, and everything odd.
pub(super) fn judge(config: &Config, purpose: Purpose, validation: &mut Validation) {
    if purpose == Purpose::Look {
        names::judge_socket(&config.lease, validation);
        if config.lease.name.is_empty() {
            names::judge_namespace(&config.lease, validation);
        } else {
            names::judge(&config.lease, validation);
        }
        return;
    }
    if !config.workload.command.is_empty() || purpose == Purpose::Run {
        workload::judge_main(config, validation);
    }
    workload::judge(config, validation);
    if config.lease.enabled {
        names::judge(&config.lease, validation);
        names::judge_socket(&config.lease, validation);
        timing::judge(config, validation);
        roles::judge(config, validation);
        health::judge(config, validation);
        service::judge(&config.service, config.lease.slots, validation);
    } else {
        roles::judge_rewrite("leader", &config.signals.rewrite.leader, [None; 2], validation);
        note_what_does_nothing(config, validation);
    }
}

/// Warns of keys without effect: a plain init has no elector that answers probes, no roles, and no Lease to lose.
fn note_what_does_nothing(config: &Config, validation: &mut Validation) {
    let others = [
        ("http.listen", config.http.listen.is_some()),
        ("service.endpointSlice", config.service.endpoint_slice.is_some()),
        ("events.enabled", config.events.enabled),
        ("workload.readiness", config.workload.readiness.handler().is_some()),
        ("workload.liveness", config.workload.liveness.handler().is_some()),
        ("workload.runs", config.workload.runs != Runs::Leading),
        ("standby.command", !config.standby.command.is_empty()),
        ("workload.onExit", config.workload.on_exit == OnExit::Follow),
        ("workload.onLoss", config.workload.on_loss == OnLoss::Exit),
    ];
    let hooks = HookKind::ALL.into_iter().filter(|kind| kind.of(&config.hooks).is_some());
    let hooks = hooks.map(|kind| format!("hooks.{}", kind.as_str()));
    let keys = roles::set(config).chain(others.into_iter().filter_map(|(key, is_set)| is_set.then_some(key)));
    for key in hooks.chain(keys.map(str::to_owned)) {
        validation.note(format!("{key}: has no effect without leader election"));
    }
}
