//! Asks whether this replica may update the Lease, whenever it is not known that it may: a replica that may not is not ready.
//!
//! Owns the question and the log line with its remedy. Decides nothing about the Lease: a review may be wrong, and only the Lease's
//! own answers count there.

use std::{collections::VecDeque, time::Duration};

use crate::{
    api::{
        Client, LeasePlace, Place, Request,
        review::{Right, in_brackets, verdict},
    },
    election::{record::LeaseRecord, writes::operator::rehearsal},
    http::Health,
    link::InitialState,
    request::{Answer, Refusal},
};

const UPDATE: &str = "update";
/// What a replica needs on its Lease.
const ALL: &str = "get, watch, update";

/// From one question to the next, while the answer is no, or there is none.
const AGAIN: Duration = Duration::from_secs(5);

/// The refusal that is told: a server that has just started refuses everybody before it has read its rules.
const TOLD: u32 = 2;

/// Asks until the answer is yes, and again once an update was refused.
pub(super) fn start(initial: &InitialState, client: Client, health: Health) {
    let lease = &initial.config.lease;
    let mut places: VecDeque<_> = lease.names().map(|name| Place::lease(&lease.namespace, name)).collect();
    // Whoever goes on with a term was permitted.
    let mut was_permitted = initial.resume.is_some();
    let mut status = health.follow();
    drop(tokio::spawn(async move {
        let (mut refusals, mut passed) = (0_u32, 0);
        while let Some(place) = places.front() {
            if was_permitted && status.wait_for(|status| !status.is_permitted).await.is_err() {
                return;
            }
            // A review knows of rights only, and an update may be refused for another reason.
            let answer = if was_permitted { rehearse(&client, place).await } else { ask(&client, place).await };
            match answer {
                // It may have been another slot's update that was refused.
                Some(Ok(())) if was_permitted && passed + 1 < places.len() => {
                    passed += 1;
                    places.rotate_left(1);
                }
                Some(Ok(())) => {
                    health.permit(true);
                    if refusals >= TOLD {
                        tracing::info!("this replica may update its Lease now");
                    }
                    (was_permitted, refusals, passed) = (true, 0, 0);
                }
                Some(Err(why)) => {
                    health.permit(false);
                    passed = 0;
                    refusals = refusals.saturating_add(1);
                    if refusals == TOLD {
                        tracing::error!(
                            "not ready: this replica may not update its Lease{}; add this to the rules of the Role of its service \
                             account in namespace {}: {}",
                            in_brackets(&why),
                            place.namespace.as_deref().unwrap_or_default(),
                            Right::new(place, ALL).rule()
                        );
                    }
                }
                None => {}
            }
            let next = tokio::time::Instant::now() + AGAIN;
            // A later refusal may be another slot's.
            if tokio::time::timeout_at(next, status.wait_for(|status| status.is_permitted)).await.is_ok() {
                passed = 0;
            }
            tokio::time::sleep_until(next).await;
        }
    }));
}

/// Asks by a review or, where reviews are denied, by the dry run of an update that changes nothing. None: there was no answer, or
/// one that may soon be another. A server that has no such answer leaves it to the first update.
async fn ask(client: &Client, place: &LeasePlace) -> Option<Result<(), String>> {
    let answer = client.send(&Right::new(place, UPDATE).request()).await.answer;
    if let Answer::Object(review) = &answer {
        return Some(verdict(review));
    }
    if permits(&answer)? { Some(Ok(())) } else { rehearse(client, place).await }
}

/// Asks by the dry run of an update that changes nothing.
async fn rehearse(client: &Client, place: &LeasePlace) -> Option<Result<(), String>> {
    let read = client.send(&Request::get(place)).await;
    if read.answer == Answer::NotFound {
        return Some(Ok(()));
    }
    let lease = read.object().ok()?;
    let update = Request::lease(place, &rehearsal(&LeaseRecord::read(lease.into())?)).with(&[("dryRun", "All")]);
    Some(if permits(&client.send(&update).await.answer)? { Ok(()) } else { Err(String::new()) })
}

/// Returns false if the request is denied. None: the same request may soon be answered in another way.
fn permits(answer: &Answer) -> Option<bool> {
    match answer {
        Answer::Unknown { .. } => None,
        Answer::Refused { refusal: Refusal::Forbidden, .. } => Some(false),
        Answer::Refused { refusal, .. } => (*refusal != Refusal::Unauthorized && !refusal.may_pass()).then_some(true),
        Answer::Object(_) | Answer::Listed { .. } | Answer::Deleted | Answer::NotFound | Answer::Conflict => Some(true),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{
        api::{
            Access,
            stub::{Say, Stub, json as reply},
        },
        config::{Config, Log},
        telemetry::log::captured,
    };

    const ALLOWED: &str = r#"{"status":{"allowed":true}}"#;
    const DENIED: &str = r#"{"status":{"allowed":false,"reason":"no rule"}}"#;

    /// A client whose attempts may take this long.
    fn client(stub: &Stub, patience: Duration) -> Client {
        let cluster = stub.cluster();
        Client::beside(Access::new(Arc::new(move || Ok(cluster.clone())), patience), patience)
    }

    /// The verdict where a review and the dry run of an update are answered like this.
    async fn asked(review: (u16, &'static str), update: u16) -> Option<Result<(), String>> {
        let stub = Stub::answering(move |seen| match seen.line.split(' ').next() {
            Some("POST") => reply(review.0, review.1),
            Some("GET") => reply(200, r#"{"kind":"Lease","metadata":{"name":"billing","uid":"u","resourceVersion":"7"}}"#),
            Some("PUT") if seen.line.contains("dryRun=All") => reply(update, r#"{"metadata":{"name":"billing"}}"#),
            _ => Say::Silence,
        })
        .await;
        ask(&client(&stub, Duration::from_secs(20)), &Place::lease("shop", "billing")).await
    }

    /// Runs until the review after these answers is asked for.
    async fn told(answers: &[&str]) {
        let mut stub = Stub::start(answers.iter().map(|answer| reply(201, answer))).await;
        let initial = InitialState::first(Config::default(), "me_1".into());
        // Virtual time passes while a question may be in flight.
        start(&initial, client(&stub, AGAIN * 10_000), Health::new(&initial, crate::clock::boot()));
        for _ in 0..=answers.len() {
            while stub.seen.try_recv().is_err() {
                tokio::time::pause();
                tokio::time::advance(AGAIN).await;
                tokio::time::resume();
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
    }

    /// A replica with two slots, which the review permits. An update of the second one is answered like this.
    async fn with_two_slots(second: u16) -> (Stub, Health) {
        let stub = Stub::answering(move |seen| {
            let name = if seen.line.contains("-slot-1") { "billing-slot-1" } else { "billing" };
            let lease = format!(r#"{{"kind":"Lease","metadata":{{"name":"{name}","uid":"u","resourceVersion":"7"}}}}"#);
            match seen.line.split(' ').next() {
                Some("POST") => reply(201, ALLOWED),
                Some("PUT") if name != "billing" => reply(second, &lease),
                _ => reply(200, &lease),
            }
        })
        .await;
        let mut config = Config::default();
        (config.lease.name, config.lease.slots) = ("billing".into(), 2);
        let initial = InitialState::first(config, "me_1".into());
        let health = Health::new(&initial, crate::clock::boot());
        health.permit(false);
        start(&initial, client(&stub, AGAIN * 10_000), health.clone());
        health.follow().wait_for(|status| status.is_permitted).await.unwrap();
        (stub, health)
    }

    /// Lets time pass. Returns how often the server was asked about this slot.
    async fn asks_about(stub: &mut Stub, slot: &str) -> usize {
        tokio::time::pause();
        tokio::time::advance(AGAIN / 100).await;
        tokio::time::resume();
        tokio::time::sleep(Duration::from_millis(1)).await;
        let seen = std::iter::from_fn(|| stub.seen.try_recv().ok());
        seen.filter(|seen| seen.line.starts_with("PUT") && seen.line.contains(slot)).count()
    }

    #[tokio::test]
    async fn a_replica_that_may_not_update_one_of_its_slots_is_not_ready_again() {
        let (mut stub, health) = with_two_slots(403).await;
        // An update is refused.
        health.permit(false);

        let mut refused = 0;
        while refused < 3 {
            refused += asks_about(&mut stub, "-slot-1").await;
            assert!(!health.status().is_permitted);
        }
    }

    #[tokio::test]
    async fn each_refusal_asks_about_every_slot_again() {
        let (mut stub, health) = with_two_slots(200).await;
        health.permit(false);
        while asks_about(&mut stub, "billing").await == 0 {}
        // The Lease itself answered.
        health.permit(true);
        for _ in 0..200 {
            asks_about(&mut stub, "").await;
        }
        health.permit(false);

        let mut asked = 0;
        while !health.status().is_permitted {
            asked += asks_about(&mut stub, "billing").await;
        }
        assert_eq!(asked + asks_about(&mut stub, "billing").await, 2);
    }

    #[test]
    fn a_refusal_is_an_error_when_it_comes_a_second_time() {
        let told = |answers: &[&str]| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            captured(&Log::default(), || runtime.block_on(told(answers)))
        };
        assert_eq!(told(&[DENIED]), "", "a server that starts up refuses everybody");
        for answers in [&[DENIED; 2][..], &[DENIED; 3]] {
            let said = told(answers);
            let error = "ERROR not ready: this replica may not update its Lease (no rule); add this to the rules of the Role";
            assert!(said.lines().count() == 1 && said.contains(error), "{said}");
        }
    }

    #[tokio::test]
    async fn a_review_decides_and_a_dry_run_where_reviews_are_denied() {
        assert_eq!(asked((201, ALLOWED), 403).await, Some(Ok(())));
        assert_eq!(asked((201, DENIED), 200).await, Some(Err("no rule".into())));
        assert_eq!(asked((403, "{}"), 200).await, Some(Ok(())));
        assert_eq!(asked((403, "{}"), 409).await, Some(Ok(())));
        assert_eq!(asked((403, "{}"), 403).await, Some(Err(String::new())));
        for none in [404, 405] {
            assert_eq!(asked((none, "{}"), 403).await, Some(Ok(())), "a server without reviews");
        }
    }

    #[tokio::test]
    async fn an_answer_that_may_soon_be_another_is_none() {
        for passing in [401, 408, 429, 500, 503] {
            assert_eq!(asked((passing, "{}"), 200).await, None, "{passing} to the review");
            assert_eq!(asked((403, "{}"), passing).await, None, "{passing} to the dry run");
        }
    }
}
