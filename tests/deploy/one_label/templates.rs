//! The templates of workloads: which get a gate, and which changes of a label the second policy refuses while pods run.

use support::wait_for;

use super::*;

pub(super) fn a_template_of_each_kind_gets_a_gate_or_is_refused(cluster: &Namespace) {
    let _alone = apply(cluster, "");
    let base = workload("Deployment", Some("billing"), 1)["spec"].take();
    let mut once = base["template"].clone();
    once["spec"]["restartPolicy"] = json!("Never");
    let job = json!({ "template": once });
    let cron = json!({ "schedule": "0 0 * * *", "jobTemplate": { "spec": job } });
    for (version, kind, path, spec) in [
        ("apps/v1", "Deployment", "/spec/template", &base),
        ("apps/v1", "StatefulSet", "/spec/template", &base),
        ("batch/v1", "Job", "/spec/template", &job),
        ("batch/v1", "CronJob", "/spec/jobTemplate/spec/template", &cron),
    ] {
        let mut object = json!({ "apiVersion": version, "kind": kind, "metadata": { "name": "gated" }, "spec": spec });
        let gates = |object: &Value| {
            let made: Value = serde_json::from_slice(&tried(cluster, object).success().stdout).unwrap();
            made.pointer(path).unwrap()["spec"]["schedulingGates"].clone()
        };
        let ours = json!({ "name": "tenure.dev/inject" });
        assert_eq!(gates(&object), json!([ours]), "{kind}");
        let other = json!({ "name": "example.com/other" });
        object.pointer_mut(path).unwrap()["spec"]["schedulingGates"] = json!([other]);
        assert_eq!(gates(&object), json!([other, ours]), "{kind}");

        let mut misplaced = object.clone();
        misplaced.pointer_mut(path).unwrap()["metadata"]["labels"] = json!({ "app": "billing" });
        misplaced["metadata"]["labels"] = json!({ "tenure.dev/lease": "billing" });
        let why = tried(cluster, &misplaced).failure();
        assert!(
            why.contains("the label tenure.dev/lease is not in the metadata of its template: write it there, or remove it"),
            "{kind}: {why}"
        );
        if kind == "Job" {
            let owner = json!({ "apiVersion": "batch/v1", "kind": "CronJob", "name": "cron", "uid": "11111111-1111-1111-1111-111111111111" });
            misplaced["metadata"]["ownerReferences"] = json!([owner]);
            tried(cluster, &misplaced).success();
        }

        object.pointer_mut(path).unwrap()["spec"]["hostPID"] = json!(true);
        let why = tried(cluster, &object).failure();
        assert!(why.contains("with hostPID tenure is not PID 1"), "{kind}: {why}");
    }
    // What a Job owns is no Job.
    let mut owned = workload("Deployment", Some("billing"), 1);
    owned["metadata"]["ownerReferences"] = of_job(json!({ "spec": {} }))["metadata"]["ownerReferences"].take();
    let template = &mut owned["spec"]["template"];
    template["metadata"]["annotations"] = json!({ "tenure.dev/command": "[\"sh\"]" });
    template["spec"]["containers"][0].as_object_mut().unwrap().remove("command");
    tried(cluster, &owned).success();
}

/// Writes the status that a controller would write.
fn report(cluster: &Namespace, kind: &str, status: Value) {
    report_of(cluster, &format!("{kind}/shop"), status);
}

fn report_of(cluster: &Namespace, object: &str, status: Value) {
    let generation = cluster.get(object)["metadata"]["generation"].take();
    let status = json!({ "status": merged(json!({ "observedGeneration": generation }), status) }).to_string();
    cluster.kubectl(&["patch", object, "--subresource=status", "--type=merge", "-p", &status]).success();
}

pub(super) fn the_first_rollout_waits_until_no_pod_runs(cluster: &Namespace) {
    let _alone = apply(cluster, "");
    for kind in ["Deployment", "StatefulSet"] {
        let apply = |lease, replicas| sent("apply", cluster, &workload(kind, lease, replicas));
        let waits = |lease, replicas, name: &str| {
            let why = apply(lease, replicas).failure();
            let sentence = format!(
                "the pods that run now and the new ones do not share the Lease {name}, so two programs could run at once: first scale to 0"
            );
            assert!(why.contains(&sentence), "{kind}: {why}");
        };
        apply(None, 2).success();
        waits(Some("billing"), 2, "billing");
        report(cluster, kind, json!({ "replicas": 2 }));
        waits(Some("billing"), 2, "billing");
        apply(None, 0).success();
        waits(Some("billing"), 2, "billing");
        report(cluster, kind, json!({ "replicas": 0 }));
        if kind == "Deployment" {
            report(cluster, kind, json!({ "terminatingReplicas": 1 }));
            waits(Some("billing"), 2, "billing");
            report(cluster, kind, json!({ "terminatingReplicas": 0 }));
        }

        apply(Some("billing"), 2).success();

        report(cluster, kind, json!({ "replicas": 2 }));
        apply(Some("billing"), 3).success();
        waits(Some("other"), 3, "billing");
        waits(None, 3, "billing");
        // Its variables name another Lease, or another cluster.
        for key in ["TENURE_LEASE__NAME", "TENURE_LEASE__PREFIX", "TENURE_LEASE__NAMESPACE", "TENURE_CONFIG", "KUBECONFIG"] {
            let mut renamed = workload(kind, Some("billing"), 3);
            let env = json!([{ "name": key, "value": "other" }]);
            renamed["spec"]["template"]["spec"]["containers"][0]["env"] = env;
            let why = sent("apply", cluster, &renamed).failure();
            assert!(why.contains("do not share the Lease billing"), "{kind} {key}: {why}");
        }
        let rest = || {
            cluster.kubectl(&["scale", &format!("{kind}/shop"), "--replicas=0"]).success();
            report(cluster, kind, json!({ "replicas": 0 }));
        };
        rest();
        // Or say where the name is, and that is elsewhere now.
        let from = |map| json!([{ "name": "TENURE_LEASE__PREFIX", "valueFrom": { "configMapKeyRef": { "name": map, "key": "prefix" } } }]);
        let by =
            |colour| json!([{ "name": "COLOUR", "value": colour }, { "name": "TENURE_LEASE__NAME", "value": "$(COLOUR)-db" }]);
        for envs in [["blue", "green"].map(from), ["blue", "green"].map(by)] {
            let [before, now] = envs.map(|env| {
                let mut named = workload(kind, Some("billing"), 1);
                named["spec"]["template"]["spec"]["containers"][0]["env"] = env;
                named
            });
            sent("apply", cluster, &before).success();
            report(cluster, kind, json!({ "replicas": 1 }));
            let why = sent("apply", cluster, &now).failure();
            assert!(why.contains("do not share the Lease billing"), "{kind}: {why}");
            rest();
        }
        apply(None, 1).success();
        let spec = cluster.get(&format!("{kind}/shop"))["spec"]["template"]["spec"].take();
        assert_eq!(spec["schedulingGates"], Value::Null, "{kind}: its pods would wait for ever");
    }
}

/// A strategic merge, such as a patch of kubectl or kustomize, puts a new container before the others.
pub(super) fn a_container_that_comes_first_does_not_take_the_place_of_the_program(cluster: &Namespace) {
    let _alone = apply(cluster, "");
    sent("apply", cluster, &workload("Deployment", Some("billing"), 2)).success();
    report(cluster, "Deployment", json!({ "replicas": 2 }));
    let patch = |template: Value| {
        cluster.kubectl(&["patch", "deployment/shop", "-p", &json!({ "spec": { "template": template } }).to_string()])
    };
    let logs = json!({ "containers": [{ "name": "logs", "image": "logs", "command": ["tail"] }] });
    let named = |by: &str, container: &str| json!({ "annotations": { by: container } });
    let [ours, theirs] = ["tenure.dev/container", "kubectl.kubernetes.io/default-container"];

    let added = patch(json!({ "spec": logs })).failure();
    patch(json!({ "spec": logs, "metadata": named(theirs, "main") })).success();
    let renamed = [ours, theirs].map(|by| patch(json!({ "metadata": named(by, "logs") })).failure());

    let first = cluster.get("deployment/shop")["spec"]["template"]["spec"]["containers"][0]["name"].take();
    assert_eq!(first, "logs", "the annotation alone says where the program is");
    for why in [vec![added], renamed.to_vec()].concat() {
        let sentence = "the pods that run now have tenure in the container \"main\", and the new ones in \"logs\", so two programs could run";
        assert!(why.contains(sentence) && why.contains("write tenure.dev/container: main into the annotations"), "{why}");
    }
    cluster.kubectl(&["set", "env", "deployment/shop", "--containers=logs", "KUBECONFIG=/its/own"]).success();
}

pub(super) fn the_only_container_may_have_another_name(cluster: &Namespace) {
    let _alone = apply(cluster, "");
    let of = |names: &[&str]| {
        let mut shop = workload("Deployment", Some("billing"), 2);
        let containers = &mut shop["spec"]["template"]["spec"]["containers"];
        let named = |name: &&str| merged(containers[0].clone(), json!({ "name": name }));
        *containers = names.iter().map(named).collect();
        shop
    };
    sent("apply", cluster, &of(&["main"])).success();
    report(cluster, "Deployment", json!({ "replicas": 2 }));

    cluster.feed(&["replace", "-f", "-"], &of(&["web"])).success();
    let why = cluster.feed(&["replace", "-f", "-"], &of(&["api", "logs"])).failure();

    let sentence =
        "have tenure in the container \"web\", and the new ones in \"api\", so two programs could run at once: first scale to 0";
    assert!(why.contains(sentence), "no annotation can name a container that is gone: {why}");
}

pub(super) fn what_the_controller_has_not_seen_yet_is_no_rest(cluster: &Namespace) {
    let _alone = apply(cluster, "");
    for kind in ["Deployment", "StatefulSet"] {
        let apply = |lease, replicas| sent("apply", cluster, &workload(kind, lease, replicas));
        apply(None, 0).success();
        report(cluster, kind, json!({ "replicas": 0 }));
        apply(None, 2).success();
        apply(None, 0).success();

        let early = apply(Some("billing"), 2).failure();
        report(cluster, kind, json!({ "replicas": 0 }));

        assert!(early.contains("do not share the Lease billing"), "{kind}: {early}");
        // With these the controller makes pods of the template before.
        let partition = json!({ "updateStrategy": { "rollingUpdate": { "partition": 1 } } });
        let (held, remedy) = match kind {
            "Deployment" => (json!({ "paused": true }), "first resume it, scale to 0"),
            _ => (partition, "first set its partition to 0, scale to 0"),
        };
        let mut of_before = workload(kind, Some("billing"), 2);
        of_before["spec"] = merged(of_before["spec"].take(), held);
        let why = sent("apply", cluster, &of_before).failure();
        assert!(why.contains(remedy), "{kind}: {why}");
        apply(Some("billing"), 2).success();

        // The controller has not made its first pods yet, or, of a StatefulSet, not all of them.
        let hold = || sent("apply", cluster, &of_before);
        let unseen = hold().failure();
        report(cluster, kind, json!({ "currentRevision": "1", "updateRevision": "2" }));
        let unmade = if kind == "StatefulSet" { hold().failure() } else { unseen.clone() };
        report(cluster, kind, json!({ "currentRevision": "2" }));
        hold().success();
        let sentence = "of the template before, which may be without tenure";
        assert!(unseen.contains(sentence) && unmade.contains(sentence), "{kind}: {unseen} {unmade}");
        // In the middle of a later rollout the template before has tenure, too: pods of it were made since.
        apply(Some("billing"), 3).success();
        report(cluster, kind, json!({ "replicas": 3, "currentReplicas": 1, "updateRevision": "3" }));
        apply(Some("billing"), 2).success();
        hold().success();
    }
}

pub(super) fn a_cron_job_keeps_its_label_while_a_job_of_it_runs(cluster: &Namespace) {
    let _alone = apply(cluster, "");
    let mut once = workload("Deployment", None, 1)["spec"]["template"].take();
    once["spec"]["restartPolicy"] = json!("Never");
    let spec = json!({ "schedule": "0 0 * * *", "jobTemplate": { "spec": { "template": once } } });
    cluster
        .create(&json!({ "apiVersion": "batch/v1", "kind": "CronJob", "metadata": { "name": "shop" }, "spec": spec }))
        .success();
    let runs = |active: Value| report(cluster, "CronJob", json!({ "active": active }));
    let label = |lease: Value| {
        let template = json!({ "metadata": { "labels": { "tenure.dev/lease": lease } } });
        let patch = json!({ "spec": { "jobTemplate": { "spec": { "template": template } } } }).to_string();
        cluster.kubectl(&["patch", "cronjob/shop", "--type=merge", "-p", &patch])
    };
    let job = json!([{ "apiVersion": "batch/v1", "kind": "Job", "name": "shop-1" }]);
    runs(job.clone());

    let added = label(json!("billing")).failure();
    runs(json!([]));
    let early = label(json!("billing")).failure();
    cluster.kubectl(&["patch", "cronjob/shop", "-p", "{\"spec\":{\"suspend\":true}}"]).success();
    label(json!("billing")).success();
    runs(job);
    let later = ["null", "\"other\""].map(|lease| label(lease.parse().unwrap()).failure());

    for why in [vec![added, early], later.to_vec()].concat() {
        assert!(
            why.contains("do not share the Lease billing, so two programs could run at once: first suspend it, or delete it"),
            "{why}"
        );
    }
}

/// Kubernetes lets the labels, annotations and gates of a suspended Job change. Its pods may still terminate.
pub(super) fn a_suspended_job_keeps_its_label_and_its_gate(cluster: &Namespace) {
    let _alone = apply(cluster, "");
    let mut template = workload("Deployment", Some("billing"), 1)["spec"]["template"].take();
    template["spec"]["restartPolicy"] = json!("Never");
    let job = |spec: &Value| json!({ "apiVersion": "batch/v1", "kind": "Job", "metadata": { "name": "shop" }, "spec": spec });
    cluster.create(&job(&json!({ "suspend": true, "template": template }))).success();
    let patch = |template: Value| {
        cluster.kubectl(&["patch", "job/shop", "--type=merge", "-p", &json!({ "spec": { "template": template } }).to_string()])
    };

    let label = |lease: Value| patch(json!({ "metadata": { "labels": { "tenure.dev/lease": lease } } }));
    let refused = [label(json!("other")), label(Value::Null), patch(json!({ "spec": { "schedulingGates": null } }))];

    for ended in refused {
        let why = ended.failure();
        let sentence =
            "do not share the Lease billing, so two programs could run at once: first delete the Job, and wait until its pods";
        assert!(why.contains(sentence), "{why}");
    }
    patch(json!({ "metadata": { "labels": { "queue": "a" } } })).success();
    cluster.kubectl(&["patch", "job/shop", "-p", "{\"spec\":{\"suspend\":false}}"]).success();
}

/// Pods of its template: one that the policy wraps, and one that is made after the policy is gone. Then one of a template that had the
/// label while there was no policy.
pub(super) fn a_template_whose_policy_is_deleted_makes_pods_that_never_start(cluster: &Namespace) {
    let mut are_there = apply(cluster, "");
    sent("apply", cluster, &workload("Deployment", Some("billing"), 2)).success();
    let template = cluster.get("deployment/shop")["spec"]["template"].take();
    let pod = |name: &str| {
        let mut pod = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": template["metadata"], "spec": template["spec"] });
        pod["metadata"]["name"] = json!(name);
        pod
    };
    cluster.create(&pod("wrapped")).success();
    let wrapped = cluster.get("pod/wrapped");
    assert_eq!(wrapped["spec"]["schedulingGates"], Value::Null);
    assert_eq!(wrapped["spec"]["initContainers"][0]["name"], "tenure");

    *are_there = false;
    cluster.kubectl(&["delete", "configmap", "tenure-inject", "-n", "tenure-inject"]).success();
    let refusal = || Some(tried(cluster, &pod("refused"))).filter(|ended| !ended.status.success());
    let refused = wait_for("pods are refused without the ConfigMap", refusal).failure();
    assert!(refused.contains("nothing has put tenure in"), "{refused}");
    let mut ungated = workload("Deployment", Some("billing"), 0);
    ungated["metadata"]["name"] = json!("ungated");
    let why = cluster.create(&ungated).failure();
    assert!(why.contains("nothing has put tenure in"), "its pods would run without tenure once the policies are gone: {why}");
    let mut unlabelled = pod("unlabelled");
    unlabelled["metadata"]["labels"] = json!({});
    unlabelled["spec"]["schedulingGates"] = json!([]);
    cluster.create(&unlabelled).success();

    // The namespace stays: no controller runs here that would remove it.
    for kind in ["mutatingadmissionpolicy", "validatingadmissionpolicy"] {
        cluster.kubectl(&["delete", &format!("{kind}binding/tenure-inject"), &format!("{kind}/tenure-inject")]).success();
    }
    wait_until("the policies are no longer in force", || tried(cluster, &pod("late")).status.success());
    cluster.create(&pod("late")).success();

    let late = cluster.get("pod/late");
    assert_eq!(late["spec"]["initContainers"], Value::Null, "nothing has wrapped it");
    assert_eq!(late["spec"]["schedulingGates"], json!([{ "name": "tenure.dev/inject" }]), "so it must not start");
    assert_eq!(cluster.get("pod/wrapped")["spec"], wrapped["spec"], "what runs is left alone");

    let mut early = workload("Deployment", Some("billing"), 2);
    early["metadata"]["name"] = json!("early");
    cluster.create(&early).success();
    let mut ends = early.clone();
    (ends["metadata"]["name"], ends["metadata"]["finalizers"]) = (json!("ends"), json!(["example.com/wait"]));
    cluster.create(&ends).success();
    let mut misplaced = workload("Deployment", None, 2);
    misplaced["metadata"] = json!({ "name": "misplaced", "labels": { "tenure.dev/lease": "billing" } });
    cluster.create(&misplaced).success();
    let mut once =
        json!({ "apiVersion": "batch/v1", "kind": "Job", "metadata": { "name": "once" }, "spec": { "template": template } });
    once["spec"]["template"]["spec"] =
        merged(once["spec"]["template"]["spec"].take(), json!({ "restartPolicy": "Never", "schedulingGates": [] }));
    cluster.create(&once).success();
    let (code, text) = tenure_inject(&workload("Deployment", Some("billing"), 2), &["--access=false", "-o", "json"]);
    assert_eq!(code, Some(0), "{text}");
    let mut leaseless = serde_json::from_str::<Value>(&text).unwrap()["items"][0].take();
    leaseless["metadata"]["name"] = json!("leaseless");
    let env = leaseless["spec"]["template"]["spec"]["containers"][0]["env"].as_array_mut().unwrap();
    env.iter_mut().find(|one| one["name"] == "TENURE_LEASE__ENABLED").unwrap()["value"] = json!("false");
    cluster.create(&leaseless).success();
    drop(are_there);
    let _alone = apply(cluster, "");
    cluster.kubectl(&["annotate", "deployment/misplaced", "a=b"]).success();
    cluster.kubectl(&["annotate", "deployment/leaseless", "a=b"]).success();
    let why = cluster.kubectl(&["set", "env", "deployment/leaseless", "TENURE_LEASE__ENABLED=true"]).failure();
    assert!(why.contains("do not share the Lease billing"), "{why}");
    // Its pods are wrapped without a gate.
    cluster.kubectl(&["annotate", "job/once", "a=b"]).success();
    // A pod that is there is not judged again: nothing could be changed.
    cluster.kubectl(&["annotate", "pod/late", "a=b"]).success();
    // What is deleted makes no pods.
    cluster.kubectl(&["delete", "deployment/ends", "--wait=false"]).success();
    cluster.kubectl(&["patch", "deployment/ends", "--type=merge", "-p", r#"{"metadata":{"finalizers":null}}"#]).success();
    early["spec"]["template"]["spec"]["containers"][0]["image"] = json!("main:2");
    let why = cluster.feed(&["replace", "-f", "-"], &early).failure();
    assert!(why.contains("the pods that run now and the new ones do not share the Lease billing"), "{why}");
    for (version, kind, hash, remedy) in [
        ("apps/v1", "ReplicaSet", json!({ "pod-template-hash": "1" }), "kubectl rollout restart it"),
        ("apps/v1", "StatefulSet", json!({}), "kubectl rollout restart it"),
        ("batch/v1", "Job", json!({}), "delete the Job or CronJob"),
    ] {
        let owner = json!({ "apiVersion": version, "kind": kind, "name": "early", "uid": "11111111-1111-1111-1111-111111111111", "controller": true });
        let mut added = pod("added");
        added["metadata"]["ownerReferences"] = json!([owner]);
        added["metadata"]["labels"] = merged(added["metadata"]["labels"].take(), hash);
        added["spec"]["schedulingGates"] = json!([]);
        let why = tried(cluster, &added).failure();
        assert!(why.contains("older than the policy") && why.contains(remedy), "beside pods without tenure: {kind}: {why}");
        added["spec"]["schedulingGates"] = json!([{ "name": "tenure.dev/inject" }]);
        tried(cluster, &added).success();
    }
    let mut mirror = pod("mirror");
    mirror["metadata"]["annotations"] = json!({ "kubernetes.io/config.mirror": "x" });
    let why = tried(cluster, &mirror).failure();
    assert!(why.contains("a static pod is run by its kubelet as its file says"), "it would look wrapped: {why}");
    let owner = json!({ "apiVersion": "batch/v1", "kind": "CronJob", "name": "early", "uid": "11111111-1111-1111-1111-111111111111", "controller": true });
    once["metadata"] = json!({ "name": "fired", "ownerReferences": [owner] });
    let why = cluster.create(&once).failure();
    assert!(why.contains("older than the policy"), "beside a Job whose pods run without tenure: {why}");
    cluster.kubectl(&["scale", "deployment/early", "--replicas=0"]).success();
    report_of(cluster, "deployment/early", json!({ "replicas": 0 }));
    cluster.kubectl(&["rollout", "restart", "deployment/early"]).success();
    assert_eq!(
        cluster.get("deployment/early")["spec"]["template"]["spec"]["schedulingGates"],
        json!([{ "name": "tenure.dev/inject" }])
    );
}

pub(super) fn a_deployment_that_the_command_wrapped_is_left_alone(cluster: &Namespace) {
    let _alone = apply(cluster, "");
    let (code, text) = tenure_inject(&workload("Deployment", Some("billing"), 2), &["--access=false", "-o", "json"]);
    assert_eq!(code, Some(0), "{text}");

    cluster.feed(&["apply", "-f", "-"], &text).success();

    let wanted: Value = serde_json::from_str(&text).unwrap();
    let spec = &cluster.get("deployment/shop")["spec"]["template"]["spec"];
    assert_eq!(spec["schedulingGates"], Value::Null, "no policy would remove it from its pods");
    assert_eq!(spec["containers"][0]["command"], wanted["items"][0]["spec"]["template"]["spec"]["containers"][0]["command"]);
    cluster.admits(&cluster.get("deployment/shop")["spec"]["template"]);
    let why = cluster.feed(&["replace", "-f", "-"], &workload("Deployment", None, 2)).failure();
    assert!(why.contains("do not share the Lease billing"), "an upgrade without the command: {why}");
    cluster.kubectl(&["set", "env", "deployment/shop", "TENURE_LEASE__ENABLED=True"]).success();
    for replicas in [2, 0] {
        cluster.kubectl(&["scale", "deployment/shop", &format!("--replicas={replicas}")]).success();
        report(cluster, "Deployment", json!({ "replicas": replicas }));
        let why = cluster.kubectl(&["set", "env", "deployment/shop", "TENURE_LEASE__ENABLED=false"]).failure();
        assert!(why.contains("TENURE_LEASE__ENABLED: without a Lease each pod would run the program at once"), "{why}");
    }
    cluster.kubectl(&["scale", "deployment/shop", "--replicas=2"]).success();
    let unwrapped = cluster.feed(&["replace", "-f", "-"], &workload("Deployment", Some("billing"), 2)).success();
    assert_eq!(String::from_utf8_lossy(&unwrapped.stdout), "deployment.apps/shop replaced\n", "its pods know the Lease");
}
