//! The client of the API server: sends single requests, each on a connection that nobody doubts, and begins watches, each on one of
//! its own.
//!
//! Owns the connection that requests share, when it is replaced (law 5), and the deadline of a request, which begins with the wait
//! for credentials. Never retries.

use std::{sync::Arc, time::Duration};

use kube::client::Body;
use tokio::{sync::Mutex, time};

use super::{
    classify::{Answered, classify},
    credentials::Access,
    dial::Dialer,
    exchange::{ExchangeError, exchange},
    request::Request,
    watch::{Watch, Watching},
};
use crate::{
    clock,
    config::duration,
    request::{Answer, Refusal, RequestError, WatchEnd},
    time::Instant,
    words::one_line,
};

/// Sends requests. Clones share the connection.
#[derive(Clone)]
pub(crate) struct Client {
    access: Access,
    timeout: Duration,
    /// A refusal of the credentials has the next request wait for new ones.
    is_urgent: bool,
    connection: Arc<Mutex<Option<(Dialer, kube::Client)>>>,
}

/// A request that can be sent, until its deadline.
struct Prepared {
    client: kube::Client,
    http: http::Request<Body>,
    end: time::Instant,
}

impl Client {
    /// `timeout` is that of each request, from credentials to the last byte of the reply.
    pub(crate) fn new(access: Access, timeout: Duration) -> Self {
        Self { access, timeout, is_urgent: true, connection: Arc::default() }
    }

    /// The same for requests that no term depends on. No request of another client ever waits because of one.
    pub(crate) fn beside(access: Access, timeout: Duration) -> Self {
        Self { is_urgent: false, ..Self::new(access, timeout) }
    }

    /// Sends `request` once. After an open outcome, and after every refusal that another server might not repeat, the next request
    /// uses a new connection (law 5); after a refusal of the credentials, new credentials too.
    pub(crate) async fn send(&self, request: &Request) -> Answered {
        let prepared = self.prepare(request).await;
        self.finish(request, prepared).await
    }

    /// The same, unless `until` has passed before the first byte.
    pub(crate) async fn send_before(&self, until: Instant, request: &Request) -> Option<Answered> {
        let prepared = self.prepare(request).await;
        // The process may have been stopped meanwhile.
        if prepared.is_ok() && clock::boot() >= until {
            return None;
        }
        Some(self.finish(request, prepared).await)
    }

    /// Sends what is prepared, and draws the consequences for the connection and the credentials.
    async fn finish(&self, request: &Request, prepared: Result<Prepared, Answered>) -> Answered {
        let answered = match prepared {
            Ok(prepared) => self.exchange(request, prepared).await,
            Err(answered) => answered,
        };
        let is_in_doubt = match &answered.answer {
            Answer::Object(_) | Answer::Listed { .. } | Answer::Deleted | Answer::NotFound | Answer::Conflict => false,
            // Every server refuses an invalid object.
            Answer::Refused { message, .. } => message.status != Some(422),
            Answer::Unknown { .. } => true,
        };
        if is_in_doubt {
            *self.connection.lock().await = None;
        }
        // Without a status there were no credentials, and the server was not asked.
        if let Answer::Refused { refusal: Refusal::Unauthorized, message } = &answered.answer
            && message.status.is_some()
        {
            if self.is_urgent { self.access.refused() } else { self.access.doubt() }
        }
        answered
    }

    /// Waits for a connection. Not a byte is sent.
    async fn prepare(&self, request: &Request) -> Result<Prepared, Answered> {
        let end = time::Instant::now() + self.timeout;
        let late = |_| Err(format!("no credentials within {}", duration::format(self.timeout)).into());
        let client = time::timeout_at(end, self.connected()).await.unwrap_or_else(late);
        let client = client.map_err(|error: RequestError| Answered::not_sent(Refusal::Unauthorized, error))?;
        let http = request.http().map_err(|error| Answered::not_sent(Refusal::Invalid, one_line(&error)))?;
        Ok(Prepared { client, http, end })
    }

    async fn exchange(&self, request: &Request, Prepared { client, http, end }: Prepared) -> Answered {
        let reply = exchange(&client, http, end.saturating_duration_since(time::Instant::now())).await;
        let reply = reply.map_err(|error| match error {
            ExchangeError::Timeout(_) => ExchangeError::Timeout(self.timeout),
            ExchangeError::Transport(_) | ExchangeError::Body(_) => error,
        });
        if let Err(ExchangeError::Transport(_) | ExchangeError::Timeout(_)) = &reply {
            self.access.doubt();
        }
        classify(request, reply)
    }

    async fn connected(&self) -> Result<kube::Client, RequestError> {
        let mut connection = self.connection.lock().await;
        // A failed watch is no reason to drop a connection that works (law 16). One that is used rarely has no token that lives on.
        if self.is_urgent
            && let Some((dialer, client)) = connection.as_ref()
            && dialer.until().is_none_or(|until| clock::boot() < until)
        {
            return Ok(client.clone());
        }
        let dialer = self.access.dial(self.is_urgent).await.map_err(|error| one_line(&error))?;
        if let Some((used, client)) = connection.as_ref()
            && used.is(&dialer)
        {
            return Ok(client.clone());
        }
        let client = dialer.client();
        *connection = Some((dialer, client.clone()));
        Ok(client)
    }

    /// Begins a watch, on a connection of its own.
    ///
    /// # Errors
    /// The server refuses it, or does not answer within the timeout.
    pub(crate) async fn watch(&self, watch: Watch) -> Result<Watching, WatchEnd> {
        Watching::begin(self.access.clone(), watch, self.timeout).await
    }
}
