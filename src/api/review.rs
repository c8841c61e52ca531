//! Asks the API server for permissions: SelfSubjectAccessReview.

use serde_json::{Value, json};

/// The path of the reviews.
pub(crate) const REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";

/// An action of a replica, in the words of RBAC.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Right {
    /// The API group.
    pub(crate) group: &'static str,
    /// The resource.
    pub(crate) resource: &'static str,
    /// The verb.
    pub(crate) verb: &'static str,
    /// The object of the action. None: all, as RBAC cannot restrict it further.
    pub(crate) name: Option<String>,
}

impl Right {
    /// Updates this Lease, without which a replica can never lead.
    pub(crate) const fn to_update_lease(name: String) -> Self {
        Self { group: "coordination.k8s.io", resource: "leases", verb: "update", name: Some(name) }
    }

    /// Returns the review that asks for it in `namespace`.
    pub(crate) fn question(&self, namespace: &str) -> Value {
        let Self { group, resource, verb, name } = self;
        let name = name.as_deref().unwrap_or_default();
        json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": { "resourceAttributes": {
                "group": group, "resource": resource, "namespace": namespace, "verb": verb, "name": name,
            } },
        })
    }

    /// Returns the rule of a Role that grants it, on one line of YAML.
    pub(crate) fn rule(&self) -> String {
        let Self { group, resource, verb, name } = self;
        let names = name.as_ref().map_or_else(String::new, |name| format!("resourceNames: [{name}], "));
        format!("- {{ apiGroups: [{group}], resources: [{resource}], {names}verbs: [{verb}] }}")
    }
}

/// Returns whether a review allows it, and the reason that the server may give.
pub(crate) fn verdict(review: &Value) -> (bool, String) {
    let status = |name| review.pointer(&format!("/status/{name}"));
    let allowed = status("allowed").and_then(Value::as_bool).unwrap_or_default();
    let reason = status("reason").and_then(Value::as_str).filter(|reason| !reason.is_empty());
    (allowed, reason.map(|reason| format!(" ({reason})")).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_answer_is_no_permission() {
        assert_eq!(verdict(&json!({ "status": { "allowed": true } })), (true, String::new()));
        assert_eq!(verdict(&json!({ "status": { "allowed": false, "reason": "no rule" } })), (false, " (no rule)".into()));
        assert!(!verdict(&json!({})).0 && !verdict(&json!({ "status": { "allowed": "yes" } })).0);
    }

    #[test]
    fn the_rule_that_grants_it_is_one_line_of_a_role() {
        let update = Right::to_update_lease("billing".into()).rule();
        assert_eq!(
            update,
            "- { apiGroups: [coordination.k8s.io], resources: [leases], resourceNames: [billing], verbs: [update] }"
        );
        let create = Right { group: "coordination.k8s.io", resource: "leases", verb: "create", name: None }.rule();
        assert_eq!(create, "- { apiGroups: [coordination.k8s.io], resources: [leases], verbs: [create] }");
    }
}
