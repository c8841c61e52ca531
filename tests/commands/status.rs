//! `tenure status` reports who holds a Lease; its exit code tells whether anybody does.

use std::fs;

use jiff::SignedDuration;
use serde_json::{Value, json};
use support::{Scratch, wait_for};

use crate::world::{Cluster, Pod, tenure, tenure_in_a_pod, unprinted};

/// An API server's answer for a Lease that does not exist.
fn absent(name: &str) -> String {
    json!({ "message": format!("leases.coordination.k8s.io {name:?} not found"), "details": { "kind": "leases", "name": name } })
        .to_string()
}

fn lease(name: &str, holder: &str, renewed: SignedDuration) -> Value {
    let renewed = format!("{:.6}", tenure::clock::timestamp() - renewed);
    json!({
        "metadata": { "name": name, "namespace": "default", "uid": "u", "resourceVersion": "7" },
        "spec": {
            "holderIdentity": holder, "leaseDurationSeconds": 600, "leaseTransitions": 3,
            "acquireTime": "2026-01-01T00:00:00.000000Z", "renewTime": renewed,
        },
    })
}

/// A server with one answer for every request whose first line contains `part`.
fn server(part: &str, answer: &Value) -> Cluster {
    Cluster::scripted(&[(part, 200, &answer.to_string()), ("GET ", 404, &absent("none"))])
}

const NOW: SignedDuration = SignedDuration::ZERO;

#[test]
fn a_lease_that_is_held_is_0() {
    let cluster = server("/namespaces/default/leases/x ", &lease("x", "pod-1_ab", NOW));
    cluster.tenure(&["status", "x"]).says(0, &["LEASE", "x       held    pod-1_ab   2026-01-01T00:00:00Z   3"]);
    cluster.tenure(&["status", "--lease", "x"]).says(0, &["held"]);
    let json = cluster.tenure(&["status", "x", "-o", "json"]);
    let said: Value = serde_json::from_str(&json.out).unwrap();
    assert_eq!(
        (json.code, &said["state"], &said["holder"], &said["transitions"]),
        (Some(0), &json!("held"), &json!("pod-1_ab"), &json!(3))
    );
    cluster.tenure(&["status", "x", "-o", "yaml"]).says(0, &["state: \"held\"\n", "durationSeconds: 600\n"]);
}

#[test]
fn a_lease_that_expired_is_free_or_nobodys_is_1() {
    let written = tenure::clock::boot();
    let cluster = server("/leases/x ", &lease("x", "pod-1", SignedDuration::from_secs(601)));
    let said = cluster.tenure(&["status", "x"]);
    said.says(1, &["expired   pod-1"]);
    let mut ages = (1..=1 + tenure::clock::boot().since(written).as_secs() + 1).map(|second| format!("10m{second}s ago"));
    assert!(ages.any(|age| said.out.contains(&age)), "{said:?}");
    let cluster = server("/leases/x ", &lease("x", "", NOW));
    cluster.tenure(&["status", "x"]).says(1, &["x       free    -"]);
    let cluster = server("/leases/x ", &lease("x", "tenure.dev/nobody", NOW));
    cluster.tenure(&["status", "x"]).says(1, &["x       nobody, until 20"]);
}

#[test]
fn whether_a_certain_holder_has_it_is_asked_by_the_whole_identity() {
    let cluster = server("/leases/x ", &lease("x", "pod-1_ab", NOW));
    let status = |holder| cluster.tenure(&["status", "x", "--holder", holder]);
    status("pod-1_ab").says(0, &["held    pod-1_ab"]);
    for other in ["pod-1", "pod-2_ab", ""] {
        status(other).says(1, &["held    pod-1_ab"]);
    }
    cluster.tenure(&["status", "none", "--holder", "pod-1_ab"]).says(2, &["no Lease none"]);
    for (holder, age) in [("pod-1_ab", SignedDuration::from_secs(601)), ("tenure.dev/nobody", NOW)] {
        let cluster = server("/leases/x ", &lease("x", holder, age));
        cluster.tenure(&["status", "x", "--holder", holder]).says(1, &[]);
    }
}

#[test]
fn a_lock_or_a_task_is_named_as_where_it_is_run() {
    let cluster = server("nowhere", &json!({}));
    let status =
        |cluster: &Cluster, name, prefix| tenure(&["status", name], &[cluster.variable(), ("TENURE_LEASE__PREFIX", prefix)]);
    for (name, prefix, lease) in [
        ("lock:My.Own--Lock", "", "lock-my-own-lock"),
        ("lock:a", "Team.", "team-lock-a"),
        ("task:a.b", "", "tasklock-a-b"),
        ("clock:a.b", "", "clock-a.b"),
    ] {
        let asked = Cluster::scripted(&[("GET ", 404, &absent(lease))]);
        status(&asked, name, prefix).says(2, &[&format!("no Lease {lease} in namespace default")]);
    }
    for empty in ["lock:", "task:"] {
        status(&cluster, empty, "").says(78, &["which Lease?"]);
    }
    status(&cluster, "lock:é", "").says(78, &["has no character"]);
}

#[test]
fn inside_a_workload_it_asks_for_the_lease_under_which_that_runs() {
    let cluster = server("/namespaces/shop/leases/no-x ", &{
        let mut lease = lease("no-x", "pod-1_ab", NOW);
        lease["metadata"]["namespace"] = json!("shop");
        lease
    });
    let told = [cluster.variable(), ("TENURE_LEASE", "no-x"), ("TENURE_NAMESPACE", "shop")];
    let variables = [&told[..], &[("TENURE_LEASE__NAME", "other"), ("TENURE_LEASE__PREFIX", "no")]].concat();
    tenure(&["status"], &variables).says(0, &["no-x    held    pod-1_ab"]);
    tenure(&["status", "ne"], &variables).says(2, &["no Lease none in namespace default"]);
    tenure(&["status", "--lease", "ne"], &variables).says(2, &["no Lease none in namespace default"]);
    tenure(&["status", "--namespace", "other"], &variables).says(69, &["answered 404"]);
    tenure(&["status", "--set", "lease.namespace=other"], &variables).says(69, &["answered 404"]);
    tenure(&["status", "--set", "lease.name=ne"], &variables).says(2, &["no Lease none in namespace default"]);
    let configured = [&told[..], &[("TENURE_LEASE__NAME", "ne")]].concat();
    tenure(&["status", "--set", "lease.prefix=no"], &configured).says(2, &["no Lease none in namespace default"]);
    tenure(&["status", "--set", "lease.slots=1"], &configured).says(69, &["answered 404"]);
}

#[test]
fn an_answer_that_could_not_be_printed_is_70_whatever_it_was() {
    for lease in [lease("x", "pod-1", NOW), lease("x", "", NOW)] {
        let cluster = server("/leases/x ", &lease);
        unprinted(&["status", "x"], &[cluster.variable()]).says(70, &["standard output: No space left"]);
    }
}

#[test]
fn a_credential_plugin_that_hangs_is_not_awaited_longer_than_a_server() {
    let cluster = Cluster::at("server: 'https://127.0.0.1:1'");
    let pid = cluster.place().join("pid");
    let script = format!("sh -c 'echo $$ >{}; exec sleep 600'; true", pid.display());
    let plugin = format!("exec: {{apiVersion: client.authentication.k8s.io/v1, command: sh, args: [-c, \"{script}\"]}}");
    let cluster = cluster.with("user: {}", &format!("user: {{{plugin}}}"));
    cluster.tenure(&["status", "x"]).says(77, &["the credential plugin sh did not end within 10s, and was killed"]);
    let stat = format!("/proc/{}/stat", fs::read_to_string(pid).unwrap().trim());
    let is_gone = || fs::read_to_string(&stat).map_or(true, |stat| stat.contains(") Z ")).then_some(());
    wait_for("what the plugin has started is gone too", is_gone);
}

#[test]
fn it_looks_where_the_pod_is_and_else_where_the_context_is() {
    let cluster = server("nowhere", &json!({}));
    let cluster = cluster.with("user: u}}]", "user: u, namespace: shop}}]");

    for (namespace, looked_in) in [("billing\n", "billing"), ("\n", "shop")] {
        let account = Scratch::new();
        account.file("namespace", namespace);
        let said = format!("no Lease none in namespace {looked_in}");
        tenure_in_a_pod(&account, &["status", "none"], &[cluster.variable()]).says(2, &[&said]);
    }
    cluster.tenure(&["status", "none"]).says(2, &["no Lease none in namespace shop"]);
}

#[test]
fn a_pod_that_names_a_kubeconfig_asks_by_that_one() {
    let pod = Pod::with_an_account_in("default");
    let cluster = server("/billing", &lease("billing", "pod-1_ab", NOW));
    let variables = [&pod.variables()[..], &[cluster.variable()]].concat();

    tenure_in_a_pod(&pod.account, &["status", "billing"], &variables).says(0, &["pod-1_ab"]);
}

#[test]
fn a_pod_without_a_token_is_as_good_as_none() {
    let pod = Pod::with_an_account_in("billing");
    fs::remove_file(pod.account.join("token")).unwrap();

    let [home, host, port] = pod.variables();
    tenure_in_a_pod(&pod.account, &["status", "none"], &[home, host, port]).says(69, &["http://127.0.0.1:1"]);
    tenure_in_a_pod(&pod.account, &["status", "none"], &[host, port]).says(78, &["automountServiceAccountToken"]);
}

#[test]
fn a_selector_shows_every_lease_and_is_0_only_if_all_are_held() {
    let held = lease("a", "pod-1", NOW);
    let cluster = server("labelSelector=team%3Dx ", &json!({ "items": [held, lease("b", "", NOW)] }));
    let ended = cluster.tenure(&["status", "-l", "team=x"]);
    ended.says(1, &["\na       held    pod-1", "\nb       free    -"]);
    let cluster = server("labelSelector=team%3Dx ", &json!({ "items": [held] }));
    let ended = cluster.tenure(&["status", "-l", "team=x", "-o", "json"]);
    let said: Value = serde_json::from_str(&ended.out).unwrap();
    assert_eq!((ended.code, said[0]["name"].as_str()), (Some(0), Some("a")));
    let cluster = server("labelSelector=", &json!({ "items": [] }));
    let none = |form| cluster.tenure(&["status", "-l", "team=y", "-o", form]);
    for (form, out) in [("table", ""), ("json", "[]\n"), ("yaml", "[]\n")] {
        let ended = none(form);
        ended.says(2, &["there is no Lease with team=y"]);
        assert_eq!(ended.out, out, "{form}");
    }
}

#[test]
fn the_whole_cluster_shows_tenures_leases_and_first_those_that_need_a_look() {
    let of = |namespace: &str, name: &str, holder: &str, renewed: i64, annotations: Value| {
        let mut lease = lease(name, holder, SignedDuration::from_secs(renewed));
        (lease["metadata"]["namespace"], lease["metadata"]["annotations"]) = (json!(namespace), annotations);
        lease
    };
    let named = |holder: &str| json!({ "tenure.dev/holder": holder });
    let leases = [
        of("kube-system", "node", "n", 0, json!({})),
        of("shop", "billing", "a_1", 0, named("a_1")),
        of("shop", "free", "", 0, named("")),
        of("shop", "paused", "a_1", 0, json!({ "tenure.dev/holder": "a_1", "tenure.dev/paused": "true" })),
        of("ware", "billing", "b_2", 0, named("b_2")),
        of("ware", "lost", "b_2", 900, named("b_2")),
    ];
    let cluster = server("/v1/leases?", &json!({ "items": leases }));

    let ended = cluster.tenure(&["status", "-A"]);
    let rows: Vec<_> = ended.out.lines().map(|line| line.split_whitespace().take(3).collect::<Vec<_>>().join(" ")).collect();
    let held = ["shop billing held", "ware billing held"];
    assert_eq!(rows[..4], ["NAMESPACE LEASE STATE", "ware lost expired", "shop free free", "shop paused held,"]);
    assert_eq!(rows[4..], held);
    assert_eq!(ended.code, Some(1));
    let name = |name: &str| format!("lease.coordination.k8s.io/{name}\n");
    assert_eq!(
        cluster.tenure(&["status", "-A", "-o", "name"]).out,
        ["lost", "free", "paused", "billing", "billing"].map(name).concat()
    );
    let wide = cluster.tenure(&["status", "-A", "-l", "team=x", "-o", "wide"]);
    wide.says(1, &["RENEWED", "   DURATION", "10m", "kube-system   node"]);
    let none = server("/v1/leases?", &json!({ "items": [] }));
    none.tenure(&["status", "-A"]).says(2, &["there is no such Lease in the cluster"]);
    none.tenure(&["-A", "-nshop", "status"]).says(2, &["there is no such Lease in the cluster"]);
    for line in [["-A", "x"], ["-A", "--observe"]] {
        none.tenure(&[&["status"], &line[..]].concat()).says(64, &["cannot be used with"]);
    }
}

#[test]
fn every_slot_is_shown_and_is_0_only_if_all_are_held() {
    let held = |name, holder| lease(name, holder, NOW).to_string();
    let cluster = Cluster::scripted(&[
        ("/leases/worker ", 200, &held("worker", "pod-1")),
        ("/leases/worker-slot-1 ", 200, &held("worker-slot-1", "pod-2")),
        ("/leases/worker-slot-2 ", 404, &absent("worker-slot-2")),
        ("/leases/none ", 404, &absent("none")),
        ("/leases/none-slot-1 ", 404, &absent("none-slot-1")),
    ]);
    let both = ["\nworker          held    pod-1", "\nworker-slot-1   held    pod-2"];

    cluster.tenure(&["status", "worker", "--slots", "2"]).says(0, &both);
    let said: Value = serde_json::from_str(&cluster.tenure(&["status", "worker", "--slots", "2", "-o", "json"]).out).unwrap();
    assert_eq!((&said[0]["name"], &said[1]["name"], &said[2]), (&json!("worker"), &json!("worker-slot-1"), &Value::Null));
    let lacking = cluster.tenure(&["status", "worker", "--slots", "3"]);
    lacking.says(1, &[both[0], both[1], "there is no Lease worker-slot-2 in namespace default"]);
    cluster.tenure(&["status", "none", "--slots", "2"]).says(2, &["no Lease none in", "no Lease none-slot-1 in"]);

    let configured = [cluster.variable(), ("TENURE_LEASE__NAME", "worker"), ("TENURE_LEASE__SLOTS", "2")];
    tenure(&["status"], &configured).says(0, &both);
    assert!(!tenure(&["status", "worker"], &configured).out.contains("slot-1"), "a name is that of one Lease");
    let inside = [&configured[..], &[("TENURE_LEASE", "worker-slot-1"), ("TENURE_NAMESPACE", "default")]].concat();
    let own = tenure(&["status"], &inside);
    own.says(0, &["worker-slot-1   held"]);
    assert!(!own.out.contains("pod-1"), "a workload asks for its own slot: {own:?}");
}

#[test]
fn a_list_that_comes_in_pages_is_shown_whole() {
    let page = |lease: Value, next: &str| json!({ "metadata": { "continue": next }, "items": [lease] }).to_string();
    let cluster = Cluster::scripted(&[
        ("limit=100&continue=&labelSelector=x ", 200, &page(lease("a", "pod-1", NOW), "t=")),
        ("limit=100&continue=t%3D&labelSelector=x ", 200, &page(lease("b", "pod-2", NOW), "")),
    ]);

    cluster.tenure(&["status", "-l", "x"]).says(0, &["\na       held    pod-1", "\nb       held    pod-2"]);
    let endless = Cluster::scripted(&[("limit=100", 200, &page(lease("a", "pod-1", NOW), "t"))]);
    endless.tenure(&["status", "-l", "x"]).says(69, &["the same next page again"]);
}

#[test]
fn a_selector_that_the_server_cannot_read_is_an_invalid_value() {
    let cluster = Cluster::scripted(&[("GET ", 400, r#"{"message":"unable to parse requirement"}"#)]);
    cluster.tenure(&["status", "-l", "a==="]).says(78, &["--selector: ", "unable to parse requirement"]);
}

#[test]
fn a_namespace_that_is_none_is_78_without_a_name_too() {
    let said = "--namespace: lease.namespace: \"../y\" is not a valid namespace";
    tenure(&["status", "-l", "a=b", "--namespace", "../y"], &[]).says(78, &[said]);
}

#[test]
fn without_a_name_it_asks_for_one_and_with_two_it_refuses() {
    tenure(&["status"], &[]).says(78, &["which Lease?"]);
    for line in [
        &["status", "x", "-l", "a=b"][..],
        &["status", "-l", "a=b", "--holder", "x"],
        &["status", "-l", "a=b", "--observe"],
        &["status", "x", "--observe", "--watch"],
        &["status", "x", "--holder", "y", "--watch"],
        &["status", "x", "--holder", "y", "--slots", "2"],
        &["status", "x", "--observe", "--slots", "2"],
        &["status", "-l", "a=b", "--slots", "2"],
    ] {
        tenure(line, &[]).says(64, &["cannot be used with"]);
    }
    for line in [&["status", "-l", "a=b", "-v"][..], &["status", "x", "-v"]] {
        tenure(line, &[]).says(64, &["--watch"]);
    }
    tenure(&["status", "--watch"], &[]).says(78, &["which Lease?"]);
}

#[test]
fn its_help_says_that_it_judges_by_the_wall_clock() {
    tenure(&["status", "--help"], &[]).says(0, &["0 held; 1 free, resting, expired, or held by nobody", "wall clock"]);
}
