//! deploy/inject on a real API server: the policy makes of a pod what `tenure inject` makes of it, and refuses with the same sentences.

use std::{
    process::{Command, Output},
    sync::{Mutex, MutexGuard, PoisonError},
};

use serde_json::{Value, json};
use support::{Case, Ended as _, Namespace, cases, wait_until};

use self::templates::{
    a_container_that_comes_first_does_not_take_the_place_of_the_program, a_cron_job_keeps_its_label_while_a_job_of_it_runs,
    a_deployment_that_the_command_wrapped_is_left_alone, a_suspended_job_keeps_its_label_and_its_gate,
    a_template_of_each_kind_gets_a_gate_or_is_refused, a_template_whose_policy_is_deleted_makes_pods_that_never_start,
    the_first_rollout_waits_until_no_pod_runs, the_only_container_may_have_another_name,
    what_the_controller_has_not_seen_yet_is_no_rest,
};
use crate::TENURE;

mod templates;

const POLICY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/inject");

/// The minor of Kubernetes from which on it has the version of MutatingAdmissionPolicy that deploy/inject writes.
const MUTATING: u32 = 36;

pub(crate) fn all() -> Vec<Case> {
    let cases = cases![restricted:
        the_policy_and_the_command_make_the_same_of_forty_pods,
        the_variables_of_the_cluster_reach_the_pods_by_policy_and_by_command,
        what_names_a_lease_or_leaves_it_out_is_no_variable_of_the_cluster,
        what_the_policy_refuses_the_command_refuses_with_the_same_sentence,
        what_the_policy_cannot_compute_from_is_refused,
        a_template_of_each_kind_gets_a_gate_or_is_refused,
        the_first_rollout_waits_until_no_pod_runs,
        a_container_that_comes_first_does_not_take_the_place_of_the_program,
        the_only_container_may_have_another_name,
        what_the_controller_has_not_seen_yet_is_no_rest,
        a_cron_job_keeps_its_label_while_a_job_of_it_runs,
        a_suspended_job_keeps_its_label_and_its_gate,
        a_template_whose_policy_is_deleted_makes_pods_that_never_start,
        a_deployment_that_the_command_wrapped_is_left_alone,
    ];
    cases.into_iter().map(|case| case.since(MUTATING)).collect()
}

/// The policies are those of all namespaces, so one case at a time has them. True while they are there.
static IN_FORCE: Mutex<bool> = Mutex::new(false);

/// Applies the policies with this environment, and waits until they are in force.
fn apply(cluster: &Namespace, env: &str) -> MutexGuard<'static, bool> {
    let mut are_there = IN_FORCE.lock().unwrap_or_else(PoisonError::into_inner);
    if !*are_there {
        cluster.feed(&["apply", "-f", "-"], &KEEPER).success();
        let is_refused = || !cluster.kubectl(&["create", "configmap", "keeper", "--dry-run=server"]).status.success();
        wait_until("the policy about nothing is in force", is_refused);
        let warned = cluster.kubectl(&["apply", "-k", POLICY, "-n", "tenure-inject"]).success().stderr;
        assert_eq!(String::from_utf8_lossy(&warned), "");
        *are_there = true;
    }
    let data = json!({ "data": { "image": "registry/tenure:1", "env": env } }).to_string();
    cluster.kubectl(&["patch", "configmap", "tenure-inject", "-n", "tenure-inject", "-p", &data]).success();
    // No controller runs here that would make it.
    let account = json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "default" } });
    sent("apply", cluster, &account).success();
    let plain = pod("plain", json!({ "command": ["sh"] }), json!({}), json!({}));
    wait_until("the policies are in force", || {
        let text = String::from_utf8(tried(cluster, &plain).stdout).unwrap();
        text.contains("registry/tenure:1") && text.contains("TENURE_LEASE__DURATION") != env.is_empty()
    });
    let wrong = pod("wrong", json!({ "command": ["sh"] }), json!({ "shareProcessNamespace": true }), json!({}));
    wait_until("a pod is refused", || !tried(cluster, &wrong).status.success());
    are_there
}

/// A policy about nothing. Kubernetes 1.36.3 stops reading ConfigMaps for good once the last binding is deleted of the kind of policies that
/// was the first to read them. A case deletes one, so this one, of the other kind, is the first.
const KEEPER: &str = "\
{ apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicy, metadata: { name: keeper }, spec: {
  paramKind: { apiVersion: v1, kind: ConfigMap }, validations: [{ expression: 'true' }], matchConstraints: { resourceRules: [
  { apiGroups: [''], apiVersions: [v1], resources: [configmaps], resourceNames: [keeper], operations: [CREATE] }] } } }
---
{ apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicyBinding, metadata: { name: keeper }, spec: {
  policyName: keeper, validationActions: [Deny], paramRef: { name: none, namespace: default, parameterNotFoundAction: Deny } } }";

/// What the server makes of an object of a case, which it does not keep. The schema is left out: it costs as much again.
fn tried(cluster: &Namespace, object: &Value) -> Output {
    cluster.feed(&["create", "--validate=false", "--dry-run=server", "-o", "json", "-f", "-"], object)
}

/// What `kubectl create` or `apply` of it says.
fn sent(how: &str, cluster: &Namespace, object: &Value) -> Output {
    cluster.feed(&[how, "--validate=false", "-f", "-"], object)
}

/// A pod with the label that the level `restricted` admits: this container beside its security context, and this in spec and metadata.
fn pod(name: &str, container: Value, spec: Value, metadata: Value) -> Value {
    let context = json!({ "allowPrivilegeEscalation": false, "capabilities": { "drop": ["ALL"] } });
    let base = json!({ "name": "main", "image": "main", "securityContext": context });
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": name, "labels": { "app": "billing", "tenure.dev/lease": "billing" } },
        "spec": {
            "securityContext": { "runAsNonRoot": true, "runAsUser": 1000, "seccompProfile": { "type": "RuntimeDefault" } },
            "containers": [merged(base, container)],
        },
    });
    if let Some(others) = spec["others"].as_array() {
        for other in others {
            let base = json!({ "image": "other", "command": ["true"], "securityContext": context });
            pod["spec"]["containers"].as_array_mut().unwrap().push(merged(base, other.clone()));
        }
    }
    let mut spec = spec;
    spec.as_object_mut().unwrap().remove("others");
    for init in spec["initContainers"].as_array_mut().into_iter().flatten() {
        *init = merged(json!({ "image": "first", "securityContext": context }), init.clone());
    }
    pod["spec"] = merged(pod["spec"].take(), spec);
    pod["metadata"] = merged(pod["metadata"].take(), metadata);
    pod
}

fn merged(mut base: Value, over: Value) -> Value {
    let fields = over.as_object().unwrap().iter().filter(|(_, value)| !value.is_null());
    base.as_object_mut().unwrap().extend(fields.map(|(key, value)| (key.clone(), value.clone())));
    base
}

/// A Deployment or StatefulSet with this label, if any.
fn workload(kind: &str, lease: Option<&str>, replicas: u32) -> Value {
    let mut template = pod("any", json!({ "command": ["sh"] }), json!({}), json!({}));
    let labels = match lease {
        Some(lease) => json!({ "app": "billing", "tenure.dev/lease": lease }),
        None => json!({ "app": "billing" }),
    };
    template["metadata"] = json!({ "labels": labels });
    let selector = json!({ "matchLabels": { "app": "billing" } });
    let spec = json!({ "replicas": replicas, "selector": selector, "template": { "metadata": template["metadata"], "spec": template["spec"] } });
    json!({ "apiVersion": "apps/v1", "kind": kind, "metadata": { "name": "shop" }, "spec": spec })
}

/// As a pod of a Job.
fn of_job(mut pod: Value) -> Value {
    let owner = json!({ "apiVersion": "batch/v1", "kind": "Job", "name": "job", "uid": "11111111-1111-1111-1111-111111111111" });
    pod["metadata"]["ownerReferences"] = json!([owner]);
    pod["spec"]["restartPolicy"] = json!("Never");
    pod
}

fn annotated(annotations: Value) -> Value {
    json!({ "annotations": annotations })
}

fn probed(kind: &str, probe: Value) -> Value {
    let ports = json!([{ "name": "http", "containerPort": 8080 }, { "name": "admin", "containerPort": 9090 }]);
    json!({ "command": ["sh"], "ports": ports, kind: probe })
}

fn forty() -> Vec<Value> {
    let odd = "q\" b\\ n\nt\tr\r\u{85} ü 日本 'x' #: {}[] $(HOME) $$(HOME) $x";
    let env = |pairs: &[(&str, &str)]| {
        let all = pairs.iter().map(|(name, value)| json!({ "name": name, "value": value })).collect::<Vec<_>>();
        json!({ "command": ["sh"], "env": all, "livenessProbe": { "httpGet": { "port": 80 } } })
    };
    let live = |probe: Value| probed("livenessProbe", probe);
    let all_numbers = json!({
        "initialDelaySeconds": 7, "periodSeconds": 8, "timeoutSeconds": 9, "successThreshold": 2, "failureThreshold": 5,
        "tcpSocket": { "port": "admin" },
    });
    let all_probes = merged(
        probed("startupProbe", json!({ "exec": { "command": ["true"] }, "periodSeconds": 2 })),
        json!({ "readinessProbe": all_numbers, "livenessProbe": { "tcpSocket": { "port": 1 } } }),
    );
    let (none, sh, long) = (json!({}), json!({ "command": ["sh"] }), "a".repeat(63));
    let of_field = |name: &str, path: &str| json!({ "name": name, "valueFrom": { "fieldRef": { "fieldPath": path } } });
    // Each row has the container, and what is in the spec and in the metadata.
    let mut rows = json!([
        [sh, none, none],
        [{ "command": ["sh", "-c"], "args": ["a", "b"] }, none, none],
        [{ "command": ["sh", odd], "args": [odd] }, none, none],
        [{ "args": ["ignored"] }, none, annotated(json!({ "tenure.dev/command": "[\"sh\", \"-c\" ,\"true\"]" }))],
        [none, none, annotated(json!({ "tenure.dev/command": json!(["sh", odd]).to_string() }))],
        [sh, none, annotated(json!({ "tenure.dev/command": "[\"ignored\"]" }))],
        [sh, { "others": [{ "name": "two" }, { "name": "three" }] }, none],
        [sh, { "others": [{ "name": "two" }, { "name": "three" }] }, annotated(json!({ "tenure.dev/container": "two" }))],
        [
            sh, { "others": [{ "name": "two" }, { "name": "three", "command": ["sh"] }] },
            annotated(json!({ "kubectl.kubernetes.io/default-container": "three" })),
        ],
        [env(&[("TENURE_LEASE__DURATION", "30s"), ("HOME", "/x")]), none, none],
        [env(&[("TENURE_HTTP__LISTEN", "0.0.0.0:9000")]), none, none],
        [env(&[("POD_NAME", "x"), ("POD_IP", "127.0.0.1"), ("NODE_NAME", "")]), none, none],
        [env(&[("TENURE_WORKLOAD__LIVENESS__TCP__PORT", "81")]), none, none],
        [env(&[("TENURE_WORKLOAD__STOP__GRACE", "5s"), ("TENURE_LEASE__WITNESS", "@x")]), none, none],
        [{ "command": ["sh"], "env": [of_field("TENURE_LEASE__NAMESPACE", "metadata.namespace")] }, none, none],
        [
            { "command": ["sh"], "env": [
                of_field("TENURE_LEASE__NAME", "metadata.labels['app']"),
                of_field("TENURE_SERVICE__ENDPOINT_SLICE", "metadata.labels['app']"),
                { "name": "TENURE_SERVICE__PORTS", "value": "[{port: 80}]" },
                { "name": "TENURE_LEASE__ENABLED", "value": "True" },
            ] },
            none, none,
        ],
        [{ "command": ["sh"], "ports": [{ "containerPort": 8079 }] }, none, none],
        [
            { "command": ["sh"], "ports": [{ "containerPort": 8079 }] },
            { "others": [{ "name": "two", "ports": [{ "containerPort": 18079 }] }] }, none,
        ],
        [sh, { "initContainers": [{ "name": "side", "restartPolicy": "Always", "ports": [{ "containerPort": 8079 }] }] }, none],
        [live(json!({ "httpGet": { "port": 80 }, "failureThreshold": 9 })), none, none],
        [live(json!({ "httpGet": { "port": "http", "path": "/healthz?a=b&c=$(HOME)$$" } })), none, none],
        [live(json!({ "httpGet": { "port": 80, "path": "x", "scheme": "HTTPS" } })), none, none],
        [
            live(json!({ "httpGet": {
                "port": 80, "httpHeaders": [{ "name": "X-A", "value": "b\"c\\ $(HOME)" }, { "name": "Host", "value": "x" }],
            } })),
            none, none,
        ],
        [live(json!({ "httpGet": { "port": 80, "host": "127.0.0.1" } })), none, none],
        [live(json!({ "tcpSocket": { "port": 8080 } })), none, none],
        [live(json!({ "tcpSocket": { "port": "admin", "host": "::1" }, "periodSeconds": 1 })), none, none],
        [live(json!({ "exec": { "command": ["true"] }, "timeoutSeconds": 5 })), none, none],
        [live(json!({ "exec": { "command": ["sh", "-c", odd] } })), none, none],
        [probed("readinessProbe", json!({ "httpGet": { "port": "http", "path": "/ready" } })), none, none],
        [probed("readinessProbe", all_numbers), none, none],
        [probed("readinessProbe", json!({ "exec": { "command": ["sh", "-c", "test $(cat /x) = \"$(HOME)\""] } })), none, none],
        [probed("startupProbe", json!({ "httpGet": { "port": 80 }, "failureThreshold": 30, "initialDelaySeconds": 4 })), none, none],
        [all_probes, none, none],
        [sh, { "terminationGracePeriodSeconds": 0 }, none],
        [sh, { "terminationGracePeriodSeconds": 300 }, none],
        [sh, none, annotated(json!({ "tenure.dev/witness": "false" }))],
        [
            {
                "command": ["sh"], "volumeMounts": [{ "name": "data", "mountPath": "/data" }, { "name": "data", "mountPath": "/more", "subPath": "a" }],
                "env": [{ "name": "A", "valueFrom": { "resourceFieldRef": { "resource": "limits.cpu", "divisor": "1m" } } }, { "name": "B" }],
            },
            {
                "volumes": [
                    { "name": "data", "emptyDir": { "medium": "Memory", "sizeLimit": "1.5Gi" } },
                    { "name": "more", "secret": { "secretName": "x", "defaultMode": 256, "items": [{ "key": "a", "path": "b" }] } },
                ],
                "initContainers": [{ "name": "first", "securityContext": {
                    "allowPrivilegeEscalation": false, "capabilities": { "drop": ["ALL"] }, "runAsUser": 1_000_620_000
                }, "resources": { "limits": { "cpu": "0.25", "memory": "100M" } } }],
            },
            none,
        ],
        [
            { "command": ["sh"], "envFrom": [{ "configMapRef": { "name": "x", "optional": true } }], "lifecycle": { "preStop": { "exec": { "command": ["true"] } } } },
            { "enableServiceLinks": false }, none,
        ],
        [sh, { "automountServiceAccountToken": true }, none],
        [sh, none, { "labels": { "tenure.dev/lease": long } }],
        [sh, { "nodeSelector": { "kubernetes.io/os": "linux" } }, { "labels": { "tenure.dev/lease": "0" } }],
    ]);
    let rows = rows.as_array_mut().unwrap().iter_mut().enumerate();
    let mut pods: Vec<_> = rows.map(|(at, row)| pod(&format!("p{at}"), row[0].take(), row[1].take(), row[2].take())).collect();
    pods.push(of_job(pod("job", json!({ "command": ["sh"], "args": [odd] }), json!({}), json!({}))));
    let no_witness = annotated(json!({ "tenure.dev/witness": "false" }));
    pods.push(of_job(pod("full", live(json!({ "grpc": { "port": 1 } })), json!({}), no_witness)));
    pods
}

/// What the server makes of these pods, without what is different each time.
fn made(cluster: &Namespace, pods: &[Value]) -> Vec<Value> {
    let list = json!({ "apiVersion": "v1", "kind": "List", "items": pods });
    // What the command makes must fit the schema.
    let text = cluster.feed(&["create", "--dry-run=server", "-o", "json", "-f", "-"], &list).success().stdout;
    let text = String::from_utf8(text).unwrap();
    let mut all: Vec<Value> = serde_json::Deserializer::from_str(&text).into_iter().collect::<Result<_, _>>().unwrap();
    for pod in &mut all {
        let metadata = pod["metadata"].as_object_mut().unwrap();
        ["uid", "creationTimestamp", "managedFields"].into_iter().for_each(|key| drop(metadata.remove(key)));
        if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
            annotations.remove("tenure.dev/before");
            if annotations.is_empty() {
                metadata.remove("annotations");
            }
        }
        let volumes = pod["spec"]["volumes"].as_array().into_iter().flatten();
        let token = volumes.filter_map(|volume| volume["name"].as_str()).find(|name| name.starts_with("kube-api-access-"));
        if let Some(token) = token.map(String::from) {
            *pod = serde_json::from_str(&pod.to_string().replace(&token, "kube-api-access")).unwrap();
        }
    }
    all
}

/// What `tenure inject` makes of these pods; of those of a Job by way of the Job.
fn injected(pods: &[Value], flags: &[&str]) -> Vec<Value> {
    let is_of_job = |pod: &Value| pod["metadata"]["ownerReferences"].is_array();
    let objects = pods.iter().map(|pod| {
        let mut template = pod.clone();
        template.as_object_mut().unwrap().retain(|key, _| key == "metadata" || key == "spec");
        let job = || json!({ "apiVersion": "batch/v1", "kind": "Job", "metadata": { "name": "job" }, "spec": { "template": template } });
        if is_of_job(pod) { job() } else { pod.clone() }
    });
    let list = json!({ "apiVersion": "v1", "kind": "List", "items": objects.collect::<Vec<_>>() });
    let (code, text) = tenure_inject(&list, &[&["--access=false", "--image=registry/tenure:1", "-o", "json"], flags].concat());
    assert_eq!(code, Some(0), "{text}");
    let list: Value = serde_json::from_str(&text).unwrap();
    list["items"]
        .as_array()
        .unwrap()
        .iter()
        .zip(pods)
        .map(|(object, pod)| {
            let of_job = || merged(pod.clone(), object["spec"]["template"].clone());
            if is_of_job(pod) { of_job() } else { object.clone() }
        })
        .collect()
}

/// Exit code, and what was printed.
fn tenure_inject(object: &Value, flags: &[&str]) -> (Option<i32>, String) {
    let place = support::Scratch::new();
    // JSON leaves some control characters as they are, and YAML does not take them.
    let escaped = |one: char| if one.is_control() { format!("\\u{:04x}", u32::from(one)) } else { one.into() };
    let file = place.file("all.json", object.to_string().chars().map(escaped).collect::<String>());
    let ended = Command::new(TENURE).args(["inject", "-f", &file]).args(flags).output().unwrap();
    let text = if ended.status.success() { ended.stdout } else { ended.stderr };
    (ended.status.code(), String::from_utf8(text).unwrap())
}

fn the_policy_and_the_command_make_the_same_of_forty_pods(cluster: &Namespace) {
    let _alone = apply(cluster, "");
    let pods = forty();
    assert!(pods.len() >= 40, "{}", pods.len());

    let by_policy = made(cluster, &pods);
    let by_command = made(cluster, &injected(&pods, &[]));

    for (policy, command) in by_policy.iter().zip(&by_command) {
        assert_eq!(policy, command, "{} differs:\n{policy:#}\n{command:#}", policy["metadata"]["name"]);
        let spec = &policy["spec"];
        assert_eq!(spec["initContainers"][0]["name"], "tenure");
        let witness = &spec["initContainers"][1];
        if witness["name"] == "tenure-witness" {
            assert!(witness["volumeMounts"].to_string().contains("kube-api-access"), "the witness has no token: {witness}");
        }
        is_read_by_tenure(spec);
    }

    cluster
        .kubectl(&["label", "--overwrite", "namespace", &cluster.name, "pod-security.kubernetes.io/enforce=privileged"])
        .success();
    let root = [pod("root", json!({ "command": ["sh"] }), json!({ "securityContext": { "runAsUser": 0 } }), json!({}))];
    wait_until("root may run", || tried(cluster, &root[0]).status.success());
    let by_policy = made(cluster, &root);
    assert_eq!(by_policy, made(cluster, &injected(&root, &[])));
    assert_eq!(by_policy[0]["spec"]["initContainers"][0]["securityContext"]["runAsUser"], 65534);
}

/// tenure takes the configuration of the wrapped container, as a kubelet hands it over.
fn is_read_by_tenure(spec: &Value) {
    let container = spec["containers"].as_array().unwrap().iter().find(|one| one["command"][0] == "/opt/tenure/tenure").unwrap();
    let words = ["command", "args"].into_iter().flat_map(|list| container[list].as_array().into_iter().flatten());
    let words: Vec<_> = words.map(|word| word.as_str().unwrap()).collect();
    let program = words.iter().position(|word| *word == "--").unwrap();
    let mut check = Command::new(TENURE);
    check
        .args(["check", "--offline"])
        .args(if words[1] == "lock" { &["--lease=billing"][..] } else { &[] })
        .args(&words[program..]);
    check.env_clear().env("PATH", "/usr/bin:/bin");
    for variable in container["env"].as_array().unwrap() {
        let of_pod = if variable["name"] == "POD_IPS" { "192.0.2.1" } else { "ns" };
        let value = variable["value"].as_str().unwrap_or(of_pod).replace("$(POD_IP)", "192.0.2.1");
        check.env(variable["name"].as_str().unwrap(), value.replace("$(HOME)", "/root").replace("$$", "$"));
    }
    let ended = check.output().unwrap();
    let said = String::from_utf8(ended.stdout).unwrap() + &String::from_utf8(ended.stderr).unwrap();
    assert!(ended.status.success(), "{words:?}: {said}");
    assert!(spec["terminationGracePeriodSeconds"].as_u64().unwrap() >= support::grace(&said), "{said}");
}

fn the_variables_of_the_cluster_reach_the_pods_by_policy_and_by_command(cluster: &Namespace) {
    let env = "TENURE_LEASE__DURATION=60s\nTENURE_LEASE__ATTEMPT_TIMEOUT=5s\nTENURE_HTTP__LISTEN=0.0.0.0:9000\nTENURE_WORKLOAD__ENV={\"A\": \"b=c\"}";
    let _alone = apply(cluster, env);
    let own = json!({ "command": ["sh"], "env": [{ "name": "TENURE_LEASE__DURATION", "value": "30s" }] });
    let reference = json!({ "name": "TENURE_HTTP__LISTEN", "valueFrom": { "configMapKeyRef": { "name": "a", "key": "b" } } });
    let set = |name: &str, own: &[(&str, &str)]| {
        let env: Vec<_> = own.iter().map(|(key, value)| json!({ "name": format!("TENURE_{key}"), "value": value })).collect();
        pod(name, json!({ "command": ["sh"], "env": env }), json!({}), json!({}))
    };
    let pods = [
        pod("plain", json!({ "command": ["sh"] }), json!({}), json!({})),
        pod("own", own, json!({}), json!({})),
        pod("elsewhere", json!({ "command": ["sh"], "env": [reference] }), json!({}), json!({})),
        set("delete", &[("LEASE__RELEASE", "delete"), ("LEASE__DURATION", "1m1s"), ("LEASE__RENEW_PERIOD", "3500ms")]),
        set("at-once", &[("LEASE__RELEASE", "delete"), ("LEASE__CREATION_WAIT", "0s")]),
        set("long", &[("WORKLOAD__STOP__GRACE", "1m30.5s"), ("WORKLOAD__STOP__KILL_MARGIN", "2s")]),
        set("short", &[("WORKLOAD__STOP__GRACE", "5s"), ("LEASE__ATTEMPT_TIMEOUT", "100ms")]),
        set("slice", &[("SERVICE__ENDPOINT_SLICE", "led"), ("SERVICE__PORTS", "[{port: 80}]")]),
        of_job(set("job", &[("SERVICE__ENDPOINT_SLICE", "led"), ("LEASE__RELEASE", "delete")])),
    ];

    let by_policy = made(cluster, &pods);
    let flags = env.lines().map(|line| format!("--env={line}")).collect::<Vec<_>>();
    let flags: Vec<_> = flags.iter().map(String::as_str).collect();

    assert_eq!(by_policy, made(cluster, &injected(&pods, &flags)));
    let env = by_policy.iter().map(|pod| pod["spec"]["containers"][0]["env"].to_string()).collect::<Vec<_>>();
    assert!(env[0].contains("60s") && env[0].contains("0.0.0.0:9000") && env[0].contains("b=c"), "{env:?}");
    assert!(env[1].contains("30s") && !env[1].contains("60s"), "{env:?}");
    let times = by_policy.iter().map(|pod| {
        let failures = &pod["spec"]["containers"][0]["livenessProbe"]["failureThreshold"];
        (pod["spec"]["terminationGracePeriodSeconds"].as_u64().unwrap(), failures.as_u64().unwrap_or_default())
    });
    assert_eq!(
        times.collect::<Vec<_>>(),
        [(43, 14), (43, 8), (43, 14), (53, 14), (48, 14), (105, 14), (34, 14), (44, 14), (52, 0)]
    );
}

/// What the pods of all workloads would share.
fn what_names_a_lease_or_leaves_it_out_is_no_variable_of_the_cluster(cluster: &Namespace) {
    let _alone = apply(cluster, "");
    let of_one = |key| {
        (format!("{key}=x"), format!("{key} is of one workload: set it in the container, not in the ConfigMap tenure-inject"))
    };
    let keys = ["TENURE_LEASE__NAME", "TENURE_LEASE__PREFIX", "TENURE_LEASE__NAMESPACE", "TENURE_CONFIG", "KUBECONFIG"];
    let of = |line: &str, why: &str| (line.to_owned(), format!("{}: {why}", line.split('=').next().unwrap()));
    let unread =
        |line: &str| (line.to_owned(), format!("env of the ConfigMap tenure-inject has the line {line:?}: write NAME=VALUE"));
    let minutes =
        of("TENURE_LEASE__RENEW_PERIOD=2min", "\"2min\" is not a duration that the policy reads: write 15s, 1m30s or 200ms");
    let twice = of("TENURE_LEASE__DURATION=30s", "this key is also set by TENURE_LEASE__DURATION: set it only once");
    let without = of("TENURE_LEASE__ENABLED=false", "without a Lease");
    let typed = [unread("A: b"), unread("A = b"), minutes, twice];
    let shared = |line: &str| {
        let data = json!({ "data": { "env": format!("TENURE_LEASE__DURATION=60s\n{line}") } }).to_string();
        cluster.kubectl(&["patch", "configmap", "tenure-inject", "-n", "tenure-inject", "-p", &data]).success();
    };
    let plain = pod("plain", json!({ "command": ["sh"] }), json!({}), json!({}));
    let mut run = of_job(workload("Job", Some("billing"), 1));
    run["apiVersion"] = json!("batch/v1");
    run["spec"] = json!({ "template": run["spec"]["template"] });
    run["spec"]["template"]["spec"]["restartPolicy"] = json!("Never");
    for (line, sentence) in keys.map(of_one).into_iter().chain([without]).chain(typed.clone()) {
        shared(&line);
        wait_until(&format!("{line} is refused: {sentence}"), || {
            let made = tried(cluster, &workload("Deployment", Some("billing"), 1));
            !made.status.success() && made.failure().contains(&sentence)
        });
        if line == "TENURE_LEASE__ENABLED=false" {
            let mut own = plain.clone();
            own["spec"]["containers"][0]["env"] = json!([{ "name": "TENURE_LEASE__ENABLED", "value": "true" }]);
            tried(cluster, &own).success();
        }
        if typed.contains(&(line, sentence)) {
            // Nobody reads why a pod, or a Job of a CronJob, is refused.
            tried(cluster, &plain).success();
            tried(cluster, &run).success();
        }
    }
    shared("  # A=b\n# by default\nB=c");
    let is_taken = || tried(cluster, &workload("Deployment", Some("billing"), 1)).status.success();
    wait_until("a comment is taken", is_taken);
    let made = String::from_utf8(tried(cluster, &plain).success().stdout).unwrap();
    assert!(made.contains("\"name\": \"B\"") && !made.contains("# A"), "{made}");
}

fn what_the_policy_refuses_the_command_refuses_with_the_same_sentence(cluster: &Namespace) {
    let _alone = apply(cluster, "");
    let (none, sh) = (json!({}), json!({ "command": ["sh"] }));
    let labelled = |name: &str| json!({ "labels": { "tenure.dev/lease": name } });
    let live = |probe: Value| probed("livenessProbe", probe);
    let starts = |probe: Value| probed("startupProbe", probe);
    let command = |line: &str| annotated(json!({ "tenure.dev/command": line }));
    let set = |name: &str, value: &str| json!({ "command": ["sh"], "env": [{ "name": name, "value": value }] });
    let (listens, without) = (|on: &str| set("TENURE_HTTP__LISTEN", on), |value: &str| set("TENURE_LEASE__ENABLED", value));
    let runs = |words: &[&str]| json!({ "command": words });
    let mounts = |path: &str| json!({ "command": ["sh"], "volumeMounts": [{ "name": "data", "mountPath": path }] });
    let data = json!({ "volumes": [{ "name": "data", "emptyDir": {} }] });
    let windows = json!({ "os": { "name": "windows" }, "securityContext": { "runAsNonRoot": true } });
    // Each row has words of the sentence, the container, and what is in the spec and in the metadata.
    let mut rows = json!([
        ["the label tenure.dev/lease: \"Billing\" is no name of a Lease: write a to z", sh, none, labelled("Billing")],
        ["the label tenure.dev/lease: \"a.b\" is no name", sh, none, labelled("a.b")],
        ["the label tenure.dev/lease: \"\" is no name", sh, none, labelled("")],
        ["the pod is for Windows", sh, { "nodeSelector": { "kubernetes.io/os": "windows" } }, none],
        ["the pod is for Windows", { "command": ["sh"], "securityContext": {} }, windows, none],
        ["with shareProcessNamespace tenure is not PID 1", sh, { "shareProcessNamespace": true }, none],
        ["with hostPID tenure is not PID 1", sh, { "hostPID": true }, none],
        [
            "with automountServiceAccountToken: false tenure has no token for its Lease: set it to true",
            sh, { "automountServiceAccountToken": false }, none,
        ],
        ["a container or a volume \"tenure\", which", sh, { "volumes": [{ "name": "tenure", "emptyDir": {} }] }, none],
        ["a container or a volume \"tenure\", which", sh, { "others": [{ "name": "tenure" }] }, none],
        // Each is called like ours, and the program would run without tenure.
        ["a container or a volume \"tenure\", which", sh, { "initContainers": [{ "name": "tenure" }] }, none],
        [
            "a container or a volume \"tenure\", which",
            sh, { "initContainers": [{ "name": "tenure", "args": ["install", "/opt/tenure/tenure"] }] }, none,
        ],
        [
            "a container or a volume \"tenure\", which",
            runs(&["/opt/tenure/tenure", "--", "sh"]), { "initContainers": [{ "name": "tenure", "args": ["other"] }] }, none,
        ],
        ["a container or a volume \"tenure-witness\", which", sh, { "initContainers": [{ "name": "tenure-witness" }] }, none],
        [
            "with resources of the whole pod the containers that tenure adds may have no room: write them into its containers",
            sh, { "resources": { "requests": { "memory": "1Gi" } } }, none,
        ],
        ["the container \"main\" mounts /opt/tenure, as tenure does: use another path", mounts("/opt/tenure"), data, none],
        ["the container \"main\" mounts /run/tenure/, as tenure does: use another path", mounts("/run/tenure/"), data, none],
        ["mounts /opt/tenure/tenure, as tenure does: use another path", mounts("/opt/tenure/tenure"), data, none],
        ["mounts /run/tenure/x/, as tenure does: use another path", mounts("/run/tenure/x/"), data, none],
        ["there is no container \"x\": name one", sh, none, annotated(json!({ "tenure.dev/container": "x" }))],
        [
            "the container \"two\" uses the Lease billing too: remove TENURE_LEASE__NAME there",
            sh, { "others": [{ "name": "two", "env": [{ "name": "TENURE_LEASE__NAME", "value": "billing" }] }] }, none,
        ],
        ["TENURE_LEASE__ENABLED: without a Lease each pod would run the program at once: remove it", without("False"), none, none],
        ["TENURE_LEASE__ENABLED: without a Lease each pod", without("$(A)"), none, none],
        ["the container \"main\" runs tenure already: remove the label", runs(&["/tenure", "--", "sh"]), none, none],
        ["the container \"main\" runs tenure already: remove the label", runs(&["tenure"]), none, none],
        ["runs tenure already: remove the label", none, none, command(r#" [ "/bin/tenure","--"]"#)],
        ["tenure.dev/command is no JSON list of strings", none, none, command("sh -c x")],
        ["tenure.dev/command is no JSON list of strings", none, none, command("[]")],
        ["tenure.dev/command is no JSON list of strings", none, none, command("['sh']")],
        ["tenure.dev/command is no JSON list of strings", none, none, command(r#"["sh", 1]"#)],
        ["tenure.dev/command is no JSON list of strings", none, none, command(r#"["\q"]"#)],
        ["tenure.dev/command is no JSON list of strings", none, none, command(r#"["tenure", x]"#)],
        ["no JSON list of strings, or has a control character: write one", none, none, command("[\"sh\u{7f}\"]")],
        ["no JSON list of strings, or has a control character: write one", none, none, command("[\"sh\", \"\u{9f}\"]")],
        [
            "livenessProbe.exec.command of the container \"main\" has a control character: remove it, or put the command into a file",
            live(json!({ "exec": { "command": ["printf", "\u{1b}[0m"] } })), none, none,
        ],
        ["livenessProbe.exec.command of", live(json!({ "exec": { "command": ["a\u{1}"] } })), none, none],
        ["startupProbe.exec.command of", starts(json!({ "exec": { "command": ["\u{86}"] } })), none, none],
        ["has no command, and that of its image cannot be seen: write the whole command line as JSON", none, none, none],
        ["livenessProbe.grpc of the container \"main\": tenure asks by", live(json!({ "grpc": { "port": 80 } })), none, none],
        ["readinessProbe.grpc of", probed("readinessProbe", json!({ "grpc": { "port": 80 } })), none, none],
        ["startupProbe.grpc of", starts(json!({ "grpc": { "port": 80 } })), none, none],
        [
            "livenessProbe.terminationGracePeriodSeconds of the container \"main\": tenure stops a program with the grace of the pod",
            live(json!({ "httpGet": { "port": 80 }, "terminationGracePeriodSeconds": 5 })), none, none,
        ],
        [
            "startupProbe.terminationGracePeriodSeconds of",
            starts(json!({ "httpGet": { "port": 80 }, "terminationGracePeriodSeconds": 5 })), none, none,
        ],
        [
            "livenessProbe.httpGet.host of the container \"main\" is no IP address",
            live(json!({ "httpGet": { "port": 80, "host": "localhost" } })), none, none,
        ],
        [
            "livenessProbe.tcpSocket.port of the container \"main\" is none of its ports",
            live(json!({ "tcpSocket": { "port": "web" } })), none, none,
        ],
        ["http.listen: the kubelet's probes do not reach 127.0.0.1:9000: write 0.0.0.0:9000", listens("127.0.0.1:9000"), none, none],
        ["http.listen: the kubelet's probes do not reach [::1]:9000: write 0.0.0.0:9000", listens("[::1]:9000"), none, none],
        ["do not reach [::ffff:127.0.0.1]:9000: write", listens("[::ffff:127.0.0.1]:9000"), none, none],
    ]);
    let rows = rows.as_array_mut().unwrap().iter_mut();
    let of_row = |row: &mut Value| (row[0].as_str().unwrap().to_owned(), pod("p", row[1].take(), row[2].take(), row[3].take()));
    let mut pods: Vec<_> = rows.map(of_row).collect();
    let job = of_job(pod("p", none.clone(), none, command("[\"sh\"]")));
    let why = "has no command, and that of its image cannot be seen: write the whole command line into command";
    pods.push((why.to_owned(), job));

    for (why, pod) in pods {
        let by_policy = sent("create", cluster, &pod).failure();
        let is_job = pod["metadata"]["ownerReferences"].is_array();
        let template = json!({ "metadata": { "labels": pod["metadata"]["labels"], "annotations": pod["metadata"]["annotations"] }, "spec": pod["spec"] });
        let (kind, version, spec) = if is_job {
            ("Job", "batch/v1", json!({ "template": template }))
        } else {
            let labels = json!({ "app": "billing" });
            let mut template = template;
            template["metadata"]["labels"]["app"] = json!("billing");
            ("Deployment", "apps/v1", json!({ "selector": { "matchLabels": labels }, "template": template }))
        };
        let workload = json!({ "apiVersion": version, "kind": kind, "metadata": { "name": "p" }, "spec": spec });
        let of_template = sent("create", cluster, &workload).failure();
        let (code, by_command) = tenure_inject(&workload, &[]);

        let sentence = by_command.trim().strip_prefix(&format!("tenure: {kind}/p: ")).unwrap_or_else(|| panic!("{by_command}"));
        assert_eq!(code, Some(78), "{by_command}");
        assert!(sentence.contains(&why), "{why}: {sentence}");
        // Pod Security comes first, and does not like these either.
        let is_insecure = ["probe or lifecycle host", "host namespaces"].iter().any(|words| by_policy.contains(words));
        assert!(by_policy.contains(sentence) || is_insecure, "{sentence}\n{by_policy}");
        assert!(of_template.contains(sentence), "{sentence}\n{of_template}");
    }
}

/// The command says it in the words of its configuration, or takes it.
fn what_the_policy_cannot_compute_from_is_refused(cluster: &Namespace) {
    let _alone = apply(cluster, "");
    let set = |name: &str, value: &str| json!({ "command": ["sh"], "env": [{ "name": name, "value": value }] });
    let time = |name: &str, value: &str| {
        (format!("{name}: {value:?} is not a duration that the policy reads: write 15s, 1m30s or 200ms"), set(name, value))
    };
    let twice = ["other", "billing"].map(|value| json!({ "name": "TENURE_LEASE__NAME", "value": value }));
    let why = "TENURE_LEASE__NAME: this key is also set by TENURE_LEASE__NAME: set it only once".to_owned();

    let get = |more: Value| probed("livenessProbe", json!({ "httpGet": merged(json!({ "port": 80 }), more) }));
    let request =
        "livenessProbe.httpGet of the container \"main\": tenure cannot send this request: write %20 for a blank of the path";
    let headers = |values: [&str; 2]| {
        let all = values.map(|value| json!({ "name": "X-A", "value": value }));
        get(json!({ "httpHeaders": if values[0] == values[1] { &all[..1] } else { &all } }))
    };

    for (why, container) in [
        (why, json!({ "command": ["sh"], "env": twice })),
        (request.to_owned(), get(json!({ "path": "/a b" }))),
        (request.to_owned(), headers(["a", "b"])),
        (request.to_owned(), headers(["a\nb"; 2])),
        (request.to_owned(), headers(["a\u{80}"; 2])),
        (request.to_owned(), get(json!({ "path": "/\u{7f}" }))),
        // Kubernetes itself says it.
        ("exec.command: Required value".to_owned(), probed("livenessProbe", json!({ "exec": { "command": [] } }))),
        time("TENURE_LEASE__DURATION", "1m 30s"),
        time("TENURE_LEASE__CREATION_WAIT", "2min"),
        time("TENURE_WORKLOAD__STOP__GRACE", "90s "),
    ] {
        let refused = pod("p", container, json!({}), json!({}));
        let mut template = workload("Deployment", Some("billing"), 1);
        template["spec"]["template"]["spec"] = refused["spec"].clone();
        for object in [refused, template] {
            let said = sent("create", cluster, &object).failure();
            assert!(said.contains(&why), "{why}: {said}");
        }
    }
    cluster.create(&pod("null", set("TENURE_LEASE__CREATION_WAIT", "null"), json!({}), json!({}))).success();
}
