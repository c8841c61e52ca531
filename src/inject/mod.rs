//! Puts tenure into a pod that knows nothing of it, and takes it out again: `tenure inject`.
//!
//! Owns what is put in, and why a pod is refused. The policy in `deploy/inject` makes the same pod on the API server, and refuses with
//! the same sentences: a change here is a change there. Works on manifests only: never reads a file, a cluster or a clock.

use serde_json::{Value, json};

use self::asked::Asked;
use crate::transaction::list_of;

pub(crate) use manifests::{Options, Stream};

mod asked;
mod before;
mod manifests;
mod names;
mod probes;

/// The container that brings the program, and its volume.
const TENURE: &str = "tenure";
/// The container of the witness, and the volume of its socket.
const WITNESS: &str = "tenure-witness";
const PROGRAM: &str = "/opt/tenure/tenure";
const SOCKET: &str = "/run/tenure/witness";
/// What a pod needs to stop, beside the grace of its program; `tenure check` computes it.
const BESIDE_GRACE: u64 = 10;

/// What a cluster says of all pods.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// The image of tenure.
    pub(crate) image: String,
    /// Variables for each container that tenure runs in.
    pub(crate) env: Vec<(String, String)>,
}

/// Puts tenure into a pod or a template of pods; of a Job, as a lock.
///
/// # Errors
/// Why it cannot, and what to change.
fn wrap(pod: &mut Value, is_job: bool, settings: &Settings) -> Result<(), String> {
    let asked = Asked::of(pod, is_job, settings)?;
    let grace = pod["spec"]["terminationGracePeriodSeconds"].as_u64().unwrap_or(30);
    let (command, env) = (asked.command(), env(&asked, grace, settings));
    let (at, has_witness, port) = (asked.at, asked.has_witness, asked.port);
    let volumes = [TENURE, WITNESS].into_iter().take(1 + usize::from(has_witness));
    let is_root = pod["spec"]["securityContext"]["runAsUser"] == 0;

    let container = &mut pod["spec"]["containers"][at];
    container["command"] = command.into();
    if let Some(container) = container.as_object_mut() {
        for key in ["args", "livenessProbe", "readinessProbe", "startupProbe"] {
            container.remove(key);
        }
    }
    if let Some(port) = port {
        let probe = |path| json!({ "httpGet": { "path": path, "port": port }, "periodSeconds": 5, "timeoutSeconds": 2 });
        container["readinessProbe"] = probe("/readyz");
        container["livenessProbe"] = probe("/livez");
        container["livenessProbe"]["failureThreshold"] = 5.into();
    }
    list_of(&mut container["env"]).extend(env);
    let mount = |name| json!({ "name": name, "mountPath": place(name), "readOnly": true });
    list_of(&mut container["volumeMounts"]).splice(0..0, volumes.clone().map(mount));
    let spec = &mut pod["spec"];
    list_of(&mut spec["volumes"]).splice(0..0, volumes.clone().map(|name| json!({ "name": name, "emptyDir": {} })));
    list_of(&mut spec["initContainers"]).splice(0..0, volumes.map(|name| init_container(name, is_root, settings)));
    spec["terminationGracePeriodSeconds"] = (grace + BESIDE_GRACE).into();
    Ok(())
}

/// Where a volume is mounted.
fn place(volume: &str) -> &'static str {
    if volume == TENURE { "/opt/tenure" } else { "/run/tenure" }
}

/// The container that brings the program, or the witness. It runs in a namespace with the Pod Security level `restricted`.
fn init_container(name: &str, is_root: bool, settings: &Settings) -> Value {
    let mut container = json!({
        "name": name,
        "image": settings.image,
        "imagePullPolicy": "IfNotPresent",
        "resources": { "requests": { "cpu": "10m", "memory": "32Mi" }, "limits": { "memory": "64Mi" } },
        "securityContext": {
            "runAsNonRoot": true,
            "allowPrivilegeEscalation": false,
            "readOnlyRootFilesystem": true,
            "capabilities": { "drop": ["ALL"] },
            "seccompProfile": { "type": "RuntimeDefault" },
        },
        "volumeMounts": [{ "name": name, "mountPath": place(name) }],
    });
    if name == TENURE {
        container["args"] = json!(["install", PROGRAM]);
    } else {
        container["args"] = json!(["witness"]);
        container["env"] = json!([reference("POD_NAME", "metadata.name")]);
        container["restartPolicy"] = "Always".into();
        container["resources"] = json!({ "requests": { "cpu": "5m", "memory": "8Mi" }, "limits": { "memory": "32Mi" } });
    }
    if is_root {
        container["securityContext"]["runAsUser"] = 65534.into();
    }
    container
}

/// The variables that are added: those of the container win over all, and those of the cluster over what is written here.
fn env(asked: &Asked<'_>, grace: u64, settings: &Settings) -> Vec<Value> {
    let value = |name: &str, value: &str| json!({ "name": name, "value": value });
    let mut all = vec![
        reference("POD_NAME", "metadata.name"),
        reference("POD_NAMESPACE", "metadata.namespace"),
        reference("POD_UID", "metadata.uid"),
        reference("POD_IP", "status.podIP"),
        reference("NODE_NAME", "spec.nodeName"),
    ];
    if asked.has_witness {
        all.push(value("TENURE_LEASE__WITNESS", SOCKET));
    }
    if let Some(port) = asked.port {
        all.push(value("TENURE_LEASE__NAME", asked.lease));
        all.push(value("TENURE_HTTP__LISTEN", &format!("[::]:{port}")));
        all.extend(asked.command_line.map(|line| value("TENURE_WORKLOAD__COMMAND", line)));
        all.extend(probes::variables(asked).iter().map(|(name, text)| value(name, text)));
    }
    all.push(value("TENURE_WORKLOAD__STOP__GRACE", &format!("{grace}s")));
    all.retain(|variable| settings.env.iter().all(|(name, _)| variable["name"] != **name));
    all.extend(settings.env.iter().map(|(name, text)| value(name, text)));
    all.retain(|variable| asked.variable(&variable["name"]).is_none());
    all
}

fn reference(name: &str, field: &str) -> Value {
    json!({ "name": name, "valueFrom": { "fieldRef": { "fieldPath": field } } })
}

/// The items of a list; none if it is missing.
fn items<'a>(object: &'a Value, key: &str) -> &'a [Value] {
    object[key].as_array().map_or(&[], Vec::as_slice)
}
