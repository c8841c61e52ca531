//! Judges whether the workload can be started, stopped and started again.

use super::Validation;
use crate::{
    config::{Config, OnExit, Restart, Runs, Signal},
    environment,
};

/// Judges whether there is a command, and whether it can be executed.
pub(super) fn judge_main(config: &Config, validation: &mut Validation) {
    if config.workload.command.is_empty() {
        let message = "there is no workload: write it after --, as in `tenure --lease NAME -- COMMAND`";
        validation.refuse(&["workload.command"], message);
    } else {
        judge_command("workload.command", &config.workload.command, validation);
    }
}

/// Judges all else.
pub(super) fn judge(config: &Config, validation: &mut Validation) {
    let workload = &config.workload;
    for (name, value) in &workload.env {
        let (path, is_own) = (format!("workload.env.{name}"), environment::is_own(name));
        refuse! { validation;
            is_own => [&path] => "tenure sets this variable itself: choose another name";
            !is_own && (name.is_empty() || name.contains(['=', '\0']) || value.contains('\0')) => [&path] =>
                "this is not a valid variable: its name must not be empty or contain =, and name and value must not contain a zero byte";
        }
    }
    let (score, signal) = (workload.oom_score_adjust, workload.stop.signal);
    refuse! { validation;
        !(-1000..=1000).contains(&score) => ["workload.oomScoreAdjust"] =>
            format!("{score} is out of range: write a number from -1000 to 1000");
        !is_catchable(signal) => ["workload.stop.signal"] =>
            format!("{} cannot be caught: for a kill without grace set grace and lossGrace to 0s", signal.name());
    }
    judge_restart(config, validation);
}

fn judge_restart(config: &Config, validation: &mut Validation) {
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
        validation.note("workload.restart: has no effect unless workload.onExit is restart");
    }
    let remedy = if restarts { "set workload.onExit to exit instead" } else { "remove it, or write 1 or more" };
    refuse! { validation;
        fresh_standbys && restart.delay.is_zero() => ["workload.restart.delay"] =>
            "0s would start a standby that fails again and again without a pause: write a duration such as 100ms";
        restart.delay > restart.max_delay => ["workload.restart.delay", "workload.restart.maxDelay"] =>
            "delay is longer than maxDelay: lower the one or raise the other";
        restart.burst == 0 => ["workload.restart.burst"] => format!("0 allows no restart: {remedy}");
        restart.interval.is_zero() => ["workload.restart.interval"] => "0s would never count a restart: write a duration such as 1m";
    }
}

pub(super) fn judge_command(path: &str, command: &[String], validation: &mut Validation) {
    refuse! { validation;
        command.first().is_none_or(String::is_empty) => [path] => "the first element, the program, is empty: write a program";
        command.iter().any(|word| word.contains('\0')) => [path] =>
            "an element contains a zero byte, which no program can receive: remove it";
    }
}

pub(super) const fn is_catchable(signal: Signal) -> bool {
    !matches!(signal.0, libc::SIGKILL | libc::SIGSTOP)
}
