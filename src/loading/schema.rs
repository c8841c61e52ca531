//! The JSON Schema of the configuration file, and the file of defaults.

use schemars::{
    Schema,
    transform::{RecursiveTransform, Transform as _},
};
use serde_json::{Value, json};

use crate::config::Config;

/// Every key with its default and what it means, as a file.
pub const DEFAULTS: &str = include_str!("../../config/tenure.yaml");

/// The JSON Schema of a configuration file.
pub fn schema() -> String {
    let mut schema = schemars::schema_for!(Config);
    RecursiveTransform(allow_nothing).transform(&mut schema);
    format!("{:#}\n", schema.as_value())
}

/// A section or a map with nothing in it is null in YAML.
fn allow_nothing(schema: &mut Schema) {
    if schema.get("type").and_then(Value::as_str) == Some("object") {
        schema.insert("type".into(), json!(["object", "null"]));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        cli::ConfigFlags,
        config::duration,
        loading::{
            Purpose,
            keys::{KEYS, Shape},
            load::load_from,
            sources,
        },
    };

    #[test]
    fn the_file_of_defaults_says_every_key_and_the_built_in_defaults() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/config/tenure.yaml");
        let given = ConfigFlags { config: Some(path.into()), ..ConfigFlags::default() };
        let layer = sources::file(&given, &[]);
        assert!(layer.problems.is_empty(), "{:?}", layer.problems);
        let mut said: Vec<_> = layer.entries.iter().map(|entry| entry.key.path.as_str()).collect();
        said.sort_unstable();
        assert_eq!(said, KEYS.iter().map(|key| key.path.as_str()).collect::<Vec<_>>());

        let given = ConfigFlags { lease: Some("x".into()), ..given };
        let from_file = load_from(&given, &["true".into()], Purpose::Run, &[]).unwrap().config;
        let built_in = load_from(&ConfigFlags { config: None, ..given }, &["true".into()], Purpose::Run, &[]).unwrap().config;
        assert_eq!(from_file, built_in);
    }

    /// The nodes of the schema from its root to `path`.
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
    fn the_schema_has_every_key_and_no_other_and_allows_nothing_where_a_file_may_say_nothing() {
        let nothing = json!(["object", "null"]);
        for key in KEYS.iter() {
            let mut nodes = nodes(&key.path);
            let node = nodes.pop().unwrap();
            for section in nodes {
                assert_eq!((&section["additionalProperties"], &section["type"]), (&json!(false), &nothing), "{}", key.path);
            }
            match key.shape {
                Shape::Map => assert_eq!(node["type"], nothing, "{}", key.path),
                Shape::Text | Shape::Truth | Shape::Integer | Shape::List => {
                    assert_eq!(node.to_string().contains(r#""null""#), key.nullable, "{}: {node}", key.path);
                }
            }
        }
        let sections = KEYS.iter().flat_map(|key| key.path.match_indices('.').map(|(end, _)| &key.path[..end]));
        for path in sections.chain(KEYS.iter().filter(|key| key.shape == Shape::Map).map(|key| key.path.as_str())) {
            let text = path.split('.').rev().fold("null".to_owned(), |below, step| format!("{{{step}: {below}}}"));
            let layer = sources::text_of("x".into(), &text);
            assert!(layer.problems.is_empty(), "{text}: {:?}", layer.problems);
        }
    }

    #[test]
    fn the_schema_knows_the_form_and_the_range_of_a_value() {
        let node = |path| nodes(path).pop().unwrap();
        for (path, part) in [("lease.renewPeriod", "hours?"), ("workload.stop.signal", "|TERM|"), ("lease.clockDrift", "%")] {
            assert!(node(path)["pattern"].as_str().is_some_and(|pattern| pattern.contains(part)), "{path}");
        }
        let score = node("workload.oomScoreAdjust");
        assert_eq!((&score["minimum"], &score["maximum"]), (&json!(-1000), &json!(1000)));
        assert_eq!(node("workload.restart.burst")["minimum"], 1);
        let slots = node("lease.slots");
        assert_eq!((&slots["minimum"], &slots["maximum"]), (&json!(1), &json!(64)));
        assert_eq!(node("lease.prefer.order")["maxItems"], 10);
        let notify = node("workload.readiness.notify");
        assert_eq!((&notify["type"], &notify["maxProperties"]), (&json!(["boolean", "object"]), &json!(0)), "true, or {{}}");
    }

    #[test]
    fn the_schema_accepts_a_duration_if_tenure_does() {
        let pattern = nodes("lease.duration").pop().unwrap()["pattern"].as_str().unwrap().to_owned();
        let pattern = regex::Regex::new(&pattern).unwrap();
        let good =
            ["15s", "1m30s", "200ms", "1.5h", "2 hours, 5 mins", "1hr 3 msecs 4µs 5 nanos", "+5s", "1:30:00.5", "PT1H0.5s"];
        let bad = ["", "15", "s", "1d", "1w", "1mo", "1 day 2h", "-5s", "1:30", "P1D", "15S", "5 parsecs", "1ss", "a5s"];
        for written in good.iter().chain(&bad) {
            assert_eq!(pattern.is_match(written), good.contains(written), "{written}");
            assert_eq!(duration::parse(written).is_ok(), good.contains(written), "{written}");
        }
        for path in ["workload.startTimeout", "workload.readiness.file.maxAge", "lease.creationWait"] {
            assert!(nodes(path).pop().unwrap().to_string().contains("/Duration"), "{path}");
        }
    }

    /// The description of a key in the schema, and that of each word that it may be.
    fn description(path: &str) -> String {
        let schema: Value = serde_json::from_str(&schema()).unwrap();
        let (mut node, mut description) = (schema.clone(), String::new());
        for step in path.split('.') {
            let property = node["properties"][step].clone();
            description = property["description"].as_str().unwrap().to_owned();
            let target = property["$ref"].as_str().or_else(|| property["anyOf"][0]["$ref"].as_str());
            let target = target.map(|target| schema.pointer(target.trim_start_matches('#')).unwrap().clone());
            node = target.unwrap_or(property);
        }
        for word in node["oneOf"].as_array().into_iter().flatten() {
            description += &format!(" - `{}`: {}", word["const"].as_str().unwrap(), word["description"].as_str().unwrap());
        }
        description
    }

    #[test]
    fn the_file_of_defaults_describes_a_key_in_the_words_of_the_schema() {
        let (mut path, mut comment, mut compared) = (Vec::new(), String::new(), Vec::new());
        for line in DEFAULTS.lines() {
            let text = line.trim_start();
            if let Some(words) = text.strip_prefix("# ") {
                comment += &format!("{words} ");
                continue;
            }
            if let Some((name, _)) = text.split_once(':') {
                path.truncate((line.len() - text.len()) / 2);
                path.push(name);
                let said: Vec<_> = comment.split_whitespace().collect();
                if !said.is_empty() {
                    let path = path.join(".");
                    let description = description(&path).split_whitespace().collect::<Vec<_>>().join(" ").to_lowercase();
                    assert_eq!(said.join(" ").to_lowercase(), description, "{path}");
                    compared.push(path);
                }
            }
            comment.clear();
        }
        // A liveness probe has the keys of a readiness probe, and each hook those of the first.
        let repeats =
            |path: &str| path.starts_with("workload.liveness.") || path.matches('.').count() == 2 && path.starts_with("hooks.");
        let bare = KEYS.iter().map(|key| &key.path).filter(|path| !compared.contains(path) && !repeats(path));
        assert_eq!(bare.collect::<Vec<_>>(), Vec::<&String>::new());
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
            ("TENURE_LEASE__ANNOTATIONS".into(), r#"{odd: "a\u0001\"b"}"#.into()),
        ];
        let given = ConfigFlags {
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
            ..ConfigFlags::default()
        };
        let loaded = load_from(&given, &["sh".into(), "-c".into(), "echo \"$A\"\n".into()], Purpose::Run, &variables).unwrap();
        let text = loaded.effective(true);
        let path = std::env::temp_dir().join(format!("tenure-effective-{}.yaml", std::process::id()));
        std::fs::write(&path, &text).unwrap();
        let again = load_from(&ConfigFlags { config: Some(path.clone()), ..ConfigFlags::default() }, &[], Purpose::Run, &[]);
        std::fs::remove_file(path).unwrap();
        assert_eq!(again.unwrap().config, loaded.config, "{text}");
        for (line, source) in [
            ("name: t-true", "--lease, --set lease.prefix"),
            ("prefix: \"\"", "--set lease.prefix"),
            ("identity: \"null\"", "--identity"),
            ("grace: 1m30s", "--set workload.stop.grace"),
            ("duration: 15s", "default"),
            ("labels: {", "--set lease.labels.c, --set lease.labels.d, --set lease.labels.e, TENURE_LEASE__LABELS"),
        ] {
            let said = text.lines().find(|said| said.trim().starts_with(line)).unwrap_or_else(|| panic!("{line} in {text}"));
            assert_eq!(said.rsplit("# ").next(), Some(source), "{said}");
        }
    }
}
