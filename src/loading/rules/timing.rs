//! Judges whether the timing keeps the law, and finds the smallest change that would.

use std::time::Duration;

use super::{
    Validation,
    names::{MOST_SLOTS, is_label, made_valid},
};
use crate::{
    config::{Config, Drift, LeaseConfig, Release, duration},
    law::{REQUIRED_ATTEMPTS, RETRY_PAUSE, Timing},
    time::Instant,
};

const ADVISED_ATTEMPTS: u32 = 3;
/// Without a witness, people wait for a longer one.
const LONG_LEASE: Duration = Duration::from_secs(30);
const SHORTEST_LEASE: Duration = Duration::from_secs(3);
const SHORTEST_PERIOD: Duration = Duration::from_secs(1);
/// An exchange with a server nearby takes this long.
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

pub(super) fn judge(config: &Config, validation: &mut Validation) {
    let before = validation.diagnostics.len();
    judge_each(config.timing(), validation);
    judge_witness(&config.lease, validation);
    if validation.diagnostics.len() == before {
        judge_together(config.timing(), validation);
    }
    let Some(wait) = config.lease.creation_wait else { return };
    judge_seconds("lease.creationWait", wait, Duration::ZERO, validation);
    let stop = &config.workload.stop;
    let healthy = config.lease.renew_period.saturating_add(stop.loss_grace).saturating_add(stop.kill_margin);
    if wait < config.lease.duration {
        validation.note(format!(
            "lease.creationWait: {} is {}: if the Lease is deleted or cleared by hand, {}",
            duration::format(wait),
            if wait.is_zero() { "an unguarded start" } else { "less than lease.duration" },
            if wait < healthy {
                format!(
                    "any leader may still run beside the next one, for up to {} (a healthy one stops within that time: wait that long, \
                     and only a leader that is cut off may)",
                    duration::format(healthy)
                )
            } else {
                "a leader that is cut off may still run beside the next one".to_owned()
            }
        ));
    }
}

/// Returns true if a valid configuration can have these Leases, this `lease.attemptTimeout` and this `lease.renewPeriod`.
pub(crate) fn may_be_told(namespace: &str, leases: &[String], attempt_timeout: Duration, renew_period: Duration) -> bool {
    (1..=MOST_SLOTS.into()).contains(&leases.len())
        && is_label(namespace)
        && leases.iter().all(|name| !name.is_empty() && made_valid(name) == *name)
        && (SHORTEST_ATTEMPT..=LONGEST_LEASE).contains(&attempt_timeout)
        && (SHORTEST_PERIOD..=LONGEST_LEASE).contains(&renew_period)
}

fn judge_witness(lease: &LeaseConfig, validation: &mut Validation) {
    refuse! { validation;
        lease.witness.is_some() && lease.release == Release::Keep => ["lease.witness", "lease.release"] =>
            "with lease.release: keep no Lease is given back, and a witness has nothing to do: change one of the two";
    }
    if lease.witness.is_none() && lease.duration > LONG_LEASE {
        validation.note(format!(
            "lease.duration: a container that is killed is waited for for {}: a witness gives its Lease back at once (lease.witness)",
            duration::format(lease.duration)
        ));
    }
}

fn judge_each(timing: Timing, validation: &mut Validation) {
    for (path, span, least) in [
        ("lease.duration", timing.duration, SHORTEST_LEASE),
        ("lease.renewPeriod", timing.renew_period, SHORTEST_PERIOD),
        ("lease.attemptTimeout", timing.attempt_timeout, SHORTEST_ATTEMPT),
        ("workload.stop.killMargin", timing.kill_margin, SHORTEST_MARGIN),
    ] {
        refuse! { validation;
            span < least => [path] => format!("{} is too short: {} is the shortest", duration::format(span), duration::format(least));
        }
    }
    judge_seconds("lease.duration", timing.duration, SHORTEST_LEASE, validation);
    refuse! { validation;
        !(LEAST_DRIFT..=MOST_DRIFT).contains(&timing.drift) => ["lease.clockDrift"] =>
            format!("{} is out of range: write a percentage from 0.01% to 20%", Drift(timing.drift));
    }
    if (SHORTEST_MARGIN..ADVISED_MARGIN).contains(&timing.kill_margin) {
        validation.note(format!(
            "workload.stop.killMargin: {} is shorter than the delay with which a busy machine may wake init; 1s is advised, 2s under a \
             tight CPU limit",
            duration::format(timing.kill_margin)
        ));
    }
}

/// Judges whether a Lease can hold this duration: whole seconds, and not too many.
fn judge_seconds(path: &str, span: Duration, shortest: Duration, validation: &mut Validation) {
    let written = duration::format(span);
    refuse! { validation;
        span > LONGEST_LEASE => [path] => format!("{written} is too long: {}s is the longest", LONGEST_LEASE.as_secs());
        span < LONGEST_LEASE && span.subsec_nanos() != 0 => [path] =>
            format!("{written} is not in whole seconds, and a Lease holds only these: write {}s", (span.as_secs() + 1).max(shortest.as_secs()));
    }
}

fn judge_together(timing: Timing, validation: &mut Validation) {
    let attempts = timing.attempts();
    let has_room = timing.has_room();
    if attempts >= ADVISED_ATTEMPTS && has_room {
        return;
    }
    let span = |instant: Instant| duration::format(instant.since(Instant::BOOT));
    let deadlines = timing.deadlines(Instant::BOOT);
    let numbers = format!(
        "After a renewal is sent, the next one is due after {}, the workload is stopped after {}, killed after {} and gone after {}. \
         One attempt takes up to {}, and the pause after it {}.",
        duration::format(timing.renew_period),
        span(deadlines.soft),
        span(deadlines.hard),
        span(deadlines.end),
        duration::format(timing.attempt_timeout),
        duration::format(RETRY_PAUSE),
    );
    if attempts >= REQUIRED_ATTEMPTS && has_room {
        let better = remedy(timing, ADVISED_ATTEMPTS);
        validation.note(format!("lease.duration: only {attempts} attempts to renew fit, 3 are advised. {numbers} {better}"));
        return;
    }
    let fit = match attempts {
        0 => "no attempt to renew fits before the workload must be stopped, and 2 are required",
        1 => "only 1 attempt to renew fits before the workload must be stopped, and 2 are required",
        _ if timing.is_rare() => {
            "lease.renewPeriod is more than a third of lease.duration, so that a healthy leader would look silent"
        }
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
    validation.refuse(&about, format!("{fit}. {numbers} {remedy}"));
}

/// The keys and values of which each alone makes `attempts` fit.
fn remedy(timing: Timing, attempts: u32) -> String {
    match remedies(timing, attempts).as_slice() {
        [] => "No change to one key alone is enough.".into(),
        remedies => format!("Set {}.", remedies.join(", or ")),
    }
}

/// The smallest change to each of D, R, T, G and killMargin that alone lets `attempts` fit, each with its key and value. A
/// killMargin below the default is no remedy.
fn remedies(timing: Timing, attempts: u32) -> Vec<String> {
    let fits = |timing: Timing| timing.attempts() >= attempts && timing.has_room();
    let mut remedies = Vec::new();
    let seconds = LONGEST_LEASE.as_secs();
    let longer = first(timing.duration.as_secs(), seconds, |secs| fits(timing.with_duration(Duration::from_secs(secs))));
    if let Some(secs) = longer {
        remedies.push(format!("lease.duration to {secs}s or more"));
    }
    type Field = fn(&mut Timing) -> &mut Duration;
    let shorter: [(&str, Duration, Field); 4] = [
        ("lease.renewPeriod", SHORTEST_PERIOD, |timing| &mut timing.renew_period),
        ("lease.attemptTimeout", SHORTEST_ATTEMPT, |timing| &mut timing.attempt_timeout),
        ("workload.stop.lossGrace", Duration::ZERO, |timing| &mut timing.loss_grace),
        ("workload.stop.killMargin", Config::default().workload.stop.kill_margin, |timing| &mut timing.kill_margin),
    ];
    for (key, least, field) in shorter {
        // In steps, counted down from what is set: the first that fits is the longest.
        let step = Duration::from_millis(10);
        let mut tried = timing;
        let steps = u64::try_from(field(&mut tried).saturating_sub(least).as_millis() / step.as_millis()).unwrap_or(u64::MAX);
        let at = |down: u64| least + step * u32::try_from(steps - down).unwrap_or(u32::MAX);
        let fits_at = |down| {
            let mut tried = timing;
            *field(&mut tried) = at(down);
            fits(tried)
        };
        if let Some(down) = first(0, steps, fits_at) {
            remedies.push(format!("{key} to {} or less", duration::format(at(down))));
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
