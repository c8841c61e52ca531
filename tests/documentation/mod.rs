//! Each command of the README and of docs/ is run: every line of a fenced block of `sh` is on a list here, or its page is, or it fails.
//! Each link leads to a file.

use std::{
    collections::BTreeSet,
    fs,
    io::{BufRead as _, BufReader, Read as _},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use nix::sys::signal::{Signal, kill};
use serde_json::{Value, json};
use support::{Case, Stage, cases, fences, kept::pid, programs};

use crate::TENURE;

mod existing;

use existing::{
    a_job_is_tried_again_on_the_codes_of_a_lock, a_job_that_exists_gets_tenure, a_workload_that_exists_gets_tenure,
    replicas_use_a_lease_in_another_cluster,
};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// How a command is run.
enum How {
    /// To its end, which is success, and it prints this.
    Ends(&'static str),
    /// Until it prints this on a line; then it runs on beside those that follow.
    Stays(&'static str),
    /// By something else: this file, which contains these words.
    By(&'static str, &'static str),
}

use How::{By, Ends, Stays};

/// Where the documentation lets the dev-server write its kubeconfig.
const LEASES: &str = "/tmp/leases";

/// In this order, on one API server, while a replica leads the Lease `billing-writer`.
const COMMANDS: &[(&str, How)] = &[
    ("kubectl apply -k deploy", Ends("lease.coordination.k8s.io/tenure created")),
    ("tenure status billing-writer", Ends("billing-writer")),
    ("kubectl tenure status billing-writer", Ends("billing-writer")),
    ("tenure status billing-writer --observe", Ends("held")),
    ("tenure status billing-writer --watch", Stays("now")),
    ("tenure status -l app.kubernetes.io/managed-by=tenure --watch", Stays("now")),
    ("tenure status -A", By("tests/commands/status.rs", "\"status\", \"-A\"")),
    ("tenure prune --dry-run", Ends("")),
    ("tenure prune", Ends("")),
    ("kubectl apply -k deploy/prune", Ends("cronjob.batch/tenure-prune created")),
    ("kubectl apply -f deploy/examples/migration.yaml", Ends("lease.coordination.k8s.io/lock-billing-migration created")),
    ("kubectl apply -f deploy/examples/nightly.yaml", Ends("cronjob.batch/billing-nightly-again created")),
    ("kubectl create job --from=cronjob/billing-nightly billing-nightly-now", Ends("job.batch/billing-nightly-now created")),
    ("kubectl apply -f deploy/examples/periodic.yaml", Ends("lease.coordination.k8s.io/tasklock-billing-refresh created")),
    ("kubectl apply -f deploy/examples/pool.yaml", Ends("lease.coordination.k8s.io/billing-worker-slot-1 created")),
    ("kubectl apply -f deploy/examples/service.yaml", Ends("endpointslice.discovery.k8s.io/billing-leader created")),
    ("kubectl get endpointslices -l kubernetes.io/service-name=billing", Ends("billing-leader")),
    (
        "kubectl delete endpointslices -l kubernetes.io/service-name=billing,\
         endpointslice.kubernetes.io/managed-by=endpointslice-controller.k8s.io",
        Ends("No resources found"),
    ),
    ("kubectl delete endpoints billing", By("tests/commands/inject.rs", "; kubectl delete endpoints shop")),
    ("kubectl events --for lease/billing", Ends("")),
    ("kubectl get leases -l tenure.dev/slots=billing-worker", Ends("billing-worker-slot-1")),
    ("tenure config default", Ends("renewPeriod: 3s")),
    ("tenure config effective --lease billing-writer", Ends("--lease")),
    ("tenure config schema", Ends("\"$schema\"")),
    ("tenure check --lease billing-writer -- billing-writer", Ends("update Lease")),
    ("tenure check --offline --lease billing-writer -- billing-writer", Ends("terminationGracePeriodSeconds")),
    (
        "tenure check --offline --lease billing-writer --set lease.duration=8s --set lease.renewPeriod=1s --s\
         et lease.attemptTimeout=1s --set workload.stop.lossGrace=2s -- billing-writer",
        Ends("4.92s  stop deadline (S):"),
    ),
    (
        "tenure check --offline --lease billing-writer --set lease.duration=60s --set lease.renewPeriod=10s -- billing-writer",
        Ends("54.4s  stop deadline (S):"),
    ),
    ("kubectl annotate lease billing-writer --overwrite tenure.dev/paused=true", Ends("annotated")),
    ("kubectl annotate lease billing-writer --overwrite tenure.dev/paused=false", Ends("annotated")),
    ("tenure pause billing-writer", Ends("paused")),
    ("tenure resume billing-writer", Ends("resumed")),
    ("tenure step-down billing-writer --wait", Ends("leads")),
    ("tenure confirm-dead billing-writer --holder IDENTITY", By("tests/witness/mod.rs", "\"confirm-dead\"")),
    (
        "kubectl annotate lease billing-writer --overwrite tenure.dev/step-down=\"$(kubectl get lease billing-writer -o \
         jsonpath='{.spec.holderIdentity}')\"",
        Ends("annotated"),
    ),
    ("tenure --leader-election=off -- echo runs", Ends("runs")),
    ("tenure lock --timeout 10m billing-export -- echo exports", Ends("exports")),
    ("tenure lock --timeout 10m billing-export -- sh -c 'tenure held --for 2s && echo writes'", Ends("writes")),
    (
        "tenure lock --timeout 10m billing-export -- sh -c 'token=$(tenure held --token) && echo \"writes with $token\"'",
        Ends("writes with "),
    ),
    ("tenure task nightly-report --every 24h --limit 1h -- echo reports", Stays("reports")),
    (
        "tenure task nightly-report --schedule \"0 2 * * *\" --time-zone Europe/Berlin --limit 1h -- echo reports",
        By("src/loading/tests/presets.txt", "--schedule '0 2 * * *' --time-zone Europe/Berlin --limit 1h"),
    ),
    ("tenure --lease worker --slots 3 -- echo works", Stays("works")),
    ("cargo run -- dev-server --kubeconfig-out /tmp/leases", Stays("Leases are served")),
    ("KUBECONFIG=/tmp/leases cargo run -- --lease demo -- sh -c 'echo leading; exec sleep infinity'", Stays("leading")),
    ("kubectl --kubeconfig /tmp/leases get leases", Ends("demo")),
    ("cargo run -- demo", By("tests/demo.rs", "\"demo\"")),
    (
        "helm install billing deploy/helm/tenure --set image.repository=YOUR/IMAGE --set image.tag=1.0 --set-json 'args=[\"/usr/bin/billing-writer\"]'",
        By("tests/chart.rs", "\"install\", \"billing\", CHART"),
    ),
    ("kubectl apply -k deploy/monitoring", By("tests/deploy/mod.rs", "what_monitors_it_is_rendered")),
    ("kubectl exec deploy/tenure -- /tenure check", By("tests/node/page.rs", "\"kubectl exec deploy/tenure -- /tenure check\"")),
    ("kubectl rollout status deployment/tenure", By("tests/node/page.rs", "\"kubectl rollout status\"")),
    ("kubectl logs -l app.kubernetes.io/name=tenure --prefix", By("tests/node/page.rs", "\"kubectl logs\"")),
    ("kubectl delete pod NAME", By("tests/node/page.rs", "\"kubectl delete pod NAME\"")),
    ("tenure status tenure", By("tests/node/page.rs", "\"kubectl tenure status tenure\"")),
    ("kubectl tenure status tenure", By("tests/node/page.rs", "\"kubectl tenure status tenure\"")),
    ("buildah build -t tenure .", By("tests/image/build", "image tenure \"${flags[@]}\"")),
    ("buildah build -t tenure-example deploy", By("tests/image/build", "image tenure-example")),
    ("tenure apply release-2 -f release.yaml", By("tests/transactions/mod.rs", "\"apply\", \"-f\"")),
    ("tenure apply release-2 -f release.yaml --dry-run", By("tests/transactions/mod.rs", "\"--dry-run\"")),
    ("tenure recover plan release-2", By("tests/transactions/mod.rs", "\"plan\", \"release-2\"")),
    ("tenure recover apply release-2", By("tests/transactions/mod.rs", "\"apply\", \"release-2\"")),
    (
        "buildah push tenure-example docker-archive:/tmp/tenure-example.tar:tenure-example:latest",
        By("tests/image/build", "docker-archive:$archive:$name"),
    ),
    ("buildah pull oci-archive:tenure-0.1.0.oci.tar", By("tests/release.rs", "\"pull\", &format!(\"oci-archive:")),
    ("buildah tag tenure:0.1.0 tenure", By("tests/release.rs", "\"tag\"")),
    (
        "ln -s \"$(command -v tenure)\" ~/.local/bin/kubectl-tenure",
        By("tests/documentation/mod.rs", "directory.join(\"kubectl-tenure\")"),
    ),
    ("tests/run", By(".ci/run", "\ntests/run\n")),
];

/// Pages of which one test runs each command: the page, the file of the test, and words that the file contains.
const PAGES: [(&str, &str, &str); 2] = [
    ("pasted-parts.md", "tests/node/existing.rs", "fences::commands(PAGE)"),
    ("existing-charts.md", "tests/node/existing.rs", "fences::commands(LABEL)"),
];

pub(crate) fn all() -> Vec<Case> {
    let mut cases = cases![each_command_does_what_it_says];
    cases.extend(cases![
        blocking:
        a_workload_that_exists_gets_tenure,
        a_job_that_exists_gets_tenure,
        a_job_is_tried_again_on_the_codes_of_a_lock,
        replicas_use_a_lease_in_another_cluster,
        each_link_leads_to_a_file,
        what_a_chart_renders_for_kubectl_has_no_hooks,
    ]);
    cases
}

fn each_link_leads_to_a_file(_: &Stage) {
    let summary = fs::read_to_string(Path::new(ROOT).join("docs/SUMMARY.md")).expect("the site's summary");
    for (page, text) in pages() {
        let name = page.file_name().expect("a name").to_string_lossy().into_owned();
        let is_chapter = page.starts_with(Path::new(ROOT).join("docs")) && name != "SUMMARY.md";
        assert!(!is_chapter || summary.contains(&format!("]({name})")), "docs/SUMMARY.md does not name {name}");
        let links = text.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next());
        for link in links.filter(|link| !link.is_empty() && !link.starts_with("https://")) {
            assert!(page.with_file_name(link).exists(), "{}: {link}", page.display());
        }
    }
}

fn what_a_chart_renders_for_kubectl_has_no_hooks(_: &Stage) {
    let pages = pages();
    let lines = pages.iter().flat_map(|(_, text)| text.lines()).filter(|line| line.starts_with("helm template "));
    let with_hooks: Vec<_> = lines.clone().filter(|line| !line.contains(" --no-hooks ")).collect();
    assert!(lines.count() > 0 && with_hooks.is_empty(), "kubectl would start test pods: {with_hooks:?}");
}

async fn each_command_does_what_it_says(stage: Stage) {
    let listed: BTreeSet<String> = COMMANDS.iter().map(|(line, _)| (*line).to_owned()).collect();
    assert_eq!(documented(), listed, "what is documented, and what is run here");
    PAGES.into_iter().for_each(|(page, file, words)| is_run_by(page, file, words));
    let place = Place::of(&stage);
    let _leader = place.start("TENURE_LEASE__CREATION_WAIT=0s tenure --lease billing-writer -- billing-writer", "writes");
    let mut running = Vec::new();

    for (line, how) in COMMANDS {
        match how {
            Ends(words) => place.run(line, words),
            Stays(words) => running.push(place.start(line, words)),
            By(file, words) => is_run_by(line, file, words),
        }
    }

    // It was asked to step down; alone, it leads again after a while.
    let lease = stage.api.lease(&stage.namespace, "billing-writer");
    let next = |lease: Option<&Value>| lease.is_some_and(|lease| lease["spec"]["leaseTransitions"] != 0);
    lease.wait("the next term", next).await;
    // Whatever came last needs those before it.
    while running.pop().is_some() {}
}

/// Checks that this file, which runs this command or page, still contains these words.
fn is_run_by(what: &str, file: &str, words: &str) {
    let text = fs::read_to_string(Path::new(ROOT).join(file)).expect("a file");
    assert!(text.contains(words), "{file} does not run {what:?} any more");
}

/// The README and its pages, with their paths.
fn pages() -> Vec<(PathBuf, String)> {
    let files = fs::read_dir(Path::new(ROOT).join("docs")).expect("docs").map(|page| page.expect("a page").path());
    let pages = files.filter(|file| file.extension().is_some_and(|kind| kind == "md"));
    let all = pages.chain(["README.md", "SECURITY.md", "CHANGELOG.md"].map(|name| Path::new(ROOT).join(name)));
    all.map(|page| (page.clone(), fs::read_to_string(page).expect("a page"))).collect()
}

/// The commands of all pages but those of [`PAGES`].
fn documented() -> BTreeSet<String> {
    let pages = pages();
    let pages = pages.iter().filter(|(page, _)| !PAGES.iter().any(|(name, ..)| page.ends_with(name)));
    pages.flat_map(|(_, text)| fences::commands(text)).map(str::to_owned).collect()
}

/// Where they run: `tenure` and `kubectl` are on the PATH, `cargo run --` is tenure, and so is a program to run.
struct Place {
    directory: PathBuf,
    kubeconfig: PathBuf,
    path: String,
}

impl Place {
    fn of(stage: &Stage) -> Self {
        let directory = stage.directory().join("documented");
        fs::create_dir(&directory).expect("a new directory");
        let scripts = [
            ("tenure", format!("exec '{TENURE}' \"$@\"")),
            ("kubectl", format!("exec '{}' \"$@\"", programs::path("kubectl").display())),
            ("cargo", format!("shift 2\nexec '{TENURE}' \"$@\"")),
            ("billing-writer", "echo writes\nexec sleep infinity".to_owned()),
        ];
        for (name, script) in scripts {
            let file = directory.join(name);
            fs::write(&file, format!("#!/bin/sh\n{script}\n")).expect("a script");
            fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).expect("it can be run");
        }
        std::os::unix::fs::symlink(TENURE, directory.join("kubectl-tenure")).expect("a link");
        let text = fs::read_to_string(stage.kubeconfig()).expect("a kubeconfig");
        let mut kubeconfig: Value = serde_saphyr::from_str(&text).expect("YAML");
        kubeconfig["contexts"][0]["context"]["namespace"] = json!(stage.namespace);
        let file = directory.join("kubeconfig");
        fs::write(&file, kubeconfig.to_string()).expect("a kubeconfig");
        let path = format!("{}:{}", directory.display(), std::env::var("PATH").unwrap_or_default());
        Self { kubeconfig: file, path, directory }
    }

    /// The line as a shell runs it, in the root of the repository. It ends with this process.
    fn shell(&self, line: &str) -> Command {
        let line = line.replace(LEASES, &self.directory.join("leases").to_string_lossy());
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "timeout", "60", "sh", "-c", &line]).current_dir(ROOT).stdin(Stdio::null());
        command.env("PATH", &self.path).env("KUBECONFIG", &self.kubeconfig);
        command
    }

    fn run(&self, line: &str, words: &str) {
        let output = self.shell(line).output().expect("a shell");
        let (said, complained) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{line}: {}\n{said}{complained}", output.status);
        assert!(said.contains(words), "{line}: no {words:?} in\n{said}{complained}");
    }

    fn start(&self, line: &str, words: &str) -> Running {
        let mut running = Running(self.shell(line).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("a shell"));
        let mut said = BufReader::new(running.0.stdout.take().expect("piped"));
        let mut first = String::new();
        said.read_line(&mut first).expect("text");
        assert!(first.contains(words), "{line}: {first:?}");
        // Whatever it says later must not fill the pipe.
        std::thread::spawn(move || drop(said.read_to_end(&mut Vec::new())));
        running
    }
}

/// Stopped when dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // `timeout` passes it on to what it runs.
        let _ = (kill(pid(&self.0), Signal::SIGTERM), self.0.wait());
    }
}
