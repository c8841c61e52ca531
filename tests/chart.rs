//! deploy/helm by the real Helm on a real API server: linted, installed, upgraded, and its values judged.
//!
//! Building Helm takes minutes: `.ci/nightly chart`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stderr, unreachable_pub, reason = "a test panics, and says why")]

use std::{
    collections::BTreeSet,
    env, fs,
    os::unix::fs::PermissionsExt as _,
    process::{Command, ExitCode, Output},
};

use serde_json::{Value, json};
use support::{Ended as _, Namespace, Scratch, cases};

/// The program.
const TENURE: &str = env!("CARGO_BIN_EXE_tenure");

const CHART: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/helm/tenure");

/// A chart that knows nothing of tenure.
const EXISTING: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/deploy/existing");

/// All that it needs.
const LEAST: [&str; 4] = ["--set", "image.repository=writer,image.tag=1.0", "--set-json", "args=[\"/bin/writer\"]"];

/// Without a server Helm would believe in an old Kubernetes.
const TEMPLATE: [&str; 4] = ["template", "--kube-version=1.36.3", "billing", CHART];

/// With the name of the release 64 characters.
const LONG_NAME: &str = "nameOverride=aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

/// Everything but what needs the Prometheus Operator.
const MOST: [&str; 4] = [
    "--set",
    "inject.repository=tenure,inject.digest=sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef,apiServerPorts={16443},networkPolicy=true,priority=true",
    "--set",
    "podLabels.team=billing,podAnnotations.a=b",
];

fn main() -> ExitCode {
    support::case::main(
        TENURE,
        vec![(
            "chart",
            cases![restricted:
                helm_has_nothing_to_find_fault_with,
                what_tenure_takes_as_a_file_is_taken_as_config,
                what_it_installs_is_admitted_where_pod_security_is_restricted,
                an_upgrade_leaves_the_holder_alone_and_rolls_what_has_another_configuration,
                a_value_that_nothing_reads_is_refused_and_so_is_a_key_that_tenure_does_not_have,
                the_grace_period_and_the_liveness_threshold_are_what_the_configuration_needs_and_less_is_refused,
                a_configuration_that_tenure_refuses_is_refused_and_one_that_it_takes_is_taken,
                a_program_gets_the_pod_that_it_needs,
                a_file_in_which_helm_and_tenure_would_read_different_values_is_refused_by_both,
                a_stateful_set_has_names_and_volumes_of_its_own_and_is_admitted,
                the_database_of_the_documentation_is_admitted,
                a_chart_that_exists_gets_tenure_by_its_values_and_by_a_post_renderer,
                helm_3_helm_4_and_kustomize_make_the_same_by_tenure_inject,
                what_tenure_inject_refuses_ends_helm_and_kustomize,
                the_rights_are_those_that_the_configuration_needs,
                the_priority_is_for_each_verb_that_the_configuration_needs,
                a_replica_leads_with_the_configuration_and_the_rights_of_the_release,
            ],
        )],
    )
}

/// The rendered object of this kind.
fn rendered(cluster: &Namespace, kind: &str, values: &[&str]) -> Value {
    let said = helm(cluster, &TEMPLATE, &[&LEAST, values]).success().stdout;
    let documents = documents(&String::from_utf8(said).unwrap());
    documents.into_iter().find(|object| object["kind"] == kind).unwrap_or_else(|| panic!("no {kind} with {values:?}"))
}

/// The objects of a text in YAML.
fn documents(text: &str) -> Vec<Value> {
    text.split("---\n").filter_map(|text| serde_saphyr::from_str(text).ok()).collect()
}

/// `tenure check --offline` with the values of `--set` that begin with `config.`.
fn check(values: &str) -> Output {
    let mut check = Command::new(TENURE);
    check.args(["check", "--offline", "--set=lease.witness=@tenure"]).env("POD_IPS", "192.0.2.1");
    if !values.contains("lease.name") {
        check.arg("--lease=billing");
    }
    // A port in a list is more than a flag can say in Helm's way.
    let values = values.replace("ports[0].port=80", "ports={{port: 80}}");
    for value in values.split(',').filter_map(|value| value.strip_prefix("config.")) {
        let list = value.split_once("={").and_then(|(key, words)| Some(format!("{key}=[{}]", words.strip_suffix('}')?)));
        check.arg(format!("--set={}", list.unwrap_or_else(|| value.to_owned())));
    }
    check.args(["--", "true"]).output().unwrap()
}

fn helm(cluster: &Namespace, verb: &[&str], values: &[&[&str]]) -> Output {
    let mut helm = cluster.command("helm", verb);
    helm.args(values.concat()).env("HELM_CACHE_HOME", "/nonexistent").output().expect("helm starts")
}

fn install(cluster: &Namespace, values: &[&[&str]]) -> Output {
    helm(cluster, &["install", "billing", CHART], values)
}

fn helm_has_nothing_to_find_fault_with(cluster: &Namespace) {
    for values in [&[&LEAST[..]][..], &[&LEAST, &MOST, &["--set", "podMonitor=true"]]] {
        helm(cluster, &["lint", "--strict", "--kube-version=1.36.3", CHART], values).success();
    }
    let monitor = ["--set", "podMonitor=true", "--set", "podMonitorLabels.release=prometheus"];
    let rendered = helm(cluster, &TEMPLATE, &[&LEAST, &monitor]).success();
    let rendered = String::from_utf8_lossy(&rendered.stdout);
    let (_, monitor) = rendered.split_once("kind: PodMonitor\n").expect("a PodMonitor");
    let (metadata, _) = monitor.split_once("\nspec:").expect("a spec");
    assert!(metadata.contains("app.kubernetes.io/name: ") && metadata.contains("release: prometheus"), "{metadata}");
}

/// The file of defaults, and sections in which nothing is said, are a `config` too.
fn what_tenure_takes_as_a_file_is_taken_as_config(cluster: &Namespace) {
    let defaults = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/config/tenure.yaml")).unwrap();
    let indented: String = defaults.lines().map(|line| format!("  {line}\n")).collect();
    let nothing = "{lease: null, http: null, service: null, events: null}";
    for config in [format!("\n{indented}"), nothing.to_owned()] {
        let place = Scratch::new();
        install(cluster, &[&LEAST, &["--values", &place.file("values.yaml", format!("config: {config}\n"))]]).success();

        let container = cluster.get("deployment/billing-tenure")["spec"]["template"]["spec"]["containers"][0].take();
        assert_eq!((&container["command"], &container["args"]), (&json!(["/tenure"]), &json!(["--", "/bin/writer"])));
        assert_eq!(container["ports"][0], json!({ "name": "tenure", "containerPort": 8080, "protocol": "TCP" }));
        assert_eq!(cluster.get("role/billing-tenure")["rules"][0]["resourceNames"], json!(["billing-tenure"]));
        let written = cluster.get("configmap/billing-tenure")["data"]["tenure.yaml"].take();
        // The pods of a cluster may have only addresses of IPv6.
        for line in ["name: billing-tenure\n", "listen: '[::]:8080'\n"] {
            assert!(written.as_str().unwrap().contains(line), "{written}");
        }
        helm(cluster, &["uninstall", "billing"], &[]).success();
    }
}

fn what_it_installs_is_admitted_where_pod_security_is_restricted(cluster: &Namespace) {
    for values in [&[&LEAST[..]][..], &[&LEAST, &MOST]] {
        let said = install(cluster, values).success();
        assert_eq!(String::from_utf8_lossy(&said.stderr), "", "a warning");
        let deployment = cluster.get("deployment/billing-tenure");
        let template = &deployment["spec"]["template"];
        cluster.admits(template);
        let pods = &deployment["spec"]["selector"];
        assert_eq!(&cluster.get("pdb/billing-tenure")["spec"]["selector"], pods);
        if values.len() > 1 {
            let image = template["spec"]["initContainers"][0]["image"].as_str().unwrap();
            assert!(image.starts_with("tenure@sha256:0123"), "{image}");
            let egress = &cluster.get("networkpolicy/billing-tenure")["spec"]["egress"];
            assert_eq!(egress[0]["ports"], json!([{ "port": 16443, "protocol": "TCP" }]));
            assert_eq!(template["spec"]["initContainers"][0]["args"], json!(["install", "/opt/tenure/tenure"]));
            assert_eq!(template["spec"]["containers"][0]["command"], json!(["/opt/tenure/tenure"]));
            assert_eq!(&cluster.get("networkpolicy/billing-tenure")["spec"]["podSelector"], pods);
            let schema = cluster.get(&format!("flowschema/{}-billing-tenure", cluster.name));
            let subject = &schema["spec"]["rules"][0]["subjects"][0]["serviceAccount"];
            assert_eq!(subject, &json!({ "name": "billing-tenure", "namespace": cluster.name }));
        }
        helm(cluster, &["uninstall", "billing"], &[]).success();
    }
    let left = cluster.get("leases,deployments,roles,flowschemas")["items"].take();
    let ours = |one: &&Value| one["metadata"]["labels"]["app.kubernetes.io/instance"] == "billing";
    assert_eq!(left.as_array().unwrap().iter().find(ours), None, "it is left");
}

fn an_upgrade_leaves_the_holder_alone_and_rolls_what_has_another_configuration(cluster: &Namespace) {
    install(cluster, &[&LEAST]).success();
    let mut held = cluster.get("lease/billing-tenure");
    held["spec"] = json!({
        "holderIdentity": "pod_0", "leaseDurationSeconds": 15, "leaseTransitions": 3,
        "acquireTime": "2026-01-01T00:00:00.000000Z", "renewTime": "2026-01-01T00:00:03.000000Z",
    });
    let path = format!("/apis/coordination.k8s.io/v1/namespaces/{}/leases/billing-tenure", cluster.name);
    cluster.feed(&["replace", "--raw", &path, "-f", "-"], &held).success();
    let rolled = || cluster.get("deployment/billing-tenure")["spec"]["template"].clone();
    let before = (cluster.get("lease/billing-tenure")["spec"].clone(), rolled());
    let upgrade = |values: &[&[&str]]| drop(helm(cluster, &["upgrade", "billing", CHART], values).success());

    upgrade(&[&LEAST, &["--set", "replicas=3"]]);
    assert_eq!((cluster.get("lease/billing-tenure")["spec"].clone(), rolled()), before);
    upgrade(&[&LEAST, &["--set", "config.lease.duration=20s"]]);
    assert_eq!(cluster.get("lease/billing-tenure")["spec"], before.0);
    assert_ne!(rolled(), before.1, "replicas read their configuration only once");
}

/// Values, and words of the sentence that refuses them. Without ports a NetworkPolicy would let everything pass.
const REFUSED: &str = "\
replics=3 | 'replics' not allowed
config.workload.stop.grce=2s | 'grce' not allowed
config.workload.runs=sometimes | /config/workload/runs
image.repository= | /image/repository
config.lease.namespace=other | in the namespace of the release
image.tag= | image: set tag or digest, so that all nodes run the same image
inject.repository=tenure | inject: set tag or digest
image.digest=1.0 | /image/digest
env[0].name=TENURE_LEASE__DURATION,env[0].value=60s | env: TENURE_LEASE__DURATION would override
env[0].name=TENURE_HTTP__LISTEN,env[0].value=a | env: TENURE_HTTP__LISTEN would override
env[0].name=TENURE_WORKLOAD__STOP__GRACE,env[0].value=60s | env: TENURE_WORKLOAD__STOP__GRACE would
env[0].name=TENURE_SERVICE__ENDPOINT_SLICE,env[0].value=a | env: TENURE_SERVICE__ENDPOINT_SLICE would
env[0].name=TENURE_EVENTS__ENABLED,env[0].value=true | env: TENURE_EVENTS__ENABLED would override
env[0].name=TENURE_CONFIG,env[0].value=/own.yaml | env: TENURE_CONFIG would override
env[0].name=POD_NAME,env[0].value=a | env: the chart sets POD_NAME itself: remove it
volumeMounts[0].mountPath=/tmp/,volumeMounts[0].name=a | volumeMounts: the chart has /tmp/ itself: use another path
volumeMounts[0].mountPath=/run/tenure | volumeMounts: the chart has /run/tenure itself: use another path
volumes[0].name=config | volumes: the chart has config itself: use another name
volumeClaimTemplates[0].metadata.name=tmp | volumeClaimTemplates: the chart has tmp itself: use
initContainers[0].name=witness | initContainers: the chart has witness itself: use another name
inject.repository=a,volumes[0].name=tenure | volumes: the chart has tenure itself: use another name
inject.repository=a,initContainers[0].name=install | initContainers: the chart has install itself: use
nameOverride=A_B | nameOverride: with the name of the release it makes billing-A_B: use a to z
networkPolicy=true,apiServerPorts=null | apiServerPorts: write the ports of the API server
config.http.listen=0.0.0.0:0 | config.http.listen: the probes need an address and a port
config.http.listen=[::] | config.http.listen: the probes need an address and a port
config.http.listen=::8080 | config.http.listen: the probes need an address and a port
ports[0].name=tenure,ports[0].containerPort=80 | ports: the chart has tenure itself: use another name
initContainers[0].name=tenure | initContainers: the chart has tenure itself: use another name
nameOverride=led,initContainers[0].name=led | initContainers: the chart has led itself: use another name
nameOverride=witness | nameOverride: the chart has an init container witness: use another name
nameOverride=install,inject.repository=a | nameOverride: the chart has an init container install: use";

fn a_value_that_nothing_reads_is_refused_and_so_is_a_key_that_tenure_does_not_have(cluster: &Namespace) {
    let refused = |values: &[&str], words: &str| {
        let said = helm(cluster, &TEMPLATE, &[&LEAST, values]).failure();
        assert!(said.contains(words), "{values:?}: {said}");
    };
    for line in REFUSED.lines() {
        let (values, words) = line.split_once(" | ").unwrap();
        refused(&["--set", values], words);
    }
    for (values, words) in [
        ("args=[]", "args, or config.workload.command, is required"),
        (r#"podLabels={"app.kubernetes.io/name": "a"}"#, "podLabels: the chart sets app.kubernetes.io/name itself"),
        (r#"podAnnotations={"checksum/config": "a"}"#, "podAnnotations: the chart sets checksum/config itself"),
    ] {
        refused(&["--set-json", values], words);
    }
    refused(&["--set", LONG_NAME], "63 characters at most");
    refused(&["--set", LONG_NAME, "--set", "kind=StatefulSet"], "52 characters at most");
    let dotted = ["template", "--kube-version=1.36.3", "shop.v2", CHART];
    let why = helm(cluster, &dotted, &[&LEAST, &["--set", "kind=StatefulSet"]]).failure();
    assert!(why.contains("it makes shop.v2-tenure: use a to z, 0 to 9 and hyphens"), "{why}");
}

fn the_grace_period_and_the_liveness_threshold_are_what_the_configuration_needs_and_less_is_refused(cluster: &Namespace) {
    for (values, failures) in [
        ("replicas=2", 5),
        ("config.workload.stop.grace=1m30s500ms", 5),
        ("config.lease.duration=60s,config.lease.renewPeriod=10s,config.lease.attemptTimeout=5s", 14),
        ("config.service.endpointSlice=leader,config.service.ports[0].port=80", 5),
        ("config.lease.release=delete,config.workload.stop.killMargin=1s1ms", 5),
        ("config.lease.release=delete,config.lease.creationWait=0s", 5),
    ] {
        let pod = rendered(cluster, "Deployment", &["--set", values])["spec"]["template"]["spec"].take();
        let said = check(values).success().stdout;
        let needed = support::grace(&String::from_utf8(said).unwrap());

        assert_eq!(pod["terminationGracePeriodSeconds"], needed, "{values}");
        assert_eq!(pod["containers"][0]["livenessProbe"]["failureThreshold"], failures, "{values}");
        for (key, least) in [("terminationGracePeriodSeconds", needed), ("livenessFailureThreshold", failures)] {
            let less = format!("{values},{key}={}", least - 1);
            let refused = helm(cluster, &TEMPLATE, &[&LEAST, &["--set", &less]]).failure();
            assert!(refused.contains(&format!("{key}: config needs {least} or more")), "{less}: {refused}");
            rendered(cluster, "Deployment", &["--set", &format!("{values},{key}={}", least + 1)]);
        }
    }
}

/// The key that is refused, values that are taken, and values that are not, all without `config.`. One name has 64 characters.
const JUDGED: &str = "\
lease.duration | lease.duration=12s,lease.renewPeriod=2s | lease.duration=12s
lease.duration | lease.duration=15s | lease.duration=15s500ms
lease.duration | lease.clockDrift=9.5% | lease.clockDrift=20%
lease.duration | workload.stop.lossGrace=6s | workload.stop.lossGrace=7s
lease.renewPeriod | lease.renewPeriod=1s | lease.renewPeriod=999ms
lease.attemptTimeout | lease.attemptTimeout=1s | lease.attemptTimeout=1ms
workload.stop.killMargin | workload.stop.killMargin=100ms | workload.stop.killMargin=99ms
lease.clockDrift | lease.clockDrift=0.01% | lease.clockDrift=0.001%
lease.creationWait | lease.creationWait=3s | lease.creationWait=3s1ms
lease.name | lease.name=a_b | lease.name=_
lease.slots | lease.slots=64 | lease.slots=65
lease.name | lease.slots=2 | lease.slots=2,lease.name=aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa
lease.release | lease.release=delete | lease.release=keep
workload.acknowledge | workload.runs=frozen | workload.runs=always,signals.onLead=USR1,signals.onFollow=USR2
signals.onFollow | workload.runs=always,workload.acknowledge=none,signals.onLead=USR1,signals.onFollow=USR2 | workload.runs=always,workload.acknowledge=none,signals.onLead=USR1
workload.acknowledge | workload.runs=always,workload.acknowledge=hook,hooks.afterLead.command={/bin/true},hooks.beforeFollow.command={/bin/true} | workload.runs=always,workload.acknowledge=hook,signals.onLead=USR1,hooks.beforeFollow.command={/bin/true}
signals.onLead | signals.onLead=null | signals.onLead=USR1
workload.acknowledge | workload.acknowledge=null | workload.acknowledge=none
standby.command | standby.command={/bin/true} | standby.command={/bin/true},workload.runs=frozen
hooks.beforeLead | hooks.beforeLead.command={/bin/true} | hooks.beforeLead.timeout=1s
hooks.beforeLead.timeout | hooks.beforeLead.command={} | hooks.beforeLead.command={/bin/true},hooks.beforeLead.timeout=0s
hooks.beforeFollow.timeout | hooks.beforeFollow.command={/bin/true},workload.stop.grace=11s | hooks.beforeFollow.command={/bin/true},workload.stop.grace=10s
workload.readiness | workload.readiness.tcp.port=80 | workload.readiness.tcp.port=80,workload.readiness.http.port=80
workload.readiness | workload.readiness.notify=true | workload.readiness.failureThreshold=2
workload.liveness.period | workload.liveness.notify=true | workload.liveness.notify=true,workload.liveness.period=0s
workload.liveness | workload.liveness.file.path=/x | workload.liveness.file.path=/x,workload.runs=frozen
workload.startTimeout | workload.startTimeout=1m,workload.readiness.notify=true | workload.startTimeout=1m
http.ready | http.ready=workload,workload.readiness.notify=true | http.ready=workload
workload.candidate | workload.candidate=ready,workload.runs=frozen,workload.readiness.notify=true | workload.candidate=ready,workload.readiness.notify=true
service.ports | service.endpointSlice=null | service.endpointSlice=leader
service.endpointSlice | service.endpointSlice=a,service.ports[0].port=80 | service.ports[0].port=80
workload.stop.signal | workload.stop.signal=INT | workload.stop.signal=SIGKILL";

fn a_configuration_that_tenure_refuses_is_refused_and_one_that_it_takes_is_taken(cluster: &Namespace) {
    let config = |values: &str| format!("config.{}", values.replace(',', ",config."));
    for line in JUDGED.lines() {
        let [key, good, bad] = line.split(" | ").collect::<Vec<_>>()[..] else { panic!("{line}") };
        let (good, bad) = (&config(good), &config(bad));
        check(good).success();
        rendered(cluster, "Deployment", &["--set", good]);
        assert!(check(bad).failure().contains(key), "tenure takes {bad}");
        let refused = helm(cluster, &TEMPLATE, &[&LEAST, &["--set", bad]]).failure();
        let by_schema = format!("'/config/{}': ", key.replace('.', "/"));
        assert!(refused.contains(&format!("config.{key}: ")) || refused.contains(&by_schema), "{bad}: {refused}");
    }
    let remedy = "config.lease.renewPeriod=7s,config.workload.stop.lossGrace=9s,config.lease.clockDrift=3%";
    let said = check(remedy).failure();
    let seconds = said.split_once("Set lease.duration to ").expect("a remedy").1.split(' ').next().unwrap();
    let refused = helm(cluster, &TEMPLATE, &[&LEAST, &["--set", remedy]]).failure();
    assert!(refused.contains(&format!("write {seconds} or more")), "{said}{refused}");
}

fn a_program_gets_the_pod_that_it_needs(cluster: &Namespace) {
    let values = json!({
        "nameOverride": "ledger",
        "serviceAccount": { "create": false, "name": "own" },
        "podSecurityContext": { "runAsUser": 70, "runAsGroup": null, "fsGroup": 70 },
        "securityContext": { "readOnlyRootFilesystem": false },
        "priorityClassName": "high",
        "initContainers": [{ "name": "first", "image": "writer" }],
        "env": [{ "name": "OTEL_RESOURCE_ATTRIBUTES", "value": "team=a" }],
        "envFrom": [{ "secretRef": { "name": "own" } }],
        "inject": { "repository": "tenure", "tag": "1" },
        "tenureResources": { "install": { "limits": { "cpu": "1" } }, "witness": { "limits": { "cpu": "50m" } } },
        "ports": [{ "name": "http", "containerPort": 80 }],
        "lifecycle": { "preStop": { "exec": { "command": ["true"] } } },
        "volumes": [{ "name": "data", "emptyDir": {} }],
        "volumeMounts": [{ "name": "data", "mountPath": "/data" }],
        "config": "# The text of a file.\nlease: { prefix: shop- }\nworkload:\n  stop: { grace: 40s }\n",
    });
    let place = Scratch::new();
    let values = ["--values", &place.file("values.yaml", values.to_string())];

    let deployment = rendered(cluster, "Deployment", &values);

    let (template, pod) = (&deployment["spec"]["template"], &deployment["spec"]["template"]["spec"]);
    let container = &pod["containers"][0];
    assert_eq!((&deployment["metadata"]["name"], &container["name"]), (&json!("billing-ledger"), &json!("ledger")));
    assert_eq!(template["metadata"]["labels"]["app.kubernetes.io/name"], "ledger");
    assert_eq!((&pod["serviceAccountName"], &pod["priorityClassName"]), (&json!("own"), &json!("high")));
    assert_eq!(rendered(cluster, "RoleBinding", &values)["subjects"][0]["name"], "own");
    assert_eq!(
        pod["securityContext"],
        json!({ "runAsNonRoot": true, "runAsUser": 70, "fsGroup": 70, "seccompProfile": { "type": "RuntimeDefault" } })
    );
    assert_eq!(container["securityContext"]["readOnlyRootFilesystem"], false);
    assert_eq!(pod["initContainers"].as_array().unwrap().last().unwrap()["name"], "first");
    assert_eq!(container["envFrom"][0]["secretRef"]["name"], "own");
    let attributes = container["env"].as_array().unwrap().iter().filter(|one| one["name"] == "OTEL_RESOURCE_ATTRIBUTES");
    assert_eq!(attributes.map(|one| &one["value"]).collect::<Vec<_>>(), ["team=a"]);
    let limits = |at: usize| pod["initContainers"][at]["resources"]["limits"].clone();
    assert_eq!(limits(0), json!({ "cpu": "1", "memory": "64Mi" }));
    assert_eq!(limits(1), json!({ "cpu": "50m", "memory": "32Mi" }));
    assert_eq!(container["ports"][1], json!({ "name": "http", "containerPort": 80 }));
    assert_eq!(container["lifecycle"]["preStop"]["exec"]["command"][0], "true");
    assert!(pod["volumes"].as_array().unwrap().contains(&json!({ "name": "data", "emptyDir": {} })));
    assert!(container["volumeMounts"].as_array().unwrap().contains(&json!({ "name": "data", "mountPath": "/data" })));
    assert_eq!(container["resources"]["limits"], Value::Null, "a program needs the memory that it needs");
    assert_eq!(
        (&pod["terminationGracePeriodSeconds"], &rendered(cluster, "Lease", &values)["metadata"]["name"]),
        (&json!(47), &json!("shop-billing-ledger"))
    );
    // To YAML a name of digits is a number.
    assert_eq!(rendered(cluster, "Lease", &["--set-string", "config.lease.name=007"])["metadata"]["name"], "007");
    let verb = ["template", "--kube-version=1.36.3", "1e5", CHART];
    let values = ["--namespace=4711", "--set-string", "nameOverride=1e5", "--set", "priority=true"];
    let objects = documents(&String::from_utf8(helm(cluster, &verb, &[&LEAST, &values]).success().stdout).unwrap());
    for object in objects.iter().filter(|object| object.is_object()) {
        let labels = json!({ "app.kubernetes.io/name": "1e5", "app.kubernetes.io/instance": "1e5" });
        assert_eq!(object["metadata"]["labels"], labels, "{object:#}");
        assert!(object["metadata"]["name"].is_string(), "{object:#}");
    }
    let of = |kind: &str| objects.iter().find(|object| object["kind"] == kind).unwrap();
    let account = json!({ "kind": "ServiceAccount", "name": "1e5", "namespace": "4711" });
    assert_eq!((&of("RoleBinding")["subjects"][0], &of("RoleBinding")["roleRef"]["name"]), (&account, &json!("1e5")));
    assert_eq!(of("FlowSchema")["spec"]["rules"][0]["resourceRules"][0]["namespaces"], json!(["4711"]));
    let pod = &of("Deployment")["spec"]["template"]["spec"];
    assert_eq!((&pod["serviceAccountName"], &pod["containers"][0]["name"]), (&json!("1e5"), &json!("1e5")));
    let nothing = ["volumes", "volumeMounts", "volumeClaimTemplates", "initContainers", "podLabels", "podAnnotations"];
    for key in nothing {
        helm(cluster, &TEMPLATE, &[&LEAST, &["--set", &format!("{key}=null")]]).success();
    }
    for (values, words) in [
        ("ports[0].containerPort=8080", "ports: tenure itself listens on 8080"),
        ("volumeClaimTemplates[0].metadata.name=data", "volumeClaimTemplates: set kind to StatefulSet"),
        ("config.lease.enabled=false", "config.lease.enabled: "),
        ("serviceAccount.create=false", "serviceAccount.name is required"),
        ("config=[", "config: "),
        ("config.http.listen=127.0.0.1:8080", "config.http.listen: the kubelet's probes reach the pod's address"),
        ("config.http.listen=[::1]:8079", "no loopback address: write 0.0.0.0:8079"),
        ("config.http.listen=[::ffff:127.0.0.2]:80", "no loopback address"),
    ] {
        let refused = helm(cluster, &TEMPLATE, &[&LEAST, &["--set", values]]).failure();
        assert!(refused.contains(words), "{values}: {refused}");
    }
}

/// Helm reads YAML 1.1, tenure YAML 1.2.
fn a_file_in_which_helm_and_tenure_would_read_different_values_is_refused_by_both(cluster: &Namespace) {
    let place = Scratch::new();
    let judged = |text: &str| {
        let path = place.file("words.yaml", text);
        let by_helm = helm(cluster, &TEMPLATE, &[&LEAST, &["--set-file", &format!("config={path}")]]);
        let mut check = Command::new(TENURE);
        let by_tenure = check.args(["check", "--offline", "--lease=a", "--config", &path, "--", "true"]).output().unwrap();
        [by_helm, by_tenure]
    };
    for text in [
        "events: { enabled: yes }\n",
        "workload: { env: { DEBUG: Off } }\n",
        "workload:\n  command:\n    - echo\n    - on # not true\n",
        "workload:\n  command: [echo, \"on\", NO]\n",
    ] {
        for said in judged(text) {
            let refused = said.failure();
            assert!(refused.contains("an unquoted yes, no, on"), "{text}: {refused}");
            assert!(refused.contains("is ambiguous: quote it"), "{text}: {refused}");
        }
    }
    for text in [
        "# yes: on, no, off\nevents: { enabled: true }\n",
        "workload: { env: { DEBUG: 'off', MORE: yes-man, LAST: \"no: on, off\" } }\n",
        "workload: { command: [\"a_b\\n\", \"no\\ty\\n\"] }\nevents: { enabled: true }\n",
        "workload:\n  command:\n    - echo\n    - turn it on\n    - |\n      on\n    - 'y'\n    - --n=y\n    - \"1_0\"\n    - a1_0\n",
        "# all\n---\nlease: { slots: 2, duration: 015s }\nworkload: { env: { \"0\": '1e3', 5A: \"010\" }, command: [a, \"b\\n010\", -0-0] }\n",
        "workload:\n  command:\n    - |2\n        010 ---\n        lease:\n    - --n=0x1f\n    - at 1e3\n    - 10.0.0.1:080\n",
    ] {
        for said in judged(text) {
            said.success();
        }
    }
    let number = "an unquoted number that Helm would write in another way";
    for (text, words) in [
        ("lease: { slots: 010 }\n", number),
        ("lease:\n  name: 0x1f\n", number),
        ("lease: { name: 1e3 }\n", number),
        ("workload: { env: { A: 1.10, B: a } }\n", number),
        ("lease: { slots: 2 }\n---\nlease: { slots: 3 }\n", "Helm reads only the first document"),
        ("# all\n---\n---\nlease: { slots: 3 }\n", "Helm reads only the first document"),
        ("lease: { slots: 2 }\nworkload: {}\nlease: { name: b }\n", "a section stands there twice"),
    ] {
        let [by_helm, by_tenure] = judged(text).map(|said| said.failure());
        assert!(by_helm.contains(words), "{text}: {by_helm}");
        assert!(by_tenure.contains("the configuration is refused"), "{text}: {by_tenure}");
    }
    // To tenure these are texts.
    for text in ["1__0", "0_1", "0x_1", "-1_2.3", "1e3_0", "y", "N"] {
        let [by_helm, by_tenure] = judged(&format!("workload: {{ env: {{ A: {text} }} }}\n"));
        let refused = by_helm.failure();
        assert!(refused.contains("config: an unquoted ") && refused.contains(" is ambiguous: quote it"), "{text}: {refused}");
        by_tenure.success();
    }
}

/// As docs/pasted-parts.md says.
fn a_chart_that_exists_gets_tenure_by_its_values_and_by_a_post_renderer(cluster: &Namespace) {
    let directory = Scratch::new();
    let written = |name: &str| directory.file(name, support::fences::pasted(name));
    let script = ["tenure.yaml", "deployment.yaml", "kustomization.yaml", "post-render"].map(written)[3].clone();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    // The script calls kubectl by its name.
    std::os::unix::fs::symlink(support::programs::path("kubectl"), directory.join("kubectl")).unwrap();
    let path = format!("{}:{}", directory.display(), env::var("PATH").unwrap_or_default());
    let extra =
        ["--set-json", &format!("extraDeploy={}", json!(documents(&support::fences::pasted("tenure.yaml"))))].map(str::to_owned);
    let by_values = ["--values".to_owned(), written("values.yaml")].into_iter().chain(extra).collect();
    let mut seen = Vec::new();

    for flags in [by_values, vec!["--post-renderer".to_owned(), script]] {
        let mut install = cluster.command("helm", &["install", "shop", EXISTING]);
        let said = install.args(flags).env("HELM_CACHE_HOME", "/nonexistent").env("PATH", &path).output().unwrap().success();

        assert_eq!(String::from_utf8_lossy(&said.stderr), "", "a warning");
        let deployment = cluster.get("deployment/shop-billing")["spec"].take();
        cluster.admits(&deployment["template"]);
        cluster.account("shop-billing", "update", "shop-billing");
        let container = &deployment["template"]["spec"]["containers"][0];
        let probes = [&container["livenessProbe"]["httpGet"]["path"], &container["readinessProbe"]["httpGet"]["path"]];
        let parts = [&deployment["replicas"], &container["command"], &container["args"], probes[0], probes[1]];
        seen.push(parts.map(Value::clone));
        helm(cluster, &["uninstall", "shop"], &[]).success();
    }

    let line = json!(["/usr/bin/billing-writer", "--port=8080"]);
    let wanted = [json!(2), json!(["/opt/tenure/tenure", "--"]), line, json!("/livez"), json!("/readyz")];
    assert_eq!(seen, [wanted.clone(), wanted]);
}

/// What each of them makes of a chart by `tenure inject`, as docs/existing-charts.md says, with this command of its container.
struct Injecting {
    place: Scratch,
    command: &'static str,
}

impl Injecting {
    fn new(command: &'static str) -> Self {
        let place = Scratch::new();
        let page = include_str!("../docs/existing-charts.md");
        let plugin = include_str!("../release/plugin.yaml").replace("VERSION", env!("CARGO_PKG_VERSION"));
        for (name, text) in [
            ("plugins/tenure/plugin.yaml", plugin),
            ("kustomization.yaml", support::fences::file(page, "kustomization.yaml").to_owned()),
            (
                "inject.yaml",
                support::fences::file(page, "inject.yaml").replace("path: /usr/local/bin/tenure", &format!("path: {TENURE}")),
            ),
        ] {
            let file = place.join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        }
        std::os::unix::fs::symlink(TENURE, place.join("plugins/tenure/tenure")).unwrap();
        Self { place, command }
    }

    fn install(&self, cluster: &Namespace, helm: &str, renderer: &[&str]) -> Output {
        let mut install = cluster.command(helm, &["install", "shop", EXISTING, "--set-json", self.command]);
        let arguments = ["--image=REGISTRY/tenure:0.1.0", "--lease=shop-billing", "--of=deployment/shop-billing"];
        install.args(renderer).args(arguments.map(|argument| format!("--post-renderer-args={argument}")));
        // Helm 4 makes its cache where it is told to.
        install.env("HELM_CACHE_HOME", self.place.join("cache")).env("HELM_PLUGINS", self.place.join("plugins")).output().unwrap()
    }

    fn by_helm_3(&self, cluster: &Namespace) -> Output {
        self.install(cluster, "helm", &["--post-renderer", TENURE, "--post-renderer-args=inject"])
    }

    fn by_helm_4(&self, cluster: &Namespace) -> Output {
        self.install(cluster, "helm4", &["--post-renderer", "tenure"])
    }

    fn by_kustomize(&self, cluster: &Namespace) -> Output {
        let mut template = cluster.command("helm", &["template", "shop", EXISTING, "--set-json", self.command]);
        let rendered = template.env("HELM_CACHE_HOME", "/nonexistent").output().unwrap().success().stdout;
        fs::write(self.place.join("before.yaml"), rendered).unwrap();
        let mut build = Command::new(support::programs::path("kustomize"));
        build.args(["build", "--enable-alpha-plugins", "--enable-exec"]).arg(&*self.place).output().unwrap()
    }
}

fn helm_3_helm_4_and_kustomize_make_the_same_by_tenure_inject(cluster: &Namespace) {
    let injecting = Injecting::new(r#"command=["/usr/bin/billing-writer", "--port=$(PORT)"]"#);
    let seen = |which: &str| {
        let template = cluster.get("deployment/shop-billing")["spec"]["template"].take();
        cluster.admits(&template);
        cluster.account("shop-billing", "update", "shop-billing");
        cluster.kubectl(&["delete", "deployment/shop-billing", "lease/shop-billing"]).success();
        assert_eq!(
            template["spec"]["containers"][0]["command"],
            json!(["/opt/tenure/tenure", "--", "/usr/bin/billing-writer", "--port=$(PORT)"]),
            "{which}"
        );
        template
    };

    injecting.by_helm_3(cluster).success();
    let by_helm_3 = seen("Helm 3");
    helm(cluster, &["uninstall", "shop"], &[]).success();
    injecting.by_helm_4(cluster).success();
    let by_helm_4 = seen("Helm 4");
    helm(cluster, &["uninstall", "shop"], &[]).success();
    let built = injecting.by_kustomize(cluster).success().stdout;
    cluster.feed(&["apply", "-f", "-"], &String::from_utf8(built).unwrap()).success();

    assert_eq!((&by_helm_3, &by_helm_3), (&by_helm_4, &seen("kustomize")));
}

fn what_tenure_inject_refuses_ends_helm_and_kustomize(cluster: &Namespace) {
    let injecting = Injecting::new("command=[]");
    let why = "Deployment/shop-billing: the container \"billing\" has no command";

    let [by_helm_3, by_helm_4, by_kustomize] =
        [injecting.by_helm_3(cluster), injecting.by_helm_4(cluster), injecting.by_kustomize(cluster)]
            .map(|ended| ended.failure());

    assert!(by_helm_3.contains(why), "{by_helm_3}");
    // Helm 4 does not print what a plugin says.
    assert!(by_helm_4.contains("plugin \"tenure\" exited with error"), "{by_helm_4}");
    assert!(by_kustomize.contains(why), "{by_kustomize}");
    let left = cluster.kubectl(&["get", "deployments", "-o", "name"]).success().stdout;
    assert_eq!(String::from_utf8(left).unwrap(), "");
}

/// The values of docs/images-and-pods.md.
fn the_database_of_the_documentation_is_admitted(cluster: &Namespace) {
    let page = include_str!("../docs/images-and-pods.md");
    let place = Scratch::new();
    let file = place.file("ledger.yaml", support::fences::file(page, "ledger.yaml"));

    let said = helm(cluster, &["install", "billing", CHART], &[&["--values", &file]]).success();

    assert_eq!(String::from_utf8_lossy(&said.stderr), "", "a warning");
    let pod = cluster.get("statefulset/billing-ledger")["spec"]["template"]["spec"].take();
    assert_eq!(pod["containers"][0]["resources"]["limits"], json!({ "memory": "2Gi" }));
    assert_eq!((&pod["terminationGracePeriodSeconds"], &pod["securityContext"]["runAsNonRoot"]), (&json!(67), &json!(true)));
    cluster.get("role/billing-ledger");
}

fn a_stateful_set_has_names_and_volumes_of_its_own_and_is_admitted(cluster: &Namespace) {
    let claim = r#"volumeClaimTemplates=[{"metadata":{"name":"data"},"spec":{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Mi"}}}}]"#;
    let values = ["--set", "kind=StatefulSet,volumeMounts[0].name=data,volumeMounts[0].mountPath=/data", "--set-json", claim];

    let said = install(cluster, &[&LEAST, &values]).success();

    assert_eq!(String::from_utf8_lossy(&said.stderr), "", "a warning");
    assert!(String::from_utf8_lossy(&said.stdout).contains(" statefulset/billing-tenure "), "the notes name what is there");
    let set = cluster.get("statefulset/billing-tenure")["spec"].take();
    assert_eq!((&set["serviceName"], &set["podManagementPolicy"]), (&json!("billing-tenure"), &json!("Parallel")));
    assert_eq!(set["volumeClaimTemplates"][0]["metadata"]["name"], "data");
    let service = cluster.get("service/billing-tenure")["spec"].take();
    assert_eq!((&service["clusterIP"], &service["selector"]), (&json!("None"), &set["selector"]["matchLabels"]));
    let mut template = set["template"].clone();
    let volumes = template["spec"]["volumes"].as_array_mut().unwrap();
    volumes.push(json!({ "name": "data", "persistentVolumeClaim": { "claimName": "data-billing-tenure-0" } }));
    cluster.admits(&template);
}

fn the_rights_are_those_that_the_configuration_needs(cluster: &Namespace) {
    let lease = "config.lease.prefix=Shop_,config.lease.slots=2,config.lease.release=delete,config.service.endpointSlice=leader";
    let notes = install(cluster, &[&LEAST, &["--set", lease, "--set", "config.service.ports[0].port=80"]]).success().stdout;
    assert!(String::from_utf8_lossy(&notes).contains(" shop-billing-tenure\n"), "who leads is asked by another name");
    let kubeconfig = cluster.account("billing-tenure", "delete", "shop-billing-tenure-slot-1").kubeconfig();
    let file = kubeconfig.with_extension("yaml");
    fs::write(&file, cluster.get("configmap/billing-tenure")["data"]["tenure.yaml"].as_str().unwrap()).unwrap();
    let mut check = Command::new(TENURE);
    check
        .arg("check")
        .arg("--config")
        .arg(&file)
        .args(["--namespace", &cluster.name, "--", "echo"])
        .env("POD_IPS", "10.0.0.1")
        .env("KUBECONFIG", &kubeconfig);

    let said = String::from_utf8(check.output().unwrap().success().stdout).unwrap();

    assert!(said.contains("/shop-billing-tenure-slot-1") && !said.contains("not permitted"), "{said}");
    let labels = &cluster.get("lease/shop-billing-tenure-slot-1")["metadata"]["labels"];
    assert_eq!(labels["tenure.dev/slots"], "shop-billing-tenure");
}

fn the_priority_is_for_each_verb_that_the_configuration_needs(cluster: &Namespace) {
    let values = ["--set", "priority=true,config.lease.slots=2,config.lease.release=delete"];
    let verbs = |rules: &Value| -> BTreeSet<String> {
        rules.as_array().unwrap().iter().flat_map(|rule| rule["verbs"].as_array().unwrap()).map(Value::to_string).collect()
    };

    let (role, schema) = (rendered(cluster, "Role", &values), rendered(cluster, "FlowSchema", &values));

    assert_eq!(verbs(&role["rules"]), verbs(&schema["spec"]["rules"][0]["resourceRules"]));
}

fn a_replica_leads_with_the_configuration_and_the_rights_of_the_release(cluster: &Namespace) {
    let more = "config.service.endpointSlice=leader,config.service.ports[0].port=80,config.events.enabled=true";
    install(cluster, &[&LEAST, &["--set", "config.lease.duration=20s,config.lease.creationWait=0s", "--set", more]]).success();
    let account = cluster.account("billing-tenure", "update", "billing-tenure");
    let kubeconfig = account.kubeconfig();
    let file = kubeconfig.with_extension("yaml");
    fs::write(&file, cluster.get("configmap/billing-tenure")["data"]["tenure.yaml"].as_str().unwrap()).unwrap();
    let tenure = |arguments: &[&str], command: &[&str]| {
        let mut tenure = Command::new(TENURE);
        tenure.args(arguments).arg("--config").arg(&file).args(["--namespace", &cluster.name, "--set", "http.listen=null", "--"]);
        tenure.env("POD_IPS", "192.0.2.1").env("KUBECONFIG", &kubeconfig);
        String::from_utf8(tenure.args(command).output().unwrap().success().stdout).unwrap()
    };

    assert_eq!(tenure(&["run"], &["echo", "leads"]), "leads\n");

    let needed = support::grace(&tenure(&["check", "--offline"], &["echo"]));
    let granted = &cluster.get("deployment/billing-tenure")["spec"]["template"]["spec"]["terminationGracePeriodSeconds"];
    assert!(granted.as_u64().unwrap() >= needed, "{granted} s granted, {needed} s needed");
    account.assert_may(&["get", "watch", "update"], "leases.coordination.k8s.io/billing-tenure", true);
    account.assert_may(&["create", "list"], "leases.coordination.k8s.io/billing-tenure", false);
    account.assert_may(&["patch", "delete", "deletecollection"], "leases.coordination.k8s.io/billing-tenure", false);
    account.assert_may(&["get", "update"], "endpointslices.discovery.k8s.io/leader", true);
    account.assert_may(&["update"], "endpointslices.discovery.k8s.io/other", false);
    account.assert_may(&["create"], "events.events.k8s.io", true);
}
