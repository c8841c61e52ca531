//! Puts tenure into a pod that knows nothing of it, and takes it out again: `tenure inject`.
//!
//! Owns what is put in, and why a pod is refused. The policy in `deploy/inject` makes the same pod on the API server, and refuses with
//! the same sentences: a change here is a change there. Works on manifests only: never reads a file, a cluster or a clock.

use serde_json::{Value, json};

use self::names::{COMMAND, HAS_WITNESS, LEASE};
use crate::transaction::list_of;

pub(crate) use manifests::{Stream, uninject};

mod access;
mod before;
mod manifests;
mod names;
mod probes;
mod refusals;

/// The containers and volumes that are added: the one of the program, and the one of the witness with its socket.
const OURS: [&str; 2] = ["tenure", "tenure-witness"];
const PROGRAM: &str = "/opt/tenure/tenure";
/// The first of these that no container of the pod has is where tenure answers probes.
const PORTS: [u64; 3] = [8079, 18079, 28079];
/// What a pod needs to stop, beside the grace of its program; `tenure check` computes it.
const BESIDE_GRACE: u64 = 10;

/// Names and values.
type Variables = Vec<(String, String)>;

/// Puts tenure into a pod or a template of pods; of a Job, as a lock. Returns the number of the container.
///
/// # Errors
/// Why it cannot, and what to change.
fn wrap(pod: &mut Value, is_job: bool, image: &str, cluster: &[(String, String)]) -> Result<usize, String> {
    let at = refusals::judge(pod, is_job)?;
    let (metadata, spec, container) = (&pod["metadata"], &pod["spec"], &pod["spec"]["containers"][at]);
    let grace = spec["terminationGracePeriodSeconds"].as_u64().unwrap_or(30);
    let is_root = spec["securityContext"]["runAsUser"] == 0;
    let has_witness = metadata["annotations"][HAS_WITNESS] != "false";
    let names = || OURS.into_iter().take(1 + usize::from(has_witness));
    let lease = text(&metadata["labels"][LEASE]);
    let port = port(spec, container, cluster);
    let mut command: Vec<Value> = vec![PROGRAM.into(), "--".into()];
    command.extend([items(container, "command"), items(container, "args")].concat());
    let mut env = Vec::new();
    let mut tell = |name: &str, value: &str| env.push((name.to_owned(), value.to_owned()));
    if has_witness {
        tell("TENURE_LEASE__WITNESS", "/run/tenure/witness");
    }
    if is_job {
        command.splice(1..1, ["lock".into(), lease.into()]);
    } else {
        tell("TENURE_LEASE__NAME", lease);
        tell("TENURE_HTTP__LISTEN", &format!("[::]:{port}"));
        if items(container, "command").is_empty() {
            command.truncate(2);
            tell("TENURE_WORKLOAD__COMMAND", text(&metadata["annotations"][COMMAND]));
        }
        env.extend(probes::variables(container)?);
    }
    env.push(("TENURE_WORKLOAD__STOP__GRACE".into(), format!("{grace}s")));
    let env = variables(&env, items(container, "env"), cluster);

    let container = &mut pod["spec"]["containers"][at];
    for key in before::REPLACED {
        before::set(container, key, &Value::Null);
    }
    container["command"] = command.into();
    if !is_job {
        for (kind, path, failures) in [("livenessProbe", "/livez", 5), ("readinessProbe", "/readyz", 3)] {
            let get = json!({ "path": path, "port": port });
            container[kind] = json!({ "httpGet": get, "periodSeconds": 5, "timeoutSeconds": 2, "failureThreshold": failures });
        }
    }
    list_of(&mut container["env"]).extend(env);
    let mount = |name| json!({ "name": name, "mountPath": place(name), "readOnly": true });
    list_of(&mut container["volumeMounts"]).splice(0..0, names().map(mount));
    let spec = &mut pod["spec"];
    list_of(&mut spec["volumes"]).splice(0..0, names().map(|name| json!({ "name": name, "emptyDir": {} })));
    list_of(&mut spec["initContainers"]).splice(0..0, names().map(|name| init_container(name, is_root, image)));
    spec["terminationGracePeriodSeconds"] = (grace + BESIDE_GRACE).into();
    Ok(at)
}

/// Returns the port on which tenure answers probes: that of the variables, or one that no container of the pod has.
fn port(spec: &Value, container: &Value, cluster: &[(String, String)]) -> u64 {
    let own = items(container, "env").iter().map(|variable| (text(&variable["name"]), text(&variable["value"])));
    let mut all = own.chain(cluster.iter().map(|(name, value)| (&**name, &**value)));
    let told =
        all.find_map(|(name, listen)| if name == "TENURE_HTTP__LISTEN" { listen.rsplit_once(':')?.1.parse().ok() } else { None });
    let containers = || ["containers", "initContainers"].into_iter().flat_map(|list| items(spec, list));
    let has = |port: u64| containers().flat_map(|one| items(one, "ports")).any(|item| item["containerPort"] == port);
    told.or_else(|| PORTS.into_iter().find(|port| !has(*port))).unwrap_or(PORTS[0])
}

/// Where a volume is mounted.
fn place(volume: &str) -> &'static str {
    if volume == OURS[0] { "/opt/tenure" } else { "/run/tenure" }
}

/// Returns the container that brings the program, or the witness. It runs in a namespace with the Pod Security level `restricted`.
fn init_container(name: &str, is_root: bool, image: &str) -> Value {
    let is_witness = name == OURS[1];
    let (cpu, memory, limit) = if is_witness { ("5m", "8Mi", "32Mi") } else { ("10m", "32Mi", "64Mi") };
    let mut container = json!({
        "name": name,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "args": if is_witness { json!(["witness"]) } else { json!(["install", PROGRAM]) },
        "resources": { "requests": { "cpu": cpu, "memory": memory }, "limits": { "memory": limit } },
        "securityContext": {
            "runAsNonRoot": true,
            "allowPrivilegeEscalation": false,
            "readOnlyRootFilesystem": true,
            "capabilities": { "drop": ["ALL"] },
            "seccompProfile": { "type": "RuntimeDefault" },
        },
        "volumeMounts": [{ "name": name, "mountPath": place(name) }],
    });
    if is_witness {
        container["env"] = json!([reference("POD_NAME", "metadata.name")]);
        container["restartPolicy"] = "Always".into();
    }
    if is_root {
        container["securityContext"]["runAsUser"] = 65534.into();
    }
    container
}

/// Returns the variables that are added to the `own` ones: these win over all, and those of the cluster over what is written here.
fn variables(env: &[(String, String)], own: &[Value], cluster: &[(String, String)]) -> Vec<Value> {
    let fields = ["POD_NAME=metadata.name", "POD_NAMESPACE=metadata.namespace", "POD_UID=metadata.uid", "POD_IP=status.podIP"];
    let fields = fields.into_iter().chain(["NODE_NAME=spec.nodeName"]).filter_map(|field| field.split_once('='));
    let value = |(name, value): &(String, String)| json!({ "name": name, "value": value });
    let written = fields.map(|(name, field)| reference(name, field)).chain(env.iter().map(value));
    let all =
        written.filter(|variable| cluster.iter().all(|(name, _)| variable["name"] != **name)).chain(cluster.iter().map(value));
    all.filter(|variable| own.iter().all(|own| own["name"] != variable["name"])).collect()
}

fn reference(name: &str, field: &str) -> Value {
    json!({ "name": name, "valueFrom": { "fieldRef": { "fieldPath": field } } })
}

/// The items of a list; none if it is missing.
fn items<'a>(object: &'a Value, key: &str) -> &'a [Value] {
    object[key].as_array().map_or(&[], Vec::as_slice)
}

/// A text; empty if it is missing.
fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
