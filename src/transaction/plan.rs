//! Plans the changes: which fields of which object, and what undoes them (rule 4). Writes nothing.

use serde_json::{Map, Value, json};

use super::{
    Change, ChangeType, Entry, EntryType, Event, MANAGER, MARK, Outcome, Phase, Request, Server, State, Target, Verb,
    change::TRIES,
    driver::Driver,
    fields::{Field, Lists, Side, body, comparable, in_items, named, note, shape, updated, with, without_nulls},
    journal::Work,
    paths::{Path, Step, as_map, at, entry_of, managers, owners, remove},
    requests::{CHANGING, PAUSE, deletion, is_going, towards, uid, versioned},
};
use crate::request::{Answer, Refusal};

impl<S: Server> Driver<'_, S> {
    /// Plans the changes. Of `undone`, the entries that are Planned count as put back already.
    pub(super) async fn plan(&mut self, changes: &[Change], undone: &[Entry]) -> Result<Vec<Entry>, Outcome> {
        let mut entries: Vec<Entry> = Vec::new();
        for change in changes {
            let is_later = entries.iter().any(|entry| entry.kind == EntryType::Create);
            let undone = undone.iter().find(|entry| entry.target == change.target && entry.state == State::Planned);
            let mut tries = 0;
            entries.push(loop {
                match self.planned(change, undone, is_later).await {
                    Err(Outcome::Overtaken) if tries < TRIES => self.missed(&mut tries).await?,
                    Err(Outcome::Overtaken) => {
                        return Err(Outcome::Refused(format!("{} {CHANGING}", change.target)));
                    }
                    planned => break planned?,
                }
            });
            // A look ends where no answer comes; how long the answers take is up to the user.
            if !self.looks {
                self.go_on()?;
            }
        }
        judge_together(&entries)?;
        // Once a creation is made, it is stored with what the server adds.
        let mut grown = entries.clone();
        for entry in grown.iter_mut().filter(|entry| entry.kind == EntryType::Create && entry.work.object.is_object()) {
            entry.object = body(&entry.work.object);
        }
        self.drafted(Phase::Prepared, &grown)?;
        Ok(entries)
    }

    /// Plans a change. One that `is_later` than a creation may depend on it.
    async fn planned(&self, change: &Change, undone: Option<&Entry>, is_later: bool) -> Result<Entry, Outcome> {
        let target = &change.target;
        let found = self.unmarked(target).await?;
        let object = match undone {
            Some(entry) => restored(entry, found.as_ref()),
            None => found.clone(),
        };
        judge(change, object.as_ref())?;
        let (before, mut read) = (object.as_ref().unwrap_or(&Value::Null), found.clone().unwrap_or_default());
        let mut wanted = Value::Null;
        let (kind, fields, kept) = match (change.verb, &object) {
            (ChangeType::Create, _) => {
                wanted = whole(change, &without_nulls(&change.content));
                read = self.rehearse(target, Verb::Create(wanted.clone().into()), is_later || found.is_some()).await?;
                self.review(target, ["delete", "patch"]).await?;
                let stored = if read.is_null() { wanted.clone() } else { as_stored(&wanted, &read) };
                (EntryType::Create, Vec::new(), stored)
            }
            (ChangeType::Delete, Some(object)) if !is_going(object) => {
                if let Some(found) = &found {
                    self.rehearse(target, deletion(found, true), false).await?;
                }
                self.review(target, ["create", "patch"]).await?;
                (EntryType::Delete, Vec::new(), again(target, object))
            }
            (ChangeType::Patch | ChangeType::Update, Some(object)) => {
                (EntryType::Patch, self.plan_patch(change, found.as_ref(), object).await?, Value::Null)
            }
            // An object that somebody else deletes is as good as absent.
            (ChangeType::Delete, _) | (ChangeType::Patch | ChangeType::Update, None) => {
                (EntryType::Delete, Vec::new(), Value::Null)
            }
        };
        Ok(Entry {
            target: target.clone(),
            kind,
            uid: uid(before).to_owned(),
            claim: self.claim,
            fields,
            managers: managers(before).to_vec(),
            object: kept,
            state: State::Planned,
            work: Work { object: read, require: change.require.clone(), wanted, ..Work::default() },
        })
    }

    async fn plan_patch(&self, change: &Change, found: Option<&Value>, object: &Value) -> Result<Vec<Field>, Outcome> {
        let (target, present, is_unseen) = (&change.target, found.unwrap_or(object), found.is_none());
        let (mut content, mut applied) = (change.content.clone(), Value::Null);
        name_annotations(&mut content, object);
        if ["", "apps", "batch"].contains(&target.group()) {
            name_alias(&mut content);
        }
        if change.verb == ChangeType::Update {
            // It replaces lists: nobody has to tell their keys.
            content = updated(object, &content);
        } else {
            // Changes nothing.
            let apply = async |lists| {
                let part = body(&shape(present, &[&content], lists));
                self.rehearse(target, Verb::Apply(versioned(whole(change, &part), present).into()), is_unseen).await
            };
            applied = match apply(Lists::InPart).await {
                Err(Outcome::Refused(_)) => apply(Lists::Whole).await?,
                applied => applied?,
            };
        }
        let is_plan = |entry: &Value| entry["manager"] == MANAGER && entry["operation"] == "Apply";
        let owned = owners(&applied, &[], is_plan).next().map(|(_, owned)| owned);
        let fields = named(object, &content, owned);
        let mut fields = fields.map_err(|why| Outcome::Refused(format!("{target}: {why}")))?;
        let next = with(object, &fields, Side::After);
        let answer = self.rehearse(target, towards(present, next.clone(), Some(self.mark())), is_unseen).await?;
        let answer = if is_unseen { next } else { answer };
        if change.verb == ChangeType::Patch {
            let is_made = |entry: &Value| entry["manager"] == MANAGER && entry["operation"] == "Update";
            fields = in_items(fields, object, owners(&answer, &[], is_made).next().map(|(_, owned)| owned));
        }
        if let Some(field) = dropped(&fields, &answer) {
            return Err(Outcome::Refused(format!("{target}: the API server makes something else of {}", field.name())));
        }
        let removed: Vec<_> = fields.iter().filter(|field| field.after.is_none()).map(|field| field.path.clone()).collect();
        note(&mut fields, object, &answer, true);
        if change.verb == ChangeType::Update {
            fields.retain(|field| field.differs() || is_replaced(field, &removed));
        }
        self.warn_of_appliers(target, object, &fields);
        Ok(fields)
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
                self.server.report(Event::Said(format!("waits for {target}: {why}")));
            }
            is_told = true;
            self.server.wait(PAUSE).await;
        }
    }

    /// Sends a dry run. What depends on objects that are not there yet is planned unseen.
    ///
    /// # Errors
    /// It is refused, or the object has changed meanwhile.
    async fn rehearse(&self, target: &Target, verb: Verb, is_unseen: bool) -> Result<Value, Outcome> {
        let request = Request::Plan(target.clone(), verb);
        loop {
            let answer = self.send(&request).await;
            let is_absent =
                matches!(answer, Answer::Refused { refusal: Refusal::NoSuchPlace, .. } | Answer::NotFound | Answer::Conflict);
            if is_unseen && is_absent {
                return Ok(Value::Null);
            }
            let is_again = request.is_sent_again(&answer);
            match self.object(answer, &request).await? {
                None if is_again => {}
                object => return object.ok_or(Outcome::Overtaken),
            }
        }
    }

    /// Asks whether what the undo of a change needs is allowed.
    async fn review(&self, target: &Target, verbs: [&'static str; 2]) -> Result<(), Outcome> {
        for verb in verbs {
            self.ask(Request::Review(target.clone(), verb)).await?;
        }
        Ok(())
    }

    /// Names the managers that apply a field, and will take it back.
    fn warn_of_appliers(&self, target: &Target, object: &Value, fields: &[Field]) {
        for field in fields.iter().filter(|field| field.differs()) {
            let is_applier = |entry: &Value| entry["manager"] != MANAGER && entry["operation"] == "Apply";
            for (manager, _) in owners(object, &field.path, is_applier) {
                let what = format!("{target}: {} is applied by {manager}, which may put it back", field.name());
                self.server.report(Event::Said(what));
            }
        }
    }
}

/// Judges what was found, before the API server is asked.
fn judge(change: &Change, object: Option<&Value>) -> Result<(), Outcome> {
    let target = &change.target;
    let why = match (change.verb, object) {
        (ChangeType::Create, Some(_)) => Some("exists already".to_owned()),
        (ChangeType::Patch | ChangeType::Update, None) => Some("does not exist".to_owned()),
        (ChangeType::Patch | ChangeType::Update, Some(object)) if is_going(object) => Some("is being deleted".to_owned()),
        _ => None,
    };
    match unmet(target, change.require.as_ref(), object).or(why) {
        Some(why) => Err(Outcome::Refused(format!("{target} {why}"))),
        None => Ok(()),
    }
}

/// Returns true if an update names a field that it leaves as it is: not what it removes and the server derives again, nor metadata,
/// which it merges.
fn is_replaced(field: &Field, removed: &[Path]) -> bool {
    !removed.contains(&field.path) && field.path.first() != Some(&Step::Key("metadata".into()))
}

/// Returns a field that a change names and a dry run of it does not show: a webhook may have removed it, or given an item other keys.
fn dropped<'a>(fields: &'a [Field], answer: &Value) -> Option<&'a Field> {
    fields.iter().find(|field| at(answer, &field.path).is_none() && field.after.as_ref().is_some_and(is_something))
}

/// Returns true if the API server keeps a value: an empty one may be as good as none.
fn is_something(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(value) => *value,
        Value::Number(value) => value.as_f64() != Some(0.0),
        Value::String(value) => !value.is_empty(),
        Value::Array(items) => items.iter().any(is_something),
        Value::Object(map) => map.values().any(is_something),
    }
}

/// Names each annotation where a content removes all: the mark is none of the object's.
fn name_annotations(content: &mut Value, object: &Value) {
    let Some(Value::Object(metadata)) = content.get_mut("metadata") else { return };
    let found = object["metadata"]["annotations"].as_object().into_iter().flat_map(Map::keys).filter(|name| *name != MARK);
    if let Some(removed @ Value::Null) = metadata.get_mut("annotations") {
        *removed = found.map(|name| (name.clone(), Value::Null)).collect();
    }
    metadata.retain(|key, value| key != "annotations" || value != &json!({}));
}

/// Names the old name of a pod's account beside the new one: the API server writes what is missing of both.
fn name_alias(content: &mut Value) {
    for pod in ["/spec/template/spec", "/spec/jobTemplate/spec/template/spec", "/template/spec"] {
        let Some(Value::Object(pod)) = content.pointer_mut(pod) else { continue };
        if let Some(account) = pod.get("serviceAccountName").cloned() {
            pod.entry("serviceAccount").or_insert(account);
        }
    }
}

/// Refuses to delete the only owner of an object that an undo or a change makes: it would be collected as garbage.
fn judge_together(entries: &[Entry]) -> Result<(), Outcome> {
    let deleted = |owner: &Value| entries.iter().find(|entry| entry.kind == EntryType::Delete && owner["uid"] == entry.uid);
    let owner = |entry: &Entry| {
        let owners = entry.object["metadata"]["ownerReferences"].as_array()?;
        owners.iter().map(deleted).collect::<Option<Vec<_>>>()?.pop()
    };
    match entries.iter().find_map(|entry| Some((entry, owner(entry)?))) {
        Some((entry, owner)) => {
            let why = "owns it and is deleted too: leave it out, as it goes with its owner";
            Err(Outcome::Refused(format!("{}: {} {why}", entry.target, owner.target)))
        }
        None => Ok(()),
    }
}

/// Returns why an object does not meet a requirement: a change that must change nothing. Values of Secrets are not told.
pub(super) fn unmet(target: &Target, require: Option<&Value>, object: Option<&Value>) -> Option<String> {
    let fields = named(object.unwrap_or(&Value::Null), require?, None).ok()?;
    let field = fields.iter().find(|field| field.differs())?;
    let [found, wanted] = [&field.before, &field.after].map(|value| json!(value));
    let values = if target.is_secret() { String::new() } else { format!(": {wanted} is required, {found} was found") };
    Some(format!("is not as required: {}{values}", field.name()))
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

/// Returns what is sent as the API server stores it, which a dry run has shown: `1` of a processor as `"1"`, and no empty value.
pub(super) fn as_stored(sent: &Value, stored: &Value) -> Value {
    match (sent, stored) {
        (Value::Object(sent), Value::Object(stored)) => {
            let present = |key| stored.get(key).filter(|stored: &&Value| !stored.is_null());
            let kept = sent.iter().filter_map(|(key, sent)| Some((key.clone(), as_stored(sent, present(key)?))));
            Value::Object(kept.collect())
        }
        (Value::Array(sent), Value::Array(stored)) if sent.len() == stored.len() => {
            sent.iter().zip(stored).map(|(sent, stored)| as_stored(sent, stored)).collect()
        }
        (_, stored) => stored.clone(),
    }
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
    const GENERATED: [&str; 2] = ["controller-uid", "job-name"];
    let mut object = comparable(object);
    if target.kind == "Job" && target.api_version == "batch/v1" && object["spec"]["manualSelector"] != true {
        remove(&mut object, &["spec", "selector"].map(|key| Step::Key(key.into())));
        for labels in ["/metadata/labels", "/spec/template/metadata/labels"] {
            if let Some(Value::Object(labels)) = object.pointer_mut(labels) {
                labels.retain(|name, _| !GENERATED.contains(&name.trim_start_matches("batch.kubernetes.io/")));
            }
        }
    }
    object
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_update_names_what_it_leaves_as_it_is_but_for_what_it_merges_and_what_is_derived_again() {
        let found = json!({ "metadata": { "annotations": { "revision": "1" } }, "data": { "a": "1", "old": "x", "port": 80 } });
        let content = json!({ "metadata": { "annotations": { "revision": "1" } }, "data": { "a": "1" } });
        let fields = named(&found, &updated(&found, &content), None).unwrap();
        let removed: Vec<Path> = fields.iter().filter(|field| field.after.is_none()).map(|field| field.path.clone()).collect();

        let kept = fields.iter().filter(|field| is_replaced(field, &removed)).map(Field::name).collect::<Vec<_>>();

        assert_eq!((kept, removed.len()), (vec!["data.a".to_owned()], 2));
    }

    #[test]
    fn the_old_name_of_an_account_is_that_of_the_pod_of_each_kind() {
        let pod = json!({ "spec": { "serviceAccountName": "x" } });
        for content in [
            json!({ "template": pod }),
            json!({ "spec": { "template": pod } }),
            json!({ "spec": { "jobTemplate": { "spec": { "template": pod } } } }),
        ] {
            let mut named = content.clone();

            name_alias(&mut named);

            assert_eq!(named.to_string().matches(r#""serviceAccount":"x""#).count(), 1, "{content}");
        }
    }

    #[test]
    fn what_a_dry_run_does_not_show_is_dropped_unless_it_is_as_good_as_none() {
        let content = json!({ "hosts": ["a.io", "B.io"], "none": ["", 0, false, [], {}, null], "old": null, "kept": "x" });
        let owned = json!({ "f:hosts": { "v:\"a.io\"": {}, "v:\"B.io\"": {} } });
        let fields = named(&json!({ "hosts": ["a.io"], "old": 1 }), &content, Some(&owned)).unwrap();

        let seen = |answer| dropped(&fields, &answer).map(Field::name);

        assert_eq!(seen(json!({ "hosts": ["a.io", "b.io"], "kept": "y" })), Some("hosts[B.io]".into()));
        assert_eq!(seen(json!({ "hosts": ["a.io", "B.io"] })), Some("kept".into()));
        assert_eq!(seen(json!({ "hosts": ["a.io", "B.io"], "kept": "y" })), None);
    }

    #[test]
    fn what_the_server_stores_as_null_or_not_at_all_is_none_of_what_was_created() {
        let sent = json!({ "ports": [], "cpu": 1, "empty": "", "kept": [{ "name": "a", "value": "" }] });
        let stored = json!({ "ports": null, "cpu": "1", "kept": [{ "name": "a" }], "default": 5 });

        assert_eq!(as_stored(&sent, &stored), json!({ "cpu": "1", "kept": [{ "name": "a" }] }));
    }
}
