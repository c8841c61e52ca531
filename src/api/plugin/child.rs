//! The plugin's process: awaited with what it prints, killed if it hangs.
//!
//! Owns its pipes: how much is kept of them, and that nobody waits for their end. Never says what was printed.

use std::{
    io::{self, Read},
    os::fd::AsFd,
    process::{Child, Output},
};

use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, poll},
};

use crate::{
    clock,
    process::{
        Pid, kill,
        scan::{Scanner, Scope, Spare},
    },
    time::Instant,
};

/// One that prints more, in bytes, prints no credentials.
const OUTPUT: usize = 1 << 20;

/// How much of the end of its standard error is kept, in bytes.
const COMPLAINT: usize = 4096;

/// How often it is looked at, where its pipes do not tell that it has ended; in milliseconds.
const LOOK: u8 = 10;

/// What it printed, and how it ended; `None` if it did not end in time, and was killed.
pub(super) fn ended(mut child: Child, end: Instant) -> io::Result<Option<Output>> {
    let ended = watched(&mut child, end);
    if !matches!(ended, Ok(Some(_))) {
        kill_with_descendants(&mut child);
    }
    ended
}

/// As [`ended`], without the kill. What it leaves running may hold its standard output and error: nobody waits for their end.
fn watched(child: &mut Child, end: Instant) -> io::Result<Option<Output>> {
    let (mut output, mut errors) = (child.stdout.take(), child.stderr.take());
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    loop {
        let status = child.try_wait()?;
        let mut more = take_in(&mut output, &mut stdout)?;
        more |= take_in(&mut errors, &mut stderr)?;
        if stdout.len() > OUTPUT {
            output = None;
        }
        stderr.drain(..stderr.len().saturating_sub(COMPLAINT));
        let is_over = clock::boot() >= end;
        match status {
            Some(status) if !more || is_over => return Ok(Some(Output { status, stdout, stderr })),
            None if is_over => return Ok(None),
            Some(_) | None => {}
        }
        let pipes = [output.as_ref().map(AsFd::as_fd), errors.as_ref().map(AsFd::as_fd)];
        let mut pipes: Vec<_> = pipes.into_iter().flatten().map(|pipe| PollFd::new(pipe, PollFlags::POLLIN)).collect();
        wait_for(&mut pipes, LOOK)?;
    }
}

/// Its descendants too, which would otherwise pile up.
fn kill_with_descendants(child: &mut Child) {
    let pid = Pid::from_raw(child.id().cast_signed());
    let own = Spare { init: pid, electors: &[] };
    if let Ok(mut scanner) = Scanner::open()
        && let Ok(found) = scanner.find(Scope::Descendants, own)
    {
        for process in found.targets {
            let _ = kill::send(process.pid, kill::SIGKILL);
        }
    }
    let _ = child.kill();
    // One that cannot die now is a zombie later, as long as this process lives.
    for _ in 0..100 {
        if !matches!(child.try_wait(), Ok(None)) {
            return;
        }
        let _ = wait_for(&mut [], LOOK);
    }
}

/// How many of `pipes` have something to tell within so many milliseconds, or until a signal comes.
fn wait_for(pipes: &mut [PollFd<'_>], millis: u8) -> io::Result<i32> {
    match poll(pipes, millis) {
        Err(Errno::EINTR) => Ok(0),
        ready => Ok(ready?),
    }
}

/// Reads from a pipe what is there, up to a chunk, and closes it at its end; false if nothing was there.
fn take_in<P: Read + AsFd>(pipe: &mut Option<P>, into: &mut Vec<u8>) -> io::Result<bool> {
    let Some(open) = pipe else { return Ok(false) };
    if wait_for(&mut [PollFd::new(open.as_fd(), PollFlags::POLLIN)], 0)? == 0 {
        return Ok(false);
    }
    let mut chunk = [0; 4096];
    let length = open.read(&mut chunk)?;
    into.extend_from_slice(chunk.get(..length).unwrap_or_default());
    if length == 0 {
        *pipe = None;
    }
    Ok(length > 0)
}
