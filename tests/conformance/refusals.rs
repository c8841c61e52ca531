//! Cases 41 to 46: what a server refuses or gets wrong, during a term and before one.

use std::{collections::BTreeSet, net::Ipv4Addr, time::Duration};

use nix::sys::signal::{Signal, kill};
use serde_json::json;
use support::{
    Canned, Case, Exchange, Fault, LEASE, Prepared, Replica, Request, Stage, Times, Verb, Verbs, cases,
    spec::{UNHURRIED, held, released},
    until,
};
use tenure::clock;

use super::{assert_stopped_at_s, counts_from, is_renewal, said};

pub fn all() -> Vec<Case> {
    cases![
        case_41_retry_after_never_sleeps_past_the_soft_deadline,
        case_42_passing_failures_are_retried_until_the_soft_deadline,
        case_44_a_403_while_leading_passes,
        case_44_a_403_at_the_start_is_said_once,
        a_replica_that_may_not_update_the_lease_is_not_ready_until_it_may,
        a_standby_is_ready_again_once_an_update_that_was_refused_is_allowed,
        case_45_no_such_api_is_said_and_retried,
        case_45_no_such_namespace_is_said_and_retried,
        case_46_a_refused_write_is_not_repeated_as_it_was,
        case_44_a_401_reads_the_token_again,
        case_44_a_401_after_its_pod_was_deleted_by_force_is_said_once,
    ]
}

async fn case_41_retry_after_never_sleeps_past_the_soft_deadline(stage: Stage) {
    let (me, _) = stage.lead(stage.prepare("me").await.unhurried()).await;
    me.proxy.log.nth(2, "renewals", |e| e.request.is_held() && e.succeeded()).await;
    for seconds in [1, 30, 120] {
        let before = clock::boot();
        let busy = Canned { status: 429, headers: vec![("retry-after", seconds.to_string())], ..Canned::default() };
        me.proxy.on(is_renewal, Times::Only(1), Fault::answered(busy));
        let refused = me.proxy.log.first("a refusal", |e| e.request.at > before && e.request.is_held()).await;
        let next = me.proxy.log.first("the next attempt", |e| e.request.at > refused.request.at && e.request.is_held()).await;
        let asked_for = refused.request.at + Duration::from_secs(seconds);
        let fits = UNHURRIED.soft(counts_from(&me, refused.request.at)).before(Duration::from_secs(5));
        assert!(next.request.at >= asked_for.min(fits), "{:?} after {seconds}", next.request.at.since(refused.request.at));
    }
    me.proxy.log.nth(8, "renewals", |e| e.request.is_held() && e.succeeded()).await;

    assert_eq!(stage.witness.all().len(), 1, "the workload noticed nothing");
    let writes = me.proxy.log.writes();
    for refused in writes.windows(2).filter(|pair| pair[0].answer.is_none()) {
        assert!(refused[1].request.at.since(refused[0].request.at) >= Duration::from_millis(500));
    }
}

async fn case_42_passing_failures_are_retried_until_the_soft_deadline(stage: Stage) {
    let (me, _) = stage.lead(stage.prepare("me").await.unhurried()).await;
    let garbage = || Fault::answered(Canned { status: 200, body: "<html>".to_owned(), ..Canned::default() });
    let faults = [
        Fault::refused(500, "InternalError"),
        Fault::refused(502, "BadGateway"),
        Fault::refused(503, "ServiceUnavailable"),
        Fault::committed_but(504, "Timeout"),
        Fault::hung_up(),
        Fault::truncated(),
        garbage(),
    ];
    for fault in faults {
        let before = clock::boot();
        me.proxy.on(is_renewal, Times::Only(1), fault);
        let passed = |e: &Exchange| e.request.at > before && e.request.is_held();
        me.proxy.log.first("the failure", passed).await;
        me.proxy.log.nth(1, "a renewal after it", passed).await;
    }
    me.proxy.break_tls(true);
    me.proxy.reset();
    let (connections, before) = (me.proxy.connections(), clock::boot());
    me.proxy.connected(connections + 1).await;
    me.proxy.break_tls(false);
    me.proxy.log.first("a renewal after it", |e| e.request.at > before && e.request.is_held() && e.succeeded()).await;
    assert_eq!(stage.witness.all().len(), 1, "the workload noticed nothing");

    me.proxy.refuse().await;
    let refused = clock::boot();
    let stop = stage.witness.signal("me", "SIGTERM").await;
    assert_stopped_at_s(UNHURRIED, &me, &stop, refused);
}

/// The token's Secret is deleted, and the server no longer knows the token.
async fn case_44_a_401_reads_the_token_again(stage: Stage) {
    let account = "rotated";
    stage.api.minimal_account(account, &stage.namespace, LEASE, &Verbs::default()).await;
    let old = stage.api.bound_token(account, &stage.namespace, "old").await;
    // A request that is not answered in time would make it read the token again before a refusal.
    let prepared = stage.prepare_at("me", old.clone(), Ipv4Addr::LOCALHOST).await.unhurried();
    let (me, _) = stage.lead(prepared).await;
    let new = stage.api.bound_token(account, &stage.namespace, "new").await;
    std::fs::write(stage.token_file("me"), &new).expect("the token file");

    stage.api.withdraw_token(&stage.namespace, "secrets/old").await;

    let refused = me.proxy.log.first("a 401", |e| e.answer.as_ref().is_some_and(|answer| answer.status == 401)).await;
    assert_eq!(refused.request.authorization, format!("Bearer {old}"));
    let with_new = |e: &Exchange| e.request.is_held() && e.succeeded() && e.request.authorization == format!("Bearer {new}");
    me.proxy.log.nth(2, "renewals with the new one", with_new).await;
    let with_old = |e: &Exchange| e.request.at > refused.request.at && e.request.authorization != format!("Bearer {new}");
    assert_eq!(me.proxy.log.count(with_old), 0, "one immediate retry, with the new one");
    assert_eq!(stage.witness.all().len(), 1, "the workload noticed nothing");
}

/// `kubectl delete pod --force`: the Pod object goes first, and with it the token, while the replica runs on.
async fn case_44_a_401_after_its_pod_was_deleted_by_force_is_said_once(stage: Stage) {
    let account = "forced";
    stage.api.minimal_account(account, &stage.namespace, LEASE, &Verbs::default()).await;
    let token = stage.api.token_of_a_pod(account, &stage.namespace, "me").await;
    let (me, _) = stage.lead(stage.prepare_at("me", token, Ipv4Addr::LOCALHOST).await.unhurried()).await;

    stage.api.withdraw_token(&stage.namespace, "pods/me").await;

    me.proxy.log.nth(2, "more than one 401", |e| e.answer.as_ref().is_some_and(|answer| answer.status == 401)).await;
    let words = "the pod was deleted by force";
    me.said(words).await;
    assert_eq!(me.lines().iter().filter(|line| line.contains(words)).count(), 1);
}

async fn case_44_a_403_while_leading_passes(stage: Stage) {
    let (me, _) = stage.lead(stage.prepare("me").await.unhurried()).await;
    me.proxy.on(is_renewal, Times::Only(2), Fault::refused(403, "Forbidden"));
    let since = clock::boot();

    me.proxy.log.nth(1, "renewals", |e| e.request.at > since && e.request.is_held() && e.succeeded()).await;

    assert_eq!(stage.witness.all().len(), 1, "the workload noticed nothing");
}

/// A replica whose requests of this kind are all refused like this for some seconds, which it reports once.
async fn refused_at_the_start(
    stage: &Stage,
    prepared: Prepared,
    what: fn(&Request) -> bool,
    fault: Fault,
    words: &str,
) -> Replica {
    prepared.proxy.on(what, Times::Always, fault);
    let me = prepared.unhurried().set("log.level", "info").start();
    me.proxy.log.nth(3, "several attempts", |e| what(&e.request)).await;
    me.said(words).await;
    assert_eq!(said(&me, words), 1, "{:#?}", me.lines());
    assert!(me.runs() && stage.witness.starts("me") == 0);
    me
}

async fn case_44_a_403_at_the_start_is_said_once(stage: Stage) {
    stage.lease.create(released()).await;
    let (address, _kept) = stage.free_address();
    let prepared = stage.prepare("me").await.set("http.listen", address.to_string());
    let me = refused_at_the_start(&stage, prepared, |_| true, Fault::refused(403, "Forbidden"), "answered 403").await;
    assert_eq!(stage.probe(address, "/readyz").await, 503);

    me.proxy.clear();

    stage.witness.start("me", 0).await;
}

async fn a_replica_that_may_not_update_the_lease_is_not_ready_until_it_may(stage: Stage) {
    stage.lease.create(held("another", 3600)).await;
    let (address, _kept) = stage.free_address();
    let prepared = stage.prepare_with("me", &Verbs::default().without("update")).await;
    let me = prepared.unhurried().set("log.level", "info").set("http.listen", address.to_string()).start();

    me.said(&format!("resourceNames: [{LEASE}], verbs: [get, watch, update]")).await;

    let page = stage.page(address, "/readyz").await;
    assert!(page.contains("503") && page.contains("this replica may not update the Lease"), "{page}");
    assert_eq!(stage.probe(address, "/livez").await, 200);
    kill(me.elector().await, Signal::SIGKILL).expect("the elector lives");
    until("its next elector asks too", async || said(&me, "not ready: this replica may not update") == 2).await;
    assert_eq!(stage.probe(address, "/readyz").await, 503);
    let rbac = format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{}", stage.namespace);
    let rule =
        json!({ "apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "resourceNames": [LEASE], "verbs": ["update"] });
    stage.api.create(&format!("{rbac}/roles"), &json!({ "metadata": { "name": "more" }, "rules": [rule] })).await;
    let binding = json!({
        "metadata": { "name": "more" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "more" },
        "subjects": [{ "kind": "Group", "name": "system:serviceaccounts", "apiGroup": "rbac.authorization.k8s.io" }],
    });
    stage.api.create(&format!("{rbac}/rolebindings"), &binding).await;
    me.said("may update its Lease now").await;
    assert_eq!(stage.probe(address, "/readyz").await, 200);
}

/// By then another leads, so that it writes nothing that would be allowed.
async fn a_standby_is_ready_again_once_an_update_that_was_refused_is_allowed(stage: Stage) {
    stage.lease.create(released()).await;
    let (address, _kept) = stage.free_address();
    let prepared = stage.prepare("me").await.set("http.listen", address.to_string());
    prepared.proxy.on(|request| request.verb == Verb::Update, Times::Always, Fault::refused(403, "Forbidden"));
    let me = prepared.unhurried().start();
    me.proxy.log.first("an acquisition", |e| e.request.is_held()).await;
    until("it is not ready", async || stage.page(address, "/readyz").await.contains("may not update the Lease")).await;
    stage.lease.set_spec(held("another", 3600)).await;

    me.proxy.clear();

    until("it is ready", async || stage.probe(address, "/readyz").await == 200).await;
    assert_eq!(me.proxy.log.count(|e| e.request.is_held() && e.succeeded()), 0);
}

async fn case_45_no_such_api_is_said_and_retried(stage: Stage) {
    let page = Canned { status: 404, body: "404 page not found".to_owned(), ..Canned::default() };
    stage.lease.create(released()).await;
    let prepared = stage.prepare("me").await;
    let me = refused_at_the_start(&stage, prepared, |_| true, Fault::answered(page), "answered 404").await;
    assert!(!me.proxy.log.all().iter().any(|e| e.request.is_write()), "that is no absent Lease");

    me.proxy.clear();

    stage.witness.start("me", 0).await;
}

async fn case_45_no_such_namespace_is_said_and_retried(stage: Stage) {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404,
        "message": "namespaces \"nowhere\" not found", "details": { "kind": "namespaces", "name": "nowhere" },
    });
    let missing = Canned { status: 404, body: status.to_string(), ..Canned::default() };
    let prepared = stage.prepare("me").await.set("lease.creationWait", "0s");
    let creations = |request: &Request| request.verb == Verb::Create;
    let me = refused_at_the_start(&stage, prepared, creations, Fault::answered(missing), "namespaces \"nowhere\"").await;

    me.proxy.clear();

    stage.witness.start("me", 0).await;
}

async fn case_46_a_refused_write_is_not_repeated_as_it_was(stage: Stage) {
    let (me, _) = stage.lead(stage.prepare("me").await.unhurried()).await;
    me.proxy.on(is_renewal, Times::Only(2), Fault::refused(422, "Invalid"));
    let since = clock::boot();

    me.proxy.log.nth(1, "renewals", |e| e.request.at > since && e.request.is_held() && e.succeeded()).await;

    let writes = me.proxy.log.writes();
    let distinct: BTreeSet<String> = writes.iter().map(|e| e.request.spec().to_string()).collect();
    assert_eq!(distinct.len(), writes.len());
    assert_eq!(stage.witness.all().len(), 1, "the workload noticed nothing");
}
