//! The command line.

use clap::{Parser, ValueEnum};
use sideway::rdmacm::PortSpace;
use sideway_examples::Timeout;
use sideway_examples::units::{parse_message_size, parse_timeout};

const ABOUT: &str = "\
Sends datagrams to a multicast group, or receives what is sent to it. The group is joined by its IP address (RDMA CM).

The other side may also be rdma-core's mckey: options and messages are the same. Datagrams get lost, and nobody tells the sender; \
a receiver counts, tells what is missing, and does not wait for it for ever.

Without a route to the group, -b says by its address from which device to join. RoCE v2 has groups of IPv4.";

const EXAMPLES: &str = "\
Examples:
  mckey -m 239.1.2.3 -b 192.0.2.1          receives 10 messages on the device with that address
  mckey -m 239.1.2.3 -b 192.0.2.2 -s       sends 10 on another machine, three seconds later
  mckey -m 239.1.2.3 -b 192.0.2.1 -C 1000 -S 1k -c 4     1000 of 1024 bytes to each of four queue pairs

Exit status: 0 when all messages came (with -s: were sent), 1 when something failed or was lost, 2 for arguments that make no \
sense.";

/// Send datagrams to a multicast group, or receive them
#[derive(Clone, Debug, Parser)]
#[command(name = "mckey", version, long_about = ABOUT, after_help = EXAMPLES, max_term_width = 110)]
pub(crate) struct Arguments {
    /// The address of the group
    #[arg(short, long, value_name = "GROUP")]
    pub(crate) multicast: String,

    /// Send; else receive
    #[arg(short, long)]
    pub(crate) sender: bool,

    /// The address to join from, as a name or an address [default: what the route to the group says]
    #[arg(short, long, value_name = "HOST")]
    pub(crate) bind: Option<String>,

    /// How often to join, each time with a queue pair of its own. Each receives all messages, and sends as many
    #[arg(short, long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) connections: u32,

    /// Messages that each queue pair sends, or is to receive from all senders together
    #[arg(short = 'C', long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) count: u32,

    /// Bytes in a message, at most the port's active MTU; k is 1024
    #[arg(short = 'S', long, value_name = "BYTES", default_value = "100", value_parser = parse_message_size)]
    pub(crate) size: u32,

    /// Port space: udp (or 0x111), or ipoib (or 0x2), which InfiniBand has
    #[arg(short, long, value_enum, value_name = "SPACE", default_value_t = Space::Udp)]
    pub(crate) port_space: Space,

    /// Join to send only: switches need not bring what others send
    #[arg(short = 'o', long, requires = "sender")]
    pub(crate) send_only: bool,

    /// Do not hear what the same queue pair sends, where the device can do without
    #[arg(short = 'l', long)]
    pub(crate) no_loopback: bool,

    /// Give up when it takes longer than so to join, to send a message, or until the first one comes; 0 waits for ever
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = parse_timeout)]
    pub(crate) timeout: Timeout,

    /// Receiver: what does not come for so long after another message is lost; 0 waits for ever
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = parse_timeout, conflicts_with = "sender")]
    pub(crate) silence: Timeout,

    /// Sender: wait for so long before the first message, until the network knows of all who have joined
    #[arg(long, value_name = "SECONDS", default_value = "3", value_parser = parse_timeout, requires = "sender")]
    pub(crate) delay: Timeout,
}

/// Which datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Space {
    /// Those of the RDMA CM
    #[value(alias = "0x111", alias = "0x0111", alias = "273")]
    Udp,
    /// Those of IP over InfiniBand
    #[value(alias = "0x2", alias = "0x0002", alias = "2")]
    Ipoib,
}

impl From<Space> for PortSpace {
    fn from(space: Space) -> Self {
        match space {
            Space::Udp => Self::Udp,
            Space::Ipoib => Self::IpOverInfiniBand,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn parse(line: &str) -> Result<Arguments, String> {
        let words = std::iter::once("mckey").chain(line.split_whitespace());
        Arguments::try_parse_from(words).map_err(|error| error.to_string())
    }

    #[test]
    fn options_of_the_c_program_are_understood() {
        let sender = parse("-m 239.1.2.3 -s -b 192.0.2.1 -c 2 -C 3 -S 64 -p 0x2 -o -l").unwrap();
        assert_eq!((sender.multicast.as_str(), sender.bind.as_deref()), ("239.1.2.3", Some("192.0.2.1")));
        assert!(sender.sender && sender.send_only && sender.no_loopback);
        assert_eq!((sender.connections, sender.count, sender.size), (2, 3, 64));
        assert_eq!(PortSpace::from(sender.port_space), PortSpace::IpOverInfiniBand);
        let receiver = parse("-m 239.1.2.3").unwrap();
        assert!(!receiver.sender && !receiver.send_only && !receiver.no_loopback);
        assert_eq!((receiver.connections, receiver.count, receiver.size), (1, 10, 100));
        assert_eq!(receiver.silence.0, Some(Duration::from_secs(5)));
        for udp in ["", "-p 0x111", "-p 273", "-p udp"] {
            assert_eq!(PortSpace::from(parse(&format!("-m 239.1.2.3 {udp}")).unwrap().port_space), PortSpace::Udp);
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for (line, word) in [
            ("", "--multicast"),
            ("-m 239.1.2.3 -o", "--sender"),
            ("-m 239.1.2.3 --delay 1", "--sender"),
            ("-m 239.1.2.3 -s --silence 1", "cannot be used with"),
            ("-m 239.1.2.3 -c 0", "1..=1024"),
            ("-m 239.1.2.3 -C 0", "not in"),
            ("-m 239.1.2.3 -S 0", "1 byte to 1G"),
            ("-m 239.1.2.3 -p 0x106", "possible values"),
            ("-m 239.1.2.3 -M ff0e::1", "unexpected argument"),
            ("-m 239.1.2.3 x", "unexpected argument"),
        ] {
            let error = parse(line).unwrap_err();
            assert!(error.contains(word), "{line}: {error}");
        }
    }
}
