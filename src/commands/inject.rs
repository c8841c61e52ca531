//! `tenure inject`: reads manifests, has them wrapped, and prints what results.
//!
//! The room [`crate::inject`] decides what is put in. A container whose configuration tenure would refuse is refused here.

use std::{ffi::OsString, fs, io, time::Duration};

use serde_json::{Value, json};

use super::{Ended, check};
use crate::{
    cli::{self, Face, InjectOutput, Preset},
    console::{answer, refuse},
    exit,
    inject::{Needs, flattened, inject, uninject},
    loading::{self, documents},
};

/// The variables that say to what a pod needs rights. Only the first two count for a lock.
const OF_RIGHTS: [&str; 5] = [
    "TENURE_LEASE__NAMESPACE",
    "TENURE_LEASE__PREFIX",
    "TENURE_LEASE__SLOTS",
    "TENURE_LEASE__NAME",
    "TENURE_SERVICE__ENDPOINT_SLICE",
];

pub(super) fn run(asked: &cli::Inject) -> Ended {
    let refuse = |why: String| refuse(exit::INVALID, &why);
    let (mut objects, mut has_comments) = (Vec::new(), false);
    for file in &asked.files {
        let (shown, text) = match file.to_str() {
            Some("-") => ("standard input".into(), io::read_to_string(io::stdin())),
            _ => (file.to_string_lossy(), fs::read_to_string(file)),
        };
        let text = text.map_err(|error| refuse(format!("{shown}: {error}")))?;
        // Helm itself writes the others.
        has_comments |= text.lines().any(|line| line.trim_start().starts_with('#') && !line.starts_with("# Source: "));
        objects.extend(documents(&text).map_err(|why| refuse(format!("{shown}: {why}")))?);
    }
    let list = objects.first().filter(|first| first["kind"] == "ResourceList").cloned();
    let objects = objects.into_iter().flat_map(flattened).collect();
    let changed = if asked.uninject { uninject(objects) } else { inject(objects, asked, judge) };
    let (mut objects, mut notes) = changed.map_err(|reasons| refuse(reasons.join("\ntenure: ")))?;
    if has_comments {
        notes.push("the comments of the manifests are left out".into());
    }
    super::warn(&notes);
    if let Some(mut list) = list {
        list["items"] = objects.into();
        objects = vec![list];
    } else if let InjectOutput::Json = asked.output {
        return Ok(answer(&format!("{:#}\n", json!({ "apiVersion": "v1", "kind": "List", "items": objects })), 0));
    }
    // Whatever another reader of YAML takes for no text is in quotes.
    let options = serde_saphyr::ser_options! { prefer_block_scalars: false };
    let text = serde_saphyr::to_string_multiple_with_options(&objects, options).map_err(|error| refuse(error.to_string()))?;
    Ok(answer(&text, 0))
}

/// Judges the configuration of a wrapped container, as `tenure check --offline` does in it. `grace` is what the pod promised the program.
fn judge(container: &Value, grace: u64) -> Result<Needs, String> {
    let items = |key: &str| container[key].as_array().into_iter().flatten();
    let line: Vec<_> = items("command").chain(items("args")).filter_map(Value::as_str).map(OsString::from).collect();
    let Ok(Face::Run(run)) = cli::parse(line) else { return Err("its command line does not run a program".into()) };
    let of_rights = if matches!(run.flags.preset, Preset::Lock(_)) { &OF_RIGHTS[..2] } else { &OF_RIGHTS[..] };
    // What refers to something else is known only in the pod.
    let is_unknown = |variable: &Value| {
        let (name, from) = (variable["name"].as_str().unwrap_or_default(), &variable["valueFrom"]);
        let is_home = name == "TENURE_LEASE__NAMESPACE" && from["fieldRef"]["fieldPath"] == "metadata.namespace";
        let refers = from.is_object() || variable["value"].as_str().is_some_and(|value| value.contains("$("));
        of_rights.contains(&name) && refers && !is_home
    };
    let variable = |variable: &Value| {
        let name = variable["name"].as_str()?;
        let value = match (is_unknown(variable), variable["value"].as_str()) {
            (false, value) => value?.replace("$(POD_IP)", "192.0.2.1").replace("$$", "$"),
            // Any name will do.
            (true, _) => OF_RIGHTS[3..].contains(&name).then(|| "1".into())?,
        };
        Some((name.into(), value.into()))
    };
    let unknown = items("env").find(|variable| is_unknown(variable)).map(|unknown| unknown["name"].clone());
    let variables: Vec<_> = items("env").filter_map(variable).collect();
    let loaded = loading::load_elsewhere(&run.flags, &run.command, &variables).map_err(|invalid| invalid.to_string())?;
    if let Some(listen) = loaded.config.http.listen.filter(|listen| listen.ip().to_canonical().is_loopback())
        && container["readinessProbe"].is_object()
    {
        return Err(format!("http.listen: the kubelet's probes do not reach {listen}: write 0.0.0.0:{}", listen.port()));
    }
    let mut config = loaded.config;
    let rights = check::rights(&config);
    config.workload.stop.grace = config.workload.stop.grace.max(Duration::from_secs(grace));
    // One failure each 5 s: until `lease.duration` is over, init itself replaces a hung elector.
    let failures = 2 + (config.lease.duration.as_secs() + 1) / 5;
    let grace = check::grace_period(&config).as_secs();
    Ok(Needs { namespace: config.lease.namespace, lease: config.lease.name, rights, unknown, grace, failures })
}
