//! The memory of a process that must act even where memory is short.
//!
//! Owns two requests to the kernel, both of which it may refuse: to drop the pages that only the start needed, and to lock those
//! that are used from now on, so that code which has run once never has to be read from a disk that hangs (law 2). What has never
//! run, as what kills before the first stop, may have to be: beside it stands the kernel's fuse, which needs no page.
//! Also closes the memory, and the open files, to other processes of the same user.

use std::ffi::{c_int, c_void};

use libc::{MADV_DONTNEED, MCL_CURRENT, MCL_ONFAULT, PF_W, PT_LOAD, dl_phdr_info, size_t};
use nix::sys::prctl;

/// Drops the pages of this program's code and constants, which are read again when they are used.
pub fn forget_start() {
    let mut segments: Vec<(usize, usize)> = Vec::with_capacity(8);
    collect(&mut segments);
    for (start, length) in segments {
        forget(start, length);
    }
}

/// Lets no other process without CAP_SYS_PTRACE read this one's memory and environment, or take its open files (ptrace, `/proc/PID`,
/// pidfd_getfd), and lets it leave no core dump. A forked child inherits that, and a program that it executes does not.
pub fn close_to_others() {
    // The kernel refuses no such value.
    let _ = prctl::set_dumpable(false);
}

/// Takes [`close_to_others`] back.
pub fn open_to_others() {
    let _ = prctl::set_dumpable(true);
}

/// Locks every page that is used from now on into memory, if RLIMIT_MEMLOCK covers the whole address space. Children do not
/// inherit it.
pub fn keep_what_is_used() {
    #[expect(unsafe_code, reason = "nix does not know MCL_ONFAULT")]
    // SAFETY: it takes two flags, and changes nothing that a program can see. If refused, all stays as before.
    let _ = unsafe { libc::mlockall(MCL_CURRENT | MCL_ONFAULT) };
}

/// The program's own segments that it cannot write to. Relocated data is in segments that were once writable.
#[expect(unsafe_code, reason = "the C library hands the program headers to a callback")]
fn collect(segments: &mut Vec<(usize, usize)>) {
    unsafe extern "C" fn program(info: *mut dl_phdr_info, _: size_t, segments: *mut c_void) -> c_int {
        // SAFETY: both pointers are valid for this call, `segments` is the vector below, and the headers are as many as told.
        let (info, segments) = unsafe { (&*info, &mut *segments.cast::<Vec<(usize, usize)>>()) };
        // SAFETY: as above.
        let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
        for header in headers.iter().filter(|header| header.p_type == PT_LOAD && header.p_flags & PF_W == 0) {
            let word = |value| usize::try_from(value).unwrap_or_default();
            segments.push((word(info.dlpi_addr).wrapping_add(word(header.p_vaddr)), word(header.p_memsz)));
        }
        // The program itself comes first; anything but 0 ends the walk.
        1
    }
    // SAFETY: the callback is as required, and `segments` outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(program), std::ptr::from_mut(segments).cast()) };
}

#[expect(unsafe_code, reason = "madvise takes addresses")]
fn forget(start: usize, length: usize) {
    // SAFETY: it takes a number and returns one.
    let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096);
    // Whole pages within the segment: those at its ends may be shared with a neighbour that was written to.
    let (first, end) = (start.next_multiple_of(page), (start + length) / page * page);
    if first < end {
        // SAFETY: the pages are a private, unwritten mapping of the program's file, and are read from it again when touched.
        let _ = unsafe { libc::madvise(first as *mut c_void, end - first, MADV_DONTNEED) };
    }
}
