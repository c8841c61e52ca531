//! What users type: the faces of the one binary and their flags, but not what they mean.
//!
//! A flag's value is validated with the rest of the configuration (exit code 78), so it stays text here. A line that cannot be
//! parsed at all exits with 64 instead of clap's 2.

use std::{
    ffi::OsString,
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

use crate::{config::humane, exit};

pub mod manual;
mod refused;

pub use refused::Refused;

/// What this process is to be.
#[derive(Debug)]
pub enum Face {
    /// Init: run the workload.
    Run(Run),
    /// The elector that init starts; not for people.
    Elector,
    /// A command for people.
    Command(Command),
}

/// Runs the workload; the face without a name.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub struct Run {
    /// Configuration.
    #[command(flatten)]
    pub flags: ConfigFlags,
    /// The workload: a program and its arguments, no shell
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

/// Flags that change the configuration; each value is judged there.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfigFlags {
    /// Configuration file, YAML or JSON [default: $TENURE_CONFIG, else /etc/tenure/tenure.yaml where it exists]
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
    /// How many replicas may run it at a time, each by a Lease of its own (lease.slots)
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
    /// Wait for ever (the default)
    #[arg(long, conflicts_with_all = ["timeout", "at_once"])]
    pub wait: bool,
    /// Wait this long for a holder that lives, such as 30s; what looks abandoned is watched for as long as it takes to be sure
    #[arg(long, value_name = "DURATION", conflicts_with = "at_once")]
    pub timeout: Option<String>,
    /// Wait for no holder that lives: --timeout 0s
    #[arg(long = "try")]
    pub at_once: bool,
    /// Exit code if a holder that lives was waited for in vain
    #[arg(short = 'E', long, value_name = "CODE", default_value_t = exit::HELD)]
    pub conflict_exit_code: u8,
}

/// When `task` runs.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub struct Task {
    /// From the start of one run to that of the next, in whole seconds, such as 1h
    #[arg(long, value_name = "INTERVAL")]
    pub every: String,
    /// Run it now, or not at all, and end with it: for what comes again by itself, such as a CronJob
    #[arg(long)]
    pub once: bool,
    /// Stop a run that takes longer, such as 10m
    #[arg(long, value_name = "DURATION")]
    pub limit: Option<String>,
    /// Exit code if it is not due, or another replica runs it
    #[arg(short = 'E', long, value_name = "CODE", default_value_t = exit::HELD, requires = "once")]
    pub conflict_exit_code: u8,
}

/// Runs a command under a name that replicas share.
#[derive(Args)]
struct NamedRun<How: Args> {
    /// What is shared; its Lease is lock-NAME or tasklock-NAME, behind lease.prefix. --lease NAME in its place is the name of a Lease
    /// as it is
    #[arg(value_name = "NAME", required_unless_present = "lease", conflicts_with = "lease")]
    name: Option<String>,
    #[command(flatten)]
    how: How,
    #[command(flatten)]
    flags: ConfigFlags,
    /// What to run: a program and its arguments, no shell
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
}

impl<How: Args> NamedRun<How> {
    fn with(self, preset: impl FnOnce(How) -> Preset) -> Run {
        let Self { name, how, flags, command } = self;
        Run { flags: ConfigFlags { lease_argument: name, preset: preset(how), ..flags }, command }
    }
}

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
    #[arg(long, value_name = "CANDIDATE")]
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

/// The face that a command line asks for; the first argument is the program's name.
///
/// # Errors
/// Help and version, which are only printed, and a line that cannot be parsed.
pub fn parse(line: impl IntoIterator<Item = OsString>) -> Result<Face, Refused> {
    let mut line: Vec<OsString> = line.into_iter().collect();
    // kubectl runs kubectl-NAME as its command NAME, and that is what usage and errors call it.
    if let Some(name) = line.first_mut().filter(|name| Path::new(name).file_name().is_some_and(|name| name == "kubectl-tenure")) {
        *name = "kubectl tenure".into();
    }
    if matches!(&*line, [_, face] if face == "elector") {
        return Ok(Face::Elector);
    }
    // All the other faces take clap a quarter of a millisecond to build: what starts a container is tried without them.
    let is_run = |(at, word): &(usize, &OsString)| *at == 1 && *word == "run";
    if let Ok(RunLine { run }) =
        RunLine::try_parse_from(line.iter().enumerate().filter(|word| !is_run(word)).map(|(_, word)| word))
    {
        return Ok(Face::Run(run));
    }
    let Line { face, run } = Line::try_parse_from(&line).map_err(|error| Refused::new(error, &line))?;
    Ok(match face {
        None => Face::Run(run),
        Some(Named::Run(run)) => Face::Run(run),
        Some(Named::Lock(lock)) => Face::Run(lock.with(Preset::Lock)),
        Some(Named::Task(task)) => Face::Run(task.with(Preset::Task)),
        Some(Named::Command(command)) => Face::Command(command),
    })
}

/// A line without the name of a face.
#[derive(Parser)]
#[command(name = "tenure")]
struct RunLine {
    #[command(flatten)]
    run: Run,
}

/// Runs a process for exactly as long as its replica holds a Kubernetes Lease.
#[derive(Parser)]
#[command(name = "tenure", version, args_conflicts_with_subcommands = true)]
#[command(after_help = EXIT_CODES)]
struct Line {
    #[command(subcommand)]
    face: Option<Named>,
    #[command(flatten)]
    run: Run,
}

#[derive(Subcommand)]
enum Named {
    /// Run the workload while this replica holds the Lease (the default: the word may be left out)
    Run(Run),
    /// Run a command once, under a lock that no two hold at a time: `run` that ends with its command
    ///
    /// Of a configuration file and the environment only lease (without its name), workload.stop, workload.env,
    /// workload.oomScoreAdjust and log apply, so that it can be run beside a replica.
    ///
    /// Exit codes: the command's; 75 another holds the lock, 76 the lock was lost and the command stopped, 69 nothing could be
    /// read within the bound, 77 not permitted, 128 + N signal N ended the wait.
    #[command(verbatim_doc_comment)]
    Lock(NamedRun<Lock>),
    /// Run a command at most once per interval over all replicas, and never two at once
    ///
    /// Of a configuration file and the environment the same applies as for a lock, and task.
    #[command(verbatim_doc_comment)]
    Task(NamedRun<Task>),
    #[command(flatten)]
    Command(Command),
}

const EXIT_CODES: &str = "\
Exit codes:
  the workload's own; 128 + N if signal N killed it; 126, 127 it cannot be executed or found
  64 unknown command line, 69 API server unavailable, 70 internal, 75 the lock is held by another,
  76 leadership lost (workload.onLoss: exit, or in a lock), 77 not permitted, 78 invalid configuration

Every key of the configuration: tenure config default";

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    fn parsed(line: &[&str]) -> Result<Face, Refused> {
        parse(["tenure"].iter().chain(line).map(OsString::from))
    }

    fn refused(line: &[&str]) -> u8 {
        parsed(line).unwrap_err().code()
    }

    #[test]
    fn the_command_line_is_consistent() {
        Line::command().debug_assert();
    }

    #[test]
    fn run_needs_no_word() {
        for line in [&["--lease", "x", "--", "sleep", "--help"][..], &["run", "--lease", "x", "--", "sleep", "--help"]] {
            let Face::Run(run) = parsed(line).unwrap() else { panic!("{line:?} is not run") };
            assert_eq!((run.flags.lease.as_deref(), run.command), (Some("x"), vec!["sleep".into(), "--help".into()]));
        }
    }

    #[test]
    fn a_workload_may_have_the_name_of_a_face() {
        let Face::Run(run) = parsed(&["--", "check"]).unwrap() else { panic!("not run") };
        assert_eq!(run.command, ["check"]);
    }

    #[test]
    fn a_lock_is_run_with_other_defaults() {
        let lock = |line: &[&str]| {
            let Face::Run(run) = parsed(line).unwrap() else { panic!("not run") };
            let Preset::Lock(lock) = run.flags.preset else { panic!("no lock") };
            (run.flags.lease_argument, run.flags.log_level, run.command, lock)
        };
        let forever = Lock { conflict_exit_code: 75, ..Lock::default() };
        let command = vec!["sleep".to_owned(), "1".to_owned()];
        assert_eq!(
            lock(&["lock", "--log-level", "warn", "backup", "--", "sleep", "1"]),
            (Some("backup".into()), Some("warn".into()), command.clone(), forever.clone())
        );
        let exact = lock(&["lock", "--lease", "x", "--timeout", "5", "-E", "3", "--", "sleep", "1"]);
        assert_eq!(exact, (None, None, command, Lock { timeout: Some("5".into()), conflict_exit_code: 3, ..forever }));
    }

    #[test]
    fn a_lock_that_cannot_be_parsed_is_64_and_was_to_run_a_workload() {
        for line in [
            &["lock", "x"][..],
            &["lock", "x", "--"],
            &["lock", "--", "true"],
            &["lock", "--lease", "x", "y", "--", "true"],
            &["lock", "x", "--try", "--timeout", "1s", "--", "true"],
            &["lock", "x", "--try", "--wait", "--", "true"],
            &["lock", "x", "--timeout", "1s", "--wait", "--", "true"],
            &["task", "x", "--", "true"],
            &["task", "x", "--every", "1h"],
            &["task", "x", "--every", "1h", "-E", "3", "--", "true"],
        ] {
            assert_eq!((refused(line), parsed(line).unwrap_err().is_of_run()), (64, true), "{line:?}");
        }
        assert_eq!(refused(&["lock", "x", "-E", "256", "--", "true"]), 78);
    }

    #[test]
    fn a_bare_word_is_not_a_workload() {
        assert_eq!(refused(&["sleep"]), 64);
    }

    #[test]
    fn who_is_refused_is_told_what_may_have_been_meant() {
        let tip = |line: &[&str]| parsed(line).unwrap_err().tip();
        let workload = Some("the workload goes after --, as in: tenure --lease NAME -- COMMAND".to_owned());
        assert_eq!(tip(&["sleep"]), workload);
        assert_eq!(tip(&["check", "sleep"]), workload);
        assert_eq!(tip(&["run", "sleep"]), workload);
        let first = |name| Some(format!("the command {name} goes first, before all options"));
        assert_eq!(tip(&["run", "--lease", "a", "status"]), workload);
        assert_eq!(tip(&["--lease", "a", "status"]), first("status"));
        assert_eq!(tip(&["--lease", "a", "run", "--", "status"]), first("run"));
        assert_eq!(tip(&["statsu"]), Some("there is a command `status`".to_owned()));
        assert_eq!(tip(&["status", "a", "b"]), None);
        assert_eq!(refused(&["help"]), 0);
    }

    const WORDS: [&str; 14] =
        ["", "run", "check", "elector", "--", "--lease", "--lease=x", "x", "-", "-5", "--set=a=b", "--config=", "--help", "-h"];

    #[test]
    fn what_is_parsed_without_the_other_faces_is_what_it_is_with_them() {
        let mut parsed = 0;
        let words = || WORDS.into_iter();
        let lines = words().flat_map(|a| words().flat_map(move |b| words().map(move |c| ["tenure", a, b, c])));
        for line in lines {
            let Ok(RunLine { run: alone }) = RunLine::try_parse_from(line) else { continue };
            let Ok(Line { face, run }) = Line::try_parse_from(line) else { panic!("{line:?} is refused") };
            assert!(face.is_none() && run == alone, "{line:?}");
            parsed += 1;
        }
        assert!(parsed > 100, "{parsed}");
    }

    #[test]
    fn help_and_version_are_no_failures() {
        assert_eq!((refused(&["--help"]), refused(&["--version"]), refused(&["check", "--help"])), (0, 0, 0));
    }

    #[test]
    fn a_command_of_kubectl_is_called_what_people_type() {
        let usage = |name: &str| parse([name, "status", "a", "b"].map(OsString::from)).unwrap_err().to_string();
        assert!(usage("/usr/bin/kubectl-tenure").contains("Usage: kubectl tenure status "));
        assert!(usage("/usr/bin/tenure").contains("Usage: tenure status "));
    }

    #[test]
    fn a_flag_without_its_value_is_64() {
        assert_eq!((refused(&["--lease"]), refused(&["check", "--config"]), refused(&["status", "-o"])), (64, 64, 64));
    }

    #[test]
    fn a_line_that_was_to_start_a_container_is_told_from_one_that_was_typed_beside_it() {
        for (line, of_run) in [
            (&["--leese", "x"][..], true),
            (&["run", "--leese", "x"], true),
            (&["sleep", "10"], true),
            (&["--help"], false),
            (&["status", "--leese"], false),
            (&["check", "x"], false),
        ] {
            assert_eq!(parsed(line).unwrap_err().is_of_run(), of_run, "{line:?}");
        }
    }

    #[test]
    fn an_unknown_flag_is_64_and_an_invalid_value_78() {
        assert_eq!((refused(&["--leese", "x"]), refused(&["status", "-o", "xml"])), (64, 78));
    }
}
