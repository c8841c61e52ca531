//! The end of init: signals that ask for it, what it waits for, and the exit code.

use crate::{
    config::{OnExit, Signal},
    link::{Exit, FLUSH, Reason, ToElector},
    time::Instant,
};

use super::{Action, ActiveTerm, Agent};

const UNFINISHED: &str = "init ends before the elector has said what became of the Lease: the others may have to wait for it";

/// Init was asked, or has reason, to end.
#[derive(Clone, Debug)]
pub(super) struct Shutdown {
    /// None: the workload's own.
    code: Option<u8>,
    /// If none ran.
    code_of_nothing: u8,
    /// What is said last.
    pub(super) why: Option<String>,
    /// TERM so far, and INT and QUIT where they were for init alone.
    signals: u8,
    /// The workload was sent INT or QUIT in place of its stop signal.
    passed: bool,
    elector: Informed,
    /// The wait ends here. Set once nothing of a leader runs any more.
    by: Option<Instant>,
}

/// What the elector knows of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Informed {
    No,
    Yes,
    /// It has nothing left to do.
    Done,
}

impl Shutdown {
    pub(super) const fn with(code: Option<u8>) -> Self {
        Self { code, code_of_nothing: 0, why: None, signals: 0, passed: false, elector: Informed::No, by: None }
    }

    /// The current elector knows.
    pub(super) fn was_told(&mut self) {
        if self.elector == Informed::No {
            self.elector = Informed::Yes;
        }
    }

    /// Whoever asked for it has asked again.
    pub(super) const fn is_urgent(&self) -> bool {
        self.signals > 1
    }

    pub(super) const fn done(&mut self) {
        self.elector = Informed::Done;
    }

    /// While init ends, an elector is replaced only for the release.
    pub(super) fn wants_elector(&self, term: Option<&ActiveTerm>) -> bool {
        self.elector != Informed::Done && term.is_some()
    }

    /// The wait for the elector ends at E at the latest.
    pub(super) fn due(&self, term: Option<&ActiveTerm>) -> Option<Instant> {
        let end = term.map(|term| term.deadlines().end);
        Some(self.by?.or_earlier(end))
    }
}

impl Agent {
    /// A signal to init.
    pub(super) fn signalled(&mut self, signal: Signal, now: Instant) {
        self.stop_now(now);
        match signal.0 {
            libc::SIGTERM if self.is_put_off(signal, now) => {}
            libc::SIGTERM => self.asked_to_end(signal, None, now),
            libc::SIGINT | libc::SIGQUIT if !self.workload.is_running() => self.asked_to_end(signal, None, now),
            // The program may handle it and go on, as a JVM does with QUIT; if it ends instead, so does init.
            libc::SIGINT | libc::SIGQUIT if self.is_plain() && self.config.config.workload.on_exit != OnExit::Restart => {
                self.workload.forward(signal);
            }
            libc::SIGINT | libc::SIGQUIT => {
                if let Some(passed) = self.workload.rewritten(signal) {
                    self.asked_to_end(signal, Some(passed).filter(|signal| !self.workload.tells_a_role(*signal)), now);
                }
            }
            _ => self.workload.forward(signal),
        }
    }

    /// The first TERM leaves the planned grace, the second that of a loss, the third kills at once. The fourth does not even wait
    /// for the Lease to be given back. A `signal` that is passed on begins a stop, and hastens none.
    pub(super) fn asked_to_end(&mut self, by: Signal, signal: Option<Signal>, now: Instant) {
        // The exit code of a standby that waits to be started again does not count here.
        let nothing_runs = self.workload.is_down() && self.term.is_none() && !self.is_plain();
        // A script must not believe that its command ran.
        let is_awaited = self.config.preset.is_once() || self.is_plain();
        let code_of_nothing = if is_awaited { Exit::Signal(by.0).code() } else { 0 };
        let begin = || Shutdown { code_of_nothing, ..Shutdown::with(nothing_runs.then_some(code_of_nothing)) };
        let shutdown = self.shutdown.get_or_insert_with(begin);
        shutdown.signals = shutdown.signals.saturating_add(signal.is_none().into());
        let stop = &self.config.config.workload.stop;
        let hastens = shutdown.is_urgent();
        let kill_at = match shutdown.signals {
            0 | 1 => now + stop.grace,
            2 => now + stop.loss_grace,
            _ => now,
        };
        match (self.workload.is_stopping(), signal) {
            (true, Some(signal)) => self.workload.pass(signal),
            (true, None) if std::mem::take(&mut shutdown.passed) => {
                self.workload.pass(stop.signal);
                self.workload.go_on();
            }
            (true, None) => {}
            (false, signal) => shutdown.passed = signal.is_some(),
        }
        if self.workload.is_down() {
            self.workload.hold();
        } else if shutdown.signals == 1 && signal.is_none() && self.workload.prepares_to_follow() {
            self.begin_stop(Reason::Signal, now);
            self.give_way(now);
        } else {
            self.workload.stop(signal, kill_at, now);
            if hastens {
                self.workload.hasten(kill_at);
            }
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
            self.begin_shutdown(Some(code));
        }
        let waits = self.waits_to_end();
        let pid1 = self.config.pid1;
        let Some(shutdown) = &mut self.shutdown else { return };
        // Also while a standby still stops: a replica that is to end takes no Lease that it would have to hold meanwhile.
        if self.term.is_none() && self.electors.is_greeted() && shutdown.elector == Informed::No {
            shutdown.was_told();
            self.actions.push_back(Action::Tell(ToElector::Shutdown));
        }
        if waits {
            shutdown.by.get_or_insert_with(|| now + self.timing.release_limit().saturating_add(FLUSH));
        }
        let is_pressed = pid1 && shutdown.signals > 3;
        let is_due = shutdown.due(self.term.as_ref()).is_some_and(|at| at <= now);
        let is_over = if self.workload.is_down() {
            let unneeded = match &self.term {
                Some(_) => self.failed.is_some(),
                None => !self.electors.is_greeted(),
            };
            unneeded || is_due || shutdown.elector == Informed::Done || shutdown.signals > 3
        } else if self.is_plain() {
            self.is_left_to_the_kernel()
        } else {
            // Nobody need wait for what a standby leaves and SIGKILL does not remove, and with PID 1 the kernel ends the rest.
            waits && is_due || is_pressed
        };
        if is_over {
            self.finish(now);
        } else if !self.workload.is_down() && !waits && !self.workload.is_stopping() && !self.workload.is_yielding() {
            self.workload.stop(None, now + self.config.config.workload.stop.grace, now);
        }
    }

    /// Without a Lease nobody waits for the proof: what is left ends with PID 1, or does not die.
    fn is_left_to_the_kernel(&self) -> bool {
        let is_stuck = self.workload.is_stuck();
        let is_impatient = self.shutdown.as_ref().is_some_and(|shutdown| shutdown.signals > 2);
        let is_hopeless = self.config.pid1 || is_stuck || is_impatient;
        self.workload.is_being_swept() && is_hopeless || self.config.pid1 && is_stuck
    }

    fn finish(&mut self, now: Instant) {
        let is_left = self.workload.is_stuck() || self.workload.leads();
        let never_reaped = || is_left.then_some(Exit::Signal(libc::SIGKILL));
        let of_nothing = self.shutdown.as_ref().map_or(0, |shutdown| shutdown.code_of_nothing);
        let own = || self.workload.exit().or_else(never_reaped).map_or(of_nothing, Exit::code);
        let code = self.shutdown.as_ref().and_then(|shutdown| shutdown.code).unwrap_or_else(own);
        // One that hangs would not write the warning.
        self.give_elector_up(now);
        if self.term.is_some() {
            self.warn(UNFINISHED.into());
        }
        if let Some(why) = self.shutdown.as_mut().and_then(|shutdown| shutdown.why.take()) {
            self.actions.push_back(Action::TerminationMessage(why));
        }
        self.exit(code);
    }
}
