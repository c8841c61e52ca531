//! What replicas cost that have nothing to do but to lead and to follow.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    time::Duration,
};

use nix::unistd::Pid;

use crate::{
    contestant::{BOTH, DEFAULT, Programs},
    handover::Trio,
    support::{server::Server, workload::Behaviour},
    table::title,
};

const SPAN: Duration = Duration::from_secs(600);

pub async fn show(server: &Server, programs: &Programs) {
    title("Idle over 10 min, D = 15 s: requests a minute (distinct audit IDs), processor time (schedstat)");
    for who in BOTH {
        let mut trio = Trio::start(server, programs, who, DEFAULT, Behaviour::obedient(), false).await;
        let leader = trio.next_leader().await;
        tokio::time::sleep(Duration::from_secs(20)).await;
        let (requests, busy) = (requests(&trio), busy(&trio));
        tokio::time::sleep(SPAN).await;
        let requests = requests_since(&trio, &requests);
        let minutes = SPAN.as_secs_f64() / 60.0;
        let writer = requests.values().map(BTreeSet::len).max().unwrap_or_default();
        let others = requests.values().map(BTreeSet::len).sum::<usize>() - writer;
        let share = |led: bool| {
            let spans = trio.replicas.iter().zip(&busy).filter(|(replica, _)| (replica.name == leader) == led);
            let spans: Vec<f64> = spans
                .map(|(replica, before)| (processor(replica.init(), replica.elector()) - before) / SPAN.as_secs_f64() * 100.0)
                .collect();
            spans.iter().sum::<f64>() / spans.len().max(1) as f64
        };
        println!(
            "  {:<20} leader {:>5.1}/min, {:.4} % of a core   follower {:>5.1}/min, {:.4} % of a core",
            who.name(),
            writer as f64 / minutes,
            share(true),
            others as f64 / 2.0 / minutes,
            share(false),
        );
    }
}

type Requests = BTreeMap<String, BTreeSet<String>>;

/// Ids by who asked.
fn requests(trio: &Trio) -> Requests {
    let mut requests = Requests::new();
    for record in trio.stage.audit_of_all_stages() {
        if record.user.starts_with("system:serviceaccount") {
            requests.entry(record.user).or_default().insert(record.id);
        }
    }
    requests
}

fn requests_since(trio: &Trio, before: &Requests) -> Requests {
    let mut now = requests(trio);
    for (user, ids) in &mut now {
        if let Some(known) = before.get(user) {
            ids.retain(|id| !known.contains(id));
        }
    }
    now
}

fn busy(trio: &Trio) -> Vec<f64> {
    trio.replicas.iter().map(|replica| processor(replica.init(), replica.elector())).collect()
}

/// Seconds that all threads of both have run.
fn processor(init: Pid, elector: Pid) -> f64 {
    let of = |pid: Pid| {
        let threads = fs::read_dir(format!("/proc/{pid}/task")).expect("threads").flatten();
        let nanos = threads.filter_map(|thread| {
            fs::read_to_string(thread.path().join("schedstat")).ok()?.split(' ').next()?.parse::<f64>().ok()
        });
        nanos.sum::<f64>() / 1e9
    };
    if init == elector { of(init) } else { of(init) + of(elector) }
}
