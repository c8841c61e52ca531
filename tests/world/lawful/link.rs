//! What elector and init say to each other, as steps of the law.

use tenure::link::{Confirmed, ToElector, ToInit};

use super::{Elector, Lawful};
use crate::{
    Who,
    law::{Step, What},
};

impl Lawful {
    /// Its elector says this to its init.
    pub fn says(&mut self, who: Who, message: &ToInit) {
        let Some(r) = self.replica(who) else { return };
        match message {
            ToInit::Lead { info, confirmed, .. } => {
                let (index, k) = (usize::from(info.slot.0), version(&info.token));
                self.steps(index, Step { r, k, ..Step::of(What::Begins) });
                self.dates(who, index, k, confirmed);
            }
            ToInit::Extend { confirmed, .. } => {
                let k = version(&confirmed.resource_version);
                self.steps_in_term(who, Step { k, ..Step::of(What::Extends) });
                if let Some((_, index)) = self.term(who) {
                    self.dates(who, index, k, confirmed);
                }
            }
            ToInit::StepDown { reason, .. } if reason.is_loss() => self.steps_in_term(who, Step::of(What::Loses)),
            ToInit::Releasing { .. } => self.steps_in_term(who, Step::of(What::Voids)),
            ToInit::Ended { .. } => self.steps_in_term(who, Step::of(What::Follows)),
            ToInit::StepDown { .. }
            | ToInit::Hello
            | ToInit::Withdrawn { .. }
            | ToInit::Observed { .. }
            | ToInit::Probed { .. }
            | ToInit::Heartbeat
            | ToInit::Done
            | ToInit::GaveUp { .. }
            | ToInit::Failed { .. } => {}
        }
    }

    /// By the clock of its node, E comes no later than by the law.
    fn dates(&mut self, who: Who, slot: usize, k: u64, confirmed: &Confirmed) {
        let r = self.replicas[&who];
        let (law, Elector { clock, kill_margin, .. }) = (&self.laws[slot].law, &self.electors[r]);
        let end = clock.real(confirmed.deadlines.hard + *kill_margin);
        if law.has(k) && end > law.end(k).max(law.valid(r)) + 2 {
            self.refuse(format!("{who}: 1 from the send: E of version {k} is {} ns late", end - law.end(k)));
        }
    }

    /// Its init hears this. It may drop an extension.
    pub fn init_hears(&mut self, who: Who, message: &ToInit) {
        if let ToInit::Lead { .. } = message {
            self.steps_in_term(who, Step::of(What::InitLeads));
        } else if let ToInit::Extend { confirmed, .. } = message
            && let Some((r, index)) = self.term(who)
        {
            let step = Step { r, k: version(&confirmed.resource_version), ..Step::of(What::InitExtends) };
            if self.laws[index].law.allows(&step).is_ok() {
                self.steps(index, step);
            }
        }
    }

    /// Its init says this.
    pub fn init_says(&mut self, who: Who, message: &ToElector) {
        if let ToElector::Stopped { .. } = message {
            self.steps_in_term(who, Step::of(What::Proves));
        }
    }
}

fn version(version: &str) -> u64 {
    version.parse().unwrap_or_default()
}
