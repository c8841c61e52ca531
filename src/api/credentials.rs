//! Credentials and connections: made when first needed, and anew when they fail or are in doubt.
//!
//! Owns when that is done, never more than once at a time. It is not tied to a request, because a credential plugin may take
//! longer than a request may. The previous credentials are used until the new ones are there.

use std::{
    sync::{Arc, PoisonError},
    time::Duration,
};

use tokio::{
    sync::Mutex,
    task::{JoinHandle, spawn_blocking},
};

use super::{AccessError, Cluster, Dialer, PLUGIN_PATIENCE};
use crate::{clock, once::Once, time::Instant, words::one_line};

/// Finds the cluster. Called again when files and plugins may give a different answer.
pub(crate) type Discover = Arc<dyn Fn() -> Result<Cluster, AccessError> + Send + Sync>;

/// The least time between two renewals while the last credentials still work: plugins ask other people's servers.
const PAUSE: Duration = Duration::from_secs(10);

/// Shared by the requests and the watch.
#[derive(Clone)]
pub(crate) struct Access {
    discover: Discover,
    connect_timeout: Duration,
    /// A credential plugin that prompts nobody counts as hung after this time.
    patience: Duration,
    state: Arc<Mutex<Credentials>>,
}

#[derive(Default)]
struct Credentials {
    /// A credential plugin that hangs is awaited again, not run a second time in parallel.
    building: Option<JoinHandle<Result<Dialer, AccessError>>>,
    /// When the last build began.
    begun: Instant,
    built: Option<Dialer>,
    /// When to build anew.
    again: Option<Instant>,
    /// The server has refused the credentials: the next request waits for new ones.
    refused: bool,
    /// The failure to renew them was logged.
    told: Once,
    /// That a good token was refused was logged.
    void: Once,
}

impl Access {
    pub(crate) fn new(discover: Discover, connect_timeout: Duration) -> Self {
        Self { discover, connect_timeout, patience: PLUGIN_PATIENCE, state: Arc::default() }
    }

    /// Uses this cluster, and finds it again when it is in doubt.
    pub(crate) fn of(cluster: &Cluster, connect_timeout: Duration, patience: Duration) -> Self {
        let (first, cluster) = (std::sync::Mutex::new(Some(cluster.clone())), cluster.clone());
        let first = move || first.lock().unwrap_or_else(PoisonError::into_inner).take();
        let discover = move || first().map_or_else(|| cluster.anew(), Ok);
        Self { patience, ..Self::new(Arc::new(discover), connect_timeout) }
    }

    /// Returns the dialer for requests. Without credentials this takes as long as a credential plugin does. Once after they were
    /// refused, so does an urgent request. Cancel safe.
    ///
    /// # Errors
    /// There is no access now; the next call tries again.
    pub(crate) async fn dial(&self, is_urgent: bool) -> Result<Dialer, AccessError> {
        let mut state = self.state.lock().await;
        let state = &mut *state;
        let now = clock::boot();
        let is_doubted = state.again.is_some_and(|again| again <= now);
        if !is_doubted && let Some(built) = &state.built {
            return Ok(built.clone());
        }
        let building = state.building.get_or_insert_with(|| {
            state.begun = now;
            self.build()
        });
        // Only one request waits: another server may still accept the old credentials.
        let waits = is_urgent && std::mem::take(&mut state.refused);
        if !waits
            && !building.is_finished()
            && let Some(built) = &state.built
        {
            return Ok(built.clone());
        }
        let made = match building.await {
            Ok(made) => made,
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        };
        (state.building, state.again) = (None, None);
        match (made, &mut state.built) {
            (Ok(dialer), built) => {
                state.told.forget();
                state.again = dialer.until();
                Ok(built.insert(dialer).clone())
            }
            // Expired credentials are used as well: only the server knows whether it still accepts them.
            (Err(error), Some(built)) => {
                if state.told.say() {
                    tracing::warn!(error = one_line(&error), "credentials cannot be renewed; the old ones are used on");
                }
                state.again = Some(clock::boot() + PAUSE);
                Ok(built.clone())
            }
            (Err(error), None) => Err(error),
        }
    }

    /// Reads the credentials again before the next request, because a request's were refused. If that fails, or takes longer than
    /// the request may, the old ones stay in use.
    pub(crate) fn refused(&self) {
        // If the lock is held, new credentials are already being waited for.
        let Ok(mut state) = self.state.try_lock() else { return };
        (state.refused, state.again) = (true, Some(Instant::BOOT));
        if state.built.as_ref().is_some_and(Dialer::has_good_token_of_a_pod) && state.void.say() {
            tracing::warn!(
                "the API server refuses a token that has not expired: the pod was deleted by force, or its service account was \
                 deleted, so that nobody here can release the Lease any more"
            );
        }
    }

    /// Reads the server's address, its CA and the credentials again soon, because the server was not reached, or refused the
    /// watch (law 16). Delays no request, and is seldom enough for a long outage.
    pub(super) fn doubt(&self) {
        let Ok(mut state) = self.state.try_lock() else { return };
        let soon = state.begun + PAUSE;
        state.again = Some(state.again.map_or(soon, |again| again.min(soon)));
    }

    fn build(&self) -> JoinHandle<Result<Dialer, AccessError>> {
        let (discover, connect_timeout, patience) = (Arc::clone(&self.discover), self.connect_timeout, self.patience);
        tokio::spawn(async move {
            let found = spawn_blocking(move || discover()).await;
            let cluster = found.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))?;
            cluster.dialer(connect_timeout, patience).await
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        atomic::{AtomicUsize, Ordering},
        mpsc,
    };

    use super::*;

    fn counted() -> (Access, Arc<AtomicUsize>) {
        let made = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&made);
        let discover = move || {
            count.fetch_add(1, Ordering::Relaxed);
            Ok(Cluster::without_credentials("http://127.0.0.1:1"))
        };
        (Access::new(Arc::new(discover), PAUSE), made)
    }

    /// Finds a cluster at once, and later finds what `again` does once the sender is dropped.
    fn held_back(again: fn() -> Result<Cluster, AccessError>) -> (Access, Arc<AtomicUsize>, mpsc::Sender<()>) {
        let made = Arc::new(AtomicUsize::new(0));
        let (count, (release, held)) = (Arc::clone(&made), mpsc::channel());
        let held = std::sync::Mutex::new(held);
        let discover = move || match count.fetch_add(1, Ordering::Relaxed) {
            0 => Ok(Cluster::without_credentials("http://127.0.0.1:1")),
            _ => {
                let _ = held.lock().unwrap().recv();
                again()
            }
        };
        (Access::new(Arc::new(discover), PAUSE), made, release)
    }

    fn nowhere() -> Result<Cluster, AccessError> {
        Cluster::from_kubeconfig(&["/nonexistent/config".into()])
    }

    async fn attempt_is_over(access: &Access) {
        while access.state.lock().await.building.as_ref().is_some_and(|building| !building.is_finished()) {
            tokio::task::yield_now().await;
        }
    }

    async fn long_ago(access: &Access) {
        access.state.lock().await.begun = clock::boot().before(PAUSE);
    }

    async fn until_another_than(first: &Dialer, access: &Access) {
        let another = async {
            while access.dial(true).await.unwrap().is(first) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), another).await.expect("another dialer");
    }

    #[tokio::test]
    async fn a_server_that_is_not_reached_is_looked_for_again_while_the_old_access_serves() {
        let (access, made, release) = held_back(|| Ok(Cluster::without_credentials("http://127.0.0.1:1")));
        let first = access.dial(true).await.unwrap();
        long_ago(&access).await;

        access.doubt();

        assert!(access.dial(true).await.unwrap().is(&first), "without a delay");
        drop(release);
        until_another_than(&first, &access).await;
        assert_eq!(made.load(Ordering::Relaxed), 2);
    }

    #[tokio::test]
    async fn the_old_access_serves_on_where_none_can_be_made_anew_and_that_is_not_tried_at_each_request() {
        let (access, made, release) = held_back(nowhere);
        let first = access.dial(true).await.unwrap();
        long_ago(&access).await;
        access.doubt();
        drop(release);

        for _ in 0..10 {
            assert!(access.dial(true).await.unwrap().is(&first));
            attempt_is_over(&access).await;
        }

        assert_eq!(made.load(Ordering::Relaxed), 2);
    }

    #[tokio::test]
    async fn refused_credentials_are_waited_for_by_one_request_and_used_on_where_they_cannot_be_made_anew() {
        let (access, made, release) = held_back(nowhere);
        let first = access.dial(true).await.unwrap();

        access.refused();

        let waiting = tokio::time::timeout(Duration::from_millis(50), access.dial(true)).await;
        assert!(waiting.is_err(), "new ones are waited for");
        assert!(access.dial(true).await.unwrap().is(&first), "the old ones serve while they are made");
        drop(release);
        attempt_is_over(&access).await;
        assert!(access.dial(true).await.unwrap().is(&first), "and where they cannot be made");
        assert_eq!(made.load(Ordering::Relaxed), 2);
    }

    #[tokio::test]
    async fn doubts_in_a_row_are_one() {
        let (access, made) = counted();
        let first = access.dial(true).await.unwrap();

        for _ in 0..10 {
            access.doubt();
            assert!(access.dial(true).await.unwrap().is(&first));
        }

        assert!(access.state.lock().await.building.is_none());
        assert_eq!(made.load(Ordering::Relaxed), 1);
    }
}
