//! Whose messages on NOTIFY_SOCKET are believed.

use std::{
    io::{self, IoSlice},
    os::{
        fd::{AsFd as _, AsRawFd as _, RawFd},
        linux::net::SocketAddrExt as _,
        unix::net::{SocketAddr, UnixDatagram},
    },
};

use nix::{
    fcntl::OFlag,
    sys::{
        resource::{Resource, getrlimit, setrlimit},
        socket::{ControlMessage, MsgFlags, UnixAddr, sendmsg},
    },
    unistd::{Pid, getpid, pipe2},
};
use support::wait_until;
use tenure::{
    config::{NotifyAccess, Signal},
    notification::{Heard, Notification},
    process::{
        notify::{Mark, NotifySocket, Rejected},
        scan::Scanner,
        signals,
        spawn::{Command, Outcome, RoleSignal},
    },
    role::Role,
    time::Instant,
};

use crate::world::{outcome, setup, shell, test_in, wait_readable};

const SAY: &str = "TENURE_TEST_SAY";

/// A sender: the test binary, started with a message. It keeps running so that it can be inspected.
#[test]
fn speaker() {
    let Ok(message) = std::env::var(SAY) else { return };
    say(&std::env::var("NOTIFY_SOCKET").expect("an address"), message.as_bytes());
    loop {
        std::thread::park();
    }
}

test_in!(Pid1, the_main_process_its_descendants_and_the_orphans_in_its_group_are_believed, {
    let (up, [leader, standby]) = (Notification::Status("up".into()), [Role::Leader, Role::Standby].map(Notification::Role));
    for (access, script, message, said) in [
        (NotifyAccess::Main, "exec \"$0\" \"$@\"", "X_TENURE_ROLE=leader", vec![leader.clone()]),
        (NotifyAccess::All, "\"$0\" \"$@\" & wait", "STATUS=up\nX_TENURE_ROLE=leader", vec![up, leader]),
        (NotifyAccess::All, "(\"$0\" \"$@\" &); exec sleep 1000", "X_TENURE_ROLE=standby", vec![standby]),
    ] {
        let socket = NotifySocket::open(access).expect("a socket");
        let main = spawn_speaker(&socket, script, message);
        assert_eq!(hear(&socket, main), Ok(said), "{script}");
    }
});

test_in!(Pid1, a_descendant_of_the_main_process_is_not_believed_where_only_that_may_speak, {
    let socket = NotifySocket::open(NotifyAccess::Main).expect("a socket");
    let main = spawn_speaker(&socket, "\"$0\" \"$@\" & wait", "X_TENURE_ROLE=leader");
    assert!(matches!(hear(&socket, main), Err(Rejected::Stranger(sender)) if sender != main));
});

test_in!(Pid1, a_daemon_is_not_believed_although_it_lives, {
    let socket = NotifySocket::open(NotifyAccess::All).expect("a socket");
    let main = spawn_speaker(&socket, "(setsid \"$0\" \"$@\" &); exec sleep 1000", "X_TENURE_ROLE=standby");
    let runs = || std::fs::read_to_string(format!("/proc/{main}/comm")).is_ok_and(|name| name == "sleep\n");
    wait_until("the parent of the daemon has ended", runs);

    let Err(why) = hear(&socket, main) else { panic!("believed") };

    assert!(matches!(why, Rejected::Stranger(daemon) if daemon != main), "{why}");
    assert!(why.to_string().ends_with("has ended, or is a daemon, whose parents have"), "{why}");
});

test_in!(Pid1, a_stranger_is_not_believed, {
    let socket = NotifySocket::open(NotifyAccess::All).expect("a socket");
    let main = shell("exec sleep 1000");
    let stranger = spawn_speaker(&socket, "exec \"$0\" \"$@\"", "X_TENURE_ROLE=leader");

    let heard = hear(&socket, main);

    assert_eq!(heard, Err(Rejected::Stranger(stranger)));
});

test_in!(Pid1, what_is_too_long_says_nothing_and_what_is_no_text_nothing_but_the_rest, {
    let socket = NotifySocket::open(NotifyAccess::All).expect("a socket");
    let mut long = b"X_TENURE_ROLE=leader\n".to_vec();
    long.resize(5000, b'x');

    say(&socket.address(), &long);
    say(&socket.address(), b"READY=1\xff\nSTATUS=fran\xe7ais\nX_TENURE_ROLE=leader");
    say(&socket.address(), b"X_TENURE_ROLE=leader\nX_TENURE_ROLE=follower");

    assert_eq!(hear(&socket, getpid()), Err(Rejected::TooLong));
    let status = Notification::Status("fran\u{fffd}ais".into());
    assert_eq!(hear(&socket, getpid()), Ok(vec![status, Notification::Role(Role::Leader)]));
    assert_eq!(hear(&socket, getpid()), Ok(vec![Notification::Role(Role::Leader)]));
    assert_eq!(socket.receive(getpid(), None).expect("a socket"), None);
});

test_in!(Pid1, a_promotion_is_marked_after_what_was_said_before_its_signal_however_much_is_queued, {
    let socket = NotifySocket::open(NotifyAccess::All).expect("a socket");
    let child = shell("trap : USR1; while :; do sleep 0.01; done");
    let address = socket.address();
    while try_to_say(&address, b"X_TENURE_ROLE=leader").is_ok() {}

    let (signal, mark) = (Signal(libc::SIGUSR1), Some(Mark { socket: socket.as_fd(), number: 7 }));
    let promotion = RoleSignal { pid: child, signal, not_after: Some(Instant::NEVER), mark, until_taken: false };
    let mut promotion = promotion.spawn().expect("a child");

    assert_eq!(outcome(&mut promotion), Outcome::Done);
    let mut heard = Vec::new();
    while let Some(next) = socket.receive(getpid(), None).expect("a socket") {
        heard.push(next.expect("our own"));
    }
    assert_eq!(heard.pop(), Some(Heard::Marked(7)));
    assert!(!heard.is_empty() && heard.iter().all(|said| *said == Heard::Said(vec![Notification::Role(Role::Leader)])));
});

test_in!(Pid1, without_proc_only_the_main_process_is_believed, {
    let socket = NotifySocket::open(NotifyAccess::All).expect("a socket");
    say(&socket.address(), b"X_TENURE_ROLE=leader");
    say(&socket.address(), b"X_TENURE_ROLE=leader");

    let [first, second] = [Pid::parent(), getpid()].map(|main| socket.receive(main, None).expect("a socket"));

    assert_eq!(first, Some(Err(Rejected::Unknown)));
    assert_eq!(second, Some(Ok(Heard::Said(vec![Notification::Role(Role::Leader)]))));
});

test_in!(Pid1, descriptors_that_come_along_are_closed_and_hide_no_sender_however_few_we_may_have, {
    let socket = NotifySocket::open(NotifyAccess::All).expect("a socket");
    let scanner = Scanner::open().expect("/proc");
    let (read, write) = pipe2(OFlag::O_NONBLOCK).expect("a pipe");
    say_with(&socket, b"X_TENURE_ROLE=standby", &[write.as_raw_fd(); 253]);
    drop(write);

    // Enough for some of them, but not for all.
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).expect("a limit");
    setrlimit(Resource::RLIMIT_NOFILE, 64, hard).expect("less is granted");
    let heard = socket.receive(getpid(), Some(&scanner)).expect("a socket");
    setrlimit(Resource::RLIMIT_NOFILE, soft, hard).expect("what it was is granted");

    assert_eq!(heard, Some(Ok(Heard::Said(vec![Notification::Role(Role::Standby)]))), "its sender is known all the same");
    assert_eq!(nix::unistd::read(&read, &mut [0]), Ok(0), "nobody holds the other end");
});

/// `sh -c script` with the command line of a [`speaker`].
fn spawn_speaker(socket: &NotifySocket, script: &str, message: &str) -> Pid {
    let binary = std::env::current_exe().expect("the test binary").display().to_string();
    let arguments = ["sh", "-c", script, &binary, "--exact", "notifying::speaker", "--nocapture"].map(str::to_owned);
    let environment = [("NOTIFY_SOCKET", socket.address()), (SAY, message.to_owned()), ("PATH", "/usr/bin:/bin".to_owned())];
    let command = Command::new("/bin/sh".as_ref(), &arguments, environment).expect("no NUL");
    let mut child = command.spawn(&setup(signals::block().expect("signals"))).expect("a child");
    assert_eq!(outcome(&mut child), Outcome::Done);
    child.pid
}

fn say(address: &str, message: &[u8]) {
    assert_eq!(try_to_say(address, message).expect("a listener"), message.len());
}

/// Fails once as much is queued as the kernel allows.
fn try_to_say(address: &str, message: &[u8]) -> io::Result<usize> {
    let name = address.strip_prefix('@').expect("abstract");
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    socket.send_to_addr(message, &SocketAddr::from_abstract_name(name)?)
}

/// The same, passing descriptors along.
fn say_with(socket: &NotifySocket, message: &[u8], fds: &[RawFd]) {
    let address = UnixAddr::new_abstract(socket.address().trim_start_matches('@').as_bytes()).expect("short");
    let from = UnixDatagram::unbound().expect("a socket");
    let control = [ControlMessage::ScmRights(fds)];
    sendmsg(from.as_raw_fd(), &[IoSlice::new(message)], &control, MsgFlags::empty(), Some(&address)).expect("a listener");
}

fn hear(socket: &NotifySocket, main: Pid) -> Result<Vec<Notification>, Rejected> {
    wait_readable(socket).expect("a datagram");
    let scanner = Scanner::open().expect("/proc");
    let heard = socket.receive(main, Some(&scanner)).expect("a socket").expect("a datagram");
    heard.map(|heard| if let Heard::Said(said) = heard { said } else { panic!("{heard:?}") })
}
