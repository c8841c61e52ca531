//! Access to a cluster that cannot work is refused before anything is asked of a server, and no secret is shown.

use std::{fs, path::Path};

use support::Scratch;

use crate::world::{Cluster, Pod, TENURE, kubeconfig, tenure, tenure_in_a_pod};

const HELD: &str =
    r#"{"metadata":{"name":"x","namespace":"default","uid":"u","resourceVersion":"7"},"spec":{"holderIdentity":"a"}}"#;

#[test]
fn no_cluster_is_78_and_says_what_was_looked_for_and_what_works_without() {
    let place = Scratch::new();
    let proof = place.join("ran").to_str().unwrap().to_owned();
    let run = ["--lease", "x", "--", "touch", &proof];
    let run_in_a_namespace = ["--lease", "x", "--namespace", "shop", "--", "touch", &proof];
    for face in [&["check", "--lease", "x"][..], &["status", "x"], &run, &run_in_a_namespace] {
        let parts = ["KUBERNETES_SERVICE_HOST is not set", "/home/nobody/.kube/config does not exist", "`tenure demo`"];
        tenure(face, &[("HOME", "/home/nobody")]).says(78, &parts);
    }
    for nowhere in [&[][..], &[("HOME", "")]] {
        tenure(&["status", "x"], nowhere).says(78, &["neither KUBECONFIG nor HOME is set"]);
    }
    assert!(!Path::new(&proof).exists(), "the workload never runs unled");
}

#[test]
fn a_kubeconfig_that_can_be_read_only_once_starts_no_replica() {
    let cluster = Cluster::embedded();
    let run = |script: &str| {
        let mut command = std::process::Command::new("sh");
        command.args(["-c", script, TENURE]).arg(cluster.kubeconfig()).env("TENURE_LEASE__CREATION_WAIT", "0s").output().unwrap()
    };
    for script in [
        "cat \"$1\" | exec \"$0\" lock x --try --kubeconfig /dev/stdin -- true",
        "exec \"$0\" lock x --try --kubeconfig /dev/stdin -- true <\"$1\"",
    ] {
        let output = run(script);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("cannot use the kubeconfig /dev/stdin: each elector reads it again"), "{said}");
        assert_eq!(output.status.code(), Some(78));
    }

    let fifo = "f=$(printf '%s\\033[31m' \"$1\") && mkfifo \"$f\" && { cat \"$1\" >\"$f\" & }";
    let said = run(&format!("{fifo} && exec \"$0\" lock x --try --kubeconfig \"$f\" -- true")).stderr;
    let said = String::from_utf8_lossy(&said);
    assert!(said.contains("\u{fffd}[31m: each elector reads it again") && !said.contains('\u{1b}'), "{said:?}");

    let output = run("KUBECONFIG=$1:/nonexistent:/dev/null exec \"$0\" lock x --try -- true");
    assert_eq!(output.status.code(), Some(0), "one of several may be missing: {}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_kubeconfig_that_cannot_be_used_is_78_and_names_the_file() {
    let place = Scratch::new();
    let broken = place.file("broken", "{");
    let nameless = place.file("nameless", "apiVersion: v1\nkind: Config\n");
    for path in ["/nonexistent/kubeconfig", &broken, &nameless] {
        let run = ["--lease", "x", "--namespace", "shop", "--", "true"];
        for face in [&["check", "--lease", "x"][..], &["status", "x"], &["--lease", "x", "--", "true"], &run] {
            tenure(face, &[("KUBECONFIG", path)]).says(78, &["cannot use the kubeconfig", path]);
        }
    }
}

#[test]
fn a_pod_whose_access_is_broken_is_78_and_names_the_file_or_the_variable() {
    let pod = Pod::with_an_account_in("A b");
    let [home, host, (port, number)] = pod.variables();
    let run = |variables: &[(&str, &str)]| tenure_in_a_pod(&pod.account, &["--lease", "x", "--", "true"], variables);
    run(&[home, host]).says(78, &["KUBERNETES_SERVICE_PORT"]);
    run(&[home, host, (port, "http")]).says(78, &["KUBERNETES_SERVICE_PORT is \"http\", which is not a port"]);

    let ended = run(&[home, host, (port, number)]);
    ended.says(78, &["serviceaccount/namespace) is \"A b\", which is not a valid namespace: name one with --namespace"]);
    assert!(!ended.err.contains("kubectl"), "{ended:?}");
    let named = ["status", "none", "--namespace", "shop"];
    tenure_in_a_pod(&pod.account, &named, &pod.variables()).says(2, &["no Lease none in namespace shop"]);

    pod.account.file("ca.crt", "no certificate");
    run(&pod.variables()).says(78, &["serviceaccount/ca.crt holds no PEM certificate"]);
    fs::remove_file(pod.account.join("ca.crt")).unwrap();
    run(&pod.variables()).says(78, &["serviceaccount/ca.crt cannot be read: No such file"]);
}

#[test]
fn the_cluster_is_named_on_the_command_line_as_kubectl_has_it() {
    let two = "[{name: c, context: {cluster: c, user: u}}, {name: nowhere, context: {cluster: d, user: u}}]";
    let cluster = Cluster::scripted(&[("/leases/x ", 200, HELD)])
        .with("[{name: c, context: {cluster: c, user: u}}]", two)
        .with("clusters: [", "clusters: [{name: d, cluster: {server: 'http://127.0.0.1:1'}}, ")
        .with("current-context: c", "current-context: nowhere");
    let path = cluster.kubeconfig();

    cluster.tenure(&["status", "x"]).says(69, &["http://127.0.0.1:1/"]);
    cluster.tenure(&["status", "x", "--context", "c"]).says(1, &["expired   a"]);
    tenure(&["--kubeconfig", path, "--context=c", "-n", "default", "status", "x"], &[]).says(1, &["expired   a"]);
    tenure(&["--kubeconfig", path, "status", "x"], &[("KUBECONFIG", "/none")]).says(69, &["http://127.0.0.1:1/"]);
    cluster
        .tenure(&["status", "x", "--context", "d"])
        .says(78, &["there is no context d", "--context chooses one of c, nowhere"]);
}

#[test]
fn in_a_pod_a_context_is_one_of_the_home_kubeconfig() {
    let pod = Pod::with_an_account_in("shop");
    let status = |more: &[&str]| tenure_in_a_pod(&pod.account, &[&["status", "x"], more].concat(), &pod.variables());
    status(&[]).says(2, &["no Lease x in namespace shop"]);
    status(&["--context", "c"]).says(69, &["http://127.0.0.1:1/"]);
}

#[test]
fn a_lock_holds_its_lease_in_the_context_that_its_line_names() {
    let server = Cluster::embedded();
    let there = fs::read_to_string(server.kubeconfig()).unwrap();
    let current = there.lines().find_map(|line| line.strip_prefix("current-context: ")).unwrap();
    let file = server.place().file("switched", there.replace(&format!("current-context: {current}"), "current-context: none"));
    let held = ["held", "--for", "1s"];
    let lock =
        [&["--kubeconfig", &file, "--context", current, "lock", "x", "--set=lease.creationWait=0s", "--", TENURE], &held[..]];
    tenure(&lock.concat(), &[]).says(0, &[]);
}

#[test]
fn who_acts_as_another_user_is_that_one_in_each_request() {
    let cluster = Cluster::scripted(&[("impersonate-user: ann", 200, HELD)]);
    cluster.tenure(&["pause", "x", "--as", "ann"]).says(0, &["paused", "Lease default/x at http://127.0.0.1:"]);
    cluster.tenure(&["pause", "x"]).says(69, &["no answer"]);
    let in_group = Cluster::scripted(&[("impersonate-group: ops", 200, HELD)]);
    in_group.tenure(&["pause", "x", "--as", "ann", "--as-group", "ops"]).says(0, &["paused"]);
}

#[test]
fn what_changes_something_says_first_in_which_cluster_and_namespace() {
    let held = r#"{"metadata":{"name":"x","namespace":"shop","uid":"u","resourceVersion":"7"},"spec":{"holderIdentity":"a"}}"#;
    let cluster = Cluster::scripted(&[("labelSelector=", 200, r#"{"items":[]}"#), ("HTTP", 200, held)]);
    let text = fs::read_to_string(cluster.kubeconfig()).unwrap();
    let server = text.split('\'').nth(1).unwrap();
    let other = format!("other_{:032x}", 1);
    for (line, code, what) in [
        (&["prune"][..], 0, "Leases of namespace shop"),
        (&["confirm-dead", "x", "--holder", &other], 1, "Lease shop/x"),
        (&["step-down", "x"], 0, "Lease shop/x"),
        (&["pause", "x"], 0, "Lease shop/x"),
        (&["resume", "x"], 0, "Lease shop/x"),
    ] {
        let ended = cluster.tenure(&[line, &["-n", "shop"]].concat());
        let said = ended.err.lines().next().unwrap_or_default();
        assert!(ended.code == Some(code) && said.starts_with(&format!("tenure: {what} at {server}/ (")), "{ended:?}");
    }
    let looks = cluster.tenure(&["prune", "--dry-run", "-n", "shop"]);
    assert_eq!((looks.code, looks.err.as_str()), (Some(0), ""), "it changes nothing");
}

#[test]
fn a_request_is_given_up_after_the_time_that_is_named() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let cluster = Cluster::at(&format!("server: 'http://{}'", silent.local_addr().unwrap()));
    cluster.tenure(&["status", "x", "--request-timeout", "200ms"]).says(69, &["200ms"]);
}

#[test]
fn a_plugin_that_leaves_something_running_has_given_its_credentials() {
    let script = "sleep 15 & echo 'status: {token: t}'";
    let plugin = format!("apiVersion: client.authentication.k8s.io/v1, command: /bin/sh, args: [-c, \"{script}\"]");
    let cluster = Cluster::scripted(&[("GET ", 200, HELD)]).with("user: {}", &format!("user: {{exec: {{{plugin}}}}}"));

    cluster.tenure(&["status", "x"]).says(1, &["expired   a "]);
}

#[test]
fn no_secret_of_a_kubeconfig_or_of_its_plugin_is_said() {
    let place = Scratch::new();
    let broken = place.file("broken", "users:\n- name: u\n  user: {token: hunter2, password: [hunter2}\n");
    let odd = place.file("odd", "users:\n- name: u\n  user: hunter2\n");
    let plugin = |name: &str, script: &str| {
        let exec = format!("command: /bin/sh, args: [-c, \"{script}\", hunter2], env: [{{name: KEY, value: hunter2}}]");
        let exec = format!("exec: {{apiVersion: client.authentication.k8s.io/v1, {exec}}}");
        place.file(name, kubeconfig("server: 'https://127.0.0.1:1'").replace("user: {}", &format!("user: {{{exec}}}")))
    };
    let fails = plugin("fails", "echo hunter2; exit 1");
    let babbles = plugin("babbles", "echo status: hunter2");
    for (path, code, said) in [
        (&broken, 78, "broken: line 3 cannot be parsed"),
        (&odd, 78, "odd: line 3 cannot be parsed"),
        (&fails, 77, "the credential plugin /bin/sh failed (exit status: 1)"),
        (&babbles, 77, "is not an ExecCredential"),
    ] {
        for line in [&["status", "x"][..], &["check", "--lease", "x", "--", "true"]] {
            let ended = tenure(line, &[("KUBECONFIG", path)]);
            ended.says(code, &[said]);
            assert!(!ended.out.contains("hunter2") && !ended.err.contains("hunter2"), "{ended:?}");
        }
    }
    let ended = tenure(&["--lease", "x", "--", "true"], &[("KUBECONFIG", &broken)]);
    ended.says(78, &["broken: line 3 cannot be parsed"]);
    assert!(!ended.err.contains("hunter2"), "{ended:?}");
}
