//! The world of init's turn: what its calls do, and what they find.

use tenure::{
    config::Acknowledge,
    link::{Exit, InitialState, Reason, Then, ToElector, ToInit},
    role::Role,
    supervision::{
        self, Dead, Ended, Heard, HelperKind, LinkBroken, NotSpawned, Order, Program, Scan, Started, Target, TermStatus,
    },
    time::Instant,
};

use super::{Container, Word};
use crate::{
    clock::{MS, Ns, S},
    elector::ElectorProcess,
    engine::{Child, Engine, Event, Who},
    tree::{Hook, Killer},
};

/// Init, while it takes a step.
pub(super) struct Init<'a> {
    pub(super) container: &'a mut Container,
    pub(super) e: &'a mut Engine,
}

impl Init<'_> {
    fn who(&self) -> Who {
        self.container.who
    }

    fn note(&mut self, what: impl FnOnce() -> String) {
        self.e.note(self.container.who, what);
    }

    fn hook(&mut self, kind: HelperKind, role: Option<Role>, token: Option<u64>, not_after: Instant, leads: bool) -> Option<i32> {
        let Self { container, e } = self;
        // Whether hooks tell the workload its role, and vouch for its answer.
        let tells = container.node.config.workload.acknowledge == Some(Acknowledge::Hook);
        let kind = match kind {
            HelperKind::Hook(kind) => Some(kind),
            HelperKind::Probe(_) => None,
        };
        // Before a lead there is no workload, and where it is not told, it matters to no hook.
        let workload = if tells && kind.is_some() { container.main? } else { container.main.unwrap_or_default() };
        let token = if role == Some(Role::Standby) && kind.is_none() { 0 } else { token? };
        let ill = kind.is_none() && container.illness(e).is_some();
        let hook = Hook { kind, workload, token, not_after, tells, leads, ill };
        let pid = container.tree.fork_hook(hook, container.fuse.is_armed(), &container.node.habits, *e);
        container.helpers.push(pid);
        Some(pid)
    }

    /// From the SIGKILL to an elector that init has given up until it can be reaped: it may hang in the kernel.
    fn burial(&mut self) -> Ns {
        let Self { container, e } = self;
        if e.chance(container.node.habits.stuck) { 1_000 * S } else { e.latency(container.node.wake) }
    }
}

impl supervision::Container for Init<'_> {
    fn now(&self) -> Instant {
        self.container.clock().boot(self.e.now)
    }

    fn fuse_fired(&mut self) -> bool {
        std::mem::take(&mut self.container.fuse.unheard)
    }

    fn lives(&mut self) -> bool {
        self.container.tree.is_any_alive()
    }

    fn message(&mut self) -> Option<Result<ToInit, LinkBroken>> {
        let elector = self.container.elector.as_mut()?;
        let Some(message) = elector.to_init.pop_front() else { return elector.is_dead.then_some(Err(LinkBroken)) };
        if let ToInit::Releasing { term, .. } = &message {
            self.container.void = Some(*term);
        }
        if let ToInit::Lead { info, .. } = &message {
            match info.token.parse() {
                Ok(token) => self.container.token = token,
                Err(_) => self.e.judge.fail(format!("{:?} is no token", info.token)),
            }
        }
        let who = self.container.who;
        self.e.judge.lawful(|law| law.init_hears(who, &message));
        if message != ToInit::Heartbeat {
            self.note(|| format!("init hears {message:?}"));
        }
        Some(Ok(message))
    }

    fn signal(&mut self) -> Option<i32> {
        self.container.signals.pop_front()
    }

    fn dead(&mut self) -> Dead {
        let container = &self.container;
        let elector = container.elector.as_ref().filter(|elector| elector.is_zombie).map(|elector| elector.child.pid);
        let undead = container.undead.iter().find(|(_, is_zombie)| *is_zombie).map(|(pid, _)| *pid);
        elector.or(undead).or_else(|| container.tree.zombie()).map_or(Dead::Nobody, Dead::Process)
    }

    fn reap(&mut self, pid: i32) -> Option<Ended> {
        let container = &mut *self.container;
        let killed = container.undead.iter().position(|(undead, _)| *undead == pid);
        if let Some(index) = killed {
            container.undead.swap_remove(index);
        }
        let elector = container.elector.as_mut().filter(|elector| elector.child.pid == pid);
        let is_elector = elector.map(|elector| elector.is_zombie = false).is_some();
        if killed.is_some() || is_elector {
            return Some(Ended { exit: Exit::Signal(libc::SIGKILL), started: Some(Ok(())) });
        }
        let exit = container.tree.reap(pid)?;
        let is_main = container.main.take_if(|main| *main == pid).is_some();
        if is_main {
            container.fuse.is_reaped = container.fuse.victim == Some(pid);
        }
        container.teller.take_if(|(teller, _)| *teller == pid);
        let started = if is_main { container.outcome.take() } else { Some(Ok(())) };
        Some(Ended { exit, started })
    }

    fn started(&mut self) -> Option<Started> {
        self.container.outcome.take()
    }

    fn is_group_gone(&mut self, group: i32) -> bool {
        let is_gone = self.container.tree.is_group_gone(group);
        if is_gone {
            self.container.helpers.retain(|helper| *helper != group);
        }
        is_gone
    }

    fn heard(&mut self) -> Option<Heard> {
        let (pid, word) = self.container.words.pop_front()?;
        Some(match word {
            Word::Mark(number) => Heard::Marked(number),
            Word::Said(said) if self.container.main == Some(pid) => {
                self.note(|| format!("init hears pid {pid} say {said:?}"));
                Heard::Said(vec![said])
            }
            // Nobody else is believed.
            Word::Said(_) => Heard::Said(Vec::new()),
        })
    }

    fn start_elector(&mut self, initial: InitialState) -> Result<i32, NotSpawned> {
        let Self { container, e } = self;
        let wrong = || format!("{} starts an elector beside the open link of the last one", container.who);
        e.judge.judges("one elector at a time", container.elector.is_some(), wrong);
        let pid = container.tree.pid();
        let child = Child { who: container.who, pid };
        e.judge.lawful(|law| law.next_elector(container.who, &initial));
        e.note(container.who, || format!("elector {} starts, resuming {}", initial.generation, initial.resume.is_some()));
        let span = e.spread(MS, container.node.startup);
        e.judge.trouble(container.who.replica, e.now + span + S);
        container.elector = Some(ElectorProcess::start(child, initial));
        e.after(span, Event::ElectorUp(child));
        Ok(pid)
    }

    fn kill_elector(&mut self) {
        if self.e.chance(0.3) {
            self.container.last_turn(self.e);
        }
        let Some(elector) = &mut self.container.elector else { return };
        elector.is_dead = true;
        let (child, is_zombie) = (elector.child, elector.is_zombie);
        self.container.undead.push((child.pid, is_zombie));
        self.note(|| "init kills the elector".into());
        if !is_zombie {
            let span = self.burial();
            self.e.after(span, Event::ElectorGone(child));
        }
    }

    fn close_link(&mut self) {
        let unread = self.container.elector.take().map_or(0, |elector| elector.to_init.len());
        let wrong = || format!("{} closes a link in which {unread} messages wait", self.container.who);
        self.e.judge.judges("a link is read to its end", unread > 0, wrong);
    }

    fn send(&mut self, message: ToElector) {
        let Self { container, e } = self;
        let span = e.latency(container.node.wake);
        if let ToElector::Stopping { reason: Reason::Expired, term, at } = message {
            // What the kernel did at H stands; anything later came too late.
            if !container.fuse.fired {
                e.judge.expired(container.who, term, at);
            }
            e.judge.expired_in_peace(container.who, term, e.now);
        }
        // Whoever has done its run need not let the others go first.
        if let ToElector::Stopped { term, stop, then: Then::Follow, .. } = message
            && container.node.preset.task().is_none()
        {
            e.judge.proves(container.who, term, stop.exit, e.now);
        }
        container.judge_word(&message, e);
        let Some(elector) = &mut container.elector else { return };
        e.judge.lawful(|law| law.init_says(container.who, &message));
        if let ToElector::Stopping { reason: Reason::Expired, term, .. } = message {
            elector.expired = Some(term);
        }
        if let ToElector::Stopped { term, .. } = message
            && elector.expired != Some(term)
        {
            elector.proof = Some((term, e.now));
        }
        if message != ToElector::Heartbeat {
            e.note(container.who, || format!("init tells {message:?}"));
        }
        let is_step = matches!(message, ToElector::Acknowledged { .. } | ToElector::Stopped { .. });
        elector.to_elector.push_back(message);
        elector.wake(span, e);
        if is_step {
            container.step(e);
        }
    }

    fn fork(&mut self, program: Program) -> Result<i32, NotSpawned> {
        let Program { helper, role, told, not_after, fused } = program;
        let token = told.info.as_ref().map(|info| info.token.parse::<u64>().unwrap_or_default());
        let pid = match helper {
            None => {
                let Self { container, e } = self;
                let habits = &container.node.habits;
                let lead = token.map(|token| (token, not_after));
                let covered = lead.is_some() && container.fuse.is_armed();
                if let Some((_, not_after)) = lead {
                    container.judge_fuse("forks a leader", e);
                    e.note(container.who, || format!("forks a leader, not to run after {not_after:?}"));
                }
                let pid = container.tree.fork(lead, covered, habits, *e);
                (container.main, container.outcome, container.answered) = (Some(pid), None, None);
                container.never_ran = false;
                pid
            }
            Some(kind) => {
                if fused {
                    self.container.judge_fuse("forks a hook or probe of a leader", self.e);
                }
                let pid = self.hook(kind, role, token, not_after, fused);
                let pid = pid.ok_or_else(|| NotSpawned::Unavailable { message: "there is nobody to tell".into() })?;
                self.note(|| format!("forks {} as pid {pid}", kind.as_str()));
                pid
            }
        };
        self.container.step(self.e);
        Ok(pid)
    }

    fn tell(&mut self, order: Order) -> Result<Option<i32>, String> {
        let Self { container, e } = self;
        if let Order::Signal { pid, role, mark, .. } = order {
            container.judge_order(pid, role, mark, e);
        }
        let (token, habits) = (container.token, &container.node.habits);
        let (child, mark) = match order {
            Order::Mark(number) => {
                container.is_marked = true;
                container.words.push_back((0, Word::Mark(number)));
                return Ok(None);
            }
            Order::Signal { pid, not_after: Some(not_after), mark, .. } => {
                container.judge_fuse("promotes a leader", e);
                let child = container.tree.promote(pid, token, not_after, habits, *e);
                e.note(container.who, || format!("forks pid {child} to promote {pid} not after {not_after:?}"));
                (child, mark)
            }
            Order::Signal { pid, not_after: None, mark, until_taken: true, .. } => {
                let child = container.tree.demote(pid, habits, *e);
                e.note(container.who, || format!("forks pid {child} to demote {pid}"));
                (child, mark)
            }
            Order::Signal { pid, signal, not_after: None, .. } => {
                e.note(container.who, || format!("signal {} to pid {pid}", signal.0));
                container.tree.order(pid, Role::Standby, 0, habits, *e);
                container.step(e);
                return Ok(None);
            }
            Order::Resume { not_after } => {
                container.judge_fuse("continues a leader", e);
                let frozen = container.tree.frozen(false, habits, *e).ok_or("the workload is not frozen any more")?;
                let child = container.tree.resume(frozen, token, not_after, habits, *e);
                e.note(container.who, || format!("forks pid {child} to continue it, not after {not_after:?}"));
                (child, None)
            }
        };
        container.teller = Some((child, mark));
        container.step(e);
        Ok(Some(child))
    }

    fn kill(&mut self, target: Target, signal: tenure::config::Signal) -> bool {
        let Self { container, e } = self;
        let (Target::Main(pid) | Target::Group(pid)) = target;
        e.note(container.who, || format!("signal {} to pid {pid}", signal.0));
        container.judge_signal(pid, signal.0, e);
        match signal.0 {
            libc::SIGKILL if container.teller.is_some_and(|(teller, _)| teller == pid) => {
                let clock = container.clock();
                if container.tree.cancel(pid, clock, &container.node.habits, *e) {
                    container.set_mark(pid);
                }
            }
            libc::SIGKILL => container.tree.kill_group(pid, *e),
            signal => {
                container.tree.ask(pid, signal, *e);
                container.step(e);
            }
        }
        true
    }

    // Only a plain init does that.
    fn wake(&mut self, _: Target) {}

    fn frozen(&mut self, stop: bool) -> bool {
        let Self { container, e } = self;
        container.tree.frozen(stop, &container.node.habits, *e).is_some()
    }

    fn scan(&mut self, kill: bool) -> Scan {
        let Self { container, e } = self;
        let killed = kill && container.tree.kill(Killer::Walk, &container.node.habits, *e);
        let scan = container.tree.scan(killed);
        if kill {
            e.note(container.who, || format!("kills {:?}", scan.left));
        }
        scan
    }

    fn kill_all(&mut self) {
        let Self { container, e } = self;
        e.note(container.who, || "kill(-1)".into());
        container.shoot_elector(e);
        container.tree.kill(Killer::All, &container.node.habits, *e);
    }

    fn follow_hard(&mut self, hard: Option<Instant>) {
        self.container.arm_fuse(hard, self.e);
    }

    fn publish(&mut self, status: TermStatus) {
        self.container.page = status;
    }

    fn say(&mut self, line: String) {
        if line.starts_with("the elector ") && !line.contains("silent") && !line.contains("ended") {
            self.e.judge.fail(format!("{}: init finds that {line}", self.who()));
        }
        self.note(|| format!("init warns: {line}"));
    }

    fn last_words(&mut self, words: &str, _: u8) {
        self.note(|| format!("init's last words: {words}"));
    }

    fn die(&mut self) {
        self.container.end("init gives up", self.e);
    }
}

/// What init may not do, whatever the order of its steps is.
impl Container {
    /// An answer of the workload counts. What the kernel killed at H, or what never ran, did not end by itself.
    fn judge_word(&self, message: &ToElector, e: &mut Engine) {
        let other =
            if self.fuse.is_reaped { Some("the fuse has killed") } else { self.never_ran.then_some("was too late to run") };
        let ToElector::Stopping { reason, .. } = message else {
            if let ToElector::Restarting { .. } = message {
                let wrong = || format!("{} restarts what {other:?}", self.who);
                e.judge.judges("what restarts has ended by itself", other.is_some(), wrong);
            }
            return;
        };
        if *reason == Reason::Exited {
            let wrong = || format!("{} says that what {other:?} has ended by itself", self.who);
            e.judge.judges("what exited has ended by itself", other.is_some(), wrong);
        }
        let unread = |answered: Ns| {
            let idle = answered.max(self.suspended_until).max(self.went_on);
            idle == answered && answered + 3 * self.node.wake + MS < e.now
        };
        if *reason == Reason::NotAcknowledged {
            let wrong = || format!("{} does not hear that its workload leads, as that has said", self.who);
            e.judge.judges("an answer is heard", self.main.is_some() && self.answered.is_some_and(unread), wrong);
        }
    }

    /// The kernel kills a leader at H from its first instant on (law 3).
    fn judge_fuse(&self, what: &str, e: &mut Engine) {
        let wrong = || format!("{} {what} before the fuses are set", self.who);
        e.judge.judges("the fuses are set first", !self.fuse.is_armed(), wrong);
        e.judge.armed.arm_if(!self.node.config.standby.command.is_empty(), "a leader runs beside no standby");
    }

    /// A role is told to a process that lives, and whoever is to answer is asked after a mark.
    fn judge_order(&mut self, pid: i32, role: Role, mark: Option<u64>, e: &mut Engine) {
        let wrong = || format!("{} tells the dead pid {pid} its role", self.who);
        e.judge.judges("a role is told to who lives", !self.tree.is_alive(pid), wrong);
        let is_marked = std::mem::take(&mut self.is_marked) || mark.is_some();
        if self.node.config.workload.acknowledge == Some(Acknowledge::Notify) {
            e.judge.judges("who is to answer is marked", !is_marked, || format!("{} asks pid {pid} without a mark", self.who));
        }
        if role == Role::Leader {
            self.answered = None;
        }
    }

    /// A pid may name another process once it was reaped. The main process of a frozen standby dies last.
    fn judge_signal(&self, pid: i32, signal: i32, e: &mut Engine) {
        let wrong = || format!("{} sends signal {signal} to pid {pid}, which was reaped", self.who);
        e.judge.judges("a signal meets its process", !self.tree.names(pid), wrong);
        // While the Lease is held, what the kernel continues may run.
        let is_frozen = self.main == Some(pid) && !self.fuse.is_armed() && self.tree.is_stopped(pid, e.now);
        // When the main process dies, the kernel may continue one that no SIGKILL has reached.
        let other = self.tree.stopped(e.now).map(|(other, _)| other).find(|other| *other != pid);
        if is_frozen && signal == libc::SIGKILL {
            let wrong =
                || format!("{} kills the main process before pid {other:?}, which the kernel may then continue", self.who);
            e.judge.judges("a frozen main process dies last", other.is_some(), wrong);
        }
    }
}

impl Container {
    /// The child that tells the workload its role sets its mark.
    pub(super) fn set_mark(&mut self, pid: i32) {
        if let Some((teller, Some(mark))) = self.teller.filter(|(teller, _)| *teller == pid) {
            self.words.push_back((teller, Word::Mark(mark)));
        }
    }
}
