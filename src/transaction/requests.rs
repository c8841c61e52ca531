//! The requests of a driver, their retries, and what they are judged by (rule 0).

use std::{sync::Arc, time::Duration};

use serde_json::{Value, json};

use super::{
    Event, Field, Journal, MANAGER, MARK, Outcome, Place, Request, Server, Target, Verb,
    driver::Driver,
    fields::{Side, merge_patch, with},
    journal::{mark_of, parse},
    paths::{as_map, entry_of},
};
use crate::{
    election::{
        record::LeaseRecord,
        writes::{
            JOURNAL,
            operator::{self, Edit},
        },
    },
    request::{Answer, RequestError},
};

/// The pause before a request is sent again.
pub(super) const PAUSE: Duration = Duration::from_millis(200);
/// Writes of one object that meet another version are repeated at once so often.
const MISSES: u32 = 3;
/// Why a write is not tried again.
pub(super) const CHANGING: &str = "changes all the time, or each request is refused as a conflict";
/// A server that asks for a longer one is asked again after this.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

impl<S: Server> Driver<'_, S> {
    /// Reads a target, and then whether the journal still shows this driver's claim. In this order: a later driver writes to the
    /// target after this read.
    pub(super) async fn look(&self, target: &Target) -> Result<Option<Value>, Outcome> {
        let object = self.get(target).await?;
        if self.looks {
            return Ok(object);
        }
        let stored = parse(&self.stored().await?.ok_or(Outcome::JournalGone)?)?;
        self.keeps(stored)?;
        Ok(object)
    }

    /// Checks that a stored journal is still that of this driver's claim.
    ///
    /// # Errors
    /// It is another driver's, or was emptied.
    pub(super) fn keeps(&self, stored: Journal) -> Result<(), Outcome> {
        match (stored.id.as_str(), stored.claim) {
            // Nobody has claimed an empty one: it is as good as deleted.
            ("", _) => Err(Outcome::JournalGone),
            claimed if claimed == (self.journal.id.as_str(), self.claim) => Ok(()),
            _ => Err(Outcome::Superseded { by: stored.by }),
        }
    }

    /// Reads a target.
    pub(super) async fn get(&self, target: &Target) -> Result<Option<Value>, Outcome> {
        self.ask(Request::Look(target.clone())).await
    }

    /// Reads the Secret of the journal.
    pub(super) async fn stored(&self) -> Result<Option<Value>, Outcome> {
        self.ask(Request::Journal(self.settings.lease.clone(), Verb::Get)).await
    }

    /// Returns whose live mark is on an object, if it is another transaction's. What cannot be told counts as live.
    pub(super) async fn live(&self, object: Option<&Value>) -> Result<Option<String>, Outcome> {
        // One of this Lease with another id is of a journal that was deleted.
        let mark = object.and_then(mark_of).filter(|(place, ..)| *place != self.settings.lease);
        let Some((place, marked, claim)) = mark else { return Ok(None) };
        match self.lease(&place).await {
            Ok(lease) => {
                let (id, since) = lease.as_ref().and_then(announced).unwrap_or_default();
                Ok((id == marked && since <= claim).then(|| format!("it is another transaction's: {place} {id} {claim}")))
            }
            Err(Outcome::NotPermitted(_) | Outcome::Refused(_)) => {
                Ok(Some(format!("its mark cannot be judged: may not read Lease {place}: grant get")))
            }
            Err(why) => Err(why),
        }
    }

    async fn lease(&self, place: &Place) -> Result<Option<LeaseRecord>, Outcome> {
        let lease = self.ask(Request::Lease(place.clone(), None)).await?;
        Ok(lease.and_then(|lease| LeaseRecord::read(lease.into())))
    }

    /// Announces on the driver's Lease that the marks of this journal are live from its claim on, or takes the announcement off, but
    /// that of a later driver. Returns true if it was announced before. A look writes nothing.
    pub(super) async fn announce(&self, is_live: bool) -> Result<bool, Outcome> {
        let (place, mut was_lost, mut misses, mut before) = (&self.settings.lease, false, 0, None);
        loop {
            let Some(lease) = self.lease(place).await? else {
                // An undo needs none: where there is no Lease, its marks are not live, and versions and claims decide.
                if !is_live || self.looks || self.undoing_until.is_some() {
                    return Ok(false);
                }
                self.again(format!("there is no Lease {place}").into(), None).await?;
                continue;
            };
            let is_ours = lease.is_held_by(&self.settings.by);
            // One of a later claim is of a later driver, or of one that has stored nothing and lost the term.
            let last = match (is_live, is_ours) {
                (true, _) => self.claim,
                (false, true) => u64::MAX,
                (false, false) => self.journal.claim,
            };
            let (id, since) = announced(&lease).unwrap_or_default();
            let is_announced = id == self.journal.id && since <= last;
            // The journal beside the Lease has another id.
            let is_another = !id.is_empty() && id != self.journal.id;
            let is_lost = is_another && is_ours;
            before.get_or_insert(is_announced);
            if is_announced == is_live && !self.forgets && !is_lost || self.looks {
                break;
            }
            // It may be of another driver, which has made or stored its journal since this one read it.
            if is_another && self.undoing_until.is_none() {
                let version = |secret: &Value| secret["metadata"]["resourceVersion"].clone();
                if version(&self.stored().await?.unwrap_or_default()) != version(&self.secret) {
                    return if is_live { Err(Outcome::Overtaken) } else { Ok(false) };
                }
            }
            was_lost |= is_lost && !self.forgets;
            let text = is_live.then(|| format!("{} {}", self.journal.id, self.claim));
            let Edit::Write(write) = operator::journal(&lease, text.as_deref()) else { break };
            if self.ask(Request::Lease(place.clone(), Some(write))).await?.is_some() {
                break;
            }
            self.missed(&mut misses).await?;
        }
        if was_lost {
            self.server.report(Event::Said("the journal that was announced is not there: what it may have changed stays".into()));
        }
        Ok(before == Some(true))
    }

    /// Returns the claim of this journal's mark on an object.
    pub(super) fn mine(&self, object: &Value) -> Option<u64> {
        let (place, id, claim) = mark_of(object)?;
        (place == self.settings.lease && id == self.journal.id).then_some(claim)
    }

    pub(super) fn mark(&self) -> String {
        format!("{} {} {}", self.settings.lease, self.journal.id, self.claim)
    }

    /// Describes the patch that brings fields of an object to one side, with this mark or without one.
    pub(super) fn patch(object: &Value, fields: &[Field], side: Side, mark: Option<String>) -> Verb {
        towards(object, with(object, fields, side), mark)
    }

    /// Removes this journal's mark up to a claim from a target, where that is allowed. `known` is the object, if it was read before.
    /// Returns the object.
    pub(super) async fn erase(&self, target: &Target, mut known: Option<Value>, claim: u64) -> Result<Option<Value>, Outcome> {
        let mut misses = 0;
        loop {
            let object = if known.is_some() { known.take() } else { self.get(target).await? };
            let Some(object) = object else { return Ok(None) };
            if self.looks || self.mine(&object).is_none_or(|mark| mark > claim) {
                return Ok(Some(object));
            }
            match self.write(target, Self::patch(&object, &[], Side::After, None)).await {
                Ok(None) => self.missed(&mut misses).await?,
                // A mark that stays is not live.
                Err(Outcome::Refused(_) | Outcome::NotPermitted(_)) => return Ok(Some(object)),
                result => return result,
            }
        }
    }

    /// Sends a write to a target. Returns the object; none: look again.
    pub(super) async fn write(&self, target: &Target, write: Verb) -> Result<Option<Value>, Outcome> {
        self.ask(Request::Write(target.clone(), write, MANAGER.into())).await
    }

    /// Sends a request, a read until it is answered. Returns the object. None of a read: absent; of a write: look again.
    ///
    /// # Errors
    /// It is refused, or is not tried again.
    pub(super) async fn ask(&self, request: Request) -> Result<Option<Value>, Outcome> {
        loop {
            let answer = self.send(&request).await;
            let is_again = request.is_sent_again(&answer);
            let object = self.object(answer, &request).await?;
            if !(is_again && request.is_read()) {
                return Ok(object);
            }
        }
    }

    /// Returns the object of an answer. None: absent, of another version, or unknown after a pause.
    ///
    /// # Errors
    /// The request is refused, or is not tried again.
    pub(super) async fn object(&self, answer: Answer, request: &Request) -> Result<Option<Value>, Outcome> {
        match answer {
            Answer::Object(object) => return Ok(Some(Arc::unwrap_or_clone(object))),
            Answer::Refused { refusal, message } if request.is_passing(refusal) => {
                self.again(message, refusal.retry_after()).await?
            }
            Answer::Refused { message, .. } => {
                let words = format!("{request}: {message}");
                return Err(if message.is_denied() { Outcome::NotPermitted(words) } else { Outcome::Refused(words) });
            }
            Answer::Unknown { message, retry_after } => self.again(message, retry_after).await?,
            Answer::NotFound | Answer::Conflict | Answer::Deleted | Answer::Listed { .. } if request.is_read() => {}
            Answer::NotFound | Answer::Conflict | Answer::Deleted | Answer::Listed { .. } => self.go_on()?,
        }
        Ok(None)
    }

    /// Sends one request; those to targets as the user that acts.
    pub(super) async fn send(&self, request: &Request) -> Answer {
        let answer = self.server.send(request.clone(), self.user().filter(|_| !request.is_own())).await;
        if answer == Answer::Deleted {
            return Answer::Object(Arc::default());
        }
        if let Answer::Refused { message, .. } = &answer
            && message.is_denied()
            && self.is_patient()
        {
            return Answer::Unknown { message: message.clone(), retry_after: None };
        }
        answer
    }

    /// Returns true if an undo has just begun. An API server that starts denies everything until it knows the rules, and a quota counts
    /// late.
    fn is_patient(&self) -> bool {
        let patience = LONGEST_PAUSE.min(self.settings.limit / 2);
        self.undoing_until.is_some_and(|until| self.server.now() + self.settings.limit < until + patience)
    }

    /// Says that a request is sent again, and pauses before that.
    ///
    /// # Errors
    /// As [`pause`](Self::pause).
    pub(super) async fn again(&self, why: RequestError, retry_after: Option<Duration>) -> Result<(), Outcome> {
        if self.go_on().is_ok() {
            self.server.report(Event::Retrying(why.clone()));
        }
        self.pause(why, retry_after).await
    }

    /// Counts a write, or its dry run, that has met another version. After a few of them it pauses: a webhook may refuse each one.
    ///
    /// # Errors
    /// As [`pause`](Self::pause).
    pub(super) async fn missed(&self, misses: &mut u32) -> Result<(), Outcome> {
        *misses += 1;
        if *misses >= MISSES { self.pause(conflicting(), None).await } else { Ok(()) }
    }

    /// Pauses before a retry. No pause outlasts the limit or a signal by more than [`PAUSE`].
    ///
    /// # Errors
    /// Nothing is tried again: the limit is over, the driver was stopped, or another object comes first.
    pub(super) async fn pause(&self, why: RequestError, retry_after: Option<Duration>) -> Result<(), Outcome> {
        let until = self.server.now() + PAUSE.max(retry_after.unwrap_or_default().min(LONGEST_PAUSE));
        while self.server.now() < until {
            if self.go_on().is_err() {
                return Err(Outcome::Unavailable(why));
            }
            self.server.wait(until.since(self.server.now()).min(PAUSE)).await;
        }
        if self.defers { Err(Outcome::Unavailable(why)) } else { Ok(()) }
    }

    /// Checks that the limit, the signals and the term allow to go on. An undo has a limit of its own, and goes on after a signal.
    ///
    /// # Errors
    /// They do not.
    pub(super) fn go_on(&self) -> Result<(), Outcome> {
        let is_over = match self.undoing_until {
            Some(until) => self.server.now() >= until,
            None => self.server.is_stopped() || self.server.now() >= self.deadline,
        };
        if is_over { Err(Outcome::Stopped) } else { Ok(()) }
    }
}

/// Returns what is said of an object of which each version is refused.
pub(super) fn conflicting() -> RequestError {
    RequestError { status: Some(409), words: format!("it {CHANGING}") }
}

/// Reads the id and the claim that a Lease announces.
fn announced(lease: &LeaseRecord) -> Option<(String, u64)> {
    let (id, claim) = lease.annotation(JOURNAL)?.split_once(' ')?;
    Some((id.to_owned(), claim.parse().ok()?))
}

pub(super) fn uid(object: &Value) -> &str {
    object["metadata"]["uid"].as_str().unwrap_or_default()
}

pub(super) fn set_mark(object: &mut Value, mark: Option<String>) {
    if let Some(mark) = mark {
        let annotations = entry_of(entry_of(object, "metadata"), "annotations");
        as_map(annotations).insert(MARK.into(), mark.into());
    } else if let Some(Value::Object(annotations)) = object.pointer_mut("/metadata/annotations") {
        annotations.remove(MARK);
    }
}

/// Describes the patch that makes another state of an object, with this mark or without one.
pub(super) fn towards(object: &Value, mut next: Value, mark: Option<String>) -> Verb {
    set_mark(&mut next, mark);
    Verb::Merge(versioned(merge_patch(object, &next), object).into())
}

/// Returns a body for exactly this version of an object.
pub(super) fn versioned(mut body: Value, object: &Value) -> Value {
    let version = object["metadata"]["resourceVersion"].clone();
    as_map(entry_of(&mut body, "metadata")).insert("resourceVersion".into(), version);
    body
}

/// Describes the deletion of exactly this version of an object. Its dry run is in its body: with a body the server ignores the query.
pub(crate) fn deletion(object: &Value, dry_run: bool) -> Verb {
    let metadata = &object["metadata"];
    let options = json!({
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "preconditions": { "uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"] },
        "propagationPolicy": "Background",
        "dryRun": if dry_run { &["All"][..] } else { &[] },
    });
    Verb::Delete(options.into())
}

/// Returns true if an object is being deleted.
pub(super) fn is_going(object: &Value) -> bool {
    !object["metadata"]["deletionTimestamp"].is_null()
}
