//! The options of a write: whether it is a dry run, its preconditions, and options that do not exist.
//!
//! Owns their rules. Those of a LIST or watch are in `listing`.

use serde_json::{Map, Value};

use super::{
    request::{Request, head},
    schema,
    status::{Cause, Status},
    store::{Dependents, Preconditions},
};

const LONGEST_MANAGER: usize = 128;

/// Options of a create, an update or a patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WriteOptions {
    /// Of POST.
    Create,
    /// Of PUT.
    Update,
    /// Of PATCH.
    Patch,
}

/// What a DELETE asks for.
pub(super) struct Deletion {
    /// Whether it is a dry run.
    pub(super) dry: bool,
    pub(super) must: Preconditions,
    pub(super) dependents: Dependents,
}

impl WriteOptions {
    /// The name of their kind.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Create => "CreateOptions",
            Self::Update => "UpdateOptions",
            Self::Patch => "PatchOptions",
        }
    }
}

impl Request {
    /// Whether it is a dry run.
    pub(super) fn write_options(&self, kind: WriteOptions) -> Result<bool, Status> {
        let mut causes = Vec::new();
        if kind == WriteOptions::Patch && self.query.has("force") {
            causes.push(Cause::forbidden("force", "may not be specified for non-apply patch"));
        }
        let manager = self.query.text("fieldManager");
        if manager.len() > LONGEST_MANAGER {
            causes.push(Cause::too_long("fieldManager", LONGEST_MANAGER));
        }
        for (place, letter) in manager.char_indices().filter(|(_, letter)| letter.is_control()) {
            let rule = format!("invalid character U+{:04X} (at position {place})", u32::from(letter));
            causes.push(Cause::invalid("fieldManager", &quoted(manager), &rule));
        }
        let modes: Vec<Value> = self.query.list("dryRun").iter().map(|mode| mode.as_str().into()).collect();
        check_dry_run(&modes, &mut causes);
        let asked = self.query.text("fieldValidation");
        if !matches!(asked, "" | "Ignore" | "Strict" | "Warn") {
            causes.push(Cause::unsupported("fieldValidation", asked, "\"\", \"Ignore\", \"Strict\", \"Warn\""));
        }
        if causes.is_empty() { Ok(!modes.is_empty()) } else { Err(Status::invalid_options(kind.as_str(), &causes)) }
    }

    /// Those of a DELETE, whose body replaces the query.
    pub(super) fn deletion(&self) -> Result<Deletion, Status> {
        let options = if self.body.is_empty() { self.deletion_of_query()? } else { self.deletion_of_body()? };
        let mut causes = Vec::new();
        let orphan = options.get("orphanDependents").and_then(Value::as_bool);
        let policy = options.get("propagationPolicy").and_then(Value::as_str);
        if let Some(policy) = policy.filter(|_| orphan.is_some()) {
            let rule = "orphanDependents and deletionPropagation cannot be both set";
            causes.push(Cause::invalid("propagationPolicy", &format!("{policy:?}"), rule));
        }
        let dependents = match (policy, orphan) {
            (None, None) => Dependents::AsMarked,
            (Some("Background"), _) | (None, Some(false)) => Dependents::Background,
            (Some("Foreground"), _) => Dependents::Foreground,
            (Some("Orphan"), _) | (None, Some(true)) => Dependents::Orphan,
            (Some(other), _) => {
                let known = "\"Foreground\", \"Background\", \"Orphan\", \"nil\"";
                causes.push(Cause::unsupported("propagationPolicy", other, known));
                Dependents::AsMarked
            }
        };
        let modes = options.get("dryRun").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        check_dry_run(modes, &mut causes);
        if !causes.is_empty() {
            return Err(Status::invalid_options("DeleteOptions", &causes));
        }
        let precondition = |name: &str| Some(options.get("preconditions")?.get(name)?.as_str()?.to_owned());
        let must = Preconditions { uid: precondition("uid"), version: precondition("resourceVersion") };
        Ok(Deletion { dry: !modes.is_empty(), must, dependents })
    }

    fn deletion_of_query(&self) -> Result<Value, Status> {
        let mut options = Map::new();
        options.insert("gracePeriodSeconds".into(), self.query.number("gracePeriodSeconds")?.into());
        options.insert("dryRun".into(), self.query.list("dryRun").into());
        if self.query.has("orphanDependents") {
            options.insert("orphanDependents".into(), self.query.is_true("orphanDependents").into());
        }
        if self.query.has("propagationPolicy") {
            options.insert("propagationPolicy".into(), self.query.text("propagationPolicy").into());
        }
        let given = ["uid", "resourceVersion"].map(|name| (name.to_owned(), self.query.text(name).into()));
        let preconditions: Map<_, Value> = given.into_iter().filter(|(_, value)| value != "").collect();
        options.insert("preconditions".into(), preconditions.into());
        Ok(options.into())
    }

    fn deletion_of_body(&self) -> Result<Value, Status> {
        let of = schema::DELETE_OPTIONS;
        let body = self.encoding()?.read(&self.body, &of).map_err(Status::bad_request)?.united();
        let (version, kind) = head(&body, &of).map_err(Status::bad_request)?;
        if kind != of.name {
            return Err(Status::bad_request(not_registered(&kind, &version)));
        }
        schema::decode(&body, &of).map_err(Status::bad_request)
    }
}

/// Go's message for an unknown kind.
pub(super) fn not_registered(kind: &str, version: &str) -> String {
    format!("no kind {kind:?} is registered for version {version:?} in scheme \"pkg/runtime/scheme.go:111\"")
}

/// Quotes unprintable characters as Go does.
fn quoted(text: &str) -> String {
    let letters = text.chars().map(|letter| match letter {
        letter if letter.is_control() => format!("\\x{:02x}", u32::from(letter)),
        letter => letter.to_string(),
    });
    format!("\"{}\"", letters.collect::<String>())
}

fn check_dry_run(modes: &[Value], causes: &mut Vec<Cause>) {
    if modes.iter().any(|mode| mode != "All") {
        causes.push(Cause::unsupported_list("dryRun", modes, "\"All\""));
    }
}
