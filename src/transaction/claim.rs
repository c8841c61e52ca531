//! The journal as it is read, claimed and stored, and how long it may be (rules 1, 2 and 5).

use std::mem;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde_json::json;

use super::{
    Entry, Event, Journal, Outcome, Phase, Request, SECRET_TYPE, Server, Verb,
    driver::Driver,
    journal::{MOST_BYTES, VERSION, hex, owned, parse},
    paths::{as_map, entry_of},
    requests::uid,
};
use crate::election::record::later;

impl<S: Server> Driver<'_, S> {
    /// Reads the journal. Returns its entries. An absent one is made before it is stored. An empty one is of any kind.
    pub(super) async fn read(&mut self) -> Result<Vec<Entry>, Outcome> {
        let secret = self.stored().await?.unwrap_or_default();
        let recover = |action| format!("`tenure recover {action} {}`", self.settings.flags);
        owned(&secret)?;
        let journal = parse(&secret).map_err(|why| Outcome::Invalid(format!("{why}; {} drops it", recover("forget"))))?;
        let kind = self.kind.unwrap_or(journal.kind);
        if journal.kind != kind && (journal.is_unsettled() || !journal.entries.is_empty()) {
            let why = "the journal is of the other kind: apply and promote need a Lease each";
            return Err(Outcome::Invalid(format!("{why}; {} undoes it", recover("apply"))));
        }
        // A look has no term.
        if !self.settings.token.is_empty() && later(&journal.token, &self.settings.token) {
            let forget = recover("forget");
            let by = format!("{}, of a later term; if etcd was restored, {forget} drops the journal", journal.by);
            return Err(Outcome::Superseded { by });
        }
        let journal = self.known(Journal { kind, ..journal });
        (self.secret, self.journal) = (secret, journal);
        self.claim = self.journal.claim + 1;
        let Journal { until, began, .. } = &self.journal;
        self.sent_until.clone_from(if until.is_empty() { began } else { until });
        Ok(mem::take(&mut self.journal.entries))
    }

    /// Gives a journal that was never stored what makes it one: the id that this driver has announced already, if any.
    pub(super) fn known(&mut self, journal: Journal) -> Journal {
        if !journal.id.is_empty() {
            return journal;
        }
        let announced = Some(&self.journal).filter(|mine| mine.nonce.is_empty() && !mine.id.is_empty());
        let id = announced.map_or_else(|| hex(&mut self.random), |mine| mine.id.clone());
        Journal { version: VERSION, id, ..journal }
    }

    /// Makes the Secret of an absent journal: empty, so that a refusal quotes nothing.
    pub(super) async fn make_secret(&mut self) -> Result<(), Outcome> {
        if uid(&self.secret).is_empty() {
            let lease = self.settings.lease.clone();
            let metadata =
                json!({ "namespace": lease.namespace, "name": lease.journal(), "labels": { "tenure.dev/kind": "journal" } });
            let secret = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": SECRET_TYPE });
            let made = self.ask(Request::Journal(lease, Verb::Create(secret.into()))).await?;
            self.secret = made.ok_or(Outcome::Overtaken)?;
        }
        Ok(())
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
            until: self.until(),
            entries: entries.to_vec(),
            ..self.journal.clone()
        };
        let text = serde_json::to_string(&journal).map_err(|error| Outcome::Invalid(error.to_string()))?;
        if text.len() > MOST_BYTES && phase == Phase::Prepared {
            let why = format!("the journal would have {} bytes, more than {MOST_BYTES}: split it", text.len());
            return Err(Outcome::Refused(why));
        }
        if let (Phase::Prepared, Err(why)) = (phase, serde_json::from_str::<Journal>(&text)) {
            return Err(Outcome::Refused(format!("the journal could not be read again: {why}")));
        }
        Ok((journal, text))
    }

    /// Stores the journal under this driver's claim, of which it may be the first write. Where it is settled, marks are not live any
    /// more.
    pub(super) async fn store(&mut self, phase: Phase, entries: &[Entry], is_first: bool) -> Result<(), Outcome> {
        let (mut journal, text) = self.drafted(phase, entries)?;
        journal.entries.clear();
        let mut misses = 0;
        let secret = loop {
            let mut secret = self.secret.clone();
            as_map(entry_of(&mut secret, "data")).insert("journal".into(), BASE64_STANDARD.encode(&text).into());
            let request = Request::Journal(self.settings.lease.clone(), Verb::Replace(secret.into()));
            if let Some(secret) = self.ask(request).await? {
                break secret;
            }
            let secret = self.stored().await?.ok_or(if is_first { Outcome::Overtaken } else { Outcome::JournalGone })?;
            let stored = parse(&secret)?;
            if stored.nonce == journal.nonce {
                break secret;
            }
            if is_first {
                return Err(Outcome::Overtaken);
            }
            self.keeps(stored)?;
            self.secret = secret;
            self.missed(&mut misses).await?;
        };
        (self.secret, self.journal) = (secret, journal);
        if phase == Phase::Committed {
            // Neither a signal nor the limit is a reason to leave marks, which keep others away.
            self.undoing_until = Some(self.server.now() + self.settings.limit);
        }
        self.settled().await;
        Ok(())
    }

    /// Stores that an undo begins. If the journal may not be written, everything stays as it is.
    pub(super) async fn begin_undo(&mut self, entries: &[Entry]) -> Result<(), Outcome> {
        if self.looks {
            return Ok(());
        }
        let stored = self.store(Phase::Undoing, entries, true).await;
        stored.map_err(|why| {
            let left = || entries.iter().map(|entry| (entry.target.clone(), why.to_string())).collect();
            if matches!(why, Outcome::Refused(_) | Outcome::Stopped) { Outcome::Stuck(left()) } else { why }
        })
    }

    /// Takes the announcement of live marks off the Lease once the journal is settled. One that stays is taken off by the next driver.
    pub(super) async fn settled(&self) {
        if !self.looks
            && !self.journal.is_unsettled()
            && let Err(why) = self.announce(false).await
        {
            let what = format!("Lease {} still announces its transaction: {why}", self.settings.lease);
            self.server.report(Event::Said(what));
        }
    }
}
