//! The program that tenure runs in these tests: a hidden mode of the test binary itself.
//!
//! It stamps the time into its own file every millisecond, so that the file proves when it was alive, however it ended; and it
//! reports its start, every signal and its end to the test in datagrams. If asked to, it takes a lock that all replicas share, and
//! reports when another process tree holds it. Nothing it does can block on a disk: the files are in memory.

use std::{
    fs::File,
    io::{Read as _, Write as _},
    net::TcpListener,
    os::{
        fd::{AsFd as _, FromRawFd as _},
        unix::{fs::FileExt as _, net::UnixDatagram},
    },
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
    sync::Mutex,
    time::Duration,
};

use nix::{
    fcntl::{FcntlArg, FdFlag, fcntl},
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::{
        signal::{SigSet, Signal},
        signalfd::{SfdFlags, SignalFd},
    },
    unistd::{ForkResult, fork},
};
use serde_json::{Value, json};
use tenure::{clock, time::Instant};

/// First argument of a test binary that is to run as the workload.
pub const FACE: &str = "workload";

/// How a workload behaves; its own command line.
#[derive(Clone, Debug, Default)]
pub struct Behaviour {
    /// From SIGTERM to its exit; none if it ignores SIGTERM.
    pub linger: Option<Duration>,
    /// Starts a daemon: own session, adopted by init, ignores SIGTERM, stamps too. One that is frozen has a child before, too.
    pub daemon: bool,
    /// Takes the exclusive lock of its stage, without waiting, for as long as any process of its tree lives.
    pub lock: bool,
    /// Starts chains of processes, each of which forks its successor and exits; they ignore SIGTERM, and stamp.
    pub bomb: bool,
    /// Answers whoever connects to this port of the loopback address with its name and its token.
    pub listen: Option<u16>,
    /// Answers HTTP requests to this port of the loopback address with 200, until SIGHUP makes its main thread wait for itself.
    pub serve: Option<u16>,
    /// Does nothing, not even stamp, until its page says that it leads (`runs: frozen`).
    pub frozen: bool,
}

/// A bomb's chains, and the lifetime of a link: enough to disturb a walk through /proc, without loading the machine.
const CHAINS: usize = 10;
const LINK: Duration = Duration::from_millis(100);

impl Behaviour {
    /// Ends at once on SIGTERM.
    pub fn obedient() -> Self {
        Self { linger: Some(Duration::ZERO), ..Self::default() }
    }

    /// Ends this much after SIGTERM.
    pub fn lingering(linger: Duration) -> Self {
        Self { linger: Some(linger), ..Self::default() }
    }

    /// Ends on SIGKILL only.
    pub fn stubborn() -> Self {
        Self::default()
    }

    /// The command line of a workload of the replica `name` that reports to the witness in `directory`.
    pub fn command(&self, directory: &Path, name: &str) -> Vec<String> {
        self.command_of(&std::env::current_exe().expect("this test binary"), directory, name)
    }

    /// The same for another program that can run as the workload.
    pub fn command_of(&self, program: &Path, directory: &Path, name: &str) -> Vec<String> {
        let linger = self.linger.map_or_else(|| "never".to_owned(), |linger| linger.as_millis().to_string());
        let traits =
            [("alone", true), ("daemon", self.daemon), ("lock", self.lock), ("bomb", self.bomb), ("frozen", self.frozen)];
        let traits = traits.into_iter().filter(|(_, has)| *has).map(|(word, _)| word.to_owned());
        let ports = [("listen", self.listen), ("serve", self.serve)];
        let ports = ports.into_iter().filter_map(|(word, port)| Some(format!("{word}={}", port?)));
        let traits: Vec<String> = traits.chain(ports).collect();
        let words = [&*program.to_string_lossy(), FACE, &*directory.to_string_lossy(), name, &linger, &traits.join("+")];
        words.map(str::to_owned).to_vec()
    }

    fn parse(linger: &str, traits: &str) -> Self {
        let has = |word: &str| traits.split('+').any(|one| one == word);
        let port = |word: &str| traits.split('+').find_map(|one| one.strip_prefix(word)?.strip_prefix('=')?.parse().ok());
        Self {
            linger: linger.parse().ok().map(Duration::from_millis),
            daemon: has("daemon"),
            lock: has("lock"),
            bomb: has("bomb"),
            frozen: has("frozen"),
            listen: port("listen"),
            serve: port("serve"),
        }
    }
}

/// Runs as the workload, if this process was started as one. SIGUSR1 makes it exit with 7, SIGUSR2 with 0.
pub fn face() -> Option<ExitCode> {
    let line: Vec<String> = std::env::args().collect();
    let [_, face, directory, name, linger, traits] = line.as_slice() else { return None };
    (face == FACE).then(|| Workload::new(directory.into(), name.clone(), Behaviour::parse(linger, traits)).run())
}

/// The stamps that it leaves behind, which show when it was alive.
pub struct Stamps(File);

impl Stamps {
    /// The stamps of this process in the term with this token.
    pub fn open(directory: &Path, name: &str, token: &str) -> Self {
        let file = directory.join(format!("stamps/{name}@{token}@{}@{}", std::process::id(), born().as_nanos()));
        let stamps = Self(File::create(file).expect("a file of stamps"));
        stamps.put(0);
        stamps
    }

    /// Records that it is alive.
    pub fn stamp(&self) {
        self.put(8);
    }

    fn put(&self, offset: u64) {
        self.0.write_all_at(&clock::boot().as_nanos().to_le_bytes(), offset).expect("a stamp");
    }
}

/// Sends messages to the test.
pub struct Voice {
    name: String,
    witness: UnixDatagram,
}

impl Voice {
    /// For the replica `name`, to the witness in this directory.
    pub fn new(directory: &Path, name: &str) -> Self {
        let witness = UnixDatagram::unbound().expect("a socket");
        witness.connect(directory.join("witness")).expect("the witness");
        Self { name: name.to_owned(), witness }
    }

    /// Reports an event.
    pub fn tell(&self, what: &str, more: &Value) {
        let event = json!({ "at": clock::boot().as_nanos(), "replica": self.name, "pid": std::process::id(), "what": what, "more": more });
        self.witness.send(event.to_string().as_bytes()).expect("the witness listens");
    }
}

/// Takes its slot's lock of a stage without waiting, and writes its name into it; everything that it starts inherits the lock. Without the
/// lock it continues, so that its stamps show for how long.
pub fn lock(directory: &Path, voice: &Voice, token: &str) -> File {
    let slot = std::env::var("TENURE_SLOT").ok().filter(|slot| slot != "0");
    let path = directory.join(slot.map_or_else(|| "lock".into(), |slot| format!("lock-{slot}")));
    let file = File::options().create(true).truncate(false).write(true).open(&path).expect("the file of the lock");
    fcntl(&file, FcntlArg::F_SETFD(FdFlag::empty())).expect("a flag of an open file");
    match file.try_lock() {
        Ok(()) => {
            file.set_len(0).expect("an empty file");
            file.write_all_at(voice.name.as_bytes(), 0).expect("a name");
        }
        Err(error) => {
            let holder = std::fs::read_to_string(&path).expect("a name");
            voice.tell("locked out", &json!({ "error": error.to_string(), "token": token, "holder": holder }));
        }
    }
    file
}

/// When this process was forked.
fn born() -> Instant {
    const TICK: u64 = 10_000_000;
    let stat = std::fs::read_to_string("/proc/self/stat").expect("/proc");
    let ticks = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(19)?.parse::<u64>().ok());
    let age = clock::boottime().saturating_sub(Duration::from_nanos(ticks.expect("the start of a process") * TICK));
    clock::boot().before(age)
}

/// Waits until the page says that this process leads, and under which token (docs/term.md).
#[allow(unsafe_code, reason = "a descriptor by its number")]
fn token_of_lead() -> String {
    let number = std::env::var("TENURE_TERM_FD").ok().and_then(|number| number.parse().ok()).expect("a page");
    // SAFETY: nobody else in this process owns the descriptor that init gave it.
    let page = unsafe { File::from_raw_fd(number) };
    let read = || {
        let mut bytes = [0; 48];
        page.read_exact_at(&mut bytes, 0).expect("a page");
        bytes
    };
    let number = |bytes: &[u8; 48], at: usize| u64::from_le_bytes(std::array::from_fn(|byte| bytes[at + byte]));
    loop {
        let bytes = read();
        let is_whole = number(&bytes, 8) % 2 == 0 && read() == bytes;
        if is_whole && bytes[16] == 1 {
            return number(&bytes, 40).to_string();
        }
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// Blocks all signals; they can be read from this.
pub fn signals() -> SignalFd {
    let signals = SigSet::all();
    signals.thread_block().expect("signals blocked");
    SignalFd::with_flags(&signals, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC).expect("a signalfd")
}

/// The next of them, if one has come.
pub fn next(signals: &SignalFd) -> Option<Signal> {
    let signal = signals.read_signal().ok()??;
    Some(Signal::try_from(i32::try_from(signal.ssi_signo).expect("a signal")).expect("a known signal"))
}

/// Starts this command line as a daemon. setsid's own process ends at once, so that init adopts it.
pub fn detach(line: Vec<String>, variables: &[(&str, &str)]) {
    let mut setsid = Command::new("setsid");
    setsid.arg("--fork").args(line).envs(variables.iter().copied()).stdin(Stdio::null());
    let status = setsid.status().expect("setsid");
    assert!(status.success(), "setsid: {status}");
}

struct Workload {
    directory: PathBuf,
    name: String,
    token: String,
    behaviour: Behaviour,
    stamps: Stamps,
    voice: Voice,
}

impl Workload {
    fn new(directory: PathBuf, name: String, behaviour: Behaviour) -> Self {
        if behaviour.frozen && behaviour.daemon && is_child() {
            let stamps = Stamps::open(&directory, &name, &token_of_lead());
            loop {
                stamps.stamp();
                std::thread::sleep(LINK);
            }
        }
        let token = match behaviour.frozen {
            true => token_of_lead(),
            false => std::env::var("TENURE_FENCING_TOKEN").unwrap_or_default(),
        };
        let (stamps, voice) = (Stamps::open(&directory, &name, &token), Voice::new(&directory, &name));
        Self { directory, name, token, behaviour, stamps, voice }
    }

    fn run(self) -> ExitCode {
        let signals = signals();
        let mut environment = environment();
        if self.behaviour.frozen {
            environment["TENURE_FENCING_TOKEN"] = self.token.clone().into();
        }
        self.tell("start", &environment);
        let _lock = self.behaviour.lock.then(|| lock(&self.directory, &self.voice, &self.token));
        if self.behaviour.daemon {
            let token = ("TENURE_FENCING_TOKEN", self.token.as_str());
            detach(Behaviour::stubborn().command(&self.directory, &self.name), &[token]);
        }
        if self.behaviour.bomb {
            (0..CHAINS).for_each(|_| self.start_chain());
        }
        let [listener, server] = [self.behaviour.listen, self.behaviour.serve].map(|port| port.map(listen));
        let mut end = Instant::NEVER;
        loop {
            self.stamps.stamp();
            while let Some(Ok((mut client, _))) = listener.as_ref().map(TcpListener::accept) {
                // It may have gone.
                let _ = client.write_all(format!("{} {}", self.name, self.token).as_bytes());
            }
            while let Some(Ok((mut client, _))) = server.as_ref().map(TcpListener::accept) {
                let _ =
                    client.read(&mut [0; 1024]).and_then(|_| client.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"));
            }
            if clock::boot() >= end {
                return self.end(0);
            }
            let mut ready = [PollFd::new(signals.as_fd(), PollFlags::POLLIN)];
            poll(&mut ready, PollTimeout::from(1_u8)).expect("signals are blocked, so nothing interrupts");
            while let Some(signal) = next(&signals) {
                self.tell("signal", &json!({ "signal": signal.as_str() }));
                if signal == Signal::SIGTERM {
                    end = self.behaviour.linger.map_or(end, |linger| end.min(clock::boot() + linger));
                }
                if signal == Signal::SIGHUP && server.is_some() {
                    deadlock();
                }
                if signal == Signal::SIGUSR1 {
                    return self.end(7);
                }
                if signal == Signal::SIGUSR2 {
                    return self.end(0);
                }
            }
        }
    }

    fn end(&self, code: u8) -> ExitCode {
        self.tell("end", &json!({ "code": code }));
        ExitCode::from(code)
    }

    /// Each link forks the next and exits; init reaps them all. A link that cannot fork ends its chain.
    fn start_chain(&self) {
        if !is_child() {
            return;
        }
        loop {
            self.stamps.stamp();
            std::thread::sleep(LINK);
            if !is_child() {
                std::process::exit(0);
            }
        }
    }

    /// Stamps too, so that whoever receives an event has a stamp that is no older.
    fn tell(&self, what: &str, more: &Value) {
        self.stamps.stamp();
        self.voice.tell(what, more);
    }
}

fn listen(port: u16) -> TcpListener {
    let listener = TcpListener::bind(("127.0.0.1", port)).expect("a free port");
    listener.set_nonblocking(true).expect("a flag of a socket");
    listener
}

/// Never returns.
fn deadlock() {
    let lock = Mutex::new(());
    let held = lock.lock();
    drop((lock.lock(), held));
}

/// Forks; whether this is the child.
#[allow(unsafe_code, reason = "fork")]
fn is_child() -> bool {
    // SAFETY: the process has one thread, so its child finds every lock of the allocator free.
    matches!(unsafe { fork() }, Ok(ForkResult::Child))
}

/// Returns what tenure told the workload in its environment.
fn environment() -> Value {
    std::env::vars().filter(|(name, _)| name.starts_with("TENURE_") || name == "TRACEPARENT").collect()
}
