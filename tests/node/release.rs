//! The image archive of a release in the real containerd: imported as docs/install.md says, under its own name, it runs.

use std::{env, fs, path::Path, process::Command};

use serde_json::{Value, json};

use crate::{
    apart,
    node::{Node, PATIENCE, await_some},
};

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Packs a release around the binary of the image, imports its archive, and runs that as PID 1.
pub(crate) fn run(node: &Node, directory: &Path) {
    let (built, out) = (directory.join("built"), directory.join("release"));
    for place in [built.join("amd64"), built.join("arm64"), built.join("files"), out.clone()] {
        fs::create_dir_all(place).unwrap();
    }
    fs::copy(binary(&directory.join("unpacked")), built.join("amd64/tenure")).unwrap();
    // No program of this machine.
    fs::write(built.join("arm64/tenure"), "arm64").unwrap();
    succeeds(Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/release/pack")).args([&built, &out]));

    node.import(&out.join(format!("tenure-{VERSION}.oci.tar")));

    let name = format!("docker.io/library/tenure:{VERSION}");
    assert!(node.has_image(&name), "{name} is not there");
    let container = json!({
        "name": "tenure", "image": name, "imagePullPolicy": "Never", "args": ["--leader-election=off", "--", "/tenure", "--version"],
        "securityContext": {
            "allowPrivilegeEscalation": false, "runAsNonRoot": true, "capabilities": { "drop": ["ALL"] },
            "seccompProfile": { "type": "RuntimeDefault" },
        },
    });
    let spec = json!({ "restartPolicy": "Never", "containers": [container] });
    let pod = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "release" }, "spec": spec });
    node.apply(&pod);
    let phase = await_some("the end of the pod", PATIENCE, || {
        let phase = node.get("pod/release")["status"]["phase"].as_str()?.to_owned();
        ["Succeeded", "Failed"].contains(&&*phase).then_some(phase)
    });
    let said = node.kubectl(&["logs", "release"]);
    assert_eq!(
        (phase.as_str(), said.lines().find(|line| line.starts_with("tenure "))),
        ("Succeeded", Some(&*format!("tenure {VERSION}")))
    );
    println!("{:<34} is imported and runs as PID 1", format!("tenure-{VERSION}.oci.tar"));
}

/// The binary of the image that the node has, which is the first of its docker-archives.
fn binary(unpacked: &Path) -> std::path::PathBuf {
    fs::create_dir(unpacked).unwrap();
    let archive = env::split_paths(&env::var_os(apart::IMAGES).unwrap()).next().unwrap();
    succeeds(Command::new("tar").arg("-xf").arg(archive).arg("-C").arg(unpacked));
    let manifest: Value = serde_json::from_slice(&fs::read(unpacked.join("manifest.json")).unwrap()).unwrap();
    let layer = manifest[0]["Layers"][0].as_str().unwrap();
    succeeds(Command::new("tar").arg("-xf").arg(unpacked.join(layer)).arg("-C").arg(unpacked));
    unpacked.join("tenure")
}

fn succeeds(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}
