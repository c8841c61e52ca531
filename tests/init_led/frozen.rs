//! `runs: frozen` with real processes.

use std::{
    fs,
    process::{Command, Stdio},
    time::Duration,
};

use nix::sys::signal::{
    Signal::{SIGCONT as CONT, SIGTERM as TERM},
    kill,
};
use support::{
    Scratch,
    procfs::{children, state},
    wait_until,
};
use tenure::{
    clock,
    config::{Config, Runs},
    law::Timing,
    link::{Reason, Term, Then, ToElector, ToInit},
};

use super::world::{World, config, patient, shell, sleep_until, timing, within};

/// Says so whenever it runs, in a main process and a child of another session.
const TREE: &str = "echo starts $$; export READY=$LOG.ready.$$
    setsid sh -c 'echo >$READY; while :; do date +%s%N >>$LOG.child; sleep 0.01; done' &
    while :; do date +%s%N >>$LOG.main; sleep 0.01; done";
/// Succeeds once a child of the living main process has begun.
const PROBE: &str = "for ready in $LOG.ready.*; do [ -d /proc/${ready##*.} ] && exit 0; done; exit 1";

fn frozen(log: &str) -> Config {
    let mut config = config(TREE);
    config.workload.runs = Runs::Frozen;
    config.workload.readiness.exec.command = shell(PROBE);
    config.workload.readiness.period = Duration::from_millis(50);
    config.workload.restart.delay = Duration::from_millis(100);
    config.workload.env.insert("LOG".into(), log.into());
    config
}

struct Frozen {
    world: World,
    scratch: Scratch,
}

impl Frozen {
    /// A standby that was frozen once it was ready.
    fn start(timing: Timing) -> Self {
        let scratch = Scratch::new();
        let (mut world, _) = World::contained(&within(timing, frozen(scratch.join("log").to_str().unwrap())));
        assert!(world.line().starts_with("starts"));
        let mut standby = Self { world, scratch };
        standby.freezes();
        standby
    }

    fn freezes(&mut self) {
        wait_until("all of it is stopped", || {
            let states: Vec<_> = self.world.others().iter().map(|(pid, _)| state(*pid)).collect();
            // What had ended is not reaped by a shell that is stopped.
            states.iter().filter(|state| **state == Some('T')).count() >= 2
                && states.iter().all(|state| matches!(state, Some('T' | 'Z') | None))
        });
    }

    /// How often each process has said that it runs.
    fn said(&self) -> [usize; 2] {
        ["log.main", "log.child"].map(|name| fs::read(self.scratch.join(name)).unwrap_or_default().len())
    }

    /// Leads in term 1; returns once both processes run.
    fn leads(&self) {
        let before = self.said();
        self.world.tell_lead(clock::boot());
        assert_eq!(health_aside(&self.world), ToElector::Acknowledged { term: Term(1), serial: 0 });
        let heard = health_aside(&self.world);
        assert!(matches!(heard, ToElector::Started { .. }), "{heard:?}");
        wait_until("both run", || self.said().iter().zip(before).all(|(now, before)| *now > before));
    }
}

/// Returns init's next message that is not about the health.
fn health_aside(world: &World) -> ToElector {
    loop {
        let heard = world.hear();
        if !matches!(heard, ToElector::Health { .. }) {
            return heard;
        }
    }
}

fn stopped(world: &World) -> Then {
    loop {
        match health_aside(world) {
            ToElector::Stopped { then, .. } => return then,
            ToElector::Unproved { .. } => {}
            other => panic!("{other:?}"),
        }
    }
}

pub(crate) fn a_frozen_workload_stands_still_as_a_whole_until_it_leads_and_the_next_one_does_too() {
    let mut standby = Frozen::start(patient());
    let before = standby.said();
    sleep_until(clock::boot() + Duration::from_millis(500));
    assert_eq!(standby.said(), before, "no process of it has run");

    standby.leads();
    standby.world.step_down(7, Reason::StepDown);
    assert_eq!(stopped(&standby.world), Then::Follow);
    standby.world.tell(&ToInit::Ended { term: Term(1), backoff: None });

    assert!(standby.world.line().starts_with("starts"), "a fresh one");
    standby.freezes();
}

pub(crate) fn a_frozen_workload_that_somebody_else_continues_is_killed_whichever_process_it_is_and_the_next_one_leads() {
    for of_main in [true, false] {
        let mut standby = Frozen::start(patient());
        let main = standby.world.main();
        let thawed = if of_main { main } else { *children(main).first().unwrap() };

        // What init is still stopping is stopped again: the next one meets one that was proved to be.
        let is_killed = (0..20).any(|_| {
            let _ = kill(thawed, CONT);
            sleep_until(clock::boot() + Duration::from_millis(300));
            state(main).is_none()
        });

        assert!(is_killed);
        assert!(standby.world.line().starts_with("starts"), "a fresh one");
        standby.freezes();
        standby.leads();
        let warned = standby.world.warned.take();
        assert!(warned.iter().any(|line| line.starts_with("the workload is not frozen, although")), "{warned:?}");
    }
}

pub(crate) fn what_somebody_leaves_in_the_container_costs_no_frozen_standby() {
    let standby = Frozen::start(patient());
    let (init, main) = (standby.world.init().to_string(), standby.world.main());
    let visit = ["--target", &init, "--pid", "--mount", "sh", "-c", "setsid sleep 1000 & exit"];
    let visited = Command::new("nsenter").args(visit).stdin(Stdio::null()).stdout(Stdio::null()).status();
    assert!(visited.expect("nsenter is needed").success());
    wait_until("an orphan is init's", || children(standby.world.init()).len() == 3);
    sleep_until(clock::boot() + Duration::from_millis(600));
    assert_eq!(state(main), Some('T'));
    standby.leads();
}

/// Stands still, and says so if it is continued, which a SIGHUP does not prevent.
const STILL: &str = "sh -c 'trap : HUP; kill -STOP $$; echo $$ >>$LOG.ran'";
/// Ready once so many processes stand still.
const STANDS: &str = "[ $(cat /proc/[0-9]*/stat | grep -c ') T ') -ge 30 ]";

/// When a process dies, the kernel continues what its death orphans: the jobs of a shell in a session of its own, and what has its
/// terminal from it.
pub(crate) fn no_process_of_a_frozen_standby_runs_while_it_is_killed() {
    let jobs = format!("set -m; for i in $(seq 30); do {STILL} & done; set +m; sleep 1000");
    let own = format!("for i in $(seq 30); do {STILL} & done; trap : HUP; wait");
    for command in [["setsid", "--wait", "bash", "-c", &jobs].as_slice(), &["script", "-qc", &own, "/dev/null"]] {
        let scratch = Scratch::new();
        let mut config = frozen(scratch.join("log").to_str().unwrap());
        config.workload.command = command.iter().map(ToString::to_string).collect();
        config.workload.readiness.exec.command = shell(STANDS);
        let (world, _) = World::beginning(&config, &["taskset", "--cpu-list", "0"]);
        let mut standby = Frozen { world, scratch };
        wait_until("all that stand still", || standby.world.others().len() >= 32);
        standby.freezes();
        let Frozen { world, scratch } = standby;
        world.signal(TERM);
        world.tell(&ToInit::Done);
        let (code, _) = world.exit();
        let ran = fs::read_to_string(scratch.join("log.ran")).unwrap_or_default();
        assert_eq!((code, ran.lines().count()), (0, 0), "{command:?}");
    }
}

pub(crate) fn a_lead_whose_init_stands_still_past_s_continues_nothing() {
    let standby = Frozen::start(timing());
    let before = standby.said();
    let a = clock::boot();
    standby.world.freeze();
    standby.world.tell_lead(a);
    standby.world.passed_on();
    sleep_until(standby.world.deadlines(a).soft);
    standby.world.signal(CONT);
    sleep_until(clock::boot() + Duration::from_millis(300));
    assert_eq!(standby.said(), before);
}
