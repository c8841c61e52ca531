//! What a replica sees of the Leases: by a reply of the API server, which is always believed, or by its watch.

use std::time::Duration;

use serde_json::Value;
use tenure::{
    election::Input,
    request::{Answer, Watched},
    slot::Slot,
};

use super::Lawful;
use crate::{
    Who,
    law::{Kind, Step, What},
    reading::number,
};

impl Lawful {
    /// Its elector takes this in. An answer tells of this slot, as it was at this version.
    pub fn takes_in(&mut self, who: Who, input: &Input, (slot, version): (Slot, u64)) {
        self.hears(who);
        match input {
            Input::Answered { answer, .. } => match answer {
                Answer::Object(lease) => self.reads(who, lease),
                Answer::Listed { objects, .. } => objects.iter().for_each(|lease| self.reads(who, lease)),
                Answer::NotFound | Answer::Deleted => self.reads_absence(who, slot, version),
                Answer::Conflict | Answer::Refused { .. } | Answer::Unknown { .. } => {}
            },
            Input::Watched(Watched::Changed(lease)) => self.watches(who, lease),
            Input::Watched(Watched::Deleted(lease)) => self.watches_deletion(who, lease),
            Input::Watched(Watched::Bookmark(_) | Watched::Ended(_)) | Input::Told(_) => {}
        }
    }

    /// A reply shows it this Lease. What a list lacks may only have lost its label, so a list tells nothing of that.
    fn reads(&mut self, who: Who, lease: &Value) {
        let Some((slot, version)) = self.stored(lease) else { return };
        self.has_read(who, slot);
        self.sees_version(who, slot, version);
    }

    /// A reply tells it that there was no Lease at this version of the slot. It believes none that it asked for a D ago (16).
    fn reads_absence(&mut self, who: Who, slot: Slot, version: u64) {
        let (Some(r), index) = (self.replica(who), usize::from(slot.0)) else { return };
        let elector = &self.electors[r];
        if elector.clock.boot(self.now).since(elector.asked) >= Duration::from_nanos(self.laws[index].law.duration(r)) {
            return;
        }
        self.has_read(who, index);
        if self.laws[index].law.latest(r) > version {
            self.steps(index, Step { r, ..Step::of(What::SeesLateAbsence) });
        } else {
            self.sees_version(who, index, version);
        }
    }

    /// Its watch shows it this Lease. One that it has not read yet tells it nothing: an earlier elector may have seen a later version.
    fn watches(&mut self, who: Who, lease: &Value) {
        let (Some((slot, version)), Some(r)) = (self.stored(lease), self.replica(who)) else { return };
        if self.electors[r].read.contains(&slot) {
            self.sees_version(who, slot, version);
        }
    }

    /// Its watch tells it of a deletion, which it believes of the Lease that it last saw.
    fn watches_deletion(&mut self, who: Who, lease: &Value) {
        let Some(r) = self.replica(who).filter(|_| self.laws.len() == 1) else { return };
        let law = &self.laws[0].law;
        let version = number(&lease["metadata"]["resourceVersion"]);
        if law.has(version) && law.is_next(law.latest(r), version) {
            self.sees_version(who, 0, version);
        }
    }

    /// The slot of a Lease, and its version.
    fn stored(&self, lease: &Value) -> Option<(usize, u64)> {
        let version = number(&lease["metadata"]["resourceVersion"]);
        let slot = self.laws.iter().position(|one| one.law.has(version) && version > 0)?;
        Some((slot, version))
    }

    fn has_read(&mut self, who: Who, slot: usize) {
        if let Some(r) = self.replica(who) {
            self.electors[r].read.insert(slot);
        }
    }

    /// An older version, and one of a Lease that it does not have, tell it nothing.
    fn sees_version(&mut self, who: Who, slot: usize, k: u64) {
        let Some(r) = self.replica(who) else { return };
        let law = &self.laws[slot].law;
        let (latest, elector) = (law.latest(r), &mut self.electors[r]);
        // A reply that there is no Lease has no version, so a late watch may still tell of the time before. What it told of the longest
        // duration counts until somebody else holds the Lease: nobody never lowers it.
        let tells_no_hold = law.has(k) && matches!(law.held(k).0, Kind::Nobody | Kind::Absent | Kind::Free);
        if k < latest && law.held(latest).0 == Kind::Absent {
            elector.late.insert(slot);
        } else if k > latest && !tells_no_hold {
            elector.late.remove(&slot);
        }
        if law.has(k) && k >= latest && slot < elector.slots {
            if elector.is_busy && k > latest && law.held(latest).0 == Kind::Absent {
                elector.before = Some((slot, law.memory(r).clone()));
            }
            self.steps(slot, Step { r, k, ..Step::of(What::Sees) });
        }
    }
}
