//! The rules that couple the link and the workload: whether it may lead now, until when, and when the Lease may be released.
//!
//! Owns the term, its deadlines, the electors and the end of init. Everything about the workload itself is left to the workload's
//! own machine.
//!
//! The way of a SIGTERM leads from file to file. `turn` has read it. (`init::foreground` withholds only those stops of a terminal
//! that concern init's own use of it.) [`requests`] takes it and asks the workload's machine, which asks, kills and proves: its
//! actions pass through `flush` to `turn::actions`, and to `init::container`, which acts. The end of the main process comes by
//! `turn::children`; the workload's machine then sweeps what is left. [`term_end`] ends the term and tells the elector, which
//! answers with a StepDown (in `election::leading::ending`). [`told`] hands that to [`requests`], which asks the workload's
//! machine for a proof made from then on, or leaves it to the stop that is under way, and [`events`] sends the proof; one that
//! nobody has asked for is told to nobody. After it [`told`] takes what the elector says of the release, and [`shutdown`] ends
//! init. Where an address is published, [`requests`] first puts the stop off, until [`told`] takes that the address is withdrawn.
//! A loss comes as a StepDown too, and is never put off.
//!
//! So does the way of a Lead: [`told`] takes it, and `follow_up`, after every input, gives the workload's machine what is wanted
//! of it. That orders a spawn, which `turn` carries out.
//!
//! And so does the way of a deadline: `poll_timeout` lists it, and `handle_timeout` calls who acts on it ([`term_end`] for S, H
//! and the limit of a task). The formulas are in `law`.

use std::collections::{BTreeMap, VecDeque};

use crate::{
    config::{Config, Hooks, Preset, SharedConfig, Signal, Signals, duration},
    law::Timing,
    link::{InitialState, KubeContext, LastSeen, LeaseBackoff, Reason, Term, ToElector},
    slot::Slot,
    time::Instant,
};

use super::{
    electors::{Electors, Move},
    interface::{Action, Input, Launch, TermStatus},
    policy::Policy,
    term::ActiveTerm,
    workload::Workload,
};

mod events;
mod health;
mod requests;
mod shutdown;
mod term_end;
#[cfg(test)]
mod tests;
mod told;

use health::ToldHealth;
use requests::Withdrawal;
use shutdown::Shutdown;

/// Configuration and environment of the agent, set once.
#[derive(Clone, Debug, Hash)]
pub struct AgentConfig {
    /// The validated configuration.
    pub config: SharedConfig,
    /// The command of tenure that runs the workload.
    pub preset: Preset,
    /// When init began.
    pub began: Instant,
    /// Full identity, constant per init.
    pub identity: String,
    /// The kubeconfig context that this replica's Lease is in; none: the pod's own cluster.
    pub context: Option<KubeContext>,
    /// Init is PID 1, so kill(-1) and its own end kill everything.
    pub pid1: bool,
    /// The workload has a terminal or may be lent one, so a key may end it.
    pub terminal: bool,
}

/// The state machine that init's loop drives.
#[derive(Clone, Debug, Hash)]
pub struct Agent {
    config: AgentConfig,
    /// The same for every term and every elector of this init (law 1).
    timing: Timing,
    workload: Workload,
    electors: Electors,
    term: Option<ActiveTerm>,
    last_term: Term,
    /// The latest observation of each Lease that the electors reported (law 11, 14).
    last_seen: BTreeMap<Slot, LastSeen>,
    /// The back-off after the last term, for the next elector.
    backoff: Option<LeaseBackoff>,
    /// Count of the electors that were started after the limit of the wait.
    late_electors: u32,
    /// Exit code, once an elector has reported that no elector can work.
    failed: Option<u8>,
    shutdown: Option<Shutdown>,
    withdrawal: Option<Withdrawal>,
    /// The last `STATUS` that the workload has notified.
    status: String,
    told_health: ToldHealth,
    /// [`Action::Exit`] was returned: nothing more is done.
    over: bool,
    actions: VecDeque<Action>,
    /// Messages and lines that come after the workload's actions, because the kill comes first (law 2).
    words: VecDeque<Action>,
}

impl Agent {
    /// The state at the start of init. The first `handle_timeout` is due at once.
    pub fn new(config: AgentConfig) -> Self {
        Self {
            timing: config.config.timing(),
            workload: Workload::new(Policy::of(config.config.clone(), config.pid1, config.terminal)),
            electors: Electors::new(config.config.lease.duration),
            config,
            term: None,
            last_term: Term(0),
            last_seen: BTreeMap::new(),
            backoff: None,
            late_electors: 0,
            failed: None,
            shutdown: None,
            withdrawal: None,
            status: String::new(),
            told_health: ToldHealth::with(true),
            over: false,
            actions: VecDeque::new(),
            words: VecDeque::new(),
        }
    }

    /// Returns true if anything of a leader may run: from its start to the proof of its death.
    pub fn leads(&self) -> bool {
        self.workload.leads()
    }

    /// Returns true if the workload may get no signal but SIGKILL, because it is or will be frozen.
    pub fn is_frozen(&self) -> bool {
        self.workload.is_frozen()
    }

    /// H, while anything of a leader may run. Nothing of it may run from H on, whether init runs or not (law 3).
    pub fn hard(&self) -> Option<Instant> {
        self.leading().map(|term| term.deadlines().hard)
    }

    /// The status that the workload may read. It is updated before the actions that follow from the same input.
    pub fn term_status(&self) -> TermStatus {
        self.leading().map_or(TermStatus::NONE, ActiveTerm::status)
    }

    /// The term, while its deadlines are enforced. The proof of death disarms them (law 3).
    fn leading(&self) -> Option<&ActiveTerm> {
        if self.workload.leads() { self.term.as_ref() } else { None }
    }

    /// Handles an input that was read at `now`. Never acts on a deadline: only [`Self::handle_timeout`] does (law 9).
    pub fn handle(&mut self, input: Input, now: Instant) {
        if self.over {
            return;
        }
        match input {
            Input::Told(message) => {
                self.electors.heard(now);
                self.told_health.is_heard = true;
                self.told(message, now);
                self.flush(now);
                self.tell_health(true, now);
            }
            Input::ElectorStarted => {
                self.electors.started(now);
                self.workload.health.change_elector();
                self.told_health = ToldHealth::with(self.config.config.workload.readiness.handler().is_none());
                if let Some(shutdown) = &mut self.shutdown {
                    shutdown.was_told();
                }
                self.tell_start();
                if self.workload.is_stuck() {
                    self.tell_unproved();
                }
            }
            Input::ElectorEnded => {
                self.electors.ended(now);
                self.change_elector();
            }
            Input::LinkBroken => self.give_elector_up(now),
            Input::Signal(signal) => self.signalled(Signal(signal), now),
            Input::Forked { pid } => {
                self.status.clear();
                self.workload.forked(pid, now);
            }
            Input::Spawned => self.workload.spawned(now),
            Input::NotSpawned(why) => self.workload.not_spawned(why, now),
            Input::Role(input) => self.workload.role(input, now),
            Input::Notified(said) => self.notified(said, now),
            Input::Probed { kind, began, failure } => self.workload.health.answered(kind, began, failure, now),
            Input::ProbeNotForked { kind, began } => self.workload.health.not_asked(kind, began),
            Input::Reaped { pid, exit } => self.workload.reaped(pid, exit, now),
            Input::Childless => self.workload.childless(now),
            Input::Scanned(scan) => self.workload.scanned(scan, now),
            Input::FuseFired { left } => self.burnt(left, now),
        }
        self.follow_up(now);
    }

    /// The first message to an elector that starts now. It includes everything that has happened since the start was ordered.
    pub fn initial_state(&self) -> InitialState {
        let mut config = Config::clone(&self.config.config);
        config.workload.command.clear();
        config.workload.env.clear();
        config.standby.command.clear();
        config.hooks = Hooks::default();
        config.signals = Signals::default();
        let resume = |term: &ActiveTerm| term.resume(self.workload.leads(), self.workload.main());
        InitialState {
            config,
            preset: self.config.preset.clone(),
            began: self.config.began,
            identity: self.config.identity.clone(),
            context: self.config.context.clone(),
            generation: self.electors.generation(),
            last_term: self.last_term,
            resume: self.term.as_ref().map(resume),
            last_seen: self.last_seen.clone(),
            backoff: self.backoff,
            shutdown: self.shutdown.is_some(),
            pid1: self.config.pid1,
        }
    }

    /// Returns the next action.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// Shows the action that [`Self::poll_action`] returns next.
    pub(super) fn next_action(&self) -> Option<&Action> {
        self.actions.front()
    }

    /// Returns the time at which [`Self::handle_timeout`] is due.
    pub fn poll_timeout(&self) -> Option<Instant> {
        if self.over {
            return None;
        }
        let deadline = self.leading().and_then(ActiveTerm::due);
        let ending = if self.waits_to_end() { self.shutdown.as_ref() } else { None };
        let end = ending.and_then(|shutdown| shutdown.due(self.term.as_ref()));
        let elector = self.electors.due(self.wants_elector());
        let first = (self.is_plain() && self.is_new()).then_some(Instant::BOOT);
        let withdrawn = self.withdrawal.as_ref().map(|withdrawal| withdrawal.until);
        let due = [deadline, end, elector, first, withdrawn, self.limit(), self.health_due(), self.workload.poll_timeout()];
        due.into_iter().flatten().min()
    }

    /// Acts on the deadlines that have passed at `now`. The loop has drained the link just before (law 9).
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.over {
            return;
        }
        if self.workload.leads() {
            self.enforce(now);
            self.limit_run(now);
        }
        if self.withdrawal.as_ref().is_some_and(|withdrawal| withdrawal.until <= now) {
            self.end_withdrawal(now);
        }
        self.flush(now);
        let wanted = self.wants_elector();
        match self.electors.step(wanted, now) {
            Some(Move::Start) if self.end_vain_wait(now) => {}
            Some(Move::Start) => {
                // The one before may not have been reaped.
                self.change_elector();
                self.actions.push_back(Action::StartElector);
            }
            Some(Move::Kill) => {
                self.actions.push_back(Action::KillElector);
                // After that, because it would read no line.
                self.warn(format!(
                    "the elector, the process that renews the Lease, was silent for {} and is killed",
                    duration::format(self.timing.duration)
                ));
            }
            None => {}
        }
        self.workload.handle_timeout(now);
        self.follow_up(now);
    }
}

/// Consequences of the state, computed after every input.
impl Agent {
    fn follow_up(&mut self, now: Instant) {
        self.workload.check_health(now);
        self.flush(now);
        if self.shutdown.is_none() {
            self.want(now);
            self.flush(now);
        }
        self.end(now);
        self.flush(now);
        self.tell_health(false, now);
    }

    /// Collects the workload's actions, then the words about them (law 2), and handles its events.
    fn flush(&mut self, now: Instant) {
        loop {
            while let Some(action) = self.workload.poll_action() {
                // From H on the kill is due, and nothing that is stopped is continued.
                let continues = matches!(action, Action::Signal { signal: Signal::CONT, .. });
                if matches!(action, Action::Warn(_)) {
                    self.words.push_back(action);
                } else if !(continues && self.hard().is_some_and(|hard| hard <= now)) {
                    self.actions.push_back(action);
                }
            }
            self.actions.append(&mut self.words);
            let Some(event) = self.workload.poll_event() else { return };
            self.happened(event, now);
        }
    }

    fn want(&mut self, now: Instant) {
        if self.failed.is_some() {
            return;
        }
        if self.is_plain() {
            if self.is_new() {
                self.workload.lead(Launch { info: None, not_after: Instant::NEVER }, now);
            }
            return;
        }
        if !self.workload.leads() && self.workload.is_stuck() && self.term.as_ref().is_some_and(ActiveTerm::is_live) {
            // Processes of the last standby do not die, so no leader can start here. The Lease is given back, because another
            // replica may be able to lead.
            self.workload.hold();
            self.end_term(Reason::SpawnFailed, now);
        }
        match &self.term {
            Some(term) if term.is_live() => {
                let not_after = term.deadlines().soft;
                if self.workload.leads_until() != Some(not_after) {
                    self.workload.lead(Launch { info: Some(term.info.clone()), not_after }, now);
                }
            }
            Some(term) if !term.frees_standby() => {}
            Some(_) | None if self.workload.stands_by() => self.workload.stand_by(now),
            Some(_) | None => {}
        }
    }

    fn wants_elector(&self) -> bool {
        let useful = self.shutdown.as_ref().is_none_or(|shutdown| shutdown.wants_elector(self.term.as_ref()));
        useful && !self.is_plain() && self.failed.is_none() && !self.workload.kills_everything()
    }

    fn change_elector(&mut self) {
        self.forget_asked();
        if let Some(term) = &mut self.term {
            term.change_elector();
        }
    }

    fn is_plain(&self) -> bool {
        !self.config.config.lease.enabled
    }

    /// Returns true if the workload was never started, nor asked to be.
    fn is_new(&self) -> bool {
        self.workload.leads_until().is_none()
            && self.workload.exit().is_none()
            && self.shutdown.is_none()
            && self.workload.is_down()
    }

    fn exit(&mut self, code: u8) {
        self.over = true;
        self.actions.push_back(Action::Exit(code));
    }

    fn tell(&mut self, message: ToElector) {
        if self.electors.is_alive() {
            self.actions.push_back(Action::Tell(message));
        }
    }

    /// Tells the elector of a start, if it does not know. A start without an elector is told to the next one.
    fn tell_start(&mut self) {
        if self.electors.is_alive()
            && let Some(start) = self.term.as_mut().and_then(ActiveTerm::tell_start)
        {
            self.tell(start);
        }
    }

    fn warn(&mut self, line: String) {
        self.actions.push_back(Action::Warn(line));
    }
}
