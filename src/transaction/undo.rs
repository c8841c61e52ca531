//! Undoes the changes of a journal, this driver's own or an earlier one's (rules 3 and 7).

use serde_json::{Value, json};

use super::{
    Entry, EntryType, Fate, Field, MANAGER, Outcome, Phase, Server, Verb,
    driver::Driver,
    fields::{Side, body},
    holds_others,
    journal::{DOUBT, UNDONE, conflict},
    paths::{covers, managers},
    requests::{deletion, is_going, uid, versioned},
};

/// The next step of an undo.
enum Step {
    Write(Verb),
    /// Marks the object, so that no write that is under way can commit.
    Fence,
    /// The object is as before.
    Done,
    /// The object is left as it is.
    Leave(String),
}

impl<S: Server> Driver<'_, S> {
    /// Undoes entries, with a limit of its own, as the user that made them. Returns those that stay in the journal: in conflict or
    /// in doubt.
    pub(super) async fn undo(&mut self, mut entries: Vec<Entry>, force: bool) -> Result<Vec<Entry>, Outcome> {
        let (deadline, user) = (self.deadline, self.acting_as.clone());
        self.is_undoing = true;
        self.deadline = self.server.now() + self.settings.limit;
        self.act_as_before();
        let result = self.back(&mut entries, force).await;
        (self.deadline, self.acting_as, self.is_undoing) = (deadline, user, false);
        match result {
            Ok(()) => Ok(entries),
            Err(why) if why.is_final() => Err(why),
            Err(why) => {
                let left = entries.iter().filter(|entry| entry.state != UNDONE);
                Err(Outcome::Stuck(left.map(|entry| (entry.target.clone(), why.to_string())).collect()))
            }
        }
    }

    /// Puts everything back, in reverse, and keeps in the journal what is in conflict or doubt.
    async fn back(&mut self, entries: &mut Vec<Entry>, force: bool) -> Result<(), Outcome> {
        if self.journal.phase != Phase::Undoing {
            self.store(Phase::Undoing, entries, false).await?;
        }
        self.announce(Some(self.claim)).await?;
        for entry in entries.iter_mut().rev() {
            // What was never sent is as it was found. An earlier driver may have sent it.
            let is_untouched = entry.claim == self.claim && !entry.work.is_sent || !entry.differs();
            entry.state = if is_untouched { UNDONE.into() } else { self.put_back(entry, force).await? };
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
        // Before the journal is settled: whoever finds it then has nothing to give back.
        for entry in entries.iter().filter(|entry| entry.state == UNDONE && !entry.managers.is_empty() && entry.differs()) {
            let _ = self.give_back(entry).await;
        }
        entries.retain(Entry::is_open);
        self.store(Phase::Undone, entries, false).await?;
        Ok(())
    }

    /// Puts one object back. Returns the state of its entry. What the server refuses concerns this object only.
    async fn put_back(&self, entry: &mut Entry, force: bool) -> Result<String, Outcome> {
        entry.fields.retain(Field::differs);
        match self.tried(entry, force).await {
            Err(why @ (Outcome::Refused(_) | Outcome::NotPermitted(_))) => Ok(conflict(&why.to_string())),
            result => result,
        }
    }

    async fn tried(&self, entry: &mut Entry, force: bool) -> Result<String, Outcome> {
        let is_own = entry.claim == self.claim;
        let is_doubtful = entry.kind == EntryType::Create
            && (entry.work.is_unanswered || entry.state == DOUBT || !is_own && entry.uid.is_empty());
        let done = if is_doubtful && (is_own || !self.is_late()) { DOUBT } else { UNDONE }.to_owned();
        let mut is_fenced = is_own && !entry.work.is_unanswered;
        loop {
            let object = self.look(&entry.target).await?;
            let live = self.live(object.as_ref()).await?;
            let write = match self.step(entry, object.as_ref(), live, is_fenced, force) {
                Step::Write(write) => write,
                Step::Fence => {
                    let object = object.unwrap_or_default();
                    let fence = Self::patch(&object, &[], Side::Before, Some(self.mark()));
                    is_fenced = self.write(&entry.target, fence).await?.is_some();
                    continue;
                }
                Step::Done => return Ok(done),
                Step::Leave(why) => return Ok(conflict(&why)),
            };
            let is_creation = matches!(write, Verb::Create(_));
            let Some(object) = self.write(&entry.target, write).await? else { continue };
            if entry.kind == EntryType::Delete {
                // This driver or an earlier one has made it again.
                uid(&object).clone_into(&mut entry.uid);
            }
            if !is_creation {
                return Ok(done);
            }
        }
    }

    /// Returns the state that an undo would give an entry now.
    pub(super) async fn outlook(&self, entry: &Entry, object: Option<&Value>) -> Result<String, Outcome> {
        let live = self.live(object).await?;
        Ok(match self.step(entry, object, live, true, false) {
            Step::Write(_) | Step::Fence => String::new(),
            Step::Done if entry.state == DOUBT => DOUBT.into(),
            Step::Done => UNDONE.into(),
            Step::Leave(why) => conflict(&why),
        })
    }

    fn step(&self, entry: &Entry, object: Option<&Value>, live: Option<String>, is_fenced: bool, force: bool) -> Step {
        let Some(object) = object else {
            return match entry.kind {
                EntryType::Patch | EntryType::Create => Step::Done,
                EntryType::Delete => Step::Write(self.creation(&entry.object)),
            };
        };
        if let Some(why) = live {
            return Step::Leave(why);
        }
        let is_mine = self.mine(object).is_some();
        let is_same = uid(object) == entry.uid;
        let still = if is_fenced { Step::Done } else { Step::Fence };
        match entry.kind {
            EntryType::Create => self.unmake(entry, object, force),
            EntryType::Delete if is_same && is_going(object) => Step::Leave("it is still being deleted".into()),
            EntryType::Delete if is_mine => Step::Write(Self::patch(object, &[], Side::Before, None)),
            EntryType::Delete if !is_same && !covers(&body(object), &body(&entry.object)) => {
                Step::Leave("somebody has made another".into())
            }
            EntryType::Delete => still,
            EntryType::Patch if !is_same => Step::Done,
            EntryType::Patch => match entry.unknown(object, &[Side::Before, Side::After]) {
                Some(field) if !force => Step::Leave(field),
                None if !is_mine && entry.unknown(object, &[Side::Before]).is_none() => still,
                Some(_) | None => Step::Write(Self::patch(object, &entry.fields, Side::Before, None)),
            },
        }
    }

    /// Judges the object of a creation that is undone. A mark alone does not prove who made it: copies bear it too.
    fn unmake(&self, entry: &Entry, object: &Value, force: bool) -> Step {
        let is_done = !entry.uid.is_empty();
        let is_own = if is_done { uid(object) == entry.uid } else { self.mine(object) == Some(entry.claim) };
        // Before its answer was stored, the journal has only what was sent.
        let is_as_made = if is_done { body(object) == body(&entry.object) } else { entry.is_as_sent(object) };
        let why = match (is_own, is_as_made) {
            (false, _) if !is_done => return Step::Done,
            (false, _) => "this one is somebody else's",
            (true, _) if holds_others(&entry.target.api_version, &entry.target.kind) => {
                "it stays, as others may have put something into it"
            }
            (true, false) => "somebody else has changed it",
            (true, true) => return Step::Write(deletion(object, false)),
        };
        if force { Step::Write(deletion(object, false)) } else { Step::Leave(why.into()) }
    }

    /// Gives the fields of an object that was put back to the managers that had them. A manager that has changed its part since keeps
    /// the new one.
    async fn give_back(&self, entry: &Entry) -> Result<(), Outcome> {
        loop {
            let Some(object) = self.look(&entry.target).await? else { return Ok(()) };
            let is_own = |manager: &Value| manager["manager"] == MANAGER;
            let key = |manager: &Value| ["manager", "operation", "subresource", "apiVersion"].map(|key| manager[key].clone());
            let now = managers(&object);
            let newer = |old: &Value| {
                now.iter().find(|new| !is_own(new) && key(new) == key(old) && new["time"] != old["time"]).unwrap_or(old).clone()
            };
            let is_new = |new: &&Value| !is_own(new) && entry.managers.iter().all(|old| key(old) != key(new));
            let next: Vec<Value> = entry.managers.iter().map(newer).chain(now.iter().filter(is_new).cloned()).collect();
            if uid(&object) != entry.uid || !now.iter().any(is_own) || now == next {
                return Ok(());
            }
            let patch = versioned(json!({ "metadata": { "managedFields": next } }), &object);
            if self.write(&entry.target, Verb::Merge(patch.into())).await?.is_some() {
                return Ok(());
            }
        }
    }

    /// Returns true if the journal is so old that no request of its drivers can be under way any more.
    pub(super) fn is_late(&self) -> bool {
        let times = [&self.settings.began, &self.begun].map(|time| time.parse::<jiff::Timestamp>());
        let [Ok(now), Ok(begun)] = times else { return false };
        now.duration_since(begun) >= jiff::SignedDuration::from_mins(5)
    }
}
