//! The law: two workloads never run at once.
//!
//! Owns every formula that turns a send or a sight into a deadline, and the rules by which all rooms act; "law 8" in a comment or
//! in the name of a mutant is rule 8 here. Reads no clock.
//!
//! # Deadlines
//!
//! | symbol | | key |
//! |---|---|---|
//! | D | how long a write holds the Lease | `lease.duration` |
//! | R, T | a renewal is due after R; an attempt may take T | `lease.renewPeriod`, `lease.attemptTimeout` |
//! | b | the pause before the next attempt; `election::common` has the pace after a refusal | [`RETRY_PAUSE`] |
//! | rho | by how much the rate of a node's clock may be wrong | `lease.clockDrift` |
//! | G | from the stop signal of a loss to SIGKILL | `workload.stop.lossGrace` |
//! | killMargin | until init is awake, has killed everything and has reaped it | `workload.stop.killMargin` |
//!
//! ```text
//! a   holder's clock just before the first byte of a write
//! o   follower's clock just after it received the version that it watches
//! E = a + D * (1 - rho)     end of the holder's validity
//! H = E - killMargin        SIGKILL to everything
//! S = H - G                 stop signal
//!     o + D * (1 + rho)     a follower may take
//! ```
//!
//! Two attempts at least have to fit between a renewal's due time and S, or tenure does not start: floor((S - R) / (T + b)) >= 2,
//! S > 1.2 R, and R <= D / 3: whoever looks from outside may take D / 3 + T without a renewal for silence.
//!
//! Proof. The write was committed at real time c, with a <= c because the commit follows the first byte. The holder's clock
//! runs at a rate of at least 1 - rho and at most 1 + rho, so that when it reads E at most D of real time has passed since a, and
//! everything is dead by real time c + D. A follower saw that version at o >= c. When its clock reads o + D * (1 + rho) at
//! least D of real time has passed since o. So the last process of the holder ends no later than c + D, and no follower begins
//! before c + D. Neither network delay, in either direction, nor any wall clock takes part.
//!
//! `proof/law.py` proves the rules as a whole, by two solvers and for any number of replicas, requests and Leases: no two run at once,
//! nothing is given back that runs, and fencing tokens rise. This rests on 1, 3, 6, 8, 11, 12, 14, 15, 16 and 20. `tests/law` judges the
//! same runs in Rust. Not proved: that the code keeps the rules, that anything runs, that the kernel kills by E, slots, rests, fires and
//! `creationWait`.
//!
//! The clock is the hardware's: CLOCK_MONOTONIC_RAW, and the time for which the machine was suspended (CLOCK_BOOTTIME less
//! CLOCK_MONOTONIC). No time service slews it, and all processes of a kernel share it. rho covers crystals and hypervisors. Kernel
//! timers are slewed, by 9 % at most: whoever waits for an instant sets one to nine tenths of what is left, until that is under
//! 10 ms, and looks again. The elector's loop, which enforces nothing, does so until the longer of R and D / 4. The term page says
//! BOOTTIME, and a kernel fuse counts the kernel's time. Both are earlier by a tenth of what is left while the kernel slows its
//! clocks.
//!
//! Three guards enforce H: init; the elector's guard, if init is stopped; and the kernel's fuses, if neither runs. A kernel whose
//! fuses may be late sets them before H, by D / 16 + 0.1 s - killMargin, so that they fire before E too. A follower
//! takes a Lease earlier than o + D * (1 + rho) only if its holder gave it back, which it does only once everything is proved
//! dead, and with its name removed. A Lease that is free in any other way has a holder too: nobody, who is waited for.
//!
//! # Rules of the holder
//!
//! 1. Validity counts from a write's send, not from its reply. No two writes of one init carry the same spec, whichever of its
//!    electors sends them, or one would confirm the other. A success counts if it returns what was sent at a higher
//!    resourceVersion: the API server answers 200 to a write that changes nothing too. D, rho, G and killMargin stay the same for a
//!    term and are init's, whatever an elector says. Within a term E only grows.
//! 2. From H on, nothing waits for the network, a disk, name resolution, a lock, memory or a reader of the log.
//! 3. Init enforces S and H as absolute instants, never as time left from now. E moves back for a release only (8). An extension
//!    that reaches further than one sent this instant could is dropped. A stop that began at S ends the term, whatever is renewed
//!    later. What the workload may read of its term ends at H; S is taken back before the stop signal, and H with a loss of the Lease.
//!    Proof of death ends S and H, for init and for the second guard; until then the second guard repeats its sweep.
//! 4. The Lease is lost once it is seen with another holder, another uid or no holder, above the last confirmed version or in
//!    any quorum read, and once it is gone. The workload is stopped at once. Before the proof nothing is written and no campaign
//!    begins.
//! 5. A transient failure (no connection, no answer, 401, 403, 429, 5xx, an unreadable body, a missing API group) is no loss:
//!    the request is retried on a new connection until S, and no Retry-After delays the retry past S - T.
//! 6. An unanswered write may have been committed. It moves no deadline, but is remembered: a quorum read that shows exactly
//!    its spec confirms it, counted from its own send; an acquisition only together with its trace. A write that was answered
//!    confirms nothing again, so that each term begins with a write of its own, and fencing tokens never repeat. A record of
//!    the term's uid that names this replica with a spec that this elector does not know is its predecessor's last write, as
//!    long as it has proved none of its own: E stays, and the next write goes onto that version. After that, one with a later
//!    renewTime than any that it can have stored is a copy's, as of a restored snapshot of its memory: loss.
//! 7. A leader that steps down keeps renewing through the whole grace. Only a loss shortens it to G.
//! 8. The Lease is given back only after a proof of death that answers the StepDown of this term, or by the replica's witness (20):
//!    - **Proof.** As PID 1 it is that nothing is left but init and the elector with its plugins; otherwise, that init has no other
//!      descendant. Without a proof there is no release, and as PID 1 init ends itself after H.
//!    - **Term.** Every message of the link names its term, and a fresh elector sends a StepDown of its own. Until the next Lead,
//!      nothing that leads is started.
//!    - **Release.** E is void before the first byte of a release, in init too. A release is one compare-and-swap on the version that
//!      the term last proved, or saw as its own. Only after a 409 or without an answer the Lease is read, and written again where
//!      holder, uid, acquireTime and leaseTransitions are still the term's; a DELETE carries uid and version.
//!    - **Demotion.** Where the workload runs always, an acknowledged demotion is a proof: given by the current incarnation of the
//!      workload, after the signal, on a socket that was marked before it, with every hook and probe of the term dead.
//!    - **Promotion.** A loss before a promotion is acknowledged kills, and no signal for a role is sent before the last one is
//!      acknowledged. Whatever beforeLead starts is a leader's.
//!    - **Standby.** The answer comes before afterFollow, a standby command or a fresh frozen standby; where a leader is started, what
//!      runs of them is proved gone first. A frozen standby gets SIGKILL only, and no signal from outside; one that anybody else has
//!      continued is killed. Only a Lead continues it.
//! 9. After a gap in its own clock, and before it acts on any deadline, a process first reads what waits on its link, then
//!    looks at S and H, then acts, and only then talks to the API server.
//! 10. The elector renews only while init has acknowledged the last extension. Otherwise the elector kills at H, and releases
//!     only once init comes back and proves. An elector that is silent for D (a second more where init itself did not run) is
//!     killed; its link is drained and closed before the next one starts, which waits a second at most for it to be reaped.
//!
//! # Rules of the follower
//!
//! 11. It waits the D of the record, times 1 + rho, through which it has seen one uid and spec without a break, whoever holds it.
//!     No time in a record makes that shorter, whatever the local clock says. If no duration is recorded, it waits the longest
//!     known: of its own D, the last that it saw (nobody's never lowers that) and the recorded one.
//! 12. It takes the Lease by one PUT with the uid and the resourceVersion that it read, never by PATCH or POST. The proof of it
//!     begins the term. If S, counted from its send, is past by then, or something later was seen, the Lease is written again on
//!     that version, and that write begins the term. After a 409 it reads the Lease, and waits anew if uid or spec changed.
//! 13. A holder that bears this very identity outside a term is a stranger: it is waited for.
//! 14. A Lease that was given back is taken at once. Every other Lease is waited for:
//!     - **Release mark.** A Lease in the shape of a release (holder `""`, duration 1, acquireTime equal to renewTime, no name beside
//!       it, not seen held with 1 before) is taken at once.
//!     - **Nobody.** A Lease that is free in any other way, absent, or held by nobody for less than the longest known, is first
//!       written as held by nobody for that long, with a new renewTime, which no other replica writes. The write gives nothing to
//!       anybody: nobody's Lease is waited for and taken like any other holder's. The write is not remembered, and comes no faster
//!       than retries.
//!     - **Memory.** A replica that lost a Lease without giving it back may still run, whoever has held it since.
//!     - **First sight.** From each first sight of one that is free, nobody's or held by another than the name beside it, of none, and
//!       of another uid than the one last seen held, nothing is taken for the longest known times 1 + rho. A holder without a name
//!       beside it is another than the name said, if the last one seen was named, and not seen to give the Lease back.
//!     - **Options.** `lease.creationWait` replaces both waits, but none for a holder. `lease.foreignRelease: trust` takes a Lease that
//!       is there and free for given back, unless a name is beside it, or was beside the holder last seen.
//!     - **Rests.** A Lease that rests (`tenure.dev/rests` is its renewTime and holder) was given back as well. It is taken once its
//!       duration has passed since renewTime by the wall clock, or since it was first seen. That duration is of no hold, also if its
//!       holder is removed.
//!     - **Fires.** Of a task with a schedule, `tenure.dev/fire` is the fire that the last run was for. The acquisition writes it. The
//!       Lease is taken once the wall clock shows a later fire, and not before the rules above allow it. The fire is run again only
//!       where its run was given back undone, or crashed with `task.afterCrash: run`. Done is a run that ended by itself with success,
//!       took as long as it may (`--limit`), or failed with `task.onFailure: rest`. A Lease that remembers a fire is deleted only on an
//!       operator's word, and no term without a schedule makes it forget.
//! 15. A write that is confirmed after S, counted from its own send, starts nothing (12). A child that executes, or signals a
//!     promotion, reads the clock as its last step, and does nothing from S on; a demotion's hook has until H to begin.
//! 16. The watch makes things faster and nothing depends on it: with a dead one a takeover is R later at most, and a minute
//!     where the Lease rested. Its older versions of one uid are dropped, a quorum read is always believed, but an absence
//!     that was asked for a D ago or longer.
//! 17. A Lease that is being deleted is not acquired. A request to step down names the full identity of a holder and is removed
//!     by the next acquisition; others leave a free Lease to the named candidate for R + T of theirs from their sight of the
//!     release, once, and priorities count meanwhile. A ready standby may write such a request for itself where the holder's
//!     priority on the Lease is lower, and no pause, strategy, request or candidate goes first: once in `lease.preempt`, and at the
//!     pace of retries after a failure that may pass. If it ends, it takes the request back while that is still its own. Whoever gave a term up
//!     leaves the Lease to the others for one D, unless it has done its run; after each term that failed, for twice as long as after the one before, and
//!     whoever leads meanwhile. A Lease with a strategy is taken only by its preferred holder. A pause keeps others from
//!     taking the Lease, but not the recorded holder; it moves neither S nor H.
//!
//! # The rule of several slots
//!
//! 18. Each slot is a Lease of its own: what was seen of one says nothing of another, and is handed on for that one alone. A
//!     replica holds one at most, so that no more run than there are slots: while a term is held, its end is not proved, or its
//!     release not done, no other slot is written; nor while a write is not settled, which a read of that very slot does. One
//!     that a list lacks, or the watch calls deleted, may have lost its label only: a read of it tells. Terms rise over all slots.
//!
//! # The rule of traffic
//!
//! 19. A leader is published in an EndpointSlice from its readiness until any stop begins. Only a planned stop waits until its address
//!     is withdrawn, before anything of it, for half a second at most; no renewal, no deadline and no loss does. A term begins by
//!     emptying the slice. Each write is a PUT with the uid and the resourceVersion that were read, and carries the fencing token
//!     of its term: a lower token never replaces a higher one, compared as integers of arbitrary length. Nothing is sent from S - T
//!     on.
//!
//! # The rule of the witness
//!
//! 20. A witness is a process under the same kernel, outside the PID namespace of the workload. The elector hands it, at each
//!     connection, a pidfd of init, only where init is PID 1, and init's full identity. The pidfd of a later elector replaces that of
//!     an earlier one of the same identity, whose connection has ended; until then it is refused, as somebody else's. An identity of
//!     another pod is refused too, and a pidfd that is readable when it arrives: it proves nothing about an init that is told to live.
//!     That the pidfd is readable later is all that tells the witness anything: not the end of the connection, not silence, not an exit
//!     code, not a status. It is a complete proof: init, the elector, the workload and whatever was exec'ed in are gone.
//!     The witness then reads the Leases it was told of (quorum); what names that identity as its holder, and nobody else in
//!     `tenure.dev/holder`, it gives back in the shape of a release, with `tenure.dev/obituary: IDENTITY` beside it, which the next
//!     acquisition removes: one PUT with the uid and resourceVersion that it read, repeated as a leader's retries after a 409 or
//!     without an answer, until one is answered with success or a read shows no such holder. Then it forgets the identity.
//!     It never creates, deletes or waits for nobody, has no clock and no deadline, holds no Lease and starts nothing. To followers it
//!     is a release.
//!     None is handed over with `release: keep`, for a task with `afterCrash: wait`, and on gVisor. A witness that is told to end
//!     stays until every pidfd that it has has fired and what follows is done, or is certainly refused; killed earlier, D decides.
//!     The word of an operator that a holder is dead takes the place of the pidfd. It is not believed of a Lease that changes within
//!     D / 3 + T, or beside the name of another, nor without more words of a task, whose run it would repeat.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::time::Instant;

/// b: the pause before a retry.
pub const RETRY_PAUSE: Duration = Duration::from_millis(200);

/// How long a planned stop waits until the leader's address is withdrawn, at most (19).
pub const WITHDRAWAL: Duration = Duration::from_millis(500);

/// A leader renews so often within D at least.
pub const RENEWALS: u32 = 3;

/// So many attempts have to fit: with fewer, one lost request would end a term.
pub const REQUIRED_ATTEMPTS: u32 = 2;

const MILLION: u128 = 1_000_000;

/// The constants of a term, by the symbols above.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, Hash)]
pub struct Timing {
    /// D.
    pub duration: Duration,
    /// R.
    pub renew_period: Duration,
    /// T.
    pub attempt_timeout: Duration,
    /// rho in parts per million.
    pub drift: u32,
    /// G.
    pub loss_grace: Duration,
    /// killMargin.
    pub kill_margin: Duration,
}

/// Until when a term is valid, all from the same send.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, Hash)]
pub struct Deadlines {
    /// S: the stop signal goes out.
    pub soft: Instant,
    /// H: SIGKILL to everything.
    pub hard: Instant,
    /// E: the end of validity; by then every process is gone.
    pub end: Instant,
}

impl Timing {
    /// The same with another D.
    pub const fn with_duration(self, duration: Duration) -> Self {
        Self { duration, ..self }
    }

    /// S, H and E of a write sent at `a`.
    pub fn deadlines(self, a: Instant) -> Deadlines {
        let end = a + shorter(self.duration, self.drift);
        let hard = end.before(self.kill_margin);
        Deadlines { soft: hard.before(self.loss_grace), hard, end }
    }

    /// How many attempts fit between a renewal's due time and S: floor((S - R) / (T + b)), [`REQUIRED_ATTEMPTS`] at least.
    pub fn attempts(self) -> u32 {
        let soft = self.deadlines(Instant::BOOT).soft.since(Instant::BOOT);
        let room = soft.saturating_sub(self.renew_period);
        let attempt = self.attempt_timeout + RETRY_PAUSE;
        u32::try_from(room.as_nanos() / attempt.as_nanos().max(1)).unwrap_or(u32::MAX)
    }

    /// Returns true if S leaves a renewal more than 1.2 R, as client-go wants it of its RenewDeadline, and R is no more than D / 3.
    pub fn has_room(self) -> bool {
        let soft = self.deadlines(Instant::BOOT).soft.since(Instant::BOOT);
        soft.as_nanos() * 5 > self.renew_period.as_nanos() * 6 && !self.is_rare()
    }

    /// Returns true if R is more than D / 3.
    pub fn is_rare(self) -> bool {
        self.renew_period > self.duration / RENEWALS
    }

    /// How long a release may take: two attempts. What is not done by then stays undone, and the followers wait out D.
    pub fn release_limit(self) -> Duration {
        self.attempt_timeout.saturating_mul(2)
    }

    /// How long what was released is left to others before it is deleted: who has no watch reads it within 1.1 R.
    pub fn deletion_wait(self) -> Duration {
        self.renew_period + self.renew_period / 10 + RETRY_PAUSE
    }

    /// By how much a fuse is set before H where the kernel may let it fire late: by a sixteenth of D and 0.1 s. It fires before E.
    pub fn fuse_advance(self) -> Duration {
        (self.duration / 16 + Duration::from_millis(100)).saturating_sub(self.kill_margin)
    }

    /// For how long others leave a free Lease to a named candidate (17), which may have to read it, and then writes it.
    pub fn candidate_wait(self) -> Duration {
        self.renew_period + self.attempt_timeout
    }

    /// When a follower that saw a record of this `duration` at `o` may take it.
    pub fn takeable(self, o: Instant, duration: Duration) -> Instant {
        o + longer(duration, self.drift)
    }
}

impl Deadlines {
    /// Nothing runs that they could end.
    pub const NEVER: Self = Self { soft: Instant::NEVER, hard: Instant::NEVER, end: Instant::NEVER };

    /// The later of each: within one term validity only grows (law 1).
    pub fn max(self, other: Self) -> Self {
        Self { soft: self.soft.max(other.soft), hard: self.hard.max(other.hard), end: self.end.max(other.end) }
    }
}

/// Returns true if it is too late to begin something that had to begin before `not_after`. At that very instant it is too late (15).
pub fn is_over(not_after: Instant, now: Instant) -> bool {
    not_after <= now
}

/// `span * (1 - rho)`, rounded down: a holder counts less than it was given.
fn shorter(span: Duration, drift: u32) -> Duration {
    let part = span.as_nanos() * u128::from(drift);
    let lost = part.div_ceil(MILLION);
    from_nanos(span.as_nanos().saturating_sub(lost))
}

/// `span * (1 + rho)`, rounded up: a follower waits more than was given.
pub fn longer(span: Duration, drift: u32) -> Duration {
    let part = span.as_nanos() * u128::from(drift);
    from_nanos(span.as_nanos() + part.div_ceil(MILLION))
}

/// A duration as a record carries it: whole seconds, never less.
pub fn whole_seconds(duration: Duration) -> i32 {
    let begun = u64::from(duration.subsec_nanos() > 0);
    i32::try_from(duration.as_secs().saturating_add(begun)).unwrap_or(i32::MAX)
}

fn from_nanos(nanos: u128) -> Duration {
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMING: Timing = Timing {
        duration: Duration::from_secs(15),
        renew_period: Duration::from_secs(3),
        attempt_timeout: Duration::from_secs(2),
        drift: 10_000,
        loss_grace: Duration::from_secs(4),
        kill_margin: Duration::from_secs(1),
    };

    #[test]
    fn the_default_timing_gives_the_numbers_of_the_law() {
        let deadlines = TIMING.deadlines(Instant::BOOT);

        assert_eq!(deadlines.end.since(Instant::BOOT), Duration::from_millis(14_850));
        assert_eq!(deadlines.hard.since(Instant::BOOT), Duration::from_millis(13_850));
        assert_eq!(deadlines.soft.since(Instant::BOOT), Duration::from_millis(9_850));
        assert_eq!(TIMING.takeable(Instant::BOOT, TIMING.duration).since(Instant::BOOT), Duration::from_millis(15_150));
        assert_eq!(TIMING.attempts(), 3);
    }

    #[test]
    fn a_fuse_that_the_kernel_lets_fire_late_fires_before_e_all_the_same() {
        let advance = |seconds, kill_margin| {
            let kill_margin = Duration::from_secs(kill_margin);
            Timing { kill_margin, ..TIMING }.with_duration(Duration::from_secs(seconds)).fuse_advance().as_micros()
        };

        assert_eq!([advance(15, 1), advance(60, 1), advance(60, 4)], [37_500, 2_850_000, 0]);
    }

    #[test]
    fn it_is_too_late_at_the_deadline_and_not_one_tick_before() {
        let deadline = Instant::from_nanos(1_000);

        let late = [999, 1_000, 1_001].map(|now| is_over(deadline, Instant::from_nanos(now)));

        assert_eq!(late, [false, true, true]);
    }

    #[test]
    fn a_holder_rounds_down_and_a_follower_up() {
        let timing = Timing { duration: Duration::from_nanos(1), drift: 1, ..TIMING };

        assert_eq!(timing.deadlines(Instant::from_nanos(10)).end, Instant::from_nanos(10));
        assert_eq!(timing.takeable(Instant::BOOT, timing.duration), Instant::from_nanos(2));
    }

    #[test]
    fn the_record_says_no_less_than_the_duration() {
        let seconds = |nanos| whole_seconds(Duration::from_nanos(nanos));

        assert_eq!(seconds(20_000_000_000), 20);
        assert_eq!(seconds(20_000_000_001), 21);
    }

    #[test]
    fn no_duration_overflows() {
        let timing = TIMING.with_duration(Duration::from_secs(u64::from(u32::MAX)));

        assert!(timing.deadlines(Instant::NEVER).end > Instant::BOOT);
        assert_eq!(timing.takeable(Instant::NEVER, timing.duration), Instant::NEVER);
        assert_eq!(whole_seconds(Duration::MAX), i32::MAX);
    }

    #[test]
    fn whatever_does_not_fit_leaves_no_attempts() {
        assert_eq!(TIMING.with_duration(Duration::from_secs(5)).attempts(), 0);
        assert_eq!(TIMING.with_duration(Duration::from_secs(12)).attempts(), 1);
    }

    #[test]
    fn the_later_deadlines_are_taken_one_by_one() {
        let (a, b) = (TIMING.deadlines(Instant::BOOT), TIMING.deadlines(Instant::from_nanos(5)));

        assert_eq!(a.max(b), b);
    }
}
