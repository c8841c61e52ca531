//! Asks the API server for permissions: SelfSubjectAccessReview.

use serde_json::{Value, json};

use super::{Place, Request, Verb};

/// A verb on an object, or on all objects of a kind, in the words of RBAC.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Right {
    /// Where.
    pub(crate) place: Place,
    /// The verb.
    pub(crate) verb: &'static str,
}

impl Right {
    /// Without a name of the place: for all objects, as RBAC cannot restrict it further.
    pub(crate) fn new(place: &Place, verb: &'static str) -> Self {
        Self { place: place.clone(), verb }
    }

    /// Returns the review that asks for it.
    pub(crate) fn request(&self) -> Request {
        let place = Place { namespace: None, ..Place::new("authorization.k8s.io/v1", KIND, "selfsubjectaccessreviews", "", "") };
        let body = json!({
            "apiVersion": place.api_version,
            "kind": KIND,
            "spec": { "resourceAttributes": self.attributes() },
        });
        Request::of(place, Verb::Create(body.into()))
    }

    fn attributes(&self) -> Value {
        let Place { resource, namespace, name, .. } = &self.place;
        let mut asked = json!({ "group": self.place.group(), "resource": resource, "namespace": namespace, "verb": self.verb });
        if !name.is_empty() {
            asked["name"] = name.as_str().into();
        }
        asked
    }

    /// Returns the rule of a Role that grants it, on one line of YAML.
    pub(crate) fn rule(&self) -> String {
        let Self { place, verb } = self;
        let (group, resource, name) = (place.group(), &place.resource, &place.name);
        let names = if name.is_empty() { String::new() } else { format!("resourceNames: [{name}], ") };
        format!("- {{ apiGroups: [{group}], resources: [{resource}], {names}verbs: [{verb}] }}")
    }
}

const KIND: &str = "SelfSubjectAccessReview";

/// Reads a review.
///
/// # Errors
/// It is not allowed, for this reason, which may be empty.
pub(crate) fn verdict(review: &Value) -> Result<(), String> {
    let status = |name| review.pointer(&format!("/status/{name}"));
    if status("allowed") == Some(&Value::Bool(true)) {
        return Ok(());
    }
    Err(status("reason").and_then(Value::as_str).unwrap_or_default().into())
}

/// Returns the reason of a refusal as an addition to a sentence.
pub(crate) fn in_brackets(reason: &str) -> String {
    if reason.is_empty() { String::new() } else { format!(" ({reason})") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_answer_is_no_permission() {
        assert_eq!(verdict(&json!({ "status": { "allowed": true } })), Ok(()));
        assert_eq!(verdict(&json!({ "status": { "allowed": false, "reason": "no rule" } })), Err("no rule".into()));
        assert_eq!([in_brackets("no rule"), in_brackets("")], [" (no rule)", ""]);
        assert!(verdict(&json!({})).is_err() && verdict(&json!({ "status": { "allowed": "yes" } })).is_err());
    }

    #[test]
    fn a_question_names_the_object_except_where_that_cannot_be_granted() {
        let asked = |name: &str, verb| Right::new(&Place::lease("shop", name), verb).attributes();
        let group = "coordination.k8s.io";
        let one = json!({ "group": group, "resource": "leases", "namespace": "shop", "verb": "update", "name": "billing" });
        assert_eq!(asked("billing", "update"), one);
        assert_eq!(asked("", "create"), json!({ "group": group, "resource": "leases", "namespace": "shop", "verb": "create" }));
    }

    #[test]
    fn the_rule_that_grants_it_is_one_line_of_a_role() {
        let rule = |name: &str, verb| Right::new(&Place::lease("shop", name), verb).rule();
        assert_eq!(
            rule("billing", "update"),
            "- { apiGroups: [coordination.k8s.io], resources: [leases], resourceNames: [billing], verbs: [update] }"
        );
        assert_eq!(rule("", "create"), "- { apiGroups: [coordination.k8s.io], resources: [leases], verbs: [create] }");
    }
}
