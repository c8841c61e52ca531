//! `tenure inject`: reads manifests, has them wrapped, and prints what results.
//!
//! The room [`crate::inject`] decides what is put in. A container whose configuration tenure would refuse is refused here.

use std::{ffi::OsString, fs, io};

use serde_json::{Value, json};

use super::{Ended, check, transaction::documents};
use crate::{
    cli::{self, Face, InjectOutput},
    console::{answer, complain},
    exit,
    inject::{Stream, uninject},
    loading,
};

pub(super) fn run(asked: &cli::Inject) -> Ended {
    let refuse = |why: &str| {
        complain(why);
        exit::INVALID
    };
    let (mut objects, mut has_comments) = (Vec::new(), false);
    for file in &asked.files {
        let is_pipe = file.as_os_str() == "-";
        let text = if is_pipe { io::read_to_string(io::stdin()) } else { fs::read_to_string(file) };
        let shown = if is_pipe { "standard input".into() } else { file.display().to_string() };
        let read = text.map_err(|error| error.to_string()).and_then(|text| {
            // Helm itself writes the others.
            has_comments |= text.lines().any(|line| line.trim_start().starts_with('#') && !line.starts_with("# Source: "));
            documents(&text)
        });
        objects.extend(read.map_err(|why| refuse(&format!("{shown}: {why}")))?);
    }
    let mut resources = match &mut *objects {
        [only] if only["kind"] == "ResourceList" => Some(only.take()),
        _ => None,
    };
    if let Some(list) = &mut resources {
        objects = list["items"].as_array().cloned().unwrap_or_default();
    }
    if asked.uninject {
        objects = uninject(objects).map_err(|why| refuse(&why))?;
    } else {
        let mut stream = Stream::inject(objects, asked, judge).map_err(|reasons| refuse(&reasons.join("\ntenure: ")))?;
        if has_comments {
            stream.notes.push("the comments of the manifests are left out".into());
        }
        super::warn(&stream.notes);
        objects = stream.objects;
    }
    if let Some(mut list) = resources {
        list["items"] = objects.into();
        objects = vec![list];
    } else if let InjectOutput::Json = asked.output {
        return Ok(answer(&format!("{:#}\n", json!({ "apiVersion": "v1", "kind": "List", "items": objects })), 0));
    }
    // Whatever another reader of YAML takes for no text is in quotes.
    let options = serde_saphyr::ser_options! { prefer_block_scalars: false };
    let text = serde_saphyr::to_string_multiple_with_options(&objects, options).map_err(|error| refuse(&error.to_string()))?;
    Ok(answer(&text, 0))
}

/// Judges the configuration of a wrapped container, as `tenure check --offline` does in it. Returns the name of its Lease.
fn judge(container: &Value, granted: u64) -> Result<String, String> {
    let texts =
        |list: &Value| list.as_array().into_iter().flatten().filter_map(|word| word.as_str().map(OsString::from)).collect();
    let line: Vec<OsString> = texts(&container["command"]);
    let run = match cli::parse(line) {
        Ok(Face::Run(run)) => run,
        Ok(Face::Elector | Face::Command(_)) => return Err("its command line does not run a program".into()),
        Err(refused) => return Err(refused.to_string()),
    };
    // What refers to something else is known only in the pod.
    let variables = container["env"].as_array().into_iter().flatten().filter_map(|variable| {
        let value = variable["value"].as_str()?.replace("$(POD_IP)", "192.0.2.1").replace("$$", "$");
        Some((variable["name"].as_str()?.into(), value.into()))
    });
    let variables: Vec<_> = variables.collect();
    let loaded = loading::load_elsewhere(&run.flags, &run.command, &variables).map_err(|invalid| invalid.to_string())?;
    if let Some(listen) = loaded.config.http.listen.filter(|listen| listen.ip().to_canonical().is_loopback())
        && container["readinessProbe"].is_object()
    {
        return Err(format!("http.listen: the kubelet's probes do not reach {listen}: write 0.0.0.0:{}", listen.port()));
    }
    let needed = check::grace_period(&loaded.config).as_secs();
    if needed > granted {
        return Err(format!("its configuration needs terminationGracePeriodSeconds: {needed}, and the pod has {granted}"));
    }
    Ok(loaded.config.lease.name)
}
