//! The phase in which this replica holds the Lease.
//!
//! Owns renewal, the term's deadlines as the elector knows them, loss, and the stop that precedes every end of a term (law 1, 3 to
//! 8, 10). Init enforces the deadlines, and at H the second guard does too ([`super::guard_deadline`]).
//!
//! The way of a stop: `told` takes init's word, [`ending`] asks for the stop and takes the proof, and the next tick begins
//! [`super::releasing`]. The way of an event of the watch: the core takes it in, `watched` judges it, `look` (in [`answers`]) finds
//! the loss, and `lose` (in [`ending`]) asks for the stop.

use super::{
    Event, ONLY_READS,
    core::{One, WatchEvent},
    pace::Paced,
    reader::Reader,
    record::{LeaseRecord, later},
    releasing::Releasing,
    trace::TraceContext,
    writes::micros,
};
use crate::{
    law::Deadlines,
    link::{Confirmed, Reason, Resume, Term, TermInfo, Then, ToElector, ToInit},
    slot::Slot,
    time::{Instant, Now},
};

mod answers;
mod ending;

/// A longer name of a preferred holder could break the link, so it is not sent: the next elector does without it.
const LONGEST_HOLDER: usize = 16 * 1024;

#[derive(Clone, Debug, Hash)]
pub(crate) struct Leading {
    pub(crate) term: Term,
    info: TermInfo,
    /// The last version that a write of this term proved.
    confirmed: LastProved,
    /// The version that the next write replaces. None until a fresh elector has read one.
    base: Option<LeaseRecord>,
    /// The deadlines in force; `NEVER` once nothing of the term runs.
    deadlines: Deadlines,
    serial: u64,
    is_acknowledged: bool,
    renewal: Renewal,
    /// The preferred holder that is known. A holder that was preferred when the Lease was taken has had its chance. If the leader
    /// stepped down for it now, the replicas would take turns until it came.
    preference: Option<String>,
    stage: Stage,
}

#[derive(Clone, Debug, Hash)]
struct LastProved {
    resource_version: String,
    at: Instant,
    /// The renewTime of that write, or of a later one that was refused, in microseconds. None if an earlier elector sent the
    /// write.
    time: Option<i64>,
}

/// The end of a term that is proved over.
#[derive(Debug)]
pub(crate) enum Over {
    /// The Lease is given back.
    Release(Box<Releasing>),
    /// It is not.
    Left(Then),
}

/// When the next request is sent, and whether it is a read or a write.
#[derive(Clone, Debug, Hash)]
struct Renewal {
    due: Instant,
    is_read_wanted: bool,
    /// The Lease is read even if a write is proved meanwhile.
    is_gone: bool,
    /// Consecutive conflicts. The first is retried at once, later ones after a pause.
    conflicts: u32,
    /// Consecutive writes without an answer.
    unanswered: u32,
    /// After such writes, a read was answered.
    is_only_read: bool,
}

/// How far the term is on the way to its end.
#[derive(Clone, Debug, Hash)]
enum Stage {
    Held,
    /// Init was asked to stop, and has not proved yet that it has.
    Stopping(Ending),
    /// Nothing of this term runs again.
    Dead(Ending, Proof),
}

/// Why a term ends.
#[derive(Clone, Copy, Debug, Hash)]
struct Ending {
    reason: Reason,
    request: u64,
    context: TraceContext,
    /// A previous elector had announced the release. E is void, and a change of the Lease since then is no loss.
    was_released: bool,
}

#[derive(Clone, Copy, Debug, Hash)]
struct Proof {
    then: Then,
    /// A task ran: the Lease rests until the next run is due.
    rests: bool,
    /// When this elector heard of the proof.
    at: Instant,
}

impl Renewal {
    const fn at(due: Instant) -> Self {
        Self { due, is_read_wanted: false, is_gone: false, conflicts: 0, unanswered: 0, is_only_read: false }
    }
}

impl Leading {
    /// Returns the slot of the Lease.
    pub(crate) const fn slot(&self) -> Slot {
        self.info.slot
    }

    /// Begins the term of an acquiring write that was sent at `sent` and proved by `record` before S.
    pub(crate) fn begin(one: &mut One<'_>, record: LeaseRecord, sent: Instant, context: TraceContext, now: Now) -> Self {
        (one.lease.campaign, one.lease.writes) = (None, Paced::default());
        one.common.last_term = Term(one.common.last_term.0.saturating_add(1));
        let info = TermInfo {
            slot: one.lease.slot,
            token: record.resource_version().to_owned(),
            uid: record.uid().to_owned(),
            transitions: record.transitions(),
            acquired_at: record.acquire_time().unwrap_or_default().to_owned(),
            traceparent: context.to_string(),
        };
        let deadlines = one.common.timing.deadlines(sent);
        one.common.report(Event::Acquired { info: info.clone(), sent, deadlines });
        let leading = Self {
            term: one.common.last_term,
            info,
            confirmed: LastProved::by(&record, now),
            deadlines,
            serial: 0,
            is_acknowledged: false,
            renewal: Renewal::at(sent + one.common.timing.renew_period),
            preference: record.preferred_holder().map(str::to_owned),
            stage: Stage::Held,
            base: Some(record),
        };
        let confirmed = leading.confirmed_for_init();
        one.common.tell(ToInit::Lead { term: leading.term, info: leading.info.clone(), confirmed });
        leading
    }

    /// Resumes the term of a previous elector. D, rho, G and killMargin are the same for all electors of an init (law 1, 6).
    pub(crate) fn resume(one: &mut One<'_>, resume: Resume, now: Now) -> Self {
        let Confirmed { resource_version, preferred_holder, deadlines } = resume.confirmed;
        // Init disarms H with the proof.
        let is_over = resume.released || deadlines.hard == Instant::NEVER;
        let mut leading = Self {
            term: resume.term,
            info: resume.info,
            confirmed: LastProved { resource_version, at: now.boot, time: None },
            base: None,
            deadlines: if is_over { Deadlines::NEVER } else { deadlines },
            serial: 0,
            is_acknowledged: true,
            renewal: Renewal::at(now.boot),
            preference: preferred_holder,
            stage: Stage::Held,
        };
        let stopping = resume.stopping.or_else(|| resume.released.then_some(Reason::Signal));
        if let Some(reason) = stopping {
            leading.ask_to_stop(one, reason, TraceContext::parse(&resume.traceparent), resume.released);
        }
        leading
    }

    /// Returns when the last write was confirmed. Probes report an old one as unhealthy, as client-go's HealthzAdaptor does.
    pub(crate) const fn confirmed_at(&self) -> Instant {
        self.confirmed.at
    }

    pub(crate) fn deadlines(&self) -> Option<Deadlines> {
        Some(self.deadlines).filter(|deadlines| *deadlines != Deadlines::NEVER)
    }

    pub(crate) const fn is_ending(&self) -> bool {
        !matches!(self.stage, Stage::Held)
    }

    pub(crate) fn tick(&mut self, one: &mut One<'_>, now: Now) -> Option<Over> {
        one.reader.tick_watch(one.common, now);
        // Ends the term as S passes (law 2). At H the second guard acts by itself (law 3).
        if now.boot >= self.deadlines.soft {
            if std::mem::take(&mut self.renewal.is_only_read) && self.may_renew() {
                one.common.report(Event::Odd { message: ONLY_READS.into() });
            }
            self.lose(one, Reason::Expired);
        }
        if one.common.shutdown {
            self.end(one, Reason::Signal);
        }
        if let Some(next) = self.finish(one, now) {
            return Some(next);
        }
        if one.reader.is_awaiting() || !self.may_renew() || now.boot < self.renewal.due {
            return None;
        }
        match &self.base {
            Some(base) if !self.renewal.is_read_wanted => {
                let time = one.common.next_time(now, base.renew_time());
                let write = one.common.writer.renew(base, &self.info, one.common.timing, &time);
                one.write(write, None, now);
            }
            Some(_) | None => one.get(now),
        }
        None
    }

    pub(crate) fn timeout(&self, reader: &Reader) -> Option<Instant> {
        let soft = (!self.is_lost()).then_some(self.deadlines.soft);
        let due = (!reader.is_awaiting() && self.may_renew()).then_some(self.renewal.due);
        [reader.watch.due(), soft, due].into_iter().flatten().filter(|at| *at != Instant::NEVER).min()
    }

    pub(crate) fn told(&mut self, one: &mut One<'_>, message: ToElector, now: Now) {
        match message {
            ToElector::Acknowledged { term, serial } => self.is_acknowledged |= (term, serial) == (self.term, self.serial),
            ToElector::Stopping { term, reason, .. } if term == self.term => {
                if reason.is_loss() {
                    self.lose(one, reason)
                } else {
                    self.end(one, reason)
                }
            }
            ToElector::Stopped { term, request, stop, then } if term == self.term => self.stopped(one, request, stop, then, now),
            ToElector::Unproved { term, .. } if term == self.term => {
                one.common.report(Event::Odd { message: "nothing is released until the workload is proved gone".into() });
            }
            ToElector::Stopping { .. }
            | ToElector::Stopped { .. }
            | ToElector::Unproved { .. }
            | ToElector::InitialState(_)
            | ToElector::Started { .. }
            | ToElector::Restarting { .. }
            | ToElector::Shutdown
            | ToElector::Heartbeat
            | ToElector::Hooked { .. }
            | ToElector::Probe { .. }
            | ToElector::Health { .. }
            | ToElector::Warn(_) => {}
        }
    }

    pub(crate) fn watched(&mut self, one: &mut One<'_>, event: WatchEvent, now: Now) {
        match event {
            WatchEvent::Changed(record) if later(record.resource_version(), &self.confirmed.resource_version) => {
                if one.reader.awaited_attempt().is_some_and(|attempt| attempt.is(&record)) {
                    return;
                }
                self.look(one, &record);
                let is_newer = self.base.as_ref().is_some_and(|base| later(record.resource_version(), base.resource_version()));
                if is_newer && !one.reader.is_awaiting() && self.is_mine(one, &record) {
                    self.base = Some(record);
                }
            }
            WatchEvent::Deleted(record)
                if record.uid() == self.info.uid && later(record.resource_version(), &self.confirmed.resource_version) =>
            {
                self.lose(one, Reason::LostDeleted);
            }
            WatchEvent::Missing => self.look_again(now),
            WatchEvent::Changed(_) | WatchEvent::Deleted(_) => {}
        }
    }

    /// Reads the Lease at once. The watch shows it no longer: it is deleted, or has only lost its label.
    const fn look_again(&mut self, now: Now) {
        (self.renewal.is_read_wanted, self.renewal.is_gone) = (true, true);
        self.renewal.due = now.boot;
    }

    /// Returns true if the term may be renewed: init has acknowledged the last extension, and the term is not lost, proved dead
    /// or released (law 4, 7, 8, 10). At S it is lost.
    fn may_renew(&self) -> bool {
        self.is_acknowledged && !self.is_lost() && self.deadlines().is_some()
    }

    fn confirmed_for_init(&self) -> Confirmed {
        Confirmed {
            resource_version: self.confirmed.resource_version.clone(),
            preferred_holder: self.preference.clone().filter(|holder| holder.len() <= LONGEST_HOLDER),
            deadlines: self.deadlines,
        }
    }

    fn is_mine(&self, one: &One<'_>, record: &LeaseRecord) -> bool {
        record.uid() == self.info.uid && record.is_held_by(&one.common.writer.identity)
    }
}

impl LastProved {
    fn by(record: &LeaseRecord, now: Now) -> Self {
        let time = record.renew_time().and_then(micros);
        Self { resource_version: record.resource_version().to_owned(), at: now.boot, time }
    }
}
