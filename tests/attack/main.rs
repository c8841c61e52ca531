//! The attack on real components: a nemesis against five elections with three or four replicas each, on a real
//! kube-apiserver and etcd.
//!
//! ```text
//! cargo test --test attack                            a short one
//! TENURE_ATTACK=10m cargo test --test attack          ten minutes
//! TENURE_ATTACK=1h cargo test --test attack           before a release
//! TENURE_ATTACK_SEED=7 cargo test --test attack       the plan of that seed again
//! cargo test --test attack verdicts                   only the tests of its judge
//! ```
//!
//! In one of ten minutes or more, every fault has to strike at least once ([`complete`]).
//!
//! Every replica is PID 1 of its own PID namespace, in its own network namespace. Its workload takes a lock that all share and
//! stamps the time every millisecond; some workloads leave daemons behind, ignore SIGTERM, respawn or are slow. On one Lease the
//! replicas differ in D and rho, on one the workloads always run ([`standby`]), on one a replica is client-go's ([`peer`]); and four
//! replicas have two slots. In one world of four, every second place has an earlier tenure.
//! [`plan`] draws the faults, [`nemesis`] injects them into a [`world`], [`judge`] judges the [`history`], [`report`] and
//! [`picture`] show it. The output is kept in target/attack.

#![allow(
    clippy::expect_used,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::indexing_slicing,
    unreachable_pub,
    reason = "a test fails by panicking, and says why"
)]

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::ExitCode,
    rc::Rc,
    time::Duration,
};

use libtest_mimic::{Arguments, Trial};
use support::{Server, server};
use tenure::{clock, time::Instant};

mod apart;
mod complete;
mod fault;
mod history;
mod hold;
mod judge;
mod lease;
mod nemesis;
mod network;
mod peer;
mod picture;
mod plan;
mod processor;
mod report;
mod rights;
mod standby;
mod verdicts;
mod wall;
mod window;
mod world;
mod writes;

use history::History;
use plan::Plan;
use world::{Kind, Shared, World};

/// The program.
const TENURE: &str = env!("CARGO_BIN_EXE_tenure");

/// Time limit of the last round; if it takes longer, the server has not come back.
const OVERTIME: Duration = Duration::from_secs(180);
/// The duration without TENURE_ATTACK.
const SHORT: Duration = Duration::from_secs(40);

fn main() -> ExitCode {
    if let Some(code) = standby::face().or_else(support::workload::face) {
        return code;
    }
    support::slewed::steady();
    support::TENURE.get_or_init(|| TENURE);
    support::fresh::start();
    if let Some(directory) = apart::directory() {
        return attack(&directory);
    }
    let mut trials = verdicts::trials();
    trials.push(Trial::test("no_two_run_at_once_whatever_the_nemesis_does", || apart::run(length())));
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

fn attack(directory: &Path) -> ExitCode {
    let (length, seed) = (length(), seed());
    println!("attack: {length:?}, TENURE_ATTACK_SEED={seed}");
    network::make_bridge();
    let library = wall::library(directory);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let local = tokio::task::LocalSet::new();
    let begin = clock::boot();
    let histories = local.block_on(&runtime, async {
        let server = Server::start(server::Kind::Real);
        let shared = Rc::new(Shared { server, spans: Vec::new().into(), troubled: false.into() });
        let mut fates = Vec::new();
        for (number, kind) in (0..).zip(Kind::ALL) {
            let seed = seed.wrapping_mul(Kind::ALL.len() as u64).wrapping_add(number.into());
            let world = World::start(number, kind, shared.clone(), directory, library.as_deref(), seed).await;
            fates.push(tokio::task::spawn_local(fate(world, Plan::new(seed, kind.places()), length)));
        }
        let mut histories = Vec::new();
        for fate in fates {
            histories.push(fate.await.expect("a world without a panic"));
        }
        histories
    });
    let verdicts: Vec<_> = histories.iter().map(judge::judge).collect();
    let place = keep(&histories, begin);
    let is_clean = report::show(&histories, &verdicts);
    let complete = complete::judge(&histories, length).inspect_err(|missing| println!("VIOLATION: {missing}"));
    println!("attack: pictures and what the replicas said are in {}; TENURE_ATTACK_SEED={seed}", place.display());
    if is_clean && complete.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

async fn fate(mut world: World, plan: Plan, length: Duration) -> History {
    let end = clock::boot() + length;
    let broken_off = match tokio::time::timeout(length + OVERTIME, nemesis::rage(&mut world, plan, end)).await {
        Ok(raged) => raged.err(),
        Err(_) => Some(format!("a round did not end in {OVERTIME:?}")),
    };
    world.end().await;
    History::of(world, broken_off)
}

/// Writes the files that people look at afterwards.
fn keep(histories: &[History], begin: Instant) -> PathBuf {
    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("attack");
    drop(fs::remove_dir_all(&place));
    fs::create_dir_all(&place).expect("a directory");
    let end = clock::boot();
    for history in histories {
        let file =
            |name: &str, text: &str| fs::write(place.join(format!("world-{}-{name}", history.world)), text).expect("a file");
        let plain = picture::plain(history, begin, end);
        print!("{plain}");
        file("timeline.txt", &plain);
        for replica in &history.replicas {
            file(&format!("replica-{}.log", replica.name), &replica.lines.join("\n"));
        }
    }
    place
}

fn length() -> Duration {
    let Ok(text) = env::var("TENURE_ATTACK") else { return SHORT };
    let (number, unit) = text.split_at(text.len().saturating_sub(1));
    let seconds = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3_600,
        _ => panic!("TENURE_ATTACK={text}: write a length such as 90s, 10m or 1h"),
    };
    Duration::from_secs(
        number.parse::<u64>().unwrap_or_else(|_| panic!("TENURE_ATTACK={text}: write a length such as 10m")) * seconds,
    )
}

fn seed() -> u64 {
    env::var("TENURE_ATTACK_SEED").map_or_else(|_| fastrand::u64(..u64::from(u32::MAX)), |seed| seed.parse().expect("a number"))
}
