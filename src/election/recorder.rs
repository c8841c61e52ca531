//! Records the course of a term for people and telemetry, and turns each finished part into an [`Event`].
//!
//! Owns the pairing of a campaign with the term that it won, and of a stop with its proof and its release. Decides nothing, so
//! it makes no difference between two states. If an earlier elector began the term, its beginning is
//! unknown, and the transition says so. A term in which the workload never led is reported as such.

use std::{
    fmt,
    hash::{Hash, Hasher},
    mem,
};

use super::{
    AcquireReason, Event, ReleaseResult,
    record::LeaseRecord,
    trace::TraceContext,
    transition::{
        Anchor, Earlier, LostCampaign, Margin, Origin, Outcome, Phase, PhaseKind, TermPhase, Transition, TransitionReason,
    },
};
use crate::{
    config::HookKind,
    link::{Exit, Reason, Resume, Stop, TermInfo, ToElector},
    request::{Operation, RequestError},
    role::Role,
    slot::Slot,
    time::{Instant, Now},
};

mod terms;

#[derive(Clone, Default)]
pub(super) struct Recorder {
    now: Now,
    /// The last version of the Lease.
    observed: Option<LeaseRecord>,
    campaign: Option<LostCampaign>,
    /// A lock or a task with `--once` waits for the Lease: since when, and for which holder last.
    wait: Option<(Instant, Option<String>)>,
    term: Option<RecordedTerm>,
    /// The Lease is held, and the workload does not lead yet.
    promotion: Option<Promotion>,
    /// The workload is ready, or no probe asks it.
    ready: bool,
    /// The workload has led since then, and has not been ready yet.
    unready_since: Option<Instant>,
    /// The workload has ended by itself, and is started again.
    restart: Option<(Instant, Exit)>,
    /// When init began a stop by itself.
    stop_began: Option<Instant>,
    demotion: Option<Demotion>,
    /// Hooks of the transition in progress.
    hooks: Vec<Phase>,
    /// This replica's last transitions to leader and to standby.
    own: [Option<TraceContext>; 2],
}

#[derive(Clone)]
struct RecordedTerm {
    slot: Slot,
    transitions: i32,
    token: String,
    /// The transition that began it.
    context: TraceContext,
    /// E.
    end: Instant,
}

#[derive(Clone)]
struct Promotion {
    reason: TransitionReason,
    origin: Origin,
    anchor: Anchor,
    /// When the acquiring write was sent and proved. None if an earlier elector sent it.
    acquired: Option<(Instant, Instant)>,
}

#[derive(Clone)]
struct Demotion {
    reason: Reason,
    context: TraceContext,
    anchor: Anchor,
    from: Instant,
    /// The stop, when this elector heard of its proof, and the margin that was left.
    proved: Option<(Stop, Instant, Margin)>,
    release: Option<(Instant, ReleaseResult)>,
}

impl Recorder {
    /// Begins with the term in progress, if the elector was restarted in one. The workload is `ready` from the start if no probe
    /// asks it.
    pub(super) fn new(resume: Option<&Resume>, ready: bool, now: Now) -> Self {
        let term = resume.map(|resume| RecordedTerm::new(&resume.info, resume.confirmed.deadlines.end));
        let pending = resume.filter(|resume| !resume.told && resume.stopping.is_none());
        let resumed =
            |_| Promotion { reason: TransitionReason::Resumed, origin: Origin::None, anchor: Anchor(now), acquired: None };
        Self {
            now,
            promotion: pending.map(resumed),
            own: [term.as_ref().map(|term| term.context), None],
            term,
            ready,
            ..Self::default()
        }
    }

    /// Sets the time of the events that follow.
    pub(super) const fn turn(&mut self, now: Now) {
        self.now = now;
    }

    /// Records that a lock or a task with `--once` begins to wait for the Lease.
    pub(super) fn waits(&mut self) {
        self.wait = Some((self.now.boot, None));
    }

    /// Records that this holder leads now.
    pub(super) fn led_by(&mut self, holder: &str) {
        if let Some((_, waited_for)) = &mut self.wait {
            *waited_for = Some(holder.to_owned());
        }
    }

    /// Records that the wait is over without the Lease.
    pub(super) fn waited_in_vain(&mut self, context: TraceContext) -> Option<Event> {
        let wait = self.waited(self.now.boot)?;
        Some(Event::WaitedInVain { context, anchor: Anchor(self.now), wait })
    }

    fn waited(&mut self, until: Instant) -> Option<Phase> {
        let (since, holder) = self.wait.take()?;
        Some(Phase::new(PhaseKind::Wait { holder }, since, until))
    }

    /// Records a campaign. `other` is the span of the Lease's last transition.
    pub(super) fn campaigning(&mut self, reason: AcquireReason, context: TraceContext, other: Option<TraceContext>) {
        let origin = match other.map(|context| Earlier { context, remote: !self.own.contains(&Some(context)) }) {
            Some(earlier) if reason == AcquireReason::Released => Origin::Handover(earlier),
            Some(earlier) => Origin::After(earlier),
            None => Origin::None,
        };
        self.campaign = Some(LostCampaign { reason, context, origin, anchor: Anchor(self.now), until: self.now.boot });
    }

    /// Records that another client took the Lease, or changed it.
    pub(super) fn lost(&mut self) -> Option<Event> {
        let campaign = self.campaign.take()?;
        Some(Event::CampaignLost(Box::new(LostCampaign { until: self.now.boot, ..campaign })))
    }

    /// Records that a term begins, valid until `end`, by a write that was sent at `sent`.
    pub(super) fn acquired(&mut self, info: &TermInfo, sent: Instant, end: Instant) {
        self.term = Some(RecordedTerm::new(info, end));
        self.promotion = self.campaign.take().map(|LostCampaign { reason, origin, anchor, .. }| Promotion {
            reason: TransitionReason::Acquired(reason),
            origin,
            anchor,
            acquired: Some((sent, self.now.boot)),
        });
    }

    /// Records that a renewal was proved.
    pub(super) const fn extended(&mut self, end: Instant) {
        if let Some(term) = &mut self.term {
            term.end = end;
        }
    }

    /// Records a message of init.
    pub(super) fn heard(&mut self, message: &ToElector) -> Option<Event> {
        match message {
            ToElector::Started { pid, at, .. } => self.started(*pid, *at),
            ToElector::Restarting { exit, at, .. } => {
                self.restart = Some((*at, *exit));
                None
            }
            ToElector::Stopping { at, .. } => {
                match &mut self.demotion {
                    // Init and elector both begin the stop at S.
                    Some(demotion) => demotion.from = demotion.from.min(*at),
                    None => self.stop_began = Some(*at),
                }
                None
            }
            ToElector::Hooked { hook, began, ended, exit } => {
                self.hooked(*hook, Phase::new(PhaseKind::Hook { hook: *hook, exit: *exit }, *began, *ended))
            }
            ToElector::Health { unready, .. } => {
                self.ready = unready.is_none();
                let since = self.unready_since.take_if(|_| self.ready)?;
                self.within_term(Phase::new(PhaseKind::WorkloadReady, since, self.now.boot))
            }
            ToElector::InitialState(_)
            | ToElector::Acknowledged { .. }
            | ToElector::Stopped { .. }
            | ToElector::Unproved { .. }
            | ToElector::Shutdown
            | ToElector::Heartbeat
            | ToElector::Probe { .. }
            | ToElector::Warn(_) => None,
        }
    }

    fn started(&mut self, pid: i32, at: Instant) -> Option<Event> {
        let restart = self.restart.take();
        if let Some(promotion) = self.promotion.take() {
            return self.promoted(promotion, Some((pid, at)));
        }
        let (from, exit) = restart?;
        self.within_term(Phase::new(PhaseKind::WorkloadStart { pid, after: Some(exit) }, from, at))
    }

    /// Adds a phase to the transition in progress, or to the term if the hook outlasted the transition.
    fn hooked(&mut self, hook: HookKind, phase: Phase) -> Option<Event> {
        let of = |demotion: &Demotion| hook == HookKind::BeforeFollow || phase.from >= demotion.from;
        if self.promotion.is_some() || self.demotion.as_ref().is_some_and(of) {
            self.hooks.push(phase);
            return None;
        }
        self.within_term(phase)
    }

    /// Records a failed request that was sent at `sent`.
    pub(super) fn failed(&self, operation: Operation, sent: Instant, error: &RequestError) -> Option<Event> {
        let is_proved = self.demotion.as_ref().is_some_and(|demotion| demotion.proved.is_some());
        // A failed watch does not bring the end of a term nearer.
        if is_proved || operation == Operation::Watch {
            return None;
        }
        let margin = Margin::until(self.term.as_ref()?.end, self.now.boot);
        let kind = PhaseKind::Renew { operation, margin, error: error.clone() };
        self.within_term(Phase::new(kind, sent, self.now.boot))
    }

    fn within_term(&self, phase: Phase) -> Option<Event> {
        let RecordedTerm { context, transitions, .. } = *self.term.as_ref()?;
        Some(Event::WithinTerm(Box::new(TermPhase { context, term: transitions, anchor: Anchor(self.now), phase })))
    }

    /// Records that the term ends. A later call replaces the reason.
    pub(super) fn stopping(&mut self, reason: Reason, context: TraceContext) -> Option<Event> {
        if let Some(demotion) = &mut self.demotion {
            demotion.reason = reason;
            return None;
        }
        let now = self.now.boot;
        self.unready_since = None;
        let from = self.stop_began.take().unwrap_or(now).min(now);
        self.demotion = Some(Demotion { reason, context, anchor: Anchor(self.now), from, proved: None, release: None });
        let promotion = self.promotion.take()?;
        self.promoted(promotion, None)
    }

    /// Records that the workload is proved gone.
    pub(super) fn proved(&mut self, stop: Stop) {
        if let (Some(demotion), Some(term)) = (&mut self.demotion, &self.term) {
            let awaited_restart = self.restart.take().is_some() && stop.proved < demotion.from;
            let stop = if awaited_restart { stop.of_nothing(demotion.from) } else { stop };
            demotion.from = demotion.from.min(stop.began.unwrap_or(demotion.from));
            demotion.proved = Some((stop, self.now.boot, Margin::until(term.end, stop.proved)));
        }
    }

    /// Records the outcome of the release.
    pub(super) const fn released(&mut self, how: ReleaseResult) {
        if let Some(demotion) = &mut self.demotion {
            demotion.release = Some((self.now.boot, how));
        }
    }

    /// Records that the term is over.
    pub(super) fn ended(&mut self) -> Option<Event> {
        self.stop_began = None;
        let (term, demotion) = (self.term.take()?, self.demotion.take()?);
        Some(self.demoted(term, demotion))
    }

    /// Builds the transition to leader. `ran` is the workload's process and when it began to lead; none if it never led.
    fn promoted(&mut self, promotion: Promotion, ran: Option<(i32, Instant)>) -> Option<Event> {
        let Promotion { reason, origin, anchor, acquired } = promotion;
        let from = anchor.0.boot;
        let mut phases: Vec<_> = self.waited(from).into_iter().collect();
        let term = self.term.as_ref()?;
        if let Some((sent, acquired)) = acquired {
            let sent = sent.max(from);
            phases.extend([Phase::new(PhaseKind::Campaign, from, acquired), Phase::new(PhaseKind::Acquire, sent, acquired)]);
        }
        let held = acquired.map_or(from, |(_, acquired)| acquired);
        self.unready_since = ran.map(|(_, at)| at).filter(|_| !self.ready);
        if let Some((pid, at)) = ran {
            phases.push(Phase::new(PhaseKind::WorkloadStart { pid, after: None }, held.min(at), at));
        }
        phases.append(&mut self.hooks);
        self.own[0] = Some(term.context);
        Some(Event::Transitioned(Box::new(Transition {
            to: Role::Leader,
            reason,
            slot: term.slot,
            term: term.transitions,
            token: term.token.clone(),
            context: term.context,
            origin,
            from,
            until: ran.map_or(self.now.boot, |(_, at)| at).max(held),
            anchor,
            margin: ran.map(|(_, at)| Margin::until(term.end, at)),
            phases,
            exit: None,
            release: None,
            outcome: if ran.is_some() { Outcome::Complete } else { Outcome::NeverLed },
        })))
    }

    /// Builds the transition to standby.
    fn demoted(&mut self, term: RecordedTerm, demotion: Demotion) -> Event {
        let Demotion { reason, context, anchor, from, proved, release } = demotion;
        let mut phases = mem::take(&mut self.hooks);
        let mut outcome = Outcome::Complete;
        if let Some((stop, known, _)) = proved {
            let gone = stop.exited.unwrap_or(stop.proved);
            if let Some(began) = stop.began {
                phases.push(Phase::new(PhaseKind::WorkloadStop, began, gone));
            }
            if let Some(killed) = stop.killed {
                phases.push(Phase::new(PhaseKind::WorkloadKill, killed, if killed <= gone { gone } else { stop.proved }));
            }
            if stop.began.is_some() && stop.exited.is_none() && stop.killed.is_none() {
                outcome = Outcome::Demoted;
            } else {
                let last = stop.exited.or(stop.killed).unwrap_or_else(|| from.min(stop.proved));
                phases.push(Phase::new(PhaseKind::WorkloadProof, last, stop.proved));
            }
            // With `lease.release: keep` no request was sent.
            if let Some((until, how)) = release.filter(|(_, how)| *how != ReleaseResult::Keep) {
                phases.push(Phase::new(PhaseKind::Release(how), known, until));
            }
        }
        self.own[1] = Some(context);
        Event::Transitioned(Box::new(Transition {
            to: Role::Standby,
            reason: TransitionReason::Ended(reason),
            slot: term.slot,
            term: term.transitions,
            token: term.token,
            context,
            origin: Origin::After(Earlier { context: term.context, remote: false }),
            from,
            until: phases.iter().map(|phase| phase.until).max().unwrap_or(self.now.boot).max(from),
            anchor,
            margin: proved.map(|(_, _, margin)| margin),
            phases,
            exit: proved.and_then(|(stop, ..)| stop.exit),
            release: release.map(|(_, how)| how),
            outcome,
        }))
    }
}

impl RecordedTerm {
    fn new(info: &TermInfo, end: Instant) -> Self {
        let context = TraceContext::parse(&info.traceparent).unwrap_or(TraceContext::UNKNOWN);
        Self { slot: info.slot, transitions: info.transitions, token: info.token.clone(), context, end }
    }
}

/// What is recorded makes no difference between two states.
impl Hash for Recorder {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorder").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
