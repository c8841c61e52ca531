//! The elector process: the only part of `run` that talks to the API server.
//!
//! Owns the edges of the [`Turn`]: the link to init, requests and the watch, the timer, and the second guard at H. Never decides
//! who leads. Starts no process except the kubeconfig's credential plugins. Reads no configuration: init hands it over in the
//! InitialState.
//!
//! - [`drive`] is the loop; [the link](crate::link), the [`alarm`](crate::alarm), its inbox and a withdrawal are all that can wake it.
//! - [`lease`] carries requests and the watch out.
//! - [`permission`] asks whether this replica may update the Lease; [`candidates`] announces it as a standby.
//! - [`detach`] makes it a process of its own that no signal ends.
//! - [`endpoint_slice`] publishes the leader's address, [`kubernetes_events`] tells of transitions. Only a planned stop waits for the
//!   withdrawal of the address, and the end of the elector a moment for both.
//! - [`workload_probe`] asks the workload over the network, where init wants that.
//! - [`witness`] hands init's pidfd to the witness of this replica, which gives the Lease back once all are dead.
//! - [`guard`] decides when the elector kills, at H, if init does not. [`remains`] kills, then and after the death of init.
//!
//! The process lives until its link ends. Init decides its end.

use std::{
    env,
    error::Error,
    io,
    net::SocketAddr,
    os::fd::{AsRawFd, FromRawFd as _, OwnedFd},
    sync::Arc,
    thread,
    time::Duration,
};

use nix::{
    fcntl::{FcntlArg, FdFlag, OFlag, fcntl},
    sys::{
        prctl,
        socket::{SockType, getsockopt, sockopt},
    },
};
use tokio::{io::unix::AsyncFd, task::spawn_blocking};

use self::{
    drive::{Edges, EventLoop, Link, ready},
    endpoint_slice::Traffic,
    guard::Guard,
    kubernetes_events::Events,
};
use crate::{
    api::{Access, Client, Cluster},
    clock,
    config::{Config, LogFormat, Preset},
    election::turn::Turn,
    exit,
    http::{Health, serve},
    link::{FD, InitialState, ToElector, ToInit},
    process::memory,
    stderr::StderrLog,
    telemetry::{Telemetry, log, recorder::Recorder},
    wire::{Broken, End},
    words::one_line,
};

mod candidates;
mod detach;
mod drive;
mod endpoint_slice;
mod guard;
mod kubernetes_events;
mod lease;
mod permission;
mod remains;
pub(crate) mod witness;
mod workload_probe;

pub(crate) use self::lease::{Keys, Lease};

/// Init sends the InitialState as it starts an elector. An init that does not is stopped, and will start another elector later.
const INITIAL_TIMEOUT: Duration = Duration::from_secs(10);

/// How often a successor that cannot serve probes tries again.
const PROBES_AGAIN: Duration = Duration::from_secs(1);

/// Threads for what blocks: name lookups and credential plugins. More would only wait in parallel.
const BLOCKING_THREADS: usize = 16;

/// Such a thread stays, because it might not be possible to make another when one is needed.
const FOR_EVER: Duration = Duration::from_secs(u32::MAX as u64);

/// The elector cannot do its work.
struct Failure {
    /// The exit code.
    code: u8,
    why: String,
    /// Init is told, and reports it as it exits.
    is_told: bool,
}

/// Runs the elector on the link that init left at file descriptor 3. Returns the exit code.
pub fn run() -> u8 {
    memory::close_to_others();
    let link = adopt();
    // Init kills an elector whose link ends, so one end stays open until the reason is written.
    let _kept = link.as_ref().ok().and_then(|link| link.try_clone().ok());
    let ended = link.and_then(|socket| {
        detach::detach().map_err(Failure::start)?;
        elect(socket)
    });
    let Err(failure) = ended else { return 0 };
    if !failure.is_told {
        let line = format!("tenure elector: {}", failure.why);
        if tracing::dispatcher::has_been_set() {
            tracing::error!("{line}");
        } else {
            StderrLog::new(LogFormat::Text).write(format!("{line}\n").as_bytes());
        }
    }
    failure.code
}

impl Failure {
    /// A failure that init is told.
    fn told(code: u8, why: &(dyn Error + 'static)) -> Self {
        Self { code, why: one_line(why), is_told: true }
    }

    fn untold(why: String) -> Self {
        Self { code: exit::INTERNAL, why, is_told: false }
    }

    fn start(why: impl Into<io::Error>) -> Self {
        Self::untold(format!("cannot start the elector: {}", one_line(&why.into())))
    }

    fn link(why: Broken) -> Self {
        Self::untold(format!("cannot start the elector: {}", one_line(&why)))
    }
}

#[expect(unsafe_code, reason = "a descriptor is inherited by its number")]
fn adopt() -> Result<OwnedFd, Failure> {
    // SAFETY: init passed the descriptor to this process; nothing else here owns it, and whether it is open is checked next.
    let socket = unsafe { OwnedFd::from_raw_fd(FD) };
    if getsockopt(&socket, sockopt::SockType) != Ok(SockType::SeqPacket) {
        // Another descriptor there is not ours to close.
        std::mem::forget(socket);
        let why = format!("`tenure elector` is started by tenure itself: there is no link at file descriptor {FD}");
        return Err(Failure { code: exit::USAGE, ..Failure::untold(why) });
    }
    fcntl(&socket, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC)).map_err(Failure::start)?;
    fcntl(&socket, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).map_err(Failure::start)?;
    Ok(socket)
}

/// Lets the loop wait for `owner`'s descriptor, which stays the same.
#[expect(unsafe_code, reason = "tokio cannot see that a type keeps its descriptor")]
pub(crate) fn register<T: AsRawFd>(owner: T) -> io::Result<AsyncFd<T>> {
    // SAFETY: End, Alarm and OwnedFd own an open descriptor, which they neither close nor replace while they live.
    let registered = unsafe { AsyncFd::register(owner) }?;
    Ok(registered)
}

fn elect(socket: OwnedFd) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(BLOCKING_THREADS)
        .thread_keep_alive(FOR_EVER)
        .build()
        .map_err(Failure::start)?;
    let whole = async {
        let mut link = register(End::of(socket)).map_err(Failure::start)?;
        let initial = greet(&mut link).await?;
        lead_or_follow(link, initial).await
    };
    // A task of its own: the future that the runtime itself polls is woken through the kernel each time.
    let ended = match runtime.block_on(async { tokio::spawn(whole).await }) {
        Ok(ended) => ended,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    };
    // A credential plugin may hang; nothing waits for it.
    runtime.shutdown_background();
    if let Some(init) = ended? {
        init.kill_remains();
    }
    Ok(())
}

async fn greet(link: &mut Link) -> Result<InitialState, Failure> {
    link.get_mut().send(&ToInit::Hello).map_err(Failure::link)?;
    let first = async {
        loop {
            if let Some(message) = link.get_mut().receive()? {
                return Ok(message);
            }
            ready(link).await.map_err(Broken::Socket)?;
        }
    };
    let first = tokio::time::timeout(INITIAL_TIMEOUT, first).await;
    let first = first.map_err(|_| Failure::untold(format!("init gave no initial state within {INITIAL_TIMEOUT:?}")))?;
    let ToElector::InitialState(initial) = first.map_err(Failure::link)? else {
        return Err(Failure::untold("init did not begin with an initial state".into()));
    };
    Ok(*initial)
}

/// Runs until the link ends. Returns the init that has ended, if processes of it may be left to kill.
async fn lead_or_follow(mut link: Link, initial: InitialState) -> Result<Option<remains::Init>, Failure> {
    log::start(&initial.config.log);
    let init = remains::Init::of(&initial);
    // From here on the end of init shows as the end of the link, and this process kills the processes that init leaves.
    prctl::set_pdeathsig(None).map_err(Failure::start)?;
    let guard = Guard::start(init.killer()).map_err(Failure::start)?;
    // Once there is a thread, tokio queues blocking work if no further thread can be made, as at a container's limit of
    // processes. Without a thread it would panic, even to look up the collector's name.
    drop(thread::Builder::new().spawn(|| ()).map_err(Failure::start)?.join());
    drop(spawn_blocking(|| ()).await);
    let context = initial.context.clone();
    let discover = move || Cluster::again(context.as_ref());
    let access = Access::new(Arc::new(discover), initial.config.lease.attempt_timeout);
    let health = Health::new(&initial, clock::boot());
    let endpoints = endpoint_slice::endpoints(&initial.config, variable).map_err(|error| Failure::told(exit::INVALID, &error));
    let prepared = prepare(&initial, &access, &health).await;
    let endpoints = match prepared.and(endpoints) {
        Ok(endpoints) => endpoints,
        Err(failure) => {
            let message = failure.why.clone();
            link.get_mut().send(&ToInit::Failed { code: failure.code, message }).map_err(Failure::link)?;
            return Err(failure);
        }
    };
    let beside = || Client::beside(access.clone(), initial.config.lease.attempt_timeout);
    let traffic = endpoints.map(|endpoints| Traffic::start(&initial, &health.status(), endpoints, beside()));
    let events = initial.config.events.enabled.then(|| Events::start(&initial, beside()));
    let keys = Keys::of(&initial.config.lease);
    if initial.config.lease.announce {
        let own = Lease::beside(access.clone(), keys.clone(), initial.config.lease.attempt_timeout);
        drop(tokio::spawn(candidates::announce(own, health.clone(), initial.identity.clone())));
    }
    if initial.preset == Preset::Run {
        permission::start(&initial, beside(), health.clone());
    }
    witness::start(&initial, health.clone());
    let lease = Lease::new(access, keys, initial.config.lease.attempt_timeout);
    let page = initial.config.http.listen.map(|_| health.metrics().clone());
    let telemetry = Telemetry::start(&initial, page, health.follow(), variable);
    let seed = getrandom::u64().unwrap_or_else(|_| clock::boot().as_nanos());
    let recorder = Recorder::new(&initial, clock::now());
    let edges = Edges { link, lease, guard, init, health, recorder, telemetry, traffic, events };
    let start = |initial| Turn::new(initial, seed, clock::now(), Turn::BEATS);
    let drive = EventLoop::new(edges, initial, start).map_err(Failure::start)?;
    let (ended, init) = drive.run().await;
    tracing::debug!(error = one_line(&ended), "the link ended");
    Ok(match ended {
        Broken::Closed => Some(init),
        // Init replaces this elector, and the workload goes on.
        Broken::Socket(_) | Broken::Message(_) => Some(init).filter(|init| !init.lives()),
    })
}

/// Serves probes once the address is free: a predecessor that could not be reaped yet may still hold it.
async fn serve_in_the_end(listen: SocketAddr, health: Health) {
    loop {
        tokio::time::sleep(PROBES_AGAIN).await;
        if let Ok(address) = serve(listen, health.clone()) {
            return tell_where(address);
        }
    }
}

/// Logs the address, which differs from the configured one if that has port 0.
fn tell_where(address: SocketAddr) {
    tracing::info!("serving probes on {address}");
}

/// Reads a variable. One that is not UTF-8 is not passed over: it is refused later, with its text.
fn variable(name: &str) -> Option<String> {
    env::var_os(name).map(|value| value.to_string_lossy().into_owned())
}

/// Returns why a replica does not start here: `service.endpointSlice` needs its address, and no variable has it.
pub(crate) fn lacks_address(config: &Config) -> Option<String> {
    endpoint_slice::endpoints(config, variable).err().map(|error| one_line(&error))
}

/// Returns whether no elector of this init was there before.
const fn is_first(initial: &InitialState) -> bool {
    initial.generation <= 1 && initial.resume.is_none()
}

/// Serves probes and finds the cluster. The first elector fails if that cannot work. Later ones keep trying, because a term may
/// be in progress, and it has worked before.
async fn prepare(initial: &InitialState, access: &Access, health: &Health) -> Result<(), Failure> {
    let is_first = is_first(initial);
    if let Some(listen) = initial.config.http.listen {
        match serve(listen, health.clone()) {
            Ok(address) => tell_where(address),
            Err(error) if is_first => return Err(Failure::told(exit::INVALID, &error)),
            Err(error) => {
                tracing::warn!(error = one_line(&error), "cannot serve probes yet; retrying");
                drop(tokio::spawn(serve_in_the_end(listen, health.clone())));
            }
        }
    }
    if !is_first {
        return Ok(());
    }
    match tokio::time::timeout(initial.config.lease.attempt_timeout, access.dial(true)).await {
        Ok(Err(error)) if !error.may_pass() => Err(Failure::told(error.exit_code(), &error)),
        Ok(Ok(dialer)) => {
            let server = &dialer.server;
            match initial.preset {
                Preset::Run => tracing::info!("the API server is {server}"),
                Preset::Lock { .. } | Preset::Task(_) => tracing::debug!("the API server is {server}"),
            }
            Ok(())
        }
        Ok(Err(_)) | Err(_) => Ok(()),
    }
}
