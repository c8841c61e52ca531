//! What commands write into a Lease, seen by the replicas of a task: controls for a judge of its fires.
//!
//! What is asserted here of `confirm-dead` and `prune` is known to be wrong. A change that cures it must turn these tests round.

use jiff::Timestamp;
use serde_json::json;

use super::{
    bench::{Register, WALL, seconds},
    schedule::{HOURLY, fires, rested, start, task},
};
use crate::{
    config::Config,
    election::{
        Request,
        record::LeaseRecord,
        writes::{
            KIND_LABEL, LeaseWrite,
            operator::{ConfirmDead, Confirmation, deletion, unused_after},
        },
    },
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
    let acquires = |request: &&Request| matches!(request, Request::Replace(object) if fires(object)[0].is_string());
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
fn a_run_whose_holder_is_confirmed_dead_is_repeated_and_the_judge_reports_it() {
    let (mut judge, register) = after_seven();
    let mut register = next_run(&mut judge, register, 10);
    let holder = record(&register).holder().unwrap().to_owned();
    let mut confirm = ConfirmDead::new(holder, Config::default().into());
    let wall = WALL + 30_000_000;
    assert!(matches!(confirm.look(record(&register), wall), Confirmation::Watch(_)));
    let Confirmation::Write(write) = confirm.look(record(&register), wall) else { panic!("a write") };
    register.apply(write.request());

    next_run(&mut judge, register, 60);

    assert_eq!(judge.verdict(3_600), Some("a fire was run twice"));
}

#[test]
fn a_fire_that_is_due_is_lost_with_a_lease_that_is_pruned_and_the_judge_reports_it() {
    let (mut judge, mut register) = after_seven();
    register.edit(|object| object["metadata"]["labels"] = json!({ KIND_LABEL: "task" }));
    let wall = WALL + 10_000_000;
    assert_eq!(unused_after(&record(&register), seconds(600), wall), Some(seconds(0)));
    let pruned: LeaseWrite = deletion(&record(&register));
    register.apply(pruned.request());
    assert_eq!(register.object(), None);
    // Whoever makes it again knows of no fire.
    register.put(json!({}));
    register.edit(|object| object["metadata"]["creationTimestamp"] = "2027-01-15T08:00:20Z".into());

    next_run(&mut judge, register, 20);

    assert_eq!(judge.verdict(3_600), Some("a fire was lost"));
}
