//! The rules that couple the link and the workload: whether it may lead now, until when, and when the Lease may be released.
//!
//! Owns the term, its deadlines, the electors and the end of init. Everything about the workload itself is left to the workload's
//! own machine.

use std::collections::VecDeque;

use crate::{
    config::{Config, Hooks, Runs, Signal, Signals},
    link::{LastSeen, Reason, Term, ToElector, VERSION, Welcome},
    time::Instant,
};

use super::{
    Action, Input, Launch,
    electors::{Electors, Move},
    held::Held,
    workload::{Policy, Workload},
};

mod ending;
mod stopping;
#[cfg(test)]
mod tests;
mod told;

use ending::Ending;

/// What the agent knows of its environment, set once.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The validated configuration.
    pub config: Config,
    /// Full identity, constant per init.
    pub identity: String,
    /// The kubeconfig context that this replica's Lease is in; none: the pod's own cluster.
    pub context: Option<String>,
    /// Init is PID 1, so that kill(-1) and its own end kill everything.
    pub pid1: bool,
    /// The workload has a terminal, or may be lent it: a key may end it.
    pub terminal: bool,
}

/// The state machine that init's loop drives.
#[derive(Clone, Debug)]
pub struct Agent {
    settings: Settings,
    workload: Workload,
    electors: Electors,
    held: Option<Held>,
    last_term: Term,
    /// The greatest instant before which nothing may start; nothing lowers it (law 14).
    not_before: Option<Instant>,
    /// What counts of what the electors saw of the Lease (law 11, 14).
    last_seen: Option<LastSeen>,
    /// The end of the D in which the others go first, after the last term that was given up voluntarily.
    sit_out: Option<Instant>,
    /// An elector reported that no elector can work.
    failed: Option<u8>,
    ending: Option<Ending>,
    /// [`Action::Exit`] went out: nothing more is done.
    over: bool,
    actions: VecDeque<Action>,
}

impl Agent {
    /// At the start of init, before anything runs. The first `handle_timeout`, due at once, starts what there is to start.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self {
            workload: Workload::new(Policy::of(&settings.config, settings.pid1, settings.terminal)),
            electors: Electors::new(settings.config.lease.duration),
            settings,
            held: None,
            last_term: Term(0),
            not_before: None,
            last_seen: None,
            sit_out: None,
            failed: None,
            ending: None,
            over: false,
            actions: VecDeque::new(),
        }
    }

    /// Whether anything of a leader may run: between its start and its proof of death.
    #[must_use]
    pub fn leads(&self) -> bool {
        self.workload.leads()
    }

    /// H, while anything of a leader may run: from then on nothing of it may, whether init runs or not (law 3).
    #[must_use]
    pub fn hard(&self) -> Option<Instant> {
        self.held.as_ref().filter(|_| self.workload.leads()).map(|held| held.deadlines().hard)
    }

    /// Takes in what arrived, read at `now`. Never acts on a deadline that has passed: that is [`Self::handle_timeout`]'s (law 9).
    pub fn handle(&mut self, input: Input, now: Instant) {
        if self.over {
            return;
        }
        match input {
            Input::Told(message) => {
                self.electors.heard(now);
                self.told(message, now);
            }
            Input::ElectorStarted => {
                self.electors.started(now);
                if let Some(ending) = &mut self.ending {
                    ending.told = true;
                }
                self.tell_start();
            }
            Input::ElectorNotStarted | Input::ElectorEnded => {
                self.electors.ended(now);
                if let Some(held) = &mut self.held {
                    held.change_elector();
                }
            }
            Input::LinkBroken => self.give_elector_up(now),
            Input::Signal(signal) => self.signalled(Signal(signal), now),
            Input::Forked { pid } => self.workload.forked(pid, now),
            Input::Spawned => self.workload.spawned(now),
            Input::NotSpawned(why) => self.workload.not_spawned(why, now),
            Input::Role(input) => self.workload.role(input, now),
            Input::Reaped { pid, exit } => self.workload.reaped(pid, exit, now),
            Input::Childless => self.workload.childless(now),
            Input::Scanned(scan) => self.workload.scanned(scan, now),
            Input::FuseFired if self.workload.leads() => self.expire(now),
            Input::FuseFired => {}
        }
        self.settle(now);
    }

    /// The first message to an elector that starts now: nothing else tells it what has happened since it was asked for.
    #[must_use]
    pub fn welcome(&self) -> Welcome {
        let mut config = self.settings.config.clone();
        config.workload.command.clear();
        config.workload.env.clear();
        config.hooks = Hooks::default();
        config.signals = Signals::default();
        Welcome {
            version: VERSION,
            config,
            identity: self.settings.identity.clone(),
            context: self.settings.context.clone(),
            generation: self.electors.generation(),
            last_term: self.last_term,
            resume: self.held.as_ref().map(|held| held.resume(self.workload.leads(), self.workload.main())),
            not_before: self.not_before,
            last_seen: self.last_seen.clone(),
            sit_out: self.sit_out,
            shutdown: self.ending.is_some(),
            pid1: self.settings.pid1,
        }
    }

    /// What is to be done next.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// When [`Self::handle_timeout`] is due.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        if self.over {
            return None;
        }
        let armed = self.held.as_ref().filter(|_| self.workload.leads());
        let hard = armed.filter(|held| !held.is_spent()).map(|held| held.deadlines().hard);
        let soft = armed.filter(|held| held.is_live()).map(|held| held.deadlines().soft);
        let start = self.held.as_ref().filter(|held| held.is_live() && !self.workload.leads()).and(self.not_before);
        let start = start.filter(|_| self.ending.is_none() && self.workload.leads_until().is_none());
        let end = self.ending.as_ref().filter(|_| self.waits_to_end()).and_then(|ending| ending.due(self.held.as_ref()));
        let elector = self.electors.due(self.wants_elector());
        let first = (self.is_plain() && self.is_new()).then_some(Instant::BOOT);
        [hard, soft, start, end, elector, first, self.workload.poll_timeout()].into_iter().flatten().min()
    }

    /// Acts on what is due at `now`. The loop drained the link just before (law 9).
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.over {
            return;
        }
        if self.workload.leads() {
            self.enforce(now);
        }
        let wanted = self.wants_elector();
        match self.electors.step(wanted, now) {
            Some(Move::Start) => self.start_elector(),
            Some(Move::Kill) => {
                self.warn("the elector was silent for too long and is killed".into());
                self.actions.push_back(Action::KillElector);
            }
            None => {}
        }
        self.workload.handle_timeout(now);
        self.settle(now);
    }
}

/// What follows from the state, whatever brought it about.
impl Agent {
    fn settle(&mut self, now: Instant) {
        self.flush(now);
        if self.ending.is_none() {
            self.want(now);
            self.flush(now);
        }
        self.end(now);
        self.flush(now);
    }

    /// Collects the workload's actions and events.
    fn flush(&mut self, now: Instant) {
        loop {
            while let Some(action) = self.workload.poll_action() {
                // From H on what is stopped stays stopped: the kill is due.
                let continues = matches!(action, Action::Signal { signal: Signal(libc::SIGCONT), .. });
                if !(continues && self.hard().is_some_and(|hard| hard <= now)) {
                    self.actions.push_back(action);
                }
            }
            let Some(happened) = self.workload.poll_happened() else { return };
            self.happened(happened, now);
        }
    }

    fn want(&mut self, now: Instant) {
        if self.failed.is_some() {
            return;
        }
        if self.is_plain() {
            if self.is_new() {
                self.workload.lead(Launch { facts: None, not_after: Instant::NEVER }, now);
            }
            return;
        }
        if !self.workload.leads() && self.workload.is_stuck() && self.held.as_ref().is_some_and(Held::is_live) {
            // What a standby left does not die, so nothing can be started here: another replica may be able to. If it dies after
            // all, it is too late for this term.
            self.workload.hold();
            self.begin_stop(Reason::SpawnFailed, now);
        }
        match &self.held {
            Some(held) if held.is_live() && self.not_before.is_none_or(|at| at <= now) => {
                let not_after = held.lasting(self.settings.config.timing(), self.not_before).soft;
                if self.workload.leads_until() != Some(not_after) {
                    self.workload.lead(Launch { facts: Some(held.facts.clone()), not_after }, now);
                }
            }
            // Until the elector has said Ended, its guard may kill at an H that has passed, whatever runs.
            Some(held) if !held.is_live() && (!held.is_answered() || held.is_spent()) => {}
            Some(_) | None if self.settings.config.workload.runs == Runs::Always => {
                self.workload.stand_by(now);
            }
            Some(_) | None => {}
        }
    }

    fn wants_elector(&self) -> bool {
        let useful = match &self.ending {
            None => true,
            Some(ending) => ending.wants_elector(self.held.as_ref()),
        };
        useful && !self.is_plain() && self.failed.is_none() && !self.workload.kills_everything()
    }

    fn start_elector(&mut self) {
        // Its predecessor may not have been reaped.
        if let Some(held) = &mut self.held {
            held.change_elector();
        }
        self.actions.push_back(Action::StartElector);
    }

    fn is_plain(&self) -> bool {
        !self.settings.config.lease.enabled
    }

    /// Whether nothing was ever wanted of the workload.
    fn is_new(&self) -> bool {
        self.workload.leads_until().is_none()
            && self.workload.exit().is_none()
            && self.ending.is_none()
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

    /// A start while there was no elector is told to the next one.
    fn tell_start(&mut self) {
        if self.electors.is_alive()
            && let Some(start) = self.held.as_mut().and_then(Held::tell_start)
        {
            self.tell(start);
        }
    }

    fn warn(&mut self, line: String) {
        self.actions.push_back(Action::Warn(line));
    }
}
