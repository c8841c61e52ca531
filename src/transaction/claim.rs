//! The journal as it is read, claimed and stored (rules 1, 2 and 5).

use std::mem;

use serde_json::{Value, json};

use super::{
    Entry, Journal, Outcome, Phase, Request, SECRET_TYPE, Server, Verb,
    driver::Driver,
    journal::{MOST_BYTES, fresh, hex, parse},
    paths::{as_map, entry_of},
    requests::uid,
};
use crate::election::record::later;

impl<S: Server> Driver<'_, S> {
    /// Reads the journal. Returns its entries. An absent one is made before it is stored.
    pub(super) async fn read(&mut self) -> Result<Vec<Entry>, Outcome> {
        let Some((secret, journal)) = self.fetch().await? else {
            self.secret = Value::Null;
            self.journal = fresh(self.kind, &mut self.random);
            self.claim = 1;
            return Ok(Vec::new());
        };
        let journal = self.of_kind(journal?)?;
        // A look has no term.
        if !self.settings.token.is_empty() && later(&journal.token, &self.settings.token) {
            let by = format!("{}, of a later term; if etcd was restored, `tenure recover forget` drops the journal", journal.by);
            return Err(Outcome::Superseded { by });
        }
        (self.secret, self.journal) = (secret, journal);
        self.claim = self.journal.claim + 1;
        self.begun.clone_from(&self.journal.began);
        Ok(mem::take(&mut self.journal.entries))
    }

    /// Checks that the journal is of this driver's kind, or takes on its kind. An empty one is of any kind.
    fn of_kind(&mut self, mut journal: Journal) -> Result<Journal, Outcome> {
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
        let Some(secret) = self.stored().await? else { return Ok(None) };
        let is_empty = secret["stringData"]["journal"].as_str().is_none_or(str::is_empty);
        let journal =
            if is_empty && secret["type"] == SECRET_TYPE { Ok(fresh(self.kind, &mut self.random)) } else { parse(&secret) };
        Ok(Some((secret, journal)))
    }

    /// Makes the Secret of an absent journal: empty, so that a refusal quotes nothing. Returns false if somebody else made it first.
    pub(super) async fn make_secret(&mut self) -> Result<bool, Outcome> {
        if !uid(&self.secret).is_empty() {
            return Ok(true);
        }
        let lease = self.settings.lease.clone();
        let metadata =
            json!({ "namespace": lease.namespace, "name": lease.journal(), "labels": { "tenure.dev/kind": "journal" } });
        let secret = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": SECRET_TYPE });
        let made = self.done(Request::Journal(lease, Verb::Create(secret.into())), None, "the journal").await?;
        self.secret = made.unwrap_or_default();
        Ok(!self.secret.is_null())
    }

    /// Returns the journal with these entries, under this driver's claim.
    ///
    /// # Errors
    /// No Secret can hold it.
    pub(super) fn drafted(&mut self, phase: Phase, entries: &[Entry]) -> Result<(Journal, String), Outcome> {
        let journal = Journal {
            nonce: hex(&mut self.random),
            phase,
            claim: self.claim,
            token: self.settings.token.clone(),
            by: self.settings.by.clone(),
            began: self.settings.began.clone(),
            entries: entries.to_vec(),
            ..self.journal.clone()
        };
        let text = serde_json::to_string(&journal).map_err(|error| Outcome::Invalid(error.to_string()))?;
        if text.len() > MOST_BYTES && phase == Phase::Prepared {
            let why = format!("the journal would have {} bytes, more than {MOST_BYTES}: split it", text.len());
            return Err(Outcome::Refused(why));
        }
        Ok((journal, text))
    }

    /// Stores the journal under this driver's claim. Returns false if somebody else wrote it first and that is a `race`. Where it is
    /// settled, marks are not live any more.
    pub(super) async fn store(&mut self, phase: Phase, entries: &[Entry], race: bool) -> Result<bool, Outcome> {
        let (mut journal, text) = self.drafted(phase, entries)?;
        journal.entries.clear();
        let secret = loop {
            let mut secret = self.secret.clone();
            as_map(entry_of(&mut secret, "stringData")).insert("journal".into(), text.clone().into());
            let request = Request::Journal(self.settings.lease.clone(), Verb::Replace(secret.into()));
            if let Some(secret) = self.done(request, None, "the journal").await? {
                break secret;
            }
            let (secret, stored) = self.fetch().await?.ok_or(Outcome::JournalGone)?;
            let stored = stored?;
            if stored.nonce == journal.nonce {
                break secret;
            }
            if race {
                return Ok(false);
            }
            if (&stored.id, stored.claim) != (&journal.id, journal.claim) {
                return Err(Outcome::Superseded { by: stored.by });
            }
            self.secret = secret;
        };
        (self.secret, self.journal) = (secret, journal);
        self.settled().await;
        Ok(true)
    }

    /// Takes the announcement of live marks off the Lease once the journal is settled. One that stays is taken off by the next driver.
    pub(super) async fn settled(&self) {
        if !self.journal.is_unsettled() {
            let _ = self.announce(None).await;
        }
    }
}
