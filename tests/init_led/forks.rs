//! Law 15: init stands still after it forked, and what it forked looks at the clock itself.

use nix::{
    sys::{
        ptrace::{self, Options},
        signal::Signal,
        wait::{WaitPidFlag, WaitStatus, waitpid},
    },
    unistd::Pid,
};
use support::{Scratch, not_run, procfs::state, wait_until};
use tenure::{
    clock,
    link::{Term, ToElector},
};

use super::{
    always::{STARTS, hooked},
    world::{World, config, sleep_until, timing, within},
};

pub(crate) fn a_workload_whose_init_stands_still_after_the_fork_is_not_started_past_s() {
    let scratch = Scratch::new();
    let file = scratch.join("started");
    let (mut world, _) =
        World::contained(&within(timing(), config(&format!("touch {}; echo ready; exec sleep 600", file.display()))));

    let Some(still) = ended_past_s(&world) else { return };

    assert!(!file.exists());
    // Init reads it before the child's end.
    let acknowledged = world.extend(clock::boot());
    world.passed_on();
    still.go_on();
    assert_eq!(world.hear(), ToElector::Acknowledged { term: Term(1), serial: 0 });
    assert_eq!(world.hear(), acknowledged);
    assert_eq!(world.line(), "ready");
    assert!(file.exists());
}

pub(crate) fn a_hook_whose_init_stands_still_after_the_fork_is_not_started_past_s() {
    let scratch = Scratch::new();
    let file = scratch.join("started");
    let config = hooked(&STARTS, &format!("touch {}", file.display()), "true");
    let world = World::started(&within(timing(), config));

    let Some(_still) = ended_past_s(&world) else { return };

    assert!(!file.exists());
}

/// An init that has forked and stands still since, also in its fork.
struct Still(Pid);

impl Still {
    fn go_on(self) {
        ptrace::detach(self.0, None).unwrap();
    }
}

/// Has init lead and stand still in the fork that follows from that. The forked child goes on when S is past, and has ended when
/// this returns. None, which is said loudly, where init cannot be traced.
fn ended_past_s(world: &World) -> Option<Still> {
    let init = world.init();
    if let Err(errno) = ptrace::seize(init, Options::PTRACE_O_TRACEFORK) {
        not_run("init that stands still after a fork", format!("it cannot be traced: {errno}"));
        return None;
    }
    let a = clock::boot();
    world.tell_lead(a);
    let child = forked(init);
    assert!(matches!(waitpid(child, Some(WaitPidFlag::__WALL)).unwrap(), WaitStatus::PtraceEvent(..)), "its first stop");
    assert!(clock::boot() < world.deadlines(a).soft, "this machine is too slow: init would not have forked");

    sleep_until(world.deadlines(a).soft);
    ptrace::detach(child, None).unwrap();
    wait_until("the child has ended", || state(child) == Some('Z'));

    Some(Still(init))
}

/// Waits until it forks; returns the child.
fn forked(init: Pid) -> Pid {
    loop {
        match waitpid(init, Some(WaitPidFlag::__WALL)).unwrap() {
            WaitStatus::PtraceEvent(_, Signal::SIGTRAP, libc::PTRACE_EVENT_FORK) => {
                return Pid::from_raw(ptrace::getevent(init).unwrap().try_into().unwrap());
            }
            WaitStatus::Stopped(_, signal) => ptrace::cont(init, signal).unwrap(),
            other => panic!("{other:?}"),
        }
    }
}
