//! The table of what each kind of fault led to.

use std::{collections::BTreeMap, time::Duration};

use tenure::time::Instant;

use crate::{
    fault::Fault,
    history::History,
    judge::{Excuse, Overlap, Verdict},
    plan::LEFT,
    world::Past,
};

/// On the line of a stop that begins.
pub(crate) const NOT_LIVE: &str = "reason=\"not-live\" trace_id";

#[derive(Default)]
struct Row {
    times: usize,
    overlaps: usize,
    worst: Duration,
    led_again: Duration,
}

/// Prints it, with the violations below it; returns whether there are none.
pub(crate) fn show(histories: &[History], verdicts: &[Verdict]) -> bool {
    let mut rows = BTreeMap::<Fault, Row>::new();
    for (history, verdict) in histories.iter().zip(verdicts) {
        count(history, verdict, &mut rows);
    }
    println!("\n{:<42} {:>6} {:>9} {:>16} {:>18}", "fault", "times", "overlaps", "worst handover", "led again within");
    for fault in Fault::all() {
        let Row { times, overlaps, worst, led_again } = rows.remove(&fault).unwrap_or_default();
        let (worst, led_again) = (worst.as_secs_f64(), led_again.as_secs_f64());
        println!("{:<42} {times:>6} {overlaps:>9} {worst:>14.3} s {led_again:>16.3} s", fault.describe());
    }
    sum_up(histories, verdicts)
}

/// A round with two faults counts for both. A handover lasts from the last stamp of one term to the first of the next.
fn count(history: &History, verdict: &Verdict, rows: &mut BTreeMap<Fault, Row>) {
    for round in &history.rounds {
        let within = |at: Instant| at >= round.from && at <= round.led;
        let handovers = history.lives.windows(2).filter(|pair| within(pair[1].first));
        let worst = handovers.map(|pair| pair[1].first.since(pair[0].last)).max().unwrap_or_default();
        for fault in &round.faults {
            let row = rows.entry(*fault).or_default();
            row.times += 1;
            row.worst = row.worst.max(worst);
            row.led_again = row.led_again.max(led_again(history, round));
            let blamed = |overlap: &&Overlap| match overlap.excuse {
                None => true,
                Some(Excuse::Young | Excuse::NoFuse) => *fault == Fault::FreezeBoth,
                Some(Excuse::Peer) => false,
            };
            row.overlaps += verdict.overlaps.iter().filter(|overlap| within(overlap.from)).filter(blamed).count();
        }
    }
}

/// From the end of the faults to the start of the term that leads when the next round begins; zero if it had started before.
fn led_again(history: &History, round: &Past) -> Duration {
    let stands = history.lives.iter().rfind(|life| life.first <= round.led);
    stands.map_or(Duration::ZERO, |life| life.first.since(round.over))
}

fn sum_up(histories: &[History], verdicts: &[Verdict]) -> bool {
    let sum = |of: fn(&Verdict) -> usize| verdicts.iter().map(of).sum::<usize>();
    let terms: usize = histories.iter().map(|history| history.lives.len()).sum();
    let faults: usize = histories.iter().flat_map(|history| &history.rounds).map(|round| round.faults.len()).sum();
    let replicas: usize = histories.iter().map(|history| history.replicas.len()).sum();
    let exchanges = histories.iter().flat_map(|history| &history.replicas).flat_map(|replica| &replica.exchanges);
    let refused = exchanges.filter_map(|exchange| exchange.answer.as_ref()).filter(|answer| answer.status == 401).count();
    println!(
        "\n{terms} terms, {faults} faults, {replicas} replicas, {} writes, {refused} requests with a token that the server refused",
        sum(|verdict| verdict.writes),
    );
    let overlaps = |excused: fn(Option<Excuse>) -> bool| -> usize {
        verdicts.iter().map(|verdict| verdict.overlaps.iter().filter(|overlap| excused(overlap.excuse)).count()).sum()
    };
    println!(
        "overlaps {}; not promised: frozen before the fuse was complete {}, by client-go's doing {}; workloads that found the lock \
         taken {}; inits that ended themselves {}",
        overlaps(|excuse| excuse.is_none()),
        overlaps(|excuse| matches!(excuse, Some(Excuse::Young | Excuse::NoFuse))),
        overlaps(|excuse| excuse == Some(Excuse::Peer)),
        sum(|verdict| verdict.locked_out),
        sum(|verdict| verdict.weapons),
    );
    let said = |words: &str| histories.iter().map(|history| history.said(words)).sum::<usize>();
    println!("hooks that left a daemon {}; leaders that hung, and were found out {}", said(LEFT), said(NOT_LIVE));
    for (history, verdict) in histories.iter().zip(verdicts) {
        for overlap in &verdict.overlaps {
            if let Some(excuse) = overlap.excuse {
                let span = overlap.to.since(overlap.from);
                println!("not promised in world {}: {excuse:?}, {span:?} at once: {}", history.world, overlap.between);
            }
        }
        for violation in &verdict.violations {
            println!("VIOLATION in world {}: {violation}", history.world);
        }
    }
    verdicts.iter().all(|verdict| verdict.violations.is_empty())
}
