//! What a transaction costs: 32 patches by `tenure apply`, beside `kubectl apply --server-side` of the same 32.

use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::json;
use support::{Exchange, Proxy, Server, Stage, programs, replica::write_kubeconfig, server::scratch};

use crate::{
    contestant::Programs,
    locks::time,
    table::{row, title},
};

/// As many as a transaction may have.
const OBJECTS: usize = 32;

pub async fn show(server: &Server, programs: &Programs, rounds: usize) {
    title("32 patches: `tenure apply` beside `kubectl apply --server-side`, wall time, interleaved");
    let stage = Stage::set(server, &scratch("figures")).await;
    let maps = format!("/api/v1/namespaces/{}/configmaps", stage.namespace);
    for number in 0..OBJECTS {
        stage.api.create(&maps, &json!({ "metadata": { "name": format!("m{number}") }, "data": { "version": "0" } })).await;
    }
    let apply = |at: &Path, version: usize| [ours(programs, &stage, at, version), theirs(&stage, at, version + 1)];
    let mut took = [Vec::new(), Vec::new()];
    for round in 0..rounds {
        for (times, command) in took.iter_mut().zip(apply(stage.kubeconfig(), 1 + 2 * round)) {
            times.push(time(command));
        }
    }
    let names = ["tenure apply", "kubectl apply"];
    for (name, times) in names.iter().zip(&took) {
        row(name, times);
    }
    let proxy = stage.prepare("counted").await.proxy;
    let directory = stage.directory().join("counted");
    fs::create_dir_all(&directory).expect("a directory");
    let counted = write_kubeconfig(&directory, &proxy, stage.api.token());
    for (name, mut command) in names.iter().zip(apply(&counted, 1 + 2 * rounds)) {
        let before = proxy.log.all().len();
        tokio::task::spawn_blocking(move || time(&mut command)).await.expect("it ends");
        counts(name, &proxy, before);
    }
}

/// Prints how many requests there were since then, and how long their answers took.
fn counts(name: &str, proxy: &Proxy, before: usize) {
    let exchanges = &proxy.log.all()[before..];
    let of = |is: fn(&Exchange) -> bool| exchanges.iter().filter(|exchange| is(exchange)).count();
    let took: f64 = exchanges
        .iter()
        .filter(|exchange| !exchange.request.uri.contains("watch="))
        .filter_map(|exchange| Some(exchange.answer.as_ref()?.at.since(exchange.request.at).as_secs_f64() * 1e3))
        .sum();
    let objects = of(|exchange| exchange.request.uri.contains("/configmaps"));
    let leases = of(|exchange| exchange.request.uri.contains("/leases"));
    let journals = of(|exchange| exchange.request.uri.contains("/secrets"));
    let others = exchanges.len() - objects - leases - journals;
    println!(
        "  {name:<20} {} requests: {objects} of the objects, {journals} of the journal, {leases} of the Lease, {others} others; {took:.0} ms until \
         their answers",
        exchanges.len()
    );
}

fn ours(programs: &Programs, stage: &Stage, kubeconfig: &Path, version: usize) -> Command {
    let mut text = "apiVersion: tenure.dev/v1\nkind: Transaction\nmetadata: {name: many}\nspec:\n  changes:\n".to_owned();
    for number in 0..OBJECTS {
        let target = format!("{{apiVersion: v1, kind: ConfigMap, name: m{number}}}");
        writeln!(text, "  - {{target: {target}, type: Patch, content: {{data: {{version: '{version}'}}}}}}").expect("memory");
    }
    let mut command = Command::new(&programs.tenure);
    command.args(["apply", "--namespace", &stage.namespace, "-f"]).arg(file(stage, version, &text));
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default()).env("KUBECONFIG", kubeconfig);
    command
}

fn theirs(stage: &Stage, kubeconfig: &Path, version: usize) -> Command {
    let mut text = String::new();
    for number in 0..OBJECTS {
        let (metadata, data) = (json!({ "name": format!("m{number}") }), json!({ "version": version.to_string() }));
        let object = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data });
        writeln!(text, "---\n{object}").expect("memory");
    }
    let mut command = Command::new(programs::path("kubectl"));
    command.arg("--kubeconfig").arg(kubeconfig).args(["--namespace", &stage.namespace]);
    command.args(["apply", "--server-side", "--force-conflicts", "-f"]).arg(file(stage, version, &text));
    command
}

fn file(stage: &Stage, version: usize, text: &str) -> PathBuf {
    let path = stage.directory().join(format!("{version}.yaml"));
    fs::write(&path, text).expect("a file");
    path
}
