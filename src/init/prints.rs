//! What hooks print, on the log: line by line, with the hook's name.
//!
//! Each kind of hook has one pipe, whose both ends init keeps: what a hook leaves running may write on, and nothing ever waits for
//! the end of a pipe. Init reads all that is written, so that nobody waits for room in it; the length of a line and the lines in a
//! second are bounded, and what is beyond that is dropped and counted.

use std::{
    fs::File,
    io::{self, Read as _},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    time::Duration,
};

use nix::{
    fcntl::{FcntlArg, OFlag, fcntl},
    unistd::pipe2,
};

use super::event_loop::EventLoop;
use crate::{
    clock,
    config::{HookKind, Hooks},
    time::Instant,
    words::bounded,
};

/// How much of a line is kept; what is logged is [`bounded`] further.
const LINE: usize = 2048;

/// The lines of one kind of hook in a [`WHILE`].
const LINES: u64 = 100;
const WHILE: Duration = Duration::from_secs(1);

/// What is read in a turn, so that no flood keeps init from its deadlines: as much as a pipe holds.
const CHUNK: usize = 4096;
const CHUNKS: usize = 16;

/// What one kind of hook prints.
#[derive(Debug)]
pub(super) struct Prints {
    hook: HookKind,
    reader: File,
    writer: OwnedFd,
    lines: Lines,
}

impl Prints {
    /// Those of every hook that is set.
    ///
    /// # Errors
    /// There is no pipe.
    pub(super) fn of(hooks: &Hooks) -> nix::Result<Vec<Self>> {
        HookKind::ALL.into_iter().filter(|hook| hook.of(hooks).is_some()).map(Self::open).collect()
    }

    fn open(hook: HookKind) -> nix::Result<Self> {
        let (reader, writer) = pipe2(OFlag::O_CLOEXEC)?;
        // The hook's own end blocks, as programs expect.
        fcntl(&reader, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        Ok(Self { hook, reader: reader.into(), writer, lines: Lines::default() })
    }

    pub(super) fn is_of(&self, hook: HookKind) -> bool {
        self.hook == hook
    }

    /// What becomes the hook's standard output and error.
    pub(super) fn writer(&self) -> BorrowedFd<'_> {
        self.writer.as_fd()
    }

    pub(super) fn reader(&self) -> BorrowedFd<'_> {
        self.reader.as_fd()
    }

    /// The lines to log of what was written by now; `is_over`: nothing follows the beginning of one.
    fn take(&mut self, is_over: bool, now: Instant) -> Vec<String> {
        let mut chunk = [0; CHUNK];
        for _ in 0..CHUNKS {
            match self.reader.read(&mut chunk) {
                Ok(length) => self.lines.read(chunk.get(..length).unwrap_or_default(), now),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => {
                    if is_over {
                        self.lines.end();
                    }
                    break;
                }
            }
        }
        self.lines.count(now);
        std::mem::take(&mut self.lines.ready)
    }
}

/// Bytes, as lines to log.
#[derive(Debug)]
struct Lines {
    /// The beginning of the next one.
    begun: Vec<u8>,
    ready: Vec<String>,
    since: Instant,
    /// Since then.
    logged: u64,
    dropped: u64,
}

impl Default for Lines {
    fn default() -> Self {
        Self { begun: Vec::new(), ready: Vec::new(), since: Instant::BOOT, logged: 0, dropped: 0 }
    }
}

impl Lines {
    fn read(&mut self, bytes: &[u8], now: Instant) {
        self.count(now);
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            let room = LINE.saturating_sub(self.begun.len()).min(part.len());
            self.begun.extend_from_slice(part.get(..room).unwrap_or_default());
            if part.ends_with(b"\n") {
                self.end();
            }
        }
    }

    /// The line that was begun has ended.
    fn end(&mut self) {
        let line = String::from_utf8_lossy(&self.begun);
        let line = line.trim_end();
        if line.is_empty() {
            // Nothing to log.
        } else if self.logged < LINES {
            self.logged += 1;
            self.ready.push(bounded(line).into_owned());
        } else {
            self.dropped += 1;
        }
        self.begun.clear();
    }

    /// Tells the number of those that were dropped, once that while is over and something wakes init, as each renewal does.
    fn count(&mut self, now: Instant) {
        if now >= self.since + WHILE {
            if self.dropped > 0 {
                self.ready.push(format!("({} more lines were dropped: they were too many)", self.dropped));
            }
            (self.since, self.logged, self.dropped) = (now, 0, 0);
        }
    }
}

impl EventLoop {
    /// Logs what hooks have printed. It may wait for a file system, so nothing of the turn comes after it.
    pub(super) fn log_prints(&mut self) {
        let now = if self.over.is_some() { Instant::NEVER } else { clock::boot() };
        let Self { processes, log, .. } = self;
        for prints in &mut processes.prints {
            let hook = prints.hook;
            let is_over = !processes.helpers.iter().any(|helper| helper.is_of(hook));
            for line in prints.take(is_over, now) {
                log.info(&format!("hook {}: {line}", hook.as_str()));
            }
        }
    }
}
