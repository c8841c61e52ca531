//! deploy/examples and deploy/prune, applied unchanged: what their users come for is what they see.

use serde_json::json;

use crate::{
    node::{Node, PATIENCE, Pod, await_some},
    stamps::{Run, Stamps, hundredths, now},
};

const EXAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/examples");
const PRUNE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/prune");

/// All of them side by side, because the first term of each waits for nobody first.
pub(crate) fn run(node: &Node, stamps: &Stamps) {
    let begin = tenure::clock::boot();
    let patterns = Patterns { node, stamps };
    node.offer_volume("database", json!({ "capacity": { "storage": "1Mi" } }));
    node.kubectl(&["apply", "-f", EXAMPLES]);
    patterns.trigger("billing-nightly", "billing-nightly-one");
    patterns.trigger("billing-nightly-again", "billing-nightly-other");

    patterns.prune();
    patterns.migration();
    patterns.nightly();
    patterns.pool();
    patterns.periodic();
    println!("node: the examples took {:.0} s", tenure::clock::boot().since(begin).as_secs_f64());
}

struct Patterns<'a> {
    node: &'a Node,
    stamps: &'a Stamps,
}

impl Patterns<'_> {
    /// The Lease of a lock that was given back long ago is gone after one run of the job.
    fn prune(&self) {
        let labels = json!({ "app.kubernetes.io/managed-by": "tenure", "tenure.dev/kind": "lock" });
        let then = "2026-01-01T00:00:00.000000Z";
        let spec = json!({ "holderIdentity": "", "leaseDurationSeconds": 1, "acquireTime": then, "renewTime": then });
        let metadata = json!({ "name": "lock-of-old", "labels": labels });
        let lease = json!({ "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec });
        self.node.apply(&lease);

        self.node.kubectl(&["apply", "-k", PRUNE]);
        self.trigger("tenure-prune", "prune-now");
        let said = self.completed("prune-now");

        let left = self.node.kubectl(&["get", "leases", "--output=name"]);
        assert!(said.contains("lock-of-old") && !left.contains("lock-of-old"), "{said}{left}");
        assert!(left.contains("lease.coordination.k8s.io/lock-billing-migration\n"), "{said}{left}");
        println!("{:<34} deletes what nobody uses", "deploy/prune");
    }

    /// Three Pods serve, after one of them has migrated; a second rollout finds nothing to do.
    fn migration(&self) {
        self.rolled_out("billing-server");
        let [run] = &self.runs("billing-server")[..] else { panic!("migrated {:?}", self.runs("billing-server")) };
        assert_eq!(run.words, ["stops"], "it did not come to its end");
        let pods = self.pods("billing-server");
        assert_eq!(pods.len(), 3);
        for pod in &pods {
            let said = self.node.kubectl(&["logs", pod.name(), "--container=server"]);
            let clock = said.lines().find_map(|line| hundredths(line.strip_suffix(" serves")?)).expect("it serves");
            assert!(clock >= run.last, "{} served before the migration was over", pod.name());
        }
        self.node.kubectl(&["rollout", "restart", "deployment/billing-server"]);
        self.rolled_out("billing-server");
        assert_eq!(self.runs("billing-server").len(), 1, "migrated again");
        println!("{:<34} runs once in six pods, and none serves before", "migration.yaml");
    }

    /// Of two Jobs of two CronJobs, and one that comes later, one runs; all end well.
    fn nightly(&self) {
        let jobs = ["billing-nightly-one", "billing-nightly-other", "billing-nightly-late"];
        let said = [jobs[0], jobs[1]].map(|job| self.completed(job));
        self.trigger("billing-nightly-again", jobs[2]);
        let late = self.completed(jobs[2]);
        let [run] = &self.runs("billing-nightly")[..] else { panic!("ran {:?}: {said:?}", self.runs("billing-nightly")) };
        assert!(late.contains("the next run is due in") && late.contains(&format!(", by {}_", run.pod)), "{late}");
        println!("{:<34} runs once in three jobs", "nightly.yaml");
    }

    /// Two of four replicas work, each in a slot of its own; when one is deleted, another takes its slot.
    fn pool(&self) {
        let [one, other] = self.working();
        assert_ne!(slot(&one), slot(&other));
        self.node.kubectl(&["delete", "pod", &other.pod, "--wait=false"]);
        let next = await_some("another in its slot", PATIENCE, || {
            self.working().into_iter().find(|run| slot(run) == slot(&other) && run.pod != other.pod)
        });
        assert!(self.working().iter().any(|run| run.token == one.token), "the other worker was replaced, too");
        let runs = self.runs("billing-worker");
        for run in &runs {
            let beside = runs.iter().filter(|each| each.first <= run.first && each.last > run.first).count();
            assert!(beside <= 2, "{beside} work at once: {runs:?}");
            let shares = |each: &&Run| each.token < run.token && slot(each) == slot(run);
            assert!(runs.iter().filter(shares).all(|before| before.last <= run.first), "two in one slot: {runs:?}");
        }
        let gap = next.first - other.last;
        println!("{:<34} two of four work, another after {}.{:02} s", "pool.yaml", gap / 100, gap % 100);
    }

    /// The runs of two replicas are one interval apart, whoever has them.
    fn periodic(&self) {
        assert_eq!(self.pods("billing-refresh").len(), 2);
        let runs = await_some("three runs", PATIENCE, || Some(self.runs("billing-refresh")).filter(|runs| runs.len() >= 3));
        for pair in runs.windows(2) {
            let apart = pair[1].first - pair[0].first;
            // From one start to the next as the Lease has it, which the job's own first words follow.
            assert!((900..1500).contains(&apart), "{apart} hundredths of a second apart: {runs:?}");
            assert!(pair[0].last <= pair[1].first, "two at once: {runs:?}");
        }
        println!("{:<34} runs once in ten seconds in two pods", "periodic.yaml");
    }

    /// The two replicas that work while all four are ready.
    fn working(&self) -> [Run; 2] {
        await_some("four replicas ready, and two at work", PATIENCE, || {
            let alive = |run: &Run| run.last + 250 > now() && run.words.last().is_some_and(|words| words != "stops");
            let working: Vec<Run> = self.runs("billing-worker").into_iter().filter(alive).collect();
            let pods = self.pods("billing-worker");
            (pods.len() == 4 && pods.iter().all(Pod::is_ready)).then_some(working)?.try_into().ok()
        })
    }

    /// Every life of a workload in the pods of this owner.
    fn runs(&self, owner: &str) -> Vec<Run> {
        let is_owned = |run: &Run| run.pod.strip_prefix(owner).is_some_and(|rest| rest.starts_with('-'));
        self.stamps.runs().into_iter().filter(is_owned).collect()
    }

    fn pods(&self, name: &str) -> Vec<Pod> {
        self.node.pods(&format!("app.kubernetes.io/name={name}"))
    }

    fn trigger(&self, cron_job: &str, job: &str) {
        self.node.kubectl(&["create", "job", &format!("--from=cronjob/{cron_job}"), job]);
    }

    /// What a Job has said, once it has ended well.
    fn completed(&self, job: &str) -> String {
        let job = format!("job/{job}");
        let ended = self.node.try_kubectl(&["wait", "--for=condition=complete", &job, "--timeout=60s"]);
        let said = self.node.kubectl(&["logs", &job]);
        assert!(ended.status.success(), "{job}: {said}");
        said
    }

    fn rolled_out(&self, deployment: &str) {
        self.node.kubectl(&["rollout", "status", &format!("deployment/{deployment}"), "--timeout=60s"]);
    }
}

/// What the worker was told of its slot, such as `works in slot 0 of 2`.
fn slot(run: &Run) -> Option<&String> {
    run.words.first()
}
