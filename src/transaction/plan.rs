//! Plans the changes: which fields of which object, and what undoes them (rule 4). Writes nothing.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::{
    Change, Entry, EntryType, Event, MANAGER, Outcome, Phase, Request, Server, Target, Verb, Write,
    driver::Driver,
    fields::{Field, Side, comparable, lacks, merge, merge_patch, shape, updated, with, without_nulls},
    journal::Work,
    paths::{Path, entry_of, managers, map_of, owners},
    requests::{PAUSE, deletion, is_going, refused, set_mark, uid, versioned},
};
use crate::request::{Answer, Refusal};

impl<S: Server> Driver<'_, S> {
    /// Plans the changes. `undone` are the entries of an unsettled journal, which are undone before.
    pub(super) async fn plan(&mut self, changes: &[Change], undone: &[Entry]) -> Result<Vec<Entry>, Outcome> {
        let mut entries = Vec::new();
        for (number, change) in changes.iter().enumerate() {
            let earlier = changes.get(..number).unwrap_or_default();
            let is_unseen = change.verb == Verb::Create && earlier.iter().any(|change| change.verb == Verb::Create);
            let undone = undone.iter().find(|entry| entry.target == change.target);
            entries.push(self.plan_change(change, undone, is_unseen).await?);
        }
        self.drafted(Phase::Prepared, &entries)?;
        Ok(entries)
    }

    async fn plan_change(&self, change: &Change, undone: Option<&Entry>, is_unseen: bool) -> Result<Entry, Outcome> {
        let target = &change.target;
        loop {
            let Some(found) = self.unmarked(target).await? else { continue };
            let object = match undone {
                Some(entry) => restored(entry, found.as_ref()),
                None => found.clone(),
            };
            self.judge(change, object.as_ref())?;
            let entry = |kind, fields, object: Value| Entry {
                target: target.clone(),
                kind,
                uid: uid(&object).to_owned(),
                claim: self.claim,
                fields,
                managers: managers(&object).to_vec(),
                work: Work { object: found.clone().unwrap_or_default(), require: change.require.clone(), ..Work::default() },
                object: Value::Null,
                state: String::new(),
            };
            return Ok(match (change.verb, object) {
                (Verb::Create, _) => {
                    let wanted = whole(change, &without_nulls(&change.content));
                    let is_unseen = is_unseen || found.is_some();
                    if self.rehearse(target, Write::Create(wanted.clone()), is_unseen).await?.is_none() {
                        continue;
                    }
                    self.review(target, "delete").await?;
                    self.review(target, "patch").await?;
                    Entry { object: wanted, ..entry(EntryType::Create, Vec::new(), Value::Null) }
                }
                (_, None) => entry(EntryType::Delete, Vec::new(), Value::Null),
                (Verb::Delete, Some(object)) => {
                    if let Some(found) = &found
                        && self.rehearse(target, deletion(found, true), false).await?.is_none()
                    {
                        continue;
                    }
                    self.review(target, "create").await?;
                    self.review(target, "patch").await?;
                    Entry { object: again(target, &object), ..entry(EntryType::Delete, Vec::new(), object) }
                }
                (Verb::Patch | Verb::Update, Some(object)) => {
                    let present = found.as_ref().unwrap_or(&object);
                    let (next, paths) = match change.verb {
                        Verb::Update => updated(&object, &change.content),
                        Verb::Patch | Verb::Create | Verb::Delete => {
                            let part = Write::Apply(part(change, present));
                            let Some(answer) = self.rehearse(target, part, found.is_none()).await? else { continue };
                            let is_plan = |entry: &Value| entry["manager"] == MANAGER && entry["operation"] == "Apply";
                            let fields = owners(&answer, &[], is_plan).next().map(|(_, fields)| fields);
                            let mut next = object.clone();
                            let paths = merge(&mut next, &change.content, fields);
                            (next, paths.map_err(|why| Outcome::Refused(format!("{target}: {why}")))?)
                        }
                    };
                    let mut patch = versioned(merge_patch(present, &next), present);
                    set_mark(&mut patch, Some(self.mark()));
                    let answer = self.rehearse(target, Write::Merge(patch), found.is_none()).await?;
                    let Some(answer) = answer.map(|answer| if found.is_none() { next } else { answer }) else { continue };
                    let named = |path: Path| Field::new(path, &object, &answer);
                    let is_plain = |field: &Field| change.verb == Verb::Patch || field.differs();
                    let fields: Vec<Field> = paths.into_iter().map(named).filter(is_plain).collect();
                    self.warn_of_appliers(target, &object, &fields);
                    entry(EntryType::Patch, fields, object)
                }
            });
        }
    }

    /// Reads a target, once no live mark of another transaction is on it. None: it is to be read again.
    async fn unmarked(&self, target: &Target) -> Result<Option<Option<Value>>, Outcome> {
        let mut is_told = false;
        loop {
            let object = self.get(target).await?;
            let Some(why) = self.live(object.as_ref()).await? else { return Ok(Some(object)) };
            if self.go_on().is_err() {
                return Err(Outcome::Held { target: target.clone().into(), why });
            }
            if !is_told {
                self.server.report(Event::Waiting { target: target.clone(), why });
            }
            is_told = true;
            self.server.wait(PAUSE).await;
        }
    }

    /// Judges what was found, before the API server is asked.
    fn judge(&self, change: &Change, object: Option<&Value>) -> Result<(), Outcome> {
        let target = &change.target;
        let refuse = |why: String| Err(Outcome::Refused(format!("{target} {why}")));
        if let Some(why) = unmet(target, change.require.as_ref(), object) {
            return refuse(why);
        }
        match (change.verb, object) {
            (Verb::Create, Some(_)) => refuse("exists already".into()),
            (Verb::Patch | Verb::Update, None) => refuse("does not exist".into()),
            (Verb::Patch | Verb::Update, Some(object)) if is_going(object) => refuse("is being deleted".into()),
            (Verb::Create, None) | (Verb::Patch | Verb::Update, Some(_)) | (Verb::Delete, _) => Ok(()),
        }
    }

    /// Sends a dry run. None: the object has changed meanwhile. What depends on objects that are not there yet is planned unseen.
    async fn rehearse(&self, target: &Target, write: Write, is_unseen: bool) -> Result<Option<Value>, Outcome> {
        let answer = self.send(Request::Plan(target.clone(), write), self.acting_as.as_deref()).await;
        match answer {
            Answer::Object(after) => Ok(Some(Arc::unwrap_or_clone(after))),
            Answer::Refused { refusal: Refusal::NoSuchPlace, .. } | Answer::NotFound | Answer::Conflict if is_unseen => {
                Ok(Some(Value::Null))
            }
            Answer::Refused { message, .. } => Err(refused(&target.to_string(), message)),
            other @ (Answer::NotFound | Answer::Conflict | Answer::Unknown { .. } | Answer::Deleted | Answer::Listed { .. }) => {
                self.again(other).await.map(|()| None)
            }
        }
    }

    /// Asks whether what the undo of a change needs is allowed.
    async fn review(&self, target: &Target, verb: &'static str) -> Result<(), Outcome> {
        loop {
            match self.send(Request::Review(target.clone(), verb), self.acting_as.as_deref()).await {
                Answer::Refused { message, .. } => {
                    return Err(Outcome::NotPermitted(format!("an undo would have to {verb} {target}: {message}")));
                }
                unknown @ Answer::Unknown { .. } => self.again(unknown).await?,
                Answer::Object(_) | Answer::NotFound | Answer::Conflict | Answer::Deleted | Answer::Listed { .. } => {
                    return Ok(());
                }
            }
        }
    }

    /// Names the managers that apply a field, and will take it back.
    fn warn_of_appliers(&self, target: &Target, object: &Value, fields: &[Field]) {
        for field in fields.iter().filter(|field| field.differs()) {
            let is_applier = |entry: &Value| entry["manager"] != MANAGER && entry["operation"] == "Apply";
            for (manager, _) in owners(object, &field.path, is_applier) {
                let what = format!("{} is applied by {manager}, which may put it back", field.name());
                self.server.report(Event::Warning { target: target.clone(), what });
            }
        }
    }
}

/// Returns why an object does not meet a requirement. Values of Secrets are not told.
pub(super) fn unmet(target: &Target, require: Option<&Value>, object: Option<&Value>) -> Option<String> {
    let (path, wanted, found) = lacks(object.unwrap_or(&Value::Null), require?, &mut Path::new())?;
    let values = if target.is_secret() { String::new() } else { format!(": {wanted} is required, {found} was found") };
    Some(format!("is not as required: {path}{values}"))
}

/// Returns an object as it would be once an entry is undone.
fn restored(entry: &Entry, object: Option<&Value>) -> Option<Value> {
    match (entry.kind, object) {
        (EntryType::Create, object) => object.filter(|object| uid(object) != entry.uid && !entry.uid.is_empty()).cloned(),
        (EntryType::Delete, None) => Some(entry.object.clone()).filter(|object| !object.is_null()),
        (EntryType::Delete, Some(object)) => Some(object.clone()),
        (EntryType::Patch, object) => object.map(|object| with(object, &entry.fields, Side::Before)),
    }
}

/// Returns the part of an object that a change is about, for a dry run that changes nothing.
fn part(change: &Change, object: &Value) -> Value {
    let mut part = shape(object, &change.content);
    map_of(&mut part).remove("status");
    let kept = ["labels", "annotations"].into_iter().filter_map(|key| {
        let found = object["metadata"].get(key)?;
        Some((key.to_owned(), found.clone()))
    });
    let metadata: Map<String, Value> = kept.collect();
    map_of(&mut part).insert("metadata".into(), metadata.into());
    versioned(whole(change, &part), object)
}

/// Returns a whole object of this content.
fn whole(change: &Change, content: &Value) -> Value {
    let Target { api_version, kind, namespace, name, .. } = &change.target;
    let mut object = content.clone();
    map_of(&mut object).extend([("apiVersion".into(), json!(api_version)), ("kind".into(), json!(kind))]);
    let metadata = map_of(entry_of(&mut object, "metadata"));
    metadata.insert("name".into(), json!(name));
    metadata.extend(namespace.iter().map(|namespace| ("namespace".into(), json!(namespace))));
    object
}

/// Returns what makes a deleted object again: of a Job without what the server generated for the old one.
fn again(target: &Target, object: &Value) -> Value {
    let mut object = comparable(object);
    if target.kind == "Job" && target.api_version == "batch/v1" && object["spec"]["manualSelector"] != true {
        if let Some(Value::Object(spec)) = object.get_mut("spec") {
            spec.remove("selector");
        }
        for labels in ["/metadata/labels", "/spec/template/metadata/labels"] {
            if let Some(Value::Object(labels)) = object.pointer_mut(labels) {
                let is_generated = |name: &str| {
                    let name = name.trim_start_matches("batch.kubernetes.io/");
                    name == "controller-uid" || name == "job-name"
                };
                labels.retain(|name, _| !is_generated(name));
            }
        }
    }
    object
}
