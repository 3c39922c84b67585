//! As datagrams.

use std::io::Write;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use sideway::ibverbs::address::{AddressHandle, GlobalRoutingHeader};
use sideway::ibverbs::completion::WorkCompletionSource;
use sideway::ibverbs::device_context::DeviceContext;
use sideway::ibverbs::protection_domain::ProtectionDomain;
use sideway::ibverbs::queue_pair::{Datagram, GenericQueuePair, QueuePair};
use sideway::rdmacm::ConnectionParameter;
use sideway::rdmacm::communication_manager::{Identifier, PrivateData};
use sideway_examples::check_datagram_size;
use sideway_examples::pingpong::{self, Carrier, Game, Piece, Resources, Side};

use crate::arguments::Arguments;
use crate::meeting::{self, tell};

/// The key of queue pairs that are made through an identifier: datagrams to them carry it.
const Q_KEY: u32 = 0x0123_4567;

/// Looks the server's queue pair up, and sends first.
pub(crate) fn client(host: &str, arguments: &Arguments, out: &mut dyn Write) -> Result<()> {
    let resolved = meeting::resolve(host, arguments)?;
    let (local, remote) = (resolved.local_address(), resolved.peer_address());
    let mut game = game(resolved.identifier(), resolved.device_context(), Side::Client, arguments)?;
    let own = game.carrier_mut().qp.qp_number();
    // The server answers what comes from this queue pair.
    let mut parameter = ConnectionParameter::default();
    parameter.setup_private_data(&own.to_be_bytes());
    let found = resolved.lookup(&parameter)?;
    let way = game.carrier_mut().pd.create_ah(found.address_handle_attribute())?;
    game.carrier_mut().peer = Peer::Known { way, qp_num: found.qp_number(), qkey: found.qkey() };
    tell("local", local, Some(own), out)?;
    tell("remote", Some(remote), Some(found.qp_number()), out)?;
    play(&mut game, out)
}

/// Tells the first client its queue pair, and answers.
pub(crate) fn server(arguments: &Arguments, out: &mut dyn Write) -> Result<()> {
    let request = meeting::accept(arguments)?;
    let (local, remote) = (request.local_address(), request.peer_address());
    let mut game = game(request.identifier(), request.device_context(), Side::Server, arguments)?;
    let own = game.carrier_mut().qp.qp_number();
    let qp_num = number_in(request.private_data())?;
    let port_num = meeting::port_num(request.identifier())?;
    game.carrier_mut().peer = Peer::Expected { port_num, qp_num };
    request.accept_lookup(&ConnectionParameter::default())?;
    tell("local", local, Some(own), out)?;
    tell("remote", remote, Some(qp_num), out)?;
    play(&mut game, out)
}

/// A game whose receives are posted: the peer may send as soon as it knows the queue pair.
fn game(
    id: &Arc<Identifier>,
    device: &Arc<DeviceContext>,
    side: Side,
    arguments: &Arguments,
) -> Result<Game<Datagrams>> {
    check_datagram_size(&device.query_port(meeting::port_num(id)?)?, arguments.size())?;
    let resources = Resources::new::<Datagrams>(device, &arguments.play, arguments.size(), 1)?;
    let pd = Arc::clone(resources.pd());
    let qp = meeting::queue_pair(id, &resources, pd.create_ud_qp_builder(), arguments)?;
    Game::new(resources, Datagrams { qp, pd, peer: Peer::Unknown }, side)
}

fn play(game: &mut Game<Datagrams>, out: &mut dyn Write) -> Result<()> {
    write!(out, "{}", game.play(None)?)?;
    Ok(out.flush()?)
}

/// The number of the client's queue pair, which it tells when it looks the server's up.
fn number_in(private_data: &PrivateData) -> Result<u32> {
    let number = private_data.first_chunk().copied().map(u32::from_be_bytes);
    match number {
        // Numbers of queue pairs have 24 bits, and 0 and 1 are the port's own.
        Some(number @ 2..0xff_ffff) => Ok(number),
        _ => bail!("the client does not tell its queue pair: is it a cm_pingpong with --ud?"),
    }
}

/// A queue pair that has no peer of its own: each message says where it goes.
#[derive(Debug)]
struct Datagrams {
    qp: GenericQueuePair<Datagram>,
    pd: Arc<ProtectionDomain>,
    peer: Peer,
}

/// What is known of the peer.
#[derive(Debug)]
enum Peer {
    Unknown,
    /// Which queue pair it has; its first message, to this port of the device, tells the way there.
    Expected {
        port_num: u8,
        qp_num: u32,
    },
    Known {
        way: Arc<AddressHandle>,
        qp_num: u32,
        qkey: u32,
    },
}

impl Carrier for Datagrams {
    /// The global routing header, or the room for one where the datagram came without.
    const HEADROOM: u32 = 40;
    const UNRELIABLE: Option<&'static str> = Some("Datagrams (UD) get lost");
    const WAY: &'static str = "this address (-b)";

    unsafe fn post_send(&mut self, _lane: usize, wr_id: u64, message: Piece) -> Result<()> {
        let Peer::Known { way, qp_num, qkey } = &self.peer else { bail!("there is no peer yet") };
        // SAFETY: the caller's promise: the queue pair goes with `self`.
        unsafe { pingpong::post_datagram(&mut self.qp, wr_id, (way, *qp_num, *qkey), message) }
    }

    unsafe fn post_receives(&mut self, receives: &mut dyn Iterator<Item = (u64, Piece)>) -> Result<()> {
        // SAFETY: as above.
        unsafe { pingpong::post_receives(&mut self.qp, receives) }
    }

    fn awaits_peer(&self) -> bool {
        matches!(self.peer, Peer::Expected { .. })
    }

    fn meet(&mut self, source: &WorkCompletionSource, header: &GlobalRoutingHeader) -> Result<()> {
        let Peer::Expected { port_num, qp_num } = self.peer else { return Ok(()) };
        if source.src_qp != qp_num {
            bail!("a datagram came from queue pair {:#08x}, and that of the client is {qp_num:#08x}", source.src_qp);
        }
        let way = self.pd.create_ah_from_wc(port_num, source, Some(header)).context("the way back to the client")?;
        self.peer = Peer::Known { way, qp_num, qkey: Q_KEY };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_client_tells_its_queue_pair() {
        let number = |bytes: &[u8]| number_in(&PrivateData::from(bytes)).map_err(|error| error.to_string());
        assert_eq!(number(&[0, 0, 0, 17]), Ok(17));
        // The field comes whole, with zeros behind what was sent.
        assert_eq!(number(&[0, 0x12, 0x34, 0x56, 0, 0, 0]), Ok(0x12_3456));
        for wrong in [&[][..], &[0, 0, 17], &[0; 180], &[0, 0, 0, 1], &[0, 0xff, 0xff, 0xff], b"text"] {
            assert!(number(wrong).unwrap_err().contains("is it a cm_pingpong with --ud?"), "{wrong:?}");
        }
    }
}
