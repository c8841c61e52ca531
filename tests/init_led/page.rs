//! The term in memory, as a workload reads it.

use std::time::Duration;

use support::{Scratch, wait_until};
use tenure::{
    clock,
    config::{Acknowledge, Config},
    law::Deadlines,
    link::{Reason, Then},
    time::Instant,
};

use super::{
    always::{STARTS, always, hooked},
    faces::READER,
    hooks,
    world::{World, config, patient, shell, timing, within},
};

/// The program that users run.
const TENURE: &str = env!("CARGO_BIN_EXE_tenure");

#[track_caller]
fn assert_leads(line: &str, soft: Instant, hard: Instant, renewals: u64) {
    const APART: Duration = Duration::from_millis(10);
    let numbers: Vec<u64> = line.split(' ').map(|number| number.parse().unwrap()).collect();
    let [1, 4, shown_soft, shown_hard, 17, renewed] = numbers[..] else { panic!("{line}") };
    for (shown, expected) in [(shown_soft, soft), (shown_hard, hard)] {
        let (now, shown) = (clock::boottime(), Duration::from_nanos(shown));
        let instant = (clock::boot() + shown.saturating_sub(now)).before(now.saturating_sub(shown));
        let is_none = expected == Instant::BOOT;
        assert_eq!(shown.is_zero(), is_none, "{line}");
        assert!(is_none || instant < expected + APART && expected < instant + APART, "{line}: {expected:?}, not {instant:?}");
    }
    assert_eq!(renewed, renewals, "{line}");
}

fn reading() -> Config {
    let mut config = config("");
    config.workload.command = vec![std::env::current_exe().unwrap().display().to_string(), READER.into()];
    config
}

/// The next line that a reader says of its signal.
fn signalled(world: &mut World) -> String {
    std::iter::repeat_with(|| world.line()).find_map(|line| Some(line.strip_prefix("signalled ")?.to_owned())).unwrap()
}

pub(crate) fn a_workload_reads_what_init_enforces_and_cannot_write_it() {
    let (mut world, _) = World::contained(&reading());
    let began = clock::boot();
    world.lead(began);
    assert_eq!(world.line(), "100, EPERM EPERM EPERM");
    let Deadlines { soft, hard, .. } = world.deadlines(began);
    assert_leads(&world.line(), soft, hard, 0);

    let renewed = clock::boot();
    world.renew(renewed);

    let Deadlines { soft, hard, .. } = world.deadlines(renewed);
    assert_leads(&world.line(), soft, hard, 1);

    world.step_down(7, Reason::StepDown);
    assert_leads(&signalled(&mut world), Instant::BOOT, hard, 1); // when the stop signal has come
    let renewed = clock::boot();
    world.extend(renewed);
    assert_leads(&world.line(), Instant::BOOT, world.deadlines(renewed).hard, 2); // the Lease is kept for the stop
    world.step_down(8, Reason::LostToHolder);
    assert_leads(&world.line(), Instant::BOOT, Instant::BOOT, 2);
}

pub(crate) fn a_workload_that_always_runs_reads_of_one_term_after_the_other() {
    let mut config = always(Acknowledge::None, &[]);
    config.workload.command = reading().workload.command;
    let (mut world, _) = World::contained(&config);
    assert_eq!(world.line(), "100, EPERM EPERM EPERM");
    assert_eq!(world.line(), "0 0 0 0 0 0");

    let began = clock::boot();
    world.lead(began);

    let Deadlines { soft, hard, .. } = world.deadlines(began);
    assert_leads(&signalled(&mut world), soft, hard, 0); // when it is told to lead
    world.step_down(7, Reason::StepDown);
    let told = signalled(&mut world);
    assert_eq!(told.split(' ').nth(2), Some("0"), "{told}: when it is told to follow");
    assert_eq!(world.stopped(7), Then::Follow);
    let standby = "0 0 0 0 0 0";
    assert!(told == standby || std::iter::repeat_with(|| world.line()).any(|line| line == standby));
}

pub(crate) fn nobody_else_has_it() {
    let scratch = Scratch::new();
    let seen = scratch.join("seen");
    let list = "echo ${TENURE_TERM_FD-none} $(test -e /proc/self/fd/100 && echo open)";
    let mut config = hooked(&STARTS, "true", "true");
    config.workload.readiness.exec.command = shell(&format!("{list} >{}", seen.display()));
    config.workload.command[2] = format!("{list}; exec sleep 600");
    let (mut world, _) = World::contained(&config);
    assert_eq!(world.line(), "100 open");
    let said = || std::fs::read_to_string(&seen).unwrap_or_default();
    wait_until("a probe has run", || said().ends_with('\n'));
    assert_eq!(said(), "none\n");
}

pub(crate) fn where_there_is_none_it_is_said_once_and_the_workload_runs() {
    let config = within(patient(), config("echo ${TENURE_TERM_FD-none}; exec sleep 600"));
    let (mut world, _) = World::beginning(&config, &["prlimit", "--nofile=100:100"]);
    world.lead(clock::boot());
    assert_eq!(world.line(), "none");
    let (_, said) = world.end_by_term();
    assert_eq!(said.matches("there is no TENURE_TERM_FD: the limit on open files").count(), 1, "{said}");
}

pub(crate) fn a_frozen_init_lets_nobody_believe_that_it_is_held_past_h() {
    let script = format!(
        "while '{TENURE}' held --for 3s; code=$?; [ $code = 0 ]; do [ $said ] || echo held; said=1; done; echo over $code; exec sleep 600"
    );
    let (mut world, _) = World::contained(&within(timing(), config(&script)));
    let began = clock::boot();
    world.lead(began);
    assert_eq!(world.line(), "held");
    world.freeze();

    assert_eq!(world.line(), "over 1");

    let (now, hard) = (clock::boot(), world.deadlines(began).hard);
    assert!(now + Duration::from_secs(3) >= hard && now < hard, "{:?} before H", hard.since(now));
}

pub(crate) fn hooks_read_until_when_they_may_act() {
    let scratch = Scratch::new();
    let log = scratch.join("log");
    let ask = |name: &str| format!("'{TENURE}' held; echo {name} $? >>{}", log.display());
    let hooks = ["beforeLead", "afterLead", "beforeFollow", "afterFollow"].map(ask);
    let workload = format!("echo starts >>{}; exec sleep infinity", log.display());
    let (world, _) = World::contained(&hooks::hooked(&workload, hooks.each_ref().map(String::as_str)));
    let said = || std::fs::read_to_string(&log).unwrap_or_default();

    world.lead(clock::boot());
    wait_until("it runs", || said().contains("starts") && said().contains("afterLead"));
    world.follows(Reason::StepDown);
    wait_until("the last one has run", || said().contains("afterFollow"));

    let said = said();
    let answers: Vec<_> = said.lines().filter(|line| *line != "starts").collect();
    assert_eq!(answers, ["beforeLead 0", "afterLead 0", "beforeFollow 0", "afterFollow 1"]);
}
