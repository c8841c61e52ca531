//! Judges a whole history: what must never happen, whatever the nemesis did.

use std::{collections::BTreeSet, time::Duration};

use tenure::time::Instant;

use crate::{
    fault::Fault,
    history::{History, Replica, text},
    peer,
    support::{proxy::log::Verb, witness::Life},
    world::place_of,
    writes,
};

/// From the moment when processes that were frozen together resume to the death of what they watched.
const AFTERMATH: Duration = Duration::from_secs(3);

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
/// What init logs when the kernel denies the fuse.
const NO_FUSE: &str = "the kernel has no fuse";

/// Two terms whose workloads ran at once.
#[derive(Clone, Debug)]
pub(crate) struct Overlap {
    pub(crate) from: Instant,
    pub(crate) to: Instant,
    /// Why the promise did not cover it; none if it did.
    pub(crate) excuse: Option<Excuse>,
    pub(crate) between: String,
}

/// What the promise does not cover.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Excuse {
    /// Init and elector of the earlier one were frozen before the kernel's fuse could cover all its process groups.
    Young,
    /// They were frozen, and the kernel had denied the fuse.
    NoFuse,
    /// client-go missed its deadlines, or took a Lease that was free.
    Peer,
}

/// The judge's findings.
#[derive(Default)]
pub(crate) struct Verdict {
    pub(crate) overlaps: Vec<Overlap>,
    /// Starts that found the lock taken; with the overlaps above they come in pairs.
    pub(crate) locked_out: usize,
    pub(crate) violations: Vec<String>,
    /// How many inits ended themselves because they could not prove death in time.
    pub(crate) weapons: usize,
    /// How many writes were checked.
    pub(crate) writes: usize,
}

/// Judges one world.
pub(crate) fn judge(history: &History) -> Verdict {
    let mut verdict = Verdict { overlaps: overlaps(history), ..Verdict::default() };
    for overlap in verdict.overlaps.iter().filter(|overlap| overlap.excuse.is_none()) {
        let faults: Vec<_> = history.faults_within(overlap.from.before(AFTERMATH), overlap.to).map(|span| span.fault).collect();
        verdict.violations.push(format!("TWO AT ONCE for {:?}: {}; {faults:?}", overlap.to.since(overlap.from), overlap.between));
    }
    judge_locks(history, &mut verdict);
    judge_tokens(&history.lives, &mut verdict);
    for replica in &history.replicas {
        if !replica.is_peer {
            judge_end(replica, &mut verdict);
            judge_requests(history, replica, &mut verdict);
        }
    }
    writes::judge(history, &mut verdict);
    verdict.violations.extend(history.broken_off.clone());
    verdict
}

fn overlaps(history: &History) -> Vec<Overlap> {
    let mut overlaps = Vec::new();
    for (index, earlier) in history.lives.iter().enumerate() {
        for later in history.lives[index + 1..].iter().filter(|later| later.first <= earlier.last) {
            let (from, to) = (later.first, earlier.last.min(later.last));
            let excuse = if is_frozen_young(history, earlier, from, to) {
                Some(Excuse::Young)
            } else if is_frozen_without_fuse(history, earlier, from, to) {
                Some(Excuse::NoFuse)
            } else {
                peer::blame(history, earlier, later)
            };
            overlaps.push(Overlap { from, to, excuse, between: format!("{earlier:?} and {later:?}") });
        }
    }
    overlaps
}

/// Whether they were frozen before any of init's looks could find a process that had its own group by then.
fn is_frozen_young(history: &History, life: &Life, from: Instant, to: Instant) -> bool {
    let (Some(frozen), Some(start)) = (frozen(history, life, from, to), life.births.first()) else { return false };
    life.births.iter().skip(1).filter(|born| **born < frozen).any(|born| {
        let age = born.since(*start);
        let look = LOOKS.into_iter().find(|look| *look > age).unwrap_or(age + RENEWED);
        frozen < *start + look + LOOKS_LATE
    })
}

fn is_frozen_without_fuse(history: &History, life: &Life, from: Instant, to: Instant) -> bool {
    let said = |replica: &Replica| replica.name == life.replica && replica.lines.iter().any(|line| line.contains(NO_FUSE));
    frozen(history, life, from, to).is_some() && history.replicas.iter().any(said)
}

/// Since when init and elector of this life were frozen together in this time span.
fn frozen(history: &History, life: &Life, from: Instant, to: Instant) -> Option<Instant> {
    let place = Some(place_of(&life.replica));
    let mut frozen = history.faults_within(from.before(AFTERMATH), to);
    frozen.find(|span| span.fault == Fault::FreezeBoth && span.place == place).map(|span| span.from)
}

/// A lock that was taken although no stamps overlap reveals a process that does not stamp.
fn judge_locks(history: &History, verdict: &mut Verdict) {
    for event in history.events.iter().filter(|event| event.what == "locked out") {
        verdict.locked_out += 1;
        let at = event.at();
        let near = |overlap: &&Overlap| overlap.from <= at + AFTERMATH && overlap.to + AFTERMATH >= at;
        let is_excused = verdict.overlaps.iter().any(|overlap| near(&overlap) && overlap.excuse.is_some());
        let holder = history.lives.iter().rfind(|life| event.more["holder"] == *life.replica && life.first <= at);
        if !is_excused && !holder.is_some_and(|holder| peer::outstays(history, &Life { last: at, ..holder.clone() })) {
            verdict.violations.push(format!("{} found the lock taken at {at:?}: {}", event.replica, event.more));
        }
    }
}

/// client-go gives its workload no token.
fn judge_tokens(lives: &[Life], verdict: &mut Verdict) {
    let numbers: Vec<_> = lives.iter().filter_map(|life| Some((life, life.token.parse::<u128>().ok()?))).collect();
    for pair in numbers.windows(2) {
        if let [(earlier, before), (later, after)] = pair
            && after <= before
        {
            verdict.violations.push(format!("a token that does not rise: {earlier:?}, then {later:?}"));
        }
    }
}

/// A panic or a crash is never acceptable. PID 1 may end itself, so that the kernel kills the rest, as a last resort.
fn judge_end(replica: &Replica, verdict: &mut Verdict) {
    verdict.weapons += usize::from(replica.code == Some(70));
    if let Some(code @ (78 | 101 | 132 | 134 | 135 | 136 | 139)) = replica.code {
        verdict.violations.push(format!("{} ended with {code}: {:?}", replica.name, replica.lines.last()));
    }
    if let Some(line) = replica.lines.iter().find(|line| line.contains("panicked")) {
        verdict.violations.push(format!("{}: {line}", replica.name));
    }
}

/// Checks the requests in the order in which they reached its proxy.
fn judge_requests(history: &History, replica: &Replica, verdict: &mut Verdict) {
    let mut specs = BTreeSet::new();
    for request in replica.exchanges.iter().map(|exchange| &exchange.request).filter(|request| request.is_write()) {
        verdict.writes += 1;
        let mut wrong =
            |what: &str| verdict.violations.push(format!("{} {what}: {:?} {}", replica.name, request.verb, request.body));
        if matches!(request.verb, Verb::Patch | Verb::Delete) {
            wrong("asked for what it never should");
        }
        let spec = request.spec();
        if [text(spec, "acquireTime"), text(spec, "renewTime")].iter().any(|time| !has_six_digits(time)) {
            wrong("wrote a time without six digits");
        }
        if !specs.insert(spec.to_string()) {
            wrong("wrote the same spec twice");
        }
        if request.is_release() {
            let dead = |life: &&Life| life.replica != replica.name || life.first > request.at || life.last < request.at;
            if let Some(life) = history.lives.iter().find(|life| !dead(life)) {
                wrong(&format!("released at {:?} before it was dead: {life:?}", request.at));
            }
        }
    }
}

/// `2006-01-02T15:04:05.000000Z`.
fn has_six_digits(time: &str) -> bool {
    let shape: String = time.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    shape == "0000-00-00T00:00:00.000000Z"
}
