//! Cases: each runs against an API server, the real one or the embedded one or each of them, many at a time.

use std::{
    fs,
    path::PathBuf,
    pin::Pin,
    process::ExitCode,
    sync::{Arc, OnceLock},
};

use libtest_mimic::{Arguments, Trial};

use super::{
    fresh,
    server::{Kind, Server, scratch},
    stage::Stage,
    workload,
};

/// Cases mostly wait for deadlines, so several run at a time; with more, two busy cores delay replies enough to lose terms.
const AT_A_TIME: usize = 10;

/// A case: its name, where it runs, and what it does on its stage.
pub struct Case {
    /// As a sentence; begins with the number of the conformance case, if any.
    pub name: &'static str,
    /// The servers on which it runs, once on each.
    pub on: &'static [Kind],
    /// Its body.
    pub body: fn(Stage) -> Pin<Box<dyn Future<Output = ()>>>,
}

/// Both servers.
pub const BOTH: &[Kind] = &[Kind::Embedded, Kind::Real];

/// The real one, whose behaviour is the truth.
pub const REAL: &[Kind] = &[Kind::Real];

/// Cases of async functions that take a [`Stage`], each on both servers.
#[allow(unused_macros, reason = "each test binary has its own copy")]
macro_rules! cases {
    ($($name:ident),* $(,)?) => {
        vec![$($crate::support::case::Case {
            name: stringify!($name),
            on: $crate::support::case::BOTH,
            body: |stage| Box::pin($name(stage)),
        }),*]
    };
}
#[allow(unused_imports, reason = "likewise")]
pub(crate) use cases;

/// The `main` of a binary of cases, each with the name of its group.
pub fn main(groups: Vec<(&'static str, Vec<Case>)>) -> ExitCode {
    if let Some(code) = workload::face() {
        return code;
    }
    fresh::start();
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(AT_A_TIME);
    let servers = Arc::new(Servers::default());
    let mut trials = Vec::new();
    for (group, cases) in groups {
        for Case { name, on, body } in cases {
            for kind in on {
                let servers = servers.clone();
                let trial = Trial::test(format!("{}::{group}::{name}", kind.as_str()), move || {
                    run(servers.get(*kind), body);
                    Ok(())
                });
                trials.push(trial);
            }
        }
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// Started when the first case needs them, stopped after the last.
#[derive(Default)]
struct Servers {
    embedded: OnceLock<Server>,
    real: OnceLock<Server>,
}

impl Servers {
    fn get(&self, kind: Kind) -> &Server {
        match kind {
            Kind::Embedded => self.embedded.get_or_init(|| Server::start(kind)),
            Kind::Real => self.real.get_or_init(|| Server::start(kind)),
        }
    }
}

fn run(server: &Server, body: fn(Stage) -> Pin<Box<dyn Future<Output = ()>>>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let directory = Directory::new();
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, async {
        let stage = Stage::set(server, &directory.0).await;
        let witness = stage.witness.clone();
        body(stage).await;
        witness.assert_no_overlap();
    });
}

/// Removed together with its content.
struct Directory(PathBuf);

impl Directory {
    fn new() -> Self {
        let path = scratch("case");
        fs::create_dir(&path).expect("a new directory");
        Self(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}
