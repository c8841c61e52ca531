//! Judges the Lease's versions in the order in which the server stored them, by who wrote them.

use std::time::Duration;

use serde_json::Value;
use support::audit::Record;
use tenure::election::writes::NOBODY;

use crate::{
    fault::{Fault, Group},
    history::{History, text},
    judge::Verdict,
    world::{account, place_of},
};

/// The server timestamps an answer a little after it has stored the object, and notifies watches in between.
const SLACK: Duration = Duration::from_millis(250);
/// How long a server stays slow after its own fault.
const TROUBLE: Duration = Duration::from_secs(10);
/// No world has more places.
const MOST_PLACES: usize = 4;
/// The shortest D in any world.
const SHORTEST: Duration = Duration::from_secs(4);

/// A version of a Lease.
pub(crate) struct Version<'a> {
    pub(crate) record: &'a Record,
    pub(crate) number: u128,
    /// The place of the replica that wrote it; none if an administrator did.
    pub(crate) by: Option<usize>,
    /// Since when this spec has existed: an administrator may have changed other fields.
    pub(crate) since: i64,
}

impl Version<'_> {
    pub(crate) fn spec(&self) -> &Value {
        &self.record.stored["spec"]
    }

    pub(crate) fn holder(&self) -> &str {
        text(self.spec(), "holderIdentity")
    }

    pub(crate) fn uid(&self) -> &str {
        text(&self.record.stored["metadata"], "uid")
    }

    pub(crate) fn duration(&self) -> Duration {
        Duration::from_secs(self.spec()["leaseDurationSeconds"].as_u64().unwrap_or_default())
    }

    fn transitions(&self) -> i64 {
        self.spec()["leaseTransitions"].as_i64().unwrap_or_default()
    }
}

/// Compares every version with the one before it.
pub(crate) fn judge(history: &History, verdict: &mut Verdict) {
    let versions = versions(history);
    let mut before: Option<&Version<'_>> = None;
    for version in &versions {
        let is_peers = history.replicas.iter().any(|replica| replica.is_peer && version.by == Some(place_of(&replica.name)));
        if let Some(place) = version.by.filter(|_| !is_peers) {
            let same = before.filter(|before| before.uid() == version.uid());
            let judged = match unrecorded(history, version, same) {
                Some(record) => {
                    let acquired = Version { record: &record, ..*version };
                    judge_one(history, &acquired, place, same).and_then(|()| judge_one(history, version, place, Some(&acquired)))
                }
                None if same.is_some_and(|before| has_unknown_base(history, version, before)) => Ok(()),
                None => judge_one(history, version, place, same),
            };
            if let Err(wrong) = judged {
                let before = before.map(|before| (before.record.answered, before.spec()));
                verdict.violations.push(format!("a write that {wrong}: {} after {before:?}", version.spec()));
            }
        }
        before = Some(version);
    }
}

/// The acquisition that `version` renews, if the audit log does not have it: a server that is killed takes the records of its last
/// answers along. It is known from what its replica sent, and had no answer to.
fn unrecorded(history: &History, version: &Version<'_>, before: Option<&Version<'_>>) -> Option<Record> {
    let acquired = &version.spec()["acquireTime"];
    if before.is_some_and(|before| before.holder() == version.holder()) || *acquired == version.spec()["renewTime"] {
        return None;
    }
    let name = version.holder().rsplit('_').nth(1)?;
    let exchanges = &history.replicas.iter().find(|replica| replica.name == name)?.exchanges;
    let acquires = |spec: &Value| spec["acquireTime"] == *acquired && spec["renewTime"] == *acquired;
    let sent = exchanges.iter().find(|exchange| exchange.answer.is_none() && acquires(exchange.request.spec()))?;
    let mut faults = history.faults_within(sent.request.at, history.moment(version.record.asked));
    faults.any(|span| span.fault == Fault::RestartApiServer).then(|| {
        let mut stored = version.record.stored.clone();
        stored["spec"] = sent.request.spec().clone();
        Record { stored, ..version.record.clone() }
    })
}

/// Returns whether the version replaces one that nobody recorded: a server gives up an answer while its etcd stands still,
/// and the etcd stores the write all the same.
fn has_unknown_base(history: &History, version: &Version<'_>, before: &Version<'_>) -> bool {
    let base = version.record.base.as_ref().and_then(|base| base.parse::<u128>().ok());
    let (from, to) = (history.moment(before.record.answered), history.moment(version.record.asked));
    let mut faults = history.faults_within(from, to).map(|span| span.fault);
    base.is_some_and(|base| base > before.number)
        && faults.any(|fault| matches!(fault, Fault::FreezeEtcd | Fault::RestartEtcd | Fault::RestartApiServer))
}

/// All versions of each Lease, in order.
pub(crate) fn versions(history: &History) -> Vec<Version<'_>> {
    let is_stored = |record: &&Record| matches!(record.verb.as_str(), "create" | "update" | "patch") && record.status < 300;
    let mut versions: Vec<Version<'_>> = (history.audit.iter().filter(is_stored))
        .map(|record| {
            let number = text(&record.stored["metadata"], "resourceVersion").parse().unwrap_or_default();
            let of = |place: &usize| record.user == format!("system:serviceaccount:{}:{}", history.namespace, account(*place));
            Version { record, number, by: (0..MOST_PLACES).find(of), since: record.answered }
        })
        .collect();
    versions.sort_by_key(|version| (text(&version.record.stored["metadata"], "name"), version.number));
    for index in 1..versions.len() {
        if versions[index].uid() == versions[index - 1].uid() && versions[index].spec() == versions[index - 1].spec() {
            versions[index].since = versions[index - 1].since;
        }
    }
    versions
}

fn judge_one(history: &History, version: &Version<'_>, place: usize, before: Option<&Version<'_>>) -> Result<(), String> {
    if version.record.verb == "patch" {
        return Err("is a PATCH".into());
    }
    let old = before.map_or("", |before| before.holder());
    let transitions = before.map_or(0, |before| before.transitions());
    if version.holder() == NOBODY {
        return judge_nobody(version, before, transitions);
    }
    if version.record.verb == "create" {
        return Err("takes what is not there".into());
    }
    if version.holder().is_empty() {
        return judge_release(version, place, old, transitions);
    }
    if place_of(version.holder()) != place {
        return Err(format!("{} did not make for itself", account(place)));
    }
    if version.holder() == old {
        if version.transitions() != transitions {
            return Err("counts a transition without a change of the holder".into());
        }
        return judge_renewal(version, before);
    }
    let expected = if before.is_some() { transitions + 1 } else { 0 };
    if version.transitions() != expected || version.spec()["acquireTime"] != version.spec()["renewTime"] {
        return Err("takes, and does not count one transition or note the time".into());
    }
    match before.filter(|before| !before.holder().is_empty()) {
        Some(before) => judge_takeover(history, version, before),
        None => Ok(()),
    }
}

/// Judges a write that names nobody: it replaces no holder, and names its writer beside it, so that no mark hides it (law 14).
fn judge_nobody(version: &Version<'_>, before: Option<&Version<'_>>, transitions: i64) -> Result<(), String> {
    let spec = version.spec();
    if before.is_some_and(|before| !before.holder().is_empty() && before.holder() != NOBODY) {
        return Err("gives to nobody what somebody held".into());
    }
    if before.is_some_and(|before| before.holder() == NOBODY && before.duration() >= version.duration()) {
        return Err("gives to nobody anew what nobody held for as long".into());
    }
    if version.record.stored["metadata"]["annotations"]["tenure.dev/holder"] != NOBODY || !spec["acquireTime"].is_null() {
        return Err("gives to nobody in the shape of something else".into());
    }
    if version.transitions() != transitions { Err("gives to nobody and counts".into()) } else { Ok(()) }
}

/// The holder must have been observed for the duration that it wrote.
fn judge_takeover(history: &History, version: &Version<'_>, before: &Version<'_>) -> Result<(), String> {
    let (from, to) = (history.moment(before.since), history.moment(version.record.answered));
    // A server in trouble timestamps its answers late.
    let stamps_late = history.faults_within(from.before(TROUBLE), to).any(|span| span.fault.group() == Group::Server);
    // In some worlds another time is configured for nobody, which is no shorter than any duration there.
    let least = if before.holder() == NOBODY { before.duration().min(SHORTEST) } else { before.duration() };
    if to.since(from) + SLACK < least && !stamps_late {
        return Err(format!("takes over after {:?}", to.since(from)));
    }
    Ok(())
}

fn judge_release(version: &Version<'_>, place: usize, old: &str, transitions: i64) -> Result<(), String> {
    let spec = version.spec();
    if old.is_empty() || old == NOBODY || place_of(old) != place {
        return Err("releases what another held".into());
    }
    if spec["leaseDurationSeconds"] != 1 || spec["acquireTime"] != spec["renewTime"] {
        return Err("releases without the mark of it".into());
    }
    if version.transitions() != transitions { Err("releases and counts".into()) } else { Ok(()) }
}

fn judge_renewal(version: &Version<'_>, before: Option<&Version<'_>>) -> Result<(), String> {
    if before.is_some_and(|before| before.spec()["acquireTime"] != version.spec()["acquireTime"]) {
        return Err("renews, and changes acquireTime".into());
    }
    let time = |version: &Version<'_>| text(version.spec(), "renewTime").parse::<jiff::Timestamp>().ok();
    // An administrator may have written a time that no renewal can exceed.
    let by_itself = before.filter(|before| before.by.is_some());
    match by_itself.and_then(|before| Some(time(version)?.as_microsecond() - time(before)?.as_microsecond())) {
        Some(rise) if rise < 1_000_000 => Err(format!("renews, and renewTime rises by {rise} us only")),
        Some(_) | None => Ok(()),
    }
}
