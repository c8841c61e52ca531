//! Lists what an attack of ten minutes or more must not lack, wherever it runs; a shorter one says what it lacks.

use std::{collections::BTreeSet, time::Duration};

use support::not_run;

use crate::{fault::Fault, history::History, plan::LEFT, report::NOT_LIVE};

/// In this time each of the five worlds draws every fault twice; now and then one cannot be injected when it is drawn.
const COMPLETE: Duration = Duration::from_secs(600);
/// In this time it finds a frozen standby to strike, which few replicas are.
const LONG: Duration = Duration::from_secs(1_800);
/// The message of a witness that has released.
pub(crate) const OBITUARY: &str = "it is dead, and what it held is given back";
/// Init's message about a workload that somebody else has continued.
const UNFROZEN: &str = "the workload is not frozen";

/// Says that a part is not run, and what stands in the way; an error if it must be.
pub(crate) fn skip(part: &str, reason: &str, length: Duration) -> Result<(), String> {
    if length >= COMPLETE {
        return Err(format!("{part}: {reason}"));
    }
    not_run(part, reason);
    Ok(())
}

/// An error: some faults never struck.
pub(crate) fn judge(histories: &[History], length: Duration) -> Result<(), String> {
    let rounds = histories.iter().flat_map(|history| &history.rounds);
    let struck: BTreeSet<&Fault> = rounds.flat_map(|round| &round.faults).collect();
    let rare = |fault: &Fault| *fault == Fault::ContinueStandby && length < LONG;
    let missed = Fault::all().into_iter().filter(|fault| !struck.contains(fault) && !rare(fault));
    let mut missing: Vec<_> = missed.map(|fault| fault.describe()).collect();
    let came_up = |words: &str| histories.iter().any(|history| history.said(words) > 0);
    let said = [
        ("a hook that leaves a daemon", LEFT),
        ("a leader that hangs and is found out", NOT_LIVE),
        ("a witness that releases", OBITUARY),
    ];
    let found = ("a standby that is found not to be frozen", UNFROZEN);
    let said = said.into_iter().chain((length >= LONG).then_some(found));
    missing.extend(said.filter(|(_, words)| !came_up(words)).map(|(what, _)| what));
    if missing.is_empty() {
        return Ok(());
    }
    let line = format!("faults that did not come up: {}", missing.join(", "));
    if length >= COMPLETE {
        return Err(line);
    }
    println!("attack: {line}");
    Ok(())
}
