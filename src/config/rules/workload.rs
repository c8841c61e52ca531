//! Whether the workload can be started, stopped and started again as the keys say.

use super::Judgement;
use crate::{
    config::{Config, OnExit, Restart, Runs, Signal},
    environment,
};

/// Whether there is a command that can be executed.
pub(super) fn judge_main(config: &Config, judgement: &mut Judgement) {
    if config.workload.command.is_empty() {
        judgement
            .refuse(&["workload.command"], "there is no workload: write it after --, as in `tenure --lease NAME -- COMMAND`");
    } else {
        judge_command("workload.command", &config.workload.command, judgement);
    }
}

/// All else.
pub(super) fn judge(config: &Config, judgement: &mut Judgement) {
    let workload = &config.workload;
    for (name, value) in &workload.env {
        let path = format!("workload.env.{name}");
        if environment::is_own(name) {
            judgement.refuse(&[&path], "is a variable of tenure's own: choose another name");
        } else if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
            judgement.refuse(
                &[&path],
                "is not a valid variable: the name must not be empty or contain =, and neither name nor value a zero byte",
            );
        }
    }
    if !(-1000..=1000).contains(&workload.oom_score_adjust) {
        judgement.refuse(&["workload.oomScoreAdjust"], "is out of range: -1000 to 1000");
    }
    if !is_catchable(workload.stop.signal) {
        let message =
            format!("{} cannot be caught: for a kill without grace set grace and lossGrace to 0s", workload.stop.signal.name());
        judgement.refuse(&["workload.stop.signal"], message);
    }
    judge_restart(config, judgement);
}

fn judge_restart(config: &Config, judgement: &mut Judgement) {
    let restart = &config.workload.restart;
    let has_command = !config.standby.command.is_empty() && config.lease.enabled;
    let (restarts, fresh_standbys) = match (config.workload.on_exit, config.workload.runs) {
        (on_exit, Runs::Leading) if has_command => (on_exit == OnExit::Restart, true),
        (OnExit::Restart, Runs::Always | Runs::Leading) => (true, false),
        (OnExit::Follow, Runs::Always) => (false, config.lease.enabled),
        (on_exit, Runs::Frozen) => (on_exit == OnExit::Restart, config.lease.enabled),
        (OnExit::Follow, Runs::Leading) | (OnExit::Exit, Runs::Always | Runs::Leading) => (false, false),
    };
    if !restarts && !fresh_standbys && *restart != Restart::default() {
        judgement.note("workload.restart: nothing is started again unless workload.onExit is restart");
    }
    if fresh_standbys && restart.delay.is_zero() {
        judgement.refuse(
            &["workload.restart.delay"],
            "0s would start a standby that fails again and again without a pause: write one such as 100ms",
        );
    }
    if restart.delay > restart.max_delay {
        judgement.refuse(
            &["workload.restart.delay", "workload.restart.maxDelay"],
            "delay is longer than maxDelay: lower the one or raise the other",
        );
    }
    if restart.burst == 0 {
        let remedy = if restarts { "set workload.onExit to exit instead" } else { "remove it, or write 1 or more" };
        judgement.refuse(&["workload.restart.burst"], format!("0 allows no restart: {remedy}"));
    }
    if restart.interval.is_zero() {
        judgement.refuse(&["workload.restart.interval"], "0s would never count a restart: write one such as 1m");
    }
}

pub(super) fn judge_command(path: &str, command: &[String], judgement: &mut Judgement) {
    if command.first().is_none_or(String::is_empty) {
        judgement.refuse(&[path], "its first element, the program, is empty");
    }
    if command.iter().any(|word| word.contains('\0')) {
        judgement.refuse(&[path], "has a zero byte in it, which no program can be given");
    }
}

pub(super) const fn is_catchable(signal: Signal) -> bool {
    !matches!(signal.0, libc::SIGKILL | libc::SIGSTOP)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn refused(change: impl FnOnce(&mut Config)) -> Vec<String> {
        let mut config = Config::default();
        config.workload.command = vec!["sleep".into(), String::new()];
        change(&mut config);
        let mut judgement = Judgement::default();
        judge_main(&config, &mut judgement);
        judge(&config, &mut judgement);
        judgement.violations.into_iter().map(|violation| violation.about.into_iter().next().unwrap()).collect()
    }

    #[test]
    fn a_command_needs_a_program_and_may_have_empty_arguments() {
        assert!(refused(|_| {}).is_empty());
        assert_eq!(refused(|config| config.workload.command.clear()), ["workload.command"]);
        assert_eq!(refused(|config| config.workload.command[0].clear()), ["workload.command"]);
        assert_eq!(refused(|config| config.workload.command[1] = "a\0b".into()), ["workload.command"]);
    }

    #[test]
    fn a_stop_signal_can_be_caught() {
        assert!(refused(|config| config.workload.stop.signal = Signal(libc::SIGINT)).is_empty());
        for signal in [libc::SIGKILL, libc::SIGSTOP] {
            assert_eq!(refused(|config| config.workload.stop.signal = Signal(signal)), ["workload.stop.signal"]);
        }
    }

    #[test]
    fn an_environment_has_names_that_are_free() {
        for (name, value) in [("", "x"), ("a=b", "x"), ("a", "\0")] {
            assert_eq!(refused(|config| drop(config.workload.env.insert(name.into(), value.into()))).len(), 1, "{name}");
        }
        for own in [
            "NOTIFY_SOCKET",
            "TENURE_ACQUIRED_AT",
            "TENURE_EXIT_CODE",
            "TENURE_EXIT_SIGNAL",
            "TENURE_FENCING_TOKEN",
            "TENURE_IDENTITY",
            "TENURE_LEASE",
            "TENURE_LEASE_UID",
            "TENURE_NAMESPACE",
            "TENURE_REASON",
            "TENURE_ROLE",
            "TENURE_TERM",
            "TENURE_TERM_FD",
            "TRACEPARENT",
            "TRACESTATE",
        ] {
            assert_eq!(refused(|config| drop(config.workload.env.insert(own.into(), "x".into()))).len(), 1, "{own}");
        }
        assert!(refused(|config| drop(config.workload.env.insert("TENURE_OTHER".into(), "x".into()))).is_empty());
    }

    #[test]
    fn restarts_that_never_happen_are_noted_and_no_end_is_advised_that_is_chosen_already() {
        for (runs, on_exit, notes, remedy) in [
            (Runs::Leading, OnExit::Exit, 1, "remove it"),
            (Runs::Leading, OnExit::Follow, 1, "remove it"),
            (Runs::Leading, OnExit::Restart, 0, "set workload.onExit to exit"),
            (Runs::Always, OnExit::Exit, 1, "remove it"),
            (Runs::Always, OnExit::Follow, 0, "remove it"),
            (Runs::Always, OnExit::Restart, 0, "set workload.onExit to exit"),
            (Runs::Frozen, OnExit::Exit, 0, "remove it"),
        ] {
            let mut config = Config::default();
            (config.workload.runs, config.workload.on_exit, config.workload.restart.burst) = (runs, on_exit, 0);
            let mut judgement = Judgement::default();
            judge(&config, &mut judgement);
            assert_eq!(judgement.notes.len(), notes, "{runs:?} {on_exit:?}");
            assert!(judgement.violations[0].message.contains(remedy), "{judgement:?}");
        }
    }

    #[test]
    fn a_standby_that_is_started_again_without_a_limit_is_not_without_a_pause() {
        for (runs, on_exit, refuses) in [
            (Runs::Always, OnExit::Follow, 1),
            (Runs::Always, OnExit::Restart, 0),
            (Runs::Leading, OnExit::Follow, 0),
            (Runs::Frozen, OnExit::Exit, 1),
        ] {
            let refused = refused(|config| {
                (config.workload.runs, config.workload.on_exit) = (runs, on_exit);
                config.workload.restart.delay = Duration::ZERO;
            });
            assert_eq!(refused, vec!["workload.restart.delay"; refuses], "{runs:?} {on_exit:?}");
        }
        let refused = refused(|config| {
            (config.standby.command, config.workload.restart.delay) = (vec!["page".into()], Duration::ZERO);
        });
        assert_eq!(refused, ["workload.restart.delay"]);
    }

    #[test]
    fn a_restart_has_a_limit() {
        assert_eq!(refused(|config| config.workload.restart.burst = 0), ["workload.restart.burst"]);
        assert_eq!(refused(|config| config.workload.restart.interval = Duration::ZERO), ["workload.restart.interval"]);
        assert_eq!(refused(|config| config.workload.restart.delay = Duration::from_secs(61)), ["workload.restart.delay"]);
        assert_eq!(refused(|config| config.workload.oom_score_adjust = 1001), ["workload.oomScoreAdjust"]);
    }
}
