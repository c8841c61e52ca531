//! What each request means to the store.
//!
//! Owns paths, verbs, media types and bodies of the API. Carries a request out at once and completely; knows no connection and no clock.

use std::time::Duration;

use serde_json::{Map, Value, json};

use super::{
    discovery,
    feed::{Event, Feed},
    lease::Lease,
    patch::Form,
    query::{Query, decode},
    schema,
    selector::Selector,
    status::{GROUP, Status},
    store::{Place, Preconditions, Store},
    table,
};

const MERGE_PATCH: &str = "application/merge-patch+json";
const STRATEGIC_PATCH: &str = "application/strategic-merge-patch+json";
const LEASES: &str = "/apis/coordination.k8s.io/v1/";
const REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";

/// A watch without `timeoutSeconds` ends after this long.
const WATCH_TIMEOUT: Duration = Duration::from_secs(30 * 60);

/// A request, its body read.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) method: String,
    pub(super) path: String,
    pub(super) query: Query,
    pub(super) accept: String,
    pub(super) content_type: String,
    pub(super) body: bytes::Bytes,
}

/// What it is answered with.
#[derive(Debug)]
pub(super) enum Answer {
    /// A JSON document.
    Json {
        /// HTTP status code.
        code: u16,
        /// The document.
        body: Value,
        /// Texts for Warning headers.
        warnings: Vec<String>,
    },
    /// A plain text.
    Text {
        /// HTTP status code.
        code: u16,
        /// The text.
        body: &'static str,
    },
    /// A stream of events.
    Watch(Box<Watch>),
}

/// A watch that was asked for.
#[derive(Debug)]
pub(super) struct Watch {
    pub(super) feed: Feed,
    /// What to send first.
    pub(super) first: Vec<Event>,
    /// Whether bookmarks are wanted.
    pub(super) bookmarks: bool,
    /// When it ends.
    pub(super) timeout: Duration,
    /// Whether objects are wanted as tables.
    pub(super) table: bool,
}

enum Route {
    Document(Value),
    Health,
    Review,
    Leases(Option<String>),
    Lease(String, String),
    Nowhere,
}

impl Request {
    /// Whether it begins a watch.
    pub(super) fn is_watch(&self) -> bool {
        self.method == "GET" && self.query.is_true("watch") && matches!(self.route(), Route::Leases(_))
    }

    /// Carries it out on `store`; `wall` is now in microseconds since 1970.
    pub(super) fn carry_out(&self, store: &mut Store, wall: i64) -> Answer {
        self.attempt(store, wall).unwrap_or_else(|status| Answer::refusal(&status))
    }

    fn attempt(&self, store: &mut Store, wall: i64) -> Result<Answer, Status> {
        match (self.method.as_str(), self.route()) {
            (_, Route::Nowhere) => Ok(Answer::Text { code: 404, body: "404 page not found\n" }),
            ("GET", Route::Health) => Ok(Answer::Text { code: 200, body: "ok" }),
            ("GET", Route::Document(document)) => Ok(Answer::json(200, document)),
            ("POST", Route::Review) => Ok(Answer::json(201, discovery::review(&self.body))),
            ("GET", Route::Leases(namespace)) if self.query.is_true("watch") => self.watch(store, namespace),
            ("GET", Route::Leases(namespace)) => self.list(store, namespace.as_deref(), wall),
            ("GET", Route::Lease(namespace, name)) => self.get(store, Place { namespace: &namespace, name: &name }, wall),
            ("POST", Route::Leases(Some(namespace))) => self.create(store, &namespace, wall),
            ("PUT", Route::Lease(namespace, name)) => self.replace(store, Place { namespace: &namespace, name: &name }, wall),
            ("PATCH", Route::Lease(namespace, name)) => self.patch(store, Place { namespace: &namespace, name: &name }),
            ("DELETE", Route::Lease(namespace, name)) => self.delete(store, Place { namespace: &namespace, name: &name }, wall),
            (_, Route::Health | Route::Document(_) | Route::Review | Route::Leases(_) | Route::Lease(..)) => {
                Err(Status::not_allowed())
            }
        }
    }

    fn route(&self) -> Route {
        let path = self.path.as_str();
        if let Some(document) = discovery::document(path) {
            return Route::Document(document);
        }
        if matches!(path, "/healthz" | "/livez" | "/readyz") {
            return Route::Health;
        }
        if path == REVIEWS {
            return Route::Review;
        }
        let Some(rest) = path.strip_prefix(LEASES) else { return Route::Nowhere };
        match rest.split('/').collect::<Vec<_>>().as_slice() {
            ["leases"] => Route::Leases(None),
            ["namespaces", namespace, "leases"] => Route::Leases(Some(decode(namespace))),
            ["namespaces", namespace, "leases", name] => Route::Lease(decode(namespace), decode(name)),
            _ => Route::Nowhere,
        }
    }

    fn get(&self, store: &Store, place: Place<'_>, wall: i64) -> Result<Answer, Status> {
        self.reached(store)?;
        let as_table = self.wants_table()?;
        let lease = store.get(place)?;
        Ok(Answer::json(200, if as_table { table::table([lease], lease.version(), wall) } else { lease.json().clone() }))
    }

    fn list(&self, store: &Store, namespace: Option<&str>, wall: i64) -> Result<Answer, Status> {
        self.reached(store)?;
        let as_table = self.wants_table()?;
        let selector = self.selector()?;
        let version = store.version().to_string();
        let leases = store.list(namespace).filter(|lease| selector.matches(lease));
        if as_table {
            return Ok(Answer::json(200, table::table(leases, &version, wall)));
        }
        let items: Vec<Value> = leases.map(without_type).collect();
        let list = json!({
            "kind": "LeaseList",
            "apiVersion": format!("{GROUP}/v1"),
            "metadata": {"resourceVersion": version},
            "items": items,
        });
        Ok(Answer::json(200, list))
    }

    fn watch(&self, store: &Store, namespace: Option<String>) -> Result<Answer, Status> {
        let table = self.wants_table()?;
        let version = self.version()?;
        let mut feed = Feed::new(namespace, self.selector()?, version);
        let bookmarks = self.query.is_true("allowWatchBookmarks");
        let initial = self.query.is_true("sendInitialEvents");
        let mut first = if version == 0 || initial { feed.current(store) } else { Vec::new() };
        if initial && bookmarks {
            first.push(feed.bookmark(true));
        }
        let seconds = self.query.text("timeoutSeconds").parse().ok().filter(|seconds| *seconds > 0);
        let timeout = seconds.map_or(WATCH_TIMEOUT, Duration::from_secs);
        Ok(Answer::Watch(Box::new(Watch { feed, first, bookmarks, timeout, table })))
    }

    fn create(&self, store: &mut Store, namespace: &str, wall: i64) -> Result<Answer, Status> {
        self.wants_table()?;
        let (lease, warnings) = self.lease(namespace)?;
        let created = self.on(store, |store| store.create(namespace, lease, wall))?;
        Ok(Answer::Json { code: 201, body: created.json().clone(), warnings })
    }

    fn replace(&self, store: &mut Store, place: Place<'_>, wall: i64) -> Result<Answer, Status> {
        self.wants_table()?;
        let (lease, warnings) = self.lease(place.namespace)?;
        if lease.name().is_empty() {
            let message =
                format!("the name of the object ({} based on URL) was undeterminable: name must be provided", place.name);
            return Err(Status::bad_request(message));
        }
        if lease.name() != place.name {
            let message =
                format!("the name of the object ({}) does not match the name on the URL ({})", lease.name(), place.name);
            return Err(Status::bad_request(message));
        }
        let (lease, created) = self.on(store, |store| store.replace(place, lease, wall))?;
        Ok(Answer::Json { code: if created { 201 } else { 200 }, body: lease.json().clone(), warnings })
    }

    fn patch(&self, store: &mut Store, place: Place<'_>) -> Result<Answer, Status> {
        let form = match self.media_type() {
            MERGE_PATCH => Form::Merge,
            STRATEGIC_PATCH => Form::Strategic,
            _ => return Err(Status::unsupported_media_type(&format!("{MERGE_PATCH}, {STRATEGIC_PATCH}"))),
        };
        self.wants_table()?;
        let patch =
            serde_json::from_slice(&self.body).map_err(|why| Status::bad_request(format!("error decoding patch: {why}")))?;
        let strict = self.query.text("fieldValidation") == "Strict";
        let (lease, unknown) = self.on(store, |store| store.patch(place, form, strict, &patch))?;
        Ok(Answer::Json { code: 200, body: lease.json().clone(), warnings: warnings(&unknown) })
    }

    fn delete(&self, store: &mut Store, place: Place<'_>, wall: i64) -> Result<Answer, Status> {
        let options = if self.body.is_empty() { Value::Null } else { self.json_body()? };
        let precondition = |name: &str| {
            let given = options.get("preconditions").and_then(|all| all.get(name)).and_then(Value::as_str);
            given.map(str::to_owned)
        };
        let must = Preconditions { uid: precondition("uid"), version: precondition("resourceVersion") };
        let dry = options.get("dryRun").and_then(Value::as_array).is_some_and(|modes| !modes.is_empty());
        let body = if dry {
            store.clone().delete(place, &must, wall)?
        } else {
            self.on(store, |store| store.delete(place, &must, wall))?
        };
        Ok(Answer::json(200, body))
    }

    /// On the store itself, or on a copy if nothing shall be kept.
    fn on<R>(&self, store: &mut Store, change: impl FnOnce(&mut Store) -> R) -> R {
        if self.query.text("dryRun") == "All" { change(&mut store.clone()) } else { change(store) }
    }

    /// The body as a Lease of `namespace`.
    fn lease(&self, namespace: &str) -> Result<(Lease, Vec<String>), Status> {
        let body = self.json_body()?;
        let text = |name: &str| body.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
        let version = text("apiVersion").unwrap_or("coordination.k8s.io/v1");
        if version != "coordination.k8s.io/v1" {
            let message = format!(
                "the API version in the data ({version}) does not match the expected API version (coordination.k8s.io/v1)"
            );
            return Err(Status::bad_request(message));
        }
        let kind = text("kind").unwrap_or("Lease");
        let refuse = |why: &str| Status::bad_request(format!("{kind} in version \"v1\" cannot be handled as a Lease: {why}"));
        if kind != "Lease" {
            return Err(refuse(&format!(
                "no kind {kind:?} is registered for version {version:?} in scheme \"pkg/api/legacyscheme/scheme.go:30\""
            )));
        }
        let decoded = schema::decode(&body).map_err(|why| refuse(&why))?;
        let mut warned = Vec::new();
        match self.query.text("fieldValidation") {
            "Strict" if !decoded.unknown.is_empty() => {
                return Err(refuse(&format!("strict decoding error: {}", warnings(&decoded.unknown).join(", "))));
            }
            "Strict" | "Ignore" => {}
            _ => warned = warnings(&decoded.unknown),
        }
        let lease = Lease::new(decoded.object);
        if !lease.namespace().is_empty() && lease.namespace() != namespace {
            let message = "the namespace of the provided object does not match the namespace sent on the request";
            return Err(Status::bad_request(message));
        }
        Ok((lease, warned))
    }

    fn json_body(&self) -> Result<Value, Status> {
        if !matches!(self.media_type(), "" | "application/json" | "*/*") {
            return Err(Status::unsupported_media_type("application/json"));
        }
        serde_json::from_slice(&self.body).map_err(|why| {
            Status::bad_request(format!(
                "the object provided is unrecognized (must be of type Lease): couldn't get version/kind; json parse error: {why}"
            ))
        })
    }

    fn media_type(&self) -> &str {
        self.content_type.split(';').next().unwrap_or_default().trim()
    }

    /// Whether the client prefers a table to the objects.
    fn wants_table(&self) -> Result<bool, Status> {
        for accepted in self.accept.split(',') {
            let mut parts = accepted.split(';').map(str::trim);
            let media = parts.next().unwrap_or_default();
            let form = parts.find_map(|part| part.strip_prefix("as="));
            match (media, form) {
                ("application/json", Some("Table")) => return Ok(true),
                ("" | "*/*" | "application/*" | "application/json", None) => return Ok(false),
                _ => {}
            }
        }
        Err(Status::not_acceptable())
    }

    fn selector(&self) -> Result<Selector, Status> {
        Selector::parse(self.query.text("labelSelector"), self.query.text("fieldSelector"))
    }

    /// The `resourceVersion` parameter; 0 if there is none.
    fn version(&self) -> Result<u64, Status> {
        match self.query.text("resourceVersion") {
            "" => Ok(0),
            text => text.parse().map_err(|_| Status::bad_request(format!("invalid resourceVersion {text:?}"))),
        }
    }

    fn reached(&self, store: &Store) -> Result<(), Status> {
        let asked = self.version()?;
        if asked > store.version() {
            return Err(Status::too_new(asked, store.version()));
        }
        Ok(())
    }
}

impl Answer {
    /// A refusal.
    pub(super) fn refusal(status: &Status) -> Self {
        Self::json(status.code, status.to_json())
    }

    const fn json(code: u16, body: Value) -> Self {
        Self::Json { code, body, warnings: Vec::new() }
    }
}

/// Items of a list carry no type of their own.
fn without_type(lease: &Lease) -> Value {
    let fields = lease.json().as_object().cloned().unwrap_or_default();
    let fields: Map<_, _> = fields.into_iter().filter(|(name, _)| name != "kind" && name != "apiVersion").collect();
    fields.into()
}

fn warnings(unknown: &[String]) -> Vec<String> {
    unknown.iter().map(|path| format!("unknown field {path:?}")).collect()
}
