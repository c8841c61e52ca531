use std::{
    ffi::c_void,
    process::exit,
    sync::atomic::{AtomicU32, AtomicU64, Ordering::{Acquire, Relaxed}, fence},
    time::Duration,
};

#[repr(C)]
struct Term {
    magic: u32,
    version: u32,
    sequence: AtomicU64,
    role: AtomicU32,
    term: AtomicU32,
    soft: AtomicU64,
    hard: AtomicU64,
    token: AtomicU64,
    renewals: AtomicU64,
}

// As the crate libc has them on machines of 64 bits.
unsafe extern "C" {
    fn mmap(address: *mut c_void, length: usize, protection: i32, flags: i32, descriptor: i32, offset: i64) -> *mut c_void;
    fn clock_gettime(clock: i32, time: *mut [i64; 2]) -> i32;
}
const PROT_READ: i32 = 1;
const MAP_SHARED: i32 = 1;
const CLOCK_BOOTTIME: i32 = 7;

fn now() -> u64 {
    let mut time = [0; 2];
    unsafe { clock_gettime(CLOCK_BOOTTIME, &mut time) };
    (time[0] * 1_000_000_000 + time[1]) as u64
}

impl Term {
    fn held(&self) -> bool {
        let hard = self.hard.load(Acquire);
        now() < hard
    }

    /// The token of the term that is held, if there is one.
    fn held_token(&self) -> Option<u64> {
        for _ in 0..1000 {
            let before = self.sequence.load(Acquire);
            let (token, hard) = (self.token.load(Relaxed), self.hard.load(Relaxed));
            fence(Acquire);
            if before % 2 == 0 && self.sequence.load(Relaxed) == before {
                return (now() < hard).then_some(token);
            }
        }
        None
    }
}

fn main() {
    let number = std::env::var("TENURE_TERM_FD").ok().and_then(|number| number.parse().ok());
    let Some(number) = number else { exit(78) };
    let page = unsafe { mmap(std::ptr::null_mut(), 4096, PROT_READ, MAP_SHARED, number, 0) };
    if page as isize == -1 {
        exit(78);
    }
    let term = unsafe { &*page.cast::<Term>() };
    if term.magic != 0x554E4554 || term.version != 1 {
        exit(78);
    }
    loop {
        match term.held_token().filter(|_| term.held()) {
            Some(token) => println!("writes with token {token}"),
            None => println!("waits"),
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}
