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

/// Asks with a new connection, again and again, and notes when no answer came in time, be it that this thread, on which the
/// replicas' proxies run too, stood still. Never ends by itself.
pub(crate) async fn feel(shared: Rc<Shared>) {
    let mut last = clock::boot();
    loop {
        let beat = async { shared.server.admin().await.attempt(Method::GET, "/version", None).await };
        let answered = matches!(tokio::time::timeout(ATTEMPT, beat).await, Ok(Ok((200, _))));
        let now = clock::boot();
        // After a standstill the answer and the time limit are found at once, and the answer counts.
        if !answered || now.since(last) > PAUSE + ATTEMPT {
            shared.silences.borrow_mut().push(now);
        }
        last = now;
        tokio::time::sleep(PAUSE).await;
    }
}
