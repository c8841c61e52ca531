//! `tenure inject`: reads manifests, has them wrapped, and prints what results.
//!
//! The room [`crate::inject`] decides what is put in. A container whose configuration tenure would refuse is refused here.

use std::{ffi::OsString, fmt::Write as _, fs, io};

use serde_json::{Value, json};

use super::{Ended, check, transaction::documents};
use crate::{
    cli::{self, Face, InjectOutput},
    console::{answer, complain},
    exit,
    inject::{Options, Settings, Stream},
    loading,
};

pub(super) fn run(asked: &cli::Inject) -> Ended {
    let mut objects = Vec::new();
    for file in &asked.files {
        let is_pipe = file.as_os_str() == "-";
        let text = if is_pipe { io::read_to_string(io::stdin()) } else { fs::read_to_string(file) };
        match text.map_err(|error| error.to_string()).and_then(|text| documents(&text)) {
            Ok(documents) => objects.extend(documents),
            Err(why) => {
                return Err(refuse(&format!(
                    "{}: {why}",
                    if is_pipe { "standard input".into() } else { file.display().to_string() }
                )));
            }
        }
    }
    let mut resources = match &mut *objects {
        [only] if only["kind"] == "ResourceList" => Some(only.take()),
        _ => None,
    };
    if let Some(list) = &mut resources {
        objects = list["items"].as_array().cloned().unwrap_or_default();
    }
    let objects = if asked.uninject { Stream::uninject(objects) } else { injected(asked, objects)? };
    let text = match (resources, asked.output) {
        (Some(mut list), _) => {
            list["items"] = objects.into();
            yaml(&[list])
        }
        (None, InjectOutput::Yaml) => yaml(&objects),
        (None, InjectOutput::Json) => format!("{:#}\n", json!({ "apiVersion": "v1", "kind": "List", "items": objects })),
    };
    Ok(answer(&text, 0))
}

fn injected(asked: &cli::Inject, objects: Vec<Value>) -> Result<Vec<Value>, u8> {
    let options = Options {
        lease: asked.lease.clone(),
        of: asked.of.clone(),
        namespace: asked.namespace.clone(),
        access: asked.access,
        service: asked.service,
        settings: Settings { image: asked.image.clone(), env: asked.env.clone() },
    };
    let stream = Stream::inject(objects, &options).map_err(|reasons| refuse(&reasons.join("\ntenure: ")))?;
    for wrapped in &stream.wrapped {
        judge(&wrapped.container, wrapped.grace).map_err(|why| refuse(&format!("{}: {why}", wrapped.name)))?;
    }
    super::warn(&stream.notes);
    Ok(stream.objects)
}

/// Judges the configuration of a wrapped container, as `tenure check --offline` does in it.
fn judge(container: &Value, granted: u64) -> Result<(), String> {
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
    Ok(())
}

fn refuse(why: &str) -> u8 {
    complain(why);
    exit::INVALID
}

/// Documents in YAML. Texts that are no plain words are in quotes, so that all readers of YAML agree.
fn yaml(objects: &[Value]) -> String {
    let mut text = String::new();
    for object in objects {
        text.push_str("---\n");
        block(&mut text, 0, object);
    }
    text
}

/// Writes the entries of a map or a list, each on a line of its own.
fn block(text: &mut String, indent: usize, value: &Value) {
    let is_block = |value: &Value| {
        value.as_object().is_some_and(|map| !map.is_empty()) || value.as_array().is_some_and(|list| !list.is_empty())
    };
    match value {
        Value::Object(map) => {
            for (at, (key, value)) in map.iter().enumerate() {
                // The first entry stands behind the hyphen of a list.
                let before = if at == 0 && text.ends_with("- ") { 0 } else { indent };
                let _ = write!(text, "{:before$}{}:", "", loading::written(&key.as_str().into()));
                if is_block(value) {
                    text.push('\n');
                    block(text, if value.is_array() { indent } else { indent + 2 }, value);
                } else {
                    let _ = writeln!(text, " {}", loading::written(value));
                }
            }
        }
        Value::Array(list) => {
            for value in list {
                let _ = write!(text, "{:indent$}- ", "");
                if value.is_object() && is_block(value) {
                    block(text, indent + 2, value);
                } else {
                    let _ = writeln!(text, "{}", loading::written(value));
                }
            }
        }
        scalar @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) => {
            let _ = writeln!(text, "{}", loading::written(scalar));
        }
    }
}
