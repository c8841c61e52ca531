//! As PID 1 init reaps processes that it did not start: their end says nothing about the workload's.

use super::*;

const ORPHAN: i32 = 300;

fn reap_an_orphan(world: &mut World) {
    world.take();
    world.feed(Input::Reaped { pid: ORPHAN, exit: Exit::Code(0) });
    world.due();
}

#[test]
fn an_orphan_that_is_reaped_shortens_no_grace_and_nobody_looks_for_more() {
    let mut world = World::leading(config());
    world.feed(Input::Signal(libc::SIGTERM));

    reap_an_orphan(&mut world);

    assert_eq!(world.take(), []);
    world.exit_proved(Exit::Code(0));
}

#[test]
fn an_orphan_that_is_reaped_while_the_workload_starts_is_not_its_end() {
    let mut world = World::new(config());
    world.lead(1);
    world.feed(Input::Forked { pid: MAIN });

    reap_an_orphan(&mut world);

    assert_eq!(world.take(), []);
    world.feed(Input::Spawned);
    assert_eq!(world.tells(), [ToElector::Started { term: Term(1), pid: MAIN, at: world.now }]);
}
