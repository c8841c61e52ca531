//! Why a pod is refused: the field, and the remedy.

use serde_json::Value;

use super::{
    OURS, Variable, given, has_control, items,
    names::{COMMAND, CONTAINER, LEASE},
    text,
};
use crate::loading::is_label;

/// Of a pod, or of its account.
pub(super) const LACKS_TOKEN: &str = "with automountServiceAccountToken: false tenure has no token for its Lease: set it to true";

/// Returns the container that the annotations name.
pub(super) fn named(pod: &Value) -> Option<&str> {
    let annotation = |name: &str| pod["metadata"]["annotations"][name].as_str();
    [CONTAINER, "kubectl.kubernetes.io/default-container"].into_iter().find_map(annotation)
}

/// Judges a pod, or a template of pods, but not its probes. Returns the number of the container of the program.
///
/// # Errors
/// The first reason to refuse it.
pub(super) fn judge(pod: &Value, is_job: bool, cluster: &[Variable]) -> Result<usize, String> {
    let metadata = &pod["metadata"];
    let (spec, lease, line) = (&pod["spec"], text(&metadata["labels"][LEASE]), text(&metadata["annotations"][COMMAND]));
    let is_windows = spec["nodeSelector"]["kubernetes.io/os"] == "windows" || spec["os"]["name"] == "windows";
    let shares = ["hostPID", "shareProcessNamespace"].into_iter().find(|field| spec[field] == true);
    let lacks_token = spec["automountServiceAccountToken"] == false;
    let mut all = ["containers", "initContainers", "volumes"].into_iter().flat_map(|list| items(&spec[list]));
    let taken = all.find_map(|item| OURS.into_iter().find(|name| item["name"] == *name));
    let named = named(pod);
    let containers = items(&spec["containers"]);
    let at = containers.iter().position(|one| one.is_object() && named.is_none_or(|named| one["name"] == named));
    let container = at.map_or(&Value::Null, |at| &containers[at]);
    let name = named.unwrap_or_else(|| text(&container["name"]));
    let mut paths = items(&container["volumeMounts"]).iter().map(|mount| text(&mount["mountPath"]));
    let is_in = |path: &&str, ours| path.strip_prefix(ours).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    let mounted = paths.find(|path| is_in(path, "/opt/tenure") || is_in(path, "/run/tenure"));
    let uses_it = |variable: &Value| variable["name"] == "TENURE_LEASE__NAME" && variable["value"] == lease;
    let second = containers.iter().find(|one| one["name"] != name && items(&one["env"]).iter().any(uses_it));
    let lacks_lease =
        given(container, cluster).any(|(name, value)| name == "TENURE_LEASE__ENABLED" && !value.eq_ignore_ascii_case("true"));
    let words = serde_json::from_str::<Vec<String>>(line).unwrap_or_default();
    let first = items(&container["command"]).first().map_or_else(|| words.first().map_or("", String::as_str), text);
    let runs_it = first.rsplit('/').next() == Some("tenure");
    let lacks_command = items(&container["command"]).is_empty() && (is_job || line.is_empty());
    let place = if is_job { "into command".into() } else { format!("as JSON into the annotation {COMMAND}") };
    let such = r#"["/usr/bin/billing-writer", "--port=8080"]"#;
    let reasons = [
        (!is_label(lease))
            .then(|| format!("the label {LEASE}: {lease:?} is no name of a Lease: write a to z and 0 to 9, with hyphens between")),
        is_windows.then(|| format!("the pod is for Windows, and tenure runs on Linux: remove the label {LEASE}")),
        shares.map(|field| format!("with {field} tenure is not PID 1, and cannot prove that the program is dead: remove it")),
        lacks_token.then(|| LACKS_TOKEN.into()),
        spec["resources"].is_object().then(|| {
            "with resources of the whole pod the containers that tenure adds may have no room: write them into its containers".into()
        }),
        taken.map(|name| format!("the pod has a container or a volume {name:?}, which tenure adds: give it another name")),
        container
            .is_null()
            .then(|| format!("there is no container {name:?}: name one of the pod in the annotation {CONTAINER}")),
        mounted.map(|path| format!("the container {name:?} mounts {path}, as tenure does: use another path")),
        second.map(|other| format!("the container {} uses the Lease {lease} too: remove TENURE_LEASE__NAME there", other["name"])),
        (!line.is_empty() && (words.is_empty() || has_control(line))).then(|| {
            format!("the annotation {COMMAND} is no JSON list of strings, or has a control character: write one such as {such}")
        }),
        runs_it.then(|| format!("the container {name:?} runs tenure already: remove the label {LEASE}")),
        lacks_lease.then(|| "TENURE_LEASE__ENABLED: without a Lease each pod would run the program at once: remove it".into()),
        lacks_command.then(|| {
            format!("the container {name:?} has no command, and that of its image cannot be seen: write the whole command line {place}")
        }),
    ];
    // No container is a reason.
    reasons.into_iter().flatten().next().map_or_else(|| Ok(at.unwrap_or_default()), Err)
}
