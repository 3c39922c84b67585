//! How the two sides find each other.

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use sideway::ibverbs::queue_pair::{BasicService, GenericQueuePair, QueuePairBuilder};
use sideway::rdmacm::communication_manager::Identifier;
use sideway::rdmacm::{Connector, Listener, PortSpace, Request, Resolved};
use sideway_examples::pingpong::{Kind, Resources};

use crate::arguments::Arguments;

/// The way to the server.
pub(crate) fn resolve(host: &str, arguments: &Arguments) -> Result<Resolved> {
    let mut connector = Connector::new();
    connector.setup_port_space(port_space(arguments)).setup_timeout(limit(arguments));
    if let Some(source) = &arguments.bind {
        connector.setup_source(source_of(source)?);
    }
    Ok(connector.resolve((host, arguments.port))?)
}

/// The first client that comes.
pub(crate) fn accept(arguments: &Arguments) -> Result<Request> {
    let mut builder = Listener::builder();
    builder.setup_port_space(port_space(arguments)).setup_timeout(limit(arguments));
    let listener = match &arguments.bind {
        Some(host) => builder.bind((host.as_str(), arguments.port)),
        None => builder.bind(everywhere(arguments.port).as_slice()),
    };
    Ok(listener?.accept(arguments.play.timeout.0)?)
}

/// A queue pair that the identifier moves.
pub(crate) fn queue_pair<T: BasicService>(
    id: &Arc<Identifier>,
    resources: &Resources,
    mut builder: QueuePairBuilder<T>,
    arguments: &Arguments,
) -> Result<GenericQueuePair<T>> {
    resources.equip(&mut builder);
    Ok(match arguments.play.qp_kind()? {
        Kind::Basic => id.create_qp(&builder)?.into(),
        Kind::Extended => id.create_qp_ex(&builder)?.into(),
        Kind::Generic => id.create_qp_generic(&builder)?,
    })
}

/// The port of the device that the identifier is on.
pub(crate) fn port_num(id: &Identifier) -> Result<u8> {
    id.port_num().context("the identifier is on no port of the device")
}

/// Tells where a side is.
pub(crate) fn tell(side: &str, address: Option<SocketAddr>, qp_num: Option<u32>, out: &mut dyn Write) -> Result<()> {
    let address = address.map_or_else(|| "unknown".into(), |address| address.to_string());
    match qp_num {
        Some(qp_num) => writeln!(out, "  {:<15} {address}, QPN {qp_num:#08x}", format!("{side} address:"))?,
        None => writeln!(out, "  {:<15} {address}", format!("{side} address:"))?,
    }
    Ok(out.flush()?)
}

fn port_space(arguments: &Arguments) -> PortSpace {
    if arguments.ud { PortSpace::Udp } else { PortSpace::Tcp }
}

fn limit(arguments: &Arguments) -> Duration {
    arguments.play.timeout.0.unwrap_or(Duration::MAX)
}

/// All addresses of this machine: that of IPv6 stands for both, but there may be no IPv6.
fn everywhere(port: u16) -> [SocketAddr; 2] {
    [(Ipv6Addr::UNSPECIFIED, port).into(), (Ipv4Addr::UNSPECIFIED, port).into()]
}

/// An address of this machine.
fn source_of(host: &str) -> Result<IpAddr> {
    let mut addresses = (host, 0).to_socket_addrs().with_context(|| format!("the source {host}"))?;
    Ok(addresses.next().with_context(|| format!("the source {host} has no address"))?.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_side_is_told_in_the_columns_of_the_other_pingpongs() {
        let mut out = Vec::new();
        let address = Some(([192, 0, 2, 1], 7).into());
        tell("local", address, Some(0x11), &mut out).unwrap();
        tell("remote", address, None, &mut out).unwrap();
        tell("remote", None, Some(0x12), &mut out).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "  local address:  192.0.2.1:7, QPN 0x000011\n  remote address: 192.0.2.1:7\n  remote address: unknown, QPN 0x000012\n"
        );
    }

    #[test]
    #[cfg_attr(miri, ignore = "asks the kernel")]
    fn a_source_is_an_address_or_says_why_not() {
        assert_eq!(source_of("192.0.2.7").unwrap(), IpAddr::from([192, 0, 2, 7]));
        assert!(source_of("not a name").unwrap_err().to_string().contains("the source not a name"));
    }
}
