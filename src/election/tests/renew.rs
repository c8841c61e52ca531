//! Renewal, loss and the deadlines of a term (law 1, 3 to 7, 10, 17).

use std::time::Duration;

use serde_json::json;

use super::bench::{Bench, ME, START, TICK, held, lost, plus, rose, seconds};
use crate::{
    election::{
        Event, ONLY_READS, Request,
        writes::{HOLDER, STEP_DOWN},
    },
    law::Deadlines,
    link::{Reason, Then, ToElector, ToInit, encode},
    request::{Answer, Refusal, Watched},
    time::Instant,
};

const S: Duration = Duration::from_millis(9_850);
const H: Duration = Duration::from_millis(13_850);
const E: Duration = Duration::from_millis(14_850);

fn extensions(bench: &Bench) -> Vec<Deadlines> {
    let extensions = bench.told.iter().filter_map(|message| match message {
        ToInit::Extend { confirmed, .. } => Some(confirmed.deadlines),
        _ => None,
    });
    extensions.collect()
}

#[test]
fn every_period_brings_one_put_and_no_get() {
    let mut bench = Bench::leading();
    let gets = bench.gets();
    let mut times = Vec::new();
    let mut before = bench.register.object().unwrap();

    for _ in 0..20 {
        bench.run(seconds(3));
        let after = bench.register.object().unwrap();
        assert!(rose(&before, &after));
        assert_eq!(before["spec"]["acquireTime"], after["spec"]["acquireTime"]);
        assert_eq!(before["spec"]["leaseTransitions"], after["spec"]["leaseTransitions"]);
        times.push(after["spec"]["renewTime"].as_str().unwrap().to_owned());
        before = after;
    }

    assert_eq!(bench.gets(), gets);
    assert_eq!(bench.writes().len(), 21);
    assert!(times.windows(2).all(|pair| pair[0][..19] < pair[1][..19]), "whole seconds rise: {times:?}");
}

#[test]
fn own_labels_and_marks_that_somebody_took_away_come_back_and_another_managers_stays_his() {
    let helm = json!({"app.kubernetes.io/managed-by": "Helm"});
    let completed = json!({"theirs": "x", "app.kubernetes.io/managed-by": "tenure"});
    for (labels, renewed) in [(json!({"theirs": "x"}), completed), (helm.clone(), helm)] {
        let mut bench = Bench::leading();
        bench.register.edit(|object| {
            object["metadata"]["labels"] = labels;
            object["metadata"]["annotations"] = json!({"theirs": "y"});
        });

        bench.run(seconds(6));

        let metadata = bench.register.object().unwrap()["metadata"].clone();
        assert_eq!(metadata["labels"], renewed);
        assert_eq!(metadata["annotations"], json!({"theirs": "y", (HOLDER): ME}));
    }
}

#[test]
fn a_terms_acquire_time_and_transitions_that_somebody_removed_come_back() {
    let mut bench = Bench::leading();
    let before = bench.register.spec().clone();
    bench.register.edit(|object| {
        object["spec"].as_object_mut().unwrap().retain(|name, _| !matches!(name.as_str(), "acquireTime" | "leaseTransitions"));
    });

    bench.run(seconds(6));

    let after = bench.register.spec();
    assert_eq!([&after["acquireTime"], &after["leaseTransitions"]], [&before["acquireTime"], &before["leaseTransitions"]]);
}

#[test]
fn renew_times_rise_by_a_second_even_if_the_wall_clock_steps_back() {
    let mut bench = Bench::leading();
    bench.run(seconds(3));
    let before = bench.register.spec()["renewTime"].as_str().unwrap().to_owned();
    bench.now.wall -= 3_600_000_000;

    bench.run(seconds(3));

    let after = bench.register.spec()["renewTime"].as_str().unwrap().to_owned();
    assert!(before[..19] < after[..19], "{before} {after}");
}

#[test]
fn deadlines_count_from_the_send_however_late_the_reply() {
    let mut bench = Bench::leading();
    bench.answers = false;
    for _ in 0..10_000 {
        bench.run(seconds(3) - Duration::from_millis(1_800));
        if bench.awaited.is_none() {
            bench.run(seconds(2));
        }
        let sent = bench.last_sent();
        bench.run(Duration::from_millis(1_800).saturating_sub(bench.now.boot.since(sent)));
        bench.serve();
        assert_eq!(extensions(&bench).last().unwrap().end, sent + E);
    }
}

#[test]
fn the_stop_begins_at_s_and_the_guard_kills_at_h_not_a_tick_earlier() {
    let mut bench = Bench::leading();
    bench.answers = false;
    let sent = bench.sent[1].0;
    let until = |bench: &Bench, at: Instant| at.since(bench.now.boot);

    let span = until(&bench, sent + S) - TICK;
    bench.run(span);
    assert_eq!(bench.step_down(), None);
    bench.run(TICK);
    assert_eq!(bench.step_down_reason(), Some(Reason::Expired));

    let span = until(&bench, sent + H) - TICK;
    bench.run(span);
    assert!(!bench.guarding());
    bench.run(TICK);
    assert!(bench.guarding());

    bench.answer(lost());
    bench.prove(Then::Follow);
    assert!(!bench.guarding(), "proof disarms the guard");
}

#[test]
fn a_late_answer_after_s_revives_nothing() {
    let mut bench = Bench::leading();
    bench.answers = false;
    bench.run(S);
    assert_eq!(bench.step_down_reason(), Some(Reason::Expired));
    let extended = extensions(&bench).len();

    bench.serve();
    bench.run(seconds(1));

    assert_eq!(extensions(&bench).len(), extended);
    assert_eq!(bench.writes().len(), 2, "the term is over: nothing more is written");
}

#[test]
fn a_conflict_by_a_label_edit_costs_a_read_and_a_write_with_new_bytes() {
    let mut bench = Bench::leading();
    bench.register.edit(|object| object["metadata"]["labels"] = json!({"theirs": "x"}));
    let (gets, writes) = (bench.gets(), bench.writes().len());

    bench.run(seconds(3));

    assert_eq!((bench.gets() - gets, bench.writes().len() - writes), (1, 2));
    assert_eq!(bench.register.object().as_ref().unwrap()["metadata"]["labels"]["theirs"], "x");
    assert_eq!(bench.step_down(), None);
    assert_eq!(extensions(&bench).len(), 1);
}

#[test]
fn conflicts_in_a_row_are_told() {
    let mut bench = Bench::leading();
    let object = bench.register.object().unwrap();
    bench.answers = false;
    let mut told = Vec::new();
    for _ in 0..6 {
        while bench.awaited.is_none() {
            bench.run(Duration::from_millis(50));
        }
        match bench.awaited.as_ref().map(|(_, request)| request.clone()) {
            Some(Request::Get) => bench.answer(Answer::Object(object.clone().into())),
            Some(_) | None => bench.answer(Answer::Conflict),
        }
        let conflicts =
            bench.events.iter().filter(|event| matches!(event, Event::Failed { message, .. } if message.words.contains("409")));
        told.push(conflicts.count());
    }
    assert_eq!(told, [0, 0, 1, 1, 2, 2]);
}

#[test]
fn what_a_conflict_finds_decides_the_loss() {
    type Lose = fn(&mut Bench);
    let losses: [(&str, Lose, Reason); 4] = [
        ("x", |b| b.register.edit(|o| o["spec"] = held("x", 15)), Reason::LostToHolder),
        ("cleared", |b| b.register.edit(|o| o["spec"]["holderIdentity"] = "".into()), Reason::LostCleared),
        ("deleted", |b| drop(b.register.delete()), Reason::LostDeleted),
        (
            "made again",
            |b| {
                b.register.delete();
                b.register.put(held(ME, 15));
            },
            Reason::LostRecreated,
        ),
    ];
    for (name, lose, reason) in losses {
        let mut bench = Bench::leading();
        lose(&mut bench);
        bench.run(seconds(3));
        assert_eq!(bench.step_down_reason(), Some(reason), "{name}");
        let sent = bench.sent.len();
        bench.run(seconds(10));
        assert_eq!(bench.sent.len(), sent, "{name}: nothing is sent before the proof");
    }
}

#[test]
fn a_watch_event_from_before_the_last_confirmed_write_is_no_loss() {
    let mut bench = Bench::leading();
    let mut old = bench.register.object().unwrap();
    old["metadata"]["resourceVersion"] = "3".into();
    old["spec"]["holderIdentity"] = "x".into();

    bench.watch(Watched::Changed(old.clone().into()));
    bench.watch(Watched::Deleted(old.into()));

    assert_eq!(bench.step_down(), None);
}

#[test]
fn a_deletion_is_a_loss_although_an_old_event_of_another_lease_came_in_between() {
    let mut bench = Bench::leading();
    let mut old = bench.register.object().unwrap();
    old["metadata"]["resourceVersion"] = "1".into();
    old["metadata"]["uid"] = "the one before".into();

    bench.watch(Watched::Changed(old.into()));
    let deleted = bench.register.delete();
    bench.watch(deleted);

    assert_eq!(bench.step_down_reason(), Some(Reason::LostDeleted));
}

#[test]
fn the_echo_of_a_renewal_before_its_reply_disturbs_nothing() {
    let mut bench = Bench::leading();
    bench.answers = false;
    bench.run(seconds(3));
    let (_, request) = bench.awaited.clone().unwrap();
    bench.register.apply(&request);
    bench.watch_register();

    bench.answer(Answer::Object(bench.register.object().unwrap().into()));

    assert_eq!(extensions(&bench).len(), 1);
    bench.run_answered(seconds(3));
    assert_eq!(extensions(&bench).len(), 2);
}

#[test]
fn a_200_whose_version_did_not_rise_moves_nothing() {
    let mut bench = Bench::leading();
    bench.answers = false;
    bench.run(seconds(3));
    let mut unchanged = bench.body();
    unchanged["metadata"]["resourceVersion"] = bench.register.object().as_ref().unwrap()["metadata"]["resourceVersion"].clone();

    bench.answer(Answer::Object(unchanged.into()));

    assert_eq!(extensions(&bench), []);
}

#[test]
fn a_renewal_whose_reply_was_lost_is_proved_by_a_read_and_dated_from_its_send() {
    let mut bench = Bench::leading();
    bench.answers = false;
    bench.run(seconds(3));
    let sent = bench.last_sent();
    bench.serve_silently();
    bench.run(seconds(1));
    bench.serve();
    bench.serve();

    assert_eq!(extensions(&bench).first().unwrap().end, sent + E);
    assert_eq!(bench.step_down(), None);
    let renewed = |event: &Event| matches!(event, Event::Renewed { sent: at, .. } if *at == sent);
    assert!(bench.events.iter().any(renewed), "it is told as any renewal");
}

#[test]
fn without_inits_word_on_the_last_extension_nothing_is_renewed() {
    let mut bench = Bench::leading();
    bench.acknowledges = false;
    bench.run(seconds(3));
    let writes = bench.writes().len();

    bench.run(seconds(6));
    assert_eq!(bench.writes().len(), writes);

    let Some(ToInit::Extend { term, serial, .. }) = bench.told.last().cloned() else { panic!() };
    bench.tell(ToElector::Acknowledged { term, serial: serial - 1 });
    assert_eq!(bench.writes().len(), writes, "an older serial is no acknowledgement");
    bench.tell(ToElector::Acknowledged { term, serial });
    assert_eq!(bench.writes().len(), writes + 1);
}

#[test]
fn a_planned_stop_is_renewed_until_the_proof() {
    let mut bench = Bench::leading();
    bench.stopping(Reason::Signal);
    let writes = bench.writes().len();

    bench.run(seconds(60));

    assert_eq!(bench.writes().len(), writes + 20);
    assert_eq!(extensions(&bench).len(), 20);
    assert!(!bench.guarding());
}

#[test]
fn a_loss_during_a_planned_stop_asks_init_again_with_the_new_reason() {
    let mut bench = Bench::leading();
    bench.stopping(Reason::Signal);
    let first = bench.step_down();
    bench.see(|object| object["spec"]["holderIdentity"] = "x".into());

    assert_eq!(bench.step_down_reason(), Some(Reason::LostToHolder));
    let (term, request) = first.unwrap();
    assert_ne!(bench.step_down(), first);
    let stop = crate::link::Stop { began: None, killed: None, exited: None, exit: None, fused: None, proved: bench.now.boot };
    bench.tell(ToElector::Stopped { term, request, stop, then: Then::Follow });
    assert!(
        !bench.told.iter().any(|told| matches!(told, ToInit::Ended { .. })),
        "the proof of an earlier request does not count"
    );
}

#[test]
fn a_request_to_step_down_names_the_holder_in_full() {
    let mut bench = Bench::leading();
    bench.see(|object| object["metadata"]["annotations"] = json!({(STEP_DOWN): "me"}));
    assert_eq!(bench.step_down(), None);

    bench.see(|object| object["metadata"]["annotations"] = json!({(STEP_DOWN): ME}));
    assert_eq!(bench.step_down_reason(), Some(Reason::StepDown));
}

#[test]
fn a_preferred_holder_other_than_me_means_a_planned_stop() {
    let mut bench = Bench::leading();
    bench.see(|object| {
        object["spec"]["strategy"] = "OldestEmulationVersion".into();
        object["spec"]["preferredHolder"] = ME.into();
    });
    assert_eq!(bench.step_down(), None);

    bench.see(|object| object["spec"]["preferredHolder"] = "x".into());
    assert_eq!(bench.step_down_reason(), Some(Reason::PreferredHolder));
    bench.run(seconds(3));
    assert_eq!(bench.body()["spec"]["strategy"], "OldestEmulationVersion");
}

#[test]
fn after_a_gap_in_its_own_clock_the_term_is_ended_before_anything_is_sent() {
    let mut bench = Bench::leading();
    let writes = bench.writes().len();
    bench.pass(START + seconds(100));

    bench.run(TICK);

    assert_eq!(bench.step_down_reason(), Some(Reason::Expired));
    assert!(bench.guarding());
    assert_eq!(bench.writes().len(), writes);
}

#[test]
fn after_a_loss_the_race_begins_again_only_after_the_proof() {
    let mut bench = Bench::leading();
    bench.see(|object| object["spec"]["holderIdentity"] = "".into());
    bench.run(seconds(5));
    assert_eq!(bench.leads().map(|term| term.0), Some(1));

    bench.prove(Then::Follow);
    bench.run(plus(15) - seconds(1));
    assert_eq!(bench.leads().map(|term| term.0), Some(1), "nobody holds it first");
    bench.run(seconds(1));

    assert_eq!(bench.leads().map(|term| term.0), Some(2));
}

/// Leading and renewed, when a copy of this replica writes a time that it has not sent.
fn copied() -> Bench {
    let mut bench = Bench::leading();
    bench.run(seconds(4));
    bench.register.edit(|object| {
        let time = object["spec"]["renewTime"].as_str().unwrap().replace(":0", ":1");
        object["spec"]["renewTime"] = time.into();
    });
    bench
}

#[test]
fn a_later_renewal_in_my_name_is_a_copys_whether_the_watch_or_a_conflict_shows_it() {
    let mut bench = copied();
    bench.watch_register();
    assert_eq!(bench.step_down_reason(), Some(Reason::LostToCopy));

    let mut bench = copied();
    bench.run(seconds(3));
    assert_eq!(bench.step_down_reason(), Some(Reason::LostToCopy), "although its own attempt carried a later time");
}

#[test]
fn an_own_write_without_an_answer_is_no_copys() {
    let mut bench = Bench::leading();
    bench.run(seconds(2));
    bench.answers = false;
    bench.run(seconds(2));
    let (_, request) = bench.awaited.clone().unwrap();
    bench.register.apply(&request);
    bench.answer(lost());
    bench.watch_register();

    bench.run_answered(seconds(10));

    assert_eq!(bench.step_down(), None);
}

#[test]
fn an_own_write_on_the_version_that_a_read_proves_is_no_copys_when_it_is_stored_later() {
    let mut bench = Bench::leading();
    bench.answers = false;
    bench.run(seconds(4));
    let (_, first) = bench.awaited.clone().unwrap();
    bench.register.apply(&first);
    bench.answer(lost());
    bench.watch_register();
    bench.run(seconds(1));
    let (_, second) = bench.awaited.clone().unwrap();
    assert!(bench.awaits_a_write() && second != first);
    bench.answer(lost());
    bench.run(seconds(1));
    assert!(!bench.awaits_a_write(), "a read, which proves the first");
    bench.serve();

    bench.register.apply(&second);
    bench.watch_register();
    bench.run_answered(seconds(10));

    assert_eq!(bench.step_down(), None);
}

#[test]
fn an_own_write_that_was_refused_and_is_stored_all_the_same_is_no_copys() {
    let mut bench = Bench::leading();
    bench.answers = false;
    bench.run(seconds(4));
    let (_, twice) = bench.awaited.clone().unwrap();
    bench.answer(Answer::Refused { refusal: Refusal::Forbidden, message: "no".into() });
    bench.register.apply(&twice);
    bench.watch_register();

    bench.run_answered(seconds(10));

    assert_eq!(bench.step_down(), None);
}

#[test]
fn the_very_bytes_of_an_own_write_that_met_a_conflict_may_be_a_copys() {
    let mut bench = Bench::leading();
    bench.answers = false;
    bench.run(seconds(4));
    let (_, same) = bench.awaited.clone().unwrap();
    bench.register.apply(&same);
    bench.answer(Answer::Conflict);

    bench.run_answered(seconds(3));

    assert_eq!(bench.step_down_reason(), Some(Reason::LostToCopy));
}

#[test]
fn what_a_watch_shows_of_a_store_whose_versions_have_fallen_is_no_loss_before_a_read_shows_it() {
    let mut bench = Bench::leading();
    bench.run(seconds(7));
    let mut restored = bench.register.object().unwrap();
    bench.answers = false;
    bench.run(seconds(3));
    bench.answer(Answer::Conflict);
    bench.run(seconds(1));
    restored["metadata"]["resourceVersion"] = "1".into();
    bench.answer(Answer::Object(restored.clone().into()));
    assert_eq!(bench.step_down(), None, "its own");

    restored["metadata"]["resourceVersion"] = "2".into();
    restored["spec"]["holderIdentity"] = "x".into();
    bench.watch(Watched::Changed(restored.clone().into()));
    assert_eq!(bench.step_down(), None);

    bench.run(seconds(3));
    bench.answer(Answer::Conflict);
    bench.run(seconds(1));
    bench.answer(Answer::Object(restored.into()));
    assert_eq!(bench.step_down_reason(), Some(Reason::LostToHolder));
}

#[test]
fn messages_of_another_term_are_ignored() {
    let mut bench = Bench::leading();
    let stop = crate::link::Stop { began: None, killed: None, exited: None, exit: None, fused: None, proved: bench.now.boot };
    let term = crate::link::Term(99);

    bench.tell(ToElector::Stopping { term, reason: Reason::Signal, at: bench.now.boot });
    bench.tell(ToElector::Stopped { term, request: 1, stop, then: Then::Exit });

    assert_eq!(bench.step_down(), None);
    assert!(!bench.is_done());
}

#[test]
fn a_spec_that_somebody_has_filled_does_not_break_the_link() {
    let mut bench = Bench::leading();
    bench.register.edit(|object| object["spec"]["futureField"] = "x".repeat(200_000).into());
    bench.told.clear();
    bench.run(seconds(4));

    assert_eq!(bench.body()["spec"]["futureField"].as_str().map(str::len), Some(200_000), "it is kept");
    assert!(matches!(bench.told[..], [ToInit::Extend { .. }]), "{:?}", bench.told);
    encode(&bench.told[0]).unwrap();
}

#[test]
fn a_term_that_ends_although_reads_are_answered_says_what_that_may_be() {
    let says = |answers_reads| {
        let mut bench = Bench::leading();
        bench.answers = false;
        while bench.step_down().is_none() {
            match bench.awaited.as_ref().map(|(_, request)| request.clone()) {
                Some(Request::Get) if answers_reads => bench.serve(),
                Some(_) => {
                    bench.run(seconds(2));
                    bench.answer(lost());
                }
                None => bench.run(Duration::from_millis(10)),
            }
        }
        bench.events.contains(&Event::Odd { message: ONLY_READS.into() })
    };

    assert!(says(true) && !says(false));
}
