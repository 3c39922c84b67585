//! The list of devices.

use std::io::Write;

use anyhow::Result;
use tabled::builder::Builder;
use tabled::settings::Style;

use crate::fabric::{PortFacts, ports};

/// Prints what there is to measure.
pub(super) fn devices(out: &mut dyn Write) -> Result<()> {
    let mut table = Builder::default();
    table.push_record(["device", "port", "state", "link", "Gb/s", "MTU", "NUMA", "from", "GIDs"]);
    for PortFacts { state, facts } in ports()? {
        let gids = facts
            .gids
            .iter()
            .map(|gid| format!("{} {} ({}{})", gid.index, gid.gid, gid.kind, interface(&gid.interface)));
        let gigabits = facts.gigabits.map_or_else(|| "-".to_owned(), |gigabits| format!("{gigabits:.0}"));
        let node = facts.numa_node.map_or_else(|| "-".to_owned(), |node| node.to_string());
        table.push_record([
            facts.device,
            facts.port.to_string(),
            state,
            facts.link_layer,
            gigabits,
            facts.mtu.to_string(),
            node,
            facts.provider,
            gids.collect::<Vec<_>>().join("\n"),
        ]);
    }
    writeln!(out, "{}", table.build().with(Style::blank()))?;
    Ok(())
}

fn interface(name: &str) -> String {
    if name.is_empty() { String::new() } else { format!(", {name}") }
}
