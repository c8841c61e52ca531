//! A request, and what its parts mean.
//!
//! Owns paths, parameters, media types and the decoding of bodies. `rest` acts on them.

use http::Method;
use percent_encoding::percent_decode_str;
use serde_json::Value;

use super::{
    discovery,
    document::Document,
    lease::Lease,
    options::not_registered,
    protobuf,
    query::Query,
    schema::{self, Kind},
    status::Status,
};

const LEASES: &str = "/apis/coordination.k8s.io/v1/";
const REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// A request whose body has been read.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) method: Method,
    pub(super) path: String,
    pub(super) query: Query,
    pub(super) accept: String,
    pub(super) content_type: String,
    pub(super) body: bytes::Bytes,
}

/// How a body is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Encoding {
    Json,
    Protobuf,
}

/// What a path names.
pub(super) enum Route {
    Document(Value),
    Health,
    Review,
    Leases(Option<String>),
    Lease(String, String),
    /// In the API group, but not a path that exists there.
    Nowhere,
    /// Outside all groups.
    Elsewhere,
}

impl Request {
    /// Whether it begins a watch.
    pub(super) fn is_watch(&self) -> bool {
        self.method == Method::GET && self.query.is_true("watch") && matches!(self.route(), Route::Leases(_))
    }

    pub(super) fn route(&self) -> Route {
        let path = match self.path.as_str() {
            path if path.starts_with("/apis/") => path.trim_end_matches('/'),
            path => path,
        };
        if let Some(document) = discovery::document(path) {
            return Route::Document(document);
        }
        if matches!(path, "/healthz" | "/livez" | "/readyz") {
            return Route::Health;
        }
        if path == REVIEWS {
            return Route::Review;
        }
        let Some(rest) = path.strip_prefix(LEASES) else { return Route::Elsewhere };
        match rest.split('/').collect::<Vec<_>>().as_slice() {
            ["leases"] => Route::Leases(None),
            ["namespaces", namespace, "leases"] => Route::Leases(Some(decoded(namespace))),
            ["namespaces", namespace, "leases", name] => Route::Lease(decoded(namespace), decoded(name)),
            _ => Route::Nowhere,
        }
    }

    /// The body as a Lease of `namespace`.
    pub(super) fn lease(&self, namespace: &str, warnings: &mut Vec<String>) -> Result<Lease, Status> {
        let lease = Lease::new(self.object(&schema::LEASE, warnings)?);
        if !lease.namespace().is_empty() && lease.namespace() != namespace {
            return Err(Status::another_namespace());
        }
        Ok(lease)
    }

    /// The body as an object of this kind.
    pub(super) fn object(&self, of: &Kind, warnings: &mut Vec<String>) -> Result<Value, Status> {
        let encoding = self.encoding()?;
        let name = of.name;
        let unreadable =
            |why| Status::bad_request(format!("the object provided is unrecognized (must be of type {name}): {why}"));
        let document = encoding.read(&self.body, of).map_err(unreadable)?;
        let body = document.united();
        let (version, kind) = head(&body, of).map_err(unreadable)?;
        if version != of.version {
            let message =
                format!("the API version in the data ({version}) does not match the expected API version ({})", of.version);
            return Err(Status::bad_request(message));
        }
        let refuse = |why| Status::bad_request(format!("{kind} in version \"v1\" cannot be handled as a {name}: {why}"));
        if kind != name {
            return Err(refuse(not_registered(&kind, &version)));
        }
        let object = schema::decode(&body, of).map_err(refuse)?;
        let complaints = schema::complaints(&document, Some(of));
        match self.query.text("fieldValidation") {
            "Strict" if !complaints.is_empty() => {
                return Err(refuse(format!("strict decoding error: {}", complaints.join(", "))));
            }
            "Strict" | "Ignore" => {}
            _ => warnings.extend(complaints),
        }
        Ok(object)
    }

    /// How its body is written.
    ///
    /// # Errors
    /// 415 if it is neither.
    pub(super) fn encoding(&self) -> Result<Encoding, Status> {
        match self.media_type() {
            "" | "application/json" | "*/*" => Ok(Encoding::Json),
            PROTOBUF => Ok(Encoding::Protobuf),
            _ => Err(Status::unsupported_media_type(&format!("application/json, {PROTOBUF}"))),
        }
    }

    pub(super) fn media_type(&self) -> &str {
        self.content_type.split(';').next().unwrap_or_default().trim()
    }
}

impl Encoding {
    /// A body that is an object of this kind unless it states another. The error is Go's message, apart from the parser's own.
    pub(super) fn read(self, body: &[u8], of: &Kind) -> Result<Document, String> {
        match self {
            Self::Json => serde_json::from_slice(body).map_err(|why| no_json(&why.to_string())),
            Self::Protobuf => Ok(Document::from(&protobuf::decode(body, of.name)?)),
        }
    }
}

/// A percent-decoded path segment; invalid UTF-8 is replaced.
fn decoded(segment: &str) -> String {
    percent_decode_str(segment).decode_utf8_lossy().into_owned()
}

/// The version and kind that `body` states, if it does. The error is Go's message.
pub(super) fn head(body: &Value, of: &Kind) -> Result<(String, String), String> {
    let head = schema::decode(body, &schema::HEAD).map_err(|why| no_json(&why))?;
    let text = |field: &str, default: &str| head.get(field).and_then(Value::as_str).unwrap_or(default).to_owned();
    Ok((text("apiVersion", of.version), text("kind", of.name)))
}

fn no_json(why: &str) -> String {
    format!("couldn't get version/kind; json parse error: {why}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(method: Method, path: &str, query: &str) -> Request {
        Request {
            method,
            path: format!("{LEASES}{path}"),
            query: Query::parse(query),
            accept: String::new(),
            content_type: String::new(),
            body: bytes::Bytes::new(),
        }
    }

    #[test]
    fn a_plus_sign_in_a_path_is_no_blank() {
        let request = request(Method::GET, "namespaces/x%20y/leases/a+b%2Bc%", "");

        let Route::Lease(namespace, name) = request.route() else { panic!("a Lease's path") };

        assert_eq!((namespace.as_str(), name.as_str()), ("x y", "a+b+c%"));
    }

    #[test]
    fn a_watch_is_of_a_collection() {
        for (method, path, query, begins) in [
            (Method::GET, "leases", "watch", true),
            (Method::GET, "namespaces/x/leases", "watch=yes", true),
            (Method::GET, "namespaces/x/leases", "watch=False", false),
            (Method::GET, "namespaces/x/leases/a", "watch=true", false),
            (Method::POST, "namespaces/x/leases", "watch=true", false),
        ] {
            assert_eq!(request(method.clone(), path, query).is_watch(), begins, "{method} {path}?{query}");
        }
    }
}
