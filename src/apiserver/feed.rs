//! Shows the history to a watch, as one watcher sees it.
//!
//! Pure; `server` sends the lines.

use serde_json::{Value, json};

use super::{
    register::{Change, Register},
    selector::Selector,
    status::{GROUP, Status},
};

/// A watcher's view of the register, and how far it has got.
#[derive(Clone, Debug)]
pub(super) struct Feed {
    /// `namespace/`, or nothing for all.
    pub(super) prefix: String,
    pub(super) selector: Selector,
    /// The version from which it continues; none to begin with what is there.
    pub(super) after: Option<u64>,
    pub(super) bookmarks: bool,
}

/// The watch cannot continue; this is its last line.
pub(super) struct Ended(pub(super) String);

impl Feed {
    /// The lines since the last call.
    ///
    /// # Errors
    /// [`Ended`] if some were compacted.
    pub(super) fn advance(&mut self, register: &Register) -> Result<Vec<String>, Ended> {
        let Some(after) = self.after else {
            self.after = Some(register.version());
            let there = register.list(&self.prefix).filter(|lease| self.selector.matches(lease));
            let mut lines: Vec<_> = there.map(|lease| line("ADDED", lease)).collect();
            lines.extend(self.bookmarks.then(|| self.bookmark(true)));
            return Ok(lines);
        };
        let changes = register.changes_since(after).map_err(|error| Ended(line("ERROR", &Status::of(error, "").to_json())))?;
        let lines = changes.filter_map(|change| self.event(change)).collect();
        self.after = Some(after.max(register.version()));
        Ok(lines)
    }

    /// BOOKMARK: nothing is missing up to here. The one after what was there at the beginning says so.
    pub(super) fn bookmark(&self, initial_end: bool) -> String {
        let mut metadata = json!({"resourceVersion": self.after.unwrap_or_default().to_string()});
        if initial_end {
            metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        line("BOOKMARK", &json!({"kind": "Lease", "apiVersion": format!("{GROUP}/v1"), "metadata": metadata, "spec": {}}))
    }

    /// A Lease that begins or stops to match is created or deleted for this watcher.
    fn event(&self, change: &Change) -> Option<String> {
        let seen = |lease: &&Value| {
            let namespace = lease["metadata"]["namespace"].as_str().unwrap_or_default();
            (self.prefix.is_empty() || self.prefix.strip_suffix('/') == Some(namespace)) && self.selector.matches(lease)
        };
        match (change.before.as_deref().filter(seen), change.after.as_deref().filter(seen)) {
            (None, None) => None,
            (None, Some(after)) => Some(line("ADDED", after)),
            (Some(_), Some(after)) => Some(line("MODIFIED", after)),
            (Some(_), None) => change.deleted().map(|gone| line("DELETED", &gone)),
        }
    }
}

fn line(kind: &str, object: &Value) -> String {
    json!({"type": kind, "object": object}).to_string() + "\n"
}
