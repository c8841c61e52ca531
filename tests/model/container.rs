//! One container: init with the shipping agent, its elector, and the processes under it.
//!
//! Every step takes in one input or carries out one action, so that a fault can come between any two. The order is that of init's
//! loop.

use std::{collections::VecDeque, time::Duration};

use tenure::{
    config::{Acknowledge, HookKind},
    link::{Exit, ToElector, ToInit},
    notification::Notification,
    role::Role,
    supervision::{Action, Agent, AgentConfig, Input, RoleInput},
    time::Instant,
};

use crate::{
    clock::Ns,
    digest::Sealed,
    elector::ElectorProcess,
    family::Setup,
    judge::{Judge, Wrong},
    tree::{Part, Spawned, Tree},
    world::Who,
};

/// From one look at what is frozen to the next.
const LOOKING: Duration = Duration::from_millis(200);

/// What a step may access outside its container.
pub struct Around<'a> {
    /// Real time.
    pub now: Ns,
    /// The container's setup.
    pub setup: &'a Setup,
    /// What must hold.
    pub judge: &'a mut Judge,
}

impl Around<'_> {
    /// What the node's BOOTTIME says.
    pub fn boot(&self) -> Instant {
        self.setup.clock.boot(self.now)
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Container {
    pub who: Who,
    /// The elector that init knows.
    pub elector: Option<ElectorProcess>,
    pub tree: Tree,
    /// Init is stopped.
    pub frozen: bool,
    /// The workload does not get round to handling its signals.
    pub dawdles: bool,
    /// When init is gone: the time at which the next container starts.
    pub over: Option<Ns>,
    agent: Sealed<Agent>,
    actions: VecDeque<Action>,
    /// A killed elector waits to be reaped.
    undead: bool,
    signals: VecDeque<i32>,
    /// SIGCHLD: the workload was continued.
    stirred: bool,
    spawned: Option<Spawned>,
    /// The workload's messages on NOTIFY_SOCKET.
    pub words: VecDeque<Notification>,
    /// The workload has said that it is not ready.
    pub unready: bool,
    promoter: Option<i32>,
    demoter: Option<i32>,
    trusts_signals: bool,
    /// The token of the last Lead.
    token: u64,
    /// The kernel kills what leads at H, whether or not init and elector run.
    pub has_fuse: bool,
    /// H, as known to the kernel.
    fuse: Option<Instant>,
    /// The fuse has fired, and init does not know yet.
    blown: bool,
}

impl Container {
    /// A container that starts now.
    pub fn start(who: Who, setup: &Setup) -> Self {
        let config = AgentConfig {
            config: setup.config.clone(),
            preset: setup.preset.clone(),
            began: Instant::BOOT,
            identity: who.to_string(),
            context: None,
            pid1: true,
            terminal: false,
        };
        Self {
            who,
            elector: None,
            tree: Tree::new(setup),
            frozen: false,
            dawdles: false,
            over: Some(setup.starts).filter(|at| *at > 0 && who.life == 1),
            agent: Sealed::new(Agent::new(config)),
            actions: VecDeque::new(),
            undead: false,
            signals: VecDeque::new(),
            stirred: false,
            spawned: None,
            words: VecDeque::new(),
            unready: false,
            promoter: None,
            demoter: None,
            trusts_signals: setup.config.workload.acknowledge == Some(Acknowledge::None),
            token: 0,
            has_fuse: setup.fuse,
            fuse: None,
            blown: false,
        }
    }

    /// Whether nothing is under way in it but a workload that leads.
    pub fn rests(&self) -> bool {
        let waits = self.actions.is_empty() && self.signals.is_empty() && self.words.is_empty() && self.spawned.is_none();
        waits && !self.frozen && !self.undead && self.tree.rests() && self.elector.as_ref().is_some_and(ElectorProcess::rests)
    }

    /// Its memory, restored elsewhere: its connections are broken.
    pub fn restored(&self, who: Who) -> Self {
        Self { who, elector: self.elector.as_ref().map(ElectorProcess::restored), ..self.clone() }
    }

    /// SIGTERM, or another signal, to init.
    pub fn signal(&mut self, signal: i32) {
        self.signals.push_back(signal);
    }

    /// Whether the elector stands in for an init that stops now. If not, the law does not cover that stop.
    pub fn is_guarded(&self) -> bool {
        self.elector.as_ref().is_some_and(ElectorProcess::guards)
    }

    /// Whether init has something to do now.
    pub fn init_has_work(&self, boot: Instant) -> bool {
        let link = self.elector.as_ref().is_some_and(|elector| !elector.to_init.is_empty() || elector.is_dead);
        let due = self.agent.poll_timeout().is_some_and(|at| at <= boot);
        let children = self.blown || self.undead || self.stirred || self.tree.has_zombies() || self.spawned.is_some();
        let waits = !self.actions.is_empty() || link || children || !self.signals.is_empty() || self.hears() || due;
        !self.frozen && self.over.is_none() && waits
    }

    /// Whether there is a message that the child of a promotion will not discard.
    fn hears(&self) -> bool {
        self.promoter.is_none() && !self.words.is_empty()
    }

    /// Init takes its next step.
    pub fn step_init(&mut self, around: &mut Around<'_>) {
        if let Some(action) = self.actions.pop_front() {
            self.act(action, around);
            return self.follow_hard();
        }
        if std::mem::take(&mut self.blown) {
            return self.handle(Input::FuseFired, around);
        }
        if let Some(message) = self.elector.as_mut().and_then(|elector| elector.to_init.pop_front()) {
            return self.told(message, around);
        }
        if self.elector.as_ref().is_some_and(|elector| elector.is_dead) {
            return self.handle(Input::LinkBroken, around);
        }
        if std::mem::take(&mut self.stirred) && self.agent.is_frozen() {
            return self.handle(Input::Role(RoleInput::Stirred), around);
        }
        if let Some(signal) = self.signals.pop_front() {
            return self.handle(Input::Signal(signal), around);
        }
        if std::mem::take(&mut self.undead) {
            return self.handle(Input::ElectorEnded, around);
        }
        if self.tree.has_zombies() {
            return self.reap(around);
        }
        if let Some((_, outcome)) = self.spawned.take() {
            return self.handle(outcome.map_or_else(Input::NotSpawned, |()| Input::Spawned), around);
        }
        if self.hears()
            && let Some(said) = self.words.pop_front()
        {
            let input =
                if let Notification::Role(role) = said { Input::Role(RoleInput::Notified(role)) } else { Input::Notified(said) };
            return self.handle(input, around);
        }
        self.with_agent(|agent| agent.handle_timeout(around.boot()));
        let still = self.agent.poll_timeout().is_some_and(|at| at <= around.boot());
        if still && self.actions.is_empty() {
            around.judge.fail(Wrong::Spins, format!("init of {} does nothing at its time", self.who));
        }
    }

    /// When init wakes by itself, unless it is stopped.
    pub fn init_timeout(&self, setup: &Setup) -> Option<Ns> {
        if self.over.is_some() {
            return None;
        }
        self.agent.poll_timeout().map(|at| setup.clock.real(at))
    }

    /// The instant past which nothing of a leader is left, whatever is stopped: E as init knows it, or will know it from the first
    /// message queued for it. The next one is sent only once it has answered that (law 10).
    pub fn known_end(&self, setup: &Setup) -> Option<Instant> {
        let extension = |message: &ToInit| {
            if let ToInit::Extend { confirmed, .. } = message { Some(confirmed.deadlines.end) } else { None }
        };
        let waiting = self.elector.as_ref().and_then(|elector| elector.to_init.iter().find_map(extension));
        let end = self.agent.hard()? + setup.config.workload.stop.kill_margin;
        Some(waiting.map_or(end, |waiting| waiting.max(end)))
    }

    /// One process of the tree takes its step.
    pub fn step_tree(&mut self, around: &mut Around<'_>) {
        self.tree.bury(self.who, around.now, around.judge);
        let (spawned, word) = self.tree.work(self.who, around.boot(), around.judge);
        self.spawned = spawned.or_else(|| self.spawned.take());
        self.words.extend(word);
    }

    fn handle(&mut self, input: Input, around: &Around<'_>) {
        self.with_agent(|agent| agent.handle(input, around.boot()));
    }

    /// The actions that the agent then requests are queued, log lines excepted.
    fn with_agent(&mut self, does: impl FnOnce(&mut Agent)) {
        let actions = &mut self.actions;
        self.agent.change(|agent| {
            does(agent);
            while let Some(action) = agent.poll_action() {
                if !matches!(action, Action::Warn(_) | Action::TerminationMessage(_)) {
                    actions.push_back(action);
                }
            }
        });
        self.follow_hard();
    }

    /// The fuse is set to H before anything relies on it, and stays until everything that ends the lead is done.
    fn follow_hard(&mut self) {
        let hard = self.agent.hard();
        if hard.is_some() || self.actions.is_empty() {
            self.fuse = hard.filter(|_| self.has_fuse);
        }
    }

    /// When the fuse fires.
    pub fn fuse_timeout(&self, setup: &Setup) -> Option<Ns> {
        self.fuse.filter(|_| self.over.is_none()).map(|hard| setup.clock.real(hard))
    }

    /// Fires it, if it is due.
    pub fn burn(&mut self, around: &mut Around<'_>) {
        if self.fuse.take_if(|hard| *hard <= around.boot()).is_some() {
            self.blown = true;
            self.tree.kill(self.who, around.setup.death, around.now, around.judge);
        }
    }

    fn told(&mut self, message: ToInit, around: &Around<'_>) {
        if let ToInit::Lead { info, .. } = &message {
            self.token = info.token.parse().unwrap_or_default();
        }
        self.handle(Input::Told(message), around);
    }

    fn reap(&mut self, around: &Around<'_>) {
        while let Some((pid, exit)) = self.tree.reap() {
            if self.promoter.take_if(|promoter| *promoter == pid).is_some() {
                self.handle(told(exit), around);
            }
            if self.demoter.take_if(|demoter| *demoter == pid).is_some() {
                self.handle(told(exit), around);
            }
            if let Some((_, outcome)) = self.spawned.take_if(|(child, _)| *child == pid) {
                self.handle(outcome.map_or_else(Input::NotSpawned, |()| Input::Spawned), around);
            }
            self.handle(Input::Reaped { pid, exit }, around);
        }
    }

    fn act(&mut self, action: Action, around: &mut Around<'_>) {
        match action {
            Action::StartElector => {
                self.elector = Some(ElectorProcess::start(self.tree.pid(), self.agent.initial_state()));
                self.handle(Input::ElectorStarted, around);
            }
            Action::KillElector => self.kill_elector(around),
            Action::Tell(message) => self.tell(message),
            Action::Spawn { launch, .. } => {
                // What another one has said is not believed once that is gone.
                self.words.retain(|said| matches!(said, Notification::Role(_)));
                self.unready = false;
                let token = launch.as_ref().map(|_| self.token);
                let pid = self.tree.fork(token, launch.map(|launch| launch.not_after));
                self.handle(Input::Forked { pid }, around);
            }
            Action::TellRole { pid, not_after: Some(not_after), .. } => {
                self.promoter = Some(self.tree.promote(pid, self.token, not_after));
            }
            Action::CallOff => {
                if let Some(promoter) = self.promoter {
                    self.tree.call_off(promoter);
                }
            }
            Action::TellRole { pid, not_after: None, .. } if self.trusts_signals => self.demoter = Some(self.tree.demote(pid)),
            Action::TellRole { pid, not_after: None, .. } => {
                self.mark();
                self.tree.order(pid, Role::Standby, self.token);
                self.handle(Input::Role(RoleInput::Signalled), around);
            }
            Action::MarkNotify => {
                self.mark();
                self.handle(Input::Role(RoleInput::Signalled), around);
            }
            Action::Prove => {
                self.reap(around);
                self.handle(Input::Scanned(self.tree.scan(false)), around);
            }
            Action::Sweep => self.walk(around),
            Action::KillAll => {
                if let Some(elector) = &mut self.elector {
                    elector.die();
                }
                self.walk(around);
            }
            Action::Die | Action::Exit(_) => self.end(around),
            Action::Hook { hook, not_after, .. } => {
                let token = (hook != HookKind::AfterFollow).then_some(self.token);
                let pid = self.tree.hook(token, not_after);
                self.handle(Input::Role(RoleInput::HookForked { pid }), around);
            }
            Action::KillHook { pid } => self.tree.kill_hook(pid, around.now + around.setup.death),
            Action::Freeze | Action::LookFrozen => {
                self.reap(around);
                let frozen = self.tree.is_frozen(action == Action::Freeze);
                self.handle(Input::Role(RoleInput::Looked { frozen }), around);
            }
            Action::Thaw { not_after } => {
                if self.tree.is_frozen(false) {
                    self.promoter = Some(self.tree.thaw(self.token, not_after));
                } else {
                    self.handle(Input::Role(RoleInput::NotSignalled), around);
                }
            }
            Action::Signal { signal, .. } if self.tree.is_stopped(Part::Workload) => {
                around.judge.fail(Wrong::Signalled, format!("{} gets signal {}, although it is frozen", self.who, signal.0));
            }
            Action::Signal { .. }
            | Action::Continue { .. }
            | Action::Probe { .. }
            | Action::KillProbe(_)
            | Action::Warn(_)
            | Action::TerminationMessage(_) => {}
        }
    }

    /// Somebody continues a part of a frozen workload. Init hears at once of the main process, and finds the other when it looks.
    pub fn stir(&mut self, part: Part, around: &Around<'_>) {
        let by = if part == Part::Workload { around.now } else { around.setup.clock.real(around.boot() + LOOKING) };
        self.stirred |= self.tree.stir(part, by);
    }

    /// Whether init, which is not stopped, must have found somebody.
    pub fn strays(&self, now: Ns) -> bool {
        !self.frozen && self.over.is_none() && self.tree.strays(now)
    }

    /// Time is about to pass: what init must have found by now has been killed, or runs as a leader.
    pub fn judge_strays(&mut self, around: &mut Around<'_>) {
        let token = self.agent.leads().then_some(self.token);
        self.tree.judge_strays(self.who, token, around.now, around.judge);
    }

    /// The roles that were taken before count no more.
    fn mark(&mut self) {
        self.words.retain(|said| !matches!(said, Notification::Role(_)));
    }

    /// The workload says whether it is ready.
    pub fn say_ready(&mut self, ready: bool) {
        self.unready = !ready;
        self.words.push_back(if ready { Notification::Ready } else { Notification::Reloading });
    }

    fn walk(&mut self, around: &mut Around<'_>) {
        self.reap(around);
        let killed = self.tree.kill(self.who, around.setup.death, around.now, around.judge);
        self.handle(Input::Scanned(self.tree.scan(killed)), around);
    }

    fn tell(&mut self, message: ToElector) {
        if let Some(elector) = self.elector.as_mut().filter(|elector| !elector.is_dead) {
            elector.to_elector.push_back(message);
        }
    }

    /// Init sends SIGKILL to the elector: its messages are read, its link is closed.
    fn kill_elector(&mut self, around: &Around<'_>) {
        let Some(mut elector) = self.elector.take() else { return };
        self.undead = true;
        while let Some(message) = elector.to_init.pop_front() {
            self.told(message, around);
        }
    }

    /// Init is gone, and the kernel kills the rest.
    pub fn end(&mut self, around: &mut Around<'_>) {
        self.elector = None;
        self.actions.clear();
        self.tree.kill(self.who, around.setup.death, around.now, around.judge);
        self.over = Some(self.tree.end(around.now));
    }
}

/// What the end of the child that tells a role means.
const fn told(exit: Exit) -> Input {
    match exit {
        Exit::Code(0) => Input::Role(RoleInput::Signalled),
        Exit::Code(_) | Exit::Signal(_) => Input::Role(RoleInput::NotSignalled),
    }
}
