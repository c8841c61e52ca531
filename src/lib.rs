//! tenure runs a process for exactly as long as its replica holds a Kubernetes Lease.

pub mod clock;
pub mod config;
pub mod election;
pub mod link;
pub mod time;
