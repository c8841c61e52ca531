//! Cases: each runs against an API server, the real one or the embedded one or each of them, many at a time.

use std::{
    pin::Pin,
    process::ExitCode,
    sync::{Arc, OnceLock},
};

use libtest_mimic::{Arguments, Trial};

use super::{
    Scratch, TENURE, Witness, fresh, safety,
    server::{Kind, Server, minor, scratch},
    stage::Stage,
    workload,
};

/// Cases mostly wait for deadlines, so several run at a time: as many as keep two cores busy. With more, replies come late enough to lose
/// terms.
const AT_A_TIME: usize = 14;

/// A case: its name, where it runs, and what it does on its stage.
pub struct Case {
    /// As a sentence; begins with the number of the conformance case, if any.
    pub name: &'static str,
    /// The servers on which it runs, once on each.
    pub on: &'static [Kind],
    /// The minor of Kubernetes that brought what it needs; on an older server it is ignored.
    pub since: u32,
    /// Its body.
    pub body: fn(Stage) -> Pin<Box<dyn Future<Output = ()>>>,
}

impl Case {
    /// A case for servers of any minor.
    pub const fn new(name: &'static str, on: &'static [Kind], body: fn(Stage) -> Pin<Box<dyn Future<Output = ()>>>) -> Self {
        Self { name, on, since: 0, body }
    }

    /// The same for a server of this minor of Kubernetes or a later one.
    #[must_use]
    pub const fn since(self, minor: u32) -> Self {
        Self { since: minor, ..self }
    }
}

/// Both servers.
pub const BOTH: &[Kind] = &[Kind::Embedded, Kind::Real];

/// The embedded one, for what does not depend on the server.
pub const EMBEDDED: &[Kind] = &[Kind::Embedded];

/// The real one, whose behaviour is the truth.
pub const REAL: &[Kind] = &[Kind::Real];

/// Cases of async functions that take a [`Stage`], each on the real server: `cases![a, b]`. Others: `cases![BOTH: a, b]`,
/// functions that block and take a `&Stage`: `cases![blocking: a, b]`, or a `&Namespace`: `cases![restricted: a, b]`. Cases that
/// differ only in values: `cases![each f: a(1); b(2);]`, for a function that takes a Stage and these.
#[macro_export]
macro_rules! cases {
    (each $function:ident: $($name:ident($($argument:expr),* $(,)?);)*) => {
        vec![$($crate::Case::new(stringify!($name), $crate::REAL, |stage| Box::pin($function(stage, $($argument),*)))),*]
    };
    (blocking: $($name:ident),* $(,)?) => {
        vec![$($crate::Case::new(stringify!($name), $crate::REAL, |stage| Box::pin(async move { $name(&stage) }))),*]
    };
    (restricted: $($name:ident),* $(,)?) => {
        vec![$($crate::Case::new(stringify!($name), $crate::REAL, |stage| {
            Box::pin(async move { $name(&$crate::Namespace::restricted(&stage)) })
        })),*]
    };
    ($on:ident: $($name:ident),* $(,)?) => {
        vec![$($crate::Case::new(stringify!($name), $crate::case::$on, |stage| Box::pin($name(stage)))),*]
    };
    ($($name:ident),* $(,)?) => { $crate::cases![REAL: $($name),*] };
}

/// Trials of functions without parameters: `trials![a_module: a, b; another: c]`.
#[macro_export]
macro_rules! trials {
    ($($module:ident: $($name:ident),* $(,)?);* $(;)?) => {
        vec![$($($crate::Trial::test(concat!(stringify!($module), "::", stringify!($name)), || {
            $module::$name();
            Ok(())
        })),*),*]
    };
}

/// The `main` of a binary of cases of the program at this path, each with the name of its group.
pub fn main(tenure: &'static str, groups: Vec<(&'static str, Vec<Case>)>) -> ExitCode {
    if let Some(code) = workload::face() {
        return code;
    }
    TENURE.get_or_init(|| tenure);
    fresh::start();
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(AT_A_TIME);
    let servers = Arc::new(Servers::default());
    let mut trials = Vec::new();
    for (group, cases) in groups {
        for Case { name, on, since, body } in cases {
            for kind in on {
                let servers = servers.clone();
                let trial = Trial::test(format!("{}::{group}::{name}", kind.as_str()), move || {
                    run(servers.get(*kind), body);
                    Ok(())
                });
                trials.push(trial.with_ignored_flag(*kind == Kind::Real && since > minor()));
            }
        }
    }
    // The cases of one group wait alike, or compute alike: mixed, they keep the cores evenly busy.
    fastrand::Rng::with_seed(0).shuffle(&mut trials);
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
    let directory = Scratch::at(scratch("case"));
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, async {
        let stage = Stage::set(server, &directory).await;
        let judge = Judge(stage.witness.clone());
        body(stage).await;
        judge.0.assert_no_overlap();
    });
}

/// Looks for two workloads at once in a case that fails for another reason, too.
struct Judge(Arc<Witness>);

impl Drop for Judge {
    fn drop(&mut self) {
        if std::thread::panicking()
            && let Some(overlap) = self.0.overlap()
        {
            safety::report(&overlap);
        }
    }
}
