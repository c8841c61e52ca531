//! Runs this test again in its own namespaces: the node's processes, mounts and interfaces disappear with them.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
};

use support::not_run;
use tenure::clock;

/// Environment variable that tells the inner test its directory.
pub(crate) const DIRECTORY: &str = "TENURE_TEST_NODE_DIRECTORY";
/// Environment variable with the images to import, as a PATH.
pub(crate) const IMAGES: &str = "TENURE_TEST_NODE_IMAGES";

const TESTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests");
/// The node's programs that its start script expects: built out here, where there may be a network.
const PROGRAMS: &str = "etcd kube-apiserver kubectl helm kube-controller-manager kube-scheduler kubelet kube-proxy containerd \
                        containerd-shim-runc-v2 ctr bridge loopback host-local";

/// Prepares, runs the inner test, cleans up. Where the machine cannot run a node, it says so.
pub(crate) fn run() -> ExitCode {
    if let Some(reason) = hindrance() {
        not_run("a real node", reason);
        return ExitCode::SUCCESS;
    }
    lines("cluster/binaries/build", &PROGRAMS.split(' ').collect::<Vec<_>>());
    let begin = clock::boot();
    let mut images = lines("image/build", &[]);
    println!("node: both images are built after {:.0} s", clock::boot().since(begin).as_secs_f64());
    let directory = Directory::new();
    images.extend(lines("node/stand-ins", &[directory.0.join("stand-ins").to_str().expect("text")]));
    let status = apart()
        .arg(env::current_exe().expect("this program"))
        .env(DIRECTORY, &directory.0)
        .env(IMAGES, env::join_paths(images).expect("paths"))
        .args(env::args().skip(1))
        .status()
        .expect("it starts");
    if status.success() {
        directory.remove();
        return ExitCode::SUCCESS;
    }
    println!("what the node's programs said is in {}", directory.0.display());
    ExitCode::FAILURE
}

/// Tries what the node does to a machine besides starting processes, in the directory given as its argument.
const PROBE: &str = r#"
set -eu
mkdir "$1/upper" "$1/work"
mount -t overlay overlay -o "lowerdir=/var,upperdir=$1/upper,workdir=$1/work" /var
ip link add bridge type bridge
ip link add end type veth peer name other
[ ! -e /sys/fs/cgroup/cgroup.controllers ] ||
  for controller in $(cat /sys/fs/cgroup/cgroup.controllers); do echo "+$controller" >/sys/fs/cgroup/cgroup.subtree_control; done
for hierarchy in /sys/fs/cgroup /sys/fs/cgroup/*/; do
  [ ! -e "$hierarchy/cgroup.procs" ] || { mkdir "$hierarchy/${1##*/}" && rmdir "$hierarchy/${1##*/}"; }
done
"#;

/// Why this machine cannot run a node, if so.
fn hindrance() -> Option<String> {
    if !nix::unistd::geteuid().is_root() {
        return Some("it takes root".to_owned());
    }
    let directory = Directory::new();
    let probe = apart().args(["sh", "-c", PROBE, "sh"]).arg(&directory.0).output();
    directory.remove();
    match probe {
        Ok(probe) if probe.status.success() => None,
        Ok(probe) => Some(String::from_utf8_lossy(&probe.stderr).trim().to_owned()),
        Err(error) => Some(format!("setpriv: {error}")),
    }
}

/// A command in its own namespaces. It dies with this process, and takes everything in them along.
fn apart() -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "unshare", "--mount", "--net", "--pid", "--uts", "--ipc", "--fork", "--kill-child"]);
    command.arg("--mount-proc");
    command
}

/// The output of a script under tests/.
fn lines(script: &str, arguments: &[&str]) -> Vec<PathBuf> {
    let output = Command::new(Path::new(TESTS).join(script)).args(arguments).stderr(Stdio::inherit()).output().expect("a script");
    assert!(output.status.success(), "{script} failed");
    String::from_utf8(output.stdout).unwrap().lines().map(PathBuf::from).collect()
}

/// The node's directory; its cgroups have the same name.
struct Directory(PathBuf);

impl Directory {
    fn new() -> Self {
        let directory =
            Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("tenure-node-{}-{:04x}", std::process::id(), fastrand::u16(..)));
        fs::create_dir_all(&directory).unwrap();
        Self(directory)
    }

    fn remove(&self) {
        fs::remove_dir_all(&self.0).unwrap();
    }
}

impl Drop for Directory {
    /// Removes the cgroups, which do not end with a namespace.
    fn drop(&mut self) {
        let name = self.0.file_name().unwrap();
        let roots = fs::read_dir("/sys/fs/cgroup").unwrap().map(|entry| entry.unwrap().path().join(name));
        for root in roots.chain([Path::new("/sys/fs/cgroup").join(name)]).filter(|root| root.is_dir()) {
            let status = Command::new("find").arg(root).args(["-depth", "-type", "d", "-exec", "rmdir", "{}", "+"]).status();
            assert!(status.unwrap().success(), "cgroups are left over");
        }
    }
}
