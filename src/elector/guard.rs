//! The second guard: SIGKILL at H if init does not send it (law 3).
//!
//! Owns a thread that does nothing else, on its own timer, so that a hanging loop, a blocking plugin or a starved runtime cannot
//! delay it. After H it needs no network, no allocator, and no lock but the one that the disarming call takes. It kills
//! repeatedly until it is disarmed. Init is the first guard. Both know H as an absolute time, and neither asks the other.

use std::{
    io,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use crate::{
    alarm::Alarm,
    clock,
    election::guard_deadline::GuardDeadline,
    link::{Term, ToElector, ToInit},
    time::Instant,
};

/// The pause between two rounds of SIGKILL.
const ROUND: Duration = Duration::from_millis(50);

/// The time that the loop gets for a turn, in which it reads a proof that came before H.
const TURN: Duration = Duration::from_millis(20);

/// The guard's handle. The thread lives as long as the process.
#[derive(Debug)]
pub(super) struct Guard {
    shared: Arc<Shared>,
    armed: GuardDeadline,
}

#[derive(Debug)]
struct Shared {
    alarm: Alarm,
    /// H in nanoseconds; [`Instant::NEVER`] while disarmed.
    hard: AtomicU64,
    /// Held during a round.
    round: Mutex<()>,
}

impl Guard {
    /// Starts the thread, disarmed. `kill` is one round.
    ///
    /// # Errors
    /// There is no timer or no thread.
    pub(super) fn start(kill: impl FnMut() + Send + 'static) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            alarm: Alarm::blocking()?,
            hard: AtomicU64::new(Instant::NEVER.as_nanos()),
            round: Mutex::new(()),
        });
        let own = Arc::clone(&shared);
        thread::Builder::new().name("guard".into()).spawn(move || own.run(kill))?;
        Ok(Self { shared, armed: GuardDeadline::disarmed() })
    }

    /// Follows the deadlines that init is told.
    pub(super) fn telling(&mut self, message: &ToInit) {
        self.change(|armed| armed.telling(message));
    }

    /// A proof of death disarms (law 3): no round that is still under way hits what is started from now on.
    pub(super) fn told(&mut self, message: &ToElector) {
        self.change(|armed| armed.told(message));
    }

    /// Kills from `hard` on.
    pub(super) fn arm(&mut self, term: Term, hard: Instant) {
        self.change(|armed| armed.arm(term, hard));
    }

    /// Stops killing.
    pub(super) fn disarm(&mut self) {
        self.change(GuardDeadline::disarm);
    }

    fn change(&mut self, change: impl FnOnce(&mut GuardDeadline)) {
        let before = self.armed.hard();
        change(&mut self.armed);
        if self.armed.hard() != before {
            self.shared.set(self.armed.hard());
        }
    }
}

impl Shared {
    fn set(&self, hard: Instant) {
        self.hard.store(hard.as_nanos(), Ordering::SeqCst);
        self.arm();
        if hard == Instant::NEVER {
            drop(self.round.lock().unwrap_or_else(PoisonError::into_inner));
        }
    }

    /// Arms the timer for H. Both threads do that: once it is armed for an H that the other has moved meanwhile, it is armed anew.
    fn arm(&self) {
        loop {
            let hard = self.hard();
            if let Err(error) = self.alarm.set_for(hard) {
                tracing::error!(%error, "the guard's timer cannot be set");
            }
            if hard == self.hard() {
                return;
            }
        }
    }

    fn run(&self, mut kill: impl FnMut()) {
        loop {
            // If the timer fails, look at the clock every round: a little late, but never missing H.
            if self.alarm.wait().is_err() {
                thread::sleep(ROUND);
            }
            self.arm();
            if is_late(self.hard(), clock::boot()) {
                thread::sleep(TURN);
            }
            while self.fire(&mut kill) {
                thread::sleep(ROUND);
            }
        }
    }

    /// Kills one round, if it is time.
    fn fire(&self, kill: &mut impl FnMut()) -> bool {
        let _round = self.round.lock().unwrap_or_else(PoisonError::into_inner);
        let is_time = GuardDeadline::is_time(self.hard(), clock::boot());
        if is_time {
            kill();
        }
        is_time
    }

    fn hard(&self) -> Instant {
        Instant::from_nanos(self.hard.load(Ordering::SeqCst))
    }
}

/// Returns true if the whole process stood still over H. Then the link may hold the proof, and is drained before the guard acts
/// (law 9).
fn is_late(hard: Instant, now: Instant) -> bool {
    now >= hard + TURN
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, channel};

    use super::*;
    use crate::{
        law::Deadlines,
        link::{Confirmed, Stop, Then},
    };

    const PATIENCE: Duration = Duration::from_secs(20);
    const TERM: Term = Term(3);

    fn guard() -> (Guard, Receiver<Instant>) {
        let (tell, rounds) = channel();
        let guard = Guard::start(move || tell.send(clock::boot()).unwrap_or_default()).unwrap();
        (guard, rounds)
    }

    fn extend(hard: Instant) -> ToInit {
        let deadlines = Deadlines { soft: Instant::BOOT, hard, end: Instant::NEVER };
        let confirmed = Confirmed { resource_version: "1".into(), preferred_holder: None, deadlines };
        ToInit::Extend { term: TERM, serial: 1, confirmed }
    }

    #[test]
    fn it_kills_at_the_hard_deadline_again_and_again() {
        let (mut guard, rounds) = guard();
        let hard = clock::boot() + Duration::from_millis(30);

        guard.telling(&extend(hard));

        assert!(rounds.recv_timeout(PATIENCE).unwrap() >= hard);
        rounds.recv_timeout(PATIENCE).unwrap();
    }

    #[test]
    fn only_where_it_wakes_late_does_it_leave_the_loop_a_turn() {
        let hard = Instant::from_nanos(1_000_000_000);
        assert!(!is_late(hard, hard) && !is_late(hard, hard + TURN.saturating_sub(Duration::from_nanos(1))));
        assert!(is_late(hard, hard + TURN));
        assert!(!is_late(Instant::NEVER, Instant::NEVER.before(TURN)));
    }

    #[test]
    fn an_extension_moves_the_deadline() {
        let (mut guard, rounds) = guard();
        let hard = clock::boot() + Duration::from_millis(2200);

        guard.telling(&extend(clock::boot() + Duration::from_secs(2)));
        guard.telling(&extend(hard));

        assert!(rounds.recv_timeout(PATIENCE).unwrap() >= hard);
    }

    #[test]
    fn only_this_terms_proof_disarms() {
        let (mut guard, rounds) = guard();
        let proof = |term| {
            let stop = Stop { began: None, killed: None, exited: None, exit: None, fused: None, proved: Instant::BOOT };
            ToElector::Stopped { term, request: 1, stop, then: Then::Follow }
        };
        guard.telling(&extend(Instant::BOOT));
        rounds.recv_timeout(PATIENCE).unwrap();

        guard.told(&proof(Term(2)));
        while rounds.try_recv().is_ok() {}
        rounds.recv_timeout(PATIENCE).unwrap();
        guard.told(&proof(TERM));

        while rounds.try_recv().is_ok() {}
        assert_eq!(rounds.recv_timeout(ROUND * 4).ok(), None);
    }

    #[test]
    fn it_is_disarmed_only_after_the_round_that_was_under_way() {
        let (began, begins) = channel();
        let (end, ends) = channel();
        let over = Arc::new(AtomicU64::new(0));
        let done = Arc::clone(&over);
        let mut guard = Guard::start(move || {
            began.send(()).unwrap_or_default();
            ends.recv().unwrap_or_default();
            done.fetch_add(1, Ordering::SeqCst);
        })
        .unwrap();
        guard.arm(TERM, Instant::BOOT);
        begins.recv_timeout(PATIENCE).unwrap();
        let ending = thread::spawn(move || {
            thread::sleep(ROUND);
            end.send(()).unwrap_or_default();
            end
        });

        guard.disarm();

        assert_eq!(over.load(Ordering::SeqCst), 1);
        drop(ending.join());
    }
}
