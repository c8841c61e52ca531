//! Flags of the commands that change several objects: `apply`, `recover`, `promote` and `demote`.

use std::{path::PathBuf, time::Duration};

use clap::{Arg, Args, ValueEnum};

use super::{
    ConfigFlags, Lock, Output,
    workload::{OF_A_LOOK, OF_A_REPLICA, without},
};
use crate::config::duration;

/// Changes several objects.
#[derive(Args, Clone, Debug)]
#[command(mut_args(without(&["leader_election", "slots", "groups", "request_timeout"])), mut_arg("user", changes_objects))]
pub struct Apply {
    /// Name of the transaction; its Lease is txn-NAME, after lease.prefix [default: metadata.name of the Transaction]
    #[arg(value_name = "NAME", conflicts_with = "lease")]
    pub name: Option<String>,
    /// A Transaction; - for standard input
    #[arg(short = 'f', long = "filename", value_name = "FILE")]
    pub file: PathBuf,
    /// Undo what takes longer than this once the lock is taken, such as 90s; --timeout bounds the wait for the lock [default:
    /// spec.timeout, else 5m]
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    pub limit: Option<Duration>,
    /// Only show what would be changed; takes no Lease, and changes nothing
    #[arg(long)]
    pub dry_run: bool,
    /// The flags that `apply` and `recover` share.
    #[command(flatten)]
    pub common: TransactionFlags,
}

/// Undoes a transaction.
#[derive(Args, Clone, Debug)]
#[command(mut_args(without(&["leader_election", "slots", "groups", "request_timeout"])), mut_arg("user", changes_objects))]
pub struct Recover {
    /// Action
    #[arg(value_enum, value_name = "ACTION")]
    pub action: Recovery,
    /// Name of the transaction; --lease NAME in its place names its Lease
    #[arg(value_name = "NAME", conflicts_with = "lease", required_unless_present = "lease")]
    pub name: Option<String>,
    /// Undo also what somebody else has changed since
    #[arg(long)]
    pub force: bool,
    /// Stop this long after the lock was taken; --timeout bounds the wait for the lock
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = duration::parse)]
    pub limit: Duration,
    /// The flags that `apply` and `recover` share.
    #[command(flatten)]
    pub common: TransactionFlags,
}

/// The flags of `apply` and of `recover`.
#[derive(Args, Clone, Debug)]
pub struct TransactionFlags {
    /// Form of the output
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    pub output: Output,
    /// The wait for the lock.
    #[command(flatten)]
    pub how: Lock,
    /// Configuration.
    #[command(flatten)]
    pub flags: ConfigFlags,
}

/// Changes several objects for as long as this replica leads.
#[derive(Args, Clone, Debug)]
#[command(mut_args(without(OF_A_REPLICA)), mut_args(without(OF_A_LOOK)))]
pub struct Promote {
    /// A Transaction with changes of type Patch
    #[arg(short = 'f', long = "filename", value_name = "FILE")]
    pub file: PathBuf,
    /// Undo what takes longer than this [default: spec.timeout, else 5s]
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    pub limit: Option<Duration>,
    /// Only show what would be changed
    #[arg(long)]
    pub dry_run: bool,
    /// Configuration.
    #[command(flatten)]
    pub flags: ConfigFlags,
}

/// Undoes a promotion.
#[derive(Args, Clone, Debug)]
#[command(mut_args(without(OF_A_REPLICA)), mut_args(without(OF_A_LOOK)))]
pub struct Demote {
    /// Stop after this long
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = duration::parse)]
    pub limit: Duration,
    /// Configuration.
    #[command(flatten)]
    pub flags: ConfigFlags,
}

/// Says what `--as` means where only the objects are changed by that user: the Lease and the journal are tenure's own.
fn changes_objects(user: Arg) -> Arg {
    user.help(
        "The account that changes the objects, such as system:serviceaccount:shop:deploy [default: that of the transaction]",
    )
}

/// The actions of `recover`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Recovery {
    /// Show what would be undone; takes no Lease, and changes nothing
    Plan,
    /// Undo the last transaction of this name
    Apply,
    /// Drop its journal and its marks; restores nothing
    Forget,
}
