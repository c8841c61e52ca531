//! Every built-in kind is created, patched, deleted and recovered, and is the same afterwards.
//!
//! [`LEFT_OUT`] says which kinds are not in the table, and why. The API server is asked which kinds there are.

use http::Method;
use serde_json::{Value, json};
use support::{Case, Stage, cases};

use super::{Shop, change, said, transaction};

pub(super) fn all() -> Vec<Case> {
    let cases = cases![
        each_built_in_kind_is_created_patched_deleted_and_recovered,
        the_table_has_each_kind_that_the_api_server_lets_anybody_create_patch_and_delete,
    ];
    cases.into_iter().map(|case| case.since(OF)).collect()
}

/// The minor of Kubernetes whose kinds the table has.
const OF: u32 = 36;

const POD: &str = "{metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: i}]}}";

/// apiVersion, kind, resource and content. `NAME` is a name in the whole cluster, `POD` a template. Those of the cluster begin with `/`.
const KINDS: &str = "\
v1 ConfigMap configmaps data: {a: b}
v1 Secret secrets stringData: {a: b}
v1 Service services spec: {selector: {a: b}, type: NodePort, ports: [{port: 80}]}
v1 ServiceAccount serviceaccounts automountServiceAccountToken: false
v1 LimitRange limitranges spec: {limits: [{type: Container, default: {cpu: '1'}}]}
v1 ResourceQuota resourcequotas spec: {hard: {pods: '9'}}
v1 PodTemplate podtemplates template: POD
v1 ReplicationController replicationcontrollers spec: {selector: {a: b}, template: POD}
apps/v1 Deployment deployments spec: {selector: {matchLabels: {a: b}}, template: POD}
apps/v1 StatefulSet statefulsets spec: {serviceName: x, selector: {matchLabels: {a: b}}, template: POD}
apps/v1 DaemonSet daemonsets spec: {selector: {matchLabels: {a: b}}, template: POD}
apps/v1 ReplicaSet replicasets spec: {selector: {matchLabels: {a: b}}, template: POD}
apps/v1 ControllerRevision controllerrevisions {revision: 1, data: {a: b}}
batch/v1 CronJob cronjobs spec: {schedule: '1 * * * *', jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}}}
autoscaling/v2 HorizontalPodAutoscaler horizontalpodautoscalers spec: {maxReplicas: 2, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: x}}
policy/v1 PodDisruptionBudget poddisruptionbudgets spec: {minAvailable: 1, selector: {matchLabels: {a: b}}}
networking.k8s.io/v1 Ingress ingresses spec: {defaultBackend: {service: {name: x, port: {number: 80}}}}
networking.k8s.io/v1 NetworkPolicy networkpolicies spec: {podSelector: {}, policyTypes: [Ingress]}
networking.k8s.io/v1 IngressClass /ingressclasses spec: {controller: example.com/x}
rbac.authorization.k8s.io/v1 Role roles rules: [{apiGroups: [''], resources: [pods], verbs: [get]}]
rbac.authorization.k8s.io/v1 RoleBinding rolebindings {roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: NAME}, subjects: [{kind: ServiceAccount, name: x}]}
rbac.authorization.k8s.io/v1 ClusterRole /clusterroles rules: [{apiGroups: [''], resources: [pods], verbs: [get]}]
rbac.authorization.k8s.io/v1 ClusterRoleBinding /clusterrolebindings {roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: NAME}, subjects: [{kind: User, apiGroup: rbac.authorization.k8s.io, name: x}]}
storage.k8s.io/v1 StorageClass /storageclasses provisioner: example.com/x
storage.k8s.io/v1 CSIDriver /csidrivers spec: {attachRequired: false}
scheduling.k8s.io/v1 PriorityClass /priorityclasses value: 7
node.k8s.io/v1 RuntimeClass /runtimeclasses handler: x
discovery.k8s.io/v1 EndpointSlice endpointslices {addressType: IPv4, endpoints: [{addresses: [10.1.2.3]}], ports: [{port: 80}]}
flowcontrol.apiserver.k8s.io/v1 PriorityLevelConfiguration /prioritylevelconfigurations spec: {type: Limited, limited: {nominalConcurrencyShares: 1, limitResponse: {type: Reject}}}
admissionregistration.k8s.io/v1 ValidatingAdmissionPolicy /validatingadmissionpolicies spec: {matchConstraints: {resourceRules: [{apiGroups: [x.example.com], apiVersions: ['*'], operations: [CREATE], resources: ['*']}]}, validations: [{expression: 'true'}]}
v1 Endpoints endpoints subsets: [{addresses: [{ip: 10.1.2.3}], ports: [{port: 80}]}]
v1 Pod pods spec: {containers: [{name: c, image: i}]}
v1 Node /nodes spec: {unschedulable: true}
v1 PersistentVolume /persistentvolumes spec: {capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce], hostPath: {path: /x}}
v1 PersistentVolumeClaim persistentvolumeclaims spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
batch/v1 Job jobs spec: {suspend: true, template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}
events.k8s.io/v1 Event events {eventTime: '2026-01-01T00:00:00.000000Z', reportingController: example.com/x, reportingInstance: x, action: a, reason: r, type: Normal, regarding: {kind: Pod, namespace: NAME, name: x}}
storage.k8s.io/v1 CSINode /csinodes spec: {drivers: []}
storage.k8s.io/v1 CSIStorageCapacity csistoragecapacities {storageClassName: x, capacity: 1Gi}
storage.k8s.io/v1 VolumeAttachment /volumeattachments spec: {attacher: example.com, nodeName: x, source: {persistentVolumeName: x}}
storage.k8s.io/v1 VolumeAttributesClass /volumeattributesclasses {driverName: example.com, parameters: {a: b}}
flowcontrol.apiserver.k8s.io/v1 FlowSchema /flowschemas spec: {priorityLevelConfiguration: {name: catch-all}, matchingPrecedence: 9000}
admissionregistration.k8s.io/v1 ValidatingAdmissionPolicyBinding /validatingadmissionpolicybindings spec: {policyName: NAME, validationActions: [Audit]}
admissionregistration.k8s.io/v1 MutatingAdmissionPolicy /mutatingadmissionpolicies spec: {reinvocationPolicy: Never, matchConstraints: RULES, mutations: [{patchType: ApplyConfiguration, applyConfiguration: {expression: 'Object{}'}}]}
admissionregistration.k8s.io/v1 MutatingAdmissionPolicyBinding /mutatingadmissionpolicybindings spec: {policyName: NAME}
admissionregistration.k8s.io/v1 ValidatingWebhookConfiguration /validatingwebhookconfigurations webhooks: [HOOK]
admissionregistration.k8s.io/v1 MutatingWebhookConfiguration /mutatingwebhookconfigurations webhooks: [HOOK]
certificates.k8s.io/v1 CertificateSigningRequest /certificatesigningrequests spec: {signerName: example.com/x, usages: [client auth], request: SIGNING}
resource.k8s.io/v1 DeviceClass /deviceclasses spec: {selectors: [{cel: {expression: 'true'}}]}
resource.k8s.io/v1 ResourceClaim resourceclaims spec: {devices: {requests: [{name: a, exactly: {deviceClassName: x}}]}}
resource.k8s.io/v1 ResourceClaimTemplate resourceclaimtemplates spec: {spec: {devices: {requests: [{name: a, exactly: {deviceClassName: x}}]}}}
resource.k8s.io/v1 ResourceSlice /resourceslices spec: {driver: example.com, nodeName: x, pool: {name: p, generation: 1, resourceSliceCount: 1}, devices: [{name: d}]}";

/// What stands in the place of words in [`KINDS`].
const WORDS: [(&str, &str); 3] = [
    (
        "HOOK",
        "{name: a.example.com, clientConfig: {url: 'https://127.0.0.1:1/'}, sideEffects: None, admissionReviewVersions: [v1], rules: [RULE]}",
    ),
    ("RULES", "{resourceRules: [RULE]}"),
    ("RULE", "{apiGroups: [x.example.com], apiVersions: ['*'], operations: [CREATE], resources: ['*']}"),
];

/// Kinds that are not in the table, and why.
const LEFT_OUT: [(&str, &str); 11] = [
    ("Lease", "is refused: locks rest on it"),
    ("LeaseCandidate", "the API server deletes it unless it is renewed"),
    ("Namespace", "stays once it was created, and its Delete is refused: others.rs"),
    ("CustomResourceDefinition", "stays once it was created, and its Delete is refused: faults.rs"),
    ("APIService", "takes a part of the API server away from all other cases"),
    ("IPAddress", "its name is an address, and a controller of the API server deletes one without an owner"),
    ("ServiceCIDR", "the API server allocates addresses of other cases from it"),
    ("ClusterTrustBundle", "comes with 1.37"),
    ("DeviceTaintRule", "comes with 1.37"),
    ("PodCertificateRequest", "comes with 1.37"),
    ("StorageVersionMigration", "comes with 1.37"),
];

/// A transaction has at most 32 changes.
const AT_ONCE: usize = 27;

/// The kinds, one by one.
fn kinds() -> impl Iterator<Item = [&'static str; 4]> {
    KINDS.lines().map(|line| line.splitn(4, ' ').collect::<Vec<_>>().try_into().expect("four words"))
}

async fn each_built_in_kind_is_created_patched_deleted_and_recovered(stage: Stage) {
    let shop = Shop::open(&stage).await;
    let accounts = format!("/api/v1/namespaces/{}/serviceaccounts", stage.namespace);
    // Without it no Pod can be created; nobody makes it here.
    stage.api.create(&accounts, &json!({ "metadata": { "name": "default" } })).await;
    let kinds: Vec<_> = kinds().collect();
    for kinds in kinds.chunks(AT_ONCE) {
        come_and_go(&shop, kinds).await;
    }
}

/// Returns the PEM of a request for a certificate, in base64.
fn signing() -> String {
    use base64::Engine as _;
    let key = rcgen::KeyPair::generate().expect("a key");
    let request = rcgen::CertificateParams::default().serialize_request(&key).expect("a request");
    base64::prelude::BASE64_STANDARD.encode(request.pem().expect("PEM"))
}

async fn come_and_go(shop: &Shop<'_>, kinds: &[[&str; 4]]) {
    let (name, count, signing) = (&shop.stage.namespace, kinds.len(), signing());
    let file = |kind: &str, content: &dyn Fn(&str) -> String| {
        let changes = kinds.iter().map(|[version, of, _, own]| {
            let own = WORDS.iter().fold((*own).to_owned(), |own, (word, meaning)| own.replace(word, meaning));
            let own = own.replace("POD", POD).replace("NAME", name).replace("SIGNING", &signing);
            let own = if own.starts_with('{') { own } else { format!("{{{own}}}") };
            change(&format!("{version} {of} {name}"), &format!("type: {kind}{}", content(&own)))
        });
        shop.file(&format!("{kind}.yaml"), &transaction("x", &changes.collect::<Vec<_>>()))
    };
    let create = file("Create", &|own| format!(", content: {own}"));
    let patch = file("Patch", &|_| ", content: {metadata: {labels: {new: label}, annotations: {new: annotation}}}".to_owned());
    let delete = file("Delete", &|_| String::new());
    let paths: Vec<_> = kinds.iter().map(|[version, _, resource, _]| path(version, resource, name)).collect();
    let seen = async || {
        let mut seen = Vec::<Value>::new();
        for path in &paths {
            seen.push(without_generated(shop.read(path).await));
        }
        seen
    };
    // Without an end: hundreds of requests, on a machine that may be busy.
    let run = async |line: &[&str]| Shop::end(shop.desk.command(line).spawn().expect("it starts")).await;
    let apply = async |file: &std::path::Path| {
        let committed = format!("committed: {count} changes");
        said(&run(&["apply", "-f", file.to_str().expect("text")]).await, 0, &[&committed]);
    };
    let recover = async || said(&run(&["recover", "apply", "x"]).await, 0, &[&format!("undone: {count} changes")]);
    // A controller that is not here takes the finalizers off that protect claims and volumes.
    let are_gone = async || {
        for path in &paths {
            let (status, mut object) = shop.stage.api.call(Method::GET, path, None).await;
            if status == 200 && object["metadata"]["deletionTimestamp"].is_string() {
                object["metadata"]["finalizers"] = json!([]);
                assert_eq!(shop.stage.api.call(Method::PUT, path, Some(&object)).await.0, 200, "{path}");
            }
        }
        assert!(seen().await.iter().all(Value::is_null), "{:#?}", seen().await);
    };

    apply(&create).await;
    recover().await;
    are_gone().await;

    apply(&create).await;
    let made = seen().await;
    apply(&patch).await;
    assert!(seen().await.iter().all(|object| object["metadata"]["labels"]["new"] == "label"));
    recover().await;
    assert_eq!(seen().await, made);

    apply(&delete).await;
    are_gone().await;
    recover().await;
    for (now, made) in seen().await.iter().zip(&made) {
        assert_eq!(now, made);
    }
    apply(&delete).await;
    are_gone().await;
}

/// Where an object of this name is.
fn path(version: &str, resource: &str, name: &str) -> String {
    let root = if version.contains('/') { "/apis" } else { "/api" };
    match resource.strip_prefix('/') {
        Some(resource) => format!("{root}/{version}/{resource}/{name}"),
        None => format!("{root}/{version}/namespaces/{name}/{resource}/{name}"),
    }
}

/// A Job has a selector and labels that are made of its uid.
fn without_generated(mut job: Value) -> Value {
    if job["kind"] == "Job" {
        job["spec"]["selector"] = Value::Null;
        for labels in ["/metadata/labels", "/spec/template/metadata/labels"] {
            if let Some(labels) = job.pointer_mut(labels).and_then(Value::as_object_mut) {
                labels.retain(|name, _| !name.ends_with("controller-uid"));
            }
        }
    }
    job
}

async fn the_table_has_each_kind_that_the_api_server_lets_anybody_create_patch_and_delete(stage: Stage) {
    let get = async |path: &str| stage.api.call(Method::GET, path, None).await.1;
    let array = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().expect("text").to_owned();
    let mut versions = vec!["/api/v1".to_owned()];
    for group in array(&get("/apis").await["groups"]) {
        let name = text(&group["name"]);
        // The others are definitions of other cases.
        if name.ends_with(".k8s.io") || !name.contains('.') {
            versions.extend(array(&group["versions"]).iter().map(|version| format!("/apis/{}", text(&version["groupVersion"]))));
        }
    }
    let mut missing = Vec::new();
    for version in versions {
        for resource in array(&get(&version).await["resources"]) {
            let verbs = array(&resource["verbs"]);
            let is_whole = ["get", "create", "patch", "delete"].iter().all(|verb| verbs.contains(&json!(verb)));
            let kind = text(&resource["kind"]);
            let is_known = kinds().any(|[_, of, ..]| of == kind) || LEFT_OUT.iter().any(|(of, _)| *of == kind);
            if is_whole && !text(&resource["name"]).contains('/') && !is_known {
                missing.push(format!("{version} {kind}"));
            }
        }
    }
    assert!(missing.is_empty(), "{missing:?}");
}
