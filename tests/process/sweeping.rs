//! KillSweeps leave no process behind, spare those that they must, and report those that do not die.

use std::time::Duration;

use nix::unistd::{Pid, Uid, getppid, setresuid};
use support::{PATIENCE, wait_for, wait_until};
use tenure::{
    config::Signal,
    link::Exit,
    process::{
        kill::{self, KillSweep, Left, Verdict},
        reap,
        scan::{Scanner, Scope, Spare},
        signals,
        spawn::{ProcessGroup, Setup},
    },
};

use crate::world::{count, reap_all, reap_next, setup, shell, shell_with, spare, test_in};

test_in!(Pid1, two_hundred_daemonised_processes_that_ignore_term_are_gone_and_reaped, {
    shell("trap '' TERM; for i in $(seq 200); do setsid -f sleep 1000; done; exec sleep 1000");
    let look = || KillSweep::open().expect("/proc").look(Scope::Namespace, spare(&[])).expect("a scan");
    // While setsid forks there is one more, and while it ends one less.
    wait_until("201 processes, all named", || matches!(look(), Verdict::Left(Left { pids, .. }) if pids.len() == 201));

    let left = sweep(Scope::Namespace, &[]);

    assert_eq!(left, None);
    assert!(kill::is_alone().expect("PID 1"));
});

test_in!(Pid1, a_look_at_what_is_frozen_reads_one_file_of_each_process, {
    for _ in 0..20 {
        shell("exec sleep 1000");
    }
    let mut sweep = KillSweep::open().expect("/proc");
    let frozen = wait_for("all to be stopped", || sweep.freeze(spare(&[])).expect("a scan"));
    let reads = || {
        let io = std::fs::read_to_string("/proc/thread-self/io").expect("CONFIG_TASK_IO_ACCOUNTING");
        io.lines().find_map(|line| line.strip_prefix("syscr: ")?.parse::<usize>().ok()).expect("a number")
    };

    let none = reads();
    let cost_of_asking = reads() - none;
    let before = reads();
    let stopped = sweep.scanner.stopped(&frozen).expect("they are");
    let cost = reads() - before - cost_of_asking;

    assert_eq!((stopped.len(), cost), (20, 20));
});

test_in!(Pid1, what_is_frozen_is_known_and_nobody_else_is_looked_at, {
    let frozen = shell("exec sleep 1000");
    let mut sweep = KillSweep::open().expect("/proc");
    let known = wait_for("it is stopped", || sweep.freeze(spare(&[])).expect("a scan"));
    let stray = shell("exec sleep 1000");

    let beside_a_stray = sweep.scanner.stopped(&known);
    kill::send(frozen, Signal::CONT).expect("it lives");
    let continued = sweep.scanner.stopped(&known);
    kill::send(frozen, Signal::KILL).expect("it lives");
    wait_until("its end", || reap_all() > 0);
    let gone = sweep.scanner.stopped(&known);

    assert_eq!((beside_a_stray, continued, gone), (Some(vec![frozen]), None, Some(Vec::new())));
    assert!(!Scanner::open().expect("/proc").look(stray).expect("it lives").is_stopped());
});

test_in!(Pid1, a_bomb_that_respawns_falls_to_one_kill_of_everything, {
    // Fifty chains, in which every process forks its successor and ends.
    shell("next() { next & }; for chain in $(seq 50); do next & done");
    // A look at /proc may miss all of them: that many have ended, and that more still end, is what shows a bomb. On an idle machine
    // there is no end of what can be reaped before dash's thousandth generation, which is the last.
    let mut ended = 0;
    wait_until("a bomb that respawns", || {
        let now = std::iter::from_fn(reap_next).take(100).count();
        ended += now;
        ended > 500 && now > 0
    });

    kill::kill_everything().expect("PID 1 may");

    wait_until("nobody", || reap_all() == 0 && kill::is_alone().expect("PID 1"));
});

test_in!(Pid1, the_elector_and_its_plugins_are_spared_and_go_on_running, {
    let elector = elector("sleep 1000 & setsid -f sleep 1000; wait");
    shell("exec sleep 1000");
    let mut scanner = Scanner::open().expect("/proc");
    wait_until("a plugin in the session and one out of it", || {
        let found = scanner.find(Scope::Namespace, spare(&[])).expect("a scan");
        found.targets.len() == 4 && found.targets.iter().filter(|process| process.session == elector).count() == 2
    });

    let left = sweep(Scope::Namespace, &[elector]);

    let found = scanner.find(Scope::Namespace, spare(&[])).expect("a scan");
    assert_eq!(left, None);
    assert_eq!(found.targets.len(), 2, "the plugin that left the session is no plugin: {found:?}");
    assert!(found.targets.iter().all(|process| process.session == elector && process.state != b'T'), "{found:?}");
});

test_in!(Pid1, a_look_kills_nobody_and_proves_as_a_pass_does, {
    let elector = elector("exec sleep 1000");
    let child = shell("exec sleep 1000");
    let mut sweep = KillSweep::open().expect("/proc");

    let before = [(); 4].map(|()| sweep.look(Scope::Namespace, spare(&[elector])).expect("a scan"));
    let lives = reap::peek() == Ok(None);
    kill::send(child, Signal::KILL).expect("it lives");
    wait_until("its end", || reap_next().is_some());
    let after = sweep.look(Scope::Namespace, spare(&[elector])).expect("a scan");

    assert!(before.iter().all(|verdict| *verdict == Verdict::Left(Left { pids: vec![child], refused: false })));
    assert!(lives);
    assert_eq!(after, Verdict::Proved);
});

test_in!(Pid1, where_proc_hides_processes_only_being_alone_is_a_proof, {
    use nix::mount::{MsFlags, mount};
    mount(None::<&str>, "/proc", None::<&str>, MsFlags::MS_REMOUNT, Some("hidepid=2")).expect("this test needs root");
    let elector = elector("exec sleep 1000");
    let mut sweep = KillSweep::open().expect("/proc");

    let spared = sweep.pass(Scope::Namespace, spare(&[elector])).expect("a scan");
    kill::kill_everything().expect("PID 1");
    wait_until("its end", || reap_next().is_some());
    let alone = sweep.pass(Scope::Namespace, spare(&[])).expect("a scan");

    assert_eq!(spared, Verdict::Left(Left::default()));
    assert_eq!(alone, Verdict::Proved);
});

test_in!(Pid1, pid_1_itself_is_nobody_s_second_guard, {
    let refused = kill::kill_everything_but_init().err();
    assert_eq!(refused.and_then(|error| error.raw_os_error()), Some(libc::EPERM));
});

test_in!(Child, the_second_guard_kills_everything_but_pid_1_and_itself, {
    shell("for i in $(seq 20); do setsid -f sleep 1000; done; exec sleep 1000");
    wait_until("the stranger and 21 more", || count_all() == 24);

    kill::kill_everything_but_init().expect("a child of PID 1 may");

    wait_until("two to be left", || {
        reap_all();
        count_all() == 2
    });
});

test_in!(Pid1, a_zombie_is_not_gone, {
    let child = shell("exit 3");
    wait_until("a zombie", || reap::peek() == Ok(Some(child)));
    let mut sweep = KillSweep::open().expect("/proc");

    let before = sweep.pass(Scope::Namespace, spare(&[])).expect("a scan");
    assert!(Scanner::open().expect("/proc").look(child).is_some(), "still there");
    let reaped = reap_next();
    let after = sweep.pass(Scope::Namespace, spare(&[])).expect("a scan");

    assert_eq!(before, Verdict::Left(Left { pids: vec![child], refused: false }));
    assert_eq!(reaped, Some((child, Exit::Code(3))));
    assert_eq!(after, Verdict::Proved);
});

test_in!(Pid1, a_real_time_signal_is_a_status_like_any_other, {
    let child = shell("kill -40 $$");
    wait_until("its end", || reap_next() == Some((child, Exit::Signal(40))));
});

test_in!(Pid1, processes_that_may_not_be_killed_are_named, {
    let child = shell("exec sleep 1000");
    let nobody = Uid::from_raw(65534);
    setresuid(nobody, nobody, nobody).expect("this test needs root");

    let verdict = KillSweep::open().expect("/proc").pass(Scope::Namespace, spare(&[])).expect("a scan");

    assert_eq!(verdict, Verdict::Left(Left { pids: vec![child], refused: true }));
    assert!(!kill::is_alone().expect("PID 1"));
});

test_in!(Child, outside_of_pid_1_all_descendants_go_and_strangers_stay, {
    nix::sys::prctl::set_child_subreaper(true).expect("a subreaper");
    let elector = elector("exec sleep 1000");
    shell("for i in $(seq 20); do setsid -f sh -c 'trap \"\" TERM; sleep 1000 & wait'; done; exec sleep 1000");
    wait_until("42 descendants", || count(Scope::Descendants) == 42);
    let others = Scope::Leftovers { entry: "none", group: Some(nix::unistd::getpgrp()), known: &[] };

    let left = sweep(Scope::Descendants, &[elector]);

    assert_eq!((left, count(Scope::Descendants)), (None, 1));
    let mut scanner = Scanner::open().expect("/proc");
    let strangers = scanner.find(others, spare(&[elector])).expect("a scan");
    assert!(strangers.targets.iter().any(|process| process.parent == getppid()), "{strangers:?}");
});

test_in!(Child, strangers_that_come_and_go_do_not_hold_up_a_proof, {
    let churn = "while :; do (:) & (:) & (:) & wait; done";
    for _ in 0..4 {
        shell(&format!("setsid -f sh -c '{churn}'"));
    }
    wait_until("four to leave strangers behind", || {
        reap_all() > 0 && reap::peek().ok().flatten().is_none() && count(Scope::Descendants) == 0
    });
    nix::sys::prctl::set_child_subreaper(true).expect("a subreaper");
    let mut passes = KillSweep::open().expect("/proc");

    let verdicts = (0..200).map(|_| passes.pass(Scope::Descendants, spare(&[])).expect("a scan")).collect::<Vec<_>>();

    let proved = verdicts.iter().filter(|verdict| **verdict == Verdict::Proved).count();
    assert!(proved > 190, "{proved} of 200, then {:?}", verdicts.iter().find(|verdict| **verdict != Verdict::Proved));
});

test_in!(Child, outside_of_pid_1_nothing_kills_or_sweeps_everything, {
    let refused = [
        kill::kill_everything().err(),
        kill::is_alone().err(),
        KillSweep::open().expect("/proc").pass(Scope::Namespace, spare(&[])).err(),
    ];

    for error in refused {
        assert_eq!(error.and_then(|error| error.raw_os_error()), Some(libc::EPERM));
    }
    assert!(count(Scope::Descendants) == 0 && kill::send(getppid(), Signal::CONT).is_err());
    for everything in [-1, 0, 1].map(Pid::from_raw) {
        for sent in [kill::send(everything, Signal(0)), kill::send_group(everything, Signal(0))] {
            assert_eq!(sent.err().and_then(|error| error.raw_os_error()), Some(libc::EINVAL), "{everything}");
        }
    }
});

test_in!(Child, the_remains_of_a_dead_init_are_known_by_marker_group_and_descent, {
    let group = shell("exec sleep 1000");
    let marked = shell("TENURE_IDENTITY=a_1 setsid -f env -i TENURE_IDENTITY=a_1 sh -c 'env -i sleep 1000 & wait'");
    shell("TENURE_IDENTITY=a_12 exec sleep 1000");
    wait_until("the marked one to be left", || reap_next().is_some_and(|(pid, _)| pid == marked));
    let scope = Scope::Leftovers { entry: "TENURE_IDENTITY=a_1", group: Some(group), known: &[] };
    wait_until("three remains", || count(scope) == 3);
    let everybody = count_all();

    wait_until("their end", || {
        reap_all();
        let spare = Spare { init: Pid::from_raw(0), electors: &[] };
        KillSweep::open().expect("/proc").pass(scope, spare).expect("a scan") == Verdict::Proved
    });

    wait_until("the shell to reap its own", || count_all() == everybody - 3);
});

/// Does what init does on a planned stop: reap, make a pass, wait for SIGCHLD or the pause.
fn sweep(scope: Scope<'_>, electors: &[Pid]) -> Option<Left> {
    let mut sweep = KillSweep::open().expect("/proc");
    let began = tenure::clock::boot();
    loop {
        reap_all();
        match sweep.pass(scope, spare(electors)).expect("a scan") {
            Verdict::Proved => return None,
            Verdict::Left(left) if tenure::clock::boot().since(began) > PATIENCE => return Some(left),
            Verdict::Left(_) => std::thread::sleep(Duration::from_millis(1)),
        }
    }
}

fn elector(script: &str) -> Pid {
    let elector = shell_with(script, &Setup { group: ProcessGroup::Session, ..setup(signals::block().expect("signals")) });
    assert_eq!(Scanner::open().expect("/proc").look(elector).map(|process| process.session), Some(elector));
    elector
}

fn count_all() -> usize {
    let names = std::fs::read_dir("/proc").expect("/proc").flatten().map(|entry| entry.file_name());
    names.filter(|name| name.as_encoded_bytes().iter().all(u8::is_ascii_digit)).count()
}
