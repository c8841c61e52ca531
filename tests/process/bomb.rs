//! A bomb that respawns: fifty chains in which every process forks its successor and ends.

use nix::{
    sys::resource::{Resource, setrlimit},
    unistd::{ForkResult, Uid, fork, pause, setresuid},
};
use tenure::process::{
    scan::Scope,
    signals,
    spawn::{Command, Outcome},
};

use crate::world::{count, outcome, reap_all, setup, wait_until};

const BOMB: &str = "TENURE_TEST_BOMB";
const CHAINS: usize = 50;

/// Its dead may pile up to this many where nobody reaps them in time; not to all the pids of the machine.
const MOST: u64 = 1000;

/// Starts one, as a user that has a limit, and returns once it respawns.
pub(crate) fn start() {
    let binary = std::env::current_exe().expect("the test binary");
    let arguments = ["bomb", "--exact", "bomb::explode", "--nocapture", "--test-threads=1"].map(str::to_owned);
    let bomb = Command::new(&binary, &arguments, [(BOMB, "1")]).expect("no NUL");
    let mut child = bomb.spawn(&setup(signals::block().expect("signals"))).expect("a child");
    assert_eq!(outcome(&mut child), Outcome::Done);
    wait_until("a bomb that respawns", || reap_all() > CHAINS && count(Scope::Namespace) > CHAINS);
}

/// The bomb, where [`start`] starts it.
#[test]
fn explode() {
    if std::env::var_os(BOMB).is_none() {
        return;
    }
    setrlimit(Resource::RLIMIT_NPROC, MOST, MOST).expect("lower");
    let nobody = Uid::from_raw(65534);
    // Without root it stays the user that it is, and that one has a limit.
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
        // SAFETY: the children touch nothing but their own stack, and fork again or end.
        if let Ok(forked) = unsafe { fork() } {
            return forked;
        }
        std::thread::yield_now();
    }
}
