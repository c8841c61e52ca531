//! The lines of the log, and their levels.
//!
//! Owns the wording: a sentence first, fields after it. Each transition has one line (with a `role`), and so has each new state
//! that somebody may have to act on. The same state is not logged over and over. An end that nobody asked for is a warning. Texts
//! of others (the API server, other holders of the Lease) are cut to one line of bounded length.
//!
//! Which ends are asked for is said by `link::Reason`. Init words its own warnings, in `supervision`: they are written as they come.

use std::{collections::BTreeMap, time::Duration};

use tracing::{debug, error, info, warn};

use self::{
    failures::{Failures, Told},
    nouns::Nouns,
};
use super::{
    status::{Change, Fact, Status},
    transition::{Campaign, Margin, Outcome, PhaseKind, Recorded, Transition, TransitionReason},
};
use crate::{
    config::{HookKind, Zone, duration},
    election::{AcquireReason, Event, ReleaseResult, record::IS_PROMISED, trace::TraceContext, writes::base_of},
    link::{Exit, InitialState, Reason, Resume, ToElector},
    request::{Operation, RequestError},
    role::Role,
    slot::Slot,
    time::Instant,
    words::bounded,
};

mod failures;
mod nouns;

/// A grace below this is none that the program could have used.
const SHORTEST: Duration = Duration::from_millis(50);

/// The end of a program that is known later than this is told with its own time.
const LATE: Duration = Duration::from_millis(500);

/// Writes log lines.
#[derive(Debug, Default)]
pub(super) struct EventLog {
    lease: String,
    /// The full one, which people need for a handover to this replica.
    identity: String,
    nouns: Nouns,
    failures: Failures,
    /// The last confirmed write of the term.
    confirmed: Option<Instant>,
    /// The last holder that was seen of each Lease.
    holders: BTreeMap<Slot, String>,
    /// Of the task's schedule.
    zone: Zone,
    /// A line has said that another has the Lease, or nobody.
    waits: bool,
    /// The stop had begun before this elector.
    ends: bool,
    /// The last term ended before its program led.
    never_led: bool,
    /// An outage has ended: what is waited for is not told yet.
    recovers: bool,
}

impl EventLog {
    pub(super) fn new(initial: &InitialState) -> Self {
        let InitialState { config, identity, preset, .. } = initial;
        let (lease, identity, zone) = (config.lease.name.clone(), identity.clone(), config.task.time_zone.clone());
        Self { zone, lease, identity, nouns: Nouns::of(preset), ..Self::default() }
    }

    /// An elector continues the term of the one before it.
    pub(super) fn resumed(&mut self, resume: &Resume) {
        let Resume { info, main, stopping, .. } = resume;
        self.ends = stopping.is_some();
        let goes_on = if self.ends { "ends" } else { "continues" };
        info!(lease = self.lease, term = info.transitions, token = info.token, pid = main, "a new elector {goes_on} the term");
    }

    fn event(&mut self, event: &Event, before: &Status, now: Instant) {
        if let Event::NewLeader { slot, holder } = event {
            self.holders.insert(*slot, bounded(holder).into_owned());
        }
        let Self { lease, identity, nouns, .. } = &*self;
        match event {
            Event::Ready if nouns.is_run => info!(lease, identity, "the Lease was read"),
            Event::Ready => debug!(lease, identity, "the Lease was read"),
            Event::NewLeader { slot, holder } => {
                let (slot, holder) = (further(*slot), &*bounded(holder));
                match (nouns.is_run, self.waits) {
                    (true, _) if base_of(holder) == base_of(identity) => {
                        info!(
                            lease,
                            slot, holder, "a replica of the same name holds the Lease: an earlier run of this one, or another"
                        );
                    }
                    (true, _) => info!(lease, slot, holder, "another replica holds the Lease"),
                    (false, false) if nouns.is_at_once => info!(lease, slot, holder, "another has the lock"),
                    (false, false) => info!(lease, slot, holder, "waiting: another has the lock"),
                    (false, true) => debug!(lease, slot, holder, "another has the lock now"),
                }
                self.waits = true;
            }
            Event::Campaigning { why, context, .. } => {
                let (trace_id, span_id) = ids(*context);
                debug!(reason = why.as_str(), trace_id, span_id, "campaigning");
            }
            Event::Renewed { sent, soft } => {
                self.confirmed = Some(now);
                let (latency, margin) = (now.since(*sent).as_secs_f64(), Margin::until(*soft, now).0);
                debug!(latency = readable(latency), margin = readable(margin), "renewed");
            }
            Event::Failed { operation, message, .. } => self.failed(*operation, message, before, now),
            Event::Recovered { operation } => self.recovered(*operation),
            Event::Stopping { reason, context } => self.stopping(*reason, *context, before, now),
            Event::BacksOff(backoff) => warn!(
                lease,
                failures = backoff.failures,
                seconds = readable(backoff.until.since(now).as_secs_f64()),
                "the term failed: this replica leaves the Lease to the others for {}",
                duration::measured(backoff.until.since(now))
            ),
            Event::Preempts { holder } => {
                info!(
                    lease,
                    holder = &*bounded(holder),
                    "asking the holder, whose priority is lower, to hand over to this replica"
                );
            }
            Event::Odd { message } if message == IS_PROMISED => info!(lease, "{message}"),
            Event::Odd { message } => warn!(lease, "{}", bounded(message)),
            Event::Unpaused => info!(lease, "{} is no longer paused", nouns.lease),
            Event::Observed { .. }
            | Event::CampaignLost { .. }
            | Event::Acquired { .. }
            | Event::Extended { .. }
            | Event::Proved(_)
            | Event::Released(_)
            | Event::Ended
            | Event::WaitedInVain { .. } => {}
        }
    }

    fn recorded(&mut self, recorded: &Recorded, now: Instant) {
        let Self { lease, nouns, .. } = &*self;
        match recorded {
            Recorded::HolderChanged { nobody: None | Some(Duration::ZERO), .. } => {}
            Recorded::HolderChanged { nobody: Some(wait), .. } => {
                let (held, gets) = (nouns.lease, if nouns.is_run { "leads" } else { "gets it" });
                info!(
                    lease,
                    wait = readable(wait.as_secs_f64()),
                    "nobody holds {held}, and no holder gave it back: nobody {gets} for {}, in case an earlier holder has not stopped",
                    duration::measured(*wait)
                );
                self.waits = true;
            }
            Recorded::CampaignLost(campaign) => {
                let Campaign { reason, context, .. } = **campaign;
                let ((trace_id, span_id), reason) = (ids(context), reason.as_str());
                debug!(lease, reason, trace_id, span_id, "did not acquire the Lease: somebody else has written it");
            }
            Recorded::Transitioned(transition) => {
                (self.confirmed, self.waits, self.ends) = (Some(now), false, false);
                self.transitioned(transition, now);
                self.never_led = transition.outcome == Outcome::NeverLed;
                if transition.to == Role::Standby {
                    self.holders.insert(transition.slot, "this replica".into());
                }
            }
            Recorded::WithinTerm(_) | Recorded::WaitedInVain { .. } => {}
        }
    }

    fn stopping(&self, reason: Reason, context: TraceContext, before: &Status, now: Instant) {
        let ((trace_id, span_id), lease) = (ids(context), self.lease.as_str());
        let why = match (reason, self.confirmed) {
            (Reason::Expired, Some(confirmed)) => {
                format!("no renewal was confirmed for {}", duration::measured(now.since(confirmed)))
            }
            _ => self.nouns.because(reason),
        };
        let (program, held) = (self.nouns.program, self.nouns.lease);
        let reason_word = reason.as_str();
        let late = match before.election.leading.and_then(|led| led.deadlines) {
            Some(due) if due.end <= now => Some((due.end, format!("{held} expired"), "this replica")),
            // Init has stopped it by itself meanwhile.
            Some(due) if now.since(due.soft) > LATE => Some((due.soft, format!("the stop of {program} was due"), "its elector")),
            Some(_) | None => None,
        };
        if let Some((at, what, who)) = late {
            let late = duration::measured(now.since(at));
            warn!(lease, reason = reason_word, trace_id, span_id, "{why}: {what} {late} ago, while {who} did not run");
        } else if self.ends || self.never_led || matches!(reason, Reason::Exited | Reason::SpawnFailed) {
            // The line about the end says it.
            debug!(lease, reason = reason_word, trace_id, span_id, "{why}");
        } else if reason.is_asked_for() {
            info!(lease, reason = reason_word, trace_id, span_id, "{why}: stopping {program}");
        } else {
            warn!(lease, reason = reason_word, trace_id, span_id, "{why}: stopping {program}");
        }
    }

    fn transitioned(&self, transition: &Transition, now: Instant) {
        let Transition { to, reason, slot, term, token, context, from, until, margin, exit, fused, release, outcome, .. } =
            transition;
        let Nouns { program, lease: held, is_run, .. } = self.nouns;
        let (trace_id, span_id) = ids(*context);
        let (role, lease) = (to.as_str(), self.lease.as_str());
        let slot = further(*slot);
        let token = (*to == Role::Leader).then_some(token.as_str());
        let seconds = readable(until.since(*from).as_secs_f64());
        let took = |phase| transition.took(phase).map(|took| readable(took.as_secs_f64()));
        let (campaign, start) = (took("campaign"), took("workload.start"));
        let (stop, kill, proof) = (took("workload.stop"), took("workload.kill"), took("workload.proof"));
        let (released, exited) = (took("release"), exit.map(|exit| exit.to_string()));
        let (lease_left, reason_word) = (margin.map(|margin| readable(margin.0)), reason.as_str());
        // A field that is none is not written.
        macro_rules! line {
            ($level:ident, $($words:tt)*) => {
                $level!(
                    role, reason = reason_word, lease, slot, term, token, lease_left, seconds, campaign, start, exit = exited, stop,
                    kill, proof, release = released, trace_id, span_id, $($words)*
                )
            };
        }
        let (TransitionReason::Ended(reason), Outcome::Complete | Outcome::Demoted) = (reason, outcome) else {
            return match (to, outcome) {
                (_, Outcome::NeverLed) => line!(warn, "held {held}, but the term ended before {program} led"),
                _ => {
                    let has = if is_run { "leading" } else { "has the lock" };
                    line!(info, "{has}: {program} runs{}", self.after(*reason, transition.slot))
                }
            };
        };
        let grace = transition.grace_before_kill();
        // Beside the lines of the next leader this one, which comes late, would look as if two programs had run at once.
        let over = if *outcome == Outcome::Demoted { PhaseKind::WorkloadStop } else { PhaseKind::WorkloadProof };
        let gone = transition.phases.iter().find(|phase| phase.kind == over).map(|phase| phase.until);
        let when = gone.filter(|gone| now.since(*gone) > LATE).map_or_else(String::new, |gone| {
            let (at, late) = (transition.anchor.shown(gone), duration::measured(now.since(gone)));
            format!(" at {at} (logged {late} later)")
        });
        let end = match (outcome, exit) {
            (_, Some(_)) if let Some((dead, noticed)) = *fused => {
                let (at, late) = (transition.anchor.shown(dead), duration::measured(noticed.since(dead)));
                let before =
                    margin.and_then(Margin::left).map(|left| format!(", {} before {held} expired", duration::measured(left)));
                format!(
                    "{program} was dead at {at}{}: the kernel's fuse killed it; noticed {late} later",
                    before.unwrap_or_default()
                )
            }
            (Outcome::Demoted, _) if self.never_led => {
                format!("{}: {program} did not lead, and keeps running", self.nouns.because(*reason))
            }
            (Outcome::Demoted, _) => format!("no longer leading: {program} was demoted{when}, and keeps running"),
            (_, Some(_)) if let (Some(hook), Some(_)) = (failed_hook(transition), grace) => {
                format!("hook {} failed ({hook}): {program} was killed{when}", HookKind::BeforeFollow.as_str())
            }
            (_, Some(_)) if grace.is_some_and(|grace| grace < SHORTEST) => format!("{program} was killed without a grace{when}"),
            (_, Some(_)) if let Some(grace) = grace => {
                format!("{program} did not stop within {}: killed{when}", duration::measured(grace))
            }
            (_, Some(exit)) if *reason == Reason::Exited => format!("{program} {}{when}", exit.predicate()),
            (_, None) => format!("{}: {program} did not run", self.nouns.because(*reason)),
            (_, Some(_)) => format!("{program} has stopped{when}"),
        };
        let became = match release {
            Some(ReleaseResult::Clear) => format!("{end}; {held} is given back"),
            Some(ReleaseResult::Delete) => format!("{end}; {held} is deleted"),
            Some(ReleaseResult::Keep) => format!("{end}; {held} is kept until it expires"),
            Some(ReleaseResult::Unknown) => {
                format!("{end}; the release is unconfirmed: the next holder may have to wait until {held} expires")
            }
            Some(ReleaseResult::NotOurs) => format!("{end}; {held} is left as it is, because somebody else has changed it"),
            Some(ReleaseResult::Rest) => format!("{end}; {held} is kept until the next run is due"),
            None if fused.is_none() && *reason == Reason::Expired => format!("{end}; {held} is left to expire"),
            None => end,
        };
        let is_as_asked = reason.is_asked_for() && !reason.is_failure(*exit) && grace.is_none();
        if is_as_asked && !matches!(release, Some(ReleaseResult::Unknown | ReleaseResult::NotOurs)) {
            line!(info, "{became}");
        } else {
            line!(warn, "{became}");
        }
    }

    fn told(&self, message: &ToElector, before: &Status) {
        let Nouns { program, .. } = self.nouns;
        match message {
            ToElector::Warn(line) => warn!("{}", bounded(line)),
            ToElector::Restarting { exit, .. } => {
                warn!(exit = exit.to_string(), "{program} {}; it is started again", exit.predicate());
            }
            ToElector::Health { unready, status } => {
                // A program that runs on leaders only is neither ready nor unready elsewhere.
                if *unready != before.unready && before.is_workload_meant_to_run() {
                    match unready {
                        Some(why) => info!("{program} is not ready: {}", bounded(why)),
                        None => info!("{program} is ready"),
                    }
                }
                if *status != before.words && !status.is_empty() {
                    info!("{program} says: {}", bounded(status));
                }
            }
            ToElector::Shutdown
            | ToElector::Started { .. }
            | ToElector::Stopped { .. }
            | ToElector::InitialState(_)
            | ToElector::Acknowledged { .. }
            | ToElector::Hooked { .. }
            | ToElector::Stopping { .. }
            | ToElector::Unproved { .. }
            | ToElector::Probe { .. }
            | ToElector::Heartbeat => {}
        }
    }

    fn failed(&mut self, operation: Operation, complaint: &RequestError, before: &Status, now: Instant) {
        let (told, operation_name) = (self.failures.failed(operation, complaint, now), operation.as_str());
        let (lease, program) = (self.lease.as_str(), self.nouns.program);
        let led = before.election.leading.filter(|led| operation == Operation::Update && !led.ending);
        let what = if led.is_some() { "a renewal" } else { "a request to the API server" };
        let left = led
            .and_then(|led| led.deadlines)
            .map(|deadlines| deadlines.soft.since(now))
            .filter(|left| !left.is_zero())
            .map(duration::measured);
        let left = left.map_or_else(String::new, |left| format!("; {program} is stopped in {left} if none succeeds"));
        match told {
            Told::Before(words) => debug!(operation = operation_name, "{words}"),
            Told::Lacks(words) => {
                let remedy = "`tenure check` tells which permissions are missing";
                error!(lease, operation = operation_name, "{what} failed: {words}{left} ({remedy})");
            }
            Told::Failed(words) => warn!(lease, operation = operation_name, "{what} failed: {words}{left}"),
        }
    }

    /// Returns why the Lease, or the lock, could be taken, as the end of a sentence.
    fn after(&self, reason: TransitionReason, slot: Slot) -> String {
        let held = self.nouns.lease;
        let last =
            self.holders.get(&slot).map_or_else(|| "the last holder".into(), |holder| format!("the last holder, {holder},"));
        match reason {
            TransitionReason::Acquired(AcquireReason::Released) => format!("; {last} gave {held} back"),
            TransitionReason::Acquired(AcquireReason::Died) => format!("; {last} is dead"),
            TransitionReason::Acquired(AcquireReason::Expired) => format!("; {last} did not renew {held} in time"),
            TransitionReason::Acquired(AcquireReason::Nobody) => "; the wait for an earlier holder is over".into(),
            TransitionReason::Acquired(AcquireReason::Due) => "; the run is due".into(),
            TransitionReason::Acquired(AcquireReason::Cleared) => "; no earlier holder was waited for".into(),
            TransitionReason::Resumed | TransitionReason::Ended(_) => String::new(),
        }
    }

    /// Says when the next run of a task is due.
    fn fires(&self, before: &Status, after: &Status, wall: i64) {
        let fire = after.election.next_fire.filter(|fire| Some(*fire) != before.election.next_fire);
        if let Some((fire, at)) = fire.and_then(|fire| Some((fire, self.zone.shown(fire)?))) {
            let is_due = if fire > wall { "the next run is due at" } else { "a run has been due since" };
            info!(lease = self.lease, "{is_due} {at}");
        }
    }

    fn recovered(&mut self, operation: Operation) {
        if let Some(failures) = self.failures.recovered(operation) {
            info!(lease = self.lease, operation = operation.as_str(), failures, "requests to the API server work again");
            self.recovers = true;
        }
    }

    /// Says after an outage what a standby waits for: until then there is nothing else to say.
    fn waits(&mut self, after: &Status, now: Instant) {
        let held = self.nouns.lease;
        if let (true, Some(free)) = (std::mem::take(&mut self.recovers), after.election.free.filter(|free| now < *free)) {
            info!(
                lease = self.lease,
                "unless its holder renews it, {held} may be taken in {}",
                duration::measured(free.since(now))
            );
        }
    }

    /// Writes the line for a change, if it is worth one.
    pub(super) fn changed(&mut self, change: &Change<'_>) {
        let Change { before, after, fact, at } = *change;
        match fact {
            Fact::Told(message) => self.told(message, before),
            Fact::Event(event) => self.event(event, before, at.boot),
            Fact::Recorded(recorded) => self.recorded(recorded, at.boot),
            Fact::Elects(_) => {
                self.fires(before, after, at.wall);
                self.waits(after, at.boot);
            }
            Fact::Telling(_) | Fact::Requested(_) | Fact::WatchesAgain => {}
        }
    }
}

/// Returns how beforeFollow failed, if the workload was killed for that.
fn failed_hook(transition: &Transition) -> Option<Exit> {
    let killed = transition.phases.iter().find(|phase| phase.kind == PhaseKind::WorkloadKill)?.from;
    transition.phases.iter().find_map(|phase| {
        let PhaseKind::Hook { hook: HookKind::BeforeFollow, exit } = phase.kind else { return None };
        let was_cause = phase.until <= killed && killed.since(phase.until) < SHORTEST;
        (exit != Exit::Code(0) && was_cause).then_some(exit)
    })
}

/// As hexadecimal digits, the way collectors show them.
fn ids(context: TraceContext) -> (String, String) {
    (format!("{:032x}", context.trace_id), format!("{:016x}", context.span_id))
}

/// Seconds, to the microsecond.
fn readable(seconds: f64) -> f64 {
    (seconds * 1e6).round() / 1e6
}

/// The slot, if it is not the first, which is the Lease of that name itself.
fn further(slot: Slot) -> Option<u8> {
    Some(slot.0).filter(|slot| *slot > 0)
}

#[cfg(test)]
mod tests;
