//! `tenure step-down`, `pause` and `resume`: what `kubectl annotate` does, with the holder looked up and the outcome waited for.
//!
//! Owns their exit codes. Writes annotations and nothing else, each on the version that was read.

use std::time::Duration;

use http::StatusCode;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::access::{self, Access, on_lease};
use crate::{
    api::CallError,
    cli, clock,
    config::humane,
    console::{answer, complain},
    election::{
        record::{LeaseRecord, LeaseState},
        writes::{PAUSED, STEP_DOWN, STEP_DOWN_TO},
    },
};

const NOT_HELD: u8 = 1;
const ABSENT: u8 = 2;

/// From one look to the next.
const PERIOD: Duration = Duration::from_millis(500);
/// Each renewal is another version: an edit may have to be made again.
const TRIES: usize = 10;

/// What became of an edit.
enum Edited {
    /// As it was read before; it may have been like that.
    Done(LeaseRecord),
    NotHeld,
    Absent,
}

pub(super) fn step_down(asked: &cli::StepDown) -> u8 {
    steer(&asked.lease, async |access, namespace, name| {
        let edited = edit(access, namespace, name, |record, annotations| {
            let holder = record.holder().filter(|_| record.state() == LeaseState::Held)?;
            annotations.insert(STEP_DOWN.into(), holder.into());
            if let Some(candidate) = &asked.to {
                annotations.insert(STEP_DOWN_TO.into(), candidate.as_str().into());
            }
            Some(())
        });
        let before = match edited.await? {
            Edited::Done(record) => record,
            Edited::NotHeld => {
                complain(&format!("nobody holds the Lease {name}"));
                return Ok(NOT_HELD);
            }
            Edited::Absent => return Ok(absent(namespace, name)),
        };
        let holder = before.holder().unwrap_or_default();
        let Some(patience) = asked.wait else {
            return Ok(answer(&format!("{holder} was asked to step down\n"), 0));
        };
        let (until, mut still_holds) = (clock::boot() + patience, false);
        loop {
            // It was asked for already: what cannot be read now may be read the next time.
            match read(access, namespace, name).await {
                Ok(None) => return Ok(absent(namespace, name)),
                Ok(Some(record)) if record.state() == LeaseState::Held && record.acquire_time() != before.acquire_time() => {
                    return Ok(answer(&format!("{} leads\n", record.holder().unwrap_or_default()), 0));
                }
                Err(error) if clock::boot() >= until => return Err(error),
                Ok(Some(record)) => still_holds = record.state() == LeaseState::Held,
                Err(_) => {}
            }
            if clock::boot() >= until {
                let how = if still_holds { "still holds it" } else { "nobody has taken it" };
                complain(&format!("{holder} was asked to step down, and {how} after {}", humane::format(patience)));
                return Ok(NOT_HELD);
            }
            sleep(PERIOD).await;
        }
    })
}

pub(super) fn pause(asked: &cli::Steered, paused: bool) -> u8 {
    steer(asked, async |access, namespace, name| {
        let edited = edit(access, namespace, name, |record, annotations| {
            if record.is_paused() != paused {
                // Whatever else it is, is paused.
                annotations.remove(PAUSED);
                annotations.extend(paused.then(|| (PAUSED.to_owned(), json!("true"))));
            }
            Some(())
        });
        Ok(match edited.await? {
            Edited::Done(record) => {
                let holder = record.holder().filter(|_| record.state() == LeaseState::Held);
                let keeps = holder.map_or_else(String::new, |holder| format!("; {holder} keeps it while it lives"));
                let words = if paused { format!("paused: nobody takes it{keeps}\n") } else { "resumed\n".to_owned() };
                answer(&words, 0)
            }
            Edited::NotHeld | Edited::Absent => absent(namespace, name),
        })
    })
}

fn absent(namespace: &str, name: &str) -> u8 {
    complain(&format!("there is no Lease {name} in namespace {namespace}"));
    ABSENT
}

fn steer(asked: &cli::Steered, act: impl AsyncFnOnce(&Access, &str, &str) -> Result<u8, CallError>) -> u8 {
    access::look(&on_lease(asked.name.clone(), &asked.flags), true, async |config, access, namespace| {
        act(access, namespace, &config.lease.name).await.unwrap_or_else(|error| access.complain(&error, false))
    })
}

async fn read(access: &Access, namespace: &str, name: &str) -> Result<Option<LeaseRecord>, CallError> {
    Ok(access.lease(namespace, name).await?.and_then(|lease| LeaseRecord::read(lease.into())))
}

type Annotations = serde_json::Map<String, Value>;

/// Changes annotations on the version that was read, again and again while others write; `change` says whether it applies.
async fn edit(
    access: &Access,
    namespace: &str,
    name: &str,
    change: impl Fn(&LeaseRecord, &mut Annotations) -> Option<()>,
) -> Result<Edited, CallError> {
    let mut tries = 0;
    loop {
        let Some(lease) = access.lease(namespace, name).await? else { return Ok(Edited::Absent) };
        let Some(record) = LeaseRecord::read(lease.clone().into()) else { return Ok(Edited::Absent) };
        let mut annotations = lease["metadata"]["annotations"].as_object().cloned().unwrap_or_default();
        let before = annotations.clone();
        if change(&record, &mut annotations).is_none() {
            return Ok(Edited::NotHeld);
        }
        if annotations == before {
            return Ok(Edited::Done(record));
        }
        let mut edited = lease;
        edited["metadata"]["annotations"] = annotations.into();
        tries += 1;
        match access.replace(namespace, name, &edited).await {
            Ok(()) => return Ok(Edited::Done(record)),
            Err(error) if error.status() == Some(StatusCode::CONFLICT) && tries < TRIES => {}
            Err(error) => return Err(error),
        }
    }
}
