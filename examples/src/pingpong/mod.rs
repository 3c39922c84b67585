//! Messages to and fro between two programs: what the ping-pongs share, whatever their transport service.
//!
//! ```text
//! a program                        here
//!   its options                      Place, Message, Play
//!   its queue pairs: a Carrier       Resources         memory, completion queue
//!                                    Game              plays and tells how long it took
//!   which are connected by hand:
//!     a Link                         Endpoint          device, port, GID and the Resources
//!                                    play              tells the addresses, then has the Game played
//! ```
//!
//! The client sends first, and each side answers what it has received: on every queue pair of the [`Carrier`] for itself, until
//! the messages of all together are as many as asked for.

mod arguments;
mod buffers;
mod carrier;
mod endpoint;
mod game;
mod link;
mod partners;
mod pattern;
mod resources;
mod statistics;

use std::io::Write;

use anyhow::Result;

pub use self::arguments::{Kind, Message, Place, Play};
pub use self::buffers::Piece;
pub use self::carrier::{Carrier, post_datagram, post_receives, post_send};
pub use self::endpoint::Endpoint;
pub use self::game::Game;
pub use self::link::Link;
pub use self::pattern::Side;
pub use self::resources::Resources;
pub use self::statistics::Statistics;
use crate::exchange::Peer;

/// Finds the peer, connects the link with it, sends and receives all messages, and tells how long it took.
///
/// # Errors
///
/// A sentence for the user: there is no peer, it plays by other rules, or it has gone.
pub fn play<L: Link>(endpoint: Endpoint, link: L, out: &mut dyn Write) -> Result<()> {
    if let Some(note) = endpoint.port().note() {
        writeln!(out, "{note}")?;
    }
    let local = link.addresses();
    for address in &local {
        writeln!(out, "  local address:  {address}")?;
    }
    out.flush()?;

    // A peer may send as soon as it knows this side: the receives must be there by then.
    let Endpoint { resources, place, port } = endpoint;
    let timeout = resources.play.timeout;
    let side = if place.server.is_some() { Side::Client } else { Side::Server };
    let mut game = Game::new(resources, link, side)?;
    let (mut peer, remotes) = match &place.server {
        Some(server) => {
            let mut peer = Peer::connect(server, place.port, timeout)?;
            partners::send(&mut peer, &local, L::ADDRESSES_TOLD)?;
            let remotes = partners::receive(&mut peer, local.len(), L::ADDRESSES_TOLD)?;
            game.carrier_mut().connect(&port, &remotes)?;
            peer.send_done()?;
            (peer, remotes)
        }
        None => {
            let mut peer = Peer::accept(place.port, timeout)?;
            let remotes = partners::receive(&mut peer, local.len(), L::ADDRESSES_TOLD)?;
            game.carrier_mut().connect(&port, &remotes)?;
            partners::send(&mut peer, &local, L::ADDRESSES_TOLD)?;
            peer.receive_done()?;
            (peer, remotes)
        }
    };
    for remote in &remotes {
        writeln!(out, "  remote address: {remote}")?;
    }
    out.flush()?;

    let statistics = game.play(None)?;
    write!(out, "{statistics}")?;
    out.flush()?;
    // The last message is the server's. Some devices tell of it before they acknowledge it, and a queue pair that has gone by then
    // does not: so it stays until the server has ended. The C programs close the connection before they play.
    if place.server.is_some() {
        peer.wait_for_end();
    }
    Ok(())
}
