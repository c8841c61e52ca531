//! Whether the API server permits what a replica does with its Lease.

use http::StatusCode;
use serde_json::{Value, json};

use super::Report;
use crate::{
    api::CallError,
    commands::access::Access,
    config::{Config, Release},
    exit,
    words::one_line,
};

const REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";

/// What becomes of a replica without a permission.
#[derive(Clone, Copy, Debug)]
enum Without {
    /// It cannot work.
    Nothing,
    /// It works, in this lesser way.
    Lesser(&'static str),
}

pub(super) async fn check(access: &Access, namespace: &str, config: &Config, report: &mut Report) {
    report.section("permissions");
    let name = &config.lease.name;
    let mut deletes = false;
    for (verb, without) in needed(config) {
        // RBAC cannot restrict create by name, nor what several slots share: a rule with resourceNames never matches it.
        let is_shared = verb == "create" || verb == "list" || verb == "watch" && config.lease.slots > 1;
        let named = if is_shared { None } else { Some(name.as_str()) };
        let what =
            named.map_or_else(|| format!("{verb} leases in {namespace}"), |name| format!("{verb} Lease {namespace}/{name}"));
        let answer = access.review(REVIEWS, &question(namespace, verb, named)).await;
        let (allowed, reason) = match &answer {
            Ok(review) => verdict(review),
            Err(CallError::Refused(reply)) if reply.status == StatusCode::NOT_FOUND => {
                return report.note("this server does not answer access reviews");
            }
            Err(error) => return report.bad(error.exit_code(), &format!("permissions cannot be asked for: {}", one_line(error))),
        };
        deletes |= allowed && verb == "delete";
        // Where the first release leaves no Lease, nobody could lead after it.
        let without = if verb == "create" && deletes { Without::Nothing } else { without };
        match without {
            _ if allowed => report.good(&what),
            Without::Lesser(lesser) => report.note(&format!("{what} is not permitted{reason}: {lesser}")),
            Without::Nothing => report.bad(
                exit::NOT_PERMITTED,
                &format!("{what} is not permitted{reason}: add the verb to the Role of this service account, as in deploy/"),
            ),
        }
    }
}

/// The verbs that a replica uses.
fn needed(config: &Config) -> Vec<(&'static str, Without)> {
    let mut needed = vec![
        ("get", Without::Nothing),
        ("update", Without::Nothing),
        ("watch", Without::Lesser("standbys poll, and take over up to lease.renewPeriod later")),
    ];
    if config.lease.slots > 1 {
        needed.push(("list", Without::Lesser("each slot is read by its name, one every lease.renewPeriod")));
    }
    match config.lease.release {
        Release::Delete => needed.push(("delete", Without::Lesser("a released Lease is left, free to be taken"))),
        Release::Clear | Release::Keep => {}
    }
    needed.push(("create", Without::Lesser("replicas wait until somebody creates the Lease")));
    needed
}

fn question(namespace: &str, verb: &str, name: Option<&str>) -> Value {
    json!({
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": { "resourceAttributes": {
            "group": "coordination.k8s.io", "resource": "leases", "namespace": namespace, "verb": verb, "name": name.unwrap_or_default(),
        } },
    })
}

/// Whether it is allowed, and the server's reason if it gives one.
fn verdict(review: &Value) -> (bool, String) {
    let status = |name| review.pointer(&format!("/status/{name}"));
    let allowed = status("allowed").and_then(Value::as_bool).unwrap_or_default();
    let reason = status("reason").and_then(Value::as_str).filter(|reason| !reason.is_empty());
    (allowed, reason.map(|reason| format!(" ({reason})")).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delete_is_needed_only_where_releasing_deletes_and_a_list_only_for_several_slots() {
        let mut config = Config::default();
        let verbs = |config: &Config| needed(config).into_iter().map(|(verb, _)| verb).collect::<Vec<_>>();
        assert_eq!(verbs(&config), ["get", "update", "watch", "create"]);
        config.lease.release = Release::Delete;
        assert_eq!(verbs(&config), ["get", "update", "watch", "delete", "create"]);
        config.lease.slots = 2;
        assert_eq!(verbs(&config), ["get", "update", "watch", "list", "delete", "create"]);
    }

    #[test]
    fn a_question_names_the_lease_except_that_of_a_creation() {
        let attributes = |verb: &str, name| question("shop", verb, name)["spec"]["resourceAttributes"].clone();
        let asked = |verb: &str, name: &str| json!({ "group": "coordination.k8s.io", "resource": "leases", "namespace": "shop", "verb": verb, "name": name });
        assert_eq!(attributes("update", Some("billing")), asked("update", "billing"));
        assert_eq!(attributes("create", None), asked("create", ""));
    }

    #[test]
    fn no_answer_is_no_permission() {
        assert_eq!(verdict(&json!({ "status": { "allowed": true } })), (true, String::new()));
        assert_eq!(verdict(&json!({ "status": { "allowed": false, "reason": "no rule" } })), (false, " (no rule)".into()));
        assert!(!verdict(&json!({})).0 && !verdict(&json!({ "status": { "allowed": "yes" } })).0);
    }
}
