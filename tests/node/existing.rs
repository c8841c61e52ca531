//! docs/pasted-parts.md and docs/existing-charts.md on the node: a Deployment, a StatefulSet and a public chart that run get tenure as the
//! pages say. No two programs run at once, not even in the first rollout: its old program takes its time to stop, and Kubernetes would
//! start another of it.

use std::{fs, ops::Range, path::Path};

use nix::sys::signal::Signal;
use support::fences;
use tenure::clock;

use crate::{
    node::{Node, PATIENCE, Pod, await_some},
    page::Reader,
    stamps::{Run, Stamps, now},
};

const PAGE: &str = include_str!("../../docs/pasted-parts.md");
const LABEL: &str = include_str!("../../docs/existing-charts.md");
/// As a public chart renders it.
const PUBLIC: &str = include_str!("../deploy/podinfo.yaml");

/// Runs everything in order; panics where something does not hold.
pub(crate) fn run(node: &Node, stamps: &Stamps, directory: &Path) {
    let begin = clock::boot();
    node.tag("docker.io/library/tenure:latest", "registry.example/tenure:0.1.0");
    for kind in ["Deployment", "StatefulSet"] {
        let directory = directory.join(format!("existing-{kind}"));
        write(&directory, kind);
        let selector = "app.kubernetes.io/instance=shop";
        Existing { node, stamps, kind, name: "billing", selector, since: now() }.gets_tenure(&directory);
    }
    let directory = directory.join("existing-chart");
    write_public(&directory);
    podinfo(node, stamps).gets_tenure(&directory);
    println!("node: what exists took {:.0} s", clock::boot().since(begin).as_secs_f64());
}

/// The same for the page of the label.
pub(crate) fn label(node: &Node, stamps: &Stamps, directory: &Path) {
    let begin = clock::boot();
    let directory = directory.join("label");
    write_public(&directory);
    podinfo(node, stamps).gets_a_label(&directory);
    println!("node: one label took {:.0} s", clock::boot().since(begin).as_secs_f64());
}

fn podinfo<'a>(node: &'a Node, stamps: &'a Stamps) -> Existing<'a> {
    Existing { node, stamps, kind: "Deployment", name: "podinfo", selector: "app.kubernetes.io/name=shop-podinfo", since: now() }
}

struct Existing<'a> {
    node: &'a Node,
    stamps: &'a Stamps,
    kind: &'static str,
    name: &'static str,
    selector: &'static str,
    since: u64,
}

impl Existing<'_> {
    fn gets_tenure(&self, directory: &Path) {
        let Self { name, selector, .. } = self;
        let workload = format!("{}/shop-{name}", self.kind.to_lowercase());
        self.node.kubectl(&["apply", "-f", directory.join("before.yaml").to_str().unwrap()]);
        await_some("the program without tenure", PATIENCE, || self.running(0, 1));

        for command in fences::commands(PAGE) {
            let command = command.replace("deployment/shop-billing", &workload);
            let command = command.replace("app.kubernetes.io/instance=shop", selector);
            let command = command.replace("-k .", &format!("-k {}", directory.display()));
            let words: Vec<&str> = command.split(' ').collect();
            assert_eq!(words[0], "kubectl", "the page says {command}");
            self.node.kubectl(&words[1..]);
        }
        self.node.kubectl(&["rollout", "status", &workload, "--timeout=90s"]);
        let (leader, _) = self.is_followed("its leader killed", 0..6_000);
        self.node.kubectl(&["exec", leader.name(), "--container", name, "--", "/opt/tenure/tenure", "check"]);
        self.node.kubectl(&["delete", &workload, &format!("lease/shop-{name}"), "--timeout=60s"]);
    }

    /// The chart as it is published, the policies, and one label, typed as the page says.
    fn gets_a_label(&self, directory: &Path) {
        let reader = Reader::new(self.node, directory.join("programs"));
        let ours = |command: &str| command.replace("-n shop", "-n show").replace("=shop:", "=show:");
        let lines: Vec<String> = fences::commands(LABEL).map(ours).collect();
        let [policies, lease, role, binding, scale, wait, label, rollout, see, delete] = &lines[..] else {
            panic!("the page says {lines:?}")
        };
        let types = |line: &String| reader.types(line).unwrap();
        self.node.kubectl(&["apply", "-f", directory.join("before.yaml").to_str().unwrap()]);
        let (_, before) = await_some("the program without tenure", PATIENCE, || self.running(0, 1));

        let begin = clock::boot();
        for line in [policies, lease, role, binding] {
            types(line);
        }
        let dry = format!("{label} --dry-run=server");
        let refused = await_some("the policies are in force", PATIENCE, || reader.types(&dry).err());
        assert!(refused.contains("so two programs could run at once: first scale to 0"), "{refused}");
        reader.types(label).unwrap_err();
        let (_, unled) = await_some("the program runs on", PATIENCE, || self.running(0, 1));
        assert_eq!((unled.token, unled.first), (0, before.first), "it was replaced");

        for line in [scale, wait, label, rollout] {
            types(line);
        }
        let (leader, led) = await_some("a leader", PATIENCE, || self.running(1, 2));
        assert!(types(see).contains(leader.name()), "{}", types(see));
        types(&delete.replace("NAME", leader.name()));
        await_some("another leader", PATIENCE, || self.running(led.token + 1, 2));
        println!("{:<40} {:>8.2} s", "one label: from nothing to a failover", clock::boot().since(begin).as_secs_f64());

        let (_, led) = self.is_followed("one label, its leader killed", 0..300);
        types(&policies.replace("apply", "delete"));
        let gone = now();
        let outlives = || self.running(1, 2).filter(|(_, run)| run.last > gone + 2_000);
        let (_, after) = await_some("the program outlives the policies by more than a Lease", PATIENCE, outlives);
        assert_eq!((led.token, led.first), (after.token, after.first), "it was stopped with the policies");
        self.node.kubectl(&["delete", "deployment/shop-podinfo", "lease/podinfo", "--timeout=60s"]);
    }

    /// Kills two leaders. Each is followed within these hundredths of a second.
    fn is_followed(&self, what: &str, within: Range<u64>) -> (Pod, Run) {
        let (mut leader, mut run) = await_some("a leader", PATIENCE, || self.running(1, 2));
        for _ in 0..2 {
            self.node.signal(&leader, Signal::SIGKILL);
            let (next, after) = await_some("another leader", PATIENCE, || self.running(run.token + 1, 2));
            // What it printed last is read only now.
            let last = self.stamps.runs().into_iter().find(|each| each.token == run.token && each.pod == run.pod).unwrap().last;
            let gap = after.first - last;
            let what = format!("{} {}, {what}", self.kind, self.name);
            println!("{what:<34} {:>5}.{:02} s  then {} runs", gap / 100, gap % 100, next.name());
            assert!(within.contains(&gap), "{what}: {gap} hundredths of a second");
            (leader, run) = (next, after);
        }
        (leader, run)
    }

    /// The pod whose program alone runs, with at least this token, among so many that are ready.
    fn running(&self, token: u64, replicas: usize) -> Option<(Pod, Run)> {
        let ours = format!("shop-{}-", self.name);
        let is_ours = |run: &Run| run.pod.starts_with(&ours) && run.first >= self.since;
        let runs: Vec<Run> = self.stamps.runs().into_iter().filter(is_ours).collect();
        for pair in runs.windows(2) {
            assert!(pair[0].last <= pair[1].first, "{}: two at once: {} and {}", self.kind, pair[0].summary(), pair[1].summary());
        }
        let run = runs.last().filter(|run| run.last + 200 > now() && run.token >= token)?;
        let pods = self.node.pods(self.selector);
        let pod = pods.iter().find(|pod| pod.name() == run.pod)?;
        (pods.len() == replicas && pods.iter().all(Pod::is_ready)).then(|| (pod.clone(), run.clone()))
    }
}

/// Writes the files of the page for what a public chart renders.
fn write_public(directory: &Path) {
    fs::create_dir(directory).unwrap();
    let parts = fences::pasted("tenure.yaml").replace("ServiceAccount, name: shop-billing", "ServiceAccount, name: default");
    let files = [
        ("before.yaml", PUBLIC.to_owned()),
        ("tenure.yaml", parts.replace("shop-billing", "shop-podinfo")),
        ("podinfo.yaml", fences::pasted("podinfo.yaml").replace("REGISTRY", "registry.example")),
        (
            "kustomization.yaml",
            fences::pasted("kustomization.yaml")
                .replace("deployment.yaml", "podinfo.yaml")
                .replace("shop-billing", "shop-podinfo"),
        ),
    ];
    for (name, text) in files {
        fs::write(directory.join(name), text).unwrap();
    }
}

/// Writes the files of the page for this kind.
fn write(directory: &Path, kind: &str) {
    fs::create_dir(directory).unwrap();
    for name in ["before.yaml", "tenure.yaml", "deployment.yaml", "kustomization.yaml"] {
        let text =
            fences::pasted(name).replace("kind: Deployment", &format!("kind: {kind}")).replace("REGISTRY", "registry.example");
        let is_taken = |line: &&str| kind == "Deployment" || !line.contains("strategy:");
        let text: String = text.lines().filter(is_taken).map(|line| format!("{line}\n")).collect();
        fs::write(directory.join(name), text).unwrap();
    }
}
