//! Carries out the agent's actions, and hands it their immediate results.

use crate::{
    config::{HookKind, ProbeKind, Signal},
    exit,
    link::ToInit,
    role::Role,
    supervision::interface::{Action, Input, Launch, NotSpawned, ProgramEnv, RoleInput, Scan, Target},
    time::Instant,
};

use super::{
    Turn,
    children::{Helper, describe},
    container::{Container, HelperKind, Order, Program},
};

const REFUSED: &str = "the workload runs as a user that tenure may not signal, so it dies only with the container: run both as the \
                       same user, or give the container the capability KILL";
const REFUSED_OUTSIDE: &str = "the workload runs as a user that tenure may not signal, so it may run on without tenure and its Lease: \
                               run both as the same user";

impl Turn {
    pub(super) fn act(&mut self, action: Action, c: &mut impl Container) {
        match action {
            Action::StartElector => self.start_elector(c),
            Action::KillElector => self.kill_elector(c),
            Action::Tell(message) => c.send(message),
            Action::Spawn { role, launch } => self.spawn(role, launch, c),
            Action::Signal { target, signal } if self.is_main(target) => {
                if !c.kill(target, signal) && self.refused.say() {
                    c.say(if self.pid1 { REFUSED } else { REFUSED_OUTSIDE }.into());
                }
            }
            Action::Continue { target } if self.is_main(target) => c.wake(target),
            Action::KillHook { pid } if self.helpers.iter().any(|helper| helper.pid == pid) => {
                c.kill(Target::Group(pid), Signal::KILL);
            }
            // The process has ended, and its pid may name another one.
            Action::Signal { .. } | Action::Continue { .. } | Action::KillHook { .. } => {}
            Action::TellRole { pid, role, signal, not_after } => self.tell_role(pid, role, signal, not_after, c),
            Action::Freeze => self.look_frozen(true, c),
            Action::LookFrozen => self.look_frozen(false, c),
            Action::Resume { not_after } => self.tell(Order::Resume { not_after }, c),
            Action::KillTeller => {
                if let Some(teller) = self.teller.take() {
                    // The answer does not matter any more.
                    c.kill(Target::Main(teller), Signal::KILL);
                }
            }
            Action::Hook { hook, told, not_after } => self.start_hook(hook, told, not_after, c),
            Action::Probe { kind, began, launch } => self.start_probe(kind, began, launch, c),
            Action::KillProbe(kind) => {
                for helper in self.helpers.iter().filter(|helper| helper.kind == HelperKind::Probe(kind)) {
                    // The pid cannot be reused while its group has a member.
                    c.kill(Target::Group(helper.pid), Signal::KILL);
                }
            }
            Action::MarkNotify => {
                let mark = self.next_mark();
                self.tell(Order::Mark(mark), c);
            }
            Action::Prove => {
                self.reap(c);
                let scan = c.scan(false);
                self.handle(Input::Scanned(scan), c);
            }
            Action::Sweep => self.sweep(false, c),
            Action::KillAll => {
                c.kill_all();
                self.sweep(true, c);
            }
            Action::Die => {
                c.die();
                self.over = Some(exit::INTERNAL);
            }
            Action::Warn(line) => c.say(line),
            Action::TerminationMessage(words, code) => c.last_words(&words, code),
            Action::Exit(code) => self.over = Some(code),
        }
    }

    fn is_main(&self, target: Target) -> bool {
        let (Target::Main(pid) | Target::Group(pid)) = target;
        self.main == Some(pid)
    }

    fn start_elector(&mut self, c: &mut impl Container) {
        match c.start_elector(self.agent.initial_state()) {
            Ok(pid) => {
                self.elector = Some(pid);
                return self.handle(Input::ElectorStarted, c);
            }
            Err(NotSpawned::Failed { code, message }) => self.handle(Input::Told(ToInit::Failed { code, message }), c),
            Err(why) => self.complain(describe(why), c),
        }
        self.handle(Input::ElectorEnded, c);
    }

    /// Kills the elector and reads its last messages. After SIGKILL it writes no more, so the link holds all that will ever come
    /// (law 10).
    fn kill_elector(&mut self, c: &mut impl Container) {
        let Some(elector) = self.elector.take() else { return };
        c.kill_elector();
        self.killed.push(elector);
        self.drain(c);
        c.close_link();
    }

    fn spawn(&mut self, role: Option<Role>, launch: Option<Launch>, c: &mut impl Container) {
        let input = match c.fork(Program::of(None, role, launch)) {
            Ok(pid) => {
                self.main = Some(pid);
                Input::Forked { pid }
            }
            Err(why) => Input::NotSpawned(why),
        };
        self.handle(input, c);
    }

    /// Kills the whole workload: first init's own children, by their pids, because that needs neither /proc nor a descriptor;
    /// then all that a scan finds.
    ///
    /// A frozen main process is killed last: when it dies, the kernel may continue its stopped children.
    fn sweep(&mut self, is_all_killed: bool, c: &mut impl Container) {
        let is_main_last = self.agent.is_frozen();
        let running = self.helpers.iter().filter(|helper| helper.exit.is_none()).map(|helper| helper.pid);
        let first: Vec<i32> = running.chain(if is_main_last { None } else { self.main }).collect();
        first.iter().for_each(|pid| kill_group(*pid, c));
        self.reap(c);
        let scan = c.scan(true);
        let last = if is_main_last { self.main } else { None };
        if let Some(main) = last {
            kill_group(main, c);
        }
        let killed = scan.killed || is_all_killed || !first.is_empty() || last.is_some();
        self.handle(Input::Scanned(Scan { killed, ..scan }), c);
    }

    /// Numbers the next mark, which is set just before the workload is asked.
    const fn next_mark(&mut self) -> u64 {
        self.marks = self.marks.wrapping_add(1);
        self.is_unmarked = self.answers;
        self.marks
    }

    /// Reaps first: a signal to a dead process succeeds without any effect.
    fn tell_role(&mut self, pid: i32, role: Role, signal: Signal, not_after: Option<Instant>, c: &mut impl Container) {
        self.reap(c);
        if self.main != Some(pid) {
            return;
        }
        let mut mark = self.answers.then(|| self.next_mark());
        // Without a deadline no child has to check the clock, so the mark needs no child either.
        if not_after.is_none()
            && let Some(number) = mark.take()
            && let Err(line) = c.tell(Order::Mark(number))
        {
            return self.role_told(Err(line), c);
        }
        self.tell(Order::Signal { pid, role, signal, not_after, mark, until_taken: !self.answers }, c);
    }

    fn tell(&mut self, order: Order, c: &mut impl Container) {
        match c.tell(order) {
            Ok(None) => self.role_told(Ok(()), c),
            // How the child ends is the answer.
            Ok(teller) => self.teller = teller,
            Err(line) => self.role_told(Err(line), c),
        }
    }

    pub(super) fn role_told(&mut self, told: Result<(), String>, c: &mut impl Container) {
        let input = if told.is_ok() { RoleInput::Signalled } else { RoleInput::NotSignalled };
        self.handle(Input::Role(input), c);
        if let Err(line) = told {
            c.say(line);
        }
    }

    /// Checks that a frozen workload is stopped. With `stop`, stops the processes that are not.
    fn look_frozen(&mut self, stop: bool, c: &mut impl Container) {
        self.reap(c);
        let frozen = self.main.is_some() && c.frozen(stop);
        self.handle(Input::Role(RoleInput::Looked { frozen }), c);
    }

    fn start_hook(&mut self, hook: HookKind, told: ProgramEnv, not_after: Instant, c: &mut impl Container) {
        // afterFollow needs no fuse; fuses of a term that has just ended may still be set.
        let (role, fused) = match hook {
            HookKind::BeforeLead | HookKind::AfterLead => (Role::Leader, true),
            HookKind::BeforeFollow => (Role::Standby, true),
            HookKind::AfterFollow => (Role::Standby, false),
        };
        let kind = HelperKind::Hook(hook);
        let program = Program { helper: Some(kind), role: Some(role), told, not_after, fused };
        let input = match c.fork(program) {
            Ok(pid) => {
                self.helpers.push(Helper { kind, began: c.now(), pid, exit: None });
                RoleInput::HookForked { pid }
            }
            Err(why) => {
                c.say(format!("hooks.{} cannot be run: {}", hook.as_str(), describe(why)));
                RoleInput::HookNotForked
            }
        };
        self.handle(Input::Role(input), c);
    }

    /// Starts an exec probe.
    fn start_probe(&mut self, probe: ProbeKind, began: Instant, launch: Option<Launch>, c: &mut impl Container) {
        let role = if launch.is_some() { Role::Leader } else { Role::Standby };
        let kind = HelperKind::Probe(probe);
        match c.fork(Program::of(Some(kind), Some(role), launch)) {
            Ok(pid) => self.helpers.push(Helper { kind, began, pid, exit: None }),
            Err(why) => self.probe_not_run(probe, began, why, c),
        }
    }

    pub(super) fn probe_not_run(&mut self, kind: ProbeKind, began: Instant, why: NotSpawned, c: &mut impl Container) {
        let input = match why {
            NotSpawned::Unavailable { message } => {
                if self.unforked.say() {
                    c.say(format!("workload.{}.exec cannot be run now, which does not count: {message}", kind.as_str()));
                }
                Input::ProbeNotForked { kind, began }
            }
            NotSpawned::Late | NotSpawned::Failed { .. } => Input::Probed { kind, began, failure: Some(describe(why)) },
        };
        self.handle(input, c);
    }
}

/// Kills a process and its group, which may not exist yet.
fn kill_group(pid: i32, c: &mut impl Container) {
    c.kill(Target::Group(pid), Signal::KILL);
    c.kill(Target::Main(pid), Signal::KILL);
}
