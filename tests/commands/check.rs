//! `tenure check` reports whether a replica could work here, and what to change.

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt as _,
};

use support::Scratch;

use crate::world::{Cluster, tenure, tenure_without_proc};

const LEASE: &str = r#"{"metadata":{"name":"x","uid":"u","resourceVersion":"7"}}"#;

#[test]
fn offline_it_says_the_numbers_of_the_law_and_the_power_to_kill() {
    let ended = tenure(&["check", "--offline", "--lease", "x", "--", "sh"], &[("HOME", "/nonexistent")]);
    let parts = [
        "name: x",
        "ok    the workload is /",
        "9.85s  stop deadline (S): ",
        "13.85s  kill deadline (H): ",
        "14.85s  end (E): ",
        "15.15s  a standby that watched all the time may take over",
        "terminationGracePeriodSeconds: 27 or more",
        "\nkill power of this container\n",
    ];
    ended.says(0, &parts);
    assert!(!ended.out.contains("\nAPI server\n"), "{ended:?}");
}

#[test]
fn timings_that_barely_fit_are_noted_with_what_would_be_better() {
    let ended = tenure(&["check", "--offline", "--lease", "x", "--lease-duration", "13s", "--", "sh"], &[]);
    ended.says(0, &["note  lease.duration: only 2 attempts to renew fit, 3 are advised", "Set lease.duration to 15s or more"]);
}

#[test]
fn a_workload_that_is_not_there_is_78_and_none_at_all_is_a_note() {
    tenure(&["check", "--offline", "--lease", "x", "--", "no-such-program"], &[])
        .says(78, &["FAIL  the workload cannot be executed (127)"]);
    tenure(&["check", "--offline", "--lease", "x", "--", "/etc/passwd"], &[])
        .says(78, &["FAIL  the workload cannot be executed (126)"]);
    tenure(&["check", "--offline", "--lease", "x"], &[]).says(0, &["note  no workload was given"]);
    let hook = ["--set", "workload.runs=always", "--set", "workload.acknowledge=none", "--set", "hooks.afterLead.command=[gone]"];
    let signals = ["--set", "signals.onLead=USR1", "--set", "signals.onFollow=USR2"];
    tenure(&[&["check", "--offline", "--lease", "x"], &hook[..], &signals, &["--", "sh"]].concat(), &[])
        .says(78, &["ok    the workload is /", "FAIL  hooks.afterLead cannot be executed (127)"]);
}

#[test]
fn the_oom_score_that_is_said_is_the_one_that_the_workload_gets() {
    for adjust in ["workload.oomScoreAdjust=-500", "workload.oomScoreAdjust=50"] {
        let read = ["run", "--leader-election=off", "--set", adjust, "--", "cat", "/proc/self/oom_score_adj"];
        let gets = tenure(&read, &[]);

        let said = tenure(&["check", "--offline", "--lease", "x", "--set", adjust, "--", "sh"], &[]);

        said.says(0, &[&format!("oom_score_adj of the workload {}, of tenure ", gets.out.trim())]);
    }
}

#[test]
fn a_pod_whose_name_no_lease_takes_is_78() {
    let check = ["check", "--offline", "--lease", "x", "--", "sh"];
    tenure(&check, &[("POD_NAME", "a\nb")]).says(78, &["FAIL  POD_NAME or the hostname", "set lease.identity"]);
    tenure(&check, &[("POD_NAME", "a\nb"), ("TENURE_LEASE__IDENTITY", "a")]).says(0, &[]);
}

#[test]
fn a_finding_moves_no_terminal_and_begins_no_line() {
    let scratch = Scratch::new();
    let program = scratch.file("a\u{1b}[31m\n  FAIL  b", "");
    fs::set_permissions(&program, Permissions::from_mode(0o700)).unwrap();
    let ended = tenure(&["check", "--offline", "--lease", "x", "--", &program], &[]);
    ended.says(0, &["/a\u{fffd}[31m   FAIL  b\n"]);
    assert!(!ended.out.contains('\u{1b}'), "{ended:?}");
}

#[test]
fn without_proc_no_replica_starts_and_that_is_70() {
    tenure_without_proc(&["check", "--offline", "--lease", "x"]).says(70, &["FAIL  no end of the workload could be proved"]);
    tenure_without_proc(&["check", "--leader-election=off"]).says(0, &["note  /proc cannot be read"]);
}

#[test]
fn a_plain_init_needs_no_cluster() {
    tenure(&["check", "--leader-election=off", "--", "sh"], &[("HOME", "/nonexistent")])
        .says(0, &["enabled: false", "ok    a stop needs terminationGracePeriodSeconds: 21 or more", "kill power"]);
}

#[test]
fn the_programs_of_hooks_standbys_and_probes_are_looked_for_where_they_run() {
    let keys = ["hooks.afterLead", "standby.command", "workload.readiness.exec", "workload.liveness.exec"];
    let check = |missing: &[&str], variables: &[(&str, &str)]| {
        let program = |key: &str| if missing.contains(&key) { "/nowhere" } else { "sh" };
        let set = |key: &str| format!("{}.command=[{}]", key.trim_end_matches(".command"), program(key));
        let set = keys.map(set);
        let line = ["check", "--offline", "--lease", "x"].into_iter().chain(set.iter().flat_map(|set| ["--set", set]));
        tenure(&line.chain(["--", "sh"]).collect::<Vec<_>>(), variables)
    };
    check(&[], &[]).says(0, &keys.map(|key| format!("ok    {key} is /")).each_ref().map(String::as_str));
    for key in keys {
        check(&[key], &[]).says(78, &[&format!("FAIL  {key} cannot be executed (127): /nowhere: not found")]);
    }
    let plain = check(&keys, &[("TENURE_LEASE__ENABLED", "false")]);
    plain.says(0, &["enabled: false"]);
    assert!(!plain.out.contains("/nowhere: not found"), "{plain:?}");
}

#[test]
fn against_a_server_it_says_what_is_permitted() {
    let cluster = Cluster::embedded();
    let parts = [
        "ok    https://127.0.0.1:",
        "ok    Lease default/x is not there yet",
        "ok    get Lease default/x",
        "ok    update Lease default/x",
        "ok    watch Lease default/x",
        "ok    create leases in default",
    ];
    let ended = cluster.tenure(&["check", "--lease", "x", "--", "sh"]);
    ended.says(0, &parts);
    assert!(!ended.out.contains("delete"), "{ended:?}");
    cluster
        .tenure(&["check", "--lease", "x", "--set", "lease.release=delete", "--", "sh"])
        .says(0, &["ok    delete Lease default/x"]);
}

#[test]
fn a_replica_that_may_not_delete_works_and_one_that_may_not_update_or_create_what_it_deletes_does_not() {
    let check = |denied: &[&str]| {
        let mut answers = vec![("GET ", 200, LEASE), ("dryRun=All", 200, LEASE)];
        answers.extend(denied.iter().map(|verb| (*verb, 201, r#"{"status":{"allowed":false}}"#)));
        answers.push(("POST ", 201, r#"{"status":{"allowed":true}}"#));
        Cluster::scripted(&answers).tenure(&["check", "--lease", "x", "--set", "lease.release=delete", "--", "sh"])
    };

    let (create, delete, update) = (r#""verb":"create""#, r#""verb":"delete""#, r#""verb":"update""#);
    check(&[delete]).says(0, &["note  delete Lease default/x is not permitted: a released Lease is left"]);
    check(&[create]).says(77, &["FAIL  create leases in default is not permitted"]);
    check(&[create, delete]).says(0, &["note  create leases in default is not permitted: replicas wait"]);
    check(&[update]).says(77, &["FAIL  update Lease default/x is not permitted"]);
}

#[test]
fn what_keeps_replicas_from_the_lease_is_a_note() {
    let lease = r#"{"metadata":{"name":"x","uid":"u","resourceVersion":"7"},"spec":{"strategy":"OldestEmulationVersion"}}"#;
    let answers = [("GET ", 200, lease), ("dryRun=All", 200, lease), ("POST ", 201, r#"{"status":{"allowed":true}}"#)];
    let said = ["note  the Lease has a strategy", "takes it only as its preferredHolder"];
    Cluster::scripted(&answers).tenure(&["check", "--lease", "x", "--", "sh"]).says(0, &said);
}

#[test]
fn a_server_without_access_reviews_is_a_note() {
    let answers = [("GET ", 200, LEASE), ("dryRun=All", 200, LEASE), ("POST ", 404, r#"{"message":"no such resource"}"#)];
    let parts = ["ok    Lease default/x is there", "note  this server does not answer access reviews"];
    Cluster::scripted(&answers).tenure(&["check", "--lease", "x", "--", "sh"]).says(0, &parts);
}

#[test]
fn a_server_that_answers_reads_and_no_writes_fails_the_check() {
    let check = |status| {
        let answers = [("GET ", 200, LEASE), ("dryRun=All", status, LEASE), ("POST ", 201, r#"{"status":{"allowed":true}}"#)];
        Cluster::scripted(&answers).tenure(&["check", "--lease", "x", "--", "sh"])
    };

    check(200).says(0, &["ok    a dry run of a write is answered in "]);
    for (status, code) in [(403, 77), (500, 69), (422, 78)] {
        check(status).says(code, &["ok    Lease default/x is there", "FAIL  a dry run of a write: "]);
    }
    [400, 409].into_iter().for_each(|status| check(status).says(0, &["ok    Lease default/x is there"]));
    check(0).says(69, &["FAIL  a dry run of a write: ", "reads are answered, writes are not: a webhook on Leases?"]);
}

#[test]
fn a_namespace_that_is_not_there_is_told_from_a_lease_that_is_not() {
    let absent = |name| format!(r#"{{"message":"{name} not found","details":{{"kind":"leases","name":"{name}"}}}}"#);
    let cluster = Cluster::scripted(&[
        (
            "GET /api/v1/namespaces/nope ",
            404,
            r#"{"message":"namespaces \"nope\" not found","details":{"kind":"namespaces","name":"nope"}}"#,
        ),
        ("labelSelector=", 200, r#"{"items":[]}"#),
        ("/leases/x ", 404, &absent("x")),
        ("/leases/x-slot-1 ", 404, &absent("x-slot-1")),
        ("POST ", 404, r#"{"message":"no such resource"}"#),
    ]);
    let remedy = "FAIL  there is no namespace nope: create it, or name another with --namespace";
    cluster.tenure(&["check", "--lease", "x", "--namespace", "nope", "--", "sh"]).says(78, &[remedy]);
    for line in [&["status", "x"][..], &["status", "x", "--slots", "2"], &["step-down", "x"], &["pause", "x"]] {
        cluster.tenure(&[line, &["--namespace", "nope"]].concat()).says(2, &["there is no namespace nope"]);
        cluster.tenure(&[line, &["--namespace", "yes"]].concat()).says(2, &["there is no Lease x in namespace yes"]);
    }
    let prune = |namespace, form| cluster.tenure(&["prune", "--namespace", namespace, "-o", form]);
    prune("nope", "table").says(2, &["there is no namespace nope"]);
    prune("nope", "json").says(2, &["[]"]);
    prune("yes", "table").says(0, &[]);
}

#[test]
fn a_proxy_that_is_not_used_is_named_where_the_server_is_not_reached() {
    let cluster = Cluster::nowhere();
    let variables = [cluster.variable(), ("HTTPS_PROXY", "http://192.0.2.2:3128")];
    for line in [&["check", "--lease", "x", "--", "sh"][..], &["status", "x"], &["step-down", "x"]] {
        tenure(line, &variables).says(69, &["HTTPS_PROXY is not used"]);
    }
}

#[test]
fn a_replica_whose_variable_of_preference_is_not_set_fails_the_check_as_it_would_fail() {
    let prefer = ["--set", "lease.prefer.from=ZONE", "--set", "lease.prefer.order=[a, b]"];
    let (cluster, said) = (Cluster::nowhere(), "the variable ZONE is not set, or is empty: set it in the pod");
    let line = |options: &[&'static str]| [&["check", "--lease", "x"], options, &prefer, &["--", "sh"]].concat();
    for zone in [&[][..], &[("ZONE", "")]] {
        tenure(&line(&[]), &[&[cluster.variable()], zone].concat()).says(78, &["FAIL  ", said]);
        tenure(&line(&["--offline"]), zone).says(0, &["note  ", said]);
    }
    tenure(&line(&["--offline"]), &[("ZONE", "c")]).says(0, &["a replica can run here: 0 failures"]);
}

#[test]
fn a_pod_that_does_not_know_the_address_that_it_is_to_publish_fails_the_check_as_it_would_fail() {
    let service = ["--set", "service.endpointSlice=leader", "--set", "service.ports=[{port: 80}]"];
    let line = [&["check", "--offline", "--lease", "x"], &service[..], &["--", "sh"]].concat();
    let parts =
        ["FAIL  service.endpointSlice: neither POD_IPS nor POD_IP", "28 or more (withdrawal of the address up to 500ms, "];
    tenure(&line, &[]).says(78, &parts);
    tenure(&line, &[("POD_IP", "here")]).says(78, &["FAIL  service.endpointSlice: \"here\" is not an address"]);
    tenure(&line, &[("POD_IPS", "10.0.0.1,fd00::1")]).says(0, &["ok    the workload is /"]);
}
