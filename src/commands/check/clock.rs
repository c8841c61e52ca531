//! Checks whether this node's clock is corrected faster than the law assumes.

use super::Report;
use crate::{clock::slew, config::Drift};

pub(super) fn check(allowed: Drift, report: &mut Report) {
    report.section("clock");
    match slew() {
        Ok(slew) if slew > allowed.0 => report.note(&format!(
            "the kernel corrects this clock by {}, more than lease.clockDrift ({allowed}) covers: raise it, or let the time service \
             step or slew more slowly",
            Drift(slew),
        )),
        Ok(slew) => report.good(&format!("corrected by {}, lease.clockDrift covers {allowed}", Drift(slew))),
        Err(errno) => {
            report.note(&format!("how far it is corrected cannot be read here ({errno}); lease.clockDrift covers {allowed}"));
        }
    }
}
