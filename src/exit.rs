//! The exit codes that are tenure's own; all others are the workload's.
//!
//! Those from 64 to 78 are sysexits.h's numbers, the two above them the shell's.
//!
//! An elector ends init with a code and a reason: [`GaveUp`](crate::link::ToInit::GaveUp) while there is no term, which
//! `election::following` sends, or [`Failed`](crate::link::ToInit::Failed) where no elector can work.

/// A command line that cannot be parsed.
pub const USAGE: u8 = 64;
/// The API server is unavailable, and a command needs it.
pub const UNAVAILABLE: u8 = 69;
/// Something on this machine failed, and tenure cannot work without it.
pub const INTERNAL: u8 = 70;
/// Another holds the lock, and the limit of the wait is over; or a task with `--once` is not due.
pub const HELD: u8 = 75;
/// The Lease was lost: with `workload.onLoss: exit`, in a lock, or in a task with `--once`.
pub const LEADERSHIP_LOST: u8 = 76;
/// The API server does not permit what a command needs.
pub const NOT_PERMITTED: u8 = 77;
/// The configuration cannot work, or there is no cluster.
pub const INVALID: u8 = 78;
/// The program was found, but cannot be executed.
pub const CANNOT_EXECUTE: u8 = 126;
/// The program, or its interpreter, was not found.
pub const NOT_FOUND: u8 = 127;
