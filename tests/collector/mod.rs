//! A collector for tests: receives OTLP over HTTP or gRPC on a free loopback port, with or without TLS, and decodes it.
//!
//! It runs on its own thread until it is dropped.

#![allow(unreachable_pub, reason = "a test binary's module")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
        mpsc::{Receiver, Sender, channel},
    },
    thread::JoinHandle,
};

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::{
    body::Incoming,
    server::conn::{http1, http2},
    service::service_fn,
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use opentelemetry_proto::tonic::{
    collector::{
        metrics::v1::{
            ExportMetricsServiceRequest, ExportMetricsServiceResponse,
            metrics_service_server::{MetricsService, MetricsServiceServer},
        },
        trace::v1::{
            ExportTraceServiceRequest, ExportTraceServiceResponse,
            trace_service_server::{TraceService, TraceServiceServer},
        },
    },
    common::v1::{KeyValue, any_value::Value},
    trace::v1::{Span, span::Link},
};
use prost::Message as _;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpListener,
    sync::oneshot,
};
use tokio_rustls::TlsAcceptor;
use tonic::{Code, Status};
use tower::Service as _;

pub mod picture;

/// The protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wire {
    Http,
    Grpc,
}

/// How it responds to what it understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// Accepts it.
    Obliging,
    /// Reads it and never answers.
    Silent,
    /// Is out of service for as many requests, and obliging from then on.
    Late(usize),
    /// Refuses it for good, and repeats the credentials.
    Refusing,
}

/// A span in readable form.
#[derive(Clone, Debug)]
pub struct Seen {
    pub name: String,
    pub trace: String,
    pub span: String,
    /// Empty for a root span.
    pub parent: String,
    /// Its flag "the parent is remote", if the exporter set it.
    pub parent_is_remote: Option<bool>,
    /// (trace, span) of each link.
    pub links: Vec<(String, String)>,
    /// Nanoseconds since 1970.
    pub begin: u64,
    pub end: u64,
    pub attributes: BTreeMap<String, String>,
    pub resource: BTreeMap<String, String>,
    /// Headers of the request that carried it.
    pub headers: HeaderMap,
}

impl Seen {
    /// Returns whether the span is a child of `whole`, of the same replica.
    pub fn is_part_of(&self, whole: &Self) -> bool {
        self.parent == whole.span && self.resource == whole.resource
    }
}

pub struct Collector {
    address: SocketAddr,
    wire: Wire,
    certificate: Option<String>,
    arrived: Receiver<Seen>,
    metrics: Arc<Mutex<BTreeSet<String>>>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
    seen: Vec<Seen>,
}

impl Collector {
    pub fn start(wire: Wire, manner: Manner) -> Self {
        Self::serve(wire, manner, None)
    }

    /// With a certificate for `localhost` in `directory` that only itself vouches for.
    pub fn start_with_tls(wire: Wire, directory: &Path) -> Self {
        let issued = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        let certificate = directory.join(format!("{wire:?}.pem"));
        std::fs::write(&certificate, issued.cert.pem()).unwrap();
        let key = rustls::pki_types::PrivateKeyDer::try_from(issued.signing_key.serialize_der()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let mut config = builder.with_no_client_auth().with_single_cert(vec![issued.cert.der().clone()], key).unwrap();
        config.alpn_protocols = match wire {
            Wire::Http => vec![b"http/1.1".to_vec()],
            Wire::Grpc => vec![b"h2".to_vec()],
        };
        Self::serve(wire, Manner::Obliging, Some((TlsAcceptor::from(Arc::new(config)), certificate.to_str().unwrap().to_owned())))
    }

    fn serve(wire: Wire, manner: Manner, tls: Option<(TlsAcceptor, String)>) -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let (arrive, arrived) = channel();
        let (stop, stopped) = oneshot::channel();
        let (acceptor, certificate) = tls.unzip();
        let metrics = Arc::default();
        let named = Arc::clone(&metrics);
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async move {
                let listener = TcpListener::from_std(listener).unwrap();
                tokio::select! {
                    () = accept(listener, acceptor, wire, Take { manner, arrive, named, asked: Arc::default() }) => {}
                    _ = stopped => {}
                }
            });
        });
        Self { address, wire, certificate, arrived, metrics, stop: Some(stop), thread: Some(thread), seen: Vec::new() }
    }

    /// The value for OTEL_EXPORTER_OTLP_ENDPOINT.
    pub fn endpoint(&self) -> String {
        match self.certificate {
            Some(_) => format!("https://localhost:{}", self.address.port()),
            None => format!("http://{}", self.address),
        }
    }

    /// Returns the environment in which a replica sends each span at once.
    pub fn environment(&self) -> [(String, String); 3] {
        let protocol = match self.wire {
            Wire::Http => "http/protobuf",
            Wire::Grpc => "grpc",
        };
        [
            ("OTEL_EXPORTER_OTLP_ENDPOINT".to_owned(), self.endpoint()),
            ("OTEL_EXPORTER_OTLP_PROTOCOL".to_owned(), protocol.to_owned()),
            ("OTEL_BSP_SCHEDULE_DELAY".to_owned(), "10".to_owned()),
        ]
    }

    /// The value for OTEL_EXPORTER_OTLP_CERTIFICATE.
    pub fn certificate(&self) -> String {
        self.certificate.clone().unwrap()
    }

    /// Returns the spans that have arrived by now.
    pub fn seen(&mut self) -> Vec<Seen> {
        self.seen.extend(self.arrived.try_iter());
        self.seen.clone()
    }

    /// The names of the metrics that have arrived since the last call. They are taken at once, whatever the manner.
    pub fn metrics(&self) -> BTreeSet<String> {
        std::mem::take(&mut self.metrics.lock().unwrap())
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        drop(self.stop.take());
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

async fn accept(listener: TcpListener, tls: Option<TlsAcceptor>, wire: Wire, take: Take) {
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let (tls, take) = (tls.clone(), take.clone());
        tokio::spawn(async move {
            match tls {
                None => exchange(stream, wire, take).await,
                Some(tls) => {
                    if let Ok(stream) = tls.accept(stream).await {
                        exchange(stream, wire, take).await;
                    }
                }
            }
        });
    }
}

async fn exchange(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, wire: Wire, take: Take) {
    let io = TokioIo::new(stream);
    let _ = match wire {
        Wire::Http => http1::Builder::new().serve_connection(io, service_fn(|request| take.clone().over_http(request))).await,
        Wire::Grpc => {
            let (traces, metrics) = (TraceServiceServer::new(take.clone()), MetricsServiceServer::new(take));
            let service = service_fn(move |request: Request<Incoming>| {
                let (mut traces, mut metrics) = (traces.clone(), metrics.clone());
                async move {
                    let is_metrics = request.uri().path().contains("MetricsService");
                    if is_metrics { metrics.call(request).await } else { traces.call(request).await }
                }
            });
            http2::Builder::new(TokioExecutor::new()).serve_connection(io, service).await
        }
    };
}

#[derive(Clone)]
struct Take {
    manner: Manner,
    arrive: Sender<Seen>,
    named: Arc<Mutex<BTreeSet<String>>>,
    /// How often.
    asked: Arc<AtomicUsize>,
}

impl Take {
    async fn over_http(self, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, hyper::Error> {
        let (head, body) = request.into_parts();
        if head.uri.path() == "/v1/metrics" {
            let message = ExportMetricsServiceRequest::decode(body.collect().await?.to_bytes()).unwrap();
            self.name(message);
            return Ok(Response::new(Full::default()));
        }
        assert_eq!((head.uri.path(), &head.headers["content-type"]), ("/v1/traces", &"application/x-protobuf".parse().unwrap()));
        let message = ExportTraceServiceRequest::decode(body.collect().await?.to_bytes()).unwrap();
        let (status, answer) = match self.take(message, &head.headers).await {
            Ok(answer) => (StatusCode::OK, answer.encode_to_vec()),
            Err(refusal) => {
                let passes = refusal.code() == Code::Unavailable;
                let status = if passes { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::FORBIDDEN };
                (status, refusal.message().into())
            }
        };
        Ok(Response::builder().status(status).body(answer.into()).unwrap())
    }

    fn name(&self, message: ExportMetricsServiceRequest) {
        let scopes = message.resource_metrics.into_iter().flat_map(|of_resource| of_resource.scope_metrics);
        let names = scopes.flat_map(|of_scope| of_scope.metrics).map(|metric| metric.name);
        self.named.lock().unwrap().extend(names);
    }

    async fn take(&self, message: ExportTraceServiceRequest, headers: &HeaderMap) -> Result<ExportTraceServiceResponse, Status> {
        match self.manner {
            Manner::Late(tries) if self.asked.fetch_add(1, Ordering::Relaxed) < tries => {
                return Err(Status::unavailable("starting"));
            }
            Manner::Refusing => return Err(Status::permission_denied(format!("no\n{:?}", headers["authorization"]))),
            Manner::Late(_) | Manner::Obliging | Manner::Silent => {}
        }
        for seen in read(message, headers) {
            let _ = self.arrive.send(seen);
        }
        if self.manner == Manner::Silent {
            std::future::pending::<()>().await;
        }
        Ok(ExportTraceServiceResponse::default())
    }
}

#[tonic::async_trait]
impl MetricsService for Take {
    async fn export(
        &self,
        request: tonic::Request<ExportMetricsServiceRequest>,
    ) -> Result<tonic::Response<ExportMetricsServiceResponse>, Status> {
        self.name(request.into_inner());
        Ok(tonic::Response::new(ExportMetricsServiceResponse::default()))
    }
}

#[tonic::async_trait]
impl TraceService for Take {
    async fn export(
        &self,
        request: tonic::Request<ExportTraceServiceRequest>,
    ) -> Result<tonic::Response<ExportTraceServiceResponse>, Status> {
        let headers = request.metadata().clone().into_headers();
        Ok(tonic::Response::new(self.take(request.into_inner(), &headers).await?))
    }
}

fn read(request: ExportTraceServiceRequest, headers: &HeaderMap) -> Vec<Seen> {
    let mut all = Vec::new();
    for of_resource in request.resource_spans {
        let resource = of_resource.resource.map(|resource| readable(resource.attributes)).unwrap_or_default();
        for span in of_resource.scope_spans.into_iter().flat_map(|of_scope| of_scope.spans) {
            all.push(seen(span, &resource, headers));
        }
    }
    all
}

fn seen(span: Span, resource: &BTreeMap<String, String>, headers: &HeaderMap) -> Seen {
    let link = |link: Link| (hex(&link.trace_id), hex(&link.span_id));
    let is_remote = |flags: u32| (flags & 0x100 != 0).then_some(flags & 0x200 != 0);
    Seen {
        name: span.name,
        trace: hex(&span.trace_id),
        span: hex(&span.span_id),
        parent: hex(&span.parent_span_id),
        parent_is_remote: is_remote(span.flags),
        links: span.links.into_iter().map(link).collect(),
        begin: span.start_time_unix_nano,
        end: span.end_time_unix_nano,
        attributes: readable(span.attributes),
        resource: resource.clone(),
        headers: headers.clone(),
    }
}

fn readable(attributes: Vec<KeyValue>) -> BTreeMap<String, String> {
    let text = |value: Option<Value>| match value {
        Some(Value::StringValue(text)) => text,
        Some(Value::IntValue(number)) => number.to_string(),
        Some(Value::DoubleValue(number)) => number.to_string(),
        Some(Value::BoolValue(truth)) => truth.to_string(),
        other => format!("{other:?}"),
    };
    attributes.into_iter().map(|pair| (pair.key, text(pair.value.and_then(|value| value.value)))).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
