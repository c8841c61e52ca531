//! Whether the timing keeps the law, and the smallest change that would make it.

use std::time::Duration;

use super::Judgement;
use crate::{
    config::{Config, humane},
    law::{REQUIRED_ATTEMPTS, RETRY_PAUSE, Timing},
    time::Instant,
};

const ADVISED_ATTEMPTS: u32 = 3;
const SHORTEST_LEASE: Duration = Duration::from_secs(2);
const SHORTEST_PERIOD: Duration = Duration::from_secs(1);
/// Time for one exchange with a server nearby.
const SHORTEST_ATTEMPT: Duration = Duration::from_millis(10);
/// leaseDurationSeconds is an int32.
const LONGEST_LEASE: Duration = Duration::from_secs(i32::MAX.unsigned_abs() as u64);
/// Killing 200 processes takes 5 ms; a busy machine wakes init up to 0.3 s late, a tight CPU quota 0.8 s.
const SHORTEST_MARGIN: Duration = Duration::from_millis(100);
const ADVISED_MARGIN: Duration = Duration::from_millis(500);
/// Crystals alone differ by this much: 0.01 %.
const LEAST_DRIFT: u32 = 100;
/// 20 %: beyond that it is no clock.
const MOST_DRIFT: u32 = 200_000;

pub(super) fn judge(config: &Config, judgement: &mut Judgement) {
    let before = judgement.violations.len();
    judge_each(config.timing(), judgement);
    if judgement.violations.len() == before {
        judge_together(config.timing(), judgement);
    }
    let Some(wait) = config.lease.creation_wait else { return };
    judge_seconds("lease.creationWait", wait, judgement);
    if wait < config.lease.duration {
        judgement.note(format!(
            "lease.creationWait: {} is less than lease.duration: after the Lease was deleted or cleared by hand, a leader that is cut off \
             may still run when the next one starts",
            humane::format(wait)
        ));
    }
}

fn judge_each(timing: Timing, judgement: &mut Judgement) {
    for (path, span, least) in [
        ("lease.duration", timing.duration, SHORTEST_LEASE),
        ("lease.renewPeriod", timing.renew_period, SHORTEST_PERIOD),
        ("lease.attemptTimeout", timing.attempt_timeout, SHORTEST_ATTEMPT),
        ("workload.stop.killMargin", timing.kill_margin, SHORTEST_MARGIN),
    ] {
        if span < least {
            let message = format!("{} is too short: {} is the shortest", humane::format(span), humane::format(least));
            judgement.refuse(&[path], message);
        }
    }
    judge_seconds("lease.duration", timing.duration, judgement);
    if !(LEAST_DRIFT..=MOST_DRIFT).contains(&timing.drift) {
        judgement.refuse(
            &["lease.clockDrift"],
            "is out of range: 0.01% is the least that clocks differ by, 20% the most that makes sense",
        );
    }
    if (SHORTEST_MARGIN..ADVISED_MARGIN).contains(&timing.kill_margin) {
        judgement.note(format!(
            "workload.stop.killMargin: {} is shorter than the delay with which a busy machine may wake init; 1s is advised, 2s under a \
             tight CPU limit",
            humane::format(timing.kill_margin)
        ));
    }
}

/// What a Lease can say: whole seconds, and not too many.
fn judge_seconds(path: &str, span: Duration, judgement: &mut Judgement) {
    let written = humane::format(span);
    if span > LONGEST_LEASE {
        judgement.refuse(&[path], format!("{written} is too long: {}s is the longest", LONGEST_LEASE.as_secs()));
    } else if span.subsec_nanos() != 0 {
        let whole = span.as_secs() + 1;
        judgement.refuse(&[path], format!("{written} is not in whole seconds, as a Lease has them: write {whole}s"));
    }
}

fn judge_together(timing: Timing, judgement: &mut Judgement) {
    let attempts = timing.attempts();
    let has_room = timing.has_room();
    if attempts >= ADVISED_ATTEMPTS && has_room {
        return;
    }
    let span = |instant: Instant| humane::format(instant.since(Instant::BOOT));
    let deadlines = timing.deadlines(Instant::BOOT);
    let numbers = format!(
        "counted from the send of a renewal, the next one is due after {}, the workload is stopped after {}, killed after {} and \
         gone after {}; one attempt takes up to {} and a pause of {}",
        humane::format(timing.renew_period),
        span(deadlines.soft),
        span(deadlines.hard),
        span(deadlines.end),
        humane::format(timing.attempt_timeout),
        humane::format(RETRY_PAUSE),
    );
    if attempts >= REQUIRED_ATTEMPTS && has_room {
        let better = remedy(timing, ADVISED_ATTEMPTS);
        judgement.note(format!("lease.duration: only {attempts} attempts to renew fit, 3 are advised: {numbers}; {better}"));
        return;
    }
    let fit = match attempts {
        0 => "no attempt to renew fits before the workload must be stopped, and 2 have to",
        1 => "only 1 attempt to renew fits before the workload must be stopped, and 2 have to",
        _ => "the workload must be stopped within 1.2 times lease.renewPeriod, so that a single late renewal loses the Lease",
    };
    let remedy = remedy(timing, REQUIRED_ATTEMPTS);
    let about = [
        "lease.duration",
        "lease.renewPeriod",
        "lease.attemptTimeout",
        "lease.clockDrift",
        "workload.stop.lossGrace",
        "workload.stop.killMargin",
    ];
    judgement.refuse(&about, format!("{fit}: {numbers}. {remedy}"));
}

/// What to set so that `attempts` fit.
fn remedy(timing: Timing, attempts: u32) -> String {
    match remedies(timing, attempts).as_slice() {
        [] => "no change to one of them alone is enough".into(),
        remedies => format!("set {}", remedies.join(", or ")),
    }
}

/// The smallest change to each of D, R, T, G and killMargin that alone lets `attempts` fit; each with its key and value. Less
/// than the default killMargin is no remedy.
fn remedies(timing: Timing, attempts: u32) -> Vec<String> {
    let fits = |timing: Timing| timing.attempts() >= attempts && timing.has_room();
    let mut remedies = Vec::new();
    let seconds = LONGEST_LEASE.as_secs();
    let longer = first(timing.duration.as_secs(), seconds, |secs| fits(timing.with_duration(Duration::from_secs(secs))));
    if let Some(secs) = longer {
        remedies.push(format!("lease.duration to {secs}s or more"));
    }
    type With = fn(Timing, Duration) -> Timing;
    let shorter: [(&str, Duration, Duration, With); 4] = [
        ("lease.renewPeriod", timing.renew_period, SHORTEST_PERIOD, |timing, renew_period| Timing { renew_period, ..timing }),
        ("lease.attemptTimeout", timing.attempt_timeout, SHORTEST_ATTEMPT, |timing, attempt_timeout| Timing {
            attempt_timeout,
            ..timing
        }),
        ("workload.stop.lossGrace", timing.loss_grace, Duration::ZERO, |timing, loss_grace| Timing { loss_grace, ..timing }),
        ("workload.stop.killMargin", timing.kill_margin, Config::default().workload.stop.kill_margin, |timing, kill_margin| {
            Timing { kill_margin, ..timing }
        }),
    ];
    for (key, now, least, with) in shorter {
        // In steps, counted down from what is set: the first that fits is the longest.
        let step = Duration::from_millis(10);
        let steps = u64::try_from(now.saturating_sub(least).as_millis() / step.as_millis()).unwrap_or(u64::MAX);
        let at = |down: u64| least + step * u32::try_from(steps - down).unwrap_or(u32::MAX);
        if let Some(down) = first(0, steps, |down| fits(with(timing, at(down)))) {
            remedies.push(format!("{key} to {} or less", humane::format(at(down))));
        }
    }
    remedies
}

/// The first of `low..=high` that is `good`, where everything after a good one is good too.
fn first(mut low: u64, mut high: u64, good: impl Fn(u64) -> bool) -> Option<u64> {
    if !good(high) {
        return None;
    }
    while low < high {
        let middle = low + (high - low) / 2;
        if good(middle) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    Some(low)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEFAULT: Timing = Timing {
        duration: Duration::from_secs(15),
        renew_period: Duration::from_secs(3),
        attempt_timeout: Duration::from_secs(2),
        drift: 10_000,
        loss_grace: Duration::from_secs(4),
        kill_margin: Duration::from_secs(1),
    };

    fn judged(change: impl FnOnce(&mut Config)) -> Judgement {
        let mut config = Config::default();
        change(&mut config);
        let mut judgement = Judgement::default();
        judge(&config, &mut judgement);
        judgement
    }

    fn refused(change: impl FnOnce(&mut Config)) -> String {
        let judgement = judged(change);
        assert_eq!(judgement.violations.len(), 1, "{judgement:?}");
        judgement.violations.into_iter().map(|violation| format!("{}: {}", violation.about[0], violation.message)).collect()
    }

    #[test]
    fn the_defaults_fit_with_nothing_to_say() {
        let judgement = judged(|_| {});
        assert!(judgement.violations.is_empty() && judgement.notes.is_empty(), "{judgement:?}");
    }

    #[test]
    fn timings_that_do_not_fit_are_refused_with_the_smallest_change_of_each() {
        let refused = refused(|config| config.lease.duration = Duration::from_secs(12));
        assert!(refused.contains("only 1 attempt to renew fits"), "{refused}");
        for remedy in [
            "lease.duration to 13s or more",
            "lease.renewPeriod to 2s480ms or less",
            "lease.attemptTimeout to 1s740ms or less",
            "workload.stop.lossGrace to 3s480ms or less",
        ] {
            assert!(refused.contains(remedy), "{remedy} in {refused}");
        }
    }

    #[test]
    fn many_attempts_are_no_room_for_a_late_renewal() {
        let refused = refused(|config| {
            config.lease.duration = Duration::from_secs(17);
            config.lease.renew_period = Duration::from_secs(10);
            config.lease.attempt_timeout = Duration::from_millis(100);
        });
        assert!(refused.contains("within 1.2 times lease.renewPeriod"), "{refused}");
        for remedy in ["lease.duration to 18s or more", "lease.renewPeriod to 9s850ms or less"] {
            assert!(refused.contains(remedy), "{remedy} in {refused}");
        }
    }

    #[test]
    fn a_remedy_says_set_whichever_key_comes_first() {
        let by_duration = refused(|config| config.lease.duration = Duration::from_secs(12));
        assert!(by_duration.contains(". set lease.duration to "), "{by_duration}");
        let by_period = refused(|config| config.lease.renew_period = LONGEST_LEASE);
        assert!(by_period.contains(". set lease.renewPeriod to "), "{by_period}");
        let by_none = refused(|config| {
            (config.workload.stop.kill_margin, config.workload.stop.loss_grace) = (LONGEST_LEASE, LONGEST_LEASE);
        });
        assert!(by_none.ends_with(". no change to one of them alone is enough"), "{by_none}");
        let advised = judged(|config| config.lease.duration = Duration::from_secs(13));
        assert!(advised.notes[0].contains("; set lease.duration to "), "{advised:?}");
    }

    #[test]
    fn every_remedy_fits_and_one_step_less_does_not() {
        let tight = DEFAULT.with_duration(Duration::from_secs(12));
        let (step, millis) = (Duration::from_millis(10), Duration::from_millis);
        let fits = |timing: Timing| timing.attempts() >= REQUIRED_ATTEMPTS;
        assert!(fits(tight.with_duration(Duration::from_secs(13))) && !fits(tight));
        for (at, with) in [
            (millis(2480), (|timing, renew_period| Timing { renew_period, ..timing }) as fn(Timing, Duration) -> Timing),
            (millis(1740), |timing, attempt_timeout| Timing { attempt_timeout, ..timing }),
            (millis(3480), |timing, loss_grace| Timing { loss_grace, ..timing }),
        ] {
            assert!(fits(with(tight, at)) && !fits(with(tight, at + step)), "{at:?}");
        }
    }

    #[test]
    fn a_margin_longer_than_the_default_is_a_remedy_too() {
        let long = Timing { kill_margin: Duration::from_secs(6), ..DEFAULT };
        assert!(
            remedy(long, REQUIRED_ATTEMPTS).ends_with("or workload.stop.killMargin to 3s450ms or less"),
            "{}",
            remedy(long, 2)
        );
    }

    #[test]
    fn two_attempts_are_allowed_and_noted() {
        let judgement = judged(|config| config.lease.duration = Duration::from_secs(13));
        assert!(judgement.violations.is_empty());
        assert!(judgement.notes[0].contains("only 2 attempts"), "{judgement:?}");
    }

    #[test]
    fn a_lease_has_whole_seconds_and_at_least_two() {
        assert!(refused(|config| config.lease.duration = Duration::from_millis(15_500)).contains("write 16s"));
        assert!(refused(|config| config.lease.duration = Duration::from_secs(1)).contains("2s is the shortest"));
        assert!(refused(|config| config.lease.duration = Duration::from_secs(1 << 31)).contains("2147483647s"));
    }

    #[test]
    fn a_period_a_timeout_a_drift_and_a_margin_have_their_range() {
        assert!(refused(|config| config.lease.renew_period = Duration::from_millis(999)).contains("lease.renewPeriod: 999ms"));
        for short in [Duration::ZERO, Duration::from_nanos(1), Duration::from_nanos(9_999_999)] {
            let refused = refused(|config| config.lease.attempt_timeout = short);
            assert!(refused.contains("lease.attemptTimeout: ") && refused.ends_with("10ms is the shortest"), "{refused}");
        }
        assert!(judged(|config| config.lease.attempt_timeout = Duration::from_millis(10)).violations.is_empty());
        assert!(refused(|config| config.lease.clock_drift.0 = 99).contains("lease.clockDrift"));
        assert!(refused(|config| config.lease.clock_drift.0 = 200_001).contains("lease.clockDrift"));
        assert!(refused(|config| config.workload.stop.kill_margin = Duration::from_millis(99)).contains("killMargin"));
    }

    #[test]
    fn the_ends_of_each_range_are_within_it() {
        let ends: [fn(&mut Config); 6] = [
            |config| config.lease.duration = LONGEST_LEASE,
            |config| config.lease.renew_period = Duration::from_secs(1),
            |config| config.lease.clock_drift.0 = 100,
            |config| (config.lease.clock_drift.0, config.lease.duration) = (200_000, Duration::from_secs(60)),
            |config| config.workload.stop.kill_margin = Duration::from_millis(100),
            |config| config.lease.creation_wait = Some(LONGEST_LEASE),
        ];
        for (index, end) in ends.into_iter().enumerate() {
            let judgement = judged(end);
            assert!(judgement.violations.is_empty(), "{index}: {judgement:?}");
        }
        let shortest = |config: &mut Config| {
            config.lease.duration = Duration::from_secs(2);
            config.lease.renew_period = Duration::from_secs(1);
            config.lease.attempt_timeout = Duration::from_millis(10);
            config.workload.stop.loss_grace = Duration::ZERO;
            config.workload.stop.kill_margin = Duration::from_millis(100);
        };
        assert!(judged(shortest).violations.is_empty());
    }

    #[test]
    fn a_margin_that_a_busy_machine_may_miss_is_noted() {
        let noted = |millis| judged(|config| config.workload.stop.kill_margin = Duration::from_millis(millis)).notes;
        assert!(noted(500).is_empty());
        assert!(noted(499)[0].contains("workload.stop.killMargin: 499ms is shorter"), "{:?}", noted(499));
    }

    #[test]
    fn a_creation_wait_has_whole_seconds_and_a_short_one_is_noted() {
        let wait = |millis| move |config: &mut Config| config.lease.creation_wait = Some(Duration::from_millis(millis));
        assert!(refused(wait(1500)).contains("write 2s"));
        assert!(refused(wait(2_147_483_648_000)).contains("too long: 2147483647s is the longest"));
        assert!(judged(wait(0)).notes[0].contains("less than lease.duration"));
        assert!(judged(wait(15_000)).notes.is_empty());
    }
}
