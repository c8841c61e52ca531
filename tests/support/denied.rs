//! Runs a program where the kernel refuses a system call.

use std::{os::unix::process::CommandExt as _, process::Command};

/// Runs it under a seccomp profile that denies this call.
#[allow(unsafe_code, reason = "a seccomp filter is set between fork and execve")]
pub fn denied(command: &mut Command, call: libc::c_long) -> &mut Command {
    let instruction = |code: u32, jt, jf, k: u32| libc::sock_filter { code: code as u16, jt, jf, k };
    let returns = libc::BPF_RET | libc::BPF_K;
    let filter = [
        instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        instruction(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, call as u32),
        instruction(returns, 0, 0, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
        instruction(returns, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let set = move || {
        let mut filter = filter;
        let program = libc::sock_fprog { len: 4, filter: filter.as_mut_ptr() };
        // SAFETY: the calls take numbers, and a program that lives until they return.
        let result = unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
                | libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program)
        };
        if result == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
    };
    // SAFETY: it makes two system calls and allocates nothing.
    unsafe { command.pre_exec(set) }
}
