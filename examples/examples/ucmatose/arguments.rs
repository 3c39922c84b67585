//! The command line.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use clap::Parser;
use sideway_examples::Timeout;
use sideway_examples::units::{parse_message_size, parse_timeout};

const ABOUT: &str = "\
Makes connections by address, all on one thread and one event channel, sends messages to and fro on all of them, and ends them. \
Without --server it waits for a client, and sends first; with --server it is the client.

The other side may also be rdma-core's ucmatose, which has the same short options; give both sides the same -c, -C and -S. What \
stands in the messages is checked where both are this program.";

const EXAMPLES: &str = "\
Examples:
  ucmatose -c 100                                on the first machine: waits for the second
  ucmatose -c 100 -s server.example.org          on the second
  ucmatose -c 8 -C 1000 -S 64k --srq             all connections take their receives from one queue
  ucmatose -m                                    moves everything to another event channel before it hangs up

Exit status: 0 when all messages were exchanged, 1 when something failed, 2 for arguments that make no sense.";

/// Make many connections by address, and send messages to and fro on them
#[derive(Clone, Debug, Parser)]
#[command(name = "ucmatose", version, long_about = ABOUT, after_help = EXAMPLES, max_term_width = 110)]
pub(crate) struct Arguments {
    /// The host that the server runs on, as a name or an address; none makes this program the server
    #[arg(short, long, value_name = "HOST")]
    pub(crate) server: Option<String>,

    /// Address of this machine to listen on, or to connect from [default: any]
    #[arg(short, long, value_name = "ADDRESS")]
    pub(crate) bind: Option<IpAddr>,

    /// Port of the server
    #[arg(short, long, default_value_t = 7471, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) port: u16,

    /// Connections
    #[arg(short, long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) connections: u32,

    /// Messages in either direction on each connection
    #[arg(short = 'C', long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(..=1_000_000))]
    pub(crate) messages: u32,

    /// Bytes in a message; k, M and G are powers of 1024
    #[arg(short = 'S', long, value_name = "SIZE", default_value = "100", value_parser = parse_message_size)]
    pub(crate) size: u32,

    /// Type of service of the client's packets, such as 0x68
    #[arg(short, long, value_name = "TOS", value_parser = parse_byte)]
    pub(crate) tos: Option<u8>,

    /// Code of the time in which the device of the client waits for an acknowledgement (4.096 us times 2 to the N, N up to 31)
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u8).range(..=31))]
    pub(crate) ack_timeout: Option<u8>,

    /// Move all identifiers to a new event channel before hanging up
    #[arg(short, long)]
    pub(crate) migrate: bool,

    /// Take the receives of all connections from one shared receive queue
    #[arg(long)]
    pub(crate) srq: bool,

    /// Give up when not all is done after so long; 0 waits for ever
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = parse_timeout)]
    pub(crate) timeout: Timeout,
}

impl Arguments {
    /// Where to listen.
    pub(crate) fn listen_on(&self) -> SocketAddr {
        SocketAddr::new(self.bind.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED)), self.port)
    }

    /// Where to connect from, if that is asked for.
    pub(crate) fn source(&self) -> Option<SocketAddr> {
        self.bind.map(|address| SocketAddr::new(address, 0))
    }
}

/// A number of 8 bits, also in hexadecimal.
fn parse_byte(text: &str) -> Result<u8, String> {
    let number = match text.strip_prefix("0x") {
        Some(digits) => u8::from_str_radix(digits, 16),
        None => text.parse(),
    };
    number.map_err(|_| "a type of service is 0 to 255, or 0x0 to 0xff".to_owned())
}

#[cfg(test)]
mod tests {
    use super::parse_byte;

    #[test]
    fn types_of_service_are_decimal_or_hexadecimal() {
        assert_eq!(parse_byte("104"), Ok(104));
        assert_eq!(parse_byte("0x68"), Ok(104));
        for wrong in ["", "256", "0x100", "0x", "-1", "x"] {
            assert!(parse_byte(wrong).is_err(), "{wrong}");
        }
    }
}
