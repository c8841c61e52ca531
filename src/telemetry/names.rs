//! The names under which collectors, Prometheus and people find what is measured; docs/reference.md is written from here.

use crate::{request::Answer, words::worded};

/// A metric, as the reference lists it.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// By OTLP. At `/metrics` dots are underscores, and the unit and `_total` are added.
    pub name: &'static str,
    /// The kind of its values.
    pub kind: Kind,
    /// `s`, or none.
    pub unit: &'static str,
    /// The labels of its series.
    pub labels: &'static [&'static str],
    /// The description, as `/metrics` and the reference have it.
    pub says: &'static str,
}

/// The kind of a metric's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Numbers that only rise while a process lives.
    Counter,
    /// The value as it is now.
    Gauge,
    /// Counts of the values below each bound.
    Histogram,
}

impl Metric {
    const fn counter(name: &'static str, labels: &'static [&'static str], says: &'static str) -> Self {
        Self { name, kind: Kind::Counter, unit: "", labels, says }
    }

    const fn gauge(name: &'static str, labels: &'static [&'static str], says: &'static str) -> Self {
        Self { kind: Kind::Gauge, ..Self::counter(name, labels, says) }
    }

    const fn seconds(name: &'static str, kind: Kind, labels: &'static [&'static str], says: &'static str) -> Self {
        Self { kind, unit: "s", ..Self::counter(name, labels, says) }
    }
}

/// Defines metrics and a list of them.
macro_rules! metrics {
    ($(#[$of:meta])* $all:ident: $($name:ident = $make:ident($($part:expr),+);)+) => {
        $(pub(super) const $name: Metric = Metric::$make($($part),+);)+
        $(#[$of])*
        pub const $all: &[Metric] = &[$($name),+];
    };
}

metrics! {
    /// Those of the elector.
    METRICS:
        LEADS = gauge("leader_election_master_status", &["name"], "1 if this replica leads, else 0; client-go has the same name");
        TERMS = counter("tenure.terms", &["to", "reason"], "Terms that began (to leader) and that ended (to standby), by reason");
        TRANSITION = seconds("tenure.transition", Kind::Histogram, &["to", "phase"],
            "Seconds that each part of a transition took");
        RENEWAL_MARGIN = seconds("tenure.renewal.margin", Kind::Histogram, &[],
            "Seconds left before the stop deadline (S) when a renewal was confirmed");
        MARGIN = seconds("tenure.margin", Kind::Gauge, &[], "Seconds left before the stop deadline (S) now; 0 on a standby");
        BACKOFF = seconds("tenure.backoff", Kind::Gauge, &[],
            "Seconds for which this replica still leaves the Lease to the others, because its terms failed; else 0");
        REQUEST = seconds("tenure.request", Kind::Histogram, &["operation", "outcome"],
            "Seconds that each request for the Lease took; of a watch, until its answer began");
        WATCH_RESTARTS = counter("tenure.watch.restarts", &[], "Watches that replaced an ended watch");
        WORKLOAD_RESTARTS = counter("tenure.workload.restarts", &[], "Restarts of the workload within a term");
        WORKLOAD_EXITS = counter("tenure.workload.exits", &["how"], "Ends of the leader's main process, by exit code or signal");
        KILLS = counter("tenure.kills", &["why"],
            "Terms that SIGKILL ended, by the reason of the end; fuse: the kernel's fuse did, also where nobody ran to notice");
        ELECTOR_RESTARTS = counter("tenure.elector.restarts", &[], "Electors that init started after the first");
        DROPPED = counter("tenure.dropped", &["what"],
            "Log lines of the elector (log) and spans (span) that were dropped because nobody took them in time");
        WITNESSED = gauge("tenure.witnessed", &[],
            "1 while a witness would give back the Lease of this replica; only with lease.witness");
        BUILD_INFO = gauge("tenure.build_info", &["version"], "1, with the version of this replica");
}

metrics! {
    /// Those of transactions.
    OF_TRANSACTIONS:
        TRANSACTIONS = counter("tenure.transactions", &["outcome"], "Commands of transactions that ended, by outcome");
        TRANSACTION = seconds("tenure.transaction", Kind::Histogram, &["outcome"],
            "Seconds that each of these commands took, without the wait for its Lease");
        TRANSACTIONS_ACTIVE = gauge("tenure.transactions.active", &[], "1 while such a command runs, else 0");
        CHANGES = counter("tenure.changes", &["type", "outcome"],
            "Changes of objects, by patch, create or delete, and by outcome");
}

// Of spans.

/// `leader` or `standby`: what the replica is now, or was to be.
pub(super) const TO: &str = "tenure.to";
/// Why a term began or ended.
pub(super) const REASON: &str = "tenure.reason";
/// The name of the Lease; with several slots that of the first.
pub(super) const LEASE: &str = "tenure.lease";
/// The namespace of the Lease.
pub(super) const LEASE_NAMESPACE: &str = "tenure.lease_namespace";
/// The slot: 0 if there are no others.
pub(super) const SLOT: &str = "tenure.slot";
/// The term: `leaseTransitions`.
pub(super) const TERM: &str = "tenure.term";
/// The fencing token of the term.
pub(super) const FENCING_TOKEN: &str = "tenure.fencing_token";
/// Seconds for which the Lease was still valid when the workload led, was proved gone, or a renewal failed. Negative if it was too late.
pub(super) const LEASE_LEFT: &str = "tenure.lease_left";
/// The exit code of the workload or of the hook; on a start, that of the workload before it.
pub(super) const EXIT_CODE: &str = "process.exit.code";
/// The signal, if a signal ended it.
pub(super) const EXIT_SIGNAL: &str = "tenure.exit_signal";
/// The result of the release.
pub(super) const RELEASE: &str = "tenure.release";
/// `lost`: another replica won the campaign, or the wait ended without the Lease. Of a transaction, as in its metrics.
pub(super) const OUTCOME: &str = "tenure.outcome";
/// The last holder that a wait was for.
pub(super) const HOLDER: &str = "tenure.holder";
/// The process that was started.
pub(super) const PID: &str = "process.pid";
/// The name of the hook.
pub(super) const HOOK: &str = "tenure.hook";
/// The object of a part of a transaction.
pub(super) const OBJECT: &str = "tenure.object";
/// The change of that object: `patch`, `create` or `delete`.
pub(super) const CHANGE: &str = "tenure.change";
/// The request of a renewal that failed.
pub(super) const OPERATION: &str = "tenure.operation";

worded! {
    /// The outcome of a request for the Lease: the label `outcome`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) enum RequestOutcome {
        /// The server did it.
        Ok = "ok",
        /// There is no such Lease.
        NotFound = "not-found",
        /// Another client wrote the Lease meanwhile.
        Conflict = "conflict",
        /// The server refused it, or nothing could be sent: it was not done.
        Refused = "refused",
        /// No answer came, or an error of the server: it may have been done.
        Unknown = "unknown",
    }
}

impl RequestOutcome {
    pub(super) const fn of(answer: &Answer) -> Self {
        match answer {
            Answer::Object(_) | Answer::Listed { .. } | Answer::Deleted => Self::Ok,
            Answer::NotFound => Self::NotFound,
            Answer::Conflict => Self::Conflict,
            Answer::Refused { .. } => Self::Refused,
            Answer::Unknown { .. } => Self::Unknown,
        }
    }

    /// The outcome of a watch that began, or failed with this status.
    pub(super) const fn of_watch(answer: Result<(), Option<u16>>) -> Self {
        match answer {
            Ok(()) => Self::Ok,
            Err(Some(..500)) => Self::Refused,
            Err(Some(500..) | None) => Self::Unknown,
        }
    }
}
