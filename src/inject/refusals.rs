//! Why a pod is refused: the field, and the remedy.

use serde_json::Value;

use super::{
    OURS, items,
    names::{COMMAND, CONTAINER, LEASE},
    text,
};

/// Judges a pod, or a template of pods, but not its probes. Returns the number of the container of the program.
///
/// # Errors
/// The first reason to refuse it.
pub(super) fn judge(pod: &Value, is_job: bool) -> Result<usize, String> {
    let annotation = |name: &str| pod["metadata"]["annotations"][name].as_str();
    let (spec, containers) = (&pod["spec"], items(&pod["spec"], "containers"));
    let lease = text(&pod["metadata"]["labels"][LEASE]);
    if !is_name(lease) {
        return Err(format!("the label {LEASE}: {lease:?} is no name of a Lease: write a to z and 0 to 9, with hyphens between"));
    }
    if spec["nodeSelector"]["kubernetes.io/os"] == "windows" || spec["os"]["name"] == "windows" {
        return Err(format!("the pod is for Windows, and tenure runs on Linux: remove the label {LEASE}"));
    }
    if let Some(field) = ["hostPID", "shareProcessNamespace"].into_iter().find(|field| spec[field] == true) {
        return Err(format!("with {field} tenure is not PID 1, and cannot prove that the program is dead: remove it"));
    }
    if spec["automountServiceAccountToken"] == false {
        return Err("with automountServiceAccountToken: false tenure has no token for its Lease: remove it".into());
    }
    let all = ["containers", "initContainers", "volumes"].into_iter().flat_map(|list| items(spec, list));
    if let Some(taken) = all.map(|item| text(&item["name"])).find(|name| OURS.contains(name)) {
        return Err(format!("the pod has a container or a volume {taken:?}, which tenure adds: give it another name"));
    }
    let named = [CONTAINER, "kubectl.kubernetes.io/default-container"].into_iter().find_map(annotation);
    let is_named = |one: &Value| one.is_object() && named.is_none_or(|named| one["name"] == named);
    let Some(at) = containers.iter().position(is_named) else {
        let named = named.unwrap_or_default();
        return Err(format!("there is no container {named:?}: name one of the pod in the annotation {CONTAINER}"));
    };
    let name = text(&containers[at]["name"]);
    let uses_it = |variable: &Value| variable["name"] == "TENURE_LEASE__NAME" && variable["value"] == lease;
    let is_second = |one: &&Value| one["name"] != name && items(one, "env").iter().any(uses_it);
    if let Some(other) = containers.iter().find(is_second).map(|other| text(&other["name"])) {
        return Err(format!("the container {other:?} uses the Lease {lease} too: remove TENURE_LEASE__NAME there"));
    }
    let line = annotation(COMMAND).unwrap_or_default();
    if !line.is_empty() && serde_json::from_str::<Vec<String>>(line).map_or(true, |words| words.is_empty()) {
        return Err(format!(
            "the annotation {COMMAND} is no JSON list of strings: write one such as [\"/usr/bin/billing-writer\", \"--port=8080\"]"
        ));
    }
    if items(&containers[at], "command").is_empty() && (is_job || line.is_empty()) {
        let place = if is_job { "into command".into() } else { format!("as JSON into the annotation {COMMAND}") };
        return Err(format!(
            "the container {name:?} has no command, and that of its image cannot be seen: write the whole command line {place}"
        ));
    }
    Ok(at)
}

/// Returns true for a DNS label.
fn is_name(name: &str) -> bool {
    let is_end = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit();
    let ends = [name.bytes().next(), name.bytes().last()];
    name.len() <= 63 && ends.into_iter().all(|end| end.is_some_and(is_end)) && name.bytes().all(|c| is_end(c) || c == b'-')
}
