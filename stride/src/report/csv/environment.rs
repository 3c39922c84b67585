//! The environment as columns: each member of its JSON, as `schema/stride-perf.schema.json` has them, under its way there, with dots.
//!
//! Which columns there are does not depend on the test. What is null, or not there, is empty. So is a member that is an object here and a word
//! there (`client.memory` is `host`, or `client.memory.cuda` has the GPU) where it is the other. A list is JSON.

use serde_json::Value;

use crate::report::Environment;

/// Members of the whole.
const HEAD: [&str; 4] = ["time", "version", "command_line", "exchange"];

/// Of `plan`.
const PLAN: [&str; 39] = [
    "operation",
    "measure",
    "measure.latency",
    "transport",
    "sizes_bytes",
    "amount.messages.count",
    "amount.messages.warm_up",
    "amount.time.time_seconds",
    "amount.time.warm_up_seconds",
    "is_endless",
    "queue_pairs",
    "threads",
    "tx_depth",
    "rx_depth",
    "post_list",
    "receive_list",
    "cq_moderation",
    "is_each_large_signaled",
    "is_bidirectional",
    "is_reversed",
    "inline_bytes",
    "mtu_bytes",
    "qp_timeout",
    "service_level",
    "traffic_class",
    "flow_label",
    "is_relaxed",
    "is_on_demand",
    "has_own_regions",
    "sleeps_on_events",
    "is_validated",
    "timeout_seconds",
    "rate_limit_gigabits_per_second",
    "burst_size",
    "gap_seconds",
    "interval_seconds",
    "counters",
    "uses_rdma_cm",
    "address",
];

/// Of `plan.client` and `plan.server`.
const PLACE: [&str; 11] = [
    "device",
    "port",
    "gid_index",
    "pkey_index",
    "dlid",
    "memory",
    "memory.cuda",
    "cpus",
    "gpu_registration",
    "is_bound",
    "others",
];

/// Of `path`.
const PATH: [&str; 4] = ["client_gid", "server_gid", "mtu_bytes", "others"];

/// Of `client` and `server`.
const SIDE: [&str; 36] = [
    "version",
    "host",
    "kernel",
    "machine",
    "cpu_model",
    "cpu_governor",
    "device",
    "provider",
    "firmware",
    "vendor_id",
    "vendor_part_id",
    "port",
    "link_layer",
    "gigabits_per_second",
    "mtu_bytes",
    "longest_message_bytes",
    "lid",
    "dlid",
    "partition.index",
    "partition.key",
    "gids",
    "memory",
    "memory.cuda",
    "gpu.index",
    "gpu.name",
    "gpu.pci_address",
    "gpu.numa_node",
    "registration",
    "numa_node",
    "cpus",
    "thread_nodes",
    "near_cpus",
    "is_bound_to_node",
    "reads",
    "inline_bytes",
    "others",
];

/// All of them, in their order.
fn names() -> Vec<String> {
    let parts: [(&str, &[&str]); 7] = [
        ("", &HEAD),
        ("plan.", &PLAN),
        ("plan.client.", &PLACE),
        ("plan.server.", &PLACE),
        ("path.", &PATH),
        ("client.", &SIDE),
        ("server.", &SIDE),
    ];
    parts.iter().flat_map(|(start, names)| names.iter().map(move |name| format!("{start}{name}"))).collect()
}

/// The environment of a test.
#[derive(Debug)]
pub(super) struct Columns(Vec<(String, String)>);

impl Columns {
    pub(super) fn new(environment: &Environment) -> Self {
        // What cannot be written as JSON would have failed where that is written too.
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
        // The members of an object have columns of their own.
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

    /// The leaves below a part of the schema; a list is one, whatever is in it.
    fn leaves(schema: &Value, part: &Value, name: &str, found: &mut BTreeSet<String>) {
        if let Some(other) = part["$ref"].as_str() {
            let other = other.strip_prefix("#/$defs/").expect("a definition of the schema");
            return leaves(schema, &schema["$defs"][other], name, found);
        }
        let parts = ["anyOf", "oneOf", "allOf"].into_iter().filter_map(|word| part[word].as_array());
        let parts: Vec<_> = parts.flatten().collect();
        parts.iter().for_each(|part| leaves(schema, part, name, found));
        if let Some(members) = part["properties"].as_object() {
            for (member, part) in members {
                let dot = if name.is_empty() { "" } else { "." };
                leaves(schema, part, &format!("{name}{dot}{member}"), found);
            }
        } else if parts.is_empty() && part["type"] != "null" {
            // Members of any name would be no columns.
            assert_ne!(part["type"], "object", "{name}");
            found.insert(name.to_owned());
        }
    }

    #[test]
    fn every_leaf_of_the_schema_has_a_column() {
        let schema: Value = serde_json::from_str(include_str!("../../../schema/stride-perf.schema.json")).unwrap();
        let mut due = BTreeSet::new();
        leaves(&schema, &schema["$defs"]["environment"], "", &mut due);
        assert!(due.len() > 100 && due.contains("client.gpu.pci_address"), "{due:?}");
        let names = names();
        let found: BTreeSet<String> = names.iter().cloned().collect();
        assert_eq!(found, due);
        assert_eq!(found.len(), names.len(), "each once");
    }

    #[test]
    fn what_is_a_word_or_an_object_is_in_the_column_of_either() {
        let mut environment = sample::environment(Measure::Latency(Semantics::Ack));
        let of = |environment: &Environment, name: &str| {
            let Columns(all) = Columns::new(environment);
            all.into_iter().find(|(column, _)| column == name).expect("there is such a column").1
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
