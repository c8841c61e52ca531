//! What must hold, whatever happens.
//!
//! Owns the properties; sees everything, takes part in nothing. The first thing that does not hold ends the run.

use std::{collections::BTreeMap, fmt::Display};

use serde_json::Value;
use tenure::{election::record::LeaseRecord, link::Term, time::Instant};

use crate::{clock::Ns, engine::Who};

/// See the module.
#[derive(Debug, Default)]
pub struct Judge {
    /// Processes that run as leaders.
    alive: BTreeMap<(Who, i32), String>,
    /// Whose term a token is.
    tokens: BTreeMap<u64, Who>,
    /// The term that ran last.
    last: u64,
    /// Since when somebody leads.
    led: Option<Ns>,
    /// Who holds the Lease, by uid, name and acquireTime, and since which version.
    reign: (Option<[String; 3]>, u64),
    /// The token of the last term that init was told of.
    told: Option<(Who, Term, u64)>,
    /// S by the last extension that an elector sent to its init.
    extended: Option<(Who, Term, Instant)>,
    /// What did not hold.
    wrong: Option<String>,
    /// Terms that init was told of.
    pub terms: u64,
    /// Terms under which something ran.
    pub runs: u64,
}

impl Judge {
    /// A process runs as the leader of the term of `token`.
    pub fn runs(&mut self, who: Who, pid: i32, token: &str, now: Ns) {
        let Ok(number) = token.parse::<u64>() else { return self.fail(format!("{token:?} is no token")) };
        if let Some(((other, other_pid), theirs)) = self.alive.iter().find(|((other, _), _)| *other != who) {
            let what =
                format!("two at once: {who} runs as pid {pid} under {token}, {other} still as pid {other_pid} under {theirs}");
            return self.fail(what);
        }
        match self.tokens.get(&number) {
            Some(owner) if *owner != who => return self.fail(format!("{who} runs under {token}, the token of {owner}")),
            Some(_) if number < self.last => return self.fail(format!("{who} runs under {token} after {}", self.last)),
            Some(_) => {}
            None => {
                if number <= self.last {
                    return self.fail(format!("{who} begins to run under {token} after {}", self.last));
                }
                self.tokens.insert(number, who);
                self.runs += 1;
                self.last = number;
            }
        }
        self.led = Some(now);
        self.alive.insert((who, pid), token.into());
    }

    /// That process is dead.
    pub fn gone(&mut self, who: Who, pid: i32) {
        self.alive.remove(&(who, pid));
    }

    /// Whether somebody leads now.
    pub fn is_led(&self) -> bool {
        !self.alive.is_empty()
    }

    /// Who leads now.
    pub fn leader(&self) -> Option<Who> {
        self.alive.keys().next().map(|(who, _)| *who)
    }

    /// `who` has changed the Lease.
    pub fn changed(&mut self, who: Who, me: &str, before: Option<&Value>, after: &Value) {
        let Some(new) = LeaseRecord::read(after.clone()) else { return self.fail("a write left no Lease") };
        let old = before.and_then(|before| LeaseRecord::read(before.clone()));
        if new.holder().is_none()
            && let Some(((_, pid), token)) = self.alive.iter().find(|((other, _), _)| *other == who)
        {
            return self.fail(format!("{who} has released the Lease while pid {pid} runs under {token}"));
        }
        if let Some(wrong) = hygiene(me, old.as_ref(), &new) {
            self.fail(format!("{who} has written a record that {wrong}"));
        }
    }

    /// The Lease is this now.
    pub fn stands(&mut self, lease: Option<&Value>, version: u64) {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let reign = lease.map(|lease| {
            let spec = &lease["spec"];
            [text(&lease["metadata"]["uid"]), text(&spec["holderIdentity"]), text(&spec["acquireTime"])]
        });
        if reign != self.reign.0 {
            self.reign = (reign, version);
        }
    }

    /// An elector has begun a term.
    pub fn told(&mut self, who: Who, term: Term, token: &str) {
        self.terms += 1;
        self.told = token.parse().ok().map(|token| (who, term, token));
    }

    /// An elector ends a term because the Lease is another's, or nobody's.
    pub fn lost(&mut self, who: Who, term: Term) {
        let told = self.told.filter(|(whose, which, _)| (*whose, *which) == (who, term));
        if let Some((_, _, token)) = told.filter(|(_, _, token)| self.reign.1 <= *token) {
            self.fail(format!("{who} gives term {} up as lost, though nobody has touched its hold since {token}", term.0));
        }
    }

    /// An elector has sent an extension.
    pub fn extended(&mut self, who: Who, term: Term, soft: Instant) {
        self.extended = Some((who, term, soft));
    }

    /// An elector has announced that the deadlines move back.
    pub fn shortened(&mut self, who: Who, term: Term) {
        self.extended.take_if(|(whose, which, _)| (*whose, *which) == (who, term));
    }

    /// Init has begun a stop because S has passed.
    pub fn expired(&mut self, who: Who, term: Term, at: Instant) {
        if let Some((_, _, soft)) = self.extended.filter(|(whose, which, soft)| (*whose, *which) == (who, term) && *soft > at) {
            self.fail(format!("{who} stops term {} as expired at {at:?}, though its elector extended it to {soft:?}", term.0));
        }
    }

    /// Something does not hold.
    pub fn fail(&mut self, what: impl Display) {
        self.wrong.get_or_insert_with(|| what.to_string());
    }

    /// What did not hold.
    pub fn verdict(&self) -> Option<&str> {
        self.wrong.as_deref()
    }
}

/// What is wrong with the record that `me` wrote (safety.md, record hygiene).
fn hygiene(me: &str, old: Option<&LeaseRecord>, new: &LeaseRecord) -> Option<&'static str> {
    let six = |time: Option<&str>| time.is_some_and(|time| time.split_once('.').is_some_and(|(_, rest)| rest.len() == 7));
    if !six(new.acquire_time()) && new.holder().is_some() {
        return Some("has no acquireTime of six digits");
    }
    if !six(new.renew_time()) {
        return Some("has no renewTime of six digits");
    }
    if new.holder().is_some_and(|holder| holder != me) {
        return Some("names somebody else");
    }
    let Some(old) = old else {
        return (new.transitions() != 0).then_some("is new and counts transitions");
    };
    let same_holder = old.holder() == new.holder();
    let acquired = new.holder().is_some() && new.acquire_time() == new.renew_time() && old.acquire_time() != new.acquire_time();
    if new.holder().is_none() {
        if old.holder() != Some(me) {
            return Some("empties what another one holds");
        }
        return (new.transitions() != old.transitions()).then_some("is released and counts a transition");
    }
    if same_holder && !acquired {
        if new.acquire_time() != old.acquire_time() || new.transitions() != old.transitions() {
            return Some("changes acquireTime or leaseTransitions without the holder");
        }
        return (new.renew_time() <= old.renew_time()).then_some("has a renewTime that does not rise");
    }
    if !acquired {
        return Some("changes the holder and keeps acquireTime");
    }
    (new.transitions() != old.transitions().saturating_add(1)).then_some("changes the holder and counts no transition")
}
