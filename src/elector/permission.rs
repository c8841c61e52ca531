//! Asks once at the start whether this replica may update the Lease: a replica that may not is not ready.
//!
//! Owns the question and the log line with its remedy. Decides nothing about the Lease: a review may be wrong, and only the Lease's
//! own answers count there.

use std::time::Duration;

use http::Method;
use serde_json::Value;

use super::{access::Access, best_effort::BestEffort};
use crate::{
    api::review::{REVIEWS, Right, verdict},
    http::Health,
    link::InitialState,
    time::Instant,
};

/// From one question to the next, while the answer is no, or there is none.
const AGAIN: Duration = Duration::from_secs(5);

/// Asks until the answer is yes.
pub(super) fn start(initial: &InitialState, access: Access, health: Health) {
    let lease = &initial.config.lease;
    let (right, namespace) = (Right::to_update_lease(lease.name.clone()), lease.namespace.clone());
    let path = format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{}", lease.name);
    let question = right.question(&namespace);
    let mut best_effort = BestEffort::new(access, lease);
    drop(tokio::spawn(async move {
        let mut is_told = false;
        loop {
            match ask(&mut best_effort, &question, &path).await {
                Some(Ok(())) => {
                    health.permitted(true);
                    if is_told {
                        tracing::info!("this replica may update its Lease now");
                    }
                    return;
                }
                Some(Err(why)) => {
                    health.permitted(false);
                    if !std::mem::replace(&mut is_told, true) {
                        tracing::error!(
                            "not ready: this replica may not update its Lease{why}; add this to the rules of the Role of its service \
                             account in namespace {namespace}: {}",
                            right.rule()
                        );
                    }
                }
                None => {}
            }
            tokio::time::sleep(AGAIN).await;
        }
    }));
}

/// Asks by a review or, where reviews are denied, by the dry run of an update that changes nothing. None: there was no answer. A
/// server that has no such answer leaves it to the first update.
async fn ask(best_effort: &mut BestEffort, question: &Value, path: &str) -> Option<Result<(), String>> {
    let review = match best_effort.call((Method::POST, REVIEWS), Some(question.clone()), Instant::NEVER).await? {
        Ok(review) => Ok(verdict(&review)),
        Err((error, _)) => Err(error),
    };
    match review {
        Ok((true, _)) => Some(Ok(())),
        Ok((false, reason)) => Some(Err(reason)),
        Err(error) if error.is_forbidden() => {
            let lease = best_effort.call((Method::GET, path), None, Instant::NEVER).await?.ok()?;
            let path = format!("{path}?dryRun=All");
            match best_effort.call((Method::PUT, &path), Some(lease), Instant::NEVER).await? {
                Err((error, _)) if error.is_forbidden() => Some(Err(String::new())),
                Err((error, _)) if error.status.is_none() => None,
                Ok(_) | Err(_) => Some(Ok(())),
            }
        }
        Err(error) => error.status.map(|_| Ok(())),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::{
        api::stub::{Say, Stub, json as reply},
        config::LeaseConfig,
    };

    const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/shop/leases/billing";

    /// The verdict where a review and the dry run of an update are answered like this.
    async fn asked(review: (u16, &'static str), update: u16) -> Option<Result<(), String>> {
        let stub = Stub::answering(move |seen| match seen.line.split(' ').next() {
            Some("POST") => reply(review.0, review.1),
            Some("GET") => reply(200, r#"{"kind":"Lease"}"#),
            Some("PUT") if seen.line.contains("dryRun=All") => reply(update, "{}"),
            _ => Say::Silence,
        })
        .await;
        let cluster = stub.cluster();
        let access = Access::new(Arc::new(move || Ok(cluster.clone())), Duration::from_secs(20));
        ask(&mut BestEffort::new(access, &LeaseConfig::default()), &json!({}), LEASE).await
    }

    #[tokio::test]
    async fn a_review_decides_and_a_dry_run_where_reviews_are_denied() {
        let allowed = r#"{"status":{"allowed":true}}"#;
        let denied = r#"{"status":{"allowed":false,"reason":"no rule"}}"#;
        assert_eq!(asked((201, allowed), 403).await, Some(Ok(())));
        assert_eq!(asked((201, denied), 200).await, Some(Err(" (no rule)".into())));
        assert_eq!(asked((403, "{}"), 200).await, Some(Ok(())));
        assert_eq!(asked((403, "{}"), 409).await, Some(Ok(())));
        assert_eq!(asked((403, "{}"), 403).await, Some(Err(String::new())));
        assert_eq!(asked((404, "{}"), 403).await, Some(Ok(())), "a server without reviews");
    }
}
