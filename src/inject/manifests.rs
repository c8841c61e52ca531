//! A stream of manifests: which of them are wrapped, what happens to their Service, and what is added for them.
//!
//! Owns the order, which stays. What is added comes after the last object.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{
    Changed, Judge, OURS, PROGRAM, Variable,
    access::{Access, slice_of},
    before, items,
    names::{CONTAINER, LEASE},
    number,
    refusals::{LACKS_TOKEN, named},
    shown, text, wrap,
};
use crate::{cli, election::writes::as_map, transaction::entry_of};

/// The Service that reaches the leader only, the family of its addresses, and the variables by which tenure writes its EndpointSlice.
type Led = Option<((String, String), Vec<Variable>)>;

struct Stream<'a> {
    objects: Vec<Value>,
    /// Remarks, one line each.
    notes: Vec<String>,
    /// By namespace and Lease.
    access: BTreeMap<(Option<String>, String), Access>,
    asked: &'a cli::Inject,
    judge: Judge,
    has_label: bool,
}

/// Wraps the pods of the workloads that have the label, or are named.
pub(crate) fn inject(objects: Vec<Value>, asked: &cli::Inject, judge: Judge) -> Changed {
    let mut stream = Stream { objects, notes: Vec::new(), access: BTreeMap::new(), asked, judge, has_label: false };
    let is_there =
        |of: &&String| stream.objects.iter().any(|one| of.eq_ignore_ascii_case(&shown(one)) && template(one).is_some());
    let unknown = asked.of.iter().filter(|of| !is_there(of));
    let mut refused: Vec<_> = unknown.map(|of| format!("{of} is no workload of this stream: write KIND/NAME")).collect();
    for at in 0..stream.objects.len() {
        if let Err(why) = stream.workload(at) {
            refused.push(format!("{}: {why}", shown(&stream.objects[at])));
        }
    }
    let Stream { mut objects, mut notes, access, has_label, .. } = stream;
    if !has_label {
        notes.push(format!("nothing is wrapped: no pod of these manifests has the label {LEASE}"));
    }
    let names = |one: &Value| (shown(one), one["apiVersion"].clone(), asked.namespace_of(one));
    for object in access.iter().flat_map(|((namespace, lease), access)| access.objects(namespace.as_deref(), lease)) {
        if objects.iter().any(|there| names(there) == names(&object)) {
            notes.push(format!("{} is in the stream already: it is left as it is", shown(&object)));
        } else {
            objects.push(object);
        }
    }
    if refused.is_empty() { Ok((objects, notes)) } else { Err(refused) }
}

/// Returns the items of a List, or of a list of one kind, in its place; nothing for an empty document.
pub(crate) fn flattened(object: Value) -> Vec<Value> {
    let kind = text(&object["kind"]);
    let Some(kind) = kind.strip_suffix("List").filter(|_| kind == "ResourceList" || object["items"].is_array()) else {
        return if object.is_null() { Vec::new() } else { vec![object] };
    };
    let item = |item: &Value| {
        let Some(own) = item.as_object().cloned() else { return flattened(item.clone()) };
        let mut whole = json!({ "apiVersion": object["apiVersion"], "kind": kind });
        as_map(&mut whole).extend(own);
        flattened(whole)
    };
    items(&object["items"]).iter().flat_map(item).collect()
}

impl Stream<'_> {
    /// Wraps the pods of an object if that is asked for.
    fn workload(&mut self, at: usize) -> Result<(), String> {
        let mut object = self.objects[at].clone();
        let (name, namespace, asked) = (shown(&object), self.asked.namespace_of(&object), self.asked);
        let is_job = ["Job", "CronJob"].contains(&text(&object["kind"]));
        let is_elsewhere =
            [&object, &object["spec"]["jobTemplate"]].iter().any(|one| one["metadata"]["labels"][LEASE].is_string());
        let Some(pod) = template(&object).and_then(|path| object.pointer_mut(path)) else {
            let remedy = "remove the label, or leave it out of these manifests, and let deploy/inject wrap its pods";
            let why = format!("and this command does not wrap those of {}: {remedy}", text(&self.objects[at]["apiVersion"]));
            return if has_template(&self.objects[at]) { Err(format!("its pods have the label {LEASE}, {why}")) } else { Ok(()) };
        };
        let is_named = asked.of.iter().any(|of| of.eq_ignore_ascii_case(&name));
        if let (true, Some(lease)) = (is_named, &asked.lease) {
            *entry_of(entry_of(entry_of(pod, "metadata"), "labels"), LEASE) = lease.as_str().into();
        }
        if !pod["metadata"]["labels"][LEASE].is_string() {
            let why = format!("the label {LEASE} is not in the metadata of its template: write it there, or remove it");
            return if is_elsewhere { Err(why) } else { Ok(()) };
        }
        self.has_label = true;
        if is_wrapped(&pod["spec"]) {
            self.notes.push(format!("{name} has an init container {} already: it is left as it is", OURS[0]));
            return Ok(());
        }
        let spec = &self.objects[at]["spec"];
        if spec["paused"] == true || spec["updateStrategy"]["rollingUpdate"]["partition"].as_u64() > Some(0) {
            let old = "paused or with a partition, its controller makes pods of the template before, which may be without tenure";
            self.notes.push(format!("{name}: {old}: roll tenure out without it first"));
        }
        // A lock publishes nothing.
        let service = if is_job { None } else { self.service(&name, namespace.as_deref(), pod)? };
        let mut accounts = ["serviceAccountName", "serviceAccount"].into_iter().map(|key| text(&pod["spec"][key]));
        let account = accounts.find(|name| !name.is_empty()).unwrap_or("default").to_owned();
        let lacks_token = |one: &Value| {
            let is_it = one["kind"] == "ServiceAccount" && one["metadata"]["name"] == *account;
            is_it && one["automountServiceAccountToken"] == false && asked.namespace_of(one) == namespace
        };
        if pod["spec"]["automountServiceAccountToken"].is_null() && self.objects.iter().any(lacks_token) {
            return Err(format!("ServiceAccount/{account}: {LACKS_TOKEN}"));
        }
        let variables: Vec<_> = asked.env.iter().cloned().chain(service.iter().flat_map(|(_, env)| env.clone())).collect();
        let needs = wrap(pod, is_job, &asked.image, &variables, self.judge)?;
        if let (true, Some(name)) = (asked.access, &needs.unknown) {
            let why = "its value is known only in the pod, and the rights need it";
            return Err(format!("{}: {why}: write it out, without valueFrom or $(…), or set --access=false", text(name)));
        }
        if let ([first, _, ..], None) = (items(&pod["spec"]["containers"]), named(pod)) {
            let first = format!("the first container, {}, is taken for the program", first["name"]);
            self.notes.push(format!("{name}: {first}: the annotation {CONTAINER} names another"));
        }
        let other = Some(needs.namespace).filter(|other| !other.is_empty() && namespace.as_ref() != Some(other));
        if let (Some(other), None) = (&other, &namespace)
            && (asked.access || service.is_some())
        {
            return Err(format!("the Lease is in the namespace {other}, and that of the pods is not known: write --namespace"));
        }
        if let (Some(other), Some(((service, _), _))) = (&other, &service) {
            let why = format!("the EndpointSlice of Service/{service} could not be written there: leave out --service");
            return Err(format!("the Lease is in the namespace {other}, and {why}"));
        }
        if asked.access {
            let home = namespace.clone().filter(|_| other.is_some());
            let access = self.access.entry((other.or(namespace), needs.lease)).or_default();
            access.grant(&needs.rights);
            access.service = service.map(|(service, _)| service).or_else(|| access.service.take());
            access.accounts.insert((account, home));
        }
        before::replace(&mut self.objects[at], object);
        Ok(())
    }

    /// Takes the selector of the Service that selects a pod, if that is asked for. Says so where a Service keeps its selector.
    fn service(&mut self, workload: &str, namespace: Option<&str>, pod: &Value) -> Result<Led, String> {
        let labels = &pod["metadata"]["labels"];
        let mut led = None;
        for object in &mut self.objects {
            let selector = object["spec"]["selector"].as_object().filter(|all| !all.is_empty());
            let selects = selector.is_some_and(|all| all.iter().all(|(key, value)| labels[key] == *value));
            if object["kind"] != "Service" || !selects || self.asked.namespace_of(object).as_deref() != namespace {
                continue;
            }
            if !self.asked.service || object["spec"]["clusterIP"] == "None" {
                let reaches = format!("{} sends traffic to the standbys of {workload} too", shown(object));
                self.notes.push(format!("{reaches}: they are ready (--service sends it to the leader)"));
            } else if led.replace(object).is_some() {
                return Err("several Services select its pods, and tenure publishes one address: leave out --service".into());
            }
        }
        let Some(service) = led else { return Ok(None) };
        let mut new = service.clone();
        let name = text(&service["metadata"]["name"]).to_owned();
        let old = "endpointslice.kubernetes.io/managed-by=endpointslice-controller.k8s.io";
        let delete =
            format!("kubectl delete endpointslices -l kubernetes.io/service-name={name},{old}; kubectl delete endpoints {name}");
        self.notes.push(format!("Service/{name} has no selector now: once it is applied, {delete}"));
        let family = service["spec"]["ipFamilies"][0].as_str().unwrap_or("IPv4").to_owned();
        as_map(&mut new["spec"]).remove("selector");
        before::replace(service, new);
        let ports = items(&service["spec"]["ports"]).iter().map(|port| {
            let target = if port["targetPort"].is_null() { &port["port"] } else { &port["targetPort"] };
            let protocol = port["protocol"].as_str().unwrap_or("TCP");
            json!({ "name": text(&port["name"]), "port": number(target, items(&pod["spec"]["containers"])), "protocol": protocol })
        });
        let env = [("ENDPOINT_SLICE", slice_of(&name)), ("PORTS", Value::from_iter(ports).to_string())];
        Ok(Some(((name, family), env.map(|(key, value)| (format!("TENURE_SERVICE__{key}"), value)).into())))
    }
}

impl cli::Inject {
    /// The namespace of an object; none if it is that of the context.
    fn namespace_of(&self, object: &Value) -> Option<String> {
        object["metadata"]["namespace"].as_str().map(String::from).or_else(|| self.namespace.clone())
    }
}

/// Whether an init container brings the binary, and a container runs it.
fn is_wrapped(spec: &Value) -> bool {
    let installs = |one: &Value| one["name"] == OURS[0] && one["args"] == json!(["install", PROGRAM]);
    items(&spec["initContainers"]).iter().any(installs)
        && items(&spec["containers"]).iter().any(|one| one["command"][0] == PROGRAM)
}

/// Whether a template of pods in this has the label.
fn has_template(value: &Value) -> bool {
    let is_one = value["metadata"]["labels"][LEASE].is_string() && value["spec"]["containers"].is_array();
    let below = value.as_object().into_iter().flat_map(serde_json::Map::values);
    is_one || below.chain(items(value)).any(has_template)
}

/// Returns where an object has its pod, or its template of pods; none if tenure wraps no such kind.
fn template(object: &Value) -> Option<&'static str> {
    let path = match (object["apiVersion"].as_str()?, object["kind"].as_str()?) {
        ("v1", "Pod") => "",
        ("v1", "ReplicationController")
        | ("apps/v1", "Deployment" | "StatefulSet" | "ReplicaSet" | "DaemonSet")
        | ("batch/v1", "Job") => "/spec/template",
        ("batch/v1", "CronJob") => "/spec/jobTemplate/spec/template",
        _ => return None,
    };
    object.pointer(path)?.is_object().then_some(path)
}
