//! Undoes the changes of a journal, this driver's own or an earlier one's (rule 8).

use serde_json::Value;

use super::{
    Entry, EntryType, Event, Fate, Outcome, Phase, Server, Write,
    driver::Driver,
    fields::{Side, comparable, differences, with},
    journal::{DONE, DOUBT, Mark, UNDONE, conflict},
    plan::{is_going, preconditions},
    requests::uid,
};
use crate::request::Answer;

/// The next step of an undo.
enum Step {
    Write(Write),
    /// The object is as before.
    Done,
    /// The object is left as it is.
    Leave(String),
}

impl<S: Server> Driver<'_, S> {
    /// Puts everything back, in reverse, and keeps in the journal what is in conflict or doubt. `own` entries were planned by this
    /// driver.
    pub(super) async fn back(&mut self, entries: &mut Vec<Entry>, own: bool, force: bool) -> Result<(), Outcome> {
        if self.journal.phase != Phase::Undoing {
            self.store(Phase::Undoing, entries, false).await?;
        }
        for entry in entries.iter_mut().rev() {
            // What was never sent is as it was found. An earlier driver may have sent it.
            let is_untouched = own && !entry.work.is_sent && !entry.work.is_taken;
            entry.state = if is_untouched { UNDONE.into() } else { self.put_back(entry, own, force).await? };
            if entry.state == DOUBT {
                // The object that it made is gone; another one would bear the mark.
                entry.uid.clear();
            }
            self.server.report(entry.met(match (entry.conflict(), entry.state.as_str()) {
                (Some(why), _) => Fate::Left(why.to_owned()),
                (None, DOUBT) => Fate::Doubtful,
                (None, _) => Fate::Undone,
            }));
        }
        entries.retain(Entry::is_open);
        self.store(Phase::Undone, entries, false).await?;
        Ok(())
    }

    /// Puts one object back. Returns the state of its entry.
    async fn put_back(&self, entry: &mut Entry, own: bool, force: bool) -> Result<String, Outcome> {
        let is_doubtful =
            entry.kind == EntryType::Create && (entry.work.is_unanswered || entry.state == DOUBT || !own && entry.state != DONE);
        let done = if is_doubtful { DOUBT } else { UNDONE }.to_owned();
        if entry.work.is_unanswered {
            self.fence(entry).await?;
        }
        loop {
            let object = self.look(&entry.target).await?;
            let live = self.live(object.as_ref()).await?;
            let write = match self.step(entry, object.as_ref(), live, force) {
                Step::Write(write) => write,
                Step::Done => {
                    let is_another = object.is_some_and(|object| uid(&object) != entry.uid);
                    if is_another && entry.kind != EntryType::Delete {
                        let what = "this one is somebody else's, and stays as it is".into();
                        self.server.report(Event::Warning { target: entry.target.clone(), what });
                    }
                    return Ok(done);
                }
                Step::Leave(why) => return Ok(conflict(&why)),
            };
            let is_creation = matches!(write, Write::Create(_));
            match self.write(&entry.target, write).await? {
                Answer::Object(object) if is_creation => uid(&object).clone_into(&mut entry.uid),
                Answer::Object(_) => return Ok(done),
                other @ (Answer::NotFound
                | Answer::Conflict
                | Answer::Refused { .. }
                | Answer::Unknown { .. }
                | Answer::Deleted
                | Answer::Listed { .. }) => self.again(other).await?,
            }
        }
    }

    /// Returns the state that an undo would give an entry now.
    pub(super) async fn outlook(&self, entry: &Entry, object: Option<&Value>) -> Result<String, Outcome> {
        let live = self.live(object).await?;
        Ok(match self.step(entry, object, live, false) {
            Step::Write(_) => String::new(),
            Step::Done if entry.state == DOUBT => DOUBT.into(),
            Step::Done => UNDONE.into(),
            Step::Leave(why) => conflict(&why),
        })
    }

    fn step(&self, entry: &Entry, object: Option<&Value>, live: Option<Mark>, force: bool) -> Step {
        let Some(object) = object else {
            return match entry.kind {
                EntryType::Patch | EntryType::Create => Step::Done,
                EntryType::Delete => Step::Write(self.creation(&entry.object)),
            };
        };
        if let Some(mark) = live {
            return Step::Leave(mark.to_string());
        }
        let is_mine = self.mine(object).is_some();
        let is_same = uid(object) == entry.uid;
        match entry.kind {
            EntryType::Create if is_mine || is_same => Step::Write(Write::Delete(preconditions(object, false))),
            EntryType::Create => Step::Done,
            EntryType::Delete if is_same && is_going(object) => Step::Leave("it is still being deleted".into()),
            EntryType::Delete if is_mine => Step::Write(self.patch(object, &[], Side::After, None)),
            EntryType::Delete if is_same || differences(&entry.object, object).is_empty() => Step::Done,
            EntryType::Delete => Step::Leave("somebody has made another".into()),
            EntryType::Patch if !is_same => Step::Done,
            EntryType::Patch if !is_mine && with(object, &entry.fields, Side::Before) == *object => Step::Done,
            EntryType::Patch => {
                let known = entry.unknown(&comparable(object), &[Side::Found, Side::After, Side::Before]);
                match known {
                    Some(field) if !force => Step::Leave(field),
                    Some(_) | None => Step::Write(self.patch(object, &entry.fields, Side::Before, None)),
                }
            }
        }
    }
}
