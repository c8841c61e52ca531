//! Revokes the permissions of a place, and restores them.

use http::Method;
use serde_json::{Value, json};
use support::Stage;

use crate::lease::ask;

/// Deletes its RoleBinding; whether it could.
pub(crate) async fn unbind(stage: &Stage, account: &str) -> bool {
    let path = format!("{}/{account}", bindings(stage));
    matches!(ask(stage, Method::DELETE, &path, None).await, Some((200, _)))
}

/// Binds it again; whether it could.
pub(crate) async fn bind(stage: &Stage, account: &str) -> bool {
    let binding = json!({
        "metadata": { "name": account },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": account },
        "subjects": [{ "kind": "ServiceAccount", "name": account, "namespace": stage.namespace }],
    });
    create(stage, &bindings(stage), &binding).await.is_some()
}

/// Deletes its account, which invalidates all its tokens; whether it could.
pub(crate) async fn revoke(stage: &Stage, account: &str) -> bool {
    let path = format!("{}/{account}", accounts(stage));
    matches!(ask(stage, Method::DELETE, &path, None).await, Some((200, _)))
}

/// Creates the account again; returns a token of it, if it could.
pub(crate) async fn renew(stage: &Stage, account: &str) -> Option<String> {
    create(stage, &accounts(stage), &json!({ "metadata": { "name": account } })).await?;
    let request = json!({ "spec": { "expirationSeconds": 3600 } });
    let token = create(stage, &format!("{}/{account}/token", accounts(stage)), &request).await?;
    token["status"]["token"].as_str().map(str::to_owned)
}

fn bindings(stage: &Stage) -> String {
    format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{}/rolebindings", stage.namespace)
}

fn accounts(stage: &Stage) -> String {
    format!("/api/v1/namespaces/{}/serviceaccounts", stage.namespace)
}

/// Creates it, unless it exists already.
async fn create(stage: &Stage, path: &str, object: &Value) -> Option<Value> {
    match ask(stage, Method::POST, path, Some(object)).await? {
        (201 | 409, body) => Some(body),
        _ => None,
    }
}
