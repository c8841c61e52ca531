//! What commands write into a Lease, seen by the replicas of a task: no fire is run twice, and none is lost.

use jiff::Timestamp;
use serde_json::json;

use super::{
    bench::{Bench, ME, Register, WALL, initial_state, seconds},
    schedule::{HOURLY, crashed, fires, rested, start, task},
};
use crate::{
    config::{Config, Release},
    election::{
        record::{LeaseRecord, LeaseState},
        writes::{
            LeaseWrite, Sent,
            operator::{ConfirmDead, Confirmation, unused_after},
        },
    },
    link::{Exit, Reason, Then},
    slot::Slot,
};

/// Which fires of a task were run, and what is wrong with that.
#[derive(Default)]
struct Judge {
    ran: Vec<Timestamp>,
}

impl Judge {
    fn runs(&mut self, lease: &serde_json::Value) {
        self.ran.push(fires(lease)[0].as_str().unwrap().parse().unwrap());
    }

    /// Nothing is wrong if each fire from the first run to the last was run once. `every` is the time between two.
    fn verdict(&self, every: i64) -> Option<&'static str> {
        let steps: Vec<_> = self.ran.windows(2).map(|pair| pair[1].as_second() - pair[0].as_second()).collect();
        match () {
            () if steps.iter().any(|step| *step <= 0) => Some("a fire was run twice"),
            () if steps.iter().any(|step| *step > every) => Some("a fire was lost"),
            () => None,
        }
    }
}

fn record(register: &Register) -> LeaseRecord {
    LeaseRecord::read(register.object().unwrap().into()).unwrap()
}

/// The next run after the fire of 07:00, which the judge has seen, by a replica that starts so many seconds after 08:00.
fn next_run(judge: &mut Judge, register: Register, later: i64) -> Register {
    let mut bench = start(task(HOURLY), register, later);
    let acquires = |write: &&Sent| matches!(write, Sent::Replace(object) if fires(object)[0].is_string());
    for _ in 0..7_200 {
        if bench.writes().iter().any(acquires) {
            break;
        }
        bench.run(seconds(1));
    }
    judge.runs(&bench.body());
    bench.register
}

fn after_seven() -> (Judge, Register) {
    let (mut judge, register) = (Judge::default(), rested("07:00:00"));
    judge.runs(&register.object().unwrap());
    (judge, register)
}

#[test]
fn the_next_fire_is_run_once_if_no_command_interferes() {
    let (mut judge, register) = after_seven();

    next_run(&mut judge, register, 10);

    assert_eq!(judge.verdict(3_600), None);
}

#[test]
fn the_run_of_a_holder_that_is_confirmed_dead_is_repeated_only_if_somebody_asks_for_that() {
    for (run_again, verdict) in [(false, None), (true, Some("a fire was run twice"))] {
        let (mut judge, register) = after_seven();
        let mut register = next_run(&mut judge, register, 10);
        let holder = record(&register).holder().unwrap().to_owned();
        let mut confirm = ConfirmDead::new(holder, Config::default().into(), run_again);
        let wall = WALL + 30_000_000;
        match [confirm.look(record(&register), wall), confirm.look(record(&register), wall)] {
            [Confirmation::Watch(_), Confirmation::Write(write)] => {
                register.write_to(Slot(0), write.sent());
            }
            looks => assert_eq!(looks, [Confirmation::Repeats, Confirmation::Repeats]),
        }

        next_run(&mut judge, register, 60);

        assert_eq!(judge.verdict(3_600), verdict);
    }
}

#[test]
fn a_lease_that_remembers_a_fire_is_pruned_only_if_somebody_asks_for_that_and_then_fires_that_are_due_are_lost() {
    for (schedules, verdict) in [(false, None), (true, Some("a fire was lost"))] {
        let (mut judge, mut register) = after_seven();
        let wall = WALL + 10_000_000;
        if unused_after(&record(&register), seconds(600), schedules, wall).is_some() {
            let pruned = LeaseWrite::delete(&record(&register));
            register.write_to(Slot(0), pruned.sent());
            assert_eq!(register.object(), None);
            // Whoever makes it again knows of no fire.
            register.put(json!({}));
            register.edit(|object| object["metadata"]["creationTimestamp"] = "2027-01-15T08:00:20Z".into());
        }

        next_run(&mut judge, register, 20);

        assert_eq!(judge.verdict(3_600), verdict);
    }
}

/// Takes the Lease without a schedule, as `tenure lock --lease` does, and gives it back.
fn lock(register: Register, later: i64) -> Register {
    let mut initial = initial_state();
    initial.config.lease.release = Release::Delete;
    let mut bench = start(initial, register, later);
    let holds = |bench: &Bench| record(&bench.register).is_held_by(ME);
    while !holds(&bench) {
        bench.run(seconds(1));
    }
    bench.stopping(Reason::Exited);
    bench.prove_ended(Some(Exit::Code(0)), Then::Exit);
    bench.run(seconds(10));
    assert_eq!(record(&bench.register).state(), LeaseState::Released);
    bench.register
}

#[test]
fn after_a_lock_over_it_a_task_runs_the_fire_that_was_due_and_not_the_one_before() {
    // The fire of 08:00 came while the lock was held, or comes after it; or its run has crashed.
    for (register, later, at) in [(rested("07:00:00"), 10, 60), (rested("08:00:00"), 10, 3_500), (crashed("08:00:00"), 10, 60)] {
        let mut judge = Judge::default();
        judge.runs(&register.object().unwrap());

        next_run(&mut judge, lock(register, later), at);

        assert_eq!(judge.verdict(3_600), None, "the fires {:?}", judge.ran);
    }
}
