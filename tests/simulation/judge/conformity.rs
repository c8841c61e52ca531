//! What replicas owe the Lease, init and each other, beside running one at a time.

use serde_json::Value;
use tenure::{
    election::{record::LeaseState, writes::PAUSED},
    link::{Term, TermInfo},
    time::Instant,
};

use super::{Judge, Replica, Running};
use crate::{
    clock::{Ns, S},
    engine::Who,
    hygiene::{Write, state_of},
};

/// How many writes are remembered.
const WRITES: usize = 32;

/// Faults, by which it is known what was nobody's fault.
impl Judge {
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
}

/// What becomes of the Lease.
impl Judge {
    /// `who` has changed the Lease.
    pub fn changed(&mut self, who: Who, me: &str, before: Option<&Value>, after: &Value, now: Ns) {
        let emptied = after["spec"]["holderIdentity"].as_str().is_none_or(str::is_empty);
        let released = emptied || state_of(after) == Some(LeaseState::Resting);
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
            opts_out: self.opts_out,
            interval: self.interval,
            now,
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
        if let Some([_, holder, _]) = reign.as_ref().filter(|[_, holder, _]| !holder.is_empty()) {
            self.gave_up.retain(|who, _| self.replicas[who.replica].identity == *holder);
        }
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
        let (bound, since) = (duration.max(self.longest), self.since);
        let idle = self.replicas.iter().find(|replica| {
            // The wait, the time that a releaser sits out, reads and attempts.
            let bound = (bound + replica.duration + self.patience) / 9 * 10 + replica.duration / 2 + 5 * S;
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

    /// The write of this version was sent then.
    pub fn wrote(&mut self, version: u64, sent: Ns) {
        self.writes.push_back((version, sent));
        if self.writes.len() > WRITES {
            self.writes.pop_front();
        }
    }
}

/// What is said on the link.
impl Judge {
    /// An elector has begun a term.
    pub fn told(&mut self, who: Who, term: Term, info: &TermInfo) {
        self.terms += 1;
        self.held.insert(who, (info.uid.clone(), info.acquired_at.clone(), info.transitions));
        let token = info.token.parse().ok();
        self.told = token.map(|token| (who, term, token));
        let sent = self.writes.iter().find(|(version, _)| Some(*version) == token).map(|(_, sent)| *sent);
        if let (Some(sent), Some(ended)) = (sent, self.ended.get(&who))
            && sent < *ended
        {
            self.fail(format!("{who} begins term {} by a write that it sent before its last term was over", term.0));
        }
        let (duration, gave_up) = (self.replicas[who.replica].duration, self.gave_up.remove(&who));
        if let (Some(sent), Some(since)) = (sent, gave_up)
            && sent < since + duration
        {
            self.fail(format!("{who} leads again within D of giving a term up, and nobody else has led"));
        }
    }

    /// Init gives a term up, because its workload is not live, or not ready in time.
    pub fn gives_up(&mut self, who: Who, now: Ns) {
        if !self.losing.contains(&who) {
            self.gave_up.insert(who, now);
        }
    }

    /// It has lost the Lease as well: it need not let the others go first.
    pub fn loses(&mut self, who: Who) {
        self.gave_up.remove(&who);
        self.losing.insert(who);
    }

    /// An elector has ended a term.
    pub fn ended(&mut self, who: Who, now: Ns) {
        self.ended.insert(who, now);
        self.losing.remove(&who);
    }

    /// An elector ends a term because the Lease is another's, or nobody's.
    pub fn lost(&mut self, who: Who, term: Term) {
        let told = self.told.filter(|(whose, which, _)| (*whose, *which) == (who, term) && self.copies.is_empty());
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
}
