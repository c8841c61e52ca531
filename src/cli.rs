//! Parses the command line: the faces of the one binary and their flags. Other rooms give them a meaning.
//!
//! The value of a key is validated with the rest of the configuration (exit code 78), so it stays text here. A line that cannot be
//! parsed exits with 64 instead of clap's 2.

use std::{ffi::OsString, path::Path};

use clap::{Parser, Subcommand};
use workload::{NamedRun, OF_A_LOOK, without};

pub use commands::{
    Check, Command, ConfigCommand, ConfirmDead, Demo, DevServer, Held, Install, Output, Prune, Status, Steered, StepDown, Witness,
};
pub use inject::{Inject, InjectOutput};
pub use refused::Refused;
pub use transaction::{Apply, Demote, Promote, Recover, Recovery, TransactionFlags};
pub use workload::{ClusterFlags, ConfigFlags, Lock, Preset, Run, Task};

pub(crate) use commands::is_full_identity;

mod commands;
mod inject;
pub mod manual;
mod refused;
mod transaction;
mod workload;

/// The face that this process is to have.
#[derive(Debug)]
pub enum Face {
    /// Init: run the workload.
    Run(Run),
    /// The elector that init starts; not for people.
    Elector,
    /// A command for people.
    Command(Command),
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
        if line.len() == 1 {
            line.push("--help".into());
        }
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
    behind_the_command(&mut line);
    let Line { face, run } = Line::try_parse_from(&line).map_err(|error| Refused::new(error, &line))?;
    Ok(match face {
        None => Face::Run(run),
        Some(Named::Run(run)) => Face::Run(run),
        Some(Named::Lock(lock)) => Face::Run(lock.with(Preset::Lock)),
        Some(Named::Task(task)) => Face::Run(task.with(Preset::Task)),
        Some(Named::Command(command)) => Face::Command(command),
    })
}

/// Puts what says which Leases are meant, and how they are shown, behind the name of the command: kubectl's users write it before.
fn behind_the_command(line: &mut [OsString]) {
    const FLAGS: [&str; 9] =
        ["--namespace", "--context", "--kubeconfig", "--as", "--as-group", "--request-timeout", "--output", "-n", "-o"];
    let mut at = 1;
    while let Some(word) = line.get(at).and_then(|word| word.to_str()).filter(|word| word.starts_with('-')) {
        let is_switch = ["-A", "--all-namespaces"].contains(&word);
        let is_glued = |flag: &&str| word.strip_prefix(flag).is_some_and(|value| flag.len() == 2 || value.starts_with('='));
        if !is_switch && !FLAGS.contains(&word) && !FLAGS.iter().any(is_glued) {
            return;
        }
        at += if FLAGS.contains(&word) { 2 } else { 1 };
    }
    if let Some(words) = line.get_mut(1..=at) {
        words.rotate_right(1);
    }
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
    /// Run the workload while this replica holds the Lease (the default: you may leave out the word run)
    Run(Run),
    /// Run a command once, under a lock that one holder has at a time
    ///
    /// A configuration file and the environment may be those of a replica: a lock reads lease (without
    /// name, slots, announce and preempt), workload.stop, workload.env, workload.oomScoreAdjust and log, and ignores all other keys.
    ///
    /// Exit codes: the command's; 75 another holds the lock; 76 the lock was lost, and the command was stopped; 69 the API
    /// server could not be read in time; 77 not permitted; 128 + N signal N ended the wait.
    #[command(verbatim_doc_comment, mut_args(without(&["leader_election"])), mut_args(without(OF_A_LOOK)))]
    Lock(NamedRun<Lock>),
    /// Run a command at most once per interval over all replicas, and never two at once
    ///
    /// It reads the same keys of a configuration file and the environment as a lock, and task.
    ///
    /// Exit codes: as those of `lock`; 75 with --once: the run is not due, or another replica runs it.
    #[command(verbatim_doc_comment, mut_args(without(&["leader_election", "slots"])), mut_args(without(OF_A_LOOK)))]
    Task(NamedRun<Task>),
    #[command(flatten)]
    Command(Command),
}

const EXIT_CODES: &str = "\
Exit codes:
  the workload's own; 128 + N if signal N killed it; 126 it cannot be executed; 127 it is not found
  64 the command line cannot be parsed; 69 the API server is unavailable; 70 internal error
  75 another holds the lock; 76 the Lease was lost (workload.onLoss: exit, or in a lock)
  77 not permitted; 78 invalid configuration

Every key of the configuration: tenure config default";

#[cfg(test)]
mod tests {
    use std::time::Duration;

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
        let exact = lock(&["lock", "--lease", "x", "--timeout", "5s", "-E", "3", "--", "sleep", "1"]);
        assert_eq!(
            exact,
            (None, None, command, Lock { timeout: Some(Duration::from_secs(5)), conflict_exit_code: 3, ..forever })
        );
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
            &["task", "x", "--every", "1h", "--schedule", "0 2 * * *", "--", "true"],
            &["task", "x", "--every", "1h", "--time-zone", "UTC", "--", "true"],
            &["task", "x", "--every", "1h"],
            &["task", "x", "--every", "1h", "-E", "3", "--", "true"],
        ] {
            assert_eq!((refused(line), parsed(line).unwrap_err().is_of_run()), (64, true), "{line:?}");
        }
        assert_eq!(refused(&["lock", "x", "-E", "256", "--", "true"]), 78);
        assert_eq!(refused(&["lock", "x", "--leader-election", "off", "--", "true"]), 78);
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
        // Nobody runs a workload by the plugin: without arguments it helps.
        let help = parse([OsString::from("/usr/bin/kubectl-tenure")]).unwrap_err();
        assert!(help.code() == 0 && help.to_string().contains("Usage: kubectl tenure "), "{help}");
    }

    #[test]
    fn the_cluster_and_the_namespace_are_said_before_the_command_or_after_it() {
        let before = ["-n", "shop", "--context=prod", "--kubeconfig", "/k", "--as", "ann", "status", "web"];
        let after = ["status", "web", "-n", "shop", "--context=prod", "--kubeconfig", "/k", "--as", "ann"];
        for line in [&before[..], &after] {
            let Face::Command(Command::Status(status)) = parsed(line).unwrap() else { panic!("no status") };
            let ConfigFlags { namespace, cluster, .. } = status.flags;
            let ClusterFlags { kubeconfig, context, user, .. } = cluster;
            assert_eq!([status.name, namespace, context, user], ["web", "shop", "prod", "ann"].map(|word| Some(word.into())));
            assert_eq!(kubeconfig, Some("/k".into()));
        }
        for line in
            [&["-A", "-ojson", "status"][..], &["--all-namespaces", "-o", "json", "status"], &["--output=json", "status", "-A"]]
        {
            let Face::Command(Command::Status(status)) = parsed(line).unwrap() else { panic!("no status") };
            assert_eq!((status.all_namespaces, status.output), (true, Output::Json));
        }
        assert_eq!((refused(&["-n"]), refused(&["--as", "ann", "--", "true"])), (64, 78));
    }

    #[test]
    fn a_timeout_of_requests_is_read_as_kubectl_reads_it() {
        let year = Duration::from_secs(365 * 24 * 3600);
        for (written, seconds) in [("5", Some(5)), ("1m30s", Some(90)), ("0", None), ("0s", None)] {
            let line = ["status", "--request-timeout", written, "--as=ann", "--as-group=ops", "--as-group", "dev"];
            let Face::Command(Command::Status(status)) = parsed(&line).unwrap() else { panic!("no status") };
            let ClusterFlags { request_timeout, groups, .. } = status.flags.cluster;
            assert_eq!(
                (request_timeout, groups),
                (Some(seconds.map_or(year, Duration::from_secs)), vec!["ops".into(), "dev".into()])
            );
        }
        assert_eq!([&["status", "--request-timeout=x"][..], &["step-down", "x", "--wait=5"]].map(refused), [78, 78]);
        assert_eq!((refused(&["status", "--as-group", "ops"]), refused(&["--as-group=ops", "run", "--", "true"])), (64, 78));
        assert_eq!(["5", "5s"].map(|span| refused(&["apply", "x", "-f", "-", "--request-timeout", span])), [78, 78]);
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
        assert_eq!(
            (refused(&["--leese", "x"]), refused(&["held", "--for", "2"]), refused(&["status", "-o", "xml"])),
            (64, 78, 78)
        );
    }
}
