//! Prints a line for each event of a transaction, a table of its objects, and how it ended.
//!
//! Owns these words. Never shows a value of a Secret.

use serde_json::{Value, json};

use crate::{
    cli::Output,
    commands::table::{Document, Line, shown},
    console::{answer, complain},
    time::Instant,
    transaction::{Change, Entry, EntryType, Event, Fate, Outcome, Place, Target},
    words::{bounded, squeezed},
};

const OBJECTS: [&str; 4] = ["OBJECT", "NAMESPACE", "CHANGE", "STATE"];
const FIELDS: [&str; 7] = ["OBJECT", "NAMESPACE", "CHANGE", "FIELD", "FROM", "TO", "STATE"];
/// Something can be undone.
const UNDOABLE: u8 = 1;

/// Says an event as it happens.
pub(super) fn tell(event: &Event) {
    let line = match event {
        Event::Unfinished { by } => format!("what {by} has changed is undone first"),
        Event::Waiting { target, why } => format!("waits for {target}: {why}"),
        Event::Retrying(why) => bounded(&format!("no success yet, and tries again: {why}")).into_owned(),
        Event::Object { target, fate: Fate::Changed, .. } => format!("changed {target}"),
        Event::Object { target, fate: Fate::Undone, .. } => format!("undid {target}"),
        Event::Object { target, fate: Fate::Doubtful, .. } => {
            format!("undid {target}, but a late request may still create it: recover once more then")
        }
        Event::Object { target, fate: Fate::Left(why), .. } => format!("left {target} as it is: {why}"),
        Event::Warning { target, what } => format!("{target}: {what}"),
        // The outcome says why.
        Event::Object { fate: Fate::Failed, .. } | Event::Prepared => return,
    };
    complain(&bounded(&line));
}

/// Says how it ended: a table of the objects, and the outcome; returns the exit code.
pub(super) fn ended(output: Output, outcome: &Outcome, lease: &Place, changes: &[Change], events: &[(Instant, Event)]) -> u8 {
    let mut rows: Vec<(&Target, &str, String)> =
        changes.iter().map(|change| (&change.target, change.verb.as_str(), "unchanged".to_owned())).collect();
    for (_, event) in events {
        let Event::Object { target, fate, .. } = event else { continue };
        let state = match fate {
            Fate::Changed => "changed".to_owned(),
            Fate::Failed => "not changed".to_owned(),
            Fate::Undone => "as before".to_owned(),
            Fate::Doubtful => "as before, but may still be created".to_owned(),
            Fate::Left(why) => format!("left as it is: {why}"),
        };
        match rows.iter_mut().find(|(known, ..)| *known == target) {
            Some(row) => row.2 = state,
            None => rows.push((target, "", state)),
        }
    }
    let lines: Vec<_> = rows.into_iter().map(|(target, change, state)| line(target, change, &state)).collect();
    let code = concluded(outcome, lease);
    answer(&shown(output, true, OBJECTS, &lines), code)
}

/// Says how it ended, and what undoes the rest; returns the exit code.
pub(super) fn concluded(outcome: &Outcome, lease: &Place) -> u8 {
    let mut rest = String::new();
    if matches!(outcome, Outcome::Stuck(_)) {
        let name = &lease.name;
        rest =
            format!("; `tenure recover apply --lease {name}` undoes the rest, with --force also what somebody else has changed");
    }
    complain(&squeezed(&format!("{outcome}{rest}")));
    outcome.code()
}

/// Shows what an application would change now; returns the exit code.
pub(super) fn previewed(output: Output, lease: &Place, planned: Result<Vec<Entry>, Outcome>) -> u8 {
    match planned {
        Ok(entries) => answer(&plan(output, &entries, false), 0),
        Err(outcome) => concluded(&outcome, lease),
    }
}

/// Shows what a recovery would undo now; returns the exit code.
pub(super) fn surveyed(output: Output, lease: &Place, entries: Result<Vec<Entry>, Outcome>) -> u8 {
    match entries {
        Ok(entries) => {
            if entries.is_empty() {
                complain("there is nothing to undo");
            }
            answer(&plan(output, &entries, true), if entries.is_empty() { 0 } else { UNDOABLE })
        }
        Err(outcome) => concluded(&outcome, lease),
    }
}

/// What an undo does.
const fn undo(change: EntryType) -> &'static str {
    match change {
        EntryType::Patch => "put back",
        EntryType::Create => "delete",
        EntryType::Delete => "create again",
    }
}

/// The entries of a journal, a row for each field: what the changes or their undo make of it.
fn plan(output: Output, entries: &[Entry], undoes: bool) -> String {
    let rows = entries.iter().flat_map(|entry| {
        let is_secret = entry.target.is_secret();
        let value = |value: &Option<Value>| match value {
            None => Value::Null,
            Some(_) if is_secret => "(not shown)".into(),
            Some(value) => value.clone(),
        };
        let change = if undoes { undo(entry.kind) } else { entry.kind.as_str() };
        let whole = entry.fields.is_empty().then(|| row(entry, change, "", Value::Null, Value::Null));
        let fields = entry.fields.iter().map(|field| {
            let (before, after) = (value(&field.before), value(&field.after));
            let (from, to) = if undoes { (after, before) } else { (before, after) };
            row(entry, change, &field.name(), from, to)
        });
        whole.into_iter().chain(fields).collect::<Vec<_>>()
    });
    shown(output, true, FIELDS, &rows.collect::<Vec<_>>())
}

fn row(entry: &Entry, change: &str, path: &str, from: Value, to: Value) -> Line<7> {
    let ([object, namespace, ..], mut document) = line(&entry.target, change, &entry.state);
    let cell = |value: &Value| if value.is_null() { String::new() } else { value.to_string() };
    let cells = [object, namespace, change.into(), path.into(), cell(&from), cell(&to), entry.state.clone()];
    document.0.extend([("field", json!(path)), ("from", from), ("to", to)]);
    (cells, document)
}

fn line(target: &Target, change: &str, state: &str) -> Line<4> {
    let Target { api_version, kind, resource: _, namespace, name } = target;
    let document = [
        ("apiVersion", json!(api_version)),
        ("kind", json!(kind)),
        ("namespace", json!(namespace)),
        ("name", json!(name)),
        ("change", json!(change)),
        ("state", json!(state)),
    ];
    let cells = [format!("{kind}/{name}"), namespace.clone().unwrap_or_default(), change.into(), state.into()];
    (cells, Document(document.into()))
}
