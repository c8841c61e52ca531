//! Law 15: init stands still after it forked, and what it forked looks at the clock itself.

use std::path::Path;

use nix::{
    sys::{
        ptrace::{self, Options},
        signal::Signal,
        wait::{WaitPidFlag, WaitStatus, waitpid},
    },
    unistd::Pid,
};
use tenure::{
    clock,
    config::{Acknowledge, Hook},
    link::{Term, ToElector},
};

use super::{
    always::always,
    procfs::state,
    scratch::Scratch,
    wait::wait_until,
    world::{World, config, lead, sleep_until, timing},
};

pub(crate) fn a_workload_whose_init_stands_still_after_the_fork_is_not_started_past_s() {
    let scratch = Scratch::new();
    let file = scratch.join("started");
    let (mut world, _) = World::contained(&config(&format!("touch {}; echo ready; exec sleep 600", file.display())));

    let Some(still) = ended_past_s(&world) else { return };

    assert!(!file.exists());
    // Init reads it before the child's end.
    let acknowledged = world.extend(timing(), clock::boot());
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
    let mut config = always(Acknowledge::Hook, &["sh", "-c", "echo starts; exec sleep 600"]);
    (config.signals.on_lead, config.signals.on_follow) = (None, None);
    config.hooks.after_lead = Some(touch(&file));
    let (mut world, _) = World::contained(&config);
    assert_eq!(world.line(), "starts");

    let Some(_still) = ended_past_s(&world) else { return };

    assert!(!file.exists());
}

fn touch(file: &Path) -> Hook {
    let command = ["touch", file.to_str().unwrap()].map(str::to_owned).to_vec();
    Hook { command, ..serde_json::from_str(r#"{"command": []}"#).unwrap() }
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
        eprintln!("NOT RUN: init that stands still after a fork: it cannot be traced: {errno}");
        return None;
    }
    let a = clock::boot();
    world.tell(&lead(timing(), a));
    let child = forked(init);
    assert!(matches!(waitpid(child, Some(WaitPidFlag::__WALL)).unwrap(), WaitStatus::PtraceEvent(..)), "its first stop");
    assert!(clock::boot() < timing().deadlines(a).soft, "this machine is too slow: init would not have forked");

    sleep_until(timing().deadlines(a).soft);
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
