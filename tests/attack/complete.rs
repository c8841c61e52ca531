//! What an attack of ten minutes or more must not lack; a shorter one only says what it lacks.

use std::{collections::BTreeSet, time::Duration};

use crate::{fault::Fault, history::History};

/// In this time each of the four worlds draws every fault twice; now and then one cannot be injected when it is drawn.
const COMPLETE: Duration = Duration::from_secs(600);

/// Says that a part is not run.
///
/// # Errors
/// It must be.
pub(crate) fn forgo(part: &str, length: Duration) -> Result<(), String> {
    let line = format!("NOT RUN: {part}");
    if length >= COMPLETE {
        return Err(line);
    }
    println!("{line}");
    Ok(())
}

/// # Errors
/// Some faults never struck.
pub(crate) fn judge(histories: &[History], length: Duration) -> Result<(), String> {
    let rounds = histories.iter().flat_map(|history| &history.rounds);
    let struck: BTreeSet<&Fault> = rounds.flat_map(|round| &round.faults).collect();
    let missing: Vec<_> = Fault::ALL.iter().filter(|fault| !struck.contains(fault)).map(|fault| fault.describe()).collect();
    if missing.is_empty() { Ok(()) } else { forgo(&format!("faults that never struck: {}", missing.join(", ")), length) }
}
