//! Bad input gets one clear message that names the source and the remedy, and the documented exit code.

use std::{fs, net::Ipv4Addr, os::unix::fs::PermissionsExt, path::Path, process::Command};

use nix::unistd::geteuid;
use support::Scratch;
use tokio::net::TcpSocket;

use crate::world::{Cluster, Running, TENURE, embedded, tenure};

#[test]
fn every_mistake_is_said_at_once() {
    let place = Scratch::new();
    let file = place.file("tenure.yaml", "lease:\n  name: x\n  duration: 15\n\nworkload:\n  runz: always\n");
    let variables = [("TENURE_CONFIG", file.as_str()), ("TENURE_LOG__LEVEL", "loud")];
    let ended = tenure(&["--set", "workload.onLoss=stay"], &variables);
    ended.says(
        78,
        &[
            "refused for 5 reasons",
            &format!("{file}:3: lease.duration: \"15\" is not a duration"),
            &format!("{file}:6: workload.runz: "),
            "TENURE_LOG__LEVEL: log.level: \"loud\" is not one of error, warn, info, debug, trace",
            "--set workload.onLoss: workload.onLoss: \"stay\" is not one of follow, exit",
            "workload.command: there is no workload",
        ],
    );
}

#[test]
fn a_flag_that_does_not_exist_is_not_advised_as_the_workload() {
    for line in [&["--watch"][..], &["check", "--watch"]] {
        let ended = tenure(line, &[]);
        ended.says(64, &["unexpected argument '--watch' found"]);
        assert!(!ended.err.contains("as a value"), "{ended:?}");
    }
    tenure(&["--leese", "x"], &[]).says(64, &["a similar argument exists: '--lease'"]);
}

#[test]
fn a_command_line_that_cannot_be_parsed_is_64_and_a_bad_value_on_a_flag_78() {
    tenure(&["--leese", "x"], &[]).says(64, &["unexpected argument '--leese'", "--lease"]);
    tenure(&["sleep", "10"], &[]).says(64, &["unexpected argument 'sleep'", "the workload goes after --"]);
    tenure(&["--lease", "a", "status"], &[])
        .says(64, &["unexpected argument 'status'", "the command status goes first, before all options"]);
    tenure(&["--lease", "x", "--leader-election=maybe", "--", "true"], &[])
        .says(78, &["--leader-election: \"maybe\" is neither on nor off"]);
    tenure(&["status", "x", "-o", "xml"], &[]).says(78, &["invalid value 'xml'"]);
    tenure(&["--help"], &[]).says(0, &["Usage: tenure", "Exit codes:"]);
    tenure(&["--version"], &[]).says(0, &["tenure "]);
}

#[test]
fn a_flag_that_a_command_has_no_use_for_is_neither_in_its_help_nor_taken() {
    let scripts = tenure(&["completions", "fish"], &[]).out;
    let of_a_replica = "--slots --identity --lease-duration --log-level --log-format --leader-election";
    for (command, unused) in [
        ("status", "--identity --lease-duration --log-level --log-format --leader-election"),
        ("prune", &format!("{of_a_replica} --lease")),
        ("step-down", of_a_replica),
        ("confirm-dead", of_a_replica),
        ("pause", of_a_replica),
        ("resume", of_a_replica),
        ("promote", of_a_replica),
        ("demote", of_a_replica),
        ("lock", "--leader-election"),
        ("task", "--leader-election --slots"),
        ("apply", "--leader-election --slots"),
        ("recover", "--leader-election --slots"),
    ] {
        let help = tenure(&[command, "--help"], &[]).out;
        let page = tenure(&["man", command], &[]).out.replace('\\', "");
        let (here, flags) =
            (format!("using_subcommand {command}\""), |line: &str, flag: &str| line.contains(&format!(" -l {flag} ")));
        let completes = |flag: &str| scripts.lines().any(|line| line.contains(&here) && flags(line, &flag[2..]));
        assert!(completes("--set"), "{command}");
        for flag in unused.split(' ') {
            let is_shown = |text: &str| text.split([' ', '\n']).any(|word| word == flag);
            assert!(help.contains("--set") && !is_shown(&help) && !is_shown(&page), "{command} {flag}: {help}");
            assert!(!completes(flag), "{command} {flag} is completed");
            tenure(&[command, flag, "x"], &[]).says(78, &[&format!("'{flag} <"), "this command does not use it: remove it"]);
        }
    }
}

#[test]
fn a_program_that_cannot_run_leaves_the_lease_alone_as_far_as_its_mode_tells() {
    let cluster = Cluster::embedded();
    let run = |program: &str| cluster.tenure(&["--lease", "x", "--set", "lease.creationWait=0s", "--", program]);
    run("/nowhere").says(127, &["/nowhere: not found"]);
    run("/etc/passwd").says(126, &["/etc/passwd: is not executable"]);
    cluster.tenure(&["status", "x"]).says(2, &[]);
    tenure(&["check", "--offline", "--lease", "x", "--", "/nowhere"], &[])
        .says(78, &["FAIL  the workload cannot be executed (127): /nowhere: not found"]);

    for (text, code, words) in [
        ("#!/no/such/int\n", 127, "cannot execute: No such file or directory (the file, or the interpreter"),
        ("echo no line\n", 126, "cannot execute: Exec format error (neither a program for this machine nor a script"),
    ] {
        let script = cluster.place().file("script", text);
        fs::set_permissions(&script, PermissionsExt::from_mode(0o755)).unwrap();
        run(&script).says(code, &[&format!("{script}: {words}"), "spawn-failed"]);
        cluster.tenure(&["status", "x"]).says(1, &["free"]);
    }
}

#[test]
fn the_last_words_of_a_failed_start_are_where_kubelet_looks_and_those_of_a_command_are_not() {
    let place = Scratch::new();
    // Only execve finds out.
    let nothing = place.file("nothing", "\x7fELF");
    fs::set_permissions(&nothing, PermissionsExt::from_mode(0o755)).unwrap();
    for (line, code, words) in [
        ("--leese x", 64, "error: unexpected argument '--leese' found"),
        ("run --lease", 64, "error: a value is required for '--lease <NAME>'"),
        ("--lease x", 78, "tenure: the configuration is refused:\n  workload.command: there is no workload"),
        ("--leader-election=off -- /nonexistent", 127, "tenure: /nonexistent: not found"),
        ("--lease x -- true", 78, "tenure: no cluster to talk to"),
        (&format!("--leader-election=off -- {nothing}"), 126, &format!("tenure: {nothing}: cannot execute")),
        ("status --leese", 64, ""),
        ("check --leese", 64, ""),
    ] {
        let (ended, left) = in_a_container(": >/dev/termination-log", line);
        assert_eq!(ended, Some(code), "{line}: {left}");
        assert!(left.starts_with(words) && words.is_empty() == left.is_empty(), "{line}: {left}");
    }
}

#[test]
fn last_words_replace_earlier_ones_and_wait_for_nobody_who_would_read_them() {
    let earlier = format!("echo {} >/dev/termination-log", "x".repeat(500));
    let (ended, left) = in_a_container(&earlier, "--lease x");
    assert_eq!(ended, Some(78));
    assert!(left.starts_with("tenure: the configuration is refused") && !left.contains('x'), "{left}");

    assert_eq!(in_a_container("mkfifo /dev/termination-log", "--lease x"), (Some(78), String::new()));
}

#[test]
fn a_start_that_fails_beside_a_tenure_that_is_pid_1_leaves_no_last_words() {
    let script = "\"$0\" stauts; \"$0\" --lease x; read -r line </dev/termination-log; echo \"left: $line\"";
    let make = "mount -t proc proc /proc && : >/dev/termination-log";
    let (ended, said) = in_namespaces(
        &["--pid", "--fork"],
        &format!("{make} && exec \"$1\" --leader-election=off -- sh -c '{script}' \"$1\""),
        "",
    );
    assert_eq!((ended, said.as_str()), (Some(0), "left: \n"));
}

/// The exit code of a run with its own /dev/termination-log, which this command makes, and what it says afterwards if it is a
/// regular file.
fn in_a_container(make: &str, line: &str) -> (Option<i32>, String) {
    in_namespaces(&[], make, line)
}

/// The same in further namespaces.
fn in_namespaces(further: &[&str], make: &str, line: &str) -> (Option<i32>, String) {
    let script = r#"mount -t tmpfs tmpfs /dev && eval "$0" || exit 99
        timeout 30 "$@"; code=$?; [ -f /dev/termination-log ] || exit $code
        while IFS= read -r line; do echo "$line"; done </dev/termination-log; exit $code"#;
    let mut unshare = Command::new("unshare");
    if !geteuid().is_root() {
        unshare.args(["--user", "--map-root-user"]);
    }
    unshare.args(further).args(["--mount", "sh", "-c", script, make, TENURE]);
    let output = unshare.args(line.split(' ')).env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").output().unwrap();
    (output.status.code(), String::from_utf8(output.stdout).unwrap())
}

#[test]
fn a_server_that_is_not_there_is_69() {
    // Bound but not listening, so that nobody else gets it.
    let port = TcpSocket::new_v4().unwrap();
    port.bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    let address = &port.local_addr().unwrap().to_string();
    for cluster in [format!("server: 'http://{address}'"), format!("server: 'https://{address}', insecure-skip-tls-verify: true")]
    {
        let cluster = Cluster::at(&cluster);
        for face in [&["check", "--lease", "x"][..], &["status", "x"]] {
            // Nor are the system's certificates there, as in an image made from scratch: nothing verifies one.
            let variables = [cluster.variable(), ("SSL_CERT_FILE", "/dev/null"), ("SSL_CERT_DIR", "/nonexistent")];
            tenure(face, &variables).says(69, &[address, "onnection refused"]);
        }
    }
}

#[test]
fn no_permission_is_77_and_says_for_what() {
    let refusal = r#"{"kind":"Status","code":403,"message":"leases.coordination.k8s.io \"x\" is forbidden: no"}"#;
    let denied = r#"{"status":{"allowed":false,"reason":"no rule"}}"#;
    let allowed = r#"{"status":{"allowed":true}}"#;
    let cluster = Cluster::scripted(&[
        ("GET ", 403, refusal),
        ("\"update\"", 201, denied),
        ("\"watch\"", 201, denied),
        ("POST ", 201, allowed),
    ]);
    cluster.tenure(&["status", "x"]).says(77, &["403", "is forbidden"]);
    let parts = [
        "FAIL  Lease default/x cannot be read",
        "FAIL  update Lease default/x is not permitted (no rule): add this to the rules of the Role of this service account:\n        - {",
        "note  watch Lease default/x is not permitted (no rule): standbys poll",
        "ok    create leases in default",
    ];
    cluster.tenure(&["check", "--lease", "x"]).says(77, &parts);
}

#[test]
fn a_reply_that_is_no_lease_is_neither_a_free_one_nor_none() {
    let another = r#"{"metadata":{"name":"another","uid":"u","resourceVersion":"7"},"spec":{}}"#;
    let failure = r#"{"kind":"Status","status":"Failure","code":500}"#;
    let cluster = Cluster::scripted(&[
        ("leases/list", 200, "[]"),
        ("leases/another", 200, another),
        ("leases/page", 200, "<html>"),
        ("leases/x", 200, another),
        ("leases/kind", 200, r#"{"kind":"ConfigMap","metadata":{"name":"kind","uid":"u","resourceVersion":"7"}}"#),
        ("leases/version", 200, r#"{"apiVersion":"v1","metadata":{"name":"version","uid":"u","resourceVersion":"7"}}"#),
        ("leases/namespace", 200, r#"{"metadata":{"name":"namespace","namespace":"y","uid":"u","resourceVersion":"7"}}"#),
        (
            "labelSelector=kind",
            200,
            r#"{"items":[{"kind":"ConfigMap","metadata":{"name":"kind","uid":"u","resourceVersion":"7"}}]}"#,
        ),
        ("leases/failure", 200, failure),
        ("labelSelector=none", 200, r#"{"items":null}"#),
        ("labelSelector=failure", 200, failure),
    ]);
    for name in ["list", "x", "failure", "kind", "version", "namespace"] {
        cluster.tenure(&["status", name]).says(69, &["not a Lease of this name"]);
    }
    cluster.tenure(&["status", "another"]).says(1, &["free"]);
    cluster.tenure(&["status", "page"]).says(69, &["is not JSON"]);
    for selector in ["none", "failure", "kind"] {
        cluster.tenure(&["status", "-l", selector]).says(69, &["not a list of Leases"]);
    }
}

#[test]
fn without_permission_or_with_the_wrong_authority_a_replica_and_a_command_say_so_and_nothing_runs() {
    let place = Scratch::new();
    let proof = place.join("ran").to_str().unwrap().to_owned();
    let refusal = r#"{"kind":"Status","code":403,"message":"leases.coordination.k8s.io \"x\" is forbidden: no"}"#;
    let forbidden = Cluster::scripted(&[("HTTP", 403, refusal)]);
    let (ours, theirs) = (place.join("ours"), place.join("theirs"));
    let _servers = [embedded(&ours), embedded(&theirs)];
    let mixed = place.file("mixed", with_authority_of(&ours, &theirs));
    for (kubeconfig, said) in [(forbidden.kubeconfig(), "is forbidden"), (&mixed, "certificate")] {
        let replica = Running::start(&["--lease", "x", "--", "touch", &proof], &[("KUBECONFIG", kubeconfig)]);
        replica.says(&["the API server is http", kubeconfig]);
        replica.says(&[said]);
        assert_eq!(replica.end(), Some(0));
    }
    assert!(!Path::new(&proof).exists(), "the workload ran unled");
    for face in [&["check", "--lease", "x"][..], &["status", "x"]] {
        tenure(face, &[("KUBECONFIG", &mixed)]).says(69, &["certificate"]);
    }
}

/// One kubeconfig with the certificate authority of another.
fn with_authority_of(ours: &Path, other: &Path) -> String {
    let key = "certificate-authority-data:";
    let line = |path: &Path| {
        let text = fs::read_to_string(path).unwrap();
        text.lines().find(|line| line.trim_start().starts_with(key)).unwrap().to_owned()
    };
    fs::read_to_string(ours).unwrap().replace(&line(ours), &line(other))
}

#[test]
fn a_time_that_is_taken_for_a_lease_is_told_how_it_is_written() {
    let cluster = Cluster::embedded();
    let said = ["to wait that long, write --wait=5s", "there is no Lease 5s in namespace default"];
    cluster.tenure(&["step-down", "--wait", "5s"]).says(2, &said);
    assert!(!cluster.tenure(&["step-down", "--wait=5s", "x"]).err.contains("that long"));
}

#[test]
fn of_a_pool_only_a_slot_that_is_named_is_steered() {
    let absent = r#"{"message":"not found","details":{"kind":"leases","name":"NAME"}}"#;
    let names = ["worker ", "worker-slot-1 "].map(|name| (format!("/leases/{name}"), absent.replace("NAME", name.trim())));
    let cluster = Cluster::scripted(&names.each_ref().map(|(part, absent)| (part.as_str(), 404, absent.as_str())));
    let pool = [cluster.variable(), ("TENURE_LEASE__NAME", "worker"), ("TENURE_LEASE__SLOTS", "3")];
    let inside = [&pool[..], &[("TENURE_LEASE", "worker-slot-1"), ("TENURE_NAMESPACE", "default")]].concat();
    let dead = "dead_0123456789abcdef0123456789abcdef";
    for command in [&["step-down"][..], &["pause"], &["resume"], &["confirm-dead", "--holder", dead]] {
        let ends = |more: &[&str], variables: &[_]| tenure(&[command, more].concat(), variables);
        let said = "name one of worker, worker-slot-1, worker-slot-2, without lease.prefix";
        ends(&[], &pool).says(78, &[said]);
        ends(&["--set", "lease.slots=2"], &inside).says(78, &["name one of worker, worker-slot-1, without"]);
        ends(&["worker-slot-1"], &pool).says(2, &["there is no Lease worker-slot-1 in"]);
        for named in [&["worker"][..], &["--lease", "worker"], &["--set", "lease.name=worker"], &["--set", "lease.slots=1"]] {
            ends(named, &pool).says(2, &["there is no Lease worker in"]);
        }
        ends(&[], &inside).says(2, &["there is no Lease worker-slot-1 in"]);
    }
}
