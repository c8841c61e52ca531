//! A fuse kills a process group on time, whatever its processes do, and never early.

use std::{os::fd::AsFd as _, time::Duration};

use nix::unistd::{Pid, getpid};
use tenure::{
    clock,
    link::Exit,
    process::{
        fuse::{Fuse, FuseError},
        kill, reap,
        scan::{Scanner, Scope, Spare},
        signals,
        spawn::{Outcome, Place, Setup},
    },
    time::Instant,
};

use crate::{
    wait::{PATIENCE, wait_until},
    world::{command, outcome, reap_all, setup, shell_with, test_in},
};

const SOON: Duration = Duration::from_secs(6);

const KILLED: Exit = Exit::Signal(libc::SIGKILL);

/// Two processes that ignore SIGTERM, stopped; the fuse is set for their group.
fn stopped_pair(fuse: &Fuse) -> Pid {
    let inherited = signals::block().expect("signals");
    let script = "trap '' TERM; sleep 1000 & kill -STOP 0";
    let main = shell_with(script, &Setup { fuse: Some(fuse.as_fd()), place: Place::Group, ..setup(inherited) });
    let scanner = Scanner::open().expect("/proc");
    wait_until("it has stopped", || scanner.look(main).is_some_and(|main| main.state == b'T'));
    main
}

fn wait_for(at: Instant) {
    std::thread::sleep(at.since(clock::boot()));
}

fn is_stopped(pid: Pid) -> bool {
    Scanner::open().expect("/proc").look(pid).is_some_and(|process| process.state == b'T')
}

test_in!(Pid1, a_stopped_group_dies_at_the_time_and_not_before, {
    let at = clock::boot() + SOON;
    let fuse = Fuse::light(at).expect("a fuse");
    let main = stopped_pair(&fuse);

    wait_until("its end", || reap::next(|_| {}) == Some((main, KILLED)));

    assert!(clock::boot() >= at);
    wait_until("the end of the other", || reap_all() == 1);
});

test_in!(Pid1, moved_on_it_does_not_fire_where_it_stood, {
    let first = clock::boot() + SOON;
    let mut fuse = Fuse::light(first).expect("a fuse");
    let main = stopped_pair(&fuse);

    fuse.set(first + SOON * 2).expect("it is moved");

    wait_for(first + SOON);
    assert!(is_stopped(main));
    wait_until("its end", || reap::next(|_| {}) == Some((main, KILLED)));
    assert!(clock::boot() >= first + SOON * 2);
});

test_in!(Pid1, moved_back_it_fires_at_the_earlier_time, {
    let mut fuse = Fuse::light(clock::boot() + PATIENCE * 10).expect("a fuse");
    let main = stopped_pair(&fuse);
    fuse.bind(main).expect("the group");

    fuse.set(clock::boot() + SOON).expect("it is moved");

    wait_until("its end", || reap::next(|_| {}) == Some((main, KILLED)));
});

test_in!(Pid1, dropped_it_kills_nobody_although_a_child_still_holds_its_descriptor, {
    let at = clock::boot() + SOON;
    let fuse = Fuse::light(at).expect("a fuse");
    let main = stopped_pair(&fuse);
    let held = fuse.as_fd().try_clone_to_owned().expect("a descriptor");

    drop(fuse);

    wait_for(at + SOON);
    drop(held);
    assert!(is_stopped(main));
});

test_in!(Pid1, dropped_before_the_child_has_taken_it_it_kills_nobody, {
    let inherited = signals::block().expect("signals");
    for round in 0..100 {
        let fuse = Fuse::light(clock::boot() + PATIENCE * 10).expect("a fuse");
        let mut spawning = command("kill -STOP $$")
            .spawn(&Setup { fuse: Some(fuse.as_fd()), place: Place::Group, ..setup(inherited) })
            .expect("a child");

        drop(fuse);

        assert_eq!(outcome(&mut spawning), Outcome::Done);
        wait_until("it has stopped, or ended", || is_stopped(spawning.pid) || reap_all() > 0);
        assert!(is_stopped(spawning.pid), "killed in round {round}");
        let _ = kill::kill_everything();
        wait_until("its end", || reap_all() == 1);
    }
});

test_in!(Pid1, it_is_not_meant_for_who_left_the_group, {
    let mut fuse = Fuse::light(clock::boot() + PATIENCE * 10).expect("a fuse");
    let inherited = signals::block().expect("signals");
    let script = "setsid sleep 1000 & exec sleep 1000";
    let main = shell_with(script, &Setup { fuse: Some(fuse.as_fd()), ..setup(inherited) });
    fuse.bind(main).expect("the group");
    let mut scanner = Scanner::open().expect("/proc");
    wait_until("one has left", || {
        let found = scanner.find(Scope::Namespace, Spare { init: getpid(), electors: &[] }).expect("a scan");
        found.targets.iter().any(|process| process.session == process.pid)
    });

    fuse.set(clock::boot() + SOON).expect("it is moved");

    wait_until("its end", || reap::next(|_| {}) == Some((main, KILLED)));

    let left = kill::is_alone().expect("PID 1");
    assert!(!left, "the one in a session of its own lives");
    let _ = kill::kill_everything();
});

test_in!(Pid1, a_fuse_without_a_group_kills_nobody, {
    let at = clock::boot() + SOON;
    let unbound = Fuse::light(at).expect("a fuse");
    let other = Fuse::light(at + PATIENCE * 10).expect("a fuse");
    let main = stopped_pair(&other);

    wait_for(at + SOON);

    assert!(is_stopped(main));
    drop(unbound);
});

test_in!(Pid1, set_to_the_time_that_it_has_it_does_not_fire_before, {
    let at = clock::boot() + SOON * 2;
    let mut fuse = Fuse::light(at).expect("a fuse");
    let main = stopped_pair(&fuse);
    fuse.bind(main).expect("the group");

    fuse.set(at).expect("it stands");

    wait_until("its end", || reap::next(|_| {}) == Some((main, KILLED)));
    assert!(clock::boot() >= at);
});

test_in!(LateLoopback, what_the_kernel_delivers_late_does_not_set_it_off, {
    let far = clock::boot() + PATIENCE * 10;
    let other = Fuse::light(far).expect("a fuse");
    let main = stopped_pair(&other);

    for round in 0..1_000 {
        let mut fuse = Fuse::light(far).expect("a fuse");
        fuse.bind(main).expect("the group");
        assert!(is_stopped(main), "killed in round {round}");
    }
});

test_in!(LateLoopback, none_is_lit_where_it_would_fire_early, {
    std::fs::write("/proc/sys/net/ipv4/tcp_retries2", "3").expect("a setting of this network namespace");

    let refused = Fuse::light(clock::boot() + SOON);

    assert!(matches!(refused, Err(FuseError::Impatient(3))), "{refused:?}");
});
