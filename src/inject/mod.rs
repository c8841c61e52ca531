//! Puts tenure into a pod that knows nothing of it, and takes it out again: `tenure inject`.
//!
//! Owns where the containers and volumes of `deploy/components/inject/pod.yaml` are put, and why a pod is refused. The policy in
//! `deploy/inject` makes the same pod on the API server, and refuses with the same sentences: a change of the pod here is a
//! change there. Which kinds are taken is in `manifests`, and in the rules of the policies. Four things differ. A probe's command
//! is JSON here, and what `strings.quote` writes there, so `\v` or `\a` is written in two ways, which tenure reads alike. A time
//! such as `1 minute`, which is not of the form `1m30s`, is refused there. A variable that is set twice, or a request that cannot
//! be sent, has other words there. Rights are written only here: for them a variable of the Lease with `valueFrom` or `$(…)` is
//! refused; a file and `envFrom` are not seen. Works on manifests only: never reads a file, a cluster or a clock.

use serde_json::{Value, json};

use self::names::{COMMAND, HAS_WITNESS, LEASE};
use crate::{election::writes::as_map, transaction::list_of};

pub(crate) use access::Needs;
pub(crate) use before::uninject;
pub(crate) use manifests::{flattened, inject};

mod access;
mod before;
mod manifests;
mod names;
mod probes;
mod refusals;

/// The containers and volumes that are added: of the program, and of the witness with its socket.
const OURS: [&str; 2] = ["tenure", "tenure-witness"];
const PARTS: &str = include_str!("../../deploy/components/inject/pod.yaml");
const PROGRAM: &str = "/opt/tenure/tenure";
const LISTEN: &str = "TENURE_HTTP__LISTEN";
/// The first of these that no container of the pod has is where tenure answers probes.
const PORTS: [u64; 3] = [8079, 18079, 28079];
/// What tenure reads of its pod.
const FIELDS: [(&str, &str); 6] = [
    ("POD_NAME", "metadata.name"),
    ("POD_NAMESPACE", "metadata.namespace"),
    ("POD_UID", "metadata.uid"),
    ("POD_IP", "status.podIP"),
    ("POD_IPS", "status.podIPs"),
    ("NODE_NAME", "spec.nodeName"),
];

/// A name and a value.
type Variable = (String, String);
/// Judges a container that was wrapped, whose program has so many seconds for its stop.
type Judge = fn(&Value, u64) -> Result<Needs, String>;
/// All objects, and remarks, one line each; or the reasons to refuse them, one line each.
type Changed = Result<(Vec<Value>, Vec<String>), Vec<String>>;

/// Puts tenure into a pod or a template of pods; of a Job, as a lock. The variables of the cluster win over what is written here, and
/// those of the container over all. Returns what its configuration needs.
///
/// # Errors
/// Why it cannot, and what to change.
fn wrap(pod: &mut Value, is_job: bool, image: &str, cluster: &[Variable], judge: Judge) -> Result<Needs, String> {
    let at = refusals::judge(pod, is_job, cluster)?;
    let (metadata, spec, container) = (&pod["metadata"], &pod["spec"], &pod["spec"]["containers"][at]);
    let grace = spec["terminationGracePeriodSeconds"].as_u64().unwrap_or(30);
    let is_root = spec["securityContext"]["runAsUser"] == 0;
    let has_witness = metadata["annotations"][HAS_WITNESS] != "false";
    let lease = text(&metadata["labels"][LEASE]);
    let port = port(spec, container, cluster);
    let listen = format!("[::]:{port}");
    let own = items(&container["command"]);
    let mut command = if is_job { json!([PROGRAM, "lock", lease, "--"]) } else { json!([PROGRAM, "--"]) };
    list_of(&mut command).extend(own.to_vec());
    let has_other_args = own.is_empty() && !items(&container["args"]).is_empty();
    let told = [
        (has_witness, "TENURE_LEASE__WITNESS", "/run/tenure/witness"),
        (!is_job, "TENURE_LEASE__NAME", lease),
        // A file, or `envFrom`, must not take the Lease away.
        (!is_job, "TENURE_LEASE__ENABLED", "true"),
        (!is_job, LISTEN, &listen),
        (!is_job && own.is_empty(), "TENURE_WORKLOAD__COMMAND", text(&metadata["annotations"][COMMAND])),
        (true, "TENURE_WORKLOAD__STOP__GRACE", &format!("{grace}s")),
    ];
    let told = told.into_iter().filter(|(is_told, ..)| *is_told).map(|(_, name, value)| (name.into(), value.into()));
    let probes = if is_job { Vec::new() } else { probes::variables(container)? };
    let fields = FIELDS.map(|(name, path)| json!({ "name": name, "valueFrom": { "fieldRef": { "fieldPath": path } } }));
    let value = |(name, value): Variable| json!({ "name": name, "value": value });
    let mut env: Vec<_> = fields.into_iter().chain(told.chain(probes).map(value)).collect();
    env.retain(|variable| cluster.iter().all(|(name, _)| variable["name"] != **name));
    env.extend(cluster.iter().cloned().map(value));
    env.retain(|variable| items(&container["env"]).iter().all(|own| own["name"] != variable["name"]));
    let parts: Value = serde_saphyr::from_str(PARTS).map_err(|error| error.to_string())?;
    let parts = |list: &str| items(&parts["spec"]["template"]["spec"][list]).iter().take(1 + usize::from(has_witness)).cloned();

    let container = &mut pod["spec"]["containers"][at];
    as_map(container).retain(|key, _| !["livenessProbe", "readinessProbe", "startupProbe"].contains(&&**key));
    container["command"] = command;
    // An empty list, and a scheme: kubectl and Helm merge this into what is there, where what is missing stays.
    if has_other_args {
        container["args"] = json!([]);
    }
    list_of(&mut container["env"]).extend(env);
    if !is_job {
        for (kind, path) in [("livenessProbe", "/livez"), ("readinessProbe", "/readyz")] {
            let get = json!({ "path": path, "port": port, "scheme": "HTTP" });
            container[kind] = json!({ "httpGet": get, "periodSeconds": 5, "timeoutSeconds": 2, "failureThreshold": 3 });
        }
    }
    let needs = judge(container, grace)?;
    if !is_job {
        container["livenessProbe"]["failureThreshold"] = needs.failures.into();
    }
    let mut init: Vec<_> = parts("initContainers").collect();
    for part in &mut init {
        part["image"] = image.into();
        if is_root {
            part["securityContext"]["runAsUser"] = 65534.into();
        }
    }
    let mounts = init.iter().flat_map(|part| items(&part["volumeMounts"])).cloned().map(|mut mount| {
        mount["readOnly"] = true.into();
        mount
    });
    list_of(&mut container["volumeMounts"]).splice(0..0, mounts);
    let spec = &mut pod["spec"];
    list_of(&mut spec["initContainers"]).splice(0..0, init);
    list_of(&mut spec["volumes"]).splice(0..0, parts("volumes"));
    spec["terminationGracePeriodSeconds"] = needs.grace.into();
    Ok(needs)
}

/// Returns the port on which tenure answers probes: that of the variables, or one that no container of the pod has.
fn port(spec: &Value, container: &Value, cluster: &[Variable]) -> u64 {
    let told = given(container, cluster)
        .find_map(|(name, listen)| if name == LISTEN { listen.rsplit_once(':')?.1.parse().ok() } else { None });
    let containers = || ["containers", "initContainers"].into_iter().flat_map(|list| items(&spec[list]));
    let has = |port: u64| containers().flat_map(|one| items(&one["ports"])).any(|item| item["containerPort"] == port);
    told.or_else(|| PORTS.into_iter().find(|port| !has(*port))).unwrap_or(PORTS[0])
}

/// Returns the variables of a container, then those of the cluster that it does not set itself.
fn given<'a>(container: &'a Value, cluster: &'a [Variable]) -> impl Iterator<Item = (&'a str, &'a str)> {
    let own = items(&container["env"]);
    let others = cluster.iter().filter(move |(name, _)| own.iter().all(|variable| variable["name"] != **name));
    let own = own.iter().map(|variable| (text(&variable["name"]), text(&variable["value"])));
    own.chain(others.map(|(name, value)| (&**name, &**value)))
}

/// Returns the number of a port, which may be the name of one of these containers.
fn number(port: &Value, containers: &[Value]) -> Option<u64> {
    let mut ports = containers.iter().flat_map(|one| items(&one["ports"]));
    port.as_u64().or_else(|| ports.find(|one| one["name"] == *port)?["containerPort"].as_u64())
}

/// The items of a list; none if it is missing.
fn items(list: &Value) -> &[Value] {
    list.as_array().map_or(&[], Vec::as_slice)
}

/// A text; empty if it is missing.
fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Whether a text has a control character that YAML does not take in quotes, and that the policy cannot escape.
fn has_control(text: &str) -> bool {
    text.chars().any(|one| one.is_control() && !matches!(one, '\x07'..='\r' | '\u{85}'))
}

/// Kind and name, for people.
fn shown(object: &Value) -> String {
    format!("{}/{}", text(&object["kind"]), text(&object["metadata"]["name"]))
}
