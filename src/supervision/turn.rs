//! The order of steps in init's loop (law 9): which inputs it reads, when it acts on them, and when it looks at the clock.
//!
//! The product, the simulation and the model all run this code, each over its own [`Container`]. So the order that is tested is
//! the order that ships.
//!
//! A turn has stages, in the order of [`Progress::stage`]. Init reads one input, hands it to the [`Agent`], and carries out every
//! action that the agent returns. Only then does it read the next input.
//!
//! Three rules give the order:
//!
//! - The fuse is read first. If the kernel has killed the workload at H, no message that was read too late may undo that.
//! - The link is read before children are reaped, so that the end of a process is judged by what the elector had said before it.
//! - The link is read again after the clock and before the deadlines, so that an extension that waited there still counts (law 9).
//!
//! [`children`] reaps, [`actions`] carries out, and [`container`] is what both act on.

use std::{collections::VecDeque, time::Duration};

use super::{
    agent::{Agent, AgentConfig},
    interface::{Action, Input, RoleInput},
};
use crate::{
    config::{Acknowledge, HookKind},
    notification::{Heard, Notification},
    once::Once,
    time::Instant,
};

use children::Helper;
use container::{Container, HelperKind, LinkBroken};

mod actions;
mod children;
pub(crate) mod container;

/// Limit on the messages or signals that one stage reads, so that a flood does not keep init from the deadlines.
const MAX_INPUTS: u32 = 256;
/// Limit on the time for reaping, and for notifications. Reaping one child, or finding the sender of a notification, may be slow.
const MAX_TIME: Duration = Duration::from_millis(20);
/// Interval for polling the process groups of hooks and probes. Most processes left there become init's children, and their end
/// wakes init by SIGCHLD; this is for the others.
const GROUP_POLL: Duration = Duration::from_millis(50);

/// A part of a turn, with one source of inputs.
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
    Deadlines,
}

/// The position within a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Progress {
    /// How many stages are done.
    at: usize,
    /// How many inputs this stage has read.
    taken: u32,
    /// Start of this stage.
    since: Instant,
    /// The time that [`Stage::Clock`] has read.
    now: Instant,
}

impl Progress {
    const NONE: Self = Self { at: 0, taken: 0, since: Instant::BOOT, now: Instant::BOOT };

    /// The order of a turn; none at its end. The clock is read before the link is drained: a deadline that passes while init drains
    /// waits for the next turn.
    fn stage(self) -> Option<Stage> {
        use Stage::{Childless, Children, Clock, Deadlines, Fuse, Link, Notifications, Signals, Start};
        let order = [Fuse, Link, Signals, Children, Childless, Start, Notifications, Clock, Link, Deadlines];
        order.get(self.at).copied()
    }
}

/// What a look at the source of a stage has given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Taken {
    Nothing,
    /// An input, and more may wait.
    One,
    /// The only input of this stage in this turn, or the end of the link.
    Last,
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
    /// That the workload may not be signalled.
    refused: Once,
    /// The container ends with init.
    pid1: bool,
    /// That the system has no room for a probe.
    unforked: Once,
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
            refused: Once::NEW,
            pid1,
            unforked: Once::NEW,
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
    pub const fn agent(&self) -> &Agent {
        &self.agent
    }

    /// The action that the next [`Self::step`] carries out, if there is one.
    pub fn next_action(&self) -> Option<&Action> {
        self.agent.next_action()
    }

    /// Returns true if a turn has begun and is not over.
    pub fn is_under_way(&self) -> bool {
        self.progress != Progress::NONE || self.next_action().is_some()
    }

    /// Returns true if the link was drained, and the deadlines come next.
    pub fn is_drained(&self) -> bool {
        self.progress.stage() == Some(Stage::Deadlines)
    }

    /// Init's exit code, once it is over.
    pub const fn over(&self) -> Option<u8> {
        self.over
    }

    /// Time of the next turn, if no input arrives before.
    pub fn due(&self, now: Instant) -> Option<Instant> {
        let is_leaving = self.helpers.iter().any(|helper| helper.exit.is_some());
        let again = is_leaving.then(|| now + GROUP_POLL);
        [self.agent.poll_timeout(), again, self.more_to_reap.then_some(now)].into_iter().flatten().min()
    }

    /// Returns true if NOTIFY_SOCKET is to be read. Not while a child still tells the workload its role: an answer could be read before
    /// it is known that the question was asked.
    pub const fn listens(&self) -> bool {
        self.main.is_some() && (self.teller.is_none() || self.is_unmarked || !self.answers)
    }

    /// Returns true if this hook, or a process that it left in its group, still runs.
    pub fn runs(&self, hook: HookKind) -> bool {
        self.helpers.iter().any(|helper| helper.kind == HelperKind::Hook(hook))
    }

    /// Runs a whole turn.
    pub fn run(&mut self, c: &mut impl Container) {
        while self.step(c) {}
    }

    /// Carries out one action, or reads one input. Returns false at the end of a turn. The model puts faults between steps.
    pub fn step(&mut self, c: &mut impl Container) -> bool {
        if self.over.is_some() {
            return false;
        }
        if self.carry_out(c) {
            return true;
        }
        while let Some(stage) = self.progress.stage() {
            let taken = self.take_in(stage, c);
            self.progress.taken += 1;
            if !(taken == Taken::One && self.may_take_more(stage, c)) {
                self.progress = Progress { at: self.progress.at + 1, taken: 0, since: c.now(), ..self.progress };
            }
            // Init may be stopped just before it reads the clock, and just before it acts on deadlines.
            if taken != Taken::Nothing || matches!(self.progress.stage(), Some(Stage::Clock | Stage::Deadlines)) {
                return true;
            }
        }
        self.progress = Progress::NONE;
        false
    }

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

    /// Reads one input of this stage and hands it to the agent.
    fn take_in(&mut self, stage: Stage, c: &mut impl Container) -> Taken {
        let is_taken = match stage {
            Stage::Fuse => self.check_fuse(c),
            Stage::Link => return self.take_message(c),
            Stage::Signals => return self.take_signal(c),
            Stage::Children => self.reap(c),
            Stage::Childless => {
                let is_proof = self.childless_is_proof && self.main.is_none() && std::mem::take(&mut self.is_childless);
                if is_proof {
                    self.handle(Input::Childless, c);
                }
                is_proof
            }
            Stage::Start => match c.started() {
                Some(started) => {
                    self.main_started(started, c);
                    true
                }
                None => false,
            },
            Stage::Notifications => return self.take_notification(c),
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
        };
        if is_taken { Taken::Last } else { Taken::Nothing }
    }

    /// Returns true if this stage, which has just read an input, may read another in this turn.
    fn may_take_more(&self, stage: Stage, c: &impl Container) -> bool {
        if stage == Stage::Notifications {
            return !self.notifications.is_empty() || c.now() < self.progress.since + MAX_TIME;
        }
        self.progress.taken < MAX_INPUTS
    }

    fn handle(&mut self, input: Input, c: &impl Container) {
        self.agent.handle(input, c.now());
    }

    fn check_fuse(&mut self, c: &mut impl Container) -> bool {
        let has_fired = c.fuse_fired();
        if has_fired {
            self.handle(Input::FuseFired { left: c.lives() }, c);
        }
        has_fired
    }

    /// Reads one message from the link.
    fn take_message(&mut self, c: &mut impl Container) -> Taken {
        match c.message() {
            None => Taken::Nothing,
            Some(Ok(message)) => {
                self.complaint.clear();
                self.handle(Input::Told(message), c);
                Taken::One
            }
            Some(Err(LinkBroken)) => {
                self.handle(Input::LinkBroken, c);
                Taken::Last
            }
        }
    }

    /// Reads all messages from the link before any action is carried out. Acts on no deadline (law 9).
    fn drain(&mut self, c: &mut impl Container) {
        for _ in 0..MAX_INPUTS {
            if self.take_message(c) != Taken::One {
                return;
            }
        }
    }

    fn take_signal(&mut self, c: &mut impl Container) -> Taken {
        let Some(signal) = c.signal() else { return Taken::Nothing };
        if signal != libc::SIGCHLD {
            self.handle(Input::Signal(signal), c);
        } else if self.agent.is_frozen() {
            self.handle(Input::Role(RoleInput::Continued), c);
        }
        Taken::One
    }

    fn take_notification(&mut self, c: &mut impl Container) -> Taken {
        if self.notifications.is_empty() {
            let heard = if self.listens() { c.heard() } else { None };
            match heard {
                None => return Taken::Nothing,
                Some(Heard::Said(said)) => self.notifications.extend(said),
                Some(Heard::Marked(number)) => self.is_unmarked &= number != self.marks,
            }
        }
        match self.notifications.pop_front() {
            Some(Notification::Role(_)) if self.is_unmarked => {}
            Some(Notification::Role(role)) => self.handle(Input::Role(RoleInput::Notified(role)), c),
            Some(said) => self.handle(Input::Notified(said), c),
            None => {}
        }
        Taken::One
    }
}

#[cfg(test)]
mod tests;
