//! `tenure prune` refuses what it cannot use, before it asks anybody; and in which namespaces it looks.

use serde_json::json;

use crate::world::{Cluster, tenure};

#[test]
fn an_age_without_a_unit_is_64() {
    for age in ["60", "-1h", "soon"] {
        let option = format!("--older-than={age}");
        tenure(&["prune", &option], &[]).says(78, &[&format!("{age:?} is not a duration: write a number and a unit")]);
    }
    tenure(&["prune", "a-lock"], &[]).says(64, &["unexpected argument 'a-lock'"]);
}

#[test]
fn without_a_cluster_it_is_78() {
    tenure(&["prune"], &[("HOME", "/home/nobody")]).says(78, &["no cluster to talk to"]);
}

#[test]
fn its_help_says_what_stays_and_its_exit_codes() {
    tenure(&["prune", "--help"], &[])
        .says(0, &["is in use, and stays", "1 interrupted, or the server refused to delete some", "[default: 1h]"]);
}

#[test]
fn the_unused_leases_of_every_namespace_are_deleted_where_they_are() {
    let time = "2026-01-01T00:00:00.000000Z";
    let labels = json!({ "app.kubernetes.io/managed-by": "tenure", "tenure.dev/kind": "lock" });
    let [shop, ware] = ["shop", "ware"].map(|namespace| {
        json!({
            "metadata": { "namespace": namespace, "name": "lock-a", "uid": namespace, "resourceVersion": "7", "labels": labels },
            "spec": { "holderIdentity": "", "leaseDurationSeconds": 1, "acquireTime": time, "renewTime": time },
        })
    });
    let cluster = Cluster::scripted(&[
        ("/v1/leases?", 200, &json!({ "items": [shop, ware] }).to_string()),
        ("DELETE /apis/coordination.k8s.io/v1/namespaces/shop/leases/lock-a", 200, &shop.to_string()),
    ]);

    let ended = cluster.tenure(&["-A", "prune"]);

    ended.says(1, &["Leases of all namespaces at http://"]);
    let rows: Vec<Vec<_>> = ended.out.lines().map(|line| line.split_whitespace().collect()).collect();
    let ends = |row: &[&str]| [row[0], row[1], row[row.len() - 1]].map(str::to_owned);
    let expected = [["NAMESPACE", "LEASE", "OUTCOME"], ["shop", "lock-a", "deleted"], ["ware", "lock-a", "refused"]];
    assert_eq!(rows.iter().map(|row| ends(row)).collect::<Vec<_>>(), expected);
    let name = "lease.coordination.k8s.io/lock-a\n";
    assert_eq!(cluster.tenure(&["-A", "prune", "-o", "name"]).out, name, "what is refused is not gone");
    assert_eq!(cluster.tenure(&["-A", "prune", "-o", "name", "--dry-run"]).out, name.repeat(2));
    cluster.tenure(&["prune", "-A", "-n", "shop"]).says(64, &["cannot be used with"]);
}
