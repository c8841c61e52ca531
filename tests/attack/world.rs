//! A world: an election and its places for replicas, each with its own network, cgroup, wall clock and service account.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    path::{Path, PathBuf},
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use nix::sys::signal::{Signal, kill};
use support::{Behaviour, Event, LEASE, Log, Replica, Server, Stage, Verbs, programs};
use tenure::{clock, time::Instant};

use crate::{
    TENURE, apart,
    fault::Fault,
    history::Replica as Remains,
    lease,
    nemesis::soon,
    network::{GATEWAY, Network},
    peer, plan,
    processor::Processor,
    standby,
    wall::Wall,
};

/// Lawful: S, H and E lie 2.76, 2.96 and 3.96 s after a send, and a rival may take after 4.04 s. The margin is the default's, as
/// it must be where CPU time is short.
const SETTINGS: [(&str, &str); 5] = [
    ("lease.duration", "4s"),
    ("lease.attemptTimeout", "300ms"),
    ("workload.stop.grace", "1s"),
    ("workload.stop.lossGrace", "200ms"),
    ("workload.stop.killMargin", "1s"),
];
/// The special feature of a world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Some of its workloads are frozen until they lead.
    Plain,
    /// Its replicas differ in D and rho. Its creation wait is longer than any D in it, as a replica that finds no Lease cannot
    /// know the last D.
    Mixed,
    /// Its workloads always run, and lead when they are told to.
    Always,
    /// Its replicas include one of client-go's.
    Peer,
    /// Two of its four replicas run at a time, each under a Lease of its own.
    Slots,
}

impl Kind {
    pub(crate) const ALL: [Self; 5] = [Self::Plain, Self::Mixed, Self::Always, Self::Peer, Self::Slots];

    /// How many may run at a time.
    pub(crate) const fn slots(self) -> u8 {
        if matches!(self, Self::Slots) { 2 } else { 1 }
    }

    /// How many replicas there are.
    pub(crate) const fn places(self) -> u8 {
        self.slots() + 2
    }
}

/// Where the witness of a place listens: each place has a network of its own.
const SOCKET: &str = "@tenure";
/// The place of the replica that is not tenure, in the world that has one.
const PEERS_PLACE: usize = 2;
/// The maximum age of the last stamp of a running workload.
const BREATH: Duration = Duration::from_millis(100);
/// From the end of every fault to a leader: many times what the law allows, as a server may have to come up first.
const PATIENCE: Duration = Duration::from_secs(60);
/// For the replica that is not tenure to get the Lease after its holder was killed.
const GIVES_WAY: Duration = Duration::from_secs(10);
/// How often to check whether a replica has ended, or a workload lives: neither can signal it to everybody who waits.
const GLANCE: Duration = Duration::from_millis(50);

/// A fault as it happened.
#[derive(Clone, Debug)]
pub(crate) struct Span {
    pub(crate) fault: Fault,
    /// The place that it affected; none if it was not a replica's.
    pub(crate) place: Option<usize>,
    pub(crate) from: Instant,
    pub(crate) to: Instant,
}

/// A round as it happened.
#[derive(Clone, Debug)]
pub(crate) struct Past {
    pub(crate) faults: Vec<Fault>,
    pub(crate) from: Instant,
    /// When the last fault was over.
    pub(crate) over: Instant,
    /// When somebody led after that.
    pub(crate) led: Instant,
}

/// State that all worlds share: they use one server.
pub(crate) struct Shared {
    pub(crate) server: Server,
    /// Faults of the server.
    pub(crate) spans: RefCell<Vec<Span>>,
    /// True if the server has a fault now.
    pub(crate) troubled: RefCell<bool>,
}

/// Where replicas run, one after another.
pub(crate) struct Place {
    pub(crate) replica: Replica,
    /// In its network, as a second container of its pod is; half of the replicas tell it of themselves.
    pub(crate) witness: Replica,
    pub(crate) network: Network,
    pub(crate) processor: Processor,
    pub(crate) wall: Wall,
    pub(crate) account: String,
    pub(crate) token: String,
}

/// An election with its replicas.
pub(crate) struct World {
    pub(crate) number: u8,
    pub(crate) kind: Kind,
    /// client-go's wrapper, if this world has one.
    peer: Option<PathBuf>,
    /// In one of four worlds, the earlier tenure that every second place has.
    earlier: Option<PathBuf>,
    pub(crate) stage: Stage,
    pub(crate) places: Vec<Place>,
    pub(crate) shared: Rc<Shared>,
    pub(crate) spans: Vec<Span>,
    pub(crate) rounds: Vec<Past>,
    /// Of those that have ended. What is still on its way comes into the log.
    pub(crate) remains: Vec<(Remains, Arc<Log>)>,
    seed: u64,
    made: BTreeMap<usize, u32>,
}

impl World {
    /// Starts its replicas. Its files go into this directory.
    pub(crate) async fn start(
        number: u8,
        kind: Kind,
        shared: Rc<Shared>,
        directory: &Path,
        library: Option<&Path>,
        seed: u64,
    ) -> Self {
        let files = directory.join(format!("world-{number}"));
        std::fs::create_dir(&files).expect("a new directory");
        let stage = Stage::set(&shared.server, &files).await;
        let mut world = Self {
            number,
            kind,
            peer: if kind == Kind::Peer { peer::program() } else { None },
            earlier: if seed % 4 == 1 { programs::find("tenure") } else { None },
            stage,
            places: Vec::new(),
            shared,
            spans: Vec::new(),
            rounds: Vec::new(),
            remains: Vec::new(),
            seed,
            made: BTreeMap::new(),
        };
        for index in 0..kind.places() {
            let host = number * 10 + index + 1;
            let network = Network::new(&files, host);
            let processor = Processor::new(&format!("{}{host}", apart::groups(directory)));
            let wall = Wall::new(&files, host, library);
            let account = account(usize::from(index));
            let token = world.stage.api.minimal_account(&account, &world.stage.namespace, LEASE, &verbs(kind)).await;
            let place = usize::from(index);
            let witness = world.witness(place, network.enter(), token.clone()).await;
            let replica = world.replica(place, &network, &processor, &wall, &token).await;
            world.places.push(Place { replica, witness, network, processor, wall, account, token });
        }
        world
    }

    /// The tenure of a place.
    fn program(&self, place: usize) -> String {
        let earlier = self.earlier.as_ref().filter(|_| place % 2 == 1);
        earlier.map_or_else(|| TENURE.to_owned(), |path| path.to_string_lossy().into_owned())
    }

    /// A witness with a new name.
    async fn witness(&mut self, place: usize, network: Vec<String>, token: String) -> Replica {
        let count = self.made.entry(place).or_default();
        *count += 1;
        let mut prepared = self.stage.prepare_at(&format!("{place}-{count}"), token, GATEWAY).await;
        (prepared.launch.program, prepared.launch.confined_by) = (self.program(place), network);
        prepared.witness(SOCKET, place.to_string()).start()
    }

    /// A replica with a new name: its place, and the number of replicas there before it.
    async fn replica(&mut self, place: usize, network: &Network, processor: &Processor, wall: &Wall, token: &str) -> Replica {
        let count = self.made.entry(place).or_default();
        *count += 1;
        let name = format!("{place}-{count}");
        let seed = self.seed ^ (place as u64) << 32 ^ u64::from(*count);
        let mut prepared = self.stage.prepare_at(&name, token.to_owned(), GATEWAY).await;
        prepared.launch.program = self.program(place);
        for (key, value) in SETTINGS {
            prepared = prepared.set(key, value);
        }
        if fastrand::Rng::with_seed(seed.rotate_left(16)).bool() {
            // The pod is the place; the witness knows it by what the identity begins with.
            prepared = prepared.set("lease.witness", SOCKET).set("lease.identity", format!("{place}_{name}"));
        }
        let is_frozen = self.kind == Kind::Plain && fastrand::Rng::with_seed(seed).bool();
        if self.kind != Kind::Always {
            prepared = prepared.workload(&Behaviour { frozen: is_frozen, ..plan::behaviour(seed) });
            for (key, value) in plan::surroundings(seed, &prepared.launch.directory, &name, is_frozen) {
                prepared = prepared.set(key, value);
            }
        }
        prepared = match self.kind {
            Kind::Plain if is_frozen => prepared.set("workload.runs", "frozen"),
            Kind::Plain | Kind::Peer => prepared,
            Kind::Slots => prepared.set("lease.slots", self.kind.slots()),
            Kind::Mixed => {
                let (duration, drift) = plan::deadlines(seed);
                let prepared = prepared.set("lease.duration", duration).set("lease.clockDrift", drift);
                prepared.set("lease.creationWait", "6s")
            }
            Kind::Always => {
                prepared.launch.workload = standby::command(seed, &prepared.launch.directory, &name);
                standby::SETTINGS.into_iter().fold(prepared, |prepared, (key, value)| prepared.set(key, value))
            }
        };
        if let Some(program) = self.peer.as_ref().filter(|_| place == PEERS_PLACE) {
            prepared = peer::run(prepared, program, &self.stage.namespace);
        }
        prepared.launch.env = wall.environment();
        prepared.launch.confined_by = [processor.enter(), network.enter()].concat();
        prepared.start()
    }

    /// Replaces replicas that have ended, as kubelet does.
    pub(crate) async fn replace_ended(&mut self) {
        for index in 0..self.places.len() {
            if !self.places[index].witness.runs() {
                let Place { network, token, .. } = &self.places[index];
                let (network, token) = (network.enter(), token.clone());
                let next = self.witness(index, network, token).await;
                let ended = std::mem::replace(&mut self.places[index].witness, next);
                let code = ended.exit().await;
                self.bury(&ended, Some(code));
            }
            if self.places[index].replica.runs() {
                continue;
            }
            let Place { replica, witness, network, processor, wall, account, token } = self.places.remove(index);
            let code = replica.exit().await;
            self.bury(&replica, Some(code));
            drop(replica);
            let replica = self.replica(index, &network, &processor, &wall, &token).await;
            self.places.insert(index, Place { replica, witness, network, processor, wall, account, token });
        }
    }

    fn bury(&mut self, replica: &Replica, code: Option<i32>) {
        let (name, lines, exchanges) = (replica.name.clone(), replica.lines(), Vec::new());
        let is_peer = self.peer.is_some() && place_of(&name) == PEERS_PLACE;
        self.remains.push((Remains { name, is_peer, exchanges, lines, code }, replica.proxy.log.clone()));
    }

    /// Ends all replicas, and waits until nothing of them runs.
    pub(crate) async fn end(&mut self) {
        self.replace_ended().await;
        for place in std::mem::take(&mut self.places) {
            // A client-go replica that has lost its Lease ends by itself, perhaps just now.
            tokio::select! {
                () = place.replica.signal(Signal::SIGKILL) => {}
                _ = place.replica.exit() => {}
            }
            place.replica.exit().await;
            self.bury(&place.replica, None);
            place.witness.signal(Signal::SIGKILL).await;
            place.witness.exit().await;
            self.bury(&place.witness, None);
        }
    }

    /// Records a fault; returns its number.
    pub(crate) fn book(&mut self, span: Span) -> usize {
        self.spans.push(span);
        self.spans.len() - 1
    }

    /// Lets time pass; replicas that end meanwhile are replaced.
    pub(crate) async fn pass_until(&mut self, moment: Instant) {
        loop {
            self.replace_ended().await;
            let left = moment.since(clock::boot());
            if left.is_zero() {
                return;
            }
            tokio::time::sleep(left.min(GLANCE)).await;
        }
    }

    /// Gives the replica that is not tenure its turn, if there is one: it is seldom the first by itself. The others are killed,
    /// and not replaced until it leads.
    pub(crate) async fn give_way(&mut self) {
        if self.peer.is_none() || self.leader() == Some(PEERS_PLACE) {
            return;
        }
        self.replace_ended().await;
        for place in self.places.iter().filter(|place| place_of(&place.replica.name) != PEERS_PLACE && place.replica.runs()) {
            if let Some(init) = soon(GIVES_WAY, place.replica.init()).await {
                // It may have ended in between.
                let _ = kill(init, Signal::SIGKILL);
            }
        }
        let begun = clock::boot();
        while clock::boot().since(begun) < GIVES_WAY && self.leader() != Some(PEERS_PLACE) {
            tokio::time::sleep(GLANCE).await;
        }
    }

    /// Waits until as many workloads are alive as may be; returns the place of the latest one's. An error: that takes longer
    /// than acceptable after the last fault.
    pub(crate) async fn led(&mut self) -> Result<usize, String> {
        let mut since = clock::boot();
        loop {
            if let Some(place) = self.leader()
                && self.is_full()
            {
                return Ok(place);
            }
            if *self.shared.troubled.borrow() {
                since = clock::boot();
            }
            if clock::boot().since(since) > PATIENCE {
                let lease = lease::look(&self.stage).await;
                return Err(format!("nobody leads {PATIENCE:?} after the last fault; the Lease: {lease:?}"));
            }
            self.pass_until(clock::boot() + GLANCE).await;
        }
    }

    fn leader(&self) -> Option<usize> {
        let start = self.stage.witness.last_start()?;
        self.is_alive(&start).then(|| place_of(&start.replica))
    }

    fn is_full(&self) -> bool {
        let slots = usize::from(self.kind.slots());
        if slots == 1 {
            return true;
        }
        let events = self.stage.witness.all();
        let starts = |name: &str| events.iter().rfind(|event| event.what == "start" && event.replica == name);
        let alive = self.places.iter().filter(|place| starts(&place.replica.name).is_some_and(|start| self.is_alive(start)));
        alive.count() >= slots
    }

    fn is_alive(&self, start: &Event) -> bool {
        let token = start.more["TENURE_FENCING_TOKEN"].as_str().unwrap_or_default();
        let stamp = self.stage.witness.last_stamp(&start.replica, token);
        stamp.is_some_and(|alive| clock::boot().since(alive) < BREATH)
    }
}

/// A replica's permissions: with several slots, on Leases of every name, as the slots are found by their label.
fn verbs(kind: Kind) -> Verbs {
    let verbs = Verbs::default();
    if kind.slots() == 1 {
        return verbs;
    }
    Verbs { any: ["create", "get", "list", "watch", "update"].map(str::to_owned).into(), ..verbs }
}

/// The service account of a place.
pub(crate) fn account(place: usize) -> String {
    format!("place-{place}")
}

/// The place of a replica: its name begins with it, and so does its identity; its account ends with it.
pub(crate) fn place_of(name: &str) -> usize {
    name.split(['-', '_']).next().and_then(|place| place.parse().ok()).unwrap_or_else(|| panic!("{name} is no replica's name"))
}
