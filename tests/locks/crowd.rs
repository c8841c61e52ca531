//! Many at once.

use std::{
    collections::VecDeque,
    fs::{self, File},
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use support::{Case, Stage, cases, spec::released, within};

use crate::TENURE;

const CROWD: usize = 100;
/// More would keep the server from the other cases: each that is released is written by all who wait.
const AT_A_TIME: usize = 25;

pub(super) fn all() -> Vec<Case> {
    cases![a_hundred_locks_that_count_lose_no_count]
}

/// Reads the number in a file, and writes the next one: whoever comes between is lost.
pub(super) const COUNT: &str = "read n <\"$0\"; sleep 0.05; echo $((n + 1)) >\"$0\"";

async fn a_hundred_locks_that_count_lose_no_count(stage: Stage) {
    let file = stage.directory().join("count");
    fs::write(&file, "0\n").expect("a file");
    stage.api.lease(&stage.namespace, "lock-count").create(released()).await;

    let mut crowd = VecDeque::new();
    for number in 0..CROWD {
        if crowd.len() == AT_A_TIME {
            count_ends(&stage, crowd.pop_front()).await;
        }
        crowd.push_back((number, counter(&stage, &format!("crowd-{number}"), &["count"], &file)));
    }
    while !crowd.is_empty() {
        count_ends(&stage, crowd.pop_front()).await;
    }

    assert_eq!(fs::read_to_string(file).expect("a file").trim(), CROWD.to_string());
}

async fn count_ends(stage: &Stage, one: Option<(usize, Child)>) {
    let Some((number, child)) = one else { return };
    let code = ended(child).await;
    let log = stage.directory().join(format!("crowd-{number}.log"));
    assert_eq!(code, Some(0), "{}", fs::read_to_string(log).expect("a log"));
}

/// `tenure lock` with these options and the name, which increments the number in this file once.
pub(super) fn counter(stage: &Stage, called: &str, options: &[&str], file: &Path) -> Child {
    let log = File::create(stage.directory().join(format!("{called}.log"))).expect("a log");
    // They leave the processors to the other cases.
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "nice", "-n", "10", TENURE, "lock", "--namespace", &stage.namespace]).args(options);
    command
        .args(["--", "sh", "-c", COUNT])
        .arg(file)
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("KUBECONFIG", stage.kubeconfig());
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().expect("tenure")
}

/// Its exit code.
pub(super) async fn ended(mut child: Child) -> Option<i32> {
    within(Duration::from_secs(300), "tenure ends", async {
        loop {
            if let Some(status) = child.try_wait().expect("a child") {
                return status.code();
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await
}
