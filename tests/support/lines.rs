//! Reads what a process prints to a pipe or a terminal, line by line; each wait for a line has a deadline.

use std::{io::Read, os::fd::AsFd};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::PATIENCE;

/// The lines of `source`, which nobody else reads.
pub struct Lines<S> {
    /// Where they are read, and whatever else it is.
    pub source: S,
    unread: Vec<u8>,
}

impl<S: Read + AsFd> Lines<S> {
    /// Nothing has been read yet.
    pub const fn of(source: S) -> Self {
        Self { source, unread: Vec::new() }
    }

    /// The next line, without its end.
    pub fn next_line(&mut self) -> String {
        let give_up = tenure::clock::boot() + PATIENCE;
        loop {
            if let Some(end) = self.unread.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.unread.drain(..=end).collect();
                return String::from_utf8(line).expect("text").trim_end().to_owned();
            }
            assert!(self.read(give_up), "nothing more is said: {:?}", String::from_utf8_lossy(&self.unread));
        }
    }

    /// The rest of the output.
    pub fn rest(&mut self) -> String {
        let give_up = tenure::clock::boot() + PATIENCE;
        while self.read(give_up) {}
        String::from_utf8(std::mem::take(&mut self.unread)).expect("text")
    }

    /// Reads more; false at the end.
    fn read(&mut self, give_up: tenure::time::Instant) -> bool {
        let left = PollTimeout::try_from(give_up.since(tenure::clock::boot())).expect("it fits");
        let ready = poll(&mut [PollFd::new(self.source.as_fd(), PollFlags::POLLIN)], left).expect("nothing interrupts");
        assert!(ready > 0, "nothing is said in time: {:?}", String::from_utf8_lossy(&self.unread));
        let mut part = [0; 1024];
        let length = self.source.read(&mut part).expect("somebody is at the other end");
        self.unread.extend_from_slice(&part[..length]);
        length > 0
    }
}
