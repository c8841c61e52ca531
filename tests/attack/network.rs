//! Networks: each replica's place has a network namespace, with its own address on a bridge through which it reaches the API
//! server.

use std::{
    fs,
    net::Ipv4Addr,
    path::{Path, PathBuf},
    process::Command,
};

/// The address on which the proxies listen.
pub(crate) const GATEWAY: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 1);
const BRIDGE: &str = "attack";

/// Creates the bridge, in this process's namespace.
pub(crate) fn make_bridge() {
    run("ip", &["link", "set", "lo", "up"]);
    run("ip", &["link", "add", "name", BRIDGE, "type", "bridge"]);
    run("ip", &["address", "add", &format!("{GATEWAY}/16"), "dev", BRIDGE]);
    run("ip", &["link", "set", BRIDGE, "up"]);
    // The API server does not start on a machine without a default route.
    run("ip", &["route", "add", "default", "dev", BRIDGE]);
}

/// A fault of the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fault {
    /// Everything that the replica sends is lost.
    Out,
    /// Everything that is sent to the replica is lost.
    In,
    /// Both.
    Both,
    /// No new connection can be opened.
    Syns,
    /// Its interface is down.
    Down,
}

/// The network of one replica's place.
pub(crate) struct Network {
    namespace: PathBuf,
    address: Ipv4Addr,
}

impl Network {
    /// The network with this number; its file is in this directory.
    pub(crate) fn new(directory: &Path, number: u8) -> Self {
        let (namespace, address) = (directory.join(format!("network-{number}")), Ipv4Addr::new(10, 99, 1, number));
        fs::write(&namespace, "").expect("a file");
        let network = Self { namespace, address };
        let (file, outside) = (network.file(), format!("place{number}"));
        run("unshare", &[&format!("--net={file}"), "true"]);
        run("ip", &["link", "add", "name", &outside, "type", "veth", "peer", "name", "eth0", "netns", &file]);
        run("ip", &["link", "set", &outside, "master", BRIDGE, "up"]);
        network.inside("ip", &["link", "set", "lo", "up"]);
        network.inside("ip", &["address", "add", &format!("{address}/16"), "dev", "eth0"]);
        network.inside("ip", &["link", "set", "eth0", "up"]);
        network
    }

    /// A command that runs its arguments in it.
    pub(crate) fn enter(&self) -> Vec<String> {
        vec!["nsenter".into(), format!("--net={}", self.file())]
    }

    /// Injects the fault.
    pub(crate) fn fail(&self, fault: Fault) {
        self.change(fault, "-I", "down");
    }

    /// Undoes [`Self::fail`].
    pub(crate) fn mend(&self, fault: Fault) {
        self.change(fault, "-D", "up");
    }

    fn change(&self, fault: Fault, rule: &str, link: &str) {
        let address = self.address.to_string();
        // On this side, past the wire, what the replica sent is truly lost; on the replica's side, what is sent to it.
        let lose_sent = || run("iptables", &["-w", rule, "INPUT", "-s", &address, "-j", "DROP"]);
        let lose_received = || self.inside("iptables", &["-w", rule, "INPUT", "-i", "eth0", "-j", "DROP"]);
        match fault {
            Fault::Out => lose_sent(),
            Fault::In => lose_received(),
            Fault::Both => {
                lose_sent();
                lose_received();
            }
            Fault::Syns => run("iptables", &["-w", rule, "INPUT", "-s", &address, "-p", "tcp", "--syn", "-j", "DROP"]),
            Fault::Down => self.inside("ip", &["link", "set", "eth0", link]),
        }
    }

    fn inside(&self, program: &str, arguments: &[&str]) {
        let enter = format!("--net={}", self.file());
        run("nsenter", &[&[enter.as_str(), program], arguments].concat());
    }

    fn file(&self) -> String {
        self.namespace.to_string_lossy().into_owned()
    }
}

fn run(program: &str, arguments: &[&str]) {
    let output = Command::new(program).args(arguments).output().unwrap_or_else(|error| panic!("{program}: {error}"));
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr).trim());
}
