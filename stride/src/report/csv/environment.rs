//! Writes the environment as CSV columns. Each member of the environment's JSON has a column, which is named by the
//! path of the member with dots. The order is that of the schema (`schema/stride-perf.schema.json`).
//!
//! All tests have the same columns. If a member is null or absent, its field is empty. A member may be an object in
//! some tests and a word in others. Each of these forms then has columns of its own, and the columns of the other form
//! are empty. For example, either `client.memory` contains `host`, or `client.memory.cuda` contains the GPU. A list is
//! written as JSON.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

use crate::report::Environment;

/// The schema of the JSON documents.
const SCHEMA: &str = include_str!("../../../schema/stride-perf.schema.json");

/// A value in the schema. Unlike [`Value`], this type keeps the order of members.
#[derive(Debug)]
enum Node {
    Object(Vec<(String, Node)>),
    List(Vec<Node>),
    Text(String),
    Other,
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;

        impl<'de> Visitor<'de> for Reader {
            type Value = Node;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("JSON")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Node, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Node::Object(members))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Node, A::Error> {
                let mut values = Vec::new();
                while let Some(value) = list.next_element()? {
                    values.push(value);
                }
                Ok(Node::List(values))
            }

            fn visit_str<E>(self, text: &str) -> Result<Node, E> {
                Ok(Node::Text(text.to_owned()))
            }

            fn visit_unit<E>(self) -> Result<Node, E> {
                Ok(Node::Other)
            }

            fn visit_bool<E>(self, _: bool) -> Result<Node, E> {
                Ok(Node::Other)
            }

            fn visit_i64<E>(self, _: i64) -> Result<Node, E> {
                Ok(Node::Other)
            }

            fn visit_u64<E>(self, _: u64) -> Result<Node, E> {
                Ok(Node::Other)
            }

            fn visit_f64<E>(self, _: f64) -> Result<Node, E> {
                Ok(Node::Other)
            }
        }

        deserializer.deserialize_any(Reader)
    }
}

impl Node {
    fn member(&self, name: &str) -> Option<&Self> {
        let Self::Object(members) = self else { return None };
        members.iter().find(|(member, _)| member == name).map(|(_, value)| value)
    }

    /// Adds the names of the leaves below a part of the schema, each of them once. A list is a leaf.
    fn leaves(&self, part: &Self, path: &str, found: &mut Vec<String>) {
        if let Some(Self::Text(reference)) = part.member("$ref") {
            let definition = reference.strip_prefix("#/$defs/").and_then(|name| self.member("$defs")?.member(name));
            return definition.into_iter().for_each(|part| self.leaves(part, path, found));
        }
        let mut has_forms = false;
        for form in ["anyOf", "oneOf", "allOf"].into_iter().filter_map(|word| part.member(word)) {
            let Self::List(forms) = form else { continue };
            has_forms = true;
            forms.iter().for_each(|form| self.leaves(form, path, found));
        }
        if let Some(Self::Object(members)) = part.member("properties") {
            for (member, part) in members {
                let dot = if path.is_empty() { "" } else { "." };
                self.leaves(part, &format!("{path}{dot}{member}"), found);
            }
        } else if !has_forms
            && !matches!(part.member("type"), Some(Self::Text(kind)) if kind == "null")
            && !found.iter().any(|other| other == path)
        {
            found.push(path.to_owned());
        }
    }
}

/// Returns the names of all columns, in order.
fn names() -> Vec<String> {
    let mut found = Vec::new();
    // The schema is valid, which a test checks.
    let schema: Node = serde_json::from_str(SCHEMA).unwrap_or(Node::Other);
    if let Some(environment) = schema.member("$defs").and_then(|definitions| definitions.member("environment")) {
        schema.leaves(environment, "", &mut found);
    }
    found
}

/// The columns of the environment, each with its name and its value.
#[derive(Debug)]
pub(super) struct Columns(Vec<(String, String)>);

impl Columns {
    pub(super) fn new(environment: &Environment) -> Self {
        // If a value cannot be represented in JSON, writing the JSON file reports that.
        let whole = serde_json::to_value(environment).unwrap_or_default();
        let value = |name: String| {
            let pointer = format!("/{}", name.replace('.', "/"));
            let value = whole.pointer(&pointer).map_or_else(String::new, text);
            (name, value)
        };
        Self(names().into_iter().map(value).collect())
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| name.as_str())
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(_, value)| value.as_str())
    }
}

fn text(value: &Value) -> String {
    match value {
        // Each member of an object has a column of its own.
        Value::Null | Value::Object(_) => String::new(),
        Value::String(text) => text.clone(),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::endpoint::{GpuInfo, Registration};
    use crate::plan::{Measure, Memory, Semantics};
    use crate::report::sample;

    #[test]
    fn environment_members_have_columns() {
        fn members(value: &Value, path: &str, found: &mut Vec<String>) {
            let Some(object) = value.as_object() else { return found.push(path.to_owned()) };
            // Null members are left out, because some members are null in one test and objects in another.
            for (name, value) in object.iter().filter(|(_, value)| !value.is_null()) {
                let dot = if path.is_empty() { "" } else { "." };
                members(value, &format!("{path}{dot}{name}"), found);
            }
        }
        let names = names();
        assert!(names.len() > 100 && names.iter().any(|name| name == "client.gpu.pci_address"), "{names:?}");
        let distinct: BTreeSet<&String> = names.iter().collect();
        assert_eq!(distinct.len(), names.len(), "each once");
        for measure in [Measure::Bandwidth, Measure::Latency(Semantics::Ack)] {
            let mut found = Vec::new();
            members(&serde_json::to_value(sample::environment(measure)).unwrap(), "", &mut found);
            let missing: Vec<_> = found.iter().filter(|name| !distinct.contains(name)).collect();
            assert!(missing.is_empty(), "{missing:?}");
        }
    }

    #[test]
    fn word_and_object_have_separate_columns() {
        let mut environment = sample::environment(Measure::Latency(Semantics::Ack));
        let of = |environment: &Environment, name: &str| {
            let Columns(all) = Columns::new(environment);
            all.into_iter().find(|(column, _)| column == name).expect("the column exists").1
        };
        let found = ["client.memory", "client.memory.cuda", "client.gpu.name", "client.registration", "plan.measure"];
        assert_eq!(found.map(|name| of(&environment, name)), ["host", "", "", "", ""]);
        let name = "A GPU, \"one\"".to_owned();
        let gpu = GpuInfo { index: 0, name, pci_address: "0000:17:00.0".to_owned(), numa_node: None };
        let client = &mut environment.client;
        (client.memory, client.gpu) = (Memory::Cuda("0".to_owned()), Some(gpu));
        client.registration = Some(Registration::DmaBuf);
        assert_eq!(found.map(|name| of(&environment, name)), ["", "0", "A GPU, \"one\"", "dma_buf", ""]);
        assert_eq!(of(&environment, "plan.measure.latency"), "ack");
        assert_eq!(of(&environment, "client.gpu.numa_node"), "");
        assert_eq!(of(&environment, "client.is_bound_to_node"), "false");
        assert!(of(&environment, "client.gids").starts_with(r#"[{"gid":"::ffff:10.0.0.1","index":3"#));
    }
}
