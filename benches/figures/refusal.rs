//! Denies the kernel's fuse to the command that it runs.
//!
//! It is a hidden mode of this benchmark, so that tenure needs no switch to turn the fuse off.

use std::{os::unix::process::CommandExt as _, process::ExitCode};

const FACE: &str = "refuse-the-fuse";

/// The command line that runs its arguments without a fuse.
pub fn command() -> Vec<String> {
    let program = std::env::current_exe().expect("this benchmark");
    vec![program.to_string_lossy().into_owned(), FACE.into()]
}

/// Applies the refusal and executes the rest of the command line, if this process was started for that.
pub fn face() -> Option<ExitCode> {
    let line: Vec<String> = std::env::args().collect();
    let [_, face, program, arguments @ ..] = line.as_slice() else { return None };
    if face != FACE {
        return None;
    }
    refuse_signals_of_descriptors();
    let error = std::process::Command::new(program).args(arguments).exec();
    panic!("{program}: {error}");
}

/// Makes fcntl(2) with F_SETSIG fail from now on, in every process that this one starts. Only the fuse makes this call.
#[allow(unsafe_code, reason = "nix has no seccomp")]
fn refuse_signals_of_descriptors() {
    const F_SETSIG: u32 = 10;
    const NUMBER: u32 = 0;
    const SECOND_ARGUMENT: u32 = 24;
    let load = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    let is = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    let end = (libc::BPF_RET | libc::BPF_K) as u16;
    let refuse = libc::SECCOMP_RET_ERRNO | libc::EPERM as u32;
    // SAFETY: both only fill in a struct.
    let (step, jump) = unsafe {
        let step = |code, k| libc::BPF_STMT(code, k);
        (step, |k, yes, no| libc::BPF_JUMP(is, k, yes, no))
    };
    let mut filter = [
        step(load, NUMBER),
        jump(libc::SYS_fcntl as u32, 0, 3),
        step(load, SECOND_ARGUMENT),
        jump(F_SETSIG, 0, 1),
        step(end, refuse),
        step(end, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: the filter outlives the call, which copies it.
    let refused = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) == 0
    };
    assert!(refused, "seccomp: {}", std::io::Error::last_os_error());
}
