//! `tenure step-down`, `pause` and `resume`: what `kubectl annotate` does, with the holder looked up and the outcome waited for.
//! `tenure confirm-dead`: a witness's write (law 20), on the word of an operator.
//!
//! Owns their exit codes. What they write, and how long confirm-dead watches first, is decided in [`operator`], on the version that
//! was read.

use std::time::Duration;

use serde_json::Value;
use tokio::time::sleep;

use super::{
    Ended,
    access::{self, Access, names_one, on_lease},
    seen::{HEAD, Seen, candidates},
    table,
};
use crate::{
    alarm::sleep_until,
    cli::{self, Output},
    clock,
    config::{Config, duration},
    console::{answer, complain, refuse},
    election::{
        record::{LeaseRecord, LeaseState},
        writes::{
            HOLDER, LeaseWrite, base_of,
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

/// Why a command ends without success.
enum End {
    /// With this exit code, and why.
    Refused(u8, String),
    Failed(RequestError),
}

impl From<RequestError> for End {
    fn from(error: RequestError) -> Self {
        Self::Failed(error)
    }
}

/// The Lease that is steered.
struct Target<'a> {
    access: &'a Access,
    config: &'a Config,
    namespace: &'a str,
    name: &'a str,
}

impl Target<'_> {
    async fn read(&self) -> Result<LeaseRecord, End> {
        let Self { access, namespace, name, .. } = self;
        if let Some(lease) = access.lease(namespace, name).await? {
            return Ok(lease);
        }
        let absent = || format!("there is no Lease {name} in namespace {namespace}");
        Err(End::Refused(ABSENT, access.lacks_namespace(namespace).await.unwrap_or_else(absent)))
    }

    /// Writes the version that was read. Returns false if others have written since: it is to be read and judged again.
    async fn write(&self, write: &LeaseWrite, tries: &mut usize) -> Result<bool, End> {
        *tries += 1;
        match self.access.write(self.namespace, self.name, write).await {
            Err(error) if error.status == Some(409) && *tries < TRIES => Ok(false),
            written => Ok(written.map(|()| true)?),
        }
    }

    /// Edits the version that was read, again and again while others write. Returns it as it was before; it may have been like that.
    async fn edit(&self, change: impl Fn(&LeaseRecord) -> Result<Edit, End>) -> Result<LeaseRecord, End> {
        let mut tries = 0;
        loop {
            let record = self.read().await?;
            match change(&record)? {
                Edit::NotHeld => return Err(End::Refused(NOT_HELD, format!("nobody holds the Lease {}", self.name))),
                Edit::Write(write) if !self.write(&write, &mut tries).await? => {}
                Edit::Write(_) | Edit::Unchanged => return Ok(record),
            }
        }
    }
}

/// Says so where a wish was written for somebody who does not read it.
fn warn_unheeded(record: &LeaseRecord) {
    if let (LeaseState::Held, Some(holder)) = (record.state(), record.holder())
        && record.annotation(HOLDER) != Some(holder)
    {
        let who = bounded(holder);
        complain(&format!("{HOLDER} does not name {who}: a client other than tenure does not heed this"));
    }
}

pub(super) fn step_down(asked: &cli::StepDown) -> Ended {
    if let (Some(name), Some(_)) = (&asked.lease.name, asked.wait)
        && duration::parse(name).is_ok()
    {
        complain(&format!("{name} is taken for the name of the Lease: to wait that long, write --wait={name}"));
    }
    steer(&asked.lease, async |lease| {
        let (first, name) = (lease.read().await?, lease.name);
        let refused = |to: &str, why: String| End::Refused(exit::INVALID, format!("--to {to}: {why}"));
        let find = |to: &String| successor(first.object(), to).map_err(|why| refused(to, why));
        let successor = asked.to.as_ref().map(find).transpose()?;
        // The operator wants the leader of the first read to go, not one whose term has begun since.
        let is_done = |record: &LeaseRecord| {
            let leads = record.state() == LeaseState::Held && has_begun(record, &first);
            leads && successor.as_deref().is_none_or(|wanted| record.is_held_by(wanted))
        };
        let change = |record: &LeaseRecord| {
            if is_done(record) {
                return Ok(Edit::Unchanged);
            }
            if !asked.force && record.state() == LeaseState::Held && record.is_paused() {
                let why = "nobody takes it before `tenure resume`; --force asks its holder all the same";
                return Err(End::Refused(exit::INVALID, format!("the Lease {name} is paused: {why}")));
            }
            Ok(operator::step_down(record, successor.as_deref()))
        };
        let before = lease.edit(change).await?;
        let holder = bounded(before.holder().unwrap_or_default());
        if is_done(&before) {
            return Ok(format!("{holder} leads"));
        }
        warn_unheeded(&before);
        let Some(patience) = asked.wait else { return Ok(format!("{holder} was asked to step down")) };
        let (until, mut still_holds) = (clock::boot() + patience, false);
        loop {
            // It was asked for already: what cannot be read now may be read the next time.
            match lease.read().await {
                Ok(record) if has_begun(&record, &before) => {
                    let leader = record.holder().filter(|_| record.state() == LeaseState::Held);
                    let over = || "another term has begun, and is over".to_owned();
                    return Ok(leader.map_or_else(over, |leader| format!("{} leads", bounded(leader))));
                }
                Ok(record) => still_holds = record.state() == LeaseState::Held,
                Err(End::Failed(_)) if clock::boot() < until => {}
                Err(end) => return Err(end),
            }
            if clock::boot() >= until {
                let how = if still_holds { "still holds it" } else { "nobody has taken it" };
                let after = duration::format(patience);
                return Err(End::Refused(NOT_HELD, format!("{holder} was asked to step down, and {how} after {after}")));
            }
            sleep(PERIOD).await;
        }
    })
}

/// Returns true if a term has begun since another look, even if it is over: that of a lock may be shorter than the time between two looks.
fn has_begun(record: &LeaseRecord, since: &LeaseRecord) -> bool {
    let has_changed = record.state() == LeaseState::Held || record.transitions() > since.transitions();
    has_changed && record.acquire_time() != since.acquire_time()
}

/// Finds the replica that is meant: by its full identity or, where candidates announce themselves, by its base. Of several with that base
/// it is the one that announced itself last: a restart leaves the announcement of the run before.
fn successor(lease: &Value, written: &str) -> Result<String, String> {
    let holder = lease.pointer("/spec/holderIdentity").and_then(Value::as_str).unwrap_or_default();
    let is_meant = |identity: &str| identity == written || base_of(identity) == written;
    if is_meant(holder) {
        return Err("it holds the Lease already".into());
    }
    let candidates = candidates(lease);
    let identities = candidates.iter().filter_map(|candidate| Some((candidate["at"].as_str(), candidate["identity"].as_str()?)));
    let meant = identities.clone().filter(|(_, identity)| is_meant(identity)).max();
    match (meant, &*candidates) {
        (Some((_, identity)), _) => Ok(identity.to_owned()),
        (None, []) if cli::is_full_identity(written) => {
            complain(&format!(
                "no replica announces itself (lease.announce): if {written} does not run, the others wait for lease.renewPeriod and lease.attemptTimeout all the same"
            ));
            Ok(written.to_owned())
        }
        (None, []) => Err("write the full identity of a replica, NAME_ and 32 hex digits, as in its log".into()),
        (None, _) => {
            let announced: Vec<_> = identities.map(|(_, identity)| identity).collect();
            Err(format!("no such candidate: there are {}", bounded(&announced.join(", "))))
        }
    }
}

pub(super) fn pause(asked: &cli::Steered, paused: bool) -> Ended {
    steer(asked, async |lease| {
        let record = lease.edit(|record| Ok(operator::pause(record, paused))).await?;
        if paused {
            warn_unheeded(&record);
        }
        let holder = record.holder().filter(|_| record.state() == LeaseState::Held).map(bounded);
        let keeps = holder.map_or_else(String::new, |holder| {
            format!("; {holder} keeps it while it lives, and if it restarts nothing runs before `tenure resume`")
        });
        Ok(if paused { format!("paused: nobody takes it{keeps}") } else { "resumed".into() })
    })
}

pub(super) fn confirm_dead(asked: &cli::ConfirmDead) -> Ended {
    steer(&asked.lease, async |lease| {
        let (name, holder) = (lease.name, &asked.holder);
        let (mut confirm, mut tries) = (ConfirmDead::new(holder.clone(), lease.config.clone().into(), asked.run_again), 0);
        loop {
            let (code, why) = match confirm.look(lease.read().await?, clock::wall()) {
                Confirmation::NotHeld(other) => {
                    let other = bounded(other.as_deref().unwrap_or("nobody")).into_owned();
                    (NOT_HELD, format!("{holder} does not hold the Lease {name}: {other} does"))
                }
                Confirmation::NamesAnother(named) => {
                    let why = format!("names {}, which may still run: wait for lease.duration", bounded(&named));
                    (NOT_HELD, format!("tenure.dev/holder of the Lease {name} {why}"))
                }
                Confirmation::Repeats => {
                    let why = "its next run comes without this; --run-again repeats the last one";
                    (exit::INVALID, format!("{name} is the Lease of a task: {why}"))
                }
                Confirmation::Renewed => (exit::HELD, format!("{holder} renews the Lease {name}: it is not dead")),
                Confirmation::Watch(span) => {
                    let first = format!("watches the Lease {name} for {} first", duration::format(span));
                    complain(&format!("believes you that no process of {holder} runs any more; {first}"));
                    sleep_until(clock::boot() + span).await;
                    continue;
                }
                // A renewal is seen by the next read; an annotation of somebody else's changes nothing.
                Confirmation::Write(write) if !lease.write(&write, &mut tries).await? => continue,
                Confirmation::Write(_) => {
                    let repeats = if asked.run_again { ": the run is repeated" } else { "" };
                    return Ok(format!("the Lease {name} is released{repeats}"));
                }
            };
            return Err(End::Refused(code, why));
        }
    })
}

fn steer(asked: &cli::Steered, act: impl AsyncFnOnce(&Target<'_>) -> Result<String, End>) -> Ended {
    let flags = on_lease(asked.name.clone(), &asked.flags);
    access::look(&flags, true, async |config, access, namespace| {
        if config.lease.slots > 1 && !names_one(&flags) {
            let slots = config.lease.names().collect::<Vec<_>>().join(", ");
            let why = format!("several replicas may run at a time: name one of {slots}, without lease.prefix if one is set");
            return Err(refuse(exit::INVALID, &why));
        }
        let lease = Target { access, config, namespace, name: &config.lease.name };
        access.announce(&format!("Lease {namespace}/{}", lease.name));
        let done = async {
            let words = act(&lease).await?;
            let Some(form) = asked.output else { return Ok(answer(&(words + "\n"), 0)) };
            // It was changed, whatever becomes of the look at it.
            let record = lease.read().await.inspect_err(|_| complain(&words))?;
            let line = Seen::at(clock::timestamp(), &record, config.lease.duration).line(false, form == Output::Wide);
            Ok(answer(&table::shown(form, false, HEAD, &[line]), 0))
        };
        done.await.map_err(|end| match end {
            End::Refused(code, why) => refuse(code, &why),
            End::Failed(error) => access.complain(&error, false),
        })
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const RANDOM: &str = "0123456789abcdef0123456789abcdef";

    fn lease(candidates: &[&str]) -> Value {
        let announced = candidates.iter().enumerate().map(|(at, name)| {
            let identity = if name.contains('_') { (*name).to_owned() } else { format!("{name}_{RANDOM}") };
            let text = json!({ "identity": identity, "at": format!("2027-01-15T08:00:0{at}.000000Z") }).to_string();
            (format!("candidate.tenure.dev/{at}"), json!(text))
        });
        let annotations: serde_json::Map<_, _> = announced.collect();
        json!({ "metadata": { "annotations": annotations }, "spec": { "holderIdentity": format!("a_{RANDOM}") } })
    }

    #[test]
    fn a_successor_is_named_in_full_or_by_its_base() {
        let full = format!("b_{RANDOM}");
        assert_eq!(successor(&lease(&["b", "c"]), "b"), Ok(full.clone()));
        assert_eq!(successor(&lease(&["b", "c"]), &full), Ok(full.clone()));
        assert_eq!(successor(&lease(&[]), &full), Ok(full));
        let (old, new) = (format!("b_f{}", &RANDOM[1..]), format!("b_0{}", &RANDOM[1..]));
        assert_eq!(successor(&lease(&[&old, &new]), "b"), Ok(new), "it was restarted");
    }

    #[test]
    fn a_successor_that_leads_or_that_nobody_knows_is_refused() {
        let refusal = |lease: &Value, written: &str| successor(lease, written).unwrap_err();
        assert_eq!(refusal(&lease(&["b"]), &format!("a_{RANDOM}")), "it holds the Lease already");
        assert_eq!(refusal(&lease(&["b"]), "a"), "it holds the Lease already");
        assert_eq!(refusal(&lease(&["b"]), "x"), format!("no such candidate: there are b_{RANDOM}"));
        assert!(refusal(&lease(&[]), "b").contains("full identity"));
    }
}
