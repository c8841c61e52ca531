//! The scan that ends each step of the kill ladder.

use std::io;

use crate::{
    process::{
        Pid,
        kill::{self, Left, Sweep, Verdict},
        scan::{Scanner, Scope, Spare},
    },
    supervision::Scan,
};

/// What init needs to look and to kill; opened with the first use.
#[derive(Debug)]
pub(super) struct Prover {
    pid1: bool,
    sweep: Option<Sweep>,
    scanner: Option<Scanner>,
}

impl Prover {
    pub(super) const fn new(pid1: bool) -> Self {
        Self { pid1, sweep: None, scanner: None }
    }

    /// SIGKILL to everything but init and these electors, and what was found. Everybody who can be was reaped before.
    pub(super) fn walk(&mut self, electors: &[Pid]) -> Scan {
        let scope = self.scope();
        let spare = Spare { init: Pid::this(), electors };
        if self.sweep.is_none() {
            self.sweep = Sweep::open().ok();
        }
        let verdict = match &mut self.sweep {
            Some(sweep) => sweep.pass(scope, spare),
            None => Err(io::ErrorKind::Unsupported.into()),
        };
        match verdict {
            Ok(Verdict::Proved) => {
                self.sweep.iter_mut().for_each(Sweep::begin);
                Scan { clean: true, ..Scan::default() }
            }
            Ok(Verdict::Left(left)) => scan(&left),
            // Without /proc the kernel still knows whether PID 1 is alone.
            Err(_) => Scan { clean: self.pid1 && electors.is_empty() && kill::is_alone().unwrap_or(false), ..Scan::default() },
        }
    }

    /// What there is, and no signal.
    pub(super) fn look(&mut self, electors: &[Pid]) -> Scan {
        let scope = self.scope();
        let spare = Spare { init: Pid::this(), electors };
        let Some(found) = self.scanner().and_then(|scanner| scanner.find(scope, spare).ok()) else { return Scan::default() };
        let left: Vec<i32> = found.targets.iter().map(|process| process.pid.as_raw()).collect();
        Scan { clean: left.is_empty() && found.unclear == 0, left, ..Scan::default() }
    }

    /// To look at single processes.
    pub(super) fn scanner(&mut self) -> Option<&mut Scanner> {
        if self.scanner.is_none() {
            self.scanner = Scanner::open().ok();
        }
        self.scanner.as_mut()
    }

    const fn scope(&self) -> Scope<'static> {
        if self.pid1 { Scope::Namespace } else { Scope::Descendants }
    }
}

fn scan(left: &Left) -> Scan {
    Scan {
        clean: false,
        left: left.pids.iter().map(|pid| pid.as_raw()).collect(),
        denied: !left.refused.is_empty(),
        killed: left.seen > left.refused.len(),
    }
}
