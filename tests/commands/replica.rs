//! What a replica says of its surroundings, and which of them it copes with.

use std::{
    ffi::OsStr,
    fs,
    net::{TcpListener, TcpStream},
    os::unix::ffi::OsStrExt as _,
};

use support::Scratch;

use crate::world::{Cluster, Pod, Running, TENURE, tenure_among_hidden, tenure_as_pid_1_without_proc, tenure_in_a_pod};

#[test]
fn a_replica_whose_plugin_fails_or_gives_what_no_header_carries_keeps_trying() {
    let token = r#"{"status":{"token":"t\n"}}"#;
    for (bad, said) in [("exit 1", "failed (exit status: 1)"), ("cat token; exit", "a token that a header can carry")] {
        let lease = r#"{"metadata":{"name":"x","namespace":"default","uid":"u","resourceVersion":"1"},
            "spec":{"holderIdentity":"pod-1","leaseDurationSeconds":600}}"#;
        let cluster = Cluster::scripted(&[("watch=", 410, "{}"), ("GET ", 200, lease)]);
        let good = cluster.place().join("good");
        let bad = bad.replace("token", &cluster.place().file("token", token));
        let script = format!("[ -e {} ] || {{ {bad}; }}; echo 'status: {{token: t}}'", good.display());
        let plugin = format!("apiVersion: client.authentication.k8s.io/v1, command: /bin/sh, args: [-c, \"{script}\"]");
        let cluster = cluster.with("user: {}", &format!("user: {{exec: {{{plugin}}}}}"));

        let replica = cluster.starts(&["--lease", "x", "--", "true"]);

        replica.says(&[said]);
        fs::write(good, "").unwrap();
        replica.says(&["another replica holds the Lease", "pod-1"]);
        assert_eq!(replica.end(), Some(0));
    }
}

#[test]
fn a_replica_says_what_is_odd_about_it() {
    let cluster = Cluster::at("server: 'https://api.invalid', insecure-skip-tls-verify: true");
    let variables = [cluster.variable(), ("HTTPS_PROXY", "http://proxy.invalid:3128")];

    let replica = Running::start(&["--lease", "A_B", "--", "true"], &variables);

    replica.says(&["the Lease is called a-b", "\"A_B\""]);
    replica.says(&["not PID 1"]);
    replica.says(&["the API server is https://api.invalid", "its certificate is not verified"]);
    replica.says(&["HTTPS_PROXY is not used"]);
    assert_eq!(replica.end(), Some(0));
}

#[test]
fn a_replica_that_could_not_see_what_is_left_does_not_start() {
    let cluster = Cluster::nowhere();
    let words = "no end of the workload could be proved: /proc hides other users' processes: mount it without hidepid";
    tenure_among_hidden(&["--lease", "x", "--", "true"], &[cluster.variable()]).says(70, &[words]);
    tenure_among_hidden(&["check", "--offline", "--lease", "x"], &[]).says(70, &["FAIL  no end of the workload could be proved"]);
    tenure_among_hidden(&["--leader-election=off", "--", "true"], &[]).says(0, &[]);
}

/// As in a chroot. Without /proc only the kernel knows what the program has left.
#[test]
fn without_proc_a_program_that_leaves_a_daemon_is_started_again() {
    let twice =
        "--leader-election=off --set workload.onExit=restart --set workload.restart.delay=10ms --set workload.restart.burst=2";
    let line: Vec<_> = twice.split(' ').chain(["--", "sh", "-c"]).chain(["echo ran; setsid sleep 1000 & exit 3"]).collect();

    let ended = tenure_as_pid_1_without_proc(&line);

    ended.says(3, &[]);
    assert_eq!(ended.out.matches("ran").count(), 3, "{ended:?}");
}

#[test]
fn a_replica_says_which_endpoint_of_traces_cannot_be_used() {
    let cluster = Cluster::nowhere();
    for endpoint in [&b"http://127.0.0.1:99999"[..], b"http://\xff"] {
        let variables =
            [("KUBECONFIG", OsStr::new(cluster.kubeconfig())), ("OTEL_EXPORTER_OTLP_ENDPOINT", OsStr::from_bytes(endpoint))];
        let replica = Running::start(&["--lease", "x", "--", "true"], &variables);
        replica.says(&["OTEL_EXPORTER_OTLP_ENDPOINT is not a URL"]);
        assert_eq!(replica.end(), Some(0));
    }
}

#[test]
fn a_replica_uses_the_kubeconfig_at_home_where_there_is_nothing_else() {
    let (cluster, home) = (Cluster::embedded(), Scratch::new());
    fs::create_dir(home.join(".kube")).unwrap();
    fs::copy(cluster.kubeconfig(), home.join(".kube/config")).unwrap();

    let replica = Running::start(&["--lease", "x", "--", "sleep", "60"], &[("HOME", home.to_str().unwrap())]);

    replica.says(&["the Lease was read"]);
    assert_eq!(replica.end(), Some(0));
}

#[test]
fn a_replica_says_no_more_than_its_level() {
    let cluster = Cluster::nowhere();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    for (level, warns) in [("warn", true), ("error", false)] {
        let listen = format!("http.listen={}", taken.local_addr().unwrap());

        let ended = cluster.tenure(&["--lease", "x", "--log-level", level, "--set", &listen, "--", "true"]);

        ended.says(78, &["(http.listen)"]);
        assert_eq!(ended.err.contains("not PID 1"), warns, "{ended:?}");
    }
}

#[test]
fn a_replica_of_a_pod_asks_by_its_service_account_whatever_kubeconfig_is_at_home_and_a_server_with_an_address_of_ipv6() {
    let pod = Pod::with_an_account_in("billing");
    let [home, _, port] = pod.variables();
    let variables = [home, ("KUBERNETES_SERVICE_HOST", "::1"), port];

    let replica = Running::in_a_pod(&pod.account, &["--lease", "x", "--", "true"], &variables);

    replica.says(&[&format!("the API server is https://[::1]:{}", port.1), "the pod's service account"]);
    assert_eq!(replica.end(), Some(0));
}

#[test]
fn a_replica_says_where_it_serves_probes() {
    let cluster = Cluster::nowhere();

    let replica = cluster.starts(&["--lease", "x", "--set", "http.listen=127.0.0.1:0", "--", "true"]);

    let said = replica.says(&["serving probes on 127.0.0.1:"]);
    TcpStream::connect(said.split_whitespace().last().unwrap()).unwrap();
    assert_eq!(replica.end(), Some(0));
}

#[test]
fn a_replica_of_a_pod_without_a_namespace_of_its_own_uses_the_one_that_is_configured() {
    let pod = Pod::with_an_account_in("billing");
    fs::remove_file(pod.account.join("namespace")).unwrap();

    let replica = Running::in_a_pod(&pod.account, &["--lease", "x", "--namespace", "shop", "--", "true"], &pod.variables());

    replica.says(&["the API server is https://127.0.0.1:", "the pod's service account"]);
    assert_eq!(replica.end(), Some(0));
    tenure_in_a_pod(&pod.account, &["--lease", "x", "--", "true"], &pod.variables()).says(
        78,
        &["does not tell its own (/var/run/secrets/kubernetes.io/serviceaccount/namespace): name one with --namespace"],
    );
}

#[test]
fn few_open_files_cost_no_fuse_where_more_are_granted_and_are_told_where_they_are_not() {
    let cluster = Cluster::embedded();
    let limited = |limit: &str| {
        let report = "ulimit -Sn; grep 'open files' /proc/$PPID/limits";
        let replica = ["--lease", "x", "--set", "lease.creationWait=0s", "--", "sh", "-c", report];
        let limited = ["--leader-election=off", "--", "prlimit", limit, TENURE];
        cluster.tenure(&[&limited[..], &replica].concat())
    };

    let raised = limited("--nofile=33:200");
    raised.says(0, &["33\nMax open files"]);
    let soft: u64 = raised.out.split_whitespace().nth(4).and_then(|limit| limit.parse().ok()).expect("a limit");
    assert!((160..180).contains(&soft), "160 beside those that are open: {raised:?}");
    assert!(!raised.err.contains("kernel fuse"), "{raised:?}");

    limited("--nofile=33:33").says(0, &["33\n", "no kernel fuse", "the limit on open files (ulimit -n) has room for 0 of them"]);
}
