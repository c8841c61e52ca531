//! Whether the workload can be asked how it is, and can say so.

use std::time::Duration;

use super::{Judgement, workload::judge_command};
use crate::config::{Candidate, Config, HttpReady, Means, NotifyAccess, Probe, ProbeKind, Runs};

pub(super) fn judge(config: &Config, judgement: &mut Judgement) {
    let workload = &config.workload;
    for kind in ProbeKind::ALL {
        judge_probe(kind, kind.of(workload), judgement);
    }
    if workload.notify_access == NotifyAccess::Main && !workload.notifies() {
        let message = "there is no NOTIFY_SOCKET: set workload.readiness.notify, liveness.notify or acknowledge: notify";
        judgement.refuse(&["workload.notifyAccess"], message);
    }
    if workload.start_timeout == Some(Duration::ZERO) {
        judgement.refuse(&["workload.startTimeout"], "0s leaves no time to get ready: write one such as 1m");
    }
    let wants_ready = [
        ("workload.startTimeout", workload.start_timeout.is_some()),
        ("workload.candidate", workload.candidate == Candidate::Ready),
        ("http.ready", config.http.ready == HttpReady::Workload),
    ];
    for (path, _) in wants_ready.into_iter().filter(|(_, is_set)| *is_set && workload.readiness.means().is_none()) {
        judgement.refuse(&[path, "workload.readiness"], "nothing tells whether the workload is ready: set workload.readiness");
    }
    if workload.runs == Runs::Frozen && workload.liveness != Probe::default() {
        judgement.refuse(
            &["workload.liveness"],
            "what is frozen answers nobody: remove it, or set workload.runs to leading or always",
        );
    }
    if workload.candidate == Candidate::Ready && workload.runs == Runs::Leading {
        judgement
            .refuse(&["workload.candidate"], "standbys run nothing that could be ready: set workload.runs to always or frozen");
    }
}

fn judge_probe(kind: ProbeKind, probe: &Probe, judgement: &mut Judgement) {
    let section = format!("workload.{}", kind.as_str());
    let mut refuse = |key: &str, message: &str| judgement.refuse(&[&format!("{section}.{key}")], message);
    for (key, span) in [("period", probe.period), ("timeout", probe.timeout)] {
        if span.is_zero() {
            refuse(key, "0s leaves no time: write one such as 1s");
        }
    }
    for (key, threshold) in [("successThreshold", probe.success_threshold), ("failureThreshold", probe.failure_threshold)] {
        if threshold == 0 {
            refuse(key, "0 is never reached: write 1 or more");
        }
    }
    if kind == ProbeKind::Liveness && probe.success_threshold > 1 {
        refuse("successThreshold", "what is not live is stopped, and succeeds no more: write 1");
    }
    let said: Vec<_> = probe.said().collect();
    for (means, _) in &said {
        match means {
            Means::Http if probe.http.port == 0 => refuse("http", "port is missing: write the port that the workload listens on"),
            Means::Http => {
                if let Err(error) = probe.http.request() {
                    refuse("http", &format!("is no request: {error}"));
                }
            }
            Means::Tcp if probe.tcp.port == 0 => refuse("tcp", "port is missing: write the port that the workload listens on"),
            Means::File if probe.file.path.is_empty() => refuse("file", "path is missing: write the path of a file"),
            Means::Exec | Means::Notify | Means::Tcp | Means::File => {}
        }
    }
    if !matches!(probe.http.path.chars().next(), None | Some('/')) {
        refuse("http.path", "has to begin with /");
    }
    if !probe.exec.command.is_empty() {
        judge_command(&format!("{section}.exec.command"), &probe.exec.command, judgement);
    }
    match &*said {
        [] if *probe != Probe::default() => {
            judgement.refuse(&[&section], "says how often, and not what is asked: set notify, exec, http, tcp or file");
        }
        [(_, first), (_, second), ..] => {
            judgement.refuse(
                &[&format!("{section}.{second}")],
                format!("{first} is set too, and only one of them can be asked: remove one"),
            );
        }
        [] | [_] => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Acknowledge;

    fn refused(change: impl FnOnce(&mut Config)) -> Vec<String> {
        let mut config = Config::default();
        change(&mut config);
        let mut judgement = Judgement::default();
        judge(&config, &mut judgement);
        judgement.violations.into_iter().map(|violation| violation.about.into_iter().next().unwrap()).collect()
    }

    fn readiness(change: impl FnOnce(&mut Probe)) -> Vec<String> {
        refused(|config| change(&mut config.workload.readiness))
    }

    #[test]
    fn each_way_to_ask_is_enough_alone_and_two_are_one_too_many() {
        assert!(refused(|_| {}).is_empty());
        let ways: [fn(&mut Probe); 5] = [
            |probe| probe.notify = true,
            |probe| probe.exec.command = vec!["true".into()],
            |probe| probe.http.port = 80,
            |probe| probe.tcp.port = 80,
            |probe| probe.file.path = "/ready".into(),
        ];
        for (at, way) in ways.into_iter().enumerate() {
            assert!(readiness(way).is_empty() && refused(|config| way(&mut config.workload.liveness)).is_empty(), "{at}");
            let other = ways[(at + 1) % ways.len()];
            let two = readiness(|probe| {
                way(probe);
                other(probe);
            });
            assert_eq!(two.len(), 1, "{two:?}");
        }
    }

    #[test]
    fn everything_that_is_missing_or_never_true_is_refused_at_once() {
        let all = refused(|config| {
            let Config { workload, http, .. } = config;
            (workload.readiness.period, workload.readiness.timeout) = (Duration::ZERO, Duration::ZERO);
            (workload.readiness.success_threshold, workload.readiness.failure_threshold) = (0, 0);
            workload.liveness.success_threshold = 2;
            workload.liveness.http.path = "healthz".into();
            workload.start_timeout = Some(Duration::ZERO);
            workload.candidate = Candidate::Ready;
            workload.notify_access = NotifyAccess::Main;
            http.ready = HttpReady::Workload;
        });
        assert_eq!(
            all,
            [
                "workload.readiness.period",
                "workload.readiness.timeout",
                "workload.readiness.successThreshold",
                "workload.readiness.failureThreshold",
                "workload.readiness",
                "workload.liveness.successThreshold",
                "workload.liveness.http",
                "workload.liveness.http.path",
                "workload.notifyAccess",
                "workload.startTimeout",
                "workload.startTimeout",
                "workload.candidate",
                "http.ready",
                "workload.candidate",
            ]
        );
    }

    #[test]
    fn what_is_frozen_can_be_made_ready_and_is_not_asked_whether_it_is_live() {
        let frozen = |change: fn(&mut Config)| {
            refused(|config| {
                config.workload.runs = Runs::Frozen;
                change(config);
            })
        };
        let ready = |config: &mut Config| {
            (config.workload.readiness.notify, config.workload.candidate) = (true, Candidate::Ready);
        };
        assert!(frozen(ready).is_empty());
        assert_eq!(frozen(|config| config.workload.liveness.tcp.port = 80), ["workload.liveness"]);
    }

    #[test]
    fn a_way_to_ask_needs_what_it_asks() {
        assert_eq!(readiness(|probe| probe.exec.command = vec![String::new()]), ["workload.readiness.exec.command"]);
        assert_eq!(readiness(|probe| probe.tcp.host = "::1".parse().ok()), ["workload.readiness.tcp"]);
        assert_eq!(readiness(|probe| probe.file.max_age = Some(Duration::MAX)), ["workload.readiness.file"]);
        let get = |path: &str, header: &str| {
            readiness(|probe| {
                (probe.http.port, probe.http.path) = (80, path.into());
                probe.http.headers.insert(header.into(), "x".into());
            })
        };
        assert!(get("", "a").is_empty() && get("/healthz?full", "a").is_empty());
        assert_eq!(get("/a b", "a"), ["workload.readiness.http"]);
        assert_eq!(get("/", "a b"), ["workload.readiness.http"]);
        assert_eq!(get("healthz", "a").last().map(String::as_str), Some("workload.readiness.http.path"));
    }

    #[test]
    fn only_what_notifies_has_somebody_to_believe() {
        let main = |config: &mut Config| config.workload.notify_access = NotifyAccess::Main;
        assert_eq!(refused(main), ["workload.notifyAccess"]);
        let asks: [fn(&mut Config); 3] = [
            |config| config.workload.acknowledge = Some(Acknowledge::Notify),
            |config| config.workload.readiness.notify = true,
            |config| config.workload.liveness.notify = true,
        ];
        for ask in asks {
            assert!(
                refused(|config| {
                    main(config);
                    ask(config);
                })
                .is_empty()
            );
        }
    }
}
