//! The judge: it checks what must hold in every run.
//!
//! Owns the properties; sees everything, takes part in nothing. Two terms that run at one instant, of two replicas or of one, are a
//! violation unless one of [`Uncovered`] was injected into that very term. The first violation ends the run.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    fmt::Display,
};

use serde_json::Value;
use tenure::{
    link::{Reason, Term},
    slot::Slot,
    time::Instant,
};
use tenure_world::{Observer, Wrong};

use crate::{
    clock::Ns,
    engine::{Child, Who},
    lawful::Lawful,
    sights::Sights,
    tally::Armed,
};

mod conformity;

/// uid, acquireTime and leaseTransitions of a term.
pub type Held = (String, String, i32);

/// Faults that the law says it does not cover.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Uncovered {
    /// Init is stopped, the elector is stopped or dead, and the kernel's fuse does not know the process.
    Unguarded,
    /// The node was suspended, and its workload runs on until it is killed.
    Suspended,
    /// A client-go that released early, or created or took a free Lease and ran at once.
    ClientGo,
    /// Whoever took the Lease never saw the term, which was gone together with its record.
    Unseen,
    /// The memory of a replica was restored beside it.
    Copied,
}

/// The judge's knowledge of the Lease of one slot.
#[derive(Debug, Default)]
struct History {
    /// The greatest token under which anything ran.
    last: u64,
    /// Who holds the Lease, by uid, name and acquireTime, and since which version.
    reign: (Option<[String; 3]>, u64),
    /// Since when.
    reigns: Ns,
    /// Since when the Lease has been as it is, apart from what does not matter to followers.
    since: Ns,
    /// The longest duration that it has had: who has seen it waits for so long, once the Lease does not name its holder any more.
    longest: Ns,
}

/// The judge's knowledge of a replica.
#[derive(Debug, Default)]
struct Replica {
    identity: String,
    /// D.
    duration: Ns,
    candidate_wait: Ns,
    /// For a task: whether it waits for the interval of a run that crashed, and whether its own count if they fail.
    keeps: Option<(bool, bool)>,
    /// Since when it, its network and its hold have been without faults.
    trouble: Ns,
    /// Until when it may leave the Lease to others because its terms failed.
    backs_off: Ns,
    /// Its priority, and how long it waits before it asks a holder of a lower one to hand over.
    rank: (i8, Option<Ns>),
}

/// A process that runs as a leader.
#[derive(Clone, Copy, Debug)]
struct Running {
    token: u64,
    /// The kernel kills it at H.
    covered: bool,
    /// A life that cannot know of it has taken the Lease beside it: what follows from that is not covered either.
    unseen: bool,
}

#[derive(Debug, Default)]
pub struct Judge {
    /// There are several Leases.
    pub is_pool: bool,
    /// Nobody waits for what is free, by the settings of this world.
    pub opts_out: bool,
    /// Wall clocks jump, or people write a replica's name with the time of another clock. By that a term looks as long as one that
    /// makes failures forgotten.
    pub walls_differ: bool,
    /// The interval of a task, where all wall clocks show the same.
    pub interval: Option<Ns>,
    /// Each term is a run of a task.
    pub is_task: bool,
    /// The task fires each minute.
    pub is_scheduled: bool,
    /// The fire that each token's run is for, and the token under which each fire was run, unless that was given back undone.
    fires: BTreeMap<u64, String>,
    ran: BTreeMap<String, u64>,
    /// The longest time for which an unready standby leaves the Lease to others.
    pub wait_limit: Ns,
    /// The longest D, interval or creation wait of this world: so long what nobody gave back may be left alone.
    pub longest: Ns,
    /// When the request was sent that is carried out now.
    pub sent: Ns,
    /// How long after a request was made its first byte leaves at the latest. An interval counts from the former.
    pub latest_byte: Ns,
    /// The law of each Lease, which judges every step.
    pub law: Option<Box<Lawful>>,
    /// The terms that each one has seen, where that counts.
    pub sights: Option<Sights>,
    /// Processes that run as leaders.
    alive: BTreeMap<(Who, i32), Running>,
    /// Whose term each token belongs to.
    tokens: BTreeMap<u64, Who>,
    /// When the write was sent by which the latest run began, and whether another is to wait for its interval however it ends.
    began: Option<(Ns, bool)>,
    /// That run has ended by itself with success, or at its limit.
    is_done: bool,
    /// The histories of the Leases, by slot.
    histories: BTreeMap<Slot, History>,
    /// The versions of the Leases of other slots than the first.
    others: BTreeMap<u64, Slot>,
    /// The last term that each init was told of, and its token.
    told: BTreeMap<Who, (Term, u64)>,
    /// S of the last extension that each elector sent to its init, and when it sent it.
    extended: BTreeMap<Who, (Term, Instant, Instant)>,
    /// uid, acquireTime and leaseTransitions of each one's last term in each slot.
    held: BTreeMap<(Who, Slot), Held>,
    /// When each one's last term ended.
    ended: BTreeMap<Who, Ns>,
    /// Since when the workload of each one has been ready, as far as its elector knows.
    ready: BTreeMap<Who, Ns>,
    /// Why each one's elector ends its term.
    ending: BTreeMap<Who, Reason>,
    /// The last failed term of each one: its number among those in a row, and until when the others go first.
    failed: BTreeMap<Who, (Term, u32, Ns)>,
    /// Until when the others go first, after a term that this one gave up. Dropped once another has held the Lease.
    given_up: BTreeMap<Who, Ns>,
    /// Everybody who was ever named as the next leader.
    named: BTreeSet<String>,
    /// When the latest writes were sent, by their versions.
    writes: VecDeque<(u64, Ns)>,
    /// Everybody who was ever asked to step down.
    asked: BTreeSet<String>,
    /// The judge's knowledge of each replica.
    replicas: Vec<Replica>,
    /// Until when what was injected into a replica counts.
    uncovered: BTreeMap<(Uncovered, Who), Ns>,
    /// The original of each copy.
    copies: BTreeMap<Who, Who>,
    /// An init that hangs permanently: what it runs does not count.
    hung: Option<Who>,
    /// The violation.
    wrong: Option<String>,
    /// Terms that init was told of.
    pub terms: u64,
    /// Terms under which something ran.
    pub runs: u64,
    /// How often each judge had something to judge.
    pub armed: Armed,
    /// Overlaps that the law does not cover, by their causes.
    pub exposed: BTreeMap<Uncovered, u64>,
}

/// Who runs what.
impl Judge {
    /// An elector of `who` takes this version in.
    pub fn sees(&mut self, who: Who, lease: &Value) {
        if let Some(sights) = &mut self.sights {
            sights.take_in(who, lease);
        }
    }

    /// Tells the law what happens.
    pub fn lawful(&mut self, tells: impl FnOnce(&mut Lawful)) {
        if let Some(law) = &mut self.law {
            tells(law);
        }
    }

    /// Until then this is true of `who`.
    pub fn injects(&mut self, cause: Uncovered, who: Who, until: Ns) {
        match cause {
            Uncovered::Unguarded => self.lawful(|law| law.ends("nothing but the fuse is left")),
            Uncovered::Suspended => self.lawful(|law| law.ends("a node is suspended")),
            Uncovered::Copied => self.lawful(|law| law.ends("a memory is restored")),
            Uncovered::ClientGo | Uncovered::Unseen => {}
        }
        let end = self.uncovered.entry((cause, who)).or_default();
        *end = until.max(*end);
    }

    /// A process that should be frozen runs without a Lease: it may do what a leader does.
    pub fn strays(&mut self, Child { who, pid }: Child, now: Ns) {
        let new = Running { token: 0, covered: false, unseen: false };
        let others = self.alive.iter().filter(|((other, _), _)| *other != who);
        let leader =
            others.map(|((other, _), theirs)| (*other, *theirs)).find(|other| self.excuse((who, new), *other, now).is_none());
        if let Some((other, Running { token, .. })) = leader {
            return self.fail(format!("two at once: {who} runs as pid {pid} without a Lease, {other} under {token}"));
        }
        self.alive.insert((who, pid), new);
    }

    /// Why the law does not cover that these two run at once.
    fn excuse(&self, (who, new): (Who, Running), (other, theirs): (Who, Running), now: Ns) -> Option<Uncovered> {
        let unguarded = |who, running: Running| !running.covered && self.is(Uncovered::Unguarded, who, now);
        if unguarded(who, new) || unguarded(other, theirs) {
            return Some(Uncovered::Unguarded);
        }
        for cause in [Uncovered::Suspended, Uncovered::ClientGo, Uncovered::Copied] {
            if self.is(cause, who, now) || self.is(cause, other, now) {
                return Some(cause);
            }
        }
        // Whoever began later is the one who may not have known of the other.
        let (later, earlier) = if theirs.token > new.token { (other, who) } else { (who, other) };
        let slot = self.slot_of(theirs.token.min(new.token));
        let held = self.sights.as_ref().zip(self.held.get(&(earlier, slot)));
        let unseen = held.is_some_and(|(sights, (uid, acquired, _))| sights.is_stranger(later, uid, acquired));
        (later != earlier && (unseen || theirs.unseen)).then_some(Uncovered::Unseen)
    }

    fn is(&self, cause: Uncovered, who: Who, now: Ns) -> bool {
        self.uncovered.get(&(cause, who)).is_some_and(|until| now <= *until)
    }

    /// `copy` is `original`, restored: it runs what that one runs, until one of them finds that it has lost the Lease.
    pub fn copied(&mut self, original: Who, copy: Who, until: Ns) {
        self.began = None;
        for who in [original, copy] {
            self.injects(Uncovered::Copied, who, until);
        }
        let original = *self.copies.get(&original).unwrap_or(&original);
        self.copies.insert(copy, original);
        let held: Vec<_> = self.held.iter().filter(|((who, _), _)| *who == original).collect();
        let held: Vec<_> = held.into_iter().map(|((_, slot), held)| ((copy, *slot), held.clone())).collect();
        self.held.extend(held);
        if let Some(since) = self.ready.get(&original).copied() {
            self.ready.insert(copy, since);
        }
        let running: Vec<_> = self.alive.iter().filter(|((who, _), _)| *who == original).collect();
        let twins: Vec<_> = running.into_iter().map(|((_, pid), running)| ((copy, *pid), *running)).collect();
        self.alive.extend(twins);
    }

    /// `who` may take a copy's write for its own: by a new elector, until that has proved one of its own (law 6), or in a release.
    pub fn forgets(&mut self, who: Who, until: Ns) {
        let copies: BTreeSet<Who> = self.copies.iter().flat_map(|(copy, original)| [*copy, *original]).collect();
        if copies.contains(&who) {
            copies.into_iter().for_each(|who| self.injects(Uncovered::Copied, who, until));
        }
    }

    /// The slots that somebody leads now whose init is able to do its work.
    pub fn led(&self) -> impl Iterator<Item = Slot> {
        let leaders = self.alive.iter().filter(|((who, _), running)| Some(*who) != self.hung && running.token > 0);
        leaders.map(|(_, running)| self.slot_of(running.token))
    }

    /// How many inits hang permanently.
    pub fn hanging(&self) -> usize {
        self.hung.iter().count()
    }

    /// When the write was sent that has this version, if it is one of the latest.
    fn sent_as(&self, version: u64) -> Option<Ns> {
        self.writes.iter().find(|(latest, _)| *latest == version).map(|(_, sent)| *sent)
    }

    /// Returns the slot of the Lease whose version this token is.
    fn slot_of(&self, token: u64) -> Slot {
        self.others.get(&token).copied().unwrap_or_default()
    }

    /// An overlap that was excused when it began must be over once what excused it is.
    pub fn settles(&mut self, now: Ns) {
        let excused = |who: &Who, running: &Running| {
            let causes = [Uncovered::Unguarded, Uncovered::Suspended, Uncovered::ClientGo, Uncovered::Copied];
            self.hung == Some(*who) || running.unseen || causes.into_iter().any(|cause| self.is(cause, *who, now))
        };
        let leaders = self.alive.iter().filter(|((who, _), running)| !excused(who, running));
        let leaders: BTreeSet<_> = leaders.map(|((who, _), running)| (self.slot_of(running.token), *who)).collect();
        let leaders: Vec<_> = leaders.into_iter().collect();
        self.armed.arm_if(!self.exposed.is_empty(), "an excused overlap ends");
        if let Some([(_, one), (_, other)]) = leaders.array_windows().find(|[(slot, _), (next, _)]| slot == next) {
            self.fail(format!("two at once: {one} and {other} still run, and what excused it is over"));
        }
    }

    /// The init of `who` hangs permanently.
    pub fn hangs(&mut self, who: Who) {
        self.hung = Some(who);
    }

    pub fn runs_for(&self, who: Who) -> bool {
        self.alive.keys().any(|(other, _)| *other == who)
    }

    /// Who leads now.
    pub fn leader(&self) -> Option<Who> {
        self.alive.keys().next().map(|(who, _)| *who)
    }

    /// Counts that this judge is armed, and records a violation if it is one.
    pub fn judges(&mut self, judge: &'static str, is_wrong: bool, what: impl FnOnce() -> String) {
        self.armed.arm(judge);
        if is_wrong {
            self.fail(what());
        }
    }

    /// Records a violation.
    pub fn fail(&mut self, what: impl Display) {
        self.wrong.get_or_insert_with(|| what.to_string());
    }

    /// The violation.
    pub fn verdict(&self) -> Option<&str> {
        self.wrong.as_deref().or_else(|| self.law.as_ref()?.wrong.as_deref())
    }
}

impl Observer for Judge {
    fn runs(&mut self, Child { who, pid }: Child, token: u64, covered: bool, now: Ns) {
        let (new, slot) = (Running { token, covered, unseen: false }, self.slot_of(token));
        self.lawful(|law| law.runs(who, slot, token));
        let conflicts =
            |other: Who, theirs: u64| (other, theirs) != (who, token) && (other == who || self.slot_of(theirs) == slot);
        let others = self.alive.iter().map(|(child, running)| (*child, *running));
        let others: Vec<_> = others.filter(|((other, _), theirs)| conflicts(*other, theirs.token)).collect();
        for (other, theirs) in others {
            let Some(cause) = self.excuse((who, new), (other.0, theirs), now) else {
                let what = format!(
                    "two at once: {who} runs as pid {pid} under {token}, {} still as pid {} under {}",
                    other.0, other.1, theirs.token
                );
                return self.fail(what);
            };
            *self.exposed.entry(cause).or_default() += 1;
            if let Some(running) = self.alive.get_mut(&other) {
                running.unseen |= cause == Uncovered::Unseen;
            }
        }
        self.alive.insert((who, pid), new);
        let owner = *self.copies.get(&who).unwrap_or(&who);
        // A stopped node makes nothing start that was not there before.
        if !covered && self.is(Uncovered::Unguarded, who, now) {
            return;
        }
        let last = self.histories.entry(slot).or_default().last;
        let excused =
            self.sights.is_some() || [Uncovered::Suspended, Uncovered::Copied].into_iter().any(|cause| self.is(cause, who, now));
        let is_handed = token > last && self.tokens.get(&last).is_some_and(|before| *before != owner);
        self.armed.arm_if(is_handed, "two at once");
        match self.tokens.insert(token, owner) {
            Some(before) => {
                let wrong = || format!("{who} runs under {token}, the token of {before}, after {last}");
                self.judges("a token is used again by its term", before != owner || token < last && !excused, wrong);
            }
            None => {
                if !excused {
                    let wrong = || format!("{who} begins to run under {token} after {last}");
                    self.judges("a token rises", token <= last, wrong);
                }
                self.runs += 1;
                self.histories.entry(slot).or_default().last = last.max(token);
            }
        }
    }

    fn begins_run(&mut self, who: Who, token: u64) {
        self.runs_a_fire(who, token);
        let (Some(interval), Some(replica)) = (self.interval, self.replicas.get(who.replica)) else { return };
        let (_, rests) = replica.keeps.unwrap_or_default();
        // One that does not wait after a crash may take the Lease, fail before its run begins, and release it for the others.
        let waits = self.replicas.iter().all(|replica| replica.keeps.is_some_and(|(waits, _)| waits));
        let sent = self.sent_as(token);
        let before = std::mem::replace(&mut self.began, sent.map(|sent| (sent, rests)));
        self.is_done = false;
        if let (Some(sent), Some((before, true))) = (sent, before)
            && waits
        {
            let wrong = || format!("{who} begins a run {} ms after the last one began", (sent - before) / 1_000_000);
            self.judges("a run waits for the interval", sent + self.latest_byte < before + interval / 10 * 9, wrong);
        }
    }

    fn gone(&mut self, Child { who, pid }: Child) {
        self.alive.remove(&(who, pid));
        if !self.runs_for(who) {
            self.lawful(|law| law.stops(who));
        }
    }

    fn covers(&mut self, Child { who, pid }: Child) {
        if let Some(running) = self.alive.get_mut(&(who, pid)) {
            running.covered = true;
        }
    }

    fn fail(&mut self, _: Wrong, what: String) {
        self.fail(what);
    }
}
