//! The requests of a driver, their retries, and what they are judged by (rule 0).

use std::{sync::Arc, time::Duration};

use serde_json::Value;

use super::{
    Event, Field, MARK, Outcome, Place, Request, Server, Storing, Target, Write,
    driver::Driver,
    fields::{Side, merge_patch, with},
    journal::{Mark, parse},
};
use crate::request::{Answer, Refusal, RequestError};

/// The pause before a request is sent again.
pub(super) const PAUSE: Duration = Duration::from_millis(200);

impl<S: Server> Driver<'_, S> {
    /// Reads a target, and then whether the journal still shows this driver's claim. In this order: a later driver writes to the
    /// target after this read.
    pub(super) async fn look(&self, target: &Target) -> Result<Option<Value>, Outcome> {
        let object = self.get(target).await?;
        let stored = parse(&self.stored(&self.settings.journal).await?.ok_or(Outcome::JournalGone)?)?;
        if (&stored.id, stored.claim) != (&self.journal.id, self.claim) {
            return Err(Outcome::Superseded { by: stored.by });
        }
        Ok(object)
    }

    /// Reads a target.
    pub(super) async fn get(&self, target: &Target) -> Result<Option<Value>, Outcome> {
        self.found(Request::Look(target.clone()), self.acting_as.as_deref(), &target.to_string()).await
    }

    /// Reads the Secret of a journal.
    pub(super) async fn stored(&self, place: &Place) -> Result<Option<Value>, Outcome> {
        self.found(Request::Journal(place.clone(), Storing::Read), None, "the journal").await
    }

    /// Sends a read until it is answered. None: absent.
    async fn found(&self, read: Request, acting_as: Option<&str>, what: &str) -> Result<Option<Value>, Outcome> {
        match self.ask(read, acting_as).await? {
            Answer::Object(object) => Ok(Some(Arc::unwrap_or_clone(object))),
            Answer::Refused { message, .. } => Err(refused(what, message)),
            Answer::NotFound | Answer::Conflict | Answer::Unknown { .. } | Answer::Deleted | Answer::Listed { .. } => Ok(None),
        }
    }

    /// Returns the mark of another transaction that is not settled. A journal that may not be read counts as unsettled.
    pub(super) async fn live(&self, object: Option<&Value>) -> Result<Option<Mark>, Outcome> {
        let mark = object.filter(|object| self.mine(object).is_none()).and_then(Mark::of);
        let Some(mark) = mark else { return Ok(None) };
        let is_live = match self.stored(&mark.journal).await {
            Ok(secret) => secret
                .and_then(|secret| parse(&secret).ok())
                .is_some_and(|journal| journal.id == mark.id && journal.is_unsettled()),
            Err(Outcome::NotPermitted(_) | Outcome::Refused(_)) => true,
            Err(why) => return Err(why),
        };
        Ok(is_live.then_some(mark))
    }

    /// Returns the claim of this journal's mark on an object.
    pub(super) fn mine(&self, object: &Value) -> Option<u64> {
        Mark::of(object).filter(|mark| mark.journal == self.settings.journal && mark.id == self.journal.id).map(|mark| mark.claim)
    }

    pub(super) fn mark(&self) -> Mark {
        Mark { journal: self.settings.journal.clone(), id: self.journal.id.clone(), claim: self.claim }
    }

    /// Describes the patch that brings fields of an object to one side, with this mark or without one.
    pub(super) fn patch(&self, object: &Value, fields: &[Field], side: Side, mark: Option<Mark>) -> Write {
        let mut next = with(object, fields, side);
        set_mark(&mut next, mark);
        let mut patch = merge_patch(object, &next);
        patch["metadata"]["resourceVersion"] = object["metadata"]["resourceVersion"].clone();
        Write::Merge(patch)
    }

    /// Removes this journal's mark up to a claim from a target, where that is allowed. `known` is the object, if it was read before.
    /// Returns the object.
    pub(super) async fn erase(&self, target: &Target, mut known: Option<Value>, claim: u64) -> Result<Option<Value>, Outcome> {
        loop {
            let object = if known.is_some() { known.take() } else { self.get(target).await? };
            let Some(object) = object else { return Ok(None) };
            if self.mine(&object).is_none_or(|mark| mark > claim) {
                return Ok(Some(object));
            }
            match self.write(target, self.patch(&object, &[], Side::After, None)).await? {
                Answer::Object(object) => return Ok(Some(Arc::unwrap_or_clone(object))),
                // A mark that stays is not live.
                Answer::Refused { .. } => return Ok(Some(object)),
                other @ (Answer::NotFound
                | Answer::Conflict
                | Answer::Unknown { .. }
                | Answer::Deleted
                | Answer::Listed { .. }) => self.again(other).await?,
            }
        }
    }

    /// Sends a write to a target.
    pub(super) async fn write(&self, target: &Target, write: Write) -> Result<Answer, Outcome> {
        self.send(Request::Write(target.clone(), write), self.acting_as.as_deref()).await
    }

    /// Sends a read until it is answered.
    pub(super) async fn ask(&self, request: Request, acting_as: Option<&str>) -> Result<Answer, Outcome> {
        loop {
            let answer = self.send(request.clone(), acting_as).await?;
            if !matches!(answer, Answer::Unknown { .. }) {
                return Ok(answer);
            }
            self.again(answer).await?;
        }
    }

    /// Sends one request, unless the term is about to end (rule 0).
    pub(super) async fn send(&self, request: Request, acting_as: Option<&str>) -> Result<Answer, Outcome> {
        if self.server.now() >= self.server.until() {
            return Err(Outcome::TermEnded);
        }
        let answer = self.server.send(request, acting_as).await;
        // What was certainly not done is tried again like what may have been done.
        if let Answer::Refused { refusal: Refusal::TooManyRequests { .. } | Refusal::NotServed, message } = answer {
            return Ok(Answer::Unknown { message, retry_after: None });
        }
        Ok(if answer == Answer::Deleted { Answer::Object(Arc::default()) } else { answer })
    }

    /// Pauses before a retry, where the answer asks for that.
    ///
    /// # Errors
    /// Nothing is tried again: the limit is over, or a signal has arrived.
    pub(super) async fn again(&self, answer: Answer) -> Result<(), Outcome> {
        match answer {
            Answer::Object(_) | Answer::NotFound | Answer::Conflict | Answer::Deleted | Answer::Listed { .. } => self.go_on(),
            Answer::Refused { message: why, .. } | Answer::Unknown { message: why, .. } => {
                if self.go_on().is_err() {
                    return Err(Outcome::Unavailable(why));
                }
                self.server.report(Event::Retrying(why));
                self.server.wait(PAUSE).await;
                Ok(())
            }
        }
    }

    /// Checks that the limit and the signals allow to go on.
    ///
    /// # Errors
    /// They do not.
    pub(super) fn go_on(&self) -> Result<(), Outcome> {
        let is_stopped = !self.is_undoing && self.server.is_interrupted();
        if is_stopped || self.server.now() >= self.deadline { Err(Outcome::Stopped) } else { Ok(()) }
    }
}

pub(super) fn refused(what: &str, why: RequestError) -> Outcome {
    let words = format!("{what}: {why}");
    if why.is_forbidden() { Outcome::NotPermitted(words) } else { Outcome::Refused(words) }
}

pub(super) fn uid(object: &Value) -> &str {
    object["metadata"]["uid"].as_str().unwrap_or_default()
}

pub(super) fn set_mark(object: &mut Value, mark: Option<Mark>) {
    if let Some(mark) = mark {
        object["metadata"]["annotations"][MARK] = mark.to_string().into();
    } else if let Some(Value::Object(annotations)) = object.pointer_mut("/metadata/annotations") {
        annotations.remove(MARK);
    }
}
