//! The plan that a seed determines: the nodes, their settings and habits, and which faults there are.
//!
//! A run has only some kinds of faults, some of them often, so that each gets its turn without interference from the rest.

use std::{rc::Rc, time::Duration};

use fastrand::Rng;
use tenure::{
    config::{
        self, Acknowledge, AfterCrash, Candidate, Config, Drift, Hook, OnExit, OnFailure, OnLoss, Preset, Probe, Release, Runs,
        Signal, Task, TaskConfig, Trigger,
    },
    law::Timing,
};
use tenure_world::engine::spread;

use crate::{
    clock::{Clock, MS, Ns, S, nanos},
    engine::{Engine, Event, Who},
    nemesis::{Fault, Hang},
    peer,
    register::Start,
    server::{EPOCH, WatchHabits},
    tree::Habits,
};

/// The plan of the whole run, which the seed determines.
#[derive(Debug)]
pub struct Plan {
    /// For how long there are faults.
    pub storm: Ns,
    /// The usual pause between two faults.
    pub gap: Ns,
    /// The kinds of faults.
    pub faults: Vec<Fault>,
    /// How often a fault strikes directly after a step of the protocol.
    pub windowed: f64,
    /// The longest time until an ended container is started again.
    pub restart: Ns,
    /// The maximum duration of a SIGSTOP or a cut.
    pub longest_pause: Ns,
    /// How watches behave.
    pub watch: WatchHabits,
    /// The longest D, creation wait or foreign hold.
    pub longest: Ns,
    /// D in seconds, if it is the same for all.
    pub common: Option<u64>,
    /// A term may be gone with its record before whoever takes the Lease has seen it: the law does not cover that.
    pub unseen: bool,
    /// The part that hangs permanently at the end.
    pub hang: Option<Hang>,
    /// How soon one term follows another.
    pub pace: Pace,
    /// Workloads always run, and are told their role.
    pub always: bool,
    /// Workloads are frozen until they lead.
    pub frozen: bool,
    /// Workloads are runs of a task.
    pub task: Option<Task>,
    /// All replicas ask leaders of lower priorities to hand over.
    pub preferring: bool,
    /// Every wall clock shows the same, all the time.
    pub same_wall: bool,
    /// A client-go replica on the same Lease.
    pub peer: Option<peer::Habits>,
    /// How many Leases there are, of which a replica holds one.
    pub slots: u8,
    /// The Lease at the beginning.
    pub start: Start,
    /// No request is carried out later than this after its first byte.
    pub latest: Ns,
}

/// How soon one term follows another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// Workloads run for long, unless something happens to them.
    Steady,
    /// Most workloads end soon, and their containers restart at once.
    Hasty,
    /// The same, and nothing takes long, faults included: ten terms in a second.
    Rapid,
}

/// A replica's node and settings, as the seed determines them.
#[derive(Clone, Debug)]
pub struct Node {
    pub name: String,
    pub plan: Rc<Plan>,
    pub config: Config,
    pub preset: Preset,
    pub clock: Clock,
    /// w: the longest wait for a CPU.
    pub wake: Ns,
    /// The longest start of an elector.
    pub startup: Ns,
    /// The usual latency to the server.
    pub usual: Ns,
    pub habits: Habits,
    /// A witness is told of its replica.
    pub witnessed: bool,
}

impl Node {
    /// The longest that it waits for what nobody gave back, or for the next run, by what it knows itself.
    pub fn longest_wait(&self) -> Ns {
        let lease = &self.config.lease;
        let interval = self.preset.task().map(|task| every(task).unwrap_or(MINUTE)).unwrap_or_default();
        nanos(lease.duration.max(lease.creation_wait.unwrap_or_default()).max(interval))
    }

    /// How long it leaves the Lease to others while it is not ready.
    pub fn unfit_delay(&self) -> Ns {
        let workload = &self.config.workload;
        if workload.candidate == Candidate::Ready { nanos(workload.unready_after) } else { 0 }
    }

    /// For a task: whether it waits for the interval of a run that crashed, and whether its own count if they fail.
    pub fn keeps(&self) -> Option<(bool, bool)> {
        let TaskConfig { after_crash, on_failure, .. } = self.config.task;
        self.preset.task().map(|_| (after_crash == AfterCrash::Wait, on_failure == OnFailure::Rest))
    }

    /// Returns whether its terms expire only through faults: the delays of its CPU and its network are negligible.
    pub fn is_quick(&self) -> bool {
        let wait_limit = nanos(self.config.lease.attempt_timeout);
        self.wake < 10 * MS && self.usual < wait_limit / 8
    }
}

impl Plan {
    /// From one run of a task to the next; none where clocks or people may shorten it.
    pub fn interval(&self) -> Option<Ns> {
        let edits = [Fault::Unset, Fault::Steal, Fault::Meddling, Fault::JumpWall, Fault::Interregnum];
        let exact = self.same_wall && self.peer.is_none() && !edits.iter().any(|fault| self.faults.contains(fault));
        self.task.as_ref().filter(|_| exact).and_then(every).map(nanos)
    }

    /// Leaders are left alone for long enough to be asked to hand over, and workloads of standbys run in most worlds.
    fn prefer(&mut self, own: &mut Rng) {
        (self.preferring, self.task, self.gap) = (true, None, spread(own, 5 * S, 30 * S));
        (self.always, self.frozen) = *choice(own, &[(false, false), (true, false), (false, true)]);
    }

    /// A step of the protocol, after which a fault may strike at once.
    pub fn step(&self, who: Who, e: &mut Engine) {
        if !e.chance(self.windowed) {
            return;
        }
        let faults: Vec<Fault> = self.faults.iter().copied().filter(|fault| fault.is_aimed()).collect();
        let Some(fault) = e.rng.choice(faults) else { return };
        let span = if e.chance(0.2) { 0 } else { e.spread(1_000, 5 * S) };
        e.after(span, Event::Aimed(who, fault));
    }
}

/// A breach of a bound that the law relies on: the judge has to report it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    /// The clock of a follower is wrong by three times rho.
    FastClock,
    /// SIGKILL takes effect long after killMargin.
    LateDeath,
    /// A term's leftovers outlive it unseen, so that the next one of the same replica runs beside them.
    Leftovers,
    /// A process that a stranger continues without a Lease runs on.
    Strays,
}

impl Control {
    /// Every one, and in how many of a hundred worlds it is reported at least: a third of what was measured.
    pub const ALL: [(Self, usize); 4] = [(Self::FastClock, 11), (Self::LateDeath, 23), (Self::Leftovers, 5), (Self::Strays, 30)];

    /// The plan has the faults in which the breach shows, and nothing that hides it.
    fn aims(self, plan: &mut Plan) {
        plan.faults = vec![match self {
            Self::FastClock | Self::LateDeath => Fault::Isolate,
            Self::Leftovers => Fault::StepDown,
            Self::Strays => Fault::Stir,
        }];
        (plan.storm, plan.gap, plan.windowed) = (180 * S, 25 * S, 0.0);
        (plan.hang, plan.peer, plan.task, plan.unseen, plan.always) = (None, None, None, false, false);
        plan.frozen = self == Self::Strays;
    }

    fn breaks(self, nodes: &mut Vec<Node>) {
        match self {
            Self::FastClock => {
                // Kernel clocks that are slewed as well would hide it now and then: a late timer makes a hasty follower slower.
                for (node, rate) in nodes.iter_mut().zip([950_000, 1_150_000, 1_150_000]) {
                    (node.clock.rate, node.clock.kernel, node.config.lease.clock_drift) = (rate, 1_000_000, Drift(50_000));
                    (node.habits.deaf, node.habits.slow_death, node.habits.exits) = (1.0, 1.0, 0.0);
                }
            }
            Self::LateDeath => {
                for Node { habits, config, .. } in nodes {
                    (habits.death, habits.slow_death, habits.deaf) = (nanos(config.lease.duration), 1.0, 1.0);
                    habits.exits = 0.0;
                }
            }
            Self::Strays => nodes.iter_mut().for_each(|node| node.habits.blind = true),
            Self::Leftovers => {
                nodes.truncate(1);
                for Node { habits, config, .. } in nodes {
                    (habits.hides, habits.daemons) = (true, 2);
                    config.workload.on_exit = OnExit::Follow;
                }
            }
        }
    }
}

/// The nodes of a run.
pub fn nodes(rng: &mut Rng, control: Option<Control>) -> Vec<Node> {
    // By numbers of their own: nothing changes in the other worlds.
    let mut own = Rng::with_seed(rng.get_seed().rotate_left(32));
    let slots = if own.u8(..6) == 0 { own.u8(2..=3) } else { 1 };
    let few = if rng.u8(..4) == 0 { 3 } else { 2 };
    let count = if slots > 1 { slots + own.u8(1..=2) } else { few };
    let same = rng.bool();
    let preferring = slots == 1 && own.u8(..8) == 0;
    let pace = *choice(rng, if preferring { &[Pace::Steady] } else { &[Pace::Steady, Pace::Hasty, Pace::Rapid, Pace::Rapid] });
    let first = timing(rng, pace);
    let timings: Vec<Timing> = (0..count).map(|_| if same { first } else { timing(rng, pace) }).collect();
    let longest = timings.iter().map(|timing| timing.duration).max().unwrap_or_default();
    // What is deleted or kept has to be waited for.
    let release = match rng.u8(..if pace == Pace::Rapid { 16 } else { 4 }) {
        0 => Release::Keep,
        1 => Release::Delete,
        _ => Release::Clear,
    };
    let drift = timings.iter().map(|timing| timing.drift).min().unwrap_or_default();
    let peer = (rng.u8(..6) == 0 && slots == 1).then(|| peer::Habits::random(drift / 2, EPOCH, rng));
    let creation_wait = match rng.u8(..6) {
        0 => Some(longest + Duration::from_millis(rng.u64(..5_000))),
        1 => Some(Duration::ZERO),
        _ => None,
    };
    let mut plan = plan(rng, pace, longest, same, peer, creation_wait, slots);
    if preferring {
        plan.prefer(&mut own);
    }
    control.iter().for_each(|control| control.aims(&mut plan));
    let plan = Rc::new(plan);
    let on_exit = match pace {
        Pace::Steady => *choice(rng, &[OnExit::Exit, OnExit::Follow, OnExit::Restart]),
        Pace::Hasty | Pace::Rapid => OnExit::Exit,
    };
    let one = |(index, timing)| node(rng, index, timing, creation_wait, release, on_exit, &plan);
    let mut nodes: Vec<Node> = timings.into_iter().enumerate().map(one).collect();
    control.iter().for_each(|control| control.breaks(&mut nodes));
    nodes
}

/// The rate of a kernel's clocks, by the hardware's: a time service slews them by less than 9 %.
fn slewed(own: &mut Rng) -> u32 {
    match own.u8(..4) {
        0 => 910_000,
        1 => 1_090_000,
        2 => 1_000_000,
        _ => own.u32(910_000..=1_090_000),
    }
}

fn plan(
    rng: &mut Rng,
    pace: Pace,
    longest: Duration,
    same: bool,
    mut peer: Option<peer::Habits>,
    creation_wait: Option<Duration>,
    slots: u8,
) -> Plan {
    let mut faults = Fault::ALL.to_vec();
    faults.retain(|fault| !fault.is_of_the_frozen() && !fault.is_of_pools() && !fault.is_of_people());
    if creation_wait == Some(Duration::ZERO) {
        // Whoever opts out of the waits waits for holders only.
        faults.retain(|fault| fault.leaves_the_holder());
        peer.iter_mut().for_each(|peer| peer.times.releases = false);
    }
    if rng.bool() {
        faults.retain(|fault| peer.is_none() || fault.leaves_the_holder());
    }
    rng.shuffle(&mut faults);
    // Those of several steps are the rarest to do harm otherwise.
    let schedule = faults.iter().copied().find(|fault| fault.is_schedule()).filter(|_| rng.bool());
    faults.truncate(rng.usize(1..=8));
    faults.extend(schedule);
    let takes_away = !faults.iter().all(|fault| fault.leaves_the_holder());
    if let Some(peer) = &mut peer {
        // It creates a Lease, takes a free one and runs at once, and one that releases may empty another's.
        peer.lawful = !takes_away && !peer.times.releases;
    }
    let waits = creation_wait.is_some_and(|wait| wait >= longest);
    let unseen = (!same && takes_away && !waits) || peer.is_some_and(|peer| !peer.lawful);
    let hang = match rng.u8(..8) {
        0 => Some(Hang::Init),
        1 => Some(Hang::Electors),
        _ => None,
    };
    let rarely = |rng: &mut Rng, share: f64| if rng.bool() { 0.0 } else { share * rng.f64() };
    let rapid = pace == Pace::Rapid;
    let always = rng.u8(..if rapid { 10 } else { 3 }) == 0;
    let task = (!always && rng.u8(..4) == 0 && slots == 1).then(|| {
        let limit = (rng.u8(..3) == 0).then(|| Duration::from_nanos(spread(rng, 100 * MS, 10 * S)));
        let trigger = Trigger::Every(Duration::from_secs(rng.u64(1..if rapid { 3 } else { 9 })));
        Task { trigger, limit, once: rng.bool().then_some(75) }
    });
    // By numbers of its own. A clock that is ahead would run the fires of the future.
    let is_scheduled = task.is_some() && Rng::with_seed(rng.get_seed().rotate_left(8)).u8(..3) == 0;
    let task = task.map(|task| if is_scheduled { Task { trigger: each_minute(), ..task } } else { task });
    // A single run looks once: a holder whose clock is ahead looks alive for as long as that.
    let is_once = task.as_ref().is_some_and(|task| task.once.is_some());
    let same_wall = is_once || rng.bool() || is_scheduled;
    if same_wall {
        faults.retain(|fault| *fault != Fault::JumpWall);
    }
    if faults.is_empty() {
        faults.push(Fault::StopElector);
    }
    if always {
        // Otherwise it hardly ever hears that it no longer leads.
        faults.extend([Fault::StepDown; 3]);
    }
    // By numbers of its own, as is all of a workload's health and of what hooks leave behind: nothing else of the world changes.
    let frozen = !always && task.is_none() && slots == 1 && Rng::with_seed(!rng.get_seed()).u8(..5) == 0;
    if frozen {
        faults.extend([Fault::Stir, Fault::Stir, Fault::Forward]);
    }
    if slots > 1 {
        faults.extend(Fault::ALL.iter().filter(|fault| fault.is_of_pools()));
    }
    // By numbers of its own.
    let mut people = Rng::with_seed(rng.get_seed().rotate_left(16));
    let (come, displace) = (people.u8(..3) == 0, people.bool() && creation_wait != Some(Duration::ZERO));
    faults.extend(Fault::ALL.iter().filter(|fault| come && fault.is_of_people() && (displace || fault.leaves_the_holder())));
    // A holder without a name tells nobody of the one before.
    let unseen = unseen || come && displace;
    let quickly = |few: Ns, many: Ns| if rapid { few } else { many };
    Plan {
        storm: spread(rng, 60 * S, quickly(300 * S, 600 * S)).max(if is_scheduled { 300 * S } else { 0 }),
        gap: spread(rng, quickly(500 * MS, 200 * MS), quickly(30 * S, 10 * S)),
        faults,
        windowed: rarely(rng, if rapid { 0.02 } else { 0.5 }),
        // A single run comes again as a CronJob's does.
        restart: match pace {
            _ if is_once => spread(rng, 500 * MS, 5 * S),
            Pace::Steady => spread(rng, 20 * MS, 10 * S),
            Pace::Hasty | Pace::Rapid => 20 * MS,
        },
        longest_pause: spread(rng, quickly(100 * MS, S), quickly(5 * S, 90 * S)),
        watch: WatchHabits {
            lossy: rarely(rng, 1.0),
            overtaken: rarely(rng, 0.5),
            delay: spread(rng, MS, quickly(100 * MS, 3 * S)),
            lag: spread(rng, MS, quickly(S, 10 * S)),
        },
        longest: nanos(longest) + 15 * S,
        common: same.then_some(longest.as_secs()),
        unseen,
        hang,
        pace,
        always,
        frozen,
        task,
        preferring: false,
        same_wall,
        peer,
        slots,
        start: *choice(rng, &[Start::Absent, Start::Free, Start::Released]),
        latest: spread(rng, quickly(S, 30 * S), quickly(5 * S, 30 * S)),
    }
}

fn node(
    rng: &mut Rng,
    index: usize,
    timing: Timing,
    creation_wait: Option<Duration>,
    release: Release,
    on_exit: OnExit,
    plan: &Rc<Plan>,
) -> Node {
    let margin = nanos(timing.kill_margin);
    let tight = rng.u8(..3) == 0;
    // A millisecond is left for what takes a real machine practically no time.
    let mut wake = (margin - MS) / 100 * rng.u64(1..if tight { 4 } else { 100 });
    let death = margin - MS - wake;
    let mut config = Config {
        lease: config::LeaseConfig {
            name: "lease".into(),
            namespace: "default".into(),
            slots: plan.slots,
            duration: timing.duration,
            renew_period: timing.renew_period,
            attempt_timeout: timing.attempt_timeout,
            clock_drift: Drift(timing.drift),
            release,
            creation_wait,
            ..config::LeaseConfig::default()
        },
        ..Config::default()
    };
    config.workload.command = vec!["workload".into()];
    config.workload.on_exit = on_exit;
    config.workload.stop.loss_grace = timing.loss_grace;
    config.workload.stop.kill_margin = timing.kill_margin;
    config.workload.stop.grace = Duration::from_nanos(spread(rng, 100 * MS, 60 * S));
    if rng.u8(..4) == 0 {
        config.workload.on_loss = OnLoss::Exit;
    }
    // Its drift bounds both its own error and that of a client-go replica, which has no such bound.
    let drift = if plan.peer.is_some() { timing.drift / 2 } else { timing.drift };
    let rate = match rng.u8(..3) {
        0 => 1_000_000 - drift,
        1 => 1_000_000 + drift,
        _ => rng.u32(1_000_000 - drift..=1_000_000 + drift),
    };
    let hour = if plan.same_wall { 1 } else { 3_600_000_000 };
    let skew = rng.i64(1 - hour..hour) / if rng.bool() { 1 } else { 1_000 };
    let boot = rng.u64(S..1_000_000 * S);
    let clock = Clock { rate, kernel: slewed(&mut Rng::with_seed(!boot)), boot, wall: EPOCH + skew };
    let rapid = plan.pace == Pace::Rapid;
    let mut habits = Habits {
        exec: spread(rng, MS, if rapid || tight { 20 * MS } else { S }),
        deaf: if tight { 1.0 } else { rng.f64() * rng.f64() },
        lingers: spread(rng, MS, 10 * S),
        death,
        slow_death: if tight { 1.0 } else { rng.f64() },
        // A workload that always runs is responsible for what it leaves behind.
        daemons: if plan.always { 0 } else { rng.u32(0..3) },
        breeds: if plan.always { 0.0 } else { rng.f64() },
        says: rng.u8(..4) > 0,
        hangs: rng.f64() * 0.3,
        exits: match plan.pace {
            Pace::Rapid => 0.995,
            Pace::Hasty => 0.95,
            Pace::Steady if rng.bool() => 0.0,
            Pace::Steady => rng.f64(),
        },
        lasts: match plan.pace {
            Pace::Steady => 20 * S,
            Pace::Hasty => S,
            Pace::Rapid => 50 * MS,
        },
        // Only init's end removes them: the law does not cover that init is stopped then.
        foreign: if plan.hang.is_none() && !plan.faults.iter().any(|fault| fault.stops_init()) && rng.u8(..4) == 0 {
            0.3
        } else {
            0.0
        },
        stuck: if rng.u8(..4) == 0 { rng.f64() } else { 0.0 },
        freezes: plan.frozen,
        ..Habits::default()
    };
    // By numbers of its own: whether it is asked how it is changes nothing else of the world.
    let mut own = Rng::with_seed(clock.boot);
    if own.u8(..4) == 0 {
        habits.ill = own.f64() * 0.3;
        config.workload.readiness = probe(&mut own);
        config.workload.liveness = probe(&mut own);
        habits.tells = own.u8(..3) == 0;
        config.workload.start_timeout = Some(Duration::from_nanos(spread(&mut own, S, 60 * S)));
    }
    if habits.tells {
        (config.workload.readiness, config.workload.liveness) = (told(), told());
    }
    if !plan.frozen && !plan.always && plan.task.is_none() && own.u8(..8) == 0 {
        config.standby.command = vec!["standby".into()];
        // It is gone within killMargin by its replica's own clock, or that never leads.
        let by_its_clock = |span: Ns| span * 1_000_000 / u64::from(rate.max(1_000_000));
        (wake, habits.death) = (by_its_clock(wake), by_its_clock(death));
    }
    if plan.always {
        config.workload.runs = Runs::Always;
        config.workload.acknowledge = Some(if habits.says { Acknowledge::Notify } else { Acknowledge::None });
        (config.signals.on_lead, config.signals.on_follow) = (Some(Signal(libc::SIGUSR1)), Some(Signal(libc::SIGUSR2)));
        if rng.u8(..3) == 0 {
            let timeout = Duration::from_nanos(spread(rng, 20 * MS, S));
            let hook = || Hook { command: vec!["hook".into()], timeout, ..Hook::default() };
            (config.hooks.after_lead, config.hooks.before_follow) = (hook(), hook());
            (config.signals, config.workload.acknowledge) = (config::Signals::default(), Some(Acknowledge::Hook));
            habits.says = false;
        }
        habits.foreign = 0.0;
        habits.exits = if rapid { 0.5 } else { 0.1 };
    }
    if plan.frozen {
        config.workload.runs = Runs::Frozen;
        // Nobody can stop what nobody can kill.
        (config.workload.liveness, habits.foreign) = (Probe::default(), 0.0);
    }
    if config.workload.runs != Runs::Leading && config.workload.readiness.handler().is_some() && own.bool() {
        config.workload.candidate = Candidate::Ready;
        config.workload.unready_after = Duration::from_nanos(spread(&mut own, S, 10 * S));
    }
    let hooks = &mut config.hooks;
    if !hooks.after_lead.command.is_empty() || !plan.always && own.u8(..6) == 0 {
        let mut hook = || Hook {
            command: vec!["hook".into()],
            timeout: Duration::from_nanos(spread(&mut own, 20 * MS, S)),
            ..Hook::default()
        };
        if !plan.always {
            (hooks.before_lead, hooks.after_lead, hooks.before_follow) = (hook(), hook(), hook());
        }
        hooks.after_follow = hook();
        (habits.leaves, habits.foreign) = (own.f64(), 0.0);
    }
    // A planned stop waits a moment for the withdrawal of its address, which may never be told.
    config.service.endpoint_slice = Some("leader".into()).filter(|_| own.u8(..4) == 0);
    if let Some(task) = &plan.task {
        (config.workload.on_exit, config.workload.on_loss) =
            if task.once.is_some() { (OnExit::Exit, OnLoss::Exit) } else { (OnExit::Follow, OnLoss::Follow) };
        if every(task).is_none() && release == Release::Delete {
            // Refused, as is anything else that makes a Lease forget its fires.
            config.lease.release = Release::Clear;
        }
        config.task.after_crash = if rng.bool() { AfterCrash::Wait } else { AfterCrash::Run };
        config.task.on_failure = if rng.bool() { OnFailure::Rest } else { OnFailure::Release };
    }
    // None is handed over where a crash is to be waited for.
    let waits = release == Release::Keep || plan.task.is_some() && config.task.after_crash == AfterCrash::Wait;
    let witnessed = !waits && own.bool();
    // A pool has no preferred replica, and a task no leader for long.
    if plan.faults.contains(&Fault::ConfirmDead) {
        // The least that may be taken for silence is three missed renewals.
        let third = config.lease.duration / 3;
        config.lease.renew_period = config.lease.renew_period.min(third);
    }
    if plan.slots == 1 && plan.task.is_none() && (own.u8(..3) == 0 || plan.preferring) {
        config.lease.priority = -i8::try_from(own.u8(..3)).unwrap_or_default();
        config.lease.preempt = Some(Duration::from_nanos(spread(&mut own, S, if plan.preferring { 5 * S } else { 20 * S })));
    }
    let workload = &mut config.workload;
    if plan.preferring && workload.runs != Runs::Leading && workload.readiness.handler().is_none() {
        (workload.readiness, habits.ill) = (probe(&mut own), own.f64());
    }
    Node {
        name: format!("replica{index}"),
        plan: Rc::clone(plan),
        config,
        preset: plan.task.clone().map_or(Preset::Run, Preset::Task),
        clock,
        wake,
        startup: spread(rng, 2 * MS, if rapid { 20 * MS } else { 300 * MS }),
        usual: if tight { MS / 2 } else { spread(rng, MS / 2, if rapid { 5 * MS } else { 50 * MS }) },
        habits,
        witnessed,
    }
}

/// By a process or by the elector.
fn probe(own: &mut Rng) -> Probe {
    let mut probe = Probe {
        period: Duration::from_nanos(spread(own, 200 * MS, 10 * S)),
        timeout: Duration::from_nanos(spread(own, 20 * MS, S)),
        failure_threshold: own.u32(1..=3),
        ..Probe::default()
    };
    if own.bool() {
        probe.exec.command = vec!["ask".into()];
    } else {
        probe.tcp.port = 80;
    }
    probe
}

/// By the workload itself, which is not expected to say again and again that it is live.
fn told() -> Probe {
    Probe { notify: true, period: Duration::from_secs(1_000_000), ..Probe::default() }
}

/// Settings with room for at least two attempts.
fn timing(rng: &mut Rng, pace: Pace) -> Timing {
    let durations: &[u64] = if pace == Pace::Rapid { &[2, 2, 2, 3] } else { &[2, 2, 3, 4, 5, 7, 10, 15] };
    loop {
        let seconds = *choice(rng, durations);
        let mut share = |most: f64| Duration::from_secs(seconds).mul_f64(most * rng.f64());
        let timing = Timing {
            renew_period: Duration::from_secs(1) + share(0.2),
            attempt_timeout: Duration::from_millis(50) + share(0.2),
            loss_grace: share(0.3),
            kill_margin: Duration::from_millis(20) + share(0.3),
            duration: Duration::from_secs(seconds),
            drift: *choice(rng, &[0, 100, 10_000, 50_000]),
        };
        if timing.attempts() >= 2 {
            return timing;
        }
    }
}

fn choice<'t, T>(rng: &mut Rng, from: &'t [T]) -> &'t T {
    &from[rng.usize(..from.len())]
}

/// Of a schedule with the most fires.
const MINUTE: Duration = Duration::from_secs(60);

fn each_minute() -> Trigger {
    let each_minute = serde_json::json!({"cron": "* * * * *", "zone": "UTC"});
    Trigger::Schedule(serde_json::from_value(each_minute).expect("it is a schedule"))
}

fn every(task: &Task) -> Option<Duration> {
    match task.trigger {
        Trigger::Every(interval) => Some(interval),
        Trigger::Schedule(_) => None,
    }
}
