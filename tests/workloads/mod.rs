//! config/examples with the programs that they are for, from Debian: what their clients see of a hand-over and of a crash.

use std::{
    cell::RefCell,
    fs,
    net::{SocketAddr, TcpStream},
    path::Path,
    process::Command,
    time::Duration,
};

use nix::unistd::Pid;
use serde_json::{Value, json};
use support::{Case, LEASE, PATIENCE, Prepared, Stage, cases, not_run, procfs::children, within};

use self::{
    cron::a_job_of_crons_is_dead_before_the_next_cron_starts,
    fencing::{
        a_file_refuses_an_old_leader_that_is_still_writing, a_file_whose_token_cannot_be_read_is_not_written,
        an_object_that_cannot_be_read_is_not_written,
        an_object_with_a_version_refuses_an_old_leader_between_its_read_and_its_write,
        postgresql_refuses_an_old_leader_in_an_open_transaction_too, redis_refuses_an_old_leader,
    },
    jvm::a_jvm_is_warm_before_it_leads_if_it_is_frozen,
    nginx::nginx_reloads_on_hup_and_finishes_its_requests_in_a_hand_over,
    postgresql::{
        postgresql_keeps_each_committed_row_through_a_hand_over_and_a_crash,
        postgresql_streams_to_a_standby_that_is_promoted_and_loses_nothing_that_one_had,
    },
    redis::redis_is_promoted_and_demoted_by_its_hooks,
};
use crate::collector::{Collector, Manner, Wire};

mod change;
mod cron;
mod fencing;
mod jvm;
mod nginx;
mod postgresql;
mod redis;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

pub(crate) fn all() -> Vec<Case> {
    cases![
        nginx_reloads_on_hup_and_finishes_its_requests_in_a_hand_over,
        redis_is_promoted_and_demoted_by_its_hooks,
        postgresql_keeps_each_committed_row_through_a_hand_over_and_a_crash,
        postgresql_streams_to_a_standby_that_is_promoted_and_loses_nothing_that_one_had,
        a_jvm_is_warm_before_it_leads_if_it_is_frozen,
        a_job_of_crons_is_dead_before_the_next_cron_starts,
        postgresql_refuses_an_old_leader_in_an_open_transaction_too,
        redis_refuses_an_old_leader,
        an_object_with_a_version_refuses_an_old_leader_between_its_read_and_its_write,
        an_object_that_cannot_be_read_is_not_written,
        a_file_refuses_an_old_leader_that_is_still_writing,
        a_file_whose_token_cannot_be_read_is_not_written,
    ]
}

/// The environment in which a package's programs run, and what their replicas report of their transitions.
struct Debian {
    path: String,
    libraries: String,
    collector: RefCell<Collector>,
}

impl Debian {
    /// None, and said so, where it cannot be had.
    fn package(name: &str) -> Option<Self> {
        let print = "printf '%s\\n' \"$PATH\" \"$LD_LIBRARY_PATH\"";
        let output = Command::new(format!("{ROOT}/tests/support/debian")).args([name, "sh", "-c", print]).output().expect("bash");
        if !output.status.success() {
            not_run(&format!("{name} as a workload"), String::from_utf8_lossy(&output.stderr).trim());
            return None;
        }
        let text = String::from_utf8(output.stdout).expect("text");
        let (path, libraries) = text.trim_end().split_once('\n').expect("two lines");
        let collector = RefCell::new(Collector::start(Wire::Http, Manner::Obliging));
        Some(Self { path: path.into(), libraries: libraries.into(), collector })
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new("env");
        command.arg(format!("PATH={}", self.path)).arg(format!("LD_LIBRARY_PATH={}", self.libraries)).arg(program);
        command
    }

    /// A replica with an example's configuration, on the case's Lease; `before` launches its workload.
    async fn prepare(&self, stage: &Stage, name: &str, example: &str, before: &[&str], after: &[String]) -> Prepared {
        let text = fs::read_to_string(format!("{ROOT}/config/examples/{example}.yaml")).expect("an example");
        let mut config: Value = serde_saphyr::from_str(&text).expect("YAML");
        config["lease"] = json!({ "name": LEASE, "namespace": stage.namespace, "identity": name });
        let words = config["workload"]["command"].take();
        config["workload"]["command"] = json!([]);
        let words = words.as_array().expect("a list").iter().map(|word| word.as_str().expect("text").to_owned());
        let mut prepared = stage.prepare(name).await;
        prepared.launch.workload =
            before.iter().map(|word| (*word).to_owned()).chain(words).chain(after.iter().cloned()).collect();
        prepared.launch.config = config;
        prepared.launch.env = vec![("PATH".into(), self.path.clone()), ("LD_LIBRARY_PATH".into(), self.libraries.clone())];
        prepared.launch.env.extend(self.collector.borrow().environment());
        prepared
    }
}

/// The same with another word in the workload's command.
fn with_word(mut prepared: Prepared, word: &str, other: &Path) -> Prepared {
    let words = prepared.launch.workload.iter_mut().filter(|it| *it == word);
    words.for_each(|word| *word = other.display().to_string());
    prepared
}

async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    within(PATIENCE * 2, what, async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
}

/// Returns the process and all that it has started.
fn processes(root: Pid) -> impl Iterator<Item = Pid> {
    let mut found = vec![root];
    let mut next = 0;
    while let Some(pid) = found.get(next).copied() {
        found.extend(children(pid));
        next += 1;
    }
    found.into_iter()
}

fn listens(address: SocketAddr) -> bool {
    TcpStream::connect(address).is_ok()
}
