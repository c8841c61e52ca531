//! The files of a transaction: what they ask for, and why they are refused before anything is asked of the API server.
//!
//! Owns the format: Transactions of tenure and of janus, and nothing else. A refusal names the file, the document and the change.

use std::{
    fs::File,
    io::{self, Read},
    path::Path,
    time::Duration,
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Map, Value};

use super::{discovery::Resource, lock};
use crate::{
    config::duration,
    environment::{FENCING_TOKEN, IDENTITY, SLOT, TERM},
    loading::{AMBIGUOUS, Node, ambiguous},
    transaction::{self, Change, ChangeType, MARK, Target},
};

/// More than any transaction needs; devices never end.
const LARGEST_FILE: u64 = 1 << 20;
const MOST_CHANGES: usize = 32;
/// With what it replaces, a change must fit into the journal.
const LARGEST_TRANSACTION: usize = 512 << 10;
/// As in serde_json, which reads the journal.
const DEEPEST: usize = 100;

/// The apiVersion of janus' Transactions.
const JANUS: &str = "tx.janus.io/v1alpha1";
/// The contents of all files.
#[derive(Debug, Default)]
pub(super) struct Files {
    /// `metadata.name` of the Transaction.
    pub(super) name: Option<String>,
    /// The namespace of targets that name none.
    pub(super) namespace: Option<String>,
    /// `spec.serviceAccountName`.
    pub(super) account: Option<String>,
    /// `spec.timeout`.
    pub(super) limit: Option<Duration>,
    /// The changes in their order.
    pub(super) changes: Vec<Written>,
    /// Warnings, one line each.
    pub(super) notes: Vec<String>,
    refused: Vec<String>,
    has_transaction: bool,
    /// In a promotion.
    variable: Option<Lookup>,
}

/// The value of a variable, by its name.
type Lookup = fn(&str) -> Option<String>;

/// The variables that a promotion may name.
const VARIABLES: [&str; 9] = ["POD_NAME", "POD_NAMESPACE", "POD_IP", "POD_UID", "NODE_NAME", IDENTITY, TERM, FENCING_TOKEN, SLOT];

/// A change as it was written.
#[derive(Clone, Debug)]
pub(super) struct Written {
    /// File, document and change.
    pub(super) place: String,
    /// The object to change; its resource is not known yet.
    pub(super) target: Target,
    /// How it is changed.
    pub(super) verb: ChangeType,
    /// Its new parts; empty for a Delete.
    pub(super) content: Map<String, Value>,
    /// The parts that it must have before.
    pub(super) require: Map<String, Value>,
}

/// An object by its names.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Named {
    api_version: String,
    kind: String,
    namespace: Option<String>,
    name: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Spec {
    service_account_name: Option<String>,
    timeout: Option<String>,
    changes: Option<Vec<Value>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Item {
    target: Named,
    r#type: ChangeType,
    content: Option<Map<String, Value>>,
    require: Option<Map<String, Value>>,
}

impl Files {
    /// Reads and judges the files in their order; `-` is standard input. With `variable` they are those of a promotion, which has changes of
    /// type Patch, and $(VAR) in them.
    ///
    /// # Errors
    /// All reasons to refuse them, one line each.
    pub(super) fn read<P: AsRef<Path>>(paths: &[P], variable: Option<Lookup>) -> Result<Self, Vec<String>> {
        if paths.iter().filter(|path| path.as_ref().as_os_str() == "-").count() > 1 {
            return Err(vec!["standard input can be read only once: write -f - only once".to_owned()]);
        }
        let mut files = Self { variable, ..Self::default() };
        for path in paths {
            let path = path.as_ref();
            let (shown, text) = match path.to_str() {
                Some("-") => ("standard input".into(), lock::standard_input()),
                _ => (path.display().to_string(), File::open(path).and_then(limited)),
            };
            match text.map_err(|error| error.to_string()).and_then(|text| documents(&text)) {
                Ok(documents) => {
                    for (at, document) in documents.into_iter().enumerate() {
                        files.document(&format!("{shown}, document {}", at + 1), document);
                    }
                }
                Err(why) => files.refused.push(format!("{shown}: {why}")),
            }
        }
        files.judge_whole();
        if files.refused.is_empty() { Ok(files) } else { Err(files.refused) }
    }

    fn document(&mut self, place: &str, document: Value) {
        let Value::Object(document) = document else {
            return self.refuse(place, "this is no object: write a Transaction");
        };
        let kind = document.get("kind").and_then(Value::as_str).unwrap_or_default().to_owned();
        let version = document.get("apiVersion").and_then(Value::as_str).unwrap_or_default().to_owned();
        if kind == "Transaction" && ["tenure.dev/v1", JANUS].contains(&&*version) {
            return self.transaction(place, &version, document);
        }
        let what = if kind.is_empty() { "this" } else { &kind };
        self.refuse(
            place,
            &format!("{what} is no Transaction: for manifests use kubectl, Helm or GitOps; list here what changes together"),
        );
    }

    fn transaction(&mut self, place: &str, version: &str, mut document: Map<String, Value>) {
        if std::mem::replace(&mut self.has_transaction, true) {
            return self.refuse(place, "this is a second Transaction: apply one after the other");
        }
        let text =
            |place: &str| document.get("metadata").and_then(|metadata| metadata.pointer(place)?.as_str().map(String::from));
        (self.name, self.namespace) = (text("/name"), text("/namespace"));
        let unknown = document.keys().find(|key| !["apiVersion", "kind", "metadata", "spec", "status"].contains(&key.as_str()));
        if let Some(unknown) = unknown {
            return self.refuse(place, &format!("a Transaction has no key {unknown}"));
        }
        if document.contains_key("status") {
            self.notes.push(format!("{place}: status is ignored"));
        }
        let mut spec = document.remove("spec").unwrap_or_else(|| Map::new().into());
        if let (JANUS, Some(spec)) = (version, spec.as_object_mut()) {
            for key in ["lockTimeout", "sealed"].into_iter().filter(|key| spec.remove(*key).is_some()) {
                self.notes.push(format!("{place}: spec.{key} is ignored"));
            }
        }
        let Spec { service_account_name, timeout, changes } = match serde_json::from_value(spec) {
            Ok(spec) => spec,
            Err(error) => return self.refuse(place, &format!("spec: {error}")),
        };
        // As in a Pod, an empty name is none.
        self.account = service_account_name.filter(|name| !name.is_empty());
        match timeout.as_deref().map(duration::parse).transpose() {
            Ok(limit) => self.limit = limit,
            Err(why) => self.refuse(place, &format!("spec.timeout: {why}")),
        }
        let Some(changes) = changes.filter(|changes| !changes.is_empty()) else {
            return self.refuse(place, "spec.changes is missing: list what is to be changed");
        };
        for (at, mut change) in changes.into_iter().enumerate() {
            let place = format!("{place}, change {}", at + 1);
            if let Some(Err(why)) = self.variable.map(|variable| substitute(&mut change, variable)) {
                self.refuse(&place, &why);
                continue;
            }
            match serde_json::from_value(change) {
                Ok(Item { target: Named { api_version, kind, namespace, name }, r#type: verb, content, require }) => {
                    let (mut content, require) = (content.unwrap_or_default(), require.unwrap_or_default());
                    let namespace = namespace.or_else(|| self.namespace.clone());
                    let target = Target { api_version, kind, resource: String::new(), namespace, name };
                    if verb == ChangeType::Delete && !content.is_empty() {
                        self.notes.push(format!("{place}: the content of a Delete is ignored"));
                        content.clear();
                    }
                    self.change(Written { place, target, verb, content, require });
                }
                Err(error) => self.refuse(&place, &error.to_string()),
            }
        }
    }

    fn change(&mut self, mut change: Written) {
        change.encode();
        if let Err(why) = change.judge() {
            self.refuse(&change.shown(), &why);
        }
        if self.variable.is_some() && change.verb != ChangeType::Patch {
            self.refuse(&change.shown(), "a promotion has changes of type Patch only");
        }
        self.changes.push(change);
    }

    /// Judges the changes together.
    fn judge_whole(&mut self) {
        if self.changes.is_empty() && self.refused.is_empty() {
            self.refused.push("the files hold no change".into());
        }
        if self.changes.len() > MOST_CHANGES {
            self.refused.push(format!("{} changes are more than {MOST_CHANGES}: split the transaction", self.changes.len()));
        }
        for (at, change) in self.changes.iter().enumerate() {
            if let Some(first) = self.changes.iter().take(at).find(|first| is_same(&first.target, &change.target)) {
                self.refused.push(format!("{} is a target twice: also in {}", change.shown(), first.place));
            }
        }
        let size: usize = self.changes.iter().map(|change| Value::from(change.content.clone()).to_string().len()).sum();
        if size > LARGEST_TRANSACTION {
            self.refused.push(format!("the contents have {size} bytes, more than {LARGEST_TRANSACTION}: split the transaction"));
        }
        for delete in self.changes.iter().filter(|change| change.verb == ChangeType::Delete) {
            if delete.target.kind == "PersistentVolumeClaim" {
                let what = "undoing this Delete does not bring the data of the volume back";
                self.notes.push(format!("{}: {what}", delete.shown()));
            }
        }
        let mut deletes = self.changes.iter().skip_while(|change| change.verb != ChangeType::Delete);
        if let Some(delete) = deletes.next()
            && deletes.any(|after| after.verb != ChangeType::Delete)
        {
            let what = "new uid, no status, nothing that was deleted with it; put it last";
            self.notes.push(format!("{}: undoing a Delete makes a new object: {what}", delete.shown()));
        }
    }

    fn refuse(&mut self, place: &str, why: &str) {
        self.refused.push(format!("{place}: {why}"));
    }
}

impl Written {
    /// Its place and its object, for people.
    pub(super) fn shown(&self) -> String {
        format!("{} ({}/{})", self.place, self.target.kind, self.target.name)
    }

    /// The change of an object of this resource. `namespace` is that of targets which name none.
    pub(super) fn change(&self, resource: Resource, namespace: &str) -> Change {
        let (mut target, mut content) = (self.target.clone(), self.content.clone());
        content.retain(|key, _| key != "apiVersion" && key != "kind");
        if let Some(metadata) = content.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.retain(|key, _| key != "name" && key != "namespace");
        }
        target.namespace = resource.namespaced.then(|| target.namespace.unwrap_or_else(|| namespace.to_owned()));
        target.resource = resource.name;
        let require = Some(self.require.clone()).filter(|require| !require.is_empty()).map(Value::Object);
        Change { target, verb: self.verb, content: content.into(), require }
    }

    /// Turns the stringData of a Secret into data, which is what the API server keeps.
    fn encode(&mut self) {
        let is_text = |texts: &Value| texts.is_object() && is_map_of_texts(texts);
        if self.target.kind != "Secret" || !self.content.get("stringData").is_some_and(is_text) {
            return;
        }
        let Some(Value::Object(texts)) = self.content.remove("stringData") else { return };
        if let Value::Object(data) = self.content.entry("data").or_insert_with(|| Map::new().into()) {
            let encoded = |text: &Value| text.as_str().map_or(Value::Null, |text| BASE64_STANDARD.encode(text).into());
            data.extend(texts.iter().map(|(key, text)| (key.clone(), encoded(text))));
        }
    }

    /// Why this change alone is refused.
    fn judge(&self) -> Result<(), String> {
        let Target { api_version, kind, namespace, name, .. } = &self.target;
        let is_segment = |text: &str| {
            !text.is_empty() && text.len() <= 253 && text.bytes().all(|c| c.is_ascii_alphanumeric() || b"-._:".contains(&c))
        };
        let is_version = api_version.split('/').all(is_segment) && api_version.split('/').count() <= 2;
        if !is_version || !is_segment(kind) {
            return Err(format!("{api_version:?} and {kind:?} are no apiVersion and kind; a subresource cannot be a target"));
        }
        let names = [Some(name), namespace.as_ref()];
        if let Some(bad) = names.into_iter().flatten().find(|text| !is_segment(text) || [".", ".."].contains(&text.as_str())) {
            return Err(format!("{bad:?} is not the name of an object; a subresource cannot be a target"));
        }
        if self.target.group() == "coordination.k8s.io" && kind == "Lease" {
            return Err("a Lease cannot be a target: locks rest on it".into());
        }
        if self.verb == ChangeType::Delete && transaction::holds_others(api_version, kind) {
            return Err(format!("a {kind} cannot be deleted in a transaction: what goes with it cannot be brought back"));
        }
        if self.verb != ChangeType::Delete && self.content.is_empty() {
            return Err("content is missing".into());
        }
        let is_other = |key, expected: &str| self.content.get(key).is_some_and(|value| value.as_str() != Some(expected));
        if is_other("apiVersion", api_version) || is_other("kind", kind) {
            return Err("content is of another apiVersion or kind than the target".into());
        }
        if self.content.contains_key("status") {
            return Err("status cannot be changed: its controller owns it".into());
        }
        // The API server calls it an internal error of its own.
        let is_secret = api_version == "v1" && kind == "Secret";
        let data = self.content.get("data").filter(|_| is_secret).and_then(Value::as_object).into_iter().flatten();
        let is_bad = |value: &Value| !value.is_null() && value.as_str().is_none_or(|text| BASE64_STANDARD.decode(text).is_err());
        if let Some((key, _)) = data.into_iter().find(|(_, value)| is_bad(value)) {
            return Err(format!("data.{key} is not base64: encode it, or write stringData"));
        }
        self.judge_metadata()?;
        let whole = [&self.content, &self.require];
        if whole.into_iter().flat_map(Map::values).any(|value| holds_null_in_list(value, false)) {
            return Err("an item that is null has no meaning: only a key of a map can be removed".into());
        }
        Ok(())
    }

    fn judge_metadata(&self) -> Result<(), String> {
        let Some(metadata) = self.content.get("metadata") else { return Ok(()) };
        let Some(metadata) = metadata.as_object() else { return Err("metadata is no map".into()) };
        let creates = self.verb == ChangeType::Create;
        for (key, value) in metadata {
            match key.as_str() {
                "name" if value.as_str() == Some(&self.target.name) => {}
                "namespace" if value.as_str() == self.target.namespace.as_deref() => {}
                "name" | "namespace" => return Err(format!("metadata.{key} in content is not the target's")),
                "labels" | "annotations" if value.get(MARK).is_some() => {
                    return Err(format!("metadata.{key}: {MARK} is how transactions mark what they change"));
                }
                "labels" | "annotations" if is_map_of_texts(value) => {}
                "labels" | "annotations" => return Err(format!("metadata.{key} is no map of texts")),
                "finalizers" | "ownerReferences" if creates => {}
                "generateName" => return Err("metadata.generateName: a transaction needs the name of what it creates".into()),
                _ => return Err(format!("metadata.{key} cannot be changed: remove it")),
            }
        }
        Ok(())
    }
}

/// Returns true if both name one object, whatever the versions of its API. A namespace that is not named is that of the transaction.
pub(super) fn is_same(a: &Target, b: &Target) -> bool {
    a.group() == b.group() && (&a.kind, &a.namespace, &a.name) == (&b.kind, &b.namespace, &b.name)
}

/// Reads all that fits.
///
/// # Errors
/// There is more, or what is there is no text.
pub(super) fn limited(source: impl Read) -> io::Result<String> {
    let mut text = String::new();
    source.take(LARGEST_FILE + 1).read_to_string(&mut text)?;
    if text.len() as u64 > LARGEST_FILE {
        return Err(io::Error::other("it is longer than 1 MiB: split it"));
    }
    Ok(text)
}

/// The documents of a file, as kubectl reads them: YAML with 0644 in octal.
pub(crate) fn documents(text: &str) -> Result<Vec<Value>, String> {
    let documents = read(text, true)?;
    let (strict, lenient) = (read::<Node>(text, true)?, read(text, false)?);
    match strict.iter().zip(&lenient).find_map(|(strict, lenient)| ambiguous(strict, lenient)) {
        Some(line) => Err(format!("line {line}: {AMBIGUOUS}")),
        None => Ok(documents),
    }
}

fn read<T: DeserializeOwned>(text: &str, strict_booleans: bool) -> Result<Vec<T>, String> {
    let options = serde_saphyr::options! {
        with_snippet: false,
        strict_booleans: strict_booleans,
        legacy_octal_numbers: true,
        budget: serde_saphyr::budget! { max_depth: DEEPEST },
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: 100_000 },
    };
    serde_saphyr::from_multiple_with_options(text, options)
        .map_err(|error| error.without_snippet().render_with_formatter(&serde_saphyr::UserMessageFormatter))
}

/// Puts values in the place of `$(VAR)`; `$$(` stands for `$(`.
fn substitute(value: &mut Value, variable: Lookup) -> Result<(), String> {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => Ok(()),
        Value::Array(items) => items.iter_mut().try_for_each(|item| substitute(item, variable)),
        Value::Object(map) => map.values_mut().try_for_each(|item| substitute(item, variable)),
        Value::String(text) => {
            let (mut put, mut rest) = (String::new(), text.as_str());
            while let Some((before, after)) = rest.split_once("$(") {
                if let Some(literal) = before.strip_suffix('$') {
                    put.extend([literal, "$("]);
                    rest = after;
                    continue;
                }
                let (name, after) = after.split_once(')').ok_or_else(|| "a text has a $( without )".to_owned())?;
                let known = VARIABLES.contains(&name).then(|| variable(name)).flatten();
                let known = known.ok_or_else(|| format!("$({name}) is not set; the variables are {}", VARIABLES.join(", ")))?;
                put.extend([before, &known]);
                rest = after;
            }
            put.push_str(rest);
            *text = put;
            Ok(())
        }
    }
}

/// A null removes what it names.
fn is_map_of_texts(value: &Value) -> bool {
    let is_text = |value: &Value| value.is_string() || value.is_null();
    value.is_null() || value.as_object().is_some_and(|map| map.values().all(is_text))
}

/// Returns true if an item of a list is null. A null in a map removes a key, also in an item.
fn holds_null_in_list(value: &Value, is_item: bool) -> bool {
    match value {
        Value::Null => is_item,
        Value::Array(items) => items.iter().any(|item| holds_null_in_list(item, true)),
        Value::Object(map) => map.values().any(|value| holds_null_in_list(value, false)),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use std::{env, fs, process};

    use super::*;

    #[test]
    fn an_empty_account_is_none() {
        let account = |line: &str| {
            let change = "{target: {apiVersion: v1, kind: ConfigMap, name: a}, type: Delete}";
            let text = format!("apiVersion: tenure.dev/v1\nkind: Transaction\nspec:\n  {line}\n  changes: [{change}]\n");
            let path = env::temp_dir().join(format!("tenure-account-{}", process::id()));
            fs::write(&path, text).unwrap();
            let files = Files::read(&[&path], None);
            fs::remove_file(&path).unwrap();
            files.unwrap().account
        };

        assert_eq!(account("serviceAccountName: deploy"), Some("deploy".into()));
        assert_eq!(account("serviceAccountName: ''"), None);
    }
}
