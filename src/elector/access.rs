//! Credentials and connections: made when they are first needed, and made anew when they fail.

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::Mutex,
    task::{JoinHandle, spawn_blocking},
};

use crate::api::{AccessError, Cluster, Dialer};

/// Finds the cluster. It is asked again after a 401, because files and plugins may say something else by then.
pub(super) type Discover = Arc<dyn Fn() -> Result<Cluster, AccessError> + Send + Sync>;

/// Shared by the requests and the watch.
#[derive(Clone)]
pub(super) struct Access {
    discover: Discover,
    connect_timeout: Duration,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    /// A credential plugin that hangs is waited for again, and not run a second time beside itself.
    building: Option<JoinHandle<Result<Dialer, AccessError>>>,
    dialer: Option<Dialer>,
}

impl Access {
    pub(super) fn new(discover: Discover, connect_timeout: Duration) -> Self {
        Self { discover, connect_timeout, state: Arc::default() }
    }

    /// What clients are made with. Takes as long as a credential plugin does; safe to give up on.
    ///
    /// # Errors
    /// There is no access now; the next call tries again.
    pub(super) async fn dialer(&self) -> Result<Dialer, AccessError> {
        let mut state = self.state.lock().await;
        if let Some(dialer) = &state.dialer {
            return Ok(dialer.clone());
        }
        let (discover, connect_timeout) = (Arc::clone(&self.discover), self.connect_timeout);
        let building = state.building.get_or_insert_with(|| spawn_blocking(move || discover()?.dialer(connect_timeout)));
        let built = building.await;
        state.building = None;
        let dialer = match built {
            Ok(dialer) => dialer?,
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        };
        state.dialer = Some(dialer.clone());
        Ok(dialer)
    }

    /// Credentials were refused: reads them again before the next request.
    pub(super) async fn forget(&self) {
        self.state.lock().await.dialer = None;
    }
}
