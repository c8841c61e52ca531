//! The elector as a process: how it behaves without its init, with a misbehaving init, and when it cannot work at all.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test")]

use std::{
    fs,
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream},
    os::fd::{AsFd as _, AsRawFd as _, OwnedFd},
    path::PathBuf,
    process::{Child, ChildStdout, Command, Stdio},
    time::Duration,
};

use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::{
        signal::{Signal, kill},
        socket::{AddressFamily, MsgFlags, SockFlag, SockType, recv, send, setsockopt, socketpair, sockopt},
        time::{TimeVal, TimeValLike as _},
    },
    unistd::Pid,
};
use support::{
    Kept, Lines, Scratch, denied, procfs,
    procfs::{children, is_dead},
    slept, wait_for, wait_until,
};
use tenure::{
    api::Cluster,
    clock,
    config::{self, Config, ProbeKind},
    link::{
        Confirmed, Exit, InitialState, KubeContext, MAX_MESSAGE, Resume, Stop, Term, TermInfo, Then, ToElector, ToInit, decode,
        encode,
    },
    process,
    slot::Slot,
};

#[test]
fn started_by_hand_it_says_who_starts_it() {
    let output = Command::new(env!("CARGO_BIN_EXE_tenure")).arg("elector").output().unwrap();

    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(64), "{said}");
    assert!(said.contains("started by tenure itself"), "{said}");
}

#[test]
fn it_takes_no_other_context_and_goes_to_no_other_cluster_than_those_that_init_found() {
    let another = context().map(|context| KubeContext { name: "another".into(), ..context });
    let elsewhere = context().map(|context| KubeContext { server: "http://127.0.0.1:2/".into(), ..context });
    for (context, words) in [
        (another, "no longer has the context another"),
        (elsewhere, "another server (http://127.0.0.1:1/ in place of http://127.0.0.1:2/)"),
    ] {
        refuses(InitialState { context, ..initial_state() }, words);
    }
}

/// Checks that an elector with this initial state ends with this message.
fn refuses(initial: InitialState, words: &str) {
    let mut elector = Elector::start("exec \"$0\" elector");

    elector.receives(initial);

    let ToInit::Failed { code: 78, message } = elector.hears() else { panic!("no Failed: {words}") };
    assert!(message.contains(words), "{words}: {message}");
    assert_eq!(elector.child.wait().unwrap().code(), Some(78));
}

#[test]
fn signals_of_a_terminal_do_not_end_it() {
    let elector = Elector::ready("exec \"$0\" elector", initial_state());
    let pid = elector.child.pid();
    use Signal::{SIGALRM, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGUSR1, SIGUSR2, SIGVTALRM};
    for signal in [SIGINT, SIGQUIT, SIGTSTP, SIGHUP, SIGTERM, SIGUSR1, SIGUSR2, SIGALRM, SIGVTALRM] {
        kill(pid, signal).unwrap();
    }
    for real_time in 34..=64 {
        process::kill::send(pid, config::Signal(real_time)).unwrap();
    }

    assert_eq!(elector.hears(), ToInit::Heartbeat);
}

#[test]
fn a_credential_plugin_inherits_neither_blocked_nor_ignored_signals() {
    let masks = seen_by_a_plugin("trap '' QUIT; exec \"$0\" elector", "grep -E '^Sig(Blk|Ign)' /proc/self/status");

    for line in masks.lines() {
        let (_, mask) = line.split_once('\t').unwrap();
        // Only signals that have a name: a C library reserves some of the others.
        assert_eq!(u64::from_str_radix(mask, 16).unwrap() & 0x7fff_ffff, 0, "{masks}");
    }
}

#[test]
fn a_credential_plugin_has_no_descriptor_of_the_link() {
    // The shell finds the descriptors, and readlink has the same.
    let descriptors = seen_by_a_plugin("exec \"$0\" elector", "readlink /proc/self/fd/*");

    assert!(descriptors.lines().count() >= 3, "{descriptors}");
    assert!(!descriptors.contains("socket:"), "{descriptors}");
}

/// What a credential plugin prints that is this command, of an elector that is started by this script.
fn seen_by_a_plugin(script: &str, command: &str) -> String {
    let scratch = Scratch::new();
    let seen = scratch.join("seen");
    let plugin = Kubeconfig::of_plugin(&format!("{command} >{0}.new; mv {0}.new {0}", seen.display()));
    let elector = Elector::start_by(Command::new("env"), script, plugin);
    elector.receives(initial_state());
    wait_until("the plugin ran", || seen.exists());
    fs::read_to_string(&seen).unwrap()
}

#[test]
fn after_its_init_died_it_kills_what_the_workload_left() {
    let script = "\"$0\" elector & TENURE_IDENTITY=me_1 setsid sleep 60 & echo $!; wait";
    let mut elector = Elector::ready(script, initial_state());
    let left = elector.pid();

    elector.kills(left);
}

#[test]
fn what_daemonised_itself_dies_with_an_init_that_was_killed_and_is_not_pid_1() {
    let signals = ["--set=workload.acknowledge=none", "--set=signals.onLead=SIGUSR1", "--set=signals.onFollow=SIGUSR2"];
    let workload = ["--", "sh", "-c", "setsid sleep 600 & echo $!; wait"];
    dies_with_its_init(&[&["--set=workload.runs=always"], &signals[..], &workload].concat(), |_| ());
}

#[test]
fn a_frozen_standby_dies_with_an_init_that_was_killed_and_is_not_pid_1() {
    let scratch = Scratch::new();
    let ready = scratch.join("ready").display().to_string();
    let probe = format!("--set=workload.readiness.exec.command=[test, -e, '{ready}']");
    let settings = ["--set=workload.runs=frozen", "--set=workload.readiness.period=1s", &probe];
    let workload = ["--", "sh", "-c", "setsid sleep 600 & echo $!; touch \"$0\"; wait", &ready];
    let frozen = |left| wait_until("it is frozen", || procfs::state(left) == Some('T'));
    dies_with_its_init(&[&settings[..], &workload].concat(), frozen);
}

/// A process whose pid the workload of this line prints, and the elector, end with an init that is killed then.
fn dies_with_its_init(line: &[&str], then: impl Fn(Pid)) {
    let kubeconfig = Kubeconfig::of_nobody();
    let mut command = Command::new(env!("CARGO_BIN_EXE_tenure"));
    command.args(["--lease=writer", "--namespace=billing"]).args(line).env("KUBECONFIG", kubeconfig.path());
    let mut init = Kept(command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap());
    let left = pid(&Lines::of(init.stdout.take().unwrap()).next_line());
    let elector = wait_for("the elector bound itself to its link", || elector_of(&init).filter(|pid| has_settled(*pid)));
    then(left);

    init.end();

    for pid in [left, elector] {
        wait_until("nobody is left", || is_dead(pid));
    }
}

/// No longer a descendant of init, and its environment does not name the replica.
const ANONYMOUS: &str = "\"$0\" elector & (setsid env -i sleep 60 & echo $!); wait";

#[test]
fn a_second_elector_kills_the_group_that_the_first_saw_start() {
    let (elector, group) = Elector::of_a_term();
    while elector.hears() != ToInit::Heartbeat {}

    elector.kills(group);
}

#[test]
fn an_elector_that_saw_the_group_start_kills_it() {
    let mut elector = Elector::ready(ANONYMOUS, initial_state());
    let group = elector.pid();
    elector.tell(&ToElector::Started { term: Term(1), pid: group.as_raw(), at: clock::boot() });

    elector.kills(group);
}

#[test]
fn an_elector_kills_what_descended_from_its_init_when_it_was_last_heard_of() {
    let mut elector = Elector::ready("\"$0\" elector & setsid env -i sleep 60 & echo $!; wait", initial_state());
    let left = elector.pid();
    // A change of readiness is answered at once, by an elector that has looked.
    elector.tell(&ToElector::Health { unready: Some("it starts".into()), status: String::new() });
    assert_eq!(elector.hears(), ToInit::Heartbeat);

    elector.kills(left);
}

#[test]
fn a_link_that_breaks_is_no_reason_to_kill_what_a_living_init_runs() {
    let (elector, group) = Elector::of_a_term();
    while elector.hears() != ToInit::Heartbeat {}
    let pid = wait_for("the elector", || elector_of(&elector.child));

    send(elector.link.as_raw_fd(), b"no message", MsgFlags::empty()).unwrap();

    wait_until("the elector has ended", || is_dead(pid));
    assert!(!is_dead(group));
    kill(group, Signal::SIGKILL).unwrap();
}

#[test]
fn a_group_that_was_proved_gone_is_nobodys_to_kill() {
    let stop = Stop { began: None, killed: None, exited: None, exit: None, fused: None, proved: clock::boot() };
    for gone in [
        ToElector::Stopped { term: Term(1), request: 9, stop, then: Then::Follow },
        ToElector::Restarting { term: Term(1), exit: Exit::Code(3), at: clock::boot() },
    ] {
        let (mut elector, group) = Elector::of_a_term();
        elector.tell(&gone);
        elector.tell(&ToElector::Heartbeat);
        while elector.hears() != ToInit::Heartbeat {}
        let pid = wait_for("the elector", || elector_of(&elector.child));

        elector.child.end();
        drop(elector);

        wait_until("the elector has ended", || is_dead(pid));
        assert!(!is_dead(group), "{gone:?}");
        kill(group, Signal::SIGKILL).unwrap();
    }
}

#[test]
fn a_successor_serves_the_probes_once_the_port_is_free_again() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let elector = Elector::start("exec \"$0\" elector");
    let mut initial = InitialState { generation: 2, ..initial_state() };
    initial.config.http.listen = Some(address);
    elector.receives(initial);
    while elector.hears() != ToInit::Heartbeat {}

    drop(taken);

    wait_until("it listens", || TcpStream::connect(address).is_ok());
}

#[test]
fn it_kills_at_the_hard_deadline_although_its_init_does_nothing_also_on_a_machine_that_has_slept() {
    let slept = (!slept::flags().is_empty()).then(|| (slept::command(), slept::ASLEEP));
    for (command, asleep) in [(Command::new("env"), Duration::ZERO)].into_iter().chain(slept) {
        let mut elector = Elector::start_by(command, "\"$0\" elector & sleep 60; echo $?", Kubeconfig::of_nobody());
        let sent = clock::boot().before(Config::default().lease.duration) + Duration::from_secs(3);
        let resume = resume(sent + asleep, None);
        let hard = resume.confirmed.deadlines.hard;
        assert!(hard > clock::boot() + asleep);

        elector.receives(InitialState { resume: Some(resume), ..initial_state() });

        assert_eq!(elector.lines.next_line(), "137", "after a sleep of {asleep:?}");
        assert!(clock::boot() + asleep >= hard, "after a sleep of {asleep:?}");
    }
}

#[test]
fn a_server_that_sends_heads_without_end_keeps_the_elector_from_nothing() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = server.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let heads = "HTTP/1.1 100 Continue\r\n\r\n".repeat(10_000);
        let (mut probe, _) = server.accept().unwrap();
        assert!(probe.read(&mut [0; 1024]).unwrap() > 0);
        while probe.write_all(heads.as_bytes()).is_ok() {}
    });
    let mut initial = initial_state();
    initial.config.workload.readiness.http.port = port;
    initial.config.workload.readiness.timeout = Duration::from_secs(20);
    let elector = Elector::ready("exec \"$0\" elector", initial);

    let began = clock::boot();
    elector.tell(&ToElector::Probe { kind: ProbeKind::Readiness, began, since: began });
    let failure = loop {
        if let ToInit::Probed { failure, .. } = elector.hears() {
            break failure;
        }
    };

    assert_eq!(failure.as_deref(), Some("more than 16 heads with 1xx, and no answer"));
    assert!(clock::boot().since(began) < Duration::from_secs(10));
}

fn initial_state() -> InitialState {
    let mut config = Config::default();
    config.lease.name = "writer".into();
    config.lease.namespace = "billing".into();
    InitialState { pid1: false, context: context(), ..InitialState::first(config, "me_1".into()) }
}

/// Returns the context that init would have found.
fn context() -> Option<KubeContext> {
    Cluster::from_kubeconfig(&[Kubeconfig::of_nobody().path()]).unwrap().context()
}

/// A term whose last renewal was sent at this instant.
fn resume(sent: tenure::time::Instant, main: Option<Pid>) -> Resume {
    Resume {
        term: Term(1),
        info: TermInfo {
            slot: Slot::default(),
            token: "1".into(),
            uid: "u".into(),
            transitions: 1,
            acquired_at: String::new(),
            traceparent: String::new(),
        },
        confirmed: Confirmed {
            resource_version: "1".into(),
            preferred_holder: None,
            deadlines: Config::default().timing().deadlines(sent),
        },
        stopping: None,
        traceparent: String::new(),
        released: false,
        main: main.map(Pid::as_raw),
        told: main.is_some(),
    }
}

/// An elector whose init is this test, or the shell that runs the script.
struct Elector {
    child: Kept,
    link: OwnedFd,
    lines: Lines<ChildStdout>,
    kubeconfig: Kubeconfig,
}

impl Elector {
    /// `$0` is the binary; the link is on the descriptor where it expects it.
    fn start(script: &str) -> Self {
        Self::start_by(Command::new("env"), script, Kubeconfig::of_nobody())
    }

    /// The same; returns once it does its work with this initial state.
    fn ready(script: &str, initial: InitialState) -> Self {
        let elector = Self::start(script);
        elector.receives(initial);
        assert_eq!(elector.hears(), ToInit::Heartbeat);
        elector
    }

    /// The same as [`Self::start`] by a command that executes its arguments.
    fn start_by(mut command: Command, script: &str, kubeconfig: Kubeconfig) -> Self {
        let (link, theirs) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC).unwrap();
        setsockopt(&link, sockopt::ReceiveTimeout, &TimeVal::seconds(30)).unwrap();
        command.args(["/bin/sh", "-c", &format!("exec 3<&0 0</dev/null; {script}"), env!("CARGO_BIN_EXE_tenure")]);
        command.env_remove("KUBERNETES_SERVICE_HOST").env("HOME", "/nonexistent");
        command.env("KUBECONFIG", kubeconfig.path());
        let mut child = command.stdin(Stdio::from(theirs)).stdout(Stdio::piped()).spawn().unwrap();
        let lines = Lines::of(child.stdout.take().unwrap());
        Self { child: Kept(child), link, lines, kubeconfig }
    }

    /// Starts an elector that resumes a term; returns it and the group of its leader, which is [`ANONYMOUS`].
    fn of_a_term() -> (Self, Pid) {
        let mut elector = Self::start(ANONYMOUS);
        let group = elector.pid();
        elector.receives(InitialState { resume: Some(resume(clock::boot(), Some(group))), ..initial_state() });
        (elector, group)
    }

    /// Answers its Hello.
    fn receives(&self, initial: InitialState) {
        assert_eq!(self.hears(), ToInit::Hello);
        let context = initial.context.map(|context| KubeContext { files: vec![self.kubeconfig.path()], ..context });
        self.tell(&ToElector::InitialState(Box::new(InitialState { context, ..initial })));
    }

    fn tell(&self, message: &ToElector) {
        send(self.link.as_raw_fd(), &encode(message).unwrap(), MsgFlags::empty()).unwrap();
    }

    fn hears(&self) -> ToInit {
        let mut buffer = vec![0; MAX_MESSAGE];
        loop {
            match recv(self.link.as_raw_fd(), &mut buffer, MsgFlags::empty()) {
                Ok(length) => return decode(&buffer[..length]).unwrap(),
                Err(Errno::EINTR) => {}
                Err(errno) => panic!("no message: {errno}"),
            }
        }
    }

    /// Kills its init, and waits until it has killed this process.
    fn kills(mut self, left: Pid) {
        self.child.end();
        drop(self);
        wait_until("what its init left is dead", || is_dead(left));
    }

    /// The next line, which is a process id.
    fn pid(&mut self) -> Pid {
        pid(&self.lines.next_line())
    }
}

/// Access to a server that does not exist.
struct Kubeconfig(Scratch);

impl Kubeconfig {
    fn of_nobody() -> Self {
        Self::new("")
    }

    /// With a credential plugin that is this shell script.
    fn of_plugin(script: &str) -> Self {
        Self::new(&format!("exec: {{apiVersion: client.authentication.k8s.io/v1, command: /bin/sh, args: [-c, \"{script}\"]}}"))
    }

    fn new(user: &str) -> Self {
        let scratch = Scratch::new();
        let content = format!(
            "{{apiVersion: v1, kind: Config, current-context: c, contexts: [{{name: c, context: {{cluster: c, user: u}}}}], \
            clusters: [{{name: c, cluster: {{server: 'http://127.0.0.1:1'}}}}], users: [{{name: u, user: {{{user}}}}}]}}"
        );
        scratch.file("kubeconfig", content);
        Self(scratch)
    }

    fn path(&self) -> PathBuf {
        self.0.join("kubeconfig")
    }
}

fn pid(line: &str) -> Pid {
    Pid::from_raw(line.parse().unwrap())
}

fn elector_of(init: &Child) -> Option<Pid> {
    let is_elector = |pid: &Pid| fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.ends_with(b"\0elector\0"));
    children(Pid::from_raw(init.id().try_into().unwrap())).into_iter().find(is_elector)
}

/// Returns whether the elector runs its guard thread, which it starts once it knows its init.
fn has_settled(elector: Pid) -> bool {
    let names = fs::read_dir(format!("/proc/{elector}/task")).into_iter().flatten().flatten();
    names.filter_map(|task| fs::read_to_string(task.path().join("comm")).ok()).any(|name| name == "guard\n")
}

#[test]
fn a_successor_waits_for_its_kubeconfig() {
    let scratch = Scratch::new();
    let seen = scratch.join("seen");
    let kubeconfig = Kubeconfig::of_plugin(&format!("touch {}", seen.display()));
    let whole = fs::read(kubeconfig.path()).unwrap();
    fs::write(kubeconfig.path(), "{").unwrap();
    let elector = Elector::start_by(Command::new("env"), "exec \"$0\" elector", kubeconfig);
    let mut successor = InitialState { generation: 2, ..initial_state() };
    successor.config.lease.renew_period = Duration::from_secs(1);

    elector.receives(successor);
    for _ in 0..2 {
        assert_eq!(elector.hears(), ToInit::Heartbeat);
    }
    fs::write(elector.kubeconfig.path(), whole).unwrap();

    wait_until("the credential plugin ran", || seen.exists());
}

#[test]
fn an_elector_that_cannot_start_says_why_before_its_link_ends() {
    for _ in 0..20 {
        let mut command = Command::new("env");
        denied(&mut command, libc::SYS_eventfd2);
        let mut elector = Elector::start_by(command, "exec \"$0\" elector 2>&1", Kubeconfig::of_nobody());

        // Without sleeping: it could say something meanwhile.
        while recv(elector.link.as_raw_fd(), &mut [0], MsgFlags::MSG_DONTWAIT) != Ok(0) {}
        let said = poll(&mut [PollFd::new(elector.lines.source.as_fd(), PollFlags::POLLIN)], PollTimeout::ZERO);

        assert_eq!(said, Ok(1), "init kills it as soon as the link ends");
        let line = elector.lines.next_line();
        assert!(line.contains("cannot start the elector: Operation not permitted"), "{line}");
    }
}

#[test]
fn probes_that_cannot_be_served_end_the_start() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut first = initial_state();
    first.config.http.listen = Some(taken.local_addr().unwrap());

    refuses(first, "(http.listen)");
}
