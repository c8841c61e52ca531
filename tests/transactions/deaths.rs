//! The driver is killed after each of its requests, and the next command of the same name finds its way.

use std::{fs, path::Path};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::Value;
use support::{
    Case, Exchange, Fault, Passage, Request, Stage, Times, Valve, cases, found,
    procfs::{children, command_line},
};

use super::{EXAMPLE, Shop, is_change, is_number, is_of_driver, journal_of, said, wanted};

pub(super) fn all() -> Vec<Case> {
    cases![
        a_driver_that_is_killed_after_any_request_is_undone_and_made_anew_by_the_same_file,
        a_recovery_that_is_killed_after_any_request_is_ended_by_another,
        a_write_that_arrives_after_the_next_driver_changes_nothing,
        a_signal_undoes_what_is_not_committed_and_comes_too_late_afterwards,
        a_limit_that_runs_out_undoes_what_is_not_committed_and_names_what_it_cannot_undo,
    ]
}

/// The driver that this `tenure lock` runs.
pub(super) async fn driver(lock: Pid) -> Pid {
    let is_driver = |pid: &Pid| command_line(*pid).iter().any(|word| ["apply", "recover", "promote"].contains(&&**word));
    found("a driver", async || children(lock).into_iter().find(is_driver)).await
}

/// Applies a file, and kills its driver while its change of such an object is under way; that arrives once the valve is open.
pub(super) async fn killed(shop: &Shop<'_>, file: impl AsRef<Path>, object: &'static str) -> Valve {
    let (valve, lock) = shop.halts(file, object).await;
    kill(driver(lock.pid).await, Signal::SIGKILL).expect("it lives");
    assert_eq!(lock.exit().await.0, 137);
    valve
}

/// Runs it, and kills its driver at the request of this number, with which the proxy does this; false if it ends before.
pub(super) async fn dies(shop: &Shop<'_>, line: &[&str], number: usize, fault: Fault) -> bool {
    let (sent, hidden) = (shop.exchanges().len(), fault.request.clone());
    shop.desk.proxy.on(is_number(number), Times::Only(1), fault);
    let lock = shop.desk.starts(line);
    let (pid, log) = (lock.pid, shop.desk.proxy.log.clone());
    let mut ended = Box::pin(lock.exit());
    let is_done = |e: &Exchange| is_of_driver(&e.request) && (e.answer.is_some() || !matches!(hidden, Passage::AtOnce));
    let died = tokio::select! {
        biased;
        (code, err) = &mut ended => {
            assert_eq!(code, 0, "{err}");
            false
        }
        _ = log.nth(sent + number - 1, "the last request", is_done) => true,
    };
    if died {
        kill(driver(pid).await, Signal::SIGKILL).expect("it lives");
        assert_eq!(ended.await.0, 137);
    }
    shop.desk.proxy.clear();
    died
}

/// Kills the driver of this line after each of its requests, each time in a new shop, as `begin` leaves it. Then `go_on` judges.
async fn everywhere(
    stage: &Stage,
    line: &[&str],
    begin: impl AsyncFn(&Shop<'_>),
    go_on: impl AsyncFn(&Shop<'_>, &[Value], usize),
) {
    let shop = Shop::open(stage).await;
    for number in 1.. {
        shop.stock().await;
        let before = shop.seen().await;
        begin(&shop).await;
        let died = dies(&shop, line, number, Fault::lost_reply()).await;
        go_on(&shop, &before, number).await;
        assert!(is_clean(&shop.seen().await), "a mark is left after {number}");
        if !died {
            assert!(number > 9, "only {number} requests");
            return;
        }
    }
}

const APPLY: [&str; 3] = ["apply", "-f", EXAMPLE];

async fn a_driver_that_is_killed_after_any_request_is_undone_and_made_anew_by_the_same_file(stage: Stage) {
    everywhere(
        &stage,
        &APPLY,
        async |_| {},
        async |shop, before, number| {
            said(&shop.apply(EXAMPLE, &[]).await, 0, &[]);
            assert_eq!(shop.seen().await, wanted(before.to_vec()), "killed after {number}");
            said(&shop.recover(&["apply", "release-2"]).await, 0, &[]);
            assert_eq!(shop.seen().await, before, "killed after {number}");
        },
    )
    .await;
}

async fn a_recovery_that_is_killed_after_any_request_is_ended_by_another(stage: Stage) {
    everywhere(
        &stage,
        &["recover", "apply", "release-2"],
        async |shop| said(&shop.apply(EXAMPLE, &[]).await, 0, &[]),
        async |shop, before, number| {
            said(&shop.recover(&["apply", "release-2"]).await, 0, &[]);
            assert_eq!(shop.seen().await, before, "killed after {number}");
        },
    )
    .await;
}

async fn a_write_that_arrives_after_the_next_driver_changes_nothing(stage: Stage) {
    let shop = Shop::open(&stage).await;
    for number in 1.. {
        shop.stock().await;
        let (before, sent) = (shop.seen().await, shop.exchanges().len());
        let valve = Valve::closed();
        let died = dies(&shop, &APPLY, number, Fault::late_request(&valve)).await;
        said(&shop.recover(&["apply", "release-2"]).await, 0, &[]);
        valve.open();
        let late = shop.desk.proxy.log.nth(sent + number - 1, "the late request", |e| is_of_driver(&e.request)).await;
        let is_late = |e: &Exchange| e.request.at == late.request.at && e.answer.is_some();
        let late = shop.desk.proxy.log.first("its answer", is_late).await;
        assert_eq!(shop.seen().await, before, "{number}: {late:?}");
        if !died {
            return;
        }
    }
}

async fn a_signal_undoes_what_is_not_committed_and_comes_too_late_afterwards(stage: Stage) {
    let shop = Shop::open(&stage).await;
    let is_before = |request: &Request| is_change(request) && request.uri.contains("/deployments/");
    let is_commit = |request: &Request| {
        let text = journal_of(&request.body);
        is_of_driver(request) && text.contains(r#""phase":"committed""#)
    };
    let (stopped, late) = ("stopped by a signal", "the signal came too late");
    for (signal, expected, words) in [(Signal::SIGTERM, 1, stopped), (Signal::SIGINT, 1, stopped), (Signal::SIGTERM, 0, late)] {
        let is_it = move |request: &Request| if expected == 0 { is_commit(request) } else { is_before(request) };
        shop.stock().await;
        let before = shop.seen().await;
        let valve = Valve::closed();
        shop.desk.proxy.on(is_it, Times::Only(1), Fault::late_reply(&valve));
        let sent = shop.exchanges().len();
        let lock = shop.desk.starts(&APPLY);
        let log = &shop.desk.proxy.log;
        let changed = |e: &Exchange| is_it(&e.request) && e.answer.is_some();
        let count = shop.exchanges()[..sent].iter().filter(|e| changed(e)).count();
        log.nth(count, "a change", changed).await;

        kill(driver(lock.pid).await, signal).expect("it lives");
        // The signal has arrived before the answer: both are events of one runtime, which looks at signals first.
        valve.open();

        let (code, err) = lock.exit().await;
        assert_eq!(code, expected, "{err}");
        assert!(err.contains(words), "{err}");
        assert_eq!(shop.seen().await, if code == 0 { wanted(before) } else { before });
        shop.desk.proxy.clear();
    }
}

async fn a_limit_that_runs_out_undoes_what_is_not_committed_and_names_what_it_cannot_undo(stage: Stage) {
    let shop = Shop::open(&stage).await;
    let before = shop.seen().await;
    let is_it = |request: &Request| is_change(request) && request.uri.contains("/deployments/");
    let is_forward = move |request: &Request| is_it(request) && request.body["spec"].is_object();
    let busy = || Fault::refused(503, "ServiceUnavailable");
    shop.desk.proxy.on(is_forward, Times::Always, busy());
    // The undo has a limit of its own, and is tried again.
    let is_back = |request: &Request| {
        is_change(request) && request.body["metadata"]["annotations"].get("tenure.dev/change") == Some(&Value::Null)
    };
    shop.desk.proxy.on(is_back, Times::Only(1), busy());

    let example = fs::read_to_string(EXAMPLE).expect("an example");
    let within = |timeout: &str| {
        let text = example.replace("lockTimeout: 1m", &format!("lockTimeout: 1m\n  timeout: {timeout}"));
        shop.file(&format!("{timeout}.yaml"), &text)
    };

    said(&shop.apply(within("2s"), &[]).await, 1, &["/settings: undone", "undone: "]);

    assert_eq!(shop.seen().await, before, "and no mark is left");
    assert_eq!(shop.journal("release-2").await.expect("a journal")["phase"], "undone");

    shop.desk.proxy.on(is_it, Times::Always, busy());
    said(&shop.apply(within("9h"), &["--limit", "5s"]).await, 2, &["not undone in full; ", "; Deployment "]);

    assert_eq!(shop.journal("release-2").await.expect("a journal")["phase"], "undoing");
    shop.desk.proxy.clear();
    said(&shop.recover(&["apply", "release-2"]).await, 0, &[]);
    assert_eq!(shop.seen().await, before, "and no mark is left");
}

/// Tells whether no object bears a mark.
fn is_clean(seen: &[Value]) -> bool {
    seen.iter().all(|object| object["metadata"]["annotations"]["tenure.dev/change"].is_null())
}
