//! The commands for people, and their flags.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use clap::{Args, Subcommand, ValueEnum, builder::NonEmptyStringValueParser};
use clap_complete::Shell;

use super::{
    Apply, ConfigFlags, Demote, Inject, Promote, Recover, Run,
    workload::{OF_A_REPLICA, without},
};
use crate::config::{duration, is_socket};

/// A command for people.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Check configuration, timing, rights, the API server, and whether tenure can kill every process here
    ///
    /// Exit codes: 0 a replica can run here; 69 the API server is unavailable; 70 no end of a workload could be proved; 77 a
    /// right is missing; 78 the configuration is refused. If several are the case: 78, else 69.
    Check(Check),
    /// Say who holds a Lease, since when, and how old the last renewal is
    ///
    /// Exit codes: 0 held; 1 free, resting, expired, or held by nobody (not released, and waited for); 2 no such Lease. With several
    /// Leases: 0 only if all are held, 2 if there is none.
    ///
    /// This machine's wall clock decides between held and expired, because a command that looks once has no other clock. If this
    /// clock is wrong, so is the answer, by the same amount. A replica never relies on it: a replica acquires a Lease only after it
    /// has seen the Lease unchanged for its whole duration. --observe uses no wall clock, and takes as long.
    #[command(verbatim_doc_comment)]
    Status(Status),
    /// Delete the Leases of locks that nobody uses
    ///
    /// Deletes Leases of locks that tenure made: one that was released --older-than ago, and one that looks expired. The latter is
    /// first watched for its own duration, and must not change. A Lease that changed since it was listed is in use, and stays. So does
    /// one that is paused, owned by another object, being deleted, or has a strategy.
    ///
    /// Exit codes: 0 done; 1 interrupted, or the server refused to delete some; 2 no such namespace; 69 the server does not answer; 77 not
    /// permitted.
    #[command(verbatim_doc_comment)]
    Prune(Prune),
    /// Change several objects: all of them, or none
    ///
    /// Takes a lock, plans every change by a dry run, records in a Secret how each is undone, and then makes the changes in their order.
    /// If one fails, or somebody else changes the same fields meanwhile, those already made are undone. A transaction whose process
    /// died is undone by the next `apply` or `recover apply` of the same name.
    ///
    /// Exit codes: 0 all changes are made; 1 none is left: refused, or undone; 2 not undone in full, the objects are named; 75 the lock, or
    /// an object, belongs to another transaction; 76 the term ended; 69 the API server is unavailable; 77 not permitted; 78 a file
    /// is refused.
    #[command(verbatim_doc_comment)]
    Apply(Apply),
    /// Undo what a transaction changed: one whose process died, or the last one that ended
    ///
    /// Exit codes: 0 done, or nothing was left to do; 1 with `plan`: there is something to undo; 2 not undone in full, the objects are
    /// named; 75 another holds the lock; 76 the term ended; 69 the API server is unavailable; 77 not permitted; 78 the journal is
    /// of another kind, or cannot be read.
    #[command(verbatim_doc_comment)]
    Recover(Recover),
    /// In a hook: change objects for as long as this replica leads, such as a label on its own pod
    ///
    /// Runs as the hook beforeLead or afterLead. $(VAR) in targets and contents is one of POD_NAME, POD_NAMESPACE, POD_IP, POD_UID,
    /// NODE_NAME, TENURE_IDENTITY, TENURE_TERM, TENURE_FENCING_TOKEN and TENURE_SLOT; $$( stands for $(. The next leader puts back what
    /// its predecessor has changed, and then sets its own values.
    ///
    /// Exit codes: as those of `apply`; 78 outside of a term.
    #[command(verbatim_doc_comment)]
    Promote(Promote),
    /// In the hook beforeFollow: undo what `promote` changed
    ///
    /// Exit codes: as those of `recover apply`; 78 outside of a term.
    #[command(verbatim_doc_comment)]
    Demote(Demote),
    /// Ask the holder of a Lease to stop its workload and release the Lease
    ///
    /// Needs the rights to get and update the Lease. Exit codes: 0 asked, or handed over with --wait; 1 nobody holds it, or --wait was
    /// over before the next term began; 2 no such Lease; 78 it is paused, --to names nobody, or no slot of a pool is named.
    #[command(verbatim_doc_comment)]
    StepDown(StepDown),
    /// Release the Lease of a replica whose node is lost, on your word that it is dead
    ///
    /// Believes you that no process of that replica runs any more: its node is off, or fenced. Where that is wrong, two workloads run.
    /// It first watches the Lease for a third of its duration and lease.attemptTimeout, and refuses a holder that renews. It refuses a
    /// Lease whose annotation tenure.dev/holder names another, which may still run, and the Lease of a task, whose next run comes
    /// without it. Needs the rights to get and update the Lease.
    ///
    /// Exit codes: 0 released; 1 this replica does not hold it, or tenure.dev/holder names another; 2 no such Lease; 75 its holder renews
    /// it; 78 it is the Lease of a task, or no slot of a pool is named.
    #[command(verbatim_doc_comment)]
    ConfirmDead(ConfirmDead),
    /// In a second container of the pod: give back at once what a killed replica held
    ///
    /// Waits at a socket for the electors of the pod (lease.witness). Each hands over a pidfd of its PID 1, which the kernel makes
    /// readable once no process of that container is left. The witness then releases the Leases that still name this replica. It needs
    /// the service account of the replicas, and POD_NAME where they have it. It takes lease.witness from the file and the variable that
    /// they have. SIGTERM ends it once it waits for no replica.
    ///
    /// Exit codes: 0 told to end, and nothing is left to do; 78 the configuration is refused, or the socket is taken or cannot be made.
    #[command(verbatim_doc_comment)]
    Witness(Witness),
    /// Let no replica acquire a Lease: its holder keeps it, but a replica that restarts is another holder
    ///
    /// Needs the rights to get and update the Lease. Exit codes: 0 done; 2 no such Lease; 78 no slot of a pool is named.
    Pause(Steered),
    /// Let replicas acquire a paused Lease again
    ///
    /// Needs the rights to get and update the Lease. Exit codes: as those of `pause`.
    Resume(Steered),
    /// In a workload: say whether it may act; reads memory, and asks no network
    ///
    /// Exit codes: 0 the Lease is held, and for that long unless it is lost meanwhile; 1 it is not held; 2 there is no page of the term.
    /// Prints nothing but errors, unless --token is given. A workload that may be stopped between this answer and its act needs the fencing token.
    #[command(verbatim_doc_comment)]
    Held(Held),
    /// Put tenure into manifests that know nothing of it: a filter for kubectl, Helm, kustomize and GitOps
    ///
    /// Wraps the pods of each Deployment, StatefulSet, ReplicaSet, ReplicationController, DaemonSet, Pod, Job and CronJob that has the label
    /// tenure.dev/lease, or is named by --of. A Job runs under a lock. All else is passed on in its order; comments are lost. Adds the Lease
    /// and the rights. Asks no API server. A ResourceList on standard input is answered with a ResourceList, as kustomize wants it.
    ///
    /// Exit codes: 0 done; 78 a workload cannot be wrapped: the field and the remedy are said, and nothing is printed.
    #[command(verbatim_doc_comment)]
    Inject(Inject),
    /// Copy this program to a file, for a container whose image does not have it
    ///
    /// Replaces the file as a whole. Exit codes: 0 done; 70 it cannot be written; 78 it is a device, a FIFO or a socket.
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
        /// Draw the timeline into this file too, as SVG
        #[arg(long, value_name = "FILE")]
        picture: Option<PathBuf>,
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
        /// The command, such as status or config schema
        #[arg(value_name = "COMMAND")]
        command: Vec<String>,
    },
}

/// Says whether a replica could do its work here, and why not.
#[derive(Args, Clone, Debug, Default)]
#[command(mut_arg("request_timeout", |limit| limit.help("Give a request up after this long [default: lease.attemptTimeout]")))]
pub struct Check {
    /// Configuration.
    #[command(flatten)]
    pub flags: ConfigFlags,
    /// Do not ask the API server
    #[arg(long)]
    pub offline: bool,
    /// Show every key of the configuration, not only those that are set
    #[arg(short, long)]
    pub verbose: bool,
    /// The workload, as for `run`
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

/// Says who holds a Lease.
#[derive(Args, Clone, Debug, Default)]
#[command(mut_args(without(&["identity", "lease_duration", "log_level", "log_format", "leader_election"])))]
#[command(mut_arg("slots", |slots| slots.help("Show the Lease of each of N slots (lease.slots)")))]
pub struct Status {
    /// Name of the Lease, without lease.prefix; lock:NAME of a lock, task:NAME of a task [default: $TENURE_LEASE in a workload, else lease.name of the configuration]
    #[arg(value_name = "LEASE", conflicts_with_all = ["selector", "lease"])]
    pub name: Option<String>,
    /// Each Lease of the namespace with these labels, in place of one by its name
    #[arg(short = 'l', long, value_name = "SELECTOR", conflicts_with_all = ["lease", "slots"])]
    pub selector: Option<String>,
    /// Each Lease of tenure's in the cluster, whatever -n says, those first that need a look; with -l each with these labels
    #[arg(short = 'A', long, conflicts_with_all = ["name", "lease", "slots", "holder", "observe"])]
    pub all_namespaces: bool,
    /// Exit with 0 only if exactly this identity holds it, such as $TENURE_IDENTITY
    #[arg(long, value_name = "ID", conflicts_with_all = ["selector", "slots"])]
    pub holder: Option<String>,
    /// Use no wall clock: exit with 0 once a renewal is seen, with 1 after the Lease's whole duration without one
    #[arg(long, conflicts_with_all = ["selector", "slots"])]
    pub observe: bool,
    /// Print a line for each Lease (now), and then for each event: acquired, expired, released or deleted. On a terminal, keep one screen current. SIGINT ends it with 0
    #[arg(long, conflicts_with_all = ["holder", "observe"])]
    pub watch: bool,
    /// With --watch: print the event renewed too
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
#[command(mut_args(without(OF_A_REPLICA)), mut_args(without(&["lease"])))]
pub struct Prune {
    /// Only Leases with these labels; a selector that names tenure.dev/kind decides on the kind itself ('!tenure.dev/kind': those of `run`)
    #[arg(short = 'l', long, value_name = "SELECTOR")]
    pub selector: Option<String>,
    /// Those of every namespace
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    pub all_namespaces: bool,
    /// How long ago a Lease was released, at least
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = duration::parse)]
    pub older_than: Duration,
    /// Also Leases that remember the fires of a task's schedule: fires that are due are lost with them
    #[arg(long)]
    pub schedules: bool,
    /// Only say which Leases may be deleted
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
#[command(mut_args(without(OF_A_REPLICA)))]
pub struct Steered {
    /// Name of the Lease, without lease.prefix; lock:NAME of a lock, task:NAME of a task [default: $TENURE_LEASE in a workload, else lease.name of the configuration, except with several slots]
    #[arg(value_name = "LEASE", conflicts_with = "lease")]
    pub name: Option<String>,
    /// Show the Lease afterwards, as status does
    #[arg(short, long, value_name = "FORMAT")]
    pub output: Option<Output>,
    /// Configuration.
    #[command(flatten)]
    pub flags: ConfigFlags,
}

/// Asks a holder to step down.
#[derive(Args, Clone, Debug, Default)]
pub struct StepDown {
    /// The Lease and its namespace.
    #[command(flatten)]
    pub lease: Steered,
    /// The replica to which the others leave the Lease for as long as it needs: its full identity or, with lease.announce, its base
    #[arg(long, value_name = "CANDIDATE", value_parser = NonEmptyStringValueParser::new())]
    pub to: Option<String>,
    /// Ask the holder of a paused Lease too: nobody leads before it is resumed
    #[arg(long)]
    pub force: bool,
    /// Wait this long for the next term to begin [default: 1m]
    #[arg(long, value_name = "DURATION", num_args = 0..=1, require_equals = true, default_missing_value = "1m", value_parser = duration::parse)]
    pub wait: Option<Duration>,
}

/// Releases what a dead replica holds.
#[derive(Args, Clone, Debug)]
pub struct ConfirmDead {
    /// The Lease and its namespace.
    #[command(flatten)]
    pub lease: Steered,
    /// Full identity of the dead replica
    #[arg(long, value_name = "IDENTITY", value_parser = full_identity)]
    pub holder: String,
    /// Release the Lease of a task too: the run of the dead replica is repeated at once
    #[arg(long)]
    pub run_again: bool,
}

/// Waits for the end of replicas.
#[derive(Args, Clone, Debug)]
pub struct Witness {
    /// Where to listen: an absolute path on a volume that only the two containers mount, or @NAME [default: lease.witness, else
    /// /run/tenure/witness]
    #[arg(long, value_name = "PATH", value_parser = socket)]
    pub socket: Option<String>,
    /// Configuration file, YAML or JSON [default: $TENURE_CONFIG, else /etc/tenure/tenure.yaml if it exists]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

/// Says whether the workload that asks may do something.
#[derive(Args, Clone, Debug)]
pub struct Held {
    /// Ask whether it is held for this long from now, such as 2s
    #[arg(long = "for", value_name = "DURATION", default_value = "0s", value_parser = duration::parse)]
    pub span: Duration,
    /// Print the fencing token of the term if it is held, as in: token=$(tenure held --token) || exit
    #[arg(long)]
    pub token: bool,
}

/// Copies this program.
#[derive(Args, Clone, Debug)]
pub struct Install {
    /// The file to write, such as /tenure/tenure on a volume that containers share
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
}

/// Form of the output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// Columns for people
    #[default]
    Table,
    /// More columns
    Wide,
    /// Names only, as kubectl takes them
    Name,
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
    /// Write a kubeconfig for the server to this file; replaces that of an earlier server
    #[arg(long, value_name = "FILE")]
    pub kubeconfig_out: Option<PathBuf>,
}

/// The parts that the demo plays by this same binary.
#[derive(Clone, Debug, Subcommand)]
pub enum Demo {
    /// The workload of the demo's replicas.
    #[command(hide = true)]
    Workload {
        /// Where it stamps.
        directory: PathBuf,
        /// Its replica.
        name: String,
    },
}

fn socket(written: &str) -> Result<String, String> {
    let refused = || "write @NAME or an absolute path, of at most 107 bytes".to_owned();
    Some(written.to_owned()).filter(|name| is_socket(name)).ok_or_else(refused)
}

/// Reads the identity that init gives a replica: a base, `_` and 32 hexadecimal digits.
fn full_identity(written: &str) -> Result<String, String> {
    let refused = "this is not the full identity of a replica: write NAME_ and 32 hex digits, as in its log and in the Lease";
    Some(written.to_owned()).filter(|written| is_full_identity(written)).ok_or_else(|| refused.to_owned())
}

/// Returns true if it is an identity as init makes it.
pub(crate) fn is_full_identity(written: &str) -> bool {
    let is_random = |random: &str| random.len() == 32 && random.bytes().all(|digit| digit.is_ascii_hexdigit());
    written.rsplit_once('_').is_some_and(|(base, random)| !base.is_empty() && is_random(random))
}
