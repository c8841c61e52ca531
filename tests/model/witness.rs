//! The witness of a replica: the shipping one, which sends one request at a time (law 20).

use std::collections::VecDeque;

use tenure::{
    election::{
        RequestId,
        obituary::{Action, Input, Witness},
    },
    request::Answer,
};

use tenure_world::{Who, dependent};

use crate::{
    clock::{Ns, nanos},
    family::Setup,
    register::Request,
};

/// In place of an elector's pid.
pub const PID: i32 = -1;

#[derive(Clone, Debug, Hash)]
pub struct WitnessProcess {
    machine: Witness,
    /// The container that it was told of last.
    told: Option<Who>,
    /// Requests, and when each may be sent.
    waiting: VecDeque<(Ns, RequestId, Request)>,
    /// The request in flight, and when it is given up.
    pending: Option<(RequestId, Ns)>,
}

impl WitnessProcess {
    pub fn start() -> Self {
        Self { machine: Witness::new(7), told: None, waiting: VecDeque::new(), pending: None }
    }

    pub fn knows(&self, who: Who) -> bool {
        self.told == Some(who)
    }

    /// An elector of `who` connects.
    pub fn told(&mut self, who: Who, setup: &Setup, now: Ns) {
        self.told = Some(who);
        self.input(Input::Told(dependent(&who.to_string(), &setup.config.lease)), setup, now);
    }

    /// Something arrives.
    pub fn input(&mut self, input: Input, setup: &Setup, now: Ns) {
        if let Input::Answered { id, .. } = &input
            && self.pending.take_if(|(pending, _)| pending == id).is_none()
        {
            return;
        }
        self.machine.handle(input, setup.clock.now(now).wall);
        while let Some(action) = self.machine.poll_action() {
            if let Action::Request { id, request, pause, .. } = action {
                self.waiting.push_back((now + nanos(pause), id, request.into()));
            }
        }
    }

    pub fn has_work(&self, now: Ns) -> bool {
        self.timeout().is_some_and(|at| at <= now)
    }

    /// When it wakes by itself.
    pub fn timeout(&self) -> Option<Ns> {
        let late = self.pending.as_ref().map(|(_, late)| *late);
        late.or_else(|| self.waiting.front().map(|(at, ..)| *at))
    }

    /// Gives a request up, or sends the next one.
    pub fn step(&mut self, setup: &Setup, now: Ns) -> Option<(RequestId, Request)> {
        if let Some((id, _)) = self.pending {
            let answer = Answer::Unknown { message: "timed out".into(), retry_after: None };
            self.input(Input::Answered { id, answer }, setup, now);
            return None;
        }
        let (_, id, request) = self.waiting.pop_front()?;
        self.pending = Some((id, now + nanos(setup.config.lease.attempt_timeout)));
        Some((id, request))
    }
}
