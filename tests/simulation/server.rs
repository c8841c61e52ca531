//! The API server: its register, what it does to requests, and its watches.

use std::sync::Arc;

use serde_json::Value;
use tenure::{
    apiserver::register::Change,
    election::writes::{STEP_DOWN, Sent},
    request::{Answer, Refusal, WatchEnd, Watched},
    slot::Slot,
};
use tenure_world::reading::State;

use crate::{
    clock::{Ns, S, US},
    engine::{Child, Engine, Event, Who},
    nemesis::Fault,
    network::Road,
    register::{Leases, Request, Start, is_shown, name_of, shown},
};

/// The server's clock when the simulation begins, in microseconds since 1970.
pub const EPOCH: i64 = 1_800_000_000_000_000;

pub struct Server {
    register: Leases,
    /// How many Leases the replicas look for.
    slots: u8,
    /// The Lease that people edit.
    pub edited: Slot,
    /// No list is allowed until then.
    pub lists_forbidden: Ns,
    watches: Vec<Watch>,
}

struct Watch {
    child: Child,
    number: u64,
    /// The version up to which everything was sent.
    after: u64,
    /// When the last event arrives, at the earliest.
    arrives: Ns,
    /// By how much the server's cache is behind.
    lag: Ns,
}

/// How watches behave.
#[derive(Clone, Copy, Debug)]
pub struct WatchHabits {
    /// Fraction of events that never arrive.
    pub lossy: f64,
    /// Fraction of events that are overtaken.
    pub overtaken: f64,
    /// The longest delay of an event.
    pub delay: Ns,
    /// By how much the cache of the second API server is behind: what it has not seen is not in its watches.
    pub lag: Ns,
}

/// How admission changes a write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Admission {
    /// Not at all.
    #[default]
    Sound,
    /// An acquisition gets a shorter duration than it asks for.
    Shortens,
    /// The existing spec is kept, and a label is added.
    Reverts,
}

impl Server {
    pub fn new(start: Start, slots: u8) -> Self {
        Self { register: Leases::new(start, slots), slots, edited: Slot(0), lists_forbidden: 0, watches: Vec::new() }
    }

    /// The Lease that people edit.
    pub fn lease(&self) -> Option<&Value> {
        self.register.lease(self.edited).map(Arc::as_ref)
    }

    /// The Lease of this slot.
    pub fn lease_of(&self, slot: Slot) -> Option<Arc<Value>> {
        self.register.lease(slot).cloned()
    }

    /// Carries a request for the Lease of this slot out.
    pub fn carry_out(
        &mut self,
        slot: Slot,
        who: Who,
        me: &str,
        request: &Request,
        admission: Admission,
        e: &mut Engine,
    ) -> Answer {
        if *request == Request::List && e.now < self.lists_forbidden {
            return Answer::Refused { refusal: Refusal::Forbidden, message: "403".into() };
        }
        let before = self.register.version();
        let old = match request {
            Request::Get | Request::List => None,
            Request::Write(_) => self.register.lease(slot).cloned(),
        };
        let admitted = self.admitted(slot, request, admission);
        let request = admitted.as_ref().unwrap_or(request);
        let answer = self.register.carry_out(slot, request);
        if self.register.version() == before {
            return answer;
        }
        match (&answer, old.as_deref(), request) {
            (Answer::Object(new), None, Request::Write(Sent::Replace(_))) => {
                e.judge.fail(format!("{who} has created a Lease by a PUT: {new}"));
            }
            (Answer::Object(new), old, _) => {
                e.note(who, || format!("COMMITTED {} as {}", new["spec"], new["metadata"]["resourceVersion"]));
                if admitted.is_none() {
                    e.judge.changed(slot, who, me, old, new, e.now);
                } else if let Some(holder) = new["metadata"]["annotations"][STEP_DOWN].as_str() {
                    e.judge.asks(holder);
                }
            }
            (_, Some(old), _) => e.judge.deleted(slot, who, old),
            (_, None, _) => {}
        }
        self.judged(slot, old.as_deref(), e);
        answer
    }

    fn admitted(&self, slot: Slot, request: &Request, admission: Admission) -> Option<Request> {
        let (object, replaced) = match request {
            Request::Write(Sent::Create(object)) => (object, false),
            Request::Write(Sent::Replace(object)) => (object, true),
            Request::Get | Request::List | Request::Write(Sent::Delete { .. }) => return None,
        };
        if admission == Admission::Sound {
            return None;
        }
        let mut object = Value::clone(object);
        match admission {
            Admission::Sound => {}
            Admission::Shortens => {
                // Whoever takes a Lease that was cleared or deleted waits, and announces that with its duration: shortening it is
                // not covered. Nor is shortening that of a holder, whose first spec a request to hand over repeats.
                let old = self.register.lease(slot)?;
                let spec = &mut object["spec"];
                let duration = spec["leaseDurationSeconds"].as_i64().filter(|duration| *duration > 2)?;
                let acquires = spec["acquireTime"] == spec["renewTime"] && spec["acquireTime"] != old["spec"]["acquireTime"];
                if !acquires || State::of(old) == State::Free {
                    return None;
                }
                spec["leaseDurationSeconds"] = (duration / 2).max(2).into();
            }
            Admission::Reverts => {
                object["spec"] = self.register.lease(slot).filter(|_| replaced)?["spec"].clone();
                object["metadata"]["labels"]["admitted"] = self.register.version().to_string().into();
            }
        }
        Some(Request::Write(if replaced { Sent::Replace(object.into()) } else { Sent::Create(object.into()) }))
    }

    /// Somebody's edit of the Lease, if there is one; returns whether it changed anything.
    pub fn edit(&mut self, what: &str, edit: impl FnOnce(&mut Value), e: &mut Engine) -> bool {
        self.changed(|register, slot| register.edit(slot, edit), |now| format!("EDITED ({what}): {now}"), e)
    }

    /// Somebody's DELETE.
    pub fn delete(&mut self, e: &mut Engine) -> bool {
        self.changed(Leases::delete, |now| format!("DELETED: {now}"), e)
    }

    fn changed(&mut self, change: impl FnOnce(&mut Leases, Slot), what: impl FnOnce(&Value) -> String, e: &mut Engine) -> bool {
        let (old, before) = (self.register.lease(self.edited).cloned(), self.register.version());
        change(&mut self.register, self.edited);
        let changed = self.register.version() > before;
        if changed {
            self.judged(self.edited, old.as_deref(), e);
            e.note("nobody", || what(self.lease().map_or(&Value::Null, |lease| &lease["spec"])));
        }
        changed
    }

    fn judged(&self, slot: Slot, old: Option<&Value>, e: &mut Engine) {
        e.judge.stands(slot, old, self.register.lease(slot).map(Arc::as_ref), self.register.version(), e.now);
    }

    /// Watches from earlier versions get 410.
    pub fn compact(&mut self) {
        self.register.compact();
    }

    /// A watch begins, after the version that was asked for or after an earlier one: without one, it begins with a state.
    pub fn watch(&mut self, child: Child, number: u64, version: Option<&str>, road: &Road, habits: WatchHabits, e: &mut Engine) {
        self.watches.retain(|watch| watch.child != child);
        let after = version.and_then(|version| version.parse().ok());
        self.watches.push(Watch { child, number, after: after.unwrap_or_else(|| self.register.version()), arrives: 0, lag: 0 });
        match e.rng.u8(..16) {
            0 => self.rewind(child, 0, e),
            1 => self.rewind(child, habits.lag, e),
            _ => {}
        }
        let Some(watch) = self.watches.last() else { return };
        for slot in (0..self.slots).map(Slot).filter(|_| after.is_none()) {
            if let Some(lease) = self.lease_at(slot, watch.after).filter(|lease| is_shown(lease, self.slots)) {
                let event = Watched::Changed(lease);
                e.after(road.usual + watch.lag, Event::Watched(child, number, Box::new(event)));
            }
        }
        self.feed(child, road, habits, e);
    }

    /// The Lease as it was at this version, as far as that is known.
    fn lease_at(&self, slot: Slot, version: u64) -> Option<Arc<Value>> {
        let later = self.register.changes_since(version).and_then(|mut changes| changes.find(|change| is_of(change, slot)));
        later.map_or_else(|| self.register.lease(slot), |change| change.before.as_ref()).cloned()
    }

    /// The watch of `child` begins again some versions ago, at a server that is behind by this much.
    pub fn rewind(&mut self, child: Child, lag: Ns, e: &mut Engine) {
        let fault = if lag > 0 { Fault::SecondServer } else { Fault::StaleWatch };
        if let Some(watch) = self.watches.iter_mut().find(|watch| watch.child == child) {
            (watch.after, watch.lag) = (watch.after.saturating_sub(e.rng.u64(1..=5)), lag);
            e.count(fault);
        }
    }

    /// The watch of `child` ends.
    pub fn hang_up(&mut self, child: Child, broken: bool, e: &mut Engine) {
        if let Some(index) = self.watches.iter().position(|watch| watch.child == child) {
            let Watch { number, .. } = self.watches.swap_remove(index);
            let end = Watched::Ended(if broken { WatchEnd::Failed("broke off".into()) } else { WatchEnd::Closed });
            e.at(e.now, Event::Watched(child, number, Box::new(end)));
        }
    }

    /// Sends to the watch of `child` what it has not seen yet.
    pub fn feed(&mut self, child: Child, road: &Road, habits: WatchHabits, e: &mut Engine) {
        let Some(index) = self.watches.iter().position(|watch| watch.child == child) else { return };
        let Some(watch) = self.watches.get_mut(index) else { return };
        let Some(changes) = self.register.changes_since(watch.after) else {
            let end = Watched::Ended(WatchEnd::Failed("410".into()));
            e.at(e.now, Event::Watched(child, watch.number, Box::new(end)));
            self.watches.swap_remove(index);
            return;
        };
        for change in changes {
            watch.after = change.version;
            if e.chance(habits.lossy) {
                continue;
            }
            let Some(at) = road.down(e) else { continue };
            let at = at + e.spread(US, habits.delay) + watch.lag;
            let at = if e.chance(habits.overtaken) {
                at + e.spread(US, 5 * S)
            } else {
                watch.arrives = watch.arrives.max(at);
                watch.arrives
            };
            let Some(event) = shown(change, self.slots) else { continue };
            e.at(at, Event::Watched(child, watch.number, Box::new(event)));
        }
    }

    /// The processes with a watch.
    pub fn watchers(&self) -> Vec<Child> {
        self.watches.iter().map(|watch| watch.child).collect()
    }

    /// Forgets the watches of a container that is gone.
    pub fn forget(&mut self, who: Who) {
        self.watches.retain(|watch| watch.child.who != who);
    }

    pub fn version(&self) -> u64 {
        self.register.version()
    }
}

fn is_of(change: &Change, slot: Slot) -> bool {
    change.before.iter().chain(&change.after).any(|lease| lease["metadata"]["name"] == name_of(slot))
}
