//! Feels whether the server takes connections: on a machine that other programs keep busy, nobody may get one for seconds, and
//! what never became a request is in no log.

use std::{rc::Rc, time::Duration};

use http::Method;
use tenure::clock;

use crate::world::Shared;

/// As long as a replica's attempt may take.
const ATTEMPT: Duration = Duration::from_millis(300);
/// Between two beats.
const PAUSE: Duration = Duration::from_millis(500);

/// Asks with a new connection, again and again, and notes when no answer came in time. Never ends by itself.
pub(crate) async fn feel(shared: Rc<Shared>) {
    loop {
        let beat = async { shared.server.admin().await.attempt(Method::GET, "/version", None).await };
        if !matches!(tokio::time::timeout(ATTEMPT, beat).await, Ok(Ok((200, _)))) {
            shared.silences.borrow_mut().push(clock::boot());
        }
        tokio::time::sleep(PAUSE).await;
    }
}
