//! One process's driver of a transaction, and the order of its steps (rules 4 to 9).
//!
//! Owns the journal as this driver stored or read it last. A driver that finds a later claim writes nothing more.

use std::mem;

use serde_json::Value;

use super::{
    Change, Entry, Event, Journal, Kind, Outcome, Phase, Server, Settings,
    fields::{at, comparable},
    journal::{UNDONE, fingerprint, fresh},
};
use crate::time::Instant;

/// Makes all changes, or none.
pub async fn apply<S: Server>(server: &S, settings: Settings, changes: &[Change]) -> Outcome {
    Driver::new(server, settings, Kind::Transaction).make(changes).await.unwrap_or_else(|outcome| outcome)
}

/// Undoes the last transaction or promotion: an unfinished or a committed one. `force` overwrites also fields that somebody else has
/// changed.
pub async fn recover<S: Server>(server: &S, settings: Settings, force: bool) -> Outcome {
    Driver::recovery(server, settings).recover(force).await.unwrap_or_else(|outcome| outcome)
}

/// Makes the changes of a term in place of those of the term before. All are [`Verb::Patch`](super::Verb::Patch).
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
pub async fn preview<S: Server>(server: &S, settings: Settings, changes: &[Change]) -> Result<Vec<Entry>, Outcome> {
    let mut driver = Driver::new(server, settings, Kind::Transaction);
    driver.acting_as.clone_from(&driver.settings.acting_as);
    // Its own marks keep it from nothing, and it would go on with its own changes.
    let mut old = Vec::new();
    if let Ok(Some((_, Ok(mut journal)))) = driver.fetch().await {
        let entries = mem::take(&mut journal.entries);
        if journal.phase == Phase::Prepared && journal.intent == fingerprint(changes) {
            old = entries;
        }
        driver.journal = journal;
    }
    driver.plan(changes, &old).await
}

/// Returns the journal. The state of each entry is what an undo would make of it now, and `after` of each field is its present value.
/// Writes nothing. None: there is nothing to undo.
///
/// # Errors
/// The journal or an object cannot be read.
pub async fn survey<S: Server>(server: &S, settings: Settings) -> Result<Option<Journal>, Outcome> {
    Driver::recovery(server, settings).survey().await
}

pub(super) struct Driver<'a, S> {
    pub(super) server: &'a S,
    pub(super) settings: Settings,
    pub(super) kind: Kind,
    /// The kind is that of the journal, and so is the user unless another is asked for.
    pub(super) is_recovery: bool,
    /// The Secret as it was read or written last.
    pub(super) secret: Value,
    /// Its journal, without the entries.
    pub(super) journal: Journal,
    /// The claim of this driver, once it has stored the journal.
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
            secret: Value::Null,
            journal: fresh(kind, &mut random),
            claim: 0,
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

    /// Makes the changes: rules 1 to 7, and 8 if they cannot all be made.
    async fn make(&mut self, changes: &[Change]) -> Result<Outcome, Outcome> {
        let intent = fingerprint(changes);
        let mut entries = loop {
            let old = self.claim().await?;
            // The marks of a promotion stay: they tell the next one what it may put back.
            let is_over = (self.kind, self.journal.phase) == (Kind::Transaction, Phase::Committed);
            let marked = if is_over { old.clone() } else { Vec::new() };
            let old = self.predecessor(old, &intent).await?;
            self.acting_as = self.settings.acting_as.clone();
            match self.prepare(changes, &old, &marked, &intent).await {
                Ok(Some(entries)) if entries.is_empty() && !self.journal.is_unsettled() => return Ok(Outcome::Nothing),
                Ok(Some(entries)) => {
                    self.server.report(Event::Prepared);
                    break entries;
                }
                Ok(None) => {}
                Err(why) if self.journal.is_unsettled() && !why.is_final() => {
                    return self.undo(old, false, false).await.map(|_| why.undone());
                }
                Err(why) => return Err(why),
            }
        };
        match self.commit(changes, &mut entries).await {
            Ok(changed) => {
                if self.kind == Kind::Transaction {
                    self.unmark(&entries).await;
                }
                Ok(Outcome::Committed(changed))
            }
            Err(why) if why.is_final() => Err(why),
            Err(why) => self.undo(entries, true, false).await.map(|_| why.undone()),
        }
    }

    /// Plans the changes, and stores what undoes them. None: somebody else wrote the journal first.
    async fn prepare(
        &mut self,
        changes: &[Change],
        old: &[Entry],
        marked: &[Entry],
        intent: &str,
    ) -> Result<Option<Vec<Entry>>, Outcome> {
        let planned = self.plan(changes, old).await;
        // The driver that committed them may have died before it took its marks off.
        for Entry { target, .. } in marked {
            if !planned.iter().flatten().any(|entry| entry.target == *target) {
                self.erase(target, None, self.journal.claim).await?;
            }
        }
        let entries = planned?;
        if entries.is_empty() && !self.journal.is_unsettled() {
            return Ok(Some(entries));
        }
        let last = self.journal.clone();
        intent.clone_into(&mut self.journal.intent);
        self.journal.began.clone_from(&self.settings.began);
        self.journal.acting_as.clone_from(&self.settings.acting_as);
        let stored = self.store(Phase::Prepared, &entries, true).await;
        if stored.is_err() {
            // The last transaction is undone, as the user that began it.
            self.journal = last;
        }
        Ok(stored?.then_some(entries))
    }

    /// Decides what becomes of the last transaction (rule 4). Returns the entries that are taken on.
    async fn predecessor(&mut self, old: Vec<Entry>, intent: &str) -> Result<Vec<Entry>, Outcome> {
        let by = self.journal.by.clone();
        match (self.kind, self.journal.phase) {
            (Kind::Promotion, _) => Ok(old),
            (Kind::Transaction, Phase::Prepared) if self.journal.intent == intent => {
                self.server.report(Event::Unfinished { by, undone: false });
                Ok(old)
            }
            (Kind::Transaction, Phase::Prepared | Phase::Undoing) => {
                self.server.report(Event::Unfinished { by, undone: true });
                let deadline = self.deadline;
                let left = self.undo(old, false, false).await?;
                (self.deadline, self.is_undoing) = (deadline, false);
                Ok(left)
            }
            (Kind::Transaction, Phase::Committed) => Ok(old.into_iter().filter(Entry::may_come).collect()),
            (Kind::Transaction, Phase::Undone) => stuck(&old).map_or(Ok(old), Err),
        }
    }

    /// Rule 9.
    async fn recover(&mut self, force: bool) -> Result<Outcome, Outcome> {
        let entries = loop {
            let entries = self.claim().await?;
            if entries.is_empty() && !self.journal.is_unsettled() {
                return Ok(Outcome::Nothing);
            }
            if self.journal.is_unsettled() || self.store(Phase::Undoing, &entries, true).await? {
                break entries;
            }
        };
        let undone = entries.len();
        self.undo(entries, false, force).await?;
        Ok(Outcome::Recovered(undone))
    }

    async fn forget(&mut self) -> Result<Outcome, Outcome> {
        loop {
            let Some((secret, journal)) = self.fetch().await? else { return Ok(Outcome::Nothing) };
            let changes = journal.as_ref().ok().map(|journal| journal.entries.len());
            self.secret = secret;
            // What cannot be read is replaced.
            self.journal = journal.unwrap_or_else(|_| fresh(self.kind, &mut self.random));
            self.act_as_before();
            self.claim = self.journal.claim + 1;
            let entries = mem::take(&mut self.journal.entries);
            if self.store(Phase::Undone, &[], true).await? {
                for entry in &entries {
                    self.erase(&entry.target, None, u64::MAX).await?;
                }
                return Ok(if changes == Some(0) { Outcome::Nothing } else { Outcome::Forgotten { changes } });
            }
        }
    }

    async fn survey(&mut self) -> Result<Option<Journal>, Outcome> {
        let Some((_, journal)) = self.fetch().await? else { return Ok(None) };
        let mut journal = journal?;
        let mut entries = mem::take(&mut journal.entries);
        self.journal = journal.clone();
        self.act_as_before();
        for entry in &mut entries {
            let object = self.get(&entry.target).await?;
            entry.state = self.outlook(entry, object.as_ref()).await?;
            let current = object.as_ref().map(comparable).unwrap_or_default();
            for field in &mut entry.fields {
                field.after = at(&current, &field.path).cloned();
                if entry.state == UNDONE {
                    field.before.clone_from(&field.after);
                }
            }
        }
        Ok((!entries.is_empty()).then_some(Journal { entries, ..journal }))
    }

    /// Rule 8, with a limit of its own. Returns the entries that stay in the journal in doubt.
    async fn undo(&mut self, mut entries: Vec<Entry>, own: bool, force: bool) -> Result<Vec<Entry>, Outcome> {
        self.is_undoing = true;
        self.deadline = self.server.now() + self.settings.limit;
        self.act_as_before();
        match self.back(&mut entries, own, force).await {
            Ok(()) => stuck(&entries).map_or(Ok(entries), Err),
            Err(why) if why.is_final() => Err(why),
            Err(why) => {
                let left = entries.iter().filter(|entry| entry.state != UNDONE);
                Err(Outcome::Stuck(left.map(|entry| (entry.target.clone(), why.to_string())).collect()))
            }
        }
    }
}

/// Returns the outcome that names what is in conflict.
fn stuck(entries: &[Entry]) -> Option<Outcome> {
    let left = entries.iter().filter_map(|entry| Some((entry.target.clone(), entry.conflict()?.to_owned())));
    Some(left.collect::<Vec<_>>()).filter(|left| !left.is_empty()).map(Outcome::Stuck)
}
