//! Answers to a leader, and what its watch shows: they prove a write, show a loss, ask the holder to step down, or lead to a retry
//! (law 1, 4 to 6, 17). A proof also sets when the next renewal is due; `begin` (in
//! `leading`) sets the first.

use std::time::Duration;

use super::{LastProved, Leading, Renewal};
use crate::{
    election::{
        Event,
        asked::{Asked, Attempt, NOT_WHAT_WAS_SENT, Verdict},
        core::One,
        record::{LeaseRecord, LeaseState, later},
        writes::{STEP_DOWN, micros},
    },
    law::Deadlines,
    link::{Reason, ToInit},
    request::{Answer, Operation, Refusal, RequestError},
    time::{Instant, Now},
};

impl Leading {
    pub(crate) fn answered(&mut self, one: &mut One<'_>, asked: &Asked, answer: Answer, now: Now) {
        let (operation, sent) = (asked.operation, asked.sent);
        match asked.judge(answer) {
            Verdict::Read(record) => self.read(one, record, now),
            Verdict::Proved(record, attempt) if self.is_mine(one, &record) => {
                self.prove(one, record, attempt.sent, now);
            }
            Verdict::Proved(record, attempt) | Verdict::Other(record, attempt) => {
                one.observed(record.clone(), now);
                one.lease.unanswered.remember(attempt);
                if later(record.resource_version(), &self.confirmed.resource_version) {
                    self.look(one, &record);
                }
                self.renewal.is_read_wanted = true;
                self.failed(one, operation, NOT_WHAT_WAS_SENT.into(), sent, None, now);
            }
            Verdict::Absent | Verdict::Deleted => {
                one.observed_absence(now);
                self.lose(one, Reason::LostDeleted);
            }
            Verdict::Conflict => {
                self.renewal.conflicts += 1;
                self.renewal.is_read_wanted = true;
                self.renewal.due = now.boot;
                if self.renewal.conflicts > 1 {
                    let message = "two writes in a row found that somebody else had written the Lease (409)".into();
                    self.failed(one, operation, message, sent, None, now);
                }
            }
            Verdict::Refused(refusal, message) => {
                // The network may deliver the write twice, and the second copy may be stored.
                if let (Some(latest), Some(time)) = (&mut self.confirmed.time, asked.attempt.as_ref().and_then(Attempt::time)) {
                    *latest = time.max(*latest);
                }
                if refusal == Refusal::Unauthorized && one.reader.note_refused_credentials() {
                    self.renewal.due = now.boot;
                    one.common.report_failure(operation, sent, message);
                } else {
                    self.failed(one, operation, message, sent, refusal.retry_after(), now);
                }
            }
            Verdict::Open(message, retry_after) => {
                if let Some(attempt) = &asked.attempt {
                    one.lease.unanswered.remember(attempt.clone());
                }
                self.failed(one, operation, message, sent, retry_after, now);
                self.unheard(operation);
            }
        }
    }

    /// Alternates between writes and reads while no answers come. After two writes without an answer comes a read: if only writes
    /// are slow, it finds that they succeeded. After a read without an answer comes a write.
    fn unheard(&mut self, operation: Operation) {
        match operation {
            Operation::Get => {
                if std::mem::take(&mut self.renewal.unanswered) >= 2 {
                    self.renewal.is_read_wanted = false;
                }
            }
            Operation::Create | Operation::Update => {
                self.renewal.unanswered += 1;
                self.renewal.is_read_wanted |= self.renewal.unanswered >= 2;
            }
            Operation::List | Operation::Delete | Operation::Watch => {}
        }
    }

    /// Takes in that a write of this term, sent at `sent`, is proved. Once S has begun a stop, no proof extends the term (law 3).
    fn prove(&mut self, one: &mut One<'_>, record: LeaseRecord, sent: Instant, now: Now) {
        // Once the program is proved dead there is no margin.
        if let Some(Deadlines { soft, .. }) = self.deadlines() {
            one.common.report(Event::Renewed { sent, soft });
        }
        // An unanswered write on this very version is kept: it may still be stored after this read.
        one.lease.unanswered.forget_overtaken(&record);
        one.observed(record.clone(), now);
        let is_gone = self.renewal.is_gone;
        let due = if is_gone { now.boot } else { (sent + one.common.timing.renew_period).max(now.boot) };
        self.renewal = Renewal { is_read_wanted: is_gone, is_gone, ..Renewal::at(due) };
        self.confirmed = LastProved::by(&record, now);
        self.look(one, &record);
        self.base = Some(record);
        if now.boot < self.deadlines.soft && self.may_renew() {
            self.deadlines = self.deadlines.max(one.common.timing.deadlines(sent));
            one.common.report(Event::Extended { deadlines: self.deadlines });
            self.serial += 1;
            self.is_acknowledged = false;
            one.common.tell(ToInit::Extend { term: self.term, serial: self.serial, confirmed: self.confirmed_for_init() });
        }
    }

    /// Takes in a quorum read. It may prove a write of this term, or show that the term is lost (law 4, 6).
    fn read(&mut self, one: &mut One<'_>, record: LeaseRecord, now: Now) {
        self.renewal.is_only_read |= self.renewal.unanswered > 0;
        (self.renewal.is_read_wanted, self.renewal.is_gone, self.renewal.unanswered) = (false, false, 0);
        let rose = later(record.resource_version(), &self.confirmed.resource_version);
        let proved = one.lease.unanswered.proved_by(&record).map(|attempt| attempt.sent);
        if let (Some(sent), true, true) = (proved, rose, self.is_mine(one, &record)) {
            return self.prove(one, record, sent, now);
        }
        one.observed(record.clone(), now);
        self.look(one, &record);
        if self.is_mine(one, &record) {
            self.base = Some(record);
        }
    }

    /// Looks in a version of the Lease for a loss, a request to step down, or a preferred holder (law 4, 6, 17).
    pub(super) fn look(&mut self, one: &mut One<'_>, record: &LeaseRecord) {
        if record.uid() != self.info.uid {
            return self.lose(one, Reason::LostRecreated);
        }
        match record.holder() {
            None => return self.lose(one, Reason::LostCleared),
            Some(holder) if holder != one.common.writer.identity => return self.lose(one, Reason::LostToHolder),
            Some(_) if self.is_by_a_copy(one, record) => return self.lose(one, Reason::LostToCopy),
            Some(_) => {}
        }
        let me = one.common.writer.identity.as_str();
        let preferred = record.preferred_holder().map(str::to_owned);
        let is_news = preferred != std::mem::replace(&mut self.preference, preferred.clone());
        if record.annotation(STEP_DOWN) == Some(me) {
            self.end(one, Reason::StepDown);
        } else if is_news && record.strategy().is_some() && preferred.is_some_and(|preferred| preferred != me) {
            self.end(one, Reason::PreferredHolder);
        }
    }

    /// Returns true if a copy of this replica wrote a record that names it: the renewTime is later than that of any own write
    /// that can be stored. Until the first proved write of this elector, the record may be its predecessor's last (law 6). A
    /// write that met a conflict counts as not stored: a copy may have sent the very same bytes, and had them stored. A rest is
    /// written only after a term, so within this one only a copy can have written it.
    fn is_by_a_copy(&self, one: &One<'_>, record: &LeaseRecord) -> bool {
        let written = record.renew_time().and_then(micros);
        let is_unsent = self.confirmed.time.is_some() && written > self.confirmed.time.max(one.latest_time());
        is_unsent || record.state() == LeaseState::Resting
    }

    fn failed(
        &mut self,
        one: &mut One<'_>,
        operation: Operation,
        message: RequestError,
        sent: Instant,
        retry_after: Option<Duration>,
        now: Now,
    ) {
        self.renewal.due = one.common.leader_retry(sent, retry_after, self.deadlines.soft, now);
        one.common.report_failure(operation, sent, message);
    }
}
