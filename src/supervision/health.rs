//! Readiness and liveness of a running workload: when to probe it, and how to count the results, as a kubelet does.
//!
//! Owns the two checks of one run of the workload. Init reads its notifications, which are judged here, and runs its exec probes. The elector makes the
//! other probes (`http`, `tcp`, `file`), with its own timeout; an elector that does not answer says nothing about the workload.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use super::{
    interface::{Action, Launch},
    policy::{Mode, Policy},
};
use crate::{
    config::{Probe, ProbeHandler, ProbeKind, duration},
    link::{Reason, ToElector},
    notification::Notification,
    time::Instant,
};

/// Init wakes this late only if it was suspended or stopped, and the workload may have been too.
const LATE: Duration = Duration::from_secs(1);

/// Whom the probes ask now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Asks {
    /// No probe is made, as in a demotion.
    Nobody,
    /// A standby, whose probes have no deadline.
    Standby,
    /// A leader, under its permission to lead.
    Leader(Launch),
}

/// The two checks of a workload, and the limits that it has set itself by notifications.
#[derive(Clone, Debug, Hash)]
pub(crate) struct HealthChecks {
    policy: Arc<Policy>,
    readiness: Check,
    liveness: Check,
    /// Time by which a leader must be ready.
    ready_by: Option<Instant>,
    /// With a `startTimeout`: it has not been ready since its start.
    starts: bool,
    /// Time by which the workload must end, once it has notified STOPPING=1.
    ends_by: Option<Instant>,
    /// Time until which the workload has extended its start, by EXTEND_TIMEOUT_USEC.
    extended: Instant,
}

#[derive(Clone, Debug, Hash)]
struct Check {
    kind: ProbeKind,
    probe: Probe,
    handler: Option<ProbeHandler>,
    /// The result of the check: ready, or live.
    good: bool,
    /// Count of the results in a row that contradict `good`, as a kubelet counts them.
    result_run: u32,
    /// The last result was late and did not count, because init may not have run. A second one in a row counts.
    excused: bool,
    /// The reason of the last failure.
    failure: String,
    /// Time of the next probe. For a watchdog, the latest time for WATCHDOG=1.
    at: Instant,
    attempt: Option<Attempt>,
    /// The longest time between two WATCHDOG=1.
    watchdog: Duration,
    /// When this run of the workload was started.
    since: Instant,
}

/// A probe that has not answered yet.
#[derive(Clone, Copy, Debug, Hash)]
struct Attempt {
    began: Instant,
    /// Time at which the exec probe is killed. NEVER once it was killed, and its result does not count any more.
    kill_at: Instant,
}

impl HealthChecks {
    pub(crate) fn new(policy: Arc<Policy>, since: Instant) -> Self {
        let check = |kind: ProbeKind| {
            let probe = kind.of(&policy.config.workload).clone();
            let handler = if policy.mode == Mode::Plain { None } else { probe.handler() };
            let good = kind == ProbeKind::Liveness || handler.is_none();
            let (failure, watchdog) = ("no answer yet".into(), probe.watchdog());
            Check {
                kind,
                probe,
                handler,
                good,
                result_run: 0,
                excused: false,
                failure,
                at: Instant::NEVER,
                attempt: None,
                watchdog,
                since,
            }
        };
        let (readiness, liveness) = (check(ProbeKind::Readiness), check(ProbeKind::Liveness));
        Self { policy, readiness, liveness, ready_by: None, starts: false, ends_by: None, extended: Instant::BOOT }
    }

    const fn checks(&mut self) -> [&mut Check; 2] {
        [&mut self.readiness, &mut self.liveness]
    }

    /// Starts over for a new run of the workload, which is started now.
    pub(crate) fn forget(&mut self, now: Instant) {
        *self = Self::new(Arc::clone(&self.policy), now);
    }

    /// Starts the checks, now that the workload runs.
    pub(crate) fn begin(&mut self, now: Instant) {
        self.starts = self.policy.config.workload.start_timeout.is_some() && !self.readiness.good;
        let is_to_say_ready = self.readiness.handler == Some(ProbeHandler::Notify) && !self.readiness.good;
        for check in self.checks() {
            let first = now + check.probe.initial_delay;
            check.at = match (check.handler, check.kind) {
                (None, _) | (Some(ProbeHandler::Notify), ProbeKind::Readiness) => Instant::NEVER,
                // The watchdog starts with READY=1, as under systemd.
                (Some(ProbeHandler::Notify), ProbeKind::Liveness) if is_to_say_ready => Instant::NEVER,
                (Some(ProbeHandler::Notify), ProbeKind::Liveness) => first + check.watchdog,
                (Some(_), _) => first,
            };
        }
    }

    /// Starts `startTimeout` for a leader that is not ready; ends it for a standby.
    pub(crate) fn leads(&mut self, leads: bool, now: Instant) {
        let is_limited = leads && !self.readiness.good && self.ends_by.is_none();
        let timeout = if is_limited { self.policy.config.workload.start_timeout } else { None };
        self.ready_by = timeout.map(|timeout| (now + timeout).max(self.extended));
        if !leads {
            self.extended = Instant::BOOT;
        }
    }

    /// The reason why the workload is not ready, if it is not.
    pub(crate) fn unready(&self) -> Option<&str> {
        if self.ends_by.is_some() {
            return Some("it said STOPPING=1");
        }
        (!self.readiness.good).then_some(&self.readiness.failure)
    }

    /// Returns true if an exec probe may be running (law 8).
    pub(crate) fn is_asking(&self) -> bool {
        [&self.readiness, &self.liveness].iter().any(|check| check.asks_by_process() && check.attempt.is_some())
    }

    /// The reason to stop the workload because of its notifications or results, if there is one, and a line for the log.
    pub(crate) fn fault(&self) -> Option<(Reason, String)> {
        let is_live = self.liveness.good || self.ends_by.is_some();
        (!is_live).then(|| (Reason::NotLive, self.liveness.fault()))
    }

    /// The same because of a limit that has passed. Called after all notifications are read (law 9).
    pub(crate) fn overdue(&mut self, now: Instant) -> Option<(Reason, String)> {
        if self.ends_by.is_some_and(|at| at <= now) {
            let words = "the program said STOPPING=1, and has not ended within workload.stop.grace";
            return Some((Reason::NotLive, words.into()));
        }
        self.ready_by.take_if(|at| *at <= now)?;
        Some((
            Reason::NotReady,
            format!(
                "the readiness probe did not succeed within workload.startTimeout ({}): {}",
                self.policy.config.workload.start_timeout.map(duration::format).unwrap_or_default(),
                self.readiness.failure
            ),
        ))
    }

    /// Ends the limits of the start, if the workload is ready. `said` is true if a notification tells that it is.
    fn started(&mut self, said: bool, now: Instant) {
        if !self.readiness.good {
            return;
        }
        let begins = said && self.liveness.at == Instant::NEVER || self.starts || self.ready_by.is_some();
        if begins && self.ends_by.is_none() {
            self.liveness.watch(now + self.liveness.probe.initial_delay);
        }
        (self.ready_by, self.starts, self.extended) = (None, false, Instant::BOOT);
    }

    /// Takes a notification.
    pub(crate) fn notified(&mut self, said: &Notification, now: Instant) {
        match said {
            Notification::Ready => {
                self.readiness.says(true, "");
                self.started(true, now);
            }
            Notification::Reloading => self.readiness.says(false, "it said RELOADING=1"),
            Notification::Watchdog => {
                self.liveness.excused = false;
                self.liveness.wait(self.liveness.watchdog, now);
            }
            Notification::WatchdogSpan(span) => self.liveness.wait(*span, now),
            Notification::WatchdogTrigger => self.liveness.says(false, "it said WATCHDOG=trigger"),
            Notification::Stopping => {
                self.ends_by.get_or_insert(now + self.policy.config.workload.stop.grace);
                self.ready_by = None;
                // A workload that ends need not answer probes.
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

    /// Takes the result of the probe that was ordered at `began`.
    pub(crate) fn answered(&mut self, kind: ProbeKind, began: Instant, failure: Option<String>, now: Instant) {
        for check in self.checks().into_iter().filter(|check| check.kind == kind) {
            let answered = check.attempt.take_if(|attempt| attempt.began == began);
            let Some(Attempt { began, kill_at }) = answered else { continue };
            if check.at != Instant::NEVER {
                // Due at once if the probe took longer than its period.
                check.at = began + check.probe.period;
            }
            if !check.asks_by_process() || kill_at != Instant::NEVER {
                check.count_in_time(failure.clone(), began, now);
            }
        }
        self.started(false, now);
    }

    /// Forgets a probe that was not started. It is ordered again when it is due.
    pub(crate) fn not_asked(&mut self, kind: ProbeKind, began: Instant) {
        for check in self.checks().into_iter().filter(|check| check.kind == kind) {
            check.attempt.take_if(|attempt| attempt.began == began);
        }
    }

    /// Forgets the probes of the last elector. They are ordered again when they are due.
    pub(crate) fn change_elector(&mut self) {
        for check in self.checks().into_iter().filter(|check| !check.asks_by_process()) {
            check.attempt = None;
        }
    }

    /// Kills the exec probes that run.
    pub(crate) fn cancel(&mut self, now: Instant, out: &mut VecDeque<Action>) {
        for check in self.checks() {
            check.kill(now, out);
        }
    }

    /// Ends the checks of a workload that is being frozen, until it runs again.
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

    /// Orders the probes that are due.
    pub(crate) fn handle_timeout(&mut self, asks: &Asks, now: Instant, out: &mut VecDeque<Action>) {
        self.readiness.handle_timeout(asks, now, out);
        // Liveness waits for a leader that starts, as it does in a kubelet for a startup probe.
        let starts = self.ready_by.is_some() || self.starts && matches!(asks, Asks::Leader(_));
        if starts && self.liveness.at <= now {
            self.liveness.watch(now);
        }
        let asks = if starts { &Asks::Nobody } else { asks };
        self.liveness.handle_timeout(asks, now, out);
    }
}

impl Check {
    fn handle_timeout(&mut self, asks: &Asks, now: Instant, out: &mut VecDeque<Action>) {
        if let Some(attempt) = self.attempt.filter(|attempt| attempt.kill_at <= now) {
            self.kill(now, out);
            self.count_in_time(Some(format!("no answer within {}", duration::format(self.probe.timeout))), attempt.began, now);
        }
        if now < self.at {
            return;
        }
        let late = now.since(self.at);
        self.at = now + self.probe.period;
        match (self.handler, self.attempt, asks) {
            (Some(ProbeHandler::Notify), _, _) if late > LATE && !std::mem::replace(&mut self.excused, true) => self.watch(now),
            (Some(ProbeHandler::Notify), _, _) => self.says(false, "it did not say WATCHDOG=1 in time"),
            (Some(ProbeHandler::Exec), None, Asks::Standby | Asks::Leader(_)) => {
                self.attempt = Some(Attempt { began: now, kill_at: now + self.probe.timeout });
                let launch = if let Asks::Leader(launch) = asks { Some(launch.clone()) } else { None };
                out.push_back(Action::Probe { kind: self.kind, began: now, launch });
            }
            // The last probe was killed and does not end.
            (Some(ProbeHandler::Exec), Some(Attempt { kill_at: Instant::NEVER, .. }), _) => {
                self.count(Some(self.failure.clone()))
            }
            (Some(ProbeHandler::Http | ProbeHandler::Tcp | ProbeHandler::File), None, Asks::Standby | Asks::Leader(_)) => {
                self.attempt = Some(Attempt { began: now, kill_at: Instant::NEVER });
                out.push_back(Action::Tell(ToElector::Probe { kind: self.kind, began: now, since: self.since }));
            }
            (Some(_) | None, _, _) => {}
        }
    }

    /// Why the workload is not live.
    fn fault(&self) -> String {
        let Self { failure, probe, handler, .. } = self;
        match (handler, probe.failure_threshold) {
            (Some(ProbeHandler::Notify) | None, _) | (Some(_), 1) => format!("the liveness probe failed: {failure}"),
            (Some(_), times) => format!("the liveness probe failed {times} times in a row: {failure}"),
        }
    }

    fn asks_by_process(&self) -> bool {
        self.handler == Some(ProbeHandler::Exec)
    }

    fn kill(&mut self, now: Instant, out: &mut VecDeque<Action>) {
        if let Some(attempt) = self.attempt.as_mut().filter(|attempt| attempt.kill_at != Instant::NEVER) {
            attempt.kill_at = Instant::NEVER;
            // The killed probe has a moment to end before it counts as another failure.
            self.at = self.at.max(now + LATE);
            out.push_back(Action::KillProbe(self.kind));
        }
    }

    /// Takes a result from a notification, if notifications are the handler.
    fn says(&mut self, good: bool, failure: &str) {
        if self.handler == Some(ProbeHandler::Notify) {
            (self.good, self.failure) = (good, failure.into());
        }
    }

    /// Starts the watchdog at `from`.
    fn watch(&mut self, from: Instant) {
        if self.handler == Some(ProbeHandler::Notify) {
            // `infinity` is stored one tick below NEVER, so that a later, shorter value still counts.
            self.at = (from + self.watchdog).min(Instant::NEVER.before(Duration::from_nanos(1)));
        }
    }

    /// Sets the interval of the watchdog, and restarts the watchdog if it runs.
    fn wait(&mut self, span: Duration, now: Instant) {
        self.watchdog = span;
        if self.at != Instant::NEVER {
            self.watch(now);
        }
    }

    /// Counts a result, unless it is a failure and came so late that init may not have run.
    fn count_in_time(&mut self, failure: Option<String>, began: Instant, now: Instant) {
        let failure = failure.map(|why| format!("{}: {why}", self.probe.target()));
        let is_late = failure.is_some() && now > began + self.probe.timeout + LATE;
        if std::mem::replace(&mut self.excused, is_late) || !is_late {
            self.count(failure);
        }
    }

    /// Counts a result against the thresholds; `failure` is the reason of a failure.
    fn count(&mut self, failure: Option<String>) {
        let is_good = failure.is_none();
        self.failure = failure.unwrap_or_else(|| "it has not succeeded successThreshold times in a row yet".into());
        self.result_run = if is_good == self.good { 0 } else { self.result_run + 1 };
        if self.result_run >= if is_good { self.probe.success_threshold } else { self.probe.failure_threshold } {
            (self.good, self.result_run) = (is_good, 0);
        }
    }
}
