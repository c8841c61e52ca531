//! Child processes that end with the test.

use std::{
    ops::{Deref, DerefMut},
    process::{Child, Command},
};

use nix::unistd::Pid;

/// A child, killed and reaped when this is dropped.
pub struct Kept(pub Child);

impl Kept {
    /// Its pid.
    pub fn pid(&self) -> Pid {
        pid(&self.0)
    }

    /// Kills it.
    pub fn end(&mut self) {
        // It may have ended already.
        let _ = (self.0.kill(), self.0.wait());
    }
}

/// A command that runs its arguments, and dies with the thread that starts it.
pub fn bound() -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL"]);
    command
}

/// The arguments that make the program after them PID 1 of its own namespace.
pub fn contained() -> impl Iterator<Item = &'static str> {
    ["unshare", "--fork", "--pid", "--mount-proc", "--kill-child=SIGKILL"].into_iter().chain(as_root())
}

/// The flag that `unshare` needs unless root runs it.
pub fn as_root() -> Option<&'static str> {
    (!nix::unistd::geteuid().is_root()).then_some("--map-root-user")
}

/// The pid of a child.
pub fn pid(child: &Child) -> Pid {
    Pid::from_raw(i32::try_from(child.id()).expect("a pid"))
}

impl Deref for Kept {
    type Target = Child;

    fn deref(&self) -> &Child {
        &self.0
    }
}

impl DerefMut for Kept {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.0
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.end();
    }
}
