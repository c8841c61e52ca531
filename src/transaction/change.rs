//! Makes the planned changes, each on the version that it was planned on (rule 7).

use serde_json::Value;

use super::{
    Change, Entry, EntryType, Event, Fate, Outcome, Phase, Server, Write,
    driver::Driver,
    fields::{Side, at, comparable, contains, differences, with},
    journal::{DONE, DOUBT},
    plan::{is_going, preconditions},
    requests::{refused, set_mark, uid},
};
use crate::request::Answer;

/// How often a change is tried: others may write to the object all the time.
const TRIES: u32 = 9;

impl<S: Server> Driver<'_, S> {
    /// Makes all changes that are not made or left as they are, and stores that. Returns their number.
    pub(super) async fn commit(&mut self, changes: &[Change], entries: &mut [Entry]) -> Result<usize, Outcome> {
        for entry in entries.iter_mut().filter(|entry| entry.state.is_empty()) {
            if let Err(why) = self.change(entry).await {
                self.server.report(entry.met(Fate::Failed));
                return Err(why);
            }
            let is_doubtful = entry.kind == EntryType::Create && entry.work.is_unanswered;
            (if is_doubtful { DOUBT } else { DONE }).clone_into(&mut entry.state);
            self.server.report(entry.met(Fate::Changed));
        }
        // What needed no change must still need none.
        for change in changes.iter().filter(|change| entries.iter().all(|entry| entry.target != change.target)) {
            if self.plan_change(change, None, changes, false).await?.is_some() {
                return Err(Outcome::Refused(format!("{} was changed meanwhile", change.target)));
            }
        }
        self.go_on()?;
        self.store(Phase::Committed, entries, false).await?;
        Ok(entries.iter().filter(|entry| entry.conflict().is_none()).count())
    }

    async fn change(&self, entry: &mut Entry) -> Result<(), Outcome> {
        for _ in 0..TRIES {
            self.go_on()?;
            let write = match entry.kind {
                EntryType::Patch => self.patch(&entry.work.object, &entry.fields, Side::After, Some(self.mark())),
                EntryType::Create => self.creation(&entry.object),
                EntryType::Delete => Write::Delete(preconditions(&entry.work.object, false)),
            };
            match self.write(&entry.target, write).await? {
                Answer::Object(object) => {
                    entry.made(&object);
                    return Ok(());
                }
                Answer::Refused { message, .. } => return Err(refused(&entry.target.to_string(), message)),
                Answer::NotFound | Answer::Conflict | Answer::Deleted | Answer::Listed { .. } => {}
                unknown @ Answer::Unknown { .. } => {
                    (entry.work.is_sent, entry.work.is_unanswered) = (true, true);
                    self.again(unknown).await?;
                }
            }
            let object = self.look(&entry.target).await?;
            if self.is_made(entry, object.as_ref()).await? {
                if let Some(object) = &object {
                    entry.made(object);
                }
                return Ok(());
            }
            entry.work.object = object.unwrap_or_default();
        }
        Err(Outcome::Refused(format!("{} changes all the time", entry.target)))
    }

    /// Judges what a look found after a write that did not succeed: returns whether the change is made.
    ///
    /// # Errors
    /// The change cannot be made any more.
    async fn is_made(&self, entry: &Entry, object: Option<&Value>) -> Result<bool, Outcome> {
        let refuse = |why: &str| Outcome::Refused(format!("{} {why}", entry.target));
        let Some(object) = object else {
            return match entry.kind {
                EntryType::Patch => Err(refuse("was deleted")),
                EntryType::Create => Ok(false),
                EntryType::Delete => Ok(true),
            };
        };
        let mine = self.mine(object);
        if entry.kind == EntryType::Create {
            return mine.map(|_| true).ok_or_else(|| refuse("was made by somebody else"));
        }
        if uid(object) != entry.uid {
            return Err(refuse("was made anew"));
        }
        if let Some(mark) = self.live(Some(object)).await? {
            return Err(Outcome::Held { target: entry.target.clone().into(), mark: mark.to_string() });
        }
        if entry.kind == EntryType::Delete {
            let is_same = differences(&entry.object, object).is_empty();
            return if is_same { Ok(is_going(object)) } else { Err(refuse("was changed by somebody else")) };
        }
        if mine == Some(self.claim) && with(object, &entry.fields, Side::After) == *object {
            return Ok(true);
        }
        if let Some(require) = &entry.work.require
            && !contains(Some(object), require)
        {
            return Err(refuse("is not as required"));
        }
        let unknown = entry.unknown(&comparable(object), &[Side::Found, Side::After]);
        unknown.map_or(Ok(false), |field| Err(refuse(&format!("was changed by somebody else: {field}"))))
    }

    /// Describes the creation of an object, with the mark.
    pub(super) fn creation(&self, object: &Value) -> Write {
        let mut object = comparable(object);
        set_mark(&mut object, Some(self.mark()));
        Write::Create(object)
    }

    /// Takes the marks of this driver off, and warns of what others have changed meanwhile. A mark that stays is not live.
    pub(super) async fn unmark(&self, entries: &[Entry]) {
        for entry in entries.iter().filter(|entry| entry.conflict().is_none() && entry.kind != EntryType::Delete) {
            let known = Some(entry.work.object.clone()).filter(Value::is_object);
            let Ok(Some(object)) = self.erase(&entry.target, known, self.claim).await else { continue };
            if let Some(field) = entry.unknown(&comparable(&object), &[Side::After]) {
                let what = manager(&object).map_or_else(|| field.clone(), |manager| format!("{field}: {manager} has changed it"));
                self.server.report(Event::Warning { target: entry.target.clone(), what });
            }
        }
    }
}

impl Entry {
    /// Notes what the change made of the object: a webhook may have changed it further.
    fn made(&mut self, object: &Value) {
        if self.kind == EntryType::Create {
            uid(object).clone_into(&mut self.uid);
        }
        self.work.is_sent = true;
        self.work.object = object.clone();
        let current = comparable(object);
        for field in self.fields.iter_mut().filter(|field| !field.is_any(&current, &[Side::After])) {
            field.after = at(&current, &field.path).cloned();
        }
    }
}

/// Returns the field manager, other than tenure, that wrote last.
fn manager(object: &Value) -> Option<&str> {
    let managers = object["metadata"]["managedFields"].as_array()?.iter();
    let others = managers.filter(|entry| entry["manager"] != "tenure");
    others.max_by_key(|entry| entry["time"].as_str())?["manager"].as_str()
}
