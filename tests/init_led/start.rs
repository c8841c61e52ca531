//! Init and the processes that it starts get more than the term: a name, a score, a slice.

use std::fs;

use nix::unistd::Pid;
use support::{Scratch, not_run};
use tenure::{clock, process::slice};

use super::{
    always::hooked,
    world::{POD, World, config},
};

pub(crate) fn the_pod_gives_the_name() {
    let mut config = config("true");
    config.lease.identity = String::new();
    let (_world, initial) = World::contained(&config);
    assert!(initial.identity.starts_with(&format!("{POD}_")), "{}", initial.identity);
}

pub(crate) fn the_workload_and_its_hooks_have_the_score_that_was_configured() {
    let scratch = Scratch::new();
    let seen = scratch.join("score");
    let score = "cat /proc/self/oom_score_adj";
    let command = ["sh", "-c", &format!("{score}; exec sleep 600")];
    let mut config = hooked(&command, &format!("{score} >{}", seen.display()), "true");
    config.workload.oom_score_adjust = RAISED;
    let (mut world, _) = World::contained(&config);
    assert_eq!(world.line(), raised_score());
    world.lead(clock::boot());
    assert_eq!(fs::read_to_string(seen).unwrap().trim(), raised_score());
}

pub(crate) fn only_init_has_a_short_slice() {
    let ordinary = slice_of(Pid::from_raw(0));
    // A thread of its own: it keeps the slice.
    let short = std::thread::spawn(|| slice::shorten().map(|()| slice_of(Pid::from_raw(0)))).join().unwrap();
    let short = match short {
        Ok(short) if short < ordinary => short,
        Ok(_) => {
            return not_run("that only init has a short slice", "the policy or nice value of this test favours it already");
        }
        Err(error) => return not_run("that only init has a short slice", format!("Linux 6.12 grants one: {error}")),
    };
    let world = World::leading(&config("echo ready; exec sleep 600"));
    let [(workload, _)] = world.others()[..] else { panic!("{:?}", world.others()) };

    let slices = [world.init(), world.elector(), workload].map(slice_of);

    assert_eq!(slices, [short, ordinary, ordinary], "init, elector, workload");
}

/// Another than the default.
const RAISED: i16 = 321;

/// Init's score is the test's.
fn raised_score() -> String {
    let own: i32 = fs::read_to_string("/proc/self/oom_score_adj").unwrap().trim().parse().unwrap();
    (own + i32::from(RAISED)).min(1000).to_string()
}

/// In nanoseconds; 0 is the thread that asks.
#[allow(unsafe_code, reason = "nothing wraps it")]
fn slice_of(pid: Pid) -> u64 {
    /// sched_attr of sched_setattr(2), in its first version: size, policy, flags, nice, priority, runtime, deadline, period.
    #[repr(C)]
    #[derive(Default)]
    struct Attributes(u32, u32, u64, i32, u32, u64, u64, u64);
    let mut attributes = Attributes::default();
    let size = size_of::<Attributes>();
    // SAFETY: it writes at most so many bytes to our own struct, which has no invalid values.
    let got = unsafe { libc::syscall(libc::SYS_sched_getattr, pid.as_raw(), &raw mut attributes, size, 0) };
    assert_eq!(got, 0, "sched_getattr: {}", std::io::Error::last_os_error());
    attributes.5
}
