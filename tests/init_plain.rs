//! Init without a Lease, as PID 1 of a fresh PID namespace and as an ordinary process: what a workload may expect of its parent.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test")]

use std::{
    fs,
    io::{Read as _, Write as _},
    os::unix::{fs::PermissionsExt as _, net::UnixStream, process::CommandExt as _},
    process::{ChildStdout, Command, Stdio},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use support::{
    Kept, Lines, Scratch, denied,
    denied::without_close_range,
    kept,
    procfs::{children, is_dead, state, status},
    wait_for, wait_until,
};

const TENURE: &str = env!("CARGO_BIN_EXE_tenure");

#[test]
fn the_exit_code_is_the_workloads_or_128_and_the_signal_that_killed_it() {
    let killed = |signal: Signal| (format!("kill -{} $$", signal as i32), 128 + signal as i32);
    let signals = [Signal::SIGKILL, Signal::SIGSEGV, Signal::SIGTERM, Signal::SIGUSR1].map(killed);
    for (script, code) in [0, 1, 7, 255].map(|code| (format!("exit {code}"), code)).into_iter().chain(signals) {
        assert_eq!(Init::contained(&[], &script).exit(), code);
        assert_eq!(Init::beside_others(&[], &script).exit(), code);
    }
}

#[test]
fn what_cannot_be_run_is_refused_with_its_code_and_why() {
    let scratch = Scratch::new();
    let executable = |name: &str, text: &str| {
        let file = scratch.file(name, text);
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
        file
    };
    let (text, script) = (executable("text", "no program at all"), executable("script", "#!/no/such/int\n"));
    let no_program = "cannot execute: Exec format error (neither a program for this machine nor a script with a #! line)";
    let no_interpreter = "cannot execute: No such file or directory (the file, or the interpreter that its #! line";
    // Without --fork, init's children are in another PID namespace than init.
    let unforked = ["unshare", "--pid", "--map-root-user"];
    let unforked = if nix::unistd::geteuid().is_root() { &unforked[..2] } else { &unforked };
    let promised = ["sh", "-c", "export LISTEN_FDS=2 LISTEN_PID=$$; exec \"$@\" 3</dev/null", "sh"];
    let no_socket = "LISTEN_FDS=2, but tenure was started without descriptor 4: pass it on, or unset LISTEN_FDS";
    for (by, command, code, words) in [
        (&[][..], "/nowhere/at-all", 127, "/nowhere/at-all: not found"),
        (&[], "no-such-command-anywhere", 127, "not found in PATH"),
        (&[], "/etc/passwd", 126, "not executable"),
        (&[], "/", 126, "is a directory"),
        (&[], &text, 126, no_program),
        (&[], &script, 127, no_interpreter),
        (unforked, "echo", 126, "cannot bind the child to init's life"),
        (&promised, "echo", 78, no_socket),
    ] {
        let run = [by, &[TENURE, "--leader-election=off", "--", command, "it runs"]].concat();
        let output = Command::new("env").args(run).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        let is_refused = output.status.code() == Some(code) && output.stdout.is_empty() && said.contains(words);
        assert!(is_refused, "{by:?} {command}: {:?} {said}", output.status);
    }
}

#[test]
fn calls_without_which_init_would_never_end_are_missed_at_the_start() {
    for (call, words) in [(libc::SYS_waitid, "children cannot be reaped"), (libc::SYS_kill, "no process can be signalled")] {
        let mut command = Command::new(TENURE);
        command.args(["--leader-election=off", "--", "true"]).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = denied(&mut command, call).spawn().unwrap();
        let code = wait_for("its end", || child.try_wait().unwrap()).code();
        let said = std::io::read_to_string(child.stderr.take().unwrap()).unwrap();
        assert!(code == Some(70) && said.contains(words), "{code:?} {said}");
    }
}

#[test]
fn before_linux_5_11_a_workload_inherits_no_more_and_its_start_takes_no_longer_the_more_descriptors_it_may_open() {
    let mut command = Command::new("bash");
    command.args(["-c", "ulimit -Sn hard && exec \"$@\" 300</dev/null", "bash", TENURE, "--leader-election=off", "--"]);
    let output = without_close_range(command.args(["ls", "/proc/self/fd"]), 1000).output().unwrap();

    assert_eq!(String::from_utf8(output.stdout).unwrap(), "0\n1\n2\n3\n", "{:?}", output.status);
}

#[test]
fn standard_input_and_output_are_the_workloads() {
    let mut init = Init::contained(&[], "cat; echo end");
    init.child.stdin.take().unwrap().write_all(b"over to you\n").unwrap();
    assert_eq!((init.line(), init.line()), ("over to you".into(), "end".into()));
    assert_eq!(init.exit(), 0);
}

#[test]
fn term_reaches_a_workload_even_one_that_was_stopped_and_its_answer_is_the_exit_code() {
    for stops in ["", "kill -STOP $$;"] {
        let script = format!("trap 'exit 9' TERM; echo ready; {stops} while :; do sleep 0.01; done");
        let mut init = Init::contained(&[], &script);
        init.line();
        let workload = wait_for("the workload", || children(init.pid()).first().copied());
        wait_until("the workload is stopped", || stops.is_empty() || state(workload) == Some('T'));
        init.signal(Signal::SIGTERM);
        assert_eq!(init.exit(), 9);
    }
}

#[test]
fn other_signals_pass_through_and_so_do_int_and_quit_which_end_nothing_by_themselves() {
    let traps = "trap 'echo usr1' USR1; trap 'echo usr2' USR2; trap 'echo int' INT; trap 'echo quit' QUIT; trap 'exit 4' TERM";
    let script = &format!("{traps}; echo ready; while :; do sleep 0.01; done");
    let mut init = Init::contained(&[], script);
    init.line();
    let keys = [(Signal::SIGINT, "int"), (Signal::SIGQUIT, "quit")];
    for (signal, said) in [(Signal::SIGUSR1, "usr1"), (Signal::SIGUSR2, "usr2")].into_iter().chain(keys.repeat(3)) {
        init.signal(signal);
        assert_eq!(init.line(), said);
    }
    init.signal(Signal::SIGTERM);
    assert_eq!(init.exit(), 4);
}

#[test]
fn a_person_who_stops_the_workload_through_init_stops_init_too_and_nobody_beside_it() {
    for signal in [Signal::SIGTSTP, Signal::SIGTTIN, Signal::SIGTTOU] {
        let beside = "trap 'echo beside' USR1; echo $$; while :; do sleep 0.01; done";
        let script = "sh -c \"$1\" & exec \"$2\" --leader-election=off -- sleep 100";
        let mut job = Command::new("setpriv");
        job.args(["--pdeathsig", "KILL", "env", "--default-signal", "sh", "-c", script, "sh", beside, TENURE]);
        let mut init = Init::of(job.process_group(0), false);
        let beside = Pid::from_raw(init.line().parse().unwrap());
        let workload = wait_for("the workload", || children(init.pid()).into_iter().find(|pid| *pid != beside));
        wait_until("it sleeps", || fs::read_to_string(format!("/proc/{workload}/comm")).is_ok_and(|name| name == "sleep\n"));

        kill(init.pid(), signal).unwrap();

        wait_until("init is stopped", || state(init.pid()) == Some('T'));
        assert_eq!(state(workload), Some('T'));
        kill(beside, Signal::SIGUSR1).unwrap();
        assert_eq!(init.line(), "beside", "{signal}");
        kill(init.pid(), Signal::SIGCONT).unwrap();
        wait_until("the workload goes on", || state(workload) != Some('T'));
        kill(beside, Signal::SIGKILL).unwrap();
        kill(init.pid(), Signal::SIGTERM).unwrap();
        assert_eq!(init.exit(), 143);
    }
}

#[test]
fn nobody_gets_a_sigcont_that_nobody_sent_unless_it_is_stopped() {
    let script = "trap 'echo continued' CONT; trap 'echo asked; exit 6' TERM; echo ready; while :; do sleep 0.01; done";
    let mut init = Init::start(&[], &["bash", "-c", script], true);
    init.line();
    init.signal(Signal::SIGTERM);
    assert_eq!(init.line(), "asked");
    assert_eq!(init.exit(), 6);

    let group = ["--set", "workload.stop.killMode=group"];
    let stopped = "trap 'exit 6' TERM; echo ready; kill -STOP $$; while :; do sleep 0.01; done";
    let beside = "trap 'wait; exit 6' TERM; \
                  (trap 'echo asked; exit' TERM; echo ready; kill -STOP $BASHPID; while :; do sleep 0.01; done) & \
                  while :; do sleep 0.01; done";
    for (options, script, lines) in [(&[][..], stopped, 0), (&group[..], beside, 1)] {
        let mut init = Init::start(options, &["bash", "-c", script], true);
        init.line();
        let tree = |main: Pid| [vec![main], children(main)].concat();
        let is_stopped = |pid: Pid| state(pid) == Some('T');
        wait_until("something is stopped", || children(init.pid()).into_iter().flat_map(tree).any(is_stopped));
        init.signal(Signal::SIGTERM);
        for _ in 0..lines {
            assert_eq!(init.line(), "asked");
        }
        assert_eq!(init.exit(), 6);
    }
}

#[test]
fn a_signal_reaches_the_workload_as_itself_or_as_the_one_that_the_configuration_says() {
    let set = |option: &'static str| ["--set", option];
    let (stops_by, rewrites) = (set("workload.stop.signal=SIGRTMIN+3"), set("signals.rewrite.leader={SIGHUP: SIGUSR1}"));
    for (options, trapped, sent) in [
        (&[][..], "RTMIN+3", "RTMIN+3"),
        // As systemd wants it.
        (&stops_by, "RTMIN+3", "TERM"),
        // By these two, servers change their number of workers.
        (&[], "TTIN", "TTIN"),
        (&[], "TTOU", "TTOU"),
        (&rewrites, "USR1", "HUP"),
    ] {
        let script = format!("trap 'exit 5' {trapped}; echo ready; while :; do sleep 0.01; done");
        let mut init = Init::start(options, &["bash", "-c", &script], true);
        init.line();
        let status = Command::new("kill").args(["-s", sent, &init.pid().to_string()]).status().unwrap();
        assert_eq!((status.success(), init.exit()), (true, 5), "{options:?}: {sent} for {trapped}");
    }
}

#[test]
fn the_whole_group_is_asked_to_stop_where_that_is_wanted() {
    let child = "trap 'echo child; exit' TERM; echo ready; while :; do sleep 0.01; done";
    let script = format!("trap 'echo main' TERM; sh -c \"{child}\" & wait; wait; exit 4");
    let mut init = Init::contained(&["--set", "workload.stop.killMode=group"], &script);
    init.line();
    init.signal(Signal::SIGTERM);
    let mut said = [init.line(), init.line()];
    said.sort();
    assert_eq!((said, init.exit()), (["child".into(), "main".into()], 4));
}

#[test]
fn a_workload_that_ignores_term_is_killed_after_the_grace_that_the_first_the_second_and_the_third_one_leave() {
    for (terms, grace, loss_grace) in [(1, "200ms", "100ms"), (2, "10m", "200ms"), (3, "10m", "10m")] {
        let set = [format!("workload.stop.grace={grace}"), format!("workload.stop.lossGrace={loss_grace}")];
        let set: Vec<&str> = set.iter().flat_map(|set| ["--set", set]).collect();
        let mut init = Init::contained(&set, "trap '' TERM; echo ready; while :; do sleep 0.01; done");
        init.line();
        for _ in 0..terms {
            init.signal(Signal::SIGTERM);
        }
        assert_eq!(init.exit(), 137);
    }
}

#[test]
fn an_init_that_was_started_with_sigchld_ignored_knows_how_its_workload_ended() {
    for contained in [true, false] {
        let init = ["env", "--ignore-signal=CHLD", TENURE, "--leader-election=off", "--"];
        assert_eq!(Init::run(&init, &["sh", "-c", "exit 3"], contained).exit(), 3);
    }
}

#[test]
fn orphans_are_reaped() {
    let script = "for i in 1 2 3 4 5 6 7 8; do (sh -c 'echo $PPID' & ) >/dev/null; done
        until ! grep -qs '^State:.Z' /proc/[0-9]*/status; do sleep 0.01; done";
    assert_eq!(Init::contained(&[], script).exit(), 0);
}

#[test]
fn what_a_workload_leaves_behind_ends_before_init_does() {
    let script = "setsid sh -c 'trap \"\" TERM HUP; echo $$; while :; do sleep 0.1; done' & read -r _; exit 3";
    let mut init = Init::beside_others(&[], script);
    let daemon = Pid::from_raw(init.line().parse().unwrap());
    drop(init.child.stdin.take());
    assert_eq!(init.exit(), 3);
    assert_eq!(state(daemon), None);
}

#[test]
fn the_workload_dies_with_an_init_that_is_not_pid_1() {
    let mut init = Init::beside_others(&[], "echo $$; exec sleep 600");
    let workload = Pid::from_raw(init.line().parse().unwrap());
    init.child.kill().unwrap();
    wait_until("the workload is gone", || is_dead(workload));
}

#[test]
fn mask_and_dispositions_of_the_workload_are_those_that_tenure_was_started_with() {
    let wrappers: [&[&str]; 3] = [&[], &["--block-signal=USR1,TERM", "--ignore-signal=HUP,PIPE"], &["--ignore-signal=INT,CHLD"]];
    for wrapper in wrappers {
        let seen = |through: &[&str]| {
            let command =
                [&["--default-signal=PIPE"], wrapper, through, &["grep", "-E", "^Sig(Blk|Ign|Cgt)", "/proc/self/status"]];
            String::from_utf8(Command::new("env").args(command.concat()).output().unwrap().stdout).unwrap()
        };
        let direct = seen(&[]);
        assert_eq!(direct.lines().count(), 3, "{direct}");
        assert_eq!(seen(&[TENURE, "--leader-election=off", "--"]), direct, "{wrapper:?}");
    }
}

#[test]
fn sockets_by_which_systemd_started_tenure_are_for_the_workload() {
    let script = r#"
import ctypes, os, socket
count = ctypes.CDLL("libsystemd.so.0").sd_listen_fds(0)
caller, _ = socket.socket(fileno=3).accept()
caller.sendall(f"{count} {os.environ['LISTEN_FDNAMES']}".encode())
"#;
    for contained in [true, false] {
        let scratch = Scratch::new();
        let path = scratch.join("socket");
        let listen = format!("--listen={}", path.display());
        let activate = ["systemd-socket-activate", &listen, "--fdname=door", TENURE, "--leader-election=off", "--"];
        let init = Init::run(&activate, &["python3", "-c", script], contained);
        let mut caller = wait_for("somebody who listens", || UnixStream::connect(&path).ok());
        let mut answer = String::new();

        caller.read_to_string(&mut answer).unwrap();

        assert_eq!((answer.as_str(), init.exit()), ("1 door", 0), "contained: {contained}");
    }
}

#[test]
fn the_workload_leads_a_process_group_of_its_own_and_has_no_descriptor_of_inits() {
    let script = "read -r pid _ _ _ group _ </proc/self/stat; [ $pid = $group ] || exit 1; for fd in /proc/$$/fd/*; do
        case ${fd##*/} in 0|1|2) ;; *) readlink $fd && exit 2;; esac; done; true";
    let mut init = Init::start(&[], &["bash", "-c", script], true);
    let said = init.output.rest();
    assert_eq!((init.exit(), said), (0, String::new()));
}

#[test]
fn a_term_that_was_pending_when_init_began_ends_it_before_anything_is_started() {
    let script = "kill -TERM $$; exec \"$0\" --leader-election=off -- sleep 600";
    let init = Init::run(&["env", "--block-signal=TERM", "sh", "-c", script], &[TENURE], true);
    assert_eq!(init.exit(), 143, "nobody may believe that it ran");
}

#[test]
fn a_plain_init_starts_a_workload_again_as_its_policy_says() {
    let scratch = Scratch::new();
    let file = scratch.join("runs");
    let set = ["workload.onExit=restart", "workload.restart.delay=10ms", "workload.restart.burst=2"];
    let set: Vec<&str> = set.iter().flat_map(|set| ["--set", set]).collect();
    let script = format!("echo run >>{}; exit 3", file.display());
    assert_eq!(Init::contained(&set, &script).exit(), 3);
    let runs = fs::read_to_string(&file).unwrap();
    assert_eq!(runs.lines().count(), 3);
}

/// A running plain init.
struct Init {
    child: Kept,
    output: Lines<ChildStdout>,
    contained: bool,
}

impl Init {
    fn contained(arguments: &[&str], script: &str) -> Self {
        Self::start(arguments, &["sh", "-c", script], true)
    }

    fn beside_others(arguments: &[&str], script: &str) -> Self {
        Self::start(arguments, &["sh", "-c", script], false)
    }

    fn start(arguments: &[&str], workload: &[&str], contained: bool) -> Self {
        Self::run(&[&[TENURE, "--leader-election=off"], arguments, &["--"]].concat(), workload, contained)
    }

    fn run(init: &[&str], workload: &[&str], contained: bool) -> Self {
        let mut command = kept::bound();
        command.args(kept::contained().filter(|_| contained));
        // Whoever runs the tests may ignore signals, and a shell cannot trap what was ignored when it started.
        command.args(["env", "--default-signal"]).args(init).args(workload);
        Self::of(&mut command, contained)
    }

    fn of(command: &mut Command, contained: bool) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("setpriv and unshare are needed");
        let output = Lines::of(child.stdout.take().unwrap());
        Self { child: Kept(child), output, contained }
    }

    /// The next line that the workload prints.
    fn line(&mut self) -> String {
        self.output.next_line()
    }

    /// Init's pid, as seen from here.
    fn pid(&self) -> Pid {
        let launcher = self.child.pid();
        if self.contained { wait_for("init", || children(launcher).first().copied()) } else { launcher }
    }

    /// Sends init a signal, and waits until it has been taken: two pending ones would merge into one.
    fn signal(&self, signal: Signal) {
        let pid = self.pid();
        kill(pid, signal).unwrap();
        wait_until("init takes the signal in", || !is_pending(pid, signal));
    }

    fn exit(mut self) -> i32 {
        use std::os::unix::process::ExitStatusExt as _;
        let status = wait_for("init ends", || self.child.try_wait().unwrap());
        status.code().unwrap_or_else(|| -status.signal().unwrap_or_default())
    }
}

fn is_pending(pid: Pid, signal: Signal) -> bool {
    let is_in = |set: String| u64::from_str_radix(&set, 16).unwrap() >> (signal as i32 - 1) & 1 == 1;
    status(pid, "ShdPnd").is_some_and(is_in)
}
