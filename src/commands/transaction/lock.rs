//! How a command of transactions gets its Lease: it becomes the init of `tenure lock`, which runs the same command again inside its term.

use std::{
    env,
    fs::File,
    io::{self, Seek as _, Write as _},
    time::Duration,
};

use nix::{
    sys::memfd::{MFdFlags, memfd_create},
    unistd::dup2_stdin,
};

use super::file;
use crate::{
    api::Cluster,
    cli::{ConfigFlags, Lock, Preset, Run},
    config::{Config, duration},
    console::complain,
    environment::{FENCING_TOKEN, IDENTITY, LEASE, NAMESPACE, ROLE, TERM_FD},
    exit, init,
    role::Role,
    term_page::{ReadError, Reader},
};

/// What the driver needs to end once its limit is over: an answer may take as long.
const SAYING: Duration = Duration::from_secs(10);
/// The program that runs now, even if its file was replaced.
const OURSELVES: &str = "/proc/self/exe";

/// The term inside which this process runs.
pub(super) struct Term {
    /// The page that tells H.
    pub(super) page: Reader,
    pub(super) token: String,
    pub(super) identity: String,
    /// That of its Lease.
    pub(super) namespace: String,
}

/// Returns true if this process was started by a tenure that holds this Lease.
pub(super) fn is_inside(config: &Config) -> bool {
    let told = |name, value: &str| env::var(name).is_ok_and(|told| told == value);
    let namespace = &config.lease.namespace;
    told(ROLE, Role::Leader.as_str()) && told(LEASE, &config.lease.name) && (namespace.is_empty() || told(NAMESPACE, namespace))
}

/// The term of this process.
///
/// # Errors
/// Its tenure could make no page, or this process did not inherit it.
pub(super) fn term() -> Result<Term, String> {
    let told = |name| env::var(name).map_err(|_| format!("{name} is not set: this process needs what tenure tells of its term"));
    let number = told(TERM_FD)?.parse().map_err(|_| format!("{TERM_FD} is not the number of a descriptor"))?;
    let page = Reader::open(number).map_err(|error: ReadError| crate::words::one_line(&error))?;
    Ok(Term { page, token: told(FENCING_TOKEN)?, identity: told(IDENTITY)?, namespace: told(NAMESPACE)? })
}

/// Reads standard input, and puts the same text in its place for who reads it next.
///
/// # Errors
/// Standard input cannot be read, or is too long.
pub(super) fn standard_input() -> io::Result<String> {
    let text = file::limited(io::stdin().lock())?;
    let mut again = File::from(memfd_create(c"tenure-stdin", MFdFlags::MFD_CLOEXEC)?);
    again.write_all(text.as_bytes())?;
    again.rewind()?;
    dup2_stdin(&again)?;
    Ok(text)
}

/// Becomes the init of `tenure lock`, which runs this same command line in the term of the Lease; returns the exit code. A stop leaves the
/// undo its limit, and the driver the time to say what is left.
///
/// # Errors
/// An argument that is no text: a configuration, which holds the command, cannot carry it.
pub(super) fn under_lock(flags: &ConfigFlags, how: &Lock, limit: Duration, lease_flags: &str) -> Result<u8, String> {
    const GRACE: &str = "workload.stop.grace=";
    let preset = Preset::Lock(how.clone());
    let mut flags = ConfigFlags { preset, ..flags.clone() };
    if !flags.set.iter().any(|set| set.starts_with(GRACE)) {
        flags.set.push(format!("{GRACE}{}", duration::format(limit + SAYING)));
    }
    let again =
        env::args_os().skip(1).map(|word| word.into_string().map_err(|word| format!("{word:?} is no UTF-8: rename the file")));
    // The command under the lock asks the cluster of the lock, whichever context becomes the current one meanwhile.
    let cluster = &mut flags.cluster;
    let mut words = vec![OURSELVES.to_owned()];
    if cluster.context.is_none()
        && let Ok(found) = Cluster::discover(cluster.kubeconfig.as_deref(), None)
        && let Some(context) = found.context()
    {
        words.extend(["--context".to_owned(), context.name.clone()]);
        cluster.context = Some(context.name);
    }
    let command = words.into_iter().map(Ok).chain(again).collect::<Result<_, _>>()?;
    let code = init::start(&Run { flags, command });
    let was_killed = code > exit::NOT_FOUND;
    if code == exit::LEADERSHIP_LOST || was_killed {
        complain(&format!("`tenure recover plan {lease_flags}` tells what is left or committed, and `recover apply` undoes it"));
    }
    Ok(code)
}
