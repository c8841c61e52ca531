//! The faults that the nemesis can inject.

use std::time::Duration;

use crate::{
    lease::Change,
    network::Fault as Lost,
    window::{
        Half::{self, Reply, Request},
        Moment::{self, Acquire, Release, Renew},
    },
};

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fault {
    Term,
    KillInit,
    KillElector,
    KillElectorAround(Moment, Half),
    KillElectorInWait,
    KillElectorAfterProof,
    KillWitness,
    KillBoth,
    FreezeWitness,
    KillWorkload,
    FreezeInit,
    FreezeElector,
    FreezeBoth,
    FreezeWorkload,
    ContinueStandby,
    Packets(Lost),
    NoAnswers,
    NoReplies,
    Refused,
    Reset,
    FreezeEtcd,
    RestartEtcd,
    FreezeApiServer,
    RestartApiServer,
    Lease(Change),
    RevokeRights,
    RevokeToken,
    WallForward,
    WallBack,
    Starve,
    Crowd,
    Spinners,
}

/// The target of a fault; a round has at most one fault of each group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Group {
    Processes,
    Network,
    /// Or everything that shares its machine.
    Server,
    Lease,
    Rights,
    Clock,
    Processor,
}

/// A row of the table of faults.
struct Kind {
    fault: Fault,
    words: &'static str,
    group: Group,
    /// Minimum and maximum duration in milliseconds; zero where nothing has to be undone.
    lasts: (u64, u64),
}

const fn kind(fault: Fault, words: &'static str, group: Group, lasts: (u64, u64)) -> Kind {
    Kind { fault, words, group, lasts }
}

const AT_ONCE: (u64, u64) = (0, 0);
const NETWORK: (u64, u64) = (500, 9_000);
const DELAYED: (u64, u64) = (100, 6_000);

/// All kinds. Killing an elector around a write delays the first such write, whoever makes it. A freeze of both usually lasts until
/// after the next one may lead, a restart until it answers again, a revoked token longer than the 10 s for which the API server caches
/// its verdict on it.
const KINDS: &[Kind] = {
    use Fault::*;
    &[
        kind(Term, "SIGTERM to init", Group::Processes, AT_ONCE),
        kind(KillInit, "init killed", Group::Processes, AT_ONCE),
        kind(KillElector, "elector killed", Group::Processes, AT_ONCE),
        kind(KillElectorAround(Acquire, Request), "elector killed, its taking on the way", Group::Processes, DELAYED),
        kind(KillElectorAround(Acquire, Reply), "elector killed, its taking unanswered", Group::Processes, DELAYED),
        kind(KillElectorAround(Renew, Request), "elector killed, its renewal on the way", Group::Processes, DELAYED),
        kind(KillElectorAround(Renew, Reply), "elector killed, its renewal unanswered", Group::Processes, DELAYED),
        kind(KillElectorAround(Release, Request), "elector killed, its release on the way", Group::Processes, DELAYED),
        kind(KillElectorAround(Release, Reply), "elector killed, its release unanswered", Group::Processes, DELAYED),
        kind(KillElectorInWait, "elector killed while nobody holds", Group::Processes, AT_ONCE),
        kind(KillElectorAfterProof, "elector killed between proof and release", Group::Processes, DELAYED),
        kind(KillWitness, "witness killed", Group::Processes, AT_ONCE),
        kind(KillBoth, "init and witness killed", Group::Processes, AT_ONCE),
        kind(FreezeWitness, "witness frozen", Group::Processes, (500, 8_000)),
        kind(KillWorkload, "workload killed", Group::Processes, AT_ONCE),
        kind(FreezeInit, "init frozen", Group::Processes, (500, 8_000)),
        kind(FreezeElector, "elector frozen", Group::Processes, (500, 8_000)),
        kind(FreezeBoth, "init and elector frozen", Group::Processes, (2_000, 12_000)),
        kind(FreezeWorkload, "workload frozen", Group::Processes, (500, 3_000)),
        kind(ContinueStandby, "a stranger continues a frozen standby", Group::Processes, AT_ONCE),
        kind(Packets(Lost::Out), "packets out lost", Group::Network, NETWORK),
        kind(Packets(Lost::In), "packets in lost", Group::Network, NETWORK),
        kind(Packets(Lost::Both), "packets both ways lost", Group::Network, NETWORK),
        kind(Packets(Lost::Syns), "connections reset, SYNs lost", Group::Network, NETWORK),
        kind(Packets(Lost::Down), "interface down", Group::Network, NETWORK),
        kind(NoAnswers, "accepted, never answered", Group::Network, NETWORK),
        kind(NoReplies, "replies swallowed", Group::Network, NETWORK),
        kind(Refused, "connections refused", Group::Network, NETWORK),
        kind(Reset, "connections reset", Group::Network, AT_ONCE),
        kind(FreezeEtcd, "etcd frozen", Group::Server, (500, 7_000)),
        kind(RestartEtcd, "etcd killed and restarted", Group::Server, (5_000, 5_000)),
        kind(FreezeApiServer, "API server frozen", Group::Server, (500, 7_000)),
        kind(RestartApiServer, "API server killed and restarted", Group::Server, (5_000, 5_000)),
        kind(Lease(Change::Delete), "Lease deleted", Group::Lease, AT_ONCE),
        kind(Lease(Change::DeleteHeldBack), "Lease deleted, held by a finalizer", Group::Lease, (500, 4_000)),
        kind(Lease(Change::EditHolder), "another holder written", Group::Lease, AT_ONCE),
        kind(Lease(Change::ClearHolder), "holder emptied", Group::Lease, AT_ONCE),
        kind(Lease(Change::NullHolder), "holder set to null", Group::Lease, AT_ONCE),
        kind(Lease(Change::EmptySpec), "spec emptied", Group::Lease, AT_ONCE),
        kind(Lease(Change::RaiseDuration), "duration raised", Group::Lease, AT_ONCE),
        kind(Lease(Change::EditRenewTime), "renewTime edited", Group::Lease, AT_ONCE),
        kind(Lease(Change::RestoreMetadata), "metadata restored", Group::Lease, AT_ONCE),
        kind(RevokeRights, "RoleBinding deleted", Group::Rights, (1_000, 9_000)),
        kind(RevokeToken, "token revoked", Group::Rights, (11_000, 16_000)),
        kind(WallForward, "wall clock forward", Group::Clock, (2_000, 6_000)),
        kind(WallBack, "wall clock back", Group::Clock, (2_000, 6_000)),
        kind(Starve, "a fifth of a processor", Group::Processor, (3_000, 8_000)),
        kind(Crowd, "50 spinners beside it", Group::Processor, (3_000, 8_000)),
        kind(Spinners, "200 spinners for the whole machine", Group::Server, (2_000, 5_000)),
    ]
};

impl Fault {
    /// All, in the order of the report.
    pub(crate) fn all() -> Vec<Self> {
        KINDS.iter().map(|kind| kind.fault).collect()
    }

    fn kind(self) -> &'static Kind {
        KINDS.iter().find(|kind| kind.fault == self).expect("the table has all kinds")
    }

    pub(crate) fn describe(self) -> &'static str {
        self.kind().words
    }

    pub(crate) fn group(self) -> Group {
        self.kind().group
    }

    /// Minimum and maximum duration; zero where nothing has to be undone.
    pub(crate) fn lasts(self) -> (Duration, Duration) {
        let (least, most) = self.kind().lasts;
        (Duration::from_millis(least), Duration::from_millis(most))
    }
}
