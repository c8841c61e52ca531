//! Judges a whole history: what must never happen, whatever the nemesis did.

use std::collections::{BTreeMap, BTreeSet};

use support::{Life, Verb};
use tenure::time::Instant;

use crate::{
    history::{History, Replica, text},
    hold, peer, writes,
};

/// Two terms whose workloads ran at once.
#[derive(Clone, Debug)]
pub(crate) struct Overlap {
    pub(crate) from: Instant,
    pub(crate) to: Instant,
    /// Why the promise did not cover it; none if it did.
    pub(crate) excuse: Option<Excuse>,
    pub(crate) between: String,
}

/// The cases that the promise does not cover.
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
        let faults: Vec<_> =
            history.faults_within(overlap.from.before(hold::AFTERMATH), overlap.to).map(|span| span.fault).collect();
        verdict.violations.push(format!("TWO AT ONCE for {:?}: {}; {faults:?}", overlap.to.since(overlap.from), overlap.between));
    }
    judge_slots(history, &mut verdict);
    hold::judge(history, &mut verdict);
    judge_locks(history, &mut verdict);
    judge_tokens(history, &mut verdict);
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
        for later in
            history.lives[index + 1..].iter().filter(|later| later.first <= earlier.last && excludes(history, earlier, later))
        {
            let (from, to) = (later.first, earlier.last.min(later.last));
            let excuse = excuse(history, earlier, later, to);
            overlaps.push(Overlap { from, to, excuse, between: format!("{earlier:?} and {later:?}") });
        }
    }
    overlaps
}

/// Returns whether the two must not run at once: lives of one replica, and those that are not known to have two Leases.
fn excludes(history: &History, one: &Life, other: &Life) -> bool {
    let leases = history.lease_of(one).zip(history.lease_of(other));
    one.replica == other.replica || leases.is_none_or(|(one, other)| one == other)
}

/// Where several may run at once, no more than that do.
fn judge_slots(history: &History, verdict: &mut Verdict) {
    let slots = usize::from(history.slots);
    for (index, later) in history.lives.iter().enumerate().filter(|_| slots > 1) {
        let runs = |earlier: &&Life| {
            let to = earlier.last.min(later.last);
            later.first <= earlier.last && excuse(history, earlier, later, to).is_none()
        };
        let others: Vec<&Life> = history.lives[..index].iter().filter(runs).collect();
        if others.len() >= slots {
            verdict.violations.push(format!("MORE THAN {slots} AT ONCE: {later:?} beside {others:?}"));
        }
    }
}

/// Why the promise does not cover that the earlier one was alive until `to`, while the later one was.
fn excuse(history: &History, earlier: &Life, later: &Life, to: Instant) -> Option<Excuse> {
    hold::excuse(history, earlier, later.first, to).or_else(|| peer::blame(history, earlier, later))
}

/// A lock that was taken although no stamps overlap reveals a process that does not stamp.
fn judge_locks(history: &History, verdict: &mut Verdict) {
    for event in history.events.iter().filter(|event| event.what == "locked out") {
        verdict.locked_out += 1;
        let at = event.at();
        let holder = history.lives.iter().rfind(|life| event.more["holder"] == *life.replica && life.first <= at);
        let later = history.lives.iter().find(|life| event.replica == life.replica && event.more["token"] == *life.token);
        let excuse = holder.zip(later).and_then(|(holder, later)| {
            let holder = Life { last: at, ..holder.clone() };
            excuse(history, &holder, later, at)
        });
        if excuse.is_none() {
            verdict.violations.push(format!("{} found the lock taken at {at:?}: {}", event.replica, event.more));
        }
    }
}

/// They rise under each Lease. client-go gives its workload no token.
fn judge_tokens(history: &History, verdict: &mut Verdict) {
    let mut last = BTreeMap::<Option<&str>, (&Life, u128)>::new();
    for life in &history.lives {
        let Ok(token) = life.token.parse::<u128>() else { continue };
        let lease = history.lease_of(life).filter(|_| history.slots > 1);
        if let Some((earlier, _)) = last.insert(lease, (life, token)).filter(|(_, before)| token <= *before) {
            verdict.violations.push(format!("a token that does not rise: {earlier:?}, then {life:?}"));
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
        let times = if request.is_nobody() { &["renewTime"][..] } else { &["renewTime", "acquireTime"] };
        if times.iter().any(|key| !has_six_digits(text(spec, key))) {
            wrong("wrote a time without six digits");
        }
        if !specs.insert((text(&request.body["metadata"], "name"), spec.to_string())) {
            wrong("wrote the same spec twice");
        }
        if request.is_release() {
            // A witness releases for the one that it names.
            let obituary = text(&request.body["metadata"]["annotations"], "tenure.dev/obituary").rsplit('_').nth(1);
            let of = obituary.unwrap_or(&replica.name);
            let dead = |life: &&Life| life.replica != of || life.first > request.at || life.last < request.at;
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
