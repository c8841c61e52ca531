//! The events of a run.

use tenure::{
    election::RequestId,
    request::{Answer, Watched},
};
use tenure_world::Due;
pub use tenure_world::{Child, Who};

use crate::{
    clock::Ns,
    judge::Judge,
    nemesis::Fault,
    network::{Flight, Reply},
    operator::Command,
    shrink::Strike,
    traffic::SliceFlight,
};

/// The events.
#[derive(Debug)]
pub enum Event {
    /// The container of this replica starts.
    Boot(usize),
    /// Init's loop turns.
    Init(Who),
    /// Init runs on after a SIGSTOP.
    ContinueInit(Who),
    /// The elector process has started.
    ElectorUp(Child),
    /// The elector's loop turns.
    Elector(Child),
    /// The elector's guard checks its clock.
    Guard(Child),
    /// The kernel's fuse may be due.
    Fuse(Who),
    /// The elector runs on after a SIGSTOP.
    ContinueElector(Child),
    /// A killed elector has become a zombie.
    ElectorGone(Child),
    /// The first byte of the request leaves.
    Send(Child, RequestId),
    /// The request's time has run out.
    Late(Child, RequestId),
    /// The request reaches the server.
    Arrive(Box<Flight>),
    /// The answer reaches the client.
    Reply(Box<Reply>),
    /// A watch from this version on reaches the server.
    WatchBegins(Child, u64, Option<String>),
    /// The watch of this number delivers something.
    Watched(Child, u64, Box<Watched>),
    /// A process does something.
    Due(Due),
    /// The workload says how it is.
    Says(Child),
    /// A process that somebody has continued should be dead, after this span.
    Strays(Child, Ns),
    /// The elector looks after the EndpointSlice of its leader.
    Publishes(Child),
    /// A request for a slice reaches the server.
    SliceArrives(Box<SliceFlight>),
    /// The answer to that reaches the client.
    SliceAnswered(Child, Box<Answer>),
    /// An elector of this container connects to its witness.
    Connects(Who),
    /// Its connection to the witness ends.
    Disconnects(Who),
    /// The witness hears that no process of this container is left.
    Died(Who),
    /// The witness of this replica starts again.
    WitnessUp(usize),
    /// The first byte of a witness's request leaves.
    SendObituary(Box<Flight>),
    /// The time of a witness's request has run out.
    WitnessLate(Child, RequestId),
    /// The client-go replica may have something to do.
    Peer,
    /// A command of somebody goes on.
    Command(Box<Command>),
    /// The nemesis injects a fault.
    Strike,
    /// The nemesis injects this fault into that replica.
    Aimed(Who, Fault),
    /// A strike of another run happens again.
    Again(Strike),
    /// The excuse for two that ran at once is over.
    Settles,
    /// All faults are over.
    Calm,
}

/// The engine of this simulation.
pub type Engine = tenure_world::engine::Engine<Event, Judge, Fault>;

impl From<Due> for Event {
    fn from(due: Due) -> Self {
        Self::Due(due)
    }
}
