//! JSON as it was written, duplicate fields included.
//!
//! Owns how Go reads such a document into a struct; which fields there are is up to `schema`.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, SeqAccess, Visitor},
};
use serde_json::{Map, Value};

/// See the module.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Document {
    /// Its fields in order, duplicates included.
    Object(Vec<(String, Self)>),
    /// Its items.
    Array(Vec<Self>),
    /// Neither.
    Plain(Value),
}

impl Document {
    /// The value with duplicate fields resolved: objects are merged; of anything else the last one counts.
    pub(super) fn united(&self) -> Value {
        match self {
            Self::Object(fields) => {
                let mut object = Map::new().into();
                for (name, value) in fields {
                    unite(&mut object, Map::from_iter([(name.clone(), value.united())]).into());
                }
                object
            }
            Self::Array(items) => items.iter().map(Self::united).collect(),
            Self::Plain(value) => value.clone(),
        }
    }
}

fn unite(there: &mut Value, more: Value) {
    match (there, more) {
        (Value::Object(there), Value::Object(more)) => {
            for (name, value) in more {
                match there.get_mut(&name) {
                    Some(there) => unite(there, value),
                    None => drop(there.insert(name, value)),
                }
            }
        }
        (there, more) => *there = more,
    }
}

impl From<&Value> for Document {
    fn from(value: &Value) -> Self {
        match value {
            Value::Object(fields) => Self::Object(fields.iter().map(|(name, value)| (name.clone(), value.into())).collect()),
            Value::Array(items) => Self::Array(items.iter().map(Into::into).collect()),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Self::Plain(value.clone()),
        }
    }
}

impl<'de> Deserialize<'de> for Document {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Reader)
    }
}

struct Reader;

impl<'de> Visitor<'de> for Reader {
    type Value = Document;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Document, A::Error> {
        let mut fields = Vec::new();
        while let Some(field) = map.next_entry()? {
            fields.push(field);
        }
        Ok(Document::Object(fields))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Document, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = sequence.next_element()? {
            items.push(item);
        }
        Ok(Document::Array(items))
    }

    fn visit_unit<E>(self) -> Result<Document, E> {
        Ok(Document::Plain(Value::Null))
    }

    fn visit_bool<E>(self, value: bool) -> Result<Document, E> {
        Ok(Document::Plain(value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Document, E> {
        Ok(Document::Plain(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Document, E> {
        Ok(Document::Plain(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Document, E> {
        Ok(Document::Plain(value.into()))
    }

    fn visit_str<E>(self, value: &str) -> Result<Document, E> {
        Ok(Document::Plain(value.into()))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn objects_that_stand_twice_are_united_and_the_last_of_all_else_counts() {
        let text = r#"{"a":{"b":1,"c":[1,2]},"a":{"c":[3],"d":null},"e":1.5,"e":"x"}"#;

        let document: Document = serde_json::from_str(text).unwrap();

        assert_eq!(document.united(), json!({"a": {"b": 1, "c": [3], "d": null}, "e": "x"}));
    }
}
