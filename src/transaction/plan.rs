//! Plans the changes: which fields of which object, and what undoes them (rule 4). Writes nothing.

use serde_json::{Map, Value, json};

use super::{
    Change, ChangeType, Entry, EntryType, Event, MANAGER, Outcome, Phase, Request, Server, Target, Verb,
    driver::Driver,
    fields::{Field, Side, comparable, lacks, named, shape, updated, with, without_nulls},
    journal::Work,
    paths::{Path, as_map, at, entry_of, managers, owners},
    requests::{PAUSE, deletion, is_going, towards, uid, versioned},
};
use crate::request::{Answer, Refusal};

/// The kind of an entry, its fields, and the object that it keeps.
type Planned = (EntryType, Vec<Field>, Value);

impl<S: Server> Driver<'_, S> {
    /// Plans the changes. `undone` are the entries of an unsettled journal, which are undone before.
    pub(super) async fn plan(&mut self, changes: &[Change], undone: &[Entry]) -> Result<Vec<Entry>, Outcome> {
        let mut entries = Vec::new();
        for (number, change) in changes.iter().enumerate() {
            let earlier = changes.get(..number).unwrap_or_default();
            let is_unseen = change.verb == ChangeType::Create && earlier.iter().any(|change| change.verb == ChangeType::Create);
            let undone = undone.iter().find(|entry| entry.target == change.target);
            entries.push(self.plan_change(change, undone, is_unseen).await?);
        }
        self.drafted(Phase::Prepared, &entries)?;
        Ok(entries)
    }

    async fn plan_change(&self, change: &Change, undone: Option<&Entry>, is_unseen: bool) -> Result<Entry, Outcome> {
        let target = &change.target;
        loop {
            let found = self.unmarked(target).await?;
            let object = match undone {
                Some(entry) => restored(entry, found.as_ref()),
                None => found.clone(),
            };
            judge(change, object.as_ref())?;
            let before = object.as_ref().unwrap_or(&Value::Null);
            let planned = match (change.verb, &object) {
                (ChangeType::Create, _) => self.plan_creation(change, is_unseen || found.is_some()).await?,
                (_, None) => Some((EntryType::Delete, Vec::new(), Value::Null)),
                (ChangeType::Delete, Some(object)) => self.plan_deletion(target, found.as_ref(), object).await?,
                (ChangeType::Patch | ChangeType::Update, Some(object)) => self.plan_patch(change, found.as_ref(), object).await?,
            };
            let Some((kind, fields, object)) = planned else { continue };
            return Ok(Entry {
                target: target.clone(),
                kind,
                uid: uid(before).to_owned(),
                claim: self.claim,
                fields,
                managers: managers(before).to_vec(),
                work: Work { object: found.unwrap_or_default(), require: change.require.clone(), ..Work::default() },
                object,
                state: String::new(),
            });
        }
    }

    async fn plan_creation(&self, change: &Change, is_unseen: bool) -> Result<Option<Planned>, Outcome> {
        let wanted = whole(change, &without_nulls(&change.content));
        if self.rehearse(&change.target, Verb::Create(wanted.clone().into()), is_unseen).await?.is_none() {
            return Ok(None);
        }
        self.review(&change.target, ["delete", "patch"]).await?;
        Ok(Some((EntryType::Create, Vec::new(), wanted)))
    }

    async fn plan_deletion(&self, target: &Target, found: Option<&Value>, object: &Value) -> Result<Option<Planned>, Outcome> {
        if let Some(found) = found
            && self.rehearse(target, deletion(found, true), false).await?.is_none()
        {
            return Ok(None);
        }
        self.review(target, ["create", "patch"]).await?;
        Ok(Some((EntryType::Delete, Vec::new(), again(target, object))))
    }

    async fn plan_patch(&self, change: &Change, found: Option<&Value>, object: &Value) -> Result<Option<Planned>, Outcome> {
        let (target, present, is_unseen) = (&change.target, found.unwrap_or(object), found.is_none());
        // An update replaces lists: nobody has to tell their keys.
        let (content, applied) = if change.verb == ChangeType::Update {
            (updated(object, &change.content), Some(Value::Null))
        } else {
            let apply = Verb::Apply(part(change, present).into());
            (change.content.clone(), self.rehearse(target, apply, is_unseen).await?)
        };
        let Some(applied) = applied else { return Ok(None) };
        let is_plan = |entry: &Value| entry["manager"] == MANAGER && entry["operation"] == "Apply";
        let owned = owners(&applied, &[], is_plan).next().map(|(_, owned)| owned);
        let fields = named(object, &content, owned);
        let mut fields = fields.map_err(|why| Outcome::Refused(format!("{target}: {why}")))?;
        let next = with(object, &fields, Side::After);
        let patch = towards(present, next.clone(), Some(self.mark()));
        let Some(answer) = self.rehearse(target, patch, is_unseen).await? else { return Ok(None) };
        let answer = if is_unseen { next } else { answer };
        fields.iter_mut().for_each(|field| field.after = at(&answer, &field.path).cloned());
        // What an update removes, and the server derives again, is none.
        fields.retain(|field| change.verb == ChangeType::Patch || field.differs());
        self.warn_of_appliers(target, object, &fields);
        Ok(Some((EntryType::Patch, fields, Value::Null)))
    }

    /// Reads a target, once no live mark of another transaction is on it.
    async fn unmarked(&self, target: &Target) -> Result<Option<Value>, Outcome> {
        let mut is_told = false;
        loop {
            let object = self.get(target).await?;
            let Some(why) = self.live(object.as_ref()).await? else { return Ok(object) };
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

    /// Sends a dry run. None: the object has changed meanwhile. What depends on objects that are not there yet is planned unseen.
    async fn rehearse(&self, target: &Target, verb: Verb, is_unseen: bool) -> Result<Option<Value>, Outcome> {
        let answer = self.send(Request::Plan(target.clone(), verb), self.acting_as.as_deref()).await;
        let is_absent =
            matches!(answer, Answer::Refused { refusal: Refusal::NoSuchPlace, .. } | Answer::NotFound | Answer::Conflict);
        if is_unseen && is_absent { Ok(Some(Value::Null)) } else { self.object(answer, &target.to_string()).await }
    }

    /// Asks whether what the undo of a change needs is allowed.
    async fn review(&self, target: &Target, verbs: [&'static str; 2]) -> Result<(), Outcome> {
        for verb in verbs {
            let review = Request::Review(target.clone(), verb);
            self.found(review, self.acting_as.as_deref(), &format!("an undo would have to {verb} {target}")).await?;
        }
        Ok(())
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

/// Judges what was found, before the API server is asked.
fn judge(change: &Change, object: Option<&Value>) -> Result<(), Outcome> {
    let target = &change.target;
    let why = match (unmet(target, change.require.as_ref(), object), change.verb, object) {
        (Some(why), ..) => why,
        (None, ChangeType::Create, Some(_)) => "exists already".into(),
        (None, ChangeType::Patch | ChangeType::Update, None) => "does not exist".into(),
        (None, ChangeType::Patch | ChangeType::Update, Some(object)) if is_going(object) => "is being deleted".into(),
        (None, ChangeType::Create, None)
        | (None, ChangeType::Patch | ChangeType::Update, Some(_))
        | (None, ChangeType::Delete, _) => return Ok(()),
    };
    Err(Outcome::Refused(format!("{target} {why}")))
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
    let mut part = shape(object, &[&change.content]);
    as_map(&mut part).remove("status");
    let kept = ["labels", "annotations"].into_iter().filter_map(|key| {
        let found = object["metadata"].get(key)?;
        Some((key.to_owned(), found.clone()))
    });
    let metadata: Map<String, Value> = kept.collect();
    as_map(&mut part).insert("metadata".into(), metadata.into());
    versioned(whole(change, &part), object)
}

/// Returns a whole object of this content.
fn whole(change: &Change, content: &Value) -> Value {
    let Target { api_version, kind, namespace, name, .. } = &change.target;
    let mut object = content.clone();
    as_map(&mut object).extend([("apiVersion".into(), json!(api_version)), ("kind".into(), json!(kind))]);
    let metadata = as_map(entry_of(&mut object, "metadata"));
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
