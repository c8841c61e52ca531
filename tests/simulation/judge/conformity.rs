//! Checks a replica's duties to the Lease, init and the other replicas, beside running one at a time.

use serde_json::Value;
use tenure::{
    election::writes::{FIRE, OBITUARY, PAUSED, STEP_DOWN, STEP_DOWN_TO},
    link::{Exit, Reason, Term, TermInfo},
    slot::Slot,
    time::Instant,
};

use tenure_world::reading::State;

use super::{Judge, Replica, Running};
use crate::{
    clock::{Ns, S, nanos},
    engine::Who,
    hygiene::Write,
    operator::OPERATOR,
    plan::Node,
};

/// How many writes are remembered.
const WRITES: usize = 32;
/// A term that is not as long as this makes no failure forgotten.
const FORGIVEN: Ns = 590 * S;
/// The longest time that the others go first, by the clock that is the fastest.
const LONGEST_LEFT: Ns = 285 * S;

/// Faults, by which it is known what was nobody's fault.
impl Judge {
    /// A replica with this D and identity starts, without faults from `at` on.
    pub fn begins(&mut self, who: Who, identity: &str, node: &Node, at: Ns) {
        if self.replicas.len() <= who.replica {
            self.replicas.resize_with(who.replica + 1, Replica::default);
        }
        let lease = &node.config.lease;
        self.lawful(|law| law.begins(who, identity, &node.config, node.clock));
        self.replicas[who.replica] = Replica {
            identity: identity.into(),
            duration: nanos(lease.duration),
            candidate_wait: nanos(node.config.timing().candidate_wait()),
            keeps: node.keeps(),
            trouble: at,
            backs_off: 0,
            rank: (lease.priority, lease.preempt.map(nanos)),
        };
    }

    /// This replica, its network or its hold has a fault until then.
    pub fn trouble(&mut self, replica: usize, until: Ns) {
        if let Some(replica) = self.replicas.get_mut(replica) {
            replica.trouble = replica.trouble.max(until);
        }
    }

    pub fn is_troubled(&self, replica: usize, since: Ns) -> bool {
        self.replicas.get(replica).is_none_or(|replica| replica.trouble >= since)
    }

    /// Everybody has a fault until then.
    pub fn trouble_for_all(&mut self, until: Ns) {
        (0..self.replicas.len()).for_each(|replica| self.trouble(replica, until));
    }

    /// This one is named as the next leader.
    pub fn names(&mut self, identity: &str) {
        self.named.insert(identity.into());
    }

    /// Somebody is asked to step down.
    pub fn asks(&mut self, identity: &str) {
        self.asked.insert(identity.into());
    }
}

/// Changes of the Lease.
impl Judge {
    /// `who` has changed the Lease.
    pub fn changed(&mut self, slot: Slot, who: Who, me: &str, before: Option<&Value>, after: &Value, now: Ns) {
        let emptied = after["spec"]["holderIdentity"].as_str().is_none_or(str::is_empty);
        let released = emptied || State::of(after) == State::Resting;
        // A release of another slot, sent before this term was acquired, may come late.
        let is_earlier = |token| self.sent_as(token).is_some_and(|acquired| self.sent < acquired);
        let runs = |((other, _), Running { token, .. }): &(&(Who, i32), &Running)| {
            *other == who && !(self.slot_of(*token) != slot && is_earlier(*token))
        };
        if released {
            let running = self.alive.iter().find(runs).map(|((_, pid), Running { token, .. })| (*pid, *token));
            let wrong = || format!("{who} has released the Lease while this pid runs under this token: {running:?}");
            self.judges("nothing runs when the Lease is released", running.is_some(), wrong);
        }
        // A client-go replica may write anything. By its release it gives a fire back undone, too.
        let Some(candidate_wait) = self.replicas.get(who.replica).map(|replica| replica.candidate_wait) else {
            if State::of(after) == State::Released {
                self.notes_fire(who, None, after);
            }
            return;
        };
        if let Some(before) = before.filter(|before| before["spec"] == after["spec"] && after["spec"]["holderIdentity"] != me) {
            return self.preempts(slot, who, me, before, after, now);
        }
        self.notes_fire(who, before, after);
        let since = self.histories.entry(slot).or_default().since;
        let write = Write {
            me,
            candidate_wait,
            old: before.map(|before| (before, now.saturating_sub(since))),
            new: after,
            opts_out: self.opts_out,
            interval: self.interval,
            is_task: self.is_task,
            now,
            held: self.held.get(&(who, slot)),
        };
        if let Some(wrong) = write.wrong(&mut self.armed) {
            self.fail(format!("{who} has written a record that {wrong}"));
        }
    }

    /// `who` has asked the holder to hand over.
    fn preempts(&mut self, slot: Slot, who: Who, me: &str, before: &Value, after: &Value, now: Ns) {
        let holder = before["spec"]["holderIdentity"].as_str().unwrap_or_default();
        let mut annotations = before["metadata"]["annotations"].clone();
        if annotations[STEP_DOWN_TO] == me {
            annotations.as_object_mut().expect("has one").retain(|name, _| name != STEP_DOWN && name != STEP_DOWN_TO);
            let is_wrong = after["metadata"]["annotations"] != annotations;
            return self.judges("a request is taken back alone", is_wrong, || format!("{who} changes more than that: {after}"));
        }
        (annotations[STEP_DOWN], annotations[STEP_DOWN_TO]) = (holder.into(), me.into());
        let is_left_alone =
            before["metadata"]["annotations"][PAUSED] == "true" || !before["metadata"]["deletionTimestamp"].is_null();
        let is_asked = [STEP_DOWN, STEP_DOWN_TO].iter().any(|name| !before["metadata"]["annotations"][*name].is_null());
        let (own, Some(wait)) = self.replicas[who.replica].rank else { return self.fail(format!("{who} preempts unasked")) };
        let holders = self.replicas.iter().find(|replica| replica.identity == holder).map(|replica| replica.rank.0);
        let led = now.saturating_sub(self.histories.entry(slot).or_default().reigns);
        let wrong = [
            (after["metadata"]["annotations"] != annotations, "changes more than the request"),
            (is_left_alone || is_asked, "does not let others go first"),
            (holders.is_some_and(|holders| holders >= own), "asks somebody whose priority is no lower"),
            (led < wait / 10 * 9, "asks somebody who has not led for long enough"),
        ];
        if let Some((_, wrong)) = wrong.iter().find(|(is_wrong, _)| *is_wrong) {
            return self.fail(format!("{who} {wrong}: {after}"));
        }
        self.armed.arm("a lower priority is asked to hand over");
        self.asks(holder);
        // A copy asks in the name of both.
        if !self.copies.is_empty() {
            self.names(me);
        }
    }

    /// The elector of `who` asks for a handover.
    pub fn asks_for_handover(&mut self, who: Who, now: Ns) {
        let wait = self.replicas[who.replica].rank.1.unwrap_or_default();
        let ready = self.ready.get(&who).map(|since| now - since);
        let wrong = || format!("{who} asks for a handover to itself {ready:?} ns after it was ready");
        self.judges("who asks for a handover is ready", ready.is_none_or(|ready| ready < wait / 10 * 9), wrong);
    }

    /// Init tells the elector of `who` whether its workload is ready.
    pub fn is_ready(&mut self, who: Who, is_ready: bool, now: Ns) {
        if is_ready {
            self.ready.entry(who).or_insert(now);
        } else {
            self.ready.remove(&who);
        }
    }

    /// The Lease of this slot is now `lease`, and was `before`.
    pub fn stands(&mut self, slot: Slot, before: Option<&Value>, lease: Option<&Value>, version: u64, now: Ns) {
        self.lawful(|law| law.stands(slot, lease, version));
        if let Some(before) = before {
            self.left_alone(slot, before, now);
        }
        if slot != Slot::default() {
            self.others.insert(version, slot);
        }
        // Whoever deletes or empties it makes it forget when a run began, and so does a witness, to whom every end is a crash. What
        // was given back undone is to be run again.
        let is_done = self.is_done;
        let forgets = |lease: &Value| {
            let is_forgotten = lease["spec"]["acquireTime"].is_null() || !lease["metadata"]["annotations"][OBITUARY].is_null();
            is_forgotten || !is_done && State::of(lease) == State::Released
        };
        self.began.take_if(|_| lease.is_none_or(forgets));
        // Also what has begun under it and does not run yet.
        if lease.is_none() {
            self.ran.clear();
            self.fires.clear();
        }
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let reign = lease.map(|lease| {
            let spec = &lease["spec"];
            [text(&lease["metadata"]["uid"]), text(&spec["holderIdentity"]), text(&spec["acquireTime"])]
        });
        let history = self.histories.entry(slot).or_default();
        if reign != history.reign.0 {
            let stays = |holder: &str| matches!(&reign, Some([_, name, _]) if name.is_empty() || name == holder);
            self.given_up.retain(|who, _| self.replicas.get(who.replica).is_some_and(|replica| stays(&replica.identity)));
            (history.reign, history.reigns) = ((reign, version), now);
        }
        let same = before.zip(lease).is_some_and(|(before, lease)| before["spec"] == lease["spec"]);
        if !same {
            history.since = now;
        }
    }

    /// A Lease that nobody renewed was left alone until now: was there really nobody to take it? (law 16)
    fn left_alone(&mut self, slot: Slot, lease: &Value, now: Ns) {
        let duration = lease["spec"]["leaseDurationSeconds"].as_u64().unwrap_or_default() * S;
        let history = self.histories.entry(slot).or_default();
        history.longest = history.longest.max(duration);
        let (since, longest) = (history.since, history.longest);
        let alone = now.saturating_sub(since);
        let closed = lease["metadata"]["annotations"][PAUSED] == "true" || !lease["metadata"]["deletionTimestamp"].is_null();
        self.armed.arm_if(alone >= duration && closed, "a closed Lease is left alone");
        // Of several, a replica may have had another one.
        if alone < duration || closed || self.is_pool {
            return;
        }
        let holder = lease["spec"]["holderIdentity"].as_str().unwrap_or_default();
        let bound = longest.max(self.longest);
        let is_able = |replica: &&Replica| replica.identity != holder && replica.trouble.max(replica.backs_off) < since;
        let mut able = self.replicas.iter().filter(is_able).peekable();
        self.armed.arm_if(able.peek().is_some(), "a Lease is not left alone");
        // The wait, the time that a releaser sits out, reads and attempts.
        let idle =
            able.find(|replica| alone > (bound + replica.duration + self.wait_limit) / 9 * 10 + replica.duration / 2 + 5 * S);
        if let Some(Replica { identity, .. }) = idle {
            let what = format!(
                "{identity} has left the Lease of {holder:?} alone for {} ms, after {} s",
                alone / 1_000_000,
                duration / S
            );
            self.fail(what);
        }
    }

    /// `who` has deleted the Lease of this slot, which was `old`.
    pub fn deleted(&mut self, slot: Slot, who: Who, old: &Value) {
        if let Some(fire) = old["metadata"]["annotations"][FIRE].as_str() {
            self.fail(format!("{who} has deleted a Lease that remembers the fire {fire}: one may be lost"));
        }
        let Some(holder) = old["spec"]["holderIdentity"].as_str().filter(|holder| !holder.is_empty()) else { return };
        // `prune` has watched it for its duration: then nobody runs under it. Whom a hand wrote into it may run under another.
        let is_its_term =
            |who| self.held.get(&(who, slot)).is_some_and(|(_, acquired, _)| old["spec"]["acquireTime"] == acquired.as_str());
        let runs = |((other, _), running): (&(Who, i32), &Running)| {
            running.covered
                && self.slot_of(running.token) == slot
                && self.uncovered.is_empty()
                && self.replicas.get(other.replica).is_some_and(|it| it.identity == holder)
                && is_its_term(*other)
        };
        let is_wrong = who != OPERATOR || self.alive.iter().any(runs);
        self.judges("a Lease with a holder is pruned", is_wrong, || format!("{who} has deleted a Lease that is held: {old}"));
    }

    /// The write of this version was sent then.
    pub fn wrote(&mut self, version: u64, sent: Ns) {
        self.writes.push_back((version, sent));
        if self.writes.len() > WRITES {
            self.writes.pop_front();
        }
    }
}

/// Fires of a task's schedule.
impl Judge {
    /// A replica has written `after`: it takes the Lease for a fire, or gives it back undone.
    fn notes_fire(&mut self, who: Who, before: Option<&Value>, after: &Value) {
        let fire_of = |lease: &Value| lease["metadata"]["annotations"][FIRE].as_str().map(str::to_owned);
        let Some(fire) = fire_of(after) else {
            if let Some(fire) = before.and_then(fire_of) {
                self.fail(format!("{who} makes the Lease forget the fire {fire}, so that later ones may be lost"));
            }
            return;
        };
        match (State::of(after), after["metadata"]["resourceVersion"].as_str().and_then(|version| version.parse().ok())) {
            (State::Held, Some(token)) => {
                self.fires.insert(token, fire);
            }
            (State::Released, _) => {
                self.ran.remove(&fire);
            }
            (State::Held | State::Resting | State::Nobody | State::Free, _) => {}
        }
    }

    /// A run begins: that of a fire which another run was for, and which nobody gave back undone, is one too many.
    pub(super) fn runs_a_fire(&mut self, who: Who, token: u64) {
        let waits = self.replicas.iter().all(|replica| replica.keeps.is_some_and(|(waits, _)| waits));
        let Some(fire) = self.fires.get(&token).filter(|_| waits && self.copies.is_empty()).cloned() else { return };
        let before = self.ran.insert(fire.clone(), token);
        let wrong = || format!("{who} runs the fire {fire} under {token}, which was run under {before:?}");
        self.judges("a fire is run once", before.is_some_and(|before| before != token), wrong);
    }
}

/// Messages on the link.
impl Judge {
    /// An elector has begun a term.
    pub fn told(&mut self, who: Who, term: Term, info: &TermInfo) {
        self.terms += 1;
        self.held.insert((who, info.slot), (info.uid.clone(), info.acquired_at.clone(), info.transitions));
        let token = info.token.parse().ok();
        if let Some((before, _)) = self.told.get(&who).copied() {
            self.judges("terms rise", term <= before, || format!("{who} begins term {} after {before:?}", term.0));
        }
        if let Some(token) = token {
            self.told.insert(who, (term, token));
        }
        let sent = token.and_then(|token| self.sent_as(token));
        if let (Some(sent), Some(ended)) = (sent, self.ended.get(&who).copied()) {
            let wrong = || format!("{who} begins term {} by a write that it sent before its last term was over", term.0);
            self.judges("a term begins after the last one", sent < ended, wrong);
        }
        let is_named = self.named.contains(&self.replicas[who.replica].identity);
        if let (Some(sent), Some((_, failures, until)), false) = (sent, self.failed.get(&who).copied(), is_named) {
            let wrong = || format!("{who} leads {} ms too soon after {failures} failed terms", (until - sent) / 1_000_000);
            self.judges("others go first after a failure", sent < until, wrong);
        }
        // A copy may have given it up in its name.
        let given_up = self.given_up.remove(&who).filter(|_| !is_named && self.copies.is_empty());
        if let Some((sent, until)) = sent.zip(given_up) {
            let wrong = || format!("{who} takes what it gave up {} ms too soon", (until - sent) / 1_000_000);
            self.judges("others go first after a release", sent < until, wrong);
        }
    }

    /// An elector ends a term for this reason.
    pub fn ends(&mut self, who: Who, reason: Reason) {
        self.ending.insert(who, reason);
    }

    /// Init has proved to the elector that the workload of a term is gone, which ended so.
    pub fn proves(&mut self, who: Who, term: Term, exit: Option<Exit>, now: Ns) {
        let Some(reason) = self.ending.get(&who).copied() else { return };
        let Replica { identity, duration, .. } = &self.replicas[who.replica];
        let reign = self.histories.get(&Slot::default()).and_then(|history| history.reign.0.as_ref());
        // Another slot of a pool may be taken at once, and so may what another has had in the meantime.
        if !(reason.is_loss() || self.is_pool) && reign.is_some_and(|[_, holder, _]| holder == identity) {
            self.given_up.insert(who, now + duration);
        }
        // A frozen elector may step down, and then find that S has passed.
        if reason.is_loss() {
            self.given_up.remove(&who);
        }
        let is_done = reason == Reason::Exited && exit == Some(Exit::Code(0)) || reason == Reason::Limit && exit.is_some();
        if is_done {
            self.is_done = true;
            self.failed.remove(&who);
        }
        if !reason.is_failure(exit) {
            return;
        }
        let before = self.failed.get(&who).map_or(0, |(last, failures, _)| failures - u32::from(*last == term));
        // By its wall clock a replica may have led for long, and have forgotten what failed before.
        let times = if now < FORGIVEN && !self.walls_differ { before.min(9) } else { 0 };
        let Replica { duration, backs_off, .. } = &mut self.replicas[who.replica];
        self.failed.insert(who, (term, before + 1, now + (*duration << times).min(LONGEST_LEFT).max(*duration)));
        *backs_off = now + (*duration << before.min(9)).min(LONGEST_LEFT).max(*duration) / 4 * 5;
    }

    /// How many replicas leave the Lease to others until after this instant, because their terms failed.
    pub fn failing(&self, after: Ns) -> usize {
        self.replicas.iter().filter(|replica| replica.backs_off > after).count()
    }

    /// Until when somebody may leave the Lease to others because its terms failed.
    pub fn backs_off(&self) -> Ns {
        self.replicas.iter().map(|replica| replica.backs_off).max().unwrap_or_default()
    }

    /// An elector has ended a term.
    pub fn ended(&mut self, who: Who, now: Ns) {
        self.ended.insert(who, now);
    }

    /// An elector ends a term because the Lease is another's, or nobody's.
    pub fn lost(&mut self, who: Who, term: Term) {
        let told = self.told.get(&who).filter(|(which, _)| *which == term && self.copies.is_empty());
        if let Some((_, token)) = told.copied() {
            let is_untouched = self.histories.get(&self.slot_of(token)).is_none_or(|history| history.reign.1 <= token);
            let wrong = || format!("{who} gives term {} up as lost, though nobody has touched its hold since {token}", term.0);
            self.judges("a lost term was touched", is_untouched, wrong);
        }
    }

    /// An elector ends a term because it was asked to.
    pub fn steps_down(&mut self, who: Who, identity: &str) {
        let is_unasked = !self.asked.contains(identity);
        self.judges("who steps down was asked to", is_unasked, || format!("{who} steps down, though nobody asked it to"));
    }

    /// An elector has sent an extension, at `at` on its node's clock.
    pub fn extended(&mut self, who: Who, term: Term, soft: Instant, at: Instant) {
        self.extended.insert(who, (term, soft, at));
    }

    /// Init has begun a stop because S had passed at `at`. An extension that was sent later was too late.
    pub fn expired(&mut self, who: Who, term: Term, at: Instant) {
        if let Some((_, soft, sent)) = self.extended.get(&who).copied().filter(|(which, ..)| *which == term) {
            let wrong =
                || format!("{who} stops term {} at {at:?} as expired, though its elector extended it to {soft:?}", term.0);
            self.judges("an extended term does not expire", soft > at && sent <= at, wrong);
        }
    }

    /// Init has begun a stop because S has passed.
    pub fn expired_in_peace(&mut self, who: Who, term: Term, now: Ns) {
        let Replica { duration, trouble, .. } = &self.replicas[who.replica];
        let (is_wrong, since) = (trouble.saturating_add(*duration * 2) < now, trouble / S);
        let wrong = || format!("{who} lets term {} expire, though nothing is wrong with it since {since} s", term.0);
        self.judges("no term expires without a cause", is_wrong, wrong);
    }
}
