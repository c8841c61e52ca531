//! The numbers of the law for a configuration.

use std::time::Duration;

use super::Report;
use crate::{
    config::{Config, LeaseConfig, duration},
    elector::witness,
    law::{RETRY_PAUSE, Timing, WITHDRAWAL, longer},
    link::FLUSH,
    time::Instant,
};

pub(super) fn check(config: &Config, report: &mut Report) {
    let timing = config.timing();
    let deadlines = timing.deadlines(Instant::BOOT);
    let after = |instant: Instant| duration::format(instant.since(Instant::BOOT));
    let takeover = longer(timing.duration, timing.drift);
    // Longer where the record, or what was seen before it, has a longer one.
    let nobody = config.lease.creation_wait.unwrap_or(timing.duration);
    report.section("timing, counted from the send of the last renewal that is confirmed");
    report.text(&format!(
        "{} renewal due (R), and {} attempts of up to {} and a pause of {} fit before the stop deadline (S)\n\
         {} of an outage of the API server go unnoticed\n\
         {} stop deadline (S): the stop signal, if no renewal was confirmed\n\
         {} kill deadline (H): SIGKILL to every process\n\
         {} end (E): every process is gone, and the Lease is no longer valid\n\
         {} a standby that watched all the time may take over; {} if its watch is dead\n\
         {} a Lease that no holder gave back is taken, once nobody has held it for {}",
        column(&duration::format(timing.renew_period)),
        timing.attempts(),
        duration::format(timing.attempt_timeout),
        duration::format(RETRY_PAUSE),
        column(&duration::format(unnoticed(timing))),
        column(&after(deadlines.soft)),
        column(&after(deadlines.hard)),
        column(&after(deadlines.end)),
        column(&duration::format(takeover)),
        duration::format(takeover + timing.renew_period),
        column(&duration::format(longer(nobody, timing.drift))),
        duration::format(nobody),
    ));
    let stop = &config.workload.stop;
    let withdrawal = format!("withdrawal of the address up to {}, ", duration::format(WITHDRAWAL));
    report.good(&format!(
        "a planned stop needs terminationGracePeriodSeconds: {} or more ({}grace {}, kill {}, release up to {}, last spans {})",
        grace_period(config).as_secs(),
        config.service.endpoint_slice.as_ref().map_or("", |_| &withdrawal),
        duration::format(stop.grace),
        duration::format(stop.kill_margin),
        duration::format(config.release_limit()),
        duration::format(FLUSH),
    ));
}

/// How soon a container that is killed is followed; `pid1`: tenure is PID 1 here.
pub(super) fn check_witness(lease: &LeaseConfig, pid1: bool, report: &mut Report) {
    let wait = duration::format(longer(lease.duration, lease.clock_drift.0));
    match (&lease.witness, witness::pidfd_of_init(pid1)) {
        (None, _) => report.note(&format!("a container that is killed is followed after {wait}: no witness (lease.witness)")),
        (Some(_), Err(why)) => report.note(&format!("a container that is killed is followed after {wait}: no witness can help: {why}")),
        (Some(name), Ok(_)) if witness::answers(name) => report.good(&format!(
            "a container that is killed is followed after about 30 ms (a witness answers at {name}); a lost node, and a first start, \
             cost {wait}"
        )),
        (Some(name), Ok(_)) => report.note(&format!(
            "a container that is killed is followed after {wait}: no witness answers at {name}: is there a container that runs tenure \
             witness?"
        )),
    }
}

/// How long the API server may be away, whenever that begins: all attempts but the last may fail.
fn unnoticed(timing: Timing) -> Duration {
    (timing.attempt_timeout + RETRY_PAUSE) * timing.attempts().saturating_sub(1)
}

/// Without a Lease there is nothing to release, and no spans.
pub(super) fn check_plain(config: &Config, report: &mut Report) {
    let stop = &config.workload.stop;
    report.section("timing");
    report.good(&format!(
        "a stop needs terminationGracePeriodSeconds: {} or more (grace {}, kill {})",
        whole(stop.grace + stop.kill_margin).as_secs(),
        duration::format(stop.grace),
        duration::format(stop.kill_margin),
    ));
}

/// The time that the pod needs from SIGTERM to SIGKILL, in whole seconds.
pub(crate) fn grace_period(config: &Config) -> Duration {
    let stop = &config.workload.stop;
    let withdrawal = config.service.endpoint_slice.as_ref().map_or(Duration::ZERO, |_| WITHDRAWAL);
    whole(withdrawal + stop.grace + stop.kill_margin + config.release_limit() + FLUSH)
}

fn whole(needed: Duration) -> Duration {
    Duration::from_secs(needed.as_secs() + u64::from(needed.subsec_nanos() > 0))
}

fn column(span: &str) -> String {
    format!("{span:>10} ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_grace_period_covers_stop_kill_release_and_the_last_spans() {
        let mut config = Config::default();
        assert_eq!(grace_period(&config), Duration::from_secs(27));
        config.service.endpoint_slice = Some("leader".into());
        config.workload.stop.grace = Duration::from_millis(19_501);
        assert_eq!(grace_period(&config), Duration::from_secs(28));
    }

    #[test]
    fn the_numbers_are_those_of_the_law() {
        let mut report = Report::default();
        check(&Config::default(), &mut report);
        for number in [
            "9.85s  stop deadline (S):",
            "13.85s  kill deadline (H):",
            "14.85s  end (E):",
            "15.15s  a standby",
            "18.15s if its watch",
            "3 attempts",
            "4.4s  of an outage",
        ] {
            assert!(report.text.contains(number), "{number} in {}", report.text);
        }
    }
}
