//! A request to the API server: the place, what is done there, and what goes over the wire.

use std::sync::Arc;

use form_urlencoded::Serializer;
use http::{
    HeaderName, Method,
    header::{ACCEPT, CONTENT_TYPE},
};
use kube::client::Body;
use serde_json::{Value, json};

use super::place::{LeasePlace, Place};
use crate::election::writes::{LeaseWrite, Sent};
pub(crate) use crate::request::Verb;

const JSON: &str = "application/json";
/// As whom a request is to act.
pub(super) const USER: HeaderName = HeaderName::from_static("impersonate-user");

impl Verb {
    /// Returns true for a POST of an object without data: what a server says of it quotes no value.
    pub(super) fn has_no_value(&self) -> bool {
        matches!(self, Self::Create(body) if body.get("data").or_else(|| body.get("stringData")).is_none())
    }

    /// Returns true for a PATCH.
    pub(super) const fn is_patch(&self) -> bool {
        matches!(self, Self::Apply(_) | Self::Merge(_))
    }
}

/// One request.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(super) place: Place,
    pub(super) verb: Verb,
    query: String,
    acting_as: Option<String>,
}

impl Request {
    /// Reads an object.
    pub(crate) fn get(place: &Place) -> Self {
        Self::of(place.clone(), Verb::Get)
    }

    /// Reads all objects.
    pub(crate) fn list(place: &Place) -> Self {
        Self::of(place.clone(), Verb::List)
    }

    /// Does anything with an object that is no Lease.
    pub(crate) const fn of(place: Place, verb: Verb) -> Self {
        Self { place, verb, query: String::new(), acting_as: None }
    }

    /// Writes a Lease.
    pub(crate) fn lease(place: &LeasePlace, write: &LeaseWrite) -> Self {
        let verb = match write.sent() {
            Sent::Create(object) => Verb::Create(Arc::clone(object)),
            Sent::Replace(object) => Verb::Replace(Arc::clone(object)),
            Sent::Delete { uid, resource_version } => Verb::Delete(delete_options(uid, resource_version).into()),
        };
        Self::of((**place).clone(), verb)
    }

    /// The same with these parameters.
    pub(crate) fn with(mut self, parameters: &[(&str, &str)]) -> Self {
        self.query = Serializer::new(self.query).extend_pairs(parameters).finish();
        self
    }

    /// The same, sent as this user.
    pub(crate) fn acting_as(self, user: Option<&str>) -> Self {
        Self { acting_as: user.map(str::to_owned), ..self }
    }

    /// Returns its form on the wire.
    ///
    /// # Errors
    /// No URL or header can carry it.
    pub(crate) fn http(&self) -> http::Result<http::Request<Body>> {
        let place = &self.place;
        let (method, path, body) = match &self.verb {
            Verb::Get => (Method::GET, place.object(), None),
            Verb::List => (Method::GET, place.collection(), None),
            Verb::Create(body) => (Method::POST, place.collection(), Some((JSON, body))),
            Verb::Replace(body) => (Method::PUT, place.object(), Some((JSON, body))),
            Verb::Apply(body) => (Method::PATCH, place.object(), Some(("application/apply-patch+yaml", body))),
            Verb::Merge(body) => (Method::PATCH, place.object(), Some(("application/merge-patch+json", body))),
            Verb::Delete(options) => (Method::DELETE, place.object(), Some((JSON, options))),
        };
        let query = if self.query.is_empty() { String::new() } else { format!("?{}", self.query) };
        let mut request = http::Request::builder().method(method).uri(path + &query).header(ACCEPT, JSON);
        if let Some(user) = &self.acting_as {
            request = request.header(USER, user);
        }
        match body {
            Some((form, body)) => request.header(CONTENT_TYPE, form).body(body.to_string().into_bytes().into()),
            None => request.body(Body::empty()),
        }
    }
}

/// Returns the options of a DELETE of exactly this version.
fn delete_options(uid: &str, resource_version: &str) -> Value {
    let preconditions = json!({"uid": uid, "resourceVersion": resource_version});
    json!({"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": preconditions})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delete_is_of_one_version() {
        let options = delete_options("u", "7");
        assert_eq!(options["preconditions"], json!({ "uid": "u", "resourceVersion": "7" }));
    }

    #[test]
    fn a_selector_survives_a_query() {
        let asked = Request::list(&Place::lease("shop", ""));
        let asked = asked.with(&[("continue", "b+c"), ("labelSelector", "a.b/c in (x, y),!z=é")]);

        let query = "continue=b%2Bc&labelSelector=a.b%2Fc+in+%28x%2C+y%29%2C%21z%3D%C3%A9";
        assert_eq!(asked.http().unwrap().uri().query(), Some(query));
    }
}
