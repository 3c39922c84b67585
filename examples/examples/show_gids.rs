//! Lists the GIDs of RDMA devices: the addresses from which they send.

use std::io::Write;
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use clap::Parser;
use sideway::ibverbs::address::GidEntry;
use sideway::ibverbs::device::DeviceInfo;
use sideway::ibverbs::device_context::DeviceContext;
use sideway_examples::{device_list, devices, program};
use tabled::builder::Builder;
use tabled::settings::Style;

/// List the GIDs of RDMA devices, which are their source addresses
///
/// Prints one line per GID: the device, the port, the index in the GID table of the port, the GID, its IPv4 address if
/// it has one, the protocol, and the network interface.
///
/// Programs that use RoCE require the index of a GID with the protocol `RoCE v2` and an address that the peer can
/// reach.
#[derive(Debug, Parser)]
#[command(after_help = "Examples:\n  show_gids\n  show_gids mlx5_0\n  show_gids mlx5_0 1", max_term_width = 100)]
struct Arguments {
    /// Device, such as `mlx5_0` [default: all]
    device: Option<String>,
    /// Port, from 1 [default: all]
    #[arg(value_parser = clap::value_parser!(u8).range(1..))]
    port: Option<u8>,
}

fn main() -> ExitCode {
    program(run)
}

fn run(arguments: Arguments, out: &mut dyn Write) -> Result<()> {
    let list = device_list()?;
    let mut table = Builder::default();
    table.push_record(["DEVICE", "PORT", "INDEX", "GID", "IPv4", "TYPE", "NETDEV"]);
    for device in devices(&list, arguments.device.as_deref())? {
        let context = device.open()?;
        for entry in gids(&context, arguments.port).with_context(|| device.name())? {
            table.push_record(columns(&device.name(), &entry));
        }
    }
    ensure!(
        table.count_records() > 1,
        "no GID is in use; assign an address to the network interface (`ip address`), and bring the interface up"
    );
    writeln!(out, "{}", table.build().with(Style::blank()))?;
    Ok(())
}

fn gids(context: &DeviceContext, port: Option<u8>) -> Result<Vec<GidEntry>> {
    if let Some(port) = port {
        // A port that does not exist is an error, not an empty table.
        context.query_port(port)?;
    }
    let mut entries = context.query_gid_table()?;
    entries.retain(|entry| !entry.gid().is_zero() && port.is_none_or(|port| entry.port_num() == port.into()));
    Ok(entries)
}

fn columns(device: &str, entry: &GidEntry) -> [String; 7] {
    [
        device.to_owned(),
        entry.port_num().to_string(),
        entry.gid_index().to_string(),
        entry.gid().to_string(),
        entry.gid().ipv4().map_or_else(String::new, |address| address.to_string()),
        entry.gid_type().to_string(),
        entry.netdev_name().unwrap_or_default(),
    ]
}
