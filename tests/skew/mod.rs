//! An earlier tenure and this one on one Lease, as in a rollout and in a rollback: each leads, and each stands by.
//!
//! `tests/cluster/binaries/build tenure` builds the earlier one. What a case finds is mended in this one.

mod together;

use std::{sync::OnceLock, time::Duration};

use nix::sys::signal::{Signal, kill};
use support::{
    Behaviour, Case, Event, LEASE, Prepared, Replica, Stage, Verb, cases, not_run, programs, safe,
    spec::{calm, released, wait},
};
use tenure::{clock, time::Instant};

use crate::{
    TENURE,
    beside::Desk,
    conformance::{assert_newer, last_confirmed},
};

/// For what needs no Lease to run out: many times what it takes.
const SOON: Duration = Duration::from_secs(15);
/// By when a write that was sent at a blow is answered.
const LATE: Duration = Duration::from_secs(1);

pub(crate) fn all() -> Vec<Case> {
    let mut cases = cases![each follow_each_other:
        either_follows_the_other_after_a_planned_stop(End::Stop);
        either_follows_the_other_that_its_own_command_asks_to_step_down(End::StepDown);
        either_follows_the_other_once_that_was_killed_and_its_lease_has_run_out(End::Kill);
        either_follows_the_other_at_once_where_that_was_killed_beside_its_witness(End::KillBesideWitness);
        either_follows_the_other_while_that_is_frozen(End::Freeze);
        either_follows_the_other_while_that_is_cut_off(End::Cut);
    ];
    cases.extend(together::all());
    cases
}

/// Which tenure it is.
#[derive(Clone, Copy)]
enum Version {
    Earlier,
    Head,
}

use Version::{Earlier, Head};

impl Version {
    /// The path of the program.
    fn program(self) -> &'static str {
        match self {
            Earlier => earlier().expect("a case that was run without it"),
            Head => TENURE,
        }
    }

    /// Has this tenure run the replica.
    fn runs(self, mut prepared: Prepared) -> Prepared {
        prepared.launch.program = self.program().to_owned();
        prepared
    }
}

/// The earlier tenure, which is built if it is not there yet.
fn earlier() -> Option<&'static str> {
    static EARLIER: OnceLock<Option<String>> = OnceLock::new();
    let find = || {
        let found = programs::find("tenure");
        if found.is_none() {
            not_run("an earlier tenure beside this one", "this clone does not have its commit");
        }
        found.map(|path| path.to_string_lossy().into_owned())
    };
    EARLIER.get_or_init(find).as_deref()
}

/// How a leader's term ends.
#[derive(Clone, Copy)]
enum End {
    Stop,
    /// By the command of the version that follows.
    StepDown,
    Kill,
    KillBesideWitness,
    Freeze,
    Cut,
}

impl End {
    /// Returns true if only the end of the Lease lets another one lead.
    const fn takes_the_duration(self) -> bool {
        match self {
            Self::Kill | Self::Freeze | Self::Cut => true,
            Self::Stop | Self::StepDown | Self::KillBesideWitness => false,
        }
    }

    /// Gives a replica durations that tell a Lease that was given back from one that has run out, and a workload that a stop must kill.
    fn set(self, stage: &Stage, name: &str, prepared: Prepared) -> Prepared {
        match self {
            Self::Stop | Self::StepDown => prepared.set("lease.duration", "60s").set("lease.attemptTimeout", "5s"),
            Self::KillBesideWitness => {
                let prepared = prepared.set("lease.duration", "60s").set("lease.attemptTimeout", "2s");
                prepared.set("lease.witness", socket(stage, name)).workload(&Behaviour::stubborn())
            }
            Self::Kill | Self::Freeze | Self::Cut => calm(prepared).workload(&Behaviour::stubborn()),
        }
    }

    async fn strike(self, stage: &Stage, leader: &Replica, follower: Version) {
        match self {
            Self::Stop => assert_eq!(leader.stop().await, 0),
            Self::StepDown => {
                let desk = Desk::of(stage).await.by(follower.program());
                let seen = desk.ends(&["status", LEASE, "-o", "json"]).await;
                assert!(seen.json()["holder"].as_str().is_some_and(|holder| holder.starts_with(&leader.name)), "{seen:?}");
                let asked = desk.ends(&["step-down", LEASE, "--wait"]).await;
                assert_eq!(asked.code, 0, "{asked:?}");
            }
            Self::Kill | Self::KillBesideWitness => leader.signal(Signal::SIGKILL).await,
            Self::Freeze => {
                for pid in [leader.elector().await, leader.init().await] {
                    kill(pid, Signal::SIGSTOP).expect("it lives");
                }
            }
            Self::Cut => leader.proxy.cut(),
        }
    }

    /// Lets the leader go on once another one leads. It must leave that one alone.
    async fn relent(self, leader: &Replica, next: &Replica) {
        let woken = clock::boot();
        match self {
            Self::Freeze => {
                for pid in [leader.elector().await, leader.init().await] {
                    kill(pid, Signal::SIGCONT).expect("it lives");
                }
            }
            Self::Cut => leader.proxy.mend().await,
            Self::Stop | Self::StepDown | Self::Kill | Self::KillBesideWitness => {}
        }
        let renewals = next.proxy.log.count(|e| e.request.is_held() && e.succeeded());
        next.proxy.log.nth(renewals + 2, "the next leader renews", |e| e.request.is_held() && e.succeeded()).await;
        assert!(!leader.proxy.log.since(woken).iter().any(|e| e.request.is_write()), "it wrote on another's Lease");
    }
}

fn socket(stage: &Stage, name: &str) -> String {
    format!("@{}-{name}", stage.namespace)
}

/// A replica, and the witness beside it if it has one.
async fn start(stage: &Stage, version: Version, name: &str, end: End) -> (Replica, Option<Replica>) {
    let mut witness = None;
    if let End::KillBesideWitness = end {
        let beside = version.runs(stage.prepare(&format!("beside-{name}")).await);
        witness = Some(beside.witness(&socket(stage, name), name).start());
    }
    let replica = version.runs(end.set(stage, name, stage.prepare(name).await)).start();
    replica.proxy.log.first("a watch", |e| e.request.verb == Verb::Watch && e.succeeded()).await;
    (replica, witness)
}

async fn follow_each_other(stage: Stage, end: End) {
    if earlier().is_none() {
        return;
    }
    stage.lease.create(released()).await;
    let (mut leader, mut _beside) = start(&stage, Earlier, "first", end).await;
    let mut term = stage.witness.start("first", 0).await;
    for (version, name) in [(Head, "second"), (Earlier, "third")] {
        let (next, beside) = start(&stage, version, name, end).await;
        if let End::KillBesideWitness = end {
            leader.said("gives the Lease back if").await;
        }
        let struck = clock::boot();
        end.strike(&stage, &leader, version).await;

        let start = stage.witness.start(name, 0).await;
        assert_newer(&start, &term);
        assert_waited(&start, &leader, struck, end);
        end.relent(&leader, &next).await;
        (leader, _beside, term) = (next, beside, start);
    }
}

fn assert_waited(start: &Event, last: &Replica, struck: Instant, end: End) {
    if end.takes_the_duration() {
        // A write that was under way may still have arrived.
        let renewed = last_confirmed(last, struck + LATE).answered_at();
        safe(start.at() >= renewed + wait(10.0), || format!("taken {:?} after its last renewal", start.at().since(renewed)));
    } else {
        let took = start.at().since(struck);
        assert!(took < SOON, "{took:?}, with a Lease of 60 s");
    }
}
