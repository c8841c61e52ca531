//! A task with a schedule: one run for each fire, whatever the clocks of its replicas show.

use std::{mem, time::Duration};

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    bench::{Bench, Register, START, TICK, WALL, held, initial_state, lost, mark, plus, seconds},
    release::released,
};
use crate::{
    config::{AfterCrash, ForeignRelease, Missed, OnFailure, Preset, Task, Trigger},
    election::{
        Event,
        writes::{FIRE, NEXT_FIRE, RESTS, STEP_DOWN_TO, Sent},
    },
    link::{Exit, InitialState, Reason, Then, ToInit},
    request::{Answer, Refusal},
    time::Now,
};

/// The longest random delay after a fire, and the read before the write.
const STAGGER: Duration = Duration::from_millis(800);
const MINUTELY: &str = "* * * * *";
pub(super) const HOURLY: &str = "0 * * * *";

pub(super) fn task(cron: &str) -> InitialState {
    let mut initial = initial_state();
    let schedule = serde_json::from_value(json!({"cron": cron, "zone": "UTC"})).unwrap();
    initial.preset = Preset::Task(Task { trigger: Trigger::Schedule(schedule), limit: None, once: None });
    initial
}

fn missing(cron: &str, missed: Missed) -> InitialState {
    let mut initial = task(cron);
    initial.config.task.missed = missed;
    initial
}

fn time(of_the_day: &str) -> String {
    format!("2027-01-15T{of_the_day}Z")
}

/// The Lease after a run for this fire.
pub(super) fn rested(fire: &str) -> Register {
    let mut register = Register::holding(held("other_1", 60));
    register.edit(|object| {
        let long_ago = time("04:00:00");
        object["metadata"]["annotations"] = json!({FIRE: time(fire), RESTS: format!("{long_ago} other_1")});
        object["spec"]["acquireTime"] = long_ago.clone().into();
        object["spec"]["renewTime"] = long_ago.into();
    });
    register
}

/// The same, but its replica has died in the run.
pub(super) fn crashed(fire: &str) -> Register {
    let mut register = rested(fire);
    register.edit(|object| {
        object["spec"]["leaseDurationSeconds"] = 15.into();
        object["metadata"]["annotations"] = json!({FIRE: time(fire), NEXT_FIRE: time("23:00:00")});
    });
    register
}

/// Starts while its wall clock shows this much more than 08:00:00.
pub(super) fn start(initial: InitialState, register: Register, later: i64) -> Bench {
    Bench::start_at(Now { boot: START, wall: WALL + later * 1_000_000 }, initial, register)
}

/// Asserts that a run for this fire begins after `after`.
#[track_caller]
fn assert_runs(bench: &mut Bench, after: Duration, fire: &str) {
    let (began, before) = (bench.now.boot, bench.writes().len());
    bench.run(after.saturating_sub(Duration::from_millis(50)));
    while bench.writes().len() == before && bench.now.boot < began + after + seconds(5) {
        bench.run(Duration::from_millis(10));
    }
    let spent = bench.now.boot.since(began);
    assert!((after..=after + STAGGER).contains(&spent), "{spent:?}");
    assert_eq!(fires(&bench.body())[0], json!(time(fire)));
}

pub(super) fn fires(object: &Value) -> [Value; 2] {
    [FIRE, NEXT_FIRE].map(|name| object["metadata"]["annotations"][name].clone())
}

fn end(bench: &mut Bench, exit: Exit) {
    bench.stopping(Reason::Exited);
    bench.prove_ended(Some(exit), Then::Follow);
    bench.run(TICK);
}

#[test]
fn a_run_is_recorded_with_its_fire_and_the_lease_rests_until_the_next_one() {
    let mut bench = start(task(HOURLY), rested("08:00:00"), 3_000);
    assert_runs(&mut bench, seconds(600), "09:00:00");
    assert_eq!(fires(&bench.body()), [json!(time("09:00:00")), json!(time("10:00:00"))]);

    bench.run(seconds(60));
    end(&mut bench, Exit::Code(0));

    let rest = bench.register.object().unwrap();
    assert_eq!((released(&bench), fires(&rest)), (Some("rest"), [json!(time("09:00:00")), json!(time("10:00:00"))]));
    let left = rest["spec"]["leaseDurationSeconds"].as_i64().unwrap();
    assert!((3_538..=3_540).contains(&left), "other readers see it held until then: {left}");
}

#[test]
fn a_fire_that_was_run_is_not_run_again_by_a_clock_that_is_behind_or_ahead_and_whatever_the_rest_says() {
    for (fire, later, after, next) in [
        ("08:00:00", 0, 60, "08:01:00"),
        ("08:00:00", -60, 120, "08:01:00"),
        ("08:00:00", -3_600, 3_660, "08:01:00"),
        ("08:00:00", 90, 0, "08:01:00"),
        // Whoever ran it has a clock that is ahead.
        ("08:05:00", 0, 360, "08:06:00"),
    ] {
        assert_runs(&mut start(task(MINUTELY), rested(fire), later), seconds(after), next);
    }
}

#[test]
fn a_fire_that_nobody_could_run_is_made_up_for_once_or_skipped() {
    let hours = || rested("05:00:00");
    let mut made_up = start(missing(HOURLY, Missed::Run), hours(), 1_200);
    assert_runs(&mut made_up, Duration::ZERO, "08:00:00");
    assert_eq!(fires(&made_up.body())[1], json!(time("09:00:00")));
    assert_runs(&mut start(missing(HOURLY, Missed::Skip), hours(), 1_200), seconds(2_400), "09:00:00");
    // A takeover, with a read and an attempt, takes 20.15 s, and a candidate that does not come 5 s.
    assert_runs(&mut start(missing(HOURLY, Missed::Skip), hours(), 25), Duration::ZERO, "08:00:00");
    assert_runs(&mut start(missing(HOURLY, Missed::Skip), hours(), 26), seconds(3_574), "09:00:00");
}

#[test]
fn what_the_law_itself_delays_is_not_missed() {
    let mut last = missing(HOURLY, Missed::Skip);
    last.config.lease.priority = -10;
    assert_runs(&mut start(last.clone(), rested("08:00:00"), 3_590), seconds(20), "09:00:00");
    assert_runs(&mut start(last, rested("08:00:00"), 3_624), seconds(10), "09:00:00");

    let mut promised = rested("08:00:00");
    promised.edit(|object| object["metadata"]["annotations"][STEP_DOWN_TO] = "gone_1".into());
    let mut bench = start(missing(HOURLY, Missed::Skip), promised, 3_590);
    bench.run(seconds(30));
    assert_eq!(fires(&bench.body())[0], json!(time("09:00:00")));
}

#[test]
fn a_run_that_was_given_back_undone_is_repeated_and_if_it_is_too_late_for_that_skipped() {
    let undone = || {
        let mut spec = mark();
        (spec["acquireTime"], spec["renewTime"]) = (time("08:00:00").into(), time("08:00:00").into());
        let mut register = Register::holding(spec);
        register.edit(|object| object["metadata"]["annotations"] = json!({FIRE: time("05:00:00"), NEXT_FIRE: time("06:00:00")}));
        register
    };
    for (missed, later, after, fire) in
        [(Missed::Run, 1_200, 0, "08:00:00"), (Missed::Skip, 25, 0, "08:00:00"), (Missed::Skip, 1_200, 2_400, "09:00:00")]
    {
        assert_runs(&mut start(missing(HOURLY, missed), undone(), later), seconds(after), fire);
    }
}

#[test]
fn what_somebody_ended_is_not_done_whatever_its_exit_code() {
    for reason in [Reason::Signal, Reason::StepDown] {
        let mut bench = start(task(HOURLY), rested("07:00:00"), 0);
        assert_runs(&mut bench, Duration::ZERO, "08:00:00");
        bench.stopping(reason);
        bench.prove_ended(Some(Exit::Code(0)), Then::Follow);
        bench.run(TICK);
        assert_eq!(released(&bench), Some("clear"), "{reason:?}");
        assert_runs(&mut start(task(HOURLY), bench.register, 60), Duration::ZERO, "08:00:00");
    }
}

#[test]
fn a_single_run_at_the_minute_of_its_fire_waits_for_its_own_stagger_and_priority() {
    for (priority, after) in [(0, Duration::ZERO), (-3, seconds(3))] {
        let mut initial = task(HOURLY);
        initial.config.lease.priority = priority;
        let Preset::Task(task) = &mut initial.preset else { unreachable!() };
        task.once = Some(75);
        let mut bench = start(initial, rested("07:00:00"), 0);
        assert_runs(&mut bench, after, "08:00:00");
        assert!(!bench.told.iter().any(|told| matches!(told, ToInit::GaveUp { .. })));
        assert!(!bench.events.iter().any(|event| matches!(event, Event::Odd { .. })), "{:?}", bench.events);
    }
}

#[test]
fn a_fire_passes_while_nobody_can_reach_the_server() {
    for (missed, after, fire) in [(Missed::Run, 0, "09:00:00"), (Missed::Skip, 3_300, "10:00:00")] {
        let mut bench = start(missing(HOURLY, missed), rested("08:00:00"), 3_540);
        bench.run(seconds(10));
        bench.answers = false;
        bench.run(seconds(350));
        bench.answer(lost());
        bench.answers = true;
        assert_runs(&mut bench, seconds(after), fire);
    }
}

#[test]
fn a_fire_that_passes_while_every_request_is_refused_is_skipped_although_the_next_one_may_be_a_write() {
    for refusal in [Refusal::Unauthorized, Refusal::TooManyRequests { retry_after: None }, Refusal::Forbidden] {
        for later in 0..8 {
            let mut bench = start(missing(HOURLY, Missed::Skip), rested("08:00:00"), 3_540);
            bench.run(seconds(10));
            bench.answers = false;
            let until = bench.now.boot + seconds(350) + Duration::from_millis(later * 330);
            while bench.now.boot < until || bench.awaited.is_some() {
                bench.run(Duration::from_millis(60));
                if bench.awaited.is_some() {
                    bench.answer(Answer::Refused { refusal, message: "no".into() });
                }
            }
            bench.answers = true;
            bench.run(seconds(3_000));

            let begun = bench.told.iter().filter(|told| matches!(told, ToInit::Lead { .. })).count();
            assert_eq!(begun, 0, "{refusal:?} {later}: {}", fires(&bench.body())[0]);
        }
    }
}

#[test]
fn a_run_that_outlasts_fires_is_followed_by_one_for_the_last_of_them_or_by_the_next_fire() {
    for (missed, after, fire) in [(Missed::Run, 0, "08:03:00"), (Missed::Skip, 30, "08:04:00")] {
        let mut bench = start(missing(MINUTELY, missed), rested("07:59:00"), 0);
        assert_runs(&mut bench, Duration::ZERO, "08:00:00");
        bench.run(seconds(210));
        end(&mut bench, Exit::Code(0));
        let rests =
            |write: &&Sent| matches!(write, Sent::Replace(object) if object["metadata"]["annotations"][RESTS].is_string());
        let Some(Sent::Replace(rest)) = bench.writes().into_iter().rfind(rests).cloned() else { panic!("it rests") };
        assert_eq!((&rest["spec"]["leaseDurationSeconds"], &fires(&rest)[0]), (&json!(1), &json!(time("08:00:00"))));

        bench.run(seconds(after) + STAGGER);

        assert_eq!(fires(&bench.body())[0], json!(time(fire)));
    }
}

#[test]
fn a_fire_whose_run_crashed_counts_or_is_run_again_once_that_run_must_be_dead() {
    assert_runs(&mut start(task(HOURLY), crashed("08:00:00"), 5), seconds(3_595), "09:00:00");
    assert_runs(&mut start(task(MINUTELY), crashed("08:00:00"), 58), plus(15), "08:01:00");
    let again = || {
        let mut initial = task(HOURLY);
        initial.config.task.after_crash = AfterCrash::Run;
        initial
    };
    assert_runs(&mut start(again(), crashed("08:00:00"), 5), plus(15), "08:00:00");
    assert_runs(&mut start(again(), crashed("08:00:00"), 3_595), plus(15), "09:00:00");
}

#[test]
fn a_rest_that_somebody_cleared_is_no_run_that_was_given_back_undone() {
    let clears: [fn(&mut Value); 3] = [
        |object| object["spec"]["holderIdentity"] = Value::Null,
        |object| (object["spec"]["holderIdentity"], object["spec"]["renewTime"]) = (Value::Null, Value::Null),
        |object| object["spec"] = Value::Null,
    ];
    for clear in clears {
        let mut initial = task(HOURLY);
        initial.config.lease.foreign_release = ForeignRelease::Trust;
        let mut register = rested("08:00:00");
        register.edit(|object| {
            object["metadata"]["annotations"][NEXT_FIRE] = time("09:00:00").into();
            clear(object);
        });
        let mut bench = start(initial, register, 60);

        assert_runs(&mut bench, seconds(3_540), "09:00:00");
    }
}

#[test]
fn a_fire_whose_run_failed_counts_or_is_left_to_another_replica_at_once() {
    let failed = |on_failure| {
        let mut initial = task(HOURLY);
        initial.config.task.on_failure = on_failure;
        let mut bench = start(initial, rested("07:00:00"), 0);
        assert_runs(&mut bench, Duration::ZERO, "08:00:00");
        end(&mut bench, Exit::Code(3));
        bench.register
    };
    assert_runs(&mut start(task(HOURLY), failed(OnFailure::Rest), 5), seconds(3_595), "09:00:00");
    assert_runs(&mut start(task(HOURLY), failed(OnFailure::Release), 5), Duration::ZERO, "08:00:00");
}

#[test]
fn the_first_fire_comes_after_the_last_run_without_a_schedule_or_after_the_lease_was_made() {
    let mut free = Register::holding(json!({}));
    free.edit(|object| object["metadata"]["creationTimestamp"] = time("08:00:00").into());
    let mut first = start(task("30 8 * * *"), free, 0);
    first.run(seconds(60));
    assert_eq!(first.writes().len(), 1, "nobody's");
    first.run(seconds(1_740) + STAGGER);
    assert_eq!(fires(&first.body())[0], json!(time("08:30:00")));

    let mut given_back = mark();
    (given_back["acquireTime"], given_back["renewTime"]) = (time("08:10:00").into(), time("08:10:00").into());
    assert_runs(&mut start(task("5,30 8 * * *"), Register::holding(given_back), 600), seconds(1_200), "08:30:00");
}

#[test]
fn a_clock_that_is_set_moves_a_fire_that_is_not_due_yet() {
    let mut bench = start(task(HOURLY), rested("08:00:00"), 0);
    bench.run(seconds(10));
    bench.now.wall += 3_500_000_000;
    bench.run(seconds(61));
    assert!(bench.writes().is_empty(), "it has read the clock");
    assert_runs(&mut bench, seconds(29), "09:00:00");
}

#[test]
fn a_single_run_without_a_fire_that_is_due_is_not_waited_for() {
    let once = |register| {
        let mut initial = task(HOURLY);
        let Preset::Task(task) = &mut initial.preset else { unreachable!() };
        task.once = Some(75);
        let mut bench = start(initial, register, 60);
        bench.run(TICK);
        let gave_up = bench
            .told
            .iter()
            .find_map(|told| if let ToInit::GaveUp { message, .. } = told { Some(message.clone()) } else { None });
        (gave_up, bench.leads().is_some())
    };
    let (Some(said), false) = once(rested("08:00:00")) else { panic!("it runs") };
    assert!(said.contains("the next run is due in 59m"), "{said}");
    assert_eq!(once(rested("07:00:00")), (None, true));
}

/// A replica with a clock of its own, which is dead now and then.
#[derive(Default)]
struct Replica {
    bench: Option<Bench>,
    /// Microseconds by which its wall clock is ahead.
    ahead: i64,
    /// How often it was started.
    starts: u64,
    /// How many terms it was told of since then.
    terms: usize,
    /// When its run ends.
    ends: Option<Duration>,
    /// When it is started again.
    returns: Duration,
}

impl Replica {
    fn start(&mut self, name: &str, now: Duration) {
        self.starts += 1;
        let wall = WALL + i64::try_from(now.as_micros()).unwrap() + self.ahead;
        let initial = InitialState { identity: format!("{name}_{}", self.starts), ..task(MINUTELY) };
        self.bench = Some(Bench::start_at(Now { boot: START + now, wall }, initial, Register::default()));
        (self.terms, self.ends) = (0, None);
    }

    /// Lets `step` pass on the Lease that it shares with others. Returns the fire of a run that has begun.
    fn live(&mut self, register: &mut Register, step: Duration, now: Duration, length: Duration) -> Option<String> {
        let bench = self.bench.as_mut()?;
        mem::swap(&mut bench.register, register);
        bench.run(step);
        let terms = bench.told.iter().filter(|told| matches!(told, ToInit::Lead { .. })).count();
        let begins = mem::replace(&mut self.terms, terms) < terms;
        if begins {
            self.ends = Some(now + length);
        } else if self.ends.take_if(|ends| *ends <= now).is_some() {
            end(bench, Exit::Code(0));
        }
        let fire = fires(&bench.register.object().unwrap())[0].as_str().map(str::to_owned);
        mem::swap(&mut bench.register, register);
        fire.filter(|_| begins)
    }
}

#[test]
fn in_an_hour_of_three_replicas_with_random_kills_and_a_clock_that_is_a_minute_off_each_fire_is_run_once() {
    let (step, hour) = (Duration::from_millis(250), seconds(3_600));
    for (seed, ahead) in [(1, 0), (2, 59), (3, 61), (4, -61)] {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut register = rested("07:59:00");
        let mut replicas = [0, 0, ahead * 1_000_000].map(|ahead| Replica { ahead, ..Replica::default() });
        let (mut now, mut runs, mut kills) = (Duration::ZERO, Vec::new(), 0);
        while now < hour {
            for (replica, name) in replicas.iter_mut().zip(["a", "b", "c"]) {
                if replica.bench.is_none() && replica.returns <= now {
                    replica.start(name, now);
                }
                runs.extend(replica.live(&mut register, step, now, Duration::from_millis(random.u64(100..20_000))));
                if replica.bench.is_some() && random.u16(..600) == 0 {
                    kills += 1;
                    (replica.bench, replica.returns) = (None, now + Duration::from_millis(random.u64(500..20_000)));
                }
            }
            now += step;
        }
        let minutes: Vec<i64> = runs.iter().map(|fire| fire.parse::<Timestamp>().unwrap().as_second() / 60).collect();
        assert!(minutes.array_windows().all(|[fire, next]| *next == fire + 1), "{seed}: {runs:?}");
        assert!(runs.len() >= 59 && kills > 20, "{seed}: {} runs, {kills} kills", runs.len());
    }
}
