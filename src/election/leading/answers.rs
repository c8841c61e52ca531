//! What replies mean for a term that is held: what they prove, whether it is lost, when to retry (law 1, 4 to 6, 17).

use std::time::Duration;

use super::{Leading, Proved};
use crate::{
    election::{
        Answer, Complaint, Event, Operation, Refusal,
        core::{Asked, Core},
        following::{NOT_WHAT_WAS_SENT, UNREADABLE},
        record::{LeaseRecord, later},
        writes::STEP_DOWN,
    },
    link::{Reason, ToInit},
    time::{Instant, Now},
};

impl Leading {
    pub(crate) fn answered(&mut self, core: &mut Core, asked: Asked, answer: Answer, now: Now) {
        let operation = asked.operation;
        match (asked.attempt, answer) {
            (None, Answer::Object(object)) => match LeaseRecord::read(object) {
                Some(record) => self.read(core, record, now),
                None => self.failed(core, operation, UNREADABLE.into(), asked.sent, None, now),
            },
            (Some(attempt), Answer::Object(object)) => match LeaseRecord::read(object) {
                Some(record) if attempt.is_proved_by(&record) && self.is_mine(core, &record) => {
                    core.report(Event::Renewed { latency: now.boot.since(attempt.sent) });
                    self.prove(core, record, attempt.sent, now);
                }
                Some(record) => {
                    core.saw(record.clone(), now);
                    if later(record.resource_version(), &self.confirmed.resource_version) {
                        self.look(core, &record);
                    }
                    core.remember(attempt);
                    self.read_wanted = true;
                    self.failed(core, operation, NOT_WHAT_WAS_SENT.into(), asked.sent, None, now);
                }
                None => {
                    core.remember(attempt);
                    self.failed(core, operation, UNREADABLE.into(), asked.sent, None, now);
                }
            },
            (_, Answer::NotFound) => {
                core.saw_absence(now);
                self.lose(core, Reason::LostDeleted);
            }
            (_, Answer::Conflict) => {
                self.conflicts += 1;
                self.read_wanted = true;
                self.due = now.boot;
                if self.conflicts > 1 {
                    let message = "two writes in a row found that somebody else had written the Lease (409)".into();
                    self.failed(core, operation, message, asked.sent, None, now);
                }
            }
            (_, Answer::Refused { refusal, message }) => {
                if refusal == Refusal::Unauthorized && core.are_first_refused() {
                    self.due = now.boot;
                    core.report_failure(operation, asked.sent, message);
                } else {
                    self.failed(core, operation, message, asked.sent, refusal.retry_after(), now);
                }
            }
            (attempt, Answer::Unknown { message, retry_after }) => {
                attempt.into_iter().for_each(|attempt| core.remember(attempt));
                self.failed(core, operation, message, asked.sent, retry_after, now);
                self.unheard(operation);
            }
            (_, Answer::Deleted) => self.failed(core, operation, NOT_WHAT_WAS_SENT.into(), asked.sent, None, now),
        }
    }

    /// After two writes without an answer a read is tried: if only writes are slow, it finds that they succeeded. If it has no
    /// answer either, a write is next.
    fn unheard(&mut self, operation: Operation) {
        match operation {
            Operation::Get => {
                if std::mem::take(&mut self.unanswered) >= 2 {
                    self.read_wanted = false;
                }
            }
            Operation::Create | Operation::Update => {
                self.unanswered += 1;
                self.read_wanted |= self.unanswered >= 2;
            }
            Operation::Delete | Operation::Watch => {}
        }
    }

    /// A write of this term is proved, sent at `sent`.
    fn prove(&mut self, core: &mut Core, record: LeaseRecord, sent: Instant, now: Now) {
        core.unknown.clear();
        core.saw(record.clone(), now);
        self.conflicts = 0;
        (self.read_wanted, self.unanswered) = (false, 0);
        self.confirmed = Proved { resource_version: record.resource_version().to_owned(), at: now.boot };
        self.due = (sent + self.timing.renew_period).max(now.boot);
        self.look(core, &record);
        self.base = Some(record);
        self.want_reread(core);
        if self.announced && now.boot >= self.deadlines.soft {
            return;
        }
        self.deadlines = self.deadlines.max(self.timing.deadlines(sent));
        if !self.announced {
            // One that was lost meanwhile is over before it began.
            if self.ending.is_none() {
                self.announce(core, now);
            }
        } else if self.goes_on() {
            self.serial += 1;
            self.acknowledged = false;
            core.tell(ToInit::Extend { term: self.term, serial: self.serial, confirmed: self.confirmed_for_init() });
        }
    }

    /// A quorum read: it may prove a write of this term, or show that the term is lost (law 4, 6).
    fn read(&mut self, core: &mut Core, record: LeaseRecord, now: Now) {
        (self.read_wanted, self.unanswered) = (false, 0);
        let proved = core.unknown.iter().find(|attempt| attempt.is(&record)).map(|attempt| attempt.sent);
        let rose = later(record.resource_version(), &self.confirmed.resource_version);
        if let (Some(sent), true, true) = (proved, rose, self.is_mine(core, &record)) {
            return self.prove(core, record, sent, now);
        }
        core.saw(record.clone(), now);
        self.look(core, &record);
        if rose && self.is_over(now) {
            self.lose(core, Reason::LostToHolder);
        }
        if self.is_mine(core, &record) {
            self.base = Some(record);
            self.fresh = self.ending.is_some();
        }
    }

    /// What a version of the Lease means for the term: a loss, a request, a preference (law 4, 17).
    pub(super) fn look(&mut self, core: &mut Core, record: &LeaseRecord) {
        if record.uid() != self.facts.uid {
            return self.lose(core, Reason::LostRecreated);
        }
        match record.holder() {
            None => return self.lose(core, Reason::LostCleared),
            Some(holder) if holder != core.author.identity => return self.lose(core, Reason::LostToHolder),
            Some(_) => {}
        }
        if self.ending.is_some() || !self.announced {
            return;
        }
        let me = core.author.identity.as_str();
        let preferred = record.preferred_holder().map(str::to_owned);
        let is_news = preferred != std::mem::replace(&mut self.preference, preferred.clone());
        if record.annotation(STEP_DOWN) == Some(me) {
            self.end(core, Reason::StepDown);
        } else if is_news && record.strategy().is_some() && preferred.is_some_and(|preferred| preferred != me) {
            self.end(core, Reason::PreferredHolder);
        }
    }

    fn failed(
        &mut self,
        core: &mut Core,
        operation: Operation,
        message: Complaint,
        sent: Instant,
        retry_after: Option<Duration>,
        now: Now,
    ) {
        // Nothing hurries a term that init was not told of.
        let patience = now.boot + core.timing.renew_period + core.timing.attempt_timeout;
        let end = if self.announced { self.deadlines.soft } else { patience };
        self.due = core.leader_retry(sent, retry_after, end, now);
        core.report_failure(operation, sent, message);
    }
}
