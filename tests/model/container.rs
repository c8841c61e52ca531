//! A container: init with the shipping turn, its elector, and the processes under it.
//!
//! Every step takes in one input or carries out one action, so that a fault can come between any two.

use std::{collections::VecDeque, time::Duration};

use tenure::{
    link::ToInit,
    notification::Notification,
    supervision::{Action, Turn},
    time::Instant,
};
use tenure_world::{Choice, Due, Observer, Scene, Who, Wrong, agent};

use crate::{
    clock::Ns,
    digest::Sealed,
    elector::ElectorProcess,
    family::Setup,
    judge::Judge,
    tree::{Killer, Outcome, Part, Step, Tree},
};

mod init;

use init::Init;

/// From one look at what is frozen to the next.
const LOOKING: Duration = Duration::from_millis(200);

/// Everything that a step may access outside its container.
pub struct Around<'a> {
    /// Real time.
    pub now: Ns,
    /// The container's setup.
    pub setup: &'a Setup,
    /// The properties that must hold.
    pub judge: &'a mut Judge,
}

impl Around<'_> {
    /// Returns the node's BOOTTIME.
    pub fn boot(&self) -> Instant {
        self.setup.clock.boot(self.now)
    }
}

/// Nothing is left open: the faults are the choices.
impl Choice for Around<'_> {
    fn up_to(&mut self, most: u32) -> u32 {
        most
    }

    fn chance(&mut self, share: f64) -> bool {
        share >= 1.0
    }

    fn coin(&mut self) -> bool {
        false
    }

    fn spread(&mut self, _: Ns, _: Ns) -> Ns {
        0
    }
}

impl Scene for Around<'_> {
    const EXACT: bool = true;
    type Judge = Judge;

    fn now(&self) -> Ns {
        self.now
    }

    fn schedule(&mut self, _: Ns, _: Due) {}

    fn note(&mut self, _: Who, _: impl FnOnce() -> String) {}

    fn judge(&mut self) -> &mut Judge {
        self.judge
    }
}

/// A datagram on NOTIFY_SOCKET.
#[derive(Clone, Debug, Hash)]
pub enum Word {
    /// The workload said it.
    Said(Notification),
    /// A mark: the words before it were said before a question.
    Mark(u64),
}

#[derive(Clone, Debug, Hash)]
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
    turn: Sealed<Turn>,
    /// Killed electors that wait to be reaped.
    undead: Vec<i32>,
    signals: VecDeque<i32>,
    /// The outcome of the workload's start, until init hears of it.
    spawned: Option<Outcome>,
    /// The workload's main process, until it is reaped.
    main: Option<i32>,
    /// The datagrams that wait in NOTIFY_SOCKET.
    pub words: VecDeque<Word>,
    /// The workload has said that it is not ready.
    pub unready: bool,
    /// The child that tells the workload its role, and the mark that it sets before.
    teller: Option<(i32, Option<u64>)>,
    /// The token of the last Lead.
    token: u64,
    /// The kernel kills what leads at H, whether or not init and elector run.
    pub has_fuse: bool,
    /// H, as known to the kernel.
    fuse: Option<Instant>,
    /// The fuse has fired, and init does not know yet.
    fired: bool,
}

impl Container {
    /// A container that starts now.
    pub fn start(who: Who, setup: &Setup) -> Self {
        Self {
            who,
            elector: None,
            tree: Tree::new(who),
            frozen: false,
            dawdles: false,
            over: Some(setup.starts).filter(|at| *at > 0 && who.life == 1),
            turn: Sealed::new(Turn::new(agent(&setup.config, &setup.preset, &who.to_string()), 0)),
            undead: Vec::new(),
            signals: VecDeque::new(),
            spawned: None,
            main: None,
            words: VecDeque::new(),
            unready: false,
            teller: None,
            token: 0,
            has_fuse: setup.fuse,
            fuse: None,
            fired: false,
        }
    }

    /// Returns whether nothing is under way in it but a workload that leads.
    pub fn rests(&self) -> bool {
        let waits = !self.turn.is_under_way() && self.signals.is_empty() && self.words.is_empty() && self.spawned.is_none();
        let alone = self.undead.is_empty() && self.teller.is_none();
        let steady = self.tree.restored(self.who).is_some();
        waits && alone && !self.frozen && steady && self.elector.as_ref().is_some_and(ElectorProcess::rests)
    }

    /// Its memory, restored elsewhere: its connections are broken.
    pub fn restored(&self, who: Who) -> Self {
        let tree = self.tree.restored(who).expect("it rests");
        Self { who, tree, elector: self.elector.as_ref().map(ElectorProcess::restored), ..self.clone() }
    }

    /// SIGTERM, or another signal, to init.
    pub fn signal(&mut self, signal: i32) {
        self.signals.push_back(signal);
    }

    /// Returns whether the elector stands in for an init that stops now. If not, the law does not cover that stop.
    pub fn is_guarded(&self) -> bool {
        self.elector.as_ref().is_some_and(ElectorProcess::guards)
    }

    pub fn init_has_work(&self, boot: Instant) -> bool {
        !self.frozen && self.over.is_none() && self.waits(&self.turn, boot)
    }

    fn waits(&self, turn: &Turn, boot: Instant) -> bool {
        let link = self.elector.as_ref().is_some_and(|elector| !elector.to_init.is_empty() || elector.is_dead);
        let children = self.fired || !self.undead.is_empty() || self.tree.zombie().is_some() || self.spawned.is_some();
        let words = turn.listens() && !self.words.is_empty();
        let due = turn.due(boot).is_some_and(|at| at <= boot);
        turn.next_action().is_some() || link || children || !self.signals.is_empty() || words || due
    }

    /// Init takes its next step.
    pub fn step_init(&mut self, around: &mut Around<'_>) {
        let mut turn = self.turn.clone();
        turn.change(|turn| self.step(turn, around));
        self.turn = turn;
        if self.turn.over().is_some() && self.over.is_none() {
            self.end(around);
        }
    }

    /// Log lines are no steps, nor is what is left of a turn and finds nothing.
    fn step(&mut self, turn: &mut Turn, around: &mut Around<'_>) {
        let is_first = !turn.is_under_way();
        let has_stepped = turn.step(&mut Init { container: self, around });
        if is_first && !has_stepped {
            around.judge.fail(Wrong::Spins, format!("init of {} does nothing at its time", self.who));
        }
        let says = |turn: &Turn| matches!(turn.next_action(), Some(Action::Warn(_) | Action::TerminationMessage(..)));
        while (says(turn) || !self.waits(turn, around.boot())) && turn.step(&mut Init { container: self, around }) {}
    }

    /// When init wakes by itself, unless it is stopped.
    pub fn init_timeout(&self, setup: &Setup) -> Option<Ns> {
        if self.over.is_some() {
            return None;
        }
        self.turn.agent().poll_timeout().map(|at| setup.clock.real(at))
    }

    /// The instant past which nothing of a leader is left, whatever is stopped: E as init knows it, or will know it from the first
    /// message queued for it. The next one is sent only once it has answered that (law 10).
    pub fn known_end(&self, setup: &Setup) -> Option<Instant> {
        let extension = |message: &ToInit| {
            if let ToInit::Extend { confirmed, .. } = message { Some(confirmed.deadlines.end) } else { None }
        };
        let waiting = self.elector.as_ref().and_then(|elector| elector.to_init.iter().find_map(extension));
        let end = self.turn.agent().hard()? + setup.config.workload.stop.kill_margin;
        Some(waiting.map_or(end, |waiting| waiting.max(end)))
    }

    /// Lets one process of the tree take its step.
    pub fn step_tree(&mut self, around: &mut Around<'_>) {
        match self.tree.step(around.setup.clock, &around.setup.habits(), around) {
            Some(Step::Execs(pid, outcome)) => {
                // The child that tells the workload its role sets the mark before.
                if let Some((_, Some(mark))) = self.teller.filter(|(teller, _)| *teller == pid) {
                    self.words.push_back(Word::Mark(mark));
                }
                if outcome == Some(Ok(())) && around.setup.config.workload.readiness.notify {
                    self.says(Notification::Ready);
                }
                self.spawned = outcome.or_else(|| self.spawned.take());
            }
            Some(Step::Obeys(_, role)) => self.says(Notification::Role(role)),
            Some(Step::Ends) | None => {}
        }
    }

    /// When the fuse fires.
    pub fn fuse_timeout(&self, setup: &Setup) -> Option<Ns> {
        self.fuse.filter(|_| self.over.is_none()).map(|hard| setup.clock.real(hard))
    }

    /// Fires it, if it is due.
    pub fn fire_fuse(&mut self, around: &mut Around<'_>) {
        if self.fuse.take_if(|hard| *hard <= around.boot()).is_some() {
            self.fired = true;
            self.tree.kill(Killer::All, &around.setup.habits(), around);
        }
    }

    /// Somebody continues a part of a frozen workload. Init hears at once of the main process, and finds the other when it looks.
    pub fn stir(&mut self, part: Part, around: &Around<'_>) {
        let Some((pid, _)) = self.tree.stopped(around.now).find(|(_, stopped)| *stopped == part) else { return };
        let is_main = part == Part::Main;
        let by = if is_main { around.now } else { around.setup.clock.real(around.boot() + LOOKING) };
        self.tree.stir(pid, Some(by).filter(|_| self.tree.is_seen()));
        if is_main && !around.setup.blind {
            self.signal(libc::SIGCHLD);
        }
    }

    /// Returns whether init, which is not stopped, must have found somebody.
    pub fn strays(&self, now: Ns) -> bool {
        !self.frozen && self.over.is_none() && self.tree.has_strays(now)
    }

    /// Time is about to pass: what init must have found by now has been killed, or runs as a leader.
    pub fn judge_strays(&mut self, around: &mut Around<'_>) {
        let token = self.turn.agent().leads().then_some(self.token);
        self.tree.judge_strays(token, around);
    }

    /// The workload says something.
    pub fn says(&mut self, said: Notification) {
        self.words.push_back(Word::Said(said));
    }

    /// The workload says whether it is ready.
    pub fn say_ready(&mut self, ready: bool) {
        self.unready = !ready;
        self.says(if ready { Notification::Ready } else { Notification::Reloading });
    }

    /// Init is gone, and the kernel kills the rest.
    pub fn end(&mut self, around: &mut Around<'_>) {
        self.elector = None;
        self.over = Some(self.tree.collapse(around));
    }
}
