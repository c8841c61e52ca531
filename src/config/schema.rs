//! The JSON Schema of the configuration file, and the file of defaults.

use super::Config;

/// Every key with its default and what it means, as a file.
pub const DEFAULTS: &str = include_str!("../../config/tenure.yaml");

/// The JSON Schema of a configuration file.
#[must_use]
pub fn schema() -> String {
    format!("{:#}\n", schemars::schema_for!(Config).as_value())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Value;

    use super::*;
    use crate::{
        cli::Settings,
        config::{
            Hook, Purpose,
            keys::{KEYS, Shape},
            load::load_from,
            sources,
        },
    };

    /// The path of every value below `tree`; the keys' own maps are values.
    fn leaves(tree: &Value, path: &str, into: &mut BTreeSet<String>) {
        let is_map = KEYS.iter().any(|key| key.path == path && key.shape == Shape::Map);
        match tree {
            Value::Object(children) if !is_map => {
                for (name, child) in children {
                    leaves(child, &if path.is_empty() { name.clone() } else { format!("{path}.{name}") }, into);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) | Value::Object(_) => {
                into.insert(path.into());
            }
        }
    }

    fn keys() -> BTreeSet<String> {
        KEYS.iter().map(|key| key.path.into()).collect()
    }

    #[test]
    fn the_list_of_keys_is_that_of_the_types() {
        let mut config = Config::default();
        (config.hooks.after_lead, config.hooks.before_follow) = (Some(Hook::default()), Some(Hook::default()));
        let mut types = BTreeSet::new();
        leaves(&serde_json::to_value(&config).unwrap(), "", &mut types);
        assert_eq!(types, keys());
    }

    #[test]
    fn each_key_has_the_shape_of_its_type() {
        let mut config = Config::default();
        (config.hooks.after_lead, config.hooks.before_follow) = (Some(Hook::default()), Some(Hook::default()));
        let tree = serde_json::to_value(&config).unwrap();
        for key in KEYS {
            let shape = match &tree.pointer(&format!("/{}", key.path.replace('.', "/"))).unwrap() {
                Value::Null | Value::String(_) => Shape::Text,
                Value::Bool(_) => Shape::Truth,
                Value::Number(_) => Shape::Integer,
                Value::Array(_) => Shape::List,
                Value::Object(_) => Shape::Map,
            };
            assert_eq!(key.shape, shape, "{}", key.path);
        }
    }

    #[test]
    fn the_file_of_defaults_says_every_key_and_the_built_in_defaults() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/config/tenure.yaml");
        let settings = Settings { config: Some(path.into()), ..Settings::default() };
        let layer = sources::file(&settings, &[]);
        assert!(layer.problems.is_empty(), "{:?}", layer.problems);
        assert_eq!(layer.entries.iter().map(|entry| entry.key.path.into()).collect::<BTreeSet<String>>(), keys());

        let settings = Settings { lease: Some("x".into()), ..settings };
        let from_file = load_from(&settings, &["true".into()], Purpose::Run, &[]).unwrap().config;
        let built_in = load_from(&Settings { config: None, ..settings }, &["true".into()], Purpose::Run, &[]).unwrap().config;
        assert_eq!(from_file, built_in);
    }

    #[test]
    fn the_schema_has_every_key_and_allows_no_other() {
        let schema: Value = serde_json::from_str(&schema()).unwrap();
        let resolve = |node: &Value| -> Value {
            let target = node.pointer("/$ref").or_else(|| node.pointer("/anyOf/0/$ref")).and_then(Value::as_str);
            target.map_or_else(|| node.clone(), |target| schema.pointer(target.trim_start_matches('#')).unwrap().clone())
        };
        for key in KEYS {
            let mut node = schema.clone();
            for step in key.path.split('.') {
                let parent = resolve(&node);
                assert_eq!(parent["additionalProperties"], false, "{}", key.path);
                node = parent["properties"][step].clone();
                assert!(node.is_object(), "{} is not in the schema", key.path);
            }
        }
    }

    #[test]
    fn the_effective_configuration_gives_itself_and_names_its_sources() {
        let variables = [("TENURE_LEASE__LABELS".into(), "{team: '007', 'a/b': 'x-y'}".into())];
        let settings = Settings {
            lease: Some("True".into()),
            identity: Some("null".into()),
            set: ["workload.stop.grace=90s", "lease.labels.c=d", "lease.prefix=t-"].map(String::from).into(),
            ..Settings::default()
        };
        let loaded = load_from(&settings, &["sh".into(), "-c".into(), "echo \"$A\"\n".into()], Purpose::Run, &variables).unwrap();
        let text = loaded.effective();
        let path = std::env::temp_dir().join(format!("tenure-effective-{}.yaml", std::process::id()));
        std::fs::write(&path, &text).unwrap();
        let again = load_from(&Settings { config: Some(path.clone()), ..Settings::default() }, &[], Purpose::Run, &[]);
        std::fs::remove_file(path).unwrap();
        assert_eq!(again.unwrap().config, loaded.config, "{text}");
        for (line, source) in [
            ("name: t-true", "--lease, --set lease.prefix"),
            ("prefix: \"\"", "--set lease.prefix, now part of the name"),
            ("identity: \"null\"", "--identity"),
            ("grace: 1m30s", "--set workload.stop.grace"),
            ("duration: 15s", "default"),
            ("labels: {", "--set lease.labels.c, TENURE_LEASE__LABELS"),
        ] {
            let said = text.lines().find(|said| said.trim().starts_with(line)).unwrap_or_else(|| panic!("{line} in {text}"));
            assert_eq!(said.rsplit("# ").next(), Some(source), "{said}");
        }
    }

    #[test]
    fn only_a_prefix_that_became_part_of_the_name_is_a_source_of_it() {
        for (enabled, prefix) in [("true", ""), ("false", "t-")] {
            let set = [format!("lease.enabled={enabled}"), format!("lease.prefix={prefix}")];
            let settings = Settings { lease: Some("x".into()), set: set.into(), ..Settings::default() };
            let text = load_from(&settings, &["true".into()], Purpose::Run, &[]).unwrap().effective();
            let sources = |name: &str| text.lines().find(|line| line.trim().starts_with(name)).unwrap().rsplit("# ").next();
            assert_eq!((sources("name: x"), sources("prefix: ")), (Some("--lease"), Some("--set lease.prefix")));
        }
    }
}
