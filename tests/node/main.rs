//! deploy/ on a real node: the Dockerfile's image under kubelet and containerd, every way in which a leader can end there, and what
//! its witness makes of that, the chart, traffic to the leader, the examples, and the page that begins with all this.
//!
//! Run it as root: `.ci/nightly node`, or a part of it: `cargo test --test node -- examples` (or `leader`, `witness`, `chart`, `upgrade`,
//! `traffic`, `changes`, `existing`, `label`, `database`, `release`, `page`). It builds what it needs, prints a table of measured gaps
//! and cleans up after itself.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, clippy::print_stderr, reason = "it fails by panicking")]

use std::{env, path::Path, process::ExitCode};

use crate::{node::Node, show::Show, stamps::Stamps};

mod apart;
mod changes;
mod database;
mod existing;
mod node;
mod page;
mod patterns;
mod release;
mod shipped;
mod show;
mod stamps;
mod witness;

fn main() -> ExitCode {
    match env::var_os(apart::DIRECTORY) {
        None => apart::run(),
        Some(directory) => inside(Path::new(&directory)),
    }
}

fn inside(directory: &Path) -> ExitCode {
    let begin = tenure::clock::boot();
    let node = Node::start(directory);
    let stamps = Stamps::keep(directory.join("pods"), directory.join("kept"));
    println!(
        "node: ready after {:.1} s; applying deploy/ where Pod Security is restricted",
        tenure::clock::boot().since(begin).as_secs_f64()
    );
    let parts: Vec<String> = env::args().skip(1).collect();
    let all: [(&str, &dyn Fn()); 12] = [
        ("leader", &|| show::run(&node, &stamps)),
        ("witness", &|| witness::run(Show { node: &node, stamps: &stamps })),
        ("chart", &|| shipped::chart(&node, &stamps)),
        ("upgrade", &|| shipped::upgrade(&node, &stamps, directory)),
        ("traffic", &|| shipped::traffic(&node)),
        ("examples", &|| patterns::run(&node, &stamps)),
        ("changes", &|| changes::run(&node, &stamps)),
        ("existing", &|| existing::run(&node, &stamps, directory)),
        ("label", &|| existing::label(&node, &stamps, directory)),
        ("database", &|| database::run(&node, directory)),
        ("release", &|| release::run(&node, directory)),
        ("page", &|| page::run(&node, directory)),
    ];
    for (part, run) in all {
        if parts.is_empty() || parts.iter().any(|wanted| wanted == part) {
            run();
        }
    }
    ExitCode::SUCCESS
}
