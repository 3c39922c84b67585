//! How long a message may be.

use anyhow::{Context, Result, bail};
use sideway::ibverbs::device_context::{Mtu, PortAttr};

/// Whether messages of `size` bytes can be sent over a connection from this port.
///
/// # Errors
///
/// How long they may be.
pub fn check_message_size(port: &PortAttr, size: u32) -> Result<()> {
    let most = port.max_msg_sz();
    if size > most {
        bail!("a message of {size} bytes is asked for and the port sends {most} at most");
    }
    Ok(())
}

/// The same of datagrams, each of which is one packet.
///
/// # Errors
///
/// How long they may be.
pub fn check_datagram_size(port: &PortAttr, size: u32) -> Result<()> {
    let most = port.active_mtu().bytes().context("the port has an MTU that this program does not know")?;
    if size > most {
        bail!(
            "a message of {size} bytes is asked for, and a datagram is one packet, of {most} bytes at most on this port: choose \
             a --size up to {most} for both sides{}",
            if most < Mtu::Mtu4096.bytes().unwrap_or(most) {
                "; with Ethernet the MTU of the network interface decides (`ip link set dev eth0 mtu 9000`)"
            } else {
                ""
            }
        );
    }
    Ok(())
}
