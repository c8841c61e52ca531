//! Law 10: the elector is replaced, the workload stays.

use std::fs;

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tenure::{
    clock,
    link::{Reason, Term, Then},
};

use super::{
    procfs::state,
    wait::wait_until,
    world::{World, config, confirmed, facts, patient, timing},
};

const OBEDIENT: &str = "echo ready; exec sleep 600";

pub(crate) fn the_workload_does_not_notice_that_its_elector_was_killed() {
    let (mut world, first) = World::contained(&config(OBEDIENT));
    let a = clock::boot();
    world.lead(patient(), a);
    let before = world.others();
    kill(world.elector(), Signal::SIGKILL).unwrap();
    let next = world.next_elector();
    assert_eq!((first.generation, next.generation, next.identity == first.identity), (1, 2, true));
    let resume = next.resume.unwrap();
    assert_eq!((resume.term, resume.facts, resume.timing, resume.stopping), (Term(1), facts(), patient(), None));
    assert_eq!(resume.confirmed, confirmed(patient(), a));
    assert_eq!(pids(&world.others()), pids(&before));
    let acknowledged = world.extend(patient(), clock::boot());
    assert_eq!(world.hear(), acknowledged);
    world.step_down(1, Reason::StepDown);
    assert_eq!(world.stopped(1), Then::Follow);
}

pub(crate) fn an_elector_that_was_stopped_is_killed_and_replaced() {
    let mut config = config(OBEDIENT);
    config.lease.duration = timing().duration;
    let (mut world, _) = World::contained(&config);
    world.lead(patient(), clock::boot());
    let stopped = world.elector();
    kill(stopped, Signal::SIGSTOP).unwrap();
    let next = world.next_elector();
    assert_eq!((next.generation, next.resume.unwrap().stopping), (2, None));
    wait_until("the stopped one is gone", || state(stopped).is_none());
    assert_eq!(world.others().len(), 1);
}

pub(crate) fn the_plugins_of_a_stopped_elector_die_with_it() {
    let mut config = config(OBEDIENT);
    config.lease.duration = timing().duration;
    let (mut world, _) = World::contained(&config);
    world.lead(patient(), clock::boot());
    let workload = pids(&world.others());
    world.start_plugin();
    wait_until("it has a plugin", || world.others().len() > workload.len());

    kill(world.elector(), Signal::SIGSTOP).unwrap();

    world.next_elector();
    wait_until("the workload is alone", || pids(&world.others()) == workload);
}

pub(crate) fn one_that_speaks_nonsense_is_replaced() {
    let (mut world, _) = World::contained(&config(OBEDIENT));
    world.lead(patient(), clock::boot());
    world.tell_nonsense();
    assert_eq!(world.next_elector().generation, 2);
    assert_eq!(world.others().len(), 1);
}

pub(crate) fn it_has_a_session_of_its_own_and_no_standard_input() {
    let (world, _) = World::contained(&config(OBEDIENT));
    let elector = world.elector();
    let stat = fs::read_to_string(format!("/proc/{elector}/stat")).unwrap();
    let fields: Vec<i32> =
        stat.rsplit_once(") ").unwrap().1.split_whitespace().skip(1).take(4).map(|n| n.parse().unwrap()).collect();
    let [_, group, session, terminal] = fields[..] else { panic!("{stat}") };
    assert!(group == session && terminal == 0, "{stat}");
    assert_eq!(fs::read_link(format!("/proc/{elector}/fd/0")).unwrap().to_str(), Some("/dev/null"));
    let descriptors = fs::read_dir(format!("/proc/{elector}/fd")).unwrap().count();
    assert_eq!(descriptors, 5, "standard ones, the link, and what the test's elector opened");
}

fn pids(processes: &[(Pid, String)]) -> Vec<Pid> {
    processes.iter().map(|(pid, _)| *pid).collect()
}
