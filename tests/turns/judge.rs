//! Says which step of init is against the law, when it is taken.
//!
//! Owns what the law says of a term that init has read of. Knows no agent and no workload's machine.

use std::{fmt::Debug, time::Duration};

use tenure::{
    config::{Config, HookKind, Signal},
    law::{Deadlines, Timing, WITHDRAWAL},
    link::{Reason, Term, ToElector, ToInit},
    role::Role,
    supervision::{Ended, HelperKind, NotSpawned, Order, Program, Scan, TermStatus},
    time::Instant,
};

use super::Kind;

/// Limit on a turn, whatever it has to reap.
const TURN: Duration = Duration::from_millis(250);

/// A term that init has accepted.
#[derive(Clone, Debug)]
struct Lease {
    term: Term,
    deadlines: Deadlines,
    /// Why it ends, and since when.
    stop: Option<(Reason, Instant)>,
    is_proved: bool,
    /// No elector waits for the answer to its StepDown.
    is_answered: bool,
    is_void: bool,
}

impl Lease {
    fn loss(&self) -> Option<Instant> {
        self.stop.filter(|(reason, _)| reason.is_loss()).map(|(_, at)| at)
    }

    fn stops(&mut self, reason: Reason, now: Instant) {
        if self.stop.is_none_or(|(before, _)| reason.is_loss() && !before.is_loss()) {
            self.stop = Some((reason, now));
        }
    }
}

#[derive(Default)]
pub(crate) struct Judge {
    kind: Kind,
    config: Config,
    pub(crate) wrong: Option<String>,
    pub(crate) story: Vec<String>,
    lease: Option<Lease>,
    last: u64,
    /// Acknowledgements that may be sent.
    due: Vec<(Term, u64)>,
    page: Option<TermStatus>,
    pub(crate) fuse: Option<Instant>,
    /// When the fuse fired last, at H or too early.
    pub(crate) fired: Option<Instant>,
    leads: bool,
    /// The workload has started as leader, or was promoted.
    has_started: bool,
    is_greeted: bool,
    has_elector: bool,
    /// When an elector was killed that is not reaped yet.
    pub(crate) killed: Option<(i32, Instant)>,
    main: Option<i32>,
    /// When the main process got the stop signal, or was told that it is demoted.
    asked: Option<Instant>,
    is_killed: bool,
    /// Everything was killed since H.
    all_killed: bool,
    /// A planned stop waits for the withdrawal until then.
    withheld: Option<Instant>,
    /// Count of SIGTERM.
    terms: u32,
    is_frozen: bool,
    /// Something that beforeLead has left may run.
    is_prepared: bool,
    /// At H survivors were found that cannot be killed.
    is_hopeless: bool,
    /// The last main process came too late to be executed.
    never_ran: bool,
    is_over: bool,
}

impl Judge {
    pub(crate) fn new(kind: Kind, config: &Config) -> Self {
        Self { kind, config: config.clone(), ..Self::default() }
    }

    pub(crate) const fn timing(&self) -> Timing {
        self.config.timing()
    }

    fn note(&mut self, what: &dyn Debug, now: Instant) {
        self.story.push(format!("{now:?} {what:?}"));
    }

    fn forbid(&mut self, is_wrong: bool, why: &str) {
        if is_wrong && self.wrong.is_none() {
            self.wrong = Some(why.into());
        }
    }

    fn is_plausible(&self, deadlines: Deadlines, now: Instant) -> bool {
        let latest = self.timing().deadlines(now);
        deadlines.soft <= latest.soft && deadlines.hard <= latest.hard && deadlines.end <= latest.end
    }

    pub(crate) fn begins(&mut self, now: Instant) {
        self.story.push(format!("{now:?} -- a turn"));
    }

    /// A message that init reads.
    pub(crate) fn reads(&mut self, message: &ToInit, now: Instant) {
        if *message != ToInit::Heartbeat {
            self.note(message, now);
        }
        let named = |lease: &Lease, term: Term| lease.term == term;
        match message {
            ToInit::Hello => self.is_greeted = true,
            ToInit::Lead { term, confirmed, .. } => {
                let is_free = self.lease.as_ref().is_none_or(|lease| lease.is_proved) && !self.leads;
                if is_free && term.0 > self.last && self.is_plausible(confirmed.deadlines, now) {
                    let stop = (self.terms > 0).then_some((Reason::Signal, now));
                    let deadlines = confirmed.deadlines;
                    self.lease =
                        Some(Lease { term: *term, deadlines, stop, is_proved: false, is_answered: false, is_void: false });
                    self.last = term.0;
                    self.due.push((*term, 0));
                    (self.has_started, self.all_killed, self.is_hopeless, self.withheld) = (false, false, false, None);
                }
            }
            ToInit::Extend { term, serial, confirmed } => {
                let is_plausible = self.is_plausible(confirmed.deadlines, now);
                let is_spent = self.lease.as_ref().is_some_and(|lease| self.fired >= Some(lease.deadlines.hard));
                if let Some(lease) = self.lease.as_mut().filter(|lease| named(lease, *term))
                    && is_plausible
                    && !is_spent
                    && lease.loss().is_none()
                    && !lease.is_void
                    && !self.all_killed
                {
                    lease.deadlines = lease.deadlines.max(confirmed.deadlines);
                    self.due.push((*term, *serial));
                }
            }
            ToInit::StepDown { term, reason, .. } => {
                let may_wait = self.may_wait();
                let Some(lease) = self.lease.as_mut().filter(|lease| named(lease, *term)) else { return };
                (lease.is_proved, lease.is_answered) = (false, false);
                if may_wait && !reason.is_loss() && lease.stop.is_none() {
                    self.withheld = Some(lease.deadlines.soft.min(now + WITHDRAWAL));
                }
                lease.stops(*reason, now);
            }
            ToInit::Withdrawn { term } => {
                if self.lease.as_ref().is_some_and(|lease| named(lease, *term)) && self.withheld.is_some() {
                    self.withheld = Some(Instant::BOOT);
                }
            }
            ToInit::Releasing { term, serial } => {
                if let Some(lease) = self.lease.as_mut().filter(|lease| named(lease, *term) && lease.is_proved) {
                    lease.is_void = true;
                    self.due.push((*term, *serial));
                }
            }
            ToInit::Ended { term, .. } => {
                let leads = self.leads;
                self.lease.take_if(|lease| named(lease, *term) && lease.stop.is_some() && !leads);
            }
            ToInit::Observed { .. }
            | ToInit::Probed { .. }
            | ToInit::Heartbeat
            | ToInit::Done
            | ToInit::GaveUp { .. }
            | ToInit::Failed { .. } => {}
        }
    }

    fn may_wait(&self) -> bool {
        self.kind == Kind::Published && self.is_greeted && self.has_elector && self.has_started && self.leads && self.terms == 0
    }

    pub(crate) fn signal(&mut self, signal: i32, now: Instant) {
        if signal != libc::SIGTERM {
            return;
        }
        self.note(&"SIGTERM", now);
        let may_wait = self.may_wait();
        self.terms += 1;
        let Some(lease) = &mut self.lease else { return };
        if self.withheld.is_some() {
            self.withheld = Some(Instant::BOOT);
        } else if may_wait && lease.stop.is_none() {
            self.withheld = Some(lease.deadlines.soft.min(now + WITHDRAWAL));
        }
        lease.stops(Reason::Signal, now);
    }

    /// A message that init sends.
    pub(crate) fn sends(&mut self, message: &ToElector, now: Instant) {
        if *message != ToElector::Heartbeat {
            self.note(message, now);
        }
        match message {
            ToElector::Acknowledged { term, serial } => {
                let due = self.due.iter().position(|due| *due == (*term, *serial));
                if let Some(due) = due {
                    self.due.swap_remove(due);
                }
                self.forbid(due.is_none(), "law 1, 3, 8: it acknowledges what it had to refuse");
            }
            ToElector::Started { .. } => self.has_started = true,
            ToElector::Stopping { reason, .. } => {
                self.forbid(self.never_ran && *reason == Reason::Exited, "law 15: what never ran has exited");
                if let Some(lease) = &mut self.lease {
                    lease.stops(*reason, now);
                }
            }
            ToElector::Stopped { .. } => {
                self.leads = false;
                if let Some(lease) = &mut self.lease {
                    (lease.is_proved, lease.is_answered) = (true, true);
                }
            }
            ToElector::InitialState(_)
            | ToElector::Restarting { .. }
            | ToElector::Unproved { .. }
            | ToElector::Shutdown
            | ToElector::Heartbeat
            | ToElector::Hooked { .. }
            | ToElector::Probe { .. }
            | ToElector::Health { .. }
            | ToElector::Warn(_) => {}
        }
    }

    pub(crate) fn publishes(&mut self, status: TermStatus, now: Instant) {
        if self.page.replace(status) == Some(status) {
            return;
        }
        self.note(&status, now);
        if status.role == Role::Standby {
            return;
        }
        let Some(Lease { deadlines, stop, .. }) = self.lease.clone() else {
            return self.forbid(true, "law 3: a leader's page without a term");
        };
        let nothing_is_sure = stop.is_some_and(|(reason, _)| reason.is_loss() && reason != Reason::Expired);
        let hard = if nothing_is_sure { Instant::BOOT } else { deadlines.hard };
        self.forbid(status.hard != hard, "law 3: the page shows another H");
        let is_asked = status.soft == Instant::BOOT;
        self.forbid(!is_asked && status.soft != deadlines.soft, "law 3: the page shows another S");
        self.forbid(!is_asked && stop.is_some(), "law 3: the page shows the S of a term that ends");
    }

    fn shows_soft(&self) -> bool {
        self.page.is_some_and(|page| page.soft != Instant::BOOT)
    }

    pub(crate) fn forks(&mut self, program: &Program, now: Instant) {
        self.note(program, now);
        self.never_ran &= program.helper.is_some();
        match program.helper {
            None if program.fused => {
                let soft = self.lease.as_ref().map(|lease| lease.deadlines.soft);
                self.forbid(now >= program.not_after, "law 15: it starts a leader at S");
                self.forbid(soft.is_none_or(|soft| program.not_after > soft), "law 15: a leader may start after S");
                self.has_fuses();
                self.leads = true;
            }
            Some(HelperKind::Hook(HookKind::BeforeLead)) => {
                self.has_fuses();
                (self.leads, self.is_prepared) = (true, true);
            }
            Some(HelperKind::Hook(HookKind::AfterFollow)) => {
                let is_answered = self.lease.as_ref().is_none_or(|lease| lease.is_answered);
                self.forbid(self.has_elector && !is_answered, "law 8: afterFollow comes before the answer");
            }
            Some(HelperKind::Hook(HookKind::BeforeFollow)) => {
                if let (Some(lease), Some(reason)) = (&mut self.lease, program.told.reason) {
                    lease.stops(reason, now);
                }
            }
            None | Some(_) => {}
        }
    }

    /// The fuses are set before anything that relies on them. An H that the same step has read is a later one.
    fn has_fuses(&mut self) {
        let hard = self.lease.as_ref().map(|lease| lease.deadlines.hard);
        self.forbid(self.fuse.is_none() || self.fuse > hard, "law 3: a leader runs without its fuse");
    }

    pub(crate) fn main(&mut self, pid: i32) {
        (self.main, self.asked, self.is_killed, self.is_frozen) = (Some(pid), None, false, false);
    }

    pub(crate) fn reaped(&mut self, pid: i32, ended: &Ended, is_elector: bool, now: Instant) {
        if self.main == Some(pid) {
            self.note(&("the main process is reaped", ended), now);
            (self.main, self.never_ran) = (None, ended.started == Some(Err(NotSpawned::Late)));
        }
        self.killed.take_if(|(killed, _)| *killed == pid);
        if let Some((_, at)) = &mut self.killed
            && is_elector
        {
            // The end of an earlier one delays the next.
            *at = now;
        }
    }

    pub(crate) fn tells(&mut self, order: Order, now: Instant) {
        self.note(&order, now);
        match order {
            Order::Resume { .. } => {
                self.forbid(!self.is_frozen, "law 8: it continues what was not seen to be frozen");
                self.leads = true;
            }
            Order::Signal { role: Role::Leader, .. } => {
                self.has_fuses();
                (self.leads, self.asked) = (true, None);
            }
            Order::Signal { .. } => _ = self.asked.get_or_insert(now),
            Order::Mark(_) => {}
        }
    }

    pub(crate) fn looks(&mut self, is_frozen: bool) {
        self.is_frozen = is_frozen;
    }

    pub(crate) fn signals_main(&mut self, signal: Signal, now: Instant) {
        self.note(&signal, now);
        match signal.0 {
            libc::SIGTERM => {
                // No elector is told why.
                let is_told = self.has_elector || self.fired.is_some() || !self.leads;
                if let Some(lease) = self.lease.as_mut().filter(|lease| !is_told && lease.deadlines.soft <= now) {
                    lease.stop.get_or_insert((Reason::Expired, now));
                }
                // Without an elector nobody withdraws.
                let is_early = self.has_elector && self.withheld.is_some_and(|until| now < until);
                let lease = self.lease.as_ref().filter(|_| self.leads);
                let is_cut_off =
                    lease.is_none_or(|lease| lease.loss().is_some() || lease.deadlines.soft <= now) || self.fired.is_some();
                self.forbid(is_early && !is_cut_off, "law 19: the stop does not wait for the withdrawal");
                self.forbid(self.leads && self.shows_soft(), "law 3: S is on the page when the stop signal is sent");
                self.asked.get_or_insert(now);
                self.withheld = None;
            }
            libc::SIGKILL => {
                self.kills(now);
                self.is_killed = true;
            }
            _ => {}
        }
    }

    fn kills(&mut self, now: Instant) {
        let (Some(asked), Some(lease), Some(_)) = (self.asked, &self.lease, self.main) else { return };
        let grace = self.config.workload.stop.grace;
        let is_early = now < asked + grace && now < lease.deadlines.hard && lease.loss().is_none() && self.terms < 2;
        let asks = matches!(self.kind, Kind::Leading | Kind::Published);
        self.forbid(asks && self.leads && is_early && self.fired.is_none(), "law 7: a planned stop has its whole grace");
    }

    pub(crate) fn kills_all(&mut self, now: Instant) {
        self.note(&"kill(-1)", now);
        self.kills(now);
        (self.is_killed, self.all_killed) = (true, true);
    }

    pub(crate) fn scans(&mut self, kill: bool, scan: &Scan, now: Instant) {
        self.note(&(kill, scan), now);
        if scan.clean {
            (self.leads, self.is_prepared, self.fired) = (false, false, None);
        }
        self.is_killed |= kill;
        let is_past = self.lease.as_ref().is_some_and(|lease| lease.deadlines.hard <= now);
        self.is_hopeless = kill && self.all_killed && is_past && scan.denied && self.leads;
    }

    pub(crate) fn elector(&mut self, pid: Option<i32>, now: Instant) {
        self.note(&("elector", pid), now);
        (self.has_elector, self.is_greeted) = (pid.is_some(), false);
        if pid.is_some() {
            self.killed = None;
        }
        if let Some(lease) = &mut self.lease {
            (lease.is_proved, lease.is_answered) = (false, lease.is_answered || pid.is_none());
        }
    }

    pub(crate) fn dies(&mut self, now: Instant) {
        self.note(&"init ends itself", now);
        (self.is_over, self.is_hopeless) = (true, false);
    }

    /// The turn that began then is over.
    pub(crate) fn ends(&mut self, began: Instant, now: Instant, leads: bool, hard: Option<Instant>, due: Option<Instant>) {
        if self.is_over {
            return;
        }
        self.forbid(now.since(began) > TURN, "law 2: the deadlines wait for the dead");
        self.forbid(self.is_prepared && !leads, "law 8: what beforeLead left was not proved gone");
        self.forbid(leads && self.fuse != hard, "law 3: the fuses do not follow H");
        self.forbid(self.is_hopeless && due.is_none_or(|due| due > now), "law 8: init waits although nothing can be killed");
        let late = self.killed.is_some_and(|(_, at)| at + Duration::from_secs(1) <= began);
        let wants_elector = self.terms == 0 && !self.all_killed;
        self.forbid(late && wants_elector && !self.has_elector, "law 10: an elector that cannot be reaped is not replaced");
        let Some(lease) = self.lease.as_mut().filter(|_| leads) else { return };
        let (soft, hard) = (lease.deadlines.soft, lease.deadlines.hard);
        let stops_already = self.is_killed || self.asked.is_some_and(|at| at < soft);
        let is_missed = lease.stop.is_none() && !stops_already && soft <= began;
        if is_missed && self.main.is_some() {
            lease.stops(Reason::Expired, began);
        }
        let loss = lease.loss();
        self.forbid(is_missed && self.shows_soft(), "law 3: the term goes on at S");
        self.forbid(hard <= began && !self.all_killed, "law 3: not everything is killed at H");
        let is_in_hand = self.main.is_none() || self.asked.is_some() || self.is_killed;
        self.forbid(loss.is_some() && !is_in_hand, "law 7: a loss waits");
        let is_due = loss.is_some_and(|at| at + self.timing().loss_grace <= began);
        self.forbid(is_due && self.main.is_some() && !self.is_killed, "law 7: a loss leaves more than G");
        let is_over = self.withheld.is_some_and(|until| until <= began);
        self.forbid(is_over && !is_in_hand, "law 19: the withdrawal is waited for without end");
    }
}
