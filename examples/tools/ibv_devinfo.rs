//! Prints the attributes of RDMA devices and their ports, in the format of rdma-core's program of the same name.

use std::fmt::Display;
use std::io::{self, Write};
use std::net::Ipv6Addr;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::Parser;
use sideway::ibverbs::address::{GidEntry, GidType};
use sideway::ibverbs::device::{Device, DeviceInfo, DeviceList, TransportType};
use sideway::ibverbs::device_context::{
    AtomicCapability, DeviceAttr, DeviceContext, Mtu, OdpGeneralCapabilities as OdpGeneral,
    OdpTransportCapabilities as Odp, PhysicalState, PortAttr, PortSpeed, PortState, PortWidth,
    QueuePairTypeSupport as QpTypes, RawPacketCapabilities as RawPacket, TagMatchingFlags,
};
use sideway_examples::{device_list, devices, program};

/// Print the attributes of RDMA devices and their ports
///
/// Options and output match rdma-core's program of the same name, so that the outputs can be compared line by line.
/// Values without a name are printed as `unknown` with their number.
#[derive(Debug, Parser)]
#[command(
    after_help = "Examples:\n  ibv_devinfo --list\n  ibv_devinfo -d mlx5_0 -i 1\n  ibv_devinfo -v\n  diff <(ibv_devinfo -v) <(cargo run --example ibv_devinfo -- -v)",
    max_term_width = 100
)]
struct Arguments {
    /// Device, such as `mlx5_0` [default: all]
    #[arg(short = 'd', long = "ib-dev", value_name = "DEVICE")]
    device: Option<String>,
    /// Port, from 1 [default: all]
    #[arg(short = 'i', long = "ib-port", value_name = "PORT", value_parser = clap::value_parser!(u8).range(1..))]
    port: Option<u8>,
    /// Print the names of the devices only
    #[arg(short, long)]
    list: bool,
    /// Also print limits, capabilities and GIDs
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
        Some(port) if u32::from(port) > count => bail!("port {port} does not exist; -i can be 1 to {count}"),
        Some(port) => port..=port,
        // Ports are numbered with eight bits.
        None => 1..=u8::try_from(count).unwrap_or(u8::MAX),
    };
    print_attributes(&context, &attr, arguments.verbose, out)?;
    let gids = if arguments.verbose { context.query_gid_table()? } else { Vec::new() };
    for port in ports {
        print_port(port, &context.query_port(port)?, arguments.verbose, out)?;
        print_gids(port, &gids, out)?;
    }
    writeln!(out)?;
    Ok(())
}

fn print_attributes(context: &DeviceContext, attr: &DeviceAttr, verbose: bool, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "hca_id:\t{}", context.name())?;
    field(out, "transport", 3, transport(context.transport_type()))?;
    field(out, "fw_ver", 4, attr.fw_ver())?;
    field(out, "node_guid", 3, attr.node_guid())?;
    field(out, "sys_image_guid", 3, attr.sys_image_guid())?;
    field(out, "vendor_id", 3, format_args!("{:#06x}", attr.vendor_id()))?;
    field(out, "vendor_part_id", 3, attr.vendor_part_id())?;
    field(out, "hw_ver", 4, format_args!("{:#X}", attr.hw_ver()))?;
    if let Some(board) = board(context) {
        field(out, "board_id", 3, board)?;
    }
    field(out, "phys_port_cnt", 3, attr.phys_port_cnt())?;
    if !verbose {
        return Ok(());
    }
    print_limits(attr, out)?;
    print_paging(attr, out)?;
    print_clock(attr, out)?;
    print_packets(attr, out)?;
    print_matching(attr, out)?;
    field(out, "num_comp_vectors", 2, context.num_comp_vectors())
}

/// The board model, which some drivers report to the kernel.
fn board(context: &DeviceContext) -> Option<String> {
    let text = std::fs::read_to_string(context.sysfs_path()?.join("board_id")).ok()?;
    Some(text.trim_end().to_owned()).filter(|board| !board.is_empty())
}

fn print_limits(attr: &DeviceAttr, out: &mut dyn Write) -> io::Result<()> {
    field(out, "max_mr_size", 3, format_args!("{:#x}", attr.max_mr_size()))?;
    field(out, "page_size_cap", 3, format_args!("{:#x}", attr.page_size_cap()))?;
    field(out, "max_qp", 4, attr.max_qp())?;
    field(out, "max_qp_wr", 3, attr.max_qp_wr())?;
    let flags = attr.attr().orig_attr.device_cap_flags;
    field(out, "device_cap_flags", 2, format_args!("{flags:#010x}"))?;
    bits(out, flags.into(), DEVICE_FLAGS)?;
    field(out, "max_sge", 3, attr.max_sge())?;
    field(out, "max_sge_rd", 3, attr.max_sge_rd())?;
    field(out, "max_cq", 4, attr.max_cq())?;
    field(out, "max_cqe", 3, attr.max_cqe())?;
    field(out, "max_mr", 4, attr.max_mr())?;
    field(out, "max_pd", 4, attr.max_pd())?;
    field(out, "max_qp_rd_atom", 3, attr.max_qp_rd_atom())?;
    field(out, "max_ee_rd_atom", 3, attr.max_ee_rd_atom())?;
    field(out, "max_res_rd_atom", 2, attr.max_res_rd_atom())?;
    field(out, "max_qp_init_rd_atom", 2, attr.max_qp_init_rd_atom())?;
    field(out, "max_ee_init_rd_atom", 2, attr.max_ee_init_rd_atom())?;
    field(out, "atomic_cap", 3, atomic_capability(attr.atomic_cap()))?;
    field(out, "max_ee", 4, attr.max_ee())?;
    field(out, "max_rdd", 3, attr.max_rdd())?;
    field(out, "max_mw", 4, attr.max_mw())?;
    field(out, "max_raw_ipv6_qp", 2, attr.max_raw_ipv6_qp())?;
    field(out, "max_raw_ethy_qp", 2, attr.max_raw_ethy_qp())?;
    field(out, "max_mcast_grp", 3, attr.max_mcast_grp())?;
    field(out, "max_mcast_qp_attach", 2, attr.max_mcast_qp_attach())?;
    field(out, "max_total_mcast_qp_attach", 1, attr.max_total_mcast_qp_attach())?;
    field(out, "max_ah", 4, attr.max_ah())?;
    field(out, "max_fmr", 3, attr.max_fmr())?;
    if attr.max_fmr() != 0 {
        field(out, "max_map_per_fmr", 2, attr.max_map_per_fmr())?;
    }
    field(out, "max_srq", 3, attr.max_srq())?;
    if attr.max_srq() != 0 {
        field(out, "max_srq_wr", 3, attr.max_srq_wr())?;
        field(out, "max_srq_sge", 3, attr.max_srq_sge())?;
    }
    field(out, "max_pkeys", 3, attr.max_pkeys())?;
    field(out, "local_ca_ack_delay", 2, attr.local_ca_ack_delay())
}

fn print_paging(attr: &DeviceAttr, out: &mut dyn Write) -> io::Result<()> {
    let odp = attr.odp_caps();
    writeln!(out, "\tgeneral_odp_caps:")?;
    bits(
        out,
        odp.general().bits(),
        &[(OdpGeneral::Supported.bits(), "ODP_SUPPORT"), (OdpGeneral::Implicit.bits(), "ODP_SUPPORT_IMPLICIT")],
    )?;
    let transports = [
        ("rc", odp.reliable_connection()),
        ("uc", odp.unreliable_connection()),
        ("ud", odp.unreliable_datagram()),
        ("xrc", odp.reliable_connection_extended()),
    ];
    for (transport, operations) in transports {
        writeln!(out, "\t{transport}_odp_caps:")?;
        if operations.is_empty() {
            writeln!(out, "{INDENT}NO SUPPORT")?;
        }
        let operation = |operation: Odp| u64::from(operation.bits());
        bits(
            out,
            operations.bits().into(),
            &[
                (operation(Odp::Send), "SUPPORT_SEND"),
                (operation(Odp::Receive), "SUPPORT_RECV"),
                (operation(Odp::Write), "SUPPORT_WRITE"),
                (operation(Odp::Read), "SUPPORT_READ"),
                (operation(Odp::Atomic), "SUPPORT_ATOMIC"),
                (operation(Odp::SharedReceiveQueue), "SUPPORT_SRQ"),
            ],
        )?;
    }
    Ok(())
}

fn print_clock(attr: &DeviceAttr, out: &mut dyn Write) -> io::Result<()> {
    match attr.completion_timestamp_mask() {
        Some(mask) => field(out, "completion timestamp_mask", 3, format_args!("{mask:#018x}"))?,
        None => writeln!(out, "\tcompletion_timestamp_mask not supported")?,
    }
    match attr.hca_core_clock() {
        Some(clock) => field(out, "hca_core_clock", 3, format_args!("{clock}kHZ")),
        None => writeln!(out, "\tcore clock not supported"),
    }
}

fn print_packets(attr: &DeviceAttr, out: &mut dyn Write) -> io::Result<()> {
    let raw = attr.raw_packet_caps();
    if !raw.is_empty() {
        writeln!(out, "\traw packet caps:")?;
        let offloads = [
            (RawPacket::CvlanStripping, "C-VLAN stripping offload"),
            (RawPacket::ScatterFcs, "Scatter FCS offload"),
            (RawPacket::IpChecksum, "IP csum offload"),
            (RawPacket::DelayDrop, "Delay drop"),
        ];
        bits(out, raw.bits().into(), &offloads.map(|(offload, word)| (offload.bits().into(), word)))?;
    }
    let flags = attr.attr().device_cap_flags_ex;
    field(out, "device_cap_flags_ex", 2, format_args!("{flags:#X}"))?;
    // The lower half was printed above. The C program has no names for flushes and atomic writes, so this program
    // prints none.
    bits(out, flags & !u64::from(u32::MAX), &[(1 << 34, "RAW_SCATTER_FCS"), (1 << 36, "PCI_WRITE_END_PADDING")])?;
    let tso = attr.tso_caps();
    writeln!(out, "\ttso_caps:\n\t\tmax_tso:\t\t\t{}", tso.max_tso())?;
    print_qp_types(tso.supported_qp_types(), out)?;
    let rss = attr.rss_caps();
    writeln!(out, "\trss_caps:\n\t\tmax_rwq_indirection_tables:\t\t\t{}", rss.max_rwq_indirection_tables())?;
    writeln!(out, "\t\tmax_rwq_indirection_table_size:\t\t\t{}", rss.max_rwq_indirection_table_size())?;
    writeln!(out, "\t\trx_hash_function:\t\t\t\t{:#x}", rss.rx_hash_function().bits())?;
    writeln!(out, "\t\trx_hash_fields_mask:\t\t\t\t{:#X}", rss.rx_hash_fields().bits())?;
    print_qp_types(rss.supported_qp_types(), out)?;
    field(out, "max_wq_type_rq", 3, attr.max_wq_type_rq())?;
    let pacing = attr.packet_pacing_caps();
    writeln!(out, "\tpacket_pacing_caps:\n\t\tqp_rate_limit_min:\t{}kbps", pacing.qp_rate_limit_min())?;
    writeln!(out, "\t\tqp_rate_limit_max:\t{}kbps", pacing.qp_rate_limit_max())?;
    print_qp_types(pacing.supported_qp_types(), out)
}

fn print_qp_types(types: QpTypes, out: &mut dyn Write) -> io::Result<()> {
    if types.is_empty() {
        return Ok(());
    }
    writeln!(out, "\t\tsupported_qp:")?;
    let names = [
        (QpTypes::ReliableConnection, "SUPPORT_RC"),
        (QpTypes::UnreliableConnection, "SUPPORT_UC"),
        (QpTypes::UnreliableDatagram, "SUPPORT_UD"),
        (QpTypes::RawPacket, "SUPPORT_RAW_PACKET"),
        (QpTypes::ReliableConnectionExtendedSend, "SUPPORT_XRC_SEND"),
        (QpTypes::ReliableConnectionExtendedRecv, "SUPPORT_XRC_RECV"),
    ];
    bits(out, types.bits().into(), &names.map(|(qp_type, word)| (qp_type.bits().into(), word)))
}

fn print_matching(attr: &DeviceAttr, out: &mut dyn Write) -> io::Result<()> {
    let tags = attr.tm_caps();
    if tags.is_supported() {
        field(out, "max_rndv_hdr_size", 2, tags.max_rndv_hdr_size())?;
        field(out, "max_num_tags", 3, tags.max_num_tags())?;
        field(out, "max_ops", 3, tags.max_ops())?;
        field(out, "max_sge", 3, tags.max_sge())?;
        writeln!(out, "\tflags:")?;
        bits(
            out,
            tags.flags().bits().into(),
            &[(TagMatchingFlags::ReliableConnection.bits().into(), "IBV_TM_CAP_RC")],
        )?;
    } else {
        writeln!(out, "\ttag matching not supported")?;
    }
    let moderation = attr.cq_mod_caps();
    if moderation.max_cq_count() != 0 {
        writeln!(out, "\tcq moderation caps:\n\t\tmax_cq_count:\t{}", moderation.max_cq_count())?;
        writeln!(out, "\t\tmax_cq_period:\t{} us", moderation.max_cq_period())?;
    }
    if attr.max_dm_size() != 0 {
        writeln!(out, "\tmaximum available device memory:\t{}Bytes", attr.max_dm_size())?;
    }
    Ok(())
}

/// The indentation of the flags below their line.
const INDENT: &str = "\t\t\t\t\t";

const DEVICE_FLAGS: &[(u64, &str)] = &[
    (1 << 0, "RESIZE_MAX_WR"),
    (1 << 1, "BAD_PKEY_CNTR"),
    (1 << 2, "BAD_QKEY_CNTR"),
    (1 << 3, "RAW_MULTI"),
    (1 << 4, "AUTO_PATH_MIG"),
    (1 << 5, "CHANGE_PHY_PORT"),
    (1 << 6, "UD_AV_PORT_ENFORCE"),
    (1 << 7, "CURR_QP_STATE_MOD"),
    (1 << 8, "SHUTDOWN_PORT"),
    (1 << 9, "INIT_TYPE"),
    (1 << 10, "PORT_ACTIVE_EVENT"),
    (1 << 11, "SYS_IMAGE_GUID"),
    (1 << 12, "RC_RNR_NAK_GEN"),
    (1 << 13, "SRQ_RESIZE"),
    (1 << 14, "N_NOTIFY_CQ"),
    (1 << 17, "MEM_WINDOW"),
    (1 << 18, "UD_IP_CSUM"),
    (1 << 20, "XRC"),
    (1 << 21, "MEM_MGT_EXTENSIONS"),
    (1 << 23, "MEM_WINDOW_TYPE_2A"),
    (1 << 24, "MEM_WINDOW_TYPE_2B"),
    (1 << 25, "RC_IP_CSUM"),
    (1 << 26, "RAW_IP_CSUM"),
    (1 << 29, "MANAGED_FLOW_STEERING"),
];

/// One line: a name, `tabs` tabs, a value.
fn field(out: &mut dyn Write, name: &str, tabs: usize, value: impl Display) -> io::Result<()> {
    writeln!(out, "\t{name}:{}{value}", "\t".repeat(tabs))
}

/// Prints a line for each named flag that is set, and one line for the unnamed flags.
fn bits(out: &mut dyn Write, set: u64, names: &[(u64, &str)]) -> io::Result<()> {
    let mut unknown = set;
    for (flag, name) in names {
        if set & flag != 0 {
            writeln!(out, "{INDENT}{name}")?;
        }
        unknown &= !flag;
    }
    if unknown != 0 { writeln!(out, "{INDENT}Unknown flags: {unknown:#X}") } else { Ok(()) }
}

fn print_port(port_num: u8, port: &PortAttr, verbose: bool, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "\t\tport:\t{port_num}")?;
    writeln!(out, "\t\t\tstate:\t\t\t{}", port_state(port.port_state()))?;
    writeln!(out, "\t\t\tmax_mtu:\t\t{}", mtu(port.max_mtu()))?;
    writeln!(out, "\t\t\tactive_mtu:\t\t{}", mtu(port.active_mtu()))?;
    writeln!(out, "\t\t\tsm_lid:\t\t\t{}", port.sm_lid())?;
    writeln!(out, "\t\t\tport_lid:\t\t{}", port.lid())?;
    writeln!(out, "\t\t\tport_lmc:\t\t{:#04x}", port.lmc())?;
    writeln!(out, "\t\t\tlink_layer:\t\t{}", port.link_layer())?;
    if verbose { print_port_details(port, out) } else { Ok(()) }
}

fn print_port_details(port: &PortAttr, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "\t\t\tmax_msg_sz:\t\t{:#x}", port.max_msg_sz())?;
    writeln!(out, "\t\t\tport_cap_flags:\t\t{:#010x}", port.port_cap_flags().bits())?;
    writeln!(out, "\t\t\tport_cap_flags2:\t{:#06x}", port.port_cap_flags2().bits())?;
    writeln!(out, "\t\t\tmax_vl_num:\t\t{}", virtual_lanes(port.max_vl_num()))?;
    writeln!(out, "\t\t\tbad_pkey_cntr:\t\t{:#x}", port.bad_pkey_cntr())?;
    writeln!(out, "\t\t\tqkey_viol_cntr:\t\t{:#x}", port.qkey_viol_cntr())?;
    writeln!(out, "\t\t\tsm_sl:\t\t\t{}", port.sm_sl())?;
    writeln!(out, "\t\t\tpkey_tbl_len:\t\t{}", port.pkey_tbl_len())?;
    writeln!(out, "\t\t\tgid_tbl_len:\t\t{}", port.gid_tbl_len())?;
    writeln!(out, "\t\t\tsubnet_timeout:\t\t{}", port.subnet_timeout())?;
    writeln!(out, "\t\t\tinit_type_reply:\t{}", port.init_type_reply())?;
    writeln!(out, "\t\t\tactive_width:\t\t{}", width(port.active_width()))?;
    writeln!(out, "\t\t\tactive_speed:\t\t{}", speed(port.active_speed()))?;
    writeln!(out, "\t\t\tphys_state:\t\t{}", physical_state(port.phys_state()))
}

fn print_gids(port_num: u8, entries: &[GidEntry], out: &mut dyn Write) -> io::Result<()> {
    for entry in entries.iter().filter(|entry| entry.port_num() == port_num.into()) {
        let gid = entry.gid();
        let text = match entry.gid_type() {
            GidType::InfiniBand => gid.to_string(),
            GidType::RoceV1 => format!("{gid}, RoCE v1"),
            // These GIDs are IP addresses, and are printed as such.
            gid_type => format!("{}, {gid_type}", Ipv6Addr::from(gid)),
        };
        writeln!(out, "\t\t\tGID[{:3}]:\t\t{text}", entry.gid_index())?;
    }
    Ok(())
}

fn mtu(mtu: Mtu) -> String {
    with_number(mtu.bytes().map(|bytes| bytes.to_string()).as_deref(), mtu.raw())
}

fn width(width: PortWidth) -> String {
    with_number(width.name().map(|_| width.to_string()).as_deref(), width.raw())
}

/// A value as its name and number: `PORT_ACTIVE (4)`.
fn with_number(word: Option<&str>, number: u32) -> String {
    format!("{} ({number})", word.unwrap_or("unknown"))
}

fn transport(transport: TransportType) -> String {
    let word = transport.name().map(|_| transport.to_string());
    // C prints a signed number: -1 is an unknown transport.
    format!("{} ({})", word.as_deref().unwrap_or("unknown"), transport.raw() as i32)
}

fn atomic_capability(capability: AtomicCapability) -> String {
    let word = match capability {
        AtomicCapability::None => Some("ATOMIC_NONE"),
        AtomicCapability::HostChannelAdapter => Some("ATOMIC_HCA"),
        AtomicCapability::Global => Some("ATOMIC_GLOB"),
        _ => None,
    };
    with_number(word, capability.raw())
}

fn port_state(state: PortState) -> String {
    let word = match state {
        PortState::Down => Some("PORT_DOWN"),
        PortState::Initializing => Some("PORT_INIT"),
        PortState::Armed => Some("PORT_ARMED"),
        PortState::Active => Some("PORT_ACTIVE"),
        _ => None,
    };
    with_number(word, state.raw())
}

fn physical_state(state: PhysicalState) -> String {
    let word = match state {
        PhysicalState::Sleep => Some("SLEEP"),
        PhysicalState::Polling => Some("POLLING"),
        PhysicalState::Disabled => Some("DISABLED"),
        // The C program has this spelling.
        PhysicalState::PortConfigurationTraining => Some("PORT_CONFIGURATION TRAINNING"),
        PhysicalState::LinkUp => Some("LINK_UP"),
        PhysicalState::LinkErrorRecovery => Some("LINK_ERROR_RECOVERY"),
        PhysicalState::PhyTest => Some("PHY TEST"),
        _ => None,
    };
    with_number(word, state.raw())
}

/// The rate of one lane, rounded as in its common name.
fn speed(speed: PortSpeed) -> String {
    let word = match speed {
        PortSpeed::Sdr => Some("2.5 Gbps"),
        PortSpeed::Ddr => Some("5.0 Gbps"),
        PortSpeed::Qdr | PortSpeed::Fdr10 => Some("10.0 Gbps"),
        PortSpeed::Fdr => Some("14.0 Gbps"),
        PortSpeed::Edr => Some("25.0 Gbps"),
        PortSpeed::Hdr => Some("50.0 Gbps"),
        PortSpeed::Ndr => Some("100.0 Gbps"),
        PortSpeed::Xdr => Some("200.0 Gbps"),
        _ => None,
    };
    with_number(word, speed.raw())
}

/// The number of virtual lanes that the code represents.
fn virtual_lanes(code: u8) -> String {
    let word = match code {
        1 => Some("1"),
        2 => Some("2"),
        3 => Some("4"),
        4 => Some("8"),
        5 => Some("15"),
        _ => None,
    };
    with_number(word, code.into())
}
