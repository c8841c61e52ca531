//! The shortest time that a handover can take on this machine.
//!
//! One client does the four steps of a handover on an idle machine, after a rest as long as that of the replicas.

use std::process::{Command, Stdio};

use http::{Method, Request};
use http_body_util::BodyExt as _;
use kube::client::Body;
use serde_json::{Value, json};
use support::{Server, Stage, server::scratch};
use tenure::clock;

use crate::{
    handover::settle,
    table::{Gap, gap, quantile, row},
};

/// Measures a write that releases, its watch event, a write that acquires, and a program that starts and exits. Returns the median.
pub async fn show(server: &Server, rounds: usize) -> Gap {
    let stage = Stage::set(server, &scratch("figures")).await;
    let mut lease = stage.lease.create(json!({})).await;
    let request = Request::get(format!("{}?watch=true", stage.lease.collection())).body(Body::empty()).expect("a request");
    let mut events = stage.api.client().send(request).await.expect("a watch").into_body();
    events.frame().await.expect("the Lease").expect("an event");
    let mut figures = Vec::new();
    for _ in 0..rounds {
        settle().await;
        let began = clock::boot();
        lease = put(&stage, lease, json!({ "holderIdentity": "", "leaseDurationSeconds": 1 })).await;
        events.frame().await.expect("the release").expect("an event");
        lease = put(&stage, lease, json!({ "holderIdentity": "b", "leaseDurationSeconds": 15 })).await;
        let ended = Command::new("true").stdin(Stdio::null()).status().expect("a program");
        figures.push(gap(began, clock::boot()));
        assert!(ended.success());
        events.frame().await.expect("the acquisition").expect("an event");
    }
    row("its four steps alone", &figures);
    quantile(&figures, 0.5)
}

async fn put(stage: &Stage, mut lease: Value, spec: Value) -> Value {
    lease["spec"] = spec;
    let (status, lease) = stage.api.call(Method::PUT, &stage.lease.path(), Some(&lease)).await;
    assert_eq!(status, 200, "{lease}");
    lease
}
