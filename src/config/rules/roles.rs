//! Whether a workload that runs on every replica is told its role and can say that it took it.

use std::collections::BTreeMap;

use super::{
    Judgement,
    workload::{is_catchable, judge_command},
};
use crate::config::{Acknowledge, Config, HookKind, OnHookFailure, Runs, Signal};

/// What arrives, and what the workload gets.
type Rules = BTreeMap<Signal, Option<Signal>>;

pub(super) fn judge(config: &Config, judgement: &mut Judgement) {
    let roles = [config.signals.on_lead, config.signals.on_follow];
    judge_rewrite("leader", &config.signals.rewrite.leader, roles, judgement);
    judge_rewrite("standby", &config.signals.rewrite.standby, roles, judgement);
    judge_hooks(config, judgement);
    judge_standby(config, judgement);
    match config.workload.runs {
        Runs::Leading => {
            for path in set(config) {
                let or = if path == "signals.rewrite.standby" { ", or give standbys a standby.command" } else { "" };
                let words = "has a meaning only where the workload runs on every replica: set workload.runs to always";
                judgement.refuse(&[path], format!("{words}{or}"));
            }
        }
        Runs::Frozen => {
            for path in set(config) {
                judgement.refuse(&[path], "tells a frozen workload nothing, because all that it gets is SIGCONT: remove it");
            }
        }
        Runs::Always => judge_telling(config, judgement),
    }
}

/// Which of the keys are set by which a running workload is told its role.
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

fn judge_standby(config: &Config, judgement: &mut Judgement) {
    let command = &config.standby.command;
    if command.is_empty() {
        return;
    }
    judge_command("standby.command", command, judgement);
    if config.workload.runs != Runs::Leading {
        let message = "the workload itself runs on standbys: remove it, or set workload.runs to leading";
        judgement.refuse(&["standby.command", "workload.runs"], message);
    }
}

fn judge_hooks(config: &Config, judgement: &mut Judgement) {
    let Config { workload, hooks, .. } = config;
    let always = workload.runs == Runs::Always;
    for kind in HookKind::ALL {
        let (Some(hook), name) = (kind.of(hooks), kind.as_str()) else { continue };
        if hook.command.is_empty() {
            judgement.refuse(&[&format!("hooks.{name}")], "has no command: write the program that it runs");
        } else {
            judge_command(&format!("hooks.{name}.command"), &hook.command, judgement);
        }
        let timeout = format!("hooks.{name}.timeout");
        if hook.timeout.is_zero() {
            judgement.refuse(&[&timeout], "0s leaves a hook no time: write one such as 10s");
        }
        if kind == HookKind::BeforeFollow && !always && hook.timeout >= workload.stop.grace {
            let message = "leaves the workload no time to stop, because it is part of workload.stop.grace: make it shorter";
            judgement.refuse(&[&timeout, "workload.stop.grace"], message);
        }
        let acknowledges = matches!(kind, HookKind::AfterLead | HookKind::BeforeFollow);
        if workload.acknowledge == Some(Acknowledge::Hook) && acknowledges && hook.on_failure == OnHookFailure::Ignore {
            let message =
                "ignore would take a failure for the word of the workload: set it to abort, or workload.acknowledge to notify";
            judgement.refuse(&[&format!("hooks.{name}.onFailure"), "workload.acknowledge"], message);
        }
    }
}

fn judge_telling(config: &Config, judgement: &mut Judgement) {
    let (signals, hooks) = (&config.signals, &config.hooks);
    for (path, signal, key, hook, role) in [
        ("signals.onLead", signals.on_lead, "hooks.afterLead", HookKind::AfterLead, "leads"),
        ("signals.onFollow", signals.on_follow, "hooks.beforeFollow", HookKind::BeforeFollow, "follows"),
    ] {
        let Some(signal) = signal else {
            if hook.of(hooks).is_none() {
                let message = format!("nobody tells the workload that it {role}: set this or {key}");
                judgement.refuse(&[path, key, "workload.runs"], message);
            }
            continue;
        };
        if !is_catchable(signal) {
            judgement.refuse(&[path], format!("{} cannot be caught: choose one that the workload handles", signal.name()));
        } else if signal == Signal(libc::SIGCONT) {
            judgement.refuse(&[path], "SIGCONT goes with every stop signal: choose one that tells nothing but the role");
        } else if signal == config.workload.stop.signal {
            judgement.refuse(&[path, "workload.stop.signal"], "is the stop signal too: the workload could not tell them apart");
        }
    }
    if signals.on_lead.is_some() && signals.on_lead == signals.on_follow {
        judgement.refuse(&["signals.onFollow", "signals.onLead"], "both are the same: the workload could not tell them apart");
    }
    match config.workload.acknowledge {
        None => judgement.refuse(
            &["workload.acknowledge", "workload.runs"],
            "is required where the workload runs on every replica: hook (exit 0 of both hooks), notify (X_TENURE_ROLE on NOTIFY_SOCKET) \
             or none (the signal is enough, and nobody checks)",
        ),
        Some(Acknowledge::Hook) => {
            for kind in [HookKind::AfterLead, HookKind::BeforeFollow].into_iter().filter(|kind| kind.of(hooks).is_none()) {
                let key = format!("hooks.{}", kind.as_str());
                judgement.refuse(&["workload.acknowledge", &key], format!("hook needs both hooks, and there is no {key}"));
            }
        }
        Some(Acknowledge::Notify | Acknowledge::None) => {}
    }
}

/// Also of a plain init, where no signal tells a role.
pub(super) fn judge_rewrite(role: &str, rules: &Rules, roles: [Option<Signal>; 2], judgement: &mut Judgement) {
    for (from, to) in rules {
        let path = format!("signals.rewrite.{role}.{}", from.name());
        if *from == Signal(libc::SIGTERM) {
            judgement.refuse(&[&path], "SIGTERM is a stop and not forwarded: set workload.stop.signal");
        } else if !from.is_forwardable() {
            judgement.refuse(&[&path], format!("{} is never forwarded: remove it, or choose a signal that is", from.name()));
        }
        if to.is_some_and(|to| !is_catchable(to)) {
            judgement.refuse(&[&path], "would kill or stop the workload past its guard: choose a signal that can be caught");
        } else if to.is_some() && roles.contains(to) {
            judgement.refuse(&[&path], "would tell the workload a role that it does not have: choose another signal");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Hook, Hooks, Signals};

    const LEAD: Signal = Signal(libc::SIGUSR1);
    const FOLLOW: Signal = Signal(libc::SIGUSR2);

    fn always(acknowledge: Option<Acknowledge>) -> Config {
        let mut config = Config::default();
        (config.workload.runs, config.workload.acknowledge) = (Runs::Always, acknowledge);
        config.signals = Signals { on_lead: Some(LEAD), on_follow: Some(FOLLOW), ..Signals::default() };
        config
    }

    fn hook(program: &str) -> Hook {
        Hook { command: vec![program.into()], ..Hook::default() }
    }

    fn refused(config: &Config) -> Vec<String> {
        let mut judgement = Judgement::default();
        judge(config, &mut judgement);
        judgement.violations.into_iter().map(|violation| violation.about.into_iter().next().unwrap()).collect()
    }

    #[test]
    fn always_needs_an_acknowledgement() {
        assert_eq!(refused(&always(None)), ["workload.acknowledge"]);
        assert!(refused(&always(Some(Acknowledge::None))).is_empty());
        assert!(refused(&always(Some(Acknowledge::Notify))).is_empty());
    }

    #[test]
    fn an_acknowledgement_by_hooks_needs_both() {
        let mut config = always(Some(Acknowledge::Hook));
        config.hooks.before_follow = hook("demote");
        assert_eq!(refused(&config), ["workload.acknowledge"]);
        config.hooks.after_lead = hook("promote");
        assert!(refused(&config).is_empty());
    }

    #[test]
    fn somebody_tells_the_workload_each_role() {
        let mut config = always(Some(Acknowledge::Notify));
        config.signals = Signals::default();
        assert_eq!(refused(&config), ["signals.onLead", "signals.onFollow"]);
        (config.hooks.after_lead, config.hooks.before_follow) = (hook("promote"), hook("demote"));
        assert!(refused(&config).is_empty());
    }

    #[test]
    fn the_signals_of_roles_can_be_caught_and_told_apart() {
        for (lead, follow, about) in [
            (LEAD.0, LEAD.0, "signals.onFollow"),
            (libc::SIGTERM, FOLLOW.0, "signals.onLead"),
            (libc::SIGKILL, FOLLOW.0, "signals.onLead"),
            (LEAD.0, libc::SIGSTOP, "signals.onFollow"),
            (libc::SIGCONT, FOLLOW.0, "signals.onLead"),
            (LEAD.0, libc::SIGCONT, "signals.onFollow"),
        ] {
            let mut config = always(Some(Acknowledge::None));
            (config.signals.on_lead, config.signals.on_follow) = (Some(Signal(lead)), Some(Signal(follow)));
            assert_eq!(refused(&config), [about]);
        }
    }

    #[test]
    fn a_hook_has_a_program_and_time() {
        let mut config = always(Some(Acknowledge::None));
        config.hooks.after_lead = Hook { timeout: std::time::Duration::ZERO, ..Hook::default() };
        assert_eq!(refused(&config), ["hooks.afterLead", "hooks.afterLead.timeout"]);
        config.workload.runs = Runs::Leading;
        config.hooks.after_follow = config.hooks.after_lead.clone();
        assert_eq!(refused(&config).len(), 4 + 3, "in every mode, beside what tells a role");
    }

    #[test]
    fn the_failure_of_a_hook_that_acknowledges_is_not_ignored() {
        let mut config = always(Some(Acknowledge::Hook));
        let ignored = || Hook { on_failure: OnHookFailure::Ignore, ..hook("tell") };
        config.hooks = Hooks { before_lead: ignored(), after_lead: ignored(), before_follow: ignored(), after_follow: ignored() };
        assert_eq!(refused(&config), ["hooks.afterLead.onFailure", "hooks.beforeFollow.onFailure"]);
        config.workload.acknowledge = Some(Acknowledge::Notify);
        assert!(refused(&config).is_empty());
    }

    #[test]
    fn the_hook_before_a_stop_leaves_time_for_it() {
        let mut config = Config::default();
        config.hooks.before_follow = Hook { timeout: config.workload.stop.grace, ..hook("drain") };
        assert_eq!(refused(&config), ["hooks.beforeFollow.timeout"]);
        config.workload.stop.grace += std::time::Duration::from_secs(1);
        assert!(refused(&config).is_empty());
    }

    #[test]
    fn what_tells_a_role_means_nothing_where_the_workload_runs_while_leading() {
        let mut config = always(Some(Acknowledge::None));
        config.workload.runs = Runs::Leading;
        config.signals.rewrite.standby.insert(LEAD, None);
        config.hooks.after_lead = hook("prepare");
        let about = ["signals.onLead", "signals.onFollow", "signals.rewrite.standby", "workload.acknowledge"];
        assert_eq!(refused(&config), about);
    }

    #[test]
    fn another_program_runs_on_standbys_where_the_workload_does_not() {
        let mut config = Config::default();
        config.standby.command = vec!["page".into()];
        config.signals.rewrite.standby.insert(LEAD, None);
        assert!(refused(&config).is_empty());
        config.standby.command[0].clear();
        assert_eq!(refused(&config), ["standby.command"]);
        for runs in [Runs::Always, Runs::Frozen] {
            let mut config = always(Some(Acknowledge::None));
            (config.workload.runs, config.signals, config.workload.acknowledge) = (runs, Signals::default(), None);
            let without = refused(&config).len();
            config.standby.command = vec!["page".into()];
            assert_eq!(refused(&config).len(), without + 1, "{runs:?}");
        }
    }

    #[test]
    fn a_frozen_workload_is_told_nothing() {
        let mut config = always(Some(Acknowledge::None));
        config.workload.runs = Runs::Frozen;
        assert_eq!(refused(&config), ["signals.onLead", "signals.onFollow", "workload.acknowledge"]);
    }

    #[test]
    fn a_rewrite_tells_no_role() {
        for role in [LEAD, FOLLOW] {
            let mut config = always(Some(Acknowledge::None));
            config.signals.rewrite.standby.insert(Signal(libc::SIGHUP), Some(role));
            assert_eq!(refused(&config), ["signals.rewrite.standby.SIGHUP"]);
        }
    }

    #[test]
    fn a_rewrite_is_of_signals_that_are_forwarded_and_can_be_caught() {
        for (from, to, good) in [
            (libc::SIGHUP, Some(libc::SIGUSR1), true),
            (libc::SIGHUP, None, true),
            (libc::SIGTERM, Some(libc::SIGINT), false),
            (libc::SIGKILL, None, false),
            (libc::SIGABRT, Some(libc::SIGUSR1), false),
            (libc::SIGCHLD, None, false),
            (libc::SIGTTOU, None, true),
            (libc::SIGHUP, Some(libc::SIGKILL), false),
        ] {
            let mut config = Config::default();
            config.signals.rewrite.leader.insert(Signal(from), to.map(Signal));
            assert_eq!(refused(&config).is_empty(), good, "{from} to {to:?}");
        }
    }
}
