//! A stream of manifests: which of them are wrapped, and what is added for them.
//!
//! Owns the order, which stays, and the objects that are added after the last one: the Lease and the rights.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{
    PROGRAM, Settings, TENURE, before, items,
    names::{BEFORE, LEASE},
    wrap,
};

/// What is asked of a stream.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    /// The Lease of the workloads `of`.
    pub(crate) lease: Option<String>,
    /// Workloads that need no label: `deployment/billing`.
    pub(crate) of: Vec<String>,
    /// The namespace of what is added for a workload that names none.
    pub(crate) namespace: Option<String>,
    /// Adds the Leases and the rights.
    pub(crate) access: bool,
    /// Lets the Service of a workload reach the leader only.
    pub(crate) service: bool,
    /// What the cluster says of all pods.
    pub(crate) settings: Settings,
}

/// The manifests that result.
#[derive(Debug, Default)]
pub(crate) struct Stream {
    /// In their order.
    pub(crate) objects: Vec<Value>,
    /// Remarks, one line each.
    pub(crate) notes: Vec<String>,
    /// What was wrapped.
    pub(crate) wrapped: Vec<Wrapped>,
    access: Vec<Access>,
}

/// A container that was wrapped.
#[derive(Debug)]
pub(crate) struct Wrapped {
    /// Its workload, for people.
    pub(crate) name: String,
    /// As it is now.
    pub(crate) container: Value,
    /// The time that its pod has for a stop, in seconds.
    pub(crate) grace: u64,
}

/// What the pods of a workload need.
#[derive(Debug, PartialEq)]
struct Access {
    namespace: Value,
    lease: String,
    accounts: BTreeSet<String>,
    /// The Service whose EndpointSlice the leader writes.
    service: Option<String>,
}

impl Stream {
    /// Wraps the pods of the workloads that have the label, or are named.
    ///
    /// # Errors
    /// The reasons to refuse workloads, one line each.
    pub(crate) fn inject(objects: Vec<Value>, options: &Options) -> Result<Self, Vec<String>> {
        let mut stream = Self { objects: flattened(objects), ..Self::default() };
        let (mut refused, mut of) = (Vec::new(), options.of.clone());
        for at in 0..stream.objects.len() {
            let name = shown(&stream.objects[at]);
            let is_named = of.iter().any(|named| *named == name.to_lowercase());
            of.retain(|named| *named != name.to_lowercase());
            let lease = options.lease.as_deref().filter(|_| is_named);
            if let Err(why) = stream.workload(at, lease, options) {
                refused.push(format!("{name}: {why}"));
            }
        }
        refused
            .extend(of.into_iter().map(|named| format!("{named} is no workload of this stream: write KIND/NAME in lower case")));
        if options.access {
            let added: Vec<_> = stream.access.iter().flat_map(Access::objects).collect();
            stream.objects.extend(added);
        }
        if refused.is_empty() { Ok(stream) } else { Err(refused) }
    }

    /// Takes out what [`Self::inject`] has put in.
    pub(crate) fn uninject(objects: Vec<Value>) -> Vec<Value> {
        flattened(objects).into_iter().filter_map(restored).collect()
    }

    /// Wraps the pods of one object, if it is a workload that asks for that.
    fn workload(&mut self, at: usize, named: Option<&str>, options: &Options) -> Result<(), String> {
        let (namespace, name) = (self.objects[at]["metadata"]["namespace"].clone(), shown(&self.objects[at]));
        let is_job = ["Job", "CronJob"].into_iter().any(|kind| self.objects[at]["kind"] == kind);
        let Some(old) = template(&mut self.objects[at]).cloned() else { return Ok(()) };
        let mut new = old.clone();
        if let Some(lease) = named {
            before::put(&mut new, "labels", LEASE, lease);
        }
        let Some(lease) = new["metadata"]["labels"][LEASE].as_str().map(String::from) else { return Ok(()) };
        if items(&old["spec"], "initContainers").iter().any(|container| container["name"] == TENURE) {
            self.notes.push(format!("{name} has an init container {TENURE} already: it is left as it is"));
            return Ok(());
        }
        let mut settings = options.settings.clone();
        let service = self.service(&namespace, &name, &new, options.service)?;
        settings.env.extend(service.iter().flat_map(|(_, env)| env.clone()));
        wrap(&mut new, is_job, &settings)?;
        let grace = new["spec"]["terminationGracePeriodSeconds"].as_u64().unwrap_or_default();
        let wrapped = items(&new["spec"], "containers").iter().find(|container| container["command"][0] == PROGRAM).cloned();
        self.wrapped.extend(wrapped.map(|container| Wrapped { name, container, grace }));
        let account = new["spec"]["serviceAccountName"].as_str().unwrap_or("default").to_owned();
        let note = before::of(&old, &new).to_string();
        if let Some(template) = template(&mut self.objects[at]) {
            *template = new;
        }
        before::put(&mut self.objects[at], "annotations", BEFORE, &note);
        let namespace = if namespace.is_null() { options.namespace.clone().into() } else { namespace };
        let lease = if is_job { format!("lock-{lease}") } else { lease };
        let service = service.map(|(service, _)| service);
        match self.access.iter_mut().find(|access| access.lease == lease && access.namespace == namespace) {
            Some(access) => access.accounts.extend([account]),
            None => self.access.push(Access { namespace, lease, accounts: [account].into(), service }),
        }
        Ok(())
    }
}

impl Stream {
    /// The EndpointSlice of the leader in place of the selector of the workload's Service, and the variables for it. Says so where a
    /// Service keeps its selector.
    fn service(&mut self, namespace: &Value, name: &str, pod: &Value, is_asked: bool) -> Result<Option<OfLeader>, String> {
        let labels = &pod["metadata"]["labels"];
        let selects = |object: &Value| {
            let selector = object["spec"]["selector"].as_object().filter(|selector| !selector.is_empty());
            let is_service = object["apiVersion"] == "v1" && object["kind"] == "Service";
            is_service
                && object["metadata"]["namespace"] == *namespace
                && selector.is_some_and(|selector| selector.iter().all(|(key, value)| labels[key] == *value))
        };
        let (headless, others): (Vec<_>, Vec<_>) = (0..self.objects.len())
            .filter(|at| selects(&self.objects[*at]))
            .partition(|at| self.objects[*at]["spec"]["clusterIP"] == "None");
        let [at] = *others else {
            if is_asked && !others.is_empty() {
                return Err("several Services select its pods, and tenure publishes one address: leave out --service".into());
            }
            return Ok(None);
        };
        for at in headless.into_iter().chain(others.into_iter().filter(|_| !is_asked)) {
            let service = shown(&self.objects[at]);
            self.notes.push(format!(
                "{service} sends traffic to the standbys of {name} too: they are ready (--service sends it to the leader)"
            ));
        }
        if !is_asked {
            return Ok(None);
        }
        let service = &mut self.objects[at];
        let name = service["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let old =
            format!("kubernetes.io/service-name={name},endpointslice.kubernetes.io/managed-by=endpointslice-controller.k8s.io");
        self.notes
            .push(format!("Service/{name} has no selector now: once it is applied, kubectl delete endpointslices -l {old}"));
        let note = json!({ "selector": service["spec"]["selector"] }).to_string();
        before::set(&mut service["spec"], "selector", &Value::Null);
        before::put(service, "annotations", BEFORE, &note);
        let number = |port: &Value| {
            let named = items(&pod["spec"], "containers").iter().flat_map(|container| items(container, "ports"));
            port.as_u64().or_else(|| named.into_iter().find(|item| item["name"] == *port)?["containerPort"].as_u64())
        };
        let ports = items(&service["spec"], "ports").iter().map(|port| {
            let target = if port["targetPort"].is_null() { &port["port"] } else { &port["targetPort"] };
            let protocol = port["protocol"].as_str().unwrap_or("TCP");
            json!({ "name": port["name"].as_str().unwrap_or_default(), "port": number(target), "protocol": protocol })
        });
        let env = [("ENDPOINT_SLICE", slice_of(&name)), ("PORTS", Value::from_iter(ports).to_string())];
        Ok(Some((name, env.map(|(key, value)| (format!("TENURE_SERVICE__{key}"), value)).into())))
    }
}

/// The name of a Service, and the variables by which tenure writes its EndpointSlice.
type OfLeader = (String, Vec<(String, String)>);

impl Access {
    /// The Lease, the EndpointSlice, and the rights of the accounts to them.
    fn objects(&self) -> Vec<Value> {
        let name = format!("tenure-{}", self.lease);
        let object = |version: &str, kind: &str, name: &str, rest: Value| {
            let mut object = json!({ "apiVersion": version, "kind": kind, "metadata": { "name": name } });
            before::set(&mut object["metadata"], "namespace", &self.namespace);
            before::put(&mut object, "annotations", BEFORE, "null");
            if let (Value::Object(fields), Value::Object(rest)) = (&mut object, rest) {
                fields.extend(rest);
            }
            object
        };
        let rule = |group, resource, name: &str, verbs: &[&str]| json!({ "apiGroups": [group], "resources": [resource], "resourceNames": [name], "verbs": verbs });
        let mut rules = vec![rule("coordination.k8s.io", "leases", &self.lease, &["get", "watch", "update"])];
        let mut objects = vec![object("coordination.k8s.io/v1", "Lease", &self.lease, json!({}))];
        if let Some(service) = &self.service {
            let name = slice_of(service);
            rules.push(rule("discovery.k8s.io", "endpointslices", &name, &["get", "update"]));
            let mut slice = object("discovery.k8s.io/v1", "EndpointSlice", &name, json!({ "addressType": "IPv4" }));
            before::put(&mut slice, "labels", "kubernetes.io/service-name", service);
            before::put(&mut slice, "labels", "endpointslice.kubernetes.io/managed-by", "tenure.dev");
            objects.push(slice);
        }
        let subject = |name| json!({ "kind": "ServiceAccount", "name": name });
        let role = json!({ "apiGroup": RBAC, "kind": "Role", "name": name });
        let binding = json!({ "roleRef": role, "subjects": self.accounts.iter().map(subject).collect::<Vec<_>>() });
        let version = format!("{RBAC}/v1");
        objects.push(object(&version, "Role", &name, json!({ "rules": rules })));
        objects.push(object(&version, "RoleBinding", &name, binding));
        objects
    }
}

/// The name of the EndpointSlice that the leader of a Service writes.
fn slice_of(service: &str) -> String {
    format!("{service}-leader")
}

const RBAC: &str = "rbac.authorization.k8s.io";

/// Kind and name, for people.
fn shown(object: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    format!("{}/{}", text(&object["kind"]), text(&object["metadata"]["name"]))
}

/// The pod of an object, or its template of pods; none if tenure wraps no such kind.
fn template(object: &mut Value) -> Option<&mut Value> {
    let path = match (object["apiVersion"].as_str()?, object["kind"].as_str()?) {
        ("v1", "Pod") => "",
        ("apps/v1", "Deployment" | "StatefulSet" | "ReplicaSet" | "DaemonSet") | ("batch/v1", "Job") => "/spec/template",
        ("batch/v1", "CronJob") => "/spec/jobTemplate/spec/template",
        _ => return None,
    };
    object.pointer_mut(path)
}

/// The items of a List in its place; nothing is there for an empty document.
fn flattened(objects: Vec<Value>) -> Vec<Value> {
    let is_list = |object: &Value| object["apiVersion"] == "v1" && object["kind"] == "List";
    let flat = |object: Value| if is_list(&object) { items(&object, "items").to_vec() } else { vec![object] };
    objects.into_iter().filter(|object| !object.is_null()).flat_map(flat).collect()
}

/// An object as it was before; none if it was added.
fn restored(mut object: Value) -> Option<Value> {
    let Some(note) = object["metadata"]["annotations"][BEFORE].as_str() else { return Some(object) };
    let before: Value = serde_json::from_str(note).ok()?;
    before::forget(&mut object, "annotations", BEFORE);
    if object["kind"] == "Service" {
        before::set(&mut object["spec"], "selector", before.get("selector")?);
    } else {
        before::restore(template(&mut object)?, before.get("container").map(|_| &before)?);
    }
    Some(object)
}
