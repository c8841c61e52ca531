//! Paths into objects, and the nodes of `managedFields` along them. A step is written as such a node: `f:KEY` is a key of a map,
//! `k:{…}` the item of a list that has these keys, and `v:VALUE` a member of a list that is a set.
//!
//! Never indexes into JSON: journals and objects hold what anybody wrote.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{MANAGER, UNDO_PREFIX};
pub(super) use crate::election::writes::as_map;

/// A path, step by step.
pub(super) type Path = Vec<Step>;

/// One step of a path.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Step {
    /// A key of a map.
    Key(String),
    /// The item of a list that has these keys.
    Item(Map<String, Value>),
    /// A member of a list that is a set.
    Member(Value),
}

impl From<Step> for String {
    fn from(step: Step) -> Self {
        match step {
            Step::Key(key) => format!("f:{key}"),
            Step::Item(keys) => format!("k:{}", Value::Object(keys)),
            Step::Member(value) => format!("v:{value}"),
        }
    }
}

impl TryFrom<String> for Step {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let step = match text.split_at_checked(2) {
            Some(("f:", key)) => Some(Self::Key(key.to_owned())),
            Some(("k:", keys)) => serde_json::from_str(keys).ok().map(Self::Item),
            Some(("v:", value)) => serde_json::from_str(value).ok().map(Self::Member),
            _ => None,
        };
        step.ok_or_else(|| format!("{text} is no step of a path"))
    }
}

impl Step {
    fn is(&self, item: &Value) -> bool {
        match self {
            Self::Key(_) => false,
            Self::Item(keys) => item.as_object().is_some_and(|item| has(item, keys)),
            Self::Member(value) => item == value,
        }
    }
}

/// Returns true if a map has all of these entries.
pub(super) fn has(map: &Map<String, Value>, part: &Map<String, Value>) -> bool {
    part.iter().all(|(key, value)| map.get(key) == Some(value))
}

/// Returns the value at a path of an object. A null is absent.
pub(super) fn at<'a>(object: &'a Value, path: &[Step]) -> Option<&'a Value> {
    let child = |value: &'a Value, step: &Step| match step {
        Step::Key(key) => value.get(key),
        Step::Item(_) | Step::Member(_) => value.as_array()?.iter().find(|item| step.is(item)),
    };
    path.iter().try_fold(object, child).filter(|value| !value.is_null())
}

/// Puts a value at a path. Maps, lists and items on the way are made where they are missing.
pub(super) fn set(object: &mut Value, path: &[Step], value: Value) {
    let Some((step, rest)) = path.split_first() else {
        *object = value;
        return;
    };
    let new = match step {
        Step::Key(key) => return set(as_map(object).entry(key).or_insert(Value::Null), rest, value),
        Step::Item(keys) => keys.clone().into(),
        Step::Member(value) => value.clone(),
    };
    let list = list_of(object);
    let at = list.iter().position(|item| step.is(item)).unwrap_or_else(|| {
        list.push(new);
        list.len() - 1
    });
    if let Some(item) = list.get_mut(at)
        && (!rest.is_empty() || value.is_object())
    {
        set(item, rest, value);
    }
}

/// Removes what is at a path. A list goes with its last item.
pub(super) fn remove(object: &mut Value, path: &[Step]) {
    match (path, object) {
        ([Step::Key(key)], Value::Object(map)) => drop(map.remove(key)),
        ([Step::Key(key), rest @ ..], Value::Object(map)) => {
            if let Some(value) = map.get_mut(key) {
                remove(value, rest);
                if matches!(rest, [Step::Item(_) | Step::Member(_)]) && *value == Value::Array(Vec::new()) {
                    map.remove(key);
                }
            }
        }
        ([step], Value::Array(list)) => list.retain(|item| !step.is(item)),
        ([step, rest @ ..], Value::Array(list)) => {
            list.iter_mut().filter(|item| step.is(item)).take(1).for_each(|item| remove(item, rest));
        }
        _ => {}
    }
}

/// Returns the path for people: `spec.containers[name=web].image`.
pub(super) fn shown(path: &[Step]) -> String {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let mut shown = String::new();
    for step in path {
        match step {
            Step::Key(key) if shown.is_empty() => shown.push_str(key),
            Step::Key(key) => shown.extend([".", key]),
            Step::Item(keys) => {
                let keys = keys.iter().map(|(key, value)| format!("{key}={}", text(value)));
                shown.extend(["[", &keys.collect::<Vec<_>>().join(","), "]"]);
            }
            Step::Member(value) => shown.extend(["[", &text(value), "]"]),
        }
    }
    shown
}

/// Returns the keys of an item that a node of `fieldsV1` names.
pub(super) fn keys_of(node: &str) -> Option<Map<String, Value>> {
    serde_json::from_str(node.strip_prefix("k:")?).ok()
}

/// Returns the node of `fieldsV1` below another one.
pub(super) fn node<'a>(fields: &'a Value, step: &Step) -> Option<&'a Value> {
    let fields = fields.as_object()?;
    match step {
        Step::Key(key) => fields.get(&format!("f:{key}")),
        Step::Member(value) => fields.get(&format!("v:{value}")),
        Step::Item(keys) => {
            fields.iter().find(|(name, _)| keys_of(name).is_some_and(|all| has(&all, keys))).map(|(_, node)| node)
        }
    }
}

/// Returns the managers of an object with the node that each has at a path: of those that pass `of`, an entry of `managedFields`.
pub(super) fn owners<'a>(
    object: &'a Value,
    path: &'a [Step],
    of: impl Fn(&Value) -> bool + 'a,
) -> impl Iterator<Item = (&'a str, &'a Value)> {
    managers(object).iter().filter(move |entry| of(entry)).filter_map(move |entry| {
        // An empty node is of a value that has one owner, with all that is in it.
        let is_leaf = |fields: &Value| fields.as_object().is_some_and(Map::is_empty);
        let step = |fields, step| if is_leaf(fields) { Some(fields) } else { node(fields, step) };
        let fields = path.iter().try_fold(entry.get("fieldsV1")?, step)?;
        Some((entry["manager"].as_str().unwrap_or_default(), fields))
    })
}

/// Returns the entries of an object's `managedFields`.
pub(super) fn managers(object: &Value) -> &[Value] {
    object["metadata"]["managedFields"].as_array().map_or(&[], Vec::as_slice)
}

/// Returns true if an entry of `managedFields` is tenure's.
pub(super) fn is_tenures(entry: &Value) -> bool {
    entry["manager"] == MANAGER || is_of_undo(entry)
}

/// Returns true if an entry of `managedFields` is of an undo that has left a map to others.
pub(super) fn is_of_undo(entry: &Value) -> bool {
    entry["manager"].as_str().is_some_and(|manager| manager.starts_with(UNDO_PREFIX))
}

/// Returns true if two entries of `managedFields` are of one manager.
pub(super) fn is_same_manager(a: &Value, b: &Value) -> bool {
    ["manager", "operation", "subresource", "apiVersion"].iter().all(|key| a[*key] == b[*key])
}

/// Returns true if somebody else wrote something of an object but metadata and status.
pub(super) fn is_shared(object: &Value) -> bool {
    let is_other = |entry: &Value| !is_tenures(entry) && entry.get("subresource").is_none();
    owners(object, &[], is_other).any(|(_, fields)| {
        let mut below = fields.as_object().into_iter().flatten().map(|(name, _)| name.as_str());
        below.any(|name| !["f:metadata", "f:status"].contains(&name))
    })
}

/// Returns true if a value has all of this part. A list has a part if its items do, one for one.
pub(super) fn covers(whole: &Value, part: &Value) -> bool {
    match (whole, part) {
        (Value::Object(whole), Value::Object(part)) => {
            part.iter().all(|(key, part)| covers(whole.get(key).unwrap_or(&Value::Null), part))
        }
        (Value::Array(whole), Value::Array(part)) => {
            whole.len() == part.len() && whole.iter().zip(part).all(|(whole, part)| covers(whole, part))
        }
        (whole, part) => whole == part,
    }
}

/// Returns the list in `value`. Anything else is replaced by an empty list.
pub(crate) fn list_of(value: &mut Value) -> &mut Vec<Value> {
    if !value.is_array() {
        *value = Value::Array(Vec::new());
    }
    let Value::Array(list) = value else { unreachable!("made a list above") };
    list
}

/// Returns the map at a key of a map.
pub(crate) fn entry_of<'a>(value: &'a mut Value, key: &str) -> &'a mut Value {
    as_map(value).entry(key).or_insert(Value::Null)
}
