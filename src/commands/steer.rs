//! `tenure step-down`, `pause` and `resume`: what `kubectl annotate` does, with the holder looked up and the outcome waited for.
//! `tenure confirm-dead`: a witness's write (law 20), on the word of an operator.
//!
//! Owns their exit codes. What they write, and how long confirm-dead watches first, is decided in [`operator`], on the version that
//! was read.

use std::time::Duration;

use serde_json::Value;
use tokio::time::sleep;

use super::{
    access::{self, Access, on_lease},
    seen::{HEAD, Seen, candidates},
    table,
};
use crate::{
    alarm::sleep_until,
    cli::{self, Output},
    clock,
    config::{Config, LeaseConfig, duration},
    console::{answer, complain},
    election::{
        record::{LeaseRecord, LeaseState},
        writes::{
            base_of,
            operator::{self, ConfirmDead, Confirmation, Edit},
        },
    },
    exit,
    request::RequestError,
    words::bounded,
};

const NOT_HELD: u8 = 1;
const ABSENT: u8 = 2;

/// From one look to the next.
const PERIOD: Duration = Duration::from_millis(500);
/// Each renewal is another version: an edit may have to be made again.
const TRIES: usize = 10;

/// What a command says that has succeeded, or the exit code of one that has said why not.
type Steered = Result<String, u8>;

/// The result of an edit.
enum Edited {
    /// As it was read before; it may have been like that.
    Done(LeaseRecord),
    NotHeld,
    Absent,
}

pub(super) fn step_down(asked: &cli::StepDown) -> u8 {
    steer(&asked.lease, async |access, namespace, Config { lease: LeaseConfig { name, .. }, .. }| {
        let lease = access.lease(namespace, name).await?;
        let record = lease.clone().and_then(|lease| LeaseRecord::read(lease.into()));
        if !asked.force && record.is_some_and(|record| record.state() == LeaseState::Held && record.is_paused()) {
            complain(&format!(
                "the Lease {name} is paused: nobody takes it before `tenure resume`; --force asks its holder all the same"
            ));
            return Ok(Err(exit::INVALID));
        }
        let successor = match (&asked.to, lease) {
            (Some(written), Some(lease)) => match successor(&lease, written) {
                Ok(identity) => Some(identity),
                Err(refusal) => {
                    complain(&format!("--to {written}: {refusal}"));
                    return Ok(Err(exit::INVALID));
                }
            },
            (Some(_), None) | (None, _) => None,
        };
        let edited = edit(access, namespace, name, |record| operator::step_down(record, successor.as_deref()));
        let before = match edited.await? {
            Edited::Done(record) => record,
            Edited::NotHeld => {
                complain(&format!("nobody holds the Lease {name}"));
                return Ok(Err(NOT_HELD));
            }
            Edited::Absent => return Ok(Err(absent(namespace, name))),
        };
        let holder = bounded(before.holder().unwrap_or_default());
        let Some(patience) = asked.wait else {
            return Ok(Ok(format!("{holder} was asked to step down")));
        };
        let (until, mut still_holds) = (clock::boot() + patience, false);
        loop {
            // It was asked for already: what cannot be read now may be read the next time.
            match read(access, namespace, name).await {
                Ok(None) => return Ok(Err(absent(namespace, name))),
                Ok(Some(record)) if record.state() == LeaseState::Held && record.acquire_time() != before.acquire_time() => {
                    return Ok(Ok(format!("{} leads", bounded(record.holder().unwrap_or_default()))));
                }
                Err(error) if clock::boot() >= until => return Err(error),
                Ok(Some(record)) => still_holds = record.state() == LeaseState::Held,
                Err(_) => {}
            }
            if clock::boot() >= until {
                let how = if still_holds { "still holds it" } else { "nobody has taken it" };
                complain(&format!("{holder} was asked to step down, and {how} after {}", duration::format(patience)));
                return Ok(Err(NOT_HELD));
            }
            sleep(PERIOD).await;
        }
    })
}

/// Finds the replica that is meant: by its full identity or, where candidates announce themselves, by a base that one of them has.
fn successor(lease: &Value, written: &str) -> Result<String, String> {
    let holder = lease.pointer("/spec/holderIdentity").and_then(Value::as_str).unwrap_or_default();
    let is_meant = |identity: &str| identity == written || base_of(identity) == written;
    if is_meant(holder) {
        return Err("it holds the Lease already".into());
    }
    let candidates = candidates(lease);
    let announced: Vec<_> = candidates.iter().filter_map(|candidate| candidate["identity"].as_str()).collect();
    let meant: Vec<_> = announced.iter().filter(|identity| is_meant(identity)).collect();
    match (meant.as_slice(), announced.as_slice()) {
        ([identity], _) => Ok((**identity).to_owned()),
        ([], []) if cli::is_full_identity(written) => {
            complain(&format!(
                "no replica announces itself (lease.announce): if {written} does not run, the others wait for lease.renewPeriod and lease.attemptTimeout all the same"
            ));
            Ok(written.to_owned())
        }
        ([], []) => Err("write the full identity of a replica, NAME_ and 32 hex digits, as in its log".into()),
        ([], _) => Err(format!("no such candidate: there are {}", bounded(&announced.join(", ")))),
        (several, _) => Err(format!("{} candidates have that name: write a full identity", several.len())),
    }
}

pub(super) fn pause(asked: &cli::Steered, paused: bool) -> u8 {
    steer(asked, async |access, namespace, Config { lease: LeaseConfig { name, .. }, .. }| {
        let edited = edit(access, namespace, name, |record| operator::pause(record, paused));
        Ok(match edited.await? {
            Edited::Done(record) => {
                let holder = record.holder().filter(|_| record.state() == LeaseState::Held).map(bounded);
                let keeps = holder.map_or_else(String::new, |holder| {
                    format!("; {holder} keeps it while it lives, and if it restarts nothing runs before `tenure resume`")
                });
                Ok(if paused { format!("paused: nobody takes it{keeps}") } else { "resumed".into() })
            }
            Edited::NotHeld | Edited::Absent => Err(absent(namespace, name)),
        })
    })
}

pub(super) fn confirm_dead(asked: &cli::ConfirmDead) -> u8 {
    steer(&asked.lease, async |access, namespace, config| release_dead(config, access, namespace, asked).await)
}

async fn release_dead(
    config: &Config,
    access: &Access,
    namespace: &str,
    asked: &cli::ConfirmDead,
) -> Result<Steered, RequestError> {
    let (name, holder) = (&config.lease.name, &asked.holder);
    let (mut confirm, mut tries) = (ConfirmDead::new(holder.clone(), config.clone().into(), asked.run_again), 0);
    loop {
        let Some(record) = read(access, namespace, name).await? else { return Ok(Err(absent(namespace, name))) };
        let write = match confirm.look(record, clock::wall()) {
            Confirmation::NotHeld(other) => {
                let other = bounded(other.as_deref().unwrap_or("nobody"));
                complain(&format!("{holder} does not hold the Lease {name}: {other} does"));
                return Ok(Err(NOT_HELD));
            }
            Confirmation::NamesAnother(named) => {
                let named = bounded(&named);
                complain(&format!(
                    "tenure.dev/holder of the Lease {name} names {named}, which may still run: wait for lease.duration"
                ));
                return Ok(Err(NOT_HELD));
            }
            Confirmation::Repeats => {
                complain(&format!(
                    "{name} is the Lease of a task: its next run comes without this; --run-again repeats the last one"
                ));
                return Ok(Err(exit::INVALID));
            }
            Confirmation::Watch(span) => {
                complain(&format!(
                    "believes you that no process of {holder} runs any more; watches the Lease {name} for {} first",
                    duration::format(span)
                ));
                sleep_until(clock::boot() + span).await;
                continue;
            }
            Confirmation::Renewed => {
                complain(&format!("{holder} renews the Lease {name}: it is not dead"));
                return Ok(Err(exit::HELD));
            }
            Confirmation::Write(write) => write,
        };
        tries += 1;
        match access.write(namespace, name, &write).await {
            Ok(()) if asked.run_again => return Ok(Ok(format!("the Lease {name} is released: the run is repeated"))),
            Ok(()) => return Ok(Ok(format!("the Lease {name} is released"))),
            // A renewal is seen by the next read; an annotation of somebody else's changes nothing.
            Err(error) if error.status == Some(409) && tries < TRIES => {}
            Err(error) => return Err(error),
        }
    }
}

fn absent(namespace: &str, name: &str) -> u8 {
    complain(&format!("there is no Lease {name} in namespace {namespace}"));
    ABSENT
}

fn steer(asked: &cli::Steered, act: impl AsyncFnOnce(&Access, &str, &Config) -> Result<Steered, RequestError>) -> u8 {
    access::look(&on_lease(asked.name.clone(), &asked.flags), true, async |config, access, namespace| {
        let LeaseConfig { name, duration, .. } = &config.lease;
        access.announce(&format!("Lease {namespace}/{name}"));
        let done = async {
            let words = match act(access, namespace, config).await? {
                Ok(words) => words,
                Err(code) => return Ok(code),
            };
            let Some(form) = asked.output else { return Ok(answer(&(words + "\n"), 0)) };
            // It was changed, whatever becomes of the look at it.
            let lease = access.lease(namespace, name).await.inspect_err(|_| complain(&words))?;
            let Some(lease) = lease else {
                complain(&words);
                return Ok(absent(namespace, name));
            };
            let line = Seen::at(clock::timestamp(), &lease, *duration).line(false, form == Output::Wide);
            Ok(answer(&table::shown(form, false, HEAD, &[line]), 0))
        };
        done.await.unwrap_or_else(|error| access.complain(&error, false))
    })
}

async fn read(access: &Access, namespace: &str, name: &str) -> Result<Option<LeaseRecord>, RequestError> {
    Ok(access.lease(namespace, name).await?.and_then(|lease| LeaseRecord::read(lease.into())))
}

/// Edits the version that was read, again and again while others write.
async fn edit(
    access: &Access,
    namespace: &str,
    name: &str,
    change: impl Fn(&LeaseRecord) -> Edit,
) -> Result<Edited, RequestError> {
    let mut tries = 0;
    loop {
        let Some(record) = read(access, namespace, name).await? else { return Ok(Edited::Absent) };
        let write = match change(&record) {
            Edit::NotHeld => return Ok(Edited::NotHeld),
            Edit::Unchanged => return Ok(Edited::Done(record)),
            Edit::Write(write) => write,
        };
        tries += 1;
        match access.write(namespace, name, &write).await {
            Ok(()) => return Ok(Edited::Done(record)),
            Err(error) if error.status == Some(409) && tries < TRIES => {}
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const RANDOM: &str = "0123456789abcdef0123456789abcdef";

    fn lease(candidates: &[&str]) -> Value {
        let announced = candidates.iter().enumerate().map(|(at, name)| {
            let text = json!({ "identity": format!("{name}_{RANDOM}") }).to_string();
            (format!("candidate.tenure.dev/{at}"), json!(text))
        });
        let annotations: serde_json::Map<_, _> = announced.collect();
        json!({ "metadata": { "annotations": annotations }, "spec": { "holderIdentity": format!("a_{RANDOM}") } })
    }

    #[test]
    fn a_successor_is_named_in_full_or_by_the_base_that_one_candidate_has() {
        let full = format!("b_{RANDOM}");
        assert_eq!(successor(&lease(&["b", "c"]), "b"), Ok(full.clone()));
        assert_eq!(successor(&lease(&["b", "c"]), &full), Ok(full.clone()));
        assert_eq!(successor(&lease(&[]), &full), Ok(full));
    }

    #[test]
    fn a_successor_that_leads_or_that_nobody_knows_is_refused() {
        let refusal = |lease: &Value, written: &str| successor(lease, written).unwrap_err();
        assert_eq!(refusal(&lease(&["b"]), &format!("a_{RANDOM}")), "it holds the Lease already");
        assert_eq!(refusal(&lease(&["b"]), "a"), "it holds the Lease already");
        assert_eq!(refusal(&lease(&["b"]), "x"), format!("no such candidate: there are b_{RANDOM}"));
        assert!(refusal(&lease(&["b", "b"]), "b").contains("2 candidates have that name"));
        assert!(refusal(&lease(&[]), "b").contains("full identity"));
    }
}
