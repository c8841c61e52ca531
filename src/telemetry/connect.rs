//! Connections to a collector on the elector's runtime, with and without TLS.

use std::{
    fmt,
    panic::resume_unwind,
    path::PathBuf,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderMap, Request, Response, Uri};
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper_rustls::HttpsConnector;
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use opentelemetry_http::{HttpClient, HttpError};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceResponse;
use prost::Message as _;
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, pem, pem::PemObject as _},
};
use tokio::{task::spawn_blocking, time::timeout};
use tracing::warn;

use super::{
    grpc,
    settings::{Protocol, Settings},
};
use crate::words::{bounded, one_line};

/// How much of a collector's answer is read, in bytes.
const ANSWER: usize = 64 * 1024;

/// A client for OTLP, over HTTP or gRPC.
pub(crate) struct Collector {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    protocol: Protocol,
    headers: HeaderMap,
    /// For one request and its answer.
    bound: Duration,
    cause: Cause,
}

/// Why the last request had no answer, or what its answer complains of; the exporter says only that there was none.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cause(Arc<Mutex<Option<String>>>);

impl Cause {
    /// On one line; `None` if the answer says it all.
    pub(crate) fn take(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn set(&self, cause: Option<String>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = cause;
    }
}

/// There are no certificate authorities to trust.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TlsError {
    #[error("{variable}: {path} cannot be read")]
    Unreadable {
        variable: String,
        path: PathBuf,
        #[source]
        source: pem::Error,
    },
    #[error("{variable}: {path} holds no PEM certificate")]
    NoCertificate { variable: String, path: PathBuf },
    #[error("no certificate authority is known here: set OTEL_EXPORTER_OTLP_CERTIFICATE to a PEM file")]
    NoRoots,
    #[error("TLS cannot be set up")]
    Setup(#[source] rustls::Error),
}

impl Collector {
    /// For `endpoint`; certificates are read only where it is https. Connects with the first request.
    pub(crate) async fn new(endpoint: &Uri, settings: &Settings) -> Result<Self, TlsError> {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(settings.timeout));
        let roots = if endpoint.scheme_str() == Some("https") { trusted(settings).await? } else { RootCertStore::empty() };
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let mut tls = builder.map_err(TlsError::Setup)?.with_root_certificates(roots).with_no_client_auth();
        let mut client = Client::builder(TokioExecutor::new());
        match settings.protocol {
            Protocol::HttpProtobuf => tls.alpn_protocols = vec![b"http/1.1".to_vec()],
            Protocol::Grpc => {
                tls.alpn_protocols = vec![b"h2".to_vec()];
                client.http2_only(true).timer(TokioTimer::new());
                // Else a stream that is given up leaves its connection in use, dead or not.
                client.http2_keep_alive_interval(settings.timeout / 2).http2_keep_alive_timeout(settings.timeout / 4);
            }
        }
        let client = client.build(HttpsConnector::from((tcp, tls)));
        let (protocol, headers, bound) = (settings.protocol, settings.headers.clone(), settings.timeout);
        Ok(Self { client, protocol, headers, bound, cause: Cause::default() })
    }

    /// Where it records more than an answer says.
    pub(crate) fn cause(&self) -> Cause {
        self.cause.clone()
    }

    async fn exchange(&self, mut request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        // The exporter has set its own reading of the variables; it takes an empty one to mean that there are none.
        for (name, value) in &self.headers {
            request.headers_mut().insert(name, value.clone());
        }
        let request = match self.protocol {
            Protocol::HttpProtobuf => request,
            Protocol::Grpc => grpc::call(request),
        };
        let (head, body) = self.client.request(request.map(Full::new)).await?.into_parts();
        // Why spans were refused is in the status; the rest of such an answer may be an HTML page of any length.
        if !head.status.is_success() {
            return Ok(Response::from_parts(head, Bytes::new()));
        }
        let body = match Limited::new(body, ANSWER).collect().await {
            Ok(body) => body,
            // The spans were accepted: sent again, they would be there twice.
            Err(error) if error.is::<LengthLimitError>() => return Ok(Response::from_parts(head, Bytes::new())),
            Err(error) => return Err(error),
        };
        let trailers = body.trailers().cloned();
        let response = Response::from_parts(head, body.to_bytes());
        Ok(match self.protocol {
            Protocol::HttpProtobuf => response,
            Protocol::Grpc => grpc::answer(response, trailers.as_ref()),
        })
    }
}

/// Reads the certificate authorities off the runtime's thread: a file may be a pipe, or on a mount that hangs.
async fn trusted(settings: &Settings) -> Result<RootCertStore, TlsError> {
    let certificate = settings.certificate.clone();
    let mut reading = spawn_blocking(move || roots(certificate));
    let read = match timeout(settings.timeout, &mut reading).await {
        Ok(read) => read,
        Err(_) => {
            warn!("the certificate authorities for the collector are still being read, and no span is sent before that is done");
            reading.await
        }
    };
    read.unwrap_or_else(|stopped| resume_unwind(stopped.into_panic()))
}

fn roots(certificate: Option<(String, String)>) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    match certificate {
        Some((variable, path)) => {
            let unreadable = |source| TlsError::Unreadable { variable: variable.clone(), path: path.clone().into(), source };
            for certificate in CertificateDer::pem_file_iter(&path).map_err(unreadable)? {
                roots.add(certificate.map_err(unreadable)?).map_err(TlsError::Setup)?;
            }
            if roots.is_empty() {
                return Err(TlsError::NoCertificate { variable: variable.clone(), path: path.into() });
            }
        }
        None => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    if roots.is_empty() { Err(TlsError::NoRoots) } else { Ok(roots) }
}

/// What a collector that accepted the spans complains of. Some answer with what is not an OTLP message, which counts as nothing.
fn complaint(answer: &Bytes) -> Option<String> {
    let partial = ExportTraceServiceResponse::decode(answer.clone()).ok()?.partial_success?;
    let said = bounded(&partial.error_message);
    match partial.rejected_spans {
        ..=0 if said.is_empty() => None,
        ..=0 => Some(said.into_owned()),
        rejected => Some(format!("{rejected} spans rejected: {said}")),
    }
}

impl HttpClient for Collector {
    fn send_bytes<'a, 'b>(
        &'a self,
        request: Request<Bytes>,
    ) -> Pin<Box<dyn Future<Output = Result<Response<Bytes>, HttpError>> + Send + 'b>>
    where
        'a: 'b,
        Self: 'b,
    {
        Box::pin(async move {
            let answer = timeout(self.bound, self.exchange(request)).await.unwrap_or_else(|late| Err(late.into()));
            self.cause.set(match &answer {
                Ok(answer) => complaint(answer.body()),
                Err(error) => Some(one_line(error.as_ref())),
            });
            answer
        })
    }
}

impl fmt::Debug for Collector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Collector").field("protocol", &self.protocol).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
