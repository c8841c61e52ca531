//! A fuse in the kernel: SIGKILL to a process group at a set time, without waking any process.
//!
//! Owns a TCP connection to itself over the loopback interface: no packet leaves the machine, and no byte is ever read. The
//! receive window is zero, so the kernel probes it; TCP_USER_TIMEOUT ends the connection at the set time; and F_SETSIG with
//! O_ASYNC turns the error into SIGKILL to the group that owns the descriptor. All of that happens in the kernel's timer
//! interrupt: it needs no privilege, and works while every process of the container is stopped or starved.
//!
//! Its clock is the kernel's, which a time service may slew. While the kernel slows it, a fuse is set earlier by a tenth of what is
//! left; if that begins after the last setting, it fires late, and if the kernel hurries its clock, early.
//!
//! Exactness on that clock, as long as the loopback interface answers: a fuse never fires early, and fires less than 0.1 s late.
//! Before Linux 6.15 it fires late by at most a sixteenth of the time that was left when it was set ([`Fuse::is_steady`]). Before
//! 5.10 it would fire much later or never, so there is none. If the interface does not answer, a fuse fires after about fifteen probes,
//! one a second, unless it is dropped before ([`Fuse::is_unanswered`]). Its clock in the kernel stops while the machine is
//! suspended, unlike init's own timer; a fuse that was suspended is replaced when it is set.
//!
//! Limits: a fuse kills only processes that are in the group when it fires. It kills the others of PID 1's group, but not PID 1. It
//! does not kill those of another user (unless init is root of the host's user namespace), nor the init of another PID namespace. The kernel holds a reference to the group
//! itself, so a recycled number is never hit.
//!
//! A POSIX timer cannot do this: its signal goes to the process that created it, execve deletes it, and SIGKILL from within never
//! reaches the PID 1 of a namespace. A tracer's exit would (PTRACE_O_EXITKILL), but a traced init stops on every SIGSTOP until
//! the tracer runs, and dies with it.

use std::{
    fs,
    io::{self, ErrorKind, Write as _},
    net::{Ipv4Addr, TcpListener, TcpStream},
    os::fd::{AsFd, AsRawFd as _, BorrowedFd},
    time::Duration,
};

use nix::{
    errno::Errno,
    fcntl::{FcntlArg, OFlag, fcntl},
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::{
        socket::{setsockopt, sockopt},
        time::{TimeVal, TimeValLike as _},
    },
    unistd::Pid,
};

use crate::{clock, process::kill, time::Instant};

/// An armed fuse. Dropping it disarms it.
#[derive(Debug)]
pub struct Fuse {
    sender: TcpStream,
    /// Keeps the connection open, and its window at zero.
    _receiver: TcpStream,
    /// CLOCK_MONOTONIC before which no probe was sent, and no time counted.
    since: Duration,
    /// [`clock::slept`] when it was made.
    slept: Duration,
    /// The kernel probes every second, however long it has done so.
    steady: bool,
    at: Instant,
    /// CLOCK_MONOTONIC at which it fires.
    end: Duration,
    group: Option<Pid>,
}

/// There is no fuse.
#[derive(Debug, thiserror::Error)]
pub enum FuseError {
    /// The loopback interface is down, or sockets are refused.
    #[error("no connection over the loopback interface")]
    Connect(#[source] io::Error),
    /// An option that it needs is refused.
    #[error("a connection cannot be given a timeout and a signal")]
    Arm(#[source] io::Error),
    /// The fuse would fire much too late, or never.
    #[error("this kernel ends a connection whose window is zero too late, or never; Linux 5.10 and 5.4.96 end it in time")]
    Kernel,
    /// Its probes get no answer.
    #[error("the loopback interface does not answer")]
    Unanswered,
    /// To set all fuses takes too long.
    #[error("the loopback interface is too slow")]
    Slow,
    /// Each takes two descriptors.
    #[error("the limit on open files (ulimit -n) has room for {0} of them")]
    Descriptors(usize),
}

impl Fuse {
    /// A fuse that fires at `at`, and kills nobody as long as it has no group.
    ///
    /// # Errors
    /// [`FuseError`].
    pub fn arm(at: Instant) -> Result<Self, FuseError> {
        // A release that cannot be read counts as a usual one.
        if !is_exact(&fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default()) {
            return Err(FuseError::Kernel);
        }
        let (sender, receiver) = connection().map_err(FuseError::Connect)?;
        let (since, slept) = (clock::monotonic() + FIRST_PROBE, clock::slept());
        fill(&sender, &receiver).map_err(FuseError::Connect)?;
        let mut fuse = Self { sender, _receiver: receiver, since, slept, steady: false, at, end: Duration::ZERO, group: None };
        fuse.configure(on_kernel_clock(at)).map_err(FuseError::Arm)?;
        Ok(fuse)
    }

    /// Returns true if the kernel probes every second to the end. Before Linux 6.15 it doubles the wait each time, up to half of
    /// the time that was left, and its timers are exact to an eighth.
    pub const fn is_steady(&self) -> bool {
        self.steady
    }

    /// Sets the group that it kills, which must exist.
    ///
    /// # Errors
    /// ESRCH if it does not exist.
    pub fn bind(&mut self, group: Pid) -> io::Result<()> {
        own(self.as_fd(), group)?;
        self.group = Some(group);
        Ok(())
    }

    /// The group that it kills, if [`Self::bind`] has set one and somebody is left in it, a zombie perhaps.
    pub fn group(&self) -> Option<Pid> {
        self.group.filter(|group| self.kills(*group))
    }

    /// Returns true if the fuse kills this group, and the group exists.
    pub fn kills(&self, group: Pid) -> bool {
        // PID 1 is in its group for ever, whose number as an owner is also the sign of an error.
        let is_there = group == INIT_GROUP || {
            // The kernel tells its reference by number only while it lives (since Linux 5.15): another group may have the number.
            control(self.as_fd(), libc::F_GETOWN, 0) == Ok(-group.as_raw()) && !kill::is_group_gone(group)
        };
        self.group == Some(group) && is_there
    }

    /// The time at which it fires.
    pub const fn at(&self) -> Instant {
        self.at
    }

    /// Returns true if the fuse has fired. Tells it only once, because reading the error clears it.
    pub fn take_fired(&self) -> bool {
        !matches!(self.sender.take_error(), Ok(None))
    }

    /// Returns true if the loopback interface has stopped answering the probes. The fuse would then fire after about fifteen of
    /// them, regardless of its time.
    pub fn is_unanswered(&self) -> bool {
        unanswered(self.as_fd()).is_ok_and(|probes| probes >= UNANSWERED)
    }

    /// Fires at `at` instead, which may be its present time. There is no moment in between at which it would not fire, or would
    /// fire at another time.
    ///
    /// # Errors
    /// [`FuseError`]; it still fires at the previous time.
    pub fn set(&mut self, at: Instant) -> Result<(), FuseError> {
        let is_awake = clock::slept().abs_diff(self.slept) < NAP;
        let end = on_kernel_clock(at);
        // A new one begins to count after its first probe.
        let is_near = end <= clock::monotonic() + FIRST_PROBE * 2;
        let is_later = end + TICK >= self.end;
        if is_later && end.saturating_sub(self.since) <= LONGEST && is_awake && (self.steady || is_near) {
            self.timeout(end.max(self.end)).map_err(FuseError::Arm)?;
            self.at = at;
            return Ok(());
        }
        // The kernel's countdown next looks at the clock at the old time; it has 31 bits, stops while the machine is suspended,
        // and takes longer and longer steps if it is not steady.
        let mut fuse = match Self::arm(at) {
            // The old one is no worse than before, and better than none.
            Err(_) if at == self.at => return Ok(()),
            armed => armed?,
        };
        if let Some(group) = self.group()
            && let Err(error) = fuse.bind(group)
            && error.raw_os_error() != Some(libc::ESRCH)
        {
            return Err(FuseError::Arm(error));
        }
        *self = fuse;
        Ok(())
    }

    fn configure(&mut self, end: Duration) -> io::Result<()> {
        let probe = i32::try_from(PROBE.as_millis()).unwrap_or(i32::MAX);
        self.steady = set_option(self.as_fd(), TCP_RTO_MAX_MS, probe).is_ok();
        self.timeout(end)?;
        control(self.as_fd(), F_SETSIG, libc::SIGKILL)?;
        fcntl(&self.sender, FcntlArg::F_SETFL(OFlag::O_NONBLOCK | OFlag::O_ASYNC))?;
        Ok(())
    }

    fn timeout(&mut self, end: Duration) -> io::Result<()> {
        // Zero would mean the system's default.
        let millis = end.saturating_sub(self.since).as_nanos().div_ceil(TICK.as_nanos()).max(1);
        set_option(self.as_fd(), libc::TCP_USER_TIMEOUT, i32::try_from(millis).unwrap_or(i32::MAX))?;
        self.end = end;
        Ok(())
    }
}

impl AsFd for Fuse {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.sender.as_fd()
    }
}

impl Drop for Fuse {
    fn drop(&mut self) {
        // First, because a child between fork and execve still holds the descriptors, and may yet give them to its group; and the
        // end of one is an event on the other.
        let _ = fcntl(&self.sender, FcntlArg::F_SETFL(OFlag::O_NONBLOCK));
    }
}

/// Gives the fuse behind a descriptor to a process group; async-signal-safe.
pub(crate) fn own(fuse: BorrowedFd<'_>, group: Pid) -> nix::Result<()> {
    control(fuse, libc::F_SETOWN, -group.as_raw()).map(drop)
}

/// The process group that PID 1 leads. The kernel does not deliver the SIGKILL of a fuse to PID 1 itself.
pub(crate) const INIT_GROUP: Pid = Pid::from_raw(1);

/// The kernel's shortest wait before it probes a window of zero; it counts the timeout from the first probe.
const FIRST_PROBE: Duration = Duration::from_millis(200);

/// The time between probes, if the kernel lets that be set.
const PROBE: Duration = Duration::from_secs(1);

/// Count of unanswered probes in a row that means no answer. The kernel leaves fewer unanswered if they follow each other closely.
const UNANSWERED: u8 = 3;

/// A shorter suspend makes no fuse noticeably late, and the two clocks are not read at the same instant.
const NAP: Duration = Duration::from_millis(20);

/// The unit of TCP_USER_TIMEOUT. What is set again for the same instant differs by less.
const TICK: Duration = Duration::from_millis(1);

/// TCP_USER_TIMEOUT holds 24 days in milliseconds.
const LONGEST: Duration = Duration::from_hours(24 * 20);

/// Limit on the wait for the connection, and for a byte over it. The kernel usually delivers both within the call.
const PATIENCE: Duration = Duration::from_millis(50);

/// Limit on the writes, more than the smallest buffers hold.
const ENOUGH: usize = 64;

/// uapi/linux/tcp.h: the longest wait between two probes.
const TCP_RTO_MAX_MS: i32 = 44;

/// asm-generic/fcntl.h.
const F_SETSIG: i32 = 10;

/// Returns true if TCP_USER_TIMEOUT ends a connection whose window is zero, and in time (Linux 9d9b1ee0b2d1 and 344db93ae3ee).
fn is_exact(release: &str) -> bool {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map_while(|number| number.parse::<u32>().ok());
    let (Some(major), Some(minor)) = (numbers.next(), numbers.next()) else { return true };
    (major, minor) >= (5, 10) || (major, minor) == (5, 4) && numbers.next() >= Some(96)
}

fn on_kernel_clock(at: Instant) -> Duration {
    clock::on_kernel_clock(at, clock::monotonic())
}

fn connection() -> io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    // The least that the kernel grants.
    setsockopt(&listener, sockopt::RcvBuf, &1)?;
    let patience = TimeVal::milliseconds(i64::try_from(PATIENCE.as_millis()).unwrap_or(i64::MAX));
    setsockopt(&listener, sockopt::ReceiveTimeout, &patience)?;
    let sender = TcpStream::connect_timeout(&listener.local_addr()?, PATIENCE)?;
    let (receiver, peer) = listener.accept()?;
    if peer != sender.local_addr()? {
        return Err(io::Error::other("somebody else connected"));
    }
    Ok((sender, receiver))
}

fn fill(mut sender: &TcpStream, mut receiver: &TcpStream) -> io::Result<()> {
    // Otherwise what is sent does not stay in the kernel's TCP: something redirects it.
    let bottomless = || Err(io::Error::other("it does not fill up"));
    setsockopt(sender, sockopt::SndBuf, &1)?;
    sender.set_nonblocking(true)?;
    match (0..ENOUGH).find_map(|_| sender.write(&[0; 4096]).err()) {
        Some(full) if full.kind() == ErrorKind::WouldBlock => {}
        Some(error) => return Err(error),
        None => return bottomless(),
    }
    arrives(receiver.as_fd())?;
    // Announces that the window is zero, now that it is; otherwise that would happen 40 ms later.
    receiver.write_all(&[0])?;
    // The kernel may deliver later than the call returns; once the signal is set, whatever arrives kills.
    arrives(sender.as_fd())?;
    if unsent(sender.as_fd())? == 0 { bottomless() } else { Ok(()) }
}

/// Waits for the first byte.
fn arrives(socket: BorrowedFd<'_>) -> io::Result<()> {
    let patience = PollTimeout::try_from(PATIENCE).unwrap_or(PollTimeout::ZERO);
    match poll(&mut [PollFd::new(socket, PollFlags::POLLIN)], patience)? {
        0 => Err(ErrorKind::TimedOut.into()),
        _ => Ok(()),
    }
}

#[expect(unsafe_code, reason = "nix does not wrap it")]
fn unsent(socket: BorrowedFd<'_>) -> nix::Result<i32> {
    const SIOCOUTQNSD: libc::c_ulong = 0x894b;
    let mut bytes = 0_i32;
    // SAFETY: the kernel writes one int to a live local.
    Errno::result(unsafe { libc::ioctl(socket.as_raw_fd(), SIOCOUTQNSD as _, &raw mut bytes) })?;
    Ok(bytes)
}

/// Count of the probes sent since the last answer: the fourth byte of struct tcp_info.
#[expect(unsafe_code, reason = "nix does not wrap it")]
fn unanswered(socket: BorrowedFd<'_>) -> nix::Result<u8> {
    let mut info = [0_u8; 4];
    let mut length = 4;
    // SAFETY: the kernel writes at most `length` bytes to a live local.
    let got = unsafe {
        libc::getsockopt(socket.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_INFO, info.as_mut_ptr().cast(), &raw mut length)
    };
    Errno::result(got)?;
    let [.., probes] = info;
    Ok(probes)
}

#[expect(unsafe_code, reason = "nix does not wrap it")]
fn set_option(socket: BorrowedFd<'_>, option: i32, value: i32) -> nix::Result<()> {
    let value = &raw const value;
    // SAFETY: the kernel reads one int from a live local.
    let set = unsafe { libc::setsockopt(socket.as_raw_fd(), libc::IPPROTO_TCP, option, value.cast(), size_of::<i32>() as u32) };
    Errno::result(set).map(drop)
}

/// fcntl(2) with a number; async-signal-safe.
#[expect(unsafe_code, reason = "nix does not wrap these")]
fn control(file: BorrowedFd<'_>, command: i32, argument: i32) -> nix::Result<i32> {
    // SAFETY: the commands take a number or nothing. A process group is told as a negative number, which is no error.
    match unsafe { libc::fcntl(file.as_raw_fd(), command, argument) } {
        -1 => Err(Errno::last()),
        result => Ok(result),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn armed() -> (Fuse, Instant) {
        let at = clock::boot() + Duration::from_hours(1);
        (Fuse::arm(at).unwrap(), at)
    }

    fn port(fuse: &Fuse) -> u16 {
        fuse.sender.local_addr().unwrap().port()
    }

    #[test]
    fn one_through_which_the_machine_slept_is_made_anew_when_it_is_set() {
        let (mut fuse, at) = armed();
        let before = port(&fuse);
        fuse.slept += Duration::from_secs(3);

        fuse.set(at).unwrap();

        assert_ne!(port(&fuse), before);
    }

    #[test]
    fn one_whose_probes_grow_rarer_is_made_anew_when_it_is_set() {
        let (mut fuse, at) = armed();
        let before = port(&fuse);
        fuse.steady = false;

        fuse.set(at).unwrap();

        assert_ne!(port(&fuse), before);
    }

    #[test]
    fn one_that_is_about_to_fire_is_not_put_off() {
        let at = clock::boot() + FIRST_PROBE;
        let mut fuse = Fuse::arm(at).unwrap();
        let before = port(&fuse);
        fuse.steady = false;

        fuse.set(at).unwrap();

        assert_eq!(port(&fuse), before);
    }

    #[test]
    fn kernels_whose_timeout_is_late_or_never_have_none() {
        let exact = ["5.4.96", "5.10.0-28-cloud-amd64", "6.1.0", "6.18.44-x", "10.0", "", "unknown"];
        let inexact = ["4.18.0-553.el8.x86_64", "5.4.0-42-generic", "5.4.95", "5.9.16", "4.19.0"];

        assert_eq!(exact.map(is_exact), [true; 7]);
        assert_eq!(inexact.map(is_exact), [false; 5]);
    }
}
