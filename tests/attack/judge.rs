//! Judges a whole history: what must never be, whatever the nemesis did.

use std::{collections::BTreeSet, time::Duration};

use tenure::time::Instant;

use crate::{
    fault::Fault,
    history::{History, Replica, text},
    support::{proxy::log::Verb, witness::Life},
    world::place_of,
    writes,
};

/// From the resumption of processes that were frozen together to the death of what they watched.
const AFTERMATH: Duration = Duration::from_secs(3);

/// From the start of a process group to a renewal after it, at most.
const SEEN: Duration = Duration::from_secs(2);
/// What init says where the kernel refuses.
const NO_FUSE: &str = "the kernel has no fuse";

/// Two terms whose workloads ran at once.
#[derive(Clone, Debug)]
pub(crate) struct Overlap {
    pub(crate) from: Instant,
    pub(crate) to: Instant,
    /// Init and elector of the earlier one were frozen before the kernel's fuse could know all its process groups.
    pub(crate) not_promised: bool,
    pub(crate) between: String,
}

/// What the judge found.
#[derive(Default)]
pub(crate) struct Verdict {
    pub(crate) overlaps: Vec<Overlap>,
    /// Of starts that found the lock taken: with the overlaps above they come in pairs.
    pub(crate) locked_out: usize,
    pub(crate) violations: Vec<String>,
    /// How many inits ended themselves because they could not prove death in time.
    pub(crate) weapons: usize,
    /// How many writes were looked at.
    pub(crate) writes: usize,
}

/// Judges one world.
pub(crate) fn judge(history: &History) -> Verdict {
    let mut verdict = Verdict { overlaps: overlaps(history), ..Verdict::default() };
    for overlap in verdict.overlaps.iter().filter(|overlap| !overlap.not_promised) {
        let faults: Vec<_> = history.faults_within(overlap.from - AFTERMATH, overlap.to).map(|span| span.fault).collect();
        verdict.violations.push(format!("TWO AT ONCE for {:?}: {}; {faults:?}", overlap.to.since(overlap.from), overlap.between));
    }
    judge_locks(history, &mut verdict);
    judge_tokens(&history.lives, &mut verdict);
    for replica in &history.replicas {
        judge_end(replica, &mut verdict);
        judge_requests(history, replica, &mut verdict);
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
            let not_promised = is_frozen_young(history, earlier, from, to) || is_frozen_without_fuse(history, earlier, from, to);
            overlaps.push(Overlap { from, to, not_promised, between: format!("{earlier:?} and {later:?}") });
        }
    }
    overlaps
}

/// The fuse is bound to the groups that the last renewal saw.
fn is_frozen_young(history: &History, life: &Life, from: Instant, to: Instant) -> bool {
    frozen(history, life, from, to).is_some_and(|since| since.since(life.first) < SEEN)
}

fn is_frozen_without_fuse(history: &History, life: &Life, from: Instant, to: Instant) -> bool {
    let said = |replica: &Replica| replica.name == life.replica && replica.lines.iter().any(|line| line.contains(NO_FUSE));
    frozen(history, life, from, to).is_some() && history.replicas.iter().any(said)
}

/// Since when init and elector of this life were frozen in this span of time.
fn frozen(history: &History, life: &Life, from: Instant, to: Instant) -> Option<Instant> {
    let place = Some(place_of(&life.replica));
    let mut frozen = history.faults_within(from - AFTERMATH, to);
    frozen.find(|span| span.fault == Fault::FreezeBoth && span.place == place).map(|span| span.from)
}

/// A lock that was not free where no stamps overlap shows a process that does not stamp.
fn judge_locks(history: &History, verdict: &mut Verdict) {
    for event in history.events.iter().filter(|event| event.what == "locked out") {
        verdict.locked_out += 1;
        let near = |overlap: &&Overlap| overlap.from <= event.at() + AFTERMATH && overlap.to + AFTERMATH >= event.at();
        if !verdict.overlaps.iter().any(|overlap| near(&overlap) && overlap.not_promised) {
            verdict.violations.push(format!("{} found the lock taken at {:?}: {}", event.replica, event.at(), event.more));
        }
    }
}

fn judge_tokens(lives: &[Life], verdict: &mut Verdict) {
    let number = |life: &Life| life.token.parse::<u128>().unwrap_or_default();
    for pair in lives.windows(2) {
        if let [earlier, later] = pair
            && number(later) <= number(earlier)
        {
            verdict.violations.push(format!("a token that does not rise: {earlier:?}, then {later:?}"));
        }
    }
}

/// A panic or a crash is no way to end. That PID 1 ends itself, so that the kernel kills the rest, is its last weapon.
fn judge_end(replica: &Replica, verdict: &mut Verdict) {
    verdict.weapons += usize::from(replica.code == Some(70));
    if let Some(code @ (78 | 101 | 132 | 134 | 135 | 136 | 139)) = replica.code {
        verdict.violations.push(format!("{} ended with {code}: {:?}", replica.name, replica.lines.last()));
    }
    if let Some(line) = replica.lines.iter().find(|line| line.contains("panicked")) {
        verdict.violations.push(format!("{}: {line}", replica.name));
    }
}

/// As they came in at its proxy.
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
