//! The list of devices.

use std::io::Write;

use anyhow::Result;
use tabled::builder::Builder;
use tabled::settings::Style;

use crate::fabric::{Found, GpuFact, Gpus, NearGpus, PortFacts, gpus, ports};

/// Prints what there is to measure.
pub(super) fn devices(out: &mut dyn Write) -> Result<()> {
    let gpus = gpus();
    let mut table = Builder::default();
    table.push_record([
        "device",
        "port",
        "state",
        "usable",
        "link",
        "Gb/s",
        "MTU",
        "NUMA",
        "from",
        "GPUs near",
        "GIDs",
    ]);
    let Found { ports, failed } = ports(&gpus)?;
    for PortFacts { state, obstacle, facts, gpus } in ports {
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
            obstacle.map_or_else(|| "yes".to_owned(), |why| format!("no: {why}")),
            facts.link_layer,
            gigabits,
            facts.mtu.to_string(),
            node,
            facts.provider,
            gpus.as_ref().map_or_else(|| "-".to_owned(), near),
            gids.collect::<Vec<_>>().join("\n"),
        ]);
    }
    writeln!(out, "{}\n", table.build().with(Style::blank()))?;
    failed.iter().try_for_each(|why| writeln!(out, "no use: {why}"))?;
    match gpus {
        Gpus::Some(gpus) => print_gpus(out, &gpus),
        Gpus::None(why) => Ok(writeln!(out, "no GPU: {why}")?),
    }
}

fn print_gpus(out: &mut dyn Write, gpus: &[GpuFact]) -> Result<()> {
    let mut table = Builder::default();
    table.push_record(["GPU", "name", "PCI address", "NUMA"]);
    for GpuFact { index, name, pci_address, numa_node } in gpus {
        let node = numa_node.map_or_else(|| "-".to_owned(), |node| node.to_string());
        table.push_record([index.to_string(), name.clone(), pci_address.clone(), node]);
    }
    Ok(writeln!(out, "{}", table.build().with(Style::blank()))?)
}

fn near(NearGpus { nearness, gpus }: &NearGpus) -> String {
    let gpus: Vec<_> = gpus.iter().map(u32::to_string).collect();
    format!("{} ({nearness})", gpus.join(", "))
}

fn interface(name: &str) -> String {
    if name.is_empty() { String::new() } else { format!(", {name}") }
}
