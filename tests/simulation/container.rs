//! One container: init with the shipping agent, as its loop drives it, and the processes under it.
//!
//! The order of things is that of `init/drive.rs` and `init/deeds.rs`.

use std::{collections::VecDeque, rc::Rc, time::Duration};

use tenure::{
    link::{Reason, ToElector, ToInit},
    supervision::{Action, Agent, Input, Settings},
};

use crate::{
    alarm::Alarm,
    clock::{Clock, MS, Ns, S},
    conduct::Conduct,
    elector::{ElectorProcess, LIE},
    engine::{Child, Engine, Event, Who},
    nemesis::Window,
    plan::Node,
    tree::{Killer, Outcome, Tree},
};

const MESSAGES_A_TURN: usize = 256;

/// See the module.
pub struct Container {
    pub who: Who,
    pub identity: Rc<str>,
    pub node: Node,
    /// The one that init knows.
    pub elector: Option<ElectorProcess>,
    pub tree: Tree,
    /// Init is gone: the container ends.
    pub over: bool,
    agent: Agent,
    /// An elector of it has lied.
    pub lied: bool,
    conduct: Conduct,
    /// Init is stopped.
    frozen: bool,
    /// Until then.
    frozen_until: Ns,
    /// Init will be stopped for so long before the action of this number, counted from now.
    freeze_before: Option<(u32, Ns)>,
    /// The action that a stop has kept from being carried out.
    cut_off: Option<Action>,
    alarm: Alarm,
    signals: VecDeque<i32>,
    /// Killed electors, and whether they can be reaped.
    undead: Vec<(i32, bool)>,
    spawning: Option<(i32, Option<Outcome>)>,
}

impl Container {
    /// A container that starts now.
    pub fn start(who: Who, node: Node, e: &mut Engine) -> Self {
        let identity: Rc<str> = format!("{}_{who}", node.name).into();
        e.note(who, || "starts".into());
        let duration = nanos(node.config.lease.duration);
        let able = if node.is_quick() { e.now + node.startup + S } else { Ns::MAX };
        e.judge.begins(who, &identity, duration, able);
        let settings = Settings { config: node.config.clone(), identity: identity.to_string(), pid1: true, terminal: false };
        let mut container = Self {
            who,
            identity,
            node,
            elector: None,
            tree: Tree::new(who),
            over: false,
            agent: Agent::new(settings),
            lied: false,
            conduct: Conduct::new(),
            frozen: false,
            frozen_until: 0,
            freeze_before: None,
            cut_off: None,
            alarm: Alarm::off(),
            signals: VecDeque::new(),
            undead: Vec::new(),
            spawning: None,
        };
        container.wake_init(0, e);
        container
    }

    pub fn clock(&self) -> Clock {
        self.node.clock
    }

    /// Init has something to do, and gets to it in time.
    pub fn wake(&mut self, e: &mut Engine) {
        let span = e.latency(self.node.wake);
        self.wake_init(span, e);
    }

    fn wake_init(&mut self, span: Ns, e: &mut Engine) {
        if self.over {
            return;
        }
        if let Some(at) = self.alarm.set(e.now.saturating_add(span)) {
            e.at(at, Event::Init(self.who));
        }
    }

    /// SIGTERM to init, or the like.
    pub fn signal(&mut self, signal: i32, e: &mut Engine) {
        self.conduct.signalled(self.clock().boot(e.now));
        e.judge.trouble(self.who.replica, Ns::MAX);
        self.signals.push_back(signal);
        self.wake(e);
    }

    /// Whether this elector of it is there to hear from the server.
    pub fn hears(&self, child: Child) -> bool {
        !self.over && self.elector.as_ref().is_some_and(|elector| elector.child == child && !elector.is_dead)
    }

    pub fn is_frozen(&self) -> bool {
        self.frozen
    }

    /// Whether the elector stands in for an init that stops now. If it does not, the law does not cover that stop.
    pub fn is_guarded(&self) -> bool {
        self.elector.as_ref().is_some_and(ElectorProcess::guards)
    }

    /// SIGSTOP to init, for so long; before the action of this number, so that it stands in the middle of its work.
    pub fn freeze(&mut self, actions: u32, span: Ns, e: &mut Engine) {
        if self.frozen || self.over || !self.is_guarded() {
            return;
        }
        if actions > 0 {
            self.freeze_before = Some((actions, span));
            return;
        }
        self.freeze_before = None;
        self.frozen = true;
        self.frozen_until = e.now.saturating_add(span);
        e.judge.trouble(self.who.replica, self.frozen_until);
        e.note(self.who, || format!("init is stopped for {} ms", span / MS));
        e.at(self.frozen_until, Event::ContinueInit(self.who));
    }

    /// SIGSTOP to both: nobody is left to kill, which the law does not cover.
    pub fn freeze_both(&mut self, init: Ns, elector: Ns, e: &mut Engine) {
        self.freeze(0, init, e);
        if !self.frozen {
            return;
        }
        let margin = nanos(self.node.config.workload.stop.kill_margin);
        // Each of them may have been stopped before, and for longer.
        let elector = self.elector.as_mut().map_or(Ns::MAX, |process| process.freeze(0, elector, e));
        e.judge.exposes(self.who, self.frozen_until.min(elector) + margin);
    }

    /// Its SIGCONT is due.
    pub fn continues(&mut self, e: &mut Engine) {
        if self.frozen_until <= e.now {
            self.thaw(e);
        }
    }

    /// SIGCONT to init.
    pub fn thaw(&mut self, e: &mut Engine) {
        self.freeze_before = None;
        if std::mem::take(&mut self.frozen) {
            e.note(self.who, || "init goes on".into());
            self.conduct.thawed(self.clock().boot(e.now));
            e.judge.trouble(self.who.replica, e.now);
            self.alarm.clear();
            self.wake(e);
        }
    }

    /// One turn of init's loop, if it was to be woken now.
    pub fn turn(&mut self, e: &mut Engine) {
        if self.over {
            return;
        }
        match self.alarm.comes(e.now) {
            Ok(true) if !self.frozen => {}
            Ok(_) => return,
            Err(later) => return e.at(later, Event::Init(self.who)),
        }
        if let Some(action) = self.cut_off.take() {
            // What follows takes its time, in which whatever it began goes on beside it.
            self.act(action, e);
            self.carry_out(e);
            return self.wake(e);
        }
        self.drain_link(true, e);
        self.take_signals(e);
        self.take_outcome(e);
        self.drain_link(true, e);
        if self.stands() {
            return;
        }
        let now = self.clock().boot(e.now);
        if self.agent.poll_timeout().is_some_and(|at| at <= now) {
            self.agent.handle_timeout(now);
            self.carry_out(e);
        }
        if self.stands() {
            return;
        }
        let stop = &self.node.config.workload.stop;
        if let Some(wrong) = self.conduct.rests(self.tree.look(), stop.loss_grace, Duration::from_nanos(self.node.wake), now) {
            e.judge.fail(format!("{}: init {wrong}", self.who));
        }
        if let Some(at) = self.agent.poll_timeout() {
            let span = self.clock().real(at).saturating_sub(e.now).saturating_add(e.latency(self.node.wake));
            self.wake_init(span, e);
        }
    }

    fn stands(&self) -> bool {
        self.frozen || self.over
    }

    fn handle(&mut self, input: Input, e: &Engine) {
        self.agent.handle(input, self.clock().boot(e.now));
    }

    fn take_signals(&mut self, e: &mut Engine) {
        while !self.stands()
            && let Some(signal) = self.signals.pop_front()
        {
            self.handle(Input::Signal(signal), e);
            self.carry_out(e);
        }
        if !self.stands() {
            self.reap(e);
            self.carry_out(e);
        }
    }

    fn reap(&mut self, e: &mut Engine) {
        if self.elector.as_ref().is_some_and(|elector| elector.is_zombie) {
            self.drain_link(false, e);
            self.elector = None;
            self.handle(Input::ElectorEnded, e);
        }
        if let Some(index) = self.undead.iter().position(|(_, zombie)| *zombie) {
            self.undead.swap_remove(index);
            if self.elector.is_none() {
                self.handle(Input::ElectorEnded, e);
            }
        }
        while let Some((pid, exit)) = self.tree.reap() {
            if self.spawning.as_ref().is_some_and(|(child, _)| *child == pid)
                && let Some((_, outcome)) = self.spawning.take()
            {
                self.spawned(outcome.unwrap_or(Ok(())), e);
            }
            self.handle(Input::Reaped { pid, exit }, e);
        }
    }

    fn take_outcome(&mut self, e: &mut Engine) {
        if self.stands() {
            return;
        }
        if let Some((_, Some(outcome))) = self.spawning.take_if(|(_, outcome)| outcome.is_some()) {
            self.spawned(outcome, e);
            self.carry_out(e);
        }
    }

    fn spawned(&mut self, outcome: Outcome, e: &Engine) {
        let input = match outcome {
            Ok(()) => Input::Spawned,
            Err(why) => Input::NotSpawned(why),
        };
        self.handle(input, e);
    }

    fn drain_link(&mut self, acting: bool, e: &mut Engine) {
        for _ in 0..MESSAGES_A_TURN {
            if acting && self.stands() {
                return;
            }
            let Some(elector) = &mut self.elector else { return };
            let message = elector.to_init.pop_front();
            let closed = message.is_none() && elector.is_dead;
            match message {
                Some(message) => {
                    self.heard(&message, e);
                    self.handle(Input::Told(message), e);
                }
                None if closed => self.handle(Input::LinkBroken, e),
                None => return,
            }
            if acting {
                self.carry_out(e);
            }
            if closed {
                return;
            }
        }
    }

    fn heard(&mut self, message: &ToInit, e: &mut Engine) {
        self.conduct.hears(message, self.clock().boot(e.now));
        match message {
            ToInit::Beat => {}
            ToInit::Lead { term, confirmed, not_before, .. } => e.note(self.who, || {
                format!("init hears Lead of term {} until {:?}, not before {not_before:?}", term.0, confirmed.deadlines.soft)
            }),
            ToInit::Extend { term, serial, confirmed } => {
                e.note(self.who, || {
                    format!("init hears Extend {serial} of term {} until {:?}", term.0, confirmed.deadlines.soft)
                });
            }
            ToInit::Shorten { .. }
            | ToInit::Hello { .. }
            | ToInit::StepDown { .. }
            | ToInit::Releasing { .. }
            | ToInit::Ended { .. }
            | ToInit::Done
            | ToInit::Failed { .. } => e.note(self.who, || format!("init hears {message:?}")),
        }
    }

    fn carry_out(&mut self, e: &mut Engine) {
        while !self.stands() {
            let Some(action) = self.agent.poll_action() else { return };
            if let Some((left, span)) = self.freeze_before.take() {
                self.freeze(left - 1, span, e);
                if self.frozen {
                    self.cut_off = Some(action);
                    return;
                }
            }
            self.act(action, e);
        }
    }

    fn act(&mut self, action: Action, e: &mut Engine) {
        match action {
            Action::StartElector(welcome) => {
                let pid = self.tree.pid();
                let child = Child { who: self.who, pid };
                e.note(self.who, || format!("elector {} starts, resuming {}", welcome.generation, welcome.resume.is_some()));
                let span = e.spread(MS, self.node.startup);
                e.judge.trouble(self.who.replica, e.now + span + S);
                self.elector = Some(ElectorProcess::start(child, *welcome));
                e.after(span, Event::ElectorUp(child));
                self.handle(Input::ElectorStarted, e);
            }
            Action::KillElector => self.kill_elector(e),
            Action::Tell(message) => self.tell(message, e),
            Action::Spawn { launch, .. } => {
                let Some((facts, not_after)) = launch.and_then(|launch| Some((launch.facts?, launch.not_after))) else { return };
                let pid = self.tree.fork(facts.token, not_after, &self.node.habits, e);
                e.note(self.who, || format!("forks pid {pid}, not to run after {not_after:?}"));
                self.conduct.spawned();
                self.spawning = Some((pid, None));
                self.handle(Input::Forked { pid }, e);
                self.window(Window::Spawn, e);
            }
            Action::Signal { target, signal } => {
                let (tenure::supervision::Target::Main(pid) | tenure::supervision::Target::Group(pid)) = target;
                e.note(self.who, || format!("signal {} to pid {pid}", signal.0));
                if signal.0 == libc::SIGTERM
                    && let Some(wrong) = self.conduct.asks(self.clock().boot(e.now))
                {
                    e.judge.fail(format!("{}: init {wrong}", self.who));
                }
                self.tree.ask(pid, signal.0, e);
                self.window(Window::Asked, e);
            }
            Action::Prove => {
                self.reap(e);
                let scan = self.tree.scan(false);
                self.handle(Input::Scanned(scan), e);
            }
            Action::Walk => {
                self.reap(e);
                let (look, grace) = (self.tree.look(), self.node.config.workload.stop.grace);
                if let Some(wrong) = self.conduct.kills(look, grace, self.clock().boot(e.now)) {
                    e.judge.fail(format!("{}: init {wrong}", self.who));
                }
                self.walk(Killer::Walk, e);
            }
            Action::KillAll => {
                e.note(self.who, || "kill(-1)".into());
                self.shoot_elector(e);
                self.walk(Killer::All, e);
            }
            Action::Die => self.end("init gives up", e),
            Action::Exit(code) => {
                e.note(self.who, || format!("init exits with {code}"));
                self.end("init is done", e);
            }
            Action::Log { warning, line } => {
                if warning && !self.lied && line.starts_with("the elector ") && !line.contains("silent") {
                    e.judge.fail(format!("{}: init finds that {line}, though it did not lie", self.who));
                }
                e.note(self.who, || format!("init logs{}: {line}", if warning { " a warning" } else { "" }));
            }
            Action::LastWords(words) => e.note(self.who, || format!("init's last words: {words}")),
            Action::Promote { .. } | Action::Hook { .. } | Action::KillHook { .. } | Action::DrainNotify => {}
        }
    }

    fn walk(&mut self, killer: Killer, e: &mut Engine) {
        self.reap(e);
        let killed = self.tree.kill(killer, &self.node.habits, e);
        let scan = self.tree.scan(killed || killer == Killer::All);
        e.note(self.who, || format!("kills {:?}", scan.left));
        self.handle(Input::Scanned(scan), e);
    }

    fn tell(&mut self, message: ToElector, e: &mut Engine) {
        let span = e.latency(self.node.wake);
        if let ToElector::Stopping { reason: Reason::Expired, term, at } = message {
            e.judge.expired(self.who, term, at);
            e.judge.expired_in_peace(self.who, term, e.now);
        }
        if let ToElector::Acknowledged { serial: LIE, .. } = message {
            e.after(0, Event::Robbed(self.who));
        }
        if let Some(elector) = &mut self.elector {
            if message != ToElector::Beat {
                e.note(self.who, || format!("init tells {message:?}"));
            }
            let window = match &message {
                ToElector::Stopped { .. } => Some(Window::Stopped),
                ToElector::Acknowledged { .. } => Some(Window::Acknowledged),
                ToElector::Welcome(_)
                | ToElector::Started { .. }
                | ToElector::Restarting { .. }
                | ToElector::Stopping { .. }
                | ToElector::Unproved { .. }
                | ToElector::Shutdown
                | ToElector::Beat
                | ToElector::Log { .. } => None,
            };
            elector.to_elector.push_back(message);
            elector.wake(span, e);
            if let Some(window) = window {
                self.window(window, e);
            }
        }
    }

    fn kill_elector(&mut self, e: &mut Engine) {
        let Some(elector) = &mut self.elector else { return };
        e.note(self.who, || "init kills the elector".into());
        elector.is_dead = true;
        let (child, zombie) = (elector.child, elector.is_zombie);
        self.undead.push((child.pid, zombie));
        if !zombie {
            let span = self.burial(e);
            e.after(span, Event::ElectorGone(child));
        }
        self.drain_link(false, e);
        self.elector = None;
    }

    /// SIGKILL to the elector, from elsewhere than init's own decision.
    pub fn shoot_elector(&mut self, e: &mut Engine) {
        let Some(elector) = self.elector.as_mut().filter(|elector| !elector.is_dead) else { return };
        elector.is_dead = true;
        let child = elector.child;
        let span = e.latency(MS);
        e.judge.trouble(self.who.replica, e.now + S);
        e.after(span, Event::ElectorGone(child));
        self.wake(e);
    }

    /// From the SIGKILL to an elector that init has given up until it can be reaped: it may hang in the kernel.
    fn burial(&self, e: &mut Engine) -> Ns {
        if e.chance(self.node.habits.stuck) { 1_000 * S } else { e.latency(self.node.wake) }
    }

    /// A killed elector can be reaped.
    pub fn elector_gone(&mut self, pid: i32, e: &mut Engine) {
        if let Some(elector) = self.elector.as_mut().filter(|elector| elector.child.pid == pid) {
            elector.is_zombie = true;
        }
        for undead in self.undead.iter_mut().filter(|(undead, _)| *undead == pid) {
            undead.1 = true;
        }
        self.wake(e);
    }

    /// A forked child is about to exec.
    pub fn exec(&mut self, pid: i32, e: &mut Engine) {
        let Some(outcome) = self.tree.exec(pid, self.clock(), &self.node.habits, e) else { return };
        if let Some((child, told)) = &mut self.spawning
            && *child == pid
        {
            *told = Some(outcome);
        }
        self.wake(e);
    }

    /// A process comes to its end.
    pub fn ends(&mut self, pid: i32, e: &mut Engine) {
        if self.tree.end(pid, e) {
            self.wake(e);
        }
    }

    /// Something that a fault may follow at once.
    pub fn window(&self, window: Window, e: &mut Engine) {
        self.node.plan.window(window, self.who, e);
    }

    /// Init is gone, and the kernel kills the rest; the next container follows.
    pub fn end(&mut self, why: &str, e: &mut Engine) {
        if std::mem::replace(&mut self.over, true) {
            return;
        }
        e.note(self.who, || format!("ends: {why}"));
        if let Some(elector) = &mut self.elector {
            elector.is_dead = true;
        }
        let last = self.tree.collapse(e);
        let span = e.spread(10 * MS, self.node.plan.restart);
        e.at(last + span, Event::Boot(self.who.replica));
    }
}

fn nanos(span: Duration) -> Ns {
    u64::try_from(span.as_nanos()).unwrap_or(Ns::MAX)
}
