//! Reads and parses the files of /proc.

use std::{ffi::CStr, fs, io::Write as _, os::fd::OwnedFd, str::SplitAsciiWhitespace};

use nix::{
    errno::Errno,
    fcntl::{OFlag, openat},
    sys::stat::Mode,
    unistd::{Pid, read},
};

use super::Process;

/// `hidepid` of the topmost /proc in `/proc/self/mountinfo`, unless off.
pub(super) fn hidepid(mounts: &str) -> Option<&str> {
    let (_, options) = mounts
        .lines()
        .filter_map(|line| line.split_once(" - proc "))
        .rfind(|(mount, _)| mount.split(' ').nth(4) == Some("/proc"))?;
    let value = options.split([' ', ',']).find_map(|option| option.strip_prefix("hidepid="))?;
    (!matches!(value, "0" | "off")).then_some(value)
}

/// The process with this pid. ENOENT and ESRCH: it is gone.
pub(super) fn stat(proc: &OwnedFd, pid: Pid) -> nix::Result<Process> {
    let mut path = [0; 32];
    write!(path.as_mut_slice(), "{pid}/stat").map_err(|_| Errno::ENAMETOOLONG)?;
    let path = CStr::from_bytes_until_nul(&path).map_err(|_| Errno::ENAMETOOLONG)?;
    let file = openat(proc, path, OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty())?;
    // The kernel gives it whole.
    let mut line = [0; 1024];
    let length = read(&file, &mut line)?;
    line.get(..length).and_then(|line| parse_stat(pid, line)).ok_or(Errno::EIO)
}

/// The fields after the name of a process, which may hold spaces, parentheses and newlines: the state, then numbers. Allocates
/// nothing.
pub(in crate::process) fn stat_fields(line: &[u8]) -> Option<SplitAsciiWhitespace<'_>> {
    let name_end = line.iter().rposition(|byte| *byte == b')')?;
    Some(std::str::from_utf8(line.get(name_end + 1..)?).ok()?.split_ascii_whitespace())
}

fn parse_stat(pid: Pid, line: &[u8]) -> Option<Process> {
    let mut fields = stat_fields(line)?;
    let state = fields.next()?.bytes().next()?;
    let mut id = || fields.next()?.parse().ok().map(Pid::from_raw);
    let (parent, group, session) = (id()?, id()?, id()?);
    let threads = fields.nth(13)?.parse().ok()?;
    let start = fields.nth(1)?.parse().ok()?;
    Some(Process { pid, parent, group, session, state, threads, start })
}

/// Returns true if a process was started with this entry in its environment. Returns false if that cannot be read.
pub(super) fn has_entry(pid: Pid, entry: &str) -> bool {
    let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    environment.split(|byte| *byte == 0).any(|one| one == entry.as_bytes())
}

/// The children of this single-threaded process, including those that /proc hides. `None` if the kernel does not tell.
pub(crate) fn children(pid: Pid) -> Option<Vec<Pid>> {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
    children.split_ascii_whitespace().map(|pid| pid.parse().ok().map(Pid::from_raw)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pid(number: i32) -> Pid {
        Pid::from_raw(number)
    }

    #[test]
    fn a_name_may_hold_anything() {
        let line = b"7 (a) R 1 (\nb)) S 3 4 5 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 224565 1000 9 18446744073709551615 0\n";
        let expected =
            Process { pid: pid(7), parent: pid(3), group: pid(4), session: pid(5), state: b'S', threads: 1, start: 224_565 };
        assert_eq!(parse_stat(pid(7), line), Some(expected));
    }

    #[test]
    fn a_line_that_is_cut_is_no_process() {
        let line = b"7 (a) S 3 4 5 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0";
        assert!((0..=line.len()).all(|end| parse_stat(pid(7), &line[..end]).is_none()));
    }

    #[test]
    fn hidepid_of_the_topmost_proc_counts() {
        let open = "25 30 0:23 / /proc rw,nosuid shared:14 - proc proc rw\n";
        let hiding = "90 30 0:99 / /proc rw - proc proc rw,hidepid=invisible\n";
        let elsewhere = "91 30 0:98 / /mnt/proc rw - proc proc rw,hidepid=2\n";
        assert_eq!(hidepid(&format!("{open}{elsewhere}")), None);
        assert_eq!(hidepid(&format!("{open}{hiding}{elsewhere}")), Some("invisible"));
        assert_eq!(hidepid(&format!("{hiding}{open}")), None);
        assert_eq!(hidepid(&open.replace("proc rw\n", "proc rw,hidepid=0\n")), None);
    }
}
