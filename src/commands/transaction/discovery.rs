//! Which resource of the API server a kind is.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::{
    api::Place,
    commands::access::{exit_code, said},
    exit,
    request::Answer,
    transaction::{self, Server, Settings},
};

/// Refused before anything was changed.
const REFUSED: u8 = 1;

/// The group versions that were asked for.
#[derive(Default)]
pub(super) struct Kinds(BTreeMap<String, Vec<Resource>>);

/// A kind as the server serves it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Resource {
    /// Its name in a path.
    pub(super) name: String,
    /// True if its objects are in namespaces.
    pub(super) namespaced: bool,
    kind: String,
    verbs: Vec<String>,
}

/// The exit code, and why a target cannot be one.
pub(super) type Refusal = (u8, String);

impl Kinds {
    /// Finds the resource of a target's kind.
    ///
    /// # Errors
    /// The server does not serve it, lets nobody patch it, or does not answer.
    pub(super) async fn of(&mut self, server: &impl Server, settings: &Settings, target: &Place) -> Result<Resource, Refusal> {
        let version = &target.api_version;
        if !self.0.contains_key(version) {
            let place = Place::discovery(version);
            let served = match transaction::read(server, settings.clone(), place.clone()).await {
                Answer::Refused { message: why, .. } | Answer::Unknown { message: why, .. } if why.status != Some(404) => {
                    return Err((exit_code(&why), format!("GET {}: {}", place.object(), said(&why))));
                }
                Answer::Object(list) => serde_json::from_value(list["resources"].clone()).unwrap_or_default(),
                // A 404.
                Answer::Listed { .. } | Answer::Deleted | Answer::NotFound | Answer::Conflict => Vec::new(),
                Answer::Refused { .. } | Answer::Unknown { .. } => Vec::new(),
            };
            self.0.insert(version.clone(), served);
        }
        find(self.0.get(version).map_or(&[], Vec::as_slice), version, &target.kind)
    }
}

fn find(served: &[Resource], version: &str, kind: &str) -> Result<Resource, Refusal> {
    let Some(found) = served.iter().find(|resource| resource.kind == kind && !resource.name.contains('/')) else {
        return Err(match nearest(served, kind) {
            Some(near) => (exit::INVALID, format!("there is no {kind} in {version}: did you mean {near}?")),
            None => {
                let why = "apply its CustomResourceDefinition first";
                (REFUSED, format!("the API server does not serve {kind} in {version}: {why}"))
            }
        });
    };
    match ["get", "patch"].into_iter().find(|verb| !found.verbs.iter().any(|has| has == verb)) {
        Some(verb) => Err((exit::INVALID, format!("the API server does not let anybody {verb} a {kind}"))),
        None => Ok(found.clone()),
    }
}

/// Returns the kind whose name is nearest, if it may be meant.
fn nearest<'a>(served: &'a [Resource], kind: &str) -> Option<&'a str> {
    let distance = |known: &str| strsim::osa_distance(&known.to_lowercase(), &kind.to_lowercase());
    let near = served.iter().map(|known| (distance(&known.kind), known.kind.as_str())).min();
    near.filter(|(distance, _)| *distance <= 2).map(|(_, known)| known)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_kind_is_found_by_its_name_and_its_subresources_are_not() {
        let all = ["get", "patch"];
        let served = json!([
            { "name": "pods/eviction", "kind": "Eviction", "namespaced": true, "verbs": ["create"] },
            { "name": "deployments/scale", "kind": "Scale", "namespaced": true, "verbs": all },
            { "name": "deployments", "kind": "Deployment", "namespaced": true, "verbs": all },
            { "name": "namespaces", "kind": "Namespace", "namespaced": false, "verbs": all },
            { "name": "bindings", "kind": "Binding", "namespaced": true, "verbs": ["create"] },
        ]);
        let served: Vec<Resource> = serde_json::from_value(served).unwrap();

        let resource = |kind| find(&served, "v1", kind).map(|found| (found.name, found.namespaced));
        let refused = |kind| resource(kind).unwrap_err();

        assert_eq!(resource("Deployment"), Ok(("deployments".into(), true)));
        assert_eq!(resource("Namespace"), Ok(("namespaces".into(), false)));
        assert_eq!(refused("Binding"), (78, "the API server does not let anybody get a Binding".into()));
        assert_eq!(refused("Deploymnet"), (78, "there is no Deploymnet in v1: did you mean Deployment?".into()));
        for kind in ["Gate", "Evict"] {
            let why = format!("the API server does not serve {kind} in v1: apply its CustomResourceDefinition first");
            assert_eq!(refused(kind), (1, why));
        }
    }
}
