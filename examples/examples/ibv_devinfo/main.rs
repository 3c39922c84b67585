//! Prints what RDMA devices and their ports say of themselves, in the format of rdma-core's program of the same name.

mod device;
mod names;
mod port;

use std::io::Write;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::Parser;
use sideway::ibverbs::device::{Device, DeviceInfo, DeviceList};
use sideway_examples::{device_list, devices, program};

/// Prints what RDMA devices and their ports say of themselves
///
/// Options and output are those of rdma-core's program of the same name, so that the two can be compared line by line. What
/// this version has no name for is printed as `unknown` with its number.
#[derive(Debug, Parser)]
#[command(
    after_help = "Examples:\n  ibv_devinfo --list\n  ibv_devinfo -d mlx5_0 -i 1\n  ibv_devinfo -v\n  diff <(ibv_devinfo -v) <(cargo run --example ibv_devinfo -- -v)",
    max_term_width = 100
)]
struct Arguments {
    /// Only this device, such as `mlx5_0`; all devices without it
    #[arg(short = 'd', long = "ib-dev", value_name = "DEVICE")]
    device: Option<String>,
    /// Only this port, from 1; all ports without it
    #[arg(short = 'i', long = "ib-port", value_name = "PORT", value_parser = clap::value_parser!(u8).range(1..))]
    port: Option<u8>,
    /// Only the names of the devices
    #[arg(short, long)]
    list: bool,
    /// All that is known: limits, capabilities, GIDs
    #[arg(short, long)]
    verbose: bool,
}

fn main() -> ExitCode {
    program(run)
}

fn run(arguments: Arguments, out: &mut dyn Write) -> Result<()> {
    let list = device_list()?;
    if arguments.list {
        return print_names(&list, out);
    }
    for device in devices(&list, arguments.device.as_deref())? {
        print_device(&device, &arguments, out).with_context(|| device.name())?;
    }
    Ok(())
}

fn print_names(list: &DeviceList, out: &mut dyn Write) -> Result<()> {
    writeln!(out, "{} HCA{} found:", list.len(), if list.len() == 1 { "" } else { "s" })?;
    for device in list {
        writeln!(out, "\t{}", device.name())?;
    }
    writeln!(out)?;
    Ok(())
}

fn print_device(device: &Device<'_>, arguments: &Arguments, out: &mut dyn Write) -> Result<()> {
    let context = device.open()?;
    let attr = context.query_device()?;
    let count = attr.phys_port_cnt();
    let ports = match arguments.port {
        Some(port) if u32::from(port) > count => bail!("there is no port {port}; the device has {count}"),
        Some(port) => port..=port,
        // Ports are numbered with eight bits.
        None => 1..=u8::try_from(count).unwrap_or(u8::MAX),
    };
    device::print(&context, &attr, arguments.verbose, out)?;
    let gids = if arguments.verbose { context.query_gid_table()? } else { Vec::new() };
    for port in ports {
        port::print(port, &context.query_port(port)?, arguments.verbose, out)?;
        port::print_gids(port, &gids, out)?;
    }
    writeln!(out)?;
    Ok(())
}
