//! `tenure dev-server` as people start and stop it.

#![allow(clippy::expect_used, reason = "a test fails by panicking, and says why")]

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _},
    net::TcpListener,
    os::unix::fs::PermissionsExt as _,
    process::{Command, Stdio},
};

use base64::prelude::{BASE64_STANDARD, Engine as _};
use nix::sys::signal::{Signal, kill};
use support::{Kept, Scratch};

#[test]
fn it_says_where_it_listens_and_ends_when_told_to() {
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let scratch = Scratch::new();
        let file = scratch.file("kubeconfig", "of: an earlier one, for all to read\ncurrent-context: tenure\n");
        let mut server = start(&["--kubeconfig-out", &file]);
        let mut line = String::new();
        BufReader::new(server.stdout.as_mut().expect("piped")).read_line(&mut line).expect("a line");
        let kubeconfig = fs::read_to_string(&file).expect("a kubeconfig");
        let mode = fs::metadata(&file).expect("a file").permissions().mode() & 0o777;

        kill(server.pid(), signal).expect("it runs");
        let status = server.wait().expect("it ends");

        let url = line.strip_prefix("Leases are served on ").and_then(|rest| rest.split(';').next()).expect("an address");
        assert!(kubeconfig.contains(&format!("server: {url}\n")), "{line}{kubeconfig}");
        assert!(kubeconfig.ends_with("current-context: tenure\n"), "by which the next server knows it: {kubeconfig}");
        assert_eq!((mode, status.code()), (0o600, Some(0)));
    }
}

#[test]
fn a_file_that_holds_something_else_is_left_as_it_is() {
    let scratch = Scratch::new();
    let file = scratch.file("kubeconfig", "current-context: production\n");

    let output =
        Command::new(env!("CARGO_BIN_EXE_tenure")).args(["dev-server", "--kubeconfig-out", &file]).output().expect("it runs");

    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(78) && said.contains("name another file"), "{:?} {said}", output.status);
    assert_eq!(fs::read_to_string(&file).expect("a file"), "current-context: production\n");
}

#[test]
fn without_a_file_the_kubeconfig_is_its_output() {
    let mut server = start(&[]);
    let mut lines = BufReader::new(server.stdout.as_mut().expect("piped")).lines();

    let kubeconfig: Vec<String> =
        (&mut lines).map_while(Result::ok).take_while(|line| !line.starts_with("current-context")).collect();

    assert_eq!(kubeconfig.first().map(String::as_str), Some("apiVersion: v1"));
    assert!(kubeconfig.iter().any(|line| line.trim().starts_with("certificate-authority-data: ")));
}

#[test]
fn its_certificate_passes_a_strict_verification() {
    let scratch = Scratch::new();
    let file = scratch.file("kubeconfig", "");
    let mut server = start(&["--kubeconfig-out", &file]);
    let mut line = String::new();
    BufReader::new(server.stdout.as_mut().expect("piped")).read_line(&mut line).expect("a line");
    let kubeconfig = fs::read_to_string(&file).expect("a kubeconfig");
    let value = |name: &str| kubeconfig.split_once(name).and_then(|(_, rest)| rest.lines().next()).expect("a value").trim();
    let authority = BASE64_STANDARD.decode(value("certificate-authority-data:")).expect("base64");
    let authority = scratch.file("ca.crt", String::from_utf8(authority).expect("PEM"));
    let address = value("server: https://");

    // As Python verifies since 3.13.
    let output = Command::new("openssl")
        .args(["s_client", "-connect", address, "-CAfile", &authority, "-verify_ip", "127.0.0.1"])
        .args(["-x509_strict", "-verify_return_error"])
        .stdin(Stdio::null())
        .output()
        .expect("openssl");

    assert!(output.status.success(), "{output:?}");
}

#[test]
fn an_address_in_use_is_named() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address").to_string();

    let mut server = start(&["--listen", &address]);
    let status = server.wait().expect("it ends");
    let mut said = String::new();
    server.stderr.as_mut().expect("piped").read_to_string(&mut said).expect("text");

    assert_eq!(status.code(), Some(78));
    assert!(said.contains(&address) && said.contains("in use"), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
}

fn start(arguments: &[&str]) -> Kept {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tenure"));
    command.arg("dev-server").args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    Kept(command.spawn().expect("it starts"))
}
