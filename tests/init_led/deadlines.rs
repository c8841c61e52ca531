//! Laws 3, 9 and 15: the deadlines, with a real clock.

use nix::sys::signal::{Signal, kill};
use support::procfs::state;
use tenure::{
    clock,
    link::{Reason, ToElector},
};

use super::world::{World, bash, burdened, config, sleep_until, timing, unhurried, within};

/// Reports when it is asked to stop, and does not stop.
const STUBBORN: &str = "trap 'echo asked' TERM; echo ready; while :; do sleep 0.01; done";

pub(crate) fn an_elector_that_says_nothing_more_costs_the_workload_its_life_before_e() {
    let mut world = World::leading(&within(unhurried(), config(STUBBORN)));
    let deadlines = world.deadlines(clock::boot());
    assert_eq!(world.line(), "asked");
    let asked = clock::boot();
    let stopping = world.hear();
    assert!(matches!(stopping, ToElector::Stopping { reason: Reason::Expired, at, .. } if at <= asked), "{stopping:?}");
    sleep_until(deadlines.end);
    // kill(-1) also killed the elector: the one there now is the next.
    let initial = world.next_elector();
    assert_eq!(initial.resume.unwrap().stopping, Some(Reason::Expired));
    assert_eq!(world.others(), []);
}

pub(crate) fn a_workload_that_floods_init_with_orphans_and_signals_is_killed_in_time_all_the_same() {
    let script = "trap '' TERM RTMIN+5; echo ready; (while :; do (:&); done) & (while :; do (:&); done) &
        while :; do kill -URG 1; kill -RTMIN+5 1; done";
    let mut world = World::leading(&within(burdened(), bash(script)));
    let deadlines = world.deadlines(clock::boot());
    sleep_until(deadlines.end);
    assert_eq!(world.next_elector().resume.unwrap().stopping, Some(Reason::Expired));
    assert_eq!(world.others(), []);
}

pub(crate) fn an_extension_that_waited_while_init_was_stopped_saves_the_workload() {
    let (mut world, _) = World::contained(&within(timing(), config(STUBBORN)));
    let a = clock::boot();
    world.lead(a);
    world.line();
    world.freeze();
    // At H it would be too late.
    sleep_until(world.deadlines(a).soft);
    let acknowledged = world.extend(clock::boot());
    world.passed_on();
    world.signal(Signal::SIGCONT);
    assert_eq!(world.hear(), acknowledged);
    world.step_down(7, Reason::LostToHolder);
    assert_eq!(world.line(), "asked", "and not before");
}

pub(crate) fn init_that_was_stopped_past_h_kills_before_it_does_anything_else() {
    // It is started while init is stopped, so that it has no fuse; and the test's elector is no second guard.
    let daemon = STUBBORN.replace('\'', "\\\"");
    let script = format!("trap \"setsid sh -c '{daemon}' &\" USR1; echo waits; while :; do sleep 0.01; done");
    let mut world = World::leading(&within(timing(), config(&script)));
    let deadlines = world.deadlines(clock::boot());
    world.freeze();
    kill(world.main(), Signal::SIGUSR1).unwrap();
    assert_eq!(world.line(), "ready");
    sleep_until(deadlines.end);
    assert!(world.others().iter().any(|(pid, _)| state(*pid) != Some('Z')));
    world.signal(Signal::SIGCONT);
    let initial = world.next_elector();
    assert_eq!(initial.resume.unwrap().stopping, Some(Reason::Expired));
    world.step_down(1, Reason::Expired);
    world.stopped_in_the_end(1);
    assert_eq!(world.others(), []);
    let acknowledged = world.extend(clock::boot());
    world.tell(&tenure::link::ToInit::Heartbeat);
    let heard = world.hear();
    assert!(heard == ToElector::Heartbeat && heard != acknowledged, "{heard:?}");
}
