//! `tenure witness`: in a second container of the pod, gives back what a killed replica held (law 20).
//!
//! Listens at the socket at which electors hand over pidfds of their inits. Owns the wait for these, the log and the exit codes.
//! Carries out what [`Witness`] decides. Connects to nothing before a replica is dead, and signals no process. It listens at
//! `--socket`, or else at `lease.witness` of the configuration.
//!
//! Its container is written in deploy/deployment.yaml, deploy/components/inject/pod.yaml, deploy/inject/mutate.yaml and the chart.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    os::{
        fd::{AsFd, AsRawFd, FromRawFd as _, OwnedFd, RawFd},
        unix::fs::{FileTypeExt as _, PermissionsExt as _},
    },
    sync::Arc,
    time::Duration,
};

use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::socket::{
        Backlog, MsgFlags, SockFlag, accept4, bind, connect, getsockopt, listen, recv, send, sockopt::PeerCredentials,
    },
    unistd::geteuid,
};
use tokio::{
    io::{Interest, unix::AsyncFd},
    sync::{Semaphore, mpsc, oneshot},
    task::AbortHandle,
    time::{sleep, timeout},
};

use super::{Ended, block_on, interrupts::Interrupts};
use crate::{
    api::{Access, Cluster},
    cli::{self, ConfigFlags},
    clock,
    config::{Config, duration},
    console::refuse,
    election::obituary::{Action, Input, MOST_REPLICAS, Replica, Witness},
    elector::{
        Keys, Lease, register,
        witness::{KNOWN, REFUSED, address, read, socket},
    },
    exit, init,
    loading::Purpose,
    process::memory,
    slot::Slot,
    telemetry::log,
    time::Instant,
    words::{bounded, one_line},
};

/// Where it listens if nothing is said.
const USUAL: &str = "/run/tenure/witness";
/// Longest datagram in bytes: 64 Leases with the longest names.
const LONGEST: usize = 20 * 1024;
/// A connection that says nothing for so long is closed.
const SILENCE: Duration = Duration::from_secs(10);
/// How many requests it sends in a second at most, whatever it is told: two for each Lease of a replica with as many as are allowed.
const MOST_REQUESTS: usize = 128;
/// As long as the process has no descriptor for a connection.
const PAUSE: Duration = Duration::from_secs(1);

/// Input of the loop, from its tasks.
enum Handed {
    Told(Replica, OwnedFd, oneshot::Sender<bool>),
    Refused(&'static str),
    /// The pidfd of this number is readable.
    Died(String, u64),
    Event(Input),
}

/// Runs until it is told to end and nothing is left to do; returns the exit code.
pub(super) fn run(asked: &cli::Witness) -> Ended {
    let flags = ConfigFlags { config: asked.config.clone(), ..ConfigFlags::default() };
    let Config { lease, log, .. } = super::load(&flags, &[], Purpose::Look)?.config;
    let socket = asked.socket.clone().or(lease.witness).unwrap_or_else(|| USUAL.into());
    log::start(&log);
    memory::close_to_others();
    if fs::metadata("/proc/self/fdinfo/0").is_err() {
        // Before Linux 5.14 it could not look at a pidfd then.
        memory::open_to_others();
    }
    let listener = listen_at(&socket).map_err(|why| refuse(exit::INVALID, &why))?;
    let ended = block_on(serve(&socket, listener)).flatten();
    ended.map(|()| 0).map_err(|error| refuse(exit::INTERNAL, &format!("cannot start: {error}")))
}

async fn serve(name: &str, listener: OwnedFd) -> io::Result<()> {
    let listener = register(listener)?;
    let mut interrupts = Interrupts::catch()?;
    if let Err(error) = Cluster::discover(None, None) {
        tracing::warn!(
            "there is no access to a cluster yet; it is looked for again when a replica is dead: {}",
            one_line(&error)
        );
    }
    tracing::info!("waits for replicas at {name}");
    let (hand, mut handed) = mpsc::channel(MOST_REPLICAS);
    drop(tokio::spawn(accept(listener, Doorkeeper::of(name), hand.clone())));
    let mut room = Room {
        witness: Witness::new(fastrand::u64(..)),
        hand,
        told: 0,
        living: BTreeMap::new(),
        dead: BTreeMap::new(),
        refused: BTreeSet::new(),
        pace: Arc::new(Semaphore::new(MOST_REQUESTS)),
    };
    memory::forget_start();
    let mut is_ending = false;
    while !(is_ending && room.witness.is_idle()) {
        tokio::select! {
            () = interrupts.next() => {
                is_ending = true;
                room.take(Handed::Event(Input::Ending));
                if !room.witness.is_idle() {
                    tracing::info!("was told to end, and stays until every replica that it knows is dead");
                }
            }
            Some(handed) = handed.recv() => room.take(handed),
        }
    }
    Ok(())
}

/// The machine and what is known of the dead.
struct Room {
    witness: Witness,
    hand: mpsc::Sender<Handed>,
    /// Count of the pidfds that were taken.
    told: u64,
    /// The number of the last pidfd of each, and the wait for it.
    living: BTreeMap<String, (u64, AbortHandle)>,
    /// Since when, and how their Leases are reached.
    dead: BTreeMap<String, (Instant, Option<Lease>)>,
    /// Refusals that the log has: each is said once.
    refused: BTreeSet<&'static str>,
    /// A place for each request of the last second.
    pace: Arc<Semaphore>,
}

impl Room {
    fn take(&mut self, handed: Handed) {
        match handed {
            Handed::Told(replica, pidfd, reply) => {
                let identity = replica.identity.clone();
                let is_believed = self.witness.believes(&identity);
                match (is_believed, self.witness.knows(&identity)) {
                    (true, _) => self.await_death(identity, pidfd),
                    (false, true) => self.refuse("an elector of its replica is connected, or its replica is dead"),
                    (false, false) => self.refuse("there is no room for another replica"),
                }
                self.witness.handle(Input::Told(replica), clock::now().wall);
                let _ = reply.send(is_believed);
            }
            Handed::Refused(why) => return self.refuse(why),
            Handed::Died(identity, number) => {
                if self.living.get(&identity).is_some_and(|(last, _)| *last == number) {
                    self.living.remove(&identity);
                    self.dead.insert(identity.clone(), (clock::boot(), None));
                    self.witness.handle(Input::Died { identity }, clock::now().wall);
                }
            }
            Handed::Event(input) => self.witness.handle(input, clock::now().wall),
        }
        while let Some(action) = self.witness.poll_action() {
            self.act(action);
        }
        if self.dead.is_empty() {
            memory::forget_start();
        }
    }

    /// Waits for this pidfd in place of an earlier one of the same replica.
    fn await_death(&mut self, identity: String, pidfd: OwnedFd) {
        self.told += 1;
        let wait = tokio::spawn(await_death((identity.clone(), self.told), pidfd, self.hand.clone())).abort_handle();
        match self.living.insert(identity.clone(), (self.told, wait)) {
            Some((_, earlier)) => {
                tracing::info!(identity = &*bounded(&identity), "its next elector has told of it");
                earlier.abort();
            }
            None => tracing::info!(identity = &*bounded(&identity), "will give back what it holds once it is dead"),
        }
    }

    fn refuse(&mut self, why: &'static str) {
        if self.refused.insert(why) {
            tracing::warn!("a connection was refused, and so will be others like it: {why}");
        }
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Request { id, replica, lease, request, pause } => {
                let slot = replica.leases.iter().position(|name| *name == lease).and_then(|slot| u8::try_from(slot).ok());
                let Some((_, connected)) = self.dead.get_mut(&replica.identity) else { return };
                // The access is found only now: a token may have been rotated since the witness was started.
                let client = connected.get_or_insert_with(|| {
                    let access = Access::new(Arc::new(|| Cluster::discover(None, None)), replica.attempt_timeout);
                    Lease::new(access, Keys::named(&replica.namespace, replica.leases.iter().cloned()), replica.attempt_timeout)
                });
                let (client, hand, pace) = (client.clone(), self.hand.clone(), Arc::clone(&self.pace));
                drop(tokio::spawn(async move {
                    sleep(pause).await;
                    let _place = pace.acquire().await;
                    let answer = client.send(Slot(slot.unwrap_or_default()), &request).await;
                    let _ = hand.send(Handed::Event(Input::Answered { id, answer })).await;
                    sleep(PAUSE).await;
                }));
            }
            Action::Failed { identity, lease, message } => {
                let message = message.to_string();
                tracing::warn!(identity = &*bounded(&identity), lease, "it is dead, and is tried again: {}", bounded(&message));
            }
            Action::Ended { identity, given_back } => {
                let Some((since, _)) = self.dead.remove(&identity) else { return };
                let (took, identity) = (duration::measured(clock::boot().since(since)), &*bounded(&identity));
                match &given_back[..] {
                    [] => tracing::info!(identity, took, "it is dead, and nothing is given back"),
                    leases => {
                        tracing::info!(identity, took, leases = leases.join(" "), "it is dead, and what it held is given back")
                    }
                }
            }
        }
    }
}

fn listen_at(name: &str) -> Result<OwnedFd, String> {
    let refused = |error: io::Error| format!("cannot listen at {name}: {error}");
    let failed = |errno: Errno| refused(errno.into());
    let (listener, at) = (socket().map_err(failed)?, address(name).map_err(failed)?);
    let mut bound = bind(listener.as_raw_fd(), &at);
    if bound == Err(Errno::EADDRINUSE) {
        let is_path = !name.starts_with('@');
        if is_path && !fs::symlink_metadata(name).is_ok_and(|file| file.file_type().is_socket()) {
            return Err(format!("{name} is there, and is no socket: name another path"));
        }
        let is_stale = is_path && connect(socket().map_err(failed)?.as_raw_fd(), &at) == Err(Errno::ECONNREFUSED);
        if !is_stale {
            return Err(format!("another program listens at {name}: name another socket, or end that program"));
        }
        // A witness that was killed has left it.
        fs::remove_file(name).map_err(refused)?;
        bound = bind(listener.as_raw_fd(), &at);
    }
    bound.and_then(|()| listen(&listener, Backlog::MAXCONN)).map_err(failed)?;
    if !name.starts_with('@') {
        // Whoever mounts the volume may connect: the program's image may name another user.
        fs::set_permissions(name, fs::Permissions::from_mode(0o666)).map_err(refused)?;
    }
    Ok(listener)
}

/// Judges who connects, and whose replica is told of.
#[derive(Clone)]
struct Doorkeeper {
    /// Any process of the pod's network can take an abstract name, and connect to one.
    is_abstract: bool,
    /// What an identity of this pod begins with.
    own: Arc<str>,
}

impl Doorkeeper {
    fn of(socket: &str) -> Self {
        let own = init::base("", std::env::var("POD_NAME").ok());
        Self { is_abstract: socket.starts_with('@'), own: format!("{own}_").into() }
    }

    fn judge(&self, connection: &OwnedFd, replica: &Replica, pidfd: &OwnedFd) -> Result<(), &'static str> {
        if self.is_abstract && !getsockopt(connection, PeerCredentials).is_ok_and(|peer| peer.uid() == geteuid().as_raw()) {
            return Err("it is of another user: let the two share a path on a volume (lease.witness), or one user");
        }
        if !replica.identity.starts_with(&*self.own) {
            return Err(
                "its replica is not of this pod: lease.identity, if set, and POD_NAME in both containers must be the pod's name",
            );
        }
        judge(pidfd)
    }
}

async fn accept(listener: AsyncFd<OwnedFd>, doorkeeper: Doorkeeper, hand: mpsc::Sender<Handed>) {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let room = Arc::new(Semaphore::new(2 * MOST_REPLICAS));
    while let Ok(permit) = Arc::clone(&room).acquire_owned().await {
        match listener.async_io(Interest::READABLE, |listener| Ok(accept4(listener, flags)?)).await {
            Ok(connection) => {
                let (doorkeeper, hand) = (doorkeeper.clone(), hand.clone());
                drop(tokio::spawn(async move {
                    if let Err(why) = attend(connection, &doorkeeper, &hand).await {
                        let _ = hand.send(Handed::Refused(why)).await;
                    }
                    drop(permit);
                }));
            }
            Err(_) => sleep(PAUSE).await,
        }
    }
}

/// Serves one connection until it ends.
async fn attend(connection: OwnedFd, doorkeeper: &Doorkeeper, hand: &mpsc::Sender<Handed>) -> Result<(), &'static str> {
    let connection = register(connection).map_err(|_| "there are no descriptors left")?;
    let first = timeout(SILENCE, connection.async_io(Interest::READABLE, receive)).await;
    let (datagram, mut rights) = first.map_err(|_| "it says nothing")?.map_err(|_| "it cannot be read")?;
    if datagram.is_empty() {
        // `tenure check` only asks whether anybody is there.
        return Ok(());
    }
    let answer = |known: u8| {
        let _ = send(connection.as_raw_fd(), &[known], MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT);
    };
    let understood = read(&datagram).and_then(|replica| {
        let pidfd = rights.pop().filter(|_| rights.is_empty()).ok_or("it hands over no pidfd")?;
        doorkeeper.judge(connection.get_ref(), &replica, &pidfd).map(|()| (replica, pidfd))
    });
    let (replica, pidfd) = understood.inspect_err(|_| answer(REFUSED))?;
    let (identity, (reply, known)) = (replica.identity.clone(), oneshot::channel());
    let _ = hand.send(Handed::Told(replica, pidfd, reply)).await;
    if !known.await.unwrap_or_default() {
        answer(REFUSED);
        return Ok(());
    }
    answer(KNOWN);
    let _ = connection.async_io(Interest::READABLE, |socket| Ok(recv(socket.as_raw_fd(), &mut [0], MsgFlags::empty())?)).await;
    let _ = hand.send(Handed::Event(Input::Disconnected { identity })).await;
    Ok(())
}

/// A datagram with the descriptors that came along: the first two, because the kernel closes those for which there is no room.
#[expect(unsafe_code, reason = "nix gives no descriptor of a message that had more, and so leaks them")]
#[allow(clippy::unnecessary_cast, reason = "musl counts in 32 bits")]
fn receive(socket: &OwnedFd) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
    // A header, and two descriptors.
    let (mut buffer, mut space) = (vec![0_u8; LONGEST], [0_u64; 3]);
    let mut part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: LONGEST };
    // SAFETY: zeroes are a valid message without anything; its pointers are to live locals of these lengths.
    let (message, length) = unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        (message.msg_iov, message.msg_iovlen) = (&raw mut part, 1);
        (message.msg_control, message.msg_controllen) = (space.as_mut_ptr().cast(), size_of_val(&space) as _);
        let length = Errno::result(libc::recvmsg(socket.as_raw_fd(), &raw mut message, libc::MSG_CMSG_CLOEXEC))?;
        (message, usize::try_from(length).unwrap_or_default())
    };
    let mut rights = Vec::new();
    // SAFETY: the kernel has filled `space`, and says by `msg_controllen` how far. It has just made the descriptors for this process,
    // and nothing else knows their numbers.
    unsafe {
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        if let Some(part) =
            header.as_ref().filter(|part| (part.cmsg_level, part.cmsg_type) == (libc::SOL_SOCKET, libc::SCM_RIGHTS))
        {
            let count = (part.cmsg_len as usize).saturating_sub(libc::CMSG_LEN(0) as usize) / size_of::<RawFd>();
            let first = libc::CMSG_DATA(header).cast::<RawFd>();
            rights.extend((0..count).map(|index| OwnedFd::from_raw_fd(first.add(index).read_unaligned())));
        }
    }
    buffer.truncate(length);
    Ok((buffer, rights))
}

/// Accepts a pidfd of PID 1 of another PID namespace that lives, as far as that can be told: the number of a process in a sibling
/// namespace is 0 here. One of the dead would prove nothing about the replica that is told of (law 20).
fn judge(pidfd: &OwnedFd) -> Result<(), &'static str> {
    let info = fs::read_to_string(format!("/proc/self/fdinfo/{}", pidfd.as_raw_fd()))
        .map_err(|_| "/proc does not tell whether it has a pidfd")?;
    let of = |name| info.lines().find_map(|line| line.strip_prefix(name)).map(str::split_whitespace);
    let pid = of("Pid:").and_then(|mut pid| pid.next()).ok_or("what it hands over is no pidfd")?;
    match (pid, of("NSpid:").map(Iterator::collect::<Vec<_>>).as_deref()) {
        _ if is_readable(pidfd) => Err("its pidfd is that of a process which is dead"),
        ("0", _) | (_, None | Some([_, .., "1"])) => Ok(()),
        (_, Some([_, ..] | [])) => Err("its pidfd is not that of PID 1 of another PID namespace"),
    }
}

fn is_readable(pidfd: &OwnedFd) -> bool {
    let mut asked = [PollFd::new(pidfd.as_fd(), PollFlags::POLLIN)];
    poll(&mut asked, PollTimeout::ZERO).is_ok() && asked[0].revents().is_some_and(|events| events.contains(PollFlags::POLLIN))
}

/// Says that it died only once the pidfd itself is seen to be readable.
async fn await_death((identity, number): (String, u64), pidfd: OwnedFd, hand: mpsc::Sender<Handed>) {
    let Ok(pidfd) = register(pidfd) else { return };
    while let Ok(mut ready) = pidfd.readable().await {
        if is_readable(pidfd.get_ref()) {
            let _ = hand.send(Handed::Died(identity, number)).await;
            return;
        }
        ready.clear_ready();
    }
}
