//! What each request does to the store.
//!
//! Owns the API's verbs and answers. Carries a request out at once and completely; knows no connection and no clock.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};

use super::{
    admission, discovery,
    document::Document,
    feed::{Event, Feed, Initial},
    listing::continue_after,
    options::{Deletion, WriteOptions},
    patch::{Form, Patch, Validation},
    request::{Request, Route},
    schema,
    status::Status,
    store::{Place, Store},
    view::View,
    warnings::of_owners,
};

const JSON_PATCH: &str = "application/json-patch+json";
const MERGE_PATCH: &str = "application/merge-patch+json";
const STRATEGIC_PATCH: &str = "application/strategic-merge-patch+json";

const TOO_OLD: &str = "The provided resource version is too old.";
const TOO_OLD_TO_GO_ON: &str = "The provided continue parameter is too old to display a consistent list result. You can start a new list \
                                without the continue parameter.";

/// In seconds: a year.
const LONGEST_WATCH: u64 = 365 * 24 * 60 * 60;
/// A watch without `timeoutSeconds` ends after this long.
const WATCH_TIMEOUT: Duration = Duration::from_secs(30 * 60);

/// The answer to a request.
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

/// A requested watch.
#[derive(Debug)]
pub(super) struct Watch {
    pub(super) feed: Feed,
    /// What to send first.
    pub(super) first: Vec<Event>,
    /// Whether bookmarks are wanted.
    pub(super) bookmarks: bool,
    /// When it ends.
    pub(super) timeout: Duration,
    /// The form in which objects are sent.
    pub(super) view: View,
}

impl Request {
    /// Carries it out on `store`; `wall` is the present in microseconds since 1970.
    pub(super) fn carry_out(&self, store: &mut Store, wall: i64) -> Answer {
        let mut warnings = Vec::new();
        let answer = self.attempt(store, wall, &mut warnings);
        answer.unwrap_or_else(|status| Answer::refusal(&status)).with(warnings)
    }

    /// What it warns of goes out also with a refusal.
    fn attempt(&self, store: &mut Store, wall: i64, warnings: &mut Vec<String>) -> Result<Answer, Status> {
        match (&self.method, self.route()) {
            (_, Route::Elsewhere) => Ok(Answer::Text { code: 404, body: "404 page not found\n" }),
            (_, Route::Nowhere) => Err(Status::no_such_path()),
            (_, Route::Health) => Ok(Answer::Text { code: 200, body: "ok" }),
            (&Method::GET, Route::Document(document)) => Ok(Answer::json(200, document)),
            (&Method::POST, Route::Review) => self.review(warnings),
            (&Method::GET, Route::Leases(namespace)) if self.query.is_true("watch") => self.watch(store, namespace),
            (&Method::GET, Route::Leases(namespace)) => self.list(store, namespace.as_deref(), wall),
            (&Method::GET, Route::Lease(namespace, name)) => self.get(store, Place { namespace: &namespace, name: &name }, wall),
            (&Method::POST, Route::Leases(Some(namespace))) => self.create(store, &namespace, wall, warnings),
            (&Method::PUT, Route::Lease(namespace, name)) => {
                self.replace(store, Place { namespace: &namespace, name: &name }, wall, warnings)
            }
            (&Method::PATCH, Route::Lease(namespace, name)) => {
                self.patch(store, Place { namespace: &namespace, name: &name }, wall, warnings)
            }
            (&Method::DELETE, Route::Lease(namespace, name)) => {
                self.delete(store, Place { namespace: &namespace, name: &name }, wall)
            }
            (_, Route::Document(_) | Route::Review | Route::Leases(_) | Route::Lease(..)) => Err(Status::not_allowed()),
        }
    }

    /// A review in another media type gets the same answer.
    fn review(&self, warnings: &mut Vec<String>) -> Result<Answer, Status> {
        if self.encoding().is_err() {
            return Ok(Answer::json(201, discovery::allowed(&Value::Null)));
        }
        let review = self.object(&schema::REVIEW, warnings)?;
        Ok(Answer::json(201, discovery::review(review.get("spec").unwrap_or(&Value::Null))?))
    }

    fn get(&self, store: &Store, place: Place<'_>, wall: i64) -> Result<Answer, Status> {
        Self::reached(self.version().map_err(Status::unexplained)?, store)?;
        let view = self.view()?.check_one()?;
        let lease = store.get(place)?;
        Ok(Answer::json(200, self.check_rows(view)?.one(lease, wall)))
    }

    fn list(&self, store: &Store, namespace: Option<&str>, wall: i64) -> Result<Answer, Status> {
        let view = self.view()?.check_list()?;
        let part = self.part(store)?;
        let selector = self.selector()?;
        let version = part.version.unwrap_or_else(|| store.version());
        let too_old = if part.start.is_empty() { TOO_OLD } else { TOO_OLD_TO_GO_ON };
        let leases = store.list_at(namespace, version).map_err(|_| Status::expired(too_old))?;
        let leases = leases.range(part.start..).filter(|(_, lease)| selector.matches(lease));
        let (paths, mut leases): (Vec<_>, Vec<_>) = leases.unzip();
        let mut metadata = json!({"resourceVersion": version.to_string()});
        if let Some(limit) = part.limit.filter(|limit| *limit < leases.len()) {
            let last = paths.get(limit - 1).copied().map_or("", String::as_str);
            metadata["continue"] = continue_after(last, version).into();
            if selector.is_empty() {
                metadata["remainingItemCount"] = (leases.len() - limit).into();
            }
            leases.truncate(limit);
        }
        Ok(Answer::json(200, self.check_rows(view)?.list(leases, metadata, wall)))
    }

    fn watch(&self, store: &Store, namespace: Option<String>) -> Result<Answer, Status> {
        let view = self.check_rows(self.view()?)?;
        self.query.number("limit")?;
        let seconds = self.query.number("timeoutSeconds")?;
        self.check_watch_options()?;
        let version = self.version().map_err(Status::unexplained)?;
        let bookmarks = self.query.is_true("allowWatchBookmarks");
        let initial = if self.query.has("sendInitialEvents") { self.query.is_true("sendInitialEvents") } else { version == 0 };
        let initial = if initial { Initial::State { bookmark: bookmarks } } else { Initial::Nothing };
        let after = if version == 0 { store.version() } else { version };
        let mut feed = Feed::new(namespace, self.selector()?, after).beginning_with(initial);
        let first = feed.begin(store);
        let seconds = seconds.and_then(|seconds| u64::try_from(seconds).ok()).filter(|seconds| *seconds > 0);
        let timeout = seconds.map_or(WATCH_TIMEOUT, |seconds| Duration::from_secs(LONGEST_WATCH.min(seconds)));
        Ok(Answer::Watch(Box::new(Watch { feed, first, bookmarks, timeout, view })))
    }

    fn create(&self, store: &mut Store, namespace: &str, wall: i64, warnings: &mut Vec<String>) -> Result<Answer, Status> {
        let view = self.view()?.check_one()?;
        let dry = self.write_options(WriteOptions::Create)?;
        let mut lease = self.lease(namespace, warnings)?;
        warnings.extend(of_owners(&admission::unite_owners(&mut lease), false));
        let mut created = on(store, dry, |store| store.create(namespace, lease, wall))?;
        if dry {
            created.set("resourceVersion", None);
        }
        Ok(Answer::json(201, self.check_rows(view)?.one(&created, wall)))
    }

    fn replace(&self, store: &mut Store, place: Place<'_>, wall: i64, warnings: &mut Vec<String>) -> Result<Answer, Status> {
        let view = self.view()?.check_one()?;
        let dry = self.write_options(WriteOptions::Update)?;
        let mut lease = self.lease(place.namespace, warnings)?;
        place.check_name(&lease)?;
        warnings.extend(of_owners(&admission::unite_owners(&mut lease), false));
        let (replaced, new) = on(store, dry, |store| store.replace(place, lease, wall))?;
        Ok(Answer::json(if new { 201 } else { 200 }, self.check_rows(view)?.one(&replaced, wall)))
    }

    fn patch(&self, store: &mut Store, place: Place<'_>, wall: i64, warnings: &mut Vec<String>) -> Result<Answer, Status> {
        let form = match self.media_type() {
            MERGE_PATCH => Form::Merge,
            STRATEGIC_PATCH => Form::Strategic,
            JSON_PATCH => Form::Steps,
            _ => return Err(Status::unsupported_media_type(&format!("{JSON_PATCH}, {MERGE_PATCH}, {STRATEGIC_PATCH}"))),
        };
        let view = self.view()?.check_one()?;
        let dry = self.write_options(WriteOptions::Patch)?;
        let unreadable = |why| Status::bad_request(format!("error decoding patch: {why}"));
        let document: Document = serde_json::from_slice(&self.body).map_err(unreadable)?;
        let patch = Patch {
            form,
            change: serde_json::from_slice(&self.body).map_err(unreadable)?,
            complaints: schema::complaints(&document, None),
            validation: match self.query.text("fieldValidation") {
                "Strict" => Validation::Strict,
                "Ignore" => Validation::Ignore,
                _ => Validation::Warn,
            },
        };
        let patched = on(store, dry, |store| store.patch(place, &patch, warnings))?;
        Ok(Answer::json(200, self.check_rows(view)?.one(&patched, wall)))
    }

    fn delete(&self, store: &mut Store, place: Place<'_>, wall: i64) -> Result<Answer, Status> {
        self.view()?;
        let Deletion { dry, must, dependents } = self.deletion()?;
        Ok(Answer::json(200, on(store, dry, |store| store.delete_with(dependents, place, &must, wall))?))
    }
}

/// On the store itself, or on a copy if it is a dry run.
fn on<R>(store: &mut Store, dry: bool, change: impl FnOnce(&mut Store) -> R) -> R {
    if dry { change(&mut store.scratch()) } else { change(store) }
}

impl Answer {
    /// A refusal.
    pub(super) fn refusal(status: &Status) -> Self {
        Self::json(status.code, status.to_json())
    }

    /// The same with these warnings, which a text or a watch has no place for.
    fn with(self, warnings: Vec<String>) -> Self {
        match self {
            Self::Json { code, body, .. } => Self::Json { code, body, warnings },
            Self::Text { .. } | Self::Watch(_) => self,
        }
    }

    const fn json(code: u16, body: Value) -> Self {
        Self::Json { code, body, warnings: Vec::new() }
    }
}
