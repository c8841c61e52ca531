//! The table of what each kind of fault led to.

use std::{collections::BTreeMap, time::Duration};

use crate::{
    fault::Fault,
    history::History,
    judge::{Excuse, Overlap, Verdict},
    world::Past,
};

#[derive(Default)]
struct Row {
    times: usize,
    terms: usize,
    overlaps: usize,
    at_once: Duration,
    handovers: Vec<Duration>,
    led_again: Duration,
}

/// Prints it, with the violations below it; returns whether there are none.
pub(crate) fn show(histories: &[History], verdicts: &[Verdict]) -> bool {
    let mut rows = BTreeMap::<Fault, Row>::new();
    for (history, verdict) in histories.iter().zip(verdicts) {
        count(history, verdict, &mut rows);
    }
    println!();
    println!(
        "{:<42} {:>6} {:>6} {:>9} {:>12} {:>16} {:>16} {:>18}",
        "fault", "times", "terms", "overlaps", "at once", "median handover", "worst handover", "led again within"
    );
    for fault in Fault::ALL {
        let row = rows.remove(&fault).unwrap_or_default();
        let mut handovers = row.handovers;
        handovers.sort();
        println!(
            "{:<42} {:>6} {:>6} {:>9} {:>12} {:>16} {:>16} {:>18}",
            fault.describe(),
            row.times,
            row.terms,
            row.overlaps,
            millis(Some(&row.at_once)),
            millis(handovers.get(handovers.len() / 2)),
            millis(handovers.last()),
            millis(Some(&row.led_again)),
        );
    }
    sum_up(histories, verdicts)
}

/// A round with two faults counts for both. A handover lasts from the last stamp of one term to the first of the next.
fn count(history: &History, verdict: &Verdict, rows: &mut BTreeMap<Fault, Row>) {
    for round in &history.rounds {
        let within = |overlap: &&Overlap| overlap.from >= round.from && overlap.from <= round.led;
        for fault in &round.faults {
            let row = rows.entry(*fault).or_default();
            row.times += 1;
            row.led_again = row.led_again.max(led_again(history, round));
            let blamed = |overlap: &&Overlap| match overlap.excuse {
                None => true,
                Some(Excuse::Young | Excuse::NoFuse) => *fault == Fault::FreezeBoth,
                Some(Excuse::Peer) => false,
            };
            for overlap in verdict.overlaps.iter().filter(within).filter(blamed) {
                row.overlaps += 1;
                row.at_once += overlap.to.since(overlap.from);
            }
            for pair in history.lives.windows(2) {
                if let [earlier, later] = pair
                    && later.first >= round.from
                    && later.first <= round.led
                {
                    row.terms += 1;
                    row.handovers.push(later.first.since(earlier.last));
                }
            }
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
    let faults: usize =
        histories.iter().map(|history| history.rounds.iter().map(|round| round.faults.len()).sum::<usize>()).sum();
    let replicas: usize = histories.iter().map(|history| history.replicas.len()).sum();
    let refused = |history: &History| -> usize {
        let answers =
            history.replicas.iter().flat_map(|replica| &replica.exchanges).filter_map(|exchange| exchange.answer.as_ref());
        answers.filter(|answer| answer.status == 401).count()
    };
    let refused: usize = histories.iter().map(refused).sum();
    println!(
        "\n{terms} terms, {faults} faults, {replicas} replicas, {} writes, {refused} requests with a token that the server refused; \
         a new connection not answered in time {} times",
        sum(|verdict| verdict.writes),
        histories.first().map_or(0, |history| history.silences.len()),
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

fn millis(span: Option<&Duration>) -> String {
    span.map_or_else(|| "-".to_owned(), |span| format!("{:.1} ms", span.as_secs_f64() * 1e3))
}
