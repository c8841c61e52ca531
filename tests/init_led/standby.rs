//! `standby.command` with real processes.

use std::time::Duration;

use nix::sys::signal::Signal::{SIGHUP as HUP, SIGTERM as TERM};
use support::Scratch;
use tenure::{
    clock,
    config::{Config, Signal},
    link::{Reason, Term, Then, ToInit},
};

use super::world::{World, config, timing, within};

/// Each of both holds the lock for as long as anything of it runs, and says if it is not alone.
const WITNESS: &str = "exec 9>>$LOCK; flock -n 9 || echo together; echo $TENURE_ROLE";

/// This while following, and a workload; both of which leave a daemon.
fn beside(scratch: &Scratch, standby: &str) -> Config {
    let daemon = "setsid sh -c 'trap \"\" TERM HUP; while :; do sleep 1; done' &";
    let script = |rest: &str| ["sh", "-c", &format!("{WITNESS}; {daemon} {rest}")].map(str::to_owned).to_vec();
    let mut config = config("");
    (config.workload.command, config.standby.command) = (script("exec sleep 1000"), script(standby));
    config.workload.env.insert("LOCK".into(), scratch.join("lock").display().to_string());
    config
}

pub(crate) fn the_standby_is_gone_as_a_whole_before_the_leader_starts_and_the_leader_before_the_standby() {
    let scratch = Scratch::new();
    let (mut world, _) = World::contained(&beside(&scratch, "exec sleep 1000"));
    assert_eq!(world.line(), "standby");
    world.lead(clock::boot());
    assert_eq!(world.line(), "leader");
    world.step_down(7, Reason::StepDown);
    assert_eq!(world.stopped_in_the_end(7), Then::Follow);
    assert_eq!(world.line(), "standby");
    world.tell(&ToInit::Ended { term: Term(1), backoff: None });
    world.tell_lead_of(2, clock::boot());
    assert_eq!(world.line(), "leader");
}

pub(crate) fn a_standby_that_does_not_stop_is_killed_in_time_for_the_leader() {
    let scratch = Scratch::new();
    let config = within(timing(), beside(&scratch, "trap '' TERM; while :; do sleep 1; done"));
    let (mut world, _) = World::contained(&config);
    assert_eq!(world.line(), "standby");
    let a = clock::boot();
    world.lead(a);
    assert_eq!(world.line(), "leader");
    assert!(clock::boot() < world.deadlines(a).soft);
}

pub(crate) fn a_standby_that_fails_is_started_again_and_the_replica_leads_all_the_same() {
    let scratch = Scratch::new();
    let mut config = beside(&scratch, "exit 3");
    config.workload.restart.delay = Duration::from_millis(50);
    let (mut world, _) = World::contained(&config);
    for _ in 0..3 {
        assert_eq!(world.line(), "standby");
    }
    world.begin(clock::boot());
    let said = std::iter::repeat_with(|| world.line()).find(|line| line != "standby");
    assert_eq!(said.as_deref(), Some("leader"));
}

pub(crate) fn init_ends_its_standby_with_its_stop_signal_and_without_its_exit_code() {
    let mut config = config("");
    let script = "trap 'echo asked; exit 9' TERM; trap 'echo heard' USR1; echo starts; while :; do sleep 0.01; done";
    config.standby.command = ["sh", "-c", script].map(str::to_owned).to_vec();
    config.signals.rewrite.standby.insert(Signal(libc::SIGHUP), Some(Signal(libc::SIGUSR1)));
    let (mut world, _) = World::contained(&config);
    assert_eq!(world.line(), "starts");
    world.signal(HUP);
    assert_eq!(world.line(), "heard");
    world.signal(TERM);
    assert_eq!(world.line(), "asked");
    world.tell(&ToInit::Done);
    let (code, _) = world.exit();
    assert_eq!(code, 0);
}
