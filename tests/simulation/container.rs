//! A container: init with the shipping turn, its elector, and the processes under it.

use std::{collections::VecDeque, rc::Rc};

use tenure::{
    link::{Term, ToElector},
    notification::Notification,
    supervision::{Action, TermStatus, Turn},
    time::EXACT,
};

use tenure_world::agent;

use crate::{
    alarm::{Alarm, Overdue},
    clock::{Clock, MS, Ns, S, US},
    elector::ElectorProcess,
    engine::{Child, Engine, Event, Who},
    plan::Node,
    tree::{Outcome, Tree},
};

mod frozen;
mod fuse;
mod init;
mod stops;
mod workload;

use fuse::Fuse;
use init::Init;
pub use stops::Moment;

/// How long a step of init may take.
const STEP: Ns = 20 * US;

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
    /// None while init takes a step.
    turn: Option<Turn>,
    /// Init is stopped.
    frozen: bool,
    /// Until when.
    frozen_until: Ns,
    /// When it last went on after that.
    went_on: Ns,
    /// Init will be stopped at this moment, for this long.
    freeze_before: Option<(Moment, Ns)>,
    /// The elector dies beside it before the step of this number.
    pub bereft_before: Option<u32>,
    /// Init has just gone on: whatever it started continues before it takes in the next input.
    resumes: bool,
    /// The whole node is suspended until then.
    suspended_until: Ns,
    fuse: Fuse,
    /// The term in which init has heard that the Lease is about to be released.
    pub void: Option<Term>,
    /// The term's page, which the workload may read.
    page: TermStatus,
    alarm: Alarm,
    overdue: Overdue,
    signals: VecDeque<i32>,
    /// Killed electors, and whether they can be reaped.
    undead: Vec<(i32, bool)>,
    /// The workload's main process, until it is reaped.
    main: Option<i32>,
    /// The outcome of its start, once that is known and until init hears of it.
    outcome: Option<Outcome>,
    /// The last main process never ran, because its term was over before.
    never_ran: bool,
    /// The child that tells the workload its role, and the mark that it sets before.
    teller: Option<(i32, Option<u64>)>,
    /// A mark was set for the next question.
    is_marked: bool,
    /// When the main process reported that it leads, since it was last told so.
    answered: Option<Ns>,
    /// Hooks and probes, each until all of its group is gone.
    helpers: Vec<i32>,
    /// The datagrams that wait in NOTIFY_SOCKET.
    words: VecDeque<(i32, Word)>,
    /// The token of the last Lead.
    token: u64,
}

/// A datagram on NOTIFY_SOCKET.
#[derive(Clone, Debug)]
enum Word {
    Said(Notification),
    Mark(u64),
}

impl Container {
    /// A container that starts now.
    pub fn start(who: Who, node: Node, e: &mut Engine) -> Self {
        let identity: Rc<str> = format!("{}_{who}", node.name).into();
        e.note(who, || "starts".into());
        let able = if node.is_quick() { e.now + node.startup + S } else { Ns::MAX };
        e.judge.begins(who, &identity, &node, able);
        let (config, marks) = (agent(&node.config, &node.preset, &identity), e.rng.u64(..));
        let mut container = Self {
            who,
            identity,
            node,
            elector: None,
            tree: Tree::new(who),
            over: false,
            turn: Some(Turn::new(config, marks)),
            frozen: false,
            frozen_until: 0,
            went_on: 0,
            freeze_before: None,
            bereft_before: None,
            resumes: false,
            suspended_until: 0,
            fuse: Fuse::new(),
            void: None,
            page: TermStatus::NONE,
            alarm: Alarm::off(),
            overdue: Overdue::default(),
            signals: VecDeque::new(),
            undead: Vec::new(),
            main: None,
            outcome: None,
            never_ran: false,
            teller: None,
            is_marked: false,
            answered: None,
            helpers: Vec::new(),
            words: VecDeque::new(),
            token: 0,
        };
        container.wake_init(0, e);
        container
    }

    /// The memory of this container, restored as the replica of this number, if nothing is under way in it but a workload that leads.
    pub fn restored(&self, replica: usize, e: &mut Engine) -> Option<Self> {
        let who = Who { replica, life: 1 };
        let rests = self.turn.as_ref().is_some_and(|turn| !turn.is_under_way());
        let quiet = rests && !self.over && !self.frozen && e.now >= self.suspended_until && self.undead.is_empty();
        let alone = self.outcome.is_none() && self.teller.is_none() && self.helpers.is_empty();
        let elector = self.elector.as_ref()?.restored(who)?;
        let tree = self.tree.restored(who)?;
        if !(quiet && alone && e.judge.runs_for(self.who)) {
            return None;
        }
        let mut twin = Self { who, tree, alarm: Alarm::off(), fuse: Fuse::new(), elector: Some(elector), ..self.clone() };
        twin.wake_init(0, e);
        twin.arm_fuse(self.fuse.hard(), e);
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

    /// Returns whether this elector of it can hear from the server.
    pub fn hears(&self, child: Child) -> bool {
        !self.over && self.elector.as_ref().is_some_and(|elector| elector.child == child && !elector.is_dead)
    }

    /// Init's turn, or the rest of one, if it is due to go on now.
    pub fn turn(&mut self, e: &mut Engine) {
        if self.over {
            return;
        }
        match self.alarm.comes(e.now) {
            Ok(true) if !self.frozen => {}
            Ok(_) => return,
            Err(later) => return e.at(later, Event::Init(self.who)),
        }
        let Some(mut turn) = self.turn.take() else { return };
        let until = self.take_steps(&mut turn, e);
        if let Some(code) = turn.over() {
            self.end(&format!("init exits with {code}"), e);
        }
        self.turn = Some(turn);
        if let Some(span) = until.filter(|_| !self.over) {
            self.wake_init(span, e);
        }
    }

    /// Takes steps to the end of the turn, or until something stops init in the middle of it, or takes a moment. Returns after how
    /// long it goes on, unless it is stopped.
    fn take_steps(&mut self, turn: &mut Turn, e: &mut Engine) -> Option<Ns> {
        while !self.over {
            let action = turn.next_action();
            if self.is_to_freeze_before(turn, action) {
                self.freeze(Moment::Now, self.freeze_before.map_or(0, |(_, span)| span), e);
                return None;
            }
            // What follows takes time, during which whatever it started continues.
            if action.is_none() && std::mem::take(&mut self.resumes) {
                return Some(e.latency(self.node.wake));
            }
            let (ends, leads) = (action.is_some_and(|action| self.ends_a_lead(action)), turn.agent().leads());
            let is_action = action.is_some();
            self.may_lose_elector(e);
            let goes_on = turn.step(&mut Init { container: self, e });
            if is_action {
                self.read(ends, leads, e);
            }
            if self.frozen {
                return None;
            }
            if !goes_on {
                return self.rests(turn, e);
            }
            if e.rng.u8(..) < 64 {
                return Some(e.between(1, STEP));
            }
        }
        None
    }

    /// After how long the next turn begins by itself.
    fn rests(&mut self, turn: &Turn, e: &mut Engine) -> Option<Ns> {
        // What came in the middle of the turn, too late for it, wakes init again.
        let told = self.elector.as_ref().is_some_and(|elector| !elector.to_init.is_empty());
        if told || !self.signals.is_empty() || turn.listens() && !self.words.is_empty() {
            return Some(e.latency(self.node.wake));
        }
        let now = self.clock().boot(e.now);
        let due = turn.due(now);
        let wrong = || format!("{}: init ends turn after turn, and does not act on {due:?}, which has passed", self.who);
        e.judge.judges("init acts on what is due", self.overdue.stays(due, now), wrong);
        let due = due?;
        // What is due already needs no wake-up.
        let latency = if due <= now { 0 } else { e.latency(self.node.wake) };
        Some(self.clock().wakes(due, EXACT, e.now).saturating_sub(e.now).saturating_add(latency))
    }

    fn is_to_freeze_before(&mut self, turn: &Turn, action: Option<&Action>) -> bool {
        match &mut self.freeze_before {
            None => false,
            Some((Moment::Spawn, _)) => matches!(action, Some(Action::Spawn { .. } | Action::Resume { .. })),
            Some((moment, _)) => moment.comes_before_step(action.is_none() && turn.is_drained()),
        }
    }

    /// Returns whether this is the first word about the end of a lead, to the workload or to others.
    fn ends_a_lead(&self, action: &Action) -> bool {
        let stops = matches!(action, Action::Signal { signal, .. } if *signal == self.node.config.workload.stop.signal);
        let tells = matches!(action, Action::Tell(ToElector::Stopping { .. } | ToElector::Stopped { .. }));
        stops || tells || matches!(action, Action::TellRole { not_after: None, .. })
    }

    /// Checks that the page is taken back before the workload is told to stop, and before others are told of that (law 3).
    fn read(&self, ends: bool, leads: bool, e: &mut Engine) {
        let now = self.clock().boot(e.now);
        let is_wrong = ends && self.page.soft > now || !leads && self.page.hard > now;
        if ends || is_wrong {
            let wrong = || format!("{}: {:?} can be read when its lead ends", self.who, self.page);
            e.judge.judges("the page is taken back first", is_wrong, wrong);
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
        // The kernel closes init's sockets long before the last process is gone.
        e.after(0, Event::Disconnects(self.who));
        let news = e.latency(5 * MS);
        e.at(last + news, Event::Died(self.who));
    }
}
