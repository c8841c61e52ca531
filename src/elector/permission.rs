//! Asks once at the start whether this replica may update the Lease: a replica that may not is not ready.
//!
//! Owns the question and the log line with its remedy. Decides nothing about the Lease: a review may be wrong, and only the Lease's
//! own answers count there.

use std::time::Duration;

use crate::{
    api::{
        Client, LeasePlace, Place, Request,
        review::{Right, in_brackets, verdict},
    },
    clock,
    election::{record::LeaseRecord, writes::operator::rehearsal},
    http::Health,
    link::InitialState,
    telemetry::status::Fact,
};

const UPDATE: &str = "update";
/// What a replica needs on its Lease.
const ALL: &str = "get, watch, update";

/// From one question to the next, while the answer is no, or there is none.
const AGAIN: Duration = Duration::from_secs(5);

/// The refusal that is told: a server that has just started refuses everybody before it has read its rules.
const TOLD: u32 = 2;

/// Asks until the answer is yes.
pub(super) fn start(initial: &InitialState, client: Client, health: Health) {
    let lease = &initial.config.lease;
    let place = Place::lease(&lease.namespace, &*lease.name);
    drop(tokio::spawn(async move {
        let mut refusals = 0_u32;
        loop {
            match ask(&client, &place).await {
                Some(Ok(())) => {
                    health.apply(&Fact::Permitted(true), clock::boot());
                    if refusals >= TOLD {
                        tracing::info!("this replica may update its Lease now");
                    }
                    return;
                }
                Some(Err(why)) => {
                    health.apply(&Fact::Permitted(false), clock::boot());
                    refusals = refusals.saturating_add(1);
                    if refusals == TOLD {
                        tracing::error!(
                            "not ready: this replica may not update its Lease{}; add this to the rules of the Role of its service \
                             account in namespace {}: {}",
                            in_brackets(&why),
                            place.namespace.as_deref().unwrap_or_default(),
                            Right::new(&place, ALL).rule()
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
async fn ask(client: &Client, place: &LeasePlace) -> Option<Result<(), String>> {
    match client.send(&Right::new(place, UPDATE).request()).await.object() {
        Ok(review) => Some(verdict(&review)),
        Err(error) if error.is_forbidden() => {
            let lease = client.send(&Request::get(place)).await.object().ok()?;
            let update = Request::lease(place, &rehearsal(&LeaseRecord::read(lease.into())?)).with(&[("dryRun", "All")]);
            match client.send(&update).await.object() {
                Err(error) if error.is_forbidden() => Some(Err(String::new())),
                Err(error) if error.status.is_none() => None,
                Ok(_) | Err(_) => Some(Ok(())),
            }
        }
        Err(error) => error.status.map(|_| Ok(())),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::api::{
        Access,
        stub::{Say, Stub, json as reply},
    };

    /// The verdict where a review and the dry run of an update are answered like this.
    async fn asked(review: (u16, &'static str), update: u16) -> Option<Result<(), String>> {
        let stub = Stub::answering(move |seen| match seen.line.split(' ').next() {
            Some("POST") => reply(review.0, review.1),
            Some("GET") => reply(200, r#"{"kind":"Lease","metadata":{"name":"billing","uid":"u","resourceVersion":"7"}}"#),
            Some("PUT") if seen.line.contains("dryRun=All") => reply(update, r#"{"metadata":{"name":"billing"}}"#),
            _ => Say::Silence,
        })
        .await;
        let cluster = stub.cluster();
        let access = Access::new(Arc::new(move || Ok(cluster.clone())), Duration::from_secs(20));
        ask(&Client::beside(access, Duration::from_secs(20)), &Place::lease("shop", "billing")).await
    }

    #[tokio::test]
    async fn a_review_decides_and_a_dry_run_where_reviews_are_denied() {
        let allowed = r#"{"status":{"allowed":true}}"#;
        let denied = r#"{"status":{"allowed":false,"reason":"no rule"}}"#;
        assert_eq!(asked((201, allowed), 403).await, Some(Ok(())));
        assert_eq!(asked((201, denied), 200).await, Some(Err("no rule".into())));
        assert_eq!(asked((403, "{}"), 200).await, Some(Ok(())));
        assert_eq!(asked((403, "{}"), 409).await, Some(Ok(())));
        assert_eq!(asked((403, "{}"), 403).await, Some(Err(String::new())));
        assert_eq!(asked((404, "{}"), 403).await, Some(Ok(())), "a server without reviews");
    }
}
