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
use http::{HeaderMap, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt as _, Collected, Full, LengthLimitError, Limited};
use hyper_rustls::HttpsConnector;
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use opentelemetry_http::{HttpClient, HttpError};
use opentelemetry_proto::tonic::collector::trace::v1::{ExportTracePartialSuccess, ExportTraceServiceResponse};
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

/// How long is read what a refusal says besides its status.
const REFUSAL: Duration = Duration::from_secs(1);

/// A client for OTLP, over HTTP or gRPC.
pub(crate) struct Collector {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    protocol: Protocol,
    headers: HeaderMap,
    /// What goes with each request and is not to be shown, even if a collector repeats it.
    secrets: Vec<String>,
    cause: Cause,
}

/// Why the last request had no answer, or what its answer complains of; the exporter knows a status at most.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cause(Arc<Mutex<Option<String>>>);

impl Cause {
    /// On one line; `None` if there is nothing to complain of.
    pub(crate) fn take(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn set(&self, cause: Option<String>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = cause;
    }
}

/// What is wrong with an answer.
#[derive(Debug)]
pub(crate) struct Complaint {
    /// In our words.
    pub(crate) ours: String,
    /// In the collector's.
    pub(crate) theirs: String,
}

/// What OTLP/HTTP answers where it takes no spans: `google.rpc.Status`.
#[derive(prost::Message)]
struct Refusal {
    #[prost(string, tag = "2")]
    message: String,
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
    #[error("{variable}: {path} holds a certificate that cannot be used")]
    Unusable {
        variable: String,
        path: PathBuf,
        #[source]
        source: rustls::Error,
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
        let (protocol, headers, secrets) = (settings.protocol, settings.headers.clone(), secrets(endpoint, &settings.headers));
        Ok(Self { client, protocol, headers, secrets, cause: Cause::default() })
    }

    /// Where it records more than an answer says.
    pub(crate) fn cause(&self) -> Cause {
        self.cause.clone()
    }

    async fn exchange(&self, mut request: Request<Bytes>) -> Result<(Response<Bytes>, Option<Complaint>), HttpError> {
        // The exporter has set its own reading of the variables; it takes an empty one to mean that there are none.
        for (name, value) in &self.headers {
            request.headers_mut().insert(name, value.clone());
        }
        let request = match self.protocol {
            Protocol::HttpProtobuf => request,
            Protocol::Grpc => grpc::call(request),
        };
        let (head, body) = self.client.request(request.map(Full::new)).await?.into_parts();
        let body = Limited::new(body, ANSWER).collect();
        // What counts is the status; the rest may be an HTML page that never ends.
        if !head.status.is_success() {
            let body = timeout(REFUSAL, body).await.ok().and_then(Result::ok).map(Collected::to_bytes);
            let refusal = refusal(head.status, body.unwrap_or_default());
            return Ok((Response::from_parts(head, Bytes::new()), Some(refusal)));
        }
        let body = match body.await {
            Ok(body) => body,
            // The spans were accepted: sent again, they would be there twice.
            Err(error) if error.is::<LengthLimitError>() => return Ok((Response::from_parts(head, Bytes::new()), None)),
            Err(error) => return Err(error),
        };
        let trailers = body.trailers().cloned();
        let response = Response::from_parts(head, body.to_bytes());
        let (response, failure) = match self.protocol {
            Protocol::HttpProtobuf => (response, None),
            Protocol::Grpc => grpc::answer(response, trailers.as_ref()),
        };
        let complaint = failure.or_else(|| partial(response.body()));
        Ok((response, complaint))
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
            let unusable = |source| TlsError::Unusable { variable: variable.clone(), path: path.clone().into(), source };
            for certificate in CertificateDer::pem_file_iter(&path).map_err(unreadable)? {
                roots.add(certificate.map_err(unreadable)?).map_err(unusable)?;
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

/// Every word that headers carry, but for the one that says how they are to be read (`Bearer`), and what the URL's query does.
/// What is shorter than four bytes is no secret, and may stand in any word.
fn secrets(endpoint: &Uri, headers: &HeaderMap) -> Vec<String> {
    let carried = headers.values().filter_map(|value| value.to_str().ok()).flat_map(|value| {
        let (scheme, rest) = value.split_once(' ').unwrap_or(("", value));
        let is_scheme = scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        (if is_scheme { rest } else { value }).split([' ', '\t', ';', '=', ','])
    });
    let asked = endpoint.query().into_iter().flat_map(|query| query.split('&'));
    let asked = asked.map(|pair| pair.split_once('=').map_or(pair, |(_, value)| value));
    carried.chain(asked).filter(|secret| secret.len() > 3).map(str::to_owned).collect()
}

/// What a collector that takes no spans says of it. Some answer with what is not an OTLP message, which counts as nothing.
fn refusal(status: StatusCode, answer: Bytes) -> Complaint {
    let theirs = Refusal::decode(answer).map(|refusal| refusal.message).unwrap_or_default();
    Complaint { ours: format!("HTTP {status}"), theirs }
}

/// What a collector that accepted the spans complains of. Some answer with what is not an OTLP message, which counts as nothing.
fn partial(answer: &Bytes) -> Option<Complaint> {
    let ExportTracePartialSuccess { rejected_spans: rejected, error_message: theirs } =
        ExportTraceServiceResponse::decode(answer.clone()).ok()?.partial_success?;
    (rejected > 0 || !theirs.is_empty()).then(|| Complaint { ours: format!("{} spans rejected", rejected.max(0)), theirs })
}

impl Complaint {
    /// On one line of a bounded length, without `secrets`.
    fn told(&self, secrets: &[String]) -> String {
        let Self { ours, theirs } = self;
        let theirs = secrets.iter().fold(theirs.clone(), |text, secret| text.replace(secret, "***"));
        let theirs = bounded(theirs.trim());
        if theirs.is_empty() { ours.clone() } else { format!("{ours}: {theirs}") }
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
            let answer = self.exchange(request).await;
            self.cause.set(match &answer {
                Ok((_, complaint)) => complaint.as_ref().map(|complaint| complaint.told(&self.secrets)),
                Err(error) => Some(one_line(error.as_ref())),
            });
            answer.map(|(response, _)| response)
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
