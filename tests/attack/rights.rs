//! Takes the rights of a place, and gives them back.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};

use crate::{lease::PATIENCE, support::stage::Stage};

/// Deletes its RoleBinding; whether it could.
pub(crate) async fn unbind(stage: &Stage, account: &str) -> bool {
    let path = format!("{}/{account}", bindings(stage));
    matches!(ask(stage, Method::DELETE, &path, None).await, Some((200, _)))
}

/// Binds it again.
pub(crate) async fn bind(stage: &Stage, account: &str) {
    let binding = json!({
        "metadata": { "name": account },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": account },
        "subjects": [{ "kind": "ServiceAccount", "name": account, "namespace": stage.namespace }],
    });
    insist(stage, &bindings(stage), &binding).await;
}

/// Deletes its account: every token of it is worth nothing from then on; whether it could.
pub(crate) async fn revoke(stage: &Stage, account: &str) -> bool {
    let path = format!("{}/{account}", accounts(stage));
    matches!(ask(stage, Method::DELETE, &path, None).await, Some((200, _)))
}

/// Makes the account again: a token of it.
pub(crate) async fn renew(stage: &Stage, account: &str) -> String {
    insist(stage, &accounts(stage), &json!({ "metadata": { "name": account } })).await;
    let request = json!({ "spec": { "expirationSeconds": 3600 } });
    let token = insist(stage, &format!("{}/{account}/token", accounts(stage)), &request).await;
    token["status"]["token"].as_str().expect("a token").to_owned()
}

fn bindings(stage: &Stage) -> String {
    format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{}/rolebindings", stage.namespace)
}

fn accounts(stage: &Stage) -> String {
    format!("/api/v1/namespaces/{}/serviceaccounts", stage.namespace)
}

/// Creates it, again until the server has done it: it may be in trouble.
async fn insist(stage: &Stage, path: &str, object: &Value) -> Value {
    loop {
        match ask(stage, Method::POST, path, Some(object)).await {
            Some((201 | 409, body)) => return body,
            Some(_) | None => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

async fn ask(stage: &Stage, method: Method, path: &str, body: Option<&Value>) -> Option<(u16, Value)> {
    tokio::time::timeout(PATIENCE, stage.api.attempt(method, path, body)).await.ok()?.ok()
}
