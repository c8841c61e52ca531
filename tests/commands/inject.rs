//! `tenure inject`: what it makes of manifests, offline. That the policy of `deploy/inject` makes the same is tested on a real server.

use std::slice::from_ref;

use serde_json::{Value, json};
use support::Scratch;

use crate::world::{Ended, tenure};

/// A Deployment whose pods have the label, this metadata and this container.
fn deployment(metadata: &Value, container: &Value) -> Value {
    let mut container = container.clone();
    container["name"] = json!("billing");
    let mut template = json!({ "metadata": { "labels": { "app": "billing", "tenure.dev/lease": "billing" } } });
    for (key, value) in metadata.as_object().unwrap() {
        template["metadata"][key] = value.clone();
    }
    template["spec"] = json!({ "containers": [container, { "name": "other", "image": "other" }] });
    json!({ "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "shop" }, "spec": { "template": template } })
}

fn ours() -> Value {
    deployment(&json!({}), &json!({ "command": ["/billing"] }))
}

fn inject(objects: &[Value], arguments: &[&str]) -> Ended {
    let place = Scratch::new();
    let text: Vec<_> = objects.iter().map(Value::to_string).collect();
    let file = place.file("all.yaml", text.join("\n---\n"));
    tenure(&[&["inject", "-f", &file], arguments].concat(), &[])
}

#[track_caller]
fn injected(objects: &[Value], arguments: &[&str]) -> Vec<Value> {
    let ended = inject(objects, arguments);
    ended.says(0, &[]);
    serde_saphyr::from_multiple(&ended.out).unwrap()
}

/// A container's own variables, by name.
fn kinds(objects: &[Value]) -> Vec<&str> {
    objects.iter().map(|object| object["kind"].as_str().unwrap()).collect()
}

fn variable(container: &Value, name: &str) -> Value {
    let all = container["env"].as_array().unwrap();
    all.iter().find(|variable| variable["name"] == name).map_or(Value::Null, |variable| variable["value"].clone())
}

#[track_caller]
fn is_refused(object: Value, why: &str) {
    let ended = inject(&[object], &[]);
    ended.says(78, &["Deployment/shop: ", why]);
    assert_eq!(ended.out, "", "nothing is printed");
}

#[test]
fn a_program_gets_all_parts_and_keeps_its_own_variables_and_its_grace() {
    let mut before = ours();
    let container = &mut before["spec"]["template"]["spec"]["containers"][0];
    container["args"] = json!(["--port", "$(PORT)"]);
    container["env"] = json!([
        { "name": "PORT", "value": "1" }, { "name": "POD_NAME", "value": "mine" }, { "name": "TENURE_HTTP__LISTEN", "value": "[::]:9000" }
    ]);
    before["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = json!(50);
    before["spec"]["template"]["spec"]["initContainers"] = json!([{ "name": "first", "image": "first" }]);

    let all = injected(&[before], &["--image", "registry/tenure:1", "--env", "TENURE_LEASE__DURATION=60s"]);

    let pod = &all[0]["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    assert_eq!(container["command"], json!(["/opt/tenure/tenure", "--", "/billing"]));
    assert_eq!(container["args"], json!(["--port", "$(PORT)"]), "who merges this must not have them twice");
    assert_eq!(container["livenessProbe"]["httpGet"], json!({ "path": "/livez", "port": 9000, "scheme": "HTTP" }));
    assert_eq!(container["readinessProbe"]["httpGet"], json!({ "path": "/readyz", "port": 9000, "scheme": "HTTP" }));
    for (name, value) in [
        ("POD_NAME", "mine"),
        ("TENURE_LEASE__NAME", "billing"),
        ("TENURE_LEASE__WITNESS", "/run/tenure/witness"),
        ("TENURE_HTTP__LISTEN", "[::]:9000"),
        ("TENURE_LEASE__DURATION", "60s"),
        ("TENURE_WORKLOAD__STOP__GRACE", "50s"),
    ] {
        assert_eq!(variable(container, name), value, "{name}");
    }
    let names: Vec<_> = container["env"].as_array().unwrap().iter().map(|variable| variable["name"].as_str().unwrap()).collect();
    assert_eq!(names.iter().filter(|name| **name == "POD_NAME").count(), 1, "{names:?}");
    assert_eq!(names[..3], ["PORT", "POD_NAME", "TENURE_HTTP__LISTEN"], "what others may name comes first");
    // As `tenure check` computes it; until lease.duration is over init itself replaces a hung elector.
    assert_eq!(pod["terminationGracePeriodSeconds"], 57);
    assert_eq!(container["livenessProbe"]["failureThreshold"], 14);
    let first = pod["initContainers"].as_array().unwrap().iter().map(|one| (&one["name"], &one["image"])).collect::<Vec<_>>();
    let ours = json!("registry/tenure:1");
    assert_eq!(first, [(&json!("tenure"), &ours), (&json!("tenure-witness"), &ours), (&json!("first"), &json!("first"))]);
    assert_eq!(pod["containers"][1], json!({ "name": "other", "image": "other" }));
}

#[test]
fn a_command_line_in_the_annotation_takes_the_args_away() {
    let annotation = json!({ "annotations": { "tenure.dev/command": "[\"/billing\"]" } });
    let before = deployment(&annotation, &json!({ "args": ["--old"] }));

    let all = injected(from_ref(&before), &[]);

    let container = &all[0]["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(container["command"], json!(["/opt/tenure/tenure", "--"]));
    assert_eq!(container["args"], json!([]), "who merges this must not keep the old ones");
    assert_eq!(injected(&all, &["--uninject"]), [before]);
}

#[test]
fn what_only_the_pod_knows_is_refused_for_the_rights_and_what_tenure_refuses_in_its_configuration() {
    let (here, expanded) = (json!({ "fieldPath": "metadata.namespace" }), || json!({ "value": "$(A)" }));
    let elsewhere = || json!({ "valueFrom": { "configMapKeyRef": { "name": "a", "key": "b" } } });
    let (no_rights, lease) = (["--access=false"], "TENURE_LEASE__NAME");
    let of = |key: &str, mut unknown: Value| {
        unknown["name"] = json!(key);
        let ports = json!({ "name": "TENURE_SERVICE__PORTS", "value": "[{port: 80}]" });
        let env = if key.starts_with("TENURE_SERVICE__") { vec![unknown, ports] } else { vec![unknown] };
        deployment(&json!({}), &json!({ "command": ["/billing"], "env": env }))
    };
    for (key, unknown) in [
        (lease, expanded()),
        (lease, json!({ "valueFrom": { "fieldRef": here } })),
        ("TENURE_LEASE__PREFIX", expanded()),
        ("TENURE_LEASE__NAMESPACE", expanded()),
        ("TENURE_LEASE__NAMESPACE", elsewhere()),
        ("TENURE_LEASE__SLOTS", elsewhere()),
        ("TENURE_SERVICE__ENDPOINT_SLICE", elsewhere()),
    ] {
        is_refused(
            of(key, unknown.clone()),
            &format!("{key}: its value is known only in the pod, and the rights need it: write it out"),
        );
        injected(&[of(key, unknown)], &no_rights);
    }
    injected(&[of("TENURE_LEASE__NAMESPACE", json!({ "valueFrom": { "fieldRef": here } }))], &[]);
    is_refused(of("TENURE_LEASE__RELEASE", json!({ "value": "keep" })), "with lease.release: keep no Lease is given back");
    let mut job = of(lease, expanded());
    (job["apiVersion"], job["kind"]) = (json!("batch/v1"), json!("Job"));
    injected(&[job], &[]);
}

#[test]
fn the_times_of_the_pod_are_those_that_its_configuration_needs() {
    let reference = json!({ "configMapKeyRef": { "name": "a", "key": "b" } });
    let own = |name: &str, value: &str| json!([{ "name": name, "value": value }]);
    for (env, flags, grace, failures) in [
        (json!([]), &[][..], 37, 5),
        (json!([{ "name": "TENURE_LEASE__DURATION", "valueFrom": reference }]), &[], 37, 5),
        (json!([]), &["TENURE_LEASE__DURATION=60s", "TENURE_LEASE__ATTEMPT_TIMEOUT=5s"], 43, 14),
        (json!([]), &["TENURE_LEASE__RELEASE=delete"], 43, 5),
        (own("TENURE_WORKLOAD__STOP__GRACE", "2m"), &[], 127, 5),
        (own("TENURE_WORKLOAD__STOP__GRACE", "5s"), &[], 37, 5),
    ] {
        let flags: Vec<_> = flags.iter().flat_map(|variable| ["--env", variable]).collect();

        let all = injected(&[deployment(&json!({}), &json!({ "command": ["/billing"], "env": env }))], &flags);

        let pod = &all[0]["spec"]["template"]["spec"];
        assert_eq!(pod["terminationGracePeriodSeconds"], grace, "{env} {flags:?}");
        assert_eq!(pod["containers"][0]["livenessProbe"]["failureThreshold"], failures, "{env} {flags:?}");
    }
}

#[test]
fn what_names_a_lease_or_leaves_it_out_is_no_variable_for_all_workloads() {
    for key in ["TENURE_LEASE__NAME", "TENURE_LEASE__PREFIX", "TENURE_LEASE__NAMESPACE", "TENURE_CONFIG", "KUBECONFIG"] {
        let flag = format!("--env={key}=x");
        inject(&[ours()], &[&flag]).says(78, &[&format!("{key} is of one workload: set it in the container")]);
    }
    let without = "--env=TENURE_LEASE__ENABLED=false";
    inject(&[ours()], &[without]).says(78, &["TENURE_LEASE__ENABLED: without a Lease each pod"]);
    let own = json!([{ "name": "TENURE_LEASE__ENABLED", "value": "true" }]);
    assert_eq!(inject(&[deployment(&json!({}), &json!({ "command": ["/billing"], "env": own }))], &[without]).code, Some(0));
}

#[test]
fn an_unnamed_container_of_several_is_said() {
    let said = |metadata: Value| inject(&[deployment(&metadata, &json!({ "command": ["/billing"] }))], &[]).err;
    let mut alone = ours();
    alone["spec"]["template"]["spec"]["containers"].as_array_mut().unwrap().pop();
    let sentence = "tenure: Deployment/shop: the first container, \"billing\", is taken for the program: the annotation tenure.dev/container names another";

    assert_eq!(said(json!({})).trim(), sentence);
    for by in ["tenure.dev/container", "kubectl.kubernetes.io/default-container"] {
        assert_eq!(said(json!({ "annotations": { by: "billing" } })), "", "{by}");
    }
    assert_eq!(inject(&[alone], &[]).err, "");
}

#[test]
fn what_is_no_workload_passes_unchanged_and_in_order() {
    let map = |name: &str| json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name }, "data": { "a": "yes", "b": "0644" } });
    let mut unlabelled = deployment(&json!({ "labels": {} }), &json!({}));
    unlabelled["metadata"]["name"] = json!("unlabelled");
    let objects =
        [map("z"), unlabelled.clone(), json!({ "apiVersion": "v1", "kind": "List", "items": [ours(), map("a")] }), map("b")];

    let all = injected(&objects, &["--access=false"]);

    assert_eq!([&all[0], &all[1], &all[3], &all[4]], [&map("z"), &unlabelled, &map("a"), &map("b")]);
    assert_eq!((all.len(), &all[2]["metadata"]["name"]), (5, &json!("shop")));
    let again: Vec<Value> = serde_saphyr::from_multiple(&inject(&all, &["--access=false"]).out).unwrap();
    assert_eq!(again, all, "what is wrapped already is left alone");
}

#[test]
fn a_label_where_tenure_does_not_look_is_refused() {
    let of = |version: &str, kind: &str| {
        let mut object = ours();
        (object["apiVersion"], object["kind"]) = (json!(version), json!(kind));
        object
    };
    for [version, kind] in
        [["argoproj.io/v1alpha1", "Rollout"], ["apps.openshift.io/v1", "DeploymentConfig"], ["extensions/v1beta1", "Deployment"]]
    {
        let sentence =
            format!("{kind}/shop: its pods have the label tenure.dev/lease, and this command does not wrap those of {version}");
        let remedy = "remove the label, or leave it out of these manifests, and let deploy/inject wrap its pods";
        inject(&[of(version, kind)], &[]).says(78, &[&sentence, remedy]);
    }
    let label = json!({ "labels": { "tenure.dev/lease": "billing" } });
    let mut misplaced = deployment(&json!({ "labels": { "app": "billing" } }), &json!({ "command": ["/billing"] }));
    misplaced["metadata"]["labels"] = label["labels"].clone();
    is_refused(
        misplaced.clone(),
        "the label tenure.dev/lease is not in the metadata of its template: write it there, or remove it",
    );
    let mut cron = json!({ "apiVersion": "batch/v1", "kind": "CronJob", "metadata": { "name": "shop" } });
    misplaced["metadata"] = label.clone();
    cron["spec"]["jobTemplate"] = misplaced;
    inject(&[cron], &[]).says(78, &["CronJob/shop: the label tenure.dev/lease is not in the metadata of its template"]);

    let mut both = ours();
    both["metadata"]["labels"] = label["labels"].clone();
    let config = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": label });
    let controller = of("v1", "ReplicationController");
    let mut claims = deployment(&json!({ "labels": {} }), &json!({}));
    let claim = json!({ "metadata": label, "spec": {} });
    claims["spec"]["template"]["spec"]["volumes"] = json!([{ "name": "data", "ephemeral": { "volumeClaimTemplate": claim } }]);
    let all = injected(&[config, claims.clone(), both, controller], &["--access=false"]);
    assert_eq!(all[1], claims, "a claim is no pod");
    for wrapped in &all[2..] {
        assert_eq!(wrapped["spec"]["template"]["spec"]["initContainers"][0]["name"], "tenure", "{wrapped}");
    }
}

#[test]
fn that_nothing_was_asked_for_is_said() {
    let map = |name: String| json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name } });
    let sentence = "nothing is wrapped: no pod of these manifests has the label tenure.dev/lease";

    inject(&[map("a".into())], &[]).says(0, &[sentence]);
    let all = injected(&[ours()], &[]);
    assert!(!inject(&all, &[]).err.contains(sentence), "it is wrapped already");
    let many: Vec<_> = (0..1500).map(|at| map(at.to_string())).collect();
    inject(&many, &[]).says(0, &[sentence]);
}

#[test]
fn files_are_read_in_their_order_and_one_that_is_missing_is_named() {
    let place = Scratch::new();
    let map = |name: &str| json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name } });
    let [first, second] = ["z", "a"].map(|name| place.file(&format!("{name}.yaml"), map(name).to_string()));

    let both = tenure(&["inject", "-f", &first, "-f", &second], &[]);
    let missing = tenure(&["inject", "-f", &first, "-f", "missing.yaml"], &[]);

    assert_eq!(serde_saphyr::from_multiple::<Value>(&both.out).unwrap(), [map("z"), map("a")]);
    missing.says(78, &["missing.yaml: No such file"]);
    assert_eq!(missing.out, "", "nothing is printed");
}

#[test]
fn a_workload_without_the_label_is_wrapped_if_it_is_named() {
    let bare = deployment(&json!({ "labels": {} }), &json!({ "command": ["/billing"] }));

    let all = injected(from_ref(&bare), &["--lease", "other", "--of", "deployment/shop", "--namespace", "shops"]);

    assert_eq!(all[0]["spec"]["template"]["metadata"]["labels"], json!({ "tenure.dev/lease": "other" }));
    let kinds =
        all[1..].iter().map(|object| (object["kind"].as_str().unwrap(), object["metadata"]["namespace"].as_str().unwrap()));
    assert_eq!(kinds.collect::<Vec<_>>(), [("Lease", "shops"), ("Role", "shops"), ("RoleBinding", "shops")]);
    assert_eq!(all[2]["rules"][0]["resourceNames"], json!(["other"]));
    assert_eq!(all[3]["subjects"], json!([{ "kind": "ServiceAccount", "name": "default" }]));
    let service = json!({ "apiVersion": "v1", "kind": "Service", "metadata": { "name": "shop" } });
    for unknown in ["deployment/shops", "service/shop"] {
        inject(&[bare.clone(), service.clone()], &["--lease", "other", "--of", unknown])
            .says(78, &[&format!("{unknown} is no workload of this stream")]);
    }
}

#[test]
fn workloads_of_one_lease_share_the_rights() {
    let mut second = ours();
    second["metadata"]["name"] = json!("second");
    second["spec"]["template"]["spec"]["serviceAccountName"] = json!("second");

    let all = injected(&[ours(), second], &[]);

    assert_eq!(kinds(&all), ["Deployment", "Deployment", "Lease", "Role", "RoleBinding"]);
    let subject = |name| json!({ "kind": "ServiceAccount", "name": name });
    assert_eq!(all[4]["subjects"], json!([subject("default"), subject("second")]));
}

#[test]
fn what_is_in_the_stream_already_is_not_added_again() {
    let lease = |namespace| json!({ "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": { "name": "billing", "namespace": namespace } });
    let objects = [ours(), lease("shops"), lease("other")];

    let all = injected(&objects, &["--namespace", "shops"]);

    assert_eq!(kinds(&all), ["Deployment", "Lease", "Lease", "Role", "RoleBinding"]);
    assert_eq!(all[1], lease("shops"));
    inject(&objects, &["--namespace", "shops"]).says(0, &["Lease/billing is in the stream already: it is left as it is"]);
}

#[test]
fn the_rights_are_those_that_the_configuration_needs() {
    let configured = |own: &[(&str, &str)]| {
        let env: Vec<_> = own.iter().map(|(key, value)| json!({ "name": format!("TENURE_{key}"), "value": value })).collect();
        deployment(&json!({}), &json!({ "command": ["/billing"], "env": env }))
    };
    let rules = |own: &[(&str, &str)]| {
        let all = injected(&[configured(own)], &[]);
        let role = all.iter().find(|object| object["kind"] == "Role").unwrap();
        let words = |rule: &Value, key: &str| {
            let all = rule[key].as_array().into_iter().flatten();
            all.map(|word| word.as_str().unwrap().to_owned()).collect::<Vec<_>>().join(" ")
        };
        let rules = role["rules"].as_array().unwrap().iter();
        rules.map(|rule| ["resources", "resourceNames", "verbs"].map(|key| words(rule, key)).join("; ")).collect::<Vec<_>>()
    };
    assert_eq!(rules(&[]), ["leases; billing; get update watch"]);
    assert_eq!(rules(&[("LEASE__PREFIX", "shop-")]), ["leases; shop-billing; get update watch"]);
    assert_eq!(rules(&[("LEASE__RELEASE", "delete")]), ["leases; billing; delete get update watch", "leases; ; create"]);
    let [slots, slice] = [("LEASE__SLOTS", "2"), ("SERVICE__ENDPOINT_SLICE", "led")];
    let most = [slots, slice, ("SERVICE__PORTS", "[{port: 80}]"), ("EVENTS__ENABLED", "true")];
    let names = "billing billing-slot-1";
    assert_eq!(
        rules(&most),
        [
            &format!("leases; {names}; get update"),
            "leases; ; list watch",
            "endpointslices; led led-slot-1; get update",
            "events; ; create",
        ]
    );

    let all = injected(&[configured(&most)], &[]);
    let leases: Vec<_> = all.iter().filter(|object| object["kind"] == "Lease").map(|object| &object["metadata"]).collect();
    assert_eq!(leases.iter().map(|lease| lease["name"].as_str().unwrap()).collect::<Vec<_>>().join(" "), names);
    assert!(leases.iter().all(|lease| lease["labels"]["tenure.dev/slots"] == "billing"), "{leases:?}");
}

#[test]
fn a_lease_in_another_namespace_has_its_rights_there() {
    let env = json!([{ "name": "TENURE_LEASE__NAMESPACE", "value": "leases" }]);
    let there = deployment(&json!({}), &json!({ "command": ["/billing"], "env": env }));

    let all = injected(from_ref(&there), &["--namespace", "shops"]);

    let namespaces: Vec<_> = all[1..].iter().map(|object| object["metadata"]["namespace"].as_str().unwrap()).collect();
    assert_eq!(namespaces, ["leases"; 3]);
    assert_eq!(all[3]["subjects"], json!([{ "kind": "ServiceAccount", "name": "default", "namespace": "shops" }]));
    is_refused(there.clone(), "the Lease is in the namespace leases, and that of the pods is not known: write --namespace");
    let service = json!({ "apiVersion": "v1", "kind": "Service", "metadata": { "name": "shop" }, "spec": { "selector": { "app": "billing" }, "ports": [{ "port": 80 }] } });
    inject(&[there, service], &["--namespace", "shops", "--service"])
        .says(78, &["the Lease is in the namespace leases, and the EndpointSlice of Service/shop could not be written there"]);
}

#[test]
fn two_namespaces_do_not_share_rights() {
    let mut second = ours();
    second["metadata"]["namespace"] = json!("second");
    second["spec"]["template"]["spec"]["serviceAccount"] = json!("by-its-old-key");

    let all = injected(&[ours(), second], &[]);

    let bindings = all.iter().filter(|object| object["kind"] == "RoleBinding");
    let subjects = bindings.map(|binding| (&binding["metadata"]["namespace"], &binding["subjects"][0]["name"]));
    assert_eq!(subjects.collect::<Vec<_>>(), [(&Value::Null, &json!("default")), (&json!("second"), &json!("by-its-old-key"))]);
}

#[test]
fn a_list_of_one_kind_is_read_like_any_list() {
    let mut item = ours();
    item.as_object_mut().unwrap().retain(|key, _| key == "metadata" || key == "spec");
    let list = json!({ "apiVersion": "apps/v1", "kind": "DeploymentList", "items": [item] });
    let nested = json!({ "apiVersion": "v1", "kind": "List", "items": [list] });

    let all = injected(&[nested, Value::Null], &["--access=false"]);

    assert_eq!(all, injected(&[ours()], &["--access=false"]));
}

#[test]
fn null_and_zero_are_what_is_not_written() {
    let probe =
        json!({ "httpGet": { "port": 80, "path": null, "host": null, "httpHeaders": null }, "exec": null, "periodSeconds": 0 });
    let nulls =
        json!({ "args": null, "env": null, "ports": null, "volumeMounts": null, "startupProbe": null, "livenessProbe": probe });
    let mut full = ours();
    let pod = &mut full["spec"]["template"];
    pod["metadata"]["annotations"] = Value::Null;
    let keys = ["volumes", "initContainers", "nodeSelector", "securityContext", "terminationGracePeriodSeconds", "hostPID"];
    for key in keys {
        pod["spec"][key] = Value::Null;
    }
    pod["spec"]["containers"][0].as_object_mut().unwrap().extend(nulls.as_object().unwrap().clone());
    let plain = deployment(&json!({}), &json!({ "command": ["/billing"], "livenessProbe": { "httpGet": { "port": 80 } } }));

    let [of_nulls, of_nothing] = [full, plain].map(|object| injected(&[object], &["--access=false"]).swap_remove(0));

    let spec = |object: &Value| {
        let mut pod = object["spec"]["template"]["spec"].clone();
        for key in ["args", "ports"] {
            pod["containers"][0][key].take();
        }
        keys.map(|key| pod[key].take()).to_vec().into_iter().chain([pod["containers"][0].take()]).collect::<Vec<_>>()
    };
    assert_eq!(spec(&of_nulls), spec(&of_nothing));
}

#[test]
fn a_job_runs_under_a_lock_without_probes() {
    let mut job = deployment(&json!({}), &json!({ "command": ["/import"], "livenessProbe": { "tcpSocket": { "port": 1 } } }));
    (job["apiVersion"], job["kind"]) = (json!("batch/v1"), json!("Job"));
    let cron = json!({ "apiVersion": "batch/v1", "kind": "CronJob", "metadata": { "name": "cron" }, "spec": { "jobTemplate": { "spec": job["spec"] } } });

    let all = injected(&[job.clone(), cron], &[]);

    for template in [&all[0]["spec"]["template"], &all[1]["spec"]["jobTemplate"]["spec"]["template"]] {
        let container = &template["spec"]["containers"][0];
        assert_eq!(container["command"], json!(["/opt/tenure/tenure", "lock", "billing", "--", "/import"]));
        assert_eq!((&container["livenessProbe"], &container["readinessProbe"]), (&Value::Null, &Value::Null));
        assert_eq!(variable(container, "TENURE_HTTP__LISTEN"), Value::Null);
        assert_eq!(variable(container, "TENURE_LEASE__WITNESS"), "/run/tenure/witness");
    }
    assert_eq!((&all[2]["kind"], &all[2]["metadata"]["name"]), (&json!("Lease"), &json!("lock-billing")));

    // The lock's own name for it.
    job["spec"]["template"]["metadata"]["labels"]["tenure.dev/lease"] = json!("a--b");
    let renamed = injected(&[job], &[]);
    assert_eq!((&renamed[1]["kind"], &renamed[1]["metadata"]["name"]), (&json!("Lease"), &json!("lock-a-b")));
}

#[test]
fn what_was_put_in_can_be_taken_out_again() {
    let annotations = json!({ "annotations": { "tenure.dev/container": "billing" } });
    let probe = json!({ "httpGet": { "path": "/ready", "port": "http" }, "periodSeconds": 3 });
    let container = json!({
        "command": ["/billing"], "args": ["\n"], "ports": [{ "name": "http", "containerPort": 80 }], "startupProbe": probe,
        "env": [{ "name": "POD_IP", "value": "x" }], "volumeMounts": [{ "name": "data", "mountPath": "/data" }, { "name": "data", "mountPath": "/more" }],
    });
    let mut full = deployment(&annotations, &container);
    full["spec"]["template"]["spec"]["volumes"] = json!([{ "name": "data", "emptyDir": {} }]);
    full["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = json!(1);
    full["metadata"]["annotations"] = json!({ "mine": "x" });
    let mut bare = deployment(&json!({ "labels": { "app": "billing" } }), &json!({ "command": ["/billing"] }));
    bare["metadata"]["name"] = json!("bare");
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": { "name": "bare" },
        "spec": { "selector": { "app": "billing" }, "ports": [{ "port": 80, "targetPort": 8080 }] },
    });
    full["spec"]["template"]["metadata"]["labels"]["app"] = json!("full");
    let objects = [full, bare, service];

    let there = injected(&objects, &["--lease", "bare", "--of", "deployment/bare", "--service"]);

    assert_eq!(injected(&there, &["--uninject"]), objects);
}

#[test]
fn a_public_chart_is_given_back_as_it_was() {
    let chart: Vec<Value> = serde_saphyr::from_multiple(include_str!("../deploy/podinfo.yaml")).unwrap();

    let there = injected(&chart, &["--lease", "podinfo", "--of", "deployment/shop-podinfo", "--service"]);

    assert!(there.len() > chart.len(), "the Lease and its rights are there: {there:?}");
    assert_eq!(injected(&there, &["--uninject"]), chart);
}

#[test]
fn what_somebody_has_changed_since_stays_and_a_note_that_cannot_be_read_is_refused() {
    let mut there = injected(&[ours()], &[]);
    there[0]["spec"]["template"]["spec"]["containers"][0]["image"] = json!("billing:2");
    there[0]["spec"]["template"]["spec"]["volumes"].as_array_mut().unwrap().push(json!({ "name": "new", "emptyDir": {} }));
    there[0]["metadata"]["annotations"]["new"] = json!("x");
    // As an API server completes it.
    there[0]["spec"]["template"]["spec"]["containers"][0]["livenessProbe"]["successThreshold"] = json!(1);

    let back = injected(&there, &["--uninject"]);

    let mut wanted = ours();
    wanted["spec"]["template"]["spec"]["containers"][0]["image"] = json!("billing:2");
    wanted["spec"]["template"]["spec"]["volumes"] = json!([{ "name": "new", "emptyDir": {} }]);
    wanted["metadata"]["annotations"] = json!({ "new": "x" });
    assert_eq!(back, [wanted]);
    for note in ["{", "{}", "[1]"] {
        there[0]["metadata"]["annotations"]["tenure.dev/before"] = json!(note);
        let ended = inject(&there, &["--uninject"]);
        ended.says(78, &["Deployment/shop: the annotation tenure.dev/before is not what tenure inject wrote"]);
        assert_eq!(ended.out, "", "the Deployment would be missing");
    }
}

#[test]
fn what_somebody_has_added_to_a_template_that_had_no_metadata_stays() {
    let mut bare = ours();
    bare["spec"]["template"].as_object_mut().unwrap().remove("metadata");
    let mut there = injected(&[bare.clone()], &["--lease", "shop", "--of", "deployment/shop"]);
    let metadata = &mut there[0]["spec"]["template"]["metadata"];
    (metadata["annotations"], metadata["labels"]["team"]) = (json!({ "someone": "else" }), json!("a"));

    let back = injected(&there, &["--uninject"]);

    bare["spec"]["template"]["metadata"] = json!({ "annotations": { "someone": "else" }, "labels": { "team": "a" } });
    assert_eq!(back, [bare]);
}

#[test]
fn comments_are_lost_which_is_said_once() {
    let place = Scratch::new();
    let named = deployment(&json!({ "annotations": { "tenure.dev/container": "billing" } }), &json!({ "command": ["/billing"] }));
    let text = |comment: &str| format!("{comment}\n{named}\n---\n{comment}\n{}", json!({ "kind": "Other" }));
    let said = |comment: &str| {
        let file = place.file("all.yaml", text(comment));
        let ended = tenure(&["inject", "-f", &file], &[]);
        ended.says(0, &[]);
        ended.err
    };

    assert_eq!(said("  # mine").matches("the comments of the manifests are left out").count(), 1);
    assert_eq!(said("# Source: shop/templates/deployment.yaml"), "");
}

/// kubectl and Helm take them for booleans, also in an object that is only passed on.
#[test]
fn a_text_that_others_read_as_a_boolean_is_refused_wherever_it_is() {
    for text in ["n", "Y", "off"] {
        let place = Scratch::new();
        let file = place.file("all.yaml", format!("kind: HelmRelease\nspec: {{values: {{enabled: {text}}}}}\n"));
        let sentence = format!("line 2: an unquoted {text} is ambiguous: quote it, or write true or false");
        tenure(&["inject", "-f", &file], &[]).says(78, &[&sentence]);
    }
}

#[test]
fn what_makes_pods_of_the_template_before_is_said() {
    let paused = json!({ "paused": true });
    let partition = |ordinal: u8| json!({ "updateStrategy": { "rollingUpdate": { "partition": ordinal } } });
    for (kind, key, is_said) in
        [("Deployment", paused, true), ("StatefulSet", partition(1), true), ("StatefulSet", partition(0), false)]
    {
        let mut object = ours();
        object["kind"] = json!(kind);
        object["spec"].as_object_mut().unwrap().extend(key.as_object().unwrap().clone());
        let ended = inject(&[object], &[]);
        ended.says(0, &[]);
        assert_eq!(ended.err.contains("makes pods of the template before"), is_said, "{kind} {key}: {}", ended.err);
    }
}

#[test]
fn a_service_is_named_and_on_request_reaches_the_leader_only() {
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": { "name": "shop" },
        "spec": { "selector": { "app": "billing" }, "ports": [{ "name": "http", "port": 80, "targetPort": "web" }] },
    });
    let ours = deployment(&json!({}), &json!({ "command": ["/billing"], "ports": [{ "name": "web", "containerPort": 8080 }] }));
    inject(&[ours.clone(), service.clone()], &[]).says(0, &["Service/shop sends traffic to the standbys of Deployment/shop too"]);

    let all = injected(&[ours.clone(), service.clone()], &["--service"]);

    let container = &all[0]["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(variable(container, "TENURE_SERVICE__ENDPOINT_SLICE"), "shop-leader");
    assert_eq!(variable(container, "TENURE_SERVICE__PORTS"), r#"[{"name":"http","port":8080,"protocol":"TCP"}]"#);
    assert_eq!(all[1]["spec"]["selector"], Value::Null);
    let slice = all.iter().find(|object| object["kind"] == "EndpointSlice").unwrap();
    assert_eq!(slice["metadata"]["labels"]["kubernetes.io/service-name"], "shop");
    assert_eq!(slice["addressType"], "IPv4");
    let addresses = json!({ "name": "POD_IPS", "valueFrom": { "fieldRef": { "fieldPath": "status.podIPs" } } });
    assert!(container["env"].as_array().unwrap().contains(&addresses), "the address of the other family is in no other");
    let mut other = service.clone();
    other["spec"]["ipFamilies"] = json!(["IPv6", "IPv4"]);
    let of_other = injected(&[ours.clone(), other], &["--service"]);
    assert!(of_other.iter().any(|object| object["addressType"] == "IPv6"), "{of_other:?}");
    // Left there, they are copied to an EndpointSlice with the standbys.
    inject(&[ours.clone(), service.clone()], &["--service"])
        .says(0, &["-l kubernetes.io/service-name=shop,", "; kubectl delete endpoints shop"]);
    let role = all.iter().find(|object| object["kind"] == "Role").unwrap();
    assert_eq!(
        (&role["rules"][1]["resourceNames"], &role["rules"][1]["verbs"]),
        (&json!(["shop-leader"]), &json!(["get", "update"]))
    );
    let mut second = service.clone();
    second["metadata"]["name"] = json!("second");
    inject(&[ours.clone(), service.clone(), second.clone()], &["--service"]).says(78, &["several Services select its pods"]);
    second["spec"]["clusterIP"] = json!("None");
    let ended = inject(&[ours.clone(), second.clone(), service.clone()], &["--service"]);
    ended.says(0, &["Service/second sends traffic to the standbys", "Service/shop has no selector now"]);
    for (key, value) in [("spec", json!({ "selector": {} })), ("spec", json!({ "selector": { "app": "other" } }))] {
        second[key] = value;
        injected(&[ours.clone(), second.clone(), service.clone()], &["--service"]);
    }
    let mut job = ours.clone();
    (job["apiVersion"], job["kind"]) = (json!("batch/v1"), json!("Job"));
    assert_eq!(injected(&[job, service.clone()], &["--service"])[1], service, "a lock publishes no address");
    let mut elsewhere = service.clone();
    elsewhere["metadata"]["namespace"] = json!("elsewhere");
    let all = injected(&[ours, service, elsewhere.clone()], &["--service"]);
    assert_eq!(all[2], elsewhere, "it selects other pods");
}

#[test]
fn a_list_of_resources_is_answered_with_one() {
    let list = json!({ "apiVersion": "config.kubernetes.io/v1", "kind": "ResourceList", "functionConfig": { "a": 1 }, "items": [ours()] });

    let all = injected(&[list], &[]);

    let [list] = &*all else { panic!("{all:?}") };
    assert_eq!((&list["kind"], &list["functionConfig"]), (&json!("ResourceList"), &json!({ "a": 1 })));
    assert_eq!(kinds(list["items"].as_array().unwrap()), ["Deployment", "Lease", "Role", "RoleBinding"]);
    let none = json!({ "apiVersion": "config.kubernetes.io/v1", "kind": "ResourceList" });
    assert_eq!(injected(&[none], &[])[0]["items"], json!([]));
}

#[test]
fn what_is_printed_is_read_alike_by_all_readers_of_yaml() {
    let texts = json!({ "no": "yes", "0x1": "0644", "a: b": "- c", "empty": "", "lines": "a\n b\n", "date": "2026-01-01", "list": [[], {}, [1]] });
    let map = json!({ "apiVersion": "v1", "kind": "ConfigMap", "data": texts });

    let ended = inject(from_ref(&map), &[]);

    assert_eq!(serde_saphyr::from_multiple::<Value>(&ended.out).unwrap(), from_ref(&map));
    for quoted in ["\"no\": \"yes\"", "\"0x1\": \"0644\"", "date: \"2026-01-01\""] {
        assert!(ended.out.contains(quoted), "{quoted} in {}", ended.out);
    }
    let json: Value = serde_json::from_str(&inject(from_ref(&map), &["-o", "json"]).out).unwrap();
    assert_eq!(json["items"], json!([map]));
}

#[test]
fn a_pod_of_an_account_without_a_token_is_refused_unless_it_asks_for_one() {
    let mut ours = ours();
    let account = |name: &str, namespace: &str| json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": name, "namespace": namespace }, "automountServiceAccountToken": false });
    let with = |ours: &Value, account| inject(&[account, ours.clone()], &["--namespace", "shops"]);
    let why =
        "ServiceAccount/billing: with automountServiceAccountToken: false tenure has no token for its Lease: set it to true";
    with(&ours, account("default", "shops"))
        .says(78, &["Deployment/shop: ServiceAccount/default: with automountServiceAccountToken"]);
    ours["spec"]["template"]["spec"]["serviceAccountName"] = json!("billing");

    with(&ours, account("billing", "shops")).says(78, &[why]);
    for other in [account("default", "shops"), account("billing", "other")] {
        with(&ours, other).says(0, &[]);
    }
    ours["spec"]["template"]["spec"]["automountServiceAccountToken"] = json!(true);
    with(&ours, account("billing", "shops")).says(0, &[]);
}

#[test]
fn a_program_may_name_its_own_lease_and_a_container_that_is_no_object_is_refused() {
    let mut named = ours();
    named["spec"]["template"]["spec"]["containers"][0]["env"] = json!([{ "name": "TENURE_LEASE__NAME", "value": "billing" }]);
    injected(&[named], &[]);
    let mut garbage = ours();
    garbage["spec"]["template"]["spec"]["containers"] = json!(["billing"]);
    is_refused(garbage, "there is no container");
}
