//! One container: init with the shipping agent, driven as in its loop, and the processes under it.
//!
//! The order of steps is that of `init/event_loop.rs`.

use std::{collections::VecDeque, rc::Rc, time::Duration};

use tenure::{
    config::ProbeKind,
    link::{Exit, Term, ToElector, ToInit},
    notification::Notification,
    supervision::{Action, Agent, AgentConfig, Input, RoleInput, Standing},
    time::Instant,
};

use crate::{
    alarm::Alarm,
    clock::{Clock, MS, Ns, S},
    elector::ElectorProcess,
    engine::{Child, Engine, Event, Who},
    plan::Node,
    tree::{Outcome, Tree},
};

mod actions;
mod frozen;
mod fuse;
mod stops;

use fuse::Fuse;
pub use stops::Moment;

const MESSAGES_A_TURN: usize = 256;

/// See the module.
#[derive(Clone)]
pub struct Container {
    pub who: Who,
    pub identity: Rc<str>,
    pub node: Node,
    /// The elector that init knows.
    pub elector: Option<ElectorProcess>,
    pub tree: Tree,
    /// Init is gone: the container ends.
    pub over: bool,
    agent: Agent,
    /// Init is stopped.
    frozen: bool,
    /// Until when.
    frozen_until: Ns,
    /// When it last went on after that.
    went_on: Ns,
    /// Init will be stopped at this moment, for this long.
    freeze_before: Option<(Moment, Ns)>,
    /// The whole node is suspended until then.
    suspended_until: Ns,
    fuse: Fuse,
    /// The term in which init has heard that the Lease is about to be released.
    pub void: Option<Term>,
    /// What the workload may read.
    page: Standing,
    /// The action that a stop has prevented.
    cut_off: Option<Action>,
    alarm: Alarm,
    signals: VecDeque<i32>,
    /// SIGCHLD.
    stirred: bool,
    /// Killed electors, and whether they can be reaped.
    undead: Vec<(i32, bool)>,
    spawning: Option<(i32, Option<Outcome>)>,
    /// The workload's main process, as init knows it.
    main: Option<i32>,
    promoter: Option<i32>,
    demoter: Option<i32>,
    hook: Option<i32>,
    /// Processes that ask, of which kind, and since when.
    probes: Vec<(i32, ProbeKind, Instant)>,
    /// Hooks and probes whose main process has ended, and how, of whose group some are left.
    leaving: Vec<(i32, Exit)>,
    /// Messages of processes on NOTIFY_SOCKET.
    words: VecDeque<(i32, Notification)>,
    /// The token of the last Lead.
    token: String,
}

impl Container {
    /// A container that starts now.
    pub fn start(who: Who, node: Node, e: &mut Engine) -> Self {
        let identity: Rc<str> = format!("{}_{who}", node.name).into();
        e.note(who, || "starts".into());
        let duration = nanos(node.config.lease.duration);
        let able = if node.is_quick() { e.now + node.startup + S } else { Ns::MAX };
        e.judge.begins(who, &identity, duration, able);
        let (config, identity_of) = (node.config.clone(), identity.to_string());
        let config = AgentConfig {
            config,
            preset: node.preset.clone(),
            began: Instant::BOOT,
            identity: identity_of,
            context: None,
            pid1: true,
            terminal: false,
        };
        let mut container = Self {
            who,
            identity,
            node,
            elector: None,
            tree: Tree::new(who),
            over: false,
            agent: Agent::new(config),
            frozen: false,
            frozen_until: 0,
            went_on: 0,
            stirred: false,
            freeze_before: None,
            suspended_until: 0,
            fuse: Fuse::new(),
            void: None,
            page: Standing::NONE,
            cut_off: None,
            alarm: Alarm::off(),
            signals: VecDeque::new(),
            undead: Vec::new(),
            spawning: None,
            main: None,
            promoter: None,
            demoter: None,
            hook: None,
            probes: Vec::new(),
            leaving: Vec::new(),
            words: VecDeque::new(),
            token: String::new(),
        };
        container.wake_init(0, e);
        container
    }

    /// The memory of this container, restored as the replica of this number, if nothing is under way in it but a workload that leads.
    pub fn restored(&self, replica: usize, e: &mut Engine) -> Option<Self> {
        let who = Who { replica, life: 1 };
        let quiet =
            !self.over && !self.frozen && e.now >= self.suspended_until && self.cut_off.is_none() && self.undead.is_empty();
        let alone = self.spawning.is_none()
            && self.promoter.is_none()
            && self.demoter.is_none()
            && self.hook.is_none()
            && self.leaving.is_empty()
            && self.probes.is_empty();
        let elector = self.elector.as_ref()?.restored(who)?;
        let tree = self.tree.restored(who)?;
        if !(quiet && alone && e.judge.runs_for(self.who)) {
            return None;
        }
        let mut twin = Self { who, tree, alarm: Alarm::off(), fuse: Fuse::new(), elector: Some(elector), ..self.clone() };
        twin.wake_init(0, e);
        twin.follow_hard(e);
        let (clock, latency) = (twin.clock(), e.latency(twin.node.wake));
        if let Some(elector) = &mut twin.elector {
            elector.wake(latency, e);
            elector.set_guard(clock, latency, e);
        }
        Some(twin)
    }

    pub fn clock(&self) -> Clock {
        self.node.clock
    }

    /// Init has something to do, and gets to it within its latency.
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

    /// SIGTERM, or another signal, to init.
    pub fn signal(&mut self, signal: i32, e: &mut Engine) {
        e.judge.trouble(self.who.replica, Ns::MAX);
        self.signals.push_back(signal);
        self.wake(e);
    }

    /// Whether this elector of it can hear from the server.
    pub fn hears(&self, child: Child) -> bool {
        !self.over && self.elector.as_ref().is_some_and(|elector| elector.child == child && !elector.is_dead)
    }

    /// One turn of init's loop, if it is due to wake now.
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
            // What follows takes time, during which whatever it started continues.
            self.act(action, e);
            self.carry_out(e);
            return self.wake(e);
        }
        self.heed_fuse(e);
        self.drain_link(true, e);
        self.take_signals(e);
        self.take_outcome(e);
        self.take_words(e);
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
        if let Some(at) = self.agent.poll_timeout() {
            let span = self.clock().real(at).saturating_sub(e.now);
            // What is due already needs no wake-up.
            let latency = if at <= now { 0 } else { e.latency(self.node.wake) };
            self.wake_init(span.saturating_add(latency), e);
        }
    }

    fn stands(&self) -> bool {
        self.frozen || self.over
    }

    fn handle(&mut self, input: Input, e: &Engine) {
        self.agent.handle(input, self.clock().boot(e.now));
    }

    fn take_signals(&mut self, e: &mut Engine) {
        if !self.stands() && std::mem::take(&mut self.stirred) && self.agent.is_frozen() {
            self.handle(Input::Role(RoleInput::Stirred), e);
            self.carry_out(e);
        }
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
            let promoted = self.promoter.take_if(|promoter| *promoter == pid).is_some();
            if promoted || self.demoter.take_if(|demoter| *demoter == pid).is_some() {
                let told = exit == Exit::Code(0);
                self.handle(Input::Role(if told { RoleInput::Signalled } else { RoleInput::NotSignalled }), e);
            }
            if self.hook == Some(pid) || self.probes.iter().any(|(probe, ..)| *probe == pid) {
                self.tree.kill_group(pid, e);
                self.leaving.push((pid, exit));
                self.end_helpers(e);
                continue;
            }
            self.main.take_if(|main| *main == pid);
            self.handle(Input::Reaped { pid, exit }, e);
        }
        self.end_helpers(e);
    }

    /// Reports the end of each hook and probe once nobody of its group is left.
    fn end_helpers(&mut self, e: &mut Engine) {
        while let Some(over) = self.leaving.iter().position(|(pid, _)| self.tree.is_group_gone(*pid)) {
            let (pid, exit) = self.leaving.remove(over);
            let input = if let Some(index) = self.probes.iter().position(|(probe, ..)| *probe == pid) {
                let (_, kind, began) = self.probes.swap_remove(index);
                let failure = if exit == Exit::Code(0) { self.illness(e) } else { Some(exit.to_string()) };
                Input::Probed { kind, began, failure }
            } else {
                self.hook.take_if(|hook| *hook == pid);
                Input::Reaped { pid, exit }
            };
            self.handle(input, e);
        }
    }

    /// Messages of processes outside the workload are ignored.
    fn take_words(&mut self, e: &mut Engine) {
        while !self.stands()
            && let Some((pid, said)) = self.words.pop_front()
        {
            if self.main == Some(pid) {
                e.note(self.who, || format!("init hears pid {pid} say {said:?}"));
                let role = if let Notification::Role(role) = said { Some(RoleInput::Notified(role)) } else { None };
                self.handle(role.map_or(Input::Notified(said), Input::Role), e);
                self.carry_out(e);
            }
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
        if let ToInit::Releasing { term, .. } = message {
            self.void = Some(*term);
        }
        if let ToInit::Lead { info, .. } = message {
            self.token.clone_from(&info.token);
        }
        if *message != ToInit::Heartbeat {
            e.note(self.who, || format!("init hears {message:?}"));
        }
    }

    fn carry_out(&mut self, e: &mut Engine) {
        while !self.stands() {
            if self.agent.hard().is_some() {
                self.follow_hard(e);
            }
            self.page = self.agent.standing();
            let Some(action) = self.agent.poll_action() else { return self.follow_hard(e) };
            self.read(&action, e);
            if let Some((moment, span)) = self.freeze_before.take() {
                match moment {
                    Moment::Spawn if !matches!(action, Action::Spawn { .. } | Action::Thaw { .. }) => {
                        self.freeze_before = Some((moment, span))
                    }
                    Moment::Action(left) if left > 1 => self.freeze_before = Some((Moment::Action(left - 1), span)),
                    Moment::Now | Moment::Action(_) | Moment::Spawn => self.freeze(Moment::Now, span, e),
                }
                if self.frozen {
                    self.cut_off = Some(action);
                    return;
                }
            }
            self.act(action, e);
        }
    }

    /// What the workload may read is taken back before it is told to stop, and before that is told of it (law 3).
    fn read(&self, action: &Action, e: &mut Engine) {
        let stops = matches!(action, Action::Signal { signal, .. } if *signal == self.node.config.workload.stop.signal);
        let tells = matches!(action, Action::Tell(ToElector::Stopping { .. } | ToElector::Stopped { .. }));
        let is_over = stops || tells || matches!(action, Action::TellRole { not_after: None, .. });
        let now = self.clock().boot(e.now);
        if is_over && self.page.soft > now || !self.agent.leads() && self.page.hard > now {
            e.judge.fail(format!("{}: {:?} can be read before {action:?}", self.who, self.page));
        }
    }

    /// A step of the protocol, after which a fault may strike at once.
    pub fn step(&self, e: &mut Engine) {
        self.node.plan.step(self.who, e);
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
        let last = self.tree.collapse(e).max(self.suspended_until);
        let span = e.spread(10 * MS, self.node.plan.restart);
        e.at(last + span, Event::Boot(self.who.replica));
    }
}

fn nanos(span: Duration) -> Ns {
    u64::try_from(span.as_nanos()).unwrap_or(Ns::MAX)
}
