//! The form in which a client wants objects: whole, only their metadata, or as a table.
//!
//! Owns the Accept header and the forms of the answers.

use serde_json::{Map, Value, json};

use super::{
    lease::Lease,
    request::Request,
    status::{GROUP, Status},
    table,
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
    Table(&'static str),
}

impl Request {
    /// The first supported form in the Accept header.
    pub(super) fn view(&self) -> Result<View, Status> {
        self.accept.split(',').find_map(view).ok_or_else(Status::not_acceptable)
    }
}

fn view(accepted: &str) -> Option<View> {
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
        "Table" => Some(View::Table(version)),
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
            Self::Table(version) => table::table([lease], json!({"resourceVersion": lease.version()}), version, wall),
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
            Self::Table(version) => return table::table(leases, metadata, version, wall),
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
        let first = |accept: &str| accept.split(',').find_map(view);

        assert_eq!(first("application/yaml,application/json;as=Table;v=v1;g=meta.k8s.io"), Some(View::Table("meta.k8s.io/v1")));
        assert_eq!(first("application/json;as=Table;v=v2;g=meta.k8s.io, application/json"), Some(View::Whole));
        assert_eq!(first("application/json;as=Table"), None);
        assert_eq!(first("text/plain"), None);
    }
}
