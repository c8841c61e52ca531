//! Law 3 in the kernel: init is stopped, the test's elector is no guard, and H holds all the same.

use std::{fs, process::Command, thread, time::Duration};

use nix::{
    sched::{CloneFlags, unshare},
    sys::signal::Signal,
};
use support::{not_run, procfs::state, wait_until};
use tenure::{
    clock,
    config::{Acknowledge, Config, OnExit},
    law::Deadlines,
    link::{Reason, Term, ToElector, ToInit},
};

use super::{
    always::{always, notifying, promoted},
    faces::{HEADLESS, JOINER},
    world::{World, config, sleep_until, timing, within},
};

/// Ignores its stop signal, and has a child in its process group.
const STUBBORN: &str = "trap '' TERM; sleep 1000 & echo ready; while :; do sleep 0.01; done";

/// The same in its own session, from which it reports that it is ready, beside a main process that waits.
const DAEMON: &str = "(trap '' TERM; exec setsid sh -c 'echo ready; exec sleep 1000') & exec sleep 1000";

/// The same, whose process group has lost its leader.
const LEADERLESS: &str = "setsid sh -c '(trap \"\" TERM; echo ready; exec sleep 1000) &'; exec sleep 1000";

/// A main process that starts such a daemon when it is promoted.
const STARTS_A_DAEMON_WHEN_PROMOTED: &str =
    "trap \"(trap '' TERM; exec setsid sleep 1000) &\" USR1; echo starts; while :; do sleep 0.01; done";

/// A fuse is a connection of init to itself.
const SOCKETS_OF_A_FUSE: usize = 2;

/// Longer than init looks for new groups after a start.
const LAST_LOOK: Duration = Duration::from_secs(2);

/// Returns whether nothing of the workload runs, reaped or not. A process with SIGKILL pending runs none of its code any more,
/// though a busy machine may take long to remove it.
fn is_dead(world: &World) -> bool {
    let is_killed = |set: &str| u64::from_str_radix(set.trim(), 16).unwrap() & (1 << (libc::SIGKILL - 1)) != 0;
    let tells_of_its_end = |line: &str| match line.split_once(':') {
        Some(("SigPnd" | "ShdPnd", set)) => is_killed(set),
        _ => false,
    };
    // A dead main thread may have left others.
    let is_zombie = |status: &str| status.contains("State:\tZ") && status.contains("Threads:\t1\n");
    let runs = |status: String| !is_zombie(&status) && !status.lines().any(tells_of_its_end);
    !world.others().iter().any(|(pid, _)| fs::read_to_string(format!("/proc/{pid}/status")).is_ok_and(runs))
}

pub(crate) fn init_and_elector_stopped_the_workload_dies_before_e_and_not_before_h() {
    let mut world = World::leading(&within(timing(), config(STUBBORN)));
    let a = clock::boot();
    world.renew(a);
    world.freeze();
    let Deadlines { hard, end, .. } = world.deadlines(a);
    sleep_until(hard.before(Duration::from_secs(1)));
    wait_until("the fuse", || is_dead(&world));
    let dead = clock::boot();
    assert!(dead >= hard && dead < end, "{dead:?}");
    // Before E, init would end itself if its proof took half of the time left.
    sleep_until(end);
    world.signal(Signal::SIGCONT);
    // kill(-1) also killed the elector.
    assert_eq!(world.next_elector().resume.unwrap().stopping, Some(Reason::Expired));
}

/// A workload that starts [`DAEMON`], [`LEADERLESS`], and a session whose only process has lost its main thread.
fn leaving() -> Config {
    let headless = format!("setsid '{}' {HEADLESS}", std::env::current_exe().unwrap().display());
    within(timing(), config(&format!("({DAEMON}) & ({LEADERLESS}) & {headless} & exec sleep 1000")))
}

pub(crate) fn what_left_the_group_dies_too_once_a_renewal_has_passed() {
    renewed_once(World::contained(&leaving()).0, 3);
}

pub(crate) fn the_same_holds_where_init_is_not_pid_1() {
    renewed_once(World::start(&leaving(), false, &[]).0, 3);
}

/// Leads, and renews once so many processes have said that they are ready.
fn renewed_once(mut world: World, ready: usize) {
    world.lead(clock::boot());
    (0..ready).for_each(|_| assert_eq!(world.line(), "ready"));
    let a = clock::boot();
    world.renew(a);
    // The answer comes after the fuses were placed.
    world.beat();
    world.freeze();
    sleep_until(world.deadlines(a).end);
    assert!(is_dead(&world), "{:?}", world.others());
}

pub(crate) fn what_joined_the_process_group_of_init_dies_too_and_init_does_not() {
    let this = std::env::current_exe().unwrap();
    // A child of init. As one of the main process, the end of that would have the kernel continue init.
    let command = format!("('{}' {JOINER} &); exec sleep 1000", this.display());
    // As in a container, init leads a session.
    renewed_once(World::beginning(&within(timing(), config(&command)), &["setsid"]).0, 1);
}

pub(crate) fn what_left_the_group_soon_after_the_start_dies_without_a_renewal() {
    dies_frozen_with_two_fuses(|| World::contained(&within(timing(), config(DAEMON))).0);
}

pub(crate) fn what_left_the_group_soon_after_a_promotion_does_too() {
    let config = within(timing(), always(Acknowledge::None, &["sh", "-c", STARTS_A_DAEMON_WHEN_PROMOTED]));
    dies_frozen_with_two_fuses(|| World::started(&config));
}

/// On a busy machine the daemon may start after the last look: then the test tries again.
fn dies_frozen_with_two_fuses(begin: impl Fn() -> World) {
    for _ in 0..10 {
        let world = begin();
        let (init, before) = (world.init(), sockets(&world));
        let a = clock::boot();
        world.lead(a);
        let looked = clock::boot() + LAST_LOOK;
        // While init sleeps, it is not in the middle of creating one.
        let armed = || sockets(&world) == before + 2 * SOCKETS_OF_A_FUSE && state(init) == Some('S');
        while clock::boot() < looked && !armed() {
            thread::sleep(Duration::from_millis(1));
        }
        if !armed() {
            continue;
        }
        world.freeze();
        sleep_until(world.deadlines(a).end);
        assert!(is_dead(&world), "{:?}", world.others());
        return;
    }
    panic!("never a fuse for each of two groups");
}

fn sockets(world: &World) -> usize {
    let files = fs::read_dir(format!("/proc/{}/fd", world.init())).unwrap();
    let targets = files.filter_map(|file| fs::read_link(file.ok()?.path()).ok());
    targets.filter(|target| target.to_string_lossy().starts_with("socket:")).count()
}

pub(crate) fn an_extension_in_the_link_of_a_stopped_init_comes_too_late_at_h() {
    let mut config = config(STUBBORN);
    config.workload.on_exit = OnExit::Restart;
    let mut world = World::leading(&within(timing(), config));
    let a = clock::boot();
    world.freeze();
    sleep_until(world.deadlines(a).soft);
    world.extend(clock::boot());
    sleep_until(world.deadlines(a).end);
    wait_until("the fuse", || is_dead(&world));
    world.signal(Signal::SIGCONT);
    // kill(-1) also killed the elector.
    assert_eq!(world.next_elector().resume.unwrap().stopping, Some(Reason::Expired));
}

pub(crate) fn a_demoted_workload_outlives_h() {
    let (mut world, _) = promoted(&within(timing(), notifying("obeys")));
    let a = clock::boot();
    world.follows(Reason::StepDown);
    assert_eq!(world.line(), "follows");
    // The answer comes after the fuses are gone, which is the last step of a demotion.
    world.beat();
    let before = world.others().len();
    world.freeze();
    sleep_until(world.deadlines(a).end);
    assert!(!is_dead(&world));
    world.signal(Signal::SIGCONT);
    world.tell(&ToInit::Ended { term: Term(1), backoff: None });
    world.beat();
    assert_eq!(world.others().len(), before);
}

pub(crate) fn one_whose_connection_is_reset_kills_early_and_the_term_ends_with_a_reason_of_its_own() {
    let alone = thread::spawn(|| {
        // The network of this thread, and of what it starts.
        if let Err(error) = unshare(CloneFlags::CLONE_NEWNET) {
            return not_run("a fuse whose connection is reset", error);
        }
        run("ip", &["link", "set", "lo", "up"]);
        let world = World::leading(&config(STUBBORN));
        let a = clock::boot();

        let all_but_resets = ["-A", "INPUT", "-i", "lo", "-p", "tcp", "--tcp-flags", "RST", "NONE"];
        run("iptables", &[&all_but_resets[..], &["-j", "REJECT", "--reject-with", "tcp-reset"]].concat());

        let ToElector::Stopping { reason, .. } = world.hear() else { panic!("no Stopping") };
        assert_eq!(reason, Reason::Fuse);
        assert!(clock::boot() < world.deadlines(a).soft);
        wait_until("its end", || is_dead(&world));
    });
    alone.join().expect("it passes");
}

fn run(program: &str, arguments: &[&str]) {
    assert!(Command::new(program).args(arguments).status().expect("it can be executed").success());
}

/// 150 open files, of 256.
const CROWDED: &str = "ulimit -n 256; for n in $(seq 20 169); do eval \"exec $n</dev/null\"; done; exec \"$@\"";

pub(crate) fn they_leave_room_for_the_next_elector_whatever_was_open_at_the_start() {
    let groups = "for i in $(seq 70); do setsid sleep 1000 & done; echo ready; wait";
    let (mut world, _) = World::beginning(&config(groups), &["bash", "-c", CROWDED, "bash"]);
    world.lead(clock::boot());
    world.line();
    wait_until("the groups", || world.others().len() > 70);
    world.renew(clock::boot());
    nix::sys::signal::kill(world.elector(), Signal::SIGKILL).unwrap();
    assert_eq!(world.next_elector().resume.unwrap().term, Term(1));
}
