//! The roles in which this binary starts itself: init, the elector that init starts, or a workload.

use std::{
    io::Write as _,
    os::{
        fd::{AsFd, AsRawFd as _, FromRawFd as _, OwnedFd},
        linux::net::SocketAddrExt as _,
        unix::net::{SocketAddr, UnixDatagram},
    },
    path::Path,
    process::{Command, ExitCode},
    time::Duration,
};

use nix::{
    errno::Errno,
    fcntl::{FcntlArg, OFlag, fcntl},
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::{
        signal::{SigSet, Signal},
        signalfd::{SfdFlags, SignalFd},
        socket::{AddressFamily, MsgFlags, SockFlag, SockType, UnixAddr, connect, recv, send, socket},
    },
    unistd::Pid,
};
use support::wait_until;
use tenure::{config::Config, link::MAX_MESSAGE};

/// Init's configuration, in JSON.
pub(crate) const CONFIG: &str = "INIT_LED_CONFIG";
/// Where the test listens for electors.
pub(crate) const LINK: &str = "INIT_LED_LINK";
/// The test's message that has an elector start a process of its own; the elector does not pass it on.
pub(crate) const PLUGIN: &[u8] = b"plugin";
/// First argument of init.
pub(crate) const INIT: &str = "init";
/// First argument of a workload that reports on NOTIFY_SOCKET that it leads. The second argument is how it behaves otherwise: it
/// `obeys` when it is to follow, is `stubborn` then, `foretells` on SIGHUP that it follows and is stubborn too, or `floods` the
/// socket from the first promotion on; or it is a path, and the workload sends the socket many messages once that file exists,
/// before it handles any signal.
pub(crate) const WORKLOAD: &str = "workload";
/// First argument of a workload whose main thread ends, while another one lives.
pub(crate) const HEADLESS: &str = "headless";

/// First argument of a workload that joins the process group of PID 1.
pub(crate) const JOINER: &str = "joiner";

/// First argument of a workload that says what it may do to the page of its term, and then what is there, whenever that changes
/// and, after a word, when USR1, USR2 or TERM comes.
pub(crate) const READER: &str = "reader";

/// The exit code of the role in which this process was started; none if it is the test.
pub(crate) fn worn() -> Option<ExitCode> {
    let arguments: Vec<String> = std::env::args().collect();
    match arguments.get(1).map(String::as_str) {
        Some("elector") => elector(),
        Some(INIT) => {
            let config: Config = serde_json::from_str(&std::env::var(CONFIG).unwrap()).unwrap();
            return Some(ExitCode::from(tenure::init::run(config)));
        }
        Some(WORKLOAD) => workload(arguments.get(2).unwrap()),
        Some(HEADLESS) => headless(),
        Some(JOINER) => joiner(),
        Some(READER) => reader(),
        _ => return None,
    }
    Some(ExitCode::SUCCESS)
}

/// Forwards datagrams between init and the test, until either closes its end.
#[allow(unsafe_code, reason = "a descriptor is inherited by its number")]
fn elector() {
    // SAFETY: init gave this descriptor to this process.
    let init = unsafe { OwnedFd::from_raw_fd(3) };
    fcntl(&init, FcntlArg::F_SETFL(OFlag::empty())).unwrap();
    let test = socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::empty(), None).unwrap();
    let address = std::env::var(LINK).unwrap();
    connect(test.as_raw_fd(), &UnixAddr::new_abstract(address.as_bytes()).unwrap()).unwrap();
    let mut buffer = vec![0; MAX_MESSAGE];
    loop {
        let mut fds = [PollFd::new(init.as_fd(), PollFlags::POLLIN), PollFd::new(test.as_fd(), PollFlags::POLLIN)];
        poll(&mut fds, PollTimeout::NONE).unwrap();
        let [from_init, from_test] = fds.map(|fd| fd.any() == Some(true));
        for (ready, from, to) in [(from_init, &init, &test), (from_test, &test, &init)] {
            if !ready {
                continue;
            }
            let length = recv(from.as_raw_fd(), &mut buffer, MsgFlags::empty()).unwrap_or(0);
            if &buffer[..length] == PLUGIN {
                drop(Command::new("sleep").arg("1000").spawn().unwrap());
                continue;
            }
            if length == 0 || send(to.as_raw_fd(), &buffer[..length], MsgFlags::MSG_NOSIGNAL) == Err(Errno::EPIPE) {
                return;
            }
        }
    }
}

/// USR1: it leads. USR2: it follows. TERM: it ends with 3.
fn workload(behaviour: &str) {
    let mut signals = SigSet::empty();
    signals.extend([Signal::SIGUSR1, Signal::SIGUSR2, Signal::SIGTERM]);
    if behaviour == "foretells" {
        signals.add(Signal::SIGHUP);
    }
    let own_words = || say(&format!("{} {}", std::process::id(), std::env::var("TENURE_ROLE").unwrap()));
    if behaviour.starts_with('/') {
        own_words();
        wait_until("the file", || Path::new(behaviour).exists());
        for _ in 0..1000 {
            notify("STATUS=starting");
        }
        notify("READY=1");
        signals.thread_block().unwrap();
    } else {
        signals.thread_block().unwrap();
        own_words();
    }
    let reader = SignalFd::new(&signals).unwrap();
    loop {
        let received = reader.read_signal().unwrap().unwrap();
        match Signal::try_from(received.ssi_signo.cast_signed()).unwrap() {
            Signal::SIGUSR1 => {
                say("leads");
                notify("X_TENURE_ROLE=leader");
                if behaviour == "floods" {
                    loop {
                        notify("X_TENURE_ROLE=leader");
                    }
                }
            }
            Signal::SIGUSR2 => {
                say("follows");
                if behaviour == "obeys" {
                    notify("X_TENURE_ROLE=standby");
                }
            }
            Signal::SIGHUP => {
                notify("X_TENURE_ROLE=standby");
                say("foretells");
            }
            _ => std::process::exit(3),
        }
    }
}

#[allow(unsafe_code, reason = "a descriptor is inherited by its number, and mapped")]
fn reader() {
    let mut signals = SigSet::empty();
    signals.extend([Signal::SIGUSR1, Signal::SIGUSR2, Signal::SIGTERM]);
    signals.thread_block().unwrap();
    let received = SignalFd::with_flags(&signals, SfdFlags::SFD_NONBLOCK).unwrap();
    let number = std::env::var("TENURE_TERM_FD").unwrap().parse().unwrap();
    let map = |protection| {
        // SAFETY: the kernel chooses the place.
        let place = unsafe { libc::mmap(std::ptr::null_mut(), 4096, protection, libc::MAP_SHARED, number, 0) };
        if place == libc::MAP_FAILED { Err(Errno::last()) } else { Ok(place) }
    };
    let page = map(libc::PROT_READ).unwrap();
    // SAFETY: init gave this descriptor to this process.
    let file = unsafe { OwnedFd::from_raw_fd(number) };
    let denied = [
        map(libc::PROT_READ | libc::PROT_WRITE).map(drop),
        nix::unistd::write(&file, b"x").map(drop),
        nix::unistd::ftruncate(&file, 0),
    ];
    let denied = denied.map(|result| result.map_or_else(|errno| format!("{errno:?}"), |()| "done".into()));
    say(&format!("{number}, {}", denied.join(" ")));
    // SAFETY: the page stays mapped, and is aligned.
    let word = |at: usize| unsafe { page.cast::<u32>().add(at / 4).read_volatile() };
    // SAFETY: likewise.
    let number = |at: usize| unsafe { page.cast::<u64>().add(at / 8).read_volatile() };
    let read = || {
        loop {
            let before = number(8);
            let [soft, hard, token, renewals] = [24, 32, 40, 48].map(number);
            let read = format!("{} {} {soft} {hard} {token} {renewals}", word(16), word(20));
            if before % 2 == 0 && number(8) == before {
                return read;
            }
        }
    };
    let mut last = String::new();
    loop {
        if received.read_signal().unwrap().is_some() {
            last = read();
            say(&format!("signalled {last}"));
        }
        let now = read();
        if now != last {
            say(&now);
            last = now;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Says that it is ready once its main thread is gone.
#[allow(unsafe_code, reason = "std ends only whole processes")]
fn headless() {
    std::thread::spawn(|| {
        let is_alone = || std::fs::read_to_string("/proc/self/status").unwrap().contains("State:\tZ");
        wait_until("the end of the main thread", is_alone);
        say("ready");
        std::thread::sleep(Duration::from_secs(1000));
    });
    // SAFETY: ends this thread alone, which owns nothing.
    unsafe { libc::syscall(libc::SYS_exit, 0) };
}

fn joiner() {
    nix::unistd::setpgid(Pid::from_raw(0), Pid::from_raw(1)).unwrap();
    say("ready");
    std::thread::sleep(Duration::from_secs(1000));
}

/// Sends a message to NOTIFY_SOCKET.
pub(crate) fn notify(text: &str) {
    notify_at(&std::env::var("NOTIFY_SOCKET").unwrap(), text);
}

/// Sends a message to this NOTIFY_SOCKET.
pub(crate) fn notify_at(address: &str, text: &str) {
    let name = SocketAddr::from_abstract_name(address.trim_start_matches('@')).unwrap();
    UnixDatagram::unbound().unwrap().send_to_addr(text.as_bytes(), &name).unwrap();
}

fn say(line: &str) {
    let mut out = std::io::stdout();
    writeln!(out, "{line}").unwrap();
    out.flush().unwrap();
}
