//! Listening sockets that tenure was started with, and hands to its workload: sd_listen_fds(3).
//!
//! Owns what the variables about them mean, and the one that names a process. Never opens or closes a socket.

use std::{
    io::Write as _,
    ops::Range,
    os::fd::{BorrowedFd, RawFd},
};

use nix::{
    fcntl::{FcntlArg, FdFlag, fcntl},
    unistd::Pid,
};

/// The process that the sockets are for, by its pid, and since systemd 258 by the inode of its pidfd, too.
pub const NAMES_PROCESS: [&str; 2] = ["LISTEN_PID", "LISTEN_PIDFDID"];
/// The variables with the number and the names of the sockets.
pub const DESCRIBES: [&str; 2] = [COUNT, "LISTEN_FDNAMES"];
const COUNT: &str = "LISTEN_FDS";
/// The first of them: SD_LISTEN_FDS_START.
const FIRST: RawFd = 3;

/// [`entry`]'s room.
pub type Entry = [u8; 24];

/// The sockets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sockets(Range<RawFd>);

impl Sockets {
    /// Returns the sockets that these variables promise to this process; none if they name another one.
    ///
    /// # Errors
    /// What they promise is not there.
    pub fn inherited(variable: impl Fn(&str) -> Option<String>) -> Result<Option<Self>, String> {
        let [pid, _] = NAMES_PROCESS;
        let (Some(count), Some(pid)) = (variable(COUNT), variable(pid)) else { return Ok(None) };
        if pid != Pid::this().to_string() {
            return Ok(None);
        }
        let count: u16 = count.parse().map_err(|_| format!("LISTEN_FDS: {count:?} is not a number of descriptors"))?;
        let all = FIRST..FIRST + RawFd::from(count);
        match all.clone().find(|number| !is_inherited(*number)) {
            Some(missing) => Err(format!(
                "LISTEN_FDS={count}, but tenure was started without descriptor {missing}: pass it on, or unset LISTEN_FDS"
            )),
            None => Ok(Some(Self(all))),
        }
    }

    /// Their descriptors.
    pub fn numbers(&self) -> Range<RawFd> {
        self.0.clone()
    }
}

/// Returns true if the descriptor was open before this program started: tenure's own are close-on-exec.
#[expect(unsafe_code, reason = "a descriptor that may not be open")]
fn is_inherited(number: RawFd) -> bool {
    // SAFETY: it is only asked about, and lives no longer than this line.
    let flags = fcntl(unsafe { BorrowedFd::borrow_raw(number) }, FcntlArg::F_GETFD);
    flags.is_ok_and(|flags| flags & FdFlag::FD_CLOEXEC.bits() == 0)
}

/// The variable that tells a process of this pid that the sockets are for it, as execve takes it. Allocates nothing.
pub fn entry(pid: Pid) -> Entry {
    let mut entry = Entry::default();
    // There is room for every pid, and for the end of the string.
    let _ = write!(entry.as_mut_slice(), "LISTEN_PID={pid}\0");
    entry
}

#[cfg(test)]
mod tests {
    use std::{fs::File, os::fd::AsRawFd as _};

    use super::*;

    fn inherited(pid: &str, count: &str) -> Result<Option<Sockets>, String> {
        Sockets::inherited(|name| Some(if name == COUNT { count } else { pid }.to_owned()))
    }

    #[test]
    fn sockets_for_another_process_are_left_alone() {
        assert_eq!(inherited("1", "nonsense").unwrap(), None);
        assert_eq!(Sockets::inherited(|_| None).unwrap(), None);
    }

    #[test]
    fn what_was_promised_and_is_not_there_is_said() {
        let me = Pid::this().to_string();
        // The first free number is this program's own now.
        let own = File::open("/dev/null").unwrap();
        let missing = own.as_raw_fd() - FIRST + 1;

        let errors = ["-1".to_owned(), missing.to_string()].map(|count| inherited(&me, &count).unwrap_err());

        assert_eq!(errors[0], "LISTEN_FDS: \"-1\" is not a number of descriptors");
        assert!(
            errors[1].starts_with(&format!("LISTEN_FDS={missing}, but tenure was started without descriptor ")),
            "{errors:?}"
        );
        assert_eq!(inherited(&me, "0").unwrap().unwrap().numbers(), FIRST..FIRST);
    }

    #[test]
    fn the_greatest_pid_has_room() {
        assert!(entry(Pid::from_raw(i32::MAX)).starts_with(b"LISTEN_PID=2147483647\0"));
    }
}
