//! Checks the output of `release/build`: binaries of both architectures that run, and their accompanying files.
//!
//! Two builds of the release take minutes: `.ci/nightly release`. Packing and verifying take none: `cargo test --test release verify`.

#![allow(clippy::unwrap_used, clippy::expect_used, unreachable_pub, reason = "a test fails by panicking, and says why")]

use std::{
    fs,
    io::{BufRead as _, BufReader},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use serde_json::{Value, json};
use support::{Scratch, not_run, programs};

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// 8 MiB.
const LARGEST: u64 = 8 << 20;

/// As Debian calls it, the machine in an ELF header, and what runs its programs here.
const ARCHITECTURES: [(&str, u8, Option<&str>); 2] = [("amd64", 62, None), ("arm64", 183, Some("qemu-aarch64-static"))];

/// Beside the binary in an archive, as well as the licence.
const BESIDE: [&str; 5] =
    ["man/tenure.1", "completions/tenure.bash", "completions/_tenure", "completions/tenure.fish", "tenure.schema.json"];

#[test]
fn a_release_is_complete_and_its_binaries_run() {
    let out = build();

    let mut sums = Command::new("sha256sum");
    succeeds(sums.args(["--check", "--strict", "SHA256SUMS"]).current_dir(&out));
    let listed = fs::read_to_string(out.join("SHA256SUMS")).unwrap();
    for file in ["linux-amd64.tar.gz", "linux-arm64.tar.gz"].map(|name| format!("tenure-{VERSION}-{name}")) {
        assert!(listed.contains(&file), "{file} is not in\n{listed}");
    }
    let chart =
        succeeds(Command::new(programs::path("helm")).args(["show", "chart"]).arg(out.join(format!("tenure-{VERSION}.tgz"))));
    assert!(String::from_utf8_lossy(&chart.stdout).contains(&format!("version: {VERSION}\n")), "the chart");
    for (name, machine, emulator) in ARCHITECTURES {
        let unpacked = Scratch::new();
        let archive = out.join(format!("tenure-{VERSION}-linux-{name}.tar.gz"));
        succeeds(Command::new("tar").arg("-xzf").arg(archive).arg("-C").arg(&*unpacked));
        for file in [&["LICENSE", "plugin.yaml"][..], &BESIDE].concat() {
            assert!(unpacked.join(file).exists(), "{name}: {file}");
        }
        is_static(&unpacked.join("tenure"), machine);
        names_its_crates(&unpacked.join("tenure"));
        runs(&unpacked.join("tenure"), emulator);
    }
    lists_what_is_in_the_binary(&out.join(format!("tenure-{VERSION}.cdx.json")));
}

#[test]
fn verify_takes_a_whole_release_and_says_what_it_checked() {
    let release = pack();

    let said = String::from_utf8(succeeds(&mut verify(&release)).stdout).unwrap();

    for words in
        ["the static binary for arm64", "the image of both", "the chart as in a registry", "made from commit", "all 8 files"]
    {
        assert!(said.contains(words), "{words} is not in\n{said}");
    }
}

#[test]
fn verify_takes_a_signed_release_and_nothing_else_beside_it() {
    let release = pack();
    fs::write(release.join("SHA256SUMS.sigstore.json"), "{}").unwrap();

    succeeds(&mut verify(&release));

    fs::create_dir(release.join("more")).unwrap();
    let said = refusal(&mut verify(&release));
    assert!(said.contains("FAIL  more: no file of a release"), "{said}");
}

/// Whoever can write SHA256SUMS again can write what unpacks to something else than it seems.
#[test]
fn verify_finds_members_of_an_archive_that_unpack_to_more_than_the_files_of_a_release() {
    let archive = format!("tenure-{VERSION}-linux-arm64.tar.gz");
    for (change, words) in [
        ("name='../tenure'", "['../tenure'] is missing, or does not belong there"),
        ("name='man/tenure.8'", "['man/tenure.8'] is missing, or does not belong there"),
        ("name='LICENSE'", "a member is there twice"),
        ("name='more'; m.type=tarfile.SYMTYPE; m.linkname='/etc/passwd'", "a member is not a file"),
        ("name='more'; m.mode=0o4755", "more has another mode or owner"),
        ("name='more'; m.uid=1000", "more has another mode or owner"),
        ("name='more'; m.pax_headers={'SCHILY.xattr.security.capability': 'x'}", "more has extended attributes"),
    ] {
        let release = pack();
        let script = format!(
            "import gzip, io, sys, tarfile\nwith gzip.open(sys.argv[1]) as f: data = io.BytesIO(f.read())\n\
             with tarfile.open(fileobj=data, mode='a') as t: m = tarfile.TarInfo(); m.mode=0o644; m.{change}; t.addfile(m, io.BytesIO())\n\
             with gzip.open(sys.argv[1], 'wb') as f: f.write(data.getvalue())"
        );
        succeeds(Command::new("python3").args(["-c", &script]).arg(release.join(&archive)));
        sum_up(&release);

        let said = refusal(&mut verify(&release));

        assert!(said.contains(&format!("FAIL  {archive}: {words}")), "{change}: {said}");
    }
}

#[test]
fn the_same_binaries_are_packed_to_the_same_bytes() {
    let sums = |release: &Path| fs::read_to_string(release.join("SHA256SUMS")).unwrap();

    assert_eq!(sums(&pack()), sums(&pack()));
}

#[test]
fn verify_finds_one_changed_byte_in_every_file() {
    let release = pack();
    let files: Vec<_> = fs::read_dir(&*release).unwrap().map(|file| file.unwrap().path()).collect();
    assert_eq!(files.len(), 9, "{files:?}");
    for file in files {
        let whole = fs::read(&file).unwrap();
        let mut changed = whole.clone();
        changed[whole.len() / 2] ^= 1;
        fs::write(&file, changed).unwrap();

        let said = refusal(&mut verify(&release));

        let name = file.file_name().unwrap().to_str().unwrap();
        let is_named = name == "SHA256SUMS" || said.contains(&format!("FAIL  {name}: "));
        assert!(!said.is_empty() && is_named, "{name}: {said}");
        fs::write(&file, whole).unwrap();
    }
    succeeds(&mut verify(&release));
}

#[test]
fn verify_finds_a_program_that_is_not_static_or_for_another_machine() {
    let has_interpreter = |program: &mut Vec<u8>| {
        (program[32], program[54], program[56]) = (64, 56, 1);
        program.extend([3, 0, 0, 0]);
        program.resize(64 + 56, 0);
    };
    let is_for_another = |program: &mut Vec<u8>| program[18] = 8;
    let releases = [
        (pack_of(has_interpreter), "tenure has an interpreter: it is not static"),
        (pack_of(is_for_another), "tenure is not a program for amd64"),
    ];
    for (release, words) in releases {
        let said = refusal(&mut verify(&release));

        assert!(said.contains(words), "{words}: {said}");
    }
}

/// Somebody who changes a file can write SHA256SUMS again too.
#[test]
fn verify_finds_files_that_do_not_belong_together_though_their_sums_are_right() {
    let (release, other) = (pack(), pack_of(|program| program.extend(b"other")));
    for (name, words) in [
        (format!("tenure-{VERSION}-linux-arm64.tar.gz"), "/tenure is not the binary of the archive for arm64"),
        (format!("tenure-{VERSION}.oci.tar"), "/tenure is not the binary of the archive for amd64"),
        (format!("tenure-{VERSION}.provenance.json"), "it is not about ["),
        ("tenure.yaml".to_owned(), "its digest of tenure-"),
    ] {
        let whole = fs::read(release.join(&name)).unwrap();
        fs::copy(other.join(&name), release.join(&name)).unwrap();
        sum_up(&release);

        let said = refusal(&mut verify(&release));

        assert!(said.contains(words), "{name}: {said}");
        fs::write(release.join(&name), whole).unwrap();
    }
    let image = release.join(format!("tenure-{VERSION}.oci.tar"));
    let whole = fs::read(&image).unwrap();
    let user = whole.windows(11).position(|bytes| bytes == b"65534:65534").expect("the user of the image");
    fs::write(&image, [&whole[..user], b"00000:00000", &whole[user + 11..]].concat()).unwrap();
    let chart = format!("tenure-{VERSION}.tgz");
    let script = "tar -xzf \"$0\" && echo >>tenure/values.yaml && tar -czf \"$0\" tenure/*.*";
    succeeds(Command::new("sh").args(["-c", script]).arg(release.join(&chart)).current_dir(&*other));
    sum_up(&release);
    let said = refusal(&mut verify(&release));
    for words in ["has another content or size", "its layer is not the chart beside it"] {
        assert!(said.contains(words), "{words} is not in\n{said}");
    }
    fs::remove_file(release.join(&chart)).unwrap();
    let said = refusal(&mut verify(&release));
    assert!(said.contains(&format!("{chart}: missing")), "{said}");
    for (name, words) in [("more", "more: no file of a release"), ("SHA256SUMS", "its digest is not in SHA256SUMS")] {
        fs::write(release.join(name), "").unwrap();
        let said = refusal(&mut verify(&release));
        assert!(said.contains(words), "{name}: {said}");
    }
}

/// Nobody else has the changes.
#[test]
fn verify_refuses_what_was_made_from_a_commit_with_changes_unless_it_is_told_to() {
    let release = pack();
    let file = release.join(format!("tenure-{VERSION}.provenance.json"));
    let mut statement: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    statement["predicate"]["buildDefinition"]["internalParameters"]["modified"] = json!(true);
    fs::write(&file, statement.to_string()).unwrap();
    sum_up(&release);

    let said = refusal(verify(&release).env_remove("ALLOW_MODIFIED"));

    assert!(said.contains(", with changes: nobody can build it again"), "{said}");
    succeeds(&mut verify(&release));
}

/// From a registry that serves what the archive has.
#[test]
fn helm_pulls_the_chart_that_is_pushed() {
    let (release, pulled) = (pack(), Scratch::new());
    let mut registry = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/release/registry"));
    registry.arg(release.join(format!("tenure-{VERSION}.chart.oci.tar"))).stdout(Stdio::piped());
    let mut registry = registry.spawn().unwrap();
    let mut port = String::new();
    BufReader::new(registry.stdout.take().unwrap()).read_line(&mut port).unwrap();
    let chart = format!("oci://127.0.0.1:{}/charts/tenure", port.trim());

    let mut helm = Command::new(programs::path("helm"));
    let output = helm.args(["pull", &chart, "--version", VERSION, "--plain-http", "--destination"]).arg(&*pulled).output();

    registry.kill().unwrap();
    registry.wait().unwrap();
    let output = output.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let name = format!("tenure-{VERSION}.tgz");
    assert_eq!(fs::read(pulled.join(&name)).unwrap(), fs::read(release.join(&name)).unwrap());
}

#[test]
fn the_image_is_pulled_without_a_registry_by_its_name() {
    let (release, storage) = (pack(), Scratch::new());
    let buildah = |words: &[&str]| {
        let mut buildah = Command::new("buildah");
        buildah.args(["--root", storage.join("root").to_str().unwrap(), "--runroot", storage.join("run").to_str().unwrap()]);
        buildah.args(["--storage-driver", "vfs"]).args(words);
        buildah
    };
    if Command::new("buildah").arg("--version").output().is_err() {
        return not_run("buildah", "it is not installed");
    }

    let archive = release.join(format!("tenure-{VERSION}.oci.tar"));
    succeeds(&mut buildah(&["pull", &format!("oci-archive:{}", archive.display())]));
    succeeds(&mut buildah(&["tag", &format!("tenure:{VERSION}"), "tenure"]));

    let image = succeeds(&mut buildah(&["inspect", "--type", "image", "tenure"])).stdout;
    let image: Value = serde_json::from_slice(&image).unwrap();
    assert_eq!(image["OCIv1"]["config"]["Entrypoint"], json!(["/tenure"]));
}

fn verify(release: &Path) -> Command {
    let mut verify = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/release/verify"));
    // This tree may have changes.
    verify.arg(release).env("ALLOW_MODIFIED", "1");
    verify
}

/// What it says of a release that it refuses; nothing of one that it takes.
fn refusal(verify: &mut Command) -> String {
    let output = verify.output().unwrap();
    if output.status.success() { String::new() } else { String::from_utf8_lossy(&output.stderr).into_owned() }
}

fn pack() -> Scratch {
    pack_of(|program| program.extend(b"tenure"))
}

/// A release of programs that are only a header, and what this makes of it.
fn pack_of(edit: impl Fn(&mut Vec<u8>)) -> Scratch {
    let (built, out) = (Scratch::new(), Scratch::new());
    for (architecture, machine, _) in ARCHITECTURES {
        let mut program = vec![0; 64];
        program[..6].copy_from_slice(b"\x7fELF\x02\x01");
        program[18] = machine;
        fs::create_dir(built.join(architecture)).unwrap();
        let file = built.join(architecture).join("tenure");
        edit(&mut program);
        fs::write(&file, program).unwrap();
        fs::set_permissions(file, fs::Permissions::from_mode(0o755)).unwrap();
    }
    // Each command has a page.
    for file in [&["LICENSE", "man/tenure-step-down.1"][..], &BESIDE].concat() {
        let file = built.join("files").join(file);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, "").unwrap();
    }
    let parts = json!({ "bomFormat": "CycloneDX", "metadata": { "component": { "name": "tenure", "version": VERSION } }, "components": [] });
    fs::write(out.join(format!("tenure-{VERSION}.cdx.json")), parts.to_string()).unwrap();
    let mut pack = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/release/pack"));
    succeeds(pack.args([&*built, &*out]).env("URL", "https://example.com/tenure"));
    out
}

/// Writes SHA256SUMS again.
fn sum_up(release: &Path) {
    let script = "rm SHA256SUMS && sha256sum -- * >sums && mv sums SHA256SUMS";
    succeeds(Command::new("sh").args(["-c", script]).current_dir(release));
}

fn build() -> PathBuf {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/release/build");
    let output = Command::new(script).env("ALLOW_MODIFIED", "1").stderr(Stdio::inherit()).output().unwrap();
    assert!(output.status.success(), "the build failed");
    String::from_utf8(output.stdout).unwrap().trim().into()
}

fn is_static(file: &Path, machine: u8) {
    let bytes = fs::read(file).unwrap();
    let number = |at: usize, size: usize| bytes[at..at + size].iter().rev().fold(0, |sum, byte| sum << 8 | usize::from(*byte));
    assert_eq!((&bytes[..5], bytes[18]), (&b"\x7fELF\x02"[..], machine), "{}", file.display());
    let (headers, size, count) = (number(32, 8), number(54, 2), number(56, 2));
    let kinds: Vec<_> = (0..count).map(|at| number(headers + at * size, 4)).collect();
    assert!(!kinds.contains(&3), "it has an interpreter: it is not static");
    let size = fs::metadata(file).unwrap().len();
    assert!(size <= LARGEST, "{size} bytes");
}

fn runs(file: &Path, emulator: Option<&str>) {
    let command = |arguments: &[&str]| {
        let mut command = Command::new("env");
        command.args(emulator).arg(file).args(arguments);
        command
    };
    if emulator.is_some_and(|emulator| Command::new(emulator).arg("--version").output().is_err()) {
        return not_run("aarch64", "there is no qemu-user-static");
    }
    let said = |arguments: &[&str]| String::from_utf8(succeeds(&mut command(arguments)).stdout).unwrap();

    assert_eq!(said(&["--version"]), format!("tenure {VERSION}\n"));
    assert!(said(&["config", "effective", "--lease", "x"]).contains("renewPeriod: 3s"));
    assert!(said(&["check", "--offline", "--lease", "x", "--", "true"]).contains("terminationGracePeriodSeconds: "));
    assert_eq!(said(&["--leader-election=off", "--", "echo", "runs"]), "runs\n");
    assert_eq!(command(&["--leader-election=off", "--", "sh", "-c", "exit 42"]).status().unwrap().code(), Some(42));
}

/// As trivy and grype find it: the section `.dep-v0`, which is JSON in a zlib stream.
fn names_its_crates(binary: &Path) {
    const READ: &str = "import sys, zlib\nb = open(sys.argv[1], 'rb').read()\nn = lambda at, size: int.from_bytes(b[at:at + size], 'little')\n\
        heads = [n(0x28, 8) + n(0x3a, 2) * at for at in range(n(0x3c, 2))]\nnames = n(heads[n(0x3e, 2)] + 0x18, 8)\n\
        name = lambda head: b[names + n(head, 4):].split(b'\\0')[0]\nhead, = (head for head in heads if name(head) == b'.dep-v0')\n\
        sys.stdout.buffer.write(zlib.decompress(b[n(head + 0x18, 8):][:n(head + 0x20, 8)]))";
    let list: Value = serde_json::from_slice(&succeeds(Command::new("python3").args(["-c", READ]).arg(binary)).stdout).unwrap();
    let lock = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.lock")).unwrap();
    let crates: Vec<_> = list["packages"].as_array().unwrap().iter().filter(|one| one["kind"] != "build").collect();
    let names: Vec<_> = crates.iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert!(["tenure", "kube", "rustls"].iter().all(|name| names.contains(name)) && names.len() > 100, "{names:?}");
    assert!(!names.contains(&"stateright"), "only tests use it");
    for one in crates {
        let entry = format!("name = {}\nversion = {}\n", one["name"], one["version"]);
        assert!(lock.contains(&entry), "{entry} is not in Cargo.lock");
    }
}

fn lists_what_is_in_the_binary(file: &Path) {
    let list: Value = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
    assert_eq!((&list["bomFormat"], &list["metadata"]["component"]["name"]), (&"CycloneDX".into(), &"tenure".into()));
    let names: Vec<_> = list["components"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert!(names.contains(&"kube") && names.contains(&"rustls") && names.len() > 100, "{names:?}");
    assert!(!names.contains(&"stateright"), "only tests use it");
    let text = list.to_string();
    assert!(!text.contains(env!("CARGO_MANIFEST_DIR")), "it names directories of the machine that built it");
}

fn succeeds(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    output
}
