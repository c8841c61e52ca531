//! Runs a program where the kernel refuses a system call.

use std::{io, os::unix::process::CommandExt as _, process::Command};

/// A step of a filter: what to do, where to go on if it holds and if not, and with what.
type Step = (u32, u8, u8, u32);

/// Loads the number of the call, or this word of its arguments.
const CALL: Step = (LOAD, 0, 0, 0);
const FIRST_ARGUMENT: Step = (LOAD, 0, 0, 16);
const LOAD: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
const IS: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
const AT_LEAST: u32 = libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K;
const RETURN: u32 = libc::BPF_RET | libc::BPF_K;
const ALLOW: Step = (RETURN, 0, 0, libc::SECCOMP_RET_ALLOW);

/// Runs it under a seccomp profile that denies this call.
#[allow(unsafe_code, reason = "a seccomp filter is set between fork and execve")]
pub fn denied(command: &mut Command, call: libc::c_long) -> &mut Command {
    let set = move || filter([CALL, (IS, 0, 1, call as u32), refused(libc::EPERM), ALLOW]);
    // SAFETY: it makes two system calls and allocates nothing.
    unsafe { command.pre_exec(set) }
}

/// Runs it on a kernel before Linux 5.11, where close_range marks nothing. A process that looks at a descriptor from `end` on is killed.
#[allow(unsafe_code, reason = "a seccomp filter is set between fork and execve")]
pub fn without_close_range(command: &mut Command, end: u32) -> &mut Command {
    let is_close_range = (IS, 0, 1, libc::SYS_close_range as u32);
    let (is_fcntl, is_beyond) = ((IS, 0, 3, libc::SYS_fcntl as u32), (AT_LEAST, 0, 1, end));
    let killed = (RETURN, 0, 0, libc::SECCOMP_RET_KILL_PROCESS);
    let steps = [CALL, is_close_range, refused(libc::EINVAL), is_fcntl, FIRST_ARGUMENT, is_beyond, killed, ALLOW];
    // SAFETY: it makes two system calls and allocates nothing.
    unsafe { command.pre_exec(move || filter(steps)) }
}

/// From now on this thread runs on a kernel without IPv6.
pub fn without_ipv6() {
    let is_socket = (IS, 0, 3, libc::SYS_socket as u32);
    let is_ipv6 = (IS, 0, 1, libc::AF_INET6 as u32);
    filter([CALL, is_socket, FIRST_ARGUMENT, is_ipv6, refused(libc::EAFNOSUPPORT), ALLOW]).expect("a filter");
}

/// From now on this thread can make no other.
pub fn without_threads() {
    let (is_clone3, is_clone) = ((IS, 1, 0, libc::SYS_clone3 as u32), (IS, 0, 1, libc::SYS_clone as u32));
    filter([CALL, is_clone3, is_clone, refused(libc::EAGAIN), ALLOW]).expect("a filter");
}

const fn refused(error: libc::c_int) -> Step {
    (RETURN, 0, 0, libc::SECCOMP_RET_ERRNO | error as u32)
}

#[allow(unsafe_code, reason = "a seccomp filter is set by prctl")]
fn filter<const N: usize>(steps: [Step; N]) -> io::Result<()> {
    let mut filter = steps.map(|(code, jt, jf, k)| libc::sock_filter { code: code as u16, jt, jf, k });
    let program = libc::sock_fprog { len: N as u16, filter: filter.as_mut_ptr() };
    // SAFETY: the calls take numbers, and a program that lives until they return.
    let result = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
            | libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
