//! Flags of the commands that run a workload: `run`, `lock` and `task`.
//!
//! All three are a [`Run`] with a [`Preset`]: there is no second way to hold a Lease.

use std::{path::PathBuf, time::Duration};

use clap::{Arg, Args};

use crate::{
    config::{duration, interval, run_limit},
    exit,
};

/// Runs the workload; the face without a name.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
#[command(mut_args(without(OF_A_LOOK)))]
pub struct Run {
    /// Configuration.
    #[command(flatten)]
    pub flags: ConfigFlags,
    /// The workload: a program and its arguments, no shell
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

/// Which cluster is meant, as kubectl has these flags.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterFlags {
    /// Kubeconfig to use [default: $KUBECONFIG, else the pod's service account, else ~/.kube/config]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig [default: its current context]
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
    /// User to act as, such as system:serviceaccount:shop:deploy
    #[arg(long = "as", value_name = "USER")]
    pub user: Option<String>,
    /// Group to act as, with --as; may be repeated
    #[arg(long = "as-group", value_name = "GROUP", requires = "user")]
    pub groups: Vec<String>,
    /// Give a request up after this long, such as 30s; 0: never [default: 10s]
    #[arg(long, value_name = "DURATION", value_parser = request_timeout)]
    pub request_timeout: Option<Duration>,
}

/// Reads a time as kubectl does: without a unit it is in seconds, and 0 is no limit.
fn request_timeout(written: &str) -> Result<Duration, String> {
    let span = written.parse().map(Duration::from_secs).or_else(|_| duration::parse(written))?;
    Ok(if span.is_zero() { NO_LIMIT } else { span.min(NO_LIMIT) })
}

/// No clock shows the end of a longer one.
const NO_LIMIT: Duration = Duration::from_secs(365 * 24 * 3600);

/// Flags that change the configuration; each value is judged there.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfigFlags {
    /// Configuration file, YAML or JSON [default: $TENURE_CONFIG, else /etc/tenure/tenure.yaml if it exists]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Name of the Lease (lease.name)
    #[arg(long, value_name = "NAME")]
    pub lease: Option<String>,
    /// The same, where a command takes it without a flag.
    #[arg(skip)]
    pub lease_argument: Option<String>,
    /// Which command this is a part of.
    #[arg(skip)]
    pub preset: Preset,
    /// Namespace of the Lease (lease.namespace)
    #[arg(short, long, value_name = "NAMESPACE")]
    pub namespace: Option<String>,
    /// How many replicas may run it at a time, each under its own Lease (lease.slots)
    #[arg(long, value_name = "N")]
    pub slots: Option<String>,
    /// Base of this replica's identity (lease.identity)
    #[arg(long, value_name = "NAME")]
    pub identity: Option<String>,
    /// How long the Lease is valid without a renewal, such as 15s (lease.duration)
    #[arg(long, value_name = "DURATION")]
    pub lease_duration: Option<String>,
    /// error, warn, info, debug or trace (log.level)
    #[arg(long, value_name = "LEVEL")]
    pub log_level: Option<String>,
    /// text or json (log.format)
    #[arg(long, value_name = "FORMAT")]
    pub log_format: Option<String>,
    /// off: a plain init that runs the workload without a Lease (lease.enabled)
    #[arg(long, value_name = "on|off")]
    pub leader_election: Option<String>,
    /// Any key, such as workload.stop.lossGrace=2s; lists and maps in YAML or JSON
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Which cluster.
    #[command(flatten)]
    pub cluster: ClusterFlags,
}

impl ConfigFlags {
    /// Returns the flags that are names of one key each, with the path of that key and what was given.
    pub(crate) const fn keys(&self) -> [(&'static str, &'static str, &Option<String>); 7] {
        let Self { lease, namespace, slots, identity, lease_duration, log_level, log_format, .. } = self;
        [
            ("--lease", "lease.name", lease),
            ("--namespace", "lease.namespace", namespace),
            ("--slots", "lease.slots", slots),
            ("--identity", "lease.identity", identity),
            ("--lease-duration", "lease.duration", lease_duration),
            ("--log-level", "log.level", log_level),
            ("--log-format", "log.format", log_format),
        ]
    }
}

/// The flags of a configuration without effect on a command that only looks at Leases or edits them.
pub(super) const OF_A_REPLICA: &[&str] = &["slots", "identity", "lease_duration", "log_level", "log_format", "leader_election"];

/// The flags of a cluster without effect on a command that runs a workload.
pub(super) const OF_A_LOOK: &[&str] = &["user", "groups", "request_timeout"];

/// Why a flag that has no effect is refused.
pub(super) const NOT_USED: &str = "this command does not use it: remove it";

/// Withdraws from a command the flags that have no effect on it: its help does not show them, and its line may not have them.
pub(super) fn without(flags: &'static [&'static str]) -> impl Fn(Arg) -> Arg {
    let refuse = |_: &str| Err::<String, _>(NOT_USED);
    move |arg| if flags.contains(&arg.get_id().as_str()) { arg.hide(true).value_parser(refuse) } else { arg }
}

/// The commands that run a workload: all of them are `run` with other defaults.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Preset {
    /// `run`.
    #[default]
    Run,
    /// `lock`.
    Lock(Lock),
    /// `task`.
    Task(Task),
}

/// How long `lock` waits.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub struct Lock {
    /// Wait without a limit (the default)
    #[arg(long, conflicts_with_all = ["timeout", "at_once"])]
    pub wait: bool,
    /// Wait this long for a live holder, such as 30s; a Lease that looks abandoned is watched for its whole duration
    #[arg(long, value_name = "DURATION", conflicts_with = "at_once", value_parser = duration::parse)]
    pub timeout: Option<Duration>,
    /// Do not wait for a live holder: --timeout 0s
    #[arg(long = "try")]
    pub at_once: bool,
    /// Exit code if a live holder kept the lock
    #[arg(short = 'E', long, value_name = "CODE", default_value_t = exit::HELD)]
    pub conflict_exit_code: u8,
    /// Needs no exclusion: lease.creationWait is 0s unless it is set. Only the commands of transactions say so.
    #[arg(skip)]
    pub of_transaction: bool,
}

/// When `task` runs.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub struct Task {
    /// Time between the starts of two runs, in whole seconds, such as 1h
    #[arg(long, value_name = "INTERVAL", conflicts_with_all = ["schedule", "time_zone"], value_parser = interval)]
    pub every: Option<Duration>,
    /// In its place: the five fields of cron, such as "0 2 * * *" (task.schedule)
    #[arg(long, value_name = "FIELDS")]
    pub schedule: Option<String>,
    /// Time zone of the schedule, such as Europe/Berlin (task.timeZone)
    #[arg(long, value_name = "ZONE")]
    pub time_zone: Option<String>,
    /// One run, now or not at all: for a CronJob, cron or CI
    #[arg(long)]
    pub once: bool,
    /// Stop a run that takes longer, such as 10m
    #[arg(long, value_name = "DURATION", value_parser = run_limit)]
    pub limit: Option<Duration>,
    /// Exit code if the run is not due, or another replica runs it
    #[arg(short = 'E', long, value_name = "CODE", default_value_t = exit::HELD, requires = "once")]
    pub conflict_exit_code: u8,
}

/// Runs a command under a name that replicas share.
#[derive(Args)]
pub(super) struct NamedRun<How: Args> {
    /// Name of the lock or task; its Lease is lock-NAME or tasklock-NAME, after lease.prefix. --lease NAME in its place names the Lease
    /// itself, after lease.prefix
    #[arg(value_name = "NAME", required_unless_present = "lease", conflicts_with = "lease")]
    name: Option<String>,
    #[command(flatten)]
    how: How,
    #[command(flatten)]
    flags: ConfigFlags,
    /// The command to run: a program and its arguments, no shell
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
}

impl<How: Args> NamedRun<How> {
    pub(super) fn with(self, preset: impl FnOnce(How) -> Preset) -> Run {
        let Self { name, how, flags, command } = self;
        Run { flags: ConfigFlags { lease_argument: name, preset: preset(how), ..flags }, command }
    }
}
