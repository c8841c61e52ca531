//! The file of a transaction: what it asks for, and why it is refused before anything is asked of the API server.
//!
//! Owns the format: Transactions of tenure and of janus, and nothing else. Any kind that the API server serves may be a target, but for
//! those that `judge` names. A refusal names the file, the document and the change.

use std::{
    fs::File,
    io::{self, Read},
    os::unix::fs::FileTypeExt as _,
    path::Path,
    time::Duration,
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::lock;
use crate::{
    config::duration,
    environment::{FENCING_TOKEN, IDENTITY, SLOT, TERM},
    loading::documents,
    transaction::{Change, ChangeType, MARK, Target, holds_others},
};

/// More than any transaction needs; devices never end.
const LARGEST_FILE: u64 = 1 << 20;
const MOST_CHANGES: usize = 32;
/// With what it replaces, a change must fit into the journal.
const LARGEST_TRANSACTION: usize = 512 << 10;

/// The apiVersion of janus' Transactions.
const JANUS: &str = "tx.janus.io/v1alpha1";
/// What the metadata of a Transaction that is in no cluster may have.
const METADATA: [&str; 4] = ["name", "namespace", "labels", "annotations"];

/// What a file asks for.
#[derive(Debug, Default)]
pub(super) struct Wanted {
    /// `metadata.name` of the Transaction.
    pub(super) name: Option<String>,
    /// The namespace of targets that name none.
    pub(super) namespace: Option<String>,
    /// `spec.serviceAccountName`.
    pub(super) account: Option<String>,
    /// `spec.timeout`.
    pub(super) limit: Option<Duration>,
    /// The changes in their order, each with its place and its object for people. The resources of the targets are not known yet.
    pub(super) changes: Vec<(String, Change)>,
    /// Warnings, one line each.
    pub(super) notes: Vec<String>,
    refused: Vec<String>,
    /// In a promotion.
    variable: Option<Lookup>,
}

/// The value of a variable, by its name.
type Lookup = fn(&str) -> Option<String>;

/// The variables that a promotion may name.
const VARIABLES: [&str; 9] = ["POD_NAME", "POD_NAMESPACE", "POD_IP", "POD_UID", "NODE_NAME", IDENTITY, TERM, FENCING_TOKEN, SLOT];

/// An object by its names.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Named {
    api_version: String,
    kind: String,
    namespace: Option<String>,
    name: String,
}

#[derive(Default, Deserialize)]
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

impl Wanted {
    /// Reads and judges a file; `-` is standard input. With `variable` it is that of a promotion, which has changes of type Patch, and
    /// $(VAR) in them.
    ///
    /// # Errors
    /// All reasons to refuse it, one line each.
    pub(super) fn read(path: &Path, variable: Option<Lookup>) -> Result<Self, String> {
        let mut wanted = Self { variable, ..Self::default() };
        let (shown, text) = match path.to_str() {
            Some("-") => ("standard input".into(), lock::standard_input()),
            _ => {
                let text = File::open(path).and_then(|file| if variable.is_some() { limited(file) } else { twice(file) });
                (path.display().to_string(), text)
            }
        };
        match text.map_err(|error| error.to_string()).and_then(|text| documents(&text)) {
            Ok(documents) => {
                for (at, document) in documents.into_iter().enumerate() {
                    let place = format!("{shown}, document {}", at + 1);
                    let read = wanted.document(&place, document);
                    wanted.refused.extend(read.err().map(|why| format!("{place}: {why}")));
                }
            }
            Err(why) => wanted.refused.push(format!("{shown}: {why}")),
        }
        wanted.judge_whole();
        if wanted.refused.is_empty() { Ok(wanted) } else { Err(wanted.refused.join("\ntenure: ")) }
    }

    fn document(&mut self, place: &str, document: Value) -> Result<(), String> {
        let Value::Object(mut document) = document else { return Err("this is no object: write a Transaction".into()) };
        let take = |key| document.remove(key).unwrap_or_default();
        let [version, kind, metadata, mut spec, status] = ["apiVersion", "kind", "metadata", "spec", "status"].map(take);
        let is_known = version == "tenure.dev/v1" || version == JANUS;
        if kind == "Transaction" && !is_known {
            return Err(format!("the apiVersion of this Transaction is {version}: write tenure.dev/v1"));
        }
        if kind != "Transaction" {
            let kind = kind.as_str().filter(|kind| !kind.is_empty()).unwrap_or("this");
            let remedy = "for manifests use kubectl, Helm or GitOps; list here what changes together";
            return Err(format!("{kind} is no Transaction: {remedy}"));
        }
        if !self.changes.is_empty() {
            return Err("this is a second Transaction: apply one after the other".into());
        }
        if let Some(unknown) = document.keys().next() {
            return Err(format!("a Transaction has no key {unknown}"));
        }
        if !metadata.is_object() && !metadata.is_null() {
            return Err("metadata is no map".into());
        }
        let mut keys = metadata.as_object().into_iter().flat_map(Map::keys);
        if let Some(unknown) = keys.find(|key| version != JANUS && !METADATA.contains(&key.as_str())) {
            return Err(format!("metadata of a Transaction has no key {unknown}"));
        }
        let text = |key: &str| match metadata.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(other) => Err(format!("metadata.{key} is no text: write \"{other}\" in quotes, if that is meant")),
        };
        (self.name, self.namespace) = (text("name")?, text("namespace")?);
        let mut ignored = Vec::from_iter((!status.is_null()).then_some("status"));
        if let (true, Some(spec)) = (version == JANUS, spec.as_object_mut()) {
            let keys = [("lockTimeout", "spec.lockTimeout"), ("sealed", "spec.sealed")];
            ignored.extend(keys.into_iter().filter_map(|(key, shown)| spec.remove(key).map(|_| shown)));
        }
        self.notes.extend(ignored.iter().map(|key| format!("{place}: {key} is ignored")));
        // The error of serde would quote them.
        if !spec.is_object() && !spec.is_null() {
            return Err("spec is no map".into());
        }
        if spec.get("changes").is_some_and(|changes| !changes.is_array() && !changes.is_null()) {
            return Err("spec.changes is no list".into());
        }
        let spec: Option<Spec> = serde_json::from_value(spec).map_err(|error| format!("spec: {error}"))?;
        let Spec { service_account_name, timeout, changes } = spec.unwrap_or_default();
        // As in a Pod, an empty name is none.
        self.account = service_account_name.filter(|name| !name.is_empty());
        self.limit = timeout.as_deref().map(duration::parse).transpose().map_err(|why| format!("spec.timeout: {why}"))?;
        let changes = changes.filter(|changes| !changes.is_empty());
        let changes = changes.ok_or("spec.changes is missing: list what is to be changed")?;
        for (at, change) in changes.into_iter().enumerate() {
            let changed = self.change(&format!("{place}, change {}", at + 1), change);
            self.refused.extend(changed.err());
        }
        Ok(())
    }

    fn change(&mut self, place: &str, mut written: Value) -> Result<(), String> {
        let unread = |why: String| format!("{place}: {why}");
        if let Some(variable) = self.variable {
            substitute(&mut written, variable).map_err(unread)?;
        }
        // The error of serde would quote them.
        if !written.is_object() {
            return Err(unread("this is no map".into()));
        }
        for key in ["target", "content", "require"] {
            if written.get(key).is_some_and(|value| !value.is_null() && !value.is_object()) {
                return Err(unread(format!("{key} is no map")));
            }
        }
        let item = serde_json::from_value(written).map_err(|error| unread(error.to_string()))?;
        let Item { target: Named { api_version, kind, namespace, name }, r#type: verb, content, mut require } = item;
        let place = format!("{place} ({kind}/{name})");
        let mut content = content.unwrap_or_default();
        if verb == ChangeType::Delete && !content.is_empty() {
            self.notes.push(format!("{place}: the content of a Delete is ignored"));
            content.clear();
        }
        if api_version == "v1" && kind == "Secret" {
            [Some(&mut content), require.as_mut()].into_iter().flatten().for_each(encode);
        }
        [Some(&mut content), require.as_mut()].into_iter().flatten().flat_map(Map::values_mut).for_each(count_whole);
        let namespace = namespace.or_else(|| self.namespace.clone());
        let target = Target { api_version, kind, resource: String::new(), namespace, name };
        let require = require.filter(|require| !require.is_empty()).map(Value::Object);
        let mut change = Change { target, verb, content: content.into(), require };
        judge(&change, self.variable.is_some()).map_or(Ok(()), |why| Err(format!("{place}: {why}")))?;
        // The names of the target are no fields that change.
        if let Value::Object(content) = &mut change.content {
            content.retain(|key, _| key != "apiVersion" && key != "kind");
            if let Some(Value::Object(metadata)) = content.get_mut("metadata") {
                metadata.retain(|key, _| key != "name" && key != "namespace");
            }
        }
        self.changes.push((place, change));
        Ok(())
    }

    /// Judges the changes together.
    fn judge_whole(&mut self) {
        let changes = &self.changes;
        let size: usize = changes.iter().map(|(_, change)| change.content.to_string().len()).sum();
        let refusals = [
            (changes.is_empty() && self.refused.is_empty(), "the file holds no change".to_owned()),
            (
                changes.len() > MOST_CHANGES,
                format!("{} changes are more than {MOST_CHANGES}: split the transaction", changes.len()),
            ),
            (
                size > LARGEST_TRANSACTION,
                format!("the contents have {size} bytes, more than {LARGEST_TRANSACTION}: split the transaction"),
            ),
        ];
        self.refused.extend(refusals.into_iter().filter_map(|(is_so, why)| is_so.then_some(why)));
        for (at, (place, change)) in changes.iter().enumerate() {
            if let Some((first, _)) = changes.iter().take(at).find(|(_, first)| is_same(&first.target, &change.target)) {
                self.refused.push(format!("{place} is a target twice: also in {first}"));
            }
        }
        let is_delete = |change: &Change| change.verb == ChangeType::Delete;
        for (place, _) in changes.iter().filter(|(_, change)| is_delete(change) && change.target.kind == "PersistentVolumeClaim")
        {
            self.notes.push(format!("{place}: undoing this Delete does not bring the data of the volume back"));
        }
        let mut deletes = changes.iter().skip_while(|(_, change)| !is_delete(change));
        if let Some((place, _)) = deletes.next()
            && !deletes.all(|(_, change)| is_delete(change))
        {
            let what = "new uid, no status, nothing that was deleted with it; put it last";
            self.notes.push(format!("{place}: undoing a Delete makes a new object: {what}"));
        }
    }
}

/// Turns the stringData of a Secret into data, which is what the API server keeps, without the line breaks of base64.
fn encode(content: &mut Map<String, Value>) {
    for value in content.get_mut("data").and_then(Value::as_object_mut).into_iter().flat_map(Map::values_mut) {
        if let Value::String(text) = value {
            text.retain(|c| !['\r', '\n'].contains(&c));
        }
    }
    let texts = content.get("stringData").filter(|texts| is_map_of_texts(texts)).cloned();
    let Some(Value::Object(texts)) = texts else { return };
    if let Value::Object(data) = content.entry("data").or_insert_with(|| Map::new().into()) {
        data.extend(texts.into_iter().map(|(key, text)| (key, text.as_str().map(|text| BASE64_STANDARD.encode(text)).into())));
        content.remove("stringData");
    }
}

/// Writes a whole number without a fraction, as the API server stores it.
fn count_whole(value: &mut Value) {
    match value {
        Value::Object(map) => map.values_mut().for_each(count_whole),
        Value::Array(items) => items.iter_mut().for_each(count_whole),
        Value::Number(number) => {
            let whole = number.as_f64().filter(|float| number.is_f64() && float.fract() == 0.0);
            if let Some(Ok(whole)) = whole.map(|float| format!("{float:.0}").parse::<i64>()) {
                *value = whole.into();
            }
        }
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}

/// Returns the first of the reasons whose condition is met.
macro_rules! refuse_if {
    ($($is_met:expr => $why:literal;)+) => { $(if $is_met { return Some(format!($why)); })+ }
}

/// Returns why a change alone is refused.
fn judge(change: &Change, is_promotion: bool) -> Option<String> {
    let Change { target, verb, content, require } = change;
    let Target { api_version, kind, namespace, name, .. } = target;
    let is_segment = |text: &str| {
        !text.is_empty() && text.len() <= 253 && text.bytes().all(|c| c.is_ascii_alphanumeric() || b"-._:@+=*".contains(&c))
    };
    let is_kind = is_segment(kind) && api_version.split('/').all(is_segment) && api_version.split('/').count() <= 2;
    let is_name = |text: &str| is_segment(text) && text != "." && text != "..";
    let place = namespace.as_ref().unwrap_or(name);
    let deletes = *verb == ChangeType::Delete;
    let is_nothing = |content: &Map<String, Value>| content.is_empty() && *verb != ChangeType::Create;
    let is_other = |key, expected: &str| content.get(key).is_some_and(|value| value != expected);
    let is_secret = api_version == "v1" && kind == "Secret";
    let is_base64 = |value: &Value| value.is_null() || value.as_str().is_some_and(|text| BASE64_STANDARD.decode(text).is_ok());
    let data = content.get("data").filter(|_| is_secret).and_then(Value::as_object).into_iter().flatten();
    // The API server calls it an internal error of its own.
    let bad = data.filter(|(_, value)| !is_base64(value)).map(|(key, _)| key.as_str()).next().unwrap_or_default();
    let is_lost =
        |content: &Value| content.get("stringData").is_some() && content.get("data").is_some_and(|data| !data.is_object());
    let has_null = [Some(content), require.as_ref()].into_iter().flatten().any(holds_null_item);
    let metadata = content.get("metadata").and_then(|metadata| judge_metadata(target, *verb, metadata).err());
    refuse_if! {
        !is_kind => "{api_version:?} and {kind:?} are no apiVersion and kind; a subresource cannot be a target";
        !is_name(name) => "{name:?} is not the name of an object; a subresource cannot be a target";
        !is_name(place) => "{place:?} is not the name of an object; a subresource cannot be a target";
        kind == "Lease" && target.group() == "coordination.k8s.io" => "a Lease cannot be a target: locks rest on it";
        deletes && holds_others(target) => "a {kind} cannot be deleted in a transaction: what goes with it cannot be brought back";
        is_promotion && *verb != ChangeType::Patch => "a promotion has changes of type Patch only";
        !deletes && content.as_object().is_none_or(is_nothing) => "content is missing";
        is_other("apiVersion", api_version) || is_other("kind", kind) => "content is of another apiVersion or kind than the target";
        content.get("status").is_some() => "status cannot be changed: its controller owns it";
        is_secret && [Some(content), require.as_ref()].into_iter().flatten().any(is_lost) => "data beside stringData is no map: remove it";
        !bad.is_empty() => "data.{bad} is not base64: encode it, or write stringData";
        has_null => "an item that is null has no meaning: only a key of a map can be removed";
    }
    metadata
}

fn judge_metadata(target: &Target, verb: ChangeType, metadata: &Value) -> Result<(), String> {
    for (key, value) in metadata.as_object().ok_or("metadata is no map")? {
        let why = match key.as_str() {
            "name" if value == &target.name => continue,
            "namespace" if value.as_str() == target.namespace.as_deref() => continue,
            "name" | "namespace" => " in content is not the target's",
            "labels" | "annotations" if value.get(MARK).is_some() => {
                ": tenure.dev/change is how transactions mark what they change"
            }
            "labels" | "annotations" if is_map_of_texts(value) => continue,
            "labels" | "annotations" => " is no map of texts",
            "finalizers" | "ownerReferences" if verb == ChangeType::Create => continue,
            "generateName" => ": a transaction needs the name of what it creates",
            _ => " cannot be changed: remove it",
        };
        return Err(format!("metadata.{key}{why}"));
    }
    Ok(())
}

/// Returns true if both name one object, whatever the versions of its API. A namespace that is not named is that of the transaction.
pub(super) fn is_same(a: &Target, b: &Target) -> bool {
    a.group() == b.group() && (&a.kind, &a.namespace, &a.name) == (&b.kind, &b.namespace, &b.name)
}

/// Reads a file that the same command, run again inside the term, reads again.
fn twice(file: File) -> io::Result<String> {
    if file.metadata()?.file_type().is_fifo() {
        return Err(io::Error::other("a pipe can be read only once: write -f -, with the pipe as standard input"));
    }
    limited(file)
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
                if !VARIABLES.contains(&name) {
                    // It may be a part of a password.
                    return Err(format!("a $(...) is none of the variables {}; $$( stands for $(", VARIABLES.join(", ")));
                }
                let known = variable(name).ok_or_else(|| format!("$({name}) is not set"))?;
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
fn holds_null_item(value: &Value) -> bool {
    match value {
        Value::Array(items) => items.iter().any(|item| item.is_null() || holds_null_item(item)),
        Value::Object(map) => map.values().any(holds_null_item),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use std::{env, fs, process};

    use super::*;

    fn judged(name: &str, spec: &str) -> Result<Wanted, String> {
        let path = env::temp_dir().join(format!("tenure-{name}-{}", process::id()));
        fs::write(&path, format!("apiVersion: tenure.dev/v1\nkind: Transaction\nspec:{spec}\n")).unwrap();
        let wanted = Wanted::read(&path, None);
        fs::remove_file(&path).unwrap();
        wanted
    }

    fn read(name: &str, line: &str, change: &str) -> Wanted {
        judged(name, &format!("\n  {line}\n  changes: [{change}]")).unwrap()
    }

    #[test]
    fn no_refusal_quotes_a_value() {
        for (spec, why) in [
            (" |\n  password: hunter2", "spec is no map"),
            ("\n  changes: |\n    password: hunter2", "spec.changes is no list"),
            ("\n  changes:\n  - password: hunter2", "unknown field `password`"),
            ("\n  changes:\n  - target: hunter2", "target is no map"),
            ("\n  password: !hunter2", "a text that begins with ! or & has to be quoted at line 4"),
            ("\n  password: !hunter2 x", "a text that begins with ! or & has to be quoted at line 4"),
            ("\n  a: 5\n  password: &hunter2", "a text that begins with ! or & has to be quoted at line 5"),
            ("\n  password: 40317e9921", "a number that is not finite: quote it, if it is a text, at line 4"),
        ] {
            let refused = judged("quotes", spec).unwrap_err();

            assert!(refused.contains(why) && !refused.contains("hunter2") && !refused.contains("40317"), "{spec}: {refused}");
        }
        let anchored = "\n  timeout: # 5m & more\n  serviceAccountName: &n null\n  changes:\n  - &a {target: &b {apiVersion: v1, kind: Pod, \
                        name: &c p}, type: !!str Patch, content: {spec: {old: null, cmd: a & b, args: [~, \"&& c\"]}}}";
        let refused = judged("anchors", anchored).unwrap_err();
        assert!(refused.contains("an item that is null has no meaning"), "{refused}");
    }

    #[test]
    fn a_whole_number_is_written_as_the_server_stores_it() {
        let numbers = "{list: [3.0, 1e3, -2.0, 2.5], large: 9007199254740993, huge: 1e30, text: '3.0'}";
        let target = "{apiVersion: example.com/v1, kind: Door, name: a}";
        let change = format!("{{target: {target}, type: Patch, content: {{spec: {numbers}}}, require: {{spec: {{a: 1.0}}}}}}");
        let wanted = read("numbers", "timeout: 5s", &change);
        let change = wanted.changes.first().map(|(_, change)| change).unwrap();

        let expected = r#"{"spec":{"huge":1e+30,"large":9007199254740993,"list":[3,1000,-2,2.5],"text":"3.0"}}"#;
        assert_eq!(change.content.to_string(), expected);
        assert_eq!(change.require.as_ref().map(Value::to_string), Some(r#"{"spec":{"a":1}}"#.to_owned()));
    }

    #[test]
    fn an_empty_account_is_none() {
        let change = "{target: {apiVersion: v1, kind: ConfigMap, name: a}, type: Delete}";
        let account = |line| read("account", line, change).account;

        assert_eq!(account("serviceAccountName: deploy"), Some("deploy".into()));
        assert_eq!(account("serviceAccountName: ''"), None);
    }

    /// The fingerprint of a file is compared with one that another version has stored.
    #[test]
    fn a_change_does_not_repeat_the_names_of_its_target() {
        let target = "target: {apiVersion: v1, kind: ConfigMap, namespace: ns, name: a}, type: Create";
        let content = "apiVersion: v1, kind: ConfigMap, metadata: {namespace: ns, name: a, labels: {x: z}}, data: {k: v}";
        let wanted = read("names", "timeout: 5s", &format!("{{{target}, content: {{{content}}}}}"));

        let expected = serde_json::json!({ "metadata": { "labels": { "x": "z" } }, "data": { "k": "v" } });
        assert_eq!(wanted.changes.first().map(|(_, change)| &change.content), Some(&expected));
    }
}
