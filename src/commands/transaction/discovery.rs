//! Which resource of the API server a kind is.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::{
    api::{Place, Request},
    commands::access::{Access, exit_code, said},
    exit,
};

/// Refused before anything was changed.
const REFUSED: u8 = 1;

/// The group versions that were asked for.
#[derive(Default)]
pub(super) struct Kinds(BTreeMap<String, Value>);

/// A kind as the server serves it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Resource {
    /// Its name in a path.
    pub(super) name: String,
    /// True if its objects are in namespaces.
    pub(super) namespaced: bool,
}

/// The exit code, and why a target cannot be one.
pub(super) type Refusal = (u8, String);

impl Kinds {
    /// Finds the resource of a target's kind.
    ///
    /// # Errors
    /// The server does not serve it, lets nobody patch it, or does not answer.
    pub(super) async fn of(&mut self, access: &Access, target: &Place) -> Result<Resource, Refusal> {
        let version = &target.api_version;
        if !self.0.contains_key(version) {
            let place = Place::discovery(version);
            let path = place.object();
            let served = match access.send(&Request::get(&place)).await.object() {
                Err(error) if error.status == Some(404) => Value::Null,
                answer => answer.map_err(|error| (exit_code(&error), format!("GET {path}: {}", said(&error))))?,
            };
            self.0.insert(version.clone(), served);
        }
        let served = self.0.get(version).unwrap_or(&Value::Null);
        let kind = &target.kind;
        resource(served, kind).map_err(|lacks| match (lacks, nearest(served, kind)) {
            (Some(verb), _) => (exit::INVALID, format!("the API server does not let anybody {verb} a {kind}")),
            (None, Some(near)) => (exit::INVALID, format!("there is no {kind} in {version}: did you mean {near}?")),
            (None, None) => {
                let why = "apply its CustomResourceDefinition first";
                (REFUSED, format!("the API server does not serve {kind} in {version}: {why}"))
            }
        })
    }
}

/// Finds the kind in an APIResourceList. The error is the verb that it lacks; none if there is no such kind.
fn resource(served: &Value, kind: &str) -> Result<Resource, Option<&'static str>> {
    let text = |resource: &Value, key: &str| resource.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let resources = served.get("resources").and_then(Value::as_array).into_iter().flatten();
    let mut of_kind = resources.filter(|resource| text(resource, "kind") == kind && !text(resource, "name").contains('/'));
    let found = of_kind.next().ok_or(None)?;
    let has = |verb: &&str| found["verbs"].as_array().is_some_and(|verbs| verbs.iter().any(|has| has == verb));
    match ["get", "patch"].into_iter().find(|verb| !has(verb)) {
        Some(lacks) => Err(Some(lacks)),
        None => Ok(Resource { name: text(found, "name"), namespaced: found["namespaced"] == true }),
    }
}

/// Returns the kind whose name is nearest, if it may be meant.
fn nearest<'a>(served: &'a Value, kind: &str) -> Option<&'a str> {
    let kinds = served["resources"].as_array().into_iter().flatten().filter_map(|resource| resource["kind"].as_str());
    let near = kinds.map(|known| (strsim::osa_distance(&known.to_lowercase(), &kind.to_lowercase()), known));
    near.min().filter(|(distance, _)| *distance <= 2).map(|(_, known)| known)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_kind_is_found_by_its_name_and_its_subresources_are_not() {
        let all = ["get", "patch"];
        let served = json!({ "resources": [
            { "name": "pods/eviction", "kind": "Eviction", "namespaced": true, "verbs": ["create"] },
            { "name": "deployments/scale", "kind": "Scale", "namespaced": true, "verbs": all },
            { "name": "deployments", "kind": "Deployment", "namespaced": true, "verbs": all },
            { "name": "namespaces", "kind": "Namespace", "namespaced": false, "verbs": all },
            { "name": "bindings", "kind": "Binding", "namespaced": true, "verbs": ["create"] },
        ]});

        let found = |kind| resource(&served, kind).map(|found| (found.name, found.namespaced));

        assert_eq!(found("Deployment"), Ok(("deployments".into(), true)));
        assert_eq!(found("Namespace"), Ok(("namespaces".into(), false)));
        assert_eq!([found("Scale"), found("Eviction"), found("Binding")], [Err(None), Err(None), Err(Some("get"))]);
        assert_eq!(resource(&Value::Null, "Pod"), Err(None));
    }
}
