//! Sends messages back and forth between two programs that connect by IP address. This is the exchange of `rc_pingpong`
//! or `ud_pingpong`, with the RDMA connection manager instead of a TCP connection.
//!
//! ```text
//! client                                    server
//!
//! Connector::resolve                        Listener::accept      a Request
//!   queue pair, through the identifier        queue pair, through the identifier
//!   receives are posted                       receives are posted
//! Resolved::connect     ──────────────────► Request::accept
//! message               ──────────────────►
//!                       ◄────────────────── answer                … --iters times
//! Connection::wait      ◄────────────────── Connection::disconnect
//! ```
//!
//! The client sends first. iWARP requires this: the accepting side must not send before it has received a message.
//!
//! With `--ud`, the client looks up the server's queue pair, and the server gets the path to the client from the first
//! message.

use std::io::Write;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Parser;
use sideway::ibverbs::device_context::DeviceContext;
use sideway::ibverbs::queue_pair::{BasicService, GenericQueuePair, QueuePair, QueuePairBuilder};
use sideway::rdmacm::communication_manager::{Identifier, PrivateData};
use sideway::rdmacm::{Connection, ConnectionParameter, Connector, Listener, PortSpace, Request, Resolved};
use sideway_examples::connections::resolve;
use sideway_examples::exchange::DEFAULT_PORT;
use sideway_examples::options::parse_message_size;
use sideway_examples::pingpong::{Kind, Peer, QueuePairs, Resources, RunLoop, RunOptions, Service, Side};
use sideway_examples::{check_datagram_size, check_message_size};

const ABOUT: &str = "\
Sends messages back and forth between two programs that connect by IP address (RDMA CM), over a reliable connection or as datagrams, \
and prints the time.

The address selects the device and the port. Both sides require the same --size and --iters.";

const EXAMPLES: &str = "\
Examples:
  cm_pingpong                                   on the first machine: the server, on all addresses
  cm_pingpong 192.0.2.1                         on the second
  cm_pingpong -b 192.0.2.2 -s 64k -c 192.0.2.1  from this address, with another size and data check
  cm_pingpong fe80::1%eth0                      a link-local address requires its interface
  cm_pingpong --ud -s 1k 192.0.2.1              as datagrams; the server also requires --ud

Exit status: 0 if all messages were exchanged, 1 on failure, 2 for invalid arguments.";

/// Send messages back and forth between programs that connect by IP address
#[derive(Clone, Debug, Parser)]
#[command(name = "cm_pingpong", version, long_about = ABOUT, after_help = EXAMPLES, max_term_width = 110)]
struct Arguments {
    /// Host of the server, as a name or an address of an RDMA device; without it, this program is the server
    server: Option<String>,

    /// Port in the RDMA CM's port space for TCP; with --ud, for UDP
    #[arg(short, long, default_value_t = DEFAULT_PORT, value_parser = clap::value_parser!(u16).range(1..))]
    port: u16,

    /// Own address, as a name or an address [default: server: all; client: by the route]
    #[arg(short, long, value_name = "HOST", visible_short_alias = 'I')]
    bind: Option<String>,

    /// Send datagrams (UD) instead of connecting
    #[arg(short, long, visible_alias = "datagram")]
    ud: bool,

    /// Bytes in a message; with --ud at most the port's active MTU [default: 4096; with --ud 1024]
    #[arg(short, long, value_name = "SIZE", value_parser = parse_message_size)]
    size: Option<u32>,

    #[command(flatten)]
    run: RunOptions,
}

/// The Q_Key of queue pairs that are created through an identifier; each datagram to them must contain it.
const Q_KEY: u32 = 0x0123_4567;

fn main() -> ExitCode {
    sideway_examples::program(run)
}

fn run(arguments: Arguments, out: &mut dyn Write) -> Result<()> {
    softrnic::register()?;
    arguments.run.check()?;
    match (&arguments.server, arguments.ud) {
        (Some(host), false) => arguments.connect(host, out),
        (None, false) => arguments.serve_connection(out),
        (Some(host), true) => arguments.look_up(host, out),
        (None, true) => arguments.serve_datagrams(out),
    }
}

impl Arguments {
    /// Runs the client of a connection.
    fn connect(&self, host: &str, out: &mut dyn Write) -> Result<()> {
        let resolved = self.resolve(host)?;
        let (mut run_loop, qp_num) = self.connection(resolved.identifier(), resolved.device_context(), Side::Client)?;
        let connection = resolved.connect(&ConnectionParameter::default())?;
        run_connected(&mut run_loop, qp_num, &connection, out)?;
        // The server sends the last message. Some devices report a message before they acknowledge it, and a destroyed
        // queue pair acknowledges nothing. So the client waits until the server disconnects.
        connection.wait(self.run.timeout.0)?;
        connection.disconnect(self.run.timeout.0)?;
        Ok(())
    }

    /// Runs the server of a connection.
    fn serve_connection(&self, out: &mut dyn Write) -> Result<()> {
        let request = self.accept()?;
        let (mut run_loop, qp_num) = self.connection(request.identifier(), request.device_context(), Side::Server)?;
        let connection = request.accept(&ConnectionParameter::default())?;
        run_connected(&mut run_loop, qp_num, &connection, out)?;
        connection.disconnect(self.run.timeout.0)?;
        Ok(())
    }

    /// Runs the client with datagrams: looks up the server's queue pair.
    fn look_up(&self, host: &str, out: &mut dyn Write) -> Result<()> {
        let resolved = self.resolve(host)?;
        let (local, remote) = (resolved.local_address(), resolved.peer_address());
        let (mut run_loop, own) =
            self.datagrams(resolved.identifier(), resolved.device_context(), Side::Client, Peer::Unknown)?;
        // The server accepts messages only from the queue pair with this number.
        let mut parameter = ConnectionParameter::default();
        parameter.setup_private_data(&own.to_be_bytes());
        let found = resolved.lookup(&parameter)?;
        if let QueuePairs::Datagram { pd, peer, .. } = run_loop.qps_mut() {
            let path = pd.create_ah(found.address_handle_attribute())?;
            *peer = Peer::Ready { path, qp_num: found.qp_number(), qkey: found.qkey() };
        }
        print_address("local", local, own, out)?;
        print_address("remote", Some(remote), found.qp_number(), out)?;
        write!(out, "{}", run_loop.run(None)?)?;
        Ok(())
    }

    /// Runs the server with datagrams: answers the request of the first client.
    fn serve_datagrams(&self, out: &mut dyn Write) -> Result<()> {
        let request = self.accept()?;
        let (local, remote) = (request.local_address(), request.peer_address());
        let qp_num = client_qp_number(request.private_data())?;
        let peer = Peer::Expected { port_num: port_num(request.identifier())?, qp_num, qkey: Q_KEY };
        let (mut run_loop, own) = self.datagrams(request.identifier(), request.device_context(), Side::Server, peer)?;
        request.accept_lookup(&ConnectionParameter::default())?;
        print_address("local", local, own, out)?;
        print_address("remote", remote, qp_num, out)?;
        write!(out, "{}", run_loop.run(None)?)?;
        Ok(())
    }

    fn resolve(&self, host: &str) -> Result<Resolved> {
        let mut connector = Connector::new();
        connector.setup_port_space(self.port_space()).setup_timeout(self.limit());
        if let Some(source) = &self.bind {
            connector.setup_source(resolve(source, 0).context("--bind")?.ip());
        }
        Ok(connector.resolve((host, self.port))?)
    }

    /// The request of the first client.
    fn accept(&self) -> Result<Request> {
        let mut builder = Listener::builder();
        builder.setup_port_space(self.port_space()).setup_timeout(self.limit());
        let listener = match &self.bind {
            Some(host) => builder.bind((host.as_str(), self.port)),
            // The IPv6 wildcard address covers both families, but the machine may have no IPv6.
            None => builder.bind(
                [(Ipv6Addr::UNSPECIFIED, self.port).into(), SocketAddr::from((Ipv4Addr::UNSPECIFIED, self.port))]
                    .as_slice(),
            ),
        };
        Ok(listener?.accept(self.run.timeout.0)?)
    }

    fn port_space(&self) -> PortSpace {
        if self.ud { PortSpace::Udp } else { PortSpace::Tcp }
    }

    fn limit(&self) -> Duration {
        self.run.timeout.0.unwrap_or(Duration::MAX)
    }

    /// Creates the run loop of a connection, with posted receives; also returns the number of its queue pair.
    fn connection(&self, id: &Arc<Identifier>, device: &Arc<DeviceContext>, side: Side) -> Result<(RunLoop, u32)> {
        let size = self.size.unwrap_or(4096);
        check_message_size(&device.query_port(port_num(id)?)?, size)?;
        let resources = Resources::new(device, &self.run, Service::RELIABLE.by_address(), size, 1)?;
        let qp = self.queue_pair(id, &resources, resources.pd().create_qp_builder())?;
        let qp_num = qp.qp_number();
        Ok((RunLoop::new(resources, QueuePairs::Connected(vec![qp], None), side)?, qp_num))
    }

    /// Creates the run loop for datagrams, with posted receives; also returns the number of its queue pair.
    fn datagrams(
        &self,
        id: &Arc<Identifier>,
        device: &Arc<DeviceContext>,
        side: Side,
        peer: Peer,
    ) -> Result<(RunLoop, u32)> {
        let size = self.size.unwrap_or(1024);
        check_datagram_size(&device.query_port(port_num(id)?)?, size)?;
        let resources = Resources::new(device, &self.run, Service::DATAGRAM.by_address(), size, 1)?;
        let pd = Arc::clone(resources.pd());
        let qp = self.queue_pair(id, &resources, pd.create_ud_qp_builder())?;
        let qp_num = qp.qp_number();
        Ok((RunLoop::new(resources, QueuePairs::Datagram { qp, pd, peer }, side)?, qp_num))
    }

    /// A queue pair whose state the identifier changes.
    fn queue_pair<T: BasicService>(
        &self,
        id: &Arc<Identifier>,
        resources: &Resources,
        mut builder: QueuePairBuilder<T>,
    ) -> Result<GenericQueuePair<T>> {
        resources.equip(&mut builder);
        Ok(match self.run.qp_kind()? {
            Kind::Basic => id.create_qp(&builder)?.into(),
            Kind::Extended => id.create_qp_ex(&builder)?.into(),
            Kind::Generic => id.create_qp_generic(&builder)?,
        })
    }
}

fn run_connected(run_loop: &mut RunLoop, qp_num: u32, connection: &Connection, out: &mut dyn Write) -> Result<()> {
    let peer = connection.info();
    print_address("local", connection.identifier().local_address(), qp_num, out)?;
    print_address("remote", connection.peer_address(), peer.qp_number(), out)?;
    write!(out, "{}", run_loop.run(Some(connection))?)?;
    Ok(out.flush()?)
}

/// The port of the identifier's device.
fn port_num(id: &Identifier) -> Result<u8> {
    id.port_num().context("the identifier has no port")
}

fn print_address(side: &str, address: Option<SocketAddr>, qp_num: u32, out: &mut dyn Write) -> Result<()> {
    let address = address.map_or_else(|| "unknown".into(), |address| address.to_string());
    writeln!(out, "  {:<15} {address}, QPN {qp_num:#08x}", format!("{side} address:"))?;
    Ok(out.flush()?)
}

/// Returns the number of the client's queue pair, which the request contains.
fn client_qp_number(private_data: &PrivateData) -> Result<u32> {
    match private_data.first_chunk().copied().map(u32::from_be_bytes) {
        // Numbers of queue pairs have 24 bits; 0 and 1 are reserved for the port.
        Some(number @ 2..0xff_ffff) => Ok(number),
        _ => bail!("the client sent no queue pair number; run cm_pingpong --ud there"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lookup_carries_the_number_of_a_queue_pair() {
        let number = |bytes: &[u8]| client_qp_number(&PrivateData::from(bytes)).map_err(|error| error.to_string());
        assert_eq!(number(&[0, 0, 0, 17]), Ok(17));
        // The field always has its full length, padded with zeros.
        assert_eq!(number(&[0, 0x12, 0x34, 0x56, 0, 0, 0]), Ok(0x12_3456));
        for wrong in [&[][..], &[0, 0, 17], &[0; 180], &[0, 0, 0, 1], &[0, 0xff, 0xff, 0xff], b"text"] {
            assert!(number(wrong).unwrap_err().contains("run cm_pingpong --ud there"), "{wrong:?}");
        }
    }
}
