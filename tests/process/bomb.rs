//! A fork bomb that respawns: fifty chains in which every process forks its successor and exits.

use nix::{
    sys::resource::{Resource, setrlimit},
    unistd::{ForkResult, Uid, fork, pause, setresuid},
};
use tenure::process::{
    scan::Scope,
    signals,
    spawn::{Command, Outcome},
};

use crate::{
    wait::wait_until,
    world::{count, outcome, reap_all, setup},
};

const BOMB: &str = "TENURE_TEST_BOMB";
const CHAINS: usize = 50;

/// How many of its zombies may pile up where nobody reaps them in time; not all the machine's pids.
const MOST: u64 = 1000;

/// Starts one, as a user with a process limit, and returns once it respawns.
pub(crate) fn start() {
    let binary = std::env::current_exe().expect("the test binary");
    let arguments = ["bomb", "--exact", "bomb::explode", "--nocapture", "--test-threads=1"].map(str::to_owned);
    let bomb = Command::new(&binary, &arguments, [(BOMB, "1")]).expect("no NUL");
    let mut child = bomb.spawn(&setup(signals::block().expect("signals"))).expect("a child");
    assert_eq!(outcome(&mut child), Outcome::Done);
    wait_until("a bomb that respawns", || reap_all() > CHAINS && count(Scope::Namespace) > CHAINS);
}

/// Runs the bomb, where [`start`] started it.
#[test]
fn explode() {
    if std::env::var_os(BOMB).is_none() {
        return;
    }
    setrlimit(Resource::RLIMIT_NPROC, MOST, MOST).expect("lower");
    let nobody = Uid::from_raw(65534);
    // Without root it keeps its user, which has a limit.
    let _ = setresuid(nobody, nobody, nobody);
    for _ in 0..CHAINS {
        if respawn().is_child() {
            while !respawn().is_parent() {}
            std::process::exit(0);
        }
    }
    loop {
        pause();
    }
}

#[allow(unsafe_code, reason = "fork")]
fn respawn() -> ForkResult {
    loop {
        // SAFETY: the children touch only their own stack, and fork again or exit.
        if let Ok(forked) = unsafe { fork() } {
            return forked;
        }
        std::thread::yield_now();
    }
}
