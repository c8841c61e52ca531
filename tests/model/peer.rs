//! A client-go replica on the same Lease: its node, and a workload that ends with it.

use std::time::Duration;

use tenure::{election::RequestId, request::Answer};

use tenure_world::{Child, Observer, Who};

use crate::{
    client_go::{ClientGo, Deed, Times},
    clock::{Clock, Ns},
    judge::Judge,
    register::Request,
};

const TIMES: Times = Times {
    lease: 3,
    renew_deadline: Duration::from_millis(2_000),
    retry_period: Duration::from_millis(500),
    timeout: Duration::from_millis(900),
    releases: false,
};

#[derive(Clone, Debug, Hash)]
pub struct Peer {
    pub who: Who,
    pub clock: Clock,
    /// Requests and answers are lost.
    pub cut: bool,
    machine: ClientGo,
}

impl Peer {
    /// The `replica`-th on the Lease.
    pub fn start(replica: usize, clock: Clock) -> Self {
        let who = Who { replica, life: 1 };
        Self { who, clock, cut: false, machine: ClientGo::start(who.to_string(), TIMES, clock.boot(0)) }
    }

    const fn child(&self) -> Child {
        Child { who: self.who, pid: 0 }
    }

    pub fn has_work(&self, now: Ns) -> bool {
        self.timeout() <= now
    }

    /// When it next has something to do.
    pub fn timeout(&self) -> Ns {
        self.clock.real(self.machine.timeout())
    }

    /// Takes its step; returns a request that it sends.
    pub fn step(&mut self, now: Ns, judge: &mut Judge) -> Option<(RequestId, Request)> {
        let deed = self.machine.step(self.clock.now(now));
        self.carry_out(deed, now, judge)
    }

    /// Takes in the answer to its request; returns its next request.
    pub fn answered(&mut self, id: RequestId, answer: Answer, now: Ns, judge: &mut Judge) -> Option<(RequestId, Request)> {
        let deed = self.machine.answered(id, answer, self.clock.now(now));
        self.carry_out(deed, now, judge)
    }

    fn carry_out(&mut self, deed: Option<Deed>, now: Ns, judge: &mut Judge) -> Option<(RequestId, Request)> {
        match deed? {
            Deed::Asks(id, request) => return Some((id, request)),
            Deed::Leads(token) => judge.runs(self.child(), token.parse().unwrap_or_default(), true, now),
            Deed::Ends => judge.gone(self.child()),
            Deed::Exits => {
                self.who.life += 1;
                self.machine = ClientGo::start(self.who.to_string(), TIMES, self.clock.boot(now));
            }
        }
        None
    }
}
