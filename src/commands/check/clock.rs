//! Whether this node's clock is corrected faster than the law assumes.

use super::Report;
use crate::{clock::slew, config::Drift};

pub(super) fn check(allowed: Drift, report: &mut Report) {
    report.section("clock");
    match slew() {
        Ok(slew) if slew > allowed.0 => report.note(&format!(
            "the kernel corrects this clock by {slew} parts per million, more than lease.clockDrift ({}) covers: raise it, or let the \
             time service step or slew more slowly",
            allowed.0
        )),
        Ok(slew) => report.good(&format!("corrected by {slew} parts per million, lease.clockDrift covers {}", allowed.0)),
        Err(errno) => report.note(&format!("how far it is corrected cannot be read here ({errno}); lease.clockDrift covers {} ppm", allowed.0)),
    }
}
