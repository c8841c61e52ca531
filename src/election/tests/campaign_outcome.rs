//! An acquiring write whose answer is late, lost or wrong (law 1, 6, 15).

use std::time::Duration;

use serde_json::json;

use super::bench::{Bench, ME, START, TICK, held, lost, mark, plus, seconds};
use crate::{
    election::{AcquireReason, Event, Request},
    link::{LeaseBackoff, Reason, Then, ToElector, ToInit},
    request::{Answer, Refusal},
};

/// A bench whose acquiring PUT was just sent and is not answered.
pub(super) fn campaigning() -> Bench {
    let mut bench = Bench::with(mark());
    bench.answers = false;
    bench.serve();
    assert!(bench.awaits_a_write());
    bench
}

/// A bench whose acquiring PUT was answered at S: it is written again.
fn proved_at_s() -> Bench {
    let mut bench = campaigning();
    bench.run(Duration::from_millis(9_850));
    bench.serve();
    assert!(bench.awaits_a_write());
    bench
}

#[test]
fn a_takeover_whose_reply_was_lost_is_proved_by_a_read_and_dated_from_its_send() {
    let mut bench = campaigning();
    let sent = bench.last_sent();
    bench.run(seconds(2));
    bench.serve_silently();

    bench.run_answered(seconds(1));

    let Some(ToInit::Lead { confirmed, .. }) = bench.told.iter().find(|message| matches!(message, ToInit::Lead { .. })) else {
        panic!("no term: {:?}", bench.told);
    };
    assert_eq!(confirmed.deadlines.end, sent + Duration::from_millis(14_850));
}

#[test]
fn a_takeover_that_did_not_arrive_is_repeated_on_the_same_version_with_new_bytes() {
    let mut bench = campaigning();
    let first = bench.body();
    bench.answer(lost());

    bench.run_answered(seconds(1));

    let second = bench.body();
    assert_eq!(first["metadata"]["resourceVersion"], second["metadata"]["resourceVersion"]);
    assert_ne!(first["spec"]["renewTime"], second["spec"]["renewTime"]);
    assert!(bench.leads().is_some());
}

#[test]
fn a_takeover_that_commits_late_is_still_known_by_its_bytes() {
    let mut bench = campaigning();
    let late = bench.awaited.as_ref().unwrap().1.clone();
    bench.answer(lost());
    bench.run(seconds(1));
    bench.serve();
    assert_eq!(bench.leads(), None, "the read showed the old record");
    bench.run(seconds(1));
    bench.register.apply(&late);
    bench.serve();

    bench.run_answered(seconds(1));

    let Some(ToInit::Lead { confirmed, .. }) = bench.told.first() else { panic!("{:?}", bench.told) };
    assert_eq!(confirmed.deadlines.end, bench.sent[1].0 + Duration::from_millis(14_850));
}

#[test]
fn a_takeover_that_is_proved_after_s_is_written_again_and_that_write_begins_the_term() {
    let mut bench = proved_at_s();
    assert_eq!(bench.leads(), None, "proved at S");
    let (stored, sent) = (bench.register.object().unwrap(), bench.last_sent());

    bench.serve();

    let Some(ToInit::Lead { info, confirmed, .. }) = bench.told.first() else { panic!("{:?}", bench.told) };
    assert_eq!((info.token.as_str(), confirmed.resource_version.as_str()), ("5", "5"), "by its own version");
    assert_eq!(confirmed.deadlines.end, sent + Duration::from_millis(14_850));
    let (before, after) = (&stored["spec"], bench.register.spec());
    assert_ne!(before["renewTime"], after["renewTime"]);
    assert_eq!((&before["acquireTime"], &before["leaseTransitions"]), (&after["acquireTime"], &after["leaseTransitions"]));
}

#[test]
fn a_takeover_that_is_written_again_meets_a_foreign_edit_and_goes_on_while_the_spec_is_its_own() {
    let mut bench = proved_at_s();
    bench.register.edit(|object| object["metadata"]["labels"]["theirs"] = "x".into());

    bench.run_answered(seconds(1));

    assert!(bench.leads().is_some());
    assert_eq!(bench.register.object().as_ref().unwrap()["metadata"]["labels"]["theirs"], "x");
}

#[test]
fn a_takeover_that_is_written_again_is_over_once_the_lease_says_something_else() {
    for spec in [held("x", 15), json!({})] {
        let mut bench = proved_at_s();
        bench.register.edit(|object| object["spec"] = spec);

        bench.run_answered(seconds(15));

        assert_eq!(bench.leads(), None);
        assert!(bench.events.iter().any(|event| matches!(event, Event::CampaignLost { .. })));
    }
}

#[test]
fn an_own_name_after_a_change_in_between_is_foreign() {
    let mut bench = proved_at_s();
    let own = bench.register.spec().clone();
    bench.answer(lost());
    bench.see(|object| object["spec"] = held("x", 15));
    bench.register.edit(|object| object["spec"] = own);

    bench.run_answered(seconds(15));

    assert_eq!(bench.leads(), None, "it waits the whole duration");
}

#[test]
fn a_takeover_that_the_watch_has_overtaken_starts_nothing() {
    let mut bench = campaigning();
    let reply = {
        let (_, request) = bench.awaited.clone().unwrap();
        bench.register.apply(&request)
    };
    bench.see(|object| object["spec"] = json!({}));

    bench.answer(reply);
    assert_eq!(bench.leads(), None);
    bench.run_answered(seconds(15));

    assert_eq!(bench.leads(), None, "whoever had it before it was cleared may run");
}

#[test]
fn a_shutdown_after_a_late_takeover_writes_it_again_to_give_it_back() {
    let mut bench = proved_at_s();

    bench.tell(ToElector::Shutdown);
    assert!(!bench.is_done());
    bench.serve();
    assert_eq!(bench.step_down_reason(), Some(Reason::Signal));
    bench.answers = true;
    bench.prove(Then::Exit);
    bench.run(seconds(1));

    assert_eq!((bench.register.spec()["holderIdentity"].as_str(), bench.is_done()), (Some(""), true));
}

#[test]
fn a_takeover_that_is_proved_one_tick_before_s_starts() {
    let mut bench = campaigning();
    bench.run(Duration::from_millis(9_850) - TICK);

    bench.serve();

    assert!(bench.leads().is_some());
}

#[test]
fn a_200_that_changed_nothing_or_something_else_is_no_proof() {
    let mut bench = campaigning();
    let mut unchanged = bench.body();
    unchanged["metadata"]["resourceVersion"] = "3".into();
    bench.answer(Answer::Object(unchanged.into()));
    assert_eq!(bench.leads(), None);

    let mut bench = campaigning();
    let mut other = bench.body();
    other["spec"]["renewTime"] = "2020-01-01T00:00:00.000000Z".into();
    other["metadata"]["resourceVersion"] = "4".into();
    bench.answer(Answer::Object(other.into()));
    assert_eq!(bench.leads(), None);
}

#[test]
fn a_write_that_was_answered_is_never_proved_again() {
    let mut bench = campaigning();
    bench.serve();
    let first = bench.register.object().unwrap();
    bench.stopping(Reason::Signal);
    bench.register.edit(|object| object["spec"]["holderIdentity"] = "x".into());
    bench.prove(Then::Follow);
    bench.serve();
    bench.serve();
    let backoff = Some(LeaseBackoff { until: bench.now.boot + plus(15), failures: 0 });
    assert_eq!(bench.told.last(), Some(&ToInit::Ended { term: bench.leads().unwrap(), backoff }));
    let terms = bench.told.len();

    bench.register.edit(|object| *object = first);
    bench.run_answered(seconds(10));

    assert!(!bench.told[terms..].iter().any(|message| matches!(message, ToInit::Lead { .. })));
}

#[test]
fn a_shutdown_during_the_takeover_waits_for_its_outcome_and_releases_it() {
    let mut bench = campaigning();
    bench.tell(ToElector::Shutdown);
    assert!(!bench.is_done());

    bench.serve();
    assert_eq!(bench.step_down_reason(), Some(Reason::Signal));
    bench.answers = true;
    bench.prove(Then::Exit);
    bench.run(seconds(1));

    assert!(bench.is_done());
    assert_eq!(bench.register.spec()["holderIdentity"], "");
}

#[test]
fn a_shutdown_during_a_lost_takeover_ends_after_a_read() {
    let mut bench = campaigning();
    bench.tell(ToElector::Shutdown);
    bench.register.edit(|object| object["spec"]["holderIdentity"] = "x".into());

    bench.serve();
    bench.serve();
    assert!(bench.is_done(), "after a conflict the read says that it is not mine");
    assert_eq!(bench.writes().len(), 1);
}

#[test]
fn conflicts_without_end_are_paced() {
    for lease in [mark(), held("x", 2)] {
        let mut bench = Bench::with(lease);
        bench.answers = false;
        let object = bench.register.object().unwrap();
        while bench.writes().len() < 20 {
            match bench.awaited.as_ref().map(|(_, request)| request.clone()) {
                Some(Request::Get) => bench.answer(Answer::Object(object.clone().into())),
                Some(_) => bench.answer(Answer::Conflict),
                None => bench.run(Duration::from_millis(50)),
            }
        }

        let span = bench.now.boot.since(START).as_secs_f64();
        assert!(span >= 18.0 * 0.2, "20 writes in {span} s");
        let told = bench
            .events
            .iter()
            .filter(|event| matches!(event, Event::Failed { message, .. } if message.words.contains("no write has succeeded")));
        assert_eq!(told.count(), 1);
    }
}

#[test]
fn a_read_that_is_answered_with_a_conflict_is_repeated_without_a_storm() {
    let mut bench = Bench::with(mark());
    bench.answers = false;
    for _ in 0..200 {
        if bench.awaited.is_some() {
            bench.answer(Answer::Conflict);
        } else {
            bench.run(Duration::from_millis(50));
        }
    }

    let span = bench.now.boot.since(START).as_secs_f64();
    assert!(bench.gets() as f64 <= span / 2.0 + 4.0, "{} reads in {span} s", bench.gets());
}

#[test]
fn a_retry_after_is_honoured_for_one_period_at_most_where_the_lease_may_be_taken_now_or_later() {
    for lease in [json!({}), held("x", 15)] {
        for (retry_after, expected) in [(1, 1), (2, 2), (30, 3), (86_400, 3)] {
            let mut bench = Bench::with(lease.clone());
            bench.serve();
            bench.answers = false;
            while bench.awaited.is_none() {
                bench.run(Duration::from_millis(10));
            }
            let refusal = Refusal::TooManyRequests { retry_after: Some(seconds(retry_after)) };
            bench.answer(Answer::Refused { refusal, message: "slow down".into() });
            let (asked, sent) = (bench.now.boot, bench.sent.len());

            while bench.sent.len() == sent {
                bench.run(Duration::from_millis(10));
            }

            let waited = bench.now.boot.since(asked);
            assert!(waited >= seconds(expected) && waited < seconds(expected + 1), "{lease}, {retry_after}: {waited:?}");
        }
    }
}

#[test]
fn a_holder_that_renewed_while_reads_were_refused_and_then_died_is_followed_in_time() {
    let mut bench = Bench::with(held("x", 15));
    bench.serve();
    bench.answers = false;
    while bench.awaited.is_none() {
        bench.run(Duration::from_millis(10));
    }
    let refusal = Refusal::TooManyRequests { retry_after: Some(seconds(60)) };
    bench.answer(Answer::Refused { refusal, message: "slow down".into() });
    bench.register.edit(|lease| lease["spec"]["renewTime"] = "2026-01-01T00:00:03.000000Z".into());
    let renewed = bench.now.boot;

    bench.run_answered(plus(15) + seconds(3) + Duration::from_millis(1));

    let term = bench.leads();
    assert!(term.is_some(), "{:?} after the last renewal", bench.now.boot.since(renewed));
}

#[test]
fn a_followers_refused_credentials_are_tried_again_once_at_once_whatever_failed_before() {
    let mut bench = Bench::with(held("x", 15));
    bench.answers = false;
    bench.answer(lost());
    bench.run(seconds(1));
    let refused = || Answer::Refused { refusal: Refusal::Unauthorized, message: "token".into() };
    let sent = bench.sent.len();

    bench.answer(refused());
    bench.run(TICK);
    assert_eq!(bench.sent.len(), sent + 1, "at once");
    bench.answer(refused());
    bench.run(TICK);

    assert_eq!((bench.sent.len(), bench.awaited.is_none()), (sent + 1, true));
}

#[test]
fn a_term_begins_with_a_campaign_that_says_why() {
    let mut bench = Bench::with(held("x", 15));
    bench.run(plus(15));

    let why = bench.events.iter().find_map(|event| match event {
        Event::Campaigning { why, .. } => Some(*why),
        _ => None,
    });
    assert_eq!(why, Some(AcquireReason::Expired));
    assert_eq!(bench.register.spec()["holderIdentity"], ME);
}

#[test]
fn attempts_that_fail_for_one_transition_are_one_campaign_at_a_slowing_pace() {
    let mut bench = Bench::with(mark());
    bench.answers = false;
    while bench.now.boot < START + seconds(30) {
        match bench.awaited.as_ref().map(|(_, request)| request.clone()) {
            Some(Request::Get) => bench.serve(),
            Some(_) => bench.answer(lost()),
            None => bench.run(Duration::from_millis(20)),
        }
    }

    let campaigns = bench.events.iter().filter(|event| matches!(event, Event::Campaigning { .. })).count();
    assert_eq!(campaigns, 1);
    assert!(!bench.events.iter().any(|event| matches!(event, Event::CampaignLost { .. })), "nobody else took it");
    assert!(bench.writes().len() <= 15, "{} writes in 30 s", bench.writes().len());
}

#[test]
fn a_shutdown_after_a_conflict_with_an_own_unanswered_takeover_gives_the_lease_back() {
    let mut bench = campaigning();
    let (_, first) = bench.awaited.clone().unwrap();
    bench.answer(lost());
    bench.run(seconds(1));
    bench.serve();
    bench.run(seconds(1));
    bench.register.apply(&first);
    bench.serve();

    bench.tell(ToElector::Shutdown);
    bench.serve();

    assert_eq!((bench.is_done(), bench.step_down_reason()), (false, Some(Reason::Signal)));
}

#[test]
fn a_shutdown_with_a_late_takeover_of_a_lease_that_is_being_deleted_ends() {
    let mut bench = proved_at_s();
    bench.answer(lost());
    bench.register.edit(|object| {
        object["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        object["metadata"]["finalizers"] = json!(["x/y"]);
    });
    bench.run_answered(seconds(1));

    bench.tell(ToElector::Shutdown);

    assert!(bench.is_done());
}
