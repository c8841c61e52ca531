//! Undoes the changes of a journal, this driver's own or an earlier one's (rules 3 and 7). Owns for how long a POST may still
//! come, and what `recover plan` shows of an undo.

use serde_json::{Value, json};

use super::{
    Entry, EntryType, Event, Field, Kind, MANAGER, Outcome, Phase, Request, Server, State, UNDO_PREFIX, Verb,
    driver::Driver,
    fields::{Side, body, foreign, keeps_a_map, underived, with, without_nulls},
    holds_others,
    paths::{at, covers, is_of_undo, is_same_manager, managers},
    requests::{conflicting, deletion, is_going, towards, uid, versioned},
};
use crate::request::RequestError;

/// The next step of an undo.
enum Next {
    /// The object is made or deleted.
    Write(Verb),
    /// Its fields are put back, and its mark is taken off.
    PutBack,
    /// Marks the object, so that no write that is under way can commit.
    Fence,
    /// The object is as before.
    Done,
    /// The object that was changed is gone: nothing to put back.
    Gone(&'static str),
    /// The object is left as it is.
    Leave(String),
}

impl<S: Server> Driver<'_, S> {
    /// Undoes entries, with a limit of its own, as the user that made them. Returns those that stay in the journal: in conflict or
    /// in doubt.
    pub(super) async fn undo(&mut self, mut entries: Vec<Entry>, force: bool) -> Result<Vec<Entry>, Outcome> {
        if self.looks {
            // A signal ends a look; an undo goes on.
            entries.retain(Entry::differs);
            self.was_announced = self.announce(true).await.unwrap_or(false);
            self.put_all_back(&mut entries, force).await?;
            return Ok(entries);
        }
        self.undoing_until = Some(self.server.now() + self.settings.limit);
        let result = self.back(&mut entries, force).await;
        self.undoing_until = None;
        match result {
            Ok(()) => Ok(entries),
            Err(why) if why.is_final() => Err(why),
            Err(why) => {
                let is_back = |entry: &&Entry| matches!(entry.state, State::Undone | State::Gone(_)) || entry.may_come();
                let left = entries.iter().filter(|entry| !is_back(entry));
                let reason = |entry: &Entry| entry.conflict().cloned().unwrap_or_else(|| why.to_string());
                let left: Vec<_> = left.map(|entry| (entry.target.clone(), reason(entry))).collect();
                if left.is_empty() {
                    self.server.report(Event::Said(why.to_string()));
                }
                Err(Outcome::Stuck(left))
            }
        }
    }

    /// Puts everything back, in reverse, and keeps in the journal what is in conflict or doubt.
    async fn back(&mut self, entries: &mut Vec<Entry>, force: bool) -> Result<(), Outcome> {
        if self.journal.phase != Phase::Undoing {
            self.store(Phase::Undoing, entries, false).await?;
        }
        self.was_announced = self.announce(true).await?;
        let failures = self.put_all_back(entries, force).await?;
        // What is derived is known by its manager, until that is gone.
        if entries.iter().any(|entry| entry.state == State::Undone && entry.work.leaves_a_map) {
            self.store(Phase::Undoing, entries, false).await?;
        }
        // Before the journal is settled: whoever finds it then has nothing to give back.
        self.give_all_back(entries).await;
        entries.retain(Entry::is_open);
        // The next command tries this again before anything else. A leader may go on without, where the server has answered.
        let is_unsettled = |why: &RequestError| self.journal.kind == Kind::Transaction || why.status.is_none();
        if let Some(failure) = failures.into_iter().find(is_unsettled) {
            return match self.store(Phase::Undoing, entries, false).await {
                Err(why) if why.is_final() => Err(why),
                Ok(()) | Err(_) => Err(Outcome::Unavailable(failure)),
            };
        }
        self.store(Phase::Undone, entries, false).await
    }

    /// Puts the objects back, in reverse. One for which the server fails comes after the others, again and again until the limit: a
    /// webhook may judge it alone. Returns the failures of those that are left so.
    async fn put_all_back(&mut self, entries: &mut [Entry], force: bool) -> Result<Vec<RequestError>, Outcome> {
        let mut rest: Vec<&mut Entry> = entries.iter_mut().rev().collect();
        loop {
            let mut failed: Vec<(&mut Entry, RequestError, bool)> = Vec::new();
            for entry in rest {
                if self.is_untouched(entry) {
                    entry.state = State::Undone;
                    continue;
                }
                let is_late = self.go_on().is_err();
                // Changes of one object keep their order. Once the limit is over each has one try, until one fails.
                let before = failed.iter().find(|(other, _, was_late)| other.target == entry.target || is_late && *was_late);
                let state = match before {
                    Some((_, why, _)) => Err(Outcome::Unavailable(why.clone())),
                    None => {
                        self.defers = true;
                        let state = one(self.put_back(entry, force).await);
                        self.defers = false;
                        state
                    }
                };
                // A look ends where nobody answers.
                let is_late = is_late || self.looks && self.go_on().is_err();
                match state {
                    Err(Outcome::Unavailable(why)) => failed.push((entry, why, is_late)),
                    Err(Outcome::Stopped) => failed.push((entry, conflicting(), is_late)),
                    state => self.ended(entry, state?),
                }
            }
            if failed.is_empty() || self.go_on().is_err() {
                let left = failed.into_iter().map(|(entry, why, _)| {
                    // Of one that is there nothing else tells that it may be made once more.
                    let is_doubtful = entry.state == State::Doubtful && !entry.uid.is_empty() && !self.looks;
                    self.ended(entry, State::Left(why.to_string()));
                    if is_doubtful {
                        entry.state = State::Doubtful;
                    }
                    why
                });
                return Ok(left.collect());
            }
            rest = failed.into_iter().map(|(entry, ..)| entry).collect();
        }
    }

    /// Notes and reports the state in which an undo leaves an entry.
    fn ended(&self, entry: &mut Entry, state: State) {
        entry.state = state;
        if !self.looks {
            self.server.report(entry.event());
        }
    }

    /// Gives what is back to its managers, in reverse, each until the limit. Once that is over each has one try, until one fails.
    async fn give_all_back(&self, entries: &[Entry]) {
        let is_due = |entry: &&Entry| entry.state == State::Undone && !entry.managers.is_empty() && !self.is_untouched(entry);
        for entry in entries.iter().rev().filter(is_due) {
            let is_late = self.go_on().is_err();
            if self.give_back(entry).await.is_err() && is_late {
                return;
            }
        }
    }

    /// Returns true if an object is as it was found: nothing was sent, and no earlier driver may have sent it.
    fn is_untouched(&self, entry: &Entry) -> bool {
        entry.claim == self.claim && !entry.work.is_sent || !entry.differs()
    }

    /// Puts one object back. Returns the state of its entry.
    async fn put_back(&self, entry: &mut Entry, force: bool) -> Result<State, Outcome> {
        if entry.state == State::Undone {
            if self.looks {
                entry.show(self.look(&entry.target).await?.as_ref(), true);
            }
            return Ok(State::Undone);
        }
        entry.fields.retain(Field::differs);
        let is_own = entry.claim == self.claim;
        let is_doubtful = entry.kind == EntryType::Create
            && (entry.work.is_unanswered || entry.state == State::Doubtful || !is_own && entry.uid.is_empty());
        let done = if is_doubtful && (is_own || !self.is_late()) { State::Doubtful } else { State::Undone };
        let mut is_fenced = is_own && !entry.work.is_unanswered;
        let (undo, mut misses) = (self.undo_manager(entry), 0);
        loop {
            let object = self.look(&entry.target).await?;
            entry.work.leaves_a_map = object.as_ref().is_some_and(|object| keeps_a_map(&entry.fields, object));
            let object = object.map(|object| underived(object, &entry.fields, &undo));
            let live = self.live(object.as_ref()).await?;
            let next = self.step(entry, object.as_ref(), live, is_fenced, force);
            if self.looks {
                entry.show(object.as_ref(), matches!(next, Next::Done | Next::Gone(_)));
            }
            let found = object.unwrap_or_default();
            let (write, sent) = match next {
                Next::Write(_) | Next::PutBack if self.looks => return Ok(State::Planned),
                Next::Write(write) => (write, Value::Null),
                Next::PutBack => {
                    let sent = with(&found, &entry.fields, Side::Before);
                    (towards(&found, sent.clone(), None), sent)
                }
                Next::Fence => {
                    let fence = Self::patch(&found, &[], Side::Before, Some(self.mark()));
                    is_fenced = self.write(&entry.target, fence).await?.is_some();
                    if !is_fenced {
                        self.missed(&mut misses).await?;
                    }
                    continue;
                }
                Next::Gone(why) if done == State::Undone => return Ok(State::Gone(why.into())),
                // A copy may bear the mark too.
                Next::Gone(_) => return Ok(done),
                Next::Done => break,
                Next::Leave(why) => return Ok(State::Left(why)),
            };
            let is_creation = matches!(write, Verb::Create(_));
            entry.work.leaves_a_map = keeps_a_map(&entry.fields, &sent);
            let manager = if entry.work.leaves_a_map { &undo } else { MANAGER };
            let Some(object) = self.ask(Request::Write(entry.target.clone(), write, manager.into())).await? else {
                self.missed(&mut misses).await?;
                continue;
            };
            for field in entry.fields.iter().filter(|field| field.keeps_its_map(&sent) && field.is(Side::After, &object)) {
                self.server.report(Event::Said(format!("{}: the API server keeps {}", entry.target, field.name())));
            }
            let mut named = entry.fields.iter().filter(|field| !field.is(Side::Before, &object) && !field.keeps_its_map(&sent));
            // A merge patch cannot carry the nulls in a value.
            if without_nulls(&with(&object, &entry.fields, Side::Before)) != without_nulls(&object)
                && let Some(field) = named.next()
            {
                let why = format!("the API server makes something else of {}", field.name());
                if !force {
                    return Ok(State::Left(why));
                }
                self.server.report(Event::Said(format!("{}: {why}", entry.target)));
            }
            if entry.kind == EntryType::Delete && !is_creation {
                // It is as it was, and bears no mark any more.
                uid(&object).clone_into(&mut entry.uid);
            }
            if !is_creation {
                break;
            }
        }
        if done == State::Doubtful {
            // The object that it made is gone; another one would bear the mark.
            entry.uid.clear();
        }
        Ok(done)
    }

    fn step(&self, entry: &Entry, object: Option<&Value>, live: Option<String>, is_fenced: bool, force: bool) -> Next {
        let Some(object) = object else {
            return match entry.kind {
                EntryType::Delete => Next::Write(self.creation(&entry.object)),
                EntryType::Create => Next::Done,
                EntryType::Patch => Next::Gone("was deleted"),
            };
        };
        let is_mine = self.mine(object).is_some();
        // No request that is under way fits its version.
        let is_unchanged = self.was_announced
            && entry.kind == EntryType::Patch
            && entry.state == State::Planned
            && !is_mine
            && !entry.fields.iter().any(|field| field.is(Side::After, object));
        if is_unchanged && (live.is_some() || entry.unknown(object, &[Side::Before]).is_some()) {
            return Next::Gone("is somebody else's, and was not changed");
        }
        if let Some(why) = live {
            return Next::Leave(why);
        }
        let is_same = uid(object) == entry.uid;
        // Without the mark it may be of others, with other labels or annotations; their values a policy may have set anew.
        let has_names = |part| {
            let names = entry.object["metadata"][part].as_object();
            names.is_none_or(|names| names.keys().all(|name| object["metadata"][part].get(name).is_some()))
        };
        let has_metadata = || is_mine || ["labels", "annotations"].into_iter().all(has_names);
        let is_back = || is_same || covers(&body(object), &body(&entry.object)) && has_metadata();
        let still = if is_fenced || self.looks { Next::Done } else { Next::Fence };
        match entry.kind {
            EntryType::Create => self.unmake(entry, object, force),
            EntryType::Delete if is_same && is_going(object) => Next::Leave("it is still being deleted".into()),
            EntryType::Delete if !is_back() && !force => {
                Next::Leave(if is_mine { "it was made again, but not as it was" } else { "somebody has made another" }.into())
            }
            EntryType::Delete if is_mine => Next::PutBack,
            EntryType::Delete if !is_back() => Next::Gone("was made anew"),
            EntryType::Delete => still,
            EntryType::Patch if !is_same && !force && entry.unknown(object, &[Side::After]).is_none() => {
                Next::Leave("was made anew, with the same values".into())
            }
            EntryType::Patch if !is_same => Next::Gone("was made anew"),
            EntryType::Patch => {
                match entry.unknown(object, &[Side::Before, Side::After]).or_else(|| foreign(object, &entry.fields)) {
                    Some(field) if !force => Next::Leave(field),
                    None if !is_mine && entry.unknown(object, &[Side::Before]).is_none() => still,
                    Some(_) | None => Next::PutBack,
                }
            }
        }
    }

    /// Judges the object of a creation that is undone. A mark alone does not prove who made it: copies bear it too.
    fn unmake(&self, entry: &Entry, object: &Value, force: bool) -> Next {
        let is_done = !entry.uid.is_empty();
        let is_own = if is_done { uid(object) == entry.uid } else { self.mine(object) == Some(entry.claim) };
        // Before its answer was stored, the journal has only what was sent.
        let is_as_made = if is_done { body(object) == body(&entry.object) } else { entry.is_as_sent(object) };
        let why = match (is_own, is_as_made) {
            (false, _) if !is_done => return Next::Done,
            (false, _) if force => return Next::Gone("was made anew"),
            (false, _) => "this one is somebody else's",
            (true, _) if holds_others(&entry.target) => {
                "it stays, as others may have put something into it, which --force deletes too"
            }
            (true, false) => "somebody else has changed it",
            (true, true) => return Next::Write(deletion(object, false)),
        };
        if force { Next::Write(deletion(object, false)) } else { Next::Leave(why.into()) }
    }

    /// Gives the fields of an object that was put back to the managers that had them. A manager that has changed its part since keeps
    /// the new one.
    async fn give_back(&self, entry: &Entry) -> Result<(), Outcome> {
        let (undo, mut misses) = (self.undo_manager(entry), 0);
        let is_own = |manager: &Value| manager["manager"] == MANAGER || manager["manager"] == undo;
        // That undo is over, or still there.
        let old: Vec<&Value> = entry.managers.iter().filter(|old| !is_of_undo(old)).collect();
        loop {
            let Some(object) = self.look(&entry.target).await? else { return Ok(()) };
            let now = managers(&object);
            let is_new = |new: &&Value| {
                !is_own(new)
                    && old.iter().all(|old| {
                        // Times are whole seconds.
                        !is_same_manager(old, new) || old["time"] != new["time"] || !covers(&old["fieldsV1"], &new["fieldsV1"])
                    })
            };
            let new: Vec<&Value> = now.iter().filter(is_new).collect();
            let kept = old.iter().filter(|old| !new.iter().any(|new| is_same_manager(old, new)));
            let next: Vec<&Value> = kept.chain(&new).copied().collect();
            if uid(&object) != entry.uid || !now.iter().any(is_own) {
                return Ok(());
            }
            let patch = versioned(json!({ "metadata": { "managedFields": next } }), &object);
            if self.write(&entry.target, Verb::Merge(patch.into())).await?.is_some() {
                return Ok(());
            }
            self.missed(&mut misses).await?;
        }
    }

    /// Returns the field manager of an undo of this entry that leaves a map to others.
    fn undo_manager(&self, entry: &Entry) -> String {
        format!("{UNDO_PREFIX}{}-{}", self.journal.id, entry.claim)
    }

    /// Returns true if the journal is so old that no request of its drivers can be under way any more.
    pub(super) fn is_late(&self) -> bool {
        let times = [&self.settings.began, &self.sent_until].map(|time| time.parse::<jiff::Timestamp>());
        let [Ok(now), Ok(until)] = times else { return false };
        now.duration_since(until) >= jiff::SignedDuration::from_mins(5)
    }

    /// The time until which this driver may send anything, by the wall clock at its start.
    pub(super) fn until(&self) -> String {
        let limit = self.undoing_until.unwrap_or(self.deadline).since(self.settings.started);
        let until = |began: jiff::Timestamp| began.checked_add(limit).unwrap_or(jiff::Timestamp::MAX).to_string();
        self.settings.began.parse().map_or_else(|_| String::new(), until)
    }
}

impl Entry {
    /// Shows its fields as they are: `after` becomes the present value, and so does `before` where nothing is put back.
    fn show(&mut self, object: Option<&Value>, is_back: bool) {
        for field in &mut self.fields {
            field.after = object.and_then(|object| at(object, &field.path)).cloned();
            if is_back || object.is_some_and(|object| field.has_lost_its_item(object)) {
                field.before.clone_from(&field.after);
            }
        }
    }
}

/// What the server refuses concerns this object only.
fn one(state: Result<State, Outcome>) -> Result<State, Outcome> {
    match state {
        Err(Outcome::Refused(why) | Outcome::NotPermitted(why)) => Ok(State::Left(why)),
        state => state,
    }
}
