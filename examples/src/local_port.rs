//! The local port of a program.

use std::sync::Arc;

use anyhow::{Context, Result, bail};
use sideway::ibverbs::AccessFlags;
use sideway::ibverbs::address::{AddressHandleAttribute, GidEntry};
use sideway::ibverbs::device::DeviceInfo;
use sideway::ibverbs::device_context::{DeviceContext, LinkLayer, Mtu, PortAttr};
use sideway::ibverbs::queue_pair::{QueuePairEndpoint, RcOptions};

use crate::{PortChoice, active_port, gid, open_device};

/// Maximum number of routers on the path of a packet.
const HOP_LIMIT: u8 = 64;

/// A port of an open device, with the source GID of its packets.
#[derive(Debug)]
pub struct LocalPort {
    context: Arc<DeviceContext>,
    port_num: u8,
    attr: PortAttr,
    gid: Option<GidEntry>,
    is_gid_chosen: bool,
    service_level: u8,
}

impl LocalPort {
    /// Opens the chosen device, or the first with an active port. Without a GID index, uses the [best
    /// GID](gid::choose).
    ///
    /// # Errors
    ///
    /// The device, the port or the GID is not usable; the error lists the usable ones.
    pub fn open(choice: &PortChoice, service_level: u8) -> Result<Self> {
        let (port_num, index) = (choice.ib_port, choice.gid_idx);
        let context = open_device(choice.ib_dev.as_deref())?;
        let attr = active_port(&context, port_num)?;
        let gid = gid::choose(&context, port_num, index)?;
        Ok(Self { context, port_num, attr, gid, is_gid_chosen: index.is_none(), service_level })
    }

    /// The device.
    pub fn context(&self) -> &Arc<DeviceContext> {
        &self.context
    }

    /// The number of the port.
    pub fn port_num(&self) -> u8 {
        self.port_num
    }

    /// The attributes of the port.
    pub fn attr(&self) -> &PortAttr {
        &self.attr
    }

    /// The source GID of packets; none on InfiniBand unless the user chose one.
    pub fn gid(&self) -> Option<GidEntry> {
        self.gid
    }

    /// Returns a line about the GID if the program chose it instead of the user.
    pub fn note(&self) -> Option<String> {
        let entry = self.gid.filter(|_| self.is_gid_chosen)?;
        let device = self.context.name();
        Some(format!("  using {device}, GID index {} ({}); see -d and -g", entry.gid_index(), gid::describe(&entry)))
    }

    /// Options for queue pairs on this port. `access` contains the peer's access rights. Each direction may have one
    /// outstanding read or atomic operation.
    pub fn options(&self, access: AccessFlags, mtu: Mtu) -> RcOptions {
        let mut options = RcOptions::new();
        options.setup_port(self.port_num).setup_service_level(self.service_level);
        options.setup_access_flags(access).setup_path_mtu(mtu).setup_max_read_atomic(1).setup_max_dest_read_atomic(1);
        // `gid::choose` returns no larger index.
        if let Some(index) = self.gid.and_then(|entry| u8::try_from(entry.gid_index()).ok()) {
            options.setup_gid_index(index);
        }
        options
    }

    /// Checks that the peer's address has a GID if Ethernet or -g requires one.
    ///
    /// # Errors
    ///
    /// The address has no GID.
    pub fn check(&self, remote: &QueuePairEndpoint) -> Result<()> {
        if remote.gid.is_zero() && (self.gid.is_some() || self.attr.link_layer() == LinkLayer::Ethernet) {
            bail!(
                "the peer sent no GID, which Ethernet requires; start it with -g INDEX (the C programs have no default)"
            );
        }
        Ok(())
    }

    /// The path to a queue pair of the peer, for datagrams.
    ///
    /// # Errors
    ///
    /// As [`check`](Self::check).
    pub fn path(&self, remote: &QueuePairEndpoint) -> Result<AddressHandleAttribute> {
        self.check(remote)?;
        let mut path = AddressHandleAttribute::new();
        path.setup_port(self.port_num).setup_service_level(self.service_level).setup_dest_lid(remote.lid);
        if let Some(entry) = self.gid {
            let index = u8::try_from(entry.gid_index()).context("the GID index has 8 bits")?;
            path.setup_grh(&remote.gid, 0, index, HOP_LIMIT, 0);
        }
        Ok(path)
    }
}

/// Checks that this port can send messages of `size` bytes over a connection.
///
/// # Errors
///
/// The size exceeds the maximum.
pub fn check_message_size(port: &PortAttr, size: u32) -> Result<()> {
    let max = port.max_msg_sz();
    if size > max {
        bail!("--size is {size}, above the port's maximum of {max} bytes; give a smaller --size");
    }
    Ok(())
}

/// Checks that this port can send datagrams of `size` bytes, each of which is one packet.
///
/// # Errors
///
/// The size exceeds the maximum.
pub fn check_datagram_size(port: &PortAttr, size: u32) -> Result<()> {
    let max = port.active_mtu().bytes().context("the port has an unknown MTU")?;
    if size > max {
        bail!(
            "--size is {size}, and a datagram is one packet of at most {max} bytes on this port; give both sides a --size of at \
             most {max}{}",
            if max < Mtu::Mtu4096.bytes().unwrap_or(max) {
                ", or raise the MTU of the Ethernet interface (`ip link set dev eth0 mtu 9000`)"
            } else {
                ""
            }
        );
    }
    Ok(())
}
