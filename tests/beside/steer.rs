//! `tenure step-down`, `pause` and `resume`: leadership moves, or stays, as somebody says.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use serde_json::{Value, json};
use support::{
    Case, Fault, LEASE, Request, Stage, Times, Valve, Verb, cases, found,
    spec::{held, released},
    until,
};
use tenure::clock;

use super::{Desk, Ended};

const TWO: &str = "two_0123456789abcdef0123456789abcdef";

pub(super) fn all() -> Vec<Case> {
    cases![
        a_holder_that_is_asked_steps_down_and_the_wait_ends_with_the_next_term,
        a_term_that_is_over_before_it_is_seen_ends_the_wait_too,
        the_candidate_is_named_with_the_request,
        a_candidate_that_no_replica_can_be_is_refused_and_nobody_is_asked,
        what_nobody_holds_is_1_and_what_is_not_there_2,
        a_pause_keeps_everybody_from_it_and_a_resume_lets_them,
        who_leads_since_then_is_asked_only_if_a_third_one_was_named,
        a_pause_that_comes_first_refuses_the_request,
        of_a_holder_that_heeds_no_annotation_a_person_is_warned,
        a_change_that_cannot_be_shown_afterwards_is_said_all_the_same,
        whoever_may_not_update_is_told_so,
        a_holder_writes_on_no_terminal,
        those_who_follow_are_shown_and_the_one_who_leads_is_not,
    ]
}

fn annotation(lease: Option<&Value>, name: &str) -> Value {
    lease.map_or(Value::Null, |lease| lease["metadata"]["annotations"][name].clone())
}

async fn a_holder_that_is_asked_steps_down_and_the_wait_ends_with_the_next_term(stage: Stage) {
    let (one, _) = stage.lead(stage.prepare("one").await).await;
    let two = stage.start("two").await;
    two.proxy.log.first("a watch", |e| e.request.verb == Verb::Watch && e.succeeded()).await;
    let desk = Desk::of(&stage).await;

    let ended = desk.ends(&["step-down", LEASE, "--wait"]).await;

    let leads = stage.witness.start("two", 0).await;
    assert_eq!((ended.code, ended.out), (0, format!("{} leads\n", leads.variable("TENURE_IDENTITY"))), "{}", ended.err);
    for me in [one, two] {
        me.stop().await;
    }
}

async fn a_term_that_is_over_before_it_is_seen_ends_the_wait_too(stage: Stage) {
    stage.lease.create(held("one_1", 60)).await;
    let desk = Desk::of(&stage).await;
    let log = desk.proxy.log.clone();

    let (ended, ()) = tokio::join!(desk.ends(&["step-down", LEASE, "--wait"]), async {
        log.first("the request", |e| e.request.verb == Verb::Update && e.succeeded()).await;
        let mut over = released();
        over["leaseTransitions"] = json!(7);
        stage.lease.set_spec(over).await;
    });

    assert_eq!((ended.code, ended.out.as_str()), (0, "another term has begun, and is over\n"), "{}", ended.err);
}

async fn the_candidate_is_named_with_the_request(stage: Stage) {
    stage.lease.create(held("one_1", 60)).await;
    let desk = Desk::of(&stage).await;

    let ended = desk.ends(&["step-down", LEASE, "--to", TWO]).await;

    assert_eq!((ended.code, ended.out.as_str()), (0, "one_1 was asked to step down\n"), "{}", ended.err);
    let others = "does not run, the others wait for lease.renewPeriod and lease.attemptTimeout all the same";
    assert!(ended.err.contains(&format!("if {TWO} {others}")), "{}", ended.err);
    let lease = stage.lease.read().await;
    let told = ["tenure.dev/step-down", "tenure.dev/step-down-to"].map(|name| annotation(lease.as_ref(), name));
    assert_eq!(told, [json!("one_1"), json!(TWO)]);
}

async fn a_candidate_that_no_replica_can_be_is_refused_and_nobody_is_asked(stage: Stage) {
    stage.lease.create(held("one_1", 60)).await;
    let desk = Desk::of(&stage).await;
    for (candidate, code) in [("", 64), ("two", 78), ("two_2", 78), (&TWO[1 + "two".len()..], 78)] {
        let ended = desk.ends(&["step-down", LEASE, "--to", candidate]).await;
        assert_eq!(ended.code, code, "{candidate:?}: {}", ended.err);
    }
    assert_eq!(annotation(stage.lease.read().await.as_ref(), "tenure.dev/step-down"), Value::Null);
}

async fn what_nobody_holds_is_1_and_what_is_not_there_2(stage: Stage) {
    stage.lease.create(released()).await;
    let desk = Desk::of(&stage).await;
    let free = desk.ends(&["step-down", LEASE]).await;
    assert_eq!((free.code, free.err.trim_end().ends_with("nobody holds the Lease main")), (1, true), "{free:?}");
    for command in ["step-down", "pause", "resume"] {
        assert_eq!(desk.ends(&[command, "nothing"]).await.code, 2, "{command}");
    }
    stage.lease.set_spec(held("gone_1", 60)).await;
    let vain = desk.ends(&["step-down", LEASE, "--wait=1s"]).await;
    assert_eq!((vain.code, vain.err.contains("still holds it after 1s")), (1, true), "{vain:?}");
    assert_eq!(desk.proxy.log.count(|e| e.request.verb == Verb::Update), 1, "nothing was written but the request");
    let mut edited = stage.lease.read().await.expect("a Lease")["spec"].clone();
    edited["leaseTransitions"] = json!(9);
    let log = desk.proxy.log.clone();
    let looks = log.count(|e| e.request.verb == Verb::Get);
    let (vain, ()) = tokio::join!(desk.ends(&["step-down", LEASE, "--wait=2s"]), async {
        log.nth(looks + 2, "a look after the request", |e| e.request.verb == Verb::Get && e.succeeded()).await;
        stage.lease.set_spec(edited).await;
    });
    assert_eq!((vain.code, vain.err.contains("still holds it after 2s")), (1, true), "an edit begins no term: {vain:?}");
}

async fn a_pause_keeps_everybody_from_it_and_a_resume_lets_them(stage: Stage) {
    stage.lease.create(released()).await;
    let desk = Desk::of(&stage).await;

    let paused = desk.ends(&["pause", LEASE]).await;
    assert_eq!((paused.code, paused.out.as_str()), (0, "paused: nobody takes it\n"), "{}", paused.err);
    assert_eq!(annotation(stage.lease.read().await.as_ref(), "tenure.dev/paused"), "true");
    let me = stage.start("me").await;
    me.proxy.log.first("a watch", |e| e.request.verb == Verb::Watch && e.succeeded()).await;
    let resuming = clock::boot();
    let resumed = [desk.ends(&["resume", LEASE]).await, desk.ends(&["resume", LEASE]).await];

    assert_eq!(resumed.map(|ended| (ended.code, ended.out)), [(0, "resumed\n".to_owned()), (0, "resumed\n".to_owned())]);
    assert_eq!(desk.ends(&["resume", LEASE, "-o", "name"]).await.out, format!("lease.coordination.k8s.io/{LEASE}\n"));
    assert!(stage.witness.start("me", 0).await.at() > resuming);
    assert_eq!(desk.proxy.log.count(|e| e.request.verb == Verb::Update), 2, "what is so already is not written");
    let kept = desk.ends(&["pause", LEASE]).await;
    let keeps = " keeps it while it lives, and if it restarts nothing runs";
    assert!(kept.out.contains("me_") && kept.out.contains(keeps), "{kept:?}");
    let refused = desk.ends(&["step-down", LEASE]).await;
    let why = "is paused: nobody takes it before `tenure resume`; --force";
    assert!(refused.code == 78 && refused.err.contains(why), "{refused:?}");
    assert_eq!(annotation(stage.lease.read().await.as_ref(), "tenure.dev/step-down"), Value::Null);
    let asked = desk.ends(&["step-down", LEASE, "--force"]).await;
    assert!(asked.code == 0 && asked.out.contains(" was asked to step down"), "{asked:?}");
    me.stop().await;
}

/// Runs this line, and has the Lease changed like this before the write number `nth` of the desk arrives.
async fn overtaken(desk: &Desk<'_>, nth: usize, line: &[&str], change: impl Fn(&mut Value)) -> Ended {
    let (is_update, valve) = (|request: &Request| request.verb == Verb::Update, Valve::closed());
    desk.proxy.on(is_update, Times::Only(1), Fault::late_request(&valve));
    let race = async {
        desk.proxy.log.nth(nth, "the write", |e| is_update(&e.request)).await;
        desk.stage.lease.edit(change).await;
        valve.open();
    };
    tokio::join!(desk.ends(line), race).0
}

async fn who_leads_since_then_is_asked_only_if_a_third_one_was_named(stage: Stage) {
    stage.lease.create(held("one_1", 60)).await;
    let desk = Desk::of(&stage).await;
    let (leads, asked) = (format!("{TWO} leads\n"), format!("{TWO} was asked to step down\n"));
    let three = TWO.replace("two", "three");
    for (nth, (line, said, of)) in [
        (&["step-down", LEASE][..], &leads, Value::Null),
        (&["step-down", LEASE, "--wait"], &leads, Value::Null),
        (&["step-down", LEASE, "--to", TWO], &leads, Value::Null),
        (&["step-down", LEASE, "--to", &three], &asked, json!(TWO)),
    ]
    .into_iter()
    .enumerate()
    {
        stage.lease.set_spec(held("one_1", 60)).await;

        let ended = overtaken(&desk, nth, line, |lease| lease["spec"] = held(TWO, 60)).await;

        assert_eq!((ended.code, &ended.out), (0, said), "{line:?}: {}", ended.err);
        assert_eq!(annotation(stage.lease.read().await.as_ref(), "tenure.dev/step-down"), of, "{line:?}");
    }
}

async fn a_pause_that_comes_first_refuses_the_request(stage: Stage) {
    stage.lease.create(held("one_1", 60)).await;
    let desk = Desk::of(&stage).await;
    let pause = |lease: &mut Value| lease["metadata"]["annotations"]["tenure.dev/paused"] = json!("true");

    let ended = overtaken(&desk, 0, &["step-down", LEASE], pause).await;

    assert!(ended.code == 78 && ended.err.contains("is paused"), "{ended:?}");
    assert_eq!(annotation(stage.lease.read().await.as_ref(), "tenure.dev/step-down"), Value::Null);
}

async fn of_a_holder_that_heeds_no_annotation_a_person_is_warned(stage: Stage) {
    stage.lease.create(held("one_1", 60)).await;
    let desk = Desk::of(&stage).await;
    let lines = [&["step-down", LEASE][..], &["pause", LEASE]];
    let warning = "tenure.dev/holder does not name one_1: a client other than tenure does not heed this";
    for line in lines {
        let ended = desk.ends(line).await;
        assert!(ended.code == 0 && ended.err.contains(warning), "{ended:?}");
    }
    stage.lease.edit(|lease| lease["metadata"]["annotations"] = json!({ "tenure.dev/holder": "one_1" })).await;
    for line in lines {
        let ended = desk.ends(line).await;
        assert!(ended.code == 0 && !ended.err.contains("does not heed"), "{ended:?}");
    }
}

async fn a_change_that_cannot_be_shown_afterwards_is_said_all_the_same(stage: Stage) {
    stage.lease.create(held("one_1", 60)).await;
    let desk = Desk::of(&stage).await;
    let reads = AtomicUsize::new(0);
    let is_second = move |request: &Request| request.verb == Verb::Get && reads.fetch_add(1, Relaxed) > 0;
    desk.proxy.on(is_second, Times::Always, Fault::refused(403, "Forbidden"));

    let ended = desk.ends(&["pause", LEASE, "-o", "json"]).await;

    assert!(ended.code == 77 && ended.err.contains("paused: nobody takes it; one_1 keeps it"), "{ended:?}");
    assert_eq!(annotation(stage.lease.read().await.as_ref(), "tenure.dev/paused"), "true");
}

async fn a_holder_writes_on_no_terminal(stage: Stage) {
    let name = "one_1\ntenure: all is well\u{1b}[2J\u{202e}";
    stage.lease.create(held(name, 60)).await;
    let desk = Desk::of(&stage).await;
    for command in [
        &["pause", LEASE][..],
        &["step-down", LEASE, "--force"],
        &["step-down", LEASE, "--force", "--wait=1s"],
        &["step-down", LEASE, "--force", "--to", TWO],
        &["confirm-dead", LEASE, "--holder", TWO],
    ] {
        let ended = desk.ends(command).await;

        let said = ended.out.clone() + &ended.err;
        assert!(said.contains("one_1 tenure: all is well\u{fffd}[2J\u{fffd}"), "{command:?}: {ended:?}");
        assert!(!said.contains('\u{1b}') && !said.contains('\u{202e}'), "{command:?}: {ended:?}");
    }
}

async fn whoever_may_not_update_is_told_so(stage: Stage) {
    stage.lease.create(held("one_1", 60)).await;
    let desk = Desk::of(&stage).await;
    desk.proxy.on(|request: &Request| request.verb == Verb::Update, Times::Always, Fault::refused(403, "Forbidden"));
    assert_eq!(desk.ends(&["step-down", LEASE]).await.code, 77);
}

async fn those_who_follow_are_shown_and_the_one_who_leads_is_not(stage: Stage) {
    stage.lease.create(released()).await;
    let prepare = async |name: &str| stage.prepare(name).await.set("lease.announce", true).start();
    let one = prepare("one").await;
    stage.witness.start("one", 0).await;
    let others = [prepare("two").await, prepare("three").await];
    let desk = Desk::of(&stage).await;
    let shown = async |names: &[&str]| {
        until(&format!("{names:?}"), async || {
            let lease = desk.ends(&["status", LEASE, "-o", "json"]).await.json();
            let candidates = lease["candidates"].as_array().expect("a list");
            let mut shown: Vec<_> = candidates.iter().filter_map(|it| it["identity"].as_str()?.split('_').next()).collect();
            shown.sort_unstable();
            shown == names && candidates.iter().all(|it| it["ready"] == true && it["version"].is_string())
        })
        .await;
    };

    shown(&["three", "two"]).await;
    assert_eq!(stage.witness.starts("one"), 1, "writes of others cost it no term");
    assert_eq!(one.stop().await, 0);
    let led = async || ["two", "three"].into_iter().find(|name| stage.witness.starts(name) == 1);
    let next = found("the next term", led).await;
    shown(&[if next == "two" { "three" } else { "two" }]).await;
    for me in others {
        me.stop().await;
    }
}
