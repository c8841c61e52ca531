//! The exporter's HTTP client, on the elector's runtime, with and without TLS.
//!
//! Owns the connections to the collector and the limits of an exchange in time and size. A failure is logged once for each state,
//! and never in the collector's words, with the URL or a header: these may hold credentials.

use std::{
    path::PathBuf,
    pin::Pin,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Collected, Full, Limited};
use hyper_rustls::HttpsConnector;
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use opentelemetry_http::{HttpClient, HttpError};
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, pem::PemObject as _},
};
use tokio::{runtime::Handle, time::timeout};
use tracing::{info, warn};

use super::{
    export::{OtlpConfig, Protocol, Signal},
    grpc,
};
use crate::{api::few_heads, config::duration, words::one_line};

/// How much of a collector's answer is read, in bytes.
const ANSWER: usize = 64 * 1024;

/// The client of one collector.
#[derive(Debug)]
pub(super) struct CollectorClient {
    runtime: Handle,
    config: OtlpConfig,
    /// Made for the first request for which they can be.
    connections: OnceLock<Connections>,
    is_failing: AtomicBool,
}

#[derive(Clone, Debug)]
struct Connections {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    signal: Signal,
    protocol: Protocol,
    timeout: Duration,
}

impl CollectorClient {
    /// Connects with the first request, in tasks of the current runtime.
    pub(super) fn new(config: OtlpConfig) -> Self {
        Self { runtime: Handle::current(), config, connections: OnceLock::new(), is_failing: AtomicBool::new(false) }
    }

    async fn send(&self, request: Request<Bytes>) -> Result<(Response<Bytes>, Option<String>), HttpError> {
        // Certificates may be on a mount that hangs, which holds up the processor's thread alone.
        let connections = match self.connections.get() {
            Some(connections) => connections.clone(),
            None => {
                let made = Connections::new(&self.config)?;
                self.connections.get_or_init(|| made).clone()
            }
        };
        let limit = connections.timeout;
        // A timeout is made on the runtime's thread, which this is not.
        let exchange = self.runtime.spawn(async move { timeout(limit, connections.exchange(request)).await });
        exchange.await?.map_err(|_| format!("no answer within {}", duration::format(limit)))?
    }

    fn tell(&self, failure: Option<String>) {
        let is_failing = failure.is_some();
        if self.is_failing.swap(is_failing, Ordering::Relaxed) == is_failing {
            return;
        }
        match failure {
            Some(error) => warn!(error, "the collector does not take {}", self.config.signal.plural()),
            None => info!("the collector takes {} again", self.config.signal.plural()),
        }
    }
}

impl HttpClient for CollectorClient {
    fn send_bytes<'a, 'b>(
        &'a self,
        request: Request<Bytes>,
    ) -> Pin<Box<dyn Future<Output = Result<Response<Bytes>, HttpError>> + Send + 'b>>
    where
        'a: 'b,
        Self: 'b,
    {
        Box::pin(async move {
            let answer = self.send(request).await;
            self.tell(match &answer {
                Ok((_, refusal)) => refusal.clone(),
                Err(error) => Some(one_line(error.as_ref())),
            });
            answer.map(|(response, _)| response)
        })
    }
}

impl Connections {
    /// Err: why there are none.
    fn new(config: &OtlpConfig) -> Result<Self, String> {
        let OtlpConfig { signal, protocol, timeout, .. } = *config;
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        let roots = if config.is_https { roots(config.certificate.clone())? } else { RootCertStore::empty() };
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let builder = builder.map_err(|error| format!("TLS cannot be set up: {}", one_line(&error)))?;
        let mut tls = builder.with_root_certificates(roots).with_no_client_auth();
        let mut client = Client::builder(TokioExecutor::new());
        match protocol {
            Protocol::HttpProtobuf => tls.alpn_protocols = vec![b"http/1.1".to_vec()],
            Protocol::Grpc => {
                tls.alpn_protocols = vec![b"h2".to_vec()];
                client.http2_only(true).timer(TokioTimer::new());
                // Else a stream that is given up leaves its connection in use, dead or not.
                client.http2_keep_alive_interval(timeout / 2).http2_keep_alive_timeout(timeout / 4);
            }
        }
        Ok(Self { client: client.build(HttpsConnector::from((tcp, tls))), signal, protocol, timeout })
    }

    /// The answer as of OTLP over HTTP, and why the spans were not taken, if they were not.
    async fn exchange(self, request: Request<Bytes>) -> Result<(Response<Bytes>, Option<String>), HttpError> {
        let request = match self.protocol {
            Protocol::HttpProtobuf => request,
            Protocol::Grpc => grpc::call(self.signal, request)?,
        };
        let (mut head, body) = few_heads(request.map(Full::new), |request| self.client.request(request)).await??.into_parts();
        let mut refusal = (!head.status.is_success()).then(|| format!("HTTP {}", head.status));
        if refusal.is_none() {
            // The spans are taken, whatever else is said: sent again, they would be there twice.
            let body = Limited::new(body, ANSWER).collect().await;
            if self.protocol == Protocol::Grpc {
                let code = grpc::code(&head.headers, body.as_ref().ok().and_then(Collected::trailers));
                head.status = grpc::http_status(code);
                refusal = grpc::refusal(code);
            }
        }
        Ok((Response::from_parts(head, Bytes::new()), refusal))
    }
}

/// The certificate authorities to trust. Err: why there are none.
fn roots(certificate: Option<(String, PathBuf)>) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    let Some((variable, path)) = certificate else {
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        if roots.is_empty() {
            return Err("no certificate authority is known here: set OTEL_EXPORTER_OTLP_CERTIFICATE to a PEM file".into());
        }
        return Ok(roots);
    };
    let read = CertificateDer::pem_file_iter(&path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let path = path.display();
    roots.add_parsable_certificates(read.map_err(|error| format!("{variable}: {path} cannot be read: {}", one_line(&error)))?);
    if roots.is_empty() {
        return Err(format!("{variable}: {path} holds no PEM certificate that can be used"));
    }
    Ok(roots)
}

#[cfg(test)]
mod tests;
