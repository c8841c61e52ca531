//! A leader's attempts to renew: how many, how often, and what follows one without an answer (law 5, 6).

use std::time::Duration;

use super::bench::{Bench, Register, START, held, initial_state, lost, seconds};
use crate::{
    config::Config,
    election::Request,
    link::{InitialState, Reason},
    request::{Answer, Refusal},
};

#[test]
fn a_black_hole_leaves_at_least_two_further_attempts_at_every_phase() {
    for phase in (0..3_000).step_by(50) {
        let mut bench = Bench::leading();
        bench.run(Duration::from_millis(phase));
        bench.answers = false;
        let before = bench.sent.len();
        while bench.step_down().is_none() {
            bench.run(Duration::from_millis(10));
            if bench.awaited.is_some() && bench.now.boot.since(bench.last_sent()) >= seconds(2) {
                bench.answer(lost());
            }
        }
        assert!(bench.sent.len() - before >= 3, "phase {phase}: {} attempts", bench.sent.len() - before);
    }
}

#[test]
fn as_many_attempts_are_made_as_the_law_counts_on_however_short_they_are() {
    let mut config = Config::default();
    config.lease.duration = seconds(2);
    config.lease.renew_period = seconds(1);
    config.lease.attempt_timeout = Duration::from_millis(40);
    config.workload.stop.kill_margin = Duration::from_millis(100);
    config.workload.stop.loss_grace = Duration::from_millis(400);
    assert_eq!(config.timing().attempts(), 2);
    let mut bench = Bench::leading_with(InitialState { config, ..initial_state() });
    bench.answers = false;
    let before = bench.sent.len();

    while bench.step_down().is_none() {
        bench.run(Duration::from_millis(1));
        if bench.awaited.is_some() && bench.now.boot.since(bench.last_sent()) >= Duration::from_millis(40) {
            bench.answer(lost());
        }
    }

    assert!(bench.sent.len() - before >= 2, "{} attempts", bench.sent.len() - before);
}

#[test]
fn leaders_that_are_refused_at_once_come_again_after_half_a_second_and_not_in_step() {
    let mut bench = Bench::leading();
    bench.answers = false;
    let mut sent = Vec::new();

    while sent.len() < 6 {
        bench.run(Duration::from_millis(1));
        if bench.awaited.is_some() {
            sent.push(bench.last_sent());
            bench
                .answer(Answer::Refused { refusal: Refusal::TooManyRequests { retry_after: None }, message: "slow down".into() });
        }
    }

    let mut gaps: Vec<Duration> = sent.windows(2).map(|pair| pair[1].since(pair[0])).collect();
    gaps.sort();
    assert!(gaps[0] >= Duration::from_millis(500) && gaps[4] <= seconds(1), "{gaps:?}");
    assert!(gaps[4] - gaps[0] >= Duration::from_millis(10), "{gaps:?}");
}

#[test]
fn where_only_writes_have_no_answer_a_read_finds_that_they_were_done() {
    let mut bench = Bench::leading();
    bench.answers = false;

    for _ in 0..4_000 {
        bench.run(Duration::from_millis(10));
        match &bench.awaited {
            Some((_, Request::Get)) => bench.serve(),
            Some(_) if bench.now.boot.since(bench.last_sent()) >= seconds(2) => {
                bench.serve_silently();
            }
            Some(_) | None => {}
        }
        bench.answers = false;
    }

    assert_eq!(bench.step_down_reason(), None, "40 s, and every write was done");
}

#[test]
fn transient_refusals_are_retried_until_s_and_not_in_a_storm() {
    for refusal in [
        Refusal::Unauthorized,
        Refusal::Forbidden,
        Refusal::NoSuchPlace,
        Refusal::NotServed,
        Refusal::Invalid,
        Refusal::TooManyRequests { retry_after: None },
    ] {
        let mut bench = Bench::leading();
        bench.answers = false;
        let mut bodies = Vec::new();
        while bench.step_down().is_none() {
            bench.run(Duration::from_millis(10));
            if bench.awaited.is_some() {
                bodies.push(bench.body()["spec"]["renewTime"].clone());
                bench.answer(Answer::Refused { refusal, message: "no".into() });
            }
        }
        assert_eq!(bench.step_down_reason(), Some(Reason::Expired));
        assert!((3..=15).contains(&bodies.len()), "{refusal:?}: {} attempts in 6.85 s", bodies.len());
        bodies.dedup();
        assert!(bodies.len() >= 3, "new bytes in every attempt");
    }
}

#[test]
fn a_retry_after_is_honoured_but_leaves_room_for_an_attempt_before_s() {
    for (retry_after, expected) in [(1, 1_000), (30, 4_850), (120, 4_850)] {
        let mut bench = Bench::leading();
        bench.answers = false;
        bench.run(seconds(3));
        let refused = bench.now.boot;
        let retry_after = Some(seconds(retry_after));
        bench.answer(Answer::Refused { refusal: Refusal::TooManyRequests { retry_after }, message: "slow down".into() });
        bench.run(seconds(6));

        let waited = bench.last_sent().since(refused);
        assert!(waited >= Duration::from_millis(expected - 5) && waited <= Duration::from_millis(expected + 5), "{waited:?}");
    }
}

#[test]
fn whoever_is_told_of_too_many_requests_leaves_half_a_second_before_the_next_one() {
    let mut initial = initial_state();
    initial.config.lease.attempt_timeout = Duration::from_millis(100);
    let standby = Bench::start(initial.clone(), Register::holding(held("x", 15)));
    for (mut bench, retry_after) in [(Bench::leading_with(initial), None), (standby, Some(Duration::ZERO))] {
        bench.answers = false;
        let before = bench.sent.len();
        let until = bench.now.boot + seconds(7);
        while bench.now.boot < until {
            if bench.awaited.is_some() {
                bench.answer(Answer::Refused { refusal: Refusal::TooManyRequests { retry_after }, message: "slow down".into() });
            }
            bench.run(Duration::from_millis(10));
        }

        let sent: Vec<_> = bench.sent[before..].iter().map(|(at, _)| *at).collect();
        assert!(sent.len() > 3, "{sent:?}");
        assert!(sent.windows(2).all(|pair| pair[1].since(pair[0]) >= Duration::from_millis(500)), "{sent:?}");
    }
}

/// The requests that a leader sends while no answer comes.
fn unanswered(bench: &mut Bench, count: usize) -> Vec<&'static str> {
    let before = bench.sent.len();
    while bench.sent.len() < before + count {
        if bench.awaited.is_some() {
            bench.answer(lost());
        }
        bench.run(Duration::from_millis(10));
    }
    let name = |request: &Request| if *request == Request::Get { "read" } else { "write" };
    bench.sent[before..].iter().map(|(_, request)| name(request)).collect()
}

#[test]
fn after_two_writes_without_an_answer_one_read_is_tried_and_then_a_write_is_next() {
    let mut bench = Bench::leading();
    bench.answers = false;

    let sent = unanswered(&mut bench, 7);

    assert_eq!(sent, ["write", "write", "read", "write", "write", "read", "write"]);
}

#[test]
fn a_leaders_refused_credentials_are_tried_again_once_at_once_then_with_a_pause() {
    let refused = || Answer::Refused { refusal: Refusal::Unauthorized, message: "token".into() };
    let mut bench = Bench::leading();
    bench.answers = false;
    bench.run(seconds(3));
    let sent = bench.sent.len();

    bench.answer(refused());
    assert_eq!(bench.sent.len(), sent + 1, "at once");
    bench.answer(refused());
    assert_eq!((bench.sent.len(), bench.awaited.is_none()), (sent + 1, true));

    bench.run_answered(seconds(1));
    bench.answers = false;
    bench.run(seconds(3));
    let sent = bench.sent.len();
    bench.answer(refused());
    assert_eq!(bench.sent.len(), sent + 1, "once more, since there was a success");
}

#[test]
fn a_change_that_the_watch_brings_costs_no_conflict() {
    let mut bench = Bench::leading();
    bench.see(|object| object["metadata"]["labels"] = serde_json::json!({"theirs": "x"}));
    let sent = bench.sent.len();

    bench.run(seconds(3));

    assert_eq!((bench.sent.len(), bench.awaited.is_none()), (sent + 1, true));
    assert_eq!(bench.body()["metadata"]["labels"]["theirs"], "x");
}

#[test]
fn a_view_says_when_the_last_renewal_was_answered() {
    let mut bench = Bench::leading();
    bench.answers = false;
    bench.run(seconds(4));
    assert_eq!(bench.elector.view().leading.map(|led| led.confirmed), Some(START));

    bench.serve();

    assert_eq!(bench.elector.view().leading.map(|led| led.confirmed), Some(bench.now.boot));
}
