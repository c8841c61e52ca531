//! What happens to init between two turns: time passes, the elector speaks (and lies), processes end, signals come.

use std::time::Duration;

use tenure::{
    law::Timing,
    link::{Confirmed, Exit, Reason, Term, TermInfo, ToElector, ToInit},
    notification::{Heard, Notification},
    role::Role,
    slot::Slot,
    supervision::{LinkBroken, Turn},
    time::Instant,
};

use super::{
    Kind,
    kernel::{Is, Kernel},
};

const TICK: Duration = Duration::from_nanos(1);

/// The elector's side of the link, and the dice.
pub(crate) struct Nemesis {
    rng: fastrand::Rng,
    /// Pid of the elector that has said Hello.
    greeted: Option<i32>,
    last: u64,
    term: Option<u64>,
    serial: u64,
    request: u64,
    /// The proof was given, or nothing was left to prove.
    is_proved: bool,
}

impl Nemesis {
    pub(crate) const fn new(rng: fastrand::Rng) -> Self {
        Self { rng, greeted: None, last: 0, term: None, serial: 0, request: 0, is_proved: false }
    }

    pub(crate) fn acts(&mut self, kind: Kind, turn: &Turn, k: &mut Kernel) {
        self.passes(turn, k);
        self.hears(k);
        for _ in 0..self.rng.u8(..3) {
            self.speaks(k);
        }
        self.ends(k);
        match self.rng.u8(..60) {
            0 => k.signals.push_back(libc::SIGTERM),
            1 if k.main.is_some() => {
                k.fork_as(Is::Orphan);
            }
            2 if kind == Kind::Frozen => {
                k.thawed = true;
                k.signals.push_back(libc::SIGCHLD);
            }
            3 => {
                for _ in 0..1_000 {
                    let orphan = k.fork_as(Is::Orphan);
                    k.ends(orphan, Exit::Code(0));
                }
                k.reaping = Duration::from_millis(1);
            }
            4 if k.judge.fuse.is_some() => k.fires(),
            _ => {}
        }
        if k.judge.fuse.is_some_and(|hard| hard <= k.now) && self.rng.bool() {
            k.fires();
        }
        if k.dead.len() < 10 {
            k.reaping = Duration::ZERO;
        }
    }

    fn passes(&mut self, turn: &Turn, k: &mut Kernel) {
        let due = turn.due(k.now).map_or(k.now + Duration::from_secs(1), |due| due.max(k.now));
        let due = due.min(k.now + Duration::from_secs(30));
        k.now = match self.rng.u8(..12) {
            0..=5 => due,
            6 => due.before(TICK).max(k.now),
            7 => k.now + Duration::from_millis(1),
            8 => k.now + Duration::from_millis(self.rng.u64(..500)),
            9 => k.now + Duration::from_secs(1),
            10 => k.now + Duration::from_secs(self.rng.u64(1..6)),
            _ => k.now,
        };
    }

    fn hears(&mut self, k: &mut Kernel) {
        if k.elector != self.greeted {
            self.greeted = None;
            self.is_proved = false;
            if let Some(elector) = k.elector.filter(|elector| k.living.contains_key(elector))
                && self.rng.u8(..3) > 0
            {
                self.greeted = Some(elector);
                k.to_init.push_back(Ok(ToInit::Hello));
            }
        }
        while let Some(message) = k.to_elector.pop_front() {
            if let ToElector::Stopped { .. } = message {
                self.is_proved = true;
            }
        }
    }

    fn speaks(&mut self, k: &mut Kernel) {
        if self.greeted.is_none() || k.elector != self.greeted {
            return;
        }
        let lies = self.rng.u8(..15) == 0;
        let ago = Duration::from_millis(self.rng.u64(..1_500));
        let sent = if lies { k.now + ago } else { k.now.before(ago) };
        let named = self.term.unwrap_or_else(|| self.last.max(1));
        let term = Term(if self.rng.u8(..12) == 0 { named + self.rng.u64(..3) } else { named });
        let message = match (self.term, self.rng.u8(..16)) {
            (None, _) => {
                self.last += 1;
                (self.term, self.serial, self.is_proved) = (Some(self.last), 0, false);
                ToInit::Lead { term: Term(self.last), info: info(), confirmed: confirmed(k.judge.timing(), sent) }
            }
            (Some(_), 0..=6) => {
                self.serial += 1;
                ToInit::Extend { term, serial: self.serial, confirmed: confirmed(k.judge.timing(), sent) }
            }
            (Some(_), 7 | 8) => {
                self.request += 1;
                let reasons = [Reason::StepDown, Reason::PreferredHolder, Reason::LostToHolder, Reason::LostCleared];
                let reason = self.rng.choice(reasons).unwrap_or(Reason::StepDown);
                ToInit::StepDown { term, request: self.request, reason, traceparent: String::new() }
            }
            (Some(_), 9) => ToInit::Withdrawn { term },
            (Some(term), 10 | 11) if self.is_proved => {
                self.serial += 1;
                ToInit::Releasing { term: Term(term), serial: self.serial }
            }
            (Some(term), 12) if self.is_proved => {
                self.term = None;
                ToInit::Ended { term: Term(term), backoff: None }
            }
            (Some(_), 13) if lies => return k.to_init.push_back(Err(LinkBroken)),
            (Some(_), _) => ToInit::Heartbeat,
        };
        k.to_init.push_back(Ok(message));
    }

    /// Processes end by themselves, and the workload answers what it is told.
    fn ends(&mut self, k: &mut Kernel) {
        let all: Vec<_> = k.living.iter().map(|(pid, process)| (*pid, process.is.clone())).collect();
        for (pid, is) in all {
            match is {
                Is::Elector if self.rng.u8(..80) == 0 => k.ends(pid, Exit::Code(1)),
                Is::Main if self.rng.u8(..60) == 0 => k.ends(pid, Exit::Code(self.rng.u8(..3))),
                Is::Helper(_) if self.rng.u8(..3) == 0 => {
                    let code = u8::from(self.rng.u8(..6) == 0);
                    k.ends(pid, Exit::Code(code));
                }
                Is::Teller(role, mark) if self.rng.bool() => {
                    k.heard.extend(mark.map(Heard::Marked));
                    k.heard.push_back(Heard::Said(vec![Notification::Role(role)]));
                    k.ends(pid, Exit::Code(0));
                }
                Is::Elector | Is::Main | Is::Helper(_) | Is::Teller(..) | Is::Orphan => {}
            }
        }
        if k.main.is_some() && self.rng.u8(..10) == 0 {
            let role = if self.rng.bool() { Role::Leader } else { Role::Standby };
            k.heard.push_back(Heard::Said(vec![Notification::Role(role)]));
        }
    }
}

fn info() -> TermInfo {
    TermInfo {
        slot: Slot::default(),
        token: "7".into(),
        uid: "u".into(),
        transitions: 3,
        acquired_at: "2026-01-01T00:00:00.000000Z".into(),
        traceparent: String::new(),
    }
}

fn confirmed(timing: Timing, sent: Instant) -> Confirmed {
    Confirmed { resource_version: "7".into(), preferred_holder: None, deadlines: timing.deadlines(sent) }
}
