//! The image that the Dockerfile builds is one static file, and it runs as a container without any privileges.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test")]

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
    sync::OnceLock,
};

use serde_json::{Value, json};
use support::{Scratch, not_run};
use tenure::{apiserver::Server, config::Signal};

/// Reserved for glibc's threads: no shell can trap them.
const THREADS: [i32; 2] = [32, 33];

#[test]
fn the_image_holds_one_static_file_and_runs_as_nobody() {
    let image = Image::unpack("tenure");

    let files: Vec<_> = fs::read_dir(&image.root).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(files, ["tenure"]);
    let program = fs::read(image.root.join("tenure")).unwrap();
    assert!(program.starts_with(b"\x7fELF\x02\x01"), "not a 64-bit program");
    assert!(!has_interpreter(&program), "it has an interpreter: it is not static");
    assert_eq!(image.config["User"], "65534:65534");
    assert_eq!(image.config["Entrypoint"], json!(["/tenure"]));
    assert_eq!(image.config["Cmd"], Value::Null);
}

#[test]
fn another_image_takes_the_file_by_copy_from() {
    let own = Image::unpack("tenure");
    let example = Image::unpack("tenure-example");

    let (ours, theirs) = (own.root.join("tenure"), example.root.join("tenure"));
    assert_eq!(fs::read(ours).unwrap(), fs::read(theirs).unwrap());
    assert_eq!(example.config["User"], "65534:65534");
    assert_eq!(example.config["Entrypoint"], json!(["/tenure"]));
    assert!(example.root.join("bin/sh").exists(), "no shell in it");
}

#[test]
fn the_entrypoint_answers_without_root_capabilities_or_a_writable_file_system() {
    let Some(container) = Container::of(Image::unpack("tenure")) else { return };

    let output = container.run(&["--version"]);

    let version = format!("tenure {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(String::from_utf8_lossy(&output.stdout), version);
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn the_workload_runs_under_it_and_its_exit_code_is_the_containers() {
    let Some(container) = Container::of(Image::unpack("tenure-example")) else { return };

    let report = "id -u; grep -E '^(CapBnd|Seccomp|NoNewPrivs):' /proc/self/status; touch /x || exit 7";
    let output = container.run(&["--leader-election=off", "--", "sh", "-c", report]);

    let seen = String::from_utf8_lossy(&output.stdout);
    let expected = "65534\nCapBnd:\t0000000000000000\nNoNewPrivs:\t1\nSeccomp:\t2\n";
    assert_eq!(seen, expected, "{output:?}");
    assert_eq!(output.status.code(), Some(7), "{output:?}");
}

#[test]
fn every_signal_that_is_forwarded_arrives_the_first_real_time_one_too_which_is_none_to_musl() {
    let image = Image::unpack("tenure");
    let forwarded = (1..=64).filter(|number| Signal(*number).is_forwardable() && !THREADS.contains(number));
    let numbers = forwarded.map(|number| number.to_string()).collect::<Vec<_>>();
    let script = "for signal; do
        trap got=$signal $signal; kill -$signal $PPID
        for try in {1..500}; do [ \"$got\" = $signal ] && continue 2; sleep 0.01; done
        echo $signal is lost; done; echo end";

    let mut command = Command::new("env");
    command.arg("--default-signal").arg(image.root.join("tenure"));
    let output = command.args(["--leader-election=off", "--", "bash", "-c", script, "-"]).args(&numbers).output().unwrap();

    assert!(numbers.contains(&"34".into()));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "end\n", "{output:?}");
}

#[test]
fn the_first_real_time_signal_stays_blocked_and_ignored() {
    let image = Image::unpack("tenure");
    let tenure = image.root.join("tenure");
    let seen = |through: &[&str]| {
        let mut command = Command::new("env");
        command.args(["--block-signal=RTMIN", "--ignore-signal=RTMIN"]).args(through);
        let output = command.args(["grep", "-E", "^Sig(Blk|Ign)", "/proc/self/status"]).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };

    let (direct, ours) = (seen(&[]), seen(&[tenure.to_str().unwrap(), "--leader-election=off", "--"]));

    assert_eq!(direct.lines().count(), 2, "{direct}");
    assert_eq!(ours, direct);
}

#[test]
fn a_leader_starts_and_is_stopped_by_the_first_real_time_signal_too() {
    let image = Image::unpack("tenure");
    let server = Server::start(([127, 0, 0, 1], 0).into()).expect("the embedded API server");
    let scratch = Scratch::new();
    let kubeconfig = scratch.file("kubeconfig", server.kubeconfig(server.address()));
    let script = "trap 'exit 7' RTMIN; kill $PPID; for try in {1..500}; do sleep 0.01; done";

    let mut command = Command::new(image.root.join("tenure"));
    command.env("KUBECONFIG", kubeconfig).args(["--lease", "first", "--set", "lease.creationWait=0s"]);
    let output = command.args(["--set", "workload.stop.signal=SIGRTMIN", "--", "bash", "-c", script]).output().unwrap();

    assert_eq!(output.status.code(), Some(7), "{output:?}");
}

/// An image, unpacked as long as this lives.
struct Image {
    directory: Scratch,
    root: PathBuf,
    config: Value,
}

impl Image {
    /// Builds the images if not yet done, and unpacks one.
    fn unpack(name: &str) -> Self {
        static ARCHIVES: OnceLock<Vec<PathBuf>> = OnceLock::new();
        let archives = ARCHIVES.get_or_init(build);
        let file = format!("{name}.tar");
        let archive = archives.iter().find(|path| path.ends_with(&file));
        let directory = Scratch::new();
        untar(archive.expect("an archive of that name"), &directory);
        let manifest = &parse(&directory.join("manifest.json"))[0];
        let root = directory.join("root");
        fs::create_dir(&root).unwrap();
        for layer in manifest["Layers"].as_array().unwrap() {
            untar(&directory.join(layer.as_str().unwrap()), &root);
        }
        let config = parse(&directory.join(manifest["Config"].as_str().unwrap()))["config"].take();
        Self { directory, root, config }
    }
}

/// A runc container with the restrictions of a hardened pod.
struct Container {
    image: Image,
    spec: Value,
}

impl Container {
    /// None, with a message, where this user cannot start containers.
    fn of(image: Image) -> Option<Self> {
        if !nix::unistd::geteuid().is_root() {
            not_run("the image as a container", "it takes root");
            return None;
        }
        let mut spec = parse(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/image/runc.json"));
        spec["process"]["args"] = image.config["Entrypoint"].clone();
        spec["process"]["env"] = image.config["Env"].clone();
        Some(Self { image, spec })
    }

    fn run(mut self, arguments: &[&str]) -> Output {
        let args = self.spec["process"]["args"].as_array_mut().unwrap();
        args.extend(arguments.iter().map(|argument| json!(argument)));
        let bundle: &Path = &self.image.directory;
        fs::write(bundle.join("config.json"), self.spec.to_string()).unwrap();
        let id = format!("tenure-image-{}-{:x}", std::process::id(), fastrand::u64(..));
        let mut runc = Command::new("runc");
        runc.arg("--root").arg(bundle.join("runc")).arg("run").arg("--bundle").arg(bundle).arg(id);
        runc.output().expect("runc starts")
    }
}

/// Builds both images and returns the paths of their archives.
fn build() -> Vec<PathBuf> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/image/build");
    let mut build = Command::new(script);
    let output = build.stderr(std::process::Stdio::inherit()).output().unwrap();
    assert!(output.status.success(), "tests/image/build failed");
    String::from_utf8(output.stdout).unwrap().lines().map(PathBuf::from).collect()
}

/// Whether this ELF file asks for an interpreter.
fn has_interpreter(bytes: &[u8]) -> bool {
    const PT_INTERP: usize = 3;
    let number = |at: usize, size: usize| bytes[at..at + size].iter().rev().fold(0, |n, byte| n << 8 | usize::from(*byte));
    let (table, entry_size, entries) = (number(0x20, 8), number(0x36, 2), number(0x38, 2));
    (0..entries).any(|entry| number(table + entry * entry_size, 4) == PT_INTERP)
}

fn untar(archive: &Path, into: &Path) {
    let status = Command::new("tar").arg("-xf").arg(archive).arg("-C").arg(into).status().unwrap();
    assert!(status.success(), "{}", archive.display());
}

fn parse(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}
