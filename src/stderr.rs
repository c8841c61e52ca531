//! Writes lines to standard error without ever waiting for their reader, and writes a container's termination message.
//!
//! Owns the only way in which this program writes there while it guards a workload, and the format of init's lines;
//! `telemetry::log` formats the elector's. A line that does not fit is dropped and counted. The count is written before the next
//! line that fits.
//!
//! O_NONBLOCK is never set on standard error, because its open file description is shared with the workload and, on a terminal,
//! with the shell. Instead:
//!
//! - A socket is written with MSG_DONTWAIT.
//! - A terminal or a pipe is opened again, as a non-blocking description of our own.
//! - If that is not allowed, each write uses RWF_NOWAIT.
//! - If the kernel does not support that (terminals, pipes before Linux 6.4), a poll precedes each write of at most PIPE_BUF
//!   bytes. Such a write can block, if another writer takes the last room between the two calls, or a terminal has less room.
//! - A regular file blocks only on its file system. So init acts first, and logs afterwards.

use std::{
    fs::{File, OpenOptions},
    io::{self, IoSlice, Write as _},
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd},
        unix::fs::OpenOptionsExt,
    },
    sync::atomic::{AtomicU64, Ordering},
};

use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::{
        socket::{MsgFlags, send},
        stat::{SFlag, fstat},
    },
    unistd::write,
};

use crate::{
    clock,
    config::{LogFormat, LogLevel},
    process::{PID1, Pid, runs_our_program},
};

/// Where kubelet reads the termination message of a container.
const TERMINATION_LOG: &str = "/dev/termination-log";

/// A pipe takes this many bytes whole or not at all.
const CHUNK: usize = libc::PIPE_BUF;

/// Formats a log line, with its newline.
pub fn line(format: LogFormat, level: LogLevel, text: &str) -> String {
    let (now, level) = (clock::timestamp(), level.as_str());
    match format {
        LogFormat::Text => format!("{now:.6} {level:>5} {text}\n"),
        LogFormat::Json => {
            let object = serde_json::json!({ "timestamp": format!("{now:.6}"), "level": level, "message": text });
            format!("{object}\n")
        }
    }
}

/// Writes the container's termination message for kubelet, in place of an earlier one. Skips it if the file does not exist,
/// cannot be written by this user, or is a pipe that nobody reads: standard error has the message too. Beside another tenure that
/// is PID 1 (`kubectl exec`), only that one writes the message.
pub fn write_termination_message(words: &str) {
    if Pid::this() != PID1 && runs_our_program(PID1) {
        return;
    }
    let mut options = OpenOptions::new();
    options.write(true).truncate(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY);
    if let Ok(mut file) = options.open(TERMINATION_LOG) {
        let _ = file.write_all(words.as_bytes());
    }
}

/// Count of the dropped lines of this process.
static DROPPED: AtomicU64 = AtomicU64::new(0);

/// Returns the count of the lines that this process has dropped because nobody read standard error.
pub fn dropped() -> u64 {
    DROPPED.load(Ordering::Relaxed)
}

/// Lines to standard error, with the count of those that were dropped.
#[derive(Debug)]
pub struct StderrLog {
    format: LogFormat,
    way: Way,
    dropped: u64,
    /// The last line was written in part.
    cut: bool,
}

impl StderrLog {
    /// Finds out the kind of standard error. `format` is that of the lines about dropped ones.
    pub fn new(format: LogFormat) -> Self {
        Self::onto(io::stderr().as_fd(), format)
    }

    fn onto(fd: BorrowedFd<'_>, format: LogFormat) -> Self {
        Self { format, way: Way::to(fd), dropped: 0, cut: false }
    }

    /// Writes `line`, which ends with its newline. Before it, writes the count of the lines dropped since the last one that was
    /// written. Returns false if `line` was dropped too.
    pub fn write(&mut self, line: &[u8]) -> bool {
        self.write_to(io::stderr().as_fd(), line)
    }

    fn write_to(&mut self, fd: BorrowedFd<'_>, line: &[u8]) -> bool {
        let mut bytes = Vec::with_capacity(line.len());
        if self.cut {
            bytes.push(b'\n');
        }
        if self.dropped > 0 {
            bytes.extend_from_slice(self.about_dropped().as_bytes());
        }
        bytes.extend_from_slice(line);
        let taken = self.way.write(fd, &bytes);
        let whole = taken == bytes.len();
        if whole {
            self.dropped = 0;
        } else {
            self.dropped = self.dropped.saturating_add(1);
            DROPPED.fetch_add(1, Ordering::Relaxed);
        }
        if taken > 0 {
            self.cut = !whole;
        }
        whole
    }

    fn about_dropped(&self) -> String {
        let text = format!("{} log lines were dropped because nobody read standard error", self.dropped);
        line(self.format, LogLevel::Warn, &text)
    }
}

/// The way to write without waiting, by the kind of the file.
#[derive(Debug)]
enum Way {
    Socket,
    Regular,
    /// The same pipe or terminal, opened once more and non-blocking.
    Own(File),
    /// A pipe or terminal that may not be opened again.
    Shared,
}

impl Way {
    fn to(fd: BorrowedFd<'_>) -> Self {
        let kind = fstat(fd).map(|stat| SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT).unwrap_or(SFlag::empty());
        if kind == SFlag::S_IFSOCK {
            return Self::Socket;
        }
        if kind == SFlag::S_IFREG {
            return Self::Regular;
        }
        let again = format!("/proc/self/fd/{}", fd.as_raw_fd());
        let own = OpenOptions::new().write(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(again);
        own.map_or(Self::Shared, Self::Own)
    }

    /// Returns the number of bytes that were taken.
    fn write(&self, fd: BorrowedFd<'_>, bytes: &[u8]) -> usize {
        let mut taken = 0;
        while let Some(chunk) = bytes.get(taken..).and_then(|rest| rest.chunks(CHUNK).next()) {
            let written = match self {
                Self::Socket => send(fd.as_raw_fd(), chunk, MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL),
                Self::Regular => write(fd, chunk),
                Self::Own(file) => write(file, chunk),
                Self::Shared => write_shared(fd, chunk),
            };
            match written {
                Ok(0) => break,
                Ok(length) => taken += length,
                Err(Errno::EINTR) => {}
                Err(_) => break,
            }
        }
        taken
    }
}

fn write_shared(fd: BorrowedFd<'_>, chunk: &[u8]) -> Result<usize, Errno> {
    match write_nowait(fd, chunk) {
        Err(Errno::EOPNOTSUPP | Errno::ENOSYS | Errno::EINVAL | Errno::EPERM) => {}
        done => return done,
    }
    let mut ready = [PollFd::new(fd, PollFlags::POLLOUT)];
    poll(&mut ready, PollTimeout::ZERO)?;
    if !ready[0].revents().is_some_and(|events| events.contains(PollFlags::POLLOUT)) {
        return Err(Errno::EAGAIN);
    }
    write(fd, chunk)
}

#[expect(unsafe_code, reason = "nix has no pwritev2")]
fn write_nowait(fd: BorrowedFd<'_>, chunk: &[u8]) -> Result<usize, Errno> {
    let slice = IoSlice::new(chunk);
    // SAFETY: an IoSlice is an iovec, and it and the bytes behind it outlive the call. Offset -1 is the file's own position.
    let taken = unsafe { libc::pwritev2(fd.as_raw_fd(), (&raw const slice).cast(), 1, -1, libc::RWF_NOWAIT) };
    usize::try_from(Errno::result(taken)?).map_err(|_| Errno::EIO)
}

#[cfg(test)]
mod tests {
    use std::{
        fs::File,
        io::{Read, Seek},
        os::{fd::OwnedFd, unix::net::UnixDatagram, unix::net::UnixStream},
    };

    use nix::{
        fcntl::{FcntlArg, OFlag, fcntl},
        pty::openpty,
    };

    use super::*;

    #[test]
    fn a_line_has_the_form_of_the_electors_lines() {
        let text = line(LogFormat::Text, LogLevel::Warn, "odd");
        assert!(text.ends_with("Z  WARN odd\n"), "{text}");
        let json: serde_json::Value = serde_json::from_str(&line(LogFormat::Json, LogLevel::Error, "a \"b\"")).unwrap();
        assert_eq!((json["level"].as_str(), json["message"].as_str()), (Some("ERROR"), Some("a \"b\"")));
    }

    /// Writes lines until one is dropped, and a few more; the number that got through.
    fn fill(lines: &mut StderrLog, fd: BorrowedFd<'_>, dropped: u64) -> usize {
        let mut through = 0;
        while lines.write_to(fd, &[b'x'; 4095]) {
            through += 1;
        }
        for _ in 1..dropped {
            assert!(!lines.write_to(fd, b"lost\n"));
        }
        through
    }

    fn drops_when_full_and_tells_the_count_later(way: impl Fn(BorrowedFd<'_>) -> Way, writer: OwnedFd, mut reader: impl Read) {
        let mut lines = StderrLog { format: LogFormat::Text, way: way(writer.as_fd()), dropped: 0, cut: false };
        let before = dropped();
        let through = fill(&mut lines, writer.as_fd(), 3);
        assert!(dropped() >= before + 3);
        assert!(through > 0);
        let mut room = vec![0; 1 << 20];
        let mut left = reader.read(&mut room).unwrap();
        while left > 0 && !lines.write_to(writer.as_fd(), b"back\n") {
            left = reader.read(&mut room).unwrap();
        }
        drop((lines, writer));
        let mut rest = Vec::new();
        reader.read_to_end(&mut rest).unwrap();
        let rest = String::from_utf8(rest).unwrap();
        assert!(
            rest.ends_with(" log lines were dropped because nobody read standard error\nback\n"),
            "{:?}",
            rest.lines().last()
        );
    }

    #[test]
    fn a_full_pipe_drops_lines_and_the_next_that_fits_tells_how_many() {
        let (reader, writer) = nix::unistd::pipe().unwrap();
        drops_when_full_and_tells_the_count_later(Way::to, writer, File::from(reader));
    }

    #[test]
    fn a_full_pipe_that_may_not_be_opened_again_drops_lines_too() {
        let (reader, writer) = nix::unistd::pipe().unwrap();
        drops_when_full_and_tells_the_count_later(|_| Way::Shared, writer, File::from(reader));
    }

    #[test]
    fn a_full_stream_socket_drops_lines_and_the_next_that_fits_tells_how_many() {
        let (writer, reader) = UnixStream::pair().unwrap();
        drops_when_full_and_tells_the_count_later(Way::to, writer.into(), reader);
    }

    #[test]
    fn a_full_datagram_socket_drops_lines() {
        let (writer, _reader) = UnixDatagram::pair().unwrap();
        assert!(fill(&mut StderrLog::onto(writer.as_fd(), LogFormat::Text), writer.as_fd(), 2) > 0);
    }

    #[test]
    fn a_terminal_that_nobody_reads_drops_lines() {
        let pty = openpty(None, None).unwrap();
        // The kernel passes on in its own time what it took, so a second line might fit again.
        assert!(fill(&mut StderrLog::onto(pty.slave.as_fd(), LogFormat::Text), pty.slave.as_fd(), 1) > 0);
    }

    #[test]
    fn a_reader_that_went_away_drops_lines() {
        let (reader, writer) = nix::unistd::pipe().unwrap();
        let mut lines = StderrLog::onto(writer.as_fd(), LogFormat::Text);
        drop(reader);
        assert!(!lines.write_to(writer.as_fd(), b"lost\n"));
    }

    #[test]
    fn a_regular_file_takes_every_line_whatever_its_length() {
        let mut file = tempfile();
        let line = vec![b'x'; 3 * CHUNK];
        let mut lines = StderrLog::onto(file.as_fd(), LogFormat::Text);
        assert!(lines.write_to(file.as_fd(), &line) && lines.write_to(file.as_fd(), b"end\n"));
        let mut text = String::new();
        file.rewind().unwrap();
        file.read_to_string(&mut text).unwrap();
        assert_eq!(text.len(), line.len() + 4);
    }

    #[test]
    fn a_line_that_was_cut_is_ended_before_the_next() {
        let (reader, writer) = nix::unistd::pipe().unwrap();
        fcntl(&writer, FcntlArg::F_SETPIPE_SZ(4096)).unwrap();
        let mut lines = StderrLog::onto(writer.as_fd(), LogFormat::Text);
        assert!(!lines.write_to(writer.as_fd(), &[b'x'; 2 * CHUNK]));
        let mut reader = File::from(reader);
        reader.read_exact(&mut [0; CHUNK]).unwrap();
        assert!(lines.write_to(writer.as_fd(), b"next\n"));
        assert!(lines.write_to(writer.as_fd(), b"last\n"));
        drop((lines, writer));
        let mut rest = String::new();
        reader.read_to_string(&mut rest).unwrap();
        let lines: Vec<&str> = rest.lines().collect();
        let ["", dropped, "next", "last"] = lines.as_slice() else { panic!("{rest:?}") };
        assert!(dropped.ends_with("  WARN 1 log lines were dropped because nobody read standard error"), "{dropped}");
    }

    #[test]
    fn the_shared_file_description_stays_blocking() {
        let (_reader, writer) = nix::unistd::pipe().unwrap();
        assert!(StderrLog::onto(writer.as_fd(), LogFormat::Text).write_to(writer.as_fd(), b"line\n"));
        let flags = OFlag::from_bits_retain(fcntl(&writer, FcntlArg::F_GETFL).unwrap());
        assert!(!flags.contains(OFlag::O_NONBLOCK));
    }

    fn tempfile() -> File {
        let name = std::env::temp_dir().join(format!("tenure-stderr-{}", std::process::id()));
        let file = File::options().read(true).write(true).create_new(true).open(&name).unwrap();
        std::fs::remove_file(&name).unwrap();
        file
    }
}
