//! Makes the planned changes, each on the version that it was planned on (rule 6).

use serde_json::{Value, json};

use super::{
    Entry, EntryType, Event, MANAGER, Outcome, Phase, Request, Server, State, Verb,
    driver::Driver,
    fields::{Field, Side, body, comparable, find_anew, note},
    paths::{covers, is_shared, is_tenures, managers, owners},
    plan::unmet,
    requests::{CHANGING, deletion, is_going, set_mark, uid},
};
use crate::request::Answer;

/// How often a change is tried: others may write to the object all the time.
pub(super) const TRIES: u32 = 9;

impl<S: Server> Driver<'_, S> {
    /// Makes all changes, and stores that. Returns their number.
    pub(super) async fn commit(&mut self, entries: &mut Vec<Entry>) -> Result<usize, Outcome> {
        let mut made = 0;
        while let Some(entry) = entries.iter_mut().find(|entry| entry.state == State::Planned && entry.differs()) {
            let stored = |entry: &Entry| json!(Entry { state: State::Planned, ..entry.clone() });
            let planned = stored(entry);
            let changed = self.change(entry).await;
            if let Ok(false) = changed {
                self.store(Phase::Prepared, entries, false).await?;
                continue;
            }
            if changed.is_ok() {
                entry.state = State::Changed;
            }
            self.server.report(entry.event());
            changed?;
            if entry.kind == EntryType::Create && entry.work.is_unanswered {
                entry.state = State::Doubtful;
            }
            let is_as_planned = stored(entry) == planned;
            made += 1;
            if !is_as_planned {
                // The answer tells what the server has made or allocated: an undo must know.
                self.store(Phase::Prepared, entries, false).await?;
            }
        }
        // What needed no change must still need none.
        for entry in entries.iter().filter(|entry| entry.state == State::Planned) {
            let object = self.get(&entry.target).await?;
            let changed = (!entry.stands(object.as_ref(), None)).then(|| "was changed meanwhile".to_owned());
            if let Some(why) = changed.or_else(|| entry.unmet(object.as_ref())) {
                return Err(Outcome::Refused(format!("{} {why}", entry.target)));
            }
        }
        self.go_on()?;
        take_over(entries);
        self.store(Phase::Committed, entries, false).await?;
        Ok(made)
    }

    /// Makes one change. Returns false if the journal is to be stored first, because what undoes the change is another now.
    async fn change(&self, entry: &mut Entry) -> Result<bool, Outcome> {
        let mut misses = 0;
        while entry.work.tries < TRIES {
            self.go_on()?;
            let write = match entry.kind {
                EntryType::Patch => Self::patch(&entry.work.object, &entry.fields, Side::After, Some(self.mark())),
                EntryType::Create => self.creation(&entry.work.wanted),
                EntryType::Delete => deletion(&entry.work.object, false),
            };
            let request = Request::Write(entry.target.clone(), write, MANAGER.into());
            let answer = self.send(&request).await;
            if matches!(answer, Answer::Unknown { .. }) {
                (entry.work.is_sent, entry.work.is_unanswered) = (true, true);
            } else if !request.is_sent_again(&answer) {
                entry.work.tries += 1;
            }
            let is_refused = answer == Answer::Conflict;
            if let Some(object) = self.object(answer, &request).await? {
                entry.made(&object, true);
                return Ok(true);
            }
            let object = self.look(&entry.target).await?;
            if self.is_made(entry, object.as_ref()).await? {
                if entry.kind == EntryType::Delete && !entry.work.is_unanswered {
                    // Somebody else has deleted it, or does, and no undo makes it again.
                    entry.object = Value::Null;
                } else if let Some(object) = &object {
                    entry.made(object, false);
                }
                return Ok(true);
            }
            entry.work.object = object.unwrap_or_default();
            let may_be_mine = entry.work.is_unanswered || self.mine(&entry.work.object) == Some(self.claim);
            if find_anew(&mut entry.fields, &entry.work.object, may_be_mine) {
                return Ok(false);
            }
            if is_refused {
                self.missed(&mut misses).await?;
            }
        }
        Err(Outcome::Refused(format!("{} {CHANGING}", entry.target)))
    }

    /// Judges what a look found after a write that did not succeed: returns true if the change is made.
    ///
    /// # Errors
    /// The change cannot be made any more.
    async fn is_made(&self, entry: &Entry, object: Option<&Value>) -> Result<bool, Outcome> {
        let live = self.live(object).await?;
        let is_mine = object.and_then(|object| self.mine(object)) == Some(self.claim);
        let why = match (entry.kind, object) {
            (EntryType::Patch, None) => "was deleted".to_owned(),
            (EntryType::Create, None) => return Ok(false),
            (EntryType::Delete, None) => return Ok(true),
            (EntryType::Create, Some(_)) if is_mine => return Ok(true),
            (EntryType::Create, Some(_)) => "was made by somebody else".to_owned(),
            (EntryType::Patch | EntryType::Delete, Some(object)) if uid(object) != entry.uid => "was made anew".to_owned(),
            (EntryType::Patch | EntryType::Delete, Some(_)) if live.is_some() => {
                return Err(Outcome::Held { target: entry.target.clone().into(), why: live.unwrap_or_default() });
            }
            (EntryType::Delete, Some(object)) => {
                let is_same = comparable(&entry.work.object) == comparable(object);
                if is_same && is_going(object) {
                    return Ok(true);
                }
                let changed = (!is_same).then(|| "was changed by somebody else".to_owned());
                let Some(why) = entry.unmet(Some(object)).or(changed) else { return Ok(false) };
                why
            }
            (EntryType::Patch, Some(object)) if is_mine && entry.unknown(object, &[Side::After]).is_none() => return Ok(true),
            (EntryType::Patch, Some(object)) if is_going(object) => "is being deleted".to_owned(),
            (EntryType::Patch, Some(object)) => {
                let unknown = entry.unknown(object, &[Side::Before, Side::After]);
                let unknown = unknown.map(|field| format!("was changed by somebody else: {field}"));
                let Some(why) = entry.unmet(Some(object)).or(unknown) else { return Ok(false) };
                why
            }
        };
        Err(Outcome::Refused(format!("{} {why}", entry.target)))
    }

    /// Describes the creation of an object, with the mark.
    pub(super) fn creation(&self, object: &Value) -> Verb {
        let mut object = comparable(object);
        set_mark(&mut object, Some(self.mark()));
        Verb::Create(object.into())
    }

    /// Takes the marks of this driver off, and warns of what others have changed meanwhile. A mark that stays is not live.
    pub(super) async fn unmark(&self, entries: &[Entry]) {
        let is_made = |entry: &&Entry| entry.differs() && entry.kind != EntryType::Delete && !entry.may_come();
        for entry in entries.iter().filter(is_made) {
            let known = Some(entry.work.object.clone()).filter(Value::is_object);
            let what = match self.erase(&entry.target, known, self.claim).await {
                Err(why) => Some(format!("its mark stays: {why}")),
                Ok(None) => Some("it was deleted meanwhile".to_owned()),
                Ok(Some(object)) => entry.strange(&object, &[Side::After]).map(|field| match manager(&object, field) {
                    Some(manager) => format!("{} is somebody else's: {manager} has changed it", field.name()),
                    None => format!("{} is somebody else's", field.name()),
                }),
            };
            if let Some(what) = what {
                self.server.report(Event::Said(format!("{}: {what}", entry.target)));
            }
        }
    }
}

impl Entry {
    /// Returns why an object does not meet what the change requires of it.
    fn unmet(&self, object: Option<&Value>) -> Option<String> {
        unmet(&self.target, self.work.require.as_ref(), object)
    }

    /// Returns true if a created object has what was sent, and nothing of others.
    pub(super) fn is_as_sent(&self, object: &Value) -> bool {
        covers(&body(object), &body(&self.object)) && !is_shared(object)
    }

    /// Notes what the change made of the object, by the answer or, where that was lost, by a look: the server may have derived more. If
    /// somebody has changed a created object before the look, an undo must leave it: the journal keeps what was sent.
    fn made(&mut self, object: &Value, is_answer: bool) {
        match self.kind {
            EntryType::Create => {
                uid(object).clone_into(&mut self.uid);
                if is_answer || self.is_as_sent(object) {
                    self.object = body(object);
                }
            }
            EntryType::Patch if is_answer => note(&mut self.fields, &self.work.object, object, false),
            // A look shows the fields as planned. What else it shows may be of others.
            EntryType::Patch | EntryType::Delete => {}
        }
        self.work.is_sent = true;
        self.work.object = object.clone();
    }
}

/// Gives the fields of patches that stay from before to those that have changed them again, the last first.
fn take_over(entries: &mut Vec<Entry>) {
    for at in (0..entries.len()).rev() {
        let Some((earlier, later)) = entries.get_mut(at..).and_then(<[Entry]>::split_first_mut) else { continue };
        let is_same =
            |entry: &&mut Entry| entry.conflict().is_none() && (&entry.target, &entry.uid) == (&earlier.target, &earlier.uid);
        if earlier.conflict().is_some()
            && let Some(later) = later.iter_mut().find(is_same)
        {
            later.take_over(earlier);
        }
    }
    entries.retain(|entry| entry.conflict().is_none() || entry.differs());
}

/// Returns the manager, other than tenure, that has this field. Of one that is gone it is whoever wrote last.
fn manager<'a>(object: &'a Value, field: &'a Field) -> Option<&'a str> {
    let is_other = |entry: &Value| !is_tenures(entry) && entry.get("subresource").is_none();
    let last = || managers(object).iter().filter(|entry| is_other(entry)).max_by_key(|entry| entry["time"].as_str());
    owners(object, &field.path, is_other).next().map_or_else(|| last()?["manager"].as_str(), |(manager, _)| Some(manager))
}
