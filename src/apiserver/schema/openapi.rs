//! The API's kinds in OpenAPI's words, for `kubectl explain`.

use serde_json::{Map, Value, json};

use super::{Field, Kind, Type};

/// The schema of `of`.
pub(in crate::apiserver) fn describe(of: &Kind) -> Value {
    let (group, version) = of.version.split_once('/').unwrap_or(("", of.version));
    let mut schema = object(of.fields);
    schema["x-kubernetes-group-version-kind"] = json!([{"group": group, "version": version, "kind": of.name}]);
    schema
}

fn object(fields: &[Field]) -> Value {
    let properties: Map<_, _> = fields.iter().map(|field| (field.name.into(), typed(&field.of))).collect();
    json!({"type": "object", "properties": properties})
}

fn typed(of: &Type) -> Value {
    match of {
        Type::Text(_) => json!({"type": "string"}),
        Type::Int32 => json!({"type": "integer", "format": "int32"}),
        Type::Int64 => json!({"type": "integer", "format": "int64"}),
        Type::Bool => json!({"type": "boolean"}),
        Type::Time(_) => json!({"type": "string", "format": "date-time"}),
        Type::TextMap => json!({"type": "object", "additionalProperties": {"type": "string"}}),
        Type::TextList => json!({"type": "array", "items": {"type": "string"}}),
        Type::ObjectList(_, fields) => json!({"type": "array", "items": object(fields)}),
        Type::Object(_, fields) => object(fields),
        Type::Anything => json!({"type": "object"}),
    }
}
