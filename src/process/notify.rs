//! NOTIFY_SOCKET: what the workload says about itself.
//!
//! Owns the socket and its few fields. Accepts a datagram only if the kernel names its sender, and that is the workload's main
//! process or descends from it. Never blocks, and never decides what a message means for a role.

use std::{
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
};

use nix::{
    errno::Errno,
    sys::socket::{AddressFamily, MsgFlags, SockFlag, SockType, UnixAddr, bind, recv, setsockopt, socket, sockopt},
    unistd::Pid,
};

use crate::{process::scan::Scanner, role::Role};

/// At most this many datagrams are discarded before the socket counts as one that cannot be drained. The kernel queues no more
/// than net.unix.max_dgram_qlen, 10 unless it was raised, so more than this many come from a sender that does not stop.
const MOST: usize = 4096;

/// Longest datagram that is read; sd_notify messages are lines.
const MAX_DATAGRAM: usize = 4096;

/// Why a datagram was rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Rejected {
    /// Longer than a notification is, or not UTF-8.
    #[error("a notification that is not text, or of more than {MAX_DATAGRAM} bytes, was dropped")]
    NotText,
    /// Nobody can tell who sent it.
    #[error("a notification was dropped: without a usable /proc nobody knows who sent it")]
    Unknown,
    /// Neither the main process nor its descendant, or gone before it could be checked.
    #[error("a notification of process {0} was dropped: it does not belong to the workload's main process, or has ended")]
    Stranger(Pid),
}

/// The socket.
#[derive(Debug)]
pub struct NotifySocket {
    socket: OwnedFd,
    name: String,
}

impl NotifySocket {
    /// Binds it to an abstract name with 128 random bits.
    ///
    /// # Errors
    /// No randomness, or any error of socket(2), setsockopt(2) and bind(2).
    pub fn open() -> io::Result<Self> {
        let mut random = [0; 16];
        getrandom::fill(&mut random).map_err(|error| io::Error::other(error.to_string()))?;
        let name = format!("tenure/notify/{:032x}", u128::from_ne_bytes(random));
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let socket = socket(AddressFamily::Unix, SockType::Datagram, flags, None)?;
        // Before the bind, so that no datagram comes without credentials.
        setsockopt(&socket, sockopt::PassCred, &true)?;
        bind(socket.as_raw_fd(), &UnixAddr::new_abstract(name.as_bytes())?)?;
        Ok(Self { socket, name })
    }

    /// The value of NOTIFY_SOCKET.
    #[must_use]
    pub fn address(&self) -> String {
        format!("@{}", self.name)
    }

    /// What the next queued datagram says: a role, its sender checked against the workload's main process, or nothing that has a
    /// meaning here. Without a scanner no role counts.
    ///
    /// # Errors
    /// Any error of recvmsg(2).
    pub fn receive(&self, main: Pid, scanner: Option<&Scanner>) -> io::Result<Option<Result<Option<Role>, Rejected>>> {
        let mut buffer = [0; MAX_DATAGRAM];
        let Some((length, sender)) = self.read(&mut buffer)? else { return Ok(None) };
        let text = buffer.get(..length).and_then(|bytes| std::str::from_utf8(bytes).ok());
        let Some(text) = text else { return Ok(Some(Err(Rejected::NotText))) };
        // Whoever says something else may be gone already, as systemd-notify is once its BARRIER=1 was read.
        let Some(role) = parse(text) else { return Ok(Some(Ok(None))) };
        let Some(scanner) = scanner else { return Ok(Some(Err(Rejected::Unknown))) };
        if !belongs(scanner, sender, main) {
            return Ok(Some(Err(Rejected::Stranger(sender))));
        }
        Ok(Some(Ok(Some(role))))
    }

    /// Discards all that is queued: an acknowledgement counts only from a socket that was drained before the signal (law 8).
    ///
    /// # Errors
    /// EBUSY if it fills faster than it is drained, or any error of recv(2): something may be left.
    pub fn drain(&self) -> io::Result<()> {
        Ok(drain(self.as_fd())?)
    }

    /// Length (more than the buffer's if it was truncated) and sender of the next datagram; an unknown sender is 0.
    ///
    /// There is room only for the credentials: descriptors that were sent along are closed by the kernel, which is all that
    /// sd_notify_barrier(3) needs, and never use up those that init may have.
    #[expect(unsafe_code, reason = "nix gives no credentials where something else was cut off")]
    fn read(&self, buffer: &mut [u8]) -> io::Result<Option<(usize, Pid)>> {
        // SAFETY: zeroes are no control message, of nobody.
        let mut control: Control = unsafe { std::mem::zeroed() };
        let mut slice = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
        loop {
            // SAFETY: zeroes are an empty msghdr.
            let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
            message.msg_iov = &raw mut slice;
            message.msg_iovlen = 1;
            message.msg_control = (&raw mut control).cast();
            message.msg_controllen = size_of::<Control>() as _;
            // SAFETY: the message points to live locals of the lengths that it names.
            let length =
                unsafe { libc::recvmsg(self.socket.as_raw_fd(), &raw mut message, libc::MSG_TRUNC | libc::MSG_CMSG_CLOEXEC) };
            match Errno::result(length) {
                Ok(length) => {
                    return Ok(Some((usize::try_from(length).unwrap_or_default(), control.sender(message.msg_controllen as _))));
                }
                Err(Errno::EAGAIN) => return Ok(None),
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}

/// One control message, with the credentials of the sender. They come first.
#[repr(C)]
struct Control {
    header: libc::cmsghdr,
    credentials: libc::ucred,
}

impl Control {
    fn sender(&self, received: usize) -> Pid {
        let whole = received >= std::mem::offset_of!(Self, credentials) + size_of::<libc::ucred>();
        let is_told = whole && (self.header.cmsg_level, self.header.cmsg_type) == (libc::SOL_SOCKET, libc::SCM_CREDENTIALS);
        Pid::from_raw(if is_told { self.credentials.pid } else { 0 })
    }
}

impl AsFd for NotifySocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// As [`NotifySocket::drain`]; async-signal-safe.
pub(crate) fn drain(socket: BorrowedFd<'_>) -> nix::Result<()> {
    for _ in 0..MOST {
        match recv(socket.as_raw_fd(), &mut [], MsgFlags::MSG_DONTWAIT) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(Errno::EAGAIN) => return Ok(()),
            Err(errno) => return Err(errno),
        }
    }
    Err(Errno::EBUSY)
}

/// A descendant whose parents are gone is still known by its process group.
fn belongs(scanner: &Scanner, sender: Pid, main: Pid) -> bool {
    scanner.descends(sender, main) || scanner.look(sender).is_some_and(|process| process.group == main)
}

/// The role that a datagram names; the last one counts, and lines without a meaning here are skipped.
pub(crate) fn parse(text: &str) -> Option<Role> {
    let role = |line| match line {
        "X_TENURE_ROLE=leader" => Some(Role::Leader),
        "X_TENURE_ROLE=standby" => Some(Role::Standby),
        _ => None,
    };
    text.lines().filter_map(role).next_back()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_role_of_a_datagram_counts_and_what_means_nothing_here_is_skipped() {
        assert_eq!(parse("X_TENURE_ROLE=leader\nSTATUS=x\nX_TENURE_ROLE=standby\nREADY=1"), Some(Role::Standby));
        assert_eq!(parse("X_TENURE_ROLE=standby\nX_TENURE_ROLE=leader"), Some(Role::Leader));
        for nothing in
            ["", "READY=1", "X_TENURE_ROLE=", "X_TENURE_ROLE=Leader", " X_TENURE_ROLE=leader", "X_TENURE_ROLE=leader x"]
        {
            assert_eq!(parse(nothing), None, "{nothing:?}");
        }
    }
}
