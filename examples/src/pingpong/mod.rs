//! Messages to and fro between two programs: what the ping-pongs share, whatever their transport service.
//!
//! ```text
//! a program                        here
//!   its options                      Place, Message, Play
//!   its queue pairs: a Link          Endpoint          device, port, GID, memory, completion queue
//!                                    play              tells the addresses, then plays and tells how long it took
//! ```
//!
//! The client sends first, and each side answers what it has received: on every queue pair of the [`Link`] for itself, until
//! the messages of all together are as many as asked for.

mod arguments;
mod buffers;
mod endpoint;
mod game;
mod link;
mod partners;
mod pattern;
mod statistics;

use std::io::Write;

use anyhow::Result;

pub use self::arguments::{Kind, Message, Place, Play};
pub use self::buffers::Piece;
pub use self::endpoint::Endpoint;
use self::game::Game;
pub use self::link::{Link, post_receives, post_send};
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
    let place = endpoint.place.clone();
    let timeout = endpoint.play.timeout;
    let mut game = Game::new(endpoint, link)?;
    let (mut peer, remotes) = match &place.server {
        Some(server) => {
            let mut peer = Peer::connect(server, place.port, timeout)?;
            partners::send(&mut peer, &local, L::ADDRESSES_TOLD)?;
            let remotes = partners::receive(&mut peer, local.len(), L::ADDRESSES_TOLD)?;
            game.connect(&remotes)?;
            peer.send_done()?;
            (peer, remotes)
        }
        None => {
            let mut peer = Peer::accept(place.port, timeout)?;
            let remotes = partners::receive(&mut peer, local.len(), L::ADDRESSES_TOLD)?;
            game.connect(&remotes)?;
            partners::send(&mut peer, &local, L::ADDRESSES_TOLD)?;
            peer.receive_done()?;
            (peer, remotes)
        }
    };
    for remote in &remotes {
        writeln!(out, "  remote address: {remote}")?;
    }
    out.flush()?;

    let statistics = game.play()?;
    write!(out, "{statistics}")?;
    out.flush()?;
    // The last message is the server's. Some devices tell of it before they acknowledge it, and a queue pair that has gone by then
    // does not: so it stays until the server has ended. The C programs close the connection before they play.
    if place.server.is_some() {
        peer.wait_for_end();
    }
    Ok(())
}
