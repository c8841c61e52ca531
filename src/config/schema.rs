//! The JSON Schema of the configuration file, and the file of defaults.

use schemars::{
    Schema, json_schema,
    transform::{RecursiveTransform, Transform as _},
};
use serde_json::{Value, json};

use super::Config;

/// Every key with its default and what it means, as a file.
pub const DEFAULTS: &str = include_str!("../../config/tenure.yaml");

/// The JSON Schema of a configuration file.
#[must_use]
pub fn schema() -> String {
    let mut schema = schemars::schema_for!(Config);
    RecursiveTransform(allow_nothing).transform(&mut schema);
    format!("{:#}\n", schema.as_value())
}

/// A section or a map with nothing in it is null in YAML; and null may be written as a text, for TOML has no other.
fn allow_nothing(schema: &mut Schema) {
    match schema.get("type").and_then(Value::as_str) {
        Some("object") => drop(schema.insert("type".into(), json!(["object", "null"]))),
        Some("null") => *schema = json_schema!({ "enum": [null, "null"] }),
        Some(_) | None => {}
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::{
        cli::Settings,
        config::{
            Format, Hook, Purpose,
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

    /// What the schema says at `path`, and of everything above it.
    fn nodes(path: &str) -> Vec<Value> {
        let schema: Value = serde_json::from_str(&schema()).unwrap();
        let mut nodes = vec![schema.clone()];
        for step in path.split('.') {
            let node = nodes.last().unwrap()["properties"][step].clone();
            assert!(node.is_object(), "{path} is not in the schema");
            let target = node["$ref"].as_str().map(|target| schema.pointer(target.trim_start_matches('#')).unwrap().clone());
            nodes.push(target.unwrap_or(node));
        }
        nodes
    }

    #[test]
    fn the_schema_has_every_key_and_allows_no_other() {
        for key in KEYS {
            let nodes = nodes(key.path);
            assert!(nodes.iter().rev().skip(1).all(|section| section["additionalProperties"] == false), "{}", key.path);
        }
    }

    #[test]
    fn the_schema_allows_nothing_where_a_file_may_say_nothing() {
        for key in KEYS {
            let mut nodes = nodes(key.path);
            let node = nodes.pop().unwrap();
            assert!(nodes.iter().all(|section| section["type"] == json!(["object", "null"])), "{}", key.path);
            match key.shape {
                Shape::Map => {
                    assert_eq!(node["type"], json!(["object", "null"]), "{}", key.path);
                    let null = node["patternProperties"].to_string().contains(r#"[null,"null"]"#);
                    assert_eq!(null, key.nullable, "{}", key.path);
                }
                Shape::Text | Shape::Truth | Shape::Integer | Shape::List => {
                    let null = node.pointer("/anyOf/1/enum").is_some_and(|null| *null == json!([null, "null"]));
                    assert_eq!(null, key.nullable, "{}", key.path);
                }
            }
        }
        let sections = KEYS.iter().flat_map(|key| key.path.match_indices('.').map(|(end, _)| &key.path[..end]));
        for path in sections.chain(KEYS.iter().filter(|key| key.shape == Shape::Map).map(|key| key.path)) {
            let text = path.split('.').rev().fold("null".to_owned(), |below, step| format!("{{{step}: {below}}}"));
            let layer = sources::text_of("x".into(), &text, Format::Yaml);
            assert!(layer.problems.is_empty(), "{text}: {:?}", layer.problems);
        }
    }

    #[test]
    fn the_schema_knows_the_form_and_the_range_of_a_value() {
        let node = |path| nodes(path).pop().unwrap();
        for (path, part) in [("lease.renewPeriod", "h((ou)?rs?)?"), ("workload.stop.signal", "|TERM|"), ("lease.clockDrift", "%")]
        {
            assert!(node(path)["pattern"].as_str().is_some_and(|pattern| pattern.contains(part)), "{path}");
        }
        assert!(node("http.listen").pointer("/anyOf/0/pattern").is_some_and(Value::is_string));
        let score = node("workload.oomScoreAdjust");
        assert_eq!((&score["minimum"], &score["maximum"]), (&json!(-1000), &json!(1000)));
        assert_eq!(node("workload.restart.burst")["minimum"], 1);
    }

    #[test]
    fn the_schema_describes_keys_without_the_words_of_the_law() {
        let text = schema();
        let descriptions = text.lines().filter_map(|line| line.trim().strip_prefix("\"description\": \""));
        for description in descriptions {
            let mut words = description.split(|c: char| !c.is_alphanumeric());
            let internal = words.find(|word| ["D", "G", "R", "T", "k", "rho", "w", "Law", "validated"].contains(word));
            assert_eq!(internal, None, "{description}");
        }
    }

    #[test]
    fn the_effective_configuration_gives_itself_and_names_its_sources() {
        let variables = [
            ("TENURE_LEASE__LABELS".into(), "{team: '007', 'a/b': 'x-y'}".into()),
            ("TENURE_LEASE__ANNOTATIONS".into(), r#"{odd: "a\u007f\u0085\u009f\u2028\ufffe"}"#.into()),
        ];
        let settings = Settings {
            lease: Some("True".into()),
            identity: Some("null".into()),
            set: [
                "workload.stop.grace=90s",
                "lease.labels.c=d",
                "lease.labels.d=0X1F",
                "lease.labels.e=1_000",
                "lease.prefix=t-",
            ]
            .map(String::from)
            .into(),
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
            ("labels: {", "--set lease.labels.c, --set lease.labels.d, --set lease.labels.e, TENURE_LEASE__LABELS"),
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
