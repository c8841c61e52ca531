//! Plans the changes: which fields of which object, and what undoes them (rule 5). Writes nothing.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{
    Change, Entry, EntryType, Event, Fate, Kind, Outcome, Request, Server, Target, Verb, Write,
    driver::Driver,
    fields::{Field, Side, at, comparable, contains, differences, merge_patch, names, remove_nulls, without_nulls},
    journal::{DONE, DOUBT, Work, conflict},
    requests::{PAUSE, refused, set_mark, uid},
};
use crate::request::{Answer, Refusal};

/// The annotation in which kubectl keeps what it applied last.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

impl<S: Server> Driver<'_, S> {
    /// Plans the changes on top of an earlier driver's entries.
    pub(super) async fn plan(&self, changes: &[Change], old: &[Entry]) -> Result<Vec<Entry>, Outcome> {
        let mut entries = Vec::new();
        for (number, change) in changes.iter().enumerate() {
            let taken = old.iter().find(|entry| entry.target == change.target);
            entries.extend(self.plan_change(change, taken, &changes[..number], true).await?);
        }
        for entry in old.iter().filter(|entry| changes.iter().all(|change| change.target != entry.target)) {
            match self.kind {
                Kind::Promotion => entries.extend(self.plan_back(entry).await?),
                Kind::Transaction => entries.push(entry.clone()),
            }
        }
        Ok(entries)
    }

    /// Plans one change. None: nothing differs. `waits` for another transaction on the object.
    pub(super) async fn plan_change(
        &self,
        change: &Change,
        taken: Option<&Entry>,
        earlier: &[Change],
        waits: bool,
    ) -> Result<Option<Entry>, Outcome> {
        let target = &change.target;
        let refuse = |why: &str| Outcome::Refused(format!("{target} {why}"));
        let mut is_waiting = false;
        loop {
            let object = self.get(target).await?;
            if let Some(mark) = self.live(object.as_ref()).await? {
                let (target, mark) = (target.clone(), mark.to_string());
                if !waits || self.go_on().is_err() {
                    return Err(Outcome::Held { target: target.into(), mark });
                }
                if !is_waiting {
                    self.server.report(Event::Waiting { target, mark });
                }
                is_waiting = true;
                self.server.wait(PAUSE).await;
                continue;
            }
            if let Some(require) = &change.require
                && !contains(object.as_ref(), require)
            {
                return Err(refuse("is not as required"));
            }
            if object.as_ref().is_some_and(is_going) && change.verb != Verb::Delete {
                return Err(refuse("is being deleted"));
            }
            let is_made = taken.is_some_and(|entry| entry.kind == EntryType::Create)
                && object.as_ref().is_some_and(|object| self.mine(object).is_some());
            let verb = match change.verb {
                Verb::Manifest if object.is_none() || is_made => Verb::Create,
                Verb::Manifest => Verb::Patch,
                verb @ (Verb::Patch | Verb::Update | Verb::Create | Verb::Delete) => verb,
            };
            let wanted = whole(change, &without_nulls(&change.content));
            let (kind, dry_run) = match (verb, &object) {
                (Verb::Create, Some(_)) if !is_made => return Err(refuse("exists already")),
                (Verb::Create, Some(object)) => {
                    let entry = self.entry(change, EntryType::Create, object, taken);
                    return Ok(Some(Entry { state: DOUBT.into(), object: wanted, ..entry }));
                }
                (Verb::Create, None) => (EntryType::Create, Write::Create(wanted.clone())),
                (Verb::Delete, None) => {
                    let done = |entry: &Entry| Entry { state: DONE.into(), ..entry.clone() };
                    return Ok(taken.filter(|entry| entry.kind == EntryType::Delete).map(done));
                }
                (Verb::Delete, Some(object)) => (EntryType::Delete, Write::Delete(preconditions(object, true))),
                (Verb::Patch | Verb::Update | Verb::Manifest, None) => return Err(refuse("does not exist")),
                (Verb::Patch | Verb::Manifest, Some(object)) => {
                    (EntryType::Patch, Write::Apply(self.versioned(wanted.clone(), object)))
                }
                (Verb::Update, Some(object)) => {
                    let next = updated(object, &wanted);
                    (EntryType::Patch, Write::Merge(self.versioned(merge_patch(object, &next), object)))
                }
            };
            let answer = self.ask(Request::Plan(target.clone(), dry_run), self.acting_as.as_deref()).await?;
            let is_unseen = || earlier.iter().any(|change| makes_namespace(change, target));
            let after = match answer {
                Answer::Object(after) => Arc::unwrap_or_clone(after),
                Answer::Refused { refusal: Refusal::NoSuchPlace, .. } if kind == EntryType::Create && is_unseen() => Value::Null,
                Answer::Refused { refusal: Refusal::NoSuchPlace, .. } if kind == EntryType::Create => {
                    return Err(refuse("has no Namespace, or its kind is not served"));
                }
                Answer::Refused { message, .. } => return Err(refused(&target.to_string(), message)),
                other @ (Answer::NotFound
                | Answer::Conflict
                | Answer::Unknown { .. }
                | Answer::Deleted
                | Answer::Listed { .. }) => {
                    self.again(other).await?;
                    continue;
                }
            };
            let found = object.unwrap_or_default();
            if waits && change.verb == Verb::Manifest {
                self.warn_of_what_stays(change, &found);
            }
            let mut entry = self.entry(change, kind, &found, taken);
            match kind {
                EntryType::Create => {
                    self.review(target, "delete").await?;
                    entry.object = wanted;
                    entry.work.is_unanswered = taken.is_some_and(|taken| taken.kind == EntryType::Create);
                }
                EntryType::Delete => {
                    self.review(target, "create").await?;
                    entry.object = found;
                }
                EntryType::Patch => {
                    let mut after = after;
                    remove_nulls(&mut after, &change.content);
                    entry.fields = fields(change, &found, &after, taken.filter(|taken| taken.uid == entry.uid));
                    if entry.fields.is_empty() && !entry.work.is_taken {
                        return Ok(None);
                    }
                }
            }
            return Ok(Some(entry));
        }
    }

    /// Warns of what kubectl applied last and a manifest no longer mentions.
    fn warn_of_what_stays(&self, change: &Change, found: &Value) {
        let last = found["metadata"]["annotations"][LAST_APPLIED].as_str().and_then(|text| serde_json::from_str(text).ok());
        let wanted = whole(change, &change.content);
        let gone = last.iter().flat_map(|last| differences(last, &wanted));
        let gone = gone.filter(|field| field.found != Some(json!({})) && !names(&wanted, &field.path));
        let gone: Vec<_> = gone.map(|field| field.name()).collect();
        if !gone.is_empty() {
            let what = format!("no longer in the manifest, and stays: {}", gone.join(", "));
            self.server.report(Event::Warning { target: change.target.clone(), what });
        }
    }

    /// Plans to put back what only an earlier promotion named: if the object bears this journal's mark, and nobody else has changed what
    /// was set there.
    async fn plan_back(&self, old: &Entry) -> Result<Option<Entry>, Outcome> {
        let Some(object) = self.get(&old.target).await?.filter(|object| uid(object) == old.uid) else { return Ok(None) };
        let is_mine = self.mine(&object).is_some();
        let current = comparable(&object);
        if !is_mine && old.fields.iter().all(|field| field.is_any(&current, &[Side::Before])) {
            return Ok(None);
        }
        let unknown = old.unknown(&current, &[Side::Found, Side::After, Side::Before]);
        let why = match (old.work.was_marked.unwrap_or(is_mine), unknown, self.live(Some(&object)).await?) {
            (false, _, _) => "the mark of the promotion is gone".to_owned(),
            (_, Some(field), _) => field,
            (_, _, Some(mark)) => mark.to_string(),
            (true, None, None) => {
                let back = |field: &Field| Field {
                    found: at(&current, &field.path).cloned(),
                    after: field.before.clone(),
                    ..field.clone()
                };
                let work = Work { object, ..old.work.clone() };
                return Ok(Some(Entry {
                    fields: old.fields.iter().map(back).collect(),
                    state: String::new(),
                    work,
                    ..old.clone()
                }));
            }
        };
        self.server.report(old.met(Fate::Left(why.clone())));
        Ok(Some(Entry { state: conflict(&why), ..old.clone() }))
    }

    fn entry(&self, change: &Change, kind: EntryType, object: &Value, taken: Option<&Entry>) -> Entry {
        let work = Work {
            object: object.clone(),
            require: change.require.clone(),
            is_taken: taken.is_some_and(|taken| taken.uid == uid(object)),
            ..Work::default()
        };
        let (target, uid) = (change.target.clone(), uid(object).to_owned());
        Entry { target, kind, uid, fields: Vec::new(), object: Value::Null, state: String::new(), work }
    }

    /// Asks whether the undo of a change is allowed.
    async fn review(&self, target: &Target, verb: &'static str) -> Result<(), Outcome> {
        match self.ask(Request::Review(target.clone(), verb), self.acting_as.as_deref()).await? {
            Answer::Object(_) => Ok(()),
            Answer::Refused { message, .. } => {
                Err(Outcome::NotPermitted(format!("an undo would have to {verb} {target}: {message}")))
            }
            Answer::NotFound | Answer::Conflict | Answer::Unknown { .. } | Answer::Deleted | Answer::Listed { .. } => {
                Err(Outcome::NotPermitted(format!("an undo would have to {verb} {target}")))
            }
        }
    }

    /// Returns a body for this version of an object, with the mark.
    fn versioned(&self, mut body: Value, object: &Value) -> Value {
        set_mark(&mut body, Some(self.mark()));
        body["metadata"]["resourceVersion"] = object["metadata"]["resourceVersion"].clone();
        body
    }
}

impl Entry {
    /// Returns the first field whose value is none of these.
    pub(super) fn unknown(&self, current: &Value, sides: &[Side]) -> Option<String> {
        let field = self.fields.iter().find(|field| !field.is_any(current, sides))?;
        Some(format!("{} is somebody else's", field.name()))
    }
}

/// Returns the fields of a change, on top of those that an earlier driver has set on the same object.
fn fields(change: &Change, found: &Value, after: &Value, taken: Option<&Entry>) -> Vec<Field> {
    let mut fields = differences(found, after);
    let (current, after) = (comparable(found), comparable(after));
    for old in taken.iter().flat_map(|taken| &taken.fields) {
        if !old.is_any(&current, &[Side::Found, Side::After, Side::Before]) {
            continue;
        }
        let before = old.before.clone();
        if let Some(field) = fields.iter_mut().find(|field| field.path == old.path) {
            field.before = before;
            continue;
        }
        let is_named = match change.verb {
            Verb::Update if old.path.first().is_none_or(|key| key != "metadata") => true,
            Verb::Patch | Verb::Update | Verb::Create | Verb::Delete | Verb::Manifest => names(&change.content, &old.path),
        };
        let wanted = if is_named { at(&after, &old.path).cloned() } else { before.clone() };
        fields.push(Field { path: old.path.clone(), found: at(&current, &old.path).cloned(), after: wanted, before });
    }
    // A map comes before its entries.
    fields.sort_by(|a, b| a.path.cmp(&b.path));
    fields
}

/// Returns a whole object of this content.
fn whole(change: &Change, content: &Value) -> Value {
    let Target { api_version, kind, namespace, name, .. } = &change.target;
    let mut object = if content.is_object() { content.clone() } else { json!({}) };
    object["apiVersion"] = json!(api_version);
    object["kind"] = json!(kind);
    object["metadata"]["name"] = json!(name);
    if let Some(namespace) = namespace {
        object["metadata"]["namespace"] = json!(namespace);
    }
    object
}

/// Returns an object that is as wanted in all but metadata and status. Labels and annotations merge.
fn updated(found: &Value, wanted: &Value) -> Value {
    let mut object = wanted.clone();
    object["metadata"] = found["metadata"].clone();
    for key in ["labels", "annotations"] {
        for (name, value) in wanted["metadata"][key].as_object().into_iter().flatten() {
            object["metadata"][key][name] = value.clone();
        }
    }
    if let Some(status) = found.get("status") {
        object["status"] = status.clone();
    }
    object
}

fn makes_namespace(change: &Change, target: &Target) -> bool {
    let is_made = matches!(change.verb, Verb::Create | Verb::Manifest);
    is_made && change.target.kind == "Namespace" && Some(&change.target.name) == target.namespace.as_ref()
}

/// Describes the deletion of exactly this version of an object.
pub(super) fn preconditions(object: &Value, dry_run: bool) -> Value {
    let Value::Object(metadata) = &object["metadata"] else { return Value::Null };
    let mut options = json!({
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "preconditions": { "uid": metadata.get("uid"), "resourceVersion": metadata.get("resourceVersion") },
    });
    if dry_run {
        options["dryRun"] = json!(["All"]);
    }
    options
}

/// Returns true if an object is being deleted.
pub(super) fn is_going(object: &Value) -> bool {
    !object["metadata"]["deletionTimestamp"].is_null()
}
