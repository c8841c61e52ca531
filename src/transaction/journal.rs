//! The journal: what is needed to undo a transaction, and how far it is.
//!
//! Owns the JSON that the Secret holds. Every entry is stored before its target is written.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    Change, Event, MARK, Outcome, Place, SECRET_TYPE, Target,
    fields::{Field, Side, body, without_nulls},
    paths::{covers, is_same_manager, is_tenures},
    plan::as_stored,
    requests::{is_going, uid},
};
use crate::words::worded;

/// The version of the journal's format.
pub(super) const VERSION: u32 = 2;
/// The largest journal in bytes: a Secret holds 1 048 576.
pub(super) const MOST_BYTES: usize = 1_000_000;
/// Precedes the reason why an entry was left as it is.
const CONFLICT: &str = "conflict: ";

/// A journal, as stored.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Journal {
    /// The version of this format: 2.
    pub version: u32,
    /// Made with the journal.
    pub id: String,
    /// Of the last write.
    pub nonce: String,
    /// Which commands it belongs to.
    pub kind: Kind,
    /// How far it is.
    pub phase: Phase,
    /// Rises with every driver.
    pub claim: u64,
    /// The fencing token of the last driver's term.
    pub token: String,
    /// The identity of the last driver's replica.
    pub by: String,
    /// The user that changes the targets.
    #[serde(rename = "as", default, skip_serializing_if = "Option::is_none")]
    pub acting_as: Option<String>,
    /// A fingerprint of the changes that were wanted.
    pub intent: String,
    /// The time at which the last driver started, RFC 3339.
    pub began: String,
    /// The time until which it may send anything. Empty in a journal of a version before this one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub until: String,
    /// The changes in the order in which they are made.
    pub entries: Vec<Entry>,
}

/// Which commands a journal belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Kind {
    /// Of apply and recover.
    #[default]
    Transaction,
    /// Of promote and demote.
    Promotion,
}

/// How far a journal is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Phase {
    /// Some changes may be made.
    Prepared,
    /// All changes are made.
    Committed,
    /// Some changes may be undone.
    Undoing,
    /// All changes are undone but those in conflict or doubt.
    #[default]
    Undone,
}

/// A change, with what undoes it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// The object that changes.
    pub target: Target,
    /// How it is changed.
    #[serde(rename = "type")]
    pub kind: EntryType,
    /// Of the object; empty for one that is to be created.
    #[serde(default)]
    pub uid: String,
    /// The claim of the driver that makes the change.
    pub claim: u64,
    /// The fields that the change names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<Field>,
    /// The whole object, where it is created or deleted. Null where an object that is to be deleted is absent.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub object: Value,
    /// Who owned which field before the change: `managedFields`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub managers: Vec<Value>,
    /// How far it is.
    #[serde(default)]
    pub state: State,
    #[serde(skip)]
    pub(super) work: Work,
}

/// How far a change is. In a journal: empty, `done`, `undone`, `doubt`, or `conflict: ` and why.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(into = "String", from = "String")]
pub enum State {
    /// The change was not made yet, or could not be made.
    #[error("not changed")]
    #[default]
    Planned,
    /// The change was made.
    #[error("changed")]
    Changed,
    /// The change was undone.
    #[error("undone")]
    Undone,
    /// The creation was undone, but a request of it that is late may still come.
    #[error("undone, but a late request may still create it: recover once more then")]
    Doubtful,
    /// The object that was changed was deleted, or made anew.
    #[error("{0}: nothing to put back")]
    Gone(String),
    /// The object was left as it is.
    #[error("left as it is: {0}")]
    Left(String),
}

impl From<State> for String {
    fn from(state: State) -> Self {
        match state {
            State::Planned | State::Gone(_) => Self::new(),
            State::Changed => "done".into(),
            State::Undone => "undone".into(),
            State::Doubtful => "doubt".into(),
            State::Left(why) => format!("{CONFLICT}{why}"),
        }
    }
}

impl From<String> for State {
    fn from(text: String) -> Self {
        match (text.as_str(), text.strip_prefix(CONFLICT)) {
            (_, Some(why)) => Self::Left(why.to_owned()),
            ("done", None) => Self::Changed,
            ("undone", None) => Self::Undone,
            ("doubt", None) => Self::Doubtful,
            (_, None) => Self::Planned,
        }
    }
}

impl State {
    /// Returns the word for it in traces and metrics.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Changed => "changed",
            Self::Planned => "failed",
            Self::Undone | Self::Gone(_) => "undone",
            Self::Doubtful => "doubtful",
            Self::Left(_) => "left",
        }
    }
}

/// What a driver knows of an entry while it works on it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Work {
    /// The object as it was read last.
    pub(super) object: Value,
    /// A part of the object as it must be.
    pub(super) require: Option<Value>,
    /// What is sent to create it. The entry has that as the API server stores it.
    pub(super) wanted: Value,
    /// A write of this driver was sent, and not refused.
    pub(super) is_sent: bool,
    /// How often a change was refused by its version, or made.
    pub(super) tries: u32,
    /// A write may still commit, as it went unanswered.
    pub(super) is_unanswered: bool,
    /// An undo leaves a map to others, that was made for a field.
    pub(super) leaves_a_map: bool,
}

worded! {
    /// How an entry changes its object.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(rename_all = "camelCase")]
    pub enum EntryType {
        /// Fields change.
        Patch = "patch",
        /// The object is made.
        Create = "create",
        /// The object is removed.
        Delete = "delete",
    }
}

impl Journal {
    /// Returns true if changes may be half made.
    pub(super) const fn is_unsettled(&self) -> bool {
        match self.phase {
            Phase::Prepared | Phase::Undoing => true,
            Phase::Committed | Phase::Undone => false,
        }
    }
}

impl Entry {
    /// Returns the event that tells how far it is.
    pub(super) fn event(&self) -> Event {
        Event::Object { target: self.target.clone(), change: self.kind, state: self.state.clone() }
    }

    /// Returns why it was left as it is.
    pub const fn conflict(&self) -> Option<&String> {
        if let State::Left(why) = &self.state { Some(why) } else { None }
    }

    /// Returns true if it was undone, and may still come.
    pub(super) fn may_come(&self) -> bool {
        self.state == State::Doubtful && self.uid.is_empty()
    }

    /// Returns true if there is something to change, and so to undo.
    pub fn differs(&self) -> bool {
        match self.kind {
            EntryType::Patch => self.fields.iter().any(Field::differs),
            EntryType::Create => true,
            EntryType::Delete => !self.object.is_null(),
        }
    }

    /// Returns the first field whose value is none of these sides.
    pub(super) fn strange(&self, object: &Value, sides: &[Side]) -> Option<&Field> {
        self.fields.iter().find(|field| !sides.iter().any(|side| field.is(*side, object)))
    }

    /// Says the same.
    pub(super) fn unknown(&self, object: &Value, sides: &[Side]) -> Option<String> {
        self.strange(object, sides).map(|field| format!("{} is somebody else's", field.name()))
    }

    /// Takes the fields over that an earlier entry, which could not be undone, has changed too: an undo puts back what was found
    /// first. What somebody else has set in between is theirs. The fields of a map or an item that was made stay together.
    pub(super) fn take_over(&mut self, earlier: &mut Self) {
        let mut is_taken = false;
        earlier.fields.retain(|old| {
            let later = self.fields.iter_mut().find(|new| new.path == old.path);
            let Some(new) = later.filter(|_| old.known.saturating_add(1) >= old.path.len()) else { return true };
            let is_own = new.before == old.after;
            if is_own && new.differs() && new.after != old.before {
                (new.before, new.known) = (old.before.clone(), old.known);
                is_taken = true;
                return false;
            }
            is_own || new.before == old.before
        });
        if !is_taken {
            return;
        }
        let mut managers = earlier.managers.clone();
        for new in self.managers.iter().filter(|new| !is_tenures(new)) {
            match managers.iter_mut().find(|old| is_same_manager(old, new)) {
                Some(old) if covers(&new["fieldsV1"], &old["fieldsV1"]) => old.clone_from(new),
                Some(_) => {}
                None => managers.push(new.clone()),
            }
        }
        self.managers = managers;
    }

    /// Returns true if everything is as the change made it. Of a creation with this content only what that names: others may change
    /// what the server has added.
    pub(super) fn stands(&self, object: Option<&Value>, content: Option<&Value>) -> bool {
        match (self.kind, object) {
            (EntryType::Delete, object) => object.is_none_or(|object| uid(object) == self.uid && is_going(object)),
            (EntryType::Patch | EntryType::Create, None) => false,
            (EntryType::Patch, Some(object)) => uid(object) == self.uid && self.unknown(object, &[Side::After]).is_none(),
            (EntryType::Create, Some(object)) => {
                let made = body(&self.object);
                let named = content.map(|content| as_stored(&without_nulls(&body(content)), &made));
                uid(object) == self.uid && covers(object, &named.unwrap_or(made))
            }
        }
    }

    /// Returns true if an undo leaves something to do.
    pub(super) const fn is_open(&self) -> bool {
        matches!(self.state, State::Left(_) | State::Doubtful)
    }
}

/// Reads the mark on an object: the Lease, the id of the journal and the claim. None if there is none that can be read.
pub(super) fn mark_of(object: &Value) -> Option<(Place, &str, u64)> {
    let mut words = object["metadata"]["annotations"][MARK].as_str()?.split(' ');
    let (namespace, name) = words.next()?.split_once('/')?;
    let is_name = |name: &&str| name.starts_with(|c: char| c.is_ascii_alphanumeric()) && !name.contains('/');
    let id = words.next().filter(|id| [namespace, name, id].iter().all(is_name))?;
    Some((Place { namespace: namespace.to_owned(), name: name.to_owned() }, id, words.next()?.parse().ok()?))
}

/// Returns the FNV-1a hash of the changes: the same file again has nothing to do.
pub(super) fn fingerprint(changes: &[Change]) -> String {
    let text = serde_json::to_string(changes).unwrap_or_default();
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    format!("{hash:016x}")
}

/// Refuses a Secret that is somebody else's: no command writes it.
pub(super) fn owned(secret: &Value) -> Result<(), Outcome> {
    if secret.is_null() || secret["type"] == SECRET_TYPE {
        return Ok(());
    }
    let name = secret["metadata"]["name"].as_str().unwrap_or_default();
    Err(Outcome::Invalid(format!("the Secret {name} is not of type {SECRET_TYPE}: delete it, or use another Lease")))
}

/// Reads the journal of a Secret. An absent or an empty one holds a journal without id, of which nothing was stored yet.
pub(super) fn parse(secret: &Value) -> Result<Journal, Outcome> {
    let invalid = |why: &str| Outcome::Invalid(format!("the journal cannot be read: {why}"));
    owned(secret)?;
    let text = secret["data"]["journal"].as_str().unwrap_or_default();
    if text.is_empty() {
        return Ok(Journal::default());
    }
    let text = BASE64_STANDARD.decode(text).unwrap_or_default();
    let journal: Journal = serde_json::from_slice(&text).map_err(|error| invalid(&error.to_string()))?;
    if journal.version != VERSION {
        return Err(invalid("it is of another version of tenure"));
    }
    let is_none = |entry: &Entry| entry.target.name.is_empty() || entry.fields.iter().any(|field| field.path.is_empty());
    if journal.claim == u64::MAX || journal.entries.iter().any(is_none) {
        return Err(invalid("a name, a path or a claim in it is none"));
    }
    Ok(journal)
}

/// Returns true if nothing is left to do of a journal that can be read.
pub(crate) fn is_settled(secret: &Value) -> bool {
    let is_left = |entry: &Entry| entry.conflict().is_some() || entry.may_come();
    let is_settled = |journal: &Journal| !journal.is_unsettled() && !journal.entries.iter().any(is_left);
    parse(secret).is_ok_and(|journal| !journal.id.is_empty() && is_settled(&journal))
}

/// Returns 128 random bits.
pub(super) fn hex(random: &mut fastrand::Rng) -> String {
    format!("{:032x}", random.u128(..))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Another version may lead next in a rolling upgrade, and undoes what this one has promoted.
    #[test]
    fn a_journal_is_read_and_written_as_every_version_of_its_format_does() {
        let entry = |path: Value, state: &str| {
            json!({
                "target": { "apiVersion": "v1", "kind": "Pod", "resource": "pods", "namespace": "ns", "name": "X0" },
                "type": "patch",
                "uid": "uid-1",
                "claim": 3,
                "fields": [{ "path": path, "before": "1", "after": "2", "known": 1 }],
                "state": state,
            })
        };
        let stored = json!({
            "version": 2, "id": "ab", "nonce": "cd", "kind": "promotion", "phase": "undone", "claim": 3, "token": "7",
            "by": "pod-1", "as": "user", "intent": "ef", "began": "2026-11-27T22:18:30Z",
            "entries": [
                entry(json!(["f:data", "f:a.b/c"]), ""),
                entry(json!(["f:spec", "f:containers", "k:{\"name\":\"web\"}", "f:image"]), "done"),
                entry(json!(["f:metadata", "f:finalizers", "v:\"x\""]), "doubt"),
                entry(json!(["f:data"]), "conflict: data is somebody else's"),
            ],
        });

        let journal: Journal = serde_json::from_value(stored.clone()).unwrap();

        assert_eq!(serde_json::to_value(&journal).unwrap(), stored);
        let state = |at: usize| &journal.entries[at].state;
        assert_eq!([state(0), state(1), state(2)], [&State::Planned, &State::Changed, &State::Doubtful]);
        assert_eq!(journal.entries[3].conflict().map(String::as_str), Some("data is somebody else's"));
        for wrong in [json!(["data"]), json!(["k:[5]"]), json!(["v:"]), json!([5])] {
            let mut stored = stored.clone();
            stored["entries"][0]["fields"][0]["path"] = wrong;
            assert!(serde_json::from_value::<Journal>(stored).is_err());
        }
    }
}
