//! Readiness and liveness with real programs, systemd's own among them.

use std::{fs, time::Duration};

use nix::sys::signal::{Signal::SIGSTOP, kill};
use support::{Scratch, wait_until};
use tenure::{
    clock,
    config::Config,
    link::{Reason, Term, Then, ToElector, ToInit},
    time::Instant,
};

use super::{
    always::notifying,
    world::{World, config, shell, sleep_until},
};

/// Each is asked every second; a stop has a second.
fn brisk(mut config: Config) -> Config {
    config.workload.stop.grace = Duration::from_secs(1);
    for probe in [&mut config.workload.readiness, &mut config.workload.liveness] {
        (probe.period, probe.failure_threshold) = (Duration::from_secs(1), 2);
    }
    config
}

/// The next message about the workload's health: why it is not ready, and its status.
fn health(world: &World) -> (Option<String>, String) {
    let told = |message| if let ToElector::Health { unready, status } = message { Some((unready, status)) } else { None };
    until(world, told).expect("the link goes on")
}

/// The workload's status once it is ready. Before that, one reason why it is not may follow another.
fn status_once_ready(world: &World) -> String {
    let ready = |message| if let ToElector::Health { unready: None, status } = message { Some(status) } else { None };
    until(world, ready).expect("it becomes ready")
}

/// Waits for a message that `choose` accepts. Answers each message about the health with a sign of life.
fn until<T>(world: &World, choose: impl Fn(ToElector) -> Option<T>) -> Option<T> {
    loop {
        let message = world.hear_to_the_end()?;
        if let ToElector::Health { .. } = message {
            world.tell(&ToInit::Heartbeat);
        }
        if let Some(chosen) = choose(message) {
            return Some(chosen);
        }
    }
}

/// Why init ends the term by itself, and when.
fn stops(world: &World) -> (Reason, Instant) {
    let stopping = |message| if let ToElector::Stopping { reason, at, .. } = message { Some((reason, at)) } else { None };
    until(world, stopping).expect("it goes on")
}

/// Answers the StepDown that follows with a proof.
fn proves(world: &World, reason: Reason) {
    world.step_down(7, reason);
    let stopped = until(world, |message| if let ToElector::Stopped { then, .. } = message { Some(then) } else { None });
    assert_eq!(stopped, Some(Then::Follow));
    assert_eq!(world.others(), []);
}

pub(crate) fn what_systemd_notify_says_of_a_workload_is_told_and_what_tenure_does_not_do_is_refused() {
    let mut config = config(
        "read go; systemd-notify --ready --status='7 of 9 done' || echo failed; systemd-notify MAINPID=1 FDSTORE=1 FDSTORE=1; \
         read go; systemd-notify RELOADING=1; echo said; systemd-notify STATUS=; exec sleep 1000",
    );
    let scratch = Scratch::new();
    let fifo = scratch.fifo("go");
    config.workload.command[2] = config.workload.command[2].replace("read go", &format!("read go <{}", fifo.display()));
    config.workload.readiness.notify = true;
    let (mut world, _) = World::contained(&config);
    assert_eq!(health(&world), (None, String::new()), "nothing is meant to run");
    world.tell_lead(clock::boot());
    assert!(health(&world).0.is_some());

    fs::write(&fifo, "\n").unwrap();
    assert_eq!(status_once_ready(&world), "7 of 9 done");
    // What is said in one turn of init is told as one.
    fs::write(fifo, "\n").unwrap();

    assert_eq!(health(&world), (Some("it said RELOADING=1".into()), "7 of 9 done".into()));
    assert_eq!(world.line(), "said");
    let mut status = String::from("any");
    while !status.is_empty() {
        world.tell(&ToInit::Heartbeat);
        let heard = |message| match message {
            ToElector::Health { status, .. } => Some(Some(status)),
            ToElector::Heartbeat => Some(None),
            _ => None,
        };
        status = until(&world, heard).unwrap().unwrap_or(status);
    }
    proves(&world, Reason::StepDown);
    let warned = world.warned.take();
    for refused in ["MAINPID is refused", "FDSTORE is refused"] {
        assert_eq!(warned.iter().filter(|line| line.starts_with(refused)).count(), 1, "{warned:?}");
    }
}

pub(crate) fn a_workload_with_systemds_library_is_ready_and_has_a_watchdog_that_ends_it_once_it_is_stopped() {
    let script = r#"
import ctypes, sys, time
systemd = ctypes.CDLL("libsystemd.so.0")
span = ctypes.c_uint64()
enabled = systemd.sd_watchdog_enabled(0, ctypes.byref(span))
said = systemd.sd_notify(0, b"STATUS=cannot open it\nERRNO=2\nREADY=1")
passed = systemd.sd_notify_barrier(0, ctypes.c_uint64(20_000_000))
print(enabled > 0, span.value, said > 0, passed >= 0, flush=True)
while True:
    systemd.sd_notify(0, b"WATCHDOG=1")
    time.sleep(0.2)
"#;
    let mut config = brisk(config(""));
    config.workload.command = ["python3", "-c", script].map(str::to_owned).to_vec();
    (config.workload.readiness.notify, config.workload.liveness.notify) = (true, true);
    let (mut world, _) = World::contained(&config);
    world.tell_lead(clock::boot());
    assert_eq!(world.line(), "True 2000000 True True");
    assert!(health(&world).0.is_none() && health(&world).0.is_some(), "it runs, and has said nothing");
    assert_eq!(status_once_ready(&world), "cannot open it: ENOENT: No such file or directory");
    let alive = clock::boot() + Duration::from_secs(3);
    sleep_until(alive);

    let workload = world.others()[0].0;
    kill(workload, SIGSTOP).unwrap();
    let stopped = clock::boot();

    let (reason, at) = stops(&world);
    assert_eq!(reason, Reason::NotLive);
    assert!(at > alive && at.since(stopped) < Duration::from_secs(4), "{:?} after it was stopped", at.since(stopped));
    proves(&world, reason);
}

pub(crate) fn a_program_that_asks_is_told_the_role_and_its_failures_end_the_term() {
    let scratch = Scratch::new();
    let (healthy, log) = (scratch.join("healthy"), scratch.join("log"));
    fs::write(&healthy, "").unwrap();
    let ask = format!("echo $TENURE_ROLE $TENURE_FENCING_TOKEN >>{}; test -e {}", log.display(), healthy.display());
    let mut config = brisk(config("exec sleep 1000"));
    config.workload.liveness.exec.command = shell(&ask);
    let (world, _) = World::contained(&config);
    world.lead(clock::boot());
    let asked = || fs::read_to_string(&log).map_or(0, |log| log.lines().count());
    wait_until("it is asked three times", || asked() >= 3);

    fs::remove_file(&healthy).unwrap();
    let broke = clock::boot();

    let (reason, at) = stops(&world);
    assert_eq!(reason, Reason::NotLive);
    assert!(at.since(broke) < Duration::from_secs(4), "{:?} after it broke", at.since(broke));
    assert!(fs::read_to_string(&log).unwrap().lines().all(|line| line == "leader 17"));
    proves(&world, reason);
}

pub(crate) fn a_program_that_hangs_is_killed_with_all_of_its_group_and_has_failed() {
    let mut config = brisk(config("exec sleep 1000"));
    config.workload.liveness.exec.command = shell("sleep 1000 & sleep 1000");
    config.workload.liveness.timeout = Duration::from_millis(300);
    let (world, _) = World::contained(&config);
    world.lead(clock::boot());
    wait_until("it is asked", || world.others().len() == 4);
    wait_until("it is killed", || world.others().len() == 1);

    let (reason, _) = stops(&world);

    assert_eq!(reason, Reason::NotLive);
    proves(&world, reason);
}

pub(crate) fn nothing_that_is_said_while_a_promotion_waits_is_lost() {
    let scratch = Scratch::new();
    let go = scratch.join("go");
    let mut config = notifying(go.to_str().unwrap());
    config.workload.readiness.notify = true;
    let (mut world, _) = World::contained(&config);
    assert!(world.line().ends_with(" standby"));
    world.tell_lead(clock::boot());

    fs::write(&go, "").unwrap();

    assert_eq!(world.line(), "leads");
    let mut heard = (false, false);
    while heard != (true, true) {
        match world.hear() {
            ToElector::Started { term: Term(1), .. } => heard.0 = true,
            ToElector::Health { unready: None, .. } => heard.1 = true,
            _ => {}
        }
    }
}
