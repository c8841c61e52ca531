//! What a pod asks for by its label and its annotations, and why it is refused.

use serde_json::Value;

use super::{
    PROGRAM, Settings, items,
    names::{COMMAND, CONTAINER, HAS_WITNESS, LEASE},
    probes,
};

/// The first of these that no container of the pod has is where tenure answers probes.
const PORTS: [u64; 3] = [8079, 18079, 28079];

/// What a pod asks for: nothing of it is refused.
#[derive(Debug)]
pub(super) struct Asked<'a> {
    /// The value of the label.
    pub(super) lease: &'a str,
    /// The container of the program, and its place in the list.
    pub(super) container: &'a Value,
    pub(super) at: usize,
    /// The whole command line, where the container has none.
    pub(super) command_line: Option<&'a str>,
    pub(super) has_witness: bool,
    /// Where tenure answers probes; none in a Job.
    pub(super) port: Option<u64>,
}

impl<'a> Asked<'a> {
    /// Reads a pod, or a template of pods.
    ///
    /// # Errors
    /// The first reason to refuse it: the field, and the remedy.
    pub(super) fn of(pod: &'a Value, is_job: bool, settings: &Settings) -> Result<Self, String> {
        let metadata = &pod["metadata"];
        let annotation = |name: &str| metadata["annotations"][name].as_str();
        let (spec, containers) = (&pod["spec"], items(&pod["spec"], "containers"));
        let lease = metadata["labels"][LEASE].as_str().unwrap_or_default();
        if !is_name(lease) {
            return Err(format!(
                "the label {LEASE}: {lease:?} is no name of a Lease: write a to z and 0 to 9, with hyphens between"
            ));
        }
        if spec["nodeSelector"]["kubernetes.io/os"] == "windows" || spec["os"]["name"] == "windows" {
            return Err("the pod is for Windows, and tenure runs on Linux: remove the label tenure.dev/lease".into());
        }
        if let Some(field) = ["hostPID", "shareProcessNamespace"].into_iter().find(|field| spec[field] == true) {
            return Err(format!("with {field} tenure is not PID 1, and cannot prove that the program is dead: remove it"));
        }
        let named = [CONTAINER, "kubectl.kubernetes.io/default-container"].into_iter().find_map(annotation);
        let at = named.map_or(Some(0), |named| containers.iter().position(|container| container["name"] == named));
        let Some((at, container)) = at.and_then(|at| Some((at, containers.get(at).filter(|one| one.is_object())?))) else {
            let named = named.unwrap_or_default();
            return Err(format!("there is no container {named:?}: name one of the pod in the annotation {CONTAINER}"));
        };
        let name = container["name"].as_str().unwrap_or_default();
        let is_ours = |variable: &Value| variable["name"] == "TENURE_LEASE__NAME" && variable["value"] == lease;
        let others = containers.iter().enumerate().filter(|(other, _)| *other != at);
        if let Some((_, other)) = others.into_iter().find(|(_, other)| items(other, "env").iter().any(is_ours)) {
            let other = other["name"].as_str().unwrap_or_default();
            return Err(format!("the container {other:?} uses the Lease {lease} too: remove TENURE_LEASE__NAME there"));
        }
        let command_line = annotation(COMMAND);
        if command_line.is_some_and(|line| serde_json::from_str::<Vec<String>>(line).map_or(true, |words| words.is_empty())) {
            return Err(format!(
                "the annotation {COMMAND} is no JSON list of strings: write one such as [\"/usr/bin/billing-writer\", \"--port=8080\"]"
            ));
        }
        let has_command = !items(container, "command").is_empty();
        if !has_command && (is_job || command_line.is_none()) {
            let place = if is_job { "into command" } else { "as JSON into the annotation tenure.dev/command" };
            return Err(format!(
                "the container {name:?} has no command, and that of its image cannot be seen: write the whole command line {place}"
            ));
        }
        let asked = Self {
            lease,
            container,
            at,
            command_line: command_line.filter(|_| !has_command),
            has_witness: annotation(HAS_WITNESS) != Some("false"),
            port: None,
        };
        if is_job {
            return Ok(asked);
        }
        probes::judge(container)?;
        let has_port = |port: &u64| {
            let all = containers.iter().chain(items(spec, "initContainers"));
            all.flat_map(|container| items(container, "ports")).any(|item| item["containerPort"] == *port)
        };
        let free = PORTS.into_iter().find(|port| !has_port(port)).unwrap_or(PORTS[0]);
        let of_cluster = settings.env.iter().find(|(name, _)| name == LISTEN).map(|(_, listen)| listen.as_str());
        let listen = asked.variable(&LISTEN.into()).map_or(of_cluster, |variable| variable["value"].as_str());
        let port = listen.and_then(|listen| listen.rsplit_once(':')?.1.parse().ok()).unwrap_or(free);
        Ok(Self { port: Some(port), ..asked })
    }

    /// tenure, and the program with its arguments.
    pub(super) fn command(&self) -> Vec<Value> {
        let lock = ["lock".into(), self.lease.into()];
        let mut command = vec![PROGRAM.into()];
        command.extend(lock.into_iter().filter(|_| self.port.is_none()));
        command.push("--".into());
        if self.command_line.is_none() {
            command.extend_from_slice(items(self.container, "command"));
            command.extend_from_slice(items(self.container, "args"));
        }
        command
    }

    /// The variable of this name that the container has.
    pub(super) fn variable(&self, name: &Value) -> Option<&'a Value> {
        items(self.container, "env").iter().find(|variable| variable["name"] == *name)
    }
}

const LISTEN: &str = "TENURE_HTTP__LISTEN";

/// Returns true for a DNS label.
fn is_name(name: &str) -> bool {
    let is_end = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit();
    let ends = [name.bytes().next(), name.bytes().last()];
    name.len() <= 63 && ends.into_iter().all(|end| end.is_some_and(is_end)) && name.bytes().all(|c| is_end(c) || c == b'-')
}
