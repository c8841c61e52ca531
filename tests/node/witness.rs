//! The witness of deploy/, with a Lease of half a minute: a takeover that comes sooner is its release, or the dead replica's own.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    ops::Range,
    os::unix::{ffi::OsStringExt as _, process::CommandExt as _},
    path::PathBuf,
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::{Value, json};
use support::procfs::{self, children, command_line, is_dead, parent};

use crate::{
    node::{NAMESPACE, PATIENCE, Pod, await_some},
    show::Show,
    stamps::{hundredths, now},
};

const DEPLOY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy");
const OVERLAY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/node/patient");
const PODS: &str = "app.kubernetes.io/name=tenure";
/// Gaps in hundredths of a second: by a release, and by the duration.
const SOON: Range<u64> = 0..1_000;
const WAITED: Range<u64> = 2_000..3_500;
/// By the duration too, but its program outlives the last renewal by up to the stop deadline.
const VOID: Range<u64> = 800..3_500;

/// Runs everything in order; panics where something does not hold.
pub(crate) fn run(show: Show<'_>) {
    let begin = tenure::clock::boot();
    show.node.kubectl(&["apply", "-k", OVERLAY]);
    show.rolled_out();
    Show::print_head();
    show.killed();
    show.stopped_by_the_kubelet();
    show.without_its_keepers();
    show.without_its_witness();
    show.api_server_away();
    show.shim_killed("SIGKILL of its shim", false);
    show.shim_killed("SIGKILL of its shim, state lost", true);
    show.other_namespaces();
    show.stamps.assert_no_overlap();
    show.node.kubectl(&["delete", "deployment/tenure", "--timeout=60s"]);
    show.job();
    println!("node: the witness took {:.0} s", tenure::clock::boot().since(begin).as_secs_f64());
}

impl Show<'_> {
    /// A handover whose gap must be within these bounds.
    fn follows(&self, within: Range<u64>, what: &str, act: impl FnOnce(&Pod)) {
        let gap = self.handover(what, act);
        assert!(within.contains(&gap), "{what}: {gap} hundredths of a second");
    }

    fn init(&self, pod: &Pod) -> Pid {
        self.node.process(&pod.container_id())
    }

    fn killed(&self) {
        self.follows(SOON, "SIGKILL of init", |leader| signal(self.init(leader), Signal::SIGKILL));
        self.follows(SOON, "its workload eats all memory", |leader| self.exec(leader, "kill -USR2 1"));
    }

    fn stopped_by_the_kubelet(&self) {
        self.follows(SOON, "its grace period is exceeded", |leader| {
            self.stays(leader);
            self.node.kubectl(&["delete", "pod", leader.name(), "--grace-period=3", "--wait=false"]);
        });
        let what = "kubectl delete pod --force";
        let gap = self.handover(what, |leader| {
            self.stays(leader);
            self.node.kubectl(&["delete", "pod", leader.name(), "--grace-period=0", "--force"]);
        });
        // An API server remembers a token for up to 10 s. Until then the Lease can be given back.
        assert!(SOON.contains(&gap) || WAITED.contains(&gap), "{what}: {gap} hundredths of a second");
        self.follows(VOID, "the same, its token forgotten", |leader| {
            let kubelet = Stopped::kill("kubelet");
            self.node.kubectl(&["delete", "pod", leader.name(), "--grace-period=0", "--force"]);
            await_some("the next renewal is refused", PATIENCE, || {
                self.stamps.has_said(leader.name(), "the pod was deleted by force").then_some(())
            });
            kubelet.start();
        });
        self.follows(SOON, "init and elector frozen, not live", |leader| {
            let init = self.init(leader);
            let elector = children(init).into_iter().find(|pid| command_line(*pid).get(1).is_some_and(|word| word == "elector"));
            signal(init, Signal::SIGSTOP);
            signal(elector.expect("an elector"), Signal::SIGSTOP);
        });
    }

    /// From now on the workload of this pod heeds no SIGTERM.
    fn stays(&self, leader: &Pod) {
        self.exec(leader, "kill -HUP 1");
        await_some("the workload's word", PATIENCE, || {
            let runs = self.stamps.runs();
            runs.iter().any(|run| run.pod == leader.name() && run.words.iter().any(|words| words == "stays")).then_some(())
        });
    }

    /// The witness takes the kubelet's word for nothing, nor the runtime's, so that it needs neither.
    fn without_its_keepers(&self) {
        for program in ["kubelet", "containerd"] {
            self.follows(SOON, &format!("SIGKILL of {program}, then of init"), |leader| {
                let (init, holder) = (self.init(leader), self.holder());
                let stopped = Stopped::kill(program);
                signal(init, Signal::SIGKILL);
                await_some("another holder", PATIENCE, || (self.holder() != holder).then_some(()));
                stopped.start();
            });
        }
    }

    fn without_its_witness(&self) {
        for (after, millis) in [("at once", 0), ("after 0.1 s", 100)] {
            self.follows(WAITED, &format!("SIGKILL of its witness, init {after}"), |leader| {
                let (witness, init) = (self.node.process(&leader.witness_id()), self.init(leader));
                signal(witness, Signal::SIGKILL);
                thread::sleep(Duration::from_millis(millis));
                signal(init, Signal::SIGKILL);
            });
        }
        // By then the kubelet may have started another witness, and the elector may have told it.
        self.follows(0..WAITED.end, "SIGKILL of its witness, init after 1.5 s", |leader| {
            let (witness, init) = (self.node.process(&leader.witness_id()), self.init(leader));
            signal(witness, Signal::SIGKILL);
            thread::sleep(Duration::from_millis(1_500));
            signal(init, Signal::SIGKILL);
        });
        self.follows(SOON, "SIGKILL of init, once the next is told", |leader| {
            let told = || self.node.kubectl(&["logs", leader.name()]).matches("gives the Lease back if").count();
            let (before, init) = (told(), self.init(leader));
            signal(self.node.process(&leader.witness_id()), Signal::SIGKILL);
            await_some("the next witness is told", PATIENCE, || (told() > before).then_some(()));
            signal(init, Signal::SIGKILL);
        });
        let mut frozen = None;
        self.follows(WAITED, "SIGSTOP of its witness, SIGKILL of init", |leader| {
            let witness = self.node.process(&leader.witness_id());
            signal(witness, Signal::SIGSTOP);
            signal(self.init(leader), Signal::SIGKILL);
            frozen = Some((witness, leader.clone()));
        });
        let (witness, dead) = frozen.expect("it ran");
        let (_, before) = self.settled(0);
        signal(witness, Signal::SIGCONT);
        await_some("the witness finds another holder", PATIENCE, || {
            self.node.kubectl(&["logs", dead.name(), "--container=witness"]).contains("nothing is given back").then_some(())
        });
        assert_eq!(self.settled(0).1.token, before.token, "a witness that comes late took the Lease from another");
    }

    fn api_server_away(&self) {
        self.follows(1_500..2_600, "API server away for 20 s", |leader| {
            let (server, init) = (pid_of("kube-apiserver"), self.init(leader));
            signal(server, Signal::SIGSTOP);
            signal(init, Signal::SIGKILL);
            thread::sleep(Duration::from_secs(20));
            signal(server, Signal::SIGCONT);
        });
    }

    /// The runtime takes the containers of the pod for dead, and the kubelet starts others. containerd kills the first ones, unless it
    /// has lost runc's state of them: then two containers of the pod live beside each other, and one workload.
    fn shim_killed(&self, what: &str, is_state_lost: bool) {
        let (leader, before) = self.settled(0);
        let init = self.init(&leader);
        let ids = [leader.container_id(), leader.witness_id()];
        for id in ids.iter().filter(|_| is_state_lost) {
            fs::remove_dir_all(format!("/run/containerd/runc/k8s.io/{id}")).unwrap();
        }
        signal(parent(init).expect("it lives"), Signal::SIGKILL);
        await_some("a second container of the pod", PATIENCE, || {
            let pods = self.node.pods(PODS);
            let pod = pods.into_iter().find(|pod| pod.uid() == leader.uid() && pod.container_id() != leader.container_id());
            pod.filter(Pod::is_ready)
        });
        assert_eq!(!is_dead(init), is_state_lost, "whether the first container lives on");
        let (_, after) = self.settled(before.token + 1);
        let lives: Vec<_> = self.lives().into_iter().filter(|(token, _)| *token >= before.token).collect();
        assert!(lives.windows(2).all(|pair| pair[0].1.1 < pair[1].1.0), "two at once: {lives:?}");
        let gap = lives[1].1.0 - lives[0].1.1;
        println!("{what:<34} {:>5}.{:02} s  {:<18} {}", gap / 100, gap % 100, "", after.pod);
        // Nobody else would end it.
        let _ = kill(init, Signal::SIGKILL);
    }

    /// When the terms of all pods were alive, by the files of their workloads.
    fn lives(&self) -> BTreeMap<u64, (u64, u64)> {
        let mut lives = BTreeMap::<u64, (u64, u64)>::new();
        for pod in self.node.pods(PODS) {
            let file = format!("/var/lib/kubelet/pods/{}/volumes/kubernetes.io~empty-dir/tmp/stamps", pod.uid());
            for line in fs::read_to_string(file).unwrap_or_default().lines() {
                let Some((clock, token)) = line.split_once(' ') else { continue };
                let (Some(clock), Ok(token)) = (hundredths(clock), token.parse()) else { continue };
                lives.entry(token).or_insert((clock, clock)).1 = clock;
            }
        }
        lives
    }

    /// In a PID namespace that is not tenure's alone there is no proof. The host's network changes nothing, as the socket is a path.
    fn other_namespaces(&self) {
        let pod = "/spec/template/spec";
        self.patch(&json!([{ "op": "add", "path": format!("{pod}/shareProcessNamespace"), "value": true }]));
        self.follows(WAITED, "SIGKILL of init, shared PID namespace", |leader| {
            let said = self.node.kubectl(&["logs", leader.name()]);
            assert!(said.contains("lease.witness has no effect: tenure is not PID 1"), "{said}");
            signal(self.init(leader), Signal::SIGKILL);
        });
        self.node.kubectl(&["label", "namespace", NAMESPACE, "--overwrite", "pod-security.kubernetes.io/enforce=privileged"]);
        // Two pods on one node cannot have the same port.
        self.patch(&json!([
            { "op": "remove", "path": format!("{pod}/shareProcessNamespace") },
            { "op": "add", "path": format!("{pod}/hostNetwork"), "value": true },
            { "op": "remove", "path": format!("{pod}/containers/0/ports") },
            { "op": "remove", "path": format!("{pod}/containers/0/livenessProbe") },
            { "op": "remove", "path": format!("{pod}/containers/0/readinessProbe") },
            { "op": "remove", "path": format!("{pod}/containers/0/env/2") },
        ]));
        self.follows(SOON, "SIGKILL of init, the host's network", |leader| signal(self.init(leader), Signal::SIGKILL));
        self.node.kubectl(&["label", "namespace", NAMESPACE, "--overwrite", "pod-security.kubernetes.io/enforce=restricted"]);
    }

    fn patch(&self, operations: &Value) {
        self.node.kubectl(&["patch", "deployment/tenure", "--type=json", &format!("--patch={operations}")]);
        self.rolled_out();
    }

    /// Two Jobs of deploy/examples/job.yaml that take long: the second waits behind the first, whose container is killed.
    fn job(&self) {
        self.node.kubectl(&["apply", "-f", &format!("{DEPLOY}/examples/job.yaml")]);
        self.node.kubectl(&["wait", "--for=condition=complete", "job/billing-import", "--timeout=60s"]);
        let template = self.node.get("job/billing-import")["spec"]["template"]["spec"].take();
        let run = |job: &str| self.stamps.runs().into_iter().find(|run| run.pod.starts_with(job));
        let start = |job: &str| {
            let mut spec = template.clone();
            let container = &mut spec["containers"][0];
            let script = container["args"].as_array_mut().and_then(|args| args.last_mut()).expect("a script");
            *script = json!(script.as_str().expect("text").replace("sleep 2", "sleep 600"));
            container["env"].as_array_mut().expect("variables").push(json!({ "name": "TENURE_LEASE__DURATION", "value": "30s" }));
            self.node.apply(&json!({ "apiVersion": "batch/v1", "kind": "Job", "metadata": { "name": job }, "spec": { "template": { "spec": spec } } }));
        };
        start("one");
        let first = await_some("the first job's run", PATIENCE, || run("one-"));
        start("other");
        await_some("the second job waits", PATIENCE, || {
            let said = self.node.try_kubectl(&["logs", "job/other"]);
            String::from_utf8_lossy(&said.stdout).contains(&first.pod).then_some(())
        });
        let pods = self.node.pods("batch.kubernetes.io/job-name=one");
        let killed = now();
        signal(self.init(pods.first().expect("a pod")), Signal::SIGKILL);
        let second = await_some("the second job's run", PATIENCE, || run("other-"));
        let gap = second.first - killed;
        println!("{:<34} {:>5}.{:02} s  {:<18} {}", "SIGKILL of a lock's container", gap / 100, gap % 100, "", second.pod);
        assert!(SOON.contains(&gap), "{gap} hundredths of a second");
        self.node.kubectl(&["delete", "job", "one", "other", "--now"]);
    }

    fn holder(&self) -> Value {
        self.node.get("lease/tenure")["spec"]["holderIdentity"].clone()
    }
}

/// A program of the node that was killed.
struct Stopped(Command);

impl Stopped {
    fn kill(name: &str) -> Self {
        let pid = pid_of(name);
        let place = PathBuf::from(format!("/proc/{pid}"));
        let words = |file| {
            let text = fs::read(place.join(file)).unwrap();
            text.split(|byte| *byte == 0).filter(|word| !word.is_empty()).map(|word| word.to_vec()).collect::<Vec<_>>()
        };
        let mut command = Command::new(fs::read_link(place.join("exe")).unwrap());
        let text = |word: &[u8]| std::ffi::OsString::from_vec(word.to_vec());
        command.args(words("cmdline").iter().skip(1).map(|word| text(word))).env_clear();
        for variable in words("environ") {
            let at = variable.iter().position(|byte| *byte == b'=').unwrap();
            command.env(text(&variable[..at]), text(&variable[at + 1..]));
        }
        let directory = fs::read_link(place.join("cwd")).unwrap();
        let log = File::options().append(true).open(directory.join(format!("{name}.log"))).unwrap();
        command.current_dir(directory).stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        command.process_group(0);
        signal(pid, Signal::SIGKILL);
        await_some("its end", PATIENCE, || is_dead(pid).then_some(()));
        Self(command)
    }

    /// It ends with the node.
    fn start(mut self) {
        drop(self.0.spawn().unwrap());
    }
}

fn signal(pid: Pid, signal: Signal) {
    kill(pid, signal).unwrap();
}

fn pid_of(name: &str) -> Pid {
    let is_named = |pid: &Pid| command_line(*pid)[0].rsplit('/').next() == Some(name) && !is_dead(*pid);
    procfs::all().find(is_named).expect("it runs")
}
