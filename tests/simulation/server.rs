//! The API server: the embedded server's own store, and the watches on it.

use serde_json::Value;
use tenure::{
    apiserver::{Change, Lease, Place, Preconditions, Rules, Status, Store},
    election::{Answer, Refusal, Request, Watched},
};

use crate::{
    clock::{Ns, S, US},
    engine::{Child, Engine, Event, Who},
    network::Road,
};

/// The Lease that all this is about.
pub const PLACE: Place<'static> = Place { namespace: "default", name: "lease" };

/// Microseconds since 1970 when the simulation begins, on the server's clock.
pub const EPOCH: i64 = 1_800_000_000_000_000;

/// See the module.
pub struct Server {
    store: Store,
    watches: Vec<Watch>,
}

struct Watch {
    child: Child,
    number: u64,
    /// What was sent so far.
    after: u64,
    /// The last event arrives then, or later.
    arrives: Ns,
}

/// How watches behave.
#[derive(Clone, Copy, Debug)]
pub struct WatchHabits {
    /// Share of events that never arrive.
    pub lossy: f64,
    /// Share of events that are overtaken.
    pub overtaken: f64,
    /// The longest delay of an event.
    pub delay: Ns,
}

impl Server {
    pub fn new(seed: u64) -> Self {
        Self { store: Store::new(Rules::default(), seed), watches: Vec::new() }
    }

    /// The Lease as it is.
    pub fn lease(&self) -> Option<&Value> {
        self.store.get(PLACE).ok().map(Lease::json)
    }

    /// Carries a request out.
    pub fn carry_out(&mut self, who: Who, me: &str, request: &Request, e: &mut Engine) -> Answer {
        let wall = wall(e.now);
        let before = self.store.version();
        let old = match request {
            Request::Get | Request::Delete { .. } => None,
            Request::Create(_) | Request::Replace(_) => self.lease().cloned(),
        };
        let done = match request {
            Request::Get => self.store.get(PLACE).map(|lease| Answer::Object(lease.json().clone())),
            Request::Create(object) => {
                decode(object).and_then(|lease| self.store.create(PLACE.namespace, lease, wall)).map(|lease| object_of(&lease))
            }
            Request::Replace(object) => {
                decode(object).and_then(|lease| self.store.replace(PLACE, lease, wall)).map(|(lease, created)| {
                    if created {
                        e.judge.fail(format!("{who} has created a Lease by a PUT"));
                    }
                    object_of(&lease)
                })
            }
            Request::Delete { uid, resource_version } => {
                let must = Preconditions { uid: Some(uid.clone()), version: Some(resource_version.clone()) };
                self.store.delete(PLACE, &must, wall).map(|_| Answer::Deleted)
            }
        };
        let changed = self.store.version() > before;
        self.judged(e);
        match done {
            Ok(Answer::Object(new)) if changed => {
                e.note(who, || format!("COMMITTED {} as {}", new["spec"], new["metadata"]["resourceVersion"]));
                e.judge.changed(who, me, old.as_ref(), &new);
                Answer::Object(new)
            }
            Ok(answer) => answer,
            Err(status) => refusal(&status),
        }
    }

    /// Somebody's edit of the Lease, if there is one.
    pub fn edit(&mut self, what: &str, edit: impl FnOnce(&mut Value), e: &mut Engine) {
        let Some(mut object) = self.lease().cloned() else { return };
        edit(&mut object);
        let Ok(lease) = decode(&object) else { return };
        if let Ok((lease, _)) = self.store.replace(PLACE, lease, wall(e.now)) {
            self.judged(e);
            e.note("nobody", || format!("EDITED ({what}): {} as {}", lease.json()["spec"], lease.version()));
        }
    }

    /// Somebody's DELETE.
    pub fn delete(&mut self, e: &mut Engine) {
        if self.store.delete(PLACE, &Preconditions::default(), wall(e.now)).is_ok() {
            self.judged(e);
            e.note("nobody", || format!("DELETED as {}", self.store.version()));
        }
    }

    fn judged(&self, e: &mut Engine) {
        e.judge.stands(self.lease(), self.store.version());
    }

    /// Watches from before are 410.
    pub fn compact(&mut self) {
        self.store.compact();
    }

    /// A watch begins.
    pub fn watch(&mut self, child: Child, number: u64, version: Option<&str>, road: &Road, habits: WatchHabits, e: &mut Engine) {
        self.watches.retain(|watch| watch.child != child);
        let after = version.and_then(|version| version.parse().ok());
        self.watches.push(Watch { child, number, after: after.unwrap_or_else(|| self.store.version()), arrives: 0 });
        if after.is_none()
            && let Some(lease) = self.lease()
        {
            let event = Watched::Changed(lease.clone());
            e.after(road.usual, Event::Watched(child, number, Box::new(event)));
        }
        self.feed(child, road, habits, e);
    }

    /// The watch of `child` ends.
    pub fn hang_up(&mut self, child: Child, broken: bool, e: &mut Engine) {
        if let Some(index) = self.watches.iter().position(|watch| watch.child == child) {
            let Watch { number, .. } = self.watches.swap_remove(index);
            let message = broken.then(|| "broke off".to_owned());
            let end = Watched::Ended { expired: false, forbidden: false, message };
            e.at(e.now, Event::Watched(child, number, Box::new(end)));
        }
    }

    /// Sends to the watch of `child` what it has not seen.
    pub fn feed(&mut self, child: Child, road: &Road, habits: WatchHabits, e: &mut Engine) {
        let Some(index) = self.watches.iter().position(|watch| watch.child == child) else { return };
        let Some(watch) = self.watches.get_mut(index) else { return };
        let Ok(changes) = self.store.changes_since(watch.after) else {
            let end = Watched::Ended { expired: true, forbidden: false, message: Some("410".into()) };
            e.at(e.now, Event::Watched(child, watch.number, Box::new(end)));
            self.watches.swap_remove(index);
            return;
        };
        for change in changes {
            watch.after = change.version;
            if e.chance(habits.lossy) {
                continue;
            }
            let Some(event) = event(change) else { continue };
            let Some(at) = road.down(e) else { continue };
            let at = at + e.spread(US, habits.delay);
            let at = if e.chance(habits.overtaken) { at + e.spread(US, 5 * S) } else { at.max(watch.arrives) };
            watch.arrives = watch.arrives.max(at);
            e.at(at, Event::Watched(child, watch.number, Box::new(event)));
        }
    }

    /// Who watches.
    pub fn watchers(&self) -> Vec<Child> {
        self.watches.iter().map(|watch| watch.child).collect()
    }

    /// Forgets the watches of a container that is gone.
    pub fn forget(&mut self, who: Who) {
        self.watches.retain(|watch| watch.child.who != who);
    }

    pub fn version(&self) -> u64 {
        self.store.version()
    }
}

fn wall(now: Ns) -> i64 {
    EPOCH + i64::try_from(now / US).unwrap_or_default()
}

fn decode(object: &Value) -> Result<Lease, Status> {
    Lease::decode(object)
}

fn object_of(lease: &Lease) -> Answer {
    Answer::Object(lease.json().clone())
}

fn refusal(status: &Status) -> Answer {
    match status.code {
        404 => Answer::NotFound,
        409 => Answer::Conflict,
        500.. => Answer::Unknown { message: status.message.clone(), retry_after: None },
        _ => Answer::Refused { refusal: Refusal::Invalid, message: status.message.clone() },
    }
}

fn event(change: &Change) -> Option<Watched> {
    if let Some(after) = &change.after {
        return Some(Watched::Changed(after.json().clone()));
    }
    let mut gone = change.before.as_ref()?.json().clone();
    gone["metadata"]["resourceVersion"] = change.version.to_string().into();
    Some(Watched::Deleted(gone))
}
