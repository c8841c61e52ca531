//! The hooks around a leader with real processes (`runs: leading`).

use std::fs;

use support::{Scratch, wait_until};
use tenure::{
    clock,
    config::{Config, Hooks},
    link::Reason,
};

use super::world::{World, config, hook};

/// A workload, and a script for each hook, in the order in which they run.
pub(super) fn hooked(workload: &str, scripts: [&str; 4]) -> Config {
    let mut config = config(workload);
    let [before_lead, after_lead, before_follow, after_follow] = scripts.map(hook);
    config.hooks = Hooks { before_lead, after_lead, before_follow, after_follow };
    config
}

pub(crate) fn the_hooks_around_a_leader_run_in_order_and_know_what_they_are_for() {
    let scratch = Scratch::new();
    let log = scratch.join("log");
    let say = |words: &str| format!("echo {words} >>{}", log.display());
    let tells = "$TENURE_ROLE $TENURE_FENCING_TOKEN $TENURE_REASON $TENURE_EXIT_CODE $TENURE_EXIT_SIGNAL";
    let hooks = ["beforeLead", "afterLead", "beforeFollow", "afterFollow"].map(|name| say(&format!("{name} {tells}")));
    let workload = format!("trap '{}; exit 9' TERM; {}; while :; do sleep 0.01; done", say("stops"), say("starts"));
    let (world, _) = World::contained(&hooked(&workload, hooks.each_ref().map(String::as_str)));
    let said = || fs::read_to_string(&log).unwrap_or_default();

    world.lead(clock::boot());
    wait_until("it handles its stop", || said().contains("starts"));
    world.follows(Reason::StepDown);
    wait_until("the last one has run", || said().contains("afterFollow"));

    let lines = said();
    let mut lines: Vec<_> = lines.lines().map(str::trim_end).collect();
    // The workload and what follows its start run beside each other.
    lines[1..3].sort_unstable();
    assert_eq!(
        lines,
        [
            "beforeLead leader 17",
            "afterLead leader 17",
            "starts",
            "beforeFollow standby 17 step-down",
            "stops",
            "afterFollow standby 17 step-down 9",
        ]
    );
    wait_until("nothing is left", || world.others().is_empty());
}

/// Ends the leader by SIGTERM; what was logged, without its times.
fn logged(world: World) -> Vec<String> {
    let (code, said) = world.end_by_term();
    assert_eq!(code, 0, "{said}");
    let mut lines: Vec<_> = said.lines().map(|line| line.split_once(' ').unwrap().1.trim_start().to_owned()).collect();
    assert!(lines.pop().is_some_and(|last| last.starts_with("INFO exiting with 0")), "{said}");
    lines
}

pub(crate) fn what_a_hook_prints_is_logged_line_by_line_with_its_name() {
    let workload = "trap 'exit 0' TERM; echo starts; while :; do sleep 0.01; done";
    let long = "head -c 100000 /dev/zero | tr '\\0' x; echo; printf 'a\\033[31mred\\r\\n\\n'; printf unended";
    let (mut world, _) = World::contained(&hooked(workload, [&format!("echo out; echo err >&2; {long}"), "", "echo drains", ""]));
    world.lead(clock::boot());
    assert_eq!(world.line(), "starts");

    let lines = logged(world);

    let cut = format!("INFO hook beforeLead: {}…", "x".repeat(1024 - "…".len()));
    let before = ["INFO hook beforeLead: out", "INFO hook beforeLead: err", &cut, "INFO hook beforeLead: a\u{fffd}[31mred"];
    assert_eq!(lines, [&before[..], &["INFO hook beforeLead: unended", "INFO hook beforeFollow: drains"]].concat());
}

pub(crate) fn a_hook_that_prints_without_end_waits_for_nobody_and_what_is_too_much_is_counted() {
    let workload = "trap 'exit 0' TERM; echo starts; while :; do sleep 0.01; done";
    let (mut world, _) = World::contained(&hooked(workload, ["yes | head -n 1000000", "", "", ""]));
    world.lead(clock::boot());
    assert_eq!(world.line(), "starts");

    let lines = logged(world);

    let (said, counts): (Vec<_>, Vec<_>) = lines.iter().partition(|line| *line == "INFO hook beforeLead: y");
    let count = |line: &&String| -> usize {
        let count = line.strip_prefix("INFO hook beforeLead: (").and_then(|line| line.split_once(" more lines were dropped"));
        count.unwrap_or_else(|| panic!("{line}")).0.parse().unwrap()
    };
    assert_eq!(said.len() + counts.iter().map(count).sum::<usize>(), 1_000_000);
    assert!((100..=10_000).contains(&said.len()), "{}", said.len());
}

pub(crate) fn what_a_hook_leaves_running_prints_on_and_holds_up_neither_its_end_nor_the_proof() {
    let scratch = Scratch::new();
    let [there, started, said] = ["there", "started", "said"].map(|name| scratch.join(name).display().to_string());
    let wait = |file: &str| format!("until test -e {file}; do sleep 0.01; done");
    let daemon = format!("touch {there}; {}; echo late; touch {said}; exec sleep 1000", wait(&started));
    let hook = format!("echo early; setsid sh -c '{daemon}' & {}", wait(&there));
    let workload = format!("trap 'exit 0' TERM; touch {started}; {}; echo starts; while :; do sleep 0.01; done", wait(&said));
    let (mut world, _) = World::contained(&hooked(&workload, [&hook, "", "", ""]));
    world.lead(clock::boot());
    assert_eq!(world.line(), "starts");

    assert_eq!(logged(world), ["INFO hook beforeLead: early", "INFO hook beforeLead: late"]);
}
