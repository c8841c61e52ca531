//! Decides, from facts and their times, which transitions there were. No clock, no IO.
//!
//! Owns the pairing of facts: a campaign with the term that it won, a stop with its proof and its release. Facts may be missing
//! (the elector is restarted within a term, a term ends before init was told of it); the outcome then says so, and nothing claims
//! a leadership that never began.

use std::{mem, time::Duration};

use opentelemetry::KeyValue;

use super::{
    Fact,
    transition::{Anchor, Campaign, Cause, Earlier, Margin, Name, Origin, Outcome, Phase, Transition, exit_fact, pid_fact},
};
use crate::{
    config::HookKind,
    election::{Complaint, Event, Given, Operation, Vacancy, trace::TraceContext},
    law::Timing,
    link::{Confirmed, Exit, Facts, Reason, Resume, Stop, ToElector, ToInit},
    role::Role,
    time::{Instant, Now},
};

/// Turns facts into outcomes.
#[derive(Debug, Default)]
pub(crate) struct Observer {
    campaign: Option<Campaign>,
    term: Option<Term>,
    /// The Lease is held, and the workload does not run yet.
    rise: Option<Rise>,
    /// The workload ended by itself and is started again.
    restart: Option<(Instant, Exit)>,
    /// When init began a stop by itself.
    stop_began: Option<Instant>,
    fall: Option<Fall>,
    /// Those of the transition in progress.
    hooks: Vec<Phase>,
    /// This replica's last transitions to leader and to standby.
    own: [Option<TraceContext>; 2],
}

#[derive(Debug)]
struct Term {
    transitions: i32,
    token: String,
    /// The transition that began it.
    context: Option<TraceContext>,
    /// E, as init was last told it.
    end: Option<Instant>,
}

#[derive(Debug)]
struct Rise {
    campaign: Campaign,
    /// `None`: by an elector that has ended.
    acquired: Option<Instant>,
    creation_wait: Option<Duration>,
    order: Option<Order>,
}

/// Init was told of the term.
#[derive(Clone, Copy, Debug)]
struct Order {
    at: Instant,
    /// When the write was sent from which the deadlines count.
    sent: Instant,
    not_before: Option<Instant>,
}

#[derive(Debug)]
struct Fall {
    reason: Reason,
    context: TraceContext,
    began: Now,
    from: Instant,
    proved: Option<Proved>,
    release: Option<(Instant, Given)>,
}

#[derive(Clone, Copy, Debug)]
struct Proved {
    stop: Stop,
    told: Instant,
    margin: Option<Margin>,
}

impl Observer {
    /// Nothing seen yet except, in a restarted elector, the term in progress.
    pub(crate) fn new(resume: Option<&Resume>, now: Now) -> Self {
        let rise = resume.filter(|resume| !resume.told && resume.stopping.is_none()).map(|resume| {
            // Without an exporter it was not kept.
            let context = TraceContext::parse(&resume.facts.traceparent).unwrap_or(TraceContext::UNKNOWN);
            let (from, anchor) = (now.boot, Anchor::new(now));
            let campaign = Campaign { reason: Cause::Resumed, context, origin: Origin::None, from, until: from, anchor };
            Rise { campaign, acquired: None, creation_wait: None, order: None }
        });
        let term = resume.map(|resume| Term {
            transitions: resume.facts.transitions,
            token: resume.facts.token.clone(),
            context: TraceContext::parse(&resume.facts.traceparent),
            end: Some(resume.confirmed.deadlines.end),
        });
        let own = [term.as_ref().and_then(|term| term.context), None];
        Self { term, rise, own, ..Self::default() }
    }

    /// The outcomes that this fact completes.
    pub(crate) fn record(&mut self, fact: Fact<'_>, now: Now) -> Vec<Outcome> {
        match fact {
            Fact::Reported(event) => self.reported(event, now),
            Fact::Sent(message) => {
                self.told(message, now);
                Vec::new()
            }
            Fact::Received(message) => self.heard(message, now).into_iter().collect(),
        }
    }

    /// The outcomes that the end of the process completes.
    pub(crate) fn finish(&mut self, now: Now) -> Vec<Outcome> {
        let mut over = Vec::new();
        over.extend(self.rise.take().map(|rise| self.risen(rise, Err((ENDED, now.boot)))));
        over.extend(self.fall.take().map(|fall| self.fallen(fall, Some(ENDED), now)));
        over
    }

    fn reported(&mut self, event: &Event, now: Now) -> Vec<Outcome> {
        match event {
            Event::Campaigning { why, context, other } => {
                let over = self.finish(now);
                let origin = match other.map(|context| Earlier { context, remote: !self.own.contains(&Some(context)) }) {
                    Some(earlier) if *why == Vacancy::Released => Origin::Handover(earlier),
                    Some(earlier) => Origin::After(earlier),
                    None => Origin::None,
                };
                let anchor = Anchor::new(now);
                self.campaign = Some(Campaign {
                    reason: Cause::Vacancy(*why),
                    context: *context,
                    origin,
                    from: now.boot,
                    until: now.boot,
                    anchor,
                });
                over
            }
            Event::CampaignLost => {
                let lost = self.campaign.take().map(|campaign| Campaign { until: now.boot, ..campaign });
                lost.map(Outcome::Lost).into_iter().collect()
            }
            Event::Acquired { token, transitions, creation_wait } => {
                let campaign = self.campaign.take().map(|campaign| Campaign { until: now.boot, ..campaign });
                let context = campaign.as_ref().map(|campaign| campaign.context);
                self.term = Some(Term { transitions: *transitions, token: token.clone(), context, end: None });
                let (acquired, creation_wait) = (Some(now.boot), *creation_wait);
                self.rise = campaign.map(|campaign| Rise { campaign, acquired, creation_wait, order: None });
                Vec::new()
            }
            Event::Failed { operation, sent, message } => self.failed(*operation, *sent, message, now).into_iter().collect(),
            Event::Stopping { reason, context } => self.stopping(*reason, *context, now),
            Event::Proved(stop) => {
                let end = self.term.as_ref().and_then(|term| term.end);
                if let Some(fall) = &mut self.fall {
                    let awaited_restart = self.restart.take().is_some() && stop.proved < fall.from;
                    let stop = if awaited_restart { stop.of_nothing(fall.from) } else { *stop };
                    fall.from = fall.from.min(stop.began.unwrap_or(fall.from));
                    let margin = end.map(|end| Margin::until(end, stop.proved));
                    fall.proved = Some(Proved { stop, told: now.boot, margin });
                }
                Vec::new()
            }
            Event::Released { how } => {
                if let Some(fall) = &mut self.fall {
                    fall.release = Some((now.boot, *how));
                }
                Vec::new()
            }
            Event::Following => {
                let over = self.fall.take().map(|fall| self.fallen(fall, None, now));
                (self.term, self.stop_began) = (None, None);
                over.into_iter().collect()
            }
            Event::Ready | Event::NewLeader { .. } | Event::Renewed { .. } | Event::Recovered { .. } | Event::Odd { .. } => {
                Vec::new()
            }
        }
    }

    fn told(&mut self, message: &ToInit, now: Now) {
        match message {
            ToInit::Lead { facts, timing, confirmed, not_before, .. } => {
                self.ordered(facts, *timing, confirmed, *not_before, now);
                self.valid_until(confirmed.deadlines.end);
            }
            ToInit::Extend { confirmed, .. } => self.valid_until(confirmed.deadlines.end),
            ToInit::Shorten { deadlines, .. } => {
                let end = self.term.as_ref().and_then(|term| term.end).unwrap_or(Instant::NEVER);
                self.valid_until(deadlines.end.min(end));
            }
            ToInit::Hello { .. }
            | ToInit::StepDown { .. }
            | ToInit::Releasing { .. }
            | ToInit::Ended { .. }
            | ToInit::Saw(_)
            | ToInit::Beat
            | ToInit::Done
            | ToInit::Failed { .. } => {}
        }
    }

    fn heard(&mut self, message: &ToElector, now: Now) -> Option<Outcome> {
        match message {
            ToElector::Started { pid, at, .. } => self.started(*pid, *at, now),
            ToElector::Restarting { exit, at, .. } => {
                self.restart = Some((*at, *exit));
                None
            }
            ToElector::Stopping { at, .. } => {
                match &mut self.fall {
                    // Both sides began it, as at S.
                    Some(fall) => fall.from = fall.from.min(*at),
                    None => self.stop_began = Some(*at),
                }
                None
            }
            ToElector::Hooked { hook, began, ended, exit } => {
                let mut phase = Phase::new(Name::Hook, *began, *ended);
                phase.error = (*exit != Exit::Code(0)).then(|| FAILED.to_owned());
                self.hooked(*hook, phase.with(KeyValue::new("tenure.hook", hook.name())).with(exit_fact(*exit)), now)
            }
            ToElector::Welcome(_)
            | ToElector::Acknowledged { .. }
            | ToElector::Stopped { .. }
            | ToElector::Unproved { .. }
            | ToElector::Shutdown
            | ToElector::Beat
            | ToElector::Warn(_) => None,
        }
    }

    fn ordered(&mut self, facts: &Facts, timing: Timing, confirmed: &Confirmed, not_before: Option<Instant>, now: Now) {
        let validity = timing.deadlines(Instant::BOOT).end.since(Instant::BOOT);
        let context = TraceContext::parse(&facts.traceparent);
        if let (Some(term), Some(context)) = (&mut self.term, context) {
            term.context = Some(context);
        }
        if let Some(rise) = &mut self.rise {
            rise.order = Some(Order { at: now.boot, sent: confirmed.deadlines.end.before(validity), not_before });
        }
    }

    fn valid_until(&mut self, end: Instant) {
        if let Some(term) = &mut self.term {
            term.end = Some(end);
        }
    }

    fn started(&mut self, pid: i32, at: Instant, now: Now) -> Option<Outcome> {
        let restart = self.restart.take();
        if let Some(rise) = self.rise.take() {
            return Some(self.risen(rise, Ok((pid, at))));
        }
        let ((from, exit), term) = (restart?, self.term.as_ref()?);
        let phase = Phase::new(Name::WorkloadStart, from, at).with(pid_fact(pid)).with(exit_fact(exit));
        Some(Outcome::During { parent: term.context?, anchor: Anchor::new(now), term: term.transitions, phase })
    }

    /// A phase of the transition in progress, or of the term if it outlasted that.
    fn hooked(&mut self, hook: HookKind, phase: Phase, now: Now) -> Option<Outcome> {
        let of_fall = |fall: &Fall| hook == HookKind::BeforeFollow || phase.from >= fall.from;
        if self.rise.is_some() || self.fall.as_ref().is_some_and(of_fall) {
            self.hooks.push(phase);
            return None;
        }
        let term = self.term.as_ref()?;
        Some(Outcome::During { parent: term.context?, anchor: Anchor::new(now), term: term.transitions, phase })
    }

    fn failed(&self, operation: Operation, sent: Instant, message: &Complaint, now: Now) -> Option<Outcome> {
        let releasing = self.fall.as_ref().is_some_and(|fall| fall.proved.is_some());
        // A watch that fails costs a term nothing.
        let term = self.term.as_ref().filter(|_| !releasing && operation != Operation::Watch)?;
        let mut phase = Phase::new(Name::Renew, sent, now.boot).with(KeyValue::new("tenure.operation", operation.as_str()));
        phase.facts.extend(term.end.map(|end| KeyValue::new("tenure.margin_left", Margin::until(end, now.boot).0)));
        phase.error = Some(message.to_string());
        Some(Outcome::During { parent: term.context?, anchor: Anchor::new(now), term: term.transitions, phase })
    }

    fn stopping(&mut self, reason: Reason, context: TraceContext, now: Now) -> Vec<Outcome> {
        if let Some(fall) = &mut self.fall {
            fall.reason = reason;
            return Vec::new();
        }
        let from = mem::take(&mut self.stop_began).unwrap_or(now.boot).min(now.boot);
        let fall = Fall { reason, context, began: now, from, proved: None, release: None };
        let Some(rise) = self.rise.take() else {
            self.fall = Some(fall);
            return Vec::new();
        };
        let announced = rise.order.is_some();
        let mut over = vec![self.risen(rise, Err((NEVER_LED, now.boot)))];
        if announced {
            self.fall = Some(fall);
        } else {
            over.push(self.fallen(fall, None, now));
            self.term = None;
        }
        over
    }

    /// The transition to leader, with the workload's process and when it ran, or why it never did and until when.
    fn risen(&mut self, rise: Rise, ran: Result<(i32, Instant), (&'static str, Instant)>) -> Outcome {
        let Rise { campaign, acquired, creation_wait, order } = rise;
        let from = campaign.from;
        let mut phases = Vec::new();
        if let Some(acquired) = acquired {
            let sent = order.map(|order| order.sent).filter(|sent| (from..=acquired).contains(sent)).unwrap_or(from);
            phases.extend([Phase::new(Name::Campaign, from, acquired), Phase::new(Name::Acquire, sent, acquired)]);
        }
        let held = acquired.unwrap_or(from);
        let (until, error) = match ran {
            Ok((pid, at)) => {
                let due = order.map_or(held, |order| order.at.max(order.not_before.unwrap_or(order.at)));
                phases.push(Phase::new(Name::WorkloadStart, due.min(at), at).with(pid_fact(pid)));
                (at, None)
            }
            Err((error, at)) => (at, Some(error)),
        };
        phases.append(&mut self.hooks);
        let wait = creation_wait.map(|wait| KeyValue::new("tenure.creation_wait", wait.as_secs_f64()));
        let term = self.term.as_ref();
        let end = term.and_then(|term| term.end).filter(|_| error.is_none());
        let context = term.and_then(|term| term.context).unwrap_or(campaign.context);
        self.own[0] = Some(context);
        Outcome::Transition(Box::new(Transition {
            to: Role::Leader,
            reason: campaign.reason,
            term: term.map(|term| term.transitions),
            token: term.map(|term| term.token.clone()),
            context,
            origin: campaign.origin,
            from,
            until: until.max(held),
            anchor: campaign.anchor,
            margin: end.map(|end| Margin::until(end, until)),
            phases,
            exit: None,
            facts: wait.into_iter().collect(),
            demoted: false,
            error,
        }))
    }

    /// The transition to standby.
    fn fallen(&mut self, fall: Fall, error: Option<&'static str>, now: Now) -> Outcome {
        let mut phases = mem::take(&mut self.hooks);
        let (mut facts, mut exit) = (Vec::new(), None);
        let mut demoted = false;
        if let Some(Proved { stop, told, .. }) = fall.proved {
            let gone = stop.exited.unwrap_or(stop.proved);
            if let Some(began) = stop.began {
                phases.push(Phase::new(Name::WorkloadStop, began, gone));
            }
            if let Some(killed) = stop.killed {
                phases.push(Phase::new(Name::WorkloadKill, killed, if killed <= gone { gone } else { stop.proved }));
            }
            demoted = stop.began.is_some() && stop.exited.is_none() && stop.killed.is_none();
            if !demoted {
                let nothing_ran = fall.from.min(stop.proved);
                let from = stop.exited.or(stop.killed).unwrap_or(nothing_ran);
                phases.push(Phase::new(Name::WorkloadProof, from, stop.proved));
            }
            exit = stop.exit;
            if let Some((until, how)) = fall.release {
                let fact = KeyValue::new("tenure.release", how.as_str());
                // No request was sent for it.
                if how != Given::Keep {
                    let mut phase = Phase::new(Name::Release, told, until).with(fact.clone());
                    phase.error = (how == Given::Unknown).then(|| UNCONFIRMED.to_owned());
                    phases.push(phase);
                }
                facts.push(fact);
            }
        }
        self.own[1] = Some(fall.context);
        let term = self.term.as_ref();
        let earlier = term.and_then(|term| term.context).map(|context| Earlier { context, remote: false });
        let until = phases.iter().map(|phase| phase.until).max().unwrap_or(now.boot);
        Outcome::Transition(Box::new(Transition {
            to: Role::Standby,
            reason: Cause::End(fall.reason),
            term: term.map(|term| term.transitions),
            token: term.map(|term| term.token.clone()),
            context: fall.context,
            origin: earlier.map_or(Origin::None, Origin::After),
            from: fall.from,
            until: until.max(fall.from),
            anchor: Anchor::new(fall.began),
            margin: fall.proved.and_then(|proved| proved.margin),
            phases,
            exit,
            facts,
            demoted,
            error,
        }))
    }
}

const ENDED: &str = "the elector ended before it was over";
const FAILED: &str = "the hook failed";
const NEVER_LED: &str = "the term ended before the workload led";
const UNCONFIRMED: &str = "the release is unconfirmed";

#[cfg(test)]
mod tests;
