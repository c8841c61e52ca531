//! `/events`: the status, and again with each change.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http_body_util::channel::{Channel, Sender};
use tokio::time::{Instant, sleep};

use super::health::Health;
use crate::clock;

/// A stream ends after this long; browsers open another. So none outlives its reader by more.
pub(super) const STREAM: Duration = Duration::from_secs(600);
/// A comment is sent after so long without an event: the write fails if the client has gone.
const SILENCE: Duration = Duration::from_secs(15);
/// Changes that come faster are told as one.
const PAUSE: Duration = Duration::from_millis(100);

/// The body of the answer, written by a task of the current runtime.
pub(super) fn stream(health: Health) -> Channel<Bytes> {
    let (sender, body) = Channel::new(1);
    tokio::spawn(tell(health, sender));
    body
}

async fn tell(health: Health, mut sender: Sender<Bytes>) {
    let (mut status, mut board, end) = (health.follow(), health.follow_board(), Instant::now() + STREAM);
    let mut said = Arc::from("");
    while Instant::now() < end {
        let page: Arc<str> = health.board().status(&health.status(), clock::boot()).to_string().into();
        let text = if page == said { ":\n\n".to_owned() } else { format!("data: {page}\n\n") };
        said = page;
        if sender.send_data(Bytes::from(text)).await.is_err() {
            return;
        }
        sleep(PAUSE).await;
        // Silence is no change.
        tokio::select! {
            _ = status.changed() => {}
            _ = board.changed() => {}
            () = sleep(SILENCE) => {}
        }
        status.mark_unchanged();
        board.mark_unchanged();
    }
}
