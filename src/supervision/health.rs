//! Whether a running workload is ready, and whether it is live: when it is asked, and what its answers amount to.
//!
//! Owns the two checks of one incarnation. What it says itself comes to init, which runs its programs too; the elector asks
//! whatever may take a while to answer, has its own timeout, and says nothing of the workload by not answering.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use super::{Action, Launch, workload::Policy};
use crate::{
    config::{Means, Probe, ProbeKind},
    link::{Reason, ToElector},
    notification::Notification,
    time::Instant,
};

/// Init wakes later than this only after a gap, in which the workload may not have run either.
const LATE: Duration = Duration::from_secs(1);

/// The checks of a workload.
#[derive(Clone, Debug)]
pub(crate) struct Health {
    policy: Arc<Policy>,
    readiness: Check,
    liveness: Check,
    /// A leader that is not ready by then gives up.
    ready_by: Option<Instant>,
    /// It has said that it ends, and has until then.
    ends_by: Option<Instant>,
    /// It is not ready yet, and has said that this may take until then.
    extended: Instant,
}

#[derive(Clone, Debug)]
struct Check {
    kind: ProbeKind,
    probe: Probe,
    means: Option<Means>,
    /// What its answers amount to.
    good: bool,
    /// So many in a row say the contrary.
    contrary: u32,
    /// The last one came late, so that tenure may be to blame for its failure. A second one in a row counts.
    excused: bool,
    /// How the last one failed.
    failure: String,
    /// When it is asked next; for a watchdog, when it was to say so at the latest.
    at: Instant,
    attempt: Option<Attempt>,
    /// From one WATCHDOG=1 to the next, at most.
    watchdog: Duration,
}

/// A question that is not answered yet.
#[derive(Clone, Copy, Debug)]
struct Attempt {
    began: Instant,
    /// Then the process that asks is killed; never, if it was, and the answer is of no interest any more.
    kill_at: Instant,
}

impl Health {
    pub(crate) fn new(policy: Arc<Policy>) -> Self {
        let check = |kind: ProbeKind| {
            let probe = kind.of(&policy.config).clone();
            let means = probe.means().filter(|_| !policy.plain);
            let good = kind == ProbeKind::Liveness || means.is_none();
            let (failure, watchdog) = ("no answer yet".into(), probe.watchdog());
            Check { kind, probe, means, good, contrary: 0, excused: false, failure, at: Instant::NEVER, attempt: None, watchdog }
        };
        let (readiness, liveness) = (check(ProbeKind::Readiness), check(ProbeKind::Liveness));
        Self { policy, readiness, liveness, ready_by: None, ends_by: None, extended: Instant::BOOT }
    }

    const fn checks(&mut self) -> [&mut Check; 2] {
        [&mut self.readiness, &mut self.liveness]
    }

    /// Another incarnation is started: nothing is known of it.
    pub(crate) fn forget(&mut self) {
        *self = Self::new(Arc::clone(&self.policy));
    }

    /// It runs.
    pub(crate) fn begin(&mut self, now: Instant) {
        let is_to_say_ready = self.readiness.means == Some(Means::Notify) && !self.readiness.good;
        for check in self.checks() {
            let first = now + check.probe.initial_delay;
            check.at = match (check.means, check.kind) {
                (None, _) | (Some(Means::Notify), ProbeKind::Readiness) => Instant::NEVER,
                // As under systemd: from READY=1 on.
                (Some(Means::Notify), ProbeKind::Liveness) if is_to_say_ready => Instant::NEVER,
                (Some(Means::Notify), ProbeKind::Liveness) => first + check.watchdog,
                (Some(_), _) => first,
            };
        }
    }

    /// It leads from now on, and has a while to be ready for that; or it follows, and need not be.
    pub(crate) fn leads(&mut self, leads: bool, now: Instant) {
        let timeout = self.policy.config.start_timeout.filter(|_| leads && !self.readiness.good && self.ends_by.is_none());
        self.ready_by = timeout.map(|timeout| (now + timeout).max(self.extended));
        if !leads {
            self.extended = Instant::BOOT;
        }
    }

    /// Why it is not ready, if it is not.
    pub(crate) fn unready(&self) -> Option<&str> {
        if self.ends_by.is_some() {
            return Some("it said STOPPING=1");
        }
        (!self.readiness.good).then_some(&self.readiness.failure)
    }

    /// Whether a process that asks may be running (law 8).
    pub(crate) fn is_asking(&self) -> bool {
        [&self.readiness, &self.liveness].iter().any(|check| check.asks_by_process() && check.attempt.is_some())
    }

    /// Why it is to be stopped by what it said or answered, if it is, and in more words.
    pub(crate) fn fault(&self) -> Option<(Reason, String)> {
        let is_live = self.liveness.good || self.ends_by.is_some();
        (!is_live).then(|| (Reason::NotLive, format!("the workload is not live: {}", self.liveness.failure)))
    }

    /// The same by what it has not done in time, once everything is read that it had said by then (law 9).
    pub(crate) fn overdue(&mut self, now: Instant) -> Option<(Reason, String)> {
        if self.ends_by.is_some_and(|at| at <= now) {
            let words = "the workload said STOPPING=1, and has not ended within workload.stop.grace";
            return Some((Reason::NotLive, words.into()));
        }
        self.ready_by.take_if(|at| *at <= now)?;
        Some((Reason::NotReady, format!("the workload is not ready in time: {}", self.readiness.failure)))
    }

    /// What was to make it ready is over once it is.
    const fn started(&mut self) {
        if self.readiness.good {
            (self.ready_by, self.extended) = (None, Instant::BOOT);
        }
    }

    /// What it says of itself.
    pub(crate) fn notified(&mut self, said: &Notification, now: Instant) {
        match said {
            Notification::Ready => {
                self.readiness.says(true, "");
                self.started();
                if self.liveness.at == Instant::NEVER && self.ends_by.is_none() {
                    self.liveness.watch(now + self.liveness.probe.initial_delay);
                }
            }
            Notification::Reloading => self.readiness.says(false, "it said RELOADING=1"),
            Notification::Watchdog => {
                self.liveness.excused = false;
                self.liveness.wait(self.liveness.watchdog, now);
            }
            Notification::WatchdogSpan(span) => self.liveness.wait(*span, now),
            Notification::WatchdogTrigger => self.liveness.says(false, "it said WATCHDOG=trigger"),
            Notification::Stopping => {
                self.ends_by.get_or_insert(now + self.policy.config.stop.grace);
                self.ready_by = None;
                // What ends need not answer.
                (self.readiness.at, self.liveness.at) = (Instant::NEVER, Instant::NEVER);
            }
            Notification::ExtendTimeout(span) => {
                let until = now + *span;
                if !self.readiness.good {
                    self.extended = until;
                }
                for limit in [&mut self.ready_by, &mut self.ends_by].into_iter().flatten() {
                    *limit = until.max(*limit);
                }
            }
            Notification::Role(_) | Notification::Status(_) | Notification::Refused(_) => {}
        }
    }

    /// The answer to what was asked then: why it failed, if it did.
    pub(crate) fn answered(&mut self, kind: ProbeKind, began: Instant, failure: Option<String>, now: Instant) {
        for check in self.checks().into_iter().filter(|check| check.kind == kind) {
            let answered = check.attempt.take_if(|attempt| attempt.began == began);
            let Some(Attempt { began, kill_at }) = answered else { continue };
            if check.at != Instant::NEVER {
                // At once, if it took longer than that.
                check.at = began + check.probe.period;
            }
            if !check.asks_by_process() || kill_at != Instant::NEVER {
                check.count_in_time(failure.clone(), began, now);
            }
        }
        self.started();
    }

    /// What the last elector was asked is asked again when it is due.
    pub(crate) fn change_elector(&mut self) {
        for check in self.checks().into_iter().filter(|check| !check.asks_by_process()) {
            check.attempt = None;
        }
    }

    /// Kills what asks.
    pub(crate) fn call_off(&mut self, now: Instant, out: &mut VecDeque<Action>) {
        for check in self.checks() {
            check.kill(now, out);
        }
    }

    /// It is being frozen, and answers nobody until it runs again.
    pub(crate) fn pause(&mut self, now: Instant, out: &mut VecDeque<Action>) {
        for check in self.checks() {
            check.kill(now, out);
            (check.at, check.attempt) = (Instant::NEVER, None);
        }
    }

    pub(crate) fn due(&self) -> Option<Instant> {
        let due = |check: &Check| check.attempt.map_or(check.at, |attempt| attempt.kill_at.min(check.at));
        let first = due(&self.readiness).min(due(&self.liveness)).or_earlier(self.ready_by).or_earlier(self.ends_by);
        Some(first).filter(|at| *at != Instant::NEVER)
    }

    /// Asks what is to be asked now, as a leader under this launch or as a standby; not at all where that may not be.
    pub(crate) fn handle_timeout(&mut self, may_ask: Option<&Option<Launch>>, now: Instant, out: &mut VecDeque<Action>) {
        for check in self.checks() {
            check.handle_timeout(may_ask, now, out);
        }
    }
}

impl Check {
    fn handle_timeout(&mut self, may_ask: Option<&Option<Launch>>, now: Instant, out: &mut VecDeque<Action>) {
        if let Some(attempt) = self.attempt.filter(|attempt| attempt.kill_at <= now) {
            self.kill(now, out);
            self.count_in_time(Some(format!("no answer within {:?}", self.probe.timeout)), attempt.began, now);
        }
        if now < self.at {
            return;
        }
        let late = now.since(self.at);
        self.at = now + self.probe.period;
        match (self.means, self.attempt, may_ask) {
            (Some(Means::Notify), _, _) if late > LATE && !std::mem::replace(&mut self.excused, true) => self.watch(now),
            (Some(Means::Notify), _, _) => self.says(false, "it did not say WATCHDOG=1 in time"),
            (Some(Means::Exec), None, Some(launch)) => {
                self.attempt = Some(Attempt { began: now, kill_at: now + self.probe.timeout });
                out.push_back(Action::Probe { kind: self.kind, began: now, launch: launch.clone() });
            }
            // Its process was killed, and does not end.
            (Some(Means::Exec), Some(Attempt { kill_at: Instant::NEVER, .. }), _) => self.count(Some(self.failure.clone())),
            (Some(Means::Http | Means::Tcp | Means::File), None, Some(_)) => {
                self.attempt = Some(Attempt { began: now, kill_at: Instant::NEVER });
                out.push_back(Action::Tell(ToElector::Probe { kind: self.kind, began: now }));
            }
            (Some(_) | None, _, _) => {}
        }
    }

    fn asks_by_process(&self) -> bool {
        self.means == Some(Means::Exec)
    }

    fn kill(&mut self, now: Instant, out: &mut VecDeque<Action>) {
        if let Some(attempt) = self.attempt.as_mut().filter(|attempt| attempt.kill_at != Instant::NEVER) {
            attempt.kill_at = Instant::NEVER;
            // It is given a moment to end before it counts as one that does not.
            self.at = self.at.max(now + LATE);
            out.push_back(Action::KillProbe(self.kind));
        }
    }

    /// It says so itself, where it is asked to.
    fn says(&mut self, good: bool, failure: &str) {
        if self.means == Some(Means::Notify) {
            (self.good, self.failure) = (good, failure.into());
        }
    }

    /// It is to say that it is live, for the first time within what was agreed from then on.
    fn watch(&mut self, from: Instant) {
        if self.means == Some(Means::Notify) {
            // For ever is not never: it may say something shorter later.
            self.at = (from + self.watchdog).min(Instant::NEVER.before(Duration::from_nanos(1)));
        }
    }

    /// It is to say so within this, and if it is to say so already, from now on.
    fn wait(&mut self, span: Duration, now: Instant) {
        self.watchdog = span;
        if self.at != Instant::NEVER {
            self.watch(now);
        }
    }

    /// Counts an answer, unless it is a failure that a gap explains.
    fn count_in_time(&mut self, failure: Option<String>, began: Instant, now: Instant) {
        let is_late = failure.is_some() && now > began + self.probe.timeout + LATE;
        if std::mem::replace(&mut self.excused, is_late) || !is_late {
            self.count(failure);
        }
    }

    /// Counts an answer: why it is a failure, if it is one.
    fn count(&mut self, failure: Option<String>) {
        let is_good = failure.is_none();
        self.failure = failure.unwrap_or_else(|| "it has not succeeded successThreshold times in a row yet".into());
        self.contrary = if is_good == self.good { 0 } else { self.contrary + 1 };
        if self.contrary >= if is_good { self.probe.success_threshold } else { self.probe.failure_threshold } {
            (self.good, self.contrary) = (is_good, 0);
        }
    }
}
