//! The judge: it checks what must hold in every state.
//!
//! Owns the properties; sees everything, takes part in nothing. The first violation ends the branch.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use serde_json::Value;
use tenure::{apiserver::register::Change, slot::Slot};
use tenure_world::{Child, Observer, Who, Wrong, lawful::Lawful};

use crate::{
    clock::{Ns, S},
    digest::Aside,
    register::name_of,
};

/// So long after a replica was restored beside itself, only one of the two may lead: neither knew more than its last write.
const PARTED: Ns = 7 * S;

/// A bit for each transition of the law that some schedule of some family has taken.
pub static TAKEN: AtomicU64 = AtomicU64::new(0);

#[derive(Clone, Debug, Default, Hash)]
pub struct Judge {
    /// The leaders: each process, and its token.
    alive: Vec<(Who, i32, u64)>,
    /// Since when a replica is there twice, restored from its own memory.
    copied: Option<Ns>,
    /// How many there are.
    slots: u8,
    /// Versions of the Leases of other slots than the first.
    others: BTreeMap<u64, Slot>,
    /// The term that ran last in each slot.
    last: BTreeMap<Slot, (Who, u64)>,
    /// When all slots were last led.
    led: Ns,
    /// Terms under which something ran.
    pub terms: u32,
    /// The Lease was given back.
    pub releases: u32,
    /// The priorities of the replicas.
    priorities: Vec<i8>,
    /// A standby has asked the leader to hand over.
    pub has_asked: bool,
    /// The law of each Lease, which judges every step. It follows from the path, so that states which merge keep one of their laws.
    pub law: Aside<Option<Arc<Lawful>>>,
    wrong: Option<(Wrong, String)>,
}

impl Judge {
    /// Returns a judge of so many slots, and of replicas with these priorities.
    pub fn of(slots: u8, priorities: Vec<i8>) -> Self {
        Self { slots, priorities, ..Self::default() }
    }

    /// Tells the law what happens.
    pub fn lawful<R: Default>(&mut self, tells: impl FnOnce(&mut Lawful) -> R) -> R {
        let Some(law) = &mut self.law.0 else { return R::default() };
        let law = Arc::make_mut(law);
        let told = tells(law);
        if TAKEN.load(Relaxed) & law.taken != law.taken {
            TAKEN.fetch_or(law.taken, Relaxed);
        }
        if let Some(wrong) = law.wrong.clone() {
            self.fail(Wrong::Unlawful, wrong);
        }
        told
    }

    /// A Lease is changed, by whomever: what is stored may be a term's token.
    pub fn changed(&mut self, change: &Change) {
        let lease = change.after.as_deref().or(change.before.as_deref()).unwrap_or(&Value::Null);
        let slot = (1..self.slots).map(Slot).find(|slot| lease["metadata"]["name"] == name_of(*slot));
        self.others.extend(slot.filter(|_| change.after.is_some()).map(|slot| (change.version, slot)));
        self.lawful(|law| law.stands(slot.unwrap_or_default(), change.after.as_deref(), change.version));
    }

    fn slot_of(&self, token: u64) -> Slot {
        self.others.get(&token).copied().unwrap_or_default()
    }

    /// `copy` is restored from the memory of `original`: both lead, until one of them has lost the Lease.
    pub fn copies(&mut self, original: Who, copy: Who, now: Ns) {
        let running: Vec<_> = self.alive.iter().filter(|(who, ..)| *who == original).copied().collect();
        self.alive.extend(running.into_iter().map(|(_, pid, token)| (copy, pid, token)));
        self.copied = Some(now);
        self.lawful(|law| law.ends("a memory is restored"));
    }

    pub fn is_leading(&self, who: Who) -> bool {
        self.alive.iter().any(|(other, ..)| *other == who)
    }

    pub fn is_led(&self) -> bool {
        let is_led = |slot| self.alive.iter().any(|(_, _, token)| *token > 0 && self.slot_of(*token) == slot);
        (0..self.slots).map(Slot).all(is_led)
    }

    /// `who` has cleared the holder.
    pub fn released(&mut self, who: Who) {
        self.releases += 1;
        if self.is_leading(who) {
            self.fail(Wrong::Release, format!("{who} has released what it still runs on"));
        }
    }

    /// `who` asks `leader` to hand over to it.
    pub fn asks(&mut self, who: Who, is_ready: bool, leader: &str) {
        self.has_asked = true;
        let of = |replica: &usize| leader.starts_with(&format!("r{replica}."));
        let leaders = (0..self.priorities.len()).find(of).map(|replica| self.priorities[replica]);
        if !is_ready || leaders.is_some_and(|leaders| leaders >= self.priorities[who.replica]) {
            self.fail(Wrong::Asked, format!("{who} asks {leader} to hand over; ready: {is_ready}, its priority: {leaders:?}"));
        }
    }

    /// Time has passed.
    pub fn passes(&mut self, now: Ns) {
        if self.is_led() {
            self.led = now;
        }
        if self.copied.take_if(|since| *since + PARTED < now).is_some()
            && let Some((one, two)) = self.alive.iter().zip(self.alive.iter().skip(1)).find(|(one, two)| one.0 != two.0)
        {
            let what = format!("{} and {} lead long after one was restored from the other's memory", one.0, two.0);
            self.fail(Wrong::Overlap, what);
        }
    }

    /// When somebody last led each slot.
    pub const fn led(&self) -> Ns {
        self.led
    }

    /// The violation.
    pub fn wrong(&self) -> Option<Wrong> {
        self.wrong.as_ref().map(|(wrong, _)| *wrong)
    }

    /// The violation in words.
    pub fn verdict(&self) -> Option<&str> {
        self.wrong.as_ref().map(|(_, what)| what.as_str())
    }
}

impl Observer for Judge {
    /// Under 0 without a Lease.
    fn runs(&mut self, Child { who, pid }: Child, token: u64, _: bool, _: Ns) {
        let slot = self.slot_of(token);
        if token > 0 {
            self.lawful(|law| law.runs(who, slot, token));
        }
        let conflicts =
            |other: Who, theirs: u64| (other, theirs) != (who, token) && (other == who || self.slot_of(theirs) == slot);
        let other = self.alive.iter().find(|(other, _, theirs)| conflicts(*other, *theirs)).copied();
        if let Some((other, other_pid, theirs)) = other.filter(|_| self.copied.is_none()) {
            let what = format!("{who} leads as pid {pid} under {token}, {other} still does as pid {other_pid} under {theirs}");
            return self.fail(Wrong::Overlap, what);
        }
        let last = self.last.get(&slot).copied();
        if last != Some((who, token)) {
            if let Some((before, last)) = last.filter(|(_, last)| token <= *last && token > 0 && self.copied.is_none()) {
                return self.fail(Wrong::Token, format!("{who} leads under {token} after {before} did under {last}"));
            }
            if token > 0 {
                self.terms += 1;
                self.last.insert(slot, (who, token));
            }
        }
        self.alive.push((who, pid, token));
    }

    fn begins_run(&mut self, _: Who, _: u64) {}

    fn gone(&mut self, Child { who, pid }: Child) {
        self.alive.retain(|(other, other_pid, _)| (*other, *other_pid) != (who, pid));
        if !self.is_leading(who) {
            self.lawful(|law| law.stops(who));
        }
    }

    fn covers(&mut self, _: Child) {}

    fn fail(&mut self, wrong: Wrong, what: String) {
        self.wrong.get_or_insert((wrong, what));
    }
}
