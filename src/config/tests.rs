//! The layers together, and the types on the link.

use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use super::{load::load_from, *};
use crate::{
    cli::{self, ConfigFlags},
    link,
};

/// A file that is gone with the test.
struct File(PathBuf);

impl File {
    fn new(name: &str, text: &str) -> Self {
        let path = std::env::temp_dir().join(format!("tenure-{}-{name}", std::process::id()));
        fs::write(&path, text).unwrap();
        Self(path)
    }

    fn flags(&self) -> ConfigFlags {
        ConfigFlags { config: Some(self.0.clone()), ..ConfigFlags::default() }
    }
}

impl Drop for File {
    fn drop(&mut self) {
        drop(fs::remove_file(&self.0));
    }
}

fn environment(variables: &[(&str, &str)]) -> Vec<(OsString, OsString)> {
    variables.iter().map(|(name, value)| (OsString::from(name), OsString::from(value))).collect()
}

fn flags(set: &[&str]) -> ConfigFlags {
    ConfigFlags { lease: Some("x".into()), set: set.iter().map(|set| (*set).into()).collect(), ..ConfigFlags::default() }
}

fn loaded(given: &ConfigFlags, variables: &[(&str, &str)]) -> Loaded {
    load_from(given, &["sleep".into()], Purpose::Run, &environment(variables)).unwrap_or_else(|invalid| panic!("{invalid}"))
}

fn problems(given: &ConfigFlags, variables: &[(&str, &str)]) -> Vec<String> {
    let invalid = load_from(given, &["sleep".into()], Purpose::Run, &environment(variables)).unwrap_err();
    invalid.problems.iter().map(ToString::to_string).collect()
}

fn full() -> Config {
    let mut config = Config::default();
    config.lease.name = "billing".into();
    config.lease.labels.insert("team".into(), "007".into());
    config.lease.creation_wait = Some(Duration::from_secs(30));
    config.lease.release = Release::Delete;
    config.lease.clock_drift = Drift(5_000);
    config.workload.command = vec!["sleep".into(), "10".into()];
    config.workload.runs = Runs::Always;
    config.workload.acknowledge = Some(Acknowledge::Notify);
    config.workload.stop.loss_grace = Duration::from_millis(3_500);
    config.workload.stop.kill_mode = KillMode::Group;
    config.workload.restart.policy = RestartPolicy::Always;
    config.signals.on_lead = Some(Signal(libc::SIGUSR1));
    config.signals.rewrite.leader.insert(Signal(libc::SIGHUP), None);
    config.signals.rewrite.standby.insert(Signal(libc::SIGHUP), Some(Signal(libc::SIGUSR2)));
    config.hooks.after_lead = Hook { command: vec!["promote".into()], timeout: Duration::from_secs(5), ..Hook::default() };
    config.http.listen = Some(([0, 0, 0, 0], 8080).into());
    config.http.ready = HttpReady::Workload;
    config.workload.readiness.http.port = 8080;
    config.workload.readiness.http.host = "::1".parse().ok();
    config.workload.readiness.http.headers.insert("a".into(), "b".into());
    config.workload.liveness.notify = true;
    config.workload.start_timeout = Some(Duration::from_secs(60));
    config.workload.candidate = Candidate::Ready;
    config.log.format = LogFormat::Json;
    config
}

#[test]
fn every_type_travels_the_link_and_comes_back() {
    for config in [full(), Config::default()] {
        let bytes = link::encode(&config).unwrap();
        assert_eq!(link::decode::<Config>(&bytes).unwrap(), config);
    }
}

#[test]
fn every_type_is_written_for_people_and_read_again() {
    for config in [full(), Config::default()] {
        let json = serde_json::to_value(&config).unwrap();
        assert_eq!(serde_json::from_value::<Config>(json).unwrap(), config);
    }
    let json = serde_json::to_value(full()).unwrap();
    assert_eq!(json["lease"]["clockDrift"], "0.5%");
    assert_eq!(json["workload"]["stop"]["lossGrace"], "3s500ms");
    assert_eq!(json["signals"]["rewrite"]["leader"], serde_json::json!({ "SIGHUP": null }));
}

#[test]
fn flags_win_over_the_environment_and_that_over_the_file_and_that_over_the_defaults() {
    let file = File::new("layers.yaml", "lease: {name: file, prefix: f-, identity: file, namespace: file}");
    let given = ConfigFlags { lease: Some("flag".into()), ..file.flags() };
    let loaded = loaded(&given, &[("TENURE_LEASE__NAME", "variable"), ("TENURE_LEASE__PREFIX", "v-")]);
    let lease = loaded.config.lease;
    assert_eq!((lease.name.as_str(), lease.identity.as_str(), lease.duration), ("v-flag", "file", Duration::from_secs(15)));
    assert_eq!(loaded.origins["lease.name"], Origin::Flag("--lease".into()));
    assert_eq!(loaded.origins["lease.prefix"], Origin::Variable("TENURE_LEASE__PREFIX".into()));
    assert_eq!(loaded.origins["lease.identity"].to_string(), format!("{}:1", file.0.display()));
    assert!(!loaded.origins.contains_key("lease.duration"));
}

#[test]
fn each_flag_sets_its_own_key() {
    let given = ConfigFlags {
        lease: Some("billing".into()),
        namespace: Some("shop".into()),
        identity: Some("me".into()),
        lease_duration: Some("30s".into()),
        log_level: Some("debug".into()),
        log_format: Some("json".into()),
        ..ConfigFlags::default()
    };
    let Loaded { config: Config { lease, log, .. }, origins, .. } = loaded(&given, &[]);
    assert_eq!((lease.name.as_str(), lease.namespace.as_str(), lease.identity.as_str()), ("billing", "shop", "me"));
    assert_eq!((lease.duration, log.level, log.format), (Duration::from_secs(30), LogLevel::Debug, LogFormat::Json));
    for (key, flag) in [
        ("lease.name", "--lease"),
        ("lease.namespace", "--namespace"),
        ("lease.identity", "--identity"),
        ("lease.duration", "--lease-duration"),
        ("log.level", "--log-level"),
        ("log.format", "--log-format"),
        ("workload.command", "the command line"),
    ] {
        assert_eq!(origins[key], Origin::Flag(flag.into()), "{key}");
    }
}

#[test]
fn json_says_the_same_as_yaml() {
    let yaml = "lease:\n  name: x\n  labels:\n    a.b/c: '1'\nworkload:\n  oomScoreAdjust: -5\n  command: [a, b]\n  stop: {grace: 1m30s}\n";
    let json = "{\n\t\"lease\": {\"name\": \"x\", \"labels\": {\"a.b/c\": \"1\"}},\n\t\"workload\": {\"oomScoreAdjust\": -5,\n\t\"command\": \
                [\"a\", \"b\"], \"stop\": {\"grace\": \"1m30s\"}}\n}\n";
    let files = [File::new("same.yaml", yaml), File::new("same.json", json)];
    let configs = files.each_ref().map(|file| load_from(&file.flags(), &[], Purpose::Run, &[]).unwrap().config);
    assert_eq!(configs[0], configs[1]);
    assert_eq!(configs[0].workload.stop.grace, Duration::from_secs(90));
}

#[test]
fn the_file_is_the_flags_or_the_variables() {
    let (ours, other) = (File::new("ours.yaml", "lease: {name: ours}"), File::new("other.yaml", "lease: {name: other}"));
    let named = [("TENURE_CONFIG", other.0.to_str().unwrap())];
    assert_eq!(loaded(&ours.flags(), &named).config.lease.name, "ours");
    assert_eq!(loaded(&ConfigFlags::default(), &named).config.lease.name, "other");
    assert_eq!(loaded(&flags(&[]), &[("TENURE_CONFIG", "")]).config.lease.name, "x");
}

#[test]
fn a_file_that_was_named_and_cannot_be_read_is_an_error_that_says_who_named_it() {
    let missing = Path::new("/nonexistent/tenure.yaml");
    let given = ConfigFlags { config: Some(missing.into()), ..flags(&[]) };
    assert!(problems(&given, &[])[0].starts_with("--config: the configuration file \"/nonexistent/tenure.yaml\" cannot be read"));
    let named = problems(&flags(&[]), &[("TENURE_CONFIG", "/nonexistent/tenure.yaml")]);
    assert!(named[0].starts_with("TENURE_CONFIG: "), "{named:?}");
    let endless = ConfigFlags { config: Some("/dev/zero".into()), ..flags(&[]) };
    assert!(problems(&endless, &[])[0].contains("longer than 1 MiB"));
}

#[test]
fn everything_wrong_is_said_at_once_with_its_place() {
    let file = File::new(
        "wrong.yaml",
        "lease:\n  name: 007\n  duratoin: 20s\n  renewPeriod: 3\nworkload:\n  command: [sleep, 10]\n  stop:\n    signal: SIGKILL\nleese: {}\n",
    );
    let given = ConfigFlags { log_level: Some("loud".into()), set: vec!["workload.runz=always".into()], ..file.flags() };
    let variables =
        [("TENURE_LEASE__CLOCK_DRIFT", "1"), ("TENURE_WORKLOAD__ON_EXITT", "exit"), ("TENURE_SERVICE_HOST", "10.0.0.1")];
    let invalid = load_from(&given, &[], Purpose::Run, &environment(&variables)).unwrap_err();
    let place = file.0.display();
    let expected = [
        format!("{place}:3: lease.duratoin: there is no such key: did you mean lease.duration?"),
        format!("{place}:9: leese: there is no such key: did you mean lease?"),
        format!("{place}:2: lease.name: expected a string, found a decimal number: put it in quotes"),
        format!("{place}:4: lease.renewPeriod: \"3\" is not a duration: write a number and a unit, such as 15s, 1m30s or 200ms"),
        format!("{place}:6: workload.command: expected a list of strings, found a number: put it in quotes"),
        "TENURE_WORKLOAD__ON_EXITT: there is no such key: did you mean TENURE_WORKLOAD__ON_EXIT?".into(),
        "TENURE_LEASE__CLOCK_DRIFT: lease.clockDrift: \"1\" is not a share: write a percentage of at most four decimals, such as 1% or \
         0.5%"
        .into(),
        "--set workload.runz: there is no such key: did you mean workload.runs?".into(),
        "--log-level: log.level: \"loud\" is none of error, warn, info, debug, trace".into(),
        format!("{place}:8: workload.stop.signal: SIGKILL cannot be caught: for a kill without grace set grace and lossGrace to 0s"),
    ];
    let said: Vec<_> = invalid.problems.iter().map(ToString::to_string).collect();
    assert_eq!(said, expected);
    assert!(invalid.to_string().starts_with("the configuration is refused for 10 reasons:\n  "));
}

#[test]
fn broken_syntax_says_the_line() {
    for (name, text, line) in [
        ("broken.yaml", "lease:\n  a: [1\nb: 3\n", 3),
        ("twice.yaml", "lease:\n  name: x\n  name: y\n", 3),
        ("broken.json", "{\"lease\":\n{\"name\": \"x\"]}", 2),
    ] {
        let file = File::new(name, text);
        let said = problems(&file.flags(), &[]);
        assert_eq!(said.len(), 1, "nothing is known of what a broken file leaves unsaid: {said:?}");
        assert!(said[0].starts_with(&format!("{}:{line}: ", file.0.display())), "{said:?}");
    }
}

#[test]
fn a_section_without_values_says_nothing_and_a_value_is_no_section() {
    let file = File::new("sections.yaml", "lease:\n  # name: x\nhooks:\n  afterLead: {}\n");
    assert_eq!(loaded(&ConfigFlags { lease: Some("x".into()), ..file.flags() }, &[]).config.hooks, Hooks::default());
    let file = File::new("sections2.yaml", "lease: billing\nworkload:\n  stop: 5s\n");
    let said = problems(&ConfigFlags { lease: Some("x".into()), ..file.flags() }, &[]);
    assert!(said.len() == 2 && said[0].contains(":1: lease: this is a section"), "{said:?}");
    assert!(said[1].contains(":3: workload.stop: this is a section"), "{said:?}");
    let file = File::new("sections3.yaml", "lease: {name: x}\nlaese:\n  name: y\n");
    assert!(problems(&file.flags(), &[])[0].contains(":2: laese: there is no such key"), "the line of the key, not of its value");
}

#[test]
fn text_in_the_environment_stays_text() {
    let loaded = loaded(&ConfigFlags::default(), &[("TENURE_LEASE__NAME", "007"), ("TENURE_LEASE__IDENTITY", "true")]);
    assert_eq!((loaded.config.lease.name.as_str(), loaded.config.lease.identity.as_str()), ("007", "true"));
}

#[test]
fn lists_maps_truth_and_null_have_a_form_as_text() {
    let given = flags(&[
        "lease.labels.app.kubernetes.io/part-of=shop",
        "lease.labels={team: billing}",
        "workload.oomScoreAdjust=-5",
        "signals.rewrite.leader.HUP=null",
        "signals.rewrite.leader.SIGUSR1=USR2",
    ]);
    let variables = [
        ("TENURE_WORKLOAD__ENV", r#"{"PORT": "8080"}"#),
        ("TENURE_LEASE__ENABLED", "true"),
        ("TENURE_LEASE__CREATION_WAIT", "null"),
        ("TENURE_LEASE__NAMESPACE", ""),
    ];
    let config = loaded(&given, &variables).config;
    assert_eq!(config.lease.labels.len(), 2);
    assert_eq!(config.lease.labels["app.kubernetes.io/part-of"], "shop");
    assert_eq!((config.workload.oom_score_adjust, config.workload.env["PORT"].as_str()), (-5, "8080"));
    assert_eq!((config.lease.creation_wait, config.lease.namespace.as_str()), (None, ""));
    let rewrite = &config.signals.rewrite.leader;
    assert_eq!(rewrite[&Signal(libc::SIGHUP)], None);
    assert_eq!(rewrite[&Signal(libc::SIGUSR1)], Some(Signal(libc::SIGUSR2)));
    let command = load_from(&flags(&[r#"workload.command=["a", "1"]"#]), &[], Purpose::Run, &[]).unwrap().config.workload.command;
    assert_eq!(command, ["a", "1"]);
}

#[test]
fn text_that_does_not_fit_is_refused_with_the_form_that_would() {
    let said = problems(
        &flags(&["workload.env=PORT", "lease.enabled=yes", "workload.restart.burst=-1", "x", "lease.labels.team"]),
        &[
            ("TENURE_WORKLOAD__COMMAND", "sleep 10"),
            ("TENURE_WORKLOAD__STOP__GRACE", ""),
            ("TENURE_WORKLOAD__ENV__PORT", "1"),
            ("TENURE_LEASE__LABELS", "{a: b, a: c}"),
        ],
    );
    for part in [
        "TENURE_WORKLOAD__COMMAND: workload.command: is a list: write it in YAML or JSON",
        "--set workload.env: workload.env: is a map: write it in YAML or JSON",
        "--set lease.enabled: lease.enabled: expected true or false, found \"yes\"",
        "--set workload.restart.burst: workload.restart.burst: ",
        "--set x: write a key, = and a value",
        "--set lease.labels.team: write a key, = and a value",
        "TENURE_WORKLOAD__STOP__GRACE: workload.stop.grace: \"\" is not a duration",
        "TENURE_WORKLOAD__ENV__PORT: there is no such key: all entries go into one variable, such as TENURE_WORKLOAD__ENV={\"a\": \"b\"}",
        "TENURE_LEASE__LABELS: lease.labels: is a map: write it in YAML or JSON, such as {\"a\": \"b\"} (duplicate",
    ] {
        assert!(said.iter().any(|said| said.starts_with(part)), "{part} in {said:#?}");
    }
    assert_eq!(said.len(), 9, "{said:#?}");
}

#[test]
fn a_section_in_place_of_a_key_is_answered_with_a_key_below_it() {
    let said = problems(&flags(&["workload.stop=1"]), &[("TENURE_SIGNALS__REWRITE", "1")]);
    let expected = [
        "TENURE_SIGNALS__REWRITE: this is a section: name a key below it, such as TENURE_SIGNALS__REWRITE__LEADER",
        "--set workload.stop: this is a section: name a key below it, such as workload.stop.grace",
    ];
    assert_eq!(said, expected);
}

#[test]
fn what_is_not_utf_8_is_refused_by_name() {
    use std::os::unix::ffi::OsStringExt as _;
    let variables = [(OsString::from("TENURE_LEASE__NAME"), OsString::from_vec(vec![0xff]))];
    let invalid = load_from(&ConfigFlags::default(), &["sleep".into()], Purpose::Run, &variables).unwrap_err();
    assert_eq!(invalid.to_string().lines().nth(1), Some("  TENURE_LEASE__NAME: lease.name: its value is not UTF-8"));
}

#[test]
fn two_flags_for_one_key_contradict_each_other() {
    let said = problems(&flags(&["lease.name=y"]), &[]);
    assert_eq!(said, ["--set lease.name: lease.name: is also set by --lease: set it only once"]);
}

#[test]
fn a_signal_is_one_entry_by_whatever_name_so_that_flags_win_over_files() {
    let file = File::new("signals.yaml", "lease: {name: x}\nsignals: {rewrite: {leader: {SIGHUP: SIGUSR1, RTMAX: USR1}}}\n");
    let given = ConfigFlags { set: vec!["signals.rewrite.leader.HUP=null".into()], ..file.flags() };
    let loaded = loaded(&given, &[("TENURE_SIGNALS__REWRITE__LEADER", "{SIGRTMIN+30: USR2}")]);
    let rewrite = &loaded.config.signals.rewrite.leader;
    assert_eq!((rewrite[&Signal(libc::SIGHUP)], rewrite[&Signal(64)]), (None, Some(Signal(libc::SIGUSR2))));
    assert_eq!(loaded.origins["signals.rewrite.leader.SIGHUP"], Origin::Flag("--set signals.rewrite.leader.HUP".into()));
}

#[test]
fn two_names_of_one_signal_contradict_each_other() {
    let file =
        File::new("names.yaml", "lease: {name: x}\nsignals:\n  rewrite:\n    leader:\n      HUP: USR1\n      SIGHUP: USR2\n");
    let place = file.0.display();
    let said = problems(&file.flags(), &[]);
    assert_eq!(said, [format!("{place}:6: signals.rewrite.leader: is also set by {place}:5: set it only once")]);
}

#[test]
fn leader_election_is_on_or_off() {
    let off = ConfigFlags { leader_election: Some("off".into()), ..ConfigFlags::default() };
    assert!(!loaded(&off, &[]).config.lease.enabled);
    let on = ConfigFlags { leader_election: Some("on".into()), ..flags(&[]) };
    for no in ["false", "False", "FALSE"] {
        assert!(loaded(&on, &[("TENURE_LEASE__ENABLED", no)]).config.lease.enabled);
        assert!(!loaded(&flags(&[]), &[("TENURE_LEASE__ENABLED", no)]).config.lease.enabled, "{no}");
    }
    let maybe = ConfigFlags { leader_election: Some("maybe".into()), ..flags(&[]) };
    assert_eq!(problems(&maybe, &[]), ["--leader-election: \"maybe\" is neither on nor off"]);
}

#[test]
fn a_plain_init_says_which_keys_do_nothing_there() {
    let set = [
        "http.listen=127.0.0.1:80",
        "hooks.beforeFollow.command=[\"x\"]",
        "signals.onLead=USR1",
        "signals.rewrite.standby={HUP: USR1}",
        "workload.acknowledge=none",
        "workload.runs=always",
        "workload.onExit=follow",
        "workload.onLoss=exit",
    ];
    let off = ConfigFlags { leader_election: Some("off".into()), ..flags(&set) };
    let notes = loaded(&off, &[]).notes;
    let mut keys: Vec<_> = notes.iter().filter_map(|note| note.split(':').next()).collect();
    let mut expected = set.map(|set| set.split('=').next().unwrap_or_default().trim_end_matches(".command"));
    keys.sort_unstable();
    expected.sort_unstable();
    assert_eq!(keys, expected);
}

#[test]
fn a_rewrite_that_could_never_apply_is_refused_to_a_plain_init_too() {
    for (lease, key) in [("lease.enabled=false", "leader"), ("lease.name=x", "leader"), ("lease.name=x", "standby")] {
        for (signal, remedy) in [("SIGTERM", "workload.stop.signal"), ("SIGKILL", "remove it"), ("SIGSEGV", "remove it")] {
            let rewrite = format!("signals.rewrite.{key}.{signal}");
            let said = problems(&flags(&[lease, &format!("{rewrite}=QUIT")]), &[]);
            assert!(said.iter().any(|line| line.contains(&rewrite) && line.contains(remedy)), "{lease}: {said:?}");
        }
    }
    // A plain init never stands by.
    loaded(&flags(&["lease.enabled=false", "signals.rewrite.standby.SIGTERM=QUIT"]), &[]);
}

#[test]
fn a_violation_of_a_rule_names_the_place_of_the_value() {
    let said = problems(&flags(&[]), &[("TENURE_LEASE__DURATION", "5s")]);
    assert!(said[0].starts_with("TENURE_LEASE__DURATION: lease.duration: no attempt to renew fits"), "{said:?}");
    let said = problems(&ConfigFlags::default(), &[]);
    assert!(said[0].starts_with("lease.name: the Lease needs a name: --lease NAME"), "{said:?}");
}

#[test]
fn a_violation_of_what_is_below_a_key_names_the_place_all_the_same() {
    let text = "signals:\n  rewrite:\n    standby: {HUP: USR1}\nhooks:\n  afterLead:\n    timeout: 5s\nlease: {name: x}\n";
    let file = File::new("below.yaml", text);
    let path = file.0.display();
    let problems = problems(&file.flags(), &[]);
    for start in [format!("{path}:3: signals.rewrite.standby: has"), format!("{path}:6: hooks.afterLead: has")] {
        assert!(problems.iter().any(|problem| problem.starts_with(&start)), "{start}: {problems:#?}");
    }
}

#[test]
fn a_map_in_a_variable_means_what_it_means_in_a_file() {
    let named = [("TENURE_SIGNALS__REWRITE__LEADER", r#"{"HUP": "USR1", "SIGHUP": "USR2"}"#)];
    assert!(problems(&flags(&[]), &named).iter().any(|problem| problem.contains("set it only once")));
}

#[test]
fn a_name_with_dots_is_no_way_to_a_key_of_a_file() {
    let file = File::new("dotted.yaml", "lease.duration: 20s\nlease: {name: x}\n");
    assert!(problems(&file.flags(), &[]).iter().any(|problem| problem.contains("there is no such key")));
}

#[test]
fn a_number_that_is_too_large_is_no_other_kind_of_thing() {
    for number in ["-1", "4294967296"] {
        let set = format!("workload.restart.burst={number}");
        let said = problems(&flags(&[&set]), &[]);
        assert!(said[0].ends_with(&format!("{number} is out of range")), "{said:?}");
    }
}

#[test]
fn what_is_quoted_and_should_not_be_is_told_so() {
    let file =
        File::new("quoted.yaml", "lease: {name: x, enabled: \"true\"}\nworkload: {restart: {burst: \"5\"}, env: {A: 1}}\n");
    let said = problems(&file.flags(), &[]);
    let (last, others) = said.split_last().unwrap();
    assert!(last.ends_with("workload.env.A: expected a string, found a number: put it in quotes"), "{last}");
    assert!(others.len() == 2 && others.iter().all(|problem| problem.ends_with(": write it without quotes")), "{said:?}");
}

#[test]
fn a_hook_that_is_refused_is_not_also_said_to_be_missing() {
    let text = "lease: {name: x}\nworkload: {runs: always, acknowledge: hook}\nhooks: {afterLead: {command: 7}, beforeFollow: {command: 7}}\n";
    let file = File::new("hooks.yaml", text);
    let said = problems(&file.flags(), &[]);
    assert!(said.len() == 2 && said.iter().all(|problem| problem.contains("expected a list")), "{said:?}");
}

#[test]
fn a_hook_that_is_missing_is_told_although_the_other_one_is_refused() {
    let text = "lease: {name: x}\nworkload: {runs: always, acknowledge: hook}\nhooks: {afterLead: {command: [a], timeout: 5}}\n";
    let file = File::new("missing.yaml", text);
    let said = problems(&file.flags(), &[]);
    assert!(said.iter().any(|problem| problem.contains("there is no hooks.beforeFollow")), "{said:?}");
    assert!(!said.iter().any(|problem| problem.contains("there is no hooks.afterLead")), "{said:?}");
}

fn lock(name: &str, given: ConfigFlags) -> ConfigFlags {
    ConfigFlags { preset: cli::Preset::Lock(cli::Lock::default()), lease_argument: Some(name.into()), ..given }
}

#[test]
fn a_lock_takes_of_a_replicas_file_and_variables_what_applies_and_judges_nothing_else() {
    let text = "lease: {name: main, prefix: shop., duration: 20s}
http: {listen: nonsense}
hooks: {afterLead: {command: 7}}
signals: {onLead: NONE, rewrite: {standby: {SIGHUP: SIGKILL}}}
workload: {command: [serve], runs: always, onExit: restart, onLoss: follow, restart: {burst: 0}, env: {A: b}, oomScoreAdjust: 7, stop: {grace: 5s}}
log: {format: json}
";
    let file = File::new("shared.yaml", text);
    let Loaded { config, preset, notes, .. } = loaded(
        &lock("Backup", file.flags()),
        &[
            ("TENURE_LEASE__NAME", "main"),
            ("TENURE_WORKLOAD__RUNS", "always"),
            ("TENURE_HTTP__LISTEN", "0.0.0.0:1"),
            ("TENURE_LEASE__RENEW_PERIOD", "4s"),
        ],
    );

    let mut expected = Config::default();
    expected.lease.name = "shop-lock-backup".into();
    (expected.lease.duration, expected.lease.renew_period) = (Duration::from_secs(20), Duration::from_secs(4));
    expected.workload.command = vec!["sleep".into()];
    expected.workload.on_loss = OnLoss::Exit;
    expected.workload.env.insert("A".into(), "b".into());
    (expected.workload.oom_score_adjust, expected.workload.stop.grace) = (7, Duration::from_secs(5));
    expected.log.format = LogFormat::Json;
    assert_eq!((config, preset), (expected, Preset::Lock { patience: None }));
    assert_eq!(notes, ["the Lease is called shop-lock-backup, for \"shop.lock:Backup\" cannot be the name of an object"]);
}

#[test]
fn a_lock_is_told_of_a_misspelt_key_and_of_flags_that_do_not_apply_all_at_once() {
    let text = "lease: {durations: 20s}\nleese: {name: x}\nhttp: 5\nhooks: {foo: 1}\nworkload: {stop: {grace: 1}, runs: sometimes, new: 1, readiness: {exec: {}}}\n";
    let file = File::new("misspelt.yaml", text);
    let set = ["workload.runs=always", "http.listen=1.2.3.4:5", "workload.restart.delay=1s"].map(String::from).into();
    let given = ConfigFlags { leader_election: Some("off".into()), set, ..file.flags() };

    let said = problems(&lock("", given), &[]);

    let parts = [
        "lease.durations: there is no such key",
        "leese: there is no such key",
        "workload.stop.grace: ",
        "--set workload.runs: workload.runs: does not apply",
        "--set http.listen: http.listen: does not apply",
        "--set workload.restart.delay: workload.restart.delay: does not apply",
        "--leader-election: lease.enabled: without leader election there is no lock",
        "NAME: lease.name: the Lease needs a name",
    ];
    assert!(parts.iter().all(|part| said.iter().any(|said| said.contains(part))), "{said:#?}");
    assert_eq!(said.len(), parts.len(), "{said:#?}");
}

#[test]
fn the_name_of_a_lock_becomes_that_of_its_lease_as_grelmicro_has_it() {
    for (name, lease, is_said) in [
        ("my-resource", "lock-my-resource", false),
        ("a.b--C_d", "lock-a-b-c-d", true),
        ("\u{212A}elvin \u{130}", "lock-kelvin-i", true),
        (&"x".repeat(300), &format!("lock-{}", "x".repeat(248)), true),
    ] {
        let Loaded { config, notes, .. } = loaded(&lock(name, ConfigFlags::default()), &[]);
        assert_eq!((config.lease.name.as_str(), notes.len()), (lease, usize::from(is_said)), "{name}");
    }
    for name in ["", "\u{65e5}\u{672c}", "-.-"] {
        let said = problems(&lock(name, ConfigFlags::default()), &[]);
        assert!(said.len() == 1 && said[0].contains("lease.name"), "{said:?}");
    }
    let exact = ConfigFlags { preset: cli::Preset::Lock(cli::Lock::default()), ..flags(&["lease.prefix=shop."]) };
    assert_eq!(loaded(&exact, &[]).config.lease.name, "shop.x", "--lease says the whole name");
}

#[test]
fn the_bound_of_a_lock_has_a_unit_and_a_try_is_none_at_all() {
    let preset = |at_once, timeout: Option<&str>| {
        let bound = cli::Lock { at_once, timeout: timeout.map(String::from), conflict_exit_code: 9, wait: false };
        ConfigFlags { preset: cli::Preset::Lock(bound), ..lock("x", ConfigFlags::default()) }
    };
    let patience = |limit| Preset::Lock { patience: Some(Patience { limit, code: 9 }) };
    assert_eq!(loaded(&preset(false, None), &[]).preset, Preset::Lock { patience: None });
    assert_eq!(loaded(&preset(true, None), &[]).preset, patience(Duration::ZERO));
    assert_eq!(loaded(&preset(false, Some("1m30s")), &[]).preset, patience(Duration::from_secs(90)));
    for wrong in ["5", "-1s", "soon"] {
        let said = problems(&preset(false, Some(wrong)), &[]);
        assert!(said.len() == 1 && said[0].starts_with("--timeout: ") && said[0].contains("is not a duration"), "{said:?}");
    }
}

fn task(every: &str, limit: Option<&str>, once: bool, given: ConfigFlags) -> ConfigFlags {
    let how = cli::Task { every: every.into(), limit: limit.map(str::to_owned), once, conflict_exit_code: 9 };
    ConfigFlags { preset: cli::Preset::Task(how), lease_argument: Some("Report".into()), ..given }
}

#[test]
fn a_task_follows_after_each_run_and_one_that_runs_once_ends_with_it() {
    let file = File::new("task.yaml", "task: {afterCrash: run}\nworkload: {onExit: restart}\n");
    for (once, on_exit, on_loss) in [(false, OnExit::Follow, OnLoss::Follow), (true, OnExit::Exit, OnLoss::Exit)] {
        let flags = task("1h", Some("90s"), once, ConfigFlags { set: vec!["task.onFailure=release".into()], ..file.flags() });
        let Loaded { config, preset, .. } = loaded(&flags, &[]);
        assert_eq!(
            (config.lease.name.as_str(), config.workload.on_exit, config.workload.on_loss),
            ("tasklock-report", on_exit, on_loss)
        );
        assert_eq!(config.task, TaskConfig { after_crash: AfterCrash::Run, on_failure: OnFailure::Release });
        let [every, limit] = [3_600, 90].map(Duration::from_secs);
        assert_eq!(preset, Preset::Task(Task { every, limit: Some(limit), once: once.then_some(9) }));
        assert_eq!((preset.kind(), preset.is_once()), (Some("task"), once));
    }
}

#[test]
fn an_interval_is_in_whole_seconds_and_neither_it_nor_a_limit_is_longer_than_a_lease_can_say() {
    for every in ["0s", "999ms", "1500ms", "2147483648s", "10", "never"] {
        let said = problems(&task(every, None, false, ConfigFlags::default()), &[]);
        assert!(matches!(&said[..], [said] if said.starts_with(&format!("--every: {every:?} is not "))), "{said:?}");
    }
    for limit in ["0s", "2147483648s", "10"] {
        let said = problems(&task("1s", Some(limit), true, ConfigFlags::default()), &[]);
        assert!(matches!(&said[..], [said] if said.starts_with(&format!("--limit: {limit:?} is not "))), "{said:?}");
    }
    for (every, limit) in [("1s", "1500ms"), ("2147483647s", "2147483647s")] {
        loaded(&task(every, Some(limit), false, ConfigFlags::default()), &[]);
    }
}

#[test]
fn what_is_a_tasks_own_does_not_apply_to_a_lock() {
    let said = problems(&lock("x", ConfigFlags { set: vec!["task.afterCrash=run".into()], ..ConfigFlags::default() }), &[]);
    assert!(matches!(&said[..], [said] if said.contains("task.afterCrash: does not apply")), "{said:?}");
}

#[test]
fn a_probe_is_written_as_in_a_pod_or_as_keys_and_a_notification_is_asked_for_by_an_empty_section_too() {
    let file = File::new(
        "probes.yaml",
        "workload:\n  readiness: { http: { port: 8080, path: /healthz, headers: { a: b } }, periodSeconds: 5 }\n  liveness: { notify: {}, period: 5s }",
    );
    assert!(problems(&file.flags(), &[])[0].contains("periodSeconds"));
    fs::write(
        &file.0,
        "workload:\n  readiness: { http: { port: 8080, headers: { a: b } }, period: 5s }\n  liveness: { notify: {} }",
    )
    .unwrap();
    let from_file = loaded(&ConfigFlags { lease: Some("x".into()), ..file.flags() }, &[]).config.workload;
    let keys = [
        "workload.readiness.http.port=8080",
        "workload.readiness.http.headers.a=b",
        "workload.readiness.period=5s",
        "workload.liveness.notify=true",
    ];
    let from_keys = loaded(&flags(&keys), &[]).config.workload;
    assert_eq!((&from_file.readiness, &from_file.liveness), (&from_keys.readiness, &from_keys.liveness));
    assert_eq!(from_file.readiness.means(), Some(Means::Http));
    assert_eq!(from_file.liveness.means(), Some(Means::Notify));
}

#[test]
fn a_lock_has_one_slot_whatever_the_replica_beside_it_has_and_more_only_if_it_says_so() {
    let file = File::new("lock-slots.yaml", "lease: {slots: 3}\n");
    assert_eq!(loaded(&lock("x", file.flags()), &[("TENURE_LEASE__SLOTS", "4")]).config.lease.slots, 1);
    let flags = ConfigFlags { slots: Some("2".into()), ..file.flags() };
    assert_eq!(loaded(&lock("x", flags), &[]).config.lease.slots, 2);
}

#[test]
fn a_task_has_one_slot_whatever_the_replica_beside_it_has() {
    let file = File::new("slots.yaml", "lease: {slots: 3}\n");
    assert_eq!(loaded(&task("1h", None, true, file.flags()), &[("TENURE_LEASE__SLOTS", "4")]).config.lease.slots, 1);
    let flags = ConfigFlags { slots: Some("3".into()), ..ConfigFlags::default() };
    let said = problems(&task("1h", None, true, flags), &[]);
    assert!(said.iter().any(|said| said.contains("lease.slots") && said.contains("does not apply")), "{said:#?}");
}

#[test]
fn what_is_to_be_asked_and_says_nothing_is_refused_with_all_else_where_it_stands() {
    let file = File::new(
        "empty.yaml",
        "workload:\n  readiness: { exec: {}, http: { path: /x } }\n  liveness:\n    tcp: { port: 80 }\n    file: { path: /x }\n    period: 0s",
    );
    let at = |line| format!("{}:{line}: workload.", file.0.display());
    let said = problems(&ConfigFlags { lease: Some("x".into()), ..file.flags() }, &[]);
    let expected = [
        (2, "readiness.exec: says nothing"),
        (2, "readiness.http: port is missing"),
        (6, "liveness.period: 0s"),
        (5, "liveness.file: tcp is set too"),
    ];
    assert_eq!(said.len(), expected.len(), "{said:#?}");
    for (line, words) in expected {
        assert!(said.iter().any(|problem| problem.starts_with(&format!("{}{words}", at(line)))), "{words} in {said:#?}");
    }
    fs::write(&file.0, "workload: { readiness: { exec: {} }, startTimeout: 5s }").unwrap();
    let said = problems(&ConfigFlags { lease: Some("x".into()), ..file.flags() }, &[]);
    assert_eq!(said.len(), 1, "it is not told again that nothing is asked: {said:#?}");
}

#[test]
fn what_one_key_makes_necessary_or_impossible_in_another_is_said_where_that_one_stands() {
    let file = File::new("cause.yaml", "");
    for (text, expected) in [
        ("workload: {runs: always, stop: {grace: 9s}}", ["signals.onLead (beside workload.runs): nobody tells the workload"]),
        ("workload: {runs: always}", ["workload.acknowledge (beside workload.runs): is required"]),
        ("service: {endpointSlice: a}", ["service.ports (beside service): is empty"]),
        ("service: {ports: [{port: 80}]}", ["service.endpointSlice (beside service): is missing"]),
        (
            "hooks: {beforeFollow: {command: [a]}}\nworkload: {stop: {grace: 10s}}",
            ["hooks.beforeFollow.timeout (beside workload.stop.grace): leaves the workload no time"],
        ),
    ] {
        fs::write(&file.0, text).unwrap();
        let said = problems(&ConfigFlags { lease: Some("x".into()), ..file.flags() }, &[]);
        let line = text.lines().count();
        let is_said =
            |words: &str| said.iter().any(|problem| problem.starts_with(&format!("{}:{line}: {words}", file.0.display())));
        assert!(expected.into_iter().all(is_said), "{said:#?}");
    }
}

#[test]
fn ports_and_addresses_of_another_form_are_refused_in_the_words_of_theirs() {
    let file = File::new("ports.yaml", "");
    for (ports, why) in [
        ("[8080]", "is no list of ports"),
        ("['8080']", "is no list of ports"),
        ("[{name: http, port: '8080'}]", "is no list of ports"),
        ("[{port: 70000}]", "a port is a number from 1 to 65535"),
        ("[{port: 80, prot: TCP}]", "a port has no prot"),
        ("[{}]", "missing field `port`"),
        ("8080", "is no list of ports"),
    ] {
        fs::write(&file.0, format!("service: {{endpointSlice: a, ports: {ports}}}")).unwrap();
        let said = problems(&ConfigFlags { lease: Some("x".into()), ..file.flags() }, &[]);
        let words = format!("{why}: write ports such as [{{ name: http, port: 8080 }}]");
        assert!(said.len() == 1 && said[0].contains(&words), "{said:#?}");
    }
    fs::write(&file.0, "workload: {readiness: {http: {port: 80, host: localhost}}}").unwrap();
    let said = problems(&ConfigFlags { lease: Some("x".into()), ..file.flags() }, &[]);
    assert!(said.len() == 1 && said[0].contains("\"localhost\" is not an IP address: write one such as 127.0.0.1"), "{said:#?}");
}
