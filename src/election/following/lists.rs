//! Reads of a follower, and the lists that read several Leases at once (law 18).

use std::sync::Arc;

use serde_json::Value;

use super::Following;
use crate::{
    election::{
        Event, Request,
        asked::{Asked, Verdict},
        core::Core,
        leading::Leading,
        record::{LeaseRecord, metadata_of},
    },
    request::{Answer, Refusal},
    slot::Slot,
    time::Now,
};

const NO_LIST: &str = "the answer is not a list of Leases";

/// Sends a follower's next read.
pub(super) fn ask(core: &mut Core, now: Now) {
    match core.reader.take_next(core.count(), now.boot) {
        Some(slot) => core.one(slot).get(now),
        None => core.reader.send(&mut core.common, None, Request::List, None, now),
    }
}

impl Following {
    /// Takes in the answer to a list. A failure is one for all Leases, and they share one retry.
    pub(crate) fn listed(&mut self, core: &mut Core, asked: &Asked, answer: Answer, now: Now) -> Option<Box<Leading>> {
        if let Answer::Listed { objects, resource_version } = answer {
            core.reader.watch.listed(resource_version);
            if core.reader.allow_lists() {
                core.common.report(Event::Recovered { operation: asked.operation });
            }
            report_more_slots(core, &objects);
            return self.look_up(core, &objects, now);
        }
        match asked.judge(answer) {
            Verdict::Refused(Refusal::Forbidden, message) => {
                if core.reader.forbid_lists(now.boot) {
                    core.common.report(Event::Failed { operation: asked.operation, sent: asked.sent, message });
                    // Each is known at once, and read in turn from then on.
                    (0..core.count()).map(Slot).for_each(|slot| core.reader.look_for(slot));
                }
            }
            Verdict::Refused(refusal, message) => core.refused(asked.operation, refusal, message, now),
            Verdict::Open(message, retry_after) => core.failed(asked.operation, message, retry_after, now),
            Verdict::Read(_)
            | Verdict::Proved(..)
            | Verdict::Other(..)
            | Verdict::Deleted
            | Verdict::Absent
            | Verdict::Conflict => core.failed(asked.operation, NO_LIST.into(), None, now),
        }
        None
    }

    /// Looks each Lease up in a list.
    fn look_up(&mut self, core: &mut Core, objects: &[Arc<Value>], now: Now) -> Option<Box<Leading>> {
        let doubted = core.reader.take_turn(core.count());
        // What an earlier failure wanted is this list.
        core.reader.succeeded(now.boot);
        let (mut led, mut is_wanted) = (None, false);
        for slot in (0..core.count()).map(Slot) {
            let object = objects.iter().find(|object| core.slot_of(object) == Some(slot));
            let record = object.map(|object| LeaseRecord::read(Arc::clone(object)));
            let mut one = core.one(slot);
            match record {
                Some(Some(record)) if led.is_none() => led = self.read(&mut one, record, now),
                Some(Some(record)) => one.observed(record, now),
                None if one.lease.observation.is_absent() && slot != doubted => self.absent(&mut one, now),
                // The Lease may only have lost its label.
                Some(None) | None => core.reader.look_for(slot),
            }
            is_wanted |= core.reader.is_wanted();
        }
        if is_wanted {
            core.reader.want_read();
        }
        led
    }
}

/// Warns once of slots beyond `lease.slots`: other replicas may have an older or a newer configuration.
fn report_more_slots(core: &mut Core, objects: &[Arc<Value>]) {
    let (base, count) = (&core.common.config.lease.name, core.count());
    let slot =
        |object: &Value| metadata_of(object, "name")?.as_str()?.strip_prefix(base)?.strip_prefix("-slot-")?.parse::<usize>().ok();
    let is_beyond = |object: &Arc<Value>| {
        let record = LeaseRecord::read(Arc::clone(object));
        slot(object).is_some_and(|slot| slot >= count.into()) && record.is_some_and(|record| record.holder().is_some())
    };
    if objects.iter().any(is_beyond) && !std::mem::replace(&mut core.has_told_of_more, true) {
        let message = format!("somebody holds a slot of {base} beyond the {count} of this replica's lease.slots");
        core.common.report(Event::Odd { message });
    }
}
