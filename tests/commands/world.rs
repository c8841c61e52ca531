//! The binary as users run it, and servers for it: scripted ones, and the embedded one on a free loopback port.

use std::{
    ffi::OsStr,
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    path::Path,
    process::{Command, Stdio},
    sync::mpsc,
    thread,
    time::Duration,
};

use base64::prelude::{BASE64_STANDARD, Engine as _};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use support::{
    Kept, Scratch, denied,
    kept::{as_root, pid},
    procfs::children,
};

pub(crate) const TENURE: &str = env!("CARGO_BIN_EXE_tenure");

/// Far longer than any of these needs; beyond it, it hangs.
pub(crate) const DEADLINE: Duration = Duration::from_secs(30);

/// The outcome of a run of the binary.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ended {
    #[track_caller]
    pub(crate) fn says(&self, code: i32, parts: &[&str]) {
        assert_eq!(self.code, Some(code), "{self:?}");
        for part in parts {
            assert!(self.err.contains(part) || self.out.contains(part), "{part:?} in {self:?}");
        }
    }
}

/// Runs the binary with only these variables in its environment.
pub(crate) fn tenure(arguments: &[&str], variables: &[(&str, &str)]) -> Ended {
    run(Command::new(TENURE), arguments, variables, Stdio::piped())
}

/// Runs the binary at the end of this shell script.
pub(crate) fn tenure_after(script: &str, arguments: &[&str], variables: &[(&str, &str)]) -> Ended {
    let mut shell = Command::new("sh");
    shell.args(["-c", script, "sh", TENURE]);
    run(shell, arguments, variables, Stdio::piped())
}

/// Runs the binary in a pod whose service account has the files of this directory.
pub(crate) fn tenure_in_a_pod(account: &Path, arguments: &[&str], variables: &[(&str, &str)]) -> Ended {
    run(in_a_pod(account), arguments, variables, Stdio::piped())
}

/// Runs the binary where there is no /proc.
pub(crate) fn tenure_without_proc(arguments: &[&str]) -> Ended {
    run(after("mount -t tmpfs none /proc && exec \"$@\"", Path::new("sh")), arguments, &[], Stdio::piped())
}

/// The same as PID 1.
pub(crate) fn tenure_as_pid_1_without_proc(arguments: &[&str]) -> Ended {
    as_pid_1_with("-t tmpfs none", "exec \"$@\"", arguments, &[])
}

/// Runs the binary as PID 1 where /proc hides the processes of others.
pub(crate) fn tenure_among_hidden(arguments: &[&str], variables: &[(&str, &str)]) -> Ended {
    as_pid_1_with(HIDING, "exec \"$@\"", arguments, variables)
}

/// The same as a user without privileges, and not as PID 1.
pub(crate) fn tenure_of_nobody_among_hidden(arguments: &[&str], variables: &[(&str, &str)]) -> Ended {
    as_pid_1_with(HIDING, &format!("{} \"$@\"; exit $?", OF_NOBODY.join(" ")), arguments, variables)
}

const HIDING: &str = "-t proc -o hidepid=2 proc";

/// Runs the binary by this command of PID 1, whose /proc is mounted so.
fn as_pid_1_with(proc: &str, command: &str, arguments: &[&str], variables: &[(&str, &str)]) -> Ended {
    let inner = format!("mount {proc} /proc && {command}");
    let script = format!("exec unshare --fork --pid --kill-child sh -c '{inner}' sh \"$@\"");
    run(after(&script, Path::new("sh")), arguments, variables, Stdio::piped())
}

/// Runs the binary as PID 1.
pub(crate) fn tenure_as_pid_1(arguments: &[&str]) -> Ended {
    run(pid_1(), arguments, &[], Stdio::piped())
}

/// The same where the kernel refuses a system call.
pub(crate) fn tenure_as_pid_1_denied(call: libc::c_long, arguments: &[&str]) -> Ended {
    let mut command = pid_1();
    denied(&mut command, call);
    run(command, arguments, &[], Stdio::piped())
}

fn pid_1() -> Command {
    after("exec unshare --fork --pid --mount-proc --kill-child \"$@\"", Path::new("sh"))
}

// A change of the user drops the death signal that it was started with.
const OF_NOBODY: [&str; 5] = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--pdeathsig=KILL"];

/// A program of another user than root, which has no privileges.
pub(crate) fn of_nobody(program: &str) -> Command {
    let mut command = Command::new(OF_NOBODY[0]);
    // What the user's own PATH has may lie in a directory that is closed to others.
    command.args(&OF_NOBODY[1..]).arg(program).env("PATH", "/usr/local/bin:/usr/bin:/bin");
    command
}

/// Runs the binary where this is all that is in /etc/tenure.
pub(crate) fn tenure_with_etc(files: &Path, arguments: &[&str]) -> Ended {
    run(after("mount -t tmpfs none /etc && cp -R \"$0\" /etc/tenure && exec \"$@\"", files), arguments, &[], Stdio::piped())
}

fn in_a_pod(account: &Path) -> Command {
    let script = "mount -t tmpfs none /var/run && mkdir -p /var/run/secrets/kubernetes.io &&
        cp -R \"$0\" /var/run/secrets/kubernetes.io/serviceaccount && exec \"$@\"";
    after(script, account)
}

/// The binary at the end of this shell script, which has a mount namespace of its own, and its `$0`.
fn after(script: &str, zero: &Path) -> Command {
    let mut unshare = Command::new("unshare");
    unshare.args(as_root());
    unshare.args(["--mount", "sh", "-c", script]).arg(zero).arg(TENURE);
    unshare
}

/// Runs the binary with an output that cannot be written to.
pub(crate) fn unprinted(arguments: &[&str], variables: &[(&str, &str)]) -> Ended {
    run(Command::new(TENURE), arguments, variables, fs::OpenOptions::new().write(true).open("/dev/full").unwrap().into())
}

fn run(mut command: Command, arguments: &[&str], variables: &[(&str, &str)], out: Stdio) -> Ended {
    command.args(arguments).env_clear().env("PATH", "/usr/bin:/bin").envs(variables.iter().copied());
    let child = command.stdin(Stdio::null()).stdout(out).stderr(Stdio::piped()).spawn().unwrap();
    let pid = pid(&child);
    let (sender, ended) = mpsc::channel();
    thread::spawn(move || sender.send(child.wait_with_output()));
    let Ok(output) = ended.recv_timeout(DEADLINE) else {
        let _ = kill(pid, Signal::SIGKILL);
        panic!("tenure {arguments:?} does not end");
    };
    let output = output.unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ended { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
}

/// A cluster to talk to, by its kubeconfig.
pub(crate) struct Cluster {
    place: Scratch,
    kubeconfig: String,
    _server: Option<Kept>,
}

impl Cluster {
    /// With the embedded API server.
    pub(crate) fn embedded() -> Self {
        let place = Scratch::new();
        let file = place.join("kubeconfig");
        let server = embedded(&file);
        Self { place, kubeconfig: file.to_str().unwrap().to_owned(), _server: Some(server) }
    }

    /// With a server that gives each request the first answer (status 0: none, ever) whose part occurs in its first line, its impersonated user or its body.
    pub(crate) fn scripted(answers: &[(&str, u16, &str)]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = format!("server: 'http://{}'", listener.local_addr().unwrap());
        let owned = |(part, status, text): &(&str, u16, &str)| ((*part).to_owned(), *status, (*text).to_owned());
        let answers: Vec<_> = answers.iter().map(owned).collect();
        thread::spawn(move || listener.incoming().for_each(|stream| answer(stream.unwrap(), &answers)));
        Self::at(&server)
    }

    /// With a server that is not there.
    pub(crate) fn nowhere() -> Self {
        Self::at("server: 'http://127.0.0.1:1'")
    }

    /// With this entry in its kubeconfig.
    pub(crate) fn at(cluster: &str) -> Self {
        let place = Scratch::new();
        Self { kubeconfig: place.file("kubeconfig", kubeconfig(cluster)), place, _server: None }
    }

    /// Replaces this in its kubeconfig.
    pub(crate) fn with(self, from: &str, to: &str) -> Self {
        let text = fs::read_to_string(&self.kubeconfig).unwrap().replace(from, to);
        fs::write(&self.kubeconfig, text).unwrap();
        self
    }

    pub(crate) fn kubeconfig(&self) -> &str {
        &self.kubeconfig
    }

    /// A directory for the test's own files.
    pub(crate) const fn place(&self) -> &Scratch {
        &self.place
    }

    /// The environment variable that names it.
    pub(crate) fn variable(&self) -> (&'static str, &str) {
        ("KUBECONFIG", &self.kubeconfig)
    }

    /// Runs the binary with only its variable in the environment.
    pub(crate) fn tenure(&self, arguments: &[&str]) -> Ended {
        tenure(arguments, &[self.variable()])
    }

    /// Runs the binary until it is told to stop.
    pub(crate) fn starts(&self, arguments: &[&str]) -> Running {
        Running::start(arguments, &[self.variable()])
    }
}

fn answer(mut stream: TcpStream, answers: &[(String, u16, String)]) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut head = Vec::new();
    while head.last().is_none_or(|line: &String| line != "\r\n") {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap_or_default() == 0 {
            break;
        }
        head.push(line);
    }
    let length = head.iter().find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.trim().parse().ok());
    let mut body = vec![0; length.unwrap_or_default()];
    drop(reader.read_exact(&mut body));
    let user: String = head.iter().filter(|line| line.starts_with("impersonate-")).map(String::as_str).collect();
    let request = format!("{}{user}{}", head.first().cloned().unwrap_or_default(), String::from_utf8_lossy(&body));
    let answer = answers.iter().find(|(part, ..)| request.contains(part));
    let (status, text) = answer.map_or((500, "no answer"), |(_, status, text)| (*status, text));
    if status == 0 {
        std::mem::forget(stream);
        return;
    }
    let head = format!("HTTP/1.1 {status} x\r\ncontent-type: application/json\r\nconnection: close\r\n");
    let _ = write!(stream, "{head}content-length: {}\r\n\r\n{text}", text.len());
}

pub(crate) fn kubeconfig(cluster: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{{name: c, context: {{cluster: c, user: u}}}}]\n\
         clusters: [{{name: c, cluster: {{{cluster}}}}}]\nusers: [{{name: u, user: {{}}}}]\n"
    )
}

/// The embedded API server, which writes this kubeconfig.
pub(crate) fn embedded(kubeconfig: &Path) -> Kept {
    let mut command = Command::new(TENURE);
    command.arg("dev-server").arg("--kubeconfig-out").arg(kubeconfig).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut server = Kept(command.spawn().unwrap());
    // Its first line says where it listens.
    let mut line = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.contains("https://"), "{line}");
    server
}

/// A pod's access to an embedded API server, and a home with a kubeconfig that leads nowhere.
pub(crate) struct Pod {
    _server: Kept,
    /// The files of its service account.
    pub(crate) account: Scratch,
    home: Scratch,
    host: String,
    port: String,
}

impl Pod {
    pub(crate) fn with_an_account_in(namespace: &str) -> Self {
        let (account, home) = (Scratch::new(), Scratch::new());
        let ours = home.join("ours");
        let server = embedded(&ours);
        let text = fs::read_to_string(ours).unwrap();
        let value = |key: &str| text.lines().find_map(|line| line.trim_start().strip_prefix(key)).unwrap().trim();
        account.file("namespace", namespace);
        account.file("token", value("token:"));
        account.file("ca.crt", BASE64_STANDARD.decode(value("certificate-authority-data:")).unwrap());
        fs::create_dir(home.join(".kube")).unwrap();
        home.file(".kube/config", kubeconfig("server: 'http://127.0.0.1:1'"));
        let (host, port) = value("server: https://").trim_end_matches('/').split_once(':').unwrap();
        Self { _server: server, host: host.to_owned(), port: port.to_owned(), account, home }
    }

    /// What it has in its environment.
    pub(crate) fn variables(&self) -> [(&str, &str); 3] {
        [("HOME", self.home.to_str().unwrap()), ("KUBERNETES_SERVICE_HOST", &self.host), ("KUBERNETES_SERVICE_PORT", &self.port)]
    }
}

/// A replica that runs until it is told to stop.
pub(crate) struct Running {
    child: Kept,
    lines: mpsc::Receiver<String>,
}

impl Running {
    /// Runs the binary with only these variables in its environment.
    pub(crate) fn start(arguments: &[&str], variables: &[(&str, impl AsRef<OsStr> + Copy)]) -> Self {
        Self::run(Command::new(TENURE), arguments, variables)
    }

    /// The same as PID 1 where the kernel refuses a system call.
    pub(crate) fn as_pid_1_denied(call: libc::c_long, arguments: &[&str], variables: &[(&str, &str)]) -> Self {
        let mut command = pid_1();
        denied(&mut command, call);
        Self::run(command, arguments, variables)
    }

    /// The same as PID 1 of another user, which has no privileges.
    pub(crate) fn as_pid_1_of_nobody(arguments: &[&str], variables: &[(&str, &str)]) -> Self {
        let mut command = Command::new("unshare");
        command.args(["--fork", "--pid", "--mount-proc", "--kill-child"]).args(OF_NOBODY).arg(TENURE);
        Self::run(command, arguments, variables)
    }

    /// Its PID 1, as seen from here.
    pub(crate) fn init(&self) -> Pid {
        children(self.child.pid())[0]
    }

    /// The same in a pod whose service account has the files of this directory.
    pub(crate) fn in_a_pod(account: &Path, arguments: &[&str], variables: &[(&str, &str)]) -> Self {
        Self::run(in_a_pod(account), arguments, variables)
    }

    fn run(mut command: Command, arguments: &[&str], variables: &[(&str, impl AsRef<OsStr> + Copy)]) -> Self {
        command.args(arguments).env_clear().env("PATH", "/usr/bin:/bin").envs(variables.iter().copied());
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let (sender, lines) = mpsc::channel();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        thread::spawn(move || stderr.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
        Self { child: Kept(child), lines }
    }

    /// Waits for a line that contains all `parts`, and returns it.
    #[track_caller]
    pub(crate) fn says(&self, parts: &[&str]) -> String {
        let until = tenure::clock::boot() + DEADLINE;
        let mut said = Vec::new();
        while let Ok(line) = self.lines.recv_timeout(until.since(tenure::clock::boot())) {
            if parts.iter().all(|part| line.contains(part)) {
                return line;
            }
            said.push(line);
        }
        panic!("no line with {parts:?} in {said:#?}");
    }

    /// Sends SIGTERM; returns the exit code.
    pub(crate) fn end(self) -> Option<i32> {
        self.ended().0
    }

    /// Sends SIGTERM; returns the exit code, and the lines that follow.
    pub(crate) fn ended(mut self) -> (Option<i32>, Vec<String>) {
        kill(self.child.pid(), Signal::SIGTERM).unwrap();
        // Standard error is closed only by the last process that holds it.
        let until = tenure::clock::boot() + DEADLINE;
        let mut said = Vec::new();
        loop {
            match self.lines.recv_timeout(until.since(tenure::clock::boot())) {
                Ok(line) => said.push(line),
                Err(mpsc::RecvTimeoutError::Disconnected) => return (self.child.wait().unwrap().code(), said),
                Err(mpsc::RecvTimeoutError::Timeout) => panic!("it does not end"),
            }
        }
    }
}
