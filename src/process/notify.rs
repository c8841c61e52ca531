//! NOTIFY_SOCKET: what the workload says about itself.
//!
//! Owns the socket, whose datagrams are believed, and the mark that tells those before it from those after it. Accepts a datagram
//! only if the kernel names its sender, and that is the workload's main process or, unless `workload.notifyAccess` is `main`,
//! descends from it. Never blocks, and never decides what a message means. Tenure itself tells no supervisor anything: a
//! NOTIFY_SOCKET that it was given goes to the workload where this socket is not asked for.

use std::{
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
};

use nix::{
    errno::Errno,
    sys::socket::{
        AddressFamily, MsgFlags, SockFlag, SockType, UnixAddr, bind, getsockname, sendto, setsockopt, socket, sockopt,
    },
    unistd::Pid,
};

use crate::{
    config::NotifyAccess,
    notification::{Heard, parse},
    process::scan::Scanner,
};

/// Longest datagram that is read; sd_notify messages are lines.
const MAX_DATAGRAM: usize = 4096;

/// The beginning of a mark.
const MARK: &[u8] = b"X_TENURE_MARK=";

/// A datagram of tenure's own to its own socket: what is read later was said later.
#[derive(Clone, Copy, Debug)]
pub struct Mark<'a> {
    /// The socket.
    pub socket: BorrowedFd<'a>,
    /// Tells it from others.
    pub number: u64,
}

impl Mark<'_> {
    /// Sets it; async-signal-safe. The kernel has room for it however many datagrams of others are queued.
    ///
    /// # Errors
    /// Any error of sendto(2).
    pub fn set(self) -> nix::Result<()> {
        let mut text = [0; MARK.len() + size_of::<u64>()];
        let (before, number) = text.split_at_mut(MARK.len());
        before.copy_from_slice(MARK);
        number.copy_from_slice(&self.number.to_ne_bytes());
        let socket = self.socket.as_raw_fd();
        let address: UnixAddr = getsockname(socket)?;
        sendto(socket, &text, &address, MsgFlags::MSG_DONTWAIT).map(drop)
    }
}

/// Why a datagram was rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Rejected {
    /// Longer than a notification is.
    #[error("a notification of more than {MAX_DATAGRAM} bytes was dropped")]
    TooLong,
    /// Nobody can tell who sent it.
    #[error("a notification was dropped: without a usable /proc nobody knows who sent it")]
    Unknown,
    /// Neither the main process nor known as its descendant, or gone before it could be checked, or not the one that may.
    #[error(
        "a notification of process {0} was dropped: it is not the workload's main process (workload.notifyAccess), has ended, or is a \
         daemon, whose parents have"
    )]
    Stranger(Pid),
}

impl Rejected {
    /// Its kind, whoever sent it.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::TooLong => "too long",
            Self::Unknown => "unknown",
            Self::Stranger(_) => "stranger",
        }
    }
}

/// The socket.
#[derive(Debug)]
pub struct NotifySocket {
    socket: OwnedFd,
    name: String,
    access: NotifyAccess,
}

impl NotifySocket {
    /// Binds it to an abstract name with 128 random bits; `access` says who is believed.
    ///
    /// # Errors
    /// No randomness, or any error of socket(2), setsockopt(2) and bind(2).
    pub fn open(access: NotifyAccess) -> io::Result<Self> {
        let mut random = [0; 16];
        getrandom::fill(&mut random).map_err(|error| io::Error::other(error.to_string()))?;
        let name = format!("tenure/notify/{:032x}", u128::from_ne_bytes(random));
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let socket = socket(AddressFamily::Unix, SockType::Datagram, flags, None)?;
        // Before the bind, so that no datagram comes without credentials.
        setsockopt(&socket, sockopt::PassCred, &true)?;
        bind(socket.as_raw_fd(), &UnixAddr::new_abstract(name.as_bytes())?)?;
        Ok(Self { socket, name, access })
    }

    /// The value of NOTIFY_SOCKET.
    pub fn address(&self) -> String {
        format!("@{}", self.name)
    }

    /// Receives the next datagram, and checks that its sender belongs to the workload. Without a scanner only the main process is
    /// believed.
    ///
    /// # Errors
    /// Any error of recvmsg(2).
    pub fn receive(&self, main: Pid, scanner: Option<&Scanner>) -> io::Result<Option<Result<Heard, Rejected>>> {
        let mut buffer = [0; MAX_DATAGRAM];
        let Some((length, sender)) = self.read(&mut buffer)? else { return Ok(None) };
        let bytes = buffer.get(..length);
        if let Some(number) = bytes.and_then(|bytes| bytes.strip_prefix(MARK)?.try_into().ok()) {
            return Ok(Some(Ok(Heard::Marked(u64::from_ne_bytes(number)))));
        }
        // As under systemd, a STATUS in another encoding takes no READY=1 with it.
        let Some(said) = bytes.map(|bytes| parse(&String::from_utf8_lossy(bytes))) else {
            return Ok(Some(Err(Rejected::TooLong)));
        };
        // Whoever says nothing of a meaning may be gone already, as systemd-notify is once its BARRIER=1 was read.
        let trusted = if said.is_empty() || sender == main { Ok(()) } else { self.check(sender, main, scanner) };
        Ok(Some(trusted.map(|()| Heard::Said(said))))
    }

    /// A descendant whose parents are gone is still known by its process group.
    fn check(&self, sender: Pid, main: Pid, scanner: Option<&Scanner>) -> Result<(), Rejected> {
        let belongs = match (self.access, scanner) {
            (NotifyAccess::Main, _) => false,
            (NotifyAccess::All, None) => return Err(Rejected::Unknown),
            (NotifyAccess::All, Some(scanner)) => {
                scanner.descends(sender, main) || scanner.look(sender).is_some_and(|process| process.group == main)
            }
        };
        if belongs { Ok(()) } else { Err(Rejected::Stranger(sender)) }
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

/// A control message with the credentials of the sender, which the kernel puts first.
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
