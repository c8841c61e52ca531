//! `tenure witness`: in a second container of the pod, gives back what a killed replica held (law 20).
//!
//! Owns the socket at which electors hand over pidfds of their inits, the wait for these, the log and the exit codes. Carries out
//! what [`Witness`] decides. Reads no configuration file, connects to nothing before a replica is dead, and signals no process.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    io::IoSliceMut,
    os::fd::{AsFd, AsRawFd, FromRawFd as _, OwnedFd, RawFd},
    sync::Arc,
    time::Duration,
};

use nix::{
    cmsg_space,
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::socket::{Backlog, ControlMessageOwned, MsgFlags, SockFlag, accept4, bind, connect, listen, recv, recvmsg, send},
};
use tokio::{
    io::{Interest, unix::AsyncFd},
    sync::{Semaphore, mpsc, oneshot},
    time::{sleep, timeout},
};

use super::{block_on, interrupts::Interrupts};
use crate::{
    api::{Access, Cluster},
    cli, clock,
    config::Log,
    console::complain,
    election::{
        RequestId,
        obituary::{Action, Input, MOST_REPLICAS, Replica, Witness},
    },
    elector::{
        Keys, Lease, register,
        witness::{KNOWN, REFUSED, address, read, socket},
    },
    exit,
    process::memory,
    request::Answer,
    slot::Slot,
    telemetry::log,
    time::Instant,
    words::{bounded, one_line},
};

/// Longest datagram in bytes: 64 Leases with the longest names.
const LONGEST: usize = 20 * 1024;
/// A connection that says nothing for so long is closed.
const SILENCE: Duration = Duration::from_secs(10);
/// As long as the process has no descriptor for a connection.
const PAUSE: Duration = Duration::from_secs(1);

#[derive(Debug, thiserror::Error)]
enum Failed {
    #[error("another program listens at {0}: name another socket, or end that program")]
    Taken(String),
    #[error("cannot listen at {0}")]
    Listen(String, #[source] io::Error),
    #[error("cannot start")]
    System(#[from] io::Error),
}

/// Input of the loop, from its tasks.
enum Handed {
    Told(Replica, OwnedFd, oneshot::Sender<bool>),
    Refused(&'static str),
    Event(Input),
}

/// Runs until it is told to end and nothing is left to do; returns the exit code.
pub(super) fn run(asked: &cli::Witness) -> u8 {
    log::start(&Log::default());
    let ended = block_on(serve(&asked.socket)).map_err(Failed::System).flatten();
    let Err(failed) = ended else { return 0 };
    complain(&one_line(&failed));
    match failed {
        Failed::Taken(_) | Failed::Listen(..) => exit::INVALID,
        Failed::System(_) => exit::INTERNAL,
    }
}

async fn serve(name: &str) -> Result<(), Failed> {
    let listener = register(listen_at(name)?)?;
    let mut interrupts = Interrupts::catch()?;
    if let Err(error) = Cluster::discover() {
        tracing::warn!(
            "there is no access to a cluster yet; it is looked for again when a replica is dead: {}",
            one_line(&error)
        );
    }
    tracing::info!("waits for replicas at {name}");
    let (hand, mut handed) = mpsc::channel(MOST_REPLICAS);
    drop(tokio::spawn(accept(listener, hand.clone())));
    let mut room = Room { witness: Witness::new(fastrand::u64(..)), hand, dead: BTreeMap::new(), refused: BTreeSet::new() };
    memory::forget_start();
    let mut is_ending = false;
    while !(is_ending && room.witness.is_idle()) {
        tokio::select! {
            () = interrupts.next() => {
                is_ending = true;
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
    /// Since when, and how their Leases are reached.
    dead: BTreeMap<String, (Instant, Option<Lease>)>,
    /// Refusals that the log has: each is said once.
    refused: BTreeSet<&'static str>,
}

impl Room {
    fn take(&mut self, handed: Handed) {
        match handed {
            Handed::Told(replica, pidfd, reply) => {
                let (identity, is_new) = (replica.identity.clone(), !self.witness.knows(&replica.identity));
                self.witness.handle(Input::Told(replica), clock::now().wall);
                let is_known = self.witness.knows(&identity);
                if !is_known {
                    self.refuse("there is no room for another replica");
                } else if is_new {
                    tracing::info!(identity = &*bounded(&identity), "will give back what it holds once it is dead");
                    drop(tokio::spawn(await_death(identity, pidfd, self.hand.clone())));
                }
                let _ = reply.send(is_known);
            }
            Handed::Refused(why) => return self.refuse(why),
            Handed::Event(input) => {
                if let Input::Died { identity } = &input {
                    self.dead.insert(identity.clone(), (clock::boot(), None));
                }
                self.witness.handle(input, clock::now().wall);
            }
        }
        while let Some(action) = self.witness.poll_action() {
            self.act(action);
        }
        if self.dead.is_empty() {
            memory::forget_start();
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
                    let access = Access::new(Arc::new(Cluster::discover), replica.attempt_timeout);
                    Lease::new(access, Keys::named(&replica.namespace, replica.leases.iter().cloned()), replica.attempt_timeout)
                });
                let (client, hand) = (client.clone(), self.hand.clone());
                drop(tokio::spawn(async move {
                    sleep(pause).await;
                    let answer = client.send(Slot(slot.unwrap_or_default()), &request).await;
                    let _ = hand.send(answered(id, answer)).await;
                }));
            }
            Action::Failed { identity, lease, message } => {
                let message = message.to_string();
                tracing::warn!(identity = &*bounded(&identity), lease, "it is dead, and is tried again: {}", bounded(&message));
            }
            Action::Ended { identity, given_back } => {
                let Some((since, _)) = self.dead.remove(&identity) else { return };
                let (took, identity) = (format!("{:.1?}", clock::boot().since(since)), &*bounded(&identity));
                match &given_back[..] {
                    [] => tracing::info!(identity, took, "it is dead, and holds nothing"),
                    leases => {
                        tracing::info!(identity, took, leases = leases.join(" "), "it is dead, and what it held is given back")
                    }
                }
            }
        }
    }
}

fn answered(id: RequestId, answer: Answer) -> Handed {
    Handed::Event(Input::Answered { id, answer })
}

fn listen_at(name: &str) -> Result<OwnedFd, Failed> {
    let failed = |errno: Errno| Failed::Listen(name.into(), errno.into());
    let (listener, at) = (socket().map_err(failed)?, address(name).map_err(failed)?);
    let mut bound = bind(listener.as_raw_fd(), &at);
    if bound == Err(Errno::EADDRINUSE) {
        let is_stale = !name.starts_with('@') && connect(socket().map_err(failed)?.as_raw_fd(), &at) == Err(Errno::ECONNREFUSED);
        if !is_stale {
            return Err(Failed::Taken(name.into()));
        }
        // A witness that was killed has left it.
        fs::remove_file(name).map_err(|error| Failed::Listen(name.into(), error))?;
        bound = bind(listener.as_raw_fd(), &at);
    }
    bound.and_then(|()| listen(&listener, Backlog::MAXCONN)).map_err(failed)?;
    Ok(listener)
}

async fn accept(listener: AsyncFd<OwnedFd>, hand: mpsc::Sender<Handed>) {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let room = Arc::new(Semaphore::new(2 * MOST_REPLICAS));
    while let Ok(permit) = Arc::clone(&room).acquire_owned().await {
        match listener.async_io(Interest::READABLE, |listener| Ok(accept4(listener.as_raw_fd(), flags)?)).await {
            Ok(connection) => {
                let (connection, hand) = (owned(connection), hand.clone());
                drop(tokio::spawn(async move {
                    if let Err(why) = attend(connection, &hand).await {
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
async fn attend(connection: OwnedFd, hand: &mpsc::Sender<Handed>) -> Result<(), &'static str> {
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
    let understood = read(&datagram).ok_or("it is no elector of this version").and_then(|replica| {
        let pidfd = rights.pop().filter(|_| rights.is_empty()).ok_or("it hands over no pidfd")?;
        judge(pidfd.as_raw_fd()).map(|()| (replica, pidfd))
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

/// A datagram with the descriptors that came along.
fn receive(socket: &OwnedFd) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
    let (mut buffer, mut space) = (vec![0; LONGEST], cmsg_space!([RawFd; 2]));
    let mut parts = [IoSliceMut::new(&mut buffer)];
    let message = recvmsg::<()>(socket.as_raw_fd(), &mut parts, Some(&mut space), MsgFlags::MSG_CMSG_CLOEXEC)?;
    let mut rights = Vec::new();
    for part in message.cmsgs()? {
        if let ControlMessageOwned::ScmRights(descriptors) = part {
            rights.extend(descriptors.into_iter().map(owned));
        }
    }
    let length = message.bytes;
    buffer.truncate(length);
    Ok((buffer, rights))
}

#[expect(unsafe_code, reason = "the kernel gives descriptors by their number")]
fn owned(descriptor: RawFd) -> OwnedFd {
    // SAFETY: the kernel has just made it for this process, and nothing else knows its number.
    unsafe { OwnedFd::from_raw_fd(descriptor) }
}

/// Accepts a pidfd of PID 1 of another PID namespace, as far as that can be told: the number of a process in a sibling
/// namespace is 0 here, and that of one that is gone is -1.
fn judge(pidfd: RawFd) -> Result<(), &'static str> {
    let info =
        fs::read_to_string(format!("/proc/self/fdinfo/{pidfd}")).map_err(|_| "/proc does not tell whether it has a pidfd")?;
    let of = |name| info.lines().find_map(|line| line.strip_prefix(name)).map(str::split_whitespace);
    let pid = of("Pid:").and_then(|mut pid| pid.next()).ok_or("what it hands over is no pidfd")?;
    match (pid, of("NSpid:").map(Iterator::collect::<Vec<_>>).as_deref()) {
        ("0" | "-1", _) | (_, None | Some([_, .., "1"])) => Ok(()),
        (_, Some([_, ..] | [])) => Err("its pidfd is not that of PID 1 of another PID namespace"),
    }
}

/// Says that it died only once the pidfd itself is seen to be readable.
async fn await_death(identity: String, pidfd: OwnedFd, hand: mpsc::Sender<Handed>) {
    let Ok(pidfd) = register(pidfd) else { return };
    while let Ok(mut ready) = pidfd.readable().await {
        let mut asked = [PollFd::new(pidfd.get_ref().as_fd(), PollFlags::POLLIN)];
        let is_polled = poll(&mut asked, PollTimeout::ZERO).is_ok();
        if is_polled && asked[0].revents().is_some_and(|events| events.contains(PollFlags::POLLIN)) {
            let _ = hand.send(Handed::Event(Input::Died { identity })).await;
            return;
        }
        ready.clear_ready();
    }
}
