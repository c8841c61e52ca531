//! The names of the environment variables that a workload and its hooks are given (docs/configuration.md, "What the program is
//! told"). What tenure itself is told of its pod (POD_NAME, NODE_NAME) is listed in `inject`.

/// The address for notifications, where something asks for them.
pub const NOTIFY_SOCKET: &str = "NOTIFY_SOCKET";
/// The acquireTime of the term.
pub const ACQUIRED_AT: &str = "TENURE_ACQUIRED_AT";
/// The exit code of a workload that has ended, for the hook that runs after it.
pub const EXIT_CODE: &str = "TENURE_EXIT_CODE";
/// The signal that ended it, likewise.
pub const EXIT_SIGNAL: &str = "TENURE_EXIT_SIGNAL";
/// The resourceVersion of the acquiring write.
pub const FENCING_TOKEN: &str = "TENURE_FENCING_TOKEN";
/// The full identity of the replica.
pub const IDENTITY: &str = "TENURE_IDENTITY";
/// The name of the Lease.
pub const LEASE: &str = "TENURE_LEASE";
/// The uid of the Lease.
pub const LEASE_UID: &str = "TENURE_LEASE_UID";
/// The namespace of the Lease.
pub const NAMESPACE: &str = "TENURE_NAMESPACE";
/// Why the term ended.
pub const REASON: &str = "TENURE_REASON";
/// [`crate::role::Role`].
pub const ROLE: &str = "TENURE_ROLE";
/// Which of the slots is held.
pub const SLOT: &str = "TENURE_SLOT";
/// How many slots there are.
pub const SLOTS: &str = "TENURE_SLOTS";
/// The leaseTransitions of the term.
pub const TERM: &str = "TENURE_TERM";
/// The descriptor of [`crate::term_page`].
pub const TERM_FD: &str = "TENURE_TERM_FD";
/// The span of the transition, in W3C Trace Context format.
pub const TRACEPARENT: &str = "TRACEPARENT";
/// Belongs to the parent of another trace; never set by tenure.
pub const TRACESTATE: &str = "TRACESTATE";

/// For which process [`WATCHDOG_USEC`] is; never set by tenure.
pub const WATCHDOG_PID: &str = "WATCHDOG_PID";
/// How often the workload is to say that it is live, where `workload.liveness.notify` asks for that.
pub const WATCHDOG_USEC: &str = "WATCHDOG_USEC";

/// The variables about one term or its end: those of an outer tenure, or systemd, are not passed on.
pub const OF_A_TERM: [&str; 11] =
    [ACQUIRED_AT, EXIT_CODE, EXIT_SIGNAL, FENCING_TOKEN, LEASE_UID, REASON, SLOT, TERM, TERM_FD, WATCHDOG_PID, WATCHDOG_USEC];

/// True if only tenure sets this variable. Users may not.
pub fn is_own(name: &str) -> bool {
    OF_A_TERM.contains(&name) || [NOTIFY_SOCKET, IDENTITY, LEASE, NAMESPACE, ROLE, SLOTS, TRACEPARENT, TRACESTATE].contains(&name)
}
