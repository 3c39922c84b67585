//! The source GID of a program.

use std::cmp::Reverse;
use std::fmt::Write;

use anyhow::{Result, bail};
use sideway::ibverbs::address::{GidEntry, GidType};
use sideway::ibverbs::device::DeviceInfo;
use sideway::ibverbs::device_context::{DeviceContext, LinkLayer};

/// Returns the entry of the port's GID table with this index. Without an index, returns the best entry of an Ethernet
/// port; InfiniBand requires no GID, so it returns none.
///
/// RoCE v2 is preferred to v1. An IPv4 address is preferred to a global IPv6 address, and that to a link-local one.
///
/// # Errors
///
/// The index is not usable, or an Ethernet port has no GID. The error lists the usable entries.
pub fn choose(context: &DeviceContext, port_num: u8, asked: Option<u32>) -> Result<Option<GidEntry>> {
    if asked.is_none() && context.query_port(port_num)?.link_layer() != LinkLayer::Ethernet {
        return Ok(None);
    }
    let table: Vec<GidEntry> = context
        .query_gid_table()?
        .into_iter()
        .filter(|entry| entry.port_num() == u32::from(port_num) && is_usable(entry))
        .collect();
    let name = context.name();
    let found = match asked {
        Some(index) => table.iter().find(|entry| entry.gid_index() == index),
        None => best(&table),
    };
    match (found, asked) {
        (Some(entry), _) => Ok(Some(*entry)),
        (None, _) if table.is_empty() => bail!(
            "port {port_num} of {name} has no usable GID; assign an address to its network interface (`ip address`), and bring it up"
        ),
        (None, index) => bail!(
            "GID index {} of port {port_num} of {name} is not in use; give -g with one of{}",
            index.unwrap_or(0),
            list(&table)
        ),
    }
}

/// An address vector has 8 bits for the index.
fn is_usable(entry: &GidEntry) -> bool {
    !entry.gid().is_zero() && entry.gid_index() <= u8::MAX.into()
}

fn best(table: &[GidEntry]) -> Option<&GidEntry> {
    let rank = |entry: &&GidEntry| {
        let gid = entry.gid();
        (
            entry.gid_type() == GidType::RoceV2,
            gid.is_ipv4_mapped(),
            !gid.is_unicast_link_local(),
            Reverse(entry.gid_index()),
        )
    };
    table.iter().max_by_key(rank)
}

/// A list with a leading space: ` 0 (fe80::1, RoCE v2), 1 (…)`.
fn list(table: &[GidEntry]) -> String {
    let mut text = String::new();
    for entry in table {
        let separator = if text.is_empty() { " " } else { ", " };
        // Writing to a String does not fail.
        let _ = write!(text, "{separator}{} ({})", entry.gid_index(), describe(entry));
    }
    text
}

/// The address, type and interface: `::ffff:192.0.2.1, RoCE v2, eth0`.
pub fn describe(entry: &GidEntry) -> String {
    let address = std::net::Ipv6Addr::from(entry.gid());
    match entry.netdev_name() {
        Ok(netdev) => format!("{address}, {}, {netdev}", entry.gid_type()),
        Err(_) => format!("{address}, {}", entry.gid_type()),
    }
}
