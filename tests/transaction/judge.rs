//! What must hold: at the instant of each write, and at the end.

use std::collections::{BTreeMap, BTreeSet};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde_json::{Map, Value, json};
use tenure::transaction::{Entry, EntryType, Journal, Kind, Phase, Step};

use crate::server::{Cluster, Effect, mark, uid};

/// A driver, as the judge sees it.
#[derive(Clone, Debug)]
pub struct Party {
    pub number: usize,
    pub journal: String,
    /// The claims that it has stored, by the id of the journal.
    pub claims: BTreeMap<String, u64>,
    /// The id of the journal that it stored last.
    pub id: String,
    /// It may overwrite what others have changed.
    pub forces: bool,
}

/// The writer of a value.
#[derive(Clone, Debug, PartialEq)]
enum Writer {
    Foreign,
    Driver(String),
}

/// What the judge remembers.
#[derive(Debug, Default)]
pub struct Judge {
    pub violations: Vec<String>,
    /// Who wrote each field last.
    writers: BTreeMap<(String, String), Writer>,
    /// Which journals ever wrote a field.
    touched: BTreeMap<(String, String), BTreeSet<String>>,
    /// The fields as they would be without any transaction. None: absent.
    others: BTreeMap<(String, String), Option<Value>>,
    /// Objects that somebody else has deleted.
    gone: BTreeSet<String>,
    /// Objects that a transaction made, and the uid of the last.
    made: BTreeMap<String, String>,
    /// Objects into whose map somebody else has written.
    shared: BTreeSet<String>,
    /// Objects, and journals whose last write of `m.d` has left more than that in the map.
    beside: BTreeSet<(String, String)>,
    /// Objects whose mark somebody took off.
    pub stripped: BTreeSet<String>,
    /// Journals that somebody deleted.
    lost: BTreeSet<String>,
    /// Objects whose creation or deletion was committed, and followed by another transaction.
    based: BTreeSet<String>,
    /// The claim that settled a journal, and the targets of which no lower claim may write.
    settled: BTreeMap<String, (u64, BTreeSet<String>)>,
    /// The highest token in a journal.
    tokens: BTreeMap<String, u64>,
}

/// All leaves. The server fills `m.d` into a map that is there.
const FIELDS: [&str; 6] = ["a", "b", "z", "m.x", "m.y", "m.d"];

pub fn field(object: Option<&Value>, key: &str) -> Option<Value> {
    key.split('.').try_fold(&object?["data"], |value, key| value.get(key)).cloned()
}

/// Sets a field, or removes it.
pub fn put(object: &mut Value, key: &str, value: Option<&Value>) {
    let path: Vec<&str> = ["data"].into_iter().chain(key.split('.')).collect();
    let (key, maps) = path.split_last().unwrap();
    match value {
        Some(value) => *path.iter().fold(object, |value, key| &mut value[*key]) = value.clone(),
        None => {
            let map = maps.iter().try_fold(object, |value, key| value.get_mut(*key));
            drop(map.and_then(Value::as_object_mut).map(|map| map.remove(*key)));
        }
    }
}

pub fn journal(secret: &Value) -> Option<Journal> {
    serde_json::from_slice(&BASE64_STANDARD.decode(secret["data"]["journal"].as_str()?).ok()?).ok()
}

impl Judge {
    fn bad(&mut self, what: &str, party: &Party, name: &str) {
        self.violations.push(format!("{what}: driver {} on {name}", party.number));
    }

    /// Somebody deletes a journal: what was written under it is nobody's to undo.
    pub fn loses(&mut self, journal: String) {
        self.writers.retain(|_, writer| *writer != Writer::Driver(journal.clone()));
        self.lost.insert(journal);
    }

    /// Somebody else has edited an object.
    pub fn edited(&mut self, name: &str, found: &Value, next: &Value) {
        for key in FIELDS.into_iter().filter(|key| field(Some(found), key) != field(Some(next), key)) {
            self.foreign(name, key, field(Some(next), key));
            if key.starts_with("m.") {
                self.shared.insert(name.into());
            }
        }
    }

    /// Somebody else writes a field.
    pub fn foreign(&mut self, name: &str, key: &str, value: Option<Value>) {
        self.writers.insert((name.into(), key.into()), Writer::Foreign);
        self.others.insert((name.into(), key.into()), value);
    }

    /// Somebody else makes an object.
    pub fn planted(&mut self, name: &str, object: &Value) {
        for key in FIELDS {
            self.foreign(name, key, field(Some(object), key));
        }
        self.gone.remove(name);
        self.made.remove(name);
        self.shared.remove(name);
    }

    /// A backup makes an object anew, with its mark. Nothing tells it from the created one before the uid of that is stored.
    pub fn copied(&mut self, cluster: &Cluster, name: &str, object: &Value) {
        let is_one = |journal: &Journal, entry: &Entry| {
            let ends = format!(" {} {}", journal.id, entry.claim);
            let is_marked = mark(object).is_some_and(|mark| mark.ends_with(&ends));
            entry.target.name == name && entry.kind == EntryType::Create && entry.uid.is_empty() && is_marked
        };
        let mut journals = cluster.journals.values().filter_map(journal);
        if !journals.any(|journal| journal.entries.iter().any(|entry| is_one(&journal, entry))) {
            self.planted(name, object);
        }
    }

    /// Somebody else deletes an object.
    pub fn deleted(&mut self, name: &str) {
        self.gone.insert(name.into());
    }

    /// A write of a driver commits.
    pub fn write(&mut self, cluster: &Cluster, party: &mut Party, effect: &Effect) {
        match effect {
            Effect::Nothing | Effect::Lease { .. } => {}
            Effect::Journal { name, next } => self.stored(cluster, party, name, next),
            Effect::Object { name, next } => self.wrote(cluster, party, name, next.as_ref()),
        }
    }

    fn wrote(&mut self, cluster: &Cluster, party: &Party, name: &str, next: Option<&Value>) {
        let found = cluster.objects.get(name);
        if next == found {
            return;
        }
        let changes: Vec<&str> = FIELDS.into_iter().filter(|key| field(found, key) != field(next, key)).collect();
        let is_creation = found.is_none();
        let is_excused = self.lost.contains(&party.journal);
        let stored = cluster.journals.get(&party.journal).and_then(journal).filter(|journal| journal.id == party.id);
        let entries: Vec<&Entry> =
            stored.iter().flat_map(|journal| &journal.entries).filter(|entry| entry.target.name == name).collect();
        let is_back = next.is_some_and(|next| mark(next).is_none());

        let claim = party.claims.get(&party.id).copied().unwrap_or(0);
        // A settled journal still undoes what it lists. Where a driver may not mark an object, a write of an earlier one can be late.
        let is_late = |journal: &Journal| claim < journal.claim && entries.iter().any(|entry| entry.conflict().is_some());
        let covered = stored.as_ref().is_some_and(|journal| is_unsettled(journal) && !entries.is_empty() || is_late(journal));
        if !changes.is_empty() && !is_creation && !is_excused && !covered {
            self.bad("T1 a change that no journal can undo", party, name);
        }
        if let Some((settled, targets)) = self.settled.get(&party.id)
            && claim < *settled
            && targets.contains(name)
            && !is_excused
            && !is_creation
            && !(changes.is_empty() && is_back)
        {
            self.bad("T5 a lower claim commits after a higher one has settled", party, name);
        }
        if let Some(found) = found {
            self.judge_others(cluster, party, name, found, !changes.is_empty());
            // A promotion keeps the conflict of an object that was made anew since, beside its own change of the new one.
            let is_value = |entry: &Entry, key: &&str| {
                let mut fields = entry.fields.iter().filter(|field| is_at(&field.path, key));
                fields.any(|planned| [&planned.before, &planned.after].contains(&&field(next, key)))
            };
            let is_same = entries.is_empty()
                || entries.iter().any(|entry| {
                    let of_this = entry.uid.is_empty() || entry.uid == uid(found);
                    of_this && (entry.kind != EntryType::Patch || changes.iter().all(|key| *key == "m.d" || is_value(entry, key)))
                });
            let is_own = self.made.contains_key(name) && mark(found).is_some_and(|mark| mark.contains(&party.id));
            if !changes.is_empty() && !is_same && !is_own && !is_excused {
                self.bad("T6 another object of the same name is written", party, name);
            }
        }
        let is_edited = |key: &str| self.writers.get(&(name.to_owned(), key.to_owned())) == Some(&Writer::Foreign);
        let deletes_edit = next.is_none() && changes.iter().any(|key| is_edited(key)) && !party.forces;
        if name == "C0" && self.made.contains_key(name) && deletes_edit {
            self.bad("T3 an undo deletes an edit", party, name);
        }
        for key in changes {
            let place = (name.to_owned(), key.to_owned());
            if let (Some(_), Some(next)) = (found, next) {
                if key == "z" {
                    self.bad("T4 a field that nobody named is changed", party, name);
                }
                let current = field(found, key);
                let planned = || entries.iter().flat_map(|entry| &entry.fields).filter(|field| is_at(&field.path, key));
                let is_known = !is_back && planned().any(|field| field.before == current);
                let is_foreign = self.writers.get(&place) == Some(&Writer::Foreign);
                // A map that was made comes and goes with what the server put into it.
                let is_derived = key == "m.d"
                    && (found.is_some_and(|found| found["data"]["m"].is_null())
                        || next["data"]["m"].is_null() && (!is_foreign || party.forces));
                if is_back && planned().next().is_none() && !is_derived && !is_excused {
                    self.bad("T3 an undo changes what its journal does not list", party, name);
                }
                if is_foreign && !is_known && !is_derived && !is_excused && !party.forces {
                    self.bad(
                        if is_back { "T3 an undo overwrites an edit" } else { "T3 a change overwrites an edit" },
                        party,
                        name,
                    );
                }
                self.values(party, name, field(Some(next), key));
                if party.forces && is_foreign {
                    self.others.insert(place.clone(), field(Some(next), key));
                }
            }
            if key == "m.d" {
                let beside = (name.to_owned(), party.journal.clone());
                let is_kept = next.is_some_and(|next| next["data"]["m"].as_object().is_some_and(|map| map.len() > 1));
                if is_kept {
                    self.beside.insert(beside)
                } else {
                    self.beside.remove(&beside)
                };
            }
            self.writers.insert(place.clone(), Writer::Driver(party.journal.clone()));
            self.touched.entry(place).or_default().insert(party.journal.clone());
        }
        let is_other = |found| {
            let mut creations = entries.iter().filter(|entry| entry.kind == EntryType::Create);
            creations.all(|entry| !entry.uid.is_empty() && entry.uid != uid(found))
        };
        // What a late request of a deleted journal deletes was made by it.
        let is_known =
            self.made.contains_key(name) && (self.lost.contains(&party.journal) || !is_other(found.unwrap_or(&Value::Null)));
        match (found, next) {
            (None, Some(next)) => drop(self.made.insert(name.into(), uid(next).into())),
            (Some(_), None) if name == "C0" && !is_known => self.bad("T6 somebody else's object is deleted", party, name),
            _ => {}
        }
    }

    fn judge_others(&mut self, cluster: &Cluster, party: &Party, name: &str, found: &Value, changes: bool) {
        let mut words = mark(found).unwrap_or_default().split(['/', ' ']).skip(1);
        let (of, id) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let claim: u64 = words.next().and_then(|claim| claim.parse().ok()).unwrap_or(0);
        let announced = cluster.leases.get(of).and_then(|lease| lease["metadata"]["annotations"]["tenure.dev/journal"].as_str());
        let announced = announced.and_then(|text| text.split_once(' '));
        let is_announced =
            announced.is_some_and(|(of, since)| of == id && since.parse::<u64>().is_ok_and(|since| claim >= since));
        // A driver that was overtaken may have announced the claim of one that is settled.
        let is_open = |journal: &Journal| is_unsettled(journal) && claim >= journal.claim;
        let live = is_announced && cluster.journals.get(of).and_then(journal).is_some_and(|journal| is_open(&journal));
        if changes && live && of != party.journal && !self.lost.contains(of) {
            self.bad("T8 two transactions on one object", party, name);
        }
    }

    /// Every value begins with the name of the object that it was meant for.
    fn values(&mut self, party: &Party, name: &str, value: Option<Value>) {
        let text = value.and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default();
        if text.contains(':') && !text.starts_with(&format!("{name}:")) {
            self.bad("T11 a value of another object", party, name);
        }
    }

    fn stored(&mut self, cluster: &Cluster, party: &mut Party, name: &str, next: &Value) {
        let Some(next) = journal(next) else { return };
        let old = cluster.journals.get(name).and_then(journal);
        let is_same = old.as_ref().is_some_and(|old| old.id == next.id);
        let claimed = old.as_ref().filter(|_| is_same).map_or(0, |old| old.claim);
        let own = party.claims.get(&next.id) == Some(&claimed);
        let rises = next.claim == claimed + 1 || next.claim == claimed && own;
        let token = next.token.parse().unwrap_or(0);
        let highest = self.tokens.entry(next.id.clone()).or_default();
        let falls = token < *highest;
        *highest = token.max(*highest);
        if (!rises || falls) && !self.lost.contains(name) {
            self.bad("T2 a token falls, or a claim does not rise by one", party, name);
        }
        party.claims.insert(next.id.clone(), next.claim);
        party.id.clone_from(&next.id);
        if let Some(old) = old.filter(|_| is_same) {
            self.superseded(cluster, &old, &next);
            self.settle(cluster, party, &old, &next);
        }
    }

    /// A transaction that was committed and is followed by another cannot be undone any more: what it left is what stands.
    fn superseded(&mut self, cluster: &Cluster, old: &Journal, next: &Journal) {
        if (old.kind, old.phase, next.phase) != (Kind::Transaction, Phase::Committed, Phase::Prepared) {
            return;
        }
        for entry in &old.entries {
            let name = &entry.target.name;
            let object = cluster.objects.get(name);
            if entry.kind != EntryType::Patch {
                self.based.insert(name.clone());
            } else if object.is_some_and(|object| uid(object) == entry.uid) {
                for key in FIELDS.into_iter().filter(|key| entry.fields.iter().any(|field| is_at(&field.path, key))) {
                    self.others.insert((name.clone(), key.to_owned()), field(object, key));
                    if key.starts_with("m.") {
                        self.shared.insert(name.clone());
                    }
                }
            }
        }
    }

    /// The journal is committed or undone: that must be true.
    fn settle(&mut self, cluster: &Cluster, party: &Party, old: &Journal, next: &Journal) {
        let is_committed = match next.phase {
            Phase::Prepared | Phase::Undoing => return,
            Phase::Committed => true,
            Phase::Undone => false,
        };
        let is_left = |entry: &&Entry| next.entries.iter().any(|left| left.target == entry.target && left.conflict().is_some());
        let done = if is_committed { &next.entries } else { &old.entries };
        let mut done: Vec<&Entry> = done.iter().filter(|entry| !is_left(entry)).collect();
        self.settled.insert(next.id.clone(), (next.claim, done.iter().map(|entry| entry.target.name.clone()).collect()));
        // Where several entries name a field, it is as the last one says, and after an undo as before the first.
        let mut judged = BTreeSet::new();
        if is_committed {
            done.reverse();
        }
        for entry in done.iter().filter(|entry| entry.kind == EntryType::Patch) {
            let name = &entry.target.name;
            let Some(object) = cluster.objects.get(name).filter(|object| uid(object) == entry.uid) else { continue };
            for planned in &entry.fields {
                let Some(key) = FIELDS.into_iter().find(|key| is_at(&planned.path, key)) else { continue };
                if !judged.insert((name.clone(), key.to_owned())) {
                    continue;
                }
                let wanted = if is_committed { &planned.after } else { &planned.before };
                let writer = self.writers.get(&(name.clone(), key.to_owned()));
                // A late write of a journal that was deleted is nobody's to undo.
                let mine = Writer::Driver(party.journal.clone());
                let is_own = writer == Some(&mine) && !self.lost.contains(&party.journal);
                // It goes with a map that an entry has made. In one that others kept at the write the server derives it anew.
                let makes = |entry: &&Entry| entry.target.name == *name && entry.fields.iter().any(|field| field.known == 1);
                let was_kept = self.beside.contains(&(name.clone(), party.journal.clone()));
                let is_anew = |map: &Map<_, _>| planned.before.is_none() && map["d"] == "default" && was_kept;
                let is_derived = object["data"]["m"].as_object().map_or_else(|| done.iter().any(makes), is_anew);
                if is_own && field(Some(object), key) != *wanted && !(key == "m.d" && !is_committed && is_derived) {
                    self.bad("T6 recorded, and not true", party, name);
                }
            }
        }
    }

    /// Everything has come to rest, and was recovered.
    pub fn end(&mut self, cluster: &Cluster) {
        let entries: Vec<Entry> = cluster.journals.values().filter_map(journal).flat_map(|journal| journal.entries).collect();
        let stuck = |name: &str| entries.iter().any(|entry| entry.target.name == name && entry.conflict().is_some());
        if !self.lost.is_empty() {
            return;
        }
        let mut wrong = Vec::new();
        for ((name, key), value) in &self.others {
            let place = (name.clone(), key.clone());
            let touched = |key: &str| self.touched.get(&(name.clone(), key.to_owned())).into_iter().flatten();
            let several = if key == "m.d" {
                // What the server put into a map that several have made stays.
                self.shared.contains(name) || ["m.x", "m.y", key].into_iter().flat_map(touched).collect::<BTreeSet<_>>().len() > 1
            } else {
                touched(key).count() > 1
            };
            if ["C0", "D0"].contains(&name.as_str()) || self.stripped.contains(name) || stuck(name) || several {
                continue;
            }
            match cluster.objects.get(name) {
                None if !self.gone.contains(name) => wrong.push(format!("T7 an object is gone: {name}")),
                Some(object) if !self.gone.contains(name) => {
                    let is_own = matches!(self.writers.get(&place), Some(Writer::Driver(_)));
                    let now = field(Some(object), key);
                    if is_own && now != *value {
                        wrong.push(format!("T7 not restored: {name}.{key} is {now:?}, not {value:?}"));
                    }
                }
                None | Some(_) => {}
            }
        }
        let is_free = |name: &str| !self.based.contains(name) && !stuck(name);
        if !cluster.objects.contains_key("D0") && is_free("D0") && !self.stripped.contains("D0") {
            wrong.push("T7 a deleted object is not back".into());
        }
        let is_listed = entries.iter().any(|entry| entry.target.name == "C0");
        // A copy of it that somebody has made may stay, even where nothing tells the two apart.
        let is_own = |object| self.made.get("C0").is_some_and(|made| made == uid(object));
        if cluster.objects.get("C0").is_some_and(is_own) && is_free("C0") && !is_listed {
            wrong.push("T9 a stray creation that nobody lists".into());
        }
        self.violations.extend(wrong);
    }
}

/// Returns true if the path leads to this field of the data.
fn is_at(path: &[Step], key: &str) -> bool {
    path.iter().skip(1).eq(key.split('.').map(|key| Step::Key(key.to_owned())).collect::<Vec<_>>().iter())
}

fn is_unsettled(journal: &Journal) -> bool {
    matches!(journal.phase, Phase::Prepared | Phase::Undoing)
}

/// The data of an object, with a map or without.
pub fn data(name: &str, author: &str, has_map: bool) -> Value {
    let mut object = json!({ "data": {} });
    for key in FIELDS.into_iter().filter(|key| *key != "m.d" && (has_map || !key.starts_with("m."))) {
        put(&mut object, key, Some(&json!(format!("{name}:{author}{key}"))));
    }
    object["data"].take()
}
