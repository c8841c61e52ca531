//! What many Leases cost an API server. Each Lease has three idle replicas, first of one contestant, then of the other.

use std::{
    fs,
    process::{Child, Command, Stdio},
    time::Duration,
};

use support::{Kept, Kind, Program, Server, Stage, server::scratch};

use crate::{
    contestant::{BOTH, Contestant, DEFAULT, FAST, Pace, Programs, SPARING},
    locks::{served, since},
    table::title,
};

const REPLICAS: usize = 3;
/// The time until all replicas have settled, so that their start is not measured.
const SETTLE: Duration = Duration::from_secs(60);
const SPAN: Duration = Duration::from_secs(180);
/// The time between two starts, so that the starts do not overload the server.
const PAUSE: Duration = Duration::from_millis(100);

pub async fn show(programs: &Programs, leases: usize) {
    for pace in [DEFAULT, FAST, SPARING] {
        show_at(programs, leases, pace).await;
    }
}

async fn show_at(programs: &Programs, leases: usize, pace: Pace) {
    title(&format!(
        "{leases} Leases of {REPLICAS} replicas each, D = {:?}, R = {:?}, at rest: what one API server does for each Lease in a minute",
        pace.duration, pace.renew_period
    ));
    let minutes = SPAN.as_secs_f64() / 60.0;
    for who in BOTH {
        // The memory of a server only grows, so each contestant gets a server of its own.
        let server = &Server::start(Kind::Real);
        let stage = Stage::set(server, &scratch("figures")).await;
        tokio::time::sleep(SETTLE).await;
        let idle = processor(server);
        tokio::time::sleep(SPAN / 3).await;
        let (own, memory) = (processor(server) - idle, resident(server));

        let mut replicas = Vec::new();
        for replica in 0..leases * REPLICAS {
            replicas.push(Kept(start(programs, who, &stage, replica % leases, replica, pace)));
            tokio::time::sleep(PAUSE).await;
        }
        tokio::time::sleep(SETTLE).await;
        let (before, requests) = (processor(server), served(stage.kubeconfig()));
        tokio::time::sleep(SPAN).await;
        let (after, requests) = (processor(server), since(&requests, &served(stage.kubeconfig())));
        let memory = resident(server) - memory;
        let alive = replicas.iter_mut().map(|it| it.0.try_wait()).filter(|ended| matches!(ended, Ok(None))).count();
        drop(replicas);

        let each = |amount: f64| amount / minutes / leases as f64;
        let counts = requests.iter().map(|(what, count)| format!("{what} {:.1}", each(*count)));
        let spent = after - before - own * 3.0;
        println!(
            "  {:<20} {}   ({alive} of {} replicas live)",
            who.name(),
            counts.collect::<Vec<_>>().join(", "),
            leases * REPLICAS
        );
        println!(
            "  {:<20} processor {:.1} ms, memory {:.0} KiB more than without; so 1 000 Leases take {:.2} cores and {:.0} MiB, if \
             each costs the same",
            "",
            each(spent) * 1e3,
            memory / 1024.0 / leases as f64,
            each(spent) * 1000.0 / 60.0,
            memory / 1024.0 / 1024.0 * 1000.0 / leases as f64,
        );
    }
}

fn start(programs: &Programs, who: Contestant, stage: &Stage, lease: usize, replica: usize, pace: Pace) -> Child {
    let lease = format!("scale-{lease}");
    let mut line = Command::new("setpriv");
    line.args(["--pdeathsig", "TERM"]).arg(programs.of(who));
    match who {
        Contestant::Tenure | Contestant::Fuseless | Contestant::Frozen | Contestant::Witnessed => {
            line.args(["--lease", &lease, "--namespace", &stage.namespace, "--set", "lease.creationWait=0s"]);
        }
        Contestant::ClientGo | Contestant::AwaitElection => {
            line.args([
                &format!("--lease={lease}"),
                &format!("--namespace={}", stage.namespace),
                &format!("--identity=r{replica}"),
            ]);
        }
    }
    line.args(pace.flags(who)).args(["--", "sleep", "inf"]);
    line.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default()).env("KUBECONFIG", stage.kubeconfig());
    line.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("a replica")
}

/// Seconds of processor time that the API server has used.
fn processor(server: &Server) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{}/stat", server.pid(Program::ApiServer))).expect("it lives");
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    // utime and stime are the 14th and the 15th field of proc(5), in ticks of 10 ms.
    let ticks = |at: usize| fields.get(at).and_then(|ticks| ticks.parse::<f64>().ok()).unwrap_or_default();
    (ticks(11) + ticks(12)) / 100.0
}

/// Bytes.
fn resident(server: &Server) -> f64 {
    let statm = fs::read_to_string(format!("/proc/{}/statm", server.pid(Program::ApiServer))).expect("it lives");
    let pages = statm.split(' ').nth(1).and_then(|pages| pages.parse::<f64>().ok()).unwrap_or_default();
    pages * 4096.0
}
