//! The model that stateright explores: the steps possible in a state, and the state that each leads to.

use stateright::{Model, Property};
use tenure_world::{Observer, Wrong};

use crate::{
    clock::{Ns, S},
    family::{Family, Setup},
    fault::{Aim, Fault, Kind},
    peer::Peer,
    world::{Actor, World},
};

/// How long after the last fault its consequences may still do harm.
const AFTERMATH: Ns = S;

/// The properties that a control breaks.
pub const NEVER_TWO: &str = "two never lead at once";
pub const NEVER_LATE: &str = "nothing outlives what init knows";

/// A step of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// An actor of a replica takes its next step.
    Act(usize, Actor),
    /// A replica takes all its steps.
    Settle(usize),
    /// The client-go replica takes its next step.
    Peer,
    /// A message arrives.
    Arrive(usize),
    /// A fault begins.
    Strike(Fault),
    /// A fault ends.
    Mend(Fault),
    /// All faults end.
    Calm,
    /// Time passes.
    Tick,
}

impl Model for Family {
    type State = World;
    type Action = Step;

    fn init_states(&self) -> Vec<World> {
        // What the law refuses would hide what a control shows.
        vec![World::new(self.start, &self.setups, self.peer, self.most, !self.is_control)]
    }

    fn actions(&self, world: &World, steps: &mut Vec<Step>) {
        if world.judge.wrong().is_some() || self.is_over(world) {
            return;
        }
        for on in 0..world.places.len() {
            let working = world.at_work(on, &self.setups);
            if working.is_empty() {
                continue;
            }
            if self.strikes(world) && self.faults.iter().any(|kind| kind.is_inner()) {
                steps.extend(working.into_iter().map(|actor| Step::Act(on, actor)));
                self.strike(world, |fault| fault.kind.aim() == Aim::Replica && fault.on == on, steps);
            } else {
                steps.push(Step::Settle(on));
            }
            return;
        }
        if world.peer.as_ref().is_some_and(|peer| peer.has_work(world.now)) {
            return steps.push(Step::Peer);
        }
        let fresh = || world.flights.iter().enumerate().filter(|(_, flight)| !flight.held);
        let reply = fresh().find(|(_, flight)| !flight.is_asked()).map(|(index, _)| index);
        if let Some(index) = reply {
            steps.push(Step::Arrive(index));
            return self.strike(world, |fault| fault.kind.aim() != Aim::Reply || fault.on == index, steps);
        }
        let all = if world.calm { 1 } else { usize::MAX };
        steps.extend(fresh().map(|(index, _)| Step::Arrive(index)).take(all));
        if steps.is_empty() {
            self.idle(world, steps);
        }
        self.strike(world, |_| true, steps);
    }

    fn next_state(&self, world: &World, step: Step) -> Option<World> {
        let mut world = world.clone();
        let setups = &self.setups;
        match step {
            Step::Act(on, actor) => world.act(on, actor, setups),
            Step::Settle(on) => {
                while let Some(actor) = world.at_work(on, setups).first() {
                    world.act(on, *actor, setups);
                    if world.judge.wrong().is_some() {
                        break;
                    }
                }
            }
            Step::Peer => world.step_peer(Peer::step),
            Step::Arrive(index) => {
                world.flights[index].held = false;
                world.arrive(index, setups);
            }
            Step::Strike(fault) => {
                world.left -= 1;
                self.struck.lock().expect("nobody panics with it").insert(fault.kind);
                world.strike(fault, setups);
            }
            Step::Mend(fault) => world.mend(fault, setups),
            Step::Calm => {
                world.calm = true;
                world.left = 0;
                world.flights.clear();
                self.lasting(&world).into_iter().for_each(|fault| world.mend(fault, setups));
            }
            Step::Tick => self.tick(&mut world),
        }
        if self.undisturbed && world.judge.terms > 0 && !world.judge.is_led() {
            world.judge.fail(Wrong::Disturbed, "the workload was stopped".into());
        }
        Some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let holds = |name, condition| Property::<Self>::always(name, condition);
        let mut all = vec![
            holds(NEVER_TWO, |_, world| world.judge.wrong() != Some(Wrong::Overlap)),
            holds("fencing tokens rise", |_, world| world.judge.wrong() != Some(Wrong::Token)),
            holds("nothing is released before the proof", |_, world| world.judge.wrong() != Some(Wrong::Release)),
            holds(NEVER_LATE, |_, world| world.judge.wrong() != Some(Wrong::Late)),
            holds("no workload is stopped without a cause", |_, world| world.judge.wrong() != Some(Wrong::Disturbed)),
            holds("somebody leads in the end", |_, world| world.judge.wrong() != Some(Wrong::Unled)),
            holds("what is frozen gets SIGKILL only", |_, world| world.judge.wrong() != Some(Wrong::Signalled)),
            holds("only who is ready and preferred asks for a handover", |_, world| world.judge.wrong() != Some(Wrong::Asked)),
            holds("every step is lawful", |_, world| world.judge.wrong() != Some(Wrong::Unlawful)),
            holds("no machine spins", |_, world| world.judge.wrong() != Some(Wrong::Spins)),
            Property::<Self>::sometimes("something runs", |_, world| world.judge.terms > 0),
        ];
        if self.faults.iter().any(|kind| kind.is_reason_to_release()) {
            all.push(Property::<Self>::sometimes("the Lease is given back", |_, world| world.judge.releases > 0));
        }
        if self.setups.windows(2).any(|pair| pair[0].config.lease.priority < pair[1].config.lease.priority) {
            all.push(Property::<Self>::sometimes("a handover is asked for", |_, world| world.judge.has_asked));
        }
        all
    }
}

impl Family {
    const fn strikes(&self, world: &World) -> bool {
        world.left > 0 && self.from <= world.now && world.now <= self.until && !world.calm
    }

    /// The faults possible now.
    fn strike(&self, world: &World, fits: impl Fn(Fault) -> bool, steps: &mut Vec<Step>) {
        if !self.strikes(world) {
            return;
        }
        for kind in &self.faults {
            let targets = match kind.aim() {
                Aim::Request | Aim::Reply => world.flights.len(),
                Aim::Replica => world.places.len() + 1,
                Aim::Lease => self.setups.first().map_or(1, Setup::slots).into(),
            };
            let faults = (0..targets).map(|on| Fault { kind: *kind, on });
            steps.extend(faults.filter(|fault| fits(*fault) && world.can(*fault)).map(Step::Strike));
        }
    }

    /// Nothing is left to do at this instant.
    fn idle(&self, world: &World, steps: &mut Vec<Step>) {
        if !world.calm && world.now >= self.calm {
            return steps.push(Step::Calm);
        }
        steps.push(Step::Tick);
        if !world.calm {
            steps.extend((0..world.flights.len()).map(Step::Arrive));
            steps.extend(self.lasting(world).into_iter().filter(|_| self.mends).map(Step::Mend));
        }
    }

    fn lasting(&self, world: &World) -> Vec<Fault> {
        let kinds = self.faults.iter().copied().filter(|kind: &Kind| kind.lasts());
        let faults = kinds.flat_map(|kind| (0..=world.places.len()).map(move |on| Fault { kind, on }));
        faults.filter(|fault| world.is_hit(*fault)).collect()
    }

    fn tick(&self, world: &mut World) {
        let mut when = world.next_instant(&self.setups);
        if !world.calm {
            when = when.min(self.calm);
        }
        if when <= world.now {
            return world.judge.fail(Wrong::Spins, "an instant that is past is waited for".into());
        }
        world.pass(when, &self.setups);
        let wait_limit = world.judge.led().max(self.calm) + self.wait_limit();
        if world.calm && when > wait_limit {
            world.judge.fail(Wrong::Unled, "nobody leads".into());
        }
    }

    /// Returns whether nothing new can follow.
    fn is_over(&self, world: &World) -> bool {
        world.calm && world.now > self.calm + AFTERMATH && world.judge.is_led()
    }
}
