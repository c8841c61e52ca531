//! Hands a pidfd of init to the replica's witness, and tells how that is sent (law 20).
//!
//! Owns the socket of both ends, its name, the datagram, and the elector's end of the connection: where init is PID 1 it is told
//! again for as long as the elector lives. No renewal, deadline, proof or release waits for any of it, and the witness is believed
//! nothing.

use std::{
    ffi::OsStr,
    io::{self, IoSlice},
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    time::Duration,
};

use nix::sys::{
    socket::{
        AddressFamily, ControlMessage, MsgFlags, SockFlag, SockType, UnixAddr, connect, recv, sendmsg, socket as new_socket,
    },
    utsname::uname,
};
use tokio::{
    io::{Interest, unix::AsyncFd},
    time::{sleep, timeout},
};

use super::register;
use crate::{
    config::{AfterCrash, can_stand, duration},
    election::obituary::Replica,
    http::Health,
    link::{InitialState, decode, encode},
    loading::may_be_told,
    process::{PID1, kill::pidfd_open},
    words::one_line,
};

/// Version of the datagram.
const VERSION: u8 = 1;
/// From the end of a connection to the next.
const AGAIN: Duration = Duration::from_secs(1);
/// The answer to a datagram that is understood and remembered.
pub(crate) const KNOWN: u8 = 1;
/// The answer to any other.
pub(crate) const REFUSED: u8 = 0;
/// How gVisor's kernel calls itself. Its init does not wait for its PID namespace to be empty.
const GVISOR: &str = "#1 SMP Sun Jan 10 15:06:54 PST 2016";

/// The address of a witness: `@NAME` is an abstract one.
///
/// # Errors
/// The name is too long.
pub(crate) fn address(socket: &str) -> nix::Result<UnixAddr> {
    match socket.strip_prefix('@') {
        Some(name) => UnixAddr::new_abstract(name.as_bytes()),
        None => UnixAddr::new(socket),
    }
}

/// A socket for witnesses.
///
/// # Errors
/// Any error of socket(2).
pub(crate) fn socket() -> nix::Result<OwnedFd> {
    new_socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK, None)
}

/// Reads the datagram of an elector of this version.
///
/// # Errors
/// Why no elector can have sent it.
pub(crate) fn read(datagram: &[u8]) -> Result<Replica, &'static str> {
    let replica = datagram.split_first().filter(|(version, _)| **version == VERSION).and_then(|(_, said)| decode(said).ok());
    let replica: Replica = replica.ok_or("it is no elector of this version")?;
    let Replica { identity, namespace, leases, attempt_timeout, renew_period } = &replica;
    let is_lawful = can_stand(identity) && may_be_told(namespace, leases, *attempt_timeout, *renew_period);
    is_lawful.then_some(replica).ok_or("no configuration allows what it says of its replica")
}

/// A pidfd of init, if init is PID 1 (`pid1`).
///
/// # Errors
/// Why no witness can help here.
pub(crate) fn pidfd_of_init(pid1: bool) -> Result<OwnedFd, String> {
    let kernel = uname().map(|kernel| kernel.version().to_owned()).unwrap_or_default();
    match why_none(pid1, &kernel) {
        Some(why) => Err(why.into()),
        None => pidfd_open(PID1).map_err(|errno| format!("pidfd_open is refused: {errno}")),
    }
}

fn why_none(pid1: bool, kernel: &OsStr) -> Option<&'static str> {
    match (pid1, kernel == GVISOR) {
        (false, _) => Some("tenure is not PID 1"),
        (true, true) => Some("this is gVisor"),
        (true, false) => None,
    }
}

/// Asks whether a witness listens there.
pub(crate) fn answers(name: &str) -> bool {
    let asked = || connect(socket()?.as_raw_fd(), &address(name)?);
    asked().is_ok()
}

/// Tells the witness of this replica, for ever, if there is to be one. Tells `health` whether it knows of this replica.
pub(super) fn start(initial: &InitialState, health: Health) {
    let lease = &initial.config.lease;
    let Some(name) = lease.witness.clone() else { return };
    let pidfd = match pidfd_to_hand_over(initial) {
        Ok(pidfd) => pidfd,
        Err(why) => return tracing::warn!("lease.witness has no effect: {why}"),
    };
    let replica = Replica {
        identity: initial.identity.clone(),
        namespace: lease.namespace.clone(),
        leases: lease.names().collect(),
        attempt_timeout: lease.attempt_timeout,
        renew_period: lease.renew_period,
    };
    let Ok(said) = encode(&replica) else { return };
    let datagram = [&[VERSION], &*said].concat();
    drop(tokio::spawn(tell_for_ever((name, datagram, pidfd), health, lease.duration, lease.attempt_timeout)));
}

/// The next run of a task with `afterCrash: wait` waits for the interval of one that crashed, so nothing is given back.
fn pidfd_to_hand_over(initial: &InitialState) -> Result<OwnedFd, String> {
    let waits = initial.preset.task().is_some() && initial.config.task.after_crash == AfterCrash::Wait;
    if waits { Err("task.afterCrash is wait".into()) } else { pidfd_of_init(initial.pid1) }
}

async fn tell_for_ever(
    (name, datagram, pidfd): (String, Vec<u8>, OwnedFd),
    health: Health,
    waited: Duration,
    patience: Duration,
) {
    let mut said = None;
    loop {
        let told = tell(&name, &datagram, pidfd.as_fd(), patience).await;
        if let Ok(connection) = &told {
            tracing::info!("the witness at {name} gives the Lease back if this container is killed");
            health.witness(true);
            said = None;
            let _ = hear(connection).await;
            health.witness(false);
        }
        let why = told.map_or_else(|error| one_line(&error), |_| "it has ended".into());
        if said.as_ref() != Some(&why) {
            tracing::warn!(
                "no witness at {name}, which is tried again: {why}; a container that is killed is waited for for {}",
                duration::format(waited)
            );
            said = Some(why);
        }
        sleep(AGAIN).await;
    }
}

/// The connection over which the witness was told, and has answered.
async fn tell(name: &str, datagram: &[u8], pidfd: BorrowedFd<'_>, patience: Duration) -> io::Result<AsyncFd<OwnedFd>> {
    let socket = socket()?;
    connect(socket.as_raw_fd(), &address(name)?)?;
    let rights = [pidfd.as_raw_fd()];
    let rights = [ControlMessage::ScmRights(&rights)];
    sendmsg::<()>(socket.as_raw_fd(), &[IoSlice::new(datagram)], &rights, MsgFlags::MSG_NOSIGNAL, None)?;
    let socket = register(socket)?;
    match timeout(patience, hear(&socket)).await {
        Ok(Some(KNOWN)) => Ok(socket),
        Ok(_) => Err(io::Error::other("it refuses what it is told: its log says why")),
        Err(_) => Err(io::Error::other("it does not answer")),
    }
}

/// The next byte of the witness; none: its end.
async fn hear(socket: &AsyncFd<OwnedFd>) -> Option<u8> {
    let mut answer = [REFUSED];
    let read = socket.async_io(Interest::READABLE, |socket| Ok(recv(socket.as_raw_fd(), &mut answer, MsgFlags::empty())?));
    let length = read.await.ok().filter(|length| *length > 0);
    length.map(|_| answer[0])
}

#[cfg(test)]
mod tests {
    use nix::{
        sys::socket::{Backlog, accept, bind, listen, send},
        unistd::getpid,
    };
    use tokio::time::Instant;

    use super::*;
    use crate::config::{Config, Preset, Task, Trigger};

    #[tokio::test(start_paused = true)]
    async fn a_witness_that_comes_back_is_told_within_a_second() {
        let name = format!("@tenure-again-{}", getpid());
        let witness = register(socket().unwrap()).unwrap();
        bind(witness.as_raw_fd(), &address(&name).unwrap()).unwrap();
        listen(&witness, Backlog::new(1).unwrap()).unwrap();
        let health = Health::new(&InitialState::first(Config::default(), "me_1".into()), crate::clock::boot());
        let told = tell_for_ever((name, vec![VERSION], pidfd_open(PID1).unwrap()), health, Duration::ZERO, Duration::MAX);
        drop(tokio::spawn(told));
        let next = async || witness.async_io(Interest::READABLE, |witness| Ok(accept(witness)?)).await.unwrap();
        let first = next().await;
        send(first.as_raw_fd(), &[KNOWN], MsgFlags::empty()).unwrap();
        let ended = Instant::now();
        drop(first);

        drop(next().await);

        assert!(ended.elapsed() <= AGAIN + Duration::from_millis(1), "{:?}", ended.elapsed());
    }

    #[test]
    fn on_gvisor_and_where_tenure_is_not_pid_1_no_witness_can_help() {
        let ours = OsStr::new("#1 SMP PREEMPT_DYNAMIC Debian 6.1.0");
        assert_eq!([why_none(true, ours), why_none(true, GVISOR.as_ref())], [None, Some("this is gVisor")]);
        assert_eq!(why_none(false, ours), Some("tenure is not PID 1"));
    }

    /// A witness may be of a later release than the elector, and the other way round.
    #[test]
    fn a_datagram_of_this_version_is_read_as_it_was_released() {
        let released = b"\x01\x04me_1\x04shop\x01\x07billing\x02\x00\x05\x00";
        let replica = Replica {
            identity: "me_1".into(),
            namespace: "shop".into(),
            leases: vec!["billing".into()],
            attempt_timeout: Duration::from_secs(2),
            renew_period: Duration::from_secs(5),
        };
        assert_eq!(read(released), Ok(replica));
        assert_eq!(read(&[&[VERSION + 1], &released[1..]].concat()), Err("it is no elector of this version"));
    }

    #[test]
    fn a_pidfd_is_handed_over_only_of_pid_1_and_not_for_a_task_that_waits_for_a_run_that_crashed() {
        let task = |after_crash| {
            let mut config = Config::default();
            config.task.after_crash = after_crash;
            let preset = Preset::Task(Task { trigger: Trigger::Every(Duration::from_secs(60)), limit: None, once: None });
            InitialState { preset, ..InitialState::first(config, "me_1".into()) }
        };
        let replica = InitialState::first(Config::default(), "me_1".into());

        assert!(pidfd_to_hand_over(&replica).is_ok() && pidfd_to_hand_over(&task(AfterCrash::Run)).is_ok());

        let child = InitialState { pid1: false, ..replica };
        assert_eq!(pidfd_to_hand_over(&child).unwrap_err(), "tenure is not PID 1");
        assert_eq!(pidfd_to_hand_over(&task(AfterCrash::Wait)).unwrap_err(), "task.afterCrash is wait");
    }
}
