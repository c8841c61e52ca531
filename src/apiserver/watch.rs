//! Watches: events to one client for as long as it listens.
//!
//! Owns the waiting: for changes, bookmarks, the end, and the faults of the client's watches.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use serde_json::Value;
use tokio::{
    sync::{mpsc, watch},
    time::{Instant, sleep_until},
};

use super::{
    Shared,
    door::{Door, Signal},
    faults::WatchFault,
    feed::{Event, EventType},
    lease::Lease,
    rest::Watch,
    status::Status,
    view::View,
};
use crate::clock;

/// How often a client that wants bookmarks gets one.
const BOOKMARKS: Duration = Duration::from_secs(60);
/// And one more this long before the end.
const LAST_BOOKMARK: Duration = Duration::from_secs(2);

/// Sends `watch` to `lines` until it ends, the client is gone or the server stops.
pub(super) async fn run(shared: Arc<Shared>, door: Arc<Door>, watch: Watch, lines: mpsc::Sender<Bytes>) {
    let began = Instant::now();
    let gone = lines.clone();
    let mut sender = Sender { view: watch.view, titled: false, lines };
    let mut task = Task { signal: door.subscribe(), watch, began, bookmarked: began, replayed: false };
    tokio::select! {
        () = task.run(&shared, &mut sender) => {}
        () = gone.closed() => {}
    }
}

/// The client no longer listens.
struct Gone;

struct Task {
    signal: watch::Receiver<Signal>,
    watch: Watch,
    began: Instant,
    bookmarked: Instant,
    replayed: bool,
}

impl Task {
    async fn run(&mut self, shared: &Shared, sender: &mut Sender) {
        // An error means that nobody listens, so there is nothing left to do.
        drop(self.serve(shared, sender).await);
    }

    async fn serve(&mut self, shared: &Shared, sender: &mut Sender) -> Result<(), Gone> {
        let mut changed = shared.changed.subscribe();
        let mut bookmark = shared.bookmark.subscribe();
        let mut first = Some(std::mem::take(&mut self.watch.first));
        let end = self.began + self.watch.timeout;
        loop {
            let fault = self.signal.borrow_and_update().watches;
            changed.mark_unchanged();
            match fault {
                WatchFault::Stall => {}
                WatchFault::Expired => {
                    let status = Status::expired("The resourceVersion for the provided watch is too old.");
                    return sender.send(&Event::error(&status)).await;
                }
                WatchFault::None | WatchFault::Eof(_) | WatchFault::Late(_) | WatchFault::Replay => {
                    let mut events = first.take().unwrap_or_default();
                    if fault == WatchFault::Replay && !std::mem::replace(&mut self.replayed, true) {
                        events.extend(self.watch.feed.replay(&shared.store()));
                    }
                    let advanced = self.watch.feed.advance(&shared.store());
                    let (mut later, expired) = match advanced {
                        Ok(later) => (later, None),
                        Err(status) => (Vec::new(), Some(status)),
                    };
                    events.append(&mut later);
                    if let WatchFault::Late(lag) = fault
                        && !events.is_empty()
                    {
                        tokio::time::sleep(lag).await;
                    }
                    for event in &events {
                        sender.send(event).await?;
                    }
                    if let Some(status) = expired {
                        return sender.send(&Event::error(&status)).await;
                    }
                }
            }
            let stop = match fault {
                WatchFault::Eof(after) => end.min(self.began + after),
                WatchFault::None | WatchFault::Stall | WatchFault::Expired | WatchFault::Late(_) | WatchFault::Replay => end,
            };
            let next_bookmark = self.next_bookmark(end);
            let wants_bookmarks = self.watch.bookmarks && fault != WatchFault::Stall;
            tokio::select! {
                () = sleep_until(stop) => return Ok(()),
                () = sleep_until(next_bookmark), if wants_bookmarks => self.bookmark(sender).await?,
                Ok(()) = bookmark.changed(), if wants_bookmarks => self.bookmark(sender).await?,
                Ok(()) = changed.changed() => {}
                Ok(()) = self.signal.changed() => {}
                else => return Ok(()),
            }
        }
    }

    async fn bookmark(&mut self, sender: &mut Sender) -> Result<(), Gone> {
        self.bookmarked = Instant::now();
        sender.send(&self.watch.feed.bookmark(false)).await
    }

    fn next_bookmark(&self, end: Instant) -> Instant {
        let regular = self.bookmarked + BOOKMARKS;
        match end.checked_sub(LAST_BOOKMARK) {
            Some(last) if self.bookmarked < last => regular.min(last),
            Some(_) | None => regular,
        }
    }
}

struct Sender {
    view: View,
    titled: bool,
    lines: mpsc::Sender<Bytes>,
}

impl Sender {
    async fn send(&mut self, event: &Event) -> Result<(), Gone> {
        let line = self.seen(event).line();
        self.lines.send(Bytes::from(line)).await.map_err(|_| Gone)
    }

    /// Only the first table includes its columns.
    fn seen(&mut self, event: &Event) -> Event {
        if event.kind == EventType::Error || self.view == View::Whole {
            return event.clone();
        }
        let mut object = self.view.one(&Lease::new(event.object.clone()), clock::wall());
        if std::mem::replace(&mut self.titled, true)
            && let Some(columns) = object.get_mut("columnDefinitions")
        {
            *columns = Value::Null;
        }
        Event { kind: event.kind, object }
    }
}
