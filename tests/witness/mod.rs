//! `tenure witness`: what a killed replica holds is given back at once, and only then (law 20).
//!
//! Each replica is PID 1 of a PID namespace; the witness runs beside it, in the namespace above, with a proxy of its own.

use std::{
    io::{BufRead as _, BufReader},
    net::Ipv4Addr,
    process::Stdio,
    time::Duration,
};

use nix::sys::signal::{Signal, kill};
use serde_json::json;
use support::{Behaviour, Case, Exchange, Kept, LEASE, PATIENCE, Prepared, Replica, Stage, Verbs, cases, within};
use tenure::{clock, time::Instant};

use crate::TENURE;

/// Without a witness a killed replica is waited for for about a minute; what takes less than this was given back.
const SOON: Duration = Duration::from_secs(15);

pub(crate) fn all() -> Vec<Case> {
    cases![
        a_killed_replica_is_followed_at_once,
        a_witness_that_waits_keeps_nothing_in_memory_that_only_its_start_needed,
        a_witness_that_is_told_to_end_stays_until_its_replica_is_dead,
        a_witness_that_was_killed_before_gives_nothing_back,
        a_witness_that_comes_back_is_told_again,
        what_is_no_elector_is_refused_and_disturbs_nobody,
        a_later_elector_takes_the_place_of_an_earlier_one_of_the_same_replica,
        however_many_die_at_once_the_api_server_is_asked_at_a_pace,
        no_descriptor_of_a_datagram_that_has_too_many_is_kept,
        a_program_of_another_user_is_refused_at_an_abstract_socket_and_served_at_a_path,
        a_flood_of_connections_costs_no_release,
        ten_thousand_identities_are_bounded_and_cost_no_release,
        a_token_that_was_rotated_while_it_waited_is_used,
        a_witness_without_access_says_so_and_releases_once_it_has_some,
        a_witness_that_may_not_update_says_so_once_and_releases_once_it_may,
        the_word_of_an_operator_releases_what_a_dead_replica_holds_and_nothing_else,
    ]
}

fn socket(stage: &Stage) -> String {
    format!("@{}", stage.namespace)
}

/// A replica with a minute's Lease.
async fn patient(stage: &Stage, name: &str) -> Prepared {
    let prepared = stage.prepare(name).await.set("lease.duration", "60s").set("lease.attemptTimeout", "2s");
    prepared.set("lease.witness", socket(stage)).workload(&Behaviour::stubborn())
}

async fn witness(stage: &Stage, name: &str) -> Replica {
    start_witness(stage, stage.prepare(name).await).await
}

async fn start_witness(stage: &Stage, prepared: Prepared) -> Replica {
    let witness = prepared.witness(&socket(stage), "me").start();
    witness.said("waits for replicas").await;
    witness
}

/// A leader that the witness knows, and a follower that has seen its Lease.
async fn pair(stage: &Stage) -> (Replica, Replica) {
    let (me, _) = stage.lead(patient(stage, "me").await).await;
    me.said("gives the Lease back if").await;
    let other = patient(stage, "other").await.start();
    other.said("holds the Lease").await;
    (me, other)
}

/// How long after `killed` the follower's workload runs.
async fn follows(stage: &Stage, killed: Instant) -> Duration {
    let start = within(SOON, "the follower leads", stage.witness.start("other", 0)).await;
    stage.witness.assert_no_overlap();
    start.at().since(killed)
}

/// Kills the leader; how long after that the follower's workload runs.
async fn is_followed(stage: &Stage, me: &Replica) -> Duration {
    let killed = clock::boot();
    me.signal(Signal::SIGKILL).await;
    follows(stage, killed).await
}

async fn a_killed_replica_is_followed_at_once(stage: Stage) {
    let witness = witness(&stage, "aside").await;
    let (me, _other) = pair(&stage).await;
    assert!(witness.proxy.log.all().is_empty(), "it asks for nothing while it waits: {:?}", witness.proxy.log.all());
    let dead = stage.lease.read().await.expect("a Lease")["spec"]["holderIdentity"].clone();

    let took = is_followed(&stage, &me).await;

    eprintln!("the follower's workload ran {took:?} after SIGKILL");
    let [read, write] = &witness.proxy.log.all()[..] else { panic!("{:?}", witness.proxy.log.all()) };
    assert!(read.succeeded() && write.request.is_release() && write.succeeded(), "{write:?}");
    assert_eq!(write.request.body["metadata"]["annotations"]["tenure.dev/obituary"], dead);
    let now = stage.lease.read().await.expect("a Lease");
    assert_eq!(now["metadata"]["annotations"].get("tenure.dev/obituary"), None, "{now}");
    witness.said("what it held is given back").await;
}

async fn a_witness_that_waits_keeps_nothing_in_memory_that_only_its_start_needed(stage: Stage) {
    let witness = witness(&stage, "aside").await;
    let (_me, _other) = pair(&stage).await;

    let status = std::fs::read_to_string(format!("/proc/{}/status", witness.init().await)).expect("it lives");
    let kilobytes = |name| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("a line");
        line.trim().trim_end_matches(" kB").parse::<u32>().expect("a number")
    };
    let (now, most) = (kilobytes("VmRSS:"), kilobytes("VmHWM:"));
    assert!(now * 4 < most * 3, "{now} of {most} kB");
}

async fn a_witness_that_is_told_to_end_stays_until_its_replica_is_dead(stage: Stage) {
    let witness = witness(&stage, "aside").await;
    let (me, _) = stage.lead(patient(&stage, "me").await).await;
    me.said("gives the Lease back if").await;

    witness.signal(Signal::SIGTERM).await;
    witness.said("stays until every replica that it knows is dead").await;
    assert!(witness.runs());
    me.signal(Signal::SIGKILL).await;

    assert_eq!(witness.exit().await, 0);
    assert_eq!(stage.lease.read().await.expect("a Lease")["spec"]["holderIdentity"], "");
}

async fn a_witness_that_was_killed_before_gives_nothing_back(stage: Stage) {
    let witness = witness(&stage, "aside").await;
    let (me, _other) = pair(&stage).await;

    witness.signal(Signal::SIGKILL).await;
    me.said("no witness at").await;
    me.signal(Signal::SIGKILL).await;
    assert_ne!(me.exit().await, 0);

    tokio::time::sleep(SOON).await;
    assert_eq!(stage.witness.starts("other"), 0);
}

async fn a_witness_that_comes_back_is_told_again(stage: Stage) {
    let before = witness(&stage, "before").await;
    let (me, _other) = pair(&stage).await;
    before.signal(Signal::SIGKILL).await;
    before.exit().await;

    let after = witness(&stage, "after").await;
    after.said("will give back").await;

    is_followed(&stage, &me).await;
}

/// Begins the programs that speak to a witness at the abstract socket sys.argv[1]: `say` a datagram with descriptors, `good` is that
/// of a replica, and `box` starts a PID 1 of another PID namespace and returns its pidfd.
const PEER: &str = r#"
import array, os, socket, subprocess, sys
text = lambda text: bytes([len(text)]) + text
def good(identity, times=b"\2\0\3\0", namespace=b"shop", leases=(b"main",)):
    names = b"".join(map(text, leases))
    return b"\1" + text(identity) + text(namespace) + bytes([len(leases)]) + names + times
kept = []
def say(datagram, *descriptors):
    s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); s.settimeout(30)
    s.connect("\0" + sys.argv[1][1:] if sys.argv[1][0] == "@" else sys.argv[1])
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
    s.sendmsg([datagram], rights); kept.append(s); return s.recv(1)[0]
def box():
    root = [] if os.geteuid() == 0 else ["--map-root-user"]
    # It ends with its input, whatever user this has become.
    line = ["unshare", *root, "--fork", "--pid", "--kill-child=SIGKILL", "sh", "-c", "echo; exec cat"]
    box = subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    box.stdout.readline()
    return os.pidfd_open(int(open(f"/proc/{box.pid}/task/{box.pid}/children").read())), box
"#;

/// What such a program prints.
async fn peer(socket: &str, script: &str, argument: &str) -> String {
    let mut python = std::process::Command::new("python3");
    python.args(["-c", &format!("{PEER}{script}"), socket, argument]);
    let output = tokio::task::spawn_blocking(move || python.output().expect("python3")).await.expect("no panic");
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    said.trim().to_owned()
}

/// Starts such a program, which ends with this; returns its first line.
fn begins(script: &str, arguments: &[&str]) -> (Kept, String) {
    let mut python = std::process::Command::new("setpriv");
    python.args(["--pdeathsig", "KILL", "python3", "-c", &format!("{PEER}{script}")]).args(arguments).stdout(Stdio::piped());
    let mut program = Kept(python.spawn().expect("python3"));
    let mut line = String::new();
    BufReader::new(program.stdout.take().expect("piped")).read_line(&mut line).expect("a line");
    (program, line.trim().to_owned())
}

async fn what_is_no_elector_is_refused_and_disturbs_nobody(stage: Stage) {
    let witness = witness(&stage, "aside").await;
    let (me, _other) = pair(&stage).await;
    let holder = stage.lease.read().await.expect("a Lease")["spec"]["holderIdentity"].as_str().expect("held").to_owned();

    // Garbage, no pidfd, something that is no pidfd, a pidfd of a process that is not PID 1 of another namespace, one that is dead,
    // one of a living PID 1 for the replica of another pod, whose name may begin like ours, and for names
    // and times that no configuration can have.
    let script = r#"
me = sys.argv[2].encode(); readable, other = os.pipe(); os.write(other, b"x"); pidfd, _box = box()
child = subprocess.Popen(["true"]); dead = os.pidfd_open(child.pid); child.wait()
print([say(b"garbage"), say(good(me)), say(good(me), readable), say(good(me), os.pidfd_open(os.getpid())), say(good(me), 0, 1)])
print([say(good(me), dead), say(good(b"other_" + me[-32:]), pidfd), say(good(b"mex_" + me[-32:]), pidfd)])
most = b"\xff" * 9 + b"\1"
times = [most + b"\0\3\0", b"\2\0" + most + b"\0", b"\2\0\0\0", b"\0\0\3\0"]
print([say(good(me, time), pidfd) for time in times])
print([say(good(me, leases=leases), pidfd) for leases in [(), (b"a/b",), (b"main",) * 65, (b"",)]], say(good(me, namespace=b"../x"), pidfd))
"#;
    let said = peer(&socket(&stage), script, &holder).await;
    assert_eq!(said.lines().collect::<Vec<_>>(), ["[0, 0, 0, 0, 0]", "[0, 0, 0]", "[0, 0, 0, 0]", "[0, 0, 0, 0] 0"]);

    let words = "no elector of this version|hands over no pidfd|is no pidfd|is not that of PID 1|of a process which is dead|\
                 is not of this pod|no configuration allows";
    for words in words.split('|') {
        witness.said(words).await;
    }
    assert!(witness.proxy.log.all().is_empty());

    is_followed(&stage, &me).await;
}

async fn a_later_elector_takes_the_place_of_an_earlier_one_of_the_same_replica(stage: Stage) {
    let witness = witness(&stage, "aside").await;
    let (me, _other) = pair(&stage).await;
    let holder = stage.lease.read().await.expect("a Lease")["spec"]["holderIdentity"].as_str().expect("held").to_owned();
    // In the name of the leader, whose elector is connected: a pidfd that never fires, and one that does. In the name of a third replica
    // one that never fires, and after the end of its connection one that does. Then the leader's next elector comes.
    let script = r#"
pidfd, lives = box(); later, dies = box(); third = b"me_" + b"0" * 32
leader = good(sys.argv[2].encode()); other, ends = box()
print(say(leader, pidfd), say(leader, other), say(good(third), pidfd), say(good(third), later), flush=True)
ends.stdin.close(); kept.clear()
while not say(good(third), later): kept.clear()
dies.stdin.close(); lives.wait()
"#;
    let (_held, line) = begins(script, &[&socket(&stage), &holder]);
    assert_eq!(line, "0 0 1 0");
    witness.said("it is dead, and").await;
    assert!(!witness.lines().iter().any(|line| line.contains("given back")), "{:?}", witness.lines());
    let told = || me.lines().iter().filter(|line| line.contains("gives the Lease back if")).count();
    let before = told();
    kill(me.elector().await, Signal::SIGKILL).expect("it lives");
    support::until("the next elector tells the witness", async || told() > before).await;

    is_followed(&stage, &me).await;
}

async fn however_many_die_at_once_the_api_server_is_asked_at_a_pace(stage: Stage) {
    let witness = witness(&stage, "aside").await;
    let script = r#"
pidfd, box = box()
leases = [b"lease-%d" % n for n in range(64)]
print(sum(say(good(b"me_%032d" % n, leases=leases), pidfd) for n in range(3)))
box.stdin.close(); box.wait()
"#;
    let began = clock::boot();

    let said = peer(&socket(&stage), script, "").await;

    assert_eq!(said, "3");
    let asked = || witness.proxy.log.all().len();
    support::until("all Leases are asked for", async || asked() >= 3 * 64).await;
    assert!(clock::boot().since(began) >= Duration::from_secs(1), "128 requests a second");
}

async fn no_descriptor_of_a_datagram_that_has_too_many_is_kept(stage: Stage) {
    let witness = witness(&stage, "aside").await;
    let files = || std::fs::read_dir(format!("/proc/{}/fd", witness.launcher())).expect("it lives").count();
    let before = files();

    let said =
        peer(&socket(&stage), "print(sum(say(b'x', 0, 1, 2) + len(kept and [kept.pop().close()]) for _ in range(700)))", "")
            .await;

    assert_eq!(said, "700");
    support::until("the connections are closed", async || files() <= before + 2).await;
    assert_eq!(witness.stop().await, 0, "it hears signals");
}

async fn a_program_of_another_user_is_refused_at_an_abstract_socket_and_served_at_a_path(stage: Stage) {
    if !nix::unistd::geteuid().is_root() {
        return support::not_run("a neighbour of another user", "it needs root");
    }
    let abstract_witness = witness(&stage, "aside").await;
    let path = stage.directory().join("socket");
    let mut prepared = stage.prepare("beside").await.uncontained();
    let line = [TENURE, "witness", "--socket", &path.to_string_lossy()];
    prepared.launch.runner = Some(line.map(str::to_owned).into());
    prepared.launch.workload.clear();
    prepared.launch.env.push(("POD_NAME".into(), "me".into()));
    let path_witness = prepared.start();
    path_witness.said("waits for replicas").await;
    let script = "pidfd, box = box(); os.setuid(65534); print(say(good(b'me_' + b'0' * 32), pidfd))";

    let [at_name, at_path] = [peer(&socket(&stage), script, "").await, peer(&path.to_string_lossy(), script, "").await];

    assert_eq!((&*at_name, &*at_path), ("0", "1"));
    abstract_witness.said("it is of another user").await;
}

async fn a_flood_of_connections_costs_no_release(stage: Stage) {
    let mut prepared = stage.prepare("aside").await;
    prepared.launch.confined_by = ["prlimit", "--nofile=1024"].map(str::to_owned).into();
    let _witness = start_witness(&stage, prepared).await;
    let (me, _other) = pair(&stage).await;

    // More than it serves at once, which say nothing, and garbage beside them for as long as this runs.
    let script = r#"
import resource
most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]; resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, 4096), most))
def connect():
    s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); s.settimeout(0.01)
    try: s.connect("\0" + sys.argv[1]); return s
    except OSError: return None
silent = [connect() for _ in range(2000)]
print(len(silent), flush=True)
while True:
    s = connect()
    try: s and s.send(b"x" * 30000)
    except OSError: pass
"#;
    let _flood = begins(script, &[&stage.namespace]);

    is_followed(&stage, &me).await;
}

async fn ten_thousand_identities_are_bounded_and_cost_no_release(stage: Stage) {
    let witness = witness(&stage, "aside").await;
    let (me, _other) = pair(&stage).await;

    // All with a pidfd of one PID 1, which lives.
    let script = r#"
pidfd, one = box()
def tell(number):
    known = say(good(b"me_%032x" % number), pidfd); kept.pop().close(); return known
print(sum(tell(number) for number in range(10000)), flush=True)
one.wait()
"#;
    let (_crowd, known) = begins(script, &[&socket(&stage)]);
    // One of the 256 places is that of the leader.
    assert_eq!(known, "255");
    let said = witness.lines().into_iter().filter(|line| line.contains("there is no room for another replica")).count();
    assert_eq!(said, 1);

    is_followed(&stage, &me).await;
}

async fn a_token_that_was_rotated_while_it_waited_is_used(stage: Stage) {
    let token = stage.api.minimal_token(&stage.namespace, LEASE, &Verbs::default()).await;
    let witness = start_witness(&stage, stage.prepare_at("aside", "expired".into(), Ipv4Addr::LOCALHOST).await).await;
    let (me, _other) = pair(&stage).await;

    std::fs::write(stage.token_file("aside"), token).expect("its token");
    is_followed(&stage, &me).await;
    let requests = witness.proxy.log.all();
    assert!(requests.iter().all(Exchange::succeeded), "{requests:?}");
}

async fn a_witness_without_access_says_so_and_releases_once_it_has_some(stage: Stage) {
    let mut prepared = stage.prepare("aside").await;
    let later = stage.directory().join("later");
    prepared.launch.env = [("KUBECONFIG".into(), later.to_string_lossy().into())].into();
    let witness = start_witness(&stage, prepared).await;
    witness.said("there is no access to a cluster yet; it is looked for again when a replica is dead").await;
    let (me, _other) = pair(&stage).await;

    me.signal(Signal::SIGKILL).await;
    witness.said("it is dead, and is tried again").await;
    assert_eq!(stage.witness.starts("other"), 0);
    let given = clock::boot();
    std::fs::copy(stage.directory().join("aside/kubeconfig"), &later).expect("a kubeconfig");

    follows(&stage, given).await;
    let said = witness.lines().into_iter().filter(|line| line.contains("is tried again")).collect::<Vec<_>>();
    assert!(matches!(&said[..], [line] if line.contains(&*later.to_string_lossy())), "{said:?}");
}

async fn a_witness_that_may_not_update_says_so_once_and_releases_once_it_may(stage: Stage) {
    let (may, account) = (Verbs::default(), "witness");
    let token = stage.api.minimal_account(account, &stage.namespace, LEASE, &may.clone().without("update")).await;
    let witness = start_witness(&stage, stage.prepare_at("aside", token, Ipv4Addr::LOCALHOST).await).await;
    let (me, _other) = pair(&stage).await;

    me.signal(Signal::SIGKILL).await;
    let is_refused = |exchange: &Exchange| exchange.request.is_release() && !exchange.succeeded();
    witness.proxy.log.nth(2, "it tries again and again", is_refused).await;
    let said = witness.lines().into_iter().filter(|line| line.contains("is tried again")).collect::<Vec<_>>();
    assert!(matches!(&said[..], [line] if line.contains("cannot update resource") && line.contains(account)), "{said:?}");
    assert_eq!(stage.witness.starts("other"), 0);
    let given = clock::boot();
    stage.api.allow(account, &stage.namespace, LEASE, &may).await;

    follows(&stage, given).await;
}

async fn the_word_of_an_operator_releases_what_a_dead_replica_holds_and_nothing_else(stage: Stage) {
    // As seldom as a replica may renew.
    let seldom = patient(&stage, "me").await.set("lease.renewPeriod", "20s");
    let (me, _) = stage.lead(seldom.set("lease.witness", json!(null))).await;
    let other = patient(&stage, "other").await.set("lease.witness", json!(null)).start();
    other.said("holds the Lease").await;
    let holder = stage.lease.read().await.expect("a Lease")["spec"]["holderIdentity"].as_str().expect("held").to_owned();
    let confirm = |holder: String| {
        let mut command = std::process::Command::new(TENURE);
        command.args(["confirm-dead", "main", "--namespace", &stage.namespace, "--holder", &holder]);
        command.env("KUBECONFIG", stage.kubeconfig());
        async { tokio::task::spawn_blocking(move || command.output().expect("tenure")).await.expect("no panic").status.code() }
    };

    assert_eq!(confirm(holder.clone()).await, Some(75), "it renews");
    assert_eq!(confirm(format!("me_{:032x}", 1)).await, Some(1), "another holds it");
    me.signal(Signal::SIGKILL).await;
    assert_ne!(me.exit().await, 0);
    let word = clock::boot();
    assert_eq!(confirm(holder).await, Some(0));

    let start = within(PATIENCE, "the follower leads", stage.witness.start("other", 0)).await;
    assert!(start.at().since(word) < Duration::from_secs(40));
    stage.witness.assert_no_overlap();
}
