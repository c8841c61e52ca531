//! The claim of a driver on its journal, and the fence of its targets (rules 1 to 3).

use std::{mem, sync::Arc};

use serde_json::{Value, json};

use super::{
    Entry, EntryType, Journal, Outcome, Phase, Place, Request, SECRET_TYPE, Server, Storing,
    driver::Driver,
    fields::Side,
    journal::{MOST_BYTES, Work, conflict, fresh, hex, parse},
    requests::{refused, uid},
};
use crate::{election::record::later, request::Answer};

impl<S: Server> Driver<'_, S> {
    /// Reads the journal; claims it and fences its targets if it is unsettled (rules 1 to 3). Returns its entries.
    pub(super) async fn claim(&mut self) -> Result<Vec<Entry>, Outcome> {
        let mut entries = loop {
            let entries = self.read().await?;
            self.claim = self.journal.claim + 1;
            if !self.journal.is_unsettled() {
                return Ok(entries);
            }
            if self.store(self.journal.phase, &entries, true).await? {
                break entries;
            }
        };
        self.act_as_before();
        for entry in &mut entries {
            if let Err(why) = self.fence(entry).await {
                return Err(if why.is_final() { why } else { Outcome::Stuck(vec![(entry.target.clone(), why.to_string())]) });
            }
        }
        Ok(entries)
    }

    /// Moves the version of an entry's object, so that no write that is under way can commit.
    pub(super) async fn fence(&self, entry: &mut Entry) -> Result<(), Outcome> {
        loop {
            let Some(object) = self.look(&entry.target).await? else { return Ok(()) };
            let mine = self.mine(&object);
            if uid(&object) != entry.uid {
                if entry.kind != EntryType::Create || mine.is_none() {
                    return Ok(());
                }
                entry.uid = uid(&object).to_owned();
            }
            if let Some(mark) = self.live(Some(&object)).await? {
                entry.state = conflict(&mark.to_string());
                return Ok(());
            }
            entry.work.was_marked.get_or_insert_with(|| mine.is_some());
            if mine == Some(self.claim) {
                return Ok(());
            }
            let touch = self.patch(&object, &[], Side::After, Some(self.mark()));
            let answer = self.write(&entry.target, touch).await?;
            if matches!(answer, Answer::Object(_)) {
                return Ok(());
            }
            self.again(answer).await?;
        }
    }

    /// Reads the journal. Returns its entries. An absent one is made when it is stored.
    async fn read(&mut self) -> Result<Vec<Entry>, Outcome> {
        let Some((secret, journal)) = self.fetch().await? else {
            let Place { namespace, name } = &self.settings.journal;
            let metadata = json!({ "namespace": namespace, "name": name, "labels": { "tenure.dev/kind": "journal" } });
            self.secret = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": SECRET_TYPE });
            self.journal = fresh(self.kind, &mut self.random);
            return Ok(Vec::new());
        };
        let journal = self.of_kind(journal?)?;
        if later(&journal.token, &self.settings.token) {
            let by = format!("{}, of a later term; if etcd was restored, `tenure recover forget` drops the journal", journal.by);
            return Err(Outcome::Superseded { by });
        }
        (self.secret, self.journal) = (secret, journal);
        let mut entries = mem::take(&mut self.journal.entries);
        for entry in &mut entries {
            entry.work = Work { is_taken: true, ..Work::default() };
        }
        Ok(entries)
    }

    /// Checks that the journal is of this driver's kind, or takes on its kind. An empty one is of any kind.
    pub(super) fn of_kind(&mut self, mut journal: Journal) -> Result<Journal, Outcome> {
        if self.is_recovery {
            self.kind = journal.kind;
        } else if journal.kind != self.kind && (journal.is_unsettled() || !journal.entries.is_empty()) {
            let why = "the journal is of the other kind: apply and promote need a Lease each";
            return Err(Outcome::Invalid(why.into()));
        }
        journal.kind = self.kind;
        Ok(journal)
    }

    /// Reads this driver's journal. None: it is absent.
    pub(super) async fn fetch(&mut self) -> Result<Option<(Value, Result<Journal, Outcome>)>, Outcome> {
        let Some(secret) = self.stored(&self.settings.journal).await? else { return Ok(None) };
        let is_empty = secret["stringData"]["journal"].as_str().is_none_or(str::is_empty);
        let journal =
            if is_empty && secret["type"] == SECRET_TYPE { Ok(fresh(self.kind, &mut self.random)) } else { parse(&secret) };
        Ok(Some((secret, journal)))
    }

    /// Stores the journal under this driver's claim. Returns false if somebody else wrote it first and that is a `race`.
    pub(super) async fn store(&mut self, phase: Phase, entries: &[Entry], race: bool) -> Result<bool, Outcome> {
        let mut journal = Journal {
            nonce: hex(&mut self.random),
            phase,
            claim: self.claim,
            token: self.settings.token.clone(),
            by: self.settings.by.clone(),
            entries: entries.to_vec(),
            ..self.journal.clone()
        };
        let text = serde_json::to_string(&journal).map_err(|error| Outcome::Invalid(error.to_string()))?;
        if text.len() > MOST_BYTES && phase == Phase::Prepared {
            return Err(Outcome::Refused(format!(
                "the journal would have {} bytes, more than {MOST_BYTES}: split it",
                text.len()
            )));
        }
        journal.entries.clear();
        loop {
            let mut secret = self.secret.clone();
            secret["stringData"] = json!({ "journal": text });
            let is_new = uid(&secret).is_empty();
            let storing = if is_new { Storing::Create(secret) } else { Storing::Replace(secret) };
            match self.send(Request::Journal(self.settings.journal.clone(), storing), None).await? {
                Answer::Object(secret) => {
                    (self.secret, self.journal) = (Arc::unwrap_or_clone(secret), journal);
                    return Ok(true);
                }
                Answer::Refused { message, .. } => return Err(refused("the journal", message)),
                other @ (Answer::NotFound
                | Answer::Conflict
                | Answer::Unknown { .. }
                | Answer::Deleted
                | Answer::Listed { .. }) => self.again(other).await?,
            }
            let (secret, stored) = match self.fetch().await? {
                Some((secret, stored)) => (secret, stored?),
                None if is_new => continue,
                None => return Err(Outcome::JournalGone),
            };
            if stored.nonce == journal.nonce {
                (self.secret, self.journal) = (secret, journal);
                return Ok(true);
            }
            if race {
                return Ok(false);
            }
            if (&stored.id, stored.claim) != (&journal.id, journal.claim) {
                return Err(Outcome::Superseded { by: stored.by });
            }
            self.secret = secret;
        }
    }
}
