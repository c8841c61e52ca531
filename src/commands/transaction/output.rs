//! Prints a line for each event of a transaction, a table of its objects, and how it ended.
//!
//! Owns these words. Never shows a value of a Secret.

use serde_json::{Value, json};

use super::server::is_secret;
use crate::{
    cli::Output,
    commands::table::{Document, Line, shown},
    console::{answer, complain},
    time::Instant,
    transaction::{Change, Entry, Event, Fate, Field, Journal, Outcome, Target},
    words::{bounded, squeezed},
};

const OBJECTS: [&str; 4] = ["OBJECT", "NAMESPACE", "CHANGE", "STATE"];
const FIELDS: [&str; 7] = ["OBJECT", "NAMESPACE", "CHANGE", "FIELD", "FROM", "TO", "STATE"];
/// Something can be undone.
const UNDOABLE: u8 = 1;

/// Says an event as it happens.
pub(super) fn tell(event: &Event) {
    let line = match event {
        Event::Unfinished { by, undone: true } => format!("{by} left this transaction unfinished: its changes are undone first"),
        Event::Unfinished { by, undone: false } => format!("{by} left this transaction unfinished: its changes are taken on"),
        Event::Waiting { target, mark } => format!("waits for {target}, which another transaction changes ({mark})"),
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
pub(super) fn ended(output: Output, outcome: &Outcome, changes: &[Change], events: &[(Instant, Event)]) -> u8 {
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
    complain(&squeezed(&outcome.to_string()));
    answer(&shown(output, true, OBJECTS, &lines), outcome.code())
}

/// Says how it ended, in a hook; returns the exit code.
pub(super) fn concluded(outcome: &Outcome) -> u8 {
    complain(&squeezed(&outcome.to_string()));
    outcome.code()
}

/// Shows what an application would change now; returns the exit code.
pub(super) fn previewed(output: Output, planned: Result<Vec<Entry>, Outcome>) -> u8 {
    match planned {
        Ok(entries) => answer(&plan(output, &entries, |field| (&field.found, &field.after)), 0),
        Err(outcome) => concluded(&outcome),
    }
}

/// Shows what a recovery would undo now; returns the exit code.
pub(super) fn surveyed(output: Output, journal: Result<Option<Journal>, Outcome>) -> u8 {
    match journal {
        Ok(Some(journal)) => answer(&plan(output, &journal.entries, |field| (&field.after, &field.before)), UNDOABLE),
        Ok(None) => {
            complain("there is nothing to undo");
            answer(&plan(output, &[], |field| (&field.after, &field.before)), 0)
        }
        Err(outcome) => concluded(&outcome),
    }
}

type Values<'a> = (&'a Option<Value>, &'a Option<Value>);

/// The entries of a journal, a row for each field.
fn plan(output: Output, entries: &[Entry], of: impl Fn(&Field) -> Values<'_>) -> String {
    let rows = entries.iter().flat_map(|entry| {
        let is_secret = is_secret(&entry.target);
        let value = |value: &Option<Value>| match value {
            None => Value::Null,
            Some(_) if is_secret => "(not shown)".into(),
            Some(value) => value.clone(),
        };
        let change = entry.kind.as_str();
        let whole = entry.fields.is_empty().then(|| row(entry, change, "", Value::Null, Value::Null));
        let fields = entry.fields.iter().map(|field| {
            let (from, to) = of(field);
            row(entry, change, &field.path.join("."), value(from), value(to))
        });
        whole.into_iter().chain(fields).collect::<Vec<_>>()
    });
    shown(output, true, FIELDS, &rows.collect::<Vec<_>>())
}

fn row(entry: &Entry, change: &str, path: &str, from: Value, to: Value) -> Line<7> {
    let ([object, namespace, ..], mut document) = line(&entry.target, change, &entry.state);
    let cell = |value: &Value| if value.is_null() { String::new() } else { bounded(&value.to_string()).into_owned() };
    let cells = [object, namespace, change.into(), bounded(path).into_owned(), cell(&from), cell(&to), entry.state.clone()];
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
    let cells = [format!("{kind}/{name}"), namespace.clone().unwrap_or_default(), change.into(), bounded(state).into_owned()];
    (cells, Document(document.into()))
}
