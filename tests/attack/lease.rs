//! Changes the Lease as an administrator does, while the API server may be in trouble.
//! Changes that cannot be made in time are skipped.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use support::Stage;

/// For one request.
const PATIENCE: Duration = Duration::from_secs(2);
const FINALIZER: &str = "attack.tenure.dev/held-back";

/// An administrator's change of a Lease. No duration is shortened and no old spec restored: nobody could be safe then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Change {
    Delete,
    DeleteHeldBack,
    EditHolder,
    ClearHolder,
    NullHolder,
    EmptySpec,
    RaiseDuration,
    EditRenewTime,
    RestoreMetadata,
}

/// Makes the change, with a random choice; whether it could.
pub(crate) async fn make(stage: &Stage, change: Change, chance: u64) -> bool {
    match change {
        Change::Delete => delete(stage).await,
        Change::DeleteHeldBack => {
            if edit(stage, |lease| lease["metadata"]["finalizers"] = json!([FINALIZER])).await {
                delete(stage).await;
            }
            // A change without an answer may have been made too, and the finalizer must be removed again.
            true
        }
        Change::EditHolder => edit(stage, |lease| lease["spec"]["holderIdentity"] = json!("nobody_1")).await,
        Change::ClearHolder => edit(stage, |lease| lease["spec"]["holderIdentity"] = json!("")).await,
        Change::NullHolder => edit(stage, |lease| lease["spec"]["holderIdentity"] = Value::Null).await,
        Change::EmptySpec => edit(stage, |lease| lease["spec"] = json!({})).await,
        Change::RaiseDuration => {
            let more = chance % 3 + 1;
            edit(stage, |lease| {
                let duration = lease["spec"]["leaseDurationSeconds"].as_u64().unwrap_or_default();
                lease["spec"]["leaseDurationSeconds"] = json!(duration + more);
            })
            .await
        }
        Change::EditRenewTime => {
            let times = ["2001-01-01T00:00:00.000000Z", "2099-12-31T23:59:59.999999Z"];
            let time = times[usize::from(chance.is_multiple_of(2))];
            edit(stage, |lease| lease["spec"]["renewTime"] = json!(time)).await
        }
        Change::RestoreMetadata => {
            edit(stage, |lease| {
                lease["metadata"]["labels"] = json!({ "restored": chance.to_string() });
                lease["metadata"]["annotations"] = json!({ "example.com/restored": chance.to_string() });
            })
            .await
        }
    }
}

/// The Lease as it is now, if the server answers.
pub(crate) async fn look(stage: &Stage) -> Option<Value> {
    ask(stage, Method::GET, &stage.lease.path(), None).await.map(|(_, lease)| lease)
}

/// Removes the finalizer; whether it is gone.
pub(crate) async fn let_go(stage: &Stage) -> bool {
    let held = |lease: &Value| lease["metadata"]["finalizers"].as_array().is_some_and(|held| !held.is_empty());
    match ask(stage, Method::GET, &stage.lease.path(), None).await {
        Some((200, lease)) if held(&lease) => edit(stage, |lease| lease["metadata"]["finalizers"] = json!([])).await,
        Some((200 | 404, _)) => true,
        Some(_) | None => false,
    }
}

async fn delete(stage: &Stage) -> bool {
    matches!(ask(stage, Method::DELETE, &stage.lease.path(), None).await, Some((200 | 202, _)))
}

/// Tries three times, since the holder renews meanwhile.
async fn edit(stage: &Stage, change: impl Fn(&mut Value)) -> bool {
    for _ in 0..3 {
        let Some((200, mut lease)) = ask(stage, Method::GET, &stage.lease.path(), None).await else { return false };
        change(&mut lease);
        match ask(stage, Method::PUT, &stage.lease.path(), Some(&lease)).await {
            Some((200, _)) => return true,
            Some((409, _)) => {}
            Some(_) | None => return false,
        }
    }
    false
}

/// Sends one request; returns the answer if the server gives it in time.
pub(crate) async fn ask(stage: &Stage, method: Method, path: &str, body: Option<&Value>) -> Option<(u16, Value)> {
    tokio::time::timeout(PATIENCE, stage.api.attempt(method, path, body)).await.ok()?.ok()
}
