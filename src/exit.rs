//! The exit codes that are tenure's own; all others are the workload's.
//!
//! Those from 64 to 78 are sysexits.h's numbers, the two above them the shell's.

/// A command line that cannot be parsed.
pub const USAGE: u8 = 64;
/// The API server is unavailable to a command that needs it.
pub const UNAVAILABLE: u8 = 69;
/// Something on this machine failed that tenure cannot do without.
pub const INTERNAL: u8 = 70;
/// The lock is held by another, and not waited for any longer.
pub const HELD: u8 = 75;
/// The Lease was lost, and `workload.onLoss` says `exit`.
pub const LEADERSHIP_LOST: u8 = 76;
/// The API server does not permit what a command needs.
pub const NOT_PERMITTED: u8 = 77;
/// What was configured cannot work.
pub const INVALID: u8 = 78;
/// A program was found but cannot be executed.
pub const CANNOT_EXECUTE: u8 = 126;
/// There is no such program.
pub const NOT_FOUND: u8 = 127;
