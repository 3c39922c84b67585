//! The command line.

use clap::Parser;
use sideway_examples::Timeout;
use sideway_examples::units::parse_timeout;

use super::text::{LARGEST, SMALLEST};

/// Where rdma-core's program listens too.
const PORT: u16 = 7174;

const ABOUT: &str = "\
Pings between two machines by RDMA: the client offers a text in its memory, the server reads it from there, and writes it back \
into other memory of the client. Neither processor touches the text on its way. The two find each other by IP address (RDMA CM).

Each side may be this program or rdma-core's rping: options, messages and what -v prints are the same. The text of a ping is at \
most as long as the -S of the server.";

const EXAMPLES: &str = "\
Examples:
  rping -s -v                                   on the first machine, 192.0.2.1: serves one client
  rping -c -a 192.0.2.1 -v -V -C 10             on the second: 10 pings, printed and compared
  rping -s -P                                   serves clients, several at once, until it is killed
  rping -c -a server.example.org -I 192.0.2.2   from this address, until it is killed

Exit status: 0 when all pings came back and were right (the server: when all were served), 1 when something failed, 2 for \
arguments that make no sense.";

/// Ping by RDMA read and write, over a connection by IP address
#[derive(Clone, Debug, Parser)]
#[command(name = "rping", disable_version_flag = true, long_about = ABOUT, after_help = EXAMPLES, max_term_width = 110)]
#[command(group = clap::ArgGroup::new("role").args(["server", "client"]).required(true))]
pub(crate) struct Arguments {
    /// Wait for a client, and serve it
    #[arg(short, long)]
    pub(crate) server: bool,

    /// Ping the server at -a
    #[arg(short, long, requires = "address")]
    pub(crate) client: bool,

    /// The server, as a name or an address; a server listens at that address alone [default: at every IPv4 address; `::` is every
    /// address]
    #[arg(short, long, value_name = "HOST")]
    pub(crate) address: Option<String>,

    /// Client: the address to come from, as a name or an address [default: what the route says]
    #[arg(short = 'I', long, value_name = "HOST", conflicts_with = "server")]
    pub(crate) source: Option<String>,

    /// Port, of the RDMA CM's port space for TCP
    #[arg(short, long, default_value_t = PORT, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) port: u16,

    /// Client: pings to send; 0 goes on until it is killed. The server serves as many as the client sends
    #[arg(short = 'C', long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(..=0x7fff_ffff))]
    pub(crate) count: u32,

    /// Client: bytes in the text of a ping. Server: bytes in the longest that it serves
    #[arg(short = 'S', long, value_name = "BYTES", default_value_t = 64,
          value_parser = clap::value_parser!(u32).range(i64::from(SMALLEST)..=i64::from(LARGEST)))]
    pub(crate) size: u32,

    /// Print the text of each ping
    #[arg(short, long)]
    pub(crate) verbose: bool,

    /// Compare each byte of a text: the client with what it has sent, the server with what a client sends
    #[arg(short = 'V', long)]
    pub(crate) validate: bool,

    /// Server: serve client after client, several at once, until it is killed. What fails with one is told, and ends with that one
    #[arg(short = 'P', long, conflicts_with = "client")]
    pub(crate) persistent: bool,

    /// Move the queue pair through its states here, and not in the library; the sides may differ in this
    #[arg(short = 'q', long)]
    pub(crate) own_qp: bool,

    /// Print each step
    #[arg(short, long)]
    pub(crate) debug: bool,

    /// Give up when a step takes longer than so: to connect, or the next word of the other side; 0 waits for ever
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = parse_timeout)]
    pub(crate) timeout: Timeout,

    /// Server: give up when no client comes for so long; 0 waits for ever
    #[arg(long, value_name = "SECONDS", default_value = "0", value_parser = parse_timeout, conflicts_with = "client")]
    pub(crate) wait: Timeout,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Arguments, String> {
        let words = std::iter::once("rping").chain(line.split_whitespace());
        Arguments::try_parse_from(words).map_err(|error| error.to_string())
    }

    #[test]
    fn options_of_the_c_program_are_understood() {
        let client = parse("-c -a 192.0.2.1 -I 192.0.2.2 -p 7000 -C 3 -S 100 -vVdq").unwrap();
        assert!(client.client && !client.server && client.verbose && client.validate && client.debug && client.own_qp);
        assert_eq!(client.address.as_deref(), Some("192.0.2.1"));
        assert_eq!(client.source.as_deref(), Some("192.0.2.2"));
        assert_eq!((client.port, client.count, client.size), (7000, 3, 100));
        let server = parse("-s -P -v -C 3").unwrap();
        assert!(server.server && server.persistent && !server.validate);
        assert_eq!((server.port, server.size, server.address), (7174, 64, None));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for (line, word) in [
            ("", "--server"),
            ("-s -c -a 192.0.2.1", "cannot be used with"),
            ("-c", "--address"),
            ("-s -I 192.0.2.1", "cannot be used with"),
            ("-c -a 192.0.2.1 -P", "cannot be used with"),
            ("-s -S 22", "23..=65535"),
            ("-s -S 65536", "23..=65535"),
            ("-s -C -1", "unexpected argument"),
            ("-s -C 2147483648", "2147483647"),
            ("-s -p 0", "1..=65535"),
            ("-s --timeout x", "number of seconds"),
            ("-s 192.0.2.1", "unexpected argument"),
        ] {
            let error = parse(line).unwrap_err();
            assert!(error.contains(word), "{line}: {error}");
        }
    }
}
