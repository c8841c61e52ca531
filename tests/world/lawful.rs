//! What happens, as steps of the law (`tests/law`): the first one that it forbids is a violation, whether or not two overlap.
//!
//! Owns the abstraction, one law for each slot. It is told of messages, requests, sights and changes, and looks into no machine. A
//! client-go is a stranger to it. Where an assumption of the law does not hold, that is counted.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use serde_json::Value;
use tenure::{config::Config, election::writes::Sent, link::InitialState, slot::Slot, time::Instant};

use crate::{
    Who,
    clock::{Clock, Ns, S, nanos},
    law::{Kind, Law, Memory, Step, What},
    reading::Reading,
    register::Request,
};

mod link;
mod seen;

#[derive(Clone, Debug, Default)]
pub struct Lawful {
    laws: Vec<One>,
    replicas: BTreeMap<Who, usize>,
    electors: Vec<Elector>,
    identities: HashMap<String, usize>,
    /// What each request says, and how it is stored.
    requests: Vec<(u64, What)>,
    /// The request that arrives now.
    arrives: Option<usize>,
    now: Ns,
    /// Why it judges no more: something happened that the law does not know.
    over: Option<&'static str>,
    pub wrong: Option<String>,
    pub counts: Counts,
    /// A bit for each transition that was taken, at its place.
    pub taken: u64,
}

/// The elector of a replica.
#[derive(Clone, Debug)]
struct Elector {
    clock: Clock,
    kill_margin: Duration,
    /// How many Leases its replica knows of.
    slots: usize,
    /// When its turn began, and when it last took something in: it decides at one of these instants, and may be stopped before it acts.
    looked: [Ns; 2],
    /// When it last asked for something, by its own clock.
    asked: Instant,
    /// Its turn is not over.
    is_busy: bool,
    /// The slots that it has read: of another one, its watch tells it nothing (16).
    read: BTreeSet<usize>,
    /// The slot of a Lease that came after an absence in this turn, and what it remembered before that: it may have decided then.
    before: Option<(usize, Memory)>,
    /// Of these slots its watch has told it of a time before the absence that it has read.
    late: BTreeSet<usize>,
}

/// What was judged.
#[derive(Clone, Debug)]
pub struct Counts {
    /// How often each transition was taken, by its place.
    pub steps: [u64; What::ALL.len()],
    /// Assumptions that did not hold.
    pub exposed: BTreeMap<&'static str, u64>,
    /// Worlds that ended beyond the law.
    pub over: BTreeMap<&'static str, u64>,
}

impl Default for Counts {
    fn default() -> Self {
        Self { steps: [0; What::ALL.len()], exposed: BTreeMap::new(), over: BTreeMap::new() }
    }
}

/// The law of one Lease, and what each of its versions says.
#[derive(Clone, Debug)]
struct One {
    law: Law,
    /// What each version says, and the first one of the last uid.
    texts: BTreeMap<u64, u64>,
    first: u64,
    /// The name in the last version.
    name: Option<String>,
}

impl Lawful {
    /// A judge of so many slots, whose Leases are these.
    pub fn new(leases: impl Iterator<Item = Option<Arc<Value>>>) -> Self {
        let one = |lease: Option<Arc<Value>>| {
            let mut one = One { law: Law::new(0), texts: BTreeMap::new(), first: 0, name: None };
            if let Some(lease) = lease {
                let Reading { kind, version, text, .. } = Reading::of(&lease);
                // The law begins without a Lease, and versions below the register's first are its own.
                one.law.take(&Step { t: S, v: version, ..Step::of(What::StrangerCreates) });
                let what = if kind == Kind::Released { What::StrangerReleases } else { What::Empties };
                one.law.take(&Step { v: version, ..Step::of(what) });
                one.texts.insert(version, text);
            }
            one
        };
        Self { laws: leases.map(one).collect(), ..Self::default() }
    }

    /// Something has happened that the law does not know: it judges no more.
    pub fn ends(&mut self, why: &'static str) {
        if self.over.is_none() {
            self.over = Some(why);
            *self.counts.over.entry(why).or_default() += 1;
        }
    }

    /// Time passes.
    pub fn passes(&mut self, now: Ns) {
        self.now = now;
        for slot in 0..self.laws.len() {
            self.steps(slot, Step { t: now, ..Step::of(What::Passes) });
        }
    }

    /// Time passes where all that is due happens exactly at its instant: what must end by E may end at E.
    pub fn comes(&mut self, now: Ns) {
        self.passes(now - 1);
        self.now = now;
    }

    /// A replica with this D begins.
    pub fn begins(&mut self, who: Who, identity: &str, config: &Config, clock: Clock) {
        for one in &mut self.laws {
            let replica = one.law.adds(nanos(config.lease.duration), false);
            self.replicas.insert(who, replica);
            self.identities.insert(identity.to_owned(), replica);
        }
        self.electors.push(Elector {
            clock,
            kill_margin: config.workload.stop.kill_margin,
            slots: usize::from(config.lease.slots),
            looked: [0, 0],
            asked: Instant::BOOT,
            is_busy: false,
            read: BTreeSet::new(),
            before: None,
            late: BTreeSet::new(),
        });
    }

    /// Nothing of it is left. People may hear of it before its witness does.
    pub fn dies(&mut self, who: Who) {
        if let Some(r) = self.replica(who).filter(|r| !self.laws[0].law.is_dead(*r)) {
            self.each(r, What::Dies);
        }
    }

    /// Its next elector starts, with what init hands on to it, and with a term if init has one.
    pub fn next_elector(&mut self, who: Who, initial: &InitialState) {
        let Some(r) = self.replica(who) else { return };
        let (last_seen, resumes) = (&initial.last_seen, initial.resume.is_some());
        let led = self.laws.iter().any(|one| one.law.leads(r).1);
        self.each(r, What::NextElector);
        if led != resumes {
            self.refuse(format!("{who}: 10 another elector: it resumes a term: {resumes}, init has one: {led}"));
        }
        let Elector { clock, slots, is_busy, .. } = self.electors[r];
        for slot in 0..self.laws.len().min(slots) {
            let mut memory: Memory = self.laws[slot].law.memory(r).clone();
            let handed = u8::try_from(slot).ok().and_then(|slot| last_seen.get(&Slot(slot)));
            let until = handed.map_or(0, |handed| clock.real(handed.not_before));
            let longest = handed.map_or(0, |handed| nanos(handed.duration)).max(self.laws[slot].law.duration(r));
            let (is_held, is_named) = handed.map_or((false, false), |handed| (handed.held.is_some(), handed.named));
            let forgets = memory.uid != 0 && !is_held || memory.is_named && !is_named;
            // What it took in within a turn that it did not end was not handed on.
            if !is_busy && (forgets || until < memory.until || longest < memory.longest) {
                if self.electors[r].late.contains(&slot) {
                    return self.ends("a late watch tells of a shorter hold");
                }
                self.refuse(format!("{who}: 14 handed to the next elector: {handed:?}, not {memory:?}"));
            }
            if is_busy {
                (memory.until, memory.longest) = (memory.until.min(until), memory.longest.min(longest));
                memory.uid = if is_held { memory.uid } else { 0 };
                memory.is_named &= is_named;
            }
            self.laws[slot].law.recalls(r, memory);
        }
        (self.electors[r].is_busy, self.electors[r].read) = (false, BTreeSet::new());
    }

    /// Its elector looks at the link: with that its turn begins, if it has not begun before.
    pub fn turns(&mut self, who: Who) {
        if let Some(r) = self.replica(who)
            && !std::mem::replace(&mut self.electors[r].is_busy, true)
        {
            (self.electors[r].looked, self.electors[r].before) = ([self.now; 2], None);
        }
    }

    /// Its elector takes something in.
    pub fn hears(&mut self, who: Who) {
        if let Some(r) = self.replica(who) {
            self.electors[r].looked[1] = self.now;
        }
    }

    /// Its elector has ended its turn.
    pub fn rests(&mut self, who: Who) {
        if let Some(r) = self.replica(who) {
            self.electors[r].is_busy = false;
        }
    }

    /// The version of the slot, of which an answer tells.
    pub fn version(&self, slot: Slot) -> u64 {
        self.laws[usize::from(slot.0)].law.top().0
    }

    /// Its elector or witness asks for this. Returns the number of the request, if it may be stored and changes the spec.
    pub fn asks(&mut self, who: Who, slot: Slot, request: &Request, is_obituary: bool) -> Option<usize> {
        self.asks_for(self.replica(who)?, slot, request, is_obituary)
    }

    /// People, who know that nothing is left of this holder, write this in place of its witness.
    pub fn confirms(&mut self, holder: &str, slot: Slot, request: &Request) -> Option<usize> {
        let r = *self.identities.get(holder)?;
        if !self.laws[0].law.is_dead(r) {
            self.each(r, What::Dies);
        }
        self.asks_for(r, slot, request, true)
    }

    fn asks_for(&mut self, r: usize, slot: Slot, request: &Request, is_obituary: bool) -> Option<usize> {
        if !is_obituary && let Some(elector) = self.electors.get_mut(r) {
            // It counts from when it decided: it may have been stopped before the request left it.
            elector.asked = elector.clock.boot(elector.looked[1]);
        }
        let (object, is_new) = match request {
            Request::Write(Sent::Create(object)) => (object, true),
            Request::Write(Sent::Replace(object)) => (object, false),
            Request::Get | Request::List | Request::Write(Sent::Delete { .. }) => return None,
        };
        let index = usize::from(slot.0);
        let One { law, texts, .. } = &self.laws[index];
        let (new, (top, kind), latest) = (Reading::of(object), law.top(), law.latest(r));
        let base = if is_new { top } else { new.version };
        if !law.has(base) {
            self.refuse(format!("written onto version {base}, which never was: {object}"));
            return None;
        }
        if texts.get(&base) == Some(&new.text) {
            return None;
        }
        // A record by hand that bears its name is a stranger's (13), and so is the release of that.
        if is_obituary && law.held(base).0 == Kind::Foreign && !law.is_named(base) {
            return None;
        }
        // Of a dead replica its witness and people may write the same: it is as if one of them had sent it twice.
        if is_obituary && let Some(q) = self.requests.iter().position(|said| *said == (new.text, What::StoresRelease)) {
            return Some(q);
        }
        let is_own = law.held(base) == (Kind::Held, r);
        let is_unread = is_own && law.own(r, None, base).is_some();
        let (what, stored) = match new.kind {
            Kind::Nobody if is_new => (What::Creates, What::StoresCreation),
            Kind::Nobody => (What::Holds, What::StoresNobody),
            Kind::Released if is_obituary => (What::Obituary, What::StoresRelease),
            Kind::Released => (What::Releases, What::StoresRelease),
            Kind::Absent | Kind::Free | Kind::Held | Kind::Foreign => {
                if self.identities.get(&new.holder) != Some(&r) {
                    self.refuse(format!("the name of another is written: {object}"));
                    return None;
                }
                let is_again = is_unread || is_own && law.is_late(r, base);
                match (law.leads(r).0, is_again) {
                    (true, _) => (What::Renews, What::StoresRenewal),
                    (false, true) => (What::TakesAgain, What::StoresTake),
                    (false, false) => (What::Takes, What::StoresTake),
                }
            }
        };
        // A quorum read that the watch has overtaken is believed (16), and what is written onto it is not stored (12).
        let is_late_creation = what == What::Creates && kind != Kind::Absent && law.held(latest).0 != Kind::Absent;
        let is_followers = matches!(what, What::Holds | What::Takes | What::TakesAgain);
        let is_overtaken = is_late_creation || is_followers && ![latest, top].contains(&base);
        if is_overtaken {
            return None;
        }
        let q = self.requests.len();
        self.requests.push((new.text, stored));
        if what == What::TakesAgain && is_unread {
            self.steps(index, Step { r, k: base, ..Step::of(What::IsLate) });
        }
        let decided = self.electors.get_mut(r).and_then(|elector| elector.before.take());
        let step = Step { r, q: Some(q), base, text: new.text, asks: new.duration, ..Step::of(what) };
        let is_legal = self.laws[index].law.allows(&step).is_ok();
        let is_late = self.electors.get(r).is_some_and(|elector| elector.late.contains(&index));
        if matches!(what, What::Creates | What::Holds) && !is_legal && is_late {
            self.ends("a late watch tells of a shorter hold");
        }
        // Or it has decided since: there may have been another absence in this turn.
        let decided = decided.filter(|(slot, _)| what == What::Creates && *slot == index && !is_legal);
        let known = decided.map(|(_, memory)| self.laws[index].law.recalls(r, memory));
        self.steps(index, step);
        known.into_iter().for_each(|known| drop(self.laws[index].law.recalls(r, known)));
        Some(q)
    }

    /// This request arrives.
    pub fn arrives(&mut self, request: Option<usize>) {
        self.arrives = request;
    }

    /// The Lease of this slot is now `lease`.
    pub fn stands(&mut self, slot: Slot, lease: Option<&Value>, version: u64) {
        let (index, arrives) = (usize::from(slot.0), self.arrives.take());
        let (top, before) = self.laws[index].law.top();
        let step = |what| Step { v: version, ..Step::of(what) };
        let one = &mut self.laws[index];
        let Some(lease) = lease else {
            (one.first, one.name) = (version + 1, None);
            return self.steps(index, step(What::Deletes));
        };
        let new = Reading::of(lease);
        let is_same = one.texts.get(&top) == Some(&new.text) && before != Kind::Absent;
        let older = one.texts.range(one.first..).find(|(_, text)| **text == new.text).map_or(0, |(version, _)| *version);
        one.texts.insert(version, new.text);
        let was_named = std::mem::replace(&mut one.name, new.name.clone());
        if is_same && was_named == new.name {
            return self.steps(index, step(What::Labels));
        }
        if is_same {
            return self.ends("admission changes the name only");
        }
        if let Some(q) = arrives {
            let (text, stored) = self.requests[q];
            let k = if stored == What::StoresNobody { older } else { 0 };
            self.steps(index, Step { q: Some(q), k, ..step(stored) });
            if text == new.text {
                return;
            }
            // Admission has changed it: somebody edits the same version.
        }
        let law = &self.laws[index].law;
        let (top, before) = law.top();
        let (_, hold) = law.held(top);
        let named = self.identities.get(&new.holder).copied();
        let keeps_claim = before == Kind::Held && named == Some(hold);
        // One that bears the name of a replica outside a term is a stranger (13), unless somebody forges the name beside it too.
        let has_term = |r| law.leads(r) != (false, false) || law.is_releasing(r);
        let is_forged = named.is_some_and(|r| has_term(r) || new.name.as_ref() == Some(&new.holder));
        let what = match new.kind {
            Kind::Free => What::Empties,
            Kind::Released if before == Kind::Foreign => What::StrangerReleases,
            Kind::Released => return self.ends("a mark by hand, or by a wrong word"),
            Kind::Nobody | Kind::Absent => return self.ends("nobody's record by hand"),
            Kind::Held | Kind::Foreign => {
                let drops_name = law.is_named(top) && new.name.is_none();
                match (before == Kind::Absent, keeps_claim, is_forged) {
                    (true, ..) => What::StrangerCreates,
                    (false, true, _) if new.duration == 0 => What::Unsets,
                    (false, true, _) => What::EditsDuration,
                    (false, false, true) => return self.ends("a replica's name by hand"),
                    (false, false, false) if drops_name => What::DropsName,
                    (false, false, false) => What::Steals,
                }
            }
        };
        self.steps(index, Step { t: new.duration, ..step(what) });
    }
}

/// What runs, and who has a term.
impl Lawful {
    fn steps_in_term(&mut self, who: Who, step: Step) {
        match self.term(who) {
            Some((r, index)) => self.steps(index, Step { r, ..step }),
            None => self.refuse(format!("{who}: {}: it has no term", step.what.name())),
        }
    }

    /// Something of it runs as a leader under this token.
    pub fn runs(&mut self, who: Who, slot: Slot, token: u64) {
        let (Some(r), index) = (self.replica(who), usize::from(slot.0)) else { return };
        let law = &self.laws[index].law;
        if law.runs(r) {
            return;
        }
        if law.token(r) != token && self.over.is_none() {
            self.refuse(format!("{who}: 15 start: under {token}, and not {}", law.token(r)));
        }
        self.steps(index, Step { r, ..Step::of(What::Starts) });
    }

    /// Nothing of it runs any more.
    pub fn stops(&mut self, who: Who) {
        let Some(r) = self.replica(who) else { return };
        for index in 0..self.laws.len() {
            if self.laws[index].law.runs(r) {
                self.steps(index, Step { r, ..Step::of(What::Stops) });
            }
        }
    }

    fn replica(&self, who: Who) -> Option<usize> {
        self.replicas.get(&who).copied().filter(|_| self.over.is_none())
    }

    /// The slot in which this replica, or its init, has a term.
    fn term(&self, who: Who) -> Option<(usize, usize)> {
        let r = self.replica(who)?;
        let has_term = |one: &One| one.law.leads(r) != (false, false) || one.law.is_releasing(r);
        Some((r, self.laws.iter().position(has_term)?))
    }

    fn each(&mut self, r: usize, what: What) {
        for slot in 0..self.laws.len() {
            self.steps(slot, Step { r, ..Step::of(what) });
        }
    }

    fn steps(&mut self, slot: usize, step: Step) {
        if self.over.is_some() || self.wrong.is_some() {
            return;
        }
        let law = &mut self.laws[slot].law;
        let [turned, heard] = match self.electors.get(step.r) {
            Some(elector) if step.what.is_of_elector() => elector.looked,
            _ => [self.now; 2],
        };
        let allowed = law.allows_at(&step, heard).or_else(|first| {
            // At the other instant the same may be too early, which hides that nothing but what is assumed of others is amiss.
            law.allows_at(&step, turned).map_err(|other| if first.starts_with("assumed") { first } else { other })
        });
        match allowed {
            Ok(()) => {}
            Err(what) if what.starts_with("assumed") => *self.counts.exposed.entry(what).or_default() += 1,
            Err(what) => return self.refuse(format!("the law forbids {step:?}: {what}")),
        }
        law.take_at(&step, heard);
        self.counts.steps[step.what.place()] += 1;
        self.taken |= 1 << step.what.place();
    }

    fn refuse(&mut self, what: String) {
        if self.over.is_none() {
            self.wrong.get_or_insert(what);
        }
    }
}
