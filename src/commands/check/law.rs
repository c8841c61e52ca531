//! The numbers of the law for a configuration.

use std::time::Duration;

use super::Report;
use crate::{
    config::{Config, humane},
    law::{RETRY_PAUSE, WITHDRAWAL, longer},
    link::FLUSH,
    time::Instant,
};

pub(super) fn check(config: &Config, report: &mut Report) {
    let timing = config.timing();
    let deadlines = timing.deadlines(Instant::BOOT);
    let after = |instant: Instant| humane::format(instant.since(Instant::BOOT));
    let takeover = longer(timing.duration, timing.drift);
    // Longer where the record, or what was seen before it, has a longer one.
    let nobody = config.lease.creation_wait.unwrap_or(timing.duration);
    report.section("timing, counted from the send of the last renewal that is confirmed");
    report.text(&format!(
        "{} renewal due (R), and {} attempts of up to {} and a pause of {} fit before S\n\
         {} S: stop signal, if no renewal was confirmed\n\
         {} H: SIGKILL to every process\n\
         {} E: every process is gone, the Lease no longer valid\n\
         {} a standby that watched all the time may take over; {} if its watch is dead\n\
         {} a Lease that no holder gave back is taken, once nobody has held it for {}",
        column(&humane::format(timing.renew_period)),
        timing.attempts(),
        humane::format(timing.attempt_timeout),
        humane::format(RETRY_PAUSE),
        column(&after(deadlines.soft)),
        column(&after(deadlines.hard)),
        column(&after(deadlines.end)),
        column(&humane::format(takeover)),
        humane::format(takeover + timing.renew_period),
        column(&humane::format(longer(nobody, timing.drift))),
        humane::format(nobody),
    ));
    let stop = &config.workload.stop;
    let withdrawal = format!("withdrawal of the address up to {}, ", humane::format(WITHDRAWAL));
    report.good(&format!(
        "a planned stop needs terminationGracePeriodSeconds: {} or more ({}grace {}, kill {}, release up to {}, last spans {})",
        grace_period(config).as_secs(),
        config.service.endpoint_slice.as_ref().map_or("", |_| &withdrawal),
        humane::format(stop.grace),
        humane::format(stop.kill_margin),
        humane::format(timing.release_limit()),
        humane::format(FLUSH),
    ));
}

/// Without a Lease there is nothing to release, and no spans.
pub(super) fn check_plain(config: &Config, report: &mut Report) {
    let stop = &config.workload.stop;
    report.section("timing");
    report.good(&format!(
        "a stop needs terminationGracePeriodSeconds: {} or more (grace {}, kill {})",
        whole(stop.grace + stop.kill_margin).as_secs(),
        humane::format(stop.grace),
        humane::format(stop.kill_margin),
    ));
}

/// What the pod needs from SIGTERM to SIGKILL, in whole seconds.
fn grace_period(config: &Config) -> Duration {
    let stop = &config.workload.stop;
    let withdrawal = config.service.endpoint_slice.as_ref().map_or(Duration::ZERO, |_| WITHDRAWAL);
    whole(withdrawal + stop.grace + stop.kill_margin + config.timing().release_limit() + FLUSH)
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
        for number in
            ["9s850ms  S:", "13s850ms  H:", "14s850ms  E:", "15s150ms  a standby", "18s150ms if its watch", "3 attempts"]
        {
            assert!(report.text.contains(number), "{number} in {}", report.text);
        }
    }
}
