//! The form in which a client wants objects: whole, only their metadata, or as a table.
//!
//! Owns the Accept header and the forms of the answers.

use serde_json::{Map, Value, json};

use super::{
    lease::Lease,
    request::Request,
    status::{GROUP, Status},
    table::{self, Include},
};

/// See the module; forms other than the objects themselves name their version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum View {
    /// Unchanged.
    Whole,
    /// An object's metadata.
    Metadata(&'static str),
    /// A list's metadata.
    MetadataList(&'static str),
    /// As rows.
    Table(table::Form),
}

impl Request {
    /// The supported form in the Accept header that it prefers.
    pub(super) fn view(&self) -> Result<View, Status> {
        let include = Include::parse(self.query.text("includeObject")).unwrap_or(Include::Metadata);
        preferred(&self.accept).into_iter().find_map(|clause| view(clause, include)).ok_or_else(Status::not_acceptable)
    }

    /// 400 if a table cannot be made as requested. The real server finds out last, when a write has been carried out.
    pub(super) fn check_rows(&self, view: View) -> Result<View, Status> {
        let asked = self.query.text("includeObject");
        match view {
            View::Table(_) if Include::parse(asked).is_none() => {
                let rule = "must be 'Metadata', 'Object', 'None', or empty";
                let why = format!("includeObject: Invalid value: {asked:?}: {rule}");
                Err(Status::bad_request(format!("Unable to convert to Table as requested: {why}")))
            }
            View::Whole | View::Metadata(_) | View::MetadataList(_) | View::Table(_) => Ok(view),
        }
    }
}

/// The clauses of an Accept header, sorted as by Go's library. Its comparison is no strict order, so that it matters how the clauses
/// are sorted: by insertion.
fn preferred(accept: &str) -> Vec<&str> {
    let mut clauses: Vec<&str> = accept.split(',').map(str::trim).collect();
    for last in 1..clauses.len() {
        for place in (1..=last).rev() {
            match clauses.get_mut(place - 1..=place) {
                Some([before, after]) if outranks(after, before) => std::mem::swap(before, after),
                Some(_) | None => break,
            }
        }
    }
    clauses
}

fn outranks(one: &str, other: &str) -> bool {
    let less_open = |any: fn(&str) -> bool| !any(one) && any(other);
    let has_any_type = |clause: &str| clause.starts_with("*/");
    let has_any_subtype = |clause: &str| clause.split(';').next().is_some_and(|media| media.trim().ends_with("/*"));
    quality(one) > quality(other) || less_open(has_any_type) || less_open(has_any_subtype)
}

/// 1 unless stated, and 0 if that is no number.
fn quality(clause: &str) -> f64 {
    let stated = clause.split(';').skip(1).find_map(|parameter| parameter.trim().strip_prefix("q="));
    stated.map_or(1.0, |text| text.parse().unwrap_or_default())
}

fn view(accepted: &str, include: Include) -> Option<View> {
    let mut parts = accepted.split(';').map(str::trim);
    if !matches!(parts.next()?, "" | "*/*" | "application/*" | "application/json") {
        return None;
    }
    let parameters: Vec<(&str, &str)> = parts.filter_map(|part| part.split_once('=')).collect();
    let parameter = |name: &str| parameters.iter().find(|(there, _)| *there == name).map(|(_, value)| *value);
    let Some(form) = parameter("as") else { return Some(View::Whole) };
    let version = match (parameter("g")?, parameter("v")?) {
        ("meta.k8s.io", "v1") => "meta.k8s.io/v1",
        ("meta.k8s.io", "v1beta1") => "meta.k8s.io/v1beta1",
        _ => return None,
    };
    match form {
        "PartialObjectMetadata" => Some(View::Metadata(version)),
        "PartialObjectMetadataList" => Some(View::MetadataList(version)),
        "Table" => Some(View::Table(table::Form { version, include })),
        _ => None,
    }
}

impl View {
    /// 406 if a single object cannot take this form.
    pub(super) fn check_one(self) -> Result<Self, Status> {
        match self {
            Self::Whole | Self::Metadata(_) | Self::Table(_) => Ok(self),
            Self::MetadataList(_) => Err(Status::other_shape("PartialObjectMetadataList", "not a list (*coordination.Lease)")),
        }
    }

    /// 406 if a list cannot take this form.
    pub(super) fn check_list(self) -> Result<Self, Status> {
        match self {
            Self::Whole | Self::MetadataList(_) | Self::Table(_) => Ok(self),
            Self::Metadata(_) => Err(Status::other_shape("PartialObjectMetadata", "a list (*coordination.LeaseList)")),
        }
    }

    /// One Lease; ages are as of `wall`.
    pub(super) fn one(self, lease: &Lease, wall: i64) -> Value {
        match self {
            Self::Whole => lease.json().clone(),
            Self::Metadata(version) | Self::MetadataList(version) => partial(lease, version),
            Self::Table(form) => table::table([lease], json!({"resourceVersion": lease.version()}), form, wall),
        }
    }

    /// A list of them with this metadata.
    pub(super) fn list(self, leases: Vec<&Lease>, metadata: Value, wall: i64) -> Value {
        let (kind, version, items): (_, String, Vec<Value>) = match self {
            Self::Whole => ("LeaseList", format!("{GROUP}/v1"), leases.into_iter().map(without_type).collect()),
            Self::Metadata(version) | Self::MetadataList(version) => {
                let items = leases.into_iter().map(|lease| partial(lease, version));
                ("PartialObjectMetadataList", version.into(), items.collect())
            }
            Self::Table(form) => return table::table(leases, metadata, form, wall),
        };
        json!({"kind": kind, "apiVersion": version, "metadata": metadata, "items": items})
    }
}

/// Only the metadata of a Lease.
pub(super) fn partial(lease: &Lease, version: &str) -> Value {
    let metadata = lease.json().get("metadata").cloned().unwrap_or_default();
    json!({"kind": "PartialObjectMetadata", "apiVersion": version, "metadata": metadata})
}

/// Items of a list do not state their type.
fn without_type(lease: &Lease) -> Value {
    let fields = lease.json().as_object().cloned().unwrap_or_default();
    let fields: Map<_, _> = fields.into_iter().filter(|(name, _)| name != "kind" && name != "apiVersion").collect();
    fields.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_spoken_here_is_passed_over() {
        let first = |accept: &str| preferred(accept).into_iter().find_map(|clause| view(clause, Include::Metadata));
        let table = View::Table(table::Form { version: "meta.k8s.io/v1", include: Include::Metadata });

        assert_eq!(first("application/yaml,application/json;as=Table;v=v1;g=meta.k8s.io"), Some(table));
        assert_eq!(first("application/json;as=Table;v=v2;g=meta.k8s.io, application/json"), Some(View::Whole));
        assert_eq!(first("application/json;as=Table"), None);
        assert_eq!(first("text/plain"), None);
    }
}
