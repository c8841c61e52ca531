//! The law as a monitor: it takes what happens as transitions of the law, and refuses the first one that the law forbids.
//!
//! Owns the transitions and the state of one Lease. The same law is in words in `src/law.rs`, and proved in `proof/law.py`: this text
//! shares no code with either, and tests/lawful.rs ties the three. Pure: it reads no clock, and believes what it is told. Each step
//! is judged when it is taken, whether or not anybody else runs.

use std::collections::{BTreeMap, BTreeSet};

mod effects;
mod rules;

/// Real time in nanoseconds.
pub type Ns = u64;
/// A version of the Lease, which is a resourceVersion.
pub type V = u64;
/// What a step breaks.
pub type Illegal = &'static str;

/// Declares the transitions, each by the name that `proof/law.py` gives it.
macro_rules! transitions {
    ($($name:ident = $text:literal,)*) => {
        /// A transition of the law. Its name begins with the number of the rule that allows it; those of others have none.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum What {
            $(#[doc = $text] $name,)*
        }

        impl What {
            /// Every one.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// Its place in [`Self::ALL`].
            pub const fn place(self) -> usize {
                self as usize
            }

            /// Its name.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }
        }
    };
}

transitions! {
    Passes = "3 time passes",
    Sees = "11 see a version",
    SeesLateAbsence = "16 an absence that is over",
    Takes = "12 take",
    TakesAgain = "12 write again what was proved late",
    Holds = "14 hold for nobody",
    Creates = "14 create for nobody",
    PeerTakes = "client-go takes",
    Begins = "12 begin a term",
    IsLate = "12 proved late",
    Renews = "7 renew",
    Extends = "1 extend",
    Forgets = "6 forget a write",
    Loses = "4 lose",
    Voids = "8 E is void",
    Releases = "8 release",
    Follows = "4 follow again",
    InitLeads = "3 init is told to lead",
    InitExtends = "3 init extends",
    Starts = "15 start",
    Stops = "stop",
    Proves = "8 init proves",
    NextElector = "10 another elector",
    Dies = "die",
    Obituary = "20 obituary",
    StoresRenewal = "a renewal is stored",
    StoresTake = "a take is stored",
    StoresRelease = "a release is stored",
    StoresPeersRelease = "a release of client-go is stored",
    StoresNobody = "nobody is stored",
    StoresCreation = "nobody is created",
    Empties = "somebody empties it",
    Deletes = "somebody deletes it",
    Steals = "a stranger writes it",
    DropsName = "a stranger drops the name",
    StrangerCreates = "a stranger creates it",
    StrangerReleases = "a stranger releases it",
    Labels = "somebody labels it",
    Unsets = "somebody removes the duration",
    EditsDuration = "somebody edits the duration",
}

impl What {
    /// Returns whether an elector decides it.
    pub const fn is_of_elector(self) -> bool {
        use What::{Begins, Creates, Extends, Follows, Holds, IsLate, Loses, Releases, Renews, Takes, TakesAgain, Voids};
        let follows = matches!(self, Takes | TakesAgain | Holds | Creates | Begins | IsLate);
        follows || matches!(self, Renews | Extends | Loses | Voids | Releases | Follows)
    }
}

/// A transition and its arguments; what it has none for is 0.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    pub what: What,
    /// The replica.
    pub r: usize,
    /// The request. Without one, an own write that says what the version says is looked for.
    pub q: Option<usize>,
    /// The version that is seen, begins a term or extends it; of a write for nobody: an older one that says the same.
    pub k: V,
    /// The version that is written; 0: the next one.
    pub v: V,
    /// The time, or a duration.
    pub t: Ns,
    /// The version that a request is sent onto, and what it says.
    pub base: V,
    pub text: u64,
    /// How long it asks nobody to hold the Lease.
    pub asks: Ns,
}

impl Step {
    pub const fn of(what: What) -> Self {
        Self { what, r: 0, q: None, k: 0, v: 0, t: 0, base: 0, text: 0, asks: 0 }
    }
}

/// Who holds a version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    #[default]
    Absent,
    /// Nobody, and nobody gave it back.
    Free,
    Released,
    /// `tenure.dev/nobody`.
    Nobody,
    /// A replica, by a write of its own.
    Held,
    /// Somebody of whom the law knows nothing.
    Foreign,
}

/// A version. Versions with equal uid and spec have one number of the spec: that of the first; what is free has one for each uid.
#[derive(Clone, Copy, Debug, Default)]
struct Version {
    kind: Kind,
    hold: usize,
    by: usize,
    snd: Ns,
    /// Zero: none is recorded.
    dur: Ns,
    spec: i64,
    uid: V,
    /// When the take of its term was sent, and which version that is.
    ts: Ns,
    tv: V,
    /// `tenure.dev/holder` names somebody.
    is_named: bool,
    is_orphan: bool,
    is_dropped: bool,
}

impl Version {
    fn of(kind: Kind) -> Self {
        Self { kind, ..Self::default() }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ask {
    Renew,
    Take,
    Release,
    Hold,
    Create,
}

#[derive(Clone, Copy, Debug)]
struct Request {
    ask: Ask,
    who: usize,
    base: V,
    sent: Ns,
    text: u64,
    asks: Ns,
    ts: Ns,
    tv: V,
}

/// Of `seen`: nothing yet.
const UNSEEN: i64 = i64::MIN;

/// What a follower remembers, and what it hands on to the next elector.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    /// The longest D known.
    pub longest: Ns,
    /// Until then nothing is taken.
    pub until: Ns,
    /// The uid last seen held, or 0, and whether that holder was named.
    pub uid: V,
    pub is_named: bool,
    /// The terms that it has seen.
    known: BTreeSet<V>,
}

#[derive(Clone, Debug, Default)]
struct Replica {
    d: Ns,
    is_polite: bool,
    // The elector.
    has_term: bool,
    is_lost: bool,
    is_proved: bool,
    releases: bool,
    val: V,
    tok: V,
    remembered: BTreeSet<usize>,
    late: i64,
    said: BTreeSet<u64>,
    // What it sees.
    seen: i64,
    since: Ns,
    latest: V,
    memory: Memory,
    // Link and init.
    lead: bool,
    extensions: BTreeSet<V>,
    init_leads: bool,
    is_open: bool,
    ival: V,
    itok: V,
    is_dead: bool,
}

/// The state of one Lease and its replicas.
#[derive(Clone, Debug)]
pub struct Law {
    now: Ns,
    top: V,
    versions: BTreeMap<V, Version>,
    requests: BTreeMap<usize, Request>,
    replicas: Vec<Replica>,
    /// Held versions that may not be over.
    claims: Vec<V>,
    /// Replicas of which something runs.
    running: BTreeSet<usize>,
}

impl Law {
    /// There is no Lease, and nobody.
    pub fn new(first: V) -> Self {
        let (versions, requests) = (BTreeMap::from([(first, Version::of(Kind::Absent))]), BTreeMap::new());
        Self { now: 0, top: first, versions, requests, replicas: Vec::new(), claims: Vec::new(), running: BTreeSet::new() }
    }

    /// Adds a replica with this D; `is_polite`: a client-go that keeps client-go's rules.
    pub fn adds(&mut self, d: Ns, is_polite: bool) -> usize {
        let memory = Memory { longest: d, ..Memory::default() };
        self.replicas.push(Replica { d, is_polite, late: UNSEEN, seen: UNSEEN, memory, ..Replica::default() });
        self.replicas.len() - 1
    }

    /// The latest version, and who holds it.
    pub fn top(&self) -> (V, Kind) {
        (self.top, self.version(self.top).kind)
    }

    /// The kind of a version, and the replica that holds it.
    pub fn held(&self, k: V) -> (Kind, usize) {
        (self.version(k).kind, self.version(k).hold)
    }

    pub fn has(&self, k: V) -> bool {
        self.versions.contains_key(&k)
    }

    /// What a replica remembers.
    pub fn memory(&self, r: usize) -> &Memory {
        &self.replicas[r].memory
    }

    /// Replaces it, and returns it.
    pub fn recalls(&mut self, r: usize, memory: Memory) -> Memory {
        std::mem::replace(&mut self.replicas[r].memory, memory)
    }

    /// Returns whether a replica has a term, and whether its init has.
    pub fn leads(&self, r: usize) -> (bool, bool) {
        (self.replicas[r].has_term, self.replicas[r].init_leads)
    }

    pub fn is_releasing(&self, r: usize) -> bool {
        self.replicas[r].releases
    }

    pub fn runs(&self, r: usize) -> bool {
        self.running.contains(&r)
    }

    /// D of a replica, and the latest version that it has seen.
    pub fn duration(&self, r: usize) -> Ns {
        self.replicas[r].d
    }

    pub fn latest(&self, r: usize) -> V {
        self.replicas[r].latest
    }

    /// Returns whether version `k` is an own one that was proved late.
    pub fn is_late(&self, r: usize, k: V) -> bool {
        self.version(k).spec == self.replicas[r].late
    }

    /// Returns whether the Lease of version `seen` was there until it was deleted at `k`.
    pub fn is_next(&self, seen: V, k: V) -> bool {
        let before = self.versions.range(..k).next_back().map(|(_, version)| version.uid);
        self.versions.get(&seen).is_some_and(|version| version.uid != 0 && before == Some(version.uid))
    }

    pub fn is_named(&self, k: V) -> bool {
        self.version(k).is_named
    }

    pub fn is_dead(&self, r: usize) -> bool {
        self.replicas[r].is_dead
    }

    /// The token that init was told.
    pub fn token(&self, r: usize) -> V {
        self.replicas[r].itok
    }

    /// When the claim of a version ends.
    pub fn end(&self, k: V) -> Ns {
        let version = self.version(k);
        version.snd + self.replicas[version.hold].d
    }

    /// E of the elector of a replica, if it has a term.
    pub fn valid(&self, r: usize) -> Ns {
        let replica = &self.replicas[r];
        if replica.has_term { self.end(replica.val) } else { 0 }
    }

    fn version(&self, k: V) -> &Version {
        &self.versions[&k]
    }

    /// An unanswered write of `r` that says what version `k` says.
    pub fn own(&self, r: usize, q: Option<usize>, k: V) -> Option<usize> {
        let version = self.versions.get(&k).filter(|version| version.kind == Kind::Held && version.hold == r)?;
        let text = self.requests[&version.by].text;
        let says = |q: &usize| self.requests.get(q).is_some_and(|request| request.text == text);
        let remembered = &self.replicas[r].remembered;
        q.or_else(|| remembered.iter().copied().find(|q| says(q))).filter(|q| remembered.contains(q) && says(q))
    }

    /// The claim of version `k` has ended, or nothing that counts comes from it any more.
    fn is_over(&self, k: V) -> bool {
        let version = self.version(k);
        let h = &self.replicas[version.hold];
        let lives = h.lead || h.is_open;
        let extends = h.extensions.contains(&k) && version.tv == self.versions.get(&h.val).map_or(0, |val| val.tv);
        let counts = h.remembered.contains(&version.by)
            || h.is_open && h.ival == k
            || h.lead && h.tok == k
            || lives && (h.val == k || extends);
        self.end(k) <= self.now || !counts
    }

    fn are_all_over(&self) -> bool {
        self.claims.iter().all(|k| self.is_over(*k))
    }
}
