//! A child process that ends with the test.

use std::{
    ops::{Deref, DerefMut},
    process::Child,
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
