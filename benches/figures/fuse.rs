//! What the kernel's fuse is worth.
//!
//! Two leaders run on a starved machine, and the kernel denies the fuse to one of them. Then both processes of a leader are frozen.

use std::{
    fs,
    os::unix::{fs::FileExt as _, process::CommandExt as _},
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
    time::Duration,
};

use support::{Behaviour, Server, Stage, server::scratch};
use tenure::{clock, time::Instant};

use crate::{
    contestant::{CROWDED, Contestant, Programs, Replica},
    faults::{self, Fault},
    table::{quantile, title},
};

const PAIR: [Contestant; 2] = [Contestant::Tenure, Contestant::Fuseless];

const FACE: &str = "crowd";

/// What takes the CPU time from both leaders.
#[derive(Clone, Copy, Debug)]
enum Strain {
    /// Each workload contains a crowd of spinners.
    Crowd,
    /// Each replica as a whole gets a twentieth of a CPU.
    Quota,
}

impl Strain {
    const fn describe(self) -> &'static str {
        match self {
            Self::Crowd => "200 spinners, 100 in each workload",
            Self::Quota => "0.05 processors for each replica, 100 spinners in each workload",
        }
    }
}

/// Spinners in each workload.
const CROWD: usize = 100;

pub async fn show(server: &Server, programs: &Programs, rounds: usize) {
    title("Init and elector both frozen by SIGSTOP, D = 15 s, three replicas; resumed 10 s after the next leader started");
    for who in PAIR {
        faults::one(server, programs, who, Fault::BothFrozen).await;
    }
    for strain in [Strain::Crowd, Strain::Quota] {
        title(&format!(
            "Last instruction of a workload that ignores its stop signal, after H; {}; D = {:?}, both cut off at the same time, {rounds} rounds",
            strain.describe(),
            CROWDED.duration
        ));
        let mut late: [Vec<f64>; 2] = Default::default();
        for number in 0..rounds {
            // The leader that comes first is cut off first.
            let mut order = [0, 1];
            order.rotate_left(number % 2);
            let Some(round) = Round::start(server, programs, strain, order.map(|at| PAIR[at])).await else {
                println!("  NOT MEASURED: no cgroup with a quota can be made here");
                break;
            };
            for (at, figure) in order.into_iter().zip(round.lateness().await) {
                late[at].push(figure);
            }
        }
        for (who, late) in PAIR.iter().zip(&late).filter(|(_, late)| !late.is_empty()) {
            let figures: Vec<String> = late.iter().map(|figure| format!("{figure:.0}")).collect();
            println!(
                "  {:<20} median {:>8.1} ms   max {:>8.1} ms   each: {}",
                who.name(),
                quantile(late, 0.5),
                quantile(late, 1.0),
                figures.join(" ")
            );
        }
    }
}

/// Two leaders, each with its own Lease, under the same strain.
struct Round {
    sides: Vec<(Stage, Replica)>,
    quotas: Vec<Quota>,
    strain: Strain,
}

impl Round {
    async fn start(server: &Server, programs: &Programs, strain: Strain, pair: [Contestant; 2]) -> Option<Self> {
        let (mut sides, mut quotas) = (Vec::new(), Vec::new());
        for who in pair {
            let quota = Quota::make()?;
            let stage = Stage::set(server, &scratch("figures")).await;
            let workload = crowd(CROWD, stage.directory());
            let replica = Replica::start_as(programs, who, &stage, "me", CROWDED, &quota.enter(), &workload, true).await;
            sides.push((stage, replica));
            quotas.push(quota);
        }
        Some(Self { sides, quotas, strain })
    }

    /// How late each side was, in milliseconds.
    async fn lateness(self) -> Vec<f64> {
        for (stage, replica) in &self.sides {
            stage.witness.start("me", 0).await;
            let log = &replica.proxy.as_ref().expect("a proxy").log;
            log.nth(1, "a renewal", |exchange| exchange.request.is_held() && exchange.succeeded()).await;
        }
        for (_, replica) in &self.sides {
            replica.proxy.as_ref().expect("a proxy").cut();
        }
        let (mut hard, now) = (Vec::new(), clock::now());
        for (stage, _) in &self.sides {
            let lease = stage.lease.read().await.expect("a Lease");
            let sent: jiff::Timestamp = lease["spec"]["renewTime"].as_str().and_then(|time| time.parse().ok()).expect("a time");
            let ago = u64::try_from(now.wall - sent.as_microsecond()).expect("a write of the past");
            hard.push(CROWDED.timing().deadlines(now.boot.before(Duration::from_micros(ago))).hard);
        }
        if matches!(self.strain, Strain::Quota) {
            self.quotas.iter().for_each(Quota::impose);
        }
        let last = self.silence(hard.iter().copied().max().expect("two")).await;
        let late = |(last, hard): (Instant, Instant)| match last > hard {
            true => last.since(hard).as_secs_f64() * 1e3,
            false => -(hard.since(last).as_secs_f64() * 1e3),
        };
        last.into_iter().zip(hard).map(late).collect()
    }

    /// The last sign of life of each workload, once there has been none for a while after the kill deadline.
    async fn silence(&self, hard: Instant) -> Vec<Instant> {
        const WHILE: Duration = Duration::from_secs(4);
        tokio::time::sleep(hard.since(clock::boot())).await;
        loop {
            tokio::time::sleep(WHILE).await;
            let last: Vec<Instant> = self.sides.iter().map(|(stage, _)| stage.witness.last_alive("me")).collect();
            if last.iter().all(|last| clock::boot().since(*last) > WHILE) {
                return last;
            }
        }
    }
}

/// The command line of a workload with this many spinners in its process group.
fn crowd(count: usize, directory: &Path) -> Vec<String> {
    let program = std::env::current_exe().expect("this benchmark");
    let line = [program.to_string_lossy().into_owned(), FACE.into(), count.to_string(), directory.to_string_lossy().into_owned()];
    line.into_iter().chain(Behaviour::stubborn().command(directory, "me")).collect()
}

/// Runs as a crowd or one of its spinners, if this process was started as such.
#[allow(clippy::zombie_processes, reason = "init reaps them")]
pub fn face() -> Option<ExitCode> {
    let line: Vec<String> = std::env::args().collect();
    let [program, face, count, directory, rest @ ..] = line.as_slice() else { return None };
    if face != FACE {
        return None;
    }
    let [workload, arguments @ ..] = rest else { spin(Path::new(directory)) };
    for _ in 0..count.parse().expect("a number") {
        Command::new(program).args([FACE, "1", directory]).stdin(Stdio::null()).spawn().expect("a spinner");
    }
    let error = Command::new(workload).args(arguments).exec();
    panic!("{workload}: {error}");
}

/// Stamps the time without a pause.
fn spin(directory: &Path) -> ! {
    let token = std::env::var("TENURE_FENCING_TOKEN").unwrap_or_default();
    let name = format!("stamps/me@{token}@{}@{}", std::process::id(), clock::boot().as_nanos());
    let stamps = fs::File::create(directory.join(name)).expect("a file of stamps");
    let mut offset = 0;
    loop {
        stamps.write_all_at(&clock::boot().as_nanos().to_le_bytes(), offset).expect("a stamp");
        offset = 8;
    }
}

/// A cgroup for one replica.
struct Quota(PathBuf);

impl Quota {
    /// Creates a cgroup, if this machine permits it.
    fn make() -> Option<Self> {
        let name = format!("tenure-figures-{:08x}", fastrand::u32(..));
        let roots = ["/sys/fs/cgroup/cpu", "/sys/fs/cgroup"];
        let group = roots.iter().map(|root| Path::new(root).join(&name)).find(|group| fs::create_dir(group).is_ok())?;
        (group.join("cpu.max").exists() || group.join("cpu.cfs_quota_us").exists()).then_some(Self(group))
    }

    /// The command that runs its arguments in the cgroup.
    fn enter(&self) -> Vec<String> {
        let file = self.0.join("cgroup.procs");
        ["sh", "-c", "echo 0 >\"$0\" && exec \"$@\"", &file.to_string_lossy()].map(str::to_owned).into()
    }

    fn impose(&self) {
        let (file, quota) = match self.0.join("cpu.max") {
            file if file.exists() => (file, "5000 100000"),
            _ => (self.0.join("cpu.cfs_quota_us"), "5000"),
        };
        fs::write(file, quota).expect("a quota");
    }
}

impl Drop for Quota {
    fn drop(&mut self) {
        // The replica was dropped before this; its last processes may take a moment to end.
        let _ = (0..500).find(|_| {
            std::thread::sleep(Duration::from_millis(10));
            fs::remove_dir(&self.0).is_ok()
        });
    }
}
