//! What the API server makes of input that no check of a file can judge.

use std::sync::Arc;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use http::Method;
use serde_json::{Value, json};
use support::{Case, Fault, Request, Stage, Times, cases, until};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
};
use tokio_rustls::TlsAcceptor;

use super::{EXAMPLE, Shop, change, edit, is_change, said, settings, wanted};

pub(super) fn all() -> Vec<Case> {
    cases![
        an_object_that_cannot_be_changed_or_kept_refuses_everything,
        a_journal_that_somebody_has_edited_is_refused_until_it_is_forgotten,
        what_somebody_writes_into_a_journal_is_refused_or_concerns_its_entry_only,
        a_creation_whose_defaults_no_journal_holds_is_refused_before_anything_is_made,
        a_namespace_of_what_has_none_and_a_required_text_of_a_secret_are_judged,
        a_webhook_or_a_server_that_answers_nonsense_changes_nothing_within_the_limit,
    ]
}

async fn an_object_that_cannot_be_changed_or_kept_refuses_everything(stage: Stage) {
    let shop = Shop::open(&stage).await;
    let before = shop.seen().await;
    let large = json!({ "a": "x".repeat(600_000) });
    for (name, data, is_immutable) in [("fixed", json!({ "a": "b" }), true), ("l1", large.clone(), false), ("l2", large, false)] {
        shop.make("configmaps", name, json!({ "data": data, "immutable": is_immutable })).await;
    }
    let fixed = change("v1 ConfigMap fixed", "type: Patch, content: {data: {a: c}}");
    let [l1, l2] = ["v1 ConfigMap l1", "v1 ConfigMap l2"].map(|large| change(large, "type: Delete"));
    for (changes, words) in [(&[settings(3), fixed][..], "immutable"), (&[settings(3), l1, l2], "more than 1000000: split it")] {
        said(&shop.apply(shop.changes(changes), &[]).await, 1, &[words]);
    }
    assert_eq!(shop.seen().await, before);
    assert!(!shop.exchanges().iter().any(|e| is_change(&e.request)), "nothing was ever changed");
}

async fn a_journal_that_somebody_has_edited_is_refused_until_it_is_forgotten(stage: Stage) {
    let shop = Shop::open(&stage).await;
    let before = shop.seen().await;
    let secrets = format!("/api/v1/namespaces/{}/secrets", stage.namespace);
    let path = format!("{secrets}/txn-release-2-journal");
    let foreign = json!({ "metadata": { "name": "txn-release-2-journal" }, "data": { "journal": "" } });
    assert_eq!(stage.api.call(Method::POST, &secrets, Some(&foreign)).await.0, 201);
    for line in [&["recover", "plan", "release-2"][..], &["recover", "forget", "release-2"], &["apply", "-f", EXAMPLE]] {
        said(&shop.desk.ends(line).await, 78, &["txn-release-2-journal is not of type tenure.dev/journal: delete it"]);
    }
    assert_eq!(stage.api.call(Method::GET, &path, None).await.1["data"], foreign["data"]);
    assert_eq!(stage.api.call(Method::DELETE, &path, None).await.0, 200);

    said(&shop.apply(EXAMPLE, &[]).await, 0, &[]);
    for text in [&b"{"[..], b"\xff", br#"{"version":1,"id":"x"}"#] {
        edit(&stage, &path, |secret| secret["data"] = json!({ "journal": BASE64_STANDARD.encode(text) })).await;

        for line in [&["recover", "plan", "release-2"][..], &["recover", "apply", "release-2"], &["apply", "-f", EXAMPLE]] {
            said(&shop.desk.ends(line).await, 78, &["the journal cannot be read", "`tenure recover forget --lease "]);
        }
        assert_eq!(shop.seen().await, wanted(before.clone()));
        said(&shop.recover(&["forget", "release-2"]).await, 0, &["forgotten: a journal that cannot be read"]);
        said(&shop.apply(EXAMPLE, &[]).await, 0, &["nothing to do"]);
    }
}

async fn what_somebody_writes_into_a_journal_is_refused_or_concerns_its_entry_only(stage: Stage) {
    let shop = Shop::open(&stage).await;
    let path = format!("/api/v1/namespaces/{}/secrets/txn-release-2-journal", stage.namespace);
    let unread = "the journal cannot be read";
    let known = json!({ "path": ["f:data", "f:version"], "after": "2.0", "known": u64::MAX });
    for (place, value, code, word) in [
        ("/claim", json!(u64::MAX), 78, unread),
        ("/entries/0/fields", json!([{ "path": [], "known": 0 }]), 78, unread),
        ("/entries/0/fields/0/path", json!(["data", "version"]), 78, unread),
        ("/entries/0/fields/0/before", json!({ "a": [5] }), 2, "ConfigMap"),
        ("/entries/0/managers", json!([5, "map[]", { "manager": {} }]), 0, "undone: 3 changes"),
        ("/entries/0/target/resource", json!("../x"), 2, "ConfigMap"),
        ("/entries/0/target/name", json!(""), 78, unread),
        ("/entries/0/fields/0", known, 0, "undone: 3 changes"),
        ("/entries/2/object", json!({ "metadata": "map[]", "data": 5 }), 2, "Secret"),
    ] {
        shop.stock().await;
        said(&shop.apply(EXAMPLE, &[]).await, 0, &["committed"]);
        let mut journal = shop.journal("release-2").await.expect("a journal");
        *journal.pointer_mut(place).expect(place) = value.clone();
        let journal = json!({ "journal": BASE64_STANDARD.encode(journal.to_string()) });
        edit(&stage, &path, |secret| secret["data"] = journal.clone()).await;

        let plan = shop.recover(&["plan", "release-2"]).await;
        let ended = shop.recover(&["apply", "release-2", "--limit", "5s"]).await;

        assert!([1, 78].contains(&plan.code) && !plan.err.contains("panicked"), "{place} {value}: {plan:?}");
        assert!(ended.code == code && ended.err.contains(word), "{place} {value}: {ended:?}");
        assert!(!ended.err.contains("panicked"), "{place} {value}: {ended:?}");
        if code == 2 {
            let seen = shop.seen().await;
            let others = if place.starts_with("/entries/0") { &seen[2] } else { &seen[0]["data"]["version"] };
            assert!(!others.is_null() && others != "2.0", "the others are put back: {place} {value}: {seen:?}");
        }
        said(&shop.recover(&["forget", "release-2"]).await, 0, &[]);
    }
}

async fn a_creation_whose_defaults_no_journal_holds_is_refused_before_anything_is_made(stage: Stage) {
    let shop = Shop::open(&stage).await;
    let container = |number: i32| json!({ "name": format!("c{number}"), "image": "i" });
    for name in ["l1", "l2"] {
        shop.make("configmaps", name, json!({ "data": { "a": "x".repeat(450_000) } })).await;
    }
    let containers: Vec<_> = (0..1_100).map(container).collect();
    let template = json!({ "metadata": { "labels": { "a": "b" } }, "spec": { "containers": containers } });
    let template = change("v1 PodTemplate t", &format!("type: Create, content: {{template: {template}}}"));
    let [l1, l2] = ["v1 ConfigMap l1", "v1 ConfigMap l2"].map(|large| change(large, "type: Delete"));

    let refused = shop.apply(shop.changes(&[template, l1, l2]), &[]).await;

    said(&refused, 1, &["more than 1000000: split it"]);
    assert!(!shop.exchanges().iter().any(|e| is_change(&e.request)), "nothing was ever changed");
}

async fn a_namespace_of_what_has_none_and_a_required_text_of_a_secret_are_judged(stage: Stage) {
    let shop = Shop::open(&stage).await;
    let labelled = "type: Create, content: {metadata: {labels: {a: b}}}".to_owned();
    let required =
        |text: &str| format!("type: Patch, content: {{stringData: {{a: b}}}}, require: {{stringData: {{key: {text}}}}}");
    for (target, how, code, words) in [
        ("v1 Namespace a, namespace: b", labelled, 78, "has no namespaces"),
        ("v1 Secret old-key", required("x"), 1, "is not as required: data.key"),
        ("v1 Secret old-key", required("sentinel-5a17"), 0, "committed"),
    ] {
        let ended = shop.apply(shop.changes(&[change(target, &how)]), &["-o", "name"]).await;
        said(&ended, code, &[words]);
        assert_eq!(ended.out, if code == 0 { "secret/old-key\n" } else { "" }, "names are those of what was touched");
    }
}

/// Answers what the API server asks of a webhook. Returns the URL, and the certificate that vouches for it.
async fn answering(answer: fn(&Value) -> String) -> (String, String) {
    let issued = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).expect("a certificate");
    let key = rustls::pki_types::PrivateKeyDer::try_from(issued.signing_key.serialize_der()).expect("a key");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().expect("TLS");
    let config = builder.with_no_client_auth().with_single_cert(vec![issued.cert.der().clone()], key).expect("a pair");
    let (tls, listener) = (TlsAcceptor::from(Arc::new(config)), TcpListener::bind("127.0.0.1:0").await.expect("a port"));
    let address = listener.local_addr().expect("an address");
    drop(tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(mut stream) = tls.accept(stream).await else { continue };
            let mut request = Vec::new();
            let asked = loop {
                let read = stream.read_buf(&mut request).await;
                let text = String::from_utf8_lossy(&request);
                let body = text.split_once("\r\n\r\n").and_then(|(_, body)| serde_json::from_str(body).ok());
                match (body, read) {
                    (Some(asked), _) => break asked,
                    (None, Ok(0) | Err(_)) => break Value::Null,
                    (None, Ok(_)) => {}
                }
            };
            let body = answer(&asked);
            let head = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length:";
            let _ = stream.write_all(format!("{head} {}\r\n\r\n{body}", body.len()).as_bytes()).await;
            let _ = stream.shutdown().await;
        }
    }));
    (format!("https://{address}/"), BASE64_STANDARD.encode(issued.cert.pem()))
}

/// Registers a webhook for the shop's Deployments. Returns the path of its configuration.
pub(super) async fn webhook(shop: &Shop<'_>, answer: fn(&Value) -> String) -> String {
    let (url, authority) = answering(answer).await;
    let hooks = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
    let (namespace, name) = (&shop.stage.namespace, format!("{}.webhook.example", shop.stage.namespace));
    let hook = json!({
        "name": name, "clientConfig": { "url": url, "caBundle": authority }, "sideEffects": "None", "admissionReviewVersions": ["v1"],
        "rules": [{ "operations": ["UPDATE"], "apiGroups": ["apps"], "apiVersions": ["v1"], "resources": ["deployments"] }],
        "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": namespace } },
    });
    shop.stage.api.create(hooks, &json!({ "metadata": { "name": name }, "webhooks": [hook] })).await;
    format!("{hooks}/{name}")
}

/// Waits until the API server asks the webhook, which refuses a Deployment of this form.
pub(super) async fn asks(shop: &Shop<'_>, refused: impl Fn(&mut Value)) {
    let path = format!("{}?dryRun=All", shop.objects[1]);
    until("the webhook is asked", async || {
        let (_, mut deployment) = shop.stage.api.call(Method::GET, &shop.objects[1], None).await;
        refused(&mut deployment);
        ![200, 409].contains(&shop.stage.api.call(Method::PUT, &path, Some(&deployment)).await.0)
    })
    .await;
}

async fn a_webhook_or_a_server_that_answers_nonsense_changes_nothing_within_the_limit(stage: Stage) {
    let shop = Shop::open(&stage).await;
    let before = shop.seen().await;
    let hook = webhook(&shop, |_| "nonsense".to_owned()).await;
    asks(&shop, |_| {}).await;

    said(&shop.apply(EXAMPLE, &["--limit", "4s"]).await, 69, &["no success within the limit", "failed calling webhook"]);
    stage.api.call(Method::DELETE, &hook, None).await;
    // As where a webhook is down that converts the object.
    let is_read = |request: &Request| request.method == Method::GET && request.uri.contains("/deployments/");
    shop.desk.proxy.on(is_read, Times::Always, Fault::refused(500, "InternalError"));

    said(&shop.apply(EXAMPLE, &["--limit", "1s"]).await, 69, &["no success within the limit", "InternalError"]);

    assert_eq!(shop.seen().await, before);
    assert!(!shop.exchanges().iter().any(|e| is_change(&e.request)), "nothing was ever changed");
}
