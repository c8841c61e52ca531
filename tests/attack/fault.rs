//! The faults that the nemesis can inject.

use std::time::Duration;

use crate::{
    lease::Change,
    network::Fault as Packets,
    window::{Half, Moment},
};

/// One kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fault {
    Term,
    KillInit,
    KillElector,
    KillElectorAround(Moment, Half),
    KillElectorInWait,
    KillElectorAfterProof,
    KillWorkload,
    FreezeInit,
    FreezeElector,
    FreezeBoth,
    FreezeWorkload,
    Packets(Packets),
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
    ExpireToken,
    WallForward,
    WallBack,
    Starve,
    Crowd,
    Spinners,
}

/// What a fault affects; a round has at most one fault of each group.
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

impl Fault {
    pub(crate) const ALL: [Self; 46] = [
        Self::Term,
        Self::KillInit,
        Self::KillElector,
        Self::KillElectorAround(Moment::Acquire, Half::Request),
        Self::KillElectorAround(Moment::Acquire, Half::Reply),
        Self::KillElectorAround(Moment::Renew, Half::Request),
        Self::KillElectorAround(Moment::Renew, Half::Reply),
        Self::KillElectorAround(Moment::Release, Half::Request),
        Self::KillElectorAround(Moment::Release, Half::Reply),
        Self::KillElectorInWait,
        Self::KillElectorAfterProof,
        Self::KillWorkload,
        Self::FreezeInit,
        Self::FreezeElector,
        Self::FreezeBoth,
        Self::FreezeWorkload,
        Self::Packets(Packets::Out),
        Self::Packets(Packets::In),
        Self::Packets(Packets::Both),
        Self::Packets(Packets::Syns),
        Self::Packets(Packets::Down),
        Self::NoAnswers,
        Self::NoReplies,
        Self::Refused,
        Self::Reset,
        Self::FreezeEtcd,
        Self::RestartEtcd,
        Self::FreezeApiServer,
        Self::RestartApiServer,
        Self::Lease(Change::Delete),
        Self::Lease(Change::DeleteHeldBack),
        Self::Lease(Change::EditHolder),
        Self::Lease(Change::ClearHolder),
        Self::Lease(Change::NullHolder),
        Self::Lease(Change::EmptySpec),
        Self::Lease(Change::RaiseDuration),
        Self::Lease(Change::EditRenewTime),
        Self::Lease(Change::RestoreMetadata),
        Self::RevokeRights,
        Self::RevokeToken,
        Self::ExpireToken,
        Self::WallForward,
        Self::WallBack,
        Self::Starve,
        Self::Crowd,
        Self::Spinners,
    ];

    pub(crate) const fn describe(self) -> &'static str {
        match self {
            Self::Term => "SIGTERM to init",
            Self::KillInit => "init killed",
            Self::KillElector => "elector killed",
            Self::KillElectorAround(Moment::Acquire, Half::Request) => "elector killed, its taking on the way",
            Self::KillElectorAround(Moment::Acquire, Half::Reply) => "elector killed, its taking unanswered",
            Self::KillElectorAround(Moment::Renew, Half::Request) => "elector killed, its renewal on the way",
            Self::KillElectorAround(Moment::Renew, Half::Reply) => "elector killed, its renewal unanswered",
            Self::KillElectorAround(Moment::Release, Half::Request) => "elector killed, its release on the way",
            Self::KillElectorAround(Moment::Release, Half::Reply) => "elector killed, its release unanswered",
            Self::KillElectorInWait => "elector killed in the creation wait",
            Self::KillElectorAfterProof => "elector killed between proof and release",
            Self::KillWorkload => "workload killed",
            Self::FreezeInit => "init frozen",
            Self::FreezeElector => "elector frozen",
            Self::FreezeBoth => "init and elector frozen",
            Self::FreezeWorkload => "workload frozen",
            Self::Packets(Packets::Out) => "packets out lost",
            Self::Packets(Packets::In) => "packets in lost",
            Self::Packets(Packets::Both) => "packets both ways lost",
            Self::Packets(Packets::Syns) => "connections reset, SYNs lost",
            Self::Packets(Packets::Down) => "interface down",
            Self::NoAnswers => "accepted, never answered",
            Self::NoReplies => "replies swallowed",
            Self::Refused => "connections refused",
            Self::Reset => "connections reset",
            Self::FreezeEtcd => "etcd frozen",
            Self::RestartEtcd => "etcd killed and restarted",
            Self::FreezeApiServer => "API server frozen",
            Self::RestartApiServer => "API server killed and restarted",
            Self::Lease(Change::Delete) => "Lease deleted",
            Self::Lease(Change::DeleteHeldBack) => "Lease deleted, held by a finalizer",
            Self::Lease(Change::EditHolder) => "another holder written",
            Self::Lease(Change::ClearHolder) => "holder emptied",
            Self::Lease(Change::NullHolder) => "holder set to null",
            Self::Lease(Change::EmptySpec) => "spec emptied",
            Self::Lease(Change::RaiseDuration) => "duration raised",
            Self::Lease(Change::EditRenewTime) => "renewTime edited",
            Self::Lease(Change::RestoreMetadata) => "metadata restored",
            Self::RevokeRights => "RoleBinding deleted",
            Self::RevokeToken => "token revoked",
            Self::ExpireToken => "token expired",
            Self::WallForward => "wall clock forward",
            Self::WallBack => "wall clock back",
            Self::Starve => "a fifth of a processor",
            Self::Crowd => "50 spinners beside it",
            Self::Spinners => "200 spinners for the whole machine",
        }
    }

    pub(crate) const fn group(self) -> Group {
        match self {
            Self::Term
            | Self::KillInit
            | Self::KillElector
            | Self::KillElectorAround(..)
            | Self::KillElectorInWait
            | Self::KillElectorAfterProof
            | Self::KillWorkload
            | Self::FreezeInit
            | Self::FreezeElector
            | Self::FreezeBoth
            | Self::FreezeWorkload => Group::Processes,
            Self::Packets(_) | Self::NoAnswers | Self::NoReplies | Self::Refused | Self::Reset => Group::Network,
            Self::FreezeEtcd | Self::RestartEtcd | Self::FreezeApiServer | Self::RestartApiServer | Self::Spinners => {
                Group::Server
            }
            Self::Lease(_) => Group::Lease,
            Self::RevokeRights | Self::RevokeToken | Self::ExpireToken => Group::Rights,
            Self::WallForward | Self::WallBack => Group::Clock,
            Self::Starve | Self::Crowd => Group::Processor,
        }
    }

    /// Whether it affects one replica, rather than the Lease or the server.
    pub(crate) const fn strikes_a_replica(self) -> bool {
        match self.group() {
            Group::Processes | Group::Network | Group::Rights | Group::Clock | Group::Processor => true,
            Group::Server | Group::Lease => false,
        }
    }

    /// Whether it affects one replica, and nothing that the others use too.
    pub(crate) const fn strikes_one_replica_only(self) -> bool {
        match self {
            Self::Term
            | Self::KillInit
            | Self::KillElector
            | Self::KillElectorAfterProof
            | Self::KillWorkload
            | Self::FreezeInit
            | Self::FreezeElector
            | Self::FreezeBoth
            | Self::FreezeWorkload
            | Self::Packets(_)
            | Self::NoAnswers
            | Self::NoReplies
            | Self::Refused
            | Self::Reset
            | Self::RevokeRights
            | Self::RevokeToken
            | Self::ExpireToken
            | Self::WallForward
            | Self::WallBack
            | Self::Starve
            | Self::Crowd => true,
            // The first such write is delayed, whoever makes it, and the Lease is deleted.
            Self::KillElectorAround(..) | Self::KillElectorInWait => false,
            Self::FreezeEtcd
            | Self::RestartEtcd
            | Self::FreezeApiServer
            | Self::RestartApiServer
            | Self::Lease(_)
            | Self::Spinners => false,
        }
    }

    /// Minimum and maximum duration; zero where nothing has to be undone.
    pub(crate) const fn lasts(self) -> (Duration, Duration) {
        let (least, most) = match self {
            Self::Term
            | Self::KillInit
            | Self::KillElector
            | Self::KillElectorInWait
            | Self::KillWorkload
            | Self::Reset
            | Self::Lease(Change::Delete)
            | Self::Lease(Change::EditHolder)
            | Self::Lease(Change::ClearHolder)
            | Self::Lease(Change::NullHolder)
            | Self::Lease(Change::EmptySpec)
            | Self::Lease(Change::RaiseDuration)
            | Self::Lease(Change::EditRenewTime)
            | Self::Lease(Change::RestoreMetadata) => (0, 0),
            Self::FreezeInit | Self::FreezeElector => (500, 8_000),
            // Usually until after the next one may lead.
            Self::FreezeBoth => (2_000, 12_000),
            Self::KillElectorAround(..) | Self::KillElectorAfterProof => (100, 6_000),
            Self::FreezeWorkload => (500, 3_000),
            Self::Packets(_) | Self::NoAnswers | Self::NoReplies | Self::Refused => (500, 9_000),
            Self::FreezeEtcd | Self::FreezeApiServer => (500, 7_000),
            // Until it answers again.
            Self::RestartEtcd | Self::RestartApiServer => (5_000, 5_000),
            Self::Lease(Change::DeleteHeldBack) => (500, 4_000),
            Self::RevokeRights => (1_000, 9_000),
            // The API server caches its verdict on a token for 10 s.
            Self::RevokeToken | Self::ExpireToken => (11_000, 16_000),
            Self::Spinners => (2_000, 5_000),
            Self::WallForward | Self::WallBack => (2_000, 6_000),
            Self::Starve | Self::Crowd => (3_000, 8_000),
        };
        (Duration::from_millis(least), Duration::from_millis(most))
    }
}
