//! A child inherits only what it should, and runs nothing if it is started too late.

use std::{fs, io::Read as _, os::fd::AsFd as _, path::Path};

use nix::{
    errno::Errno,
    fcntl::OFlag,
    sys::resource::{Resource, getrlimit, setrlimit},
    unistd::{Pid, dup, pipe2},
};
use support::{Scratch, wait_until};
use tenure::{
    clock,
    config::Signal,
    link::Exit,
    process::{
        kill,
        scan::Scanner,
        signals,
        spawn::{self, Command, Failure, Outcome, ProcessGroup, RoleSignal, Setup, Spawning, Step},
    },
    time::Instant,
};

use crate::world::{self, command, outcome, setup, shell, shell_with, test_in};

test_in!(Pid1, a_child_that_was_stopped_past_its_deadline_runs_nothing, {
    let scratch = Scratch::new();
    let file = scratch.join("late");
    // The shell itself makes the file: what it forks could outlive it, and make the file later.
    let script = command(&format!(": >{}", file.display()));
    let inherited = signals::block().expect("signals");
    let scanner = Scanner::open().expect("/proc");
    let ours = fs::read_link("/proc/self/exe").expect("/proc");

    let catch = || {
        for _ in 0..500 {
            let deadline = clock::boot() + std::time::Duration::from_millis(200);
            let mut child = script.spawn(&Setup { not_after: Some(deadline), ..setup(inherited) }).expect("a child");
            kill::send(child.pid, Signal(libc::SIGSTOP)).expect("it lives");
            wait_until("a stop or an end", || matches!(scanner.look(child.pid).map(|child| child.state), Some(b'T' | b'Z')));
            let is_ours = fs::read_link(format!("/proc/{}/exe", child.pid)).is_ok_and(|exe| exe == ours);
            // One that was stopped too late has reported already; the parent does not wait for one that has not.
            if is_ours && child.outcome().is_none() {
                return (child, deadline);
            }
            let _ = kill::send(child.pid, Signal::KILL);
            wait_until("its end", || world::reap_next().is_some());
            let _ = fs::remove_file(&file);
        }
        panic!("none of them stopped before its execve");
    };
    let resume = |(mut child, deadline): (Spawning, Instant)| {
        wait_until("the deadline", || clock::boot() > deadline);
        kill::send(child.pid, Signal::CONT).expect("it lives");
        let after = outcome(&mut child);
        wait_until("its end", || world::reap_next().is_some_and(|(pid, _)| pid == child.pid));
        (after, fs::remove_file(&file).is_ok())
    };

    // One that is stopped between its look at the clock and its execve runs the program all the same, but hardly twice in a row.
    let (after, ran) = match resume(catch()) {
        (Outcome::Done, _) => resume(catch()),
        other => other,
    };

    assert_eq!((after, ran), (Outcome::Late, false));
});

test_in!(Pid1, a_deadline_that_is_past_or_not_decides, {
    let inherited = signals::block().expect("signals");
    let script = command("exit 7");
    let mut late = script.spawn(&Setup { not_after: Some(Instant::BOOT), ..setup(inherited) }).expect("a child");
    assert_eq!(outcome(&mut late), Outcome::Late);
    let mut early = script.spawn(&Setup { not_after: Some(Instant::NEVER), ..setup(inherited) }).expect("a child");
    assert_eq!(outcome(&mut early), Outcome::Done);
    wait_until("its end", || world::reap_next() == Some((early.pid, Exit::Code(7))));
});

fn promote(pid: Pid, signal: Signal, not_after: Instant, until_taken: bool) -> RoleSignal<'static> {
    RoleSignal { not_after: Some(not_after), until_taken, ..demote(pid, signal) }
}

fn demote(pid: Pid, signal: Signal) -> RoleSignal<'static> {
    RoleSignal { pid, signal, not_after: None, mark: None, until_taken: true }
}

test_in!(Pid1, a_signal_waits_until_its_process_has_a_handler, {
    let scratch = Scratch::new();
    let (ready, told) = (scratch.join("ready"), scratch.join("told"));
    nix::unistd::mkfifo(&ready, nix::sys::stat::Mode::S_IRUSR | nix::sys::stat::Mode::S_IWUSR).expect("a fifo");
    let child =
        shell(&format!("read word <{}; trap 'touch {}' USR1; while :; do sleep 0.01; done", ready.display(), told.display()));
    let usr1 = Signal(libc::SIGUSR1);

    let soon = clock::boot() + std::time::Duration::from_millis(50);
    let late_outcome = outcome(&mut promote(child, usr1, soon, false).spawn().expect("a child"));
    let mut early = promote(child, usr1, Instant::NEVER, false).spawn().expect("a child");
    let before = early.outcome();
    fs::write(&ready, "go\n").expect("it reads");
    let after = outcome(&mut early);

    assert_eq!((late_outcome, before, after), (Outcome::Late, None, Outcome::Done));
    wait_until("its trap", || told.exists());
    assert_eq!(std::iter::from_fn(world::reap_next).find(|(pid, _)| *pid == child), None, "it lives");
});

test_in!(Pid1, a_signal_that_was_sent_is_taken_only_by_a_process_that_runs, {
    let scratch = Scratch::new();
    let ready = scratch.join("ready");
    let child = shell(&format!("trap : USR1 USR2; touch {}; while :; do sleep 0.01; done", ready.display()));
    wait_until("its traps", || ready.exists());
    let (usr1, usr2) = (Signal(libc::SIGUSR1), Signal(libc::SIGUSR2));
    let mut ends = std::collections::BTreeMap::new();
    let mut reaped = |pid| {
        while let Some((pid, exit)) = world::reap_next() {
            ends.insert(pid, exit);
        }
        ends.get(&pid).copied()
    };
    kill::send(child, Signal(libc::SIGSTOP)).expect("it runs");

    let soon = clock::boot() + std::time::Duration::from_millis(100);
    let promotion = promote(child, usr1, soon, true).spawn().expect("a child");
    wait_until("the end of the promotion", || reaped(promotion.pid).is_some());
    let demotion = demote(child, usr2).spawn().expect("a child");
    let untaken = promote(child, usr1, Instant::NEVER, false).spawn().expect("a child");
    wait_until("what waits for nothing", || reaped(untaken.pid).is_some());
    let waits = reaped(demotion.pid);
    kill::send(child, Signal::CONT).expect("it is there");
    wait_until("the end of the demotion", || reaped(demotion.pid).is_some());

    let ends = [reaped(promotion.pid), waits, reaped(demotion.pid), reaped(untaken.pid)];
    assert_eq!(ends, [Some(Exit::Code(1)), None, Some(Exit::Code(0)), Some(Exit::Code(0))]);

    let orphan = demote(child, Signal::KILL).spawn().expect("a child");
    wait_until("the end of one whose process is gone", || reaped(orphan.pid).is_some());
    assert_eq!(reaped(orphan.pid), Some(Exit::Code(1)));
});

test_in!(Pid1, a_program_that_cannot_be_executed_says_why, {
    let scratch = Scratch::new();
    let text = scratch.file("text", "neither ELF nor #!");
    let inherited = signals::block().expect("signals");
    let fail = |program: &Path, hint: &str| {
        let command = Command::new(program, &["x".to_owned()], [("A", "b")]).expect("no NUL");
        let mut child = command.spawn(&setup(inherited)).expect("a child");
        let outcome = outcome(&mut child);
        wait_until("its end", || world::reap_next().is_some());
        match outcome {
            Outcome::Failed(failure @ Failure { step: Step::Execute, errno }) => {
                assert!(failure.to_string().starts_with("cannot execute: ") && failure.to_string().contains(hint), "{failure}");
                assert!(!failure.is_lack(), "{failure}");
                (errno, failure.code())
            }
            Outcome::Done | Outcome::Late | Outcome::Failed(_) => panic!("{outcome:?}"),
        }
    };

    assert_eq!(fail(text.as_ref(), "Permission denied"), (Errno::EACCES, 126));
    fs::set_permissions(&text, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("our file");
    assert_eq!(fail(text.as_ref(), "neither a program for this machine nor a script with a #! line"), (Errno::ENOEXEC, 126));
    fs::write(&text, "#!/no/such/int\n").expect("our file");
    assert_eq!(fail(text.as_ref(), "the file, or the interpreter that its #! line"), (Errno::ENOENT, 127));
    for errno in [Errno::ENOMEM, Errno::EAGAIN, Errno::ENFILE, Errno::EMFILE] {
        assert!(Failure { step: Step::Execute, errno }.is_lack(), "{errno}");
    }
});

test_in!(Pid1, a_child_gets_the_limit_on_descriptors_that_tenure_was_started_with, {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).expect("a limit");
    setrlimit(Resource::RLIMIT_NOFILE, 40, hard).expect("less is granted");
    let mut inherited = signals::block().expect("signals");

    let open = signals::open_descriptors();
    inherited.raise_descriptors(60);
    inherited.raise_descriptors(50);
    let raised = getrlimit(Resource::RLIMIT_NOFILE).expect("a limit");
    let child = shell_with("exit $(ulimit -Sn)", &setup(inherited));

    wait_until("its end", || world::reap_next() == Some((child, Exit::Code(40))));
    assert_eq!(raised, (60 + open, hard), "60 beside those that are open");
});

test_in!(Pid1, a_child_gets_the_link_at_three_and_nothing_else, {
    let (mut reader, writer) = pipe2(OFlag::O_CLOEXEC).map(|(reader, writer)| (fs::File::from(reader), writer)).expect("a pipe");
    let leaked = dup(&reader).expect("without close-on-exec");
    let inherited = signals::block().expect("signals");
    let script = "for n in $(seq 0 40); do [ -e /proc/$$/fd/$n ] && printf '%s ' $n >&3; done; readlink /proc/$$/fd/0 >&3";

    shell_with(script, &Setup { link: Some(writer.as_fd()), ..setup(inherited) });

    drop((writer, leaked));
    let mut said = String::new();
    reader.read_to_string(&mut said).expect("text");
    assert_eq!(said, "0 1 2 3 /dev/null\n");
});

/// In a terminal created by `script`.
#[test]
fn the_terminal_is_handed_over_and_taken_back() {
    use tenure::process::terminal::Terminal;
    let name = concat!(module_path!(), "::the_terminal_is_handed_over_and_taken_back");
    if !world::is_inside() {
        let mut env = std::process::Command::new("env");
        let line = format!("{:?}", world::again(&mut env, name));
        let output = std::process::Command::new("script").args(["-qec", &line, "/dev/null"]).output().expect("script");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && text.contains("1 passed"), "{text}");
        return;
    }
    let inherited = signals::block().expect("signals");
    let foreground = || nix::unistd::tcgetpgrp(std::io::stdin()).expect("a terminal");
    let terminal = Terminal::of_streams().expect("a terminal of ours");

    let child = shell_with(
        "exec sleep 1000",
        &Setup { group: ProcessGroup::Foreground(terminal), input: spawn::Input::Inherited, ..setup(inherited) },
    );

    assert_eq!(foreground(), child);
    assert!(Terminal::of_streams().is_none(), "in the background it is not ours");
    kill::send_group(child, Signal::KILL).expect("it lives");
    wait_until("its end", || world::reap_next() == Some((child, Exit::Signal(libc::SIGKILL))));
    terminal.take_back().expect("SIGTTOU is blocked");
    assert_eq!(foreground(), nix::unistd::getpgrp());
}

test_in!(Pid1, a_log_whose_reader_is_gone_signals_nothing_that_would_be_forwarded, {
    signals::block().expect("signals");
    let mut arriving = signals::Signals::open().expect("a signalfd");
    let (reader, writer) = nix::unistd::pipe().expect("a pipe");
    drop(reader);

    assert_eq!(nix::unistd::write(&writer, b"a line"), Err(Errno::EPIPE));
    let raised_by_the_write = arriving.receive().expect("a signalfd");
    nix::sys::signal::raise(nix::sys::signal::SIGPIPE).expect("a signal");
    let sent = arriving.receive().expect("a signalfd");

    assert_eq!((raised_by_the_write, sent.map(|received| received.signal.0)), (None, Some(libc::SIGPIPE)));
});
