//! The watch on the Leases. It makes a takeover faster, and nothing depends on it (law 16).
//!
//! Owns one streaming request on a connection of its own, and the reading of its lines. Starts once and ends once: when to watch
//! again is up to the election.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::ACCEPT;
use http_body_util::{BodyExt as _, Limited};
use kube::client::Body;
use serde_json::Value;
use tokio::time::{Instant, timeout, timeout_at};

use super::{access::Access, lease::Keys};
use crate::{
    api::{ExchangeError, MAX_BODY, send},
    request::{RequestError, WatchEnd, Watched},
    words::{one_line, squeezed},
};

/// The server is asked to end a watch after about ten minutes, so that a dead one is replaced by then. The time differs between
/// replicas.
const LEAST_SECONDS: u64 = 540;
const SPREAD_SECONDS: u64 = 120;

/// A watch that is to be started.
pub(super) struct Watch {
    pub(super) access: Access,
    pub(super) keys: Keys,
    /// The version of the last object read. None: start from the current state.
    pub(super) resource_version: Option<String>,
    /// How long the reply may take to begin.
    pub(super) timeout: Duration,
}

impl Watch {
    /// Calls `answered` once: when the answer begins, or with the status of the failure. Passes on watch events until the watch
    /// ends. The last is always [`Watched::Ended`].
    pub(super) async fn run(self, answered: impl AsyncFnOnce(Result<(), Option<u16>>), hand_on: impl AsyncFn(Watched)) {
        let end = match self.stream(answered, &hand_on).await {
            Ok(()) => WatchEnd::Closed,
            Err(complaint) if complaint.is_forbidden() => WatchEnd::Forbidden(complaint),
            Err(complaint) => {
                if matches!(complaint.status, None | Some(401)) {
                    self.access.doubt();
                }
                WatchEnd::Failed(complaint)
            }
        };
        hand_on(Watched::Ended(end)).await;
    }

    async fn stream(
        &self,
        answered: impl AsyncFnOnce(Result<(), Option<u16>>),
        hand_on: &impl AsyncFn(Watched),
    ) -> Result<(), RequestError> {
        let seconds = LEAST_SECONDS + fastrand::u64(..SPREAD_SECONDS);
        let end = Instant::now() + Duration::from_secs(seconds) + self.timeout;
        let late = |_| failed(&ExchangeError::Timeout(self.timeout));
        let body = timeout(self.timeout, self.begin(seconds)).await.map_err(late).flatten();
        answered(body.as_ref().map(|_| ()).map_err(|failure| failure.status)).await;
        let mut body = body?;
        let mut lines = Lines::default();
        loop {
            let frame = match timeout_at(end, body.frame()).await {
                Ok(Some(Ok(frame))) => frame,
                Ok(Some(Err(error))) => return Err(failed(&error)),
                // A server normally ends a watch like this, at the end of a line. Our own deadline counts as the same.
                Ok(None) if lines.is_empty() => return Ok(()),
                Ok(None) => return Err("the watch broke off in the middle of a line".into()),
                Err(_) => return Ok(()),
            };
            let Ok(data) = frame.into_data() else { continue };
            lines.push(&data);
            while let Some(line) = lines.next()? {
                if let Some(watched) = read(&line, &self.keys)? {
                    hand_on(watched).await;
                }
            }
        }
    }

    async fn begin(&self, seconds: u64) -> Result<Body, RequestError> {
        let dialer = self.access.dialer_of_watch().await.map_err(|error| failed(&error))?;
        let mut uri = format!(
            "{}?watch=true&{}&allowWatchBookmarks=true&timeoutSeconds={seconds}",
            self.keys.collection(),
            self.keys.query(),
        );
        if let Some(version) = &self.resource_version {
            uri.push_str("&resourceVersion=");
            uri.push_str(version);
        }
        let request = http::Request::get(uri).header(ACCEPT, "application/json").body(Body::empty());
        let request = request.map_err(|error| failed(&error))?;
        let response = send(&dialer.client(), request).await.map_err(|error| failed(&error))?;
        let status = response.status();
        if status.is_success() {
            return Ok(response.into_body());
        }
        let body = Limited::new(response.into_body(), MAX_BODY).collect().await;
        let said: Value = body.ok().and_then(|body| serde_json::from_slice(&body.to_bytes()).ok()).unwrap_or_default();
        Err(refused(status.as_u16(), &said))
    }
}

fn failed(error: &(dyn std::error::Error + 'static)) -> RequestError {
    one_line(error).into()
}

/// Reads a Status object, from the reply itself or from an ERROR event.
fn refused(status: u16, said: &Value) -> RequestError {
    let words = said.get("message").and_then(Value::as_str).unwrap_or_default();
    RequestError { status: Some(status), words: squeezed(words) }
}

/// Reads an event. None if it is not about one of these Leases.
fn read(line: &[u8], keys: &Keys) -> Result<Option<Watched>, RequestError> {
    let mut event: Value = serde_json::from_slice(line).map_err(|error| failed(&error))?;
    let object = event.get_mut("object").map(Value::take).unwrap_or_default();
    let kind = event.get("type").and_then(Value::as_str).unwrap_or_default();
    let metadata = |key| object.get("metadata").and_then(|metadata| metadata.get(key)).and_then(Value::as_str);
    let ours = keys.names(&object);
    match kind {
        "ADDED" | "MODIFIED" => Ok(ours.then_some(Watched::Changed(object.into()))),
        "DELETED" => Ok(ours.then_some(Watched::Deleted(object.into()))),
        "BOOKMARK" => Ok(metadata("resourceVersion").map(|version| Watched::Bookmark(version.into()))),
        "ERROR" => {
            let code = object.get("code").and_then(Value::as_u64).and_then(|code| u16::try_from(code).ok());
            Err(refused(code.unwrap_or(500), &object))
        }
        other => Err(format!("the watch brought an event of the unknown type {other:?}").into()),
    }
}

/// Cuts a stream into lines of at most [`MAX_BODY`] bytes.
#[derive(Default)]
struct Lines {
    bytes: BytesMut,
    /// No line ends before this.
    searched: usize,
}

impl Lines {
    fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    fn next(&mut self) -> Result<Option<Bytes>, RequestError> {
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

/// A stream cut into pieces as long as its first byte says: however it is cut, it yields the same events.
#[cfg(any(test, fuzzing))]
pub(crate) fn fuzz(bytes: &[u8]) {
    let Some((length, stream)) = bytes.split_first() else { return };
    let config = crate::config::LeaseConfig { namespace: "default".into(), name: "lease".into(), ..Default::default() };
    let key = Keys::of(&config);
    let watched = |pieces: &mut dyn Iterator<Item = &[u8]>| {
        let (mut lines, mut seen) = (Lines::default(), Vec::new());
        for piece in pieces {
            lines.push(piece);
            while let Ok(Some(line)) = lines.next() {
                match read(&line, &key) {
                    Ok(event) => seen.extend(event),
                    Err(end) => return (seen, Some(end)),
                }
            }
        }
        (seen, None)
    };
    let cut = watched(&mut stream.chunks(usize::from(*length).max(1)));
    assert_eq!(watched(&mut std::iter::once(stream)), cut);
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use serde_json::json;

    use super::*;
    use crate::api::stub::{Say, Stub, json};
    use crate::config::LeaseConfig;

    const CHANGED: &str = r#"{"type":"MODIFIED","object":{"metadata":{"name":"writer","resourceVersion":"7"}}}"#;

    fn chunked(lines: &str) -> String {
        format!("HTTP/1.1 200 x\r\ntransfer-encoding: chunked\r\n\r\n{:x}\r\n{lines}\r\n", lines.len())
    }

    fn ended(lines: &str) -> Say {
        Say::Last(format!("{}0\r\n\r\n", chunked(lines)))
    }

    async fn watch(stub: &Stub, version: Option<&str>) -> Vec<Watched> {
        let cluster = stub.cluster();
        let watch = Watch {
            access: Access::new(Arc::new(move || Ok(cluster.clone())), Duration::from_secs(5)),
            keys: Keys::of(&LeaseConfig { namespace: "billing".into(), name: "writer".into(), ..LeaseConfig::default() }),
            resource_version: version.map(Into::into),
            timeout: Duration::from_secs(5),
        };
        let seen = Arc::new(Mutex::new(Vec::new()));
        let push = Arc::clone(&seen);
        watch.run(async |_| (), async move |watched| push.lock().unwrap().push(watched)).await;
        std::mem::take(&mut *seen.lock().unwrap())
    }

    /// How it ended, without the words.
    fn how(watched: Option<&Watched>) -> &'static str {
        match watched {
            Some(Watched::Ended(WatchEnd::Closed)) => "closed",
            Some(Watched::Ended(WatchEnd::Forbidden(_))) => "forbidden",
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
        for part in ["watch=true", "fieldSelector=metadata.name%3Dwriter", "allowWatchBookmarks=true", "resourceVersion=5"] {
            assert!(query.split('&').any(|given| given == part), "{query}");
        }
        let seconds = query.split('&').find_map(|part| part.strip_prefix("timeoutSeconds=")).unwrap();
        assert!((540..660).contains(&seconds.parse::<u64>().unwrap()), "{query}");
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
    async fn a_watch_that_is_forbidden_says_so() {
        let stub = Stub::start([json(403, r#"{"message":"no"}"#)]).await;

        assert_eq!(how(watch(&stub, None).await.last()), "forbidden");
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
