//! A namespace under Pod Security `restricted`, and the programs that are run in it.

use std::{
    fs,
    io::Write as _,
    panic::resume_unwind,
    path::PathBuf,
    process::{Command, Output, Stdio},
    thread,
};

use serde_json::{Value, json};

use super::{api::Api, programs, stage::Stage};

/// A new namespace on the API server, under Pod Security `restricted`.
pub struct Namespace {
    /// Its name.
    pub name: String,
    kubeconfig: PathBuf,
}

impl Namespace {
    /// A new one, of the server of this stage.
    pub fn restricted(stage: &Stage) -> Self {
        let namespace = Self { name: format!("deploy-{:08x}", fastrand::u32(..)), kubeconfig: stage.kubeconfig().to_owned() };
        let levels = ["enforce", "warn"].map(|mode| (format!("pod-security.kubernetes.io/{mode}"), json!("restricted")));
        let labels: Value = levels.into_iter().collect();
        let object = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace.name, "labels": labels } });
        namespace.create(&object).success();
        namespace
    }

    /// Runs kubectl in it.
    pub fn kubectl(&self, arguments: &[&str]) -> Output {
        self.command("kubectl", arguments).output().expect("kubectl starts")
    }

    /// kubectl with this object on its standard input.
    pub fn feed(&self, arguments: &[&str], object: &impl ToString) -> Output {
        let mut command = self.command("kubectl", arguments);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("kubectl starts");
        child.stdin.take().unwrap().write_all(object.to_string().as_bytes()).unwrap();
        child.wait_with_output().unwrap()
    }

    /// Creates an object, which must fit the schema.
    pub fn create(&self, object: &Value) -> Output {
        self.feed(&["create", "-f", "-"], object)
    }

    /// An object of it.
    pub fn get(&self, object: &str) -> Value {
        serde_json::from_slice(&self.kubectl(&["get", "-o", "json", object]).success().stdout).unwrap()
    }

    /// Pods of this template are admitted, and would not be with more privileges.
    pub fn admits(&self, template: &Value) {
        let mut pod = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": template["metadata"], "spec": template["spec"] });
        pod["metadata"]["generateName"] = json!("tenure-");
        self.create(&pod).success();
        pod["spec"]["containers"][0]["securityContext"]["allowPrivilegeEscalation"] = json!(true);
        let refused = self.create(&pod).failure();
        assert!(refused.contains("violates PodSecurity \"restricted"), "{refused}");
    }

    /// A ServiceAccount of deploy/, once it may do this to this Lease.
    pub fn account(&self, name: &'static str, verb: &str, lease: &str) -> Account<'_> {
        let account = Account { namespace: self, name };
        let attributes = account.attributes(verb, &format!("leases.coordination.k8s.io/{lease}"));
        self.ask(async |api| api.decides(&self.name, name, &attributes, true).await);
        account
    }

    /// Asks the API server, which costs a tenth of a kubectl. A case that waits here may be in a runtime, so a thread has another one.
    fn ask(&self, ask: impl AsyncFnOnce(Api) + Send) {
        let ask = || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async { ask(Api::connect(&self.kubeconfig).await).await });
        };
        thread::scope(|scope| scope.spawn(ask).join().unwrap_or_else(|panic| resume_unwind(panic)))
    }

    /// kubectl or helm in this namespace.
    pub fn command(&self, program: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(programs::path(program));
        command.arg("--kubeconfig").arg(&self.kubeconfig).args(["--namespace", &self.name]).args(arguments);
        command
    }
}

/// A ServiceAccount of deploy/.
pub struct Account<'a> {
    namespace: &'a Namespace,
    name: &'static str,
}

impl Account<'_> {
    /// The account is allowed each of these verbs, or none of them, on an object such as `pods` or `leases.coordination.k8s.io/billing`.
    pub fn assert_may(&self, verbs: &[&str], object: &str, allowed: bool) {
        let Self { namespace, name } = *self;
        namespace.ask(async |api| {
            for verb in verbs {
                let may = api.may(&namespace.name, name, &self.attributes(verb, object)).await;
                assert_eq!(may, allowed, "{name}: {verb} {object}");
            }
        });
    }

    fn attributes(&self, verb: &str, object: &str) -> Value {
        let (resource, name) = object.split_once('/').unwrap_or((object, ""));
        let (resource, group) = resource.split_once('.').unwrap_or((resource, ""));
        json!({ "namespace": self.namespace.name, "verb": verb, "group": group, "resource": resource, "name": name })
    }

    /// A kubeconfig with a token of its own.
    pub fn kubeconfig(&self) -> PathBuf {
        self.kubeconfig_with(&[])
    }

    /// The same with these flags of `kubectl create token`.
    pub fn kubeconfig_with(&self, flags: &[&str]) -> PathBuf {
        let token = self.namespace.kubectl(&[&["create", "token", self.name], flags].concat()).success().stdout;
        let text = fs::read_to_string(&self.namespace.kubeconfig).unwrap();
        let mut kubeconfig: Value = serde_saphyr::from_str(&text).unwrap();
        kubeconfig["users"][0]["user"] = json!({ "token": String::from_utf8(token).unwrap().trim() });
        let name = format!("{}-{}-{}", self.namespace.name, self.name, flags.len());
        let file = self.namespace.kubeconfig.with_file_name(name);
        fs::write(&file, kubeconfig.to_string()).unwrap();
        file
    }
}

/// How a command is expected to end.
pub trait Ended {
    /// What it printed; it succeeded.
    fn success(self) -> Output;
    /// What it complained of; it failed.
    fn failure(self) -> String;
}

impl Ended for Output {
    fn success(self) -> Output {
        assert!(self.status.success(), "{}", String::from_utf8_lossy(&self.stderr));
        self
    }

    fn failure(self) -> String {
        assert!(!self.status.success(), "{}", String::from_utf8_lossy(&self.stdout));
        String::from_utf8(self.stderr).unwrap()
    }
}

/// Returns the grace period, in seconds, that `tenure check` asks for in what it printed.
pub fn grace(said: &str) -> u64 {
    said.split_once("terminationGracePeriodSeconds: ").unwrap().1.split(' ').next().unwrap().parse().unwrap()
}
