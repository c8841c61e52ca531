//! The term in memory (docs/term.md): a page that init keeps current, and that the workload reads without a system call.
//!
//! Owns its layout, the sealed file behind it and the lock in it. Only init's own mapping can write to it. Every later mapping,
//! through any descriptor of the file, is read-only. The content is [`TermStatus`], which `supervision::term` fills.

use std::{
    io,
    os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd},
    sync::atomic::{
        AtomicU32, AtomicU64,
        Ordering::{Acquire, Relaxed, Release},
        fence,
    },
    time::Duration,
};

use nix::{
    errno::Errno,
    fcntl::{FcntlArg, SealFlag, fcntl},
    sys::{
        memfd::{MFdFlags, memfd_create},
        stat::fstat,
    },
    unistd::ftruncate,
};

use crate::{role::Role, supervision::TermStatus, time::Instant};

/// The number of the descriptor, unless it is taken: far from the standard ones, from those of socket activation, which follow
/// them, and from what shells use for themselves; and within any usual limit.
const NUMBER: RawFd = 100;

const NO_ROOM: &str = "the limit on open files (ulimit -n) has no room for descriptor 100";

const MAGIC: u32 = u32::from_le_bytes(*b"TENU");
/// The version of the layout: rises when a field changes its place or its meaning.
const VERSION: u32 = 1;
/// Bytes of the file: the smallest page of all machines.
const SIZE: i64 = 4096;

/// Init writes for some nanoseconds, but it may be frozen meanwhile.
const ATTEMPTS: u32 = 1000;

/// uapi/linux/memfd.h: since Linux 6.3 the kernel may insist on it.
const MFD_NOEXEC_SEAL: u32 = 8;

/// The fields of the page.
#[repr(C)]
#[derive(Debug)]
struct Layout {
    magic: AtomicU32,
    version: AtomicU32,
    /// Odd while the rest is written, and another one afterwards.
    sequence: AtomicU64,
    /// 1: [`Role::Leader`].
    role: AtomicU32,
    term: AtomicU32,
    /// Nanoseconds of CLOCK_BOOTTIME, as those of `hard`: programs have no better clock at hand.
    soft: AtomicU64,
    hard: AtomicU64,
    token: AtomicU64,
    renewals: AtomicU64,
}

const _: () = assert!(cfg!(target_endian = "little"), "the documented byte order");

/// Init's side.
#[derive(Debug)]
pub struct TermPage {
    file: OwnedFd,
    layout: &'static Layout,
    said: TermStatus,
}

impl TermPage {
    /// A page that says [`TermStatus::NONE`].
    ///
    /// # Errors
    /// The kernel has no such files (before Linux 5.1), forbids them, or lets nobody have a descriptor of that number.
    pub fn create() -> io::Result<Self> {
        let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
        let create = |flags| memfd_create(c"tenure-term", flags);
        let file = match create(flags | MFdFlags::from_bits_retain(MFD_NOEXEC_SEAL)) {
            Err(Errno::EINVAL) => create(flags)?,
            created => created?,
        };
        let number = fcntl(&file, FcntlArg::F_DUPFD_CLOEXEC(NUMBER)).map_err(|_| io::Error::other(NO_ROOM))?;
        #[expect(unsafe_code, reason = "fcntl returns the duplicate as a number")]
        // SAFETY: fcntl just made it, and nobody else knows it.
        let file = unsafe { OwnedFd::from_raw_fd(number) };
        ftruncate(&file, SIZE)?;
        let layout = map(number, libc::PROT_READ | libc::PROT_WRITE)?;
        let size = SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW;
        fcntl(&file, FcntlArg::F_ADD_SEALS(size | SealFlag::F_SEAL_FUTURE_WRITE | SealFlag::F_SEAL_SEAL))?;
        layout.version.store(VERSION, Relaxed);
        layout.magic.store(MAGIC, Release);
        Ok(Self { file, layout, said: TermStatus::NONE })
    }

    /// Its descriptor, which a child gets under the same number.
    pub fn number(&self) -> RawFd {
        self.file.as_raw_fd()
    }

    /// Writes this status to the page. `boottime` says when CLOCK_BOOTTIME shows an instant.
    pub fn say(&mut self, status: TermStatus, boottime: impl Fn(Instant) -> Duration) {
        if self.said == status {
            return;
        }
        self.said = status;
        // The boot stands for none.
        let nanos = |at| if at == Instant::BOOT { 0 } else { u64::try_from(boottime(at).as_nanos()).unwrap_or(u64::MAX) };
        let (soft_nanos, hard_nanos) = (nanos(status.soft), nanos(status.hard));
        let Layout { magic: _, version: _, sequence, role, term, soft, hard, token, renewals } = self.layout;
        let odd = sequence.load(Relaxed).wrapping_add(1);
        sequence.store(odd, Relaxed);
        fence(Release);
        role.store((status.role == Role::Leader).into(), Relaxed);
        term.store(status.transitions.cast_unsigned(), Relaxed);
        soft.store(soft_nanos, Relaxed);
        hard.store(hard_nanos, Relaxed);
        token.store(status.token, Relaxed);
        renewals.store(status.renewals, Relaxed);
        sequence.store(odd.wrapping_add(1), Release);
    }
}

/// A reader's side.
#[derive(Debug)]
pub struct Reader(&'static Layout);

/// The reason why there is nothing to read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The descriptor is closed, or cannot be mapped.
    #[error("descriptor {0} cannot be read: it does not reach who closes what it inherits")]
    Closed(RawFd, #[source] io::Error),
    /// The descriptor is no page, or a page of another version of tenure.
    #[error("descriptor {0} is no page of this version of tenure")]
    Strange(RawFd),
}

impl Reader {
    /// Maps the page behind this descriptor.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn open(number: u16) -> Result<Self, ReadError> {
        let number = RawFd::from(number);
        #[expect(unsafe_code, reason = "a descriptor is inherited by its number")]
        // SAFETY: it is not -1, and only asked for its size; if it is closed, that fails.
        let size = fstat(unsafe { BorrowedFd::borrow_raw(number) }).map(|stat| stat.st_size);
        if size.map_err(|errno| ReadError::Closed(number, errno.into()))? < SIZE {
            return Err(ReadError::Strange(number));
        }
        let layout = map(number, libc::PROT_READ).map_err(|error| ReadError::Closed(number, error))?;
        let is_ours = layout.magic.load(Acquire) == MAGIC && layout.version.load(Relaxed) == VERSION;
        if is_ours { Ok(Self(layout)) } else { Err(ReadError::Strange(number)) }
    }

    /// H by CLOCK_BOOTTIME, or zero if there is none. One aligned word, which needs no lock; whoever compares it reads the clock
    /// afterwards.
    pub fn hard(&self) -> Duration {
        Duration::from_nanos(self.0.hard.load(Acquire))
    }

    /// The fencing token, and H of the same term. None if init was frozen while it wrote them.
    pub fn token(&self) -> Option<(u64, Duration)> {
        let Layout { sequence, hard, token, .. } = self.0;
        (0..ATTEMPTS).find_map(|_| {
            let before = sequence.load(Acquire);
            let read = (token.load(Relaxed), Duration::from_nanos(hard.load(Relaxed)));
            fence(Acquire);
            (before % 2 == 0 && sequence.load(Relaxed) == before).then_some(read)
        })
    }
}

/// Stays as long as the process.
#[expect(unsafe_code, reason = "mmap")]
fn map(number: RawFd, protection: i32) -> io::Result<&'static Layout> {
    let length = size_of::<Layout>();
    // SAFETY: the kernel chooses a place that nobody else uses, or refuses.
    let place = unsafe { libc::mmap(std::ptr::null_mut(), length, protection, libc::MAP_SHARED, number, 0) };
    if place == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it begins a page, is as long as the file at least (`create`, `open`), is never unmapped, and any bytes are valid;
    // others change them by atomic stores.
    Ok(unsafe { &*place.cast::<Layout>() })
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use nix::{
        fcntl::OFlag,
        sys::{
            ptrace,
            signal::Signal,
            stat::Mode,
            wait::{WaitStatus, waitpid},
        },
        unistd::{ForkResult, fork},
    };

    use super::*;

    fn status(n: u64) -> TermStatus {
        let nanos = Instant::from_nanos;
        let transitions = i32::try_from(n).unwrap();
        TermStatus { role: Role::Leader, transitions, token: n, soft: nanos(n), hard: nanos(n), renewals: n }
    }

    fn as_it_is(at: Instant) -> Duration {
        at.since(Instant::BOOT)
    }

    /// As docs/term.md has it; none if it was written meanwhile.
    fn read(Reader(layout): &Reader) -> Option<(u32, u32, [u64; 4])> {
        let before = layout.sequence.load(Acquire);
        let numbers = [&layout.soft, &layout.hard, &layout.token, &layout.renewals].map(|number| number.load(Relaxed));
        let read = (layout.role.load(Relaxed), layout.term.load(Relaxed), numbers);
        fence(Acquire);
        (before % 2 == 0 && layout.sequence.load(Relaxed) == before).then_some(read)
    }

    fn reader(page: &TermPage) -> Reader {
        Reader::open(page.number().try_into().unwrap()).unwrap()
    }

    #[test]
    fn the_layout_is_the_documented_one() {
        let offsets = [
            offset_of!(Layout, magic),
            offset_of!(Layout, version),
            offset_of!(Layout, sequence),
            offset_of!(Layout, role),
            offset_of!(Layout, term),
            offset_of!(Layout, soft),
            offset_of!(Layout, hard),
            offset_of!(Layout, token),
            offset_of!(Layout, renewals),
        ];
        assert_eq!((offsets, size_of::<Layout>()), ([0, 4, 8, 16, 20, 24, 32, 40, 48], 56));
        assert_eq!(MAGIC, 0x554E_4554);
    }

    #[test]
    fn a_new_page_says_nothing_and_then_what_it_is_told() {
        let mut page = TermPage::create().unwrap();
        let reader = reader(&page);
        assert_eq!((read(&reader), reader.hard()), (Some((0, 0, [0; 4])), Duration::ZERO));
        assert_eq!(reader.token(), Some((0, Duration::ZERO)));

        page.say(status(7), as_it_is);
        let after = page.layout.sequence.load(Relaxed);
        page.say(status(7), as_it_is);

        assert_eq!((read(&reader), reader.hard()), (Some((1, 7, [7; 4])), Duration::from_nanos(7)));
        assert_eq!(reader.token(), Some((7, Duration::from_nanos(7))));
        page.layout.sequence.store(3, Relaxed);
        assert_eq!(reader.token(), None, "while it is written");
        page.layout.sequence.store(2, Relaxed);
        assert_eq!((after, page.layout.sequence.load(Relaxed)), (2, 2), "what is said already is not written again");
        page.say(TermStatus::NONE, as_it_is);
        assert_eq!(read(&reader), Some((0, 0, [0; 4])));
    }

    #[test]
    fn nobody_who_looks_at_the_lock_sees_parts_of_two() {
        let mut page = TermPage::create().unwrap();
        let reader = reader(&page);
        let last = 300_000;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for n in 1..=last {
                    page.say(status(n), as_it_is);
                }
            });
            loop {
                let Some((_, term, numbers)) = read(&reader) else { continue };
                let term = u64::from(term);
                assert_eq!(numbers, [term; 4]);
                if term == last {
                    break;
                }
            }
        });
    }

    /// Exit codes of a child that has seen nothing of the page, one status of it, or parts of two.
    const SEEN: [i32; 3] = [0, 1, 2];

    /// Runs `does` in a child that stands still after so many of its instructions, while `meanwhile` runs. The status of the child;
    /// none if it has ended before that.
    #[expect(unsafe_code, reason = "fork")]
    fn stopped_after(instructions: u32, does: impl FnOnce() -> i32, meanwhile: impl FnOnce()) -> Option<i32> {
        // SAFETY: the child allocates nothing, takes no lock, and does not return.
        let child = match unsafe { fork() }.unwrap() {
            ForkResult::Child => unsafe {
                let traced = ptrace::traceme().is_ok() && libc::raise(libc::SIGSTOP) == 0;
                libc::_exit(if traced { does() } else { libc::SIGSTOP });
            },
            ForkResult::Parent { child } => child,
        };
        let stopped = Ok(WaitStatus::Stopped(child, Signal::SIGSTOP));
        assert_eq!(waitpid(child, None), stopped, "this machine forbids ptrace(2)");
        for _ in 0..instructions {
            ptrace::step(child, None).unwrap();
            if let WaitStatus::Exited(..) = waitpid(child, None).unwrap() {
                return None;
            }
        }
        meanwhile();
        ptrace::cont(child, None).unwrap();
        let WaitStatus::Exited(_, status) = waitpid(child, None).unwrap() else { panic!("it did not end") };
        Some(status)
    }

    fn seen(reader: &Reader) -> i32 {
        let [nothing, one, parts] = SEEN;
        let Some((_, term, numbers)) = read(reader) else { return nothing };
        if numbers == [u64::from(term); 4] { one } else { parts }
    }

    #[test]
    fn a_reader_that_is_stopped_at_any_instruction_sees_no_parts_of_two() {
        let mut page = TermPage::create().unwrap();
        let reader = reader(&page);
        page.say(status(1), as_it_is);
        let mut saw = Vec::new();
        for n in 0.. {
            let next = page.said.token + 1;
            let Some(status) = stopped_after(n, || seen(&reader), || page.say(status(next), as_it_is)) else { break };
            saw.push(status);
        }
        let [nothing, one, parts] = SEEN.map(|seen| saw.iter().filter(|status| **status == seen).count());
        assert!(parts == 0 && nothing > 0 && one > 0, "{nothing} {one} {parts}");
        assert_eq!((saw.first(), saw.last()), (Some(&SEEN[1]), Some(&SEEN[1])));
    }

    #[test]
    fn a_writer_that_is_stopped_at_any_instruction_shows_no_parts_of_two() {
        let mut page = TermPage::create().unwrap();
        let reader = reader(&page);
        let mut saw = Vec::new();
        for n in 0.. {
            // This process's copy of what was said last stays that of the boot.
            let say = || {
                page.say(status(n.into()), as_it_is);
                0
            };
            if stopped_after(n, say, || saw.push(seen(&reader))).is_none() {
                break;
            }
        }
        let [nothing, one, parts] = SEEN.map(|seen| saw.iter().filter(|status| **status == seen).count());
        assert!(parts == 0 && nothing > 0 && one > 0, "{nothing} {one} {parts}");
    }

    #[test]
    fn nobody_but_its_maker_can_write_to_it_or_change_its_size() {
        let page = TermPage::create().unwrap();
        let (file, number) = (&page.file, page.number());
        let anew = nix::fcntl::open(format!("/proc/self/fd/{number}").as_str(), OFlag::O_RDWR, Mode::empty()).unwrap();
        for file in [file, &anew] {
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            assert_eq!(map(file.as_raw_fd(), protection).unwrap_err().raw_os_error(), Some(libc::EPERM));
            assert_eq!(nix::unistd::write(file, b"x"), Err(Errno::EPERM));
            assert_eq!([ftruncate(file, 0), ftruncate(file, 2 * SIZE)], [Err(Errno::EPERM); 2]);
            assert_eq!(fcntl(file, FcntlArg::F_ADD_SEALS(SealFlag::F_SEAL_WRITE)), Err(Errno::EPERM));
        }
        assert_eq!(std::fs::read(format!("/proc/self/fd/{number}")).unwrap().len(), 4096);
        assert!(fcntl(file, FcntlArg::F_GETFD).unwrap() & libc::FD_CLOEXEC != 0 && number >= NUMBER);
    }

    #[test]
    fn what_is_closed_or_something_else_is_no_page() {
        assert!(matches!(Reader::open(u16::MAX), Err(ReadError::Closed(65535, _))));
        let null = nix::fcntl::open("/dev/null", OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty()).unwrap();
        assert!(matches!(Reader::open(null.as_raw_fd().try_into().unwrap()), Err(ReadError::Strange(_))));
        let zeroes = memfd_create(c"zeroes", MFdFlags::MFD_CLOEXEC).unwrap();
        ftruncate(&zeroes, SIZE).unwrap();
        assert!(matches!(Reader::open(zeroes.as_raw_fd().try_into().unwrap()), Err(ReadError::Strange(_))));
    }
}
