//! Judges whether a workload that runs on every replica is told its role and can acknowledge it.

use std::collections::BTreeMap;

use super::{
    Validation,
    workload::{is_catchable, judge_command},
};
use crate::config::{Acknowledge, Config, HookKind, OnHookFailure, Runs, Signal};

/// Maps the signal that arrives to the one that the workload gets.
type Rules = BTreeMap<Signal, Option<Signal>>;

pub(super) fn judge(config: &Config, validation: &mut Validation) {
    let roles = [config.signals.on_lead, config.signals.on_follow];
    judge_rewrite("leader", &config.signals.rewrite.leader, roles, validation);
    judge_rewrite("standby", &config.signals.rewrite.standby, roles, validation);
    judge_hooks(config, validation);
    judge_standby(config, validation);
    match config.workload.runs {
        Runs::Leading => {
            for path in set(config) {
                let or = if path == "signals.rewrite.standby" { ", or standby.command" } else { "" };
                let words = "this key needs a workload that runs on every replica: set workload.runs to always";
                validation.refuse(&[path], format!("{words}{or}"));
            }
        }
        Runs::Frozen => {
            for path in set(config) {
                validation.refuse(&[path], "a frozen workload is told nothing, because it gets only SIGCONT: remove this key");
            }
        }
        Runs::Always => judge_telling(config, validation),
    }
}

/// The keys that are set and that tell a running workload its role.
pub(super) fn set(config: &Config) -> impl Iterator<Item = &'static str> {
    let Config { workload, standby, signals, .. } = config;
    let keys = [
        ("signals.onLead", signals.on_lead.is_some()),
        ("signals.onFollow", signals.on_follow.is_some()),
        ("signals.rewrite.standby", !signals.rewrite.standby.is_empty() && standby.command.is_empty()),
        ("workload.acknowledge", workload.acknowledge.is_some()),
    ];
    keys.into_iter().filter_map(|(key, is_set)| is_set.then_some(key))
}

fn judge_standby(config: &Config, validation: &mut Validation) {
    let command = &config.standby.command;
    if command.is_empty() {
        return;
    }
    judge_command("standby.command", command, validation);
    refuse! { validation;
        config.workload.runs != Runs::Leading => ["standby.command", "workload.runs"] =>
            "standbys run the workload itself: remove this key, or set workload.runs to leading";
    }
}

fn judge_hooks(config: &Config, validation: &mut Validation) {
    let Config { workload, hooks, .. } = config;
    for kind in HookKind::ALL {
        let Some(hook) = kind.of(hooks) else { continue };
        let at = |key: &str| format!("hooks.{}{key}", kind.as_str());
        let stops = kind == HookKind::BeforeFollow && workload.runs != Runs::Always;
        let acknowledges =
            workload.acknowledge == Some(Acknowledge::Hook) && matches!(kind, HookKind::AfterLead | HookKind::BeforeFollow);
        if !hook.command.is_empty() {
            judge_command(&at(".command"), &hook.command, validation);
        }
        refuse! { validation;
            hook.command.is_empty() => [&at("")] => "the hook has no command: write the program that it runs";
            hook.timeout.is_zero() => [&at(".timeout")] => "0s leaves a hook no time: write a duration such as 10s";
            stops && hook.timeout >= workload.stop.grace => [&at(".timeout"), "workload.stop.grace"] =>
                "the timeout is a part of workload.stop.grace and leaves the workload no time to stop: make it shorter";
            acknowledges && hook.on_failure == OnHookFailure::Ignore => [&at(".onFailure"), "workload.acknowledge"] =>
                "with ignore, a hook that fails would acknowledge the role: set it to abort, or workload.acknowledge to notify";
        }
    }
}

fn judge_telling(config: &Config, validation: &mut Validation) {
    let Config { signals, hooks, workload, .. } = config;
    for (path, signal, key, hook, role) in [
        ("signals.onLead", signals.on_lead, "hooks.afterLead", HookKind::AfterLead, "leads"),
        ("signals.onFollow", signals.on_follow, "hooks.beforeFollow", HookKind::BeforeFollow, "follows"),
    ] {
        let missing = hook.of(hooks).is_none();
        let is = |other: Signal| signal == Some(other);
        refuse! { validation;
            signal.is_none() && missing => [path, key, "workload.runs"] =>
                format!("nothing tells the workload that it {role}: set {path} or {key}");
            signal.is_some_and(|signal| !is_catchable(signal)) => [path] =>
                "this signal cannot be caught: choose one that the workload handles";
            signal.is_some_and(Signal::is_ignored_by_default) => [path] =>
                "this signal comes for other causes too, and is ignored without a handler: choose one that tells nothing but the role";
            signal.is_some_and(is_catchable) && is(workload.stop.signal) && !workload.stop.signal.is_ignored_by_default() => [path, "workload.stop.signal"] =>
                "this is the stop signal too, and the workload could not tell them apart: choose another signal";
            workload.acknowledge == Some(Acknowledge::Hook) && missing => ["workload.acknowledge", key] =>
                format!("hook needs both hooks, and there is no {key}: set {key}.command");
        }
    }
    refuse! { validation;
        signals.on_lead.is_some() && signals.on_lead == signals.on_follow => ["signals.onFollow", "signals.onLead"] =>
            "this is signals.onLead too, and the workload could not tell them apart: choose another signal";
        workload.acknowledge.is_none() => ["workload.acknowledge", "workload.runs"] =>
            "a workload that runs on every replica has to acknowledge its role: write hook (both hooks exit with 0), notify \
             (X_TENURE_ROLE on NOTIFY_SOCKET), or none (the signal is enough, and nobody checks)";
    }
}

/// Judges the rewriting of signals, also that of a plain init, where no signal tells a role.
pub(super) fn judge_rewrite(role: &str, rules: &Rules, roles: [Option<Signal>; 2], validation: &mut Validation) {
    for (from, to) in rules {
        let path = format!("signals.rewrite.{role}.{}", from.name());
        let is_term = *from == Signal::TERM;
        refuse! { validation;
            is_term => [&path] => "SIGTERM begins a stop and is not forwarded: set workload.stop.signal instead";
            !is_term && !from.is_forwardable() => [&path] =>
                format!("{} is never forwarded: remove it, or choose a signal that is", from.name());
            to.is_some_and(|to| !is_catchable(to)) => [&path] =>
                "this would kill or stop the workload without init: choose a signal that can be caught";
            to.is_some_and(is_catchable) && roles.contains(to) => [&path] =>
                "this would tell the workload a role that it does not have: choose another signal";
        }
    }
}
