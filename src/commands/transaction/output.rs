//! Prints a line for each event of a transaction, a table of its objects, and how it ended.
//!
//! Owns these words, but for the reasons of a conflict, which the journal and the undo give. Never shows a value of a Secret.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::{
    cli::{ConfigFlags, Output},
    commands::table::{Document, Line, shown},
    console::{answer, complain},
    time::Instant,
    transaction::{Entry, EntryType, Event, Job, Outcome, State, Target},
    words::{bounded, squeezed},
};

const HEAD: [&str; 7] = ["OBJECT", "NAMESPACE", "CHANGE", "FIELD", "FROM", "TO", "STATE"];
/// Something can be undone.
const UNDOABLE: u8 = 1;

/// Says an event as it happens.
pub(super) fn tell(event: &Event) {
    let line = match event {
        Event::Said(line) => line.clone(),
        Event::Retrying(why) => bounded(&format!("no success yet: {why}")).into_owned(),
        // The outcome says why.
        Event::Object { state: State::Planned, .. } | Event::Prepared => return,
        Event::Object { target, state, .. } => format!("{target}: {state}"),
    };
    complain(&bounded(&line));
}

/// Says how it ended: a table of the objects, if there is to be one, and the outcome; returns the exit code.
pub(super) fn ended(output: Option<Output>, flags: &str, job: Job<'_>, events: &[(Instant, Event)], outcome: &Outcome) -> u8 {
    let changes = if let Job::Make(_, changes) = job { changes } else { &[] };
    let mut rows: Vec<(&Target, &str, Option<&State>)> =
        changes.iter().map(|change| (&change.target, change.verb.as_str(), None)).collect();
    for (_, event) in events {
        let Event::Object { target, state, .. } = event else { continue };
        match rows.iter_mut().find(|(known, ..)| *known == target) {
            Some(row) => row.2 = Some(state),
            None => rows.push((target, "", Some(state))),
        }
    }
    // Names are for a loop over what was touched.
    let is_touched = |state| matches!(state, Some(&(State::Changed | State::Undone | State::Doubtful)));
    rows.retain(|(.., state)| output != Some(Output::Name) || is_touched(*state));
    let said = |state: Option<&State>| state.map_or_else(|| "unchanged".to_owned(), State::to_string);
    let lines: Vec<_> = rows.into_iter().map(|(target, change, state)| line(target, change, said(state), None)).collect();
    let code = concluded(outcome, flags);
    answer(&output.map_or_else(String::new, |output| shown(output, true, HEAD, &lines)), code)
}

/// Returns the flags with which another command finds the Lease. It is named as the API server does.
pub(super) fn lease_flags(flags: &ConfigFlags, lease: &str, namespace: &str) -> String {
    let prefix = if flags.lease.as_deref() == Some(lease) { "" } else { " --set lease.prefix=" };
    let place = if namespace.is_empty() { String::new() } else { format!(" -n {namespace}") };
    let path = |path: &Option<PathBuf>| path.as_ref().map(|path| path.display().to_string());
    let cluster = &flags.cluster;
    let others =
        [("context", cluster.context.clone()), ("kubeconfig", path(&cluster.kubeconfig)), ("config", path(&flags.config))];
    let others: String = others.into_iter().filter_map(|(flag, value)| Some(format!(" --{flag} {}", quoted(value?)))).collect();
    format!("--lease {lease}{prefix}{place}{others}")
}

/// Returns a word as a shell reads it.
fn quoted(word: String) -> String {
    let is_plain = word.bytes().all(|c| c.is_ascii_alphanumeric() || b"@%+=:,./_-".contains(&c));
    if is_plain && !word.is_empty() { word } else { format!("'{}'", word.replace('\'', r"'\''")) }
}

/// Says how it ended, and what undoes the rest; returns the exit code.
pub(super) fn concluded(outcome: &Outcome, flags: &str) -> u8 {
    let mut rest = String::new();
    if matches!(outcome, Outcome::Stuck(_)) {
        let how = "with --force also over what somebody else has changed; `forget` in place of `apply` leaves it as it is";
        rest = format!("; `tenure recover apply {flags}` undoes the rest, {how}");
    }
    complain(&squeezed(&format!("{outcome}{rest}")));
    outcome.code()
}

/// Shows what a job would change or undo now: a row for each field; returns the exit code.
pub(super) fn planned(output: Option<Output>, flags: &str, job: Job<'_>, entries: Result<Vec<Entry>, Outcome>) -> u8 {
    let undoes = !matches!(job, Job::Make(..));
    let entries = match entries {
        Ok(entries) => entries,
        Err(outcome) => match concluded(&outcome, flags) {
            0 => Vec::new(),
            code => return code,
        },
    };
    if undoes && entries.is_empty() {
        complain("there is nothing to undo");
    }
    let mut rows = Vec::new();
    for entry in &entries {
        let change = match entry.kind {
            kind if !undoes => kind.as_str(),
            EntryType::Patch => "put back",
            EntryType::Create => "delete",
            EntryType::Delete => "create again",
        };
        // What would be done is in its column.
        let state = if entry.state == State::Planned { String::new() } else { entry.state.to_string() };
        let value = |value: &Option<Value>| match value {
            Some(_) if entry.target.is_secret() => "(not shown)".into(),
            value => json!(value),
        };
        let mut row =
            |name: String, [from, to]: [Value; 2]| rows.push(line(&entry.target, change, state.clone(), Some((name, from, to))));
        if entry.fields.is_empty() {
            row(String::new(), [Value::Null, Value::Null]);
        }
        for field in &entry.fields {
            let mut values = [value(&field.before), value(&field.after)];
            if undoes {
                values.reverse();
            }
            row(field.name(), values);
        }
    }
    answer(&shown(output.unwrap_or(Output::Table), true, HEAD, &rows), if undoes && !entries.is_empty() { UNDOABLE } else { 0 })
}

/// A row of an object, or of one of its fields with its values.
fn line(target: &Target, change: &str, state: String, field: Option<(String, Value, Value)>) -> Line<7> {
    let Target { api_version, kind, resource: _, namespace, name } = target;
    let mut document = vec![
        ("apiVersion", json!(api_version)),
        ("kind", json!(kind)),
        ("namespace", json!(namespace)),
        ("name", json!(name)),
        ("change", json!(change)),
        ("state", json!(state)),
    ];
    let mut of_field = [const { String::new() }; 3];
    if let Some((name, from, to)) = field {
        let cell = |value: &Value| if value.is_null() { String::new() } else { value.to_string() };
        of_field = [name.clone(), cell(&from), cell(&to)];
        document.extend([("field", json!(name)), ("from", from), ("to", to)]);
    }
    let [field, from, to] = of_field;
    let cells = [format!("{kind}/{name}"), namespace.clone().unwrap_or_default(), change.into(), field, from, to, state];
    (cells, Document(document))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::ClusterFlags;

    #[test]
    fn a_command_that_is_advised_asks_the_same_cluster_and_can_be_pasted() {
        let cluster =
            ClusterFlags { context: Some("prod".into()), kubeconfig: Some("/home/a b/it's".into()), ..ClusterFlags::default() };
        let flags = ConfigFlags { config: Some("x.yaml".into()), cluster, ..ConfigFlags::default() };

        let said = lease_flags(&flags, "txn-x", "shop");

        let others = r"--context prod --kubeconfig '/home/a b/it'\''s' --config x.yaml";
        assert_eq!(said, format!("--lease txn-x --set lease.prefix= -n shop {others}"));
    }
}
