//! Paths into objects, in the words of `managedFields`: `f:KEY` is a key of a map, `k:{…}` the item of a list that has these keys,
//! and `v:VALUE` a member of a list that is a set.
//!
//! Never indexes into JSON: journals and objects hold what anybody wrote.

use serde_json::Value;

pub(super) use crate::election::writes::as_map;

/// A path, step by step.
pub(super) type Path = Vec<String>;

/// One step of a path.
enum Step<'a> {
    Key(&'a str),
    /// An item by some of its keys.
    Item(Value),
    Member(Value),
}

impl<'a> Step<'a> {
    fn read(text: &'a str) -> Option<Self> {
        match text.split_at_checked(2)? {
            ("f:", key) => Some(Self::Key(key)),
            ("k:", keys) => serde_json::from_str(keys).ok().filter(Value::is_object).map(Self::Item),
            ("v:", value) => serde_json::from_str(value).ok().map(Self::Member),
            _ => None,
        }
    }

    fn is(&self, item: &Value) -> bool {
        match self {
            Self::Key(_) => false,
            Self::Item(keys) => covers(item, keys),
            Self::Member(value) => item == value,
        }
    }
}

/// Returns true if a path from a journal can be followed.
pub(super) fn is_path(path: &[String]) -> bool {
    !path.is_empty() && path.iter().all(|step| Step::read(step).is_some())
}

/// Returns the value at a path of an object. A null is absent.
pub(super) fn at<'a>(object: &'a Value, path: &[String]) -> Option<&'a Value> {
    let child = |value: &'a Value, step: &String| match Step::read(step)? {
        Step::Key(key) => value.get(key),
        step @ (Step::Item(_) | Step::Member(_)) => value.as_array()?.iter().find(|item| step.is(item)),
    };
    path.iter().try_fold(object, child).filter(|value| !value.is_null())
}

fn at_mut<'a>(object: &'a mut Value, path: &[String]) -> Option<&'a mut Value> {
    path.iter().try_fold(object, |value, step| match Step::read(step)? {
        Step::Key(key) => value.get_mut(key),
        step @ (Step::Item(_) | Step::Member(_)) => value.as_array_mut()?.iter_mut().find(|item| step.is(item)),
    })
}

/// Puts a value at a path. Maps, lists and items on the way are made where they are missing.
pub(super) fn set(object: &mut Value, path: &[String], value: Value) {
    let Some((first, rest)) = path.split_first() else {
        *object = value;
        return;
    };
    match Step::read(first) {
        Some(Step::Key(key)) => set(as_map(object).entry(key).or_insert(Value::Null), rest, value),
        Some(step) => {
            let list = list_of(object);
            let at = list.iter().position(|item| step.is(item)).unwrap_or(list.len());
            if let (true, Step::Item(new) | Step::Member(new)) = (at == list.len(), step) {
                list.push(new);
            }
            if let Some(item) = list.get_mut(at)
                && (!rest.is_empty() || value.is_object())
            {
                set(item, rest, value);
            }
        }
        None => {}
    }
}

/// Removes what is at a path.
pub(super) fn remove(object: &mut Value, path: &[String]) {
    let Some((last, above)) = path.split_last() else { return };
    match (Step::read(last), at_mut(object, above)) {
        (Some(Step::Key(key)), Some(Value::Object(map))) => drop(map.remove(key)),
        (Some(step), Some(Value::Array(list))) => list.retain(|item| !step.is(item)),
        _ => {}
    }
}

/// Returns the path for people: `spec.containers[name=web].image`.
pub(super) fn shown(path: &[String]) -> String {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let mut shown = String::new();
    for step in path {
        match Step::read(step) {
            Some(Step::Key(key)) if shown.is_empty() => shown.push_str(key),
            Some(Step::Key(key)) => shown.extend([".", key]),
            Some(Step::Item(keys)) => {
                let keys = keys.as_object().into_iter().flatten().map(|(key, value)| format!("{key}={}", text(value)));
                shown.extend(["[", &keys.collect::<Vec<_>>().join(","), "]"]);
            }
            Some(Step::Member(value)) => shown.extend(["[", &text(&value), "]"]),
            None => shown.push_str(step),
        }
    }
    shown
}

/// Returns the node of `fieldsV1` below another one, and its step.
pub(super) fn member<'a>(fields: &'a Value, step: &str) -> Option<(&'a String, &'a Value)> {
    let is_it = |name: &str| match (Step::read(name), Step::read(step)) {
        (Some(Step::Item(whole)), Some(Step::Item(part))) => covers(&whole, &part),
        _ => name == step,
    };
    fields.as_object()?.iter().find(|(name, _)| is_it(name))
}

/// Returns the managers of an object with the node that each has at a path: of those that pass `of`, an entry of `managedFields`.
pub(super) fn owners<'a>(
    object: &'a Value,
    path: &'a [String],
    of: impl Fn(&Value) -> bool + 'a,
) -> impl Iterator<Item = (&'a str, &'a Value)> {
    managers(object).iter().filter(move |entry| of(entry)).filter_map(move |entry| {
        let fields = path.iter().try_fold(entry.get("fieldsV1")?, |fields, step| Some(member(fields, step)?.1))?;
        Some((entry["manager"].as_str().unwrap_or_default(), fields))
    })
}

/// Returns the entries of an object's `managedFields`.
pub(super) fn managers(object: &Value) -> &[Value] {
    object["metadata"]["managedFields"].as_array().map_or(&[], Vec::as_slice)
}

/// Returns true if somebody else wrote something below this path.
pub(super) fn is_shared(object: &Value, path: &[String]) -> bool {
    let is_other = |entry: &Value| entry["manager"] != super::MANAGER && entry.get("subresource").is_none();
    owners(object, path, is_other).any(|(_, fields)| {
        let mut below = fields.as_object().into_iter().flatten().map(|(name, _)| name.as_str());
        below.any(|name| name != "." && (!path.is_empty() || name != "f:metadata" && name != "f:status"))
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
