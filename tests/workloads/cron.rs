//! BusyBox's crond under config/examples/cron.yaml.

use std::{fs, time::Duration};

use nix::unistd::Pid;
use support::{
    PATIENCE, Stage, not_run,
    procfs::{command_line, is_dead},
    spec::released,
    within,
};

use super::{
    Debian,
    change::{Change, Gap, Moment},
    processes, until, with_word,
};

/// From one run of a job to the next.
const MINUTE: Duration = Duration::from_secs(60);

pub(super) async fn a_job_of_crons_is_dead_before_the_next_cron_starts(stage: Stage) {
    if !nix::unistd::geteuid().is_root() {
        return not_run("cron as a workload", "crond starts jobs as their owners, which takes root");
    }
    let Some(debian) = Debian::package("busybox-static") else { return };
    stage.lease.create(released()).await;
    let tables = stage.directory().join("crontabs");
    fs::create_dir(&tables).expect("a directory");
    fs::write(tables.join("root"), "* * * * * exec sleep 1000\n").expect("a file");
    let prepare = async |name: &str| with_word(debian.prepare(&stage, name, "cron", &[], &[]).await, "/etc/crontabs", &tables);
    let find = |init: Pid, word: &str| processes(init).find(|pid| command_line(*pid).iter().any(|it| it == word));
    let a = prepare("a").await.start();
    a.said("leading").await;
    let init = a.init().await;
    let b = prepare("b").await.start();
    b.said("another replica holds the Lease").await;
    let mut job = None;
    within(MINUTE + PATIENCE, "the next minute's job", async {
        while job.is_none() {
            tokio::time::sleep(Duration::from_millis(50)).await;
            job = find(init, "sleep");
        }
    })
    .await;
    let since = Moment::now();

    // Its init lives on, so that the job dies by its hand, and not with a namespace.
    stage.lease.ask_to_step_down().await;

    b.said("leading").await;
    assert!(is_dead(job.expect("waited for")));
    let next = b.init().await;
    until("b's cron", async || find(next, "crond").is_some()).await;
    let until = Moment::now();
    let gap = Gap { longest: Duration::from_nanos(until.0 - since.0), until };
    debian.tell("cron, hand-over until the next cron", Change::HandOver, since, &gap).await;
    for me in [a, b] {
        me.stop().await;
    }
}
