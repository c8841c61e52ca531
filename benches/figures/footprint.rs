//! The memory of one idle leader, alone and with a witness beside it, and the size of its binary.

use std::{fs, time::Duration};

use nix::unistd::Pid;
use support::{Behaviour, Server, Stage, server::scratch};

use crate::{
    contestant::{Contestant, DEFAULT, Programs, Replica},
    table::title,
};

pub async fn show(server: &Server, programs: &Programs) {
    title("Footprint of one idle leader, alone on the machine, OTLP off (smaps_rollup)");
    for who in [Contestant::Tenure, Contestant::Witnessed, Contestant::ClientGo] {
        let stage = Stage::set(server, &scratch("figures")).await;
        let replica = Replica::start(programs, who, &stage, "r1", DEFAULT, &Behaviour::obedient(), false).await;
        stage.witness.nth_within(Duration::from_secs(60), 0, "the workload starts", |event| event.what == "start").await;
        tokio::time::sleep(Duration::from_secs(10)).await;
        let (init, elector) = (replica.init(), replica.elector());
        let size = fs::metadata(programs.of(who)).expect("the program").len() as f64 / 1_048_576.0;
        let name = who.name();
        match who {
            Contestant::Tenure | Contestant::Fuseless | Contestant::Frozen | Contestant::Witnessed => {
                let (init, elector, witness) = (pss(init), pss(elector), replica.witness().map_or(0.0, pss));
                println!(
                    "  {name:<20} PSS {:.2} MiB: init {init:.2}, elector {elector:.2}, witness {witness:.2}; binary {size:.2} MiB",
                    init + elector + witness
                );
            }
            Contestant::ClientGo | Contestant::AwaitElection => {
                println!("  {name:<20} PSS {:.2} MiB; binary {size:.2} MiB", pss(init))
            }
        }
    }
}

fn pss(pid: Pid) -> f64 {
    let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).expect("smaps_rollup");
    let line = rollup.lines().find_map(|line| line.strip_prefix("Pss:")).expect("Pss");
    line.trim().trim_end_matches(" kB").parse::<f64>().expect("a number") / 1024.0
}
