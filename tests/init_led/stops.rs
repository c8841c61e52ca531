//! Law 8: what is true when Stopped is reported, and how init ends.

use std::{
    fs,
    process::{Command, Stdio},
};

use nix::{
    sys::resource::{Resource, getrlimit},
    unistd::Pid,
};
use support::wait_until;
use tenure::{
    clock,
    config::OnExit,
    link::{Exit, Reason, Then, ToElector},
};

use super::world::{World, config, timing, within};

/// Daemons in their own sessions that ignore TERM, adopted by init; and a main process that ends on TERM.
const DAEMONS: &str = "trap 'exit 0' TERM
    i=0; while [ $i -lt 20 ]; do
      setsid sh -c '(trap \"\" TERM HUP INT; while :; do sleep 1; done) &' & i=$((i+1))
    done; wait; echo ready; while :; do sleep 0.01; done";

pub(crate) fn stopped_is_told_when_the_whole_tree_is_gone_and_not_before_whether_init_is_pid_1_or_not() {
    for contained in [true, false] {
        let (mut world, _) = World::start(&config(DAEMONS), contained, &[]);
        world.lead(clock::boot());
        world.line();
        assert!(world.others().len() > 20, "{:?}", world.others());
        world.step_down(7, Reason::StepDown);
        assert_eq!(world.stopped_in_the_end(7), Then::Follow);
        assert_eq!(world.others(), []);
    }
}

pub(crate) fn a_process_that_was_executed_into_the_container_is_gone_too() {
    let world = World::leading(&config("echo ready; exec sleep 600"));
    let init = world.init().to_string();
    let mut shell = Command::new("nsenter")
        .args(["--target", &init, "--pid", "--mount", "sh", "-c", "trap '' TERM HUP; while :; do sleep 1; done"])
        .stdin(Stdio::null())
        .spawn()
        .expect("nsenter is needed");
    wait_until("the shell is inside", || world.others().len() > 2);
    world.step_down(7, Reason::StepDown);
    // nsenter, outside the namespace, is its parent and reaps it.
    let reaper = std::thread::spawn(move || shell.wait().unwrap());
    assert_eq!(world.stopped_in_the_end(7), Then::Follow);
    assert_eq!(world.others(), []);
    reaper.join().unwrap();
}

/// The proc of its own PID namespace: init sees the one that it covered.
pub(crate) fn without_its_proc_nothing_is_proved_before_h_kills_everything() {
    let (mut world, _) = World::contained(&within(timing(), config(DAEMONS)));
    let init = world.init().to_string();
    let umount = Command::new("nsenter").args(["--target", &init, "--mount", "--pid", "umount", "--lazy", "/proc"]).status();
    assert!(umount.expect("nsenter is needed").success());
    world.lead(clock::boot());
    world.line();
    assert!(world.others().len() > 20, "{:?}", world.others());

    world.step_down(7, Reason::StepDown);

    while let Some(heard) = world.hear_to_the_end() {
        assert!(matches!(heard, ToElector::Unproved { .. }), "{heard:?}");
    }
    // Only kill(-1) reaches what init cannot see, and it kills the elector too.
    world.next_elector();
    assert_eq!(world.others(), []);
}

pub(crate) fn term_is_a_planned_stop_then_a_release_then_the_workloads_code() {
    let script = "trap 'exit 9' TERM; echo ready; while :; do sleep 0.01; done";
    let (code, said) = World::leading(&config(script)).end_by_term();
    assert_eq!((code, said.lines().count()), (9, 1), "an elector that is done is nothing to warn of: {said}");
    assert!(said.ends_with("exiting with 9: tenure got SIGTERM; the program ended with exit code 9\n"), "{said}");
}

pub(crate) fn the_workload_is_told_its_term() {
    let script = "for name in ROLE LEASE NAMESPACE TERM FENCING_TOKEN LEASE_UID ACQUIRED_AT; do
        eval echo $name=\\$TENURE_$name; done; echo $TRACEPARENT; echo $GIVEN; echo ${TENURE_IDENTITY%_*}; sleep 600";
    let mut config = config(script);
    config.workload.env.insert("GIVEN".into(), "by the configuration".into());
    let (mut world, initial) = World::contained(&config);
    assert!(initial.identity.starts_with("me_") && initial.config.workload.command.is_empty(), "{initial:?}");
    assert!(initial.context.is_some_and(|context| context.name == "here" && context.server.starts_with("http")), "pinned");
    world.lead(clock::boot());
    let said: Vec<String> = (0..10).map(|_| world.line()).collect();
    assert_eq!(
        said,
        [
            "ROLE=leader",
            "LEASE=billing",
            "NAMESPACE=shop",
            "TERM=4",
            "FENCING_TOKEN=17",
            "LEASE_UID=u-1",
            "ACQUIRED_AT=2026-01-01T00:00:00.000000Z",
            "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01",
            "by the configuration",
            "me"
        ]
    );
}

pub(crate) fn a_workload_for_which_there_is_no_descriptor_is_tried_again() {
    let mut config = config("echo ready; exec sleep 600");
    config.workload.on_exit = OnExit::Restart;
    let (mut world, _) = World::contained(&config);
    let init = world.init();
    let is_open = |fd: &u64| fs::symlink_metadata(format!("/proc/{init}/fd/{fd}")).is_ok();
    let (limit, _) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    limit_descriptors(init, (0..).find(|fd| !is_open(fd)).unwrap());
    world.begin(clock::boot());
    let restarting = world.hear();
    assert!(matches!(restarting, ToElector::Restarting { exit: Exit::Code(70), .. }), "{restarting:?}");

    limit_descriptors(init, limit);

    assert_eq!(world.line(), "ready");
    assert!(matches!(world.hear(), ToElector::Started { .. }));
}

/// Lets a process have no descriptor of this number or above, beside those that it has.
fn limit_descriptors(pid: Pid, limit: u64) {
    let set = Command::new("prlimit").args([format!("--pid={pid}"), format!("--nofile={limit}:")]).status();
    assert!(set.expect("prlimit is needed").success());
}
