//! A stream of manifests: which of them are wrapped, what happens to their Service, and what is added for them.
//!
//! Owns the order, which stays. What is added comes after the last object.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{
    OURS, Variables,
    access::{Access, slice_of},
    before, items,
    names::{BEFORE, LEASE},
    text, wrap,
};
use crate::cli;

/// The manifests that result.
#[derive(Debug, Default)]
pub(crate) struct Stream {
    /// In their order.
    pub(crate) objects: Vec<Value>,
    /// Remarks, one line each.
    pub(crate) notes: Vec<String>,
    /// By namespace and Lease.
    access: BTreeMap<(String, String), Access>,
}

/// Judges a container that was wrapped, in a pod with so many seconds for a stop.
pub(crate) type Judge = fn(&Value, u64) -> Result<String, String>;

impl Stream {
    /// Wraps the pods of the workloads that have the label, or are named.
    ///
    /// # Errors
    /// The reasons to refuse workloads, one line each.
    pub(crate) fn inject(objects: Vec<Value>, asked: &cli::Inject, judge: Judge) -> Result<Self, Vec<String>> {
        let mut stream = Self { objects: objects.into_iter().flat_map(flattened).collect(), ..Self::default() };
        let mut unknown = asked.of.clone();
        let mut refused = Vec::new();
        for at in 0..stream.objects.len() {
            let name = shown(&stream.objects[at]);
            let Some(old) = template(&mut stream.objects[at]).cloned() else { continue };
            let is_named = asked.of.iter().any(|of| of.eq_ignore_ascii_case(&name));
            unknown.retain(|of| !of.eq_ignore_ascii_case(&name));
            let mut new = old.clone();
            if let (true, Some(lease)) = (is_named, &asked.lease) {
                before::put(&mut new, "labels", LEASE, lease);
            }
            if !new["metadata"]["labels"][LEASE].is_string() {
                continue;
            }
            if items(&old["spec"], "initContainers").iter().any(|container| container["name"] == OURS[0]) {
                stream.notes.push(format!("{name} has an init container {} already: it is left as it is", OURS[0]));
            } else if let Err(why) = stream.workload(at, &old, new, asked, judge) {
                refused.push(format!("{name}: {why}"));
            }
        }
        refused.extend(unknown.iter().map(|of| format!("{of} is no workload of this stream: write KIND/NAME")));
        for object in stream.access.iter().flat_map(|((namespace, lease), access)| access.objects(namespace, lease)) {
            let names = |one: &Value| [shown(one), text(&one["apiVersion"]).to_owned(), asked.namespace_of(one)];
            if stream.objects.iter().any(|there| names(there) == names(&object)) {
                stream.notes.push(format!("{} is in the stream already: it is left as it is", shown(&object)));
            } else {
                stream.objects.push(object);
            }
        }
        if refused.is_empty() { Ok(stream) } else { Err(refused) }
    }

    /// Wraps the pods of one object. Its template was `old`; `new` has the label.
    fn workload(&mut self, at: usize, old: &Value, mut new: Value, asked: &cli::Inject, judge: Judge) -> Result<(), String> {
        let (name, namespace) = (shown(&self.objects[at]), asked.namespace_of(&self.objects[at]));
        let is_job = ["Job", "CronJob"].contains(&text(&self.objects[at]["kind"]));
        let service = self.service(&namespace, &name, &new, asked)?;
        let variables: Variables = asked.env.iter().chain(service.iter().flat_map(|(_, env)| env)).cloned().collect();
        let container = wrap(&mut new, is_job, &asked.image, &variables)?;
        let spec = &new["spec"];
        let lease = judge(&spec["containers"][container], spec["terminationGracePeriodSeconds"].as_u64().unwrap_or_default())?;
        let account = [&spec["serviceAccountName"], &spec["serviceAccount"]].map(text).into_iter().find(|name| !name.is_empty());
        if asked.access {
            let access = self.access.entry((namespace, lease)).or_default();
            access.service = service.map(|(service, _)| service).or_else(|| access.service.take());
            access.accounts.insert(account.unwrap_or("default").into());
        }
        let note = before::of(old, &new, container).to_string();
        if let Some(template) = template(&mut self.objects[at]) {
            *template = new;
        }
        before::put(&mut self.objects[at], "annotations", BEFORE, &note);
        Ok(())
    }

    /// Returns the name of the Service that loses its selector, and the variables by which tenure writes its EndpointSlice. Says so where
    /// a Service keeps its selector.
    fn service(
        &mut self,
        namespace: &str,
        name: &str,
        pod: &Value,
        asked: &cli::Inject,
    ) -> Result<Option<(String, Variables)>, String> {
        let labels = &pod["metadata"]["labels"];
        let selects = |object: &&mut Value| {
            let selector = object["spec"]["selector"].as_object();
            object["apiVersion"] == "v1"
                && object["kind"] == "Service"
                && asked.namespace_of(object) == namespace
                && selector.is_some_and(|all| !all.is_empty() && all.iter().all(|(key, value)| labels[key] == *value))
        };
        let (mut with_address, mut others): (Vec<_>, Vec<_>) =
            self.objects.iter_mut().filter(selects).partition(|service| service["spec"]["clusterIP"] != "None");
        let service = if asked.service { with_address.pop() } else { None };
        if service.is_some() && !with_address.is_empty() {
            return Err("several Services select its pods, and tenure publishes one address: leave out --service".into());
        }
        others.append(&mut with_address);
        self.notes.extend(others.iter().map(|other| {
            let other = shown(other);
            format!("{other} sends traffic to the standbys of {name} too: they are ready (--service sends it to the leader)")
        }));
        let Some(service) = service else { return Ok(None) };
        let name = text(&service["metadata"]["name"]).to_owned();
        let old =
            format!("kubernetes.io/service-name={name},endpointslice.kubernetes.io/managed-by=endpointslice-controller.k8s.io");
        self.notes
            .push(format!("Service/{name} has no selector now: once it is applied, kubectl delete endpointslices -l {old}"));
        let note = json!({ "selector": service["spec"]["selector"] }).to_string();
        before::set(&mut service["spec"], "selector", &Value::Null);
        before::put(service, "annotations", BEFORE, &note);
        let number = |target: &Value| {
            let mut ports = items(&pod["spec"], "containers").iter().flat_map(|container| items(container, "ports"));
            target.as_u64().or_else(|| ports.find(|port| port["name"] == *target)?["containerPort"].as_u64())
        };
        let ports = items(&service["spec"], "ports").iter().map(|port| {
            let target = if port["targetPort"].is_null() { &port["port"] } else { &port["targetPort"] };
            let protocol = port["protocol"].as_str().unwrap_or("TCP");
            json!({ "name": text(&port["name"]), "port": number(target), "protocol": protocol })
        });
        let env = [("ENDPOINT_SLICE", slice_of(&name)), ("PORTS", Value::from_iter(ports).to_string())];
        Ok(Some((name, env.map(|(key, value)| (format!("TENURE_SERVICE__{key}"), value)).into())))
    }
}

/// Takes out what [`Stream::inject`] has put in.
///
/// # Errors
/// The object whose annotation cannot be read.
pub(crate) fn uninject(objects: Vec<Value>) -> Result<Vec<Value>, String> {
    let restored = objects.into_iter().flat_map(flattened).map(|object| {
        let name = shown(&object);
        restored(object).ok_or_else(|| format!("{name}: the annotation {BEFORE} is not what tenure inject wrote"))
    });
    Ok(restored.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect())
}

/// Returns an object as it was before, or nothing if it was added. None if its annotation cannot be read.
fn restored(mut object: Value) -> Option<Option<Value>> {
    let Some(note) = object["metadata"]["annotations"][BEFORE].as_str() else { return Some(Some(object)) };
    let before: Value = serde_json::from_str(note).ok()?;
    if before.is_null() {
        return Some(None);
    }
    before::forget(&mut object, "annotations", BEFORE);
    match before.get("selector") {
        Some(selector) => before::set(object.get_mut("spec")?, "selector", selector),
        None => before::restore(template(&mut object)?, before.get("container").map(|_| &before)?),
    }
    Some(Some(object))
}

/// Kind and name, for people.
fn shown(object: &Value) -> String {
    format!("{}/{}", text(&object["kind"]), text(&object["metadata"]["name"]))
}

/// Returns the pod of an object, or its template of pods; none if tenure wraps no such kind.
fn template(object: &mut Value) -> Option<&mut Value> {
    let path = match (object["apiVersion"].as_str()?, object["kind"].as_str()?) {
        ("v1", "Pod") => "",
        ("apps/v1", "Deployment" | "StatefulSet" | "ReplicaSet" | "DaemonSet") | ("batch/v1", "Job") => "/spec/template",
        ("batch/v1", "CronJob") => "/spec/jobTemplate/spec/template",
        _ => return None,
    };
    object.pointer_mut(path).filter(|template| template.is_object())
}

/// Returns the items of a List, or of a list of one kind, in its place; nothing for an empty document.
fn flattened(object: Value) -> Vec<Value> {
    let Some((kind, list)) = text(&object["kind"]).strip_suffix("List").zip(object["items"].as_array()) else {
        return if object.is_null() { Vec::new() } else { vec![object] };
    };
    let item = |item: &Value| {
        let mut item = item.clone();
        if item["kind"].is_null() {
            before::set(&mut item, "apiVersion", &object["apiVersion"]);
            before::set(&mut item, "kind", &kind.into());
        }
        flattened(item)
    };
    list.iter().flat_map(item).collect()
}

impl cli::Inject {
    /// The namespace of an object; empty if it is that of the context.
    fn namespace_of(&self, object: &Value) -> String {
        let written = object["metadata"]["namespace"].as_str().or(self.namespace.as_deref());
        written.unwrap_or_default().to_owned()
    }
}
