//! docs/first-failover.md, typed as it says, with a clock. The images are built already.

use std::{
    env, fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
};

use support::fences;
use tenure::clock;

use crate::node::{Node, PATIENCE, await_some};

const PAGE: &str = include_str!("../../docs/first-failover.md");

/// Who reads a page, and types.
pub(crate) struct Reader<'a> {
    node: &'a Node,
    path: PathBuf,
}

pub(crate) fn run(node: &Node, directory: &Path) {
    let reader = Reader::new(node, directory.join("on-the-path"));
    let begin = clock::boot();
    let after = |what: &str| println!("{what:<40} {:>8.2} s after the builds", clock::boot().since(begin).as_secs_f64());
    let mut lines = fences::commands(PAGE);
    let mut expect = |command: &str| {
        let line = lines.next().expect("another command");
        assert!(line.starts_with(command), "the page says {line:?}, and its test {command:?}");
        line
    };
    expect("buildah build -t tenure .");
    expect("buildah build -t tenure-example deploy");
    expect("buildah push tenure-example docker-archive:");
    reader.types(expect("kubectl apply -k deploy")).unwrap();
    reader.types(expect("kubectl rollout status")).unwrap();
    after("first failover: both pods are ready");
    let logs = expect("kubectl logs");
    let leader = await_some("a pod that runs", PATIENCE, || {
        let said = reader.types(logs).ok()?;
        let mut runs = said.lines().filter(|line| line.contains(" runs")).filter_map(|line| line.split('/').nth(1));
        let leader = runs.next()?.to_owned();
        assert!(runs.all(|pod| pod == leader), "the other prints nothing: {said}");
        Some(leader)
    });
    after("first failover: one leads");
    let status = reader.types(expect("kubectl tenure status tenure")).unwrap();
    assert!(status.contains(&leader), "{status}");
    reader.types(&expect("kubectl delete pod NAME").replace("NAME", &leader)).unwrap();
    await_some("the other pod's start", PATIENCE, || {
        let said = reader.types(logs).ok()?;
        said.lines().any(|line| line.contains("starts on") && !line.contains(&leader)).then_some(())
    });
    after("first failover: the other leads");
    reader.types(expect("kubectl exec deploy/tenure -- /tenure check")).unwrap();
    assert_eq!(lines.next(), None, "a command of the page that this test does not type");
    after("first failover: the page is over");
    reader.types("kubectl delete -k deploy").unwrap();
}

impl<'a> Reader<'a> {
    /// With a new directory for the programs on the path.
    pub(crate) fn new(node: &'a Node, path: PathBuf) -> Self {
        fs::create_dir(&path).unwrap();
        symlink(env!("CARGO_BIN_EXE_tenure"), path.join("kubectl-tenure")).unwrap();
        symlink(&node.kubectl, path.join("kubectl")).unwrap();
        Self { node, path }
    }

    /// What it printed.
    pub(crate) fn types(&self, line: &str) -> Result<String, String> {
        let mut places = vec![self.path.clone()];
        places.extend(env::split_paths(&env::var_os("PATH").unwrap_or_default()));
        let mut bash = Command::new("bash");
        bash.args(["-c", line]).current_dir(env!("CARGO_MANIFEST_DIR"));
        bash.env("PATH", env::join_paths(places).unwrap()).env("KUBECONFIG", self.node.kubeconfig());
        let output = bash.output().expect("bash");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        if output.status.success() { Ok(said) } else { Err(format!("{line}: {said}{}", String::from_utf8_lossy(&output.stderr))) }
    }
}
