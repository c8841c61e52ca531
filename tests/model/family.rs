//! The models: each is a family of schedules with a few kinds of faults and a budget for them.

use std::time::Duration;

use tenure::config::{self, Acknowledge, Config, Drift, OnExit, Release, Runs, Signal};

use crate::{
    clock::{Clock, MS, Ns, S},
    fault::Kind,
    register::Start,
};

/// The wall clock when a model begins, in microseconds since 1970.
const EPOCH: i64 = 1_800_000_000_000_000;
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
    /// What may go wrong.
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
}

/// One replica and its node.
#[derive(Clone, Debug)]
pub struct Setup {
    pub config: Config,
    pub clock: Clock,
    /// From SIGKILL to the end of the workload.
    pub death: Ns,
    /// The kernel kills at H.
    pub fuse: bool,
}

/// How much to explore.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// What CI has time for.
    Small,
    /// What a night has time for.
    Large,
}

/// All of them.
pub fn families(size: Size) -> Vec<Family> {
    use Kind::{
        Clear, Conflict, CrashElector, Cut, Dawdle, Delete, Exit, Forbid, FreezeElector, FreezeInit, HoldReply, HoldRequest,
        KillInit, LoseReply, LoseRequest, Pause, Refuse, RepeatRequest, Seize, StaleWord, Stall, StepDown, Terminate, Throttle,
        Unauthorize, Unset, Wipe,
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
    };
    vec![
        base("lost requests and replies", &[LoseRequest, HoldRequest, LoseReply, HoldReply, Cut], 1, 1_500 * MS),
        Family { mends: large, ..base("late answers and cuts", &[HoldReply, Cut], 2, 1_100 * MS) },
        base("lost answers and late requests", &[LoseReply, HoldRequest], 2, 1_100 * MS),
        base("refusals and repetitions", &[Refuse, RepeatRequest, Stall], 1, 1_500 * MS),
        base("refusals of every kind", &[Refuse, Unauthorize, Forbid, Throttle, Conflict, LoseReply], 2, 1_100 * MS),
        base("freezes", &[FreezeElector, FreezeInit, Cut], 1, 1_500 * MS),
        Family { mends: large, ..base("freezes and cuts", &[FreezeElector, FreezeInit, Cut], 2, 0) },
        Family {
            setups: fused(pair(3, 3)),
            mends: large,
            ..base("init and elector frozen", &[FreezeElector, FreezeInit], 2, 1_050 * MS)
        },
        Family { undisturbed: true, ..base("elector restarts", &[CrashElector], 2, 1_100 * MS) },
        base("elector restarts and lost replies", &[CrashElector, LoseReply], 1, 2_500 * MS),
        base("deletions and edits", &[Delete, Clear, Seize, Cut], 1, 1_500 * MS),
        Family { mends: large, ..base("deletions and cuts", &[Delete, Clear, Cut], 2, 0) },
        Family { start: Start::Free, ..base("creation wait", &[CrashElector, Delete, Clear], 1, 3_500 * MS) },
        Family { start: Start::Absent, ..base("creation", &[HoldRequest, RepeatRequest, LoseReply, Delete], 1, 1_500 * MS) },
        base("step-downs", &[StepDown, Exit, Terminate, CrashElector], 1, 1_500 * MS),
        base("pauses", &[Pause, StepDown, Cut], 1, 1_500 * MS),
        Family { mends: large, ..base("pauses, losses and restarts", &[Pause, Cut, Clear, CrashElector], 2, 200 * MS) },
        // Unlike a step-down, an exit is proved at once.
        base("step-downs, exits and restarts", &[StepDown, Exit, CrashElector], 2, 200 * MS),
        base("step-downs and late messages", &[StepDown, LoseReply, HoldRequest], 2, 500 * MS),
        base("ends of containers", &[KillInit, Terminate, LoseReply], 1, 2_500 * MS),
        Family { setups: always(pair(3, 3)), ..base("always", &[StepDown, Dawdle, StaleWord, Cut], 1, 1_500 * MS) },
        Family { setups: always(pair(3, 3)), ..base("always, and stale words", &[StepDown, Dawdle, StaleWord], 2, 200 * MS) },
        // Init may be stopped between its decision that a signal suffices and the signal.
        Family {
            setups: fused(unasked(always(pair(3, 3)))),
            mends: large,
            ..base("always, and both frozen in a demotion", &[StepDown, FreezeInit, FreezeElector], 3, 0)
        },
        Family { setups: pair(5, 3), calm: 7 * S, ..base("mixed durations", &[LoseRequest, HoldReply, Cut], 1, 1_100 * MS) },
        // The holder is cut off and runs on for its D, which is longer than that of the follower that has seen it and finds the
        // Lease edited.
        Family {
            setups: pair(5, 3),
            from: 900 * MS,
            calm: 8 * S,
            mends: large,
            ..base("mixed durations, cuts and edits", &[Cut, Delete, Wipe, Unset], 2, 1_050 * MS)
        },
        // The elector that has seen it no longer exists.
        Family {
            setups: pair(5, 3),
            from: 1_000 * MS,
            calm: 8 * S,
            mends: large,
            ..base("mixed durations and a lost sight", &[Cut, CrashElector, Delete], 3, 1_020 * MS)
        },
        // A wait longer than D: its end moves E back, in init first.
        Family {
            setups: fused(waiting(pair(3, 3))),
            start: Start::Free,
            from: 5_900 * MS,
            calm: 10 * S,
            mends: large,
            ..base("end of a creation wait", &[FreezeElector, FreezeInit], 2, 6_100 * MS)
        },
        Family { setups: mixed(20_000, 5_000), ..base("mixed drifts", &[LoseRequest, HoldReply, Cut], 1, 1_100 * MS) },
        Family {
            setups: mixed(5_000, 20_000),
            ..base("mixed drifts, the other way", &[LoseRequest, HoldReply, Cut], 1, 1_100 * MS)
        },
        Family { setups: three(), mends: large, ..base("three replicas", &[LoseRequest, Cut], 1, 1_100 * MS) },
        Family {
            // rho is the bound on the sum of both nodes' errors.
            setups: vec![setup(3, 1_000_000 - DRIFT / 2, 1_000 * S)],
            peer: Some(Clock { rate: 1_000_000 + DRIFT / 2, boot: 5_000 * S, wall: EPOCH }),
            ..base("beside client-go", &[LoseReply, HoldReply, HoldRequest, Cut], 1, 1_500 * MS)
        },
        Family { setups: slow(pair(3, 3)), ..base("slow deaths", &[Cut, FreezeInit, FreezeElector], 1, 1_100 * MS) },
    ]
}

impl Family {
    /// If nobody leads for this long after the last fault, something is wrong.
    pub fn patience(&self) -> Ns {
        let longest = self.setups.iter().map(|setup| setup.config.lease.duration).max().unwrap_or_default();
        3 * u64::try_from(longest.as_nanos()).unwrap_or(Ns::MAX) + 2 * S
    }
}

/// Two replicas with these D: the first one's clock as slow as rho allows, the second one's as fast.
fn pair(first: u64, second: u64) -> Vec<Setup> {
    vec![setup(first, 1_000_000 - DRIFT, 1_000 * S), setup(second, 1_000_000 + DRIFT, 5_000 * S)]
}

/// Each with a rho of its own in parts per million, and a clock that is as wrong as that allows.
fn mixed(slow: u32, fast: u32) -> Vec<Setup> {
    let mut setups = vec![setup(3, 1_000_000 - slow, 1_000 * S), setup(3, 1_000_000 + fast, 5_000 * S)];
    for (setup, drift) in setups.iter_mut().zip([slow, fast]) {
        setup.config.lease.clock_drift = Drift(drift);
    }
    setups
}

fn three() -> Vec<Setup> {
    let mut setups = pair(3, 3);
    setups.push(setup(3, 1_000_000 + DRIFT, 9_000 * S));
    setups
}

/// The workload always runs on both, and is told its role by signals.
fn always(mut setups: Vec<Setup>) -> Vec<Setup> {
    for Setup { config, .. } in &mut setups {
        config.workload.runs = Runs::Always;
        config.workload.acknowledge = Some(Acknowledge::Notify);
        config.signals.on_lead = Some(Signal(libc::SIGUSR1));
        config.signals.on_follow = Some(Signal(libc::SIGUSR2));
    }
    setups
}

/// The signal suffices.
fn unasked(mut setups: Vec<Setup>) -> Vec<Setup> {
    setups.iter_mut().for_each(|setup| setup.config.workload.acknowledge = Some(Acknowledge::None));
    setups
}

/// The workload waits 5 s if the Lease was free but without the mark.
fn waiting(mut setups: Vec<Setup>) -> Vec<Setup> {
    setups.iter_mut().for_each(|setup| setup.config.lease.creation_wait = Some(Duration::from_secs(5)));
    setups
}

/// The kernel kills at H, so that init and elector may both be stopped.
fn fused(mut setups: Vec<Setup>) -> Vec<Setup> {
    setups.iter_mut().for_each(|setup| setup.fuse = true);
    setups
}

/// The workload takes all of killMargin to die.
fn slow(mut setups: Vec<Setup>) -> Vec<Setup> {
    for Setup { config, clock, death, .. } in &mut setups {
        config.workload.stop.kill_margin = Duration::from_millis(100);
        // killMargin on the node's clock, less the rounding of instants.
        *death = 100 * MS * 1_000_000 / u64::from(clock.rate) - 10;
    }
    setups
}

fn setup(duration: u64, rate: u32, boot: u64) -> Setup {
    let mut config = Config {
        lease: config::Lease {
            name: "lease".into(),
            namespace: "default".into(),
            duration: Duration::from_secs(duration),
            renew_period: Duration::from_secs(1),
            attempt_timeout: Duration::from_millis(500),
            clock_drift: Drift(DRIFT),
            release: Release::Clear,
            ..config::Lease::default()
        },
        ..Config::default()
    };
    config.workload.command = vec!["workload".into()];
    config.workload.on_exit = OnExit::Follow;
    // SIGKILL takes no time here, so that no slack between H and E hides a late kill.
    config.workload.stop.kill_margin = Duration::ZERO;
    config.workload.stop.loss_grace = Duration::from_millis(200);
    config.workload.stop.grace = Duration::from_millis(300);
    Setup { config, clock: Clock { rate, boot, wall: EPOCH }, death: 0, fuse: false }
}
