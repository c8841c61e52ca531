//! What must hold, whatever happens.
//!
//! Owns the properties; sees everything, takes part in nothing. The first violation ends the run.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    fmt::Display,
};

use serde_json::Value;
use tenure::{
    election::writes::PAUSED,
    link::{Facts, Term},
    time::Instant,
};

use crate::{
    clock::{Ns, S},
    engine::{Child, Who},
    hygiene::Write,
    sights::Sights,
};

/// How many writes are remembered.
const WRITES: usize = 32;

/// uid, acquireTime and leaseTransitions of a term.
pub type Held = (String, String, i32);

/// What is known of a replica.
#[derive(Debug, Default)]
struct Replica {
    identity: String,
    /// D.
    duration: Ns,
    /// Since when it, its network and its hold have been without faults.
    trouble: Ns,
}

/// A process that runs as a leader.
#[derive(Debug)]
struct Running {
    /// Its token.
    token: String,
    /// The kernel kills it at H.
    covered: bool,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Judge {
    /// What each one has seen, where it counts.
    sights: Option<Sights>,
    /// Processes that run as leaders.
    alive: BTreeMap<(Who, i32), Running>,
    /// Whose term each token belongs to.
    tokens: BTreeMap<u64, Who>,
    /// The term that ran last.
    last: u64,
    /// Since when somebody has led.
    led: Option<Ns>,
    /// Who holds the Lease, by uid, name and acquireTime, and since which version.
    reign: (Option<[String; 3]>, u64),
    /// The token of the last term that init was told of.
    told: Option<(Who, Term, u64)>,
    /// S of the last extension that an elector sent to its init, and when it sent it.
    extended: Option<(Who, Term, Instant, Instant)>,
    /// uid, acquireTime and leaseTransitions of each one's last term.
    held: BTreeMap<Who, Held>,
    /// When each one's last term ended.
    ended: BTreeMap<Who, Ns>,
    /// When the latest writes were sent, by their versions.
    writes: VecDeque<(u64, Ns)>,
    /// Everybody who was ever asked to step down.
    asked: BTreeSet<String>,
    /// Since when the Lease has been as it is, apart from what does not matter to followers.
    since: Ns,
    /// What is known of each replica.
    replicas: Vec<Replica>,
    /// Only the kernel watches over these: an overlap with a process that it does not know is not covered.
    unguarded: BTreeMap<Who, Ns>,
    /// These nodes are suspended, or just waking.
    suspended: BTreeMap<Who, Ns>,
    /// An init that hangs permanently: what it runs does not count.
    hung: Option<Who>,
    /// The violation.
    wrong: Option<String>,
    /// Terms that init was told of.
    pub terms: u64,
    /// Terms under which something ran.
    pub runs: u64,
    /// Overlaps that the law does not cover.
    pub exposed: u64,
}

impl Judge {
    /// Who takes the Lease need not wait for a term that it has never seen, if that is gone together with its record.
    pub fn excuses_strangers(&mut self) {
        self.sights = Some(Sights::default());
    }

    /// An elector of `who` takes this version in, from a reply or the watch.
    pub fn sees(&mut self, who: Who, lease: &Value, is_reply: bool) {
        if let Some(sights) = &mut self.sights {
            sights.take_in(who, lease, is_reply);
        }
    }

    /// A process runs as the leader of `token`'s term; `covered` if the kernel kills it at H.
    pub fn runs(&mut self, Child { who, pid }: Child, token: &str, covered: bool, now: Ns) {
        let Ok(number) = token.parse::<u64>() else { return self.fail(format!("{token:?} is no token")) };
        let exposed = |other: &Who, running: &Running| {
            // Whoever began later is the one who may not have known of the other.
            let (later, earlier) = if is_later(&running.token, number) { (*other, who) } else { (who, *other) };
            !running.covered && is_within(&self.unguarded, other, now)
                || is_within(&self.suspended, other, now)
                || is_stranger(&self.sights, later, self.held.get(&earlier))
        };
        let others = || self.alive.iter().filter(|((other, _), _)| *other != who);
        // A stopped node makes nothing start that was not there before.
        let mine = !covered && is_within(&self.unguarded, &who, now);
        if mine || others().any(|((other, _), running)| exposed(other, running)) {
            self.exposed += u64::from(others().next().is_some());
        }
        let running = Running { token: token.into(), covered };
        if mine {
            self.alive.insert((who, pid), running);
            return;
        }
        let other = others().find(|((other, _), running)| !exposed(other, running));
        if let Some(((other, other_pid), Running { token: theirs, .. })) = other {
            let what =
                format!("two at once: {who} runs as pid {pid} under {token}, {other} still as pid {other_pid} under {theirs}");
            return self.fail(what);
        }
        match self.tokens.get(&number) {
            Some(owner) if *owner != who => return self.fail(format!("{who} runs under {token}, the token of {owner}")),
            Some(_) if number < self.last && !self.last_is_stranger_to(who) => {
                return self.fail(format!("{who} runs under {token} after {}", self.last));
            }
            Some(_) => {}
            None => {
                if number <= self.last && !self.last_is_stranger_to(who) {
                    return self.fail(format!("{who} begins to run under {token} after {}", self.last));
                }
                self.tokens.insert(number, who);
                self.runs += 1;
                self.last = self.last.max(number);
            }
        }
        self.led = Some(now);
        self.alive.insert((who, pid), running);
    }

    /// Whether whose token is the greatest cannot know of the term of `who`, which goes on.
    fn last_is_stranger_to(&self, who: Who) -> bool {
        self.tokens.get(&self.last).is_some_and(|last| is_stranger(&self.sights, *last, self.held.get(&who)))
    }

    /// A process takes on the lead that it was told of. If its node was suspended in between, it does so on waking, before it is
    /// killed.
    pub fn obeys(&mut self, child: Child, token: &str, covered: bool, now: Ns) {
        if self.suspended.get(&child.who).is_none_or(|until| now > *until) {
            return self.runs(child, token, covered, now);
        }
        self.exposed += u64::from(self.alive.keys().any(|(other, _)| *other != child.who));
        self.alive.insert((child.who, child.pid), Running { token: token.into(), covered });
    }

    /// The kernel kills this process at H from now on.
    pub fn covers(&mut self, who: Who, pid: i32) {
        if let Some(running) = self.alive.get_mut(&(who, pid)) {
            running.covered = true;
        }
    }

    /// Until then what `who` runs is suspended, or being killed.
    pub fn suspends(&mut self, who: Who, until: Ns) {
        self.suspended.insert(who, until);
    }

    /// That process is dead.
    pub fn gone(&mut self, who: Who, pid: i32) {
        self.alive.remove(&(who, pid));
    }

    /// Whether somebody leads now whose init is able to do its work.
    pub fn is_led(&self) -> bool {
        self.alive.keys().any(|(who, _)| Some(*who) != self.hung)
    }

    /// The faults are long over: an overlap that was excused when it began must be over too.
    pub fn ends(&mut self, now: Ns) {
        let excused =
            |who: &Who| self.hung == Some(*who) || is_within(&self.unguarded, who, now) || is_within(&self.suspended, who, now);
        let leaders: BTreeSet<Who> = self.alive.keys().map(|(who, _)| *who).filter(|who| !excused(who)).collect();
        if let [one, other, ..] = *leaders.into_iter().collect::<Vec<Who>>() {
            self.fail(format!("two at once: {one} and {other} still run long after the last fault"));
        }
    }

    /// Until then an overlap with `who` is not covered: init is stopped, and so is whoever should stand in.
    pub fn exposes(&mut self, who: Who, until: Ns) {
        let end = self.unguarded.entry(who).or_default();
        *end = until.max(*end);
    }

    /// The init of `who` hangs permanently.
    pub fn hangs(&mut self, who: Who) {
        self.hung = Some(who);
    }

    /// A replica with this D and identity starts, without faults from `at` on.
    pub fn begins(&mut self, who: Who, identity: &str, duration: Ns, at: Ns) {
        if self.replicas.len() <= who.replica {
            self.replicas.resize_with(who.replica + 1, Replica::default);
        }
        self.replicas[who.replica] = Replica { identity: identity.into(), duration, trouble: at };
    }

    /// This replica, its network or its hold has a fault until then.
    pub fn trouble(&mut self, replica: usize, until: Ns) {
        if let Some(replica) = self.replicas.get_mut(replica) {
            replica.trouble = replica.trouble.max(until);
        }
    }

    /// Everybody has a fault until then.
    pub fn trouble_for_all(&mut self, until: Ns) {
        (0..self.replicas.len()).for_each(|replica| self.trouble(replica, until));
    }

    /// Somebody is asked to step down.
    pub fn asks(&mut self, identity: &str) {
        if !self.asked.contains(identity) {
            self.asked.insert(identity.into());
        }
    }

    /// Whether anything of `who` runs.
    pub fn runs_for(&self, who: Who) -> bool {
        self.alive.keys().any(|(other, _)| *other == who)
    }

    /// Who leads now.
    pub fn leader(&self) -> Option<Who> {
        self.alive.keys().next().map(|(who, _)| *who)
    }

    /// `who` has changed the Lease.
    pub fn changed(&mut self, who: Who, me: &str, before: Option<&Value>, after: &Value, now: Ns) {
        let released = after["spec"]["holderIdentity"].as_str().is_none_or(str::is_empty);
        if released && let Some(((_, pid), Running { token, .. })) = self.alive.iter().find(|((other, _), _)| *other == who) {
            return self.fail(format!("{who} has released the Lease while pid {pid} runs under {token}"));
        }
        // A client-go replica may write anything.
        let Some(Replica { duration, .. }) = self.replicas.get(who.replica) else { return };
        let write = Write {
            me,
            duration: *duration,
            old: before.map(|before| (before, now.saturating_sub(self.since))),
            new: after,
            held: self.held.get(&who),
        };
        if let Some(wrong) = write.wrong() {
            self.fail(format!("{who} has written a record that {wrong}"));
        }
    }

    /// The Lease is now `lease`, and was `before`.
    pub fn stands(&mut self, before: Option<&Value>, lease: Option<&Value>, version: u64, now: Ns) {
        if let Some(before) = before {
            self.left_alone(before, now);
        }
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let reign = lease.map(|lease| {
            let spec = &lease["spec"];
            [text(&lease["metadata"]["uid"]), text(&spec["holderIdentity"]), text(&spec["acquireTime"])]
        });
        if reign != self.reign.0 {
            self.reign = (reign, version);
        }
        let same = before.zip(lease).is_some_and(|(before, lease)| before["spec"] == lease["spec"]);
        if !same {
            self.since = now;
        }
    }

    /// A Lease that nobody renewed was left alone until now: was there really nobody to take it? (law 16)
    fn left_alone(&mut self, lease: &Value, now: Ns) {
        let alone = now.saturating_sub(self.since);
        let duration = lease["spec"]["leaseDurationSeconds"].as_u64().unwrap_or_default() * S;
        let closed = lease["metadata"]["annotations"][PAUSED] == "true" || !lease["metadata"]["deletionTimestamp"].is_null();
        if alone < duration || closed {
            return;
        }
        let holder = lease["spec"]["holderIdentity"].as_str().unwrap_or_default();
        let (bound, since) = (duration.max(2 * S), self.since);
        let idle = self.replicas.iter().find(|replica| {
            // The wait, the time that a releaser sits out, reads and attempts.
            let bound = (bound + replica.duration) / 9 * 10 + replica.duration / 2 + 5 * S;
            replica.identity != holder && replica.trouble < since && alone > bound
        });
        if let Some(Replica { identity, .. }) = idle {
            let what = format!(
                "{identity} has left the Lease of {holder:?} alone for {} ms, after {} s",
                alone / 1_000_000,
                duration / S
            );
            self.fail(what);
        }
    }

    /// `who` has deleted the Lease that was `old`.
    pub fn deleted(&mut self, who: Who, old: &Value) {
        if old["spec"]["holderIdentity"].as_str().is_some_and(|holder| !holder.is_empty()) {
            self.fail(format!("{who} has deleted a Lease that is held: {}", old["spec"]));
        }
    }

    /// An elector has begun a term.
    pub fn told(&mut self, who: Who, term: Term, facts: &Facts) {
        self.terms += 1;
        self.held.insert(who, (facts.uid.clone(), facts.acquired_at.clone(), facts.transitions));
        let token = facts.token.parse().ok();
        self.told = token.map(|token| (who, term, token));
        let sent = self.writes.iter().find(|(version, _)| Some(*version) == token).map(|(_, sent)| *sent);
        if let (Some(sent), Some(ended)) = (sent, self.ended.get(&who))
            && sent < *ended
        {
            self.fail(format!("{who} begins term {} by a write that it sent before its last term was over", term.0));
        }
    }

    /// An elector has ended a term.
    pub fn ended(&mut self, who: Who, now: Ns) {
        self.ended.insert(who, now);
    }

    /// The write of this version was sent then.
    pub fn wrote(&mut self, version: u64, sent: Ns) {
        self.writes.push_back((version, sent));
        if self.writes.len() > WRITES {
            self.writes.pop_front();
        }
    }

    /// An elector ends a term because the Lease is another's, or nobody's.
    pub fn lost(&mut self, who: Who, term: Term) {
        let told = self.told.filter(|(whose, which, _)| (*whose, *which) == (who, term));
        if let Some((_, _, token)) = told.filter(|(_, _, token)| self.reign.1 <= *token) {
            self.fail(format!("{who} gives term {} up as lost, though nobody has touched its hold since {token}", term.0));
        }
    }

    /// An elector ends a term because it was asked to.
    pub fn steps_down(&mut self, who: Who, identity: &str) {
        if !self.asked.contains(identity) {
            self.fail(format!("{who} steps down, though nobody asked it to"));
        }
    }

    /// An elector has sent an extension, at `at` on its node's clock.
    pub fn extended(&mut self, who: Who, term: Term, soft: Instant, at: Instant) {
        self.extended = Some((who, term, soft, at));
    }

    /// An elector has announced that the deadlines move back.
    pub fn shortened(&mut self, who: Who, term: Term) {
        self.extended.take_if(|(whose, which, ..)| (*whose, *which) == (who, term));
    }

    /// Init has begun a stop because S had passed at `at`. An extension that was sent later was too late.
    pub fn expired(&mut self, who: Who, term: Term, at: Instant) {
        let mine = |(whose, which, ..): &(Who, Term, Instant, Instant)| (*whose, *which) == (who, term);
        let extended = self.extended.filter(mine).filter(|(_, _, soft, sent)| *soft > at && *sent <= at);
        if let Some((_, _, soft, _)) = extended {
            self.fail(format!("{who} stops term {} as expired at {at:?}, though its elector extended it to {soft:?}", term.0));
        }
    }

    /// Init has begun a stop because S has passed.
    pub fn expired_in_peace(&mut self, who: Who, term: Term, now: Ns) {
        let Replica { duration, trouble, .. } = &self.replicas[who.replica];
        if trouble.saturating_add(*duration * 2) < now {
            let since = trouble / S;
            self.fail(format!("{who} lets term {} expire, though nothing is wrong with it since {since} s", term.0));
        }
    }

    /// Records a violation.
    pub fn fail(&mut self, what: impl Display) {
        self.wrong.get_or_insert_with(|| what.to_string());
    }

    /// The violation.
    pub fn verdict(&self) -> Option<&str> {
        self.wrong.as_deref()
    }
}

/// Whether this token is that of a later term.
fn is_later(token: &str, than: u64) -> bool {
    token.parse::<u64>().is_ok_and(|token| token > than)
}

/// Whether `who` cannot know of the term that another one holds, and that counts.
fn is_stranger(sights: &Option<Sights>, who: Who, held: Option<&Held>) -> bool {
    sights.as_ref().zip(held).is_some_and(|(sights, (uid, acquired, _))| sights.is_stranger(who, uid, acquired))
}

/// Whether the span of `who` lasts at `now`.
fn is_within(spans: &BTreeMap<Who, Ns>, who: &Who, now: Ns) -> bool {
    spans.get(who).is_some_and(|until| now <= *until)
}
