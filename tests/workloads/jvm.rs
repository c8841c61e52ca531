//! A JVM under config/examples/jvm.yaml.

use std::{fs, time::Duration};

use nix::sys::signal::Signal;
use serde_json::json;
use support::{
    Stage,
    procfs::{children, state},
    safe,
    spec::released,
};

use super::{
    Debian,
    change::{Change, Gap, Moment},
    until, with_word,
};

pub(super) async fn a_jvm_is_warm_before_it_leads_if_it_is_frozen(stage: Stage) {
    let Some(debian) = Debian::package("openjdk-17-jdk-headless") else { return };
    let classes = stage.directory().join("classes");
    fs::create_dir(&classes).expect("a directory");
    fs::write(classes.join("Worker.java"), include_str!("../../config/examples/Worker.java")).expect("a file");
    let compiled = debian.command("javac").arg("Worker.java").current_dir(&classes).output().expect("env");
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));

    for runs in ["frozen", "leading"] {
        let stage = stage.beside(runs).await;
        stage.lease.create(released()).await;
        let output = stage.directory().join("output");
        let tokens = || {
            let text = fs::read_to_string(&output).unwrap_or_default();
            let pair =
                |line: &str| line.split_once(' ').map(|(token, at)| (token.to_owned(), at.parse::<u64>().unwrap_or_default()));
            text.lines().filter_map(pair).collect::<Vec<_>>()
        };
        let addresses = [stage.free_address(), stage.free_address()].map(|(address, _)| address);
        let prepare = async |name: &str, port: u16| {
            let prepared = with_word(debian.prepare(&stage, name, "jvm", &[], &[]).await, "/app", &classes);
            let prepared = prepared.set("workload.runs", runs).set("workload.readiness.tcp.port", port);
            let prepared = prepared.set("workload.candidate", if runs == "frozen" { "ready" } else { "any" });
            prepared.set("workload.env", json!({ "PORT": port.to_string(), "OUTPUT": output.to_string_lossy() }))
        };
        let a = prepare("a", addresses[0].port()).await.start();
        until("a works", async || !tokens().is_empty()).await;
        let b = prepare("b", addresses[1].port()).await.start();
        b.said("another replica holds the Lease").await;
        if runs == "frozen" {
            let init = b.init().await;
            let is_stopped = async || children(init).into_iter().any(|pid| state(pid) == Some('T'));
            until("b is warm, and stopped", is_stopped).await;
        }

        let since = Moment::now();
        a.signal(Signal::SIGTERM).await;

        let first = tokens()[0].0.clone();
        until("b works", async || tokens().iter().any(|(token, _)| *token != first)).await;
        let tokens = tokens();
        let next = tokens.iter().position(|(token, _)| *token != first).expect("b's first line");
        safe(tokens.iter().skip(next).all(|(token, _)| *token != first), || "a wrote after b".to_owned());
        let longest = Duration::from_millis(tokens[next].1.saturating_sub(tokens[next - 1].1));
        let gap = Gap { longest, until: Moment(tokens[next].1 * 1_000_000) };
        debian.tell(&format!("a JVM, {runs}, hand-over"), Change::HandOver, since, &gap).await;
        b.signal(Signal::SIGTERM).await;
    }
}
