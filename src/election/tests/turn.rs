//! The order of a turn (law 9).

use std::{collections::VecDeque, convert::Infallible, time::Duration};

use super::bench::initial_state;
use crate::{
    election::{
        Event, Input, Request, RequestId,
        turn::{Arrived, Process, Turn},
    },
    link::{ToElector, ToInit},
    request::Answer,
    slot::Slot,
    time::{Instant, Now},
};

/// It notes what is taken in and sent.
#[derive(Default)]
struct World {
    passed: Duration,
    link: VecDeque<ToElector>,
    inbox: VecDeque<Input>,
    /// When the next item of the inbox is taken this much time passes, and init says something.
    gap: Duration,
    asked: Option<RequestId>,
    done: Vec<&'static str>,
}

impl Process for World {
    type End = Infallible;

    fn now(&self) -> Now {
        let boot = Instant::from_nanos(1_000_000_000) + self.passed;
        Now { boot, ..Now::default() }
    }
    fn receive(&mut self, _: Now) -> Result<Option<ToElector>, Infallible> {
        let message = self.link.pop_front();
        self.done.extend(message.as_ref().map(|_| "a message"));
        Ok(message)
    }
    fn arrived(&mut self) -> Option<Arrived> {
        let input = self.inbox.pop_front()?;
        self.done.push("an item");
        if !self.gap.is_zero() {
            self.passed += std::mem::take(&mut self.gap);
            self.link.push_back(ToElector::Heartbeat);
        }
        Some(Arrived::Input(input))
    }
    fn request(&mut self, _: Slot, id: RequestId, _: Request) {
        self.asked = Some(id);
        self.done.push("a request");
    }
    fn watch(&mut self, _: Option<String>) {}
    fn telling(&mut self, _: &mut ToInit) {}
    fn send(&mut self, _: &ToInit) -> Result<(), Infallible> {
        Ok(())
    }
    fn is_clogged(&self) -> bool {
        false
    }
    fn finish(&mut self) {}
    fn report(&mut self, _: Event, _: Now) {}
}

#[test]
fn the_whole_inbox_is_taken_in_before_anything_is_sent() {
    let mut world = World { inbox: [ToElector::Heartbeat, ToElector::Heartbeat].map(Input::Told).into(), ..World::default() };
    let mut turn = Turn::new(initial_state(), 0, world.now(), Turn::BEATS);

    let Ok(()) = turn.run(&mut world);

    assert_eq!(world.done[..3], ["an item", "an item", "a request"]);
}

#[test]
fn an_item_that_arrives_after_a_deadline_waits_until_the_link_was_drained() {
    let mut world = World::default();
    let mut turn = Turn::new(initial_state(), 0, world.now(), Turn::BEATS);
    let Ok(()) = turn.run(&mut world);
    let failed = Answer::Unknown { message: "reset".into(), retry_after: None };
    world.inbox.extend(world.asked.take().map(|id| Input::Answered { id, answer: failed }));
    let Ok(()) = turn.run(&mut world);
    (world.inbox, world.gap) = ([Input::Told(ToElector::Heartbeat)].into(), Duration::from_secs(60));
    world.done.clear();

    let Ok(()) = turn.run(&mut world);

    assert_eq!(world.done[..2], ["an item", "a message"]);
}
