//! A running init, with the test as its elector and a view into its PID namespace.

use std::{
    cell::RefCell,
    fs,
    os::fd::{AsRawFd as _, OwnedFd},
    process::{Child, ChildStderr, ChildStdout, Stdio},
    time::Duration,
};

use nix::{
    errno::Errno,
    sys::{
        signal::{Signal, kill},
        socket::{
            AddressFamily, Backlog, MsgFlags, SockFlag, SockType, UnixAddr, accept4, bind, listen, recv, send, setsockopt,
            socket, sockopt,
        },
        time::{TimeVal, TimeValLike as _},
    },
    unistd::Pid,
};
use support::{
    Lines, PATIENCE, kept, procfs,
    procfs::{children, state},
    wait_for, wait_until,
};
use tenure::{
    clock,
    config::{Config, Hook, HookKind},
    law::{Deadlines, Timing},
    link::{Confirmed, Exit, InitialState, MAX_MESSAGE, Reason, Term, TermInfo, Then, ToElector, ToInit, decode, encode},
    slot::Slot,
    time::Instant,
};

use super::faces::{CONFIG, INIT, LINK, PLUGIN};

/// D 14 s, G 5 s and killMargin 1 s: S is 7.86 s, H 12.86 s, E 13.86 s after a send.
pub(crate) fn timing() -> Timing {
    Timing {
        duration: Duration::from_secs(14),
        renew_period: Duration::from_secs(1),
        attempt_timeout: Duration::from_millis(500),
        drift: 10_000,
        loss_grace: Duration::from_secs(5),
        kill_margin: Duration::from_secs(1),
    }
}

/// A minute instead: nothing times out.
pub(crate) fn patient() -> Timing {
    timing().with_duration(Duration::from_secs(60))
}

/// D 17 s and killMargin 4 s instead: from H on, init has 2 s for the proof before it ends itself.
pub(crate) fn unhurried() -> Timing {
    Timing { kill_margin: Duration::from_secs(4), ..timing().with_duration(Duration::from_secs(17)) }
}

/// The same with D 12 s and G 3 s, for tests that load the machine until H: S is 4.88 s, H 7.88 s, E 11.88 s after a send.
pub(crate) fn burdened() -> Timing {
    Timing { loss_grace: Duration::from_secs(3), ..unhurried().with_duration(Duration::from_secs(12)) }
}

/// The command `sh -c script`.
pub(crate) fn shell(script: &str) -> Vec<String> {
    ["sh", "-c", script].map(str::to_owned).to_vec()
}

/// `sh -c script` as a hook; no hook if it is empty.
pub(crate) fn hook(script: &str) -> Hook {
    let command = if script.is_empty() { Vec::new() } else { shell(script) };
    Hook { command, ..Hook::default() }
}

/// The name of the pod, as the environment gives it.
pub(crate) const POD: &str = "billing-7";

/// `sh -c script`, in [`patient`] terms.
pub(crate) fn config(script: &str) -> Config {
    let mut config = Config::default();
    config.lease.name = "billing".into();
    config.lease.namespace = "shop".into();
    config.lease.identity = "me".into();
    config.workload.command = shell(script);
    within(patient(), config)
}

/// This in terms of these constants.
pub(crate) fn within(timing: Timing, mut config: Config) -> Config {
    config.lease.duration = timing.duration;
    config.lease.renew_period = timing.renew_period;
    config.lease.attempt_timeout = timing.attempt_timeout;
    config.workload.stop.loss_grace = timing.loss_grace;
    config.workload.stop.kill_margin = timing.kill_margin;
    config
}

/// [`config`] in a shell that supports real-time signals.
pub(crate) fn bash(script: &str) -> Config {
    let mut config = config(script);
    config.workload.command[0] = "bash".into();
    config
}

/// A running init.
pub(crate) struct World {
    child: Child,
    output: Lines<ChildStdout>,
    errors: Option<ChildStderr>,
    contained: bool,
    listener: OwnedFd,
    /// The test's end of the current elector's link.
    link: OwnedFd,
    serial: u64,
    timing: Timing,
    /// The hooks that ended, as reported by init.
    pub(crate) hooked: RefCell<Vec<(HookKind, Exit)>>,
    /// Init's warnings.
    pub(crate) warned: RefCell<Vec<String>>,
}

impl World {
    /// As PID 1 of its own PID namespace, with an elector that has said Hello.
    pub(crate) fn contained(config: &Config) -> (Self, InitialState) {
        Self::start(config, true, &[])
    }

    /// The same as PID 1, executed by this command.
    pub(crate) fn beginning(config: &Config, by: &[&str]) -> (Self, InitialState) {
        Self::start(config, true, by)
    }

    pub(crate) fn start(config: &Config, contained: bool, by: &[&str]) -> (Self, InitialState) {
        let mut world = Self::ungreeted(config, contained, by);
        let initial = world.greet();
        (world, initial)
    }

    /// With an elector that has not said anything yet.
    pub(crate) fn ungreeted(config: &Config, contained: bool, by: &[&str]) -> Self {
        let address = format!("init_led/{:016x}", getrandom::u64().unwrap());
        let listener = socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::SOCK_CLOEXEC, None).unwrap();
        setsockopt(&listener, sockopt::ReceiveTimeout, &TimeVal::seconds(PATIENCE.as_secs().try_into().unwrap())).unwrap();
        bind(listener.as_raw_fd(), &UnixAddr::new_abstract(address.as_bytes()).unwrap()).unwrap();
        listen(&listener, Backlog::new(4).unwrap()).unwrap();
        let mut command = kept::bound();
        command.args(kept::contained().filter(|_| contained)).args(by).arg(std::env::current_exe().unwrap()).arg(INIT);
        command.env(CONFIG, serde_json::to_string(config).unwrap()).env(LINK, address).env("POD_NAME", POD);
        command.env("KUBECONFIG", concat!(env!("CARGO_MANIFEST_DIR"), "/tests/init_led/kubeconfig.yaml"));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("setpriv and unshare are needed");
        let (output, errors) = (Lines::of(child.stdout.take().unwrap()), child.stderr.take());
        let link = accept(&listener);
        let (hooked, warned) = (RefCell::default(), RefCell::default());
        Self { child, output, errors, contained, listener, link, serial: 0, timing: config.timing(), hooked, warned }
    }

    /// Leads from now on, and its workload has printed a line.
    pub(crate) fn leading(config: &Config) -> Self {
        let (mut world, _) = Self::contained(config);
        world.lead(clock::boot());
        world.line();
        world
    }

    /// Contained, and its workload has said that it starts.
    pub(crate) fn started(config: &Config) -> Self {
        let (mut world, _) = Self::contained(config);
        assert_eq!(world.line(), "starts");
        world
    }

    /// S, H and E of a write sent at `a`.
    pub(crate) fn deadlines(&self, a: Instant) -> Deadlines {
        self.timing.deadlines(a)
    }

    /// Returns the confirmation that follows from a write sent at `a`.
    pub(crate) fn confirmed(&self, a: Instant) -> Confirmed {
        let deadlines = self.deadlines(a);
        Confirmed { resource_version: "17".into(), preferred_holder: None, deadlines }
    }

    /// Accepts the next elector.
    pub(crate) fn next_elector(&mut self) -> InitialState {
        self.link = accept(&self.listener);
        self.greet()
    }

    fn greet(&mut self) -> InitialState {
        let ToElector::InitialState(initial) = self.hear() else { panic!("no InitialState") };
        self.tell(&ToInit::Hello);
        *initial
    }

    pub(crate) fn tell(&self, message: &ToInit) {
        send(self.link.as_raw_fd(), &encode(message).unwrap(), MsgFlags::empty()).unwrap();
    }

    pub(crate) fn tell_nonsense(&self) {
        send(self.link.as_raw_fd(), &[0xff; 9], MsgFlags::empty()).unwrap();
    }

    /// Has the elector start a process of its own, as its credential plugins are.
    pub(crate) fn start_plugin(&self) {
        send(self.link.as_raw_fd(), PLUGIN, MsgFlags::empty()).unwrap();
    }

    /// The next message from init, except those that are only for people.
    pub(crate) fn hear(&self) -> ToElector {
        self.hear_to_the_end().expect("the link has ended")
    }

    /// The same; none once the elector has ended.
    pub(crate) fn hear_to_the_end(&self) -> Option<ToElector> {
        let mut buffer = vec![0; MAX_MESSAGE];
        loop {
            let length = match recv(self.link.as_raw_fd(), &mut buffer, MsgFlags::empty()) {
                Ok(0) | Err(Errno::ECONNRESET) => return None,
                received => received.expect("init tells something in time"),
            };
            let message = decode(&buffer[..length]).unwrap();
            if let ToElector::Hooked { hook, exit, began, ended } = &message {
                assert!(began <= ended, "{message:?}");
                self.hooked.borrow_mut().push((*hook, *exit));
            } else if let ToElector::Warn(line) = message {
                self.warned.borrow_mut().push(line);
            } else {
                return Some(message);
            }
        }
    }

    /// Starts term 1, sent at `a`; returns once init has heard of it.
    pub(crate) fn begin(&self, a: Instant) {
        self.tell_lead(a);
        assert_eq!(self.hear(), ToElector::Acknowledged { term: Term(1), serial: 0 });
    }

    pub(crate) fn tell_lead(&self, a: Instant) {
        self.tell_lead_of(1, a);
    }

    pub(crate) fn tell_lead_of(&self, term: u64, a: Instant) {
        let confirmed = self.confirmed(a);
        self.tell(&ToInit::Lead { term: Term(term), info: info(), confirmed });
    }

    /// The same; returns once the workload has started.
    pub(crate) fn lead(&self, a: Instant) -> i32 {
        self.begin(a);
        let ToElector::Started { term: Term(1), pid, .. } = self.hear() else { panic!("not started") };
        pid
    }

    /// Sends a renewal sent at `a`, without waiting for its effect.
    pub(crate) fn extend(&mut self, a: Instant) -> ToElector {
        self.serial += 1;
        self.tell(&ToInit::Extend { term: Term(1), serial: self.serial, confirmed: self.confirmed(a) });
        ToElector::Acknowledged { term: Term(1), serial: self.serial }
    }

    /// Sends a renewal sent at `a`; returns once init has heard of it.
    #[track_caller]
    pub(crate) fn renew(&mut self, a: Instant) {
        let acknowledged = self.extend(a);
        assert_eq!(self.hear(), acknowledged);
    }

    /// Sends a heartbeat; returns once init has answered it, in a turn after those of all earlier messages.
    #[track_caller]
    pub(crate) fn beat(&self) {
        self.tell(&ToInit::Heartbeat);
        assert_eq!(self.hear(), ToElector::Heartbeat);
    }

    /// Waits until the elector has forwarded everything that it was sent.
    #[allow(unsafe_code, reason = "nothing wraps this ioctl")]
    pub(crate) fn passed_on(&self) {
        let elector = self.elector();
        let unread = || {
            let mut bytes: libc::c_int = 0;
            // SAFETY: it writes one int.
            assert_eq!(unsafe { libc::ioctl(self.link.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) }, 0);
            bytes
        };
        // In this order: it sleeps only once it has sent what it read.
        wait_until("the elector has passed it on", || unread() == 0 && state(elector) == Some('S'));
    }

    pub(crate) fn step_down(&self, request: u64, reason: Reason) {
        self.tell(&ToInit::StepDown { term: Term(1), request, reason, traceparent: String::new() });
    }

    /// Has it step down; returns once it is proved to follow.
    #[track_caller]
    pub(crate) fn follows(&self, reason: Reason) {
        self.step_down(7, reason);
        assert_eq!(self.stopped(7), Then::Follow);
    }

    /// Waits for the answer to that request.
    pub(crate) fn stopped(&self, request: u64) -> Then {
        answer(request, self.hear())
    }

    /// The same where the proof may be late, and init reports that meanwhile.
    pub(crate) fn stopped_in_the_end(&self, request: u64) -> Then {
        loop {
            let heard = self.hear();
            if !matches!(heard, ToElector::Unproved { .. }) {
                return answer(request, heard);
            }
        }
    }

    /// The next line that the workload prints.
    pub(crate) fn line(&mut self) -> String {
        self.output.next_line()
    }

    /// Init's pid, as seen from here.
    pub(crate) fn init(&self) -> Pid {
        let launcher = Pid::from_raw(self.child.id().try_into().unwrap());
        if self.contained { wait_for("init", || children(launcher).first().copied()) } else { launcher }
    }

    /// The elector's pid, as seen from here.
    pub(crate) fn elector(&self) -> Pid {
        let init = self.init();
        let is_elector = |pid: &Pid| fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line == b"tenure\0elector\0");
        wait_for("an elector", || children(init).into_iter().find(is_elector))
    }

    /// The workload's main process.
    pub(crate) fn main(&self) -> Pid {
        let elector = self.elector();
        wait_for("the workload", || children(self.init()).into_iter().find(|pid| *pid != elector))
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(self.init(), signal).unwrap();
    }

    /// Stops init and waits until it has stopped.
    pub(crate) fn freeze(&self) {
        self.signal(Signal::SIGSTOP);
        let init = self.init();
        wait_until("init is stopped", || state(init) == Some('T'));
    }

    /// The processes in or below init's PID namespace, except init and its elector, zombies included.
    pub(crate) fn others(&self) -> Vec<(Pid, String)> {
        let (init, elector) = (self.init(), self.elector());
        let space = fs::read_link(format!("/proc/{init}/ns/pid")).unwrap();
        let inside = |pid: Pid| match self.contained {
            true => fs::read_link(format!("/proc/{pid}/ns/pid")).is_ok_and(|other| other == space),
            false => descends(pid, init),
        };
        let others = procfs::all().filter(|pid| *pid != init && *pid != elector && inside(*pid));
        others.map(|pid| (pid, fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default())).collect()
    }

    /// Ends term 1 by SIGTERM: by a planned stop, a release and the end. Returns what [`Self::exit`] does.
    pub(crate) fn end_by_term(self) -> (i32, String) {
        self.signal(Signal::SIGTERM);
        let stopping = self.hear();
        assert!(matches!(stopping, ToElector::Stopping { reason: Reason::Signal, .. }), "{stopping:?}");
        self.step_down(7, Reason::Signal);
        assert_eq!(self.stopped(7), Then::Exit);
        self.tell(&ToInit::Releasing { term: Term(1), serial: 1 });
        assert_eq!(self.hear(), ToElector::Acknowledged { term: Term(1), serial: 1 });
        self.tell(&ToInit::Ended { term: Term(1), backoff: None });
        self.tell(&ToInit::Done);
        self.exit()
    }

    /// Waits for the end; returns the exit code and standard error.
    pub(crate) fn exit(mut self) -> (i32, String) {
        let status = wait_for("init ends", || self.child.try_wait().unwrap());
        let said = std::io::read_to_string(self.errors.take().unwrap()).unwrap();
        (status.code().unwrap_or(-1), said)
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // Processes that left init's group would outlive it and keep its standard error open.
        let tree = below(Pid::from_raw(self.child.id().try_into().unwrap()));
        drop(self.child.kill());
        for pid in tree {
            // Most are gone already; once the launcher is reaped, their pids may be reused.
            let _ = kill(pid, Signal::SIGKILL);
        }
        drop(self.child.wait());
        if let Some(errors) = self.errors.take()
            && std::thread::panicking()
        {
            eprintln!("{}", std::io::read_to_string(errors).unwrap_or_default());
        }
    }
}

pub(crate) fn info() -> TermInfo {
    TermInfo {
        slot: Slot::default(),
        token: "17".into(),
        uid: "u-1".into(),
        transitions: 4,
        acquired_at: "2026-01-01T00:00:00.000000Z".into(),
        traceparent: "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01".into(),
    }
}

fn answer(request: u64, heard: ToElector) -> Then {
    match heard {
        ToElector::Stopped { term: Term(1), request: answered, then, .. } if answered == request => then,
        other => panic!("{other:?}"),
    }
}

pub(crate) fn sleep_until(instant: Instant) {
    std::thread::sleep(instant.since(clock::boot()));
}

fn below(ancestor: Pid) -> Vec<Pid> {
    children(ancestor).into_iter().flat_map(|child| below(child).into_iter().chain([child])).collect()
}

fn descends(mut pid: Pid, ancestor: Pid) -> bool {
    while let Some(above) = procfs::parent(pid) {
        pid = above;
        if pid == ancestor {
            return true;
        }
    }
    false
}

fn accept(listener: &OwnedFd) -> OwnedFd {
    let link = accept4(listener, SockFlag::SOCK_CLOEXEC).expect("an elector in time");
    setsockopt(&link, sockopt::ReceiveTimeout, &TimeVal::seconds(PATIENCE.as_secs().try_into().unwrap())).unwrap();
    link
}
