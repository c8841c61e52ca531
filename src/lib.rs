//! tenure runs a process for exactly as long as its replica holds a Kubernetes Lease.

pub mod api;
pub mod apiserver;
pub mod cli;
pub mod clock;
pub mod commands;
pub mod config;
pub mod election;
pub mod elector;
pub mod http;
pub mod init;
pub mod link;
pub mod process;
pub mod stderr;
pub mod supervision;
pub mod telemetry;
pub mod time;
