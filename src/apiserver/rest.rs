//! What each request means to the store.
//!
//! Owns verbs and answers of the API. Carries a request out at once and completely; knows no connection and no clock.

use std::time::Duration;

use serde_json::{Map, Value, json};

use super::{
    discovery,
    feed::{Event, Feed},
    lease::Lease,
    patch::Form,
    request::{Request, Route, warnings},
    status::{GROUP, Status},
    store::{Place, Preconditions, Store},
    table,
};

const MERGE_PATCH: &str = "application/merge-patch+json";
const STRATEGIC_PATCH: &str = "application/strategic-merge-patch+json";

/// In seconds: a year.
const LONGEST_WATCH: u64 = 365 * 24 * 60 * 60;
/// A watch without `timeoutSeconds` ends after this long.
const WATCH_TIMEOUT: Duration = Duration::from_secs(30 * 60);

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

impl Request {
    /// Carries it out on `store`; `wall` is now in microseconds since 1970.
    pub(super) fn carry_out(&self, store: &mut Store, wall: i64) -> Answer {
        self.attempt(store, wall).unwrap_or_else(|status| Answer::refusal(&status))
    }

    fn attempt(&self, store: &mut Store, wall: i64) -> Result<Answer, Status> {
        match (self.method.as_str(), self.route()) {
            (_, Route::Elsewhere) => Ok(Answer::Text { code: 404, body: "404 page not found\n" }),
            (_, Route::Nowhere) => Err(Status::no_such_path()),
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

    fn get(&self, store: &Store, place: Place<'_>, wall: i64) -> Result<Answer, Status> {
        Self::reached(self.version().map_err(Status::unexplained)?, store)?;
        let as_table = self.wants_table()?;
        let lease = store.get(place)?;
        Ok(Answer::json(200, if as_table { table::table([lease], lease.version(), wall) } else { lease.json().clone() }))
    }

    fn list(&self, store: &Store, namespace: Option<&str>, wall: i64) -> Result<Answer, Status> {
        self.check_list_options()?;
        let version = self.version().map_err(|why| Status::bad_request(format!("invalid resource version: {why}")))?;
        Self::reached(version, store)?;
        if self.query.text("resourceVersionMatch") == "Exact" && version != store.version() {
            return Err(Status::expired("The provided resource version is too old."));
        }
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
        self.check_watch_options()?;
        let table = self.wants_table()?;
        let version = self.version().map_err(Status::unexplained)?;
        let mut feed = Feed::new(namespace, self.selector()?, version);
        let bookmarks = self.query.is_true("allowWatchBookmarks");
        let initial = if self.query.has("sendInitialEvents") { self.query.is_true("sendInitialEvents") } else { version == 0 };
        let mut first = if initial || version == 0 { feed.current(store) } else { Vec::new() };
        if !initial {
            first.clear();
        }
        if initial && bookmarks {
            first.push(feed.bookmark(true));
        }
        let seconds = self.query.text("timeoutSeconds").parse().ok().filter(|seconds| *seconds > 0);
        let timeout = seconds.map_or(WATCH_TIMEOUT, |seconds| Duration::from_secs(LONGEST_WATCH.min(seconds)));
        Ok(Answer::Watch(Box::new(Watch { feed, first, bookmarks, timeout, table })))
    }

    fn create(&self, store: &mut Store, namespace: &str, wall: i64) -> Result<Answer, Status> {
        self.wants_table()?;
        let dry = self.write_options("CreateOptions")?;
        let (lease, warnings) = self.lease(namespace)?;
        let created = on(store, dry, |store| store.create(namespace, lease, wall));
        let created = created.map(|mut lease| {
            if dry {
                lease.set("resourceVersion", None);
            }
            (lease, true)
        });
        Ok(Answer::written(created, warnings))
    }

    fn replace(&self, store: &mut Store, place: Place<'_>, wall: i64) -> Result<Answer, Status> {
        self.wants_table()?;
        let dry = self.write_options("UpdateOptions")?;
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
        Ok(Answer::written(on(store, dry, |store| store.replace(place, lease, wall)), warnings))
    }

    fn patch(&self, store: &mut Store, place: Place<'_>) -> Result<Answer, Status> {
        let form = match self.media_type() {
            MERGE_PATCH => Form::Merge,
            STRATEGIC_PATCH => Form::Strategic,
            _ => return Err(Status::unsupported_media_type(&format!("{MERGE_PATCH}, {STRATEGIC_PATCH}"))),
        };
        self.wants_table()?;
        let dry = self.write_options("PatchOptions")?;
        let patch =
            serde_json::from_slice(&self.body).map_err(|why| Status::bad_request(format!("error decoding patch: {why}")))?;
        let strict = self.query.text("fieldValidation") == "Strict";
        let (lease, unknown) = on(store, dry, |store| store.patch(place, form, strict, &patch))?;
        Ok(Answer::Json { code: 200, body: lease.json().clone(), warnings: warnings(&unknown) })
    }

    fn delete(&self, store: &mut Store, place: Place<'_>, wall: i64) -> Result<Answer, Status> {
        let body = if self.body.is_empty() { None } else { Some(self.json_body()?) };
        let dry = self.delete_options(body.as_ref())?;
        let options = body.unwrap_or_default();
        let precondition = |name: &str| {
            let given = options.get("preconditions").and_then(|all| all.get(name)).and_then(Value::as_str);
            given.map(str::to_owned)
        };
        let must = Preconditions { uid: precondition("uid"), version: precondition("resourceVersion") };
        Ok(Answer::json(200, on(store, dry, |store| store.delete(place, &must, wall))?))
    }
}

/// On the store itself, or on a copy if nothing shall be kept.
fn on<R>(store: &mut Store, dry: bool, change: impl FnOnce(&mut Store) -> R) -> R {
    if dry { change(&mut store.clone()) } else { change(store) }
}

impl Answer {
    /// A refusal.
    pub(super) fn refusal(status: &Status) -> Self {
        Self::json(status.code, status.to_json())
    }

    /// What a write came to; true if it created the Lease.
    fn written(outcome: Result<(Lease, bool), Status>, warnings: Vec<String>) -> Self {
        match outcome {
            Ok((lease, created)) => Self::Json { code: if created { 201 } else { 200 }, body: lease.json().clone(), warnings },
            Err(status) => Self::Json { code: status.code, body: status.to_json(), warnings },
        }
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
