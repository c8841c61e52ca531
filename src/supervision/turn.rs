//! The order of steps in init's loop (law 9): which inputs it reads, when it acts on them, and when it looks at the clock.
//!
//! The product, the simulation and the model all run this code, each over its own [`Container`]. So the order that is tested is
//! the order that ships.
//!
//! A turn has stages, in the order of [`Stage::next`]. Init reads one input, hands it to the [`Agent`], and carries out every
//! action that the agent returns. Only then does it read the next input.
//!
//! Three rules give the order:
//!
//! - The fuse is read first. If the kernel has killed the workload at H, no message that was read too late may undo that.
//! - The link is read before children are reaped, so that the end of a process is judged by what the elector had said before it.
//! - The link is read again after the clock and before the deadlines, so that an extension that waited there still counts (law 9).
//!
//! A hook or probe counts as ended only once its whole process group is gone (law 8: "with every hook and probe of the term dead").
//! Processes that have left the group are not found here, nor are those of a workload that was demoted and runs on.

use std::{collections::VecDeque, time::Duration};

use super::{Action, Agent, AgentConfig, Input, Launch, NotSpawned, ProgramEnv, RoleInput, Scan, Target, TermStatus};
use crate::{
    config::{Acknowledge, HookKind, ProbeKind, Signal},
    exit,
    link::{Exit, InitialState, ToElector, ToInit},
    notification::{Heard, Notification},
    role::Role,
    time::Instant,
};

/// Limit on the messages or signals that one stage reads, so that a flood does not keep init from the deadlines.
const MAX_INPUTS: u32 = 256;
/// Limit on the time for reaping, and for notifications. Reaping one child, or finding the sender of a notification, may be slow.
const MAX_TIME: Duration = Duration::from_millis(20);
/// Interval for polling the process groups of hooks and probes. Most processes left there become init's children, and their end
/// wakes init by SIGCHLD; this is for the others.
const GROUP_POLL: Duration = Duration::from_millis(50);

const SIGKILL: Signal = Signal(libc::SIGKILL);

const REFUSED: &str = "the workload runs as a user that tenure may not signal, so it dies only with the container: run both as the \
                       same user, or give the container the capability KILL";

/// Everything outside of the decisions: processes, descriptors, the clock. An implementation decides nothing and never blocks.
pub trait Container {
    /// CLOCK_BOOTTIME.
    fn now(&self) -> Instant;
    /// Tells whether a kernel fuse has fired since the last call.
    fn fuse_fired(&mut self) -> bool;
    /// The next message from the elector, if one waits.
    fn message(&mut self) -> Option<Result<ToInit, LinkBroken>>;
    /// The next signal to init, if one is pending.
    fn signal(&mut self) -> Option<i32>;
    /// Finds a dead child, without reaping it.
    fn dead(&mut self) -> Dead;
    /// Reaps this child. From then on the kernel may give its pid to another process.
    fn reap(&mut self, pid: i32) -> Option<Ended>;
    /// Tells once whether the workload's execve succeeded; none while that is not known.
    fn started(&mut self) -> Option<Started>;
    /// Tells whether this process group is empty.
    fn is_group_gone(&mut self, group: i32) -> bool;
    /// The next datagram on NOTIFY_SOCKET.
    fn heard(&mut self) -> Option<Heard>;
    /// Starts an elector with `initial` as the first message in its link; returns its pid.
    ///
    /// # Errors
    /// [`NotSpawned::Failed`] if no elector will ever start.
    fn start_elector(&mut self, initial: InitialState) -> Result<i32, NotSpawned>;
    /// Sends SIGKILL to the elector. The link stays open.
    fn kill_elector(&mut self);
    /// Closes the link.
    fn close_link(&mut self);
    /// Sends the elector a message, or queues it until the socket has room.
    fn send(&mut self, message: ToElector);
    /// Forks a program into a new process group; returns its pid.
    ///
    /// # Errors
    /// No child was made.
    fn fork(&mut self, program: Program) -> Result<i32, NotSpawned>;
    /// Tells the workload its role. If a forked child does that, returns the child's pid: how it ends is the answer.
    ///
    /// # Errors
    /// Why it was not told.
    fn tell(&mut self, order: Order) -> Result<Option<i32>, String>;
    /// Sends a signal; false on EPERM.
    fn kill(&mut self, target: Target, signal: Signal) -> bool;
    /// Sends SIGCONT, if the process is stopped.
    fn wake(&mut self, target: Target);
    /// Tells whether every process of a frozen workload is stopped and was never continued. With `stop`, stops the others.
    fn frozen(&mut self, stop: bool) -> bool;
    /// Scans for processes of the workload. With `kill`, kills them.
    fn scan(&mut self, kill: bool) -> Scan;
    /// `kill(-1, SIGKILL)`.
    fn kill_all(&mut self);
    /// Sets the kernel fuses to H, or removes them.
    fn follow_hard(&mut self, hard: Option<Instant>);
    /// Writes this to the page that the workload can read.
    fn publish(&mut self, status: TermStatus);
    /// Logs this as a warning.
    fn say(&mut self, line: String);
    /// Logs why init ends, and writes it to /dev/termination-log.
    fn last_words(&mut self, words: &str);
    /// Ends init at once, without cleaning up.
    fn die(&mut self);
}

/// The link is broken: see [`Input::LinkBroken`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkBroken;

/// The answer to a search for dead children.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dead {
    /// This child is dead.
    Process(i32),
    /// No child is dead.
    Nobody,
    /// Init has no child at all.
    Childless,
}

/// The result of a forked child's work: its execve, or the signal that it was forked to send.
pub type Started = Result<(), NotSpawned>;

/// The end of a child.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Its exit code or signal.
    pub exit: Exit,
    /// The result of its start; none if that is unknown, or [`Container::started`] has told it.
    pub started: Option<Started>,
}

/// A program that runs beside the workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HelperKind {
    /// A hook.
    Hook(HookKind),
    /// An exec probe.
    Probe(ProbeKind),
}

impl HelperKind {
    /// The key of its command in the configuration.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Hook(hook) => hook.as_str(),
            Self::Probe(probe) => probe.as_str(),
        }
    }
}

/// A program to fork.
#[derive(Clone, Debug)]
pub enum Program {
    /// The workload: see [`Action::Spawn`].
    Workload {
        /// Its role.
        role: Option<Role>,
        /// Its term.
        launch: Option<Launch>,
    },
    /// A hook or a probe.
    Helper {
        /// Which.
        kind: HelperKind,
        /// Its role.
        role: Role,
        /// The rest of its environment.
        told: ProgramEnv,
        /// The child checks the clock just before its execve, and gives up from this instant on (law 15).
        not_after: Instant,
        /// A helper of a leader: a kernel fuse kills it at H.
        fused: bool,
    },
}

/// A way to tell the workload its role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// A mark on NOTIFY_SOCKET: notifications that are read after it were sent after it.
    Mark(u64),
    /// A signal: see [`Action::TellRole`].
    Signal {
        /// Pid of the main process.
        pid: i32,
        /// The new role.
        role: Role,
        /// The signal that stands for it.
        signal: Signal,
        /// The signal is not sent from this instant on.
        not_after: Option<Instant>,
        /// A mark that the child sets just before the signal.
        mark: Option<u64>,
        /// The child waits until the workload has received the signal.
        until_taken: bool,
    },
    /// SIGCONT to all processes of a frozen workload.
    Resume {
        /// No process is continued from this instant on.
        not_after: Instant,
    },
}

/// The stages of a turn, each with one source of inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Stage {
    Fuse,
    Link,
    Signals,
    Children,
    Childless,
    Start,
    Notifications,
    Clock,
    LinkAgain,
    Deadlines,
}

impl Stage {
    /// The order of a turn. The clock is read before the link is drained: a deadline that passes while init drains waits for the
    /// next turn.
    const fn next(self) -> Option<Self> {
        Some(match self {
            Self::Fuse => Self::Link,
            Self::Link => Self::Signals,
            Self::Signals => Self::Children,
            Self::Children => Self::Childless,
            Self::Childless => Self::Start,
            Self::Start => Self::Notifications,
            Self::Notifications => Self::Clock,
            Self::Clock => Self::LinkAgain,
            Self::LinkAgain => Self::Deadlines,
            Self::Deadlines => return None,
        })
    }
}

/// The position within a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Progress {
    /// None at the end of a turn.
    stage: Option<Stage>,
    /// How many inputs this stage has read.
    taken: u32,
    /// Start of this stage.
    since: Instant,
    /// The time that [`Stage::Clock`] has read.
    now: Instant,
}

impl Progress {
    const NONE: Self = Self { stage: Some(Stage::Fuse), taken: 0, since: Instant::BOOT, now: Instant::BOOT };
}

/// A hook or a probe, until its whole process group is gone.
#[derive(Clone, Debug, Hash)]
struct Helper {
    kind: HelperKind,
    began: Instant,
    pid: i32,
    /// The end of its main process; others of its group may be left.
    exit: Option<Exit>,
}

/// Init's loop, apart from the world that it acts on.
#[derive(Clone, Debug, Hash)]
pub struct Turn {
    agent: Agent,
    progress: Progress,
    /// Pid of the current elector.
    elector: Option<i32>,
    /// Pids of electors that were killed and are not reaped yet.
    killed: Vec<i32>,
    /// The last logged reason why there is no elector, so that it is not logged every second. Empty once one has spoken.
    complaint: String,
    /// The workload's main process, until it is reaped.
    main: Option<i32>,
    /// [`REFUSED`] was logged.
    refused: bool,
    helpers: Vec<Helper>,
    /// The child that tells the workload its role, until it is reaped.
    teller: Option<i32>,
    /// `workload.acknowledge` is `notify`: the workload answers on NOTIFY_SOCKET.
    answers: bool,
    /// Number of the last mark, and whether it is still to be read. A role that is read before it was sent before the question.
    marks: u64,
    is_unmarked: bool,
    /// Notifications that were read and not handed to the agent yet.
    notifications: VecDeque<Notification>,
    /// Reaping ran out of time. No further SIGCHLD may come for the rest.
    more_to_reap: bool,
    /// Init had no child when it last reaped; and whether that proves the workload's end.
    is_childless: bool,
    childless_is_proof: bool,
    over: Option<u8>,
}

impl Turn {
    /// The state at the start of init. Marks are numbered from `marks` on, which is random: anybody can send a mark, so none
    /// should be guessed.
    #[must_use]
    pub fn new(config: AgentConfig, marks: u64) -> Self {
        let (led, pid1) = (config.config.lease.enabled, config.pid1);
        Self {
            answers: config.config.workload.acknowledge == Some(Acknowledge::Notify),
            agent: Agent::new(config),
            progress: Progress::NONE,
            elector: None,
            killed: Vec::new(),
            complaint: String::new(),
            main: None,
            refused: false,
            helpers: Vec::new(),
            teller: None,
            marks,
            is_unmarked: false,
            notifications: VecDeque::new(),
            more_to_reap: false,
            is_childless: false,
            childless_is_proof: !led && !pid1,
            over: None,
        }
    }

    /// The agent, which decides.
    #[must_use]
    pub const fn agent(&self) -> &Agent {
        &self.agent
    }

    /// The action that the next [`Self::step`] carries out, if there is one.
    #[must_use]
    pub fn next_action(&self) -> Option<&Action> {
        self.agent.next_action()
    }

    /// Tells whether a turn has begun and is not over.
    #[must_use]
    pub fn is_under_way(&self) -> bool {
        self.progress != Progress::NONE || self.next_action().is_some()
    }

    /// Returns whether the link was drained, and the deadlines come next.
    #[must_use]
    pub const fn is_drained(&self) -> bool {
        matches!(self.progress.stage, Some(Stage::Deadlines))
    }

    /// Init's exit code, once it is over.
    #[must_use]
    pub const fn over(&self) -> Option<u8> {
        self.over
    }

    /// Time of the next turn, if no input arrives before.
    #[must_use]
    pub fn due(&self, now: Instant) -> Option<Instant> {
        let is_leaving = self.helpers.iter().any(|helper| helper.exit.is_some());
        let again = is_leaving.then(|| now + GROUP_POLL);
        [self.agent.poll_timeout(), again, self.more_to_reap.then_some(now)].into_iter().flatten().min()
    }

    /// Tells whether to read NOTIFY_SOCKET. Not while a child still tells the workload its role: an answer could be read before
    /// it is known that the question was asked.
    #[must_use]
    pub const fn listens(&self) -> bool {
        self.main.is_some() && (self.teller.is_none() || self.is_unmarked || !self.answers)
    }

    /// Tells whether this hook, or a process that it left in its group, still runs.
    #[must_use]
    pub fn runs(&self, hook: HookKind) -> bool {
        self.helpers.iter().any(|helper| helper.kind == HelperKind::Hook(hook))
    }

    /// Runs a whole turn.
    pub fn run(&mut self, c: &mut impl Container) {
        while self.step(c) {}
    }

    /// Carries out one action, or reads one input. False at the end of a turn. The model puts faults between steps.
    pub fn step(&mut self, c: &mut impl Container) -> bool {
        if self.over.is_some() {
            return false;
        }
        if self.carry_out(c) {
            return true;
        }
        while let Some(stage) = self.progress.stage {
            let is_taken = self.take_in(stage, c);
            self.progress.taken += 1;
            if !(is_taken && self.may_take_more(stage, c)) {
                self.progress = Progress { stage: stage.next(), taken: 0, since: c.now(), now: self.progress.now };
            }
            // Init may be stopped just before it reads the clock, and just before it acts on deadlines.
            if is_taken || matches!(self.progress.stage, Some(Stage::Clock | Stage::Deadlines)) {
                return true;
            }
        }
        self.progress = Progress::NONE;
        false
    }

    /// Reads one input of this stage and hands it to the agent; false if there is none.
    fn take_in(&mut self, stage: Stage, c: &mut impl Container) -> bool {
        match stage {
            Stage::Fuse => self.check_fuse(c),
            Stage::Link | Stage::LinkAgain => {
                let taken = self.take_message(c);
                if taken == Some(false) {
                    self.progress.taken = MAX_INPUTS;
                }
                taken.is_some()
            }
            Stage::Signals => self.take_signal(c),
            Stage::Children => self.reap(c),
            Stage::Childless => {
                let is_proof = self.childless_is_proof && self.main.is_none() && std::mem::take(&mut self.is_childless);
                is_proof && self.handle(Input::Childless, c)
            }
            Stage::Start => c.started().is_some_and(|started| self.main_started(started, c)),
            Stage::Notifications => self.take_notification(c),
            Stage::Clock => {
                self.progress.now = c.now();
                false
            }
            Stage::Deadlines => {
                let now = self.progress.now;
                let is_due = self.agent.poll_timeout().is_some_and(|at| at <= now);
                if is_due {
                    self.agent.handle_timeout(now);
                }
                is_due
            }
        }
    }

    /// Tells whether this stage, which has just read an input, may read another in this turn.
    fn may_take_more(&self, stage: Stage, c: &impl Container) -> bool {
        match stage {
            Stage::Link | Stage::LinkAgain | Stage::Signals => self.progress.taken < MAX_INPUTS,
            Stage::Notifications => !self.notifications.is_empty() || c.now() < self.progress.since + MAX_TIME,
            Stage::Fuse | Stage::Children | Stage::Childless | Stage::Start | Stage::Clock | Stage::Deadlines => false,
        }
    }

    /// Hands an input to the agent. Returns true, for callers that report whether there was one.
    fn handle(&mut self, input: Input, c: &impl Container) -> bool {
        self.agent.handle(input, c.now());
        true
    }

    fn check_fuse(&mut self, c: &mut impl Container) -> bool {
        c.fuse_fired() && self.handle(Input::FuseFired, c)
    }

    /// Reads one message from the link; none if none waits. False if the link is broken.
    fn take_message(&mut self, c: &mut impl Container) -> Option<bool> {
        let message = c.message()?;
        let is_open = message.is_ok();
        let input = match message {
            Ok(message) => {
                self.complaint.clear();
                Input::Told(message)
            }
            Err(LinkBroken) => Input::LinkBroken,
        };
        self.handle(input, c);
        Some(is_open)
    }

    /// Reads all messages from the link before any action is carried out. Acts on no deadline (law 9).
    fn drain(&mut self, c: &mut impl Container) {
        for _ in 0..MAX_INPUTS {
            if self.take_message(c) != Some(true) {
                return;
            }
        }
    }

    fn take_signal(&mut self, c: &mut impl Container) -> bool {
        match c.signal() {
            None => false,
            Some(libc::SIGCHLD) if self.agent.is_frozen() => self.handle(Input::Role(RoleInput::Continued), c),
            Some(libc::SIGCHLD) => true,
            Some(signal) => self.handle(Input::Signal(signal), c),
        }
    }

    fn main_started(&mut self, started: Started, c: &impl Container) -> bool {
        self.handle(started.map_or_else(Input::NotSpawned, |()| Input::Spawned), c)
    }

    fn take_notification(&mut self, c: &mut impl Container) -> bool {
        if self.notifications.is_empty() {
            match Some(()).filter(|()| self.listens()).and_then(|()| c.heard()) {
                None => return false,
                Some(Heard::Said(said)) => self.notifications.extend(said),
                Some(Heard::Marked(number)) => self.is_unmarked &= number != self.marks,
            }
        }
        match self.notifications.pop_front() {
            Some(Notification::Role(_)) if self.is_unmarked => {}
            Some(Notification::Role(role)) => drop(self.handle(Input::Role(RoleInput::Notified(role)), c)),
            Some(said) => drop(self.handle(Input::Notified(said), c)),
            None => {}
        }
        true
    }
}

/// Reaping.
impl Turn {
    /// Reaps dead children and tells the agent. The agent's actions are carried out afterwards. True if anything has ended.
    fn reap(&mut self, c: &mut impl Container) -> bool {
        let (mut any, enough) = (false, c.now() + MAX_TIME);
        self.more_to_reap = loop {
            let dead = c.dead();
            self.is_childless = dead == Dead::Childless;
            match dead {
                Dead::Process(pid) if self.reap_one(pid, c) => any = true,
                Dead::Process(_) | Dead::Nobody | Dead::Childless => break false,
            }
            if c.now() >= enough {
                break true;
            }
        };
        self.end_helpers(c) || any
    }

    fn reap_one(&mut self, pid: i32, c: &mut impl Container) -> bool {
        let helper = self.helpers.iter().position(|helper| helper.pid == pid && helper.exit.is_none());
        if helper.is_some() {
            // While the pid still names the group. If others of the group may not be killed, the hook or probe does not end.
            c.kill(Target::Group(pid), SIGKILL);
        }
        let Some(ended) = c.reap(pid) else { return false };
        if self.elector == Some(pid) {
            self.drain(c);
            self.elector = None;
            c.close_link();
            self.elector_ended(ended, c);
        } else if let Some(index) = self.killed.iter().position(|killed| *killed == pid) {
            self.killed.swap_remove(index);
            // If it was stuck in the kernel for long, its successor runs already.
            if self.elector.is_none() {
                self.elector_ended(ended, c);
            }
        } else if let Some(helper) = helper.and_then(|index| self.helpers.get_mut(index)) {
            helper.exit = Some(ended.exit);
            if let (HelperKind::Hook(hook), Some(Err(why))) = (helper.kind, ended.started) {
                c.say(format!("hooks.{} cannot be run: {}", hook.as_str(), describe(why)));
            }
        } else {
            self.process_ended(pid, ended, c);
        }
        true
    }

    fn elector_ended(&mut self, Ended { exit, started }: Ended, c: &mut impl Container) {
        self.handle(Input::ElectorEnded, c);
        let how = if let Some(Err(why)) = started { describe(why) } else { exit.to_string() };
        self.complain(format!("the elector ended: {how}"), c);
    }

    /// Logs why there is no elector. Once for each reason, because init tries again every second.
    fn complain(&mut self, line: String, c: &mut impl Container) {
        if line != self.complaint {
            self.complaint.clone_from(&line);
            c.say(line);
        }
    }

    /// Hands a child's report to the agent before the child's end.
    fn process_ended(&mut self, pid: i32, Ended { exit, started }: Ended, c: &mut impl Container) {
        if self.teller.take_if(|teller| *teller == pid).is_some() {
            let told = match started {
                Some(Ok(())) if exit == Exit::Code(0) => Ok(()),
                Some(Err(NotSpawned::Late)) => Err("it did not handle the signal in time".into()),
                Some(Err(why)) => Err(describe(why)),
                Some(Ok(())) | None => Err("it may have been told, or not".into()),
            };
            self.role_told(told.map_err(|why| format!("the workload was not told its role: {why}")), c);
        } else if self.main == Some(pid) {
            // An end after S is none of the workload's own: S is looked at as for any deadline (law 9).
            let now = c.now();
            self.drain(c);
            if let Some(started) = started {
                self.main_started(started, c);
            }
            self.check_fuse(c);
            (self.main, self.teller, self.is_unmarked) = (None, None, false);
            self.notifications.clear();
            return self.agent.handle(Input::Reaped { pid, exit }, now);
        }
        self.handle(Input::Reaped { pid, exit }, c);
    }

    /// Reports each hook and probe whose process group is gone. True if there was one.
    fn end_helpers(&mut self, c: &mut impl Container) -> bool {
        let mut any = false;
        while let Some(over) = self.helpers.iter().position(|helper| helper.exit.is_some() && c.is_group_gone(helper.pid)) {
            let Helper { kind, began, pid, exit } = self.helpers.swap_remove(over);
            let (Some(exit), ended) = (exit, c.now()) else { continue };
            let input = match kind {
                HelperKind::Hook(hook) => {
                    c.send(ToElector::Hooked { hook, began, ended, exit });
                    Input::Reaped { pid, exit }
                }
                HelperKind::Probe(kind) => {
                    Input::Probed { kind, began, failure: (exit != Exit::Code(0)).then(|| exit.to_string()) }
                }
            };
            any = self.handle(input, c);
        }
        any
    }
}

/// Actions.
impl Turn {
    /// Carries out the next action, if there is one.
    ///
    /// Before it, sets the fuses to H, because the action may start, promote or acknowledge something that relies on them.
    /// Removes them only once no action is left. Then writes the page, so that the workload can read the end of its lead before
    /// the stop signal.
    fn carry_out(&mut self, c: &mut impl Container) -> bool {
        let hard = self.agent.hard();
        if hard.is_some() {
            c.follow_hard(hard);
        }
        c.publish(self.agent.term_status());
        let Some(action) = self.agent.poll_action() else {
            if hard.is_none() {
                c.follow_hard(None);
            }
            return false;
        };
        self.act(action, c);
        true
    }

    fn act(&mut self, action: Action, c: &mut impl Container) {
        match action {
            Action::StartElector => self.start_elector(c),
            Action::KillElector => self.kill_elector(c),
            Action::Tell(message) => c.send(message),
            Action::Spawn { role, launch } => self.spawn(role, launch, c),
            Action::Signal { target, signal } if self.is_main(target) => {
                if !c.kill(target, signal) && !std::mem::replace(&mut self.refused, true) {
                    c.say(REFUSED.into());
                }
            }
            Action::Continue { target } if self.is_main(target) => c.wake(target),
            Action::KillHook { pid } if self.helpers.iter().any(|helper| helper.pid == pid) => {
                c.kill(Target::Group(pid), SIGKILL);
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
                    c.kill(Target::Main(teller), SIGKILL);
                }
            }
            Action::Hook { hook, told, not_after } => self.start_hook(hook, told, not_after, c),
            Action::Probe { kind, began, launch } => self.start_probe(kind, began, launch, c),
            Action::KillProbe(kind) => {
                for helper in self.helpers.iter().filter(|helper| helper.kind == HelperKind::Probe(kind)) {
                    // The pid cannot be reused while its group has a member.
                    c.kill(Target::Group(helper.pid), SIGKILL);
                }
            }
            Action::MarkNotify => {
                let mark = self.next_mark();
                self.tell(Order::Mark(mark), c);
            }
            Action::Prove => {
                self.reap(c);
                self.scanned(c.scan(false), c);
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
            Action::TerminationMessage(words) => c.last_words(&words),
            Action::Exit(code) => self.over = Some(code),
        }
    }

    fn is_main(&self, target: Target) -> bool {
        let (Target::Main(pid) | Target::Group(pid)) = target;
        self.main == Some(pid)
    }

    fn start_elector(&mut self, c: &mut impl Container) {
        let input = match c.start_elector(self.agent.initial_state()) {
            Ok(pid) => {
                self.elector = Some(pid);
                Input::ElectorStarted
            }
            Err(NotSpawned::Failed { code, message }) => {
                self.handle(Input::Told(ToInit::Failed { code, message }), c);
                Input::ElectorNotStarted
            }
            Err(why) => {
                self.complain(describe(why), c);
                Input::ElectorNotStarted
            }
        };
        self.handle(input, c);
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
        let input = match c.fork(Program::Workload { role, launch }) {
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
        let running = self.helpers.iter().filter(|helper| helper.exit.is_none()).map(|helper| helper.pid);
        let mut killed = is_all_killed;
        let last = self.main.filter(|_| self.agent.is_frozen());
        for pid in running.chain(self.main.filter(|_| last.is_none())) {
            c.kill(Target::Group(pid), SIGKILL);
            c.kill(Target::Main(pid), SIGKILL);
            killed = true;
        }
        self.reap(c);
        let scan = c.scan(true);
        if let Some(main) = last.filter(|main| self.main == Some(*main)) {
            c.kill(Target::Group(main), SIGKILL);
            c.kill(Target::Main(main), SIGKILL);
            killed = true;
        }
        self.scanned(Scan { killed: scan.killed || killed, ..scan }, c);
    }

    fn scanned(&mut self, scan: Scan, c: &impl Container) {
        self.handle(Input::Scanned(scan), c);
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

    fn role_told(&mut self, told: Result<(), String>, c: &mut impl Container) {
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
        let input = match c.fork(Program::Helper { kind, role, told, not_after, fused }) {
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
        let (role, fused) = if launch.is_some() { (Role::Leader, true) } else { (Role::Standby, false) };
        let not_after = launch.as_ref().map_or(Instant::NEVER, |launch| launch.not_after);
        let told = ProgramEnv { info: launch.and_then(|launch| launch.info), ..ProgramEnv::default() };
        let kind = HelperKind::Probe(probe);
        match c.fork(Program::Helper { kind, role, told, not_after, fused }) {
            Ok(pid) => self.helpers.push(Helper { kind, began, pid, exit: None }),
            Err(why) => drop(self.handle(Input::Probed { kind: probe, began, failure: Some(describe(why)) }, c)),
        }
    }
}

/// Describes why nothing was spawned.
fn describe(why: NotSpawned) -> String {
    match why {
        NotSpawned::Late => "its time had passed".into(),
        NotSpawned::Failed { message, .. } | NotSpawned::Unavailable { message } => message,
    }
}

#[cfg(test)]
mod tests;
