//! The end of init: signals that ask for it, what it waits for, and the exit code.

use crate::{
    config::{OnExit, Signal},
    link::{Exit, FLUSH, Reason, ToElector},
    time::Instant,
};

use super::{Action, Agent, Held};

/// Init was asked, or has reason, to end.
#[derive(Clone, Debug)]
pub(super) struct Ending {
    /// None: the workload's own, 0 if none ran.
    code: Option<u8>,
    /// TERM so far, and INT and QUIT where they were for init alone.
    signals: u8,
    /// The workload was sent INT or QUIT in place of its stop signal.
    passed: bool,
    /// The current elector knows.
    pub(super) told: bool,
    /// The wait ends here. Set once nothing of a leader runs any more.
    by: Option<Instant>,
    /// The elector has nothing left to do.
    done: bool,
}

impl Ending {
    pub(super) const fn with(code: Option<u8>) -> Self {
        Self { code, signals: 0, passed: false, told: false, by: None, done: false }
    }

    pub(super) const fn done(&mut self) {
        self.done = true;
    }

    /// While init ends, an elector is replaced only for the release.
    pub(super) const fn wants_elector(&self, held: Option<&Held>) -> bool {
        !self.done && held.is_some()
    }

    /// The wait for the elector ends at E at the latest.
    pub(super) fn due(&self, held: Option<&Held>) -> Option<Instant> {
        let end = held.map(|held| held.deadlines().end);
        Some(self.by?.or_earlier(end))
    }
}

impl Agent {
    /// A signal to init.
    pub(super) fn signalled(&mut self, signal: Signal, now: Instant) {
        match signal.0 {
            libc::SIGTERM => self.asked_to_end(None, now),
            libc::SIGINT | libc::SIGQUIT if !self.workload.is_running() => self.asked_to_end(None, now),
            // The program may handle it and go on, as a JVM does with QUIT; if it ends instead, so does init.
            libc::SIGINT | libc::SIGQUIT if self.is_plain() && self.settings.config.workload.on_exit != OnExit::Restart => {
                self.workload.forward(signal);
            }
            libc::SIGINT | libc::SIGQUIT => {
                if let Some(signal) = self.workload.rewritten(signal) {
                    self.asked_to_end(Some(signal).filter(|signal| !self.workload.tells_a_role(*signal)), now);
                }
            }
            _ => self.workload.forward(signal),
        }
    }

    /// The first TERM leaves the planned grace, the second that of a loss, the third kills at once. The fourth does not even wait
    /// for the Lease to be given back. A `signal` that is passed on begins a stop, and hastens none.
    fn asked_to_end(&mut self, signal: Option<Signal>, now: Instant) {
        // The exit code of a standby that waits to be started again does not count here.
        let nothing_runs = self.workload.is_down() && self.held.is_none() && !self.is_plain();
        let ending = self.ending.get_or_insert_with(|| Ending::with(nothing_runs.then_some(0)));
        ending.signals = ending.signals.saturating_add(signal.is_none().into());
        let stop = &self.settings.config.workload.stop;
        let kill_at = match ending.signals {
            0 | 1 => now + stop.grace,
            2 => now + stop.loss_grace,
            _ => now,
        };
        match (self.workload.is_ending(), signal) {
            (true, Some(signal)) => self.workload.pass(signal),
            (true, None) if std::mem::take(&mut ending.passed) => {
                self.workload.pass(stop.signal);
                self.workload.pass(Signal(libc::SIGCONT));
            }
            (true, None) => {}
            (false, signal) => ending.passed = signal.is_some(),
        }
        if self.workload.is_down() {
            self.workload.hold();
        } else {
            self.workload.stop(signal, kill_at, now);
        }
        self.begin_stop(Reason::Signal, now);
    }

    /// Whether nothing of a leader runs, nor anything that has only been asked to end: the wait for what is left has a limit.
    pub(super) fn waits_to_end(&self) -> bool {
        self.workload.is_down() || !self.workload.leads() && self.workload.is_being_killed()
    }

    /// Ends init once nothing runs and the elector has nothing left to do, or had time enough.
    pub(super) fn end(&mut self, now: Instant) {
        if let Some(code) = self.failed
            && !self.workload.leads()
        {
            self.ending.get_or_insert_with(|| Ending::with(Some(code)));
        }
        let waits = self.waits_to_end();
        let Some(ending) = &mut self.ending else { return };
        let killed = Exit::Signal(libc::SIGKILL);
        let never_reaped = || self.workload.is_stuck().then_some(killed);
        let code = ending.code.unwrap_or_else(|| self.workload.exit().or_else(never_reaped).map_or(0, Exit::code));
        let config = &self.settings.config;
        let patience = config.timing().release_limit().saturating_add(FLUSH);
        // Also while a standby still stops: a replica that is to end takes no Lease that it would have to hold meanwhile.
        if self.held.is_none() && self.electors.is_greeted() && !ending.told {
            ending.told = true;
            self.actions.push_back(Action::Tell(ToElector::Shutdown));
        }
        if !self.workload.is_down() {
            let is_hopeless = || self.settings.pid1 || self.workload.is_stuck() || ending.signals > 2;
            let ends_with_init = self.settings.pid1 && self.workload.is_stuck();
            if !config.lease.enabled && (self.workload.is_being_swept() && is_hopeless() || ends_with_init) {
                // What is left ends with PID 1 or does not die, and nobody else waits for the proof.
                self.exit(code);
            } else if waits {
                // Nobody need wait for what a standby leaves and SIGKILL does not remove.
                ending.by.get_or_insert(now + patience);
                if ending.due(self.held.as_ref()).is_some_and(|at| at <= now) {
                    self.give_elector_up(now);
                    self.exit(code);
                }
            } else if !self.workload.is_ending() {
                self.workload.stop(None, now + config.workload.stop.grace, now);
            }
            return;
        }
        let by = *ending.by.get_or_insert(now + patience);
        let over = match &self.held {
            Some(held) => now >= held.deadlines().end || self.failed.is_some(),
            None => !self.electors.is_greeted(),
        };
        if over || ending.done || now >= by || ending.signals > 3 {
            // One that hangs would not write the warning.
            self.give_elector_up(now);
            if self.held.is_some() {
                self.warn(
                    "init ends before the elector has said what became of the Lease: the others may have to wait for it".into(),
                );
            }
            self.exit(code);
        }
    }
}
