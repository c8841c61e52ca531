//! A watch on Leases: one streaming request on a connection of its own, and the reading of its lines. It makes a takeover faster,
//! and nothing depends on it (law 16).
//!
//! Starts once and ends once: when to watch again is up to whoever began it. A single Lease is watched like many.

use std::{sync::Arc, time::Duration};

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use kube::client::Body;
use serde_json::Value;
use tokio::time::{Instant, timeout, timeout_at};

use super::{
    classify::classify,
    credentials::Access,
    exchange::{ExchangeError, MAX_BODY, collect, send},
    place::LeasePlace,
    request::Request,
};
use crate::{
    request::{RequestError, WatchEnd, Watched},
    words::{one_line, squeezed},
};

/// A watch that is to be started.
pub(crate) struct Watch {
    /// Events about anything else are passed over. One at least, all of one namespace.
    pub(crate) places: Arc<[LeasePlace]>,
    /// Which Leases the server is asked for.
    pub(crate) selector: (&'static str, String),
    /// The version of the last object read. None: start from the current state.
    pub(crate) resource_version: Option<String>,
    /// The server is asked to end it after so long, so that a dead one is replaced by then.
    pub(crate) span: Duration,
}

/// A watch that was started.
pub(crate) struct Watching {
    access: Access,
    places: Arc<[LeasePlace]>,
    body: Body,
    lines: Lines,
    end: Instant,
}

impl Watching {
    /// Waits for the beginning of the answer, for `patience` at most.
    pub(super) async fn begin(access: Access, watch: Watch, patience: Duration) -> Result<Self, WatchEnd> {
        let end = Instant::now() + watch.span + patience;
        let body = timeout(patience, open(&access, &watch)).await;
        match body.unwrap_or_else(|_| Err(failed(&ExchangeError::Timeout(patience)))) {
            Ok(body) => Ok(Self { access, places: watch.places, body, lines: Lines::default(), end }),
            Err(error) => Err(ended(&access, error)),
        }
    }

    /// Waits for the next event. The last is [`Watched::Ended`]. Cancel safe.
    pub(crate) async fn next(&mut self) -> Watched {
        match self.read().await {
            Ok(Some(watched)) => watched,
            Ok(None) => Watched::Ended(WatchEnd::Closed),
            Err(error) => Watched::Ended(ended(&self.access, error)),
        }
    }

    async fn read(&mut self) -> Result<Option<Watched>, RequestError> {
        loop {
            while let Some(line) = self.lines.next()? {
                if let Some(watched) = read(&line, &self.places)? {
                    return Ok(Some(watched));
                }
            }
            let frame = match timeout_at(self.end, self.body.frame()).await {
                Ok(Some(Ok(frame))) => frame,
                Ok(Some(Err(error))) => return Err(failed(&error)),
                // A server normally ends a watch like this, at the end of a line. Our own deadline counts as the same.
                Ok(None) if self.lines.is_empty() => return Ok(None),
                Ok(None) => return Err("the watch broke off in the middle of a line".into()),
                Err(_) => return Ok(None),
            };
            if let Ok(data) = frame.into_data() {
                self.lines.push(&data);
            }
        }
    }
}

fn ended(access: &Access, error: RequestError) -> WatchEnd {
    if matches!(error.status, None | Some(401)) {
        access.doubt();
    }
    WatchEnd::Failed(error)
}

async fn open(access: &Access, watch: &Watch) -> Result<Body, RequestError> {
    let dialer = access.dial(false).await.map_err(|error| failed(&error))?;
    let seconds = watch.span.as_secs().to_string();
    let (selector, selected) = &watch.selector;
    let parameters =
        [("watch", "true"), (*selector, &**selected), ("allowWatchBookmarks", "true"), ("timeoutSeconds", &*seconds)];
    let mut request = Request::list(&watch.places[0]).with(&parameters);
    if let Some(version) = &watch.resource_version {
        request = request.with(&[("resourceVersion", version)]);
    }
    let http = request.http().map_err(|error| failed(&error))?;
    let response = send(&dialer.client(), http).await.map_err(|error| failed(&error))?;
    if response.status().is_success() {
        return Ok(response.into_body());
    }
    Err(classify(&request, collect(response).await).said)
}

fn failed(error: &(dyn std::error::Error + 'static)) -> RequestError {
    one_line(error).into()
}

/// Reads an event. None if it is about none of these places.
pub(super) fn read(line: &[u8], places: &[LeasePlace]) -> Result<Option<Watched>, RequestError> {
    let mut event: Value = serde_json::from_slice(line).map_err(|error| failed(&error))?;
    let object = event.get_mut("object").map(Value::take).unwrap_or_default();
    let kind = event.get("type").and_then(Value::as_str).unwrap_or_default();
    let metadata = |key| object.get("metadata").and_then(|metadata| metadata.get(key)).and_then(Value::as_str);
    let ours = places.iter().any(|place| place.has(&object));
    match kind {
        "ADDED" | "MODIFIED" => Ok(ours.then_some(Watched::Changed(object.into()))),
        "DELETED" => Ok(ours.then_some(Watched::Deleted(object.into()))),
        "BOOKMARK" => Ok(metadata("resourceVersion").map(|version| Watched::Bookmark(version.into()))),
        "ERROR" => {
            let code = object.get("code").and_then(Value::as_u64).and_then(|code| u16::try_from(code).ok());
            let words = object.get("message").and_then(Value::as_str).map(squeezed).unwrap_or_default();
            Err(RequestError { status: Some(code.unwrap_or(500)), words })
        }
        other => Err(format!("the watch brought an event of the unknown type {other:?}").into()),
    }
}

/// Cuts a stream into lines of at most [`MAX_BODY`] bytes.
#[derive(Default)]
pub(super) struct Lines {
    bytes: BytesMut,
    /// No line ends before this.
    searched: usize,
}

impl Lines {
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub(super) fn next(&mut self) -> Result<Option<Bytes>, RequestError> {
        loop {
            let rest = self.bytes.get(self.searched..).unwrap_or_default();
            let Some(length) = rest.iter().position(|byte| *byte == b'\n') else {
                self.searched = self.bytes.len();
                return if self.searched > MAX_BODY { Err("a line of the watch is too long".into()) } else { Ok(None) };
            };
            let mut line = self.bytes.split_to(self.searched + length + 1);
            line.truncate(line.len() - 1);
            self.searched = 0;
            if !line.is_empty() {
                return Ok(Some(line.freeze()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::Place;
    use crate::api::stub::{Say, Stub, json};

    const CHANGED: &str = r#"{"type":"MODIFIED","object":{"metadata":{"name":"writer","resourceVersion":"7"}}}"#;

    fn chunked(lines: &str) -> String {
        format!("HTTP/1.1 200 x\r\ntransfer-encoding: chunked\r\n\r\n{:x}\r\n{lines}\r\n", lines.len())
    }

    fn ended(lines: &str) -> Say {
        Say::Last(format!("{}0\r\n\r\n", chunked(lines)))
    }

    async fn watch(stub: &Stub, version: Option<&str>) -> Vec<Watched> {
        let cluster = stub.cluster();
        let access = Access::new(Arc::new(move || Ok(cluster.clone())), Duration::from_secs(5));
        let watch = Watch {
            places: [Place::lease("billing", "writer")].into(),
            selector: ("fieldSelector", "metadata.name=writer".into()),
            resource_version: version.map(Into::into),
            span: Duration::from_secs(600),
        };
        let mut watching = match Watching::begin(access, watch, Duration::from_secs(5)).await {
            Ok(watching) => watching,
            Err(end) => return vec![Watched::Ended(end)],
        };
        let mut seen = Vec::new();
        while !matches!(seen.last(), Some(Watched::Ended(_))) {
            seen.push(watching.next().await);
        }
        seen
    }

    /// How it ended, without the words.
    fn how(watched: Option<&Watched>) -> &'static str {
        match watched {
            Some(Watched::Ended(WatchEnd::Closed)) => "closed",
            Some(Watched::Ended(WatchEnd::Failed(_))) => "failed",
            Some(Watched::Changed(_) | Watched::Deleted(_) | Watched::Bookmark(_)) | None => "not at all",
        }
    }

    #[tokio::test]
    async fn it_asks_for_one_lease_from_a_version_on() {
        let mut stub = Stub::start([ended("")]).await;

        watch(&stub, Some("5")).await;

        let line = stub.seen.recv().await.unwrap().line;
        let (path, query) = line.split_once('?').unwrap();
        assert_eq!(path, "GET /apis/coordination.k8s.io/v1/namespaces/billing/leases");
        let selected = "fieldSelector=metadata.name%3Dwriter";
        for part in ["watch=true", selected, "allowWatchBookmarks=true", "resourceVersion=5", "timeoutSeconds=600"] {
            assert!(query.split('&').any(|given| given == part), "{query}");
        }
    }

    #[tokio::test]
    async fn events_are_handed_on_in_order() {
        let deleted = CHANGED.replace("MODIFIED", "DELETED");
        let bookmark = r#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"9"}}}"#;
        let stub = Stub::start([ended(&format!("{CHANGED}\n{deleted}\n\n{bookmark}\n"))]).await;

        let watched = watch(&stub, None).await;

        let object = json!({"metadata": {"name": "writer", "resourceVersion": "7"}});
        assert_eq!(
            watched[..3],
            [Watched::Changed(object.clone().into()), Watched::Deleted(object.into()), Watched::Bookmark("9".into())]
        );
        assert_eq!(how(watched.get(3)), "closed");
    }

    #[tokio::test]
    async fn other_leases_are_not_its_business() {
        let stub = Stub::start([ended(&format!("{}\n", CHANGED.replace("writer", "other")))]).await;

        assert_eq!(watch(&stub, None).await.len(), 1);
    }

    #[tokio::test]
    async fn a_version_that_is_gone_is_a_failure_in_either_form() {
        let error = r#"{"type":"ERROR","object":{"kind":"Status","code":410,"message":"too old"}}"#;
        let stub = Stub::start([ended(&format!("{error}\n")), json(410, r#"{"message":"too old"}"#)]).await;

        assert_eq!(how(watch(&stub, Some("1")).await.last()), "failed");
        assert_eq!(how(watch(&stub, Some("1")).await.last()), "failed");
    }

    #[tokio::test]
    async fn a_stream_that_breaks_off_is_an_error() {
        let stub = Stub::start([Say::Last(chunked(&format!("{CHANGED}\n")))]).await;

        let watched = watch(&stub, None).await;

        assert_eq!(watched.len(), 2);
        assert_eq!(how(watched.last()), "failed");
    }

    #[tokio::test]
    async fn nonsense_is_an_error() {
        for line in ["{", "[]", r#"{"type":"ODD","object":{}}"#] {
            let stub = Stub::start([ended(&format!("{line}\n"))]).await;

            assert_eq!(how(watch(&stub, None).await.last()), "failed", "{line}");
        }
    }

    #[test]
    fn lines_are_cut_wherever_the_pieces_end() {
        let mut lines = Lines::default();
        let mut seen = Vec::new();
        for piece in ["a", "b\nc", "\n", "\n\nd\ne"] {
            lines.push(piece.as_bytes());
            while let Ok(Some(line)) = lines.next() {
                seen.push(String::from_utf8(line.to_vec()).unwrap());
            }
        }

        assert_eq!(seen, ["ab", "c", "d"]);
        assert!(!lines.is_empty());
    }

    #[test]
    fn an_endless_line_is_an_error() {
        let mut lines = Lines::default();
        lines.push(&vec![b' '; MAX_BODY + 1]);

        assert!(lines.next().is_err());
    }
}
