//! The lines of a port.

use std::io::{self, Write};
use std::net::Ipv6Addr;

use sideway::ibverbs::address::{GidEntry, GidType};
use sideway::ibverbs::device_context::{Mtu, PortAttr, PortWidth};

use crate::names;

/// Prints a port.
pub(crate) fn print(port_num: u8, port: &PortAttr, verbose: bool, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "\t\tport:\t{port_num}")?;
    writeln!(out, "\t\t\tstate:\t\t\t{}", names::port_state(port.port_state()))?;
    writeln!(out, "\t\t\tmax_mtu:\t\t{}", mtu(port.max_mtu()))?;
    writeln!(out, "\t\t\tactive_mtu:\t\t{}", mtu(port.active_mtu()))?;
    writeln!(out, "\t\t\tsm_lid:\t\t\t{}", port.sm_lid())?;
    writeln!(out, "\t\t\tport_lid:\t\t{}", port.lid())?;
    writeln!(out, "\t\t\tport_lmc:\t\t{:#04x}", port.lmc())?;
    writeln!(out, "\t\t\tlink_layer:\t\t{}", port.link_layer())?;
    if verbose { print_details(port, out) } else { Ok(()) }
}

fn print_details(port: &PortAttr, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "\t\t\tmax_msg_sz:\t\t{:#x}", port.max_msg_sz())?;
    writeln!(out, "\t\t\tport_cap_flags:\t\t{:#010x}", port.port_cap_flags().bits())?;
    writeln!(out, "\t\t\tport_cap_flags2:\t{:#06x}", port.port_cap_flags2().bits())?;
    writeln!(out, "\t\t\tmax_vl_num:\t\t{}", names::virtual_lanes(port.max_vl_num()))?;
    writeln!(out, "\t\t\tbad_pkey_cntr:\t\t{:#x}", port.bad_pkey_cntr())?;
    writeln!(out, "\t\t\tqkey_viol_cntr:\t\t{:#x}", port.qkey_viol_cntr())?;
    writeln!(out, "\t\t\tsm_sl:\t\t\t{}", port.sm_sl())?;
    writeln!(out, "\t\t\tpkey_tbl_len:\t\t{}", port.pkey_tbl_len())?;
    writeln!(out, "\t\t\tgid_tbl_len:\t\t{}", port.gid_tbl_len())?;
    writeln!(out, "\t\t\tsubnet_timeout:\t\t{}", port.subnet_timeout())?;
    writeln!(out, "\t\t\tinit_type_reply:\t{}", port.init_type_reply())?;
    writeln!(out, "\t\t\tactive_width:\t\t{}", width(port.active_width()))?;
    writeln!(out, "\t\t\tactive_speed:\t\t{}", names::speed(port.active_speed()))?;
    writeln!(out, "\t\t\tphys_state:\t\t{}", names::physical_state(port.phys_state()))
}

/// Prints the GIDs of a port.
pub(crate) fn print_gids(port_num: u8, entries: &[GidEntry], out: &mut dyn Write) -> io::Result<()> {
    for entry in entries.iter().filter(|entry| entry.port_num() == port_num.into()) {
        let gid = entry.gid();
        let text = match entry.gid_type() {
            GidType::InfiniBand => gid.to_string(),
            GidType::RoceV1 => format!("{gid}, RoCE v1"),
            // These GIDs are IP addresses, and written as such.
            gid_type => format!("{}, {gid_type}", Ipv6Addr::from(gid)),
        };
        writeln!(out, "\t\t\tGID[{:3}]:\t\t{text}", entry.gid_index())?;
    }
    Ok(())
}

fn mtu(mtu: Mtu) -> String {
    names::with_number(mtu.bytes().map(|bytes| bytes.to_string()).as_deref(), mtu.raw())
}

fn width(width: PortWidth) -> String {
    names::with_number(width.name().map(|_| width.to_string()).as_deref(), width.raw())
}
