//! The output of hooks, written to the log line by line with the hook's name.
//!
//! Each kind of hook has one pipe, and init keeps both of its ends. So a process that a hook leaves may write on, and init never
//! waits for the end of the pipe. Init reads everything, so that a hook never waits for room. Lines beyond a limit are cut or
//! dropped, and the dropped ones counted.

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
    supervision::Turn,
    time::Instant,
    words::bounded,
};

/// Limit on the bytes of a line that are kept. The log line is [`bounded`] further.
const LINE: usize = 2048;

/// Limit on the lines of one kind of hook within a [`WHILE`].
const LINES: u64 = 100;
const WHILE: Duration = Duration::from_secs(1);

/// Limit on the bytes that are read in a turn, as many as a pipe holds, so that a flood does not keep init from its deadlines.
const CHUNK: usize = 4096;
const CHUNKS: usize = 16;

/// The output of one kind of hook.
#[derive(Debug)]
pub(super) struct HookOutput {
    hook: HookKind,
    reader: File,
    writer: OwnedFd,
    lines: Lines,
}

impl HookOutput {
    /// Opens one for each configured hook.
    ///
    /// # Errors
    /// No pipe can be made.
    pub(super) fn of(hooks: &Hooks) -> nix::Result<Vec<Self>> {
        HookKind::ALL.into_iter().filter(|hook| hook.of(hooks).is_some()).map(Self::open).collect()
    }

    fn open(hook: HookKind) -> nix::Result<Self> {
        let (reader, writer) = pipe2(OFlag::O_CLOEXEC)?;
        // The hook's end blocks, as programs expect.
        fcntl(&reader, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        Ok(Self { hook, reader: reader.into(), writer, lines: Lines::default() })
    }

    pub(super) fn is_of(&self, hook: HookKind) -> bool {
        self.hook == hook
    }

    /// The end that becomes the hook's standard output and error.
    pub(super) fn writer(&self) -> BorrowedFd<'_> {
        self.writer.as_fd()
    }

    pub(super) fn reader(&self) -> BorrowedFd<'_> {
        self.reader.as_fd()
    }

    /// Reads the pipe; returns the lines to log. With `is_over`, an unfinished line counts too.
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

/// Splits bytes into lines to log.
#[derive(Debug, Default)]
struct Lines {
    /// The beginning of the next line.
    begun: Vec<u8>,
    ready: Vec<String>,
    since: Instant,
    /// Count of the lines since then.
    logged: u64,
    dropped: u64,
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

    /// Ends the line that was begun.
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

    /// Logs the number of dropped lines, once the [`WHILE`] is over. Something must wake init for that, as each renewal does.
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
    /// Logs the output of hooks. Comes last in a turn, because it may wait for a file system.
    pub(super) fn log_prints(&mut self, turn: &Turn) {
        let now = if turn.over().is_some() { Instant::NEVER } else { clock::boot() };
        let Self { processes, log, .. } = self;
        for hook_output in &mut processes.hook_output {
            let hook = hook_output.hook;
            let is_over = !turn.runs(hook);
            for line in hook_output.take(is_over, now) {
                log.info(&format!("hook {}: {line}", hook.as_str()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_cut_to_a_hundred_lines_a_second_and_the_rest_is_counted() {
        let (mut lines, begin) = (Lines::default(), Instant::BOOT + WHILE);
        let later = |millis| begin + Duration::from_millis(millis);
        for millis in 0..300 {
            lines.read(b"a\n\n", later(millis));
        }
        assert_eq!(std::mem::take(&mut lines.ready), vec!["a"; 100]);

        lines.count(later(999));
        assert!(lines.ready.is_empty());
        lines.read(b"b\n", later(1000));
        assert_eq!(lines.ready, ["(200 more lines were dropped: they were too many)", "b"]);
    }
}
