//! `tenure lock`, before it waits for anybody.

use std::{fs, os::unix::fs::PermissionsExt as _};

use crate::world::{Cluster, TENURE, tenure, tenure_after, tenure_of_nobody_among_hidden};

const NO_WAIT: (&str, &str) = ("TENURE_LEASE__CREATION_WAIT", "0s");

#[test]
fn a_lock_within_itself_is_78_and_within_another_is_taken() {
    let cluster = Cluster::embedded();
    let variables = [cluster.variable(), NO_WAIT];
    let within = |outer: &[&str], inner: &[&str]| {
        tenure(&[&["lock"], outer, &["--", TENURE, "lock", "--try"], inner, &["--", "echo", "ran"]].concat(), &variables)
    };

    within(&["a"], &["a"]).says(78, &["the Lease lock-a is already held by the tenure that runs this"]);
    within(&["a"], &["--lease", "lock-a"]).says(78, &["already held"]);
    within(&["a"], &["b"]).says(0, &["ran"]);
    within(&["a"], &["--namespace", "other", "a"]).says(0, &["ran"]);
}

#[test]
fn the_weaker_guarantee_is_said_once_in_a_pod_and_not_to_a_person() {
    let cluster = Cluster::embedded();
    let lock = ["lock", "a", "--", "true"];
    let of_a_person = tenure(&lock, &[cluster.variable(), NO_WAIT]);
    of_a_person.says(0, &[]);
    let in_a_pod = tenure(&lock, &[cluster.variable(), NO_WAIT, ("KUBERNETES_SERVICE_HOST", "10.0.0.1")]);
    in_a_pod.says(0, &["the guarantee is weaker"]);
    assert_eq!([of_a_person, in_a_pod].map(|ended| ended.err.matches("not PID 1").count()), [0, 1]);
}

#[test]
fn a_line_that_is_no_lock_is_64_and_a_time_that_is_none_78() {
    for (line, said) in [
        ("lock a", "required"),
        ("lock a --try --timeout 5s -- true", "cannot be used with"),
        ("lock a true", "the workload goes after --"),
    ] {
        tenure(&line.split(' ').collect::<Vec<_>>(), &[]).says(64, &[said]);
    }
    for (line, said) in [
        ("lock a --timeout 3 -- true", "'3' for '--timeout <DURATION>': \"3\" is not a duration: write a number and a unit"),
        ("lock a --timeout=-1s -- true", "\"-1s\" is not a duration: write a number and a unit"),
        ("task a --every 60 -- true", "'60' for '--every <INTERVAL>': \"60\" is not a duration: write a number and a unit"),
        ("task a --every 1s --limit 10 -- true", "\"10\" is not a duration: write a number and a unit"),
    ] {
        tenure(&line.split(' ').collect::<Vec<_>>(), &[]).says(78, &[said]);
    }
}

#[test]
fn a_time_that_is_out_of_range_is_78() {
    for (line, said) in [
        ("--every 0s", "\"0s\" is not a duration from 1s to 2147483647s"),
        ("--every 1500ms", "\"1500ms\" is not a whole number of seconds"),
        ("--every 2147483648s", "is not a duration from 1s to 2147483647s"),
        ("--every 1s --limit 0s", "\"0s\" is not a duration from 1s to 2147483647s"),
    ] {
        let line: Vec<_> = ["task", "a"].into_iter().chain(line.split(' ')).chain(["--", "true"]).collect();

        tenure(&line, &[]).says(78, &[said]);
    }
}

#[test]
fn a_bound_holds_where_no_elector_can_be_started() {
    let cluster = Cluster::embedded();
    for line in [&["lock", "--try"][..], &["lock", "--timeout", "1s"], &["task", "--once", "--every", "60s"]] {
        let line = [line, &["x", "--", "echo", "ran"]].concat();
        let ended = tenure_after("ulimit -n 10 && exec \"$@\"", &line, &[cluster.variable(), NO_WAIT]);
        ended.says(70, &["lock-x was not acquired: no elector works"]);
        assert!(!ended.out.contains("ran"), "{ended:?}");
    }
}

#[test]
fn a_kubeconfig_that_is_just_being_rewritten_ends_no_lock() {
    let cluster = Cluster::embedded();
    let whole = fs::read_to_string(cluster.kubeconfig()).unwrap();
    let kept = cluster.place().file("whole", &whole);
    fs::write(cluster.kubeconfig(), &whole[..whole.len() / 2]).unwrap();

    let rewritten = format!("(sleep 0.3; cat {kept} >\"$KUBECONFIG\") & exec \"$@\"");
    tenure_after(&rewritten, &["lock", "x", "--", "echo", "ran"], &[cluster.variable(), NO_WAIT]).says(0, &["ran"]);
}

#[test]
fn a_lock_of_a_user_from_whom_proc_hides_its_elector_ends() {
    let cluster = Cluster::embedded();
    fs::set_permissions(cluster.kubeconfig(), fs::Permissions::from_mode(0o644)).unwrap();
    let variables = [cluster.variable(), NO_WAIT];
    tenure_of_nobody_among_hidden(&["lock", "x", "--", "echo", "ran"], &variables).says(0, &["ran"]);
}

/// An agent that nobody may trace, such as ssh-agent: there /proc hides it from its own user too.
#[test]
fn what_the_command_leaves_behind_is_killed_although_proc_hides_it() {
    let cluster = Cluster::embedded();
    fs::set_permissions(cluster.kubeconfig(), fs::Permissions::from_mode(0o644)).unwrap();
    let agent =
        "import ctypes, os, time; ctypes.CDLL(None).prctl(4, 0); os.fork() and os._exit(3); os.setsid(); time.sleep(1000)";

    let ended = tenure_of_nobody_among_hidden(&["lock", "x", "--", "python3", "-c", agent], &[cluster.variable(), NO_WAIT]);

    ended.says(3, &[]);
}

#[test]
fn a_hang_up_ends_a_wait_unless_it_was_to_be_ignored() {
    let cluster = Cluster::embedded();
    let variables = [cluster.variable()];
    // It sits the wait for a Lease that is not there yet out, and is hung up meanwhile.
    let hung_up = "(sleep 1; kill -HUP $$) & exec";
    let lock = ["lock", "--set", "lease.creationWait=3s", "x", "--", "echo", "ran"];
    // However the tests were started.
    let ended = tenure_after(&format!("{hung_up} env --default-signal=HUP \"$@\""), &lock, &variables);
    ended.says(129, &["exiting with 129: tenure got SIGHUP; the command did not run"]);
    assert!(!ended.out.contains("ran"), "{ended:?}");
    tenure_after(&format!("trap '' HUP; {hung_up} \"$@\""), &lock, &variables).says(0, &["ran"]);
}
