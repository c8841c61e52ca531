//! Judges whether the workload can be asked how it is, and can say so.

use std::time::Duration;

use super::{Validation, workload::judge_command};
use crate::config::{Candidate, Config, HttpReady, NotifyAccess, Probe, ProbeHandler, ProbeKind, Runs};

pub(super) fn judge(config: &Config, validation: &mut Validation) {
    let workload = &config.workload;
    for kind in ProbeKind::ALL {
        judge_probe(kind, kind.of(workload), validation);
    }
    let unasked = workload.readiness.handler().is_none();
    let nobody_says = "no readiness probe is set, so tenure cannot tell whether the workload is ready: set workload.readiness";
    refuse! { validation;
        workload.notify_access == NotifyAccess::Main && !workload.notifies() => ["workload.notifyAccess"] =>
            "there is no NOTIFY_SOCKET: set workload.readiness.notify or workload.liveness.notify to true, or workload.acknowledge to notify";
        workload.start_timeout == Some(Duration::ZERO) => ["workload.startTimeout"] =>
            "0s leaves the workload no time to get ready: write a duration such as 1m";
        workload.start_timeout.is_some() && unasked => ["workload.startTimeout", "workload.readiness"] => nobody_says;
        workload.candidate == Candidate::Ready && unasked => ["workload.candidate", "workload.readiness"] => nobody_says;
        config.http.ready == HttpReady::Workload && unasked => ["http.ready", "workload.readiness"] => nobody_says;
        workload.runs == Runs::Frozen && workload.liveness != Probe::default() => ["workload.liveness"] =>
            "a frozen workload cannot answer: remove the probe, or set workload.runs to leading or always";
        workload.candidate == Candidate::Ready && workload.runs == Runs::Leading => ["workload.candidate"] =>
            "a standby runs no workload that could be ready: set workload.runs to always or frozen";
    }
}

fn judge_probe(kind: ProbeKind, probe: &Probe, validation: &mut Validation) {
    let section = format!("workload.{}", kind.as_str());
    let at = |key: &str| format!("{section}.{key}");
    let (no_time, never) = ("0s leaves no time: write a duration such as 1s", "0 is never reached: write 1 or more");
    let no_port = "the port is missing: write the port that the workload listens on";
    let said: Vec<_> = probe.said().collect();
    let asks = |handler: ProbeHandler| said.iter().any(|(said, _)| *said == handler);
    let request = probe.http.request();
    refuse! { validation;
        probe.period.is_zero() => [&at("period")] => no_time;
        probe.timeout.is_zero() => [&at("timeout")] => no_time;
        probe.success_threshold == 0 => [&at("successThreshold")] => never;
        probe.failure_threshold == 0 => [&at("failureThreshold")] => never;
        kind == ProbeKind::Liveness && probe.success_threshold > 1 => [&at("successThreshold")] =>
            "a workload that is not live is stopped, so it cannot succeed again: write 1";
        asks(ProbeHandler::Http) && probe.http.port == 0 => [&at("http")] => no_port;
        asks(ProbeHandler::Tcp) && probe.tcp.port == 0 => [&at("tcp")] => no_port;
        asks(ProbeHandler::File) && probe.file.path.is_empty() => [&at("file")] => "the path is missing: write the path of a file";
        !matches!(probe.http.path.chars().next(), None | Some('/')) => [&at("http.path")] =>
            "the path does not begin with /: write one such as /healthz";
        said.is_empty() && *probe != Probe::default() => [&section] =>
            "this probe has no way to ask: set notify, exec, http, tcp or file";
    }
    if let (true, Err(error)) = (asks(ProbeHandler::Http) && probe.http.port > 0, request) {
        validation.refuse(&[&at("http")], format!("tenure cannot send this request: {error}: correct the path or the headers"));
    }
    if !probe.exec.command.is_empty() {
        judge_command(&at("exec.command"), &probe.exec.command, validation);
    }
    if let [(_, first), (_, second), ..] = &*said {
        validation.refuse(&[&at(second)], format!("{first} is set too, and a probe has only one way to ask: remove one"));
    }
}
