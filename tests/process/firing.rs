//! A fuse kills a process group on time, whatever its processes do, and never early.

use std::{os::fd::AsFd as _, time::Duration};

use nix::unistd::{Pid, Uid, setresuid};
use support::{PATIENCE, not_run, wait_until};
use tenure::{
    clock,
    link::Exit,
    process::{
        fuse::Fuse,
        kill,
        scan::Scanner,
        signals,
        spawn::{Outcome, Setup},
    },
    time::Instant,
};

use crate::world::{command, outcome, reap_all, reap_next, setup, shell, shell_with, test_in};

const SOON: Duration = Duration::from_secs(6);

const KILLED: Exit = Exit::Signal(libc::SIGKILL);

/// A fuse that fires at this time, set for the group of two stopped processes that ignore SIGTERM.
fn stopped_pair(at: Instant) -> (Fuse, Pid) {
    let fuse = Fuse::arm(at).expect("a fuse");
    let inherited = signals::block().expect("signals");
    let script = "trap '' TERM; sleep 1000 & kill -STOP 0";
    let main = shell_with(script, &Setup { fuse: Some(fuse.as_fd()), ..setup(inherited) });
    wait_until("it has stopped", || is_stopped(main));
    (fuse, main)
}

fn wait_for(at: Instant) {
    std::thread::sleep(at.since(clock::boot()));
}

fn is_stopped(pid: Pid) -> bool {
    Scanner::open().expect("/proc").look(pid).is_some_and(|process| process.state == b'T')
}

test_in!(Pid1, moved_on_it_does_not_fire_where_it_stood, {
    let first = clock::boot() + SOON;
    let (mut fuse, main) = stopped_pair(first);

    fuse.set(first + SOON * 2).expect("it is moved");

    wait_for(first + SOON);
    assert!(is_stopped(main));
    wait_until("its end", || reap_next() == Some((main, KILLED)));
    assert!(clock::boot() >= (first + SOON * 2).before(SOON / 500));
});

test_in!(Pid1, moved_back_it_fires_at_the_earlier_time, {
    let (mut fuse, main) = stopped_pair(clock::boot() + PATIENCE * 10);
    fuse.bind(main).expect("the group");

    fuse.set(clock::boot() + SOON).expect("it is moved");

    wait_until("its end", || reap_next() == Some((main, KILLED)));
    wait_until("the end of the other", || reap_all() == 1);
});

test_in!(Pid1, dropped_it_kills_nobody_although_a_child_still_holds_its_descriptor, {
    let at = clock::boot() + SOON;
    let (fuse, main) = stopped_pair(at);
    let held = fuse.as_fd().try_clone_to_owned().expect("a descriptor");
    let without_a_group = Fuse::arm(at).expect("a fuse");

    drop(fuse);

    wait_for(at + SOON);
    drop((held, without_a_group));
    assert!(is_stopped(main));
});

test_in!(Pid1, dropped_before_the_child_has_taken_it_it_kills_nobody, {
    let inherited = signals::block().expect("signals");
    for round in 0..100 {
        let fuse = Fuse::arm(clock::boot() + PATIENCE * 10).expect("a fuse");
        let mut spawning =
            command("kill -STOP $$").spawn(&Setup { fuse: Some(fuse.as_fd()), ..setup(inherited) }).expect("a child");

        drop(fuse);

        assert_eq!(outcome(&mut spawning), Outcome::Done);
        wait_until("it has stopped, or ended", || is_stopped(spawning.pid) || reap_all() > 0);
        assert!(is_stopped(spawning.pid), "killed in round {round}");
        let _ = kill::kill_everything();
        wait_until("its end", || reap_all() == 1);
    }
});

test_in!(LateLoopback, what_the_kernel_delivers_late_does_not_set_it_off, {
    if std::env::var_os("LATE").is_none() {
        not_run("a loopback interface that delivers late", "rps_cpus cannot be set");
    }
    let far = clock::boot() + PATIENCE * 10;
    let (_other, main) = stopped_pair(far);

    for round in 0..1_000 {
        let mut fuse = Fuse::arm(far).expect("a fuse");
        fuse.bind(main).expect("the group");
        assert!(is_stopped(main), "killed in round {round}");
    }
});

test_in!(Pid1, it_reaches_neither_another_user_nor_the_init_of_a_nested_namespace, {
    let sleeper = |user: u32| shell(&format!("exec setpriv --reuid={user} sleep 1000"));
    let (nested, other, own) = (shell("exec unshare --pid --fork sleep 1000"), sleeper(65533), sleeper(65534));
    let scanner = Scanner::open().expect("/proc");
    let sleeps = |pid: Pid| {
        let comm = std::fs::read_to_string(format!("/proc/{pid}/comm"));
        comm.is_ok_and(|comm| comm.trim() == "sleep") && scanner.look(pid).is_some_and(|process| process.state != b'Z')
    };
    let children = || std::fs::read_to_string(format!("/proc/{nested}/task/{nested}/children"));
    let inner = || children().ok()?.trim().parse().ok().map(Pid::from_raw);
    wait_until("all of them", || sleeps(other) && sleeps(own) && inner().is_some_and(sleeps));
    let inner = inner().expect("it sleeps");
    let at = clock::boot() + SOON;
    let fuse = |group| {
        let mut fuse = Fuse::arm(at).expect("a fuse");
        fuse.bind(group).expect("the group");
        fuse
    };
    let first = fuse(nested);
    // No more root of the host's user namespace.
    let nobody = Uid::from_raw(65534);
    setresuid(nobody, nobody, nobody).expect("this test needs root");
    let fuses = (first, fuse(other), fuse(own));

    let mut dead = Vec::new();
    wait_until("the ends of two", || {
        dead.extend(reap_next().map(|(pid, _)| pid));
        dead.len() == 2
    });

    dead.sort_unstable();
    drop(fuses);
    assert_eq!(dead, [nested, own]);
    assert!(sleeps(inner) && sleeps(other));
});
