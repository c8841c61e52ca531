//! What idle replicas cost: a leader and its standbys.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    time::Duration,
};

use nix::unistd::Pid;
use support::{Behaviour, Server};

use crate::{
    contestant::{BOTH, Contestant, DEFAULT, Programs},
    handover::Trio,
    table::title,
};

const SPAN: Duration = Duration::from_secs(600);

/// Three replicas, their leader, and the CPU time that they had used before the measured time.
struct Resting {
    who: Contestant,
    trio: Trio,
    leader: String,
    requests: Requests,
    busy: Vec<f64>,
}

pub async fn show(server: &Server, programs: &Programs) {
    title("Idle over 10 min, D = 15 s, both at once: requests a minute (distinct audit IDs), processor time (schedstat)");
    let mut led = Vec::new();
    for who in BOTH {
        let mut trio = Trio::start(server, programs, who, DEFAULT, Behaviour::obedient(), false).await;
        let leader = trio.next_leader().await;
        led.push((who, trio, leader));
    }
    tokio::time::sleep(Duration::from_secs(20)).await;
    let resting = led.into_iter().map(|(who, trio, leader)| {
        let (requests, busy) = (requests(&trio), busy(&trio));
        Resting { who, trio, leader, requests, busy }
    });
    let resting: Vec<_> = resting.collect();
    tokio::time::sleep(SPAN).await;
    for it in &resting {
        it.print();
    }
}

impl Resting {
    fn print(&self) {
        let spent: Vec<f64> = busy(&self.trio).iter().zip(&self.busy).map(|(after, before)| after - before).collect();
        let requests = requests_since(&self.trio, &self.requests);
        let minutes = SPAN.as_secs_f64() / 60.0;
        let writer = requests.values().map(BTreeSet::len).max().unwrap_or_default();
        let others = requests.values().map(BTreeSet::len).sum::<usize>() - writer;
        let share = |led: bool| {
            let spent = self.trio.replicas.iter().zip(&spent).filter(|(replica, _)| (replica.name == self.leader) == led);
            let shares: Vec<f64> = spent.map(|(_, seconds)| seconds / SPAN.as_secs_f64() * 100.0).collect();
            shares.iter().sum::<f64>() / shares.len().max(1) as f64
        };
        println!(
            "  {:<20} leader {:>5.1}/min, {:.4} % of a core   follower {:>5.1}/min, {:.4} % of a core",
            self.who.name(),
            writer as f64 / minutes,
            share(true),
            others as f64 / 2.0 / minutes,
            share(false),
        );
    }
}

type Requests = BTreeMap<String, BTreeSet<String>>;

/// Request ids, by the client that sent them.
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

/// CPU seconds of all threads of both.
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
