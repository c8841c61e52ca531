//! One process's driver of a transaction, and the order of its steps.
//!
//! Owns the journal as this driver stored or read it last. A driver that finds a later claim writes nothing more.

use std::mem;

use serde_json::Value;

use super::{
    Change, Entry, EntryType, Event, Field, Journal, Kind, Outcome, Phase, Server, Settings,
    journal::{UNDONE, conflict, fingerprint, fresh},
    paths::at,
};
use crate::time::Instant;

/// Makes all changes, or none.
pub async fn apply<S: Server>(server: &S, settings: Settings, changes: &[Change]) -> Outcome {
    Driver::new(server, settings, Kind::Transaction).make(changes).await.unwrap_or_else(|outcome| outcome)
}

/// Undoes the last transaction or promotion: an unfinished or a committed one. `force` overwrites what somebody else has changed.
pub async fn recover<S: Server>(server: &S, settings: Settings, force: bool) -> Outcome {
    Driver::recovery(server, settings).recover(force).await.unwrap_or_else(|outcome| outcome)
}

/// Makes the changes of a term in place of those of the term before. All are [`ChangeType::Patch`](super::ChangeType::Patch).
pub async fn promote<S: Server>(server: &S, settings: Settings, changes: &[Change]) -> Outcome {
    Driver::new(server, settings, Kind::Promotion).make(changes).await.unwrap_or_else(|outcome| outcome)
}

/// Undoes the promotion.
pub async fn demote<S: Server>(server: &S, settings: Settings) -> Outcome {
    Driver::new(server, settings, Kind::Promotion).recover(false).await.unwrap_or_else(|outcome| outcome)
}

/// Drops the journal and its marks, and restores nothing.
pub async fn forget<S: Server>(server: &S, settings: Settings) -> Outcome {
    Driver::recovery(server, settings).forget().await.unwrap_or_else(|outcome| outcome)
}

/// Returns the entries that an application would have now, and writes nothing.
///
/// # Errors
/// The outcome that an application would have now.
pub async fn preview<S: Server>(server: &S, settings: Settings, changes: &[Change], kind: Kind) -> Result<Vec<Entry>, Outcome> {
    let mut driver = Driver::new(server, settings, kind);
    let old = driver.read().await?;
    let undone = driver.undone_first(&old);
    driver.acting_as.clone_from(&driver.settings.acting_as);
    let mut entries = driver.plan(changes, if undone { &old } else { &[] }).await?;
    entries.retain(Entry::differs);
    entries.iter_mut().for_each(|entry| entry.fields.retain(Field::differs));
    Ok(entries)
}

/// Returns the entries of the journal. The state of each is what an undo would make of it now, and `after` of each field is its
/// present value. Writes nothing.
///
/// # Errors
/// The journal or an object cannot be read.
pub async fn survey<S: Server>(server: &S, settings: Settings) -> Result<Vec<Entry>, Outcome> {
    Driver::recovery(server, settings).survey().await
}

pub(super) struct Driver<'a, S> {
    pub(super) server: &'a S,
    pub(super) settings: Settings,
    pub(super) kind: Kind,
    /// The kind is that of the journal, and so is the user unless another is asked for.
    pub(super) is_recovery: bool,
    /// Takes any announcement off the Lease.
    pub(super) forgets: bool,
    /// The Secret as it was read or written last.
    pub(super) secret: Value,
    /// Its journal, without the entries.
    pub(super) journal: Journal,
    /// When the driver started that stored it before this one.
    pub(super) begun: String,
    /// The claim of this driver, from its first write of the journal on.
    pub(super) claim: u64,
    /// The user that changes the targets.
    pub(super) acting_as: Option<String>,
    /// No retry after this, and no change.
    pub(super) deadline: Instant,
    /// An undo goes on after a signal.
    pub(super) is_undoing: bool,
    pub(super) random: fastrand::Rng,
}

impl<'a, S: Server> Driver<'a, S> {
    fn new(server: &'a S, settings: Settings, kind: Kind) -> Self {
        let mut random = fastrand::Rng::with_seed(settings.seed);
        Self {
            server,
            kind,
            is_recovery: false,
            forgets: false,
            secret: Value::Null,
            journal: fresh(kind, &mut random),
            begun: String::new(),
            claim: 1,
            acting_as: None,
            deadline: server.now() + settings.limit,
            is_undoing: false,
            random,
            settings,
        }
    }

    fn recovery(server: &'a S, settings: Settings) -> Self {
        Self { is_recovery: true, ..Self::new(server, settings, Kind::Transaction) }
    }

    /// Acts from now on as the user who began what is in the journal.
    pub(super) fn act_as_before(&mut self) {
        let asked = if self.is_recovery { self.settings.acting_as.clone() } else { None };
        self.acting_as = asked.or_else(|| self.journal.acting_as.clone());
    }

    /// Makes the changes: rules 1 to 6, and 7 if they cannot all be made.
    async fn make(&mut self, changes: &[Change]) -> Result<Outcome, Outcome> {
        let intent = fingerprint(changes);
        let mut entries = loop {
            let Some(mut entries) = self.predecessor(&intent).await? else { return Ok(Outcome::Already) };
            self.acting_as.clone_from(&self.settings.acting_as);
            let planned = self.plan(changes, &[]).await?;
            if !planned.iter().any(Entry::differs) {
                return Ok(Outcome::Nothing);
            }
            // What stays from before is stored before the rest, and so undone after it.
            entries.extend(planned);
            if self.prepare(&entries, &intent).await? {
                break entries;
            }
        };
        self.server.report(Event::Prepared);
        match self.commit(&mut entries).await {
            Ok(changed) => {
                if self.kind == Kind::Transaction {
                    self.unmark(&entries).await;
                }
                Ok(Outcome::Committed(changed))
            }
            Err(why) if why.is_final() => Err(why),
            Err(why) => {
                let left = self.undo(entries, false).await?;
                stuck(&left).map_or_else(|| Ok(Outcome::Undone(Box::new(why))), Err)
            }
        }
    }

    /// Stores what undoes the changes, once their marks would be live (rule 5). Returns false if somebody else wrote the journal first.
    async fn prepare(&mut self, entries: &[Entry], intent: &str) -> Result<bool, Outcome> {
        if !self.make_secret().await? {
            return Ok(false);
        }
        intent.clone_into(&mut self.journal.intent);
        self.journal.acting_as.clone_from(&self.settings.acting_as);
        self.announce(Some(self.claim)).await?;
        self.store(Phase::Prepared, entries, true).await
    }

    /// Returns true if what the journal holds is undone before anything else: what is unsettled, and a promotion.
    fn undone_first(&self, entries: &[Entry]) -> bool {
        let is_first = self.journal.is_unsettled() || self.kind == Kind::Promotion && !entries.is_empty();
        if is_first {
            self.server.report(Event::Unfinished { by: self.journal.by.clone() });
        }
        is_first
    }

    /// Ends the last transaction (rule 3). Returns the entries that stay in the journal: those in conflict of a promotion, and those in
    /// doubt. None: it is the same one, and stands.
    async fn predecessor(&mut self, intent: &str) -> Result<Option<Vec<Entry>>, Outcome> {
        loop {
            let entries = self.read().await?;
            if self.undone_first(&entries) {
                if !self.store(Phase::Undoing, &entries, true).await? {
                    continue;
                }
                let left = self.undo(entries, false).await?;
                return if self.kind == Kind::Promotion { Ok(Some(left)) } else { stuck(&left).map_or(Ok(Some(left)), Err) };
            }
            self.settled().await;
            self.act_as_before();
            if self.journal.phase == Phase::Undone {
                return stuck(&entries).map_or_else(|| Ok(Some(self.doubtful(entries))), Err);
            }
            let mut stands = self.journal.intent == intent;
            // The driver that committed them may have died before it took its marks off.
            for entry in entries.iter().filter(|entry| entry.kind != EntryType::Delete || self.journal.intent == intent) {
                let object = self.erase(&entry.target, None, self.journal.claim).await.unwrap_or_default();
                stands = stands && entry.stands(object.as_ref());
            }
            return Ok(if stands { None } else { Some(self.doubtful(entries)) });
        }
    }

    /// Returns the entries that may still come.
    fn doubtful(&self, entries: Vec<Entry>) -> Vec<Entry> {
        entries.into_iter().filter(|entry| entry.may_come() && !self.is_late()).collect()
    }

    /// Rule 8.
    async fn recover(&mut self, force: bool) -> Result<Outcome, Outcome> {
        let entries = loop {
            let entries = self.read().await?;
            self.act_as_before();
            let mut is_open = self.journal.is_unsettled() || entries.iter().any(|entry| !entry.may_come());
            for entry in &entries {
                // A creation that has not come is no reason to write.
                is_open = is_open || self.get(&entry.target).await?.is_some_and(|object| self.mine(&object).is_some());
            }
            if !is_open {
                self.settled().await;
                return Ok(Outcome::Nothing);
            }
            if self.store(Phase::Undoing, &entries, true).await? {
                break entries;
            }
        };
        let undone = entries.len();
        let left = self.undo(entries, force).await?;
        stuck(&left).map_or(Ok(Outcome::Recovered(undone)), Err)
    }

    async fn forget(&mut self) -> Result<Outcome, Outcome> {
        self.forgets = true;
        loop {
            let Some((secret, journal)) = self.fetch().await? else {
                self.announce(None).await?;
                return Ok(Outcome::Nothing);
            };
            let changes = journal.as_ref().ok().map(|journal| journal.entries.len());
            self.secret = secret;
            // What cannot be read is replaced.
            self.journal = journal.unwrap_or_else(|_| fresh(self.kind, &mut self.random));
            self.act_as_before();
            self.claim = self.journal.claim + 1;
            let entries = mem::take(&mut self.journal.entries);
            if self.store(Phase::Undone, &[], true).await? {
                for entry in &entries {
                    // An object that may not be read keeps a mark that is not live.
                    let _ = self.erase(&entry.target, None, u64::MAX).await;
                }
                return Ok(if changes == Some(0) { Outcome::Nothing } else { Outcome::Forgotten { changes } });
            }
        }
    }

    async fn survey(&mut self) -> Result<Vec<Entry>, Outcome> {
        let Some((_, journal)) = self.fetch().await? else { return Ok(Vec::new()) };
        self.journal = journal?;
        let mut entries = mem::take(&mut self.journal.entries);
        self.act_as_before();
        entries.retain(Entry::differs);
        for entry in &mut entries {
            entry.fields.retain(Field::differs);
            let object = match self.get(&entry.target).await {
                Err(Outcome::Refused(why) | Outcome::NotPermitted(why)) => {
                    entry.state = conflict(&why);
                    continue;
                }
                object => object?,
            };
            entry.state = self.outlook(entry, object.as_ref()).await?;
            for field in &mut entry.fields {
                field.after = object.as_ref().and_then(|object| at(object, &field.path)).cloned();
                if entry.state == UNDONE {
                    field.before.clone_from(&field.after);
                }
            }
        }
        Ok(entries)
    }
}

/// Returns the outcome that names what is in conflict.
fn stuck(entries: &[Entry]) -> Option<Outcome> {
    let left = entries.iter().filter_map(|entry| Some((entry.target.clone(), entry.conflict()?.to_owned())));
    Some(left.collect::<Vec<_>>()).filter(|left| !left.is_empty()).map(Outcome::Stuck)
}
