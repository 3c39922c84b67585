//! The command line.

use clap::Parser;
use sideway_examples::exchange::DEFAULT_PORT;
use sideway_examples::pingpong::Play;
use sideway_examples::units::parse_message_size;

const ABOUT: &str = "\
Sends messages to and fro between two programs that find each other by IP address (RDMA CM), over a reliable connection or as \
datagrams, and tells how long it took.

Without SERVER it waits for a client; with SERVER it is the client. The address decides over which device and port the messages \
go; the connection manager moves the queue pairs. The client sends first, as iWARP demands of the side that connects.

Give both sides the same --size and --iters.";

const EXAMPLES: &str = "\
Examples:
  cm_pingpong                                   on the first machine: waits at all its addresses
  cm_pingpong 192.0.2.1                         on the second
  cm_pingpong -b 192.0.2.2 -s 64k -c 192.0.2.1  from this address; another size, and the data checked
  cm_pingpong fe80::1%eth0                      a link-local address has its interface behind it
  cm_pingpong --ud -s 1k 192.0.2.1              as datagrams; the server has --ud too

Exit status: 0 when all messages were exchanged, 1 when something failed, 2 for arguments that make no sense.";

/// Bytes in a message, unless asked for: over a connection, and in a datagram.
const SIZE: u32 = 4096;
const DATAGRAM_SIZE: u32 = 1024;

/// Send messages to and fro between programs that find each other by IP address
#[derive(Clone, Debug, Parser)]
#[command(name = "cm_pingpong", version, long_about = ABOUT, after_help = EXAMPLES, max_term_width = 110)]
pub(crate) struct Arguments {
    /// The host that the server runs on, as a name or an address of an RDMA device; none makes this program the server
    pub(crate) server: Option<String>,

    /// Port, of the RDMA CM's port space for TCP; with --ud, of that for UDP
    #[arg(short, long, default_value_t = DEFAULT_PORT, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) port: u16,

    /// Server: the address to wait at [default: all]. Client: the address to come from [default: what the route says]. A name or
    /// an address
    #[arg(short, long, value_name = "HOST", visible_short_alias = 'I')]
    pub(crate) bind: Option<String>,

    /// Send datagrams (UD) instead of connecting
    #[arg(short, long, visible_alias = "datagram")]
    pub(crate) ud: bool,

    /// Bytes in a message; k, M and G are powers of 1024. A datagram is at most as long as the port's active MTU [default: 4096;
    /// with --ud 1024]
    #[arg(short, long, value_name = "SIZE", value_parser = parse_message_size)]
    size: Option<u32>,

    #[command(flatten)]
    pub(crate) play: Play,
}

impl Arguments {
    /// Bytes in a message.
    pub(crate) fn size(&self) -> u32 {
        self.size.unwrap_or(if self.ud { DATAGRAM_SIZE } else { SIZE })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Arguments, String> {
        let words = std::iter::once("cm_pingpong").chain(line.split_whitespace());
        Arguments::try_parse_from(words).map_err(|error| error.to_string())
    }

    #[test]
    fn options_are_those_of_the_other_pingpongs() {
        let client = parse("-p 7000 -s 64k -n 3 -c -e -b 192.0.2.2 192.0.2.1").unwrap();
        assert_eq!((client.server.as_deref(), client.bind.as_deref()), (Some("192.0.2.1"), Some("192.0.2.2")));
        assert_eq!((client.port, client.size(), client.play.iters), (7000, 65536, 3));
        assert!(client.play.chk && client.play.events && !client.ud);
        let server = parse("").unwrap();
        assert_eq!((server.server.as_deref(), server.port, server.size()), (None, 18515, 4096));
        assert_eq!(parse("-I ::1").unwrap().bind.as_deref(), Some("::1"));
    }

    #[test]
    fn datagrams_are_shorter() {
        for words in ["-u", "--ud", "--datagram"] {
            let arguments = parse(words).unwrap();
            assert!(arguments.ud, "{words}");
            assert_eq!(arguments.size(), 1024);
        }
        assert_eq!(parse("-u -s 2k").unwrap().size(), 2048);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for line in ["-p 0", "-p 65536", "-s 0", "-n 0", "-r 0", "-d rxe_0", "-g 1", "a b", "--timeout -1", "-b"] {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}
