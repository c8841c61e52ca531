//! A ready standby of a higher priority asks for a handover (`lease.preempt`), and several replicas in one room.

use std::{collections::VecDeque, time::Duration};

use serde_json::{Value, json};

use super::bench::{Bench, ME, Register, START, TICK, held, initial_state, lost, mark, seconds, written};
use crate::{
    config::{Config, LeaseConfig},
    election::{
        Action, Elector, Event, Input, Request,
        writes::{HOLDER, PAUSED, PRIORITY, STEP_DOWN, STEP_DOWN_TO, Sent},
    },
    link::{Exit, InitialState, Reason, Stop, Term, Then, ToElector, ToInit},
    request::{Answer, Refusal, WatchEnd, Watched},
    time::{Instant, Now},
};

const AFTER: Duration = Duration::from_secs(600);

fn preempting(priority: i8) -> InitialState {
    let mut initial = initial_state();
    (initial.config.lease.priority, initial.config.lease.preempt) = (priority, Some(AFTER));
    initial
}

/// Held by x with this priority for longer than any test lasts.
fn held_with(priority: &str) -> Register {
    let mut register = Register::holding(held("x", 100_000));
    register.edit(|object| object["metadata"]["annotations"] = json!({ HOLDER: "x", PRIORITY: priority }));
    register
}

fn asks(bench: &Bench) -> bool {
    let asked: Vec<_> = bench.writes().into_iter().filter(|request| matches!(request, Sent::Replace(_))).collect();
    assert!(asked.len() < 2, "it asks once: {asked:?}");
    !asked.is_empty()
}

#[test]
fn a_standby_asks_a_leader_of_a_lower_priority_once_and_changes_nothing_else() {
    for (own, holders) in [(0, "-1"), (-2, "-3")] {
        let mut bench = Bench::start(preempting(own), held_with(holders));
        let before = bench.register.object().unwrap();
        let delay = seconds(own.unsigned_abs().into());
        bench.run(AFTER + delay - TICK);
        assert!(!asks(&bench));

        bench.run(TICK);

        assert!(asks(&bench) && bench.events.contains(&Event::Preempts { holder: "x".into() }));
        let mut expected = before;
        expected["metadata"]["annotations"][STEP_DOWN] = "x".into();
        expected["metadata"]["annotations"][STEP_DOWN_TO] = ME.into();
        expected["metadata"]["resourceVersion"] = bench.body()["metadata"]["resourceVersion"].clone();
        assert_eq!(bench.body(), expected);
        bench.run(AFTER * 3);
        assert!(asks(&bench));
    }
}

#[test]
fn a_request_that_a_policy_undoes_or_refuses_is_repeated_once_in_the_time_of_preempt() {
    for is_undone in [true, false] {
        let mut bench = Bench::start(preempting(0), held_with("-1"));
        bench.run(AFTER - TICK);
        bench.answers = false;
        let (until, before) = (bench.now.boot + AFTER * 3, bench.writes().len());
        while bench.now.boot < until {
            match bench.awaited.as_ref().map(|(_, request)| written(request)) {
                Some(Some(Sent::Replace(_))) if is_undone => {
                    bench.register.edit(|object| object["metadata"]["labels"] = json!({}));
                    let object = bench.register.object().unwrap();
                    bench.answer(Answer::Object(object.into()));
                }
                Some(Some(Sent::Replace(_))) => {
                    bench.answer(Answer::Refused { refusal: Refusal::Invalid, message: "no".into() });
                }
                Some(_) => bench.serve(),
                None => bench.run(Duration::from_millis(100)),
            }
        }

        let asked = bench.writes().len() - before;
        assert!((2..=3).contains(&asked), "{asked} requests, undone: {is_undone}");
    }
}

#[test]
fn a_request_that_met_a_conflict_or_a_failure_that_may_pass_comes_again_at_once() {
    let busy = Answer::Refused { refusal: Refusal::TooManyRequests { retry_after: None }, message: "slow down".into() };
    let denied = Answer::Refused { refusal: Refusal::Unauthorized, message: "token".into() };
    for failure in [busy, denied, lost(), Answer::Conflict] {
        let mut bench = Bench::start(preempting(0), held_with("-1"));
        bench.run(AFTER - TICK);
        bench.answers = false;
        while !bench.awaits_a_write() {
            bench.run(TICK * 10_000_000);
            if let Some((_, Request::Get)) = bench.awaited {
                bench.serve();
            }
        }
        bench.answer(failure.clone());
        bench.answers = true;

        bench.run(seconds(4));

        let annotations = &bench.register.object().unwrap()["metadata"]["annotations"];
        assert_eq!(annotations[STEP_DOWN], "x", "{failure:?}");
    }
}

#[test]
fn a_request_that_somebody_removes_each_time_is_repeated_once_in_the_time_of_preempt() {
    let mut bench = Bench::start(preempting(0), held_with("-1"));
    bench.run(AFTER - TICK);
    let (until, before, mut asked) = (bench.now.boot + AFTER * 3, bench.writes().len(), 0);

    while bench.now.boot < until {
        bench.run(Duration::from_millis(100));
        if bench.register.object().unwrap()["metadata"]["annotations"][STEP_DOWN].is_string() {
            bench.see(|object| object["metadata"]["annotations"] = json!({ HOLDER: "x", PRIORITY: "-1" }));
        }
        asked = bench.writes().len() - before;
        assert!(asked <= 3, "{asked} requests");
    }

    assert!(asked >= 2, "{asked} requests");
}

/// A standby that asks the holder to hand over, and is then to end after this change of the Lease.
fn ends_after(change: impl FnOnce(&mut Value)) -> Bench {
    let mut bench = Bench::start(preempting(0), held_with("-1"));
    bench.run(AFTER);
    assert!(asks(&bench));
    bench.see(change);
    bench.tell(ToElector::Shutdown);
    bench.run(TICK);
    bench
}

#[test]
fn a_standby_that_ends_takes_its_request_back_while_that_is_still_its_own() {
    let bench = ends_after(|_| ());
    let is_done = |bench: &Bench| bench.told.contains(&ToInit::Done);
    let annotations = |bench: &Bench| bench.register.object().unwrap()["metadata"]["annotations"].clone();
    assert_eq!(annotations(&bench), json!({ HOLDER: "x", PRIORITY: "-1" }));
    assert!(is_done(&bench));

    let mut unanswered = Bench::start(preempting(0), held_with("-1"));
    unanswered.run(AFTER - TICK);
    unanswered.run_until_a_write();
    unanswered.serve_silently();
    unanswered.watch_register();
    unanswered.answers = false;
    unanswered.tell(ToElector::Shutdown);
    assert!(unanswered.awaits_a_write(), "{:?}", unanswered.sent);
    unanswered.watch(Watched::Ended(WatchEnd::Closed));
    unanswered.run(seconds(2));
    unanswered.run_answered(seconds(5));
    assert_eq!(annotations(&unanswered), json!({ HOLDER: "x", PRIORITY: "-1" }));
    assert!(is_done(&unanswered));

    // The answer to its request is still awaited, or lost, and the watch is late.
    for serve in [Bench::serve, Bench::serve_silently] {
        let mut early = Bench::start(preempting(0), held_with("-1"));
        early.run(AFTER - TICK);
        early.run_until_a_write();
        early.tell(ToElector::Shutdown);
        assert!(!is_done(&early));
        early.answers = false;
        serve(&mut early);
        early.run(TICK);
        while !early.awaits_a_write() {
            early.serve();
            early.run(TICK);
        }
        early.tell(ToElector::Shutdown);
        assert!(!is_done(&early), "its last write is on its way");
        early.run_answered(TICK);
        assert_eq!(annotations(&early), json!({ HOLDER: "x", PRIORITY: "-1" }));
        assert!(is_done(&early));
    }

    let mut persons = Bench::start(preempting(0), held_with("-1"));
    persons.run(seconds(1));
    persons.see(|object| object["metadata"]["annotations"][STEP_DOWN_TO] = ME.into());
    persons.tell(ToElector::Shutdown);
    persons.run(TICK);
    assert_eq!(annotations(&persons)[STEP_DOWN_TO], ME);
    assert!(is_done(&persons));

    // Its own was removed before a person asked for the same.
    let mut persons = Bench::start(preempting(0), held_with("-1"));
    persons.run(AFTER);
    assert!(asks(&persons));
    persons.see(|object| object["metadata"]["annotations"] = json!({ HOLDER: "x", PRIORITY: "-1" }));
    persons.see(|object| object["metadata"]["annotations"][STEP_DOWN_TO] = ME.into());
    persons.tell(ToElector::Shutdown);
    persons.run(TICK);
    assert_eq!(annotations(&persons)[STEP_DOWN_TO], ME);

    let others = ends_after(|object| object["metadata"]["annotations"][STEP_DOWN_TO] = "y".into());
    assert_eq!(annotations(&others)[STEP_DOWN_TO], "y");
    assert!(is_done(&others));

    let named = ends_after(|object| object["spec"]["holderIdentity"] = ME.into());
    assert_eq!(annotations(&named)[STEP_DOWN_TO], ME, "nobody waits for whom the Lease names");
    assert!(is_done(&named));
}

#[test]
fn nobody_asks_a_leader_of_the_same_or_an_unknown_priority_or_when_others_go_first() {
    let annotate = |name: &'static str| move |object: &mut Value| object["metadata"]["annotations"][name] = "y".into();
    type Edit<'a> = &'a dyn Fn(&mut Value);
    let edits: [(&str, Edit<'_>); 9] = [
        ("equal", &|object| object["metadata"]["annotations"][PRIORITY] = "0".into()),
        ("none", &|object| object["metadata"]["annotations"] = json!({ HOLDER: "x" })),
        ("an earlier holder's", &annotate(HOLDER)),
        ("paused", &annotate(PAUSED)),
        ("asked already", &annotate(STEP_DOWN)),
        ("a named candidate", &annotate(STEP_DOWN_TO)),
        ("a coordinator", &|object| object["spec"]["strategy"] = "OldestEmulationVersion".into()),
        ("being deleted", &|object| object["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into()),
        ("this replica's name outside a term", &|object| {
            object["spec"]["holderIdentity"] = ME.into();
            object["metadata"]["annotations"][HOLDER] = ME.into();
        }),
    ];
    for (what, edit) in edits {
        let mut register = held_with("-1");
        register.edit(edit);
        let mut bench = Bench::start(preempting(0), register);
        bench.run(AFTER * 2);
        assert!(!asks(&bench), "{what}");
    }
    let mut initial = preempting(0);
    initial.config.lease.preempt = None;
    let mut bench = Bench::start(initial, held_with("-1"));
    bench.run(AFTER * 2);
    assert!(!asks(&bench), "it is off by default");
}

#[test]
fn a_standby_asks_once_it_has_been_ready_and_the_leader_has_led_for_that_long() {
    let health = |unready: Option<&str>| ToElector::Health { unready: unready.map(str::to_owned), status: String::new() };
    let mut unready = Bench::start(preempting(0), held_with("-1"));
    unready.run(seconds(300));
    unready.tell(health(Some("warming up")));
    unready.run(AFTER * 2);
    assert!(!asks(&unready), "it is not ready");
    unready.tell(health(None));
    unready.run(AFTER - TICK);
    assert!(!asks(&unready), "it has been ready for too short a time");
    unready.run(TICK);
    assert!(asks(&unready));

    let mut renewed = Bench::start(preempting(0), held_with("-1"));
    renewed.run(seconds(300));
    renewed.see(|object| object["spec"]["renewTime"] = "2026-01-01T00:05:00.000000Z".into());
    renewed.run(seconds(301));
    assert!(asks(&renewed), "a renewal begins no term");

    let mut another = Bench::start(preempting(0), held_with("-1"));
    another.run(seconds(300));
    another.see(|object| object["spec"]["leaseTransitions"] = 5.into());
    another.run(AFTER - TICK);
    assert!(!asks(&another), "the leader has begun anew");
    another.run(TICK);
    assert!(asks(&another));
}

#[test]
fn the_priority_of_the_holder_is_on_the_lease_for_as_long_as_it_holds() {
    let priority = |bench: &Bench| bench.body()["metadata"]["annotations"].get(PRIORITY).cloned();
    let mut bench = Bench::start(preempting(-3), Register::holding(mark()));
    bench.run(seconds(3));
    assert_eq!(priority(&bench), Some("-3".into()));
    bench.run(seconds(4));
    assert_eq!(priority(&bench), Some("-3".into()));
    bench.stop(Reason::Signal, Then::Exit);
    bench.run(seconds(1));
    assert_eq!(priority(&bench), None);

    let mut register = Register::holding(mark());
    register.edit(|object| object["metadata"]["annotations"] = json!({ PRIORITY: "-3" }));
    let mut preferred = Bench::start(preempting(0), register);
    preferred.run(TICK);
    assert_eq!(priority(&preferred), None);
}

/// Electors over one register, each with an init that cooperates; the watch and the answers take no time.
struct Room {
    now: Now,
    register: Register,
    preempt: Option<Duration>,
    members: Vec<Member>,
    /// Who started a workload, and when.
    starts: Vec<(usize, Instant)>,
    /// Who asked for a handover, and when.
    requests: Vec<(usize, Instant)>,
}

struct Member {
    priority: i8,
    /// None: the replica is dead.
    elector: Option<Elector>,
    inputs: VecDeque<Input>,
    term: Option<Term>,
    /// When its workload ends by itself.
    ends: Option<Instant>,
    lasts: Duration,
}

impl Room {
    /// Replicas of these priorities, whose workloads fail after `lasts`.
    fn of(priorities: &[i8], preempt: Option<Duration>, lasts: Duration) -> Self {
        let now = Now { boot: START, wall: 1_800_000_000_000_000 };
        let members = priorities.iter().map(|priority| Member {
            priority: *priority,
            elector: None,
            inputs: VecDeque::new(),
            term: None,
            ends: None,
            lasts,
        });
        let members = members.collect();
        let register = Register::holding(mark());
        let mut room = Self { now, register, preempt, members, starts: Vec::new(), requests: Vec::new() };
        (0..priorities.len()).for_each(|who| room.revive(who));
        room
    }

    /// A replica starts anew.
    fn revive(&mut self, who: usize) {
        let (preempt, member) = (self.preempt, &mut self.members[who]);
        let (name, namespace, priority) = ("lease".into(), "default".into(), member.priority);
        let lease = LeaseConfig { name, namespace, priority, preempt, ..LeaseConfig::default() };
        let initial = InitialState::first(Config { lease, ..Config::default() }, format!("{who}_{}", self.now.wall));
        (member.term, member.ends) = (None, None);
        member.inputs.clear();
        member.elector = Some(Elector::new(initial, u64::try_from(who).unwrap(), self.now));
    }

    fn kill(&mut self, who: usize) {
        self.members[who].elector = None;
    }

    fn run(&mut self, span: Duration) {
        let until = self.now.boot + span;
        loop {
            while self.drain() {}
            let due = |member: &Member| member.elector.as_ref()?.poll_timeout().into_iter().chain(member.ends).min();
            let next = self.members.iter().filter_map(due).min().unwrap_or(Instant::NEVER);
            let next = next.max(self.now.boot);
            if next > until {
                self.pass(until);
                return;
            }
            self.pass(next);
            for member in &mut self.members {
                let Some(elector) = &mut member.elector else { continue };
                if let (Some(term), Some(at)) = (member.term, member.ends.take_if(|at| *at <= next)) {
                    member.inputs.push_back(Input::Told(ToElector::Stopping { term, reason: Reason::Exited, at }));
                }
                if elector.poll_timeout().is_some_and(|at| at <= next) {
                    elector.handle_timeout(self.now);
                }
            }
        }
    }

    fn pass(&mut self, to: Instant) {
        self.now.wall += i64::try_from(to.since(self.now.boot).as_micros()).unwrap();
        self.now.boot = to;
    }

    /// Delivers what waits. Returns false if nothing did.
    fn drain(&mut self) -> bool {
        let mut moved = false;
        for who in 0..self.members.len() {
            let Member { elector: Some(elector), inputs, .. } = &mut self.members[who] else { continue };
            while let Some(input) = inputs.pop_front() {
                elector.handle(input, self.now);
                elector.handle_timeout(self.now);
                moved = true;
                let asks = std::iter::from_fn(|| elector.poll_event()).filter(|event| matches!(event, Event::Preempts { .. }));
                self.requests.extend(asks.map(|_| (who, self.now.boot)));
            }
            while let Some(action) = self.members[who].elector.as_mut().and_then(Elector::poll_action) {
                moved = true;
                self.act(who, action);
            }
        }
        moved
    }

    fn act(&mut self, who: usize, action: Action) {
        let member = &mut self.members[who];
        match action {
            Action::Request { id, request, .. } => {
                let answer = self.register.apply(&request);
                member.inputs.push_back(Input::Answered { id, answer });
                let object = self.register.object().map(std::sync::Arc::new);
                if let (false, Some(object)) = (request == Request::Get, object) {
                    self.members.iter_mut().for_each(|member| {
                        member.inputs.push_back(Input::Watched(Watched::Changed(std::sync::Arc::clone(&object))));
                    });
                }
            }
            Action::Tell(ToInit::Lead { term, .. }) => {
                member.term = Some(term);
                member.ends = Some(self.now.boot + member.lasts);
                member.inputs.push_back(Input::Told(ToElector::Acknowledged { term, serial: 0 }));
                self.starts.push((who, self.now.boot));
            }
            Action::Tell(ToInit::Extend { term, serial, .. } | ToInit::Releasing { term, serial }) => {
                member.inputs.push_back(Input::Told(ToElector::Acknowledged { term, serial }));
            }
            Action::Tell(ToInit::StepDown { term, request, reason, .. }) => {
                let exit = Some(Exit::Code(u8::from(reason == Reason::Exited)));
                let stop = Stop { began: None, killed: None, exited: None, exit, fused: None, proved: self.now.boot };
                member.ends = None;
                member.inputs.push_back(Input::Told(ToElector::Stopped { term, request, stop, then: Then::Follow }));
            }
            Action::Tell(_) | Action::Watch { .. } => {}
        }
    }

    fn leader(&self) -> usize {
        let holder = self.register.spec()["holderIdentity"].as_str().unwrap_or_default().to_owned();
        holder.split('_').next().and_then(|who| who.parse().ok()).unwrap_or(usize::MAX)
    }
}

const FOR_EVER: Duration = Duration::from_secs(1_000_000);

#[test]
fn leadership_returns_to_the_preferred_replica_once_and_stays() {
    let mut room = Room::of(&[0, -1, -2], Some(AFTER), FOR_EVER);
    room.run(seconds(60));
    assert_eq!(room.leader(), 0);
    room.kill(0);
    room.run(seconds(60));
    assert_eq!(room.leader(), 1);
    room.revive(0);
    room.run(AFTER * 10);
    assert_eq!((room.leader(), room.starts.iter().map(|(who, _)| *who).collect::<Vec<_>>()), (0, vec![0, 1, 0]));
    assert_eq!(room.requests.len(), 1);
}

#[test]
fn under_random_kills_leadership_returns_to_the_preferred_with_no_more_handovers_than_kills() {
    let after = seconds(60);
    let mut asked = 0;
    for seed in 0..20 {
        let (mut random, mut room) = (fastrand::Rng::with_seed(seed), Room::of(&[0, -1, -2], Some(after), FOR_EVER));
        for _ in 0..10 {
            let who = random.usize(..3);
            room.kill(who);
            room.run(seconds(random.u64(1..60)));
            room.revive(who);
            room.run(seconds(random.u64(60..240)));
        }
        room.run(after * 3);
        assert_eq!(room.leader(), 0, "seed {seed}");
        asked += room.requests.len();
        assert!(room.requests.len() <= 20, "seed {seed}: {:?}", room.requests);
        assert!(room.requests.array_windows().all(|[(_, one), (_, next)]| next.since(*one) >= after), "{:?}", room.requests);
    }
    assert!(asked > 20, "{asked}");
}

#[test]
fn two_that_are_equally_preferred_do_not_take_turns() {
    let mut room = Room::of(&[0, 0], Some(seconds(1)), FOR_EVER);
    room.run(AFTER * 10);
    assert_eq!((room.starts.len(), room.requests.len()), (1, 0));
}

#[test]
fn two_replicas_whose_program_fails_after_a_second_start_it_twelve_times_in_ten_minutes() {
    let mut room = Room::of(&[0, 0], None, seconds(1));
    room.run(seconds(600));
    assert_eq!(room.starts.len(), 12, "{:?}", room.starts);
}

#[test]
fn a_preferred_replica_whose_program_fails_asks_no_more_often_than_it_may() {
    let mut room = Room::of(&[0, -1], Some(seconds(60)), FOR_EVER);
    room.members[0].lasts = seconds(1);
    room.run(seconds(3_600));
    assert!((5..=16).contains(&room.requests.len()), "{:?}", room.requests.len());
    assert_eq!(room.leader(), 1);
}
