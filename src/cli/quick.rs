//! A fast path for the line that starts a container: clap takes a quarter of a millisecond to build all faces.
//!
//! Owns no rule of its own: what it accepts it parses as clap does, which a test checks, and everything else is left to clap.

use std::ffi::{OsStr, OsString};

use super::{Face, Run, Settings};

/// The face of a line that runs a workload or is the elector's; `None` for any other, including mistakes and help.
pub(super) fn parse(line: &[OsString]) -> Option<Face> {
    let mut words = line.iter().map(OsString::as_os_str).skip(1).peekable();
    if words.next_if_eq(&OsStr::new("elector")).is_some() {
        return words.next().is_none().then_some(Face::Elector);
    }
    words.next_if_eq(&OsStr::new("run"));
    let mut run = Run::default();
    while let Some(word) = words.next() {
        let word = word.to_str()?;
        if word == "--" {
            run.command = words.map(|word| word.to_str().map(String::from)).collect::<Option<_>>()?;
            break;
        }
        let (name, value) = match word.split_once('=') {
            Some((name, value)) => (name, value),
            None => (word, words.next()?.to_str().filter(|value| !value.starts_with('-'))?),
        };
        set(&mut run.settings, name, value)?;
    }
    Some(Face::Run(run))
}

/// `None` if there is no such flag, it was given already, or clap refuses the value.
fn set(settings: &mut Settings, name: &str, value: &str) -> Option<()> {
    let place = match name {
        "--set" => {
            settings.set.push(value.into());
            return Some(());
        }
        "--config" if value.is_empty() => return None,
        "--config" => return settings.config.replace(value.into()).is_none().then_some(()),
        "--lease" => &mut settings.lease,
        "--namespace" => &mut settings.namespace,
        "--identity" => &mut settings.identity,
        "--lease-duration" => &mut settings.lease_duration,
        "--log-level" => &mut settings.log_level,
        "--log-format" => &mut settings.log_format,
        "--leader-election" => &mut settings.leader_election,
        _ => return None,
    };
    place.replace(value.into()).is_none().then_some(())
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::{
        super::{Line, Named},
        *,
    };

    fn clap(line: &[OsString]) -> Option<Run> {
        let line = Line::try_parse_from(line).ok()?;
        match line.face {
            None => Some(line.run),
            Some(Named::Run(run)) => Some(run),
            Some(_) => None,
        }
    }

    /// Every line of up to four of these words, in any order.
    fn lines() -> Vec<Vec<OsString>> {
        const WORDS: &[&str] = &[
            "run",
            "check",
            "elector",
            "--",
            "--lease",
            "--lease=x",
            "--lease=",
            "x",
            "",
            "-",
            "-5",
            "--set",
            "--set=a=b",
            "--config",
            "--config=f",
            "--leader-election=off",
            "--leese=x",
            "--help",
            "-h",
            "=",
        ];
        let mut lines: Vec<Vec<OsString>> = vec![vec!["tenure".into()]];
        let mut from = 0;
        for _ in 0..3 {
            let until = lines.len();
            for at in from..until {
                for word in WORDS {
                    let mut line = lines[at].clone();
                    line.push(word.into());
                    lines.push(line);
                }
            }
            from = until;
        }
        lines
    }

    #[test]
    fn what_the_short_way_takes_it_takes_as_clap_does() {
        let mut taken = 0;
        for line in lines() {
            let Some(Face::Run(run)) = parse(&line) else { continue };
            taken += 1;
            assert_eq!(Some(run), clap(&line), "{line:?}");
        }
        assert!(taken > 500, "{taken}");
    }

    #[test]
    fn every_flag_is_taken_in_both_forms() {
        let flags = [
            "--config",
            "--lease",
            "--namespace",
            "--identity",
            "--lease-duration",
            "--log-level",
            "--log-format",
            "--leader-election",
            "--set",
        ];
        let apart = flags.iter().flat_map(|flag| [OsString::from(flag), "v".into()]);
        let joined = flags.iter().map(|flag| OsString::from(format!("{flag}=v")));
        let program = || std::iter::once(OsString::from("tenure"));
        for line in [program().chain(apart).collect::<Vec<_>>(), program().chain(joined).collect()] {
            let Some(Face::Run(run)) = parse(&line) else { panic!("{line:?} is not taken") };
            assert_eq!(Some(run), clap(&line));
        }
        let help = Line::try_parse_from(["tenure", "--help"]).err().map(|shown| shown.to_string()).unwrap_or_default();
        let known = help.matches("\n      --").count();
        assert_eq!(known, flags.len(), "a flag that the short way does not know costs its time: {help}");
    }

    #[test]
    fn the_elector_is_alone() {
        assert!(matches!(parse(&["tenure".into(), "elector".into()]), Some(Face::Elector)));
        assert!(parse(&["tenure".into(), "elector".into(), "x".into()]).is_none());
    }
}
