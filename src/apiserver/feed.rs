//! What a watch shows: the history, filtered by a selector.
//!
//! Owns the translation of changes into watch events. Pure; `watch` sends the events.

use serde_json::{Map, Value, json};

use super::{
    lease::Lease,
    selector::Selector,
    status::{GROUP, Status},
    store::{Change, Store},
};

/// A watcher's view of the store, and how far it has got.
#[derive(Clone, Debug)]
pub(super) struct Feed {
    namespace: Option<String>,
    selector: Selector,
    after: u64,
    initial: Initial,
}

/// What a watch begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Initial {
    /// The changes after its version.
    Nothing,
    /// The state once its version is reached.
    State {
        /// Followed by a bookmark.
        bookmark: bool,
    },
}

/// What a watch event says about its object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EventType {
    /// It was created, or became visible.
    Added,
    /// It changed.
    Modified,
    /// It was deleted, or is no longer visible.
    Deleted,
    /// Only its version counts: the watch has progressed to it.
    Bookmark,
    /// It is a Status: the watch cannot continue.
    Error,
}

/// One watch event.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Event {
    /// What happened.
    pub(super) kind: EventType,
    /// What it is about.
    pub(super) object: Value,
}

impl Feed {
    /// A view of one namespace, or of all, that begins after version `after`.
    pub(super) const fn new(namespace: Option<String>, selector: Selector, after: u64) -> Self {
        Self { namespace, selector, after, initial: Initial::Nothing }
    }

    /// The same with another beginning.
    pub(super) fn beginning_with(self, initial: Initial) -> Self {
        Self { initial, ..self }
    }

    /// The initial events, if available by now; later changes follow from here.
    pub(super) fn begin(&mut self, store: &Store) -> Vec<Event> {
        let Initial::State { bookmark } = self.initial else { return Vec::new() };
        if store.version() < self.after {
            return Vec::new();
        }
        self.after = store.version();
        self.initial = Initial::Nothing;
        let leases = store.list(self.namespace.as_deref()).filter(|lease| self.selector.matches(lease));
        let events = leases.map(|lease| Event { kind: EventType::Added, object: lease.json().clone() });
        events.chain(bookmark.then(|| self.bookmark(true))).collect()
    }

    /// The events since the last call.
    ///
    /// # Errors
    /// 410 if some were compacted.
    pub(super) fn advance(&mut self, store: &Store) -> Result<Vec<Event>, Status> {
        let mut events = self.begin(store);
        events.extend(store.changes_since(self.after)?.filter_map(|change| self.event(change)));
        self.after = self.after.max(store.version());
        Ok(events)
    }

    /// Everything that the history still holds, once more: a watch that no client must believe.
    pub(super) fn replay(&self, store: &Store) -> Vec<Event> {
        store.history().filter_map(|change| self.event(change)).collect()
    }

    /// BOOKMARK: nothing is missing up to here. The first one after the initial events is marked as such.
    pub(super) fn bookmark(&self, initial_end: bool) -> Event {
        let mut metadata = Map::new();
        metadata.insert("resourceVersion".into(), self.after.to_string().into());
        if initial_end {
            metadata.insert("annotations".into(), json!({"k8s.io/initial-events-end": "true"}));
        }
        let object = json!({"kind": "Lease", "apiVersion": format!("{GROUP}/v1"), "metadata": metadata, "spec": {}});
        Event { kind: EventType::Bookmark, object }
    }

    fn event(&self, change: &Change) -> Option<Event> {
        let seen = |lease: &&Lease| {
            self.namespace.as_deref().is_none_or(|namespace| namespace == lease.namespace()) && self.selector.matches(lease)
        };
        match (change.before.as_ref().filter(seen), change.after.as_ref().filter(seen)) {
            (None, None) => None,
            (None, Some(after)) => Some(Event { kind: EventType::Added, object: after.json().clone() }),
            (Some(_), Some(after)) => Some(Event { kind: EventType::Modified, object: after.json().clone() }),
            (Some(before), None) => {
                let mut gone = before.clone();
                gone.set("resourceVersion", Some(change.version.to_string().into()));
                Some(Event { kind: EventType::Deleted, object: gone.json().clone() })
            }
        }
    }
}

impl EventType {
    /// Its name on the wire.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
            Self::Bookmark => "BOOKMARK",
            Self::Error => "ERROR",
        }
    }
}

impl Event {
    /// ERROR: the watch cannot continue.
    pub(super) fn error(status: &Status) -> Self {
        Self { kind: EventType::Error, object: status.to_json() }
    }

    /// The line to send.
    pub(super) fn line(&self) -> String {
        json!({"type": self.kind.as_str(), "object": self.object}).to_string() + "\n"
    }
}

#[cfg(test)]
mod tests {
    use crate::apiserver::store::{Place, Rules};

    use super::*;

    const A: Place<'static> = Place { namespace: "default", name: "a" };

    fn store() -> Store {
        Store::new(Rules::default(), 7)
    }

    fn kinds(events: &[Event]) -> Vec<&'static str> {
        events.iter().map(|event| event.kind.as_str()).collect()
    }

    #[test]
    fn a_feed_yields_each_change_once_and_in_order() {
        let mut store = store();
        let mut feed = Feed::new(Some("default".into()), Selector::default(), store.version());
        store.plant(A, json!({}));
        store.plant(A, json!({"spec": {}}));
        store.remove(A);

        let events = feed.advance(&store).unwrap();

        assert_eq!(kinds(&events), ["ADDED", "MODIFIED", "DELETED"]);
        assert_eq!(events[2].object["metadata"]["resourceVersion"], store.version().to_string());
        assert!(feed.advance(&store).unwrap().is_empty());
    }

    #[test]
    fn a_lease_that_stops_matching_is_deleted_for_the_watcher() {
        let mut store = store();
        store.plant(A, json!({"metadata": {"labels": {"x": "1"}}}));
        let mut feed = Feed::new(None, Selector::parse("x=1", "").unwrap(), store.version());
        store.plant(A, json!({"metadata": {"labels": {"x": "2"}}}));
        store.plant(A, json!({"metadata": {"labels": {"x": "1"}}}));

        assert_eq!(kinds(&feed.advance(&store).unwrap()), ["DELETED", "ADDED"]);
    }

    #[test]
    fn a_feed_begins_with_what_is_there_once_its_version_is_reached() {
        let mut store = store();
        let feed = Feed::new(None, Selector::default(), store.version() + 2);
        let mut feed = feed.beginning_with(Initial::State { bookmark: true });
        store.plant(A, json!({}));

        let early = feed.advance(&store).unwrap();
        store.plant(A, json!({"spec": {}}));
        let late = feed.advance(&store).unwrap();

        assert_eq!((kinds(&early), kinds(&late)), (vec![], vec!["ADDED", "BOOKMARK"]));
    }

    #[test]
    fn a_feed_from_before_a_compaction_is_expired() {
        let mut store = store();
        let mut feed = Feed::new(None, Selector::default(), store.version());
        store.plant(A, json!({}));
        store.compact();

        assert_eq!(feed.advance(&store).unwrap_err().code, 410);
    }
}
