//! Connections to a collector, on the elector's runtime, with and without TLS.

use std::{fmt, path::PathBuf, pin::Pin, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{Request, Response, Uri};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_rustls::HttpsConnector;
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use opentelemetry_http::{HttpClient, HttpError};
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, pem, pem::PemObject as _},
};
use tokio::time::timeout;
use tonic::transport::{Channel, Endpoint};

use super::settings::{Protocol, Settings};

/// What a collector may answer, in bytes.
const ANSWER: usize = 64 * 1024;

/// Opens connections.
#[derive(Clone)]
pub(crate) struct Connector(HttpsConnector<HttpConnector>);

/// There is nobody to trust.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TlsError {
    #[error("OTEL_EXPORTER_OTLP_CERTIFICATE: {path} cannot be read")]
    Unreadable {
        path: PathBuf,
        #[source]
        source: pem::Error,
    },
    #[error("no certificate authority is known here: set OTEL_EXPORTER_OTLP_CERTIFICATE to a PEM file")]
    NoRoots,
    #[error("TLS cannot be set up")]
    Setup(#[source] rustls::Error),
}

impl Connector {
    /// For `endpoint`; certificates are read only where it is https.
    pub(crate) fn new(endpoint: &Uri, settings: &Settings) -> Result<Self, TlsError> {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(settings.timeout));
        let roots = if endpoint.scheme_str() == Some("https") { roots(settings)? } else { RootCertStore::empty() };
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let mut tls = builder.map_err(TlsError::Setup)?.with_root_certificates(roots).with_no_client_auth();
        tls.alpn_protocols = match settings.protocol {
            Protocol::HttpProtobuf => vec![b"http/1.1".to_vec()],
            Protocol::Grpc => vec![b"h2".to_vec()],
        };
        Ok(Self(HttpsConnector::from((tcp, tls))))
    }

    /// A client for OTLP over HTTP; `bound` is for one request and its answer.
    pub(crate) fn http(self, bound: Duration) -> impl HttpClient + 'static {
        Http { client: Client::builder(TokioExecutor::new()).build(self.0), bound }
    }

    /// A channel for OTLP over gRPC, connected with the first request.
    pub(crate) fn grpc(self, endpoint: Uri, bound: Duration) -> Channel {
        Endpoint::from(endpoint).timeout(bound).connect_with_connector_lazy(self.0)
    }
}

fn roots(settings: &Settings) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    match &settings.certificate {
        Some(path) => {
            let unreadable = |source| TlsError::Unreadable { path: path.into(), source };
            for certificate in CertificateDer::pem_file_iter(path).map_err(unreadable)? {
                roots.add(certificate.map_err(unreadable)?).map_err(TlsError::Setup)?;
            }
        }
        None => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    if roots.is_empty() { Err(TlsError::NoRoots) } else { Ok(roots) }
}

struct Http {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    bound: Duration,
}

impl HttpClient for Http {
    fn send_bytes<'a, 'b>(
        &'a self,
        request: Request<Bytes>,
    ) -> Pin<Box<dyn Future<Output = Result<Response<Bytes>, HttpError>> + Send + 'b>>
    where
        'a: 'b,
        Self: 'b,
    {
        Box::pin(async move {
            let exchange = async {
                let (head, body) = self.client.request(request.map(Full::new)).await?.into_parts();
                let body = Limited::new(body, ANSWER).collect().await?.to_bytes();
                Ok(Response::from_parts(head, body))
            };
            timeout(self.bound, exchange).await?
        })
    }
}

impl fmt::Debug for Http {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Http").finish_non_exhaustive()
    }
}
