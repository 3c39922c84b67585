//! The command `devices`.

use std::fmt;
use std::io::Write;

use crate::endpoint::{Abilities, DevicePort, Found, GpuInfo, Gpus, NearGpus, gpus, ports};
use crate::plan::{Operation, Transport};
use anyhow::Result;

/// A table with aligned columns. Each cell may consist of several lines.
#[derive(Default)]
struct Grid(Vec<Vec<String>>);

impl Grid {
    fn push<S: Into<String>>(&mut self, cells: impl IntoIterator<Item = S>) {
        self.0.push(cells.into_iter().map(Into::into).collect());
    }
}

impl fmt::Display for Grid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = self.0.iter().map(Vec::len).max().unwrap_or(0);
        let lines =
            |column: usize| self.0.iter().filter_map(move |cells| cells.get(column)).flat_map(|cell| cell.lines());
        let widths: Vec<_> =
            (0..columns).map(|column| lines(column).map(|line| line.chars().count()).max().unwrap_or(0)).collect();
        let mut texts = Vec::new();
        for cells in &self.0 {
            let height = cells.iter().map(|cell| cell.lines().count()).max().unwrap_or(0);
            for at in 0..height {
                let parts = cells.iter().zip(&widths);
                let parts = parts.map(|(cell, width)| format!("{:<width$}", cell.lines().nth(at).unwrap_or("")));
                texts.push(format!(" {}", parts.collect::<Vec<_>>().join("   ")).trim_end().to_owned());
            }
        }
        f.write_str(&texts.join("\n"))
    }
}

/// Prints all devices with their ports and GIDs, and all GPUs.
pub(super) fn devices(out: &mut dyn Write) -> Result<()> {
    let gpus = gpus();
    let mut table = Grid::default();
    table.push(["device", "port", "state", "usable", "link", "Gb/s", "MTU", "NUMA", "from", "GPUs near", "GIDs"]);
    let Found { ports, failed, abilities } = ports(&gpus)?;
    for DevicePort { state, obstacle, port_info, gpus } in ports {
        let gids = port_info
            .gids
            .iter()
            .map(|gid| format!("{} {} ({}{})", gid.index, gid.gid, gid.kind, interface(&gid.interface)));
        let gigabits = port_info.gigabits.map_or_else(|| "-".to_owned(), |gigabits| format!("{gigabits:.0}"));
        let node = port_info.numa_node.map_or_else(|| "-".to_owned(), |node| node.to_string());
        table.push([
            port_info.device,
            port_info.port.to_string(),
            state,
            obstacle.map_or_else(|| "yes".to_owned(), |why| format!("no: {why}")),
            port_info.link_layer,
            gigabits,
            port_info.mtu.to_string(),
            node,
            port_info.provider,
            gpus.as_ref().map_or_else(|| "-".to_owned(), near),
            gids.collect::<Vec<_>>().join("\n"),
        ]);
    }
    writeln!(out, "{}\n", table)?;
    failed.iter().try_for_each(|why| writeln!(out, "unusable: {why}"))?;
    if !abilities.is_empty() {
        print_abilities(out, &abilities)?;
    }
    match gpus {
        Gpus::Some(gpus) => print_gpus(out, &gpus),
        Gpus::None(why) => Ok(writeln!(out, "no GPU: {why}")?),
    }
}

/// Prints the capabilities of each device.
fn print_abilities(out: &mut dyn Write, all: &[(String, Result<Abilities, String>)]) -> Result<()> {
    let mut table = Grid::default();
    table.push(["device", "transports", "atomics", "reads", "on-demand paging", "completions", "inline bytes"]);
    for (device, can) in all.iter().filter_map(|(device, can)| Some((device, can.as_ref().ok()?))) {
        let yes = |is: bool| if is { "yes" } else { "no" }.to_owned();
        let [asks, answers] = can.reads;
        table.push([
            device.clone(),
            transports(can),
            yes(can.has_atomics),
            format!("{asks} out, {answers} in"),
            paging(can),
            if can.has_extended_queues { "extended" } else { "basic" }.to_owned(),
            can.inline.map_or_else(|| "-".to_owned(), |inline| inline.to_string()),
        ]);
    }
    writeln!(out, "{}\n", table)?;
    for (device, can) in all {
        match can {
            Ok(can) => can.refusals.iter().try_for_each(|(transport, why)| {
                writeln!(out, "{device} cannot create a queue pair for {transport}: {why}")
            })?,
            Err(why) => writeln!(out, "cannot query {device}: {why}")?,
        }
    }
    Ok(writeln!(
        out,
        "RC and XRC support all operations, and atomics if the device does; UC supports writes and sends; UD supports \
         sends. Test them with `stride-perf self-test -d DEVICE`.\n"
    )?)
}

/// Lists the transports that a device supports. The transport of the vendor comes last.
fn transports(can: &Abilities) -> String {
    let all = can.transports.iter().map(ToString::to_string);
    let all: Vec<_> = all.chain(can.vendors.map(|transport| format!("{transport} (not tried)"))).collect();
    if all.is_empty() { "none".to_owned() } else { all.join(", ") }
}

/// Lists the transports that support on-demand paging. If a transport supports it for some operations only, these are
/// listed too.
fn paging(can: &Abilities) -> String {
    let of = |(transport, operations): &(Transport, Vec<Operation>)| {
        let word =
            |operation: &Operation| if operation.is_atomic() { "atomic".to_owned() } else { operation.to_string() };
        let is_all = ALL.iter().all(|operation| operations.contains(operation) || !transport.has(*operation));
        let words: Vec<_> = operations.iter().map(word).collect();
        if is_all { transport.to_string() } else { format!("{transport} ({})", words.join(", ")) }
    };
    let all: Vec<_> = can.on_demand.iter().map(of).collect();
    if all.is_empty() { "no".to_owned() } else { all.join("\n") }
}

/// The operations for which devices report on-demand paging separately.
const ALL: [Operation; 4] = [Operation::Write, Operation::Read, Operation::Send, Operation::FetchAdd];

fn print_gpus(out: &mut dyn Write, gpus: &[GpuInfo]) -> Result<()> {
    let mut table = Grid::default();
    table.push(["GPU", "name", "PCI address", "NUMA"]);
    for GpuInfo { index, name, pci_address, numa_node } in gpus {
        let node = numa_node.map_or_else(|| "-".to_owned(), |node| node.to_string());
        table.push([index.to_string(), name.clone(), pci_address.clone(), node]);
    }
    Ok(writeln!(out, "{}", table)?)
}

fn near(NearGpus { nearness, gpus }: &NearGpus) -> String {
    let gpus: Vec<_> = gpus.iter().map(u32::to_string).collect();
    format!("{} ({nearness})", gpus.join(", "))
}

fn interface(name: &str) -> String {
    if name.is_empty() { String::new() } else { format!(", {name}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn abilities() -> Abilities {
        Abilities {
            transports: vec![Transport::Rc, Transport::Ud],
            refusals: Vec::new(),
            vendors: None,
            reads: [16, 8],
            has_atomics: true,
            on_demand: Vec::new(),
            has_extended_queues: true,
            inline: Some(512),
        }
    }

    fn printed(all: &[(&str, Result<Abilities, &str>)]) -> String {
        let all: Vec<_> =
            all.iter().map(|(device, can)| ((*device).to_owned(), can.clone().map_err(str::to_owned))).collect();
        let mut out = Vec::new();
        print_abilities(&mut out, &all).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn capabilities_have_a_line_per_device() {
        let one = abilities();
        let refusals = vec![(Transport::Xrc, "ibv_open_xrcd: ENOMEM".to_owned())];
        let mlx5 = Abilities { vendors: Some(Transport::Dc), has_extended_queues: false, refusals, ..abilities() };
        let none = Abilities { transports: Vec::new(), has_atomics: false, inline: None, ..abilities() };
        let text = printed(&[("a", Ok(one)), ("b", Ok(mlx5)), ("c", Ok(none)), ("d", Err("EACCES"))]);
        let words: Vec<Vec<&str>> = text
            .lines()
            .map(|line| line.split("  ").map(str::trim).filter(|word| !word.is_empty()).collect())
            .collect();
        assert_eq!(words[1], ["a", "RC, UD", "yes", "16 out, 8 in", "no", "extended", "512"]);
        assert_eq!(words[2], ["b", "RC, UD, DC (not tried)", "yes", "16 out, 8 in", "no", "basic", "512"]);
        assert_eq!(words[3], ["c", "none", "no", "16 out, 8 in", "no", "extended", "-"]);
        assert!(text.contains("b cannot create a queue pair for XRC: ibv_open_xrcd: ENOMEM\n"), "{text}");
        assert!(text.contains("cannot query d: EACCES\n") && text.contains("self-test"), "{text}");
    }

    #[test]
    fn partial_paging_lists_its_operations() {
        let on_demand = vec![
            (Transport::Rc, ALL.to_vec()),
            (Transport::Ud, vec![Operation::Send]),
            (Transport::Uc, vec![Operation::Send]),
            (Transport::Xrc, vec![Operation::Write, Operation::FetchAdd]),
        ];
        let text = paging(&Abilities { on_demand, ..abilities() });
        assert_eq!(text, "RC\nUD\nUC (send)\nXRC (write, atomic)");
    }
}
