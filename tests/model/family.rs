//! The models: each is a family of schedules with a few kinds of faults and a budget for them.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
    time::Duration,
};

use tenure::config::{self, Acknowledge, Candidate, Config, Drift, Hook, OnExit, Preset, Release, Runs, Signal, Task, Trigger};

use crate::{
    clock::{Clock, MS, Ns, S, nanos},
    fault::Kind,
    register::Start,
    tree::Habits,
};

/// The wall clock when a model begins, in microseconds since 1970.
const EPOCH: i64 = 1_800_000_000_000_000;
/// In microseconds.
const HOUR: i64 = 3_600_000_000;
/// rho in parts per million.
const DRIFT: u32 = 10_000;

/// A model.
#[derive(Clone, Debug)]
pub struct Family {
    pub name: &'static str,
    pub setups: Vec<Setup>,
    pub start: Start,
    /// The clock of the node of a client-go replica, if there is one.
    pub peer: Option<Clock>,
    /// The kinds of faults that may occur.
    pub faults: Vec<Kind>,
    /// How many faults, in all.
    pub most: u8,
    /// The time span in which faults may begin.
    pub from: Ns,
    pub until: Ns,
    /// When all faults end.
    pub calm: Ns,
    /// Lasting faults may end before that.
    pub mends: bool,
    /// No fault of this family is a reason to stop a workload.
    pub undisturbed: bool,
    /// A bound of the law is broken: it must be reported that two led at once.
    pub is_control: bool,
    /// The kinds of faults that struck.
    pub struck: Arc<Mutex<BTreeSet<Kind>>>,
}

/// A replica and its node.
#[derive(Clone, Debug)]
pub struct Setup {
    pub config: Config,
    pub preset: Preset,
    pub clock: Clock,
    /// From SIGKILL to the end of the workload.
    pub death: Ns,
    /// The kernel kills at H.
    pub fuse: bool,
    /// Nothing runs there at first: a copy may be restored there.
    pub vacant: bool,
    /// When it starts.
    pub starts: Ns,
    /// SIGKILL spares the workload, and no scan finds it.
    pub hides: bool,
    /// Nobody sees that a stranger has continued a frozen workload.
    pub blind: bool,
    /// A witness is told of it.
    pub witness: bool,
}

/// How much to explore.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// As much as CI has time for.
    Small,
    /// As much as a night has time for.
    Large,
}

/// All of them.
pub fn families(size: Size) -> Vec<Family> {
    use Kind::{
        Clear, Conflict, Copy, CrashElector, Cut, Dawdle, Delete, Exit, Forbid, FreezeElector, FreezeInit, HoldReply,
        HoldRequest, KillInit, LoseReply, LoseRequest, PassOn, Pause, Refuse, RepeatRequest, Seize, Sicken, StaleWatch,
        StaleWord, Stall, StepDown, Stir, StirWorker, Terminate, Throttle, Unauthorize, Unlabel, Unready, Unset, Wipe,
    };
    let large = size == Size::Large;
    let more = u8::from(large);
    let base = |name, faults: &[Kind], most: u8, until| Family {
        name,
        setups: pair(3, 3),
        start: Start::Released,
        peer: None,
        faults: faults.to_vec(),
        most: most + more,
        from: 0,
        until,
        // The next term begins after D, and any problem with it shows within one more second.
        calm: until + 4 * S,
        mends: true,
        undisturbed: false,
        is_control: false,
        struck: Arc::default(),
    };
    vec![
        base("lost requests and replies", &[LoseRequest, HoldRequest, LoseReply, HoldReply, Cut], 1, 1_500 * MS),
        base("late answers and cuts", &[HoldReply, Cut], 2, 1_100 * MS).mends(large),
        base("lost answers and late requests", &[LoseReply, HoldRequest], 2, 1_100 * MS),
        base("refusals and repetitions", &[Refuse, RepeatRequest, Stall], 1, 1_500 * MS),
        base("refusals of every kind", &[Refuse, Unauthorize, Forbid, Throttle, Conflict, LoseReply], 2, 1_100 * MS),
        base("freezes", &[FreezeElector, FreezeInit, Cut], 1, 1_500 * MS),
        base("freezes and cuts", &[FreezeElector, FreezeInit, Cut], 2, 0).mends(large),
        base("init and elector frozen", &[FreezeElector, FreezeInit], 2, 1_050 * MS).on(fused(pair(3, 3))).mends(large),
        Family { undisturbed: true, ..base("elector restarts", &[CrashElector], 2, 1_100 * MS) },
        base("elector restarts and lost replies", &[CrashElector, LoseReply], 1, 2_500 * MS),
        base("deletions and edits", &[Delete, Clear, Seize, Cut], 1, 1_500 * MS),
        base("deletions and cuts", &[Delete, Clear, Cut], 2, 0).mends(large),
        Family { start: Start::Free, ..base("nobody holds", &[CrashElector, KillInit, Delete, Clear, Wipe], 1, 3_500 * MS) },
        Family {
            start: Start::Free,
            ..base("nobody holds, and late writes", &[HoldRequest, RepeatRequest, LoseReply], 2, 100 * MS).mends(large)
        },
        Family { start: Start::Absent, ..base("creation", &[HoldRequest, RepeatRequest, LoseReply, Delete], 1, 1_500 * MS) },
        // A second API server serves the watch.
        base("stale watches", &[StaleWatch, Stall, Delete, Clear, StepDown], 2, 200 * MS).mends(large),
        Family { calm: 10 * S, ..base("a copied replica", &[Copy, LoseReply, Cut], 1, 1_500 * MS).on(copied()) },
        base("step-downs", &[StepDown, Exit, Terminate, CrashElector], 1, 1_500 * MS),
        Family {
            from: 2_050 * MS,
            ..base("preemptions", &[StepDown, Pause, LoseReply, HoldRequest, CrashElector, Cut], 1, 2_400 * MS)
                .on(preferring(pair(3, 3)))
        },
        Family {
            from: 1_050 * MS,
            ..base("preemptions, and readiness", &[Unready, StepDown], 1, 2_400 * MS)
                .on(preferring(notifying(always(pair(3, 3)))))
        },
        // Neither is preferred: nobody asks.
        base("preemptions among equals", &[StepDown, Cut], 1, 1_500 * MS).on(preempting(pair(3, 3), [-1, -1])),
        base("pauses", &[Pause, StepDown, Cut], 1, 1_500 * MS),
        base("pauses, losses and restarts", &[Pause, Cut, Clear, CrashElector], 2, 200 * MS).mends(large),
        // Unlike a step-down, an exit is proved at once.
        base("step-downs, exits and restarts", &[StepDown, Exit, CrashElector], 2, 200 * MS),
        base("step-downs and late messages", &[StepDown, LoseReply, HoldRequest], 2, 500 * MS),
        base("ends of containers", &[KillInit, Terminate, LoseReply], 1, 2_500 * MS),
        base("ends of containers, with witnesses", &[KillInit, CrashElector, LoseReply], 1, 1_500 * MS).on(witnessed(pair(3, 3))),
        base("always", &[StepDown, Dawdle, StaleWord, Cut], 1, 1_500 * MS).on(always(pair(3, 3))),
        base("always, and stale words", &[StepDown, Dawdle, StaleWord], 2, 200 * MS).on(always(pair(3, 3))),
        // Init may be stopped between its decision that a signal suffices and the signal.
        base("always, and both frozen in a demotion", &[StepDown, FreezeInit, FreezeElector], 2, 0)
            .on(fused(unasked(always(pair(3, 3)))))
            .mends(large),
        base("standby commands", &[StepDown, Exit, FreezeInit, Cut], 1, 1_500 * MS).on(beside(pair(3, 3))),
        base("hooks", &[StepDown, Exit, Dawdle, Cut, FreezeInit], 1, 1_500 * MS).on(hooked(pair(3, 3))),
        // Its hook after a stop may still run when it leads again.
        base("hooks, one replica", &[StepDown, Exit, Dawdle], 2, 500 * MS).on(alone(hooked(pair(3, 3)))),
        base("hooks, and both frozen", &[StepDown, FreezeInit, FreezeElector], 2, 0).on(fused(hooked(pair(3, 3)))).mends(large),
        base("frozen", &[StepDown, Stir, StirWorker, PassOn, Terminate, CrashElector, Cut], 1, 700 * MS)
            .on(frozen(pair(3, 3)))
            .mends(large),
        base("frozen, and stopped in a promotion", &[StepDown, Stir, FreezeInit], 2, 10 * MS).on(frozen(pair(3, 3))).mends(large),
        base("health", &[Sicken, LoseReply, CrashElector], 2, 100 * MS).on(notifying(pair(3, 3))),
        base("always, and health in a promotion", &[StepDown, Sicken, Unready], 2, 50 * MS)
            .on(notifying(always(pair(3, 3))))
            .mends(large),
        base("rests", &[Exit, LoseReply, HoldRequest], 2, 100 * MS).on(tasks(pair(3, 3))),
        base("rests, beside client-go", &[Exit, LoseReply, Cut], 1, 1_500 * MS).on(tasks(half())).beside_client_go(),
        Family { calm: 7 * S, ..base("mixed durations", &[LoseRequest, HoldReply, Cut], 1, 1_100 * MS).on(pair(5, 3)) },
        // The holder is cut off and runs on for its D, which is longer than that of the follower that has seen it and finds the
        // Lease edited.
        Family {
            from: 900 * MS,
            calm: 8 * S,
            ..base("mixed durations, cuts and edits", &[Cut, Delete, Wipe, Unset], 2, 1_050 * MS).on(pair(5, 3)).mends(large)
        },
        // The elector that has seen it no longer exists.
        Family {
            from: 1_000 * MS,
            calm: 8 * S,
            ..base("mixed durations and a lost sight", &[Cut, CrashElector, Delete], 3, 1_020 * MS).on(pair(5, 3)).mends(large)
        },
        base("mixed drifts", &[LoseRequest, HoldReply, Cut], 1, 1_100 * MS).on(mixed(20_000, 5_000)),
        base("mixed drifts, the other way", &[LoseRequest, HoldReply, Cut], 1, 1_100 * MS).on(mixed(5_000, 20_000)),
        base("three replicas", &[LoseRequest, Cut], 1, 1_100 * MS).on(three()).mends(large),
        base("two slots", &[LoseReply, HoldRequest, Cut, Unlabel, Delete], 1, 60 * MS).on(slots()).mends(large),
        base("beside client-go", &[LoseReply, HoldReply, HoldRequest, Cut], 1, 1_500 * MS).on(half()).beside_client_go(),
        base("slow deaths", &[Cut, FreezeInit, FreezeElector], 1, 1_100 * MS).on(slow(pair(3, 3))),
        control("control: a clock that is wrong by three times rho", too_fast(pair(3, 3)), &base),
        control("control: a clock that is wrong by three times rho, with two slots", too_fast(slots()), &base).mends(false),
        control("control: a death after killMargin", each(pair(3, 3), |setup| setup.death = 100 * MS), &base),
        control("control: two terms in one replica", each(alone(pair(3, 3)), |setup| setup.hides = true), &base),
        Family {
            faults: vec![Stir],
            ..control("control: a standby that nobody sees continued", blind(frozen(pair(3, 3))), &base)
        },
    ]
}

impl Setup {
    pub const fn slots(&self) -> u8 {
        self.config.lease.slots
    }

    /// The workload ignores its stop signal, so that it runs for as long as the law allows, and dies exactly `death` after SIGKILL.
    /// A hook leaves a daemon behind, which does the same.
    pub fn habits(&self) -> Habits {
        let freezes = self.config.workload.runs == Runs::Frozen;
        Habits {
            deaf: 1.0,
            death: self.death,
            slow_death: 1.0,
            daemons: freezes.into(),
            hangs: 1.0,
            freezes,
            leaves: 1.0,
            blind: self.blind,
            hides: self.hides,
            ..Habits::default()
        }
    }
}

impl Family {
    /// The same with these replicas.
    fn on(self, setups: Vec<Setup>) -> Self {
        Self { setups, ..self }
    }

    /// The same; lasting faults may end before the others, or not.
    fn mends(self, mends: bool) -> Self {
        Self { mends, ..self }
    }

    /// The same beside a client-go replica, whose node's clock is as wrong as that of [`half`], the other way.
    fn beside_client_go(self) -> Self {
        let clock = Clock { rate: 1_000_000 + DRIFT / 2, kernel: 1_000_000, boot: 5_000 * S, wall: EPOCH };
        Self { peer: Some(clock), ..self }
    }

    /// If nobody leads for this long after the last fault, something is wrong.
    pub fn wait_limit(&self) -> Ns {
        let longest = self.setups.iter().map(|setup| setup.config.lease.duration).max().unwrap_or_default();
        3 * nanos(longest) + 2 * S
    }
}

fn each(mut setups: Vec<Setup>, change: impl FnMut(&mut Setup)) -> Vec<Setup> {
    setups.iter_mut().for_each(change);
    setups
}

/// Two replicas with these D: the first one's clock as slow as rho allows, the second one's as fast.
fn pair(first: u64, second: u64) -> Vec<Setup> {
    vec![setup(first, 1_000_000 - DRIFT, 1_000 * S), setup(second, 1_000_000 + DRIFT, 5_000 * S)]
}

/// One replica whose clock is wrong by half of rho, which is the bound on the sum of both nodes' errors.
fn half() -> Vec<Setup> {
    vec![setup(3, 1_000_000 - DRIFT / 2, 1_000 * S)]
}

/// Each with a rho of its own in parts per million, and a clock that is as wrong as that allows.
fn mixed(slow: u32, fast: u32) -> Vec<Setup> {
    let mut setups = vec![setup(3, 1_000_000 - slow, 1_000 * S), setup(3, 1_000_000 + fast, 5_000 * S)];
    for (setup, drift) in setups.iter_mut().zip([slow, fast]) {
        setup.config.lease.clock_drift = Drift(drift);
    }
    setups
}

/// A model in which a bound of the law is broken.
fn control(name: &'static str, setups: Vec<Setup>, base: &impl Fn(&'static str, &[Kind], u8, Ns) -> Family) -> Family {
    Family { setups, is_control: true, ..base(name, &[Kind::Cut], 1, 1_500 * MS) }
}

fn too_fast(mut setups: Vec<Setup>) -> Vec<Setup> {
    setups.last_mut().expect("there are some").clock.rate = 1_000_000 + 3 * DRIFT;
    setups
}

/// The third place is that of a copy of the first replica.
fn copied() -> Vec<Setup> {
    let mut setups = pair(3, 3);
    setups.push(Setup { vacant: true, ..setups[0].clone() });
    setups
}

fn three() -> Vec<Setup> {
    let mut setups = pair(3, 3);
    setups.push(setup(3, 1_000_000 + DRIFT, 9_000 * S));
    setups
}

/// Three replicas for two slots: those of the slow clocks hold them when the third one starts.
fn slots() -> Vec<Setup> {
    let mut setups = three();
    setups[1].clock.rate = setups[0].clock.rate;
    setups[2].starts = 60 * MS;
    each(setups, |setup| setup.config.lease.slots = 2)
}

/// The second is preferred, and comes once the first leads.
fn preferring(setups: Vec<Setup>) -> Vec<Setup> {
    let mut setups = preempting(setups, [-1, 0]);
    setups[1].starts = 1_050 * MS;
    setups
}

/// Each asks a leader of a lower priority to hand over after a second.
fn preempting(mut setups: Vec<Setup>, priorities: [i8; 2]) -> Vec<Setup> {
    for (setup, priority) in setups.iter_mut().zip(priorities) {
        (setup.config.lease.priority, setup.config.lease.preempt) = (priority, Some(Duration::from_secs(1)));
    }
    setups
}

/// The workload always runs on both, and is told its role by signals.
fn always(setups: Vec<Setup>) -> Vec<Setup> {
    each(setups, |Setup { config, .. }| {
        config.workload.runs = Runs::Always;
        config.workload.acknowledge = Some(Acknowledge::Notify);
        config.signals.on_lead = Some(Signal(libc::SIGUSR1));
        config.signals.on_follow = Some(Signal(libc::SIGUSR2));
    })
}

/// The workload is frozen until it leads, for which it has a killMargin, as for its death.
fn frozen(setups: Vec<Setup>) -> Vec<Setup> {
    each(slow(setups), |setup| setup.config.workload.runs = Runs::Frozen)
}

fn blind(setups: Vec<Setup>) -> Vec<Setup> {
    each(setups, |setup| setup.blind = true)
}

/// Another program runs while following.
fn beside(setups: Vec<Setup>) -> Vec<Setup> {
    each(setups, |setup| setup.config.standby.command = vec!["standby".into()])
}

fn alone(mut setups: Vec<Setup>) -> Vec<Setup> {
    setups.truncate(1);
    setups
}

/// Each hook leaves a daemon, and is killed if it takes too long; the last one may still run at the next lead.
fn hooked(mut setups: Vec<Setup>) -> Vec<Setup> {
    let hook = |timeout| Hook { command: vec!["hook".into()], timeout, ..Hook::default() };
    let short = || hook(Duration::from_millis(100));
    for Setup { config: Config { hooks, .. }, .. } in &mut setups {
        (hooks.before_lead, hooks.after_lead, hooks.before_follow) = (short(), short(), short());
        hooks.after_follow = hook(Duration::from_secs(10));
    }
    setups
}

/// The workload says whether it is ready and live, and has a while to be ready once it leads.
fn notifying(setups: Vec<Setup>) -> Vec<Setup> {
    each(setups, |Setup { config: Config { workload, .. }, .. }| {
        (workload.readiness.notify, workload.liveness.notify) = (true, true);
        workload.start_timeout = Some(Duration::from_millis(500));
        workload.candidate = if workload.runs == Runs::Always { Candidate::Ready } else { Candidate::Any };
        // It is not asked: it says so.
        workload.liveness.period = Duration::from_secs(1_000);
    })
}

/// A workload is a run of a task, which is due soon; the wall clocks are an hour apart.
fn tasks(mut setups: Vec<Setup>) -> Vec<Setup> {
    for (at, setup) in setups.iter_mut().enumerate() {
        setup.preset = Preset::Task(Task { trigger: Trigger::Every(Duration::from_secs(2)), limit: None, once: None });
        setup.clock.wall += HOUR * i64::try_from(at + 1).expect("a few");
    }
    setups
}

/// The signal suffices.
fn unasked(setups: Vec<Setup>) -> Vec<Setup> {
    each(setups, |setup| setup.config.workload.acknowledge = Some(Acknowledge::None))
}

/// Each has a witness, and dies slowly.
fn witnessed(setups: Vec<Setup>) -> Vec<Setup> {
    each(slow(setups), |setup| setup.witness = true)
}

/// The kernel kills at H, so that init and elector may both be stopped.
fn fused(setups: Vec<Setup>) -> Vec<Setup> {
    each(setups, |setup| setup.fuse = true)
}

/// The workload takes all of killMargin to die.
fn slow(setups: Vec<Setup>) -> Vec<Setup> {
    each(setups, |Setup { config, clock, death, .. }| {
        config.workload.stop.kill_margin = Duration::from_millis(100);
        // killMargin on the node's clock, less the rounding of instants.
        *death = 100 * MS * 1_000_000 / u64::from(clock.rate) - 10;
    })
}

fn setup(duration: u64, rate: u32, boot: u64) -> Setup {
    let mut config = Config {
        lease: config::LeaseConfig {
            name: "lease".into(),
            namespace: "default".into(),
            duration: Duration::from_secs(duration),
            renew_period: Duration::from_secs(1),
            attempt_timeout: Duration::from_millis(500),
            clock_drift: Drift(DRIFT),
            release: Release::Clear,
            ..config::LeaseConfig::default()
        },
        ..Config::default()
    };
    config.workload.command = vec!["workload".into()];
    config.workload.on_exit = OnExit::Follow;
    // SIGKILL takes no time here, so that no slack between H and E hides a late kill.
    config.workload.stop.kill_margin = Duration::ZERO;
    config.workload.stop.loss_grace = Duration::from_millis(200);
    config.workload.stop.grace = Duration::from_millis(300);
    Setup {
        config,
        preset: Preset::Run,
        clock: Clock { rate, kernel: if rate < 1_000_000 { 910_000 } else { 1_090_000 }, boot, wall: EPOCH },
        death: 0,
        fuse: false,
        vacant: false,
        starts: 0,
        hides: false,
        blind: false,
        witness: false,
    }
}
