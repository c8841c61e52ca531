//! Makes the planned changes, each on the version that it was planned on (rule 6).

use serde_json::Value;

use super::{
    Entry, EntryType, Event, Fate, MANAGER, Outcome, Phase, Request, Server, Verb,
    driver::Driver,
    fields::{Side, body, comparable},
    journal::{DONE, DOUBT},
    paths::{at, covers, is_shared, managers},
    plan::unmet,
    requests::{deletion, is_going, set_mark, uid},
};
use crate::request::Answer;

/// How often a change is tried: others may write to the object all the time.
const TRIES: u32 = 9;

impl<S: Server> Driver<'_, S> {
    /// Makes all changes, and stores that. Returns their number.
    pub(super) async fn commit(&mut self, entries: &mut [Entry]) -> Result<usize, Outcome> {
        let mut made = 0;
        for entry in entries.iter_mut().filter(|entry| entry.state.is_empty() && entry.differs()) {
            if let Err(why) = self.change(entry).await {
                self.server.report(entry.met(Fate::Failed));
                return Err(why);
            }
            made += 1;
            let is_doubtful = entry.kind == EntryType::Create && entry.work.is_unanswered;
            (if is_doubtful { DOUBT } else { DONE }).clone_into(&mut entry.state);
            self.server.report(entry.met(Fate::Changed));
        }
        // What needed no change must still need none.
        for entry in entries.iter().filter(|entry| entry.state.is_empty()) {
            if !entry.stands(self.get(&entry.target).await?.as_ref()) {
                return Err(Outcome::Refused(format!("{} was changed meanwhile", entry.target)));
            }
        }
        self.go_on()?;
        self.store(Phase::Committed, entries, false).await?;
        Ok(made)
    }

    async fn change(&self, entry: &mut Entry) -> Result<(), Outcome> {
        for _ in 0..TRIES {
            self.go_on()?;
            let write = match entry.kind {
                EntryType::Patch => Self::patch(&entry.work.object, &entry.fields, Side::After, Some(self.mark())),
                EntryType::Create => self.creation(&entry.object),
                EntryType::Delete => deletion(&entry.work.object, false),
            };
            let answer = self.send(Request::Write(entry.target.clone(), write), self.acting_as.as_deref()).await;
            if matches!(answer, Answer::Unknown { .. }) {
                (entry.work.is_sent, entry.work.is_unanswered) = (true, true);
            }
            if let Some(object) = self.object(answer, &entry.target.to_string()).await? {
                entry.made(&object);
                return Ok(());
            }
            let object = self.look(&entry.target).await?;
            if self.is_made(entry, object.as_ref()).await? {
                if let Some(object) = &object {
                    entry.found(object);
                }
                return Ok(());
            }
            entry.work.object = object.unwrap_or_default();
        }
        Err(Outcome::Refused(format!("{} changes all the time", entry.target)))
    }

    /// Judges what a look found after a write that did not succeed: returns true if the change is made.
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
        let is_mine = self.mine(object) == Some(self.claim);
        if entry.kind == EntryType::Create {
            return if is_mine { Ok(true) } else { Err(refuse("was made by somebody else")) };
        }
        if uid(object) != entry.uid {
            return Err(refuse("was made anew"));
        }
        if let Some(why) = self.live(Some(object)).await? {
            return Err(Outcome::Held { target: entry.target.clone().into(), why });
        }
        if entry.kind == EntryType::Delete {
            let is_same = comparable(&entry.work.object) == comparable(object);
            return if is_same { Ok(is_going(object)) } else { Err(refuse("was changed by somebody else")) };
        }
        if is_mine && entry.unknown(object, &[Side::After]).is_none() {
            return Ok(true);
        }
        if let Some(why) = unmet(&entry.target, entry.work.require.as_ref(), Some(object)) {
            return Err(refuse(&why));
        }
        let unknown = entry.unknown(object, &[Side::Before, Side::After]);
        unknown.map_or(Ok(false), |field| Err(refuse(&format!("was changed by somebody else: {field}"))))
    }

    /// Describes the creation of an object, with the mark.
    pub(super) fn creation(&self, object: &Value) -> Verb {
        let mut object = comparable(object);
        set_mark(&mut object, Some(self.mark()));
        Verb::Create(object.into())
    }

    /// Takes the marks of this driver off, and warns of what others have changed meanwhile. A mark that stays is not live.
    pub(super) async fn unmark(&self, entries: &[Entry]) {
        for entry in entries.iter().filter(|entry| entry.differs() && entry.kind != EntryType::Delete) {
            let known = Some(entry.work.object.clone()).filter(Value::is_object);
            let object = match self.erase(&entry.target, known, self.claim).await {
                Ok(Some(object)) => object,
                Ok(None) => {
                    self.server.report(Event::Warning { target: entry.target.clone(), what: "it was deleted meanwhile".into() });
                    continue;
                }
                Err(_) => continue,
            };
            if let Some(field) = entry.unknown(&object, &[Side::After]) {
                let what = manager(&object).map_or_else(|| field.clone(), |manager| format!("{field}: {manager} has changed it"));
                self.server.report(Event::Warning { target: entry.target.clone(), what });
            }
        }
    }
}

impl Entry {
    /// Notes what a look found, because the answer was lost. If somebody has changed a created object since, an undo must leave it:
    /// the journal keeps what was sent.
    fn found(&mut self, object: &Value) {
        let sent = self.object.clone();
        let is_edited = self.kind == EntryType::Create && !self.is_as_sent(object);
        self.made(object);
        if is_edited {
            self.object = sent;
        }
    }

    /// Returns true if a created object has what was sent, and nothing of others.
    pub(super) fn is_as_sent(&self, object: &Value) -> bool {
        covers(&body(object), &body(&self.object)) && !is_shared(object, &[])
    }

    /// Notes what the change made of the object: the server may have derived more.
    fn made(&mut self, object: &Value) {
        match self.kind {
            EntryType::Create => {
                uid(object).clone_into(&mut self.uid);
                self.object = body(object);
            }
            EntryType::Patch => {
                self.fields.iter_mut().for_each(|field| field.after = at(object, &field.path).cloned());
            }
            EntryType::Delete => {}
        }
        self.work.is_sent = true;
        self.work.object = object.clone();
    }
}

/// Returns the field manager, other than tenure, that wrote last.
fn manager(object: &Value) -> Option<&str> {
    let others = managers(object).iter().filter(|entry| entry["manager"] != MANAGER);
    others.max_by_key(|entry| entry["time"].as_str())?["manager"].as_str()
}
