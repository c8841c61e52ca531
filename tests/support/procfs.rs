//! Reads what /proc shows of a process at one moment; a caller that waits for a change must look again.

use std::fs;

use nix::unistd::Pid;

/// All processes, zombies included.
pub fn all() -> impl Iterator<Item = Pid> {
    let names = fs::read_dir("/proc").expect("/proc").filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    names.map(Pid::from_raw)
}

/// The children of its first thread, including adopted ones.
pub fn children(parent: Pid) -> Vec<Pid> {
    let children = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).unwrap_or_default();
    children.split_whitespace().filter_map(|pid| pid.parse().ok()).map(Pid::from_raw).collect()
}

/// Its pid in its own namespace.
pub fn own_id(pid: Pid) -> Option<u32> {
    status(pid, "NSpid")?.split_whitespace().last()?.parse().ok()
}

/// A field of its status; none if it is gone.
pub fn status(pid: Pid, field: &str) -> Option<String> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let value = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))?;
    Some(value.trim().to_owned())
}

/// The words of its command line.
pub fn command_line(pid: Pid) -> Vec<String> {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    line.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned()).collect()
}

/// Its state letter as in proc(5); none if it is gone.
pub fn state(pid: Pid) -> Option<char> {
    stat(pid)?.chars().next()
}

/// Returns whether the process is gone, or a zombie.
pub fn is_dead(pid: Pid) -> bool {
    matches!(state(pid), None | Some('Z'))
}

/// Its parent; none if it is gone.
pub fn parent(pid: Pid) -> Option<Pid> {
    number(&stat(pid)?, 1)
}

/// The leader of its session; none if it is gone.
pub fn session(pid: Pid) -> Option<Pid> {
    number(&stat(pid)?, 3)
}

/// Everything after its name, which may contain blanks and parentheses itself.
fn stat(pid: Pid) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    Some(stat.rsplit_once(") ")?.1.to_owned())
}

fn number(stat: &str, index: usize) -> Option<Pid> {
    stat.split_whitespace().nth(index)?.parse().ok().map(Pid::from_raw)
}
