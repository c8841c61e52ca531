//! Faults that a test can inject into watches.

use serde_json::json;
use tenure::apiserver::WatchFault;
use tokio::time::timeout;

use super::world::{A, SILENCE, World};

#[tokio::test]
async fn a_stalled_watch_says_nothing_until_it_is_healed() {
    let world = World::new();
    let hand = world.hand("alice").await;
    let mut watch = hand.watch("").await;
    world.client("alice").set_watches(WatchFault::Stall);

    world.server.store(|store| store.plant(A, json!({})));
    let stalled = timeout(SILENCE, watch.next()).await.is_err();
    world.client("alice").heal();

    assert!(stalled);
    assert_eq!(watch.next().await.expect("an event").0, "ADDED");
}

#[tokio::test]
async fn watches_end_again_and_again() {
    let world = World::new();
    let hand = world.hand("alice").await;
    world.client("alice").set_watches(WatchFault::Eof(SILENCE / 3));
    for _ in 0..2 {
        let mut watch = hand.watch("").await;

        assert!(watch.next().await.is_none());
    }
}

#[tokio::test]
async fn an_expired_watch_ends_with_410() {
    let world = World::new();
    let hand = world.hand("alice").await;
    let mut running = hand.watch("").await;

    world.client("alice").set_watches(WatchFault::Expired);
    let mut new = hand.watch("").await;

    for watch in [&mut running, &mut new] {
        let (kind, status) = watch.next().await.expect("an event");
        assert_eq!((kind.as_str(), &status["code"]), ("ERROR", &json!(410)));
        assert!(watch.next().await.is_none());
    }
}

#[tokio::test]
async fn a_late_watch_brings_its_events_late() {
    let world = World::new();
    let hand = world.hand("alice").await;
    world.client("alice").set_watches(WatchFault::Late(SILENCE));
    let mut watch = hand.watch("").await;
    let began = tenure::clock::boot();

    world.server.store(|store| store.plant(A, json!({})));
    watch.next().await.expect("an event");

    assert!(tenure::clock::boot().since(began) >= SILENCE);
}

#[tokio::test]
async fn a_replaying_watch_begins_with_what_is_long_over() {
    let world = World::new();
    let hand = world.hand("alice").await;
    world.server.store(|store| {
        store.plant(A, json!({}));
        store.remove(A);
    });
    world.client("alice").set_watches(WatchFault::Replay);
    let version = world.server.store(|store| store.version());

    let mut watch = hand.watch(&format!("resourceVersion={version}")).await;

    assert_eq!(watch.next().await.expect("an event").0, "ADDED");
    assert_eq!(watch.next().await.expect("an event").0, "DELETED");
}

#[tokio::test]
async fn a_watch_from_before_a_compaction_is_gone() {
    let world = World::new();
    let hand = world.hand("alice").await;
    world.server.store(|store| {
        store.plant(A, json!({}));
        store.compact();
    });

    let mut watch = hand.watch("resourceVersion=1").await;

    let (kind, status) = watch.next().await.expect("an event");
    assert_eq!((kind.as_str(), &status["code"], &status["reason"]), ("ERROR", &json!(410), &json!("Expired")));
    assert!(watch.next().await.is_none());
}

#[tokio::test]
async fn a_bookmark_comes_when_it_is_called_for() {
    let world = World::new();
    let hand = world.hand("alice").await;
    let version = world.server.store(|store| store.version());
    let mut watch = hand.watch(&format!("allowWatchBookmarks=true&resourceVersion={version}")).await;
    world.server.store(|store| store.plant(A, json!({})));
    watch.next().await.expect("an event");

    world.server.bookmark();

    let (kind, object) = watch.next().await.expect("an event");
    assert_eq!(kind, "BOOKMARK");
    assert_eq!(object["metadata"]["resourceVersion"], world.server.store(|store| store.version().to_string()));
}
