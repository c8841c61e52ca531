//! Every built-in kind is created, patched, deleted and recovered, and is the same afterwards.
//!
//! Not here: kinds whose deletion waits for a controller (claims and volumes), a Namespace and a CustomResourceDefinition, which stay,
//! and a Job, which gets a selector of its own.

use serde_json::{Value, json};
use support::{Case, Stage, cases};

use super::{Shop, said};

pub(super) fn all() -> Vec<Case> {
    cases![each_built_in_kind_is_created_patched_deleted_and_recovered]
}

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
admissionregistration.k8s.io/v1 ValidatingAdmissionPolicy /validatingadmissionpolicies spec: {matchConstraints: {resourceRules: [{apiGroups: [x.example.com], apiVersions: ['*'], operations: [CREATE], resources: ['*']}]}, validations: [{expression: 'true'}]}";

/// The kinds, one by one.
fn kinds() -> impl Iterator<Item = [&'static str; 4]> {
    KINDS.lines().map(|line| line.splitn(4, ' ').collect::<Vec<_>>().try_into().expect("four words"))
}

async fn each_built_in_kind_is_created_patched_deleted_and_recovered(stage: Stage) {
    let shop = Shop::open(&stage).await;
    let name = &stage.namespace;
    let file = |kind: &str, content: &dyn Fn(&str) -> String| {
        let mut text = "apiVersion: tenure.dev/v1\nkind: Transaction\nmetadata: {name: x}\nspec:\n  changes:\n".to_owned();
        for [version, of, _, own] in kinds() {
            let own = own.replace("POD", POD).replace("NAME", name);
            let own = if own.starts_with('{') { own } else { format!("{{{own}}}") };
            let content = content(&own);
            text += &format!("  - {{target: {{apiVersion: {version}, kind: {of}, name: {name}}}, type: {kind}{content}}}\n");
        }
        shop.file(&format!("{kind}.yaml"), &text)
    };
    let create = file("Create", &|own| format!(", content: {own}"));
    let patch = file("Patch", &|_| ", content: {metadata: {labels: {new: label}, annotations: {new: annotation}}}".to_owned());
    let delete = file("Delete", &|_| String::new());
    let seen = async || {
        let mut seen = Vec::<Value>::new();
        for [version, _, resource, _] in kinds() {
            let root = if version.contains('/') { "/apis" } else { "/api" };
            let path = match resource.strip_prefix('/') {
                Some(resource) => format!("{root}/{version}/{resource}/{name}"),
                None => format!("{root}/{version}/namespaces/{name}/{resource}/{name}"),
            };
            seen.push(shop.read(&path).await);
        }
        seen
    };
    // Without an end: hundreds of requests, on a machine that may be busy.
    let run = async |line: &[&str]| Shop::end(shop.desk.command(line).spawn().expect("it starts")).await;
    let apply = async |file: &std::path::Path| {
        said(&run(&["apply", "-f", file.to_str().expect("text")]).await, 0, &["committed: 30 changes"])
    };
    let recover = async || said(&run(&["recover", "apply", "x"]).await, 0, &["undone: 30 changes"]);

    apply(&create).await;
    recover().await;
    assert!(seen().await.iter().all(Value::is_null), "{:#?}", seen().await);

    apply(&create).await;
    let made = seen().await;
    apply(&patch).await;
    assert!(seen().await.iter().all(|object| object["metadata"]["labels"]["new"] == "label"));
    recover().await;
    assert_eq!(seen().await, made);

    apply(&delete).await;
    assert!(seen().await.iter().all(Value::is_null));
    recover().await;
    assert_eq!(json!(seen().await), json!(made));
    apply(&delete).await;
}
