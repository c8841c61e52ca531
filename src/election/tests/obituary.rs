//! Tests of what the witness of a dead replica releases (law 20).

use std::time::Duration;

use serde_json::{Value, json};

use super::bench::{Bench, ME, Register, held, lost, mark, rose, seconds, written};
use crate::{
    election::{
        AcquireReason, Event, Request, RequestId,
        obituary::{Action, Input, MOST_REPLICAS, Replica, Witness},
        record::{LeaseRecord, LeaseState},
        writes::{HOLDER, NOBODY, OBITUARY, RESTS, Sent, TRACEPARENT, rests},
    },
    request::{Answer, Refusal, RequestError},
};

/// 2026-01-01T00:00:10Z, after the times of [`held`].
const WALL: i64 = 1_767_225_610_000_000;

struct Pod {
    witness: Witness,
    register: Register,
    awaited: Vec<(RequestId, Request)>,
    pauses: Vec<Duration>,
    failed: Vec<String>,
    /// Identities, and what was given back of each.
    ended: Vec<(String, Vec<String>)>,
}

/// The object of a PUT.
fn body(request: &Request) -> &Value {
    let Some(Sent::Replace(object)) = written(request) else { panic!("{request:?}") };
    object
}

impl Pod {
    /// The witness knows [`ME`], who lives.
    fn with(spec: Value) -> Self {
        let (witness, register) = (Witness::new(7), Register::holding(spec));
        let (awaited, pauses, failed, ended) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let mut pod = Self { witness, register, awaited, pauses, failed, ended };
        pod.input(Input::Told(replica(ME, &["lease"])));
        pod
    }

    fn input(&mut self, input: Input) {
        self.witness.handle(input, WALL);
        while let Some(action) = self.witness.poll_action() {
            match action {
                Action::Request { id, request, pause, .. } => {
                    self.awaited.push((id, request));
                    self.pauses.push(pause);
                }
                Action::Failed { message, .. } => self.failed.push(message.words),
                Action::Ended { identity, given_back } => self.ended.push((identity, given_back)),
            }
        }
    }

    fn dies(&mut self) {
        self.input(Input::Died { identity: ME.into() });
    }

    /// The server answers the request that waits longest.
    fn serve(&mut self) {
        let (id, request) = self.awaited.remove(0);
        let answer = self.register.apply(&request);
        self.input(Input::Answered { id, answer });
    }

    /// Something else answers it.
    fn answer(&mut self, answer: Answer) {
        let (id, _) = self.awaited.remove(0);
        self.input(Input::Answered { id, answer });
    }

    /// The server answers everything; returns the bodies of all writes.
    fn run(&mut self) -> Vec<Value> {
        let mut written = Vec::new();
        while let Some((_, request)) = self.awaited.first() {
            assert!(self.pauses.len() < 1000, "it asks for ever: {request:?}");
            match request {
                Request::Get => {}
                other => written.push(Value::clone(body(other))),
            }
            self.serve();
        }
        written
    }

    fn annotate(&mut self, name: &str, value: &str) {
        self.register.edit(|object| object["metadata"]["annotations"][name] = value.into());
    }
}

fn replica(identity: &str, leases: &[&str]) -> Replica {
    let leases = leases.iter().map(|&lease| lease.to_owned()).collect();
    let (attempt_timeout, renew_period) = (seconds(2), seconds(15));
    Replica { identity: identity.into(), namespace: "default".into(), leases, attempt_timeout, renew_period }
}

fn failure(refusal: Refusal) -> Answer {
    Answer::Refused { refusal, message: RequestError { status: Some(400), words: "no".into() } }
}

/// Who ended without anything to give back.
fn nothing(identity: &str) -> Vec<(String, Vec<String>)> {
    vec![(identity.to_owned(), Vec::new())]
}

#[test]
fn what_a_dead_replica_holds_is_given_back_in_the_shape_of_a_release() {
    let mut pod = Pod::with(held(ME, 60));
    pod.annotate(HOLDER, ME);
    pod.annotate(TRACEPARENT, "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01");
    let before = pod.register.object().unwrap();

    pod.dies();
    let written = pod.run();

    let after = pod.register.object().unwrap();
    let record = LeaseRecord::read(after.clone().into()).unwrap();
    assert_eq!((written.len(), record.state()), (1, LeaseState::Released));
    assert_eq!((record.annotation(OBITUARY), record.annotation(HOLDER)), (Some(ME), None));
    assert_eq!(after["metadata"]["annotations"][TRACEPARENT], before["metadata"]["annotations"][TRACEPARENT]);
    assert_eq!(after["spec"]["leaseTransitions"], before["spec"]["leaseTransitions"]);
    assert_eq!(pod.ended, [(ME.to_owned(), vec!["lease".to_owned()])]);
}

#[test]
fn only_the_pidfd_says_that_a_replica_is_dead() {
    let mut pod = Pod::with(held(ME, 60));

    pod.input(Input::Disconnected { identity: ME.into() });

    assert!(pod.awaited.is_empty() && pod.witness.knows(ME), "{:?}", pod.awaited);
}

#[test]
fn a_holder_of_the_same_base_name_keeps_its_lease() {
    let mut pod = Pod::with(held("me_4567", 60));

    pod.dies();

    assert_eq!((pod.run(), pod.ended), (Vec::new(), nothing(ME)));
}

#[test]
fn what_does_not_name_the_dead_replica_is_left_alone() {
    for spec in [held("other_89", 60), held(NOBODY, 60), mark(), json!({})] {
        let mut pod = Pod::with(spec.clone());
        pod.dies();
        assert_eq!((pod.run(), pod.ended), (Vec::new(), nothing(ME)), "{spec}");
    }
}

#[test]
fn nobody_is_no_replica_that_can_die() {
    let mut pod = Pod::with(held(NOBODY, 60));
    pod.input(Input::Told(replica(NOBODY, &["lease"])));

    pod.input(Input::Died { identity: NOBODY.into() });

    assert_eq!(pod.run(), Vec::<Value>::new());
}

#[test]
fn a_task_that_rests_rests_on() {
    let spec = held(ME, 60);
    let mut pod = Pod::with(spec.clone());
    pod.annotate(RESTS, &rests(spec["renewTime"].as_str().unwrap(), ME));

    pod.dies();

    assert_eq!((pod.run(), pod.ended), (Vec::new(), nothing(ME)));
}

#[test]
fn a_lease_that_is_gone_is_not_created() {
    let mut pod = Pod::with(held(ME, 60));
    pod.register.delete();

    pod.dies();

    assert_eq!((pod.run(), pod.ended), (Vec::new(), nothing(ME)));
}

#[test]
fn the_last_renewal_of_the_dead_may_overtake_the_write_but_not_somebody_elses_hold() {
    let mut pod = Pod::with(held(ME, 60));
    let read = pod.register.object().unwrap();
    pod.dies();
    pod.serve();
    let [(_, clear)] = &pod.awaited[..] else { panic!("{:?}", pod.awaited) };
    let base = |object: &Value| (object["metadata"]["uid"].clone(), object["metadata"]["resourceVersion"].clone());
    assert_eq!(base(body(clear)), base(&read));

    pod.register.edit(|object| object["spec"]["renewTime"] = "2026-01-01T00:00:09.000000Z".into());
    pod.serve();
    pod.serve();
    assert!(matches!(&pod.awaited[..], [(_, again)] if rose(&read, body(again))), "{:?}", pod.awaited);

    pod.register.edit(|object| object["spec"]["holderIdentity"] = "other_89".into());
    pod.run();
    assert_eq!((pod.register.spec()["holderIdentity"].as_str(), pod.ended), (Some("other_89"), nothing(ME)));
}

#[test]
fn a_write_without_an_answer_is_looked_for() {
    for was_committed in [true, false] {
        let mut pod = Pod::with(held(ME, 60));
        pod.dies();
        pod.serve();
        let request = pod.awaited[0].1.clone();
        if was_committed {
            pod.register.apply(&request);
        }
        pod.answer(lost());

        assert_eq!((pod.run().len(), pod.ended), (usize::from(!was_committed), vec![(ME.into(), vec!["lease".into()])]));
    }
}

#[test]
fn who_is_done_with_is_forgotten_and_keeps_what_names_it_again() {
    let mut pod = Pod::with(held(ME, 60));
    pod.dies();
    pod.run();
    assert!(pod.witness.is_idle());

    pod.register.put(held(ME, 60));
    pod.dies();

    assert!(pod.awaited.is_empty(), "{:?}", pod.awaited);
}

#[test]
fn who_dies_twice_is_dead_once() {
    let mut pod = Pod::with(held(ME, 60));
    pod.dies();
    pod.input(Input::Told(replica(ME, &["lease"])));
    pod.dies();

    assert_eq!(pod.awaited.len(), 1);
}

#[test]
fn a_dead_replica_that_was_written_by_hand_into_the_lease_of_another_gives_nothing_back() {
    let mut pod = Pod::with(held(ME, 60));
    pod.annotate(HOLDER, "who_stops");

    pod.dies();

    assert_eq!((pod.run(), pod.ended), (Vec::new(), nothing(ME)));
}

#[test]
fn every_slot_is_looked_at_and_the_one_that_was_held_is_given_back() {
    let mut pod = Pod::with(held("me_01", 60));
    pod.input(Input::Told(replica("me_01", &["lease-slot-1", "lease"])));

    pod.input(Input::Died { identity: "me_01".into() });
    pod.answer(Answer::NotFound);
    assert!(pod.ended.is_empty() && pod.witness.knows("me_01"));
    pod.run();

    assert_eq!(pod.ended, [("me_01".to_owned(), vec!["lease".to_owned()])]);
}

#[test]
fn it_tries_as_often_as_a_leader_where_nothing_answers_and_less_often_where_it_is_refused() {
    let longest = |answer: &Answer| {
        let mut pod = Pod::with(held(ME, 60));
        pod.dies();
        (0..30).for_each(|_| pod.answer(answer.clone()));
        assert_eq!(pod.failed.len(), 1, "{:?}", pod.failed);
        assert_eq!(pod.run().len(), 1);
        pod.pauses[1..31].iter().copied().max().unwrap()
    };

    assert!(longest(&lost()) < Duration::from_millis(700));
    let soon = seconds(3);
    assert_eq!(longest(&Answer::Unknown { message: "busy".into(), retry_after: Some(soon) }), soon);
    assert!((seconds(11)..=seconds(19)).contains(&longest(&failure(Refusal::Forbidden))));
    let retry_after = Some(seconds(3600));
    assert!(longest(&failure(Refusal::TooManyRequests { retry_after })) <= seconds(19));
}

#[test]
fn credentials_that_are_refused_for_the_first_time_are_read_again_at_once() {
    let mut pod = Pod::with(held(ME, 60));
    pod.dies();

    pod.answer(failure(Refusal::Unauthorized));
    pod.answer(failure(Refusal::Unauthorized));

    assert_eq!((pod.pauses[1], pod.pauses[2] > Duration::ZERO), (Duration::ZERO, true));
}

#[test]
fn a_witness_that_is_told_to_end_tries_nothing_again_that_is_certainly_refused() {
    let ended_after = |answer: &Answer| {
        let mut pod = Pod::with(held(ME, 60));
        pod.dies();
        pod.input(Input::Ending);
        (1..=3).find(|_| {
            pod.answer(answer.clone());
            pod.witness.is_idle()
        })
    };

    assert_eq!([Refusal::Forbidden, Refusal::NoSuchPlace].map(|refusal| ended_after(&failure(refusal))), [Some(1); 2]);
    assert_eq!(ended_after(&failure(Refusal::Unauthorized)), Some(2), "the token may have been rotated");
    assert_eq!(ended_after(&failure(Refusal::TooManyRequests { retry_after: None })), None);
    assert_eq!(ended_after(&lost()), None);
    let unasked = Answer::Refused { refusal: Refusal::Unauthorized, message: "no credentials within 2s".into() };
    assert_eq!(ended_after(&unasked), None, "a credential plugin may take longer the first time");
    let mut pod = Pod::with(held(ME, 60));
    pod.dies();
    pod.input(Input::Ending);
    [lost(), failure(Refusal::Unauthorized)].into_iter().for_each(|answer| pod.answer(answer));
    assert!(!pod.witness.is_idle(), "also where something else failed before");
}

#[test]
fn the_word_of_a_later_elector_replaces_that_of_an_earlier_one() {
    let mut pod = Pod::with(held(ME, 60));
    pod.input(Input::Disconnected { identity: ME.into() });
    pod.input(Input::Told(replica(ME, &["other", "lease"])));

    pod.dies();

    assert_eq!(pod.awaited.len(), 2);
}

#[test]
fn nobody_replaces_the_word_of_an_elector_that_is_connected() {
    let mut pod = Pod::with(held(ME, 60));
    assert!(!pod.witness.believes(ME) && pod.witness.believes("me_2"));
    pod.input(Input::Told(replica(ME, &["other", "lease"])));

    pod.dies();

    assert_eq!(pod.awaited.len(), 1);
    assert!(!pod.witness.believes(ME), "its replica is dead");
}

#[test]
fn no_times_of_a_replica_make_requests_follow_each_other_without_a_pause() {
    for times in [Duration::ZERO, Duration::MAX] {
        let mut pod = Pod::with(held(ME, 60));
        pod.input(Input::Told(Replica { attempt_timeout: times, renew_period: times, ..replica(ME, &["lease"]) }));
        pod.dies();
        for answer in [failure(Refusal::Forbidden), lost()] {
            pod.answer(answer);
        }
        assert!(pod.pauses[1..].iter().all(|pause| *pause >= Duration::from_millis(100)), "{:?}", pod.pauses);
    }
}

#[test]
fn no_more_replicas_are_remembered_than_there_is_room_for() {
    let mut pod = Pod::with(held(ME, 60));
    (0..10_000).for_each(|n| pod.input(Input::Told(replica(&format!("n_{n}"), &["lease"]))));

    let known = (0..10_000).filter(|n| pod.witness.knows(&format!("n_{n}"))).count();
    assert_eq!((known, pod.witness.knows(ME)), (MOST_REPLICAS - 1, true));
}

#[test]
fn a_clock_that_is_slow_writes_no_earlier_time_than_the_record_has() {
    let mut pod = Pod::with(held(ME, 60));
    pod.register.edit(|object| object["spec"]["renewTime"] = "2030-01-01T00:00:00.000000Z".into());

    pod.dies();
    pod.run();

    assert_eq!(pod.register.spec()["renewTime"], "2030-01-01T00:00:01.000000Z");
}

#[test]
fn a_follower_takes_what_a_witness_gave_back_at_once_says_that_its_holder_died_and_removes_the_obituary() {
    let mut bench = Bench::with(held("dead_01", 60));
    bench.run(seconds(1));
    bench.see(|object| {
        object["metadata"]["annotations"] =
            json!({OBITUARY: "dead_01", TRACEPARENT: "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01"});
        object["spec"] = mark();
    });
    bench.run(Duration::from_millis(1));

    assert!(bench.leads().is_some());
    assert_eq!(bench.register.object().unwrap()["metadata"]["annotations"].get(OBITUARY), None);
    let why = |event: &Event| match event {
        Event::Campaigning { why, context, other, .. } => {
            Some((*why, other.is_some_and(|other| other.trace_id != context.trace_id)))
        }
        _ => None,
    };
    assert_eq!(bench.events.iter().find_map(why), Some((AcquireReason::Died, true)), "a trace of its own, with a link");
}
