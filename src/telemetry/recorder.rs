//! Records the course of a term, and turns each finished part into a [`Recorded`].
//!
//! Owns the pairing of a campaign with the term that it won, and of a stop with its proof and its release. Hears the facts of the
//! election and the messages of init in the order in which they happened. If an earlier elector began the term, its beginning is
//! unknown, and the transition says so. A term in which the workload never led is recorded as such.

use std::{collections::BTreeMap, mem};

use super::{
    status::{Change, Fact},
    transition::{
        Anchor, Campaign, Earlier, Margin, Origin, Outcome, Phase, PhaseKind, Recorded, TermPhase, Transition, TransitionReason,
    },
};
use crate::{
    config::HookKind,
    election::{AcquireReason, Event, ReleaseResult, record::LeaseRecord, trace::TraceContext},
    link::{Exit, InitialState, Reason, Stop, TermInfo, ToElector},
    request::{Operation, RequestError},
    role::Role,
    slot::Slot,
    time::{Instant, Now},
};

mod terms;

/// Records the terms of one elector.
#[derive(Debug, Default)]
pub(crate) struct Recorder {
    /// When the last fact happened.
    now: Now,
    /// The last version of each Lease.
    observed: BTreeMap<Slot, LeaseRecord>,
    campaigns: BTreeMap<Slot, Campaign>,
    /// A lock or a task with `--once` waits for the Lease: since when, and for which holder last.
    wait: Option<(Instant, Option<String>)>,
    term: Option<RecordedTerm>,
    /// The Lease is held, and the workload does not lead yet.
    promotion: Option<Promotion>,
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
    /// The term that the latter ended.
    ended: Option<i32>,
}

#[derive(Debug)]
struct RecordedTerm {
    slot: Slot,
    transitions: i32,
    token: String,
    /// The transition that began it.
    context: TraceContext,
    /// E.
    end: Instant,
}

#[derive(Debug)]
struct Promotion {
    reason: TransitionReason,
    origin: Origin,
    anchor: Anchor,
    /// When the acquiring write was sent and proved. None if an earlier elector sent it.
    acquired: Option<(Instant, Instant)>,
}

#[derive(Debug)]
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
    /// Begins with the term in progress, if the elector was restarted in one. Otherwise a lock or a task with `--once` begins to
    /// wait for the Lease.
    pub(crate) fn new(initial: &InitialState, now: Now) -> Self {
        let resume = initial.resume.as_ref();
        let term = resume.map(|resume| RecordedTerm::new(&resume.info, resume.confirmed.deadlines.end));
        let pending = resume.filter(|resume| !resume.told && resume.stopping.is_none());
        let resumed =
            |_| Promotion { reason: TransitionReason::Resumed, origin: Origin::None, anchor: Anchor(now), acquired: None };
        Self {
            now,
            promotion: pending.map(resumed),
            own: [term.as_ref().map(|term| term.context), None],
            term,
            wait: initial.preset.is_once().then_some((now.boot, None)),
            ..Self::default()
        }
    }

    /// Takes in a change. Returns the part that it completes.
    pub(crate) fn changed(&mut self, change: &Change<'_>) -> Option<Recorded> {
        self.now = change.at;
        match change.fact {
            Fact::Told(message) => self.told(message, change.after.unready.is_none()),
            Fact::Event(event) => self.event(event),
            Fact::Telling(_) | Fact::Recorded(_) | Fact::Elects(_) | Fact::Requested(_) | Fact::WatchesAgain => None,
        }
    }

    fn event(&mut self, event: &Event) -> Option<Recorded> {
        match event {
            Event::Observed { slot, record, nobody } => return self.observed(*slot, record.as_ref(), *nobody),
            Event::NewLeader { holder, .. } => self.led_by(holder),
            Event::Campaigning { slot, why, context, other } => self.campaigning(*slot, *why, *context, *other),
            Event::CampaignLost { slot } => return self.lost(*slot),
            Event::Acquired { info, sent, deadlines } => self.acquired(info, *sent, deadlines.end),
            Event::Extended { deadlines } => self.extended(deadlines.end),
            Event::Failed { operation, sent, message } => return self.failed(*operation, *sent, message),
            Event::Stopping { reason, context } => return self.stopping(*reason, *context),
            Event::Proved(stop) => self.proved(*stop),
            Event::Released(how) => self.released(*how),
            Event::Ended => return self.ended(),
            Event::WaitedInVain { context } => return self.waited_in_vain(*context),
            Event::Ready
            | Event::Renewed { .. }
            | Event::Recovered { .. }
            | Event::BacksOff(_)
            | Event::Preempts { .. }
            | Event::Unpaused
            | Event::Odd { .. } => {}
        }
        None
    }

    fn led_by(&mut self, holder: &str) {
        if let Some((_, waited_for)) = &mut self.wait {
            *waited_for = Some(holder.to_owned());
        }
    }

    fn waited_in_vain(&mut self, context: TraceContext) -> Option<Recorded> {
        let wait = self.waited(self.now.boot)?;
        Some(Recorded::WaitedInVain { context, anchor: Anchor(self.now), wait })
    }

    fn waited(&mut self, until: Instant) -> Option<Phase> {
        let (since, holder) = self.wait.take()?;
        Some(Phase::new(PhaseKind::Wait { holder }, since, until))
    }

    /// Records a campaign. `other` is the span of the Lease's last transition.
    fn campaigning(&mut self, slot: Slot, reason: AcquireReason, context: TraceContext, other: Option<TraceContext>) {
        let origin = match other.map(|context| Earlier { context, remote: !self.own.contains(&Some(context)) }) {
            Some(earlier) if reason == AcquireReason::Released => Origin::Handover(earlier),
            Some(earlier) => Origin::After(earlier),
            None => Origin::None,
        };
        let campaign = Campaign { reason, context, origin, anchor: Anchor(self.now), until: self.now.boot };
        self.campaigns.insert(slot, campaign);
    }

    fn lost(&mut self, slot: Slot) -> Option<Recorded> {
        let campaign = self.campaigns.remove(&slot)?;
        Some(Recorded::CampaignLost(Box::new(Campaign { until: self.now.boot, ..campaign })))
    }

    fn acquired(&mut self, info: &TermInfo, sent: Instant, end: Instant) {
        self.term = Some(RecordedTerm::new(info, end));
        self.promotion = self.campaigns.remove(&info.slot).map(|Campaign { reason, origin, anchor, .. }| Promotion {
            reason: TransitionReason::Acquired(reason),
            origin,
            anchor,
            acquired: Some((sent, self.now.boot)),
        });
    }

    const fn extended(&mut self, end: Instant) {
        if let Some(term) = &mut self.term {
            term.end = end;
        }
    }

    fn told(&mut self, message: &ToElector, is_ready: bool) -> Option<Recorded> {
        match message {
            ToElector::Started { pid, at, .. } => self.started(*pid, *at, is_ready),
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
            ToElector::Health { .. } => {
                let since = self.unready_since.take_if(|_| is_ready)?;
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

    fn started(&mut self, pid: i32, at: Instant, is_ready: bool) -> Option<Recorded> {
        let restart = self.restart.take();
        if let Some(promotion) = self.promotion.take() {
            self.unready_since = if is_ready { None } else { Some(at) };
            return self.promoted(promotion, Some((pid, at)));
        }
        let (from, exit) = restart?;
        self.within_term(Phase::new(PhaseKind::WorkloadStart { pid, after: Some(exit) }, from, at))
    }

    /// Adds a phase to the transition in progress, or to the term if the hook outlasted the transition.
    fn hooked(&mut self, hook: HookKind, phase: Phase) -> Option<Recorded> {
        let follows = hook == HookKind::AfterFollow;
        let of = |demotion: &Demotion| hook == HookKind::BeforeFollow || phase.from >= demotion.from;
        if self.promotion.is_some() && !follows || self.demotion.as_ref().is_some_and(of) {
            self.hooks.push(phase);
            return None;
        }
        if follows && let ([_, Some(context)], Some(term)) = (self.own, self.ended) {
            return Some(Recorded::WithinTerm(Box::new(TermPhase { context, term, anchor: Anchor(self.now), phase })));
        }
        self.within_term(phase)
    }

    /// Records a failed request that was sent at `sent`.
    fn failed(&self, operation: Operation, sent: Instant, error: &RequestError) -> Option<Recorded> {
        let is_proved = self.demotion.as_ref().is_some_and(|demotion| demotion.proved.is_some());
        // A failed watch does not bring the end of a term nearer.
        if is_proved || operation == Operation::Watch {
            return None;
        }
        let margin = Margin::until(self.term.as_ref()?.end, self.now.boot);
        let kind = PhaseKind::Renew { operation, margin, error: error.clone() };
        self.within_term(Phase::new(kind, sent, self.now.boot))
    }

    fn within_term(&self, phase: Phase) -> Option<Recorded> {
        let RecordedTerm { context, transitions, .. } = *self.term.as_ref()?;
        Some(Recorded::WithinTerm(Box::new(TermPhase { context, term: transitions, anchor: Anchor(self.now), phase })))
    }

    /// Records that the term ends. A later call replaces the reason.
    fn stopping(&mut self, reason: Reason, context: TraceContext) -> Option<Recorded> {
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

    fn proved(&mut self, stop: Stop) {
        if let (Some(demotion), Some(term)) = (&mut self.demotion, &self.term) {
            let awaited_restart = self.restart.take().is_some() && stop.proved < demotion.from;
            let stop = if awaited_restart { stop.of_nothing(demotion.from) } else { stop };
            demotion.from = demotion.from.min(stop.began.unwrap_or(demotion.from));
            demotion.proved = Some((stop, self.now.boot, Margin::until(term.end, stop.fused.unwrap_or(stop.proved))));
        }
    }

    const fn released(&mut self, how: ReleaseResult) {
        if let Some(demotion) = &mut self.demotion {
            demotion.release = Some((self.now.boot, how));
        }
    }

    fn ended(&mut self) -> Option<Recorded> {
        self.stop_began = None;
        let (term, demotion) = (self.term.take()?, self.demotion.take()?);
        Some(self.demoted(term, demotion))
    }

    /// Builds the transition to leader. `ran` is the workload's process and when it began to lead; none if it never led.
    fn promoted(&mut self, promotion: Promotion, ran: Option<(i32, Instant)>) -> Option<Recorded> {
        let Promotion { reason, origin, anchor, acquired } = promotion;
        let from = anchor.0.boot;
        let mut phases: Vec<_> = self.waited(from).into_iter().collect();
        let term = self.term.as_ref()?;
        if let Some((sent, acquired)) = acquired {
            let sent = sent.max(from);
            phases.extend([Phase::new(PhaseKind::Campaign, from, acquired), Phase::new(PhaseKind::Acquire, sent, acquired)]);
        }
        let held = acquired.map_or(from, |(_, acquired)| acquired);
        if let Some((pid, at)) = ran {
            phases.push(Phase::new(PhaseKind::WorkloadStart { pid, after: None }, held.min(at), at));
        }
        phases.append(&mut self.hooks);
        self.own[0] = Some(term.context);
        Some(Recorded::Transitioned(Box::new(Transition {
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
            fused: None,
            release: None,
            outcome: if ran.is_some() { Outcome::Complete } else { Outcome::NeverLed },
        })))
    }

    /// Builds the transition to standby.
    fn demoted(&mut self, term: RecordedTerm, demotion: Demotion) -> Recorded {
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
        (self.own[1], self.ended) = (Some(context), Some(term.transitions));
        Recorded::Transitioned(Box::new(Transition {
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
            fused: proved.and_then(|(stop, ..)| Some((stop.fused?, stop.proved))),
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

#[cfg(test)]
mod tests;
