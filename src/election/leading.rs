//! A phase of the election: this replica holds the Lease.
//!
//! Owns renewal, the terms' deadlines as the elector knows them, the end of a creation wait, loss, and the stop that precedes
//! every end of a term (law 1, 3 to 8, 10, 14, 15). Init enforces the deadlines, and at H the second guard does too
//! ([`super::armed`]).

use super::{
    Event, Watched,
    core::{Attempt, Core, News},
    elector::Phase,
    following::{end_of_wait, left},
    record::{LeaseRecord, later},
    trace::TraceContext,
};
use crate::{
    law::{Deadlines, Timing},
    link::{Confirmed, Facts, Reason, Resume, Term, ToElector, ToInit},
    time::{Instant, Now},
};

mod answers;
mod ending;

use ending::Ending;
pub(crate) use ending::leave;

/// Specs are a few hundred bytes. One that somebody has bloated is not sent over the link, which it could break: the next elector
/// does without it.
const LONGEST_SPEC: usize = 16 * 1024;

#[derive(Clone, Debug)]
pub(crate) struct Leading {
    pub(crate) term: Term,
    pub(crate) facts: Facts,
    /// The constants of the term; during a creation wait, D is the wait (law 14).
    timing: Timing,
    /// The last version that a write of this term proved.
    confirmed: Proved,
    /// The object that the next write is based on; none until a fresh elector has read it.
    base: Option<LeaseRecord>,
    deadlines: Deadlines,
    /// Init was told of the term; before that nothing runs that the deadlines could end.
    announced: bool,
    serial: u64,
    acknowledged: bool,
    due: Instant,
    /// Consecutive conflicts: the first is retried at once, later ones are paced.
    conflicts: u32,
    /// The known preferred holder. One that was already recorded when the Lease was taken has had its time: yielding to it now
    /// would make the replicas take turns for as long as it does not come.
    preference: Option<String>,
    read_wanted: bool,
    /// Consecutive writes without an answer.
    unanswered: u32,
    /// A planned stop has begun, or was renewed through, and the read that its release needs is not sent yet: it overlaps with the
    /// workload's shutdown.
    reread_wanted: bool,
    /// [`Self::base`] was read since the stop began, and has neither been written nor been seen to change since.
    fresh: bool,
    pub(crate) ending: Option<Ending>,
    /// The workload was proved dead once: nothing of this term runs again, whatever else ends it.
    proved: bool,
    /// A previous elector had announced the release: E is void, nothing runs, and whatever has happened to the Lease since is no
    /// loss.
    pub(super) released: bool,
}

#[derive(Clone, Debug)]
struct Proved {
    resource_version: String,
    at: Instant,
}

impl Leading {
    /// A term as it was confirmed last.
    fn of(term: Term, facts: Facts, timing: Timing, confirmed: Proved, deadlines: Deadlines) -> Self {
        Self {
            term,
            facts,
            timing,
            due: confirmed.at,
            confirmed,
            base: None,
            deadlines,
            announced: false,
            serial: 0,
            acknowledged: true,
            conflicts: 0,
            preference: None,
            read_wanted: false,
            unanswered: 0,
            reread_wanted: false,
            fresh: false,
            ending: None,
            proved: false,
            released: false,
        }
    }

    /// The term that `attempt` won, proved by `record`. If that is `outdated`, the Lease has changed since: it is read, and renewed,
    /// before anything runs (law 4).
    pub(crate) fn begin(core: &mut Core, record: LeaseRecord, attempt: &Attempt, outdated: bool, now: Now) -> Self {
        let campaign = attempt.campaign;
        let wait = campaign.and_then(|campaign| campaign.wait);
        let sent = core.timing.with_duration(campaign.map_or(core.timing.duration, |campaign| campaign.duration));
        // A creation may be committed late: who had the Lease meanwhile, and lost it, is waited for too.
        core.hold_back(now);
        let left = left(core, now);
        if let Some(wait) = wait {
            let end = end_of_wait(core, wait, now);
            core.not_before = Some(core.not_before.map_or(end, |before| before.max(end)));
        }
        core.last_term = Term(core.last_term.0.saturating_add(1));
        let facts = Facts {
            token: record.resource_version().to_owned(),
            uid: record.uid().to_owned(),
            transitions: record.transitions(),
            acquired_at: record.acquire_time().unwrap_or_default().to_owned(),
            traceparent: campaign.map(|campaign| campaign.context.to_string()).unwrap_or_default(),
        };
        let creation_wait = wait.max(Some(left).filter(|left| !left.is_zero()));
        core.report(Event::Acquired { token: facts.token.clone(), transitions: facts.transitions, creation_wait });
        let timing = core.timing.with_duration(sent.duration.max(left));
        let confirmed = Proved { resource_version: record.resource_version().to_owned(), at: now.boot };
        let mut leading = Self {
            preference: record.preferred_holder().map(str::to_owned),
            base: Some(record),
            read_wanted: outdated,
            ..Self::of(core.last_term, facts, timing, confirmed, sent.deadlines(attempt.sent))
        };
        if !outdated {
            if timing == sent {
                leading.due = attempt.sent + timing.renew_period;
            }
            leading.announce(core, now);
        }
        leading
    }

    /// Resumes the term of a previous elector, with its constants (law 1, 6).
    pub(crate) fn resume(core: &mut Core, resume: Resume, now: Now) -> Self {
        let Confirmed { resource_version, spec, deadlines, .. } = resume.confirmed;
        let confirmed = Proved { resource_version, at: now.boot };
        let mut leading = Self {
            preference: preferred_in(&spec),
            announced: true,
            // Init disarms H with the proof.
            proved: deadlines.hard == Instant::NEVER,
            released: resume.released,
            ..Self::of(resume.term, resume.facts, resume.timing, confirmed, deadlines)
        };
        let stopping = resume.stopping.or_else(|| resume.released.then_some(Reason::Signal));
        if let Some(reason) = stopping {
            leading.end_in(core, reason, TraceContext::parse(&resume.traceparent));
        }
        leading
    }

    /// When the last write was confirmed: too long ago means unhealthy (client-go's HealthzAdaptor).
    pub(crate) const fn confirmed_at(&self) -> Instant {
        self.confirmed.at
    }

    /// From when init may let the workload lead; never, while it does not know of the term.
    pub(crate) fn leads_from(&self, core: &Core) -> Instant {
        if self.announced { core.not_before.unwrap_or(Instant::BOOT) } else { Instant::NEVER }
    }

    /// The serial of the next message.
    pub(crate) const fn next_serial(&self) -> u64 {
        self.serial + 1
    }

    pub(crate) const fn deadlines(&self) -> Deadlines {
        self.deadlines
    }

    /// The Lease as read since the stop began, if nothing was written or seen after that.
    pub(crate) fn fresh(&self) -> Option<LeaseRecord> {
        self.base.clone().filter(|_| self.fresh)
    }

    pub(crate) fn tick(&mut self, core: &mut Core, now: Now) -> Option<Phase> {
        core.tick_watch(now);
        if self.has_deadlines() {
            self.enforce(core, now);
        }
        if core.shutdown && self.ending.is_none() {
            if !self.announced && now.boot < self.deadlines.soft {
                self.tell_lead(core);
            }
            // Past S nothing has run. A renewal on its way may still make this a term that can be released.
            if self.announced || !core.is_awaiting() {
                self.end(core, Reason::Signal);
            }
        }
        if let Some(phase) = self.finish(core, now) {
            return Some(phase);
        }
        if core.is_awaiting() || !self.may_write(now) {
            return None;
        }
        if self.wait_end(core).is_some_and(|end| end <= now.boot) {
            self.shorten(core, now);
            return None;
        }
        // If the last renewal was not confirmed in time, saving the release a round trip does not matter.
        if std::mem::take(&mut self.reread_wanted) && now.boot < self.confirmed.at + self.timing.renew_period {
            core.get(now);
            return None;
        }
        if now.boot < self.due {
            return None;
        }
        if self.read_wanted || self.base.is_none() {
            core.get(now);
        } else {
            self.renew(core, now);
        }
        None
    }

    pub(crate) fn timeout(&self, core: &Core, now: Now) -> Option<Instant> {
        let mut next = core.watch_timeout();
        let mut at = |instant: Instant| next = Some(next.map_or(instant, |next| next.min(instant)));
        if self.has_deadlines() && !self.is_lost() {
            at(self.deadlines.soft);
        }
        if !core.is_awaiting() && self.may_write(now) {
            at(self.wait_end(core).map_or(self.due, |end| end.min(self.due)));
        }
        next
    }

    pub(crate) fn told(&mut self, core: &mut Core, message: ToElector, now: Now) {
        match message {
            ToElector::Acknowledged { term, serial } if term == self.term && serial == self.serial => self.acknowledged = true,
            ToElector::Stopping { term, reason, .. } if term == self.term => {
                if reason.is_loss() {
                    self.lose(core, reason);
                } else if self.ending.is_none() {
                    self.end(core, reason);
                }
            }
            ToElector::Stopped { term, request, stop, then } if term == self.term => self.stopped(core, request, stop, then, now),
            ToElector::Unproved { term, .. } if term == self.term => {
                core.report(Event::Odd { message: "nothing is released until the workload is proved gone".into() });
            }
            ToElector::Acknowledged { .. }
            | ToElector::Stopping { .. }
            | ToElector::Stopped { .. }
            | ToElector::Unproved { .. }
            | ToElector::Welcome(_)
            | ToElector::Started { .. }
            | ToElector::Restarting { .. }
            | ToElector::Shutdown
            | ToElector::Beat
            | ToElector::Hooked { .. }
            | ToElector::Warn(_) => {}
        }
    }

    pub(crate) fn watched(&mut self, core: &mut Core, watched: Watched, now: Now) {
        match core.watched(watched, now) {
            Some(News::Changed(record)) if later(record.resource_version(), &self.confirmed.resource_version) => {
                self.fresh = false;
                if core.awaited_attempt().is_some_and(|attempt| attempt.is(&record)) {
                    return;
                }
                self.look(core, &record);
                if self.is_over(now) {
                    self.read_wanted = true;
                    return;
                }
                let newer = self.base.as_ref().is_some_and(|base| later(record.resource_version(), base.resource_version()));
                if newer && !core.is_awaiting() && self.is_mine(core, &record) {
                    self.base = Some(record);
                }
            }
            Some(News::Deleted(record))
                if record.uid() == self.facts.uid && later(record.resource_version(), &self.confirmed.resource_version) =>
            {
                self.lose(core, Reason::LostDeleted);
            }
            Some(News::Changed(_) | News::Deleted(_)) | None => {}
        }
    }

    /// True from the Lead until the proof; a release has had one.
    fn has_deadlines(&self) -> bool {
        self.announced && !self.released && !self.proved
    }

    /// Ends the term as S passes (law 2). At H the second guard acts by itself (law 3).
    fn enforce(&mut self, core: &mut Core, now: Now) {
        if now.boot >= self.deadlines.soft && !self.is_lost() {
            self.end(core, Reason::Expired);
        }
    }

    /// A renewal needs init's acknowledgement of the last extension, and a term before S that is not lost, proved dead or released
    /// (law 4, 7, 8, 10).
    fn may_write(&self, now: Now) -> bool {
        let in_time = !self.announced || now.boot < self.deadlines.soft;
        self.acknowledged && self.goes_on() && in_time && !self.released
    }

    fn renew(&mut self, core: &mut Core, now: Now) {
        let Some(base) = &self.base else { return };
        self.fresh = false;
        let time = core.next_time(now, base.renew_time());
        let object = core.author.renew(base, &self.facts, self.timing, &time);
        core.replace(object, None, now);
    }

    /// Tells init of the term; if S has already passed, it is renewed first (law 15).
    fn announce(&mut self, core: &mut Core, now: Now) {
        if now.boot < self.deadlines.soft {
            self.tell_lead(core);
        } else {
            self.due = now.boot;
        }
    }

    fn tell_lead(&mut self, core: &mut Core) {
        self.announced = true;
        self.acknowledged = false;
        core.tell(ToInit::Lead {
            term: self.term,
            facts: self.facts.clone(),
            timing: self.timing,
            confirmed: self.confirmed_for_init(),
            not_before: core.not_before,
        });
    }

    fn confirmed_for_init(&self) -> Confirmed {
        let spec = self.base.as_ref().and_then(|base| serde_json::to_string(base.spec()).ok());
        Confirmed {
            uid: self.facts.uid.clone(),
            resource_version: self.confirmed.resource_version.clone(),
            spec: spec.filter(|spec| spec.len() <= LONGEST_SPEC).unwrap_or_default(),
            deadlines: self.deadlines,
        }
    }

    fn is_mine(&self, core: &Core, record: &LeaseRecord) -> bool {
        record.uid() == self.facts.uid && record.is_held_by(&core.author.identity)
    }

    /// Past E of a term that init was not told of, whoever wrote the record that names this replica: others may have led since the
    /// term's own write, so its token may no longer be the greatest (law 13).
    fn is_over(&self, now: Now) -> bool {
        !self.announced && now.boot >= self.deadlines.end
    }

    /// Inside a creation wait: the record carries the wait, and nothing has run (law 14).
    fn is_waiting(&self, core: &Core, now: Now) -> bool {
        core.not_before.is_some_and(|end| now.boot < end)
    }

    /// When D is the term's again; none if it is already.
    fn wait_end(&self, core: &Core) -> Option<Instant> {
        (self.timing.duration > core.timing.duration).then(|| core.not_before.unwrap_or(Instant::BOOT))
    }

    /// The wait is over: the deadlines move back to D, in init first (law 3, 14). A write that was sent with the wait as its
    /// duration and is proved only now counts with D.
    fn shorten(&mut self, core: &mut Core, now: Now) {
        self.timing = core.timing;
        self.deadlines = self.deadlines.min(self.timing.deadlines(now.boot));
        if !self.announced {
            return;
        }
        // It may have been put off by a Retry-After that the longer term had room for.
        self.due = self.due.min(self.deadlines.soft.before(self.timing.attempt_timeout));
        self.serial += 1;
        self.acknowledged = false;
        core.tell(ToInit::Shorten { term: self.term, serial: self.serial, timing: self.timing, deadlines: self.deadlines });
    }
}

fn preferred_in(spec: &str) -> Option<String> {
    let spec: serde_json::Value = serde_json::from_str(spec).ok()?;
    spec.get("preferredHolder")?.as_str().map(str::to_owned)
}
