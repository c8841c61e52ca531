//! Law 3, 7: what the workload may read of its term, and when it is taken back.

use super::*;
use crate::supervision::TermStatus;

/// When the term's write was sent.
const A: Instant = Instant::from_nanos(1_000_000_000);

/// What a leader reads with these deadlines, after so many renewals.
fn leader(soft: Instant, hard: Instant, renewals: u64) -> TermStatus {
    TermStatus { role: Role::Leader, transitions: 3, token: 7, soft, hard, renewals }
}

#[test]
fn what_may_be_read_is_what_was_proved_last() {
    let mut world = World::new(config());
    assert_eq!(world.agent.term_status(), TermStatus::NONE);
    world.lead(1);
    assert_eq!(world.agent.term_status(), leader(deadlines(A).soft, deadlines(A).hard, 0), "before it is started");
    world.run();
    world.sleep_until(ms(4000));
    world.extend(1, 1, ms(3900));
    assert_eq!(world.agent.term_status(), leader(deadlines(ms(3900)).soft, deadlines(ms(3900)).hard, 1));
    world.extend(1, 2, ms(4001));
    assert_eq!(world.agent.term_status().soft, deadlines(ms(3900)).soft, "one that was not sent yet is none");
}

#[test]
fn what_may_be_read_is_taken_back_with_the_stop() {
    let mut world = World::leading(config());
    world.sleep_until(ms(2000));

    world.agent.handle(Input::Signal(libc::SIGTERM), world.now);

    assert_eq!(world.agent.term_status(), leader(Instant::BOOT, deadlines(A).hard, 0), "before the signal that was asked for");
    world.collect();
    assert!(world.wants(&to_main(libc::SIGTERM)));
    world.extend(1, 1, ms(1900));
    assert_eq!(world.agent.term_status(), leader(Instant::BOOT, deadlines(ms(1900)).hard, 1), "it is kept for the stop");
    world.step_down(9, Reason::LostToHolder);
    assert_eq!(world.agent.term_status(), leader(Instant::BOOT, Instant::BOOT, 1), "no longer");
    world.exit(Exit::Code(0));
    assert_eq!(world.agent.term_status().role, Role::Leader, "something of it may run");
    world.prove();
    assert_eq!(world.agent.term_status(), TermStatus::NONE);
    assert!(world.stopped().is_some(), "and only then it is told");
}

#[test]
fn at_s_it_is_asked_to_stop_and_has_until_h() {
    let mut world = World::leading(config());
    let soft = deadlines(A).soft;
    world.sleep_until(soft.before(tick()));
    world.due();
    assert_eq!(world.agent.term_status().soft, soft);
    world.sleep_until(soft);
    world.due();
    assert_eq!(world.agent.term_status(), leader(Instant::BOOT, deadlines(A).hard, 0));
}

#[test]
fn a_standby_reads_of_no_term_until_it_is_promoted() {
    let mut world = World::standby(told_by_signals(config(), Acknowledge::None));
    assert_eq!(world.agent.term_status(), TermStatus::NONE);
    world.lead(1);
    assert_eq!(world.agent.term_status(), leader(deadlines(A).soft, deadlines(A).hard, 0));
    world.feed(Input::Role(RoleInput::Signalled));
    world.step_down(9, Reason::StepDown);
    assert_eq!(world.agent.term_status(), leader(Instant::BOOT, deadlines(A).hard, 0));
    world.feed(Input::Role(RoleInput::Signalled));
    assert_eq!(world.agent.term_status(), TermStatus::NONE);
}

#[test]
fn a_token_that_is_no_number_of_64_bits_is_left_out() {
    let mut world = World::new(config());
    let info = TermInfo { token: "18446744073709551616".into(), ..info() };
    world.told(ToInit::Lead { term: Term(1), info, confirmed: confirmed(A) });
    assert_eq!((world.agent.term_status().token, world.agent.term_status().soft), (0, deadlines(A).soft));
}
