//! What init does at its agent's request, and what comes of it.
//!
//! The order of steps is that of `init/actions.rs`.

use tenure::{
    config::{Acknowledge, HookKind, ProbeKind},
    link::{Reason, ToElector},
    notification::Notification,
    role::Role,
    supervision::{Action, Input, Launch, RoleInput, Target},
    time::Instant,
};

use super::Container;
use crate::{
    clock::{MS, Ns, S},
    elector::ElectorProcess,
    engine::{Child, Engine, Event},
    tree::{Hook, Killer},
};

impl Container {
    pub(super) fn act(&mut self, action: Action, e: &mut Engine) {
        match action {
            Action::StartElector => {
                let initial = self.agent.initial_state();
                let pid = self.tree.pid();
                let child = Child { who: self.who, pid };
                e.note(self.who, || format!("elector {} starts, resuming {}", initial.generation, initial.resume.is_some()));
                let span = e.spread(MS, self.node.startup);
                e.judge.trouble(self.who.replica, e.now + span + S);
                self.elector = Some(ElectorProcess::start(child, initial));
                e.after(span, Event::ElectorUp(child));
                self.handle(Input::ElectorStarted, e);
            }
            Action::KillElector => self.kill_elector(e),
            Action::Tell(message) => self.tell(message, e),
            Action::Spawn { launch, .. } => {
                let habits = &self.node.habits;
                let pid = match launch.and_then(|launch| Some((launch.info?, launch.not_after))) {
                    Some((info, not_after)) => {
                        let pid = self.tree.fork(info.token, not_after, self.fuse.is_lit(), habits, e);
                        e.note(self.who, || format!("forks pid {pid}, not to run after {not_after:?}"));
                        pid
                    }
                    None => self.tree.fork_standby(habits, e),
                };
                self.main = Some(pid);
                self.spawning = Some((pid, None));
                self.handle(Input::Forked { pid }, e);
                self.step(e);
            }
            Action::Signal { target, signal } => {
                let (Target::Main(pid) | Target::Group(pid)) = target;
                e.note(self.who, || format!("signal {} to pid {pid}", signal.0));
                self.tree.ask(pid, signal.0, e);
                self.step(e);
            }
            // Only a plain init does that.
            Action::Continue { .. } => {}
            Action::Prove => {
                self.reap(e);
                let scan = self.tree.scan(false);
                self.handle(Input::Scanned(scan), e);
            }
            Action::Sweep => self.walk(Killer::Walk, e),
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
                if line.starts_with("the elector ") && !line.contains("silent") {
                    e.judge.fail(format!("{}: init finds that {line}", self.who));
                }
                e.note(self.who, || format!("init warns: {line}"));
            }
            Action::TerminationMessage(words) => e.note(self.who, || format!("init's last words: {words}")),
            Action::TellRole { pid, not_after: Some(not_after), .. } => {
                let promoter = self.tree.promote(pid, self.token.clone(), not_after, &self.node.habits, e);
                e.note(self.who, || format!("forks pid {promoter} to promote {pid} not after {not_after:?}"));
                self.promoter = Some(promoter);
                self.step(e);
            }
            Action::CallOff => {
                e.note(self.who, || "calls the promotion off".into());
                if let Some(promoter) = self.promoter {
                    let clock = self.clock();
                    self.tree.call_off(promoter, clock, &self.node.habits, e);
                }
            }
            Action::TellRole { pid, signal, not_after: None, .. } => {
                self.step(e);
                if self.node.config.workload.acknowledge == Some(Acknowledge::None) {
                    let demoter = self.tree.demote(pid, &self.node.habits, e);
                    e.note(self.who, || format!("forks pid {demoter} to demote {pid}"));
                    self.demoter = Some(demoter);
                    return;
                }
                e.note(self.who, || format!("signal {} to pid {pid}", signal.0));
                self.mark();
                self.tree.order(pid, Role::Standby, "", &self.node.habits, e);
                self.handle(Input::Role(RoleInput::Signalled), e);
            }
            Action::Freeze => self.look_frozen(true, e),
            Action::LookFrozen => self.look_frozen(false, e),
            Action::Thaw { not_after } => self.thaw_workload(not_after, e),
            Action::MarkNotify => {
                self.mark();
                self.handle(Input::Role(RoleInput::Signalled), e);
            }
            Action::Hook { hook, told, not_after } => self.hook(hook, told.info.map(|info| info.token), not_after, e),
            Action::KillHook { pid } => {
                e.note(self.who, || format!("kills hook {pid}"));
                self.tree.kill_group(pid, e);
            }
            Action::Probe { kind, began, launch } => self.probe(kind, began, launch, e),
            Action::KillProbe(kind) => {
                e.note(self.who, || format!("kills the probe of {}", kind.as_str()));
                for (pid, ..) in self.probes.iter().filter(|(_, of, _)| *of == kind) {
                    self.tree.kill_group(*pid, e);
                }
            }
        }
    }

    /// What asks a standby is no leader's code, and answers at once.
    fn probe(&mut self, kind: ProbeKind, began: Instant, launch: Option<Launch>, e: &mut Engine) {
        let launch = launch.and_then(|launch| Some((launch.info?.token, launch.not_after)));
        let (Some(workload), Some((token, not_after))) = (self.main, launch) else {
            let failure = self.illness(e);
            return self.handle(Input::Probed { kind, began, failure }, e);
        };
        let hook = Hook { kind: None, workload, token, not_after, tells: self.hooks_tell() };
        let pid = self.tree.fork_hook(hook, self.fuse.is_lit(), &self.node.habits, e);
        e.note(self.who, || format!("forks the probe of {} as pid {pid}", kind.as_str()));
        self.probes.push((pid, kind, began));
        self.step(e);
    }

    /// Why the workload does not answer well, if it does not. It recovers in the end.
    pub fn illness(&self, e: &mut Engine) -> Option<String> {
        let ill = self.node.habits.ill;
        (ill > 0.0 && e.now < self.node.plan.storm && e.chance(ill)).then(|| "ill".into())
    }

    /// Whether hooks tell the workload its role, and vouch for its answer.
    fn hooks_tell(&self) -> bool {
        self.node.config.workload.acknowledge == Some(Acknowledge::Hook)
    }

    fn hook(&mut self, kind: HookKind, token: Option<String>, not_after: Instant, e: &mut Engine) {
        let tells = self.hooks_tell();
        // Before a lead there is none, and where it is not told, it matters to no hook.
        let main = if tells { self.main } else { Some(self.main.unwrap_or_default()) };
        let (Some(workload), Some(token)) = (main, token) else {
            return self.handle(Input::Role(RoleInput::HookNotForked), e);
        };
        let hook = Hook { kind: Some(kind), workload, token, not_after, tells };
        let pid = self.tree.fork_hook(hook, self.fuse.is_lit(), &self.node.habits, e);
        e.note(self.who, || format!("forks hook {} as pid {pid}", kind.as_str()));
        self.hook = Some(pid);
        self.handle(Input::Role(RoleInput::HookForked { pid }), e);
        self.step(e);
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
        // Whoever has done its run need not let the others go first.
        if let ToElector::Stopping { reason: Reason::NotLive | Reason::NotReady, .. } = message
            && self.node.preset.task().is_none()
        {
            e.judge.gives_up(self.who, e.now);
        }
        if let Some(elector) = &mut self.elector {
            if message != ToElector::Heartbeat {
                e.note(self.who, || format!("init tells {message:?}"));
            }
            let is_step = matches!(message, ToElector::Acknowledged { .. } | ToElector::Stopped { .. });
            elector.to_elector.push_back(message);
            elector.wake(span, e);
            if is_step {
                self.step(e);
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
        let until = e.now + super::nanos(self.node.config.lease.duration) * 2 + S;
        e.judge.forgets(self.who, until);
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
        if self.node.habits.tells {
            let span = e.spread(MS, S);
            e.after(span, Event::Says(Child { who: self.who, pid }));
        }
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
            self.words.extend(std::iter::repeat_n((pid, Notification::Role(role)), times));
        }
        self.wake(e);
    }

    /// The workload says how it is, and will say so again.
    pub fn says(&mut self, pid: i32, e: &mut Engine) {
        let Some(leads) = self.tree.speaks(pid) else { return };
        let said = match (self.illness(e), e.rng.bool()) {
            (None, _) => Notification::Ready,
            (Some(_), true) if leads => Notification::WatchdogTrigger,
            (Some(_), _) => Notification::Reloading,
        };
        if e.now >= self.suspended_until && !self.tree.is_stopped(pid, e.now) {
            self.words.push_back((pid, said));
            self.wake(e);
        }
        let span = e.spread(20 * MS, 5 * S);
        e.after(span, Event::Says(Child { who: self.who, pid }));
    }

    /// The roles that were said before count no more.
    fn mark(&mut self) {
        self.words.retain(|(_, said)| !matches!(said, Notification::Role(_)));
    }

    /// A process ends.
    pub fn ends(&mut self, pid: i32, e: &mut Engine) {
        if e.now < self.suspended_until {
            return e.at(self.suspended_until, Event::Ends(Child { who: self.who, pid }));
        }
        if self.tree.end(pid, e) {
            self.stirred = true;
            self.wake(e);
        }
    }
}
