//! The commands for people, and their flags.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use clap::{Args, Subcommand, ValueEnum};
use clap_complete::Shell;

use super::{ConfigFlags, Run};
use crate::config::humane;

/// A command for people.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Check configuration, timing, permissions, the API server and this container's power to kill
    Check(Check),
    /// Say who holds a Lease, since when and how stale it is
    ///
    /// Exit codes: 0 held, 1 free, resting, expired or held by nobody (not given back, and waited for), 2 no such Lease. Whether a Lease
    /// is held or expired is judged by this machine's wall clock, because a command that looks once has no other. A replica never
    /// relies on it: it takes a Lease only after watching it unchanged for its whole duration. If this clock is wrong, so is the
    /// answer, by the same amount. --observe asks none, and takes as long.
    #[command(verbatim_doc_comment)]
    Status(Status),
    /// Delete the Leases of locks that nobody uses
    ///
    /// Of those that tenure made: what was given back, --older-than ago, and what looks expired and then stays as it is for its own
    /// duration, which is waited for. What was touched since it was listed is in use, and stays. So does what is paused, owned by
    /// another object, being deleted, or has a strategy.
    ///
    /// Exit codes: 0, 1 the server refused to delete some, 69 it does not answer, 77 it is not permitted.
    #[command(verbatim_doc_comment)]
    Prune(Prune),
    /// Ask the holder of a Lease to stop its workload and give the Lease back
    ///
    /// Needs the rights to get and update the Lease. Exit codes: 0, 1 nobody holds it, or --wait was over before a term had begun, 2 no
    /// such Lease.
    #[command(verbatim_doc_comment)]
    StepDown(StepDown),
    /// Keep everybody from taking a Lease: its holder keeps it, but a replica that restarts is another holder
    Pause(Steered),
    /// Let a Lease be taken again
    Resume(Steered),
    /// In a workload: whether it may do what must not happen twice; asks no network
    ///
    /// Exit codes: 0 the Lease is held, and for that long unless it is lost meanwhile; 1 it is not; 2 there is no page that says so.
    /// Says nothing but errors. Whoever is stopped between this answer and what it does needs the fencing token.
    #[command(verbatim_doc_comment)]
    Held(Held),
    /// Copy this program to a file: into a container whose image does not have it
    ///
    /// What was there is replaced as a whole.
    Install(Install),
    /// Print the JSON Schema, the defaults, or the configuration in effect
    Config {
        /// What.
        #[command(subcommand)]
        about: ConfigCommand,
    },
    /// Serve Leases from memory, for trials and tests
    DevServer(DevServer),
    /// Watch three replicas on this machine hand over and fail over, without a cluster
    Demo {
        /// Which part in it this process plays.
        #[command(subcommand)]
        part: Option<Demo>,
    },
    /// Print the script by which a shell completes tenure's commands and flags
    ///
    /// In bash: source <(tenure completions bash)
    Completions {
        /// Which shell
        #[arg(value_name = "SHELL")]
        shell: Shell,
    },
    /// Print the manual page of tenure or of one of its commands
    ///
    /// To read it: tenure man step-down | man -l -
    Man {
        /// Of which, such as status or config schema
        #[arg(value_name = "COMMAND")]
        command: Vec<String>,
    },
}

/// Says whether a replica could do its work here, and why not.
#[derive(Args, Clone, Debug, Default)]
pub struct Check {
    /// Configuration.
    #[command(flatten)]
    pub flags: ConfigFlags,
    /// Do not ask the API server
    #[arg(long)]
    pub offline: bool,
    /// The workload, as for `run`
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

/// Says who holds a Lease.
#[derive(Args, Clone, Debug, Default)]
pub struct Status {
    /// Name of the Lease, without lease.prefix; lock:NAME of a lock, task:NAME of a task [default: $TENURE_LEASE in a workload, else lease.name of the configuration]
    #[arg(value_name = "LEASE", conflicts_with_all = ["selector", "lease"])]
    pub name: Option<String>,
    /// Every Lease of the namespace with these labels, in place of one by its name
    #[arg(short = 'l', long, value_name = "SELECTOR", conflicts_with = "lease")]
    pub selector: Option<String>,
    /// 0 only if exactly this identity holds it, such as $TENURE_IDENTITY
    #[arg(long, value_name = "ID", conflicts_with = "selector")]
    pub holder: Option<String>,
    /// Ask no wall clock: 0 once a renewal is seen, 1 if there is none for the Lease's whole duration
    #[arg(long, conflicts_with = "selector")]
    pub observe: bool,
    /// A line for each Lease, or for the one named, and then for each event: acquired, expired, released or deleted; on a terminal a screen that is kept current. SIGINT ends it with 0
    #[arg(long, conflicts_with_all = ["holder", "observe"])]
    pub watch: bool,
    /// With --watch: renewed, too
    #[arg(short, long, requires = "watch")]
    pub verbose: bool,
    /// Form of the output
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    pub output: Output,
    /// Configuration.
    #[command(flatten)]
    pub flags: ConfigFlags,
}

/// Deletes Leases that nobody uses.
#[derive(Args, Clone, Debug)]
pub struct Prune {
    /// Only those with these labels; one that names tenure.dev/kind decides on the kind itself ('!tenure.dev/kind': those of `run`)
    #[arg(short = 'l', long, value_name = "SELECTOR")]
    pub selector: Option<String>,
    /// How long ago a Lease was given back, at least
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = humane::parse)]
    pub older_than: Duration,
    /// Only say which may be deleted
    #[arg(long)]
    pub dry_run: bool,
    /// Form of the output
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    pub output: Output,
    /// Configuration.
    #[command(flatten)]
    pub flags: ConfigFlags,
}

/// Names a Lease whose leadership is changed.
#[derive(Args, Clone, Debug, Default)]
pub struct Steered {
    /// Name of the Lease, without lease.prefix; lock:NAME of a lock, task:NAME of a task [default: $TENURE_LEASE in a workload, else lease.name of the configuration]
    #[arg(value_name = "LEASE", conflicts_with = "lease")]
    pub name: Option<String>,
    /// Configuration.
    #[command(flatten)]
    pub flags: ConfigFlags,
}

/// Asks a holder to step down.
#[derive(Args, Clone, Debug, Default)]
pub struct StepDown {
    /// Which Lease.
    #[command(flatten)]
    pub lease: Steered,
    /// Full identity of a replica to which the others leave the Lease for one lease.duration
    #[arg(long, value_name = "CANDIDATE", value_parser = full_identity)]
    pub to: Option<String>,
    /// Wait until a term has begun [default: 1m]
    #[arg(long, value_name = "DURATION", num_args = 0..=1, require_equals = true, default_missing_value = "1m", value_parser = humane::parse)]
    pub wait: Option<Duration>,
}

/// Says whether the workload that asks may do something.
#[derive(Args, Clone, Debug)]
pub struct Held {
    /// And for how long from now, such as 2s
    #[arg(long = "for", value_name = "DURATION", default_value = "0s", value_parser = humane::parse)]
    pub span: Duration,
}

/// Copies this program.
#[derive(Args, Clone, Debug)]
pub struct Install {
    /// Where to, such as /tenure/tenure on a volume that containers share
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
}

/// Form of the output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// Columns for people
    #[default]
    Table,
    /// One JSON document
    Json,
    /// One YAML document
    Yaml,
}

/// Says what can be configured, and what is.
#[derive(Clone, Debug, Subcommand)]
pub enum ConfigCommand {
    /// Print the JSON Schema of the configuration file
    Schema,
    /// Print every key with its default and what it means: a file to start from
    Default,
    /// Print the configuration that `run` would use here, with the source of each value
    Effective(Box<Run>),
}

/// The embedded Lease API server.
#[derive(Args, Clone, Debug, Default)]
pub struct DevServer {
    /// Where to listen, such as 127.0.0.1:6443 [default: 127.0.0.1, a free port]
    #[arg(long, value_name = "IP:PORT")]
    pub listen: Option<SocketAddr>,
    /// Write a kubeconfig for the server to this file, new or of an earlier server
    #[arg(long, value_name = "FILE")]
    pub kubeconfig_out: Option<PathBuf>,
}

/// The parts that the demo plays by this same binary.
#[derive(Clone, Debug, Subcommand)]
pub enum Demo {
    /// What the replicas run.
    #[command(hide = true)]
    Workload {
        /// Where it stamps.
        directory: PathBuf,
        /// Its replica.
        name: String,
    },
}

/// What init calls a replica: a base, `_` and 32 hexadecimal digits.
fn full_identity(written: &str) -> Result<String, String> {
    let is_random = |random: &str| random.len() == 32 && random.bytes().all(|digit| digit.is_ascii_hexdigit());
    match written.rsplit_once('_') {
        Some((base, random)) if !base.is_empty() && is_random(random) => Ok(written.into()),
        Some(_) | None => {
            Err("is not the full identity of a replica, as its log and the Lease name it: NAME_ and 32 digits".into())
        }
    }
}
