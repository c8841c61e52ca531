//! Where a test runs: the test binary starts itself again in a PID namespace that ends with it.

use std::{
    io,
    os::fd::AsFd,
    process::{Child, Command, Stdio},
};

use nix::{
    poll::{PollFd, PollFlags, PollTimeout, poll},
    unistd::{Pid, getpid},
};
use support::{PATIENCE, kept, slept};
use tenure::{
    link::Exit,
    process::{
        reap,
        scan::{Scanner, Scope, Spare},
        signals::{self, Inherited},
        spawn::{self, Input, Outcome, ProcessGroup, Setup, Spawning},
    },
};

const INSIDE: &str = "TENURE_TEST_INSIDE";

/// The test's place in its PID namespace.
pub(crate) enum World {
    /// PID 1.
    Pid1,
    /// PID 1, beside a loopback interface that delivers on any CPU, and so perhaps after the sender's call.
    LateLoopback,
    /// The child of a shell that is PID 1, beside an unrelated process (`sleep 12345`).
    Child,
}

const LATE_LOOPBACK: &str = r#"
    ip link set lo up
    all=$(printf %x $(((1 << $(nproc)) - 1)))
    mount -t sysfs sysfs /sys && echo "$all" >/sys/class/net/lo/queues/rx-0/rps_cpus && export LATE=1
    exec "$@"
"#;

/// Runs the body of the test `name` in its own PID namespace, and fails if that fails.
pub(crate) fn enter(name: &str, world: &World, body: fn()) {
    if is_inside() {
        return body();
    }
    support::slewed::steady();
    let output = start(name, world).wait_with_output().expect("its end");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{}: {text}", output.status);
}

/// Returns whether this is the test binary inside a [`World`].
pub(crate) fn is_inside() -> bool {
    std::env::var_os(INSIDE).is_some()
}

/// Starts the test binary for the test `name` in its own PID namespace, which ends with it or after a minute. The machine there
/// has been suspended, if that is possible.
fn start(name: &str, world: &World) -> Child {
    let mut command = Command::new("timeout");
    command.args(["--signal=KILL", "60"]).args(kept::contained()).args(slept::flags());
    match world {
        World::Pid1 => {}
        World::LateLoopback => drop(command.args(["--net", "sh", "-c", LATE_LOOPBACK, "sh"])),
        World::Child => drop(command.args(["sh", "-c", "sleep 12345 & \"$@\" & wait $!", "sh"])),
    }
    again(&mut command, name).stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("unshare and timeout are needed")
}

/// Appends the test binary's command line for the test `name`, inside.
pub(crate) fn again<'a>(command: &'a mut Command, name: &str) -> &'a mut Command {
    let (_, test) = name.split_once("::").expect("a module path");
    command.arg(std::env::current_exe().expect("the test binary"));
    command.args(["--exact", test, "--nocapture", "--test-threads=1"]).env(INSIDE, "1")
}

/// A test that runs in a [`World`].
macro_rules! test_in {
    ($world:ident, $name:ident, $body:block) => {
        #[test]
        fn $name() {
            $crate::world::enter(concat!(module_path!(), "::", stringify!($name)), &$crate::world::World::$world, || $body);
        }
    };
}
pub(crate) use test_in;

/// The default setup of a test's children.
pub(crate) fn setup(inherited: Inherited) -> Setup<'static> {
    Setup {
        inherited,
        group: ProcessGroup::Own,
        input: Input::Null,
        link: None,
        output: None,
        oom_score_adjust: 0,
        not_after: None,
        fuse: None,
    }
}

/// Starts `sh -c script` as tenure starts a workload.
pub(crate) fn shell(script: &str) -> Pid {
    shell_with(script, &setup(signals::block().expect("signals can be blocked")))
}

/// The same, set up this way.
pub(crate) fn shell_with(script: &str, setup: &Setup<'_>) -> Pid {
    let mut spawning = command(script).spawn(setup).expect("a child");
    assert_eq!(outcome(&mut spawning), Outcome::Done);
    spawning.pid
}

/// `sh -c script` with a PATH.
pub(crate) fn command(script: &str) -> spawn::Command {
    let arguments = ["sh", "-c", script].map(str::to_owned);
    spawn::Command::new("/bin/sh".as_ref(), &arguments, [("PATH", "/usr/local/bin:/usr/bin:/bin")]).expect("no NUL")
}

/// Waits for the outcome of starting a child.
pub(crate) fn outcome(spawning: &mut Spawning) -> Outcome {
    wait_readable(&*spawning).expect("a report in time");
    spawning.outcome().expect("readable means known")
}

/// Waits until a descriptor is readable.
pub(crate) fn wait_readable(fd: &impl AsFd) -> io::Result<()> {
    let mut fds = [PollFd::new(fd.as_fd(), PollFlags::POLLIN)];
    let timeout = PollTimeout::try_from(PATIENCE).expect("fits");
    match poll(&mut fds, timeout)? {
        0 => Err(io::ErrorKind::TimedOut.into()),
        _ => Ok(()),
    }
}

/// Reaps one zombie, if there is one.
pub(crate) fn reap_next() -> Option<(Pid, Exit)> {
    let child = reap::peek().ok()??;
    Some((child, reap::take(child)?))
}

/// Reaps all zombies; returns how many.
pub(crate) fn reap_all() -> usize {
    std::iter::from_fn(reap_next).count()
}

/// Spares the test and these electors.
pub(crate) fn spare(electors: &[Pid]) -> Spare<'_> {
    Spare { init: getpid(), electors }
}

/// How many targets there are now, sparing only the test.
pub(crate) fn count(scope: Scope<'_>) -> usize {
    Scanner::open().expect("/proc").find(scope, spare(&[])).expect("a scan").targets.len()
}
