//! The layers together, by the tables in `tests/`; and the types on the link.
//!
//! A table holds cases, one a line; what tenure answers stands below, indented:
//!
//! ```text
//! # The rule that the cases below are about.
//! workload.stop.signal=SIGKILL lease.name?
//! | lease: { name: x }
//!     FILE:1: what is said
//! ```
//!
//! A case is a command line, into which its table's last line `: WORDS` puts it for `CASE`. There, `lease.name=x` stands for
//! `--set lease.name=x`, `TENURE_LEASE__NAME=x` for a variable of the environment, `FILE` for a file with the lines after `|`, and
//! `{a*9}` for nine of them. `lease.name?` shows what became of a key and where that came from, `?` every key that is not its default.
//! With `TENURE_UPDATE` set the answers are written, not compared.

use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use super::{keys::KEYS, load::load_from, *};
use crate::{
    cli::{self, ConfigFlags, Face},
    config::*,
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
}

impl Drop for File {
    fn drop(&mut self) {
        drop(fs::remove_file(&self.0));
    }
}

#[test]
fn every_case_of_the_tables_has_its_answer() {
    let tables = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/loading/tests");
    let (mut cases, mut wrong) = (0, String::new());
    for table in fs::read_dir(tables).unwrap().map(|entry| entry.unwrap().path()) {
        let text = fs::read_to_string(&table).unwrap();
        let (mut template, mut updated) = ("CASE", String::new());
        let mut lines = text.lines().enumerate().peekable();
        while let Some((at, line)) = lines.next() {
            updated += &format!("{line}\n");
            if let Some(words) = line.strip_prefix(": ") {
                template = words;
            }
            if line.is_empty() || line.starts_with(['#', ':']) {
                continue;
            }
            let mut below = |start: &str| -> Vec<&str> {
                std::iter::from_fn(|| lines.next_if(|(_, line)| line.starts_with(start)))
                    .map(|(_, line)| &line[start.len()..])
                    .collect()
            };
            let (file, expected) = (below("| "), below("    "));
            let said = answer(&template.replace("CASE", line), &file.join("\n"));
            file.iter().for_each(|line| updated += &format!("| {line}\n"));
            said.iter().for_each(|line| updated += &format!("    {line}\n"));
            if said != expected {
                let place = format!("{}:{}", table.display(), at + 1);
                wrong += &format!("{place}: {line}\n  is answered {said:#?}\n  and not {expected:#?}\n");
            }
            cases += 1;
        }
        if std::env::var_os("TENURE_UPDATE").is_some() {
            fs::write(&table, updated).unwrap();
        }
    }
    assert!(wrong.is_empty() && cases > 300, "{wrong}of {cases} cases");
}

/// Returns the answer to this command line with this file.
fn answer(line: &str, file: &str) -> Vec<String> {
    let file = File::new("case.yaml", file);
    let path = file.0.to_str().unwrap();
    let (mut typed, mut variables, mut shown) = (vec!["tenure".to_owned()], Vec::new(), Vec::new());
    for word in words(line).into_iter().map(|word| many(&word).replace("FILE", path)) {
        match (word.split_once('='), word.strip_suffix('?')) {
            (_, Some(key)) => shown.push(key.to_owned()),
            (Some((name, value)), None) if name.starts_with("TENURE_") => variables.push((name.into(), value.into())),
            (Some(_), None) if !word.starts_with('-') => typed.extend(["--set".into(), word]),
            (_, None) => typed.push(word),
        }
    }
    let Ok(Face::Run(run)) = cli::parse(typed.iter().map(OsString::from)) else {
        panic!("{line}: no command that runs anything")
    };
    let said: Vec<_> = match load_from(&run.flags, &run.command, Purpose::Run, &variables) {
        Err(invalid) => invalid.problems.iter().map(ToString::to_string).collect(),
        Ok(loaded) => {
            let notes = loaded.notes.iter().map(|note| format!("note: {note}"));
            notes.chain(shown.iter().flat_map(|key| show(&loaded, key))).collect()
        }
    };
    said.iter().map(|line| few(&line.replace(path, "FILE"))).collect()
}

/// The value of a key and its source; without a key, those of every one that is not its default.
fn show(loaded: &Loaded, key: &str) -> Vec<String> {
    let [config, defaults] = [&loaded.config, &Config::default()].map(|config| serde_json::to_value(config).unwrap());
    let pointer = |key: &str| format!("/{}", key.replace('.', "/"));
    let line = |key: &str| format!("{key}: {} # {}", config.pointer(&pointer(key)).unwrap(), loaded.sources(key));
    match key {
        "preset" => vec![format!("preset: {:?}", loaded.preset)],
        "" => {
            let changed = |key: &&str| config.pointer(&pointer(key)) != defaults.pointer(&pointer(key));
            KEYS.iter().map(|key| &*key.path).filter(changed).map(line).collect()
        }
        key => vec![line(key)],
    }
}

/// The words of a line; one in single quotes may have blanks in it.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut quoted) = (vec![String::new()], false);
    for c in line.chars() {
        match c {
            '\'' => quoted = !quoted,
            ' ' if !quoted => words.push(String::new()),
            c => words.last_mut().unwrap().push(c),
        }
    }
    words
}

/// `{a*3}` as `aaa`.
fn many(text: &str) -> String {
    let Some((before, rest)) = text.split_once("{a*") else { return text.into() };
    let (times, after) = rest.split_once('}').unwrap();
    format!("{before}{}{}", "a".repeat(times.parse().unwrap()), many(after))
}

/// The reverse, of as many as nobody counts.
fn few(text: &str) -> String {
    let Some(start) = text.find(&"a".repeat(20)) else { return text.into() };
    let rest = text[start..].trim_start_matches('a');
    format!("{}{{a*{}}}{}", &text[..start], text.len() - start - rest.len(), few(rest))
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
    assert_eq!(json["workload"]["stop"]["lossGrace"], "3.5s");
    assert_eq!(json["signals"]["rewrite"]["leader"], serde_json::json!({ "SIGHUP": null }));
}

#[test]
fn the_file_is_the_flags_or_the_variables() {
    let (ours, other) = (File::new("ours.yaml", "lease: {name: ours}"), File::new("other.yaml", "lease: {name: other}"));
    let named = [("TENURE_CONFIG".into(), other.0.clone().into())];
    for (flag, name) in [(Some(ours.0.clone()), "ours"), (None, "other")] {
        let flags = ConfigFlags { config: flag, ..ConfigFlags::default() };
        assert_eq!(load_from(&flags, &["sleep".into()], Purpose::Run, &named).unwrap().config.lease.name, name);
    }
}

#[test]
fn what_is_not_utf_8_is_refused_by_name() {
    use std::os::unix::ffi::OsStringExt as _;
    let variables = [(OsString::from("TENURE_LEASE__NAME"), OsString::from_vec(vec![0xff]))];
    let invalid = load_from(&ConfigFlags::default(), &["sleep".into()], Purpose::Run, &variables).unwrap_err();
    assert_eq!(
        invalid.to_string().lines().nth(1),
        Some("  TENURE_LEASE__NAME: lease.name: the value is not UTF-8: write it in UTF-8")
    );
}

#[test]
fn every_reason_is_counted_and_on_a_line_of_its_own() {
    let flags = ConfigFlags { log_level: Some("loud".into()), ..ConfigFlags::default() };
    let invalid = load_from(&flags, &[], Purpose::Run, &[]).unwrap_err().to_string();
    assert!(invalid.starts_with("the configuration is refused for 3 reasons:\n  ") && invalid.lines().count() == 4, "{invalid}");
}

#[test]
fn nothing_in_a_reason_moves_the_terminal_or_begins_a_line() {
    let file = File::new("odd.yaml", "\"a\\e[31mb\\nERROR forged\": 1\n");
    let flags =
        ConfigFlags { config: Some(file.0.clone()), set: vec!["b\u{1b}[0m\nERROR forged=1".into()], ..ConfigFlags::default() };

    let invalid = load_from(&flags, &["sleep".into()], Purpose::Look, &[]).unwrap_err().to_string();

    let lines: Vec<_> = invalid.lines().skip(1).map(|line| line.split(": ").nth(1).unwrap()).collect();
    assert_eq!(lines, ["a\u{fffd}[31mb ERROR forged", "there is no such key"], "{invalid:?}");
    assert!(!invalid.contains('\u{1b}'), "{invalid:?}");
}

#[test]
fn what_a_terminal_would_obey_is_escaped_in_the_effective_configuration_and_read_again() {
    let odd = "a\u{1b}\u{9b}31m\u{202e}b\u{200b}c\u{e0041}\u{7f}";
    let flags = ConfigFlags { lease: Some("x".into()), set: vec![format!("workload.env.ODD={odd}")], ..ConfigFlags::default() };
    let loaded = load_from(&flags, &["sleep".into(), odd.into()], Purpose::Run, &[]).unwrap();

    let text = loaded.effective(false);

    assert!(!text.replace('\n', "").contains(crate::words::is_unseen), "{text:?}");
    let file = File::new("effective.yaml", &text);
    let again = load_from(&ConfigFlags { config: Some(file.0.clone()), ..ConfigFlags::default() }, &[], Purpose::Run, &[]);
    assert_eq!(again.unwrap().config, loaded.config);
}
