//! By when a life has to be over: D after its replica's last stored write as holder, wherever the promise covers it.
//!
//! It does not cover a process that is alive while init and elector are frozen together and the kernel has no fuse for it.

use std::time::Duration;

use serde_json::Value;
use support::{Life, Process, Request};
use tenure::time::Instant;

use crate::{
    fault::Fault,
    history::{History, Replica},
    judge::{Excuse, Verdict},
    world::place_of,
};

/// From the end of a freeze to the death of what only init or the elector can kill: killMargin, which they have wherever they
/// run, and half a second, as SIGCONT may wake them late (by 0.3 s beside 200 spinners).
pub(crate) const AFTERMATH: Duration = Duration::from_millis(1_500);

/// The times after a start at which init looks for process groups,
const LOOKS: [Duration; 5] = [
    Duration::from_millis(10),
    Duration::from_millis(30),
    Duration::from_millis(100),
    Duration::from_millis(300),
    Duration::from_secs(1),
];
/// the longest time between two such looks at renewals,
const RENEWED: Duration = Duration::from_secs(2);
/// and how late a look may be.
const LOOKS_LATE: Duration = Duration::from_millis(250);
/// Init's log message when the kernel denies the fuse.
const NO_FUSE: &str = "there is no kernel fuse";

/// Judges every life, whether or not another one began before its end.
pub(crate) fn judge(history: &History, verdict: &mut Verdict) {
    for life in &history.lives {
        let Some(replica) = tenure_of(history, life) else { continue };
        match end(history, replica, life) {
            None => verdict.violations.push(format!("ran without a stored write as holder: {life:?}")),
            Some(end) if life.last > end && excuse(history, life, end, life.last).is_none() => {
                verdict.violations.push(format!("outlived its hold by {:?}: {life:?}", life.last.since(end)));
            }
            Some(_) => {}
        }
    }
}

/// Why the promise does not cover that something of this life was alive in this time span, after its hold.
pub(crate) fn excuse(history: &History, life: &Life, from: Instant, to: Instant) -> Option<Excuse> {
    let replica = tenure_of(history, life)?;
    let end = end(history, replica, life).filter(|end| *end <= from)?;
    let place = Some(place_of(&life.replica));
    let mut spans = history.spans.iter().filter(|span| span.fault == Fault::FreezeBoth && span.place == place);
    let frozen = spans.find(|span| span.from <= end && to <= span.to + AFTERMATH)?.from;
    // A lock may outlive the last stamp a little.
    let until = life.processes.iter().map(|process| process.last).max()?.min(from);
    let first = life.processes.first()?;
    let is_young = |process: &Process| process != first && !is_covered(process.born.since(first.born), frozen.since(first.born));
    if life.processes.iter().filter(|process| process.last >= until).all(is_young) {
        return Some(Excuse::Young);
    }
    replica.lines.iter().any(|line| line.contains(NO_FUSE)).then_some(Excuse::NoFuse)
}

/// Returns whether a process that starts this long after the first one has a fuse by then; the first one has it from its start.
fn is_covered(age: Duration, by: Duration) -> bool {
    let look = LOOKS.into_iter().find(|look| *look > age).unwrap_or(age + RENEWED);
    by >= look + LOOKS_LATE
}

/// The end of the last hold of this life that its replica can know of: what no reply confirmed may be read later (law 6).
fn end(history: &History, replica: &Replica, life: &Life) -> Option<Instant> {
    let answers =
        replica.exchanges.iter().filter(|exchange| exchange.succeeded()).filter_map(|exchange| exchange.answer.as_ref());
    let stored: Vec<&Value> = answers.map(|answer| &answer.body["spec"]).collect();
    let requests = replica.exchanges.iter().map(|exchange| &exchange.request);
    let lease = history.lease_of(life);
    let is_its = |request: &&Request| request.is_held() && lease.is_none_or(|lease| request.body["metadata"]["name"] == lease);
    let mut holds = requests.filter(is_its);
    let last = holds.rfind(|hold| hold.at <= life.last && stored.contains(&hold.spec()))?;
    Some(last.at + Duration::from_secs(last.spec()["leaseDurationSeconds"].as_u64()?))
}

fn tenure_of<'a>(history: &'a History, life: &Life) -> Option<&'a Replica> {
    history.replicas.iter().find(|replica| replica.name == life.replica && !replica.is_peer)
}
