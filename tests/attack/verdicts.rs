//! Tests of the judge: histories made by hand, and what it says of them.
//!
//! All times are in milliseconds, and D is 4 s.

use std::time::Duration;

use serde_json::{Value, json};
use support::{Answer, Exchange, Life, Process, Request, Trial, Verb, audit::Record, trials};
use tenure::{
    election::writes::NOBODY,
    time::{Instant, Now},
};

use crate::{
    complete::{self, OBITUARY},
    fault::Fault,
    history::{History, Replica},
    judge::{self, Excuse, Verdict},
    plan::LEFT,
    report::NOT_LIVE,
    verdicts,
    world::{Past, Span, account, place_of},
};

pub(crate) fn trials() -> Vec<Trial> {
    trials![verdicts:
        a_life_ends_with_its_hold_even_if_no_other_one_begins,
        a_write_without_an_answer_is_a_hold_once_it_is_read,
        a_freeze_excuses_what_has_no_fuse_until_soon_after_it,
        a_freeze_that_begins_after_the_hold_excuses_nothing,
        a_young_process_does_not_excuse_one_that_has_a_fuse,
        where_there_is_no_fuse_a_freeze_excuses_every_process,
        a_lock_is_excused_by_an_overlap_with_its_holder_only,
        beside_client_go_a_life_still_ends_with_its_hold,
        an_acquisition_is_judged_although_a_killed_server_did_not_record_it,
        a_write_is_not_compared_with_what_it_did_not_replace_where_etcd_may_have_kept_an_edit_to_itself,
        nobody_is_written_where_nobody_holds_and_as_the_law_says,
        a_witness_releases_once_the_one_that_it_names_is_dead,
        a_complete_attack_lacks_no_fault,
        with_several_slots_so_many_run_at_once_one_in_each_and_one_in_each_replica,
        with_several_slots_tokens_rise_and_holds_end_under_each_lease,
    ]
}

fn a_life_ends_with_its_hold_even_if_no_other_one_begins() {
    let judged = |last| {
        let mut history = History::of_replicas([tenure("0-1", vec![written(1_000, "0-1")])]);
        history.lives = vec![life("0-1", 1_100, [(1_090, last)])];
        found(&history)
    };

    assert_eq!(judged(5_000), Vec::<String>::new());
    assert!(judged(5_001)[0].starts_with("outlived its hold by 1ms: "));
}

fn a_write_without_an_answer_is_a_hold_once_it_is_read() {
    let unanswered = Exchange { answer: None, ..written(2_000, "0-1") };
    let read = Exchange { request: request(2_500, Verb::Get, Value::Null), ..written(2_000, "0-1") };
    let judged = |exchanges| {
        let mut history = History::of_replicas([tenure("0-1", exchanges)]);
        history.lives = vec![life("0-1", 1_100, [(1_090, 6_000)])];
        found(&history).len()
    };

    assert_eq!(judged(vec![written(1_000, "0-1"), unanswered.clone(), read]), 0);
    assert_eq!(judged(vec![written(1_000, "0-1"), unanswered]), 1);
}

/// The hold of 0-1 ends at 5 s; init and elector are frozen in this time span, and its processes have these first and last
/// moments. 1-1 begins at 5.2 s.
fn frozen<const N: usize>((from, to): (u64, u64), processes: [(u64, u64); N]) -> History {
    let mut history = History::of_replicas([
        tenure("0-1", vec![written(1_000, "0-1")]),
        tenure("1-1", vec![written(5_100, "1-1")]),
        tenure("2-1", vec![written(9_300, "2-1")]),
    ]);
    history.lives = vec![life("0-1", 1_100, processes), life("1-1", 5_200, [(5_200, 9_000)])];
    history.spans = vec![span(Fault::FreezeBoth, 0, from, to)];
    history
}

fn a_freeze_excuses_what_has_no_fuse_until_soon_after_it() {
    // A look at 1.4 s would have found the daemon.
    let last = |last| frozen((1_600, 7_000), [(1_100, 4_050), (1_250, last)]);

    let Verdict { overlaps, violations, .. } = judge::judge(&last(8_500));
    assert_eq!((overlaps[0].excuse, violations), (Some(Excuse::Young), Vec::new()));
    assert_eq!(found(&last(8_501)).len(), 2);
}

fn a_freeze_that_begins_after_the_hold_excuses_nothing() {
    assert_eq!(found(&frozen((5_100, 7_000), [(1_100, 4_050), (5_050, 6_000)])).len(), 2);
}

fn a_young_process_does_not_excuse_one_that_has_a_fuse() {
    assert_eq!(found(&frozen((1_600, 7_000), [(1_100, 4_050), (1_250, 7_100), (1_120, 7_100)])).len(), 2);
    assert_eq!(found(&frozen((1_600, 7_000), [(1_100, 7_100), (1_250, 7_100)])).len(), 2);
}

fn where_there_is_no_fuse_a_freeze_excuses_every_process() {
    let mut history = frozen((1_600, 7_000), [(1_100, 7_100)]);
    assert_eq!(found(&history).len(), 2);

    history.replicas[0].lines = vec!["there is no kernel fuse, so only init and the elector enforce the deadline: why".into()];

    let Verdict { overlaps, violations, .. } = judge::judge(&history);
    assert_eq!((overlaps[0].excuse, violations), (Some(Excuse::NoFuse), Vec::new()));
}

fn a_lock_is_excused_by_an_overlap_with_its_holder_only() {
    let mut history = frozen((1_600, 9_500), [(1_100, 4_050), (1_250, 9_250)]);
    history.lives.push(life("2-1", 9_400, [(9_400, 9_600)]));
    let locked_out = |replica: &str, at: u64, holder: &str| {
        let more = json!({ "token": token(replica), "holder": holder });
        let event = json!({ "at": moment(at).as_nanos(), "replica": replica, "pid": 2, "what": "locked out", "more": more });
        vec![serde_json::from_value(event).expect("an event")]
    };

    history.events = locked_out("1-1", 5_201, "0-1");
    assert_eq!(found(&history), Vec::<String>::new());
    history.events = locked_out("2-1", 9_401, "1-1");
    assert_eq!(found(&history).len(), 1);
}

fn beside_client_go_a_life_still_ends_with_its_hold() {
    let judged = |last| {
        let peer = Replica { is_peer: true, ..tenure("2-1", Vec::new()) };
        let mut history = History::of_replicas([tenure("0-1", vec![written(1_000, "0-1")]), peer]);
        let emptied = Record { user: "admin".into(), ..stored(2_000, "0-1", 2, &json!({ "holderIdentity": "" })) };
        let taken = stored(2_100, "2-1", 3, &json!({ "holderIdentity": "2-1", "leaseDurationSeconds": 4 }));
        history.audit = vec![stored(1_000, "0-1", 1, &spec(1_000, "0-1")), emptied, taken];
        history.lives = vec![life("0-1", 1_100, [(1_090, last)]), life("2-1", 2_200, [(2_200, 5_900)])];
        found(&history).len()
    };

    assert_eq!(judged(5_000), 0);
    assert_eq!(judged(5_001), 1);
}

fn an_acquisition_is_judged_although_a_killed_server_did_not_record_it() {
    let judged = |transitions: u64, sent_at: u64, fault: Fault| {
        let mut acquired = spec(2_000, "1-1");
        acquired["leaseTransitions"] = json!(transitions);
        let mut renewed = acquired.clone();
        renewed["renewTime"] = spec(9_000, "1-1")["renewTime"].clone();
        let mut sent = Exchange { answer: None, ..written(sent_at, "1-1") };
        sent.request.body["spec"]["leaseTransitions"] = json!(transitions);
        let mut history = History::of_replicas([tenure("0-1", vec![written(1_000, "0-1")]), tenure("1-1", vec![sent])]);
        let emptied = Record { user: "admin".into(), ..stored(1_500, "0-1", 2, &json!({})) };
        history.audit = vec![stored(1_000, "0-1", 1, &spec(1_000, "0-1")), emptied, stored(9_000, "1-1", 3, &renewed)];
        history.spans = vec![Span { place: None, ..span(fault, 0, 2_050, 7_000) }];
        found(&history).len()
    };

    assert_eq!(judged(1, 2_000, Fault::RestartApiServer), 0);
    assert_eq!(judged(2, 2_000, Fault::RestartApiServer), 1, "it does not count one transition");
    assert_eq!(judged(1, 2_001, Fault::RestartApiServer), 1, "nobody sent it");
    assert_eq!(judged(1, 2_000, Fault::FreezeApiServer), 1, "what a server that lives has answered is recorded");
}

fn a_write_is_not_compared_with_what_it_did_not_replace_where_etcd_may_have_kept_an_edit_to_itself() {
    let judged = |base: &str, fault: Fault| {
        let mut held = spec(1_000, "0-1");
        held["leaseTransitions"] = json!(12);
        let mut taken = spec(2_000, "1-1");
        taken["leaseTransitions"] = json!(1);
        let taken = Record { base: Some(base.to_owned()), ..stored(2_000, "1-1", 9, &taken) };
        let mut history = History::of_replicas([tenure("0-1", vec![written(1_000, "0-1")]), tenure("1-1", Vec::new())]);
        history.audit = vec![Record { user: "admin".into(), ..stored(1_000, "0-1", 5, &held) }, taken];
        history.spans = vec![Span { place: None, ..span(fault, 0, 1_500, 1_900) }];
        found(&history).iter().filter(|wrong| wrong.contains("does not count one transition")).count()
    };

    assert_eq!(judged("7", Fault::FreezeEtcd), 0);
    assert_eq!(judged("5", Fault::FreezeEtcd), 1, "it is what it replaced");
    assert_eq!(judged("7", Fault::FreezeElector), 1, "nothing kept an answer back");
}

fn nobody_is_written_where_nobody_holds_and_as_the_law_says() {
    let waited_for = json!({ "holderIdentity": NOBODY, "leaseDurationSeconds": 4, "renewTime": "2026-01-01T00:00:02.000000Z" });
    let judged = |before: Value, nobody: &Value, name: &str| {
        let mut history = History::of_replicas([tenure("1-1", Vec::new())]);
        let mut written = stored(2_000, "1-1", 2, nobody);
        written.stored["metadata"]["annotations"] = json!({ "tenure.dev/holder": name });
        history.audit = vec![Record { user: "admin".into(), ..stored(1_000, "1-1", 1, &before) }, written];
        found(&history).len()
    };

    assert_eq!(judged(json!({}), &waited_for, NOBODY), 0);
    assert_eq!(judged(spec(1_000, "0-1"), &waited_for, NOBODY), 1, "somebody held it");
    assert_eq!(judged(json!({}), &waited_for, "1-1_0"), 1, "beside another name");
    let mut counted = waited_for.clone();
    counted["leaseTransitions"] = json!(1);
    assert_eq!(judged(json!({}), &counted, NOBODY), 1, "no transition");
    assert_eq!(judged(waited_for.clone(), &waited_for, NOBODY), 1, "nobody held it for as long already");
}

fn a_witness_releases_once_the_one_that_it_names_is_dead() {
    let judged = |at: u64, named: &str| {
        let mut release = json!({ "metadata": { "annotations": { "tenure.dev/obituary": named } }, "spec": spec(at, "") });
        release["spec"]["holderIdentity"] = json!("");
        let release = Exchange { request: request(at, Verb::Update, release), ..written(at, "0-2") };
        let mut history = History::of_replicas([tenure("0-1", vec![written(1_000, "0-1")]), tenure("0-2", vec![release])]);
        history.lives = vec![life("0-1", 1_100, [(1_090, 2_000)])];
        found(&history)
    };

    assert_eq!(judged(2_001, "0-1_0"), Vec::<String>::new());
    assert!(judged(2_000, "0-1_0")[0].contains("before it was dead"));
    assert_eq!(judged(2_000, "0-3_0"), Vec::<String>::new(), "another one lives");
}

fn a_complete_attack_lacks_no_fault() {
    let judged = |faults: &[Fault], said: &[&str]| {
        let lines = said.iter().map(|line| (*line).to_owned()).collect();
        let (mut one, mut other) =
            (History::of_replicas([Replica { lines, ..tenure("0-1", Vec::new()) }]), History::of_replicas([]));
        let (some, others) = faults.split_at(faults.len() / 2);
        let round = |faults: &[Fault]| Past { faults: faults.to_vec(), from: moment(0), over: moment(1), led: moment(2) };
        (one.rounds, other.rounds) = (vec![round(some)], vec![round(others)]);
        complete::judge(&[one, other], Duration::from_secs(600))
    };

    let (all, said) = (Fault::all(), [LEFT, NOT_LIVE, OBITUARY]);
    assert_eq!(judged(&all, &said), Ok(()));
    assert_eq!(judged(&all, &said[1..]), Err("faults that did not come up: a hook that leaves a daemon".into()));
    assert_eq!(judged(&all, &said[..2]), Err("faults that did not come up: a witness that releases".into()));
    assert_eq!(judged(&all[1..], &said), Err("faults that did not come up: SIGTERM to init".into()));
}

/// Each of these runs from its first to its last moment, under the Lease of this slot, where its token is its time.
fn slots<const N: usize>(runs: [(&str, &str, u64, u64); N]) -> History {
    let mut history = History { slots: 2, ..History::of_replicas([]) };
    for (name, lease, first, last) in runs {
        let mut write = written(first, name);
        write.request.body["metadata"] = json!({ "name": lease });
        let answer = write.answer.as_mut().expect("it is answered");
        answer.body["metadata"] = json!({ "name": lease, "resourceVersion": first.to_string() });
        match history.replicas.iter_mut().find(|replica| replica.name == name) {
            Some(replica) => replica.exchanges.push(write),
            None => history.replicas.push(tenure(name, vec![write])),
        }
        history.lives.push(Life { token: first.to_string(), ..life(name, first, [(first, last)]) });
    }
    history
}

fn with_several_slots_so_many_run_at_once_one_in_each_and_one_in_each_replica() {
    let judged = |runs: [(&str, &str, u64, u64); 3]| found(&slots(runs)).join("\n");

    let first = ("0-1", "main", 1_000, 3_000);
    let second = ("1-1", "main-slot-1", 1_100, 3_000);
    assert_eq!(judged([first, second, ("2-1", "main", 3_001, 4_000)]), "");
    let (both, beside) =
        (judged([first, second, ("2-1", "main", 2_999, 4_000)]), judged([first, second, ("2-1", "main-slot-2", 2_999, 4_000)]));
    assert!(both.contains("TWO AT ONCE") && both.contains("MORE THAN 2 AT ONCE"), "{both}");
    assert!(!beside.contains("TWO AT ONCE") && beside.contains("MORE THAN 2 AT ONCE"), "{beside}");
    let twice = judged([first, ("0-1", "main-slot-1", 2_999, 3_500), ("1-1", "main-slot-1", 3_501, 4_000)]);
    assert!(twice.contains("TWO AT ONCE") && !twice.contains("MORE THAN"), "{twice}");

    // Whose answer is lost and who learns of it by a watch has the Lease that the server recorded.
    let mut history = slots([first, second]);
    history.replicas[1].exchanges[0].answer = None;
    assert!(found(&history).join("\n").contains("TWO AT ONCE"));
    history.audit = vec![stored(1_100, "1-1", 1_100, &spec(1_100, "1-1"))];
    history.audit[0].stored["metadata"]["name"] = json!("main-slot-1");
    assert!(!found(&history).join("\n").contains("TWO AT ONCE"));

    // A list that is asked for before and answered after it has its version.
    let mut history = slots([first, second]);
    let answer = Some(Answer { at: moment(1_101), status: 200, body: json!({ "metadata": { "resourceVersion": "1100" } }) });
    let listed = Exchange { request: request(1_099, Verb::List, Value::Null), answer };
    history.replicas[1].exchanges.insert(0, listed);
    assert!(!found(&history).join("\n").contains("TWO AT ONCE"));
}

fn with_several_slots_tokens_rise_and_holds_end_under_each_lease() {
    let mut history = slots([("0-1", "main", 1_000, 2_000), ("1-1", "main-slot-1", 1_100, 2_000), ("0-1", "main", 3_000, 4_000)]);
    assert_eq!(found(&history), Vec::<String>::new());
    // What it writes under another Lease does not make its hold longer.
    history.lives[0].last = moment(5_001);
    history.replicas[0].exchanges[1].request.body["metadata"]["name"] = json!("main-slot-1");
    history.lives.remove(2);
    assert!(found(&history)[0].starts_with("outlived its hold by 1ms: "));

    let mut history = slots([("0-1", "main", 1_000, 2_000), ("1-1", "main", 3_000, 4_000)]);
    history.lives[0].token = "3000".into();
    history.replicas[0].exchanges[0].answer.as_mut().expect("it is answered").body["metadata"]["resourceVersion"] = json!("3000");
    assert!(found(&history)[0].starts_with("a token that does not rise: "));
}

impl History {
    fn of_replicas<const N: usize>(replicas: [Replica; N]) -> Self {
        Self {
            world: 0,
            slots: 1,
            namespace: "default".into(),
            lives: Vec::new(),
            events: Vec::new(),
            spans: Vec::new(),
            rounds: Vec::new(),
            replicas: replicas.into(),
            audit: Vec::new(),
            broken_off: None,
            now: Now { boot: moment(100_000), wall: 100_000_000 },
        }
    }
}

fn found(history: &History) -> Vec<String> {
    judge::judge(history).violations
}

/// No earlier than a server's trouble could reach back.
fn moment(millis: u64) -> Instant {
    Instant::BOOT + Duration::from_secs(60) + Duration::from_millis(millis)
}

fn tenure(name: &str, exchanges: Vec<Exchange>) -> Replica {
    Replica { name: name.into(), is_peer: false, exchanges, lines: Vec::new(), code: None }
}

/// Places take their turns.
fn token(replica: &str) -> String {
    (place_of(replica) + 1).to_string()
}

/// Processes with their first and last moments.
fn life<const N: usize>(replica: &str, first: u64, processes: [(u64, u64); N]) -> Life {
    let last = processes.iter().map(|(_, last)| moment(*last)).max().expect("a process");
    let process = |(pid, (born, last)): (u32, (u64, u64))| Process { born: moment(born), pid, last: moment(last) };
    let mut processes: Vec<_> = (2..).zip(processes).map(process).collect();
    processes.sort_unstable();
    Life { replica: replica.into(), token: token(replica), first: moment(first), last, processes }
}

fn span(fault: Fault, place: usize, from: u64, to: u64) -> Span {
    Span { fault, place: Some(place), from: moment(from), to: moment(to) }
}

fn spec(at: u64, replica: &str) -> Value {
    let time = format!("2026-01-01T00:00:{:02}.{:03}000Z", at / 1_000, at % 1_000);
    json!({
        "holderIdentity": format!("{replica}_0"),
        "leaseDurationSeconds": 4,
        "acquireTime": time,
        "renewTime": time,
        "leaseTransitions": 0,
    })
}

fn request(at: u64, verb: Verb, body: Value) -> Request {
    Request { at: moment(at), verb, method: http::Method::GET, uri: String::new(), authorization: String::new(), body }
}

/// A hold that is answered at once.
fn written(at: u64, replica: &str) -> Exchange {
    let body = json!({ "spec": spec(at, replica) });
    let answer = Some(Answer { at: moment(at), status: 200, body: body.clone() });
    Exchange { request: request(at, Verb::Update, body), answer }
}

fn stored(at: u64, replica: &str, number: u64, spec: &Value) -> Record {
    let micros = i64::try_from(at * 1_000).expect("a time");
    Record {
        id: number.to_string(),
        user: format!("system:serviceaccount:default:{}", account(place_of(replica))),
        verb: "update".into(),
        status: 200,
        holder: None,
        base: None,
        asked: micros,
        answered: micros,
        stored: json!({ "metadata": { "resourceVersion": number.to_string(), "uid": "uid" }, "spec": spec }),
    }
}
