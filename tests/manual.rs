//! Checks that generated files are current, and that shells and man take what a release ships.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking, and says why")]

use std::{collections::BTreeMap, fs, path::Path, process::Command};

use support::{Scratch, not_run};

#[path = "../examples/manual/pages.rs"]
mod pages;

#[test]
fn what_is_kept_in_the_repository_is_what_the_code_says() {
    for (name, text) in pages::kept() {
        let kept = fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join(&name)).unwrap_or_default();
        assert!(kept == text, "{name} is not current: cargo run --example manual");
    }
}

#[test]
fn nothing_of_the_contract_goes_without_a_word_in_the_changelog() {
    let before = pages::contract::read(
        "key lease.duration: default \"15s\"; takes string\nmetric tenure_terms_total: labels to, reason\n",
    );
    let lost = |now: &str, changelog: &str| pages::contract::broken(&before, &pages::contract::read(now), changelog);
    let all = "key lease.duration: default \"15s\"; takes string\nmetric tenure_terms_total: labels to, reason\nkey new\n";
    let less = "key lease.duration: default \"20s\"; takes string\n";
    let said =
        "# Changelog\n\n## 2.0.0\n\n### Breaking\n\n- `tenure_terms_total` is gone, and `lease.duration` is 20 s.\n\n## 1.0.0\n";
    let earlier =
        "# Changelog\n\n## 2.1.0\n\n### Changed\n\n- `lease.duration`\n\n## 2.0.0\n\n### Breaking\n\n- `tenure_terms_total`\n";

    assert_eq!(lost(all, ""), [""; 0]);
    assert_eq!(lost(less, said), [""; 0]);
    assert_eq!(lost(less, earlier), ["key lease.duration: default \"15s\"", "metric tenure_terms_total"]);
}

#[test]
fn the_contract_has_each_page_of_http_and_the_codes_of_each_command() {
    let contract = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(pages::CONTRACT)).unwrap();

    for line in ["HTTP /", "HTTP /livez", "HTTP /metrics", "command tenure held: exits with 0; exits with 1; exits with 2"] {
        assert!(contract.lines().any(|there| there == line), "{line}");
    }
}

#[test]
fn nothing_of_the_last_version_is_gone_from_the_contract_without_a_word() {
    let top = env!("CARGO_MANIFEST_DIR");
    let git = |arguments: &[&str]| {
        let output =
            Command::new("git").args(arguments).current_dir(top).output().ok().filter(|output| output.status.success())?;
        Some(String::from_utf8(output.stdout).unwrap().trim().to_owned()).filter(|text| !text.is_empty())
    };
    let contract = pages::CONTRACT;
    let release = git(&["describe", "--tags", "--abbrev=0", "--match=v*"]);
    // Before the first release: what stood before the last change of it.
    let last = release.or_else(|| Some(git(&["log", "-n1", "--format=%H", "--", contract])? + "^"));
    let Some(before) = last.and_then(|last| git(&["show", &format!("{last}:{contract}")])) else {
        return not_run("the contract of the last version", "this clone has no history");
    };
    let read = |name: &str| fs::read_to_string(Path::new(top).join(name)).unwrap();

    let (before, now) = (pages::contract::read(&before), pages::contract::read(&read(contract)));

    assert_eq!(pages::contract::broken(&before, &now, &read("CHANGELOG.md")), [""; 0]);
}

/// Calls `with` on every file below this directory whose name ends so.
fn files(directory: &Path, end: &str, with: &mut impl FnMut(&Path, &str)) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, end, with);
        } else if path.to_str().is_some_and(|path| path.ends_with(end)) {
            with(&path, &fs::read_to_string(&path).unwrap());
        }
    }
}

#[test]
fn every_name_of_tenures_own_is_in_the_reference() {
    let top = Path::new(env!("CARGO_MANIFEST_DIR"));
    let reference = fs::read_to_string(top.join("docs/reference.md")).unwrap();
    let mut found = 0;
    files(&top.join("src"), ".rs", &mut |path, source| {
        for line in source.lines().filter(|line| line.contains("const ")) {
            let is_name = |text: &&str| text.contains("tenure.dev/") && *text != "tenure.dev/" && !text.contains(' ');
            let names = line.split('"').nth(1).filter(is_name);
            names.into_iter().for_each(|name| {
                found += 1;
                assert!(reference.contains(&format!("| `{name}")), "{name} of {}", path.display());
            });
        }
    });
    assert!(found > 10, "{found}");
}

#[test]
fn readers_meet_no_law_by_its_number_and_no_deadline_by_its_letter_alone() {
    let top = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut wrong = String::new();
    let mut judge = |path: &Path, text: &str| {
        let mut in_code = false;
        for (at, line) in text.lines().enumerate() {
            in_code ^= line.trim_start().starts_with("```");
            let prose: String = line.split('`').step_by(2).collect();
            let words: Vec<_> = prose.split(|c: char| !c.is_alphanumeric()).collect();
            let is_law = words
                .windows(2)
                .any(|two| two[0].eq_ignore_ascii_case("law") && two[1].starts_with(|c: char| c.is_ascii_digit()));
            let alone = |letter: &str| {
                words.iter().filter(|word| **word == letter).count() > prose.matches(&format!("({letter})")).count()
            };
            if is_law || !in_code && (alone("S") || alone("H")) {
                wrong += &format!("{}:{}: {line}\n", path.display(), at + 1);
            }
        }
    };
    files(&top.join("docs"), ".md", &mut judge);
    for name in ["README.md", "CHANGELOG.md", "SECURITY.md", "config/tenure.yaml"] {
        judge(Path::new(name), &fs::read_to_string(top.join(name)).unwrap());
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn every_picture_is_shown_with_words_is_small_and_can_be_read_on_dark_and_light() {
    let top = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (mut shown, mut wrong) = (BTreeMap::new(), Vec::new());
    let mut look = |path: &Path, text: &str| {
        for (words, file) in text.split("![").skip(1).filter_map(|rest| rest.split_once(')')?.0.split_once("](")) {
            let picture = path.with_file_name(file);
            shown.insert(picture.file_name().unwrap().to_owned(), words.len());
            let drawn = fs::read(&picture).unwrap_or_default();
            let has = |part: &&str| String::from_utf8_lossy(&drawn).contains(*part);
            let is_photo = drawn.starts_with(b"RIFF");
            let is_whole = is_photo || ["<title id=", "<desc id=", "prefers-color-scheme:dark", "</svg>"].iter().all(has);
            if words.len() < 20 || drawn.len() > 30_000 || !is_whole {
                wrong.push(picture);
            }
        }
    };
    files(&top.join("docs"), ".md", &mut look);
    look(&top.join("README.md"), &fs::read_to_string(top.join("README.md")).unwrap());
    for kept in fs::read_dir(top.join("docs/pictures")).unwrap() {
        let name = kept.unwrap().file_name();
        assert!(shown.contains_key(&name), "no page shows {}", name.display());
    }
    assert!(wrong.is_empty() && !shown.is_empty(), "{wrong:?}");
}

#[test]
fn every_table_of_the_documentation_begins_with_a_head() {
    files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("docs"), ".md", &mut |path, text| {
        let lines: Vec<_> = text.lines().collect();
        for three in lines.windows(3).filter(|three| !three[0].starts_with('|') && three[1].starts_with('|')) {
            assert!(three[2].starts_with("|-"), "{}: {}", path.display(), three[1]);
        }
    });
}

#[test]
fn the_file_of_defaults_names_the_schema_beside_it() {
    let defaults = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/config/tenure.yaml")).unwrap();

    let schema = defaults.lines().next().unwrap().strip_prefix("# yaml-language-server: $schema=").unwrap();

    assert!(pages::kept().iter().any(|(name, _)| *name == format!("config/{schema}")), "{schema}");
}

/// The paths of a release's files, in a directory.
fn shipped() -> (Scratch, BTreeMap<String, String>) {
    let scratch = Scratch::new();
    let write = |(name, text): (String, Vec<u8>)| (name.clone(), scratch.file(&name.replace('/', "-"), text));
    let files = pages::shipped().unwrap().into_iter().map(write).collect();
    (scratch, files)
}

#[test]
fn bash_completes_commands_and_flags() {
    let (_scratch, files) = shipped();
    let script = r#"
        . "$0"
        completed() {
            COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMPREPLY=()
            _tenure "$1" "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
            echo "${COMPREPLY[*]}"
        }
        completed tenure st
        completed tenure status --ho
    "#;

    let output = Command::new("bash").args(["--norc", "-c", script]).arg(&files["completions/tenure.bash"]).output().unwrap();

    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!(said, "status step-down\n--holder\n", "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn zsh_and_fish_parse_their_completions() {
    let (_scratch, files) = shipped();
    for (shell, file) in [("zsh", "completions/_tenure"), ("fish", "completions/tenure.fish")] {
        match Command::new(shell).arg("-n").arg(&files[file]).output() {
            Ok(output) => assert!(output.status.success(), "{shell}: {}", String::from_utf8_lossy(&output.stderr)),
            Err(_) => not_run("completions", format!("there is no {shell}")),
        }
    }
}

#[test]
fn every_command_has_a_page_of_the_manual_that_says_what_it_does() {
    let (_scratch, files) = shipped();
    let pages: Vec<_> = files.keys().filter(|name| name.starts_with("man/")).collect();
    assert!(pages.len() > 10 && files.contains_key("man/tenure-config-effective.1"), "{pages:?}");
    assert!(!files.contains_key("man/tenure-demo-cell.1"), "it is hidden");

    let page = fs::read_to_string(&files["man/tenure-step-down.1"]).unwrap();

    for words in [".TH tenure-step-down 1", "Ask the holder of a Lease", "\\fB\\-\\-to\\fR"] {
        assert!(page.contains(words), "{words} is not in\n{page}");
    }
}
