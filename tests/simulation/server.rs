//! The API server: its register, what it does to requests, and its watches.

use std::sync::Arc;

use serde_json::Value;
use tenure::{
    apiserver::Place,
    election::{
        Answer, Request, WatchEnd, Watched,
        record::{LeaseRecord, Standing},
    },
};

use crate::{
    clock::{Ns, S, US},
    engine::{Child, Engine, Event, Who},
    network::Road,
    register::{Change, Register, Twin},
};

/// The simulation's only Lease.
pub const PLACE: Place<'static> = Place { namespace: "default", name: "lease" };

/// The server's clock when the simulation begins, in microseconds since 1970.
pub const EPOCH: i64 = 1_800_000_000_000_000;
/// The creation time of everything, which nobody looks at.
pub const CREATED: &str = "2027-01-15T08:00:00Z";

/// In one of this many worlds the embedded server's store runs beside the register.
const TWINS: u64 = 100;

/// See the module.
pub struct Server {
    register: Register,
    twin: Option<Twin>,
    watches: Vec<Watch>,
}

struct Watch {
    child: Child,
    number: u64,
    /// The version up to which everything was sent.
    after: u64,
    /// When the last event arrives, at the earliest.
    arrives: Ns,
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
}

/// How admission changes a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// Not at all.
    Sound,
    /// An acquisition gets a shorter duration than it asks for.
    Shortens,
    /// It keeps the existing spec, and adds a label.
    Reverts,
}

impl Server {
    pub fn new(seed: u64) -> Self {
        let twin = seed.is_multiple_of(TWINS).then(|| Twin::new(seed));
        Self { register: Register::new(), twin, watches: Vec::new() }
    }

    /// The Lease as it is.
    pub fn lease(&self) -> Option<&Value> {
        self.register.lease().map(Arc::as_ref)
    }

    /// Carries a request out.
    pub fn carry_out(&mut self, who: Who, me: &str, request: &Request, admission: Admission, e: &mut Engine) -> Answer {
        let before = self.register.version();
        let old = match request {
            Request::Get => None,
            Request::Create(_) | Request::Replace(_) | Request::Delete { .. } => self.register.lease().cloned(),
        };
        let admitted = self.admitted(request, admission);
        let request = admitted.as_ref().unwrap_or(request);
        let answer = self.register.carry_out(request);
        if let Some(twin) = &mut self.twin
            && let Some(difference) = twin.differs(request, &answer)
        {
            e.judge.fail(difference);
        }
        if self.register.version() == before {
            return answer;
        }
        match (&answer, old.as_deref(), request) {
            (Answer::Object(new), None, Request::Replace(_)) => {
                e.judge.fail(format!("{who} has created a Lease by a PUT: {new}"));
            }
            (Answer::Object(new), old, _) => {
                e.note(who, || format!("COMMITTED {} as {}", new["spec"], new["metadata"]["resourceVersion"]));
                if admitted.is_none() {
                    e.judge.changed(who, me, old, new, e.now);
                }
            }
            (_, Some(old), _) => e.judge.deleted(who, old),
            (_, None, _) => {}
        }
        self.judged(old.as_deref(), e);
        answer
    }

    fn admitted(&self, request: &Request, admission: Admission) -> Option<Request> {
        let (object, replaced) = match request {
            Request::Create(object) => (object, false),
            Request::Replace(object) => (object, true),
            Request::Get | Request::Delete { .. } => return None,
        };
        if admission == Admission::Sound {
            return None;
        }
        let mut object = Value::clone(object);
        match admission {
            Admission::Sound => {}
            Admission::Shortens => {
                // Whoever takes a Lease that was cleared or deleted waits, and announces that with its duration: shortening it is
                // not covered.
                let old = LeaseRecord::read(self.register.lease().cloned()?)?;
                let spec = &mut object["spec"];
                let duration = spec["leaseDurationSeconds"].as_i64().filter(|duration| *duration > 2)?;
                if spec["acquireTime"] != spec["renewTime"] || old.standing() == Standing::Free {
                    return None;
                }
                spec["leaseDurationSeconds"] = (duration / 2).max(2).into();
            }
            Admission::Reverts => {
                object["spec"] = self.lease().filter(|_| replaced)?["spec"].clone();
                object["metadata"]["labels"]["admitted"] = self.register.version().to_string().into();
            }
        }
        Some(if replaced { Request::Replace(object.into()) } else { Request::Create(object.into()) })
    }

    /// Somebody's edit of the Lease, if there is one.
    pub fn edit(&mut self, what: &str, edit: impl FnOnce(&mut Value), e: &mut Engine) {
        let Some(old) = self.register.lease().cloned() else { return };
        let mut object = Value::clone(&old);
        edit(&mut object);
        let object = Arc::new(object);
        let twin = self.twin.as_ref().map(|_| Arc::clone(&object));
        let answer = self.register.replace(object);
        if let (Some(twin), Some(object)) = (&mut self.twin, twin)
            && let Some(difference) = twin.differs_after_edit(object, &answer)
        {
            e.judge.fail(difference);
        }
        self.judged(Some(&*old), e);
        if let Answer::Object(lease) = answer {
            e.note("nobody", || format!("EDITED ({what}): {} as {}", lease["spec"], lease["metadata"]["resourceVersion"]));
        }
    }

    /// Somebody's DELETE.
    pub fn delete(&mut self, e: &mut Engine) {
        let old = self.register.lease().cloned();
        let answer = self.register.delete(None);
        if let Some(twin) = &mut self.twin
            && let Some(difference) = twin.differs_after_delete(&answer)
        {
            e.judge.fail(difference);
        }
        if answer == Answer::Deleted {
            self.judged(old.as_deref(), e);
            e.note("nobody", || format!("DELETED as {}", self.register.version()));
        }
    }

    fn judged(&self, old: Option<&Value>, e: &mut Engine) {
        e.judge.stands(old, self.lease(), self.register.version(), e.now);
    }

    /// Watches from earlier versions get 410.
    pub fn compact(&mut self) {
        self.register.compact();
    }

    /// A watch begins.
    pub fn watch(&mut self, child: Child, number: u64, version: Option<&str>, road: &Road, habits: WatchHabits, e: &mut Engine) {
        self.watches.retain(|watch| watch.child != child);
        let after = version.and_then(|version| version.parse().ok());
        self.watches.push(Watch { child, number, after: after.unwrap_or_else(|| self.register.version()), arrives: 0 });
        if after.is_none()
            && let Some(lease) = self.register.lease().cloned()
        {
            let event = Watched::Changed(lease);
            e.after(road.usual, Event::Watched(child, number, Box::new(event)));
        }
        self.feed(child, road, habits, e);
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
            let at = at + e.spread(US, habits.delay);
            let at = if e.chance(habits.overtaken) {
                at + e.spread(US, 5 * S)
            } else {
                watch.arrives = watch.arrives.max(at);
                watch.arrives
            };
            let Some(event) = event(change) else { continue };
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

fn event(change: &Change) -> Option<Watched> {
    if let Some(after) = &change.after {
        return Some(Watched::Changed(Arc::clone(after)));
    }
    let mut gone = Value::clone(change.before.as_deref()?);
    gone["metadata"]["resourceVersion"] = change.version.to_string().into();
    Some(Watched::Deleted(gone.into()))
}
