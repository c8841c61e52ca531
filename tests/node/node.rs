//! A single-node cluster, and kubectl for it.

use std::{
    env, fs,
    io::{BufRead as _, BufReader},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Output, Stdio},
    thread,
    time::Duration,
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::{Value, json};

use crate::apart;

/// Longest wait for something that has no deadline of its own.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
pub(crate) const NAMESPACE: &str = "show";

const START: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/node/start");
const BUILD: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cluster/binaries/build");

/// A running node with a namespace where Pod Security is restricted; ends when dropped.
pub(crate) struct Node {
    script: Child,
    lifeline: Option<ChildStdin>,
    directory: PathBuf,
    kubeconfig: PathBuf,
    pub(crate) kubectl: String,
    helm: String,
    ctr: String,
}

impl Node {
    pub(crate) fn start(directory: &Path) -> Self {
        let programs = Command::new(BUILD).args(["kubectl", "helm", "ctr"]).output().unwrap();
        let [kubectl, helm, ctr] =
            [0, 1, 2].map(|line| String::from_utf8_lossy(&programs.stdout).lines().nth(line).unwrap().to_owned());
        let mut script = Command::new(START);
        script
            .arg(directory)
            .args(env::split_paths(&env::var_os(apart::IMAGES).unwrap()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut script = script.spawn().expect("the node's script starts");
        let lifeline = script.stdin.take();
        let mut line = String::new();
        BufReader::new(script.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n", "the node did not come up");
        let kubeconfig = directory.join("cluster/kubeconfig");
        let node = Self { script, lifeline, directory: directory.to_owned(), kubeconfig, kubectl, helm, ctr };
        node.kubectl(&["create", "namespace", NAMESPACE]);
        node.kubectl(&["label", "namespace", NAMESPACE, "pod-security.kubernetes.io/enforce=restricted"]);
        node
    }

    /// The output of kubectl.
    pub(crate) fn kubectl(&self, arguments: &[&str]) -> String {
        let output = self.try_kubectl(arguments);
        assert!(output.status.success(), "kubectl {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// The same, but it may fail.
    pub(crate) fn try_kubectl(&self, arguments: &[&str]) -> Output {
        let mut kubectl = Command::new(&self.kubectl);
        kubectl.arg("--kubeconfig").arg(&self.kubeconfig).args(["--namespace", NAMESPACE, "--request-timeout=60s"]);
        kubectl.args(arguments).output().expect("kubectl starts")
    }

    /// Applies this object.
    pub(crate) fn apply(&self, object: &Value) {
        let file = self.directory.join("object.json");
        fs::write(&file, object.to_string()).unwrap();
        self.kubectl(&["apply", "-f", file.to_str().unwrap()]);
    }

    /// Offers a volume of the node, as a cluster with storage does, with this in its spec.
    pub(crate) fn offer_volume(&self, name: &str, mut spec: Value) {
        let path = self.directory.join(name);
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
        spec["accessModes"] = json!(["ReadWriteOnce"]);
        spec["hostPath"] = json!({ "path": path });
        self.apply(&json!({ "apiVersion": "v1", "kind": "PersistentVolume", "metadata": { "name": name }, "spec": spec }));
    }

    /// Runs Helm.
    pub(crate) fn helm(&self, arguments: &[&str]) {
        let mut helm = Command::new(&self.helm);
        helm.arg("--kubeconfig").arg(&self.kubeconfig).args(["--namespace", NAMESPACE]).args(arguments);
        let output = helm.env("HELM_CACHE_HOME", "/nonexistent").output().expect("helm starts");
        assert!(output.status.success(), "helm {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr));
    }

    /// Runs a command of tenure beside the cluster, as an administrator.
    pub(crate) fn tenure(&self, words: &[&str]) -> Output {
        let mut tenure = Command::new(env!("CARGO_BIN_EXE_tenure"));
        tenure.args(words).args(["--namespace", NAMESPACE]).env("KUBECONFIG", &self.kubeconfig);
        tenure.output().expect("tenure starts")
    }

    pub(crate) fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    pub(crate) fn has_kube_proxy(&self) -> bool {
        self.directory.join("kube-proxy.log").exists()
    }

    pub(crate) fn get(&self, object: &str) -> Value {
        serde_json::from_str(&self.kubectl(&["get", object, "--output=json"])).unwrap()
    }

    /// The pods with these labels that are not being deleted.
    pub(crate) fn pods(&self, selector: &str) -> Vec<Pod> {
        let pods = self.kubectl(&["get", "pods", "--selector", selector, "--output=json"]);
        let pods: Value = serde_json::from_str(&pods).unwrap();
        let pods = &pods["items"];
        let pods = pods.as_array().unwrap().iter().filter(|pod| pod["metadata"]["deletionTimestamp"].is_null());
        pods.cloned().map(Pod).collect()
    }

    /// Gives an image of the node another name.
    pub(crate) fn tag(&self, image: &str, name: &str) {
        self.images(&["tag", "--force", image, name]);
    }

    /// Brings an archive to the node, as docs/first-failover.md says.
    pub(crate) fn import(&self, archive: &Path) {
        self.images(&["import", archive.to_str().expect("text")]);
    }

    pub(crate) fn has_image(&self, name: &str) -> bool {
        self.images(&["list", "--quiet"]).lines().any(|image| image == name)
    }

    fn images(&self, words: &[&str]) -> String {
        let output = Command::new(&self.ctr).args(["--namespace", "k8s.io", "images"]).args(words).output().expect("ctr starts");
        assert!(output.status.success(), "ctr images {words:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Sends a signal to PID 1 of a pod's container, from outside the container.
    pub(crate) fn signal(&self, pod: &Pod, signal: Signal) {
        kill(self.process(&pod.container_id()), signal).unwrap();
    }

    /// PID 1 of a container, as seen from outside.
    pub(crate) fn process(&self, container: &str) -> Pid {
        let tasks = Command::new(&self.ctr).args(["--namespace", "k8s.io", "tasks", "list"]).output().unwrap();
        let tasks = String::from_utf8_lossy(&tasks.stdout).into_owned();
        let task = tasks.lines().find(|line| line.starts_with(container)).expect("the container's task");
        Pid::from_raw(task.split_whitespace().nth(1).unwrap().parse().unwrap())
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        drop(self.lifeline.take());
        drop(self.script.wait());
    }
}

/// A pod, as shown by the API.
#[derive(Clone)]
pub(crate) struct Pod(Value);

impl Pod {
    pub(crate) fn name(&self) -> &str {
        self.0["metadata"]["name"].as_str().unwrap()
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.container()["ready"] == true
    }

    pub(crate) fn restarts(&self) -> u64 {
        self.container()["restartCount"].as_u64().unwrap_or_default()
    }

    /// How the previous container ended: reason, exit code and last words.
    pub(crate) fn last_end(&self) -> Option<(String, i64, String)> {
        let terminated = &self.container()["lastState"]["terminated"];
        let text = |field: &str| terminated[field].as_str().unwrap_or_default().to_owned();
        Some((text("reason"), terminated["exitCode"].as_i64()?, text("message")))
    }

    pub(crate) fn metadata(&self) -> &Value {
        &self.0["metadata"]
    }

    pub(crate) fn uid(&self) -> &str {
        self.0["metadata"]["uid"].as_str().unwrap()
    }

    pub(crate) fn container_id(&self) -> String {
        id(self.container())
    }

    /// The container of the witness.
    pub(crate) fn witness_id(&self) -> String {
        id(&self.0["status"]["initContainerStatuses"][0])
    }

    fn container(&self) -> &Value {
        &self.0["status"]["containerStatuses"][0]
    }
}

fn id(container: &Value) -> String {
    container["containerID"].as_str().unwrap().trim_start_matches("containerd://").to_owned()
}

/// Polls until there is something.
pub(crate) fn await_some<T>(what: &str, limit: Duration, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = tenure::clock::boot() + limit;
    loop {
        if let Some(seen) = look() {
            return seen;
        }
        assert!(tenure::clock::boot() < deadline, "not within {limit:?}: {what}");
        thread::sleep(Duration::from_millis(100));
    }
}
