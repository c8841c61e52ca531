//! The witness beside a replica: the shipping one, which hears of the end of everything in the container (law 20).
//!
//! Owns its process: what it was told, its requests and its restarts. It shares the network and the wall clock of its node.

use std::{collections::BTreeMap, rc::Rc};

use tenure::{
    election::{
        RequestId,
        obituary::{Action, Input, Witness},
    },
    request::Answer,
    slot::Slot,
};

use tenure_world::dependent;

use crate::{
    clock::{MS, Ns, S, nanos},
    engine::{Child, Event, Who},
    network::Flight,
    register::name_of,
    world::World,
};

/// From the end of a connection to the next.
const AGAIN: Ns = S;

#[derive(Default)]
pub struct WitnessProcess {
    /// None while it is being restarted.
    machine: Option<Witness>,
    /// The containers that it was told of, by their identities.
    told: BTreeMap<Rc<str>, Who>,
    /// Its requests are known by this number in place of a pid: no process has a negative one.
    life: i32,
}

impl World {
    /// An elector of this container connects to the witness of its node, if there is one.
    pub fn connects(&mut self, who: Who) {
        let Some(replica) = self.replicas.get(who.replica).filter(|replica| replica.node.witnessed) else { return };
        let Some(container) = replica.container.as_ref().filter(|container| container.who == who && !container.over) else {
            return;
        };
        let Some(WitnessProcess { machine: Some(machine), told, .. }) = self.witnesses.get_mut(&who.replica) else { return };
        machine.handle(Input::Told(dependent(&container.identity, &replica.node.config.lease)), 0);
        told.insert(Rc::clone(&container.identity), who);
    }

    /// The connection of this container ends.
    pub fn disconnects(&mut self, who: Who) {
        self.tell_witness(who, |identity| Input::Disconnected { identity });
    }

    /// No process of this container is left.
    pub fn died(&mut self, who: Who) {
        self.e.judge.lawful(|law| law.dies(who));
        self.tell_witness(who, |identity| Input::Died { identity });
    }

    fn tell_witness(&mut self, who: Who, input: impl FnOnce(String) -> Input) {
        let wall = self.replicas[who.replica].node.clock.now(self.e.now).wall;
        let Some(WitnessProcess { machine: Some(machine), told, .. }) = self.witnesses.get_mut(&who.replica) else { return };
        if let Some((identity, _)) = told.iter().find(|(_, told)| **told == who) {
            machine.handle(input(identity.to_string()), wall);
            self.carry_out_obituaries(who.replica);
        }
    }

    /// The witness of this replica is killed, and starts again.
    pub fn kill_witness(&mut self, replica: usize) -> bool {
        let Some(witness) = self.witnesses.get_mut(&replica) else { return false };
        let is_killed = witness.machine.take().is_some();
        witness.told.clear();
        if is_killed {
            self.e.note(format!("w{replica}"), || "the witness is killed".into());
            let span = self.e.spread(10 * MS, self.plan.restart);
            self.e.after(span, Event::WitnessUp(replica));
        }
        is_killed
    }

    /// Starts the witness.
    pub fn witness_up(&mut self, replica: usize) {
        let Some(witness) = self.witnesses.get_mut(&replica) else { return };
        witness.life -= 1;
        witness.machine = Some(Witness::new(0));
        if let Some(container) = &self.replicas[replica].container {
            let (who, span) = (container.who, self.e.between(0, AGAIN));
            self.e.after(span, Event::Connects(who));
        }
    }

    /// An answer, or the end of the wait for one.
    pub fn answered_witness(&mut self, to: Child, id: RequestId, answer: Answer) {
        let replica = to.who.replica;
        let wall = self.replicas[replica].node.clock.now(self.e.now).wall;
        if let Some(WitnessProcess { machine: Some(machine), life, .. }) = self.witnesses.get_mut(&replica)
            && to.pid == *life
        {
            machine.handle(Input::Answered { id, answer }, wall);
            self.carry_out_obituaries(replica);
        }
    }

    /// The first byte of its request leaves.
    pub fn send_obituary(&mut self, flight: Box<Flight>) {
        let (from, id) = (flight.from, flight.id);
        if !self.witnesses.get(&from.who.replica).is_some_and(|witness| witness.machine.is_some() && witness.life == from.pid) {
            return;
        }
        let replica = &self.replicas[from.who.replica];
        let limit = replica.node.config.lease.attempt_timeout;
        self.e.after(nanos(limit), Event::WitnessLate(from, id));
        let road = replica.road.clone();
        if let Some(first) = road.up(&mut self.e) {
            if let Some(again) = road.again(first, &mut self.e) {
                self.e.at(again, Event::Arrive(flight.clone()));
            }
            self.e.at(first, Event::Arrive(flight));
        }
    }

    fn carry_out_obituaries(&mut self, replica: usize) {
        let Some(WitnessProcess { machine: Some(machine), told, life }) = self.witnesses.get_mut(&replica) else { return };
        while let Some(action) = machine.poll_action() {
            match action {
                Action::Request { id, replica: dead, lease, request, pause } => {
                    let Some((identity, who)) = told.get_key_value(dead.identity.as_str()) else { continue };
                    let slot = (0..u8::MAX).map(Slot).find(|slot| name_of(*slot) == lease).unwrap_or_default();
                    let request = request.into();
                    let from = Child { who: *who, pid: *life };
                    let (identity, pause) = (Rc::clone(identity), nanos(pause));
                    let number = self.e.judge.law.as_mut().and_then(|law| law.asks(*who, slot, &request, true));
                    let flight = Flight { from, identity, sent: self.e.now + pause, slot, id, request, number };
                    self.e.after(pause, Event::SendObituary(Box::new(flight)));
                }
                Action::Failed { .. } => {}
                Action::Ended { identity, given_back } => {
                    self.e.note(format!("w{replica}"), || format!("{identity} is dead: gave back {given_back:?}"));
                    told.remove(identity.as_str());
                }
            }
        }
    }
}
