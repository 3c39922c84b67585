//! Over a reliable connection.

use std::io::Write;
use std::sync::Arc;

use anyhow::Result;
use sideway::ibverbs::device_context::DeviceContext;
use sideway::ibverbs::queue_pair::{GenericQueuePair, QueuePair, QueuePairType};
use sideway::rdmacm::communication_manager::Identifier;
use sideway::rdmacm::{Connection, ConnectionParameter};
use sideway_examples::check_message_size;
use sideway_examples::pingpong::{self, Carrier, Game, Piece, Resources, Side};

use crate::arguments::Arguments;
use crate::meeting::{self, tell};

/// Connects, and sends first.
pub(crate) fn client(host: &str, arguments: &Arguments, out: &mut dyn Write) -> Result<()> {
    let resolved = meeting::resolve(host, arguments)?;
    let mut game = game(resolved.identifier(), resolved.device_context(), Side::Client, arguments)?;
    let connection = resolved.connect(&ConnectionParameter::default())?;
    play(&mut game, &connection, out)?;
    // The last message is the server's. Some devices tell of it before they acknowledge it, and a queue pair that has gone by then
    // does not: so it stays until the server knows.
    connection.wait(arguments.play.timeout.0)?;
    connection.disconnect(arguments.play.timeout.0)?;
    Ok(())
}

/// Waits for a client, and answers.
pub(crate) fn server(arguments: &Arguments, out: &mut dyn Write) -> Result<()> {
    let request = meeting::accept(arguments)?;
    let mut game = game(request.identifier(), request.device_context(), Side::Server, arguments)?;
    let connection = request.accept(&ConnectionParameter::default())?;
    play(&mut game, &connection, out)?;
    connection.disconnect(arguments.play.timeout.0)?;
    Ok(())
}

/// A game whose receives are posted: the peer may send as soon as it is connected.
fn game(
    id: &Arc<Identifier>,
    device: &Arc<DeviceContext>,
    side: Side,
    arguments: &Arguments,
) -> Result<Game<ReliableConnection>> {
    check_message_size(&device.query_port(meeting::port_num(id)?)?, arguments.size())?;
    let resources = Resources::new::<ReliableConnection>(device, &arguments.play, arguments.size(), 1)?;
    let mut builder = resources.pd().create_qp_builder();
    builder.setup_qp_type(QueuePairType::ReliableConnection);
    let qp = meeting::queue_pair(id, &resources, builder, arguments)?;
    Game::new(resources, ReliableConnection { qp }, side)
}

fn play(game: &mut Game<ReliableConnection>, connection: &Connection, out: &mut dyn Write) -> Result<()> {
    let id = connection.identifier();
    tell("local", id.local_address(), Some(game.carrier_mut().qp.qp_number()), out)?;
    tell("remote", connection.peer_address(), Some(connection.info().qp_number()), out)?;
    write!(out, "{}", game.play(Some(connection))?)?;
    Ok(out.flush()?)
}

/// The identifier connects it.
#[derive(Debug)]
struct ReliableConnection {
    qp: GenericQueuePair,
}

impl Carrier for ReliableConnection {
    const WAY: &'static str = "this address (-b)";

    unsafe fn post_send(&mut self, _lane: usize, wr_id: u64, message: Piece) -> Result<()> {
        // SAFETY: the caller's promise: the queue pair goes with `self`.
        unsafe { pingpong::post_send(&mut self.qp, wr_id, message) }
    }

    unsafe fn post_receives(&mut self, receives: &mut dyn Iterator<Item = (u64, Piece)>) -> Result<()> {
        // SAFETY: as above.
        unsafe { pingpong::post_receives(&mut self.qp, receives) }
    }
}
