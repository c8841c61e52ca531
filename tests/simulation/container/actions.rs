//! What init does at its agent's request, and what comes of it.
//!
//! The order of steps is that of `init/actions.rs`.

use tenure::{
    config::{Acknowledge, HookKind},
    link::{Reason, ToElector},
    role::Role,
    supervision::{Action, Input, RoleInput, Target},
    time::Instant,
};

use super::Container;
use crate::{
    clock::{MS, Ns, S},
    elector::{ElectorProcess, LIE},
    engine::{Child, Engine, Event},
    nemesis::Window,
    tree::{Hook, Killer},
};

impl Container {
    pub(super) fn act(&mut self, action: Action, e: &mut Engine) {
        match action {
            Action::StartElector => {
                let welcome = self.agent.welcome();
                let pid = self.tree.pid();
                let child = Child { who: self.who, pid };
                e.note(self.who, || format!("elector {} starts, resuming {}", welcome.generation, welcome.resume.is_some()));
                let span = e.spread(MS, self.node.startup);
                e.judge.trouble(self.who.replica, e.now + span + S);
                self.elector = Some(ElectorProcess::start(child, welcome));
                e.after(span, Event::ElectorUp(child));
                self.handle(Input::ElectorStarted, e);
            }
            Action::KillElector => self.kill_elector(e),
            Action::Tell(message) => self.tell(message, e),
            Action::Spawn { launch, .. } => {
                self.begins();
                let habits = &self.node.habits;
                let pid = match launch.and_then(|launch| Some((launch.facts?, launch.not_after))) {
                    Some((facts, not_after)) => {
                        let pid = self.tree.fork(facts.token, not_after, self.fuse.is_lit(), habits, e);
                        e.note(self.who, || format!("forks pid {pid}, not to run after {not_after:?}"));
                        pid
                    }
                    None => self.tree.fork_standby(habits, e),
                };
                self.main = Some(pid);
                self.conduct.spawned();
                self.spawning = Some((pid, None));
                self.handle(Input::Forked { pid }, e);
                self.window(Window::Spawn, e);
            }
            Action::Signal { target, signal } => {
                let (Target::Main(pid) | Target::Group(pid)) = target;
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
            Action::Warn(line) => {
                if !self.lied && line.starts_with("the elector ") && !line.contains("silent") {
                    e.judge.fail(format!("{}: init finds that {line}, though it did not lie", self.who));
                }
                if line.contains("did not acknowledge its promotion") {
                    // Without an elector, nobody else is told.
                    self.conduct.gives_up(self.clock().boot(e.now));
                }
                e.note(self.who, || format!("init warns: {line}"));
            }
            Action::LastWords(words) => e.note(self.who, || format!("init's last words: {words}")),
            Action::Promote { pid, not_after, .. } => {
                self.begins();
                let promoter = self.tree.promote(pid, self.token.clone(), not_after, &self.node.habits, e);
                e.note(self.who, || format!("forks pid {promoter} to promote {pid} not after {not_after:?}"));
                self.promoter = Some(promoter);
                self.window(Window::Spawn, e);
            }
            Action::CallOff => {
                e.note(self.who, || "calls the promotion off".into());
                if let Some(promoter) = self.promoter {
                    let clock = self.clock();
                    self.tree.call_off(promoter, clock, &self.node.habits, e);
                }
            }
            Action::Demote { pid, signal } => {
                self.window(Window::Asked, e);
                if self.node.config.workload.acknowledge == Some(Acknowledge::None) {
                    let demoter = self.tree.demote(pid, &self.node.habits, e);
                    e.note(self.who, || format!("forks pid {demoter} to demote {pid}"));
                    self.demoter = Some(demoter);
                    return;
                }
                e.note(self.who, || format!("signal {} to pid {pid}", signal.0));
                self.tree.order(pid, Role::Standby, "", &self.node.habits, e);
                self.handle(Input::Role(RoleInput::Demoted), e);
            }
            Action::DrainNotify => self.words.clear(),
            Action::Hook { hook, facts, not_after, .. } => self.hook(hook, facts.map(|facts| facts.token), not_after, e),
            Action::KillHook { pid } => {
                e.note(self.who, || format!("kills hook {pid}"));
                self.tree.kill_child(pid, e);
                self.main.into_iter().for_each(|main| self.tree.is_asked(main));
            }
        }
    }

    /// Init has accepted a term; it cannot acknowledge it to an elector that it has just killed.
    fn begins(&mut self) {
        self.conduct.begins(self.agent.welcome().last_term);
    }

    fn hook(&mut self, kind: HookKind, token: Option<String>, not_after: Instant, e: &mut Engine) {
        let (Some(main), Some(token)) = (self.main, token) else { return self.handle(Input::Role(RoleInput::HookNotForked), e) };
        if kind == HookKind::AfterLead {
            // Where it alone promotes.
            self.begins();
        }
        if kind == HookKind::BeforeFollow {
            if let Some(wrong) = self.conduct.asks(self.clock().boot(e.now)) {
                e.judge.fail(format!("{}: init {wrong}", self.who));
            }
            self.tree.is_asked(main);
        }
        let hook = Hook { kind, workload: main, token, not_after };
        let pid = self.tree.fork_hook(hook, self.fuse.is_lit(), &self.node.habits, e);
        e.note(self.who, || format!("forks hook {} as pid {pid}", kind.name()));
        self.hook = Some(pid);
        self.handle(Input::Role(RoleInput::HookForked { pid }), e);
        self.window(Window::Spawn, e);
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
            // What the kernel did at H stands; anything later came too late.
            if !self.fuse.fired {
                e.judge.expired(self.who, term, at);
            }
            e.judge.expired_in_peace(self.who, term, e.now);
        }
        if let ToElector::Stopping { reason: Reason::NotAcknowledged | Reason::HookFailed, .. } = message {
            self.conduct.gives_up(self.clock().boot(e.now));
        }
        if let ToElector::Acknowledged { serial: 0, .. } = message {
            self.begins();
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
                | ToElector::Hooked { .. }
                | ToElector::Warn(_) => None,
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

    /// SIGKILL to the elector, not by init's decision.
    pub fn shoot_elector(&mut self, e: &mut Engine) {
        let Some(elector) = self.elector.as_mut().filter(|elector| !elector.is_dead) else { return };
        elector.is_dead = true;
        let child = elector.child;
        let span = e.latency(MS);
        e.judge.trouble(self.who.replica, e.now + S);
        e.after(span, Event::ElectorGone(child));
        self.wake(e);
        self.expose(e);
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
        if e.now < self.suspended_until {
            return e.at(self.suspended_until, Event::Exec(Child { who: self.who, pid }));
        }
        let Some(outcome) = self.tree.exec(pid, self.clock(), &self.node.habits, e) else { return self.wake(e) };
        if let Some((child, told)) = &mut self.spawning
            && *child == pid
        {
            *told = Some(outcome);
        }
        self.wake(e);
    }

    /// The workload takes on a role that it was told, and reports it, once or more often.
    pub fn obeys(&mut self, pid: i32, e: &mut Engine) {
        if e.now < self.suspended_until {
            return e.at(self.suspended_until, Event::Obeys(Child { who: self.who, pid }));
        }
        let Some(role) = self.tree.obey(pid, &self.node.habits, e) else { return };
        if self.node.habits.says {
            let times = if e.chance(0.3) { 3 } else { 1 };
            self.words.extend(std::iter::repeat_n((pid, role), times));
        }
        self.wake(e);
    }

    /// A process ends.
    pub fn ends(&mut self, pid: i32, e: &mut Engine) {
        if e.now < self.suspended_until {
            return e.at(self.suspended_until, Event::Ends(Child { who: self.who, pid }));
        }
        if self.tree.end(pid, e) {
            self.wake(e);
        }
    }
}
