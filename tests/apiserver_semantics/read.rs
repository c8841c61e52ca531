//! GET and LIST, and whatever else clients read.

use std::process::Command;

use http::Method;
use serde_json::{Value, json};

use super::hand::{lease, number, plain, version, with};
use crate::support::{
    api,
    case::{Case, cases},
    stage::Stage,
};

pub(crate) fn cases() -> Vec<Case> {
    cases![
        a_lease_reads_as_it_was_written,
        a_version_ahead_of_the_server_is_too_large,
        a_version_that_is_no_number_is_refused,
        a_list_has_a_version_of_its_own_and_items_without_type,
        a_list_is_in_the_order_of_names,
        a_list_of_an_unknown_namespace_is_empty,
        a_list_comes_in_pages_of_one_version,
        a_page_of_any_version_is_the_whole_list,
        an_exact_version_is_what_was_there_then,
        what_continues_no_list_is_a_bad_request,
        a_continuation_takes_no_version,
        numbers_are_numbers,
        false_is_false_in_any_case,
        labels_and_fields_select,
        labels_compare_as_numbers,
        what_is_no_selector_is_a_bad_request,
        options_that_do_not_go_together_are_invalid,
        paths_and_methods_that_do_not_exist,
        groups_and_resources_are_found,
        access_is_reviewed,
        what_is_no_review_is_refused,
        strangers_are_answered_before_their_bodies_arrive,
        a_wrong_token_is_worse_than_none,
        paths_may_end_in_a_slash,
        a_plus_sign_in_a_path_is_no_blank,
        health_answers_every_method,
    ]
}

async fn a_lease_reads_as_it_was_written(stage: Stage) {
    let object = stage.given("a", json!({ "holderIdentity": "x" })).await;

    let latest = stage.get("a").await.ok();
    let at = |version: &str| format!("{}?resourceVersion={version}", stage.at("a"));
    // Only this request waits for the server's cache, which answers it and the next one.
    let as_new = stage.request(Method::GET, &at(version(&object)), None).await.ok();
    let any = stage.request(Method::GET, &at("0"), None).await.ok();

    assert_eq!(plain(latest), plain(object.clone()));
    assert_eq!(plain(as_new), plain(object.clone()));
    assert_eq!(plain(any), plain(object));
}

async fn a_version_ahead_of_the_server_is_too_large(stage: Stage) {
    stage.given("a", json!({})).await;
    for path in [stage.at("a"), stage.lease.collection()] {
        let answer = stage.request(Method::GET, &format!("{path}?resourceVersion=99999999"), None).await;

        let message = answer.refused(504, "Timeout");
        assert!(message.starts_with("Timeout: Too large resource version: 99999999, current: "), "{message}");
        assert_eq!(answer.body["details"]["causes"][0]["reason"], "ResourceVersionTooLarge");
        assert_eq!(answer.retry_after.as_deref(), Some("1"));
    }
}

async fn a_version_that_is_no_number_is_refused(stage: Stage) {
    stage.given("a", json!({})).await;

    let get = stage.request(Method::GET, &format!("{}?resourceVersion=x", stage.at("a")), None).await;
    let list = stage.list("resourceVersion=x").await;

    let why = "resourceVersion: Invalid value: \"x\": strconv.ParseUint: parsing \"x\": invalid syntax";
    assert_eq!(get.refused(500, ""), why);
    assert_eq!(list.refused(400, "BadRequest"), format!("invalid resource version: {why}"));
}

async fn a_list_has_a_version_of_its_own_and_items_without_type(stage: Stage) {
    let object = stage.given("a", json!({ "holderIdentity": "x" })).await;

    let list = stage.list("").await.ok();

    assert_eq!(list["kind"], "LeaseList");
    assert_eq!(list["apiVersion"], "coordination.k8s.io/v1");
    assert!(number(&list) >= number(&object));
    let item = &list["items"][0];
    assert_eq!((&item["kind"], &item["apiVersion"]), (&Value::Null, &Value::Null));
    assert_eq!(item["spec"], object["spec"]);
    assert_eq!(version(item), version(&object));
}

async fn a_list_is_in_the_order_of_names(stage: Stage) {
    for name in ["c", "a", "b"] {
        stage.given(name, json!({})).await;
    }

    assert_eq!(names(&stage.list("").await.ok()), ["a", "b", "c"]);
}

async fn a_list_of_an_unknown_namespace_is_empty(stage: Stage) {
    let path = "/apis/coordination.k8s.io/v1/namespaces/there-is-none/leases";

    let list = stage.request(Method::GET, path, None).await.ok();

    assert_eq!(list["items"], json!([]));
}

async fn a_list_comes_in_pages_of_one_version(stage: Stage) {
    for name in ["a", "b", "c", "d"] {
        stage.given(name, json!({})).await;
    }

    let first = stage.list("limit=2").await.ok();
    stage.delete("c", None).await.ok();
    stage.given("e", json!({})).await;
    let token = first["metadata"]["continue"].as_str().expect("a continuation");
    let second = stage.list(&format!("limit=1&continue={token}")).await.ok();
    let rest = stage.list(&format!("continue={token}")).await.ok();
    let selected = stage.list("limit=1&labelSelector=!app").await.ok();
    let large = stage.list("limit=100").await.ok();

    assert_eq!((names(&first), &first["metadata"]["remainingItemCount"]), (vec!["a", "b"], &json!(2)));
    assert_eq!((names(&second), &second["metadata"]["remainingItemCount"]), (vec!["c"], &json!(1)));
    assert_eq!((names(&rest), &rest["metadata"]["continue"]), (vec!["c", "d"], &Value::Null));
    assert_eq!((version(&second), version(&rest)), (version(&first), version(&first)));
    assert!(selected["metadata"]["continue"].is_string());
    assert_eq!((names(&selected), &selected["metadata"]["remainingItemCount"]), (vec!["a"], &Value::Null));
    assert_eq!((names(&large), &large["metadata"]["continue"]), (vec!["a", "b", "d", "e"], &Value::Null));
}

async fn a_page_of_any_version_is_the_whole_list(stage: Stage) {
    stage.given("a", json!({})).await;
    let last = stage.given("b", json!({})).await;
    // This waits for the server's cache, which answers the next one.
    stage.list(&format!("resourceVersion={}&resourceVersionMatch=NotOlderThan", version(&last))).await.ok();

    let list = stage.list("limit=1&resourceVersion=0").await.ok();

    assert_eq!((names(&list), &list["metadata"]["continue"]), (vec!["a", "b"], &Value::Null));
}

async fn an_exact_version_is_what_was_there_then(stage: Stage) {
    let object = stage.given("a", json!({ "holderIdentity": "x" })).await;
    stage.given("b", json!({})).await;
    stage.delete("a", None).await.ok();

    let exact = stage.list(&format!("resourceVersion={}&resourceVersionMatch=Exact", version(&object))).await.ok();
    let limited = stage.list(&format!("resourceVersion={}&limit=5", version(&object))).await.ok();

    for list in [exact, limited] {
        assert_eq!((names(&list), version(&list)), (vec!["a"], version(&object)));
        assert_eq!(list["items"][0]["spec"], object["spec"]);
    }
}

async fn what_continues_no_list_is_a_bad_request(stage: Stage) {
    for (token, wrong) in [
        ("%21", "continue key is not valid: "),
        ("abc", "continue key is not valid: "),
        (
            "eyJ2IjoibWV0YS5rOHMuaW8vdjIiLCJydiI6Miwic3RhcnQiOiIvYSJ9",
            "continue key is not valid: server does not recognize this encoded version meta.k8s.io/v2",
        ),
        (
            "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MCwic3RhcnQiOiIvYSJ9",
            "continue key is not valid: incorrect encoded start resourceVersion (version meta.k8s.io/v1)",
        ),
        (
            "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MzgwLCJzdGFydCI6IiJ9",
            "continue key is not valid: encoded start key empty (version meta.k8s.io/v1)",
        ),
    ] {
        let message = stage.list(&format!("continue={token}")).await.refused(400, "BadRequest");

        assert!(message.starts_with(&format!("invalid continue token: {wrong}")), "{message}");
    }
}

async fn a_continuation_takes_no_version(stage: Stage) {
    stage.given("a", json!({})).await;
    stage.given("b", json!({})).await;
    let first = stage.list("limit=1").await.ok();
    let token = first["metadata"]["continue"].as_str().expect("a continuation");

    let any = stage.list(&format!("continue={token}&resourceVersion=0")).await.ok();
    let one = stage.list(&format!("continue={token}&resourceVersion=5")).await;
    let exact = stage.list(&format!("continue={token}&resourceVersion=5&resourceVersionMatch=Exact")).await;

    assert_eq!(names(&any), ["b"]);
    assert_eq!(one.refused(400, "BadRequest"), "specifying resource version is not allowed when using continue");
    let rule = "Forbidden: resourceVersionMatch is forbidden when continue is provided";
    assert_eq!(exact.invalid(), ("resourceVersionMatch".into(), rule.into()));
}

async fn numbers_are_numbers(stage: Stage) {
    for (query, text, why) in [
        ("limit=x", "x", "invalid syntax"),
        ("limit=", "", "invalid syntax"),
        ("limit=9223372036854775808", "9223372036854775808", "value out of range"),
        ("timeoutSeconds=x", "x", "invalid syntax"),
        ("watch=true&timeoutSeconds=x", "x", "invalid syntax"),
        ("watch=true&limit=x", "x", "invalid syntax"),
    ] {
        let message = stage.list(query).await.refused(400, "BadRequest");

        assert_eq!(message, format!("strconv.ParseInt: parsing {text:?}: {why}"), "{query}");
    }
    for query in ["limit=0", "limit=-1", "timeoutSeconds=-1"] {
        stage.list(query).await.ok();
    }
}

async fn false_is_false_in_any_case(stage: Stage) {
    for no in ["FALSE", "False", "0"] {
        assert_eq!(stage.list(&format!("watch={no}")).await.ok()["kind"], "LeaseList");
    }
}

async fn labels_and_fields_select(stage: Stage) {
    stage.post(&with(lease("a", json!({})), "labels", json!({ "app": "x", "tier": "1" }))).await.created();
    stage.post(&with(lease("b", json!({})), "labels", json!({ "app": "y" }))).await.created();
    stage.given("c", json!({})).await;
    for (query, expected) in [
        ("labelSelector=app%3Dx", vec!["a"]),
        ("labelSelector=app", vec!["a", "b"]),
        ("labelSelector=!app", vec!["c"]),
        ("labelSelector=app!%3Dx", vec!["b", "c"]),
        ("labelSelector=app+in+(x,y),tier", vec!["a"]),
        ("labelSelector=app+notin+(x)", vec!["b", "c"]),
        ("fieldSelector=metadata.name%3Db", vec!["b"]),
        ("fieldSelector=metadata.name!%3Db", vec!["a", "c"]),
        ("fieldSelector=metadata.name%3Da&labelSelector=app%3Dy", vec![]),
        ("labelSelector=&fieldSelector=", vec!["a", "b", "c"]),
        ("labelSelector=app+in+(,y)", vec!["b"]),
        ("labelSelector=app+notin+()", vec!["a", "b", "c"]),
        ("labelSelector=app%3D", vec![]),
        ("labelSelector=in", vec![]),
        ("fieldSelector=,metadata.name%3D%3Da,", vec!["a"]),
        ("fieldSelector=metadata.name%3Da%5C,b", vec![]),
    ] {
        assert_eq!(names(&stage.list(query).await.ok()), expected, "{query}");
    }
    let everywhere = "/apis/coordination.k8s.io/v1/leases?labelSelector=tier%3D1&fieldSelector=metadata.namespace%3D";
    let list = stage.request(Method::GET, &format!("{everywhere}{}", stage.namespace), None).await.ok();
    assert_eq!(names(&list), ["a"]);
}

async fn labels_compare_as_numbers(stage: Stage) {
    for (name, rank) in [("a", "5"), ("b", "10"), ("c", "x")] {
        stage.post(&with(lease(name, json!({})), "labels", json!({ "rank": rank }))).await.created();
    }
    for (selector, expected) in [("rank%3E5", vec!["b"]), ("rank+%3C+10", vec!["a"]), ("rank%3E4,rank%3C11", vec!["a", "b"])] {
        assert_eq!(names(&stage.list(&format!("labelSelector={selector}")).await.ok()), expected, "{selector}");
    }
}

async fn what_is_no_selector_is_a_bad_request(stage: Stage) {
    for (query, wrong) in [
        ("labelSelector=a+b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"),
        ("labelSelector=a%3D%3D%3Db", "unable to parse requirement: found '=', expected: identifier"),
        ("labelSelector=a%3Dx,", "found '', expected: identifier after ','"),
        ("labelSelector=,", "found ',', expected: !, identifier, or 'end of string'"),
        ("labelSelector=a,,b", "found ',', expected: identifier after ','"),
        ("labelSelector=!a+b", "found 'b', expected: ',' or 'end of string'"),
        ("labelSelector=!", "unable to parse requirement: found '', expected: identifier"),
        (
            "labelSelector=a%3E1.5",
            "unable to parse requirement: values[0]: Invalid value: \"1.5\": for 'Gt', 'Lt' operators, the value must be an integer",
        ),
        ("labelSelector=a+in+x", "unable to parse requirement: found 'x' expected: '('"),
        ("labelSelector=a+in+(x", "unable to parse requirement: found '', expected: ',' or ')'"),
        ("labelSelector=a+within+(b)", "unable to parse requirement: found 'within', expected: in, notin, =, ==, !=, gt, lt"),
        ("labelSelector=-a", "unable to parse requirement: <nil>: Invalid value: \"-a\": name part must consist of"),
        ("labelSelector=a+in+(b,-)", "unable to parse requirement: values[0][a]: Invalid value: \"-\": a valid label must be"),
        ("fieldSelector=a", "invalid selector: 'a'; can't understand 'a'"),
        (
            "fieldSelector=spec.holderIdentity%3Dx",
            "\"spec.holderIdentity\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"",
        ),
        ("fieldSelector=metadata.name%3Da%5Cxb", "invalid field selector: invalid escape sequence: \\x"),
        ("fieldSelector=metadata.name%3Da%3Db", "invalid field selector: unescaped character in value: 61"),
    ] {
        let message = stage.list(query).await.refused(400, "BadRequest");

        assert!(message.starts_with(wrong), "{query}: {message}");
    }
}

async fn options_that_do_not_go_together_are_invalid(stage: Stage) {
    for query in [
        "resourceVersionMatch=Exact",
        "resourceVersion=0&resourceVersionMatch=Exact",
        "sendInitialEvents=true",
        "watch=true&sendInitialEvents=true",
        "watch=true&resourceVersion=1&resourceVersionMatch=NotOlderThan",
    ] {
        let answer = stage.list(query).await;

        answer.refused(422, "Invalid");
        assert_eq!(answer.body["details"]["kind"], "ListOptions", "{query}");
    }
}

async fn paths_and_methods_that_do_not_exist(stage: Stage) {
    stage.given("a", json!({})).await;

    let sub = stage.request(Method::GET, &format!("{}/status", stage.at("a")), None).await;
    let kind = stage.request(Method::GET, "/apis/coordination.k8s.io/v1/things", None).await;
    let group = stage.request(Method::GET, "/apis/example.com/v1/things", None).await;
    let post = stage.request(Method::POST, &stage.at("a"), Some(&lease("a", json!({})))).await;
    let put = stage.request(Method::PUT, &stage.lease.collection(), Some(&lease("a", json!({})))).await;

    sub.refused(404, "NotFound");
    kind.refused(404, "NotFound");
    assert_eq!((group.code, &group.body), (404, &Value::Null));
    post.refused(405, "MethodNotAllowed");
    put.refused(405, "MethodNotAllowed");
}

async fn groups_and_resources_are_found(stage: Stage) {
    let groups = stage.request(Method::GET, "/apis", None).await.ok();
    let resources = stage.request(Method::GET, "/apis/coordination.k8s.io/v1", None).await.ok();
    let release = stage.request(Method::GET, "/version", None).await.ok();

    let named = |list: &Value, name: &str| list.as_array().expect("a list").iter().any(|item| item["name"] == name);
    assert!(named(&groups["groups"], "coordination.k8s.io"));
    assert!(named(&resources["resources"], "leases"));
    assert_eq!(release["major"], "1");
}

async fn access_is_reviewed(stage: Stage) {
    let attributes = json!({
        "namespace": stage.namespace, "verb": "update", "group": "coordination.k8s.io", "resource": "leases", "name": "a",
    });
    let review = json!({
        "kind": "SelfSubjectAccessReview",
        "apiVersion": "authorization.k8s.io/v1",
        "spec": { "resourceAttributes": attributes },
    });

    let answer = stage.request(Method::POST, "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", Some(&review)).await;

    let answer = answer.created();
    assert_eq!(answer["status"]["allowed"], true);
    assert_eq!(answer["spec"]["resourceAttributes"]["verb"], "update");
}

async fn what_is_no_review_is_refused(stage: Stage) {
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let review = |body: &str| stage.send(Method::POST, path, "application/json", body.to_owned());

    let empty = review("{}").await;
    let both = review(r#"{"spec":{"resourceAttributes":{},"nonResourceAttributes":{}}}"#).await;

    let rule = "Invalid value: null: exactly one of nonResourceAttributes or resourceAttributes must be specified";
    assert_eq!(empty.invalid(), ("spec.resourceAttributes".into(), rule.into()));
    let message = empty.refused(422, "Invalid");
    assert_eq!(message, format!(".authorization.k8s.io \"\" is invalid: spec.resourceAttributes: {rule}"));
    assert_eq!(both.invalid().0, "spec.nonResourceAttributes");
    for body in ["", "[]", r#"{"spec":5}"#, r#"{"kind":"Pod","apiVersion":"v1"}"#] {
        review(body).await.refused(400, "BadRequest");
    }
}

async fn strangers_are_answered_before_their_bodies_arrive(stage: Stage) {
    let server = api::config(stage.kubeconfig()).await.cluster_url;
    let url = format!("{}{}", server.to_string().trim_end_matches('/'), stage.lease.collection());

    // The body is never sent.
    let output = Command::new("curl")
        .args(["-ksS", "--http1.1", "-m", "20", "-o", "/dev/null", "-w", "%{http_code}", "-X", "POST"])
        .args(["-H", "Authorization: Bearer nobodys", "-H", "Content-Length: 3000000", &url])
        .output()
        .expect("curl");

    assert_eq!(String::from_utf8_lossy(&output.stdout), "401", "{output:?}");
}

async fn paths_may_end_in_a_slash(stage: Stage) {
    stage.given("a", json!({})).await;

    let lease = stage.request(Method::GET, &format!("{}/", stage.at("a")), None).await.ok();
    let list = stage.request(Method::GET, &format!("{}/", stage.lease.collection()), None).await.ok();
    let group = stage.request(Method::GET, "/apis/coordination.k8s.io/", None).await.ok();
    let root = stage.request(Method::GET, "/", None).await.ok();

    assert_eq!(lease["metadata"]["name"], "a");
    assert_eq!(names(&list), ["a"]);
    assert_eq!(group["kind"], "APIGroup");
    assert!(root["paths"].as_array().expect("paths").iter().any(|path| path == "/apis/coordination.k8s.io/v1"));
}

async fn a_plus_sign_in_a_path_is_no_blank(stage: Stage) {
    for (segment, name) in [("a+b", "a+b"), ("a%2Bb", "a+b"), ("a%20b", "a b")] {
        let message = stage.get(segment).await.refused(404, "NotFound");

        assert_eq!(message, format!("leases.coordination.k8s.io {name:?} not found"), "{segment}");
    }
}

async fn health_answers_every_method(stage: Stage) {
    for method in [Method::GET, Method::HEAD, Method::POST] {
        // A real server may not be healthy yet just after its start.
        assert_ne!(stage.request(method, "/livez", None).await.code, 405);
    }
}

fn names(list: &Value) -> Vec<&str> {
    let items = list["items"].as_array().expect("items");
    items.iter().map(|item| item["metadata"]["name"].as_str().expect("a name")).collect()
}

async fn a_wrong_token_is_worse_than_none(stage: Stage) {
    let server = api::config(stage.kubeconfig()).await.cluster_url;
    for path in ["version", "healthz", "livez", "readyz"] {
        for (credentials, is_refused) in [
            ("", false),
            ("Authorization: Bearer nobodys", true),
            ("Authorization: Basic eDp5", false),
            ("Authorization: Bearer", false),
            ("Authorization: Bearer  nobodys", false),
        ] {
            let output = Command::new("curl")
                .args([
                    "-ksS",
                    "-m",
                    "20",
                    "-o",
                    "/dev/null",
                    "-w",
                    "%{http_code}",
                    "-H",
                    credentials,
                    &format!("{server}{path}"),
                ])
                .output()
                .expect("curl");

            // A real server may not be healthy yet just after its start.
            assert_eq!(output.stdout == b"401", is_refused, "{path}, {credentials}: {output:?}");
        }
    }
}
