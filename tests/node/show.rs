//! The demonstrations of deploy/: each way in which a leader can end, and that exactly one runs after it.

use std::time::Duration;

use nix::sys::signal::Signal;

use crate::{
    node::{NAMESPACE, Node, PATIENCE, Pod, await_some},
    stamps::{Run, Stamps, now},
};

const DEPLOY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy");
const PODS: &str = "app.kubernetes.io/name=tenure";
const OVERLAY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/node/overlay");
/// A frozen container is killed after five failed probes, 5 s apart, and a grace period of 30 s.
const LIVENESS: Duration = Duration::from_secs(120);

/// Runs everything in order; panics where something does not hold.
pub(crate) fn run(node: &Node, stamps: &Stamps) {
    let begin = tenure::clock::boot();
    let show = Show { node, stamps };
    show.first_leader();
    Show::print_head();
    show.handover("a rollout to another workload", |_| {
        show.node.kubectl(&["apply", "-k", OVERLAY]);
        show.rolled_out();
    });
    show.handover("kubectl delete pod", |leader| {
        show.node.kubectl(&["delete", "pod", leader.name(), "--wait=false"]);
    });
    show.handover("SIGKILL of its container", |leader| {
        show.node.signal(leader, Signal::SIGKILL);
        show.restarted(leader, ("Error", 137), PATIENCE);
    });
    show.handover("its workload eats all memory", |leader| {
        show.exec(leader, "kill -USR2 1");
        show.restarted(leader, ("OOMKilled", 137), PATIENCE);
    });
    show.handover("its workload exits with 42", |leader| {
        show.exec(leader, "kill -USR1 1");
        show.restarted(leader, ("Error", 42), PATIENCE);
        let previous = show.node.kubectl(&["logs", "--previous", leader.name()]);
        assert!(previous.lines().any(|line| line.ends_with(" fails")), "kubectl logs --previous: {previous}");
    });
    show.handover("init frozen, its liveness fails", |leader| {
        show.node.signal(leader, Signal::SIGSTOP);
        show.restarted(leader, ("Error", 137), LIVENESS);
    });
    show.handover("kubectl rollout restart", |_| {
        show.node.kubectl(&["rollout", "restart", "deployment/tenure"]);
        show.rolled_out();
    });
    show.signal_by_exec();
    show.check_by_exec();
    show.bad_configuration();
    show.stamps.assert_no_overlap();
    println!(
        "node: {} lives of the workload, never two at once, in {:.0} s",
        show.stamps.runs().len(),
        tenure::clock::boot().since(begin).as_secs_f64()
    );
}

/// A Deployment of two replicas named `tenure`, and what its workloads stamp.
#[derive(Clone, Copy)]
pub(crate) struct Show<'a> {
    pub(crate) node: &'a Node,
    pub(crate) stamps: &'a Stamps,
}

impl Show<'_> {
    /// deploy/ unchanged: both pods become ready, one runs the workload and `kubectl logs` shows it.
    fn first_leader(&self) {
        self.node.kubectl(&["apply", "-k", DEPLOY]);
        self.rolled_out();
        let (leader, run) = self.settled(0);
        for pod in self.node.pods(PODS) {
            let log = self.node.kubectl(&["logs", pod.name()]);
            assert_eq!(log.contains("starts on"), pod.name() == leader.name(), "kubectl logs {}: {log}", pod.name());
        }
        println!("node: {} runs the workload; the other pod stands by", run.pod);
    }

    pub(crate) fn print_head() {
        println!("{:<34} {:>8}  {:<18} runs now", "what happens to the leader", "gap", "its container");
    }

    /// Applies `act` to the leader, waits until exactly one workload runs again, and prints the gap, which it returns in hundredths
    /// of a second.
    pub(crate) fn handover(&self, what: &str, act: impl FnOnce(&Pod)) -> u64 {
        let (leader, before) = self.settled(0);
        act(&leader);
        let (_, after) = self.settled(before.token + 1);
        self.stamps.assert_no_overlap();
        let runs: Vec<Run> = self.stamps.runs().into_iter().filter(|run| run.token >= before.token).collect();
        let gap = runs.windows(2).map(|pair| pair[1].first - pair[0].last).max().unwrap();
        let end = self.node.pods(PODS).iter().find(|pod| pod.name() == leader.name()).and_then(Pod::last_end);
        let end = end.map_or_else(|| "gone".to_owned(), |(reason, code, _)| format!("{reason}, {code}"));
        println!("{what:<34} {:>5}.{:02} s  {end:<18} {}", gap / 100, gap % 100, after.pod);
        gap
    }

    /// A signal sent with `kubectl exec` reaches the workload, and `kubectl logs` shows its reaction; nobody else takes over.
    fn signal_by_exec(&self) {
        let (leader, before) = self.settled(0);
        self.exec(&leader, "kill -HUP 1");
        await_some("the workload's word in kubectl logs", PATIENCE, || {
            let log = self.node.kubectl(&["logs", leader.name()]);
            log.lines().any(|line| line.ends_with(" hears HUP")).then_some(())
        });
        let (_, after) = self.settled(0);
        assert_eq!(after.token, before.token, "a forwarded signal ended the term");
        println!("{:<34} {:>8}  {:<18} {}", "kubectl exec -- kill -HUP 1", "none", "runs on", after.pod);
    }

    /// `tenure check` in the leader's container finds nothing missing: permissions, API server, the capability to kill.
    fn check_by_exec(&self) {
        let (leader, _) = self.settled(0);
        let said = self.node.kubectl(&["exec", leader.name(), "--", "/tenure", "check"]);
        for permitted in ["get", "watch", "update"] {
            let line = format!("{permitted} Lease {NAMESPACE}/tenure");
            assert!(
                said.lines().any(|said| said.contains(&line) && said.trim_start().starts_with("ok")),
                "no `ok {line}`: {said}"
            );
        }
        println!("{:<34} {:>8}  {:<18} {}", "kubectl exec -- /tenure check", "none", "finds no fault", leader.name());
    }

    /// A rollout of a configuration that tenure refuses: kubectl shows why, and the leader continues until the rollout is undone.
    fn bad_configuration(&self) {
        let (_, before) = self.settled(0);
        self.node.kubectl(&["set", "env", "deployment/tenure", "TENURE_LEASE__DURATON=15s"]);
        let (reason, code, message) = await_some("a pod that ends at once", PATIENCE, || {
            self.node.pods(PODS).iter().find_map(|pod| pod.last_end().filter(|(_, code, _)| *code == 78))
        });
        assert!(message.contains("TENURE_LEASE__DURATON"), "the termination message: {message}");
        self.node.kubectl(&["rollout", "undo", "deployment/tenure"]);
        self.rolled_out();
        let (_, after) = self.settled(0);
        assert_eq!(after.token, before.token, "a rollout that could not succeed ended the term");
        println!("{:<34} {:>8}  {:<18} {}", "a rollout to a bad configuration", "none", format!("{reason}, {code}"), after.pod);
    }

    /// Waits until two pods are ready and exactly one workload runs, with at least this token, on the Lease's holder.
    pub(crate) fn settled(&self, token: u64) -> (Pod, Run) {
        await_some("two pods ready, and one of them alone running the workload", PATIENCE, || {
            let pods = self.node.pods(PODS);
            let runs = self.stamps.runs();
            let alive: Vec<&Run> = runs.iter().filter(|run| run.last + 200 > now() && !run.has_stopped()).collect();
            let [run] = alive[..] else { return None };
            let leader = pods.iter().find(|pod| pod.name() == run.pod)?;
            let lease = self.node.get("lease/tenure");
            let holder = lease["spec"]["holderIdentity"].as_str()?;
            let settled = pods.len() == 2 && pods.iter().all(Pod::is_ready) && run.token >= token;
            (settled && holder.starts_with(&format!("{}_", run.pod))).then(|| (leader.clone(), run.clone()))
        })
    }

    /// Waits until the pod has a new container, and compares the previous one's end with the expected one.
    fn restarted(&self, pod: &Pod, end: (&str, i64), limit: Duration) {
        let restarted = await_some("a restart of the container", limit, || {
            self.node.pods(PODS).into_iter().find(|now| now.name() == pod.name() && now.restarts() > pod.restarts())
        });
        let (reason, code, _) = restarted.last_end().expect("an end of the container before");
        assert_eq!((reason.as_str(), code), end, "the end that kubectl shows");
    }

    pub(crate) fn rolled_out(&self) {
        self.node.kubectl(&["rollout", "status", "deployment/tenure", "--timeout=60s"]);
    }

    /// Runs a command in the leader's container. It may end the container and thereby its own connection, so its status is
    /// ignored: what follows shows whether it worked.
    pub(crate) fn exec(&self, pod: &Pod, command: &str) {
        self.node.try_kubectl(&["exec", pod.name(), "--", "sh", "-c", command]);
    }
}

impl Run {
    fn has_stopped(&self) -> bool {
        self.words.last().is_some_and(|words| words == "stops" || words == "fails")
    }
}
