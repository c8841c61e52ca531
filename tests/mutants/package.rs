//! The package in which mutants are built: only the deciding modules and their checks, so that a change of one line is built in
//! seconds.

/// The crates that the modules, the simulation and the model need; versions and features are the product's.
const CRATES: [&str; 31] = [
    "base64",
    "bytes",
    "clap",
    "fastrand",
    "figment",
    "form_urlencoded",
    "getrandom",
    "http",
    "http-body-util",
    "hyper",
    "hyper-util",
    "jiff",
    "libc",
    "libtest-mimic",
    "mimalloc",
    "nix",
    "percent-encoding",
    "postcard",
    "prost",
    "rcgen",
    "rustls",
    "schemars",
    "serde",
    "serde-saphyr",
    "serde_json",
    "stateright",
    "strsim",
    "thiserror",
    "tokio",
    "tokio-rustls",
    "toml",
];

const HEAD: &str = r#"
[package]
name = "tenure"
version = "0.0.0"
edition = "2024"
autobins = false
autobenches = false
autotests = false

[[test]]
name = "model"
harness = false

[[test]]
name = "simulation"

"#;

/// Its `src/lib.rs`.
pub(crate) const ROOMS: &str = r#"
#![allow(dead_code)]
pub mod apiserver;
pub mod cli;
pub mod clock;
pub mod config;
pub mod exit;
mod console;
pub mod election;
pub mod environment;
pub mod law;
pub mod link;
pub mod role;
pub mod supervision;
pub mod time;

/// The mutant that runs; 0 is none.
pub fn mutant() -> usize {
    static NUMBER: std::sync::LazyLock<usize> =
        std::sync::LazyLock::new(|| std::env::var("TENURE_MUTANT").ok().and_then(|text| text.parse().ok()).unwrap_or(0));
    *NUMBER
}
"#;

/// Its `Cargo.toml`, derived from the product's.
///
/// # Panics
/// The product does not depend on one of [`CRATES`].
pub(crate) fn manifest(product: &str) -> String {
    let line = |name: &&str| product.lines().find(|line| line.starts_with(&format!("{name} = {{")));
    let crates = CRATES.iter().map(|name| line(name).unwrap_or_else(|| panic!("Cargo.toml has no line for {name}")));
    let profile =
        product.lines().skip_while(|line| *line != "[profile.simulation]").take_while(|line| !line.starts_with("[lints"));
    [HEAD, "[dependencies]"].into_iter().chain(crates).chain(profile).map(|line| format!("{line}\n")).collect()
}
