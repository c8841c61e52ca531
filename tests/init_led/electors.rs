//! Law 10: the elector is replaced, the workload stays.

use std::fs;

use nix::sys::signal::{Signal, kill};
use support::{procfs::state, wait_until};
use tenure::{
    clock,
    link::{Reason, Term, ToInit},
};

use super::world::{World, config, info, patient, timing, within};

const OBEDIENT: &str = "echo ready; exec sleep 600";

pub(crate) fn the_workload_does_not_notice_that_its_elector_was_killed() {
    let (mut world, first) = World::contained(&config(OBEDIENT));
    let a = clock::boot();
    world.lead(a);
    let pids = |world: &World| world.others().into_iter().map(|(pid, _)| pid).collect::<Vec<_>>();
    let before = pids(&world);
    kill(world.elector(), Signal::SIGKILL).unwrap();
    let next = world.next_elector();
    assert_eq!((first.generation, next.generation, next.identity == first.identity), (1, 2, true));
    assert_eq!(next.config.timing(), patient());
    let resume = next.resume.unwrap();
    assert_eq!((resume.term, resume.info, resume.stopping), (Term(1), info(), None));
    assert_eq!(resume.confirmed, world.confirmed(a));
    assert_eq!(pids(&world), before);
    world.renew(clock::boot());
    world.follows(Reason::StepDown);
}

pub(crate) fn an_elector_that_was_stopped_is_killed_with_its_plugins_and_replaced() {
    let (mut world, _) = World::contained(&within(timing(), config(OBEDIENT)));
    world.start_plugin();
    wait_until("it has a plugin", || !world.others().is_empty());
    let stopped = world.elector();

    kill(stopped, Signal::SIGSTOP).unwrap();

    let next = world.next_elector();
    assert_eq!((next.generation, next.resume), (2, None));
    wait_until("the stopped one is gone", || state(stopped).is_none());
    wait_until("its plugin too", || world.others().is_empty());
}

pub(crate) fn one_that_speaks_nonsense_is_replaced() {
    let (mut world, _) = World::contained(&config(OBEDIENT));
    world.lead(clock::boot());
    world.tell_nonsense();
    assert_eq!(world.next_elector().generation, 2);
    assert_eq!(world.others().len(), 1);
}

pub(crate) fn why_init_kills_one_is_in_the_log() {
    let (mut silent, _) = World::contained(&within(timing(), config(OBEDIENT)));
    kill(silent.elector(), Signal::SIGSTOP).unwrap();
    silent.next_elector();
    let (mut speaks, _) = World::contained(&config(OBEDIENT));
    speaks.tell_nonsense();
    speaks.next_elector();
    speaks.lead(clock::boot());
    speaks.tell(&ToInit::GaveUp { code: 1, message: String::new() });
    speaks.next_elector();

    let [silent, speaks] = [silent, speaks].map(|world| {
        world.signal(Signal::SIGKILL);
        world.exit().1
    });

    assert!(silent.contains("the elector, the process that renews the Lease, was silent for 14s and is killed"), "{silent}");
    assert!(speaks.contains("a link message of 9 bytes does not decode"), "{speaks}");
    assert!(speaks.contains("the elector gave up within a term, and is killed"), "{speaks}");
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
