//! Init on a terminal: who gets which keys, and that none of them leaves anybody hanging.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test")]

use std::{
    fs,
    io::Write as _,
    os::fd::OwnedFd,
    path::Path,
    process::{Command, Stdio},
};

use nix::{
    fcntl::{FcntlArg, FdFlag, fcntl},
    pty::{OpenptyResult, openpty},
    sys::{
        signal::{Signal, kill},
        termios::{LocalFlags, OutputFlags, SetArg, tcgetattr, tcsetattr},
    },
    unistd::{Pid, tcgetpgrp},
};

use support::{
    Kept, Lines, Scratch,
    kept::contained,
    procfs,
    procfs::{children, is_dead, parent, state},
    wait_for, wait_until,
};
use tenure::apiserver::Server;

const TENURE: &str = env!("CARGO_BIN_EXE_tenure");
const CTRL_C: &[u8] = b"\x03";
const CTRL_Z: &[u8] = b"\x1a";
const CTRL_BACKSLASH: &[u8] = b"\x1c";

/// A workload that keeps running. A shell attributes Ctrl-C to its child alone if that has just ended, trap or not, and misses a
/// signal just before it waits for ever: this one has no child, and never waits long.
const TICKING: &str = "exec 3<> <(:); echo $$; while :; do read -t 0.01 -u 3; done";

#[test]
fn the_foreground_is_the_workloads_and_inits_again_after_it() {
    let set = ["--set", "workload.onExit=restart", "--set", "workload.restart.delay=1m"];
    let mut terminal = Terminal::of_init(&set, "echo $$; read word; exit 1", Place::FirstProcess);
    let workload = terminal.pid();
    terminal.until("the workload is in the foreground", |terminal| terminal.foreground() == workload);
    terminal.press(b"\n");
    let init = terminal.child.pid();
    terminal.until("init is in the foreground", |terminal| terminal.foreground() == init);
    terminal.press(CTRL_C);
    assert_eq!(terminal.exit(), 1, "nothing runs: the keys are init's, and the code is still the workload's");
}

#[test]
fn ctrl_c_reaches_the_workload_once_and_not_through_init() {
    let script = format!("trap 'echo int' INT; trap 'echo quit; exit 5' QUIT; {TICKING}");
    for place in [Place::FirstProcess, Place::Pid1] {
        let mut terminal = Terminal::of_init(&[], &script, place);
        terminal.line();
        for _ in 0..2 {
            terminal.press(CTRL_C);
            assert_eq!(terminal.line(), "int");
        }
        terminal.press(CTRL_BACKSLASH);
        assert_eq!(terminal.line(), "quit", "init has not asked it to stop, and has not passed on a second signal");
        assert_eq!(terminal.exit(), 5);
    }
}

#[test]
fn a_workload_that_ctrl_c_ends_is_not_started_again() {
    let set = ["--set", "workload.onExit=restart", "--set", "workload.restart.policy=always"];
    for script in ["echo $$; exec sleep 600", &format!("trap 'exit 130' INT; {TICKING}")] {
        let mut terminal = Terminal::of_init(&set, script, Place::Pid1);
        terminal.line();
        terminal.press(CTRL_C);
        assert_eq!(terminal.exit(), 130);
    }
}

#[test]
fn ctrl_z_hangs_nobody_where_no_shell_could_continue_init() {
    let script = format!("trap 'echo continued' CONT; trap 'exit 130' INT; {TICKING}");
    for place in [Place::FirstProcess, Place::Pid1] {
        let mut terminal = Terminal::of_init(&[], &script, place);
        terminal.line();
        terminal.press(CTRL_Z);
        assert_eq!(terminal.line(), "continued");
        terminal.press(CTRL_C);
        assert_eq!(terminal.exit(), 130);
    }
}

#[test]
fn a_new_window_size_reaches_the_workload() {
    let mut terminal = Terminal::of_init(&[], &format!("trap 'stty size' WINCH; {TICKING}"), Place::Pid1);
    terminal.line();
    terminal.resize(50);
    assert_eq!(terminal.line(), "50 0");
}

/// Ctrl-Z stops both that this line has started, `fg` continues both with `foreground` in it, and Ctrl-C ends them.
fn suspends_and_continues(terminal: &mut Terminal, line: &str, init: Pid, workload: Pid, foreground: Pid) {
    terminal.press(CTRL_Z);
    terminal.until(&format!("both are stopped: {line}"), |_| [init, workload].map(state) == [Some('T'); 2]);
    terminal.until_shell();
    terminal.run("fg >/dev/null");
    terminal.until(&format!("both go on: {line}"), |_| [init, workload].map(state).iter().all(|state| *state != Some('T')));
    terminal.until("it is in the foreground again", |terminal| terminal.foreground() == foreground);
    assert_eq!(terminal.code_after(CTRL_C), "code 130", "{line}");
}

#[test]
fn a_shell_suspends_init_and_workload_with_the_rest_of_the_job_and_continues_all() {
    let stops_itself = format!("trap 'kill -STOP \\$\\$' TSTP; {}", TICKING.replace('$', "\\$"));
    for line in [
        // A child that is stopped between its vfork and execve would keep its shell from stopping.
        "tenure --leader-election=off -- sh -c 'echo $$; exec sleep 600'",
        &format!("tenure --leader-election=off -- bash -c \"{stops_itself}\""),
        // The script around it shares its process group.
        "bash -c 'tenure --leader-election=off -- sh -c \"echo \\$\\$; exec sleep 600\"; exit $?'",
    ] {
        let mut terminal = Terminal::of_shell();
        terminal.run(line);
        let workload = terminal.pid();
        terminal.until(&format!("it is in the foreground: {line}"), |terminal| terminal.foreground() == workload);
        let init = parent(workload).unwrap();
        suspends_and_continues(&mut terminal, line, init, workload, workload);
    }
}

#[test]
fn a_shell_suspends_both_where_init_reads_no_terminal_and_continues_both() {
    let mut terminal = Terminal::of_shell();
    let line = "tenure --leader-election=off -- sh -c 'echo $$; exec sleep 600' </dev/null";
    terminal.run(line);
    let workload = terminal.pid();
    terminal.until("it runs", |_| name(workload).as_deref() == Some("sleep"));
    let init = parent(workload).unwrap();
    suspends_and_continues(&mut terminal, line, init, workload, init);
}

#[test]
fn ctrl_c_ends_a_loop_around_init_too_of_the_shell_or_of_a_script() {
    let (_server, mut terminal) = with_leases();
    let lock = "tenure lock keys --log-level=error --set lease.creationWait=0s --";
    let each = |command: &str| format!("for each in 1 2; do {command}; done");
    let runs = each(&format!("{lock} sh -c 'echo $$; exec sleep 600'"));
    let reads_nothing = each(&format!("{lock} sh -c 'echo $$; exec sleep 600' </dev/null"));
    for (line, gets_it) in [(&runs, true), (&reads_nothing, false)] {
        for script in [line.clone(), format!("bash -c {}; true", quoted(line))] {
            terminal.run(&script);
            let workload = terminal.pid();
            terminal.until("it runs", |_| name(workload).as_deref() == Some("sleep"));
            assert!(!gets_it || terminal.foreground() == workload);
            assert_eq!(terminal.code_after(CTRL_C), "code 130", "{script}");
        }
    }
    terminal.run(&format!("{lock} sh -c 'echo $$; exec sleep 600' &"));
    let holder = parent(terminal.pid()).unwrap();
    terminal.run(&each(&format!("echo waits; {lock} echo runs")));
    assert_eq!(terminal.line(), "waits");
    terminal.until("it waits", |terminal| name(terminal.foreground()).as_deref() == Some("tenure"));
    assert_eq!(terminal.code_after(CTRL_C), "code 130", "the wait of a lock ends the loop as well");
    kill(holder, Signal::SIGTERM).unwrap();
}

#[test]
fn a_stop_signal_of_inits_own_is_no_key_and_ends_no_script() {
    let (_server, mut terminal) = with_leases();
    let lock = "tenure lock keys --log-level=error --set lease.creationWait=0s --set workload.stop.signal=SIGINT --";
    let line = format!("{lock} sh -c 'echo $$; exec sleep 600'; echo after $?");
    terminal.run(&format!("bash -c {}", quoted(&line)));
    let workload = terminal.pid();
    terminal.until("it runs", |_| name(workload).as_deref() == Some("sleep"));

    kill(parent(workload).unwrap(), Signal::SIGTERM).unwrap();

    assert_eq!(terminal.line(), "after 130");
}

/// A shell with a plain init of these arguments in the background, and the pids of that and of its workload.
fn in_the_background(arguments: &str) -> (Terminal, Pid, Pid) {
    let mut terminal = Terminal::of_shell();
    // With tostop the terminal simply stops whoever writes from the background.
    terminal.run("stty tostop");
    terminal.run(&format!("tenure --leader-election=off {arguments} &"));
    terminal.run("echo $!");
    let init = terminal.pid();
    let workload = wait_for("the workload", || children(init).first().copied());
    (terminal, init, workload)
}

#[test]
fn an_init_in_the_background_stops_for_a_terminal_as_its_workload_does_and_gets_it_with_fg() {
    let (mut terminal, init, workload) = in_the_background("-- sh -c 'read word; echo \"got $word\"'");
    terminal.until("both are stopped", |_| [init, workload].map(state) == [Some('T'); 2]);
    assert_eq!(terminal.foreground(), terminal.child.pid(), "the terminal is still the shell's");
    terminal.run("fg >/dev/null; echo code $?");
    terminal.until("the workload is in the foreground", |terminal| terminal.foreground() == workload);
    terminal.run("it");
    assert_eq!(terminal.line(), "got it");
    assert_eq!(terminal.line(), "code 0");
}

#[test]
fn an_init_that_was_started_in_the_background_and_needs_no_terminal_runs_and_still_hears_ctrl_c() {
    let (mut terminal, init, workload) = in_the_background("-- sleep 600");
    terminal.until("it runs", |_| name(workload).as_deref() == Some("sleep"));
    terminal.run("fg >/dev/null");
    terminal.until("init is in the foreground", |terminal| terminal.foreground() == init);
    assert_ne!(state(init), Some('T'));
    assert_eq!(terminal.code_after(CTRL_C), "code 130");
}

#[test]
fn a_workload_that_got_the_terminal_with_fg_is_not_started_again_after_ctrl_c() {
    let (mut terminal, init, workload) = in_the_background("--set workload.onExit=restart -- sh -c 'read word; exec sleep 600'");
    terminal.until("both are stopped", |_| [init, workload].map(state) == [Some('T'); 2]);
    terminal.run("fg >/dev/null");
    terminal.until("the workload is in the foreground", |terminal| terminal.foreground() == workload);
    assert_eq!(terminal.code_after(CTRL_C), "code 130");
}

#[test]
fn a_job_in_the_background_leaves_the_terminal_to_its_shell_when_it_ends() {
    let mut terminal = Terminal::of_shell();
    terminal.run("tenure --leader-election=off -- sh -c 'echo $$; exec sleep 600'");
    let workload = terminal.pid();
    terminal.until("it is in the foreground", |terminal| terminal.foreground() == workload);
    terminal.press(CTRL_Z);
    let shell = terminal.child.pid();
    terminal.until("the shell has its terminal", |terminal| terminal.foreground() == shell);
    terminal.run("bg >/dev/null");
    terminal.until("it goes on", |_| state(workload) != Some('T'));
    let init = parent(workload).unwrap();
    kill(workload, Signal::SIGKILL).unwrap();
    terminal.until("init has ended", |_| is_dead(init));
    assert_eq!(terminal.foreground(), shell);
    terminal.run("wait %1; echo code $?");
    assert_eq!(terminal.line(), "code 137");
}

#[test]
fn a_lock_that_comes_while_its_script_is_suspended_leaves_the_terminal_to_the_shell() {
    let (_server, mut terminal) = with_leases();
    let lock = "tenure lock keys --log-level=error --set lease.creationWait=0s -- sh -c 'echo $$; exec sleep 600'";
    terminal.run(&format!("{lock} &"));
    let holder = parent(terminal.pid()).unwrap();
    terminal.run(&format!("bash -c {}", quoted(&format!("echo $$; {lock}; exit $?"))));
    let script = terminal.pid();
    terminal.until("it waits", |_| children(script).iter().any(|init| !children(*init).is_empty()));
    terminal.press(CTRL_Z);
    terminal.until_shell();

    kill(holder, Signal::SIGTERM).unwrap();

    let workload = terminal.pid();
    assert_eq!(terminal.foreground(), terminal.child.pid(), "the terminal is still the shell's");
    terminal.run("fg >/dev/null");
    terminal.until("it is in the foreground", |terminal| terminal.foreground() == workload);
    assert_eq!(terminal.code_after(CTRL_C), "code 130");
}

#[test]
fn a_workload_is_started_again_although_the_terminal_has_hung_up() {
    let scratch = Scratch::new();
    let (runs, go) = (scratch.join("runs"), scratch.join("go"));
    let script = format!(
        "trap '' HUP; echo run >>{}; echo $$; while [ ! -e {} ]; do sleep 0.01; done; exit 1",
        runs.display(),
        go.display()
    );
    let set = ["--set", "workload.onExit=restart", "--set", "workload.restart.delay=10ms"];
    let mut terminal = Terminal::of_init(&set, &script, Place::FirstProcess);
    terminal.line();
    terminal.hang_up();
    fs::write(&go, "").unwrap();
    terminal.until("a second run", |_| fs::read_to_string(&runs).unwrap().lines().count() > 1);
}

#[test]
fn a_guard_is_not_suspended_with_a_workload_under_a_lease_which_may_stop_itself() {
    let (_server, mut terminal) = with_leases();
    for stop in ["", "trap 'kill -STOP \\$\\$' TSTP; "] {
        terminal.run(&format!(
            "tenure --lease keys --log-level=error --set lease.creationWait=0s -- \
             bash -c \"{stop}trap 'echo continued' CONT; trap 'exit 130' INT; {}\"; echo code $?",
            TICKING.replace('$', "\\$"),
        ));
        let workload = terminal.pid();
        let init = parent(workload).unwrap();
        terminal.press(CTRL_Z);
        assert_eq!(terminal.line(), "continued", "{stop}");
        assert_ne!(state(init), Some('T'));
        terminal.press(CTRL_C);
        assert_eq!(terminal.line(), "code 130");
    }
}

#[test]
fn ctrl_z_stops_no_leader_that_reads_no_terminal() {
    let (_server, mut terminal) = with_leases();
    terminal.run(&format!(
        "tenure --lease keys --log-level=error --set lease.creationWait=0s -- bash -c \"trap 'echo resized' WINCH; trap 'exit 3' INT; {}\" \
         </dev/null; echo code $?",
        TICKING.replace('$', "\\$"),
    ));
    terminal.pid();
    terminal.press(CTRL_Z);
    // Init reads it after the key, and so does the workload.
    terminal.resize(50);
    assert_eq!(terminal.line(), "resized");
    terminal.press(CTRL_C);
    assert_eq!(terminal.line(), "code 3");
}

#[test]
fn a_frozen_standby_has_no_terminal_before_it_leads() {
    let (_server, mut terminal) = with_leases();
    // It is not frozen before it has said something.
    let readiness = "--set workload.readiness.initialDelay=1s --set 'workload.readiness.exec.command=[\"true\"]'";
    let run = format!("tenure --lease keys --log-level=error --set workload.runs=frozen {readiness}");
    let script = format!("-- bash -c \"trap 'exit 3' INT; {}\"; echo code $?", TICKING.replace('$', "\\$"));
    terminal.run(&format!("{run} --set lease.creationWait=1h {script}"));
    let standby = terminal.pid();
    terminal.until("it is frozen", |_| state(standby) == Some('T'));
    // As a shell's `fg` does after Ctrl-Z in a script around it.
    let init = parent(standby).unwrap();
    kill(init, Signal::SIGCONT).unwrap();
    terminal.until("init has read it", |_| procfs::status(init, "ShdPnd").is_some_and(|set| set == "0".repeat(16)));
    terminal.press(CTRL_C);
    assert_eq!(terminal.line(), "code 0");
    terminal.run(&format!("{run} --set lease.creationWait=0s {script}"));
    let leader = terminal.pid();
    terminal.until("it leads", |terminal| terminal.foreground() == leader && state(leader) != Some('T'));
    terminal.press(CTRL_C);
    assert_eq!(terminal.line(), "code 3");
}

#[test]
fn a_shell_under_a_lease_has_job_control_and_takes_its_jobs_with_it() {
    let (_server, mut terminal) = with_leases();
    terminal.run("export HISTFILE=");
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/config/examples/shell.yaml");
    terminal.run(&format!("tenure --config '{example}' --log-level=error --set lease.creationWait=0s; echo \"code <$?>\""));
    // It writes prompts, and what is typed.
    let number = |terminal: &mut Terminal| {
        let found = std::iter::repeat_with(|| terminal.line()).find_map(|line| line.split(['<', '>']).nth(1)?.parse().ok());
        found.expect("endless")
    };
    terminal.run("echo \"<$$>\"");
    let shell = Pid::from_raw(number(&mut terminal));
    let init = parent(shell).unwrap();
    // What hangs up does not end it: only tenure does.
    terminal.run("(trap '' HUP; exec sleep 600) & echo \"<$!>\"");
    let job = Pid::from_raw(number(&mut terminal));
    terminal.run("fg");
    terminal.until("the job is in the foreground", |terminal| terminal.foreground() == job);
    terminal.press(CTRL_Z);
    terminal.until("it is stopped, and the shell goes on", |terminal| {
        terminal.foreground() == shell && state(job) == Some('T') && state(init) != Some('T')
    });
    terminal.run("bg");
    terminal.until("it goes on", |_| state(job) != Some('T'));

    kill(init, Signal::SIGTERM).unwrap();

    assert_eq!(number(&mut terminal), 128 + 1, "the shell's own end, of SIGHUP");
    assert!(is_dead(shell) && is_dead(job));
}

#[test]
fn an_init_whose_shell_is_in_another_pid_namespace_takes_no_terminal_from_it() {
    let mut terminal = Terminal::of_shell();
    let contained = contained().collect::<Vec<_>>().join(" ");
    terminal.run(&format!("{contained} tenure --leader-election=off -- bash -c 'echo runs; {TICKING}' &"));
    assert_eq!(terminal.words(), "runs");
    terminal.pid();
    terminal.run("echo shell");
    assert_eq!(terminal.words(), "shell");
    assert_eq!(terminal.foreground(), terminal.child.pid());
}

#[test]
fn what_opens_the_terminal_itself_gets_it_although_standard_input_is_another_file() {
    let mut terminal = Terminal::of_shell();
    terminal.run("echo no | tenure --leader-election=off -- sh -c 'read word </dev/tty; echo got $word'; echo code $?");
    terminal.press(b"yes\n");
    assert_eq!(terminal.line(), "got yes");
    assert_eq!(terminal.line(), "code 0");
}

#[test]
fn a_pager_behind_the_workload_gets_the_terminal_and_the_workload_if_it_asks_for_it() {
    let mut terminal = Terminal::of_shell();
    let pager = "{ read go; read word </dev/tty; echo pager got $word; }";
    terminal.run(&format!("tenure --leader-election=off -- sh -c 'echo go; sleep 600; echo no' | {pager}"));
    terminal.press(b"yes\n");
    assert_eq!(terminal.line(), "pager got yes");
    // A shell that is between its vfork and execve loses the key, and one that ends by it takes the terminal.
    let only = |pid| <[Pid; 1]>::try_from(children(pid)).ok().map(|[child]| child);
    terminal.until("the workload sleeps alone", |terminal| {
        only(terminal.child.pid()).and_then(only).and_then(only).and_then(name).as_deref() == Some("sleep")
    });
    terminal.press(CTRL_C);
    terminal.until_shell();
    terminal.run("tenure --leader-election=off -- sh -c 'read word; echo got $word' | cat; echo code $?");
    terminal.press(b"yes\n");
    assert_eq!(terminal.words(), "got yes");
    assert_eq!(terminal.line(), "code 0");
}

#[test]
fn ctrl_z_hangs_nobody_where_standard_input_is_another_file_and_no_shell_could_continue_init() {
    let script = format!("trap 'echo continued' CONT; trap 'exit 4' TERM; {TICKING}");
    let command = ["setsid", "--ctty", "sh", "-c", "exec \"$@\" </dev/null", "sh", TENURE, "--leader-election=off", "--"];
    let mut terminal = Terminal::of(&[&command[..], &["bash", "-c", &script]].concat());
    terminal.pid();
    terminal.press(CTRL_Z);
    assert_eq!(terminal.line(), "continued");
    kill(terminal.child.pid(), Signal::SIGTERM).unwrap();
    assert_eq!(terminal.exit(), 4);
}

#[test]
fn status_keeps_one_screen_of_leases_current_and_says_lines_to_a_pipe() {
    let (_server, mut terminal) = with_leases();
    terminal.run("export TERM=xterm");
    terminal.run("tenure --lease keys --log-level=error --set lease.creationWait=0s -- sh -c 'echo $$; exec sleep 600' &");
    let init = parent(terminal.pid()).unwrap();
    let watch = "tenure status -l app.kubernetes.io/managed-by=tenure --watch";
    terminal.run(&format!("{watch}; echo code $?"));
    let mut shown = |what: &str| {
        let line = std::iter::repeat_with(|| terminal.line()).take(300).find(|line| line.contains(what));
        // It is drawn again and again: a wait for a line alone would not end.
        let line = line.unwrap_or_else(|| panic!("{what:?} is not shown"));
        assert!(line.ends_with("\x1b[K"), "nothing of a longer line before it stays: {line:?}");
        line
    };
    assert!(shown("Z").contains("\x1b[H\x1b[?7l20"), "from the top");
    shown("HOLDER");
    shown("held, 14s left");
    shown("   now        keys");
    shown("held, 13s left");
    assert!(shown("\x1b[J").contains("\x1b[?7h\x1b[J\x1b[H\x1b[?7l20"), "nothing below, and from the top again");
    kill(init, Signal::SIGTERM).unwrap();
    shown("keys    free");
    shown("   released   keys");
    assert!(shown("keys").contains("   now        "), "the latest event is first");
    terminal.press(CTRL_C);
    while !terminal.line().ends_with("code 0") {}
    terminal.run(&format!("{watch} | cat"));
    assert!(terminal.line().contains("   now        keys   free"));
}

#[test]
fn the_screen_of_the_fleet_begins_with_what_needs_a_look() {
    let (_server, mut terminal) = with_leases();
    terminal.run("export TERM=xterm");
    let led = "--log-level=error --set lease.creationWait=0s --";
    terminal.run(&format!("tenure --lease a {led} sh -c 'echo $$; exec sleep 600' &"));
    let init = parent(terminal.pid()).unwrap();
    terminal.run(&format!("tenure --namespace y --lease z {led} true; tenure status -A --watch; echo code $?"));
    while !terminal.line().contains("NAMESPACE") {}
    for row in ["y           z       free", "a       held"] {
        let line = terminal.line();
        assert!(line.contains(row), "{line:?}");
    }
    terminal.press(CTRL_C);
    while !terminal.line().ends_with("code 0") {}
    kill(init, Signal::SIGTERM).unwrap();
}

/// An API server, and a shell whose tenure uses it.
fn with_leases() -> ((Server, Scratch), Terminal) {
    let server = Server::start(([127, 0, 0, 1], 0).into()).expect("the embedded API server");
    let scratch = Scratch::new();
    let kubeconfig = scratch.file("kubeconfig", server.kubeconfig(server.address()));
    let mut terminal = Terminal::of_shell();
    terminal.run(&format!("export KUBECONFIG={kubeconfig}"));
    ((server, scratch), terminal)
}

/// How init was started.
#[derive(Clone, Copy, Debug)]
enum Place {
    /// As the first process of the terminal, as with ssh -t.
    FirstProcess,
    /// As that, and PID 1 of its namespace, as in a container.
    Pid1,
}

/// A terminal, and its first process.
struct Terminal {
    /// Its master side.
    screen: Lines<fs::File>,
    child: Kept,
}

impl Terminal {
    fn of_init(arguments: &[&str], script: &str, place: Place) -> Self {
        let mut command = vec!["setsid", "--ctty", TENURE, "--leader-election=off"];
        if matches!(place, Place::Pid1) {
            command.splice(..0, contained());
        }
        Self::of(&[&command, arguments, &["--", "bash", "-c", script]].concat())
    }

    fn of_shell() -> Self {
        Self::of(&["setsid", "--ctty", "env", "PS1=", "bash", "--norc", "--noprofile", "--noediting", "-i"])
    }

    fn of(command: &[&str]) -> Self {
        let OpenptyResult { master, slave } = openpty(None, None).expect("a terminal");
        // Otherwise it would not hang up as long as the child lives.
        fcntl(&master, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC)).unwrap();
        let mut settings = tcgetattr(&slave).unwrap();
        settings.local_flags.remove(LocalFlags::ECHO | LocalFlags::ECHOCTL);
        // Otherwise a key's signal would discard output written in response to it.
        settings.local_flags.insert(LocalFlags::NOFLSH);
        settings.output_flags.remove(OutputFlags::OPOST);
        tcsetattr(&slave, SetArg::TCSANOW, &settings).unwrap();
        let copy = |slave: &OwnedFd| Stdio::from(slave.try_clone().unwrap());
        let [program, arguments @ ..] = command else { panic!("no command") };
        // Whoever runs the tests in the background may have made them ignore the keys' signals.
        let mut launcher = Command::new("env");
        launcher.args(["--default-signal", "setpriv", "--pdeathsig", "KILL", program]).args(arguments);
        launcher.env("PATH", format!("{}:{}", Path::new(TENURE).parent().unwrap().display(), std::env::var("PATH").unwrap()));
        launcher.stdin(copy(&slave)).stdout(copy(&slave));
        let child = Kept(launcher.spawn().expect("env, setpriv, setsid and unshare are needed"));
        Self { screen: Lines::of(fs::File::from(master)), child }
    }

    fn press(&mut self, keys: &[u8]) {
        self.screen.source.write_all(keys).unwrap();
    }

    /// Types a command line.
    fn run(&mut self, line: &str) {
        self.press(format!("{line}\n").as_bytes());
    }

    /// The next line on the terminal.
    fn line(&mut self) -> String {
        self.screen.next_line()
    }

    /// The next line, which is a pid in this namespace.
    fn pid(&mut self) -> Pid {
        let line = self.line();
        Pid::from_raw(line.parse().unwrap_or_else(|_| panic!("not a number: {line:?}")))
    }

    /// The next line with something on it: a shell may begin a new one after a key.
    fn words(&mut self) -> String {
        std::iter::repeat_with(|| self.line()).find(|line| !line.is_empty()).expect("endless")
    }

    /// Presses a key, and reads the exit code of the command that it ends. A shell runs nothing more of the line that it was on.
    fn code_after(&mut self, key: &[u8]) -> String {
        self.press(key);
        self.until_shell();
        self.run("echo code $?");
        self.words()
    }

    /// What is typed before that may be read by another.
    fn until_shell(&mut self) {
        let shell = self.child.pid();
        self.until("the shell has its terminal", |terminal| terminal.foreground() == shell);
    }

    fn foreground(&self) -> Pid {
        tcgetpgrp(&self.screen.source).unwrap()
    }

    /// Changes only its rows, as stty signals each dimension separately.
    fn resize(&self, rows: u16) {
        let mut stty = Command::new("stty");
        let status = stty.args(["rows", &rows.to_string()]).stdin(self.screen.source.try_clone().unwrap()).status().unwrap();
        assert!(status.success());
    }

    fn hang_up(&mut self) {
        self.screen.source = fs::File::open("/dev/null").unwrap();
    }

    fn until(&mut self, what: &str, mut ready: impl FnMut(&mut Self) -> bool) {
        wait_until(what, || ready(self));
    }

    fn exit(mut self) -> i32 {
        wait_for("the end", || self.child.try_wait().unwrap()).code().unwrap_or(-1)
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // A shell's jobs are in their own groups, and a stopped one would stay for ever.
        let session = self.child.pid();
        for pid in procfs::all().filter(|pid| procfs::session(*pid) == Some(session)) {
            let _ = kill(pid, Signal::SIGKILL);
        }
    }
}

/// As one word of a shell.
fn quoted(script: &str) -> String {
    format!("'{}'", script.replace('\'', "'\\''"))
}

fn name(pid: Pid) -> Option<String> {
    Some(fs::read_to_string(format!("/proc/{pid}/comm")).ok()?.trim().to_owned())
}
