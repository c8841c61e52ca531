//! The names under which collectors, Prometheus and people find what is measured; docs/reference.md is written from here.

use crate::election::Answer;

/// A metric.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// By OTLP. At `/metrics` dots are underscores, and the unit and `_total` are added.
    pub name: &'static str,
    /// What its values are.
    pub kind: Kind,
    /// `s`, or none.
    pub unit: &'static str,
    /// What its series are told apart by.
    pub labels: &'static [&'static str],
    /// What it says.
    pub says: &'static str,
}

/// What the values of a metric are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Numbers that only rise while a process lives.
    Counter,
    /// The value as it is now.
    Gauge,
    /// How many values were below each bound.
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

pub(super) const LEADS: Metric =
    Metric::gauge("leader_election_master_status", &["name"], "1 where this replica leads, else 0; client-go's name");
pub(super) const TERMS: Metric =
    Metric::counter("tenure.terms", &["to", "reason"], "Terms that began (to leader) and that ended (to standby), and why");
pub(super) const TRANSITION: Metric =
    Metric::seconds("tenure.transition", Kind::Histogram, &["to", "phase"], "Seconds that the parts of transitions took");
pub(super) const RENEWAL_MARGIN: Metric = Metric::seconds(
    "tenure.renewal.margin",
    Kind::Histogram,
    &[],
    "Seconds left before S, the soft deadline, when a renewal was confirmed",
);
pub(super) const MARGIN: Metric =
    Metric::seconds("tenure.margin", Kind::Gauge, &[], "Seconds left before S now; 0 while not leading");
pub(super) const REQUEST: Metric = Metric::seconds(
    "tenure.request",
    Kind::Histogram,
    &["operation", "outcome"],
    "Seconds that requests for the Lease took; a watch, until its answer began",
);
pub(super) const WATCH_RESTARTS: Metric =
    Metric::counter("tenure.watch.restarts", &[], "Watches that replaced one that had ended");
pub(super) const WORKLOAD_RESTARTS: Metric =
    Metric::counter("tenure.workload.restarts", &[], "Restarts of the workload within a term");
pub(super) const WORKLOAD_EXITS: Metric =
    Metric::counter("tenure.workload.exits", &["how"], "Ends of the leading main process, by exit code or signal");
pub(super) const KILLS: Metric =
    Metric::counter("tenure.kills", &["why"], "Ends of terms that took SIGKILL, by the reason of the end");
pub(super) const ELECTOR_RESTARTS: Metric =
    Metric::counter("tenure.elector.restarts", &[], "Electors that init has started after its first");
pub(super) const DROPPED: Metric =
    Metric::counter("tenure.dropped", &["what"], "What nobody took in time: log lines (log), spans (span)");
pub(super) const BUILD_INFO: Metric = Metric::gauge("tenure.build_info", &["version"], "1, for the version of this replica");

/// All of them.
pub const METRICS: [Metric; 13] = [
    LEADS,
    TERMS,
    TRANSITION,
    RENEWAL_MARGIN,
    MARGIN,
    REQUEST,
    WATCH_RESTARTS,
    WORKLOAD_RESTARTS,
    WORKLOAD_EXITS,
    KILLS,
    ELECTOR_RESTARTS,
    DROPPED,
    BUILD_INFO,
];

// Of spans.

/// `leader` or `standby`: what the replica is now, or was to be.
pub(super) const TO: &str = "tenure.to";
/// Why a term began or ended.
pub(super) const REASON: &str = "tenure.reason";
/// The name of the Lease, that of slot 0 with several.
pub(super) const LEASE: &str = "tenure.lease";
/// Its namespace.
pub(super) const LEASE_NAMESPACE: &str = "tenure.lease_namespace";
/// Of several Leases, which.
pub(super) const SLOT: &str = "tenure.slot";
/// The term: leaseTransitions.
pub(super) const TERM: &str = "tenure.term";
/// The fencing token of the term.
pub(super) const FENCING_TOKEN: &str = "tenure.fencing_token";
/// Seconds that were left of the Lease when the program led, was proved gone, or a renewal failed; negative if it was too late.
pub(super) const MARGIN_LEFT: &str = "tenure.margin_left";
/// With what the program ended, or the hook; of a start, the program before it.
pub(super) const EXIT_CODE: &str = "process.exit.code";
/// The same, if a signal ended it.
pub(super) const EXIT_SIGNAL: &str = "tenure.exit_signal";
/// What became of the Lease at the end of the term.
pub(super) const RELEASE: &str = "tenure.release";
/// `lost`: a campaign that another won, or a wait that was in vain.
pub(super) const OUTCOME: &str = "tenure.outcome";
/// For whom a wait was, last.
pub(super) const HOLDER: &str = "tenure.holder";
/// The process that was started.
pub(super) const PID: &str = "process.pid";
/// Which hook.
pub(super) const HOOK: &str = "tenure.hook";
/// Which request of a renewal failed.
pub(super) const OPERATION: &str = "tenure.operation";

/// What came of a request for the Lease: `outcome`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestOutcome {
    /// It was done.
    Ok,
    /// There is no such Lease.
    NotFound,
    /// Somebody else has written the Lease meanwhile.
    Conflict,
    /// The API server refused it, or nothing could be sent: it was not done.
    Refused,
    /// No answer, or an error of the server's: it may have been done.
    Unknown,
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

    /// Of a watch that began, or failed with this status.
    pub(super) const fn of_watch(answer: Result<(), Option<u16>>) -> Self {
        match answer {
            Ok(()) => Self::Ok,
            Err(Some(..500)) => Self::Refused,
            Err(Some(500..) | None) => Self::Unknown,
        }
    }

    /// The word in `outcome`.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::NotFound => "not-found",
            Self::Conflict => "conflict",
            Self::Refused => "refused",
            Self::Unknown => "unknown",
        }
    }
}
