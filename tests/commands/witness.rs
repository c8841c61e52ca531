//! What `tenure witness` says of its socket, and `tenure check` of a witness; tests/witness has it give Leases back.

use std::os::unix::fs::PermissionsExt as _;

use nix::unistd::Pid;
use support::{
    Scratch, not_run,
    procfs::{children, command_line},
};

use crate::world::{Cluster, Running, of_nobody, tenure, tenure_as_pid_1, tenure_as_pid_1_denied};

#[test]
fn check_says_how_soon_a_killed_container_is_followed_and_what_a_witness_lacks() {
    let name = format!("@tenure-check-{}", std::process::id());
    let setting = format!("lease.witness={name}");
    let check = ["check", "--offline", "--lease", "x", "--set", &setting, "--", "sh"];
    let late = "note  a container that is killed is followed after 15.15s: no witness";
    tenure(&["check", "--offline", "--lease", "x", "--", "sh"], &[]).says(0, &[&format!("{late} (lease.witness)")]);
    tenure(&check, &[]).says(0, &[&format!("{late} can help: tenure is not PID 1")]);
    tenure_as_pid_1_denied(libc::SYS_pidfd_open, &check).says(0, &[&format!("{late} can help: pidfd_open is refused: EPERM")]);
    let remedy = format!("{late} answers at {name}: is there a container that runs tenure witness?");
    tenure_as_pid_1(&check).says(0, &[&remedy]);

    let witness = listening(&name);

    let soon = format!("ok    a container that is killed is followed after about 30 ms (a witness answers at {name})");
    tenure_as_pid_1(&check).says(0, &[&soon, "a lost node, and a first start, cost 15.15s"]);
    assert_eq!(witness.end(), Some(0));
}

#[test]
fn a_socket_at_which_no_witness_can_listen_is_78_and_says_why() {
    let place = Scratch::new();
    let socket = place.join("socket");
    let witness = |socket: &str| tenure(&["witness", "--socket", socket], &[]);
    let first = listening(socket.to_str().unwrap());

    let abstract_name = format!("@tenure-twice-{}", std::process::id());
    let twice = listening(&abstract_name);

    for taken in [socket.to_str().unwrap(), &abstract_name] {
        witness(taken).says(78, &["another program listens at", taken, "name another socket, or end that program"]);
    }
    let nowhere = place.join("nowhere/socket");
    witness(nowhere.to_str().unwrap()).says(78, &["cannot listen at", "nowhere/socket", "No such file or directory"]);
    for wrong in ["relative", "@", &format!("/{}", "x".repeat(107)), &format!("@{}", "x".repeat(107))] {
        witness(wrong).says(78, &["--socket <PATH>", "write @NAME or an absolute path, of at most 107 bytes"]);
    }
    assert_eq!([first.end(), twice.end()], [Some(0), Some(0)]);
}

#[test]
fn a_witness_listens_where_the_variable_or_the_file_of_its_replica_says() {
    let place = Scratch::new();
    let [by_variable, by_file, by_flag] = ["variable", "file", "flag"].map(|name| place.join(name).display().to_string());
    let file = place.file("tenure.yaml", format!("lease: {{ witness: {by_file} }}"));
    let variable = [("TENURE_LEASE__WITNESS", by_variable.as_str())];
    let listens = |arguments: &[&str], variables: &[(&str, &str)], socket: &str| {
        let witness = Running::start(&[&["witness"], arguments].concat(), variables);
        witness.says(&["waits for replicas at", socket]);
        assert_eq!(witness.end(), Some(0));
    };

    listens(&["--config", &file], &[], &by_file);
    listens(&["--config", &file], &variable, &by_variable);
    listens(&["--config", &file, "--socket", &by_flag], &variable, &by_flag);

    tenure(&["witness"], &[("TENURE_LEASE__WITNESS", "socket")])
        .says(78, &["TENURE_LEASE__WITNESS: lease.witness", "is no socket"]);
}

#[test]
fn the_socket_that_a_killed_witness_leaves_is_replaced() {
    let place = Scratch::new();
    let socket = place.join("socket");
    drop(listening(socket.to_str().unwrap()));
    assert!(socket.exists());

    let next = listening(socket.to_str().unwrap());

    assert_eq!(next.end(), Some(0));
}

#[test]
fn what_is_no_socket_is_never_removed_and_every_user_may_write_to_a_socket() {
    let place = Scratch::new();
    let file = place.file("file", "precious");
    tenure(&["witness", "--socket", &file], &[]).says(78, &[&file, "is there, and is no socket: name another path"]);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "precious");
    let link = place.join("link");
    std::os::unix::fs::symlink(&file, &link).unwrap();
    tenure(&["witness", "--socket", link.to_str().unwrap()], &[]).says(78, &["is no socket"]);
    let (stale, link) = (place.join("stale"), place.join("to-stale"));
    drop(std::os::unix::net::UnixListener::bind(&stale).unwrap());
    std::os::unix::fs::symlink(&stale, &link).unwrap();
    tenure(&["witness", "--socket", link.to_str().unwrap()], &[]).says(78, &["is no socket"]);
    assert!(stale.exists() && link.is_symlink());

    let socket = place.join("socket");
    let witness = listening(socket.to_str().unwrap());
    assert_eq!(socket.metadata().unwrap().permissions().mode() & 0o777, 0o666);
    assert_eq!(witness.end(), Some(0));
}

#[test]
fn a_witness_that_knows_no_replica_does_not_say_that_it_stays() {
    let witness = listening(&format!("@tenure-idle-{}", std::process::id()));

    let (code, said) = witness.ended();

    assert_eq!((code, said), (Some(0), Vec::new()));
}

#[test]
fn a_replica_without_pidfds_says_that_no_witness_can_help_and_leads() {
    let cluster = Cluster::embedded();
    let line = ["--lease", "x", "--set", "lease.witness=@nobody", "--set", "lease.creationWait=0s", "--", "sleep", "60"];

    let replica = Running::as_pid_1_denied(libc::SYS_pidfd_open, &line, &[cluster.variable()]);

    replica.says(&["lease.witness has no effect: pidfd_open is refused: EPERM"]);
    replica.says(&["leading: the program runs"]);
}

fn listening(socket: &str) -> Running {
    let witness = Running::start(&["witness", "--socket", socket], &[] as &[(&str, &str)]);
    witness.says(&["waits for replicas at", socket]);
    witness
}

/// What a process of the same user gets of another by its pidfd: how many of the first descriptors, and of these two files.
const THEFT: &str = r#"
import ctypes, os, sys
pid = int(sys.argv[1]); pidfd = os.pidfd_open(pid); libc = ctypes.CDLL(None)
def is_readable(name):
    try: open(f"/proc/{pid}/{name}", "rb").close(); return True
    except OSError: return False
print(sum(libc.syscall(438, pidfd, number, 0) >= 0 for number in range(32)), sum(map(is_readable, ["environ", "mem"])))
"#;

#[test]
fn a_neighbour_of_the_same_user_gets_nothing_of_init_the_elector_and_the_witness_by_a_pidfd() {
    let what = "a neighbour that is handed a pidfd of init";
    if !nix::unistd::geteuid().is_root() {
        return not_run(what, "a replica and its neighbour need a user of their own, and so root");
    }
    let cluster = Cluster::embedded();
    std::fs::set_permissions(cluster.kubeconfig(), std::fs::Permissions::from_mode(0o644)).unwrap();
    let line = ["--lease=x", "--set=lease.creationWait=0s", "--set=workload.oomScoreAdjust=300", "--", "sleep", "600"];
    let replica = Running::as_pid_1_of_nobody(&line, &[cluster.variable()]);
    replica.says(&["leading: the program runs"]);
    let init = replica.init();
    let [mut elector, mut workload] = [None; 2];
    for pid in children(init) {
        *if command_line(pid).get(1).is_some_and(|word| word == "elector") { &mut elector } else { &mut workload } = Some(pid);
    }
    let (elector, workload) = (elector.unwrap(), workload.unwrap());
    let stolen = |pid: Pid| {
        let output = of_nobody("python3").args(["-c", THEFT, &pid.to_string()]).output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };

    let of_workload = stolen(workload);
    if of_workload.starts_with('0') {
        return not_run(what, "this machine lets no process have another's descriptors");
    }
    assert!(of_workload.ends_with(" 2"), "{of_workload}");
    assert_eq!([stolen(init), stolen(elector)], ["0 0", "0 0"]);
    let witness = Running::as_pid_1_of_nobody(&["witness", "--socket=@tenure-theft"], &[]);
    witness.says(&["waits for replicas"]);
    assert_eq!(stolen(witness.init()), "0 0");
    let score = std::fs::read_to_string(format!("/proc/{workload}/oom_score_adj")).unwrap();
    assert_eq!(score.trim(), "300", "the workload's own files stay its own");
}
