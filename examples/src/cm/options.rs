//! The options of programs that have a crowd of connections.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};

use anyhow::{Context, Result, bail};
use clap::Args;
use sideway::rdmacm::communication_manager::{Identifier, devices};

use super::Deadline;
use crate::units::{parse_message_size, parse_timeout};
use crate::{Timeout, gid, no_device_with_connections};

// Who connects to whom, and how often.
#[derive(Clone, Debug, Args)]
#[expect(missing_docs, reason = "clap would take the words for those of the program")]
pub struct Crowd {
    /// The host to connect to, as a name or an address. Without it, and without --listen, both sides are in this program
    pub host: Option<String>,

    /// Only listen
    #[arg(short, long, conflicts_with = "host")]
    pub listen: bool,

    /// Connections
    #[arg(short = 'n', long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub connections: u32,

    /// Port of the listener [default: 7471; one that is free where both sides are in this program]
    #[arg(short, long, value_parser = clap::value_parser!(u16).range(1..))]
    pub port: Option<u16>,

    /// Address of this machine to listen on, or to connect from [default: any; where both sides are in this program, that of the
    /// first device]
    #[arg(short, long, value_name = "ADDRESS")]
    pub bind: Option<IpAddr>,

    /// Bytes in a message, the same on both sides; k, M and G are powers of 1024
    #[arg(short, long, value_name = "SIZE", default_value = "64", value_parser = parse_message_size)]
    pub size: u32,

    /// Give up when not all is done after so long; 0 waits for ever
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = parse_timeout)]
    pub timeout: Timeout,
}

/// The port that rdma-core's programs use.
const DEFAULT_PORT: u16 = 7471;

/// What is in this program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Role {
    /// Where to listen, if it does.
    pub listen: Option<SocketAddr>,
    /// Where to connect to, if it does. Port 0 is that of the own listener.
    pub connect: Option<SocketAddr>,
    /// Where from.
    pub source: Option<SocketAddr>,
}

impl Crowd {
    /// What the options say of the addresses.
    ///
    /// # Errors
    ///
    /// There is no such host, or no address of this machine.
    pub fn role(&self) -> Result<Role> {
        let source = self.bind.map(|address| SocketAddr::new(address, 0));
        let port = self.port.unwrap_or(DEFAULT_PORT);
        Ok(match &self.host {
            Some(host) => Role { listen: None, connect: Some(resolve(host, port)?), source },
            None if self.listen => {
                let any = self.bind.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
                Role { listen: Some(SocketAddr::new(any, port)), connect: None, source: None }
            }
            None => {
                let here = SocketAddr::new(self.bind.map_or_else(own_address, Ok)?, self.port.unwrap_or(0));
                Role { listen: Some(here), connect: Some(here), source: None }
            }
        })
    }

    /// A deadline from now.
    pub fn deadline(&self) -> Deadline {
        Deadline::after(self.timeout)
    }
}

impl Role {
    /// Where to connect to, when the own listener is there.
    pub fn destination(&self, listener: Option<&Identifier>) -> Option<SocketAddr> {
        self.connect.map(|connect| match (connect.port(), listener) {
            (0, Some(listener)) => SocketAddr::new(connect.ip(), listener.port()),
            _ => connect,
        })
    }
}

/// The first address of a host.
///
/// # Errors
///
/// It has none.
pub fn resolve(host: &str, port: u16) -> Result<SocketAddr> {
    let mut found = (host, port).to_socket_addrs().with_context(|| format!("{host} has no address"))?;
    found.next().with_context(|| format!("{host} has no address"))
}

/// The IP address of the first device that has one: it is in the GID of a RoCE port.
fn own_address() -> Result<IpAddr> {
    let devices = match devices() {
        Err(error) if error.errno().raw() == libc::ENODEV => return Err(no_device_with_connections()),
        devices => devices?,
    };
    for context in &devices {
        // A device that cannot be used is not the first.
        let Ok(Some(entry)) = gid::choose(context, 1, None) else { continue };
        let address = Ipv6Addr::from(entry.gid());
        // One of a link is none without the name of the link.
        if !address.is_unicast_link_local() {
            return Ok(address.to_canonical());
        }
    }
    bail!("no device tells its IP address (on InfiniBand it does not): give one of this machine with --bind")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn crowd(host: Option<&str>, listen: bool, port: Option<u16>, bind: Option<&str>) -> Crowd {
        Crowd {
            host: host.map(str::to_owned),
            listen,
            connections: 1,
            port,
            bind: bind.map(|bind| bind.parse().unwrap()),
            size: 1,
            timeout: Timeout(None),
        }
    }

    #[test]
    fn a_program_listens_or_connects_or_does_both() {
        let address = |text: &str| Some(text.parse::<SocketAddr>().unwrap());
        let role = crowd(None, true, None, None).role().unwrap();
        assert_eq!(role, Role { listen: address("0.0.0.0:7471"), connect: None, source: None });
        let role = crowd(Some("192.0.2.1"), false, Some(5), Some("192.0.2.2")).role().unwrap();
        assert_eq!(role, Role { listen: None, connect: address("192.0.2.1:5"), source: address("192.0.2.2:0") });
        let role = crowd(None, false, None, Some("192.0.2.2")).role().unwrap();
        assert_eq!(role, Role { listen: address("192.0.2.2:0"), connect: address("192.0.2.2:0"), source: None });
        let role = crowd(None, false, Some(9), Some("::1")).role().unwrap();
        assert_eq!(role.destination(None), address("[::1]:9"));
    }
}
